"""The dual variables of a shard: taking a round over, repeating it, refusing another."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from acccocoa import losses, shardfile
from acccocoa.examples import Examples
from acccocoa.losses import Vector
from acccocoa.problem import Problem
from coordinator.outer_loop import next_theta
from worker import kernels
from worker.kernels import into_domain
from worker.local_solver import LocalSolver, RoundPlan
from worker.shard import build
from worker.state import DualState, Pending

N, D = 90, 6
THREADS = 2
PLAN = RoundPlan(round=0, theta=1.0, gamma=1.0, sigma=float(THREADS), visits=(20, 30), fraction=1.0)


@pytest.fixture
def solver() -> LocalSolver:
    return solver_for("hinge")


def solver_for(loss: str) -> LocalSolver:
    rng = np.random.default_rng(4)
    examples = Examples(
        indptr=np.arange(0, N * D + 1, D, dtype=np.int64),
        indices=np.tile(np.arange(D, dtype=np.int32), N),
        values=rng.standard_normal(N * D),
        labels=np.where(rng.random(N) < 0.4, 1.0, -1.0),
    )
    shard = build(examples, shardfile.content_hash(examples), threads=THREADS)
    problem = Problem(loss, 1e-3, N).subproblem
    return LocalSolver(shard, problem, 1.0, 0, 11, ThreadPoolExecutor(THREADS), shrinking=True)


def fresh(solver: LocalSolver) -> DualState:
    return DualState.zeros(solver.shard.n, len(solver.shard.blocks))


def w_of(round_number: int) -> Vector:
    return np.random.default_rng(round_number).standard_normal(D)


def snapshot(state: DualState) -> tuple[bytes, bytes, bytes, int, tuple[int, ...]]:
    return state.alpha.tobytes(), state.z.tobytes(), state.idle.tobytes(), state.round, tuple(state.cursors)


def plan_of(t: int) -> RoundPlan:
    theta = 1.0
    for _ in range(t):
        theta = next_theta(theta, 1.0)
    return replace(PLAN, round=t, theta=theta)


def test_zeros_is_feasible_and_cold() -> None:
    state = DualState.zeros(3, 2)
    assert snapshot(state) == (bytes(24), bytes(24), bytes(3), 0, (0, 0))
    assert state.pending is None


def test_solving_leaves_the_state_as_it_was(solver: LocalSolver) -> None:
    state = fresh(solver)
    before = snapshot(state)
    _, steps = solver.solve(state, PLAN, w_of(0))
    assert snapshot(state) == before
    assert state.pending is not None
    assert state.pending.cursors == [20, 30]
    assert steps == sum(min(v, b.last - b.first) for v, b in zip(PLAN.visits, solver.shard.blocks, strict=True))


def test_next_round_takes_the_pending_one_over(solver: LocalSolver) -> None:
    state = fresh(solver)
    state.alpha[:] = state.z[:] = 0.25 * solver.y
    state.z[:10] = 0.0
    plan = replace(PLAN, theta=0.5)
    solver.solve(state, plan, w_of(0))
    assert state.pending is not None
    z_next, alpha, z = state.pending.z_next.copy(), state.alpha.copy(), state.z.copy()
    assert state.begin(1)
    assert (state.round, state.cursors) == (1, [20, 30])
    assert state.pending is None
    assert_array_equal(state.z, z_next)
    assert_array_equal(state.alpha, (0.5 * alpha + 0.5 * z) + 0.5 * (z_next - z))


def test_repeating_a_round_gives_the_same_bits(solver: LocalSolver) -> None:
    state, twin = fresh(solver), fresh(solver)
    for t in range(5):
        assert state.begin(t)
        assert twin.begin(t)
        answer, _ = solver.solve(state, plan_of(t), w_of(t))
        for _ in range(3):
            # asked anew, by another w even, the twin forgets what it had computed
            solver.solve(twin, replace(plan_of(t), visits=(7, 1)), w_of(100 + t))
            assert twin.begin(t)
            assert twin.pending is None
        again, _ = solver.solve(twin, plan_of(t), w_of(t))
        assert answer.tobytes() == again.tobytes()
        assert snapshot(state) == snapshot(twin)
    assert state.begin(5)
    assert twin.begin(5)
    assert snapshot(state) == snapshot(twin)
    assert state.alpha.any()


@pytest.mark.parametrize("asked", [-1, 0, 1, 4, 5, 100])
def test_other_rounds_are_refused_and_change_nothing(solver: LocalSolver, asked: int) -> None:
    state = fresh(solver)
    for t in range(3):
        assert state.begin(t)
        solver.solve(state, plan_of(t), w_of(t))
    assert state.round == 2
    before, pending = snapshot(state), state.pending
    assert not state.begin(asked)
    assert snapshot(state) == before
    assert state.pending is pending
    assert state.begin(3)


def test_a_round_not_solved_cannot_be_followed() -> None:
    state = DualState.zeros(2, 1)
    assert not state.begin(1)
    assert state.begin(0)
    state.pending = Pending(np.ones(2), 1.0, 1.0, [1], np.zeros(2, np.uint8))
    assert state.begin(0)
    assert not state.begin(1)


def test_restart_drops_the_momentum(solver: LocalSolver) -> None:
    state = fresh(solver)
    for t in range(3):
        assert state.begin(t)
        solver.solve(state, plan_of(t), w_of(t))
    state.begin(3)
    assert not np.array_equal(state.z, state.alpha)
    alpha = state.alpha.copy()
    state.restart()
    assert_array_equal(state.z, alpha)
    assert_array_equal(state.alpha, alpha)
    state.alpha[0] += 1.0
    assert state.z[0] == alpha[0]


@pytest.mark.parametrize("fraction", [1.0, 0.5, 0.3, 0.1])
@pytest.mark.parametrize("gamma", [1.0, 0.5])
@pytest.mark.parametrize("name", losses.NAMES)
def test_alpha_stays_feasible(name: str, gamma: float, fraction: float) -> None:
    solver = solver_for(name)
    loss, state = solver.problem.loss, fresh(solver)
    theta = fraction
    for t in range(40):
        assert state.begin(t)
        if t % 13 == 0:
            state.restart()
            theta = fraction
        for point in (state.alpha, state.z):
            a = solver.y * point if loss.classifier else np.abs(point)
            rounding = 4e-16 * float(np.abs(point).max())
            assert a.min() >= -rounding
            assert a.max() <= loss.bound + rounding
        visits = tuple(max(1, round(fraction * block.buckets)) for block in solver.shard.blocks)
        plan = RoundPlan(t, theta, gamma, gamma * THREADS, visits, fraction)
        # predictions of all sizes: steps inside the domain and to its ends
        solver.solve(state, plan, w_of(t) * 10.0 ** (t % 7 - 2))
        theta = next_theta(theta, gamma)


def test_alpha_may_fall_below_zero_by_rounding_in_a_partial_round_after_a_restart() -> None:
    loss, n, fraction = losses.loss("logistic"), 500, 0.3
    point = np.linspace(0.01, 0.99, n)
    state = DualState(point.copy(), point.copy(), 0, [0], np.zeros(n, np.uint8))
    # theta_0 = p: the weight of z_t in alpha_{t+1} is (1 - p) + p - p/p = 0, but not in floating point
    state.pending = Pending(np.full(n, 1e-30), fraction, fraction, [1], np.zeros(n, np.uint8))
    assert state.begin(1)
    conjugate = kernels.conjugate_sum(np.ones(n), np.ones(n), state.alpha, state.z, fraction, 0, n, loss)
    assert math.isfinite(conjugate)
    assert 0.0 > state.alpha.min() > -1e-15


# ------------------------------------------------------------------------------------------- marks, resync, warm starts


def test_a_mark_is_returned_to_with_the_same_bits(solver: LocalSolver) -> None:
    state = fresh(solver)
    answers = {}
    for t in range(6):
        assert state.begin(t)
        if t == 2:
            state.mark = state.snapshot()
        answers[t], _ = solver.solve(state, plan_of(t), w_of(t))
    assert [t for t in range(9) if state.can_begin(t)] == [2, 5, 6]
    kept = snapshot(state)
    for t in range(2, 6):
        assert state.begin(t)
        again, _ = solver.solve(state, plan_of(t), w_of(t))
        assert again.tobytes() == answers[t].tobytes()
    assert snapshot(state) == kept
    # the mark itself is still there, whatever was written since
    assert state.begin(2)
    assert state.mark is not None
    assert snapshot(state) == snapshot(DualState.of(state.mark))


def test_a_snapshot_is_a_copy(solver: LocalSolver) -> None:
    state = fresh(solver)
    solver.solve(state, plan_of(0), w_of(0))
    assert state.begin(1)
    taken = state.snapshot()
    twin = DualState.of(taken)
    assert snapshot(twin) == snapshot(state)
    for t in range(1, 3):
        assert state.begin(t)
        solver.solve(state, plan_of(t), w_of(t))
    assert snapshot(twin) == snapshot(DualState.of(taken)) != snapshot(state)
    twin.alpha[:] = twin.z[:] = 9.0
    twin.cursors[0] = 9
    assert snapshot(DualState.of(taken)) != snapshot(twin)


@pytest.mark.parametrize("to", [0, 3, 17])
def test_resync_goes_on_from_alpha_at_any_round(solver: LocalSolver, to: int) -> None:
    state = fresh(solver)
    for t in range(3):
        assert state.begin(t)
        state.mark = state.snapshot()
        solver.solve(state, plan_of(t), w_of(t))
    alpha, cursors = state.alpha.copy(), list(state.cursors)
    state.resync(to)
    assert_array_equal(state.alpha, alpha)
    assert_array_equal(state.z, alpha)
    assert (state.round, state.cursors, state.pending) == (to, cursors, None)
    # a coordinator that comes back may still want to return to the mark
    assert [t for t in range(20) if state.can_begin(t)] == sorted({2, to})
    state.resync(to, "other")
    assert [t for t in range(20) if state.can_begin(t, "other")] == [to]
    assert [t for t in range(20) if state.can_begin(t)] == [2]


@pytest.mark.parametrize("name", losses.NAMES)
def test_into_domain_moves_no_further_than_it_must(name: str) -> None:
    loss = losses.loss(name)
    rng = np.random.default_rng(1)
    n = 200
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0) if loss.classifier else rng.standard_normal(n)
    s = np.where(rng.random(n) < 0.1, 0.0, rng.uniform(0.5, 2.0, n))
    alpha = 3.0 * rng.standard_normal(n)
    moved = alpha.copy()
    into_domain(loss, y, s, moved)
    assert np.isfinite(losses.conjugate(loss, y, moved, s)).all()
    feasible = np.isfinite(losses.conjugate(loss, y, alpha, s))
    assert feasible.any()
    assert_array_equal(moved[feasible], alpha[feasible])
    # the others end at an end of the domain, where another step outwards leaves it
    step = 1e-6 * np.sign(alpha - moved)
    outside = ~feasible
    assert np.isinf(losses.conjugate(loss, y, moved + step, s)[outside]).all()
    again = moved.copy()
    into_domain(loss, y, s, again)
    assert_array_equal(again, moved)
