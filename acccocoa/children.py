"""Worker processes that another process starts, and that end with it.

A child's standard input is a pipe whose other end the parent holds (--exit-with-stdin): when the parent is gone,
killed or not, the pipe closes, and the child ends.
"""

import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import IO, cast

END_SECONDS = 10.0
"""How long a child may take to end before it is killed."""


def end_by_pipe(process: "subprocess.Popen[str]") -> None:
    """Close the pipes of a child that ends with its standard input, and wait until it is gone; kill it if it stays."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class WorkerProcess:
    """`acccocoa-worker serve ARGUMENTS`, as a child of this process.

    Parameters
    ----------
    arguments : of `serve`
    descriptors : files that the child has open, too
    """

    def __init__(self, arguments: Sequence[str], descriptors: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            # -P: a worker.py (or numpy.py) in the user's directory is not what is meant
            [sys.executable, "-P", "-m", "worker", "serve", *arguments, "--exit-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=descriptors,
            # Ctrl-C is for the parent, which lets the round finish
            process_group=0,
        )
        self._line: Future[str] = Future()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        line = ""
        with suppress(ValueError):  # closed meanwhile
            line = cast(IO[str], self._process.stdout).readline()
        self._line.set_result(line.strip())

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def address(self, timeout: float) -> str | None:
        """The first line it prints: HOST:PORT that it listens at; None when there is none in time."""
        try:
            return self._line.result(timeout) or None
        except TimeoutError:
            return None

    def end_in_order(self) -> None:
        """Tell it to finish what it computes and to write down what is worth it, and wait until it is gone."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self.end()

    def end(self) -> None:
        """Close the pipe that keeps it alive, and wait until it is gone."""
        end_by_pipe(self._process)
