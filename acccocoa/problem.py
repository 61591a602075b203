"""The objective (algorithm section 1) in plain numpy: what is minimised, certified and stored.

    P(w) = (1/n) sum_i s_i loss(y_i, x_i'w) + lam ( l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2 )

as the pair of problems (A) and (B), in either partition. The certificate of a pair is gap = O_A(alpha) + O_B(w).

Problem        by examples (section 1a): the coordinates of (A) are dual variables, one per example, column
               A_i = x_i / n, f = r*, w = grad f(v), O_B = P
FeatureProblem by features (section 1b): the coordinates of (A) are the model's weights, column A_j that of the data,
               v = X alpha are the predictions, f the losses' mean, O_A = P

Everything here is float64. The kernels of the workers are tested against it.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from acccocoa import losses
from acccocoa.errors import UsageError
from acccocoa.losses import Loss, Vector


def soft(v: Vector, threshold: float) -> Vector:
    """Soft-thresholding: sign(v) * max(|v| - threshold, 0); shape of v."""
    if threshold == 0.0:
        return v
    return np.sign(v) * np.maximum(np.abs(v) - threshold, 0.0)


@dataclass(frozen=True, slots=True)
class Subproblem:
    """What a worker needs to know of the problem to minimise its G_k (paper, eq. subpdef4).

    The g of a coordinate is, up to `scale`, a conjugate as acccocoa.losses describes them. By features that is so, too:
    lam (l1_ratio |a| + (1 - l1_ratio)/2 a^2) is the conjugate of a loss with epsilon = lam l1_ratio, curvature
    = lam (1 - l1_ratio) and labels 0.

    Attributes
    ----------
    loss : g as a conjugate
    lipschitz : L, the Lipschitz constant of grad f
    scale : factor of the stored rows and of g: column A_i = scale x_i, g_i = scale (s loss*)_i
    labelled : the labels of the shard's rows are the y of the loss; otherwise y = 0
    """

    loss: Loss
    lipschitz: float
    scale: float
    labelled: bool


class PrimalDual(Protocol):
    """A pair of problems (A), (B); Problem and FeatureProblem are one each. v and w have the shared vector's shape."""

    @property
    def n(self) -> int:
        """Number of examples."""

    @property
    def subproblem(self) -> Subproblem:
        """The workers' part."""

    @property
    def alpha_is_model(self) -> bool:
        """alpha, not w, is what the user asked for."""

    @property
    def lam(self) -> float:
        """Strength of the regulariser."""

    @property
    def l1_ratio(self) -> float:
        """Share of the l1 norm in it."""

    @property
    def loss_name(self) -> str:
        """The loss's name."""

    @property
    def resolved_parameter(self) -> float | None:
        """The loss's own parameter, if it has one."""

    def grad_f(self, v: Vector) -> Vector:
        """w = grad f(v)."""

    def objective_a(self, v: Vector, conjugate_sum: float) -> float:
        """O_A at alpha, from v = A alpha and the sum of the workers' conjugates there (without `scale`)."""

    def objective_b(self, w: Vector, loss_sum: float, largest: float) -> float:
        """O_B at w, or at the point that belongs to it, from the workers' sums over A_i'w; see CertificateTerms."""

    def certified(self, objective_a: float, objective_b: float) -> "Certified":
        """The user's primal and dual value."""

    def at_hand(self, best: "Certified", now: "Certified") -> "Certified":
        """The best pair whose two points still exist: w of any round is kept, alpha is where the workers stand now."""


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

    def objective_b(self, w: Vector, loss_sum: float, largest: float = 0.0) -> float:
        """O_B(w) = P(w), from w and sum_i s_i loss(y_i, x_i'w) (without the factor 1/n)."""
        return self.f_conjugate(w) + loss_sum / self.n

    @property
    def subproblem(self) -> Subproblem:
        """See PrimalDual."""
        return Subproblem(self.loss, self.lipschitz, 1.0 / self.n, labelled=True)

    @property
    def alpha_is_model(self) -> bool:
        """See PrimalDual."""
        return False

    def certified(self, objective_a: float, objective_b: float) -> "Certified":
        """See PrimalDual: O_B = P, O_A = -D."""
        return Certified(objective_b, -objective_a)

    def at_hand(self, best: "Certified", now: "Certified") -> "Certified":
        """See PrimalDual: w is the model."""
        return Certified(best.primal, now.dual)


@dataclass(frozen=True, eq=False)
class FeatureProblem:
    """The objective over n examples, partitioned by features.

    Attributes
    ----------
    loss_name, loss_parameter, lam : as for Problem; the loss must be smooth
    y : labels, float64, shape (n,), +1 / -1 for classifiers
    s : weights of the examples, float64, shape (n,)
    l1_ratio : eta, 0 < eta <= 1
    """

    loss_name: str
    lam: float
    y: Vector
    s: Vector
    l1_ratio: float = 1.0
    loss_parameter: float | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam > 0):
            raise UsageError(f"--lam {self.lam:g}", "must be a finite number > 0")
        if not 0.0 < self.l1_ratio <= 1.0:
            raise UsageError(
                f"--l1-ratio {self.l1_ratio:g}", "must be above 0 and at most 1 when features are partitioned"
            )
        if not np.isfinite(self.loss.smoothness):
            raise UsageError(
                f"--loss {self.loss_name}",
                "has a kink, and features can be partitioned for smooth losses only",
                "choose another loss, or --partition examples with --l1-ratio below 1",
            )

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.y)

    @property
    def loss(self) -> Loss:
        """The loss of the predictions."""
        return losses.loss(self.loss_name, self.loss_parameter)

    @property
    def resolved_parameter(self) -> float | None:
        """The loss's own parameter, the default where none was given; None when the loss has none."""
        return losses.default_parameter(self.loss_name) if self.loss_parameter is None else self.loss_parameter

    @property
    def lipschitz(self) -> float:
        """L = max_i s_i L_loss / n."""
        return float(self.s.max()) * self.loss.smoothness / self.n

    @property
    def subproblem(self) -> Subproblem:
        """See PrimalDual."""
        g = Loss(
            logistic=False,
            classifier=False,
            epsilon=self.lam * self.l1_ratio,
            curvature=self.lam * (1.0 - self.l1_ratio),
            bound=np.inf,
        )
        return Subproblem(g, self.lipschitz, 1.0, labelled=False)

    def f(self, v: Vector) -> float:
        """f(v) = (1/n) sum_i s_i loss(y_i, v_i); v has shape (n,)."""
        return float((self.s * losses.value(self.loss, self.y, v)).sum()) / self.n

    def grad_f(self, v: Vector) -> Vector:
        """grad f(v), shape (n,)."""
        return self.s * losses.derivative(self.loss, self.y, v) / self.n

    def f_conjugate(self, w: Vector) -> float:
        """f*(w) = (1/n) sum_i s_i loss*(n w_i / s_i); inf outside its domain; w has shape (n,)."""
        return float(losses.conjugate(self.loss, self.y, -self.n * w, self.s).sum()) / self.n

    def objective_a(self, v: Vector, conjugate_sum: float) -> float:
        """O_A(alpha) = P(alpha), from the predictions v and sum_j g(alpha_j)."""
        return self.f(v) + conjugate_sum

    def objective_b(self, w: Vector, loss_sum: float, largest: float) -> float:
        """O_B at w (l1_ratio < 1), or at the best multiple of w that is feasible (l1_ratio = 1).

        loss_sum : sum_j g*(-A_j'w);  largest : max_j |A_j'w|, which bounds the multiple by lam / largest
        """
        if self.l1_ratio < 1.0:
            return self.f_conjugate(w) + loss_sum
        limit = self.lam / largest if largest > 0 else np.inf
        multiple = min(1.0, limit)
        if self.loss_name == "squared":
            # f*(c w) = c^2 a / 2 + c b: its minimum is at -b / a
            a = self.n * float((w * w / np.where(self.s > 0, self.s, 1.0)).sum())
            b = float(w @ self.y)
            if a > 0:
                multiple = float(np.clip(-b / a, -limit, limit))
        return self.f_conjugate(multiple * w)

    @property
    def alpha_is_model(self) -> bool:
        """See PrimalDual."""
        return True

    def certified(self, objective_a: float, objective_b: float) -> "Certified":
        """See PrimalDual: O_A = P, O_B = -D."""
        return Certified(objective_a, -objective_b)

    def at_hand(self, best: "Certified", now: "Certified") -> "Certified":
        """See PrimalDual: alpha is the model."""
        return Certified(now.primal, best.dual)


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
