"""What workers say they hold -> a job, or a refusal that names who and why."""

import dataclasses
import math
from typing import Any

import pytest

from acccocoa.errors import AcccocoaError, DataError, WorkerRefused
from acccocoa.protocol import PROTOCOL_VERSION, version_mismatch
from coordinator.handshake import Job, ShardDescription, combine

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


# ------------------------------------------------------------------------------------------------------------ refusals


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


# -------------------------------------------------------------------------------------------------------------- labels


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
