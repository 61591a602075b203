"""worker.claim: every worker on a directory has a number of its own, and takes the part of that number."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from acccocoa import dealing
from acccocoa.errors import UsageError
from worker.claim import claim_number, resolve


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


def test_numbers_are_claimed_in_order(tmp_path: Path) -> None:
    # the lock belongs to the opened file, not to the process: two claims here are as two workers
    assert [claim_number(tmp_path) for _ in range(3)] == [0, 1, 2]


def test_a_number_is_free_again_when_its_worker_was_killed(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from worker.claim import claim_number; "
    program += "print(claim_number(Path(sys.argv[1])), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "0\n"
        assert claim_number(tmp_path) == 1
        other.send_signal(signal.SIGKILL)
    assert claim_number(tmp_path) == 0


def test_a_lock_file_that_is_a_directory(tmp_path: Path) -> None:
    dealing.claim_path(tmp_path, 0).mkdir()
    with pytest.raises(UsageError, match=r"worker-0\.lock: cannot be opened for writing \(Is a directory\)"):
        claim_number(tmp_path)


@pytest.mark.parametrize("shard", ["data.svm", "data.svm#1/4", "s3://bucket/key", "no/such/file"])
def test_what_is_no_directory_stays_as_it_is(shard: str, stop: threading.Event) -> None:
    assert resolve(shard, "features", stop) == (shard, "features")


def test_the_part_is_that_of_the_number(tmp_path: Path, stop: threading.Event) -> None:
    path = dealing.Deal(2, "features").path(tmp_path)
    path.touch()
    taken = [resolve(str(tmp_path), "examples", stop) for _ in range(2)]
    assert taken == [(f"{path}#0/2", "features"), (f"{path}#1/2", "features")]


def test_it_waits_until_there_is_a_part_for_its_number(tmp_path: Path, stop: threading.Event) -> None:
    dealing.Deal(1, "examples").path(tmp_path).touch()
    claim_number(tmp_path)
    answers: list[tuple[str, str] | None] = []
    waiting = threading.Thread(target=lambda: answers.append(resolve(str(tmp_path), "examples", stop)))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    path = dealing.Deal(2, "examples").path(tmp_path)
    path.touch()
    waiting.join(10)
    assert answers == [(f"{path}#1/2", "examples")]


def test_a_worker_that_is_stopped_waits_no_longer(tmp_path: Path, stop: threading.Event) -> None:
    stop.set()
    assert resolve(str(tmp_path), "examples", stop) is None
