"""Shard files: what was written comes back, and nothing that was cut or damaged does."""

import itertools
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acccocoa import libsvm, shardfile
from acccocoa.errors import DataError, UsageError
from acccocoa.examples import Examples
from acccocoa.shardfile import MAGIC, Writer, content_hash, is_shard_file, load, read, write

START = len(MAGIC) + 16
"""Where the header begins."""

TEXT = b"+1 1:0.5 3:-2\n-1.0 2:1e-3\n+1\n-1 1:1 2:1 9:1e30\n"


def small(dtype: libsvm.Dtype = np.float32) -> Examples:
    return libsvm.parse(TEXT, dtype=dtype)


def examples(
    rows: list[dict[int, float]],
    labels: list[float],
    spellings: Mapping[float, str] | None = None,
) -> Examples:
    return Examples(
        indptr=np.cumsum([0, *map(len, rows)]).astype(np.int64),
        indices=np.array([j for row in rows for j in sorted(row)], dtype=np.int32),
        values=np.array([row[j] for row in rows for j in sorted(row)], dtype=np.float64),
        labels=np.array(labels, dtype=np.float64),
        spellings={label: repr(label) for label in labels} if spellings is None else spellings,
    )


def same(found: Examples, expected: Examples) -> bool:
    arrays = ("indptr", "indices", "values", "labels")
    return dict(found.spellings) == dict(expected.spellings) and all(
        getattr(found, name).dtype == getattr(expected, name).dtype
        and getattr(found, name).tobytes() == getattr(expected, name).tobytes()
        for name in arrays
    )


# ----------------------------------------------------------------------------------------------------------- round trip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_comes_back(dtype: libsvm.Dtype, tmp_path: Path) -> None:
    path = tmp_path / "shard"
    digest = write(path, small(dtype))
    found, found_digest = read(path)
    assert found_digest == digest == content_hash(small(dtype))
    assert same(found, small(dtype))
    assert found.spellings == {1.0: "+1", -1.0: "-1.0"}
    assert is_shard_file(path)


finite = st.floats(allow_nan=False, allow_infinity=False)
row = st.dictionaries(st.integers(0, 1000), finite, max_size=5)


@given(st.lists(st.tuples(row, finite.map(lambda x: x + 0.0)), max_size=8))
@settings(deadline=None)
def test_whatever_the_numbers(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[dict[int, float], float]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-shard"
    made = examples([row for row, _ in parts], [label for _, label in parts])
    digest = write(path, made)
    found, found_digest = read(path)
    assert found_digest == digest
    assert same(found, made)


@pytest.mark.parametrize("rows", [[], [{}], [{}, {}]])
def test_without_entries(rows: list[dict[int, float]], tmp_path: Path) -> None:
    made = examples(rows, [1.0] * len(rows))
    write(tmp_path / "shard", made)
    found, _ = read(tmp_path / "shard")
    assert same(found, made)
    assert (found.n, found.nnz, found.d) == (len(rows), 0, 0)


def test_arrays_are_mapped_read_only_and_aligned(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    write(path, small())
    content = path.read_bytes()
    found, _ = read(path)
    for name in ("indptr", "indices", "values", "labels"):
        array = getattr(found, name)
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable
        assert array.offset % 64 == 0
        assert content[array.offset : array.offset + array.nbytes] == array.tobytes()
    assert len(content) % 64 == 0


def test_same_bytes_every_time(tmp_path: Path) -> None:
    write(tmp_path / "first", small())
    write(tmp_path / "second", small())
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_more_labels_than_spellings_are_kept_for(tmp_path: Path) -> None:
    made = examples([{0: 1.0}] * 2000, [float(i) for i in range(2000)], spellings={})
    write(tmp_path / "shard", made)
    assert same(read(tmp_path / "shard")[0], made)


# --------------------------------------------------------------------------------------------------------- content hash


def test_content_hash_is_of_the_data_alone() -> None:
    digest = content_hash(small())
    assert len(digest) == 64
    assert digest == content_hash(libsvm.parse(TEXT.replace(b"\n", b" # comment\r\n").replace(b"+1 ", b"1.0 ")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"0.5", b"0.25"),
        (b"3:-2", b"4:-2"),
        (b"-1 1:1", b"+1 1:1"),
        (b"+1\n", b"+1 7:0\n"),
        (b"+1\n", b""),
        (b"9:1e30", b""),
    ],
)
def test_content_hash_tells_data_apart(old: bytes, new: bytes) -> None:
    assert old in TEXT
    assert content_hash(libsvm.parse(TEXT.replace(old, new))) != content_hash(small())


def test_content_hash_tells_dtypes_apart() -> None:
    assert content_hash(small(np.float32)) != content_hash(small(np.float64))


def test_content_hash_tells_the_order_of_rows_apart() -> None:
    lines = TEXT.splitlines(keepends=True)
    assert content_hash(libsvm.parse(b"".join(reversed(lines)))) != content_hash(small())


# --------------------------------------------------------------------------------------------------------------- damage


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, bytes]:
    """A shard file and its content."""
    path = tmp_path / "shard"
    write(path, small())
    return path, path.read_bytes()


def test_cut_anywhere(written: tuple[Path, bytes]) -> None:
    path, content = written
    last, _ = read(path)
    end_of_arrays = max(getattr(last, name).offset + getattr(last, name).nbytes for name in ("values", "labels"))
    for length in range(len(content)):
        path.write_bytes(content[:length])
        if length >= end_of_arrays:  # nothing but padding is missing
            assert same(read(path)[0], small())
            continue
        with pytest.raises(DataError) as caught:
            read(path)
        assert caught.value.offender == str(path)


def flip(path: Path, at: int, mask: int) -> None:
    """Change bits of one byte, in place."""
    with path.open("r+b", buffering=0) as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ mask]))


def test_any_bit_of_the_header(written: tuple[Path, bytes]) -> None:
    path, content = written
    end = START + int.from_bytes(content[len(MAGIC) :][:8], "little")
    for at in range(end):
        for bit in range(8):
            flip(path, at, 1 << bit)
            with pytest.raises(DataError, match=r"is not a shard file|damaged header"):
                read(path)
            flip(path, at, 1 << bit)
    assert path.read_bytes() == content


def test_any_byte_of_the_arrays(written: tuple[Path, bytes]) -> None:
    path, _ = written
    found, _ = read(path)
    for name in ("indptr", "indices", "values", "labels"):
        offset, size = getattr(found, name).offset, getattr(found, name).nbytes
        for at in range(offset, offset + size):
            flip(path, at, 0x40)
            with pytest.raises(DataError, match=r"does not have the content|do not belong together"):
                read(path)
            flip(path, at, 0x40)
    assert same(read(path)[0], small())


def test_damage_is_not_looked_for_when_told_so(written: tuple[Path, bytes]) -> None:
    path, content = written
    offset = read(path)[0].values.offset  # type: ignore[union-attr]  # a memmap
    path.write_bytes(content[:offset] + b"\x01" + content[offset + 1 :])
    with pytest.raises(DataError, match="does not have the content"):
        read(path)
    found, digest = read(path, verify=False)
    assert digest == content_hash(small())
    assert not same(found, small())


def with_header(content: bytes, **changes: Any) -> bytes:
    """The file with entries of its header replaced (None: taken out), everything else in place."""
    length = int.from_bytes(content[len(MAGIC) :][:8], "little")
    header = {**json.loads(content[START : START + length]), **changes}
    text = json.dumps({key: value for key, value in header.items() if value is not None}).encode()
    begin = -(-(START + length) // 64) * 64
    padding = -(-(START + len(text)) // 64) * 64 - START - len(text)
    numbers = len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(8, "little")
    return MAGIC + numbers + text + bytes(padding) + content[begin:]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 9}, "has format version 9, this acccocoa reads 2"),
        ({"version": None}, "cannot be read as a shard file"),
        ({"arrays": None}, "cannot be read as a shard file"),
        ({"arrays": []}, "cannot be read as a shard file"),
        ({"content_hash": "0" * 64}, "does not have the content its header promises"),
        ({"content_hash": None}, "cannot be read as a shard file"),
        ({"about": None}, "cannot be read as a shard file"),
        ({"about": []}, "cannot be read as a shard file"),
        ({"spellings": None}, "cannot be read as a shard file"),
        ({"spellings": [[1.0, "+2"], [-1.0, "-1"]]}, "spells a label as another one"),
        ({"spellings": [[1.0, "one"], [-1.0, "-1"]]}, "cannot be read as a shard file"),
    ],
)
def test_header_that_does_not_fit(changes: dict[str, Any], message: str, written: tuple[Path, bytes]) -> None:
    path, content = written
    path.write_bytes(with_header(content))
    assert same(read(path)[0], small())  # replacing nothing does no harm
    path.write_bytes(with_header(content, **changes))
    with pytest.raises(DataError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("array", "changes"),
    [
        ("values", {"length": 2**40}),
        ("values", {"length": -1}),
        ("values", {"offset": 2**62}),
        ("values", {"offset": -64}),
        ("values", {"length": 1e300}),
        ("indptr", {"length": 2}),
        ("indices", {"length": 3}),
        ("labels", {"dtype": "<f4"}),
        ("labels", {"dtype": "|O"}),
        ("labels", {"dtype": "nonsense"}),
    ],
)
def test_arrays_that_are_not_there(array: str, changes: dict[str, Any], written: tuple[Path, bytes]) -> None:
    path, content = written
    length = int.from_bytes(content[len(MAGIC) :][:8], "little")
    arrays = json.loads(content[START : START + length])["arrays"]
    arrays[array] |= changes
    path.write_bytes(with_header(content, arrays=arrays))
    with pytest.raises(DataError) as caught:
        read(path)
    assert caught.value.offender == str(path)


# ---------------------------------------------------------------------------------------------------------- other files


@pytest.mark.parametrize("content", [b"", b"+1 1:1\n", MAGIC[:-1], b"\x00" * 100, b"PK\x03\x04" + b"\x00" * 60])
def test_foreign_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert not is_shard_file(path)
    with pytest.raises(DataError, match="is not a shard file; make the shard file again"):
        read(path)


def test_missing_file(tmp_path: Path) -> None:
    assert not is_shard_file(tmp_path / "missing")
    assert not is_shard_file(tmp_path)
    with pytest.raises(DataError, match="cannot be read as a shard file"):
        read(tmp_path / "missing")


def test_a_pipe_is_not_looked_into() -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, MAGIC + b"+1 1:1\n")
        assert not is_shard_file(f"/dev/fd/{reader}")
        assert os.read(reader, 100) == MAGIC + b"+1 1:1\n"
    finally:
        os.close(reader)
        os.close(writer)


# ------------------------------------------------------------------------------------------------------------ atomicity


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shard"
    write(path, small())
    before = path.read_bytes()

    def half(out: BinaryIO, *_: object) -> str:
        out.write(before[: len(before) // 2])
        raise RuntimeError("interrupted")

    monkeypatch.setattr(shardfile, "write_to", half)
    with pytest.raises(RuntimeError, match="interrupted"):
        write(path, small())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(RuntimeError, match="interrupted"):
        write(tmp_path / "new", small())
    assert list(tmp_path.iterdir()) == [path]


def test_an_old_file_is_replaced_under_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    write(path, small())
    old, _ = read(path)
    write(path, small(np.float64))
    assert same(old, small())  # the reader keeps what it mapped
    assert same(read(path)[0], small(np.float64))


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write(tmp_path / "missing" / "shard", small())


# ------------------------------------------------------------------------------------------------------- piece by piece


def piece(made: Examples, first: int, last: int) -> Examples:
    """Rows first to last, as views that begin somewhere."""
    begin, end = int(made.indptr[first]), int(made.indptr[last])
    return Examples(
        made.indptr[first : last + 1], made.indices[begin:end], made.values[begin:end], made.labels[first:last]
    )


@pytest.mark.parametrize("cuts", [[0, 4], [0, 1, 4], [0, 2, 2, 3, 4]])
def test_in_pieces_or_at_once(cuts: list[int], tmp_path: Path) -> None:
    write(tmp_path / "once", small(), {"more": [1]})
    with (tmp_path / "pieces").open("w+b") as file:
        file.write(b"something longer than a shard file would be" * 100)
        writer = Writer(file, 4, small().nnz, np.dtype(np.float32), small().spellings, room=len('{"more": [1]}'))
        for first, last in itertools.pairwise(cuts):
            writer.append(piece(small(), first, last))
        assert writer.finish() == content_hash(small())
        writer.describe({"more": [1]})
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "once").read_bytes()
    assert load(tmp_path / "once").about == {"more": [1]}


def test_no_shard_file_before_it_is_described(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        writer = Writer(file, 4, small().nnz, np.dtype(np.float32), {})
        writer.append(small())
        writer.finish()
        file.flush()
        assert not is_shard_file(tmp_path / "file")
        with pytest.raises(ValueError, match="takes more than the room for it"):
            writer.describe({"more": "than expected"})
        writer.describe({})
    assert is_shard_file(tmp_path / "file")


def test_pieces_that_are_missing(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        writer = Writer(file, 4, small().nnz, np.dtype(np.float32), {})
        writer.append(piece(small(), 0, 3))
        with pytest.raises(ValueError, match="the pieces fill"):
            writer.finish()


def test_called_something_else_in_messages(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError) as caught:
        load(tmp_path / "file", name="s3://bucket/key")
    assert caught.value.offender == "s3://bucket/key"
