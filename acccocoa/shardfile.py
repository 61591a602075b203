"""Parsed examples on disk, as arrays that are mapped into memory instead of read.

Layout: MAGIC, the length of the header (uint64, little-endian), the CRC-32 of the header (likewise), the header (JSON:
format version, content hash, label spellings, name, dtype, length and offset of every array, and `about`, an object
that says more about the file to whoever wrote it; blanks may follow), then the arrays, each on a 64-byte boundary,
little-endian.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from acccocoa.atomic import atomic_write
from acccocoa.errors import DataError
from acccocoa.examples import Examples

MAGIC = b"acccocoa shard\n\x00"
FORMAT_VERSION = 2
_ALIGNMENT = 64
_DTYPES = {"indptr": {"<i8"}, "indices": {"<i4"}, "values": {"<f4", "<f8"}, "labels": {"<f8"}}
_ARRAYS = tuple(_DTYPES)
_PREFIX_BYTES = len(MAGIC) + 16


@dataclass(frozen=True, slots=True)
class Stored:
    """Examples and what their file says about them.

    content_hash : see `content_hash`;  about : see the layout
    """

    examples: Examples
    content_hash: str
    about: Mapping[str, Any] = field(default_factory=dict)


def content_hash(examples: Examples) -> str:
    """SHA-256 over the arrays of the examples, hexadecimal: equal exactly when the data is."""

    hasher = ContentHasher(examples.values.dtype)
    with ThreadPoolExecutor(len(_ARRAYS)) as pool:  # hashing lets go of the interpreter
        list(pool.map(lambda name: hasher.add(name, getattr(examples, name)), _ARRAYS))
    return hasher.hexdigest()


class ContentHasher:
    """Content hash of examples that come piece by piece; each array in its order, the arrays in any."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._digests = {name: hashlib.sha256() for name in _ARRAYS}

    def add(self, name: str, array: NDArray[Any]) -> None:
        """The next elements of that array."""
        self._digests[name].update(np.ascontiguousarray(array).view(np.uint8).data)

    def hexdigest(self) -> str:
        """The hash of what was added."""
        digests = [self._digests[name].digest() for name in _ARRAYS]
        return hashlib.sha256(b"".join([self._dtype.newbyteorder("<").str.encode(), *digests])).hexdigest()


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


class Writer:
    """Writes a shard file piece by piece, in memory that does not depend on its size.

    Parameters
    ----------
    out : seekable; what is in it goes
    n, nnz, dtype : of all pieces together
    spellings : as in Examples
    room : bytes of JSON that `about` will need at most
    """

    def __init__(
        self,
        out: BinaryIO,
        n: int,
        nnz: int,
        dtype: np.dtype[Any],
        spellings: Mapping[float, str],
        *,
        room: int = 0,
    ) -> None:
        self._out = out
        self._dtype = dtype
        self._spellings = spellings
        self._hasher = ContentHasher(dtype)
        self._table: dict[str, dict[str, Any]] = {}
        offset = 0
        for name, kind, length in (
            ("indptr", np.dtype(np.int64), n + 1),
            ("indices", np.dtype(np.int32), nnz),
            ("values", dtype, nnz),
            ("labels", np.dtype(np.float64), n),
        ):
            self._table[name] = {"dtype": kind.newbyteorder("<").str, "length": length, "offset": offset}
            offset = _aligned(offset + length * kind.itemsize)
        self._end = offset
        self._entries = 0
        self._header_bytes = len(self._header("0" * 64, {})) + room
        self._begin = _aligned(_PREFIX_BYTES + self._header_bytes)
        self._filled = dict.fromkeys(_ARRAYS, 0)
        out.seek(0)
        out.truncate()
        self._put("indptr", np.zeros(1, np.int64))

    def _header(self, digest: str, about: Mapping[str, Any]) -> bytes:
        return json.dumps(
            {
                "version": FORMAT_VERSION,
                "content_hash": digest,
                "spellings": [[value, text] for value, text in self._spellings.items()],
                "arrays": self._table,
                "about": about,
            }
        ).encode()

    def _put(self, name: str, array: NDArray[Any]) -> None:
        self._hasher.add(name, array)
        content = np.ascontiguousarray(array).view(np.uint8).data
        self._out.seek(self._begin + self._table[name]["offset"] + self._filled[name])
        self._out.write(content)
        self._filled[name] += len(content)

    def append(self, piece: Examples) -> None:
        """Write the next examples."""
        if piece.n:
            self._put("indptr", piece.indptr[1:] + (self._entries - piece.indptr[0]))
            self._put("labels", piece.labels)
        if piece.nnz:
            self._put("indices", piece.indices)
            self._put("values", piece.values.astype(self._dtype, copy=False))
            self._entries += piece.nnz

    def finish(self) -> str:
        """All pieces have been written: returns their content hash."""
        sizes = {name: np.dtype(entry["dtype"]).itemsize * entry["length"] for name, entry in self._table.items()}
        if sizes != self._filled:
            raise ValueError(f"the pieces fill {self._filled} of {sizes} bytes")
        self._out.seek(self._begin + self._end)
        self._out.truncate()
        return self._hasher.hexdigest()

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write the header; only now is this a shard file."""
        header = self._header(self._hasher.hexdigest(), about).ljust(self._header_bytes)
        if len(header) > self._header_bytes:
            raise ValueError(f"{about} takes more than the room for it")
        crc = zlib.crc32(header)
        self._out.seek(0)
        self._out.write(MAGIC + len(header).to_bytes(8, "little") + crc.to_bytes(8, "little") + header)
        self._out.flush()


def write(path: str | os.PathLike[str], examples: Examples, about: Mapping[str, Any] | None = None) -> str:
    """Write the examples under that name, atomically; returns their content hash.

    Raises
    ------
    UsageError : the path cannot be written
    """
    with atomic_write(path) as out:
        return write_to(out, examples, about)


def write_to(out: BinaryIO, examples: Examples, about: Mapping[str, Any] | None = None) -> str:
    """Write the examples to an open, seekable file; returns their content hash."""
    about = about or {}
    writer = Writer(
        out, examples.n, examples.nnz, examples.values.dtype, examples.spellings, room=len(json.dumps(about))
    )
    writer.append(examples)
    digest = writer.finish()
    writer.describe(about)
    return digest


def is_shard_file(path: str | os.PathLike[str]) -> bool:
    """The file begins as one written by `write`. A pipe never does: looking would take its first bytes away."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read(path: str | os.PathLike[str], *, verify: bool = True) -> tuple[Examples, str]:
    """The examples as read-only arrays mapped from the file, and their content hash; see `load`."""
    stored = load(path, verify=verify)
    return stored.examples, stored.content_hash


def load(path: str | os.PathLike[str], *, verify: bool = True, name: str = "") -> Stored:
    """What is in a shard file; the arrays are mapped from it, read-only.

    Parameters
    ----------
    verify : compare the content hash with the arrays; reads the whole file
    name : what to call the file in messages, when that is not its path

    Raises
    ------
    DataError : the file is damaged, truncated, or of another format version
    """
    name = name or os.fspath(path)

    def damaged(what: str) -> DataError:
        return DataError(name, what, "make the shard file again")

    try:
        size = Path(path).stat().st_size
        with Path(path).open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                raise damaged("is not a shard file")
            length = int.from_bytes(stream.read(8), "little")
            crc = int.from_bytes(stream.read(8), "little")
            if length > size:
                raise damaged("has a damaged header")
            text = stream.read(length)
        if zlib.crc32(text) != crc:
            raise damaged("has a damaged header")
        header = json.loads(text)
        if header["version"] != FORMAT_VERSION:
            raise damaged(f"has format version {header['version']}, this acccocoa reads {FORMAT_VERSION}")
        begin = _aligned(_PREFIX_BYTES + length)
        arrays = {key: _mapped(path, begin, size, header["arrays"][key], _DTYPES[key]) for key in _ARRAYS}
        spellings = {float(value): str(text) for value, text in header["spellings"]}
        digest = str(header["content_hash"])
        about = header["about"]
        if not isinstance(about, dict):
            raise TypeError(f"about is {about!r}")  # noqa: TRY301  # said by the handler below
        # the hash covers the arrays: a spelling that was damaged no longer means its label
        if any(float(text) != value or text != text.strip() for value, text in spellings.items()):
            raise damaged("spells a label as another one")
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise damaged(f"cannot be read as a shard file ({error})") from error
    n, nnz = len(arrays["labels"]), len(arrays["indices"])
    if len(arrays["indptr"]) != n + 1 or len(arrays["values"]) != nnz or int(arrays["indptr"][-1]) != nnz:
        raise damaged("holds arrays that do not belong together")
    examples = Examples(**arrays, spellings=spellings)
    if verify and content_hash(examples) != digest:
        raise damaged("does not have the content its header promises")
    return Stored(examples, digest, about)


def _mapped(path: str | os.PathLike[str], begin: int, size: int, entry: Any, dtypes: set[str]) -> NDArray[Any]:
    if entry["dtype"] not in dtypes:
        raise ValueError(f"an array of dtype {entry['dtype']!r}")
    dtype = np.dtype(entry["dtype"])
    length, offset = int(entry["length"]), begin + int(entry["offset"])
    if length < 0 or offset < begin or offset + length * dtype.itemsize > size:
        raise ValueError("an array reaches beyond the end of the file")
    if length == 0:
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=(length,))
