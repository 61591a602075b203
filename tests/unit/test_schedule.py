"""How much work a round has when the user does not say."""

import itertools
import math

import pytest

from coordinator.schedule import (
    COARSE,
    ENTRIES_OF_A_ROW,
    ENTRIES_WORTH_A_VECTOR,
    EPSILON,
    EXACT,
    FEW,
    FINE,
    LOOSE,
    LOOSE_ALONE,
    WORTH_A_BLOCK,
    WORTH_NEWTON,
    WORTH_NEWTON_SMOOTHED,
    automatic_epochs,
    blocks_are_free,
    is_narrow,
    lengthened,
    newton_pays,
    plan_work,
    screened_epochs,
    sole_epochs,
    sole_stride,
)


def epochs(entries: int, rows: int, support: int, k: int, loopback: bool = True) -> float:
    """For K workers of one block that share the data evenly."""
    return automatic_epochs(entries // k, rows // k, support, k, k, loopback)


NEWS20 = (9_000_000, 20_000, 1_355_191)
RCV1 = (14_600_000, 200_000, 47_236)
COVTYPE = (2_400_000, 200_000, 54)


@pytest.mark.parametrize(("data", "expected"), [(NEWS20, 2.0), (RCV1, 1.0), (COVTYPE, 1.0)])
def test_a_single_block_makes_longer_rounds_the_dearer_its_messages_are(
    data: tuple[int, int, int], expected: float
) -> None:
    assert epochs(*data, 1) == expected


def test_rounds_of_a_single_block_grow_longer_where_messages_are_dear() -> None:
    later = {data: automatic_epochs(*data, 1, 1, True, later=True) for data in (NEWS20, RCV1, COVTYPE)}
    assert later == {NEWS20: 8.0, RCV1: 1.0, COVTYPE: 1.0}
    for blocks in (2, 4):
        assert automatic_epochs(*NEWS20, blocks, blocks, True, later=True) == epochs(*NEWS20, blocks)


def test_no_round_is_longer_than_half_of_what_was_made_before() -> None:
    made, rounds = 0.0, []
    for _ in range(12):
        rounds.append(lengthened(2.0, 8.0, made))
        made += rounds[-1]
    assert rounds == [2.0, 2.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    assert lengthened(1.0, 1.0, 100.0) == 1.0
    assert lengthened(0.5, 4.0, 0.0) == 0.5


def test_a_sole_workers_first_round_is_long_unless_passes_are() -> None:
    for entries, rows, _ in (NEWS20, RCV1, COVTYPE, (0, 0, 0)):
        assert sole_epochs(1.0, max(1, entries), rows, 1, math.inf) == 24.0
    passes = [sole_epochs(0.5, entries, entries // 100, 1, math.inf) for entries in (10**8, 10**9, 10**10)]
    assert passes == [9.0, 0.5, 0.5]
    # two threads, a block each
    assert sole_epochs(0.5, 10**8, 10**6, 2, math.inf) == 19.0
    assert sole_epochs(0.5, 0, 0, 1, math.inf) == 1.0
    # no more than a tenth of the time there is
    assert [sole_epochs(0.5, 10**7, 10**5, 1, seconds) for seconds in (0.01, 1.0, 5.0, 100.0)] == [0.5, 4.0, 23.0, 24.0]


def test_a_sole_worker_samples_where_there_are_rows_enough() -> None:
    assert [sole_stride(rows) for rows in (1, 1023, 2047, 2048, 4096, 16384, 10**6)] == [1, 1, 1, 2, 4, 16, 16]


def test_several_blocks_make_rounds_of_less_than_a_pass() -> None:
    assert epochs(*RCV1, 2) == 0.25
    assert epochs(*NEWS20, 4) == 1.0
    # all rows share the few features: longer rounds cost hardly any passes
    assert epochs(*COVTYPE, 2) == 1.0


@pytest.mark.parametrize(
    ("coupling", "expected"), [(0.0, 1.0), (0.05, 1.0), (0.2, 1.0), (0.5, 0.5), (1.0, 0.25), (float("inf"), 0.25)]
)
def test_several_blocks_make_longer_rounds_the_looser_rows_are_coupled(coupling: float, expected: float) -> None:
    assert automatic_epochs(RCV1[0] // 2, RCV1[1] // 2, RCV1[2], 2, 2, True, coupling=coupling) == expected
    assert automatic_epochs(RCV1[0] // 4, RCV1[1] // 4, RCV1[2], 4, 4, True, coupling=coupling) >= expected
    assert automatic_epochs(*RCV1, 1, 1, True, coupling=coupling) == 1.0


def test_blocks_are_free_where_rows_are_coupled_loosely() -> None:
    def free(
        threads: int = 2,
        blocks: int = 2,
        shared: int = 1,
        coupling: float = LOOSE / 2,
        tol: float = COARSE,
        alone: bool = False,
    ) -> bool:
        return blocks_are_free(threads, blocks, 2 * WORTH_A_BLOCK, shared, coupling, tol, alone)

    assert free()
    assert not free(blocks=3)
    assert free(blocks=3, coupling=LOOSE / 3)
    assert not free(coupling=float("inf"), tol=1.0)
    assert not free(tol=COARSE / 2)
    # too little to do for each, or too much that each has to do besides
    assert not free(threads=3)
    assert free(shared=WORTH_A_BLOCK // ENTRIES_WORTH_A_VECTOR)
    assert not free(shared=WORTH_A_BLOCK // ENTRIES_WORTH_A_VECTOR + 1)
    # a sole worker's tell each other often
    assert free(coupling=LOOSE_ALONE / 2, alone=True)
    assert not free(coupling=LOOSE_ALONE / 1.9, alone=True)
    assert not free(coupling=LOOSE_ALONE / 2)
    assert free(tol=FINE, alone=True)
    assert not free(tol=FINE / 2, alone=True)
    assert not free(tol=FINE, coupling=LOOSE_ALONE / 2, alone=True)


SHORT = int(ENTRIES_OF_A_ROW)


@pytest.mark.parametrize(
    ("features", "coupling", "length", "smooth", "expected"),
    [
        (54, 10.0, SHORT, True, True),
        (FEW, 10.0, SHORT, True, True),
        (FEW + 1, 10.0, SHORT, True, False),
        (54, WORTH_NEWTON, SHORT, True, True),
        (54, 0.99 * WORTH_NEWTON, SHORT, True, False),
        (54, 0.0, SHORT, True, False),
        (54, float("inf"), SHORT, True, False),  # nothing is known of the digits
        # a pass costs as much more as rows are longer, twice over
        (54, 3.99 * WORTH_NEWTON, 2 * SHORT, True, False),
        (54, 4.01 * WORTH_NEWTON, 2 * SHORT, True, True),
        (54, 0.26 * WORTH_NEWTON, SHORT // 2, True, True),
        (54, 0.24 * WORTH_NEWTON, SHORT // 2, True, False),
        # what must be smoothed first takes more steps
        (54, WORTH_NEWTON, SHORT, False, False),
        (54, 0.99 * WORTH_NEWTON_SMOOTHED, SHORT, False, False),
        (54, WORTH_NEWTON_SMOOTHED, SHORT, False, True),
    ],
)
def test_newton_pays_where_features_are_few_rows_short_and_coupled(
    features: int, coupling: float, length: int, smooth: bool, expected: bool
) -> None:
    rows = 1000
    assert newton_pays(features, coupling, length * rows, rows, smooth) is expected


def test_newton_pays_only_while_rounding_is_small() -> None:
    rows = 10_000
    most = EXACT / (rows * EPSILON)
    for smooth in (True, False):
        assert newton_pays(54, 0.99 * most, SHORT * rows, rows, smooth) is True
        assert newton_pays(54, 1.01 * most, SHORT * rows, rows, smooth) is False
        assert newton_pays(54, 0.99 * most, SHORT * 10 * rows, 10 * rows, smooth) is False


def test_the_hinge_loss_needs_more_coupling_than_smooth_ones() -> None:
    assert WORTH_NEWTON_SMOOTHED > WORTH_NEWTON
    for exponent in range(-20, 60):
        coupling = 1.3**exponent
        hinge, smooth = (newton_pays(54, coupling, 12_000, 1000, smooth) for smooth in (False, True))
        assert smooth >= hinge


@pytest.mark.parametrize("k", [1, 2, 8])
def test_rounds_are_longer_over_a_network_and_with_more_to_send(k: int) -> None:
    for entries, rows in ((10**5, 10**4), (10**7, 10**5), (10**9, 10**7)):
        supports = (10, 10**4, 10**6, 10**8)
        for kind in (True, False):
            alike = [support for support in supports if is_narrow(rows, support) is kind]
            sizes = [epochs(entries, rows, support, k) for support in alike]
            assert all(first <= second for first, second in itertools.pairwise(sizes))
        for support in supports:
            assert epochs(entries, rows, support, k, loopback=False) >= epochs(entries, rows, support, k)


def test_data_without_entries_has_a_plan_too() -> None:
    assert plan_work([1], automatic_epochs(0, 0, 0, 1, 1, True)).visits == (1,)


FLIGHTS = (3_600_000, 9_625, 327_346)


@pytest.mark.parametrize(
    ("entries", "support", "k", "expected"),
    [
        (FLIGHTS[0], FLIGHTS[2], 1, 8.0),
        (FLIGHTS[0], FLIGHTS[2], 2, 8.0),
        (9_100_000, 20_000, 1, 8.0),
        (9_100_000, 20_000, 2, 2.0),
    ],
)
def test_where_features_are_left_out_rounds_have_several_passes(
    entries: int, support: int, k: int, expected: float
) -> None:
    assert screened_epochs(entries // k, support, k, k, loopback=True) == expected
    assert screened_epochs(entries // k, support, k, k, loopback=False) >= expected
    assert screened_epochs(entries // k, support, k, k, loopback=True, quadratic=False) == 2.0
    assert screened_epochs(0, 0, k, k, loopback=True) == 1.0
