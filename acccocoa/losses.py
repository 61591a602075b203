"""The losses, their conjugates and their names: two shapes of function cover them all.

Every loss here but the logistic one is `psi(t)` of a slack t >= 0,

    psi(t) = max over 0 <= b <= bound of  t*b - curvature/2 * b^2,

where t = max(0, 1 - y*p) for classifiers and t = max(0, |y - p| - epsilon) for regression. Its scaled conjugate at a
dual variable beta, s*loss*(-beta/s) (algorithm section 1a; s is the example's weight), is then

    -y*beta + epsilon*|beta| + curvature/(2s) * beta^2    on its domain,

the domain being 0 <= y*beta <= s*bound for classifiers and |beta| <= s*bound for regression. The logistic loss has
s*loss*(-beta/s) = a log(a/s) + (s - a) log((s - a)/s) with a = y*beta in [0, s].

Labels of classifiers are y = +1 or -1; p = x'w is the prediction.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acccocoa.errors import UsageError
from acccocoa.vectors import inner

KINK = 2.0
"""Curvature that a classifier's loss counts with at most: a hinge costs about as many passes as the squared one."""

MARGINS = 0.1
"""Curvature that the logistic loss counts with: 1/4 it has only where the margin is 0."""


class Loss(NamedTuple):
    """A loss in the form the numba kernels take it: numbers only.

    Attributes
    ----------
    logistic : log(1 + exp(-y*p)); the three parameters below are then unused
    classifier : labels are +1 / -1 and the slack is of the margin y*p
    epsilon : half-width of the insensitive tube (regression)
    curvature : second derivative of the conjugate
    bound : largest |dual variable| per unit of weight; inf when there is none
    """

    logistic: bool
    classifier: bool
    epsilon: float
    curvature: float
    bound: float

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the loss's derivative (L_loss); inf for losses with a kink."""
        if self.logistic:
            return 0.25
        return 1.0 / self.curvature if self.curvature > 0 else np.inf

    @property
    def bend(self) -> float:
        """L_loss as it shows in passes by examples: at most KINK for classifiers, and MARGINS for the logistic loss."""
        if self.logistic:
            return MARGINS
        return min(self.smoothness, KINK) if self.classifier else self.smoothness

    @property
    def newton(self) -> bool:
        """It has a second derivative, or is replaced by what has (worker.newton): the hinge loss."""
        return self.logistic or self.curvature > 0.0 or (self.classifier and np.isfinite(self.bound))

    @property
    def quadratic(self) -> bool:
        """The squared loss, (y - p)^2 over twice the curvature, whatever y and p are."""
        return not (self.logistic or self.classifier or self.epsilon > 0.0 or np.isfinite(self.bound))


@dataclass(frozen=True)
class _Family:
    """What a loss's name stands for, with the parameter it takes, if any."""

    classifier: bool
    epsilon: float = 0.0
    curvature: float = 0.0
    bound: float = np.inf
    logistic: bool = False
    parameter: str = ""
    default: float = 0.0


_FAMILIES = {
    "hinge": _Family(classifier=True, bound=1.0),
    "smoothed_hinge": _Family(classifier=True, bound=1.0, parameter="curvature", default=0.5),
    "squared_hinge": _Family(classifier=True, curvature=0.5),
    "logistic": _Family(classifier=True, logistic=True, bound=1.0),
    "squared": _Family(classifier=False, curvature=1.0),
    "huber": _Family(classifier=False, curvature=1.0, parameter="bound", default=1.0),
    "epsilon_insensitive": _Family(classifier=False, bound=1.0, parameter="epsilon", default=0.1),
    "squared_epsilon_insensitive": _Family(classifier=False, curvature=0.5, parameter="epsilon", default=0.1),
}

NAMES = tuple(_FAMILIES)
"""Names of all losses, as the command line and the wire spell them."""


def default_parameter(name: str) -> float | None:
    """Value of the loss's own parameter (mu, delta or epsilon) when none is given; None when it has none."""
    family = _FAMILIES[name]
    return family.default if family.parameter else None


def loss(name: str, parameter: float | None = None) -> Loss:
    """Build a loss from its name.

    Parameters
    ----------
    name : one of NAMES
    parameter : mu of smoothed_hinge, delta of huber, epsilon of the insensitive losses; None takes the default

    Raises
    ------
    UsageError : the name is unknown, the loss takes no parameter, or the parameter is out of its range
    """
    family = _FAMILIES.get(name)
    if family is None:
        raise UsageError(f"loss {name!r}", f"must be one of {', '.join(NAMES)}")
    values = {"epsilon": family.epsilon, "curvature": family.curvature, "bound": family.bound}
    if family.parameter:
        value = family.default if parameter is None else parameter
        least = 0.0 if family.parameter == "epsilon" else np.nextafter(0, 1)
        if not least <= value < np.inf:
            requirement = ">= 0" if family.parameter == "epsilon" else "> 0"
            raise UsageError(f"--loss-parameter {value:g}", f"that of {name} must be finite and {requirement}")
        values[family.parameter] = float(value)
    elif parameter is not None:
        raise UsageError(f"--loss-parameter {parameter:g}", f"the {name} loss takes none", "leave it out")
    return Loss(family.logistic, family.classifier, **values)


Vector = NDArray[np.float64]


def slack(loss: Loss, y: Vector, p: Vector) -> Vector:
    """t of the module's docstring; shapes (n,)."""
    if loss.classifier:
        return np.maximum(1.0 - y * p, 0.0)
    return np.maximum(np.abs(y - p) - loss.epsilon, 0.0)


def value(loss: Loss, y: Vector, p: Vector) -> Vector:
    """loss(y_i, p_i) of every example; shapes (n,), float64."""
    if loss.logistic:
        return np.logaddexp(0.0, -y * p)
    t = slack(loss, y, p)
    b = np.minimum(t / loss.curvature, loss.bound) if loss.curvature > 0 else np.where(t > 0, loss.bound, 0.0)
    return t * b - 0.5 * loss.curvature * b * b


def weighted_sum(loss: Loss, y: Vector, p: Vector, s: Vector) -> float:
    """sum_i s_i loss(y_i, p_i); shapes (n,), float64."""
    if loss.quadratic:  # a third of the time: nothing but what it takes
        r = p - y
        return inner(s * r, r) * 0.5 / loss.curvature
    return float((s * value(loss, y, p)).sum())


def derivative(loss: Loss, y: Vector, p: Vector) -> Vector:
    """d loss(y_i, p_i) / d p_i (a subgradient at kinks), in an array of its own; shapes (n,), float64."""
    if loss.logistic:
        return -y / (1.0 + np.exp(np.clip(y * p, -700, 700)))
    if loss.quadratic:  # the same bits as below, in two steps instead of nine
        r = p - y
        r /= loss.curvature
        return r
    t = slack(loss, y, p)
    b = np.minimum(t / loss.curvature, loss.bound) if loss.curvature > 0 else np.where(t > 0, loss.bound, 0.0)
    return -y * b if loss.classifier else -np.sign(y - p) * b


def second_derivative(loss: Loss, y: Vector, p: Vector) -> Vector:
    """Slope of `derivative` in p, where it has one (else that of one side); smooth losses; shapes (n,), float64."""
    if loss.logistic:
        e = np.exp(-np.abs(np.clip(p, -700, 700)))
        return e / (1.0 + e) ** 2
    t = slack(loss, y, p)
    quadratic = t <= loss.bound * loss.curvature
    if loss.classifier or loss.epsilon > 0.0:
        quadratic &= t > 0.0
    return np.where(quadratic, 1.0 / loss.curvature, 0.0)


def _x_log(x: Vector, y: Vector) -> Vector:
    """x log y, 0 where x = 0; as scipy.special.xlogy, whose import takes a fifth of a worker's start."""
    return x * np.log(np.where(x == 0.0, 1.0, y))


def conjugate(loss: Loss, y: Vector, beta: Vector, s: Vector) -> Vector:
    """s_i * loss_i*(-beta_i / s_i); inf outside the domain; shapes (n,), float64.

    Where s_i = 0 the only feasible beta_i is 0, with value 0.
    """
    a = y * beta if loss.classifier else np.abs(beta)
    feasible = (a >= 0) & (a <= s * loss.bound if np.isfinite(loss.bound) else (s > 0) | (a == 0))
    with np.errstate(invalid="ignore", divide="ignore"):
        if loss.logistic:
            inside = _x_log(a, a / s) + _x_log(s - a, (s - a) / s)
        else:
            inside = -y * beta + loss.epsilon * np.abs(beta) + 0.5 * loss.curvature * beta * beta / s
    return np.where(s > 0, np.where(feasible, inside, np.inf), np.where(a == 0, 0.0, np.inf))
