"""SHARD as the user names it -> what the worker holds."""

import errno
import functools
import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from acccocoa import cache, dealing, loading, manifest, objectstore, partition
from acccocoa.cache import NOWHERE, Places
from acccocoa.errors import DataError, UsageError
from acccocoa.examples import LABEL_SPELLINGS_KEPT, Examples
from acccocoa.manifest import By, Part
from acccocoa.weights import read as read_weights
from acccocoa.weights import weighted_hash
from worker import kept, scaling
from worker.local_solver import compile_kernels
from worker.service import Holdings
from worker.shard import Shard, build, build_by_features

_PART = re.compile(r"^(?P<file>.+)#(?P<part>\d+)/(?P<parts>\d+)$")


def sibling(source: str, part: Part, number: int) -> str:
    """Where another part of the same whole is, for a SHARD that is one: FILE#k/K, or a shard beside its manifest.

    Raises
    ------
    DataError, UsageError : there is no manifest beside it any more, or of another cut
    """
    match = _PART.match(source)
    if match is not None:
        return f"{match['file']}#{number}/{part.parts}"
    beside = f"{source.rpartition('/')[0]}/" if "/" in source else ""
    found = loading.manifest_at(beside + manifest.NAME)
    if found.id != part.whole:
        raise UsageError(beside + manifest.NAME, f"is not what {source} was cut by")
    return beside + found.shards[number].file


def check(source: str) -> None:
    """Look whether there is something to load, before anything else is begun.

    Raises
    ------
    DataError : there is no such file, or it may not be read
    """
    match = _PART.match(source)
    name = source if match is None else match["file"]
    if objectstore.is_s3(name):
        return
    try:
        os.stat(name)  # noqa: PTH116  # pathlib's raises on impossible names, too
        if not os.access(name, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (OSError, ValueError) as error:
        raise DataError(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


def load(
    source: str,
    *,
    zero_based: bool = False,
    dtype: str = "float32",
    threads: int = 1,
    by: By = "examples",
    places: Places = NOWHERE,
    weights: str | None = None,
) -> Holdings:
    """Load a shard and compile the kernels for it.

    Parameters
    ----------
    source : a LIBSVM file (compressed or not), a shard file, or FILE#k/K: part k of K (counted from 0) of such a file;
        a file may be s3://BUCKET/KEY
    zero_based, dtype : how LIBSVM text is read
    threads : blocks to cut the shard into, at most
    by : what parts and rows of the shard are; shards that were cut by features know it
    places : where parsed text may be kept
    weights : file with the weights of the examples in SHARD's file (see acccocoa.weights)

    Raises
    ------
    DataError : a file cannot be read or parsed
    UsageError : the part is out of range, or the file a shard that was cut in another way
    """
    began = time.perf_counter()
    match = _PART.match(source)
    name = source if match is None else match["file"]
    number, parts = (0, 1) if match is None else (int(match["part"]), int(match["parts"]))
    reading = functools.partial(
        loading.load, [name], zero_based=zero_based, dtype=np.dtype(dtype).type, threads=threads, places=places
    )
    found = reading(verify=False)
    identity = functools.partial(_identity, name=name, cut=match is not None, number=number, parts=parts, by=by)
    its = identity(found)
    shard = kept.find(_homes(name, number, parts, its.by, places), its.digest, threads)
    if shard is None:
        if not found.verified:
            found = reading()
            its = identity(found)  # the file may have been replaced meanwhile
        made = _build(found.examples, its.digest, number, parts, its.by, threads)
        shard = kept.keep(_homes(name, number, parts, its.by, places), made, threads)
    if weights is not None:
        of_examples = read_weights(weights, found.examples.n)
        shard = replace(
            shard,
            weights=of_examples if its.by == "features" else of_examples[shard.rows],
            content_hash=weighted_hash(its.digest, of_examples),
        )
    labels, counts = np.unique(shard.labels, return_counts=True)
    complete = len(labels) <= LABEL_SPELLINGS_KEPT and all(float(label) in found.examples.spellings for label in labels)
    listed = (
        tuple(
            (float(label), found.examples.spellings[float(label)], int(count))
            for label, count in zip(labels, counts, strict=True)
        )
        if complete
        else ()
    )
    sizes = scaling.sizes(shard)
    loaded = time.perf_counter()
    compile_kernels(shard.values.dtype)
    return Holdings(
        source=source,
        shard=shard,
        label_counts=listed,
        label_counts_complete=complete,
        load_seconds=loaded - began,
        compile_seconds=time.perf_counter() - loaded,
        index_base=found.index_base,
        part=its.part,
        sizes=sizes,
    )


@dataclass(frozen=True)
class _Identity:
    """What the worker's shard is: the hash of what it is made from, the part it is of a whole, and how that is cut."""

    digest: str
    part: Part | None
    by: By


def _identity(found: loading.Loaded, name: str, cut: bool, number: int, parts: int, by: By) -> _Identity:
    """cut : it is part `number` of `parts` of what was found"""
    digest, part = found.content_hash, found.part
    if part is not None and part.by != by:
        if part.by == "examples" or cut:
            raise UsageError(f"--by {by}", f"{name} was cut by {part.by}", f"serve it by {part.by}")
        by = part.by
    if cut:
        part = Part(digest, number, parts, by)
        digest = dealing.part_hash(digest, number, parts)
    return _Identity(dealing.hash_by(digest, by), part, by)


def _homes(name: str, number: int, parts: int, by: By, places: Places) -> list[Path]:
    """Where that part may be kept; nowhere if nobody finds what comes from a pipe again."""
    if not places.enabled or not (objectstore.is_s3(name) or Path(name).is_file()):
        return []
    which = "" if parts == 1 else f"-{number}-of-{parts}"
    return cache.homes([name], places, f"{which}{'' if by == 'examples' else '-by-features'}{kept.SUFFIX}")


def _build(examples: Examples, digest: str, number: int, parts: int, by: By, threads: int) -> Shard:
    if by == "features":
        return build_by_features(examples, digest, number, parts, threads)
    rows = None if parts == 1 else partition.cut_examples(np.diff(examples.indptr), number, parts)
    return build(examples, digest, rows, threads)
