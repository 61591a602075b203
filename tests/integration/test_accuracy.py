"""What is reported is true of the data, and as good as LIBLINEAR's optimum within the gap that was asked for."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import scale

from acccocoa import libsvm
from tests.integration.data import SOLVERS, Loaded, dense_text, liblinear_optimum, load, only_json, weights
from tests.integration.processes import Launcher

TOL = 1e-3


def check(data: Loaded, loss: str, lam: float, stdout: str, model: Path, positive: float = 1.0) -> None:
    """The reported primal is that of the model on the data, and LIBLINEAR's is as the certificate says."""
    result = only_json(stdout)
    assert result["status"] == "converged"
    w = np.zeros(data.rows.shape[1])
    found = weights(model)
    w[: len(found)] = found
    assert data.primal(loss, lam, w, positive) == pytest.approx(result["primal"], rel=1e-9)
    optimum = liblinear_optimum(data, loss, lam, positive)
    assert result["dual"] <= optimum * (1 + 1e-9)
    assert result["primal"] <= optimum * (1 + TOL)


def test_breast_cancer(launch: Launcher) -> None:
    rows, targets = load_breast_cancer(return_X_y=True)
    (launch.directory / "data").write_bytes(dense_text(scale(rows), targets))
    data = load(launch.directory / "data")
    addresses = ",".join(worker.address for worker in launch.workers("data", 2))
    for loss in SOLVERS:
        train = ("train", "--workers", addresses, "--loss", loss, "--lam", 1e-2, "--json", "--model", loss)
        trained = launch.run("coordinator", *train)
        assert trained.exit_code == 0, trained.stderr
        check(data, loss, 1e-2, trained.stdout, launch.directory / loss)


@pytest.mark.parametrize("loss", SOLVERS)
def test_sparse(loss: str, sparse: Path, addresses: str, launch: Launcher) -> None:
    trained = launch.run(
        "coordinator", "train", "--workers", addresses, "--loss", loss, "--lam", 1e-3, "--json", "--model", "m"
    )
    assert trained.exit_code == 0, trained.stderr
    check(load(sparse), loss, 1e-3, trained.stdout, launch.directory / "m")


def test_in_float64_with_liblinears_C(sparse: Path, launch: Launcher) -> None:
    trained = launch.run(
        *("coordinator", "train", sparse, "--local", 2, "--threads", 2, "--local-epochs", 0.5, "--no-accelerate"),
        *("--C", 2, "--loss", "squared_hinge", "--dtype", "float64", "--json", "--model", "m"),
    )  # fmt: skip
    assert trained.exit_code == 0, trained.stderr
    lam = 1 / (2 * 600)
    result = only_json(trained.stdout)
    assert result["lam"] == pytest.approx(lam, rel=1e-15)
    assert (result["dtype"], result["threads"], result["sigma"], result["accelerate"]) == ("float64", 2, 2.0, False)
    check(load(sparse, np.float64), "squared_hinge", lam, trained.stdout, launch.directory / "m")


def test_a_regression(launch: Launcher) -> None:
    rows, targets = load_diabetes(return_X_y=True)
    text = dense_text(scale(rows), targets - targets.mean())
    (launch.directory / "data").write_bytes(text)
    lam = 0.1
    trained = launch.run(
        *("coordinator", "train", "data", "--local", 2, "--loss", "squared", "--lam", lam, "--tol", 1e-9),
        *("--dtype", "float64", "--json", "--model", "m"),
    )
    assert trained.exit_code == 0, trained.stderr
    data = load(launch.directory / "data", np.float64)
    w = weights(launch.directory / "m")
    assert data.primal("squared", lam, w, 1.0) == pytest.approx(only_json(trained.stdout)["primal"], rel=1e-9)
    x = data.rows.toarray()
    exact = np.linalg.solve(x.T @ x / data.n + lam * np.eye(x.shape[1]), x.T @ data.labels / data.n)
    np.testing.assert_allclose(w, exact, rtol=1e-3, atol=1e-2)
    predicted = launch.run("coordinator", "predict", "--model", "m", "data")
    np.testing.assert_allclose([float(line) for line in predicted.stdout.split()], x @ w, rtol=1e-12)
    assert libsvm.read([str(launch.directory / "data")]).spellings.keys() >= {data.labels[0]}


def test_a_regression_whose_labels_are_all_0(launch: Launcher) -> None:
    (launch.directory / "data").write_text("0 1:1\n0 2:1\n0 1:2 2:3\n")
    trained = launch.run("coordinator", "train", "data", "--local", 1, "--loss", "squared", "--json")
    assert trained.exit_code == 0, trained.stderr
    result = only_json(trained.stdout)
    assert (result["status"], result["primal"], result["gap"], result["rounds"]) == ("converged", 0.0, 0.0, 0)
