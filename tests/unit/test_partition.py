"""Dealing examples and features to parts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from acccocoa.errors import UsageError
from acccocoa.partition import cut_examples, cut_features, deal_features

sizes = st.one_of(
    st.lists(st.integers(0, 20), min_size=1, max_size=120),
    # single rows that outweigh everything else
    st.lists(st.sampled_from([0, 1, 10_000_000_000]), min_size=1, max_size=40),
).map(lambda row_nnz: np.array(row_nnz, dtype=np.int64))


@settings(deadline=None, max_examples=400)
@given(sizes, st.data(), st.integers(0, 2**32 - 1))
def test_every_row_is_in_one_part_and_parts_are_balanced(
    row_nnz: "np.ndarray[tuple[int], np.dtype[np.int64]]", data: st.DataObject, seed: int
) -> None:
    n = len(row_nnz)
    count = data.draw(st.integers(1, n))
    parts = [cut_examples(row_nnz, part, count, seed) for part in range(count)]
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert min(map(len, parts)) >= 1
    weight = row_nnz + 1
    for rows in parts:
        assert weight[rows].sum() <= weight.sum() / count + weight.max()


@settings(deadline=None, max_examples=200)
@given(sizes, st.data(), st.integers(0, 2**32 - 1))
def test_features_are_dealt_by_falling_frequency(
    nnz: "np.ndarray[tuple[int], np.dtype[np.int64]]", data: st.DataObject, seed: int
) -> None:
    count = data.draw(st.integers(1, len(nnz)))
    parts = deal_features(nnz, count, seed)
    assert len(parts) == count
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(nnz)))
    weight = nnz + 1
    for number, part in enumerate(parts):
        assert_array_equal(part, cut_features(nnz, number, count, seed))
        assert len(part) >= 1
        assert weight[part].sum() <= weight.sum() / count + weight.max()
    for part, after in itertools.pairwise(parts):
        assert nnz[part].min() >= nnz[after].max()


def test_equally_frequent_features_are_shuffled() -> None:
    first = cut_features(np.full(100, 7, dtype=np.int64), 0, 2)
    assert not np.array_equal(np.sort(first), np.arange(50))


def test_parts_of_rows_of_one_size_differ_by_one_row_at_most() -> None:
    for n, count in ((10, 3), (64, 4), (7, 7), (1000, 13)):
        lengths = [len(cut_examples(np.full(n, 5, dtype=np.int64), part, count)) for part in range(count)]
        assert max(lengths) - min(lengths) <= 1


def test_the_seed_decides() -> None:
    row_nnz = np.arange(100, dtype=np.int64)
    first = cut_examples(row_nnz, 1, 3, seed=5)
    assert_array_equal(first, cut_examples(row_nnz, 1, 3, seed=5))
    assert not np.array_equal(first, cut_examples(row_nnz, 1, 3, seed=6))
    # rows are shuffled: a file sorted by label does not make parts of one label
    assert not np.array_equal(np.sort(first), np.arange(first.min(), first.min() + len(first)))


@pytest.mark.parametrize(("part", "count"), [(-1, 2), (2, 2), (0, 0), (0, 6)])
def test_impossible_parts_are_refused(part: int, count: int) -> None:
    with pytest.raises(UsageError):
        cut_examples(np.ones(5, dtype=np.int64), part, count)
    with pytest.raises(UsageError):
        cut_features(np.ones(5, dtype=np.int64), part, count)
