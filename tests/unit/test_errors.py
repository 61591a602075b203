"""The tree of errors: exit codes, messages, and that they survive pickling."""

import copy
import inspect
import pickle

import pytest

from acccocoa import errors
from acccocoa.errors import (
    AcccocoaError,
    ClusterError,
    DataError,
    NumericalError,
    ParseError,
    UsageError,
    WorkerBusy,
    WorkerLost,
    WorkerRefused,
    WorkerUnreachable,
)

EXIT_CODES: dict[type[AcccocoaError], int] = {
    UsageError: 2,
    DataError: 4,
    ParseError: 4,
    ClusterError: 5,
    WorkerUnreachable: 5,
    WorkerLost: 5,
    WorkerRefused: 5,
    WorkerBusy: 5,
    NumericalError: 6,
}
"""As the contract says."""


def instance(kind: type[AcccocoaError], remedy: str = "do this") -> AcccocoaError:
    if issubclass(kind, ParseError):
        return kind("file", 3, 14, "is wrong", remedy)
    return kind("it", "is wrong", remedy)


every_error = pytest.mark.parametrize("kind", EXIT_CODES, ids=lambda kind: kind.__name__)


def test_every_error_is_here() -> None:
    defined = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, AcccocoaError)}
    assert defined == {AcccocoaError, *EXIT_CODES}


@every_error
def test_exit_codes(kind: type[AcccocoaError]) -> None:
    assert kind.exit_code == instance(kind).exit_code == EXIT_CODES[kind]


@every_error
def test_message_has_three_parts(kind: type[AcccocoaError]) -> None:
    offender = "file:3:14" if kind is ParseError else "it"
    error = instance(kind)
    assert str(error) == f"{offender}: is wrong; do this"
    assert (error.offender, error.requirement, error.remedy) == (offender, "is wrong", "do this")
    assert str(instance(kind, "")) == f"{offender}: is wrong"


@every_error
@pytest.mark.parametrize("remedy", ["do this", ""])
def test_pickled_and_copied(kind: type[AcccocoaError], remedy: str) -> None:
    error = instance(kind, remedy)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(error, protocol))
        assert type(back) is kind
        assert str(back) == str(error)
        assert vars(back) == vars(error)
    assert vars(copy.deepcopy(error)) == vars(error)


def test_position_of_a_parse_error() -> None:
    error = ParseError("data.txt", 7, 1, "is wrong")
    assert (error.file, error.line, error.column, error.offender) == ("data.txt", 7, 1, "data.txt:7:1")
    assert isinstance(error, DataError)


def test_docstring_draws_the_tree() -> None:
    drawn = {
        words[-2] if words[-1].isdigit() else words[0]: int(next(word for word in words if word.isdigit()))
        for line in (errors.__doc__ or "").splitlines()
        if (words := line.replace("│", "").replace("├──", "").replace("└──", "").split())
        and any(word.isdigit() for word in words)
        and words[0] in {kind.__name__ for kind in EXIT_CODES}
    }
    assert drawn == {kind.__name__: code for kind, code in EXIT_CODES.items()}
