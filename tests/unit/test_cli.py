"""What both commands share: one line on standard error, the right exit code, no traceback."""

from importlib.metadata import version

import click
import pytest
from click.testing import CliRunner

from acccocoa.cli import ExitCodes
from acccocoa.errors import (
    AcccocoaError,
    DataError,
    NumericalError,
    ParseError,
    UsageError,
    WorkerLost,
    WorkerRefused,
    WorkerUnreachable,
)
from coordinator.cli import main as coordinator
from worker.cli import main as worker


def failing(error: BaseException) -> click.Command:
    @click.group(cls=ExitCodes)
    def group() -> None: ...

    @group.command()
    def run() -> None:
        raise error

    return group


@pytest.mark.parametrize(
    "error",
    [
        UsageError("--lam 0", "must be > 0"),
        DataError("data", "has no features", "is this the right file?"),
        ParseError("data", 2, 5, "is not a number"),
        WorkerUnreachable("worker a:1", "was not reached"),
        WorkerLost("worker a:1", "was lost"),
        WorkerRefused("worker a:1", "refused"),
        NumericalError("round 3", "is not finite"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_one_line_and_its_exit_code(error: AcccocoaError) -> None:
    result = CliRunner().invoke(failing(error), ["run"])
    assert result.exit_code == error.exit_code
    assert result.stderr == f"error: {error}\n"
    assert result.stdout == ""


def test_a_bug_is_not_hidden() -> None:
    result = CliRunner().invoke(failing(ZeroDivisionError("bug")), ["run"])
    assert isinstance(result.exception, ZeroDivisionError)


commands = pytest.mark.parametrize("command", [coordinator, worker], ids=["coordinator", "worker"])


@commands
@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nonsense"], "No such command"), (["--nonsense"], "No such option")],
)
def test_wrong_usage(command: click.Group, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


@commands
def test_version(command: click.Group) -> None:
    result = CliRunner().invoke(command, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.strip().endswith(f"version {version('acccocoa')}")


@commands
def test_every_command_explains_itself(command: click.Group) -> None:
    assert command.commands
    for name, sub in command.commands.items():
        result = CliRunner().invoke(command, [name, "--help"])
        assert result.exit_code == 0, name
        assert result.stdout.startswith(f"Usage: main {name}")
        unexplained = [p.opts for p in sub.params if isinstance(p, click.Option) and not p.help and not p.hidden]
        assert unexplained == [], name
