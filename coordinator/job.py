"""A training job from its settings to its outcome: cluster, handshake, run, files."""

import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from acccocoa.config import OutputConfig, RecoveryConfig
from acccocoa.errors import ClusterError, UsageError
from acccocoa.problem import FeatureProblem, Problem
from coordinator import checkpoint, multiclass, report, task
from coordinator.cluster import Cluster
from coordinator.handshake import Job, ShardDescription
from coordinator.opening import check, open_job
from coordinator.settings import Settings
from coordinator.stragglers import Pace
from coordinator.task import EXIT_CODES, Begun, algorithm_summary, data_summary, run_summary
from coordinator.training import Outcome


def train(settings: Settings) -> int:
    """Run one training job; returns the exit code.

    Raises
    ------
    AcccocoaError : as the contract's exit codes say
    """
    if settings.objective.multiclass == "ovr":
        return multiclass.train(settings)
    began = time.monotonic()
    output, recovery = settings.output, settings.recovery
    file, manifest = check(settings)
    with ExitStack() as stack:
        saved = None
        if recovery.checkpoint is not None:
            stack.enter_context(checkpoint.claimed(recovery.checkpoint))
            saved = checkpoint.read(recovery.checkpoint) if recovery.resume else None
        job_id = saved.job_id if saved is not None else uuid.uuid4().hex[:12]
        if saved is not None and settings.cluster.workers is None and settings.cluster.local is None:
            # as many as began it, whatever this machine's cores and today's options would have made of the data
            settings = replace(settings, cluster=replace(settings.cluster, local=saved.workers))
        trace_bytes = saved.trace_bytes if saved is not None else 0
        opened = open_job(stack, settings, manifest, job_id, trace_bytes)
        cluster, shards, job, trace, progress = opened.cluster, opened.shards, opened.job, opened.trace, opened.progress
        if file is not None:
            stack.enter_context(file.room(job.d + 1))
        problem = task.problem_of(settings.objective, job)
        identity = Identity.of(settings, job, problem, shards)
        unchanged = saved is not None and identity.same_objective(saved, recovery)
        scaled = opened.scaling(settings)
        keep = None
        if recovery.checkpoint is not None:
            if saved is None:  # one that is there already is worth going on with
                checkpoint.check_room(recovery.checkpoint, max(job.shared, job.d))
            keep = checkpoint.Checkpoints(
                recovery.checkpoint,
                job_id,
                identity.objective,
                identity.algorithm,
                (lambda: trace.bytes) if trace is not None else (lambda: 0),
            )

        pace = Pace([shard.nnz / max(1, shard.n) for shard in shards])
        observe = task.all_of([*opened.observers, pace, task.Patience(cluster)])
        (begun,) = task.begin(
            cluster,
            shards,
            [task.Posed(job, problem, observe, keep or (lambda _: False))],
            settings,
            job_id,
            scaled,
            interrupted=opened.interruption.requested,
            round_number=saved.round if saved is not None else 0,
            lineage=saved.lineage if saved is not None else "",
            warm=recovery.resume and not unchanged,
        )
        training, ready = begun.training, begun.ready
        if saved is not None and unchanged:
            saved.restore(training)
            ready = ready and identity.algorithm == saved.algorithm
        resync = recovery.resume and not ready
        # from wherever the workers happen to be
        training.progress.steady &= not resync
        opened.service.running(problem.lam, len(shards))
        progress.stage(f"{'training' if saved is None else 'going on'} {opened.on_what}")
        started = time.monotonic()
        opened.interruption.save_first()
        try:
            outcome = training.run(resync=resync)
        except (ClusterError, UsageError) as error:  # a lost worker; a trace that cannot be written any more
            if keep is not None:
                keep.write(training)
            if training.model is not None and file is not None:
                status = "worker_lost" if isinstance(error, ClusterError) else "failed"
                try:
                    best = task.model_of(settings.objective, job, scaled.weights(training.model))
                    file.save(best, {"status": status})
                    kept = f"the best model so far is in {file.path}"
                except UsageError as failed:
                    kept = f"nor could the best model so far be kept: {failed}"
                remedy = f"{error.remedy}; {kept}" if error.remedy else kept
                raise type(error)(error.offender, error.requirement, remedy) from error
            raise
        summary = _summary(settings, shards, begun, cluster, outcome, started - began)
        stragglers = pace.stragglers(settings.cluster.straggler_factor)
        summary["stragglers"] = [
            {"address": cluster.links[straggler.rank].address, "factor": straggler.factor} for straggler in stragglers
        ]
        for straggler in stragglers:
            progress.stage(f"{cluster.links[straggler.rank]} took {straggler.factor:.1f} times as long as the others")
        try:
            if file is not None:
                file.save(task.model_of(settings.objective, job, scaled.weights(outcome.w)), summary)
        except UsageError as error:
            if keep is not None and keep.write(training):
                remedy = f"{error.remedy}; the same command with --resume tries that once more"
                raise UsageError(error.offender, error.requirement, remedy) from error
            raise
        if keep is not None:
            keep.write(training)
    summary["seconds"]["total"] = time.monotonic() - began
    report.conclude_run(output, summary, _sentence(outcome, output))
    return EXIT_CODES[outcome.status]


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
        algorithm = asdict(settings.algorithm)
        del algorithm["deterministic"]  # what it refuses decides about the bits, not that it does
        del algorithm["local_work"]  # "auto" is what is done without it
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
            {
                **algorithm,
                "blocks": [shard.blocks for shard in shards],
                "blocks_in_a_shard": task.blocks_in_a_shard(settings, shards, task.Posed(job, problem)),
            },
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
            what = f"{first} was {saved.objective.get(first)!r}, is {self.objective[first]!r}"
            if first == "shards":  # hashes say nothing to a person
                what = f"the data was another, or its weights, or how it is cut; there were {saved.workers} workers"
            raise UsageError(
                f"--resume from {recovery.checkpoint}",
                f"the checkpoint is of another objective ({what})",
                "ask for the same one, or say --allow-change to begin from the dual variables of unchanged shards",
            )
        return not changed


def _summary(
    settings: Settings,
    shards: Sequence[ShardDescription],
    begun: Begun,
    cluster: Cluster,
    outcome: Outcome,
    seconds_before: float,
) -> dict[str, Any]:
    """The --json object; seconds_before : from the start of the command to the first round."""
    return {
        **run_summary(outcome),
        **task.cluster_summary(cluster, settings.cluster, shards, seconds_before, outcome.solve_seconds),
        "adopted": cluster.adopted,
        "addresses": [link.address for link in cluster.links],
        **data_summary(settings, begun.job, shards),
        **algorithm_summary(begun, settings, shards),
        "model": settings.output.model,
    }


def _sentence(outcome: Outcome, output: OutputConfig) -> str:
    written = f"; the model is in {output.model}" if output.model else ""
    return (
        f"{outcome.status}: primal {outcome.certified.primal:.10g}, certified relative gap {outcome.relative_gap:.3e} "
        f"after {report.counted(outcome.rounds, 'round')}, {outcome.data_passes:.1f} passes{written}"
    )
