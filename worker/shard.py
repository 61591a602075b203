"""A shard as the local solver uses it: shuffled rows, compact features, squared norms, blocks."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acccocoa import arrayfile, partition
from acccocoa.errors import UsageError
from acccocoa.examples import Examples
from worker import shard_kernels
from worker.kernels import Values

BUCKET_OF_SHORT_ROWS = 4
BUCKET_OF_LONG_ROWS = 16
LONG_ROW = 32
SMALLEST_ORDER = 64
"""A block is visited in a shuffled order of buckets of consecutive rows. The smaller the bucket, the better the order
mixes and the more reading jumps. Where rows are short the mixing is worth more (covtype, 12 entries a row: 41 passes to
1e-3 with 16 rows, 33 with 4, 29 with 1), where they are long it buys nothing (rcv1, 72 entries). Rows count as long
from LONG_ROW entries on average; there are at least SMALLEST_ORDER buckets where the rows suffice."""


DENSE = 1 / 3
"""A shard that is filled by more than this share is stored densely: without positions, which take as much room as
values, and with vector instructions (a product takes 0.1 ns a value instead of 0.4 an entry)."""

NEAR = 1 << 16
"""Vectors of a support that is longer than this do not fit into the cache next to a core. Then rows are sorted, and
features that few examples have, RARE, lie together with the others of the first one: news20, a pass of the local solver
takes 2.3 ns an entry, without the latter 2.75, without either 4.3."""

RARE = 4

SORTED_TOGETHER = 1 << 15
"""Entries that are sorted at the same time, at least."""

MOST_ROWS = 1 << 32
"""Of what a shard is made of: they are numbered by uint32."""

FAR_APART = 8
"""With more feature numbers than so many times the entries, the features are renumbered before they are counted."""


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

    def rows_in(self, order: NDArray[np.uint32]) -> int:
        """Number of rows in those buckets, of which the last may be a short one."""
        short = self.buckets * self.bucket - (self.last - self.first)
        return len(order) * self.bucket - short * int(np.count_nonzero(order == self.buckets - 1))


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows of the shard in the order they are stored for solving.

    Attributes
    ----------
    indptr : uint64, shape (n + 1,);  indices : uint32, shape (nnz,), positions in `support`; empty when dense
    values : float32 or float64, shape (nnz,); when dense every row has a value for all of the support, zeros too
    nnz : entries of the data
    labels, squared_norms : float64, shape (n,)
    support : uint32, shape (number of features that occur,); their 0-based numbers, the most frequent first,
        see NEAR
    d : largest 0-based feature number + 1
    rows : uint32, shape (n,); where each stored row stood in the source
    blocks : one a thread, until a job says how many; see in_blocks
    content_hash : SHA-256 of what the shard was made from, hexadecimal
    by_features : the rows are features, `rows` their 0-based numbers, the support are examples, d is their number, and
        labels, shape (d,), are theirs
    features : by features, largest 0-based feature number in all of the data + 1
    weights : of the examples, float64, in the order of `labels`; None: all 1
    mapped : the file that arrays are mapped from, if they are
    """

    indptr: NDArray[np.uint64]
    indices: NDArray[np.uint32]
    values: Values
    nnz: int
    labels: NDArray[np.float64]
    squared_norms: NDArray[np.float64]
    support: NDArray[np.uint32]
    d: int
    rows: NDArray[np.uint32]
    blocks: tuple[Block, ...]
    content_hash: str
    by_features: bool = False
    features: int = 0
    weights: NDArray[np.float64] | None = None
    mapped: arrayfile.Mapped | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def dense(self) -> bool:
        """Rows are stored with their zeros, and without positions."""
        return len(self.indices) < len(self.values)

    def positions(self, first: int, last: int) -> NDArray[np.uint32]:
        """Positions in the support of the values of rows first to last; uint32."""
        if self.dense:
            return np.tile(np.arange(len(self.support), dtype=np.uint32), last - first)
        return self.indices[int(self.indptr[first]) : int(self.indptr[last])]


def with_constant_feature(shard: Shard, value: float, feature: int) -> Shard:
    """The shard (by examples) with one more feature of that number, which has that value in every row.

    Raises
    ------
    UsageError : the number is one of a feature in the shard
    """
    if feature < shard.d:
        raise UsageError(f"constant feature {feature}", f"the shard has features up to {shard.d - 1}")
    n, stored = shard.n, len(shard.values)
    at = shard.indptr[1:].astype(np.int64) + np.arange(n)  # where the new entries go
    old = np.ones(stored + n, dtype=np.bool_)
    old[at] = False
    values = np.empty(stored + n, dtype=shard.values.dtype)
    values[old], values[at] = shard.values, value
    indices = shard.indices
    if not shard.dense:
        indices = np.empty(stored + n, dtype=np.uint32)
        indices[old], indices[at] = shard.indices, len(shard.support)
    return replace(
        shard,
        nnz=shard.nnz + n,
        indptr=(shard.indptr + np.arange(n + 1, dtype=np.uint64)).astype(np.uint64, copy=False),
        indices=indices,
        values=values,
        # of the value as it is stored
        squared_norms=shard.squared_norms + float(values.dtype.type(value)) ** 2,
        support=np.append(shard.support, np.uint32(feature)),
        d=feature + 1,
    )


def in_blocks(shard: Shard, count: int) -> Shard:
    """The shard cut into at most so many blocks, which follow from its rows alone."""
    return replace(shard, blocks=cut_blocks(shard.indptr, count))


def cut_blocks(indptr: NDArray[np.uint64], count: int) -> tuple[Block, ...]:
    """Cut the rows into at most `count` contiguous blocks of about as many entries (at least one row) each."""
    n = len(indptr) - 1
    count = max(1, min(count, n))
    # a row weighs its entries and a little for itself, so that empty rows are shared out too
    weight = indptr.astype(np.float64) + np.arange(n + 1)
    cuts = np.searchsorted(weight, weight[-1] * np.arange(1, count) / count)
    edges = [0, *cuts.tolist(), n]
    for k in range(1, count):
        edges[k] = min(max(edges[k], edges[k - 1] + 1), n - (count - k))
    largest = BUCKET_OF_LONG_ROWS if indptr[-1] >= LONG_ROW * n else BUCKET_OF_SHORT_ROWS
    return tuple(
        Block(first, last, min(largest, max(1, (last - first) // SMALLEST_ORDER)))
        for first, last in itertools.pairwise(edges)
    )


def _pieces(ends: NDArray[np.int64], count: int) -> list[slice]:
    """Rows in contiguous pieces of about as many entries; ends : where each row's entries end."""
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.searchsorted(ends, total * np.arange(1, count) // count).tolist()
    return [slice(first, last) for first, last in itertools.pairwise([0, *cuts, len(ends)]) if last > first]


def _far_apart(examples: Examples) -> bool:
    """An array by feature number would be larger than the data: one large number is no reason to ask for so much."""
    return examples.d > FAR_APART * examples.nnz


def _renumbered(examples: Examples) -> tuple[NDArray[np.uint32], Examples]:
    """The numbers of the features that occur, ascending, and the examples with positions among these instead."""
    occurring, places = np.unique(examples.indices, return_inverse=True)
    return occurring.astype(np.uint32), replace(examples, indices=places.astype(np.int32))


def sort_rows(
    indptr: NDArray[np.uint64], indices: NDArray[np.uint32], values: NDArray[np.floating[Any]], support: int
) -> None:
    """Sort every row's entries by their indices, which are below `support`, in place."""
    room = max(SORTED_TOGETHER, int(np.diff(indptr).max(initial=0)))
    keys, others = (np.empty(room, dtype=np.uint64) for _ in range(2))
    counts = np.empty(1 << shard_kernels.DIGIT, dtype=np.uint32)
    bits = max(1, (support - 1).bit_length())
    shard_kernels.sort_rows(indptr, indices, values, bits, keys, others, np.empty(room, dtype=values.dtype), counts)


def build(examples: Examples, source_hash: str, rows: NDArray[np.int64] | None = None, threads: int = 1) -> Shard:
    """Make a shard of the given rows of the examples (all when None), shuffled once.

    The shuffle is seeded by the hash, not by the job: the same shard has the same order in every process, so that dual
    variables stored earlier belong to the same rows.

    Raises
    ------
    UsageError : there are more than MOST_ROWS examples
    """
    if examples.n > MOST_ROWS:
        raise UsageError(
            f"{examples.n} rows", f"a shard is made of at most {MOST_ROWS}", "cut them: acccocoa-coordinator shard"
        )
    if _far_apart(examples):
        occurring, near = _renumbered(examples)
        shard = build(near, source_hash, rows, threads)
        support = occurring[shard.support]
        return replace(shard, support=support, d=int(support.max()) + 1 if len(support) else 0)
    chosen, d = np.arange(examples.n, dtype=np.int64) if rows is None else rows, examples.d
    rng = np.random.default_rng(int(source_hash[:16], 16))
    chosen = chosen[rng.permutation(len(chosen))]
    ends = np.cumsum(examples.indptr[chosen + 1] - examples.indptr[chosen])
    pieces = _pieces(ends, threads)

    def count(piece: slice) -> NDArray[np.int64]:
        counts = np.zeros(d, dtype=np.int64)
        shard_kernels.count_features(examples.indptr, examples.indices, chosen[piece], counts)
        return counts

    with ThreadPoolExecutor(threads) as pool:
        counts = sum(pool.map(count, pieces), np.zeros(d, dtype=np.int64))
    far = np.count_nonzero(counts) > NEAR
    frequent = np.flatnonzero(counts > (RARE if far else 0))
    support = frequent[np.argsort(-counts[frequent], kind="stable")].astype(np.uint32)
    if far:
        rare = (counts > 0) & (counts <= RARE)
        more = np.empty(np.count_nonzero(rare), dtype=np.uint32)
        shard_kernels.in_order_of_rows(examples.indptr, examples.indices, chosen, rare, more)
        support = np.concatenate((support, more))
    compact = np.zeros(max(d, 1), dtype=np.uint32)
    compact[support] = np.arange(len(support), dtype=np.uint32)
    indptr = np.concatenate((np.zeros(1, dtype=np.uint64), ends.astype(np.uint64)))
    nnz = int(indptr[-1])
    cells = len(chosen) * len(support)
    dense = nnz > DENSE * cells
    if dense:
        indptr = np.arange(len(chosen) + 1, dtype=np.uint64) * np.uint64(len(support))
    indices = np.empty(0 if dense else nnz, dtype=np.uint32)
    values = np.zeros(cells, examples.values.dtype) if dense else np.empty(nnz, examples.values.dtype)
    squared_norms = np.empty(len(chosen), dtype=np.float64)
    source = (examples.indptr, examples.indices, examples.values)

    def take(piece: slice) -> None:
        entries = slice(int(indptr[piece.start]), int(indptr[piece.stop]))
        if dense:
            rows = values[entries].reshape(-1, len(support))
            shard_kernels.take_rows_dense(*source, chosen[piece], compact, rows)
        else:
            shard_kernels.take_rows(*source, chosen[piece], compact, indices[entries], values[entries])
        local = indptr[piece.start : piece.stop + 1] - indptr[piece.start]
        if far and not dense:
            sort_rows(local, indices[entries], values[entries], len(support))
        shard_kernels.squared_norms(local, values[entries], squared_norms[piece])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(take, pieces))
    return Shard(
        indptr=indptr,
        indices=indices,
        values=values,
        nnz=nnz,
        labels=examples.labels[chosen],
        squared_norms=squared_norms,
        support=support,
        d=int(support.max()) + 1 if len(support) else 0,
        rows=chosen.astype(np.uint32),
        blocks=cut_blocks(indptr, threads),
        content_hash=source_hash,
    )


def build_by_features(examples: Examples, source_hash: str, part: int = 0, parts: int = 1, threads: int = 1) -> Shard:
    """Make a shard of a part of the features that occur in the examples; see partition.deal_features.

    Raises
    ------
    UsageError : part is out of range, or fewer features occur than there are parts
    """
    import scipy.sparse  # by examples a worker starts without it, and sooner

    if _far_apart(examples):
        occurring, near = _renumbered(examples)
        shard = build_by_features(near, source_hash, part, parts, threads)
        return replace(shard, rows=occurring[shard.rows], features=examples.d)
    n, d = examples.n, examples.d
    matrix = scipy.sparse.csr_array((examples.values, examples.indices, examples.indptr), shape=(n, d)).tocsc()
    occurs = np.flatnonzero(np.diff(matrix.indptr))
    chosen = occurs[partition.cut_features(np.diff(matrix.indptr)[occurs], part, parts)]
    columns = Examples(
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int32),
        values=matrix.data,
        labels=np.zeros(d),
    )
    shard = build(columns, source_hash, chosen, threads)
    return replace(shard, labels=examples.labels.copy(), d=n, by_features=True, features=d)
