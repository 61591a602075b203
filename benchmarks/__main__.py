"""python -m benchmarks NAME: every benchmark by its name; `python -m benchmarks NAME --help` says what it measures."""

import importlib
import sys
from collections.abc import Callable

import click

from acccocoa.cli import ExitCodes

BENCHMARKS = {
    "peers": "Time to a given accuracy, against other solvers.",
    "lasso": "Lasso to a certified gap, against celer and skglm.",
    "scale": "Cost as examples, features, entries and workers double.",
    "rounds": "Rounds to a certified gap, against plain CoCoA+.",
    "parser": "Reading LIBSVM text, against other readers.",
    "generate": "Making synthetic data.",
    "wire": "Rounds without computing, against a bare gRPC echo.",
    "network": "Work in a round chosen by itself, against fixed, on two networks.",
    "kernel": "Time of the kernels for an entry, against a streaming read.",
    "memory": "Resident memory of a worker and of the coordinator.",
    "passes": "Passes to a certified gap, as workers double.",
}


@click.group(cls=ExitCodes)
def main() -> None:
    """Measure this project: against others, and against itself."""


def _starter(name: str) -> Callable[[tuple[str, ...]], None]:
    def start(arguments: tuple[str, ...]) -> None:
        command = importlib.import_module(f"benchmarks.{name}").main
        if isinstance(command, click.Command):
            command.main(list(arguments), prog_name=f"python -m benchmarks {name}")
        else:
            sys.argv = [f"benchmarks {name}", *arguments]
            command()

    return start


for _name, _help in BENCHMARKS.items():
    main.add_command(
        click.Command(
            _name,
            callback=_starter(_name),
            params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
            help=_help,
            context_settings={"ignore_unknown_options": True},
            add_help_option=False,
        )
    )


if __name__ == "__main__":
    main()
