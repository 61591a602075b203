"""The data sets of the benchmarks: LIBSVM files in a directory, made when they are asked for the first time."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from acccocoa import libsvm, synthetic
from acccocoa.errors import UsageError
from acccocoa.losses import Vector

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Where the real sets are, when they are there: beside the repository."""

SYNTHETIC = {"rcv1": 200_000, "covtype": 200_000, "news20": 19_996}
"""Rows of the sets in the likeness of others."""

REAL: dict[str, tuple[str, ...]] = {
    "imdb": ("unpack", "imdb", "--normalize"),
    "kdd99": ("unpack", "kdd99_10pct", "--normalize"),
    "news20-3grams": ("text", "news20", "--ngram", "3"),
    "words": ("words",),
    "debdesc": ("debdesc", "--ngram", "2", "--weight", "tfidf"),
}
"""Arguments of prepare.py; the rows of all of them are shuffled, and of unit norm."""

NAMES = (*SYNTHETIC, *REAL)


def file(name: str, directory: Path, shared: Path = SHARED) -> Path:
    """The file of a set, made when it is not there yet.

    Raises
    ------
    UsageError : the set cannot be made here
    """
    path = directory / f"{name}.svm"
    if path.exists():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    if name in SYNTHETIC:
        synthetic.write(name, SYNTHETIC[name], synthetic.SHAPES[name].d, 1, path)
        return path
    script = shared / "prepare.py"
    if not script.exists():
        raise UsageError(f"--data {name}", f"needs {script}, which is not there")
    part = path.with_suffix(".part")
    done = subprocess.run(
        [sys.executable, str(script), *REAL[name], "--shuffle", "1", "-o", str(part)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        part.unlink(missing_ok=True)
        raise UsageError(f"--data {name}", f"cannot be made: {(done.stderr.strip() or 'no reason').splitlines()[-1]}")
    return part.rename(path)


@dataclass(frozen=True)
class Loaded:
    """A set in memory.

    Attributes
    ----------
    rows : scipy CSR of float32, shape (n, d)
    y : float64, shape (n,), +1 and -1, or a target
    """

    rows: Any
    y: Vector

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.y)

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.rows.shape[1])

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.rows.nnz)

    @property
    def density(self) -> float:
        """Share of the entries that are stored."""
        return self.nnz / (self.n * self.d)


def load(path: str | Path) -> Loaded:
    """Read a file with two labels; the larger one becomes +1."""
    examples = libsvm.read([str(path)])
    labels = np.unique(examples.labels)
    if len(labels) != 2:
        raise UsageError(str(path), "needs two labels")
    rows = sparse.csr_matrix(
        (examples.values, examples.indices, examples.indptr.astype(np.int32)), shape=(examples.n, examples.d)
    )
    return Loaded(rows, np.where(examples.labels == labels[1], 1.0, -1.0))


def zipf_rows(n: int, d: int, per_row: int, seed: int = 0) -> Loaded:
    """Sparse rows of unit norm with nearly per_row entries each and labels of a noisy planted model.

    Unlike the shapes of acccocoa.synthetic, n, d and the number of entries can be chosen one by one.
    """
    random = np.random.default_rng(seed)
    popularity = np.cumsum(1.0 / (np.arange(d) + 10.0))
    ranks = np.searchsorted(popularity, random.random(n * per_row) * popularity[-1]).astype(np.int32)
    columns = random.permutation(d).astype(np.int32)[ranks]
    counts = sparse.csr_matrix((np.ones(n * per_row, np.float32), columns, np.arange(n + 1) * per_row), shape=(n, d))
    counts.sum_duplicates()
    counts.data /= np.repeat(np.sqrt(np.add.reduceat(counts.data**2, counts.indptr[:-1])), np.diff(counts.indptr))
    scores = counts @ random.standard_normal(d) + 0.3 * random.standard_normal(n)
    return Loaded(counts, np.where(scores > 0, 1.0, -1.0))


def _label(label: float) -> str:
    return f"{label:+.0f}" if abs(label) == 1.0 else f"{label:.9g}"


def write(loaded: Loaded, path: Path) -> None:
    """Write LIBSVM text."""
    indptr, indices, values = loaded.rows.indptr, loaded.rows.indices, loaded.rows.data
    with path.open("w", encoding="ascii") as stream:
        for row, label in enumerate(loaded.y):
            part = slice(indptr[row], indptr[row + 1])
            entries = zip((indices[part] + 1).tolist(), values[part].tolist(), strict=True)
            stream.write(f"{_label(label)} {' '.join(f'{index}:{value:.6g}' for index, value in entries)}\n")


def files(names: Sequence[str], directory: Path, shared: Path = SHARED) -> tuple[dict[str, Path], dict[str, str]]:
    """Files of several sets, and why the others could not be made."""
    found: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            found[name] = file(name, directory, shared)
        except UsageError as error:
            missing[name] = str(error)
    return found, missing
