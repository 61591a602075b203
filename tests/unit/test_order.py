"""The coordinator's order of shared vectors."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coordinator.order import SharedOrder


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 40), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_every_worker_finds_its_entries_and_the_way_back_is_exact(d: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    supports = [rng.permutation(d)[: rng.integers(0, d + 1)].astype(np.uint32) for _ in range(k)]
    order = SharedOrder(supports, d)
    v = rng.standard_normal(d)
    ordered = order.ordered(v)
    assert_array_equal(order.natural(ordered), v)
    for support, places in zip(supports, order.places, strict=True):
        assert_array_equal(ordered[places], v[support])


def test_a_single_workers_part_lies_in_one_piece() -> None:
    order = SharedOrder([np.array([4, 0, 2], dtype=np.uint32)], 6)
    assert order.places == [slice(0, 3)]
    assert_array_equal(order.numbers, [4, 0, 2, 1, 3, 5])


def test_what_a_second_worker_adds_lies_together_too() -> None:
    order = SharedOrder([np.array([4, 0], dtype=np.uint32), np.array([5, 0, 3], dtype=np.uint32)], 6)
    assert_array_equal(order.numbers, [4, 0, 5, 3, 1, 2])
    assert_array_equal(order.places[1], [2, 1, 3])
