"""Workers that stay away, whose part of the data another one serves: train --adopt."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from acccocoa.security import open_channel
from acccocoa.v1 import worker_pb2 as pb
from acccocoa.v1 import worker_pb2_grpc
from tests.cluster import recompute
from tests.cluster.arena import HINGE, Arena, Undisturbed
from tests.support.forked import POLL_SECONDS, Forked, Forkery

MakeArena = Callable[..., Arena]

ADOPT = ("--adopt", "--worker-patience", "20", "--silence", "5")
"""After five seconds."""


def test_the_part_of_a_worker_that_is_gone_is_served_by_another_which_may_be_lost_as_well(
    arena: MakeArena, covtype_like: Path, undisturbed: Undisturbed
) -> None:
    some = arena(covtype_like, kept=False)
    expected, model = undisturbed
    coordinator = some.train(*HINGE, *ADOPT)
    some.wait_round(100, coordinator)
    some.workers[0].kill()
    coordinator.wait_told(" is back")
    assert "to serve part 0 of 3, too" in coordinator.stderr
    adopting, left = sorted((1, 2), key=lambda number: "taking over part 0" not in some.workers[number].stderr)
    some.workers[adopting].kill()
    result = some.result(coordinator)
    # at first one part, then that and the one of whoever had taken it over
    assert (result["status"], result["adopted"], result["resyncs"]) == ("converged", 3, 0)
    assert result["rounds"] == expected["rounds"]
    assert some.model.read_bytes() == model
    assert [address for address in some.addresses if address in result["addresses"]] == [some.addresses[left]]


def test_a_worker_and_what_it_has_taken_over_end_together(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like, kept=False)
    some.workers[0].wait_told(" serving ")
    described, port = adopt(some.addresses[0], 2)
    assert described.part.number == 2
    some.workers[0].signal(signal.SIGTERM)
    assert some.workers[0].wait(30.0) == 0
    with open_channel(f"127.0.0.1:{port}") as channel, pytest.raises(Exception, match="UNAVAILABLE"):
        worker_pb2_grpc.WorkerStub(channel).Describe(pb.DescribeRequest(), timeout=10.0)


def adopt(address: str, number: int) -> tuple[pb.DescribeReply, int]:
    """Ask the worker to take a part over; what that part says of itself, and its port."""
    deadline = time.monotonic() + 60.0
    with open_channel(address) as channel:
        stub = worker_pb2_grpc.WorkerStub(channel)
        whole = stub.Describe(pb.DescribeRequest(), timeout=10.0, wait_for_ready=True).part.whole
        request = pb.AdoptRequest(whole=whole, number=number)
        while not (port := stub.Adopt(request, timeout=10.0).port):
            assert time.monotonic() < deadline
        assert stub.Adopt(request, timeout=10.0).port == port, "asked again, it is the same process"
    while True:
        with open_channel(f"127.0.0.1:{port}") as channel:
            try:
                return worker_pb2_grpc.WorkerStub(channel).Describe(pb.DescribeRequest(), timeout=10.0), port
            except grpc.RpcError:  # it is not listening yet
                assert time.monotonic() < deadline
                time.sleep(POLL_SECONDS)


@pytest.mark.soak  # half a minute
def test_shards_beside_a_manifest_are_adopted(forkery: Forkery, tmp_path: Path, covtype_like: Path) -> None:
    started: list[Forked] = []

    def start(package: Any, *arguments: object) -> Forked:
        started.append(forkery.start(package, *arguments, directory=tmp_path, name=f"{package}{len(started)}"))
        return started[-1]

    try:
        shards, state = tmp_path / "shards", tmp_path / "state"
        cut = start("coordinator", "shard", covtype_like, "--shards", 3, "--by", "features", "--out", shards)
        assert cut.wait(60.0) == 0, cut.stderr
        files = sorted(file for file in shards.iterdir() if file.suffix != ".json")
        workers = [
            start("worker", "serve", path, "--listen", "127.0.0.1:0", "--threads", 1, "--state", state)
            for path in files
        ]
        addresses = ",".join(worker.first_line() for worker in workers)
        task = ("--loss", "squared", "--lam", "1e-3", "--l1-ratio", "0.5", "--tol", "1e-9")
        options = (*task, *ADOPT, "--workers", addresses, "--json", "--certify-every-round")
        model, trace = tmp_path / "model", tmp_path / "trace"
        coordinator = start("coordinator", "train", *options, "--model", model, "--trace", trace)
        deadline = time.monotonic() + 60.0
        while not trace.exists() or trace.read_bytes().count(b"\n") < 30:
            assert coordinator.running, coordinator.stderr
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)
        workers[2].kill()
        assert coordinator.wait(120.0) == 0, coordinator.stderr
        assert '"adopted": 1' in coordinator.stdout
        assert "to serve part 2 of 3, too" in coordinator.stderr
        assert recompute.read_weights(model).any()
    finally:
        for process in started:
            process.signal(signal.SIGTERM)
        for process in started:
            process.wait(30.0)


def test_shards_that_are_part_of_nothing_known_are_waited_for_in_vain(
    forkery: Forkery, tmp_path: Path, covtype_like: Path
) -> None:
    lines = covtype_like.read_text().splitlines(keepends=True)
    started: list[Forked] = []
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text("".join(lines[number::2]))
        listen = ("--listen", "127.0.0.1:0", "--threads", 1)
        started.append(forkery.start("worker", "serve", tmp_path / f"{number}.txt", *listen, directory=tmp_path))
    addresses = ",".join(worker.first_line() for worker in started)
    options = ("--workers", addresses, "--lam", "1e-7", "--tol", "1e-9", "--adopt", "--worker-patience", "4")
    coordinator = forkery.start("coordinator", "train", *options, directory=tmp_path)
    coordinator.wait_told("round 0 ")
    started[0].kill()
    assert coordinator.wait(34.0) == 5
    assert "what it is part of is not known" in coordinator.stderr
    started[1].signal(signal.SIGTERM)
    assert started[1].wait(30.0) == 0
