"""Every setting is one flag and one environment variable, and arrives in its dataclass."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import click
import pytest
from click.testing import CliRunner, Result

from acccocoa.config import (
    AlgorithmConfig,
    ClusterConfig,
    DataConfig,
    ObjectiveConfig,
    OutputConfig,
    RecoveryConfig,
    StopConfig,
)
from acccocoa.options import option, options
from coordinator import job
from coordinator.cli import main
from coordinator.settings import Settings

# ------------------------------------------------------------------------------------------------ a command of our own


@dataclass(frozen=True)
class Engine:
    """A dataclass with a field of every kind."""

    speed: float = option(1.5, "how fast")
    limit: float | None = option(None, "at most", type=float)
    cylinders: int = option(4, "how many")
    fuel: str = option("diesel", "what it burns", choices=("diesel", "petrol"))
    name_plate: str | None = option(None, "what it is called", type=str, metavar="NAME")
    turbo: bool = option(False, "with a turbocharger")
    belt: bool = option(True, "with a belt", flag="--belt/--no-belt")
    C: float | None = option(None, "upper case", flag="--C", type=float)


@dataclass(frozen=True)
class HTTPWheelSize:
    """Its argument is called h_t_t_p_wheel_size."""

    wheel: int = option(17, "inches")


def built(arguments: list[str], **environment: str) -> tuple[Result, list[Any]]:
    seen: list[Any] = []

    @click.group(context_settings={"auto_envvar_prefix": "SHOP"})
    def shop() -> None: ...

    @shop.command()
    @options(Engine, HTTPWheelSize)
    def build(engine: Engine, h_t_t_p_wheel_size: HTTPWheelSize) -> None:
        seen.extend([engine, h_t_t_p_wheel_size])

    return CliRunner(env=environment).invoke(shop, ["build", *arguments]), seen


def test_defaults() -> None:
    result, seen = built([])
    assert result.exit_code == 0
    assert seen == [Engine(), HTTPWheelSize()]


def test_flags() -> None:
    line = "--speed 2 --limit 3 --cylinders 6 --fuel petrol --name-plate x --turbo --no-belt --C 1e-3 --wheel 19"
    _, seen = built(line.split())
    assert seen == [Engine(2.0, 3.0, 6, "petrol", "x", True, False, 0.001), HTTPWheelSize(19)]
    assert isinstance(seen[0].speed, float)


def test_environment() -> None:
    variables = {
        "SHOP_BUILD_SPEED": "2", "SHOP_BUILD_LIMIT": "3", "SHOP_BUILD_CYLINDERS": "6", "SHOP_BUILD_FUEL": "petrol",
        "SHOP_BUILD_NAME_PLATE": "x", "SHOP_BUILD_TURBO": "true", "SHOP_BUILD_BELT": "false", "SHOP_BUILD_C": "1e-3",
        "SHOP_BUILD_WHEEL": "19",
    }  # fmt: skip
    _, seen = built([], **variables)
    assert seen == [Engine(2.0, 3.0, 6, "petrol", "x", True, False, 0.001), HTTPWheelSize(19)]


def test_a_flag_wins_over_the_environment() -> None:
    _, seen = built(["--speed", "3", "--belt"], SHOP_BUILD_SPEED="2", SHOP_BUILD_BELT="0")
    assert seen[0] == Engine(speed=3.0, belt=True)


def test_an_empty_variable_is_none() -> None:
    _, seen = built([], SHOP_BUILD_SPEED="", SHOP_BUILD_LIMIT="", SHOP_BUILD_TURBO="", SHOP_BUILD_NAME_PLATE="")
    assert seen[0] == Engine()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--cylinders", "4.5"],
        ["--speed", "fast"],
        ["--fuel", "coal"],
        ["--name-plate"],
        ["--turbo=1"],
        ["--speeed", "1"],
    ],
    ids=" ".join,
)
def test_bad_values_name_the_flag(arguments: list[str]) -> None:
    result, seen = built(arguments)
    assert result.exit_code == 2
    assert arguments[0].partition("=")[0] in result.stderr
    assert seen == []


def test_bad_values_of_the_environment_name_the_flag() -> None:
    result, _ = built([], SHOP_BUILD_CYLINDERS="many")
    assert result.exit_code == 2
    assert "--cylinders" in result.stderr
    assert "many" in result.stderr


def test_help_states_what_an_option_does_and_its_default() -> None:
    result, _ = built(["--help"])
    text = " ".join(result.stdout.split())
    for words in ("--speed FLOAT how fast [default: 1.5]", "--name-plate NAME what it is called", "--belt / --no-belt"):
        assert words in text
    assert "None" not in text


# ----------------------------------------------------------------------------------------------------- the real command

CONFIGS = (ClusterConfig, DataConfig, ObjectiveConfig, AlgorithmConfig, StopConfig, OutputConfig, RecoveryConfig)

FIELDS = [(config, field) for config in CONFIGS for field in dataclasses.fields(config)]

every_field = pytest.mark.parametrize(("config", "field"), FIELDS, ids=[field.name for _, field in FIELDS])

VALUES = {"l1_ratio": "0.5", "loss_parameter": "0.25", "gamma": "0.5", "partition": "examples", "class_weight": "1=7"}
"""Values for the fields that do not take just anything."""

COMPANIONS: dict[str, tuple[str, ...]] = {
    "loss_parameter": ("--loss", "smoothed_hinge"),
    "intercept": ("--loss", "logistic"),
    "adopt": ("--workers", "7"),
    "manifest": ("--workers", "7"),
    "resume": ("--checkpoint", "7"),
    "allow_change": ("--checkpoint", "7", "--resume"),
}
"""Further options a field does not go without."""


def flag_of(field: "dataclasses.Field[Any]") -> str:
    return field.metadata["flag"].split("/")[0] or "--" + field.name.replace("_", "-")


def sample(field: "dataclasses.Field[Any]") -> str:
    """Some value other than the default, as text; the default itself where there is no other."""
    if isinstance(field.default, bool):
        return str(not field.default).lower()
    if field.name in VALUES:
        return VALUES[field.name]
    if isinstance(field.metadata["type"], click.Choice):
        choices = [str(choice) for choice in field.metadata["type"].choices]
        return next((choice for choice in reversed(choices) if choice != field.default), choices[0])
    return "7"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Result, dict[type, Any]]]:
    """Runs `acccocoa-coordinator train` up to where the job would begin; returns the settings by class."""
    seen: dict[type, Any] = {}

    def train(settings: Settings) -> int:
        values = [getattr(settings, field.name) for field in dataclasses.fields(settings)]
        seen.update({type(value): value for value in values})
        return 0

    monkeypatch.setattr(job, "train", train)

    def run(*arguments: str, **environment: str) -> tuple[Result, dict[type, Any]]:
        seen.clear()
        return CliRunner(env=environment).invoke(main, ["train", *arguments]), seen

    return run


@every_field
def test_every_field_is_a_flag(config: type, field: "dataclasses.Field[Any]", trained: Callable[..., Any]) -> None:
    text = sample(field)
    if isinstance(field.default, bool):
        flags = field.metadata["flag"].split("/")
        arguments = [flags[-1] if field.default else flag_of(field)]
    else:
        arguments = [flag_of(field), text]
    result, seen = trained(*arguments, *COMPANIONS.get(field.name, ()))
    assert result.exit_code == 0, result.output
    check_arrived(seen, config, field, text)


@every_field
def test_every_field_is_an_environment_variable(
    config: type, field: "dataclasses.Field[Any]", trained: Callable[..., Any]
) -> None:
    text = sample(field)
    result, seen = trained(*COMPANIONS.get(field.name, ()), **{f"ACCCOCOA_TRAIN_{field.name.upper()}": text})
    assert result.exit_code == 0, result.output
    check_arrived(seen, config, field, text)


IMPLIED = {"standardize": {"normalize"}}
"""Fields that an option sets beside its own."""


def check_arrived(seen: dict[type, Any], config: type, field: "dataclasses.Field[Any]", text: str) -> None:
    value = getattr(seen[config], field.name)
    assert value != field.default or field.metadata["type"].choices == (field.default,)
    assert str(value).lower() in {text, f"{text}.0"}
    others = [f for f in dataclasses.fields(config) if f.name != field.name]
    companions = {argument.removeprefix("--") for argument in COMPANIONS.get(field.name, ())} | IMPLIED.get(
        field.name, set()
    )
    assert all(getattr(seen[config], f.name) == f.default for f in others if f.name not in companions)


def test_data_from_the_environment(trained: Callable[..., Any]) -> None:
    _, seen = trained(ACCCOCOA_TRAIN_DATA="first second")
    assert seen[tuple] == ("first", "second")
    _, seen = trained("third", ACCCOCOA_TRAIN_DATA="first second")
    assert seen[tuple] == ("third",)


BAD_VALUES = [
    ("--lam", "0"), ("--lam", "-1"), ("--lam", "nan"), ("--lam", "inf"), ("--lam", "much"),
    ("--C", "0"), ("--C", "-1"), ("--C", "nan"),
    ("--l1-ratio", "-0.1"), ("--l1-ratio", "1.1"), ("--l1-ratio", "nan"),
    ("--bias", "0"), ("--bias", "-1"), ("--bias", "inf"), ("--class-weight", "1"), ("--class-weight", "1=0"),
    ("--class-weight", "1=-2"), ("--class-weight", "yes=2"), ("--class-weight", "1=2,1=3"), ("--class-weight", "1=nan"),
    ("--loss", "cubic"), ("--positive-label", "yes"),
    ("--tol", "0"), ("--tol", "-1"), ("--tol", "nan"), ("--tol", "inf"),
    ("--abs-tol", "-1"), ("--abs-tol", "0"),
    ("--max-rounds", "0"), ("--max-rounds", "-3"), ("--max-rounds", "1.5"),
    ("--max-seconds", "0"), ("--max-seconds", "-1"),
    ("--gamma", "0"), ("--gamma", "1.5"), ("--gamma", "nan"), ("--sigma", "0"), ("--sigma", "inf"),
    ("--positive-label", "nan"),
    ("--restart", "sometimes"), ("--local-epochs", "0"), ("--local-epochs", "-1"), ("--local-epochs", "1e300"),
    ("--threads", "0"), ("--threads", "-2"), ("--seed", "-1"), ("--seed", "9223372036854775808"), ("--seed", "1.5"),
    ("--local", "0"), ("--local", "-1"), ("--local", "two"), ("--connect-timeout", "0"), ("--silence", "0"),
    ("--worker-patience", "-1"), ("--worker-patience", "nan"), ("--worker-patience", "inf"), ("--dtype", "float16"),
]  # fmt: skip


@pytest.mark.parametrize(("flag", "value"), BAD_VALUES, ids=[f"{flag} {value}" for flag, value in BAD_VALUES])
@pytest.mark.parametrize("by", ["flag", "environment"])
def test_bad_values_end_with_exit_code_2_and_name_the_flag(
    flag: str, value: str, by: Literal["flag", "environment"], trained: Callable[..., Any]
) -> None:
    if by == "flag":
        result, seen = trained(flag, value)
    else:
        result, seen = trained(**{"ACCCOCOA_TRAIN_" + flag.removeprefix("--").upper().replace("-", "_"): value})
    assert result.exit_code == 2, result.output
    assert flag in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert seen == {}


@pytest.mark.parametrize("word", ["squared_hinge", "squared-hinge"])
def test_hyphens_are_as_good_as_underscores(word: str, trained: Callable[..., Any]) -> None:
    result, seen = trained("--loss", word, "--normalize", "features_maxabs")
    assert result.exit_code == 0, result.output
    assert (seen[ObjectiveConfig].loss, seen[ObjectiveConfig].normalize) == ("squared_hinge", "features-maxabs")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--lam", "1", "--C", "1"), "--lam and --C"),
        (("--local", "2", "--workers", "localhost:1"), "--local and --workers"),
        (("--manifest", "x"), "--manifest: is for --workers"),
        (("--resume",), "--resume: needs --checkpoint"),
        (("--allow-change",), "--allow-change: needs --resume"),
        (("--loss", "squared", "--positive-label", "1"), "--positive-label 1: the squared loss knows no classes"),
        (("--max-rounds", "0"), "--max-rounds 0: must be a whole number >= 1"),
        (("--local", "0"), "--local 0: must be a whole number >= 1"),
        (("--loss", "hinge", "--loss-parameter", "1"), "--loss-parameter 1: the hinge loss takes none"),
        (("--loss", "smoothed_hinge", "--loss-parameter", "0"), "--loss-parameter 0:"),
        (("--loss", "epsilon_insensitive", "--loss-parameter", "-1"), "--loss-parameter -1:"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...], named: str, trained: Callable[..., Any]) -> None:
    result, seen = trained(*arguments)
    assert result.exit_code == 2
    assert named in result.stderr
    assert seen == {}
