"""The dual variables of a shard, in two versions: before the round under way and after it.

Round t starts from (alpha_t, z_t). Solving it yields z_{t+1}, which is kept beside them as pending. Only when the
coordinator asks for round t + 1, which it does when every worker's answer to t has arrived, the pending round is taken
over. Asked for round t again, the worker drops the pending result and computes it anew from the same state.

A mark is a copy of the state at the start of a round that the coordinator has written down: should the coordinator die
and come back, both return to it and go on with the same bits.

A round number alone does not say which state is meant: a coordinator that has come back may have gone another way from
an earlier round on. Every way has a lineage, a name that the coordinator gives it when it starts, and a new one at
every resync; only round and lineage together name a state.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acccocoa import buffers
from acccocoa.losses import Vector
from worker import kernels

Idle = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at the start of round `round`; arrays are never written to."""

    round: int
    alpha: Vector
    z: Vector
    cursors: tuple[int, ...]
    idle: Idle
    lineage: str | None = ""
    pending: "Pending | None" = None
    active: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A round has ended with alpha = z = z_{t+1}: the certificate's sums, without `scale`, at (z_{t+1}, w_{t+1}).

    w_{t+1} = grad f(A z_{t+1}) = L A z_{t+1}, as the whole problem is solved here and there is no l1 norm.
    """

    conjugate_sum: float
    loss_sum: float


@dataclass(slots=True)
class Pending:
    """What round t computed: z_{t+1}, and what it takes to turn alpha_t into alpha_{t+1}.

    lineage : of the state to come; None: as before;  final : alpha_{t+1} = z_{t+1}, the job ends there
    rows : the only ones at which anything is other than 0; None: all may be
    standing : the round leads to alpha = z = z_{t+1}
    """

    z_next: Vector
    gamma_theta: float
    fraction: float
    cursors: list[int]
    idle: Idle
    lineage: str | None = None
    final: bool = False
    rows: NDArray[np.intp] | None = None
    standing: Standing | None = None


@dataclass(slots=True)
class DualState:
    """alpha_t and z_t (float64, shape (n,)), where the visits stand, and the pending round, if any.

    Attributes
    ----------
    round, lineage : of the round that (alpha, z) is the start of; lineage None: of no round that can be asked for
    cursors : by block, buckets gone through since the job began
    idle : uint8, shape (n,), how far every row is in its rests; see kernels.sdca
    active : which rows are visited at present, shape (n,), never written to; None: all
    """

    alpha: Vector
    z: Vector
    round: int
    cursors: list[int]
    idle: Idle
    pending: Pending | None = None
    mark: Snapshot | None = None
    lineage: str | None = ""
    active: NDArray[np.bool_] | None = None

    @classmethod
    def zeros(cls, n: int, blocks: int) -> "DualState":
        """alpha = z = 0, which is feasible for every loss."""
        return cls(np.zeros(n), np.zeros(n), 0, [0] * blocks, np.zeros(n, dtype=np.uint8))

    @classmethod
    def of(cls, snapshot: Snapshot) -> "DualState":
        """The state a snapshot was taken of."""
        return cls(
            snapshot.alpha.copy(),
            snapshot.z.copy(),
            snapshot.round,
            list(snapshot.cursors),
            snapshot.idle.copy(),
            snapshot.pending,
            lineage=snapshot.lineage,
            active=snapshot.active,
        )

    def _is_at(self, t: int, lineage: str) -> bool:
        return t == self.round and lineage == self.lineage

    def _is_before(self, t: int, lineage: str) -> bool:
        pending = self.pending
        if pending is None or t != self.round + 1:
            return False
        return lineage == (self.lineage if pending.lineage is None else pending.lineage)

    def can_begin(self, t: int, lineage: str = "") -> bool:
        """This state is at the start of round t of that lineage, just before it, or has a mark there."""
        return (
            self._is_at(t, lineage)
            or self._is_before(t, lineage)
            or (self.mark is not None and t == self.mark.round and lineage == self.mark.lineage)
        )

    def begin(self, t: int, lineage: str = "") -> bool:
        """Stand at the start of round t of that lineage; False (and nothing changes) when `can_begin` says so."""
        if not self.can_begin(t, lineage):
            return False
        if self._is_before(t, lineage):
            assert self.pending is not None
            self._advance(self.pending)
        elif not self._is_at(t, lineage):
            assert self.mark is not None
            self.alpha[:] = self.mark.alpha
            self.z[:] = self.mark.z
            self.cursors = list(self.mark.cursors)
            self.active = self.mark.active
            self.idle[:] = self.mark.idle
        self.round = t
        self.lineage = lineage
        self.pending = None
        return True

    def _advance(self, pending: Pending) -> None:
        if pending.final or pending.standing is not None:
            self.alpha[:] = pending.z_next
            self.z[:] = pending.z_next
        elif pending.rows is None:
            kernels.advance(self.alpha, self.z, pending.z_next, pending.gamma_theta, pending.fraction)
        else:
            alpha, z = self.alpha[pending.rows], self.z[pending.rows]
            kernels.advance(alpha, z, pending.z_next[pending.rows], pending.gamma_theta, pending.fraction)
            self.alpha[pending.rows], self.z[pending.rows] = alpha, z
        self.cursors = pending.cursors
        self.idle = pending.idle

    def y(self, gamma_theta: float) -> Vector:
        """y_t = alpha_t + gamma theta_t (z_t - alpha_t), float64, shape (n,); a vector of its own."""
        y = buffers.copy(self.z)
        y -= self.alpha
        y *= gamma_theta
        y += self.alpha
        return y

    def finish(self, gamma_theta: float, lineage: str, project: Callable[[Vector], None] = lambda _: None) -> Snapshot:
        """Let y_t be where the job ends: the state of the next round, of a new lineage, is alpha = z = y_t.

        project : moves a vector into dom(g), which y_t, a convex combination, may leave in its last digit

        Returns
        -------
        that state
        """
        y = self.y(gamma_theta)
        project(y)
        self.pending = Pending(y, gamma_theta, 1.0, list(self.cursors), self.idle, lineage, final=True)
        final = self.final
        assert final is not None
        return final

    @property
    def final(self) -> Snapshot | None:
        """Where the job ends, when it has been told to (`finish`)."""
        end = self.pending
        if end is None or not end.final:
            return None
        return Snapshot(self.round + 1, end.z_next, end.z_next, tuple(end.cursors), end.idle.copy(), end.lineage)

    @property
    def position(self) -> tuple[int, str | None]:
        """Round and lineage of the newest state that can be begun with; lineage None: no round leads on from it."""
        if self.pending is not None and self.pending.lineage is not None:
            return self.round + 1, self.pending.lineage
        return self.round, self.lineage

    def settle(self) -> None:
        """Take over what ends the job, if that is pending: no more rounds come."""
        pending = self.pending
        if pending is not None and pending.final and pending.lineage is not None:
            self.begin(self.round + 1, pending.lineage)

    def fit(self, blocks: int) -> None:
        """Stand at the beginning of the order of visits when the shard has had another number of blocks.

        That is a state that no round leads on from any more.
        """
        if len(self.cursors) != blocks:
            self.settle()
            self.pending = self.mark = self.lineage = None
            self.cursors = [0] * blocks

    def restart(self) -> None:
        """z := alpha: drop the momentum (algorithm section 5)."""
        self.z[:] = self.alpha

    def resync(self, t: int, lineage: str | None = "") -> None:
        """Drop the pending round and the momentum; round t of that lineage comes next (algorithm section 5)."""
        self.pending = None
        self.active = None
        self.restart()
        self.idle = np.zeros_like(self.idle)
        self.round = t
        self.lineage = lineage

    def snapshot(self, *, with_pending: bool = False) -> Snapshot:
        """A copy of the state at the start of its round.

        with_pending : the pending round, too; not to be advanced any more
        """
        return Snapshot(
            self.round,
            self.alpha.copy(),
            self.z.copy(),
            tuple(self.cursors),
            self.idle.copy(),
            self.lineage,
            self.pending if with_pending else None,
            self.active,
        )
