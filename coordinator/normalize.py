"""--normalize: which scaling the workers are asked for, and what it means for the model. Pure.

    rows              every example is divided by its euclidean norm; predict must do so, too
    features-maxabs   every feature is divided by its largest magnitude in all of the data; the weights of the model are
                      divided, too, and then fit the data as it is
    features-std      the same with its standard deviation. Nothing is centered: that would make sparse data dense, and
                      with an intercept that is not regularised it changes nothing but the intercept. Without one (by
                      examples) the model is that of features that are scaled and not centered

By examples the rows of a shard are examples, by features they are features: what is done to rows each worker can do by
itself, what is done to columns takes numbers from all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from acccocoa.config import Normalize
from acccocoa.losses import Vector
from acccocoa.statistics import Sizes, deviations
from coordinator.handshake import Job, ShardDescription

Measure = Literal[
    "largest_of_columns",
    "sums_of_columns",
    "squares_of_columns",
    "largest_of_rows",
    "deviations_of_rows",
    "hashes_of_columns",
    "examples_of_folds",
]
"""What workers can tell of their shards, as in the proto."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """What the workers do to their shards; see the proto.

    kind : how
    divisors : of the columns, by position in the shared vector, shape (shared,); kind "columns" only
    features : what each feature is divided by (0: by nothing), shape (d,); None when that is 1 for all
    """

    kind: Literal["none", "row_norms", "largest_of_rows", "deviations_of_rows", "columns"] = "none"
    divisors: Vector | None = None
    features: Vector | None = None

    def weights(self, w: Vector) -> Vector:
        """The weights for data as it is, from those for scaled data; there may be one more, of the bias."""
        if self.features is None:
            return w
        scaled = w.copy()
        features = self.features[: len(w)]
        scaled[: len(features)] /= np.where(features > 0, features, 1.0)
        return scaled


def warnings(normalize: Normalize, shards: Sequence[ShardDescription]) -> list[str]:
    """What the user should know who has not asked to normalise these shards."""
    return [] if normalize != "none" else Sizes.together([shard.sizes for shard in shards]).warnings()


def scaling(normalize: Normalize, job: Job, measure: Callable[[Measure, int], Vector]) -> Scaling:
    """What to ask of the workers.

    Parameters
    ----------
    measure : asks them all; takes a length and returns the combined numbers by position, 0 where there are none
    """
    if normalize == "none":
        return Scaling()
    if normalize == "rows":
        if not job.by_features:
            return Scaling("row_norms")
        return Scaling("columns", np.sqrt(measure("squares_of_columns", job.shared)))
    if normalize == "features-std":
        if job.by_features:
            return Scaling("deviations_of_rows", features=measure("deviations_of_rows", job.d))
        found = deviations(measure("sums_of_columns", job.shared), measure("squares_of_columns", job.shared), job.n)
        return Scaling("columns", found, found[: job.d])
    if not job.by_features:
        largest = measure("largest_of_columns", job.shared)
        return Scaling("columns", largest, largest[: job.d])
    return Scaling("largest_of_rows", features=measure("largest_of_rows", job.d))
