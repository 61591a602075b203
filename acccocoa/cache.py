"""Parsed text kept as a shard file beside the text (NAME.acccocoa-cache), so that it is mapped the next time.

A cache is used when it was made, by this version, with the same options, from the same content. The content is the same
when a file has the size, the times of change and the inode it had (and had not been changed within RECENT_NS before it
was read, which time stamps are too coarse to tell), or else when its SHA-256 is the same; an object in S3 when its ETag
is. The arrays are compared with their content hash whenever a cache is used. Anything else is a miss: the text is
parsed, and the cache replaced. It appears under its name when it is complete; nothing waits for it to be on disk.

Processes that read the same file take turns: the first one parses, the others map what it has left them.
"""

import fcntl
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import numpy as np

from acccocoa import atomic, libsvm, objectstore, shardfile
from acccocoa.errors import AcccocoaError, DataError, UsageError
from acccocoa.shardfile import Stored

log = logging.getLogger(__name__)

T = TypeVar("T")

SUFFIX: Final = ".acccocoa-cache"

KEY: Final = "cache"
"""Under which a cache says what it is of."""

VERSION: Final = 1
"""Of what text means; with another one, text is parsed again."""

LEAST_BYTES: Final = 1 << 20
"""Shorter text is parsed as fast as a cache is found."""

RECENT_NS: Final = 2 * 10**9

TURN_SECONDS: Final = 10.0
TURN_BYTES_PER_SECOND: Final = 10e6
"""How long to wait for another process that reads the same file: so long, and as long as a slow one takes."""

TURN_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Places:
    """Where caches may be.

    enabled : at all;  directory : there instead of beside the text
    fallback : a directory for when nothing can be written beside the text
    """

    enabled: bool = True
    directory: str | None = None
    fallback: str | None = None


NOWHERE: Final = Places(enabled=False)


@dataclass(frozen=True)
class _Source:
    """What is known of a source without reading it.

    size : stored bytes;  stamps : what changes with the content of a file, None when that cannot be relied on
    """

    name: str
    size: int
    etag: str | None = None
    stamps: tuple[int, ...] | None = None


def read(
    sources: Sequence[str],
    *,
    zero_based: bool,
    dtype: libsvm.Dtype,
    threads: int,
    places: Places = NOWHERE,
    verify: bool = True,
) -> Stored:
    """The examples in text, as libsvm.read returns them, from a cache if there is one.

    verify : compare the arrays of a cache with their content hash

    Raises
    ------
    as libsvm.read does, and as homes
    """
    found = _sources(sources) if places.enabled else None
    paths = [] if found is None else homes([source.name for source in found], places)
    if found is None or not paths:
        examples = libsvm.read(sources, zero_based=zero_based, dtype=dtype, threads=threads)
        return Stored(examples, shardfile.content_hash(examples))
    options = {"version": VERSION, "zero_based": zero_based, "dtype": np.dtype(dtype).name}
    cached = _first_hit(paths, found, options, verify)
    if cached is not None:
        return cached
    with _turn(found[0]):
        # whose turn it was before may have made one
        cached = _first_hit(paths, found, options, verify)
        if cached is not None:
            return cached
        writable = [path for path in paths if _writable(path)]
        if not writable:
            examples = libsvm.read(sources, zero_based=zero_based, dtype=dtype, threads=threads)
            return Stored(examples, shardfile.content_hash(examples))
        stamps = [_settled(source) for source in found]
        with ThreadPoolExecutor(1) as pool:  # hashing lets go of the interpreter
            hashes = pool.submit(lambda: [_sha256(source) for source in found])
            examples = libsvm.read(sources, zero_based=zero_based, dtype=dtype, threads=threads)
            digests = hashes.result()
        about = {
            **options,
            "sources": [
                {"size": source.size, "etag": source.etag, "stamps": settled, "sha256": digest}
                for source, settled, digest in zip(found, stamps, digests, strict=True)
            ],
        }
        made = Stored(examples, shardfile.content_hash(examples), {KEY: about})
        del examples
        if _sources(sources) != found:
            log.info("%s: changed while it was read, and is not cached", ", ".join(sources))
            return made
        return _keep(made, writable)


# -------------------------------------------------------------------------------------------------------------- sources


def _sources(sources: Sequence[str]) -> list[_Source] | None:
    """The sources as they are now; None when one cannot be cached, or nothing is worth it."""
    found = []
    for source in sources:
        if objectstore.is_s3(source):
            seen = objectstore.find(source)
            found.append(_Source(source, seen.size, seen.etag))
            continue
        try:
            status = Path(source).stat()
        except (OSError, ValueError):
            return None
        if source == "-" or not stat.S_ISREG(status.st_mode):
            return None
        stamps = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        found.append(_Source(source, status.st_size, stamps=stamps))
    return found if sum(source.size for source in found) >= LEAST_BYTES else None


def _settled(source: _Source) -> list[int] | None:
    """The stamps, unless a change from now on could leave them as they are."""
    if source.stamps is None or abs(time.time_ns() - max(source.stamps[:2])) < RECENT_NS:
        return None
    return list(source.stamps)


def _sha256(source: _Source) -> str | None:
    """The hash of a file's content as it is stored; None of an object, whose ETag says enough."""
    if source.etag is not None:
        return None
    try:
        with Path(source.name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def homes(names: Sequence[str], places: Places, suffix: str = SUFFIX) -> list[Path]:
    """Where a file that is derived from those may be, the best place to write it first. suffix : of its name

    Raises
    ------
    UsageError : the directory asked for is a file
    """
    first = names[0]
    remote = objectstore.is_s3(first)
    where = [first if remote else str(Path(first).resolve()), *names[1:]]
    name = f"{Path(first).name}-{hashlib.sha256(repr(where).encode()).hexdigest()[:12]}{suffix}"
    beside = [] if remote else [Path(f"{first}{suffix}")]
    if places.directory is not None:
        directory = Path(places.directory)
        if directory.exists() and not directory.is_dir():
            raise UsageError(f"--cache {directory}", "is a file, where files are to be kept", "name a directory")
        return [directory / name, *beside]
    if places.fallback is None or (beside and _writable(beside[0])):
        return beside
    return [Path(places.fallback) / name, *beside]


def _writable(path: Path) -> bool:
    """A file of that name can be made, or its directory can."""
    return not path.parent.exists() or os.access(path.parent, os.W_OK | os.X_OK)


@contextmanager
def _turn(source: _Source) -> Iterator[None]:
    """Wait while another process reads the same file to cache it, but not for ever: it may have been stopped, or the
    file may be locked by another program. Where files cannot be locked, nobody waits.
    """
    try:
        descriptor = None if source.etag is not None else os.open(source.name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        descriptor = None
    try:
        if descriptor is not None:
            with suppress(OSError):
                _lock(descriptor, source)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(descriptor: int, source: _Source) -> None:
    patience = TURN_SECONDS + source.size / TURN_BYTES_PER_SECOND
    deadline = time.monotonic() + patience
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                log.warning(
                    "%s: is still locked by another process after %.0f s, and read anyway", source.name, patience
                )
                return
            if not told:
                log.info("%s: waits up to %.0f s for another process that reads it", source.name, patience)
                told = True
            time.sleep(TURN_LOOK_SECONDS)
        else:
            return


# ---------------------------------------------------------------------------------------------------------------- files


def _first_hit(
    paths: Sequence[Path], sources: Sequence[_Source], options: Mapping[str, Any], verify: bool
) -> Stored | None:
    for path in paths:
        found = _lookup(path, sources, options, verify)
        if found is not None:
            log.info("%s: mapped from %s", ", ".join(source.name for source in sources), path)
            return found
    return None


def _lookup(path: Path, sources: Sequence[_Source], options: Mapping[str, Any], verify: bool) -> Stored | None:
    """What the cache there holds, if it is of these sources."""
    try:
        if not shardfile.is_shard_file(path):
            return None
        stored = shardfile.load(path, verify=False)
        about = dict(stored.about[KEY])
        known = about.pop("sources")
        if about != options or len(known) != len(sources):
            return None
        if not all(_same(entry, source) for entry, source in zip(known, sources, strict=True)):
            return None
        if not verify:
            return replace(stored, verified=False)
        if shardfile.content_hash(stored.examples) != stored.content_hash:
            log.warning("%s: is damaged, and made again", path)
            return None
    except (DataError, OSError, KeyError, TypeError, ValueError) as error:
        log.info("%s: cannot be used (%s)", path, error)
        return None
    return stored


def _same(entry: Mapping[str, Any], source: _Source) -> bool:
    """The source has the content that the entry tells of."""
    if entry["size"] != source.size or entry["etag"] != source.etag:
        return False
    if source.etag is not None:
        return True
    if source.stamps is not None and entry["stamps"] == list(source.stamps):
        return True
    return entry["sha256"] is not None and entry["sha256"] == _sha256(source)


def _keep(made: Stored, paths: Sequence[Path]) -> Stored:
    """Write a cache; returns what was made, mapped from it so that memory is free, or as it is where none can be."""

    def mapped(path: Path) -> Stored:
        return replace(shardfile.load(path, verify=False), verified=True)  # it is what has just been written

    written = put(paths, lambda file: shardfile.write_to(file, made.examples, made.about), mapped)
    return made if written is None else written


def put(paths: Sequence[Path], write: Callable[[BinaryIO], object], load: Callable[[Path], T]) -> T | None:
    """Make the first of these files that can be made; returns what was loaded from it, None when none could be.

    The file appears under its name when it is complete and has been loaded. What killed processes have left there of
    writing it goes.
    """
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.sweep(path)
            temporary, descriptor = atomic.create_beside(path)
            try:
                with open(descriptor, "wb") as file:  # noqa: PTH123  # which is locked
                    write(file)
                loaded = load(temporary)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except (OSError, AcccocoaError) as error:
            log.info("%s: cannot be written (%s)", path, error)
        else:
            return loaded
    return None
