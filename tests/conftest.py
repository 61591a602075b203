"""Processes for tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes import Launcher
from tests.support.forked import Forkery


@pytest.fixture(scope="session")
def forkery() -> Iterator[Forkery]:
    """Starts processes at once."""
    with Forkery() as started:
        yield started


@pytest.fixture
def launch(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Launcher]:
    """Starts processes for one test, in an empty directory: at once, or with the mark `as_users_do` as users do."""
    as_users_do = request.node.get_closest_marker("as_users_do") is not None
    launcher = Launcher.under(tmp_path, None if as_users_do else request.getfixturevalue("forkery"))
    yield launcher
    launcher.close()
