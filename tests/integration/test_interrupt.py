"""Ctrl-C, SIGTERM and SIGKILL: the round is finished, the model written, nobody left behind."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.integration.data import load, only_json, sidecar, weights
from tests.integration.processes import Launcher, Running, alive, wait_until

pytestmark = pytest.mark.as_users_do

LONG = ("--lam", 1e-9, "--tol", 1e-14, "--local-epochs", 5)
"""A run that does not end of its own accord."""

SOME_ROUNDS = r"round (?:[3-9]|\d\d+) "
"""The line of a round from the third on: what is `check_model`'s least number of rounds."""


def begun(running: Running) -> list[int]:
    """Wait until it has made some rounds; returns its workers."""
    running.stderr.search("^" + SOME_ROUNDS)
    children = running.children
    assert len(children) == 2
    return children


def check_model(directory: Path, sparse: Path) -> None:
    result = sidecar(directory / "m")
    assert result["status"] == "interrupted"
    assert result["rounds"] >= 3
    primal = load(sparse).primal("hinge", 1e-9, weights(directory / "m"), 1.0)
    assert primal == pytest.approx(result["primal"], rel=1e-9)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_round(number: signal.Signals, launch: Launcher, sparse: Path) -> None:
    running = launch.start("coordinator", "train", sparse, "--local", 2, *LONG, "--model", "m", "--json")
    workers = begun(running)
    running.signal(number)
    finished = running.finish()
    assert finished.exit_code == 130, finished.stderr
    assert only_json(finished.stdout)["status"] == "interrupted"
    assert finished.error.startswith("interrupted: primal ")
    check_model(launch.directory, sparse)
    assert not any(map(alive, workers))


def test_ctrl_c_in_a_terminal(launch: Launcher, sparse: Path) -> None:
    """There the whole foreground process group gets the signal; the workers are not to be in it."""
    running = launch.start_in_terminal("coordinator", "train", sparse, "--local", 2, *LONG, "--model", "m")
    running.stdout.search(SOME_ROUNDS + ".*relative gap")
    (coordinator,) = running.children
    groups = [os.getpgid(worker.pid) for worker in psutil.Process(coordinator).children()]
    assert len(groups) == 2
    assert os.getpgid(coordinator) not in groups
    running.type(b"\x03")
    finished = running.finish()
    assert finished.exit_code == 130, finished.stdout
    assert "interrupted: primal" in finished.stdout
    assert "the model is in m" in finished.stdout
    assert "Aborted" not in finished.stdout
    check_model(launch.directory, sparse)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_the_first_round_it_ends_at_once(number: signal.Signals, launch: Launcher) -> None:
    running = launch.start("coordinator", "train", "--workers", "127.0.0.1:1", "--connect-timeout", 600, "--model", "m")
    running.stderr.search("^connecting .*\n")
    running.signal(number)
    finished = running.finish()
    assert (finished.exit_code, finished.error) == (130, "interrupted")
    assert list(launch.directory.iterdir()) == []


def test_a_second_ctrl_c_does_not_wait(launch: Launcher, sparse: Path) -> None:
    """A worker that stands still would keep the round from being finished."""
    workers = launch.workers(sparse, 2)
    addresses = ",".join(worker.address for worker in workers)
    running = launch.start("coordinator", "train", "--workers", addresses, *LONG, "--silence", 600)
    running.stderr.search("^" + SOME_ROUNDS)
    workers[0].stop()
    running.signal(signal.SIGINT)
    running.stderr.search("^finishing the round under way; Ctrl-C once more ends at once")
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert (finished.exit_code, finished.error) == (130, "interrupted")


@pytest.mark.parametrize("when", ["loading", "training"])
def test_a_killed_coordinator_leaves_nothing(when: str, launch: Launcher, sparse: Path) -> None:
    running = launch.start("coordinator", "train", sparse, "--local", 2, *LONG)
    if when == "loading":
        running.stderr.search("starting 2 workers")
        wait_until(lambda: len(running.children) == 2, "workers are started")
        workers = running.children
    else:
        workers = begun(running)
    running.signal(signal.SIGKILL)
    # whoever still has its standard error open is waited for here
    assert running.finish().exit_code == -signal.SIGKILL
    wait_until(lambda: not any(map(alive, workers)), "the workers end")


def test_external_workers_outlive_a_killed_coordinator(launch: Launcher, sparse: Path) -> None:
    workers = launch.workers(sparse, 2)
    addresses = ",".join(worker.address for worker in workers)
    running = launch.start("coordinator", "train", "--workers", addresses, *LONG)
    running.stderr.search("^" + SOME_ROUNDS)
    running.signal(signal.SIGKILL)
    running.finish()
    for worker in workers:
        worker.stderr.search("stream ends")
    after = launch.run("coordinator", "train", "--workers", addresses, "--lam", 0.01, "--quiet")
    assert after.exit_code == 0, after.stderr


def test_an_embedded_worker_that_is_killed_is_started_again(launch: Launcher, sparse: Path) -> None:
    running = launch.start("coordinator", "train", sparse, "--local", 2, *LONG, "--model", "m", "--json")
    workers = begun(running)
    psutil.Process(workers[0]).kill()
    running.stderr.search(r"worker \S+ \(part \d of 2\) is back")
    wait_until(lambda: len([pid for pid in running.children if alive(pid)]) == 2, "two workers again")
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.exit_code == 130, finished.stderr
    assert only_json(finished.stdout)["reconnects"] == 1
    check_model(launch.directory, sparse)
