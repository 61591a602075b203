"""From LIBSVM text to numbers: every compiled function of the parser, in one file.

`parse_lines` knows only well-formed lines. At the first line it cannot vouch for it stops and says where, and
`acccocoa.libsvm` takes that line: one of the rare numbers whose rounding needs more than 19 digits, or a fault.

Numbers are rounded correctly: up to 2**53 times or over a power of ten up to 10**22 by one exact operation (Clinger
1990), anything else from 128-bit powers of five (Lemire 2021, "Number parsing at a gigabyte per second"; Mushtak and
Lemire 2023, "Fast number parsing without fallback").

Positions and feature numbers are unsigned: numba tests every signed subscript for a negative value.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from acccocoa.compiling import compiled

LABEL_SLOTS: Final = 4096
"""Size of the hash table of labels, a power of two, well above the number of labels it may hold."""

POSITION, ROWS, ENTRIES, LINES, LABELS = range(5)
"""What the elements of `progress` count; see `parse_lines`."""

_Text = NDArray[np.uint8]
_Table = NDArray[np.uint64]


# ------------------------------------------------------------------------------------------------ machine instructions


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function known to numba that writes its own code."""
    made: Callable[..., Any] = intrinsic(function)
    return made


@_instruction
def _bits_to_float(typing: Any, bits: Any) -> Any:
    """The float64 whose representation is the given uint64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), code


@_instruction
def _float_to_bits(typing: Any, value: Any) -> Any:
    """The representation of a float64 as uint64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.uint64(types.float64), code


@_instruction
def _high_product(typing: Any, a: Any, b: Any) -> Any:
    """The upper half of the 128-bit product of two uint64 (the lower half is a * b)."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), code


@_instruction
def _leading_zeros(typing: Any, bits: Any) -> Any:
    """Number of zero bits above the highest one bit of a uint64 that is not 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), code


# ------------------------------------------------------------------------------------------------------------- numbers


def powers_of_five() -> NDArray[np.uint64]:
    """The table for `parse_lines`: uint64, shape (651, 2).

    Row q + 342 holds the upper and lower half of the 128 leading bits of 5**q, q from -342 to 308; cut off for q >= 0,
    rounded up for q < 0.
    """
    table = np.empty((651, 2), np.uint64)
    for q in range(-342, 309):
        power = 5 ** abs(q)
        if q < 0:
            # 2**shift / power has at least 128 bits; more of them for small q, where the rounding up must be finer
            bits = (power - 1).bit_length()
            leading = (1 << (bits + 127 if q >= -27 else 2 * bits + 128)) // power + 1
        else:
            leading = power << 128
        leading >>= max(leading.bit_length() - 128, 0)
        table[q + 342] = leading >> 64, leading & 0xFFFFFFFFFFFFFFFF
    return table


_U0, _U1, _U2, _U3, _U4, _U9, _U10 = (np.uint64(i) for i in (0, 1, 2, 3, 4, 9, 10))
_U19, _U52, _U63, _U64 = (np.uint64(i) for i in (19, 52, 63, 64))
_DIGIT_0 = np.uint64(ord("0"))
_LOWER_CASE = np.uint64(0x20)
_IMPLICIT_BIT = np.uint64(1 << 52)
_TWO_53 = np.uint64(1 << 53)
_LOW_9_BITS = np.uint64(0x1FF)
_SIGN_BIT = np.uint64(1 << 63)
_EXACT_TENS = np.array([10.0**i for i in range(23)])
_EXPONENT_CAP = np.int64(100_000)
_LF, _CR, _TAB, _SPACE, _HASH, _PLUS, _MINUS, _DOT, _COLON = (np.uint8(ord(c)) for c in "\n\r\t #+-.:")
_Q, _I, _D, _E = (np.uint8(ord(c)) for c in "qide")


@compiled
def _scaled(w: np.uint64, q: np.int64, fives: _Table) -> float:
    """The float64 nearest to w * 10**q (inf beyond the largest), w uint64, q int64: the algorithm of Lemire."""
    if w == _U0 or q < -342:
        return 0.0
    if q > 308:
        return np.inf
    shift = _leading_zeros(w)
    w <<= shift
    row = np.uint64(q + 342)
    five = fives[row, _U0]
    high = _high_product(w, five)
    low = w * five
    if (high & _LOW_9_BITS) == _LOW_9_BITS:
        more = _high_product(w, fives[row, _U1])
        low += more
        if low < more:
            high += _U1
    upper = high >> _U63
    kept = upper + _U9
    mantissa = high >> kept
    exponent = ((np.int64(217706) * q) >> 16) + 63 + np.int64(upper) - np.int64(shift) + 1023
    if exponent <= 0:
        down = np.uint64(1 - exponent)
        if down >= _U64:
            return 0.0
        mantissa >>= down
        mantissa += mantissa & _U1
        tiny: float = _bits_to_float(mantissa >> _U1)
        return tiny
    if low <= _U1 and q >= -4 and q <= 23 and (mantissa & _U3) == _U1 and (mantissa << kept) == high:
        mantissa -= _U1  # exactly half way between two numbers: to the even one
    mantissa += mantissa & _U1
    mantissa >>= _U1
    if exponent >= 0x7FF:
        return np.inf
    # a mantissa rounded up to 2**53 carries into the exponent, as it should
    value: float = _bits_to_float((np.uint64(exponent) << _U52) + mantissa - _IMPLICIT_BIT)
    return value


@compiled
def _leading_digits(text: _Text, at: np.uint64, end: np.uint64) -> tuple[np.uint64, np.int64, bool]:
    """The first 19 significant digits in text[at:end], which holds digits and at most one point.

    Returns
    -------
    w (uint64), q (int64), cut (bool) : the number is w * 10**q, or above that and below (w + 1) * 10**q if cut
    """
    w = _U0
    q = np.int64(0)
    significant = _U0
    cut = False
    fraction = False
    while at < end:
        c = text[at]
        at += _U1
        if c == _DOT:
            fraction = True
            continue
        digit = np.uint64(c) - _DIGIT_0
        if significant < _U19:
            w = w * _U10 + digit
            if w > _U0:
                significant += _U1
            if fraction:
                q -= 1
        else:
            if digit > _U0:
                cut = True
            if not fraction:
                q += 1
    return w, q, cut


@compiled
def _number(text: _Text, at: np.uint64, fives: _Table) -> tuple[np.uint64, float]:
    """The decimal number that begins at text[at].

    Returns
    -------
    end (uint64), value (float64) : the position behind it and the nearest float64 (inf beyond the largest); end is 0
        when there is no number there, or its rounding needs more than 19 digits
    """
    c = text[at]
    minus = c == _MINUS
    if minus or c == _PLUS:
        at += _U1
    begin = at
    w = _U0
    while True:
        digit = np.uint64(text[at]) - _DIGIT_0
        if digit > _U9:
            break
        w = w * _U10 + digit
        at += _U1
    digits = at - begin
    q = np.int64(0)
    if text[at] == _DOT:
        at += _U1
        point = at
        while True:
            digit = np.uint64(text[at]) - _DIGIT_0
            if digit > _U9:
                break
            w = w * _U10 + digit
            at += _U1
        digits += at - point
        q = -np.int64(at - point)
    if digits == _U0:
        return _U0, 0.0
    cut = False
    if digits > _U19:
        w, q, cut = _leading_digits(text, begin, at)
    if (np.uint64(text[at]) | _LOWER_CASE) == np.uint64(_E):
        at += _U1
        c = text[at]
        down = c == _MINUS
        if down or c == _PLUS:
            at += _U1
        begin = at
        power = np.int64(0)
        while True:
            digit = np.uint64(text[at]) - _DIGIT_0
            if digit > _U9:
                break
            if power < _EXPONENT_CAP:
                power = power * 10 + np.int64(digit)
            at += _U1
        if at == begin or power >= _EXPONENT_CAP:
            return _U0, 0.0
        q += -power if down else power
    if w <= _TWO_53 and q >= -22 and q <= 22 and not cut:
        value = float(np.int64(w))
        if q < 0:
            value /= _EXACT_TENS[np.uint64(-q)]
        else:
            value *= _EXACT_TENS[np.uint64(q)]
    else:
        value = _scaled(w, q, fives)
        if cut and _scaled(w + _U1, q, fives) != value:
            return _U0, 0.0
    return at, -value if minus else value


# --------------------------------------------------------------------------------------------------------------- lines


@compiled
def _count_label(
    value: float,
    begin: np.uint64,
    end: np.uint64,
    slots: NDArray[np.uint16],
    label_values: NDArray[np.float64],
    label_places: _Table,
    labels: np.uint64,
) -> np.uint64:
    """Note where a label value is first met.

    Returns
    -------
    The new number of labels noted, at most one more than there is room for.
    """
    room = np.uint64(len(label_values))
    value += 0.0  # -0.0 is 0.0
    bits = _float_to_bits(value)
    slot = (bits * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(52)
    while True:
        known = np.uint64(slots[slot])
        if known == _U0:
            if labels < room:
                label_values[labels] = value
                label_places[labels, _U0] = begin
                label_places[labels, _U1] = end
                slots[slot] = labels + _U1
            return labels + _U1
        if label_values[known - _U1] == value:
            return labels
        slot = (slot + _U1) & np.uint64(LABEL_SLOTS - 1)


@compiled
def _past_blanks(text: _Text, at: np.uint64) -> np.uint64:
    """The first position from `at` on that holds neither space nor tab."""
    while text[at] == _SPACE or text[at] == _TAB:
        at += _U1
    return at


@compiled
def _ends_line(text: _Text, at: np.uint64) -> bool:
    """Whether text[at] is where the content of a line may end: LF, CR LF, or a comment."""
    c = text[at]
    return bool(c == _LF or c == _HASH or (c == _CR and text[at + _U1] == _LF))  # noqa: SIM109  # slower in numba


@compiled
def _past_query(text: _Text, at: np.uint64) -> np.uint64:
    """The position behind a query number, qid:N, that begins at text[at]; `at` if there is none."""
    if text[at] != _Q or text[at + _U1] != _I or text[at + _U2] != _D or text[at + _U3] != _COLON:
        return at
    end = at + _U4
    if text[end] == _MINUS or text[end] == _PLUS:
        end += _U1
    digits = end
    while np.uint64(text[end]) - _DIGIT_0 <= _U9:
        end += _U1
    return end if end > digits else at


@compiled
def _entries(
    text: _Text,
    at: np.uint64,
    first_index: np.uint64,
    last_index: np.uint64,
    limit: float,
    fives: _Table,
    indices: NDArray[np.int32],
    values: NDArray[np.float32] | NDArray[np.float64],
    entry: np.uint64,
) -> tuple[np.uint64, np.uint64]:
    """Store the entries, each after a blank, that begin at text[at], from place `entry` on.

    Returns
    -------
    end (uint64), entry (uint64) : where the content of the line ends, and the next free place; end is 0 if there is
        more than entries
    """
    least = first_index
    while True:
        begin = _past_blanks(text, at)
        if _ends_line(text, begin):
            return begin, entry
        if begin == at:
            return _U0, entry
        at = begin
        index = _U0
        while True:
            digit = np.uint64(text[at]) - _DIGIT_0
            if digit > _U9:
                break
            index = index * _U10 + digit
            at += _U1
        if text[at] != _COLON or at == begin or at - begin > _U19 or index < least or index > last_index:
            return _U0, entry
        least = index + _U1
        at, value = _number(text, at + _U1, fives)
        if at == _U0 or not np.abs(value) < limit:
            return _U0, entry
        indices[entry] = index - first_index
        values[entry] = value
        entry += _U1


@compiled
def parse_lines(
    text: _Text,
    size: np.uint64,
    first_index: np.uint64,
    last_index: np.uint64,
    limit: float,
    fives: _Table,
    row_ends: NDArray[np.int64],
    labels: NDArray[np.float64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32] | NDArray[np.float64],
    slots: NDArray[np.uint16],
    label_values: NDArray[np.float64],
    label_places: _Table,
    progress: NDArray[np.uint64],
) -> None:
    """Parse lines from text[progress[POSITION]:size] until the end or a line that only `acccocoa.libsvm` can judge.

    Parameters
    ----------
    text : uint8; text[size - 1] is a line feed, beyond which nothing is looked at
    size, first_index, last_index : uint64; indices in the text run from first_index (0 or 1) to last_index
    limit : float64; a value's magnitude must be below this
    fives : `powers_of_five()`
    row_ends, labels : int64 and float64, room for a row per two bytes; row i's entries end at row_ends[i]
    indices, values : int32 and float32 or float64, room for an entry per four bytes; the indices 0-based
    slots : uint16, shape (LABEL_SLOTS,), a hash table, all 0 for a new text
    label_values, label_places : float64, shape (m,), and uint64, shape (m, 2): the first m distinct labels, and in
        which bytes, text[begin:end], each was met first
    progress : uint64, shape (5,), advanced in place: the POSITION in text, numbers of ROWS and ENTRIES stored, of
        LINES passed and of distinct LABELS (m + 1 stands for all above m)

    On return progress[POSITION] is size, or the beginning of the line not understood, nothing of which is counted.
    """
    position = progress[POSITION]
    rows = progress[ROWS]
    entries = progress[ENTRIES]
    lines = progress[LINES]
    distinct = progress[LABELS]
    last_label = np.nan
    while position < size:
        begin = _past_blanks(text, position)
        if _ends_line(text, begin):
            end = begin
        else:
            label_end, label = _number(text, begin, fives)
            if label_end == _U0 or not np.abs(label) < np.inf:
                break
            at = _past_blanks(text, label_end)
            if at > label_end:
                query_end = _past_query(text, at)
                at = label_end if query_end == at else query_end
            end, entry = _entries(text, at, first_index, last_index, limit, fives, indices, values, entries)
            if end == _U0:
                break
            entries = entry
            labels[rows] = label
            row_ends[rows] = entries
            rows += _U1
            if label != last_label:
                last_label = label
                if distinct <= np.uint64(len(label_values)):
                    distinct = _count_label(label, begin, label_end, slots, label_values, label_places, distinct)
        while text[end] != _LF:
            end += _U1
        position = end + _U1
        lines += _U1
    progress[POSITION] = position
    progress[ROWS] = rows
    progress[ENTRIES] = entries
    progress[LINES] = lines
    progress[LABELS] = distinct
