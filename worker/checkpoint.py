"""A worker's dual variables on disk (--state DIR): written whole or not at all, found again by the shard's hash.

Two files take turns, so that a damaged newest one leaves the one before. A file is an .npz archive:

    facts        JSON: content_hash, job_id, round, lineage, cursors, number (the larger, the newer), and of a pending
                 round gamma_theta, fraction, cursors, lineage
    alpha, z     float64, shape (n,), in the order of the shard
    idle         uint8, shape (n,): how far each row is in its rests
    rows         where each row stood in the source that the shard was cut from
    z_next, idle_next   of a pending round
    active       bool, shape (n,), which rows are visited; absent: all

Where a job has several problems, this is the first one's. Of problem k > 0 `further` in the facts has what they say of
a state, and the arrays are called alpha.k, z.k, ...
"""

import io
import json
import logging
import math
import os
import threading
import time
import zipfile
import zlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acccocoa.atomic import atomic_write, check_writable
from acccocoa.errors import AcccocoaError, UsageError
from worker.kernels import LONGEST_REST
from worker.state import DualState, Pending, Snapshot, Standing

log = logging.getLogger(__name__)

SHARE = 0.02
"""Writing may take this share of the time, at most."""

SHORTEST_SECONDS = 1.0
"""Time between two checkpoints, at least."""

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


class StateDirectory:
    """Checkpoints of the dual variables of one shard.

    Parameters
    ----------
    directory : --state, made if need be
    content_hash : of the shard
    rows : uint32, shape (n,); where its rows stood in the source
    kept : by problem, round and lineage of the newest state that this process has written down; None: nothing was

    Raises
    ------
    UsageError : the directory cannot be made or written
    """

    def __init__(self, directory: str | os.PathLike[str], content_hash: str, rows: NDArray[np.uint32]) -> None:
        self._hash = content_hash
        self._rows = rows
        self._paths = [Path(directory) / f"{content_hash[:16]}.{slot}.duals" for slot in (0, 1)]
        self._slot = 0
        self._number = 0
        self.kept: list[tuple[int, str] | None] | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._lock = threading.Lock()
        self._next_at = time.monotonic() + SHORTEST_SECONDS
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--state {directory}", f"cannot be made: {error.strerror or error}") from error
        try:
            for path in self._paths:
                check_writable(path)
        except UsageError as error:
            raise UsageError(f"--state {directory}", error.requirement, error.remedy) from error

    def newest(self) -> tuple[str, list[Snapshot]] | None:
        """Job and states of the newest valid checkpoint of this shard; damaged ones are reported and ignored."""
        found: list[tuple[int, int, str, list[Snapshot]]] = []
        for slot, path in enumerate(self._paths):
            if not path.exists():
                continue
            try:
                number, job_id, snapshots = self._read(path)
            except _FAULTS as error:
                log.warning("checkpoint %s is damaged (%s) and ignored", path, error)
            else:
                found.append((number, slot, job_id, snapshots))
        if not found:
            return None
        self._number, slot, job_id, snapshots = max(found, key=lambda entry: entry[0])
        self._slot = 1 - slot
        log.info("dual variables of job %s, round %d, taken from %s", job_id, snapshots[0].round, self._paths[slot])
        return job_id, snapshots

    def _read(self, path: Path) -> tuple[int, str, list[Snapshot]]:
        # the archive checks a CRC-32 of every member as it is read
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            facts = json.loads(str(archive["facts"]))
            if facts["content_hash"] != self._hash:
                raise ValueError("it belongs to another shard")
            snapshots = [
                self._snapshot(archive, _suffix(problem), of_one)
                for problem, of_one in enumerate([facts, *facts.get("further", [])])
            ]
        return int(facts["number"]), str(facts["job_id"]), snapshots

    def _snapshot(self, archive: Any, suffix: str, facts: dict[str, Any]) -> Snapshot:
        """One problem's state, whose arrays have that suffix."""
        alpha, z = (self._array(archive, name + suffix, np.float64) for name in ("alpha", "z"))
        idle = self._array(archive, "idle" + suffix, np.uint8, 2 * LONGEST_REST)
        active = self._array(archive, "active" + suffix, np.bool_) if "active" + suffix in archive else None
        pending = None
        if facts.get("pending") is not None:
            told = facts["pending"]
            pending = Pending(
                self._array(archive, "z_next" + suffix, np.float64),
                float(told["gamma_theta"]),
                float(told["fraction"]),
                list(_cursors(told)),
                self._array(archive, "idle_next" + suffix, np.uint8, 2 * LONGEST_REST),
                None if told["lineage"] is None else str(told["lineage"]),
                bool(told["final"]),
                standing=None if told.get("standing") is None else Standing(*map(float, told["standing"])),
            )
        return Snapshot(
            int(facts["round"]),
            alpha,
            z,
            _cursors(facts),
            idle,
            None if facts["lineage"] is None else str(facts["lineage"]),
            pending,
            active,
        )

    def _array(self, archive: Any, name: str, dtype: type[np.generic], largest: float = math.inf) -> NDArray[Any]:
        """One number a row, finite and not above `largest`."""
        array = np.asarray(archive[name])
        fits = array.shape == self._rows.shape and array.dtype == dtype
        if not fits or not np.isfinite(array).all() or array.max(initial=0) > largest:
            raise ValueError(f"its {name} is not that of this shard")
        return array

    def offer(self, job_id: str, states: Sequence[DualState]) -> None:
        """Rounds begin: write all problems' states down when it is time, in the background."""
        if time.monotonic() < self._next_at or (self._writing is not None and not self._writing.done()):
            return
        self._writing = self._writer.submit(self._write_timed, job_id, [state.snapshot() for state in states])

    def _write_timed(self, job_id: str, snapshots: Sequence[Snapshot]) -> None:
        began = time.monotonic()
        self.write(job_id, snapshots)
        ended = time.monotonic()
        self._next_at = ended + max(SHORTEST_SECONDS, (ended - began) / SHARE)

    def write_last(self, job_id: str, snapshots: Sequence[Snapshot]) -> None:
        """Write a checkpoint that no earlier state may follow."""
        if self._writing is not None:
            wait_for([self._writing])
        self.write(job_id, snapshots)

    def write(self, job_id: str, snapshots: Sequence[Snapshot]) -> None:
        """Write a checkpoint now. A full disk is reported; the job goes on without."""
        with self._lock:
            path = self._paths[self._slot]
            facts: list[dict[str, Any]] = []
            arrays: dict[str, NDArray[Any]] = {"rows": self._rows}
            for problem, snapshot in enumerate(snapshots):
                facts.append(_facts(snapshot))
                arrays |= {name + _suffix(problem): array for name, array in _arrays(snapshot).items()}
            whole = {
                "content_hash": self._hash,
                "job_id": job_id,
                "number": self._number + 1,
                **facts[0],
                "further": facts[1:],
            }
            try:
                with atomic_write(path) as out:
                    np.savez(out, facts=np.array(json.dumps(whole)), **arrays)  # type: ignore[arg-type]  # the names are arrays'
            except AcccocoaError as error:
                log.warning("no checkpoint: %s", error)
            else:
                self._number += 1
                self.kept = [
                    None if snapshot.lineage is None else (snapshot.round, snapshot.lineage) for snapshot in snapshots
                ]
                self._slot = 1 - self._slot

    def close(self) -> None:
        """Wait for a checkpoint that is being written."""
        self._writer.shutdown()


def _suffix(problem: int) -> str:
    return f".{problem}" if problem else ""


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    """What is not an array."""
    facts: dict[str, Any] = {"round": snapshot.round, "lineage": snapshot.lineage, "cursors": snapshot.cursors}
    pending = snapshot.pending
    if pending is not None:
        facts["pending"] = {
            "gamma_theta": pending.gamma_theta,
            "fraction": pending.fraction,
            "cursors": pending.cursors,
            "lineage": pending.lineage,
            "final": pending.final,
            "standing": None if pending.standing is None else astuple(pending.standing),
        }
    return facts


def _arrays(snapshot: Snapshot) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {"alpha": snapshot.alpha, "z": snapshot.z, "idle": snapshot.idle}
    if snapshot.active is not None:
        arrays["active"] = snapshot.active
    if snapshot.pending is not None:
        arrays["z_next"], arrays["idle_next"] = snapshot.pending.z_next, snapshot.pending.idle
    return arrays


def _cursors(facts: dict[str, Any]) -> tuple[int, ...]:
    """Where the order of visits stood, by block."""
    return tuple(int(cursor) for cursor in facts["cursors"])
