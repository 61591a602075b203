"""A network between a coordinator and workers on one machine: TCP connections with a rate and a delay, in user space.

As a process (`python -m benchmarks.emulated --rate R --delay S HOST:PORT ...`) it prints an address for each of those,
forwards what connects there, and ends with its standard input. All connections together share the coordinator's
interface, R bytes a second to the workers and as many back, as on a switched network whose machines have one link each.

Packets are not emulated: bytes are taken a piece at a time, and a piece arrives as a whole, when its last byte would.
"""

import asyncio
import ctypes
import selectors
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import click

from acccocoa.security import split_address
from benchmarks.runs import end_with_standard_input

PIECE = 1 << 16
"""Bytes taken from a connection at a time, at most."""

AHEAD_SECONDS = 1e-3
"""How much may wait for its turn on the line, in seconds; beyond that senders are not read from, and feel it."""

_PR_SET_TIMERSLACK = 29
"""Of prctl(2): nanoseconds."""


class Line:
    """One direction of a link: a piece leaves when those before it have left, and arrives a delay later. Pure.

    Times are seconds on any one clock, and never fall.

    Parameters
    ----------
    rate : bytes a second, above 0
    delay : seconds, one way
    ahead : see AHEAD_SECONDS
    """

    def __init__(self, rate: float, delay: float, ahead: float = AHEAD_SECONDS) -> None:
        self._rate = rate
        self._delay = delay
        self._ahead = ahead
        self._free = 0.0

    def wait(self, now: float) -> float:
        """Seconds until the line takes another piece."""
        return max(0.0, self._free - self._ahead - now)

    def carry(self, now: float, size: int) -> float:
        """When a piece of so many bytes that is handed over now arrives."""
        self._free = max(self._free, now) + size / self._rate
        return self._free + self._delay


async def _until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        await asyncio.sleep(left)


async def pump(
    read: Callable[[], Awaitable[bytes]],
    write: Callable[[bytes], Awaitable[None]],
    line: Line,
    clock: Callable[[], float] = time.monotonic,
    until: Callable[[float], Awaitable[None]] = _until,
) -> None:
    """Carry everything from one end to the other, in order, over the line.

    read : the next bytes; none at the end;  write : returns when more may come
    clock, until : seconds, and to wait until then
    """
    flying: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def land() -> None:
        while True:
            arrival, piece = await flying.get()
            await until(arrival)
            if not piece:
                return
            await write(piece)

    async with asyncio.TaskGroup() as group:
        group.create_task(land())
        while True:
            await until(clock() + line.wait(clock()))
            piece = await read()
            flying.put_nowait((line.carry(clock(), len(piece)), piece))
            if not piece:
                return


class Network:
    """Forwards connections over a line to the workers and another one back."""

    def __init__(self, rate: float, delay: float) -> None:
        self._there = Line(rate, delay)
        self._back = Line(rate, delay)

    async def serve(self, target: str) -> str:
        """Forward what connects to the address that is returned."""
        host, port = split_address(target)

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(host, port, limit=PIECE)
                try:
                    await asyncio.gather(
                        self._one_way(reader, far_writer, self._there), self._one_way(far_reader, writer, self._back)
                    )
                finally:
                    far_writer.close()
            writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=PIECE)
        found: socket.socket = server.sockets[0]
        return f"127.0.0.1:{found.getsockname()[1]}"

    @staticmethod
    async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line) -> None:
        async def write(piece: bytes) -> None:
            writer.write(piece)
            await writer.drain()

        try:
            await pump(lambda: reader.read(PIECE), write, line)
        except* OSError:
            pass  # an end that is gone is the other end's to find out
        if writer.can_write_eof() and not writer.is_closing():
            with suppress(OSError):
                writer.write_eof()


async def run(targets: Sequence[str], rate: float, delay: float) -> None:
    """Print an address for every target, and forward for ever."""
    network = Network(rate, delay)
    for target in targets:
        click.echo(await network.serve(target))
    await asyncio.Event().wait()


@click.command(help=__doc__)
@click.argument("targets", nargs=-1, required=True)
@click.option("--rate", type=click.FloatRange(0, min_open=True), required=True, help="bytes a second")
@click.option("--delay", type=click.FloatRange(0), required=True, help="seconds, one way")
def main(targets: tuple[str, ...], rate: float, delay: float) -> None:
    end_with_standard_input()
    # the kernel may wake a process up that much later than it asked for; a fifth of a delay by itself
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    # epoll waits in whole milliseconds, more than a delay
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(run(targets, rate, delay))


if __name__ == "__main__":
    main()
