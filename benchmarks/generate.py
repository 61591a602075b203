"""How fast synthetic data are made, on one core: LIBSVM text in MB/s, and arrays in memory in ns per entry.

    python benchmarks/generate.py [--like rcv1] [--megabytes 100] [--repeats 5]

Text goes to a sink that throws it away, so that the disk is not what is measured. Medians over the repeats; compilation
is outside.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

from acccocoa.synthetic import SHAPES, examples, write


class Counter:
    """A sink that counts bytes."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: memoryview, /) -> None:
        """Count and forget."""
        self.size += len(data)


def text_size(like: str, n: int) -> int:
    """Size in bytes of the first n rows' text."""
    sink = Counter()
    write(like, n, SHAPES[like].d, 1, sink)
    return sink.size


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """Median time of `work`."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def main() -> None:
    """Print a line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", choices=list(SHAPES), action="append", help="only this shape")
    parser.add_argument("--megabytes", type=float, default=100, help="about how much text to make at a time")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    print(f"{'shape':8} {'rows':>8} {'nnz/row':>8} {'MB':>6} {'bytes/nnz':>9} {'text MB/s':>9} {'memory ns/nnz':>13}")
    for like in options.like or SHAPES:
        d = SHAPES[like].d
        rows = 1 + int(options.megabytes * 1e6 * 100 / text_size(like, 100))
        size = text_size(like, rows)
        nnz = examples(like, rows, d, 1).nnz
        writing = median_seconds(partial(text_size, like, rows), options.repeats)
        making = median_seconds(partial(examples, like, rows, d, 1), options.repeats)
        print(
            f"{like:8} {rows:8} {nnz / rows:8.1f} {size / 1e6:6.1f} {size / nnz:9.1f} {size / writing / 1e6:9.0f} "
            f"{making / nnz * 1e9:13.1f}"
        )


if __name__ == "__main__":
    main()
