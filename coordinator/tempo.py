"""Work by measured speed (--round-seconds): how much each worker does so that all finish a round together. Pure."""

from collections import deque
from collections.abc import Sequence

from acccocoa.config import LOCAL_EPOCHS_MAX
from coordinator.schedule import Work, plan_work, work_of

WINDOW = 16
"""Rounds whose times count, the newest ones; and how many there are between two changes that cost the momentum."""

TOLERANCE = 2.0
"""By what factor a worker's work may be off before that is worth the momentum."""

SHORTEST_SECONDS = 1e-6
"""What the clock tells apart."""


class Tempo:
    """Measures the workers and plans their rounds.

    The order of visits and all that follows from it then depends on clocks: the same seed does not give the same bits.
    Work may only change where z = alpha (see `plan`): elsewhere alpha might leave dom(g).

    Parameters
    ----------
    buckets : by worker and block, buckets in a pass
    seconds : that every worker is to compute in a round
    """

    def __init__(self, buckets: Sequence[Sequence[int]], seconds: float) -> None:
        self._buckets = buckets
        self._seconds = seconds
        self._took: list[deque[tuple[float, float]]] = [deque(maxlen=WINDOW) for _ in buckets]
        self._rounds = 0
        self._plans = 0

    def took(self, works: Sequence[Work], seconds: Sequence[float]) -> None:
        """A round of that work took so long to compute, by worker."""
        self._rounds += 1
        for own, work, took in zip(self._took, works, seconds, strict=True):
            own.append((max(took, SHORTEST_SECONDS), work.passes))

    def plan(self, works: Sequence[Work]) -> list[Work]:
        """The work of the rounds to come; as it is where nothing has been measured yet.

        To be asked for at a (re)start only, where z = alpha.
        """
        if not self._rounds:
            return list(works)
        planned = self._planned()
        self._rounds = 0
        self._plans += 1
        return planned

    def off(self, works: Sequence[Work]) -> bool:
        """Some worker's work is so far from what it should be that a restart is worth its price.

        The first time this is so after one round, because nothing was known before; then never before a window is full.
        """
        if self._rounds < (WINDOW if self._plans else 1):
            return False
        ratios = [new.passes / old.passes for new, old in zip(self._planned(), works, strict=True)]
        return max(*ratios, *(1.0 / ratio for ratio in ratios)) > TOLERANCE

    def _planned(self) -> list[Work]:
        return [
            plan_work(counts, min(LOCAL_EPOCHS_MAX, self._seconds * _speed(own)))
            for counts, own in zip(self._buckets, self._took, strict=True)
        ]

    def works(self, visits: Sequence[Sequence[int]]) -> list[Work] | None:
        """The work of a run that is resumed, from its visits by worker and block; None where its blocks were others."""
        if [len(own) for own in visits] != [len(counts) for counts in self._buckets]:
            return None
        return [work_of(own, counts) for own, counts in zip(visits, self._buckets, strict=True)]


def _speed(took: Sequence[tuple[float, float]]) -> float:
    """Passes a second, from seconds and passes of rounds; without the slowest: who stood still once is not slow."""
    kept = sorted(took, key=lambda one: one[0] / one[1])
    if len(kept) > 2:
        kept.pop()
    return sum(passes for _, passes in kept) / sum(seconds for seconds, _ in kept)
