"""DATA and SHARD as the user names them -> examples: text or shard files."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from acccocoa import libsvm, shardfile
from acccocoa.errors import ParseError
from acccocoa.examples import Examples

_ROWS_AT_ONCE = 1 << 14


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
    if not any(map(shardfile.is_shard_file, sources)):
        yield from libsvm.stream(sources, on_fault, zero_based=zero_based, dtype=dtype, threads=threads)
        return
    spellings: dict[float, str] = {}
    for source in sources:
        if shardfile.is_shard_file(source):
            found = _slices(shardfile.load(source).examples, dtype)
        else:
            found = libsvm.stream([source], on_fault, zero_based=zero_based, dtype=dtype, threads=threads)
        for piece in found:
            for label, spelling in piece.spellings.items():
                spellings.setdefault(label, spelling)
            yield Examples(piece.indptr, piece.indices, piece.values, piece.labels, spellings)


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
