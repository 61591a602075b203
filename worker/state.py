"""The dual variables of a shard, in two versions: before the round under way and after it.

Round t starts from (alpha_t, z_t). Solving it yields z_{t+1}, which is kept beside them as pending. Only when the
coordinator asks for round t + 1, which it does when every worker's answer to t has arrived, the pending round is taken
over. Asked for round t again, the worker drops the pending result and computes it anew from the same state.

A mark is a copy of the state at the start of a round that the coordinator has written down: should the coordinator die
and come back, both return to it and go on with the same bits.
"""

from dataclasses import dataclass

import numpy as np

from acccocoa.losses import Loss, Vector
from worker import kernels


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at the start of round `round`; arrays are never written to."""

    round: int
    alpha: Vector
    z: Vector
    cursors: tuple[int, ...]


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
    pending: Pending | None = None
    mark: Snapshot | None = None

    @classmethod
    def zeros(cls, n: int, blocks: int) -> "DualState":
        """alpha = z = 0, which is feasible for every loss."""
        return cls(np.zeros(n), np.zeros(n), 0, [0] * blocks)

    @classmethod
    def of(cls, snapshot: Snapshot) -> "DualState":
        """The state a snapshot was taken of."""
        return cls(snapshot.alpha.copy(), snapshot.z.copy(), snapshot.round, list(snapshot.cursors))

    def can_begin(self, t: int) -> bool:
        """This state is at the start of round t, just before it, or has a mark there."""
        return (
            t == self.round
            or (t == self.round + 1 and self.pending is not None)
            or (self.mark is not None and t == self.mark.round)
        )

    def begin(self, t: int) -> bool:
        """Stand at the start of round t; False (and nothing changes) when `can_begin` says so."""
        if not self.can_begin(t):
            return False
        if t == self.round + 1 and self.pending is not None:
            pending = self.pending
            kernels.advance(self.alpha, self.z, pending.z_next, pending.gamma_theta, pending.fraction)
            self.cursors = pending.cursors
            self.round = t
        elif t != self.round and self.mark is not None:
            self.alpha[:] = self.mark.alpha
            self.z[:] = self.mark.z
            self.cursors = list(self.mark.cursors)
            self.round = t
        self.pending = None
        return True

    def restart(self) -> None:
        """z := alpha: drop the momentum (algorithm section 5)."""
        self.z[:] = self.alpha

    def resync(self, t: int) -> None:
        """Drop the pending round and the momentum; round t comes next (algorithm section 5)."""
        self.pending = None
        self.mark = None
        self.restart()
        self.round = t

    def snapshot(self) -> Snapshot:
        """A copy of the state at the start of its round."""
        return Snapshot(self.round, self.alpha.copy(), self.z.copy(), tuple(self.cursors))


def into_domain(loss: Loss, y: Vector, s: Vector, alpha: Vector) -> None:
    """Move dual variables of another objective into dom(g) of this one, in place: the start of a warm run.

    y, s, alpha : float64, shape (n,)
    """
    bound = s * loss.bound if np.isfinite(loss.bound) else np.where(s > 0, np.inf, 0.0)
    if loss.classifier:
        alpha[:] = y * np.clip(y * alpha, 0.0, bound)
    else:
        np.clip(alpha, -bound, bound, out=alpha)
