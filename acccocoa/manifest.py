"""manifest.json: what the shards in a directory were cut from, and which of them there are.

format, version   "acccocoa manifest", 1
id                of this cut: equal when the same shards come out of it, whatever the names of the files
by                "examples" or "features": what was dealt to the shards
seed              of the shuffle
dtype             of the values: "float32" or "float64"
index_base        the first feature number in text: 1 in the shards written as text; in binary ones numbers begin at 0
n, d, nnz         examples, features (the largest 0-based number + 1), stored entries of all shards together
labels            [label, its spelling, how many], ascending; null when there are too many to list (a regression)
weights           of the examples; null: each weighs 1
source            names of the files the data came from
shards            of every part in order: file, hash (SHA-256 of the arrays), n, d, nnz, bytes
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

from acccocoa.dealing import By as By
from acccocoa.errors import DataError

NAME = "manifest.json"
FORMAT = "acccocoa manifest"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of which whole a shard is.

    whole : id of the manifest, or for FILE#k/K of the file's content
    number, parts : k and K, counted from 0
    """

    whole: str
    number: int
    parts: int
    by: By = "examples"

    def __str__(self) -> str:
        return f"part {self.number} of {self.parts}"

    def as_json(self) -> dict[str, Any]:
        """As `part_of` reads it."""
        return asdict(self)


def part_of(about: Mapping[str, Any]) -> Part | None:
    """The part a shard file says it is (shardfile.Stored.about). Raises ValueError."""
    entry = about.get("part")
    if entry is None:
        return None
    try:
        part = Part(str(entry["whole"]), int(entry["number"]), int(entry["parts"]), entry["by"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a part is described as {entry!r}") from error
    if not 0 <= part.number < part.parts or part.by not in get_args(By):
        raise ValueError(f"a part is described as {entry!r}")
    return part


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard of a manifest; see the fields above."""

    file: str
    hash: str
    n: int
    d: int
    nnz: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """See the fields above."""

    by: By
    seed: int
    dtype: str
    index_base: int
    n: int
    d: int
    nnz: int
    labels: tuple[tuple[float, str, int], ...] | None
    source: tuple[str, ...]
    shards: tuple[ShardEntry, ...]

    @property
    def id(self) -> str:
        """Hexadecimal, 64 digits."""
        said = asdict(self)
        del said["source"]
        said["shards"] = [[shard.hash, shard.n, shard.d, shard.nnz] for shard in self.shards]
        return hashlib.sha256(json.dumps([FORMAT, VERSION, said]).encode()).hexdigest()

    def part(self, number: int) -> Part:
        """The part of that number."""
        return Part(self.id, number, len(self.shards), self.by)

    def text(self) -> bytes:
        """The file."""
        fields = {"format": FORMAT, "version": VERSION, "id": self.id, "weights": None, **asdict(self)}
        return json.dumps(fields, indent=2).encode() + b"\n"


def parse(content: bytes, name: str) -> Manifest:
    """Read a manifest; `name` is for messages.

    Raises
    ------
    DataError : it is none, damaged, or of another version
    """

    def refuse(what: str, remedy: str = "cut the shards again") -> DataError:
        return DataError(name, what, remedy)

    try:
        fields = json.loads(content)
        if fields["format"] != FORMAT:
            raise refuse("is not a manifest of shards", f"name the {NAME} that shard wrote")
        if fields["version"] != VERSION:
            raise refuse(f"has version {fields['version']}, this acccocoa reads {VERSION}")
        labels = fields["labels"]
        found = Manifest(
            by=fields["by"],
            seed=int(fields["seed"]),
            dtype=str(fields["dtype"]),
            index_base=int(fields["index_base"]),
            n=int(fields["n"]),
            d=int(fields["d"]),
            nnz=int(fields["nnz"]),
            labels=None if labels is None else tuple((float(v), str(text), int(count)) for v, text, count in labels),
            source=tuple(map(str, fields["source"])),
            shards=tuple(ShardEntry(**entry) for entry in fields["shards"]),
        )
        if found.by not in get_args(By) or not found.shards or fields["weights"] is not None:
            raise refuse("is damaged")
        intact = found.id == fields["id"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise refuse(f"is not a manifest of shards ({error})") from error
    if not intact:
        raise refuse("is damaged: its id is not that of its shards")
    return found
