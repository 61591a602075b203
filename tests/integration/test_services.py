"""The services around a job: health, ports, and a coordinator that can be watched and stopped."""

import json
import os
import signal
from pathlib import Path

import grpc
import pytest

from acccocoa import security
from acccocoa.v1 import coordinator_pb2 as pb
from acccocoa.v1 import coordinator_pb2_grpc
from tests.integration.data import only_json, sidecar
from tests.integration.processes import Launcher, Running, Worker, wait_until
from tests.integration.wire import RPC_SECONDS, Client

pytestmark = pytest.mark.as_users_do

LONG = ("--lam", 1e-9, "--tol", 1e-14, "--local-epochs", 5)


# --------------------------------------------------------------------------------------------------------------- worker


def test_health_follows_the_shard(launch: Launcher, sparse: Path) -> None:
    pipe = launch.directory / "pipe"
    os.mkfifo(pipe)
    worker = launch.worker(pipe)
    client = Client(worker.address)
    try:
        assert client.status() == "NOT_SERVING"
        with pytest.raises(grpc.RpcError) as caught:
            client.describe()
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        check = launch.run("worker", "check", worker.address)
        assert (check.exit_code, check.stdout) == (5, "")
        assert check.error == f"error: worker {worker.address}: answers NOT_SERVING; wait until its shard is loaded"

        pipe.write_bytes(sparse.read_bytes())
        wait_until(lambda: client.status() == "SERVING", "serving")
        shard = client.describe()
        assert (shard.n, shard.d, shard.shard, shard.blocks, shard.job_id) == (600, 80, str(pipe), 1, "")
        assert [(label.label, label.spelling) for label in shard.label_counts] == [(-1.0, "-1"), (1.0, "+1")]
        check = launch.run("worker", "check", worker.address)
        assert (check.exit_code, check.stdout, check.stderr) == (0, "SERVING\n", "")
    finally:
        client.close()
    worker.signal(signal.SIGTERM)
    finished = worker.finish()
    assert finished.exit_code == 0
    check = launch.run("worker", "check", worker.address)
    assert (check.exit_code, check.error) == (5, f"error: worker {worker.address}: does not answer (UNAVAILABLE)")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_is_still_loading_ends_at_once(number: signal.Signals, launch: Launcher) -> None:
    os.mkfifo(launch.directory / "pipe")
    worker = launch.worker("pipe")
    assert worker.address
    worker.signal(number)
    try:
        finished = worker.finish(10.0)
    except AssertionError:
        # a signal that comes just before open(2) does not interrupt it; on a pipe that is for ever, but for another one
        worker.signal(number)
        finished = worker.finish()
    assert (finished.exit_code, finished.stderr) == (0, "")


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("taken", ("--listen", "cannot be bound", "port in use")),
        ("0.0.0.0:0", ("'0.0.0.0:0'", "--insecure")),
        ("127.0.0.1", ("'127.0.0.1'", "HOST:PORT")),
        ("192.0.2.1:0", ("'192.0.2.1:0'", "--insecure")),
    ],
)
def test_addresses_that_cannot_be_served(
    listen: str, words: tuple[str, ...], launch: Launcher, pair: list[Worker], sparse: Path
) -> None:
    listen = pair[0].address if listen == "taken" else listen
    finished = launch.worker(sparse, listen=listen).finish()
    assert (finished.exit_code, finished.stdout) == (2, "")
    assert finished.error.startswith("error: ")
    assert all(word in finished.error for word in words), finished.stderr
    assert finished.stderr.count("\n") == 1  # gRPC has nothing to say
    assert Client(pair[0].address).status() == "SERVING"


def test_a_shard_that_is_not_there_is_served_nowhere(launch: Launcher) -> None:
    finished = launch.worker(launch.directory / "nosuch").finish()
    assert (finished.exit_code, finished.stdout) == (4, "")
    assert finished.error == f"error: {launch.directory / 'nosuch'}: cannot be read: No such file or directory"


def test_insecure_is_for_networks_that_are_trusted(launch: Launcher, sparse: Path) -> None:
    worker = launch.worker(sparse, "--insecure", listen="0.0.0.0:0")
    worker.wait_serving()
    port = worker.address.rpartition(":")[2]
    assert launch.run("worker", "check", f"127.0.0.1:{port}").exit_code == 0


# ---------------------------------------------------------------------------------------------------------- coordinator


def watchable(launch: Launcher, addresses: str, *arguments: object) -> tuple[Running, str]:
    """A coordinator under way that can be watched, and where."""
    running = launch.start(
        "coordinator",
        "train",
        "--workers",
        addresses,
        *LONG,
        "--listen",
        "127.0.0.1:0",
        "--model",
        "m",
        "--json",
        *arguments,
    )
    address = running.stderr.search(r"^can be watched at (\S+)$")[1]
    return running, address


def test_watch_status_and_stop(launch: Launcher, addresses: str) -> None:
    running, address = watchable(launch, addresses, "--certify-every-round")
    with security.open_channel(address) as channel:
        stub = coordinator_pb2_grpc.CoordinatorStub(channel)
        seen = []
        for report in stub.Watch(pb.WatchRequest(), timeout=RPC_SECONDS):
            seen.append(report)
            if len(seen) == 5:
                break
        rounds = [report.round for report in seen]
        assert rounds == sorted(set(rounds))
        for report in seen:
            assert report.gap == report.primal - report.dual
            assert 0 <= report.best_gap <= report.gap
        status = stub.Status(pb.StatusRequest(), timeout=RPC_SECONDS)
        assert (status.state, status.loss, status.lam, status.workers) == ("running", "hinge", 1e-9, 2)
        assert status.last.round >= rounds[-1]
        assert len(status.job_id) == 12

        # by command, two at once, until the job is stopped from outside
        watching = launch.start("coordinator", "watch", address)
        as_json = launch.start("coordinator", "watch", address, "--json")
        for each in (watching, as_json):
            each.stdout.search("round")
        assert stub.Stop(pb.StopRequest(), timeout=RPC_SECONDS).state == "running"

    finished = running.finish()
    assert finished.exit_code == 130, finished.stderr
    result = only_json(finished.stdout)
    assert result["status"] == sidecar(launch.directory / "m")["status"] == "interrupted"
    lines = watching.finish().stdout.splitlines()
    assert all(line.startswith("round ") for line in lines)
    assert lines[-1].startswith(f"round {result['rounds']} ")
    objects = [json.loads(line) for line in as_json.finish().stdout.splitlines()]
    assert int(objects[-1]["round"]) == result["rounds"]
    assert objects[-1].keys() >= {"round", "primal", "dual", "relative_gap", "bytes_pushed", "restart"}


def stop(address: str) -> None:
    with security.open_channel(address) as channel:
        coordinator_pb2_grpc.CoordinatorStub(channel).Stop(pb.StopRequest(), timeout=RPC_SECONDS)


def test_stopped_while_workers_are_waited_for(launch: Launcher) -> None:
    options = ("--workers", "127.0.0.1:1", "--connect-timeout", 600, "--listen", "127.0.0.1:0")
    running = launch.start("coordinator", "train", *options)
    address = running.stderr.search(r"^can be watched at (\S+)$")[1]
    running.stderr.search("^connecting .*\n")
    stop(address)
    finished = running.finish()
    assert (finished.exit_code, finished.error) == (130, "interrupted")


def test_stopped_while_a_lost_worker_is_waited_for(launch: Launcher, sparse: Path) -> None:
    workers = launch.workers(sparse, 2)
    running, address = watchable(launch, ",".join(worker.address for worker in workers))
    running.stderr.search(r"^round [3-9] ")
    workers[0].signal(signal.SIGKILL)
    running.stderr.search("waiting up to 300 s for it")
    stop(address)
    finished = running.finish()
    assert finished.exit_code == 130, finished.stderr
    assert sidecar(launch.directory / "m")["status"] == "interrupted"


def test_watching_nobody(launch: Launcher) -> None:
    finished = launch.run("coordinator", "watch", "127.0.0.1:1")
    assert finished.exit_code == 5
    assert finished.error.startswith("error: coordinator 127.0.0.1:1: does not answer")


def test_watching_a_coordinator_that_is_killed(launch: Launcher, sparse: Path) -> None:
    workers = launch.workers(sparse, 1)
    running, address = watchable(launch, workers[0].address)
    watching = launch.start("coordinator", "watch", address)
    watching.stdout.search("round")
    running.signal(signal.SIGKILL)
    running.finish()
    finished = watching.finish()
    assert finished.exit_code == 5
    assert finished.error.startswith(f"error: coordinator {address}: does not answer")


def test_a_port_that_is_taken(launch: Launcher, addresses: str, pair: list[Worker]) -> None:
    finished = launch.run("coordinator", "train", "--workers", addresses, "--listen", pair[0].address, "--quiet")
    assert finished.exit_code == 2
    assert f"--listen {pair[0].address}: cannot be bound" in finished.error
