"""Frozen dataclasses as command-line options: a field with `option(...)` is one flag, one environment variable.

    @dataclass(frozen=True)
    class Stop:
        tol: float = option(1e-3, "relative certified gap to stop at")

    @click.command()
    @options(Stop)
    def train(stop: Stop): ...

gives --tol (and ACCCOCOA_TRAIN_TOL through click's auto_envvar_prefix).
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

THREADS_MAX = 1024
"""Threads of a worker: more than any machine has cores for."""


class Choice(click.Choice[str]):
    """One of these words; hyphens stand for underscores, and the other way round."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word as it is listed."""
        same = (word for word in self.choices if word.replace("_", "-") == str(value).replace("_", "-"))
        return super().convert(next(same, value), param, ctx)


def option(
    default: Any,
    help: str,
    *,
    flag: str = "",
    type: Any = None,
    metavar: str | None = None,
    choices: Sequence[str] = (),
) -> Any:
    """A dataclass field that is a command-line option.

    Parameters
    ----------
    default : value when the option is not given;  help : what it does, with its unit
    flag : spelling of the flag when it is not the field's name ('--a/--no-a' for a switch with both)
    type : click type; taken from the default when None
    """
    if choices:
        type = Choice(list(choices))
    return dataclasses.field(default=default, metadata={"help": help, "flag": flag, "type": type, "metavar": metavar})


def options(*classes: type) -> Callable[[F], F]:
    """Give a click command the options of the dataclasses; it receives one instance of each, by lower-case name."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def build(**arguments: Any) -> Any:
            for cls in classes:
                name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
                arguments[name] = cls(**{f.name: arguments.pop(f.name) for f in dataclasses.fields(cls)})
            return function(**arguments)

        decorated: Any = build
        for cls in reversed(classes):
            for field in reversed(dataclasses.fields(cls)):
                flag = field.metadata["flag"] or "--" + field.name.replace("_", "-")
                switch = isinstance(field.default, bool)
                decorated = click.option(
                    flag,
                    field.name,  # click derives the environment variable from it: ACCCOCOA_TRAIN_MAX_ROUNDS
                    default=field.default,
                    help=field.metadata["help"],
                    type=field.metadata["type"],
                    metavar=field.metadata["metavar"],
                    is_flag=switch or None,
                    show_default=field.default is not None and not switch,
                )(decorated)
        return decorated  # type: ignore[no-any-return]  # click's decorator returns what it was given

    return decorate
