"""The command `predict`: a model and data in, one prediction a line out, and how good they are."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from acccocoa import loading, model, platt
from acccocoa.atomic import atomic_write, check_writable
from acccocoa.cli import s3_endpoint, tell
from acccocoa.errors import DataError, UsageError
from acccocoa.examples import Examples
from acccocoa.model import Model


def lines(
    trained: Model,
    values: NDArray[np.float64],
    *,
    probability: bool = False,
    calibration: platt.Calibration | None = None,
) -> Iterable[str]:
    """The predictions as text, without line ends.

    Parameters
    ----------
    trained : the model
    values : float64, shape (n,), its decision values
    probability : whether to write the probabilities of the labels too, as LIBLINEAR's predict does: first a line
        `labels +1 -1`, then lines of the predicted label and one probability for each label in that order
    calibration : what gives the probabilities; None: the model itself

    Returns
    -------
    lines : n strings, or n + 1 with probabilities; numbers with as many digits as it takes to read them back exactly

    Raises
    ------
    UsageError : probabilities are asked of a model that has none
    """
    predictions = trained.predict_labels(values)
    if probability:
        columns = (trained.probabilities if calibration is None else calibration)(values).tolist()
        header = f"labels {' '.join(trained.labels)}"
        rows = zip(predictions.tolist(), columns, strict=True)
        return [header, *(f"{label} {' '.join(map(repr, row))}" for label, row in rows)]
    return map(str, predictions.tolist())


def describe(scores: dict[str, int | float | None]) -> str:
    """One sentence on a score (see model.score) for a person to read."""

    def number(value: float | None) -> str:
        return "undefined" if value is None else f"{value:.6g}"

    if "accuracy" in scores:
        accuracy = scores["accuracy"]
        share = "undefined" if accuracy is None else f"{100 * accuracy:.6g}%"
        return f"accuracy = {share} ({scores['n_correct']}/{scores['n']})"
    return f"mean squared error = {number(scores['mse'])}, R2 = {number(scores['r2'])} ({scores['n']} examples)"


def run(
    model_path: str,
    data: str,
    *,
    out: str | None = None,
    probability: bool = False,
    calibrate: str | None = None,
    as_json: bool = False,
    zero_based: bool = False,
    threads: int = 1,
) -> dict[str, object]:
    """Predict the examples of a file.

    Predictions go to `out`, atomically, or else to standard output (with `as_json` nowhere: that is for the result).
    How many are right goes to standard error. What can be found wrong before the data is read is.

    Parameters
    ----------
    model_path : the model, see model.load
    data : a source of LIBSVM text, see libsvm.read; values are kept in float64
    out : file for the predictions; "-" as None
    probability : see `lines`
    calibrate : a source as `data` of examples that the model has not seen, which probabilities are fitted to
    as_json : whether to print the result on standard output, as one JSON object
    zero_based : whether indices in the data begin at 0
    threads : number of threads that parse the data

    Returns
    -------
    result : n, d, nnz (of the data), the entries of model.score (accuracy and n_correct, or mse and r2),
        loss, probability, calibrate, model, data, out (paths as given; calibrate and out may be None)

    Raises
    ------
    UsageError : `out` cannot be written, or would replace the model or the data; the model has no probabilities
    DataError : the model or the data cannot be read; a decision value is beyond float64
    """
    if out == "-":
        out = None
    trained = model.load(model_path)
    if calibrate is not None and not (probability and trained.is_classifier):
        raise UsageError(f"--calibrate {calibrate}", "is for --probability of a classifier", "leave it out")
    if probability and calibrate is None:
        trained.require_probabilities()
    if out is not None:
        _check_out(out, {"model": model_path, "data": data})

    def read(source: str) -> tuple[Examples, NDArray[np.float64]]:
        examples = loading.load([source], zero_based=zero_based, dtype=np.float64, threads=threads).examples
        return examples, _decision_values(trained, examples, source)

    calibration = None
    if calibrate is not None:
        unseen, unseen_values = read(calibrate)
        calibration = platt.Calibration.of(trained.labels, unseen_values, unseen.labels)
    examples, values = read(data)
    scores = model.score(trained.predict_labels(values), examples)
    result: dict[str, object] = {
        **scores,
        "d": examples.d,
        "nnz": examples.nnz,
        "loss": trained.loss,
        "probability": probability,
        "calibrate": calibrate,
        "model": model_path,
        "data": data,
        "out": out,
    }
    if out is not None:
        with atomic_write(out) as file:
            file.write(_text(lines(trained, values, probability=probability, calibration=calibration)).encode())
    elif not as_json:
        tell(_text(lines(trained, values, probability=probability, calibration=calibration)), end="")
    click.echo(describe(scores), err=True)
    if as_json:
        tell(json.dumps(result, allow_nan=False))
    return result


def _decision_values(trained: Model, examples: Examples, source: str) -> NDArray[np.float64]:
    """See Model.decision_values.

    Raises
    ------
    DataError : one is beyond float64, so that not even its sign is known
    """
    with np.errstate(over="ignore", invalid="ignore"):
        values = trained.decision_values(examples)
    wrong = np.flatnonzero(~np.isfinite(values.reshape(examples.n, -1)).all(axis=1))
    if len(wrong):
        raise DataError(
            f"example {wrong[0] + 1} of {source}", "has a decision value beyond float64", "are its values right?"
        )
    return values


def _text(each: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in each)


def _check_out(out: str, inputs: dict[str, str]) -> None:
    """Make sure that `out` can be written and is none of the inputs (what it is called: its path)."""
    check_writable(out)
    if Path(out).exists():
        for what, path in inputs.items():
            if Path(path).exists() and Path(out).samefile(path):
                raise UsageError(f"--out {out}", f"is the file the {what} comes from", "choose another name")


@click.command()
@click.option("--model", "model_path", required=True, metavar="PATH", help="Model that train (or LIBLINEAR) wrote.")
@click.option("--out", metavar="PATH", help="File for the predictions, one a line [default: standard output].")
@click.option(
    "--probability", is_flag=True, help="Write the probability of each label too (logistic loss, or see --calibrate)."
)
@click.option(
    "--calibrate", metavar="HELD_OUT", help="With --probability: fit sigmoids to these unseen examples (Platt)."
)
@click.option(
    "--json",
    "as_json",
    envvar="ACCCOCOA_PREDICT_JSON",
    is_flag=True,
    help="Print the result as one JSON object on standard output.",
)
@click.option("--zero-based", is_flag=True, help="Feature indices in DATA begin at 0.")
@s3_endpoint
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="all processors",
    help="Threads that parse DATA.",
)
@click.argument("data", metavar="DATA")
def predict(
    model_path: str,
    data: str,
    out: str | None,
    probability: bool,
    calibrate: str | None,
    as_json: bool,
    zero_based: bool,
    threads: int,
) -> None:
    """Predict the label (or value) of every example of DATA, a LIBSVM file."""
    run(
        model_path,
        data,
        out=out,
        probability=probability,
        calibrate=calibrate,
        as_json=as_json,
        zero_based=zero_based,
        threads=threads,
    )
