"""SHARD as the user names it -> what the worker holds."""

import re
import time

import numpy as np

from acccocoa import dealing, libsvm, partition, shardfile
from acccocoa.examples import LABEL_SPELLINGS_KEPT, Examples
from worker.local_solver import compile_kernels
from worker.service import Holdings
from worker.shard import build, build_by_features

_PART = re.compile(r"^(?P<file>.+)#(?P<part>\d+)/(?P<parts>\d+)$")


def _examples(source: str, zero_based: bool, dtype: str, threads: int) -> tuple[Examples, str]:
    if shardfile.is_shard_file(source):
        return shardfile.read(source)
    examples = libsvm.read([source], zero_based=zero_based, dtype=np.dtype(dtype).type, threads=threads)
    return examples, shardfile.content_hash(examples)


def load(
    source: str, *, zero_based: bool = False, dtype: str = "float32", threads: int = 1, by: str = "examples"
) -> Holdings:
    """Load a shard and compile the kernels for it.

    Parameters
    ----------
    source : a LIBSVM file (compressed or not), a shard file, or FILE#k/K: part k of K (counted from 0) of such a file
    zero_based, dtype : how LIBSVM text is read
    threads : blocks to cut the shard into, at most
    by : "examples" or "features", what parts and rows of the shard are

    Raises
    ------
    DataError : the file cannot be read or parsed
    UsageError : the part is out of range
    """
    began = time.perf_counter()
    match = _PART.match(source)
    name = source if match is None else match["file"]
    part, parts = (0, 1) if match is None else (int(match["part"]), int(match["parts"]))
    examples, digest = _examples(name, zero_based, dtype, threads)
    if match is not None:
        digest = dealing.part_hash(digest, part, parts)
    digest = dealing.hash_by(digest, by)
    if by == "features":
        shard = build_by_features(examples, digest, part, parts, threads)
    else:
        rows = None if match is None else partition.cut_examples(np.diff(examples.indptr), part, parts)
        shard = build(examples, digest, rows, threads)
    labels, counts = np.unique(shard.labels, return_counts=True)
    complete = len(labels) <= LABEL_SPELLINGS_KEPT and all(float(label) in examples.spellings for label in labels)
    listed = (
        tuple(
            (float(label), examples.spellings[float(label)], int(count))
            for label, count in zip(labels, counts, strict=True)
        )
        if complete
        else ()
    )
    loaded = time.perf_counter()
    compile_kernels(shard.values.dtype)
    return Holdings(
        source=source,
        shard=shard,
        label_counts=listed,
        label_counts_complete=complete,
        load_seconds=loaded - began,
        compile_seconds=time.perf_counter() - loaded,
    )
