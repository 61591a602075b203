"""What workers say they hold -> a job, or a refusal that names who and why."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from acccocoa.dealing import hash_by
from acccocoa.errors import AcccocoaError, DataError, UsageError, WorkerRefused
from acccocoa.manifest import By, Manifest, Part, ShardEntry
from acccocoa.protocol import PROTOCOL_VERSION, version_mismatch
from coordinator.handshake import Job, ShardDescription, check_memory, combine

BOTH = ((-1.0, "-1", 30), (1.0, "+1", 10))

SHARD = ShardDescription(
    address="a:1",
    protocol_version=PROTOCOL_VERSION,
    software_version="0.1.0",
    content_hash="aa",
    n=40,
    d=7,
    nnz=100,
    label_counts=BOTH,
    label_counts_complete=True,
    blocks=2,
    job_id="",
    dtype="float32",
)


def shards(*changes: dict[str, Any]) -> list[ShardDescription]:
    """Shards that differ in address and content, and as given."""
    return [
        dataclasses.replace(SHARD, **{"address": f"{chr(97 + i)}:1", "content_hash": f"{i:02x}", **each})
        for i, each in enumerate(changes)
    ]


def combined(parts: list[ShardDescription], *, classifier: bool = True, positive_label: float | None = None) -> Job:
    return combine(parts, classifier=classifier, positive_label=positive_label, software_version="0.1.0")


def refusal(kind: type[AcccocoaError], *changes: dict[str, Any], **settings: Any) -> AcccocoaError:
    with pytest.raises(kind) as caught:
        combined(shards(*changes), **settings)
    assert type(caught.value) is kind
    return caught.value


def labels(*entries: tuple[float, str, int]) -> dict[str, Any]:
    return {"label_counts": entries}


def test_sums_over_all_shards() -> None:
    job = combined(shards({}, {"n": 2, "d": 9, "nnz": 5, "blocks": 1}, {"n": 1, "d": 0, "nnz": 0}))
    assert job == Job(
        n=43,
        d=9,
        nnz=105,
        blocks=5,
        positive_label=1.0,
        labels=("+1", "-1"),
        coordinates=43,
        shared=9,
        by_features=False,
    )


def test_one_shard() -> None:
    assert combined(shards({})) == Job(
        n=40,
        d=7,
        nnz=100,
        blocks=2,
        positive_label=1.0,
        labels=("+1", "-1"),
        coordinates=40,
        shared=7,
        by_features=False,
    )


# ------------------------------------------------------------------------------------------------------------- refusals


def test_another_protocol_version() -> None:
    error = refusal(WorkerRefused, {}, {"protocol_version": PROTOCOL_VERSION + 1, "software_version": "9.9"})
    assert error.offender == "worker b:1"
    assert "9.9" in error.requirement
    assert "0.1.0" in error.requirement
    assert f"version {PROTOCOL_VERSION + 1}" in error.requirement
    assert error.remedy == "install the same version on both"


def test_another_software_version_alone_is_no_reason() -> None:
    assert combined(shards({}, {"software_version": "0.0.9"})).n == 80


def test_a_busy_worker() -> None:
    error = refusal(WorkerRefused, {}, {"job_id": "f00"})
    assert error.offender == "worker b:1"
    assert error.requirement == "is held by job f00"


def test_the_same_shard_twice() -> None:
    error = refusal(WorkerRefused, {}, {}, {"content_hash": "00"})
    assert error.offender == "workers a:1 and c:1"
    assert "same shard" in error.requirement


def test_values_stored_differently() -> None:
    error = refusal(WorkerRefused, {}, {"dtype": "float64"})
    assert "a:1: float32" in error.requirement
    assert "b:1: float64" in error.requirement
    assert "--dtype" in error.remedy


def test_no_features() -> None:
    error = refusal(DataError, {"d": 0, "nnz": 0}, {"d": 0, "nnz": 0})
    assert "no features" in error.requirement


def test_vectors_that_do_not_fit_in_memory() -> None:
    job = combined(shards({}, {"d": 2**31 - 1}))
    check_memory(job, 6 * 8 * (2**31 - 1))
    with pytest.raises(DataError, match=r"2147483647 features .*96 GiB.* 95 GiB"):
        check_memory(job, 95 << 30)


def test_too_many_labels_to_list() -> None:
    error = refusal(DataError, {}, {"label_counts": (), "label_counts_complete": False})
    assert error.offender == "shard of worker b:1"
    assert "regression loss" in error.remedy


@pytest.mark.parametrize("regression", [True, False])
def test_a_regression_takes_any_labels(regression: bool) -> None:
    parts = shards({"label_counts": (), "label_counts_complete": False}, labels((0.5, "0.5", 40)))
    if regression:
        job = combined(parts, classifier=False)
        assert job.labels == ()
        assert math.isnan(job.positive_label)
    else:
        with pytest.raises(DataError):
            combined(parts)


# --------------------------------------------------------------------------------------------------------------- labels


def test_the_larger_label_is_positive_over_all_shards() -> None:
    one_each = shards(labels((4.0, "4", 40)), labels((2.0, "2", 40)))
    assert combined(one_each).labels == ("4", "2")
    assert combined(one_each).positive_label == 4.0


def test_unless_the_user_says_otherwise() -> None:
    job = combined(shards(labels((2.0, "2", 30), (4.0, "4", 10))), positive_label=2.0)
    assert (job.positive_label, job.labels) == (2.0, ("2", "4"))


def test_a_positive_label_that_does_not_occur() -> None:
    error = refusal(DataError, labels((2.0, "2", 30), (4.0, "4", 10)), positive_label=3.0)
    assert error.offender == "--positive-label 3"
    assert "2 and 4" in error.requirement


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        (("-1", "+1"), ("+1", "-1")),
        (("0", "1"), ("1", "0")),
        (("-1.0", "1.0"), ("1.0", "-1.0")),
        (("-1e0", "1e+00"), ("1e+00", "-1e0")),
        (("01", "0002"), ("0002", "01")),
        (("-2.5", "-1.5"), ("-1.5", "-2.5")),
    ],
)
def test_spelling_is_kept(spelled: tuple[str, str], expected: tuple[str, str]) -> None:
    entries = labels(*((float(text), text, 20) for text in spelled))
    assert combined(shards(entries)).labels == expected


def test_the_first_shard_decides_between_spellings() -> None:
    job = combined(shards(labels((1.0, "+1", 40)), labels((-1.0, "-1", 1), (1.0, "1.0", 39))))
    assert job.labels == ("+1", "-1")


def test_one_label_only() -> None:
    error = refusal(DataError, labels((1.0, "+1", 40)), labels((1.0, "+1", 2)))
    assert error.offender == "labels +1 (42)"
    assert "exactly two" in error.requirement
    assert "only label +1 occurs" in error.remedy


def test_three_labels_over_all_shards() -> None:
    error = refusal(DataError, labels((0.0, "0", 3), (1.0, "1", 37)), labels((2.0, "2.0", 40)))
    assert error.offender == "labels 0 (3), 1 (37), 2.0 (40)"
    assert "these are 3" in error.requirement
    assert "regression" in error.remedy


def test_many_labels_are_not_all_listed() -> None:
    error = refusal(DataError, labels(*((float(i), str(i), 1) for i in range(300))))
    assert error.offender.endswith("9 (1) and 290 more")


@pytest.mark.parametrize("nonsense", [{"n": 0}, {"blocks": 0}, {"label_counts": ()}])
def test_a_description_that_makes_no_sense(nonsense: dict[str, Any]) -> None:
    error = refusal(WorkerRefused, {}, nonsense)
    assert error.offender == "worker b:1"
    assert "without examples, labels or blocks" in error.requirement


@pytest.mark.parametrize(("theirs", "fits"), [(PROTOCOL_VERSION, True), (PROTOCOL_VERSION + 1, False), (0, False)])
def test_version_mismatch(theirs: int, fits: bool) -> None:
    assert (version_mismatch(theirs, "", "0.1.0") is None) == fits


# ---------------------------------------------------------------------------------------------------------------- parts

CUT = "c" * 64
OTHER = "d" * 64


def part(number: int, parts: int = 3, whole: str = CUT, source: str | None = None) -> dict[str, Any]:
    name = f"/data/part-{number}-of-{parts}.shard" if source is None else source
    return {"part": Part(whole, number, parts), "source": name}


def test_all_parts_of_a_cut() -> None:
    assert combined(shards(part(2), part(0), part(1))).n == 120


def test_a_part_that_nobody_holds() -> None:
    error = refusal(WorkerRefused, part(2), part(0))
    assert error.offender == "/data/part-1-of-3.shard"
    assert error.requirement == "1 of 3 shards is held by no worker"
    assert error.remedy == "start a worker for each, and name it, too"


@pytest.mark.parametrize(
    ("source", "number", "parts", "missing"),
    [
        ("file#1/3", 1, 3, "file#0/3, file#2/3"),
        ("s3://b/k-part-9/file#0/2", 0, 2, "s3://b/k-part-9/file#1/2"),
        ("d/part-07-of-11.txt", 7, 11, "d/part-00-of-11.txt, d/part-01-of-11.txt"),
        ("renamed", 0, 2, f"part 1 of 2 of {CUT[:12]}"),
        ("part-1-of-2.shard", 0, 2, f"part 1 of 2 of {CUT[:12]}"),
    ],
)
def test_what_missing_parts_are_called(source: str, number: int, parts: int, missing: str) -> None:
    error = refusal(WorkerRefused, part(number, parts, source=source))
    assert error.offender.startswith(missing)


def test_many_missing_parts() -> None:
    error = refusal(WorkerRefused, part(0, 40, source="file#0/40"))
    assert error.offender.endswith(", file#10/40 and 29 more")
    assert error.requirement == "39 of 40 shards are held by no worker"


def test_the_same_part_twice() -> None:
    same = {"content_hash": "aa"}
    error = refusal(WorkerRefused, part(0) | same, part(1), part(0) | same, part(2))
    assert str(error) == "workers a:1 and c:1: hold the same shard, part 0 of 3; give every worker a shard of its own"
    error = refusal(WorkerRefused, part(0), part(1), part(0), part(2))  # made twice, and not alike
    assert str(error) == "workers a:1 and c:1: both hold part 0 of 3; give every worker a shard of its own"


@pytest.mark.parametrize("other", [part(1, 3, OTHER), part(1, 4)])
def test_parts_of_different_cuts(other: dict[str, Any]) -> None:
    error = refusal(WorkerRefused, part(0), other, part(2))
    assert error.offender == "workers a:1 and b:1"
    assert error.requirement.startswith(
        "hold shards of different cuts: /data/part-0-of-3.shard (cccccccccccc, part 0 of 3) and /data/part-1-of-"
    )
    assert error.remedy == "give every worker a shard of the same cut"


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_worker_without_a_part_among_those_with_one(position: int) -> None:
    changes = [part(0, 2), part(1, 2)]
    changes.insert(position, {"source": "file"})
    error = refusal(WorkerRefused, *changes)
    assert error.offender == f"worker {'abc'[position]}:1"
    assert error.requirement.startswith("holds file, which is no part of the cut that worker ")


def test_first_feature_numbers() -> None:
    assert combined(shards({"index_base": 1}, {}, {"index_base": 1})).n == 120
    error = refusal(WorkerRefused, {"index_base": 1}, {}, {"index_base": 0})
    assert error.offender == "workers"
    assert error.requirement == "count the features of their text from different numbers (a:1: 1, c:1: 0)"
    assert error.remedy == "start all or none with --zero-based"


def manifest(*hashes: str, by: By = "examples") -> Manifest:
    entries = tuple(ShardEntry(f"part-{i}.shard", digest, 40, 7, 100, 1) for i, digest in enumerate(hashes))
    return Manifest(by, 0, "float32", 1, 40 * len(hashes), 7, 100 * len(hashes), BOTH, (), entries)


def with_manifest(found: Manifest, *changes: dict[str, Any]) -> Job:
    return combine(shards(*changes), classifier=True, positive_label=None, software_version="0.1.0", manifest=found)


def test_shards_of_the_manifest() -> None:
    assert with_manifest(manifest("01", "00"), {}, {}).n == 80
    by_features = {"by_features": True, "features": 7}
    hashes = [hash_by(digest, "features") for digest in ("00", "01")]
    changes = [by_features | {"content_hash": digest} for digest in hashes]
    assert with_manifest(manifest("00", "01", by="features"), *changes).by_features


def test_shards_of_the_manifest_with_weights() -> None:
    found = manifest("01", "00")
    changes = [{"content_hash": f"w{number}", "part": found.part(number)} for number in (0, 1)]
    assert with_manifest(found, *changes).n == 80
    with pytest.raises(WorkerRefused, match=r"workers a:1 and b:1: both hold part-0.shard"):
        with_manifest(found, changes[0], changes[0] | {"content_hash": "01"})


def test_a_shard_that_is_not_in_the_manifest() -> None:
    with pytest.raises(WorkerRefused) as caught:
        with_manifest(manifest("00", "02"), {}, {"source": "file"})
    assert caught.value.offender == "worker b:1"
    assert caught.value.requirement == "holds file, whose content is that of no shard in the manifest"


def test_a_shard_of_the_manifest_that_nobody_holds() -> None:
    with pytest.raises(WorkerRefused) as caught:
        with_manifest(manifest("02", "00", "01", "03"), {}, {})
    assert caught.value.offender == "part-0.shard, part-3.shard"
    assert caught.value.requirement == "2 of 4 shards are held by no worker"


def test_a_shard_whose_examples_all_weigh_nothing() -> None:
    job = combined(shards({"largest_weight": 2.0}, {"largest_weight": 0.0}))
    assert job.largest_weight == 2.0
    assert job.weight_bound == 2.0
    assert combined(shards({}, {})).weight_bound == 1.0
    refused = refusal(WorkerRefused, {"largest_weight": 2.0}, {})
    assert refused.requirement == "have weights of the examples, but not b:1"


def test_a_bias_is_the_number_that_is_stored() -> None:
    def bias(value: float, dtype: str) -> float | None:
        parts = shards({"dtype": dtype})
        return combine(parts, classifier=True, positive_label=None, software_version="0.1.0", bias=value).bias

    assert bias(0.1, "float64") == 0.1
    assert bias(0.1, "float32") == float(np.float32(0.1))
    assert bias(1e100, "float64") == 1e100
    for value, dtype in ((1e100, "float32"), (1e-50, "float32"), (1e200, "float64"), (1e-200, "float64")):
        with pytest.raises(UsageError) as caught:
            bias(value, dtype)
        assert caught.value.offender == f"--bias {value:g}"
        assert dtype in caught.value.requirement
