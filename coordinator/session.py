"""Workers for one problem after another: the shards are loaded once, each problem begins on the same open cluster."""

import functools
import math
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acccocoa.config import ObjectiveConfig, PathConfig, StopConfig
from acccocoa.errors import DataError, UsageError, WorkerLost
from acccocoa.folds import Fold, Scores, folds_of, score
from acccocoa.losses import Vector
from acccocoa.problem import FeatureProblem
from acccocoa.vectors import inner, largest
from coordinator import report, task
from coordinator.cluster import Cluster
from coordinator.handshake import Job, ShardDescription
from coordinator.messages import Ask, CertificateTerms, RoundRequest, StateLost, WorkerUpdate
from coordinator.model_file import ModelFile
from coordinator.normalize import Scaling
from coordinator.opening import check, open_job
from coordinator.schedule import plan_work
from coordinator.service import CoordinatorService
from coordinator.settings import Settings
from coordinator.training import Outcome, run_together

ENORMOUS = 1e30
"""A lam that makes w as good as 0."""


@dataclass(frozen=True)
class Solved:
    """A problem's run and how it ended. w : the model, of data as it is; float64, shape (d,), bias included."""

    begun: task.Begun
    outcome: Outcome
    w: Vector
    scores: Scores | None = None
    """How well it predicts the examples that were left out, if any were."""


@dataclass(frozen=True)
class Split:
    """The examples in folds. sizes : of each;  fold_of : by features, of every example, int64"""

    sizes: tuple[int, ...]
    seed: int
    fold_of: NDArray[np.int64] | None

    def leave_out(self, number: int) -> task.LeftOut:
        """The fold of that number."""
        which = None if self.fold_of is None else self.fold_of == number
        return task.LeftOut(Fold(len(self.sizes), number, self.seed), self.sizes[number], which)


@dataclass
class Session:
    """An open cluster.

    job : the data, for what the settings say is to be trained;  began : on time.monotonic's clock
    file : where the model goes, if anywhere
    """

    settings: Settings
    cluster: Cluster
    shards: list[ShardDescription]
    job: Job
    scaled: Scaling
    file: ModelFile | None
    progress: report.Progress
    began: float
    interrupted: threading.Event
    _trace: report.Trace | None
    _service: CoordinatorService
    _observers: list[task.Observer]
    _job_id: str
    _solved: int = field(default=0, init=False)
    _steady: bool = field(default=True, init=False)
    _started: float = field(default_factory=time.monotonic, init=False)

    def solve(
        self,
        objective: ObjectiveConfig,
        job: Job,
        *,
        warm: bool = False,
        about: Mapping[str, object] | None = None,
        left_out: task.LeftOut | None = None,
    ) -> Solved:
        """Solve one problem; the workers are free for the next one when this returns.

        Parameters
        ----------
        warm : begin from the dual variables of the problem before
        about : what every line of the trace says of the problem
        left_out : examples that the problem is without, and that are scored afterwards
        """
        if left_out is not None:
            job = replace(job, n=job.n - left_out.size)
        (begun,) = self._begin(objective, [job], [about or {}], warm=warm, left_out=left_out)
        # it begins where the one before ended
        begun.training.progress.steady &= self._steady or not warm
        (outcome,) = self._run([begun])
        self._steady = outcome.deterministic
        scores = None
        if left_out is not None:
            scores = self._score(begun, left_out) if job.by_features else self.cluster.score(outcome.w)
        self.cluster.finish()
        return Solved(begun, outcome, self.scaled.weights(outcome.w), scores)

    def solve_together(
        self, objective: ObjectiveConfig, jobs: Sequence[Job], about: Sequence[Mapping[str, object]]
    ) -> list[Solved]:
        """Solve problems that differ in nothing but the labels at the same time; about : as for `solve`, of each."""
        begun = self._begin(objective, jobs, about)
        outcomes = self._run(begun)
        self.cluster.finish()
        return [
            Solved(each, outcome, self.scaled.weights(outcome.w)) for each, outcome in zip(begun, outcomes, strict=True)
        ]

    def _run(self, begun: Sequence[task.Begun]) -> list[Outcome]:
        self._service.running(begun[0].loop.problem.lam, len(self.shards))
        trainings = [each.training for each in begun]
        return run_together(trainings, self.cluster, resync=not begun[0].ready)

    def _begin(
        self,
        objective: ObjectiveConfig,
        jobs: Sequence[Job],
        about: Sequence[Mapping[str, object]],
        *,
        warm: bool = False,
        left_out: task.LeftOut | None = None,
    ) -> list[task.Begun]:
        told = report.Several(self._trace, self._observers, about)
        begun = task.begin(
            self.cluster,
            self.shards,
            [
                task.Posed(
                    job,
                    task.problem_of(objective, job),
                    task.all_of([functools.partial(told, number), task.Patience(self.cluster)]),
                )
                for number, job in enumerate(jobs)
            ],
            replace(self.settings, objective=objective),
            f"{self._job_id}-{self._solved}",
            self.scaled,
            interrupted=self.interrupted,
            stop=self._stop(),
            warm=warm,
            left_out=left_out,
        )
        self._solved += 1
        return begun

    def _score(self, begun: task.Begun, left_out: task.LeftOut) -> Scores:
        """By features the predictions of all examples are here: where the run ended."""
        problem, v = begun.loop.problem, begun.loop.v_a
        assert isinstance(problem, FeatureProblem)
        weights = task.example_weights(begun.job, self.cluster.labels, self.cluster.weights)
        assert left_out.which is not None  # so it is by features
        which = self.cluster.order.ordered(left_out.which)
        return score(problem.loss, problem.y[which], problem.predictions(v)[which], weights[which])

    def split(self, folds: int, seed: int) -> Split:
        """The examples in folds.

        Raises
        ------
        DataError : a fold is empty
        """
        fold_of = None
        if self.job.by_features:
            hashes = self.cluster.measure("hashes_of_columns", self.shards, self.job.shared)
            fold_of = folds_of(hashes, folds, seed)
            sizes = np.bincount(fold_of, minlength=folds)
        else:
            counts = self.cluster.measure("examples_of_folds", self.shards, folds, Fold(folds, 0, seed))
            sizes = counts.astype(np.int64)
        if not sizes.all():
            raise DataError(
                f"fold {int(np.argmin(sizes))} of {folds}",
                "is empty: equal examples are always in the same fold",
                "use fewer --folds",
            )
        return Split(tuple(map(int, sizes)), seed, fold_of)

    def lams(self, path: PathConfig) -> list[float]:
        """The strengths of the regulariser that a path goes over, falling.

        Raises
        ------
        UsageError : none is asked for, and the data suggest none
        """
        largest = path.lam_max
        if largest is None:
            steepness = self.steepness()
            if not steepness > 0.0:
                raise UsageError("--lam-max", "must be given: the losses do not change at w = 0")
            largest = steepness / (self.settings.objective.l1_ratio or 1.0)
        return path.grid(largest)

    def steepness(self) -> float:
        """Of the losses' mean at w = 0: the gradient's largest magnitude where there is an l1 norm, else its length."""
        objective, job = self.settings.objective, self.job
        l1 = objective.l1_ratio > 0.0
        if job.by_features:
            posed = replace(objective, lam=1.0, C=None, l1_ratio=float(l1))
        else:
            # with w held at 0 by the regulariser, one pass leads to the dual variables that belong to w = 0
            posed = replace(objective, lam=ENORMOUS, C=None)
        (begun,) = self._begin(posed, [job], [{}])
        loop, works = begun.loop, [plan_work(counts, 1.0) for counts in self.cluster.buckets]
        w = loop.begin_round(1.0)
        asked = RoundRequest(loop.round, loop.theta, loop.gamma, loop.sigma, loop.starting)
        asked = replace(asked, certify=job.by_features, solve=not job.by_features)
        answers = self.cluster.answers({0: Ask(asked, works, w)})[0]
        if isinstance(answers, StateLost):
            raise WorkerLost("a worker", "was lost while the data was measured", "run it again")
        if job.by_features:
            terms: list[CertificateTerms] = answers
            # without l1 norm, and lam = 1, the sum of the conjugates is half the square of the gradient
            found = max(t.largest for t in terms) if l1 else math.sqrt(2.0 * math.fsum(t.loss_sum for t in terms))
            if job.bias is not None:
                of_bias = job.bias * float(w.sum())
                found = max(found, abs(of_bias)) if l1 else math.hypot(found, of_bias)
        else:
            updates: list[WorkerUpdate] = answers
            v = loop.sum_up([update.contribution for update in updates])
            found = largest(v) if l1 else math.sqrt(inner(v, v))
        self.cluster.finish()
        return found

    def _stop(self) -> StopConfig:
        """--max-seconds is for all problems together."""
        stop = self.settings.stop
        if stop.max_seconds is None:
            return stop
        return replace(stop, max_seconds=max(1e-3, stop.max_seconds - (time.monotonic() - self._started)))

    def summary(self) -> dict[str, Any]:
        """What the --json objects say of the cluster and the time."""
        before, solve = self._started - self.began, time.monotonic() - self._started
        return task.cluster_summary(self.cluster, self.settings.cluster, self.shards, before, solve)


@contextmanager
def opened(settings: Settings, what: str) -> Iterator[Session]:
    """A session; the cluster ends with the context. what : the command, for messages.

    Raises
    ------
    AcccocoaError : as the contract's exit codes say
    """
    began = time.monotonic()
    if settings.recovery.checkpoint is not None:
        raise UsageError(f"--checkpoint {settings.recovery.checkpoint}", f"is not for {what}: it solves many problems")
    file, manifest = check(settings)
    with ExitStack() as stack:
        job_id = uuid.uuid4().hex[:12]
        found = open_job(stack, settings, manifest, job_id)
        scaled = found.scaling(settings)
        found.progress.stage(f"{what} {found.on_what}")
        found.interruption.save_first()
        yield Session(
            settings,
            found.cluster,
            found.shards,
            found.job,
            scaled,
            file,
            found.progress,
            began,
            found.interruption.requested,
            found.trace,
            found.service,
            found.observers,
            job_id,
        )
