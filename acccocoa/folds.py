"""Cross-validation without moving data: which fold an example is in follows from its own entries.

The hash of an example is the sum of the hashes of its entries, each of 32 bits of (feature number, value). A sum needs
no order, so that workers who have only some of the features each can tell their share of it, and equal examples are
always in the same fold, whatever the shards. The sums stay below 2^53 and are exact in float64.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acccocoa import losses
from acccocoa.losses import Loss, Vector

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_BITS_32 = 2.0**32


@dataclass(frozen=True, slots=True)
class Fold:
    """One of `folds` parts of the examples, number 0 .. folds - 1; another seed makes other parts."""

    folds: int
    number: int
    seed: int


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits (the finaliser of SplitMix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


def entry_hashes(features: NDArray[np.integer], values: NDArray[np.floating]) -> Vector:
    """The hash of every entry, 0 for a value of 0: whole numbers below 2^32 as float64, shape (entries,).

    features : 0-based numbers in all of the data;  values : as they are stored
    """
    number = (features.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    bits = np.asarray(values, dtype=np.float64).view(np.uint64)
    return np.where(values == 0, 0.0, (_mix(bits ^ number) >> np.uint64(32)).astype(np.float64))


def folds_of(hashes: Vector, folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of every example, from the sum of its entries' hashes (float64, shape (n,)); int64, shape (n,)."""
    bits = np.fmod(hashes, _BITS_32).astype(np.uint64)
    mixed = _mix(bits * _GOLDEN + _mix(np.array([seed], dtype=np.uint64)))
    # the high half of a product of 32-bit numbers: even to within 2^-32 * folds
    return (((mixed >> np.uint64(32)) * np.uint64(folds)) >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Scores:
    """How well examples are predicted.

    examples : their number;  loss_sum : sum of s_i loss(y_i, p_i)
    correct : classifiers: how many predictions are on their label's side of 0
    squared_error : regression: sum of (y_i - p_i)^2
    """

    examples: int
    loss_sum: float
    correct: int
    squared_error: float

    def __add__(self, other: "Scores") -> "Scores":
        return Scores(
            self.examples + other.examples,
            self.loss_sum + other.loss_sum,
            self.correct + other.correct,
            self.squared_error + other.squared_error,
        )


def score(loss: Loss, y: Vector, p: Vector, s: Vector) -> Scores:
    """Of predictions p; y : +1 / -1 for classifiers;  s : weights; all float64, shape (examples,)."""
    return Scores(
        examples=len(y),
        loss_sum=float((s * losses.value(loss, y, p)).sum()),
        correct=int(((p > 0.0) == (y > 0.0)).sum()) if loss.classifier else 0,
        squared_error=0.0 if loss.classifier else float(((y - p) ** 2).sum()),
    )
