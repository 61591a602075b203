"""The command `cv`: which lam predicts best the examples that were held out.

Every worker knows from an example's entries in which fold it is (acccocoa.folds): no data moves. For every fold the
problems without it are solved along a path, and each model is scored on the fold.
"""

import math
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import Any

from acccocoa.config import CvConfig, ObjectiveConfig, PathConfig
from acccocoa.errors import UsageError
from acccocoa.folds import Scores
from acccocoa.losses import loss
from coordinator import report, session, task
from coordinator.path import refuse_multiclass
from coordinator.session import Session, Solved, Split
from coordinator.settings import Settings
from coordinator.task import EXIT_CODES


def run(settings: Settings, path: PathConfig, cv: CvConfig) -> int:
    """Solve the problems and print a table, or a JSON object; returns the exit code.

    With --lam or --C only that strength is looked at. With --model PATH the model of the best one, of all examples, is
    written there.

    Raises
    ------
    AcccocoaError : as the contract's exit codes say
    """
    objective, output = settings.objective, settings.output
    refuse_multiclass(objective, "cv")
    refuse_grid(objective, path)
    with session.opened(settings, "cv") as opened, ExitStack() as stack:
        if opened.file is not None:
            stack.enter_context(opened.file.room(opened.job.d + 1))
        one = objective.lam is not None or objective.C is not None
        lams = [objective.strength(opened.job.n)] if one else opened.lams(path)
        split = opened.split(cv.folds, settings.algorithm.seed)
        solved = [_fold(opened, split, number, lams) for number in range(cv.folds)]
        classifier = loss(objective.loss, objective.loss_parameter).classifier
        points = [_point(lam, [fold[k] for fold in solved], classifier) for k, lam in enumerate(lams)]
        whole = all(None not in fold for fold in solved)
        best = min(points, key=lambda point: math.inf if point["loss"] is None else point["loss"])
        outcomes = [run.outcome for fold in solved for run in fold if run is not None]
        data = task.data_summary(settings, opened.job, opened.shards)
        del data["lam"]
        first = solved[0][0]
        assert first is not None  # a run that is interrupted at once is certified all the same
        chosen = None
        if whole and opened.file is not None:
            opened.progress.stage(f"lam {best['lam']:.5g}, all examples")
            chosen = opened.solve(
                replace(objective, lam=best["lam"], C=None), opened.job, about={"lam": best["lam"], "fold": None}
            )
            outcomes.append(chosen.outcome)
        algorithm = task.algorithm_summary(first.begun, settings, opened.shards)
        summary = {
            "status": task.worst_status(outcome.status for outcome in outcomes),
            "deterministic": all(outcome.deterministic for outcome in outcomes),
            **opened.summary(),
            **data,
            **{name: value for name, value in algorithm.items() if name not in task.OF_A_RUN},
            "folds": cv.folds,
            "fold_sizes": split.sizes,
            "points": points,
            "best": best if whole else None,
            "largest_within_one_error": _one_error(points, best) if whole else None,
            "model": None if chosen is None else output.model,
        }
        if chosen is not None and opened.file is not None:
            about = {**task.run_summary(chosen.outcome), "lam": best["lam"], "cv": summary}
            opened.file.save(task.model_of(objective, opened.job, chosen.w), about)
    report.conclude(output, summary, _table(points, best if whole else None, cv.folds))
    return EXIT_CODES[str(summary["status"])]


def refuse_grid(objective: ObjectiveConfig, path: PathConfig) -> None:
    """With a lam of its own nothing of a path's is said.

    Raises
    ------
    UsageError : it is
    """
    one = next((flag for flag, value in (("--lam", objective.lam), ("--C", objective.C)) if value is not None), None)
    for field in fields(path):
        if one is not None and getattr(path, field.name) != field.default:
            flag = "--" + field.name.replace("_", "-")
            raise UsageError(f"{one} and {flag}", "exclude each other: one lam is not a path", "leave out one of them")


def _fold(opened: Session, split: Split, number: int, lams: Sequence[float]) -> list[Solved | None]:
    """The models without that fold, None where the run was ended before."""
    runs: list[Solved | None] = []
    for k, lam in enumerate(lams):
        opened.progress.stage(f"fold {number + 1} of {len(split.sizes)}, lam {lam:.5g}, {k + 1} of {len(lams)}")
        objective = replace(opened.settings.objective, lam=lam, C=None)
        about = {"fold": number, "lam": lam}
        run = opened.solve(objective, opened.job, warm=k > 0, about=about, left_out=split.leave_out(number))
        runs.append(run)
        if run.outcome.status in ("interrupted", "max_seconds"):
            break
    return runs + [None] * (len(lams) - len(runs))


def _point(lam: float, runs: Sequence[Solved | None], classifier: bool) -> dict[str, Any]:
    """What is found for one lam over all folds: means, and their standard errors; None where a fold is missing."""
    found = [(run.scores, run) for run in runs if run is not None and run.scores is not None]
    scores = [each for each, _ in found]
    name = "accuracy" if classifier else "mse"
    point: dict[str, Any] = {"lam": lam, "loss": None, "loss_error": None, name: None, f"{name}_error": None}
    if len(found) == len(runs):
        point["loss"], point["loss_error"] = _mean([each.loss_sum / each.examples for each in scores])
        point[name], point[f"{name}_error"] = _mean([_quality(each, classifier) for each in scores])
    point["relative_gap"] = max((run.outcome.relative_gap for _, run in found), default=None)
    return point


def _quality(scores: Scores, classifier: bool) -> float:
    return scores.correct / scores.examples if classifier else scores.squared_error / scores.examples


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Of the folds, and its standard error."""
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


def _one_error(points: Sequence[dict[str, Any]], best: dict[str, Any]) -> dict[str, Any]:
    """The point with the largest lam whose loss is within one standard error of the least."""
    return next(point for point in points if point["loss"] <= best["loss"] + best["loss_error"])


def _table(points: Sequence[dict[str, Any]], best: dict[str, Any] | None, folds: int) -> str:
    name = "accuracy" if "accuracy" in points[0] else "mse"
    columns = ("lam", "loss", "loss_error", name, f"{name}_error", "relative_gap")
    header = ("lam", "held-out loss", "+-", name, "+-", "largest relative gap", "")
    rows = [
        [*("-" if point[column] is None else point[column] for column in columns), "best" if point is best else ""]
        for point in points
    ]
    return f"{report.table(header, rows)}\n(means over {folds} folds and their standard errors)"
