"""With an intercept that is not regularised, means of features count for nothing: not in the optimum, not in passes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge

from acccocoa.losses import Vector
from acccocoa.problem import Constant, FeatureProblem
from coordinator.training import Outcome
from tests.support.fitting import CLASSIFIERS, SMOOTH, Data, problem_for, solve, some_weights

N, D = 200, 5
LAM = 0.02
FREE = Constant(1.0, regularised=False)


def made(loss: str, mean: float) -> Data:
    """The first feature has that mean and deviation 1; whatever the mean, the best weights are the same."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((N, D)) + 0.3 * rng.standard_normal((N, 1))
    target = x @ np.array([2.0, -1.0, 0.5, 0.3, 0.0]) + rng.standard_normal(N)
    x[:, 0] += mean
    return Data(x, np.where(target > 0.3, 1.0, -1.0) if loss in CLASSIFIERS else target)


def run(
    data: Data, loss: str, l1_ratio: float, k: int = 2, tol: float = 1e-8, max_rounds: int = 500, **options: Any
) -> Outcome:
    problem = problem_for(data, loss, LAM, l1_ratio, by_features=True, constant=FREE)
    outcome = solve(data, problem, k, tol=tol, max_rounds=max_rounds, **options)
    assert outcome.status == "converged"
    return outcome


def value(data: Data, loss: str, l1_ratio: float, w: Vector) -> float:
    return data.objective(loss, LAM, l1_ratio, constant=FREE)(w)


@pytest.mark.parametrize("s", [None, some_weights(N)], ids=["", "weighted"])
@pytest.mark.parametrize("value_of_constant", [1.0, 2.0])
@pytest.mark.parametrize("loss", SMOOTH)
def test_f_rises_no_more_than_centred_steps_say(loss: str, value_of_constant: float, s: Vector | None) -> None:
    data = made(loss, 0.0)
    constant = Constant(value_of_constant, regularised=False)
    problem = problem_for(data, loss, by_features=True, s=s, constant=constant)
    rng = np.random.default_rng(0)
    for size in (0.1, 1.0, 10.0):
        v = size * rng.standard_normal(N)
        for mean in (0.0, 1.0, 100.0):
            step = size * rng.standard_normal(N) + mean
            risen = problem.f(v + step) - problem.f(v) - float(problem.grad_f(v) @ step)
            bound = 0.5 * problem.subproblem.lipschitz * float(((step - step.mean()) ** 2).sum())
            assert -1e-10 <= risen <= bound + 1e-10


def test_only_an_intercept_that_is_not_regularised_makes_it_so() -> None:
    data = made("squared", 0.0)
    for constant, centred in ((None, False), (Constant(2.0, regularised=True), False), (FREE, True)):
        problem = problem_for(data, "squared", by_features=True, constant=constant)
        assert problem.subproblem.centred == centred
    assert not problem_for(data, "squared").subproblem.centred


PEERS: dict[tuple[str, float], Callable[[], Lasso | ElasticNet | Ridge | LogisticRegression]] = {
    ("squared", 1.0): lambda: Lasso(alpha=LAM, tol=1e-13, max_iter=10**6),
    ("squared", 0.5): lambda: ElasticNet(alpha=LAM, l1_ratio=0.5, tol=1e-13, max_iter=10**6),
    ("squared", 0.0): lambda: Ridge(alpha=LAM * N, tol=1e-13),
    ("logistic", 0.0): lambda: LogisticRegression(C=1.0 / (LAM * N), tol=1e-12, max_iter=10**5),
}


@pytest.mark.parametrize(("k", "threads"), [(1, 1), (2, 1), (1, 2), (3, 1)])
@pytest.mark.parametrize(("loss", "l1_ratio"), PEERS)
def test_means_cost_no_passes_and_the_optimum_is_scikit_learns(
    loss: str, l1_ratio: float, k: int, threads: int
) -> None:
    plain = made(loss, 0.0)
    other = PEERS[loss, l1_ratio]().fit(plain.x, plain.y)
    theirs = np.append(np.ravel(other.coef_), other.intercept_)
    without = run(plain, loss, l1_ratio, k, threads=threads)
    for mean in (3.0, 30.0, 1e4):
        data = made(loss, mean)
        outcome = run(data, loss, l1_ratio, k, threads=threads)
        assert outcome.data_passes <= 2.0 * without.data_passes
        expected = theirs - np.append(np.zeros(D), theirs[0] * mean)
        least = value(data, loss, l1_ratio, expected)
        assert outcome.certified.primal == pytest.approx(least, rel=1e-7)
        assert outcome.certified.dual <= least * (1 + 1e-9)
        assert value(data, loss, l1_ratio, outcome.w) == pytest.approx(outcome.certified.primal, rel=1e-9)
        assert_allclose(outcome.w[:D], expected[:D], atol=1e-3)


@pytest.mark.parametrize("mean", [1e6, 1e8])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_means_that_leave_few_digits(loss: str, mean: float) -> None:
    data = made(loss, mean)
    least = run(replace(data, x=data.x - [mean, 0, 0, 0, 0]), loss, 0.5).certified.primal
    # so many that the worker takes shorter steps, see shard_kernels.LEAST_SPREAD
    outcome = run(data, loss, 0.5, tol=1e-4, max_rounds=20_000)
    assert outcome.certified.dual <= least * (1 + 1e-9)
    assert outcome.certified.primal == pytest.approx(least, rel=1e-4)


@pytest.mark.parametrize("screening", [None, 1.0, 0.02])
def test_left_out_or_not_the_optimum_is_the_same(screening: float | None) -> None:
    rng = np.random.default_rng(2)
    few = made("squared", 0.0)
    wide = replace(few, x=np.hstack((few.x, rng.standard_normal((N, 60)) + 30.0)))
    least = run(replace(few, x=wide.x - wide.x.mean(axis=0)), "squared", 1.0, tol=1e-9).certified.primal
    outcome = run(wide, "squared", 1.0, tol=1e-8, screening=screening)
    assert outcome.certified.primal == pytest.approx(least, rel=2e-8)
    assert outcome.certified.dual <= least * (1 + 1e-9)


@pytest.mark.parametrize("stored", [0.1, 7.0, -1e6])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("loss", SMOOTH)
def test_constant_columns_weigh_nothing(loss: str, l1_ratio: float, stored: float) -> None:
    data = made(loss, 3.0)
    without = run(data, loss, l1_ratio)
    with_them = replace(data, x=np.hstack((np.full((N, 1), stored), data.x, np.full((N, 1), 2.0 * stored))))
    outcome = run(with_them, loss, l1_ratio)
    assert_array_equal(outcome.w[[0, D + 1]], 0.0)
    assert outcome.certified.primal == pytest.approx(without.certified.primal, rel=1e-7)


@pytest.mark.parametrize("loss", ["squared", "squared_hinge"])
def test_examples_that_are_left_out_change_nothing(loss: str) -> None:
    """As cv has it by features: their entries stay in the columns, far from the others."""
    data = made(loss, 30.0)
    away = np.arange(N) % 4 == 0
    kept = Data(data.x[~away], data.y[~away])
    x = data.x.copy()
    x[away] += 5.0
    problem = FeatureProblem(
        loss, LAM, data.y, np.where(away, 0.0, 1.0), 0.5, constant=FREE, mean_over=int((~away).sum())
    )
    outcome = solve(replace(data, x=x), problem, 2, max_rounds=500)
    expected = run(kept, loss, 0.5)
    assert outcome.status == "converged"
    assert outcome.certified.primal == pytest.approx(expected.certified.primal, rel=1e-7)
    assert_allclose(outcome.w, expected.w, atol=1e-2)
