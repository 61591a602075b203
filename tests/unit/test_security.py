"""Who may talk to whom: addresses, the loopback rule, ports."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st

from acccocoa import security
from acccocoa.errors import UsageError
from acccocoa.security import bind, is_loopback, open_channel, split_address

RPC_SECONDS = 10.0


def has_ipv6() -> bool:
    """This machine has an IPv6 loopback interface."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


class Servers:
    """Makes gRPC servers that answer health probes, and ends them."""

    def __init__(self) -> None:
        self._made: list[grpc.Server] = []

    def make(self) -> grpc.Server:
        server = grpc.server(ThreadPoolExecutor(2), options=security.SERVER_OPTIONS)
        health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
        self._made.append(server)
        return server

    def end(self) -> None:
        for server in self._made:
            server.stop(None).wait()


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    made.end()


def answers(address: str, *, insecure: bool = False) -> bool:
    """A health probe at that address is answered."""
    with open_channel(address, insecure) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=RPC_SECONDS)
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.255.255.254", "::1", "0:0:0:0:0:0:0:1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::2", "localhost.example.com", "127.0.0.1.example.com", "worker-1", ""],
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost:1", ("localhost", 1)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("worker-1.example.com:65535", ("worker-1.example.com", 65535)),
        ("[::1]:50051", ("::1", 50051)),
        ("[fe80::1%eth0]:7", ("fe80::1%eth0", 7)),
        ("[::ffff:127.0.0.1]:7", ("::ffff:127.0.0.1", 7)),
        ("under_score:00080", ("under_score", 80)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


MALFORMED = [
    "", "localhost", "localhost:", ":1", ":", "localhost:65536", "localhost:-1", "localhost:+1", "localhost: 1",
    " localhost:1", "localhost:1 ", "localhost:1\n", "localhost:1_0", "localhost:\u0661", "localhost:http", "a b:1",
    "a:1,b:2", "a:1:2", "::1", "::1:50051", "[::1]", "[::1]50051", "[]:1", "[localhost]:1", "[::1:1", "::1]:1",
    "http://localhost:1", "unix:/tmp/socket:1", "localhost:100000",
]  # fmt: skip


@pytest.mark.parametrize("address", MALFORMED)
def test_malformed_addresses(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_address(address)
    assert caught.value.offender == f"address {address!r}"
    assert "HOST:PORT" in caught.value.requirement


@given(st.from_regex(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", fullmatch=True), st.integers(0, 65535))
def test_every_name_and_port(host: str, port: int) -> None:
    assert split_address(f"{host}:{port}") == (host, port)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        host, port = split_address(text)
    except UsageError:
        return
    assert host
    assert 0 <= port <= 65535


@pytest.mark.parametrize("address", ["192.0.2.1:1", "worker-1:1", "0.0.0.0:1", "[::]:1"])
def test_plaintext_beyond_loopback_must_be_asked_for(address: str, servers: Servers) -> None:
    with pytest.raises(UsageError, match=r"is not on the loopback interface.*say --insecure") as caught:
        open_channel(address)
    assert repr(address) in caught.value.offender
    with pytest.raises(UsageError, match=r"is not on the loopback interface.*say --insecure"):
        bind(servers.make(), address)
    open_channel(address, insecure=True).close()  # connects when it is used, not before


def test_insecure_server_on_all_interfaces(servers: Servers) -> None:
    server = servers.make()
    address = bind(server, "0.0.0.0:0", insecure=True)
    server.start()
    host, port = split_address(address)
    assert host == "0.0.0.0"
    assert answers(f"127.0.0.1:{port}")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_port_0_is_any_free_one(host: str, servers: Servers) -> None:
    if host == "[::1]" and not has_ipv6():
        pytest.skip("no IPv6 here")
    server = servers.make()
    address = bind(server, f"{host}:0")
    server.start()
    assert address.startswith(f"{host}:")
    assert not address.endswith(":0")
    assert answers(address)


def test_two_servers_do_not_share_a_port(servers: Servers) -> None:
    first = servers.make()
    address = bind(first, "127.0.0.1:0")
    first.start()
    with pytest.raises(UsageError, match=r"cannot be bound .*; is the port in use") as caught:
        bind(servers.make(), address)
    assert caught.value.offender == f"--listen {address}"
    assert answers(address)


def test_address_of_another_machine_cannot_be_bound(servers: Servers) -> None:
    with pytest.raises(UsageError, match=r"--listen 192\.0\.2\.1:0: cannot be bound"):  # TEST-NET-1, nobody's address
        bind(servers.make(), "192.0.2.1:0", insecure=True)


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "grpc_proxy"])
def test_proxies_of_the_web_are_not_used(variable: str, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    server = servers.make()
    address = bind(server, "127.0.0.1:0")
    server.start()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # not listening: who asks there is turned away
        monkeypatch.setenv(variable, f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert answers(address)
