"""Coverage-guided fuzzing of the LIBSVM reader, for hours; CI runs test_libsvm_fuzz.py, with the same check.

    pip install atheris
    python -m tests.property.fuzz_libsvm -max_total_time=3600 [CORPUS]

The options are libFuzzer's. Input that fails the check is written to a file crash-HASH, whose name as the only argument
repeats it.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["acccocoa"], exclude=["acccocoa.libsvm_kernels"]):  # those are compiled
    from tests.property.test_libsvm_fuzz import COMPRESSED, check

import numpy as np

PIECES = [b" ", b"\n", b"\r\n", b"1", b"-1", b":", b" 1:1", b" 2:0.5", b"#", b"qid:3", b"e", b".", b"nan", b"\0"]


def fuzz(data: bytes) -> None:
    """One input: the options of reading, then text, partly put together of pieces that have a meaning there."""
    source = atheris.FuzzedDataProvider(data)
    zero_based = source.ConsumeBool()
    dtype = np.float32 if source.ConsumeBool() else np.float64
    block_bytes = source.PickValueInList([1, 2, 7, 30, 200, 1 << 16])
    threads = source.ConsumeIntInRange(1, 2)
    picked = [source.PickValueInList(PIECES) for _ in range(source.ConsumeIntInRange(0, 12))]
    text = b"".join(picked) + source.ConsumeBytes(source.remaining_bytes())
    if not text.startswith(COMPRESSED):
        check(PATH, text, zero_based, dtype, block_bytes, threads)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        PATH = Path(directory) / "text"
        atheris.Setup(sys.argv, fuzz)
        atheris.Fuzz()
