"""Lasso to a certified relative gap of 1e-6, beside celer and skglm: the seconds each takes to solve.

(1/2n) |y - X w|^2 + lam |w|_1 without an intercept, lam a share of the smallest lam that makes all weights 0. All get
the same data in memory (float64, CSC); only fitting is timed. The peers stop by a tolerance of their own: the coarsest
power of ten is taken at which the relative gap of the model they return is below 1e-6, by their own account (celer) or
with the dual point scaled from its residuals. Their fits and our runs (real worker processes, seconds.solve of
--json) take turns, so that whatever else the machine does meets all of them; shown are the medians.
"""

import importlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse

from acccocoa import libsvm, synthetic
from acccocoa.losses import Vector
from benchmarks import data

RATIOS = (0.1, 0.02, 0.005)
TARGET = 1e-6
TOLERANCES = tuple(10.0**-power for power in range(3, 13))
DATA = ("news20", "flights", "e2006")


def e2006_like(path: Path) -> None:
    """Shape of E2006-tfidf (Kogan et al. 2009): 16,087 documents, 150,360 features, about 1,200 a document."""
    loaded = data.zipf_rows(16_087, 150_360, 2_400)
    random = np.random.default_rng(1)
    truth = np.where(random.random(loaded.d) < 0.002, random.standard_normal(loaded.d), 0.0)
    signal = loaded.rows @ truth
    y = signal / signal.std() + 0.5 * random.standard_normal(loaded.n)
    data.write(data.Loaded(loaded.rows, y), path)


def file(name: str, directory: Path) -> Path:
    """The data set, made when it is not there yet."""
    path = directory / f"lasso-{name}.svm"
    if path.exists():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    if name == "news20":
        synthetic.write(name, data.SYNTHETIC[name], synthetic.SHAPES[name].d, 1, part)
    elif name == "e2006":
        e2006_like(part)
    else:
        arguments = ["flights", "--regression", "--shuffle", "1", "-o", str(part)]
        subprocess.run([sys.executable, str(data.SHARED / "prepare.py"), *arguments], check=True)
    return part.rename(path)


@dataclass(frozen=True)
class Design:
    """X (float64, CSC, shape (n, d)) and y of a file; largest : the smallest lam that makes all weights 0."""

    path: Path
    x: Any
    y: Vector
    largest: float

    @classmethod
    def of(cls, path: Path) -> "Design":
        """Read the file."""
        read = libsvm.read([str(path)])
        x = sparse.csr_matrix((read.values, read.indices, read.indptr), shape=(read.n, read.d)).tocsc()
        x = x.astype(np.float64)
        return cls(path, x, read.labels, float(np.abs(x.T @ read.labels).max()) / read.n)

    def relative_gap(self, w: Vector, lam: float) -> tuple[float, float]:
        """Of the model, with the best feasible multiple of its residuals; and its primal value."""
        n = len(self.y)
        residual = self.y - self.x @ w
        primal = 0.5 * float(residual @ residual) / n + lam * float(np.abs(w).sum())
        theta = residual / n
        limit = lam / float(np.abs(self.x.T @ theta).max())
        square, product = n * float(theta @ theta), float(theta @ self.y)
        multiple = float(np.clip(product / square, -limit, limit))
        return (primal - multiple * product + 0.5 * multiple**2 * square) / primal, primal


def celer(lam: float, tolerance: float) -> Any:
    """celer, which stops at a gap of tolerance |y|^2 / n."""
    return importlib.import_module("celer").Lasso(lam, fit_intercept=False, tol=tolerance, max_iter=500)


def skglm(lam: float, tolerance: float) -> Any:
    """skglm, which stops where the optimality conditions are violated by less than the tolerance."""
    return importlib.import_module("skglm").Lasso(lam, fit_intercept=False, tol=tolerance * lam, max_iter=500)


PEERS: dict[str, Callable[[float, float], Any]] = {"celer": celer, "skglm": skglm}


def fit(model: Any, design: Design) -> float:
    """Seconds it takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model.fit(design.x, design.y)
        return time.perf_counter() - began


def calibrate(peer: str, design: Design, lam: float) -> tuple[float, float, float] | None:
    """The coarsest tolerance that reaches the target, the gap and the primal value there; None when none does."""
    for tolerance in TOLERANCES:
        model = PEERS[peer](lam, tolerance)
        fit(model, design)
        gap, primal = design.relative_gap(np.asarray(model.coef_), lam)
        # celer knows better dual points than those of its residuals
        gap = min(gap, getattr(model, "dual_gap_", math.inf) / primal)
        if gap <= TARGET:
            return tolerance, gap, primal
    return None


def ours(design: Design, lam: float, options: str) -> dict[str, Any]:
    """The --json object of a run."""
    command = [sys.executable, "-m", "coordinator", "train", str(design.path), "--loss", "squared", "--l1-ratio", "1"]
    command += ["--lam", repr(lam), "--tol", repr(TARGET), "--json", "--quiet", *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@click.command(help=__doc__)
@click.option("--data", "names", multiple=True, type=click.Choice(DATA), default=DATA[:1], show_default=True)
@click.option("--ours", "ours_", multiple=True, default=("", "--local 2"), help="our options, each is a line")
@click.option(
    "--peer", "peers", multiple=True, type=click.Choice(tuple(PEERS)), default=tuple(PEERS), show_default=True
)
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1))
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="keeps the data [a temporary one]")
def main(
    names: tuple[str, ...], ours_: tuple[str, ...], peers: tuple[str, ...], repeat: int, data_dir: Path | None
) -> None:
    directory = data_dir or Path(tempfile.gettempdir()) / "acccocoa-benchmarks"
    for name in names:
        design = Design.of(file(name, directory))
        n, d = design.x.shape
        click.echo(f"\n{name}: {n} x {d}, {design.x.nnz} entries, lam_max {design.largest:.6g}")
        click.echo(f"{'lam/lam_max':>12} {'':24} {'seconds':>8} {'relative gap':>13} {'primal':>16}")
        for ratio in RATIOS:
            for line in compare(design, ratio, ours_, peers, repeat):
                click.echo(line)


def compare(design: Design, ratio: float, settings: tuple[str, ...], peers: tuple[str, ...], repeat: int) -> list[str]:
    """The lines of one lam: of our settings, then of the peers."""
    lam = ratio * design.largest
    reached = {peer: calibrate(peer, design, lam) for peer in peers}
    seconds: dict[str, list[float]] = {each: [] for each in (*settings, *peers)}
    runs: dict[str, dict[str, Any]] = {}
    for _ in range(repeat):
        for options in settings:
            runs[options] = ours(design, lam, options)
            seconds[options].append(runs[options]["seconds"]["solve"])
        for peer, found in reached.items():
            if found is not None:
                seconds[peer].append(fit(PEERS[peer](lam, found[0]), design))
    lines = []
    for options, run in runs.items():
        median, name = statistics.median(seconds[options]), f"acccocoa {options}"
        lines.append(f"{ratio:>12g} {name:24} {median:>8.2f} {run['relative_gap']:>13.1e} {run['primal']:>16.12f}")
    for peer, found in reached.items():
        if found is None:
            lines.append(f"{ratio:>12g} {peer:24} does not reach {TARGET:g}")
            continue
        tolerance, gap, primal = found
        median, name = statistics.median(seconds[peer]), f"{peer}, tol {tolerance:g}"
        lines.append(f"{ratio:>12g} {name:24} {median:>8.2f} {gap:>13.1e} {primal:>16.12f}")
    return lines


if __name__ == "__main__":
    main()
