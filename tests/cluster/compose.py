"""docker-compose projects that tests start, look into, and take away again."""

import contextlib
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]

SECONDS = 600.0
"""How long any one command may take; the first build installs everything."""


def engine_missing() -> str:
    """Why no containers can be run here; '' when they can."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    asked = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=60, check=False)
    if asked.returncode:
        return f"no docker engine answers: {asked.stderr.strip()}"
    return ""


def run(*command: str | Path, env: Mapping[str, str] | None = None, code: int | None = 0) -> str:
    """Run a command and return its standard output; its exit code must be `code` unless that is None."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    told = f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert code is None or done.returncode == code, told
    return done.stdout


class Project:
    """A project of its own name: containers, network, volumes and image; all gone after `close`.

    settings : environment of every docker-compose command
    """

    def __init__(self, image: str) -> None:
        self.name = f"acccocoa-test-{secrets.token_hex(4)}"
        self.settings = {"ACCCOCOA_IMAGE": image}
        plugin = shutil.which("docker-compose") is None
        self._compose = ["docker", "compose"] if plugin else ["docker-compose"]

    def compose(self, *arguments: str, code: int | None = 0) -> str:
        """Run docker-compose; returns its standard output."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ACCCOCOA_")}
        command = [*self._compose, "-p", self.name, "-f", str(ROOT / "docker-compose.yml"), *arguments]
        return run(*command, env=inherited | self.settings, code=code)

    def containers(self, service: str) -> list[str]:
        """The ids of a service's containers, running or not."""
        filters = (f"label=com.docker.compose.{key}={value}" for key, value in self._labels(service).items())
        return run("docker", "ps", "-aq", *(word for each in filters for word in ("--filter", each))).split()

    def _labels(self, service: str) -> dict[str, str]:
        return {"project": self.name, "service": service}

    def coordinator(self) -> str:
        """The id of the coordinator's container."""
        (only,) = self.containers("coordinator")
        return only

    def fetch(self, path: str, to: Path) -> None:
        """Copy a file that the coordinator's container has."""
        run("docker", "cp", f"{self.coordinator()}:{path}", to)

    def close(self) -> None:
        """Stop and remove everything; what a test has broken must not be in the way."""
        self.compose("down", "-v", "--remove-orphans", "-t", "5", code=None)


def inspect(container: str, what: str) -> str:
    """One value of `docker inspect`, by its Go template."""
    return run("docker", "inspect", "-f", what, container).strip()


def logs(container: str) -> str:
    """What a container has written to its standard error."""
    done = subprocess.run(["docker", "logs", container], capture_output=True, text=True, timeout=60, check=True)
    return done.stderr


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Wait for something that other processes bring about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.5)


def pause(container: str) -> None:
    """Have a container stand still.

    With version 1 of control groups the engine may give up freezing processes that are busy; they then go on as before.
    """

    def stands_still() -> bool:
        run("docker", "pause", container, code=None)
        return inspect(container, "{{.State.Paused}}") == "true"

    wait_until(stands_still, f"the engine pauses {container}")


def remove_image(image: str) -> None:
    """Remove an image if it is there."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        run("docker", "rmi", "-f", image, code=None)
