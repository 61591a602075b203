"""Data the tests make, what LIBLINEAR makes of it, and what a model is worth on it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from liblinear import liblinearutil
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix

from acccocoa import libsvm, losses, model
from acccocoa.losses import Vector
from acccocoa.problem import Problem

SOLVERS = {"hinge": 3, "squared_hinge": 2, "logistic": 0}
"""LIBLINEAR's most accurate solvers by loss."""


def sparse_text(
    n: int, d: int, seed: int = 0, labels: tuple[str, str] = ("-1", "+1"), noise: float = 0.1, per_row: int = 12
) -> bytes:
    """LIBSVM text of n examples with about per_row of d features each, popular ones first; not quite separable.

    labels : spelling of the negative and of the positive label
    """
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(d)
    lines = []
    for _ in range(n):
        columns = np.unique((d * rng.random(per_row) ** 2).astype(int))
        values = np.round(rng.standard_normal(len(columns)), 3)
        positive = bool(values @ truth[columns] > 0) != (rng.random() < noise)
        entries = " ".join(f"{j + 1}:{value}" for j, value in zip(columns, values, strict=True))
        lines.append(f"{labels[positive]} {entries}\n")
    return "".join(lines).encode()


def dense_text(rows: NDArray[np.float64], targets: Sequence[float]) -> bytes:
    """LIBSVM text of a matrix and its labels."""
    lines = []
    for row, target in zip(rows, targets, strict=True):
        entries = " ".join(f"{j}:{value:.9g}" for j, value in enumerate(row, 1) if value)
        lines.append(f"{target:g} {entries}\n")
    return "".join(lines).encode()


@dataclass(frozen=True)
class Loaded:
    """A data set as scipy has it.

    rows : csr_array of float64, shape (n, d);  labels : float64, shape (n,)
    """

    rows: Any
    labels: Vector

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.labels)

    def signs(self, positive: float) -> Vector:
        """+1 for the positive label, -1 for the other."""
        return np.where(self.labels == positive, 1.0, -1.0)

    def primal(self, loss: str, lam: float, w: Vector, positive: float) -> float:
        """P(w), computed from nothing but the data."""
        problem = Problem(loss, lam, self.n)
        y = self.signs(positive) if losses.loss(loss).classifier else self.labels
        return problem.objective_b(w, float(losses.value(problem.loss, y, self.rows @ w).sum()))


def load(path: Path, dtype: libsvm.Dtype = np.float32) -> Loaded:
    """The data as workers store it, in float64 from there on."""
    examples = libsvm.read([str(path)], dtype=dtype)
    shape = (examples.n, examples.d)
    rows = csr_array((examples.values.astype(np.float64), examples.indices, examples.indptr), shape=shape)
    return Loaded(rows, examples.labels)


def liblinear_optimum(data: Loaded, loss: str, lam: float, positive: float, epsilon: float = 1e-8) -> float:
    """The primal value LIBLINEAR arrives at."""
    y = data.signs(positive)
    options = f"-s {SOLVERS[loss]} -c {1 / (lam * data.n):.17g} -e {epsilon:g} -q"
    # first the label that LIBLINEAR is to take for positive
    order = np.argsort(-y, kind="stable")
    trained = liblinearutil.train(y[order], csr_matrix(data.rows[order]), options)
    w = np.array([trained.w[j] for j in range(data.rows.shape[1])])
    assert trained.get_labels()[0] == 1
    return data.primal(loss, lam, w, positive)


def weights(path: Path) -> Vector:
    """The weights in a model file, as they stand there."""
    lines = path.read_text().splitlines()
    return np.array([float(line) for line in lines[lines.index("w") + 1 :]])


def sidecar(path: Path) -> dict[str, Any]:
    """The object beside a model file."""
    found = json.loads(model.sidecar_path(path).read_text())
    assert isinstance(found, dict)
    return found


def only_json(stdout: str) -> dict[str, Any]:
    """The one object that is all of standard output."""
    lines = stdout.splitlines()
    assert len(lines) == 1, stdout
    found = json.loads(lines[0], parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    assert isinstance(found, dict)
    return found
