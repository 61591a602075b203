"""Cost as n, d, the entries of a row, and the number of workers K double, at a fixed number of passes.

Synthetic rows of unit norm, in which n, d and entries can be chosen one by one. Real worker processes on this machine;
shown are the seconds of solving of the fastest of the repetitions, which take turns over a series, and their ratio to
the row above. With more workers than cores the time per round cannot fall any more.
"""

import tempfile
from pathlib import Path

import click

from benchmarks import data
from benchmarks.peers import Cell, ours

BASE = {"n": 50_000, "d": 20_000, "entries": 40, "K": 1}

LIMIT = 600.0


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


def _measure(name: str, series: list[tuple[dict[str, int], Cell]], rounds: int, repeat: int) -> None:
    best = [float("inf")] * len(series)
    sent = [0] * len(series)
    for _ in range(repeat):
        for place, (shape, cell) in enumerate(series):
            run = ours(cell, f"--local {shape['K']} --max-rounds {rounds} --local-epochs 1", 1e-12, LIMIT)
            best[place] = min(best[place], run["seconds"]["solve"])
            sent[place] = run["bytes"]["pushed"] + run["bytes"]["returned"]
    click.echo(
        f"\n{name:>8}{'n':>10}{'d':>9}{'nnz':>12}{'K':>4}{'seconds':>9}{'ratio':>7}{'ns/nnz':>8}{'MB/round':>10}"
    )
    for place, (shape, cell) in enumerate(series):
        ratio = f"{best[place] / best[place - 1]:.2f}" if place else ""
        each = best[place] / rounds / cell.loaded.nnz * 1e9
        click.echo(
            f"{shape[name]:>8}{cell.loaded.n:>10}{cell.loaded.d:>9}{cell.loaded.nnz:>12}{shape['K']:>4}"
            f"{best[place]:>9.3f}{ratio:>7}{each:>8.2f}{sent[place] / rounds / 1e6:>10.3f}"
        )


if __name__ == "__main__":
    main()
