"""The compiled loops of acccocoa.statistics; in one file, as numba's cache on disk needs it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from acccocoa.compiling import compiled


@compiled
def squared_norms(indptr: NDArray[np.int64], values: NDArray[Any], out: NDArray[np.float64]) -> None:
    """|x_i|^2 of every row, summed in float64; a largest magnitude is taken out, so that nothing overflows on the way.

    out : shape (rows, 2), receives the magnitude and the squared norm over its square
    """
    for row in range(len(out)):
        largest = 0.0
        for position in range(indptr[row], indptr[row + 1]):
            largest = max(largest, abs(np.float64(values[position])))
        total = 0.0
        if largest > 0.0:
            for position in range(indptr[row], indptr[row + 1]):
                part = np.float64(values[position]) / largest
                total += part * part
        out[row, 0] = largest
        out[row, 1] = total


@compiled
def feature_maxima(indices: NDArray[np.int32], values: NDArray[Any], maxima: NDArray[np.float64]) -> None:
    """Raise maxima[j] to the largest magnitude of feature j; there is room for every feature. -1: did not occur."""
    for position in range(len(indices)):
        feature = np.uint32(indices[position])
        magnitude = abs(np.float64(values[position]))
        if magnitude > maxima[feature]:
            maxima[feature] = magnitude
