"""Algorithm 1 (AccCoCoA+, arXiv 1711.05305), the coordinator's part: a state machine over numpy values.

The coordinator keeps v_a = A alpha and v_z = A z; the dual variables themselves live with the workers. One round is

    w_t, plans = loop.begin_round()        v_y = (1 - gamma theta) v_a + gamma theta v_z,  w_t = grad f(v_y)
    ... every worker answers A_k dz_k ...
    loop.end_round(answers)                v_z += sum_k A_k dz_k,  v_a = v_y + sum_k (gamma theta / p_k) A_k dz_k

Worker k visits the fraction p_k <= 1 of its coordinates in a round (algorithm section 5; p_k = 1 is the paper's
Algorithm 1). Plain CoCoA+ is the same loop restarted after every round.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acccocoa import buffers
from acccocoa.config import Restart
from acccocoa.errors import UsageError
from acccocoa.losses import Vector
from acccocoa.problem import PrimalDual
from acccocoa.vectors import inner
from coordinator import kernels

GAP_RESTART_FACTOR = 0.1
"""Restart when the certified gap has fallen by this factor since the last restart (algorithm section 5)."""

FIRST_GAP_RESTART_FACTOR = 0.3
"""The same for the first restart: sooner, because where few rounds are needed momentum only costs some (covtype,
lam 1e-4, rounds to 1e-1: 5 instead of 6, as CoCoA+; elsewhere it costs a few per cent)."""


def next_theta(theta: float, gamma: float) -> float:
    """theta_{t+1} of Algorithm 1, the positive root of x^2 + gamma theta^2 x - theta^2 = 0 (eq. quadratic)."""
    square = theta * theta
    # the paper's (sqrt(gamma^2 theta^4 + 4 theta^2) - gamma theta^2) / 2, without its cancellation
    return 2.0 * square / (math.sqrt(gamma * gamma * square * square + 4.0 * square) + gamma * square)


@dataclass(frozen=True, slots=True)
class Contribution:
    """A worker's answer to a round: A_k dz_k on its support.

    places : of its entries in the shared vector: positions, shape (m,), a slice, or None when they are all of it
    a_dz : float64, shape (m,)
    fraction : p_k of the round
    """

    places: NDArray[np.integer[Any]] | slice | None
    a_dz: Vector
    fraction: float = 1.0


class OuterLoop:
    """Algorithm 1 between two restarts, and the restarts.

    Parameters
    ----------
    problem : the objective
    d : length of the shared vector
    blocks : K, how many blocks of coordinates are solved at the same time
    gamma : aggregation, in [1/K, 1]
    sigma : sigma'; None takes the safe gamma * K (eq. sigmaineq)
    accelerate : False is CoCoA+
    restart : rule by which momentum is dropped

    Raises
    ------
    UsageError : gamma or sigma outside its range
    """

    def __init__(
        self,
        problem: PrimalDual,
        d: int,
        blocks: int,
        gamma: float = 1.0,
        sigma: float | None = None,
        accelerate: bool = True,
        restart: Restart = "gap",
    ) -> None:
        # 1/K is not exact in binary: allow for its last digit
        if not (1.0 - 1e-12) / blocks <= gamma <= 1.0:
            raise UsageError(f"--gamma {gamma:g}", f"must be between 1/K = {1 / blocks:g} and 1")
        if sigma is not None and not (math.isfinite(sigma) and sigma > 0):
            raise UsageError(f"--sigma {sigma:g}", "must be a finite number > 0")
        self.problem = problem
        self.gamma = gamma
        self.sigma = gamma * blocks if sigma is None else sigma
        self.accelerate = accelerate
        self.restart_rule: Restart = restart
        self.round = 0
        self.restarts = 0
        # filled here: the first rounds need not wait for the memory
        self.v_a, self._v_z, self.v_y = (buffers.zeros(d) for _ in range(3))
        self.theta = 1.0
        self._starting = True
        self._gap_at_restart = math.inf

    @property
    def v_z(self) -> Vector:
        """A z."""
        return self.v_a if self._starting else self._v_z

    @property
    def gamma_theta(self) -> float:
        """gamma * theta_t, the weight of z_t in y_t."""
        return self.gamma * self.theta

    def sum_up(self, parts: Sequence[Contribution]) -> Vector:
        """The sum of the workers' parts of a shared vector, in rank order, or the only one; float64, shape (d,)."""
        (first, *others) = parts
        if not others and isinstance(first.places, slice) and len(first.a_dz) == len(self.v_a):
            return first.a_dz
        v = buffers.zeros(len(self.v_a))
        for part in parts:
            v[slice(None) if part.places is None else part.places] += part.a_dz
        return v

    def stand_at(self, v: Vector) -> None:
        """Go on from alpha with A alpha = v: z := alpha, theta := theta_0 (algorithm section 5).

        Its gap may be larger than those before: the restart rule begins anew. v is the loop's own from now on.
        """
        self.v_a = v
        self._starting = True
        self._gap_at_restart = math.inf

    def restart(self) -> None:
        """Drop the momentum: z := alpha, theta := theta_0. The workers do the same when the next round begins."""
        self._starting = True
        self.restarts += 1

    def state(self) -> tuple[dict[str, Any], dict[str, Vector]]:
        """The state at the start of a round: numbers and arrays, for `restore`."""
        return (
            {
                "round": self.round,
                "restarts": self.restarts,
                "theta": self.theta,
                "starting": self._starting,
                "gap_at_restart": self._gap_at_restart,
            },
            {"v_a": self.v_a, "v_z": self.v_z},
        )

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Vector]) -> None:
        """Be where `state` was called."""
        self.round, self.restarts, self.theta = facts["round"], facts["restarts"], facts["theta"]
        self._starting, self._gap_at_restart = facts["starting"], facts["gap_at_restart"]
        self.v_a, self._v_z = arrays["v_a"], buffers.copy(arrays["v_z"])

    @property
    def starting(self) -> bool:
        """The round under way, or the next one, is the first since a (re)start: z = alpha."""
        return self._starting

    def begin_round(self, smallest_fraction: float) -> Vector:
        """Set y_t and theta_t and return w_t = grad f(A y_t), float64, shape (d,).

        smallest_fraction : min_k p_k of this round; after a (re)start it is theta_0
        """
        if self._starting:
            self.theta = smallest_fraction
            self.v_y[:] = self.v_a
        else:
            self.theta = min(self.theta, smallest_fraction)
            kernels.between(self.v_a, self.v_z, self.gamma_theta, self.v_y)
        return self.problem.grad_f(self.v_y, buffers.empty(len(self.v_y)))

    def end_round(self, contributions: Sequence[Contribution]) -> None:
        """Add up the workers' A_k dz_k in rank order, so that the order of arrival does not matter; t := t + 1."""
        watched = self.restart_rule == "gradient" and not self._starting
        previous = self.v_a.copy() if watched else self.v_a
        if self._starting:
            self._v_z[:] = self.v_y
        self.v_a[:] = self.v_y
        for part in contributions:
            step = self.gamma_theta / part.fraction
            where = slice(None) if part.places is None else part.places
            if isinstance(where, slice):
                kernels.add(part.a_dz, step, self._v_z[where], self.v_a[where])
            else:
                kernels.add_at(where, part.a_dz, step, self._v_z, self.v_a)
        opposed = watched and self._opposes_momentum(previous)
        self.theta = next_theta(self.theta, self.gamma)
        self._starting = False
        self.round += 1
        if not self.accelerate:
            self._starting = True
        elif opposed:
            self.restart()

    def end_round_at(self, v: Vector) -> None:
        """The round has led to alpha = z with A alpha = v; t := t + 1."""
        self.stand_at(v)
        self.round += 1

    def _opposes_momentum(self, previous: Vector) -> bool:
        """(v_y - v_a+)'(v_a+ - v_a) > 0: the step goes against where the momentum led."""
        return inner(self.v_y - self.v_a, self.v_a - previous) > 0.0

    def observe_gap(self, gap: float) -> None:
        """Tell the loop a certified gap; between end_round and begin_round. It may restart.

        The first gap, that of alpha = 0, tells nothing of momentum but restarts too: where two or three rounds do,
        momentum only costs one (covtype, lam 1e-3, to 3e-2: 3 rounds instead of 2, as CoCoA+), elsewhere one round.
        """
        by_gap = self.accelerate and self.restart_rule == "gap"
        first = math.isinf(self._gap_at_restart)
        factor = FIRST_GAP_RESTART_FACTOR if self.restarts <= 1 else GAP_RESTART_FACTOR
        if first or (by_gap and gap <= factor * self._gap_at_restart):
            self._gap_at_restart = gap
            if by_gap:
                self.restart()
