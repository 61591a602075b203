"""Files of arrays that are mapped into memory instead of read.

Layout: magic bytes, the length of the header (uint64, little-endian), the CRC-32 of the header (likewise), the header
(JSON; in it, under `arrays`, the dtype, length and offset of every array; blanks may follow), then the arrays, each on
a 64-byte boundary, little-endian.
"""

import json
import os
import weakref
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

KEPT_MAGIC = b"acccocoa kept\n\x00\x00"
"""Of the shards that workers keep, which nobody else reads (see worker.kept)."""

_ALIGNMENT = 64
_NUMBERS_BYTES = 16


def _aligned(offset: int) -> int:
    """The next boundary."""
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def data_begin(magic: bytes, header_bytes: int) -> int:
    """Where the arrays begin behind a header of that length."""
    return _aligned(len(magic) + _NUMBERS_BYTES + header_bytes)


def table(arrays: Mapping[str, tuple[np.dtype[Any], int]]) -> tuple[dict[str, dict[str, Any]], int]:
    """What a header says of arrays of these dtypes and lengths, and how many bytes they take."""
    found: dict[str, dict[str, Any]] = {}
    offset = 0
    for name, (dtype, length) in arrays.items():
        found[name] = {"dtype": dtype.newbyteorder("<").str, "length": length, "offset": offset}
        offset = _aligned(offset + length * dtype.itemsize)
    return found, offset


def put_header(out: BinaryIO, magic: bytes, header: bytes) -> None:
    """Write the magic bytes and the header; only now is it such a file."""
    out.seek(0)
    out.write(magic + len(header).to_bytes(8, "little") + zlib.crc32(header).to_bytes(8, "little") + header)
    out.flush()


def write_to(out: BinaryIO, magic: bytes, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a whole file to an empty, seekable one. about : what the header says beside `arrays`"""
    entries, _ = table({name: (array.dtype, len(array)) for name, array in arrays.items()})
    header = json.dumps({**about, "arrays": entries}).encode()
    begin = data_begin(magic, len(header))
    for name, array in arrays.items():
        out.seek(begin + entries[name]["offset"])
        out.write(np.ascontiguousarray(array).view(np.uint8).data)
    # the last array may be an empty one, before which there is a gap
    out.truncate(max(out.seek(0, os.SEEK_END), begin))
    put_header(out, magic, header)


def begins_with(path: str | os.PathLike[str], magic: bytes) -> bool:
    """The file begins so. A pipe never does: looking would take its first bytes away."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as stream:
            return stream.read(len(magic)) == magic
    except OSError:
        return False


class Mapped:
    """Such a file, its header read.

    Parameters
    ----------
    path : the file;  magic : how it must begin

    Raises
    ------
    OSError : it cannot be read
    ValueError : it begins in another way, or its header is damaged
    """

    def __init__(self, path: str | os.PathLike[str], magic: bytes) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        self._size, _ = self._opened = self._seen()
        with self._stream() as stream:
            if stream.read(len(magic)) != magic:
                raise ValueError("begins in another way")
            length = int.from_bytes(stream.read(8), "little")
            crc = int.from_bytes(stream.read(8), "little")
            text = stream.read(length) if length <= self._size else b""
        if length > self._size or zlib.crc32(text) != crc:
            raise ValueError("has a damaged header")
        self.header: dict[str, Any] = json.loads(text)
        self._begin = data_begin(magic, length)

    def _stream(self) -> BinaryIO:
        return open(self._descriptor, "rb", closefd=False)  # which is that one, whatever its name is now

    def _seen(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns

    @property
    def changed(self) -> bool:
        """Somebody has written to the file since it was opened: its arrays may have other values now.

        A file that was replaced, or removed, stays what it was for whoever has mapped it.
        """
        return self._seen() != self._opened

    def array(self, name: str, dtypes: Collection[str], mode: Literal["r", "c"] = "r") -> NDArray[Any]:
        """The array of that name, shape (length,).

        Parameters
        ----------
        dtypes : which it may have
        mode : "r" read-only; "c" it may be written to, and the file stays as it is. To numba these are different types,
            so that a kernel is compiled for both

        Raises
        ------
        OSError, ValueError, KeyError, TypeError, OverflowError : it is not what the header says
        """
        entry = self.header["arrays"][name]
        if entry["dtype"] not in dtypes:
            raise ValueError(f"an array of dtype {entry['dtype']!r}")
        dtype = np.dtype(entry["dtype"])
        length, offset = int(entry["length"]), self._begin + int(entry["offset"])
        if length < 0 or offset < self._begin or offset + length * dtype.itemsize > self._size:
            raise ValueError("an array reaches beyond the end of the file")
        if length == 0:
            return np.empty(0, dtype=dtype)
        with self._stream() as stream:
            return np.memmap(stream, dtype=dtype, mode=mode, offset=offset, shape=(length,))
