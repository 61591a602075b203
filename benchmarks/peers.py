"""Time to a given accuracy: this project against whichever other solvers are installed, on the same cores.

Every peer gets the same data and the same objective, P(w) = (1/n) sum_i loss(y_i, x_i'w) + lam/2 |w|^2, without an
intercept: LIBLINEAR's and scikit-learn's C is 1/(lam n), Snap ML's regularizer lam n, Spark's regParam and SGD's alpha
lam. Only fitting is timed, with the data in memory in the form the peer likes best.

A peer's accuracy is (P(w) - P*) / P*, P* being the best value anybody found, checked against a certified bound. A first
walk over a ladder of the peer's tolerances or numbers of iterations, for each of its algorithms, finds the cheapest
setting that reaches a level; the repetitions, in which all take turns, time that setting. For this project it is the
time until the run itself, real processes with the default settings, has certified the level: seconds.solve of --json.

Every peer lives in a process of its own, so that libraries that exclude each other can be compared, and one that hangs
can be ended.
"""

import ctypes
import importlib
import json
import multiprocessing
import os
import shlex
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import click
import numpy as np

from acccocoa import losses
from acccocoa.losses import Vector
from acccocoa.problem import Problem
from benchmarks import data as datasets
from benchmarks.data import Loaded
from benchmarks.runs import RunFailed, train

LOSSES = ("hinge", "squared_hinge", "logistic")
LAMS = (1e-4, 1e-5, 1e-6)
LEVELS = (1e-2, 1e-3, 1e-4)

REFERENCE_TOLERANCE = 1e-6
"""Relative gap of the run that bounds the optimum from below: a hundredth of the finest level."""

DENSE_FROM = 0.05
"""Density from which the peers that take dense matrices get one as well (if it fits)."""

DENSE_BYTES_MAX = 1 << 30

START_SECONDS = 180.0
"""What a peer may take to import, convert the data and warm up; not counted."""

EPSILONS = tuple(digit * 10.0**-power for power in range(1, 6) for digit in (10, 5, 2))


def _iterations(last: int) -> tuple[float, ...]:
    found = [1.0]
    while found[-1] < last:
        found.append(float(max(found[-1] + 1, round(1.2 * found[-1]))))
    return tuple(found)


ITERATIONS = _iterations(5000)


class CannotError(Exception):
    """A peer cannot do a cell; the text says why."""


# ---------------------------------------------------------------------------------------------------- inside a process


Fit = Callable[[float, float], Callable[[], Vector]]
"""(lam, setting) -> what is timed; it returns w, shape (d,)."""


@dataclass(frozen=True)
class Method:
    """An algorithm of a peer: its settings from the coarsest to the finest, and how to fit."""

    settings: tuple[float, ...]
    fit: Fit


class Peer(Protocol):
    """A peer with the data in memory."""

    version: str

    def methods(self, loss: str) -> dict[str, Method]:
        """Its algorithms for the loss. Raises CannotError."""


def _dense(loaded: Loaded) -> bool:
    return loaded.density >= DENSE_FROM and loaded.n * loaded.d * 8 <= DENSE_BYTES_MAX


def _named(module: Any) -> str:
    return str(getattr(module, "__version__", ""))


class Liblinear:
    """LIBLINEAR, either edition."""

    def __init__(self, loaded: Loaded, path: str, threads: int) -> None:
        self._api = importlib.import_module("liblinear.liblinearutil")
        parameter = self._api.parameter("-q")
        self._parallel = hasattr(parameter, "nr_thread")
        self._threads = threads
        self._d = loaded.d
        self._problem = self._api.problem(loaded.y, loaded.rows.astype(np.float64))
        self.version = "multi-core" if self._parallel else "one thread"

    def methods(self, loss: str) -> dict[str, Method]:
        """The solvers, by number."""
        numbers = {"hinge": (3,), "squared_hinge": (1, 2), "logistic": (0,) if self._parallel else (7, 0)}
        return {f"-s {number}": Method(EPSILONS, self._fit(number)) for number in numbers[loss]}

    def _fit(self, number: int) -> Fit:
        def prepare(lam: float, setting: float) -> Callable[[], Vector]:
            threads = f"-m {self._threads}" if self._parallel else ""
            options = f"-s {number} -c {1 / (lam * self._problem.l)!r} -e {setting!r} -q {threads}"
            parameter = self._api.parameter(options)

            def run() -> Vector:
                model = self._api.train(self._problem, parameter)
                w = np.ctypeslib.as_array(ctypes.cast(model.w, ctypes.POINTER(ctypes.c_double)), (self._d,)).copy()
                return w if model.get_labels()[0] > 0 else -w

            return run

        return prepare


class LiblinearMulticore(Liblinear):
    """The multi-core edition, under a name of its own."""

    def __init__(self, loaded: Loaded, path: str, threads: int) -> None:
        super().__init__(loaded, path, threads)
        if not self._parallel:
            raise ImportError("the liblinear found is not the multi-core edition")


class LiblinearOfficial(Liblinear):
    """The official edition, under a name of its own."""

    def __init__(self, loaded: Loaded, path: str, threads: int) -> None:
        super().__init__(loaded, path, threads)
        if self._parallel:
            raise ImportError("the liblinear found is the multi-core edition")


class ScikitLearn:
    """scikit-learn: LinearSVC, LogisticRegression with every solver, SGD."""

    def __init__(self, loaded: Loaded, path: str, threads: int) -> None:
        self._models = importlib.import_module("sklearn.linear_model")
        self._svm = importlib.import_module("sklearn.svm")
        self.version = _named(importlib.import_module("sklearn"))
        self._y = loaded.y
        self._n, self._d = loaded.n, loaded.d
        self._forms: dict[str, Any] = {"": loaded.rows.astype(np.float64), " f32": loaded.rows}
        if _dense(loaded):
            self._forms[" dense"] = loaded.rows.astype(np.float64).toarray()
            self._forms[" dense f32"] = loaded.rows.toarray()

    def methods(self, loss: str) -> dict[str, Method]:
        """The estimators."""
        sgd = {"hinge": "hinge", "squared_hinge": "squared_hinge", "logistic": "log_loss"}[loss]
        found = {"SGD": Method(ITERATIONS[:40], self._sgd(sgd, False))}
        found["SGD averaged"] = Method(ITERATIONS[:40], self._sgd(sgd, True))
        if loss != "logistic":
            for dual in (True, False) if loss == "squared_hinge" else (True,):
                name = "LinearSVC" if dual else "LinearSVC primal"
                found[name] = Method(EPSILONS, self._svc(loss, dual))
            return found
        for form in self._forms:
            found["lbfgs" + form] = Method(ITERATIONS, self._logistic("lbfgs", form))
            if self._d <= 3000:
                found["newton-cholesky" + form] = Method(ITERATIONS[:20], self._logistic("newton-cholesky", form))
        for solver in ("newton-cg", "sag", "saga"):
            found[solver] = Method(ITERATIONS, self._logistic(solver, ""))
        return found

    def _run(self, model: Any, form: str) -> Callable[[], Vector]:
        return lambda: np.asarray(model.fit(self._forms[form], self._y).coef_, np.float64).ravel()

    def _sgd(self, loss: str, average: bool) -> Fit:
        return lambda lam, setting: self._run(
            self._models.SGDClassifier(
                loss=loss, alpha=lam, fit_intercept=False, max_iter=int(setting), tol=None, average=average
            ),
            "",
        )

    def _svc(self, loss: str, dual: bool) -> Fit:
        return lambda lam, setting: self._run(
            self._svm.LinearSVC(
                loss=loss, C=1 / (lam * self._n), dual=dual, tol=setting, fit_intercept=False, max_iter=100_000
            ),
            "",
        )

    def _logistic(self, solver: str, form: str) -> Fit:
        return lambda lam, setting: self._run(
            self._models.LogisticRegression(
                C=1 / (lam * self._n), solver=solver, fit_intercept=False, max_iter=int(setting), tol=1e-12
            ),
            form,
        )


class SnapML:
    """Snap ML's dual solvers."""

    def __init__(self, loaded: Loaded, path: str, threads: int) -> None:
        self._api = importlib.import_module("snapml")
        self.version = _named(self._api)
        self._y, self._n, self._d, self._threads = loaded.y, loaded.n, loaded.d, threads
        self._forms: dict[str, Any] = {"": loaded.rows}
        if _dense(loaded):
            self._forms[" dense"] = loaded.rows.toarray()

    def methods(self, loss: str) -> dict[str, Method]:
        """Sparse, and dense where that fits."""
        return {
            f"{'LR' if loss == 'logistic' else 'SVM'}{form}": Method(ITERATIONS, self._fit(loss, form))
            for form in self._forms
        }

    def _fit(self, loss: str, form: str) -> Fit:
        def prepare(lam: float, setting: float) -> Callable[[], Vector]:
            shared = {
                "regularizer": lam * self._n, "max_iter": int(setting), "tol": 1e-12,
                "n_jobs": self._threads, "fit_intercept": False,
            }  # fmt: skip
            if loss == "logistic":
                model = self._api.LogisticRegression(dual=True, **shared)
            else:
                model = self._api.SupportVectorMachine(loss=loss, **shared)
            return lambda: np.asarray(model.fit(self._forms[form], self._y).coef_, np.float64).ravel()

        return prepare


class Skglm:
    """skglm: LinearSVC, and L-BFGS for the logistic loss."""

    def __init__(self, loaded: Loaded, path: str, threads: int) -> None:
        self._api = importlib.import_module("skglm")
        self.version = _named(self._api)
        self._rows, self._y, self._n = loaded.rows.astype(np.float64), loaded.y, loaded.n
        self._columns = self._rows.tocsc()
        few = np.concatenate([np.flatnonzero(self._y > 0)[:50], np.flatnonzero(self._y < 0)[:50]])
        for loss in ("hinge", "logistic"):  # compiles
            for method in self.methods(loss).values():
                whole = self._rows, self._columns, self._y
                self._rows, self._columns, self._y = self._rows[few], self._columns[few], self._y[few]
                method.fit(1e-2, method.settings[2])()
                self._rows, self._columns, self._y = whole

    def methods(self, loss: str) -> dict[str, Method]:
        """One for each loss it has."""
        if loss == "hinge":
            return {"LinearSVC": Method(EPSILONS, self._svc)}
        if loss == "logistic":
            return {"LBFGS": Method(ITERATIONS, self._lbfgs)}
        raise CannotError("has no squared hinge loss")

    def _svc(self, lam: float, setting: float) -> Callable[[], Vector]:
        model = self._api.LinearSVC(C=1 / (lam * self._n), tol=setting, fit_intercept=False, max_iter=1000)
        return lambda: np.asarray(model.fit(self._rows, self._y).coef_, np.float64).ravel()

    def _lbfgs(self, lam: float, setting: float) -> Callable[[], Vector]:
        datafits, penalties, solvers = (
            importlib.import_module(f"skglm.{part}") for part in ("datafits", "penalties", "solvers")
        )
        solver = solvers.LBFGS(max_iter=int(setting), tol=1e-12)
        datafit, penalty = datafits.Logistic(), penalties.L2(lam)
        return lambda: np.asarray(solver.solve(self._columns, self._y, datafit, penalty)[0], np.float64)


class Celer:
    """celer, which has no problem of ours."""

    def __init__(self, loaded: Loaded, path: str, threads: int) -> None:
        self.version = _named(importlib.import_module("celer"))

    def methods(self, loss: str) -> dict[str, Method]:
        """None."""
        raise CannotError("its classifiers have the l1 norm only")


class Spark:
    """Spark in local mode."""

    def __init__(self, loaded: Loaded, path: str, threads: int) -> None:
        sql = importlib.import_module("pyspark.sql")
        self.version = _named(importlib.import_module("pyspark"))
        self._api = importlib.import_module("pyspark.ml.classification")
        builder = sql.SparkSession.builder.master(f"local[{threads}]").config("spark.driver.memory", "6g")
        session = builder.config("spark.ui.enabled", "false").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        rows = session.read.format("libsvm").option("numFeatures", str(loaded.d)).load(path)
        top = rows.agg({"label": "max"}).first()[0]
        label = (rows["label"] == top).cast("double").alias("label")
        self._rows = rows.select(label, "features").repartition(threads).cache()
        self._rows.count()

    def methods(self, loss: str) -> dict[str, Method]:
        """L-BFGS and OWL-QN."""
        if loss == "squared_hinge":
            raise CannotError("has no squared hinge loss")
        return {"LinearSVC" if loss == "hinge" else "LogisticRegression": Method(ITERATIONS, self._fit(loss))}

    def _fit(self, loss: str) -> Fit:
        def prepare(lam: float, setting: float) -> Callable[[], Vector]:
            settings = {
                "regParam": lam, "maxIter": int(setting), "tol": 1e-12, "fitIntercept": False, "standardization": False,
            }  # fmt: skip
            model = (self._api.LinearSVC if loss == "hinge" else self._api.LogisticRegression)(**settings)
            return lambda: np.asarray(model.fit(self._rows).coefficients.toArray(), np.float64)

        return prepare


PEERS: dict[str, Callable[[Loaded, str, int], Peer]] = {
    "snapml": SnapML,
    "liblinear-multicore": LiblinearMulticore,
    "liblinear": LiblinearOfficial,
    "scikit-learn": ScikitLearn,
    "skglm": Skglm,
    "celer": Celer,
    "pyspark": Spark,
}
"""In this order: the sooner a good time is known, the sooner the others' hopeless settings are given up."""


def _serve(connection: Connection, name: str, path: str, threads: int, library: str | None) -> None:
    """Answer requests of the parent: (loss,) for the methods, (loss, method, lam, setting) for a fit."""
    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries write there
    os.dup2(1, 2)
    if library:
        sys.path.insert(0, library)
    try:
        peer = PEERS[name](datasets.load(path), path, threads)
    except Exception as error:  # not installed, or broken here: said in the table
        connection.send(("cannot", f"cannot be used: {error or type(error).__name__}".splitlines()[0]))
        return
    connection.send(("ready", peer.version))
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        try:
            methods = peer.methods(request[0])
            if len(request) == 1:
                connection.send(("methods", {key: method.settings for key, method in methods.items()}))
                continue
            _, method, lam, setting = request
            run = methods[method].fit(lam, setting)
            began = time.perf_counter()
            w = run()
            connection.send(("fit", (time.perf_counter() - began, w)))
        except Exception as error:  # whatever it is, it is the peer's, and said in the table
            connection.send(("cannot", (str(error) or type(error).__name__).splitlines()[0]))


# ------------------------------------------------------------------------------------------------------- in the parent


class Apart:
    """A peer in a process of its own."""

    def __init__(self, name: str, path: Path, threads: int, library: str | None) -> None:
        self.name = name
        self.version = ""
        self._arguments = (name, str(path), threads, library)
        self._process: Any = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Have it ready. Raises CannotError."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, *self._arguments), daemon=True)
            self._process.start()
            theirs.close()
            self.version = self._answer(START_SECONDS)

    def methods(self, loss: str) -> dict[str, tuple[float, ...]]:
        """Settings of its algorithms, by name. Raises CannotError."""
        self.start()
        assert self._connection is not None
        self._connection.send((loss,))
        found: dict[str, tuple[float, ...]] = self._answer(START_SECONDS)
        return found

    def fit(self, loss: str, method: str, lam: float, setting: float, limit: float) -> tuple[float, Vector]:
        """Seconds and w. Raises CannotError, also when it takes longer than limit."""
        self.start()
        assert self._connection is not None
        self._connection.send((loss, method, lam, setting))
        found: tuple[float, Vector] = self._answer(limit)
        return found

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._connection is not None
            self._connection.close()
            self._process.kill()
            self._process.join()
            self._process = None

    def _answer(self, limit: float) -> Any:
        assert self._connection is not None
        try:
            if not self._connection.poll(limit):
                self.close()
                raise CannotError(f"over {limit:.0f} s")
            kind, content = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self.close()
            raise CannotError("its process died") from None
        if kind == "cannot":
            raise CannotError(content)
        return content


@dataclass(frozen=True)
class Cell:
    """A problem on a data set."""

    name: str
    path: Path
    loaded: Loaded
    loss: str
    lam: float

    def primal(self, w: Vector) -> float:
        """P(w)."""
        problem = Problem(self.loss, self.lam, self.loaded.n)
        predictions = self.loaded.rows @ w
        return problem.objective_b(w, float(losses.value(problem.loss, self.loaded.y, predictions).sum()))


def ours(cell: Cell, arguments: str, tolerance: float, limit: float, trace: Path | None = None) -> dict[str, Any]:
    """Train in real processes, all of them from this repository; the JSON object. Raises CannotError without one."""
    command = [
        str(cell.path),
        *("--loss", cell.loss, "--lam", repr(cell.lam), "--tol", repr(tolerance), "--max-seconds", repr(limit)),
        *shlex.split(arguments),
        *(("--trace", str(trace)) if trace else ()),
    ]
    try:
        return train(command)
    except RunFailed as failed:
        raise CannotError(failed.message) from None


@dataclass
class Optimum:
    """The best value known of a cell, and what it cannot be below; kept in a file."""

    file: Path
    primal: float = float("inf")
    dual: float = 0.0

    @classmethod
    def of(cls, cell: Cell, directory: Path, arguments: str, limit: float) -> "Optimum":
        """From the file, or from a long run of ours."""
        found = cls(directory / f"optimum-{cell.name}-{cell.loss}-{cell.lam:g}.json")
        if found.file.exists():
            kept = json.loads(found.file.read_text())
            found.primal, found.dual = kept["primal"], kept["dual"]
        else:
            run = ours(cell, arguments, REFERENCE_TOLERANCE, limit)
            found.primal, found.dual = run["primal"], run["dual"]
            found.offer(found.primal)
        return found

    def offer(self, primal: float) -> None:
        """Somebody reached that value."""
        self.primal = min(self.primal, primal)
        self.file.write_text(json.dumps({"primal": self.primal, "dual": self.dual}))

    def suboptimality(self, primal: float) -> float:
        """Relative."""
        return (primal - self.primal) / self.primal


@dataclass
class Tried:
    """What a setting gave."""

    setting: float
    seconds: float
    primal: float


@dataclass
class Line:
    """One line of a cell's table: its times by level, or why there is none."""

    label: str
    times: dict[float, list[float]] = field(default_factory=dict)
    settings: dict[float, str] = field(default_factory=dict)
    why: str = ""

    def median(self, level: float) -> float | None:
        """None without a time."""
        return statistics.median(self.times[level]) if self.times.get(level) else None


def walk(
    settings: Sequence[float], run: Callable[[float], Tried], reached: Callable[[Tried, float], bool], budget: float
) -> tuple[list[Tried], str]:
    """Try settings, ever larger steps up the ladder, then back and forth to the coarsest that reaches each level.

    Returns
    -------
    all that was tried, and why the finest level was not reached
    """
    tried: dict[int, Tried] = {}
    end, why = len(settings), ""
    began = time.perf_counter()

    def attempt(place: int) -> bool:
        nonlocal end, why
        if place not in tried:
            if time.perf_counter() - began > budget:
                end, why = min(end, place), f"over {budget:.0f} s of tries"
                return False
            try:
                tried[place] = run(settings[place])
            except CannotError as error:
                end, why = min(end, place), str(error)
                return False
        return True

    place, step = 0, 1
    while attempt(place) and not reached(tried[place], min(LEVELS)) and place < end - 1:
        place, step = min(place + step, end - 1), 2 * step
    for level in LEVELS:
        low, high = -1, end
        for place in sorted(tried):
            if reached(tried[place], level):
                high = place
                break
            low = place
        while high - low > 1:
            middle = (low + high) // 2
            if attempt(middle) and not reached(tried[middle], level):
                low = middle
            else:
                high = middle
    return list(tried.values()), why


@dataclass
class Patience:
    """How long a fit may take: an absolute limit, and a multiple of the best time to the finest level so far."""

    limit: float
    factor: float
    best: float = float("inf")

    @property
    def seconds(self) -> float:
        """The lesser of the two, but a second at least."""
        return min(self.limit, max(1.0, self.factor * self.best))


def explore(
    peer: Apart, cell: Cell, optimum: Optimum, patience: Patience
) -> tuple[dict[float, tuple[str, Tried]], str, float]:
    """The peer's cheapest method and setting for each level, why the others are out of reach, the best it reached."""
    found: dict[float, tuple[str, Tried]] = {}
    reasons: list[str] = []
    best = float("inf")
    for method, settings in peer.methods(cell.loss).items():
        limit = patience.seconds

        def run(setting: float, method: str = method, limit: float = limit) -> Tried:
            seconds, w = peer.fit(cell.loss, method, cell.lam, setting, limit)
            primal = cell.primal(w)
            optimum.offer(primal)
            return Tried(setting, seconds, primal)

        tried, why = walk(
            settings, run, lambda seen, level: optimum.suboptimality(seen.primal) <= level, budget=3 * limit
        )
        if why:
            reasons.append(f"{method} {why}")
        for seen in tried:
            best = min(best, optimum.suboptimality(seen.primal))
            for level in LEVELS:
                if optimum.suboptimality(seen.primal) <= level and (
                    level not in found or seen.seconds < found[level][1].seconds
                ):
                    found[level] = method, seen
        if min(LEVELS) in found:
            patience.best = min(patience.best, found[min(LEVELS)][1].seconds)
    return found, "; ".join(dict.fromkeys(reasons)), best


Chosen = dict[float, tuple[str, float]]
"""By level: the method and the setting that a peer is timed with."""


def chosen_before(files: Sequence[Path]) -> dict[tuple[str, str, float, str], tuple[Chosen, str]]:
    """From what --output wrote, by data, loss, lam and peer: what was chosen, and why there is no more."""
    found = {}
    for file in files:
        for line in json.loads(file.read_text()):
            if line["who"] in PEERS:
                pairs = {float(level): text.rsplit(" ", 1) for level, text in line["settings"].items()}
                chosen = {level: (method, float(setting)) for level, (method, setting) in pairs.items()}
                found[line["data"], line["loss"], line["lam"], line["who"]] = chosen, line["why"]
    return found


@dataclass(frozen=True)
class Rivals:
    """Who takes part, and how. before : what peers are timed with, where that is known; see chosen_before"""

    ours: tuple[str, ...]
    peers: Mapping[str, Apart]
    repeat: int
    limit: float
    patience: float
    before: Mapping[tuple[str, str, float, str], tuple[Chosen, str]] = field(default_factory=dict)


def choose(peer: Apart, cell: Cell, optimum: Optimum, patience: Patience) -> tuple[Chosen, str]:
    """The peer's cheapest method and setting for each level, and why there are none for the others."""
    found, why, best = explore(peer, cell, optimum, patience)
    chosen = {level: (method, tried.setting) for level, (method, tried) in found.items()}
    if len(found) == len(LEVELS):
        return chosen, ""
    reached = f"reached {best:.0e}" if best < float("inf") else "nothing reached"
    return chosen, f"{reached}; {why}" if why else reached


def compare(cell: Cell, rivals: Rivals, optimum: Optimum) -> list[Line]:
    """All lines of a cell; ours come first."""
    lines: list[Line] = []
    runs: list[tuple[Line, tuple[float, ...], Callable[[], float]]] = []
    for arguments in rivals.ours:
        line = Line(f"acccocoa {arguments}".rstrip())
        lines.append(line)
        for level in LEVELS:

            def train(arguments: str = arguments, level: float = level, line: Line = line) -> float:
                run = ours(cell, arguments, level, rivals.limit)
                optimum.offer(run["primal"])
                seconds = run["seconds"]
                line.settings[level] = (
                    f"{run['data_passes']:.1f} passes, {run['rounds']} rounds, "
                    f"load {seconds['load']:.1f} s, total {seconds['total']:.1f} s"
                )
                if run["status"] != "converged":
                    raise CannotError(f"{run['relative_gap']:.1e} after {seconds['solve']:.0f} s")
                return float(seconds["solve"])

            runs.append((line, (level,), train))
    patience = Patience(rivals.limit, rivals.patience)
    for name, peer in rivals.peers.items():
        line = Line(name)
        lines.append(line)
        try:
            known = rivals.before.get((cell.name, cell.loss, cell.lam, name))
            chosen, line.why = choose(peer, cell, optimum, patience) if known is None else known
        except CannotError as error:
            line.why = str(error)
            continue
        served: dict[tuple[str, float], list[float]] = {}
        for level, (method, setting) in chosen.items():
            line.settings[level] = f"{method} {setting:g}"
            served.setdefault((method, setting), []).append(level)
        for (method, setting), levels in served.items():

            def fit(peer: Apart = peer, method: str = method, setting: float = setting) -> float:
                return peer.fit(cell.loss, method, cell.lam, setting, rivals.limit)[0]

            runs.append((line, tuple(levels), fit))
    for _ in range(rivals.repeat):
        for line, levels_served, run in runs:
            try:
                seconds = run()
            except CannotError as error:
                line.why = line.why or str(error)
                continue
            for level in levels_served:
                line.times.setdefault(level, []).append(seconds)
    return lines


def ratios(lines: Sequence[Line], mine: int) -> dict[float, tuple[float | None, str]]:
    """By level: the best peer's median over ours (None when we have none, inf when only we have one), and its name."""
    found: dict[float, tuple[float | None, str]] = {}
    for level in LEVELS:
        our = lines[0].median(level)
        theirs = [(median, line.label) for line in lines[mine:] if (median := line.median(level)) is not None]
        best, name = min(theirs, default=(float("inf"), "nobody"))
        found[level] = (None if our is None else best / our, name)
    return found


def show(cell: Cell, lines: Sequence[Line], optimum: Optimum, mine: int) -> None:
    """Print a cell's table."""
    width = 1 - optimum.dual / optimum.primal
    click.echo(
        f"\n{cell.name} ({cell.loaded.n:,} x {cell.loaded.d:,}, {cell.loaded.nnz:,} entries), {cell.loss}, "
        f"lam {cell.lam:g}: optimum {optimum.primal:.9g}, certified to {width:.0e}"
    )
    click.echo(f"{'seconds, median (spread)':<30}" + "".join(f"{level:>25.0e}" for level in LEVELS))
    for line in lines:
        texts = [
            f"{median:.3f} ({min(line.times[level]):.3f}-{max(line.times[level]):.3f})"
            if (median := line.median(level)) is not None
            else "-"
            for level in LEVELS
        ]
        click.echo(f"{line.label:<30}" + "".join(f"{text:>25}" for text in texts) + (f"   {line.why}" * bool(line.why)))
        for level in LEVELS if line.settings else ():
            if level in line.settings:
                click.echo(f"    {level:.0e}: {line.settings[level]}")
    texts = [_ratio(*found) for found in ratios(lines, mine).values()]
    click.echo(f"{'best peer / acccocoa':<30}" + "".join(f"{text:>25}" for text in texts))


def _ratio(ratio: float | None, name: str) -> str:
    return "-" if ratio is None else f"{ratio:.2f} {name[:16]}"


def summary(found: Mapping[tuple[str, str, float], Mapping[float, tuple[float | None, str]]]) -> None:
    """Print the ratios of all cells."""
    click.echo(f"\n{'best peer / acccocoa':<38}" + "".join(f"{level:>25.0e}" for level in LEVELS))
    for (name, loss, lam), cell in found.items():
        click.echo(f"{name:<15} {loss:<14} {lam:<7g}" + "".join(f"{_ratio(*pair):>25}" for pair in cell.values()))
    medians = []
    for level in LEVELS:
        # a level we did not reach counts as 0, so that it cannot flatter the median
        every = [cell[level][0] or 0.0 for cell in found.values()]
        medians.append(f"{statistics.median(every):.2f}, worst {min(every):.2f}" if every else "-")
    click.echo(f"{'median cell':<38}" + "".join(f"{median:>25}" for median in medians))


def _libraries(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    if place := os.environ.get("ACCCOCOA_BENCH_LIBLINEAR_MULTICORE"):
        found["liblinear-multicore"] = place
    for pair in pairs:
        name, _, place = pair.partition("=")
        if name not in PEERS or not place:
            raise click.BadParameter(f"{pair!r} must be PEER=DIR, PEER one of {', '.join(PEERS)}")
        found[name] = place
    return found


@click.command(help=__doc__)
@click.option(
    "--data",
    "names",
    multiple=True,
    type=click.Choice(datasets.NAMES),
    default=datasets.NAMES,
    help="data set, may be repeated [all]",
)
@click.option(
    "--loss", "losses_", multiple=True, type=click.Choice(LOSSES), default=LOSSES, help="may be repeated [all]"
)
@click.option("--lam", "lams", multiple=True, type=float, default=LAMS, help="may be repeated [1e-4, 1e-5, 1e-6]")
@click.option(
    "--peer", "peers", multiple=True, type=click.Choice(list(PEERS)), default=tuple(PEERS), help="may be repeated [all]"
)
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1), help="repetitions, taking turns")
@click.option("--limit", default=60.0, show_default=True, help="seconds a fit may take")
@click.option(
    "--patience",
    default=4.0,
    show_default=True,
    help="a peer's fit may take so many times what another peer needs to the finest level",
)
@click.option("--threads", type=click.IntRange(1), help="threads of every peer [all cores]")
@click.option(
    "--ours",
    "ours_",
    multiple=True,
    help="arguments of train, may be repeated to compare; the first counts [none]",
)
@click.option(
    "--library",
    "libraries",
    multiple=True,
    metavar="PEER=DIR",
    help="take a peer from this directory (pip install --target DIR); also ACCCOCOA_BENCH_LIBLINEAR_MULTICORE=DIR",
)
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="keeps the data [a temporary one]")
@click.option(
    "--shared",
    type=click.Path(path_type=Path, file_okay=False),
    default=datasets.SHARED,
    help="the real sets and their prepare.py [../shared/data beside the repository]",
)
@click.option("--reference-seconds", default=120.0, show_default=True, help="time for the run that bounds the optimum")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="all times, as JSON")
@click.option(
    "--again",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="an --output whose settings of the peers are timed again instead of looked for; may be repeated",
)
def main(
    names: tuple[str, ...],
    losses_: tuple[str, ...],
    lams: tuple[float, ...],
    peers: tuple[str, ...],
    repeat: int,
    limit: float,
    patience: float,
    threads: int | None,
    ours_: tuple[str, ...],
    libraries: tuple[str, ...],
    data_dir: Path | None,
    shared: Path,
    reference_seconds: float,
    output: Path | None,
    again: tuple[Path, ...],
) -> None:
    cores = len(os.sched_getaffinity(0))
    threads = threads or cores
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    found: dict[tuple[str, str, float], Mapping[float, tuple[float | None, str]]] = {}
    kept: list[dict[str, Any]] = []
    # left alone, train takes no more workers than there are cores
    ours_ = ours_ or ("" if threads >= cores else f"--local {threads} --threads 1",)
    places = _libraries(libraries)
    before = chosen_before(again)
    directory = data_dir or Path(tempfile.gettempdir()) / "acccocoa-benchmarks"
    files, missing = datasets.files(names, directory, shared)
    click.echo(f"{cores} cores, {threads} threads for everybody; medians of {repeat} interleaved repetitions")
    for name, reason in missing.items():
        click.echo(f"{name}: - {reason}")
    for name, path in files.items():
        loaded = datasets.load(path)
        loaded = Loaded(loaded.rows.astype(np.float64), loaded.y)
        apart = {peer: Apart(peer, path, threads, places.get(peer)) for peer in peers}
        try:
            for loss in losses_:
                for lam in lams:
                    cell = Cell(name, path, loaded, loss, lam)
                    optimum = Optimum.of(cell, directory, ours_[0], reference_seconds)
                    lines = compare(cell, Rivals(ours_, apart, repeat, limit, patience, before), optimum)
                    show(cell, lines, optimum, len(ours_))
                    found[name, loss, lam] = ratios(lines, len(ours_))
                    kept += [
                        {
                            "data": name, "loss": loss, "lam": lam, "who": line.label, "why": line.why,
                            "seconds": {f"{level:g}": line.times.get(level, []) for level in LEVELS},
                            "settings": {f"{level:g}": text for level, text in line.settings.items()},
                        }
                        for line in lines
                    ]  # fmt: skip
                    if output:
                        output.write_text(json.dumps(kept, indent=1))
        finally:
            for peer in apart.values():
                peer.close()
    summary(found)


if __name__ == "__main__":
    main()
