"""Sums over long vectors, without BLAS.

What computes BLAS's products on several threads goes on turning for up to 60 ms when it is done, in case there is more:
on a core that the local solver could use (rcv1-like, two threads: the first round 94 ms instead of 17). And its last
digits depend on the processor and the number of cores.
"""

import math

import numpy as np
from numpy.typing import NDArray

TOGETHER = 1 << 16
"""Entries that are computed with at a time: what is in between stays in the processor's caches."""


def parts(length: int) -> list[slice]:
    """A vector of that length in parts of at most TOGETHER entries."""
    return [slice(at, at + TOGETHER) for at in range(0, length, TOGETHER)]


def inner(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """a'b; shape (m,) both."""
    return math.fsum(float(np.einsum("i,i->", a[part], b[part])) for part in parts(len(a)))
