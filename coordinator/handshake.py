"""What the workers say they hold -> what the job is, or why it cannot be. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from acccocoa.errors import DataError, WorkerRefused
from acccocoa.protocol import version_mismatch


@dataclass(frozen=True, slots=True)
class ShardDescription:
    """A worker's answer to Describe, in plain values; see the proto.

    label_counts : (label, spelling, count); incomplete when there are too many distinct labels to list
    """

    address: str
    protocol_version: int
    software_version: str
    content_hash: str
    n: int
    d: int
    nnz: int
    label_counts: tuple[tuple[float, str, int], ...]
    label_counts_complete: bool
    blocks: int
    job_id: str
    dtype: str
    load_seconds: float = 0.0
    compile_seconds: float = 0.0
    by_features: bool = False
    features: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """The data of a job as a whole.

    n, d, nnz : examples, features (largest 0-based number + 1 over all shards), stored entries
    coordinates : rows of all shards: examples, or features that occur
    shared : length of the shared vector
    blocks : K of the algorithm, blocks solved at the same time over all workers
    positive_label : the label that counts as +1; NaN for a regression
    labels : spelling of the positive and of the negative label; empty for a regression
    """

    n: int
    d: int
    nnz: int
    blocks: int
    positive_label: float
    labels: tuple[str, ...]
    coordinates: int
    shared: int
    by_features: bool


def combine(
    shards: Sequence[ShardDescription],
    *,
    classifier: bool,
    positive_label: float | None,
    software_version: str,
    own_job_id: str = "",
) -> Job:
    """Decide whether these shards make one job, and which.

    Raises
    ------
    WorkerRefused : a worker of another protocol version, a busy one, one whose description makes no sense, two with the
        same shard, or of different dtypes
    DataError : no features, or labels that do not fit the loss
    """
    for shard in shards:
        mismatch = version_mismatch(shard.protocol_version, shard.software_version, software_version)
        if mismatch:
            raise WorkerRefused(f"worker {shard.address}", mismatch, "install the same version on both")
        if shard.job_id not in ("", own_job_id):
            raise WorkerRefused(f"worker {shard.address}", f"is held by job {shard.job_id}", "wait for it, or stop it")
        if shard.n < 1 or shard.blocks < 1 or (shard.label_counts_complete and not shard.label_counts):
            raise WorkerRefused(f"worker {shard.address}", "describes a shard without examples, labels or blocks")
    by_hash: dict[str, str] = {}
    for shard in shards:
        twin = by_hash.setdefault(shard.content_hash, shard.address)
        if twin != shard.address:
            raise WorkerRefused(
                f"workers {twin} and {shard.address}", "hold the same shard", "give every worker a shard of its own"
            )
    dtypes = {shard.dtype for shard in shards}
    if len(dtypes) > 1:
        detail = ", ".join(f"{shard.address}: {shard.dtype}" for shard in shards)
        raise WorkerRefused("workers", f"store values differently ({detail})", "start all with the same --dtype")
    by_features = shards[0].by_features
    for shard in shards:
        if shard.by_features != by_features:
            raise WorkerRefused(
                f"workers {shards[0].address} and {shard.address}",
                "have the data cut by examples and by features",
                "start all with the same --by",
            )
        if by_features and shard.d != shards[0].d:
            raise WorkerRefused(
                f"workers {shards[0].address} and {shard.address}",
                f"know {shards[0].d} and {shard.d} examples",
                "cut all their shards from the same data",
            )
    coordinates = sum(shard.n for shard in shards)
    shared = max(shard.d for shard in shards)
    d = max(shard.features for shard in shards) if by_features else shared
    if d == 0:
        raise DataError("data", "has no features at all", "is this the right file?")
    # by features every shard counts the labels of all examples
    labelled = shards[:1] if by_features else shards
    positive, labels = _label_pair(labelled, positive_label) if classifier else (math.nan, ())
    return Job(
        n=shared if by_features else coordinates,
        d=d,
        nnz=sum(shard.nnz for shard in shards),
        blocks=sum(shard.blocks for shard in shards),
        positive_label=positive,
        labels=labels,
        coordinates=coordinates,
        shared=shared,
        by_features=by_features,
    )


def _label_pair(shards: Sequence[ShardDescription], positive_label: float | None) -> tuple[float, tuple[str, str]]:
    """The larger label is +1 unless the user says otherwise; decided over all shards.

    Raises
    ------
    DataError : there are not exactly two labels, or the one asked for is not among them
    """
    counts: Counter[float] = Counter()
    spelling: dict[float, str] = {}
    for shard in shards:
        if not shard.label_counts_complete:
            raise DataError(
                f"shard of worker {shard.address}",
                "has more distinct labels than a classification can have",
                "choose a regression loss (squared, huber, epsilon_insensitive)",
            )
        for label, text, count in shard.label_counts:
            counts[label] += count
            spelling.setdefault(label, text)
    found = sorted(counts)
    if len(found) != 2:
        listed = ", ".join(f"{spelling[label]} ({counts[label]})" for label in found[:10])
        more = f" and {len(found) - 10} more" if len(found) > 10 else ""
        raise DataError(
            f"labels {listed}{more}",
            f"a binary loss needs exactly two labels, these are {len(found)}",
            "choose a regression loss, or relabel the data"
            if len(found) > 2
            else f"only label {spelling[found[0]]} occurs: is part of the data missing?",
        )
    positive = found[1] if positive_label is None else positive_label
    if positive not in counts:
        raise DataError(
            f"--positive-label {positive_label:g}",
            f"does not occur; the labels are {spelling[found[0]]} and {spelling[found[1]]}",
        )
    negative = found[0] if positive == found[1] else found[1]
    return positive, (spelling[positive], spelling[negative])
