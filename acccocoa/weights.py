"""Weights of the examples: a file of one number a line, and weights by label."""

import hashlib
import io
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acccocoa.errors import DataError, ParseError, UsageError
from acccocoa.losses import Vector

_NPY = b"\x93NUMPY"
_NUMBER = re.compile(rb"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SHOWN = 40


def read(path: str | os.PathLike[str], n: int) -> Vector:
    """The weights of n examples: line i (or element i of a .npy file) belongs to example i.

    Returns
    -------
    float64, shape (n,), all finite and >= 0, not all 0

    Raises
    ------
    DataError : the file cannot be read, or is not that
    """
    name = os.fspath(path)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(name, f"cannot be read: {error.strerror or error}") from error
    weights = _array(content, name) if content.startswith(_NPY) else _text(content, name)
    if len(weights) != n:
        raise DataError(name, f"has {len(weights)} weights for {n} examples", "one a line, in the order of the data")
    if not weights.any():
        raise DataError(name, "has no weight above 0")
    return weights


def _array(content: bytes, name: str) -> Vector:
    try:
        weights = np.load(io.BytesIO(content), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(name, f"is not a .npy file: {error}") from error
    if weights.ndim != 1 or weights.dtype != np.float64:
        raise DataError(
            name,
            f"holds {weights.dtype} of shape {weights.shape}, not a vector of float64",
            "save it as weights.astype(float).ravel()",
        )
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise DataError(f"{name}, element {wrong[0]}", f"is {weights[wrong[0]]}, and must be finite and >= 0")
    return np.asarray(weights)


def _text(content: bytes, name: str) -> Vector:
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    weights = np.empty(len(lines))
    for i, line in enumerate(lines):
        word = line.strip()
        weights[i] = float(word) if _NUMBER.fullmatch(word) else math.nan
        if not math.isfinite(weights[i]):
            shown = repr(word[:_SHOWN].decode("ascii", "replace"))
            raise ParseError(name, i + 1, 1, f"{shown} is not a weight", "one finite number >= 0 a line")
    return weights


def weighted_hash(content_hash: str, weights: Vector) -> str:
    """The content hash of examples with that content hash and those weights, hexadecimal."""
    digest = hashlib.sha256(np.ascontiguousarray(weights).view(np.uint8).data).hexdigest()
    return hashlib.sha256(f"{content_hash} weighted {digest}".encode()).hexdigest()


def parse_label_weights(text: str) -> dict[float, float]:
    """LABEL=X,... as {label: weight}.

    Raises
    ------
    UsageError : it is not that
    """
    found: dict[float, float] = {}
    for part in text.split(","):
        label, equals, weight = part.partition("=")
        try:
            key, value = float(label), float(weight)
        except ValueError:
            key = value = math.nan
        if not equals or not (math.isfinite(key) and math.isfinite(value) and value > 0):
            raise UsageError(f"--class-weight {part}", "must be LABEL=X,... with finite numbers X > 0")
        if key in found:
            raise UsageError(f"--class-weight {part}", f"gives label {label} a second weight")
        found[key] = value
    return found


def of_labels(labels: NDArray[np.float64], label_weights: Mapping[float, float]) -> Vector:
    """The weight of every example by its label, 1 where none is given; float64, shape of labels."""
    weights = np.ones(len(labels))
    for label, weight in label_weights.items():
        weights[labels == label] = weight
    return weights
