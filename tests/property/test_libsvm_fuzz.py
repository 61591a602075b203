"""The parser against scikit-learn's on valid text, and against a slow parser written here on any bytes.

The slow parser shares no code, no regular expression and no float() with the one under test.
"""

import re
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_svmlight_file

from acccocoa.errors import AcccocoaError, DataError, ParseError
from acccocoa.examples import Examples
from acccocoa.libsvm import Dtype, parse, read, scan

# ------------------------------------------------------------------------------------------------------ the slow parser

DIGITS = frozenset("0123456789")
Row = tuple[float, str, list[int], list[float]]


def decimal(text: str) -> float | None:
    """The nearest float64 of a decimal number, None if the text is none."""
    sign = -1.0 if text[:1] == "-" else 1.0
    text = text[1:] if text[:1] in ("+", "-") else text
    mantissa, *exponents = text.replace("E", "e").split("e")
    whole, *fractions = mantissa.split(".")
    if len(exponents) > 1 or len(fractions) > 1:
        return None
    fraction = "".join(fractions)
    digits = whole + fraction
    power = 0
    if exponents:
        (exponent,) = exponents
        exponent = exponent[1:] if exponent[:1] in ("+", "-") else exponent
        if not exponent or not DIGITS.issuperset(exponent):
            return None
        power = int(exponents[0])
    if not digits or not DIGITS.issuperset(digits):
        return None
    power -= len(fraction)
    significant = digits.lstrip("0")
    if not significant or len(significant) + power < -330:
        return sign * 0.0
    if len(significant) + power > 310:
        return sign * float("inf")
    try:
        return sign * float(int(significant) * Fraction(10) ** power)
    except OverflowError:
        return sign * float("inf")


def slow_line(line: str, zero_based: bool, dtype: Dtype) -> Row | int | None:
    """A row, the column of the first fault, or None for a line without content."""
    at = 0
    tokens = []
    while at < len(line) and line[at] != "#":
        begin = at
        while at < len(line) and line[at] not in " \t#":
            at += 1
        if at > begin:
            tokens.append((begin + 1, line[begin:at]))
        elif line[at] in " \t":
            at += 1
    if not tokens:
        return None
    row: Row | None = None
    least = 0 if zero_based else 1
    for place, (column, token) in enumerate(tokens):
        for offset, character in enumerate(token):
            if character in "\0\r":
                return column + offset
        if place == 0:
            label = decimal(token)
            if label is None or abs(label) == float("inf"):
                return column
            row = label, token, [], []
            continue
        assert row is not None
        if place == 1 and token[:4] == "qid:":
            number = token[4:]
            number = number[1:] if number[:1] in ("+", "-") else number
            if not number or not DIGITS.issuperset(number):
                return column
            continue
        if ":" not in token:
            return column
        split = token.index(":")
        if split == 0 or not DIGITS.issuperset(token[:split]):
            return column
        index = int(token[:split])
        if index < least or index - (not zero_based) > 2**31 - 2:
            return column
        least = index + 1
        if split + 1 == len(token):
            return column + split
        value = decimal(token[split + 1 :])
        with np.errstate(over="ignore"):
            if value is None or np.isinf(dtype(value)):
                return column + split + 1
        row[2].append(index - (not zero_based))
        row[3].append(value)
    return row


def slow(data: bytes, zero_based: bool, dtype: Dtype) -> tuple[list[Row], list[tuple[int, int]]]:
    """Rows of a text, and line and column of the first fault of each other line."""
    rows: list[Row] = []
    faults: list[tuple[int, int]] = []
    for number, line in enumerate(data.decode("latin-1").split("\n"), 1):
        found = slow_line(line[:-1] if line[-1:] == "\r" else line, zero_based, dtype)
        if isinstance(found, int):
            faults.append((number, found))
        elif found:
            rows.append(found)
    return rows, faults


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def assert_is(examples: Examples, rows: list[Row], dtype: Dtype) -> None:
    assert same_bits(examples.labels, np.array([label for label, _, _, _ in rows], np.float64))
    spellings: dict[float, str] = {}
    for label, spelling, _, _ in rows:
        spellings.setdefault(label, spelling)
    assert examples.spellings == spellings
    assert examples.indptr.dtype == np.int64
    assert examples.indptr.tolist() == np.cumsum([0] + [len(indices) for _, _, indices, _ in rows]).tolist()
    assert examples.indices.dtype == np.int32
    assert examples.indices.tolist() == [index for _, _, indices, _ in rows for index in indices]
    assert same_bits(examples.values, np.array([value for _, _, _, values in rows for value in values]).astype(dtype))


# ------------------------------------------------------------------------------------------------------- valid spelling

signs = st.sampled_from(["", "", "+", "-"])
digits = st.text("0123456789", min_size=1, max_size=25)
exponents = st.one_of(
    st.just(""),
    st.builds("{}{}{}".format, st.sampled_from("eE"), signs, st.integers(0, 330)),
    st.builds("e{}{}".format, signs, st.text("0", min_size=1, max_size=5)),
)
odd_numbers = st.one_of(
    st.builds("{}{}{}".format, signs, digits, exponents),
    st.builds("{}{}.{}{}".format, signs, digits, digits, exponents),
    st.builds("{}{}.{}".format, signs, digits, exponents),
    st.builds("{}.{}{}".format, signs, digits, exponents),
)
floats = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def beside_half_way(draw: st.DrawFn) -> str:
    """A number in the middle of two float64, exactly or but for its last digit."""
    value = draw(st.floats(min_value=0, max_value=1e300))
    between = (Fraction(value) + Fraction(float(np.nextafter(value, np.inf)))) / 2
    power = between.denominator.bit_length() - 1
    last = draw(st.sampled_from([0, 1, -1]))
    return f"{int(between * 10**power) * 10 + last}e-{power + 1}"


numbers = st.one_of(
    odd_numbers, floats.map(repr), floats.map("{:.17g}".format), floats.map("{:.25g}".format), beside_half_way()
)
finite_numbers = numbers.filter(lambda text: np.isfinite(float(text)))
blanks = st.text(" \t", min_size=1, max_size=3)
maybe_blanks = st.text(" \t", max_size=2)
comments = st.one_of(st.just(""), st.just(""), st.text("ab1: #\t\r", max_size=6).map("#{}".format))
line_ends = st.sampled_from(["\n", "\n", "\r\n"])


@st.composite
def lines(draw: st.DrawFn) -> str:
    if draw(st.integers(0, 9)) == 0:
        return draw(maybe_blanks) + draw(comments) + draw(line_ends)
    parts = [draw(maybe_blanks), draw(finite_numbers)]
    if draw(st.integers(0, 5)) == 0:
        parts += [draw(blanks), f"qid:{draw(st.integers(-5, 10**6))}"]
    indices = draw(st.lists(st.one_of(st.integers(1, 50), st.integers(1, 2**31 - 1)), max_size=8, unique=True))
    for index in sorted(indices):
        parts += [draw(blanks), "0" * draw(st.sampled_from([0, 0, 0, 3, 20])), f"{index}:", draw(finite_numbers)]
    return "".join([*parts, draw(maybe_blanks), draw(comments), draw(line_ends)])


@st.composite
def valid_texts(draw: st.DrawFn) -> bytes:
    text = "".join(draw(st.lists(lines(), min_size=1, max_size=8)))
    if draw(st.booleans()):
        text = text.removesuffix("\n")
    return text.encode()


block_sizes = st.sampled_from([1, 2, 7, 30, 200, 1 << 16])
thread_numbers = st.sampled_from([1, 1, 2])


@settings(max_examples=200, deadline=None)
@given(data=valid_texts(), block_bytes=block_sizes, threads=thread_numbers)
def test_as_scikit_learn(data: bytes, block_bytes: int, threads: int) -> None:
    data += b"\n1 1:1\n"  # scikit-learn wants an example
    examples = parse(data, dtype=np.float64, block_bytes=block_bytes, threads=threads)
    matrix, labels = load_svmlight_file(BytesIO(data), dtype=np.float64, zero_based=False)
    assert same_bits(examples.labels, labels)
    assert same_bits(examples.values, matrix.data)
    assert examples.indices.tolist() == matrix.indices.tolist()
    assert examples.indptr.tolist() == matrix.indptr.tolist()
    assert examples.d == matrix.shape[1]


@settings(max_examples=200, deadline=None)
@given(tokens=st.lists(numbers, min_size=10, max_size=40))
def test_numbers_are_rounded_to_nearest(tokens: list[str]) -> None:
    tokens = [token for token in tokens if np.isfinite(float(token))]
    text = "".join(f"0 1:{token}\n" for token in tokens) or "0"
    expected = np.array([float(token) for token in tokens], np.float64)
    assert same_bits(parse(text.encode(), dtype=np.float64).values, expected)
    assert expected.tolist() == [decimal(token) for token in tokens]  # the oracle below is right, too


# ------------------------------------------------------------------------------------------------------------ any bytes

pieces = st.one_of(
    st.sampled_from(
        [b"1", b"-1", b"0", b"9", b":", b".", b" ", b"\t", b"\n", b"\r", b"\r\n", b"#", b"\0", b"e", b"E", b"+", b"-",
         b",", b"nan", b"inf", b"0x1", b"1_0", b"qid:", b"qid:1", b" qid:2 ", b"1e39", b"1e999", b"\xef\xbb\xbf",
         b"\x0b", b"\xff", b"1 1:2", b"1 1:1 2:2 3:3\n", b" 5:", b" 1:", b" 0:1", b" 2147483647:1", b" 2147483648:1",
         b"-0", b"3.4028235677973366e38", b"9007199254740993.00000000000000000000000001", b" 18446744073709551617:1",
         b"1e100000", b"0e999999"]
    ),
    st.binary(max_size=3),
)  # fmt: skip


@st.composite
def mutated_texts(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(valid_texts()))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.sampled_from([0, 0, 1, 1, 3])))
        data[begin:end] = draw(pieces)
    return bytes(data)


texts = st.one_of(st.binary(max_size=60), st.lists(pieces, max_size=30).map(b"".join), mutated_texts())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "text"


COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")
"""What begins like that is decompressed first."""


def check(path: Path, data: bytes, zero_based: bool, dtype: Dtype, block_bytes: int, threads: int) -> None:
    """The reader finds in any bytes what the slow parser does: the examples, or every fault at its place."""
    rows, faults = slow(data, zero_based, dtype)
    path.write_bytes(data)
    found: list[ParseError] = []

    def scanned() -> Examples:
        return scan(
            [str(path)], found.append, zero_based=zero_based, dtype=dtype, block_bytes=block_bytes, threads=threads
        )

    def whole() -> Examples:
        return read([str(path)], zero_based=zero_based, dtype=dtype, block_bytes=block_bytes, threads=threads)

    if rows or faults:
        assert_is(scanned(), rows, dtype)
        assert [(fault.line, fault.column) for fault in found] == faults
        text_lines = data.split(b"\n")
        for fault in found:
            assert 1 <= fault.column <= len(text_lines[fault.line - 1])
            assert str(fault).isprintable()
    else:
        with pytest.raises(DataError, match=re.escape(f"{path}: there is no example")):
            scanned()
    if faults:
        with pytest.raises(ParseError) as raised:
            whole()
        assert (raised.value.line, raised.value.column) == faults[0]
        assert str(raised.value) == str(found[0])
    elif rows:
        assert_is(whole(), rows, dtype)


@settings(max_examples=400, deadline=None)
@given(
    data=texts,
    zero_based=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
    block_bytes=block_sizes,
    threads=thread_numbers,
)
def test_as_the_slow_parser(
    path: Path, data: bytes, zero_based: bool, dtype: Dtype, block_bytes: int, threads: int
) -> None:
    assume(not data.startswith(COMPRESSED))
    check(path, data, zero_based, dtype, block_bytes, threads)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200), suffix=st.sampled_from(["gz", "bz2", "xz", "zst"]), threads=thread_numbers)
def test_no_bytes_are_more_than_an_error(path: Path, data: bytes, suffix: str, threads: int) -> None:
    magic = {"gz": b"\x1f\x8b\x08", "bz2": b"BZh9", "xz": b"\xfd7zXZ\0", "zst": b"\x28\xb5\x2f\xfd"}[suffix]
    compressed = path.with_suffix(f".{suffix}")
    for content in (data, magic + data):
        compressed.write_bytes(content)
        try:
            read([str(compressed)], threads=threads)
        except AcccocoaError as error:
            assert isinstance(error, DataError)  # noqa: PT017  # anything else fails the test
