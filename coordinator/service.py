"""The coordinator's gRPC edge: Watch, Status and Stop of a running job."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

from acccocoa import __version__, security
from acccocoa.errors import WorkerUnreachable
from acccocoa.problem import Certified
from acccocoa.v1 import coordinator_pb2 as pb
from acccocoa.v1 import coordinator_pb2_grpc
from coordinator.training import CertifiedRound

WATCHERS = 16
"""Calls served at the same time; a further watcher waits for a place."""

LOOK_SECONDS = 1.0
"""How often a watcher's stream looks whether the watcher is still there."""


def to_wire(seen: CertifiedRound) -> pb.RoundReport:
    """A certified round as a message."""
    return pb.RoundReport(
        round=seen.round,
        seconds=seen.seconds,
        data_passes=seen.data_passes,
        theta=seen.theta,
        primal=seen.certified.primal,
        dual=seen.certified.dual,
        gap=seen.certified.gap,
        relative_gap=seen.certified.relative_gap,
        best_gap=seen.best_gap,
        best_relative_gap=seen.best_relative_gap,
        standing_primal=seen.standing.primal,
        standing_dual=seen.standing.dual,
        restart=seen.restart,
        bytes_pushed=seen.bytes_pushed,
        bytes_returned=seen.bytes_returned,
    )


def from_wire(message: pb.RoundReport) -> CertifiedRound:
    """A message as a certified round; the workers' figures do not travel."""
    return CertifiedRound(
        round=message.round,
        seconds=message.seconds,
        data_passes=message.data_passes,
        theta=message.theta,
        certified=Certified(message.primal, message.dual),
        standing=Certified(message.standing_primal, message.standing_dual),
        best_gap=message.best_gap,
        best_relative_gap=message.best_relative_gap,
        restart=message.restart,
        bytes_pushed=message.bytes_pushed,
        bytes_returned=message.bytes_returned,
        workers=(),
    )


class CoordinatorService(coordinator_pb2_grpc.CoordinatorServicer):
    """Tells who asks how the run goes. A slow watcher gets the newest round and misses those between.

    Parameters
    ----------
    stop : called by Stop, and ends the run as Ctrl-C does
    """

    def __init__(self, job_id: str, loss: str, stop: Callable[[], None]) -> None:
        self._status = pb.StatusReply(job_id=job_id, software_version=__version__, state="starting", loss=loss)
        self._stop = stop
        self._changed = threading.Condition()

    def running(self, lam: float, workers: int) -> None:
        """The run begins."""
        with self._changed:
            self._status.state = "running"
            self._status.lam = lam
            self._status.workers = workers

    def __call__(self, seen: CertifiedRound) -> None:
        """A certified round, for all watchers."""
        with self._changed:
            self._status.last.CopyFrom(to_wire(seen))
            self._changed.notify_all()

    def ended(self) -> None:
        """The run has ended; every watcher's stream ends."""
        with self._changed:
            self._status.state = "ended"
            self._changed.notify_all()

    def Watch(self, request: pb.WatchRequest, context: grpc.ServicerContext) -> Iterator[pb.RoundReport]:
        """See the proto."""
        last: tuple[int, float] | None = None
        while context.is_active():
            with self._changed:
                newest = None
                if self._status.HasField("last"):
                    key = (self._status.last.round, self._status.last.seconds)
                    if key != last:
                        last = key
                        newest = pb.RoundReport()
                        newest.CopyFrom(self._status.last)
                if newest is None:
                    if self._status.state == "ended":
                        return
                    self._changed.wait(LOOK_SECONDS)
            if newest is not None:
                yield newest

    def Status(self, request: pb.StatusRequest, context: grpc.ServicerContext) -> pb.StatusReply:
        """See the proto."""
        with self._changed:
            reply = pb.StatusReply()
            reply.CopyFrom(self._status)
            return reply

    def Stop(self, request: pb.StopRequest, context: grpc.ServicerContext) -> pb.StopReply:
        """See the proto."""
        self._stop()
        return pb.StopReply(state=self.Status(pb.StatusRequest(), context).state)


class CoordinatorServer:
    """The service on its port.

    address : HOST:PORT in use
    """

    def __init__(self, service: CoordinatorService, listen: str, insecure: bool) -> None:
        self._service = service
        self._server = grpc.server(
            ThreadPoolExecutor(WATCHERS, thread_name_prefix="watch"), options=security.SERVER_OPTIONS
        )
        coordinator_pb2_grpc.add_CoordinatorServicer_to_server(service, self._server)
        self.address = security.bind(self._server, listen, insecure)
        self._server.start()

    def close(self) -> None:
        """End the streams, then the server."""
        self._service.ended()
        self._server.stop(2.0).wait()


def watch(address: str, insecure: bool) -> Iterator[pb.RoundReport]:
    """The certified rounds of a running coordinator.

    Raises
    ------
    WorkerUnreachable : no coordinator answers there
    """
    with security.open_channel(address, insecure) as channel:
        try:
            yield from coordinator_pb2_grpc.CoordinatorStub(channel).Watch(pb.WatchRequest())
        except grpc.RpcError as error:
            raise WorkerUnreachable(
                f"coordinator {address}", f"does not answer ({error.details()})", "does it run with --listen?"
            ) from error
