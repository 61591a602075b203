"""Small data, and runs of the whole algorithm on it without processes, for comparing optima."""

import functools
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from acccocoa import losses, synthetic
from acccocoa.config import StopConfig
from acccocoa.examples import Examples
from acccocoa.losses import Vector
from acccocoa.problem import Constant, FeatureProblem, Problem
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import CertificateSchedule
from coordinator.training import Outcome, Training
from tests.support.inprocess import InProcessWorkers
from tests.support.optima import KINKED, Matrix, Objective

SMOOTH = [name for name in losses.NAMES if name not in KINKED]
CLASSIFIERS = [name for name in losses.NAMES if losses.loss(name).classifier]

TOL = 1e-8
"""Relative gap of our runs: well below what is compared."""

LAM = 0.05


@dataclass(frozen=True, eq=False)
class Data:
    """Examples, and the same densely; of the zeros in them, that share is stored, in rows and columns of zeros too."""

    x: Matrix
    y: Vector
    zeros: float = 0.0

    @property
    def examples(self) -> Examples:
        """As the reader would have them."""
        stored = (self.x != 0) | (np.random.default_rng(5).random(self.x.shape) < self.zeros)
        rows, columns = np.nonzero(stored)
        return Examples(
            indptr=np.searchsorted(rows, np.arange(len(self.y) + 1)).astype(np.int64),
            indices=columns.astype(np.int32),
            values=self.x[rows, columns],
            labels=self.y,
        )

    def objective(
        self,
        loss: str,
        lam: float = LAM,
        l1_ratio: float = 0.0,
        s: Vector | None = None,
        constant: Constant | None = None,
    ) -> Objective:
        n = len(self.y)
        x = self.x if constant is None else np.hstack((self.x, np.full((n, 1), constant.value)))
        free = constant is not None and not constant.regularised
        return Objective(loss, lam, l1_ratio, x, self.y, np.ones(n) if s is None else s, free)


@functools.cache
def data(sparse: bool, classifier: bool) -> Data:
    """Noisy, correlated, and with popular and rare features where sparse."""
    rng = np.random.default_rng(7)
    n, d = (90, 45) if sparse else (60, 20)
    x = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1))
    if sparse:
        x *= rng.random((n, d)) < 0.5 / (1.0 + 0.2 * np.arange(d))
    target = x @ (rng.standard_normal(d) * (rng.random(d) < 0.5)) + 0.5 * rng.standard_normal(n)
    return Data(x, np.where(target > 0.3, 1.0, -1.0) if classifier else target)


@functools.cache
def likeness(like: str, n: int, d: int) -> Data:
    """Two classes in the likeness of a real set."""
    examples = synthetic.examples(like, n, d, 1)
    rows = csr_array((examples.values, examples.indices, examples.indptr), shape=(examples.n, examples.d))
    return Data(rows.toarray().astype(np.float64), np.where(examples.labels > 0, 1.0, -1.0))


def data_for(loss: str, sparse: bool = False) -> Data:
    return data(sparse, losses.loss(loss).classifier)


@functools.cache
def least(loss: str, l1_ratio: float, sparse: bool) -> float:
    return data_for(loss, sparse).objective(loss, l1_ratio=l1_ratio).least()


def problem_for(
    data: Data,
    loss: str,
    lam: float = LAM,
    l1_ratio: float = 0.0,
    *,
    by_features: bool = False,
    s: Vector | None = None,
    constant: Constant | None = None,
) -> Problem | FeatureProblem:
    n = len(data.y)
    if by_features:
        return FeatureProblem(loss, lam, data.y, np.ones(n) if s is None else s, l1_ratio, constant=constant)
    return Problem(loss, lam, n, l1_ratio)


def solve(
    data: Data,
    problem: Problem | FeatureProblem,
    k: int,
    tol: float = TOL,
    max_rounds: int = 20_000,
    screening: float | None = None,
    **of_workers: Any,
) -> Outcome:
    """A run to its end; epochs are as good as any."""
    examples = data.examples
    workers = InProcessWorkers(examples, problem, k, **of_workers)
    shared = len(data.y) if problem.alpha_is_model else workers.features
    stop = StopConfig(tol=tol, max_rounds=max_rounds)
    training = Training(
        OuterLoop(problem, shared, workers.blocks),
        workers,
        workers.plan(1.0),
        CertificateSchedule(tol),
        stop,
        interrupted=threading.Event(),
        coordinates=workers.count,
        screening=screening,
    )
    return training.run()


def check(outcome: Outcome, objective: Objective, expected: float) -> None:
    """Certified, at the least value, and the certificate is true of the model."""
    certified = outcome.certified
    assert outcome.status == "converged"
    w = outcome.w
    if len(w) < objective.x.shape[1]:  # by features, nothing is known of trailing ones that never occur
        w = np.append(w, np.zeros(objective.x.shape[1] - len(w)))
    assert objective(w) == pytest.approx(certified.primal, rel=1e-10, abs=1e-300)
    assert certified.primal == pytest.approx(expected, rel=1e-6)
    assert certified.dual <= expected * (1 + 1e-7)


def some_weights(n: int) -> Vector:
    """Between 0 and 3, and some exactly 0."""
    rng = np.random.default_rng(3)
    return rng.uniform(0.0, 3.0, n) * (rng.random(n) < 0.8)
