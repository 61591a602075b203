"""What there is to know of data before training on it, in one pass."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acccocoa import statistics_kernels as kernels
from acccocoa.examples import LABEL_SPELLINGS_KEPT, Examples

NORM_SPREAD = 20.0
"""Passes grow with the largest norm over the median one; on a9a, a hundred times takes ten times the passes."""

FEATURE_SPREAD = 30.0
"""The same of the largest magnitudes of features, over what a tenth of them stays below; there one feature that is a
hundred times as large as the others takes twenty times the passes. Unscaled sets are above this, text is below."""

CONSTANT = 1e-12
"""A variance below this share of the mean square is the rounding of 0."""


def deviations(sums: NDArray[np.float64], squares: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Of features of n examples, from the sums of their values and of the squares; 0 where a feature is constant."""
    mean_square = squares / n
    variance = mean_square - (sums / n) ** 2
    return np.sqrt(np.where(variance > CONSTANT * mean_square, variance, 0.0))


NEAR = 1 << 26
"""Below this number features are counted in an array by number, beyond it by sorting (a few times slower)."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The smallest, the median and the largest of some numbers, and what a tenth of them stays below (or at)."""

    min: float
    tenth: float
    median: float
    max: float

    @classmethod
    def of(cls, numbers: NDArray[np.float64]) -> "Spread | None":
        """Theirs; None when there are none."""
        if not len(numbers):
            return None
        last = len(numbers) - 1
        places = [0, last // 10, last // 2, (last + 1) // 2, last]
        least, tenth, low, high, largest = np.partition(numbers, places)[places].tolist()
        # halves are taken first: the sum of two large numbers may be beyond float64
        return cls(least, tenth, 0.5 * low + 0.5 * high, largest)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How unequal features and examples are, 0 where that is not known.

    feature_largest, feature_tenth : the largest magnitude of all features, and what those of a tenth of them stay below
    norm_largest, norm_median : of the examples
    """

    feature_largest: float = 0.0
    feature_tenth: float = 0.0
    norm_largest: float = 0.0
    norm_median: float = 0.0

    @classmethod
    def of(cls, feature_maxima: Spread | None, row_norms: Spread | None) -> "Sizes":
        """From both spreads, of what is not 0."""
        feature_largest, feature_tenth = (
            (0.0, 0.0) if feature_maxima is None else (feature_maxima.max, feature_maxima.tenth)
        )
        norm_largest, norm_median = (0.0, 0.0) if row_norms is None else (row_norms.max, row_norms.median)
        return cls(feature_largest, feature_tenth, norm_largest, norm_median)

    @classmethod
    def together(cls, parts: Sequence["Sizes"]) -> "Sizes":
        """At most as unequal as the whole of these parts."""
        return cls(*(max(getattr(part, name) for part in parts) for name in cls.__slots__))

    @property
    def unscaled(self) -> bool:
        """Features differ in scale by so much that training by examples will crawl."""
        return self.feature_largest > FEATURE_SPREAD * self.feature_tenth

    def warnings(self) -> list[str]:
        """What will make training by examples slow, and the option that mends it."""
        found = []
        if self.unscaled:
            found.append(
                f"features differ in scale: the largest magnitude is {self.feature_largest:.6g}, and "
                f"{self.feature_tenth:.6g} for a tenth of them; "
                "coordinate ascent will crawl, --normalize features-maxabs mends it"
            )
        if self.norm_largest > NORM_SPREAD * self.norm_median:
            found.append(
                f"examples differ in norm: the largest is {self.norm_largest:.6g}, the median {self.norm_median:.6g}; "
                "coordinate ascent will crawl, --normalize rows mends it"
            )
        return found


@dataclass(frozen=True, slots=True)
class Summary:
    """What was found.

    Attributes
    ----------
    n, d, nnz : examples, features (largest 0-based number + 1), stored entries
    labels : (label, its spelling, how many), ascending; None when there are more than LABEL_SPELLINGS_KEPT
    label_range : the smallest and the largest; None without examples
    row_norms : of the examples with an entry that is not 0;  empty_rows : number of the others
    feature_maxima : largest magnitudes of the features that occur;  features : how many do
    """

    n: int
    d: int
    nnz: int
    labels: tuple[tuple[float, str, int], ...] | None
    label_range: tuple[float, float] | None
    row_norms: Spread | None
    empty_rows: int
    feature_maxima: Spread | None
    features: int

    @property
    def density(self) -> float:
        """Stored entries over all there could be; 0 without any."""
        return self.nnz / (self.n * self.d) if self.n and self.d else 0.0

    def warnings(self) -> list[str]:
        """What will make training slow, and the option that mends it."""
        return Sizes.of(self.feature_maxima, self.row_norms).warnings()


class FeatureMaxima:
    """The largest magnitude of every feature that occurs, collected piece by piece.

    8 bytes a feature number below NEAR are kept, and 12 a feature that occurs beyond: one large number is no reason to
    ask for memory up to it.
    """

    def __init__(self) -> None:
        self._near: NDArray[np.float64] = np.empty(0)
        self._far = (np.empty(0, np.int32), np.empty(0))
        self._pending: list[tuple[NDArray[np.int32], NDArray[np.float64]]] = []

    def add(self, indices: NDArray[np.int32], values: NDArray[Any]) -> None:
        """Entries of any examples: 0-based feature numbers and their values."""
        largest = int(indices.max(initial=-1))
        if largest >= NEAR:
            far = indices >= NEAR
            self._pending.append(_maxima_of(indices[far], values[far]))
            # merged when there is as much to merge as there is: every entry is sorted a few times only
            if sum(len(features) for features, _ in self._pending) > len(self._far[0]):
                self._merge()
            indices, values = indices[~far], values[~far]
            largest = int(indices.max(initial=-1))
        if largest >= len(self._near):
            room = max(largest + 1, len(self._near) + (len(self._near) >> 2))
            self._near = np.concatenate((self._near, np.full(room - len(self._near), -1.0)))
        kernels.feature_maxima(indices, values, self._near)

    def _merge(self) -> None:
        features, maxima = zip(self._far, *self._pending, strict=True)
        self._far, self._pending = _maxima_of(np.concatenate(features), np.concatenate(maxima)), []

    def found(self) -> NDArray[np.float64]:
        """Those of all features that occurred, in the order of their numbers."""
        self._merge()
        return np.concatenate((self._near[self._near >= 0], self._far[1]))


def _maxima_of(features: NDArray[np.int32], values: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    occurring, places = np.unique(features, return_inverse=True)
    maxima = np.full(len(occurring), -1.0)
    kernels.feature_maxima(places.astype(np.int32), values, maxima)
    return occurring, maxima


def feature_sizes(examples: Examples) -> Sizes:
    """How unequal the features are; nothing of the examples."""
    maxima = FeatureMaxima()
    maxima.add(examples.indices, examples.values)
    found = maxima.found()
    return Sizes.of(Spread.of(found[found > 0]), None)


def row_norms(examples: Examples) -> NDArray[np.float64]:
    """|x_i| of every row, whatever its magnitude; shape (n,)."""
    parts = np.empty((examples.n, 2))
    kernels.squared_norms(examples.indptr, examples.values, parts)
    norms: NDArray[np.float64] = parts[:, 0] * np.sqrt(parts[:, 1])
    return norms


class Statistics:
    """Collects a summary piece by piece; 8 bytes a row and what FeatureMaxima keeps."""

    def __init__(self) -> None:
        self._n = self._d = self._nnz = 0
        self._counts: Counter[float] | None = Counter()
        self._spellings: Mapping[float, str] = {}
        self._range: tuple[float, float] | None = None
        self._norms: list[NDArray[np.float64]] = []
        self._empty = 0
        self._maxima = FeatureMaxima()

    def add(self, piece: Examples) -> None:
        """The next examples."""
        if not piece.n:
            return
        self._n += piece.n
        self._nnz += piece.nnz
        self._d = max(self._d, piece.d)
        self._spellings = piece.spellings
        low, high = float(piece.labels.min()), float(piece.labels.max())
        self._range = (low, high) if self._range is None else (min(low, self._range[0]), max(high, self._range[1]))
        if self._counts is not None:
            labels, counts = np.unique(piece.labels, return_counts=True)
            for label, count in zip(labels.tolist(), counts.tolist(), strict=True):
                self._counts[label] += count
            if len(self._counts) > LABEL_SPELLINGS_KEPT:
                self._counts = None
        norms = row_norms(piece)
        self._norms.append(norms[norms > 0])
        self._empty += piece.n - len(self._norms[-1])
        self._maxima.add(piece.indices, piece.values)

    def summary(self) -> Summary:
        """Of all examples so far."""
        labels = None
        if self._counts is not None and all(label in self._spellings for label in self._counts):
            labels = tuple((label, self._spellings[label], count) for label, count in sorted(self._counts.items()))
        occurring = self._maxima.found()
        return Summary(
            n=self._n,
            d=self._d,
            nnz=self._nnz,
            labels=labels,
            label_range=self._range,
            row_norms=Spread.of(np.concatenate([*self._norms, np.empty(0)])),
            empty_rows=self._empty,
            feature_maxima=Spread.of(occurring[occurring > 0]),
            features=len(occurring),
        )


def as_json(summary: Summary) -> dict[str, Any]:
    """The summary for --json."""

    def spread(found: Spread | None) -> dict[str, float] | None:
        return None if found is None else asdict(found)

    labels = None
    if summary.labels is not None:
        labels = [{"label": label, "spelling": text, "count": count} for label, text, count in summary.labels]
    return {
        "n": summary.n,
        "d": summary.d,
        "nnz": summary.nnz,
        "density": summary.density,
        "labels": labels,
        "label_range": summary.label_range,
        "row_norm": spread(summary.row_norms),
        "empty_rows": summary.empty_rows,
        "feature_maximum": spread(summary.feature_maxima),
        "features": summary.features,
        "warnings": summary.warnings(),
    }
