"""Clients that break the rules of the wire: refused with a reason, and the next job does not notice."""

import queue
import re
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest

from acccocoa import codec
from acccocoa.protocol import PROTOCOL_VERSION
from acccocoa.v1 import array_pb2
from acccocoa.v1 import worker_pb2 as pb
from tests.integration.data import sparse_text
from tests.integration.processes import Launcher, Worker, wait_until
from tests.integration.wire import Client, round_with

MUCH_MEMORY = 200 << 20


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that all the tests here abuse, one after the other. Its support takes more than one piece."""
    root = tmp_path_factory.mktemp("victim")
    launcher = Launcher.under(root)
    # 200,000 features: w has 1.6 MB
    every_feature = " ".join(f"{j}:1" for j in range(1, 200_001))
    (root / "run" / "data").write_bytes(sparse_text(300, 50) + f"+1 {every_feature}\n".encode())
    worker = launcher.worker("data")
    worker.wait_serving()
    yield worker
    launcher.close()


@pytest.fixture
def client(victim: Worker) -> Iterator[Client]:
    """A client of the victim; after each test the worker must still do a job from beginning to end."""
    before = psutil.Process(victim.pid).memory_info().rss
    client = Client(victim.address)
    yield client
    assert psutil.Process(victim.pid).memory_info().rss < before + MUCH_MEMORY
    client.close()
    afterwards = Client(victim.address)
    try:
        wait_until(lambda: afterwards.describe().job_id == "", "the worker is free")
        whole_job(afterwards)
    finally:
        afterwards.close()


def requests_of(
    client: Client, round_request: pb.SolveRequest, w: "np.typing.NDArray[np.float64]"
) -> list[pb.SolveRequest]:
    pieces = codec.encode(w, array_pb2.Array())
    chunks = (array_pb2.Chunk(data=piece) for piece in pieces)
    return [client.start(), round_request, *(pb.SolveRequest(chunk=chunk) for chunk in chunks)]


def support_of(client: Client) -> int:
    return client.describe().d


def whole_job(client: Client) -> None:
    """One round, certified and solved; the certificate at zero is known."""
    length = support_of(client)
    w = np.zeros(length)
    kinds: list[str] = []
    received = 0
    for reply in client.solve(requests_of(client, round_with(w), w)):
        kind = reply.WhichOneof("kind") or ""
        if kind == "answers":
            (answer,) = reply.answers.answers
            assert (answer.certificate.loss_sum, answer.certificate.conjugate_sum) == (301.0, 0.0)
            assert answer.update.steps > 0
            received = len(reply.answers.a_dz.head)
        if kind == "chunk" and received:
            received += len(reply.chunk.data)
        if kind != "heartbeat" and kind not in kinds[-1:]:
            kinds.append(kind)
    assert kinds == ["started", "answers", "chunk"]
    assert received == 8 * length


def test_an_honest_client(client: Client) -> None:
    assert client.describe().protocol_version == PROTOCOL_VERSION
    whole_job(client)


# ------------------------------------------------------------------------------------------------------------ beginning


@pytest.mark.parametrize(
    "first",
    [
        pb.SolveRequest(),
        pb.SolveRequest(rounds=pb.Rounds()),
        pb.SolveRequest(chunk=array_pb2.Chunk(data=b"x")),
        pb.SolveRequest(resync=pb.Resync()),
    ],
    ids=lambda request: request.WhichOneof("kind") or "nothing",
)
def test_anything_without_start(first: pb.SolveRequest, client: Client) -> None:
    assert client.refusal([first]) == (grpc.StatusCode.INVALID_ARGUMENT, "the stream must begin with Start")


def test_silence_at_once(client: Client) -> None:
    assert client.refusal([]) == (grpc.StatusCode.INVALID_ARGUMENT, "the stream must begin with Start")


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"protocol_version": 99}, grpc.StatusCode.FAILED_PRECONDITION, "protocol version 99"),
        ({"content_hash": "0" * 64}, grpc.StatusCode.FAILED_PRECONDITION, "the job means shard"),
        ({"epsilon": -1.0}, grpc.StatusCode.INVALID_ARGUMENT, "no problem has the numbers (-1.0,"),
        ({"curvature": float("nan")}, grpc.StatusCode.INVALID_ARGUMENT, "no problem has the numbers"),
        ({"lipschitz": 0.0}, grpc.StatusCode.INVALID_ARGUMENT, "no problem has the numbers"),
        ({"scale": float("inf")}, grpc.StatusCode.INVALID_ARGUMENT, "no problem has the numbers"),
        ({"blocks": 0}, grpc.StatusCode.INVALID_ARGUMENT, "cannot be cut into 0 blocks"),
        ({"blocks": 10**9}, grpc.StatusCode.INVALID_ARGUMENT, "cannot be cut into 1000000000 blocks"),
        ({"centred": True}, grpc.StatusCode.INVALID_ARGUMENT, "only the rows of shards cut by features can be centred"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_start_that_does_not_fit(
    changes: dict[str, object], code: grpc.StatusCode, words: str, client: Client
) -> None:
    found, details = client.refusal([client.start(**changes)])
    assert found == code
    assert words in details


@pytest.mark.parametrize(
    "changes",
    [{"bound": 0.0}, {"epsilon": float("inf")}, {"curvature": 1e308}, {"lipschitz": 1e-300}, {"positive_label": 7.0}],
    ids=lambda value: next(iter(value)),
)
def test_a_problem_that_makes_no_sense_is_solved_all_the_same(changes: dict[str, object], client: Client) -> None:
    w = np.ones(support_of(client))
    _, *rest = requests_of(client, round_with(w), w)
    assert client.refusal([client.start(**changes), *rest]) == (grpc.StatusCode.OK, "")


def test_start_twice(client: Client) -> None:
    code, details = client.refusal([client.start(), client.start()])
    assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, "Rounds were expected, not start")


# --------------------------------------------------------------------------------------------------------------- rounds


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"round": 1}, "round 1 was asked for, this worker stands at round 0"),
        ({"round": 2**64 - 1}, f"round {2**64 - 1} was asked for"),
        ({"visits": []}, "visits [] with fraction 0.5 do not fit the 1 blocks"),
        ({"visits": [1, 1]}, "visits [1, 1]"),
        ({"visits": [0]}, "visits [0]"),
        ({"visits": [2**63]}, f"visits [{2**63}]"),
        ({"fraction": 0.0}, "fraction 0.0"),
        ({"fraction": 1.5}, "fraction 1.5"),
        ({"fraction": float("nan")}, "fraction nan"),
        ({"theta": 0.0}, "theta 0.0"),
        ({"theta": float("nan")}, "theta nan"),
        ({"gamma": -1.0}, "gamma -1.0"),
        ({"sigma": float("inf")}, "sigma inf"),
    ],
)
def test_a_round_out_of_its_bounds(changes: dict[str, object], words: str, client: Client) -> None:
    w = np.ones(support_of(client))
    code, details = client.refusal(requests_of(client, round_with(w, **changes), w))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert words in details


def test_the_first_round_without_w(client: Client) -> None:
    request = round_with(np.ones(1))
    request.rounds.ClearField("w")
    request.rounds.rounds[0].brings_w = False
    code, details = client.refusal([client.start(), request])
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "without w" in details


def test_values_that_are_not_finite_come_back_as_such(client: Client) -> None:
    """It is the coordinator that must notice; the worker only must not be impressed."""
    w = np.full(support_of(client), np.nan)
    assert client.refusal(requests_of(client, round_with(w), w)) == (grpc.StatusCode.OK, "")


# --------------------------------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"length": 2**60}, f"an array of {2**60} x float64 was announced"),
        ({"length": 0}, "an array of 0 x float64 was announced"),
        ({"dtype": array_pb2.Array.DTYPE_FLOAT32}, "x float32 was announced"),
        ({"dtype": 99}, "x unknown dtype 99 was announced"),
        ({"head": b""}, "an empty piece arrived"),
        ({"head": bytes(3 << 20)}, f"{3 << 20} bytes arrived where 1600000 were missing"),
        ({"xxh3": 42}, "of the array differs from 000000000000002a"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_array_that_is_not_what_it_says(changes: dict[str, object], words: str, client: Client) -> None:
    length = support_of(client)
    assert length == 200_000
    w = np.ones(length)
    request = round_with(w)
    for name, value in changes.items():
        setattr(request.rounds.w, name, value)
    code, details = client.refusal(requests_of(client, request, w))
    assert code == grpc.StatusCode.DATA_LOSS
    assert words in details


def test_more_pieces_than_belong_to_the_array(client: Client) -> None:
    w = np.ones(support_of(client))
    code, details = client.refusal([*requests_of(client, round_with(w), w), pb.SolveRequest(chunk=array_pb2.Chunk())])
    assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, "Rounds were expected, not chunk")


def test_a_piece_too_long(client: Client) -> None:
    w = np.ones(support_of(client))
    start, first, last = requests_of(client, round_with(w), w)
    last.chunk.data += b"!"
    code, details = client.refusal([start, first, last])
    assert code == grpc.StatusCode.DATA_LOSS
    assert re.search(r"\d+ bytes arrived where \d+ were missing", details)


def test_an_array_interrupted_by_another_message(client: Client) -> None:
    w = np.ones(support_of(client))
    start, first, _ = requests_of(client, round_with(w), w)
    code, details = client.refusal([start, first, first])
    assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, "an array was interrupted by another message")


def test_a_flood_of_pieces(client: Client) -> None:
    flood = (pb.SolveRequest(chunk=array_pb2.Chunk(data=bytes(1 << 20))) for _ in range(10_000))

    def requests() -> Iterator[pb.SolveRequest]:
        yield client.start()
        yield from flood

    code, details = client.refusal(requests())
    assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, "Rounds were expected, not chunk")
    assert next(flood, None) is not None  # it was turned away, not swallowed


def test_a_message_beyond_grpcs_cap(client: Client) -> None:
    code, _ = client.refusal([client.start(), pb.SolveRequest(chunk=array_pb2.Chunk(data=bytes(5 << 20)))])
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_the_client_closes_its_side_within_an_array(client: Client) -> None:
    w = np.ones(support_of(client))
    start, first, _ = requests_of(client, round_with(w), w)
    assert client.refusal([start, first]) == (grpc.StatusCode.OK, "")


# -------------------------------------------------------------------------------------------------------------- leaving


@pytest.mark.parametrize("after", ["started", "answers"])
def test_a_client_that_vanishes(after: str, client: Client, victim: Worker) -> None:
    w = np.ones(support_of(client))
    big = round_with(w, visits=[60_000], fraction=1.0, brings_w=False)

    def endless() -> Iterator[pb.SolveRequest]:
        yield from requests_of(client, round_with(w), w)
        yield big
        yield from iter(stream_goes_on, None)

    other = Client(victim.address)
    call = other.solve(endless())
    for reply in call:
        if reply.WhichOneof("kind") == after:
            break
    assert client.describe().job_id
    other.close()  # the fixture sees to it that the worker is free soon


def stream_goes_on() -> None:
    """Ends the stream of requests (iter's sentinel), but for the reader's side that stays open."""


def test_a_second_job_meanwhile(client: Client, victim: Worker) -> None:
    requests: queue.SimpleQueue[pb.SolveRequest | None] = queue.SimpleQueue()
    requests.put(client.start(job_id="first"))
    call = client.solve(iter(requests.get, None))
    assert next(iter(call)).WhichOneof("kind") == "started"
    second = Client(victim.address)
    try:
        assert second.describe().job_id == "first"
        code, details = second.refusal([client.start(job_id="second")])
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "held by job first" in details
    finally:
        second.close()
    requests.put(None)
    assert list(call) == []


def test_nothing_of_this_is_a_fault_in_the_log(client: Client, victim: Worker) -> None:
    whole_job(client)
    assert "Traceback" not in victim.stderr.text
    assert "ERROR" not in victim.stderr.text


def test_a_real_job_afterwards(victim: Worker, launch: Launcher) -> None:
    run = launch.run("coordinator", "train", "--workers", victim.address, "--lam", 0.1, "--quiet", "--max-rounds", 3)
    assert run.exit_code in {0, 3}, run.stderr
    assert not Path(launch.directory / "m").exists()
