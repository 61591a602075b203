"""The exceptions a user can meet, each with the exit code it ends the process with.

    AcccocoaError
    ├── UsageError            2    an option or argument is wrong
    ├── DataError             4    the data cannot be used
    │   └── ParseError        4    ... at file:line:column
    ├── ClusterError          5    a worker could not be reached, was lost, or is not fit for the job
    │   ├── WorkerUnreachable 5
    │   ├── WorkerLost        5
    │   └── WorkerRefused     5
    │       └── WorkerBusy    5
    └── NumericalError        6    NaN, or a duality gap below zero beyond rounding

Every message has three parts: the offender, the requirement it breaks, and the remedy.
"""

from typing import ClassVar, Self


class AcccocoaError(Exception):
    """Base of every error this project raises on purpose.

    Parameters
    ----------
    offender : what is wrong, as the user knows it (an option with its value, a file, a worker's address)
    requirement : what was expected of it
    remedy : what the user can do about it ('' when the requirement says it all)
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, offender: str, requirement: str, remedy: str = "") -> None:
        self.offender = offender
        self.requirement = requirement
        self.remedy = remedy
        super().__init__(f"{offender}: {requirement}" + (f"; {remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str]]:
        return type(self), (self.offender, self.requirement, self.remedy)


class UsageError(AcccocoaError):
    """An option or argument is outside what it may be."""

    exit_code = 2


class DataError(AcccocoaError):
    """The data cannot be read, or cannot be used for the problem asked for."""

    exit_code = 4


class ParseError(DataError):
    """A fault in LIBSVM text.

    Parameters
    ----------
    file : name of the source
    line, column : 1-based position of the offending byte
    requirement : what was found and what was expected
    remedy : what the user can do about it
    """

    def __init__(self, file: str, line: int, column: int, requirement: str, remedy: str = "") -> None:
        self.file = file
        self.line = line
        self.column = column
        super().__init__(f"{file}:{line}:{column}", requirement, remedy)

    def __reduce__(self) -> tuple[type[Self], tuple[str, int, int, str, str]]:  # type: ignore[override]  # its own five arguments
        return type(self), (self.file, self.line, self.column, self.requirement, self.remedy)


class ClusterError(AcccocoaError):
    """Something about the worker cluster prevents the job."""

    exit_code = 5


class WorkerUnreachable(ClusterError):
    """No connection to a worker within the time allowed."""


class WorkerLost(ClusterError):
    """A worker that took part in the job no longer answers."""


class WorkerRefused(ClusterError):
    """A worker answered, but it or the coordinator cannot accept the other (version, job, shard)."""


class WorkerBusy(WorkerRefused):
    """A worker works for another job."""


class NumericalError(AcccocoaError):
    """The numbers are inconsistent: the run must not go on, nor its result be trusted."""

    exit_code = 6
