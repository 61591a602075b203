"""How examples or features are dealt to K parts: pure functions of their sizes and a seed."""

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
    _check(len(row_nnz), part, parts)
    return _pieces(_shuffled(len(row_nnz), seed), row_nnz, parts)[part]


def cut_features(nnz: NDArray[np.int64], part: int, parts: int, seed: int = 0) -> NDArray[np.int64]:
    """The features of one part; see deal_features. Parameters, result and errors as of cut_examples."""
    _check(len(nnz), part, parts)
    return deal_features(nnz, parts, seed)[part]


def deal_features(nnz: NDArray[np.int64], parts: int, seed: int) -> list[NDArray[np.int64]]:
    """The features of all parts: the most frequent ones in the first part, equally frequent ones shuffled.

    Blocks that hold features correlated with each other's wait for each other's news. Frequent features are correlated,
    and they are most of what an l1 norm leaves in the model: they are dealt to as few parts as possible. The parts have
    about as many entries; the later ones have more features. (Lasso to a relative gap of 1e-6, K = 2, one pass a
    round, rounds at lam / lam_max 0.1 / 0.02 / 0.005 with features dealt at random and so: news20-like 104 / 140 / 203
    and 61 / 51 / 57; flights 41 / 134 / 148 and 41 / 90 / 101, with four passes 28 / 70 / 137 and 17 / 46 / 65.)

    nnz : int64, shape (features,), stored entries of every feature
    """
    order = _shuffled(len(nnz), seed)
    return _pieces(order[np.argsort(-nnz[order], kind="stable")], nnz, parts)


def _check(n: int, part: int, parts: int) -> None:
    if parts < 1:
        raise UsageError(f"part {part}/{parts}", "must be of 1 part at least")
    if not 0 <= part < parts:
        raise UsageError(f"part {part}/{parts}", f"must be from 0 to {parts - 1}")
    if n < parts:
        raise UsageError(f"{parts} parts", f"cannot be cut from {n} examples", "use fewer workers")


def _shuffled(n: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, n]).permutation(n)


def _pieces(order: NDArray[np.int64], nnz: NDArray[np.int64], parts: int) -> list[NDArray[np.int64]]:
    """Consecutive pieces of the order with about as many entries each, none of them empty."""
    n = len(order)
    # a row weighs its entries and a little for itself, so that empty ones are dealt out, too
    weight = np.cumsum(nnz[order] + 1)
    edges = np.searchsorted(weight, weight[-1] * np.arange(1, parts) / parts, side="left") + 1
    # no part may be empty, however heavy single rows are
    edges = np.clip(edges, np.arange(1, parts), n - parts + np.arange(1, parts))
    edges = np.maximum.accumulate(edges - np.arange(1, parts)) + np.arange(1, parts)
    return np.split(order, edges)
