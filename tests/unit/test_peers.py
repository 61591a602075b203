"""The optimum of the solvers that people would use instead: every cell of the matrix that one of them has.

A cell is a loss, a regulariser, weights of the examples or none, sparse or dense data, and a partition. What no library
minimises (smoothed hinge; squared hinge and SVR with both norms; Huber by weighted examples) is compared with scipy on
the objective itself in test_optima.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from liblinear import liblinearutil
from liblinear.liblinear import solver_names
from numpy.testing import assert_allclose
from scipy.sparse import csc_array, csr_matrix
from skglm import GeneralizedLinearEstimator
from skglm.datafits import Huber, Quadratic
from skglm.penalties import L1, L1_plus_L2
from skglm.solvers import AndersonCD
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
from sklearn.svm import LinearSVC, LinearSVR

from acccocoa.losses import Vector
from coordinator.task import SCREENING
from tests.support.fitting import LAM, SMOOTH, Data, check, data_for, problem_for, solve, some_weights
from tests.support.optima import KINKED

Fit = Callable[[Any, Vector, Vector, float], Any]
"""(x, y, s, l1_ratio) -> w"""


def c_of(y: Vector) -> float:
    """C as LIBLINEAR has it."""
    return 1.0 / (LAM * len(y))


def alpha_of(s: Vector) -> float:
    """lam where the mean is over the weights' sum."""
    return LAM * len(s) / float(s.sum())


def ridge(x: Any, y: Vector, s: Vector, l1_ratio: float) -> Any:
    return Ridge(alpha=LAM * len(y), fit_intercept=False, tol=1e-12).fit(x, y, sample_weight=s).coef_


def elastic_net(x: Any, y: Vector, s: Vector, l1_ratio: float) -> Any:
    net = ElasticNet(alpha=alpha_of(s), l1_ratio=l1_ratio, fit_intercept=False, tol=1e-13, max_iter=10**6)
    return net.fit(x, y, sample_weight=s).coef_


def saga(x: Any, y: Vector, s: Vector, l1_ratio: float) -> Any:
    model = LogisticRegression(
        C=c_of(y), l1_ratio=l1_ratio, solver="saga", fit_intercept=False, tol=1e-11, max_iter=10**6, random_state=0
    )
    return model.fit(x, y, sample_weight=s).coef_


def svm(**options: Any) -> Fit:
    """scikit-learn's copy of LIBLINEAR, which takes weights, and as many iterations as it is told."""

    def fit(x: Any, y: Vector, s: Vector, l1_ratio: float) -> Any:
        usual = {"C": c_of(y), "tol": 1e-10, "max_iter": 10**6, "fit_intercept": False, "random_state": 0}
        kind = LinearSVR if "epsilon" in options else LinearSVC
        return kind(**usual, **options).fit(x, y, sample_weight=s).coef_

    return fit


def liblinear(solver: int) -> Fit:
    def fit(x: Any, y: Vector, s: Vector, l1_ratio: float) -> Any:
        # it knows no sparse arrays
        rows = x if isinstance(x, np.ndarray) else csr_matrix(x)
        model = liblinearutil.train(y, rows, f"-s {solver} -c {c_of(y)!r} -e 1e-10 -p 0.1 -q")
        w, _ = model.get_decfun(0 if model.is_regression_model() else model.get_labels().index(1))
        return w

    return fit


def skglm(datafit: Any, *parameters: float) -> Fit:
    """It compiles every combination anew, in seconds: those that have no other peer, and the lasso."""

    def fit(x: Any, y: Vector, s: Vector, l1_ratio: float) -> Any:
        penalty = L1(LAM) if l1_ratio == 1.0 else L1_plus_L2(LAM, l1_ratio)
        solver = AndersonCD(fit_intercept=False, tol=1e-10, max_iter=1000)
        return GeneralizedLinearEstimator(datafit(*parameters), penalty, solver).fit(x, y).coef_

    return fit


def celer(name: str) -> Fit:
    def fit(x: Any, y: Vector, s: Vector, l1_ratio: float) -> Any:
        kind = getattr(pytest.importorskip("celer"), name)
        strength = {"C": c_of(y)} if name == "LogisticRegression" else {"alpha": LAM}
        ratio = {"l1_ratio": l1_ratio} if name == "ElasticNet" else {}
        return kind(**strength, **ratio, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, y).coef_

    return fit


HAVE: dict[str, tuple[str, tuple[float, ...], Fit, bool]] = {
    "ridge": ("squared", (0.0,), ridge, True),
    "elastic net": ("squared", (0.5, 1.0), elastic_net, True),
    "skglm squared": ("squared", (1.0,), skglm(Quadratic), False),
    "celer lasso": ("squared", (1.0,), celer("Lasso"), False),
    "celer elastic net": ("squared", (0.5,), celer("ElasticNet"), False),
    "saga": ("logistic", (0.0, 0.5, 1.0), saga, True),
    "liblinear logistic": ("logistic", (0.0,), liblinear(solver_names.L2R_LR_DUAL), False),
    "liblinear l1 logistic": ("logistic", (1.0,), liblinear(solver_names.L1R_LR), False),
    "celer logistic": ("logistic", (1.0,), celer("LogisticRegression"), False),
    "hinge": ("hinge", (0.0,), svm(loss="hinge"), True),
    "squared hinge": ("squared_hinge", (0.0,), svm(loss="squared_hinge"), True),
    "liblinear squared hinge": ("squared_hinge", (0.0,), liblinear(solver_names.L2R_L2LOSS_SVC_DUAL), False),
    "l1 squared hinge": ("squared_hinge", (1.0,), svm(loss="squared_hinge", penalty="l1", dual=False), True),
    "liblinear l1 squared hinge": ("squared_hinge", (1.0,), liblinear(solver_names.L1R_L2LOSS_SVC), False),
    "skglm huber": ("huber", (0.5, 1.0), skglm(Huber, 1.0), False),
    "svr": ("epsilon_insensitive", (0.0,), svm(loss="epsilon_insensitive", epsilon=0.1), True),
    "squared svr": (
        "squared_epsilon_insensitive",
        (0.0,),
        svm(loss="squared_epsilon_insensitive", epsilon=0.1),
        True,
    ),
    "liblinear squared svr": (
        "squared_epsilon_insensitive",
        (0.0,),
        liblinear(solver_names.L2R_L2LOSS_SVR_DUAL),
        False,
    ),
}
"""By name of the peer: its loss, which l1_ratio it can have, itself, whether it takes weights."""


def cells() -> Iterator[Any]:
    for peer, (_, ratios, _, takes_weights) in HAVE.items():
        for l1_ratio in ratios:
            for weighted in (False, True)[: 1 + takes_weights]:
                for sparse in (False, True):
                    name = f"{peer}-{l1_ratio}-{'weighted-' * weighted}{'sparse' if sparse else 'dense'}"
                    yield pytest.param(peer, l1_ratio, weighted, sparse, id=name)


@pytest.mark.parametrize(("peer", "l1_ratio", "weighted", "sparse"), list(cells()))
def test_the_same_optimum(peer: str, l1_ratio: float, weighted: bool, sparse: bool) -> None:
    loss, _, fit, _ = HAVE[peer]
    data = data_for(loss, sparse)
    s = some_weights(len(data.y)) if weighted else np.ones(len(data.y))
    w = np.ravel(fit(csc_array(data.x) if sparse else data.x, data.y, s, l1_ratio))
    objective = data.objective(loss, l1_ratio=l1_ratio, s=s)
    for by_features in [False] * (l1_ratio < 1.0) + [True] * (loss not in KINKED):
        problem = problem_for(data, loss, l1_ratio=l1_ratio, by_features=by_features, s=s)
        # as the command does it
        screening = SCREENING["working-set"] if by_features and l1_ratio > 0.0 else None
        outcome = solve(data, problem, 3, screening=screening, weights=None if by_features else s)
        check(outcome, objective, objective(w))
        assert_allclose(outcome.w, w, atol=1e-3)


def test_every_cell_with_a_peer_is_there() -> None:
    """What is written at the top of this file."""
    cells = {(loss, ratio) for loss, ratios, _, _ in HAVE.values() for ratio in ratios}
    weighted = {(loss, ratio) for loss, ratios, _, takes in HAVE.values() for ratio in ratios if takes}
    everything = {(loss, 0.0) for loss in [*SMOOTH, *KINKED]} | {(loss, r) for loss in SMOOTH for r in (0.5, 1.0)}
    without = {("smoothed_hinge", r) for r in (0.0, 0.5, 1.0)} | {("squared_epsilon_insensitive", r) for r in (0.5, 1)}
    assert everything - cells == without | {("squared_hinge", 0.5), ("huber", 0.0)}
    assert cells - weighted == {("huber", 0.5), ("huber", 1.0)}


@pytest.mark.parametrize("share", [0.3, 0.03])
@pytest.mark.parametrize("peer", ["skglm", "celer"])
def test_a_lasso_with_few_and_many_features(peer: str, share: float) -> None:
    data: Data = data_for("squared", sparse=True)
    lam = share * float(np.abs(data.x.T @ data.y).max()) / len(data.y)
    lasso = pytest.importorskip(peer).Lasso(alpha=lam, fit_intercept=False, tol=1e-10)
    theirs = lasso.fit(data.x, data.y).coef_
    outcome = solve(data, problem_for(data, "squared", lam, 1.0, by_features=True), 3, tol=1e-10)
    check(outcome, data.objective("squared", lam, 1.0), data.objective("squared", lam, 1.0)(theirs))
    assert_allclose(outcome.w, theirs, atol=1e-3)
    assert 0 < np.count_nonzero(theirs) < len(theirs)
