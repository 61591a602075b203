"""Settings are checked where they are made; the objective they stand for."""

import dataclasses
import math
from typing import Any

import pytest

from acccocoa import losses
from acccocoa.config import (
    LOCAL_EPOCHS_MAX,
    AlgorithmConfig,
    ClusterConfig,
    DataConfig,
    LocalSolver,
    ObjectiveConfig,
    OutputConfig,
    RecoveryConfig,
    StopConfig,
)
from acccocoa.errors import UsageError

CONFIGS = (ClusterConfig, DataConfig, ObjectiveConfig, AlgorithmConfig, StopConfig, OutputConfig, RecoveryConfig)


@pytest.mark.parametrize("config", CONFIGS)
def test_defaults_are_valid_and_frozen(config: type) -> None:
    made = config()
    for field in dataclasses.fields(made):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field.name, None)


def test_no_two_settings_share_a_name() -> None:
    names = [field.name for config in CONFIGS for field in dataclasses.fields(config)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("config", CONFIGS)
def test_every_setting_says_what_it_does(config: type) -> None:
    assert all(field.metadata["help"] for field in dataclasses.fields(config))


@pytest.mark.parametrize(
    ("config", "values", "offender"),
    [
        (ObjectiveConfig, {"lam": 0.0}, "--lam 0"),
        (ObjectiveConfig, {"lam": float("nan")}, "--lam nan"),
        (ObjectiveConfig, {"C": float("inf")}, "--C inf"),
        (ObjectiveConfig, {"lam": 1e-310}, "--lam 1e-310"),
        (ObjectiveConfig, {"lam": 1e-300, "l1_ratio": 1.0 - 1e-16}, "--lam 1e-300"),
        (ObjectiveConfig, {"C": 1e308}, "--C 1e+308"),
        (ObjectiveConfig, {"C": 1e-310}, "--C 1e-310"),
        (ObjectiveConfig, {"lam": 1.0, "C": 1.0}, "--lam and --C"),
        (ObjectiveConfig, {"l1_ratio": 1.1}, "--l1-ratio 1.1"),
        (ObjectiveConfig, {"partition": "features"}, "--loss hinge"),
        (ObjectiveConfig, {"l1_ratio": 1.0}, "--l1-ratio 1 and --loss hinge"),
        (ObjectiveConfig, {"l1_ratio": 1.0, "loss": "logistic", "partition": "examples"}, "--l1-ratio 1"),
        (ObjectiveConfig, {"intercept": True}, "--intercept and --loss hinge"),
        (ObjectiveConfig, {"intercept": True, "partition": "features"}, "--intercept and --loss hinge"),
        (
            ObjectiveConfig,
            {"intercept": True, "loss": "logistic", "partition": "examples"},
            "--intercept and --partition examples",
        ),
        (ObjectiveConfig, {"intercept": True, "loss": "logistic", "bias": 1.0}, "--bias and --intercept"),
        (ObjectiveConfig, {"class_weight": "1=2", "loss": "squared"}, "--class-weight 1=2"),
        (ObjectiveConfig, {"loss": "cubic"}, "loss 'cubic'"),
        (StopConfig, {"tol": 0.0}, "--tol 0"),
        (StopConfig, {"abs_tol": -1.0}, "--abs-tol -1"),
        (StopConfig, {"max_rounds": 0}, "--max-rounds 0"),
        (StopConfig, {"max_seconds": 0.0}, "--max-seconds 0"),
        (AlgorithmConfig, {"gamma": 0.0}, "--gamma 0"),
        (AlgorithmConfig, {"sigma": -1.0}, "--sigma -1"),
        (AlgorithmConfig, {"local_epochs": 0.0}, "--local-epochs 0"),
        (AlgorithmConfig, {"local_epochs": LOCAL_EPOCHS_MAX + 1.0}, "--local-epochs 1001"),
        (AlgorithmConfig, {"deterministic": True, "round_seconds": 0.1}, "--deterministic and --round-seconds"),
        (AlgorithmConfig, {"local_solver": "newton", "local_epochs": 2.0}, "--local-solver newton and --local-epochs"),
        (
            AlgorithmConfig,
            {"local_solver": "newton", "round_seconds": 1.0},
            "--local-solver newton and --round-seconds",
        ),
        (AlgorithmConfig, {"threads": 0}, "--threads 0"),
        (AlgorithmConfig, {"seed": -1}, "--seed -1"),
        (AlgorithmConfig, {"seed": 2**63}, "--seed 9223372036854775808"),
        (ClusterConfig, {"local": 0}, "--local 0"),
        (ClusterConfig, {"connect_timeout": 0.0}, "--connect-timeout 0"),
        (ClusterConfig, {"silence": float("nan")}, "--silence nan"),
        (ClusterConfig, {"worker_patience": -1.0}, "--worker-patience -1"),
        (ClusterConfig, {"local": 1, "workers": "a:1"}, "--local and --workers"),
        (RecoveryConfig, {"resume": True}, "--resume"),
        (RecoveryConfig, {"checkpoint": "x", "allow_change": True}, "--allow-change"),
    ],
)
def test_bad_values(config: type, values: dict[str, Any], offender: str) -> None:
    with pytest.raises(UsageError) as caught:
        config(**values)
    assert caught.value.offender == offender
    assert caught.value.requirement


def test_extremes_that_are_allowed() -> None:
    AlgorithmConfig(seed=2**63 - 1, local_epochs=LOCAL_EPOCHS_MAX, gamma=1e-9, sigma=1e9)
    ClusterConfig(worker_patience=0.0)
    StopConfig(tol=1e-300, max_rounds=1, max_seconds=1e-9)
    ObjectiveConfig(lam=1e-300, l1_ratio=0.999)


@pytest.mark.parametrize("solver", ["auto", "sdca", "newton"])
def test_the_local_solver_goes_with_the_rule_for_the_passes(solver: LocalSolver) -> None:
    assert AlgorithmConfig(local_solver=solver, local_work="auto").local_solver == solver
    if solver != "newton":
        AlgorithmConfig(local_solver=solver, local_epochs=2.0)
        AlgorithmConfig(local_solver=solver, round_seconds=2.0)


@pytest.mark.parametrize(
    ("values", "as_usual"),
    [
        ({}, True),
        ({"local_work": "auto", "threads": 2, "seed": 3, "shrinking": False, "restart": "none"}, True),
        ({"local_solver": "newton"}, True),
        ({"local_epochs": 1.0}, False),
        ({"round_seconds": 1.0}, False),
        ({"sigma": 1.0}, False),
        ({"gamma": 0.5}, False),
        ({"accelerate": False}, False),
    ],
)
def test_rounds_are_as_usual_when_nothing_is_said_of_them(values: dict[str, Any], as_usual: bool) -> None:
    assert AlgorithmConfig(**values).as_usual is as_usual


@pytest.mark.parametrize("name", losses.NAMES)
def test_newtons_method_is_for_every_loss_but_one(name: str) -> None:
    assert losses.loss(name).newton == (name != "epsilon_insensitive")


def test_lam_is_that_of_C() -> None:
    problem = ObjectiveConfig(C=0.5, loss="logistic").problem(200)
    assert problem.lam == pytest.approx(1 / (0.5 * 200), rel=1e-15)
    assert (problem.n, problem.loss_name) == (200, "logistic")


def test_a_C_that_is_too_large_for_so_many_examples() -> None:
    objective = ObjectiveConfig(C=1e280)
    with pytest.raises(UsageError, match=r"--C 1e\+280: makes lam = 1/\(C n\) 0 over 1000"):
        objective.problem(10**30)
    assert objective.strength(10**3) == pytest.approx(1e-283, rel=1e-15)


def test_lam_by_default_and_given() -> None:
    assert ObjectiveConfig().problem(7).lam == 1e-4
    assert ObjectiveConfig(lam=0.25, l1_ratio=0.5).problem(7).lam == 0.25


@pytest.mark.parametrize("name", losses.NAMES)
def test_every_loss_with_its_own_parameter(name: str) -> None:
    default = losses.default_parameter(name)
    assert ObjectiveConfig(loss=name).problem(3).resolved_parameter == default
    if default is not None:
        assert ObjectiveConfig(loss=name, loss_parameter=0.75).problem(3).resolved_parameter == 0.75
    else:
        with pytest.raises(UsageError, match="takes none"):
            ObjectiveConfig(loss=name, loss_parameter=0.75)


@pytest.mark.parametrize(
    ("values", "asks"),
    [
        ({"loss": "squared"}, True),
        ({"loss": "logistic", "l1_ratio": 0.5}, True),
        ({"loss": "hinge"}, False),  # dual coordinates are all there is
        ({"loss": "squared", "l1_ratio": 1.0}, False),
        ({"loss": "squared", "partition": "examples"}, False),
        ({"loss": "squared", "partition": "features"}, False),
        ({"loss": "squared", "normalize": "features-maxabs"}, False),
    ],
)
def test_the_scale_of_features_decides_only_where_both_partitions_can_be_had(
    values: dict[str, Any], asks: bool
) -> None:
    objective = ObjectiveConfig(**values)
    assert objective.asks_for_scale(100, 10) == asks
    assert not objective.asks_for_scale(10, 100)
    if asks:
        assert objective.resolved_partition(100, 10) == "examples"
        assert objective.resolved_partition(100, 10, unscaled=True) == "features"


@pytest.mark.parametrize(
    ("values", "norm", "heaviest", "expected"),
    [
        ({}, 2.0, 1.0, 4.0),
        ({}, 0.0, 1.0, math.inf),
        ({}, 2.0, 3.0, 12.0),
        ({"bias": 1.5}, 2.0, 1.0, 6.25),
        ({"normalize": "rows"}, 2.0, 1.0, 1.0),
        ({"normalize": "rows", "bias": 1.0}, 0.0, 2.0, 4.0),
        ({"normalize": "features-maxabs"}, 2.0, 1.0, 9.0),
        ({"loss": "hinge"}, 2.0, 1.0, 4.0),
        ({"loss": "smoothed_hinge", "loss_parameter": 1e-3}, 2.0, 1.0, 4.0),
        ({"loss": "smoothed_hinge", "loss_parameter": 4.0}, 2.0, 1.0, 0.5),
        ({"loss": "logistic"}, 2.0, 1.0, 0.2),
        ({"loss": "squared"}, 2.0, 1.0, 2.0),
        ({"loss": "epsilon_insensitive"}, 2.0, 1.0, math.inf),
    ],
)
def test_the_coupling_of_rows_as_they_are_trained_on(
    values: dict[str, Any], norm: float, heaviest: float, expected: float
) -> None:
    objective = ObjectiveConfig(**{"loss": "squared_hinge", "lam": 0.02, **values})
    assert objective.coupling_of_rows(100, 9, norm, heaviest) == pytest.approx(expected)


def test_the_coupling_is_that_of_the_data_in_any_unit() -> None:
    objective = ObjectiveConfig(loss="logistic", lam=1e-2, l1_ratio=0.5)
    assert objective.coupling(1000, 0.0) == 0.0
    assert objective.coupling(1000, 20.0) == pytest.approx(20.0)
    scaled = ObjectiveConfig(loss="logistic", lam=1e-2 * 9.0, l1_ratio=0.5)
    assert scaled.coupling(1000, 60.0) == pytest.approx(20.0)
