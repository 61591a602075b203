"""The coordinator's state on disk (--checkpoint DIR): everything it takes to go on with the same bits.

Written at the start of a round, before any worker is asked for that round: the workers can then still return to it,
because they keep the state of a round until the next one is asked for, and a copy where the round says so (mark).
"""

import errno
import fcntl
import io
import json
import logging
import os
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acccocoa.atomic import atomic_write, check_writable, room
from acccocoa.errors import DataError, UsageError
from coordinator.training import Training

log = logging.getLogger(__name__)

SHARE = 0.02
"""Writing may take this share of the time, at most."""

SHORTEST_SECONDS = 1.0
"""Time between two checkpoints, at least."""

FORMAT_VERSION = 1

VECTORS = 4
HEAD_BYTES = 1 << 16
"""What a checkpoint takes, about: vectors of float64, and the rest."""

_FAULTS = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    OverflowError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy, zipfile and json raise on damaged files."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint: who wrote it for what, and the run's state.

    job_id : of the job the workers hold
    objective : what must be the same for the run to go on at all
    algorithm : what must be the same for the run to go on with the same bits
    trace_bytes : length of the trace when it was written
    """

    job_id: str
    objective: Mapping[str, object]
    algorithm: Mapping[str, object]
    trace_bytes: int
    facts: Mapping[str, object]
    arrays: Mapping[str, NDArray[np.float64]]

    @property
    def workers(self) -> int:
        """How many there were."""
        shards = self.objective["shards"]
        assert isinstance(shards, list)
        return len(shards)

    @property
    def round(self) -> int:
        """The round that comes next."""
        return int(str(self.facts["round"]))

    @property
    def lineage(self) -> str:
        """The lineage of the state at its start."""
        progress = self.facts["progress"]
        assert isinstance(progress, Mapping)
        return str(progress["lineage"])

    def restore(self, training: Training) -> None:
        """Put the run where the checkpoint was written."""
        training.restore(self.facts, self.arrays)


class Checkpoints:
    """Writes checkpoints when it is time.

    Parameters
    ----------
    directory : --checkpoint, claimed
    trace_bytes : length of the trace now
    """

    def __init__(
        self,
        directory: str,
        job_id: str,
        objective: Mapping[str, object],
        algorithm: Mapping[str, object],
        trace_bytes: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = checkpoint_path(directory)
        self._head = {"version": FORMAT_VERSION, "job_id": job_id, "objective": objective, "algorithm": algorithm}
        self._trace_bytes = trace_bytes
        self._trace_before = trace_bytes()
        self._clock = clock
        self._next_at = clock()

    def __call__(self, training: Training) -> bool:
        """The start of a round; True when it was written down."""
        self._trace_before = self._trace_bytes()
        return self._clock() >= self._next_at and self.write(training)

    def write(self, training: Training) -> bool:
        """Write the run's state now; False when that was not possible.

        A full disk is told of, and the run goes on with the checkpoint there was: it is worth more than its insurance.
        """
        began = self._clock()
        facts, arrays = training.state()
        # the trace must not go beyond the state: what follows it will be told again
        trace_bytes = self._trace_before if training.under_way else self._trace_bytes()
        head = {**self._head, "trace_bytes": trace_bytes, "facts": facts}
        written = True
        try:
            with atomic_write(self._path) as out:
                np.savez(out, head=np.array(json.dumps(head)), **arrays)  # type: ignore[arg-type]  # the names are arrays'
        except UsageError as error:
            log.warning("no checkpoint: %s", error)
            written = False
        ended = self._clock()
        self._next_at = ended + max(SHORTEST_SECONDS, (ended - began) / SHARE)
        return written


def checkpoint_path(directory: str | os.PathLike[str]) -> Path:
    """Where the checkpoint of that directory is."""
    return Path(directory) / "coordinator.checkpoint"


@contextmanager
def claimed(directory: str) -> Iterator[None]:
    """Make the directory, make sure that a checkpoint can be written to it, and that no other coordinator does.

    Two that go on with one job would take its workers away from each other. The claim is the kernel's lock on the
    directory: it ends with the process, however that ends.

    Raises
    ------
    UsageError : it cannot be written, or another coordinator has claimed it
    """
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"--checkpoint {directory}", f"cannot be used: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise UsageError(
                    f"--checkpoint {directory}",
                    "is in use by another coordinator that runs",
                    "stop that one, or use another directory",
                ) from error
            # some file systems know no locks
        check_writable(checkpoint_path(directory))
        yield
    finally:
        os.close(descriptor)


def check_room(directory: str, length: int) -> None:
    """Make sure, before training, that there is room for a first checkpoint of vectors of that length.

    Raises
    ------
    UsageError : there is not
    """
    try:
        with room(checkpoint_path(directory), VECTORS * 8 * length + HEAD_BYTES):
            pass
    except UsageError as error:
        raise UsageError(f"--checkpoint {directory}", error.requirement, error.remedy) from error


def read(directory: str) -> Saved | None:
    """The checkpoint in that directory; None when there is none.

    Raises
    ------
    DataError : it is damaged
    """
    path = checkpoint_path(directory)
    if not path.exists():
        return None
    try:
        # the archive checks a CRC-32 of every member as it is read
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            head = json.loads(str(archive["head"]))
            if head["version"] != FORMAT_VERSION:
                raise ValueError(f"format version {head['version']}, this acccocoa reads {FORMAT_VERSION}")
            arrays = {name: archive[name] for name in archive.files if name != "head"}
        saved = Saved(head["job_id"], head["objective"], head["algorithm"], head["trace_bytes"], head["facts"], arrays)
    except _FAULTS as error:
        raise DataError(str(path), f"cannot be read as a checkpoint ({error})", _WITHOUT) from error
    return saved


_WITHOUT = "remove it to go on from the workers' dual variables alone"
