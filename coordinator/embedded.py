"""The embedded cluster: K real worker processes on loopback, gone with their coordinator whatever ends it.

The data reaches the workers as one file without a name: when the last process that has it open ends, killed or not, it
is gone. Every worker takes its part of it.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, cast

import numpy as np

from acccocoa import shardfile
from acccocoa.children import WorkerProcess
from acccocoa.errors import ClusterError, WorkerUnreachable
from acccocoa.examples import Examples
from acccocoa.losses import Vector


class LocalWorker:
    """One worker process, started again when it has died.

    address : HOST:PORT
    """

    def __init__(self, arguments: Sequence[str], descriptors: Sequence[int], part: int, timeout: float) -> None:
        self._arguments = arguments
        self._descriptors = descriptors
        self._part = part
        self._timeout = timeout
        self._process = WorkerProcess(arguments, descriptors)
        self.address = ""

    def wait_for_address(self) -> None:
        """Learn the address from the first line the process prints."""
        address = self._process.address(self._timeout)
        if address is None:
            raise WorkerUnreachable(f"worker {self._part}", "did not start", "see its message above")
        self.address = address

    def gone(self) -> ClusterError | None:
        """An error when the process has ended, else None."""
        code = self._process.exit_code
        if code is None:
            return None
        return WorkerUnreachable(f"worker {self._part}", f"ended with exit code {code}", "see its message above")

    def candidates(self) -> list[str]:
        """Where the worker is; a process that has died is started anew first."""
        if self._process.exit_code is not None:
            self.end()
            self._process = WorkerProcess(self._arguments, self._descriptors)
            self.wait_for_address()
        return [self.address]

    def end(self) -> None:
        """Close the pipe that keeps the worker alive, and wait until it is gone."""
        self._process.end()


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
            arguments = [
                f"/dev/fd/{descriptors[0]}#{part}/{workers}",
                *("--listen", "127.0.0.1:0", "--by", by, "--threads", str(threads), "--no-cache", "--quiet"),
                *(() if state is None else ("--state", state)),
                *(() if weights is None else ("--weights", f"/dev/fd/{descriptors[1]}")),
            ]
            worker = LocalWorker(arguments, descriptors, part, timeout)
            stack.callback(worker.end)
            started.append(worker)
        for worker in started:
            worker.wait_for_address()
        yield started
