"""Features that a certificate proves to be 0, or makes likely to be, are left out; the optimum stays what it was."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from acccocoa.config import StopConfig
from acccocoa.examples import Examples
from acccocoa.losses import Vector
from acccocoa.problem import Constant, FeatureProblem
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import SCREENED, CertificateSchedule
from coordinator.task import SCREENING
from coordinator.training import Outcome, Training
from tests.support.inprocess import InProcessWorkers
from worker.checkpoint import StateDirectory
from worker.state import DualState

N, D, K = 120, 600, 3

PROBLEMS = {
    "lasso": ("squared", 1.0, None),
    "lasso, intercept": ("squared", 1.0, Constant(1.0, regularised=False)),
    "lasso, bias": ("squared", 1.0, Constant(2.0, regularised=True)),
    "elastic net": ("squared", 0.7, None),
    "logistic": ("logistic", 1.0, None),
    "squared hinge": ("squared_hinge", 0.9, None),
    "huber": ("huber", 1.0, None),
}


def made(name: str) -> tuple[csr_array, FeatureProblem]:
    """Sparse data of a few features that matter, weighted examples, and a problem with lam = lam_max / 10."""
    rng = np.random.default_rng(len(name))
    x = csr_array(rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.1))
    y = np.asarray(x @ np.where(np.arange(D) < 10, 3.0, 0.0)) + 0.1 * rng.standard_normal(N)
    loss, l1_ratio, constant = PROBLEMS[name]
    if loss in ("logistic", "squared_hinge"):
        y = np.where(y > 0, 1.0, -1.0)
    problem = FeatureProblem(loss, 1.0, y, rng.uniform(0.5, 2.0, N), l1_ratio, constant=constant)
    largest = np.abs(x.T @ problem.grad_f(np.zeros(N))).max()
    return x, replace(problem, lam=0.1 * float(largest) / l1_ratio)


def run(
    x: csr_array, problem: FeatureProblem, screening: float | None, tol: float = 1e-9
) -> tuple[Outcome, InProcessWorkers]:
    examples = Examples(x.indptr.astype(np.int64), x.indices.astype(np.int32), x.data, problem.y)
    workers = InProcessWorkers(examples, problem, K)
    training = Training(
        OuterLoop(problem, N, workers.blocks),
        workers,
        workers.plan(1.0),
        CertificateSchedule(tol, spacing=SCREENED),
        StopConfig(tol=tol, max_rounds=5000),
        interrupted=threading.Event(),
        coordinates=workers.count,
        screening=screening,
    )
    return training.run(), workers


def primal(x: csr_array, problem: FeatureProblem, alpha: Vector) -> float:
    g = problem.l1_ratio * float(np.abs(alpha).sum()) + 0.5 * (1 - problem.l1_ratio) * float(alpha @ alpha)
    return problem.objective_a(x @ alpha, problem.lam * g)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_ball_holds_the_optimum(name: str) -> None:
    x, problem = made(name)
    outcome, _ = run(x, problem, None, tol=1e-12)
    optimum = outcome.w[:D]
    w_star = problem.grad_f(x @ optimum)
    rng = np.random.default_rng(0)
    for distance in (0.0, 1e-6, 1e-3, 1e-1, 1.0):
        alpha = optimum * (1.0 + distance * rng.standard_normal(D))
        w = problem.grad_f(x @ alpha)
        products = x.T @ w
        largest = float(np.abs(products).max())
        beyond = np.maximum(np.abs(products) - problem.lam * problem.l1_ratio, 0.0)
        loss_sum = 0.0 if problem.l1_ratio == 1 else float(beyond @ beyond / (2 * problem.lam * (1 - problem.l1_ratio)))
        dual = -problem.objective_b(w, loss_sum, largest)
        ball = problem.ball(w, largest, primal(x, problem, alpha) - dual)
        assert ball is not None
        assert np.linalg.norm(ball.multiple * w - w_star) <= ball.radius * (1 + 1e-6) + 1e-9
        # what lies beyond the ball is 0 at the optimum
        columns = x.toarray()
        norms = np.linalg.norm(columns - columns.mean(axis=0) * problem.intercept, axis=0)
        proved = problem.lam * problem.l1_ratio - np.abs(ball.multiple * products) > ball.radius * norms
        assert not optimum[proved].any()
        if distance <= 1e-6:
            assert proved.any(), "it proves something"


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("screening", ["safe", "working-set"])
def test_the_optimum_is_the_same_and_visits_are_saved(name: str, screening: str) -> None:
    x, problem = made(name)
    whole, everyone = run(x, problem, None)
    part, workers = run(x, problem, SCREENING[screening])
    assert whole.status == part.status == "converged"
    assert part.relative_gap <= 1e-9
    assert part.certified.primal == pytest.approx(whole.certified.primal, rel=2e-9)
    # the certificate is that of all features, computed from the model alone
    assert primal(x, problem, part.w[:D]) == pytest.approx(part.certified.primal, rel=1e-12)
    assert part.certified.dual <= whole.certified.primal * (1 + 1e-14)
    # visits are saved, and whoever is left out in the end is 0 at the optimum
    assert part.data_passes < (0.7 if screening == "safe" else 0.3) * part.rounds
    assert whole.data_passes == pytest.approx(whole.rounds, rel=0.02)
    left_out = 0
    for state, shard in zip(workers.states, workers.shards, strict=True):
        assert state.active is not None
        away = shard.rows[~state.active]
        left_out += len(away)
        assert not part.w[away].any()
        if screening == "safe":
            assert np.abs(whole.w[away]).max(initial=0.0) < 1e-6
    assert left_out > D / 2
    assert all(state.active is None for state in everyone.states)


def test_nobody_is_left_out_for_good() -> None:
    """Even with hardly anyone chosen at first, certificates let in whoever matters."""
    x, problem = made("lasso")
    whole, _ = run(x, problem, None)
    part, _ = run(x, problem, 0.0)
    assert part.status == "converged"
    assert part.certified.primal == pytest.approx(whole.certified.primal, rel=2e-9)


def test_who_is_visited_is_part_of_the_state(tmp_path: Path) -> None:
    state = DualState.zeros(4, 1)
    state.active = np.array([True, False, True, False])
    state.mark = state.snapshot()
    directory = StateDirectory(tmp_path, "ab" * 32, np.arange(4, dtype=np.uint32))
    directory.write("job", [state.snapshot()])
    directory.close()
    found = StateDirectory(tmp_path, "ab" * 32, np.arange(4, dtype=np.uint32)).newest()
    assert found is not None
    np.testing.assert_array_equal(DualState.of(found[1][0]).active, state.active)
    marked = state.active
    state.round, state.active = 1, None
    assert state.begin(0)
    assert state.active is marked
    state.resync(2)
    assert state.active is None
