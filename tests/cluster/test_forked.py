"""Nothing that a test has started outlives it, whatever ended it."""

import signal
import time
from pathlib import Path

from tests.support.forked import POLL_SECONDS, Forkery


def _runs(pid: int) -> bool:
    """It is there, and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_processes_end_with_the_one_that_forked_them(tmp_path: Path, covtype_like: Path) -> None:
    with Forkery() as forkery:
        worker = forkery.start("worker", "serve", covtype_like, "--listen", "127.0.0.1:0", directory=tmp_path)
        worker.wait_told(" serving ")
        forkery.signal(signal.SIGKILL)
        deadline = time.monotonic() + 60.0
        while _runs(worker.pid):
            assert time.monotonic() < deadline, "an orphan"
            time.sleep(POLL_SECONDS)
