"""How many workers the data is worth when the user does not say."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from acccocoa.config import (
    KINK,
    MARGINS,
    AlgorithmConfig,
    ClusterConfig,
    DataConfig,
    ObjectiveConfig,
    OutputConfig,
    StopConfig,
)
from acccocoa.examples import Examples
from coordinator.opening import LOOSE, worthwhile_workers
from coordinator.settings import Settings

ROWS, ENTRIES = 40_000, 60


def settings_of(objective: ObjectiveConfig, tol: float = 1e-3, reading: DataConfig | None = None) -> Settings:
    """Everything else as by default."""
    return Settings(
        ["data"],
        ClusterConfig(),
        reading or DataConfig(),
        objective,
        AlgorithmConfig(),
        StopConfig(tol=tol),
        OutputConfig(),
    )


def rows_over(d: int, norm: float = 1.0) -> Examples:
    """Rows of that norm with features spread over 0 to d - 1."""
    indices = np.arange(ROWS * ENTRIES, dtype=np.int64) * 7919 % d
    return Examples(
        np.arange(ROWS + 1, dtype=np.int64) * ENTRIES,
        indices.astype(np.int32),
        np.full(ROWS * ENTRIES, norm / ENTRIES**0.5, dtype=np.float32),
        np.resize([1.0, -1.0], ROWS),
    )


FEW, SOME, MANY = rows_over(100), rows_over(5_000), rows_over(1_000_003)


@pytest.mark.parametrize(
    ("loss", "curvature"), [("logistic", MARGINS), ("hinge", KINK), ("squared_hinge", 2.0), ("smoothed_hinge", 2.0)]
)
def test_more_workers_where_rows_are_coupled_loosely(loss: str, curvature: float) -> None:
    lam = curvature / (ROWS * LOOSE)
    longer = rows_over(5_000, 2.0)

    def workers(by: float, examples: Examples = SOME, **how: Any) -> int:
        settings = settings_of(ObjectiveConfig(loss=loss, lam=by * lam, **how))
        return worthwhile_workers(settings, examples, "examples", one_strength=True)

    # the more there are, the shorter their steps
    assert [workers(by) for by in (0.99, 1.01, 1.51, 2.01, 1e9)] == [1, 2, 3, 4, 4]
    # twice the norm is four times the coupling
    assert [workers(by, longer) for by in (3.96, 4.04)] == [1, 2]
    assert workers(1.01, longer, normalize="rows") == 2
    assert [workers(by, bias=1.0) for by in (1.98, 2.02)] == [1, 2]
    assert [workers(by, class_weight="1=9") for by in (8.91, 9.09)] == [1, 2]


@pytest.mark.parametrize(
    "settings",
    [
        settings_of(ObjectiveConfig(loss="logistic", lam=1.0), tol=1e-4),
        settings_of(ObjectiveConfig(loss="logistic", lam=1.0), reading=DataConfig(weights="w")),
        settings_of(ObjectiveConfig(loss="logistic", lam=1.0, multiclass="ovr")),
        settings_of(ObjectiveConfig(loss="logistic", lam=1.0, normalize="features-std")),
    ],
    ids=["to-1e-4", "weights", "multiclass", "features-std"],
)
def test_one_where_that_is_not_known_to_pay(settings: Settings) -> None:
    assert worthwhile_workers(settings, SOME, "examples", one_strength=True) == 1


def test_one_where_messages_are_dear_or_strengths_fall_or_there_is_little_to_do() -> None:
    loosely = settings_of(ObjectiveConfig(loss="logistic", lam=1.0))
    assert worthwhile_workers(loosely, SOME, "examples", one_strength=True) > 1
    assert worthwhile_workers(loosely, MANY, "examples", one_strength=True) == 1
    assert worthwhile_workers(loosely, SOME, "examples", one_strength=False) == 1
    assert worthwhile_workers(loosely, SOME, "features", one_strength=True) == 1
    small = replace(
        SOME,
        indptr=SOME.indptr[: ROWS // 2],
        labels=SOME.labels[: ROWS // 2 - 1],
        indices=SOME.indices[: SOME.indptr[ROWS // 2 - 1]],
        values=SOME.values[: SOME.indptr[ROWS // 2 - 1]],
    )
    assert worthwhile_workers(loosely, small, "examples", one_strength=True) == 1


def test_two_where_features_are_few_whatever_the_loss() -> None:
    for one_strength in (True, False):
        assert (
            worthwhile_workers(settings_of(ObjectiveConfig(loss="hinge", lam=1e-6)), FEW, "examples", one_strength) == 2
        )
