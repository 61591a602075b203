"""What a worker allows its callers: so many streams, so much time to begin, and no second coordinator."""

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from acccocoa.v1 import worker_pb2 as pb
from tests.cluster.arena import Arena
from tests.integration.wire import Client, round_with

STREAMS = 8


@pytest.fixture
def some(arena: Callable[..., Arena], covtype_like: Path) -> Arena:
    one = arena(covtype_like, 1)
    one.workers[0].wait_told(" serving ")
    return one


@pytest.fixture
def clients(some: Arena) -> Iterator[list[Client]]:
    made = [Client(some.addresses[0]) for _ in range(4)]
    yield made
    for client in made:
        client.close()


class Conversation:
    """A Solve stream that a test keeps open."""

    def __init__(self, client: Client) -> None:
        self._outbox: queue.SimpleQueue[pb.SolveRequest | None] = queue.SimpleQueue()
        self.call = client.solve(iter(self._outbox.get, None))

    def say(self, message: pb.SolveRequest) -> None:
        self._outbox.put(message)

    def until(self, kind: str) -> pb.SolveReply:
        for reply in self.call:
            if reply.WhichOneof("kind") == kind:
                return reply
        raise AssertionError(f"ended without {kind}")

    def status(self) -> grpc.StatusCode:
        """How it ends, when the worker ends it."""
        with pytest.raises(grpc.RpcError) as caught:
            for _ in self.call:
                pass
        self._outbox.put(None)
        code: grpc.StatusCode = caught.value.code()
        return code

    def end(self) -> None:
        self._outbox.put(None)
        self.call.cancel()  # type: ignore[no-untyped-call]  # the stubs leave it untyped


def test_streams_are_bounded_and_silent_ones_end(some: Arena, clients: list[Client]) -> None:
    began = time.monotonic()
    silent = [Conversation(client) for client, _ in zip(itertools.cycle(clients), range(STREAMS), strict=False)]
    refused = None
    while refused is None:  # until the streams have arrived
        code, words = clients[0].refusal([clients[0].start()])
        refused = words if code == grpc.StatusCode.RESOURCE_EXHAUSTED else None
        assert time.monotonic() < began + 9.0, "a ninth stream is served"
    assert refused == f"{STREAMS} streams are open already"
    # whoever asks what is there, is answered all the same
    assert clients[1].describe().n == 2000
    assert clients[1].status() == "SERVING"
    assert [conversation.status() for conversation in silent] == [grpc.StatusCode.CANCELLED] * STREAMS
    assert time.monotonic() > began + 9.0
    result = some.result(some.train("--lam", "1e-2", "--tol", "1e-2"))
    assert result["status"] == "converged"


def test_a_flood_of_questions_does_not_disturb_a_job(some: Arena, clients: list[Client]) -> None:
    coordinator = some.train(
        "--lam", "1e-4", "--tol", "1e-4", "--certify-every-round", "--silence", "5", "--local-solver", "sdca"
    )
    some.wait_round(3, coordinator)
    asked = threading.Semaphore(0)

    def ask(client: Client) -> None:
        while coordinator.running:
            assert client.describe().n == 2000
            asked.release()

    threads = [threading.Thread(target=ask, args=(client,)) for client in clients for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120.0)
    result = some.result(coordinator)
    assert result["reconnects"] == 0
    assert asked.acquire(blocking=False)


def test_a_job_in_a_new_stream_leaves_the_old_one_nothing_to_add(clients: list[Client]) -> None:
    """What a coordinator does that has lost its worker, before the worker has noticed."""
    start = clients[0].start()
    w = np.zeros(54)
    buckets = None
    conversations = [Conversation(client) for client in clients[:3]]
    answers = []
    for number, conversation in enumerate(conversations):
        conversation.say(start)
        buckets = conversation.until("started").started.buckets[0]
        if number:
            assert conversations[number - 1].status() == grpc.StatusCode.CANCELLED
        # the same round in every stream: computed from the same state
        conversation.say(round_with(w, visits=[int(buckets)], fraction=1.0, next_lineage="way"))
        answers.append(conversation.until("answers").answers)
    assert len({answer.a_dz.xxh3 for answer in answers}) == 1
    conversations[-1].say(round_with(w, round=1, lineage="way", visits=[int(buckets or 0)], fraction=1.0))
    conversations[-1].until("answers")
    # the round before is over: it cannot be asked for again
    conversations[-1].say(round_with(w, round=0, visits=[int(buckets or 0)], fraction=1.0))
    assert conversations[-1].status() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_state_is_that_of_a_round_only_with_its_lineage(clients: list[Client]) -> None:
    start = clients[0].start()
    first = Conversation(clients[0])
    first.say(start)
    buckets = int(first.until("started").started.buckets[0])
    first.say(round_with(np.zeros(54), visits=[buckets], fraction=1.0, next_lineage="way"))
    first.until("answers")
    first.end()
    for lineage, ready in (("another", False), ("way", True)):
        start.start.problems[0].round, start.start.problems[0].lineage = 1, lineage
        again = Conversation(clients[1])
        again.say(start)
        (started,) = again.until("started").started.positions
        assert started.ready is ready
        assert (started.round, started.lineage) == (1, "way")
        again.end()
