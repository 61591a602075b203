"""Thousands of rounds through real processes: neither memory nor file descriptors grow."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.cluster.arena import Arena

WARM = 2500
"""Rounds until caches and pools are filled."""

ROUNDS = WARM + 4000

GROWTH = 100.0
"""Bytes that a process may grow by a round, for noise; keeping one message or one vector of a round would be more."""


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_neither_memory_nor_descriptors_grow(arena: Callable[..., Arena], covtype_like: Path) -> None:
    """Takes about a minute."""
    some = arena(covtype_like, 2)
    coordinator = some.train("--lam", "1e-7", "--tol", "1e-12", "--max-rounds", ROUNDS, "--certify-every-round")
    processes = {"coordinator": psutil.Process(coordinator.pid)}
    processes |= {f"worker {number}": psutil.Process(worker.pid) for number, worker in enumerate(some.workers)}
    seen: dict[str, list[tuple[int, int, int, int]]] = {name: [] for name in processes}
    pause = threading.Event()
    some.wait_round(WARM, coordinator)
    while coordinator.running and some.round() < ROUNDS - 10:
        for name, process in processes.items():
            with process.oneshot():
                seen[name].append((some.round(), process.memory_info().rss, process.num_fds(), process.num_threads()))
        pause.wait(0.1)
    some.result(coordinator, 3)
    for name, samples in seen.items():
        assert len(samples) > 20, "too fast to see anything"
        rounds, memory, descriptors, threads = np.array(samples, dtype=np.float64).T
        slope, _ = np.polyfit(rounds, memory, 1)
        print(f"{name}: {memory[-1] / 1e6:.1f} MB, {slope:+.0f} bytes a round, {descriptors.max():.0f} descriptors")
        assert slope < GROWTH, f"{name} grows by {slope:.0f} bytes a round"
        # a file is open for a moment while a checkpoint is written
        assert descriptors.max() <= descriptors.min() + 3, name
        assert threads.max() <= threads.min() + 2, name
