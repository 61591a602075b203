"""A training job from its settings to its outcome: cluster, handshake, run, files."""

import json
import math
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from acccocoa import __version__, loading
from acccocoa.config import ObjectiveConfig, OutputConfig, RecoveryConfig
from acccocoa.errors import ClusterError, DataError, UsageError
from acccocoa.losses import Vector, loss
from acccocoa.model import Model, check_model_path
from acccocoa.problem import FeatureProblem, Problem
from acccocoa.security import is_loopback, split_address
from acccocoa.weights import of_labels
from coordinator import checkpoint, report
from coordinator.cluster import Cluster
from coordinator.handshake import Job, ShardDescription, combine
from coordinator.interrupt import interruptible
from coordinator.normalize import scaling
from coordinator.opening import check_outputs, check_sources, open_cluster
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import CertificateSchedule, automatic_epochs, plan_work, sample_stride
from coordinator.service import CoordinatorServer, CoordinatorService
from coordinator.settings import Settings
from coordinator.stragglers import Pace
from coordinator.training import CertifiedRound, Outcome, Training

EXIT_CODES = {"converged": 0, "max_rounds": 3, "max_seconds": 3, "interrupted": 130}


def train(settings: Settings) -> int:
    """Run one training job; returns the exit code.

    Raises
    ------
    AcccocoaError : as the contract's exit codes say
    """
    began = time.monotonic()
    output, recovery = settings.output, settings.recovery
    check_sources(settings.data, settings.cluster, settings.reading.weights)
    check_outputs(settings.data, output)
    if output.model is not None:
        check_model_path(output.model)
    manifest = None if settings.cluster.manifest is None else loading.manifest_at(settings.cluster.manifest)
    with ExitStack() as stack:
        saved = None
        if recovery.checkpoint is not None:
            stack.enter_context(checkpoint.claimed(recovery.checkpoint))
            saved = checkpoint.read(recovery.checkpoint) if recovery.resume else None
        interrupted = threading.Event()
        save_when_interrupted = stack.enter_context(interruptible(interrupted))
        job_id = saved.job_id if saved is not None else uuid.uuid4().hex[:12]
        service = CoordinatorService(job_id, settings.objective.loss, interrupted)
        trace, progress, observers = _observers(stack, settings, saved, service)

        cluster, shards = open_cluster(stack, settings, progress, job_id)
        classifier = loss(settings.objective.loss, settings.objective.loss_parameter).classifier
        job = combine(
            shards,
            classifier=classifier,
            positive_label=settings.objective.positive_label if classifier else None,
            software_version=__version__,
            own_job_id=job_id,
            manifest=manifest,
            bias=settings.objective.bias,
            label_weights=settings.objective.label_weights,
        )
        problem = _problem(settings.objective, job)
        algorithm = settings.algorithm
        identity = Identity.of(settings, job, problem, shards)
        unchanged = saved is not None and identity.same_objective(saved, recovery)
        scaled = scaling(
            settings.objective.normalize, job, lambda measure, length: cluster.measure(measure, shards, length)
        )
        ready = cluster.start(
            shards,
            job,
            problem,
            job_id,
            algorithm.seed,
            round_number=saved.round if saved is not None else 0,
            lineage=saved.lineage if saved is not None else "",
            warm=recovery.resume and not unchanged,
            scaling=scaled,
        )
        if isinstance(problem, FeatureProblem):
            problem = _with_labels(problem, job, cluster.labels, cluster.weights)
        loop = OuterLoop(
            problem,
            job.shared,
            job.blocks,
            algorithm.gamma,
            algorithm.sigma,
            algorithm.accelerate,
            algorithm.restart,
        )
        keep = None
        if recovery.checkpoint is not None:
            keep = checkpoint.Checkpoints(
                recovery.checkpoint,
                job_id,
                identity.objective,
                identity.algorithm,
                (lambda: trace.bytes) if trace is not None else (lambda: 0),
            )

        epochs = _epochs(settings, job, shards, cluster)
        pace = Pace([shard.nnz / max(1, shard.n) for shard in shards])
        observers += [pace, _Patience(cluster)]

        def observe(seen: CertifiedRound) -> None:
            for observer in observers:
                observer(seen)

        training = Training(
            loop,
            cluster,
            [plan_work(counts, epochs) for counts in cluster.buckets],
            CertificateSchedule(
                settings.stop.tol,
                output.certify_every_round,
                stride=1 if problem.l1_ratio == 1.0 else sample_stride(job.coordinates),
            ),
            settings.stop,
            interrupted=interrupted,
            observe=observe,
            keep=keep or (lambda _: False),
            coordinates=job.coordinates,
        )
        if saved is not None and unchanged:
            saved.restore(training)
            ready = ready and identity.algorithm == saved.algorithm
        cluster.give_up = lambda: training.limit() in ("interrupted", "max_seconds")
        service.running(problem.lam, len(shards))
        progress.stage(
            f"{'training' if saved is None else 'going on'} on {job.n} examples, {job.d} features, {job.nnz} entries "
            f"with {len(shards)} workers of {job.blocks // len(shards)} threads"
        )
        started = time.monotonic()
        save_when_interrupted()
        try:
            outcome = training.run(resync=recovery.resume and not ready)
        except (ClusterError, UsageError) as error:  # a lost worker; a trace that cannot be written any more
            if keep is not None:
                keep.write(training)
            if training.model is not None and output.model is not None:
                status = "worker_lost" if isinstance(error, ClusterError) else "failed"
                try:
                    best = scaled.weights(training.model)
                    _write_model(output.model, job, settings.objective, best, {"status": status})
                    remedy = f"the best model so far is in {output.model}"
                except UsageError as failed:
                    remedy = f"nor could the best model so far be kept: {failed}"
                raise type(error)(error.offender, error.requirement, remedy) from error
            raise
        summary = _summary(settings, job, shards, loop, cluster, outcome, epochs, started - began)
        stragglers = pace.stragglers(settings.cluster.straggler_factor)
        summary["stragglers"] = [
            {"address": cluster.links[straggler.rank].address, "factor": straggler.factor} for straggler in stragglers
        ]
        for straggler in stragglers:
            progress.stage(f"{cluster.links[straggler.rank]} took {straggler.factor:.1f} times as long as the others")
        try:
            if output.model is not None:
                _write_model(output.model, job, settings.objective, scaled.weights(outcome.w), summary)
        except UsageError as error:
            if keep is not None and keep.write(training):
                raise UsageError(
                    error.offender, error.requirement, "the same command with --resume tries that once more"
                ) from error
            raise
        if keep is not None:
            keep.write(training)
    summary["seconds"]["total"] = time.monotonic() - began
    if output.json:
        print(json.dumps(summary), flush=True)
    elif not output.quiet:
        with suppress(OSError):  # nobody reads it any more
            print(_sentence(outcome, output), file=sys.stderr, flush=True)
    return EXIT_CODES[outcome.status]


def _epochs(settings: Settings, job: Job, shards: Sequence[ShardDescription], cluster: Cluster) -> float:
    """Passes a worker makes in a round."""
    if settings.algorithm.local_epochs is not None:
        return settings.algorithm.local_epochs
    return automatic_epochs(
        entries=max(shard.nnz for shard in shards),
        rows=max(shard.n for shard in shards),
        support=max(len(link.support) for link in cluster.links),
        workers=len(shards),
        blocks=job.blocks,
        loopback=all(is_loopback(split_address(link.address)[0]) for link in cluster.links),
    )


def _problem(objective: ObjectiveConfig, job: Job) -> Problem | FeatureProblem:
    """The objective in the partition that the workers' shards have; by features with labels still to come.

    Raises
    ------
    UsageError : the objective does not allow that partition, or the user asked for another
    """
    has = "features" if job.by_features else "examples"
    if objective.partition not in ("auto", has):
        raise UsageError(f"--partition {objective.partition}", f"the workers' shards are cut by {has}")
    if job.by_features:
        return objective.by_features(np.zeros(job.n), np.full(job.n, job.weight_bound))
    if objective.intercept:
        raise UsageError("--intercept", "needs shards that are cut by features", "see --bias, or acccocoa-worker --by")
    return objective.problem(job.n)


def _with_labels(problem: FeatureProblem, job: Job, labels: Vector, weights: Vector | None) -> FeatureProblem:
    """The problem with the labels as the loss takes them (+1 / -1 for classifiers), and the weights of the examples.

    Raises
    ------
    DataError : no example with one of the labels has a weight above 0, and there is an intercept
    """
    y = np.where(labels == job.positive_label, 1.0, -1.0) if problem.loss.classifier else labels
    s = of_labels(labels, job.label_weights)
    if weights is not None:
        s *= weights
    free = problem.constant is not None and not problem.constant.regularised
    if free and problem.loss.classifier and not (s[y > 0].any() and s[y < 0].any()):
        raise DataError("weights", "leave examples of one label only, and there is no best intercept then")
    return replace(problem, y=y, s=s)


@dataclass(frozen=True)
class Identity:
    """What a job is, for a coordinator that comes back to it.

    objective : what must be equal for the same problem;  algorithm : what must be equal, too, for the same bits
    """

    objective: dict[str, object]
    algorithm: dict[str, object]

    @classmethod
    def of(
        cls, settings: Settings, job: Job, problem: Problem | FeatureProblem, shards: Sequence[ShardDescription]
    ) -> "Identity":
        """That of this job."""
        return cls(
            {
                "loss": problem.loss_name,
                "loss_parameter": problem.resolved_parameter,
                "lam": problem.lam,
                "l1_ratio": problem.l1_ratio,
                "positive": job.labels[0] if job.labels else None,
                "bias": job.bias,
                "intercept": settings.objective.intercept,
                "normalize": settings.objective.normalize,
                "label_weights": [list(entry) for entry in sorted(job.label_weights.items())],
                "shards": [shard.content_hash for shard in shards],
            },
            {**asdict(settings.algorithm), "blocks": [shard.blocks for shard in shards]},
        )

    def same_objective(self, saved: checkpoint.Saved, recovery: RecoveryConfig) -> bool:
        """Whether the checkpoint is of this objective.

        Raises
        ------
        UsageError : it is not, and nobody asked for that
        """
        changed = [key for key, value in self.objective.items() if saved.objective.get(key) != value]
        if changed and not recovery.allow_change:
            first = changed[0]
            raise UsageError(
                f"--resume from {recovery.checkpoint}",
                f"the checkpoint is of another objective ({first} was {saved.objective.get(first)!r}, "
                f"is {self.objective[first]!r})",
                "ask for the same one, or say --allow-change to begin it from the same dual variables",
            )
        return not changed


class _Patience:
    """Tells the cluster when the best gap has improved."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._best = math.inf

    def __call__(self, seen: CertifiedRound) -> None:
        if seen.best_gap < self._best:
            self._best = seen.best_gap
            self._cluster.improved()


_Observer = Callable[[CertifiedRound], None]


def _observers(
    stack: ExitStack, settings: Settings, saved: checkpoint.Saved | None, service: CoordinatorService
) -> tuple[report.Trace | None, report.Progress, list[_Observer]]:
    """Whoever is told of certified rounds; they are closed with the stack."""
    output = settings.output
    observers: list[_Observer] = []
    trace = None
    if output.trace is not None:
        trace = report.Trace(output.trace, saved.trace_bytes if saved is not None else 0)
        stack.callback(trace.close)
        observers.append(trace)
    if output.listen is not None:
        server = CoordinatorServer(service, output.listen, settings.cluster.insecure)
        stack.callback(server.close)
        observers.append(service)
    progress = stack.enter_context(report.progress(output.quiet, settings.stop.tol))
    observers.append(progress)
    if output.listen is not None:
        progress.stage(f"can be watched at {server.address}")
    return trace, progress, observers


def _summary(
    settings: Settings,
    job: Job,
    shards: Sequence[ShardDescription],
    loop: OuterLoop,
    cluster: Cluster,
    outcome: Outcome,
    epochs: float,
    seconds_before: float,
) -> dict[str, Any]:
    """The --json object; seconds_before : from the start of the command to the first round."""
    problem = loop.problem
    compile_seconds = max(shard.compile_seconds for shard in shards)
    return {
        "status": outcome.status,
        "primal": outcome.certified.primal,
        "dual": outcome.certified.dual,
        "gap": outcome.gap,
        "relative_gap": outcome.relative_gap,
        "rounds": outcome.rounds,
        "data_passes": outcome.data_passes,
        "restarts": outcome.restarts,
        "resyncs": outcome.resyncs,
        "reconnects": cluster.lost_and_found,
        "replayed": cluster.replayed,
        "drift": outcome.drift,
        "seconds": {
            "load": max(0.0, seconds_before - compile_seconds),
            "compile": compile_seconds,
            "solve": outcome.solve_seconds,
            "total": seconds_before + outcome.solve_seconds,
        },
        "bytes": {"pushed": cluster.bytes_pushed, "returned": cluster.bytes_returned},
        "n": job.n,
        "d": job.d,
        "nnz": job.nnz,
        "workers": len(shards),
        "threads": max(shard.blocks for shard in shards),
        "loss": problem.loss_name,
        "loss_parameter": problem.resolved_parameter,
        "lam": problem.lam,
        "l1_ratio": problem.l1_ratio,
        "partition": "features" if job.by_features else "examples",
        "bias": job.bias,
        "intercept": settings.objective.intercept,
        "normalize": settings.objective.normalize,
        "class_weight": settings.objective.class_weight,
        "weighted": job.largest_weight > 0.0,
        "gamma": loop.gamma,
        "sigma": loop.sigma,
        "accelerate": loop.accelerate,
        "restart": loop.restart_rule,
        "local_epochs": epochs,
        "dtype": shards[0].dtype,
        "seed": settings.algorithm.seed,
        "model": settings.output.model,
        "version": __version__,
    }


def _write_model(path: str, job: Job, objective: ObjectiveConfig, w: Vector, summary: dict[str, object]) -> None:
    bias = 1.0 if objective.intercept else -1.0 if job.bias is None else job.bias
    rows = objective.normalize == "rows"
    Model(loss=objective.loss, labels=job.labels, w=w, bias=bias, unit_rows=rows).save(path, summary)


def _sentence(outcome: Outcome, output: OutputConfig) -> str:
    written = f"; the model is in {output.model}" if output.model else ""
    return (
        f"{outcome.status}: primal {outcome.certified.primal:.10g}, certified relative gap {outcome.relative_gap:.3e} "
        f"after {outcome.rounds} rounds, {outcome.data_passes:.1f} passes{written}"
    )
