"""Threads that visit the rows of a block together: their steps are those that can be told beforehand, bit for bit."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from acccocoa import shardfile
from acccocoa.examples import Examples
from acccocoa.problem import Problem
from worker import kernels, local_solver
from worker.local_solver import NOBODY, NOT_CENTRED, LocalSolver, RoundPlan, mean_cosine, team_of
from worker.shard import Shard, build
from worker.state import DualState

Vector = NDArray[np.float64]

POOL = ThreadPoolExecutor(5)


def shard_of(n: int, d: int, filled: float, seed: int = 0, dtype: type = np.float32, shift: float = 0.0) -> Shard:
    rng = np.random.default_rng(seed)
    dense = (rng.standard_normal((n, d)) + shift) * (rng.random((n, d)) < filled)
    mask = dense != 0
    examples = Examples(
        indptr=np.concatenate(([0], np.cumsum(mask.sum(axis=1)))).astype(np.int64),
        indices=np.nonzero(mask)[1].astype(np.int32),
        values=dense[mask].astype(dtype),
        labels=np.where(rng.random(n) < 0.5, -1.0, 1.0),
    )
    return build(examples, shardfile.content_hash(examples))


def solver_of(shard: Shard, loss: str, members: int, together: int, *, shrinking: bool = False) -> LocalSolver:
    solver = LocalSolver(
        shard, Problem(loss, 0.01, shard.n).subproblem, 1.0, 0, 0, POOL, shrinking=shrinking, threads=members
    )
    solver._members, solver._together = members, together
    return solver


def told_beforehand(
    solver: LocalSolver, rows: NDArray[np.uint32], z: Vector, w: Vector, kappa: float, size: int, together: int
) -> list[Vector]:
    """Update z; every member's u. Each member makes the steps of the others LAG points after they did."""
    shard = solver.shard
    share = -(-len(rows) // size)
    points = -(-share // together)
    us = [w.copy() for _ in range(size)]
    steps: list[list[list[tuple[int, float]]]] = [[[] for _ in range(points)] for _ in range(size)]

    def follow(member: int, point: int) -> None:
        for other in range(size):
            for i, step in steps[other][point] if other != member else ():
                entries = slice(int(shard.indptr[i]), int(shard.indptr[i + 1]))
                us[member][shard.positions(i, i + 1)] += step * shard.values[entries].astype(np.float64)

    for point in range(points):
        for member in range(size):
            own = rows[member * share : (member + 1) * share]
            for i in own[point * together : (point + 1) * together].tolist():
                before = z[i]
                arrays = (shard.indptr, shard.indices, shard.values, solver.y, solver.s, shard.squared_norms)
                one = np.array([i], dtype=np.uint32)
                kernels.sdca(*arrays, z, us[member], one, kappa, solver.loss, NOBODY, NOT_CENTRED, 0.0, kernels.ALONE)
                if z[i] != before:
                    steps[member][point].append((i, kappa * (z[i] - before)))
        if point >= kernels.LAG:
            for member in range(size):
                follow(member, point - kernels.LAG)
    for point in range(max(0, points - kernels.LAG), points):
        for member in range(size):
            follow(member, point)
    return us


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["hinge", "logistic", "squared_hinge", "squared"]),
    st.integers(2, 4),
    st.integers(1, 9),
    st.integers(1, 60),
    st.sampled_from([0.05, 0.9]),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 1000),
)
def test_the_steps_of_a_team(
    loss: str, size: int, together: int, n: int, filled: float, dtype: type, seed: int
) -> None:
    shard = shard_of(n, 30, filled, seed, dtype)
    solver = solver_of(shard, loss, size, together)
    rng = np.random.default_rng(seed)
    w, kappa = 0.1 * rng.standard_normal(len(shard.support)), 0.5
    rows = rng.permutation(n)[: rng.integers(0, n + 1)].astype(np.uint32)
    z = np.zeros(n)
    expected_z = z.copy()
    expected = told_beforehand(solver, rows, expected_z, w, kappa, size, together)
    us = [w.copy() for _ in range(size)]
    solver._visit(rows, z, us, kappa, NOBODY, 0.0)
    assert_array_equal(z, expected_z)
    for found, member in zip(us, expected, strict=True):
        assert_array_equal(found, member)


@pytest.mark.parametrize("shrinking", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_rounds_of_a_team_are_exact_and_the_same_every_time(size: int, shrinking: bool) -> None:
    """More threads than cores, too; several passes in a round visit a row more than once."""
    shard = shard_of(4000, 200, 0.1)
    kept = []
    for _ in range(6):
        solver = solver_of(shard, "hinge", size, 3, shrinking=shrinking)
        state = DualState.zeros(shard.n, 1)
        (block,) = shard.blocks
        v = np.zeros(len(shard.support))
        for t in range(3):
            plan = RoundPlan(t, 1.0, 1.0, 1.0, [2 * block.buckets + 7], 1.0)
            assert state.begin(t)
            a_dz, steps = solver.solve(state, plan, v / 0.01)
            assert steps >= 2 * shard.n
            v += a_dz
            assert state.pending is not None
            moved = state.pending.z_next
            expected = np.zeros_like(v)
            kernels.add_columns(shard.indptr, shard.indices, shard.values, moved, 0, shard.n, expected)
            assert_allclose(v, expected / shard.n, rtol=1e-9, atol=1e-12)
        kept.append((v.copy(), moved.copy()))
    for v, moved in kept[1:]:
        assert_array_equal(v, kept[0][0])
        assert_array_equal(moved, kept[0][1])


def test_a_team_comes_as_near_to_the_optimum_as_one_thread() -> None:
    shard = shard_of(3000, 400, 0.1)
    problem = Problem("hinge", 0.01, shard.n)
    gaps = {}
    for size in (1, 2, 4):
        solver = solver_of(shard, "hinge", size, 4)
        state = DualState.zeros(shard.n, 1)
        (block,) = shard.blocks
        v = np.zeros(len(shard.support))
        for t in range(4):
            assert state.begin(t)
            v += solver.solve(state, RoundPlan(t, 1.0, 1.0, 1.0, [2 * block.buckets], 1.0), problem.grad_f(v))[0]
        assert state.begin(4)
        state.restart()
        w = problem.grad_f(v)
        primal = problem.objective_b(w, solver.loss_sum(w))
        gaps[size] = primal + problem.objective_a(v, solver.conjugate_sum(state, 0.0))
    assert 0 < gaps[1] < 1e-2
    assert max(gaps.values()) < 1.5 * gaps[1]


def test_when_threads_become_a_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_solver, "WORTH_THREADS", 1000)
    wide = shard_of(2000, 3000, 0.02)
    assert mean_cosine(wide) < 0.001
    assert team_of(wide, 1) == (1, 1)
    most = round(local_solver.TEAM_ENTRIES[1] * wide.n / wide.nnz)
    assert team_of(wide, 2) == (2, most)
    members, together = team_of(wide, 64)
    # every other one that is to be followed needs time of its own
    assert 2 < members < 64
    assert together * wide.nnz / wide.n >= local_solver.TEAM_ENTRIES[0] * (members - 1)
    similar = shard_of(2000, 20, 0.3, shift=3.0)
    assert mean_cosine(similar) > 0.25
    assert team_of(similar, 2) == (1, 1)
    monkeypatch.setattr(local_solver, "NEAR", len(wide.support) - 1)
    assert team_of(wide, 2) == (1, 1)
    monkeypatch.setattr(local_solver, "NEAR", len(wide.support))
    assert team_of(replace(wide, by_features=True), 2) == (1, 1)
    assert team_of(wide, 2) == (2, most)
    monkeypatch.setattr(local_solver, "WORTH_THREADS", 1 << 30)
    assert team_of(wide, 2) == (1, 1)


def test_the_mean_cosine() -> None:
    shard = shard_of(300, 20, 0.5, shift=0.5)
    dense = np.zeros((shard.n, len(shard.support)))
    for i in range(shard.n):
        dense[i, shard.positions(i, i + 1)] = shard.values[int(shard.indptr[i]) : int(shard.indptr[i + 1])]
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    cosines = dense @ dense.T
    assert_allclose(mean_cosine(shard), cosines[~np.eye(shard.n, dtype=np.bool_)].mean(), rtol=1e-9)
