"""The command `generate`: synthetic data in the likeness of a well-known set."""

import sys

import click

from acccocoa.errors import UsageError
from acccocoa.synthetic import SHAPES, ByteSink, write


@click.command()
@click.option("--like", required=True, type=click.Choice(list(SHAPES)), help="Data set to imitate.")
@click.option("--n", type=int, metavar="N", help="Examples [default: as many as the original has].")
@click.option("--d", type=int, metavar="D", help="Features [default: as many as the original has].")
@click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="Another seed, other data.")
@click.option("--out", required=True, metavar="F", help="File to write; - is standard output.")
def generate(like: str, n: int | None, d: int | None, seed: int, out: str) -> None:
    """Write synthetic data as LIBSVM text. The same arguments give the same bytes."""
    shape = SHAPES[like]
    sink: ByteSink | str = sys.stdout.buffer if out == "-" else out
    try:
        write(like, shape.n if n is None else n, shape.d if d is None else d, seed, sink)
    except BrokenPipeError:
        raise  # the reader has had enough: click ends the process quietly
    except OSError as error:
        raise UsageError(f"--out {out}", f"cannot be written: {error.strerror}") from error
