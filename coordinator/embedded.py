"""The embedded cluster: K real worker processes on loopback, gone with their coordinator whatever ends it.

The data reaches the workers as one file without a name: when the last process that has it open ends, killed or not, it
is gone. Every worker takes its part of it. Each worker's standard input is a pipe whose other end the coordinator
holds: when the coordinator is gone, the pipe closes, and the worker ends.
"""

import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, BinaryIO, cast

import numpy as np

from acccocoa import shardfile
from acccocoa.errors import ClusterError, WorkerUnreachable
from acccocoa.examples import Examples
from acccocoa.losses import Vector

END_SECONDS = 10.0
"""How long a worker may take to end before it is killed."""


class LocalWorker:
    """One worker process, started again when it has died.

    address : HOST:PORT
    """

    def __init__(self, command: Sequence[str], descriptors: Sequence[int], part: int, timeout: float) -> None:
        self._command = command
        self._descriptors = descriptors
        self._part = part
        self._timeout = timeout
        self._begin()
        self.address = ""

    def _begin(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=self._descriptors,
            # Ctrl-C is for the coordinator, which lets the round finish
            process_group=0,
        )

    def wait_for_address(self) -> None:
        """Learn the address from the first line the process prints."""
        self.address = _address(self._process, self._part, self._timeout)

    def gone(self) -> ClusterError | None:
        """An error when the process has ended, else None."""
        code = self._process.poll()
        if code is None:
            return None
        return WorkerUnreachable(f"worker {self._part}", f"ended with exit code {code}", "see its message above")

    def candidates(self) -> list[str]:
        """Where the worker is; a process that has died is started anew first."""
        if self._process.poll() is not None:
            self.end()
            self._begin()
            self.wait_for_address()
        return [self.address]

    def end(self) -> None:
        """Close the pipe that keeps the worker alive, and wait until it is gone."""
        _end(self._process)


@contextmanager
def local_workers(
    examples: Examples,
    workers: int,
    threads: int,
    timeout: float,
    by: str,
    state: str | None = None,
    weights: Vector | None = None,
) -> Iterator[list[LocalWorker]]:
    """Start the workers on the examples; they end with the context.

    by : "examples" or "features", what is dealt
    state : directory for the workers' dual variables, if they are to survive
    weights : of the examples, if they have any

    Raises
    ------
    WorkerUnreachable : a worker did not come up within `timeout` seconds
    """
    with ExitStack() as stack:
        stream = stack.enter_context(tempfile.TemporaryFile())
        shardfile.write_to(cast(BinaryIO, stream), examples)
        stream.flush()
        descriptors = [stream.fileno()]
        if weights is not None:
            stream = stack.enter_context(tempfile.TemporaryFile())
            np.save(stream, weights)
            stream.flush()
            descriptors.append(stream.fileno())
        started = []
        for part in range(workers):
            command = [
                # -P: a worker.py (or numpy.py) in the user's directory is not what is meant
                *(sys.executable, "-P", "-m", "worker", "serve", f"/dev/fd/{descriptors[0]}#{part}/{workers}"),
                *("--listen", "127.0.0.1:0", "--by", by, "--threads", str(threads), "--quiet", "--exit-with-stdin"),
                *(() if state is None else ("--state", state)),
                *(() if weights is None else ("--weights", f"/dev/fd/{descriptors[1]}")),
            ]
            worker = LocalWorker(command, descriptors, part, timeout)
            stack.callback(worker.end)
            started.append(worker)
        for worker in started:
            worker.wait_for_address()
        yield started


def _address(process: "subprocess.Popen[str]", part: int, timeout: float) -> str:
    """The first line a worker prints."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    stdout = cast(IO[str], process.stdout)
    threading.Thread(target=lambda: lines.put(stdout.readline()), daemon=True).start()
    try:
        line = lines.get(timeout=timeout).strip()
    except queue.Empty:
        line = ""
    if not line:
        raise WorkerUnreachable(f"worker {part}", "did not start", "see its message above")
    return line


def _end(process: "subprocess.Popen[str]") -> None:
    """Close the pipe that keeps the worker alive, and wait until it is gone."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
