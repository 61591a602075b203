"""G_k by Newton's method, for few features: a d x d matrix of second derivatives is summed up in every pass.

The dual of minimising G_k over z_k (paper, eq. subpdef4) is to minimise, over u in R^d,

    F(u) = scale sum_i s_i loss(y_i, x_i'u) + |u - c|^2 / (2 kappa),    c = w_t - kappa A_k z_k,t,

and for any u, z_i = -s_i loss'(y_i, x_i'u) is feasible, and optimal at the optimum. What the round is worth is seen at
w(z) = c + kappa A_k z, which is w_{t+1} where K = 1, theta = 1 and there is no l1 norm. That differs from u by kappa
times the gradient of F: kappa being 1/lam or so, u must be very close to the optimum. But a Newton step d from u solves
w(z - D X d) = u + d, D being s_i loss''_i: the dual point that is extrapolated along the step is that of where it
leads, but for what leaves dom(g). Its error is of the fourth order in d.

The hinge loss is smoothed first, max(0, t) to mu log(1 + exp(t / mu)) (see kernels.smooth), which leaves dom(g) as it
is. What z loses by that falls as mu^2, as the rows within mu of the kink are ever fewer. The number of passes hardly
depends on how large kappa is, unlike that of coordinate ascent.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from acccocoa.losses import Loss, Vector
from worker.kernels import TINY, Matrix

MOST_PASSES = 40.0
"""A round ends after so many passes over the shard, whatever it has reached."""

MOST_SAMPLED = 3.0
"""Passes in which samples must have come near."""

STRIDES = (16, 1)
"""From every so many-th group of rows the first steps are computed: they need not be exact. The pull towards c is that
many times as strong, or weights of rare features would go by the few rows there."""

ROWS_A_FEATURE = 20
"""Rows that a sample must have for each feature, to be worth a step."""

SAMPLE_ACCURACY = 1e-3
"""Relative accuracy that a minimum over a sample is worth, or features over its rows where that is more.

Where it is minimised further, features that are rare in it come to have no rows near the kink, and the first step from
all rows leads far away. (Covtype-like, hinge, five lam from 1e-3 to 1e-7; passes, and how many reached a gap of 1e-3,
without and with the latter: 20,000 rows 183, 2 and 133, 4; 50,000 187, 2 and 131, 5; 200,000 119, 4 and 73, 5.)
"""

LARGEST_MU = 1.0
FALL = 0.25
MARGIN = 0.8
SMOOTHED = 0.75
CLOSE = 0.1
"""mu begins there and falls, whenever another step would gain no more than the share CLOSE of what smoothing costs, to
what is expected to make that the share SMOOTHED of the accuracy, times the margin, but by no more than FALL at once."""

SHORTENED = 2
DAMPED = 1e-2
DAMPING = 10.0
LEAST_DAMPED = 1e-6
MOST_DAMPED = 1e9
"""A step that does not lead down is shortened so often. Then it is made anew, so much of the largest second derivative
there can be added to that of every feature, and more by that factor each time; that is taken back step by step."""

ARMIJO = 1e-4
"""A step must make F smaller by that share of what its slope promises, but for rounding."""

ROUNDED = 2.0**-49
"""A sum may be off by that share of itself."""


@dataclass(frozen=True, slots=True)
class Derivatives:
    """Of sum_i s_i loss(y_i, x_i'u) over some rows, with all factors that F has; z is kept by who computed them.

    value : the sum;  apart, smoothed : what z and u are apart, and what of that is due to smoothing, see
        kernels.second_order
    columns, columns_smooth : A_k z, and minus the gradient;  square : shape (d, d), symmetric
    passes : rows seen over all rows
    """

    value: float
    apart: float
    smoothed: float
    columns: Vector
    columns_smooth: Vector
    square: Matrix
    passes: float


Evaluate = Callable[[Vector, Vector | None, float, int], Derivatives]
"""At u, after a step from there (None: none), for that mu, from every so many-th group of rows."""


@dataclass(frozen=True, slots=True)
class Solved:
    """columns : A_k z, z being that of the last evaluation;  accuracy : what was reached, relative to F"""

    columns: Vector
    passes: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class _Point:
    """u, F and its gradient there; `error` is what (w(z), z) are from a solution.

    before, mu : as Evaluate has had them
    """

    u: Vector
    before: Vector | None
    mu: float
    value: float
    gradient: Vector
    at: Derivatives
    error: float


def strides(rows: int, d: int) -> Sequence[int]:
    """Which samples are worth while with so many rows and features; the last one has all rows."""
    return [stride for stride in STRIDES if stride == 1 or rows >= stride * ROWS_A_FEATURE * d]


def minimise(
    evaluate: Evaluate,
    loss: Loss,
    w: Vector,
    c: Vector,
    kappa: float,
    accuracy: float,
    samples: Sequence[int],
    mean_squares: Vector,
    rows: int,
) -> Solved:
    """Minimise F from u = w on; all vectors float64, shape (d,).

    Parameters
    ----------
    accuracy : how far from a solution (w(z), z) may be, relative to F
    samples : strides, the last one 1
    mean_squares : of every feature's entries over all rows, with the factors that F has
    rows : of the shard
    """
    passes = 0.0
    kinked = not loss.logistic and loss.curvature == 0.0
    mu = LARGEST_MU if kinked else 0.0

    best: _Point | None = None
    last: _Point | None = None

    def point(u: Vector, before: Vector | None, stride: int) -> _Point:
        nonlocal passes, best, last
        at = evaluate(u, before, mu, stride)
        passes += at.passes
        away = u - c
        e = kappa * at.columns - away
        error = at.apart + 0.5 * float(e @ e) / kappa + 0.5 * float(e @ (at.square @ e))
        pull = stride / kappa
        value = at.value + 0.5 * pull * float(away @ away)
        last = _Point(u, before, mu, value, pull * away - at.columns_smooth, at, error)
        if stride == 1 and not (best is not None and best.error <= error):
            best = last
        return last

    u, untried = w, bool(w.any())
    share, refused, damping = 1.0, 0, 0.0
    for stride in samples:
        enough = accuracy if stride == 1 else max(accuracy, SAMPLE_ACCURACY, stride * len(w) / rows)
        here = point(u, None, stride)
        while passes < (MOST_PASSES if stride == 1 else MOST_SAMPLED):
            allowed, smoothing = enough * abs(here.value), SMOOTHED * enough * abs(here.value)
            if stride == 1 and here.error <= allowed:
                break
            smoothness = 0.25 / mu if kinked else loss.smoothness
            direction, promised = _newton(here, stride / kappa + damping * smoothness * mean_squares)
            near = CLOSE * min(abs(here.value), here.at.smoothed)
            if kinked and here.at.smoothed > smoothing and 0.5 * promised <= max(near, allowed):
                factor = max(FALL, MARGIN * math.sqrt(smoothing / here.at.smoothed))
                mu *= factor
                here = point(here.u, None, stride)
                continue
            if stride > 1 and 0.5 * promised <= allowed:
                break
            there = point(here.u + share * direction, here.u, stride)
            if there.value <= here.value - ARMIJO * share * promised + ROUNDED * abs(here.value):
                here = there
                share, refused = 1.0, 0
                damping = damping / DAMPING if damping > LEAST_DAMPED else 0.0
            elif untried and here.u is w:  # that of another lam, or of a z that was far from a solution
                untried = False
                origin = point(np.zeros_like(w), None, stride)
                here = origin if origin.value < here.value else here
            elif refused < SHORTENED and here.at.square.any():
                refused += 1
                bend = there.value - here.value + share * promised  # of the parabola through what is known
                share *= min(0.5, max(0.1, 0.5 * share * promised / bend)) if bend > 0.0 else 0.1
            elif damping < MOST_DAMPED:
                share, refused = 1.0, 0
                damping = max(DAMPED, DAMPING * damping)
            else:  # F does not fall any more, but for rounding
                break
        u = here.u
    assert best is not None  # the last stride is 1
    if best is not last:
        mu = best.mu
        best = point(best.u, best.before, 1)  # its z
    return Solved(best.at.columns, passes, best.error / max(abs(best.value), TINY))


def _newton(here: _Point, added: Vector) -> tuple[Vector, float]:
    """The step, with so much added to all second derivatives of the losses, and minus its slope."""
    hessian = here.at.square + np.diag(added)
    try:
        direction = -np.linalg.solve(hessian, here.gradient).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:  # features depend on each other, and what is added is lost in rounding
        hessian += ROUNDED * float(np.trace(hessian)) * np.eye(len(here.u))
        direction = -np.linalg.solve(hessian, here.gradient).astype(np.float64, copy=False)
    return direction, -float(direction @ here.gradient)
