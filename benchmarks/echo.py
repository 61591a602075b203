"""The least that gRPC can do with a round's bytes: a bidirectional stream of plain byte strings that are sent back.

As a process (`python -m benchmarks.echo`) it is the server, which prints where it listens and ends with its standard
input. No protobuf messages, no checksums, no arrays: nothing but gRPC itself.
"""

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import click
import grpc

from acccocoa import security
from benchmarks.runs import Child, end_with_standard_input

SERVICE = "acccocoa.benchmarks.Echo"

STREAMS = 2
"""Streams served at the same time; there is one client."""


def back(pieces: Iterator[bytes], together: int) -> Iterator[bytes]:
    """Every `together` pieces sent back, when all of them are here."""
    held: list[bytes] = []
    for piece in pieces:
        held.append(piece)
        if len(held) == together:
            yield from held
            held = []


@click.command(help=__doc__)
@click.option("--together", type=click.IntRange(1), required=True, help="pieces that are sent back at a time")
def main(together: int) -> None:
    def echo(pieces: Iterator[bytes], _context: grpc.ServicerContext) -> Iterator[bytes]:
        return back(pieces, together)

    server = grpc.server(ThreadPoolExecutor(STREAMS), options=security.SERVER_OPTIONS)
    handlers = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    address = security.bind(server, "127.0.0.1:0")
    server.start()
    end_with_standard_input()
    click.echo(address)
    server.wait_for_termination()


class Echo:
    """A stream to each of K servers, all in processes of their own. To be closed.

    Parameters
    ----------
    pieces : lengths in bytes of what goes to each server, and comes back, in a round
    together : see `back`; as many as there are pieces: a server answers when it has everything, as a worker must
    """

    def __init__(self, workers: int, pieces: Sequence[int], together: int) -> None:
        self._pieces = [bytes(length) for length in pieces]
        self._streams: list[tuple[queue.SimpleQueue[bytes | None], Iterator[bytes]]] = []
        with ExitStack() as stack:
            self._pool = stack.enter_context(ThreadPoolExecutor(workers))
            children = [
                stack.enter_context(Child("benchmarks.echo", "--together", str(together))) for _ in range(workers)
            ]
            for child in children:
                channel = stack.enter_context(security.open_channel(child.line()))
                outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
                stack.callback(outbox.put, None)
                call = channel.stream_stream(f"/{SERVICE}/Echo", request_serializer=None, response_deserializer=None)
                self._streams.append((outbox, iter(call(iter(outbox.get, None)))))
            self._stack = stack.pop_all()

    def close(self) -> None:
        """End the streams and the servers."""
        self._stack.close()

    def round(self) -> int:
        """Send all pieces to all servers and wait until they are back; bytes moved, both ways together."""
        return sum(self._pool.map(self._exchange, self._streams))

    def _exchange(self, stream: "tuple[queue.SimpleQueue[bytes | None], Iterator[bytes]]") -> int:
        outbox, replies = stream
        for piece in self._pieces:
            outbox.put(piece)
        return sum(len(piece) + len(next(replies)) for piece in self._pieces)


if __name__ == "__main__":
    main()
