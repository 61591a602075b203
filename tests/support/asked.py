"""Workers that note what they are asked and may forget what they have, and runs that are gone on with."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from acccocoa.losses import Vector
from coordinator.messages import RoundRequest, StateLost, WorkerUpdate
from coordinator.schedule import Work
from coordinator.training import Outcome, Training
from tests.support.inprocess import InProcessWorkers
from worker.state import DualState


class Asked(InProcessWorkers):
    """Workers that note what they are asked, and may forget what they have.

    asked : all of it;  forget_in : in the round of that number they lose their state, once
    """

    forget_in = -1

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[RoundRequest] = []

    def push(self, request: RoundRequest, works: Sequence[Work], w: Vector) -> None:
        """As InProcessWorkers."""
        super().push(request, works, w)
        self.asked.append(request)

    def updates(self) -> list[WorkerUpdate]:
        """As coordinator.messages says of Ask and Resync."""
        assert self._request is not None
        if self._request.round == self.forget_in:
            self.forget_in = -1
            for state in self.states:
                state.alpha[:] = state.z[:] = 0.0
            raise StateLost("worker 0")
        return super().updates()

    @property
    def solves(self) -> list[RoundRequest]:
        """The rounds that were solved."""
        return [request for request in self.asked if request.solve]


class Run(Protocol):
    """A run on such workers."""

    @property
    def workers(self) -> Asked:
        """Whom it asks."""

    @property
    def training(self) -> Training:
        """What it does."""

    def go(self) -> Outcome:
        """To its end."""


R = TypeVar("R", bound=Run)


def assert_goes_on_where_its_state_was_taken(
    begun: Callable[[Callable[[Training], bool]], R], round_number: int
) -> tuple[R, R]:
    """A run whose state is taken at the start of that round, and another that goes on from there: the same end.

    begun : makes one, with what is called at the start of every round
    """
    taken: list[tuple[Any, list[DualState]]] = []

    def keep(training: Training) -> bool:
        if training.loop.round == round_number:
            taken.append((training.state(), copy.deepcopy(whole.workers.states)))
        return False

    whole = begun(keep)
    expected = whole.go()
    ((facts, arrays), states), *_ = taken
    again = begun(lambda _: False)
    again.training.restore(facts, arrays)
    again.workers.states = states
    found = again.go()
    assert found.w.tobytes() == expected.w.tobytes()
    assert (found.certified, found.rounds) == (expected.certified, expected.rounds)
    return whole, again
