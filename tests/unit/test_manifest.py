"""manifest.json: what was written comes back, and nothing that was changed does."""

import dataclasses
import json
from typing import Any

import pytest

from acccocoa.errors import DataError
from acccocoa.manifest import Manifest, Part, ShardEntry, parse, part_of

MADE = Manifest(
    by="examples",
    seed=3,
    dtype="float32",
    index_base=1,
    n=5,
    d=9,
    nnz=20,
    labels=((-1.0, "-1", 2), (1.0, "+1", 3)),
    source=("data.txt",),
    shards=(ShardEntry("a.shard", "aa", 3, 9, 12, 640), ShardEntry("b.shard", "bb", 2, 8, 8, 512)),
)


def test_comes_back() -> None:
    assert parse(MADE.text(), "m") == MADE
    regression = dataclasses.replace(MADE, labels=None)
    assert parse(regression.text(), "m") == regression


def test_id_is_of_the_cut_whatever_the_names() -> None:
    renamed = dataclasses.replace(
        MADE, source=("x",), shards=tuple(dataclasses.replace(shard, file="x", bytes=1) for shard in MADE.shards)
    )
    assert renamed.id == MADE.id
    assert len(MADE.id) == 64


@pytest.mark.parametrize(
    "changes",
    [{"seed": 4}, {"by": "features"}, {"dtype": "float64"}, {"n": 6}, {"d": 10}, {"nnz": 21}, {"labels": None}],
)
def test_id_tells_cuts_apart(changes: dict[str, Any]) -> None:
    assert dataclasses.replace(MADE, **changes).id != MADE.id
    fields = json.loads(MADE.text()) | changes
    with pytest.raises(DataError, match="its id is not that of its shards"):
        parse(json.dumps(fields).encode(), "m")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a manifest of shards"),
        (b"[]", "is not a manifest of shards"),
        (b"{}", "is not a manifest of shards"),
        (b'{"format": "other"}', "is not a manifest of shards; name the manifest.json that shard wrote"),
        (b'{"format": "acccocoa manifest", "version": 2}', "has version 2, this acccocoa reads 1"),
        (b'{"format": "acccocoa manifest", "version": 1}', "is not a manifest of shards"),
        (b"\xff\xfe", "is not a manifest of shards"),
    ],
)
def test_foreign_files(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        parse(content, "there/manifest.json")
    assert caught.value.offender == "there/manifest.json"


@pytest.mark.parametrize("key", [*json.loads(MADE.text())])
def test_a_field_is_missing_or_makes_no_sense(key: str) -> None:
    fields = json.loads(MADE.text())
    value = fields.pop(key)
    contents = [fields]
    if key not in ("source", "labels", "weights"):
        contents += [fields | {key: None}, fields | {key: {}}]
    if key == "shards":
        contents += [fields | {key: []}, fields | {key: value[:1]}, fields | {key: value[::-1]}]
    for content in contents:
        with pytest.raises(DataError):
            parse(json.dumps(content).encode(), "m")


def test_truncated() -> None:
    content = MADE.text()
    for length in range(len(content) - 2):
        with pytest.raises(DataError):
            parse(content[:length], "m")


def test_parts() -> None:
    part = MADE.part(1)
    assert str(part) == "part 1 of 2"
    assert part_of({"part": part.as_json(), "more": 1}) == part
    assert part_of(json.loads(json.dumps({"part": part.as_json()}))) == part
    assert part_of({}) is None


@pytest.mark.parametrize(
    "entry",
    [1, "x", {}, Part("a", 2, 2).as_json(), Part("a", -1, 2).as_json(), {**Part("a", 0, 2).as_json(), "by": "x"}],
)
def test_a_part_that_makes_no_sense(entry: Any) -> None:
    with pytest.raises(ValueError, match="a part is described as"):
        part_of({"part": entry})
