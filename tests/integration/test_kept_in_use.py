"""A kept shard that somebody writes to while a worker uses it: no answer comes from it any more."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acccocoa import shardfile
from acccocoa.cache import Places
from acccocoa.examples import Examples
from tests.integration.processes import PATIENCE_SECONDS, Launcher
from worker import kept, server
from worker.local_solver import LocalSolver


@pytest.fixture
def worker(sparse: Path, launch: Launcher, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """Serves what it has kept of a small file, in this process: its address, and the file of the kept shard."""
    monkeypatch.setattr(kept, "LEAST_BYTES", 1)
    data = launch.directory / "data"
    data.write_bytes(sparse.read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    serving, stop = threading.Event(), threading.Event()
    settings: dict[str, Any] = {"threads": 1, "zero_based": False, "dtype": "float32", "by": "examples"}
    settings |= {"insecure": False, "state": None, "places": Places(), "weights": None}
    thread = threading.Thread(
        target=server.run, args=(str(data), address), kwargs={**settings, "serving": serving, "stop": stop}
    )
    thread.start()
    try:
        assert serving.wait(PATIENCE_SECONDS)
        yield address, data.with_name(f"{data.name}{kept.SUFFIX}")
    finally:
        stop.set()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def write_into(path: Path) -> None:
    """In place, and as long as it was."""
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(content[: len(content) // 2] + bytes(64) + content[len(content) // 2 + 64 :])


@pytest.mark.parametrize("during", ["the job", "a pause"])
def test_what_was_written_to_is_refused(
    during: str, worker: tuple[str, Path], launch: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, path = worker
    if during == "the job":
        real, calls = LocalSolver.solve, iter(range(10**6))

        def solve(*arguments: Any) -> Any:
            if next(calls) == 2:
                write_into(path)
            return real(*arguments)

        monkeypatch.setattr(LocalSolver, "solve", solve)
    else:
        write_into(path)
    found = launch.run("coordinator", "train", "--workers", address, "--lam", 1e-3, "--tol", 1e-9)
    assert found.exit_code == 5
    assert "somebody has written to the file its shard is mapped from" in found.error
    assert found.error.endswith("; start the worker again")


def test_what_was_replaced_or_removed_is_as_good_as_ever(worker: tuple[str, Path], launch: Launcher) -> None:
    address, path = worker
    train = ("train", "--workers", address, "--lam", 1e-3, "--tol", 1e-3, "--json", "--quiet")
    path.with_name("other").write_bytes(bytes(100))
    path.with_name("other").replace(path)
    assert launch.run("coordinator", *train).exit_code == 0
    path.unlink()
    assert launch.run("coordinator", *train).exit_code == 0


def test_what_was_cut_short_is_refused_and_made_anew_the_next_time(launch: Launcher) -> None:
    n, entries = 200_000, 12
    rng = np.random.default_rng(1)
    examples = Examples(
        indptr=np.arange(n + 1, dtype=np.int64) * entries,
        indices=np.tile(np.arange(entries, dtype=np.int32) * 7, n)
        + np.repeat(rng.integers(0, 7, n), entries).astype("i4"),
        values=rng.standard_normal(n * entries, dtype=np.float32),
        labels=np.where(rng.random(n) < 0.5, 1.0, -1.0),
        spellings={1.0: "1", -1.0: "-1"},
    )
    shardfile.write(launch.directory / "data.shard", examples)
    worker = launch.worker("data.shard")
    train = ("train", "--lam", 1e-2, "--tol", 1e-1, "--worker-patience", 0, "--json", "--quiet", "--workers")
    address = worker.wait_serving()
    os.truncate(launch.directory / f"data.shard{kept.SUFFIX}", 4096)
    refused = launch.run("coordinator", *train, address)
    assert refused.exit_code == 5
    assert refused.error.endswith("; start the worker again")
    worker.signal(signal.SIGBUS)  # what comes of reading behind the end
    ended = worker.finish()
    assert ended.exit_code == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in ended.stderr
    again = launch.worker("data.shard")
    assert launch.run("coordinator", *train, again.wait_serving()).exit_code == 0
    assert "cannot be used (an array reaches beyond the end of the file)" in again.stderr.text
