"""--local-work auto against fixed --local-epochs: seconds to a relative gap, over loopback and an emulated network.

Real workers, K of them on this machine, and the coordinator connects to them directly or through benchmarks.emulated,
which has the rate and the delay of the network asked for. `train` decides by the address whether workers are on this
machine: through the network it is given 0.0.0.0, which is this machine to the kernel and is no loopback address.

The settings take turns. Shown are the median seconds of solving, rounds and passes, and the passes a round that auto
chose; `auto / best` is its time over that of the fastest fixed setting.
"""

import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from acccocoa import synthetic
from acccocoa.security import split_address
from benchmarks import data as datasets
from benchmarks.runs import Child, RunFailed, train, workers

DATA = ("covtype", "news20")
EPOCHS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)
AUTO = "auto"
NETWORKS = ("loopback", "emulated")

PINGS = 200
BULK = 100_000_000
"""What the emulated network is measured by: round trips of a byte, and bytes one way."""


@dataclass(frozen=True)
class Emulated:
    """A network. rate : bytes a second, of the coordinator's link, each way;  delay : seconds, one way"""

    rate: float
    delay: float

    @contextmanager
    def before(self, addresses: Sequence[str]) -> Iterator[list[str]]:
        """Addresses from which those are reached through the network."""
        with Child(
            "benchmarks.emulated", "--rate", repr(self.rate), "--delay", repr(self.delay), *addresses
        ) as process:
            yield [f"0.0.0.0:{split_address(process.line())[1]}" for _ in addresses]

    def measured(self) -> tuple[float, float]:
        """Median seconds of a byte's round trip and bytes a second of many, one way, as they are here and now."""
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            self.before([f"127.0.0.1:{server.getsockname()[1]}"]) as (address,),
            socket.create_connection(split_address(address)) as connection,
        ):
            threading.Thread(target=_answer, args=(server,), daemon=True).start()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            trips = [_trip(connection, 0) for _ in range(PINGS)]
            return statistics.median(trips), BULK / _trip(connection, BULK)


def _trip(connection: socket.socket, size: int) -> float:
    """Seconds until `_answer` has so many bytes and says so."""
    payload = size.to_bytes(8, "big") + bytes(size)
    began = time.perf_counter()
    connection.sendall(payload)
    if not connection.recv(1):
        raise RunFailed("the emulated network closed a connection")
    return time.perf_counter() - began


def _answer(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as stream:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while header := stream.read(8):
            left = int.from_bytes(header, "big")
            while left:
                left -= len(stream.read(min(left, 1 << 20)))
            connection.sendall(b".")


@dataclass(frozen=True)
class Row:
    """A setting and its runs, medians. reached : all of them came to the gap; epochs : passes a round"""

    setting: str
    seconds: float
    rounds: float
    passes: float
    epochs: float
    reached: bool

    @classmethod
    def of(cls, setting: str, runs: Sequence[dict[str, Any]]) -> "Row":
        """From the --json objects."""
        return cls(
            setting,
            statistics.median(run["seconds"]["solve"] for run in runs),
            statistics.median(run["rounds"] for run in runs),
            statistics.median(run["data_passes"] for run in runs),
            runs[0]["local_epochs"],
            all(run["status"] == "converged" for run in runs),
        )


def compare(addresses: Sequence[str], common: Sequence[str], epochs: Sequence[float], repeat: int) -> list[Row]:
    """Auto, then the fixed settings; they take turns. common : options of all runs"""
    settings = [AUTO, *(f"{each:g}" for each in epochs)]
    runs: dict[str, list[dict[str, Any]]] = {setting: [] for setting in settings}
    for _ in range(repeat):
        for setting in settings:
            how = ("--local-work", AUTO) if setting == AUTO else ("--local-epochs", setting)
            runs[setting].append(train(["--workers", ",".join(addresses), "--insecure", *common, *how]))
    return [Row.of(setting, found) for setting, found in runs.items()]


def lines(rows: Sequence[Row]) -> list[str]:
    """What is printed of a comparison; the first row is auto's."""
    out = [f"{'':>10}{'seconds':>9}{'rounds':>8}{'passes':>8}"]
    for row in rows:
        name = row.setting if row.setting != AUTO else f"{AUTO} {row.epochs:g}"
        out.append(
            f"{name:>10}{row.seconds:>9.3f}{row.rounds:>8.0f}{row.passes:>8.1f}"
            f"{'' if row.reached else '  (did not reach the gap)'}"
        )
    auto, *fixed = rows
    best = min((row for row in fixed if row.reached), key=lambda row: row.seconds, default=None)
    if best is None or not auto.reached:
        out.append(f"{'':>10} auto / best: -")
    else:
        out.append(f"{'':>10} auto / best ({best.setting}): {auto.seconds / best.seconds:.2f}")
    return out


def file(name: str, rows: int | None, directory: Path) -> Path:
    """The data set, or that many rows in its likeness."""
    if rows is None:
        return datasets.file(name, directory)
    path = directory / f"{name}-{rows}.svm"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        synthetic.write(name, rows, synthetic.SHAPES[name].d, 1, part)
        part.rename(path)
    return path


@click.command(help=__doc__)
@click.option("--data", "names", multiple=True, type=click.Choice(DATA), default=DATA, show_default=True)
@click.option("--k", "counts", multiple=True, type=click.IntRange(1), default=(2, 4), show_default=True, help="workers")
@click.option("--network", "over", multiple=True, type=click.Choice(NETWORKS), default=NETWORKS, show_default=True)
@click.option("--epochs", multiple=True, type=click.FloatRange(0, min_open=True), default=EPOCHS, show_default=True)
@click.option("--loss", default="hinge", show_default=True)
@click.option("--lam", default=1e-5, show_default=True)
@click.option("--tol", default=1e-3, show_default=True, help="relative gap")
@click.option(
    "--rate", default=125e6, show_default=True, type=click.FloatRange(0, min_open=True), help="bytes a second"
)
@click.option("--delay", default=0.25e-3, show_default=True, type=click.FloatRange(0), help="seconds, one way")
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1))
@click.option("--limit", default=60.0, show_default=True, help="seconds of a run")
@click.option("--rows", type=click.IntRange(1), help="of the data [as many as `peers` takes]")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="keeps the data [a temporary one]")
def main(
    names: tuple[str, ...],
    counts: tuple[int, ...],
    over: tuple[str, ...],
    epochs: tuple[float, ...],
    loss: str,
    lam: float,
    tol: float,
    rate: float,
    delay: float,
    repeat: int,
    limit: float,
    rows: int | None,
    data_dir: Path | None,
) -> None:
    directory = data_dir or Path(tempfile.gettempdir()) / "acccocoa-benchmarks"
    emulated = Emulated(rate, delay)
    if "emulated" in over:
        trip, speed = emulated.measured()
        click.echo(f"emulated network: round trip of a byte {trip * 1e3:.2f} ms, {speed / 1e6:.0f} MB/s one way")
    common = ["--loss", loss, "--lam", repr(lam), "--tol", repr(tol), "--max-seconds", repr(limit)]
    for name in names:
        path = file(name, rows, directory)
        for k in counts:
            with workers([f"{path}#{part}/{k}" for part in range(k)]) as started:
                direct = [address for _, address in started]
                for network in over:
                    click.echo(f"\n{path.stem}, K = {k}, {network}: {loss}, lam {lam:g}, to {tol:g}")
                    if network == "loopback":
                        found = compare(direct, common, epochs, repeat)
                    else:
                        with emulated.before(direct) as addresses:
                            found = compare(addresses, common, epochs, repeat)
                    for line in lines(found):
                        click.echo(line)


if __name__ == "__main__":
    main()
