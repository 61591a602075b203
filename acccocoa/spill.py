"""Rows on disk, in files without a name: they are gone with the process, however it ends."""

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acccocoa.examples import Examples


@dataclass(slots=True)
class Segment:
    """Rows that follow each other on disk, sorted by key; those before the cursor have been read.

    row, entry : the cursor;  end : the row behind the last
    """

    row: int
    end: int
    entry: int


class Spill:
    """Rows on disk, in files without a name: what there is of them, array by array."""

    def __init__(self, stack: ExitStack, directory: Path, dtype: Any) -> None:
        self._dtypes: dict[str, np.dtype[Any]] = {
            "keys": np.dtype(np.uint64),
            "lengths": np.dtype(np.uint32),
            "labels": np.dtype(np.float64),
            "indices": np.dtype(np.int32),
            "values": np.dtype(dtype),
        }
        self._files = {
            name: stack.enter_context(tempfile.TemporaryFile(dir=directory, buffering=0))  # noqa: SIM115  # the stack does
            for name in self._dtypes
        }
        self.rows = self.entries = 0

    def append(self, piece: Examples, keys: NDArray[np.uint64] | None = None) -> None:
        """Add rows at the end, with their keys if they have any."""
        arrays = {
            "lengths": np.diff(piece.indptr).astype(np.uint32),
            "labels": piece.labels,
            "indices": piece.indices,
            "values": piece.values,
        }
        if keys is not None:
            arrays["keys"] = keys
        for name, array in arrays.items():
            content = np.ascontiguousarray(array).view(np.uint8).data
            while content:
                content = content[self._files[name].write(content) :]
        self.rows += piece.n
        self.entries += piece.nnz

    def read(self, name: str, first: int, count: int) -> NDArray[Any]:
        """A part of one of the arrays."""
        array = np.empty(count, self._dtypes[name])
        self.read_into(name, first, array)
        return array

    def read_into(self, name: str, first: int, array: NDArray[Any]) -> None:
        """Fill an array with a part of one on disk."""
        content = array.view(np.uint8).data
        offset = first * array.itemsize
        while content:
            got = os.preadv(self._files[name].fileno(), [content], offset)
            if got == 0:
                raise OSError(None, f"the spill file ends at byte {offset}")
            content, offset = content[got:], offset + got

    def first_at_least(self, bound: int, row: int, end: int) -> int:
        """The first row from `row` to `end`, which are sorted, whose key is not below the bound."""
        while row < end:
            middle = (row + end) // 2
            if int(self.read("keys", middle, 1)[0]) < bound:
                row = middle + 1
            else:
                end = middle
        return row
