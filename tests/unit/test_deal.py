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
BY: tuple[dealing.By, ...] = ("examples", "features")


def held(content_hash: str) -> ShardDescription:
    """A worker's description of a shard with that hash."""
    return ShardDescription(
        address="host:1", protocol_version=1, software_version="1", content_hash=content_hash, n=1, d=1, nnz=1,
        label_counts=(), label_counts_complete=True, blocks=1, job_id="", dtype="float32",
    )  # fmt: skip


@pytest.mark.parametrize("by", BY)
def test_the_parts_that_workers_load_are_those_that_were_dealt(tmp_path: Path, by: dealing.By) -> None:
    with ExitStack() as stack:
        hashes = deal.deal(stack, EXAMPLES, 2, by, str(tmp_path))
        (dealt,) = dealing.deals(tmp_path)
        assert dealt == dealing.Deal(2, by)
        shards = [source.load(f"{dealt.path(tmp_path)}#{part}/2", by=by).shard for part in range(2)]
        assert sum(shard.nnz for shard in shards) == EXAMPLES.nnz
        assert {shard.content_hash for shard in shards} == hashes
        deal.check([held(shard.content_hash) for shard in shards], hashes)
    assert dealing.deals(tmp_path) == []


def test_what_a_killed_coordinator_left_is_replaced(tmp_path: Path) -> None:
    shardfile.write(dealing.Deal(3, "features").path(tmp_path), replace(EXAMPLES, labels=-EXAMPLES.labels))
    (tmp_path / "worker-0.lock").touch()
    (tmp_path / "notes.txt").touch()
    with ExitStack() as stack:
        deal.deal(stack, EXAMPLES, 2, "examples", str(tmp_path))
        assert dealing.deals(tmp_path) == [dealing.Deal(2, "examples")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "worker-0.lock"]


def test_a_worker_with_something_else_is_refused(tmp_path: Path) -> None:
    with ExitStack() as stack:
        hashes = deal.deal(stack, EXAMPLES, 2, "examples", str(tmp_path))
        with pytest.raises(WorkerRefused, match=r"worker host:1: holds other data .*; restart the worker"):
            deal.check([held(next(iter(hashes))), held("0" * 64)], hashes)


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_directory_that_is_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with ExitStack() as stack, pytest.raises(UsageError, match=f"--deal .*{name}: is not a directory to write in"):
        deal.deal(stack, EXAMPLES, 2, "examples", str(tmp_path / name))
