"""One worker's stream: messages to it and from it, each wait with a deadline. Only translation, no decision."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc
from numpy.typing import NDArray

from acccocoa import codec, security
from acccocoa.errors import ClusterError, WorkerBusy, WorkerLost, WorkerRefused, WorkerUnreachable
from acccocoa.folds import Fold, Scores
from acccocoa.losses import Vector
from acccocoa.manifest import By, Part
from acccocoa.protocol import PROTOCOL_VERSION
from acccocoa.security import split_address
from acccocoa.statistics import Sizes
from acccocoa.v1 import array_pb2, worker_pb2_grpc
from acccocoa.v1 import worker_pb2 as pb
from coordinator.handshake import ShardDescription
from coordinator.messages import CertificateTerms, RoundRequest, WorkerUpdate
from coordinator.normalize import Measure
from coordinator.order import Places
from coordinator.outer_loop import Contribution
from coordinator.schedule import Work

MEASURE_SECONDS = 600.0
"""How long a worker may take to measure its shard: a pass over it."""

DESCRIBE_SECONDS = 5.0
"""How long a worker that is reached again may take to say what it holds."""


@dataclass(frozen=True, slots=True)
class _Outstanding:
    """What the worker was asked and has not answered yet."""

    request: RoundRequest
    work: Work
    w: Vector


class WorkerLink:
    """One worker: a channel and, during a job, its Solve stream.

    Parameters
    ----------
    address : HOST:PORT
    rank : 0 .. K-1
    support, places : numbers of the entries the worker shares, in its order, and where these are in the coordinator's
        vectors, set once all workers have begun
    divisors : of the columns of the worker's support, in its order, if the job divides them; sent with every start
    position : round and lineage of the newest state the worker had when its stream began; lineage None: of no use
    part : of which whole its shard is which part, if that is known
    elsewhere : where another worker serves the same shard, if one has taken it over
    candidates : where this worker's shard may be found when the connection is lost, looked up anew every time
    silence : seconds without any message after which a worker that should answer counts as lost
    """

    def __init__(
        self,
        address: str,
        rank: int,
        *,
        insecure: bool,
        silence: float,
        candidates: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self.address = address
        self.rank = rank
        self.candidates = candidates or (lambda: [address])
        self.bytes_pushed = 0
        self.bytes_returned = 0
        self.support: NDArray[np.uint32] = np.empty(0, dtype=np.uint32)
        self.places: Places = slice(0, 0)
        self.labels: Vector = np.empty(0)
        self.weights: Vector | None = None
        self.divisors: Vector | None = None
        self.part: Part | None = None
        self.elsewhere: str | None = None
        self._rows = 0
        self._holds = ""
        self.buckets: tuple[int, ...] = ()
        self._insecure = insecure
        self._silence = silence
        self._start: pb.Start | None = None
        self._outstanding: _Outstanding | None = None
        self.position: tuple[int, str | None] = (0, None)
        self._connect(address)

    def __str__(self) -> str:
        return f"worker {self.address}" + (f" ({self._holds})" if self._holds else "")

    def _connect(self, address: str) -> None:
        self._channel = security.open_channel(address, self._insecure)
        self.address = address
        self._outbox: queue.SimpleQueue[pb.SolveRequest | None] = queue.SimpleQueue()
        self._call: grpc.CallIterator[pb.SolveReply] | None = None
        self._replies: Iterator[pb.SolveReply] = iter(())
        self._waiting_since: float | None = None
        self._silent = False

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
        WorkerUnreachable, WorkerLost, WorkerRefused : no answer, or not that of a worker
        """
        try:
            reply = worker_pb2_grpc.WorkerStub(self._channel).Describe(
                pb.DescribeRequest(protocol_version=PROTOCOL_VERSION), timeout=timeout
            )
        except grpc.RpcError as error:
            raise self._translate(error) from error
        part = _part(reply)
        self._holds = str(part) if part is not None else reply.shard
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
            dtype=codec.dtype_name(reply.dtype),
            by_features=reply.by_features,
            features=reply.features,
            source=reply.shard,
            part=part,
            index_base=reply.index_base if reply.HasField("index_base") else None,
            largest_weight=reply.largest_weight,
            sizes=_sizes(reply.sizes),
            load_seconds=reply.load_seconds,
            compile_seconds=reply.compile_seconds,
        )

    def adopt(self, part: Part) -> str | None:
        """Have this worker serve another part, too; where it does, or None when it is about to.

        Raises
        ------
        ClusterError : it does not
        """
        try:
            reply = worker_pb2_grpc.WorkerStub(self._channel).Adopt(
                pb.AdoptRequest(whole=part.whole, number=part.number), timeout=DESCRIBE_SECONDS
            )
        except grpc.RpcError as error:
            raise self._translate(error) from error
        except ValueError as error:  # the channel is being closed
            raise WorkerLost(str(self), "is lost itself") from error
        if not reply.port:
            return None
        host = split_address(self.address)[0]
        return f"[{host}]:{reply.port}" if ":" in host else f"{host}:{reply.port}"

    def measure(
        self, measure: Measure, content_hash: str, length: int, fold: Fold | None = None
    ) -> tuple[NDArray[np.uint32], Vector]:
        """What is to be known of the worker's shard: numbers of its columns, rows or folds, below length, and values.

        Raises
        ------
        WorkerUnreachable, WorkerLost, WorkerRefused
        """
        kind = pb.Measure.Value(f"MEASURE_{measure.upper()}")
        try:
            replies: Iterator[pb.MeasureReply] = iter(
                worker_pb2_grpc.WorkerStub(self._channel).Measure(
                    pb.MeasureRequest(content_hash=content_hash, measure=kind, fold=fold_message(fold)),
                    timeout=MEASURE_SECONDS,
                )
            )
            header = next(replies).measured
            decoders = (
                codec.Decoder(header.numbers, np.dtype(np.uint32), min(int(header.numbers.length), length)),
                codec.Decoder(header.values, np.dtype(np.float64), min(int(header.numbers.length), length)),
            )
            for decoder in decoders:
                while decoder.missing:
                    decoder.feed(next(replies).chunk.data)
            numbers, values = (decoder.array() for decoder in decoders)
        except grpc.RpcError as error:
            raise self._translate(error) from error
        except StopIteration:
            raise WorkerLost(str(self), "did not say all there is to say of its shard") from None
        except codec.WireError as error:
            raise WorkerLost(str(self), f"sent damaged data: {error}", "check the network") from error
        if len(numbers) and int(numbers.max()) >= length:
            raise WorkerRefused(str(self), "measured what is not in the data")
        return numbers, values

    def start(self, start: pb.Start, shard: ShardDescription) -> bool:
        """Open the Solve stream and learn the worker's support; True when it can begin the round of `start`.

        Raises
        ------
        WorkerLost, WorkerRefused
        """
        self._start = pb.Start()
        self._start.CopyFrom(start)
        self._call = worker_pb2_grpc.WorkerStub(self._channel).Solve(iter(self._outbox.get, None))
        self._replies = iter(self._call)
        pieces: Iterator[array_pb2.Chunk] = iter(())
        if self.divisors is not None:
            header, pieces = codec.encode(self.divisors)
            start.divisors.CopyFrom(header)
        self._send(pb.SolveRequest(start=start))
        for piece in pieces:
            self._send(pb.SolveRequest(chunk=piece))
        started = self._receive("started").started
        buckets = tuple(started.buckets)
        if (
            started.support.length > shard.d + start.HasField("bias")
            or len(buckets) != shard.blocks
            or min(buckets) < 1
        ):
            raise WorkerRefused(str(self), "announced a support or blocks that do not fit its shard")
        if self.buckets and buckets != self.buckets:
            raise WorkerRefused(
                str(self),
                f"came back with {len(buckets)} blocks, the job was begun with {len(self.buckets)}",
                "start it with the same --threads",
            )
        support = self._receive_array(started.support, np.dtype(np.uint32), int(started.support.length))
        if len(support) and int(support.max()) >= start.shared:
            raise WorkerRefused(str(self), "announced a support beyond the length of the shared vector")
        if self.buckets and not np.array_equal(support, self.support):
            raise WorkerRefused(str(self), "came back with its features in another order")
        if start.send_labels:
            self.labels = self._receive_array(started.labels, np.dtype(np.float64), shard.d)
            if shard.largest_weight > 0.0:
                self.weights = self._receive_array(started.weights, np.dtype(np.float64), shard.d)
        self.support = support
        self._rows = shard.n
        self.buckets = buckets
        # it has the job now: found again, it must not begin anew
        self._start.warm = False
        self.position = (started.round, started.lineage if started.HasField("lineage") else None)
        return started.ready

    def reopen(self, round_number: int, lineage: str, deadline: float) -> bool:
        """Find the lost worker's shard again and go on with the job; True when it can begin that round.

        Parameters
        ----------
        round_number, lineage : of the state that the round under way starts from
        deadline : on time.monotonic's clock; not all places where the worker may be are looked at after that

        Raises
        ------
        ClusterError, UsageError : it cannot be found anywhere yet
        """
        assert self._start is not None  # only a worker that had begun can be lost
        start = pb.Start()
        start.CopyFrom(self._start)
        start.round = round_number
        start.lineage = lineage
        home = self.address
        failures: dict[str, ClusterError] = {}
        places = [*self.candidates(), *([] if self.elsewhere is None else [self.elsewhere])]
        # as a rule it comes back where it was
        for address in sorted(places, key=lambda address: address != home):
            if failures and time.monotonic() > deadline:
                break
            self.close()
            self._connect(address)
            try:
                shard = self.describe(DESCRIBE_SECONDS)
                if shard.content_hash != start.content_hash:
                    raise WorkerRefused(str(self), "holds another shard than the lost worker")
                return self.start(start, shard)
            except ClusterError as error:
                failures[address] = error
        self.address = home
        nowhere = WorkerLost(str(self), "is nowhere to be found")
        raise failures.get(home, next(reversed(failures.values()), nowhere))

    def start_over(self) -> None:
        """Give up the stream and connect anew, to the same address."""
        self.close()
        self._connect(self.address)

    def push(self, request: RoundRequest, work: Work, w: Vector) -> None:
        """Send a round with w_t restricted to the worker's support."""
        self._outstanding = _Outstanding(request, work, w)
        self._push(request, work, w)

    def _push(self, request: RoundRequest, work: Work, w: Vector) -> None:
        message = pb.Round(
            round=request.round,
            lineage=request.lineage,
            next_lineage=request.next_lineage,
            theta=request.theta,
            gamma=request.gamma,
            sigma=request.sigma,
            visits=work.visits,
            fraction=work.fraction,
            restart=request.restart,
            certify=request.certify,
            solve=request.solve,
            mark=request.mark,
            audit=request.audit,
            finish=request.finish,
            replay=request.replay,
            coordinates=request.coordinates,
            sample=request.sample,
        )
        if request.screen is not None:
            message.screen.multiple, message.screen.radius = request.screen.multiple, request.screen.radius
        if request.repeats_w:
            self._send(pb.SolveRequest(round=message))
            return
        header, pieces = codec.encode(w[self.places])
        message.w.CopyFrom(header)
        self._send(pb.SolveRequest(round=message))
        for piece in pieces:
            self._send(pb.SolveRequest(chunk=piece))

    def push_again(self) -> None:
        """Send what is outstanding again, after `reopen`."""
        assert self._outstanding is not None
        asked = self._outstanding
        self.push(replace(asked.request, repeats_w=False), asked.work, asked.w)

    def replay(self, request: RoundRequest, work: Work, w: Vector) -> None:
        """Have the worker solve a round again, after `reopen`, whose answer has been taken in already."""
        self._push(replace(request, replay=True, solve=False, sample=0, repeats_w=False), work, w)
        self._receive("heartbeat")

    def certificate(self, round_number: int) -> CertificateTerms:
        """Wait for the worker's Certificate of that round."""
        reply = self._receive("certificate").certificate
        self._expect_round(reply.round, round_number)
        return CertificateTerms(reply.conjugate_sum, reply.loss_sum, reply.compute_seconds, reply.largest)

    def audit(self, round_number: int) -> Contribution:
        """Wait for the worker's Audit of that round: A_k y_k."""
        reply = self._receive("audit").audit
        self._expect_round(reply.round, round_number)
        return Contribution(self.places, self._receive_array(reply.a_y, np.dtype(np.float64), len(self.support)))

    def coordinates(self, round_number: int) -> tuple[NDArray[np.uint32], Vector]:
        """Wait for the worker's Coordinates: numbers of its rows, and alpha at them."""
        arrays = []
        for field, dtype in (("rows", np.uint32), ("values", np.float64)):
            reply = self._receive("coordinates").coordinates
            self._expect_round(reply.round, round_number)
            arrays.append(self._receive_array(getattr(reply, field), np.dtype(dtype), self._rows))
        return arrays[0], arrays[1]

    def update(self, round_number: int) -> WorkerUpdate:
        """Wait for the worker's Update of that round."""
        assert self._outstanding is not None  # an update follows a push
        reply = self._receive("update").update
        self._expect_round(reply.round, round_number)
        a_dz = self._receive_array(reply.a_dz, np.dtype(np.float64), len(self.support))
        contribution = Contribution(self.places, a_dz, self._outstanding.work.fraction)
        kept = (reply.kept_round, reply.kept_lineage) if reply.HasField("kept_lineage") else None
        return WorkerUpdate(
            contribution, reply.steps, reply.compute_seconds, time.monotonic(), reply.gap_sum, reply.sampled, kept
        )

    def resync(self, round_number: int, lineage: str) -> Contribution:
        """Ask for A_k alpha_k and wait for it; what still arrives of a round given up is thrown away."""
        self._send(pb.SolveRequest(resync=pb.Resync(round=round_number, lineage=lineage)))
        while True:
            reply = self._receive(None)
            if reply.WhichOneof("kind") == "resynced" and reply.resynced.round == round_number:
                break
        a_alpha = self._receive_array(reply.resynced.a_alpha, np.dtype(np.float64), len(self.support))
        return Contribution(self.places, a_alpha)

    def score(self, w: Vector) -> Scores:
        """Have the worker score w on the fold it leaves out."""
        header, pieces = codec.encode(w[self.support])
        self._send(pb.SolveRequest(score=pb.Score(w=header)))
        for piece in pieces:
            self._send(pb.SolveRequest(chunk=piece))
        scored = self._receive("scored").scored
        return Scores(scored.examples, scored.loss_sum, scored.correct, scored.squared_error)

    def finish(self) -> None:
        """End the stream: then the worker has let go of the job, or is lost, as the next start will tell."""
        self._outbox.put(None)
        with suppress(grpc.RpcError):
            self._waiting_since = time.monotonic()
            while next(self._replies, None) is not None:
                self._waiting_since = time.monotonic()
        self._waiting_since = None
        self._call = None
        self._replies = iter(())
        self._outstanding = None

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

    def _receive(self, kind: str | None) -> pb.SolveReply:
        """The next reply that is not a heartbeat; it must be of that kind, if one is given."""
        try:
            while True:
                self._waiting_since = time.monotonic()
                reply = next(self._replies, None)
                if reply is None:
                    raise WorkerLost(str(self), "ended the job of its own accord", "see its log")
                self.bytes_returned += reply.ByteSize()
                found = reply.WhichOneof("kind")
                if found == kind or (kind is None and found != "heartbeat"):
                    return reply
                if found != "heartbeat":
                    raise WorkerRefused(str(self), f"sent {found} where {kind} was due")
        except grpc.RpcError as error:
            raise self._translate(error) from error
        finally:
            self._waiting_since = None

    def _receive_array(self, header: array_pb2.Array, dtype: np.dtype[Any], length: int) -> NDArray[Any]:
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
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
            return WorkerBusy(str(self), f"refused: {details}")
        if code in (
            grpc.StatusCode.FAILED_PRECONDITION,
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.UNIMPLEMENTED,
        ):
            return WorkerRefused(str(self), f"refused: {details}")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return WorkerUnreachable(str(self), "did not answer in time", "is it running there?")
        return WorkerLost(str(self), f"was lost ({code.name}: {details})", "see its log")


def fold_message(fold: Fold | None) -> pb.Fold | None:
    """A fold as the wire has it."""
    return None if fold is None else pb.Fold(folds=fold.folds, number=fold.number, seed=fold.seed)


def _sizes(told: pb.Sizes) -> Sizes:
    return Sizes(told.feature_largest, told.feature_tenth, told.norm_largest, told.norm_median)


def _part(reply: pb.DescribeReply) -> Part | None:
    if not reply.HasField("part"):
        return None
    by: By = "features" if reply.by_features else "examples"
    return Part(reply.part.whole, reply.part.number, reply.part.parts, by)
