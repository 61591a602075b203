"""A sole worker ends its rounds when the gap is small enough: what it answers then, and runs that are made so."""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from acccocoa.config import StopConfig, Wire
from acccocoa.losses import Vector
from acccocoa.problem import Certified, Problem, certify
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import ENOUGH, CertificateSchedule, Work
from coordinator.training import CertifiedRound, Outcome, Training
from tests.support.asked import Asked, assert_goes_on_where_its_state_was_taken
from tests.support.fitting import Data, likeness, some_weights
from tests.support.inprocess import InProcessWorkers
from tests.unit.test_training import data_for, other_optimum, patient_liblinear_w, primal, problem_of
from worker.local_solver import RoundPlan, parts_of_a_pass

MOST = 400
"""Passes that are more than enough here."""

LOSSES = ("hinge", "squared_hinge", "logistic", "squared", "huber", "epsilon_insensitive")


@dataclass(frozen=True)
class Round:
    """The first round of a sole worker.

    a_dz : as it was answered, of all features;  a_z : A z from z itself
    """

    a_dz: Vector
    a_z: Vector
    steps: int
    passes: float
    enough: bool
    certified: Certified


def text() -> Data:
    """Sparse rows, few of them coupled closely."""
    return likeness("rcv1", 6000, 3000)


def first_round(
    data: Data,
    problem: Problem,
    enough: float,
    *,
    blocks: int = 1,
    passes: float = MOST,
    stride: int = 1,
    s: Vector | None = None,
    sharing: int = 1,
) -> Round:
    n, d = data.x.shape
    workers = InProcessWorkers(data.examples, problem, 1, weights=s, threads=blocks, sharing=sharing, shrinking=True)
    (solver,), (state,), (shard,) = workers.solvers, workers.states, workers.shards
    assert len(shard.blocks) == blocks
    (work,) = workers.plan(passes)
    plan = RoundPlan(0, 1.0, 1.0, float(blocks), work.visits, work.fraction, enough=enough, stride=stride)
    answer, steps = solver.solve(state, plan, np.zeros(len(shard.support)))
    assert state.pending is not None
    z, a_dz = np.empty(n), np.zeros(d)
    z[shard.rows], a_dz[shard.support] = state.pending.z_next, answer
    gone = sum(state.pending.cursors) / sum(block.buckets for block in shard.blocks)
    certified = certify(problem, data.x, data.y, data.x.T @ z / (problem.lam * n), z, s)
    return Round(a_dz, data.x.T @ z / n, steps, gone, state.pending.standing is not None, certified)


def fitting(loss: str) -> Data:
    found = data_for(loss)
    return Data(found.dense, found.y)


# ----------------------------------------------------------------------------------------------------------- a round


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("loss", LOSSES)
def test_it_ends_with_the_first_pass_that_is_enough(loss: str, blocks: int) -> None:
    data = fitting(loss)
    problem = Problem(loss, 0.05, len(data.y))
    found = first_round(data, problem, 1e-2, blocks=blocks)
    assert found.enough
    assert found.certified.relative_gap <= 1e-2 * (1 + 1e-9)
    # what is answered is what the dual variables say
    assert_allclose(found.a_dz, found.a_z, rtol=1e-9, atol=1e-12 * np.abs(found.a_z).max())
    # with a pass less it had not been enough: the same passes without a say of the gap
    made = round(found.steps / len(data.y))
    assert 1 <= made < MOST
    if made > 1:
        before = first_round(data, problem, 1e-2, blocks=blocks, passes=made - 1)
        assert not before.enough
        assert before.certified.relative_gap > 1e-2


@pytest.mark.parametrize("blocks", [1, 2])
def test_what_is_never_enough_makes_all_visits(blocks: int) -> None:
    data = fitting("hinge")
    found = first_round(data, Problem("hinge", 1e-4, len(data.y)), 1e-300, blocks=blocks, passes=3.5)
    assert not found.enough
    assert found.steps == pytest.approx(3.5 * len(data.y), abs=16 * blocks)
    assert_allclose(found.a_dz, found.a_z, rtol=1e-9, atol=1e-12 * np.abs(found.a_z).max())


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("enough", [1e-2, 1e-3])
def test_a_sample_ends_it_as_all_rows_would(loss: str, enough: float) -> None:
    data = text()
    problem = Problem(loss, 1e-3, len(data.y))
    whole = first_round(data, problem, enough)
    sampled = first_round(data, problem, enough, stride=6)
    assert whole.enough
    assert sampled.enough
    assert sampled.certified.relative_gap <= enough
    assert sampled.steps == whole.steps


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks tell each other eight times in a pass, however few entries there are."""
    monkeypatch.setattr("worker.local_solver.ENTRIES_WORTH_TELLING", 1)
    monkeypatch.setattr("worker.local_solver.PARTS_BY_COUPLING", math.inf)
    monkeypatch.setattr("worker.local_solver.SUPPORT_WORTH_TELLING", 0)


@pytest.mark.usefixtures("talkative")
@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.parametrize("loss", LOSSES)
def test_blocks_that_tell_each_other_in_a_pass(loss: str, blocks: int) -> None:
    data = fitting(loss)
    found = first_round(data, Problem(loss, 0.05, len(data.y)), 1e-2, blocks=blocks)
    assert found.enough
    assert found.certified.relative_gap <= 1e-2 * (1 + 1e-9)
    assert_allclose(found.a_dz, found.a_z, rtol=1e-9, atol=1e-12 * np.abs(found.a_z).max())
    without = first_round(data, Problem(loss, 0.05, len(data.y)), 1e-300, blocks=blocks, passes=3.0)
    assert not without.enough
    assert_allclose(without.a_dz, without.a_z, rtol=1e-9, atol=1e-12 * np.abs(without.a_z).max())
    # a share of the pass in every part, all of the pass after eight; what rows at rest have saved goes to whole buckets
    assert without.steps == pytest.approx(3 * len(data.y), rel=0.05)


@pytest.mark.usefixtures("talkative")
def test_that_saves_passes() -> None:
    problem = Problem("hinge", 1e-4, len(text().y))
    assert parts_of_a_pass(10, 1, 2, 1.0) == 5
    often = first_round(text(), problem, 1e-2, blocks=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("worker.local_solver.MOST_PARTS", 1)
        once = first_round(text(), problem, 1e-2, blocks=2)
    assert often.enough
    assert once.enough
    assert often.steps < 0.7 * once.steps


@pytest.mark.parametrize(
    ("entries", "support", "blocks", "coupling", "parts"),
    [
        (1 << 30, 10, 1, math.inf, 1),  # nobody to tell
        (1000, 10, 2, math.inf, 1),
        (3 << 20, 1000, 2, 1.0, 3),
        (3 << 20, 1 << 19, 2, 1.0, 2),  # vectors are long
        (1 << 30, 1000, 2, 1.0, 8),
        (1 << 30, 1000, 2, 0.1, 3),  # nothing much to tell
        (1 << 30, 1000, 2, 0.0, 1),
        (1 << 30, 1 << 27, 4, math.inf, 1),
    ],
)
def test_how_often_blocks_tell_each_other(entries: int, support: int, blocks: int, coupling: float, parts: int) -> None:
    assert parts_of_a_pass(entries, support, blocks, coupling) == parts


def test_examples_that_weigh_more_or_nothing() -> None:
    data = fitting("logistic")
    s = some_weights(len(data.y))
    found = first_round(data, Problem("logistic", 0.05, len(data.y)), 1e-3, s=s, blocks=2)
    assert found.enough
    assert found.certified.relative_gap <= 1e-3 * (1 + 1e-9)


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_same_bits_on_any_number_of_threads(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.local_solver.WORTH_THREADS", 0)
    problem = Problem("hinge", 1e-3, len(text().y))
    rounds = [first_round(text(), problem, 1e-3, blocks=blocks, stride=6, sharing=n) for n in (1, 2, 4)]
    assert rounds[0].enough
    for other in rounds[1:]:
        assert other.a_dz.tobytes() == rounds[0].a_dz.tobytes()
        assert replace(other, a_dz=rounds[0].a_dz, a_z=rounds[0].a_z) == rounds[0]


def test_values_that_are_no_numbers_are_never_enough() -> None:
    data = fitting("hinge")
    workers = InProcessWorkers(data.examples, Problem("hinge", 1e-3, len(data.y)), 1)
    (work,) = workers.plan(2.0)
    plan = RoundPlan(0, 1.0, 1.0, 1.0, work.visits, work.fraction, enough=1e-3)
    a_dz, _ = workers.solvers[0].solve(workers.states[0], plan, np.full(len(workers.shards[0].support), math.nan))
    pending = workers.states[0].pending
    assert pending is not None
    assert pending.standing is None
    assert np.isnan(a_dz).any()


# ------------------------------------------------------------------------------------------------------------- a run


@dataclass
class Run:
    """A run on a sole worker, and what was seen of it; its first round has so many passes at most."""

    data: Data
    problem: Problem
    tol: float = 1e-4
    blocks: int = 1
    first: float = MOST
    enough: float | None = None
    max_rounds: int = 5000
    wire: Wire = "float64"
    seen: list[CertifiedRound] = field(default_factory=list)
    keep: Callable[[Training], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.workers = Asked(self.data.examples, self.problem, 1, threads=self.blocks)
        self.training = Training(
            OuterLoop(self.problem, self.data.x.shape[1], self.blocks),
            self.workers,
            self.works_after(0.0),
            CertificateSchedule(self.tol),
            StopConfig(tol=self.tol, max_rounds=self.max_rounds),
            interrupted=threading.Event(),
            observe=self.seen.append,
            keep=self.keep,
            works_after=self.works_after,
            wire=self.wire,
            enough=ENOUGH * self.tol if self.enough is None else self.enough,
        )

    def works_after(self, passes: float) -> Sequence[Work]:
        return self.workers.plan(1.0 if passes > 0.0 else self.first)

    def go(self) -> Outcome:
        outcome = self.training.run()
        if outcome.status == "converged":
            assert 0.0 <= outcome.relative_gap <= self.tol
            alpha = np.empty(len(self.data.y))
            alpha[self.workers.shards[0].rows] = self.workers.states[0].alpha
            found = certify(self.problem, self.data.x, self.data.y, outcome.w, alpha)
            assert outcome.certified.primal == pytest.approx(found.primal, rel=1e-12)
            assert outcome.certified.dual == pytest.approx(found.dual, rel=1e-9)
            assert found.relative_gap <= self.tol * 1.001
        return outcome


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic", "squared", "huber"])
def test_one_round_is_enough_and_ends_at_the_optimum_of_other_solvers(loss: str, blocks: int) -> None:
    full = data_for(loss)
    run = Run(fitting(loss), problem_of(loss, full, 0.05), tol=1e-6, blocks=blocks, first=10_000)
    outcome = run.go()
    assert (outcome.status, outcome.rounds) == ("converged", 1)
    expected = primal(run.problem, full, other_optimum(run.problem, full))
    assert outcome.certified.primal == pytest.approx(expected, rel=2e-6)
    # no second round is begun beside the certificate
    assert [request.round for request in run.workers.solves] == [0]
    assert [seen.round for seen in run.seen] == [0, 1]


def test_where_a_round_has_ended_is_certified_with_it() -> None:
    run = Run(fitting("logistic"), Problem("logistic", 0.05, len(fitting("logistic").y)), tol=1e-6)
    outcome = run.go()
    assert (outcome.status, outcome.rounds, outcome.drift) == ("converged", 1, 0.0)
    (solved, ended) = run.workers.asked
    assert (solved.certify, solved.solve) == (True, True)  # at alpha = 0 the gap is what it is
    # neither a certificate nor A y are asked for again, nor is w sent
    assert ended.finish
    assert ended.repeats_w
    assert (ended.certify, ended.audit, ended.solve) == (False, False, False)


def test_vectors_of_such_a_round_travel_as_they_are() -> None:
    data = fitting("logistic")
    problem = Problem("logistic", 1e-3, len(data.y))
    run = Run(data, problem, tol=1e-4, first=1.0, wire="float32")
    outcome = run.go()
    assert outcome.status == "converged"
    assert outcome.rounds > 1
    solves = run.workers.solves
    assert {request.narrow for request in solves if request.enough} == {False}
    assert {request.narrow for request in solves if not request.enough} == {True}


def test_the_hinge_loss_ends_at_liblinears_optimum() -> None:
    full = data_for("hinge")
    run = Run(fitting("hinge"), problem_of("hinge", full, 0.05), tol=1e-5, first=10_000)
    outcome = run.go()
    assert (outcome.status, outcome.rounds) == ("converged", 1)
    expected = primal(run.problem, full, patient_liblinear_w(run.problem, full))
    assert outcome.certified.primal == pytest.approx(expected, rel=2e-5)


def test_where_that_was_not_enough_rounds_with_momentum_follow() -> None:
    run = Run(fitting("hinge"), Problem("hinge", 1e-3, len(fitting("hinge").y)), tol=1e-3, first=2.0)
    outcome = run.go()
    assert outcome.status == "converged"
    assert outcome.rounds > 2
    for request in run.workers.solves:
        # only where there is no momentum is what it sees the gap
        assert request.enough == (ENOUGH * run.tol if request.restart else 0.0)
        assert request.restart == (request.theta == 1.0)
    assert run.workers.solves[0].restart
    assert not all(request.restart for request in run.workers.solves)


def test_what_only_seemed_to_be_enough_goes_on() -> None:
    run = Run(fitting("logistic"), Problem("logistic", 0.01, len(fitting("logistic").y)), tol=1e-6, enough=1e-2)
    outcome = run.go()
    assert outcome.status == "converged"
    assert outcome.rounds > 1
    # each such round is followed by a certificate
    assert [seen.round for seen in run.seen[:2]] == [0, 1]


def test_after_a_resync_nothing_is_promised() -> None:
    run = Run(fitting("logistic"), Problem("logistic", 0.05, len(fitting("logistic").y)))
    run.workers.forget_in = 0
    outcome = run.go()
    assert (outcome.status, outcome.resyncs) == ("converged", 1)
    assert [request.round for request in run.workers.solves][:2] == [0, 1]
    assert run.workers.solves[1].enough > 0.0


@pytest.mark.parametrize("round_number", [1, 2, 5])
def test_a_run_goes_on_where_its_state_was_taken(round_number: int) -> None:
    def begun(keep: Callable[[Training], bool]) -> Run:
        data = fitting("logistic")
        problem = Problem("logistic", 1e-3, len(data.y))
        return Run(data, problem, tol=1e-8, first=3.0, enough=1e-1, max_rounds=30, keep=keep)

    whole, again = assert_goes_on_where_its_state_was_taken(begun, round_number)
    later = [request for request in whole.workers.asked if request.round >= round_number]
    assert [(request.round, request.certify, request.solve) for request in again.workers.asked] == [
        (request.round, request.certify, request.solve) for request in later
    ]
