"""The command `path`: the problem for one lam after the other, each from where the one before ended."""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from acccocoa.config import ObjectiveConfig, PathConfig
from acccocoa.errors import UsageError
from coordinator import report, session, task
from coordinator.model_file import ModelFile
from coordinator.opening import check_outputs
from coordinator.settings import Settings
from coordinator.task import EXIT_CODES


def refuse_strength(objective: ObjectiveConfig) -> None:
    """A path has no lam of its own, and one classifier.

    Raises
    ------
    UsageError : the settings say otherwise
    """
    for flag, given in (("--lam", objective.lam), ("--C", objective.C)):
        if given is not None:
            raise UsageError(f"{flag} {given:g}", "is for one problem", "see --lam-max, --lam-min-ratio and --points")


def refuse_multiclass(objective: ObjectiveConfig, what: str) -> None:
    """Many problems, but of one classifier.

    Raises
    ------
    UsageError : the settings say otherwise
    """
    if objective.multiclass != "none":
        raise UsageError(
            f"--multiclass {objective.multiclass}",
            f"is not for {what}",
            "leave all but two labels out of DATA, or see train",
        )


def run(settings: Settings, path: PathConfig) -> int:
    """Solve the problems and print a table, or a JSON object; returns the exit code.

    With --model PATH the model of point k (0, 1, ...) is written to PATH.k.

    Raises
    ------
    AcccocoaError : as the contract's exit codes say
    """
    refuse_strength(settings.objective)
    refuse_multiclass(settings.objective, "path")
    base = settings.output.model
    models = [None if base is None else ModelFile(f"{base}.{k}") for k in range(path.points)]
    for model in models:
        if model is not None:
            check_outputs(settings.data, replace(settings.output, model=model.path))
    points: list[dict[str, Any]] = []
    with session.opened(replace(settings, output=replace(settings.output, model=None)), "path") as opened:
        lams = opened.lams(path)
        algorithm: dict[str, Any] = {}
        for k, (lam, model) in enumerate(zip(lams, models, strict=True)):
            opened.progress.stage(f"lam {lam:.5g}, {k + 1} of {len(lams)}")
            began = time.monotonic()
            objective = replace(settings.objective, lam=lam)
            solved = opened.solve(objective, opened.job, warm=k > 0, about={"lam": lam})
            algorithm = task.algorithm_summary(solved.begun, settings, opened.shards)
            point = {
                "lam": lam,
                **task.run_summary(solved.outcome),
                "nonzeros": int(np.count_nonzero(solved.w[: opened.job.d])),
                **{name: algorithm.pop(name) for name in task.OF_A_RUN},
                "solve_seconds": time.monotonic() - began,
                "model": None if model is None else model.path,
            }
            if model is not None:
                model.save(task.model_of(objective, opened.job, solved.w), point)
            points.append(point)
            if point["status"] in ("interrupted", "max_seconds"):
                break
        data = task.data_summary(settings, opened.job, opened.shards)
        del data["lam"]
        summary = {
            "status": task.worst_status(point["status"] for point in points),
            "deterministic": all(point["deterministic"] for point in points),
            **opened.summary(),
            **data,
            **algorithm,
            "lam_max": lams[0],
            "points": points,
        }
    report.conclude(settings.output, summary, _table(points))
    return EXIT_CODES[str(summary["status"])]


def _table(points: list[dict[str, Any]]) -> str:
    columns = ("lam", "primal", "relative_gap", "nonzeros", "rounds", "data_passes", "solve_seconds")
    header = ("lam", "primal", "relative gap", "nonzeros", "rounds", "passes", "seconds")
    return report.table(header, [[point[column] for column in columns] for point in points])
