"""The losses and their conjugates against their definitions, and the compiled ones against these."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from acccocoa import losses
from acccocoa.errors import UsageError
from acccocoa.losses import Loss, Vector
from acccocoa.problem import FeatureProblem, Problem, certify
from worker import kernels

PARAMETERS = {
    "smoothed_hinge": (0.01, 0.5, 2.0),
    "huber": (0.25, 1.0, 1.345),
    "epsilon_insensitive": (0.0, 0.1, 1.5),
    "squared_epsilon_insensitive": (0.0, 0.1, 1.5),
}
NAMED = [(name, parameter) for name in losses.NAMES for parameter in PARAMETERS.get(name, (None,))]
ALL = [losses.loss(name, parameter) for name, parameter in NAMED]

predictions = st.floats(-50, 50)
weights = st.sampled_from([1.0]) | st.floats(0.01, 100)


@dataclass(frozen=True)
class Example:
    """A loss with a label, a weight, and a dual variable `beta` of its domain that is `share` of the way to its end."""

    loss: Loss
    y: float
    s: float
    share: float

    @property
    def beta(self) -> float:
        reach = self.loss.bound if math.isfinite(self.loss.bound) else 20.0
        return self.y * self.share * self.s * reach if self.loss.classifier else self.share * self.s * reach


@st.composite
def examples(draw: st.DrawFn) -> Example:
    loss = draw(st.sampled_from(ALL))
    if loss.classifier:
        y, share = draw(st.sampled_from([-1.0, 1.0])), draw(st.floats(0, 1))
    else:
        y, share = draw(st.floats(-5, 5)), draw(st.floats(-1, 1))
    return Example(loss, y, draw(weights), share)


def value(loss: Loss, y: float, p: float) -> float:
    return float(losses.value(loss, np.array([y]), np.array([p]))[0])


def derivative(loss: Loss, y: float, p: float) -> float:
    return float(losses.derivative(loss, np.array([y]), np.array([p]))[0])


def conjugate(loss: Loss, y: float, beta: float, s: float) -> float:
    return float(losses.conjugate(loss, np.array([y]), np.array([beta]), np.array([s]))[0])


def supremum(loss: Loss, y: float, beta: float, s: float) -> float:
    """s loss*(-beta/s) = sup over p of -beta p - s loss(y, p), searched for numerically."""
    reach = 60.0 + abs(y) + loss.epsilon + loss.curvature * abs(beta) / s
    found = minimize_scalar(
        lambda p: beta * p + s * value(loss, y, p),
        bounds=(-reach, reach),
        method="bounded",
        options={"xatol": 1e-11, "maxiter": 1000},
    )
    return -float(found.fun)


# ------------------------------------------------------------------------------------------------ the pair of functions


@settings(deadline=None, max_examples=400)
@given(examples(), predictions)
def test_fenchel_young(example: Example, p: float) -> None:
    loss, y, s, beta = example.loss, example.y, example.s, example.beta
    terms = s * value(loss, y, p), conjugate(loss, y, beta, s), beta * p
    assert math.fsum(terms) >= -1e-13 * sum(map(abs, terms))


@settings(deadline=None, max_examples=400)
@given(examples(), predictions)
def test_fenchel_young_is_an_equality_at_the_derivative(example: Example, p: float) -> None:
    loss, y, s = example.loss, example.y, example.s
    beta = -s * derivative(loss, y, p)
    terms = s * value(loss, y, p), conjugate(loss, y, beta, s), beta * p
    assert abs(math.fsum(terms)) <= 1e-12 * max(1.0, *map(abs, terms))


@settings(deadline=None, max_examples=100)
@given(examples())
def test_conjugate_is_the_supremum(example: Example) -> None:
    loss, y, s, beta = example.loss, example.y, example.s, example.beta
    found = conjugate(loss, y, beta, s)
    # the conjugate of the logistic loss approaches its value at the ends of the domain only as p goes to infinity
    assert supremum(loss, y, beta, s) == pytest.approx(found, rel=1e-8, abs=1e-8 * s * (1.0 + abs(y)))


@settings(deadline=None, max_examples=200)
@given(examples(), st.floats(1e-6, 10))
def test_outside_its_domain_the_conjugate_is_infinite_as_the_supremum_is(example: Example, beyond: float) -> None:
    loss, y, s = example.loss, example.y, example.s
    outside = [s * (loss.bound + beyond)] if math.isfinite(loss.bound) else []
    outside += [-s * beyond] if loss.classifier else [-b for b in outside]
    for beta in (y * b for b in outside) if loss.classifier else outside:
        assert conjugate(loss, y, beta, s) == math.inf
        far = 1e3 / (beyond * s) + 1e3
        assert max(-beta * p - s * value(loss, y, p) for p in (far, -far)) > 100.0


@pytest.mark.parametrize("loss", ALL)
def test_weight_zero_leaves_only_zero(loss: Loss) -> None:
    assert conjugate(loss, 1.0, 0.0, 0.0) == 0.0
    assert conjugate(loss, 1.0, 0.5, 0.0) == math.inf
    assert conjugate(loss, 1.0, -0.5, 0.0) == math.inf


@settings(deadline=None, max_examples=400)
@given(examples(), predictions, predictions)
def test_derivative_is_a_subgradient_and_the_loss_convex(example: Example, p: float, other: float) -> None:
    loss, y = example.loss, example.y
    below = value(loss, y, p) + derivative(loss, y, p) * (other - p)
    assert value(loss, y, other) >= below - 1e-12 * max(1.0, abs(below), value(loss, y, p))


@settings(deadline=None, max_examples=400)
@given(examples(), predictions, predictions)
def test_smoothness_bounds_the_change_of_the_derivative(example: Example, p: float, other: float) -> None:
    loss, y = example.loss, example.y
    change = abs(derivative(loss, y, p) - derivative(loss, y, other))
    if math.isfinite(loss.smoothness):
        assert change <= loss.smoothness * abs(p - other) * (1 + 1e-9) + 1e-13
    else:
        assert loss.curvature == 0.0
        assert change <= 2 * loss.bound


@settings(deadline=None, max_examples=200)
@given(examples(), examples(), st.floats(0, 1))
def test_conjugate_is_convex(example: Example, other: Example, weight: float) -> None:
    loss, y, s = example.loss, example.y, example.s
    b0, b1 = example.beta, Example(loss, y, s, abs(other.share) if loss.classifier else other.share).beta
    ends = (1 - weight) * conjugate(loss, y, b0, s), weight * conjugate(loss, y, b1, s)
    between = (1 - weight) * b0 + weight * b1
    if loss.classifier:
        between = y * min(max(y * between, 0.0), s * loss.bound)
    else:
        between = min(max(between, -s * loss.bound), s * loss.bound)
    assert conjugate(loss, y, between, s) <= sum(ends) + 1e-12 * max(s, *map(abs, ends))


@settings(deadline=None, max_examples=200)
@given(examples(), predictions)
def test_negating_label_and_prediction_changes_nothing(example: Example, p: float) -> None:
    loss, y, s, beta = example.loss, example.y, example.s, example.beta
    assert value(loss, y, p) == value(loss, -y, -p)
    assert derivative(loss, y, p) == -derivative(loss, -y, -p)
    assert conjugate(loss, y, beta, s) == conjugate(loss, -y, -beta, s)


@pytest.mark.parametrize("name", losses.NAMES)
def test_flipping_all_labels_mirrors_the_objective(name: str) -> None:
    rng = np.random.default_rng(3)
    n, d = 12, 4
    rows = rng.standard_normal((n, d))
    problem = Problem(name, 0.1, n, l1_ratio=0.3)
    y = np.sign(rng.standard_normal(n)) if problem.loss.classifier else rng.standard_normal(n)
    w, p = rng.standard_normal(d), rng.standard_normal(n)
    alpha = -losses.derivative(problem.loss, y, p)
    there, mirrored = certify(problem, rows, y, w, alpha), certify(problem, rows, -y, -w, -alpha)
    assert (there.primal, there.dual) == pytest.approx((mirrored.primal, mirrored.dual), rel=1e-15)
    assert there.gap > 0


# ---------------------------------------------------------------------------------------------- values known beforehand


@pytest.mark.parametrize(
    ("name", "parameter", "y", "p", "expected"),
    [
        ("hinge", None, 1.0, -1.0, 2.0),
        ("hinge", None, -1.0, -3.0, 0.0),
        ("squared_hinge", None, -1.0, 1.0, 4.0),
        ("smoothed_hinge", 0.5, 1.0, 0.75, 0.0625),  # quadratic part: t^2 / (2 mu)
        ("smoothed_hinge", 0.5, 1.0, -1.0, 1.75),  # linear part: t - mu / 2
        ("logistic", None, 1.0, 0.0, math.log(2.0)),
        ("logistic", None, -1.0, 1000.0, 1000.0),
        ("squared", None, 3.0, 1.0, 2.0),
        ("huber", 0.5, 1.0, 1.25, 0.03125),  # t^2 / 2
        ("huber", 0.5, 1.0, -2.0, 1.375),  # delta t - delta^2 / 2
        ("epsilon_insensitive", 0.25, 1.0, 3.0, 1.75),
        ("epsilon_insensitive", 0.25, 1.0, 0.9, 0.0),
        ("squared_epsilon_insensitive", 0.25, 1.0, 3.0, 3.0625),
    ],
)
def test_known_values(name: str, parameter: float | None, y: float, p: float, expected: float) -> None:
    loss = losses.loss(name, parameter)
    assert value(loss, y, p) == pytest.approx(expected, rel=1e-15)
    assert kernels.loss_value(loss, y, p) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("nonsense", None),
        ("hinge", 0.5),
        ("squared", 1.0),
        ("smoothed_hinge", 0.0),
        ("smoothed_hinge", -1.0),
        ("huber", math.nan),
        ("huber", math.inf),
        ("epsilon_insensitive", -1e-300),
    ],
)
def test_loss_refuses(name: str, parameter: float | None) -> None:
    with pytest.raises(UsageError):
        losses.loss(name, parameter)


@pytest.mark.parametrize("name", losses.NAMES)
def test_default_parameter_is_the_one_taken(name: str) -> None:
    default = losses.default_parameter(name)
    assert (default is not None) == (name in PARAMETERS)
    assert losses.loss(name, default) == losses.loss(name)


# ----------------------------------------------------------------------------------------------- the compiled functions


def assert_close(found: Any, expected: Vector | float) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-300)


@settings(deadline=None, max_examples=400)
@given(examples(), predictions | st.sampled_from([1e3, -1e3, 1e6, -1e6, 1e-300, 0.0]))
def test_compiled_loss_is_the_loss(example: Example, p: float) -> None:
    # logaddexp(0, x) and max(x, 0) + log1p(exp(-|x|)) may differ in the last digits
    assert_close(kernels.loss_value(example.loss, example.y, p), value(example.loss, example.y, p))


@settings(deadline=None, max_examples=400)
@given(examples(), st.none() | st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e-17]))
def test_compiled_conjugate_is_the_conjugate(example: Example, edge: float | None) -> None:
    if edge is not None:
        share = abs(edge) if example.loss.classifier else edge
        example = Example(example.loss, example.y, example.s, share)
    loss, y, s, beta = example.loss, example.y, example.s, example.beta
    expected = conjugate(loss, y, beta, s)
    assert math.isfinite(expected)
    # the logistic entropy cancels where a is close to s
    assert kernels.conjugate_value(loss, y, s, beta) == pytest.approx(expected, rel=1e-13, abs=1e-15 * s)


@pytest.mark.parametrize(
    ("name", "parameter"), [each for each in NAMED if math.isfinite(losses.loss(*each).smoothness)]
)
def test_by_features_the_conjugate_of_the_losses_mean_is_exact_at_its_gradients(
    name: str, parameter: float | None
) -> None:
    loss, rng, n = losses.loss(name, parameter), np.random.default_rng(7), 40
    y = rng.choice([-1.0, 1.0], n) if loss.classifier else rng.normal(0.0, 3.0, n)
    problem = FeatureProblem(name, 0.1, y, rng.uniform(0.5, 2.0, n), 1.0, parameter)
    v = rng.normal(0.0, 2.0, n)
    w = problem.grad_f(v)
    at_w = problem.f_conjugate(w)
    assert at_w == pytest.approx(float(w @ v) - problem.f(v), rel=1e-12, abs=1e-14)
    # with pure l1 the best feasible multiple of w is no worse than w itself
    assert problem.objective_b(w, 0.0, problem.lam) <= at_w + 1e-12 * abs(at_w)
