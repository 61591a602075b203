"""The K worker streams: scatter w_t, gather certificates and A_k dz_k. Only translation, no decision about numbers."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc
from numpy.typing import NDArray

from acccocoa import __version__, codec, security
from acccocoa.errors import ClusterError, WorkerLost, WorkerRefused, WorkerUnreachable
from acccocoa.losses import Vector
from acccocoa.problem import Problem
from acccocoa.protocol import PROTOCOL_VERSION
from acccocoa.v1 import array_pb2, worker_pb2_grpc
from acccocoa.v1 import worker_pb2 as pb
from coordinator.handshake import Job, ShardDescription
from coordinator.messages import CertificateTerms, RoundRequest, WorkerUpdate
from coordinator.outer_loop import Contribution
from coordinator.schedule import Work

log = logging.getLogger(__name__)

T = TypeVar("T")

WATCH_SECONDS = 0.25
"""How often the silence of the workers is looked at."""


class WorkerLink:
    """One worker: a channel and, during a job, its Solve stream. Every wait has a deadline.

    Parameters
    ----------
    address : HOST:PORT;  rank : 0 .. K-1
    silence : seconds without any message after which a worker that should answer counts as lost
    """

    def __init__(self, address: str, rank: int, *, insecure: bool, silence: float) -> None:
        self.address = address
        self.rank = rank
        self.bytes_pushed = 0
        self.bytes_returned = 0
        self.support: NDArray[np.uint32] = np.empty(0, dtype=np.uint32)
        self.buckets: tuple[int, ...] = ()
        self._silence = silence
        self._channel = security.open_channel(address, insecure)
        self._outbox: queue.SimpleQueue[pb.SolveRequest | None] = queue.SimpleQueue()
        self._call: grpc.CallIterator[pb.SolveReply] | None = None
        self._replies: Iterator[pb.SolveReply] = iter(())
        self._waiting_since: float | None = None
        self._silent = False
        self._work: Work | None = None

    def __str__(self) -> str:
        return f"worker {self.address} (rank {self.rank})"

    def wait_serving(self, deadline: float, gone: Callable[[], ClusterError | None]) -> None:
        """Wait until the worker's health is SERVING.

        Parameters
        ----------
        deadline : on time.monotonic's clock
        gone : looked at while waiting; its error ends the wait

        Raises
        ------
        WorkerUnreachable : not SERVING before the deadline
        """
        stub = health_pb2_grpc.HealthStub(self._channel)
        seen = "not reached"
        pause = threading.Event()
        while time.monotonic() < deadline:
            error = gone()
            if error is not None:
                raise error
            try:
                reply = stub.Check(
                    health_pb2.HealthCheckRequest(), timeout=min(2.0, max(0.1, deadline - time.monotonic()))
                )
            except grpc.RpcError as rpc_error:
                seen = f"not reached ({rpc_error.details()})"
            else:
                if reply.status == health_pb2.HealthCheckResponse.SERVING:
                    return
                seen = "reached, but its shard is still being loaded"
            pause.wait(0.05)
        raise WorkerUnreachable(
            str(self), f"was {seen} within the time allowed", "is it running there? see --connect-timeout"
        )

    def describe(self, timeout: float) -> ShardDescription:
        """What the worker holds.

        Raises
        ------
        WorkerUnreachable, WorkerRefused : no answer, or not that of a worker
        """
        try:
            reply = worker_pb2_grpc.WorkerStub(self._channel).Describe(
                pb.DescribeRequest(protocol_version=PROTOCOL_VERSION), timeout=timeout
            )
        except grpc.RpcError as error:
            raise self._translate(error) from error
        return ShardDescription(
            address=self.address,
            protocol_version=reply.protocol_version,
            software_version=reply.software_version,
            content_hash=reply.content_hash,
            n=reply.n,
            d=reply.d,
            nnz=reply.nnz,
            label_counts=tuple((entry.label, entry.spelling, entry.count) for entry in reply.label_counts),
            label_counts_complete=reply.label_counts_complete,
            blocks=reply.blocks,
            job_id=reply.job_id,
            dtype=array_pb2.Array.DType.Name(reply.dtype).removeprefix("DTYPE_").lower(),
            load_seconds=reply.load_seconds,
            compile_seconds=reply.compile_seconds,
        )

    def start(self, shard: ShardDescription, job: Job, problem: Problem, job_id: str, seed: int) -> None:
        """Open the Solve stream and learn the worker's support.

        Raises
        ------
        WorkerLost, WorkerRefused
        """
        self._call = worker_pb2_grpc.WorkerStub(self._channel).Solve(iter(self._outbox.get, None))
        self._replies = iter(self._call)
        self._send(
            pb.SolveRequest(
                start=pb.Start(
                    protocol_version=PROTOCOL_VERSION,
                    software_version=__version__,
                    job_id=job_id,
                    rank=self.rank,
                    seed=seed,
                    n=job.n,
                    d=job.d,
                    loss=problem.loss_name,
                    loss_parameter=problem.resolved_parameter or 0.0,
                    lam=problem.lam,
                    l1_ratio=problem.l1_ratio,
                    positive_label=job.positive_label,
                    content_hash=shard.content_hash,
                )
            )
        )
        started = self._receive("started").started
        if started.support.length > shard.d or len(started.buckets) != shard.blocks or min(started.buckets) < 1:
            raise WorkerRefused(str(self), "announced a support or blocks that do not fit its shard")
        self.support = self._receive_array(started.support, np.dtype(np.uint32), int(started.support.length))
        if len(self.support) and int(self.support.max()) >= job.d:
            raise WorkerRefused(str(self), "announced a support beyond the number of features")
        self.buckets = tuple(started.buckets)

    def push(self, request: RoundRequest, work: Work, w: Vector) -> None:
        """Send a round with w_t restricted to the worker's support."""
        header, pieces = codec.encode(w[self.support])
        self._work = work
        self._send(
            pb.SolveRequest(
                round=pb.Round(
                    round=request.round,
                    theta=request.theta,
                    gamma=request.gamma,
                    sigma=request.sigma,
                    visits=work.visits,
                    fraction=work.fraction,
                    restart=request.restart,
                    certify=request.certify,
                    solve=request.solve,
                    w=header,
                )
            )
        )
        for piece in pieces:
            self._send(pb.SolveRequest(chunk=piece))

    def certificate(self, round_number: int) -> CertificateTerms:
        """Wait for the worker's Certificate of that round."""
        reply = self._receive("certificate").certificate
        self._expect_round(reply.round, round_number)
        return CertificateTerms(reply.conjugate_sum, reply.loss_sum, reply.compute_seconds)

    def update(self, round_number: int) -> WorkerUpdate:
        """Wait for the worker's Update of that round."""
        assert self._work is not None  # an update follows a push
        reply = self._receive("update").update
        self._expect_round(reply.round, round_number)
        a_dz = self._receive_array(reply.a_dz, np.dtype(np.float64), len(self.support))
        return WorkerUpdate(
            Contribution(self.support, a_dz, self._work.fraction), reply.steps, reply.compute_seconds, time.monotonic()
        )

    def check_silence(self) -> None:
        """Cancel the stream when the worker owes an answer and has been silent for too long."""
        since = self._waiting_since
        if since is not None and self._call is not None and time.monotonic() - since > self._silence:
            self._silent = True
            self._call.cancel()  # type: ignore[no-untyped-call]  # the stubs leave it untyped

    def close(self) -> None:
        """End the stream and the channel."""
        self._outbox.put(None)
        if self._call is not None:
            self._call.cancel()  # type: ignore[no-untyped-call]  # the stubs leave it untyped
        self._channel.close()

    def _send(self, message: pb.SolveRequest) -> None:
        self.bytes_pushed += message.ByteSize()
        self._outbox.put(message)

    def _expect_round(self, found: int, expected: int) -> None:
        if found != expected:
            raise WorkerRefused(str(self), f"answered round {found} where round {expected} was asked for")

    def _receive(self, kind: str) -> pb.SolveReply:
        """The next reply that is not a heartbeat; it must be of that kind."""
        try:
            while True:
                self._waiting_since = time.monotonic()
                reply = next(self._replies, None)
                if reply is None:
                    raise WorkerLost(str(self), "ended the job of its own accord", "see its log")
                self.bytes_returned += reply.ByteSize()
                found = reply.WhichOneof("kind")
                if found == kind:
                    return reply
                if found != "heartbeat":
                    raise WorkerRefused(str(self), f"sent {found} where {kind} was due")
        except grpc.RpcError as error:
            raise self._translate(error) from error
        finally:
            self._waiting_since = None

    def _receive_array(self, header: array_pb2.Array, dtype: "np.dtype[T]", length: int) -> NDArray[T]:  # type: ignore[type-var]  # T stands for a numpy scalar
        try:
            decoder = codec.Decoder(header, dtype, length)
            while decoder.missing:
                decoder.feed(self._receive("chunk").chunk.data)
            return decoder.array()
        except codec.WireError as error:
            raise WorkerLost(str(self), f"sent damaged data: {error}", "check the network") from error

    def _translate(self, error: grpc.RpcError) -> ClusterError:
        """A gRPC status as this project's error."""
        code, details = error.code(), error.details()
        if self._silent:
            return WorkerLost(
                str(self), f"gave no sign of life for {self._silence:g} s", "is it stopped, or the network cut?"
            )
        if code in (
            grpc.StatusCode.FAILED_PRECONDITION,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.UNIMPLEMENTED,
        ):
            return WorkerRefused(str(self), f"refused: {details}")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return WorkerUnreachable(str(self), "did not answer in time", "is it running there?")
        return WorkerLost(str(self), f"was lost ({code.name}: {details})", "see its log")


class Cluster:
    """All workers of a job. Messages overlap; results come in rank order, whatever order they arrive in.

    Parameters
    ----------
    addresses : HOST:PORT of every worker, in rank order
    """

    def __init__(self, addresses: Sequence[str], *, insecure: bool, silence: float) -> None:
        self.links = [
            WorkerLink(address, rank, insecure=insecure, silence=silence) for rank, address in enumerate(addresses)
        ]
        self._pool = ThreadPoolExecutor(len(self.links), thread_name_prefix="worker")
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._watch_silence, name="silence", daemon=True)
        self._watch.start()

    def _watch_silence(self) -> None:
        while not self._closed.wait(WATCH_SECONDS):
            for link in self.links:
                link.check_silence()

    def _each(self, work: Callable[[WorkerLink], T]) -> list[T]:
        """Run the work for every worker at the same time; the first failure, in rank order, is raised."""
        return list(self._pool.map(work, self.links))

    def connect(self, timeout: float, gone: Callable[[], ClusterError | None] = lambda: None) -> list[ShardDescription]:
        """Wait until every worker is ready, and learn what each holds.

        From here on the workers' ranks follow their shards' content hashes: the numbers of a run then depend on the
        data alone, not on which machine came up at which address.

        Raises
        ------
        WorkerUnreachable, WorkerRefused
        """
        deadline = time.monotonic() + timeout
        self._each(lambda link: link.wait_serving(deadline, gone))
        shards = self._each(lambda link: link.describe(max(1.0, deadline - time.monotonic())))
        order = sorted(range(len(shards)), key=lambda rank: shards[rank].content_hash)
        self.links = [self.links[rank] for rank in order]
        for rank, link in enumerate(self.links):
            link.rank = rank
        return [shards[rank] for rank in order]

    def start(
        self, shards: Sequence[ShardDescription], job: Job, problem: Problem, job_id: str, seed: int
    ) -> list[tuple[int, ...]]:
        """Begin the job with every worker; returns the number of buckets by worker and block."""
        self._each(lambda link: link.start(shards[link.rank], job, problem, job_id, seed))
        return [link.buckets for link in self.links]

    def push(self, request: RoundRequest, works: Sequence[Work], w: Vector) -> None:
        """Send the round to every worker."""
        self._each(lambda link: link.push(request, works[link.rank], w))

    def certificates(self, round_number: int) -> list[CertificateTerms]:
        """Every worker's certificate terms, in rank order."""
        return self._each(lambda link: link.certificate(round_number))

    def updates(self, round_number: int) -> list[WorkerUpdate]:
        """Every worker's A_k dz_k, in rank order."""
        return self._each(lambda link: link.update(round_number))

    @property
    def bytes_pushed(self) -> int:
        """Bytes of messages sent to the workers."""
        return sum(link.bytes_pushed for link in self.links)

    @property
    def bytes_returned(self) -> int:
        """Bytes of messages received from the workers."""
        return sum(link.bytes_returned for link in self.links)

    def close(self) -> None:
        """End all streams; the workers are free for the next job."""
        self._closed.set()
        for link in self.links:
            link.close()
        self._pool.shutdown()
        self._watch.join()
