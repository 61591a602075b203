"""train --multiclass ovr: a classifier of every label against the rest, many at the same time over the same shards."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from coordinator import report, session, task
from coordinator.handshake import VECTORS, Job, ShardDescription, found_labels
from coordinator.session import Session, Solved
from coordinator.settings import Settings
from coordinator.task import EXIT_CODES

ROW_BYTES = 60
"""What a worker keeps of a row for every problem: alpha, z, z_{t+1}, label, weight, rests, a copy to be written."""

SHARED_VECTORS = 4
"""Of the length of its support that a worker holds for every problem: w_t and u, and what arrives and leaves."""

ENTRY_BYTES = 8
"""What the data takes for an entry."""

SMALL_BYTES = 1 << 28
"""Below that nobody counts."""

MEMORY_SHARE = 0.25
"""Of this machine's memory that may go into the vectors of several problems."""


def train(settings: Settings) -> int:
    """Train a classifier for every label; returns the exit code.

    Of two labels only the larger one gets a classifier: the model is that of a binary loss.

    Raises
    ------
    AcccocoaError : as the contract's exit codes say
    """
    output = settings.output
    with session.opened(settings, "train --multiclass ovr") as opened, ExitStack() as stack:
        jobs = _jobs(opened)
        if opened.file is not None:
            stack.enter_context(opened.file.room(len(jobs) * (opened.job.d + 1)))
        solved: list[Solved] = []
        size = together(opened.job, opened.shards, task.memory())
        for first in range(0, len(jobs), size):
            batch = jobs[first : first + size]
            opened.progress.stage(_stage(first, batch, len(jobs)))
            about = [{"label": job.labels[0]} for job in batch]
            solved += opened.solve_together(settings.objective, batch, about)
        summary = _summary(opened, jobs, solved)
        if opened.file is not None:
            whole = opened.job if len(jobs) > 1 else jobs[0]
            w = np.stack([each.w for each in solved]) if len(jobs) > 1 else solved[0].w
            opened.file.save(task.model_of(settings.objective, whole, w), summary)
    written = f"; the model is in {output.model}" if output.model else ""
    report.conclude_run(
        output,
        summary,
        f"{summary['status']}: {len(jobs)} classifiers, largest certified relative gap "
        f"{summary['relative_gap']:.3e}, {summary['data_passes']:.1f} passes{written}",
    )
    return EXIT_CODES[str(summary["status"])]


def _jobs(opened: Session) -> list[Job]:
    """A job for each label, ascending; with two labels one for the larger one."""
    base = opened.job
    labels = found_labels(opened.shards[:1] if base.by_features else opened.shards)
    if len(labels) == 2:
        (_, negative, _), (value, positive, _) = labels
        return [replace(base, positive_label=value, labels=(positive, negative))]
    # as in LIBLINEAR, a label's weight counts in its own classifier
    return [
        replace(
            base,
            positive_label=value,
            labels=(spelling, "the rest"),
            label_weights={label: weight for label, weight in base.label_weights.items() if label == value},
        )
        for value, spelling, _ in labels
    ]


def _stage(first: int, batch: Sequence[Job], of: int) -> str:
    labels = batch[0].labels[0] if len(batch) == 1 else f"{batch[0].labels[0]} to {batch[-1].labels[0]}"
    numbers = first + 1 if len(batch) == 1 else f"{first + 1} to {first + len(batch)}"
    return f"label{'s' if len(batch) > 1 else ''} {labels}, {numbers} of {of}"


def together(job: Job, shards: Sequence[ShardDescription], memory: int) -> int:
    """How many problems are solved at the same time, at least one.

    What they need beside the data is not to outgrow it: at a worker dual variables, here vectors of the shared length.

    memory : bytes of this machine
    """
    by_worker = min(
        max(ENTRY_BYTES * shard.nnz, SMALL_BYTES)
        // (ROW_BYTES * shard.n + SHARED_VECTORS * 8 * min(shard.d, shard.nnz))
        for shard in shards
    )
    here = int(MEMORY_SHARE * memory) // (8 * VECTORS * max(job.shared, job.d))
    return max(1, min(by_worker, here))


def _summary(opened: Session, jobs: Sequence[Job], solved: Sequence[Solved]) -> dict[str, Any]:
    """The --json object: of a run as always, with sums over the classifiers (of gaps the largest), and each of them."""
    runs = [task.run_summary(each.outcome) for each in solved]
    total: dict[str, Any] = {
        "status": task.worst_status(run["status"] for run in runs),
        **{key: sum(run[key] for run in runs) for key in ("primal", "dual", "gap")},
        **{key: max(run[key] for run in runs) for key in ("relative_gap", "drift")},
        **{key: sum(run[key] for run in runs) for key in ("rounds", "data_passes", "restarts", "resyncs")},
        "deterministic": all(run["deterministic"] for run in runs),
    }
    return {
        **total,
        **opened.summary(),
        **task.data_summary(opened.settings, opened.job, opened.shards),
        **task.algorithm_summary(solved[0].begun, opened.settings, opened.shards),
        "multiclass": "ovr",
        "classes": [
            {"label": job.labels[0], **run, "solve_seconds": each.outcome.solve_seconds}
            for job, run, each in zip(jobs, runs, solved, strict=True)
        ],
        "model": opened.settings.output.model,
    }
