"""By features: the rows of a shard less their means."""

from dataclasses import dataclass

import numpy as np

from acccocoa.losses import Vector
from worker import shard_kernels
from worker.shard import Shard


@dataclass(frozen=True, slots=True)
class CentredRows:
    """What P x_i, P taking the mean off, differs in from x_i; products are x_i'P x_j = x_i'x_j - along_i along_j.

    Attributes
    ----------
    squared_norms : |P x_i|^2, or a little more; 0 exactly where a row is constant; float64, shape (n,)
    along : x_i'1 / |1|, float64, shape (n,)
    """

    squared_norms: Vector
    along: Vector

    @classmethod
    def of(cls, shard: Shard) -> "CentredRows":
        """Those of a shard cut by features, over all examples."""
        squared_norms, along = np.empty(shard.n), np.empty(shard.n)
        shard_kernels.centre(shard.indptr, shard.values, shard.d, squared_norms, along)
        return cls(squared_norms, along)
