"""How examples are dealt to K parts: pure functions of the row sizes and a seed."""

import numpy as np
from numpy.typing import NDArray

from acccocoa.errors import UsageError


def cut_examples(row_nnz: NDArray[np.int64], part: int, parts: int, seed: int = 0) -> NDArray[np.int64]:
    """The rows of one part: the examples in one seeded shuffle, cut into consecutive pieces of about as many entries.

    Parameters
    ----------
    row_nnz : int64, shape (n,); stored entries of every example
    part : 0 .. parts - 1

    Returns
    -------
    int64, shape (n of the part,); every row is in exactly one part, and no part is empty

    Raises
    ------
    UsageError : part is out of range, or there are fewer examples than parts
    """
    n = len(row_nnz)
    if parts < 1:
        raise UsageError(f"part {part}/{parts}", "must be of 1 part at least")
    if not 0 <= part < parts:
        raise UsageError(f"part {part}/{parts}", f"must be from 0 to {parts - 1}")
    if n < parts:
        raise UsageError(f"{parts} parts", f"cannot be cut from {n} examples", "use fewer workers")
    shuffled = np.random.default_rng([seed, n]).permutation(n)
    # an example weighs its entries and a little for itself, so that empty rows are dealt out, too
    weight = np.cumsum(row_nnz[shuffled] + 1)
    edges = np.searchsorted(weight, weight[-1] * np.arange(1, parts) / parts, side="left") + 1
    # no part may be empty, however heavy single rows are
    edges = np.clip(edges, np.arange(1, parts), n - parts + np.arange(1, parts))
    edges = np.maximum.accumulate(edges - np.arange(1, parts)) + np.arange(1, parts)
    bounds = [0, *edges.tolist(), n]
    return shuffled[bounds[part] : bounds[part + 1]]
