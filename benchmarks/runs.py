"""Processes that benchmarks start: runs of `train`, and children that serve and end with their parent."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click

from acccocoa.children import end_by_pipe


class RunFailed(click.ClickException):  # it is told to the user as click's own are
    """A process did not do what it was started for; the text says why."""


def environment() -> dict[str, str]:
    """The environment of processes that are to run this repository, whatever is installed."""
    root = str(Path(__file__).resolve().parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}


def train(arguments: Sequence[str]) -> dict[str, Any]:
    """The --json object of `acccocoa-coordinator train ARGUMENTS`.

    Raises
    ------
    RunFailed : it prints none
    """
    command = [sys.executable, "-P", "-m", "coordinator", "train", *arguments, "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise RunFailed((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]) from None
    return found


class Child:
    """`python -m ARGUMENTS`, which prints where it listens, and ends when its standard input does.

    pid : of the process
    """

    def __init__(self, *arguments: str) -> None:
        self._name = " ".join(arguments[:2])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.pid = self._process.pid

    def line(self) -> str:
        """The next line that it prints.

        Raises
        ------
        RunFailed : it ends instead
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RunFailed(f"{self._name} ended before it listened; see its message above")
        return line

    def end(self) -> None:
        """Close its standard input, and wait until it is gone."""
        end_by_pipe(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()


def end_with_standard_input() -> None:
    """In a child: end when the parent is gone, killed or not."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(0)  # nothing here is worth saving

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def workers(shards: Sequence[str], *options: str) -> Iterator[list[tuple[int, str]]]:
    """A worker of one thread for each SHARD; process id and HOST:PORT of each. They end with the context.

    Raises
    ------
    RunFailed : one does not start
    """
    started: list[Child] = []
    try:
        for shard in shards:
            arguments = ("--listen", "127.0.0.1:0", "--threads", "1", "--quiet", "--exit-with-stdin", *options)
            started.append(Child("worker", "serve", shard, *arguments))
        yield [(child.pid, child.line()) for child in started]
    finally:
        for child in started:
            child.end()
