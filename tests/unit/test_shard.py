"""A shard holds the rows it was made of, in the order and numbering the solver wants; and the order of visits."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from acccocoa import shardfile
from acccocoa.errors import UsageError
from acccocoa.examples import Examples
from acccocoa.problem import FeatureProblem, Problem
from worker import shard as shard_module
from worker.local_solver import LocalSolver, RoundPlan, order_of_visits
from worker.shard import Shard, build, build_by_features, cut_blocks
from worker.state import DualState


def examples_of(dense: NDArray[np.float64], labels: NDArray[np.float64]) -> Examples:
    """The entries of a dense matrix that are not zero."""
    mask = dense != 0
    return Examples(
        indptr=np.concatenate(([0], np.cumsum(mask.sum(axis=1)))).astype(np.int64),
        indices=np.nonzero(mask)[1].astype(np.int32),
        values=dense[mask].astype(np.float32),
        labels=labels,
    )


def random_examples(n: int, d: int, seed: int = 0) -> tuple[Examples, NDArray[np.float64]]:
    """Examples and the same densely, as float32 rounds them; popularity of features differs, some never occur."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((n, d)) * (rng.random((n, d)) < rng.choice([0.0, 0.1, 0.4, 0.9], d))
    dense = dense.astype(np.float32).astype(np.float64)
    return examples_of(dense, np.arange(n, dtype=np.float64)), dense


def dense_of(shard: Shard, d: int) -> NDArray[np.float64]:
    """The shard's rows with the features' own numbers."""
    dense = np.zeros((shard.n, d))
    for i, (start, stop) in enumerate(itertools.pairwise(shard.indptr.tolist())):
        dense[i, shard.support[shard.positions(i, i + 1)]] = shard.values[start:stop]
    return dense


# ------------------------------------------------------------------------------------------------------------- the rows


def test_more_rows_than_have_numbers_are_refused() -> None:
    many = shard_module.MOST_ROWS + 1
    labels = np.broadcast_to(np.float64(1.0), many)  # takes no memory
    nothing = np.zeros(0)
    examples = Examples(np.zeros(1, np.int64), nothing.astype(np.int32), nothing, labels)
    with pytest.raises(UsageError, match=rf"{many} rows: a shard is made of at most .*; cut them"):
        build(examples, "ab" * 32)


@pytest.mark.parametrize(("labels", "kept"), [((1.0, -1.0), True), ((2.0, 1.0), False)])
def test_labels_of_one_and_minus_one_are_not_kept_twice(labels: tuple[float, float], kept: bool) -> None:
    examples, _ = random_examples(40, 6)
    examples = replace(examples, labels=np.resize(labels, 40))
    shard = build(examples, shardfile.content_hash(examples))
    with ThreadPoolExecutor(1) as pool:
        solver = LocalSolver(shard, Problem("hinge", 0.1, 40).subproblem, labels[0], 0, 0, pool)
        assert (solver.y is shard.labels) == kept
        assert_array_equal(solver.y, np.where(shard.labels == labels[0], 1.0, -1.0))
        opposite = LocalSolver(shard, Problem("hinge", 0.1, 40).subproblem, labels[1], 0, 0, pool)
        assert_array_equal(opposite.y, -solver.y)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 7), (40, 12), (300, 20)])
def test_every_row_is_kept(n: int, d: int, threads: int) -> None:
    examples, dense = random_examples(n, d)
    shard = build(examples, shardfile.content_hash(examples), threads=threads)
    assert_array_equal(np.sort(shard.rows), np.arange(n))
    assert_array_equal(shard.labels, examples.labels[shard.rows])
    assert_array_equal(dense_of(shard, d), dense[shard.rows])
    assert_allclose(shard.squared_norms, (dense[shard.rows] ** 2).sum(axis=1), rtol=1e-13)
    assert (shard.n, shard.nnz, shard.d) == (n, examples.nnz, examples.d)


@pytest.mark.parametrize("by_features", [False, True])
def test_feature_numbers_that_are_far_apart(by_features: bool) -> None:
    """The same shard, under the features' own numbers; an array by number would have 16 GiB."""
    examples, _ = random_examples(40, 12)
    numbers = np.linspace(0, 2**31 - 2, 12).astype(np.int32)
    make = build_by_features if by_features else build
    near, far = make(examples, "0" * 64), make(replace(examples, indices=numbers[examples.indices]), "0" * 64)
    assert (far.indices.tobytes(), far.values.tobytes()) == (near.indices.tobytes(), near.values.tobytes())
    assert_array_equal(far.squared_norms, near.squared_norms)
    assert_array_equal(far.labels, near.labels)
    assert_array_equal(far.rows, numbers[near.rows] if by_features else near.rows)
    assert_array_equal(far.support, near.support if by_features else numbers[near.support])
    assert (far.d, far.features) == ((40, 2**31 - 1) if by_features else (2**31 - 1, 0))


def test_only_the_rows_chosen_are_kept() -> None:
    examples, dense = random_examples(50, 10)
    chosen = np.array([3, 11, 12, 30, 49])
    shard = build(examples, shardfile.content_hash(examples), chosen)
    assert_array_equal(np.sort(shard.rows), chosen)
    assert_array_equal(dense_of(shard, 10), dense[shard.rows])
    assert_array_equal(np.sort(shard.support), np.flatnonzero(dense[chosen].any(axis=0)))
    assert shard.d == shard.support.max() + 1


@pytest.mark.parametrize("threads", [1, 3])
def test_a_alpha_is_that_of_the_mapped_dual_variables(threads: int) -> None:
    n, d = 60, 9
    examples, dense = random_examples(n, d)
    parts = np.array_split(np.random.default_rng(1).permutation(n), 3)
    alpha = np.random.default_rng(2).standard_normal(n)
    total = np.zeros(d)
    with ThreadPoolExecutor(threads) as pool:
        for rank, rows in enumerate(parts):
            shard = build(examples, shardfile.content_hash(examples), rows, threads)
            solver = LocalSolver(shard, Problem("squared", 0.1, n).subproblem, 1.0, rank, 0, pool)
            state = DualState.zeros(shard.n, threads)
            state.alpha[:] = state.z[:] = alpha[shard.rows]
            total[shard.support] += solver.columns(state, 0.5)
    assert_allclose(total, dense.T @ alpha / n, rtol=1e-12, atol=1e-14)


def test_compact_features_are_in_order_of_falling_frequency() -> None:
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((200, 40)) * (rng.random((200, 40)) < rng.choice([0.0, 0.1, 0.4], 40))
    examples = examples_of(dense, np.arange(200.0))
    shard = build(examples, shardfile.content_hash(examples))
    frequency = (dense != 0).sum(axis=0)
    assert len(shard.support) == np.count_nonzero(frequency) < 40
    assert (np.diff(frequency[shard.support]) <= 0).all()
    assert not shard.dense
    assert_array_equal(np.bincount(shard.indices), frequency[shard.support])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 2])
def test_where_features_are_many_rows_are_sorted_and_rare_ones_lie_with_their_first_row(
    monkeypatch: pytest.MonkeyPatch, threads: int, dtype: type
) -> None:
    monkeypatch.setattr(shard_module, "NEAR", 50)
    monkeypatch.setattr(shard_module, "SORTED_TOGETHER", 100)
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((200, 300)) * (rng.random((200, 300)) < rng.choice([0.0, 0.005, 0.02, 0.4], 300))
    dense = dense[:, rng.permutation(300)].astype(np.float32).astype(np.float64)
    examples = examples_of(dense, np.arange(200.0))
    examples = replace(examples, values=examples.values.astype(dtype))
    shard = build(examples, shardfile.content_hash(examples), threads=threads)
    counts = (dense != 0).sum(axis=0)[shard.support]
    rare = int(np.argmax(counts <= shard_module.RARE))
    assert 50 < rare < len(counts)
    assert (np.diff(counts[:rare]) <= 0).all()
    assert (counts[rare:] > 0).all()
    assert (counts[rare:] <= shard_module.RARE).all()
    stored = dense[shard.rows][:, shard.support]
    first = np.argmax(stored != 0, axis=0)
    assert (np.diff(first[rare:]) >= 0).all()
    rows = [shard.indices[begin:end] for begin, end in itertools.pairwise(shard.indptr.tolist())]
    assert all((np.diff(row.astype(np.int64)) > 0).all() for row in rows)
    found = np.zeros_like(stored)
    for row, indices, (begin, end) in zip(found, rows, itertools.pairwise(shard.indptr.tolist()), strict=True):
        row[indices] = shard.values[begin:end]
    assert_array_equal(found, stored)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("by_features", [False, True])
def test_dense_and_sparse_storage_are_the_same_shard(
    monkeypatch: pytest.MonkeyPatch, by_features: bool, threads: int, dtype: type
) -> None:
    examples, _ = random_examples(70, 20)
    examples = replace(examples, values=examples.values.astype(dtype))
    digest = shardfile.content_hash(examples)

    def shard_stored(densely: bool) -> Shard:
        monkeypatch.setattr(shard_module, "DENSE", 0.0 if densely else 1.0)
        make = partial(build_by_features, part=0, parts=1) if by_features else build
        return make(examples, digest, threads=threads)

    full, thin = shard_stored(True), shard_stored(False)
    assert full.dense
    assert not thin.dense
    assert full.values.dtype == thin.values.dtype == dtype
    assert (full.n, full.nnz, full.d) == (thin.n, thin.nnz, thin.d)
    assert len(full.values) == full.n * len(full.support)
    for same in ("rows", "support", "labels", "squared_norms"):
        assert_allclose(getattr(full, same), getattr(thin, same), rtol=1e-14)
    wide = max(examples.n, examples.d)
    assert_array_equal(dense_of(full, wide), dense_of(thin, wide))
    # the same steps to rounding: everything the solver computes, after rounds that visit every row twice
    features = FeatureProblem("squared", 0.1, examples.labels, np.ones(70), l1_ratio=0.5)
    numbers = (features if by_features else Problem("squared", 0.1, 70)).subproblem
    found = []
    for shard in (replace(full, blocks=thin.blocks), thin):
        with ThreadPoolExecutor(threads) as pool:
            solver = LocalSolver(shard, numbers, 1.0, 0, 0, pool)
            state = DualState.zeros(shard.n, threads)
            w = np.random.default_rng(1).standard_normal(len(shard.support))
            visits = [2 * block.buckets for block in shard.blocks]
            a_dz, steps = solver.solve(state, RoundPlan(0, 1.0, 1.0, float(threads), visits, 1.0), w)
            assert state.pending is not None
            z = np.zeros(wide)
            z[shard.rows] = state.pending.z_next
            sums = solver.loss_sum(w), solver.largest_product(w), *solver.gap_sample(state, 1.0, w, 1)
            found.append((a_dz, steps, z, *sums))
    for one, other in zip(*found, strict=True):
        assert_allclose(one, other, rtol=1e-11, atol=1e-13)


def test_the_hash_decides_the_shuffle() -> None:
    examples, _ = random_examples(100, 5)
    digest = shardfile.content_hash(examples)
    first, again = build(examples, digest), build(examples, digest, threads=3)
    assert_array_equal(first.rows, again.rows)
    assert_array_equal(first.indices, again.indices)
    assert_array_equal(first.values, again.values)
    assert not np.array_equal(first.rows, np.arange(100))
    other = build(examples, f"{int(digest, 16) ^ (1 << 200):064x}")
    assert not np.array_equal(first.rows, other.rows)


def test_rows_without_any_entry() -> None:
    examples = examples_of(np.zeros((4, 3)), np.ones(4))
    shard = build(examples, shardfile.content_hash(examples), threads=2)
    assert (shard.n, shard.nnz, shard.d, len(shard.support)) == (4, 0, 0, 0)
    assert_array_equal(shard.squared_norms, np.zeros(4))
    assert [block.last - block.first for block in shard.blocks] == [2, 2]


# ----------------------------------------------------------------------------------------------------------- the blocks


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from([0, 1, 3, 50, 100_000]), min_size=1, max_size=200),
    st.integers(1, 5),
)
def test_blocks_cover_all_rows_once(row_nnz: list[int], threads: int) -> None:
    n = len(row_nnz)
    indptr = np.concatenate(([0], np.cumsum(row_nnz))).astype(np.uint64)
    blocks = cut_blocks(indptr, threads)
    assert len(blocks) == min(threads, n)
    covered = [i for block in blocks for i in range(block.first, block.last)]
    assert covered == list(range(n))
    share = (sum(row_nnz) + n) / len(blocks)
    for block in blocks:
        assert block.last > block.first
        assert sum(row_nnz[block.first : block.last]) + block.last - block.first <= share + max(row_nnz) + 1
        # the buckets cover the block: all full but the last
        assert (
            block.first + (block.buckets - 1) * block.bucket < block.last <= block.first + block.buckets * block.bucket
        )


@pytest.mark.parametrize(
    ("rows", "entries", "bucket"),
    [
        *((1, 40, 1), (63, 40, 1), (127, 40, 1), (128, 40, 2), (1023, 40, 15), (1024, 40, 16), (100_000, 40, 16)),
        *((1, 12, 1), (128, 12, 2), (256, 12, 4), (100_000, 12, 4), (100_000, 0, 4)),
    ],
)
def test_buckets_are_as_large_as_leaves_enough_of_them(rows: int, entries: int, bucket: int) -> None:
    (block,) = cut_blocks(entries * np.arange(rows + 1, dtype=np.uint64), 1)
    assert block.bucket == bucket
    assert block.buckets >= min(rows, shard_module.SMALLEST_ORDER)


# -------------------------------------------------------------------------------------------------- the order of visits


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 60), st.lists(st.integers(1, 150), min_size=1, max_size=12), st.integers(0, 2**63 - 1))
def test_consecutive_slices_visit_every_bucket_once_a_pass(buckets: int, slices: list[int], seed: int) -> None:
    visited: list[int] = []
    for visits in slices:
        passes = order_of_visits(seed, 2, 1, len(visited), visits, buckets)
        assert all(order.dtype == np.uint32 and len(set(order.tolist())) == len(order) for order in passes)
        order = np.concatenate(passes)
        assert len(order) == visits
        visited += order.tolist()
    for start in range(0, len(visited), buckets):
        one_pass = visited[start : start + buckets]
        if len(one_pass) == buckets:
            assert sorted(one_pass) == list(range(buckets))
        else:
            assert len(set(one_pass)) == len(one_pass)
    # however the visits are sliced
    assert visited == np.concatenate(order_of_visits(seed, 2, 1, 0, len(visited), buckets)).tolist()


def test_every_pass_rank_block_and_seed_has_an_order_of_its_own() -> None:
    buckets = 50
    orders = {
        tuple(order_of_visits(seed, rank, block, number * buckets, buckets, buckets)[0].tolist())
        for seed, rank, block, number in itertools.product((0, 1), (0, 1), (0, 1), (0, 1, 2))
    }
    assert len(orders) == 24
