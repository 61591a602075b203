"""The worker's gRPC edge: translates messages into calls of the local solver, and decides nothing about numbers."""

import functools
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import grpc
import numpy as np

from acccocoa import __version__, codec, losses
from acccocoa.errors import AcccocoaError
from acccocoa.losses import Vector
from acccocoa.problem import Problem
from acccocoa.protocol import HEARTBEAT_SECONDS, PROTOCOL_VERSION, version_mismatch
from acccocoa.v1 import worker_pb2 as pb
from acccocoa.v1 import worker_pb2_grpc
from worker.local_solver import LocalSolver, RoundPlan
from worker.shard import Shard
from worker.state import DualState

log = logging.getLogger(__name__)

T = TypeVar("T")


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
    """

    source: str
    shard: Shard
    label_counts: tuple[tuple[float, str, int], ...]
    label_counts_complete: bool
    load_seconds: float
    compile_seconds: float


class WorkerService(worker_pb2_grpc.WorkerServicer):
    """Serves one shard, to one job at a time.

    The holdings arrive after the port is bound; until then every call is answered UNAVAILABLE.
    """

    def __init__(self) -> None:
        self._holdings: Holdings | None = None
        self._job_lock = threading.Lock()
        self._job_id = ""
        self._compute = ThreadPoolExecutor(1, thread_name_prefix="solve")
        self._blocks_pool: ThreadPoolExecutor | None = None

    def ready(self, holdings: Holdings) -> None:
        """From now on answer for this shard."""
        blocks = len(holdings.shard.blocks)
        self._blocks_pool = ThreadPoolExecutor(blocks, thread_name_prefix="block")
        self._holdings = holdings

    def close(self) -> None:
        """Let the threads go; a computation under way is finished first."""
        self._compute.shutdown(cancel_futures=True)
        if self._blocks_pool is not None:
            self._blocks_pool.shutdown()

    def _require_holdings(self) -> Holdings:
        if self._holdings is None:
            raise _Refused(grpc.StatusCode.UNAVAILABLE, "the shard is still being loaded")
        return self._holdings

    def Describe(self, request: pb.DescribeRequest, context: grpc.ServicerContext) -> pb.DescribeReply:
        """What shard this is; see the proto."""
        try:
            holdings = self._require_holdings()
        except _Refused as refused:
            context.abort(refused.code, str(refused))
        shard = holdings.shard
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
            job_id=self._job_id,
            dtype=codec.dtype_to_wire(shard.values.dtype),
            load_seconds=holdings.load_seconds,
            compile_seconds=holdings.compile_seconds,
        )

    def Solve(
        self, request_iterator: Iterator[pb.SolveRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.SolveReply]:
        """One job; see the proto."""
        try:
            holdings = self._require_holdings()
            inbox = _Inbox(request_iterator)
            start = inbox.start()
            with self._hold(start.job_id):
                yield from self._job(holdings, start, inbox, context)
        except _Refused as refused:
            log.warning("job refused: %s", refused)
            _abort(context, refused.code, str(refused))
        except codec.WireError as error:
            _abort(context, grpc.StatusCode.DATA_LOSS, str(error))
        except AcccocoaError as error:
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))

    @contextmanager
    def _hold(self, job_id: str) -> Iterator[None]:
        """Keep the worker for this job; a second one is refused by name."""
        if not self._job_lock.acquire(blocking=False):
            raise _Refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"the worker is held by job {self._job_id}; wait for it, or stop it"
            )
        self._job_id = job_id
        log.info("job %s begins", job_id)
        try:
            yield
        finally:
            log.info("job %s ends", job_id)
            self._job_id = ""
            self._job_lock.release()

    def _job(
        self, holdings: Holdings, start: pb.Start, inbox: "_Inbox", context: grpc.ServicerContext
    ) -> Iterator[pb.SolveReply]:
        shard = holdings.shard
        mismatch = version_mismatch(start.protocol_version, start.software_version, __version__)
        if mismatch:
            raise _Refused(grpc.StatusCode.FAILED_PRECONDITION, f"the coordinator {mismatch}")
        if start.content_hash != shard.content_hash:
            raise _Refused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the job means shard {start.content_hash[:12]}, this worker holds {shard.content_hash[:12]}",
            )
        if start.loss not in losses.NAMES:
            raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"loss {start.loss!r} is unknown to this worker")
        parameter = None if losses.default_parameter(start.loss) is None else start.loss_parameter
        problem = Problem(start.loss, start.lam, start.n, start.l1_ratio, parameter)
        assert self._blocks_pool is not None  # set together with the holdings
        solver = LocalSolver(
            shard, problem, start.positive_label, rank=start.rank, seed=start.seed, pool=self._blocks_pool
        )
        state = DualState.zeros(shard.n, len(shard.blocks))
        support, pieces = codec.encode(shard.support)
        yield pb.SolveReply(started=pb.Started(support=support, buckets=[block.buckets for block in shard.blocks]))
        yield from (pb.SolveReply(chunk=piece) for piece in pieces)
        for request, w in inbox.rounds(len(shard.support)):
            plan = _plan(request)
            if len(plan.visits) != len(shard.blocks) or not 0 < plan.fraction <= 1 or min(plan.visits) < 1:
                raise _Refused(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"round {plan.round}: visits {list(plan.visits)} with fraction {plan.fraction} "
                    f"do not fit the {len(shard.blocks)} blocks of this shard",
                )
            if not state.begin(plan.round):
                raise _Refused(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"round {plan.round} was asked for, this worker stands at round {state.round}",
                )
            if plan.restart:
                state.restart()
            if request.certify:
                certificate = yield from self._computed(
                    plan.round, context, functools.partial(_certify, solver, state, plan, w)
                )
                yield pb.SolveReply(certificate=certificate)
            if request.solve:
                began = time.perf_counter()
                a_dz, steps = yield from self._computed(
                    plan.round, context, functools.partial(solver.solve, state, plan, w)
                )
                seconds = time.perf_counter() - began
                header, pieces = codec.encode(a_dz)
                yield pb.SolveReply(
                    update=pb.Update(round=plan.round, steps=steps, compute_seconds=seconds, a_dz=header)
                )
                yield from (pb.SolveReply(chunk=piece) for piece in pieces)

    def _computed(
        self, round_number: int, context: grpc.ServicerContext, work: Callable[[], T]
    ) -> Generator[pb.SolveReply, None, T]:
        """Run the work on the solving thread, with a heartbeat a second meanwhile; returns its result."""
        future: Future[T] = self._compute.submit(work)
        while True:
            try:
                return future.result(timeout=HEARTBEAT_SECONDS)
            except FutureTimeout:
                if not context.is_active():
                    # the shard's state belongs to the running computation until it is done
                    future.result()
                    raise _Refused(grpc.StatusCode.CANCELLED, "the coordinator has gone") from None
                yield pb.SolveReply(heartbeat=pb.Heartbeat(round=round_number))


def _certify(solver: LocalSolver, state: DualState, plan: RoundPlan, w: Vector) -> pb.Certificate:
    began = time.perf_counter()
    return pb.Certificate(
        round=plan.round,
        conjugate_sum=solver.conjugate_sum(state, plan.gamma_theta),
        loss_sum=solver.loss_sum(w),
        compute_seconds=time.perf_counter() - began,
    )


def _plan(request: pb.Round) -> RoundPlan:
    return RoundPlan(
        round=request.round,
        theta=request.theta,
        gamma=request.gamma,
        sigma=request.sigma,
        visits=tuple(request.visits),
        fraction=request.fraction,
        restart=request.restart,
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

    def rounds(self, length: int) -> Iterator[tuple[pb.Round, Vector]]:
        """Every Round with its w (float64, shape (length,)), until the coordinator closes its side."""
        for message in self._requests:
            if message.WhichOneof("kind") != "round":
                raise _Refused(
                    grpc.StatusCode.INVALID_ARGUMENT, f"a Round was expected, not {message.WhichOneof('kind')}"
                )
            decoder = codec.Decoder(message.round.w, np.dtype(np.float64), length)
            while decoder.missing:
                piece = next(self._requests, None)
                if piece is None:
                    return
                if piece.WhichOneof("kind") != "chunk":
                    raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "an array was interrupted by another message")
                decoder.feed(piece.chunk.data)
            yield message.round, decoder.array()
