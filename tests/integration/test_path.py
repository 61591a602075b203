"""path and cv: many problems over shards that are loaded once, against scikit-learn."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import Lasso, LogisticRegression, lasso_path

from acccocoa import model
from acccocoa.folds import entry_hashes, folds_of
from coordinator.cli import main
from tests.integration.data import only_json
from tests.integration.processes import Launcher

Matrix = NDArray[np.float64]


def write(path: Path, x: Matrix, y: Matrix) -> Path:
    """The examples as LIBSVM text, to the last digit."""
    rows = (" ".join(f"{j}:{value:.17g}" for j, value in enumerate(row, 1) if value) for row in x)
    path.write_text("".join(f"{label:.17g} {row}\n" for label, row in zip(y, rows, strict=True)))
    return path


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Matrix, Matrix]:
    """A regression; features of length 1, targets around 0."""
    x, y = load_diabetes(return_X_y=True)
    y = (y - y.mean()) / y.std()
    x[x < 0] = 0.0  # sparse, so that the order of the vectors that travel is not that of the data
    return write(tmp_path_factory.mktemp("data") / "diabetes", x, y), x, y


@pytest.fixture(scope="module")
def cancer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Matrix, Matrix]:
    """Two classes."""
    x, y = load_breast_cancer(return_X_y=True)
    x, y = (x - x.mean(axis=0)) / x.std(axis=0), 2.0 * y - 1.0
    return write(tmp_path_factory.mktemp("data") / "cancer", x, y), x, y


@pytest.mark.as_users_do
def test_lasso_path(launch: Launcher, diabetes: tuple[Path, Matrix, Matrix]) -> None:
    data, x, y = diabetes
    finished = launch.run(
        *("coordinator", "path", data, "--local", 2, "--loss", "squared", "--l1-ratio", 1, "--points", 6),
        *("--lam-min-ratio", 1e-2, "--tol", 1e-8, "--dtype", "float64", "--model", "m", "--trace", "t", "--json"),
    )
    assert finished.exit_code == 0, finished.stderr
    result = only_json(finished.stdout)
    largest = np.abs(x.T @ y).max() / len(y)
    assert result["lam_max"] == pytest.approx(largest, rel=1e-12)
    lams = [point["lam"] for point in result["points"]]
    np.testing.assert_allclose(lams, largest * np.geomspace(1, 1e-2, 6), rtol=1e-12)
    assert result["status"] == "converged"
    assert (result["partition"], result["points"][0]["nonzeros"]) == ("features", 0)
    _, expected, _ = lasso_path(x, y, alphas=lams, tol=1e-12)
    for k, point in enumerate(result["points"]):
        assert 0 <= point["relative_gap"] <= 1e-8
        found = model.load(launch.directory / f"m.{k}")
        np.testing.assert_allclose(found.w, expected[:, k], atol=1e-3 * max(1.0, np.abs(expected[:, k]).max()))
        at = lams[k] * np.abs(expected[:, k]).sum() + 0.5 * np.mean((y - x @ expected[:, k]) ** 2)
        assert point["primal"] == pytest.approx(at, rel=1e-7)
    # a person sees the same as a table
    table = finished.stderr.splitlines()[-7:]
    assert table[0].split()[:3] == ["lam", "primal", "relative"]
    assert [float(line.split()[0]) for line in table[1:]] == pytest.approx(lams, rel=1e-4)
    # and a trace says of every line which problem it is of
    assert (launch.directory / "t").read_text().count('{"lam": ') >= 6


def test_the_largest_lam_of_every_partition(launch: Launcher, cancer: tuple[Path, Matrix, Matrix]) -> None:
    data, x, y = cancer
    path = ("path", data, "--local", 2, "--loss", "logistic", "--points", 2, "--lam-min-ratio", 0.5, "--json")
    gradient = 0.5 * x.T @ y / len(y)
    for partition in ("examples", "features"):
        finished = launch.run("coordinator", *path, "--quiet", "--l1-ratio", 0.4, "--bias", 1, "--partition", partition)
        result = only_json(finished.stdout)
        assert result["lam_max"] == pytest.approx(max(np.abs(gradient).max(), abs(0.5 * y.mean())) / 0.4, rel=1e-6)
        assert [point["nonzeros"] > 0 for point in result["points"]] == [False, True]
    finished = launch.run("coordinator", *path, "--quiet")
    assert only_json(finished.stdout)["lam_max"] == pytest.approx(np.linalg.norm(gradient), rel=1e-6)


def expected_scores(
    x: Matrix, y: Matrix, fit: Callable[[Matrix, Matrix], Matrix], loss: Callable[[Matrix, Matrix], Matrix], folds: int
) -> tuple[list[int], list[float], list[Matrix]]:
    """Size of every fold, the mean loss of the model that was fitted without it, and its predictions minus labels."""
    hashes = sum(entry_hashes(np.full(len(y), j), x[:, j]) for j in range(x.shape[1]))
    fold_of = folds_of(np.asarray(hashes), folds, 0)
    sizes, losses, pairs = [], [], []
    for fold in range(folds):
        held = fold_of == fold
        p = x[held] @ fit(x[~held], y[~held])
        sizes.append(int(held.sum()))
        losses.append(float(np.mean(loss(y[held], p))))
        pairs.append(np.stack((y[held], p)))
    return sizes, losses, pairs


@pytest.mark.as_users_do
def test_cv_of_a_lasso(launch: Launcher, diabetes: tuple[Path, Matrix, Matrix]) -> None:
    data, x, y = diabetes
    lam = 0.005
    finished = launch.run(
        *("coordinator", "cv", data, "--local", 2, "--loss", "squared", "--l1-ratio", 1, "--lam", lam, "--folds", 4),
        *("--tol", 1e-9, "--dtype", "float64", "--json", "--quiet"),
    )
    assert finished.exit_code == 0, finished.stderr
    result = only_json(finished.stdout)
    sizes, losses, pairs = expected_scores(
        x,
        y,
        lambda x, y: Lasso(alpha=lam, fit_intercept=False, tol=1e-10, max_iter=10**6).fit(x, y).coef_,
        lambda y, p: 0.5 * (y - p) ** 2,
        4,
    )
    assert result["fold_sizes"] == sizes
    assert sum(sizes) == len(y)
    (point,) = result["points"]
    assert point["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert point["loss_error"] == pytest.approx(np.std(losses, ddof=1) / 2, rel=1e-4)
    assert point["mse"] == pytest.approx(2 * np.mean(losses), rel=1e-5)
    assert point["mse"] == pytest.approx(np.mean([np.mean((y - p) ** 2) for y, p in pairs]), rel=1e-5)


def test_cv_of_a_classifier_by_examples(launch: Launcher, cancer: tuple[Path, Matrix, Matrix]) -> None:
    data, x, y = cancer
    finished = launch.run(
        *("coordinator", "cv", data, "--local", 2, "--loss", "logistic", "--points", 3, "--lam-max", 1, "--folds", 3),
        *("--lam-min-ratio", 1e-4, "--tol", 1e-8, "--dtype", "float64", "--json", "--model", "m"),
    )
    assert finished.exit_code == 0, finished.stderr
    result = only_json(finished.stdout)
    assert [point["lam"] for point in result["points"]] == pytest.approx([1, 1e-2, 1e-4])
    for point in result["points"]:
        lam = point["lam"]

        def fit(x: Matrix, y: Matrix, lam: float = lam) -> Matrix:
            strength = 1 / (lam * len(y))
            found = LogisticRegression(C=strength, fit_intercept=False, tol=1e-10, max_iter=10**4).fit(x, y)
            return np.asarray(found.coef_[0])

        sizes, losses, pairs = expected_scores(x, y, fit, lambda y, p: np.logaddexp(0, -y * p), 3)
        assert result["fold_sizes"] == sizes
        assert point["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
        assert point["accuracy"] == pytest.approx(np.mean([np.mean((p > 0) == (y > 0)) for y, p in pairs]))
    best = min(result["points"], key=lambda point: float(point["loss"]))
    assert result["best"] == best
    assert result["largest_within_one_error"]["lam"] >= best["lam"]
    assert "best" in finished.stderr
    # the model is that of all examples with the best strength
    w = model.load(launch.directory / "m").w
    found = LogisticRegression(C=1 / (best["lam"] * len(y)), fit_intercept=False, tol=1e-10, max_iter=10**4).fit(x, y)
    np.testing.assert_allclose(w, found.coef_[0], atol=2e-3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("path", "--lam", "0.1"), "--lam 0.1: is for one problem"),
        (("path", "--multiclass", "ovr"), "--multiclass ovr: is not for path"),
        (("cv", "--lam", "1", "--lam-max", "2"), "--lam and --lam-max: exclude each other"),
        (("cv", "--C", "1", "--points", "3"), "--C and --points: exclude each other"),
        (("cv", "--folds", "1"), "--folds 1: must be from 2 to 1000"),
        (("path", "--points", "1"), "--points 1: must be from 2"),
        (("path", "--lam-min-ratio", "1"), "--lam-min-ratio 1: must be between 0 and 1"),
    ],
)
def test_usage(arguments: tuple[str, ...], said: str) -> None:
    finished = CliRunner().invoke(main, [*arguments, "data"])
    assert (finished.exit_code, said in finished.stderr) == (2, True), finished.stderr
