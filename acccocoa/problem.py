"""The objective (algorithm section 1) in plain numpy: what is minimised, certified and stored.

    P(w) = (1/n) sum_i s_i loss(y_i, x_i'w) + lam ( l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2 )

and its partition by examples (section 1a): the coordinates of problem (A) are dual variables, one per example, column
A_i = x_i / n, v = A alpha, f = r*, w = grad f(v), O_B = P. The certificate of a pair is gap = O_A(alpha) + O_B(w).

Everything here is float64. The kernels of the workers are tested against it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from acccocoa import losses
from acccocoa.errors import UsageError
from acccocoa.losses import Loss, Vector


def soft(v: Vector, threshold: float) -> Vector:
    """Soft-thresholding: sign(v) * max(|v| - threshold, 0); shape of v."""
    if threshold == 0.0:
        return v
    return np.sign(v) * np.maximum(np.abs(v) - threshold, 0.0)


@dataclass(frozen=True)
class Problem:
    """The objective over n examples, partitioned by examples.

    Attributes
    ----------
    loss_name, loss_parameter : the loss as the user and the wire name it (parameter None: the loss's default)
    lam : strength of the regulariser, > 0
    l1_ratio : eta, share of the l1 norm in the regulariser, 0 <= eta < 1
    n : number of examples in all shards
    """

    loss_name: str
    lam: float
    n: int
    l1_ratio: float = 0.0
    loss_parameter: float | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam > 0):
            raise UsageError(f"--lam {self.lam:g}", "must be a finite number > 0")
        if not 0.0 <= self.l1_ratio < 1.0:
            raise UsageError(
                f"--l1-ratio {self.l1_ratio:g}", "must be at least 0 and below 1 when examples are partitioned"
            )
        if self.n < 1:
            raise UsageError(f"n = {self.n}", "there must be at least one example")
        losses.loss(self.loss_name, self.loss_parameter)

    @property
    def loss(self) -> Loss:
        """The loss in the kernels' form."""
        return losses.loss(self.loss_name, self.loss_parameter)

    @property
    def resolved_parameter(self) -> float | None:
        """The loss's own parameter, the default where none was given; None when the loss has none."""
        return losses.default_parameter(self.loss_name) if self.loss_parameter is None else self.loss_parameter

    @property
    def lipschitz(self) -> float:
        """L, the Lipschitz constant of grad f (the paper's lambda of section 2)."""
        return 1.0 / (self.lam * (1.0 - self.l1_ratio))

    def f(self, v: Vector) -> float:
        """f(v) = r*(v); v has shape (d,)."""
        shrunk = soft(v, self.lam * self.l1_ratio)
        return 0.5 * self.lipschitz * float(shrunk @ shrunk)

    def grad_f(self, v: Vector) -> Vector:
        """w = grad f(v), shape (d,): the primal point that belongs to v (paper, w(alpha))."""
        return soft(v, self.lam * self.l1_ratio) * self.lipschitz

    def f_conjugate(self, w: Vector) -> float:
        """f*(w) = r(w), the regulariser; w has shape (d,)."""
        return self.lam * (self.l1_ratio * float(np.abs(w).sum()) + 0.5 * (1.0 - self.l1_ratio) * float(w @ w))

    def objective_a(self, v: Vector, conjugate_sum: float) -> float:
        """O_A at alpha, from v = A alpha and sum_i s_i loss_i*(-alpha_i / s_i) (without the factor 1/n)."""
        return self.f(v) + conjugate_sum / self.n

    def objective_b(self, w: Vector, loss_sum: float) -> float:
        """O_B(w) = P(w), from w and sum_i s_i loss(y_i, x_i'w) (without the factor 1/n)."""
        return self.f_conjugate(w) + loss_sum / self.n


@dataclass(frozen=True)
class Certified:
    """A primal and a dual value of one problem and the gap between them, all in the user's units.

    gap = primal - dual >= primal - optimum. primal is O_B, dual is -O_A.
    """

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """primal - dual."""
        return self.primal - self.dual

    @property
    def relative_gap(self) -> float:
        """gap / max(|primal|, tiny): how far the primal value can be above the optimum, as a share of itself."""
        return self.gap / max(abs(self.primal), float(np.finfo(np.float64).tiny))


def certify(
    problem: Problem,
    rows: Any,
    y: Vector,
    w: Vector,
    alpha: Vector,
    s: Vector | None = None,
) -> Certified:
    """Primal and dual values of any pair (w, alpha), computed from the data alone: the oracle for everything else.

    Parameters
    ----------
    rows : the examples, shape (n, d), dense or scipy.sparse; y : shape (n,), +1 / -1 for classifiers
    w : shape (d,);  alpha : shape (n,);  s : weights, shape (n,), 1 when None
    """
    s = np.ones(problem.n) if s is None else s
    v = (rows.T @ alpha) / problem.n
    return Certified(
        primal=problem.objective_b(w, float((s * losses.value(problem.loss, y, rows @ w)).sum())),
        dual=-problem.objective_a(v, float(losses.conjugate(problem.loss, y, alpha, s).sum())),
    )
