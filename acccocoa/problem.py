"""The objective (algorithm section 1) in plain numpy: what is minimised, certified and stored.

    P(w) = (1/n) sum_i s_i loss(y_i, x_i'w) + lam ( l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2 )

as the pair of problems (A) and (B), in either partition. The certificate of a pair is gap = O_A(alpha) + O_B(w).

Problem        by examples (section 1a): the coordinates of (A) are dual variables, one per example, column
               A_i = x_i / n, f = r*, w = grad f(v), O_B = P
FeatureProblem by features (section 1b, and l1_ratio = 0): the coordinates of (A) are the model's weights, column A_j
               that of the data, v = X alpha are the predictions, f the losses' mean, O_A = P

Everything here is float64. The kernels of the workers are tested against it.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from acccocoa import losses
from acccocoa.errors import UsageError
from acccocoa.losses import Loss, Vector
from acccocoa.vectors import inner, parts, total


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
    centred : f does not change when a number is added to all entries of v, so that f(v + D) <= f(v) + grad f(v)'D
        + L/2 |P D|^2, P taking the mean off: G_k has P A_j in place of A_j. By features only
    """

    loss: Loss
    lipschitz: float
    scale: float
    labelled: bool
    centred: bool = False


@dataclass(frozen=True, slots=True)
class Ball:
    """Where the w of the optimum is: at most `radius` from `multiple` times w_t (euclidean)."""

    multiple: float
    radius: float


def _check_strength(lam: float) -> None:
    """Refuse what cannot be divided by.

    Raises
    ------
    UsageError : lam is not a finite number above 0, or too small
    """
    if not (np.isfinite(lam) and lam > 0):
        raise UsageError(f"--lam {lam:g}", "must be a finite number > 0")
    if lam < LEAST_STRENGTH:
        raise UsageError(f"--lam {lam:g}", f"must be at least {LEAST_STRENGTH:g}")


LEAST_STRENGTH = 1e-300
"""Of the regulariser: 1 / lam is well within float64."""


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

    def grad_f(self, v: Vector, out: Vector | None = None) -> Vector:
        """w = grad f(v); out : where it is put, if given."""

    def objective_a(self, v: Vector, conjugate_sum: float) -> float:
        """O_A at alpha, from v = A alpha and the sum of the workers' conjugates there (without `scale`)."""

    def objective_b(self, w: Vector, loss_sum: float, largest: float) -> float:
        """O_B at w, or at the point that belongs to it, from the workers' sums over A_i'w; see CertificateTerms."""

    def certified(self, objective_a: float, objective_b: float) -> "Certified":
        """The user's primal and dual value."""

    def at_hand(self, best: "Certified", now: "Certified") -> "Certified":
        """The best pair whose two points still exist: w of any round is kept, alpha is where the workers stand now."""

    def model_of(self, alpha: Vector, v: Vector) -> Vector:
        """Where alpha is the model: alpha with what else belongs to the model, from v = A alpha."""

    def ball(self, w: Vector, largest: float, gap: float) -> Ball | None:
        """Where the optimal w is, from w_t and the gap of any alpha with the point `objective_b` took; None where no
        coordinate of the optimum can be told to be 0 from that."""


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
        _check_strength(self.lam)
        if not 0.0 <= self.l1_ratio < 1.0:
            raise UsageError(
                f"--l1-ratio {self.l1_ratio:g}",
                "must be at least 0 and below 1 when examples are partitioned",
                "use --partition features (for workers: shard --by features), or a smaller ratio",
            )
        if not np.isfinite(self.lipschitz):
            raise UsageError(f"--lam {self.lam:g}", f"is too small for --l1-ratio {self.l1_ratio!r} by examples")
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
        shrunk = (soft(v[part], self.lam * self.l1_ratio) for part in parts(len(v)))
        # the squares alone may be too small for a number
        return 0.5 * total(inner(part, part * self.lipschitz) for part in shrunk)

    def grad_f(self, v: Vector, out: Vector | None = None) -> Vector:
        """w = grad f(v), shape (d,): the primal point that belongs to v (paper, w(alpha))."""
        w = np.empty_like(v) if out is None else out
        for part in parts(len(v)):
            np.multiply(soft(v[part], self.lam * self.l1_ratio), self.lipschitz, out=w[part])
        return w

    def f_conjugate(self, w: Vector) -> float:
        """f*(w) = r(w), the regulariser; w has shape (d,)."""
        l1 = total(float(np.abs(w[part]).sum()) for part in parts(len(w))) if self.l1_ratio > 0.0 else 0.0
        return self.lam * (self.l1_ratio * l1 + 0.5 * (1.0 - self.l1_ratio) * inner(w, w))

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
        return Certified(objective_b, 0.0 - objective_a)  # never -0.0

    def at_hand(self, best: "Certified", now: "Certified") -> "Certified":
        """See PrimalDual: w is the model."""
        return Certified(best.primal, now.dual)

    def model_of(self, alpha: Vector, v: Vector) -> Vector:
        """See PrimalDual; not for this partition."""
        raise AssertionError("w is the model")

    def ball(self, w: Vector, largest: float, gap: float) -> Ball | None:
        """See PrimalDual; not for this partition."""
        return None


@dataclass(frozen=True, slots=True)
class Constant:
    """A feature that has the same value in every example; by features the coordinator finds its weight by itself.

    value : of the feature, > 0;  regularised : its weight counts in the regulariser
    """

    value: float
    regularised: bool


@dataclass(frozen=True, eq=False)
class FeatureProblem:
    """The objective over n examples, partitioned by features.

    Attributes
    ----------
    loss_name, loss_parameter, lam : as for Problem; the loss must be smooth
    y : labels, float64, shape (n,), +1 / -1 for classifiers
    s : weights of the examples, float64, shape (n,)
    l1_ratio : eta, 0 <= eta <= 1
    constant : a constant feature beside those the workers have
    mean_over : n, where fewer than y has: the others weigh 0 and are left out; None: all

    With a constant feature of value B and weight b, f is min over b of (1/n) sum_i s_i loss(y_i, v_i + B b) + g(b): the
    minimum of a jointly convex function over one of its variables is convex, and its gradient is that of the sum at the
    minimising b, with the same Lipschitz constant. Its conjugate is f*(w) + g*(-B 1'w): without g, where 1'w = 0, which
    every gradient of f satisfies, but for rounding: what 1'w is then off by counts b-fold in f*. Therefore labels of a
    regression are taken relative to one in their midst (which changes the intercept and nothing else), and predictions
    that b all but cancels get a second b.

    Without g, f(v) = f(v + c 1) for every c: what a feature's mean adds to v counts for nothing (Subproblem.centred).
    That is so for c in all entries of v, those of examples that weigh 0 included.
    """

    loss_name: str
    lam: float
    y: Vector
    s: Vector
    l1_ratio: float = 1.0
    loss_parameter: float | None = None
    constant: Constant | None = None
    mean_over: int | None = None

    def __post_init__(self) -> None:
        _check_strength(self.lam)
        if not 0.0 <= self.l1_ratio <= 1.0:
            raise UsageError(f"--l1-ratio {self.l1_ratio:g}", "must be from 0 to 1")
        if not np.isfinite(self.loss.smoothness):
            raise UsageError(
                f"--loss {self.loss_name}",
                "has a kink, and features can be partitioned for smooth losses only",
                "choose another loss, or --partition examples with --l1-ratio below 1",
            )

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.y) if self.mean_over is None else self.mean_over

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
        return Subproblem(g, self.lipschitz, 1.0, labelled=False, centred=self.intercept)

    @property
    def intercept(self) -> bool:
        """There is a constant feature, and it is not regularised."""
        return self.constant is not None and not self.constant.regularised

    def f(self, v: Vector) -> float:
        """f(v) = (1/n) sum_i s_i loss(y_i, v_i), with a constant feature min over its weight; v has shape (n,)."""
        p, b = self._with_constant(v)
        value = losses.weighted_sum(self.loss, self._y, p, self.s) / self.n
        if self.constant is not None and self.constant.regularised:
            value += self.lam * (self.l1_ratio * abs(b) + 0.5 * (1.0 - self.l1_ratio) * b * b)
        return value

    def grad_f(self, v: Vector, out: Vector | None = None) -> Vector:
        """grad f(v), shape (n,)."""
        p, _ = self._with_constant(v)
        gradient = losses.derivative(self.loss, self._y, p)
        gradient *= self.s
        return np.divide(gradient, self.n, out=out)

    def predictions(self, v: Vector) -> Vector:
        """Those of the model with v = X alpha, with the constant feature; shape (n,)."""
        return self._with_constant(v)[0] + self._origin

    def constant_weight(self, v: Vector) -> float:
        """The weight b of the constant feature with the least (1/n) sum_i s_i loss(y_i, v_i + B b) + g(b)."""
        if self.constant is None:
            return 0.0
        return self._with_constant(v)[1] + self._origin / self.constant.value

    @functools.cached_property
    def _origin(self) -> float:
        """What the labels are taken relative to: an intercept makes up for it."""
        if not self.intercept or self.loss.classifier:
            return 0.0
        counted = self.y[self.s > 0.0]
        return float(np.partition(counted, len(counted) // 2)[len(counted) // 2]) if len(counted) else 0.0

    @functools.cached_property
    def _y(self) -> Vector:
        """The labels relative to their origin."""
        return self.y - self._origin if self._origin != 0.0 else self.y

    def _with_constant(self, v: Vector) -> tuple[Vector, float]:
        """The predictions of the model with v = X alpha, and b; both as `_y` needs them."""
        constant = self.constant
        if constant is None:
            return v, 0.0
        b = self._best_constant(v, constant)
        p = v + constant.value * b
        if self.intercept and abs(constant.value * b) > CANCELLED * float(np.abs(p).max(initial=0.0)):
            more = self._best_constant(p, constant)
            p += constant.value * more
            b += more
        return p, b

    def _best_constant(self, v: Vector, constant: Constant) -> float:
        l1, l2 = (self.lam * self.l1_ratio, self.lam * (1.0 - self.l1_ratio)) if constant.regularised else (0.0, 0.0)
        share = constant.value / self.n

        def slope(b: float) -> float:
            """Of the losses and the smooth part of g: it never falls."""
            p = v + constant.value * b
            return share * inner(self.s, losses.derivative(self.loss, self._y, p)) + l2 * b

        def rise(b: float) -> float:
            """The slope's slope."""
            p = v + constant.value * b
            return share * constant.value * inner(self.s, losses.second_derivative(self.loss, self._y, p)) + l2

        at_zero = slope(0.0)
        if abs(at_zero) <= l1:
            return 0.0
        kink = l1 if at_zero > 0.0 else -l1
        largest = float(np.abs(v).max()) / constant.value
        return _root_of_rising(lambda b: slope(b) - kink, rise, at_zero - kink, largest)

    def model_of(self, alpha: Vector, v: Vector) -> Vector:
        """See PrimalDual: the weight of the constant feature comes last."""
        return alpha if self.constant is None else np.append(alpha, self.constant_weight(v))

    def f_conjugate(self, w: Vector) -> float:
        """(1/n) sum_i s_i loss*(n w_i / s_i); inf outside its domain; w has shape (n,)."""
        if self.loss.quadratic and not (self._weightless is not None and w[self._weightless].any()):
            a, b = self._parabola(w)
            return 0.5 * a + b
        beta = -self.n * w
        if np.isfinite(self.loss.bound):
            # a gradient of f at the end of the domain may be beyond it in its last digit
            bound = self.s * self.loss.bound
            beta = np.where(np.abs(beta) <= bound * (1.0 + 1e-14), np.clip(beta, -bound, bound), beta)
        return float(losses.conjugate(self.loss, self._y, beta, self.s).sum()) / self.n

    def objective_a(self, v: Vector, conjugate_sum: float) -> float:
        """O_A(alpha) = P(alpha), from the predictions v and sum_j g(alpha_j)."""
        return self.f(v) + conjugate_sum

    def objective_b(self, w: Vector, loss_sum: float, largest: float) -> float:
        """O_B at w (l1_ratio < 1), or at the best multiple of w that is feasible (l1_ratio = 1).

        loss_sum : sum_j g*(-A_j'w);  largest : max_j |A_j'w|, which bounds the multiple by lam / largest
        """
        product = self._product_of_constant(w)
        largest = max(largest, product)
        if self.l1_ratio < 1.0:
            beyond = max(product - self.lam * self.l1_ratio, 0.0)
            loss_sum += beyond * beyond / (2.0 * self.lam * (1.0 - self.l1_ratio))
            return self.f_conjugate(w) + loss_sum
        return self.f_conjugate(self._multiple(w, largest) * w)

    def _multiple(self, w: Vector, largest: float) -> float:
        """The best multiple of w among those that are feasible (l1_ratio = 1)."""
        limit = self.lam / largest if largest > 0 else np.inf
        if self.loss.quadratic:
            a, b = self._parabola(w)
            if a > 0:
                return float(np.clip(-b / a, -limit, limit))
        return min(1.0, limit)

    @functools.cached_property
    def _weightless(self) -> NDArray[np.bool_] | None:
        """Which examples weigh nothing, shape (n,); None: none."""
        return None if self.s.all() else self.s == 0.0

    def _parabola(self, w: Vector) -> tuple[float, float]:
        """a and b of f*(c w) = c^2 a / 2 + c b, whose minimum is at c = -b / a; quadratic loss, w = 0 where s = 0."""
        s = self.s if self._weightless is None else np.where(self._weightless, 1.0, self.s)
        return self.loss.curvature * self.n * inner(w / s, w), inner(w, self._y)

    def ball(self, w: Vector, largest: float, gap: float) -> Ball | None:
        """See PrimalDual. As f* is 1/L-strongly convex, |w - w*|^2 <= 2 L gap (gap-safe screening, Ndiaye et al. 2017).

        A coordinate is 0 at the optimum when |A_j'w*| < lam l1_ratio.
        """
        if self.l1_ratio == 0.0:
            return None
        largest = max(largest, self._product_of_constant(w))
        multiple = self._multiple(w, largest) if self.l1_ratio == 1.0 else 1.0
        return Ball(multiple, float(np.sqrt(2.0 * self.lipschitz * max(gap, 0.0))))

    def _product_of_constant(self, w: Vector) -> float:
        """|A_j'w| of a regularised constant feature, of which the workers know nothing; else 0."""
        constant = self.constant
        return constant.value * abs(float(w.sum())) if constant is not None and constant.regularised else 0.0

    @property
    def alpha_is_model(self) -> bool:
        """See PrimalDual."""
        return True

    def certified(self, objective_a: float, objective_b: float) -> "Certified":
        """See PrimalDual: O_A = P, O_B = -D."""
        return Certified(objective_a, 0.0 - objective_b)

    def at_hand(self, best: "Certified", now: "Certified") -> "Certified":
        """See PrimalDual: alpha is the model."""
        return Certified(now.primal, best.dual)


def _root_of_rising(
    function: Callable[[float], float], slope: Callable[[float], float], at_zero: float, largest: float
) -> float:
    """Where a function that never falls is 0: Newton's method from 0, kept within what is known by then.

    at_zero : its value at 0, not 0;  largest : numbers below the last digit of this do not matter
    """
    low, high = (-np.inf, 0.0) if at_zero > 0.0 else (0.0, np.inf)
    digit = 2.0**-52
    x, value = 0.0, at_zero
    reach = max(largest, 1.0)
    for _ in range(ROOT_STEPS):
        rise = slope(x)
        step = -value / rise if rise > 0.0 else np.copysign(np.inf, -value)
        if abs(step) > reach:
            # where the function is nearly flat its slope says nothing of where the root is
            step = np.copysign(reach, step)
            reach *= 4.0
        moved = x + step
        if abs(step) > digit * max(abs(x), largest) and not low < moved < high:
            moved = 0.5 * (low + high)
        if abs(moved - x) <= digit * max(abs(moved), largest):
            return moved
        x, value = moved, function(moved)
        if value == 0.0:
            return x
        if value > 0.0:
            high = x
        else:
            low = x
    return x


CANCELLED = 1e3
"""Predictions that are so many times smaller than what was added to them have lost digits that matter."""

ROOT_STEPS = 200
"""Beyond what bisection takes to the last digit; reached where there is no root, the losses falling for ever."""


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
