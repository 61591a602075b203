"""Real processes of both commands, with what they print, and nothing of them left when a test is over."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, Self

import psutil

from tests.support.forked import Child, Forkery, Package, inherited

POLL_SECONDS = 0.02
"""How often a condition is looked at that nobody tells about."""

MARK = "INTEGRATION_TEST"
"""Environment variable by which a test's processes, and their children, are found."""

ADDRESS = r"^(\S+:\d+)$"
"""The first line a worker prints."""

IN_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
"""A program that runs a command in a terminal of its own; what comes to its standard input is typed there."""

PATIENCE_SECONDS = 60.0
"""How long anything may take that takes a second or two: the machine may be busy with something else."""

NOTHING: Mapping[str, str] = {}


def wait_until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        pause.wait(POLL_SECONDS)


def alive(pid: int) -> bool:
    """The process runs; one that has ended and whom nobody has asked for its exit code does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Collected:
    """What a process has printed on one stream so far."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._bytes = b""
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._stream:
            while piece := os.read(self._stream.fileno(), 1 << 16):
                with self._changed:
                    self._bytes += piece
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def text(self) -> str:
        """So far."""
        return self._bytes.decode(errors="replace")

    def search(self, pattern: str, seconds: float = PATIENCE_SECONDS) -> "re.Match[str]":
        """Wait for text that matches, `^` and `$` at line ends; fail when the stream ends or time is over."""
        compiled = re.compile(pattern, re.MULTILINE)
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                match = compiled.search(self.text)
                if match is not None:
                    return match
                assert not self._ended, f"ended without {pattern!r}:\n{self.text}"
                assert self._changed.wait(deadline - time.monotonic()), f"no {pattern!r} in time:\n{self.text}"

    def join(self, seconds: float) -> None:
        """Wait for the end of the stream, which comes when the last process that has it open ends."""
        self._reader.join(seconds)
        assert not self._reader.is_alive(), f"somebody keeps the stream open:\n{self.text}"


@dataclass(frozen=True)
class Finished:
    """A process that has ended; a negative exit code is the signal that ended it."""

    exit_code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def error(self) -> str:
        """Its last line on standard error."""
        return self.stderr.splitlines()[-1] if self.stderr else ""


class Process(Protocol):
    """What is used of subprocess.Popen, and of what is forked."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""

    def wait(self, timeout: float) -> int:
        """Its exit code, when it has ended; raises TimeoutExpired when it does not in time."""

    def send_signal(self, number: int, /) -> None:
        """Send it a signal, if it still runs."""


class Running:
    """A process under way.

    stdout, stderr : what it has printed so far

    Parameters
    ----------
    start : starts it, with the standard streams that it is given
    piped : its standard input is a pipe, not nothing
    """

    def __init__(self, start: Callable[[Sequence[int]], Process], piped: bool) -> None:
        self._began = time.monotonic()
        theirs, self._stdin = os.pipe() if piped else (os.open(os.devnull, os.O_RDONLY), -1)
        (out, their_out), (err, their_err) = os.pipe(), os.pipe()
        try:
            self._process = start((theirs, their_out, their_err))
        finally:
            for descriptor in (theirs, their_out, their_err):
                os.close(descriptor)
        self.stdout = Collected(os.fdopen(out, "rb", buffering=0))
        self.stderr = Collected(os.fdopen(err, "rb", buffering=0))

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def children(self) -> list[int]:
        """Its children's numbers."""
        return [child.pid for child in psutil.Process(self.pid).children()]

    def type(self, data: bytes) -> None:
        """Write to its standard input."""
        while data:
            data = data[os.write(self._stdin, data) :]

    def close_stdin(self) -> None:
        """End its standard input, if it is a pipe."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def stop(self) -> None:
        """Make it stand still, all its threads."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED, "stopped")

    def finish(self, seconds: float = PATIENCE_SECONDS) -> Finished:
        """Wait for its end."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs:\n{self.stdout.text}\n{self.stderr.text}") from None
        took = time.monotonic() - self._began
        self.close_stdin()
        self.stdout.join(seconds)
        self.stderr.join(seconds)
        return Finished(code, self.stdout.text, self.stderr.text, took)

    def end(self) -> None:
        """Kill it if it still runs, and take back what it used."""
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
            self.signal(signal.SIGCONT)
        self.finish()


class Worker(Running):
    """A worker service."""

    @property
    def address(self) -> str:
        """HOST:PORT in use; it may be loading its shard still."""
        return self.stdout.search(ADDRESS)[1]

    def wait_serving(self) -> str:
        """Wait until the shard is loaded; returns the address."""
        self.stderr.search(" serving ")
        return self.address


class Launcher:
    """Starts processes in a directory, and ends whatever is left of them.

    Parameters
    ----------
    directory : where they run; they find it empty but for what the test puts there
    temporary : directory for their temporary files
    forkery : what starts them at once; None: each is a Python of its own, as users start it
    """

    @classmethod
    def under(cls, root: Path, forkery: Forkery | None = None) -> Self:
        """In empty directories of their own there."""
        for name in ("run", "tmp"):
            (root / name).mkdir()
        return cls(root / "run", root / "tmp", forkery)

    def __init__(self, directory: Path, temporary: Path, forkery: Forkery | None) -> None:
        self.directory = directory
        self._forkery = forkery
        self._temporary = temporary
        self._mark = uuid.uuid4().hex
        self._started: list[Running] = []

    def _environment(self, changes: Mapping[str, str]) -> dict[str, str]:
        ours = {"TMPDIR": str(self._temporary), "PYTHONWARNINGS": "default", MARK: self._mark, "NO_COLOR": "1"}
        return {**ours, **changes}

    def _interpreter(
        self, *command: object, environment: Mapping[str, str] = NOTHING
    ) -> Callable[[Sequence[int]], Process]:
        """What starts a Python with those arguments."""

        def start(streams: Sequence[int]) -> Process:
            return subprocess.Popen(
                [sys.executable, *map(str, command)],
                cwd=self.directory,
                env=inherited() | self._environment(environment),
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
            )

        return start

    def _command(
        self, package: Package, *arguments: object, environment: Mapping[str, str] = NOTHING
    ) -> Callable[[Sequence[int]], Process]:
        """What starts the command of the package."""
        forkery = self._forkery
        if forkery is None:
            return self._interpreter("-P", "-m", package, *arguments, environment=environment)
        where: dict[str, Any] = {"directory": self.directory, "environment": self._environment(environment)}
        return lambda streams: forkery.fork(package, *arguments, **where, streams=streams, made=Child)

    def start(
        self, package: Package, *arguments: object, piped: bool = False, environment: Mapping[str, str] = NOTHING
    ) -> Running:
        """The command of the package, its standard input a pipe or nothing."""
        running = Running(self._command(package, *arguments, environment=environment), piped)
        self._started.append(running)
        return running

    def start_in_terminal(self, package: Package, *arguments: object) -> Running:
        """The same in a terminal of its own: all it prints is on stdout, and `type` reaches its foreground group."""
        command = ("-c", IN_A_TERMINAL, sys.executable, "-P", "-m", package, *arguments)
        terminal = {"TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
        running = Running(self._interpreter(*command, environment=terminal), True)
        self._started.append(running)
        return running

    def run(
        self,
        package: Package,
        *arguments: object,
        seconds: float = PATIENCE_SECONDS,
        environment: Mapping[str, str] = NOTHING,
    ) -> Finished:
        """The same, to its end."""
        return self.start(package, *arguments, environment=environment).finish(seconds)

    def worker(
        self,
        shard: object,
        *arguments: object,
        threads: int = 1,
        listen: str = "127.0.0.1:0",
        environment: Mapping[str, str] = NOTHING,
    ) -> Worker:
        """A worker service on any free port."""
        command = ("serve", shard, "--listen", listen, "--threads", threads, *arguments)
        worker = Worker(self._command("worker", *command, environment=environment), False)
        self._started.append(worker)
        return worker

    def workers(self, file: object, count: int, *arguments: object, threads: int = 1) -> list[Worker]:
        """One worker for each of `count` parts of a file, all serving."""
        started = [self.worker(f"{file}#{part}/{count}", *arguments, threads=threads) for part in range(count)]
        for worker in started:
            worker.wait_serving()
        return started

    def _left(self) -> list[int]:
        """Processes of this launcher, or of its processes, that still run."""
        left = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self._mark and alive(process.pid):
                    left.append(process.pid)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return left

    def close(self) -> None:
        """End everything, then make sure that nothing is left and that nobody printed a traceback or a warning."""
        for running in self._started:
            running.end()
        try:
            wait_until(lambda: not self._left(), "processes end")
        finally:
            for pid in self._left():
                psutil.Process(pid).kill()
        assert list(self._temporary.iterdir()) == []
        for running in self._started:
            for text in (running.stdout.text, running.stderr.text):
                assert "Traceback (most recent call last)" not in text, text
                # an interrupted import is not worth a word
                assert not re.search(r"^(?!<frozen importlib).*Warning: (?!Enable tracemalloc)", text, re.MULTILINE), (
                    text
                )
