"""Long vectors whose memory is used again once nobody refers to them.

A round needs a handful of vectors as long as the shared one. Memory fresh from the system costs more than what is
computed with it: at d = 1.36 million 2 to 25 ms a vector, by whether the machine has large pages at hand, and filling
it 0.3 ms. malloc gives such memory back to the system whenever it is freed, and numpy asks for large pages.
"""

import mmap
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from acccocoa.losses import Vector

SHORT = 1 << 17
"""Bytes below which malloc keeps what is freed by itself."""

SPARE = 8
"""Pieces of memory that are kept for later, at most; the one that has waited longest goes first."""

_spare: deque[mmap.mmap] = deque(maxlen=SPARE)


def empty(length: int, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An array of that length, with whatever was in its memory; safe to call from any thread."""
    dtype = np.dtype(dtype)
    size = length * dtype.itemsize
    if size < SHORT:
        return np.empty(length, dtype=dtype)
    memory = _spare_of(size)
    # the memory is no array itself: all views of this one, and theirs, refer to this one
    array = np.frombuffer(memory, dtype=dtype)
    weakref.finalize(array, _spare.append, memory).atexit = False
    return array


def copy(vector: Vector) -> Vector:
    """A copy of the vector."""
    out: Vector = empty(len(vector))
    out[:] = vector
    return out


def zeros(length: int) -> Vector:
    """A float64 vector of zeros."""
    out: Vector = empty(length)
    out[:] = 0.0
    return out


def _spare_of(size: int) -> mmap.mmap:
    """Memory of that size in bytes that nobody uses."""
    for _ in range(len(_spare)):
        try:
            memory = _spare.pop()
        except IndexError:  # another thread was faster
            break
        if len(memory) == size:
            return memory
        _spare.appendleft(memory)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
