"""Sparse rows to LIBSVM text that reads back as the same rows, to the last bit."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acccocoa import libsvm
from acccocoa.errors import ParseError
from acccocoa.examples import Examples

_ENTRIES_AT_ONCE = 1 << 17


def text(examples: Examples, spellings: Mapping[float, str] | None = None) -> Iterator[bytes]:
    """The examples as lines of text, in pieces of whole lines; indices begin at 1.

    Labels are spelled as `spellings` (or else the examples) say, others and the values in as few digits as tell them
    from their neighbours.
    """
    spellings = examples.spellings if spellings is None else spellings
    indptr = examples.indptr
    first = 0
    while first < examples.n:
        last = int(np.searchsorted(indptr, indptr[first] + _ENTRIES_AT_ONCE, "right")) - 1
        last = min(max(last, first + 1), first + _ENTRIES_AT_ONCE)
        rows = slice(first, last)
        entries = slice(int(indptr[first]), int(indptr[last]))
        values = examples.values[entries]
        places = indptr[first : last + 1] - indptr[first]
        labels = [spellings.get(label) or _number(label) for label in examples.labels[rows].tolist()]
        made = _lines(places, examples.indices[entries], _shortest(values), labels)
        if not _reads_back(made, values):
            # the nearest float64 to the text can be half way between two float32
            made = _lines(places, examples.indices[entries], [b"%.9g" % value for value in values.tolist()], labels)
        yield made
        first = last


def _number(label: float) -> str:
    return str(int(label)) if label.is_integer() and abs(label) < 1e15 else repr(label)


def _shortest(values: NDArray[Any]) -> list[bytes]:
    texts = np.empty(len(values), "S32")
    whole = (np.abs(values) < 1e15) & (values == np.rint(values)) & ~(np.signbit(values) & (values == 0))
    texts[whole] = values[whole].astype(np.int64).astype("S32")
    texts[~whole] = values[~whole].astype("S32")
    return texts.tolist()


def _lines(indptr: NDArray[np.int64], indices: NDArray[np.int32], values: list[bytes], labels: list[str]) -> bytes:
    entries = [b" %d:%b" % entry for entry in zip((indices + np.int64(1)).tolist(), values, strict=True)]
    ends = indptr.tolist()
    lines: list[bytes] = []
    for row, label in enumerate(labels):
        lines += (label.encode(), *entries[ends[row] : ends[row + 1]], b"\n")
    return b"".join(lines)


def _reads_back(made: bytes, values: NDArray[Any]) -> bool:
    try:
        found = libsvm.parse(made, dtype=values.dtype.type).values
    except ParseError:
        return False
    return found.tobytes() == values.tobytes()
