"""The command `shard`: data into shards, and a manifest that says which belong together."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, cast, get_args

import click
import numpy as np

from acccocoa import manifest
from acccocoa.cli import s3_endpoint, tell
from acccocoa.errors import ParseError, UsageError
from acccocoa.manifest import By, Manifest

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?) *(?P<unit>[kmg]?i?b?)", re.IGNORECASE)


class Size(click.ParamType[int]):
    """A number of bytes: 2GB, 500MB, 1.5GiB, 1000000."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See click.ParamType.convert."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value.strip())
        unit = match["unit"].lower() if match else ""
        factor = _UNITS.get(unit) or _UNITS.get(f"{unit}b")
        if match is None or factor is None:
            self.fail(f"{value!r} is not a size such as 2GB, 500MB or 1GiB", param, ctx)
        return int(float(match["number"]) * factor)


@click.command()
@click.argument("data", nargs=-1, required=True, envvar="ACCCOCOA_SHARD_DATA")
@click.option("--shards", required=True, type=int, metavar="K", help="How many.")
@click.option("--by", required=True, type=click.Choice(get_args(By)), help="What is dealt to them: rows, or columns.")
@click.option("--out", required=True, metavar="DIR", help="Directory for them and manifest.json; made if need be.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Another seed, another shuffle.")
@click.option(
    "--memory", type=Size(), default="2GB", show_default=True, metavar="SIZE", help="Stay below this, whatever DATA is."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["binary", "libsvm"]),
    default="binary",
    show_default=True,
    help="Write files that are mapped into memory, or text.",
)
@click.option("--zero-based", is_flag=True, help="Feature numbers in DATA begin with 0.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="How values are stored.",
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
    envvar="ACCCOCOA_SHARD_JSON",
    is_flag=True,
    help="Print the manifest on standard output.",
)
@s3_endpoint
def shard(
    data: tuple[str, ...],
    shards: int,
    by: str,
    out: str,
    seed: int,
    memory: int,
    form: str,
    zero_based: bool,
    dtype: str,
    threads: int,
    as_json: bool,
) -> None:
    """Cut DATA (LIBSVM files, also compressed) into K shards of about as many entries each, for K workers.

    By examples they are shuffled all over; by features every shard has all examples and labels, but only its columns.
    Memory stays below --memory; DIR needs room for the parsed data twice over. An earlier cut in DIR is replaced.
    """
    from acccocoa import loading, sharding  # numba takes a moment to import: not for --help
    from acccocoa.shardplan import Format, Plan

    plan = Plan(shards, cast(By, by), seed, memory, cast(Format, form), np.dtype(dtype).type)
    for source in data:
        if source == "-":
            raise UsageError("DATA -", "standard input is read by train, validate and predict only", "name a file")

    def fail(fault: ParseError) -> None:
        raise fault

    found = loading.pieces(data, fail, zero_based=zero_based, dtype=plan.dtype, threads=threads)
    try:
        done = sharding.cut(found, out, plan, data)
    except KeyboardInterrupt:  # click would make it exit code 1
        click.echo("interrupted", err=True)
        sys.exit(130)
    if as_json:
        tell(json.dumps(json.loads(done.text())))
    click.echo(describe(done, out), err=True)


def describe(done: Manifest, out: str) -> str:
    """One sentence for a person to read."""
    entries = [entry.nnz for entry in done.shards]
    return (
        f"{len(done.shards)} shards by {done.by}, of {min(entries)} to {max(entries)} entries: {done.n} examples, "
        f"{done.d} features, {done.nnz} entries; the manifest is {Path(out) / manifest.NAME}"
    )
