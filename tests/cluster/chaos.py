"""Seeded chaos: real processes, real signals, connections that break, disks that fill up.

    python -m tests.cluster.chaos --runs 200 --seed 1

runs 200 trainings, each disturbed by faults that its seed chooses, and prints what happened and a tally. A run is good
when it ends converged, or with the exit code that its faults call for within patience plus 30 s (and is then healed,
resumed and has to converge), when primal, dual and gap recomputed from the files by other code are those it reported,
when faults that cost nothing have left every bit of the model as it is without them, and when nothing is left behind.
"""

import argparse
import contextlib
import errno
import functools
import itertools
import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.cluster import recompute
from tests.cluster.proxy import Proxy
from tests.support.forked import POLL_SECONDS, Forked, Forkery

PATIENCE = 30.0
"""--worker-patience where no worker stays away."""

SHORT_PATIENCE = 4.0
"""--worker-patience where one does."""

SILENCE = 2.0
"""--silence: short enough for a run to notice, long enough for a machine that is busy with other runs."""

LATE_SECONDS = 30.0
"""How long after patience is over a run may take to end."""

END_SECONDS = 240.0
"""When a run that has no reason to hang counts as hanging."""

AGREEMENT = 1e-9
"""How far reported values may be from recomputed ones."""


# ------------------------------------------------------------------------------------------------------ what is trained


@dataclass(frozen=True)
class Task:
    """A problem that takes some hundred rounds, and so a second or two.

    data : name of the data set, see `write_data`
    l1_ratio : above 0 the features are what is partitioned
    """

    data: str
    loss: str
    lam: float
    tol: float
    workers: int
    epochs: float = 1.0
    threads: int = 1
    l1_ratio: float = 0.0

    @property
    def by_features(self) -> bool:
        """Workers hold features, and the model is in what they write down."""
        return self.l1_ratio > 0.0

    @property
    def arguments(self) -> list[str]:
        """Options of train."""
        return [
            *("--loss", self.loss, "--lam", repr(self.lam), "--tol", repr(self.tol)),
            *("--local-epochs", repr(self.epochs), "--seed", "5", "--l1-ratio", repr(self.l1_ratio)),
        ]


TASKS = (
    Task("dense", "hinge", 1e-4, 1e-4, 3),
    Task("dense", "logistic", 1e-5, 3e-4, 2, epochs=0.5, threads=2),
    Task("sparse", "squared_hinge", 1e-4, 1e-4, 3),
    Task("sparse", "hinge", 1e-4, 1e-3, 2, epochs=0.3),
    Task("values", "squared", 1e-4, 1e-4, 3),
    Task("correlated", "squared", 3e-4, 1e-6, 3, epochs=0.5, l1_ratio=0.5),
)


def write_data(directory: Path) -> None:
    """The data sets as LIBSVM text."""
    rng = np.random.default_rng(8)
    dense = rng.random((900, 24)) * (rng.random((900, 24)) < 0.6)
    target = dense @ rng.standard_normal(24) + 0.4 * rng.standard_normal(900)
    sparse = np.where(rng.random((800, 150)) < 0.06, rng.standard_normal((800, 150)), 0.0)
    sparse[:, 0] = 1.0
    side = sparse @ rng.standard_normal(150) + 1.5 * rng.standard_normal(800)
    correlated = dense @ rng.standard_normal((24, 60)) + 0.3 * rng.standard_normal((900, 60))
    for name, rows, labels in (
        ("correlated", correlated, target),
        ("dense", dense, np.where(target > np.median(target), 1.0, -1.0)),
        ("values", dense, target),
        ("sparse", sparse, np.where(side > 0, 1.0, -1.0)),
    ):
        lines = []
        for row, label in zip(rows, labels, strict=True):
            entries = " ".join(f"{j}:{value:.6g}" for j, value in enumerate(row, 1) if value)
            lines.append(f"{label:.6g} {entries}\n")
        (directory / f"{name}.txt").write_text("".join(lines))


@dataclass(frozen=True)
class Reference:
    """A task's run without faults."""

    model: bytes
    rounds: int
    primal: float


class Laboratory:
    """What all runs share: the process that forks, the data, the undisturbed runs.

    Parameters
    ----------
    root : directory for everything
    """

    def __init__(self, forkery: Forkery, root: Path) -> None:
        self.forkery = forkery
        self.root = root
        self._lock = threading.Lock()
        write_data(root)
        self.tables = {name: recompute.read_table(root / f"{name}.txt") for name in {task.data for task in TASKS}}

    @functools.cached_property
    def has_tmpfs(self) -> bool:
        """Whether small file systems can be mounted here; says so when not."""
        with self._lock, tempfile.TemporaryDirectory(dir=self.root) as place:
            try:
                with small_disk(Path(place)):
                    return True
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"SKIPPED: no disks that fill up, a tmpfs cannot be mounted here ({error})", file=sys.stderr)
                return False

    def reference(self, task: Task, every_round: bool = False) -> Reference:
        """The task's run without faults, made when it is asked for first."""
        with self._lock:
            return self._reference(task, every_round)

    @functools.cache  # noqa: B019  # a laboratory lives as long as the program
    def _reference(self, task: Task, every_round: bool) -> Reference:
        run = Run(
            self, f"reference{TASKS.index(task)}.{every_round}", task, Plan((), proxied=False, every_round=every_round)
        )
        run.go()
        assert run.summary is not None
        return Reference(run.model, run.summary["rounds"], run.summary["primal"])


@contextmanager
def small_disk(place: Path, kilobytes: int = 1024) -> Iterator[None]:
    """A file system of that size, mounted there."""
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=777", "tmpfs", str(place)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield
    finally:
        # lazily: a process that has just been killed may keep it busy for a moment
        subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)


# --------------------------------------------------------------------------------------------------------------- a plan


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    kind : name of a method of Run
    at_round : when: as soon as the trace shows that round; None: `after` seconds after what was before
    whom : which worker, where it is about one;  seconds : how long it lasts, where it lasts
    """

    kind: str
    at_round: int | None
    after: float
    whom: int
    seconds: float

    def __str__(self) -> str:
        moment = f"{self.after:.2f} s later" if self.at_round is None else f"at round {self.at_round}"
        return f"{self.kind}({self.whom}, {self.seconds:.2f} s) {moment}"


COSTLESS = (
    "stop_worker",
    "stop_coordinator",
    "kill_coordinator",
    "cut",
    "hold",
    "slow",
    "refuse",
    "fill_checkpoint",
    "fill_model",
)
"""Faults that must not change a bit of the model, alone or together."""

REPLAYED = ("kill_worker", "terminate_worker")
"""Neither must these, as long as the coordinator that remembers the rounds lives."""

ANYHOW = (
    *COSTLESS,
    "kill_worker",
    "kill_worker",
    "kill_worker_and_state",
    "terminate_worker",
    "kill_everything",
    "terminate_coordinator",
    "fill_state",
    "fill_trace",
    "lose_worker",
    "stop_worker_for_good",
    "crash_loop",
)

_NEEDS_PROXY = {"cut", "hold", "slow", "refuse"}
_NEEDS_DISK = {"fill_state", "fill_trace", "fill_model", "fill_checkpoint"}
_GIVES_UP = {"lose_worker", "stop_worker_for_good", "crash_loop"}


@dataclass(frozen=True)
class Plan:
    """What happens to a run. proxied : workers are reached through proxies;  every_round : certify every round"""

    faults: tuple[Fault, ...]
    proxied: bool
    every_round: bool

    @property
    def gives_up(self) -> bool:
        """A worker stays away longer than patience."""
        return any(fault.kind in _GIVES_UP for fault in self.faults)

    @property
    def on_disk(self) -> set[str]:
        """What is on a disk that fills up."""
        return {fault.kind.removeprefix("fill_") for fault in self.faults if fault.kind in _NEEDS_DISK}


def make_plan(rng: random.Random, task: Task, rounds: int, has_tmpfs: bool) -> Plan:
    """A plan for a run that takes about so many rounds."""
    kinds: tuple[str, ...] = COSTLESS if rng.random() < 0.35 else ANYHOW
    if not has_tmpfs:
        kinds = tuple(kind for kind in kinds if kind not in _NEEDS_DISK)
    chosen = [rng.choice(kinds) for _ in range(rng.choice((1, 1, 2, 2, 3, 4)))]
    # a run that gives up ends there; a lost worker comes last
    chosen = sorted(chosen, key=lambda kind: kind in _GIVES_UP)
    while sum(kind in _GIVES_UP for kind in chosen) > 1:
        chosen.pop()
    at = sorted(int(rounds * rng.random() ** 1.5) for _ in chosen)
    faults = tuple(
        Fault(
            kind=kind,
            at_round=at_round if rng.random() < 0.7 else None,
            after=rng.random() ** 2 * 1.5,
            whom=rng.randrange(task.workers),
            seconds=rng.choice((0.05, 0.3, 1.0, SILENCE + 1.0)) * (0.5 + rng.random()),
        )
        for kind, at_round in zip(chosen, at, strict=True)
    )
    proxied = any(kind in _NEEDS_PROXY for kind in chosen) or rng.random() < 0.3
    return Plan(faults, proxied, every_round=rng.random() < 0.5)


# ---------------------------------------------------------------------------------------------------------------- a run


@dataclass
class Place:
    """Where a worker runs.

    state : its --state;  address : HOST:PORT it listens at, and keeps;  robbed : it has lost its files once
    """

    number: int
    state: Path
    proxy: Proxy | None = None
    process: Forked | None = None
    address: str = "127.0.0.1:0"
    starts: int = 0
    robbed: bool = False
    addresses: set[str] = field(default_factory=set)


class Run:
    """One training under faults.

    summary, model : what the coordinator that converged printed, and its model file
    happened : the faults that came to pass;  events : what happened when, for people
    """

    def __init__(self, laboratory: Laboratory, name: str, task: Task, plan: Plan) -> None:
        self.task = task
        self.plan = plan
        self.summary: dict[str, Any] | None = None
        self.model = b""
        self.happened: list[str] = []
        self.ended_with: list[int] = []
        self.checked: Counter[str] = Counter()
        self.events: list[str] = []
        self._laboratory = laboratory
        self._data = laboratory.root / f"{task.data}.txt"
        self._root = laboratory.root / name
        self._disk = self._root / "disk"
        self._full: list[tuple[float, float]] = []
        self._duals_lost = False
        self._began = time.monotonic()
        self._coordinators: list[Forked] = []
        self._processes: list[Forked] = []
        self._lost_at: float | None = None
        self._patience = SHORT_PATIENCE if plan.gives_up else PATIENCE
        self._deserted: list[Path] = []

    def _path(self, what: str) -> Path:
        return (self._disk if what in self.plan.on_disk else self._root) / what

    def _log(self, text: str) -> None:
        self.events.append(f"{time.monotonic() - self._began:7.2f} s  round {self._round()}: {text}")

    def _round(self) -> int:
        """The newest round in the trace; -1 when there is none."""
        try:
            with self._path("trace").open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - 4096))
                lines = stream.read().split(b"\n")[:-1]
            return int(json.loads(lines[-1])["round"])
        except (OSError, IndexError, ValueError, KeyError):
            return -1

    # ----------------------------------------------------------------------------------------------------- processes

    def _start_worker(self, place: Place) -> None:
        """Start the worker, and wait until it has its port."""
        part = f"{self._data}#{place.number}/{self.task.workers}"
        for _ in range(100):
            place.starts += 1
            place.process = self._laboratory.forkery.start(
                "worker",
                *("serve", part, "--listen", place.address, "--threads", self.task.threads, "--state", place.state),
                *("--by", "features" if self.task.by_features else "examples"),
                directory=self._root,
                name=f"worker{place.number}.{place.starts}",
            )
            self._processes.append(place.process)
            try:
                found = place.process.first_line()
            except AssertionError:
                # somebody has taken the port for a moment, which connections to anywhere may
                assert place.process.exit_code == 2, place.process.stderr
                time.sleep(0.1)
                continue
            place.addresses.add(found)
            if place.proxy is None:
                place.address = found
            else:
                place.proxy.target = found
            return
        raise AssertionError(f"no port for worker {place.number}")

    def _start_coordinator(self, resume: bool) -> None:
        workers = ",".join(place.proxy.address if place.proxy else place.address for place in self._places)
        coordinator = self._laboratory.forkery.start(
            "coordinator",
            *("train", "--workers", workers, *self.task.arguments, "--json"),
            *("--model", self._path("model"), "--trace", self._path("trace"), "--checkpoint", self._path("checkpoint")),
            *("--silence", SILENCE, "--worker-patience", self._patience, "--connect-timeout", 25),
            *(["--certify-every-round"] if self.plan.every_round else []),
            *(["--resume", "--wait"] if resume else []),
            directory=self._root,
            name=f"coordinator.{len(self._coordinators)}",
        )
        self._coordinators.append(coordinator)
        self._processes.append(coordinator)

    @property
    def _coordinator(self) -> Forked:
        return self._coordinators[-1]

    def _kill(self, place: Place) -> None:
        assert place.process is not None
        place.process.kill()

    # -------------------------------------------------------------------------------------------------------- faults

    def kill_worker(self, place: Place, seconds: float) -> None:
        """A worker dies and comes back, with what it has written down."""
        self._kill(place)
        time.sleep(seconds)
        self._start_worker(place)

    def kill_worker_and_state(self, place: Place, seconds: float) -> None:
        """A worker dies and comes back with nothing."""
        self._kill(place)
        self._deserted.append(place.state)
        place.robbed = True
        place.state = place.state.with_name(f"state{place.number}.{place.starts}")
        time.sleep(seconds)
        self._start_worker(place)

    def terminate_worker(self, place: Place, seconds: float) -> None:
        """A worker is told to end, as by an update of the machine, and comes back."""
        assert place.process is not None
        place.process.signal(signal.SIGTERM)
        assert place.process.wait(30.0) == 0
        time.sleep(seconds)
        self._start_worker(place)

    def stop_worker(self, place: Place, seconds: float) -> None:
        """A worker stands still for a while."""
        assert place.process is not None
        place.process.signal(signal.SIGSTOP)
        time.sleep(seconds)
        place.process.signal(signal.SIGCONT)

    def kill_coordinator(self, _: Place, seconds: float) -> None:
        """The coordinator dies and is resumed."""
        self._coordinator.kill()
        time.sleep(seconds)
        self._start_coordinator(resume=True)

    def stop_coordinator(self, _: Place, seconds: float) -> None:
        """The coordinator stands still for a while."""
        self._coordinator.signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._coordinator.signal(signal.SIGCONT)

    def terminate_coordinator(self, _: Place, seconds: float) -> None:
        """The coordinator is told to end, and resumed."""
        self._coordinator.signal(signal.SIGTERM)
        code = self._coordinator.wait(60.0)
        # told before it listens, it dies of the signal; told when it has converged, it ends as it would have
        assert code in (130, 0, -signal.SIGTERM), self._coordinator.stderr
        if code != 0:
            time.sleep(seconds)
            self._start_coordinator(resume=True)

    def kill_everything(self, _: Place, seconds: float) -> None:
        """The power fails."""
        for place in self._places:
            self._kill(place)
        self._coordinator.kill()
        time.sleep(seconds)
        for place in self._places:
            self._start_worker(place)
        self._start_coordinator(resume=True)

    def cut(self, place: Place, _: float) -> None:
        """All connections to a worker break."""
        assert place.proxy is not None
        place.proxy.cut()

    def hold(self, place: Place, seconds: float) -> None:
        """Nothing gets through to a worker for a while."""
        assert place.proxy is not None
        place.proxy.hold()
        time.sleep(seconds)
        place.proxy.heal()

    def slow(self, place: Place, seconds: float) -> None:
        """Everything gets through to a worker late."""
        assert place.proxy is not None
        place.proxy.delay = 0.03
        time.sleep(seconds)
        place.proxy.heal()

    def refuse(self, place: Place, seconds: float) -> None:
        """All connections to a worker break, and there are no new ones for a while."""
        assert place.proxy is not None
        place.proxy.refuse()
        place.proxy.cut()
        time.sleep(seconds)
        place.proxy.heal()

    def _fill(self) -> None:
        began = time.monotonic()
        with (self._disk / "filler").open("ab", buffering=0) as stream, contextlib.suppress(OSError):
            while True:
                stream.write(bytes(4096))
        if not self._filled:
            self._full.append((began, math.inf))

    def _free(self) -> None:
        (self._disk / "filler").unlink(missing_ok=True)
        if self._filled:
            self._full[-1] = (self._full[-1][0], time.monotonic())

    @property
    def _filled(self) -> bool:
        return bool(self._full) and math.isinf(self._full[-1][1])

    def _fill_for(self, _: Place, seconds: float) -> None:
        self._fill()
        time.sleep(seconds)
        self._free()

    fill_checkpoint = _fill_for
    """The disk with the coordinator's checkpoints is full for a while."""

    def _fill_for_good(self, _: Place, __: float) -> None:
        self._fill()

    fill_state = fill_trace = fill_model = _fill_for_good
    """The disk with the workers' dual variables, the trace or the model is full from now on."""

    def lose_worker(self, place: Place, _: float) -> None:
        """A worker dies and stays away."""
        self._lost_at = time.monotonic()
        self._kill(place)

    def stop_worker_for_good(self, place: Place, _: float) -> None:
        """A worker stands still and stays so."""
        assert place.process is not None
        self._lost_at = time.monotonic()
        place.process.signal(signal.SIGSTOP)

    def crash_loop(self, place: Place, _: float) -> None:
        """A worker comes back and dies again, over and over, with nothing."""
        assert place.process is not None
        self._lost_at = time.monotonic()
        while self._coordinator.running:
            self._kill(place)
            self._start_worker(place)
            with contextlib.suppress(AssertionError):
                place.process.wait_told("stream from", 5.0)
            assert time.monotonic() < self._lost_at + self._patience + LATE_SECONDS, "goes on for ever"

    # ----------------------------------------------------------------------------------------------------------- go

    def go(self) -> None:
        """The whole run; AssertionError when it is not good."""
        self._root.mkdir()
        with ExitStack() as stack:
            stack.callback(self._kill_all)
            if self.plan.on_disk:
                stack.enter_context(small_disk(self._disk))
            self._places = []
            for number in range(self.task.workers):
                place = Place(number, self._path("state") / f"state{number}.0")
                if self.plan.proxied:
                    place.proxy = Proxy()
                    stack.callback(place.proxy.close)
                self._places.append(place)
            for place in self._places:
                self._start_worker(place)
            self._start_coordinator(resume=False)
            for fault in self.plan.faults:
                self._strike(fault)
            self._end()
            self._check_result()
            self._end_workers()
            self._check_remains()
        shutil.rmtree(self._root)

    def _strike(self, fault: Fault) -> None:
        began = time.monotonic()
        while self._coordinator.running:
            if fault.at_round is None:
                if time.monotonic() > began + fault.after:
                    break
            elif self._round() >= fault.at_round:
                break
            assert time.monotonic() < began + END_SECONDS, "makes no progress"
            time.sleep(POLL_SECONDS)
        else:
            self._log(f"too late for {fault}")
            return
        self._log(str(fault))
        method: Callable[[Place, float], None] = getattr(self, fault.kind)
        # what is to be survived must not last longer than patience
        method(self._places[fault.whom], min(fault.seconds, 0.5 * self._patience))
        self.happened.append(fault.kind)

    def _end(self) -> None:
        """Wait for the end; heal what makes a run give up, and resume it."""
        while True:
            code = self._coordinator.wait(END_SECONDS)
            self.ended_with.append(code)
            self._log(f"the coordinator has ended with {code}")
            # the end of the job cannot have been written down
            full = "state" in self.plan.on_disk and self._filled_while(self._coordinator)
            self._duals_lost = self._duals_lost or full
            if code == 0:
                self._heal()  # a worker that was lost when the run no longer needed it
                return
            assert len(self.ended_with) < 3, "is healed, and fails all the same"
            if code == 5 and self._lost_at is not None:
                assert self._coordinator.ended <= self._lost_at + self._patience + LATE_SECONDS
                self._heal()
            elif code == 2 and "No space left" in self._coordinator.stderr:
                # a disk that is full before the run begins is a reason not to begin, and so is one under the trace to
                # end it; what else fills up during the run must not matter
                assert self._filled_while(self._coordinator), self._coordinator.stderr
                assert "trace" in self.plan.on_disk or not self._trained, self._coordinator.stderr
                self._free()
            else:
                raise AssertionError(f"ended with {code}:\n{self._coordinator.stderr}")
            if self._trained and self._round() >= 0:
                # the best model so far, whatever it is worth
                assert np.isfinite(recompute.read_weights(self._path("model"))).all()
            self._start_coordinator(resume=True)

    @property
    def _trained(self) -> bool:
        """The newest coordinator has begun to train."""
        return any(word in self._coordinator.stderr for word in ("training on", "going on on"))

    def _filled_while(self, process: Forked) -> bool:
        """The disk was full at some time while that process was running."""
        return any(began <= process.ended and process.began <= ended for began, ended in self._full)

    def _heal(self) -> None:
        for place in self._places:
            assert place.process is not None
            place.process.signal(signal.SIGCONT)
            if not place.process.running:
                self._start_worker(place)
        self._lost_at = None

    def _check_result(self) -> None:
        """The report is true."""
        out = self._coordinator.stdout
        assert out.count("\n") == 1, out
        self.summary = summary = json.loads(out)
        task, table = self.task, self._laboratory.tables[self.task.data]
        assert summary["status"] == "converged"
        assert summary["relative_gap"] <= task.tol
        self.model = self._path("model").read_bytes()
        w = recompute.read_weights(self._path("model"))
        primal = recompute.primal(task.loss, task.lam, table, w, task.l1_ratio)
        assert abs(primal - summary["primal"]) <= AGREEMENT, (primal, summary["primal"])
        self.checked["primal"] += 1
        if not self._duals_lost and not any(self._robbed_at_the_end(place) for place in self._places):
            parts = [recompute.newest_duals(place.state) for place in self._places]
            whole = {(part.facts["job_id"], part.facts["round"], part.facts["lineage"]) for part in parts}
            assert len(whole) == 1, f"the dual variables are of {whole}"
            if task.by_features:
                # the dual point is nowhere written down, but the one that belongs to the model is about as good
                assert (recompute.join(len(w), parts) == w).all(), "the model is not what the workers hold"
                dual = recompute.squared_dual(task.lam, table, w, task.l1_ratio)
                assert primal - dual <= 10.0 * task.tol * abs(primal)
                assert summary["dual"] <= primal
            else:
                dual = recompute.dual(task.loss, task.lam, table, recompute.join(table.n, parts))
                assert abs(dual - summary["dual"]) <= AGREEMENT, (dual, summary["dual"])
                assert abs(primal - dual - summary["gap"]) <= AGREEMENT
                assert primal - dual <= task.tol * abs(primal) * (1 + 1e-9)
            self.checked["dual and gap"] += 1
        self._check_trace()
        if self.plan.faults:
            reference = self._laboratory.reference(task, self.plan.every_round)
            deaths = [kind for kind in self.happened if kind in REPLAYED]
            if all(kind in (*COSTLESS, *REPLAYED) for kind in self.happened) and not (
                deaths and "kill_coordinator" in self.happened
            ):
                assert self.model == reference.model, "the model has other bits than without faults"
                self.checked["same bits"] += 1

    @staticmethod
    def _robbed_at_the_end(place: Place) -> bool:
        """The worker's files were lost when the run no longer needed it."""
        assert place.process is not None
        return place.robbed and "stream from" not in place.process.stderr

    def _check_trace(self) -> None:
        if "trace" in self.plan.on_disk:
            return
        lines = [json.loads(line) for line in self._path("trace").read_text().splitlines()]
        for before, after in itertools.pairwise(lines):
            assert before["round"] < after["round"]
            assert before["best_gap"] >= after["best_gap"]
            assert before["seconds"] <= after["seconds"]

    def _end_workers(self) -> None:
        """Workers end in order when they are told to."""
        self._free() if self.plan.on_disk else None
        for place in self._places:
            assert place.process is not None
            place.process.signal(signal.SIGCONT)
            place.process.signal(signal.SIGTERM)
        for place in self._places:
            assert place.process is not None
            assert place.process.wait(30.0) == 0, place.process.stderr

    def _check_remains(self) -> None:
        """No process, no port, no temporary file, no complaint is left."""
        for process in self._processes:
            assert not process.running
            for text in (process.stdout, process.stderr):
                assert "Traceback (most recent call last)" not in text, text
                assert "Warning: " not in text, text
        for place in self._places:
            for address in place.addresses:
                host, _, port = address.rpartition(":")
                with socket.socket() as probe:
                    assert probe.connect_ex((host, int(port))) == errno.ECONNREFUSED, address
        for directory in self._deserted:  # nobody has come back to them to clean up
            shutil.rmtree(directory, ignore_errors=True)
        left = [path for path in self._root.rglob("*") if path.name.startswith(".")]
        assert not left, left

    def _kill_all(self) -> None:
        for process in self._processes:
            process.signal(signal.SIGCONT)
            process.kill()

    def describe(self) -> str:
        """What happened, for people."""
        parts = [f"{self.task}", f"{self.plan}", *self.events]
        for process in self._processes:
            with contextlib.suppress(OSError):
                parts.append(f"--- {process.name} ({process.exit_code}):\n{process.stderr[-3000:]}")
        return "\n".join(parts)


# ------------------------------------------------------------------------------------------------------------ many runs


@dataclass
class Result:
    """How a run went."""

    seed: int
    happened: list[str]
    ended_with: list[int]
    checked: Counter[str]
    seconds: float
    failure: str = ""


def one_run(laboratory: Laboratory, seed: int) -> Result:
    """The run of that seed."""
    rng = random.Random(seed)
    task = rng.choice(TASKS)
    plan = make_plan(rng, task, laboratory.reference(task).rounds, laboratory.has_tmpfs)
    run = Run(laboratory, f"run{seed}", task, plan)
    began = time.monotonic()
    failure = ""
    try:
        run.go()
    except Exception:
        failure = f"{traceback.format_exc()}\n{run.describe()}"
    return Result(seed, run.happened, run.ended_with, run.checked, time.monotonic() - began, failure)


def many_runs(seeds: Sequence[int], jobs: int, root: Path, tell: Callable[[Result], None]) -> list[Result]:
    """The runs of those seeds, some at the same time."""
    with Forkery() as forkery, ThreadPoolExecutor(jobs) as pool:
        laboratory = Laboratory(forkery, root)

        def run(seed: int) -> Result:
            result = one_run(laboratory, seed)
            tell(result)
            return result

        return list(pool.map(run, seeds))


def tally(results: Sequence[Result]) -> str:
    """What happened in all runs."""
    good = [result for result in results if not result.failure]
    lines = [f"{len(results)} runs, {len(good)} good, {len(results) - len(good)} bad"]
    faults = Counter(kind for result in results for kind in result.happened)
    lines += [f"  {count:4}  {kind}" for kind, count in sorted(faults.items())]
    lines.append(f"  {sum(not result.happened for result in results):4}  runs that were over before anything happened")
    codes = Counter(code for result in results for code in result.ended_with)
    lines.append("ended: " + ", ".join(f"exit code {code} {count} times" for code, count in sorted(codes.items())))
    checks = sum((result.checked for result in results), Counter[str]())
    lines.append("checked: " + ", ".join(f"{what} {count} times" for what, count in sorted(checks.items())))
    bad = [str(result.seed) for result in results if result.failure]
    if bad:
        lines.append(f"bad seeds: {' '.join(bad)}")
    return "\n".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="seeded chaos against real processes")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the runs have the seeds 1000 SEED, 1000 SEED + 1, ...")
    parser.add_argument("--only", type=int, help="the one run with this seed of its own")
    parser.add_argument("--jobs", type=int, default=3, help="runs at the same time")
    parser.add_argument("--keep", action="store_true", help="keep the files of bad runs")
    arguments = parser.parse_args()
    first = 1000 * arguments.seed
    seeds = list(range(first, first + arguments.runs)) if arguments.only is None else [arguments.only]
    root = Path(tempfile.mkdtemp(prefix="chaos-"))
    began = time.monotonic()

    def tell(result: Result) -> None:
        verdict = "BAD" if result.failure else "good"
        codes = ", ".join(map(str, result.ended_with))
        happened = ", ".join(result.happened) or "nothing"
        print(f"{result.seed}: {verdict} ({codes}) after {result.seconds:.1f} s: {happened}", flush=True)
        if result.failure:
            print(result.failure, flush=True)

    try:
        results = many_runs(seeds, arguments.jobs, root, tell)
    finally:
        if not arguments.keep:
            shutil.rmtree(root, ignore_errors=True)
    print(tally(results))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if any(result.failure for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
