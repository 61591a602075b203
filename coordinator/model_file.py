"""The model's place on disk (--model PATH): looked at before anything begins, and never the reason to lose a model."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from acccocoa.errors import UsageError
from acccocoa.model import Model, check_model_path, room_for_model


class ModelFile:
    """Where the model of a run goes.

    path : --model PATH

    Raises
    ------
    UsageError : no model can be written there
    """

    def __init__(self, path: str) -> None:
        check_model_path(path)
        self.path = path
        self._give_back: Callable[[], None] = lambda: None

    @contextmanager
    def room(self, weights: int) -> Iterator[None]:
        """Keep the disk space that so many weights take: a disk that fills up during the run will not matter.

        Raises
        ------
        UsageError : there is less than that already
        """
        with room_for_model(self.path, weights) as self._give_back:
            yield

    def save(self, model: Model, report: Mapping[str, object]) -> None:
        """Write the model; where that is not possible, into the directory for temporary files instead.

        Raises
        ------
        UsageError : it is not in its place; the remedy tells where it is
        """
        self._give_back()
        try:
            model.save(self.path, report)
        except UsageError as error:
            raise UsageError(error.offender, error.requirement, _rescued(model, report, self.path)) from error


def _rescued(model: Model, report: Mapping[str, object], path: str) -> str:
    """Write the model where there may be space for it; a clause that tells where, or why not."""
    try:
        elsewhere = Path(tempfile.mkdtemp(prefix="acccocoa-model-")) / Path(path).name
        model.save(elsewhere, report)
    except (OSError, UsageError) as error:
        return f"nor could the model be kept elsewhere ({error})"
    return f"the model is in {elsewhere} instead"
