"""The compiled loops of acccocoa.synthetic: rows of synthetic data, and their LIBSVM text.

All in one file, because numba's disk cache does not notice a change in another one. Every row has a random stream of
its own, seeded from (key, row), so that any range of rows can be made alone. Only integer arithmetic and + - * / sqrt
are used here: the same key gives the same bits on every machine.

A value is an integer q that stands for the decimal number q / 10**decimals, in memory and in text alike.

The kernels trust their arguments; `examples` and `write` are the callers that check.
"""

import numpy as np
from numpy.typing import NDArray

from acccocoa.compiling import compiled

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

TF_IDF, BINARY, GAUSSIAN = 0, 1, 2
"""How sparse_rows makes values: unit rows of weights; 1 except for the popular features; bell-shaped of either sign."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
LOW_16 = np.uint64(0xFFFF)
LOW_24 = np.uint64(0xFFFFFF)
LOW_32 = np.uint64(0xFFFFFFFF)
ZERO, ONE, TWO, TEN, HUNDRED = (np.uint64(number) for number in (0, 1, 2, 10, 100))
B8, B16, B20, B27, B30, B31, B32, B33, B48, B56 = (np.uint64(b) for b in (8, 16, 20, 27, 30, 31, 32, 33, 48, 56))
PLUS, MINUS, POINT, SPACE, COLON, LINE_FEED, CHAR_0 = (np.uint8(byte) for byte in b"+-. :\n0")
TWO_32 = 4294967296.0
BELL_MEAN = 131070.0
BELL_STD = 37837.2270  # of the sum of four numbers uniform on 0 .. 65535


@compiled
def mix(x: np.uint64) -> np.uint64:
    """Scramble 64 bits (the finaliser of SplitMix64)."""
    x = (x ^ (x >> B30)) * MIX_1
    x = (x ^ (x >> B27)) * MIX_2
    return x ^ (x >> B31)


@compiled
def bell(bits: np.uint64) -> float:
    """Turn 64 random bits into a nearly normal number: mean 0, variance 1, at most 3.47 in size."""
    total = (bits & LOW_16) + ((bits >> B16) & LOW_16) + ((bits >> B32) & LOW_16) + (bits >> B48)
    return (np.float64(total) - BELL_MEAN) / BELL_STD


@compiled
def rounded(x: float) -> int:
    """Round to the nearest integer, halves up."""
    return int(np.floor(x + 0.5))


@compiled
def sparse_rows(
    key: np.uint64,
    first: int,
    last: int,
    d: np.uint64,
    multiplier: np.uint64,
    offset: np.uint64,
    lengths: I32,
    alias_cut: U32,
    alias_other: U32,
    bin_start: U64,
    bin_width: U64,
    raw: F64,
    kind: int,
    real_bins: np.uint64,
    unit: float,
    tilt: int,
    positive: np.uint64,
    flip: np.uint64,
    stories: float,
    loyal: np.uint64,
    closest: float,
    relevant: np.uint64,
    noise: float,
    table: U64,
    indptr: I64,
    indices: I32,
    values: I32,
    labels: I64,
) -> int:
    """Make rows first, first + 1, ... of a sparse set until `last` or until `indices` is full; return how many.

    A row draws a story, a class and then, one after the other, pairs of features by popularity; which member of the
    pair it gets leans towards the class. Features met again are dropped. Some draws repeat those of the story, so that
    rows of one story resemble each other: it is near duplicates that make real text hard for coordinate descent.

    Parameters
    ----------
    key : seeds the rows and the planted weights
    d, multiplier, offset : feature number = (rank * multiplier + offset) mod d; rank 0 is the most popular
    lengths : shape (257,), quantiles of the number of non-zeros in a row
    alias_cut, alias_other : shape (256,), alias table over the bins of ranks of pairs
    bin_start, bin_width : shape (256,), the ranks in a bin
    raw : shape (256 * 8,), TF_IDF: weight by bin and term frequency
    kind, real_bins : TF_IDF, BINARY (features of the first real_bins bins have fractional values) or GAUSSIAN
    unit : 10**decimals
    tilt : how far the choice within a pair leans towards the class, times 2**16
    positive, flip : probabilities times 2**32 of class +1 and of a wrong label
    stories : number of stories; story i has a share proportional to about i ** (-2/3)
    loyal : probability times 2**32 that a row is of its story's class
    closest : a row repeats the story in the share closest * (1 - u**2) of its draws, u uniform; below 1
    relevant, noise : GAUSSIAN: share of pairs with a planted weight, times 2**32, and deviation of the target's noise
    table : scratch, all EMPTY, which is also how it is left; 5 * max(lengths) + 8 or more
    indptr, indices, values, labels : results; indptr[0] = 0, labels are the class, or for GAUSSIAN the target * unit
    """
    capacity = len(indices) - lengths[-1]
    weights_key = mix(key ^ GOLDEN)
    nnz = 0
    row = first
    while row < last and nnz <= capacity:
        state = mix(key + np.uint64(row) * GOLDEN)
        state += GOLDEN
        bits = mix(state)
        cell = bits >> B56
        low = np.int64(lengths[cell])
        high = np.int64(lengths[cell + ONE])
        length = low + np.int64((((bits >> B32) & LOW_16) * np.uint64(high - low)) >> B16)
        drawn_class = bits & LOW_32
        state += GOLDEN
        bits = mix(state)
        u = np.float64(bits >> B32) / TWO_32
        story = mix(weights_key + np.uint64(stories * u * u * u))
        if (bits & LOW_32) < loyal:
            drawn_class = mix(story) & LOW_32
        label = 1 if drawn_class < positive else -1
        state += GOLDEN
        u = np.float64(mix(state) >> B32) / TWO_32
        likeness = np.uint64(closest * (1.0 - u * u) * TWO_32)
        slots = ONE
        while slots < TWO * np.uint64(length):
            slots *= TWO
        scale = (slots << B32) // d
        target = 0.0
        found = 0
        attempts = 16 * length + 64
        while found < length and attempts > 0:
            attempts -= 1
            state += GOLDEN
            story += GOLDEN
            bits = mix(state)
            if (bits >> B32) < likeness:
                bits = story
            bits = mix(bits)
            cell = bits >> B56
            if ((bits >> B32) & LOW_24) >= np.uint64(alias_cut[cell]):
                cell = np.uint64(alias_other[cell])
            pair = bin_start[cell] + (((bits & LOW_32) * bin_width[cell]) >> B32)
            bits = mix(bits ^ GOLDEN)
            weight = mix(weights_key + pair * GOLDEN)
            lean = ((np.int64(weight >> B33) - 1073741824) * tilt) >> 15
            member = ZERO if np.int64(bits >> B32) < 2147483648 + label * lean else ONE
            feature = ((TWO * pair + member) * multiplier + offset) % d
            if kind == TF_IDF:
                payload = cell * B8 + np.uint64(TERM_FREQUENCY[bits & np.uint64(15)])
            elif kind == BINARY:
                if cell < real_bins:
                    payload = ONE + (((bits & LOW_24) * np.uint64(unit)) >> np.uint64(24))
                else:
                    payload = np.uint64(unit)
            else:
                quantum = rounded(bell(mix(bits)) * unit)
                payload = np.uint64(quantum + 2147483648)
            # the table is kept in ascending order: linear probing, with a hash that grows with the feature number
            entry = (feature << B32) | payload
            slot = (feature * scale) >> B32
            while (table[slot] >> B32) < feature:
                slot += ONE
            if (table[slot] >> B32) == feature:
                continue
            while entry != EMPTY:
                entry, table[slot] = table[slot], entry
                slot += ONE
            found += 1
            if kind == GAUSSIAN and (weight & LOW_32) < relevant:
                sign = 1.0 if (weight >> B33) & ONE == member else -1.0
                target += sign * np.float64(quantum)
        # read the row off the table
        slot = ZERO
        end = nnz + found
        squares = 0.0
        position = nnz
        while position < end:
            entry = table[slot]
            if entry != EMPTY:
                table[slot] = EMPTY
                indices[position] = np.int32(entry >> B32)
                payload = entry & LOW_32
                if kind == TF_IDF:
                    values[position] = np.int32(payload)
                    squares += raw[payload] * raw[payload]
                else:
                    values[position] = np.int32(np.int64(payload) - (2147483648 if kind == GAUSSIAN else 0))
                position += 1
            slot += ONE
        if kind == TF_IDF:
            factor = unit / np.sqrt(squares)
            for position in range(nnz, end):
                values[position] = np.int32(max(1, rounded(raw[values[position]] * factor)))
        state += GOLDEN
        bits = mix(state)
        if kind == GAUSSIAN:
            labels[row - first] = rounded(target + bell(bits) * noise * unit)
        else:
            labels[row - first] = -label if (bits & LOW_32) < flip else label
        nnz = end
        row += 1
        indptr[row - first] = nnz
    return row - first


TERM_FREQUENCY = np.array([0] * 9 + [1] * 4 + [2, 2, 3], dtype=np.uint8)
"""Which of the term frequencies 1 .. 4 (less one) each of 16 equally likely draws stands for."""


@compiled
def dense_rows(
    key: np.uint64,
    first: int,
    last: int,
    weights: F64,
    carry: float,
    unit: float,
    noise: float,
    row_values: F64,
    indptr: I64,
    indices: I32,
    values: I32,
    labels: I64,
) -> int:
    """Make unit rows first, first + 1, ... without a zero until `last` or until `indices` is full; return how many.

    Neighbouring features are correlated (`carry`); the label is the sign of <weights, row> + noise.
    Other parameters: see sparse_rows; row_values is scratch, shape (d,).
    """
    d = len(weights)
    fresh = np.sqrt(1.0 - carry * carry)
    nnz = 0
    row = first
    while row < last and nnz + d <= len(indices):
        state = mix(key + np.uint64(row) * GOLDEN)
        squares = 0.0
        margin = 0.0
        value = 0.0
        for j in range(d):
            state += GOLDEN
            gauss = bell(mix(state))
            value = gauss if j == 0 else carry * value + fresh * gauss
            row_values[j] = value
            squares += value * value
            margin += value * weights[j]
        norm = np.sqrt(squares)
        factor = unit / norm
        for j in range(d):
            quantum = rounded(row_values[j] * factor)
            indices[nnz + j] = np.int32(j)
            values[nnz + j] = np.int32(quantum if quantum != 0 else 1)
        state += GOLDEN
        labels[row - first] = 1 if margin + noise * bell(mix(state)) > 0.0 else -1
        nnz += d
        row += 1
        indptr[row - first] = nnz
    return row - first


@compiled
def covtype_rows(
    key: np.uint64,
    first: int,
    last: int,
    means: F64,
    spread: F64,
    numeric_weights: F64,
    area_cut: F64,
    area_weights: F64,
    soil_cut: F64,
    soil_weights: F64,
    unit: float,
    noise: float,
    threshold: float,
    indptr: I64,
    indices: I32,
    values: I32,
    labels: I64,
    margins: F64,
) -> int:
    """Make rows first, first + 1, ... of ten numbers and two one-hot groups; return how many (until `indices` is full).

    Parameters
    ----------
    means, spread : shapes (10,) and (10, 10): numbers = means + spread @ (normal numbers), reflected into [0, 1]
    area_cut, soil_cut : ascending cuts between the categories, on the scale of a normal number
    numeric_weights, area_weights, soil_weights : the planted model, for the numbers' normal sources and the categories
    noise, threshold : the label is the sign of margin + noise - threshold
    margins : shape (last - first,), the margins with noise; other parameters: see sparse_rows
    """
    numbers = len(means)
    source = np.empty(numbers, np.float64)
    top = np.int64(unit)
    nnz = 0
    row = first
    while row < last and nnz + numbers + 2 <= len(indices):
        state = mix(key + np.uint64(row) * GOLDEN)
        margin = 0.0
        for j in range(numbers):
            state += GOLDEN
            source[j] = bell(mix(state))
            margin += numeric_weights[j] * source[j]
            x = means[j]
            for i in range(j + 1):
                x += spread[j, i] * source[i]
            x = abs(x)
            if x > 1.0:
                x = 2.0 - x
            quantum = max(0, rounded(x * unit))
            if quantum != 0:
                indices[nnz] = np.int32(j)
                values[nnz] = np.int32(quantum)
                nnz += 1
        # both groups go with the height, the first number
        state += GOLDEN
        area = np.searchsorted(area_cut, 0.6 * source[0] + 0.8 * bell(mix(state)))
        state += GOLDEN
        soil = np.searchsorted(soil_cut, 0.8 * source[0] + 0.6 * bell(mix(state)))
        margin += area_weights[area] + soil_weights[soil]
        indices[nnz] = np.int32(numbers + area)
        values[nnz] = np.int32(top)
        indices[nnz + 1] = np.int32(numbers + len(area_weights) + soil)
        values[nnz + 1] = np.int32(top)
        nnz += 2
        state += GOLDEN
        margin += noise * bell(mix(state))
        margins[row - first] = margin
        labels[row - first] = 1 if margin > threshold else -1
        row += 1
        indptr[row - first] = nnz
    return row - first


PAIRS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint8).copy()
"""The numbers 00 .. 99 in digits."""


@compiled
def put_digits(out: U8, at: np.uint64, number: np.uint64, digits: np.uint64) -> None:
    """Write `number` with that many digits at out[at]."""
    end = at + digits
    while end >= at + TWO:
        rest = number // HUNDRED
        two = TWO * (number - rest * HUNDRED)
        out[end - ONE] = PAIRS[two + ONE]
        out[end - TWO] = PAIRS[two]
        number = rest
        end -= TWO
    if end > at:
        out[at] = np.uint8(CHAR_0 + number)


@compiled
def put_integer(out: U8, at: np.uint64, number: np.uint64) -> np.uint64:
    """Write a number below 10**19 at out[at]; return the position behind it."""
    digits = ONE
    bound = TEN
    while number >= bound:
        digits += ONE
        bound *= TEN
    put_digits(out, at, number, digits)
    return at + digits


@compiled
def put_decimal(out: U8, at: np.uint64, quantum: int, decimals: np.uint64, unit: np.uint64) -> np.uint64:
    """Write quantum / 10**decimals without trailing zeros at out[at]; return the position behind it."""
    size = np.uint64(abs(quantum))
    if quantum < 0:
        out[at] = MINUS
        at += ONE
    if size < unit:
        rest = size
        out[at] = CHAR_0
        at += ONE
    else:
        whole = size // unit
        rest = size - whole * unit
        at = put_integer(out, at, whole)
    if rest == ZERO:
        return at
    out[at] = POINT
    put_digits(out, at + ONE, rest, decimals)
    at += decimals
    while out[at] == CHAR_0:
        at -= ONE
    return at + ONE


@compiled
def format_rows(indptr: I64, indices: I32, values: I32, labels: I64, classes: bool, decimals: int, out: U8) -> int:
    """Write rows as LIBSVM text into `out`; return the number of bytes.

    Parameters
    ----------
    indptr, indices, values, labels : as the row kernels left them; labels has one element a row
    classes : labels are -1 and +1, else numbers times 10**decimals
    out : uint8, 32 bytes a row and 26 bytes an entry are enough
    """
    places = np.uint64(decimals)
    unit = ONE
    for _ in range(decimals):
        unit *= TEN
    at = ZERO
    position = np.uint64(indptr[0])
    for row in range(len(labels)):
        if classes:
            out[at] = PLUS if labels[row] > 0 else MINUS
            out[at + ONE] = np.uint8(CHAR_0 + ONE)
            at += TWO
        else:
            at = put_decimal(out, at, labels[row], places, unit)
        end = np.uint64(indptr[row + 1])
        while position < end:
            out[at] = SPACE
            at = put_integer(out, at + ONE, np.uint64(indices[position]) + ONE)
            out[at] = COLON
            at = put_decimal(out, at + ONE, int(values[position]), places, unit)
            position += ONE
        out[at] = LINE_FEED
        at += ONE
    return int(at)
