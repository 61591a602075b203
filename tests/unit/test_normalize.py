"""--normalize: scaled shards against numpy, what the workers are asked for, and models that know of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from acccocoa import libsvm, model, shardfile
from acccocoa.examples import Examples
from acccocoa.losses import Vector
from acccocoa.model import Model
from coordinator.handshake import Job
from coordinator.normalize import Measure, Scaling, scaling
from worker import scaling as on_worker
from worker import shard as shard_module
from worker.shard import Shard, build, build_by_features


def random_examples(n: int = 40, d: int = 15) -> tuple[Examples, NDArray[np.float64]]:
    """Examples and the same densely; one without an entry, one with a zero, a feature that never occurs."""
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4) * 10.0 ** rng.integers(-3, 4, d)
    dense[3], dense[:, 5] = 0.0, 0.0
    dense = dense.astype(np.float32).astype(np.float64)
    mask = dense != 0
    mask[4, 2] = True
    dense[4, 2] = 0.0
    indptr = np.concatenate(([0], np.cumsum(mask.sum(axis=1)))).astype(np.int64)
    indices = np.nonzero(mask)[1].astype(np.int32)
    return Examples(indptr, indices, dense[mask].astype(np.float32), np.arange(n, dtype=np.float64)), dense


def dense_of(shard: Shard) -> NDArray[np.float64]:
    """Rows and columns where they stood."""
    out = np.zeros((int(shard.rows.max()) + 1, int(shard.support.max()) + 1))
    for k, row in enumerate(shard.rows.tolist()):
        entries = slice(int(shard.indptr[k]), int(shard.indptr[k + 1]))
        out[row, shard.support[shard.positions(k, k + 1)]] = shard.values[entries]
    return out


@pytest.fixture(params=["sparse", "dense"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Shard, NDArray[np.float64]]:
    examples, dense = random_examples()
    monkeypatch.setattr(shard_module, "DENSE", 0.0 if request.param == "dense" else 1.0)
    return build(examples, shardfile.content_hash(examples), threads=2), dense


def consistent(shard: Shard) -> None:
    norms = [
        float((shard.values[int(a) : int(b)].astype(np.float64) ** 2).sum())
        for a, b in zip(shard.indptr[:-1], shard.indptr[1:], strict=True)
    ]
    assert_allclose(shard.squared_norms, norms, rtol=1e-12)
    assert shard.values.dtype == np.float32


# ----------------------------------------------------------------------------------------------------------- on workers


def test_rows_over_their_norms(pair: tuple[Shard, NDArray[np.float64]]) -> None:
    shard, dense = pair
    scaled = on_worker.with_rows_divided(shard, on_worker.row_norms(shard))
    norms = np.linalg.norm(dense, axis=1)
    expected = dense / np.where(norms > 0, norms, 1.0)[:, None]
    found = dense_of(scaled)
    assert_allclose(found, expected[: found.shape[0], : found.shape[1]], rtol=1e-6)
    consistent(scaled)
    assert_allclose(scaled.squared_norms[scaled.squared_norms > 0], 1.0, rtol=1e-6)
    assert scaled.indices is shard.indices  # only values are held twice
    assert_array_equal(dense_of(shard), dense[: found.shape[0], : found.shape[1]])


def test_columns_over_their_largest(pair: tuple[Shard, NDArray[np.float64]]) -> None:
    shard, dense = pair
    largest = on_worker.largest_of_columns(shard)
    assert_array_equal(largest, np.abs(dense).max(axis=0)[shard.support])
    scaled = on_worker.with_columns_divided(shard, largest)
    columns = np.abs(dense).max(axis=0)
    found = dense_of(scaled)
    assert_allclose(found, (dense / np.where(columns > 0, columns, 1.0))[:, : found.shape[1]], rtol=1e-6)
    consistent(scaled)


def test_measures(pair: tuple[Shard, NDArray[np.float64]]) -> None:
    shard, dense = pair
    assert_allclose(on_worker.squares_of_columns(shard), (dense**2).sum(axis=0)[shard.support], rtol=1e-12)
    assert_array_equal(on_worker.largest_of_rows(shard), np.abs(dense).max(axis=1)[shard.rows])


def test_by_features_rows_are_features() -> None:
    examples, dense = random_examples()
    shard = build_by_features(examples, shardfile.content_hash(examples))
    assert_array_equal(on_worker.largest_of_rows(shard), np.abs(dense).max(axis=0)[shard.rows])
    assert_allclose(on_worker.squares_of_columns(shard), (dense**2).sum(axis=1)[shard.support], rtol=1e-12)


# -------------------------------------------------------------------------------------------------- what they are asked


def job(by_features: bool) -> Job:
    return Job(
        n=3,
        d=4,
        nnz=5,
        blocks=1,
        positive_label=1.0,
        labels=("1", "-1"),
        coordinates=4 if by_features else 3,
        shared=3 if by_features else 5,  # by examples, with a bias
        by_features=by_features,
    )


class Workers:
    """Answers what it is asked with 1, 4, 9, ..., and remembers what that was."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def measure(self, measure: Measure, length: int) -> Vector:
        self.asked.append((measure, length))
        return np.arange(length, dtype=np.float64) ** 2


@pytest.mark.parametrize(
    ("normalize", "by_features", "asked", "kind"),
    [
        ("none", False, [], "none"),
        ("none", True, [], "none"),
        ("rows", False, [], "row_norms"),
        ("rows", True, [("squares_of_columns", 3)], "columns"),
        ("features-maxabs", False, [("largest_of_columns", 5)], "columns"),
        ("features-maxabs", True, [("largest_of_rows", 4)], "largest_of_rows"),
    ],
)
def test_what_workers_are_asked(normalize: Any, by_features: bool, asked: Sequence[object], kind: str) -> None:
    workers = Workers()
    found = scaling(normalize, job(by_features), workers.measure)
    assert (found.kind, workers.asked) == (kind, asked)
    assert (found.divisors is not None) == (kind == "columns")
    if normalize == "rows" and by_features:
        assert found.divisors is not None
        assert_array_equal(found.divisors, [0, 1, 2])
    w = np.ones(5)
    expected = [1, 1, 1 / 4, 1 / 9, 1] if normalize == "features-maxabs" else [1] * 5
    assert_allclose(found.weights(w), expected)
    assert_array_equal(w, 1.0)
    assert_allclose(found.weights(w[:3]), expected[:3])


def test_nothing_to_do_by_default() -> None:
    w = np.ones(3)
    assert Scaling().weights(w) is w


# --------------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("name", ["model", "model.npz"])
@pytest.mark.parametrize("bias", [-1.0, 2.0])
def test_a_model_of_unit_rows(name: str, bias: float, tmp_path: Path) -> None:
    w = np.array([0.5, -2.0, *([1.0] if bias > 0 else [])])
    made = Model("logistic", ("+1", "-1"), w, bias, unit_rows=True)
    made.save(tmp_path / name, {"normalize": "none"})
    found = model.load(tmp_path / name)
    assert found.unit_rows
    # the last with a feature the model does not know, which counts for the norm
    examples = libsvm.parse(b"1 1:3 2:4\n1\n1 1:0\n1 1:3 9:4\n", dtype=np.float64)
    own = np.array([(1.5 - 8.0) / 5, 0.0, 0.0, 1.5 / 5])
    assert_allclose(found.decision_values(examples), own + (2.0 if bias > 0 else 0.0), rtol=1e-15)
    plain = Model("logistic", ("+1", "-1"), w, bias)
    plain.save(tmp_path / name, {"normalize": "features-maxabs"})
    assert not model.load(tmp_path / name).unit_rows
    assert_allclose(model.load(tmp_path / name).decision_values(examples)[0], -6.5 + (2.0 if bias > 0 else 0.0))
