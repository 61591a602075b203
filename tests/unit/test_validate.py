"""The command `validate`, through its command line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from acccocoa import libsvm, shardfile
from acccocoa.errors import DataError
from coordinator.validate import validate

GOOD = "+1 1:0.5 3:-2\n-1 2:1\n"
BAD = "1 1:1\n1 0:1\nx\n2 2:5 1:1\n3 1:2\n"


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good").write_text(GOOD)
    Path("bad").write_text(BAD)


def invoke(*arguments: str, faulty: bool = False) -> Result:
    result = CliRunner().invoke(validate, arguments)
    assert isinstance(result.exception, DataError) == faulty, result.output
    assert (result.exit_code == 0) != faulty
    return result


def figures(*arguments: str, faulty: bool = False) -> dict[str, Any]:
    found = json.loads(invoke(*arguments, "--json", faulty=faulty).stdout)
    assert isinstance(found, dict)
    return found


def test_figures() -> None:
    found = figures("good")
    assert found == {
        "n": 2,
        "d": 3,
        "nnz": 3,
        "density": 0.5,
        "labels": [{"label": -1.0, "spelling": "-1", "count": 1}, {"label": 1.0, "spelling": "+1", "count": 1}],
        "label_range": [-1.0, 1.0],
        "row_norm": pytest.approx({"min": 1.0, "tenth": 1.0, "median": 0.5 + 0.5 * 4.25**0.5, "max": 4.25**0.5}),
        "empty_rows": 0,
        "feature_maximum": {"min": 0.5, "tenth": 0.5, "median": 1.0, "max": 2.0},
        "features": 3,
        "warnings": [],
        "fault_count": 0,
        "faults": [],
        "error": None,
    }


def test_for_a_person() -> None:
    result = invoke("good")
    assert result.stdout.splitlines() == [
        "examples   2",
        "features   3",
        "entries    3 (density 50 %)",
        "labels     -1: 1, +1: 1",
        "row norm   min 1, median 1.53078, max 2.06155",
        "magnitude  min 0.5, median 1, max 2 (of a feature, the largest)",
    ]
    assert result.stderr == ""
    Path("other").write_text("".join(f"{label} 3:1\n" for label in range(30)) + "7\n")
    lines = invoke("other").stdout.splitlines()
    assert lines[:4] == [
        "examples   31, 1 of them without a value",
        "features   3, 1 of them occur",
        "entries    30 (density 32.26 %)",
        "labels     30 values from 0 to 29",
    ]
    Path("other").write_text("".join(f"{label} 3:1\n" for label in range(2000)))
    assert "labels     many values from 0 to 1999" in invoke("other").stdout


def test_every_fault() -> None:
    result = invoke("bad", "good", faulty=True)
    assert result.stderr.splitlines() == [
        "bad:2:3: the index 0, indices begin at 1; if they begin at 0 in this data, say --zero-based",
        "bad:3:1: the label 'x' is not a decimal number",
        "bad:4:7: the index 1 follows 2, they must ascend; sort the entries of each line",
    ]
    assert str(result.exception) == "bad, good: 3 faulty lines"
    assert result.stdout.startswith("examples   4\n")
    found = figures("bad", faulty=True)
    assert (found["n"], found["fault_count"], len(found["faults"])) == (2, 3, 3)
    assert found["faults"][1] == {
        "file": "bad",
        "line": 3,
        "column": 1,
        "requirement": "the label 'x' is not a decimal number",
        "remedy": "",
    }


def test_no_more_faults_than_asked_for() -> None:
    result = invoke("bad", "--max-faults", "1", faulty=True)
    assert result.stderr.splitlines()[1:] == ["and 2 more"]
    found = figures("bad", "--max-faults", "0", faulty=True)
    assert (found["fault_count"], found["faults"]) == (3, [])


def test_options_of_reading() -> None:
    assert figures("bad", "--zero-based", faulty=True)["fault_count"] == 2
    Path("large").write_text("1 1:1e39\n")
    assert figures("large", faulty=True)["faults"][0]["remedy"] == "--dtype float64 holds it"
    assert figures("large", "--dtype", "float64")["row_norm"]["max"] == 1e39


@pytest.mark.parametrize("name", ["none", "cut.gz"])
def test_what_cannot_be_read_to_its_end(name: str) -> None:
    Path("cut.gz").write_bytes(gzip.compress(GOOD.encode())[:-9])
    result = invoke("good", name, faulty=True)
    assert f"{name}: cannot be read" in str(result.exception)
    assert result.stdout.startswith("examples   2\n")  # what could be read
    assert figures("good", name, faulty=True)["error"] == str(result.exception)


def test_nothing_at_all() -> None:
    Path("empty").write_text("# nothing\n")
    assert "there is no example" in str(invoke("empty", faulty=True).exception)


def test_shard_files() -> None:
    shardfile.write("good.shard", libsvm.parse(GOOD.encode()))
    assert figures("good.shard") == figures("good")
    assert figures("good.shard", "good")["n"] == 4


def test_warnings() -> None:
    Path("good").write_text("1 1:1\n" * 10 + "1 1:1000\n")
    result = invoke("good")
    assert result.stderr.startswith("warning: examples differ in norm: the largest is 1000, the median 1;")
    assert "--normalize rows" in figures("good")["warnings"][0]
