"""--standardize: features of equal spread, without centering, against scikit-learn on data that is centered, too."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.preprocessing import StandardScaler

from acccocoa import model
from acccocoa.examples import Examples
from acccocoa.statistics import deviations
from tests.integration.data import only_json
from tests.integration.processes import Launcher
from tests.integration.test_path import Matrix, write
from worker import scaling
from worker.shard import build, build_by_features


@pytest.fixture(scope="module")
def cancer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Matrix, Matrix]:
    """Features of very different spread, none around 0, one of them constant, one hardly ever there."""
    x, y = load_breast_cancer(return_X_y=True)
    x = np.column_stack((x, np.full(len(y), 3.0), np.where(np.arange(len(y)) % 50 == 0, 1e3, 0.0)))
    y = 2.0 * y - 1.0
    return write(tmp_path_factory.mktemp("data") / "cancer", x, y), x, y


def test_with_an_intercept_it_is_as_good_as_centering(launch: Launcher, cancer: tuple[Path, Matrix, Matrix]) -> None:
    data, x, y = cancer
    finished = launch.run(
        *("coordinator", "train", data, "--local", 2, "--loss", "squared", "--l1-ratio", 1, "--lam", 0.02),
        *("--standardize", "--intercept", "--tol", 1e-9, "--dtype", "float64", "--model", "m", "--json", "--quiet"),
    )
    assert finished.exit_code == 0, finished.stderr
    assert only_json(finished.stdout)["normalize"] == "features-std"
    scaler = StandardScaler().fit(x)
    theirs = Lasso(alpha=0.02, tol=1e-12, max_iter=10**6).fit(scaler.transform(x), y)
    ours = model.load(launch.directory / "m").w
    np.testing.assert_allclose(ours[:-1] * scaler.scale_, theirs.coef_, atol=2e-4)
    # and in the units of the data the intercept is what makes the predictions equal
    np.testing.assert_allclose(x @ ours[:-1] + ours[-1], theirs.predict(scaler.transform(x)), atol=2e-3)


def test_by_examples_it_scales(launch: Launcher, cancer: tuple[Path, Matrix, Matrix]) -> None:
    data, x, y = cancer
    finished = launch.run(
        *("coordinator", "train", data, "--local", 2, "--loss", "logistic", "--lam", 0.01, "--partition", "examples"),
        *("--standardize", "--tol", 1e-8, "--dtype", "float64", "--model", "m", "--json", "--quiet"),
    )
    assert finished.exit_code == 0, finished.stderr
    scale = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    theirs = LogisticRegression(C=1 / (0.01 * len(y)), fit_intercept=False, tol=1e-10, max_iter=10**5).fit(x / scale, y)
    ours = model.load(launch.directory / "m").w
    np.testing.assert_allclose(ours * scale, theirs.coef_[0], atol=2e-3)


@pytest.mark.parametrize("density", [0.2, 0.9])
def test_deviations_of_every_cut(density: float) -> None:
    rng = np.random.default_rng(0)
    x = (5.0 + rng.standard_normal((40, 12))) * (rng.random((40, 12)) < density)
    x[:, 3] = 7.0
    rows = csr_array(x)
    examples = Examples(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, np.zeros(40))
    expected = x.std(axis=0)
    by_features = np.zeros(12)
    for part in range(3):
        shard = build_by_features(examples, "ab" * 32, part, 3)
        by_features[shard.rows] = scaling.deviations_of_rows(shard)
    np.testing.assert_allclose(by_features, expected, atol=1e-12)
    sums, squares = np.zeros(12), np.zeros(12)
    for part in range(3):
        shard = build(examples, "ab" * 32, np.arange(part, 40, 3))
        sums[shard.support] += scaling.sums_of_columns(shard)
        squares[shard.support] += scaling.squares_of_columns(shard)
    np.testing.assert_allclose(deviations(sums, squares, 40), expected, atol=1e-12)
    assert by_features[3] == 0.0
