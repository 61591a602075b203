"""Ctrl-C and SIGTERM: finish the round first."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible(interrupted: threading.Event) -> Iterator[Callable[[], None]]:
    """Ctrl-C and SIGTERM, once, set the event; a second one ends the process at once.

    Until what the context yields has been called there is nothing to finish or to save: they raise KeyboardInterrupt.
    """
    saving = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if not saving.is_set():
            raise KeyboardInterrupt

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield saving.set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
