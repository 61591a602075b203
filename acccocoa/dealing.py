"""How workers that share a directory come to a part of the data each, without anyone telling them which.

The workers are started alike (`acccocoa-worker serve DIR`) and claim numbers 0, 1, 2, ... in the directory. A
coordinator that reaches K of them (`train DATA --workers ... --deal DIR`) puts the data there under a name that says
K and whether its parts are examples or features; the worker with number i < K takes part i of K. Names of both, and of
the contents:
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

By = Literal["examples", "features"]
"""What is dealt."""

_DEALT = re.compile(r"dealt-(?P<parts>[1-9][0-9]*)-by-(?P<by>examples|features)\.shard")


@dataclass(frozen=True, slots=True)
class Deal:
    """How a set of data is dealt: to how many, and by what."""

    parts: int
    by: By

    def path(self, directory: Path) -> Path:
        """The shard file with all the data."""
        return directory / f"dealt-{self.parts}-by-{self.by}.shard"


def claim_path(directory: Path, number: int) -> Path:
    """The file whose lock says that a worker has that number."""
    return directory / f"worker-{number}.lock"


def deals(directory: Path) -> list[Deal]:
    """What is dealt in the directory: as a rule one thing, or nothing yet."""
    found = (_DEALT.fullmatch(path.name) for path in directory.iterdir())
    return [
        Deal(int(match["parts"]), "features" if match["by"] == "features" else "examples") for match in found if match
    ]


def part_hash(content_hash: str, part: int, parts: int) -> str:
    """The content hash of part `part` of `parts` of data with that content hash, hexadecimal."""
    return hashlib.sha256(f"{content_hash}#{part}/{parts}".encode()).hexdigest()


def hash_by(content_hash: str, by: str) -> str:
    """The content hash of a shard whose rows are examples, or features, of what has that content hash."""
    return content_hash if by == "examples" else hashlib.sha256(f"{content_hash} by {by}".encode()).hexdigest()
