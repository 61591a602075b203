"""What both commands share: errors become one line on standard error and the right exit code."""

import sys
from typing import Any

import click

from acccocoa.errors import AcccocoaError


class ExitCodes(click.Group):
    """A click group that ends with an AcccocoaError's own exit code and its message, without a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; see click.Group.main."""
        try:
            return super().main(*args, **kwargs)
        except AcccocoaError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.exit_code)
