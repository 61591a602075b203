"""Rounds to a certified relative gap: CoCoA+ against AccCoCoA+ with each restart rule.

    python -m benchmarks.rounds [DATA] [--k 4] [--epochs 1] [--loss hinge] [--lam 1e-3 --lam 1e-4 ...]

Counts rounds, not seconds: the workers are solved in this process, one after the other, certified every round.
"""

import threading

import click

from acccocoa import libsvm, synthetic
from acccocoa.config import Restart, StopConfig
from acccocoa.errors import UsageError
from acccocoa.problem import Problem
from coordinator.outer_loop import OuterLoop
from coordinator.schedule import CertificateSchedule
from coordinator.training import CertifiedRound, Training
from tests.support.inprocess import InProcessWorkers

GAPS = (1e-1, 3e-2, 1e-2, 1e-3, 1e-4)

METHODS: dict[str, tuple[bool, Restart, bool]] = {
    "CoCoA+": (False, "none", False),
    "AccCoCoA+ as printed": (True, "none", False),
    "gradient restart": (True, "gradient", False),
    "gap restart": (True, "gap", False),
    "shrinking (default)": (True, "gap", True),
}
"""By name: accelerated, the restart rule, and whether coordinates that do not move rest."""


@click.command()
@click.argument("data", required=False)
@click.option("--k", default=4, help="workers")
@click.option("--epochs", default=1.0, help="passes a round")
@click.option("--loss", default="hinge")
@click.option("--lam", multiple=True, type=float, default=(1e-3, 1e-4, 1e-5, 1e-6))
@click.option("--max-passes", default=600.0)
@click.option("--tol", default=1e-3)
@click.option("--method", multiple=True, default=tuple(METHODS))
def main(
    data: str | None,
    k: int,
    epochs: float,
    loss: str,
    lam: tuple[float, ...],
    max_passes: float,
    tol: float,
    method: tuple[str, ...],
) -> None:
    """Print the table for DATA (covtype-like data of 68,178 rows when none is given)."""
    examples = libsvm.read([data]) if data else synthetic.examples("covtype", 68_178, 54, 1)
    labels = sorted(set(examples.labels.tolist()))
    if len(labels) != 2:
        raise UsageError("DATA", "needs two labels")
    print(f"n {examples.n}, d {examples.d}, nnz {examples.nnz}; {loss}, K = {k}, {epochs:g} passes a round")
    print(f"{'lam':>8}  {'method':<22}" + "".join(f"{gap:>9.0e}" for gap in GAPS) + "   (rounds to that relative gap)")
    for strength in lam:
        for name in method:
            accelerate, restart, shrinking = METHODS[name]
            reached: dict[float, int] = {}

            def observe(seen: CertifiedRound, reached: dict[float, int] = reached) -> None:
                for gap in GAPS:
                    if seen.best_relative_gap <= gap:
                        reached.setdefault(gap, seen.round)

            problem = Problem(loss, strength, examples.n)
            workers = InProcessWorkers(examples, problem, k, positive_label=labels[1], shrinking=shrinking)
            loop = OuterLoop(problem, examples.d, workers.blocks, accelerate=accelerate, restart=restart)
            Training(
                loop,
                workers,
                workers.plan(epochs),
                CertificateSchedule(tol, every_round=True),
                StopConfig(tol=tol, max_rounds=round(max_passes / epochs)),
                interrupted=threading.Event(),
                observe=observe,
            ).run()
            print(
                f"{strength:>8.0e}  {name:<22}" + "".join(f"{reached.get(gap, '-'):>9}" for gap in GAPS),
                flush=True,
            )


if __name__ == "__main__":
    main()
