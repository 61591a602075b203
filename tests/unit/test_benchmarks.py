"""What the benchmarks decide and compute from what they have measured, on numbers."""

import asyncio
import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose

from acccocoa import codec
from acccocoa.errors import UsageError
from acccocoa.security import is_loopback
from acccocoa.v1 import array_pb2
from benchmarks import echo, kernel, memory, network, passes, peers, scale, wire
from benchmarks.__main__ import BENCHMARKS
from benchmarks.emulated import Line, pump
from worker.shard import in_blocks


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_every_benchmark_is_there(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").main)


def test_what_was_chosen_for_peers_is_read_again(tmp_path: Path) -> None:
    """As --output writes it; ours is not chosen."""
    common = {"data": "rcv1", "loss": "hinge", "lam": 1e-4, "seconds": {}}
    lines = [
        {**common, "who": "acccocoa", "why": "", "settings": {"0.01": "3.0 passes, 3 rounds, load 1.9 s, total 2.1 s"}},
        {**common, "who": "liblinear-multicore", "why": "", "settings": {"0.01": "-s 3 1", "0.0001": "-s 3 0.1"}},
        {**common, "who": "scikit-learn", "why": "reached 6e-04", "settings": {"0.01": "SGD averaged 4"}},
    ]
    file = tmp_path / "peers.json"
    file.write_text(json.dumps(lines))
    assert peers.chosen_before([file]) == {
        ("rcv1", "hinge", 1e-4, "liblinear-multicore"): ({1e-2: ("-s 3", 1.0), 1e-4: ("-s 3", 0.1)}, ""),
        ("rcv1", "hinge", 1e-4, "scikit-learn"): ({1e-2: ("SGD averaged", 4.0)}, "reached 6e-04"),
    }


class TestLine:
    """A rate of 1000 bytes a second and a delay of 2 seconds."""

    def line(self, ahead: float = 1.0) -> Line:
        return Line(1000.0, 2.0, ahead)

    def test_a_piece_on_an_idle_line_takes_its_length_and_the_delay(self) -> None:
        line = self.line()
        assert line.carry(10.0, 500) == 12.5
        assert line.carry(50.0, 0) == 52.0

    def test_bulk_arrives_at_the_rate_and_a_delay_later(self) -> None:
        line = self.line()
        assert [line.carry(0.0, 100) for _ in range(50)] == pytest.approx([2.0 + 0.1 * (k + 1) for k in range(50)])

    def test_a_short_piece_waits_for_those_before_it_only(self) -> None:
        line = self.line()
        line.carry(0.0, 3000)
        assert line.carry(1.0, 1) == pytest.approx(5.001)
        assert line.carry(20.0, 1) == pytest.approx(22.001)

    def test_nothing_is_taken_while_too_much_waits(self) -> None:
        line = self.line(ahead=0.5)
        assert line.wait(0.0) == 0.0
        line.carry(0.0, 2000)
        assert line.wait(0.0) == 1.5
        assert line.wait(1.0) == 0.5
        assert line.wait(7.0) == 0.0


def carried(pieces: Sequence[bytes], line: Line) -> tuple[list[bytes], list[float]]:
    """What `pump` writes, and when, on a clock that stands still but for waiting."""
    coming = iter([*pieces, b""])
    now = 0.0
    written: list[bytes] = []
    times: list[float] = []

    async def read() -> bytes:
        return next(coming)

    async def write(piece: bytes) -> None:
        written.append(piece)
        times.append(now)

    async def until(moment: float) -> None:
        nonlocal now
        now = max(now, moment)
        await asyncio.sleep(0)

    asyncio.run(pump(read, write, line, lambda: now, until))
    return written, times


def test_a_pump_carries_everything_in_order_and_no_faster_than_the_line() -> None:
    pieces = [bytes([k]) * (k + 1) for k in range(100)]
    written, times = carried(pieces, Line(1000.0, 0.5, 0.01))
    assert written == pieces
    sizes = np.cumsum([len(piece) for piece in pieces])
    assert (np.array(times) >= sizes / 1000.0 + 0.5 - 1e-9).all()
    assert carried([b"only"], Line(1000.0, 0.5)) == ([b"only"], [0.504])


def test_the_end_of_a_write_ends_a_pump() -> None:
    async def broken(_piece: bytes) -> None:
        raise BrokenPipeError

    async def read() -> bytes:
        await asyncio.sleep(0)  # as where nothing is there yet
        return b"x"

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(pump(read, broken, Line(1e6, 0.0)))
    assert caught.group_contains(BrokenPipeError)


def test_through_the_network_workers_are_not_on_this_machine() -> None:
    """As coordinator.task decides it."""
    assert not is_loopback("0.0.0.0")


@pytest.mark.parametrize(("together", "after"), [(1, [1, 2, 3, 4]), (2, [2, 2, 4, 4]), (4, [4, 4, 4, 4])])
def test_an_echo_answers_when_it_has_so_many_pieces(together: int, after: list[int]) -> None:
    taken = 0

    def pieces() -> Iterator[bytes]:
        nonlocal taken
        for piece in (b"a", b"b", b"c", b"d"):
            taken += 1
            yield piece

    answers = [(piece, taken) for piece in echo.back(pieces(), together)]
    assert [piece for piece, _ in answers] == [b"a", b"b", b"c", b"d"]
    assert [when for _, when in answers] == after


def call(round_number: int, began: float, ended: float, computed: float = 0.0, solve: bool = True) -> wire.Call:
    return wire.Call(round_number, solve, began, ended, computed, 100)


def test_rounds_are_split_into_wire_and_coordinator() -> None:
    calls = [
        *(call(0, 0.0, 1.0, solve=False), call(0, 1.5, 2.0)),  # certified
        *(call(number, 3.0 + number, 3.5 + number, 0.1) for number in range(1, 1 + wire.WARM_UP)),
        call(3, 10.0, 11.0, 0.25),
        *(call(4, 11.5, 12.0, solve=False), call(4, 12.0, 13.0)),
        call(5, 13.125, 14.0, 2.0),  # the longest computing was not what was waited for
    ]
    before = calls[1 + wire.WARM_UP].ended
    assert wire.plain_rounds(calls) == [wire.Round(0.75, 10.0 - before, 100), wire.Round(0.0, 0.125, 100)]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("workers", [1, 3])
def test_rows_that_cover_all_features(workers: int, share: float) -> None:
    parts = [wire.spread_rows(100, worker, workers, share) for worker in range(workers)]
    supports = [np.unique(part.indices) for part in parts]
    assert np.array_equal(np.unique(np.concatenate(supports)), np.arange(100))
    least = max(-(-100 // workers), round(100 * share))
    for part, support in zip(parts, supports, strict=True):
        assert len(support) == least
        assert part.n == wire.ROWS
        assert (np.diff(part.indptr) > 0).all()
        for row in range(part.n):
            assert (np.diff(part.indices[part.indptr[row] : part.indptr[row + 1]]) > 0).all()


def test_an_array_is_cut_as_the_codec_cuts_it() -> None:
    for count in (1, codec.CHUNK // 8, codec.CHUNK // 8 + 1, 3 * codec.CHUNK // 8 + 5):
        header = array_pb2.Array()
        pieces = list(codec.encode(np.ones(count), header))
        assert wire.pieces(8 * count) == [len(header.head), *map(len, pieces)]


@pytest.mark.parametrize(("moved", "width"), [(400, 4), (480, 4), (800, 8), (1000, 8)])
def test_how_vectors_travelled_is_seen_from_the_bytes(moved: int, width: int) -> None:
    assert wire.width_of([wire.Round(0.1, 0.1, size) for size in (1, moved, 10_000)], 100) == width


@pytest.mark.parametrize(
    ("d", "k", "coordinator", "verdict"),
    [
        (50_000, 1, 0.001, "met"),
        (50_000, 1, 0.02, "missed"),
        (3_200_000, 4, 0.001, "met"),
        (3_200_000, 4, 0.02, "missed"),
        (60_000, 1, 0.02, ""),
    ],
)
def test_what_is_said_of_a_target_of_the_wire(d: int, k: int, coordinator: float, verdict: str) -> None:
    rounds = [wire.Round(0.005, coordinator, 1_000_000)] * 3
    last = wire.lines(wire.Measured(d, k, float(d), rounds, [0.004] * 3, 1_000_000))[-1]
    assert last.endswith(verdict) if verdict else "target" not in last


def test_the_wire_format_is_asked_for_where_train_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_has", lambda _kind: False)
    with pytest.raises(UsageError, match="--wire float32: is not known"):
        wire.settings(10, "float32")
    assert wire.settings(10, None).stop.max_rounds == 10


def network_run(seconds: float, status: str = "converged") -> dict[str, Any]:
    return {"seconds": {"solve": seconds}, "rounds": 8, "data_passes": 4.0, "local_epochs": 0.5, "status": status}


def test_auto_is_compared_with_the_fastest_setting_that_came_to_the_gap() -> None:
    rows = [
        network.Row.of(network.AUTO, [network_run(seconds) for seconds in (9.0, 3.0, 2.0)]),
        network.Row.of("1", [network_run(2.0)]),
        network.Row.of("2", [network_run(1.0), network_run(1.0, "max_seconds")]),
    ]
    assert [row.seconds for row in rows] == [3.0, 2.0, 1.0]
    printed = network.lines(rows)
    assert "auto 0.5" in printed[1]
    assert "did not reach" in printed[3]
    assert printed[-1].strip() == "auto / best (1): 1.50"
    assert network.lines([replace(rows[0], reached=False), *rows[1:]])[-1].strip() == "auto / best: -"


def test_kernels_do_the_work_of_a_pass() -> None:
    shard = kernel.shard_of("rcv1", 200)
    work = kernel.tasks(in_blocks(shard, 1), 1e-3)
    assert list(work) == ["sdca", "loss_sum", "products", "stream"]
    seconds = kernel.measure(work, 2)
    assert all(len(found) == 2 and (found > 0).all() for found in seconds.values())
    _, loss_sum = work["loss_sum"]
    # after a pass w is worth something, and 200 is what w = 0 costs
    assert 0.0 < float(loss_sum()) < 200.0  # type: ignore[arg-type]
    stored = shard.values.nbytes // 8 + shard.indices.nbytes // 8
    assert stored == sum(len(kernel.words(part)) for part in (shard.values, shard.indices))
    assert "8.0 bytes an entry" in kernel.lines(shard, seconds)[0]


def test_words_are_added_up() -> None:
    array = np.arange(5, dtype=np.uint32)  # two whole words and a half
    assert int(kernel.sum_words(kernel.words(array))) == (1 << 32) + 2 + (3 << 32)


STATUS = "Name:\tpython\nVmHWM:\t  900 kB\nVmRSS:\t  200 kB\nRssAnon:\t  150 kB\nRssFile:\t   50 kB\n"


def test_memory_is_read_as_the_kernel_tells_it() -> None:
    assert memory.Usage.read(STATUS) == memory.Usage(200 * 1024, 150 * 1024)


def test_memory_is_fitted_by_entries_rows_and_support() -> None:
    columns = [(1e6, 1e4, 1e3), (2e6, 1e4, 1e3), (1e6, 5e4, 1e3), (1e6, 1e4, 9e4)]
    figures = [9.0 * nnz + 64.0 * n + 100.0 * support for nnz, n, support in columns]
    assert_allclose(memory.fitted(columns, figures), [9.0, 64.0, 100.0])


@pytest.mark.parametrize(("a_row", "verdict"), [(60, "met"), (70, "missed")])
def test_what_is_said_of_the_target_of_memory(a_row: int, verdict: str) -> None:
    def seen(n: int, d: int, nnz: int) -> memory.Seen:
        size = 10**8 + 9 * nnz + a_row * n + 100 * d
        return memory.Seen(n, d, nnz, d, memory.Usage(size, size), memory.Usage(10**8 + 50 * d, 0))

    shapes = [(10_000, 1_000, 10**6), (50_000, 1_000, 10**6), (10_000, 90_000, 10**6), (10_000, 1_000, 10**7)]
    printed = memory.lines(seen(0, 0, 0), [seen(*shape) for shape in shapes])
    assert f"9.00 bytes an entry + {a_row}.0 a row + 100.0" in printed[-3]
    assert printed[-2].endswith(verdict)
    assert "coordinator: 50.0 bytes an entry of d" in printed[-1]


@pytest.mark.parametrize(
    ("setting", "options"),
    [("default", []), ("1/16", ["--local-epochs", "0.0625"]), ("2", ["--local-epochs", "2.0"])],
)
def test_settings_of_passes(setting: str, options: list[str]) -> None:
    assert passes.epochs_of(setting) == options


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        *((no, "is neither a") for no in ("", "x", "1/0", "1/x")),
        *((no, "is not above 0") for no in ("0", "-1/2", "inf")),
    ],
)
def test_settings_of_passes_that_are_none(setting: str, why: str) -> None:
    with pytest.raises(click.BadParameter, match=why):
        passes.epochs_of(setting)


def test_passes_are_compared_with_those_of_one_worker() -> None:
    found = {k: passes.Point(0.125, p, 80.0) for k, p in ((1, 10.0), (2, 14.0), (4, 23.0))}
    one, two, four = passes.lines("1/8", found)
    assert one.split()[-1] == "1.00"
    assert two.endswith("1.40  at most 1.4: met")
    assert four.endswith("2.30  at most 2.2: missed")
    assert "at most" not in "".join(passes.lines("1/8", {2: found[2], 4: found[4]}))


def test_doublings_have_their_targets() -> None:
    before = scale.Timed(1000, 10, 5000, 1, 0.100, 0.090, 1.0)
    assert scale.verdict("n", before, replace(before, seconds=0.2)) == "at most 2.1: met"
    assert scale.verdict("n", before, replace(before, seconds=0.22)) == "at most 2.1: missed"
    # half of 100 ms, and the 15 ms that are not computing
    assert scale.verdict("K", before, replace(before, seconds=0.060, computed=0.045)) == "at most 65.00 ms: met"
    assert scale.verdict("K", before, replace(before, seconds=0.080, computed=0.065)) == "at most 65.00 ms: missed"
    assert scale.verdict("d", before, before) == ""


def test_a_worker_count_for_every_d() -> None:
    done = CliRunner().invoke(wire.main, ["--d", "100", "--d", "200", "--workers", "1"])
    assert done.exit_code == 2
    assert "2 --d and 1 --workers" in done.output
