"""A worker's dual variables on disk (--state DIR): written whole or not at all, found again by the shard's hash.

Two files take turns, so that a damaged newest one leaves the one before.
"""

import io
import json
import logging
import os
import threading
import time
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from acccocoa.atomic import atomic_write
from acccocoa.errors import AcccocoaError, UsageError
from worker.state import DualState, Snapshot

log = logging.getLogger(__name__)

SHARE = 0.02
"""Writing may take this share of the time, at most."""

SHORTEST_SECONDS = 1.0
"""Time between two checkpoints, at least."""


class StateDirectory:
    """Checkpoints of the dual variables of one shard.

    Raises
    ------
    UsageError : the directory cannot be made or written
    """

    def __init__(self, directory: str | os.PathLike[str], content_hash: str) -> None:
        self._hash = content_hash
        self._paths = [Path(directory) / f"{content_hash[:16]}.{slot}.duals" for slot in (0, 1)]
        self._slot = 0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._lock = threading.Lock()
        self._next_at = time.monotonic() + SHORTEST_SECONDS
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--state {directory}", f"cannot be made: {error.strerror or error}") from error
        if not os.access(directory, os.W_OK | os.X_OK):
            raise UsageError(f"--state {directory}", "cannot be written")

    def newest(self, n: int, blocks: int) -> tuple[str, Snapshot] | None:
        """Job and state of the newest valid checkpoint of this shard; damaged ones are reported and ignored.

        n, blocks : what the shard has now; a checkpoint of another number of examples is not of this shard
        """
        found: list[tuple[float, int, str, Snapshot]] = []
        for slot, path in enumerate(self._paths):
            if not path.exists():
                continue
            try:
                written, job_id, snapshot = self._read(path, n, blocks)
            except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
                log.warning("checkpoint %s is damaged (%s) and ignored", path, error)
            else:
                found.append((written, slot, job_id, snapshot))
        if not found:
            return None
        _, slot, job_id, snapshot = max(found, key=lambda entry: entry[0])
        self._slot = 1 - slot
        log.info("dual variables of job %s, round %d, taken from %s", job_id, snapshot.round, self._paths[slot])
        return job_id, snapshot

    def _read(self, path: Path, n: int, blocks: int) -> tuple[float, str, Snapshot]:
        # the archive checks a CRC-32 of every member as it is read
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            facts = json.loads(str(archive["facts"]))
            alpha, z = archive["alpha"], archive["z"]
        if facts["content_hash"] != self._hash or alpha.shape != (n,) or z.shape != (n,):
            raise ValueError("it belongs to another shard")
        if not (np.isfinite(alpha).all() and np.isfinite(z).all()):
            raise ValueError("it holds values that are not finite")
        cursors = tuple(int(cursor) for cursor in facts["cursors"])
        snapshot = Snapshot(int(facts["round"]), alpha, z, cursors if len(cursors) == blocks else (0,) * blocks)
        return float(facts["written"]), str(facts["job_id"]), snapshot

    def offer(self, job_id: str, state: DualState) -> None:
        """A round begins: write its start down when it is time, in the background."""
        if time.monotonic() < self._next_at or (self._writing is not None and not self._writing.done()):
            return
        self._writing = self._writer.submit(self._write_timed, job_id, state.snapshot())

    def _write_timed(self, job_id: str, snapshot: Snapshot) -> None:
        began = time.monotonic()
        self.write(job_id, snapshot)
        ended = time.monotonic()
        self._next_at = ended + max(SHORTEST_SECONDS, (ended - began) / SHARE)

    def write(self, job_id: str, snapshot: Snapshot) -> None:
        """Write a checkpoint now. A full disk is reported; the job goes on without."""
        with self._lock:
            path = self._paths[self._slot]
            facts = json.dumps(
                {
                    "content_hash": self._hash,
                    "job_id": job_id,
                    "round": snapshot.round,
                    "cursors": snapshot.cursors,
                    "written": time.time(),
                }
            )
            try:
                with atomic_write(path) as out:
                    np.savez(out, facts=np.array(facts), alpha=snapshot.alpha, z=snapshot.z)
            except AcccocoaError as error:
                log.warning("no checkpoint: %s", error)
            else:
                self._slot = 1 - self._slot

    def close(self) -> None:
        """Wait for a checkpoint that is being written."""
        self._writer.shutdown()
