"""A TCP proxy between the coordinator and a worker, for connections that are cut, held up, slow or refused."""

import contextlib
import socket
import struct
import threading
import time

PIECE = 1 << 16
"""Bytes taken from a connection at a time."""

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER value with which closing a socket resets its connection."""


class Proxy:
    """Forwards whatever connects to `address` to `target`.

    address : HOST:PORT of the proxy; target : HOST:PORT, may be changed; connections made before stay where they are
    delay : seconds that every piece is held back
    """

    def __init__(self, target: str = "") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.target = target
        self.delay = 0.0
        self._refusing = False
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._run(self._accept)

    def _run(self, work: "threading._Callable", *arguments: object) -> None:  # type: ignore[name-defined]
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing or self._closed:
                self._reset(client)
                continue
            host, _, port = self.target.rpartition(":")
            try:
                server = socket.create_connection((host, int(port)), timeout=5.0)
            except OSError:
                self._reset(client)
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, server}
            self._run(self._pump, client, server)
            self._run(self._pump, server, client)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while piece := source.recv(PIECE):
                if self.delay:
                    time.sleep(self.delay)
                self._flowing.wait()
                sink.sendall(piece)
        except OSError:
            pass
        with self._lock:
            for end in (source, sink):
                if end in self._sockets:
                    self._sockets.discard(end)
                    self._reset(end)

    @staticmethod
    def _reset(end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)  # wakes up who waits for data
        end.close()

    def hold(self) -> None:
        """Nothing gets through any more, neither way, as when a cable is pulled."""
        self._flowing.clear()

    def refuse(self) -> None:
        """New connections are refused."""
        self._refusing = True

    def heal(self) -> None:
        """What was held comes through, and everything works again."""
        self._refusing = False
        self.delay = 0.0
        self._flowing.set()

    def cut(self) -> None:
        """Reset all connections."""
        with self._lock:
            for end in self._sockets:
                self._reset(end)
            self._sockets.clear()

    def close(self) -> None:
        """End the proxy and its threads."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.heal()
        self.cut()
        for thread in self._threads:
            thread.join(10.0)
            assert not thread.is_alive()
