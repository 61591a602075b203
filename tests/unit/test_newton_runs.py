"""Runs by Newton's method: they end at other solvers' optimum, by coordinate ascent where that is what it takes."""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from acccocoa.config import StopConfig
from acccocoa.losses import Vector
from acccocoa.problem import Certified, Problem, certify
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import NEWTON_SHARE, CertificateSchedule
from coordinator.training import NEWTON_ROUNDS, CertifiedRound, Outcome, Training
from tests.support.asked import Asked, assert_goes_on_where_its_state_was_taken
from tests.unit.test_training import (
    Data,
    breast_cancer,
    data_for,
    other_optimum,
    patient_liblinear_w,
    primal,
    problem_of,
    smooth_w,
)

LOOSE = 0.5
"""An accuracy that is never enough."""


class AskedForNewton(Asked):
    """Such workers."""

    @property
    def by_newton(self) -> list[bool]:
        """Of the rounds that were solved."""
        return [request.accuracy > 0.0 for request in self.solves]


@dataclass
class Run:
    """A run by Newton's method, and what was seen of it."""

    data: Data
    problem: Problem
    tol: float = 1e-6
    k: int = 1
    accuracy: float | None = None
    falls_back: bool = True
    sharing: int = 1
    max_rounds: int = 5000
    seen: list[CertifiedRound] = field(default_factory=list)
    keep: Callable[[Training], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.workers = AskedForNewton(self.data.examples, self.problem, self.k, sharing=self.sharing)
        self.training = Training(
            OuterLoop(self.problem, self.data.dense.shape[1], self.k),
            self.workers,
            self.workers.plan(1.0),
            CertificateSchedule(self.tol),
            StopConfig(tol=self.tol, max_rounds=self.max_rounds),
            interrupted=threading.Event(),
            observe=self.seen.append,
            keep=self.keep,
            accuracy=NEWTON_SHARE * self.tol if self.accuracy is None else self.accuracy,
            falls_back=self.falls_back,
        )

    def go(self) -> Outcome:
        return self.training.run()

    def recomputed(self, w: Vector) -> Certified:
        """Of w and the dual variables that the workers are left with."""
        alpha = np.empty(self.data.n)
        for shard, state in zip(self.workers.shards, self.workers.states, strict=True):
            alpha[shard.rows] = state.alpha
        return certify(self.problem, self.data.dense, self.data.y, w, alpha)


@functools.cache
def noisy(n: int = 2000, d: int = 8) -> Data:
    """Classes that overlap."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d))
    target = x @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)
    return Data(x, np.where((target > 0) != (rng.random(n) < 0.1), 1.0, -1.0))


def assert_certified(run: Run, outcome: Outcome) -> None:
    assert outcome.status == "converged"
    assert 0.0 <= outcome.relative_gap <= run.tol
    found = run.recomputed(outcome.w)
    assert outcome.certified.primal == pytest.approx(found.primal, rel=1e-12)
    assert outcome.certified.dual == pytest.approx(found.dual, rel=1e-9)
    assert found.relative_gap <= run.tol * 1.001


# ---------------------------------------------------------------------------------------------------- where it works


@pytest.mark.parametrize("lam", [1e-3, 1e-6])
def test_logistic_ends_at_scikit_learns_optimum(lam: float) -> None:
    data = breast_cancer()
    run = Run(data, problem_of("logistic", data, lam))
    outcome = run.go()
    assert_certified(run, outcome)
    assert outcome.rounds <= NEWTON_ROUNDS
    assert run.training.local_solver == "newton"
    other = LogisticRegression(C=1 / (lam * data.n), fit_intercept=False, tol=1e-10, solver="newton-cholesky")
    expected = primal(run.problem, data, other.fit(data.dense, data.y).coef_[0])
    assert outcome.certified.primal == pytest.approx(expected, rel=2e-6)
    assert outcome.certified.dual <= expected * (1 + 1e-12)


@pytest.mark.parametrize("loss", ["squared_hinge", "squared", "huber", "squared_epsilon_insensitive"])
def test_others_end_at_the_optimum_of_other_solvers(loss: str) -> None:
    data = data_for(loss)
    run = Run(data, problem_of(loss, data, 1e-3), tol=1e-7)
    outcome = run.go()
    assert_certified(run, outcome)
    assert outcome.rounds <= NEWTON_ROUNDS
    assert run.training.local_solver == "newton"
    w = smooth_w(run.problem, data) if loss == "squared_epsilon_insensitive" else other_optimum(run.problem, data)
    assert outcome.certified.primal == pytest.approx(primal(run.problem, data, w), rel=1e-6)


def test_the_hinge_loss_ends_at_liblinears_optimum() -> None:
    run = Run(noisy(), problem_of("hinge", noisy(), 1e-3), tol=1e-4)
    outcome = run.go()
    assert_certified(run, outcome)
    assert run.training.local_solver == "newton"
    expected = primal(run.problem, run.data, patient_liblinear_w(run.problem, run.data))
    assert outcome.certified.primal == pytest.approx(expected, rel=2e-4)
    assert outcome.certified.dual <= expected * (1 + 1e-9)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_the_same_bits_on_any_number_of_threads(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.local_solver.WORTH_THREADS", 0)
    outcomes = [Run(noisy(), problem_of(loss, noisy(), 1e-6), tol=1e-5, sharing=n).go() for n in (1, 2, 4)]
    first = outcomes[0]
    assert first.status == "converged"
    for other in outcomes[1:]:
        assert other.w.tobytes() == first.w.tobytes()
        assert (other.certified, other.rounds, other.data_passes) == (first.certified, first.rounds, first.data_passes)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize(("loss", "tol"), [("logistic", 1e-6), ("squared_hinge", 1e-6), ("hinge", 1e-3)])
def test_several_workers_converge(loss: str, tol: float, k: int) -> None:
    run = Run(noisy(), problem_of(loss, noisy(), 1e-3), tol=tol, k=k, falls_back=False)
    outcome = run.go()
    assert_certified(run, outcome)
    assert all(run.workers.by_newton)
    assert run.training.local_solver == "newton"


# ----------------------------------------------------------------------------------------------- where it does not work


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_it_falls_back_when_the_gap_is_not_reached(loss: str) -> None:
    run = Run(noisy(), problem_of(loss, noisy(), 1e-3), tol=1e-4, accuracy=LOOSE)
    outcome = run.go()
    assert_certified(run, outcome)
    assert run.training.progress.fell_back
    assert run.training.local_solver == "newton, sdca"
    rounds = sum(run.workers.by_newton)
    assert 1 <= rounds <= NEWTON_ROUNDS
    assert run.workers.by_newton == [True] * rounds + [False] * (len(run.workers.by_newton) - rounds)


def test_nearly_separable_classes_and_the_hinge_loss_fall_back() -> None:
    data = breast_cancer()
    run = Run(data, problem_of("hinge", data, 1e-4), tol=1e-2)
    outcome = run.go()
    assert_certified(run, outcome)
    expected = primal(run.problem, data, patient_liblinear_w(run.problem, data))
    assert outcome.certified.dual <= expected * (1 + 1e-9)
    assert expected <= outcome.certified.primal * (1 + 1e-9)


def test_every_round_is_certified_until_it_falls_back() -> None:
    run = Run(noisy(), problem_of("logistic", noisy(), 1e-3), tol=1e-4, accuracy=LOOSE)
    run.go()
    rounds = sum(run.workers.by_newton)
    assert [seen.round for seen in run.seen[: rounds + 1]] == list(range(rounds + 1))


def test_without_falling_back_it_goes_on() -> None:
    run = Run(noisy(), problem_of("logistic", noisy(), 1e-3), tol=1e-9, accuracy=LOOSE, falls_back=False, max_rounds=7)
    outcome = run.go()
    assert outcome.status == "max_rounds"
    assert run.workers.by_newton == [True] * 7
    assert not run.training.progress.fell_back
    assert run.training.local_solver == "newton"


def test_a_run_by_coordinate_ascent_says_so() -> None:
    run = Run(noisy(), problem_of("logistic", noisy(), 1e-3), tol=1e-4, accuracy=0.0)
    assert_certified(run, run.go())
    assert not any(run.workers.by_newton)
    assert run.training.local_solver == "sdca"


def test_after_a_resync_it_is_tried_again() -> None:
    run = Run(noisy(), problem_of("logistic", noisy(), 1e-3))
    run.workers.forget_in = 0
    outcome = run.go()
    assert_certified(run, outcome)
    assert (outcome.resyncs, outcome.rounds) == (1, 2)
    # what came of the first round is lost
    assert [request.round for request in run.workers.solves] == [0, 1]
    assert run.workers.by_newton == [True, True]
    assert run.training.local_solver == "newton"


@pytest.mark.parametrize("round_number", [1, 2, 3, 10])
def test_a_run_goes_on_where_its_state_was_taken(round_number: int) -> None:
    """Before it falls back, when it does, and later."""

    def begun(keep: Callable[[Training], bool]) -> Run:
        problem = problem_of("logistic", noisy(), 1e-3)
        return Run(noisy(), problem, tol=1e-8, accuracy=LOOSE, max_rounds=20, keep=keep)

    whole, again = assert_goes_on_where_its_state_was_taken(begun, round_number)
    assert again.training.local_solver == whole.training.local_solver == "newton, sdca"
