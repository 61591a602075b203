"""Sums over long vectors: exact where parts cancel, NaN instead of an exception."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from acccocoa.vectors import TOGETHER, inner, largest, parts, total


@pytest.mark.parametrize("length", [0, 1, 7, TOGETHER, TOGETHER + 1, 3 * TOGETHER + 5])
def test_parts_and_inner(length: int) -> None:
    rng = np.random.default_rng(length)
    a, b = rng.standard_normal(length), rng.standard_normal(length)
    assert np.array_equal(np.concatenate([np.empty(0), *(a[part] for part in parts(length))]), a)
    assert_allclose(inner(a, b), math.fsum((a * b).tolist()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "ends", [(math.inf, -math.inf), (1.7e308, 1.7e308), (math.nan, 1.0)], ids=["opposed", "overflow", "nan"]
)
def test_what_has_no_sum_is_nan(ends: tuple[float, float]) -> None:
    assert math.isnan(total(ends))
    long = np.zeros(2 * TOGETHER)
    long[0], long[-1] = ends
    assert math.isnan(inner(long, np.ones(2 * TOGETHER)))


@pytest.mark.parametrize(
    ("entries", "expected"), [([], 0.0), ([0.5, -2.0, 1.0], 2.0), ([-0.25, 3.0], 3.0), ([1.0, -math.inf], math.inf)]
)
def test_the_largest_entry(entries: list[float], expected: float) -> None:
    assert largest(np.array(entries)) == expected


def test_the_largest_entry_beside_nan_is_nan() -> None:
    assert math.isnan(largest(np.array([1.0, math.nan, -2.0])))
