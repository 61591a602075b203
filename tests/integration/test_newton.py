"""Newton's method by both commands: what it ends with, where it is refused, and that others go on where it stopped."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.svm import LinearSVC

from acccocoa import codec
from acccocoa.v1 import array_pb2
from acccocoa.v1 import worker_pb2 as pb
from tests.integration.data import dense_text, liblinear_optimum, load, only_json, sidecar, weights
from tests.integration.processes import Launcher, wait_until
from tests.integration.wire import Client, round_with

LAM = 1e-5

QUIET = ("--json", "--quiet")


@pytest.fixture(scope="module")
def unscaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """569 examples with 30 features, between 1e-3 and 4e3."""
    x, y = load_breast_cancer(return_X_y=True)
    path = tmp_path_factory.mktemp("data") / "unscaled"
    path.write_bytes(dense_text(x, 2.0 * y - 1.0))
    return path


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, of mean 0 and variance 1."""
    x, y = load_breast_cancer(return_X_y=True)
    path = tmp_path_factory.mktemp("data") / "scaled"
    path.write_bytes(dense_text((x - x.mean(axis=0)) / x.std(axis=0), 2.0 * y - 1.0))
    return path


@pytest.fixture(scope="module")
def iris(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 examples with three labels."""
    x, y = load_iris(return_X_y=True)
    path = tmp_path_factory.mktemp("data") / "iris"
    path.write_bytes(dense_text(x, y))
    return path


def trained(launch: Launcher, *arguments: object, name: str = "m") -> dict[str, Any]:
    finished = launch.run("coordinator", "train", *arguments, "--model", name, *QUIET)
    assert finished.exit_code == 0, finished.stderr
    return only_json(finished.stdout)


def assert_true(result: dict[str, Any], launch: Launcher, data: Path, optimum: float) -> None:
    """Converged, the primal value is that of the model file, and the optimum is between both values."""
    assert result["status"] == "converged"
    found = load(data).primal(result["loss"], result["lam"], weights(launch.directory / "m"), 1.0)
    assert result["primal"] == pytest.approx(found, rel=1e-9)
    assert 0 <= result["relative_gap"] <= 1e-3
    assert result["dual"] <= optimum * (1 + 1e-9)
    assert optimum <= result["primal"] * (1 + 1e-6)


# --------------------------------------------------------------------------------------------------- what it ends with


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("data", ["scaled", "unscaled"])
def test_one_worker_by_itself(loss: str, data: str, launch: Launcher, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(data)
    by_examples = ("--partition", "examples")
    result = trained(launch, path, "--local", 1, "--loss", loss, "--lam", LAM, *by_examples)
    assert (result["local_solver"], result["partition"], result["workers"]) == ("newton", "examples", 1)
    assert result["rounds"] <= 2
    assert_true(result, launch, path, liblinear_optimum(load(path), loss, LAM, 1.0))
    assert sidecar(launch.directory / "m")["local_solver"] == "newton"


def test_the_hinge_loss(launch: Launcher, scaled: Path) -> None:
    """Classes that can nearly be told apart: if Newton's method does not get there, coordinate ascent does."""
    result = trained(launch, scaled, "--local", 1, "--loss", "hinge", "--lam", LAM)
    assert result["local_solver"] in ("newton", "newton, sdca")
    data = load(scaled)
    svm = LinearSVC(
        C=1 / (LAM * data.n),
        loss="hinge",
        fit_intercept=False,
        tol=1e-6,
        max_iter=10**6,
        random_state=0,
    )
    w = svm.fit(data.rows.toarray(), data.signs(1.0)).coef_[0]
    assert_true(result, launch, scaled, data.primal("hinge", LAM, w, 1.0))


@pytest.mark.parametrize("local", [1, 2])
def test_what_the_user_says_is_done(local: int, launch: Launcher, scaled: Path) -> None:
    train = (scaled, "--local", local, "--loss", "logistic", "--lam", 1e-3)
    results = {solver: trained(launch, *train, "--local-solver", solver) for solver in ("newton", "sdca")}
    for solver, result in results.items():
        assert result["local_solver"] == solver
        assert result["workers"] == local
    assert_true(results["sdca"], launch, scaled, liblinear_optimum(load(scaled), "logistic", 1e-3, 1.0))
    assert results["newton"]["primal"] == pytest.approx(results["sdca"]["primal"], rel=1e-3)


def test_whatever_the_threads(launch: Launcher, scaled: Path) -> None:
    train = (scaled, "--local", 1, "--loss", "logistic", "--lam", LAM)
    results = [trained(launch, *train, "--threads", n, name=f"of{n}") for n in (1, 2)]
    assert {result["local_solver"] for result in results} == {"newton"}
    assert len({(result["primal"], result["dual"]) for result in results}) == 1
    assert len({(launch.directory / f"of{n}").read_bytes() for n in (1, 2)}) == 1


@pytest.mark.parametrize("options", [("--local-epochs", 1), ("--sigma", 2), ("--no-accelerate",)])
def test_not_where_something_is_said_of_the_rounds(options: tuple[object, ...], launch: Launcher, scaled: Path) -> None:
    train = ("train", scaled, "--local", 1, "--loss", "logistic", "--lam", LAM, "--max-rounds", 1)
    finished = launch.run("coordinator", *train, *options, *QUIET)
    assert only_json(finished.stdout)["local_solver"] == "sdca"


def test_a_shard_of_which_nothing_can_be_learnt(launch: Launcher) -> None:
    """All its labels are what the first model predicts."""
    x, y = np.array([[1.0 + i % 3, i % 5] for i in range(9)]), np.array([0.0] * 8 + [1.0])
    (launch.directory / "data").write_bytes(dense_text(x, y.tolist()))
    train = ("data", "--loss", "squared", "--partition", "examples", "--lam", 0.1, "--tol", 1e-6, "--threads", 1)
    result = trained(launch, *train, "--local", 3, "--local-solver", "newton")
    w = np.linalg.solve(x.T @ x / 9 + 0.1 * np.eye(2), x.T @ y / 9)
    assert result["primal"] == pytest.approx(0.5 * np.mean((y - x @ w) ** 2) + 0.05 * w @ w, rel=1e-6)


# -------------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    "options",
    [
        ("--loss", "logistic", "--partition", "features"),
        ("--loss", "squared", "--l1-ratio", 1),
        ("--loss", "epsilon_insensitive"),
        ("--loss", "logistic", "--local-epochs", 1),
        ("--loss", "logistic", "--round-seconds", 1),
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_what_cannot_be_is_refused(options: tuple[object, ...], launch: Launcher, scaled: Path) -> None:
    finished = launch.run("coordinator", "train", scaled, "--local", 1, "--local-solver", "newton", *options, *QUIET)
    assert (finished.exit_code, finished.stdout) == (2, "")
    assert finished.error.startswith("error: --local-solver newton")


@pytest.mark.parametrize(("features", "code"), [(1024, 0), (1025, 2)])
def test_more_features_than_there_may_be(features: int, code: int, launch: Launcher) -> None:
    rows = [f"{'+1' if i % 3 else '-1'} {1 + i % 7}:1 {features - i % 5}:1" for i in range(40)]
    (launch.directory / "data").write_text("\n".join(rows) + "\n")
    train = ("train", "data", "--local", 1, "--loss", "logistic", "--partition", "examples", "--lam", 0.1)
    finished = launch.run("coordinator", *train, "--local-solver", "newton", *QUIET)
    assert finished.exit_code == code, finished.stderr
    if code:
        assert finished.error.startswith("error: --local-solver newton")
        assert "here are 1025" in finished.error


# --------------------------------------------------------------------------------------------------------- the service


def ask(client: Client, length: int, start: pb.SolveRequest, **changes: object) -> tuple[grpc.StatusCode, str]:
    w = np.zeros(length)
    pieces = codec.encode(w, array_pb2.Array())
    chunks = [pb.SolveRequest(chunk=array_pb2.Chunk(data=piece)) for piece in pieces]
    return client.refusal([start, round_with(w, **changes), *chunks])


@pytest.fixture(scope="module")
def client(scaled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    launcher = Launcher.under(tmp_path_factory.mktemp("service"))
    worker = launcher.worker(scaled)
    worker.wait_serving()
    client = Client(worker.address)
    yield client
    client.close()
    launcher.close()


@pytest.mark.parametrize("accuracy", [float("nan"), -1.0, float("-inf")])
def test_an_accuracy_that_is_none(accuracy: float, client: Client) -> None:
    code, details = ask(client, 30, client.start(), accuracy=accuracy)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert f"to an accuracy of {accuracy}" in details


@pytest.mark.parametrize("accuracy", [0.0, 1e-3, 1e-300, 1e300, float("inf")])
def test_any_other_is_answered(accuracy: float, client: Client) -> None:
    assert ask(client, 30, client.start(), accuracy=accuracy) == (grpc.StatusCode.OK, "")


@pytest.mark.parametrize(
    "changes",
    [{"lipschitz": 1e-300}, {"lipschitz": 1e300}, {"curvature": 1e308}, {"curvature": 1e-308}, {"positive_label": 7.0}],
    ids=str,
)
def test_a_problem_that_makes_no_sense_is_solved_all_the_same(changes: dict[str, object], client: Client) -> None:
    assert ask(client, 30, client.start(**changes), accuracy=1e-3) == (grpc.StatusCode.OK, "")


@pytest.mark.parametrize("changes", [{"classifier": False, "epsilon": 0.1}, {"bound": float("inf")}], ids=str)
def test_a_loss_that_it_is_not_for(changes: dict[str, object], client: Client) -> None:
    code, details = ask(client, 30, client.start(**changes), accuracy=1e-3)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "is not to be solved by Newton's method" in details


STARTING = {"theta": 1.0, "fraction": 1.0, "restart": True, "stride": 1}
"""A round without momentum."""


@pytest.mark.parametrize("enough", [1e-3, 1e-300, 1e300, float("inf")])
def test_rounds_that_end_when_that_is_enough(enough: float, client: Client) -> None:
    blocks = client.describe().blocks
    how: dict[str, Any] = {"sigma": blocks, "visits": [3] * blocks, **STARTING}
    assert ask(client, 30, client.start(), enough=enough, **how) == (grpc.StatusCode.OK, "")


@pytest.mark.parametrize(
    "changes",
    [
        {"enough": float("nan")},
        {"enough": -1.0},
        {"enough": 1e-3, "stride": 0},
        {"enough": 1e-3, "narrow": True},
        {"enough": 1e-3, "sigma": 7.5},
        {"enough": 1e-3, "gamma": 0.5},
        {"enough": 1e-3, "theta": 0.5},
        {"enough": 1e-3, "restart": False},
    ],
    ids=str,
)
def test_rounds_that_cannot_end_so(changes: dict[str, Any], client: Client) -> None:
    blocks = client.describe().blocks
    how = {"sigma": blocks, "visits": [3] * blocks, **STARTING, **changes}
    code, details = ask(client, 30, client.start(), **how)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "is not to be solved until a sample" in details


def test_a_shard_by_features(launch: Launcher, scaled: Path) -> None:
    worker = launch.worker(scaled, "--by", "features")
    worker.wait_serving()
    client = Client(worker.address)
    try:
        start = client.start(labelled=False, classifier=False, epsilon=1e-3, bound=float("inf"), curvature=0.1)
        start.start.shared = 569
        code, details = ask(client, 569, start, accuracy=1e-3)
        assert (code, "Newton's method" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        assert ask(client, 569, start) == (grpc.StatusCode.OK, "")
    finally:
        client.close()


# ------------------------------------------------------------------------------------------------------- many problems


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_a_classifier_for_each_label(loss: str, launch: Launcher, iris: Path) -> None:
    train = (iris, "--local", 1, "--multiclass", "ovr", "--loss", loss, "--lam", 1e-2, "--bias", 1)
    newton, sdca = (trained(launch, *train, "--local-solver", solver) for solver in ("newton", "sdca"))
    for one, other in zip(newton["classes"], sdca["classes"], strict=True):
        assert (one["local_solver"], other["local_solver"]) == ("newton", "sdca")
        assert one["status"] == "converged"
        assert one["relative_gap"] <= 1e-3
        assert one["primal"] == pytest.approx(other["primal"], rel=1e-3)
        assert one["dual"] <= other["primal"] * (1 + 1e-12)


@pytest.mark.parametrize("command", ["path", "cv"])
def test_a_path_and_its_folds(command: str, launch: Launcher, scaled: Path) -> None:
    grid = ("--loss", "logistic", "--lam-max", 1e-2, "--lam-min-ratio", 1e-2, "--points", 3, "--local", 1)
    results = {}
    for solver in ("newton", "sdca"):
        told = ("--local-solver", solver, "--model", solver, *QUIET)
        finished = launch.run("coordinator", command, scaled, *grid, *told)
        assert finished.exit_code == 0, finished.stderr
        results[solver] = only_json(finished.stdout)
        assert results[solver]["status"] == "converged"
    for one, other in zip(results["newton"]["points"], results["sdca"]["points"], strict=True):
        assert one["lam"] == other["lam"]
        assert one["relative_gap"] <= 1e-3
        if command == "path":
            assert (one["local_solver"], other["local_solver"]) == ("newton", "sdca")
            assert one["primal"] == pytest.approx(other["primal"], rel=1e-3)
            assert one["rounds"] <= 2  # a warm start is one more
        else:
            assert one["loss"] == pytest.approx(other["loss"], rel=0.1)


# ----------------------------------------------------------------------------------------------------- in the middle


HINGE = ("--loss", "hinge", "--lam", 1e-4, "--tol", 1e-9)
"""One round is not enough."""


def test_a_killed_coordinator_goes_on_with_the_same_bits(launch: Launcher, scaled: Path) -> None:
    (worker,) = launch.workers(scaled, 1)
    job = ("train", "--workers", worker.address, *HINGE, "--local-solver", "newton", "--max-rounds", 250)
    assert launch.run("coordinator", *job, "--model", "whole", *QUIET).exit_code == 3
    kept = ("--model", "part", "--checkpoint", "kept", "--trace", "trace")
    trace = launch.directory / "trace"
    killed = launch.start("coordinator", *job, *kept)
    wait_until(lambda: trace.exists() and trace.read_bytes().count(b"\n") > 50, "rounds were made")
    killed.signal(signal.SIGKILL)
    assert killed.finish().exit_code == -signal.SIGKILL
    resumed = launch.run("coordinator", *job, *kept, "--resume", *QUIET)
    assert resumed.exit_code == 3, resumed.stderr
    result = only_json(resumed.stdout)
    assert (result["rounds"], result["resyncs"], result["local_solver"]) == (250, 0, "newton")
    assert (launch.directory / "part").read_bytes() == (launch.directory / "whole").read_bytes()


def test_a_resumed_run_remembers_that_it_fell_back(launch: Launcher, scaled: Path) -> None:
    job = ("train", scaled, "--local", 1, *HINGE, "--checkpoint", "kept", *QUIET)
    for most, more in ((3, ()), (4, ("--resume",))):
        finished = launch.run("coordinator", *job, "--max-rounds", most, *more)
        assert finished.exit_code == 3, finished.stderr
        result = only_json(finished.stdout)
        assert (result["rounds"], result["local_solver"]) == (most, "newton, sdca")
