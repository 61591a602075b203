"""Sums over long vectors, without BLAS and without temporaries as long as they are.

What computes BLAS's products on several threads goes on turning for up to 60 ms when it is done, in case there is more:
on a core that the local solvers could use. And its last digits depend on the processor and the number of cores.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

TOGETHER = 1 << 16
"""Entries that are computed with at a time: what is in between stays in the processor's caches."""


def parts(length: int) -> list[slice]:
    """A vector of that length in parts of at most TOGETHER entries."""
    return [slice(at, at + TOGETHER) for at in range(0, length, TOGETHER)]


def largest(v: NDArray[np.float64]) -> float:
    """max |v_j|, NaN when one of them is, without a vector of |v|; 0 where there are none."""
    return max(float(v.max(initial=0.0)), -float(v.min(initial=0.0)))


def total(terms: Iterable[float]) -> float:
    """Their sum, rounded once; NaN where it has no value or is beyond float64, as of +inf and -inf."""
    try:
        return math.fsum(terms)
    except (ValueError, OverflowError):
        return math.nan


def inner(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """a'b; shape (m,) both."""
    return total(float(np.einsum("i,i->", a[part], b[part])) for part in parts(len(a)))
