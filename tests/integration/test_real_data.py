"""Public data sets, where they are at hand: the certified gap holds against LIBLINEAR's optimum.

Budget of the whole, on two cores: 15 minutes, most of it LIBLINEAR's.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.integration.data import SOLVERS, Loaded, liblinear_optimum, load, only_json, weights
from tests.integration.processes import Launcher

DIRECTORY = Path(__file__).parents[3] / "shared" / "data"

SETS = {"a9a": 1e-4, "covtype68k.scale": 1e-5, "w8a": 1e-4, "imdb": 1e-3, "kdd99_10pct": 1e-4}
"""lam by data set."""

TOL = 1e-3

QUICK = {("a9a", "logistic")}

CASES = [
    pytest.param(name, loss, id=f"{name}-{loss}", marks=() if (name, loss) in QUICK else pytest.mark.soak)
    for name in SETS
    for loss in SOLVERS
]


@dataclass
class Table:
    """What came of the cases, printed when all are done."""

    lines: list[str] = field(default_factory=list)

    def add(self, name: str, loss: str, *values: str) -> None:
        self.lines.append(f"{name:<17} {loss:<14} " + " ".join(f"{value:>13}" for value in values))


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    """Shown above the summary of the run, whatever is captured."""
    made = Table()
    made.add(
        "set", "loss", "lam", "primal", "dual", "LIBLINEAR", "above it", "rounds", "solve s", "total s", "LIBLINEAR s"
    )
    yield made
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n" + "\n".join(made.lines))


@pytest.fixture(scope="module")
def loaded() -> dict[str, Loaded]:
    """Data sets already read."""
    return {}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "loss"), CASES)
def test_against_liblinear(name: str, loss: str, launch: Launcher, table: Table, loaded: dict[str, Loaded]) -> None:
    path = DIRECTORY / f"{name}.xz"
    if not path.exists():
        pytest.skip(f"the data set {name} is not at hand")
    lam = SETS[name]
    train = (
        "train",
        path,
        "--local",
        2,
        "--loss",
        loss,
        "--lam",
        lam,
        "--tol",
        TOL,
        "--no-cache",
        "--json",
        "--model",
        "m",
    )
    trained = launch.run("coordinator", *train, seconds=600)
    assert trained.exit_code == 0, trained.stderr
    result = only_json(trained.stdout)

    if name not in loaded:
        loaded.clear()
        loaded[name] = load(path)
    data = loaded[name]
    w = np.zeros(data.rows.shape[1])
    found = weights(launch.directory / "m")
    w[: len(found)] = found
    assert data.primal(loss, lam, w, 1.0) == pytest.approx(result["primal"], rel=1e-9)

    began = time.monotonic()
    optimum = liblinear_optimum(data, loss, lam, 1.0, epsilon=1e-3 if loss == "hinge" else 1e-6)
    seconds = time.monotonic() - began
    above = result["primal"] / optimum - 1
    table.add(
        *(
            name,
            loss,
            f"{lam:g}",
            f"{result['primal']:.8g}",
            f"{result['dual']:.8g}",
            f"{optimum:.8g}",
            f"{above:+.1e}",
        ),
        *(
            str(result["rounds"]),
            f"{result['seconds']['solve']:.2f}",
            f"{result['seconds']['total']:.2f}",
            f"{seconds:.2f}",
        ),
    )
    assert result["relative_gap"] <= TOL
    assert above <= TOL
    assert result["dual"] <= optimum * (1 + 1e-9)
