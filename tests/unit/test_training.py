"""The run: it ends at other solvers' optimum, for the reason it says, with a certificate that can be recomputed."""

import ctypes
import functools
import itertools
import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from liblinear import liblinearutil
from liblinear.liblinear import solver_names
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import ElasticNet, Ridge
from sklearn.svm import LinearSVC, LinearSVR

from acccocoa import losses
from acccocoa.config import StopConfig, Wire
from acccocoa.errors import NumericalError
from acccocoa.examples import Examples
from acccocoa.losses import Vector
from acccocoa.problem import Certified, Problem, certify
from coordinator import training
from coordinator.certificate import ROUNDING, BestPair, check
from coordinator.messages import CertificateTerms, RoundRequest, StateLost, WorkerUpdate
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import CERTIFICATE_PASSES, CERTIFICATE_SHARE, CertificateSchedule, Work, plan_work
from coordinator.training import CertifiedRound, Outcome, Training
from tests.support.inprocess import InProcessWorkers

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """Examples, and the same densely."""

    dense: Matrix
    y: Vector

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def examples(self) -> Examples:
        n, d = self.dense.shape
        return Examples(
            indptr=np.arange(0, n * d + 1, d, dtype=np.int64),
            indices=np.tile(np.arange(d, dtype=np.int32), n),
            values=self.dense.ravel(),
            labels=self.y,
        )


def standardised(x: Matrix) -> Matrix:
    scaled: Matrix = (x - x.mean(axis=0)) / x.std(axis=0)
    return scaled


@functools.cache
def breast_cancer() -> Data:
    x, y = load_breast_cancer(return_X_y=True)
    return Data(standardised(x), np.where(y > 0, 1.0, -1.0))


@functools.cache
def diabetes() -> Data:
    x, y = load_diabetes(return_X_y=True)
    return Data(standardised(x), standardised(y))


@functools.cache
def tiny(classifier: bool) -> Data:
    rng = np.random.default_rng(21)
    x = rng.standard_normal((40, 8))
    target = x @ np.array([1.0, -2.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]) + 0.3 * rng.standard_normal(40)
    return Data(x, np.where(target > 0, 1.0, -1.0) if classifier else target)


def data_for(loss: str) -> Data:
    return breast_cancer() if losses.loss(loss).classifier else diabetes()


class WatchedWorkers(InProcessWorkers):
    """Workers that look up what they are asked, and what a certificate should be, from the data alone."""

    def __init__(self, data: Data, problem: Problem, k: int, seed: int, threads: int) -> None:
        super().__init__(data.examples, problem, k, seed=seed, threads=threads)
        self.data = data
        self.problem = problem
        self.requests: list[RoundRequest] = []
        self.w: Vector = np.empty(0)
        self.recomputed: list[Certified] = []

    def push(self, request: RoundRequest, works: Sequence[Work], w: Vector) -> None:
        super().push(request, works, w)
        self.requests.append(request)
        self.w = w

    def certificates(self) -> list[CertificateTerms]:
        request = self.requests[-1]
        weight = request.gamma * request.theta
        y_t = (1.0 - weight) * self.duals("alpha") + weight * self.duals("z")
        self.recomputed.append(self.certify(self.w, y_t))
        return super().certificates()

    def duals(self, which: str) -> Vector:
        """alpha or z of all workers in the order of the data."""
        whole = np.empty(self.data.n)
        for shard, state in zip(self.shards, self.states, strict=True):
            whole[shard.rows] = getattr(state, which)
        return whole

    def certify(self, w: Vector, alpha: Vector) -> Certified:
        loss, y = self.problem.loss, self.data.y
        # a convex combination may be outside the domain in its last digit
        if loss.classifier:
            alpha = y * np.clip(y * alpha, 0.0, loss.bound)
        else:
            alpha = np.clip(alpha, -loss.bound, loss.bound)
        return certify(self.problem, self.data.dense, self.data.y, w, alpha)


@dataclass
class Run:
    """A run and all that was seen of it."""

    data: Data
    problem: Problem
    k: int = 2
    threads: int = 1
    epochs: float = 1.0
    seed: int = 0
    stop: StopConfig = field(default_factory=lambda: StopConfig(tol=1e-4))
    every_round: bool = False
    beside: bool = False
    stride: int = 1
    loop_options: dict[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = lambda: 0.0
    wire: Wire = "float64"
    make_workers: type[WatchedWorkers] = WatchedWorkers
    interrupt_when: Callable[[CertifiedRound], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.workers = self.make_workers(self.data, self.problem, self.k, self.seed, self.threads)
        self.loop = OuterLoop(self.problem, self.data.dense.shape[1], self.workers.blocks, **self.loop_options)
        self.seen: list[CertifiedRound] = []
        self.interrupted = threading.Event()
        self.training = Training(
            self.loop,
            self.workers,
            self.workers.plan(self.epochs),
            CertificateSchedule(self.stop.tol, self.every_round, self.stride),
            self.stop,
            interrupted=self.interrupted,
            observe=self._observe,
            clock=self.clock,
            beside=self.beside,
            wire=self.wire,
        )

    def _observe(self, seen: CertifiedRound) -> None:
        self.seen.append(seen)
        if self.interrupt_when(seen):
            self.interrupted.set()

    def go(self) -> Outcome:
        return self.training.run()


def problem_of(loss: str, data: Data, lam: float, l1_ratio: float = 0.0, parameter: float | None = None) -> Problem:
    return Problem(loss, lam, data.n, l1_ratio, parameter)


def primal(problem: Problem, data: Data, w: Vector) -> float:
    return certify(problem, data.dense, data.y, w, np.zeros(data.n)).primal


# ------------------------------------------------------------------------------------------------ the optimum of others


LIBLINEAR = {
    "hinge": solver_names.L2R_L1LOSS_SVC_DUAL,
    "squared_hinge": solver_names.L2R_L2LOSS_SVC_DUAL,
    "logistic": solver_names.L2R_LR_DUAL,
    "epsilon_insensitive": solver_names.L2R_L1LOSS_SVR_DUAL,
    "squared_epsilon_insensitive": solver_names.L2R_L2LOSS_SVR_DUAL,
}


def liblinear_w(problem: Problem, data: Data) -> Vector:
    c, epsilon = 1.0 / (problem.lam * data.n), problem.loss.epsilon
    options = f"-s {LIBLINEAR[problem.loss_name]} -c {c!r} -e 1e-10 -p {epsilon!r} -q"
    # its order of visits, and so where it is after 1000 iterations, would depend on the tests before
    ctypes.CDLL(None).srand(1)
    model = liblinearutil.train(data.y, data.dense, options)
    w, _ = model.get_decfun(0 if model.is_regression_model() else model.get_labels().index(1))
    return np.array(w)


def patient_liblinear_w(problem: Problem, data: Data) -> Vector:
    """scikit-learn's copy, whose number of iterations is not limited to 1000: losses with a kink need more."""
    options = {"C": 1.0 / (problem.lam * data.n), "tol": 1e-9, "max_iter": 1_000_000, "fit_intercept": False}
    if problem.loss.classifier:
        solver = LinearSVC(loss=problem.loss_name, dual=True, random_state=0, **options)
    else:
        solver = LinearSVR(loss=problem.loss_name, epsilon=problem.loss.epsilon, dual=True, random_state=0, **options)
    return np.ravel(solver.fit(data.dense, data.y).coef_)


def smooth_w(problem: Problem, data: Data) -> Vector:
    """The optimum of a differentiable loss, with w split into its two signs where there is an l1 norm."""
    d = data.dense.shape[1]

    def objective(halves: Vector) -> tuple[float, Vector]:
        w = halves[:d] - halves[d:]
        p = data.dense @ w
        gradient = data.dense.T @ losses.derivative(problem.loss, data.y, p) / data.n
        gradient += problem.lam * (1.0 - problem.l1_ratio) * w
        value = float(losses.value(problem.loss, data.y, p).mean()) + problem.lam * (
            problem.l1_ratio * float(halves.sum()) + 0.5 * (1.0 - problem.l1_ratio) * float(w @ w)
        )
        l1 = problem.lam * problem.l1_ratio
        return value, np.concatenate((gradient + l1, l1 - gradient))

    found = minimize(
        objective,
        np.full(2 * d, 0.01),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * (2 * d),
        options={"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-11, "maxcor": 50},
    )
    return np.asarray(found.x[:d] - found.x[d:])


def other_optimum(problem: Problem, data: Data) -> Vector:
    """w of an independent solver."""
    if problem.loss_name == "squared":
        ridge = Ridge(alpha=problem.lam * problem.n, fit_intercept=False, tol=1e-12)
        return np.asarray(ridge.fit(data.dense, data.y).coef_)
    if problem.loss_name in ("hinge", "epsilon_insensitive"):
        return patient_liblinear_w(problem, data)
    if problem.loss_name in LIBLINEAR:
        return liblinear_w(problem, data)
    return smooth_w(problem, data)


@pytest.mark.parametrize(
    ("k", "threads", "epochs", "options"),
    [
        (1, 1, 1.0, {}),
        (2, 1, 1.0, {}),
        (4, 1, 0.25, {}),
        (2, 2, 1.0, {"restart": "gradient"}),
        (3, 1, 2.0, {"gamma": 0.5}),
        (2, 1, 1.0, {"accelerate": False}),
    ],
)
@pytest.mark.parametrize("loss", losses.NAMES)
def test_ends_at_the_optimum_of_other_solvers(
    loss: str, k: int, threads: int, epochs: float, options: dict[str, Any]
) -> None:
    data = data_for(loss)
    problem = problem_of(loss, data, lam=0.03)
    run = Run(data, problem, k, threads, epochs, stop=StopConfig(tol=3e-7), loop_options=options)
    outcome = run.go()
    assert outcome.status == "converged"
    assert 0.0 <= outcome.relative_gap <= 3e-7
    expected = primal(problem, data, other_optimum(problem, data))
    assert outcome.certified.primal == pytest.approx(expected, rel=1e-6)
    assert outcome.certified.dual <= expected * (1 + 1e-12)
    assert primal(problem, data, outcome.w) == pytest.approx(outcome.certified.primal, rel=1e-12)


@pytest.mark.parametrize("loss", LIBLINEAR)
def test_the_certificate_brackets_liblinears_objective(loss: str) -> None:
    data = data_for(loss)
    problem = problem_of(loss, data, lam=0.01)
    outcome = Run(data, problem, stop=StopConfig(tol=1e-5)).go()
    found = primal(problem, data, liblinear_w(problem, data))
    assert outcome.certified.dual <= found
    # LIBLINEAR stops after 1000 iterations, whatever it has reached then
    assert found <= outcome.certified.primal * (1 + 1e-3)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("lam", [0.3, 0.03])
def test_elastic_net_ends_at_scikit_learns_optimum(lam: float, k: int) -> None:
    data = tiny(classifier=False)
    problem = problem_of("squared", data, lam, l1_ratio=0.5)
    outcome = Run(data, problem, k, stop=StopConfig(tol=1e-10)).go()
    other = ElasticNet(alpha=lam, l1_ratio=0.5, fit_intercept=False, tol=1e-14, max_iter=100_000)
    expected = other.fit(data.dense, data.y).coef_
    assert outcome.status == "converged"
    assert outcome.certified.primal == pytest.approx(primal(problem, data, expected), rel=1e-9)
    assert_allclose(outcome.w, expected, atol=1e-4)
    assert 0 < np.count_nonzero(expected) < len(expected)
    assert_array_equal(outcome.w == 0, expected == 0)


@pytest.mark.parametrize("loss", ["smoothed_hinge", "squared_hinge", "logistic", "huber"])
def test_elastic_net_of_other_losses(loss: str) -> None:
    data = tiny(losses.loss(loss).classifier)
    problem = problem_of(loss, data, lam=0.1, l1_ratio=0.5)
    outcome = Run(data, problem, stop=StopConfig(tol=1e-9)).go()
    assert outcome.status == "converged"
    assert outcome.certified.primal == pytest.approx(primal(problem, data, smooth_w(problem, data)), rel=1e-8)


@pytest.mark.parametrize(("loss", "parameter"), [("smoothed_hinge", 0.05), ("huber", 0.3)])
def test_the_losses_parameter_is_the_one_given(loss: str, parameter: float) -> None:
    data = data_for(loss)
    problem = problem_of(loss, data, lam=0.03, parameter=parameter)
    outcome = Run(data, problem, stop=StopConfig(tol=3e-7)).go()
    assert outcome.certified.primal == pytest.approx(primal(problem, data, smooth_w(problem, data)), rel=1e-6)
    assert outcome.certified.primal != pytest.approx(primal(replace(problem, loss_parameter=None), data, outcome.w))


def test_a_row_without_entries_counts() -> None:
    base = tiny(classifier=True)
    data = Data(np.vstack([base.dense, np.zeros((3, base.dense.shape[1]))]), np.append(base.y, [1.0, -1.0, 1.0]))
    examples = data.examples
    keep = (data.dense != 0).ravel()
    sizes = (data.dense != 0).sum(axis=1)
    sparse = replace(
        examples,
        indptr=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        indices=examples.indices[keep],
        values=examples.values[keep],
    )
    for loss in ("hinge", "logistic", "squared_hinge"):
        problem = problem_of(loss, data, lam=0.05)
        workers = InProcessWorkers(sparse, problem, 2)
        training = Training(
            OuterLoop(problem, data.dense.shape[1], 2),
            workers,
            workers.plan(1.0),
            CertificateSchedule(1e-8),
            StopConfig(tol=1e-8),
            interrupted=threading.Event(),
        )
        outcome = training.run()
        expected = primal(problem, data, other_optimum(problem, data))
        assert outcome.status == "converged"
        assert outcome.certified.primal == pytest.approx(expected, rel=1e-7)


# --------------------------------------------------------------------------------------------------------- certificates


@pytest.mark.parametrize(
    ("loss", "k", "threads", "epochs", "l1_ratio", "options"),
    [
        ("hinge", 2, 1, 1.0, 0.0, {}),
        ("logistic", 3, 1, 0.5, 0.0, {}),
        ("squared", 1, 2, 1.0, 0.5, {"restart": "none"}),
        ("smoothed_hinge", 2, 2, 0.25, 0.3, {"gamma": 0.25}),
        ("epsilon_insensitive", 4, 1, 1.0, 0.0, {"accelerate": False}),
    ],
)
def test_every_certificate_is_what_the_data_say(
    loss: str, k: int, threads: int, epochs: float, l1_ratio: float, options: dict[str, Any]
) -> None:
    data = data_for(loss)
    problem = problem_of(loss, data, 0.03, l1_ratio)
    stop = StopConfig(tol=1e-12, max_rounds=60)
    run = Run(data, problem, k, threads, epochs, stop=stop, every_round=True, loop_options=options)
    outcome = run.go()
    assert len(run.seen) == len(run.workers.recomputed) == 61
    best_primal, best_dual = math.inf, -math.inf
    for seen, expected in zip(run.seen, run.workers.recomputed, strict=True):
        assert seen.certified.primal == pytest.approx(expected.primal, rel=1e-12)
        assert seen.certified.dual == pytest.approx(expected.dual, rel=1e-10, abs=1e-12)
        assert seen.certified.gap >= 0.0
        best_primal, best_dual = min(best_primal, expected.primal), max(best_dual, expected.dual)
        assert seen.best_gap == pytest.approx(best_primal - best_dual, rel=1e-6, abs=1e-11)
        assert seen.best_relative_gap == pytest.approx(seen.best_gap / best_primal, rel=1e-9)
    assert outcome.certified.primal == pytest.approx(best_primal, rel=1e-12)
    assert outcome.certified.dual == pytest.approx(best_dual, rel=1e-10)
    # what the last line shows is what the run ends with
    assert run.seen[-1].standing.primal == pytest.approx(outcome.certified.primal, rel=1e-12)
    assert run.seen[-1].standing.dual == pytest.approx(outcome.certified.dual, rel=1e-10)
    assert math.copysign(1.0, run.seen[0].certified.dual) == 1.0
    assert primal(problem, data, outcome.w) == pytest.approx(best_primal, rel=1e-12)
    assert run.seen[-1].best_relative_gap < 0.1 * run.seen[5].best_relative_gap


@pytest.mark.parametrize("loss", ["hinge", "logistic", "squared"])
def test_a_converged_run_leaves_the_dual_point_it_reports_with_the_workers(loss: str) -> None:
    data = data_for(loss)
    problem = problem_of(loss, data, lam=0.03)
    run = Run(data, problem, k=3, epochs=0.5, stop=StopConfig(tol=1e-5))
    outcome = run.go()
    found = run.workers.certify(outcome.w, run.workers.duals("alpha"))
    assert outcome.status == "converged"
    assert outcome.certified.primal == pytest.approx(found.primal, rel=1e-12)
    assert outcome.certified.dual == pytest.approx(found.dual, rel=1e-12)
    assert found.relative_gap <= 1e-5
    assert outcome.relative_gap == pytest.approx(found.relative_gap, rel=1e-6)
    assert outcome.drift < 1e-12


def test_passes_are_coordinates_visited() -> None:
    data = breast_cancer()
    run = Run(data, problem_of("hinge", data, 0.03), k=2, epochs=3.0, stop=StopConfig(tol=1e-12, max_rounds=4))
    outcome = run.go()
    assert outcome.data_passes == 12.0
    assert sum(worker.steps for seen in run.seen for worker in seen.workers) == 12 * data.n


# ---------------------------------------------------------------------------------------------------------- how it ends


def hinge_run(**options: Any) -> Run:
    data = breast_cancer()
    return Run(data, problem_of("hinge", data, 0.01), **options)


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_max_rounds(rounds: int) -> None:
    run = hinge_run(stop=StopConfig(tol=1e-12, max_rounds=rounds))
    outcome = run.go()
    assert (outcome.status, outcome.rounds) == ("max_rounds", rounds)
    assert sum(request.solve for request in run.workers.requests) == rounds
    # the last w is certified, and not solved from
    assert run.seen[-1].round == rounds
    assert math.isfinite(outcome.relative_gap)


def test_max_seconds() -> None:
    ticks = iter(range(10_000))
    run = hinge_run(stop=StopConfig(tol=1e-12, max_seconds=50.0), clock=lambda: float(next(ticks)))
    outcome = run.go()
    assert outcome.status == "max_seconds"
    assert 50.0 <= outcome.solve_seconds < 80.0
    assert 5 < outcome.rounds < 50


def test_interrupted() -> None:
    run = hinge_run(stop=StopConfig(tol=1e-12), every_round=True, interrupt_when=lambda seen: seen.round == 5)
    outcome = run.go()
    assert (outcome.status, outcome.rounds) == ("interrupted", 6)
    assert run.seen[-1].round == 6


def test_interrupted_before_the_first_round() -> None:
    run = hinge_run()
    run.interrupted.set()
    outcome = run.go()
    assert (outcome.status, outcome.rounds, outcome.data_passes) == ("interrupted", 0, 0.0)
    assert outcome.certified.primal == 1.0  # the hinge loss of w = 0
    assert not outcome.w.any()


def test_absolute_tolerance_is_another_way_to_converge() -> None:
    outcome = hinge_run(stop=StopConfig(tol=1e-12, abs_tol=1e-3), every_round=True).go()
    assert outcome.status == "converged"
    assert 1e-12 < outcome.gap <= 1e-3


def test_converged_comes_before_a_limit() -> None:
    rounds = hinge_run(stop=StopConfig(tol=1e-2), every_round=True).go().rounds
    outcome = hinge_run(stop=StopConfig(tol=1e-2, max_rounds=rounds), every_round=True).go()
    assert (outcome.status, outcome.rounds) == ("converged", rounds)


def test_the_optimum_at_the_start_needs_no_round() -> None:
    data = Data(np.ones((4, 2)), np.zeros(4))
    outcome = Run(data, problem_of("squared", data, 0.1)).go()
    assert (outcome.status, outcome.rounds, outcome.gap) == ("converged", 0, 0.0)


# ------------------------------------------------------------------------------------------------------- same and other


@pytest.mark.parametrize(("k", "threads", "epochs"), [(1, 1, 1.0), (3, 2, 0.5)])
def test_same_seed_same_bits_other_seed_other_bits(k: int, threads: int, epochs: float) -> None:
    first, again, other = (
        hinge_run(k=k, threads=threads, epochs=epochs, seed=seed, stop=StopConfig(tol=1e-3)).go() for seed in (7, 7, 8)
    )
    assert first.w.tobytes() == again.w.tobytes()
    assert first.certified == again.certified
    assert (first.rounds, first.restarts) == (again.rounds, again.restarts)
    assert first.w.tobytes() != other.w.tobytes()
    assert other.status == "converged"


@pytest.mark.parametrize("stop", [StopConfig(tol=1e-6), StopConfig(tol=1e-9, max_rounds=7)])
@pytest.mark.parametrize(("loss", "k", "every_round"), [("hinge", 1, False), ("logistic", 2, True)])
def test_a_certificate_made_beside_the_solve_is_the_same(
    loss: str, k: int, every_round: bool, stop: StopConfig
) -> None:
    data = data_for(loss)
    runs = [
        Run(data, problem_of(loss, data, 1e-2), k, stop=stop, every_round=every_round, beside=beside)
        for beside in (False, True)
    ]
    before, beside = (run.go() for run in runs)
    assert beside.w.tobytes() == before.w.tobytes()
    assert (beside.certified, beside.rounds, beside.data_passes) == (
        before.certified,
        before.rounds,
        before.data_passes,
    )
    assert [seen.certified for seen in runs[1].seen] == [seen.certified for seen in runs[0].seen]
    for own, other in zip(runs[0].workers.states, runs[1].workers.states, strict=True):
        assert own.alpha.tobytes() == other.alpha.tobytes()


@pytest.mark.parametrize(("loss", "beside"), [("hinge", False), ("logistic", True)])
def test_the_round_that_reaches_the_target_is_not_followed_by_another(loss: str, beside: bool) -> None:
    data = data_for(loss)
    options: dict[str, Any] = {"stop": StopConfig(tol=1e-2), "loop_options": {"restart": "none"}}
    always = Run(data, problem_of(loss, data, 1e-3), every_round=True, **options)
    sampling = Run(data, problem_of(loss, data, 1e-3), stride=2, beside=beside, **options)
    expected, found = always.go(), sampling.go()
    assert found.status == "converged"
    assert len(sampling.seen) < len(always.seen)
    assert found.rounds <= 1.1 * expected.rounds  # estimates are 3 % of the passes apart
    *_, sampled, certified, finished = sampling.workers.requests
    assert sampled.sample
    assert not sampled.solve
    assert (certified.certify, certified.repeats_w, finished.finish) == (True, True, True)


def test_certifying_more_often_does_not_change_the_rounds() -> None:
    often, seldom = (
        hinge_run(every_round=every, stop=StopConfig(tol=1e-12, max_rounds=30), loop_options={"restart": "none"})
        for every in (True, False)
    )
    often.go()
    seldom.go()
    assert len(often.seen) > len(seldom.seen)
    assert often.loop.v_a.tobytes() == seldom.loop.v_a.tobytes()


# --------------------------------------------------------------------------------------------------- what must not pass


class Falsified(WatchedWorkers):
    """Workers whose answers to round 3 are falsified."""

    def falsify(self, update: WorkerUpdate) -> WorkerUpdate:
        return update

    def updates(self) -> list[WorkerUpdate]:
        updates = super().updates()
        if self.requests[-1].round == 3:
            updates[1] = self.falsify(updates[1])
        return updates


def with_a_dz(update: WorkerUpdate, a_dz: Vector) -> WorkerUpdate:
    return replace(update, contribution=replace(update.contribution, a_dz=a_dz))


class OneNaN(Falsified):
    def falsify(self, update: WorkerUpdate) -> WorkerUpdate:
        a_dz = update.contribution.a_dz.copy()
        a_dz[4] = math.nan
        return with_a_dz(update, a_dz)


class OneInfinity(Falsified):
    def falsify(self, update: WorkerUpdate) -> WorkerUpdate:
        a_dz = update.contribution.a_dz.copy()
        a_dz[0] = -math.inf
        return with_a_dz(update, a_dz)


class Lost(Falsified):
    def falsify(self, update: WorkerUpdate) -> WorkerUpdate:
        return with_a_dz(update, np.zeros_like(update.contribution.a_dz))


class Twice(Falsified):
    def falsify(self, update: WorkerUpdate) -> WorkerUpdate:
        return with_a_dz(update, 2.0 * update.contribution.a_dz)


class Drifting(Falsified):
    def falsify(self, update: WorkerUpdate) -> WorkerUpdate:
        return with_a_dz(update, (1.0 + 1e-5) * update.contribution.a_dz)


class NaNSums(WatchedWorkers):
    def certificates(self) -> list[CertificateTerms]:
        return [replace(terms, loss_sum=math.nan) for terms in super().certificates()]


@pytest.mark.parametrize("workers", [OneNaN, OneInfinity])
def test_values_that_are_not_finite_end_the_run_in_their_round(workers: type[WatchedWorkers]) -> None:
    run = hinge_run(make_workers=workers)
    with pytest.raises(NumericalError, match="worker 1"):
        run.go()
    assert run.loop.round == 3


def test_certificate_that_is_not_finite_ends_the_run() -> None:
    with pytest.raises(NumericalError, match="finite"):
        hinge_run(make_workers=NaNSums).go()


@pytest.mark.parametrize("workers", [Lost, Twice])
@pytest.mark.parametrize("loss", ["hinge", "squared"])
def test_a_lost_or_doubled_update_never_ends_as_converged(loss: str, workers: type[WatchedWorkers]) -> None:
    data = data_for(loss)
    with pytest.raises(NumericalError):
        Run(data, problem_of(loss, data, 0.03), make_workers=workers, stop=StopConfig(tol=1e-4, max_rounds=2000)).go()


@pytest.mark.parametrize("loss", ["hinge", "squared"])
def test_a_small_drift_is_healed(loss: str) -> None:
    data = data_for(loss)
    problem = problem_of(loss, data, 0.03)
    run = Run(data, problem, make_workers=Drifting, stop=StopConfig(tol=1e-7))
    outcome = run.go()
    assert outcome.status == "converged"
    assert outcome.resyncs >= 1
    assert outcome.drift > 1e-9
    found = run.workers.certify(outcome.w, run.workers.duals("alpha"))
    assert found.relative_gap <= 1e-7
    assert outcome.certified.dual == pytest.approx(found.dual, rel=1e-12)


class Forgetful(WatchedWorkers):
    """Worker 0 comes back with nothing in round 500."""

    forgot = False

    def updates(self) -> list[WorkerUpdate]:
        if not self.forgot and self._request is not None and self._request.round == 500:
            self.forgot = True
            self.states[0].alpha[:] = self.states[0].z[:] = 0.0
            self.states[0].pending = None
            raise StateLost("worker 0")
        return super().updates()


def test_a_worker_that_forgot_costs_no_more_than_to_begin_anew() -> None:
    data = data_for("hinge")
    problem = problem_of("hinge", data, 1e-3)
    stop = StopConfig(tol=1e-10, max_rounds=20_000)
    undisturbed = Run(data, problem, stop=stop).go()
    run = Run(data, problem, make_workers=Forgetful, stop=stop)
    outcome = run.go()
    assert isinstance(run.workers, Forgetful)
    assert run.workers.forgot
    assert outcome.status == undisturbed.status == "converged"
    assert outcome.resyncs == 1
    assert undisturbed.rounds > 550
    # the restart rule goes by the gaps since then; by the best of all it would hardly restart any more
    assert outcome.rounds < 500 + 1.5 * undisturbed.rounds


def test_logistic_with_partial_rounds_and_little_regularisation() -> None:
    data = breast_cancer()
    run = Run(data, problem_of("logistic", data, 1e-6), epochs=0.7, seed=1, stop=StopConfig(tol=1e-9, max_rounds=60))
    assert run.go().status == "max_rounds"


# ------------------------------------------------------------------------------------------------- float32 on the wire


class Narrow(WatchedWorkers):
    """Workers whose messages carry float32."""

    def push(self, request: RoundRequest, works: Sequence[Work], w: Vector) -> None:
        if request.narrow:
            assert_array_equal(w, w.astype(np.float32))  # nothing is lost on the way
        super().push(request, works, w)

    def updates(self) -> list[WorkerUpdate]:
        updates = super().updates()
        if not self.requests[-1].narrow:
            return updates
        return [with_a_dz(update, update.contribution.a_dz.astype(np.float32).astype(np.float64)) for update in updates]


@pytest.mark.parametrize(
    ("loss", "lam", "l1_ratio", "tol"),
    [
        ("hinge", 0.03, 0.0, 1e-3),
        ("hinge", 0.03, 0.0, 1e-6),
        ("logistic", 1e-3, 0.0, 1e-9),
        ("squared", 0.03, 0.5, 1e-9),
        ("epsilon_insensitive", 0.03, 0.0, 1e-6),
    ],
)
def test_float32_on_the_wire_ends_at_the_same_optimum_with_a_true_certificate(
    loss: str, lam: float, l1_ratio: float, tol: float
) -> None:
    data = data_for(loss)
    problem = problem_of(loss, data, lam, l1_ratio)
    stop = StopConfig(tol=tol, max_rounds=5000)
    wide = Run(data, problem, k=3, epochs=0.5, stop=stop).go()
    run = Run(data, problem, k=3, epochs=0.5, stop=stop, every_round=True, wire="float32", make_workers=Narrow)
    narrow = run.go()
    assert narrow.status == "converged"
    for seen, expected in zip(run.seen, run.workers.recomputed, strict=True):
        # the primal value is that of the rounded w; O_A may be off by drift
        assert seen.certified.primal == pytest.approx(expected.primal, rel=1e-12)
        assert seen.certified.dual == pytest.approx(expected.dual, rel=1e-6, abs=1e-12)
    found = run.workers.certify(narrow.w, run.workers.duals("alpha"))
    assert narrow.certified.primal == pytest.approx(found.primal, rel=1e-12)
    assert narrow.certified.dual == pytest.approx(found.dual, rel=1e-12)
    assert found.relative_gap <= tol
    assert (narrow.widened is None) == (tol > 1e-5)
    if narrow.widened is None:
        assert_array_equal(narrow.w, narrow.w.astype(np.float32))
    assert narrow.certified.primal == pytest.approx(wide.certified.primal, rel=2 * tol)
    assert 1e-12 < narrow.drift < 1e-6


def test_a_gap_that_falls_no_further_with_float32_does_with_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_for("hinge")
    problem = problem_of("hinge", data, 1e-3)
    monkeypatch.setattr(training, "NARROW_GAP", 0.0)
    run = Run(data, problem, stop=StopConfig(tol=1e-9, max_rounds=5000), wire="float32", make_workers=Narrow)
    outcome = run.go()
    assert (outcome.status, outcome.deterministic) == ("converged", True)
    assert outcome.widened is not None
    assert 1e-9 < min(seen.best_relative_gap for seen in run.seen if seen.round < outcome.widened) < 1e-5
    # the way of a round is the same for all that is asked in it
    for request in run.workers.requests:
        assert request.narrow == (request.round <= outcome.widened)
    assert run.workers.certify(outcome.w, run.workers.duals("alpha")).relative_gap <= 1e-9


def test_float32_goes_on_where_its_state_was_taken() -> None:
    """Whether vectors are narrow is part of the state."""
    data = data_for("logistic")
    problem = problem_of("logistic", data, 1e-3)

    def run(rounds: int) -> Run:
        stop = StopConfig(tol=1e-12, max_rounds=rounds)
        return Run(data, problem, stop=stop, wire="float32", make_workers=Narrow)

    whole = run(200)
    found = whole.go()
    assert found.widened is not None
    for rounds in (found.widened // 2, found.widened + 3):
        first, second = run(rounds), run(200)
        first.go()
        facts, arrays = json.loads(json.dumps(first.training.state()[0])), first.training.state()[1]
        second.workers.states = first.workers.states
        second.training.restore(facts, arrays)
        assert second.training.progress == first.training.progress
        assert second.go().status in ("converged", "max_rounds")
        assert (second.training.progress.widened == found.widened) == (rounds > found.widened)


class NarrowAndOff(Falsified, Narrow):
    """A drift within what float32 is granted, that makes O_A too small: the dual value is above the optimum."""

    def falsify(self, update: WorkerUpdate) -> WorkerUpdate:
        return with_a_dz(update, (1.0 - 5e-6) * update.contribution.a_dz)


class NarrowAndForgetful(NarrowAndOff):
    """The same, and worker 0 forgets where it stands in round 12: the resync leaves nothing of the drift."""

    forgot = False

    def updates(self) -> list[WorkerUpdate]:
        if not self.forgot and self.requests[-1].round == 12:
            self.forgot = True
            for state in self.states:
                state.pending = None
            raise StateLost("worker 0")
        return super().updates()


@pytest.mark.parametrize("workers", [NarrowAndOff, NarrowAndForgetful])
@pytest.mark.parametrize("every_round", [True, False])
def test_a_dual_value_that_drift_has_made_too_large_neither_ends_the_run_nor_is_reported(
    workers: type[WatchedWorkers], every_round: bool
) -> None:
    data = data_for("squared")
    problem = problem_of("squared", data, 0.03)
    stop = StopConfig(tol=1e-9, max_rounds=3000)
    run = Run(data, problem, stop=stop, every_round=every_round, wire="float32", make_workers=workers)
    outcome = run.go()
    assert outcome.status == "converged"
    assert outcome.deterministic == (workers is NarrowAndOff)
    found = run.workers.certify(outcome.w, run.workers.duals("alpha"))
    assert outcome.certified.dual == pytest.approx(found.dual, rel=1e-12)
    assert found.relative_gap <= 1e-9


@pytest.mark.parametrize("workers", [Lost, Twice])
def test_with_float32_a_lost_or_doubled_update_never_ends_as_converged(workers: type[WatchedWorkers]) -> None:
    data = data_for("hinge")
    stop = StopConfig(tol=1e-4, max_rounds=2000)
    with pytest.raises(NumericalError):
        Run(data, problem_of("hinge", data, 0.03), make_workers=workers, stop=stop, wire="float32").go()


def test_with_float32_the_same_seed_gives_the_same_bits() -> None:
    first, again = (hinge_run(k=3, wire="float32", make_workers=Narrow).go() for _ in range(2))
    assert first.w.tobytes() == again.w.tobytes()
    assert first.certified == again.certified
    assert first.w.tobytes() != hinge_run(k=3).go().w.tobytes()


class Unwatched(WatchedWorkers):
    """Certificates are not recomputed, which would warn."""

    def certificates(self) -> list[CertificateTerms]:
        return InProcessWorkers.certificates(self)


def test_a_w_beyond_float32_ends_the_run() -> None:
    data = Data(np.full((4, 2), 1e-30), np.full(4, 1e15))
    with pytest.raises(NumericalError, match="finite"):
        Run(data, problem_of("squared", data, 1e-60), wire="float32", make_workers=Unwatched).go()


def test_a_run_that_goes_on_with_float64_doubts_what_float32_left() -> None:
    data = data_for("squared")
    problem = problem_of("squared", data, 0.03)
    optimum = Run(data, problem, stop=StopConfig(tol=1e-12)).go().certified.primal
    before = Run(data, problem, stop=StopConfig(tol=1e-12, max_rounds=20), wire="float32", make_workers=Narrow)
    before.go()
    facts, arrays = before.training.state()
    facts["best"]["dual"] = optimum * (1.0 + 1e-7)
    for doubtful in (True, False):
        facts["progress"]["doubtful"] = doubtful
        after = Run(data, problem, stop=StopConfig(tol=1e-9))
        after.workers.states = before.workers.states
        after.training.restore(facts, arrays)
        if not doubtful:
            with pytest.raises(NumericalError, match="cannot be below zero"):
                after.training.run(resync=True)
            continue
        outcome = after.training.run(resync=True)
        assert outcome.status == "converged"
        found = after.workers.certify(outcome.w, after.workers.duals("alpha"))
        assert outcome.certified.dual == pytest.approx(found.dual, rel=1e-12)


# ----------------------------------------------------------------------------------------------- certificate, best pair


def test_check_lets_rounding_pass_and_nothing_else() -> None:
    check(Certified(2.0, 1.0), 0)
    check(Certified(1.0, 1.0), 0)
    check(Certified(1.0, 1.0 + 0.9 * ROUNDING), 0)
    check(Certified(0.0, 0.0), 0)
    check(Certified(-3.0, -4.0), 0)
    check(Certified(1e6, 1e6 * (1 + 0.9 * ROUNDING)), 0)
    for wrong in (
        Certified(1.0, 1.0 + 3 * ROUNDING),
        Certified(0.0, 1e-20),
        Certified(-1.0, 1.0),
        Certified(1e-9, 2e-9),
    ):
        with pytest.raises(NumericalError, match=r"round 12.*gap"):
            check(wrong, 12)
    for bad in (math.nan, math.inf, -math.inf):
        for wrong in (Certified(bad, 0.0), Certified(1.0, bad)):
            with pytest.raises(NumericalError, match=r"round 12.*finite"):
                check(wrong, 12)


def test_best_pair_forgets_what_is_in_doubt() -> None:
    best = BestPair()
    w = np.ones(2)
    best.offer(Certified(2.0, 1.0), w, 0)
    best.forget(primal=False)
    assert best.w is w
    best.offer(Certified(3.0, 0.5), w, 1)
    assert (best.primal, best.dual) == (2.0, 0.5)
    best.forget(primal=True)
    best.offer(Certified(3.0, 0.25), w, 2)
    assert (best.primal, best.dual) == (3.0, 0.5)


def test_best_pair_takes_the_best_of_each() -> None:
    best = BestPair()
    assert best.w is None
    assert best.relative_gap == math.inf
    w = [np.full(2, float(i)) for i in range(4)]
    expected = [(5.0, 1.0, 0), (5.0, 2.0, 0), (4.0, 2.0, 2), (4.0, 3.0, 2)]
    for i, (pair, (high, low, which)) in enumerate(
        zip(
            [Certified(5.0, 1.0), Certified(6.0, 2.0), Certified(4.0, -7.0), Certified(4.0, 3.0)], expected, strict=True
        )
    ):
        best.offer(pair, w[i], i)
        assert best.certified == Certified(high, low)
        assert best.w is w[which]
        assert best.gap == high - low
        assert best.relative_gap == (high - low) / high


def test_best_pair_refuses_two_rounds_that_contradict_each_other() -> None:
    best = BestPair()
    best.offer(Certified(5.0, 3.0), np.zeros(1), 0)
    with pytest.raises(NumericalError, match="gap"):
        best.offer(Certified(2.0, 1.0), np.zeros(1), 1)


def test_best_pair_reports_rounding_below_zero_as_zero() -> None:
    best = BestPair()
    best.offer(Certified(1.0, 1.0 + 1e-12), np.zeros(1), 0)
    assert best.gap == best.relative_gap == 0.0


def test_relative_gap_of_nothing_is_finite() -> None:
    assert Certified(0.0, 0.0).relative_gap == 0.0
    assert Certified(-2.0, -3.0).relative_gap == 0.5


# --------------------------------------------------------------------------------------------------------- the schedule


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=8), st.floats(1e-3, 50))
def test_planned_work(buckets: list[int], epochs: float) -> None:
    work = plan_work(buckets, epochs)
    assert all(
        visits >= 1 and abs(visits - epochs * count) <= 1 for visits, count in zip(work.visits, buckets, strict=True)
    )
    assert 0 < work.fraction <= 1
    for visits, count in zip(work.visits, buckets, strict=True):
        # no block does less than the fraction says; what it does more only makes its steps more careful
        assert work.fraction <= visits / count
    assert work.passes == pytest.approx(sum(work.visits) / sum(buckets))
    if epochs >= 1:
        assert work.fraction > 0.66


def rate(passes_to_a_tenth: float) -> Callable[[float], float]:
    return lambda passes: 10.0 ** (-passes / passes_to_a_tenth)


CURVES: dict[str, Callable[[float], float]] = {
    "linear": rate(3.0),
    "slow": rate(200.0),
    "sublinear": lambda passes: 1.0 / (1.0 + passes),
    "accelerated": lambda passes: 1.0 / (1.0 + passes) ** 2,
    "stalled": lambda passes: 0.3,
    "late": lambda passes: 1.0 if passes < 100 else 10.0 ** (-(passes - 100) / 5.0),
    "kinked": lambda passes: max(10.0 ** (-passes / 2.0), 1e-2 * 10.0 ** (-passes / 300.0)),
    "oscillating": lambda passes: 10.0 ** (-passes / 60.0 + 0.3 * math.sin(passes)),
}


def simulate(
    curve: Callable[[float], float], target: float, work: float, longest: float = 2000.0
) -> tuple[list[float], float]:
    """Passes at which certificates were made, and passes at which the target was first reached."""
    schedule, certified, passes, best, reached = CertificateSchedule(target), [], 0.0, math.inf, math.inf
    while passes <= longest:
        gap = curve(passes)
        if gap <= target:
            reached = min(reached, passes)
        if schedule.due(passes):
            best = min(best, gap)
            certified.append(passes)
            schedule.certified(passes, best)
            if best <= target:
                break
        passes += work
    return certified, reached


@pytest.mark.parametrize("work", [0.05, 0.25, 1.0, 5.0])
@pytest.mark.parametrize("target", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("name", CURVES)
def test_certificates_are_made_in_time_and_seldom(name: str, target: float, work: float) -> None:
    certified, reached = simulate(CURVES[name], target, work)
    assert certified[0] == 0.0
    for before, after in itertools.pairwise(certified):
        # a wrong forecast costs at most half of what was done already (at the start, a pass)
        assert after <= max(1.5 * before, before + 1.0) + work
        # and a certificate is at most 0.4 of the passes between two
        assert after >= before + min(1.0, work) - 1e-9
        assert after - before >= 1.0 - 1e-9
    if reached < 2000 and name != "oscillating":
        assert certified[-1] <= max(1.5 * reached, reached + 1.0) + 2 * work
    share = CERTIFICATE_PASSES * len(certified)
    # "share" of the passes, but for the first few certificates
    assert share <= CERTIFICATE_SHARE * certified[-1] + 12 * CERTIFICATE_PASSES


def test_every_round_means_every_round() -> None:
    schedule = CertificateSchedule(1e-3, every_round=True)
    for passes in (0.0, 0.1, 0.2, 0.3):
        assert schedule.due(passes)
        schedule.certified(passes, 0.5)


def test_schedule_goes_on_where_its_state_was_taken() -> None:
    for certificates in range(5):
        schedule, twin = CertificateSchedule(1e-6), CertificateSchedule(1e-6)
        passes = 0.0
        for i in range(certificates):
            schedule.certified(passes, 10.0**-i)
            passes += 2.0
        twin.restore(schedule.state())
        for _ in range(3):
            times = [0.1 * i for i in range(1000)]
            due = next(t for t in times if schedule.due(t))
            assert due == next(t for t in times if twin.due(t))
            schedule.certified(due, 1e-5 / (1.0 + due))
            twin.certified(due, 1e-5 / (1.0 + due))
