"""The same seed and the same shards give the same model, bit for bit, whatever the machines are doing meanwhile."""

import json
import signal
from pathlib import Path

from tests.integration.processes import Launcher, Running, Worker, wait_until

RUN = ("--lam", 1e-4, "--tol", 1e-12, "--max-rounds", 150, "--local-epochs", 0.5, "--quiet", "--certify-every-round")
"""Ends after a number of rounds, whatever came of it."""


def train(launch: Launcher, name: str, *arguments: object) -> bytes:
    finished = launch.run("coordinator", "train", *arguments, *RUN, "--model", name)
    assert finished.exit_code == 3, finished.stderr
    return (launch.directory / name).read_bytes()


def joined(workers: list[Worker]) -> str:
    return ",".join(worker.address for worker in workers)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def hold(worker: Worker, trace: Path) -> None:
    """Stop a worker in the middle of a run until the others have nothing left to do, then let it go on."""
    worker.stop()
    seen = [-1]

    def quiet() -> bool:
        seen.append(lines(trace))
        return len(seen) > 5 and len(set(seen[-5:])) == 1

    wait_until(quiet, "the run stands still")
    worker.signal(signal.SIGCONT)
    before = lines(trace)
    wait_until(lambda: lines(trace) > before, "the run goes on")


def test_whatever_the_order_of_addresses_and_answers(launch: Launcher, sparse: Path) -> None:
    workers = launch.workers(sparse, 3)
    first = train(launch, "first", "--workers", joined(workers))
    assert train(launch, "reversed", "--workers", joined(workers[::-1])) == first
    (launch.directory / "addresses").write_text("\n".join(w.address for w in (workers[1], workers[2], workers[0])))
    assert train(launch, "file", "--workers", "@addresses") == first

    trace = launch.directory / "trace"
    held: Running = launch.start(
        "coordinator", "train", "--workers", joined(workers), *RUN, "--model", "held", "--trace", trace
    )
    for worker in workers:
        wait_until(lambda: lines(trace) > 2, "the run begins")
        hold(worker, trace)
    assert lines(trace) < 150
    assert held.finish().exit_code == 3
    assert (launch.directory / "held").read_bytes() == first

    assert train(launch, "local", sparse, "--local", 3) == first
    assert train(launch, "other-seed", "--workers", joined(workers), "--seed", 1) != first


def test_whatever_the_threads_do(launch: Launcher, sparse: Path) -> None:
    workers = launch.workers(sparse, 2, threads=2)
    first = train(launch, "first", "--workers", joined(workers))
    assert train(launch, "again", "--workers", joined(workers[::-1])) == first
    assert train(launch, "local", sparse, "--local", 2, "--threads", 2) == first


def test_certificates_do_not_change_the_run(launch: Launcher, addresses: str) -> None:
    short = ("--workers", addresses, "--lam", 1e-4, "--tol", 1e-12, "--max-rounds", 40, "--restart", "none", "--quiet")
    for name, extra in (("seldom", ()), ("always", ("--certify-every-round",))):
        run = launch.run("coordinator", "train", *short, *extra, "--trace", name)
        assert run.exit_code == 3
    traces = {
        name: {line["round"]: line for line in map(json.loads, (launch.directory / name).read_text().splitlines())}
        for name in ("seldom", "always")
    }
    assert traces["seldom"].keys() < traces["always"].keys() == set(range(41))
    for number, line in traces["seldom"].items():
        assert (line["primal"], line["dual"]) == (traces["always"][number]["primal"], traces["always"][number]["dual"])


def test_a_lasso_whatever_the_threads(launch: Launcher, sparse: Path) -> None:
    """By features with an l1 norm threads share the certificates; a worker's features stay one block."""
    lasso = ("train", sparse, "--loss", "squared", "--l1-ratio", 1, "--lam", 1e-2, "--tol", 1e-9)
    models, rounds = set(), set()
    report = ("--json", "--quiet", "--model", "m")
    for threads in (1, 3):
        done = launch.run("coordinator", *lasso, "--local", 2, "--threads", threads, *report)
        assert done.exit_code == 0, done.stderr
        result = json.loads(done.stdout)
        assert (result["threads"], result["sigma"]) == (threads, 2.0)
        rounds.add(result["rounds"])
        models.add((launch.directory / "m").read_bytes())
    assert len(models) == len(rounds) == 1
