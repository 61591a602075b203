"""The run: rounds of Algorithm 1 over a cluster until the certificate says stop. Knows no gRPC and writes no file."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from acccocoa.config import StopConfig
from acccocoa.errors import NumericalError
from acccocoa.losses import Vector
from acccocoa.problem import Certified
from coordinator.certificate import BestPair
from coordinator.messages import CertificateTerms, RoundRequest, WorkerUpdate
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import CertificateSchedule, Work

Status = Literal["converged", "max_rounds", "max_seconds", "interrupted"]


class Workers(Protocol):
    """What the run needs of a cluster; coordinator.cluster.Cluster is one."""

    @property
    def bytes_pushed(self) -> int:
        """Bytes sent so far."""

    @property
    def bytes_returned(self) -> int:
        """Bytes received so far."""

    def push(self, request: RoundRequest, works: Sequence[Work], w: Vector) -> None:
        """Send a round to every worker."""

    def certificates(self, round_number: int) -> list[CertificateTerms]:
        """Certificate terms in rank order."""

    def updates(self, round_number: int) -> list[WorkerUpdate]:
        """Answers in rank order."""


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """One worker since the last certified round: seconds it computed and waited for the others, coordinates visited."""

    compute_seconds: float = 0.0
    wait_seconds: float = 0.0
    steps: int = 0


@dataclass(frozen=True, slots=True)
class CertifiedRound:
    """A certified round; one line of the trace. certified is of the pair (y_t, w_t), the gaps are of the best pair."""

    round: int
    seconds: float
    data_passes: float
    theta: float
    certified: Certified
    relative_gap: float
    best_gap: float
    restart: bool
    bytes_pushed: int
    bytes_returned: int
    workers: tuple[WorkerFigures, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended: a typed reason, and the best pair.

    w : float64, shape (d,); rounds : rounds solved; data_passes : coordinates visited over n
    """

    status: Status
    certified: Certified
    gap: float
    relative_gap: float
    w: Vector
    rounds: int
    data_passes: float
    restarts: int
    solve_seconds: float


class Training:
    """One run.

    Parameters
    ----------
    works : every worker's work in a round, in rank order
    interrupted : when set, the run ends after the round under way, certified
    observe : called with every certified round
    clock : seconds, monotonic
    """

    def __init__(
        self,
        loop: OuterLoop,
        workers: Workers,
        works: Sequence[Work],
        schedule: CertificateSchedule,
        stop: StopConfig,
        *,
        interrupted: threading.Event,
        observe: Callable[[CertifiedRound], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._works = works
        self._schedule = schedule
        self._stop = stop
        self._interrupted = interrupted
        self._observe = observe
        self._clock = clock
        self._smallest_fraction = min(work.fraction for work in works)
        self._figures = [WorkerFigures() for _ in works]
        self._steps = 0
        self._restarts_seen = 0
        self.best = BestPair()

    def run(self) -> Outcome:
        """Rounds until converged, a limit is reached, or interrupted; the last w_t is always certified.

        Raises
        ------
        ClusterError : a worker was lost; `best` holds the best pair until then
        NumericalError : the numbers are inconsistent
        """
        loop = self._loop
        began = self._clock()
        while True:
            limit = self._limit(self._clock() - began)
            passes = self._steps / loop.problem.n
            certify = limit is not None or self._schedule.due(passes)
            w = loop.begin_round(self._smallest_fraction)
            request = RoundRequest(
                loop.round, loop.theta, loop.gamma, loop.sigma, loop.starting, certify, solve=limit is None
            )
            self._workers.push(request, self._works, w)
            if certify:
                certified = self._certify(w)
                seconds = self._clock() - began
                self._report(certified, seconds, passes)
                status = "converged" if self._converged() else limit
                if status is not None:
                    return self._outcome(status, passes, seconds)
            self._absorb()
            if certify:
                loop.observe_gap(self.best.gap)

    def _limit(self, seconds: float) -> Status | None:
        if self._interrupted.is_set():
            return "interrupted"
        if self._stop.max_rounds is not None and self._loop.round >= self._stop.max_rounds:
            return "max_rounds"
        if self._stop.max_seconds is not None and seconds >= self._stop.max_seconds:
            return "max_seconds"
        return None

    def _converged(self) -> bool:
        if self._stop.abs_tol is not None and self.best.gap <= self._stop.abs_tol:
            return True
        return self.best.relative_gap <= self._stop.tol

    def _certify(self, w: Vector) -> Certified:
        """Primal and dual at (y_t, w_t), summed in rank order (algorithm section 4)."""
        loop = self._loop
        terms = self._workers.certificates(loop.round)
        certified = Certified(
            primal=loop.problem.objective_b(w, math.fsum(term.loss_sum for term in terms)),
            dual=-loop.problem.objective_a(loop.v_y, math.fsum(term.conjugate_sum for term in terms)),
        )
        self.best.offer(certified, w, loop.round)
        self._schedule.certified(self._steps / loop.problem.n, self.best.relative_gap)
        return certified

    def _absorb(self) -> None:
        """Take in every worker's answer and finish the round."""
        updates = self._workers.updates(self._loop.round)
        for rank, update in enumerate(updates):
            if not math.isfinite(float(update.contribution.a_dz.sum())):
                raise NumericalError(
                    f"round {self._loop.round}",
                    f"worker {rank} answered with values that are not finite",
                    "check the data for huge values, or leave --sigma at its safe default",
                )
        self._loop.end_round([update.contribution for update in updates])
        last = max(update.arrived for update in updates)
        self._figures = [
            WorkerFigures(
                figures.compute_seconds + update.compute_seconds,
                figures.wait_seconds + last - update.arrived,
                figures.steps + update.steps,
            )
            for figures, update in zip(self._figures, updates, strict=True)
        ]
        self._steps += sum(update.steps for update in updates)

    def _report(self, certified: Certified, seconds: float, passes: float) -> None:
        loop = self._loop
        self._observe(
            CertifiedRound(
                round=loop.round,
                seconds=seconds,
                data_passes=passes,
                theta=loop.theta,
                certified=certified,
                relative_gap=self.best.relative_gap,
                best_gap=self.best.gap,
                restart=loop.restarts > self._restarts_seen,
                bytes_pushed=self._workers.bytes_pushed,
                bytes_returned=self._workers.bytes_returned,
                workers=tuple(self._figures),
            )
        )
        self._restarts_seen = loop.restarts
        self._figures = [WorkerFigures() for _ in self._works]

    def _outcome(self, status: Status, passes: float, seconds: float) -> Outcome:
        assert self.best.w is not None  # a certificate precedes every end
        return Outcome(
            status=status,
            certified=self.best.certified,
            gap=self.best.gap,
            relative_gap=self.best.relative_gap,
            w=self.best.w,
            rounds=self._loop.round,
            data_passes=passes,
            restarts=self._loop.restarts,
            solve_seconds=seconds,
        )
