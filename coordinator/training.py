"""The run: rounds of Algorithm 1 over a cluster until the certificate says stop. Knows no gRPC and writes no file."""

import functools
import math
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from acccocoa import codec
from acccocoa.config import StopConfig, Wire
from acccocoa.errors import ClusterError, NumericalError
from acccocoa.losses import Vector
from acccocoa.problem import Ball, Certified
from coordinator import kernels
from coordinator.certificate import BestPair
from coordinator.messages import Ask, CertificateTerms, GapSample, Resync, RoundRequest, StateLost, WorkerUpdate
from coordinator.order import SharedOrder
from coordinator.outer_loop import Contribution, OuterLoop
from coordinator.schedule import CertificateSchedule, Work, sole_stride
from coordinator.tempo import Tempo

T = TypeVar("T")

Asking = Generator[Ask | Resync, Any, T]
"""What asks the workers, is sent their answers, and returns a T in the end."""

Status = Literal["converged", "max_rounds", "max_seconds", "interrupted"]

AUDIT_PASSES = 64.0
"""Passes between two audits; an audit reads the data about once."""

FETCH_SECONDS = 1.0
FETCH_SHARE = 0.02
"""By features the model is fetched no more often, and for no more of the time: a worker may be lost for good."""

DRIFT_HEALED = 1e-9
"""Drift of v_y from A y, relative to its largest entry, beyond which the run resyncs: rounding stays far below."""

NARROW_DRIFT_HEALED = 1e-5
"""The same while the vectors of a round travel as float32: that alone makes 2e-8 to 2e-6 in up to 6000 rounds."""

NARROW_GAP = 1e-5
NARROW_STALL_GAIN = 0.7
NARROW_STALL_PASSES = 50.0
"""From a certified relative gap of NARROW_GAP on, or when it has not fallen by that factor while the passes have
doubled and so many more were made, they travel as float64. Examples on the kink of a loss feel the last digit of w, and
below some gap it does not fall any more: hinge, breast cancer, lam 1e-4: 2e-7; RCV1, 1000 rows, lam 1e-5: 1e-6, the
primal value being small. What hides the gap of smooth losses is the drift of v_y: logistic, breast cancer, lam 1e-4:
1e-9."""

NEWTON_ROUNDS = 2
NEWTON_NEAR = 10.0
"""Newton's method is given so many rounds, the second one only when the gap is within that factor of the one that ends
the run: where it works at all the first one suffices."""

DRIFT_INSANE = 1e-3
"""Drift that no rounding explains."""


class Drifted(Exception):
    """v_y differs from A y by more than rounding: the run must go on by a resync."""


class Workers(Protocol):
    """What runs need of a cluster; coordinator.cluster.Cluster is one."""

    @property
    def order(self) -> SharedOrder:
        """The order of the shared vectors, w_t and A_k dz_k."""

    @property
    def bytes_pushed(self) -> int:
        """Bytes sent so far."""

    @property
    def bytes_returned(self) -> int:
        """Bytes received so far."""

    def answers(self, asks: Mapping[int, Ask | Resync]) -> Mapping[int, Any]:
        """Ask all workers what belongs to several problems, all at the same time; answers by problem.

        They are as Ask and Resync say, or StateLost: a worker came back without the state of this round.

        Raises
        ------
        ClusterError : a worker is lost for good
        """


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """One worker since the last certified round: seconds it computed and waited for the others, coordinates visited."""

    compute_seconds: float = 0.0
    wait_seconds: float = 0.0
    steps: int = 0


@dataclass(frozen=True, slots=True)
class CertifiedRound:
    """A certified round; one line of the trace.

    certified : of the pair (y_t, w_t);  standing : of what the run would end with now, as in Outcome
    best_gap, best_relative_gap : of the best pair seen
    """

    round: int
    seconds: float
    data_passes: float
    theta: float
    certified: Certified
    standing: Certified
    best_gap: float
    best_relative_gap: float
    restart: bool
    bytes_pushed: int
    bytes_returned: int
    workers: tuple[WorkerFigures, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended: a typed reason, and the pair it is certified by.

    certified : the best primal value, and the dual value of the dual point the workers hold at the end (converged) or
        the best one seen (else)
    w : float64, shape (d,), of the primal value
    data_passes : coordinates visited over n
    drift : largest relative difference between v_y and A y found by an audit
    local_solver : how the workers have minimised their G_k: "sdca", "newton", or "newton, sdca", one after the other
    widened : round from which on vectors travelled as float64 though float32 was asked for; None: they never did
    deterministic : neither clocks nor lost states have had a say in it: the same data, options and seed give the same
    """

    status: Status
    certified: Certified
    w: Vector
    rounds: int
    data_passes: float
    restarts: int
    resyncs: int
    drift: float
    solve_seconds: float
    local_solver: str
    widened: int | None
    deterministic: bool

    @property
    def gap(self) -> float:
        """primal - dual; what rounding puts below 0 is 0."""
        return max(0.0, self.certified.gap)

    @property
    def relative_gap(self) -> float:
        """gap / max(|primal|, tiny)."""
        return max(0.0, self.certified.relative_gap)


@dataclass(slots=True)
class Progress:
    """What a run has done so far, beside the loop's own state; written to the coordinator's checkpoint.

    steps : coordinates visited;  audited_at : passes at the last audit
    drift, drift_now : largest drift an audit found, and that of the last audit
    seconds_before : seconds of solving before a resume
    lineage : of the state at the start of the round that comes next; see the proto
    ended : primal and dual of the pair that the run ended with, until it goes on
    effort : with screening, passes over the coordinates that were not left out
    steady : all has followed from data, options and seed so far
    doubtful : the best O_A may be computed from a v_y that has drifted within what float32 on the wire explains
    widened : as in Outcome
    newton : rounds solved by Newton's method since the last resync
    fell_back : it did not get there, and coordinate ascent went on
    standing : sums of conjugates and losses at (y_t, w_t) of the round that comes, from the round that has led there
    fell : passes at, and relative gap of, the certificate since which the gap has not fallen by NARROW_STALL_GAIN
    """

    steps: int = 0
    resyncs: int = 0
    drift: float = 0.0
    drift_now: float = 0.0
    audited_at: float = 0.0
    seconds_before: float = 0.0
    lineage: str = ""
    ended: tuple[float, float] | None = None
    effort: float = 0.0
    steady: bool = True
    doubtful: bool = False
    widened: int | None = None
    fell: tuple[float, float] = (0.0, math.inf)
    newton: int = 0
    fell_back: bool = False
    standing: tuple[float, float] | None = None


class Training:
    """One run.

    Parameters
    ----------
    works : every worker's work in a round, in rank order
    interrupted : when set, the run ends after the round under way, certified
    observe : called with every certified round
    keep : called at the start of a round that may be worth a checkpoint; True when one was written
    clock : seconds, monotonic
    coordinates : how many there are over all workers; None: one an example
    screening : share of the ball around w_t, which holds the optimum, in which features count (1: all of it, which is
        safe); None: no feature is left out
    tempo : changes the work with the workers' speed; None: it stays as it is
    works_after : every worker's work in a round after so many passes; None: it stays as it is
    beside : the workers have a thread left for certificates while they solve; by examples
    wire : how w_t and A_k dz_k travel. With float32 w_t is rounded before anything is computed from it, here or there:
        O_B is that of the w that is kept, exactly. A_k dz_k lose digits, v_y drifts from A y by about 1e-7 of its size,
        and O_A is an estimate until the end of the run computes it from the workers' variables. Where that would
        matter the run goes on with float64, see NARROW_GAP. By examples only
    accuracy : the workers minimise their G_k by Newton's method, so well; 0: by coordinate ascent
    enough : of a sole worker whose G_k is the whole problem, by examples, no l1 norm: a round that begins without
        momentum may end as soon as the relative gap is so small, and be certified with that; 0: none may
    falls_back : to coordinate ascent, if Newton's method does not reach the gap that ends the run; see NEWTON_ROUNDS
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
        keep: Callable[["Training"], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
        coordinates: int | None = None,
        tempo: Tempo | None = None,
        works_after: Callable[[float], Sequence[Work]] | None = None,
        screening: float | None = None,
        beside: bool = False,
        wire: Wire = "float64",
        accuracy: float = 0.0,
        enough: float = 0.0,
        falls_back: bool = True,
    ) -> None:
        self.loop = loop
        self.schedule = schedule
        self.best = BestPair()
        # of the way since the last resync, after which gaps may be larger than before: what restarts and plans go by
        self._since = BestPair()
        self.progress = Progress()
        self._workers = workers
        self._works = self._worked = works
        self._stop = stop
        self._interrupted = interrupted
        self._observe = observe
        self._keep = keep
        self._clock = clock
        self._began = clock()
        self._tempo = tempo
        self._works_after = works_after
        self._screening = screening
        self._beside = beside
        self._wire = wire
        self._accuracy = accuracy
        self._enough = enough
        self._falls_back = falls_back
        self._figures = [WorkerFigures() for _ in works]
        self._restarts_seen = 0
        self._coordinates = loop.problem.n if coordinates is None else coordinates
        self._alpha: Vector | None = None
        self._alpha_primal = math.inf
        self._alpha_due = self._began
        self._way = _new_lineage()
        self._before: tuple[dict[str, Any], dict[str, Vector]] | None = None

    @property
    def model(self) -> Vector | None:
        """The best model so far, float64, shape (d,); by features the best one that was fetched from the workers."""
        if self.loop.problem.alpha_is_model or self.best.w is None:
            return self._alpha
        return self._workers.order.natural(self.best.w)

    @property
    def works(self) -> Sequence[Work]:
        """What every worker was given to do in the last round, in rank order."""
        return self._worked

    @property
    def local_solver(self) -> str:
        """How the workers have minimised their G_k."""
        if self._accuracy == 0.0:
            return "sdca"
        return "newton, sdca" if self.progress.fell_back else "newton"

    @property
    def passes(self) -> float:
        """Passes over the data so far: coordinates visited over their number."""
        return self.progress.steps / self._coordinates

    @property
    def _effort(self) -> float:
        """Passes over what is not left out so far."""
        return self.passes if self._screening is None else self.progress.effort

    @property
    def seconds(self) -> float:
        """Seconds of solving so far, those before a resume included."""
        return self.progress.seconds_before + self._clock() - self._began

    def run(self, *, resync: bool = False) -> Outcome:
        """Rounds until converged, a limit is reached, or interrupted; the last w_t is always certified.

        Parameters
        ----------
        resync : begin from the dual variables the workers hold

        Raises
        ------
        ClusterError : a worker was lost for good; `best` holds the best pair until then
        NumericalError : the numbers are inconsistent
        """
        (outcome,) = run_together([self], self._workers, resync=resync)
        return outcome

    def course(self, *, resync: bool = False) -> Asking[Outcome]:
        """The run as what it asks of the workers; see `run`. It takes StateLost and ClusterError instead of answers."""
        self._began = self._clock()
        if self.progress.ended is not None and self.model is not None:
            ended = Certified(*self.progress.ended)
            if self._satisfies(ended):
                return self._outcome("converged", ended, self.loop.round - 1)
        while True:
            try:
                if resync:
                    yield from self._resync()
                    resync = False
                outcome = yield from self._round()
            except (StateLost, Drifted) as reason:
                # what a worker has lost, and when, no seed decides
                self.progress.steady &= isinstance(reason, Drifted)
                resync = True
                continue
            except ClusterError:
                limit = self.limit()
                if limit in ("interrupted", "max_seconds") and self.model is not None:
                    by_features = self.loop.problem.alpha_is_model
                    primal = self._alpha_primal if by_features else self.best.primal
                    return self._outcome(limit, Certified(primal, self.best.dual), self.loop.round)
                if limit == "interrupted":
                    raise KeyboardInterrupt from None  # there is nothing to write
                raise
            if outcome is not None:
                return outcome

    def state(self) -> tuple[dict[str, Any], dict[str, Vector]]:
        """The run's state at the start of the round under way, or else of the next one: numbers and arrays.

        The arrays are in the order of the data.
        """
        facts, arrays = self._before or self._state()
        natural = self._workers.order.natural
        return facts, {name: array if name == "alpha" else natural(array) for name, array in arrays.items()}

    @property
    def under_way(self) -> bool:
        """What `state` tells of is the start of a round that has not ended."""
        return self._before is not None

    def _state(self) -> tuple[dict[str, Any], dict[str, Vector]]:
        progress = asdict(replace(self.progress, seconds_before=self.seconds))
        loop_facts, loop_arrays = self.loop.state()
        models = {"best_w": self.best.w, "alpha": self._alpha}
        return (
            {
                "progress": progress,
                "best": {"primal": self.best.primal, "dual": self.best.dual},
                "since": {"primal": self._since.primal, "dual": self._since.dual},
                "alpha_primal": self._alpha_primal,
                "schedule": self.schedule.state(),
                "visits": [work.visits for work in self._works],
                **loop_facts,
            },
            {**loop_arrays, **{name: model for name, model in models.items() if model is not None}},
        )

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Vector]) -> None:
        """Be where `state` was called."""
        ordered = self._workers.order.ordered
        arrays = {name: array if name == "alpha" else ordered(array) for name, array in arrays.items()}
        # JSON has lists for pairs
        progress: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in facts["progress"].items()
        }
        self.progress = Progress(**progress)
        self.best.primal, self.best.dual = facts["best"]["primal"], facts["best"]["dual"]
        self.best.w = arrays.get("best_w")
        self._since.primal, self._since.dual = facts["since"]["primal"], facts["since"]["dual"]
        self._alpha, self._alpha_primal = arrays.get("alpha"), facts.get("alpha_primal", math.inf)
        self.schedule.restore(facts["schedule"])
        if self._tempo is not None:
            self._works = self._tempo.works(facts.get("visits", ())) or self._works
        self.loop.restore(facts, arrays)
        self._restarts_seen = self.loop.restarts

    def limit(self) -> Status | None:
        """Why the run should end though not converged; None when it need not."""
        if self._interrupted.is_set():
            return "interrupted"
        if self._stop.max_rounds is not None and self.loop.round >= self._stop.max_rounds:
            return "max_rounds"
        if self._stop.max_seconds is not None and self.seconds >= self._stop.max_seconds:
            return "max_seconds"
        return None

    def _round(self) -> Asking[Outcome | None]:
        """One round of Algorithm 1, certified when it is due; an Outcome when it is the last."""
        loop = self.loop
        limit = self.limit()
        by_newton = self._accuracy > 0.0 and not self.progress.fell_back
        standing = self.progress.standing
        certify = limit is not None or by_newton or standing is not None or self.schedule.due(self._effort)
        self._before = None
        self.progress.ended = None
        self._retime()
        mark = self._keep(self)
        self._before = self._state()
        w = self._as_it_travels(loop.begin_round(min(work.fraction for work in self._works)))
        request = RoundRequest(
            *(loop.round, loop.theta, loop.gamma, loop.sigma, loop.starting, self.progress.lineage, self._way),
            narrow=self._narrow,
        )
        estimate: float | None = None
        stride = self.schedule.sample(self._effort)
        if stride and not certify and self.schedule.near:
            # where the target has been reached, the round need not be solved
            estimate = self._estimated((yield Ask(replace(request, sample=stride, mark=mark), self._works, w)))
            certify, stride, mark = self.schedule.due(self._effort), 0, False
            request = replace(request, repeats_w=True)
        # the round that is solved beside a certificate is thrown away when that is the last one
        may = self._beside and not (self.schedule.hopeful or by_newton)
        # at alpha = 0 the dual value is 0: that does not end the run
        beginning = loop.round == 0 and not loop.problem.alpha_is_model
        beside = certify and limit is None and standing is None and (may or beginning)
        before = certify and not beside
        if before:
            terms: list[CertificateTerms]
            if standing is None:
                terms = yield Ask(replace(request, certify=True, mark=mark), self._works, w)
                mark, request = False, replace(request, repeats_w=True)
            else:
                terms = [CertificateTerms(*standing, 0.0)]
            certified = yield from self._certified(terms, request, w)
            if limit is not None or self._satisfies(loop.problem.at_hand(self.best.certified, certified)):
                return (yield from self._finish(replace(request, mark=mark), w, limit))
            self._spare_digits()
        yield from self._audit_when_due(request, w, request.repeats_w)
        asked = replace(request, solve=True, certify=beside, mark=mark, sample=0 if beside else stride)
        if before:
            asked = replace(asked, screen=self._ball(certified, w))
        if by_newton and not self._give_up_newton():
            self.progress.newton += 1
            asked = replace(asked, accuracy=self._accuracy)
        if self._enough > 0.0 and loop.starting:
            stride = sole_stride(self._coordinates)
            asked = replace(asked, enough=self._enough, stride=stride, sample=0, narrow=False)
        updates: list[WorkerUpdate] = yield Ask(asked, self._works, w)
        if beside:
            terms = [update.certificate for update in updates if update.certificate is not None]
            certified = yield from self._certified(terms, request, w)
            if self._satisfies(loop.problem.at_hand(self.best.certified, certified)):
                return (yield from self._finish(request, w, limit))
            self._spare_digits()
        samples = [update.sample for update in updates if update.sample is not None]
        estimate = self._estimated(samples) if samples else estimate
        self._absorb(updates)
        if certify:
            loop.observe_gap(self._since.gap)
        elif estimate is not None:
            loop.observe_gap(estimate)
        self._before = None
        return None

    def _give_up_newton(self) -> bool:
        """Go on by coordinate ascent, from where Newton's method has come."""
        rounds, gap = self.progress.newton, self._since.relative_gap
        if self._falls_back and rounds > 0 and (rounds >= NEWTON_ROUNDS or gap > NEWTON_NEAR * self._stop.tol):
            self.progress.fell_back = True
        return self.progress.fell_back

    def _retime(self) -> None:
        """Give every worker the work that it does in the time there is, where the work may change."""
        if self._works_after is not None:
            self._works = self._works_after(self.passes)
        if self._tempo is None:
            return
        if not self.loop.starting and self._tempo.off(self._works):
            self.loop.restart()
        if self.loop.starting:
            self._works = self._tempo.plan(self._works)

    @property
    def _narrow(self) -> bool:
        """What travels in a round has fewer digits than what is computed."""
        return self._wire == "float32" and self.progress.widened is None and self.progress.standing is None

    def _as_it_travels(self, w: Vector) -> Vector:
        """w_t as the workers will have it."""
        return codec.narrowed(w).astype(np.float64) if self._narrow else w

    def _spare_digits(self) -> None:
        """Travel as float64 where the gap is so small that float32 lacks digits, or does not fall any more.

        Raises
        ------
        Drifted : so it is from now on; what has drifted until now is to be healed
        """
        if not self._narrow:
            return
        passes, gap = self._effort, self._since.relative_gap
        before, standing = self.progress.fell
        fell = gap <= NARROW_STALL_GAIN * standing
        if fell:
            self.progress.fell = (passes, gap)
        if gap <= NARROW_GAP or (not fell and passes >= 2.0 * before + NARROW_STALL_PASSES):
            self.progress.widened = self.loop.round
            raise Drifted

    def _ball(self, certified: Certified, w: Vector) -> Ball | None:
        """In what part of the ball that holds the optimal w features count from now on."""
        if self._screening is None:
            return None
        ball = self.loop.problem.ball(w, self._largest, self.best.primal - certified.dual)
        return None if ball is None else replace(ball, radius=self._screening * ball.radius)

    def _satisfies(self, pair: Certified) -> bool:
        if self._stop.abs_tol is not None and pair.gap <= self._stop.abs_tol:
            return True
        return pair.relative_gap <= self._stop.tol

    def _certified(self, terms: Sequence[CertificateTerms], request: RoundRequest, w: Vector) -> Asking[Certified]:
        """Primal and dual at (y_t, w_t), summed in rank order (algorithm section 4).

        Raises
        ------
        Drifted : they are inconsistent, and drift of v_y is the reason
        NumericalError : they are inconsistent for another reason
        """
        loop = self.loop
        self._conjugate_sum = math.fsum(term.conjugate_sum for term in terms)
        self._largest = max(term.largest for term in terms)
        self._objective_b = loop.problem.objective_b(w, math.fsum(term.loss_sum for term in terms), self._largest)
        certified = loop.problem.certified(loop.problem.objective_a(loop.v_y, self._conjugate_sum), self._objective_b)
        self.progress.doubtful |= self._narrow
        try:
            self.best.offer(certified, w, loop.round)
            self._since.offer(certified, w, loop.round)
        except NumericalError:
            yield from self._heal_drift(request, w, repeats_w=True, beyond=DRIFT_HEALED)
            if not self.progress.doubtful:
                raise
            # v_y is right, but the best O_A may be from before it was: of this pair both are right
            self.best.forget(primal=False)
            self._since = BestPair()
            self.best.offer(certified, w, loop.round)
            self._since.offer(certified, w, loop.round)
        self.schedule.certified(self._effort, self._since.relative_gap)
        if loop.problem.alpha_is_model and certified.primal <= self.best.primal and self._clock() >= self._alpha_due:
            began = self._clock()
            alpha: Vector = yield Ask(replace(request, coordinates=True, repeats_w=True), self._works, w)
            self._alpha, self._alpha_primal = loop.problem.model_of(alpha, loop.v_y), certified.primal
            ended = self._clock()
            self._alpha_due = ended + max(FETCH_SECONDS, (ended - began) / FETCH_SHARE)
        self._report(certified)
        return certified

    def _finish(self, request: RoundRequest, w: Vector, limit: Status | None) -> Asking[Outcome | None]:
        """End the run at y_t, with O_A computed from the workers' variables themselves.

        None when the run has to go on: the audit found drift beyond rounding.
        """
        loop, problem = self.loop, self.loop.problem
        round_number = loop.round
        if problem.alpha_is_model:
            alpha: Vector = yield Ask(replace(request, coordinates=True, repeats_w=True), self._works, w)
        stands = self.progress.standing is not None
        asked = replace(request, audit=not stands, finish=True, next_lineage=_new_lineage(), repeats_w=True)
        told = yield Ask(asked, self._works, w)
        v = loop.v_a if stands else self._audited(told, DRIFT_HEALED)
        if problem.alpha_is_model:
            self._alpha = problem.model_of(alpha, v)
        self._stand_at(v, asked.next_lineage)
        now = problem.certified(problem.objective_a(v, self._conjugate_sum), self._objective_b)
        if self.progress.doubtful:
            self.best.forget(primal=False)
            self.progress.doubtful = False
        self.best.offer(now, w, loop.round)
        self._alpha_primal = now.primal
        pair = problem.at_hand(self.best.certified, now)
        if self.progress.drift_now <= self._drift_healed and self._satisfies(pair):
            self.progress.ended = (pair.primal, pair.dual)
            return self._outcome("converged", pair, round_number)
        if limit is not None:
            return self._outcome(limit, pair, round_number)
        # both sides stand at y_t without momentum: that is as good as a resync
        self.progress.resyncs += 1
        return None

    def _stand_at(self, v: Vector, lineage: str) -> None:
        """The next round starts from alpha = z with A alpha = v, on a way of its own."""
        self.loop.end_round_at(v)
        self.progress.standing = None
        self._since = BestPair()
        self.progress.fell = (self._effort, math.inf)
        self.progress.lineage = self._way = lineage
        self._before = None

    def _audit_when_due(self, request: RoundRequest, w: Vector, repeats_w: bool) -> Asking[None]:
        """Now and then compare v_y with A y; heal drift beyond rounding by a resync."""
        if self.passes - self.progress.audited_at < AUDIT_PASSES:
            return
        self.progress.audited_at = self.passes
        yield from self._heal_drift(request, w, repeats_w, self._drift_healed)

    @property
    def _drift_healed(self) -> float:
        """Drift that explains itself."""
        return NARROW_DRIFT_HEALED if self._narrow else DRIFT_HEALED

    def _heal_drift(self, request: RoundRequest, w: Vector, repeats_w: bool, beyond: float) -> Asking[None]:
        """Compare v_y with A y.

        Raises
        ------
        Drifted : they differ by more than that
        NumericalError : they differ by more than sanity
        """
        self._audited((yield Ask(replace(request, audit=True, repeats_w=repeats_w), self._works, w)), beyond)
        if self.progress.drift_now > beyond:
            raise Drifted

    def _audited(self, audits: Sequence[Contribution], beyond: float) -> Vector:
        """A y from the workers' dual variables, the sum of their A_k y_k; notes how far v_y has drifted from it.

        Beyond that, the best O_A is forgotten: it was computed from v_y.

        Raises
        ------
        NumericalError : so far that rounding cannot be the reason
        """
        loop = self.loop
        v = loop.sum_up(audits)
        size, distance = kernels.apart(v, loop.v_y)
        drift = distance / size if size != 0.0 else 0.0
        self.progress.drift_now = drift
        self.progress.drift = max(self.progress.drift, drift)
        if not drift <= beyond:
            self.best.forget(primal=loop.problem.alpha_is_model)
            self._alpha, self._alpha_primal, self._alpha_due = None, math.inf, self._clock()
        if not drift <= DRIFT_INSANE:
            raise NumericalError(
                f"round {loop.round}",
                f"the shared vector differs from the workers' dual variables by {drift:.1e} of its size",
                "an update was lost or added twice; do not use this run",
            )
        return v

    def _resync(self) -> Asking[None]:
        """Go on from the dual variables the workers hold (algorithm section 5); counted as a round."""
        self._before = None
        lineage = _new_lineage()
        parts: list[Contribution] = yield Resync(self.loop.round + 1, lineage)
        self._stand_at(self.loop.sum_up(parts), lineage)
        self.progress.resyncs += 1
        self.progress.newton = 0

    def _estimated(self, samples: Sequence[GapSample]) -> float | None:
        """The gap at (y_t, w_t), going by a sample of the coordinates; None where there were none in it."""
        sampled = sum(sample.sampled for sample in samples)
        if not sampled:
            return None
        mean = math.fsum(sample.gap_sum for sample in samples) / sampled
        estimate = mean * self._coordinates * self.loop.problem.subproblem.scale
        self.schedule.estimated(self._effort, estimate / max(abs(self.best.primal), float(np.finfo(np.float64).tiny)))
        return estimate

    def _absorb(self, updates: Sequence[WorkerUpdate]) -> None:
        """Take in every worker's answer and finish the round."""
        for rank, update in enumerate(updates):
            if not math.isfinite(float(update.contribution.a_dz.sum())):
                raise NumericalError(
                    f"round {self.loop.round}",
                    f"worker {rank} answered with values that are not finite",
                    "check the data for huge values, or leave --sigma at its safe default",
                )
        contributions = [update.contribution for update in updates]
        standing = [update.standing for update in updates if update.standing is not None]
        if standing:  # only a sole worker can
            self.loop.end_round_at(self.loop.sum_up(contributions))
            self.progress.standing = (standing[0].conjugate_sum, standing[0].loss_sum)
            # what has drifted is gone
            self.progress.drift_now, self.progress.audited_at = 0.0, self.passes
        else:
            self.loop.end_round(contributions)
            self.progress.standing = None
        self._worked = self._works
        self.progress.lineage = self._way
        if self._tempo is not None:
            self._tempo.took(self._works, [update.compute_seconds for update in updates])
        last = max(update.arrived for update in updates)
        self._figures = [
            WorkerFigures(
                figures.compute_seconds + update.compute_seconds,
                figures.wait_seconds + last - update.arrived,
                figures.steps + update.steps,
            )
            for figures, update in zip(self._figures, updates, strict=True)
        ]
        self.progress.effort += math.fsum(work.passes for work in self._works) / len(self._works)
        self.progress.steps += sum(update.steps for update in updates)

    def _report(self, certified: Certified) -> None:
        loop = self.loop
        self._observe(
            CertifiedRound(
                round=loop.round,
                seconds=self.seconds,
                data_passes=self.passes,
                theta=loop.theta,
                certified=certified,
                standing=loop.problem.at_hand(self.best.certified, certified),
                best_gap=self.best.gap,
                best_relative_gap=self.best.relative_gap,
                restart=loop.restarts > self._restarts_seen,
                bytes_pushed=self._workers.bytes_pushed,
                bytes_returned=self._workers.bytes_returned,
                workers=tuple(self._figures),
            )
        )
        self._restarts_seen = loop.restarts
        self._figures = [WorkerFigures() for _ in self._works]

    def _outcome(self, status: Status, certified: Certified, rounds: int) -> Outcome:
        model = self.model
        assert model is not None  # a certificate precedes every end
        return Outcome(
            status=status,
            certified=certified,
            w=model,
            rounds=rounds,
            data_passes=self.passes,
            restarts=self.loop.restarts,
            resyncs=self.progress.resyncs,
            drift=self.progress.drift,
            solve_seconds=self.seconds,
            local_solver=self.local_solver,
            widened=self.progress.widened,
            deterministic=self.progress.steady and self._tempo is None and status in ("converged", "max_rounds"),
        )


def _new_lineage() -> str:
    return uuid.uuid4().hex[:12]


def run_together(trainings: Sequence[Training], workers: Workers, *, resync: bool = False) -> list[Outcome]:
    """Several runs on the same workers at the same time, each as it would be alone; their problems count from 0.

    What they ask at the same time travels in the same messages. One that is over asks nothing any more.

    Raises
    ------
    ClusterError, NumericalError : as Training.run, of any of them
    """
    courses = [training.course(resync=resync) for training in trainings]
    outcomes: dict[int, Outcome] = {}
    asks: dict[int, Ask | Resync] = {}

    def go_on(number: int, step: Callable[[], Ask | Resync]) -> None:
        asks.pop(number, None)
        try:
            asks[number] = step()
        except StopIteration as end:
            outcomes[number] = end.value

    for number, course in enumerate(courses):
        go_on(number, functools.partial(next, course))
    while asks:
        asked = dict(sorted(asks.items()))
        try:
            answers = workers.answers(asked)
        except ClusterError as error:
            for number in asked:
                go_on(number, functools.partial(courses[number].throw, error))
            continue
        for number in asked:
            answer = answers[number]
            course = courses[number]
            lost = isinstance(answer, StateLost)
            go_on(number, functools.partial(course.throw if lost else course.send, answer))
    return [outcomes[number] for number in range(len(courses))]
