"""What survives what, promise by promise: docs/recovery.md."""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acccocoa import synthetic
from acccocoa.v1 import worker_pb2 as pb
from tests.cluster import recompute
from tests.cluster.arena import HINGE, Arena, Undisturbed
from tests.cluster.chaos import small_disk
from tests.integration.processes import Launcher
from tests.integration.wire import man_in_the_middle
from tests.support.forked import POLL_SECONDS, Forked

MakeArena = Callable[..., Arena]

SHORT = (*HINGE, "--tol", "1e-3")
"""For what is run over and over: killed as often, in fewer rounds."""

QUICK = ("--silence", "2")

COVTYPE = Path(__file__).parents[3] / "shared" / "data" / "covtype68k.scale.xz"


def assert_true(arena: Arena, result: dict[str, Any], data: Path, lam: float) -> None:
    """Primal and dual are those of the model and of the workers' dual variables, computed anew."""
    table = recompute.read_table(data)
    primal = recompute.primal("hinge", lam, table, recompute.read_weights(arena.model))
    parts = [recompute.newest_duals(arena.state(number)) for number in range(len(arena.workers))]
    dual = recompute.dual("hinge", lam, table, recompute.join(table.n, parts))
    assert abs(primal - result["primal"]) <= 1e-9
    assert abs(dual - result["dual"]) <= 1e-9


# ------------------------------------------------------------------------------------------------------- lost workers


def replayed(arena: Arena, coordinator: Forked, number: int = 1) -> dict[str, Any]:
    """The result of a run that loses that worker now and gives it what it knew once more, when it is back."""
    arena.workers[number].kill()
    arena.back(number)
    result = arena.result(coordinator)
    assert result["reconnects"] == 1
    assert result["replayed"] > 0
    assert result["resyncs"] == 0
    return result


@pytest.mark.parametrize("kept", [True, False], ids=["state", "no state"])
def test_a_killed_worker_costs_no_round(
    arena: MakeArena, covtype_like: Path, undisturbed: Undisturbed, kept: bool
) -> None:
    some = arena(covtype_like, kept=kept)
    expected, model = undisturbed
    coordinator = some.train(*HINGE)
    some.wait_round(300, coordinator)
    result = replayed(some, coordinator)
    assert result["rounds"] == expected["rounds"]
    assert some.model.read_bytes() == model
    if kept:
        assert_true(some, result, covtype_like, 1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_killed_sole_worker_ends_its_rounds_where_it_did(arena: MakeArena, covtype_like: Path, threads: int) -> None:
    some = arena(covtype_like, 1, kept=False, threads=threads)
    options = ("--lam", "1e-5", "--tol", "1e-7", "--local-solver", "sdca", "--max-rounds", "3000")
    expected, _ = some.undisturbed(*options)
    coordinator = some.train(*options)
    some.wait_round(100, coordinator)
    result = replayed(some, coordinator, 0)
    assert (result["rounds"], result["primal"]) == (expected["rounds"], expected["primal"])


@pytest.mark.parametrize("limit", [(), ("--max-rounds", "1")], ids=["", "max-rounds"])
def test_a_sole_worker_killed_when_its_answer_has_arrived(
    arena: MakeArena, covtype_like: Path, limit: tuple[str, ...]
) -> None:
    """All that it would still be asked is to end the job there."""
    some = arena(covtype_like, 1, kept=False)
    options = ("--lam", "1e-2", "--tol", "1e-3", "--local-solver", "sdca", *limit)
    expected, model = some.undisturbed(*options)
    assert expected["rounds"] == 1
    killed: list[int] = []

    def kill(reply: pb.SolveReply) -> Iterator[pb.SolveReply]:
        yield reply
        if not killed and any(answer.update.HasField("standing") for answer in reply.answers.answers):
            killed.append(0)
            some.workers[0].kill()
            some.back(0)

    with man_in_the_middle(some.addresses[0], tamper=kill) as middle:
        train = ("train", "--workers", middle, "--json", "--model", some.model, *options)
        result = some.result(some.start(*train, package="coordinator"))
    assert killed
    assert (result["reconnects"], result["replayed"], result["resyncs"]) == (1, 1, 0)
    assert (result["status"], result["rounds"], result["dual"]) == ("converged", 1, expected["dual"])
    assert some.model.read_bytes() == model


@pytest.mark.parametrize("kept", [True, False], ids=["state", "no state"])
def test_a_killed_worker_costs_no_classifier_a_round(
    arena: MakeArena, covtype_like: Path, tmp_path: Path, kept: bool
) -> None:
    """Of several that are solved together, when some are solved already."""
    classes = tmp_path / "classes"
    lines = covtype_like.read_text().splitlines()
    # the rarer a label, the sooner it is told from the rest
    labels = ["3" if line.startswith("-") else "1" if number % 8 else "2" for number, line in enumerate(lines)]
    classes.write_text(
        "".join(f"{label} {line.partition(' ')[2]}\n" for label, line in zip(labels, lines, strict=True))
    )
    some = arena(classes, kept=kept, threads=2 if kept else 1)
    train = ("--lam", "1e-3", "--tol", "1e-4", "--certify-every-round", "--multiclass", "ovr", "--local-epochs", "0.5")
    expected, model = some.undisturbed(*train)
    rounds = sorted(each["rounds"] for each in expected["classes"])
    coordinator = some.train(*train, checkpoint=False)
    some.wait_round((rounds[0] + rounds[1]) // 2, coordinator)
    result = replayed(some, coordinator)
    assert [each["rounds"] for each in result["classes"]] == [each["rounds"] for each in expected["classes"]]
    assert some.model.read_bytes() == model


@pytest.fixture(params=["in its likeness", "the real one"])
def covtype(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """covtype68k.scale, where the real data sets are, and data in its likeness."""
    if request.param == "the real one":
        if not COVTYPE.exists():
            pytest.skip(f"{COVTYPE} is not here")
        return COVTYPE
    path = tmp_path_factory.mktemp("covtype") / "covtype.txt"
    synthetic.write("covtype", 20_000, 54, 3, path)
    return path


def test_a_killed_worker_costs_at_most_a_third_of_the_rounds(arena: MakeArena, covtype: Path) -> None:
    some = arena(covtype, 4)
    options = ("--lam", "1e-5", "--tol", "1e-3", "--certify-every-round")
    expected, _ = some.undisturbed(*options)
    coordinator = some.train(*options)
    some.wait_round(expected["rounds"] // 2, coordinator)
    some.workers[2].kill()
    some.back(2)
    result = some.result(coordinator)
    assert result["reconnects"] == 1
    assert result["rounds"] <= 1.3 * expected["rounds"]
    assert result["primal"] == pytest.approx(expected["primal"], rel=1e-6)
    print(
        f"{covtype.name}: {expected['rounds']} rounds to primal {expected['primal']:.12g}, with a worker killed "
        f"{result['rounds']} to {result['primal']:.12g}, {result['replayed']} of them repeated by it",
        file=sys.stderr,
    )


def test_the_objective_is_the_same_however_often_workers_die(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    options = ("--lam", "1e-2", "--tol", "1e-7")
    expected, _ = some.undisturbed(*options)
    coordinator = some.train(*options, "--certify-every-round")
    for at in (100, 200, 300):
        if coordinator.running:
            some.wait_round(at, coordinator)
            some.workers[at // 100 - 1].kill()
            some.back(at // 100 - 1)
    result = some.result(coordinator)
    assert result["primal"] == pytest.approx(expected["primal"], rel=1e-6)
    assert_true(some, result, covtype_like, 1e-2)


def test_a_worker_that_is_told_to_end_comes_back_where_it_was(
    arena: MakeArena, covtype_like: Path, undisturbed: Undisturbed
) -> None:
    some = arena(covtype_like)
    expected, model = undisturbed
    coordinator = some.train(*HINGE)
    some.wait_round(200, coordinator)
    began = time.monotonic()
    some.workers[0].signal(signal.SIGTERM)
    assert some.workers[0].wait(30.0) == 0
    assert time.monotonic() - began < 4.5, "it goes on for its whole period of grace"
    some.back(0)
    result = some.result(coordinator)
    assert (result["rounds"], result["resyncs"]) == (expected["rounds"], 0)
    # it has written down the round it had just computed
    assert result["replayed"] <= 1
    assert some.model.read_bytes() == model


@pytest.mark.parametrize("seconds", [0.3, 4.0], ids=["unnoticed", "silent"])
def test_a_worker_that_stood_still_goes_on(
    arena: MakeArena, covtype_like: Path, undisturbed: Undisturbed, seconds: float
) -> None:
    some = arena(covtype_like)
    expected, model = undisturbed
    coordinator = some.train(*HINGE, *QUICK)
    some.wait_round(150, coordinator)
    some.workers[2].signal(signal.SIGSTOP)
    time.sleep(seconds)
    some.workers[2].signal(signal.SIGCONT)
    result = some.result(coordinator)
    assert result["reconnects"] == (1 if seconds > 2.0 else 0)
    assert (result["rounds"], result["resyncs"]) == (expected["rounds"], 0)
    assert some.model.read_bytes() == model


def test_a_worker_that_stays_away_ends_the_run_with_all_there_is(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    coordinator = some.train(*HINGE, "--worker-patience", "2")
    some.wait_round(200, coordinator)
    some.workers[1].kill()
    assert coordinator.wait(32.0) == 5
    assert some.addresses[1] in coordinator.stderr
    assert str(some.model) in coordinator.stderr
    best = recompute.primal("hinge", 1e-4, recompute.read_table(covtype_like), recompute.read_weights(some.model))
    primals = [json.loads(line)["primal"] for line in some.trace.read_text().splitlines()]
    assert best == pytest.approx(min(primals), abs=1e-12)
    # from there it goes on as if nothing had happened
    rounds = [json.loads(line)["round"] for line in some.trace.read_text().splitlines()]
    some.back(1)
    result = some.result(some.train(*HINGE, "--resume"))
    assert result["rounds"] > rounds[-1] >= 200
    lines = [json.loads(line)["round"] for line in some.trace.read_text().splitlines()]
    assert lines == sorted(set(lines))


def test_by_features_the_best_model_is_written_too_when_a_worker_stays_away(
    arena: MakeArena, covtype_like: Path
) -> None:
    some = arena(covtype_like, by="features")
    loss = ("--loss", "squared", "--lam", "1e-5", "--l1-ratio", "0.5", "--tol", "1e-12", "--local-epochs", "0.05")
    coordinator = some.train(*loss, "--certify-every-round", "--worker-patience", "2")
    some.wait_round(50, coordinator)
    some.workers[1].kill()
    assert coordinator.wait(32.0) == 5
    assert f"the best model so far is in {some.model}" in coordinator.stderr
    w = recompute.read_weights(some.model)
    table = recompute.read_table(covtype_like)
    primals = [json.loads(line)["primal"] for line in some.trace.read_text().splitlines()]
    # of one of the certified rounds
    assert min(abs(np.array(primals) - recompute.primal("squared", 1e-5, table, w, 0.5))) <= 1e-12


def test_a_worker_that_comes_back_with_another_shard_is_told_which(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like, kept=False)
    coordinator = some.train(*HINGE, "--worker-patience", "10")
    some.wait_round(50, coordinator)
    some.workers[1].kill()
    some.addresses[0], some.addresses[1] = some.addresses[1], some.addresses[0]
    some.back(0)
    assert coordinator.wait(40.0) == 5
    assert "(holds another shard than the lost worker); serve that one there" in coordinator.stderr
    assert f"the best model so far is in {some.model}" in coordinator.stderr


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 3)])
def test_a_worker_that_comes_back_with_other_threads_changes_no_bit(
    arena: MakeArena, tmp_path: Path, before: int, after: int
) -> None:
    data = tmp_path / "narrow"
    synthetic.write("covtype", 6000, 54, 1, data)
    some = arena(data, threads=before)
    expected, model = some.undisturbed(*HINGE)
    assert expected["sigma"] == 3.0 * before
    coordinator = some.train(*HINGE)
    some.wait_round(50, coordinator)
    some.workers[1].kill()
    some.back(1, "--threads", after)
    result = some.result(coordinator)
    assert (result["reconnects"], result["rounds"], result["resyncs"]) == (1, expected["rounds"], 0)
    assert some.model.read_bytes() == model


def test_a_worker_that_stands_still_for_good_ends_the_run(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    coordinator = some.train(*HINGE, *QUICK, "--worker-patience", "2")
    some.wait_round(50, coordinator)
    some.workers[1].signal(signal.SIGSTOP)
    assert coordinator.wait(2.0 + 2.0 + 30.0) == 5
    assert "no sign of life" in coordinator.stderr


def test_a_worker_that_dies_over_and_over_ends_the_run(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like, kept=False)
    coordinator = some.train(*HINGE, "--worker-patience", "3")
    some.wait_round(20, coordinator)
    deadline = time.monotonic() + 3.0 + 30.0
    deaths = 0
    while coordinator.running:
        assert time.monotonic() < deadline, f"goes on for ever:\n{coordinator.stderr}"
        some.workers[0].kill()
        some.back(0)
        deaths += 1
    assert coordinator.wait(0) == 5
    assert deaths
    assert some.addresses[0] in coordinator.stderr.splitlines()[-1]


def test_a_worker_that_is_lost_while_the_job_begins_is_waited_for(
    arena: MakeArena, covtype_like: Path, undisturbed: Undisturbed
) -> None:
    some = arena(covtype_like)
    expected, model = undisturbed
    some.workers[0].wait_told(" serving ")
    # it answers, but not before it is killed
    some.workers[0].signal(signal.SIGSTOP)
    coordinator = some.train(*HINGE, *QUICK)
    time.sleep(1.0)
    some.workers[0].kill()
    some.back(0)
    result = some.result(coordinator)
    assert result["rounds"] == expected["rounds"]
    assert some.model.read_bytes() == model


# ------------------------------------------------------------------------------------------------------- coordinator


def test_a_coordinator_killed_at_any_moment_goes_on_with_the_same_bits(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    expected, model = some.undisturbed(*SHORT)
    rng = random.Random(7)
    rounds = [0, *(rng.randrange(expected["rounds"]) for _ in range(6)), expected["rounds"] - 1]
    for at in rounds:
        some.checkpoint.joinpath("coordinator.checkpoint").unlink(missing_ok=True)
        some.model.unlink(missing_ok=True)
        coordinator = some.train(*SHORT)
        some.wait_round(at, coordinator)
        time.sleep(rng.random() * 0.01)
        coordinator.kill()
        killed = coordinator.exit_code == -signal.SIGKILL
        result = some.result(some.train(*SHORT, "--resume"))
        assert result["resyncs"] == 0, f"killed in round {at}"
        assert result["rounds"] == expected["rounds"] or not killed
        assert some.model.read_bytes() == model, f"killed in round {at}"
        lines = [json.loads(line)["round"] for line in some.trace.read_text().splitlines()]
        assert lines == list(range(expected["rounds"] + 1)), f"killed in round {at}"
    assert_true(some, result, covtype_like, 1e-4)


def test_a_coordinator_killed_at_the_very_end_goes_on_with_the_same_bits(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    expected, model = some.undisturbed(*SHORT)
    rng = random.Random(8)
    for _ in range(5):
        some.checkpoint.joinpath("coordinator.checkpoint").unlink(missing_ok=True)
        some.model.unlink(missing_ok=True)
        coordinator = some.train(*SHORT)
        some.wait_round(expected["rounds"], coordinator)
        time.sleep(rng.random() * 0.02)
        coordinator.kill()
        result = some.result(some.train(*SHORT, "--resume"))
        assert (result["primal"], result["dual"]) == (expected["primal"], expected["dual"])
        assert (result["rounds"], result["resyncs"]) == (expected["rounds"], 0)
        assert some.model.read_bytes() == model


def test_killed_over_and_over_it_still_arrives_with_the_same_bits(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like, threads=2)
    expected, model = some.undisturbed(*HINGE)
    rng = random.Random(9)
    coordinator = some.train(*HINGE)
    for at in range(80, expected["rounds"], 160):
        some.wait_round(at, coordinator)
        time.sleep(rng.random() * 0.05)
        coordinator.kill()
        coordinator = some.train(*HINGE, "--resume")
    assert some.result(coordinator)["resyncs"] == 0
    assert some.model.read_bytes() == model


def test_everything_killed_goes_on_from_what_was_written_down(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    train = (*HINGE, "--tol", "1e-5")
    expected, _ = some.undisturbed(*train)

    def written() -> list[dict[str, Any]]:
        return [recompute.newest_duals(some.state(number)).facts for number in range(3)]

    earlier = written()[0]["job_id"]
    coordinator = some.train(*train)
    # until there are dual variables on disk that are worth something
    while any(facts["job_id"] == earlier or facts["round"] < 100 for facts in written()):
        assert coordinator.running, coordinator.stderr
        time.sleep(POLL_SECONDS)
    coordinator.kill()
    for worker in some.workers:
        worker.kill()
    with np.load(some.checkpoint / "coordinator.checkpoint") as archive:
        rounds = {json.loads(str(archive["head"]))["facts"]["round"], *(facts["round"] for facts in written())}
    for number in range(3):
        some.back(number)
    result = some.result(some.train(*train, "--resume"))
    # by chance all of them were written down at the start of the same round: then nothing is lost
    assert (result["resyncs"] >= 1) == (len(rounds) > 1)
    assert result["rounds"] < 2 * expected["rounds"]
    assert_true(some, result, covtype_like, 1e-4)


def test_a_coordinator_that_is_told_to_end_can_be_resumed(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    coordinator = some.train(*HINGE)
    some.wait_round(100, coordinator)
    coordinator.signal(signal.SIGTERM)
    interrupted = some.result(coordinator, 130)
    assert interrupted["status"] == "interrupted"
    assert recompute.read_weights(some.model).any()
    result = some.result(some.train(*HINGE, "--resume"))
    assert result["rounds"] > interrupted["rounds"]
    assert result["resyncs"] == 0
    assert_true(some, result, covtype_like, 1e-4)


def test_a_job_that_has_ended_is_not_begun_again_by_resume(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    result = some.result(some.train(*HINGE))
    model = some.model.read_bytes()
    some.model.unlink()
    again = some.result(some.train(*HINGE, "--resume"))
    assert some.model.read_bytes() == model
    assert [again[key] for key in ("primal", "dual", "rounds")] == [result[key] for key in ("primal", "dual", "rounds")]
    further = some.result(some.train("--lam", "1e-4", "--tol", "3e-5", "--resume"))
    assert further["rounds"] > result["rounds"]
    assert further["relative_gap"] <= 3e-5


def test_resume_without_a_checkpoint_begins(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    assert some.result(some.train(*HINGE, "--resume"))["status"] == "converged"


def test_another_objective_is_refused_unless_asked_for(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    cold = some.result(some.train("--lam", "3e-5", "--tol", "1e-3", checkpoint=False))
    some.result(some.train("--lam", "1e-4", "--tol", "1e-4"))
    trace = some.trace.read_bytes()
    refused = some.train("--lam", "3e-5", "--tol", "1e-3", "--resume")
    assert refused.wait(60.0) == 2
    assert "lam" in refused.stderr
    assert "--allow-change" in refused.stderr
    assert some.trace.read_bytes() == trace
    warm = some.result(some.train("--lam", "3e-5", "--tol", "1e-3", "--resume", "--allow-change"))
    assert warm["rounds"] < cold["rounds"]
    assert warm["resyncs"] == 1
    assert_true(some, warm, covtype_like, 3e-5)


def test_dual_variables_are_brought_into_the_domain_of_another_loss(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    # those of the squared hinge have no upper end
    some.result(some.train("--loss", "squared_hinge", "--lam", "1e-5", "--tol", "1e-3"))
    coordinator = some.train(*HINGE, "--resume", "--allow-change")
    some.wait_round(20, coordinator)
    # what it finds on its disk when it comes back is of the squared hinge, or has been changed already
    some.workers[0].kill()
    some.back(0)
    assert_true(some, some.result(coordinator), covtype_like, 1e-4)


def test_a_damaged_checkpoint_is_refused_by_name(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    some.result(some.train(*HINGE))
    path = some.checkpoint / "coordinator.checkpoint"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    refused = some.train(*HINGE, "--resume")
    assert refused.wait(60.0) == 4
    assert str(path) in refused.stderr
    path.unlink()
    assert some.result(some.train(*HINGE, "--resume"))["status"] == "converged"


def test_a_checkpoint_directory_has_one_coordinator(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    first = some.train(*HINGE)
    some.wait_round(10, first)
    second = some.train(*HINGE, "--resume", "--wait")
    assert second.wait(60.0) == 2
    assert str(some.checkpoint) in second.stderr
    assert some.result(first)["reconnects"] == 0


# ------------------------------------------------------------------------------------------------- workers' directories


def newest(directory: Path) -> recompute.Duals:
    return recompute.newest_duals(directory)


def test_a_damaged_file_of_dual_variables_is_told_of_and_the_one_before_is_taken(
    arena: MakeArena, covtype_like: Path
) -> None:
    some = arena(covtype_like)
    coordinator = some.train("--lam", "1e-6", "--tol", "1e-6", "--certify-every-round")
    deadline = time.monotonic() + 60.0
    while len(list(some.state(0).glob("*.duals"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    coordinator.kill()
    some.workers[0].kill()
    good = newest(some.state(0))
    content = bytearray(good.path.read_bytes())
    content[len(content) // 2] ^= 0x10
    good.path.write_bytes(content)
    worker = some.back(0)
    assert f"checkpoint {good.path} is damaged" in worker.stderr
    (older,) = [path for path in some.state(0).glob("*.duals") if path != good.path]
    older_round = recompute.read_duals(older).facts["round"]
    assert older_round < good.facts["round"]
    assert f"round {older_round}, taken from {older}" in worker.stderr
    resumed = some.train("--lam", "1e-6", "--tol", "3e-2", "--resume")
    assert_true(some, some.result(resumed), covtype_like, 1e-6)


def test_directories_that_cannot_be_written_are_refused_before_anything_begins(
    arena: MakeArena, covtype_like: Path
) -> None:
    some = arena(covtype_like)
    blocked = some.directory / "file"
    blocked.write_text("")
    worker = some.start("serve", f"{covtype_like}#0/3", "--listen", "127.0.0.1:0", "--state", blocked / "state")
    assert worker.wait(60.0) == 2
    assert f"--state {blocked / 'state'}" in worker.stderr
    refused = some.train(*HINGE, "--checkpoint", blocked / "checkpoint", checkpoint=False)
    assert refused.wait(60.0) == 2
    assert f"--checkpoint {blocked / 'checkpoint'}" in refused.stderr
    assert "training" not in refused.stderr


@pytest.fixture
def disk(tmp_path: Path) -> Any:
    """A disk of a megabyte."""
    if os.geteuid() != 0:
        pytest.skip("a small file system can only be mounted by root")
    with small_disk(tmp_path / "disk"):
        yield tmp_path / "disk"


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(4096))


def test_a_read_only_disk_is_refused_before_anything_begins(disk: Path, arena: MakeArena, covtype_like: Path) -> None:
    os.system(f"mount -o remount,ro {disk}")  # a path of the test's own
    some = arena(covtype_like)
    worker = some.start("serve", f"{covtype_like}#0/3", "--listen", "127.0.0.1:0", "--state", disk)
    assert worker.wait(60.0) == 2
    refused = some.train(*HINGE, "--checkpoint", disk, checkpoint=False)
    assert refused.wait(60.0) == 2
    for process, option in ((worker, "--state"), (refused, "--checkpoint")):
        assert f"{option} {disk}" in process.stderr or str(disk) in process.stderr
        assert "Read-only" in process.stderr


def test_a_full_disk_under_checkpoints_does_not_end_a_run(
    disk: Path, arena: MakeArena, covtype_like: Path, undisturbed: Undisturbed
) -> None:
    some = arena(covtype_like)
    expected, model = undisturbed
    some.checkpoint = disk / "checkpoint"
    coordinator = some.train(*HINGE)
    some.wait_round(5, coordinator)
    first = (some.checkpoint / "coordinator.checkpoint").read_bytes()
    fill(disk)
    assert some.result(coordinator)["rounds"] == expected["rounds"]
    assert some.model.read_bytes() == model
    assert "no checkpoint" in coordinator.stderr
    # the one from before is whole
    assert (some.checkpoint / "coordinator.checkpoint").read_bytes()[:4] == first[:4]
    (disk / "filler").unlink()
    assert some.result(some.train(*HINGE, "--resume"))["rounds"] == expected["rounds"]
    assert some.model.read_bytes() == model


def test_a_disk_that_fills_up_under_the_model_does_not_matter(
    disk: Path, arena: MakeArena, covtype_like: Path, undisturbed: Undisturbed
) -> None:
    some = arena(covtype_like)
    expected, model = undisturbed
    some.model = disk / "model"
    coordinator = some.train(*HINGE)
    some.wait_round(5, coordinator)
    fill(disk)
    assert some.result(coordinator)["rounds"] == expected["rounds"]
    assert some.model.read_bytes() == model
    assert sorted(path.name for path in disk.iterdir()) == ["filler", "model", "model.json"]


@pytest.mark.parametrize("what", ["model", "checkpoint"])
def test_a_disk_without_room_is_refused_before_training(
    disk: Path, arena: MakeArena, covtype_like: Path, what: str
) -> None:
    some = arena(covtype_like)
    setattr(some, what, disk / what)
    (disk / "checkpoint").mkdir()
    fill(disk)
    refused = some.train(*HINGE)
    assert refused.wait(60.0) == 2
    assert f"{disk / what}: cannot be written: No space left" in refused.stderr
    assert "training" not in refused.stderr
    assert sorted(path.name for path in disk.rglob("*")) == ["checkpoint", "filler"]


def test_a_model_whose_directory_has_gone_is_kept_elsewhere(
    arena: MakeArena, covtype_like: Path, undisturbed: Undisturbed
) -> None:
    some = arena(covtype_like)
    _, model = undisturbed
    some.model = some.directory / "models" / "model"
    some.model.parent.mkdir()
    coordinator = some.train(*HINGE)
    some.wait_round(5, coordinator)
    some.model.parent.rmdir()
    assert coordinator.wait(60.0) == 2
    told = coordinator.stderr.splitlines()[-1]
    assert f"{some.model}.json: cannot be written: No such file or directory; the model is in " in told
    assert "--resume" in told
    instead = Path(told.partition("the model is in ")[2].partition(" instead")[0])
    assert instead.read_bytes() == model
    shutil.rmtree(instead.parent)
    some.model.parent.mkdir()
    some.result(some.train(*HINGE, "--resume"))
    assert some.model.read_bytes() == model


def test_a_full_disk_under_the_trace_leaves_the_best_model(
    disk: Path, arena: MakeArena, covtype_like: Path, undisturbed: Undisturbed
) -> None:
    some = arena(covtype_like)
    _, model = undisturbed
    some.trace = disk / "trace"
    coordinator = some.train(*HINGE)
    some.wait_round(50, coordinator)
    fill(disk)
    assert coordinator.wait(60.0) == 2
    assert str(some.trace) in coordinator.stderr
    assert np.isfinite(recompute.read_weights(some.model)).all()
    (disk / "filler").unlink()
    some.result(some.train(*HINGE, "--resume"))
    assert some.model.read_bytes() == model
    lines = [json.loads(line)["round"] for line in some.trace.read_text().splitlines()]
    assert lines == list(range(len(lines)))


def test_a_full_disk_under_dual_variables_does_not_end_a_run(
    disk: Path, arena: MakeArena, covtype_like: Path, undisturbed: Undisturbed
) -> None:
    some = arena(covtype_like, kept=False)
    expected, model = undisturbed
    some.workers[0].wait_told(" serving ")
    some.workers[0].signal(signal.SIGTERM)
    some.workers[0].wait(30.0)
    some.workers[0] = some.start_worker(0, "--state", disk)
    coordinator = some.train(*HINGE)
    some.wait_round(20, coordinator)
    fill(disk)
    assert some.result(coordinator)["rounds"] == expected["rounds"]
    assert some.model.read_bytes() == model
    assert "no checkpoint" in some.workers[0].stderr
    for path in disk.glob("*.duals"):
        recompute.read_duals(path)
    (disk / "filler").unlink()


# ------------------------------------------------------------------------------------------------ several coordinators


def test_a_second_coordinator_is_refused_by_name_or_waits(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    first = some.train(*HINGE, checkpoint=False)
    some.wait_round(5, first)
    job = some.workers[0].stderr.partition(" job ")[2].partition(":")[0]
    assert job
    second = some.train(*HINGE, "--model", some.directory / "second", checkpoint=False, trace=False)
    assert second.wait(60.0) == 5
    assert f"job {job}" in second.stderr
    waiting = [
        some.train(
            "--lam", "1e-3", "--tol", "1e-2", "--wait", "--model", some.directory / name, checkpoint=False, trace=False
        )
        for name in ("third", "fourth")
    ]
    assert some.result(first)["reconnects"] == 0
    for one in waiting:
        assert some.result(one)["status"] == "converged"
        assert f"held by job {job}" in one.stderr or "training" in one.stderr


def test_waiting_ends(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    first = some.train("--lam", "1e-7", "--tol", "1e-9", checkpoint=False)
    some.wait_round(5, first)
    waiting = some.train(*HINGE, "--wait", "--connect-timeout", "2", checkpoint=False, trace=False)
    assert waiting.wait(32.0) == 5
    assert "is held by job" in waiting.stderr.splitlines()[-1]
    first.kill()


# -------------------------------------------------------------------------------------------------------- stragglers


def slow_down(worker: Forked, coordinator: Forked) -> None:
    """Let the worker run for a twentieth of the time until the coordinator ends: the pauses are the fault itself."""
    while coordinator.running:
        worker.signal(signal.SIGSTOP)
        time.sleep(0.1)
        worker.signal(signal.SIGCONT)
        time.sleep(0.005)


def test_a_slow_worker_is_named(arena: MakeArena, covtype_like: Path) -> None:
    some = arena(covtype_like)
    coordinator = some.train("--lam", "1e-5", "--tol", "1e-9", "--max-seconds", "5", "--local-epochs", "900")
    some.wait_round(1, coordinator)
    slow_down(some.workers[1], coordinator)
    result = some.result(coordinator, 3)
    (straggler,) = result["stragglers"]
    assert straggler["address"] == some.addresses[1]
    assert straggler["factor"] >= 3.0
    assert f"worker {some.addresses[1]}" in coordinator.stderr
    assert "times as long as the others" in coordinator.stderr


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 examples in the likeness of covtype: a pass takes a millisecond or so."""
    path = tmp_path_factory.mktemp("data") / "larger.txt"
    synthetic.write("covtype", 20_000, 54, 3, path)
    return path


@pytest.mark.soak  # half a minute
def test_a_slow_worker_does_less_in_rounds_of_seconds(arena: MakeArena, larger: Path) -> None:
    some = arena(larger)
    coordinator = some.train("--lam", "1e-5", "--tol", "1e-9", "--round-seconds", "0.05", "--max-rounds", "60")
    some.wait_round(0, coordinator)
    slow_down(some.workers[1], coordinator)
    result = some.result(coordinator, 3)
    work = dict(zip(result["addresses"], result["passes_a_round"], strict=True))
    print(f"passes a round: {work}, {result['rounds']} rounds, {result['restarts']} restarts", file=sys.stderr)
    assert work.pop(some.addresses[1]) < 0.5 * min(work.values())


def test_a_run_in_rounds_of_seconds_survives_kills(arena: MakeArena, larger: Path) -> None:
    some = arena(larger)
    options = ("--lam", "1e-5", "--tol", "1e-3", "--round-seconds", "0.001", "--certify-every-round")
    coordinator = some.train(*options)
    some.wait_round(40, coordinator)
    some.workers[0].kill()
    some.back(0)
    some.wait_round(80, coordinator)
    coordinator.kill()
    result = some.result(some.train(*options, "--resume"))
    assert (result["status"], result["resyncs"]) == ("converged", 0)
    assert_true(some, result, larger, 1e-5)


# ------------------------------------------------------------------------------------------------------ on one machine


def local(launch: Launcher, data: Path, *more: object) -> tuple[object, ...]:
    return (
        *("train", data, "--local", "2", *HINGE, "--json", "--model", launch.directory / "model"),
        *("--trace", launch.directory / "trace", "--checkpoint", launch.directory / "checkpoint", *more),
    )


def wait_traced(launch: Launcher, number: int, running: Any) -> None:
    deadline = time.monotonic() + 120.0
    trace = launch.directory / "trace"
    while not trace.exists() or trace.read_bytes().count(b"\n") <= number:
        assert running.children or trace.exists() or time.monotonic() < deadline
        assert time.monotonic() < deadline, running.stderr.text
        time.sleep(0.02)


def test_local_workers_are_started_again(launch: Launcher, covtype_like: Path) -> None:
    expected = launch.run("coordinator", *local(launch, covtype_like))
    model = (launch.directory / "model").read_bytes()
    (launch.directory / "trace").unlink()
    coordinator = launch.start("coordinator", *local(launch, covtype_like))
    wait_traced(launch, 100, coordinator)
    os.kill(coordinator.children[0], signal.SIGKILL)
    finished = coordinator.finish(120.0)
    assert finished.exit_code == 0, finished.stderr
    result, before = json.loads(finished.stdout), json.loads(expected.stdout)
    assert result["reconnects"] == 1
    assert (result["rounds"], result["resyncs"]) == (before["rounds"], 0)
    assert (launch.directory / "model").read_bytes() == model


def test_resume_starts_as_many_local_workers_as_there_were(launch: Launcher, covtype_like: Path) -> None:
    # the data is worth one, and so it was not cut as it is now without --local
    job = ("train", covtype_like, *HINGE, "--json", "--checkpoint", launch.directory / "checkpoint")
    begun = json.loads(launch.run("coordinator", *job, "--local", 2, "--max-rounds", 20).stdout)
    assert (begun["status"], begun["workers"]) == ("max_rounds", 2)
    assert json.loads(launch.run("coordinator", "train", covtype_like, *HINGE, "--json").stdout)["workers"] == 1
    resumed = launch.run("coordinator", *job, "--resume", seconds=120.0)
    assert resumed.exit_code == 0, resumed.stderr
    result = json.loads(resumed.stdout)
    assert (result["status"], result["workers"]) == ("converged", 2)
    assert result["rounds"] > 20


def test_a_killed_coordinator_takes_its_local_workers_along_and_is_resumed(
    launch: Launcher, covtype_like: Path
) -> None:
    coordinator = launch.start("coordinator", *local(launch, covtype_like))
    wait_traced(launch, 200, coordinator)
    coordinator.signal(signal.SIGKILL)
    assert coordinator.finish(30.0).exit_code == -signal.SIGKILL
    resumed = launch.run("coordinator", *local(launch, covtype_like, "--resume"), seconds=120.0)
    assert resumed.exit_code == 0, resumed.stderr
    result = json.loads(resumed.stdout)
    assert result["status"] == "converged"
    table = recompute.read_table(covtype_like)
    primal = recompute.primal("hinge", 1e-4, table, recompute.read_weights(launch.directory / "model"))
    assert abs(primal - result["primal"]) <= 1e-9
    by_shard: dict[str, recompute.Duals] = {}
    for path in sorted((launch.directory / "checkpoint").glob("*.duals")):
        duals = recompute.read_duals(path)
        known = by_shard.setdefault(duals.facts["content_hash"], duals)
        if duals.facts["number"] > known.facts["number"]:
            by_shard[duals.facts["content_hash"]] = duals
    dual = recompute.dual("hinge", 1e-4, table, recompute.join(table.n, list(by_shard.values())))
    assert abs(dual - result["dual"]) <= 1e-9
