"""The logistic function, and probabilities that sum to 1."""

import numpy as np
from numpy.typing import NDArray


def sigmoid(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + exp(-t)), without overflow; as scipy.special.expit, without scipy's import. Float64, shape of t."""
    with np.errstate(under="ignore"):
        e = np.exp(-np.abs(t))
    return np.where(t >= 0.0, 1.0, e) / (1.0 + e)


def shares(each: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every row over its sum; where all of it underflows nothing is known. Float64, shape (n, classes)."""
    total = each.sum(axis=1, keepdims=True)
    return np.where(total > 0, each / np.where(total > 0, total, 1.0), 1.0 / each.shape[1])
