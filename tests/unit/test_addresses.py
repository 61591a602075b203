"""--workers as the user writes it -> the list of addresses."""

import socket
from pathlib import Path
from typing import Any

import pytest

from acccocoa.errors import UsageError, WorkerUnreachable
from coordinator.addresses import resolve


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ("a:1", ["a:1"]),
        ("a:1,b:2", ["a:1", "b:2"]),
        (" b:2 , a:1,", ["b:2", "a:1"]),
        ("a:1,,a:2", ["a:1", "a:2"]),
        ("127.0.0.1:50051,[::1]:50051", ["127.0.0.1:50051", "[::1]:50051"]),
    ],
)
def test_lists(workers: str, expected: list[str]) -> None:
    assert resolve(workers) == expected


def test_file(tmp_path: Path) -> None:
    file = tmp_path / "workers.txt"
    file.write_text("# the big ones\nb:1\n\n  a:1  # rack 2\r\n\t\nc:1")
    assert resolve(f"@{file}") == ["b:1", "a:1", "c:1"]


def test_a_name_stands_for_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        assert (host, port) == ("workers", 7)
        stream = socket.SOCK_STREAM
        return [
            (socket.AF_INET, stream, 6, "", ("10.0.0.2", 7)),
            (socket.AF_INET, stream, 6, "", ("10.0.0.1", 7)),
            (socket.AF_INET6, stream, 6, "", ("fd00::1", 7, 0, 0)),
            (socket.AF_INET, stream, 6, "", ("10.0.0.2", 7)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert resolve("dns:///workers:7") == ["10.0.0.1:7", "10.0.0.2:7"]
    assert resolve("a:1,dns:///workers:7")[0] == "a:1"
    with pytest.raises(UsageError, match=r"names 10\.0\.0\.1:7 more than once"):
        resolve("dns:///workers:7,10.0.0.1:7")


def test_localhost_resolves_to_loopback() -> None:
    assert resolve("dns:///localhost:1") in (["127.0.0.1:1"], ["[::1]:1"])


def test_a_name_with_addresses_of_the_new_kind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::1", 7, 0, 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [entry])
    assert resolve("dns:///workers:7") == ["[fd00::1]:7"]


def test_a_name_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "workers.txt"
    file.write_text("dns:///127.0.0.1:9\n127.0.0.1:8\n")
    assert resolve(f"@{file}") == ["127.0.0.1:9", "127.0.0.1:8"]


def test_a_name_that_does_not_resolve() -> None:
    with pytest.raises(WorkerUnreachable, match=r"name nobody\.invalid: does not resolve") as caught:
        resolve("dns:///nobody.invalid:1")
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("workers", "named"),
    [("a:1,b:2,a:1", "a:1"), ("a:1, a:1", "a:1"), ("b:1,c:1,a:1,b:1,a:1,a:1", "a:1, b:1")],
)
def test_repeated(workers: str, named: str) -> None:
    with pytest.raises(UsageError, match=f"names {named} more than once"):
        resolve(workers)


@pytest.mark.parametrize("workers", ["", ",", " , ,"])
def test_none(workers: str) -> None:
    with pytest.raises(UsageError, match="names no worker"):
        resolve(workers)


def test_empty_file(tmp_path: Path) -> None:
    file = tmp_path / "workers.txt"
    file.write_text("# nobody yet\n")
    with pytest.raises(UsageError, match="names no worker"):
        resolve(f"@{file}")


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_unreadable_file(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "workers.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=r"--workers @.*: the file cannot be read"):
        resolve(f"@{file}")


@pytest.mark.parametrize(
    "workers", ["a", "a:", ":1", "a:1,b", "a:99999", "a:x", "::1:5", "dns:///a", "dns://a:1", "http://a:1", "a:1;b:2"]
)
def test_malformed(workers: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        resolve(workers)
