"""Ctrl-C, SIGTERM and whoever else asks a run to end: finish the round first."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Whether the run was asked to end.

    requested : set when it was
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._saving = threading.Event()
        self._held = False

    def save_first(self) -> None:
        """From now on there is something to finish and to save; until then, to be asked raises KeyboardInterrupt."""
        self.look()
        self._saving.set()

    def look(self) -> None:
        """Raises KeyboardInterrupt if the run was asked to end and there is nothing to finish.

        The handler does so itself, but what it raises in a destructor is lost.
        """
        if self.requested.is_set() and not self._saving.is_set():
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """To be asked raises nothing before the end: a compiler that is left midway frees its memory twice."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self.look()

    def ask(self) -> None:
        """As Ctrl-C does, from any thread; asked again, nothing more happens."""
        if not self.requested.is_set():
            signal.raise_signal(signal.SIGINT)

    def announcer(self, tell: Callable[[str], None]) -> Callable[[], None]:
        """Tells once, when it is called and the run was asked to end, that the round is finished first.

        With nothing to finish it raises KeyboardInterrupt.
        """
        told = False

        def announce() -> None:
            nonlocal told
            self.look()
            if self.requested.is_set() and not told:
                told = True
                tell("finishing the round under way; Ctrl-C once more ends at once")

        return announce

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """A handler for signals, in the main thread."""
        self.requested.set()
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if not self._held:
            self.look()


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Ctrl-C and SIGTERM, once, ask the run to end; a second one ends the process at once."""
    interruption = Interruption()
    previous = {number: signal.signal(number, interruption.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
