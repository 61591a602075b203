"""train --wire float32 with real processes: half the bytes, the same optimum, a certificate that is as true."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from acccocoa import synthetic
from coordinator import multiclass
from coordinator.cli import main
from tests.cluster import recompute
from tests.cluster.arena import Arena
from tests.integration.processes import Launcher

MakeArena = Callable[..., Arena]

NARROW = ("--wire", "float32", "--deterministic")


@pytest.fixture(scope="module")
def wide_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 examples of 5,000 features: what travels is more than what is around it."""
    path = tmp_path_factory.mktemp("data") / "rcv1.txt"
    synthetic.write("rcv1", 400, 5000, 5, path)
    return path


def assert_true(arena: Arena, result: dict[str, Any], data: Path, loss: str, lam: float, tol: float) -> None:
    """Primal and dual are those of the model and of the workers' dual variables, computed anew."""
    table = recompute.read_table(data)
    primal = recompute.primal(loss, lam, table, recompute.read_weights(arena.model))
    parts = [recompute.newest_duals(arena.state(number)) for number in range(len(arena.workers))]
    dual = recompute.dual(loss, lam, table, recompute.join(table.n, parts))
    assert result["primal"] == pytest.approx(primal, rel=1e-11)
    assert result["dual"] == pytest.approx(dual, rel=1e-11)
    assert -1e-12 <= (primal - dual) / primal <= tol


def bytes_a_round(arena: Arena) -> tuple[float, float]:
    """Pushed and returned, by the trace: without what a job begins and ends with."""
    lines = [json.loads(line) for line in arena.trace.read_text().splitlines()]
    rounds = lines[-1]["round"] - lines[0]["round"]
    pushed, returned = (lines[-1][way] - lines[0][way] for way in ("bytes_pushed", "bytes_returned"))
    return pushed / rounds, returned / rounds


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_half_the_bytes_and_the_same_optimum(arena: MakeArena, wide_rows: Path, loss: str) -> None:
    some = arena(wide_rows, 2)
    for tol in (1e-3, 1e-6):
        options = ("--loss", loss, "--lam", "1e-3", "--tol", str(tol))
        wide, _ = some.undisturbed(*options)
        wide_bytes = bytes_a_round(some)
        narrow, model = some.undisturbed(*options, *NARROW)
        assert_true(some, narrow, wide_rows, loss, 1e-3, tol)
        assert (wide["wire"], narrow["wire"]) == ("float64", "float32")
        assert narrow["deterministic"]
        assert narrow["primal"] == pytest.approx(wide["primal"], rel=2 * tol)
        if tol == 1e-3:
            assert narrow["widened"] is None
            for ours, theirs in zip(bytes_a_round(some), wide_bytes, strict=True):
                assert 0.5 < ours / theirs < 0.53
        again = some.undisturbed(*options, *NARROW)
        assert again[1] == model
        assert again[0]["bytes"] == pytest.approx(narrow["bytes"], rel=0.01)  # but for signs of life


@pytest.mark.parametrize("kept", [True, False], ids=["state", "no state"])
def test_a_killed_worker_repeats_rounds_to_the_same_bits(arena: MakeArena, covtype_like: Path, kept: bool) -> None:
    """Before vectors become float64: that is a resync, and from before it no rounds lead on."""
    some = arena(covtype_like, kept=kept)
    options = ("--lam", "1e-3", "--tol", "1e-7", "--certify-every-round", *NARROW)
    expected, model = some.undisturbed(*options)
    assert expected["widened"] is not None
    coordinator = some.train(*options)
    some.wait_round(expected["widened"] // 2, coordinator)
    some.workers[1].kill()
    some.back(1)
    result = some.result(coordinator)
    assert (result["reconnects"], result["resyncs"]) == (1, expected["resyncs"])
    assert (result["rounds"], result["deterministic"]) == (expected["rounds"], True)
    assert some.model.read_bytes() == model
    if kept:
        assert_true(some, result, covtype_like, "hinge", 1e-3, 1e-7)


def test_a_killed_coordinator_is_resumed_to_the_same_bits(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    options = ("--lam", "1e-4", "--tol", "1e-4", "--certify-every-round", *NARROW)
    _, model = some.undisturbed(*options)
    coordinator = some.train(*options)
    some.wait_round(200, coordinator)
    coordinator.kill()
    result = some.result(some.train(*options, "--resume"))
    assert (result["resyncs"], result["deterministic"]) == (0, True)
    assert some.model.read_bytes() == model


@pytest.mark.parametrize("ways", [("float32", "float64"), ("float64", "float32")])
def test_another_wire_after_a_resume_is_a_resync(arena: MakeArena, covtype_like: Path, ways: tuple[str, str]) -> None:
    some = arena(covtype_like)
    options = ("--lam", "1e-4", "--tol", "1e-4", "--certify-every-round")
    coordinator = some.train(*options, "--wire", ways[0])
    some.wait_round(200, coordinator)
    coordinator.kill()
    result = some.result(some.train(*options, "--wire", ways[1], "--resume"))
    assert (result["status"], result["wire"], result["deterministic"]) == ("converged", ways[1], False)
    assert result["resyncs"] >= 1
    assert_true(some, result, covtype_like, "hinge", 1e-4, 1e-4)


# ------------------------------------------------------------------------------------------ on one machine, as users do


def told(launch: Launcher, *arguments: object, code: int = 0) -> dict[str, Any]:
    """The object that a command prints."""
    done = launch.run("coordinator", *arguments, "--json", "--quiet")
    assert done.exit_code == code, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_classifiers_of_several_labels_are_what_each_is_alone(
    wide_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some have become float64 while others are float32 still, in the same messages."""
    lines = [line.partition(" ")[2] for line in wide_rows.read_text().splitlines()]
    many = tmp_path / "many"
    labels = (1 if number % 8 else 2 + number % 3 for number in range(len(lines)))
    many.write_text("".join(f"{label} {line}\n" for label, line in zip(labels, lines, strict=True)))
    options = ("--local", "2", "--threads", "1", "--lam", "1e-3", "--tol", "1e-6", "--local-epochs", "1", *NARROW)
    found = []
    for size in (1, 4):
        monkeypatch.setattr(multiclass, "together", lambda *_, size=size: size)
        model = tmp_path / f"model{size}"
        told = ("--multiclass", "ovr", "--model", str(model), "--quiet", "--certify-every-round")
        assert CliRunner().invoke(main, ["train", str(many), *options, *told]).exit_code == 0
        result = json.loads(model.with_name(f"{model.name}.json").read_text())
        classes = [{key: each[key] for key in each if key != "solve_seconds"} for each in result["classes"]]
        found.append((classes, model.read_bytes()))
    assert found[0] == found[1]
    assert len({each["widened"] for each in found[0][0]}) > 1


def test_path_and_cv(launch: Launcher, wide_rows: Path) -> None:
    grid = ("--points", 3, "--lam-max", 1e-2, "--lam-min-ratio", 0.1, "--local", 2)
    for command in (("path",), ("cv", "--folds", 2)):
        wide, narrow = (told(launch, *command, wide_rows, *grid, *wire) for wire in ((), NARROW))
        assert (narrow["wire"], narrow["deterministic"]) == ("float32", True)
        assert narrow["bytes"]["pushed"] < 0.8 * wide["bytes"]["pushed"]
        for ours, theirs in zip(narrow["points"], wide["points"], strict=True):
            if command == ("path",):
                assert ours["primal"] == pytest.approx(theirs["primal"], rel=2e-3)
            else:
                assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=0.02)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--wire", "float32", "--loss", "squared", "--l1-ratio", "1"), "--wire float32: is by examples only"),
        (("--wire", "float32", "--loss", "squared", "--partition", "features"), "--partition examples"),
        (("--wire", "float32", "--loss", "squared", "--l1-ratio", "0.5"), "--wire float32: is by examples only"),
        (("--wire", "float16"), "float16"),
        (("--deterministic", "--round-seconds", "1"), "give --local-epochs instead"),
        (("--deterministic", "--max-seconds", "1"), "give --max-rounds instead"),
    ],
)
def test_what_does_not_go_together(launch: Launcher, wide_rows: Path, options: tuple[str, ...], words: str) -> None:
    refused = launch.run("coordinator", "train", wide_rows, "--local", 1, *options)
    assert refused.exit_code == 2
    assert words in refused.stderr


def test_workers_whose_shards_are_features(arena: MakeArena, wide_rows: Path) -> None:
    some = arena(wide_rows, 2, by="features", kept=False)
    refused = some.train("--loss", "squared", "--wire", "float32")
    assert refused.wait(60.0) == 2
    assert "--wire float32: is by examples only" in refused.stderr


def test_what_a_clock_decides_is_called_so(launch: Launcher, wide_rows: Path) -> None:
    assert told(launch, "train", wide_rows, "--local", 1)["deterministic"]
    assert not told(launch, "train", wide_rows, "--local", 1, "--round-seconds", 0.001)["deterministic"]
    hard = ("--lam", 1e-9, "--tol", 1e-15)
    late = told(launch, "train", wide_rows, "--local", 1, *hard, "--max-seconds", 0.05, code=3)
    assert (late["status"], late["deterministic"]) == ("max_seconds", False)
