"""Workers and a coordinator for one test, on ports that stay the workers' own when they come back."""

import contextlib
import json
import signal
import time
from pathlib import Path
from typing import Any

from tests.support.forked import POLL_SECONDS, Forked, Forkery

HINGE = ("--lam", "1e-4", "--tol", "1e-4", "--certify-every-round")
"""Some 800 rounds on `covtype_like`."""

Undisturbed = tuple[dict[str, Any], bytes]
"""Result and model of a run without faults."""

HEALTHY_SECONDS = 120.0
"""When what should end counts as hanging."""


class Arena:
    """K workers that serve a part of a file each, and whoever coordinates them.

    Parameters
    ----------
    directory : for everything they write
    data : LIBSVM text;  count : K;  threads : of each worker
    kept : whether the workers have a --state directory each;  by : what the parts of the file are
    """

    def __init__(
        self,
        forkery: Forkery,
        directory: Path,
        data: Path,
        count: int,
        *,
        threads: int = 1,
        kept: bool = True,
        by: str = "examples",
    ) -> None:
        self.directory = directory
        self.model, self.trace, self.checkpoint = (directory / name for name in ("model", "trace", "checkpoint"))
        self.workers: list[Forked] = []
        self.addresses = ["127.0.0.1:0"] * count
        self._forkery = forkery
        self._data = data
        self._threads = threads
        self._kept = kept
        self._by = by
        self._started: list[Forked] = []
        for number in range(count):
            self.workers.append(self.start_worker(number))
        for number, worker in enumerate(self.workers):
            self.addresses[number] = worker.first_line()

    def state(self, number: int) -> Path:
        """The worker's --state."""
        return self.directory / f"state{number}"

    def start(self, *arguments: object, package: Any = "worker", name: str = "") -> Forked:
        """A process of this test."""
        name = f"{name or package}.{len(self._started)}"
        self._started.append(self._forkery.start(package, *arguments, directory=self.directory, name=name))
        return self._started[-1]

    def start_worker(self, number: int, *arguments: object) -> Forked:
        """The worker with that number; it keeps its port."""
        part = f"{self._data}#{number}/{len(self.addresses)}"
        state = ("--state", self.state(number)) if self._kept else ()
        return self.start(
            *("serve", part, "--by", self._by, "--listen", self.addresses[number], "--threads", self._threads),
            *(*state, *arguments),
            name=f"worker{number}",
        )

    def back(self, number: int, *arguments: object) -> Forked:
        """Start the worker again, and wait until it serves; its port may be somebody's for a moment."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while True:
            worker = self.workers[number] = self.start_worker(number, *arguments)
            try:
                worker.wait_told(" serving ")
            except AssertionError:
                assert "cannot be bound" in worker.stderr
                assert time.monotonic() < deadline
                time.sleep(0.1)
            else:
                return worker

    def train(self, *arguments: object, checkpoint: bool = True, trace: bool = True) -> Forked:
        """A coordinator."""
        self.trace.unlink(missing_ok=True) if "--resume" not in arguments else None
        return self.start(
            *("train", "--workers", ",".join(self.addresses), "--json", "--model", self.model),
            *(("--trace", self.trace) if trace else ()),
            *(("--checkpoint", self.checkpoint) if checkpoint else ()),
            *arguments,
            package="coordinator",
        )

    def round(self) -> int:
        """The newest round in the trace; -1 when there is none."""
        with contextlib.suppress(OSError, IndexError, ValueError, KeyError):
            return int(json.loads(self.trace.read_text().rpartition("\n")[0].splitlines()[-1])["round"])
        return -1

    def wait_round(self, number: int, coordinator: Forked) -> None:
        """Wait until the trace has that round."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while self.round() < number:
            assert coordinator.running, f"ended before round {number}:\n{coordinator.stderr}"
            assert time.monotonic() < deadline, f"not in round {number} in time:\n{coordinator.stderr}"
            time.sleep(POLL_SECONDS)

    def result(self, coordinator: Forked, code: int = 0) -> dict[str, Any]:
        """What it has printed; it must end with that code."""
        assert coordinator.wait(HEALTHY_SECONDS) == code, coordinator.stderr
        found = json.loads(coordinator.stdout)
        assert isinstance(found, dict)
        return found

    def undisturbed(self, *arguments: object) -> Undisturbed:
        """Result and model of a run without faults."""
        result = self.result(self.train(*arguments, checkpoint=False))
        return result, self.model.read_bytes()

    def close(self) -> None:
        """End everything in order; nobody may have complained, and no temporary file may be left."""
        for process in self._started:
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGTERM)
        for process in self._started:
            process.wait(HEALTHY_SECONDS)
        for process in self._started:
            for text in (process.stdout, process.stderr):
                assert "Traceback (most recent call last)" not in text, text
                assert "Warning: " not in text, text
        assert not [path for path in self.directory.rglob("*") if path.name.startswith(".")]

    def kill(self) -> None:
        """End everything."""
        for process in self._started:
            process.kill()
