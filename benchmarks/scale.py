"""Cost as n, d, the entries of a row, and the number of workers K double, at a fixed number of passes.

Synthetic rows of unit norm, in which n, d and entries can be chosen one by one. Real worker processes on this machine;
shown is a round of the fastest of the repetitions, which take turns over a series: its milliseconds, their ratio to the
row above, what the slowest worker computed (certificates not counted), and the rest, which is certificates, wire and
coordinator. Doubling n is to take at most 2.1 times as long; doubling K at most half as long, and the rest. With more
workers than cores the time of a round cannot fall any more.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks import data
from benchmarks.peers import Cell, ours

BASE = {"n": 50_000, "d": 20_000, "entries": 40, "K": 1}

LIMIT = 600.0

N_RATIO = 2.1
"""Time over that of half as many examples, at most."""


@click.command(help=__doc__)
@click.option("--vary", multiple=True, type=click.Choice(list(BASE)), default=tuple(BASE), help="may be repeated [all]")
@click.option("--doublings", default=3, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(1), help="one pass each")
@click.option("--loss", default="hinge", show_default=True)
@click.option("--lam", default=1e-5, show_default=True)
@click.option("--local", default=2, show_default=True, type=click.IntRange(1), help="workers where K does not vary")
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1))
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="keeps the data [a temporary one]")
def main(
    vary: tuple[str, ...],
    doublings: int,
    rounds: int,
    loss: str,
    lam: float,
    local: int,
    repeat: int,
    data_dir: Path | None,
) -> None:
    directory = data_dir or Path(tempfile.gettempdir()) / "acccocoa-benchmarks"
    directory.mkdir(parents=True, exist_ok=True)
    for name in vary:
        series = []
        for doubling in range(doublings + 1):
            shape = {**BASE, "K": local} if name != "K" else dict(BASE)
            shape[name] = BASE[name] << doubling
            series.append((shape, _cell(shape, loss, lam, directory)))
        _measure(name, series, rounds, repeat)


def _cell(shape: dict[str, int], loss: str, lam: float, directory: Path) -> Cell:
    path = directory / f"zipf-{shape['n']}-{shape['d']}-{shape['entries']}.svm"
    if not path.exists():
        data.write(data.zipf_rows(shape["n"], shape["d"], shape["entries"]), path)
    return Cell(path.stem, path, data.load(path), loss, lam)


@dataclass(frozen=True)
class Timed:
    """The fastest run of a row. seconds : of a round;  computed : of those, by the worker that took longest

    n, d, nnz : of the data;  k : workers;  moved : bytes of a round, both ways
    """

    n: int
    d: int
    nnz: int
    k: int
    seconds: float
    computed: float
    moved: float

    @property
    def rest(self) -> float:
        """Seconds of a round that no worker computes: the wire, the coordinator, and waiting for a core."""
        return self.seconds - self.computed


def verdict(name: str, before: Timed, now: Timed) -> str:
    """The target of a doubling, and whether it is met; empty where there is none."""
    if name == "n":
        ratio = now.seconds / before.seconds
        return f"at most {N_RATIO:g}: {'met' if ratio <= N_RATIO else 'missed'}"
    if name == "K":
        most = before.seconds / 2 + now.rest
        return f"at most {most * 1e3:.2f} ms: {'met' if now.seconds <= most else 'missed'}"
    return ""


def _run(cell: Cell, k: int, rounds: int) -> Timed:
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace"
        run = ours(cell, f"--local {k} --threads 1 --max-rounds {rounds} --local-epochs 1", 1e-12, LIMIT, trace)
        certified = [json.loads(line)["workers"] for line in trace.read_text().splitlines()]
    computed = [sum(workers[rank]["compute_seconds"] for workers in certified) for rank in range(k)]
    moved = run["bytes"]["pushed"] + run["bytes"]["returned"]
    loaded = cell.loaded
    return Timed(
        *(loaded.n, loaded.d, loaded.nnz, k),
        *(run["seconds"]["solve"] / run["rounds"], max(computed) / run["rounds"], moved / run["rounds"]),
    )


def _measure(name: str, series: list[tuple[dict[str, int], Cell]], rounds: int, repeat: int) -> None:
    found: list[list[Timed]] = [[] for _ in series]
    for _ in range(repeat):
        for runs, (shape, cell) in zip(found, series, strict=True):
            runs.append(_run(cell, shape["K"], rounds))
    click.echo(
        f"\n{name:>8}{'n':>10}{'d':>9}{'nnz':>12}{'K':>4}{'ms/round':>10}{'ratio':>7}{'compute':>9}{'rest':>8}"
        f"{'ns/nnz':>8}{'MB/round':>10}  target"
    )
    before: Timed | None = None
    for runs, (shape, _) in zip(found, series, strict=True):
        now = min(runs, key=lambda run: run.seconds)
        ratio = f"{now.seconds / before.seconds:.2f}" if before else ""
        target = verdict(name, before, now) if before else ""
        line = (
            f"{shape[name]:>8}{now.n:>10}{now.d:>9}{now.nnz:>12}{now.k:>4}{now.seconds * 1e3:>10.2f}{ratio:>7}"
            f"{now.computed * 1e3:>9.2f}{now.rest * 1e3:>8.2f}{now.seconds / now.nnz * 1e9:>8.2f}"
            f"{now.moved / 1e6:>10.3f}  {target}"
        )
        click.echo(line.rstrip())
        before = now


if __name__ == "__main__":
    main()
