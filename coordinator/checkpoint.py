"""The coordinator's state on disk (--checkpoint DIR): everything it takes to go on with the same bits.

Written at the start of a round, before any worker is asked for that round: the workers can then still return to it,
because they keep the state of a round until the next one is asked for, and a copy where the round says so (mark).
"""

import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acccocoa.atomic import atomic_write, check_writable
from acccocoa.errors import DataError, UsageError
from coordinator.training import Training

SHARE = 0.02
"""Writing may take this share of the time, at most."""

SHORTEST_SECONDS = 1.0
"""Time between two checkpoints, at least."""

FORMAT_VERSION = 1


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
    def round(self) -> int:
        """The round that comes next."""
        return int(str(self.facts["round"]))

    def restore(self, training: Training) -> None:
        """Put the run where the checkpoint was written."""
        training.restore(self.facts, self.arrays)


class Checkpoints:
    """Writes checkpoints when it is time.

    Parameters
    ----------
    directory : --checkpoint
    trace_bytes : length of the trace now

    Raises
    ------
    UsageError : the directory cannot be made or written
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
        self._clock = clock
        self._next_at = clock()
        check_directory(directory)

    def __call__(self, training: Training) -> bool:
        """The start of a round; True when it was written down."""
        if self._clock() < self._next_at:
            return False
        self.write(training)
        return True

    def write(self, training: Training) -> None:
        """Write the run's state now.

        Raises
        ------
        UsageError : it cannot be written
        """
        began = self._clock()
        facts, arrays = training.state()
        head = {**self._head, "trace_bytes": self._trace_bytes(), "facts": facts}
        with atomic_write(self._path) as out:
            np.savez(out, head=np.array(json.dumps(head)), **arrays)  # type: ignore[arg-type]  # the names are arrays'
        ended = self._clock()
        self._next_at = ended + max(SHORTEST_SECONDS, (ended - began) / SHARE)


def checkpoint_path(directory: str | os.PathLike[str]) -> Path:
    """Where the checkpoint of that directory is."""
    return Path(directory) / "coordinator.checkpoint"


def check_directory(directory: str) -> None:
    """Make the directory, and make sure that a checkpoint can be written to it.

    Raises
    ------
    UsageError : it cannot
    """
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--checkpoint {directory}", f"cannot be made: {error.strerror or error}") from error
    check_writable(checkpoint_path(directory))


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
            arrays = {name: archive[name] for name in archive.files if name != "head"}
        saved = Saved(head["job_id"], head["objective"], head["algorithm"], head["trace_bytes"], head["facts"], arrays)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(str(path), f"cannot be read as a checkpoint ({error})", "start without --resume") from error
    if head["version"] != FORMAT_VERSION:
        raise DataError(
            str(path),
            f"has format version {head['version']}, this acccocoa reads {FORMAT_VERSION}",
            "start without --resume",
        )
    return saved
