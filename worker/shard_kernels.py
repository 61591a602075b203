"""The numba kernels that lay out, scale and describe a shard; beside those of the solver, and calling none of them.

All take rows as worker.kernels says, or as they are read: `indptr` (int64), `indices` (int32, feature numbers).
"""

import math

import numpy as np
from numpy.typing import NDArray

from acccocoa.compiling import kernel
from acccocoa.losses import Vector
from worker.kernels import Values


@kernel
def squared_norms(indptr: NDArray[np.uint64], values: Values, out: Vector) -> None:
    """out_i = |x_i|^2, shape (n,)."""
    for example in range(len(out)):
        i = np.uint64(example)
        total = 0.0
        j = indptr[i]
        while j < indptr[i + np.uint64(1)]:
            total += np.float64(values[j]) * np.float64(values[j])
            j += np.uint64(1)
        out[i] = total


LEAST_SPREAD = 1e-13
"""A centred row's squared norm counts as no less than this share of what was taken off: products with the row lose as
many digits, and once they are rounding only, steps must be short."""


@kernel
def centre(indptr: NDArray[np.uint64], values: Values, length: int, squared_norms: Vector, along: Vector) -> None:
    """Of rows of that length: |x_i - mean|^2, 0 exactly where all entries are equal, and (x_i'1) / |1|; shape (n,)."""
    for row in range(len(along)):
        i = np.uint64(row)
        begin, end = indptr[i], indptr[i + np.uint64(1)]
        missing = np.float64(length - np.int64(end - begin))
        constant, total = True, 0.0
        for j in range(begin, end):
            constant &= values[j] == values[begin]
            total += np.float64(values[j])
        if constant and (missing == 0.0 or total == 0.0):
            squared_norms[i] = 0.0
            along[i] = np.float64(values[begin]) * math.sqrt(length) if begin < end else 0.0
            continue
        mean = total / length
        # about the mean, because the difference of two large sums has few digits
        squares, rest = missing * mean * mean, -missing * mean
        for j in range(begin, end):
            x = np.float64(values[j]) - mean
            squares += x * x
            rest += x
        mean += rest / length
        squared_norms[i] = max(squares, LEAST_SPREAD * mean * mean * length)
        along[i] = mean * math.sqrt(length)


@kernel
def take_rows(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: Values,
    rows: NDArray[np.int64],
    compact: NDArray[np.uint32],
    out_indices: NDArray[np.uint32],
    out_values: Values,
) -> None:
    """Copy the rows named, in that order, with every feature number j replaced by compact[j]."""
    position = np.uint64(0)
    for k in range(len(rows)):
        row = np.uint64(rows[k])
        j = np.uint64(indptr[row])
        stop = np.uint64(indptr[row + np.uint64(1)])
        while j < stop:
            out_indices[position] = compact[np.uint64(indices[j])]
            out_values[position] = values[j]
            position += np.uint64(1)
            j += np.uint64(1)


@kernel
def take_rows_dense(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: Values,
    rows: NDArray[np.int64],
    compact: NDArray[np.uint32],
    out: Values,
) -> None:
    """Fill in the rows named, in that order: out[k, compact[j]] = value of feature j; out has shape (rows, support)."""
    for k in range(len(rows)):
        row = np.uint64(rows[k])
        j = np.uint64(indptr[row])
        stop = np.uint64(indptr[row + np.uint64(1)])
        while j < stop:
            out[np.uint64(k), compact[np.uint64(indices[j])]] = values[j]
            j += np.uint64(1)


@kernel
def count_features(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], rows: NDArray[np.int64], counts: NDArray[np.int64]
) -> None:
    """counts[j] += number of the rows named that have feature j; shape (d,)."""
    for k in range(len(rows)):
        row = np.uint64(rows[k])
        j = np.uint64(indptr[row])
        stop = np.uint64(indptr[row + np.uint64(1)])
        while j < stop:
            counts[np.uint64(indices[j])] += 1
            j += np.uint64(1)


@kernel
def in_order_of_rows(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    rows: NDArray[np.int64],
    waiting: NDArray[np.bool_],
    out: NDArray[np.uint32],
) -> None:
    """Fill in the features that wait as they are met in these rows, and set `waiting`, shape (d,), to False there."""
    found = np.uint64(0)
    for k in range(len(rows)):
        row = np.uint64(rows[k])
        j = np.uint64(indptr[row])
        stop = np.uint64(indptr[row + np.uint64(1)])
        while j < stop:
            feature = np.uint64(indices[j])
            if waiting[feature]:
                waiting[feature] = False
                out[found] = feature
                found += np.uint64(1)
            j += np.uint64(1)


DIGIT = 11
"""Bits that are sorted by at a time: the counters for so many stay in the cache next to a core."""


@kernel
def sort_by_digit(
    keys: NDArray[np.uint64],
    size: np.uint64,
    shift: np.uint64,
    out: NDArray[np.uint64],
    counts: NDArray[np.uint32],
) -> None:
    """out := the first `size` keys, sorted by DIGIT bits from `shift` on; equal ones stay in their order."""
    digit = np.uint64(len(counts) - 1)
    counts[:] = 0
    for k in range(size):
        counts[(keys[np.uint64(k)] >> shift) & digit] += np.uint32(1)
    start = np.uint32(0)
    for place in range(len(counts)):
        count = counts[np.uint64(place)]
        counts[np.uint64(place)] = start
        start += count
    for k in range(size):
        key = keys[np.uint64(k)]
        place = (key >> shift) & digit
        out[counts[place]] = key
        counts[place] += np.uint32(1)


@kernel
def sort_rows(
    indptr: NDArray[np.uint64],
    indices: NDArray[np.uint32],
    values: Values,
    bits: int,
    keys: NDArray[np.uint64],
    others: NDArray[np.uint64],
    copied: Values,
    counts: NDArray[np.uint32],
) -> None:
    """Sort the entries of every row by their indices, which are below 2**bits; bits <= 32.

    Parameters
    ----------
    indptr : shape (rows + 1,), from where on in indices and values these rows are
    keys, others, copied : to work with, of the same length: as many rows are sorted at a time as have room, and the
        longest row must have
    counts : to work with, uint32, shape (1 << DIGIT,)
    """
    low = np.uint64(0xFFFFFFFF)
    together = 1 << min(DIGIT, 32 - bits)
    row, rows = 0, len(indptr) - 1
    while row < rows:
        begin, after = np.uint64(indptr[row]), row + 1
        while after < rows and after - row < together and indptr[after + 1] - begin <= np.uint64(len(keys)):
            after += 1
        size = np.uint64(indptr[after]) - begin
        # a row's number among these, the index, the place: sorted by all but the last, from the last digit on
        for r in range(row, after):
            at, end = np.uint64(indptr[r]) - begin, np.uint64(indptr[r + 1]) - begin
            number = np.uint64(r - row) << np.uint64(bits)
            while at < end:
                keys[at] = ((number | np.uint64(indices[begin + at])) << np.uint64(32)) | at
                copied[at] = values[begin + at]
                at += np.uint64(1)
        last = (np.uint64(after - row - 1) << np.uint64(bits)) | np.uint64((1 << bits) - 1)
        shift = np.uint64(32)
        while last >> (shift - np.uint64(32)) > np.uint64(0):
            sort_by_digit(keys, size, shift, others, counts)
            keys, others = others, keys
            shift += np.uint64(DIGIT)
        for k in range(size):
            at = np.uint64(k)
            indices[begin + at] = np.uint32((keys[at] >> np.uint64(32)) & np.uint64((1 << bits) - 1))
            values[begin + at] = copied[keys[at] & low]
        row = after


@kernel
def largest_of_rows(indptr: NDArray[np.uint64], values: Values, out: Vector) -> None:
    """max_j |x_ij| of every row; shape (n,), 0 without entries."""
    for i in range(len(out)):
        largest = 0.0
        j = indptr[np.uint64(i)]
        while j < indptr[np.uint64(i) + np.uint64(1)]:
            largest = max(largest, abs(np.float64(values[j])))
            j += np.uint64(1)
        out[i] = largest


@kernel
def column(indices: NDArray[np.uint32], position: int, support: int) -> np.uint64:
    """The column of the entry at that position."""
    return np.uint64(indices[np.uint64(position)]) if len(indices) > 0 else np.uint64(position % support)


@kernel
def largest_of_columns(indices: NDArray[np.uint32], values: Values, out: Vector) -> None:
    """out[j] := max(out[j], max_i |x_ij|); shape (support,)."""
    for p in range(len(values)):
        j = column(indices, p, len(out))
        out[j] = max(out[j], abs(np.float64(values[np.uint64(p)])))


@kernel
def squares_of_columns(indices: NDArray[np.uint32], values: Values, out: Vector) -> None:
    """out[j] += sum_i x_ij^2; shape (support,)."""
    for p in range(len(values)):
        value = np.float64(values[np.uint64(p)])
        out[column(indices, p, len(out))] += value * value


@kernel
def divide_rows(indptr: NDArray[np.uint64], values: Values, divisors: Vector, out: Values) -> None:
    """out := every row of values over its divisor, unless that is 0."""
    for i in range(len(divisors)):
        divisor = divisors[i] if divisors[i] > 0.0 else 1.0
        j = indptr[np.uint64(i)]
        while j < indptr[np.uint64(i) + np.uint64(1)]:
            out[j] = np.float64(values[j]) / divisor
            j += np.uint64(1)


@kernel
def divide_columns(indices: NDArray[np.uint32], values: Values, divisors: Vector, out: Values) -> None:
    """out := every entry of values over the divisor of its column, unless that is 0."""
    for p in range(len(values)):
        divisor = divisors[column(indices, p, len(divisors))]
        out[np.uint64(p)] = np.float64(values[np.uint64(p)]) / (divisor if divisor > 0.0 else 1.0)
