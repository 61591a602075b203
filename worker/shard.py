"""A shard as the local solver uses it: shuffled rows, compact features, squared norms, blocks."""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acccocoa.examples import Examples
from worker import kernels

LARGEST_BUCKET = 16
SMALLEST_ORDER = 64
"""A block is visited in a shuffled order of buckets: of LARGEST_BUCKET examples, or fewer where that would leave fewer
than SMALLEST_ORDER buckets."""


@dataclass(frozen=True, slots=True)
class Block:
    """Examples first to last, solved by one thread in buckets of `bucket` consecutive examples."""

    first: int
    last: int
    bucket: int

    @property
    def buckets(self) -> int:
        """Number of buckets in one pass."""
        return -((self.first - self.last) // self.bucket)


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows of the shard in the order they are stored for solving.

    Attributes
    ----------
    indptr : uint64, shape (n + 1,);  indices : uint32, shape (nnz,), positions in `support`
    values : float32 or float64, shape (nnz,)
    labels, squared_norms : float64, shape (n,)
    support : uint32, shape (number of features that occur,); their 0-based numbers, the most frequent first
    d : largest 0-based feature number + 1
    rows : int64, shape (n,); where each stored row stood in the source
    blocks : one a thread
    content_hash : SHA-256 of what the shard was made from, hexadecimal
    """

    indptr: NDArray[np.uint64]
    indices: NDArray[np.uint32]
    values: kernels.Values
    labels: NDArray[np.float64]
    squared_norms: NDArray[np.float64]
    support: NDArray[np.uint32]
    d: int
    rows: NDArray[np.int64]
    blocks: tuple[Block, ...]
    content_hash: str

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.labels)

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return len(self.indices)


def cut_blocks(indptr: NDArray[np.uint64], threads: int) -> tuple[Block, ...]:
    """Cut the rows into at most `threads` contiguous blocks of about as many entries (at least one row) each."""
    n = len(indptr) - 1
    count = max(1, min(threads, n))
    # a row weighs its entries and a little for itself, so that empty rows are shared out too
    weight = indptr.astype(np.float64) + np.arange(n + 1)
    cuts = np.searchsorted(weight, weight[-1] * np.arange(1, count) / count)
    edges = [0, *cuts.tolist(), n]
    for k in range(1, count):
        edges[k] = min(max(edges[k], edges[k - 1] + 1), n - (count - k))
    return tuple(
        Block(first, last, min(LARGEST_BUCKET, max(1, (last - first) // SMALLEST_ORDER)))
        for first, last in itertools.pairwise(edges)
    )


def build(examples: Examples, source_hash: str, rows: NDArray[np.int64] | None = None, threads: int = 1) -> Shard:
    """Make a shard of the given rows of the examples (all when None), shuffled once.

    The shuffle is seeded by the hash, not by the job: the same shard has the same order in every process, so that dual
    variables stored earlier belong to the same rows.
    """
    chosen = np.arange(examples.n, dtype=np.int64) if rows is None else rows
    rng = np.random.default_rng(int(source_hash[:16], 16))
    chosen = chosen[rng.permutation(len(chosen))]
    counts = np.zeros(examples.d, dtype=np.int64)
    kernels.count_features(examples.indptr, examples.indices, chosen, counts)
    support = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].astype(np.uint32)
    compact = np.zeros(max(examples.d, 1), dtype=np.uint32)
    compact[support] = np.arange(len(support), dtype=np.uint32)
    indptr = np.empty(len(chosen) + 1, dtype=np.uint64)
    nnz = int(counts.sum())
    indices = np.empty(nnz, dtype=np.uint32)
    values = np.empty(nnz, dtype=examples.values.dtype)
    kernels.take_rows(examples.indptr, examples.indices, examples.values, chosen, compact, indptr, indices, values)
    squared_norms = np.empty(len(chosen), dtype=np.float64)
    kernels.squared_norms(indptr, values, squared_norms)
    return Shard(
        indptr=indptr,
        indices=indices,
        values=values,
        labels=examples.labels[chosen],
        squared_norms=squared_norms,
        support=support,
        d=int(support.max()) + 1 if len(support) else 0,
        rows=chosen,
        blocks=cut_blocks(indptr, threads),
        content_hash=source_hash,
    )
