"""What both commands share: errors become one line on standard error and the right exit code; options for all."""

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from acccocoa.errors import AcccocoaError

F = TypeVar("F", bound=Callable[..., Any])


class ExitCodes(click.Group):
    """A click group that ends with an AcccocoaError's own exit code and its message, without a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; see click.Group.main."""
        try:
            return super().main(*args, **kwargs)
        except AcccocoaError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.exit_code)


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
