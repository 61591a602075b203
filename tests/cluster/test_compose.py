"""docker-compose up: what a user does with the image and the compose file, on a real engine.

Nothing here trusts what the coordinator says about its result: it is recomputed from the model and the data that come
out of the volumes.
"""

import json
import lzma
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.compose import Project, inspect, logs, run, wait_until
from tests.integration import data

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

WORKERS = 4
"""What the compose file says."""


def up(project: Project, *arguments: str, code: int = 0) -> None:
    """Train, in the foreground, as the README says."""
    project.compose("up", "--build", "--exit-code-from", "coordinator", *arguments, code=code)


def results(project: Project) -> list[dict[str, Any]]:
    """The JSON objects on the coordinator's standard output, one a run, and nothing else."""
    return [json.loads(line) for line in run("docker", "logs", project.coordinator()).splitlines()]


def check_result(told: dict[str, Any], text: Path, model: Path, positive: float) -> None:
    """What was told is true of the model and the data."""
    examples = data.load(text)
    primal = examples.primal(told["loss"], told["lam"], data.weights(model), positive)
    assert primal == pytest.approx(told["primal"], rel=1e-9)
    assert told["gap"] == pytest.approx(told["primal"] - told["dual"], rel=1e-9)
    assert told["relative_gap"] <= 1e-4
    # weak duality, with the help of somebody else's nearly optimal point
    other = data.liblinear_optimum(examples, told["loss"], told["lam"], positive)
    assert told["dual"] <= other * (1 + 1e-12)
    assert primal - other <= told["gap"]


def test_up_trains_and_leaves_a_model_that_is_worth_what_was_told(project: Project, tmp_path: Path) -> None:
    up(project)
    (told,) = results(project)
    assert (told["status"], told["workers"], told["n"], told["loss"]) == ("converged", WORKERS, 3000, "hinge")
    model, text = tmp_path / "model", tmp_path / "data"
    project.fetch("/models/model", model)
    project.fetch("/models/model.json", tmp_path / "model.json")
    project.fetch("/data/generated", text)
    check_result(told, text, model, 1.0)
    assert data.sidecar(model).items() >= {key: told[key] for key in ("status", "primal", "dual", "seed")}.items()


def test_scale_and_data_of_the_users_own(project: Project, tmp_path: Path) -> None:
    text, packed, model = tmp_path / "mine.svm", tmp_path / "mine.svm.xz", tmp_path / "model"
    text.write_bytes(data.sparse_text(500, 60, labels=("1", "2")))
    packed.write_bytes(lzma.compress(text.read_bytes()))
    project.settings |= {"DATA": str(packed), "ACCCOCOA_TRAIN_LOSS": "logistic", "ACCCOCOA_TRAIN_LAM": "0.001"}
    up(project, "--scale", "worker=2")
    (told,) = results(project)
    assert (told["status"], told["workers"], told["n"], told["lam"]) == ("converged", 2, 500, 0.001)
    project.fetch("/models/model", model)
    check_result(told, text, model, 2.0)
    # another number of workers on what is left of the first run
    up(project, "--scale", "worker=3")
    assert [told["workers"] for told in results(project)] == [2, 3]


def test_up_ends_with_the_exit_code_of_the_coordinator(project: Project, tmp_path: Path) -> None:
    text = tmp_path / "broken.svm"
    text.write_text("+1 1:1\n-1 3:x\n")
    project.settings["DATA"] = str(text)
    up(project, code=4)
    assert f"error: /input{text}:2:6: " in logs(project.coordinator())


def test_workers_are_confined_and_a_killed_one_comes_back(project: Project) -> None:
    # a job that does not end by itself
    project.settings |= {"ACCCOCOA_TRAIN_TOL": "1e-15", "ACCCOCOA_TRAIN_LAM": "1e-8", "ACCCOCOA_TRAIN_JSON": ""}
    project.compose("up", "--build", "-d")
    workers, coordinator = project.containers("worker"), project.coordinator()
    assert len(workers) == WORKERS

    def healthy() -> bool:
        return all(inspect(worker, "{{.State.Health.Status}}") == "healthy" for worker in workers)

    wait_until(healthy, "all workers healthy")
    for container in [*workers, coordinator]:
        assert run("docker", "exec", container, "id", "-u").strip() == "1000"
        assert inspect(container, "{{.HostConfig.ReadonlyRootfs}}") == "true"
        run("docker", "exec", container, "touch", "/opt/acccocoa/x", code=1)
        # of the process itself, which init has for its only child
        status = run(
            "docker", "exec", container, "sh", "-c", "read -r pid _ </proc/1/task/1/children; cat /proc/$pid/status"
        )
        facts = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
        assert facts["NoNewPrivs"] == "1"
        assert {facts[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}

    # which rounds are told of depends on which are certified
    wait_until(lambda: max(map(int, re.findall(r"round (\d+) ", logs(coordinator))), default=0) >= 5, "a few rounds")
    victim = workers[0]
    run("docker", "exec", victim, "sh", "-c", "read -r pid _ </proc/1/task/1/children; kill -9 $pid", code=None)
    wait_until(lambda: "is back" in logs(coordinator), "the lost worker found again")
    assert int(inspect(victim, "{{.RestartCount}}")) == 1
    claims = [line.partition(" INFO ")[2] for line in logs(victim).splitlines() if "worker number" in line]
    assert len(claims) == 2
    assert claims[0] == claims[1]
    wait_until(healthy, "all workers healthy again")

    # docker-compose stop is a SIGTERM: the round is finished, the model written
    project.compose("stop")
    with ThreadPoolExecutor() as pool:
        codes = list(pool.map(lambda each: inspect(each, "{{.State.ExitCode}}"), [coordinator, *workers]))
    assert codes == ["130", *["0"] * WORKERS]
