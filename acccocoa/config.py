"""Every setting, once: frozen dataclasses from which the command line, the environment and compose take theirs.

Values are checked where they are made; a wrong one is a UsageError that names its flag.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from acccocoa import losses
from acccocoa.cache import Places
from acccocoa.errors import UsageError
from acccocoa.losses import Vector
from acccocoa.options import THREADS_MAX, option
from acccocoa.problem import LEAST_STRENGTH, Constant, FeatureProblem, Problem
from acccocoa.weights import parse_label_weights

Restart = Literal["gap", "gradient", "none"]
"""Rules by which the outer loop drops its momentum."""

Normalize = Literal["none", "rows", "features-maxabs", "features-std"]
"""What is made of equal size before training; see coordinator.normalize."""

Partition = Literal["auto", "examples", "features"]
"""What the coordinates of problem (A) are."""

LocalSolver = Literal["auto", "sdca", "newton"]
"""How workers minimise their G_k."""

NEWTON_FEATURES_MAX = 1024
"""Newton's method has a matrix with a row and a column for each feature, several of them."""

Wire = Literal["float32", "float64"]
"""How the vectors of a round travel."""

PATH_POINTS_MAX = 10_000

FOLDS_MAX = 1000
"""Of cross-validation: each is trained without, and none should be empty."""

LOCAL_EPOCHS_MAX = 1000
"""Passes in one round: the order of visits is held in memory, and no round is worth more."""


def _positive(flag: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise UsageError(f"{flag} {value:g}", "must be a finite number > 0")


def _whole(flag: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise UsageError(f"{flag} {value}", "must be a whole number >= 1")


@dataclass(frozen=True)
class ClusterConfig:
    """Which workers take part, and how long to wait for them."""

    local: int | None = option(
        None,
        "start K worker processes on this machine (default with DATA: what is fastest for its size)",
        metavar="K",
        type=int,
    )
    workers: str | None = option(
        None, "running workers: HOST:PORT,... or dns:///NAME:PORT or @FILE (one a line)", metavar="ADDRESSES", type=str
    )
    deal: str | None = option(
        None,
        "with DATA and --workers: deal DATA to the workers through this directory, which they serve",
        metavar="DIR",
        type=str,
    )
    connect_timeout: float = option(60.0, "seconds to wait for the workers to be reached and ready", metavar="S")
    wait: bool = option(False, "wait as long for workers that are busy with another job, instead of giving up")
    silence: float = option(10.0, "seconds without a sign of life after which a worker counts as lost", metavar="S")
    worker_patience: float = option(300.0, "seconds to wait for a lost worker to come back", metavar="S")
    adopt: bool = option(
        False,
        "with --workers: when one stays away, have another one load its part of the data and serve that, too",
    )
    straggler_factor: float = option(
        3.0, "name workers in the report that take so many times as long as the others for the same work", metavar="X"
    )
    manifest: str | None = option(
        None, "with --workers: make sure that they hold the shards of this manifest.json", metavar="PATH", type=str
    )
    insecure: bool = option(False, "accept unencrypted connections beyond the loopback interface")

    def __post_init__(self) -> None:
        _whole("--local", self.local)
        _positive("--connect-timeout", self.connect_timeout)
        _positive("--silence", self.silence)
        if not (math.isfinite(self.straggler_factor) and self.straggler_factor > 1):
            raise UsageError(f"--straggler-factor {self.straggler_factor:g}", "must be a finite number > 1")
        if not (math.isfinite(self.worker_patience) and self.worker_patience >= 0):
            raise UsageError(f"--worker-patience {self.worker_patience:g}", "must be a finite number >= 0")
        if self.local is not None and self.workers is not None:
            raise UsageError("--local and --workers", "exclude each other", "give one of them")
        if self.adopt and self.workers is None:
            raise UsageError("--adopt", "is for --workers", "leave it out: workers of --local are started again anyway")
        if self.manifest is not None and (self.workers is None or self.deal is not None):
            raise UsageError("--manifest", "is for --workers that serve shards", "leave it out")


@dataclass(frozen=True)
class DataConfig:
    """How DATA is read."""

    zero_based: bool = option(False, "feature numbers in DATA begin with 0")
    dtype: str = option("float32", "how values are stored", choices=("float32", "float64"))
    cache: str | None = option(
        None, "keep what was parsed of DATA in this directory (default: beside it)", metavar="DIR", type=str
    )
    no_cache: bool = option(False, "parse DATA anew, and keep nothing")
    weights: str | None = option(
        None, "file with the weight of every example of DATA, one a line", metavar="FILE", type=str
    )

    @property
    def places(self) -> Places:
        """Where DATA may be cached."""
        return Places(not self.no_cache, self.cache)


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is minimised."""

    loss: str = option("hinge", "loss function", choices=losses.NAMES)
    loss_parameter: float | None = option(
        None,
        "mu of smoothed_hinge (default 0.5), delta of huber (1), epsilon of the epsilon-insensitive losses (0.1)",
        type=float,
        metavar="X",
    )
    lam: float | None = option(None, "strength of the regulariser (default 1e-4)", type=float, metavar="X")
    C: float | None = option(None, "LIBLINEAR's C: lam = 1/(C n)", flag="--C", type=float, metavar="X")
    l1_ratio: float = option(0.0, "share of the l1 norm in the regulariser, from 0 (ridge) to 1 (Lasso)", metavar="R")
    partition: Partition = option(
        "auto",
        "what is dealt to the workers; features need a smooth loss, examples --l1-ratio below 1",
        choices=get_args(Partition),
    )
    bias: float | None = option(
        None, "add a constant feature of value B, whose weight is regularised as any other", type=float, metavar="B"
    )
    intercept: bool = option(False, "add an intercept that is not regularised; needs a smooth loss, dealt by features")
    normalize: Normalize = option(
        "none",
        "divide every example by its norm, or every feature by its largest magnitude or standard deviation",
        choices=get_args(Normalize),
    )
    standardize: bool = option(
        False, "the same as --normalize features-std; with --intercept as good as centering the features, too"
    )
    multiclass: Literal["none", "ovr"] = option(
        "none",
        "with more than two labels: refuse them, or one classifier a label against the rest",
        choices=("none", "ovr"),
    )
    class_weight: str | None = option(
        None, "weights of the examples with these labels (the others weigh 1)", type=str, metavar="LABEL=X,..."
    )
    positive_label: float | None = option(
        None, "label that counts as +1 (default: the larger one)", type=float, metavar="L"
    )

    def __post_init__(self) -> None:
        _positive("--lam", self.lam)
        _positive("--C", self.C)
        if self.lam is not None and self.C is not None:
            raise UsageError("--lam and --C", "exclude each other", "give one of them")
        if not 0.0 <= self.l1_ratio <= 1.0:
            raise UsageError(f"--l1-ratio {self.l1_ratio:g}", "must be from 0 to 1")
        if self.standardize:
            if self.normalize not in ("none", "features-std"):
                raise UsageError(f"--standardize and --normalize {self.normalize}", "exclude each other")
            object.__setattr__(self, "normalize", "features-std")
        _positive("--bias", self.bias)
        if self.label_weights and not losses.loss(self.loss, self.loss_parameter).classifier:
            raise UsageError(f"--class-weight {self.class_weight}", f"the {self.loss} loss knows no classes")
        if self.multiclass == "ovr":
            if not losses.loss(self.loss, self.loss_parameter).classifier:
                raise UsageError("--multiclass ovr", f"the {self.loss} loss knows no classes")
            if self.positive_label is not None:
                raise UsageError("--multiclass ovr and --positive-label", "exclude each other")
        if self.positive_label is not None:
            if not losses.loss(self.loss, self.loss_parameter).classifier:
                raise UsageError(f"--positive-label {self.positive_label:g}", f"the {self.loss} loss knows no classes")
            if not math.isfinite(self.positive_label):
                raise UsageError(f"--positive-label {self.positive_label:g}", "must be a finite number")
        self._check_smoothness()
        if self.resolved_partition(1, 1) == "features":
            self.by_features(np.zeros(1))
        else:
            self.problem(1)

    def _check_smoothness(self) -> None:
        """What can be had by features only is not asked for by examples, nor of a loss that cannot be dealt so."""
        if self.bias is not None and self.intercept:
            raise UsageError("--bias and --intercept", "exclude each other", "give one of them")
        smooth = math.isfinite(losses.loss(self.loss, self.loss_parameter).smoothness)
        kink = "is found by features, which a loss with a kink does not allow"
        if self.intercept and not smooth:
            raise UsageError(
                f"--intercept and --loss {self.loss}",
                f"exclude each other: an intercept {kink}",
                "use a smooth loss, or --bias B, which is regularised the less the larger B is",
            )
        if self.intercept and self.partition == "examples":
            raise UsageError(
                "--intercept and --partition examples",
                "exclude each other: it ties the dual variables of all examples together (their sum must be 0)",
                "use --partition features, or --bias B, which is regularised the less the larger B is",
            )
        if self.l1_ratio == 1.0 and not smooth:
            raise UsageError(
                f"--l1-ratio 1 and --loss {self.loss}",
                f"exclude each other: the optimum of pure l1 {kink}",
                "use --l1-ratio below 1, or a smooth loss",
            )

    @property
    def label_weights(self) -> dict[float, float]:
        """Weights of the examples by label, where they are not 1."""
        return {} if self.class_weight is None else parse_label_weights(self.class_weight)

    def asks_for_scale(self, n: int, d: int) -> bool:
        """Whether what to partition depends on the scale of the features, too."""
        return (
            self.partition == "auto"
            and self.normalize == "none"
            and d <= n
            and self.resolved_partition(n, d) != self.resolved_partition(n, d, unscaled=True)
        )

    def coupling(self, n: int, norm: float) -> float:
        """L R^2 / (lam n), R being the largest norm: so many passes by examples, and one, gain a constant factor."""
        return self._over_strength(losses.loss(self.loss, self.loss_parameter).smoothness * norm * norm, n)

    def coupling_of_rows(self, n: int, d: int, norm: float, heaviest: float) -> float:
        """The same as it shows in passes, of the rows as they are trained on.

        d : number of features;  norm, heaviest : the largest norm in the data (0: not known) and weight

        Returns
        -------
        with L as Loss.bend; inf where it is not known
        """
        if self.normalize == "rows":
            norm = 1.0
        elif self.normalize != "none":
            norm = math.sqrt(d)
        elif norm == 0.0:
            return math.inf
        bend, bias = losses.loss(self.loss, self.loss_parameter).bend, self.bias or 0.0
        return self._over_strength(bend * (norm * norm + bias * bias) * heaviest, n)

    def _over_strength(self, curvature: float, n: int) -> float:
        return curvature / (self.strength(n) * (1.0 - self.l1_ratio) * n)

    def resolved_partition(self, n: int, d: int, *, unscaled: bool = False) -> Literal["examples", "features"]:
        """What to partition: what the objective allows, then whichever is fast.

        By examples, with the shorter vector travelling where there is an l1 norm, unless the scales of the features
        differ (unscaled): that costs dual coordinates orders of magnitude, and those that are features nothing.
        """
        if self.partition != "auto":
            return self.partition
        if self.l1_ratio == 1.0 or self.intercept:
            return "features"
        smooth = math.isfinite(losses.loss(self.loss, self.loss_parameter).smoothness)
        return "features" if smooth and (unscaled or (self.l1_ratio > 0.0 and n < d)) else "examples"

    def strength(self, n: int) -> float:
        """lam, the strength of the regulariser, over n examples.

        Raises
        ------
        UsageError : --C makes it 0, infinite, or as small as no lam may be
        """
        if self.C is None:
            return 1e-4 if self.lam is None else self.lam
        scaled = self.C * n
        lam = 1.0 / scaled if math.isfinite(scaled) else 0.0
        if not (lam >= LEAST_STRENGTH and math.isfinite(lam)):
            raise UsageError(
                f"--C {self.C:g}", f"makes lam = 1/(C n) {lam:g} over {n} examples", "choose one nearer to 1"
            )
        return lam

    def problem(self, n: int) -> Problem:
        """The objective over n examples, partitioned by examples."""
        return Problem(self.loss, self.strength(n), n, self.l1_ratio, self.loss_parameter)

    def by_features(self, y: Vector, s: Vector | None = None, n: int | None = None) -> FeatureProblem:
        """The objective over examples with labels y and weights s (float64, shape (n,)), partitioned by features.

        n : number of examples, where that is less because the others weigh 0 and are left out
        """
        constant = None
        if self.intercept:
            constant = Constant(1.0, regularised=False)
        elif self.bias is not None:
            constant = Constant(self.bias, regularised=True)
        s = np.ones(len(y)) if s is None else s
        return FeatureProblem(
            self.loss, self.strength(n or len(y)), y, s, self.l1_ratio, self.loss_parameter, constant, n
        )


@dataclass(frozen=True)
class PathConfig:
    """Over which strengths of the regulariser a path goes."""

    points: int = option(20, "strengths lam, in equal ratios from the largest to the smallest", metavar="N")
    lam_max: float | None = option(
        None,
        "the largest lam (default: the smallest that makes all weights 0; without l1 norm the gradient's length at 0)",
        type=float,
        metavar="X",
    )
    lam_min_ratio: float = option(1e-3, "the smallest lam over the largest", metavar="R")

    def __post_init__(self) -> None:
        if not 2 <= self.points <= PATH_POINTS_MAX:
            raise UsageError(f"--points {self.points}", f"must be from 2 to {PATH_POINTS_MAX}")
        _positive("--lam-max", self.lam_max)
        if not 0.0 < self.lam_min_ratio < 1.0:
            raise UsageError(f"--lam-min-ratio {self.lam_min_ratio:g}", "must be between 0 and 1")

    def grid(self, largest: float) -> list[float]:
        """The strengths, falling from the largest one."""
        steps = self.points - 1
        return [largest * self.lam_min_ratio ** (k / steps) for k in range(self.points)]


@dataclass(frozen=True)
class CvConfig:
    """How examples are held out."""

    folds: int = option(5, "parts of the examples; each is held out once", metavar="N")

    def __post_init__(self) -> None:
        if not 2 <= self.folds <= FOLDS_MAX:
            raise UsageError(f"--folds {self.folds}", f"must be from 2 to {FOLDS_MAX}")


@dataclass(frozen=True)
class AlgorithmConfig:
    """How it is minimised."""

    gamma: float = option(1.0, "aggregation, between 1/K and 1", metavar="G")
    sigma: float | None = option(None, "sigma' (default: the safe gamma*K)", type=float, metavar="S")
    accelerate: bool = option(True, "Accelerated CoCoA+, or plain CoCoA+", flag="--accelerate/--no-accelerate")
    shrinking: bool = option(
        True,
        "with --accelerate, let coordinates that do not move rest for some passes; the others are visited instead",
        flag="--shrinking/--no-shrinking",
    )
    restart: Restart = option("gap", "rule by which momentum is dropped", choices=get_args(Restart))
    local_epochs: float | None = option(
        None,
        "passes over its shard a worker makes in a round, may be less than 1 (default: --local-work auto)",
        metavar="E",
        type=float,
    )
    round_seconds: float | None = option(
        None,
        "seconds that every worker computes in a round (at most 1000 passes), a slow one at less work; depends on "
        "clocks beside --seed",
        metavar="S",
        type=float,
    )
    screening: Literal["working-set", "safe", "none"] = option(
        "working-set",
        "by features, with l1 norm: leave out those that the last certificate proves to be 0 (safe), or those that are "
        "likely to be, too (every certificate looks at all)",
        choices=("working-set", "safe", "none"),
    )
    wire: Wire = option(
        "float64",
        "how the vectors of a round travel; float32 (by examples only) halves them until the gap is small, computing "
        "and certificates stay float64",
        choices=get_args(Wire),
    )
    deterministic: bool = option(
        False, "refuse what depends on clocks: the same bits again with as many workers and threads"
    )
    local_work: Literal["auto"] | None = option(
        None, "rule for the passes in a round, instead of --local-epochs and --round-seconds", choices=("auto",)
    )
    threads: int | None = option(
        None,
        "threads of each worker started by --local [cores / K]: one solves, the others compute certificates, or each a "
        "block where lam n is large, or features are few and this option is given, or a label with --multiclass ovr",
        metavar="T",
        type=int,
    )
    local_solver: LocalSolver = option(
        "auto",
        "how a worker minimises its part: dual coordinate ascent, or (by examples, at most "
        f"{NEWTON_FEATURES_MAX} features) Newton's method, which is chosen for one worker where features are few",
        choices=get_args(LocalSolver),
    )
    seed: int = option(0, "seed of the order of visits", metavar="N")

    @property
    def shrinks(self) -> bool:
        """Coordinates rest: plain CoCoA+ visits all of them."""
        return self.shrinking and self.accelerate

    @property
    def as_usual(self) -> bool:
        """Nothing is said of the rounds, so that there may be one."""
        work = (self.local_epochs, self.round_seconds, self.sigma)
        return self.accelerate and self.gamma == 1.0 and all(each is None for each in work)

    def __post_init__(self) -> None:
        if not 0.0 < self.gamma <= 1.0:
            raise UsageError(f"--gamma {self.gamma:g}", "must be between 1/K and 1")
        _positive("--sigma", self.sigma)
        _positive("--local-epochs", self.local_epochs)
        if self.local_epochs is not None and self.local_epochs > LOCAL_EPOCHS_MAX:
            raise UsageError(f"--local-epochs {self.local_epochs:g}", f"must be at most {LOCAL_EPOCHS_MAX}")
        _positive("--round-seconds", self.round_seconds)
        work = {
            f"--local-work {self.local_work}": self.local_work,
            "--round-seconds": self.round_seconds,
            "--local-epochs": self.local_epochs,
        }
        if len(said := [flag for flag, value in work.items() if value is not None]) > 1:
            raise UsageError(f"{said[0]} and {said[1]}", "exclude each other", "give one of them")
        if self.local_solver == "newton" and said and self.local_work is None:
            raise UsageError(
                f"--local-solver newton and {said[0]}",
                "exclude each other: it makes as many passes as it takes",
                "give one of them",
            )
        if self.deterministic and self.round_seconds is not None:
            raise UsageError(
                "--deterministic and --round-seconds",
                "exclude each other: how much work is done in so many seconds depends on clocks",
                "give --local-epochs instead of --round-seconds",
            )
        _whole("--threads", self.threads)
        if self.threads is not None and self.threads > THREADS_MAX:
            raise UsageError(f"--threads {self.threads}", f"must be at most {THREADS_MAX}")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"--seed {self.seed}", "must be at least 0 and below 2^63")


@dataclass(frozen=True)
class StopConfig:
    """When it ends."""

    tol: float = option(1e-3, "relative certified gap to stop at", metavar="X")
    abs_tol: float | None = option(None, "absolute certified gap to stop at, too", type=float, metavar="X")
    max_rounds: int | None = option(None, "stop after N rounds", type=int, metavar="N")
    max_seconds: float | None = option(None, "stop after S seconds of solving", type=float, metavar="S")

    def __post_init__(self) -> None:
        _positive("--tol", self.tol)
        _positive("--abs-tol", self.abs_tol)
        _whole("--max-rounds", self.max_rounds)
        _positive("--max-seconds", self.max_seconds)


@dataclass(frozen=True)
class OutputConfig:
    """What is written."""

    model: str | None = option(
        None, "write the model here (LIBLINEAR's format) and PATH.json", metavar="PATH", type=str
    )
    trace: str | None = option(None, "write a JSON object a line, one a certified round", metavar="PATH", type=str)
    json: bool = option(False, "print one JSON object on standard output, and nothing else there")
    quiet: bool = option(False, "no progress on standard error")
    certify_every_round: bool = option(False, "certify every round, not only as often as needed")
    listen: str | None = option(None, "serve Watch, Status and Stop here while training", metavar="HOST:PORT", type=str)


@dataclass(frozen=True)
class RecoveryConfig:
    """What survives a killed coordinator."""

    checkpoint: str | None = option(
        None, "keep what it takes to go on after a crash in this directory", metavar="DIR", type=str
    )
    resume: bool = option(False, "go on with the job of --checkpoint, if there is one")
    allow_change: bool = option(False, "resume with another objective, from the same dual variables")

    def __post_init__(self) -> None:
        if self.resume and self.checkpoint is None:
            raise UsageError("--resume", "needs --checkpoint DIR", "say where the checkpoint is")
        if self.allow_change and not self.resume:
            raise UsageError("--allow-change", "needs --resume")
