"""Pure decisions about rounds: how much work, and when to certify. They depend on counts, never on clocks, so that the
same seed takes the same decisions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

CERTIFICATE_SHARE = 0.1
"""Share of the passes made so far that passes for certificates should stay under."""

CERTIFICATE_PASSES = 0.4
"""What a certificate costs, in passes of the local solver (it reads the data once and writes nothing)."""


@dataclass(frozen=True, slots=True)
class Work:
    """A worker's work in a round.

    visits : by block, buckets to visit;  fraction : p_k, the share of its coordinates (at most 1);  passes : visits as
    a share of all its buckets, may be more than 1
    """

    visits: tuple[int, ...]
    fraction: float
    passes: float


def plan_work(buckets: Sequence[int], epochs: float) -> Work:
    """Visits for a worker whose blocks have that many buckets; at least one bucket of every block."""
    visits = tuple(max(1, round(epochs * count)) for count in buckets)
    shares = [visit / count for visit, count in zip(visits, buckets, strict=True)]
    return Work(visits, min(1.0, *shares), sum(visits) / sum(buckets))


class CertificateSchedule:
    """When to certify: often enough to stop soon after the target is reached, rarely enough to cost little.

    Parameters
    ----------
    target : relative gap to stop at
    every_round : certify always
    """

    def __init__(self, target: float, every_round: bool = False) -> None:
        self._target = target
        self._every_round = every_round
        self._next = 0.0
        self._last: tuple[float, float] | None = None

    def state(self) -> list[float]:
        """What `restore` needs."""
        return [self._next, *(self._last or ())]

    def restore(self, state: Sequence[float]) -> None:
        """Be where `state` was called."""
        self._next = state[0]
        self._last = (state[1], state[2]) if len(state) == 3 else None

    def due(self, passes: float) -> bool:
        """Certify in the round that begins after that many passes over the data?"""
        return self._every_round or passes >= self._next

    def certified(self, passes: float, relative_gap: float) -> None:
        """A certificate was made after `passes`; plan the next one.

        The logarithm of the gap is followed in a straight line from the last certificate to the target; the next
        certificate comes a little before that, but neither so soon that certificates would dominate nor so late that
        a wrong forecast would cost more than half of what was already done.
        """
        soonest = CERTIFICATE_PASSES / CERTIFICATE_SHARE * 0.25 if passes > 0 else 1.0
        wait = max(soonest, 0.25 * passes)
        if self._last is not None:
            last_passes, last_gap = self._last
            if 0 < relative_gap < last_gap and passes > last_passes:
                slope = (math.log(last_gap) - math.log(relative_gap)) / (passes - last_passes)
                ahead = (math.log(relative_gap) - math.log(self._target)) / slope
                wait = max(soonest, min(0.9 * ahead, 0.5 * passes))
        self._last = (passes, relative_gap)
        self._next = passes + wait
