"""What the workers say they hold -> what the job is, or why it cannot be. Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from acccocoa.dealing import hash_by
from acccocoa.errors import DataError, UsageError, WorkerRefused
from acccocoa.manifest import Manifest, Part
from acccocoa.protocol import version_mismatch
from acccocoa.statistics import Sizes

VECTORS = 6
"""Of the length of what is shared (or of the features) are held at once: v_a, v_z, v_y, w_t, the best w, a spare."""

_LABELS_SHOWN = 10


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
    largest_weight: float | None = None
    source: str = ""
    part: Part | None = None
    index_base: int | None = None
    sizes: Sizes = field(default_factory=Sizes)


@dataclass(frozen=True, slots=True)
class Job:
    """The data of a job as a whole.

    n, d, nnz : examples, features (largest 0-based number + 1 over all shards), stored entries
    coordinates : rows of all shards: examples, or features that occur
    shared : length of the shared vector
    blocks : K of the algorithm, blocks solved at the same time over all workers
    positive_label : the label that counts as +1; NaN for a regression
    labels : spelling of the positive and of the negative label, or of all labels when each is to be told from the rest;
        empty for a regression
    bias : value of the constant feature with the number d, as the values are stored, if any
    label_weights : of labels whose examples do not weigh 1
    largest_weight : of the examples' own weights; None: they have none
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
    bias: float | None = None
    label_weights: Mapping[float, float] = field(default_factory=dict)
    largest_weight: float | None = None

    @property
    def weight_bound(self) -> float:
        """No example weighs more."""
        return (1.0 if self.largest_weight is None else self.largest_weight) * max(
            1.0, *self.label_weights.values(), 0.0
        )


def combine(
    shards: Sequence[ShardDescription],
    *,
    classifier: bool,
    positive_label: float | None,
    software_version: str,
    own_job_id: str = "",
    manifest: Manifest | None = None,
    bias: float | None = None,
    label_weights: Mapping[float, float] | None = None,
    multiclass: bool = False,
) -> Job:
    """Decide whether these shards make one job, and which.

    Parameters
    ----------
    manifest : of the shards that are expected, when the user names it
    bias, label_weights : see Job
    multiclass : the job is one for classifiers of each label against the rest

    Raises
    ------
    WorkerRefused : a worker of another protocol version, a busy one, one whose description makes no sense, two with the
        same shard, with shards of different cuts, dtypes or first feature numbers; parts that nobody holds
    DataError : no features, or labels that do not fit the loss
    UsageError : a label with a weight does not occur; a bias that values are not stored with
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
            which = f", {shard.part}" if shard.part is not None else ""
            raise WorkerRefused(
                f"workers {twin} and {shard.address}",
                f"hold the same shard{which}",
                "give every worker a shard of its own",
            )
    dtypes = {shard.dtype for shard in shards}
    if len(dtypes) > 1:
        detail = ", ".join(f"{shard.address}: {shard.dtype}" for shard in shards)
        raise WorkerRefused("workers", f"store values differently ({detail})", "start all with the same --dtype")
    bases = {shard.index_base for shard in shards} - {None}
    if len(bases) > 1:
        detail = ", ".join(f"{shard.address}: {shard.index_base}" for shard in shards if shard.index_base is not None)
        raise WorkerRefused(
            "workers",
            f"count the features of their text from different numbers ({detail})",
            "start all or none with --zero-based",
        )
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
    if manifest is not None:
        _check_manifest(shards, manifest)
    elif any(shard.part is not None for shard in shards):
        _check_parts(shards)
    coordinates = sum(shard.n for shard in shards)
    shared = max(shard.d for shard in shards)
    d = max(shard.features for shard in shards) if by_features else shared
    if d == 0:
        raise DataError("data", "has no features at all", "is this the right file?")
    unweighted = [shard.address for shard in shards if shard.largest_weight is None]
    if unweighted and len(unweighted) < len(shards):
        detail = ", ".join(unweighted)
        raise WorkerRefused("workers", f"have weights of the examples, but not {detail}", "start all with --weights")
    # by features every shard counts the labels of all examples
    labelled = shards[:1] if by_features else shards
    positive, labels = math.nan, tuple[str, ...]()
    if classifier and multiclass:
        labels = tuple(spelling for _, spelling, _ in found_labels(labelled))
        if len(labels) < 2:
            raise DataError(f"label {labels[0]}", "is the only one: there is nothing to tell apart")
    elif classifier:
        positive, labels = _label_pair(labelled, positive_label)
    if bias is not None:
        bias = _stored(bias, shards[0].dtype)
    label_weights = label_weights or {}
    if label_weights:
        spelled = {label: spelling for label, spelling, _ in found_labels(labelled)}
        for label, weight in label_weights.items():
            if label not in spelled:
                offender, known = f"--class-weight {label:g}={weight:g}", shown_labels(spelled.values())
                raise UsageError(offender, "no example has that label", f"the labels are {known}")
    return Job(
        n=shared if by_features else coordinates,
        d=d,
        nnz=sum(shard.nnz for shard in shards),
        blocks=sum(shard.blocks for shard in shards),
        positive_label=positive,
        labels=labels,
        coordinates=coordinates,
        shared=shared + (bias is not None and not by_features),
        by_features=by_features,
        bias=bias,
        label_weights=label_weights,
        largest_weight=max((found for shard in shards if (found := shard.largest_weight) is not None), default=None),
    )


def _stored(bias: float, dtype: str) -> float:
    """The constant feature as the workers store it, so that the model and the certificate are of the same number.

    Raises
    ------
    UsageError : it becomes 0 or infinite, or its square does
    """
    with np.errstate(over="ignore", under="ignore"):
        stored = float(np.dtype(dtype).type(bias))
        square = stored * stored
    if not (0.0 < square < math.inf):
        raise UsageError(f"--bias {bias:g}", f"is beyond what {dtype} and its squares hold", "choose one nearer to 1")
    return stored


def check_memory(job: Job, memory: int) -> None:
    """Make sure that the outer loop's vectors fit in so many bytes.

    One feature number that is far too large is enough for them not to, and without this the machine would stand still.

    Raises
    ------
    DataError : they do not
    """
    length = max(job.shared, job.d)
    needed = 8 * VECTORS * length
    if needed > memory:
        what = "examples" if length > job.d + 1 else "features (the largest number counts)"
        raise DataError(
            f"{length} {what}",
            f"take the coordinator {needed / 2**30:.0f} GiB, and this machine has {memory / 2**30:.0f} GiB",
            "number the features without gaps, or run it where there is more",
        )


def _check_parts(shards: Sequence[ShardDescription]) -> None:
    """Make sure that the shards are all parts of one cut.

    Raises
    ------
    WorkerRefused : they are not
    """
    held: dict[int, tuple[ShardDescription, Part]] = {}
    for shard in shards:
        part = shard.part
        if part is None:
            other = next(other for other in shards if other.part is not None)
            raise WorkerRefused(
                f"worker {shard.address}",
                f"holds {shard.source}, which is no part of the cut that worker {other.address} holds "
                f"{other.part} of ({other.source})",
                "give every worker a shard of the same cut",
            )
        first, known = next(iter(held.values()), (shard, part))
        if (part.whole, part.parts) != (known.whole, known.parts):
            raise WorkerRefused(
                f"workers {first.address} and {shard.address}",
                f"hold shards of different cuts: {first.source} ({known.whole[:12]}, {known}) and "
                f"{shard.source} ({part.whole[:12]}, {part})",
                "give every worker a shard of the same cut",
            )
        twin, _ = held.setdefault(part.number, (shard, part))
        if twin is not shard:
            raise WorkerRefused(
                f"workers {twin.address} and {shard.address}",
                f"both hold {part}",
                "give every worker a shard of its own",
            )
    shard, part = next(iter(held.values()))
    missing = [number for number in range(part.parts) if number not in held]
    if missing:
        raise _missing([_sibling(shard.source, part, number) for number in missing], part.parts)


def _check_manifest(shards: Sequence[ShardDescription], manifest: Manifest) -> None:
    """Make sure that the shards are those of the manifest, each once.

    Raises
    ------
    WorkerRefused : they are not
    """
    by_hash = {hash_by(entry.hash, manifest.by): number for number, entry in enumerate(manifest.shards)}
    held: dict[int, ShardDescription] = {}
    for shard in shards:
        # the hash that is described covers weights of the examples, too; those that the manifest has do not
        known = shard.part is not None and shard.part == manifest.part(shard.part.number)
        number = shard.part.number if shard.part is not None and known else by_hash.get(shard.content_hash)
        if number is None:
            raise WorkerRefused(
                f"worker {shard.address}",
                f"holds {shard.source}, whose content is that of no shard in the manifest",
                "give it one of the shards, read as they were cut, or name their manifest",
            )
        twin = held.setdefault(number, shard)
        if twin is not shard:
            raise WorkerRefused(
                f"workers {twin.address} and {shard.address}",
                f"both hold {manifest.shards[number].file}",
                "give every worker a shard of its own",
            )
    missing = [entry.file for number, entry in enumerate(manifest.shards) if number not in held]
    if missing:
        raise _missing(missing, len(manifest.shards))


def _missing(names: Sequence[str], parts: int) -> WorkerRefused:
    listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return WorkerRefused(
        listed,
        f"{len(names)} of {parts} shards {'is' if len(names) == 1 else 'are'} held by no worker",
        "start a worker for each, and name it, too",
    )


def _sibling(source: str, part: Part, number: int) -> str:
    """What another part of the same cut is called, if the source says what it is itself."""
    of = part.parts
    match = re.search(rf"(?:#|part-)(\d+)(?:/{of}$|-of-{of}\b)", source)
    if match is None or int(match[1]) != part.number:
        return f"part {number} of {part.parts} of {part.whole[:12]}"
    return f"{source[: match.start(1)]}{number:0{len(match[1])}}{source[match.end(1) :]}"


def found_labels(shards: Sequence[ShardDescription]) -> list[tuple[float, str, int]]:
    """(label, spelling, count) over all shards, ascending.

    Raises
    ------
    DataError : there are too many to be classes
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
    return [(label, spelling[label], counts[label]) for label in sorted(counts)]


def shown_labels(spelled: Iterable[str]) -> str:
    """Labels as a message names them: the first ten, and how many more."""
    words = list(spelled)
    more = f" and {len(words) - _LABELS_SHOWN} more" if len(words) > _LABELS_SHOWN else ""
    return ", ".join(words[:_LABELS_SHOWN]) + more


def _label_pair(shards: Sequence[ShardDescription], positive_label: float | None) -> tuple[float, tuple[str, str]]:
    """The larger label is +1 unless the user says otherwise; decided over all shards.

    Raises
    ------
    DataError : there are not exactly two labels, or the one asked for is not among them
    """
    all_labels = found_labels(shards)
    counts = {label: count for label, _, count in all_labels}
    spelling = {label: text for label, text, _ in all_labels}
    found = list(counts)
    if len(found) != 2:
        listed = shown_labels(f"{spelling[label]} ({counts[label]})" for label in found)
        raise DataError(
            f"labels {listed}",
            f"a binary loss needs exactly two labels, these are {len(found)}",
            "choose a regression loss, train with --multiclass ovr, or relabel the data"
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
