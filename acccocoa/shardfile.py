"""Parsed examples on disk, as arrays that are mapped into memory instead of read.

Layout: MAGIC, the length of the header (uint64, little-endian), the header (JSON: format version, content hash,
label spellings, and name, dtype, length and offset of every array), then the arrays, each on a 64-byte boundary,
little-endian.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from acccocoa.atomic import atomic_write
from acccocoa.errors import DataError
from acccocoa.examples import Examples

MAGIC = b"acccocoa shard\n\x00"
FORMAT_VERSION = 1
_ALIGNMENT = 64
_DTYPES = {"indptr": {"<i8"}, "indices": {"<i4"}, "values": {"<f4", "<f8"}, "labels": {"<f8"}}
_ARRAYS = tuple(_DTYPES)


def content_hash(examples: Examples) -> str:
    """SHA-256 over the arrays of the examples, hexadecimal: equal exactly when the data is."""
    digest = hashlib.sha256()
    for name in _ARRAYS:
        array = np.ascontiguousarray(getattr(examples, name))
        digest.update(array.dtype.str.encode())
        digest.update(array.view(np.uint8).data)
    return digest.hexdigest()


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def write(path: str | os.PathLike[str], examples: Examples) -> str:
    """Write the examples under that name, atomically; returns their content hash.

    Raises
    ------
    UsageError : the path cannot be written
    """
    with atomic_write(path) as out:
        return write_to(out, examples)


def write_to(out: BinaryIO, examples: Examples) -> str:
    """Write the examples to an open file; returns their content hash."""
    digest = content_hash(examples)
    arrays = {name: np.ascontiguousarray(getattr(examples, name)) for name in _ARRAYS}
    offset = 0
    table: dict[str, dict[str, object]] = {}
    for name, array in arrays.items():
        table[name] = {"dtype": array.dtype.newbyteorder("<").str, "length": len(array), "offset": offset}
        offset = _aligned(offset + array.nbytes)
    header = json.dumps(
        {
            "version": FORMAT_VERSION,
            "content_hash": digest,
            "spellings": [[value, text] for value, text in examples.spellings.items()],
            "arrays": table,
        }
    ).encode()
    begin = len(MAGIC) + 8 + len(header)
    out.write(MAGIC + len(header).to_bytes(8, "little") + header + bytes(_aligned(begin) - begin))
    for array in arrays.values():
        out.write(array.view(np.uint8).data)
        out.write(bytes(_aligned(array.nbytes) - array.nbytes))
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
    """The examples as read-only arrays mapped from the file, and their content hash.

    Parameters
    ----------
    verify : compare the content hash with the arrays; reads the whole file

    Raises
    ------
    DataError : the file is damaged, truncated, or of another format version
    """
    name = os.fspath(path)

    def damaged(what: str) -> DataError:
        return DataError(name, what, "make the shard file again")

    try:
        size = Path(path).stat().st_size
        with Path(path).open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                raise damaged("is not a shard file")
            length = int.from_bytes(stream.read(8), "little")
            if length > size:
                raise damaged("has a damaged header")
            header = json.loads(stream.read(length))
        if header["version"] != FORMAT_VERSION:
            raise damaged(f"has format version {header['version']}, this acccocoa reads {FORMAT_VERSION}")
        begin = _aligned(len(MAGIC) + 8 + length)
        arrays = {key: _mapped(path, begin, size, header["arrays"][key], _DTYPES[key]) for key in _ARRAYS}
        spellings = {float(value): str(text) for value, text in header["spellings"]}
        digest = str(header["content_hash"])
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
    return examples, digest


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
