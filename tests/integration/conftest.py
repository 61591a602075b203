"""Workers and data that tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.data import sparse_text
from tests.integration.processes import Launcher, Worker
from tests.support.forked import Forkery


@pytest.fixture(scope="session")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 600 examples with 80 features, labels -1 and +1."""
    path = tmp_path_factory.mktemp("data") / "sparse.txt"
    path.write_bytes(sparse_text(600, 80))
    return path


@pytest.fixture(scope="session")
def pair(sparse: Path, tmp_path_factory: pytest.TempPathFactory, forkery: Forkery) -> Iterator[list[Worker]]:
    """Two workers that serve the halves of `sparse`, for tests that leave them as they were."""
    launcher = Launcher.under(tmp_path_factory.mktemp("pair"), forkery)
    yield launcher.workers(sparse, 2)
    launcher.close()


@pytest.fixture
def addresses(pair: list[Worker]) -> str:
    """--workers for the pair."""
    return ",".join(worker.address for worker in pair)
