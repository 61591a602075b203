"""Workers without processes or wire: the real local solver behind the interface the run uses.

For tests of the mathematics and for counting rounds, where what is between coordinator and worker does not matter.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from acccocoa import partition, shardfile
from acccocoa.examples import Examples
from acccocoa.losses import Vector
from acccocoa.problem import PrimalDual
from coordinator.messages import Ask, CertificateTerms, GapSample, Resync, RoundRequest, StateLost, WorkerUpdate
from coordinator.order import SharedOrder
from coordinator.outer_loop import Contribution
from coordinator.schedule import Work, plan_work
from worker.local_solver import LocalSolver, RoundPlan
from worker.shard import Shard, build, build_by_features, with_constant_feature
from worker.state import DualState


class InProcessWorkers:
    """K workers, each with a part of the examples, solved one after the other.

    shards, solvers, states : of every worker, for tests to look into
    """

    def __init__(
        self,
        examples: Examples,
        problem: PrimalDual,
        k: int,
        *,
        positive_label: float = 1.0,
        seed: int = 0,
        threads: int = 1,
        weights: Vector | None = None,
        label_weights: Mapping[float, float] | None = None,
        bias: float | None = None,
        shrinking: bool = False,
        sharing: int = 1,
    ) -> None:
        """Make them.

        weights, label_weights, bias : by examples; by features the problem has them
        sharing : threads of each worker that share what needs no blocks
        """
        digest = shardfile.content_hash(examples)
        sizes = np.diff(examples.indptr)
        self._features = examples.d
        self._length = examples.n if problem.alpha_is_model else examples.d + (bias is not None)
        self.shards: list[Shard] = [
            build_by_features(examples, digest, part, k, threads)
            if problem.alpha_is_model
            else build(examples, digest, partition.cut_examples(sizes, part, k), threads)
            for part in range(k)
        ]
        if weights is not None:
            self.shards = [replace(shard, weights=weights[shard.rows]) for shard in self.shards]
        if bias is not None:
            self.shards = [with_constant_feature(shard, bias, examples.d) for shard in self.shards]
        pool = ThreadPoolExecutor(max(threads, sharing))
        options: dict[str, Any] = {"shrinking": shrinking, "threads": sharing}
        self.solvers = [
            LocalSolver(shard, problem.subproblem, positive_label, rank, seed, pool, label_weights, **options)
            for rank, shard in enumerate(self.shards)
        ]
        self.states = [DualState.zeros(shard.n, len(shard.blocks)) for shard in self.shards]
        self.bytes_pushed = 0
        self.bytes_returned = 0
        self._request: RoundRequest | None = None
        self._works: Sequence[Work] = ()
        self._w: Vector = np.empty(0)

    @property
    def features(self) -> int:
        """Length of the shared vector by examples."""
        return max(shard.d for shard in self.shards)

    @property
    def order(self) -> SharedOrder:
        """See coordinator.training.Workers: that of the data."""
        return SharedOrder([], self._length)

    @property
    def blocks(self) -> int:
        """K of the algorithm."""
        return sum(len(shard.blocks) for shard in self.shards)

    def plan(self, epochs: float) -> list[Work]:
        """Every worker's work for rounds of so many passes."""
        return [plan_work([block.buckets for block in shard.blocks], epochs) for shard in self.shards]

    def _plan(self, rank: int) -> RoundPlan:
        assert self._request is not None
        request, work = self._request, self._works[rank]
        return RoundPlan(
            request.round,
            request.theta,
            request.gamma,
            request.sigma,
            work.visits,
            work.fraction,
            request.restart,
            request.screen,
            request.accuracy,
            request.enough,
            request.stride,
        )

    def answers(self, asks: Mapping[int, Ask | Resync]) -> dict[int, Any]:
        """See coordinator.training.Workers; of one problem."""
        (ask,) = asks.values()
        try:
            return {0: self._answer(ask)}
        except StateLost as lost:
            return {0: lost}

    def _answer(self, ask: Ask | Resync) -> Any:
        if isinstance(ask, Resync):
            return self.resync(ask.round, ask.lineage)
        request = ask.request
        self.push(request, ask.works, ask.w)
        if request.certify:
            certificates = self.certificates()
            if not request.solve:
                return certificates
            pairs = zip(self.updates(), certificates, strict=True)
            return [replace(update, certificate=certificate) for update, certificate in pairs]
        if request.audit:
            return self.audits()
        if request.coordinates:
            return self.coordinates()
        if request.solve:
            return self.updates()
        return self.samples() if request.sample else self._settled()

    def push(self, request: RoundRequest, works: Sequence[Work], w: Vector) -> None:
        """Bring every worker's state to the start of the round."""
        self._request, self._works, self._w = request, works, w
        for rank, state in enumerate(self.states):
            assert state.begin(request.round, request.lineage)
            if request.restart:
                state.restart()
            if request.finish:
                state.finish(self._plan(rank).gamma_theta, request.next_lineage, self.solvers[rank].project)

    def certificates(self) -> list[CertificateTerms]:
        """As coordinator.messages says of Ask and Resync."""
        return [
            CertificateTerms(
                solver.conjugate_sum(state, self._plan(rank).gamma_theta),
                0.0 if solver.indicator else solver.loss_sum(self._w[shard.support]),
                0.0,
                solver.largest_product(self._w[shard.support]) if solver.indicator else 0.0,
            )
            for rank, (solver, state, shard) in enumerate(zip(self.solvers, self.states, self.shards, strict=True))
        ]

    def audits(self) -> list[Contribution]:
        """As coordinator.messages says of Ask and Resync."""
        answers = [
            Contribution(shard.support, solver.columns(state, self._plan(rank).gamma_theta))
            for rank, (solver, state, shard) in enumerate(zip(self.solvers, self.states, self.shards, strict=True))
        ]
        self._settled()
        return answers

    def _settled(self) -> list[None]:
        """The job may have ended."""
        for state in self.states:
            state.settle()
        return [None] * len(self.states)

    def coordinates(self) -> Vector:
        """As coordinator.messages says of Ask and Resync."""
        alpha = np.zeros(self._features)
        for rank, (state, shard) in enumerate(zip(self.states, self.shards, strict=True)):
            alpha[shard.rows] = state.y(self._plan(rank).gamma_theta)
        return alpha

    @property
    def count(self) -> int:
        """How many coordinates there are."""
        return sum(shard.n for shard in self.shards)

    def resync(self, round_number: int, lineage: str) -> list[Contribution]:
        """As coordinator.messages says of Ask and Resync."""
        for state in self.states:
            state.resync(round_number, lineage)
        return [
            Contribution(shard.support, solver.columns(state, 1.0))
            for solver, state, shard in zip(self.solvers, self.states, self.shards, strict=True)
        ]

    def updates(self) -> list[WorkerUpdate]:
        """As coordinator.messages says of Ask and Resync."""
        assert self._request is not None
        samples = self.samples() if self._request.sample else None
        updates = []
        for rank, (solver, state, shard) in enumerate(zip(self.solvers, self.states, self.shards, strict=True)):
            a_dz, steps = solver.solve(state, self._plan(rank), self._w[shard.support])
            assert state.pending is not None
            assert self._request is not None
            state.pending.lineage = self._request.next_lineage
            contribution = Contribution(shard.support, a_dz, self._works[rank].fraction)
            sample = None if samples is None else samples[rank]
            at = state.pending.standing
            standing = None if at is None else CertificateTerms(at.conjugate_sum, at.loss_sum, 0.0)
            updates.append(WorkerUpdate(contribution, steps, 0.0, 0.0, sample, standing=standing))
        return updates

    def samples(self) -> list[GapSample]:
        """As coordinator.messages says of Ask and Resync."""
        assert self._request is not None
        return [
            GapSample(
                *solver.gap_sample(state, self._plan(rank).gamma_theta, self._w[shard.support], self._request.sample)
            )
            for rank, (solver, state, shard) in enumerate(zip(self.solvers, self.states, self.shards, strict=True))
        ]
