"""A training job from its settings to its outcome: cluster, handshake, run, files."""

import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType

import numpy as np

from acccocoa import __version__, libsvm
from acccocoa.config import AlgorithmConfig, ClusterConfig, DataConfig, ObjectiveConfig, OutputConfig, StopConfig
from acccocoa.errors import ClusterError, UsageError
from acccocoa.examples import Examples
from acccocoa.losses import Vector, loss
from acccocoa.model import Model, check_model_path
from coordinator import addresses, deal, report
from coordinator.cluster import Cluster
from coordinator.embedded import local_workers
from coordinator.handshake import Job, ShardDescription, combine
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import CertificateSchedule, plan_work
from coordinator.service import CoordinatorServer, CoordinatorService
from coordinator.training import CertifiedRound, Outcome, Training

EXIT_CODES = {"converged": 0, "max_rounds": 3, "max_seconds": 3, "interrupted": 130}


@contextmanager
def interruptible(interrupted: threading.Event) -> Iterator[Callable[[], None]]:
    """Ctrl-C and SIGTERM, once, set the event; a second one ends the process at once.

    Until what the context yields has been called there is nothing to finish or to save: they raise KeyboardInterrupt.
    """
    saving = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if not saving.is_set():
            raise KeyboardInterrupt

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield saving.set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def train(
    data: Sequence[str],
    cluster_config: ClusterConfig,
    data_config: DataConfig,
    objective: ObjectiveConfig,
    algorithm: AlgorithmConfig,
    stop: StopConfig,
    output: OutputConfig,
) -> int:
    """Run one training job; returns the exit code.

    Raises
    ------
    AcccocoaError : as the contract's exit codes say
    """
    began = time.monotonic()
    _check_sources(data, cluster_config)
    if output.model is not None:
        check_model_path(output.model)
    with ExitStack() as stack:
        interrupted = threading.Event()
        save_when_interrupted = stack.enter_context(interruptible(interrupted))
        observers: list[_Observer] = []
        if output.trace is not None:
            trace = report.Trace(output.trace)
            stack.callback(trace.close)
            observers.append(trace)
        job_id = uuid.uuid4().hex[:12]
        service = CoordinatorService(job_id, objective.loss, interrupted)
        if output.listen is not None:
            server = CoordinatorServer(service, output.listen, cluster_config.insecure)
            stack.callback(server.close)
            observers.append(service)
        progress = stack.enter_context(report.progress(output.quiet, stop.tol))
        observers.append(progress)

        cluster, shards = _open_cluster(stack, data, cluster_config, data_config, algorithm, progress)
        classifier = loss(objective.loss, objective.loss_parameter).classifier
        job = combine(
            shards,
            classifier=classifier,
            positive_label=objective.positive_label if classifier else None,
            software_version=__version__,
        )
        problem = objective.problem(job.n)
        loop = OuterLoop(
            problem,
            job.d,
            job.blocks,
            algorithm.gamma,
            algorithm.sigma,
            algorithm.accelerate,
            algorithm.restart,
        )
        buckets = cluster.start(shards, job, problem, job_id, algorithm.seed)
        works = [plan_work(counts, algorithm.local_epochs) for counts in buckets]
        service.running(problem.lam, len(shards))
        progress.stage(
            f"training on {job.n} examples, {job.d} features, {job.nnz} entries with {len(shards)} workers "
            f"of {job.blocks // len(shards)} threads"
        )

        def observe(seen: CertifiedRound) -> None:
            for observer in observers:
                observer(seen)

        ready = time.monotonic()
        training = Training(
            loop,
            cluster,
            works,
            CertificateSchedule(stop.tol, output.certify_every_round),
            stop,
            interrupted=interrupted,
            observe=observe,
        )

        def result(outcome: Outcome) -> dict[str, object]:
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
                "resyncs": 0,
                "seconds": {
                    "load": max(0.0, ready - began - compile_seconds),
                    "compile": compile_seconds,
                    "solve": outcome.solve_seconds,
                    "total": time.monotonic() - began,
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
                "partition": "examples",
                "gamma": loop.gamma,
                "sigma": loop.sigma,
                "accelerate": loop.accelerate,
                "restart": loop.restart_rule,
                "local_epochs": algorithm.local_epochs,
                "dtype": shards[0].dtype,
                "seed": algorithm.seed,
                "model": output.model,
                "version": __version__,
            }

        save_when_interrupted()
        try:
            outcome = training.run()
        except (ClusterError, UsageError) as error:  # a lost worker; a trace that cannot be written any more
            if training.best.w is not None and output.model is not None:
                status = "worker_lost" if isinstance(error, ClusterError) else "failed"
                _write_model(output.model, job, objective, training.best.w, {"status": status})
                raise type(error)(
                    error.offender, error.requirement, f"the best model so far is in {output.model}"
                ) from error
            raise
        if output.model is not None:
            _write_model(output.model, job, objective, outcome.w, result(outcome))
        summary = result(outcome)
    if output.json:
        print(json.dumps(summary), flush=True)
    elif not output.quiet:
        print(_sentence(outcome, output), file=sys.stderr, flush=True)
    return EXIT_CODES[outcome.status]


_Observer = report.Trace | CoordinatorService | report.Progress


def _check_sources(data: Sequence[str], config: ClusterConfig) -> None:
    if config.workers is None and not data:
        raise UsageError("train", "needs DATA, or --workers", "name a LIBSVM file, or the addresses of running workers")
    if config.deal is not None and (config.workers is None or not data):
        raise UsageError(f"--deal {config.deal}", "needs DATA and --workers", "say what to deal, and to whom")
    if config.workers is not None and data and config.deal is None:
        raise UsageError(
            f"DATA {data[0]}",
            "is not read when --workers is given: they have the data",
            "leave out one of the two, or see --deal",
        )


def _open_cluster(
    stack: ExitStack,
    data: Sequence[str],
    config: ClusterConfig,
    data_config: DataConfig,
    algorithm: AlgorithmConfig,
    progress: report.Progress,
) -> tuple[Cluster, list[ShardDescription]]:
    """Connect to the workers, started here if need be; they end with the stack."""
    cores = len(os.sched_getaffinity(0))

    def read() -> Examples:
        progress.stage(f"reading {', '.join(data)}")
        dtype = np.dtype(data_config.dtype).type
        return libsvm.read(data, zero_based=data_config.zero_based, dtype=dtype, threads=cores)

    if config.workers is not None:
        targets = addresses.resolve(config.workers)
        hashes = deal.deal(stack, read(), len(targets), config.deal) if config.deal is not None else None
        progress.stage(f"connecting to {config.workers}: {len(targets)} workers")
        cluster = Cluster(targets, insecure=config.insecure, silence=config.silence)
        stack.callback(cluster.close)
        shards = cluster.connect(config.connect_timeout)
        if hashes is not None:
            deal.check(shards, hashes)
        return cluster, shards
    examples = read()
    workers = config.local or max(1, min(cores // algorithm.threads, examples.n))
    if workers > examples.n:
        raise UsageError(f"--local {workers}", f"there are only {examples.n} examples", "use fewer workers")
    progress.stage(f"starting {workers} workers")
    local = stack.enter_context(local_workers(examples, workers, algorithm.threads, config.connect_timeout))
    cluster = Cluster(local.addresses, insecure=False, silence=config.silence)
    stack.callback(cluster.close)
    return cluster, cluster.connect(config.connect_timeout, local.gone)


def _write_model(path: str, job: Job, objective: ObjectiveConfig, w: Vector, summary: dict[str, object]) -> None:
    Model(loss=objective.loss, labels=job.labels, w=w).save(path, summary)


def _sentence(outcome: Outcome, output: OutputConfig) -> str:
    written = f"; the model is in {output.model}" if output.model else ""
    return (
        f"{outcome.status}: primal {outcome.certified.primal:.10g}, certified relative gap {outcome.relative_gap:.3e} "
        f"after {outcome.rounds} rounds, {outcome.data_passes:.1f} passes{written}"
    )
