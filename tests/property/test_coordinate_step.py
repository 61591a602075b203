"""The one-dimensional step of the local solver against a slow search for the same minimum.

The oracle knows the losses' parameters but none of the closed forms: it brackets the sign change of the derivative of

    h(b) = s loss*(-b/s) + p (b - beta) + q/2 (b - beta)^2

and hands it to brentq.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit

from acccocoa import losses
from acccocoa.losses import Loss
from worker import kernels

ALL = [
    *map(losses.loss, losses.NAMES),
    losses.loss("smoothed_hinge", 0.01),
    losses.loss("huber", 0.25),
    losses.loss("epsilon_insensitive", 0.0),
    losses.loss("squared_epsilon_insensitive", 0.0),
    losses.loss("squared_epsilon_insensitive", 1.5),
]
EXTREME = (1e3, -1e3, 1e6, -1e6)
TINY = 1e-200
"""Below this brentq takes products of function values for zero."""


@dataclass(frozen=True)
class Step:
    """The arguments of a coordinate step."""

    loss: Loss
    y: float
    s: float
    beta: float
    p: float
    q: float

    def taken(self) -> float:
        return float(kernels.coordinate_step(self.loss, self.y, self.s, self.beta, self.p, self.q))

    @property
    def domain(self) -> tuple[float, float]:
        bound = self.s * self.loss.bound
        if self.loss.classifier:
            return (0.0, bound) if self.y > 0 else (-bound, 0.0)
        return -bound, bound

    def slope(self, b: float, side: int) -> float:
        """h' on the right (side = 1) or on the left (side = -1) of b; of the losses that are not logistic."""
        kink = math.copysign(self.loss.epsilon, b) if b != 0 else side * self.loss.epsilon
        return -self.y + kink + self.loss.curvature * b / self.s + self.p + self.q * (b - self.beta)

    def minimiser(self) -> float:
        low, high = self.domain
        if self.loss.logistic:
            # a = s sigma(t) is the unknown: its two ends are out of reach, and t says how far
            y, s, a_old = self.y, self.s, self.y * self.beta
            reach = 2.0 + abs(self.p) + self.q * s

            def stationarity(t: float) -> float:
                return t + y * self.p + self.q * (s * float(expit(t)) - a_old)

            return y * s * float(expit(brentq(stationarity, -reach, reach, xtol=1e-14, rtol=1e-15, maxiter=1000)))
        if low <= 0 <= high and self.slope(0.0, -1) <= 0 <= self.slope(0.0, 1):
            return 0.0
        side = 1 if self.slope(0.0, 1) < 0 else -1
        end = high if side > 0 else low
        if end == 0:
            return 0.0
        if math.isinf(end):
            end = float(side)
            while side * self.slope(end, 0) < 0:
                end *= 2
        if side * self.slope(end, 0) <= 0:
            return end
        # the slope at 0 in the direction of the search has the other sign
        return float(brentq(lambda b: self.slope(b, side), 0.0, end, xtol=1e-300, rtol=1e-15, maxiter=2000))

    @property
    def scale(self) -> float:
        """What rounding of the step is measured by: the size of its terms in units of b."""
        curvature = self.q + (4.0 / self.s if self.loss.logistic else self.loss.curvature / self.s)
        reach = (abs(self.p) + abs(self.y) + self.loss.epsilon) / curvature if curvature > 0 else math.inf
        return abs(self.beta) + min(reach, self.s * self.loss.bound)


@st.composite
def steps(
    draw: st.DrawFn, magnitudes: st.SearchStrategy[float], quadratics: st.SearchStrategy[float], extremes: bool = False
) -> Step:
    loss = draw(st.sampled_from(ALL))
    s = draw(st.sampled_from([1.0]) | st.floats(0.01, 100))
    reach = s * loss.bound if math.isfinite(loss.bound) else 10.0 * s
    # the ends of the domain are as likely as everything between them
    share = draw(st.sampled_from([0.0, 1.0]) | st.floats(0, 1))
    sign = draw(st.sampled_from([-1.0, 1.0]))
    y = sign if loss.classifier else draw(st.floats(-5, 5))
    p = draw(magnitudes)
    return Step(loss, y, s, (y if loss.classifier else sign) * share * reach, p, draw(quadratics))


usual = steps(st.floats(-20, 20), st.floats(1e-3, 1e3))
extreme = steps(
    st.floats(-20, 20) | st.sampled_from(EXTREME), st.sampled_from([1e-300, 1e-30, 1e-12, 1e-6, 1e6, 1e9, 1e12])
)
unmoved = steps(st.just(0.0), st.just(0.0))
anything = steps(
    st.floats(-1e150, 1e150) | st.sampled_from(EXTREME), st.sampled_from([0.0, 5e-324]) | st.floats(1e-300, 1e100)
)


def assert_minimises(step: Step) -> None:
    assert step.taken() == pytest.approx(step.minimiser(), rel=1e-9, abs=TINY + 1e-12 * step.scale)


@settings(deadline=None, max_examples=500)
@given(usual)
def test_step_minimises(step: Step) -> None:
    assert_minimises(step)


@settings(deadline=None, max_examples=500)
@given(extreme)
def test_step_minimises_with_tiny_and_huge_curvature_and_predictions(step: Step) -> None:
    assert_minimises(step)


@settings(deadline=None, max_examples=300)
@given(unmoved)
def test_row_without_entries_takes_the_minimiser_of_the_conjugate(step: Step) -> None:
    assert_minimises(step)
    # ... which is where the loss at p = 0 has its derivative, whatever beta was
    slope = losses.derivative(step.loss, np.array([step.y]), np.zeros(1))[0]
    if step.loss.curvature > 0 or step.loss.logistic or abs(step.y) > step.loss.epsilon:
        assert step.taken() == pytest.approx(-step.s * slope, rel=1e-12)


@settings(deadline=None, max_examples=500)
@given(anything)
def test_step_is_in_the_domain_and_never_nan(step: Step) -> None:
    low, high = step.domain
    assert low <= step.taken() <= high
    # (0, s) is open for the logistic loss, but its ends are feasible, and all that float64 has beyond e^-745
    assert math.isfinite(kernels.conjugate_value(step.loss, step.y, step.s, step.taken()))


@settings(deadline=None, max_examples=300)
@given(usual)
def test_stepping_again_from_the_minimiser_stays(step: Step) -> None:
    # after the step to b the prediction has become p + q (b - beta)
    first = step.taken()
    second = Step(step.loss, step.y, step.s, first, step.p + step.q * (first - step.beta), step.q).taken()
    assert second == pytest.approx(first, rel=1e-9, abs=TINY + 1e-12 * step.scale)


@settings(deadline=None, max_examples=300)
@given(usual, st.floats(-20, 20))
def test_no_other_point_is_lower(step: Step, other: float) -> None:
    low, high = step.domain
    other = min(max(other * step.s, low), high)

    def objective(b: float) -> float:
        move = b - step.beta
        conjugate = kernels.conjugate_value(step.loss, step.y, step.s, b)
        return float(conjugate) + step.p * move + 0.5 * step.q * move * move

    lowest = objective(step.taken())
    for b in (other, step.beta):
        assert lowest <= objective(b) + 1e-12 * (abs(objective(b)) + step.scale * (abs(step.p) + abs(step.y) + 1.0))


@settings(deadline=None, max_examples=300)
@given(usual)
def test_negated_example_takes_the_negated_step(step: Step) -> None:
    mirrored = Step(step.loss, -step.y, step.s, -step.beta, -step.p, step.q)
    assert mirrored.taken() == -step.taken()


@settings(deadline=None, max_examples=300)
@given(st.floats(1e-6, 10), st.floats(0, 1), st.floats(-20, 20), st.floats(-20, 20), st.floats(1e-9, 1e6))
def test_by_features_the_step_is_soft_thresholding(lam: float, l1_ratio: float, a: float, p: float, q: float) -> None:
    # g(a) = lam (l1_ratio |a| + (1 - l1_ratio)/2 a^2), a conjugate with label 0 and without an end
    g = Loss(logistic=False, classifier=False, epsilon=lam * l1_ratio, curvature=lam * (1.0 - l1_ratio), bound=math.inf)
    shrunk = max(abs(q * a - p) - g.epsilon, 0.0)
    expected = math.copysign(shrunk, q * a - p) / (q + g.curvature)
    rounding = 1e-14 * (abs(a) + (abs(q * a) + abs(p)) / (q + g.curvature))
    assert kernels.coordinate_step(g, 0.0, 1.0, a, p, q) == pytest.approx(expected, rel=1e-9, abs=rounding)
    # a column without entries
    assert kernels.coordinate_step(g, 0.0, 1.0, a, 0.0, 0.0) == 0.0


@pytest.mark.parametrize("loss", [loss for loss in ALL if loss.classifier or math.isfinite(loss.bound)])
def test_long_steps_end_at_the_ends_of_the_domain(loss: Loss) -> None:
    for s in (1.0, 0.5):
        y = 1.0
        violated = kernels.coordinate_step(loss, y, s, 0.0, -1e6, 1e-9)
        satisfied = kernels.coordinate_step(loss, y, s, 0.5 * s * min(loss.bound, 1.0), 1e6, 1e-9)
        assert satisfied == (0.0 if loss.classifier else -s * loss.bound)
        if math.isfinite(loss.bound):
            assert violated == s * loss.bound


# ---------------------------------------------------------------------------------------------------- the logistic root

r_values = st.sampled_from([0.0, 1e-300, 1e-9, 1e3, 1e6, 1e9, 1e12, 1e18]) | st.floats(0, 100)


@settings(deadline=None, max_examples=1000)
@given(
    st.floats(-100, 100) | st.sampled_from([0.0, *EXTREME]),
    r_values,
    st.floats(0, 1),
    st.floats(-100, 100) | st.sampled_from([0.0, *EXTREME]),
)
@example(0.0, 1e18, 0.0, 0.0)
@example(0.0, 1e18, 1.0, -1e6)
def test_logistic_root_solves_its_equation(yp: float, r: float, share: float, guess: float) -> None:
    c = yp - r * share
    t = float(kernels.logistic_root(c, r, guess))
    sigma = float(expit(t))
    assert abs(t + c + r * sigma) <= 1e-9 * max(abs(t), abs(c), r * sigma, 1e-300)
    rounding = 1e-15 * (abs(c) + r)
    assert -c - r - rounding <= t <= -c + rounding


@settings(deadline=None, max_examples=500)
@given(st.floats(-30, 30), st.floats(0, 100), st.floats(-100, 100))
def test_logistic_root_is_exact(t: float, r: float, guess: float) -> None:
    # the equation's coefficient that makes t the root; the root then cannot be off by more than c's rounding
    c = -t - r * float(expit(t))
    assume(abs(c) > 0)
    assert kernels.logistic_root(c, r, guess) == pytest.approx(t, rel=1e-12, abs=1e-13 * (1.0 + r))


@settings(deadline=None, max_examples=300)
@given(st.floats(-50, 50), st.floats(0, 100), st.floats(0, 100))
def test_logistic_step_is_monotone_in_the_prediction(p: float, apart: float, q: float) -> None:
    loss = losses.loss("logistic")
    lower, upper = (kernels.coordinate_step(loss, 1.0, 1.0, 0.5, x, q) for x in (p + apart, p))
    assert lower <= upper + 1e-14
