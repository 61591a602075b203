"""train on an embedded cluster, from the data to the model and what others read in it."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from liblinear import liblinearutil

from acccocoa import model, synthetic
from coordinator.predict import predict as predict_command
from tests.integration.data import load, only_json, sidecar, sparse_text, weights
from tests.integration.processes import Launcher

KEYS = {
    "status", "primal", "dual", "gap", "relative_gap", "rounds", "data_passes", "restarts", "resyncs", "seconds",
    "bytes", "n", "d", "nnz", "workers", "threads", "loss", "lam", "l1_ratio", "partition", "gamma", "sigma",
    "accelerate", "seed", "model",
}  # fmt: skip
"""Of the --json object, by the contract."""

TRACE_KEYS = {
    "round", "seconds", "data_passes", "theta", "primal", "dual", "gap", "relative_gap", "best_gap",
    "best_relative_gap", "restart", "bytes_pushed", "bytes_returned", "workers",
}  # fmt: skip


@pytest.mark.as_users_do
def test_from_data_to_predictions(launch: Launcher, sparse: Path) -> None:
    finished = launch.run(
        "coordinator",
        "train",
        sparse,
        "--local",
        2,
        "--lam",
        1e-3,
        "--json",
        "--model",
        "m",
        "--trace",
        "t",
        "--seed",
        3,
    )
    assert finished.exit_code == 0, finished.stderr
    data = load(sparse)

    result = only_json(finished.stdout)
    assert result.keys() >= KEYS
    assert result["status"] == "converged"
    assert 0 <= result["relative_gap"] <= 1e-3
    assert result["gap"] == pytest.approx(result["primal"] - result["dual"], abs=1e-15)
    assert result["relative_gap"] == pytest.approx(result["gap"] / result["primal"], rel=1e-12)
    assert (result["n"], result["d"], result["nnz"]) == (*data.rows.shape, data.rows.nnz)
    assert result["threads"] == max(1, len(os.sched_getaffinity(0)) // 2)
    assert (result["workers"], result["gamma"], result["sigma"]) == (2, 1.0, 2.0)
    assert (result["loss"], result["lam"], result["l1_ratio"]) == ("hinge", 1e-3, 0.0)
    assert (result["partition"], result["accelerate"], result["seed"], result["model"]) == ("examples", True, 3, "m")
    assert result["rounds"] > 1
    # with shrinking, a round ends with the bucket in which a pass's number of rows is reached
    assert 1 < result["data_passes"] <= 1.01 * result["rounds"]
    assert result["seconds"].keys() == {"load", "compile", "solve", "total"}
    assert all(seconds >= 0 for seconds in result["seconds"].values())
    assert result["seconds"]["total"] <= finished.seconds
    assert result["bytes"].keys() == {"pushed", "returned"}
    assert all(count > 80 * 8 * result["rounds"] for count in result["bytes"].values())

    check_progress(finished.stderr, result)
    check_trace(launch.directory / "t", result)
    assert sorted(path.name for path in launch.directory.iterdir()) == ["m", "m.json", "t"]

    beside = sidecar(launch.directory / "m")
    assert beside.pop("labels") == ["+1", "-1"]
    assert len(beside.pop("model_sha256")) == 64
    for each in (beside, result):
        del each["seconds"]["total"]
    assert beside == result

    assert data.primal("hinge", 1e-3, weights(launch.directory / "m"), 1.0) == pytest.approx(result["primal"], rel=1e-9)

    predicted = launch.run("coordinator", "predict", "--model", "m", sparse)
    assert predicted.exit_code == 0
    labels = predicted.stdout.splitlines()
    assert set(labels) == {"+1", "-1"}
    correct = sum(float(label) == truth for label, truth in zip(labels, data.labels, strict=True))
    assert correct / data.n > 0.8
    assert predicted.stderr == f"accuracy = {100 * correct / data.n:.6g}% ({correct}/{data.n})\n"


def check_progress(stderr: str, result: dict[str, Any]) -> None:
    *lines, conclusion = stderr.splitlines()
    assert conclusion.startswith("converged: primal ")
    assert "\r" not in stderr
    assert "\x1b" not in stderr
    assert all(line.startswith(("reading ", "starting 2 workers", "training on ", "round ")) for line in lines), stderr
    assert lines[-1].startswith(f"round {result['rounds']} ")
    assert f"  relative gap {result['relative_gap']:.2e}  primal {result['primal']:.8g}  " in lines[-1]
    threads = "1 thread" if result["threads"] == 1 else f"{result['threads']} threads"
    assert f"with 2 workers of {threads}\n" in stderr


def check_trace(path: Path, result: dict[str, Any]) -> None:
    trace = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(line.keys() == TRACE_KEYS for line in trace)
    assert all(
        worker.keys() == {"compute_seconds", "wait_seconds", "steps"} for line in trace for worker in line["workers"]
    )
    for key in ("round", "seconds", "data_passes", "bytes_pushed", "bytes_returned"):
        values = [line[key] for line in trace]
        assert values == sorted(values), key
    gaps = [line["best_gap"] for line in trace]
    assert gaps == sorted(gaps, reverse=True)
    assert all(line["gap"] == line["primal"] - line["dual"] >= line["best_gap"] for line in trace)
    last = trace[-1]
    assert last["round"] == result["rounds"]
    assert last["best_relative_gap"] <= 1e-3
    assert all(line["relative_gap"] == line["gap"] / line["primal"] for line in trace)
    assert min(line["primal"] for line in trace) == result["primal"]
    assert sum(line["restart"] for line in trace) <= result["restarts"]


def predict(directory: Path, name: str, data: str = "data") -> list[str]:
    """What the command `predict` writes, without the start of another process."""
    arguments = ["--model", str(directory / name), str(directory / data)]
    result = CliRunner().invoke(predict_command, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


@pytest.mark.parametrize("labels", [("-1", "+1"), ("0", "1"), ("2", "4"), ("-1.0", "1.0")], ids="{0[0]},{0[1]}".format)
def test_labels_come_back_as_they_were_spelled(labels: tuple[str, str], launch: Launcher) -> None:
    data = launch.directory / "data"
    data.write_bytes(sparse_text(120, 20, labels=labels))
    trained = launch.run("coordinator", "train", "data", "--local", 1, "--lam", 0.01, "--model", "m", "--quiet")
    assert (trained.exit_code, trained.stdout, trained.stderr) == (0, "", "")
    assert sidecar(launch.directory / "m")["labels"] == [labels[1], labels[0]]
    ours = predict(launch.directory, "m")
    assert set(ours) == set(labels)

    # LIBLINEAR predicts the same from the same file
    y, x = liblinearutil.svm_read_problem(str(data))
    theirs, _, _ = liblinearutil.predict(y, x, liblinearutil.load_model(str(launch.directory / "m")), "-q")
    assert theirs == [float(label) for label in ours]


def test_the_threads_a_worker_has_by_itself_change_no_bit(launch: Launcher, sparse: Path) -> None:
    results = []
    for name, threads in (("own", ()), ("one", ("--threads", 1))):
        options = ("--lam", 1e-4, "--json", "--certify-every-round", "--local", 1, "--model", name)
        finished = launch.run("coordinator", "train", sparse, *options, *threads)
        assert finished.exit_code == 0, finished.stderr
        results.append(only_json(finished.stdout))
    own, one = results
    assert one["threads"] == 1
    assert own["threads"] == len(os.sched_getaffinity(0))
    figures = ("primal", "dual", "rounds", "data_passes", "restarts")
    assert {figure: own[figure] for figure in figures} == {figure: one[figure] for figure in figures}
    assert (launch.directory / "own").read_bytes() == (launch.directory / "one").read_bytes()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in the likeness of rcv1 with 2.2 million entries, and too many features for all rows to share them."""
    path = tmp_path_factory.mktemp("wide") / "wide.txt"
    synthetic.write("rcv1", 30_000, 2000, 1, path)
    return path


LOGISTIC = ("--loss", "logistic", "--lam", 1e-2)


@pytest.mark.parametrize(
    ("objective", "passes", "blocks"),
    [
        (LOGISTIC, 1.0, 2),
        ((*LOGISTIC, "--tol", 1e-4), 1.0, 2),
        ((*LOGISTIC, "--tol", 1e-5), 1.0, 1),
        ((*LOGISTIC, "--class-weight", "1=100000"), 0.5, 1),
        (("--loss", "logistic", "--lam", 1e-7), 0.5, 1),
        (("--loss", "hinge", "--lam", 1e-2), 1.0, 2),
        (("--loss", "hinge", "--lam", 1e-5), 0.5, 1),
    ],
    ids=lambda value: " ".join(map(str, value[1:])) if isinstance(value, tuple) else "",
)
def test_rounds_and_blocks_follow_from_how_much_rows_are_coupled(
    objective: tuple[object, ...], passes: float, blocks: int, launch: Launcher, wide: Path
) -> None:
    def trained(*how: object) -> Any:
        done = launch.run("coordinator", "train", wide, *objective, *how, "--max-rounds", 1, "--json", "--quiet")
        # one round may be enough for a sole worker
        assert done.exit_code in {0, 3}, done.stderr
        return json.loads(done.stdout)

    assert trained("--local", 2, "--threads", 1)["local_epochs"] == passes
    # sigma' = gamma K
    by_itself = trained("--local", 1)
    assert by_itself["nnz"] > 2 << 20
    for result in (trained("--local", 1, "--threads", 2), *([by_itself] if by_itself["threads"] == 2 else [])):
        assert result["sigma"] == blocks


def test_blocks_may_differ_from_one_lam_to_the_next(launch: Launcher, wide: Path) -> None:
    lams = ("--lam-max", 1e-2, "--lam-min-ratio", 1e-3, "--points", 2)
    grid = (*lams, "--local", 1, "--threads", 2, "--json", "--quiet")
    path = launch.run("coordinator", "path", wide, *grid)
    assert path.exit_code == 0, path.stderr
    points = json.loads(path.stdout)["points"]
    assert [point["sigma"] for point in points] == [2.0, 1.0]
    alone = launch.run("coordinator", "train", wide, "--lam", points[1]["lam"], "--json", "--quiet")
    assert points[1]["primal"] == pytest.approx(json.loads(alone.stdout)["primal"], rel=2e-3)
    # and back with the next fold
    cv = launch.run("coordinator", "cv", wide, *grid, "--folds", 2, "--model", "m")
    assert cv.exit_code == 0, cv.stderr
    assert json.loads(cv.stdout)["status"] == "converged"


def test_positive_label(launch: Launcher) -> None:
    (launch.directory / "data").write_bytes(sparse_text(120, 20, labels=("2", "4")))
    train = ("train", "data", "--local", 1, "--lam", 0.01, "--quiet", "--positive-label", 2, "--model", "m")
    assert launch.run("coordinator", *train).exit_code == 0
    assert model.load(launch.directory / "m").labels == ("2", "4")
    labels = load(launch.directory / "data").labels
    correct = sum(float(label) == truth for label, truth in zip(predict(launch.directory, "m"), labels, strict=True))
    assert correct > 0.8 * len(labels)


@pytest.mark.as_users_do
def test_data_from_standard_input_or_compressed(launch: Launcher) -> None:
    text = sparse_text(120, 20)
    (launch.directory / "data.gz").write_bytes(gzip.compress(text))
    piped = launch.start(
        "coordinator", "train", "-", "--local", 1, "--lam", 0.01, "--quiet", "--model", "a", piped=True
    )
    piped.type(text)
    piped.close_stdin()
    assert piped.finish().exit_code == 0
    settings = {"ACCCOCOA_TRAIN_LAM": "0.01", "ACCCOCOA_TRAIN_MODEL": "b", "ACCCOCOA_TRAIN_DATA": "data.gz"}
    assert launch.run("coordinator", "train", "--local", 1, "--quiet", environment=settings).exit_code == 0
    assert (launch.directory / "a").read_bytes() == (launch.directory / "b").read_bytes()


@pytest.mark.parametrize("local", [1, 2])
def test_says_at_the_start_that_unscaled_data_will_crawl(launch: Launcher, local: int) -> None:
    lines = [f"{1 if i % 3 else -1} 1:{1 + i % 7} 2:{1000 * (1 + i % 5)}" for i in range(60)]
    (launch.directory / "data").write_text("\n".join(lines))
    train = ("train", "data", "--local", local, "--max-rounds", 1, "--local-solver", "sdca")
    trained = launch.run("coordinator", *train)
    told = [line for line in trained.stderr.splitlines() if line.startswith("warning: ")]
    assert len(told) == 1
    assert "the largest magnitude is 5000, and 7 for a tenth" in told[0]
    assert "--normalize features-maxabs" in told[0]
    # neither when that is what was asked for, nor by features, where the scale does not matter
    normalized = launch.run("coordinator", *train, "--normalize", "features-maxabs")
    assert "warning" not in normalized.stderr
    by_features = launch.run("coordinator", *train, "--loss", "squared_hinge", "--json")
    assert only_json(by_features.stdout)["partition"] == "features"
    assert "training on" in by_features.stderr
    assert "warning" not in by_features.stderr
    by_examples = launch.run("coordinator", *train, "--loss", "squared_hinge", "--partition", "examples")
    assert "warning" in by_examples.stderr


def test_scales_do_not_matter_to_newtons_method(launch: Launcher) -> None:
    lines = [f"{1 if i % 3 else -1} 1:{1 + i % 7} 2:{1000 * (1 + i % 5)}" for i in range(60)]
    (launch.directory / "data").write_text("\n".join(lines))
    trained = launch.run("coordinator", "train", "data", "--local", 1, "--json")
    result = only_json(trained.stdout)
    assert (result["local_solver"], result["partition"], result["rounds"]) == ("newton", "examples", result["rounds"])
    assert "training on" in trained.stderr
    assert "warning" not in trained.stderr


def test_by_features_only_where_there_are_enough_of_them(launch: Launcher) -> None:
    lines = [f"{1 if i % 3 else -1} 1:{1 + i % 7} 2:{1000 * (1 + i % 5)}" for i in range(60)]
    (launch.directory / "data").write_text("\n".join(lines))
    trained = launch.run(
        "coordinator", "train", "data", "--local", 3, "--max-rounds", 1, "--loss", "logistic", "--json"
    )
    assert only_json(trained.stdout)["partition"] == "examples"


def test_a_large_bias_is_a_feature_of_another_scale(launch: Launcher) -> None:
    lines = [f"{1 if i % 3 else -1} 1:{1 + i % 7} 2:{1 + i % 5}" for i in range(60)]
    (launch.directory / "data").write_text("\n".join(lines))
    train = ("train", "data", "--local", 1, "--loss", "squared", "--local-solver", "sdca", "--json", "--bias")
    # by examples it takes more than 3,000 passes
    large = only_json(launch.run("coordinator", *train, 1000, "--max-rounds", 100).stdout)
    assert (large["partition"], large["status"]) == ("features", "converged")
    assert only_json(launch.run("coordinator", *train, 1, "--max-rounds", 1).stdout)["partition"] == "examples"


@pytest.mark.as_users_do
def test_surroundings_do_not_matter(launch: Launcher, sparse: Path) -> None:
    # files that Python would import for ours if it were let, and proxies that gRPC would use if it were let
    for name in ("worker.py", "numpy.py", "grpc.py"):
        (launch.directory / name).write_text("import sys; sys.exit(99)\n")
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), "http://127.0.0.1:9")
    trained = launch.run(
        *("coordinator", "train", sparse, "--lam", 0.01, "--quiet", "--json", "--connect-timeout", 10),
        environment=proxies,
    )
    assert (trained.exit_code, trained.stderr) == (0, "")
    assert only_json(trained.stdout)["status"] == "converged"
