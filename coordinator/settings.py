"""Everything the user asked for of a training job."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from acccocoa.config import (
    AlgorithmConfig,
    ClusterConfig,
    DataConfig,
    ObjectiveConfig,
    OutputConfig,
    RecoveryConfig,
    StopConfig,
)


@dataclass(frozen=True)
class Settings:
    """What the user asked for."""

    data: Sequence[str]
    cluster: ClusterConfig
    reading: DataConfig
    objective: ObjectiveConfig
    algorithm: AlgorithmConfig
    stop: StopConfig
    output: OutputConfig
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
