"""Benchmarks of real processes, on tiny jobs: they run, and print what they are for."""

import os
import socket
import threading
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from acccocoa.security import split_address
from benchmarks import memory, network, passes, scale, wire
from benchmarks.echo import Echo
from benchmarks.runs import Child, RunFailed, train

JOIN_SECONDS = 60.0


def printed(command: click.Command, *arguments: object) -> str:
    """What the benchmark prints."""
    done = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_wire() -> None:
    output = printed(wire.main, "--d", 200_000, "--workers", 2, "--rounds", 14, "--turns", 2)
    # 2 workers, 2 ways, 8 bytes an entry, and a few bytes of the messages around
    assert "(echo 6400000)" in output
    (moved,) = [int(line.split(" bytes a round")[0].split()[-1]) for line in output.splitlines() if "a round (" in line]
    assert 6_400_000 < moved < 6_402_000
    for name in ("ours: wire", "ours: coordinator", "ours: both", "echo"):
        assert f"  {name} " in output


def test_an_echo_moves_all_bytes_both_ways() -> None:
    echo = Echo(2, [10, 20], 2)
    try:
        assert [echo.round() for _ in range(3)] == [2 * 2 * 30] * 3
    finally:
        echo.close()


def test_an_emulated_network_alters_nothing_and_closes_both_ends() -> None:
    sent = os.urandom(1_000_000)
    received: list[bytes] = []

    def answer(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as stream:
            received.append(stream.read())  # to the end of what is sent
            connection.sendall(received[0][::-1])

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        network.Emulated(1e9, 1e-4).before([f"127.0.0.1:{server.getsockname()[1]}"]) as (address,),
        socket.create_connection(split_address(address), JOIN_SECONDS) as connection,
    ):
        thread = threading.Thread(target=answer, args=(server,), daemon=True)
        thread.start()
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            assert stream.read() == sent[::-1]
        thread.join(JOIN_SECONDS)
    assert received == [sent]


def test_an_emulated_network_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "BULK", 100_000)
    trip, speed = network.Emulated(1e6, 1e-3).measured()
    # it cannot be faster than what is emulated
    assert trip >= 2e-3
    assert speed <= 1e6


def test_network(tmp_path: Path) -> None:
    output = printed(
        *(network.main, "--data", "covtype", "--rows", 400, "--k", 2, "--epochs", 1, "--repeat", 1, "--lam", "1e-2"),
        *("--data-dir", tmp_path),
    )
    assert "covtype-400, K = 2, loopback" in output
    assert "covtype-400, K = 2, emulated" in output
    assert output.count("auto / best (1):") == 2


def test_memory_of_a_tiny_job() -> None:
    seen = memory.look(memory.examples_of(300, 50, 5), ["--no-cache"])
    assert (seen.n, seen.d) == (300, 50)
    for used in (seen.worker, seen.coordinator):
        assert 10**7 < used.anonymous < used.resident


def test_passes(tmp_path: Path) -> None:
    output = printed(
        *(passes.main, "--rows", 400, "--k", 1, "--k", 2, "--epochs", "1/4", "--seeds", 1, "--lam", "1e-2"),
        *("--data-dir", tmp_path),
    )
    first, second = output.splitlines()[2:]
    assert first.split()[:3] == ["1/4", "1", "0.25"]
    assert second.split()[:3] == ["1/4", "2", "0.25"]
    assert "at most 1.4" in second


def test_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "BASE", {"n": 400, "d": 100, "entries": 5, "K": 1})
    output = printed(
        *(scale.main, "--vary", "K", "--vary", "n", "--doublings", 1, "--rounds", 3, "--repeat", 1),
        *("--data-dir", tmp_path),
    )
    rows = [line.split() for line in output.splitlines() if line]
    assert [row[0] for row in rows] == ["K", "1", "2", "n", "400", "800"]
    assert "ms:" in rows[2]
    assert "2.1:" in rows[5]


def test_processes_that_fail_say_why() -> None:
    with pytest.raises(RunFailed, match="no-such-file"):
        train(["no-such-file"])
    with Child("benchmarks.echo", "--together", "0") as child, pytest.raises(RunFailed, match="ended before it"):
        child.line()
