"""A worker's services as a client of the tests' own sees them, and workers that do not tell the truth."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from acccocoa import __version__, codec, security
from acccocoa.losses import Vector
from acccocoa.protocol import PROTOCOL_VERSION
from acccocoa.v1 import array_pb2, worker_pb2_grpc
from acccocoa.v1 import worker_pb2 as pb

RPC_SECONDS = 60.0


class Client:
    """A worker at its address, for conversations that no coordinator would have."""

    def __init__(self, address: str) -> None:
        self._channel = security.open_channel(address)
        self._stub = worker_pb2_grpc.WorkerStub(self._channel)

    def close(self) -> None:
        """End all conversations."""
        self._channel.close()

    def describe(self) -> pb.DescribeReply:
        """What the worker holds."""
        return self._stub.Describe(pb.DescribeRequest(protocol_version=PROTOCOL_VERSION), timeout=RPC_SECONDS)

    def status(self, service: str = "") -> str:
        """Its health."""
        reply = health_pb2_grpc.HealthStub(self._channel).Check(
            health_pb2.HealthCheckRequest(service=service), timeout=RPC_SECONDS
        )
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))

    def solve(self, requests: Iterable[pb.SolveRequest]) -> "grpc.CallIterator[pb.SolveReply]":
        """Begin a conversation."""
        return self._stub.Solve(iter(requests), timeout=RPC_SECONDS)

    def refusal(self, requests: Iterable[pb.SolveRequest]) -> tuple[grpc.StatusCode, str]:
        """How the worker ends that conversation."""
        try:
            for _ in self.solve(requests):
                pass
        except grpc.RpcError as error:
            return error.code(), error.details() or ""
        return grpc.StatusCode.OK, ""

    def start(self, **changes: object) -> pb.SolveRequest:
        """A correct Start, with the given fields changed."""
        shard = self.describe()
        # the hinge loss, lam = 1e-3, of as many examples again elsewhere
        part = pb.Subproblem(classifier=True, bound=1.0, lipschitz=1e3, scale=0.5 / shard.n, labelled=True)
        start = pb.Start(
            protocol_version=PROTOCOL_VERSION,
            software_version=__version__,
            job_id=uuid.uuid4().hex,  # the same job would go on where it stood
            shared=shard.d,
            problems=[pb.Problem(part=part, positive_label=1.0)],
            content_hash=shard.content_hash,
            blocks=shard.blocks,
        )
        for name, value in changes.items():
            (problem,) = start.problems
            owner = next(part for part in (problem.part, problem, start) if hasattr(part, name))
            setattr(owner, name, value)
        return pb.SolveRequest(start=start)


def round_with(w: Vector, **changes: object) -> pb.SolveRequest:
    """A round of one visit, with the given fields changed."""
    header = array_pb2.Array()
    codec.encode(w.astype(codec.float_dtype(bool(changes.get("narrow")))), header)
    message = pb.Round(theta=1.0, gamma=1.0, sigma=1.0, visits=[1], fraction=0.5, certify=True, solve=True)
    message.brings_w = True
    for name, value in changes.items():
        if name == "visits":
            assert isinstance(value, list)
            message.visits[:] = value
        else:
            setattr(message, name, value)
    return pb.SolveRequest(rounds=pb.Rounds(rounds=[message], w=header if message.brings_w else None))


Tamper = Callable[[pb.SolveReply], Iterable[pb.SolveReply]]


def honest(reply: pb.SolveReply) -> Iterable[pb.SolveReply]:
    """Every reply as it is."""
    return [reply]


class _Between(worker_pb2_grpc.WorkerServicer):
    """Passes everything on to a real worker, and its answers back as `tamper` will have them."""

    def __init__(self, stub: worker_pb2_grpc.WorkerStub, describe: Callable[[pb.DescribeReply], None], tamper: Tamper):
        self._stub = stub
        self._describe = describe
        self._tamper = tamper

    def Describe(self, request: pb.DescribeRequest, context: grpc.ServicerContext) -> pb.DescribeReply:
        """See the proto."""
        reply: pb.DescribeReply = self._stub.Describe(request, timeout=RPC_SECONDS)
        self._describe(reply)
        return reply

    def Measure(self, request: pb.MeasureRequest, context: grpc.ServicerContext) -> Iterator[pb.MeasureReply]:
        """See the proto."""
        yield from self._stub.Measure(request, timeout=RPC_SECONDS)

    def Adopt(self, request: pb.AdoptRequest, context: grpc.ServicerContext) -> pb.AdoptReply:
        """See the proto."""
        reply: pb.AdoptReply = self._stub.Adopt(request, timeout=RPC_SECONDS)
        return reply

    def Solve(
        self, request_iterator: Iterator[pb.SolveRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.SolveReply]:
        """See the proto."""
        call = self._stub.Solve(request_iterator)
        context.add_callback(call.cancel)
        try:
            for reply in call:
                yield from self._tamper(reply)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details() or "")


@contextmanager
def man_in_the_middle(
    address: str,
    *,
    tamper: Tamper = honest,
    describe: Callable[[pb.DescribeReply], None] = lambda _: None,
) -> Iterator[str]:
    """A service before the worker at that address that changes what it says; yields its own address."""
    with security.open_channel(address) as channel, ThreadPoolExecutor(8) as handlers:
        server = grpc.server(handlers, options=security.SERVER_OPTIONS)
        between = _Between(worker_pb2_grpc.WorkerStub(channel), describe, tamper)
        worker_pb2_grpc.add_WorkerServicer_to_server(between, server)
        health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
        own_address = security.bind(server, "127.0.0.1:0")
        server.start()
        try:
            yield own_address
        finally:
            server.stop(None).wait()
