"""The dual variables of a shard, in two versions: before the round under way and after it.

Round t starts from (alpha_t, z_t). Solving it yields z_{t+1}, which is kept beside them as pending. Only when the
coordinator asks for round t + 1, which it does when every worker's answer to t has arrived, the pending round is taken
over. Asked for round t again, the worker drops the pending result and computes it anew from the same state.
"""

from dataclasses import dataclass, field

import numpy as np

from acccocoa.losses import Vector
from worker import kernels


@dataclass(slots=True)
class Pending:
    """What round t computed: z_{t+1}, and what it takes to turn alpha_t into alpha_{t+1}."""

    z_next: Vector
    gamma_theta: float
    fraction: float
    cursors: list[int]


@dataclass(slots=True)
class DualState:
    """alpha_t and z_t (float64, shape (n,)), where the order of visits stands, and the pending round, if any.

    Attributes
    ----------
    round : t, the round that (alpha, z) is the start of
    cursors : by block, buckets visited since the job began
    """

    alpha: Vector
    z: Vector
    round: int
    cursors: list[int]
    pending: Pending | None = field(default=None)

    @classmethod
    def zeros(cls, n: int, blocks: int) -> "DualState":
        """alpha = z = 0, which is feasible for every loss."""
        return cls(np.zeros(n), np.zeros(n), 0, [0] * blocks)

    def begin(self, t: int) -> bool:
        """Stand at the start of round t; False when this state is neither at t nor just before it."""
        if t == self.round + 1 and self.pending is not None:
            pending = self.pending
            kernels.advance(self.alpha, self.z, pending.z_next, pending.gamma_theta, pending.fraction)
            self.cursors = pending.cursors
            self.round = t
        elif t != self.round:
            return False
        self.pending = None
        return True

    def restart(self) -> None:
        """z := alpha: drop the momentum (algorithm section 5)."""
        self.z[:] = self.alpha

    @property
    def warm(self) -> bool:
        """Some dual variable is not zero: A alpha must be summed up before the first round."""
        return bool(self.alpha.any() or self.z.any())
