"""How data is to be cut into shards."""

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from acccocoa.errors import UsageError
from acccocoa.manifest import By

Format = Literal["binary", "libsvm"]
"""How shards are written."""

SHARDS_MOST: Final = 4096
"""All are open at the same time while they are written."""

MEMORY_LEAST: Final = 256 << 20
"""With less than this nothing can be cut."""

BASE_BYTES: Final = 192 << 20
"""Of the memory allowed, what Python, the libraries and the parser need."""


@dataclass(frozen=True)
class Plan:
    """How to cut.

    shards : K;  by, seed : see acccocoa.manifest;  memory : bytes to stay below;  format : of the shards
    dtype : of the values, np.float32 or np.float64

    Raises
    ------
    UsageError : one of them is out of its bounds
    """

    shards: int
    by: By = "examples"
    seed: int = 0
    memory: int = 2 * 10**9
    format: Format = "binary"
    dtype: Any = np.float32

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= SHARDS_MOST:
            raise UsageError(f"--shards {self.shards}", f"must be from 1 to {SHARDS_MOST}")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"--seed {self.seed}", "must be at least 0 and below 2^63")
        if self.memory < MEMORY_LEAST:
            raise UsageError(f"--memory {self.memory}", f"must be at least {MEMORY_LEAST >> 20} MiB")

    @property
    def budget(self) -> int:
        """Bytes for data in memory."""
        return self.memory - BASE_BYTES

    @property
    def entry_bytes(self) -> int:
        """Bytes of an index and a value."""
        return 4 + int(np.dtype(self.dtype).itemsize)

    def name(self, number: int) -> str:
        """The file name of a shard."""
        width = len(str(self.shards - 1))
        suffix = "shard" if self.format == "binary" else "txt"
        return f"part-{number:0{width}}-of-{self.shards}.{suffix}"
