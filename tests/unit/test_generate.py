"""The command generate: LIBSVM text of synthetic data in a file or on standard output."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from acccocoa import libsvm
from acccocoa.synthetic import SHAPES, write
from coordinator.cli import main


@pytest.mark.parametrize("like", list(SHAPES))
def test_a_file_of_the_size_asked_for(tmp_path: Path, like: str) -> None:
    out = tmp_path / "data"
    arguments = ["generate", "--like", like, "--n", "30", "--d", "60", "--seed", "7", "--out", str(out)]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.output) == (0, "")
    examples = libsvm.read([str(out)])
    assert examples.n == 30
    assert 0 < examples.d <= 60
    assert np.isfinite(examples.values).all()


def test_standard_output(tmp_path: Path) -> None:
    expected = BytesIO()
    write("rcv1", 5, 100, 0, expected)
    result = CliRunner().invoke(main, ["generate", "--like", "rcv1", "--n", "5", "--d", "100", "--out", "-"])
    assert result.exit_code == 0
    assert result.stdout_bytes == expected.getvalue()


def test_options_come_from_the_environment(tmp_path: Path) -> None:
    environment = {f"ACCCOCOA_GENERATE_{name}": value for name, value in {"LIKE": "lasso", "N": "3", "D": "20"}.items()}
    result = CliRunner().invoke(main, ["generate", "--out", "-"], env=environment)
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 3


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--n", "0", "error: n 0: must be at least 1"),
        ("--d", "3", "error: d 3: must be at least 16 for rcv1"),
        ("--seed", "-1", "error: seed -1: must lie within 0"),
        ("--out", "/dev/full", "error: --out /dev/full: cannot be written: No space left on device"),
        ("--like", "mnist", "'mnist' is not one of 'covtype'"),
    ],
)
def test_wrong_usage_is_exit_code_2(option: str, value: str, message: str) -> None:
    arguments = {"--like": "rcv1", "--n": "5", "--d": "100", "--out": "-"} | {option: value}
    result = CliRunner().invoke(main, ["generate", *(word for pair in arguments.items() for word in pair)])
    assert result.exit_code == 2
    assert message in result.stderr
