"""One round of Algorithm 1 on one worker, on numpy values: the certificate at (y_t, w_t) and the step to z_{t+1}.

Every block of the shard is a block of the paper's partition: it minimises its own G_k from its own copy of u, on a
thread of its own, so that threads never race and the same seed gives the same bits. Their A dz are summed before they
travel.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from acccocoa import buffers, losses, vectors, weights
from acccocoa.folds import Scores, score
from acccocoa.losses import Vector
from acccocoa.problem import Ball, Subproblem
from worker import kernels, newton, shard_kernels
from worker.centring import CentredRows
from worker.shard import Block, Shard, cut_blocks
from worker.state import DualState, Pending, Standing

T = TypeVar("T")


LONGEST_SEARCH = 8
"""So many times the buckets that a round visits without resting rows are gone through at most: by then all were."""

PIECES = 8
"""What needs no blocks is summed in so many pieces of the shard: the same bits on any number of threads."""

WORTH_THREADS = 1 << 18
"""Entries from which on a pass over them takes longer than telling threads of it."""

DOUBT = 1.1
"""Where a sample says that the gap is at most so many times what is wanted, it is computed from all rows."""

MOST_PARTS = 8
PARTS_BY_COUPLING = 12.0
ENTRIES_WORTH_TELLING = 1 << 19
SUPPORT_WORTH_TELLING = 2
"""Parts of a pass: at most, and by that times the coupling and the blocks; a part has so many entries in every block,
and so many for every entry of the vectors that are added up."""

NOT_CENTRED: Vector = np.empty(0)
"""The rows count as they are."""

NO_STEP: Vector = np.empty(0)
"""A point is not where a step led."""

NOBODY: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
"""To rest."""


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """What the coordinator asks of this worker in round t; symbols as in Algorithm 1 and algorithm section 5.

    visits : by block, buckets to visit;  fraction : p_k
    screen : by features, what decides from now on which are visited; None: what decided before
    accuracy : by examples, G_k is minimised by Newton's method to a solution that accurate, see worker.newton; 0: by
        coordinate ascent, and visits say how far
    enough : of a sole worker whose G_k is the whole problem, from alpha_t = z_t, by coordinate ascent: the round ends
        after any of its passes by which the relative gap is no larger, which is computed where every stride-th group of
        rows says so; 0: it does not. By Newton's method it ends as `accuracy` says. See Standing
    """

    round: int
    theta: float
    gamma: float
    sigma: float
    visits: Sequence[int]
    fraction: float
    restart: bool = False
    screen: Ball | None = None
    accuracy: float = 0.0
    enough: float = 0.0
    stride: int = 1

    @property
    def gamma_theta(self) -> float:
        """gamma * theta_t, the weight of z_t in y_t."""
        return self.gamma * self.theta


def parts_of_a_pass(entries: int, support: int, blocks: int, coupling: float) -> int:
    """How often blocks of one worker tell each other in a pass: the more often, the fewer passes are needed, where rows
    are coupled. It takes half a millisecond, and longer where a block has the longer rows.

    (Two blocks, to 1e-3, passes with 1, 2, 4, 8 and 16 parts, and with one block: hinge, rcv1-like lam 1e-4 5.0, 3.7,
    3.7, 3.7, 3.9, and 4; 1e-5 36, 17, 10, 7, 6, and 4; words 1e-5 13, 6.3, 4.6, 3.7, 3.8, and 4; debdesc 1e-4 7, 5, 4,
    4, 4, and 4; logistic, words 1e-5 4, 4, 4, 3, 3, and 3. Milliseconds of all: words, hinge 748, 292, 208, 162, 170,
    and 312; of 1, 2, 4, 8 and one block, rcv1-like logistic 1e-4 141, 140, 147, 151, and 235; kdd99 133, 143, 150, 175,
    and 255; hinge 114, 112, 110, 108, and 184; words 1e-4 258, 253, 259, 284, and 472.)

    coupling : see config.ObjectiveConfig.coupling_of_rows
    """
    if blocks == 1:
        return 1
    each = max(ENTRIES_WORTH_TELLING, SUPPORT_WORTH_TELLING * support)
    wanted = math.ceil(min(MOST_PARTS, PARTS_BY_COUPLING * coupling * blocks))
    return max(1, min(wanted, round(entries / (blocks * each))))


@functools.lru_cache(maxsize=32)
def pass_order(seed: int, rank: int, block: int, number: int, buckets: int) -> NDArray[np.uint32]:
    """The shuffled order of a block's buckets in its pass of that number; uint32, shape (buckets,)."""
    order = np.empty(buckets, dtype=np.uint32)
    kernels.shuffle(order, np.random.SeedSequence([seed, rank, block, number]).generate_state(1, np.uint64)[0])
    return order


def order_of_visits(
    seed: int, rank: int, block: int, cursor: int, visits: int, buckets: int
) -> list[NDArray[np.uint32]]:
    """The next `visits` buckets after `cursor` visited ones: shuffled passes, one after the other, each by itself."""
    parts = []
    while visits > 0:
        number, offset = divmod(cursor, buckets)
        part = pass_order(seed, rank, block, number, buckets)[offset : offset + visits]
        parts.append(part)
        cursor += len(part)
        visits -= len(part)
    return parts


@dataclass(slots=True)
class _Way:
    """A block's way through a round: u, buckets gone through since the job began, coordinates visited, see sdca."""

    u: Vector
    cursor: int
    visited: int = 0
    shift: float = 0.0


class LocalSolver:
    """Solves the rounds of one job on one shard.

    Parameters
    ----------
    shard : the data;  problem : what is to be minimised
    positive_label : for classifiers, the label that is +1
    rank, seed : of this worker and of the job; they determine the order of visits
    pool : at least `threads` threads
    label_weights : by examples, of labels whose examples do not weigh 1
    left_out : by examples, bool, shape (n,): those that weigh 0 until they are scored; None: none
    shrinking : rows whose dual variables do not move rest for some passes (most are at a bound, and stay there); the
        work saved goes to the others, so that a round visits as many rows as without
    threads : of the pool, where this solver has it for itself; what needs no blocks uses all of them
    centred : of a centred problem, the shard's rows; None: they are computed
    """

    def __init__(
        self,
        shard: Shard,
        problem: Subproblem,
        positive_label: float,
        rank: int,
        seed: int,
        pool: ThreadPoolExecutor,
        label_weights: Mapping[float, float] | None = None,
        left_out: NDArray[np.bool_] | None = None,
        shrinking: bool = False,
        threads: int = 1,
        centred: CentredRows | None = None,
    ) -> None:
        self.shard = shard
        self.problem = problem
        self.rank = rank
        self.seed = seed
        self.loss = problem.loss
        self.shrinking = shrinking
        self._pool = pool
        self._products: tuple[Vector, Vector] = np.empty(0), np.empty(0)
        self._threads = threads
        self._pieces = cut_blocks(shard.indptr, PIECES)
        # a vector each: so many as there are blocks, or two
        self._halves = cut_blocks(shard.indptr, 2) if len(shard.blocks) == 1 else shard.blocks
        if problem.centred and centred is None:
            centred = CentredRows.of(shard)
        self._squared_norms = shard.squared_norms if centred is None else centred.squared_norms
        self._along = NOT_CENTRED if centred is None else centred.along
        # as 1'w = 0 wherever f does not change with the mean of v, they bound |A_j'w - A_j'w*| by |w - w*| there, too
        self._norms = np.empty(0) if problem.labelled else np.sqrt(self._squared_norms)
        if not problem.labelled:
            self.y: Vector = np.zeros(shard.n)
        elif self.loss.classifier:
            y = np.where(shard.labels == positive_label, 1.0, -1.0)
            self.y = shard.labels if np.array_equal(y, shard.labels) else y  # labels of +1 and -1 are not kept twice
        else:
            self.y = shard.labels
        self.s: Vector = np.ones(shard.n)
        if problem.labelled:
            self.s *= weights.of_labels(shard.labels, label_weights or {})
            if shard.weights is not None:
                self.s *= shard.weights
        self.left_out = np.zeros(shard.n, dtype=np.bool_) if left_out is None else left_out
        self._weights_left_out = self.s[self.left_out]
        self.s[self.left_out] = 0.0

    @functools.cached_property
    def _coupling(self) -> float:
        """See ObjectiveConfig.coupling_of_rows; `scale` is 1 / n where the whole problem is solved here."""
        largest = float(self._squared_norms.max(initial=0.0)) * float(self.s.max(initial=0.0))
        return self.problem.lipschitz * self.problem.scale * largest * self.loss.bend if largest > 0.0 else 0.0

    def _each_block(self, work: Callable[[int, Block], T]) -> list[T]:
        """Run the work on every block at the same time; results in the order of the blocks."""
        first, *others = self.shard.blocks
        begun = [self._pool.submit(work, index, block) for index, block in enumerate(others, start=1)]
        try:
            # this thread has nothing else to do: one less to be woken up
            return [work(0, first), *(each.result() for each in begun)]
        finally:
            wait(begun)

    def _each_piece(self, work: Callable[[Block], T], alone: bool = True) -> list[T]:
        """Run the work on every piece of the shard; results in their order, whatever the number of threads.

        alone : nothing else is computed meanwhile, so that it may use all threads
        """
        return self._each_part(self._pieces, work, alone)

    def _each_part(self, parts: Sequence[Block], work: Callable[[Block], T], alone: bool = True) -> list[T]:
        shared = alone and self._threads > 1 and self.shard.nnz >= WORTH_THREADS
        each_of: Callable[..., Iterable[T]] = self._pool.map if shared else map
        return list(each_of(work, parts))

    def beside(self, work: Callable[[], T]) -> Callable[[], T]:
        """Begin the work on a thread that `solve` does not need, or do it at once; what waits for its result.

        It must not use more threads itself.
        """
        if self._threads > len(self.shard.blocks):
            return self._pool.submit(work).result
        result = work()
        return lambda: result

    def loss_sum(self, w: Vector, alone: bool = True) -> float:
        """sum_i s_i loss(y_i, x_i'w); w on the support, float64. alone : as for `_each_piece`"""
        shard = self.shard
        if not w.any():  # where every run begins: the entries make no difference
            return math.fsum(
                losses.weighted_sum(self.loss, self.y[rows], np.zeros_like(self.y[rows]), self.s[rows])
                for rows in vectors.parts(shard.n)
            )
        return sum(
            self._each_piece(
                lambda piece: float(
                    kernels.loss_sum(
                        shard.indptr,
                        shard.indices,
                        shard.values,
                        self.y,
                        self.s,
                        w,
                        piece.first,
                        piece.last,
                        self.loss,
                    )
                ),
                alone,
            )
        )

    def score(self, w: Vector) -> Scores:
        """How well w (on the support) predicts the examples that are left out, with the weights they would have."""
        p = self.products(w)
        return score(self.loss, self.y[self.left_out], p[self.left_out], self._weights_left_out)

    def products(self, w: Vector) -> Vector:
        """A_i'w of the shard's rows (without `scale`); float64, shape (n,). w on the support."""
        known, p = self._products
        if known is not w:
            shard, p = self.shard, np.empty(self.shard.n)
            self._each_piece(
                lambda piece: kernels.products(shard.indptr, shard.indices, shard.values, w, piece.first, piece.last, p)
            )
            self._products = w, p
        return p

    def largest_product(self, w: Vector) -> float:
        """max_j |A_j'w| over the shard's rows, NaN when one of them is; w on the support."""
        return vectors.largest(self.products(w))

    def _active(self, state: DualState, w: Vector, ball: Ball) -> NDArray[np.bool_]:
        """Which rows may be other than 0 for a w in that ball, or are at present; shape (n,)."""
        distance = self.loss.epsilon - np.abs(ball.multiple * self.products(w))
        active: NDArray[np.bool_] = (state.alpha != 0.0) | (state.z != 0.0)
        active |= distance <= ball.radius * self._norms
        return active

    def project(self, alpha: Vector) -> None:
        """Move alpha, float64, shape (n,), into dom(g), in place."""
        kernels.into_domain(self.loss, self.y, self.s, alpha)

    @property
    def indicator(self) -> bool:
        """g is a multiple of |.|, its conjugate an indicator: what counts is largest_product, not loss_sum."""
        return not self.loss.logistic and self.loss.curvature == 0.0 and not np.isfinite(self.loss.bound)

    def gap_sample(self, state: DualState, gamma_theta: float, w: Vector, stride: int) -> tuple[float, int]:
        """Sum of the gaps of the coordinates in every stride-th group of rows at (y_t, w_t), and their number."""
        parts = self._each_block(
            lambda _, block: self._gap_sum(block, state.alpha, state.z, gamma_theta, w, stride, state.round)
        )
        return sum(float(total) for total, _, _ in parts), sum(int(rows) for _, _, rows in parts)

    def _gap_sum(
        self, part: Block, alpha: Vector, z: Vector, gamma_theta: float, w: Vector, stride: int, number: int
    ) -> tuple[float, float, int]:
        """See kernels.gap_sum; of the number-th of the samples of that stride, after the last of which the first is."""
        shard = self.shard
        sums: tuple[float, float, int] = kernels.gap_sum(
            shard.indptr,
            shard.indices,
            shard.values,
            self.y,
            self.s,
            alpha,
            z,
            gamma_theta,
            w,
            part.first,
            part.last,
            stride,
            number % stride,
            self.loss,
        )
        return sums

    def _seems_enough(self, z: Vector, u: Vector, plan: RoundPlan, passes: int) -> bool:
        """The gap of (u, z) may be as small as the plan says, by every stride-th group of rows.

        They are others after every pass. u is w(z), but for rounding, where the whole problem is solved here.
        """
        sums = self._each_piece(lambda piece: self._gap_sum(piece, z, z, 1.0, u, plan.stride, plan.round + passes))
        gap, losses, rows = (sum(each) for each in zip(*sums, strict=True))
        if not rows:
            return False
        factor = self.problem.scale * self.shard.n / rows
        primal = factor * losses + 0.5 * vectors.inner(u, u) / self.problem.lipschitz
        return bool(factor * gap <= plan.enough * primal * DOUBT)

    def _is_enough(self, standing: Standing, a_z: Vector, enough: float) -> bool:
        """The relative gap there is no larger."""
        scale, f = self.problem.scale, 0.5 * self.problem.lipschitz * vectors.inner(a_z, a_z)
        gap = scale * (standing.loss_sum + standing.conjugate_sum) + 2.0 * f
        return bool(gap <= enough * (scale * standing.loss_sum + f))

    def _standing(self, z: Vector, a_z: Vector) -> Standing:
        """The certificate's sums at z and w = L A z."""
        w = buffers.empty(len(a_z))
        np.multiply(a_z, self.problem.lipschitz, out=w)
        return Standing(self._conjugate_sum(z, z, 1.0, alone=True), self.loss_sum(w))

    def conjugate_sum(self, state: DualState, gamma_theta: float, alone: bool = True) -> float:
        """sum_i s_i loss_i*(-y_i/s_i) at y_t = (1 - gamma theta) alpha + gamma theta z. alone : as for `_each_piece`"""
        return self._conjugate_sum(state.alpha, state.z, gamma_theta, alone)

    def _conjugate_sum(self, alpha: Vector, z: Vector, gamma_theta: float, alone: bool) -> float:
        return sum(
            self._each_piece(
                lambda piece: float(
                    kernels.conjugate_sum(self.y, self.s, alpha, z, gamma_theta, piece.first, piece.last, self.loss)
                ),
                alone,
            )
        )

    def columns(self, state: DualState, gamma_theta: float) -> Vector:
        """A_k y_k with y = (1 - gamma theta) alpha + gamma theta z, on the support, from the dual variables alone."""
        return self._columns(state.y(gamma_theta))

    def _columns(self, coordinates: Vector) -> Vector:
        """A_k times them, on the support."""
        shard = self.shard

        def columns(part: Block) -> Vector:
            out = buffers.zeros(len(shard.support))
            kernels.add_columns(shard.indptr, shard.indices, shard.values, coordinates, part.first, part.last, out)
            return out

        total = _total(self._each_part(self._halves, columns))
        total *= self.problem.scale
        return total

    def solve(self, state: DualState, plan: RoundPlan, w: Vector) -> tuple[Vector, int]:
        """Minimise G_k approximately from z_t; leaves z_{t+1} pending in the state.

        Parameters
        ----------
        state : at the start of round t;  w : w_t on the support, float64

        Returns
        -------
        A_k dz_k on the support (float64), or A_k z_{k,t+1}, from the dual variables alone, where what is pending is
        `standing`; and the number of coordinates visited
        """
        kappa = self.problem.lipschitz * plan.theta * plan.sigma / plan.fraction
        if plan.accuracy > 0.0:
            return self._newton(state, plan, w, kappa)
        return self._ascend(state, plan, w, kappa)

    def _ascend(self, state: DualState, plan: RoundPlan, w: Vector, kappa: float) -> tuple[Vector, int]:
        """`solve` by coordinate ascent."""
        shard = self.shard
        if plan.screen is not None:
            state.active = self._active(state, w, plan.screen)
        rows = None if state.active is None else np.flatnonzero(state.active)
        if rows is None:
            z_next = buffers.copy(state.z)
        else:
            z_next = buffers.zeros(shard.n)
            z_next[rows] = state.z[rows]
        # what is screened out is left out already
        shrinking = self.shrinking and rows is None
        idle = state.idle.copy()
        rests = idle if shrinking else NOBODY

        ways = [_Way(buffers.copy(w), cursor) for cursor in state.cursors]

        def descend(visits: Sequence[int], index: int, block: Block) -> None:
            way = ways[index]
            passes, bucket = self._order(state, way.cursor, visits[index], index, block)
            last = way.cursor + LONGEST_SEARCH * sum(map(len, passes))
            goal = sum(block.rows_in(order) if bucket == block.bucket else len(order) for order in passes)
            due = np.empty(goal + bucket, dtype=np.uint32)
            visited, wanted = 0, goal + 1
            while visited < goal and passes:
                order = passes.pop(0)
                rows, buckets = kernels.due(self.s, block.first, block.last, bucket, order, rests, wanted, due)
                way.shift = kernels.sdca(
                    shard.indptr,
                    shard.indices,
                    shard.values,
                    self.y,
                    self.s,
                    self._squared_norms,
                    z_next,
                    way.u,
                    due[:rows],
                    kappa * self.problem.scale,
                    self.loss,
                    rests,
                    self._along,
                    way.shift,
                )
                visited += rows
                way.cursor += buckets
                if shrinking and not passes and way.cursor < last:
                    # what the resting ones have saved
                    rest_of_pass = block.buckets - way.cursor % block.buckets
                    passes = order_of_visits(self.seed, self.rank, index, way.cursor, rest_of_pass, block.buckets)
                    wanted = goal - visited
            way.visited += visited

        def to_dz(index: int, _: Block) -> Vector:
            u = ways[index].u
            u -= w
            u /= kappa
            return u

        ended: tuple[Vector, Standing] | None = None
        if plan.enough > 0.0:
            ended = self._until_enough(descend, ways, z_next, plan)
        else:
            self._each_block(functools.partial(descend, plan.visits))
        a_dz, standing = ended or (_total(self._each_block(to_dz)), None)
        cursors = [way.cursor for way in ways]
        state.pending = Pending(z_next, plan.gamma_theta, plan.fraction, cursors, idle, rows=rows, standing=standing)
        return a_dz, sum(way.visited for way in ways)

    def _until_enough(
        self,
        descend: Callable[[Sequence[int], int, Block], None],
        ways: Sequence[_Way],
        z: Vector,
        plan: RoundPlan,
    ) -> tuple[Vector, Standing] | None:
        """Rounds of CoCoA+ within the worker until the gap is small enough after a pass: A z, and its certificate.

        None when it is not after all visits. The blocks then end with the same u, each with its share of A dz.
        """
        blocks, number, left = self.shard.blocks, 0, list(plan.visits)
        parts = parts_of_a_pass(self.shard.nnz, len(self.shard.support), len(blocks), self._coupling)
        while any(left):
            for part in range(parts):
                shares = [block.buckets * (part + 1) // parts - block.buckets * part // parts for block in blocks]
                now = [min(visits, share) for visits, share in zip(left, shares, strict=True)]
                self._each_block(functools.partial(descend, now))
                if len(ways) > 1:
                    self._gather([way.u for way in ways])
                left = [visits - made for visits, made in zip(left, now, strict=True)]
            if self._seems_enough(z, ways[0].u, plan, number):
                a_z = self._columns(z)
                standing = self._standing(z, a_z)
                if self._is_enough(standing, a_z, plan.enough):
                    return a_z, standing
            number += 1
        return None

    def _gather(self, us: Sequence[Vector]) -> None:
        """Let all blocks go on from what they have found together.

        gamma = 1 and sigma' = K, the number of blocks: u + kappa / sigma' sum_k A dz_k is the mean of all u_k.
        """

        def gather(part: slice) -> None:
            mean = us[0][part]
            for u in us[1:]:
                mean += u[part]
            mean /= len(us)
            for u in us[1:]:
                u[part] = mean

        parts = vectors.parts(len(us[0]))
        each_of: Callable[..., Iterable[None]] = self._pool.map if len(parts) > 1 else map
        list(each_of(gather, parts))

    def _newton(self, state: DualState, plan: RoundPlan, w: Vector, kappa: float) -> tuple[Vector, int]:
        """`solve` by Newton's method."""
        shard, d = self.shard, len(w)
        z_next = buffers.zeros(shard.n)
        a_z = self._columns(state.z) if state.z.any() else np.zeros(d)
        squares = np.zeros(d)
        shard_kernels.squares_of_columns(shard.indices, shard.values, squares)
        with np.errstate(over="ignore", invalid="ignore"):  # the coordinator will notice
            solved = newton.minimise(
                functools.partial(self._derivatives, z=z_next),
                self.loss,
                w,
                w - kappa * a_z,
                kappa,
                plan.accuracy,
                newton.strides(shard.n, d),
                self.problem.scale * float(self.s.mean()) * squares,
                shard.n,
            )
        standing = self._standing(z_next, solved.columns) if plan.enough > 0.0 else None
        cursors, idle = list(state.cursors), state.idle.copy()
        state.pending = Pending(z_next, plan.gamma_theta, plan.fraction, cursors, idle, standing=standing)
        answer = solved.columns - a_z if standing is None else solved.columns
        return answer, round(solved.passes * shard.n)

    def _derivatives(self, u: Vector, before: Vector | None, mu: float, stride: int, z: Vector) -> newton.Derivatives:
        """See newton.Evaluate; what belongs to u is put into z."""
        shard, d = self.shard, len(u)

        def derivatives(piece: Block) -> tuple[tuple[float, float, float, int], Vector, Vector, kernels.Matrix]:
            columns, smooth, square = np.zeros(d), np.zeros(d), np.zeros((d, d))
            numbers = kernels.second_order(
                shard.indptr,
                shard.indices,
                shard.values,
                self.y,
                self.s,
                u,
                NO_STEP if before is None else before,
                piece.first,
                piece.last,
                stride,
                self.loss,
                mu,
                z,
                columns,
                smooth,
                square,
            )
            return numbers, columns, smooth, square

        numbers, columns, smooth, squares = zip(*self._each_piece(derivatives), strict=True)
        value, apart, smoothed, rows = (sum(each) for each in zip(*numbers, strict=True))
        factor = self.problem.scale * shard.n / rows
        a_z = factor * _total(columns)
        square = sum(squares, np.zeros((d, d)))
        return newton.Derivatives(
            value=factor * value,
            apart=factor * apart,
            smoothed=factor * smoothed,
            columns=a_z,
            columns_smooth=a_z if before is None else factor * _total(smooth),
            # an entry beside the diagonal is in one of two places
            square=factor * (square + square.T - np.diag(np.diag(square))),
            passes=rows / shard.n,
        )

    def _order(
        self, state: DualState, cursor: int, visits: int, index: int, block: Block
    ) -> tuple[list[NDArray[np.uint32]], int]:
        """What the block visits next, after that many: by pass, numbers of its buckets; and their size."""
        if state.active is None:
            return order_of_visits(self.seed, self.rank, index, cursor, visits, block.buckets), block.bucket
        rows = np.flatnonzero(state.active[block.first : block.last]).astype(np.uint32)
        if not len(rows):
            return [], 1
        # the same share of what is left
        visits = -((-visits * len(rows)) // block.buckets)
        order = order_of_visits(self.seed, self.rank, index, cursor, visits, len(rows))
        return [rows[part] for part in order], 1


def _total(vectors: Sequence[Vector]) -> Vector:
    """Their sum, in place of the first."""
    total, *others = vectors
    for vector in others:
        total += vector
    return total


def compile_kernels(dtype: np.dtype[np.float32] | np.dtype[np.float64]) -> None:
    """Compile every kernel the solver calls for values of that dtype (or load it from numba's cache on disk)."""
    indptr = np.array([0, 1], dtype=np.uint64)
    one = np.ones(1)
    indices = np.zeros(1, dtype=np.uint32)
    values = np.ones(1, dtype=dtype)
    loss = losses.loss("hinge")
    kernels.shuffle(indices.copy(), np.uint64(0))
    kernels.due(one, 0, 1, 1, indices, NOBODY, 1, indices.copy())
    rows = (indptr, indices, values)
    kernels.sdca(*rows, one, one, one, np.zeros(1), np.zeros(1), indices, 1.0, loss, NOBODY, NOT_CENTRED, 0.0)
    shard_kernels.centre(indptr, values, 1, one.copy(), one.copy())
    shard_kernels.squares_of_columns(indices, values, np.zeros(1))
    kernels.loss_sum(indptr, indices, values, one, one, one, 0, 1, loss)
    kernels.products(indptr, indices, values, one, 0, 1, np.zeros(1))
    kernels.gap_sum(indptr, indices, values, one, one, one, one, 1.0, one, 0, 1, 1, 0, loss)
    kernels.conjugate_sum(one, one, one, one, 1.0, 0, 1, loss)
    point = (one, one, one, NO_STEP, 0, 1, 1, loss, 1.0)
    kernels.second_order(*rows, *point, np.zeros(1), np.zeros(1), np.zeros(1), np.zeros((1, 1)))
    kernels.add_columns(indptr, indices, values, one, 0, 1, np.zeros(1))
    kernels.into_domain(loss, one, one, np.zeros(1))
    kernels.advance(np.zeros(1), np.zeros(1), one, 1.0, 1.0)
