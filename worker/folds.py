"""The hashes of a shard's examples, from which follows in which fold they are; see acccocoa.folds."""

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from acccocoa.folds import entry_hashes
from acccocoa.losses import Vector
from worker.kernels import Values
from worker.shard import Shard

ENTRIES_TOGETHER = 1 << 20
"""Entries that are hashed together, about: bounds the memory it takes."""


def _pieces(shard: Shard) -> Iterator[tuple[slice, NDArray[np.int64], NDArray[np.uint32], Values]]:
    """Rows, and of every value of theirs its row within the piece, its position, and itself."""
    cuts = np.searchsorted(
        shard.indptr[1:], np.arange(ENTRIES_TOGETHER, len(shard.values), ENTRIES_TOGETHER).astype(np.uint64)
    )
    for first, last in itertools.pairwise([0, *cuts.tolist(), shard.n]):
        sizes = np.diff(shard.indptr[first : last + 1]).astype(np.int64)
        values = shard.values[int(shard.indptr[first]) : int(shard.indptr[last])]
        yield slice(first, last), np.repeat(np.arange(last - first), sizes), shard.positions(first, last), values


def hashes_of_rows(shard: Shard) -> Vector:
    """By examples: the hash of every row; float64, shape (n,)."""
    hashes = np.zeros(shard.n)
    for rows, row, positions, values in _pieces(shard):
        each = entry_hashes(shard.support[positions], values)
        hashes[rows] = np.bincount(row, each, minlength=rows.stop - rows.start)
    return hashes


def hashes_of_columns(shard: Shard) -> Vector:
    """By features: the shard's share of the hash of every example; float64, shape (support,)."""
    hashes = np.zeros(len(shard.support))
    for rows, row, positions, values in _pieces(shard):
        each = entry_hashes(shard.rows[rows][row], values)
        hashes += np.bincount(positions, each, minlength=len(hashes))
    return hashes
