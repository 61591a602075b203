"""The trained linear model: LIBLINEAR's text format (or .npz), decision values, predictions and their score.

The text format is what LIBLINEAR 2.x writes, byte for byte, so that its own `predict` reads our models and ours reads
its. Beside PATH lies PATH.json, the sidecar: the result of the run that made the model, and what LIBLINEAR's format
cannot say (the spelling of the labels, the loss where LIBLINEAR has no such solver). It carries the SHA-256 of the
model file and counts only beside that very file. The model is renamed into place first, the sidecar right after; a
crash in between leaves the new model with a sidecar that is recognised as not its own.

    classifiers    decision value x'w > 0: labels[0], else labels[1]  (zero: labels[1], as LIBLINEAR has it)
    more classes   one vector of weights a class (one-vs-rest): the label of the largest value, the first of equals
    regression     the decision value is the prediction
"""

import hashlib
import io
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from acccocoa import losses
from acccocoa.atomic import atomic_write, check_writable, room
from acccocoa.errors import AcccocoaError, DataError, NumericalError, UsageError
from acccocoa.examples import Examples
from acccocoa.sigmoid import shares, sigmoid

_SOLVER_TYPES = {
    "hinge": "L2R_L1LOSS_SVC_DUAL",
    "smoothed_hinge": "L2R_L1LOSS_SVC_DUAL",  # no such solver there: one that predicts in the same way
    "squared_hinge": "L2R_L2LOSS_SVC_DUAL",
    "logistic": "L2R_LR_DUAL",
    "squared": "L2R_L2LOSS_SVR_DUAL",  # likewise
    "huber": "L2R_L1LOSS_SVR_DUAL",  # likewise
    "epsilon_insensitive": "L2R_L1LOSS_SVR_DUAL",
    "squared_epsilon_insensitive": "L2R_L2LOSS_SVR_DUAL",
}
"""By loss, the LIBLINEAR solver under whose name the model is written."""

_LOSSES = {
    "L2R_LR": "logistic",
    "L2R_LR_DUAL": "logistic",
    "L1R_LR": "logistic",
    "L2R_L1LOSS_SVC_DUAL": "hinge",
    "L2R_L2LOSS_SVC": "squared_hinge",
    "L2R_L2LOSS_SVC_DUAL": "squared_hinge",
    "L1R_L2LOSS_SVC": "squared_hinge",
    "L2R_L1LOSS_SVR_DUAL": "epsilon_insensitive",
    "L2R_L2LOSS_SVR": "squared_epsilon_insensitive",
    "L2R_L2LOSS_SVR_DUAL": "squared_epsilon_insensitive",
}
"""By LIBLINEAR solver, the loss of its models (unless the sidecar knows better)."""

_HEADER_KEYS = ("solver_type", "nr_class", "label", "nr_feature", "bias")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LINES_AT_ONCE = 4096
_BYTES_PER_WEIGHT = len("-1.2345678901234567e-308 \n")
_BYTES_BESIDE = 1 << 16
"""What head, sidecar and blocks of the file system take, and more."""
_SHOWN = 40  # characters of an offending word that a message repeats
_TRUNCATED = "it is truncated: copy or train it again"
_ARCHIVE_FAULTS = (OSError, EOFError, ValueError, KeyError, TypeError, NotImplementedError, BadZipFile, zlib.error)
"""What numpy and zipfile raise on files that are no archives, or damaged ones."""


@dataclass(frozen=True, eq=False)
class Model:
    """A linear model with one weight vector, or with one a class where there are more than two.

    Attributes
    ----------
    loss : one of losses.NAMES
    labels : the labels of a classifier as spelled in its training data, of two that of positive decision values first;
        empty for regression
    w : float64, shape (nr_feature,), or (nr_feature + 1,) with a bias; with more than two labels one such row a label;
        copied, and read-only from then on
    bias : value of the constant feature whose weight comes last in w; below 0 there is none
    unit_rows : it was trained on examples divided by their euclidean norms, and predicts after dividing, too

    Raises
    ------
    UsageError : unknown loss
    DataError : shapes, labels and loss do not fit together
    NumericalError : a weight, or the bias, is not finite
    """

    loss: str
    labels: tuple[str, ...]
    w: NDArray[np.float64]
    bias: float = -1.0
    unit_rows: bool = False

    def __post_init__(self) -> None:
        classifier = losses.loss(self.loss).classifier
        w = np.array(self.w, dtype=np.float64)
        w.setflags(write=False)
        object.__setattr__(self, "w", w)
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "bias", float(self.bias))
        if w.ndim != 1 + (len(self.labels) > 2):
            raise DataError(f"weights of shape {w.shape}", "a model has one vector of weights, of > 2 classes one each")
        if not math.isfinite(self.bias):
            raise NumericalError(f"bias {self.bias}", "must be finite")
        if self.has_bias and not w.shape[-1]:
            raise DataError(f"bias {self.bias:g}", "needs a weight of its own, and there is none")
        if not np.isfinite(w).all():
            j = int(np.flatnonzero(~np.isfinite(w))[0])
            raise NumericalError(f"weight {j + 1} of {w.size}", f"is {w.flat[j]}, and must be finite")
        for label in self.labels:
            if _number(label) is None:
                raise DataError(f"label {label!r}", "must be a finite number")
        if len({float(label) for label in self.labels}) != len(self.labels) or len(self.labels) < 2 * classifier:
            demand = f"a model of loss {self.loss} has two different labels, or more"
            raise DataError(f"labels {', '.join(self.labels) or 'none'}", demand)
        if self.labels and not classifier:
            raise DataError(f"labels {', '.join(self.labels)}", f"a model of loss {self.loss} has no labels")
        if w.ndim == 2 and len(w) != len(self.labels):
            raise DataError(f"{len(w)} vectors of weights", f"do not belong to {len(self.labels)} labels")

    @property
    def is_classifier(self) -> bool:
        """Whether predictions are labels (else values)."""
        return bool(self.labels)

    @property
    def has_bias(self) -> bool:
        """Whether the last weight is that of the constant feature."""
        return self.bias >= 0

    @property
    def has_probabilities(self) -> bool:
        """Whether the loss gives decision values a meaning as log-odds."""
        return self.loss == "logistic"

    @property
    def nr_feature(self) -> int:
        """Number of features, the constant one not counted."""
        return int(self.w.shape[-1]) - self.has_bias

    @property
    def classes(self) -> int:
        """Number of weight vectors: of labels, where they are more than two."""
        return len(self.w) if self.w.ndim == 2 else 1

    def decision_values(self, examples: Examples) -> NDArray[np.float64]:
        """x_i'w, plus the bias's share.

        Features the model does not know count for nothing, as in LIBLINEAR.

        Parameters
        ----------
        examples : n examples with any number of features

        Returns
        -------
        values : float64, shape (n,), or (n, classes) with more than two; accumulated in float64 in the order of the
            features
        """
        d = self.nr_feature
        indices, values = examples.indices, examples.values
        if examples.d > d:
            known = indices < d
            indices = np.where(known, indices, 0)
            values = np.where(known, values, 0)
        if d:
            rows = _sparse((values, indices, examples.indptr), shape=(examples.n, d))
            result = np.asarray(rows @ self.w[..., :d].T, dtype=np.float64)
        else:
            result = np.zeros((examples.n, *self.w.shape[:-1]))
        if self.unit_rows:
            norms = _norms(examples)
            result = (result.T / np.where(norms > 0, norms, 1.0)).T
        if self.has_bias:
            result += self.bias * self.w[..., d]
        return result

    def predict_labels(self, values: NDArray[np.float64]) -> NDArray[np.str_] | NDArray[np.float64]:
        """What decision values stand for.

        Parameters
        ----------
        values : float64, shape (n,) or (n, classes), from decision_values

        Returns
        -------
        predictions : shape (n,); label spellings for a classifier, for regression the values themselves
        """
        if not self.is_classifier:
            return values
        if self.classes > 1:
            spelled: NDArray[np.str_] = np.array(self.labels)[np.argmax(values, axis=1)]
            return spelled
        first, second = self.labels
        return np.where(values > 0, np.str_(first), np.str_(second))

    def probabilities(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability of each label, 1 / (1 + exp(-value)) for the first, each to full relative precision.

        With more than two classes each has its own such value; as in LIBLINEAR they are divided by their sum.

        Parameters
        ----------
        values : float64, shape (n,) or (n, classes), from decision_values

        Returns
        -------
        probabilities : float64, shape (n, labels), columns in the order of `labels`

        Raises
        ------
        UsageError : the model is not one of logistic regression
        """
        self.require_probabilities()
        if self.classes > 1:
            return shares(sigmoid(values))
        return np.column_stack((sigmoid(values), sigmoid(-values)))

    def require_probabilities(self) -> None:
        """Raise the UsageError of `probabilities` if there are none."""
        if not self.is_classifier:
            raise UsageError(
                f"probabilities of a model of loss {self.loss}",
                "are of labels, and a regression has none",
                "leave them out",
            )
        if not self.has_probabilities:
            raise UsageError(
                f"probabilities of a model of loss {self.loss}",
                "only the logistic loss gives them",
                "train with --loss logistic, or see --calibrate",
            )

    def save(self, path: str | os.PathLike[str], report: Mapping[str, object]) -> None:
        """Write the model, atomically, and its sidecar.

        A name ending in .npz gives a numpy archive (arrays loss, labels, w, bias, and unit_rows if so), any other
        LIBLINEAR's text with 17 significant digits; both bring back the same bits. Labels that LIBLINEAR cannot hold as
        they are spelled (1.0) are written there as the integer of the same value (1); where there is none (0.5),
        LIBLINEAR refuses to read the model, and only `load` does.

        Parameters
        ----------
        path : the model file; the sidecar is sidecar_path(path)
        report : the --json object of the run. In the sidecar "labels", "loss" and "model_sha256" are added or replaced;
            numbers that are not finite become null.

        Raises
        ------
        UsageError : one of the two files cannot be written; neither then replaces an earlier one
        """
        chunks = iter((self._archive(),)) if _is_archive(path) else self._text()
        digest = hashlib.sha256()
        with atomic_write(sidecar_path(path)) as sidecar, atomic_write(path) as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
            own = {"loss": self.loss, "labels": self.labels, "model_sha256": digest.hexdigest()}
            record = {**report, **own, **({"normalize": "rows"} if self.unit_rows else {})}
            sidecar.write(json.dumps(_jsonable(record), indent=2, allow_nan=False).encode() + b"\n")

    def _text(self) -> Iterator[bytes]:
        """LIBLINEAR's text, in pieces."""
        header = [f"solver_type {_SOLVER_TYPES[self.loss]}", f"nr_class {max(2, self.classes)}"]
        if self.is_classifier:
            header.append("label " + " ".join(map(_liblinear_label, self.labels)))
        header += [f"nr_feature {self.nr_feature}", f"bias {self.bias:.17g}", "w\n"]
        yield "\n".join(header).encode()
        lines = np.ascontiguousarray(self.w.T).reshape(-1, self.classes)
        form = "%.17g " * self.classes + "\n"
        for start in range(0, len(lines), _LINES_AT_ONCE):
            some = lines[start : start + _LINES_AT_ONCE]
            yield (form * len(some) % tuple(some.ravel().tolist())).encode()

    def _archive(self) -> bytes:
        """The .npz file."""
        buffer = io.BytesIO()
        labels = np.array(self.labels, dtype=np.str_)
        arrays = {"loss": np.str_(self.loss), "labels": labels, "w": self.w, "bias": np.float64(self.bias)}
        if self.unit_rows:
            arrays["unit_rows"] = np.bool_(True)
        np.savez(buffer, **arrays)  # type: ignore[arg-type]  # numpy takes its names for options of its own
        return buffer.getvalue()


def _sparse(parts: tuple[Any, Any, Any], shape: tuple[int, int]) -> Any:
    """A scipy.sparse.csr_array of values, indices and indptr."""
    # only what predicts needs scipy, whose import takes a third of the coordinator's start
    from scipy.sparse import csr_array

    return csr_array(parts, shape=shape)


def _norms(examples: Examples) -> NDArray[np.float64]:
    """The euclidean norm of every example; float64, shape (n,)."""
    values = examples.values.astype(np.float64)
    squares = _sparse((values**2, examples.indices, examples.indptr), shape=(examples.n, max(examples.d, 1)))
    return np.asarray(np.sqrt(squares.sum(axis=1)), dtype=np.float64)


def sidecar_path(path: str | os.PathLike[str]) -> Path:
    """PATH.json for the model file PATH."""
    return Path(os.fspath(path) + ".json")


def check_model_path(path: str | os.PathLike[str]) -> None:
    """Make sure, before training, that a model can be saved as `path`.

    Raises
    ------
    UsageError : the model file or its sidecar could not be written
    """
    check_writable(path)
    check_writable(sidecar_path(path))


@contextmanager
def room_for_model(path: str | os.PathLike[str], weights: int) -> Iterator[Callable[[], None]]:
    """Keep the disk space that a model of so many weights takes, at most, as acccocoa.atomic.room does.

    Raises
    ------
    UsageError : there is less
    """
    with room(path, weights * _BYTES_PER_WEIGHT + _BYTES_BESIDE) as give_back:
        yield give_back


def load(path: str | os.PathLike[str]) -> Model:
    """Read a model that Model.save or LIBLINEAR wrote: a classifier, or regression.

    Spelling of the labels and exact loss come from the sidecar if it is this file's own, else from the file.

    Parameters
    ----------
    path : a model file; .npz by its name, anything else is LIBLINEAR's text

    Raises
    ------
    DataError : the file cannot be read, is not a model, not a whole one (which line is told), or of a kind not
        supported (one class)
    """
    name = os.fspath(path)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(name, f"cannot be read: {error.strerror or error}") from error
    if _is_archive(path):
        return _parse_archive(content, name)
    return _with_sidecar(_parse_text(content, name), path, hashlib.sha256(content).hexdigest())


def score(
    predictions: NDArray[np.str_] | NDArray[np.float64] | Sequence[str], examples: Examples
) -> dict[str, int | float | None]:
    """Compare predictions with the labels of the data.

    Parameters
    ----------
    predictions : shape (n,); label spellings (classification) or float64 values (regression)
    examples : the n examples predicted

    Returns
    -------
    score : with spellings, {"n", "n_correct", "accuracy"}: labels are compared by value, "1" is "+1";
        with values, {"n", "mse", "r2"}. What is undefined (no examples; r2 of labels all alike) or overflows is None.

    Raises
    ------
    ValueError : there are not as many predictions as examples
    """
    predicted = np.asarray(predictions)
    n = examples.n
    if predicted.shape != (n,):
        raise ValueError(f"{predicted.shape} predictions for {n} examples")
    error = predicted.astype(np.float64) - examples.labels
    if predicted.dtype.kind == "U":
        n_correct = int(np.count_nonzero(error == 0))
        return {"n": n, "n_correct": n_correct, "accuracy": n_correct / n if n else None}
    if not n:
        return {"n": 0, "mse": None, "r2": None}
    with np.errstate(over="ignore", invalid="ignore"):
        mse = float(np.mean(error**2))
        variance = float(np.var(examples.labels))
    if not math.isfinite(mse):
        return {"n": n, "mse": None, "r2": None}
    return {"n": n, "mse": mse, "r2": 1 - mse / variance if 0 < variance < math.inf else None}


def _is_archive(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).lower().endswith(".npz")


def _number(text: str) -> float | None:
    """The finite number that is all of `text`, or None."""
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


def _liblinear_label(spelling: str) -> str:
    """The label for a reader of %d: as it is if that is an integer, else the integer of its value.

    Without one that fits, a spelling with a point or an exponent, at which LIBLINEAR stops: better than a wrong label.
    """
    value = float(spelling)
    if not value.is_integer() or abs(value) > 2**31 - 1:
        return repr(value)
    return spelling if _INTEGER.fullmatch(spelling) else str(int(value))


def _jsonable(value: object) -> object:
    """`value` in types JSON has: numpy scalars become Python's, numbers that are not finite None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _with_sidecar(model: Model, path: str | os.PathLike[str], digest: str) -> Model:
    """The model with what its sidecar knows better; unchanged without a sidecar that is this file's own."""
    try:
        sidecar = json.loads(sidecar_path(path).read_bytes())
    except (OSError, ValueError):
        return model
    if not isinstance(sidecar, dict) or sidecar.get("model_sha256") != digest:
        return model
    if sidecar.get("normalize") == "rows":
        model = replace(model, unit_rows=True)
    loss, labels = sidecar.get("loss"), sidecar.get("labels")
    if isinstance(loss, str) and _SOLVER_TYPES.get(loss) == _SOLVER_TYPES[model.loss]:
        model = replace(model, loss=loss)
    if isinstance(labels, list) and all(isinstance(label, str) for label in labels):
        ours = [_number(label) for label in labels]
        if ours == [_number(label) for label in model.labels]:
            model = replace(model, labels=tuple(labels))
    return model


class _Entry(NamedTuple):
    """A line of the header: where it stands and what follows its key."""

    place: str
    words: list[str]


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def _parse_text(content: bytes, name: str) -> Model:
    """A model in LIBLINEAR's text; `name` is for messages."""
    stream = io.BytesIO(content)
    header: dict[str, _Entry] = {}
    line = 0
    for line, raw in enumerate(stream, 1):
        place = f"{name}:{line}"
        key, *words = raw.decode("ascii", "replace").split() or [""]
        if key == "w" and not words:
            break
        if key == "rho":
            raise DataError(place, "is of a one-class model", "only classifiers and regression are read")
        if key not in _HEADER_KEYS:
            requirement = f"starts with {_quoted(key)}, where {', '.join(_HEADER_KEYS)} or w is expected"
            raise DataError(place, requirement, "is it a LIBLINEAR model?")
        if key in header:
            raise DataError(place, f"{key} is given a second time")
        header[key] = _Entry(place, words)
    else:
        requirement = "the file ends before its weights (line 'w')"
        raise DataError(f"{name}:{line}", requirement, "it is truncated, or not a LIBLINEAR model")

    loss, labels, bias, expected_weights = _parse_header(header, name, line)
    if len(labels) > 2:
        w = _parse_rows_of_weights(content, stream, name, line + 1, (expected_weights, len(labels))).T
    else:
        w = _parse_weights(content, stream, name, line + 1, expected_weights)
    return Model(loss, labels, w, bias)


def _parse_header(header: Mapping[str, _Entry], name: str, end: int) -> tuple[str, tuple[str, ...], float, int]:
    """Loss, labels, bias and number of weights; `end` is the line that ends the header."""

    def entry(key: str, count: int = 1) -> _Entry:
        found = header.get(key)
        if found is None:
            raise DataError(f"{name}:{end}", f"the header ends without {key}")
        if len(found.words) != count:
            raise DataError(found.place, f"{key} is followed by {len(found.words)} values instead of {count}")
        return found

    place, (solver_type,) = entry("solver_type")
    loss = _LOSSES.get(solver_type)
    if loss is None:
        raise DataError(
            place, f"solver_type {_quoted(solver_type)} is not supported", f"those that are: {', '.join(_LOSSES)}"
        )

    place, (word,) = entry("nr_class")
    if not _INTEGER.fullmatch(word) or float(word) < 1:
        raise DataError(place, f"nr_class {_quoted(word)} is not a number of classes")
    classifier = losses.loss(loss).classifier
    if float(word) != 2 and (float(word) < 2 or not classifier):
        requirement = f"nr_class is {word[:_SHOWN]}, and only classifiers of 2 or more and regression (2) are read"
        raise DataError(place, requirement)
    classes = int(word[:_SHOWN])

    labels: tuple[str, ...] = ()
    if classifier:
        place, labels = header["label"].place if "label" in header else "", tuple(entry("label", classes).words)
        for label in labels:
            if _number(label) is None:
                raise DataError(place, f"label {_quoted(label)} is not a finite number")
        if len({float(label) for label in labels}) < len(labels):
            seen: dict[float, str] = {}
            twice = next(label for label in labels if seen.setdefault(float(label), label) is not label)
            raise DataError(place, f"two labels are {_quoted(twice)[1:-1]}")
    elif "label" in header:
        raise DataError(header["label"].place, f"a model of {solver_type} (regression) has no labels")

    place, (word,) = entry("nr_feature")
    if not _INTEGER.fullmatch(word) or int(word[:_SHOWN]) < 0:
        raise DataError(place, f"nr_feature {_quoted(word)} is not a number of features")
    nr_feature = int(word[:_SHOWN])

    place, (word,) = entry("bias")
    bias = _number(word)
    if bias is None:
        raise DataError(place, f"bias {_quoted(word)} is not a finite number")
    return loss, labels, bias, nr_feature + (bias >= 0)


def _parse_weights(content: bytes, stream: io.BytesIO, name: str, first: int, expected: int) -> NDArray[np.float64]:
    """The weights, one a line, from where `stream` (over `content`) stands at line number `first` to the end."""
    start = stream.tell()
    count = content.count(b"\n", start)
    if count < expected:
        place = f"{name}:{first + count - 1}"
        raise DataError(place, f"the file ends after {count} of {expected} weights", _TRUNCATED)
    if len(content) > start and (count > expected or not content.endswith(b"\n")):
        raise DataError(f"{name}:{first + expected}", f"something follows the last of {expected} weights")
    try:
        w = np.fromiter(map(float, stream), dtype=np.float64, count=expected)
    except ValueError:
        w = None
    if w is None or not np.isfinite(w).all() or content.find(b"_", start) >= 0:  # Python reads 1_0 as 10
        stream.seek(start)
        for line, raw in enumerate(stream, first):
            word = raw.strip().decode("ascii", "replace")
            if _number(word) is None:
                raise DataError(f"{name}:{line}", f"{_quoted(word)} is not a weight: one finite number a line")
    return cast("NDArray[np.float64]", w)


def _parse_rows_of_weights(
    content: bytes, stream: io.BytesIO, name: str, first: int, shape: tuple[int, int]
) -> NDArray[np.float64]:
    """Weights of several classes, one of each a line; see _parse_weights. shape : lines, weights in a line."""
    expected, classes = shape
    rows: list[list[float]] = []
    for line, raw in enumerate(stream, first):
        if len(rows) == expected:
            raise DataError(f"{name}:{line}", f"something follows the last of {expected} lines of weights")
        words = raw.decode("ascii", "replace").split()
        numbers = [_number(word) for word in words]
        if len(words) != classes or None in numbers or not raw.endswith(b"\n"):
            raise DataError(f"{name}:{line}", f"{_quoted(' '.join(words))} is not {classes} weights: finite numbers")
        rows.append([number for number in numbers if number is not None])
    if len(rows) < expected:
        place = f"{name}:{first + len(rows) - 1}"
        raise DataError(place, f"the file ends after {len(rows)} of {expected} lines of weights", _TRUNCATED)
    return np.array(rows, dtype=np.float64).reshape(expected, classes)


def _parse_archive(content: bytes, name: str) -> Model:
    """A model in a .npz file; `name` is for messages."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            loss, labels, w, bias = (archive[key] for key in ("loss", "labels", "w", "bias"))
            unit_rows = "unit_rows" in archive and bool(archive["unit_rows"])
    except _ARCHIVE_FAULTS as error:
        raise DataError(name, f"is not a .npz model: {error}", _TRUNCATED) from error
    if not all(isinstance(array, np.ndarray) for array in (loss, labels, w, bias)):
        raise DataError(name, "is not a .npz model: loss, labels, w and bias must be arrays")
    if loss.shape != () or loss.dtype.kind != "U" or labels.ndim != 1 or labels.dtype.kind != "U":
        raise DataError(name, "is not a .npz model: loss must be a string, and labels a vector of strings")
    if w.dtype != np.float64 or bias.dtype != np.float64 or bias.shape != ():
        raise DataError(name, "is not a .npz model: w must be a vector of float64, and bias a float64")
    try:
        return Model(str(loss), tuple(map(str, labels)), w, float(bias), unit_rows)
    except AcccocoaError as error:
        raise DataError(name, f"is not a .npz model: {error}") from error
