"""The command `predict`, through its command line."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from liblinear import liblinearutil

from acccocoa.errors import AcccocoaError, DataError, ParseError, UsageError
from acccocoa.model import Model
from coordinator.predict import describe, lines, predict

DATA = "+1 1:1\n-1 1:-2 2:0.5\n1 2:1e-1 9:7\n-1.0\n"
"""Decision values under WEIGHTS: 0.5, -1.25, -0.05, 0."""

WEIGHTS = np.array([0.5, -0.5])
LABELS = ("+1", "-1.0")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, holding the data and a model of each kind."""
    monkeypatch.chdir(tmp_path)
    Path("data").write_text(DATA)
    Model("hinge", LABELS, WEIGHTS).save("svm", {})
    Model("logistic", LABELS, WEIGHTS).save("logistic", {})
    Model("squared", (), WEIGHTS).save("ridge", {})
    return tmp_path


def invoke(*arguments: str, fails: bool = False) -> Result:
    result = CliRunner().invoke(predict, arguments)
    if not fails:
        assert result.exit_code == 0, result.output
        assert result.exception is None
    return result


def error_of(*arguments: str) -> AcccocoaError:
    result = invoke(*arguments, fails=True)
    assert isinstance(result.exception, AcccocoaError)
    assert result.stdout == ""
    return result.exception


@pytest.mark.parametrize("out", [(), ("--out", "-")])
def test_labels_go_to_standard_output(out: tuple[str, ...], directory: Path) -> None:
    result = invoke("--model", "svm", "data", *out)
    assert result.stdout == "+1\n-1.0\n-1.0\n-1.0\n"
    assert result.stderr == "accuracy = 75% (3/4)\n"
    assert not (directory / "-").exists()


def test_labels_go_to_a_file(directory: Path) -> None:
    result = invoke("--model", "svm", "data", "--out", "out")
    assert result.stdout == ""
    assert result.stderr == "accuracy = 75% (3/4)\n"
    assert (directory / "out").read_bytes() == b"+1\n-1.0\n-1.0\n-1.0\n"


@pytest.mark.usefixtures("directory")
def test_values_are_exact() -> None:
    result = invoke("--model", "ridge", "data")
    assert [float(line) for line in result.stdout.splitlines()] == [0.5, -1.25, -0.5 * 0.1, 0.0]
    assert result.stderr.startswith("mean squared error = 0.6037")
    assert result.stderr.endswith(" (4 examples)\n")


@pytest.mark.usefixtures("directory")
def test_probabilities() -> None:
    result = invoke("--model", "logistic", "data", "--probability")
    header, *rows = result.stdout.splitlines()
    assert header == "labels +1 -1.0"
    assert [row.split()[0] for row in rows] == ["+1", "-1.0", "-1.0", "-1.0"]
    p = np.array([row.split()[1:] for row in rows], dtype=np.float64)
    np.testing.assert_allclose(p[:, 0], 1 / (1 + np.exp([-0.5, 1.25, 0.05, 0])), rtol=1e-15)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-15)


def test_probabilities_as_liblinear_gives_them(directory: Path) -> None:
    Model("logistic", ("2", "1"), WEIGHTS).save("model", {})
    theirs = liblinearutil.load_model("model")
    rows = [{1: 1.0}, {1: -2.0, 2: 0.5}, {2: 0.1, 9: 7.0}, {}]
    labels, _, probabilities = liblinearutil.predict([], rows, theirs, "-b 1 -q")
    invoke("--model", "model", "data", "--probability", "--out", "out")
    header, *ours = (directory / "out").read_text().splitlines()
    assert header == "labels 2 1"
    assert [float(row.split()[0]) for row in ours] == labels
    np.testing.assert_allclose([list(map(float, row.split()[1:])) for row in ours], probabilities, rtol=1e-14)


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("out", [None, "out"])
def test_json_of_a_classifier(out: str | None) -> None:
    result = invoke("--model", "svm", "data", "--json", *(("--out", out) if out else ()))
    assert json.loads(result.stdout) == {
        "n": 4,
        "d": 9,
        "nnz": 5,
        "n_correct": 3,
        "accuracy": 0.75,
        "loss": "hinge",
        "probability": False,
        "calibrate": None,
        "model": "svm",
        "data": "data",
        "out": out,
    }
    assert result.stdout.count("\n") == 1
    assert result.stderr == "accuracy = 75% (3/4)\n"
    assert Path("out").exists() == (out is not None)


@pytest.mark.usefixtures("directory")
def test_json_of_a_regression() -> None:
    result = json.loads(invoke("--model", "ridge", "data", "--json").stdout)
    residuals = np.array([0.5 - 1, -1.25 + 1, -0.05 - 1, 0 + 1])
    assert result["mse"] == pytest.approx(np.mean(residuals**2))
    assert result["r2"] == pytest.approx(1 - np.mean(residuals**2))  # two labels of either sign: their variance is 1
    assert "accuracy" not in result


@pytest.mark.usefixtures("directory")
def test_zero_based_data() -> None:
    Path("data").write_text("1 0:1\n-1 0:-2 1:0.5\n")
    assert invoke("--model", "ridge", "data", "--zero-based").stdout == "0.5\n-1.25\n"
    assert error_of("--model", "ridge", "data").exit_code == 4


@pytest.mark.usefixtures("directory")
def test_model_in_an_archive() -> None:
    Model("hinge", LABELS, WEIGHTS).save("svm.npz", {})
    assert invoke("--model", "svm.npz", "data").stdout == invoke("--model", "svm", "data").stdout


@pytest.mark.usefixtures("directory")
def test_values_are_not_rounded_to_float32() -> None:
    Path("data").write_text("0 1:0.1\n")
    Model("squared", (), np.ones(1)).save("one", {})
    assert invoke("--model", "one", "data").stdout == "0.1\n"


def test_threads_give_the_same(directory: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 2))
    (directory / "data").write_text("".join(f"1 1:{a!r} 2:{b!r}\n" for a, b in rows.tolist()))
    one, two = (invoke("--model", "ridge", "data", "--threads", count).stdout for count in "12")
    assert one == two
    assert invoke("--model", "ridge", "data", "--threads", "0", fails=True).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("--model", "absent", "data"), DataError, "absent: cannot be read: No such file or directory"),
        (("--model", "data", "data"), DataError, "data:1: starts with '+1', where "),
        (("--model", "svm", "absent"), DataError, "absent: cannot be read: No such file or directory"),
        (("--model", "svm", "bad"), ParseError, "bad:2:"),
        (("--model", "svm", "absent", "--probability"), UsageError, "probabilities of a model of loss hinge: only"),
        (
            ("--model", "ridge", "absent", "--probability"),
            UsageError,
            "probabilities of a model of loss squared: are of",
        ),
        (("--model", "svm", "absent", "--out", "no/out"), UsageError, "no/out: cannot be written: No such file"),
        (("--model", "svm", "absent", "--out", "."), UsageError, ".: is a directory; name a file"),
        (
            ("--model", "svm", "data", "--out", "data"),
            UsageError,
            "--out data: is the file the data comes from; choose",
        ),
        (
            ("--model", "svm", "data", "--out", "link"),
            UsageError,
            "--out link: is the file the model comes from; choose",
        ),
    ],
)
def test_errors(directory: Path, arguments: tuple[str, ...], kind: type[AcccocoaError], message: str) -> None:
    (directory / "bad").write_text("1 1:1\n1 1:x\n")
    (directory / "link").symlink_to("svm")
    before = {entry.name: entry.read_bytes() for entry in directory.iterdir()}
    error = error_of(*arguments)
    assert type(error) is kind
    assert str(error).startswith(message)
    assert {entry.name: entry.read_bytes() for entry in directory.iterdir()} == before


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("arguments", [(), ("data",), ("--model", "svm"), ("--model", "svm", "data", "data")])
def test_missing_or_surplus_arguments(arguments: tuple[str, ...]) -> None:
    assert invoke(*arguments, fails=True).exit_code == 2


@pytest.mark.parametrize("arguments", [("huge",), ("data", "--probability", "--calibrate", "huge")])
def test_a_decision_value_beyond_float64(arguments: tuple[str, ...], directory: Path) -> None:
    Model("hinge", LABELS, 1e10 * WEIGHTS).save("steep", {})
    (directory / "huge").write_text("+1 1:1\n-1 1:1e308 2:1e308\n")
    error = error_of("--model", "steep", *arguments)
    assert str(error) == "example 2 of huge: has a decision value beyond float64; are its values right?"
    assert isinstance(error, DataError)


def test_output_that_fails_leaves_the_old_file(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "out").write_text("old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    assert str(error_of("--model", "svm", "data", "--out", "out")).startswith("out: cannot be written: No space")
    assert (directory / "out").read_text() == "old"


def test_lines_of_no_examples() -> None:
    none = np.zeros(0)
    assert list(lines(Model("hinge", LABELS, WEIGHTS), none)) == []
    assert list(lines(Model("logistic", LABELS, WEIGHTS), none, probability=True)) == ["labels +1 -1.0"]


def test_undefined_scores_are_said_to_be() -> None:
    assert describe({"n": 0, "n_correct": 0, "accuracy": None}) == "accuracy = undefined (0/0)"
    assert describe({"n": 2, "mse": 0.5, "r2": None}) == "mean squared error = 0.5, R2 = undefined (2 examples)"
