"""The rules of the format, each at its line and column, and everything around the text: files, streams, threads."""

import bz2
import gzip
import importlib
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from numpy.testing import assert_array_equal

from acccocoa import libsvm, libsvm_kernels
from acccocoa.errors import DataError, ParseError, UsageError
from acccocoa.examples import LABEL_SPELLINGS_KEPT, Examples
from acccocoa.libsvm import parse, read, scan, stream

TEXT = b"+1 1:0.5 3:-2e-1\n-1 2:4\n\n# nothing\n+1\n"


def assert_same(a: Examples, b: Examples) -> None:
    for name in ("indptr", "indices", "values", "labels"):
        assert_array_equal(getattr(a, name), getattr(b, name), strict=True)
    assert a.spellings == b.spellings


def rows(examples: Examples) -> list[tuple[float, dict[int, float]]]:
    """Label and entries of each example."""
    ends = examples.indptr.tolist()
    entries = list(zip(examples.indices.tolist(), examples.values.tolist(), strict=True))
    return [
        (label, dict(entries[begin:end]))
        for label, begin, end in zip(examples.labels.tolist(), ends[:-1], ends[1:], strict=True)
    ]


# ------------------------------------------------------------------------------------------------------------ the text


def test_arrays() -> None:
    examples = parse(TEXT)
    assert_array_equal(examples.indptr, np.array([0, 2, 3, 3], np.int64), strict=True)
    assert_array_equal(examples.indices, np.array([0, 2, 1], np.int32), strict=True)
    assert_array_equal(examples.values, np.array([0.5, -0.2, 4], np.float32), strict=True)
    assert_array_equal(examples.labels, np.array([1.0, -1.0, 1.0]), strict=True)
    assert examples.spellings == {1.0: "+1", -1.0: "-1"}
    assert parse(TEXT, dtype=np.float64).values.tolist() == [0.5, -0.2, 4.0]
    assert all(getattr(examples, name).flags.owndata for name in ("indptr", "indices", "values", "labels"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1 1:2", [(1, {0: 2})]),
        (b"1 1:2\r\n2 1:3\r\n", [(1, {0: 2}), (2, {0: 3})]),
        (b"1 1:2\r", [(1, {0: 2})]),
        (b" \t 1 \t  1:2\t2:3 \t \n", [(1, {0: 2, 1: 3})]),
        (b"1 1:2# 2:x\n2#\n3 #", [(1, {0: 2}), (2, {}), (3, {})]),
        (b"1 1:2 # \0 \r x\n", [(1, {0: 2})]),
        (b"\n\r\n  \n \t\r\n#x\n  # 1:2\n1\n", [(1, {})]),
        (b"+1 1:+.5 2:-5. 3:1E+2 4:1e-2 5:00.50", [(1, {0: 0.5, 1: -5, 2: 100, 3: 0.01, 4: 0.5})]),
        (b"-1.5e0\n-0\n", [(-1.5, {}), (0, {})]),
        (b"1 qid:7 1:2\n2 qid:-7\n3 qid:+1#\n", [(1, {0: 2}), (2, {}), (3, {})]),
        (b"1 007:1 0000000000000000000000009:2", [(1, {6: 1, 8: 2})]),
        (b"1 2147483647:1", [(1, {2147483646: 1})]),
        (b"1 1:0 2:1e-400 3:-0.0 4:0e999999999999999999999", [(1, {0: 0, 1: 0, 2: 0, 3: 0})]),
        (b"1 1:5e-324 2:1e-320", [(1, {0: 5e-324, 1: 1e-320})]),
        (b"1 1:" + b"0" * 400 + b"." + b"0" * 400 + b"1e401", [(1, {0: 1})]),
        (b"1 1:1" + b"0" * 200_000 + b"e-200000 2:." + b"0" * 1_000_000 + b"25e1000000", [(1, {0: 1, 1: 0.25})]),
    ],
)
def test_spellings_of_the_same(text: bytes, expected: list[tuple[float, dict[int, float]]]) -> None:
    assert rows(parse(text, dtype=np.float64)) == expected


@pytest.mark.parametrize(
    ("token", "value"),
    [
        ("9007199254740993", 9007199254740992.0),  # half way: to even
        ("9007199254740995", 9007199254740996.0),
        ("9007199254740993.00000000000000000000000001", 9007199254740994.0),  # above half way, by the 43rd digit
        ("9007199254740992.99999999999999999999999999", 9007199254740992.0),
        ("0.1000000000000000055511151231257827021181583404541015625", 0.1),
        ("1.7976931348623158e308", 1.7976931348623157e308),
        ("2.4703282292062328e-324", 5e-324),  # above half of the smallest
        ("2.4703282292062327e-324", 0.0),
        ("2.2250738585072011e-308", 2.225073858507201e-308),
    ],
)
def test_nearest_float64(token: str, value: float) -> None:
    examples = parse(f"{token} 1:{token} 2:-{token}".encode(), dtype=np.float64)
    assert examples.values.tolist() == [value, -value]
    assert examples.labels.tolist() == [value]


def test_nearest_float64_for_every_power_of_ten() -> None:
    digits = [1, 5, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 3, 2**54 + 2, 2**64 - 1, 10**19 - 1]
    digits += [17976931348623157, 22250738585072014, 17932163277122441, 13804984579974445]
    # and exactly half way between two numbers
    digits += [(2**53 + 1) * 5**k for k in range(1, 5)] + [(2**54 - 1) * 5**k for k in range(1, 5)]
    tokens = [f"{w}e{q}" for w in digits for q in range(-365, 310)]
    tokens = [token for token in tokens if np.isfinite(float(token))]
    text = "".join(f"1 1:{token}\n" for token in tokens)  # one a line: a line is handed over to float() as a whole
    expected = [float(token) for token in tokens]
    assert parse(text.encode(), dtype=np.float64).values.tolist() == expected


def test_float32_is_rounded_from_float64() -> None:
    # nearest to the decimal would be 1 + 2**-23; the float64 between is half way, and goes to even
    assert parse(b"1 1:1.00000005960464477540").values.tolist() == [1.0]
    assert parse(b"1 1:3.4028235677973362e38").values.tolist() == [float(np.finfo(np.float32).max)]
    assert parse(b"1 1:1e-46").values.tolist() == [0.0]


def test_zero_based() -> None:
    assert rows(parse(b"1 0:5 1:6 2147483646:7\n", zero_based=True)) == [(1, {0: 5, 1: 6, 2147483646: 7})]
    with pytest.raises(ParseError, match="beyond 2147483646"):
        parse(b"1 2147483647:1\n", zero_based=True)


FAULTS = [
    (b"1 0:1\n", 1, 3, "index 0"),
    (b"1 1:1\n-1 2:1 2:1\n", 2, 8, "the index 2 is there twice"),
    (b"\n# x\n\r\n1 3:1  2:1\n", 4, 8, "the index 2 follows 3"),
    (b"1 1:1 7\n", 1, 7, "'7' has no colon"),
    (b"1 x\n", 1, 3, "'x' has no colon"),
    (b"1 -1:3\n", 1, 3, "not a whole number"),
    (b"1 +1:3\n", 1, 3, "not a whole number"),
    (b"1 1.0:3\n", 1, 3, "not a whole number"),
    (b"1 1_0:3\n", 1, 3, "not a whole number"),
    (b"1 :3\n", 1, 3, "an index is missing"),
    (b"1 1:", 1, 4, "a value is missing"),
    (b"1 1: 2:3\n", 1, 4, "a value is missing"),
    (b"1 1 :2\n", 1, 3, "'1' has no colon"),
    (b"1 1:#2\n", 1, 4, "a value is missing"),
    (b"1 1:2:3\n", 1, 5, "'2:3' is not a decimal number"),
    (b"1 1:x\n", 1, 5, "'x' is not a decimal number"),
    (b"1 1:0x10\n", 1, 5, "not a decimal number"),
    (b"1 1:0x1p3\n", 1, 5, "not a decimal number"),
    (b"1 1:1_000\n", 1, 5, "not a decimal number"),
    (b"1 1:.\n", 1, 5, "not a decimal number"),
    (b"1 1:-\n", 1, 5, "not a decimal number"),
    (b"1 1:e5\n", 1, 5, "not a decimal number"),
    (b"1 1:1e\n", 1, 5, "not a decimal number"),
    (b"1 1:1e+\n", 1, 5, "not a decimal number"),
    (b"1 1:1.2.3\n", 1, 5, "not a decimal number"),
    (b"1 1:1,5\n", 1, 5, "not a decimal number"),
    (b"1 1:--1\n", 1, 5, "not a decimal number"),
    (b"1 1:1d5\n", 1, 5, "not a decimal number"),
    ("1 1:\N{ARABIC-INDIC DIGIT ONE}\n".encode(), 1, 5, "not a decimal number"),
    (b"1 1:1\f2:1\n", 1, 5, "not a decimal number"),
    (b"1 1:nan\n", 1, 5, "'nan' is not finite"),
    (b"1 1:-Infinity\n", 1, 5, "'-Infinity' is not finite"),
    (b"1 1:1e999\n", 1, 5, "too large for float32"),
    (b"1 1:1" + b"0" * 400 + b"\n", 1, 5, "too large for float32"),
    (b"1 1:-3.4028235677973366e38\n", 1, 5, "too large for float32; --dtype float64 holds it"),
    (b"1 2147483648:1\n", 1, 3, "beyond 2147483647"),
    (b"1 18446744073709551617:1\n", 1, 3, "beyond 2147483647"),
    (b"1 " + b"9" * 5000 + b":1\n", 1, 3, "beyond 2147483647"),
    (b"1,2 1:1\n", 1, 1, "'1,2' is a list"),
    (b"  spam 1:1\n", 1, 3, "'spam' is not a decimal number"),
    (b"1:1 2:1\n", 1, 1, "a label is expected, found '1:1'"),
    (b"nan 1:1\n", 1, 1, "'nan' is not finite"),
    (b"1e999 1:1\n", 1, 1, "too large for float64"),
    (b"1 1:1\n2\0 1:1\n", 2, 2, "a NUL byte"),
    (b"1 1:1 \0\n", 1, 7, "a NUL byte"),
    (b"1 1:1\r2 1:1\r3\n", 1, 6, "a carriage return"),
    (b"1 1:1\r\r\n", 1, 6, "a carriage return"),
    (b"1 \r# c\n", 1, 3, "a carriage return"),
    (b"1qid:1 1:1\n", 1, 1, "a label is expected, found '1qid:1'"),
    (b"1 qid:x 1:1\n", 1, 3, "qid must be followed by an integer"),
    (b"1 1:1 qid:1\n", 1, 7, "qid must be followed by an integer, and stand right behind the label"),
    (b"1 qid:1 qid:1\n", 1, 9, "qid must be"),
    (b"1 qid:1:1\n", 1, 3, "qid must be"),
    (b"\xef\xbb\xbf1 1:1\n", 1, 1, "byte order mark"),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), FAULTS)
@pytest.mark.parametrize("block_bytes", [1, libsvm.BLOCK_BYTES])
def test_fault(text: bytes, line: int, column: int | None, message: str, block_bytes: int) -> None:
    with pytest.raises(ParseError) as raised:
        parse(text, "in.txt", block_bytes=block_bytes)
    error = raised.value
    assert (error.file, error.line) == ("in.txt", line)
    assert column in (None, error.column)
    assert message in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 200


def test_index_0_names_the_option() -> None:
    with pytest.raises(ParseError, match="--zero-based"):
        parse(b"1 0:1\n")


@pytest.mark.parametrize("text", [b"", b"\n", b"# 1 1:1\n \n\r\n"])
def test_no_example(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^in\.txt: there is no example"):
        parse(text, "in.txt")
    path = tmp_path / "in"
    path.write_bytes(text)
    with pytest.raises(DataError, match=f"{path}, {path}: there is no example"):
        read([str(path), str(path)])
    with pytest.raises(DataError, match="there is no example"):
        scan([str(path)], lambda fault: pytest.fail(str(fault)))


# ---------------------------------------------------------------------------------------------------- labels' spelling


def test_first_spelling_of_each_label() -> None:
    examples = parse(b"+1\n1\n1.0\n-0\n0\n2e0\n02\n")
    assert examples.spellings == {1.0: "+1", 0.0: "-0", 2.0: "2e0"}


def test_first_spelling_where_the_kernel_gave_up() -> None:
    long = "2." + "0" * 15 + "2220446049250313080847263336181640625"  # half way between two float64
    text = f"3 1:9007199254740993.00000000000000000000000001\n3.0\n4\n{long}\n2\n04 1:{long}\n".encode()
    assert parse(text).spellings == {3.0: "3", 4.0: "4", 2.0: long}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("block_bytes", [64, libsvm.BLOCK_BYTES])
@pytest.mark.parametrize("extra", [0, 1])
def test_spellings_kept(extra: int, block_bytes: int, threads: int) -> None:
    spelled = [f"{i}.0" for i in range(LABEL_SPELLINGS_KEPT + extra)]
    text = "\n".join([*spelled, "-0", *spelled]).encode()
    examples = parse(text, threads=threads, block_bytes=block_bytes)
    assert examples.spellings == ({} if extra else dict(enumerate(spelled)))


# -------------------------------------------------------------------------------------------------------------- faults


def test_scan_leaves_out_faulty_lines(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"1 1:1\nx\n2 2:1 2:2\n3 3:3\n4 0:1")
    second.write_bytes(b"y\n5\n")
    for threads in (1, 2):
        for block_bytes in (1, 10, 1000):
            faults: list[ParseError] = []
            examples = scan([str(first), str(second)], faults.append, threads=threads, block_bytes=block_bytes)
            assert rows(examples) == [(1, {0: 1}), (3, {2: 3}), (5, {})]
            assert examples.spellings == {1.0: "1", 3.0: "3", 5.0: "5"}
            assert [f.offender for f in faults] == [
                f"{first}:2:1", f"{first}:3:7", f"{first}:5:3", f"{second}:1:1"
            ]  # fmt: skip


def test_scan_with_nothing_but_faults(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"x\ny\n")
    faults: list[ParseError] = []
    examples = scan([str(path)], faults.append)
    assert (examples.n, examples.nnz, examples.d, len(faults)) == (0, 0, 0, 2)
    assert examples.indptr.tolist() == [0]


def test_scan_ends_where_the_caller_says(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"x\n" * 10_000)
    faults: list[ParseError] = []

    class Enough(Exception):
        pass

    def note(fault: ParseError) -> None:
        faults.append(fault)
        if len(faults) == 3:
            raise Enough

    with pytest.raises(Enough):
        scan([str(path)], note, threads=2, block_bytes=100)
    assert [f.line for f in faults] == [1, 2, 3]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fault_comes_before_a_later_failure(tmp_path: Path, threads: int) -> None:
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress(b"1 1:1\nx\n" + b"1 1:1\n" * 50)[:-9])
    with pytest.raises(ParseError, match=":2:1: "):
        read([str(path)], threads=threads, block_bytes=10)


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libsvm, "LINE_BYTES_MAX", 1000)
    path = tmp_path / "in"
    path.write_bytes(b"1 1:1\n2 " + b" " * 10_000 + b"1:1\n")
    for threads in (1, 2):
        with pytest.raises(ParseError, match="longer than 1000 bytes") as raised:
            read([str(path)], threads=threads, block_bytes=16)
        assert (raised.value.line, raised.value.column) == (2, 1)


# ------------------------------------------------------------------------------------------------------------- sources


def _zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": _zst
}  # fmt: skip


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_compressed(tmp_path: Path, suffix: str) -> None:
    compress = COMPRESSIONS[suffix]
    path = tmp_path / f"in.{suffix}"
    text = b"".join(b"%d %d:%d\n" % (i % 2, i + 1, i) for i in range(20_000))
    path.write_bytes(compress(text))
    assert_same(read([str(path)]), parse(text))
    # members one after the other, cut within a line; the last of them empty
    path.write_bytes(compress(text[:1001]) + compress(text[1001:]) + compress(b""))
    assert_same(read([str(path)], threads=2, block_bytes=5000), parse(text))
    path.write_bytes(compress(text) + b"\0" * 5000)
    assert_same(read([str(path)]), parse(text))
    # the content counts, and not what the name says
    for name in (f"IN.{suffix.upper()}", "input", "in.svm", "in.gz", "in.xz"):
        renamed = tmp_path / name
        renamed.write_bytes(compress(text))
        assert_same(read([str(renamed)]), parse(text))
    renamed.write_bytes(compress(text)[:-1])
    with pytest.raises(DataError, match=f"^{renamed}: cannot be read: "):
        read([str(renamed)])
    renamed.write_bytes(compress(b"1 1:1\n1 2:x\n"))
    with pytest.raises(ParseError, match=f"^{renamed}:2:5: "):
        read([str(renamed)])


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_damaged(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"in.{suffix}"
    whole = COMPRESSIONS[suffix](b"".join(b"%d %d:%d\n" % (i % 2, i + 1, i) for i in range(20_000)))
    for damaged in (
        whole[:-1], whole[: len(whole) // 2], whole[:3], whole + b"garbage", whole + whole[:-3], whole + b"\0\0x",
        b"1 1:1\n", b"\0" + whole,
    ):  # fmt: skip
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=f"^{path}: cannot be read: "):
            read([str(path)])


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_empty_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"in.{suffix}"
    path.touch()
    with pytest.raises(DataError, match="there is no example"):
        read([str(path)])


def test_zstandard_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "in"
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(UsageError, match=r"acccocoa\[zstd\]"):
        read([str(path)])


@pytest.mark.parametrize("name", ["nowhere", "nowhere.gz", ".", "a\0b"])
def test_no_such_file(tmp_path: Path, name: str) -> None:
    path = f"{tmp_path}/{name}"
    with pytest.raises(DataError) as raised:
        read([path])
    assert str(raised.value).startswith(f"{path}: cannot be read: ")


def test_several_files(tmp_path: Path) -> None:
    first, second, empty = tmp_path / "first", tmp_path / "second", tmp_path / "empty"
    first.write_bytes(b"+1 1:1\n2 2:2")
    second.write_bytes(b"1 3:3\n")
    empty.touch()
    assert_same(read([str(first), str(empty), str(second)]), parse(b"+1 1:1\n2 2:2\n1 3:3\n"))


@pytest.mark.parametrize("threads", [1, 2])
def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    path = tmp_path / "in"
    path.write_bytes(TEXT)
    with path.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert_same(read(["-"], threads=threads, block_bytes=8), parse(TEXT))
        stdin.seek(0)  # still open
    path.write_bytes(b"x")
    with path.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(ParseError, match=r"^<stdin>:1:1: "):
            read(["-"])


def test_open_source_is_a_stream_of_bytes(tmp_path: Path) -> None:
    for suffix, compress in COMPRESSIONS.items():
        path = tmp_path / f"in.{suffix}"
        path.write_bytes(compress(TEXT))
        with libsvm.open_source(str(path)) as source:
            assert source.read() == TEXT
        assert source.closed


def test_usage(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"threads": 0}, "threads=0"), ({"block_bytes": 0}, "block_bytes=0"), ({"dtype": np.int32}, "dtype=")
    ]  # fmt: skip
    for arguments, message in wrong:
        with pytest.raises(UsageError, match=message):
            parse(TEXT, **arguments)
    with pytest.raises(UsageError, match="at least one source"):
        read([])


# -------------------------------------------------------------------------------------------------- blocks and threads


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_neither_blocks_nor_threads_show(dtype: libsvm.Dtype) -> None:
    random = np.random.default_rng(0)
    lines = []
    for i in range(3000):
        indices = np.cumsum(random.integers(1, 1000, random.integers(0, 30)))
        entries = " ".join(
            f"{j}:{v!r}" for j, v in zip(indices.tolist(), random.normal(size=99).tolist(), strict=False)
        )
        lines.append(f"{i % 7} {entries}")
    text = "\n".join(lines).encode()
    expected = parse(text, dtype=dtype)
    assert expected.n == 3000
    for threads in (1, 2, 3):
        for block_bytes in (1, 100, 4096, 100_000):
            assert_same(parse(text, dtype=dtype, threads=threads, block_bytes=block_bytes), expected)


MEASURE_MEMORY = """
import re, sys
from pathlib import Path
from acccocoa.libsvm import parse, read

def kilobytes(name):
    return int(re.search(rf"{name}:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

parse(b"1 1:1\\n")
before = kilobytes("VmRSS")
examples = read([sys.argv[1]], threads=int(sys.argv[2]))
size = sum(a.nbytes for a in (examples.indptr, examples.indices, examples.values, examples.labels))
print(1024 * (kilobytes("VmHWM") - before), size)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("source", "threads"), [("-", 1), ("in", 2), ("in.gz", 1)])
def test_memory(tmp_path: Path, source: str, threads: int) -> None:
    """The peak is little above the result and a fixed buffer, blocks and chunks."""
    text = b"".join(b"%d %s\n" % (i % 3, b" ".join(b"%d:%d" % (j, i) for j in range(1, 40))) for i in range(500)) * 400
    path = tmp_path / source.replace("-", "in")
    path.write_bytes(gzip.compress(text, 1) if path.suffix else text)
    command = [sys.executable, "-c", MEASURE_MEMORY, "-" if source == "-" else str(path), str(threads)]
    with path.open() as stdin:
        result = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=True)
    peak, size = map(int, result.stdout.split())
    assert size > 60e6
    assert peak < 1.05 * size + 30e6


@pytest.mark.parametrize("threads", [1, 2])
def test_stream_is_scan_in_pieces(tmp_path: Path, threads: int) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"".join(b"%d.0 %d:%d\n" % (i % 5, i + 1, i) for i in range(1000)) + b"x")
    second.write_bytes(TEXT)
    sources = [str(first), str(second)]
    faults: list[ParseError] = []
    found: list[tuple[float, dict[int, float]]] = []
    pieces = 0
    for piece in stream(sources, faults.append, threads=threads, block_bytes=500):
        pieces += 1
        found += rows(piece)
        spellings = piece.spellings
    whole = scan(sources, faults.append)
    assert pieces > 20
    assert found == rows(whole)
    assert spellings == whole.spellings
    assert [fault.offender for fault in faults] == 2 * [f"{first}:1001:1"]
    for left_early in stream(sources, faults.append, threads=threads, block_bytes=500):
        assert left_early.n > 0
        break


def test_stream_without_examples(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.touch()
    with pytest.raises(DataError, match="there is no example"):
        list(stream([str(path)], lambda fault: pytest.fail(str(fault))))
    with pytest.raises(UsageError, match="at least one source"):
        list(stream([], lambda fault: pytest.fail(str(fault))))
    path.write_bytes(b"x\n")
    faults: list[ParseError] = []
    assert sum(piece.n for piece in stream([str(path)], faults.append)) == 0
    assert len(faults) == 1


def test_a_line_longer_than_a_block_keeps_what_is_around_it() -> None:
    long = b"2 " + b" ".join(b"%d:%d" % (i, i) for i in range(1, 5000))
    examples = parse(b"1 1:1\n" + long + b"\n3 3:3\n" + long, block_bytes=64)
    assert examples.indptr.tolist() == [0, 1, 5000, 5001, 10000]
    assert examples.labels.tolist() == [1, 2, 3, 2]


def test_compiles_where_nothing_can_be_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    def njit(function: Callable[..., Any], cache: bool = False, **options: bool) -> Callable[..., Any]:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return function

    with monkeypatch.context() as patch:
        patch.setattr(numba, "njit", njit)
        importlib.reload(libsvm_kernels)
        assert libsvm_kernels.parse_lines.__module__ == "acccocoa.libsvm_kernels"
    importlib.reload(libsvm_kernels)
    assert_same(parse(TEXT), parse(TEXT, threads=2))
