"""What the user sees: the trace's lines, the plain lines, the live line, the forecast."""

import dataclasses
import io
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from acccocoa.errors import UsageError
from acccocoa.problem import Certified
from coordinator import report
from coordinator.report import (
    Forecast,
    LiveProgress,
    NoProgress,
    PlainProgress,
    Trace,
    describe,
    duration,
    trace_object,
)
from coordinator.training import CertifiedRound, WorkerFigures

ROUND = CertifiedRound(
    round=12,
    seconds=3.25,
    data_passes=12.0,
    theta=0.25,
    certified=Certified(primal=0.5, dual=0.4375),
    standing=Certified(primal=0.5, dual=0.45),
    best_gap=0.045,
    best_relative_gap=0.09,
    restart=True,
    bytes_pushed=1_500_000,
    bytes_returned=500_000,
    workers=(WorkerFigures(1.0, 0.5, 100), WorkerFigures(1.25, 0.25, 120)),
)

LINE = "round 12  passes 12.0  relative gap 1.00e-01  primal 0.5  2.0 MB  3.2 s"

TARGET = 1e-3


class Clock:
    """Shows what it is set to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def at(number: int, relative_gap: float = 0.1) -> CertifiedRound:
    standing = Certified(0.5, 0.5 - 0.5 * relative_gap)
    return dataclasses.replace(ROUND, round=number, seconds=float(number), standing=standing)


def test_of_several_runs_the_one_furthest_behind_is_shown_and_all_are_in_the_trace(tmp_path: Path) -> None:
    trace = Trace(str(tmp_path / "t"))
    shown: list[CertifiedRound] = []
    told = report.Several(trace, [trace, shown.append], [{"label": "a"}, {"label": "b"}])
    for run, number, gap in ((0, 0, 1.0), (1, 0, 1.0), (0, 1, 0.5), (1, 1, 0.25), (0, 2, 0.25), (1, 2, 0.125)):
        told(run, at(number, gap))
    trace.close()
    lines = [json.loads(line) for line in (tmp_path / "t").read_text().splitlines()]
    assert [(line["label"], line["round"]) for line in lines] == [(label, t) for t in range(3) for label in "ab"]
    assert [(seen.round, seen.standing.relative_gap) for seen in shown] == [(0, 1.0), (1, 0.5), (2, 0.25)]


# --------------------------------------------------------------------------------------------------------------- trace


def test_trace_object_has_the_keys_of_the_contract() -> None:
    made = trace_object(ROUND)
    assert list(made) == [
        "round", "seconds", "data_passes", "theta", "primal", "dual", "gap", "relative_gap", "best_gap",
        "best_relative_gap", "restart", "bytes_pushed", "bytes_returned", "workers",
    ]  # fmt: skip
    assert made == {
        "round": 12, "seconds": 3.25, "data_passes": 12.0, "theta": 0.25, "primal": 0.5, "dual": 0.4375, "gap": 0.0625,
        "relative_gap": 0.125, "best_gap": 0.045, "best_relative_gap": 0.09, "restart": True,
        "bytes_pushed": 1_500_000, "bytes_returned": 500_000,
        "workers": [
            {"compute_seconds": 1.0, "wait_seconds": 0.5, "steps": 100},
            {"compute_seconds": 1.25, "wait_seconds": 0.25, "steps": 120},
        ],
    }  # fmt: skip


def test_trace_can_be_followed_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    trace = Trace(str(path))
    for count in range(1, 4):
        trace(at(count))
        lines = path.read_text().split("\n")
        assert lines.pop() == ""
        assert [json.loads(line)["round"] for line in lines] == list(range(1, count + 1))
    trace.close()
    assert len(path.read_text().splitlines()) == 3


def test_trace_replaces_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("old\n")
    trace = Trace(str(path))
    trace(ROUND)
    trace.close()
    assert json.loads(path.read_text()) == trace_object(ROUND)


def test_trace_that_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "trace"):
        with pytest.raises(UsageError, match="cannot be written") as caught:
            Trace(str(path))
        assert caught.value.offender == f"--trace {path}"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_trace_on_a_full_disk() -> None:
    trace = Trace("/dev/full")
    with pytest.raises(UsageError, match="--trace /dev/full: cannot be written: No space left"):
        trace(ROUND)
    trace.close()


def test_trace_of_a_resumed_run_keeps_what_was_certified_before(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    first = Trace(str(path))
    first(at(1))
    kept = first.bytes
    assert kept == len(path.read_bytes())
    first(at(2))
    first.close()
    second = Trace(str(path), kept)
    second(at(3))
    second.close()
    assert [json.loads(line)["round"] for line in path.read_text().splitlines()] == [1, 3]


def test_trace_of_a_resumed_run_that_was_lost(tmp_path: Path) -> None:
    trace = Trace(str(tmp_path / "trace"), 1000)
    trace(ROUND)
    trace.close()
    assert (tmp_path / "trace").read_text() == json.dumps(trace_object(ROUND)) + "\n"


def test_trace_into_nowhere() -> None:
    trace = Trace("/dev/null")
    trace(ROUND)
    assert trace.bytes == 0
    trace.close()


# ------------------------------------------------------------------------------------------------------------ one line


def test_line() -> None:
    assert describe(ROUND, None) == LINE
    assert describe(ROUND, 61.25) == LINE + "  about 61.2 s left"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (99.94, "99.9 s"),
        (100.0, "1 min 40 s"),
        (179.6, "3 min 00 s"),
        (3599.4, "59 min 59 s"),
        (3600.0, "1 h 00 min"),
        (86400.0 + 61, "24 h 01 min"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# ------------------------------------------------------------------------------------------------------------ forecast


def test_forecast_follows_the_logarithm_of_the_gap() -> None:
    forecast = Forecast(1e-4)
    assert forecast.remaining(0.0, 1.0) is None
    assert forecast.remaining(1.0, 1e-1) == pytest.approx(3.0)
    assert forecast.remaining(2.0, 1e-2) == pytest.approx(2.0)
    assert forecast.remaining(4.0, 1e-4) == pytest.approx(0.0)
    assert forecast.remaining(5.0, 1e-5) == 0.0


def test_forecast_looks_at_the_last_rounds_only() -> None:
    forecast = Forecast(1e-6)
    for second in range(10):
        forecast.remaining(float(second), 1.0)  # no progress at first
    for second, gap in ((10, 1e-1), (11, 1e-2), (12, 1e-3)):
        remaining = forecast.remaining(float(second), gap)
    assert remaining == pytest.approx(3.0)


def test_forecast_needs_a_falling_trend() -> None:
    forecast = Forecast(1e-3)
    assert forecast.remaining(0.0, 0.5) is None
    assert forecast.remaining(1.0, 0.5) is None
    assert forecast.remaining(2.0, 0.75) is None
    same_time = Forecast(1e-3)
    same_time.remaining(1.0, 0.5)
    assert same_time.remaining(1.0, 0.25) is None


def test_forecast_does_not_look_far_beyond_what_has_been() -> None:
    forecast = Forecast(1e-3)
    assert forecast.remaining(100.0, 0.9) is None
    assert forecast.remaining(101.0, 0.9 * (1 - 1e-9)) is None  # a trend, by which it would take 200 years
    assert forecast.remaining(102.0, 0.5) is not None


def test_forecast_of_an_exact_solution() -> None:
    assert Forecast(1e-3).remaining(0.0, 0.0) is None
    forecast = Forecast(1e-3)
    forecast.remaining(0.0, 1.0)
    forecast.remaining(1.0, 0.1)
    assert forecast.remaining(2.0, 0.0) is not None


# --------------------------------------------------------------------------------------------------------- plain lines


def plain() -> tuple[PlainProgress, io.StringIO, Clock]:
    stream, clock = io.StringIO(), Clock()
    return PlainProgress(stream, TARGET, clock), stream, clock


def printed(stream: io.StringIO) -> list[str]:
    assert "\r" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
    return [line.split("  ")[0] for line in stream.getvalue().splitlines()]


def test_plain_lines() -> None:
    progress, stream, _ = plain()
    with progress:
        progress.stage("reading [bold]data[/x]")
        progress(at(0))
        progress(at(1, 0.01))
    assert stream.getvalue() == (
        "reading [bold]data[/x]\n"
        "round 0  passes 12.0  relative gap 1.00e-01  primal 0.5  2.0 MB  0.0 s\n"
        "round 1  passes 12.0  relative gap 1.00e-02  primal 0.5  2.0 MB  1.0 s  about 1.0 s left\n"
    )


def test_plain_lines_come_at_a_sensible_rate_and_the_last_always() -> None:
    progress, stream, clock = plain()
    with progress:
        for number in range(100):
            clock.now += 0.25
            progress(at(number))
    # the first few, then one every 2 s, then the last
    assert printed(stream) == [f"round {number}" for number in [0, 1, 2, 3, 4, *range(12, 100, 8), 99]]


def test_slow_rounds_are_all_printed_once() -> None:
    progress, stream, clock = plain()
    with progress:
        for number in range(20):
            clock.now += report.PLAIN_SECONDS
            progress(at(number))
    assert printed(stream) == [f"round {number}" for number in range(20)]


def test_the_last_round_is_printed_when_the_run_fails() -> None:
    progress, stream, _ = plain()

    def fail() -> None:
        with progress:
            for number in range(10):
                progress(at(number))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert printed(stream)[-1] == "round 9"


def test_nobody_reads_any_more() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w", buffering=1)
    with PlainProgress(stream, TARGET, Clock()) as progress:
        progress.stage("reading data")
        for number in range(10):
            progress(at(number))
    with pytest.raises(BrokenPipeError):
        stream.close()


# ----------------------------------------------------------------------------------------------------------- live line


def live(use: Callable[[LiveProgress], None], *, width: int = 200) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, color_system=None, legacy_windows=False)
    with LiveProgress(console, TARGET) as progress:
        use(progress)
    return stream.getvalue()


def test_live_line_is_rewritten_and_the_last_round_stays() -> None:
    def use(progress: LiveProgress) -> None:
        progress.stage("reading data")
        progress(at(1))
        progress(ROUND)

    shown = live(use)
    assert "\r" in shown
    assert shown.rstrip("\r\n").endswith(LINE)


@pytest.mark.parametrize("name", ["data[old].txt", "[bold]", "a[/b].txt", "[::1]:50051", "[red]x[/red]", "\\[x]"])
def test_live_line_shows_names_as_they_are(name: str) -> None:
    assert f"reading {name}" in live(lambda progress: progress.stage(f"reading {name}"))


def test_live_line_without_a_round_leaves_nothing() -> None:
    assert "round" not in live(lambda progress: progress.stage("reading data"))


def test_narrow_terminal() -> None:
    assert "round 12" in live(lambda progress: progress(ROUND), width=20)


# ---------------------------------------------------------------------------------------------------------- which one


class Stream(io.StringIO):
    """A standard error that says what it is."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("quiet", "terminal", "kind"),
    [(False, False, PlainProgress), (False, True, LiveProgress), (True, False, NoProgress), (True, True, NoProgress)],
)
def test_the_progress_that_fits(quiet: bool, terminal: bool, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(terminal)
    monkeypatch.setattr("sys.stderr", stream)
    progress = report.progress(quiet, TARGET)
    assert type(progress) is kind
    with progress:
        if kind is NoProgress:
            progress.stage("reading")
            progress(ROUND)
            assert stream.getvalue() == ""


def test_no_number_is_lost_in_json() -> None:
    exact = dataclasses.replace(ROUND, best_gap=math.pi * 1e-9, theta=1 / 3)
    assert json.loads(json.dumps(trace_object(exact)))["best_gap"] == math.pi * 1e-9


def test_table_has_no_blanks_at_line_ends() -> None:
    lines = report.table(("lam", "loss", ""), [[1.0, 0.25, ""], [0.5, 0.125, "best"]]).split("\n")
    assert lines == ["lam   loss", "  1   0.25", "0.5  0.125  best"]
