"""The compiled loops of acccocoa.sharding.

All in one file, because numba's disk cache does not notice a change in another one. Only integer arithmetic is used to
decide where a row or a column goes: the same seed gives the same shards on every machine.

The kernels trust their arguments; acccocoa.sharding is the caller that checks.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from acccocoa.compiling import compiled

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Values = NDArray[Any]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
B27, B30, B31, B32 = (np.uint64(bits) for bits in (27, 30, 31, 32))
LOW_32 = np.uint64(0xFFFFFFFF)


@compiled
def mix(x: np.uint64) -> np.uint64:
    """Scramble 64 bits (the finaliser of SplitMix64)."""
    x = (x ^ (x >> B30)) * MIX_1
    x = (x ^ (x >> B27)) * MIX_2
    return x ^ (x >> B31)


@compiled
def deal_rows(indptr: I64, first: int, seed: np.uint64, loads: U64, owners: I32, keys: U64) -> None:
    """Give every row a shard and a place among that shard's rows, both at random.

    A row goes to the lighter of two shards drawn at random, which keeps all of them within a few rows of each other;
    the first rows go to a shard each, so that none is empty. A row weighs its entries and one for itself.

    Parameters
    ----------
    indptr : of the rows;  first : number of the first one in the data;  seed : random bits
    loads : shape (shards,), what each weighs so far; updated
    owners, keys : shape (rows,), receive the shard, and the number by which its rows are to be sorted
    """
    shards = np.uint64(len(loads))
    for row in range(len(owners)):
        number = np.uint64(first + row)
        bits = mix(seed + GOLDEN * (np.uint64(2) * number + np.uint64(1)))
        # the high half of a product of 32-bit numbers: even to within 2^-32 * shards
        one = ((bits >> B32) * shards) >> B32
        two = ((bits & LOW_32) * shards) >> B32
        owner = two if loads[two] < loads[one] else one
        if number < shards:
            owner = number
        loads[owner] += np.uint64(indptr[row + 1] - indptr[row] + 1)
        owners[row] = np.int32(owner)
        keys[row] = mix(seed + GOLDEN * (np.uint64(2) * number + np.uint64(2)))


@compiled
def take_rows(
    order: I64, indptr: I64, indices: I32, values: Values, taken_indptr: I64, taken_indices: I32, taken_values: Values
) -> None:
    """Copy the rows named in `order`, one after the other; taken_* have room for them, indptr from 0."""
    at = np.uint64(0)
    taken_indptr[0] = 0
    for k in range(len(order)):
        row = order[k]
        stop = np.uint64(indptr[row + 1])
        position = np.uint64(indptr[row])
        while position < stop:
            taken_indices[at] = indices[position]
            taken_values[at] = values[position]
            at += np.uint64(1)
            position += np.uint64(1)
        taken_indptr[k + 1] = np.int64(at)


@compiled
def count_columns(indices: I32, counts: I64) -> None:
    """Add the number of entries of every column; counts has room for all of them."""
    for position in range(len(indices)):
        counts[np.uint32(indices[position])] += 1


@compiled
def part_columns(
    indptr: I64,
    indices: I32,
    values: Values,
    owners: I32,
    starts: I64,
    row_ends: I64,
    out_indices: I32,
    out_values: Values,
) -> None:
    """Part the entries of rows by the owner of their column.

    Parameters
    ----------
    starts : int64, shape (shards,); receives where the entries of every shard begin
    row_ends : int64, shape (shards, rows); receives where each row ends among its shard's entries, counted from 0
    out_indices, out_values : room for all entries; shard after shard, within a shard in their order
    """
    shards, rows = row_ends.shape
    starts[:] = 0
    begin, end = indptr[0], indptr[rows]
    for position in range(begin, end):
        starts[owners[np.uint32(indices[position])]] += 1
    total = 0
    for shard in range(shards):
        count = starts[shard]
        starts[shard] = total
        total += count
    places = starts.copy()
    for row in range(rows):
        for position in range(indptr[row], indptr[row + 1]):
            shard = owners[np.uint32(indices[position])]
            out_indices[places[shard]] = indices[position]
            out_values[places[shard]] = values[position]
            places[shard] += 1
        for shard in range(shards):
            row_ends[shard, row] = places[shard] - starts[shard]
