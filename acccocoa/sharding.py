"""Cuts examples into shards in memory that does not depend on their number: an external shuffle, or one by columns.

By examples: every row gets a shard and a random key as it passes; what fits into memory is sorted by shard and key and
written to disk as a run; in the end every shard is merged from its pieces of all runs, a range of keys at a time. By
features: the rows are written to disk as they pass while the columns are counted; then the columns are dealt, and the
rows read again and parted.

Neither memory nor threads have a say in the result: it follows from the data, the number of shards and the seed.

The files are made under temporary names and renamed when all are complete, the manifest last: a directory with a
manifest has all its shards, whatever ended the command. Runs are files without a name.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from acccocoa import partition
from acccocoa import sharding_kernels as kernels
from acccocoa.errors import UsageError
from acccocoa.examples import LABEL_SPELLINGS_KEPT, Examples
from acccocoa.manifest import Manifest, ShardEntry
from acccocoa.shard_output import Output
from acccocoa.shardplan import BASE_BYTES, Plan
from acccocoa.spill import Segment, Spill

_CHUNK_ENTRIES: Final = 1 << 20
_CHUNK_ROWS: Final = 1 << 18
"""Rows and entries that pass from disk to disk at a time."""

_ROW_BYTES: Final = 64
"""Memory that a row takes beside its entries while it is sorted."""


def cut(pieces: Iterable[Examples], directory: str | os.PathLike[str], plan: Plan, source: Iterable[str]) -> Manifest:
    """Cut the examples into shards in the directory, which is made if need be; an earlier cut there is replaced.

    Parameters
    ----------
    pieces : examples in their order; the arrays of a piece are not looked at after the next is asked for
    source : what the manifest says the data came from

    Returns
    -------
    The manifest, which is in the directory together with all shards.

    Raises
    ------
    UsageError : the directory cannot be written (full, say), or another command writes there; fewer examples (or
        features that occur) than shards; more features than memory
    """
    with _naming(directory), ExitStack() as stack:
        output = Output(stack, Path(directory))
        spill = Spill(stack, Path(directory), plan.dtype)
        if plan.by == "examples":
            entries, summary = _by_examples(pieces, output, spill, plan)
        else:
            entries, summary = _by_features(pieces, output, spill, plan)
        done = Manifest(
            by=plan.by,
            seed=plan.seed,
            dtype=np.dtype(plan.dtype).name,
            index_base=1,
            n=summary.n,
            d=summary.d,
            nnz=summary.nnz,
            labels=summary.table(),
            source=tuple(source),
            shards=tuple(entries),
        )
        output.publish(done)
    return done


@contextmanager
def _naming(directory: str | os.PathLike[str]) -> Iterator[None]:
    """An OSError concerns the output: reading raises DataErrors."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "it takes the size of the parsed data twice over" if full else ""
        requirement = f"cannot be written: {error.strerror or error}"
        raise UsageError(f"--out {os.fspath(directory)}", requirement, remedy) from error


# ---------------------------------------------------------------------------------------------------------- summary


@dataclass
class _Summary:
    """What is found in all pieces."""

    n: int = 0
    d: int = 0
    nnz: int = 0
    counts: Counter[float] | None = field(default_factory=Counter)
    spellings: Mapping[float, str] = field(default_factory=dict)

    def add(self, piece: Examples) -> None:
        self.n += piece.n
        self.d = max(self.d, piece.d)
        self.nnz += piece.nnz
        self.spellings = piece.spellings
        if self.counts is not None:
            labels, counts = np.unique(piece.labels, return_counts=True)
            for label, count in zip(labels.tolist(), counts.tolist(), strict=True):
                self.counts[label] += count
            if len(self.counts) > LABEL_SPELLINGS_KEPT:
                self.counts = None

    def table(self) -> tuple[tuple[float, str, int], ...] | None:
        """Labels, spellings and counts, ascending; None for a regression."""
        if self.counts is None or any(label not in self.spellings for label in self.counts):
            return None
        return tuple((label, self.spellings[label], count) for label, count in sorted(self.counts.items()))


# ------------------------------------------------------------------------------------------------------ by examples


class _Run:
    """Rows in memory, as many as fit."""

    def __init__(self, plan: Plan, spill: Spill) -> None:
        self._entries_most = int(0.6 * plan.budget) // plan.entry_bytes
        self._rows_most = int(0.25 * plan.budget) // _ROW_BYTES
        self._indices = np.empty(self._entries_most, np.int32)
        self._values = np.empty(self._entries_most, plan.dtype)
        self._indptr = np.zeros(self._rows_most + 1, np.int64)
        self._labels = np.empty(self._rows_most)
        self._owners = np.empty(self._rows_most, np.int32)
        self._keys = np.empty(self._rows_most, np.uint64)
        self._rows = self._entries = 0
        self._spill = spill
        # by shard, its segments in all runs
        self.segments: list[list[Segment]] = [[] for _ in range(plan.shards)]

    def add(self, piece: Examples, owners: NDArray[np.int32], keys: NDArray[np.uint64]) -> None:
        """Add rows, writing what is there already to disk when the room does not suffice."""
        first = 0
        while first < piece.n:
            # rows of the piece that fit, at least one: a row is never longer than a line of text
            room = self._entries_most - self._entries
            count = int(np.searchsorted(piece.indptr, piece.indptr[first] + room, "right")) - 1 - first
            count = min(count, self._rows_most - self._rows, piece.n - first)
            if count <= 0:
                if not self._rows:
                    length = int(piece.indptr[first + 1] - piece.indptr[first])
                    raise UsageError("--memory", f"is too little for a row of {length} entries", "allow more")
                self.flush()
                continue
            last = first + count
            begin, end = int(piece.indptr[first]), int(piece.indptr[last])
            to, rows = self._entries, slice(self._rows, self._rows + count)
            self._indices[to : to + end - begin] = piece.indices[begin:end]
            self._values[to : to + end - begin] = piece.values[begin:end]
            self._indptr[rows.start + 1 : rows.stop + 1] = piece.indptr[first + 1 : last + 1] - begin + to
            self._labels[rows] = piece.labels[first:last]
            self._owners[rows] = owners[first:last]
            self._keys[rows] = keys[first:last]
            self._rows += count
            self._entries += end - begin
            first = last

    def flush(self) -> None:
        """Write the rows to disk, sorted by shard and key."""
        indptr, owners = self._indptr[: self._rows + 1], self._owners[: self._rows]
        for shard, segments in enumerate(self.segments):
            rows = np.flatnonzero(owners == shard)
            if not len(rows):
                continue
            rows = rows[np.argsort(self._keys[rows], kind="stable")]
            segments.append(Segment(self._spill.rows, self._spill.rows + len(rows), self._spill.entries))
            examples = Examples(indptr, self._indices, self._values, self._labels)
            for taken, chosen in _taken(examples, rows):
                self._spill.append(taken, self._keys[chosen])
        self._rows = self._entries = 0


def _taken(examples: Examples, order: NDArray[np.int64]) -> Iterator[tuple[Examples, NDArray[np.int64]]]:
    """The rows in that order, a chunk at a time, and which they are."""
    lengths = examples.indptr[order + 1] - examples.indptr[order]
    ends = np.cumsum(lengths)
    first = 0
    while first < len(order):
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + _CHUNK_ENTRIES, "right"))
        last = min(max(last, first + 1), first + _CHUNK_ROWS)
        nnz = int(ends[last - 1]) - before
        chosen = order[first:last]
        taken = Examples(
            np.empty(len(chosen) + 1, np.int64),
            np.empty(nnz, np.int32),
            np.empty(nnz, examples.values.dtype),
            examples.labels[chosen],
        )
        kernels.take_rows(
            chosen, examples.indptr, examples.indices, examples.values, taken.indptr, taken.indices, taken.values
        )
        yield taken, chosen
        first = last


def _by_examples(
    pieces: Iterable[Examples], output: Output, spill: Spill, plan: Plan
) -> tuple[list[ShardEntry], _Summary]:
    summary = _Summary()
    loads = np.zeros(plan.shards, np.uint64)
    seed = _seed_bits(plan.seed)
    rows = np.zeros(plan.shards, np.int64)
    entries = np.zeros(plan.shards, np.int64)
    run = _Run(plan, spill)
    for piece in pieces:
        owners, keys = np.empty(piece.n, np.int32), np.empty(piece.n, np.uint64)
        kernels.deal_rows(piece.indptr, summary.n, seed, loads, owners, keys)
        summary.add(piece)
        rows += np.bincount(owners, minlength=plan.shards)
        entries += np.bincount(owners, np.diff(piece.indptr), plan.shards).astype(np.int64)
        run.add(piece, owners, keys)
    if summary.n < plan.shards:
        raise UsageError(f"--shards {plan.shards}", f"there are only {summary.n} examples", "cut fewer")
    run.flush()
    segments = run.segments
    del run
    done = []
    for number in range(plan.shards):
        n, nnz = int(rows[number]), int(entries[number])
        shard = output.shard(plan, n, nnz, summary.spellings)
        size = nnz * plan.entry_bytes + n * _ROW_BYTES
        ranges = -(-size // int(0.3 * plan.budget))
        for index in range(1, ranges + 1):
            bound = (index << 64) // ranges
            merged, keys = _up_to(bound, segments[number], spill, plan)
            for taken, _ in _taken(merged, np.argsort(keys, kind="stable")):
                shard.append(taken)
        done.append(shard.entry())
    return done, summary


def _up_to(bound: int, segments: list[Segment], spill: Spill, plan: Plan) -> tuple[Examples, NDArray[np.uint64]]:
    """The rows of the segments, from their cursors on, whose keys are below the bound, and the keys."""
    found = []
    for segment in segments:
        last = segment.end if bound >= 2**64 else spill.first_at_least(bound, segment.row, segment.end)
        lengths = spill.read("lengths", segment.row, last - segment.row)
        found.append((segment.row, segment.entry, lengths))
        segment.row, segment.entry = last, segment.entry + int(lengths.sum(dtype=np.int64))
    lengths = np.concatenate([lengths for _, _, lengths in found]) if found else np.empty(0, np.uint32)
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))
    nnz = int(indptr[-1])
    merged = Examples(indptr, np.empty(nnz, np.int32), np.empty(nnz, plan.dtype), np.empty(len(lengths)))
    keys = np.empty(len(lengths), np.uint64)
    row = 0
    for first, entry, several in found:
        rows = slice(row, row + len(several))
        spill.read_into("keys", first, keys[rows])
        spill.read_into("labels", first, merged.labels[rows])
        begin, end = int(indptr[rows.start]), int(indptr[rows.stop])
        spill.read_into("indices", entry, merged.indices[begin:end])
        spill.read_into("values", entry, merged.values[begin:end])
        row = rows.stop
    return merged, keys


def _seed_bits(seed: int) -> np.uint64:
    """Seeds that follow each other become bits that do not."""
    return np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


# ------------------------------------------------------------------------------------------------------ by features


def _by_features(
    pieces: Iterable[Examples], output: Output, spill: Spill, plan: Plan
) -> tuple[list[ShardEntry], _Summary]:
    summary = _Summary()
    counts = np.zeros(1 << 16, np.int64)
    for piece in pieces:
        summary.add(piece)
        if summary.d > len(counts):
            # order and owners of the columns will be there beside the counts, and this copy
            length = max(summary.d, len(counts) + (len(counts) >> 2))
            if 40 * length > plan.budget:
                needed = (40 * summary.d + BASE_BYTES) >> 20
                raise UsageError("--memory", f"is too little for {summary.d} features", f"allow {needed} MiB or more")
            counts = np.concatenate((counts, np.zeros(length - len(counts), np.int64)))
        kernels.count_columns(piece.indices, counts)
        spill.append(piece)
    counts = counts[: summary.d]
    occurring = int(np.count_nonzero(counts))
    if occurring < plan.shards:
        raise UsageError(f"--shards {plan.shards}", f"only {occurring} features occur", "cut fewer")
    owners = _deal_columns(counts, plan)
    n = summary.n
    entries = np.bincount(owners, counts, plan.shards).astype(np.int64)
    shards = [output.shard(plan, n, int(nnz), summary.spellings) for nnz in entries]
    chunk_rows = max(1, min(_CHUNK_ROWS, plan.budget // (16 * 8 * plan.shards)))
    row = entry = 0
    while row < n:
        lengths = spill.read("lengths", row, min(chunk_rows, n - row))
        ends = np.cumsum(lengths, dtype=np.int64)
        rows = max(1, int(np.searchsorted(ends, _CHUNK_ENTRIES, "right")))
        indptr = np.concatenate((np.zeros(1, np.int64), ends[:rows]))
        nnz = int(indptr[-1])
        labels = spill.read("labels", row, rows)
        indices, values = np.empty(nnz, np.int32), np.empty(nnz, plan.dtype)
        starts, row_ends = np.empty(plan.shards, np.int64), np.empty((plan.shards, rows), np.int64)
        kernels.part_columns(
            indptr,
            spill.read("indices", entry, nnz),
            spill.read("values", entry, nnz),
            owners,
            starts,
            row_ends,
            indices,
            values,
        )
        for shard, start, several in zip(shards, starts.tolist(), row_ends, strict=True):
            own = slice(start, start + int(several[-1]))
            indptr = np.concatenate((np.zeros(1, np.int64), several))
            shard.append(Examples(indptr, indices[own], values[own], labels))
        row, entry = row + rows, entry + nnz
    return [shard.entry() for shard in shards], summary


def _deal_columns(counts: NDArray[np.int64], plan: Plan) -> NDArray[np.int32]:
    """The shard of every column; see partition.deal_features."""
    occurring = np.flatnonzero(counts)
    owners = np.zeros(len(counts), np.int32)
    for number, part in enumerate(partition.deal_features(counts[occurring], plan.shards, plan.seed)):
        owners[occurring[part]] = number
    return owners
