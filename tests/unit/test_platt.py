"""Calibrated probabilities, against scikit-learn and against the truth."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from sklearn.calibration import _sigmoid_calibration

from acccocoa import platt
from acccocoa.errors import DataError
from acccocoa.model import Model
from coordinator.predict import predict


def drawn(n: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Decision values, and labels with P = 1 / (1 + exp(-2 f - 0.5))."""
    rng = np.random.default_rng(seed)
    values = 2.0 * rng.standard_normal(n)
    return values, rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * values - 0.5))


@pytest.mark.parametrize(("n", "scale"), [(5, 1.0), (200, 1.0), (2000, 1e-4), (2000, 1e4)])
def test_the_sigmoid_is_that_of_scikit_learn(n: int, scale: float) -> None:
    values, positive = drawn(n)
    found = platt.fit(scale * values, positive)
    a, b = _sigmoid_calibration(scale * values, positive.astype(float))
    expected = 1.0 / (1.0 + np.exp(a * scale * values + b))
    np.testing.assert_allclose(found(scale * values), expected, atol=2e-4)


def test_it_finds_the_truth() -> None:
    found = platt.fit(*drawn(200_000))
    assert [found.a, found.b] == pytest.approx([-2.0, -0.5], abs=0.05)


@pytest.mark.parametrize("values", [[-1.0, 2.0, -1.0, 2.0], [3.0, 3.0, 3.0, 3.0], [0.0, 1e300, -1e-300, 1e3]])
def test_odd_values(values: list[float]) -> None:
    found = platt.fit(np.array(values), np.array([False, True, False, True]))(np.array(values))
    assert np.isfinite(found).all()
    assert ((found > 0) & (found < 1)).all() or max(values) > 1e100
    if values[0] == values[1]:
        np.testing.assert_allclose(found, 0.5)


def test_one_label_is_not_enough() -> None:
    with pytest.raises(DataError, match=r"3 of 3 examples to calibrate by: have label \+1:"):
        platt.fit(np.arange(3.0), np.ones(3, dtype=np.bool_))


def written(path: Path, values: NDArray[np.float64], labels: list[str]) -> Path:
    path.write_text("".join(f"{label} 1:{value!r}\n" for value, label in zip(values.tolist(), labels, strict=True)))
    return path


def test_predict_with_a_held_out_part(tmp_path: Path) -> None:
    (held, positive), (fresh, of_fresh) = drawn(3000), drawn(3000, seed=1)
    spelled = {True: "+1", False: "-1"}
    held_out = written(tmp_path / "held", held, [spelled[bool(label)] for label in positive])
    data = written(tmp_path / "data", fresh, [spelled[bool(label)] for label in of_fresh])
    Model(loss="hinge", labels=("+1", "-1"), w=np.array([1.0])).save(tmp_path / "m", {})
    arguments = ["--model", str(tmp_path / "m"), str(data), "--probability"]
    refused = CliRunner().invoke(predict, arguments)
    assert refused.exception is not None
    assert "--calibrate" in str(refused.exception)
    done = CliRunner().invoke(predict, [*arguments, "--calibrate", str(held_out)])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "labels +1 -1"
    found = np.array([[float(word) for word in line.split()[1:]] for line in lines[1:]])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    # of the examples that are given a probability about q, about q have the label
    for low in np.arange(0.0, 1.0, 0.2):
        of_these = (found[:, 0] >= low) & (found[:, 0] < low + 0.2)
        assert of_fresh[of_these].mean() == pytest.approx(found[of_these, 0].mean(), abs=0.12)
    told = CliRunner().invoke(predict, [*arguments, "--calibrate", str(held_out), "--json"])
    assert json.loads(told.stdout)["calibrate"] == str(held_out)
    misused = CliRunner().invoke(predict, [*arguments[:3], "--calibrate", str(held_out)])
    assert "is for --probability" in str(misused.exception)


def test_more_than_two_labels() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 600).astype(np.float64)
    values = rng.standard_normal((600, 3)) + 2.0 * (labels[:, None] == np.arange(3))
    calibration = platt.Calibration.of(("0", "1", "2"), values, labels)
    found = calibration(values)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert np.mean(found.argmax(axis=1) == labels) > 0.7
    with pytest.raises(DataError):
        platt.Calibration.of(("7", "0"), values[:, 0], labels)
