"""Nanoseconds of the worker's kernels for a stored entry, on one core, beside reading the same bytes in a stream.

    sdca      a pass of the local solver from z = 0 and w = 0: hinge, every row due, in the shuffled order of buckets
    loss_sum  what a certificate reads the data for
    products  x_i'w of every row, what a certificate by features reads the data for
    stream    adding up the bytes of the values and the indices, as they lie in memory

The four take turns; shown are medians and quartiles, and the medians over that of `stream`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from acccocoa import losses, synthetic
from acccocoa.compiling import compiled
from acccocoa.shardfile import content_hash
from benchmarks import data as datasets
from worker import kernels
from worker.local_solver import NOBODY, NOT_CENTRED, order_of_visits
from worker.shard import Shard, build

ROWS = {**datasets.SYNTHETIC, "epsilon": 20_000}
"""By data set: rows. epsilon is dense, with 2,000 features."""


def _sum_words(words: NDArray[np.uint64]) -> int:
    """Sum modulo 2^64: additions that can be done in any order, so that memory is what is waited for."""
    total = np.uint64(0)
    for word in words:
        total += word
    return total  # type: ignore[return-value]  # numba's


sum_words: Any = compiled(_sum_words, allocates=False)


def words(array: NDArray[Any]) -> NDArray[np.uint64]:
    """The array's bytes as whole numbers of eight, without what is left over at its end."""
    raw = array.view(np.uint8)
    return raw[: len(raw) // 8 * 8].view(np.uint64)


def tasks(shard: Shard, lam: float) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """By name: what has to be done before every repetition, and what is timed. shard : of one block"""
    (block,) = shard.blocks
    hinge = losses.loss("hinge")
    y = np.where(shard.labels > 0, 1.0, -1.0)
    s, z, u, p = np.ones(shard.n), np.zeros(shard.n), np.zeros(len(shard.support)), np.empty(shard.n)
    (order,) = order_of_visits(0, 0, 0, 0, block.buckets, block.buckets)
    due = np.empty(shard.n + block.bucket, dtype=np.uint32)
    count, _ = kernels.due(s, 0, shard.n, block.bucket, order, NOBODY, shard.n + 1, due)
    data = (shard.indptr, shard.indices, shard.values)
    kappa = 1.0 / (lam * shard.n)

    def fresh() -> None:
        z[:] = 0.0
        u[:] = 0.0

    def sdca() -> None:
        kernels.sdca(*data, y, s, shard.squared_norms, z, u, due[:count], kappa, hinge, NOBODY, NOT_CENTRED, 0.0)

    fresh()
    sdca()
    w = u.copy()
    stored = [words(part) for part in (shard.values, shard.indices)]
    return {
        "sdca": (fresh, sdca),
        "loss_sum": (_nothing, lambda: kernels.loss_sum(*data, y, s, w, 0, shard.n, hinge)),
        "products": (_nothing, lambda: kernels.products(*data, w, 0, shard.n, p)),
        "stream": (_nothing, lambda: [sum_words(part) for part in stored]),
    }


def _nothing() -> None: ...


def measure(
    work: Mapping[str, tuple[Callable[[], object], Callable[[], object]]], repeat: int
) -> dict[str, NDArray[np.float64]]:
    """Seconds of every repetition, by name; they take turns, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(repeat + 1):
        for name, (before, timed) in work.items():
            before()
            began = time.perf_counter()
            timed()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return {name: np.array(found) for name, found in seconds.items()}


def lines(shard: Shard, seconds: Mapping[str, NDArray[np.float64]]) -> list[str]:
    """What is printed of a data set."""
    size = shard.values.nbytes + shard.indices.nbytes
    stream = float(np.median(seconds["stream"]))
    out = [
        f"{shard.n} rows, {len(shard.support)} features, {shard.nnz} entries, {size / shard.nnz:.1f} bytes an entry"
        f"{' (dense)' if shard.dense else ''}; stream {size / stream / 1e9:.1f} GB/s",
        f"{'':>10}{'ns/entry':>10}  {'(quartiles)':<18}{'over stream':>12}",
    ]
    for name, found in seconds.items():
        low, median, high = (1e9 * float(part) / shard.nnz for part in np.quantile(found, (0.25, 0.5, 0.75)))
        spread = f"({low:.2f} .. {high:.2f})"
        out.append(f"{name:>10}{median:>10.2f}  {spread:<18}{float(np.median(found)) / stream:>12.2f}")
    return out


def shard_of(name: str, rows: int) -> Shard:
    """All rows as one worker of one thread has them."""
    examples = synthetic.examples(name, rows, synthetic.SHAPES[name].d, 1)
    return build(examples, content_hash(examples))


@click.command(help=__doc__)
@click.option("--data", "names", multiple=True, type=click.Choice(list(ROWS)), default=tuple(ROWS), show_default=True)
@click.option("--rows", type=click.IntRange(1), help=f"of every set [{ROWS}]")
@click.option("--lam", default=1e-5, show_default=True)
@click.option("--repeat", default=15, show_default=True, type=click.IntRange(1))
def main(names: Sequence[str], rows: int | None, lam: float, repeat: int) -> None:
    for name in names:
        shard = shard_of(name, rows or ROWS[name])
        click.echo(f"\n{name}-like: " + "\n".join(lines(shard, measure(tasks(shard, lam), repeat))))


if __name__ == "__main__":
    main()
