"""Optima by solvers that know nothing of this project: scipy on the objective as the interface states it.

    P(w) = (1/n) sum_i s_i loss(y_i, x_i'w) + lam ( l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2 )

The losses are written out anew here, so that a mistake in acccocoa.losses is not its own proof.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Smooth = Callable[[Vector, Vector], tuple[Vector, Vector]]


def _logistic(y: Vector, p: Vector) -> tuple[Vector, Vector]:
    return np.logaddexp(0.0, -y * p), -y * np.exp(-np.logaddexp(0.0, y * p))


def _squared(y: Vector, p: Vector) -> tuple[Vector, Vector]:
    return 0.5 * (p - y) ** 2, p - y


def _squared_hinge(y: Vector, p: Vector) -> tuple[Vector, Vector]:
    t = np.maximum(1.0 - y * p, 0.0)
    return t**2, -2.0 * y * t


def _smoothed_hinge(y: Vector, p: Vector) -> tuple[Vector, Vector]:
    m, mu = 1.0 - y * p, 0.5
    value = np.where(m <= 0, 0.0, np.where(m <= mu, m**2 / (2 * mu), m - mu / 2))
    return value, -y * np.clip(m / mu, 0.0, 1.0)


def _huber(y: Vector, p: Vector) -> tuple[Vector, Vector]:
    r, delta = p - y, 1.0
    value = np.where(np.abs(r) <= delta, 0.5 * r**2, delta * (np.abs(r) - 0.5 * delta))
    return value, np.clip(r, -delta, delta)


def _squared_tube(y: Vector, p: Vector) -> tuple[Vector, Vector]:
    r = p - y
    t = np.maximum(np.abs(r) - 0.1, 0.0)
    return t**2, 2.0 * np.sign(r) * t


SMOOTH: dict[str, Smooth] = {
    "logistic": _logistic,
    "squared": _squared,
    "squared_hinge": _squared_hinge,
    "smoothed_hinge": _smoothed_hinge,
    "huber": _huber,
    "squared_epsilon_insensitive": _squared_tube,
}
"""Value and derivative in p of the differentiable losses, with their default parameters."""

KINKED: dict[str, Callable[[Vector, Vector], Vector]] = {
    "hinge": lambda y, p: np.maximum(1.0 - y * p, 0.0),
    "epsilon_insensitive": lambda y, p: np.maximum(np.abs(y - p) - 0.1, 0.0),
}
"""Values of the others."""


def _minimise(
    function: Callable[[Vector], tuple[float, Vector]], start: Vector, bounds: list[tuple[float, float | None]]
) -> tuple[float, Vector]:
    """The least value within the bounds, and where it is: L-BFGS-B, begun anew until that gains nothing.

    One run alone may give up early where second derivatives jump.
    """
    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-13, "gtol": 1e-11, "maxcor": 20}
    value, point = np.inf, start
    for _ in range(20):
        found = minimize(function, point, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        gained = value - float(found.fun)
        value, point = min(value, float(found.fun)), found.x
        if not gained > 1e-10 * abs(value):
            break
    return value, point


@dataclass(frozen=True, eq=False)
class Objective:
    """P, and its least value.

    x : shape (n, d);  y : +1 / -1 for classifiers;  s : weights of the examples
    free : the last column is an intercept that is not regularised
    """

    loss: str
    lam: float
    l1_ratio: float
    x: Matrix
    y: Vector
    s: Vector
    free: bool = False

    @property
    def penalised(self) -> Vector:
        """1 where the regulariser counts, 0 at a free intercept."""
        mask = np.ones(self.x.shape[1])
        mask[mask.size - self.free :] = 0.0
        return mask

    def __call__(self, w: Vector) -> float:
        """P(w)."""
        p = self.x @ w
        values = SMOOTH[self.loss](self.y, p)[0] if self.loss in SMOOTH else KINKED[self.loss](self.y, p)
        r = self.penalised * w
        penalty = self.l1_ratio * np.abs(r).sum() + 0.5 * (1.0 - self.l1_ratio) * r @ r
        return float(self.s @ values) / len(self.y) + self.lam * float(penalty)

    def least(self) -> float:
        """min P, to about eight digits; never more than rounding above it."""
        return self(self.minimiser()) if self.loss in SMOOTH else self._largest_dual()

    def minimiser(self) -> Vector:
        """The w of the least P, for differentiable losses: L-BFGS-B on the two signs of w."""
        n, d = self.x.shape
        mask = self.penalised
        l1, l2 = self.lam * self.l1_ratio * mask, self.lam * (1.0 - self.l1_ratio) * mask

        def both_signs(halves: Vector) -> tuple[float, Vector]:
            w = halves[:d] - halves[d:]
            values, slopes = SMOOTH[self.loss](self.y, self.x @ w)
            gradient = self.x.T @ (self.s * slopes) / n + l2 * w
            value = float(self.s @ values) / n + float(l1 @ (halves[:d] + halves[d:])) + 0.5 * float(l2 @ (w * w))
            return value, np.concatenate((gradient + l1, l1 - gradient))

        _, halves = _minimise(both_signs, np.full(2 * d, 0.01), [(0.0, None)] * (2 * d))
        return halves[:d] - halves[d:]

    def _largest_dual(self) -> float:
        """max over feasible b of (1/n) sum_i (y_i b_i - epsilon |b_i|) - r*(X'b / n), the same as min P."""
        assert self.l1_ratio < 1.0
        assert not self.free
        n = len(self.y)
        positive = self.y > 0
        epsilon = 0.0 if self.loss == "hinge" else 0.1

        def negative_dual(halves: Vector) -> tuple[float, Vector]:
            b = halves[:n] - halves[n:]
            v = self.x.T @ b / n
            w = np.sign(v) * np.maximum(np.abs(v) - self.lam * self.l1_ratio, 0.0) / (self.lam * (1.0 - self.l1_ratio))
            conjugate = 0.5 * self.lam * (1.0 - self.l1_ratio) * float(w @ w)
            gradient = (self.x @ w - self.y) / n
            value = conjugate - float(self.y @ b) / n + epsilon * float(halves.sum()) / n
            return value, np.concatenate((gradient + epsilon / n, epsilon / n - gradient))

        up, down = self.s.copy(), self.s.copy()
        if self.loss == "hinge":
            up, down = np.where(positive, up, 0.0), np.where(positive, 0.0, down)
        bounds: list[tuple[float, float | None]] = [(0.0, float(high)) for high in np.concatenate((up, down))]
        value, _ = _minimise(negative_dual, 0.5 * np.concatenate((up, down)), bounds)
        return -value
