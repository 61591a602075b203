"""Passes over the data to a certified relative gap, for K workers: what splitting the data costs.

Real runs of `train --local K`, one thread a worker, which stop at the certificate that says so. With equal seeds a run
takes the same decisions everywhere: a busy machine shows the same figures as a quiet one. Shown are medians over the
seeds, and their ratio to the smallest K with the same setting. `default` is what `train` chooses by itself.
"""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from acccocoa.config import LOCAL_EPOCHS_MAX
from benchmarks import data as datasets
from benchmarks.network import file
from benchmarks.runs import RunFailed, train

DEFAULT = "default"

SETTINGS = ("1/16", "1/8", DEFAULT)

TARGETS = {2: 1.4, 4: 2.2}
"""By K: passes over those of one worker, at most."""


@dataclass(frozen=True)
class Point:
    """Runs of a setting with K workers. epochs : passes a round;  passes, rounds : medians"""

    epochs: float
    passes: float
    rounds: float


def epochs_of(setting: str) -> list[str]:
    """Options of a setting: a number, a fraction, or the default.

    Raises
    ------
    click.BadParameter : it is none of these
    """
    if setting == DEFAULT:
        return []
    above, _, below = setting.partition("/")
    try:
        epochs = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        raise click.BadParameter(f"{setting!r} is neither a number nor a fraction nor {DEFAULT!r}") from None
    if not 0.0 < epochs <= LOCAL_EPOCHS_MAX:
        raise click.BadParameter(f"{setting!r} is not above 0 and at most {LOCAL_EPOCHS_MAX}")
    return ["--local-epochs", repr(epochs)]


def measure(path: Path, k: int, setting: str, common: Sequence[str], seeds: int) -> Point:
    """Passes and rounds of K workers.

    Raises
    ------
    RunFailed : a run does not reach the gap
    """
    runs = []
    for seed in range(seeds):
        how = ["--local", str(k), "--threads", "1", "--seed", str(seed), *epochs_of(setting)]
        run = train([str(path), *common, *how])
        if run["status"] != "converged":
            raise RunFailed(f"K = {k}, {setting}: {run['status']} at a relative gap of {run['relative_gap']:.1e}")
        runs.append(run)
    return Point(
        runs[0]["local_epochs"],
        statistics.median(run["data_passes"] for run in runs),
        statistics.median(run["rounds"] for run in runs),
    )


def lines(setting: str, found: Mapping[int, Point]) -> list[str]:
    """What is printed of a setting; found : by K."""
    base = found[min(found)].passes
    out = []
    for k, point in found.items():
        ratio = point.passes / base
        target = ""
        if k in TARGETS and min(found) == 1:
            target = f"at most {TARGETS[k]:g}: {'met' if ratio <= TARGETS[k] else 'missed'}"
        figures = f"{point.epochs:>10g}{point.rounds:>8.0f}{point.passes:>9.1f}{ratio:>7.2f}"
        out.append(f"{setting:>10}{k:>4}{figures}  {target}".rstrip())
    return out


@click.command(help=__doc__)
@click.option("--data", "name", default="rcv1", show_default=True, type=click.Choice(list(datasets.SYNTHETIC)))
@click.option("--k", "counts", multiple=True, type=click.IntRange(1), default=(1, 2, 4), show_default=True)
@click.option("--epochs", "settings", multiple=True, default=SETTINGS, show_default=True, help="passes a round")
@click.option("--loss", default="hinge", show_default=True)
@click.option("--lam", default=1e-5, show_default=True)
@click.option("--tol", default=1e-3, show_default=True, help="relative gap")
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--limit", default=600.0, show_default=True, help="seconds of a run")
@click.option("--rows", type=click.IntRange(1), help="of the data [as many as `peers` takes]")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="keeps the data [a temporary one]")
def main(
    name: str,
    counts: tuple[int, ...],
    settings: tuple[str, ...],
    loss: str,
    lam: float,
    tol: float,
    seeds: int,
    limit: float,
    rows: int | None,
    data_dir: Path | None,
) -> None:
    for setting in settings:
        epochs_of(setting)
    path = file(name, rows, data_dir or Path(tempfile.gettempdir()) / "acccocoa-benchmarks")
    common = ["--loss", loss, "--lam", repr(lam), "--tol", repr(tol), "--max-seconds", repr(limit)]
    click.echo(f"{path.stem}: {loss}, lam {lam:g}, to {tol:g}")
    click.echo(f"{'setting':>10}{'K':>4}{'a round':>10}{'rounds':>8}{'passes':>9}{'ratio':>7}")
    for setting in settings:
        found = {k: measure(path, k, setting, common, seeds) for k in sorted(set(counts))}
        for line in lines(setting, found):
            click.echo(line)


if __name__ == "__main__":
    main()
