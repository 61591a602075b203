"""Which part of the data a worker takes that shares a directory with others; see acccocoa.dealing."""

import fcntl
import itertools
import logging
import os
import threading
from pathlib import Path

from acccocoa import dealing
from acccocoa.dealing import By
from acccocoa.errors import UsageError

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
"""How often a worker looks whether data has been dealt."""


def claim_number(directory: Path) -> int:
    """The lowest number that no other running worker has; it is this process's until it ends, however it ends.

    What says so is the kernel's lock on a file, which needs neither a clock nor cleaning up.

    Raises
    ------
    UsageError : files in the directory cannot be made or locked
    """
    for number in itertools.count():
        path = dealing.claim_path(directory, number)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(
                str(path), f"cannot be opened for writing ({error.strerror})", "workers need write access to SHARD"
            ) from error
        try:
            # never closed: the lock ends with the process
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise UsageError(
                str(path), f"cannot be locked ({error.strerror})", "share a directory on a file system with locks"
            ) from error
        else:
            return number
    raise AssertionError("itertools.count has no end")


def resolve(shard: str, by: By, stop: threading.Event) -> tuple[str, By] | None:
    """SHARD itself, unless it is a directory: then the part that falls to this worker, once data is dealt there.

    Returns
    -------
    source, by : as worker.source.load takes them; None when `stop` was set before there were any

    Raises
    ------
    UsageError : the directory cannot be used
    """
    directory = Path(shard)
    if not directory.is_dir():
        return shard, by
    number = claim_number(directory)
    log.info("worker number %d of %s: waiting for a coordinator to deal data there", number, directory)
    while not stop.wait(LOOK_SECONDS):
        for deal in dealing.deals(directory):
            if number < deal.parts:
                return f"{deal.path(directory)}#{number}/{deal.parts}", deal.by
    return None
