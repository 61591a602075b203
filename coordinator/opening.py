"""The workers of a job, found where the user says or started here, and the job on them with whoever is told of it."""

import itertools
import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from acccocoa import loading
from acccocoa.config import ClusterConfig, DataConfig, OutputConfig
from acccocoa.errors import DataError, UsageError
from acccocoa.examples import Examples
from acccocoa.manifest import Manifest
from acccocoa.model import sidecar_path
from acccocoa.statistics import feature_sizes, row_norms
from acccocoa.weights import read as read_weights
from coordinator import addresses, deal, kernels, report, task
from coordinator.cluster import Cluster
from coordinator.embedded import local_workers
from coordinator.handshake import Job, ShardDescription, shown_labels
from coordinator.interrupt import Interruption, interruptible
from coordinator.link import WorkerLink
from coordinator.model_file import ModelFile
from coordinator.normalize import Scaling, scaling, warnings
from coordinator.service import CoordinatorService
from coordinator.settings import Settings

ENTRIES_WORTH_A_WORKER = 50_000_000
"""Without --local, one worker for so many stored entries, and no more than there are cores. Every further block of the
partition costs passes; below this size two blocks on two cores were slower to the same gap than one on one (hinge,
rcv1-like 200,000 rows: 8 passes and 0.47 s against 5 and 0.21 s; news20-like: 211 and 17 s against 26 and 2.2 s)."""

PASSES_WORTH_FEATURES = 1000.0
"""Where features differ in scale and dual coordinates would take so many passes to gain a constant factor, features are
dealt: seconds to relative gap 1e-3 by examples and by features on one worker, lam 1e-3 (> 5: had not come there)
    cpusmall squared > 5, 0.6;  cal_housing squared > 5, 1.0;  australian logistic > 6, 0.4;  magic04 logistic 2.1, 0.2;
    german.numer squared_hinge 3.2, 0.1;  svmguide1 squared_hinge 1.2, 0.2
and with fewer passes by that estimate (svmguide1 logistic lam 0.1: 270) 0.06, 0.13. Scaled data is faster by examples:
    a9a logistic lam 1e-4 0.3, 0.9;  ijcnn1 squared_hinge 0.08, 0.9."""


def check_sources(data: Sequence[str], config: ClusterConfig, reading: DataConfig) -> None:
    """DATA, how it is read, and the workers fit together.

    Raises
    ------
    UsageError : they do not
    """
    if config.workers is None and not data:
        raise UsageError(
            "DATA and --workers", "are both missing", "name a LIBSVM file, or the addresses of running workers"
        )
    if config.deal is not None and (config.workers is None or not data):
        raise UsageError(f"--deal {config.deal}", "needs DATA and --workers", "say what to deal, and to whom")
    if reading.weights is not None and config.workers is not None:
        raise UsageError(
            f"--weights {reading.weights}",
            "belongs to DATA that this command hands to workers of its own",
            "give each worker the weights of its shard: acccocoa-worker serve SHARD --weights FILE",
        )
    if config.workers is not None and data and config.deal is None:
        raise UsageError(
            f"DATA {data[0]}",
            "is not read when --workers is given: they have the data",
            "leave out one of the two, or see --deal",
        )
    if not data:
        told = {"--zero-based": reading.zero_based, f"--dtype {reading.dtype}": reading.dtype != DataConfig.dtype}
        for flag in (flag for flag, given in told.items() if given):
            raise UsageError(
                flag,
                "says how DATA is read, and the workers have read it",
                f"give it to each of them: acccocoa-worker serve SHARD {flag}",
            )


def check_algorithm(settings: Settings) -> None:
    """The algorithm goes with the workers, with the rule to stop, and with the partition where that is sure already.

    Raises
    ------
    UsageError : it does not
    """
    threads = settings.algorithm.threads
    if threads is not None and settings.cluster.workers is not None:
        raise UsageError(
            f"--threads {threads}",
            "is of workers that this command starts",
            f"give it to each of them: acccocoa-worker serve SHARD --threads {threads}",
        )
    if settings.algorithm.deterministic and settings.stop.max_seconds is not None:
        raise UsageError(
            "--deterministic and --max-seconds",
            "exclude each other: where a run is after so many seconds depends on clocks",
            "give --max-rounds instead of --max-seconds",
        )
    if settings.objective.resolved_partition(1, 1) == "features":  # whatever the data is
        task.check_wire(settings.algorithm, by_features=True)


def check_outputs(data: Sequence[str], output: OutputConfig) -> None:
    """What is written replaces neither DATA nor each other, nor what standard output is redirected to.

    Raises
    ------
    UsageError : it would
    """
    written = [("--model", output.model), ("--trace", output.trace)]
    if output.model is not None:
        written.append(("--model", os.fspath(sidecar_path(output.model))))
    paths = [(flag, path) for flag, path in written if path is not None]
    for flag, path in paths:
        if _is_standard_output(path):
            raise UsageError(
                f"{flag} {path}",
                "would replace the file that standard output goes to",
                "redirect it to another one (the model's PATH.json holds the object that --json prints)",
            )
        if os.path.isfile(path) and any(os.path.isfile(name) and os.path.samefile(path, name) for name in data):  # noqa: PTH113, PTH121  # pathlib's raise on impossible names
            raise UsageError(f"{flag} {path}", "would replace DATA", "choose another name")
    for (first, path), (second, other) in itertools.combinations(paths, 2):
        if os.path.realpath(path) == os.path.realpath(other):
            raise UsageError(f"{first} and {second}", f"are both written to {path}", "choose two names")


def _is_standard_output(path: str) -> bool:
    try:
        out = os.fstat(1)
        return stat.S_ISREG(out.st_mode) and os.path.samestat(out, os.stat(path))  # noqa: PTH116  # as above
    except (OSError, ValueError):
        return False


def _divisible(
    settings: Settings, examples: Examples, workers: int | None
) -> tuple[Literal["examples", "features"], int]:
    """By what the examples are dealt, and to how many workers at most.

    workers : how many there are to be, where that is known
    """
    objective, n, d = settings.objective, examples.n, examples.d
    if settings.algorithm.local_solver == "newton" and _by_newton(settings, examples):
        return "examples", n
    if objective.asks_for_scale(n, d):
        sizes = feature_sizes(examples)
        if objective.bias is not None:  # a feature as any other
            sizes = replace(sizes, feature_largest=max(sizes.feature_largest, objective.bias))
        crawls = sizes.unscaled and objective.coupling(n, sizes.feature_largest) > PASSES_WORTH_FEATURES
        if crawls and (workers or 1) <= (features := len(np.unique(examples.indices))):
            return "features", features
    by = objective.resolved_partition(n, d)
    return by, n if by == "examples" else len(np.unique(examples.indices))


def _by_newton(settings: Settings, examples: Examples) -> bool:
    """One worker would minimise by Newton's method; see task.by_newton."""
    objective, n, d = settings.objective, examples.n, examples.d
    if settings.algorithm.local_solver == "newton":
        # what it does not fit is refused later
        return objective.partition != "features" and objective.l1_ratio < 1.0 and not objective.intercept

    def coupling() -> float:
        return objective.coupling_of_rows(n, d, float(row_norms(examples).max()), 1.0)

    return objective.partition != "features" and task.newton_chosen(settings, d, examples.nnz, n, coupling)


def _worth(settings: Settings, examples: Examples, by: str) -> int:
    """How many workers the data is worth, if there are cores enough."""
    if by == "examples" and _by_newton(settings, examples):
        return 1
    return max(1, examples.nnz // ENTRIES_WORTH_A_WORKER)


def _threads(settings: Settings, examples: Examples, cores: int) -> int:
    """Of a worker that has so many cores: a problem each where there are several, else all."""
    labels = len(np.unique(examples.labels)) if settings.objective.multiclass == "ovr" else 2
    return max(1, min(cores, labels) if labels > 2 else cores)


def open_cluster(
    stack: ExitStack, settings: Settings, progress: report.Progress, interruption: Interruption, job_id: str
) -> tuple[Cluster, list[ShardDescription]]:
    """Connect to the workers, started here if need be; they end with the stack."""
    config = settings.cluster
    cores = len(os.sched_getaffinity(0))

    def read() -> Examples:
        progress.stage(f"reading {', '.join(settings.data)}")
        reading = settings.reading
        examples = loading.load(
            settings.data,
            zero_based=reading.zero_based,
            dtype=np.dtype(reading.dtype).type,
            threads=cores,
            places=reading.places,
        ).examples
        if not examples.d:
            raise DataError(", ".join(settings.data), "has no features at all", "is this the right file?")
        positive = settings.objective.positive_label
        if positive is not None and positive not in examples.labels:
            known = shown_labels(f"{label:g}" for label in np.unique(examples.labels))
            where = ", ".join(settings.data)
            raise DataError(f"--positive-label {positive:g}", f"does not occur in {where}", f"the labels are {known}")
        return examples

    def connect(links: list[WorkerLink]) -> Cluster:
        # the workers read their shards meanwhile
        with interruption.held():
            kernels.compile_kernels()
        cluster = Cluster(
            links,
            patience=config.worker_patience,
            adopt=config.adopt,
            queue=config.wait,
            tell=progress.stage,
        )
        stack.callback(cluster.close)
        cluster.while_waiting = interruption.announcer(progress.stage)
        return cluster

    if config.workers is not None:
        workers = config.workers
        targets = addresses.resolve(workers)
        hashes = None
        if config.deal is not None:
            examples = read()
            by, most = _divisible(settings, examples, len(targets))
            if len(targets) > most:
                raise UsageError(f"--workers {workers}", f"there are only {most} {by}", "use fewer workers")
            hashes = deal.deal(stack, examples, len(targets), by, config.deal)
        progress.stage(f"connecting to {workers}: {report.counted(len(targets), 'worker')}")

        def wherever_it_is() -> list[str]:
            # a worker may come back at another address of the same name; its shard's hash tells
            return addresses.resolve(workers)

        cluster = connect(
            [
                WorkerLink(address, rank, insecure=config.insecure, silence=config.silence, candidates=wherever_it_is)
                for rank, address in enumerate(targets)
            ]
        )
        shards = cluster.connect(config.connect_timeout, job_id)
        if hashes is not None:
            deal.check(shards, hashes)
        return cluster, shards
    examples = read()
    by, most = _divisible(settings, examples, config.local)
    task.check_wire(settings.algorithm, by_features=by == "features")
    threads = settings.algorithm.threads
    count = config.local or max(1, min(cores // (threads or 1), most, _worth(settings, examples, by)))
    if count > most:
        raise UsageError(f"--local {count}", f"there are only {most} {by}", "use fewer workers")
    progress.stage(f"starting {report.counted(count, 'worker')}")
    state = settings.recovery.checkpoint
    weights = None if settings.reading.weights is None else read_weights(settings.reading.weights, examples.n)
    if threads is None:
        threads = _threads(settings, examples, cores // count)
    local = stack.enter_context(local_workers(examples, count, threads, config.connect_timeout, by, state, weights))
    cluster = connect(
        [
            WorkerLink(worker.address, rank, insecure=False, silence=config.silence, candidates=worker.candidates)
            for rank, worker in enumerate(local)
        ]
    )
    return cluster, cluster.connect(
        config.connect_timeout, job_id, lambda: next((error for worker in local if (error := worker.gone())), None)
    )


@dataclass(frozen=True)
class Opened:
    """A cluster that holds the data of a job, and whoever is told of its runs."""

    interruption: Interruption
    service: CoordinatorService
    trace: report.Trace | None
    progress: report.Progress
    observers: list[task.Observer]
    cluster: Cluster
    shards: list[ShardDescription]
    job: Job

    @property
    def on_what(self) -> str:
        """The data and the workers, for a stage of the progress."""
        job, workers = self.job, len(self.shards)
        return (
            f"on {job.n} examples, {job.d} features, {job.nnz} entries "
            f"with {report.counted(workers, 'worker')} of {report.counted(job.blocks // workers, 'thread')}"
        )

    def scaling(self, settings: Settings) -> Scaling:
        """What is divided by what; who has not asked for it is warned where it is called for."""
        normalize = settings.objective.normalize
        if not task.by_newton(settings, self.shards, self.job):  # to which scales do not matter
            for warning in warnings(normalize, self.shards):
                self.progress.warn(warning)
        return scaling(normalize, self.job, lambda measure, length: self.cluster.measure(measure, self.shards, length))


def check(settings: Settings) -> tuple[ModelFile | None, Manifest | None]:
    """What can be found wrong before anything is opened; where the model goes, and the manifest, if any.

    Raises
    ------
    AcccocoaError : as the contract's exit codes say
    """
    check_sources(settings.data, settings.cluster, settings.reading)
    check_outputs(settings.data, settings.output)
    check_algorithm(settings)
    file = None if settings.output.model is None else ModelFile(settings.output.model)
    return file, None if settings.cluster.manifest is None else loading.manifest_at(settings.cluster.manifest)


def open_job(
    stack: ExitStack, settings: Settings, manifest: Manifest | None, job_id: str, trace_bytes: int = 0
) -> Opened:
    """Open the cluster, until the stack is closed. trace_bytes : of an earlier trace to keep

    Until then inner products have one thread: theirs go on spinning for a while on cores that workers of this machine
    need, and how many there are decides about the last bits.

    Raises
    ------
    AcccocoaError : as the contract's exit codes say
    """
    stack.enter_context(threadpool_limits(1, "blas"))
    interruption = stack.enter_context(interruptible())
    service = CoordinatorService(job_id, settings.objective.loss, interruption.ask)
    trace, progress, found = task.observers(stack, settings, service, trace_bytes)
    cluster, shards = open_cluster(stack, settings, progress, interruption, job_id)
    job = task.describe(settings, shards, job_id, manifest)
    return Opened(interruption, service, trace, progress, found, cluster, shards, job)
