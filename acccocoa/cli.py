"""What both commands share: errors become one line on standard error and the right exit code; options for all."""

import difflib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import click

from acccocoa.errors import AcccocoaError, UsageError

F = TypeVar("F", bound=Callable[..., Any])


class ExitCodes(click.Group):
    """A click group that ends with an AcccocoaError's own exit code and its message, without a traceback.

    A variable in the environment that looks like an option of the command, and is none, is an error, too.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click.Group.resolve_command."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not {"--help"} & set(rest):
            _check_environment(f"{ctx.auto_envvar_prefix}_{name.upper().replace('-', '_')}_", name, command)
        return name, command, rest

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; see click.Group.main."""
        try:
            return super().main(*args, **kwargs)
        except AcccocoaError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.exit_code)


def tell(text: str, end: str = "\n") -> None:
    """Write text to standard output, at once.

    Raises
    ------
    UsageError : it cannot be written (a full disk), other than to a pipe that was closed, which click sees to
    """
    try:
        click.echo(text + end, nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        with suppress(OSError, ValueError):
            # what is left in the buffer would fail once more at the end, and make it exit code 120
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageError("standard output", f"cannot be written: {error.strerror}") from error


def _check_environment(prefix: str, name: str, command: click.Command) -> None:
    """Every variable with that prefix is an option of the command.

    Raises
    ------
    UsageError : one is not
    """
    known = {f"{prefix}{str(parameter.name).upper()}" for parameter in command.params}
    for parameter in command.params:
        listed = parameter.envvar
        known |= {listed} if isinstance(listed, str) else set(listed or ())
    for variable in sorted(os.environ):
        if variable.startswith(prefix) and variable not in known:
            (near,) = difflib.get_close_matches(variable, sorted(known), n=1, cutoff=0.0)
            raise UsageError(f"environment variable {variable}", f"is no option of {name}", f"{near} is, for example")


def _use_endpoint(_context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        # where boto3 looks for it; processes started from here find it, too
        os.environ["AWS_ENDPOINT_URL_S3"] = value


def s3_endpoint(command: F) -> F:
    """Give a command the option --s3-endpoint; it takes effect by itself."""
    return click.option(
        "--s3-endpoint",
        metavar="URL",
        expose_value=False,
        callback=_use_endpoint,
        help="where s3:// is, if not at Amazon's [default: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL]",
    )(command)
