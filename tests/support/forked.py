"""Real processes of both commands that start at once: forked from one that has imported everything already.

Tests start hundreds of processes, and a second of imports for each would be most of their time. What is forked runs the
same command line as `python -m worker` or `python -m coordinator`, in a process of its own, with its own exit code, and
ends in the ordinary way. The parent (this file as a program) talks to the test over a socket: lines of JSON, one a
request, which comes with what are to be the standard streams, and one an exit. When the test is gone, it kills what it
has started; when it is killed itself (`timeout pytest ...` signals both), what it has started ends with it.
"""

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

Package = Literal["coordinator", "worker"]

POLL_SECONDS = 0.005
"""How often a condition is looked at that nobody tells about."""


def inherited() -> dict[str, str]:
    """Of the environment what is tested may see: it must not depend on proxies, nor take options from there."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCCOCOA_", "GRPC_")) and not name.lower().endswith("_proxy")
    }


class Child:
    """A process under way, with what subprocess.Popen has as far as tests use it.

    pid : its number
    exit_code : None while it runs; a negative one is the signal that ended it
    began, ended : on time.monotonic's clock
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.began = time.monotonic()
        self.ended = 0.0
        self.exit_code: int | None = None
        self._gone = threading.Event()

    @property
    def running(self) -> bool:
        """It has not ended."""
        return not self._gone.is_set()

    def tell_exit(self, exit_code: int) -> None:
        """The parent has seen it end."""
        self.exit_code = exit_code
        self.ended = time.monotonic()
        self._gone.set()

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.exit_code

    def wait(self, timeout: float) -> int:
        """Its exit code, when it has ended; raises TimeoutExpired when it does not in time."""
        if not self._gone.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        assert self.exit_code is not None
        return self.exit_code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Forked(Child):
    """One that prints to files.

    name : what it was called
    """

    def __init__(self, pid: int, name: str, stdout: Path, stderr: Path) -> None:
        super().__init__(pid)
        self.name = name
        self._stdout = stdout
        self._stderr = stderr

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._stdout.read_text()

    @property
    def stderr(self) -> str:
        """What it has printed so far."""
        return self._stderr.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        self.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(30.0)

    def wait(self, timeout: float) -> int:
        """Its exit code, when it has ended; fails when it does not in time."""
        assert self._gone.wait(timeout), f"process {self.pid} still runs:\n{self.stdout}\n{self.stderr}"
        return super().wait(timeout)

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


C = TypeVar("C", bound=Child)


class Forkery:
    """The parent process, as the test sees it; a context manager."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        environment = inherited() | {"PYTHONWARNINGS": "default", "NO_COLOR": "1", "OPENBLAS_NUM_THREADS": "1"}
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
        self._started: dict[int, Child] = {}
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
        with Path(os.devnull).open() as null, stdout.open("ab") as out, stderr.open("ab") as err:
            return self.fork(
                package,
                *arguments,
                directory=directory,
                environment=environment or {},
                streams=(null.fileno(), out.fileno(), err.fileno()),
                made=lambda pid: Forked(pid, name, stdout, stderr),
            )

    def fork(
        self,
        package: Package,
        *arguments: object,
        directory: Path,
        environment: Mapping[str, str],
        streams: Sequence[int],
        made: Callable[[int], C],
    ) -> C:
        """The same with the standard streams that are given: what `made` makes of its number."""
        request = {
            "package": package,
            "arguments": [str(argument) for argument in arguments],
            "directory": str(directory),
            "environment": dict(environment),
        }
        with self._lock:
            socket.send_fds(self._socket, [(json.dumps(request) + "\n").encode()], streams)
            with self._answered:
                assert self._answered.wait_for(lambda: self._answer is not None, 60.0), "the parent does not fork"
                assert self._answer is not None
                child = made(self._answer)
                self._answer = None
                if child.pid in self._early:
                    child.tell_exit(self._early.pop(child.pid))
                else:
                    self._started[child.pid] = child
        return child

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
    gc.freeze()  # else every process would copy all of that when it collects garbage, most of all at its end


PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the one that forked it is gone, whatever ended that."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        raise SystemExit(1)


def _become(request: Mapping[str, Any], streams: Sequence[int], parent: int) -> None:
    """In the child: be that command; raises SystemExit with its exit code."""
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    os.chdir(request["directory"])
    os.environ.pop("OPENBLAS_NUM_THREADS", None)  # it was the parent's, whose threads would be missing here
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    for number, descriptor in enumerate(streams):
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
    pending, streams = b"", list[int]()
    own = os.getpid()
    connection.settimeout(0.01)
    try:
        while True:
            _reap(connection, running)
            try:
                piece, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 3)
            except TimeoutError:
                continue
            if not piece:
                break
            pending += piece
            streams += descriptors
            if not pending.endswith(b"\n"):
                continue
            request = json.loads(pending)  # there is one at a time
            pid = os.fork()
            if pid == 0:
                connection.close()
                _become(request, streams, own)
            for descriptor in streams:
                os.close(descriptor)
            pending, streams = b"", []
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
