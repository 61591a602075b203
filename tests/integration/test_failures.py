"""Whatever is wrong: the exit code of the contract, one line that names it, within seconds, and no traceback.

That nobody prints a traceback, and that nothing is left running or lying about, is checked after every test.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import xxhash

from acccocoa.protocol import PROTOCOL_VERSION
from acccocoa.v1 import worker_pb2 as pb
from tests.integration.data import load, sidecar, sparse_text, weights
from tests.integration.processes import PATIENCE_SECONDS, Finished, Launcher, Running, Worker, wait_until
from tests.integration.wire import man_in_the_middle

"""What "within seconds" may become on a machine that is busy with something else."""

LONG = ("--lam", 1e-9, "--tol", 1e-14, "--local-epochs", 5)
"""A run that does not end of its own accord."""

GRIM = ("--worker-patience", 0)
"""Nobody waits for a worker that is lost."""


def failed(finished: Finished, code: int, *words: str) -> None:
    assert finished.exit_code == code, finished.stderr
    assert finished.stdout == ""
    error = finished.error.removeprefix("error: ").removeprefix("Error: ")
    assert error != finished.error, finished.stderr
    for word in words:
        assert word in error, finished.stderr
    assert finished.seconds < PATIENCE_SECONDS


@pytest.fixture(scope="module")
def dead() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


# ------------------------------------------------------------------------------------------------------- wrong usage, 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--lam", "0"), ("--lam 0", "> 0")),
        (("--tol", "-1"), ("--tol -1", "> 0")),
        (("--nonsense",), ("--nonsense",)),
        ((), ("DATA", "--workers")),
        (("x", "--workers", "localhost:1"), ("DATA x", "--workers")),
        (("--workers", "localhost"), ("'localhost'", "HOST:PORT")),
        (("--workers", "192.0.2.1:1"), ("'192.0.2.1:1'", "--insecure")),
        (("--workers", "localhost:1", "--zero-based"), ("--zero-based: says how DATA is read", "worker serve")),
        (("--workers", "localhost:1", "--dtype", "float64"), ("--dtype float64: says how", "worker serve")),
        (("--workers", "localhost:1", "--threads", "2"), ("--threads 2: is of workers that", "worker serve")),
        (("x", "--local-work", "auto", "--local-epochs", "1"), ("--local-work auto and --local-epochs: exclude",)),
        (("x", "--local-work", "auto", "--round-seconds", "1"), ("--local-work auto and --round-seconds: exclude",)),
        (("x", "--listen", "0.0.0.0:0"), ("'0.0.0.0:0'", "--insecure")),
        (("x", "--model", "missing/m"), ("missing/m", "directory")),
        (("x", "--trace", "missing/t"), ("--trace missing/t", "No such file")),
        (("x", "--model", "./x"), ("--model ./x", "would replace DATA")),
        (("x", "--trace", "x"), ("--trace x", "would replace DATA")),
        (("x", "--trace", "m.json", "--model", "m"), ("--trace and --model", "m.json")),
    ],
    ids=lambda value: " ".join(value[:2]) or "nothing",
)
def test_wrong_usage(arguments: tuple[str, ...], words: tuple[str, ...], launch: Launcher) -> None:
    data = launch.directory / "x"
    data.write_bytes(sparse_text(20, 5))
    failed(launch.run("coordinator", "train", "--quiet", *arguments), 2, *words)
    assert list(launch.directory.iterdir()) == [data]
    assert data.read_bytes() == sparse_text(20, 5)


def test_standard_output_in_the_file_that_the_sidecar_replaces(launch: Launcher) -> None:
    (launch.directory / "x").write_bytes(sparse_text(20, 5))
    command = [sys.executable, "-m", "coordinator", "train", "x", "--json", "--model", "m"]
    with (launch.directory / "m.json").open("w") as out:
        done = subprocess.run(
            command, cwd=launch.directory, stdout=out, stderr=subprocess.PIPE, timeout=PATIENCE_SECONDS, check=False
        )
    assert done.returncode == 2
    assert b"--model m.json: would replace the file that standard output goes to" in done.stderr
    assert sorted(path.name for path in launch.directory.iterdir()) == ["m.json", "x"]


def test_a_positive_label_that_does_not_occur_starts_no_worker(launch: Launcher) -> None:
    (launch.directory / "x").write_bytes(sparse_text(20, 5))
    finished = launch.run("coordinator", "train", "x", "--positive-label", 7)
    failed(finished, 4, "--positive-label 7: does not occur in x; the labels are -1, 1")
    assert "starting" not in finished.stderr


def test_more_workers_than_examples(launch: Launcher) -> None:
    (launch.directory / "data").write_text("+1 1:1\n-1 1:1\n")
    failed(launch.run("coordinator", "train", "data", "--local", 3), 2, "--local 3", "only 2 examples")


def test_a_trace_on_a_full_disk_still_gives_a_model(launch: Launcher, addresses: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    run = launch.run("coordinator", "train", "--workers", addresses, "--trace", "/dev/full", "--model", "m", "--quiet")
    failed(run, 2, "--trace /dev/full", "No space left", "the best model so far is in m")
    assert (launch.directory / "m").exists()


@pytest.mark.parametrize(
    "arguments",
    [("train", "x", "--json", "--quiet", "--model", "m"), ("validate", "x"), ("predict", "--model", "p", "x")],
)
def test_standard_output_on_a_full_disk(launch: Launcher, arguments: tuple[str, ...]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    (launch.directory / "x").write_bytes(sparse_text(20, 5))
    (launch.directory / "p").write_text("solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 1\nbias -1\nw\n1\n")
    command = [sys.executable, "-m", "coordinator", *arguments]
    with Path("/dev/full").open("w") as out:
        done = subprocess.run(
            command, cwd=launch.directory, stdout=out, stderr=subprocess.PIPE, timeout=PATIENCE_SECONDS, check=False
        )
    assert (done.returncode, done.stderr) == (
        2,
        b"error: standard output: cannot be written: No space left on device\n",
    )
    assert (launch.directory / "m").exists() == ("m" in arguments)


# ---------------------------------------------------------------------------------------------------------- bad data, 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"+1 1:1\n-1 2:x\n", ("data:2:", "'x'")),
        (b"", ("data",)),
        (b"1 1:1\n2 1:1\n3 1:2\n", ("labels 1 (1), 2 (1), 3 (1)", "exactly two")),
        (b"1 1:1\n1 1:2\n", ("labels 1 (2)", "only label 1 occurs")),
        (b"+1\n-1\n", ("no features",)),
    ],
    ids=["value", "empty", "three labels", "one label", "no features"],
)
def test_bad_data(text: bytes, words: tuple[str, ...], launch: Launcher) -> None:
    (launch.directory / "data").write_bytes(text)
    failed(launch.run("coordinator", "train", "data", "--local", 1, "--quiet"), 4, *words)


def test_no_features_to_deal(launch: Launcher) -> None:
    (launch.directory / "data").write_bytes(b"+1\n-1\n")
    lasso = ("--loss", "squared", "--l1-ratio", 1)
    failed(launch.run("coordinator", "train", "data", *lasso, "--quiet"), 4, "data", "no features at all")


def test_missing_data(launch: Launcher) -> None:
    failed(launch.run("coordinator", "train", "nowhere"), 4, "nowhere", "No such file")


@pytest.mark.parametrize(
    ("text", "words"),
    [(b"+1 1:1\n-1 2:1:1\n", ("data:2:4", "'1:1'")), (b"+1 1:1", ("data#0/2", "cut"))],
    ids=["fault", "cut"],
)
def test_a_worker_with_bad_data(text: bytes, words: tuple[str, ...], launch: Launcher) -> None:
    (launch.directory / "data").write_bytes(text)
    worker = launch.worker("data#0/2")
    finished = worker.finish()
    code = 4 if words[0].startswith("data:") else 2
    assert finished.exit_code == code, finished.stderr
    assert finished.stdout == f"{worker.address}\n"
    assert finished.error.startswith("error: ")
    assert words[-1] in finished.error


# ----------------------------------------------------------------------------------------------------- limits, 3


@pytest.mark.parametrize(
    ("limit", "status"), [(("--max-rounds", 3), "max_rounds"), (("--max-seconds", 0.3), "max_seconds")]
)
def test_limits(limit: tuple[str, float], status: str, launch: Launcher, addresses: str, sparse: Path) -> None:
    run = launch.run("coordinator", "train", "--workers", addresses, *LONG, *limit, "--model", "m")
    assert run.exit_code == 3, run.stderr
    assert run.error.startswith(f"{status}: ")
    assert run.seconds < PATIENCE_SECONDS
    result = sidecar(launch.directory / "m")
    assert result["status"] == status
    assert result["relative_gap"] > 1e-14
    if status == "max_rounds":
        assert result["rounds"] == 3
    primal = load(sparse).primal("hinge", 1e-9, weights(launch.directory / "m"), 1.0)
    assert primal == pytest.approx(result["primal"], rel=1e-9)


# ---------------------------------------------------------------------------------------------------------- workers, 5


def test_nobody_at_the_address(launch: Launcher, pair: list[Worker], dead: str) -> None:
    workers = f"{pair[0].address},{dead}"
    run = launch.run("coordinator", "train", "--workers", workers, "--connect-timeout", 1, "--quiet")
    failed(run, 5, f"worker {dead}", "was not reached", "--connect-timeout")


def test_a_worker_that_waits_for_data_nobody_deals(launch: Launcher) -> None:
    (launch.directory / "dealt").mkdir()
    address = launch.worker("dealt").address
    run = launch.run("coordinator", "train", "--workers", address, "--connect-timeout", 1, "--quiet")
    failed(run, 5, f"worker {address}: was reached, but had not loaded its shard", "--connect-timeout", "--deal")


def test_somebody_else_at_the_address(launch: Launcher, pair: list[Worker]) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        run = launch.run("coordinator", "train", "--workers", address, "--connect-timeout", 1, "--quiet")
        failed(run, 5, f"worker {address}", "was not reached")


def test_the_same_shard_twice(launch: Launcher, pair: list[Worker], sparse: Path) -> None:
    twin = launch.worker(f"{sparse}#0/2")
    twin.wait_serving()
    run = launch.run("coordinator", "train", "--workers", f"{pair[0].address},{twin.address}", "--quiet")
    failed(run, 5, pair[0].address, twin.address, "hold the same shard")


def test_different_dtypes(launch: Launcher, pair: list[Worker], sparse: Path) -> None:
    other = launch.worker(f"{sparse}#1/2", "--dtype", "float64")
    other.wait_serving()
    run = launch.run("coordinator", "train", "--workers", f"{pair[0].address},{other.address}", "--quiet")
    failed(run, 5, f"{pair[0].address}: float32", f"{other.address}: float64", "--dtype")


def begun(launch: Launcher, addresses: str, *arguments: object) -> Running:
    """A run with those workers that has made some rounds and goes on."""
    running = launch.start("coordinator", "train", "--workers", addresses, *LONG, *arguments, "--model", "m")
    running.stderr.search(r"^round [3-9] ")
    return running


def test_a_busy_worker(launch: Launcher, addresses: str, pair: list[Worker]) -> None:
    first = begun(launch, addresses)
    second = launch.run("coordinator", "train", "--workers", addresses, "--quiet")
    failed(second, 5, "worker ", "is held by job")
    assert any(worker.address in second.error for worker in pair)
    first.signal(signal.SIGINT)
    assert first.finish().exit_code == 130


@pytest.mark.as_users_do
def test_a_killed_worker(launch: Launcher, sparse: Path) -> None:
    workers = launch.workers(sparse, 2)
    run = begun(launch, ",".join(worker.address for worker in workers), *GRIM)
    workers[0].signal(signal.SIGKILL)
    finished = run.finish()
    failed(finished, 5, f"worker {workers[0].address}", "was lost", "the best model so far is in m")
    assert sidecar(launch.directory / "m")["status"] == "worker_lost"
    assert load(sparse).primal("hinge", 1e-9, weights(launch.directory / "m"), 1.0) < 1.0  # better than no model
    # the other one is free for another job
    assert launch.run("worker", "check", workers[1].address).exit_code == 0
    again = f"{workers[1].address},{launch.worker(f'{sparse}#0/2').address}"
    another = launch.run("coordinator", "train", "--workers", again, "--lam", 0.01, "--quiet")
    assert another.exit_code == 0, another.stderr


@pytest.mark.as_users_do
def test_a_worker_that_is_told_to_end(launch: Launcher, sparse: Path) -> None:
    workers = launch.workers(sparse, 2)
    run = begun(launch, ",".join(worker.address for worker in workers), *GRIM)
    workers[1].signal(signal.SIGTERM)
    failed(run.finish(), 5, f"worker {workers[1].address}", "the best model so far is in m")
    assert workers[1].finish().exit_code == 0


def test_a_worker_that_stands_still(launch: Launcher, sparse: Path) -> None:
    workers = launch.workers(sparse, 2)
    addresses = ",".join(worker.address for worker in workers)
    run = begun(launch, addresses, *GRIM, "--silence", 1)
    workers[1].stop()
    finished = run.finish()
    failed(finished, 5, f"worker {workers[1].address}", "no sign of life for 1 s", "the best model so far is in m")
    workers[1].signal(signal.SIGCONT)
    # it notices that the coordinator has gone, and serves the next
    another = launch.run("coordinator", "train", "--workers", addresses, "--lam", 0.01, "--quiet")
    assert another.exit_code == 0, another.stderr


def test_an_embedded_worker_that_does_not_start(launch: Launcher, sparse: Path) -> None:
    run = launch.run("coordinator", "train", sparse, "--local", 2, "--connect-timeout", 0.01)
    failed(run, 5, "worker 0", "did not start")


# ------------------------------------------------------------------------------------------ workers that tell no truth


def through(launch: Launcher, pair: list[Worker], middle: str) -> Finished:
    addresses = f"{pair[0].address},{middle}"
    return launch.run(
        *("coordinator", "train", "--workers", addresses, "--lam", 0.01, "--tol", 1e-12, "--max-rounds", 50, "--quiet"),
        *GRIM,
    )


def test_nothing_is_noticed_of_an_honest_man_in_the_middle(launch: Launcher, pair: list[Worker]) -> None:
    with man_in_the_middle(pair[1].address) as middle:
        run = through(launch, pair, middle)
    assert (run.exit_code, run.stderr) == (3, "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"protocol_version": PROTOCOL_VERSION + 1, "software_version": "99.0"},
            (f"protocol version {PROTOCOL_VERSION + 1}", "99.0", "install the same version"),
        ),
        ({"blocks": 0}, ("without examples, labels or blocks",)),
        ({"d": 1}, ("do not fit",)),
        ({"dtype": 77}, ("unknown dtype 77",)),
        ({"content_hash": "0" * 64}, ("the job means shard",)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_worker_that_describes_something_else(
    changes: dict[str, object], words: tuple[str, ...], launch: Launcher, pair: list[Worker]
) -> None:
    def describe(reply: pb.DescribeReply) -> None:
        for name, value in changes.items():
            setattr(reply, name, value)

    with man_in_the_middle(pair[1].address, describe=describe) as middle:
        failed(through(launch, pair, middle), 5, middle, *words)


def has(reply: pb.SolveReply, what: Literal["certificate", "update"]) -> bool:
    return any(answer.HasField(what) for answer in reply.answers.answers)


def change_update(reply: pb.SolveReply, field: str, value: object) -> list[pb.SolveReply]:
    answers = reply.answers
    if has(reply, "update") and answers.answers[0].round == 5:
        setattr(answers.a_dz if field in {"xxh3", "length", "dtype"} else answers.answers[0], field, value)
    return [reply]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("xxh3", 1, ("damaged", "checksum")),
        ("length", 1 << 60, ("damaged", f"{1 << 60} x float64 was announced")),
        ("dtype", 1, ("damaged", "float32 was announced")),
        ("round", 4, ("answered round 4 where round 5 was asked for",)),
    ],
)
def test_a_worker_whose_answers_are_damaged(
    field: str, value: int, words: tuple[str, ...], launch: Launcher, pair: list[Worker]
) -> None:
    with man_in_the_middle(pair[1].address, tamper=lambda reply: change_update(reply, field, value)) as middle:
        failed(through(launch, pair, middle), 5, middle, *words)


def test_a_worker_that_says_everything_twice(launch: Launcher, pair: list[Worker]) -> None:
    with man_in_the_middle(pair[1].address, tamper=lambda reply: [reply, reply]) as middle:
        failed(through(launch, pair, middle), 5, middle, "where", "was due")


def test_a_worker_that_says_more_than_it_was_asked(launch: Launcher, pair: list[Worker]) -> None:
    def stand(reply: pb.SolveReply) -> list[pb.SolveReply]:
        if has(reply, "update") and reply.answers.answers[0].round == 3:
            reply.answers.answers[0].update.standing.loss_sum = 1.0
        return [reply]

    with man_in_the_middle(pair[1].address, tamper=stand) as middle:
        failed(through(launch, pair, middle), 5, middle, "answered something else in round 3 than it was asked")


def test_a_worker_whose_sums_cannot_be_true(launch: Launcher, pair: list[Worker]) -> None:
    def less_loss(reply: pb.SolveReply) -> list[pb.SolveReply]:
        if has(reply, "certificate"):
            reply.answers.answers[0].certificate.loss_sum *= 0.5
        return [reply]

    with man_in_the_middle(pair[1].address, tamper=less_loss) as middle:
        failed(through(launch, pair, middle), 6, "duality gap", "cannot be below zero")


@pytest.mark.parametrize("where", ["certificate", "update"])
def test_a_worker_whose_numbers_are_not_finite(
    where: Literal["certificate", "update"], launch: Launcher, pair: list[Worker]
) -> None:
    def nan(reply: pb.SolveReply) -> list[pb.SolveReply]:
        if has(reply, where) and where == "certificate":
            reply.answers.answers[0].certificate.loss_sum = float("nan")
        elif has(reply, where):
            values = np.frombuffer(reply.answers.a_dz.head).copy()
            values[0] = np.nan
            reply.answers.a_dz.head = values.tobytes()
            reply.answers.a_dz.xxh3 = xxhash.xxh3_64_intdigest(values.tobytes())
        return [reply]

    with man_in_the_middle(pair[1].address, tamper=nan) as middle:
        failed(through(launch, pair, middle), 6, "finite")


def test_a_lost_update_is_noticed(launch: Launcher, pair: list[Worker]) -> None:
    """An update that the worker believes to have arrived, and the coordinator to be zero."""

    def lose(reply: pb.SolveReply) -> list[pb.SolveReply]:
        if has(reply, "update") and reply.answers.answers[0].round == 3:
            nothing = bytes(len(reply.answers.a_dz.head))
            reply.answers.a_dz.head = nothing
            reply.answers.a_dz.xxh3 = xxhash.xxh3_64_intdigest(nothing)
        return [reply]

    with man_in_the_middle(pair[1].address, tamper=lose) as middle:
        failed(through(launch, pair, middle), 6, "an update was lost or added twice")


def test_the_pair_has_survived_all_this(launch: Launcher, addresses: str) -> None:
    run = launch.run("coordinator", "train", "--workers", addresses, "--lam", 0.01, "--quiet")
    assert (run.exit_code, run.stderr) == (0, "")


def test_wait_for_slow_loading(launch: Launcher, sparse: Path) -> None:
    """A coordinator that is there first waits for its workers."""
    pipe = launch.directory / "pipe"
    os.mkfifo(pipe)
    worker = launch.worker(pipe)
    run = launch.start("coordinator", "train", "--workers", worker.address, "--lam", 0.01)
    run.stderr.search("connecting")
    wait_until(lambda: worker.stdout.text != "", "bound")
    pipe.write_bytes(sparse.read_bytes())
    assert run.finish().exit_code == 0
