"""Public data sets, where they are at hand: each loads with the size its description states."""

import re
from pathlib import Path

import pytest

from acccocoa import libsvm

DIRECTORY = Path(__file__).parents[3] / "shared" / "data"

ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<n>[\d,]+) \| (?P<d>[\d,]+) \| (?P<nnz>[\d,]+) \|", re.MULTILINE)

SIZES = {
    match["name"]: tuple(int(match[key].replace(",", "")) for key in ("n", "d", "nnz"))
    for match in (ROW.finditer((DIRECTORY / "README.md").read_text()) if DIRECTORY.is_dir() else ())
    if (DIRECTORY / f"{match['name']}.xz").exists()
}


@pytest.mark.parametrize("name", SIZES)
def test_size(name: str) -> None:
    found = libsvm.read([str(DIRECTORY / f"{name}.xz")], threads=2)
    assert (found.n, found.d, found.nnz) == SIZES[name]
