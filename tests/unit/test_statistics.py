"""Figures about data, against numpy; and the warnings that follow from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from acccocoa import libsvm
from acccocoa.examples import LABEL_SPELLINGS_KEPT, Examples
from acccocoa.statistics import FeatureMaxima, Sizes, Spread, Statistics, Summary, as_json


def summary_of(*pieces: Examples) -> Summary:
    collected = Statistics()
    for piece in pieces:
        collected.add(piece)
    return collected.summary()


def of(text: bytes, dtype: libsvm.Dtype = np.float64) -> Summary:
    return summary_of(libsvm.parse(text, dtype=dtype))


def test_figures() -> None:
    found = of(b"+1 1:3 3:-4\n-1\n-1.0 5:2\n+1 1:0\n")
    assert found == Summary(
        n=4,
        d=5,
        nnz=4,
        labels=((-1.0, "-1", 2), (1.0, "+1", 2)),
        label_range=(-1.0, 1.0),
        row_norms=Spread(2.0, 2.0, 3.5, 5.0),
        empty_rows=2,
        feature_maxima=Spread(2.0, 2.0, 3.0, 4.0),
        features=3,
    )
    assert found.density == 4 / 20
    assert found.warnings() == []
    assert as_json(found)["row_norm"] == {"min": 2.0, "tenth": 2.0, "median": 3.5, "max": 5.0}


@given(st.lists(st.lists(st.tuples(st.sampled_from([0, 3, 2**26, 2**30, 2**31 - 2]), st.floats(-9, 9)))))
def test_largest_magnitudes_of_features_however_far_apart(pieces: list[list[tuple[int, float]]]) -> None:
    found, expected = FeatureMaxima(), dict[int, float]()
    for piece in pieces:
        found.add(np.array([j for j, _ in piece], np.int32), np.array([x for _, x in piece], np.float64))
        for j, x in piece:
            expected[j] = max(expected.get(j, 0.0), abs(x))
    assert found.found().tolist() == [expected[j] for j in sorted(expected)]


def test_one_large_feature_number_takes_no_memory() -> None:
    assert of(b"1 1:2 2147483647:-1\n").feature_maxima == Spread(1.0, 1.0, 1.5, 2.0)


def test_nothing() -> None:
    found = summary_of()
    assert (found.n, found.density, found.labels, found.label_range) == (0, 0.0, (), None)
    assert (found.row_norms, found.feature_maxima) == (None, None)
    assert found.warnings() == []
    assert of(b"1\n2\n").density == 0.0


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(finite.map(abs), min_size=1, max_size=50))
def test_median_and_tenth(numbers: list[float]) -> None:
    found = Spread.of(np.array(numbers))
    assert found is not None
    assert (found.min, found.max) == (min(numbers), max(numbers))
    ordered = sorted(numbers)
    assert found.tenth == ordered[(len(numbers) - 1) // 10]
    assert found.median == 0.5 * ordered[(len(numbers) - 1) // 2] + 0.5 * ordered[len(numbers) // 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_whatever_the_pieces(dtype: libsvm.Dtype, rows: int) -> None:
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((100, 30)) * (rng.random((100, 30)) < rng.random(30)) * 10.0 ** rng.integers(-9, 9, 30)
    dense = dense.astype(dtype)
    lines = [f"{i % 3} " + " ".join(f"{j + 1}:{v!s}" for j, v in enumerate(r) if v) for i, r in enumerate(dense)]
    pieces = [libsvm.parse("\n".join(lines[k : k + rows]).encode(), dtype=dtype) for k in range(0, 100, rows)]
    found = summary_of(*(Examples(p.indptr, p.indices, p.values, p.labels, {0: "0", 1: "1", 2: "2"}) for p in pieces))
    assert found.nnz == np.count_nonzero(dense)
    assert [count for _, _, count in found.labels or ()] == [34, 33, 33]
    norms = np.linalg.norm(dense.astype(np.float64), axis=1)
    norms = norms[norms > 0]
    assert found.row_norms is not None
    assert_allclose(
        [found.row_norms.min, found.row_norms.median, found.row_norms.max],
        [norms.min(), np.median(norms), norms.max()],
        rtol=1e-14,
    )
    maxima = np.abs(dense.astype(np.float64)).max(axis=0)
    maxima = maxima[maxima > 0]
    assert found.feature_maxima is not None
    assert (found.feature_maxima.min, found.feature_maxima.max) == (maxima.min(), maxima.max())
    assert found.features == len(maxima)


def test_numbers_at_the_ends_of_float64() -> None:
    found = of(b"1 1:1e308 2:1e308\n1 1:1e-308 2:1e-308\n1 1:1e200\n")
    assert found.row_norms is not None
    assert found.row_norms.max == pytest.approx(2**0.5 * 1e308)
    assert found.row_norms.min == pytest.approx(2**0.5 * 1e-308)


def test_too_many_labels_to_list() -> None:
    lines = b"".join(b"%d.5 1:1\n" % label for label in range(LABEL_SPELLINGS_KEPT + 1))
    found = of(lines)
    assert found.labels is None
    assert found.label_range == (0.5, LABEL_SPELLINGS_KEPT + 0.5)
    assert as_json(found)["labels"] is None


def test_warnings() -> None:
    one = of(b"1 1:1\n" * 9 + b"1 1:21\n").warnings()
    assert len(one) == 1
    assert "--normalize rows" in one[0]
    assert of(b"1 1:1\n" * 9 + b"1 1:20\n").warnings() == []
    scales = of(b"1 1:1 2:31 3:31\n" * 9).warnings()
    assert len(scales) == 1
    assert "--normalize features-maxabs" in scales[0]
    assert of(b"1 1:1 2:30\n" * 9).warnings() == []
    # a few small features among many are the way of text
    entries = " ".join(f"{j}:1" for j in range(2, 100))
    assert of(f"1 1:1e-9 {entries}\n".encode()).warnings() == []


def test_parts_are_together_no_more_unequal_than_the_whole() -> None:
    parts = [b"1 1:1 2:50\n" * 9, b"1 1:4 2:1e3\n" * 9]
    sizes = [Sizes.of(found.feature_maxima, found.row_norms) for found in map(of, parts)]
    together = Sizes.together(sizes)
    assert (together.feature_largest, together.feature_tenth) == (1000.0, 4.0)
    assert together.norm_largest == pytest.approx((1e6 + 16) ** 0.5)
    assert together.warnings()
    # a worker that says nothing of it
    assert Sizes.together([Sizes(), Sizes()]).warnings() == []
