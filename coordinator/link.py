"""One worker's stream: messages to it and from it, each wait with a deadline. Only translation, no decision."""

import itertools
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from coordinator.messages import CertificateTerms, GapSample, RoundRequest, WorkerUpdate
from coordinator.normalize import Measure
from coordinator.order import Places, taken
from coordinator.outer_loop import Contribution
from coordinator.schedule import Work

MEASURE_SECONDS = 600.0
"""How long a worker may take to measure its shard: a pass over it."""

DESCRIBE_SECONDS = 5.0
"""How long a worker that is reached again may take to say what it holds."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What the worker is asked of a problem. w : w_t, the shared vector"""

    problem: int
    request: RoundRequest
    work: Work
    w: Vector


@dataclass(frozen=True, slots=True)
class Position:
    """Where the worker stood in a problem when its stream began.

    ready : it can begin the round that was named then
    at : round and lineage of the newest state it had; lineage None: of no use
    """

    ready: bool
    at: tuple[int, str | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """A worker's answer to what it was asked of a problem: what was asked for, the rest None.

    audit : A_k y_k;  coordinates : numbers of its rows, and alpha at them
    """

    certificate: CertificateTerms | None = None
    audit: Contribution | None = None
    coordinates: tuple[NDArray[np.uint32], Vector] | None = None
    update: WorkerUpdate | None = None
    sample: GapSample | None = None


class WorkerLink:
    """One worker: a channel and, during a job, its Solve stream.

    Parameters
    ----------
    address : HOST:PORT
    rank : 0 .. K-1
    support, places : numbers of the entries the worker shares, in its order, and where these are in the coordinator's
        vectors, set once all workers have begun
    divisors : of the columns of the worker's support, in its order, if the job divides them; sent with every start
    positions : where the worker stood in every problem when its stream began
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
        self._outstanding: list[Asked] = []
        self.positions: list[Position] = []
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
        nobody = "is it running there? see --connect-timeout"
        seen, remedy = "was not reached", nobody
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
                seen, remedy = f"was not reached ({rpc_error.details()})", nobody
            else:
                if reply.status == health_pb2.HealthCheckResponse.SERVING:
                    return
                seen = "was reached, but had not loaded its shard"
                remedy = "give it longer: --connect-timeout; if it waits to be dealt its data: DATA and --deal"
            pause.wait(0.05)
        raise WorkerUnreachable(str(self), f"{seen} within the time allowed", remedy)

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
            largest_weight=reply.largest_weight if reply.HasField("largest_weight") else None,
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

    def start(self, start: pb.Start, shard: ShardDescription) -> None:
        """Open the Solve stream and learn the worker's support, and where it stands.

        Raises
        ------
        WorkerLost, WorkerRefused
        """
        self._start = pb.Start()
        self._start.CopyFrom(start)
        self._call = worker_pb2_grpc.WorkerStub(self._channel).Solve(iter(self._outbox.get, None))
        self._replies = iter(self._call)
        message = pb.SolveRequest(start=start)
        pieces: Iterator[bytes] = iter(())
        if self.divisors is not None:
            pieces = codec.encode(self.divisors, message.start.divisors)
        self._send(message, pieces)
        started = self._receive("started").started
        buckets = tuple(started.buckets)
        if (
            started.support.length > shard.d + start.HasField("bias")
            or len(buckets) != start.blocks
            or min(buckets) < 1
            or len(started.positions) != len(start.problems)
        ):
            raise WorkerRefused(str(self), "announced a support, blocks or positions that do not fit its shard and job")
        support = self._receive_array(started.support, np.dtype(np.uint32), int(started.support.length))
        if len(support) and int(support.max()) >= start.shared:
            raise WorkerRefused(str(self), "announced a support beyond the length of the shared vector")
        if self.buckets and not np.array_equal(support, self.support):
            raise WorkerRefused(str(self), "came back with its features in another order")
        if start.send_labels:
            self.labels = self._receive_array(started.labels, np.dtype(np.float64), shard.d)
            if shard.largest_weight is not None:
                self.weights = self._receive_array(started.weights, np.dtype(np.float64), shard.d)
        self.support = support
        self._rows = shard.n
        self.buckets = buckets
        # it has the job now: found again, it must not begin anew
        self._start.warm = False
        self.positions = [
            Position(told.ready, (told.round, told.lineage if told.HasField("lineage") else None))
            for told in started.positions
        ]

    def reopen(self, states: Mapping[int, tuple[int, str]], deadline: float) -> None:
        """Find the lost worker's shard again and go on with the job.

        Parameters
        ----------
        states : by problem, round and lineage of the state that its round under way starts from
        deadline : on time.monotonic's clock; not all places where the worker may be are looked at after that

        Raises
        ------
        ClusterError, UsageError : it cannot be found anywhere yet
        """
        assert self._start is not None  # only a worker that had begun can be lost
        start = pb.Start()
        start.CopyFrom(self._start)
        for problem, (round_number, lineage) in states.items():
            start.problems[problem].round, start.problems[problem].lineage = round_number, lineage
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
                    raise WorkerRefused(
                        str(self),
                        "holds another shard than the lost worker",
                        "serve that one there, from the same file",
                    )
                self.start(start, shard)
            except ClusterError as error:
                failures[address] = error
            else:
                return
        self.address = home
        # who was there and is not fit tells more than who was not there
        refused = next((error for error in failures.values() if isinstance(error, WorkerRefused)), None)
        nowhere = WorkerLost(str(self), "is nowhere to be found")
        raise refused or failures.get(home, next(reversed(failures.values()), nowhere))

    def start_over(self) -> None:
        """Give up the stream and connect anew, to the same address."""
        self.close()
        self._connect(self.address)

    def push(self, asked: Sequence[Asked]) -> None:
        """Send rounds of several problems, each with its w_t restricted to the worker's support, in one message."""
        self._outstanding = list(asked)
        message = pb.SolveRequest(rounds=pb.Rounds(rounds=[_round(each) for each in asked]))
        bringing = [each for each in asked if not each.request.repeats_w]
        pieces: Iterator[bytes] = iter(())
        if bringing:
            dtype = codec.float_dtype(all(each.request.narrow for each in bringing))
            ws = codec.joined([taken(each.w, self.places) for each in bringing], dtype)
            pieces = codec.encode(ws, message.rounds.w)
        self._send(message, pieces)

    def push_again(self, but: Collection[int]) -> None:
        """Send what is outstanding again, after `reopen`. but : problems whose rounds are given up"""
        asked = [
            replace(each, request=replace(each.request, repeats_w=False))
            for each in self._outstanding
            if each.problem not in but
        ]
        if asked:
            self.push(asked)
        else:
            self._outstanding = []

    def replay(self, asked: Asked) -> None:
        """Have the worker solve a round again, after `reopen`, whose answer has been taken in already."""
        outstanding = self._outstanding
        request = replace(asked.request, replay=True, solve=False, certify=False, sample=0, repeats_w=False)
        self.push([replace(asked, request=request)])
        try:
            self.answers()
        finally:
            self._outstanding = outstanding

    def answers(self) -> dict[int, Answer]:
        """Wait for the worker's answers to what it was asked last, by problem."""
        asked = self._outstanding
        if not asked:
            return {}
        reply = self._receive("answers").answers
        for each, told in itertools.zip_longest(asked, reply.answers):
            if each is None or told is None or told.problem != each.problem:
                raise WorkerRefused(str(self), "answered for other problems than it was asked")
            if told.round != each.request.round:
                raise WorkerRefused(
                    str(self), f"answered round {told.round} where round {each.request.round} was asked for"
                )
            due = (each.request.certify, each.request.solve or each.request.sample > 0)
            stands = told.update.HasField("standing")
            if (told.HasField("certificate"), told.HasField("update")) != due or (stands and not each.request.enough):
                raise WorkerRefused(str(self), f"answered something else in round {told.round} than it was asked")
        support = len(self.support)
        length = sum(support * each.request.audit + self._rows * each.request.coordinates for each in asked)
        solved = [each.request for each in asked if each.request.solve]
        vectors: Vector = np.empty(0)
        a_dz: Vector = np.empty(0)
        rows: NDArray[np.uint32] = np.empty(0, dtype=np.uint32)
        if length:
            vectors = self._receive_array(reply.vectors, np.dtype(np.float64), length)
        if solved:
            dtype = codec.float_dtype(all(request.narrow for request in solved))
            a_dz = self._receive_array(reply.a_dz, dtype, len(solved) * support).astype(np.float64, copy=False)
        if any(each.request.coordinates for each in asked):
            rows = self._receive_array(reply.rows, np.dtype(np.uint32), self._rows)
        arrived = time.monotonic()
        updates = iter(a_dz.reshape(len(solved), support))
        found = {}

        def take(count: int) -> Vector:
            nonlocal vectors
            taken, vectors = vectors[:count], vectors[count:]
            return taken

        for each, told in zip(asked, reply.answers, strict=True):
            request = each.request
            found[each.problem] = Answer(
                _terms(told.certificate) if request.certify else None,
                Contribution(self.places, take(support)) if request.audit else None,
                (rows, take(self._rows)) if request.coordinates else None,
                _update(told, Contribution(self.places, next(updates), each.work.fraction), arrived)
                if request.solve
                else None,
                _sample(told.update) if request.sample and not request.solve else None,
            )
        return found

    def resync(self, problem: int, round_number: int, lineage: str) -> Contribution:
        """Ask for A_k alpha_k and wait for it; what still arrives of a round given up is thrown away."""
        self._send(pb.SolveRequest(resync=pb.Resync(problem=problem, round=round_number, lineage=lineage)))
        while True:
            reply = self._receive(None)
            told = (reply.resynced.problem, reply.resynced.round)
            if reply.WhichOneof("kind") == "resynced" and told == (problem, round_number):
                break
        a_alpha = self._receive_array(reply.resynced.a_alpha, np.dtype(np.float64), len(self.support))
        return Contribution(self.places, a_alpha)

    def score(self, w: Vector) -> Scores:
        """Have the worker score w on the fold it leaves out."""
        message = pb.SolveRequest(score=pb.Score())
        self._send(message, codec.encode(w[self.support], message.score.w))
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
        self._outstanding = []

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

    def _send(self, message: pb.SolveRequest, pieces: Iterable[bytes] = ()) -> None:
        """The message, and the pieces of the array that begins with it."""
        self.bytes_pushed += message.ByteSize()
        self._outbox.put(message)
        for piece in pieces:
            more = pb.SolveRequest()
            more.chunk.data = piece
            self.bytes_pushed += codec.chunk_bytes(piece)
            self._outbox.put(more)

    def _receive(self, kind: str | None) -> pb.SolveReply:
        """The next reply that is not a heartbeat; it must be of that kind, if one is given."""
        try:
            while True:
                self._waiting_since = time.monotonic()
                reply = next(self._replies, None)
                if reply is None:
                    raise WorkerLost(str(self), "ended the job of its own accord", "see its log")
                found = reply.WhichOneof("kind")
                self.bytes_returned += codec.chunk_bytes(reply.chunk.data) if found == "chunk" else reply.ByteSize()
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


def _round(asked: Asked) -> pb.Round:
    """A round as the wire has it."""
    request, work = asked.request, asked.work
    message = pb.Round(
        problem=asked.problem,
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
        brings_w=not request.repeats_w,
        narrow=request.narrow,
        accuracy=request.accuracy,
        enough=request.enough,
        stride=request.stride,
    )
    if request.screen is not None:
        message.screen.multiple, message.screen.radius = request.screen.multiple, request.screen.radius
    return message


def _terms(told: pb.Certificate) -> CertificateTerms:
    return CertificateTerms(told.conjugate_sum, told.loss_sum, told.compute_seconds, told.largest)


def _update(answer: pb.Answer, contribution: Contribution, arrived: float) -> WorkerUpdate:
    told = answer.update
    kept = (told.kept_round, told.kept_lineage) if told.HasField("kept_lineage") else None
    certificate = _terms(answer.certificate) if answer.HasField("certificate") else None
    sample = _sample(told) if told.sampled else None
    standing = _terms(told.standing) if told.HasField("standing") else None
    return WorkerUpdate(contribution, told.steps, told.compute_seconds, arrived, sample, kept, certificate, standing)


def _sample(told: pb.Update) -> GapSample:
    return GapSample(told.gap_sum, told.sampled)


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
