"""A run that is asked to end, at every moment at which it may be."""

import signal

import pytest

from coordinator.interrupt import Interruption, interruptible


class Destroyed:
    """Is asked to end the run just when it is destroyed, where Python cannot raise anything."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_asked_with_nothing_to_finish() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGTERM)


def test_asked_with_something_to_finish() -> None:
    told: list[str] = []
    with interruptible() as interruption:
        announce = interruption.announcer(told.append)
        interruption.save_first()
        announce()
        assert not told
        interruption.ask()
        interruption.ask()
        announce()
        announce()
        assert interruption.requested.is_set()
    assert told == ["finishing the round under way; Ctrl-C once more ends at once"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it is what is tested
def test_asked_in_a_destructor() -> None:
    with interruptible() as interruption:
        announce = interruption.announcer(print)
        Destroyed()
        assert interruption.requested.is_set()
        with pytest.raises(KeyboardInterrupt):
            announce()
        with pytest.raises(KeyboardInterrupt):
            interruption.save_first()


@pytest.mark.parametrize("times", [1, 2])
def test_asked_while_held(times: int) -> None:
    asked = 0

    def ask(interruption: Interruption) -> None:
        nonlocal asked
        with interruption.held():
            for _ in range(3):
                asked += 1
                if asked <= times:
                    signal.raise_signal(signal.SIGINT)

    with interruptible() as interruption, pytest.raises(KeyboardInterrupt):
        ask(interruption)
    assert asked == (3 if times == 1 else 2)  # the second one ends at once
