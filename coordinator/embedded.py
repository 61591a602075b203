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
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, BinaryIO, cast

from acccocoa import shardfile
from acccocoa.errors import ClusterError, WorkerUnreachable
from acccocoa.examples import Examples

END_SECONDS = 10.0
"""How long a worker may take to end before it is killed."""


class LocalWorkers:
    """K worker processes.

    addresses : HOST:PORT of each
    """

    def __init__(self, processes: list["subprocess.Popen[str]"], addresses: list[str]) -> None:
        self._processes = processes
        self.addresses = addresses

    def gone(self) -> ClusterError | None:
        """An error when one of the processes has ended, else None."""
        for number, process in enumerate(self._processes):
            code = process.poll()
            if code is not None:
                return WorkerUnreachable(f"worker {number}", f"ended with exit code {code}", "see its message above")
        return None


@contextmanager
def local_workers(examples: Examples, workers: int, threads: int, timeout: float) -> Iterator[LocalWorkers]:
    """Start the workers on the examples; they end with the context.

    Raises
    ------
    WorkerUnreachable : a worker did not come up within `timeout` seconds
    """
    with ExitStack() as stack:
        stream = stack.enter_context(tempfile.TemporaryFile())
        shardfile.write_to(cast(BinaryIO, stream), examples)
        stream.flush()
        descriptor = stream.fileno()
        processes = []
        for part in range(workers):
            process = subprocess.Popen(
                [
                    # -P: a worker.py (or numpy.py) in the user's directory is not what is meant
                    *(sys.executable, "-P", "-m", "worker", "serve", f"/dev/fd/{descriptor}#{part}/{workers}"),
                    *("--listen", "127.0.0.1:0", "--threads", str(threads), "--quiet", "--exit-with-stdin"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=[descriptor],
                # Ctrl-C is for the coordinator, which lets the round finish
                process_group=0,
            )
            stack.callback(_end, process)
            processes.append(process)
        deadline = time.monotonic() + timeout
        addresses = [_address(process, part, deadline) for part, process in enumerate(processes)]
        yield LocalWorkers(processes, addresses)


def _address(process: "subprocess.Popen[str]", part: int, deadline: float) -> str:
    """The first line a worker prints."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    stdout = cast(IO[str], process.stdout)
    threading.Thread(target=lambda: lines.put(stdout.readline()), daemon=True).start()
    try:
        line = lines.get(timeout=max(0.0, deadline - time.monotonic())).strip()
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
