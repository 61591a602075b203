"""The command `validate`: what is in the data, and everything that is wrong with it."""

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import numpy as np

from acccocoa.cli import s3_endpoint, tell
from acccocoa.errors import DataError, ParseError

if TYPE_CHECKING:
    from acccocoa.statistics import Spread, Summary


@click.command()
@click.argument("data", nargs=-1, required=True, envvar="ACCCOCOA_VALIDATE_DATA")
@click.option("--zero-based", is_flag=True, help="Feature numbers in DATA begin with 0.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="How values are to be stored.",
)
@click.option(
    "--max-faults",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    metavar="N",
    help="List so many at most.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="all processors",
    help="Threads that parse DATA.",
)
@click.option(
    "--json",
    "as_json",
    envvar="ACCCOCOA_VALIDATE_JSON",
    is_flag=True,
    help="Print one JSON object on standard output, and nothing else there.",
)
@s3_endpoint
def validate(data: tuple[str, ...], zero_based: bool, dtype: str, max_faults: int, threads: int, as_json: bool) -> None:
    """Read all of DATA once (LIBSVM files, also compressed; - is standard input) and tell what is in it.

    Faulty lines are listed on standard error as file:line:column, and left out of the figures. Exit code 4 when there
    are any.
    """
    from acccocoa import loading, statistics  # numba takes a moment to import: not for --help

    faults: list[ParseError] = []
    count = 0

    def note(fault: ParseError) -> None:
        nonlocal count
        count += 1
        if count <= max_faults:
            faults.append(fault)
            click.echo(f"{fault}", err=True)

    collected = statistics.Statistics()
    pieces = loading.pieces(data, note, zero_based=zero_based, dtype=np.dtype(dtype).type, threads=threads)
    failure: DataError | None = None
    try:
        for piece in pieces:
            collected.add(piece)
    except KeyboardInterrupt:  # click would make it exit code 1
        click.echo("interrupted", err=True)
        sys.exit(130)
    except DataError as error:  # the rest cannot be read; what was found is told all the same
        failure = error
        if isinstance(error, ParseError):
            note(error)
    summary = collected.summary()
    if count > max_faults:
        click.echo(f"and {count - max_faults} more", err=True)
    if as_json:
        listed = [
            {
                "file": fault.file,
                "line": fault.line,
                "column": fault.column,
                "requirement": fault.requirement,
                "remedy": fault.remedy,
            }
            for fault in faults
        ]
        fields = statistics.as_json(summary) | {"fault_count": count, "faults": listed}
        tell(json.dumps(fields | {"error": None if failure is None else str(failure)}, allow_nan=False))
    else:
        for line in describe(summary):
            tell(line)
    for warning in summary.warnings():
        click.echo(f"warning: {warning}", err=True)
    if failure is not None:
        raise failure
    if count:
        raise DataError(", ".join(data), f"{count} faulty {'line' if count == 1 else 'lines'}")


def describe(summary: "Summary") -> Iterator[str]:
    """Lines for a person to read."""
    yield f"examples   {summary.n}" + (f", {summary.empty_rows} of them without a value" if summary.empty_rows else "")
    yield f"features   {summary.d}" + (f", {summary.features} of them occur" if summary.features != summary.d else "")
    yield f"entries    {summary.nnz} (density {100 * summary.density:.4g} %)"
    yield f"labels     {_labels(summary)}"
    yield f"row norm   {_spread(summary.row_norms)}"
    yield f"magnitude  {_spread(summary.feature_maxima)} (of a feature, the largest)"


def _labels(summary: "Summary") -> str:
    if summary.label_range is None:
        return "none"
    if summary.labels is None or len(summary.labels) > 20:
        many = "many" if summary.labels is None else str(len(summary.labels))
        return f"{many} values from {summary.label_range[0]:g} to {summary.label_range[1]:g}"
    return ", ".join(f"{spelling}: {count}" for _, spelling, count in summary.labels)


def _spread(found: "Spread | None") -> str:
    return "none" if found is None else f"min {found.min:.6g}, median {found.median:.6g}, max {found.max:.6g}"
