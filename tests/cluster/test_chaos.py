"""Twenty seeded runs under faults; tests.cluster.chaos has the command that runs any number."""

import sys
from pathlib import Path

import pytest

from tests.cluster.chaos import many_runs, tally

SEEDS = range(1520, 1540)
"""Among them every kind of fault and every task."""


@pytest.mark.timeout(900)
def test_twenty_runs_under_faults(tmp_path: Path) -> None:
    results = many_runs(SEEDS, 3, tmp_path, lambda _: None)
    print(tally(results), file=sys.stderr)
    bad = [f"seed {result.seed}: {result.failure}" for result in results if result.failure]
    assert not bad, "\n".join(bad)
