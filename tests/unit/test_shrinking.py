"""Coordinates that do not move rest, and come back; the work they save goes to the others."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from acccocoa import losses, shardfile, synthetic
from acccocoa.config import StopConfig
from acccocoa.problem import Problem, certify
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import CertificateSchedule
from coordinator.training import Outcome, Training
from tests.support.inprocess import InProcessWorkers
from worker import kernels
from worker.local_solver import LONGEST_SEARCH, NOT_CENTRED, LocalSolver, RoundPlan
from worker.shard import build
from worker.state import DualState

N = 3


def visited_in(passes: int, moves: set[int]) -> list[list[int]]:
    """By row, the passes in which it was visited; row 0 moves in the passes named, if it is visited then."""
    # one feature a row, so that the rows have nothing to do with each other
    indptr, indices = np.arange(N + 1, dtype=np.uint64), np.arange(N, dtype=np.uint32)
    ones, u = np.ones(N), np.zeros(N)
    z, idle = np.zeros(N), np.zeros(N, dtype=np.uint8)
    seen: list[list[int]] = [[] for _ in range(N)]
    for number in range(passes):
        before = idle.copy()
        # hinge: at a = 0 a row with y p > 1 stays, one with y p < 1 moves to the other bound
        u[:] = 5.0
        z[:] = 0.0
        if number in moves:
            u[0] = -5.0
        order = np.arange(N, dtype=np.uint32)
        rows = np.empty(N, dtype=np.uint32)
        steps, buckets = kernels.due(ones, 0, N, 1, order, idle, N + 1, rows)
        hinge = losses.loss("hinge")
        kernels.sdca(indptr, indices, ones, ones, ones, ones, z, u, rows[:steps], 1e-3, hinge, idle, NOT_CENTRED, 0.0)
        rested = [before[i] + 1 == idle[i] and int(before[i]) not in {0, 2, 6} for i in range(N)]
        assert steps == N - sum(rested)
        assert buckets == N
        for i in range(N):
            if not rested[i]:
                seen[i].append(number)
    return seen


def test_rests_grow_to_seven_passes() -> None:
    expected = [0, 2, 6, 14, 22, 30, 38, 46]
    assert visited_in(50, set()) == [expected] * N


def test_a_row_that_moves_is_visited_in_the_next_pass_again() -> None:
    first, *others = visited_in(50, {6, 7, 8, 30})
    assert others == [[0, 2, 6, 14, 22, 30, 38, 46]] * (N - 1)
    # moved in 6, 7 and 8, then rests from 9 on; the visit in 30 is not one of its own any more
    assert first[:3] == [0, 2, 6]
    assert first[3:] == [7, 8, 9, 11, 15, 23, 31, 39, 47]


def test_no_rests_without_a_place_to_note_them() -> None:
    data = synthetic.examples("rcv1", 400, 300, 3)
    problem = Problem("hinge", 1e-3, data.n)
    with ThreadPoolExecutor(1) as pool:
        shard = build(data, shardfile.content_hash(data))
        solver = LocalSolver(shard, problem.subproblem, 1.0, 0, 0, pool)
        state = DualState.zeros(shard.n, 1)
        for t in range(3):
            state.begin(t)
            plan = RoundPlan(t, 1.0, 1.0, 1.0, [shard.blocks[0].buckets], 1.0)
            _, steps = solver.solve(state, plan, np.zeros(len(shard.support)))
            assert steps == shard.n
        assert_array_equal(state.idle, 0)


def test_what_resting_rows_save_goes_to_the_others_within_bounds() -> None:
    data = synthetic.examples("rcv1", 400, 300, 3)
    problem = Problem("hinge", 1e-3, data.n)
    with ThreadPoolExecutor(1) as pool:
        shard = build(data, shardfile.content_hash(data))
        solver = LocalSolver(shard, problem.subproblem, 1.0, 0, 0, pool, shrinking=True)
        (block,) = shard.blocks
        state = DualState.zeros(shard.n, 1)
        w = np.zeros(len(shard.support))
        plan = [RoundPlan(t, 1.0, 1.0, 1.0, [block.buckets], 1.0) for t in range(30)]
        for t in range(30):
            state.begin(t)
            _, steps = solver.solve(state, plan[t], w)
            assert state.pending is not None
            gone = state.pending.cursors[0] - state.cursors[0]
            assert block.buckets <= gone <= LONGEST_SEARCH * block.buckets + block.buckets
            # as many as without rests, but for a bucket more or less; fewer only when everything rests
            assert steps <= shard.n + 2 * block.bucket
            assert steps >= shard.n - block.bucket or gone >= LONGEST_SEARCH * block.buckets
        state.resync(30)
        assert_array_equal(state.idle, 0)


def trained(
    shrinking: bool, loss: str, k: int, l1_ratio: float = 0.0, like: str = "covtype", d: int = 54
) -> tuple[Outcome, InProcessWorkers, Problem]:
    data = synthetic.examples(like, 3_000, d, 2)
    labels = sorted(set(data.labels.tolist()))
    problem = Problem(loss, 1e-4, data.n, l1_ratio=l1_ratio)
    workers = InProcessWorkers(data, problem, k, positive_label=labels[1], shrinking=shrinking)
    outcome = Training(
        OuterLoop(problem, data.d, k),
        workers,
        workers.plan(1.0),
        CertificateSchedule(1e-6),
        StopConfig(tol=1e-6, max_rounds=3000),
        interrupted=threading.Event(),
    ).run()
    return outcome, workers, problem


@pytest.mark.parametrize(("loss", "l1_ratio"), [("hinge", 0.0), ("squared_hinge", 0.3), ("squared", 0.0)])
@pytest.mark.parametrize("k", [1, 3])
def test_the_same_optimum_and_an_exact_certificate(loss: str, l1_ratio: float, k: int) -> None:
    resting, workers, problem = trained(True, loss, k, l1_ratio)
    without, _, _ = trained(False, loss, k, l1_ratio)
    assert resting.status == without.status == "converged"
    assert resting.certified.primal == pytest.approx(without.certified.primal, rel=2e-6)
    rows = np.zeros((problem.n, 54))
    alpha, y = np.zeros(problem.n), np.zeros(problem.n)
    for shard, solver, state in zip(workers.shards, workers.solvers, workers.states, strict=True):
        for i in range(shard.n):
            span = slice(int(shard.indptr[i]), int(shard.indptr[i + 1]))
            rows[shard.rows[i], shard.support[shard.positions(i, i + 1)]] = shard.values[span]
        alpha[shard.rows], y[shard.rows] = state.alpha, solver.y
    found = certify(problem, rows, y, resting.w, alpha)
    assert found.primal == pytest.approx(resting.certified.primal, rel=1e-12)
    assert found.dual == pytest.approx(resting.certified.dual, rel=1e-12)


def test_hinge_needs_fewer_passes() -> None:
    resting, without = (trained(shrinking, "hinge", 1, like="rcv1", d=5_000)[0] for shrinking in (True, False))
    assert resting.data_passes < 0.8 * without.data_passes
