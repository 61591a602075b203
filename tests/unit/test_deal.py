"""coordinator.deal: what is put into the workers' directory, and that they hold just that."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from acccocoa import dealing, libsvm, shardfile
from acccocoa.errors import UsageError, WorkerRefused
from coordinator import deal
from coordinator.handshake import ShardDescription
from worker import source

EXAMPLES = libsvm.parse(b"1 1:1 3:2\n-1 2:1\n1 3:4\n-1 1:5\n1 2:6\n")


def held(content_hash: str) -> ShardDescription:
    """A worker's description of a shard with that hash."""
    return ShardDescription(
        address="host:1", protocol_version=1, software_version="1", content_hash=content_hash, n=1, d=1, nnz=1,
        label_counts=(), label_counts_complete=True, blocks=1, job_id="", dtype="float32",
    )  # fmt: skip


def test_the_parts_that_workers_load_are_those_that_were_dealt(tmp_path: Path) -> None:
    with ExitStack() as stack:
        hashes = deal.deal(stack, EXAMPLES, 2, str(tmp_path))
        path = dealing.dealt_path(tmp_path, 2)
        assert dealing.dealt(tmp_path) == {2: path}
        shards = [source.load(f"{path}#{part}/2").shard for part in range(2)]
        assert sorted(int(row) for shard in shards for row in shard.rows) == list(range(EXAMPLES.n))
        assert {shard.content_hash for shard in shards} == hashes
        deal.check([held(shard.content_hash) for shard in shards], hashes)
    assert dealing.dealt(tmp_path) == {}


def test_what_a_killed_coordinator_left_is_replaced(tmp_path: Path) -> None:
    shardfile.write(dealing.dealt_path(tmp_path, 3), replace(EXAMPLES, labels=-EXAMPLES.labels))
    (tmp_path / "worker-0.lock").touch()
    (tmp_path / "notes.txt").touch()
    with ExitStack() as stack:
        deal.deal(stack, EXAMPLES, 2, str(tmp_path))
        assert list(dealing.dealt(tmp_path)) == [2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "worker-0.lock"]


def test_a_worker_with_something_else_is_refused(tmp_path: Path) -> None:
    with ExitStack() as stack:
        hashes = deal.deal(stack, EXAMPLES, 2, str(tmp_path))
        with pytest.raises(WorkerRefused, match=r"worker host:1: holds other data .*; restart the worker"):
            deal.check([held(next(iter(hashes))), held("0" * 64)], hashes)


def test_more_workers_than_examples(tmp_path: Path) -> None:
    with ExitStack() as stack, pytest.raises(UsageError, match=r"6 workers, but only 5 examples"):
        deal.deal(stack, EXAMPLES, 6, str(tmp_path))


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_directory_that_is_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with ExitStack() as stack, pytest.raises(UsageError, match=f"--deal .*{name}: is not a directory to write in"):
        deal.deal(stack, EXAMPLES, 2, str(tmp_path / name))
