"""What the settings and the workers' shards make together: a job, a problem, and a run of it that is ready to begin."""

import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acccocoa import __version__
from acccocoa.config import NEWTON_FEATURES_MAX, AlgorithmConfig, ClusterConfig, ObjectiveConfig, StopConfig
from acccocoa.errors import DataError, UsageError
from acccocoa.folds import Fold
from acccocoa.losses import Loss, Vector, loss
from acccocoa.manifest import Manifest
from acccocoa.model import Model
from acccocoa.problem import FeatureProblem, Problem
from acccocoa.security import is_loopback, split_address
from acccocoa.statistics import Sizes
from acccocoa.weights import of_labels
from coordinator import report
from coordinator.cluster import Cluster
from coordinator.handshake import Job, ShardDescription, check_memory, combine
from coordinator.normalize import Scaling
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import (
    ENOUGH,
    FEW,
    NEWTON_SHARE,
    SCREENED,
    CertificateSchedule,
    Spacing,
    Work,
    automatic_epochs,
    blocks_are_free,
    is_narrow,
    lengthened,
    newton_pays,
    plan_work,
    sample_stride,
    screened_epochs,
    sole_epochs,
    two_blocks_pay,
)
from coordinator.service import CoordinatorServer, CoordinatorService
from coordinator.settings import Settings
from coordinator.tempo import Tempo
from coordinator.training import CertifiedRound, Outcome, Training

Observer = Callable[[CertifiedRound], None]

SCREENING = {"working-set": 0.02, "safe": 1.0, "none": None}
"""Share of the ball that holds the optimum; see Training. With a small one few features are visited that are 0 in the
end, and no more rounds are needed (Lasso, news20-like, K = 2, lam / lam_max 0.1 / 0.02 / 0.005, every third round
certified, passes over the data: 42 / 95 / 156 with all of it, 26 / 48 / 89 with 0.03, 23 / 45 / 78 with 0.01)."""

EXIT_CODES = {"converged": 0, "max_rounds": 3, "max_seconds": 3, "interrupted": 130}
"""By the status of a run; see worst_status."""


def worst_status(statuses: Iterable[str]) -> str:
    """The status of several runs together: the one that comes last in EXIT_CODES."""
    return max(statuses, key=list(EXIT_CODES).index)


def all_of(told: Sequence[Observer]) -> Observer:
    """One observer that tells all of them, in their order."""

    def observe(seen: CertifiedRound) -> None:
        for observer in told:
            observer(seen)

    return observe


def describe(
    settings: Settings, shards: Sequence[ShardDescription], job_id: str, manifest: Manifest | None = None
) -> Job:
    """The data of these shards as a job for what the user wants to train; see handshake.combine.

    Raises
    ------
    DataError : there are more features (or examples) than this machine has memory for, beside handshake.combine's
    """
    objective = settings.objective
    classifier = loss(objective.loss, objective.loss_parameter).classifier
    job = combine(
        shards,
        classifier=classifier,
        positive_label=objective.positive_label if classifier else None,
        software_version=__version__,
        own_job_id=job_id,
        manifest=manifest,
        bias=objective.bias,
        label_weights=objective.label_weights,
        multiclass=objective.multiclass == "ovr",
    )
    check_wire(settings.algorithm, by_features=job.by_features)
    check_memory(job, memory())
    return job


def check_wire(algorithm: AlgorithmConfig, *, by_features: bool) -> None:
    """The vectors of a round may travel as they are to.

    By features what travels to the workers is the gradient of the losses at the predictions. It is the dual point, and
    rounded it need not be one any more: a loss's conjugate ends at 0 and at the example's share of the slope, and with
    an intercept the entries must sum up to 0. The predictions, which O_A is computed from, are the primal value's.

    Raises
    ------
    UsageError : they may not
    """
    if by_features and algorithm.wire != "float64":
        raise UsageError(
            f"--wire {algorithm.wire}",
            "is by examples only: by features the rounded vector would be no dual point",
            "leave it out, or deal examples: --partition examples, with --l1-ratio below 1 and without --intercept",
        )


def memory() -> int:
    """Bytes of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def problem_of(objective: ObjectiveConfig, job: Job) -> Problem | FeatureProblem:
    """The objective in the partition that the workers' shards have; by features with labels still to come.

    Raises
    ------
    UsageError : the objective does not allow that partition, or the user asked for another
    """
    has = "features" if job.by_features else "examples"
    if objective.partition not in ("auto", has):
        raise UsageError(f"--partition {objective.partition}", f"the workers' shards are cut by {has}")
    if job.by_features:
        n = job.shared  # some of which may be left out
        objective = replace(objective, bias=job.bias)
        return objective.by_features(np.zeros(n), np.full(n, job.weight_bound), job.n)
    if objective.intercept:
        raise UsageError("--intercept", "needs shards cut by features", "see --bias, shard --by, or worker serve --by")
    return objective.problem(job.n)


@dataclass(frozen=True)
class LeftOut:
    """Examples that a run must not see. which : by features, bool, shape (examples,), in the order of the data"""

    fold: Fold
    size: int
    which: NDArray[np.bool_] | None


def example_weights(job: Job, labels: Vector, weights: Vector | None) -> Vector:
    """What every example weighs, by its label and by itself; all float64, shape (n,)."""
    s = of_labels(labels, job.label_weights)
    return s if weights is None else s * weights


def with_labels(
    problem: FeatureProblem, job: Job, labels: Vector, weights: Vector | None, left_out: NDArray[np.bool_] | None = None
) -> FeatureProblem:
    """The problem with the labels as the loss takes them (+1 / -1 for classifiers), and the weights of the examples.

    All in the same order. left_out : which weigh nothing, whatever their weight

    Raises
    ------
    DataError : no example with one of the labels has a weight above 0, and there is an intercept
    """
    y = np.where(labels == job.positive_label, 1.0, -1.0) if problem.loss.classifier else labels
    s = example_weights(job, labels, weights)
    if left_out is not None:
        s[left_out] = 0.0
    if problem.intercept and problem.loss.classifier and not (s[y > 0].any() and s[y < 0].any()):
        what = "weights" if left_out is None else "the examples outside a fold"
        raise DataError(what, "leave examples of one label only, and there is no best intercept then")
    return replace(problem, y=y, s=s)


@dataclass(frozen=True)
class Begun:
    """A problem that the workers hold, and its run.

    epochs : passes a worker makes in a round;  ready : the workers can begin the round without a resync
    """

    job: Job
    loop: OuterLoop
    training: Training
    epochs: float
    ready: bool


@dataclass(frozen=True)
class Posed:
    """A problem that is to be solved.

    observe : told of its certified rounds;  keep : see Training
    """

    job: Job
    problem: Problem | FeatureProblem
    observe: Observer = lambda _: None
    keep: Callable[[Training], bool] = lambda _: False


def begin(
    cluster: Cluster,
    shards: Sequence[ShardDescription],
    posed: Sequence[Posed],
    settings: Settings,
    job_id: str,
    scaled: Scaling,
    *,
    interrupted: threading.Event,
    stop: StopConfig | None = None,
    round_number: int = 0,
    lineage: str = "",
    warm: bool = False,
    left_out: LeftOut | None = None,
) -> list[Begun]:
    """Begin the problems with every worker, to be solved at the same time.

    Parameters
    ----------
    posed : they differ in nothing but the labels
    stop : when the runs end; None: as the settings say
    warm : from the dual variables the workers hold, of whatever job
    """
    most = min(blocks_in_a_shard(settings, shards, each, stop, len(posed)) for each in posed)
    blocks = [min(most, shard.blocks) for shard in shards]
    posed = [replace(each, job=replace(each.job, blocks=sum(blocks))) for each in posed]
    ready = cluster.start(
        shards,
        [(each.job, each.problem) for each in posed],
        job_id,
        settings.algorithm.seed,
        round_number=round_number,
        lineage=lineage,
        warm=warm,
        scaling=scaled,
        shrinking=settings.algorithm.shrinks,
        fold=None if left_out is None else left_out.fold,
        blocks=blocks,
    )
    begun = [
        _begun(
            cluster,
            shards,
            each,
            settings,
            len(posed),
            ready,
            interrupted,
            stop or settings.stop,
            left_out,
            beside=len(posed) == 1 and all(b < shard.blocks for b, shard in zip(blocks, shards, strict=True)),
            newton=by_newton(settings, shards, each.job),
        )
        for each in posed
    ]
    cluster.give_up = lambda: any(each.training.limit() in ("interrupted", "max_seconds") for each in begun)
    return begun


def by_newton(settings: Settings, shards: Sequence[ShardDescription], job: Job) -> bool:
    """The workers minimise their G_k by Newton's method.

    Raises
    ------
    UsageError : the user says so, and it cannot be
    """
    objective, algorithm = settings.objective, settings.algorithm
    kind = loss(objective.loss, objective.loss_parameter)
    if algorithm.local_solver == "newton":
        if job.by_features:
            why, remedy = "is for shards cut by examples, these are cut by features", "leave it out, or cut by examples"
        elif not kind.newton:
            why, remedy = f"is not for the {objective.loss} loss", "leave it out, or take another loss"
        elif job.shared > NEWTON_FEATURES_MAX:
            why = f"is for at most {NEWTON_FEATURES_MAX} features, here are {job.shared}"
            remedy = "leave it out"
        else:
            return True
        raise UsageError("--local-solver newton", why, remedy)
    if job.by_features or len(shards) > 1:
        return False
    return newton_chosen(settings, job.shared, job.nnz, job.n, lambda: _coupling(settings, shards, job))


def whole_in_one(settings: Settings) -> bool:
    """By examples G_k of a sole worker is the whole problem, and nothing is said of the rounds: one may do.

    With an l1 norm the workers minimise no more than a bound of f, in rounds that are to be cheap.
    """
    objective, output = settings.objective, settings.output
    by_rounds = output.certify_every_round or not settings.algorithm.as_usual
    return objective.l1_ratio == 0.0 and not objective.intercept and not by_rounds


def newton_chosen(settings: Settings, features: int, entries: int, rows: int, coupling: Callable[[], float]) -> bool:
    """A sole worker minimises by Newton's method, by examples, where the user leaves it open: it may, and it pays.

    Parameters
    ----------
    features, entries, rows : of the data;  coupling : asked for where it counts, see schedule.newton_pays
    """
    kind = loss(settings.objective.loss, settings.objective.loss_parameter)
    may = settings.algorithm.local_solver == "auto" and whole_in_one(settings) and kind.newton and features <= FEW
    return may and newton_pays(features, coupling(), entries, rows, math.isfinite(kind.smoothness))


def blocks_in_a_shard(
    settings: Settings,
    shards: Sequence[ShardDescription],
    posed: Posed,
    stop: StopConfig | None = None,
    together: int = 1,
) -> int:
    """How many blocks of the partition a worker's shard is cut into, at most: one, or one for each of its threads.

    Threads without a block compute certificates.

    Parameters
    ----------
    posed : one of the problems;  together : how many there are;  stop : as for `begin`
    """
    threads, job = max(shard.blocks for shard in shards), posed.job
    if threads == 1 or by_newton(settings, shards, job):  # all threads share its passes
        return 1
    if together >= threads:  # a problem each
        return 1
    if _screening(settings, posed) is not None:  # what takes time is the certificate
        return 1
    stop = stop or settings.stop
    entries, tol = max(shard.nnz for shard in shards), stop.tol
    coupling, sole = _coupling(settings, shards, job), len(shards) == 1 and together == 1
    if is_narrow(job.coordinates, job.shared):
        if settings.cluster.workers is not None or settings.algorithm.threads is not None:  # as the user says
            return threads
        return 2 if sole and not job.by_features and two_blocks_pay(entries, coupling, tol) else 1
    alone = sole and _ends_rounds(settings, shards, job, stop)
    return threads if blocks_are_free(threads, job.blocks, entries, job.shared, coupling, tol, alone) else 1


def _ends_rounds(settings: Settings, shards: Sequence[ShardDescription], job: Job, stop: StopConfig) -> bool:
    """A sole worker sees the gap that ends the run."""
    # what an absolute gap comes to, it does not know
    return len(shards) == 1 and not job.by_features and whole_in_one(settings) and stop.abs_tol is None


def _coupling(settings: Settings, shards: Sequence[ShardDescription], job: Job) -> float:
    """Of rows, where they are examples; see ObjectiveConfig.coupling_of_rows."""
    if job.by_features:
        return math.inf
    norm = Sizes.together([shard.sizes for shard in shards]).norm_largest
    return settings.objective.coupling_of_rows(job.n, job.shared, norm, job.weight_bound)


def _screening(settings: Settings, posed: Posed) -> float | None:
    """Share of the ball in which features count; None: none is left out."""
    if not (posed.job.by_features and posed.problem.l1_ratio > 0.0):
        return None
    return SCREENING[settings.algorithm.screening]


def _begun(
    cluster: Cluster,
    shards: Sequence[ShardDescription],
    posed: Posed,
    settings: Settings,
    together: int,
    ready: bool,
    interrupted: threading.Event,
    stop: StopConfig,
    left_out: LeftOut | None,
    beside: bool,
    newton: bool,
) -> Begun:
    """One of so many problems that the workers hold now.

    beside : they have a thread left while they solve;  newton : see by_newton
    """
    algorithm, job, problem = settings.algorithm, posed.job, posed.problem
    if isinstance(problem, FeatureProblem):
        which = None if left_out is None or left_out.which is None else cluster.order.ordered(left_out.which)
        problem = with_labels(problem, job, cluster.labels, cluster.weights, which)
    loop = OuterLoop(
        problem,
        job.shared,
        job.blocks,
        algorithm.gamma,
        algorithm.sigma,
        algorithm.accelerate,
        algorithm.restart,
    )
    screening = _screening(settings, posed)
    # with --round-seconds: until something has been measured
    epochs, longest = _epochs(settings, job, shards, cluster, None if screening is None else problem.loss, together)
    seconds = algorithm.round_seconds

    alone = _ends_rounds(settings, shards, job, stop)
    limit = math.inf if stop.max_seconds is None else stop.max_seconds
    first = sole_epochs(epochs, shards[0].nnz, job.n, job.blocks, limit) if alone else epochs

    def works_after(passes: float) -> Sequence[Work]:
        planned = lengthened(epochs, longest, passes) if passes > 0.0 else first
        return [plan_work(counts, planned) for counts in cluster.buckets]

    training = Training(
        loop,
        cluster,
        works_after(0.0),
        CertificateSchedule(
            stop.tol,
            settings.output.certify_every_round,
            stride=1 if problem.l1_ratio == 1.0 else sample_stride(job.coordinates),
            spacing=Spacing() if screening is None else SCREENED,
        ),
        stop,
        interrupted=interrupted,
        observe=posed.observe,
        keep=posed.keep,
        coordinates=job.coordinates,
        screening=screening,
        tempo=None if seconds is None else Tempo(cluster.buckets, seconds / together),
        works_after=works_after if max(longest, first) > epochs and seconds is None else None,
        beside=beside and not job.by_features,
        accuracy=NEWTON_SHARE * stop.tol if newton else 0.0,
        enough=ENOUGH * stop.tol if alone else 0.0,
        falls_back=algorithm.local_solver == "auto",
        wire=algorithm.wire,
    )
    return Begun(job, loop, training, epochs, ready)


def _epochs(
    settings: Settings,
    job: Job,
    shards: Sequence[ShardDescription],
    cluster: Cluster,
    screened: Loss | None,
    together: int,
) -> tuple[float, float]:
    """Passes a worker makes in a round of each of so many problems, at first and at most; see schedule.lengthened.

    screened : the loss, where features are left out
    """
    if settings.algorithm.local_epochs is not None:
        return settings.algorithm.local_epochs, settings.algorithm.local_epochs
    entries = max(shard.nnz for shard in shards)
    support = max(len(link.support) for link in cluster.links)
    loopback = all(is_loopback(split_address(link.address)[0]) for link in cluster.links)
    if screened is not None:
        epochs = screened_epochs(
            entries, support, len(shards), job.blocks, loopback, together, quadratic=screened.quadratic
        )
        return epochs, epochs
    coupling = _coupling(settings, shards, job)
    first, longest = (
        automatic_epochs(
            entries=entries,
            rows=max(shard.n for shard in shards),
            support=support,
            workers=len(shards),
            blocks=job.blocks,
            loopback=loopback,
            together=together,
            later=later,
            coupling=coupling,
        )
        for later in (False, True)
    )
    return first, longest


class Patience:
    """Tells the cluster when the best gap has improved; an observer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._best = math.inf

    def __call__(self, seen: CertifiedRound) -> None:
        """A certified round."""
        if seen.best_gap < self._best:
            self._best = seen.best_gap
            self._cluster.improved()


def observers(
    stack: ExitStack, settings: Settings, service: CoordinatorService, trace_bytes: int = 0
) -> tuple[report.Trace | None, report.Progress, list[Observer]]:
    """Whoever is told of certified rounds; they are closed with the stack.

    trace_bytes : of an earlier trace to keep
    """
    output = settings.output
    found: list[Observer] = []
    trace = None
    if output.trace is not None:
        trace = report.Trace(output.trace, trace_bytes)
        stack.callback(trace.close)
        found.append(trace)
    if output.listen is not None:
        server = CoordinatorServer(service, output.listen, settings.cluster.insecure)
        stack.callback(server.close)
        found.append(service)
    progress = stack.enter_context(report.progress(output.quiet, settings.stop.tol))
    found.append(progress)
    if output.listen is not None:
        progress.stage(f"can be watched at {server.address}")
    return trace, progress, found


def load_seconds(cluster: ClusterConfig, shards: Sequence[ShardDescription], before: float) -> float:
    """How long it took until the data was loaded, without compiling.

    before : seconds from the start of the command to the first round
    """
    if cluster.workers is not None and cluster.deal is None:  # the workers had it before
        return max(shard.load_seconds for shard in shards)
    return max(0.0, before - max(shard.compile_seconds for shard in shards))


def data_summary(settings: Settings, job: Job, shards: Sequence[ShardDescription]) -> dict[str, Any]:
    """What the --json objects say of the data and the objective."""
    objective = settings.objective
    problem = problem_of(objective, job)
    return {
        "n": job.n,
        "d": job.d,
        "nnz": job.nnz,
        "workers": len(shards),
        "threads": max(shard.blocks for shard in shards),
        "loss": objective.loss,
        "loss_parameter": problem.resolved_parameter,
        "lam": problem.lam,
        "l1_ratio": objective.l1_ratio,
        "partition": "features" if job.by_features else "examples",
        "bias": job.bias,
        "intercept": objective.intercept,
        "normalize": objective.normalize,
        "class_weight": objective.class_weight,
        "weighted": job.largest_weight is not None,
    }


def cluster_summary(
    cluster: Cluster, config: ClusterConfig, shards: Sequence[ShardDescription], before: float, solve: float
) -> dict[str, Any]:
    """What the --json objects say of the workers and the time.

    before : seconds from the start of the command to the first round;  solve : since then
    """
    return {
        "reconnects": cluster.lost_and_found,
        "replayed": cluster.replayed,
        "seconds": {
            "load": load_seconds(config, shards, before),
            "compile": max(shard.compile_seconds for shard in shards),
            "solve": solve,
            "total": before + solve,
        },
        "bytes": {"pushed": cluster.bytes_pushed, "returned": cluster.bytes_returned},
    }


def run_summary(outcome: Outcome) -> dict[str, Any]:
    """What the --json objects say of a run and its outcome."""
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
        "drift": outcome.drift,
        "widened": outcome.widened,
        "deterministic": outcome.deterministic,
        "local_solver": outcome.local_solver,
    }


OF_A_RUN = ("sigma", "local_epochs", "passes_a_round")
"""What of it differs from one lam to another."""


def algorithm_summary(begun: Begun, settings: Settings, shards: Sequence[ShardDescription]) -> dict[str, Any]:
    """What the --json objects say of how it was minimised."""
    loop = begun.loop
    return {
        "gamma": loop.gamma,
        "sigma": loop.sigma,
        "accelerate": loop.accelerate,
        "shrinking": settings.algorithm.shrinks,
        "restart": loop.restart_rule,
        "local_epochs": begun.epochs if settings.algorithm.round_seconds is None else None,
        "round_seconds": settings.algorithm.round_seconds,
        "passes_a_round": [work.passes for work in begun.training.works],
        "dtype": shards[0].dtype,
        "wire": settings.algorithm.wire,
        "seed": settings.algorithm.seed,
        "version": __version__,
    }


def model_of(objective: ObjectiveConfig, job: Job, w: Vector) -> Model:
    """The model with these weights, of data as it is."""
    bias = 1.0 if objective.intercept else -1.0 if job.bias is None else job.bias
    return Model(loss=objective.loss, labels=job.labels, w=w, bias=bias, unit_rows=objective.normalize == "rows")
