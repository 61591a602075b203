"""What travels between the coordinator and its workers in a round, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass

from acccocoa.losses import Vector
from acccocoa.problem import Ball
from coordinator.outer_loop import Contribution
from coordinator.schedule import Work


class StateLost(Exception):
    """A lost worker is back, but not where the round under way begins: the run must go on by a resync."""


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """What all workers are asked in a round; symbols as in Algorithm 1.

    certify, audit, coordinates, solve : the answer that is asked for: one of them, or certify and solve; none of them,
        where a sample is, or where nothing is to be told
    lineage, next_lineage : of the state the round starts from, and of that it leads to; round and lineage together name
        a state
    replay : solve, but answer nothing: the answer is known
    mark : keep a copy of the state at the start of the round
    finish : let y_t be the job's final dual point
    sample : estimate the gap from every sample-th group of rows; 0: do not
    repeats_w : w_t is that of the last request and need not travel again
    narrow : w_t is rounded to float32, and so is A_k dz_k to be
    accuracy : with solve, relative, of the minimum of G_k by Newton's method; 0: by coordinate ascent
    enough : with solve, of a sole worker, not narrow: the round ends after any pass by which the relative gap is no
        larger, which is looked at where every stride-th group of rows says so; 0: it does not. By Newton's method it
        ends as `accuracy` says. See WorkerUpdate.standing
    screen : with solve, from here on leave out what seems to be 0 at the optimum
    """

    round: int
    theta: float
    gamma: float
    sigma: float
    restart: bool
    lineage: str = ""
    next_lineage: str = ""
    replay: bool = False
    certify: bool = False
    audit: bool = False
    coordinates: bool = False
    solve: bool = False
    mark: bool = False
    finish: bool = False
    sample: int = 0
    repeats_w: bool = False
    narrow: bool = False
    accuracy: float = 0.0
    enough: float = 0.0
    stride: int = 1
    screen: Ball | None = None


@dataclass(frozen=True, slots=True)
class CertificateTerms:
    """A worker's terms of the certificate at (y_t, w_t), without the factor `scale`.

    conjugate_sum : of g at y_t;  loss_sum : of g* at -A_i'w_t, 0 where g* is an indicator
    largest : max |A_i'w_t| where g* is an indicator, else 0
    """

    conjugate_sum: float
    loss_sum: float
    compute_seconds: float
    largest: float = 0.0


@dataclass(frozen=True, slots=True)
class GapSample:
    """Sum of the gaps of some of a worker's coordinates at (y_t, w_t), without the factor `scale`, and their number."""

    gap_sum: float
    sampled: int


@dataclass(frozen=True, slots=True)
class WorkerUpdate:
    """A worker's answer to a round: its contribution, and what it cost.

    arrived : when the whole answer was here, on time.monotonic's clock
    sample : at the start of the round, where that was asked for too
    kept : round and lineage of the newest state that the worker has written down, if any
    certificate : at the start of the round, where that was asked for too
    standing : where the round has ended as `enough` says: alpha = z = z_{t+1}, the contribution is A z_{t+1}, from the
        dual variables alone, and these are the certificate's terms of (z_{t+1}, w_{t+1}), w_{t+1} = grad f(A z_{t+1})
    """

    contribution: Contribution
    steps: int
    compute_seconds: float
    arrived: float
    sample: GapSample | None = None
    kept: tuple[int, str] | None = None
    certificate: CertificateTerms | None = None
    standing: CertificateTerms | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A round, or a part of it, that all workers are asked at the same time.

    works : of every worker, in rank order;  w : w_t, float64, shape (d,)

    The answers come in rank order: list[CertificateTerms] (certify), list[Contribution] of A_k y_k (audit), Vector, the
    alpha of all workers at y_t (coordinates), list[WorkerUpdate] (solve, with or without certify), list[GapSample] (a
    sample and nothing else), or a list of None.
    """

    request: RoundRequest
    works: Sequence[Work]
    w: Vector


@dataclass(frozen=True, slots=True)
class Resync:
    """All workers are to go on from z := alpha, and that round of that lineage comes next.

    The answer, in rank order, is list[Contribution] of A_k alpha_k.
    """

    round: int
    lineage: str
