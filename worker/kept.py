"""Shards as they are used, kept beside what they were made from, and mapped the next time.

Making a shard (shuffling rows, renumbering features) takes about as long as copying all of it; mapping what is on disk
takes no time, and no memory that the system could not take back. A kept shard is used when it was made by this version
from content of the same hash, and its arrays have the checksums they had. Anything else is a miss.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from acccocoa import arrayfile, cache
from worker.shard import Shard, cut_blocks

log = logging.getLogger(__name__)

MAGIC: Final = arrayfile.KEPT_MAGIC

SUFFIX: Final = ".acccocoa-shard"

VERSION: Final = 3
"""Of what a shard is made of, and in which order."""

LEAST_BYTES: Final = 16 << 20
"""Less is made as fast as it is found."""

_ARRAYS: Final = {
    "indptr": {"<u8"},
    "indices": {"<u4"},
    "values": {"<f4", "<f8"},
    "labels": {"<f8"},
    "squared_norms": {"<f8"},
    "support": {"<u4"},
    "rows": {"<u4"},
}
_NUMBERS: Final = ("nnz", "d", "by_features", "features", "content_hash")


def _arrays(shard: Shard) -> dict[str, NDArray[Any]]:
    return {name: getattr(shard, name) for name in _ARRAYS}


def _mapped(file: arrayfile.Mapped) -> dict[str, Any]:
    # the kernels are compiled for arrays that can be written to
    return {name: np.asarray(file.array(name, dtypes, "c")) for name, dtypes in _ARRAYS.items()}


def _checksums(arrays: Mapping[str, NDArray[Any]], threads: int) -> dict[str, str]:
    with ThreadPoolExecutor(threads) as pool:  # hashing lets go of the interpreter
        found = pool.map(lambda array: xxhash.xxh3_128_hexdigest(array.view("u1").data), arrays.values())
        return dict(zip(arrays, found, strict=True))


def keep(paths: Sequence[Path], shard: Shard, threads: int) -> Shard:
    """Write the shard to the first of these files that can be written; returns it mapped from there, or as it is."""
    arrays = _arrays(shard)
    if sum(array.nbytes for array in arrays.values()) < LEAST_BYTES:
        return shard
    about = {
        "version": VERSION,
        "checksums": _checksums(arrays, threads),
        **{name: getattr(shard, name) for name in _NUMBERS},
    }

    def mapped(path: Path) -> Shard:
        file = arrayfile.Mapped(path, MAGIC)
        return replace(shard, **_mapped(file), mapped=file)

    written = cache.put(paths, lambda out: arrayfile.write_to(out, MAGIC, about, arrays), mapped)
    return shard if written is None else written


def find(paths: Sequence[Path], content_hash: str, threads: int) -> Shard | None:
    """The shard of that content, cut into blocks for so many threads, from the first of these files that has it."""
    for path in paths:
        if arrayfile.begins_with(path, MAGIC):
            shard = _load(path, content_hash, threads)
            if shard is not None:
                log.info("mapped from %s", path)
                return shard
    return None


def _load(path: Path, content_hash: str, threads: int) -> Shard | None:
    try:
        file = arrayfile.Mapped(path, MAGIC)
        header = file.header
        if header["version"] != VERSION or header["content_hash"] != content_hash:
            return None
        arrays = _mapped(file)
        if _checksums(arrays, threads) != header["checksums"]:
            log.warning("%s: is damaged, and made again", path)
            return None
        numbers: dict[str, Any] = {name: header[name] for name in _NUMBERS}
        return Shard(**arrays, **numbers, blocks=cut_blocks(arrays["indptr"], threads), mapped=file)
    except (OSError, KeyError, TypeError, ValueError, OverflowError) as error:
        log.info("%s: cannot be used (%s)", path, error)
        return None
