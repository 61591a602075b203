"""--multiclass ovr: one classifier a label over the same shards, as LIBLINEAR makes them."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from liblinear import liblinearutil
from sklearn.datasets import load_digits

from acccocoa import model
from coordinator import cluster, multiclass
from coordinator.cli import main
from coordinator.handshake import Job, ShardDescription
from tests.cluster import recompute
from tests.integration.data import only_json, sidecar
from tests.integration.processes import Launcher, wait_until

LAM = 1e-3


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 examples of four digits, labelled -7, 0, 2.0 and 5."""
    x, y = load_digits(n_class=4, return_X_y=True)
    labels = ("-7", "0", "2.0", "5")
    lines = []
    for row, digit in zip(x[:400] / 16.0, y[:400], strict=True):
        entries = " ".join(f"{j}:{value:g}" for j, value in enumerate(row, 1) if value)
        lines.append(f"{labels[digit]} {entries}\n")
    path = tmp_path_factory.mktemp("digits") / "digits"
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize(("loss", "solver"), [("logistic", 7), ("squared_hinge", 1)])
def test_classifiers_are_liblinears(loss: str, solver: int, launch: Launcher, digits: Path) -> None:
    finished = launch.run(
        *("coordinator", "train", digits, "--local", 2, "--lam", LAM, "--tol", 1e-7, "--loss", loss, "--bias", 1),
        *("--multiclass", "ovr", "--class-weight", "5=3", "--model", "m", "--json", "--quiet", "--trace", "t"),
    )
    assert finished.exit_code == 0, finished.stderr
    result = only_json(finished.stdout)
    assert (result["status"], result["multiclass"], result["model"]) == ("converged", "ovr", "m")
    assert [each["label"] for each in result["classes"]] == ["-7", "0", "2.0", "5"]
    assert all(each["relative_gap"] <= 1e-7 for each in result["classes"])
    assert result["relative_gap"] == max(each["relative_gap"] for each in result["classes"])
    for key in ("primal", "dual", "gap", "rounds", "data_passes"):
        assert result[key] == pytest.approx(sum(each[key] for each in result["classes"]))
    assert sidecar(launch.directory / "m")["classes"] == result["classes"]
    # of every line of the trace it is known which classifier it is of
    trace = [json.loads(line) for line in (launch.directory / "t").read_text().splitlines()]
    assert list(dict.fromkeys(line["label"] for line in trace)) == ["-7", "0", "2.0", "5"]

    y, x = liblinearutil.svm_read_problem(str(digits))
    theirs = liblinearutil.train(y, x, f"-s {solver} -c {1 / (LAM * 400):.17g} -B 1 -e 1e-8 -w5 3 -q")
    ours = model.load(launch.directory / "m")
    assert ours.labels == ("-7", "0", "2.0", "5")
    for label, w in zip(ours.labels, ours.w, strict=True):
        expected, bias = theirs.get_decfun(theirs.get_labels().index(int(float(label))))
        np.testing.assert_allclose(w, [*expected, bias], atol=2e-3)

    # LIBLINEAR predicts the same from the same file
    read = liblinearutil.load_model(str(launch.directory / "m"))
    predicted, _, _ = liblinearutil.predict(y, x, read, "-q")
    probability = ("--probability",) if loss == "logistic" else ()
    told = launch.run("coordinator", "predict", "--model", "m", digits, *probability)
    assert told.exit_code == 0
    lines = told.stdout.splitlines()
    if probability:
        assert lines.pop(0) == "labels -7 0 2.0 5"
        _, _, theirs_probable = liblinearutil.predict(y, x, read, "-q -b 1")
        found = [[float(word) for word in line.split()[1:]] for line in lines]
        np.testing.assert_allclose(found, theirs_probable, rtol=1e-9)
    assert [float(line.split()[0]) for line in lines] == predicted
    assert {line.split()[0] for line in lines} == {"-7", "0", "2.0", "5"}


def test_by_features(launch: Launcher, digits: Path) -> None:
    objective = ("--lam", LAM, "--tol", 1e-6, "--loss", "logistic", "--multiclass", "ovr", "--json", "--quiet")
    one, other = (
        only_json(launch.run("coordinator", "train", digits, "--local", 2, "--partition", by, *objective).stdout)
        for by in ("examples", "features")
    )
    for a, b in zip(one["classes"], other["classes"], strict=True):
        assert a["primal"] == pytest.approx(b["primal"], rel=3e-6)


def test_workers_that_run_on_their_own_serve_every_label(launch: Launcher, digits: Path) -> None:
    workers = launch.workers(digits, 2)
    addresses = ",".join(worker.address for worker in workers)
    train = ("train", "--workers", addresses, "--lam", LAM, "--multiclass", "ovr", "--json", "--quiet")
    first, again = (only_json(launch.run("coordinator", *train).stdout) for _ in range(2))
    assert [each["primal"] for each in first["classes"]] == [each["primal"] for each in again["classes"]]
    # and a limit is one
    alone = launch.run("coordinator", *train[:-4], "--json", "--quiet", "--multiclass", "ovr", "--max-rounds", 1)
    assert alone.exit_code == 3
    assert only_json(alone.stdout)["status"] == "max_rounds"


def test_every_classifier_is_certified_by_itself(launch: Launcher, digits: Path) -> None:
    """The primal value is that of the weights in the model, and the optimum is between it and the dual one."""
    train = ("train", digits, "--local", 2, "--lam", LAM, "--loss", "squared_hinge", "--dtype", "float64")
    told = ("--multiclass", "ovr", "--model", "m", "--json", "--quiet")
    result = only_json(launch.run("coordinator", *train, *told).stdout)
    ours = model.load(launch.directory / "m")
    y, x = liblinearutil.svm_read_problem(str(digits))
    theirs = liblinearutil.train(y, x, f"-s 2 -c {1 / (LAM * 400):.17g} -e 1e-10 -q")
    table = recompute.read_table(digits)  # whose values float32 has, too
    assert len(result["classes"]) == 4
    for label, w, said in zip(ours.labels, ours.w, result["classes"], strict=True):
        one = recompute.Table(table.rows, np.where(table.labels == float(label), 1.0, -1.0))
        assert recompute.primal("squared_hinge", LAM, one, w) == pytest.approx(said["primal"], rel=1e-12)
        best, _ = theirs.get_decfun(theirs.get_labels().index(int(float(label))))
        optimum = recompute.primal("squared_hinge", LAM, one, np.array(best))
        assert said["dual"] <= optimum
        assert optimum <= said["primal"] * (1 + 1e-8)
        assert said["gap"] == pytest.approx(said["primal"] - said["dual"])
        assert 0 <= said["relative_gap"] <= 1e-3


@pytest.mark.parametrize("by", ["examples", "features"])
def test_each_is_together_what_it_is_alone(
    by: str, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit and round for round: one that needs more rounds goes on when the others are done."""

    def trained(size: int, threads: int = 1) -> tuple[bytes, dict[str, Any], list[str]]:
        """Model, result, and the labels in the trace, so many solved at the same time."""
        monkeypatch.setattr(multiclass, "together", lambda *_: size)
        name, trace = (tmp_path / f"{what}{size}" for what in ("model", "trace"))
        train = [
            "train",
            str(digits),
            "--local",
            "2",
            "--threads",
            str(threads),
            "--partition",
            by,
            "--loss",
            "logistic",
        ]
        told = ["--multiclass", "ovr", "--model", str(name), "--trace", str(trace), "--quiet", "--certify-every-round"]
        assert (
            CliRunner().invoke(main, [*train, *told, "--lam", "0.01", "--tol", "1e-3", "--local-epochs", "1"]).exit_code
            == 0
        )
        labels = [json.loads(line)["label"] for line in trace.read_text().splitlines()]
        return name.read_bytes(), sidecar(name), labels

    alone, result, one_by_one = trained(1)
    assert one_by_one == sorted(one_by_one, key=float)
    rounds = [each["rounds"] for each in result["classes"]]
    assert len(set(rounds)) > 1
    # threads solve problems, not blocks, where there are as many
    for size, threads in ((4, 2), (3, 1)) if by == "examples" else ((4, 2),):
        together, other, labels = trained(size, threads)
        assert other["threads"] == threads
        assert together == alone
        for key in ("primal", "dual", "rounds", "data_passes", "restarts"):
            assert [each[key] for each in other["classes"]] == [each[key] for each in result["classes"]]
        assert labels[0] != labels[1]


def test_classifiers_go_on_from_what_is_left_of_a_worker(
    launch: Launcher, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back without any state, and nobody remembers the rounds there were: those under way resync."""
    workers = launch.workers(digits, 2)
    trace = tmp_path / "trace"
    addresses = ",".join(worker.address for worker in workers)
    train = [
        "train",
        "--workers",
        addresses,
        "--lam",
        "1e-3",
        "--tol",
        "1e-5",
        "--multiclass",
        "ovr",
        "--json",
        "--quiet",
    ]
    told = ["--trace", str(trace), "--certify-every-round", "--local-epochs", "0.5"]
    expected = only_json(CliRunner().invoke(main, [*train, *told]).stdout)
    rounds = [each["rounds"] for each in expected["classes"]]
    trace.unlink()

    def replace_one() -> None:
        """When one classifier is certified and another is not."""
        wait_until(lambda: trace.exists() and f'"round": {(min(rounds) + max(rounds)) // 2},' in trace.read_text(), "")
        workers[1].signal(signal.SIGKILL)
        workers[1].finish()
        launch.worker(f"{digits}#1/2", listen=workers[1].address)

    monkeypatch.setattr(cluster, "LOG_ROUNDS", 1)
    with ThreadPoolExecutor(1) as pool:
        replaced = pool.submit(replace_one)
        again = CliRunner().invoke(main, [*train, *told])
        assert again.exit_code == 0, again.stderr
        result = only_json(again.stdout)
        replaced.result()
    assert (result["status"], result["reconnects"], result["replayed"]) == ("converged", 1, 0)
    for one, other in zip(expected["classes"], result["classes"], strict=True):
        assert one["primal"] == pytest.approx(other["primal"], rel=2e-5)
        assert other["resyncs"] <= 1
    # those that were certified by then stand
    assert 0 < result["resyncs"] < 4
    first = int(np.argmin(rounds))
    assert result["classes"][first]["primal"] == expected["classes"][first]["primal"]


def test_as_many_are_solved_together_as_the_data_has_room_for() -> None:
    def together(n: int, nnz: int, d: int, memory: int = 1 << 36) -> int:
        shard = ShardDescription("a", 4, "", "h", n, d, nnz, (), False, 1, "", "float32")
        job = Job(2 * n, d, 2 * nnz, 2, 1.0, (), 2 * n, d, by_features=False)
        return multiclass.together(job, [replace(shard, n=n // 2), shard], memory)

    assert together(1000, 50_000, 100) > 100  # small
    # dual variables of 60 bytes a row beside rows of 800
    assert together(4_000_000, 400_000_000, 100) == 13
    assert together(100_000_000, 400_000_000, 100) == 1  # at least one
    # vectors of 10 million features here: 480 MB a problem
    assert together(1_000_000, 2_000_000_000, 10_000_000, memory=8 << 30) == 4
    assert together(1_000_000, 2_000_000_000, 10_000_000) == 35


def test_two_labels_are_a_binary_problem(launch: Launcher, sparse: Path) -> None:
    train = ("train", sparse, "--local", 2, "--lam", LAM, "--quiet")
    assert launch.run("coordinator", *train, "--model", "a", "--multiclass", "ovr").exit_code == 0
    assert launch.run("coordinator", *train, "--model", "b").exit_code == 0
    assert (launch.directory / "a").read_bytes() == (launch.directory / "b").read_bytes()


def test_more_than_two_labels_are_refused_without_it(launch: Launcher, digits: Path) -> None:
    finished = launch.run("coordinator", "train", digits, "--local", 2, "--quiet")
    assert finished.exit_code == 4
    assert "labels -7 (99), 0 (100), 2.0 (100), 5 (101): " in finished.stderr
    assert "--multiclass ovr" in finished.stderr


def test_usage(digits: Path) -> None:
    train = ["train", str(digits), "--multiclass", "ovr"]
    refused = CliRunner().invoke(main, [*train, "--loss", "squared"])
    assert (refused.exit_code, "knows no classes" in refused.stderr) == (2, True)
    checkpointed = CliRunner().invoke(main, [*train, "--checkpoint", "c"])
    assert (checkpointed.exit_code, "--checkpoint c" in checkpointed.stderr) == (2, True)
