"""Probabilities from decision values: a sigmoid fitted to examples that the model has not seen.

Platt (1999), with the regularised targets and the Newton method of Lin, Lin and Weng (2007): of n+ examples with the
label and n- without, P(label | f) = 1 / (1 + exp(a f + b)) minimises the cross entropy to the targets (n+ + 1)/(n+ + 2)
and 1/(n- + 2), which keep it from being certain of anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acccocoa.errors import DataError
from acccocoa.losses import Vector
from acccocoa.sigmoid import shares, sigmoid

STEPS = 100
SMALLEST_STEP = 1e-10
RIDGE = 1e-12
"""Added to the Hessian's diagonal, so that it can be inverted where all values are equal."""

SMALL_GRADIENT = 1e-9


@dataclass(frozen=True, slots=True)
class Sigmoid:
    """P(label | f) = 1 / (1 + exp(a f + b))."""

    a: float
    b: float

    def __call__(self, values: Vector) -> Vector:
        """The probability of the label for decision values; shape of values."""
        return sigmoid(-(self.a * values + self.b))


def fit(values: Vector, positive: NDArray[np.bool_], label: str = "+1") -> Sigmoid:
    """The sigmoid for these decision values (float64, finite, shape (n,)) and whether each example has the label.

    label : how it is spelled, for messages

    Raises
    ------
    DataError : all have it, or none has
    """
    scale = float(np.abs(values).max(initial=0.0)) or 1.0
    values = values / scale
    n = len(values)
    count = int(positive.sum())
    if count in (0, n):
        raise DataError(
            f"{count} of {n} examples to calibrate by",
            f"have label {label}: some must have it, and some not",
            "use others",
        )
    targets = np.where(positive, (count + 1.0) / (count + 2.0), 1.0 / (n - count + 2.0))

    def entropy(a: float, b: float) -> float:
        t = a * values + b
        return float((np.logaddexp(0.0, -t) + targets * t).sum())

    a, b = 0.0, float(np.log((n - count + 1.0) / (count + 1.0)))
    least = entropy(a, b)
    for _ in range(STEPS):
        p = sigmoid(-(a * values + b))
        slope, curvature = targets - p, p * (1.0 - p)
        gradient = np.array([slope @ values, slope.sum()])
        if np.abs(gradient).max() <= SMALL_GRADIENT * n:
            break
        mixed = float(curvature @ values)
        hessian = np.array([[curvature @ (values * values) + RIDGE, mixed], [mixed, curvature.sum() + RIDGE]])
        direction = -np.linalg.solve(hessian, gradient)
        step = 1.0
        while step >= SMALLEST_STEP:
            moved = entropy(a + step * direction[0], b + step * direction[1])
            if moved < least + 1e-4 * step * float(gradient @ direction):
                a, b, least = a + step * float(direction[0]), b + step * float(direction[1]), moved
                break
            step /= 2.0
        else:
            break
    return Sigmoid(a / scale, b)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Sigmoids for the decision values of a classifier: of its first label, or of each of more than two."""

    sigmoids: tuple[Sigmoid, ...]

    @classmethod
    def of(cls, labels: Sequence[str], values: Vector, found: Vector) -> "Calibration":
        """Fit them.

        Parameters
        ----------
        labels : of the model;  values : float64, shape (n,) or (n, labels), its decision values
        found : float64, shape (n,), the examples' labels

        Raises
        ------
        DataError : examples with one of the labels, or without it, are missing
        """
        if values.ndim == 1:
            return cls((fit(values, found == float(labels[0]), labels[0]),))
        return cls(tuple(fit(values[:, k], found == float(label), label) for k, label in enumerate(labels)))

    def __call__(self, values: Vector) -> Vector:
        """The probability of every label, shape (n, labels); of more than two divided by their sum."""
        if values.ndim == 1:
            (fitted,) = self.sigmoids
            first = fitted(values)
            return np.column_stack((first, 1.0 - first))
        return shares(np.column_stack([fitted(values[:, k]) for k, fitted in enumerate(self.sigmoids)]))
