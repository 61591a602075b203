"""Parts whose workers have gone, served beside this worker's own: each by a process that ends with this one."""

import logging
import threading
from collections.abc import Callable, Sequence

from acccocoa.children import WorkerProcess
from acccocoa.errors import ClusterError
from acccocoa.security import split_address

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
"""How long an answer waits for a process to come up."""


class Adopted:
    """The processes beside this one.

    Parameters
    ----------
    arguments : by number of the part, of `acccocoa-worker serve`
    """

    def __init__(self, arguments: Callable[[int], Sequence[str]]) -> None:
        self._arguments = arguments
        self._processes: dict[int, WorkerProcess] = {}
        self._lock = threading.Lock()

    def port(self, number: int) -> int:
        """Where the part is served, from now on if it was not before; 0 while that is not known.

        Raises
        ------
        ClusterError : its process has ended; asked again, another one is started
        AcccocoaError : where the part is to be found cannot be told
        """
        with self._lock:
            process = self._processes.get(number)
            if process is None:
                arguments = self._arguments(number)
                log.info("taking over part %d: serving %s, too", number, arguments[0])
                process = self._processes[number] = WorkerProcess(arguments)
            elif process.exit_code is not None:
                del self._processes[number]
                process.end()
                raise ClusterError(f"the process for part {number}", f"has ended with exit code {process.exit_code}")
        address = process.address(LOOK_SECONDS)
        return 0 if address is None else split_address(address)[1]

    def end(self) -> None:
        """End the processes in order."""
        with self._lock:
            for process in self._processes.values():
                process.end_in_order()
            self._processes.clear()
