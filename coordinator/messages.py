"""What travels between the coordinator and its workers in a round, as plain values."""

from dataclasses import dataclass

from coordinator.outer_loop import Contribution


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """What all workers are asked in a round; symbols as in Algorithm 1."""

    round: int
    theta: float
    gamma: float
    sigma: float
    restart: bool
    certify: bool
    solve: bool = True


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
