"""Parsed examples on disk, as a file of arrays (see arrayfile).

The header says: format version, content hash, label spellings, and `about`, an object that says more about the file to
whoever wrote it.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from acccocoa import arrayfile
from acccocoa.atomic import atomic_write
from acccocoa.errors import DataError
from acccocoa.examples import Examples

MAGIC = b"acccocoa shard\n\x00"
FORMAT_VERSION = 2
_DTYPES = {"indptr": {"<i8"}, "indices": {"<i4"}, "values": {"<f4", "<f8"}, "labels": {"<f8"}}
_ARRAYS = tuple(_DTYPES)


@dataclass(frozen=True, slots=True)
class Stored:
    """Examples and what their file says about them.

    content_hash : see `content_hash`;  about : see above
    verified : the hash is that of the arrays, not only what the file says it is
    """

    examples: Examples
    content_hash: str
    about: Mapping[str, Any] = field(default_factory=dict)
    verified: bool = True


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
        self._table, self._end = arrayfile.table(
            {
                "indptr": (np.dtype(np.int64), n + 1),
                "indices": (np.dtype(np.int32), nnz),
                "values": (dtype, nnz),
                "labels": (np.dtype(np.float64), n),
            }
        )
        self._entries = 0
        self._header_bytes = len(self._header("0" * 64, {})) + room
        self._begin = arrayfile.data_begin(MAGIC, self._header_bytes)
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
        arrayfile.put_header(self._out, MAGIC, header)


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
    """The file begins as one written by `write`."""
    return arrayfile.begins_with(path, MAGIC)


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
        file = arrayfile.Mapped(path, MAGIC)
    except ValueError as error:
        raise damaged("is not a shard file" if not is_shard_file(path) else "has a damaged header") from error
    except OSError as error:
        raise damaged(f"cannot be read as a shard file ({error})") from error
    header = file.header
    try:
        if header["version"] != FORMAT_VERSION:
            raise damaged(f"has format version {header['version']}, this acccocoa reads {FORMAT_VERSION}")
        arrays = {key: file.array(key, _DTYPES[key]) for key in _ARRAYS}
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
    return Stored(examples, digest, about, verify)
