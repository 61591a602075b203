"""Every loss, regulariser, partition and kind of data, against solvers that know nothing of this one."""

import functools
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from liblinear import liblinearutil
from liblinear.liblinear import solver_names
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge
from sklearn.svm import LinearSVC, LinearSVR

from acccocoa import losses
from acccocoa.config import StopConfig
from acccocoa.examples import Examples
from acccocoa.losses import Vector
from acccocoa.problem import Constant, FeatureProblem, Problem, certify
from acccocoa.weights import of_labels
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import CertificateSchedule
from coordinator.training import Outcome, Training
from tests.support.inprocess import InProcessWorkers
from tests.support.optima import KINKED, Matrix, Objective

TOL = 1e-8
"""Relative gap of our runs: well below what is compared."""

LAM = 0.05


@dataclass(frozen=True, eq=False)
class Data:
    """Examples, and the same densely."""

    x: Matrix
    y: Vector

    @property
    def examples(self) -> Examples:
        """Only what is not zero is stored."""
        rows = csr_array(self.x)
        rows.sort_indices()
        return Examples(
            indptr=rows.indptr.astype(np.int64), indices=rows.indices.astype(np.int32), values=rows.data, labels=self.y
        )

    def objective(
        self,
        loss: str,
        lam: float = LAM,
        l1_ratio: float = 0.0,
        s: Vector | None = None,
        constant: Constant | None = None,
    ) -> Objective:
        n = len(self.y)
        x = self.x if constant is None else np.hstack((self.x, np.full((n, 1), constant.value)))
        free = constant is not None and not constant.regularised
        return Objective(loss, lam, l1_ratio, x, self.y, np.ones(n) if s is None else s, free)


@functools.cache
def data(sparse: bool, classifier: bool) -> Data:
    """Noisy, correlated, and with popular and rare features where sparse."""
    rng = np.random.default_rng(7)
    n, d = (90, 45) if sparse else (60, 20)
    x = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1))
    if sparse:
        x *= rng.random((n, d)) < 0.5 / (1.0 + 0.2 * np.arange(d))
    target = x @ (rng.standard_normal(d) * (rng.random(d) < 0.5)) + 0.5 * rng.standard_normal(n)
    return Data(x, np.where(target > 0.3, 1.0, -1.0) if classifier else target)


def data_for(loss: str, sparse: bool = False) -> Data:
    return data(sparse, losses.loss(loss).classifier)


@functools.cache
def least(loss: str, l1_ratio: float, sparse: bool) -> float:
    return data_for(loss, sparse).objective(loss, l1_ratio=l1_ratio).least()


def problem_for(
    data: Data,
    loss: str,
    lam: float = LAM,
    l1_ratio: float = 0.0,
    *,
    by_features: bool = False,
    s: Vector | None = None,
    constant: Constant | None = None,
) -> Problem | FeatureProblem:
    n = len(data.y)
    if by_features:
        return FeatureProblem(loss, lam, data.y, np.ones(n) if s is None else s, l1_ratio, constant=constant)
    return Problem(loss, lam, n, l1_ratio)


def solve(
    data: Data,
    problem: Problem | FeatureProblem,
    k: int,
    tol: float = TOL,
    max_rounds: int = 20_000,
    **of_workers: Any,
) -> Outcome:
    """A run to its end; epochs are as good as any."""
    examples = data.examples
    workers = InProcessWorkers(examples, problem, k, **of_workers)
    shared = len(data.y) if problem.alpha_is_model else workers.features
    stop = StopConfig(tol=tol, max_rounds=max_rounds)
    training = Training(
        OuterLoop(problem, shared, workers.blocks),
        workers,
        workers.plan(1.0),
        CertificateSchedule(tol),
        stop,
        interrupted=threading.Event(),
        coordinates=workers.count,
    )
    return training.run()


def check(outcome: Outcome, objective: Objective, expected: float) -> None:
    """Certified, at the least value, and the certificate is true of the model."""
    certified = outcome.certified
    assert outcome.status == "converged"
    w = outcome.w
    if len(w) < objective.x.shape[1]:  # by features, nothing is known of trailing ones that never occur
        w = np.append(w, np.zeros(objective.x.shape[1] - len(w)))
    assert objective(w) == pytest.approx(certified.primal, rel=1e-10, abs=1e-300)
    assert certified.primal == pytest.approx(expected, rel=1e-6)
    assert certified.dual <= expected * (1 + 1e-7)


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
@pytest.mark.parametrize("loss", [name for name in losses.NAMES if name not in KINKED])
def test_by_features(loss: str, l1_ratio: float, sparse: bool, k: int) -> None:
    data = data_for(loss, sparse)
    outcome = solve(data, problem_for(data, loss, l1_ratio=l1_ratio, by_features=True), k)
    check(outcome, data.objective(loss, l1_ratio=l1_ratio), least(loss, l1_ratio, sparse))


# -------------------------------------------------------------------------------------------------- well-known solvers


def library_w(loss: str, l1_ratio: float, data: Data) -> Vector:
    """The optimum of the solver that people would use for this."""
    x, y, n = data.x, data.y, len(data.y)
    c = 1.0 / (LAM * n)
    if loss == "squared" and l1_ratio == 0.0:
        return np.asarray(Ridge(alpha=LAM * n, fit_intercept=False, tol=1e-12).fit(x, y).coef_)
    if loss == "squared" and l1_ratio < 1.0:
        net = ElasticNet(alpha=LAM, l1_ratio=l1_ratio, fit_intercept=False, tol=1e-13, max_iter=10**6)
        return np.asarray(net.fit(x, y).coef_)
    if loss == "squared":
        return np.asarray(Lasso(alpha=LAM, fit_intercept=False, tol=1e-13, max_iter=10**6).fit(x, y).coef_)
    if loss == "logistic" and l1_ratio < 1.0:
        saga = LogisticRegression(
            C=c, l1_ratio=l1_ratio, solver="saga", fit_intercept=False, tol=1e-11, max_iter=10**6, random_state=0
        )
        return np.ravel(saga.fit(x, y).coef_)
    # scikit-learn's copy of LIBLINEAR, whose number of iterations is not limited to 1000
    options = {"C": c, "tol": 1e-10, "max_iter": 10**6, "fit_intercept": False, "random_state": 0}
    if loss == "hinge":
        return np.ravel(LinearSVC(loss="hinge", **options).fit(x, y).coef_)
    if loss == "epsilon_insensitive":
        return np.ravel(LinearSVR(epsilon=0.1, **options).fit(x, y).coef_)
    solvers = {
        ("logistic", 1.0): solver_names.L1R_LR,
        ("squared_hinge", 0.0): solver_names.L2R_L2LOSS_SVC_DUAL,
        ("squared_hinge", 1.0): solver_names.L1R_L2LOSS_SVC,
        ("squared_epsilon_insensitive", 0.0): solver_names.L2R_L2LOSS_SVR_DUAL,
    }
    model = liblinearutil.train(y, x, f"-s {solvers[loss, l1_ratio]} -c {c!r} -e 1e-10 -p 0.1 -q")
    w, _ = model.get_decfun(0 if model.is_regression_model() else model.get_labels().index(1))
    return np.array(w)


@pytest.mark.parametrize(
    ("loss", "l1_ratio"),
    [
        ("squared", 0.0),
        ("squared", 0.5),
        ("squared", 1.0),
        ("logistic", 0.0),
        ("logistic", 0.5),
        ("logistic", 1.0),
        ("hinge", 0.0),
        ("squared_hinge", 0.0),
        ("squared_hinge", 1.0),
        ("epsilon_insensitive", 0.0),
        ("squared_epsilon_insensitive", 0.0),
    ],
)
def test_the_solvers_people_use_arrive_at_the_same(loss: str, l1_ratio: float) -> None:
    data = data_for(loss)
    objective = data.objective(loss, l1_ratio=l1_ratio)
    outcome = solve(data, problem_for(data, loss, l1_ratio=l1_ratio, by_features=l1_ratio == 1.0), 2)
    check(outcome, objective, objective(library_w(loss, l1_ratio, data)))


@pytest.mark.parametrize("share", [0.3, 0.03])
def test_celers_lasso(share: float) -> None:
    data = data_for("squared", sparse=True)
    lam = share * float(np.abs(data.x.T @ data.y).max()) / len(data.y)
    celer = pytest.importorskip("celer")
    theirs = celer.Lasso(alpha=lam, fit_intercept=False, tol=1e-10).fit(data.x, data.y).coef_
    outcome = solve(data, problem_for(data, "squared", lam, 1.0, by_features=True), 3, tol=1e-10)
    check(outcome, data.objective("squared", lam, 1.0), data.objective("squared", lam, 1.0)(theirs))
    assert_allclose(outcome.w, theirs, atol=1e-3)
    assert 0 < np.count_nonzero(theirs) < len(theirs)


def test_skglms_sparse_huber() -> None:
    data = data_for("huber")
    skglm = pytest.importorskip("skglm")
    solver = pytest.importorskip("skglm.solvers").AndersonCD(fit_intercept=False, tol=1e-11, max_iter=1000)
    datafit = pytest.importorskip("skglm.datafits").Huber(1.0)
    penalty = pytest.importorskip("skglm.penalties").L1(LAM)
    theirs = skglm.GeneralizedLinearEstimator(datafit, penalty, solver).fit(data.x, data.y).coef_
    outcome = solve(data, problem_for(data, "huber", l1_ratio=1.0, by_features=True), 2)
    check(outcome, data.objective("huber", l1_ratio=1.0), data.objective("huber", l1_ratio=1.0)(theirs))


# -------------------------------------------------------------------------------- weights, constant features, intercept

SMOOTH = [name for name in losses.NAMES if name not in KINKED]
CLASSIFIERS = [name for name in losses.NAMES if losses.loss(name).classifier]


def some_weights(n: int) -> Vector:
    """Between 0 and 3, and some exactly 0."""
    rng = np.random.default_rng(3)
    return rng.uniform(0.0, 3.0, n) * (rng.random(n) < 0.8)


@pytest.mark.parametrize(("sparse", "k"), [(False, 1), (False, 3), (True, 3)])
@pytest.mark.parametrize("loss", losses.NAMES)
def test_weights_by_examples(loss: str, sparse: bool, k: int) -> None:
    data = data_for(loss, sparse)
    s = some_weights(len(data.y))
    objective = data.objective(loss, l1_ratio=0.3, s=s)
    outcome = solve(data, problem_for(data, loss, l1_ratio=0.3), k, weights=s)
    check(outcome, objective, objective.least())


@pytest.mark.parametrize(("sparse", "k"), [(False, 1), (False, 3), (True, 3)])
@pytest.mark.parametrize("loss", SMOOTH)
def test_weights_by_features(loss: str, sparse: bool, k: int) -> None:
    data = data_for(loss, sparse)
    s = some_weights(len(data.y))
    objective = data.objective(loss, l1_ratio=1.0, s=s)
    outcome = solve(data, problem_for(data, loss, l1_ratio=1.0, by_features=True, s=s), k)
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


@pytest.mark.parametrize("loss", losses.NAMES)
def test_empty_rows_and_columns(loss: str) -> None:
    base = data_for(loss)
    x = base.x.copy()
    x[[0, 7, 8]] = 0.0
    x[:, [0, 5, 19]] = 0.0  # the last one: nothing in the data says that it exists
    data = replace(base, x=x)
    objective = data.objective(loss, l1_ratio=0.5)
    expected = objective.least()
    for by_features in both_partitions(loss):
        outcome = solve(data, problem_for(data, loss, l1_ratio=0.5, by_features=by_features), 3)
        check(outcome, objective, expected)
        assert not outcome.w[[0, 5]].any()


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
