"""Weights of examples: what a file may hold, and which weight belongs to which example."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from acccocoa import shardfile, weights
from acccocoa.errors import DataError, ParseError, UsageError
from acccocoa.examples import Examples
from worker import source
from worker.shard import build, with_constant_feature


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_text("1\n0\n 2.5 \n1e-3\r\n+.5\n7.")
    assert_array_equal(weights.read(path, 6), [1.0, 0.0, 2.5, 1e-3, 0.5, 7.0])


def test_npy(tmp_path: Path) -> None:
    path = tmp_path / "w"
    values = np.random.default_rng(0).random(9)
    with path.open("wb") as out:
        np.save(out, values)
    assert_array_equal(weights.read(path, 9), values)


@pytest.mark.parametrize("word", ["", "-1", "nan", "inf", "1_0", "1 2", "0x1", "one", "1e999"])
def test_what_is_not_a_weight_is_told_by_its_line(word: str, tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_text(f"1\n2\n{word}\n3\n")
    with pytest.raises(ParseError, match=re.escape(f"{path}:3:1: {word!r} is not a weight")):
        weights.read(path, 4)


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "w"
    with pytest.raises(DataError, match="cannot be read"):
        weights.read(path, 1)
    path.write_text("1\n2\n")
    with pytest.raises(DataError, match="has 2 weights for 3 examples"):
        weights.read(path, 3)
    path.write_text("0\n0\n")
    with pytest.raises(DataError, match="has no weight above 0"):
        weights.read(path, 2)
    with path.open("wb") as out:
        np.save(out, np.array([1.0, -2.0]))
    with pytest.raises(DataError, match=r"element 1: is -2\.0"):
        weights.read(path, 2)
    with path.open("wb") as out:
        np.save(out, np.ones((2, 2)))
    with pytest.raises(DataError, match=r"not a vector of float64; save it as .*ravel"):
        weights.read(path, 4)
    path.write_bytes(b"\x93NUMPY and nothing")
    with pytest.raises(DataError, match=r"is not a \.npy file"):
        weights.read(path, 4)


def test_label_weights() -> None:
    assert weights.parse_label_weights("+1=2,-1=0.5") == {1.0: 2.0, -1.0: 0.5}
    labels = np.array([1.0, -1.0, 3.0, 1.0])
    assert_array_equal(weights.of_labels(labels, {1.0: 2.0, 3.0: 4.0}), [2.0, 1.0, 4.0, 2.0])
    for wrong in ("", "1", "1=", "=1", "1=0", "1=-1", "1=inf", "nan=1", "1=2,", "1=1,+1=2"):
        with pytest.raises(UsageError, match=r"^--class-weight "):
            weights.parse_label_weights(wrong)


def test_the_hash_tells_weights_apart() -> None:
    ones, others = np.ones(3), np.array([1.0, 2.0, 1.0])
    found = {
        weights.weighted_hash("a", ones),
        weights.weighted_hash("a", others),
        weights.weighted_hash("b", ones),
        "a",
    }
    assert len(found) == 4


def text_with_numbers(path: Path, n: int) -> None:
    """Example i has the label i and the one feature i + 1 with the value 1."""
    path.write_text("".join(f"{i} {i + 1}:1\n" for i in range(n)))


def test_a_worker_gives_every_example_its_weight(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "w"
    text_with_numbers(data, 40)
    file.write_text("".join(f"{i + 100}\n" for i in range(40)))
    hashes = set()
    for part in range(3):
        holdings = source.load(f"{data}#{part}/3", weights=str(file))
        shard = holdings.shard
        assert shard.weights is not None
        assert_array_equal(shard.weights, shard.labels + 100)
        hashes |= {shard.content_hash, source.load(f"{data}#{part}/3").shard.content_hash}
    assert len(hashes) == 6
    by_features = source.load(f"{data}#1/3", by="features", weights=str(file)).shard
    assert by_features.weights is not None
    assert_array_equal(by_features.weights, np.arange(40) + 100.0)
    file.write_text("1\n")
    with pytest.raises(DataError, match="has 1 weights for 40 examples"):
        source.load(f"{data}#0/3", weights=str(file))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_feature(dtype: type[np.float32] | type[np.float64]) -> None:
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((23, 6)) * (rng.random((23, 6)) < 0.4)
    dense[4] = 0.0
    sizes = (dense != 0).sum(axis=1)
    examples = Examples(
        indptr=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        indices=np.nonzero(dense)[1].astype(np.int32),
        values=dense[dense != 0].astype(dtype),
        labels=np.arange(23.0),
    )
    shard = build(examples, shardfile.content_hash(examples), threads=2)
    more = with_constant_feature(shard, 0.3, 9)
    assert (more.n, more.nnz, more.d) == (shard.n, shard.nnz + 23, 10)
    assert more.indptr.dtype == np.uint64
    assert more.values.dtype == dtype
    found = np.zeros((23, 10))
    for i, (start, stop) in enumerate(zip(more.indptr[:-1].tolist(), more.indptr[1:].tolist(), strict=True)):
        found[more.rows[i], more.support[more.positions(i, i + 1)]] = more.values[start:stop]
    assert_array_equal(found[:, :6], dense.astype(dtype))
    assert_array_equal(found[:, 6:9], 0.0)
    assert_array_equal(found[:, 9], dtype(0.3))
    np.testing.assert_allclose(more.squared_norms[np.argsort(more.rows)], (found**2).sum(axis=1), rtol=1e-14)
    assert more.blocks == shard.blocks
    with pytest.raises(UsageError, match="constant feature 5"):
        with_constant_feature(shard, 1.0, 5)
