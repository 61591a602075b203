"""Primal and dual values from the data, the model file and the workers' files, by code of its own."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """A data set. rows : float64, shape (n, d), values as float32 has them;  labels : float64, shape (n,)"""

    rows: NDArray[np.float64]
    labels: Vector

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.labels)


def read_table(path: Path) -> Table:
    """Read LIBSVM text, the plain way."""
    labels: list[float] = []
    entries: list[list[tuple[int, float]]] = []
    for line in path.read_text().splitlines():
        label, *pairs = line.split()
        labels.append(float(label))
        entries.append([(int(index), float(value)) for index, value in (pair.split(":") for pair in pairs)])
    rows = np.zeros((len(entries), max(index for row in entries for index, _ in row)))
    for i, row in enumerate(entries):
        for index, value in row:
            rows[i, index - 1] = np.float32(value)
    return Table(rows, np.array(labels))


def read_weights(path: Path) -> Vector:
    """w of a model file in LIBLINEAR's format."""
    lines = path.read_text().splitlines()
    return np.array([float(line) for line in lines[lines.index("w") + 1 :]])


@dataclass(frozen=True)
class Duals:
    """A worker's file. facts : what it says of itself; alpha, rows : the dual variables, and whose they are"""

    path: Path
    facts: dict[str, Any]
    alpha: Vector
    rows: NDArray[np.int64]


def read_duals(path: Path) -> Duals:
    """A worker's file; fails when it is damaged."""
    with np.load(io.BytesIO(path.read_bytes())) as archive:
        assert archive["alpha"].shape == archive["z"].shape == archive["rows"].shape
        return Duals(path, json.loads(str(archive["facts"])), archive["alpha"], archive["rows"].astype(np.int64))


def newest_duals(directory: Path) -> Duals:
    """The newest file in a worker's directory; all that are there must be whole."""
    found = [read_duals(path) for path in sorted(directory.glob("*.duals"))]
    assert found, f"no dual variables in {directory}"
    return max(found, key=lambda duals: int(duals.facts["number"]))


def join(n: int, parts: Sequence[Duals]) -> Vector:
    """alpha of all examples; every example must be in exactly one part."""
    alpha = np.full(n, np.nan)
    for part in parts:
        assert np.isnan(alpha[part.rows]).all(), "an example is in two shards"
        alpha[part.rows] = part.alpha
    assert not np.isnan(alpha).any(), "an example is in no shard"
    return alpha


def primal(loss: str, lam: float, table: Table, w: Vector, l1_ratio: float = 0.0) -> float:
    """(1/n) sum_i loss(y_i, x_i'w) + lam (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2)."""
    p = table.rows[:, : len(w)] @ w
    y = table.labels
    each: dict[str, Vector] = {
        "hinge": np.maximum(0.0, 1.0 - y * p),
        "squared_hinge": np.maximum(0.0, 1.0 - y * p) ** 2,
        "logistic": np.logaddexp(0.0, -y * p),
        "squared": 0.5 * (y - p) ** 2,
    }
    return float(np.mean(each[loss]) + lam * (l1_ratio * np.abs(w).sum() + 0.5 * (1.0 - l1_ratio) * (w @ w)))


def dual(loss: str, lam: float, table: Table, alpha: Vector) -> float:
    """-(1/n) sum_i loss*(-alpha_i) - |A alpha|^2 / (2 lam)."""
    y = table.labels
    a = y * alpha
    # the ends of the domain may be passed in the last digit
    if loss in ("hinge", "logistic", "squared_hinge"):
        assert a.min() >= -1e-14 * a.max()
        a = np.maximum(a, 0.0)
    if loss in ("hinge", "logistic"):
        assert a.max() <= 1.0 + 1e-14
        a = np.minimum(a, 1.0)

    def entropy(t: Vector) -> Vector:
        return t * np.log(np.where(t > 0, t, 1.0))

    conjugate: dict[str, Vector] = {
        "hinge": -a,
        "squared_hinge": -a + a * a / 4.0,
        "logistic": entropy(a) + entropy(1.0 - a),
        "squared": -y * alpha + 0.5 * alpha * alpha,
    }
    v = table.rows.T @ alpha / table.n
    return float(-np.mean(conjugate[loss]) - (v @ v) / (2.0 * lam))


def squared_dual(lam: float, table: Table, w: Vector, l1_ratio: float) -> float:
    """A lower bound of the least value of `primal` for the squared loss, from the residuals at w; 0 < l1_ratio < 1."""
    u = (table.rows[:, : len(w)] @ w - table.labels) / table.n
    beyond = np.maximum(np.abs(table.rows.T @ u) - lam * l1_ratio, 0.0)
    f_conjugate = 0.5 * table.n * (u @ u) + u @ table.labels
    return float(-f_conjugate - (beyond @ beyond) / (2.0 * lam * (1.0 - l1_ratio)))
