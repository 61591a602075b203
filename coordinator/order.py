"""The order in which the coordinator keeps shared vectors: as the workers do, so that their parts lie together.

A worker has its support in an order of its own (worker.shard). Were the coordinator's vectors in the order of the data,
every round would pick the worker's entries from all over the vector, and add them all over it again: at d = 1.36 M that
took several times as long as the local solver's passes.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from acccocoa import buffers
from acccocoa.losses import Vector

T = TypeVar("T", bound=np.generic)

Places = NDArray[np.intp] | slice
"""Where a worker's part is within a vector in this order."""


class SharedOrder:
    """The first worker's support as it has it, then what is new in the second's, ..., at last what nobody has.

    Parameters
    ----------
    supports : of every worker in rank order: numbers of its entries, uint32
    d : length of the shared vector

    Attributes
    ----------
    numbers : of the entry at every place, shape (d,)
    places : of every worker's part; a slice where it lies in one piece, as that of a single worker does
    """

    def __init__(self, supports: Sequence[NDArray[np.uint32]], d: int) -> None:
        missing = np.ones(d, dtype=np.bool_)
        pieces: list[NDArray[Any]] = []
        for support in supports:
            pieces.append(support[missing[support]])
            missing[support] = False
        pieces.append(np.flatnonzero(missing))
        self.numbers: NDArray[np.intp] = np.concatenate(pieces).astype(np.intp)
        place: NDArray[np.intp] = np.empty(d, dtype=np.intp)
        place[self.numbers] = np.arange(d)
        self.places = [_compressed(place[support]) for support in supports]

    def natural(self, v: Vector) -> Vector:
        """The same vector in the order of the data; float64, shape (d,)."""
        out: Vector = buffers.empty(len(v))
        out[self.numbers] = v
        return out

    def ordered(self, v: NDArray[T]) -> NDArray[T]:
        """The vector, which is in the order of the data, in this order; shape (d,)."""
        return v[self.numbers]


def taken(v: Vector, places: Places) -> Vector:
    """The entries of v at those places, in their order; a view where they lie in one piece."""
    # take, unlike an index, lets other threads run meanwhile: the workers' parts are taken at the same time
    return v[places] if isinstance(places, slice) else v.take(places)


def _compressed(places: NDArray[np.intp]) -> Places:
    first = int(places[0]) if len(places) else 0
    in_one_piece = np.array_equal(places, np.arange(first, first + len(places)))
    return slice(first, first + len(places)) if in_one_piece else places
