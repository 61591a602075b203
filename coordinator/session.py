"""Workers for one problem after another: the shards are loaded once, each problem begins on the same open cluster."""

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from acccocoa import loading
from acccocoa.config import ObjectiveConfig, StopConfig
from acccocoa.errors import UsageError
from acccocoa.losses import Vector
from coordinator import report, task
from coordinator.cluster import Cluster
from coordinator.handshake import Job, ShardDescription
from coordinator.interrupt import interruptible
from coordinator.model_file import ModelFile
from coordinator.normalize import Scaling, scaling
from coordinator.opening import check_outputs, check_sources, open_cluster
from coordinator.service import CoordinatorService
from coordinator.settings import Settings
from coordinator.training import CertifiedRound, Outcome


@dataclass(frozen=True)
class Solved:
    """A problem's run and how it ended. w : the model, of data as it is; float64, shape (d,), bias included."""

    begun: task.Begun
    outcome: Outcome
    w: Vector


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
    _started: float = field(default_factory=time.monotonic, init=False)

    def solve(
        self,
        objective: ObjectiveConfig,
        job: Job,
        *,
        warm: bool = False,
        about: Mapping[str, object] | None = None,
    ) -> Solved:
        """Solve one problem; the workers are free for the next one when this returns.

        Parameters
        ----------
        warm : begin from the dual variables of the problem before
        about : what every line of the trace says of the problem
        """
        settings = replace(self.settings, objective=objective)
        if self._trace is not None:
            self._trace.about = dict(about or {})

        observers: list[task.Observer] = [*self._observers, task.Patience(self.cluster)]

        def observe(seen: CertifiedRound) -> None:
            for observer in observers:
                observer(seen)

        begun = task.begin(
            self.cluster,
            self.shards,
            job,
            task.problem_of(objective, job),
            settings,
            f"{self._job_id}-{self._solved}",
            self.scaled,
            interrupted=self.interrupted,
            stop=self._stop(),
            observe=observe,
            warm=warm,
        )
        self._solved += 1
        self._service.running(begun.loop.problem.lam, len(self.shards))
        outcome = begun.training.run(resync=not begun.ready)
        self.cluster.finish()
        return Solved(begun, outcome, self.scaled.weights(outcome.w))

    def _stop(self) -> StopConfig:
        """--max-seconds is for all problems together."""
        stop = self.settings.stop
        if stop.max_seconds is None:
            return stop
        return replace(stop, max_seconds=max(1e-3, stop.max_seconds - (time.monotonic() - self._started)))

    def summary(self) -> dict[str, Any]:
        """What the --json objects say of the cluster and the time."""
        compile_seconds = max(shard.compile_seconds for shard in self.shards)
        now = time.monotonic()
        return {
            "reconnects": self.cluster.lost_and_found,
            "replayed": self.cluster.replayed,
            "seconds": {
                "load": max(0.0, self._started - self.began - compile_seconds),
                "compile": compile_seconds,
                "solve": now - self._started,
                "total": now - self.began,
            },
            "bytes": {"pushed": self.cluster.bytes_pushed, "returned": self.cluster.bytes_returned},
        }


@contextmanager
def opened(settings: Settings, what: str) -> Iterator[Session]:
    """A session; the cluster ends with the context. what : the command, for messages.

    Raises
    ------
    AcccocoaError : as the contract's exit codes say
    """
    began = time.monotonic()
    output = settings.output
    if settings.recovery.checkpoint is not None:
        raise UsageError(f"--checkpoint {settings.recovery.checkpoint}", f"is not for {what}: it solves many problems")
    check_sources(settings.data, settings.cluster, settings.reading.weights)
    check_outputs(settings.data, output)
    file = None if output.model is None else ModelFile(output.model)
    manifest = None if settings.cluster.manifest is None else loading.manifest_at(settings.cluster.manifest)
    with ExitStack() as stack:
        interrupted = threading.Event()
        save_when_interrupted = stack.enter_context(interruptible(interrupted))
        job_id = uuid.uuid4().hex[:12]
        service = CoordinatorService(job_id, settings.objective.loss, interrupted)
        trace, progress, observers = task.observers(stack, settings, service)
        cluster, shards = open_cluster(stack, settings, progress, job_id)
        job = task.describe(settings, shards, job_id, manifest)
        scaled = scaling(
            settings.objective.normalize, job, lambda measure, length: cluster.measure(measure, shards, length)
        )
        progress.stage(
            f"{what} on {job.n} examples, {job.d} features, {job.nnz} entries "
            f"with {len(shards)} workers of {job.blocks // len(shards)} threads"
        )
        save_when_interrupted()
        yield Session(
            settings,
            cluster,
            shards,
            job,
            scaled,
            file,
            progress,
            began,
            interrupted,
            trace,
            service,
            observers,
            job_id,
        )
