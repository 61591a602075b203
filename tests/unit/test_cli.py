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


@pytest.mark.parametrize(
    ("command", "arguments", "variable", "near"),
    [
        (coordinator, ["train", "x"], "ACCCOCOA_TRAIN_LAMBDA", "ACCCOCOA_TRAIN_LAM"),
        (coordinator, ["train", "x"], "ACCCOCOA_TRAIN_MAX_ROUND", "ACCCOCOA_TRAIN_MAX_ROUNDS"),
        (coordinator, ["validate", "x"], "ACCCOCOA_VALIDATE_JSONS", "ACCCOCOA_VALIDATE_JSON"),
        (worker, ["serve"], "ACCCOCOA_SERVE_SHARDS", "ACCCOCOA_SERVE_SHARD"),
    ],
)
def test_a_variable_that_is_no_option(command: click.Group, arguments: list[str], variable: str, near: str) -> None:
    result = CliRunner().invoke(command, arguments, env={variable: "1"})
    assert result.exit_code == 2
    assert (
        result.stderr
        == f"error: environment variable {variable}: is no option of {arguments[0]}; {near} is, for example\n"
    )
    # of another command, it is none of this one's business; and help is always to be had
    assert CliRunner().invoke(command, [arguments[0], "--help"], env={variable: "1"}).exit_code == 0
    assert "variable" not in CliRunner().invoke(coordinator, ["predict"], env={variable: "1"}).stderr


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
