"""Containers that die, stand still and lose their network while they train: what the compose file is for.

One long run gets all of it, one after the other; it is then ended by a coordinator that is killed and resumed, and
primal and dual are computed anew from what is in the volumes.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cluster import recompute
from tests.cluster.compose import Project, inspect, logs, pause, run, wait_until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

AWAY_SECONDS = 10.0
"""How long a worker is cut off, and stands still."""

LAM = 1e-6

CHILD = "read -r pid _ </proc/1/task/1/children; "
"""In the shell of a container: the main process, which init has for its only child."""


class Job:
    """A training under way in containers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.project.compose("up", "--build", "-d")
        self.workers = project.containers("worker")
        (self.network,) = json.loads(inspect(self.workers[0], "{{json .NetworkSettings.Networks}}"))
        self.goes_on()

    @property
    def round(self) -> int:
        """The newest round in the trace; -1 when there is none."""
        tail = run("docker", "exec", self.project.coordinator(), "tail", "-c", "4096", "/models/trace", code=None)
        lines = tail.splitlines()
        return int(json.loads(lines[-2])["round"]) if len(lines) > 2 else -1

    def goes_on(self) -> None:
        """Wait until it is some rounds further than now."""
        before = self.round
        self._wait(lambda: self.round > before + 10, f"goes on after round {before}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def fulfilled() -> bool:
            assert inspect(self.project.coordinator(), "{{.State.Running}}") == "true", f"has ended:\n{self.told}"
            return condition()

        try:
            wait_until(fulfilled, what)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.told}") from None

    @property
    def told(self) -> str:
        """What the coordinator has said."""
        return logs(self.project.coordinator())

    def reconnects(self, at_least: int) -> None:
        """Wait until so many lost workers have been found again, and the run goes on."""
        self._wait(lambda: self.told.count(" is back") >= at_least, f"worker {at_least} is back")
        self.goes_on()


def stay_away() -> None:
    """Let time pass: how long a fault lasts."""
    time.sleep(AWAY_SECONDS)


def test_a_run_survives_killed_paused_and_unplugged_workers_and_a_killed_coordinator(
    project: Project, tmp_path: Path
) -> None:
    project.settings |= {
        "ACCCOCOA_GENERATE_LIKE": "covtype",
        "ACCCOCOA_GENERATE_D": "54",
        "ACCCOCOA_TRAIN_LAM": str(LAM),
        "ACCCOCOA_TRAIN_TOL": "1e-15",  # it does not end by itself
        "ACCCOCOA_TRAIN_SILENCE": "4",
        "ACCCOCOA_TRAIN_TRACE": "/models/trace",
        "ACCCOCOA_TRAIN_CERTIFY_EVERY_ROUND": "1",
    }
    job = Job(project)
    killed, cut, paused = job.workers[:3]

    run("docker", "exec", killed, "sh", "-c", f"{CHILD} kill -9 $pid", code=None)
    job.reconnects(1)
    assert inspect(killed, "{{.RestartCount}}") == "1"

    run("docker", "network", "disconnect", job.network, cut)
    stay_away()
    run("docker", "network", "connect", "--alias", "worker", job.network, cut)
    job.reconnects(2)

    pause(paused)
    stay_away()
    run("docker", "unpause", paused)
    job.reconnects(3)

    run("docker", "kill", "-s", "KILL", project.coordinator())
    # no fault has cost a state: they have all been led on round for round
    project.settings |= {"ACCCOCOA_TRAIN_RESUME": "1", "ACCCOCOA_TRAIN_TOL": "1e-3"}
    project.compose("up", "--exit-code-from", "coordinator")
    (told,) = [json.loads(line) for line in run("docker", "logs", project.coordinator()).splitlines()]
    assert told["status"] == "converged"
    assert (told["resyncs"], told["workers"]) == (0, len(job.workers))
    check(told, project, tmp_path)


def check(told: dict[str, Any], project: Project, to: Path) -> None:
    """Primal and dual are those of the model and of the workers' dual variables in the volumes."""
    for path, name in (("/models/model", "model"), ("/data/generated", "data"), ("/state", "state")):
        project.fetch(path, to / name)
    table = recompute.read_table(to / "data")
    model = recompute.read_weights(to / "model")
    newest: dict[str, recompute.Duals] = {}
    for file in sorted((to / "state").rglob("*.duals")):
        duals = recompute.read_duals(file)
        known = newest.setdefault(duals.facts["content_hash"], duals)
        if duals.facts["number"] > known.facts["number"]:
            newest[duals.facts["content_hash"]] = duals
    alpha = recompute.join(table.n, list(newest.values()))
    assert np.isfinite(model).all()
    assert recompute.primal("hinge", LAM, table, model) == pytest.approx(told["primal"], abs=1e-9)
    assert recompute.dual("hinge", LAM, table, alpha) == pytest.approx(told["dual"], abs=1e-9)
