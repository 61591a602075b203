"""DATA and SHARD as the user names them -> examples: text (or its cache) and shard files, here or in S3."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from acccocoa import arrayfile, cache, libsvm, manifest, objectstore, shardfile
from acccocoa.cache import NOWHERE, Places
from acccocoa.errors import DataError, ParseError, UsageError
from acccocoa.examples import LABEL_SPELLINGS_KEPT, Examples
from acccocoa.manifest import Part
from acccocoa.shardfile import Stored

_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class Loaded:
    """Examples, and what is known of where they come from.

    content_hash : see shardfile
    index_base : the first feature number in the text they were read from; None when that is not known
    part : which part of which cut they are, if any
    verified : as in shardfile.Stored
    """

    examples: Examples
    content_hash: str
    index_base: int | None = None
    part: Part | None = None
    verified: bool = True


def load(
    sources: Sequence[str],
    *,
    zero_based: bool,
    dtype: libsvm.Dtype,
    threads: int,
    places: Places = NOWHERE,
    verify: bool = True,
) -> Loaded:
    """The examples of text and shard files, one after the other.

    Parameters
    ----------
    zero_based, dtype, threads : how text is read; a shard file keeps its dtype, unless there is more than one source
    places : where text may be cached
    verify : compare what is mapped from a file here with the content hash that the file says it has

    Raises
    ------
    DataError, UsageError : a source cannot be read, or is not what its manifest says
    """
    if len(sources) == 1 and _is_shard_file(sources[0]):
        stored = _shard_file(sources[0], verify)
        try:
            part = manifest.part_of(stored.about)
        except ValueError as error:
            raise DataError(sources[0], str(error), "make the shard file again") from error
        return Loaded(stored.examples, stored.content_hash, part=part, verified=stored.verified)
    if any(map(_is_shard_file, sources)):
        examples = _joined(
            [load([s], zero_based=zero_based, dtype=dtype, threads=threads, places=places).examples for s in sources],
            dtype,
        )
        return Loaded(examples, shardfile.content_hash(examples))
    stored = cache.read(sources, zero_based=zero_based, dtype=dtype, threads=threads, places=places, verify=verify)
    part = _part_beside(sources[0], stored, zero_based, dtype) if len(sources) == 1 else None
    return Loaded(stored.examples, stored.content_hash, 0 if zero_based else 1, part, stored.verified)


def pieces(
    sources: Sequence[str],
    on_fault: Callable[[ParseError], None],
    *,
    zero_based: bool,
    dtype: libsvm.Dtype,
    threads: int,
) -> Iterator[Examples]:
    """The examples of text and shard files, piece by piece in their order; see libsvm.stream.

    Raises
    ------
    DataError, UsageError : a source cannot be read
    """
    if not any(map(_is_shard_file, sources)):
        yield from libsvm.stream(sources, on_fault, zero_based=zero_based, dtype=dtype, threads=threads)
        return
    spellings: dict[float, str] = {}
    for source in sources:
        if _is_shard_file(source):
            found = _slices(_shard_file(source).examples, dtype)
        else:
            found = libsvm.stream([source], on_fault, zero_based=zero_based, dtype=dtype, threads=threads)
        for piece in found:
            _note(piece.spellings, spellings)
            yield Examples(piece.indptr, piece.indices, piece.values, piece.labels, spellings)


# ---------------------------------------------------------------------------------------------------------- shard files


def _is_shard_file(source: str) -> bool:
    if objectstore.is_s3(source):
        return objectstore.read(source, len(shardfile.MAGIC)) == shardfile.MAGIC
    if arrayfile.begins_with(source, arrayfile.KEPT_MAGIC):
        raise _derived(source)
    return shardfile.is_shard_file(source)


def _derived(source: str) -> DataError:
    """With `DATA*` it would be there twice."""
    return DataError(
        source, "is what acccocoa keeps of other data, to begin sooner", "name that data, and leave this out"
    )


def _shard_file(source: str, verify: bool = True) -> Stored:
    """A shard file, mapped. From S3 it goes to a file without a name first, and is verified."""
    if not objectstore.is_s3(source):
        stored = shardfile.load(source, verify=verify)
        if cache.KEY in stored.about:
            raise _derived(source)
        return stored
    found = objectstore.find(source)
    try:
        with tempfile.TemporaryFile() as file:
            objectstore.download(found, cast(BinaryIO, file))
            return shardfile.load(f"/proc/self/fd/{file.fileno()}", name=source)
    except OSError as error:
        raise UsageError(
            tempfile.gettempdir(), f"has no room for {source} ({error.strerror})", "set TMPDIR to another place"
        ) from error


def _slices(examples: Examples, dtype: libsvm.Dtype) -> Iterator[Examples]:
    values: Any = examples.values
    for first in range(0, examples.n, _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, examples.n)
        begin, end = int(examples.indptr[first]), int(examples.indptr[last])
        yield Examples(
            examples.indptr[first : last + 1] - begin,
            examples.indices[begin:end],
            values[begin:end].astype(dtype, copy=False),
            examples.labels[first:last],
            examples.spellings,
        )


def _joined(parts: Sequence[Examples], dtype: libsvm.Dtype) -> Examples:
    """All examples in one."""
    begins = np.cumsum([0, *(part.nnz for part in parts)])
    spellings: dict[float, str] = {}
    for part in parts:
        _note(part.spellings, spellings)
    too_many = len(spellings) > LABEL_SPELLINGS_KEPT or any(part.n and not part.spellings for part in parts)
    values: Any = np.concatenate([part.values for part in parts], dtype=dtype, casting="same_kind")
    return Examples(
        np.concatenate([[0], *(part.indptr[1:] + at for part, at in zip(parts, begins[:-1], strict=True))]),
        np.concatenate([part.indices for part in parts]),
        values,
        np.concatenate([part.labels for part in parts]),
        {} if too_many else spellings,
    )


def _note(more: Mapping[float, str], spellings: dict[float, str]) -> None:
    for label, spelling in more.items():
        spellings.setdefault(label, spelling)


# ------------------------------------------------------------------------------------------------------------- manifest


def _part_beside(source: str, stored: Stored, zero_based: bool, dtype: libsvm.Dtype) -> Part | None:
    """Which part the text is, when a manifest beside it names it.

    Raises
    ------
    DataError : the text is not what the manifest says
    UsageError : it was read in another way than it was written
    """
    name = source.rpartition("/")[2]
    found = None
    beside = f"{source.rpartition('/')[0]}/" if "/" in source else ""
    with suppress(DataError, UsageError):
        found = manifest_at(beside + manifest.NAME)
    numbers = [] if found is None else [number for number, shard in enumerate(found.shards) if shard.file == name]
    if found is None or not numbers:
        return None
    if np.dtype(dtype).name != found.dtype:
        raise UsageError(
            f"--dtype {np.dtype(dtype).name}", f"{source} was cut with --dtype {found.dtype}", "say the same"
        )
    if zero_based != (found.index_base == 0):
        raise UsageError("--zero-based", f"feature numbers in {source} begin with {found.index_base}", "leave it out")
    if stored.content_hash != found.shards[numbers[0]].hash:
        raise DataError(source, f"is not what {manifest.NAME} beside it promises", "cut the shards again")
    return found.part(numbers[0])


def manifest_at(source: str) -> manifest.Manifest:
    """The manifest in that file or object.

    Raises
    ------
    DataError, UsageError : it cannot be read, or is none
    """
    if objectstore.is_s3(source):
        return manifest.parse(objectstore.read(source), source)
    try:
        content = Path(source).read_bytes()
    except (OSError, ValueError) as error:
        raise DataError(source, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return manifest.parse(content, source)
