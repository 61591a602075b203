"""The K workers of a job as one: scatter w_t, gather certificates and A_k dz_k, find lost workers again."""

import functools
import operator
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from acccocoa import __version__
from acccocoa.errors import ClusterError, UsageError, WorkerBusy, WorkerLost, WorkerUnreachable
from acccocoa.folds import Fold, Scores
from acccocoa.losses import Vector
from acccocoa.problem import PrimalDual, Subproblem
from acccocoa.protocol import PROTOCOL_VERSION
from acccocoa.v1 import worker_pb2 as pb
from coordinator.handshake import Job, ShardDescription
from coordinator.link import Answer, Asked, WorkerLink, fold_message
from coordinator.messages import Ask, Resync, StateLost
from coordinator.normalize import Measure, Scaling
from coordinator.order import SharedOrder
from coordinator.outer_loop import Contribution

T = TypeVar("T")

AS_IT_IS = Scaling()

WATCH_SECONDS = 0.25
"""How often the silence of the workers is looked at."""

SIGNAL_SECONDS = 0.2
"""How long Ctrl-C may go unnoticed."""

RETRY_SECONDS = 0.5
"""Pause between two attempts to reach a lost worker."""

ADOPT_SHARE = 0.25
ADOPT_SECONDS = 30.0
"""Others are asked to adopt a shard when its worker has been away for this share of patience, or so many seconds."""

LOG_BYTES = 1 << 27
LOG_ROUNDS = 10_000
"""How much is remembered of the rounds there were, for workers that come back from an earlier one."""

LOSSES = 20
"""A worker may be lost so many times before the best gap improves; see Cluster."""


class Cluster:
    """All workers of a job. Messages overlap; results come in rank order, whatever order they arrive in.

    A worker that is lost in a round is looked for until `patience` is over. Found with its state, it is asked the same
    again, and nobody else notices. Found with an older state, or with none, it is given the rounds since then once
    more, as far as they are remembered, and computes the same as then. Where they are not, StateLost is raised when the
    others are done, and the run goes on by a resync.

    Patience is a budget: it is renewed when the run's best gap improves (`improved`), not when the worker comes back. A
    worker that dies in every round would otherwise keep the run busy for ever. Every loss takes at least 1 / LOSSES of
    it, however soon the worker is back.

    Parameters
    ----------
    links : of every worker
    order : of the shared vectors that are pushed and returned; known once the job has begun
    patience : seconds to wait for a lost worker
    adopt : whether other workers are asked to serve the shard of one that stays away
    queue : whether to wait for workers that are busy with another job, when it begins
    give_up : looked at while waiting for a lost worker; True ends the wait
    tell : called with a sentence when a worker is lost or found
    while_waiting : called now and then while answers are waited for, in the thread that waits
    """

    def __init__(
        self,
        links: Sequence[WorkerLink],
        *,
        patience: float = 0.0,
        adopt: bool = False,
        queue: bool = False,
        give_up: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.links = list(links)
        self.lost_and_found = 0
        self.replayed = 0
        self.adopted = 0
        self._adopt = adopt
        self._lost: set[WorkerLink] = set()
        self.order = SharedOrder([], 0)
        self._logs: list[_Log] = []
        self._patience = patience
        self._spent: dict[WorkerLink, float] = {}
        self._queue = queue
        self._deadline = 0.0
        self.give_up = give_up
        self.while_waiting: Callable[[], None] = lambda: None
        self._tell = tell
        # by problem that is not solved yet: the state that its round under way starts from
        self._states: dict[int, tuple[int, str]] = {}
        self._pool = ThreadPoolExecutor(len(self.links), thread_name_prefix="worker")
        self._columns: list[NDArray[np.uint32]] = []
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._watch_silence, name="silence", daemon=True)
        self._watch.start()

    def _watch_silence(self) -> None:
        while not self._closed.wait(WATCH_SECONDS):
            for link in self.links:
                link.check_silence()

    def _each(self, work: Callable[[WorkerLink], T]) -> list[T]:
        """Run the work for every worker at the same time, to the end of all.

        Of several failures the first in rank order is raised.
        """
        futures = [self._pool.submit(work, link) for link in self.links]
        # with a limit: a signal that another thread receives does not wake this one up, which alone runs the handler
        while wait(futures, SIGNAL_SECONDS).not_done:
            self.while_waiting()
        failures = [error for error in (future.exception() for future in futures) if error is not None]
        if failures:
            raise failures[0]
        return [future.result() for future in futures]

    def connect(
        self, timeout: float, job_id: str = "", gone: Callable[[], ClusterError | None] = lambda: None
    ) -> list[ShardDescription]:
        """Wait until every worker is ready, and learn what each holds.

        From here on the workers' ranks follow their shards' content hashes: the numbers of a run then depend on the
        data alone, not on which machine came up at which address.

        Raises
        ------
        WorkerUnreachable, WorkerRefused
        """
        self._deadline = time.monotonic() + timeout
        shards = self._each(lambda link: self._describe(link, job_id, gone))
        order = sorted(range(len(shards)), key=lambda rank: shards[rank].content_hash)
        self.links = [self.links[rank] for rank in order]
        for rank, link in enumerate(self.links):
            link.rank = rank
            link.part = shards[order[rank]].part
        return [shards[rank] for rank in order]

    def _describe(self, link: WorkerLink, job_id: str, gone: Callable[[], ClusterError | None]) -> ShardDescription:
        """Wait until the worker is ready, and free for that job if need be."""
        told = False
        while True:
            link.wait_serving(self._deadline, gone)
            try:
                shard = link.describe(max(1.0, self._deadline - time.monotonic()))
            except (WorkerLost, WorkerUnreachable):  # it ended just now
                if time.monotonic() > self._deadline:
                    raise
            else:
                late = time.monotonic() + RETRY_SECONDS > self._deadline
                if not self._queue or shard.job_id in ("", job_id) or late:
                    return shard
                if not told:
                    self._tell(f"waiting for {link}, which is held by job {shard.job_id}")
                    told = True
            if self._closed.wait(RETRY_SECONDS):
                raise WorkerUnreachable(str(link), "is no longer waited for")

    def measure(
        self, measure: Measure, shards: Sequence[ShardDescription], length: int, fold: Fold | None = None
    ) -> Vector:
        """What is to be known of all shards together, by number of the column, row or fold; 0 where there is none.

        Raises
        ------
        ClusterError : a worker does not answer, or with nonsense
        """
        answers = self._each(lambda link: link.measure(measure, shards[link.rank].content_hash, length, fold))
        total = np.zeros(length)
        for numbers, values in answers:  # in rank order: the same bits every time
            if measure in ("sums_of_columns", "squares_of_columns", "hashes_of_columns", "examples_of_folds"):
                total[numbers] += values
            else:
                total[numbers] = np.maximum(total[numbers], values)
        if measure in ("squares_of_columns", "largest_of_columns"):
            self._columns = [numbers for numbers, _ in answers]
        return total

    def start(
        self,
        shards: Sequence[ShardDescription],
        posed: Sequence[tuple[Job, PrimalDual]],
        job_id: str,
        seed: int,
        *,
        round_number: int = 0,
        lineage: str = "",
        warm: bool = False,
        scaling: Scaling = AS_IT_IS,
        shrinking: bool = False,
        fold: Fold | None = None,
        blocks: Sequence[int],
    ) -> bool:
        """Begin the job with every worker, or go on with it; True when all can begin that round without a resync.

        posed : the problems, which differ in nothing but the labels, and their data
        fold : of the examples, to be left out
        blocks : of every worker, in rank order: what its shard is cut into, see task.blocks_in_a_shard
        """
        job, _ = posed[0]
        if scaling.divisors is not None:
            for link, numbers in zip(self.links, self._columns, strict=True):
                link.divisors = scaling.divisors[numbers]

        self._features = job.d
        self._states = dict.fromkeys(range(len(posed)), (round_number, lineage))
        self._logs = [_Log(LOG_BYTES // len(posed)) for _ in posed]
        problems = [
            pb.Problem(
                part=_subproblem(problem.subproblem),
                positive_label=its.positive_label,
                label_weights=[
                    pb.LabelWeight(label=label, weight=weight) for label, weight in its.label_weights.items()
                ],
                round=round_number,
                lineage=lineage,
            )
            for its, problem in posed
        ]

        def start(link: WorkerLink) -> bool:
            return self._begin(
                link,
                pb.Start(
                    protocol_version=PROTOCOL_VERSION,
                    software_version=__version__,
                    job_id=job_id,
                    rank=link.rank,
                    seed=seed,
                    shrinking=shrinking,
                    blocks=blocks[link.rank],
                    shared=job.shared,
                    problems=problems,
                    content_hash=shards[link.rank].content_hash,
                    warm=warm,
                    send_labels=job.by_features and link.rank == 0,
                    bias=None if job.bias is None or job.by_features else pb.Bias(value=job.bias, feature=job.d),
                    scaling=pb.Scaling.Value(f"SCALING_{scaling.kind.upper()}"),
                    fold=None if job.by_features else fold_message(fold),
                ),
                shards[link.rank],
            )

        while True:
            try:
                ready = all(self._each(start))
                break
            except WorkerBusy:
                if not self._queue or time.monotonic() > self._deadline:
                    raise
            # another coordinator may hold some of them and wait for the others, as this one does: let it have them
            for link in self.links:
                link.start_over()
            if self._closed.wait(RETRY_SECONDS * (1.0 + random.random())):
                raise WorkerUnreachable("workers", "are no longer waited for")

        self.order = SharedOrder([link.support for link in self.links], job.shared)
        for link, places in zip(self.links, self.order.places, strict=True):
            link.places = places
        return ready

    def _begin(self, link: WorkerLink, message: pb.Start, shard: ShardDescription) -> bool:
        try:
            link.start(message, shard)
        except WorkerLost as lost:
            return not self._find_again(link, lost)
        return all(position.ready for position in link.positions)

    @property
    def labels(self) -> Vector:
        """By features: the labels of all examples, in the cluster's order; float64, shape (n,)."""
        return self.order.ordered(self.links[0].labels)

    @property
    def weights(self) -> Vector | None:
        """By features: the examples' own weights, if they have any, in the cluster's order; float64, shape (n,)."""
        weights = self.links[0].weights
        return None if weights is None else self.order.ordered(weights)

    @property
    def buckets(self) -> list[tuple[int, ...]]:
        """By worker and block: buckets in a pass."""
        return [link.buckets for link in self.links]

    def answers(self, asks: Mapping[int, Ask | Resync]) -> dict[int, Any]:
        """See coordinator.training.Workers. A problem that nothing is asked for any more is solved."""
        self._states = {
            problem: (ask.round, ask.lineage) if isinstance(ask, Resync) else (ask.request.round, ask.request.lineage)
            for problem, ask in asks.items()
        }
        found: dict[int, Any] = {}
        lost: set[int] = set()
        for problem, ask in asks.items():
            if isinstance(ask, Resync):
                found[problem], lost_meanwhile = self._resynced(problem, ask)
                lost = (lost | lost_meanwhile) - {problem}
        rounds = {p: ask for p, ask in asks.items() if isinstance(ask, Ask) and p not in lost}
        if rounds:
            self._push(rounds)
            parts = self._gather()
            for problem, ask in rounds.items():
                if ask.request.finish:  # from here on no round leads anywhere
                    self._logs[problem].clear()
                answers = [part[problem] for part in parts if problem in part]
                if len(answers) < len(parts):
                    lost.add(problem)
                else:
                    found[problem] = self._answer(problem, ask, answers, len(rounds))
        return found | {problem: StateLost(f"problem {problem}") for problem in lost}

    def _push(self, rounds: Mapping[int, Ask]) -> None:
        for problem, ask in rounds.items():
            self._logs[problem].note(ask)
        self._each(
            lambda link: link.push(
                [Asked(problem, ask.request, ask.works[link.rank], ask.w) for problem, ask in rounds.items()]
            )
        )

    def _answer(self, problem: int, ask: Ask, answers: Sequence[Answer], together: int) -> Any:
        """What Ask promises, of every worker's answer; it came with those of so many problems."""
        request = ask.request
        if request.certify and not request.solve:
            return [answer.certificate for answer in answers]
        if request.audit:
            return [answer.audit for answer in answers]
        if request.coordinates:
            return self._alpha([answer.coordinates for answer in answers if answer.coordinates is not None])
        if not request.solve:
            return [answer.sample for answer in answers]
        updates = [answer.update for answer in answers if answer.update is not None]
        self._logs[problem].forget([update.kept for update in updates])
        # they all were waited for at the same time: a share of that is for each
        last = max(update.arrived for update in updates)
        return [replace(update, arrived=last - (last - update.arrived) / together) for update in updates]

    def _alpha(self, parts: Sequence[tuple[NDArray[np.uint32], Vector]]) -> Vector:
        """The alpha of all workers as one vector, by the numbers of their rows."""
        alpha = np.zeros(self._features)
        for rows, values in parts:
            if len(rows) and int(rows.max()) >= len(alpha):
                raise WorkerLost("workers", "answered for features that the data does not have")
            alpha[rows] = values
        return alpha

    def _resynced(self, problem: int, to: Resync) -> tuple[list[Contribution], set[int]]:
        """Every worker's A_k alpha_k, and the problems whose state has been lost meanwhile."""
        self._logs[problem].clear()

        def resync(link: WorkerLink) -> tuple[Contribution, set[int]]:
            lost: set[int] = set()
            while True:
                try:
                    return link.resync(problem, to.round, to.lineage), lost
                except WorkerLost as error:
                    lost |= self._find_again(link, error)

        contributions, lost = zip(*self._each(resync), strict=True)
        return list(contributions), set().union(*lost)

    def score(self, w: Vector) -> Scores:
        """By examples: how well w predicts the fold that is left out."""

        def score(link: WorkerLink) -> Scores:
            while True:
                try:
                    return link.score(w)
                except WorkerLost as lost:
                    self._find_again(link, lost)

        return functools.reduce(operator.add, self._each(score))

    def _gather(self) -> list[dict[int, Answer]]:
        """Every worker's answers by problem, but of those whose state it has lost."""

        def receive_or_recover(link: WorkerLink) -> dict[int, Answer]:
            while True:
                try:
                    return link.answers()
                except WorkerLost as lost:
                    link.push_again(but=self._find_again(link, lost))

        return self._each(receive_or_recover)

    def _find_again(self, link: WorkerLink, lost: WorkerLost) -> set[int]:
        """Wait for a lost worker; the problems of which it cannot begin the round under way.

        Raises
        ------
        WorkerLost : patience is over, or there is a reason to give up waiting
        """
        began = time.monotonic()
        left = self._patience - self._spent.get(link, 0.0)
        if self._patience > 0 and left <= 0:
            raise WorkerLost(
                lost.offender,
                f"{lost.requirement}, so often since the gap last improved that its patience is used up",
                lost.remedy,
            )
        if self._patience > 0:
            self._tell(f"{lost}; waiting up to {left:.3g} s for it")
        why: ClusterError | UsageError = lost
        adoption = _Adoption(link, self.links, self._tell) if self._adopt else None
        adopt_at = began + min(ADOPT_SHARE * self._patience, ADOPT_SECONDS)
        self._lost.add(link)
        try:
            while time.monotonic() < began + left and not self.give_up():
                try:
                    if adoption is not None and time.monotonic() > adopt_at:
                        adoption.ask(self._lost)
                    link.reopen(self._states, began + left)
                    self.lost_and_found += 1
                    self.adopted += link.address == link.elsewhere
                    return self._replay(link)
                except (ClusterError, UsageError) as error:  # a file of addresses may be missing for a moment
                    why = error
                    if self._closed.wait(RETRY_SECONDS):
                        break
        finally:
            self._lost.discard(link)
            waited = max(time.monotonic() - began, self._patience / LOSSES)
            self._spent[link] = self._spent.get(link, 0.0) + waited
        if why is lost:
            raise lost
        raise WorkerLost(
            lost.offender,
            f"{lost.requirement}, and could not be had back within {left:.3g} s ({why.requirement})",
            why.remedy or lost.remedy,
        ) from why

    def _replay(self, link: WorkerLink) -> set[int]:
        """Lead a worker that is back to the starts of the rounds under way; the problems where that is not possible."""
        behind = [problem for problem in self._states if not link.positions[problem].ready]
        if not behind:
            self._tell(f"{link} is back")
            return set()
        known = {
            problem: self._logs[problem].since(link.positions[problem].at, self._states[problem]) for problem in behind
        }
        count = sum(len(rounds) for rounds in known.values() if rounds is not None)
        if count:
            self._tell(f"{link} is back and repeats the last {count} rounds")
        else:
            self._tell(f"{link} is back without its state of this round")
        for problem, rounds in known.items():
            for ask in rounds or ():
                link.replay(Asked(problem, ask.request, ask.works[link.rank], ask.w))
        self.replayed += count
        return {problem for problem, rounds in known.items() if rounds is None}

    def finish(self) -> None:
        """End the job with every worker, in order; another one may begin."""
        self._logs = []
        self._each(WorkerLink.finish)

    def improved(self) -> None:
        """The run's best gap has improved: patience with every worker is as at the beginning."""
        self._spent.clear()

    @property
    def bytes_pushed(self) -> int:
        """Bytes of messages sent to the workers."""
        return sum(link.bytes_pushed for link in self.links)

    @property
    def bytes_returned(self) -> int:
        """Bytes of messages received from the workers."""
        return sum(link.bytes_returned for link in self.links)

    def close(self) -> None:
        """End all streams; the workers are free for the next job."""
        self._closed.set()
        for link in self.links:
            link.close()
        self._pool.shutdown()
        self._watch.join()


class _Adoption:
    """Looks for another worker that serves a lost one's shard, too: one after the other, from the next rank on."""

    def __init__(self, link: WorkerLink, links: Sequence[WorkerLink], tell: Callable[[str], None]) -> None:
        self._link = link
        self._others = deque([*links[link.rank + 1 :], *links[: link.rank]])
        self._tell = tell
        self._told: set[str] = set()

    def ask(self, lost: Collection[WorkerLink]) -> None:
        """Ask whoever's turn it is, the next one when that one cannot."""
        part = self._link.part
        if part is None:
            self._say(f"nobody can take the shard of {self._link} over: what it is part of is not known")
            return
        for _ in range(len(self._others)):
            other = self._others[0]
            if other not in lost:
                self._say(f"asking {other} to serve {part}, too")
                try:
                    self._link.elsewhere = other.adopt(part) or self._link.elsewhere
                except ClusterError as error:
                    self._say(f"it does not: {error}")
                    self._others.rotate(-1)
                return
            self._others.rotate(-1)

    def _say(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            self._tell(sentence)


def _subproblem(part: Subproblem) -> pb.Subproblem:
    """As the wire has it."""
    return pb.Subproblem(
        logistic=part.loss.logistic,
        classifier=part.loss.classifier,
        epsilon=part.loss.epsilon,
        curvature=part.loss.curvature,
        bound=part.loss.bound,
        lipschitz=part.lipschitz,
        scale=part.scale,
        labelled=part.labelled,
        centred=part.centred,
    )


class _Log:
    """The rounds that were solved since the last resync, as they were asked for; the oldest are forgotten first."""

    def __init__(self, limit: int) -> None:
        """limit : bytes"""
        self._rounds: deque[Ask] = deque()
        self._limit = limit
        self._bytes = 0
        self._marked: int | None = None
        self._kept: list[tuple[int, str]] = []

    def clear(self) -> None:
        """Forget everything: no state from before leads to the present one."""
        self._rounds.clear()
        self._bytes = 0

    def note(self, ask: Ask) -> None:
        """A request goes out."""
        request = ask.request
        if request.mark:
            self._marked = request.round
        if not request.solve:
            return
        # whatever part of the round asked for the mark
        mark = request.mark or self._marked == request.round
        self._rounds.append(replace(ask, request=replace(request, mark=mark)))
        self._bytes += ask.w.nbytes
        while self._bytes > self._limit or len(self._rounds) > LOG_ROUNDS:
            self._drop()

    def forget(self, kept: Sequence[tuple[int, str] | None]) -> None:
        """Forget the rounds before the ones that the workers would come back to, having written their state down."""
        states = [state for state in kept if state is not None]
        if len(states) < len(kept) or states == self._kept:
            return
        self._kept = states
        known = {(ask.request.round, ask.request.lineage) for ask in self._rounds}
        if known.issuperset(states):
            while self._rounds[0].request.round < min(number for number, _ in states):
                self._drop()

    def _drop(self) -> None:
        self._bytes -= self._rounds.popleft().w.nbytes

    def since(self, state: tuple[int, str | None], now: tuple[int, str]) -> list[Ask] | None:
        """The rounds that lead from that state to the start of the round under way; None when they are not known."""
        rounds = [ask for ask in self._rounds if ask.request.round < now[0]]
        for at, first in enumerate(rounds):
            if (first.request.round, first.request.lineage) == state:
                last = rounds[-1].request
                return rounds[at:] if (last.round + 1, last.next_lineage) == now else None
        return None
