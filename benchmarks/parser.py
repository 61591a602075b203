"""How fast LIBSVM text is read: here and by whichever other readers are installed, and in how much memory.

    python benchmarks/parser.py [--like rcv1] [--megabytes 276] [--repeats 3] [--full-digits]

Every reading has a process of its own, which is warmed up before the clock starts: imports done, kernels compiled, the
file in the system's cache. The readers take turns, so that a busy machine is unfair to all of them alike; each is
shown by its median, and by its ratio to the fastest other reader; seconds of the processor say more than those on the
wall if others want the processor too. Peak memory is what the process grew by at most while reading, in units of the
size of the four arrays that result.
"""

import argparse
import gzip
import importlib
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from acccocoa.libsvm import parse, read
from acccocoa.synthetic import SHAPES, write


def acccocoa(path: str, threads: int) -> int:
    """Read with this project; returns the bytes of the arrays."""
    examples = read([path], threads=threads)
    return sum(array.nbytes for array in (examples.indptr, examples.indices, examples.values, examples.labels))


def scikit_learn(path: str, _threads: int) -> int:
    """Read with scikit-learn."""
    from sklearn.datasets import load_svmlight_file

    matrix, labels = load_svmlight_file(path, dtype=np.float32, zero_based=False)
    return int(matrix.indptr.nbytes + matrix.indices.nbytes + matrix.data.nbytes + labels.nbytes)


def svmloader(path: str, _threads: int) -> int:
    """Read with svmloader."""
    module = importlib.import_module("svmloader")
    matrix, labels = module.load_svmfile(path, dtype="f", ltype="d", zero_based=False)
    return int(matrix.indptr.nbytes + matrix.indices.nbytes + matrix.data.nbytes + labels.nbytes)


def snapml(path: str, _threads: int) -> int:
    """Read with Snap ML."""
    importlib.import_module("snapml.Loaders").load_from_svmlight_format(path)
    return 0


def liblinear(path: str, _threads: int) -> int:
    """Read with LIBLINEAR's Python interface."""
    from liblinear.commonutil import svm_read_problem

    labels, matrix = svm_read_problem(path, return_scipy=True)
    return int(matrix.indptr.nbytes + matrix.indices.nbytes + matrix.data.nbytes + labels.nbytes)


READERS: dict[str, Callable[[str, int], int]] = {
    reader.__name__: reader for reader in (acccocoa, scikit_learn, svmloader, snapml, liblinear)
}
MODULES = {"scikit_learn": "sklearn"}


def memory(name: str) -> int:
    """Memory of this process in bytes: VmRSS now, VmHWM at most (ru_maxrss may be that of the parent)."""
    found = re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def measure(reader: str, path: str, threads: int) -> dict[str, float]:
    """Read once in this process: seconds, those of processors, bytes of the result, bytes by which memory grew."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    with tempfile.NamedTemporaryFile(suffix=".txt") as small:
        small.write(b"1 1:1\n-1 2:0.5\n")
        small.flush()
        READERS[reader](small.name, threads)
    parse(b"1 1:1\n")
    before = memory("VmRSS")
    begin, busy = time.perf_counter(), time.process_time()
    size = READERS[reader](path, threads)
    seconds, busy = time.perf_counter() - begin, time.process_time() - busy
    return {"seconds": seconds, "busy": busy, "size": size, "grown": memory("VmHWM") - before}


def measure_apart(reader: str, path: Path, threads: int) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.parser", "--measure", reader, str(path), str(threads)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return figures


def make(path: Path, like: str, megabytes: float, full_digits: bool) -> None:
    """Write a file of about this size; with all digits a float64 may need if wanted so."""
    small = path.with_suffix(".small")
    write(like, 200, SHAPES[like].d, 1, small)
    write(like, 1 + int(megabytes * 1e6 * 200 / small.stat().st_size), SHAPES[like].d, 1, path)
    small.unlink()
    if full_digits:
        with path.open() as plain, small.open("w") as full:
            for line in plain:
                label, *entries = line.split()
                pairs = (entry.split(":") for entry in entries)
                full.write(" ".join([label, *(f"{index}:{float(value) / 3!r}" for index, value in pairs)]) + "\n")
        small.rename(path)


def compare(path: Path, repeats: int) -> None:
    """Print a line for each reader."""
    megabytes = path.stat().st_size / 1e6
    others = [name for name in READERS if name != "acccocoa" and importlib.util.find_spec(MODULES.get(name, name))]
    packed = path.with_suffix(".gz")
    with path.open("rb") as plain, gzip.open(packed, "wb", compresslevel=1) as sink:
        shutil.copyfileobj(plain, sink)
    runs = [("acccocoa", threads, source) for source in (path, packed) for threads in (1, 2)]
    runs += [(name, 1, path) for name in others]

    figures: list[list[dict[str, Any]]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, found in zip(runs, figures, strict=True):
            name, threads, source_path = run
            found.append(measure_apart(name, source_path, threads))
    rates, busy_rates = (
        [megabytes / statistics.median(f[clock] for f in found) for found in figures] for clock in ("seconds", "busy")
    )
    best = max(rate for run, rate in zip(runs, rates, strict=True) if run[0] != "acccocoa" or not others)

    print(f"{path.name}: {megabytes:.0f} MB")
    print(f"{'reader':14} {'threads':>7} {'file':>5} {'MB/s':>6} {'ratio':>6} {'MB/CPU s':>8} {'peak memory':>11}")
    for (name, threads, source_path), rate, busy_rate, found in zip(runs, rates, busy_rates, figures, strict=True):
        size = found[0]["size"]
        memory = f"{max(f['grown'] for f in found) / size:.2f}" if size else ""
        speed = f"{rate:6.0f} {rate / best:6.2f} {busy_rate:8.0f}"
        print(f"{name:14} {threads:7} {source_path.suffix:>5} {speed} {memory:>11}")


def main() -> None:
    """Make a file, let everybody read it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", choices=list(SHAPES), default="rcv1")
    parser.add_argument("--megabytes", type=float, default=276)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--full-digits", action="store_true", help="values with up to 17 digits")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, path, threads = options.measure
        print(json.dumps(measure(name, path, int(threads))))
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{options.like}.txt"
        make(path, options.like, options.megabytes, options.full_digits)
        compare(path, options.repeats)


if __name__ == "__main__":
    main()
