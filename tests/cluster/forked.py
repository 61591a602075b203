"""Real processes of both commands that start at once: forked from one that has imported everything already.

A test of recovery starts hundreds of processes, and a second of imports for each would be most of its time. What is
forked runs the same command line as `python -m worker` or `python -m coordinator`, in a process of its own, with its
own exit code, and ends in the ordinary way. The parent (this file as a program) talks to the test over a socket: lines
of JSON, one a request and one an exit. When the test is gone, it kills what it has started; when it is killed itself
(`timeout pytest ...` signals both), what it has started ends with it.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

Package = Literal["coordinator", "worker"]

POLL_SECONDS = 0.005
"""How often a condition is looked at that nobody tells about."""


class Forked:
    """A process under way.

    pid, name : its number, and what it was called
    exit_code : None while it runs; a negative one is the signal that ended it
    began, ended : on time.monotonic's clock
    """

    def __init__(self, pid: int, name: str, stdout: Path, stderr: Path) -> None:
        self.pid = pid
        self.name = name
        self.began = time.monotonic()
        self.ended = 0.0
        self.exit_code: int | None = None
        self._stdout = stdout
        self._stderr = stderr
        self._gone = threading.Event()

    @property
    def running(self) -> bool:
        """It has not ended."""
        return not self._gone.is_set()

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._stdout.read_text()

    @property
    def stderr(self) -> str:
        """What it has printed so far."""
        return self._stderr.read_text()

    def tell_exit(self, exit_code: int) -> None:
        """The parent has seen it end."""
        self.exit_code = exit_code
        self.ended = time.monotonic()
        self._gone.set()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(30.0)

    def wait(self, seconds: float) -> int:
        """Its exit code, when it has ended; fails when it does not in time."""
        assert self._gone.wait(seconds), f"process {self.pid} still runs:\n{self.stdout}\n{self.stderr}"
        assert self.exit_code is not None
        return self.exit_code

    def first_line(self, seconds: float = 60.0) -> str:
        """The first line on its standard output; fails when it ends without one."""
        deadline = time.monotonic() + seconds
        while "\n" not in self.stdout:
            assert self.running, f"ended with {self.exit_code} and without a line:\n{self.stderr}"
            assert time.monotonic() < deadline, f"no line in time:\n{self.stderr}"
            time.sleep(POLL_SECONDS)
        return self.stdout.split("\n", 1)[0]

    def wait_told(self, text: str, seconds: float = 60.0) -> None:
        """Wait until it has said so on standard error."""
        deadline = time.monotonic() + seconds
        while text not in self.stderr:
            assert self.running, f"ended with {self.exit_code} and without {text!r}:\n{self.stderr}"
            assert time.monotonic() < deadline, f"no {text!r} in time:\n{self.stderr}"
            time.sleep(POLL_SECONDS)


class Forkery:
    """The parent process, as the test sees it; a context manager."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # what is tested must not depend on the machine's proxies, nor take options from the environment
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ACCCOCOA_", "GRPC_")) and not name.lower().endswith("_proxy")
        }
        environment |= {"PYTHONWARNINGS": "default", "NO_COLOR": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment
        )
        theirs.close()
        self._socket = ours
        self._lines = ours.makefile("r")
        self._lock = threading.Lock()
        self._answer: int | None = None
        self._answered = threading.Condition()
        self._started: dict[int, Forked] = {}
        self._early: dict[int, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        for line in self._lines:
            said = json.loads(line)
            with self._answered:
                if "started" in said:
                    self._answer = said["started"]
                    self._answered.notify_all()
                elif said["ended"] in self._started:
                    self._started.pop(said["ended"]).tell_exit(said["code"])
                else:
                    self._early[said["ended"]] = said["code"]

    def start(
        self,
        package: Package,
        *arguments: object,
        directory: Path,
        name: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Forked:
        """`python -m package arguments` in that directory; what it prints goes to files there, named by `name`."""
        name = name or f"{package}-{time.monotonic_ns()}"
        stdout, stderr = directory / f"{name}.out", directory / f"{name}.err"
        request = {
            "package": package,
            "arguments": [str(argument) for argument in arguments],
            "directory": str(directory),
            "stdout": str(stdout),
            "stderr": str(stderr),
            "environment": dict(environment or {}),
        }
        with self._lock:
            for path in (stdout, stderr):
                path.touch()
            self._socket.sendall((json.dumps(request) + "\n").encode())
            with self._answered:
                assert self._answered.wait_for(lambda: self._answer is not None, 60.0), "the parent does not fork"
                assert self._answer is not None
                forked = Forked(self._answer, name, stdout, stderr)
                self._answer = None
                if forked.pid in self._early:
                    forked.tell_exit(self._early.pop(forked.pid))
                else:
                    self._started[forked.pid] = forked
        return forked

    def signal(self, number: signal.Signals) -> None:
        """Send the parent a signal."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Kill what still runs, and the parent."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._process.wait(60.0)
        self._reader.join()
        self._lines.close()
        self._socket.close()


# ---------------------------------------------------------------------------------------------------- the parent itself


def _preload() -> None:
    """Import what both commands need, and have the kernels compiled."""
    import numpy as np

    import coordinator.cli
    import coordinator.job
    import worker.cli
    import worker.local_solver

    del coordinator, worker.cli
    worker.local_solver.compile_kernels(np.dtype(np.float32))


PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the one that forked it is gone, whatever ended that."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        raise SystemExit(1)


def _become(request: Mapping[str, Any], parent: int) -> None:
    """In the child: be that command; raises SystemExit with its exit code."""
    _die_with(parent)
    os.setsid()
    os.chdir(request["directory"])
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for number, path in ((1, request["stdout"]), (2, request["stderr"])):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(descriptor, number)
        os.close(descriptor)
    package = request["package"]
    sys.argv = [package, *request["arguments"]]
    if package == "worker":
        from worker.cli import main
    else:
        from coordinator.cli import main
    main()
    raise SystemExit(0)


def _reap(connection: socket.socket, running: set[int]) -> None:
    while running:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        running.discard(pid)
        said = {"ended": pid, "code": os.waitstatus_to_exitcode(status)}
        connection.sendall((json.dumps(said) + "\n").encode())


def _parent(connection: socket.socket) -> None:
    """Fork what is asked for until the other end closes; returns in a child only, which is then to end."""
    _preload()
    running: set[int] = set()
    pending = b""
    own = os.getpid()
    connection.settimeout(0.01)
    try:
        while True:
            _reap(connection, running)
            try:
                piece = connection.recv(1 << 16)
            except TimeoutError:
                continue
            if not piece:
                break
            *lines, pending = (pending + piece).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    connection.close()
                    _become(request, own)
                running.add(pid)
                connection.sendall((json.dumps({"started": pid}) + "\n").encode())
    except (BrokenPipeError, ConnectionResetError):
        pass
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while running:
        pid, _ = os.wait()
        running.discard(pid)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as connection_to_the_test:
        _parent(connection_to_the_test)
