"""The coordinator's numba kernels: what is done in every round to vectors as long as the shared one.

Where d is in the millions, numpy's temporaries and indexed additions took longer than moving the vectors over loopback
(d = 3.2 million, K = 4: 149 ms a round, the bare echo of the same bytes 164 ms).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from acccocoa.compiling import kernel
from acccocoa.losses import Vector


@kernel
def between(v_a: Vector, v_z: Vector, weight: float, v_y: Vector) -> None:
    """v_y := (1 - weight) v_a + weight v_z; float64, shape (d,)."""
    for i in range(len(v_y)):
        v_y[i] = (1.0 - weight) * v_a[i] + weight * v_z[i]


@kernel
def add_at(places: NDArray[np.integer[Any]], a_dz: Vector, step: float, v_z: Vector, v_a: Vector) -> None:
    """v_z += a_dz and v_a += step a_dz at those places, each there once; a_dz has the shape of places."""
    for j in range(len(places)):
        at = np.uint64(places[j])
        v_z[at] += a_dz[j]
        v_a[at] += step * a_dz[j]


@kernel
def add(a_dz: Vector, step: float, v_z: Vector, v_a: Vector) -> None:
    """The same where all three have the same shape."""
    for j in range(len(a_dz)):
        v_z[j] += a_dz[j]
        v_a[j] += step * a_dz[j]


@kernel
def apart(v: Vector, other: Vector) -> tuple[float, float]:
    """max |v_j|, |other_j| and max |v_j - other_j|, NaN where one of them is not finite; both of shape (d,)."""
    size, distance, finite = 0.0, 0.0, 0.0
    for j in range(len(v)):
        size = max(size, abs(v[j]), abs(other[j]))
        distance = max(distance, abs(v[j] - other[j]))
        finite += 0.0 * (v[j] - other[j])
    return size + finite, distance + finite


def compile_kernels() -> None:
    """Compile every kernel, or load it from numba's cache on disk: a round need not wait for that."""
    v_a, v_z, v_y = np.zeros(1), np.zeros(1), np.zeros(1)
    between(v_a, v_z, 1.0, v_y)
    add_at(np.zeros(1, dtype=np.intp), np.zeros(1), 1.0, v_z, v_a)
    add(np.zeros(1), 1.0, v_z, v_a)
    apart(v_a, v_z)
