"""Files that are either complete under their name or not there: what was there before stays until then.

A file is written under a temporary name in its own directory, synced to disk, and renamed; then the directory is
synced. Whatever interrupts that, the name refers to the whole old file or to the whole new one. A process that is
killed meanwhile leaves a temporary file behind, which `sweep` takes away.
"""

import errno
import fcntl
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from acccocoa.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_REMEDIES = {
    errno.ENOENT: "its directory must exist",
    errno.ENOTDIR: "its directory must exist",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOSPC: "free some space, or choose another place",
    errno.EDQUOT: "free some space, or choose another place",
}

_DIRECTORY_SYNC_UNSUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.EACCES}
"""Some file systems cannot sync a directory, and a directory one may write in need not be one that can be opened."""


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError into a UsageError that names `path`, not the temporary file."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "")
        raise UsageError(os.fspath(path), f"cannot be written: {error.strerror or error}", remedy) from error


class _Output(io.FileIO):
    """The temporary file; a write that fails (a full disk) names the file it was going to be."""

    def __init__(self, descriptor: int, path: str | os.PathLike[str]) -> None:
        super().__init__(descriptor, "w")
        self._path = path

    def write(self, data: "ReadableBuffer", /) -> int:
        with _naming(self._path):
            return super().write(data)


def _destination(path: str | os.PathLike[str]) -> tuple[Path, int | None]:
    """The file `path` stands for, symbolic links followed, and its permission bits if it exists.

    Raises
    ------
    UsageError : there is something under that name that a file must not replace, or it cannot be looked up
    """
    name = os.fspath(path)
    target = Path(os.path.realpath(path))
    with _naming(path):
        try:
            mode = target.stat().st_mode
        except FileNotFoundError:
            return target, None
    if stat.S_ISDIR(mode):
        raise UsageError(name, "is a directory", "name a file")
    if not stat.S_ISREG(mode):
        raise UsageError(name, "is a device or a pipe, where a regular file is written", "name a file")
    if not os.access(target, os.W_OK):
        raise UsageError(name, "is write-protected", "choose another name, or make it writable")
    return target, stat.S_IMODE(mode)


def _prefix(target: Path) -> str:
    """How the names of the temporary files for that target begin; it may have a name of any length."""
    return f".acccocoa-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]}-"


def create_beside(target: Path) -> tuple[Path, int]:
    """Create an empty file in the directory of `target`, locked; returns its path and an open descriptor.

    Raises
    ------
    OSError : nothing can be created there
    """
    temporary = target.with_name(f"{_prefix(target)}{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with suppress(OSError):  # a file system without locks: nothing is swept there
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return temporary, descriptor


def sweep(path: str | os.PathLike[str]) -> None:
    """Remove the temporary files that killed processes have left of writing `path`; those in use stay."""
    target = Path(os.path.realpath(path))
    with suppress(OSError):
        for left in target.parent.glob(f"{_prefix(target)}*.tmp"):
            with suppress(OSError):
                descriptor = os.open(left, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    # whoever writes it holds the lock, until it ends in whatever way
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    left.unlink(missing_ok=True)
                finally:
                    os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _DIRECTORY_SYNC_UNSUPPORTED:
            raise


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write a file so that it is complete or not there; to be used as `with atomic_write(path) as file:`.

    An existing file keeps its permissions; a symbolic link is followed, not replaced. Files of nested blocks appear
    in the order the blocks end, all of them only if no inner block fails.

    Parameters
    ----------
    path : the file to create or replace

    Yields
    ------
    file : a binary handle, seekable, for writing; left open by the caller

    Raises
    ------
    UsageError : `path` cannot be written, on entry (no such directory), while writing (disk full) or on leaving.
        What the body raises passes through. In either case nothing is left behind: an earlier file is untouched.
    """
    target, mode = _destination(path)
    with _naming(path):
        temporary, descriptor = create_beside(target)
    try:
        file = io.BufferedWriter(_Output(descriptor, path))
        try:
            if mode is not None:
                with _naming(path):
                    os.fchmod(descriptor, mode)
            yield file
            file.flush()
            with _naming(path):
                os.fsync(descriptor)
        except BaseException:
            with suppress(UsageError):  # what is still buffered may fail again; the first error is the one to tell
                file.close()
            raise
        file.close()
        with _naming(path):
            temporary.replace(target)
            _sync_directory(target.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Make sure, before any work is spent on its content, that `atomic_write(path)` can be expected to succeed.

    Creates and removes an empty file in the directory: that alone sees read-only mounts, access lists and quotas.
    What killed processes have left there of writing this file goes, too.

    Raises
    ------
    UsageError : there is no such directory, nothing can be created in it, or `path` is not a file that may be replaced
    """
    target, _ = _destination(path)
    sweep(target)
    with _naming(path):
        temporary, descriptor = create_beside(target)
        os.close(descriptor)
        temporary.unlink()


@contextmanager
def room(path: str | os.PathLike[str], size: int) -> Iterator[Callable[[], None]]:
    """Keep `size` bytes free for `atomic_write(path)`, until what this yields is called or the block ends.

    The room is a file without a name, as large as what will be written: it goes with the process, however that ends.

    Raises
    ------
    UsageError : there is less room than that, or nothing can be created there
    """
    target, _ = _destination(path)
    with _naming(path):
        temporary, descriptor = create_beside(target)
        try:
            temporary.unlink()
            os.posix_fallocate(descriptor, 0, max(1, size))
        except BaseException:
            os.close(descriptor)
            raise
    holding = io.FileIO(descriptor, "w")
    try:
        yield holding.close
    finally:
        holding.close()
