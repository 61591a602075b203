"""The worker's gRPC edge: translates messages into calls of the local solver, and decides nothing about numbers."""

import functools
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn, TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray

from acccocoa import __version__, codec
from acccocoa.config import FOLDS_MAX, LOCAL_EPOCHS_MAX, NEWTON_FEATURES_MAX
from acccocoa.errors import AcccocoaError
from acccocoa.folds import folds_of
from acccocoa.losses import Loss, Vector
from acccocoa.manifest import Part
from acccocoa.problem import Ball, Subproblem
from acccocoa.protocol import HEARTBEAT_SECONDS, PROTOCOL_VERSION, version_mismatch
from acccocoa.statistics import Sizes
from acccocoa.v1 import array_pb2, worker_pb2_grpc
from acccocoa.v1 import worker_pb2 as pb
from worker import folds, scaling
from worker.adoption import Adopted
from worker.centring import CentredRows
from worker.checkpoint import StateDirectory
from worker.kernels import Values
from worker.local_solver import LocalSolver, RoundPlan
from worker.shard import Shard, in_blocks, with_constant_feature
from worker.state import DualState

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_W: Vector = np.empty(0)
"""Of a round in which it makes no difference."""

STREAMS = 8
"""Solve streams open at the same time: one works, the others are about to take over or to be refused."""

START_SECONDS = 10.0
"""How long a stream may take to say what it wants."""

TAKE_OVER_SECONDS = 15.0
"""How long a stream waits for an earlier one of the same job to let go; that one finishes what it computes."""

LOOK_SECONDS = 0.2
"""How often a stream that waits looks whether its own coordinator is still there."""


class _Refused(Exception):
    """Ends the stream with a status code and a sentence."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


@dataclass(frozen=True)
class Holdings:
    """What the worker serves: a shard, where it came from, and what was found in it.

    label_counts : (label, spelling, count), ascending; incomplete when there are too many distinct labels
    load_seconds, compile_seconds : how long it took until the worker was ready
    index_base, part : as in loading.Loaded
    """

    source: str
    shard: Shard
    label_counts: tuple[tuple[float, str, int], ...]
    label_counts_complete: bool
    load_seconds: float
    compile_seconds: float
    index_base: int | None = None
    part: Part | None = None
    sizes: Sizes = field(default_factory=Sizes)


@dataclass(slots=True)
class _HeldJob:
    """A job's dual variables, by problem; they outlive its stream until another job starts."""

    job_id: str
    states: list[DualState]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A round of one problem, as it arrived; w : w_t on the support."""

    message: pb.Round
    plan: RoundPlan
    w: Vector


@dataclass(frozen=True, slots=True)
class _Answered:
    """The answer to a round, and the vectors that belong to it.

    a_dz : A_k dz_k, where the round is solved, float32 where it is narrow
    """

    message: pb.Answer
    vectors: list[Vector]
    a_dz: NDArray[np.floating[Any]] | None


class _Lease:
    """The one stream that may work on the shard; a later stream of the same job takes it over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free = threading.Condition(self._lock)
        self._holder: tuple[str, grpc.ServicerContext] | None = None

    @property
    def job_id(self) -> str:
        """The job that holds the shard; empty: none."""
        holder = self._holder
        return holder[0] if holder else ""

    def let_go(self) -> None:
        """End the stream that holds the shard."""
        with self._lock:
            if self._holder is not None:
                self._holder[1].cancel()  # type: ignore[no-untyped-call]  # the stubs leave it untyped

    def wait_free(self) -> None:
        """Wait until no stream works on the shard."""
        with self._free:
            self._free.wait_for(lambda: self._holder is None, TAKE_OVER_SECONDS)

    @contextmanager
    def held(self, job_id: str, context: grpc.ServicerContext) -> Iterator[None]:
        """Keep the shard for this stream.

        Raises
        ------
        _Refused : another job holds it, or the earlier stream of this job does not let go in time
        """
        deadline = time.monotonic() + TAKE_OVER_SECONDS
        with self._free:
            while self._holder is not None:
                holder, other = self._holder
                if holder != job_id:
                    raise _Refused(
                        grpc.StatusCode.RESOURCE_EXHAUSTED,
                        f"the worker is held by job {holder}; wait for it, or stop it",
                    )
                if not context.is_active():
                    raise _Refused(grpc.StatusCode.ABORTED, "the coordinator has gone")
                if time.monotonic() > deadline:
                    raise _Refused(
                        grpc.StatusCode.RESOURCE_EXHAUSTED, f"an earlier stream of job {job_id} is still busy"
                    )
                # the coordinator has given that stream up, whether or not the network has told this side
                other.cancel()  # type: ignore[no-untyped-call]  # the stubs leave it untyped
                self._free.wait(LOOK_SECONDS)
            self._holder = (job_id, context)
        try:
            yield
        finally:
            with self._free:
                self._holder = None
                self._free.notify_all()


class WorkerService(worker_pb2_grpc.WorkerServicer):
    """Serves one shard, to one job at a time.

    The holdings arrive after the port is bound; until then every call is answered UNAVAILABLE.
    """

    def __init__(self) -> None:
        self._holdings: Holdings | None = None
        self._states: StateDirectory | None = None
        self._lease = _Lease()
        self._streams = threading.BoundedSemaphore(STREAMS)
        self._held: _HeldJob | None = None
        self._derived: tuple[tuple[object, ...], Shard] | None = None
        self._row_hashes: Vector | None = None
        self._centred: tuple[Values, CentredRows] | None = None
        self._compute = ThreadPoolExecutor(1, thread_name_prefix="solve")
        self._blocks_pool: ThreadPoolExecutor | None = None
        self._adopted: Adopted | None = None

    def ready(self, holdings: Holdings, states: StateDirectory | None = None, adopted: Adopted | None = None) -> None:
        """From now on answer for this shard, with the dual variables found in the state directory, if any.

        adopted : serves other parts when it is asked to; None: this worker takes none over
        """
        shard = holdings.shard
        self._blocks_pool = ThreadPoolExecutor(len(shard.blocks), thread_name_prefix="block")
        self._states = states
        self._adopted = adopted
        if states is not None:
            found = states.newest()
            if found is not None:
                job_id, snapshots = found
                self._held = _HeldJob(job_id, [DualState.of(snapshot) for snapshot in snapshots])
        self._holdings = holdings

    def let_go(self) -> None:
        """End the job's stream, after a computation under way; the coordinator looks for the worker from then on."""
        self._lease.let_go()

    def close(self) -> None:
        """Let the threads go, after a computation under way; write the dual variables down."""
        self._lease.wait_free()
        self._compute.shutdown(cancel_futures=True)
        if self._blocks_pool is not None:
            self._blocks_pool.shutdown()
        if self._states is not None:
            if self._held is not None:
                for state in self._held.states:
                    state.settle()
                # with the pending rounds: whether the coordinator has had the answers to them is not known
                snapshots = [state.snapshot(with_pending=True) for state in self._held.states]
                self._states.write_last(self._held.job_id, snapshots)
            self._states.close()

    def _require_holdings(self) -> Holdings:
        if self._holdings is None:
            raise _Refused(grpc.StatusCode.UNAVAILABLE, "the shard is still being loaded")
        return self._holdings

    def Describe(self, request: pb.DescribeRequest, context: grpc.ServicerContext) -> pb.DescribeReply:
        """What shard this is; see the proto."""
        try:
            holdings = self._require_holdings()
        except _Refused as refused:
            _abort(context, refused.code, str(refused))
        shard, part = holdings.shard, holdings.part
        return pb.DescribeReply(
            protocol_version=PROTOCOL_VERSION,
            software_version=__version__,
            shard=holdings.source,
            content_hash=shard.content_hash,
            n=shard.n,
            d=shard.d,
            nnz=shard.nnz,
            label_counts=[
                pb.LabelCount(label=label, spelling=spelling, count=count)
                for label, spelling, count in holdings.label_counts
            ],
            label_counts_complete=holdings.label_counts_complete,
            blocks=len(shard.blocks),
            job_id=self._lease.job_id,
            dtype=codec.dtype_to_wire(shard.values.dtype),
            by_features=shard.by_features,
            features=shard.features,
            largest_weight=None if shard.weights is None else float(shard.weights.max()),
            part=None if part is None else pb.Part(whole=part.whole, number=part.number, parts=part.parts),
            index_base=holdings.index_base,
            sizes=pb.Sizes(**asdict(holdings.sizes)),
            load_seconds=holdings.load_seconds,
            compile_seconds=holdings.compile_seconds,
        )

    def Measure(self, request: pb.MeasureRequest, context: grpc.ServicerContext) -> Iterator[pb.MeasureReply]:
        """What is to be known of the shard; see the proto."""
        try:
            shard = self._require_holdings().shard
            _check_meant(request.content_hash, shard)
            numbers, values = self._measured(request, shard)
            _check_intact(shard)
        except _Refused as refused:
            _abort(context, refused.code, str(refused))
        message = pb.MeasureReply()
        pieces = [codec.encode(numbers, message.measured.numbers), codec.encode(values, message.measured.values)]
        yield message
        yield from (pb.MeasureReply(chunk=array_pb2.Chunk(data=piece)) for piece in itertools.chain(*pieces))

    def Adopt(self, request: pb.AdoptRequest, context: grpc.ServicerContext) -> pb.AdoptReply:
        """Serve another part, too; see the proto."""
        try:
            return pb.AdoptReply(port=self._adoptive(request).port(request.number))
        except _Refused as refused:
            _abort(context, refused.code, str(refused))
        except AcccocoaError as error:
            _abort(context, grpc.StatusCode.ABORTED, str(error))

    def _adoptive(self, request: pb.AdoptRequest) -> Adopted:
        part = self._require_holdings().part
        if self._adopted is None or part is None or part.whole != request.whole:
            raise _Refused(grpc.StatusCode.FAILED_PRECONDITION, "this worker's shard is not part of that whole")
        if request.number == part.number or request.number >= part.parts:
            raise _Refused(grpc.StatusCode.FAILED_PRECONDITION, f"this worker serves {part}")
        return self._adopted

    def Solve(
        self, request_iterator: Iterator[pb.SolveRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.SolveReply]:
        """One job; see the proto."""
        if not self._streams.acquire(blocking=False):
            _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{STREAMS} streams are open already")
        try:
            holdings = self._require_holdings()
            inbox = _Inbox(request_iterator)
            impatience = threading.Timer(START_SECONDS, context.cancel)
            impatience.start()
            try:
                start = inbox.start()
                _check_fits(start, holdings.shard)
                _check_intact(holdings.shard)
                divisors = inbox.divisors(start, len(holdings.shard.support))
            finally:
                impatience.cancel()
            with self._lease.held(start.job_id, context):
                log.info("job %s: stream from %s begins", start.job_id, context.peer())
                try:
                    yield from self._job(holdings.shard, start, divisors, inbox, context)
                finally:
                    log.info("job %s: stream ends", start.job_id)
        except _Refused as refused:
            log.warning("stream from %s refused: %s", context.peer(), refused)
            _abort(context, refused.code, str(refused))
        except codec.WireError as error:
            _abort(context, grpc.StatusCode.DATA_LOSS, str(error))
        except AcccocoaError as error:
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            self._streams.release()

    def _measured(self, request: pb.MeasureRequest, shard: Shard) -> tuple[NDArray[np.uint32], Vector]:
        """Numbers of columns, rows or folds, and what is asked of them."""
        measure = request.measure
        if measure == pb.MEASURE_LARGEST_OF_COLUMNS:
            return shard.support, scaling.largest_of_columns(shard)
        if measure == pb.MEASURE_SQUARES_OF_COLUMNS:
            return shard.support, scaling.squares_of_columns(shard)
        if measure == pb.MEASURE_LARGEST_OF_ROWS:
            return shard.rows, scaling.largest_of_rows(shard)
        if measure == pb.MEASURE_SUMS_OF_COLUMNS:
            return shard.support, scaling.sums_of_columns(shard)
        if measure == pb.MEASURE_DEVIATIONS_OF_ROWS and shard.by_features:
            return shard.rows, scaling.deviations_of_rows(shard)
        if measure == pb.MEASURE_HASHES_OF_COLUMNS and shard.by_features:
            return shard.support, folds.hashes_of_columns(shard)
        if measure == pb.MEASURE_EXAMPLES_OF_FOLDS and not shard.by_features:
            _check_fold(request.fold)
            found = folds_of(self._hashes(shard), request.fold.folds, request.fold.seed)
            counts = np.bincount(found, minlength=request.fold.folds)
            return np.arange(request.fold.folds, dtype=np.uint32), counts.astype(np.float64)
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"measure {measure} is unknown to this worker")

    def _hashes(self, shard: Shard) -> Vector:
        """By examples: the hash of every row of the shard as it is; computed once."""
        if self._row_hashes is None:
            self._row_hashes = folds.hashes_of_rows(shard)
        return self._row_hashes

    def _centred_rows(self, shard: Shard) -> CentredRows:
        """Those of the shard; the last ones found are kept for the next job."""
        if self._centred is None or self._centred[0] is not shard.values:
            self._centred = shard.values, CentredRows.of(shard)
        return self._centred[1]

    def _states_for(self, start: pb.Start, shard: Shard) -> list[DualState]:
        """The dual variables to go on from: those held, if they are of this job or a warm start is asked for."""
        held, count = self._held, len(start.problems)
        if held is None or not (start.warm or held.job_id == start.job_id) or len(held.states) != count:
            states = [DualState.zeros(shard.n, len(shard.blocks)) for _ in range(count)]
        else:
            states = held.states
            for state in states:
                state.fit(len(shard.blocks))
                if start.warm:
                    state.resync(0, None)
        self._held = _HeldJob(start.job_id, states)
        return states

    def _prepared(self, shard: Shard, start: pb.Start, divisors: Vector | None) -> Shard:
        """The shard scaled, and with a constant feature, as asked; the last one made is kept for the next job."""
        key: tuple[object, ...] = (
            start.scaling,
            None if divisors is None else divisors.tobytes(),
            (start.bias.value, start.bias.feature) if start.HasField("bias") else None,
        )
        if self._derived is None or self._derived[0] != key:
            self._derived = self._centred = None  # not two of them at the same time
            if start.scaling == pb.SCALING_ROW_NORMS:
                shard = scaling.with_rows_divided(shard, scaling.row_norms(shard))
            elif start.scaling == pb.SCALING_LARGEST_OF_ROWS:
                shard = scaling.with_rows_divided(shard, scaling.largest_of_rows(shard))
            elif start.scaling == pb.SCALING_DEVIATIONS_OF_ROWS:
                shard = scaling.with_rows_divided(shard, scaling.deviations_of_rows(shard))
            elif divisors is not None:
                shard = scaling.with_columns_divided(shard, divisors)
            if start.HasField("bias"):
                shard = with_constant_feature(shard, start.bias.value, start.bias.feature)
            self._derived = key, shard
        return self._derived[1]

    def _job(
        self,
        shard: Shard,
        start: pb.Start,
        divisors: Vector | None,
        inbox: "_Inbox",
        context: grpc.ServicerContext,
    ) -> Iterator[pb.SolveReply]:
        assert self._blocks_pool is not None  # set together with the holdings
        problems = [_subproblem(problem.part) for problem in start.problems]
        left_out = None
        if start.HasField("fold"):
            hashes = yield from self._computed(0, context, functools.partial(self._hashes, shard))
            left_out = folds_of(hashes, start.fold.folds, start.fold.seed) == start.fold.number
        if start.HasField("bias") or start.scaling:
            work = functools.partial(self._prepared, shard, start, divisors)
            shard = yield from self._computed(0, context, work)
        # several problems in one block each are solved at the same time, a thread each
        threads = 1 if start.blocks == 1 and len(problems) > 1 else len(shard.blocks)
        # a worker that takes over from another may have other threads
        shard = in_blocks(shard, start.blocks)
        centred = None
        if any(part.centred for part in problems):
            centred = yield from self._computed(0, context, functools.partial(self._centred_rows, shard))
        solvers = [
            LocalSolver(
                shard,
                part,
                problem.positive_label,
                rank=start.rank,
                seed=start.seed,
                pool=self._blocks_pool,
                label_weights={entry.label: entry.weight for entry in problem.label_weights},
                left_out=left_out,
                shrinking=start.shrinking,
                threads=threads,
                centred=centred if part.centred else None,
            )
            for problem, part in zip(start.problems, problems, strict=True)
        ]
        states = self._states_for(start, shard)
        reply = pb.SolveReply(started=pb.Started(buckets=[block.buckets for block in shard.blocks]))
        started = reply.started
        arrays = [codec.encode(shard.support, started.support)]
        for problem, state in zip(start.problems, states, strict=True):
            position = started.positions.add(ready=not start.warm and state.can_begin(problem.round, problem.lineage))
            position.round, lineage = state.position
            if lineage is not None:
                position.lineage = lineage
        if start.send_labels:
            arrays.append(codec.encode(shard.labels, started.labels))
            if shard.weights is not None:
                arrays.append(codec.encode(shard.weights, started.weights))
        yield from _with_pieces(reply, arrays)
        for request, ws in inbox.requests(len(shard.support), len(problems)):
            kind = request.WhichOneof("kind")
            if kind == "score":
                if len(solvers) > 1:
                    raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "only a job of one problem can be scored")
                scores = yield from self._computed(0, context, functools.partial(solvers[0].score, ws[0]))
                yield pb.SolveReply(
                    scored=pb.Scored(
                        examples=scores.examples,
                        loss_sum=scores.loss_sum,
                        correct=scores.correct,
                        squared_error=scores.squared_error,
                    )
                )
            elif kind == "resync":
                t, number = request.resync.round, request.resync.problem
                _check_number(number, len(solvers))
                solver, state = solvers[number], states[number]
                # they may be of another objective: the job may have changed it after they were written down
                solver.project(state.alpha)
                state.resync(t, request.resync.lineage)
                a_alpha = yield from self._computed(t, context, functools.partial(solver.columns, state, 1.0))
                reply = pb.SolveReply(resynced=pb.Resynced(problem=number, round=t))
                yield from _with_pieces(reply, [codec.encode(a_alpha, reply.resynced.a_alpha)])
            else:
                asked = [
                    _Asked(message, _plan(message), w) for message, w in zip(request.rounds.rounds, ws, strict=True)
                ]
                yield from self._rounds(solvers, states, start.job_id, asked, context)

    def _rounds(
        self,
        solvers: list[LocalSolver],
        states: list[DualState],
        job_id: str,
        asked: list[_Asked],
        context: grpc.ServicerContext,
    ) -> Iterator[pb.SolveReply]:
        for each in asked:
            _begin(solvers[each.message.problem], states[each.message.problem], each)
        if self._states is not None:
            self._states.offer(job_id, states)
        for each in asked:
            if each.plan.restart:
                states[each.message.problem].restart()
        t = asked[0].plan.round

        def answer(each: _Asked) -> _Answered:
            return _answer(solvers[each.message.problem], states[each.message.problem], each)

        # where the shard is one block its threads have nothing else to do
        each_of: Callable[..., Iterator[_Answered]] = map
        if len(asked) > 1 and len(solvers[0].shard.blocks) == 1 and self._blocks_pool is not None:
            each_of = self._blocks_pool.map
        answered = yield from self._computed(t, context, lambda: list(each_of(answer, asked)))
        finals = [final for state in states if (final := state.final) is not None]
        ends = len(finals) == len(states) and any(each.message.finish for each in asked)
        if self._states is not None and ends:
            yield from self._computed(t, context, functools.partial(self._states.write_last, job_id, finals))
        reply = pb.SolveReply(answers=pb.Answers(answers=[each.message for each in answered]))
        answers = reply.answers
        kept = None if self._states is None else self._states.kept
        # that of another job names states that this one does not know
        if kept is not None and len(kept) == len(states):
            for one in answers.answers:
                state = kept[one.problem]
                if one.HasField("update") and state is not None:
                    one.update.kept_round, one.update.kept_lineage = state
        arrays: list[Iterator[bytes]] = []
        vectors = [vector for each in answered for vector in each.vectors]
        if vectors:
            arrays.append(codec.encode(codec.joined(vectors, codec.float_dtype(narrow=False)), answers.vectors))
        updates = [each.a_dz for each in answered if each.a_dz is not None]
        if updates:
            dtype = codec.float_dtype(all(each.message.narrow for each in asked if each.message.solve))
            arrays.append(codec.encode(codec.joined(updates, dtype), answers.a_dz))
        if any(each.message.coordinates for each in asked):
            arrays.append(codec.encode(solvers[0].shard.rows, answers.rows))
        yield from _with_pieces(reply, arrays)

    def _computed(
        self, round_number: int, context: grpc.ServicerContext, work: Callable[[], T]
    ) -> Generator[pb.SolveReply, None, T]:
        """Run the work on the solving thread, with a heartbeat a second meanwhile; returns its result."""
        future: Future[T] = self._compute.submit(work)
        try:
            while True:
                try:
                    result = future.result(timeout=HEARTBEAT_SECONDS)
                except FutureTimeout:
                    if not context.is_active():
                        raise _Refused(grpc.StatusCode.ABORTED, "the coordinator has gone") from None
                    yield pb.SolveReply(heartbeat=pb.Heartbeat(round=round_number))
                else:
                    _check_intact(self._require_holdings().shard)
                    return result
        finally:
            # the state belongs to the computation until it is done, whatever became of the stream
            wait_for([future])


def _with_pieces(reply: pb.SolveReply, arrays: Iterable[Iterator[bytes]]) -> Iterator[pb.SolveReply]:
    """The reply, and the pieces of the arrays that begin with it."""
    yield reply
    for piece in itertools.chain.from_iterable(arrays):
        more = pb.SolveReply()
        more.chunk.data = piece
        yield more


def _check_meant(content_hash: str, shard: Shard) -> None:
    if content_hash != shard.content_hash:
        raise _Refused(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"the job means shard {content_hash[:12]}, this worker holds {shard.content_hash[:12]}",
        )


def _check_intact(shard: Shard) -> None:
    """What was computed is of the data that the shard was made from."""
    if shard.mapped is not None and shard.mapped.changed:
        raise _Refused(
            grpc.StatusCode.FAILED_PRECONDITION,
            "somebody has written to the file its shard is mapped from (*.acccocoa-shard); start the worker again",
        )


def _check_fits(start: pb.Start, shard: Shard) -> None:
    mismatch = version_mismatch(start.protocol_version, start.software_version, __version__)
    if mismatch:
        raise _Refused(grpc.StatusCode.FAILED_PRECONDITION, f"the coordinator {mismatch}")
    _check_meant(start.content_hash, shard)
    if start.HasField("bias") and not (
        0 < start.bias.value < math.inf and shard.d <= start.bias.feature < start.shared and not shard.by_features
    ):
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"no constant feature {start.bias.feature} can be added")
    if start.HasField("divisors") != (start.scaling == pb.SCALING_COLUMNS):
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "divisors go with SCALING_COLUMNS, and with nothing else")
    if start.scaling == pb.SCALING_DEVIATIONS_OF_ROWS and not shard.by_features:
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "SCALING_DEVIATIONS_OF_ROWS is for shards cut by features")
    if start.scaling not in pb.Scaling.values():
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"scaling {start.scaling} is unknown to this worker")
    if not start.problems:
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "a job without a problem")
    if not 1 <= start.blocks <= shard.n:
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{shard.n} rows cannot be cut into {start.blocks} blocks")
    if not all(0 < entry.weight < math.inf for problem in start.problems for entry in problem.label_weights):
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "weights of labels must be finite numbers > 0")
    if start.HasField("fold"):
        _check_fold(start.fold)
        if shard.by_features:
            raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "folds are the coordinator's business by features")
    if any(problem.part.centred for problem in start.problems) and not shard.by_features:
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "only the rows of shards cut by features can be centred")
    if any(problem.part.labelled for problem in start.problems) and shard.by_features:
        raise _Refused(
            grpc.StatusCode.FAILED_PRECONDITION, "the job partitions examples, this worker's shard is cut by features"
        )


def _check_fold(fold: pb.Fold) -> None:
    if not 2 <= fold.folds <= FOLDS_MAX or not fold.number < fold.folds:
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"there is no fold {fold.number} of {fold.folds}")


def _check_number(number: int, problems: int) -> None:
    if number >= problems:
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"there is no problem {number} among {problems}")


def _begin(solver: LocalSolver, state: DualState, asked: _Asked) -> None:
    """Make sure that the round makes sense, and stand at its start."""
    request, plan = asked.message, asked.plan
    t = plan.round
    blocks = solver.shard.blocks
    if (
        len(plan.visits) != len(blocks)
        or not 0 < plan.fraction <= 1
        or not all(
            0 < visits <= LOCAL_EPOCHS_MAX * block.buckets for visits, block in zip(plan.visits, blocks, strict=True)
        )
    ):
        raise _Refused(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"round {t}: visits {list(plan.visits)} with fraction {plan.fraction} "
            f"do not fit the {len(blocks)} blocks of this shard",
        )
    if not (0 < plan.theta <= 1 and 0 < plan.gamma <= 1 and 0 < plan.sigma < math.inf):
        raise _Refused(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"round {t}: theta {plan.theta}, gamma {plan.gamma}, sigma {plan.sigma} are out of their bounds",
        )
    if request.HasField("screen") and (
        solver.problem.labelled or not math.isfinite(request.screen.multiple) or not request.screen.radius >= 0
    ):
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"round {t}: nothing can be left out in that way")
    few = len(solver.shard.support) <= NEWTON_FEATURES_MAX
    if plan.accuracy != 0.0 and not (plan.accuracy > 0.0 and solver.problem.labelled and solver.loss.newton and few):
        raise _Refused(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"round {t}: this shard's part is not to be solved by Newton's method to an accuracy of {plan.accuracy}",
        )
    whole = solver.problem.labelled and plan.gamma == 1.0 and plan.sigma == len(blocks)
    starting = plan.restart and plan.theta == plan.fraction and not request.narrow
    if plan.enough != 0.0 and not (plan.enough > 0.0 and plan.stride > 0 and whole and starting):
        raise _Refused(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"round {t}: this shard's part is not to be solved until a sample of every {plan.stride}-th group of rows "
            f"has a gap of {plan.enough}",
        )
    if not state.begin(t, request.lineage):
        raise _Refused(
            grpc.StatusCode.INVALID_ARGUMENT, f"round {t} was asked for, this worker stands at round {state.round}"
        )
    if request.mark:
        state.mark = state.snapshot()


def _answer(solver: LocalSolver, state: DualState, asked: _Asked) -> _Answered:
    """What the round asks for, computed in the order of the fields."""
    request, plan, w = asked.message, asked.plan, asked.w
    answer = pb.Answer(problem=request.problem, round=plan.round)
    vectors: list[Vector] = []
    a_dz: NDArray[np.floating[Any]] | None = None
    if request.certify and not request.solve:
        answer.certificate.CopyFrom(_certify(solver, state, plan, w))
    if request.finish:
        state.finish(plan.gamma_theta, request.next_lineage, solver.project)
    if request.audit:
        vectors.append(solver.columns(state, plan.gamma_theta))
    if request.coordinates:
        vectors.append(state.y(plan.gamma_theta))
    if request.replay:
        _solve(solver, state, plan, w, request.next_lineage, 0)
    if request.sample and not request.solve:
        gap_sum, sampled = solver.gap_sample(state, plan.gamma_theta, w, request.sample)
        answer.update.gap_sum, answer.update.sampled = gap_sum, sampled
    if request.solve:
        # what is only read of the state can be computed while z_{t+1} is
        certificate = solver.beside(lambda: _certify(solver, state, plan, w, alone=False)) if request.certify else None
        update, exact = _solve(solver, state, plan, w, request.next_lineage, request.sample)
        answer.update.CopyFrom(update)
        a_dz = codec.narrowed(exact) if request.narrow else exact
        if certificate is not None:
            answer.certificate.CopyFrom(certificate())
    return _Answered(answer, vectors, a_dz)


def _solve(
    solver: LocalSolver, state: DualState, plan: RoundPlan, w: Vector, next_lineage: str, sample: int
) -> tuple[pb.Update, Vector]:
    """The round, with the sum of gaps over a sample of so many rows; A_k dz_k."""
    began = time.perf_counter()
    estimate = solver.beside(lambda: solver.gap_sample(state, plan.gamma_theta, w, sample)) if sample else None
    a_dz, steps = solver.solve(state, plan, w)
    assert state.pending is not None  # the solver leaves it so
    state.pending.lineage = next_lineage
    gap_sum, sampled = (0.0, 0) if estimate is None else estimate()
    update = pb.Update(steps=steps, gap_sum=gap_sum, sampled=sampled)
    standing = state.pending.standing
    if standing is not None:
        update.standing.conjugate_sum, update.standing.loss_sum = standing.conjugate_sum, standing.loss_sum
    update.compute_seconds = time.perf_counter() - began
    return update, a_dz


def _certify(solver: LocalSolver, state: DualState, plan: RoundPlan, w: Vector, alone: bool = True) -> pb.Certificate:
    """alone : nothing else is computed meanwhile"""
    began = time.perf_counter()
    return pb.Certificate(
        conjugate_sum=solver.conjugate_sum(state, plan.gamma_theta, alone),
        loss_sum=0.0 if solver.indicator else solver.loss_sum(w, alone),
        largest=solver.largest_product(w) if solver.indicator else 0.0,
        compute_seconds=time.perf_counter() - began,
    )


def _subproblem(message: pb.Subproblem) -> Subproblem:
    numbers = (message.epsilon, message.curvature, message.bound, message.lipschitz, message.scale)
    if not all(number >= 0 for number in numbers) or not 0 < message.lipschitz * message.scale < math.inf:
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"no problem has the numbers {numbers}")
    loss = Loss(message.logistic, message.classifier, message.epsilon, message.curvature, message.bound)
    return Subproblem(loss, message.lipschitz, message.scale, message.labelled, message.centred)


def _plan(request: pb.Round) -> RoundPlan:
    return RoundPlan(
        round=request.round,
        theta=request.theta,
        gamma=request.gamma,
        sigma=request.sigma,
        visits=tuple(request.visits),
        fraction=request.fraction,
        restart=request.restart,
        accuracy=request.accuracy,
        enough=request.enough,
        stride=request.stride,
        screen=Ball(request.screen.multiple, request.screen.radius) if request.HasField("screen") else None,
    )


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, details: str) -> NoReturn:
    context.abort(code, details)
    raise AssertionError("abort raises")


class _Inbox:
    """The coordinator's side of the stream, as whole requests."""

    def __init__(self, requests: Iterator[pb.SolveRequest]) -> None:
        self._requests = requests

    def start(self) -> pb.Start:
        """The first message."""
        first = next(self._requests, None)
        if first is None or first.WhichOneof("kind") != "start":
            raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "the stream must begin with Start")
        return first.start

    def divisors(self, start: pb.Start, length: int) -> Vector | None:
        """The divisors of the support's columns, whose pieces follow Start; None when it announces none."""
        if not start.HasField("divisors"):
            return None
        decoder = codec.Decoder(start.divisors, np.dtype(np.float64), length)
        while decoder.missing:
            piece = next(self._requests, None)
            if piece is None or piece.WhichOneof("kind") != "chunk":
                raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "the divisors were interrupted")
            decoder.feed(piece.chunk.data)
        divisors = decoder.array()
        if not (np.isfinite(divisors).all() and (divisors >= 0).all()):
            raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "divisors must be finite numbers >= 0")
        return divisors

    def requests(self, length: int, problems: int) -> Iterator[tuple[pb.SolveRequest, list[Vector]]]:
        """Rounds and Score with the w of every round (float64, shape (length,)), and Resync, to the stream's end.
        What belongs to a round without a w of its own is the last one that came for the same problem.
        """
        last: dict[int, Vector] = {}
        for message in self._requests:
            kind = message.WhichOneof("kind")
            if kind == "resync":
                yield message, []
            elif kind == "score":
                w = self._array(message.score.w, length, codec.float_dtype(narrow=False))
                if w is None:
                    return
                yield message, [w]
            elif kind == "rounds":
                rounds = message.rounds.rounds
                numbers = [each.problem for each in rounds]
                if not numbers or len(set(numbers)) < len(numbers):
                    raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "Rounds without a round, or with two of a problem")
                for number in numbers:
                    _check_number(number, problems)
                bringing = [each for each in rounds if each.brings_w]
                if bringing:
                    dtype = codec.float_dtype(all(each.narrow for each in bringing))
                    whole = self._array(message.rounds.w, len(bringing) * length, dtype)
                    if whole is None:
                        return
                    last.update(
                        zip((each.problem for each in bringing), whole.reshape(len(bringing), length), strict=True)
                    )
                for each in rounds:
                    if each.problem not in last and (each.certify or each.solve or each.replay or each.sample):
                        raise _Refused(
                            grpc.StatusCode.INVALID_ARGUMENT, "the first round of a problem in a stream came without w"
                        )
                yield message, [last.get(number, NO_W) for number in numbers]
            else:
                raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"Rounds were expected, not {kind}")

    def _array(self, header: array_pb2.Array, length: int, dtype: np.dtype[Any]) -> Vector | None:
        """The array whose pieces follow, as float64; None when the stream ends before it does."""
        decoder = codec.Decoder(header, dtype, length)
        while decoder.missing:
            piece = next(self._requests, None)
            if piece is None:
                return None
            if piece.WhichOneof("kind") != "chunk":
                raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "an array was interrupted by another message")
            decoder.feed(piece.chunk.data)
        return decoder.array().astype(np.float64, copy=False)
