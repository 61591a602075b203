"""Seeded runs under faults; tests.cluster.chaos has the command that runs any number."""

import sys
from pathlib import Path

import pytest

from tests.cluster.chaos import many_runs, tally

SOME = range(1520, 1528)
MANY = range(1520, 1540)
"""Among them every kind of fault and every task."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [SOME, pytest.param(MANY, marks=pytest.mark.soak)], ids=["some", "many"])  # 2 minutes
def test_runs_under_faults(tmp_path: Path, seeds: range) -> None:
    results = many_runs(seeds, 3, tmp_path, lambda _: None)
    print(tally(results), file=sys.stderr)
    bad = [f"seed {result.seed}: {result.failure}" for result in results if result.failure]
    assert not bad, "\n".join(bad)
