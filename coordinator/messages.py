"""What travels between the coordinator and its workers in a round, as plain values."""

from dataclasses import dataclass

from coordinator.outer_loop import Contribution


class StateLost(Exception):
    """A lost worker is back, but not where the round under way begins: the run must go on by a resync."""


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """What all workers are asked in a round; symbols as in Algorithm 1.

    certify, audit, solve : answers asked for, in this order
    mark : keep a copy of the state at the start of the round
    finish : let y_t be the job's final dual point
    repeats_w : w_t is that of the last request and need not travel again
    """

    round: int
    theta: float
    gamma: float
    sigma: float
    restart: bool
    certify: bool = False
    audit: bool = False
    solve: bool = False
    mark: bool = False
    finish: bool = False
    repeats_w: bool = False


@dataclass(frozen=True, slots=True)
class CertificateTerms:
    """A worker's sums for the certificate at (y_t, w_t), without the factor 1/n."""

    conjugate_sum: float
    loss_sum: float
    compute_seconds: float


@dataclass(frozen=True, slots=True)
class WorkerUpdate:
    """A worker's answer to a round: its contribution, and what it cost.

    arrived : when the whole answer was here, on time.monotonic's clock
    """

    contribution: Contribution
    steps: int
    compute_seconds: float
    arrived: float
