"""What tests of recovery share."""

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acccocoa import synthetic
from tests.cluster.arena import HINGE, Arena, Undisturbed
from tests.cluster.compose import Project, engine_missing, remove_image
from tests.support.forked import Forkery


@pytest.fixture(scope="session")
def covtype_like(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 examples in the likeness of covtype."""
    path = tmp_path_factory.mktemp("data") / "covtype.txt"
    synthetic.write("covtype", 2000, 54, 1, path)
    return path


@pytest.fixture
def arena(forkery: Forkery, tmp_path: Path) -> Iterator[Callable[..., Arena]]:
    """Makes arenas, which end in order when the test is over."""
    made: list[Arena] = []

    def make(data: Path, count: int = 3, **options: Any) -> Arena:
        directory = tmp_path / f"arena{len(made)}"
        directory.mkdir()
        made.append(Arena(forkery, directory, data, count, **options))
        return made[-1]

    yield make
    try:
        for one in made:
            one.close()
    finally:
        for one in made:
            one.kill()


@pytest.fixture(scope="session")
def undisturbed(forkery: Forkery, covtype_like: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """HINGE on `covtype_like` by three workers of a thread to whom nothing happens: the same bits every time."""
    some = Arena(forkery, tmp_path_factory.mktemp("undisturbed"), covtype_like, 3)
    try:
        found = some.undisturbed(*HINGE)
        some.close()
    finally:
        some.kill()
    return found


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """A name for the image, which the first project builds and the others find built."""
    missing = engine_missing()
    if missing and "CI" not in os.environ:
        pytest.skip(missing)
    assert not missing
    name = f"acccocoa-test-image:{secrets.token_hex(4)}"
    yield name
    remove_image(name)


@pytest.fixture
def project(image: str) -> Iterator[Project]:
    """A project on small generated data, that is gone after the test."""
    project = Project(image)
    project.settings |= {
        "ACCCOCOA_GENERATE_N": "3000",
        "ACCCOCOA_GENERATE_D": "2000",
        "ACCCOCOA_TRAIN_JSON": "1",
        "ACCCOCOA_TRAIN_TOL": "1e-4",
    }
    try:
        yield project
    finally:
        project.close()
