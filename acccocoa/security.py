"""Who may talk to whom: the one place where gRPC channels and ports get their credentials.

Plaintext is accepted on the loopback interface, and elsewhere only when the user says --insecure.
"""

import ipaddress
import re
import socket

import grpc

from acccocoa.errors import UsageError

PING_SECONDS = 10
"""Interval of gRPC's keep-alive pings, both ways, and what the peer must tolerate."""

_COMMON_OPTIONS = [
    ("grpc.keepalive_time_ms", PING_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", PING_SECONDS * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
_CHANNEL_OPTIONS = [
    *_COMMON_OPTIONS,
    ("grpc.dns_min_time_between_resolutions_ms", 500),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.use_local_subchannel_pool", 1),
    # workers are addressed directly: http_proxy is meant for the web, and would break even the loopback interface
    ("grpc.enable_http_proxy", 0),
]
SERVER_OPTIONS = [
    *_COMMON_OPTIONS,
    # two servers on one port would otherwise share it silently
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", PING_SECONDS * 500),
]

# without brackets gRPC takes the port of an IPv6 address for a part of it
_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%\w+)?)\]|(?P<host>[^\s:/\[\],]+)):(?P<port>[0-9]{1,5})"
)


def split_address(address: str) -> tuple[str, int]:
    """'host:port' or '[v6]:port' as (host, port).

    Raises
    ------
    UsageError : there is no port, it is not 0 .. 65535, or the host is not one name or address
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise UsageError(f"address {address!r}", "must be HOST:PORT or [IPV6]:PORT with a port from 0 to 65535")
    return match["v6"] or match["host"], int(match["port"])


def is_loopback(host: str) -> bool:
    """The host names this machine's loopback interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _require_plaintext_allowed(address: str, insecure: bool) -> None:
    host, _ = split_address(address)
    if not insecure and not is_loopback(host):
        raise UsageError(
            f"address {address!r}",
            "is not on the loopback interface, and the connection would not be encrypted",
            "say --insecure if the network is trusted",
        )


def open_channel(address: str, insecure: bool = False) -> grpc.Channel:
    """A channel to host:port; no connection is made yet.

    Raises
    ------
    UsageError : the address is malformed, or plaintext is not allowed for it
    """
    _require_plaintext_allowed(address, insecure)
    return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)


def _require_free(address: str, host: str, port: int) -> None:
    """Bind that port here first, for an error before gRPC logs its own."""
    failure: OSError | None = None
    try:
        for family, kind, protocol, _, found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                with socket.socket(family, kind, protocol) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(found)
            except OSError as error:
                failure = error
            else:
                return
    except OSError as error:
        failure = error
    if failure is not None:
        raise UsageError(
            f"--listen {address}",
            f"cannot be bound ({failure.strerror})",
            "is the port in use, or the address not of this machine?",
        ) from failure


def bind(server: grpc.Server, address: str, insecure: bool = False) -> str:
    """Listen on host:port (port 0: any free one); returns host:port with the port in use.

    Raises
    ------
    UsageError : the address is malformed or taken, or plaintext is not allowed for it
    """
    _require_plaintext_allowed(address, insecure)
    host, wanted = split_address(address)
    _require_free(address, host, wanted)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise UsageError(
            f"--listen {address}", "cannot be bound", "is the port in use, or the address not of this machine?"
        ) from error
    if port == 0:
        raise UsageError(f"--listen {address}", "cannot be bound", "is the port in use?")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
