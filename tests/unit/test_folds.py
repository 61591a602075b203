"""The folds of cross-validation: by the entries of an example alone, however the data is cut."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from acccocoa.examples import Examples
from acccocoa.folds import Scores, folds_of, score
from acccocoa.losses import loss
from worker import folds as worker_folds
from worker.folds import hashes_of_columns, hashes_of_rows
from worker.shard import build, build_by_features

N, D = 300, 40


def examples(density: float) -> Examples:
    """Sparse or dense rows, of which the last 10 are the first 10 once more."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((N, D)) * (rng.random((N, D)) < density)
    x = csr_array(rows[[*range(N - 10), *range(10)]])
    return Examples(x.indptr.astype(np.int64), x.indices.astype(np.int32), x.data, np.arange(float(N)))


@pytest.mark.parametrize("together", [1 << 20, 50])
@pytest.mark.parametrize("density", [0.2, 0.6])
def test_the_same_whatever_the_shards(together: int, density: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_folds, "ENTRIES_TOGETHER", together)
    data = examples(density)
    by_examples = np.zeros(N)
    for part in range(3):
        shard = build(data, "ab" * 32, np.arange(part, N, 3))
        assert shard.dense == (density > 0.5)
        by_examples[shard.rows] = hashes_of_rows(shard)
    by_features = np.zeros(N)
    for part in range(4):
        shard = build_by_features(data, "ab" * 32, part, 4)
        by_features[shard.support] += hashes_of_columns(shard)
    np.testing.assert_array_equal(by_examples, by_features)
    np.testing.assert_array_equal(by_examples[:10], by_examples[-10:])
    assert len(np.unique(by_examples)) == N - 10


@pytest.mark.parametrize("folds", [2, 7])
def test_every_fold_is_about_as_large(folds: int) -> None:
    hashes = np.random.default_rng(1).integers(0, 2**45, 10_000).astype(np.float64)
    first, other = (folds_of(hashes, folds, seed) for seed in (0, 1))
    for found in (first, other):
        counts = np.bincount(found, minlength=folds)
        assert len(counts) == folds
        assert np.abs(counts - 10_000 / folds).max() < 5 * np.sqrt(10_000 / folds)
    assert np.mean(first == other) == pytest.approx(1 / folds, abs=0.03)


def test_scores_add_up() -> None:
    y, p, s = np.array([1.0, -1.0, 1.0]), np.array([0.5, 0.5, -2.0]), np.array([1.0, 2.0, 3.0])
    hinge = loss("hinge")
    whole = score(hinge, y, p, s)
    assert whole == Scores(3, 0.5 + 2 * 1.5 + 3 * 3.0, 1, 0.0)
    assert score(hinge, y[:1], p[:1], s[:1]) + score(hinge, y[1:], p[1:], s[1:]) == whole
    assert score(loss("squared"), y, p, s).squared_error == 0.25 + 2.25 + 9.0
