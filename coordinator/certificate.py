"""The certificate: a primal and a dual value of the pair (y_t, w_t), and the best of each seen so far.

O_A and O_B bound each other for any pair, so the best primal value and the best dual value, though from different
rounds, still bracket the optimum: best gap = min O_B + min O_A.
"""

import math

import numpy as np

from acccocoa.errors import NumericalError
from acccocoa.losses import Vector
from acccocoa.problem import Certified

ROUNDING = 1e-9
"""A gap may fall below zero by this share of the objective before it counts as an inconsistency: far above what float64
sums over 1e8 examples lose, far below any tolerance that is asked for."""


def check(certified: Certified, round_number: int) -> None:
    """Refuse a certificate that cannot be true.

    Raises
    ------
    NumericalError : NaN or infinity, or a gap below zero by more than rounding
    """
    primal, dual = certified.primal, certified.dual
    if not (math.isfinite(primal) and math.isfinite(dual)):
        raise NumericalError(
            f"certificate of round {round_number}",
            f"primal {primal!r} and dual {dual!r} must be finite",
            "check the data for huge values, or leave --sigma at its safe default",
        )
    if certified.gap < -ROUNDING * max(abs(primal), abs(dual), 1e-300):
        raise NumericalError(
            f"certificate of round {round_number}",
            f"the duality gap is {certified.gap:.3e} (primal {primal!r}, dual {dual!r}) but cannot be below zero",
            "an update was lost or added twice; do not use this run",
        )


class BestPair:
    """The smallest primal value with its w, and the largest dual value.

    w : float64, shape (d,); None before the first certificate
    """

    def __init__(self) -> None:
        self.primal = math.inf
        self.dual = -math.inf
        self.w: Vector | None = None

    def offer(self, certified: Certified, w: Vector, round_number: int) -> None:
        """Take what is better; w is kept, not copied, so the caller must not write to it afterwards.

        Raises
        ------
        NumericalError : the pair, or the best primal against the best dual, is inconsistent
        """
        check(certified, round_number)
        if certified.primal < self.primal:
            self.primal = certified.primal
            self.w = w
        self.dual = max(self.dual, certified.dual)
        check(self.certified, round_number)

    def forget(self, *, primal: bool) -> None:
        """The primal value is in doubt, or else the dual one: the one that was computed from v_y instead of at w."""
        if primal:
            self.primal, self.w = math.inf, None
        else:
            self.dual = -math.inf

    @property
    def certified(self) -> Certified:
        """The best primal and the best dual value as one pair."""
        return Certified(self.primal, self.dual)

    @property
    def gap(self) -> float:
        """Best primal - best dual, never below 0: what rounding puts below is reported as 0."""
        return max(0.0, self.certified.gap)

    @property
    def relative_gap(self) -> float:
        """gap / max(|primal|, tiny)."""
        if math.isinf(self.primal):
            return math.inf
        return self.gap / max(abs(self.primal), float(np.finfo(np.float64).tiny))
