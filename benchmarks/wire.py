"""Seconds of a round beside its computing: this project's coordinator and workers against a bare gRPC echo.

Ours is a real run (the coordinator in this process, K worker processes on loopback) on a few rows whose features are
all of d, so that there is next to nothing to compute. Of every round without a certificate:

    wire         from asking all workers to having all answers, less the longest computing a worker reports
    coordinator  from those answers to asking for the next round

The echo moves the same bytes both ways, in pieces of the same size, between one process and K others; its servers
answer when they have a round's pieces, as a worker has to, or with --echo pieces each piece at once. Ours and the echo
take turns; shown are medians and quartiles.
"""

import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from acccocoa import codec, shardfile
from acccocoa.config import AlgorithmConfig, ClusterConfig, DataConfig, ObjectiveConfig, OutputConfig, StopConfig
from acccocoa.errors import UsageError
from acccocoa.examples import Examples
from benchmarks.echo import Echo
from benchmarks.runs import workers as worker_processes
from coordinator import task
from coordinator.cluster import Cluster
from coordinator.handshake import ShardDescription
from coordinator.link import WorkerLink
from coordinator.messages import Ask, CertificateTerms, Resync, WorkerUpdate
from coordinator.normalize import Scaling
from coordinator.settings import Settings

ROWS = 8
"""Of every worker; one is visited in a round."""

WARM_UP = 2
"""Rounds of every turn that do not count."""

SMALL_D = 50_000
SMALL_SECONDS = 0.01
"""Up to that d coordinator and wire are to stay below a tenth of a round of 0.1 s."""

LARGE = (3_200_000, 4)
LARGE_SHARE = 0.6
"""At that d and K a round is to be at least that fast, as a share of the echo's speed."""


@dataclass(frozen=True)
class Call:
    """The workers were asked once, and answered.

    solve : for their updates, and nothing else;  began, ended : seconds on one clock;  moved : bytes, both ways
    """

    round: int
    solve: bool
    began: float
    ended: float
    computed: float
    moved: int


@dataclass(frozen=True)
class Round:
    """Where a round's seconds went, without its computing."""

    wire: float
    coordinator: float
    moved: int

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.wire + self.coordinator


def plain_rounds(calls: Sequence[Call]) -> list[Round]:
    """The rounds in which the workers were asked for their updates only, in order, without the first WARM_UP."""
    asked = {call.round: 0 for call in calls}
    for call in calls:
        asked[call.round] += 1
    found = [
        Round(max(0.0, call.ended - call.began - call.computed), call.began - before.ended, call.moved)
        for before, call in itertools.pairwise(calls)
        if call.solve and asked[call.round] == 1
    ]
    return found[WARM_UP:]


class TimedCluster(Cluster):
    """Notes when the workers were asked, and when they had answered.

    calls : so far
    """

    def __init__(self, links: Sequence[WorkerLink]) -> None:
        super().__init__(links)
        self.calls: list[Call] = []

    def answers(self, asks: Mapping[int, Ask | Resync]) -> dict[int, Any]:
        """See Cluster.answers; of one problem."""
        ((problem, ask),) = asks.items()
        moved, began = self.bytes_pushed + self.bytes_returned, time.perf_counter()
        found = super().answers(asks)
        ended = time.perf_counter()
        answers = found[problem] if isinstance(found[problem], list) else []
        computed = [each.compute_seconds for each in answers if isinstance(each, CertificateTerms | WorkerUpdate)]
        self.calls.append(
            Call(
                ask.round if isinstance(ask, Resync) else ask.request.round,
                isinstance(ask, Ask) and ask.request.solve and not ask.request.certify,
                began,
                ended,
                max(computed, default=0.0),
                self.bytes_pushed + self.bytes_returned - moved,
            )
        )
        return found


def spread_rows(d: int, worker: int, workers: int, share: float) -> Examples:
    """ROWS rows of unit norm for one of K workers, with a share of d features between them.

    The shares of all workers together are all of d. Features occur once or a few times, each worker's at random: as in
    real data, every worker has an order of its own.
    """
    random = np.random.default_rng([d, worker])
    count = max(-(-d // workers), round(share * d))
    features = np.sort((d * worker // workers + np.arange(count)) % d).astype(np.int32)
    times = np.minimum(random.geometric(0.5, count), ROWS)
    first = random.integers(ROWS, size=count)
    rows = [features[(row - first) % ROWS < times] for row in range(ROWS)]
    lengths = np.array([len(row) for row in rows])
    return Examples(
        indptr=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        indices=np.concatenate(rows),
        values=np.repeat(1.0 / np.sqrt(np.maximum(lengths, 1)), lengths).astype(np.float32),
        labels=np.where(np.arange(ROWS) % 2 == 0, 1.0, -1.0),
        spellings={1.0: "+1", -1.0: "-1"},
    )


def settings(rounds: int, wire: str | None) -> Settings:
    """Of a run that visits one row of every worker in a round, and does not end before it has made so many."""
    cluster: dict[str, Any] = {"workers": "benchmark"}
    algorithm: dict[str, Any] = {"local_epochs": 1 / ROWS}
    if wire is not None:
        takers = [options for kind, options in ((ClusterConfig, cluster), (AlgorithmConfig, algorithm)) if _has(kind)]
        if not takers:
            raise UsageError(f"--wire {wire}", "is not known to `acccocoa-coordinator train`", "leave it out")
        takers[0]["wire"] = wire
    return Settings(
        (),
        ClusterConfig(**cluster),
        DataConfig(),
        # smooth, and far from being solved: no round is the last one
        ObjectiveConfig(loss="logistic", lam=1e-6),
        AlgorithmConfig(**algorithm),
        StopConfig(tol=1e-15, max_rounds=rounds),
        OutputConfig(quiet=True),
    )


def _has(kind: Any) -> bool:
    return "wire" in {field.name for field in fields(kind)}


class Ours:
    """A cluster of K worker processes on such rows."""

    def __init__(self, cluster: TimedCluster, shards: list[ShardDescription], wanted: Settings) -> None:
        self._cluster = cluster
        self._shards = shards
        self._settings = wanted
        self._jobs = 0
        self.support = [0] * len(shards)

    def turn(self) -> list[Round]:
        """A run from the beginning; its rounds."""
        self._jobs += 1
        job_id = f"wire-{self._jobs}"
        job = task.describe(self._settings, self._shards, job_id)
        posed = task.Posed(job, task.problem_of(self._settings.objective, job))
        (begun,) = task.begin(
            self._cluster, self._shards, [posed], self._settings, job_id, Scaling(), interrupted=threading.Event()
        )
        self.support = [len(link.support) for link in self._cluster.links]
        self._cluster.calls.clear()
        begun.training.run()
        self._cluster.finish()
        return plain_rounds(self._cluster.calls)


@contextmanager
def opened(d: int, workers: int, share: float, rounds: int, wire: str | None) -> Iterator[Ours]:
    """The workers, which end with the context."""
    wanted = settings(rounds, wire)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(threadpool_limits(1, "blas"))  # as `train` has it
        paths = [directory / f"rows-{worker}.shard" for worker in range(workers)]
        for worker, path in enumerate(paths):
            shardfile.write(str(path), spread_rows(d, worker, workers, share))
        started = stack.enter_context(worker_processes([str(path) for path in paths], "--no-cache"))
        links = [
            WorkerLink(address, rank, insecure=False, silence=wanted.cluster.silence)
            for rank, (_, address) in enumerate(started)
        ]
        cluster = TimedCluster(links)
        stack.callback(cluster.close)
        yield Ours(cluster, cluster.connect(wanted.cluster.connect_timeout), wanted)


def pieces(length: int) -> list[int]:
    """How an array of so many bytes is cut; in bytes."""
    return [min(codec.CHUNK, length - at) for at in range(0, length, codec.CHUNK)]


def width_of(rounds: Sequence[Round], entries: int) -> int:
    """Bytes of one of so many entries that travel in a round, both ways together: 4 or 8."""
    return 4 if statistics.median(each.moved for each in rounds) < 6 * entries else 8


def echo_seconds(echo: Echo, rounds: int) -> list[float]:
    """Of every round of a turn but the first WARM_UP."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        echo.round()
        found.append(time.perf_counter() - began)
    return found[WARM_UP:]


@dataclass(frozen=True)
class Measured:
    """Rounds of both, of all turns. support : entries each worker shares, on average"""

    d: int
    workers: int
    support: float
    ours: list[Round]
    echo: list[float]
    echoed: int


def measure(d: int, workers: int, share: float, rounds: int, turns: int, echo_by: str, wire: str | None) -> Measured:
    """Ours and the echo in turns.

    echo_by : "rounds" or "pieces";  wire : how vectors travel; None: as `train` has it by itself
    """
    ours: list[Round] = []
    echoed: list[float] = []
    with ExitStack() as stack:
        run = stack.enter_context(opened(d, workers, share, rounds, wire))
        ours += run.turn()
        if not ours:
            raise UsageError(f"--rounds {rounds}", "leaves no round without a certificate to look at", "use more")
        # headers and counters do not fill a piece
        width = width_of(ours, 2 * sum(run.support))
        cut = pieces(width * round(statistics.fmean(run.support)))
        echo = Echo(workers, cut, len(cut) if echo_by == "rounds" else 1)
        stack.callback(echo.close)
        echoed += echo_seconds(echo, rounds)
        for _ in range(turns - 1):
            ours += run.turn()
            echoed += echo_seconds(echo, rounds)
        entries = 2 * sum(run.support)
        # float32 on the wire may end where a run comes close to the optimum
        alike = [each for each in ours if width_of([each], entries) == width]
        return Measured(d, workers, statistics.fmean(run.support), alike, echoed, 2 * workers * sum(cut))


def _spread(seconds: Sequence[float]) -> str:
    low, median, high = (1e3 * float(part) for part in np.quantile(seconds, (0.25, 0.5, 0.75)))
    return f"{median:10.2f}  ({low:.2f} .. {high:.2f})"


def lines(found: Measured) -> list[str]:
    """What is printed of a measurement."""
    both = [each.seconds for each in found.ours]
    median, echo = statistics.median(both), statistics.median(found.echo)
    wire = statistics.median(each.wire for each in found.ours)
    moved = statistics.median(each.moved for each in found.ours)
    out = [
        f"d {found.d}, K = {found.workers}, {found.support:.0f} entries a worker, {len(both)} rounds:"
        f" {moved:.0f} bytes a round (echo {found.echoed})",
        f"  {'':<22}{'ms a round':>10}  {'(quartiles)':<22}{'MB/s':>8}  {'echo / ours':>11}",
    ]
    for name, seconds, size in (
        ("ours: wire", [each.wire for each in found.ours], moved),
        ("ours: coordinator", [each.coordinator for each in found.ours], 0.0),
        ("ours: both", both, moved),
        ("echo", found.echo, float(found.echoed)),
    ):
        middle = statistics.median(seconds)
        speed = f"{size / middle / 1e6:.0f}" if size else ""
        share = f"{echo / middle:.0%}" if size else ""
        out.append(f"  {name:<22}{_spread(seconds):<34}{speed:>8}  {share:>11}".rstrip())
    if found.d <= SMALL_D:
        out.append(
            f"  target: coordinator and wire below {SMALL_SECONDS * 1e3:.0f} ms: {median * 1e3:.2f} ms,"
            f" {'met' if median < SMALL_SECONDS else 'missed'}"
        )
    elif (found.d, found.workers) == LARGE:
        out.append(
            f"  target: at least {LARGE_SHARE:.0%} of the echo: wire {echo / wire:.0%}, with the coordinator"
            f" {echo / median:.0%}, {'met' if echo / median >= LARGE_SHARE else 'missed'}"
        )
    return out


@click.command(help=__doc__)
@click.option("--d", "ds", multiple=True, type=click.IntRange(1), default=(LARGE[0], SMALL_D), show_default=True)
@click.option("--workers", "counts", multiple=True, type=click.IntRange(1), default=(LARGE[1], 1), help="one a --d")
@click.option("--share", default=1.0, show_default=True, type=click.FloatRange(0, 1), help="of d that a worker has")
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(WARM_UP + 3), help="in a turn")
@click.option("--turns", default=5, show_default=True, type=click.IntRange(1))
@click.option("--echo", "echo_by", default="rounds", show_default=True, type=click.Choice(["rounds", "pieces"]))
@click.option("--wire", type=click.Choice(["float32", "float64"]), help="of `train`, where it has that option")
def main(
    ds: tuple[int, ...],
    counts: tuple[int, ...],
    share: float,
    rounds: int,
    turns: int,
    echo_by: str,
    wire: str | None,
) -> None:
    if len(ds) != len(counts):
        raise click.UsageError(f"{len(ds)} --d and {len(counts)} --workers: give one --workers for every --d")
    for d, workers in zip(ds, counts, strict=True):
        if d < workers:
            raise click.UsageError(f"--d {d} is less than --workers {workers}")
        for line in lines(measure(d, workers, share, rounds, turns, echo_by, wire)):
            click.echo(line)


if __name__ == "__main__":
    main()
