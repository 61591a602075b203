"""Every loss, regulariser, partition and kind of data, against scipy on the objective itself; see also test_peers."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import ElasticNet, Ridge

from acccocoa import losses
from acccocoa.config import StopConfig
from acccocoa.errors import UsageError
from acccocoa.problem import Constant, FeatureProblem, Problem, certify
from acccocoa.weights import of_labels
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import CertificateSchedule
from coordinator.training import Training
from tests.support.fitting import (
    CLASSIFIERS,
    LAM,
    SMOOTH,
    Data,
    check,
    data_for,
    least,
    problem_for,
    solve,
    some_weights,
)
from tests.support.inprocess import InProcessWorkers
from tests.support.optima import KINKED

SHAPES = [(sparse, k) for sparse in (False, True) for k in (1, 3)]
SHAPE_NAMES = [f"{'sparse' if sparse else 'dense'}-K{k}" for sparse, k in SHAPES]


@pytest.mark.parametrize(("sparse", "k"), SHAPES, ids=SHAPE_NAMES)
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5])
@pytest.mark.parametrize("loss", losses.NAMES)
def test_by_examples(loss: str, l1_ratio: float, sparse: bool, k: int) -> None:
    data = data_for(loss, sparse)
    outcome = solve(data, problem_for(data, loss, l1_ratio=l1_ratio), k)
    check(outcome, data.objective(loss, l1_ratio=l1_ratio), least(loss, l1_ratio, sparse))


@pytest.mark.parametrize(("sparse", "k"), SHAPES, ids=SHAPE_NAMES)
@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
@pytest.mark.parametrize("loss", SMOOTH)
def test_by_features(loss: str, l1_ratio: float, sparse: bool, k: int) -> None:
    data = data_for(loss, sparse)
    outcome = solve(data, problem_for(data, loss, l1_ratio=l1_ratio, by_features=True), k)
    check(outcome, data.objective(loss, l1_ratio=l1_ratio), least(loss, l1_ratio, sparse))


# -------------------------------------------------------------------------------- weights, constant features, intercept


@pytest.mark.parametrize(("sparse", "k"), [(False, 1), (False, 3), (True, 3)])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.3])
@pytest.mark.parametrize("loss", losses.NAMES)
def test_weights_by_examples(loss: str, l1_ratio: float, sparse: bool, k: int) -> None:
    data = data_for(loss, sparse)
    s = some_weights(len(data.y))
    objective = data.objective(loss, l1_ratio=l1_ratio, s=s)
    outcome = solve(data, problem_for(data, loss, l1_ratio=l1_ratio), k, weights=s)
    check(outcome, objective, objective.least())


@pytest.mark.parametrize(("sparse", "k"), [(False, 1), (False, 3), (True, 3)])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("loss", SMOOTH)
def test_weights_by_features(loss: str, l1_ratio: float, sparse: bool, k: int) -> None:
    data = data_for(loss, sparse)
    s = some_weights(len(data.y))
    objective = data.objective(loss, l1_ratio=l1_ratio, s=s)
    outcome = solve(data, problem_for(data, loss, l1_ratio=l1_ratio, by_features=True, s=s), k)
    check(outcome, objective, objective.least())


@pytest.mark.parametrize("loss", CLASSIFIERS)
def test_label_weights(loss: str) -> None:
    data = data_for(loss)
    label_weights = {1.0: 2.5, -1.0: 0.5}
    s = np.where(data.y > 0, 2.5, 0.5)
    assert_allclose(of_labels(data.y, label_weights), s)
    objective = data.objective(loss, s=s)
    outcome = solve(data, problem_for(data, loss), 3, label_weights=label_weights)
    check(outcome, objective, objective.least())
    # and beside weights of the examples
    own = some_weights(len(data.y))
    both = solve(data, problem_for(data, loss), 3, label_weights=label_weights, weights=own)
    check(both, data.objective(loss, s=s * own), data.objective(loss, s=s * own).least())


@pytest.mark.parametrize("loss", ["hinge", "logistic", "squared"])
def test_a_weight_of_two_is_the_example_twice(loss: str) -> None:
    data = data_for(loss)
    n = len(data.y)
    twice = Data(np.vstack((data.x, data.x[:10])), np.append(data.y, data.y[:10]))
    s = np.where(np.arange(n) < 10, 2.0, 1.0)
    weighted = solve(data, problem_for(data, loss), 2, weights=s)
    # the mean is over n or n + 10 examples
    share = n / (n + 10)
    repeated = solve(twice, problem_for(twice, loss, lam=LAM * share), 2)
    assert repeated.certified.primal == pytest.approx(weighted.certified.primal * share, rel=1e-7)
    assert_allclose(repeated.w, weighted.w, atol=1e-3)


@pytest.mark.parametrize(("sparse", "k"), SHAPES, ids=SHAPE_NAMES)
@pytest.mark.parametrize("loss", losses.NAMES)
def test_bias_by_examples(loss: str, sparse: bool, k: int) -> None:
    data = data_for(loss, sparse)
    constant = Constant(2.0, regularised=True)
    objective = data.objective(loss, l1_ratio=0.3, constant=constant)
    outcome = solve(data, problem_for(data, loss, l1_ratio=0.3), k, bias=2.0)
    check(outcome, objective, objective.least())


def shifted(loss: str, sparse: bool = False) -> Data:
    """Data that need an intercept."""
    data = data_for(loss, sparse)
    return data if losses.loss(loss).classifier else replace(data, y=data.y + 3.0)


@pytest.mark.parametrize("regularised", [True, False])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("loss", SMOOTH)
def test_constant_feature_by_features(loss: str, l1_ratio: float, regularised: bool) -> None:
    data = shifted(loss)
    s = some_weights(len(data.y))
    constant = Constant(2.0 if regularised else 1.0, regularised)
    objective = data.objective(loss, l1_ratio=l1_ratio, s=s, constant=constant)
    problem = problem_for(data, loss, l1_ratio=l1_ratio, by_features=True, s=s, constant=constant)
    outcome = solve(data, problem, 3)
    check(outcome, objective, objective.least())
    assert outcome.w[-1] != 0.0


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
def test_intercept_is_that_of_scikit_learn(l1_ratio: float) -> None:
    data = shifted("squared", sparse=True)
    constant = Constant(1.0, regularised=False)
    outcome = solve(data, problem_for(data, "squared", l1_ratio=l1_ratio, by_features=True, constant=constant), 2)
    if l1_ratio == 0.0:
        other = Ridge(alpha=LAM * len(data.y), tol=1e-12)
    else:
        other = ElasticNet(alpha=LAM, l1_ratio=l1_ratio, tol=1e-13, max_iter=10**6)
    other.fit(data.x, data.y)
    expected = np.append(other.coef_, other.intercept_)
    objective = data.objective("squared", l1_ratio=l1_ratio, constant=constant)
    check(outcome, objective, objective(expected))
    assert_allclose(outcome.w, expected, atol=1e-3)


@pytest.mark.parametrize("far", [1e6, -1.6e9])
@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
@pytest.mark.parametrize("loss", [loss for loss in SMOOTH if loss not in CLASSIFIERS])
def test_an_intercept_makes_up_for_labels_far_from_zero(loss: str, l1_ratio: float, far: float) -> None:
    data = data_for(loss)
    moved = replace(data, y=far + data.y)
    data = replace(data, y=moved.y - far)  # as rounded as they are
    constant = Constant(1.0, regularised=False)
    near = solve(data, problem_for(data, loss, l1_ratio=l1_ratio, by_features=True, constant=constant), 2)
    outcome = solve(moved, problem_for(moved, loss, l1_ratio=l1_ratio, by_features=True, constant=constant), 2)
    assert outcome.status == "converged"
    assert outcome.certified.primal == pytest.approx(near.certified.primal, rel=1e-7)
    assert outcome.certified.dual <= near.certified.primal * (1 + 1e-12)
    assert_allclose(outcome.w - near.w, np.append(np.zeros(data.x.shape[1]), far), atol=1e-3)


@pytest.mark.parametrize("loss", SMOOTH)
def test_an_intercept_that_cancels_the_predictions(loss: str) -> None:
    data = data_for(loss)
    problem = problem_for(data, loss, by_features=True, constant=Constant(1.0, regularised=False))
    v = data.x.sum(axis=1) + 1e8
    gradient = problem.grad_f(v)
    assert abs(gradient.sum()) <= 1e-13 * np.abs(gradient).sum()
    assert_allclose(problem.grad_f(v - 1e8), gradient, atol=1e-8)


def test_a_lam_whose_square_is_nothing() -> None:
    # with w = v / lam, f = lam/2 |w|^2
    problem = Problem("hinge", 1e-200, 1)
    assert problem.f(np.array([3e-200, 4e-200])) == pytest.approx(12.5e-200, rel=1e-12)


@pytest.mark.parametrize("regularised", [True, False])
@pytest.mark.parametrize("loss", SMOOTH)
def test_the_weight_of_a_constant_feature_is_the_best(loss: str, regularised: bool) -> None:
    data = shifted(loss)
    problem = problem_for(data, loss, l1_ratio=0.5, by_features=True, constant=Constant(1.5, regularised))
    assert isinstance(problem, FeatureProblem)
    objective = data.objective(loss, l1_ratio=0.5, constant=problem.constant)
    rng = np.random.default_rng(0)
    for scale in (0.0, 1e-3, 1.0, 1e3):
        w = scale * rng.standard_normal(data.x.shape[1])
        v = data.x @ w
        b = problem.constant_weight(v)
        best = objective(np.append(w, b))
        for other in (b - 1e-3, b + 1e-3, b * (1 + 1e-6), 0.0, -b):
            assert best <= objective(np.append(w, other)) * (1 + 1e-14)
        gradient = problem.grad_f(v)
        if not regularised:
            assert abs(gradient.sum()) <= 1e-13 * np.abs(gradient).sum()
        # a gradient, of a function that is smooth with L
        step = rng.standard_normal(len(v))
        risen = problem.f(v + step) - problem.f(v) - float(gradient @ step)
        assert -1e-12 * abs(problem.f(v)) <= risen <= 0.5 * problem.lipschitz * float(step @ step) * (1 + 1e-9)


@pytest.mark.parametrize("loss", SMOOTH)
def test_no_l1_norm_by_features(loss: str) -> None:
    data = data_for(loss)
    outcome = solve(data, problem_for(data, loss, by_features=True), 3)
    check(outcome, data.objective(loss), least(loss, 0.0, False))


# ------------------------------------------------------------------------------------------------------ what labels do

BOTH = [(loss, 0.0, False) for loss in losses.NAMES] + [
    (loss, 1.0, True) for loss in losses.NAMES if loss not in KINKED
]


@pytest.mark.parametrize(("loss", "l1_ratio", "by_features"), BOTH)
def test_flipping_all_labels_flips_the_model(loss: str, l1_ratio: float, by_features: bool) -> None:
    # P(w; y) = P(-w; -y) for every loss here
    data = data_for(loss)
    flipped = replace(data, y=-data.y)
    one, other = (
        solve(each, problem_for(each, loss, l1_ratio=l1_ratio, by_features=by_features), 2, tol=1e-10)
        for each in (data, flipped)
    )
    assert one.certified.primal == pytest.approx(other.certified.primal, rel=1e-9)
    assert_allclose(one.w, -other.w, atol=1e-3)
    assert np.abs(one.w).max() > 0.1


@pytest.mark.parametrize(("loss", "l1_ratio", "by_features"), BOTH)
def test_flipping_one_label_changes_the_optimum_as_the_objective_says(
    loss: str, l1_ratio: float, by_features: bool
) -> None:
    data = data_for(loss)
    y = data.y.copy()
    y[np.argmax(np.abs(data.x).sum(axis=1))] *= -1.0
    flipped = replace(data, y=y)
    outcome = solve(flipped, problem_for(flipped, loss, l1_ratio=l1_ratio, by_features=by_features), 2)
    objective = flipped.objective(loss, l1_ratio=l1_ratio)
    check(outcome, objective, objective.least())
    assert outcome.certified.primal != pytest.approx(least(loss, l1_ratio, False), rel=1e-3)


# --------------------------------------------------------------------------------------------------------------- edges


def both_partitions(loss: str, l1_ratio: float = 0.5) -> list[bool]:
    return [False] if loss in KINKED or l1_ratio == 0.0 else [False, True]


def check_zeros(data: Data, loss: str) -> None:
    """The optimum of data in which features 0 and 5 are all zeros, and so are their weights."""
    objective = data.objective(loss, l1_ratio=0.5)
    expected = objective.least()
    for by_features in both_partitions(loss):
        outcome = solve(data, problem_for(data, loss, l1_ratio=0.5, by_features=by_features), 3)
        check(outcome, objective, expected)
        assert not outcome.w[[0, 5]].any()


@pytest.mark.parametrize("loss", losses.NAMES)
def test_empty_rows_and_columns(loss: str) -> None:
    base = data_for(loss)
    x = base.x.copy()
    x[[0, 7, 8]] = 0.0
    x[:, [0, 5, 19]] = 0.0  # the last one: nothing in the data says that it exists
    data = replace(base, x=x)
    check_zeros(data, loss)


@pytest.mark.parametrize("zeros", [0.1, 1.0])
@pytest.mark.parametrize("loss", losses.NAMES)
def test_zeros_that_are_stored(loss: str, zeros: float) -> None:
    """A row or column of zeros that does occur has no norm, and its coordinate a minimiser all the same."""
    base = data_for(loss, sparse=True)
    x = base.x.copy()
    x[[0, 7, 8]] = 0.0
    x[:, [0, 5]] = 0.0
    data = replace(base, x=x, zeros=zeros)
    assert data.examples.nnz > np.count_nonzero(x)
    check_zeros(data, loss)


@pytest.mark.parametrize("loss", losses.NAMES)
def test_a_worker_whose_examples_weigh_nothing(loss: str) -> None:
    data = data_for(loss)
    idle = InProcessWorkers(data.examples, problem_for(data, loss), 3).shards[1].rows
    s = np.ones(len(data.y))
    s[idle] = 0.0
    rest = np.flatnonzero(s)
    objective = data.objective(loss, l1_ratio=0.5, s=s)
    expected = objective.least()
    for by_features in both_partitions(loss):
        problem = problem_for(data, loss, l1_ratio=0.5, by_features=by_features, s=s)
        outcome = solve(data, problem, 3, weights=None if by_features else s)
        check(outcome, objective, expected)
        # the mean is over all examples
        share = len(data.y) / len(rest)
        alone = Data(data.x[rest], data.y[rest]).objective(loss, LAM * share, 0.5)
        assert alone(outcome.w) == pytest.approx(outcome.certified.primal * share, rel=1e-9)


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
def test_at_the_lam_where_the_model_becomes_0(loss: str, l1_ratio: float) -> None:
    data = data_for(loss, sparse=True)
    problem = problem_for(data, loss, l1_ratio=l1_ratio, by_features=True)
    largest = float(np.abs(data.x.T @ problem.grad_f(np.zeros(len(data.y)))).max()) / l1_ratio
    at_zero = data.objective(loss, 1.0)(np.zeros(data.x.shape[1]))
    for lam in (largest * (1 + 1e-12), largest * (1 + 1e-3)):
        outcome = solve(data, problem_for(data, loss, lam, l1_ratio, by_features=True), 3)
        assert outcome.status == "converged"
        assert outcome.certified.primal == pytest.approx(at_zero, rel=1e-12)
        assert outcome.rounds == 0
        assert not outcome.w.any()
    lam = 0.9 * largest
    outcome = solve(data, problem_for(data, loss, lam, l1_ratio, by_features=True), 3)
    objective = data.objective(loss, lam, l1_ratio)
    check(outcome, objective, objective.least())
    assert 0 < np.count_nonzero(outcome.w) < 10


@pytest.mark.parametrize("by_features", [False, True])
def test_fewer_coordinates_than_workers_are_refused(by_features: bool) -> None:
    base = data_for("squared")
    data = Data(base.x[:, :2], base.y) if by_features else Data(base.x[:2], base.y[:2])
    with pytest.raises(UsageError, match="use fewer workers"):
        solve(data, problem_for(data, "squared", l1_ratio=0.5, by_features=by_features), 3)


@pytest.mark.parametrize("loss", ["squared", "huber", "epsilon_insensitive", "squared_epsilon_insensitive"])
@pytest.mark.parametrize("constant", [-2.5, 0.0, 0.05])
def test_a_constant_target(loss: str, constant: float) -> None:
    base = data_for(loss)
    data = replace(base, y=np.full(len(base.y), constant))
    objective = data.objective(loss, l1_ratio=0.5)
    for by_features in both_partitions(loss):
        outcome = solve(data, problem_for(data, loss, l1_ratio=0.5, by_features=by_features), 2)
        if constant == -2.5:
            check(outcome, objective, objective.least())
        elif constant == 0.0 or "epsilon" in loss:
            # within the tube: nothing to explain
            assert (outcome.status, outcome.certified.primal) == ("converged", 0.0)
            assert not outcome.w.any()


@pytest.mark.parametrize("loss", ["hinge", "smoothed_hinge", "squared_hinge", "logistic"])
@pytest.mark.parametrize("label", [1.0, -1.0])
def test_all_labels_equal(loss: str, label: float) -> None:
    # a job refuses one label only (coordinator.handshake); the mathematics does not mind
    base = data_for(loss)
    data = replace(base, y=np.full(len(base.y), label))
    objective = data.objective(loss, l1_ratio=0.5)
    expected = objective.least()
    for by_features in both_partitions(loss):
        check(solve(data, problem_for(data, loss, l1_ratio=0.5, by_features=by_features), 2), objective, expected)


@pytest.mark.parametrize("loss", losses.NAMES)
def test_fewer_examples_than_features_and_one_example_a_worker(loss: str) -> None:
    base = data_for(loss)
    chosen = [int(np.argmax(base.y)), int(np.argmin(base.y)), 3]
    data = Data(base.x[chosen], base.y[chosen])
    objective = data.objective(loss, l1_ratio=0.5)
    expected = objective.least()
    for by_features in both_partitions(loss):
        check(solve(data, problem_for(data, loss, l1_ratio=0.5, by_features=by_features), 3), objective, expected)


@pytest.mark.parametrize("loss", losses.NAMES)
def test_one_feature(loss: str) -> None:
    base = data_for(loss)
    data = Data(base.x[:, :1], base.y)
    objective = data.objective(loss, l1_ratio=0.5)
    expected = objective.least()
    for by_features in both_partitions(loss):
        check(solve(data, problem_for(data, loss, l1_ratio=0.5, by_features=by_features), 1), objective, expected)


@pytest.mark.parametrize("loss", losses.NAMES)
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
def test_huge_lam(loss: str, l1_ratio: float) -> None:
    data = data_for(loss)
    objective = data.objective(loss, 1e6, l1_ratio)
    at_zero = objective(np.zeros(data.x.shape[1]))
    for by_features in [False] * (l1_ratio < 1.0) + [True] * (loss not in KINKED and l1_ratio > 0.0):
        outcome = solve(data, problem_for(data, loss, 1e6, l1_ratio, by_features=by_features), 2)
        assert outcome.status == "converged"
        assert outcome.certified.primal == pytest.approx(at_zero, rel=1e-4)
        assert outcome.certified.primal <= at_zero * (1 + 1e-14)
        if l1_ratio > 0.0:
            assert not outcome.w.any()


@pytest.mark.parametrize("loss", losses.NAMES)
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
def test_tiny_lam_stays_certified(loss: str, l1_ratio: float) -> None:
    data = data_for(loss)
    objective = data.objective(loss, 1e-9, l1_ratio)
    for by_features in [False] * (l1_ratio < 1.0) + [True] * (loss not in KINKED and l1_ratio > 0.0):
        problem = problem_for(data, loss, 1e-9, l1_ratio, by_features=by_features)
        few, more = (solve(data, problem, 2, tol=1e-6, max_rounds=rounds) for rounds in (20, 120))
        # that is not enough, but what is said of it is true
        for outcome in (few, more):
            assert outcome.certified.primal == pytest.approx(objective(outcome.w), rel=1e-9)
            assert outcome.certified.gap >= 0.0
            assert few.certified.dual <= outcome.certified.primal
            assert more.certified.dual <= outcome.certified.primal


@pytest.mark.parametrize(("loss", "l1_ratio", "by_features"), [("hinge", 0.0, False), ("squared", 1.0, True)])
def test_tiny_lam_to_the_end(loss: str, l1_ratio: float, by_features: bool) -> None:
    data = data_for(loss, sparse=True)
    objective = data.objective(loss, 1e-4, l1_ratio)
    outcome = solve(data, problem_for(data, loss, 1e-4, l1_ratio, by_features=by_features), 2, tol=1e-7)
    check(outcome, objective, objective.least())


@pytest.mark.parametrize("epochs", [0.1, 0.3])
@pytest.mark.parametrize("loss", losses.NAMES)
def test_the_final_duals_are_feasible_to_the_last_digit(loss: str, epochs: float) -> None:
    """y_t is a combination of feasible points that rounding may move out of the domain, where the conjugate is inf."""
    data = data_for(loss)
    problem = Problem(loss, 1e-3, len(data.y))
    workers = InProcessWorkers(data.examples, problem, 2)
    training = Training(
        OuterLoop(problem, workers.features, workers.blocks),
        workers,
        workers.plan(epochs),
        CertificateSchedule(1e-12),
        StopConfig(tol=1e-12, max_rounds=300),
        interrupted=threading.Event(),
    )
    outcome = training.run()
    alpha = np.zeros(len(data.y))
    for shard, state in zip(workers.shards, workers.states, strict=True):
        state.settle()
        alpha[shard.rows] = state.alpha
    found = certify(problem, data.x, data.y, outcome.w, alpha)
    assert found.primal == pytest.approx(outcome.certified.primal, rel=1e-12)
    assert np.isfinite(found.dual)
    assert found.dual <= outcome.certified.dual + 1e-12 * abs(found.primal)
