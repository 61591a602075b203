"""Which workers are slower than the others: pure, from the figures of the certified rounds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.training import CertifiedRound

SECONDS_WORTH_NAMING = 0.5
"""A worker is named only when it has cost the run so many seconds: on tiny data times are noise."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A worker that takes `factor` times as long as the median of the others for the same work."""

    rank: int
    factor: float


class Pace:
    """How long each worker takes for its work; an observer of certified rounds.

    Parameters
    ----------
    entries : by rank, stored entries in a row of its shard, in the mean; rows of different length take different times
    """

    def __init__(self, entries: Sequence[float]) -> None:
        self._entries = entries
        self._seconds = [0.0] * len(entries)
        self._steps = [0] * len(entries)

    def __call__(self, seen: CertifiedRound) -> None:
        """Add the round's figures."""
        for rank, worker in enumerate(seen.workers):
            self._seconds[rank] += worker.compute_seconds
            self._steps[rank] += worker.steps

    def stragglers(self, factor: float) -> list[Straggler]:
        """The workers that are slower than the others by that factor, the slowest first."""
        if len(self._entries) < 2 or not all(self._steps):
            return []
        # a row costs a little beside its entries
        costs = [
            seconds / (steps * (entries + 1.0))
            for seconds, steps, entries in zip(self._seconds, self._steps, self._entries, strict=True)
        ]
        found = []
        for rank, cost in enumerate(costs):
            usual = statistics.median(costs[:rank] + costs[rank + 1 :])
            lost = self._seconds[rank] * (1.0 - usual / cost) if cost > 0 else 0.0
            if usual > 0 and cost >= factor * usual and lost >= SECONDS_WORTH_NAMING:
                found.append(Straggler(rank, cost / usual))
        return sorted(found, key=lambda straggler: -straggler.factor)
