"""A set of labelled examples: rows of a sparse matrix and their labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

LABEL_SPELLINGS_KEPT = 1024
"""With more distinct labels than this the labels are a regression target, whose spelling nobody asks back."""


@dataclass(frozen=True, slots=True)
class Examples:
    """n examples in compressed sparse rows; features are numbered from 0.

    Attributes
    ----------
    indptr : int64, shape (n + 1,); row i occupies positions indptr[i] to indptr[i + 1]
    indices : int32, shape (nnz,); 0-based feature numbers, strictly ascending within a row
    values : float32 or float64, shape (nnz,)
    labels : float64, shape (n,)
    spellings : each distinct label as it stood in the data, by value (the first spelling met, e.g. {1.0: "+1"});
        empty when there are more than LABEL_SPELLINGS_KEPT distinct labels
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32] | NDArray[np.float64]
    labels: NDArray[np.float64]
    spellings: Mapping[float, str] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.labels)

    @property
    def nnz(self) -> int:
        """Number of stored entries, explicit zeros included."""
        return len(self.indices)

    @property
    def d(self) -> int:
        """Number of features: one more than the largest 0-based feature number, 0 without entries."""
        return int(self.indices.max()) + 1 if self.nnz else 0
