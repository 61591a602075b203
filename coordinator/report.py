"""What the user sees of a run: the live line, the trace, the JSON object."""

import json
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Protocol, Self, TextIO

from rich.console import Console
from rich.markup import escape
from rich.status import Status as LiveLine

from acccocoa.cli import tell
from acccocoa.config import OutputConfig
from acccocoa.errors import UsageError
from coordinator.training import CertifiedRound

PLAIN_SECONDS = 2.0
"""Without a terminal, a line this often at most (the first certified rounds excepted)."""

PLAIN_FIRST = 5

FORECAST_REACH = 20.0
"""A forecast goes so many times as far as the run has come, and no further."""


def trace_object(seen: CertifiedRound) -> dict[str, object]:
    """One line of the trace: primal, dual, gaps of the pair (y_t, w_t); what is called best: of the best pair."""
    return {
        "round": seen.round,
        "seconds": seen.seconds,
        "data_passes": seen.data_passes,
        "theta": seen.theta,
        "primal": seen.certified.primal,
        "dual": seen.certified.dual,
        "gap": seen.certified.gap,
        "relative_gap": seen.certified.relative_gap,
        "best_gap": seen.best_gap,
        "best_relative_gap": seen.best_relative_gap,
        "restart": seen.restart,
        "bytes_pushed": seen.bytes_pushed,
        "bytes_returned": seen.bytes_returned,
        "workers": [
            {
                "compute_seconds": worker.compute_seconds,
                "wait_seconds": worker.wait_seconds,
                "steps": worker.steps,
            }
            for worker in seen.workers
        ],
    }


class Trace:
    """Writes a JSON object a line, as the rounds are certified."""

    def __init__(self, path: str, keep_bytes: int = 0) -> None:
        """keep_bytes : how much of an earlier trace to keep once the first line comes; the run goes on from there."""
        self._path = path
        self._begun = False
        self.about: dict[str, object] = {}
        """What every line says beside the round: which of several problems it is of."""
        try:
            # a trace grows while the run goes on, so that it can be followed and survives a killed run
            self._stream: TextIO = open(path, "a", encoding="ascii", buffering=1)  # noqa: PTH123, SIM115  # closed by close()
            # /dev/null and pipes have no length
            self._regular = stat.S_ISREG(os.fstat(self._stream.fileno()).st_mode)
            self._length = min(keep_bytes, self._stream.tell()) if self._regular else 0
        except OSError as error:
            raise UsageError(f"--trace {path}", f"cannot be written: {error.strerror or error}") from error

    def __call__(self, seen: CertifiedRound) -> None:
        """Write the line of that round."""
        line = json.dumps({**self.about, **trace_object(seen)}) + "\n"
        try:
            if self._regular and not self._begun:
                self._stream.truncate(self._length)
                self._begun = True
            self._stream.write(line)
        except OSError as error:
            raise UsageError(f"--trace {self._path}", f"cannot be written: {error.strerror or error}") from error
        self._length += len(line)

    @property
    def bytes(self) -> int:
        """Length of the file, as far as its lines are whole."""
        return self._length if self._regular else 0

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # a line that could not be written is tried once more; that error was already told
            self._stream.close()


class Several:
    """Tells of several runs that go on at the same time: the trace of all, others of the one that is furthest behind.

    Parameters
    ----------
    trace : is among `told`, or None
    about : what every line of the trace says, by run
    """

    def __init__(
        self,
        trace: Trace | None,
        told: Sequence[Callable[[CertifiedRound], None]],
        about: Sequence[Mapping[str, object]],
    ) -> None:
        self._trace = trace
        self._others = [observer for observer in told if observer is not trace]
        self._about = about
        self._newest: dict[int, CertifiedRound] = {}
        self._shown = math.nan

    def __call__(self, number: int, seen: CertifiedRound) -> None:
        """A certified round of the run of that number."""
        if self._trace is not None:
            self._trace.about = dict(self._about[number])
            self._trace(seen)
        self._newest[number] = seen
        behind = max(self._newest.values(), key=lambda newest: newest.standing.relative_gap)
        if len(self._about) == 1 or behind.standing.relative_gap != self._shown:
            self._shown = behind.standing.relative_gap
            for observer in self._others:
                observer(behind)


class Forecast:
    """Seconds until the target, from the trend of the relative gap's logarithm over the last certified rounds.

    Nothing is told beyond FORECAST_REACH times what the run has taken: a trend of a few rounds does not hold so long.
    """

    def __init__(self, target: float) -> None:
        self._target = target
        self._seen: list[tuple[float, float]] = []

    def remaining(self, seconds: float, relative_gap: float) -> float | None:
        """Forecast after one more certified round; None while there is no falling trend, or hardly one."""
        if relative_gap > 0:
            self._seen = [*self._seen[-3:], (seconds, math.log(relative_gap))]
        if not self._seen:
            return None
        (first_seconds, first), (last_seconds, last) = self._seen[0], self._seen[-1]
        if last >= first or last_seconds <= first_seconds:
            return None
        remaining = max(0.0, (last - math.log(self._target)) * (last_seconds - first_seconds) / (first - last))
        return remaining if remaining <= FORECAST_REACH * seconds else None


def describe(seen: CertifiedRound, remaining: float | None) -> str:
    """A certified round in one line: the values that the run would end with."""
    left = "" if remaining is None else f"  about {duration(remaining)} left"
    megabytes = (seen.bytes_pushed + seen.bytes_returned) / 1e6
    return (
        f"round {seen.round}  passes {seen.data_passes:.1f}  relative gap {max(0.0, seen.standing.relative_gap):.2e}  "
        f"primal {seen.standing.primal:.8g}  {megabytes:.1f} MB  {duration(seen.seconds)}{left}"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for a person to read: columns aligned to the right, numbers with five digits, no blanks at line ends."""
    cells = [list(header), *([f"{x:.5g}" if isinstance(x, float) else str(x) for x in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(map(str.rstrip, lines))


def conclude(settings: OutputConfig, summary: Mapping[str, object], for_a_person: str) -> None:
    """The end of a command that solves many problems: a table on standard output, or with --json there the object and
    the table beside it on standard error."""
    if settings.json:
        conclude_run(settings, summary, for_a_person)
    else:
        with suppress(OSError):  # nobody reads it any more
            tell(for_a_person)


def conclude_run(settings: OutputConfig, summary: Mapping[str, object], for_a_person: str) -> None:
    """The end of a command: with --json the object on standard output, and a text beside it on standard error."""
    if settings.json:
        tell(json.dumps(summary))
    if not settings.quiet:
        with suppress(OSError):  # nobody reads it any more
            print(for_a_person, file=sys.stderr, flush=True)


def counted(number: int, what: str) -> str:
    """'1 worker', '2 workers'."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds for a person to read."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


class Progress(Protocol):
    """Somewhere to show how the run goes; a context manager."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def stage(self, text: str) -> None:
        """What is being done, before rounds begin."""

    def warn(self, text: str) -> None:
        """What the user should know, and may overlook."""

    def __call__(self, seen: CertifiedRound) -> None:
        """A certified round."""


class _Closing:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class LiveProgress(_Closing):
    """One line on a terminal, rewritten in place; stays when the run ends."""

    def __init__(self, console: Console, target: float) -> None:
        self._console = console
        self._line: LiveLine = console.status("")
        self._forecast = Forecast(target)
        self._last = ""

    def __enter__(self) -> Self:
        self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.stop()
        if self._last:
            self._console.print(self._last, markup=False, highlight=False)

    def stage(self, text: str) -> None:
        """Show the stage."""
        self._line.update(escape(text))

    def warn(self, text: str) -> None:
        """Print it above the line."""
        self._console.print(f"warning: {text}", markup=False, highlight=False)

    def __call__(self, seen: CertifiedRound) -> None:
        """Show the round."""
        self._last = describe(seen, None)
        self._line.update(describe(seen, self._forecast.remaining(seen.seconds, seen.standing.relative_gap)))


class PlainProgress(_Closing):
    """Lines, at a sensible rate; the last round is always among them. When nobody can read them any more, none."""

    def __init__(self, stream: IO[str], target: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._forecast = Forecast(target)
        self._clock = clock
        self._printed = 0
        self._printed_at = -math.inf
        self._held: str | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._print(self._held)

    def stage(self, text: str) -> None:
        """Print the stage."""
        self._print(text)

    def warn(self, text: str) -> None:
        """Print it."""
        self._print(f"warning: {text}")

    def __call__(self, seen: CertifiedRound) -> None:
        """Print the round, unless one was printed a moment ago."""
        line = describe(seen, self._forecast.remaining(seen.seconds, seen.standing.relative_gap))
        now = self._clock()
        if self._printed < PLAIN_FIRST or now - self._printed_at >= PLAIN_SECONDS:
            self._printed += 1
            self._printed_at = now
            self._held = None
            self._print(line)
        else:
            self._held = line

    def _print(self, text: str) -> None:
        with suppress(OSError):  # such as the end of `2>&1 | head`: no reason to end a run
            print(text, file=self._stream, flush=True)


class NoProgress(_Closing):
    """Shows nothing."""

    def stage(self, text: str) -> None:
        """Show nothing."""

    def warn(self, text: str) -> None:
        """Show nothing."""

    def __call__(self, seen: CertifiedRound) -> None:
        """Show nothing."""


def progress(quiet: bool, target: float) -> Progress:
    """The progress that fits standard error."""
    if quiet:
        return NoProgress()
    if sys.stderr.isatty():
        return LiveProgress(Console(stderr=True), target)
    return PlainProgress(sys.stderr, target)
