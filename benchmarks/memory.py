"""Resident memory of a worker and of the coordinator after a few rounds, and what of it an entry, a row and d take.

Both are processes of their own, as they are on several machines: a worker that serves a file, and `train --workers`,
which certifies every round. Looked at when three rounds have been certified; from /proc, so on Linux only. From every
figure that of a tiny job is subtracted. What is left of the worker's is fitted by so many bytes for a stored entry, a
row and an entry of its support (least squares of the relative errors); the coordinator's is divided by the largest d.

`anonymous` is what is not a file's: the rest are pages of files (a mapped shard), which the kernel may take away.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from acccocoa import shardfile
from acccocoa.examples import Examples
from benchmarks import data as datasets
from benchmarks.runs import RunFailed, environment, workers

ROUNDS = 3

TARGET = (9.0, 64.0)
"""Bytes of a worker for an entry and for a row, at most."""

TINY = (100, 100, 4)

SHAPES = (
    (50_000, 20_000, 80),
    (200_000, 20_000, 20),
    (200_000, 20_000, 80),
    (50_000, 20_000, 320),
    (50_000, 1_000_000, 80),
    (800_000, 20_000, 20),
)
"""Rows, features and entries of a row: all three vary, each without the others."""


@dataclass(frozen=True)
class Usage:
    """Bytes of a process. resident : in memory;  anonymous : of those, what no file is behind"""

    resident: int
    anonymous: int

    @classmethod
    def of(cls, pid: int) -> "Usage":
        """Of a process that runs."""
        return cls.read(Path(f"/proc/{pid}/status").read_text())

    @classmethod
    def read(cls, status: str) -> "Usage":
        """From what /proc says of a process."""
        found = {name: 1024 * int(size) for name, size in re.findall(r"^(VmRSS|RssAnon):\s+(\d+) kB$", status, re.M)}
        return cls(found["VmRSS"], found["RssAnon"])


@dataclass(frozen=True)
class Seen:
    """A job: the shard's size, and what the two processes took."""

    n: int
    d: int
    nnz: int
    support: int
    worker: Usage
    coordinator: Usage


def look(examples: Examples, options: Sequence[str]) -> Seen:
    """Run a job of one worker on the examples, and look at both processes after ROUNDS rounds.

    options : of `acccocoa-worker serve`

    Raises
    ------
    RunFailed : the run ends before that
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "data.shard"
        shardfile.write(path, examples)
        with workers([str(path)], *options) as ((pid, address),):
            end, other = os.pipe()
            command = [
                *(sys.executable, "-P", "-m", "coordinator", "train", "--workers", address, "--quiet"),
                # smooth: it is not solved before anybody has looked
                *("--loss", "logistic", "--tol", "1e-15", "--local-epochs", "1"),
                *("--certify-every-round", "--trace", f"/dev/fd/{other}"),
            ]
            with subprocess.Popen(command, env=environment(), pass_fds=[other]) as coordinator, os.fdopen(end) as trace:
                os.close(other)
                try:
                    for _ in range(ROUNDS):
                        if not trace.readline():
                            raise RunFailed("the run ended before it could be looked at; see its message above")
                    used = Usage.of(pid), Usage.of(coordinator.pid)
                finally:
                    coordinator.kill()
    return Seen(examples.n, examples.d, examples.nnz, len(np.unique(examples.indices)), *used)


def examples_of(n: int, d: int, entries: int) -> Examples:
    """Rows of that shape; see data.zipf_rows."""
    loaded = datasets.zipf_rows(n, d, entries)
    rows = loaded.rows
    rows.sort_indices()
    return Examples(rows.indptr.astype(np.int64), rows.indices, rows.data, loaded.y, spellings={1.0: "+1", -1.0: "-1"})


def fitted(columns: Sequence[Sequence[float]], figures: Sequence[float]) -> NDArray[np.float64]:
    """Coefficients with the least squares of the relative errors; columns : by figure, all above 0"""
    weights = 1.0 / np.asarray(figures)
    solution, *_ = np.linalg.lstsq(np.asarray(columns) * weights[:, None], np.ones(len(figures)), rcond=None)
    return np.asarray(solution, dtype=np.float64)


def lines(tiny: Seen, seen: Sequence[Seen]) -> list[str]:
    """What is printed. tiny : what is subtracted from the others"""

    def above(one: Seen) -> tuple[int, int, int]:
        return (
            one.worker.resident - tiny.worker.resident,
            one.worker.anonymous - tiny.worker.anonymous,
            one.coordinator.resident - tiny.coordinator.resident,
        )

    out = [
        f"tiny job: worker {tiny.worker.resident / 1e6:.1f} MB, coordinator {tiny.coordinator.resident / 1e6:.1f} MB",
        f"{'n':>8}{'d':>9}{'nnz':>11}{'support':>9}{'worker MB':>11}{'anonymous':>11}{'fit':>9}{'coordinator MB':>16}",
    ]
    columns = [(float(one.nnz), float(one.n), float(one.support)) for one in seen]
    a, b, c = fitted(columns, [max(1, above(one)[0]) for one in seen])
    for one, column in zip(seen, columns, strict=True):
        resident, anonymous, coordinator = (size / 1e6 for size in above(one))
        fit = (a * column[0] + b * column[1] + c * column[2]) / 1e6
        out.append(
            f"{one.n:>8}{one.d:>9}{one.nnz:>11}{one.support:>9}{resident:>11.1f}{anonymous:>11.1f}{fit:>9.1f}"
            f"{coordinator:>16.1f}"
        )
    largest = max(seen, key=lambda one: one.d)
    met = all(above(one)[0] <= TARGET[0] * one.nnz + TARGET[1] * one.n + c * one.support for one in seen)
    out += [
        f"worker: {a:.2f} bytes an entry + {b:.1f} a row + {c:.1f} an entry of the support",
        f"target: at most {TARGET[0]:g} an entry + {TARGET[1]:g} a row, beside the support's:"
        f" {'met' if met else 'missed'}",
        f"coordinator: {above(largest)[2] / largest.d:.1f} bytes an entry of d (at the largest d)",
    ]
    return out


@click.command(help=__doc__)
@click.option("--scale", default=1.0, show_default=True, type=click.FloatRange(0.1), help="of rows and d")
@click.option("--kept", is_flag=True, help="the worker keeps its shard in a file, and maps it")
def main(scale: float, kept: bool) -> None:
    options = () if kept else ("--no-cache",)
    tiny = look(examples_of(*TINY), options)
    shapes = [(max(100, round(scale * n)), max(100, round(scale * d)), entries) for n, d, entries in SHAPES]
    for line in lines(tiny, [look(examples_of(*shape), options) for shape in shapes]):
        click.echo(line)


if __name__ == "__main__":
    main()
