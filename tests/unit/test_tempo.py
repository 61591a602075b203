"""Work by measured speed, on times that are made up."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from acccocoa.config import LOCAL_EPOCHS_MAX, StopConfig
from acccocoa.examples import Examples
from acccocoa.problem import Problem
from coordinator.messages import RoundRequest, WorkerUpdate
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import CertificateSchedule, Work, plan_work
from coordinator.tempo import WINDOW, Tempo
from coordinator.training import Training
from tests.support.inprocess import InProcessWorkers

BUCKETS = ((40, 40), (80,), (10, 10, 10))


def works(*epochs: float) -> list[Work]:
    return [plan_work(counts, share) for counts, share in zip(BUCKETS, epochs, strict=True)]


def test_everyone_takes_as_long() -> None:
    tempo = Tempo(BUCKETS, 2.0)
    # seconds a pass: 4, 1, 8
    tempo.took(works(0.5, 0.5, 0.5), [2.0, 0.5, 4.0])
    planned = tempo.plan(works(0.5, 0.5, 0.5))
    assert [work.passes for work in planned] == pytest.approx([0.5, 2.0, 0.2], abs=0.1)
    assert [work.fraction for work in planned] == pytest.approx([0.5, 1.0, 0.2])


def test_nothing_measured_changes_nothing() -> None:
    tempo = Tempo(BUCKETS, 2.0)
    assert not tempo.off(works(1, 1, 1))
    assert tempo.plan(works(1, 1, 1)) == works(1, 1, 1)


def test_the_first_plan_is_corrected_after_one_round_and_later_ones_after_a_window() -> None:
    tempo = Tempo(BUCKETS, 1.0)
    now = works(1, 1, 1)
    tempo.took(now, [1.0, 1.0, 5.0])
    assert tempo.off(now)
    now = tempo.plan(now)
    for _ in range(WINDOW - 1):
        tempo.took(now, [5.0, 1.0, 1.0])
        assert not tempo.off(now)
    tempo.took(now, [5.0, 1.0, 1.0])
    assert tempo.off(now)


def test_a_worker_that_stood_still_for_a_moment_is_not_slow() -> None:
    tempo = Tempo(BUCKETS, 1.0)
    now = works(1, 1, 1)
    for number in range(WINDOW):
        tempo.took(now, [1.0, 60.0 if number == 7 else 1.0, 1.0])
    assert not tempo.off(now)


def test_small_differences_are_not_worth_a_restart() -> None:
    tempo = Tempo(BUCKETS, 1.0)
    now = works(1, 1, 1)
    for _ in range(WINDOW):
        tempo.took(now, [1.5, 0.7, 1.0])
    assert not tempo.off(now)


def test_work_has_its_bounds_and_beyond_them_nothing_is_off() -> None:
    tempo = Tempo(BUCKETS, 1.0)
    now = works(1, 1, 1)
    tempo.took(now, [0.0, 1e9, 1.0])
    now = tempo.plan(now)
    assert now[0].visits == (40 * LOCAL_EPOCHS_MAX,) * 2
    assert now[1].visits == (1,)
    for _ in range(WINDOW):
        tempo.took(now, [0.0, 1e7, 1.0])
    assert not tempo.off(now)


def test_the_work_of_a_resumed_run_is_that_of_its_visits() -> None:
    tempo = Tempo(BUCKETS, 1.0)
    now = works(0.5, 0.1, 2.0)
    assert tempo.works([list(work.visits) for work in now]) == now
    assert tempo.works([[1, 1], [1], [1]]) is None
    assert tempo.works([]) is None


class Unequal(InProcessWorkers):
    """Workers that seem to take so many seconds for a pass, each."""

    seconds_a_pass: Sequence[float] = ()

    def push(self, request: RoundRequest, works: Sequence[Work], w: np.ndarray) -> None:
        self.asked = works
        super().push(request, works, w)

    def updates(self) -> list[WorkerUpdate]:
        return [
            WorkerUpdate(update.contribution, update.steps, work.passes * seconds, update.arrived)
            for update, work, seconds in zip(super().updates(), self.asked, self.seconds_a_pass, strict=True)
        ]


@pytest.mark.parametrize("restart", ["gap", "none"])
def test_a_run_with_a_slow_worker_converges_and_its_work_follows_the_speed(restart: str) -> None:
    rng = np.random.default_rng(3)
    n = 3000
    examples = Examples(
        indptr=np.arange(0, 8 * n + 1, 8),
        indices=np.tile(np.arange(8, dtype=np.int32), n),
        values=rng.random(8 * n),
        labels=rng.choice([-1.0, 1.0], n),
    )
    problem = Problem("hinge", 1e-2, n)
    workers = Unequal(examples, problem, 3)
    workers.seconds_a_pass = (1.0, 1.0, 5.0)
    loop = OuterLoop(problem, 8, 3, restart=restart)  # type: ignore[arg-type]  # one of the rules
    training = Training(
        loop,
        workers,
        workers.plan(1.0),
        CertificateSchedule(1e-4, every_round=True),
        StopConfig(tol=1e-4, max_rounds=3000),
        interrupted=threading.Event(),
        tempo=Tempo([[block.buckets for block in shard.blocks] for shard in workers.shards], 0.5),
    )
    outcome = training.run()
    assert outcome.status == "converged"
    assert outcome.drift < 1e-12
    assert [work.passes for work in training.works] == pytest.approx([0.5, 0.5, 0.1], abs=0.1)
