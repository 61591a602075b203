"""How workers that share a directory come to a part of the data each, without anyone telling them which.

The workers are started alike (`acccocoa-worker serve DIR`) and claim numbers 0, 1, 2, ... in the directory. A
coordinator that reaches K of them (`train DATA --workers ... --deal DIR`) puts the data there under a name that says
K; the worker with number i < K takes part i of K. Names of both, and of the contents:
"""

import hashlib
import re
from pathlib import Path

_DEALT = re.compile(r"dealt-(?P<parts>[1-9][0-9]*)\.shard")


def dealt_path(directory: Path, parts: int) -> Path:
    """The shard file with all the data, dealt to that many workers."""
    return directory / f"dealt-{parts}.shard"


def claim_path(directory: Path, number: int) -> Path:
    """The file whose lock says that a worker has that number."""
    return directory / f"worker-{number}.lock"


def dealt(directory: Path) -> dict[int, Path]:
    """The files dealt in the directory, by number of parts; as a rule one, or none yet."""
    found = ((_DEALT.fullmatch(path.name), path) for path in directory.iterdir())
    return {int(match["parts"]): path for match, path in found if match}


def part_hash(content_hash: str, part: int, parts: int) -> str:
    """The content hash of part `part` of `parts` of data with that content hash, hexadecimal."""
    return hashlib.sha256(f"{content_hash}#{part}/{parts}".encode()).hexdigest()
