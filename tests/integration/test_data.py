"""From data to workers: shards cut by the command, killed cuts, caches and S3, all with real processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from liblinear import liblinearutil

from acccocoa import libsvm, manifest, shardfile
from tests.integration.data import only_json, sparse_text
from tests.integration.processes import Launcher

ROOT = Path(__file__).parents[2]

TIGHT = ("--lam", 1e-3, "--tol", 1e-7, "--quiet", "--json")

TOGETHER = 2e-7
"""How far two primal values may be apart, relatively, that are both within --tol of the optimum."""


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


# --------------------------------------------------------------------------------------------------------------- shards


@pytest.mark.parametrize("form", ["binary", "libsvm"])
def test_shards_train_to_the_optimum_of_the_whole(form: str, sparse: Path, launch: Launcher) -> None:
    whole = only_json(launch.run("coordinator", "train", sparse, "--local", 1, *TIGHT).stdout)
    cut = launch.run(
        "coordinator", "shard", sparse, "--shards", 3, "--by", "examples", "--out", "cut", "--format", form, "--json"
    )
    assert cut.exit_code == 0, cut.stderr
    done = manifest.parse((launch.directory / "cut" / manifest.NAME).read_bytes(), "m")
    assert json.loads(cut.stdout)["id"] == done.id
    assert "3 shards by examples" in cut.stderr
    workers = [launch.worker(f"cut/{entry.file}") for entry in done.shards]
    addresses = [worker.wait_serving() for worker in workers]
    found = launch.run(
        "coordinator", "train", "--workers", ",".join(addresses), "--manifest", f"cut/{manifest.NAME}", *TIGHT
    )
    assert found.exit_code == 0, found.stderr
    trained = only_json(found.stdout)
    assert {key: trained[key] for key in ("n", "d", "nnz")} == {key: whole[key] for key in ("n", "d", "nnz")}
    assert trained["primal"] == pytest.approx(whole["primal"], rel=TOGETHER)

    missing = launch.run("coordinator", "train", "--workers", ",".join(addresses[:2]))
    assert missing.exit_code == 5
    assert missing.error.startswith(f"error: cut/{done.shards[2].file}: 1 of 3 shards is held by no worker")
    twice = launch.worker(f"cut/{done.shards[0].file}").wait_serving()
    refused = launch.run("coordinator", "train", "--workers", ",".join([*addresses, twice]))
    assert refused.exit_code == 5
    assert "hold the same shard, part 0 of 3" in refused.error


def test_shards_by_features_train_to_the_optimum_of_the_whole(sparse: Path, launch: Launcher) -> None:
    objective = ("--loss", "squared_hinge", "--l1-ratio", 1, *TIGHT)
    whole = only_json(launch.run("coordinator", "train", sparse, "--local", 1, *objective).stdout)
    cut = launch.run("coordinator", "shard", sparse, "--shards", 2, "--by", "features", "--out", "cut")
    assert cut.exit_code == 0, cut.stderr
    workers = [launch.worker(f"cut/part-{number}-of-2.shard") for number in range(2)]
    addresses = ",".join(worker.wait_serving() for worker in workers)
    found = launch.run("coordinator", "train", "--workers", addresses, *objective)
    assert found.exit_code == 0, found.stderr
    trained = only_json(found.stdout)
    assert trained["partition"] == "features"
    assert {key: trained[key] for key in ("n", "d", "nnz")} == {key: whole[key] for key in ("n", "d", "nnz")}
    assert trained["primal"] == pytest.approx(whole["primal"], rel=TOGETHER)


def test_shards_of_two_cuts(sparse: Path, launch: Launcher) -> None:
    for seed in (1, 2):
        cut = launch.run(
            "coordinator", "shard", sparse, "--shards", 2, "--by", "examples", "--out", f"cut{seed}", "--seed", seed
        )
        assert cut.exit_code == 0, cut.stderr
    workers = [launch.worker("cut1/part-0-of-2.shard"), launch.worker("cut2/part-1-of-2.shard")]
    refused = launch.run("coordinator", "train", "--workers", ",".join(worker.wait_serving() for worker in workers))
    assert refused.exit_code == 5
    assert "hold shards of different cuts" in refused.error


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("none", "--shards", 2, "--by", "examples", "--out", "cut"), 4, "none: cannot be read"),
        (("-", "--shards", 2, "--by", "examples", "--out", "cut"), 2, "standard input is read by train"),
        (("bad", "--shards", 2, "--by", "features", "--out", "cut"), 4, "bad:2:3: the index 0"),
        (("bad", "--shards", 2, "--by", "rows", "--out", "cut"), 2, "'rows' is not one of"),
        (("bad", "--shards", 2, "--by", "features", "--out", "bad"), 2, "--out bad: cannot be written: File exists"),
        (("bad", "--shards", 0, "--by", "features", "--out", "cut"), 2, "--shards 0: must be from 1"),
        (("bad", "--shards", 2, "--by", "examples", "--out", "cut", "--memory", "1MB"), 2, "must be at least 256 MiB"),
        (("bad", "--shards", 2, "--by", "examples", "--out", "cut", "--memory", "much"), 2, "is not a size such as"),
    ],
)
def test_what_cannot_be_cut(arguments: tuple[object, ...], code: int, message: str, launch: Launcher) -> None:
    (launch.directory / "bad").write_text("1 1:1\n1 0:1\n")
    finished = launch.run("coordinator", "shard", *arguments)
    assert finished.exit_code == code, finished.stderr
    assert message in finished.error
    assert finished.stdout == ""
    cut = launch.directory / "cut"
    assert not cut.exists() or list(cut.iterdir()) == []


# --------------------------------------------------------------------------------------------------------------- killed


def test_killed_at_every_step(sparse: Path, tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    command = [sys.executable, "-m", "tests.support.killed_cut", str(sparse), str(tmp_path / "cut")]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) >= 10  # every fsync and rename, at least


@pytest.mark.as_users_do
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_killed_while_it_reads(number: signal.Signals, code: int, launch: Launcher) -> None:
    text = sparse_text(20_000, 80)
    os.mkfifo(launch.directory / "data")
    shard = ("coordinator", "shard", "data", "--shards", 2, "--by", "examples", "--out", "cut")
    running = launch.start(*shard)  # type: ignore[arg-type]  # "coordinator" is one
    with (launch.directory / "data").open("wb", buffering=0) as pipe:
        pipe.write(text)  # all but what fits into a pipe has been read when this returns
        assert len(text) > 1 << 20
        running.signal(number)
        assert running.finish().exit_code == code
    assert names(launch.directory / "cut") == []
    (launch.directory / "data").unlink()
    (launch.directory / "data").write_bytes(text)
    assert launch.run(*shard).exit_code == 0  # type: ignore[arg-type]  # likewise
    assert len(list((launch.directory / "cut").iterdir())) == 3


# ---------------------------------------------------------------------------------------------------------------- cache


def test_cache_of_a_worker(launch: Launcher) -> None:
    data = launch.directory / "data"
    data.write_bytes(sparse_text(10_000, 200))
    assert data.stat().st_size > 1 << 20
    first = launch.worker("data#0/2")
    first.wait_serving()
    assert "mapped from" not in first.stderr.text
    second = launch.worker("data#1/2")
    second.wait_serving()
    assert "data: mapped from data.acccocoa-cache" in second.stderr.text
    third = launch.worker("data", "--no-cache")
    third.wait_serving()
    assert "mapped from" not in third.stderr.text
    for arguments in (("--state", "state"), ("--cache", "kept")):
        fourth = launch.worker("data", *arguments)
        fourth.wait_serving()
        assert "data: mapped from data.acccocoa-cache" in fourth.stderr.text  # wherever a new one would go
    assert names(launch.directory) == ["data", "data.acccocoa-cache", "state"]
    with data.open("ab") as file:
        file.write(b"+1 1:1\n")
    fifth = launch.worker("data")
    fifth.wait_serving()
    assert "mapped from" not in fifth.stderr.text
    trained = only_json(launch.run("coordinator", "train", "data", "--tol", 0.1, "--quiet", "--json").stdout)
    assert trained["n"] == 10_001


# ------------------------------------------------------------------------------------------------------------------- S3


@pytest.fixture(scope="module")
def objects() -> Iterator[Mapping[str, str]]:
    """Environment in which a server of objects, a process, is found; there is a bucket `data`."""
    # in a process of its own: moto's own command prints where it is only to its log
    code = (
        "import sys; from moto.server import ThreadedMotoServer; server = ThreadedMotoServer('127.0.0.1', 0);"
        "server.start(); print('listens', *server.get_host_and_port(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        host, port = next(line.split()[1:] for line in process.stdout if line.startswith("listens "))
        yield {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        process.communicate()


def test_everything_from_s3(sparse: Path, objects: Mapping[str, str], launch: Launcher) -> None:
    boto3 = pytest.importorskip("boto3")
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=objects["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="data")
    client.upload_file(str(sparse), "data", "in/sparse.txt")
    source = "s3://data/in/sparse.txt"

    cut = launch.run(
        *("coordinator", "shard", source, "--shards", 2, "--by", "examples", "--out", "cut"),
        environment=objects,
    )
    assert cut.exit_code == 0, cut.stderr
    for path in (launch.directory / "cut").iterdir():
        client.upload_file(str(path), "data", f"cut/{path.name}")
    elsewhere = {**objects, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    workers = [
        launch.worker(
            f"s3://data/cut/part-{number}-of-2.shard",
            *("--s3-endpoint", objects["AWS_ENDPOINT_URL"]),
            environment=elsewhere,
        )
        for number in range(2)
    ]
    addresses = ",".join(worker.wait_serving() for worker in workers)
    found = launch.run(
        *("coordinator", "train", "--workers", addresses, "--manifest", "s3://data/cut/manifest.json"),
        *("--model", "model", *TIGHT),
        environment=objects,
    )
    assert found.exit_code == 0, found.stderr
    whole = launch.run("coordinator", "train", source, "--local", 1, *TIGHT, environment=objects)
    assert whole.exit_code == 0, whole.stderr
    assert only_json(found.stdout)["primal"] == pytest.approx(only_json(whole.stdout)["primal"], rel=TOGETHER)
    predicted = launch.run("coordinator", "predict", "--model", "model", source, "--json", environment=objects)
    assert only_json(predicted.stdout)["n"] == 600
    missing = launch.run("coordinator", "train", "s3://data/none", environment=objects)
    assert (missing.exit_code, missing.error) == (4, "error: s3://data/none: there is no such object")
    nameless = launch.run("coordinator", "train", source, environment={**objects, "AWS_ACCESS_KEY_ID": ""})
    assert nameless.exit_code == 2
    assert "no credentials were found" in nameless.error


# -------------------------------------------------------------------------------------------------------------- predict


def test_data_with_more_or_fewer_features_than_the_model(launch: Launcher) -> None:
    (launch.directory / "data").write_bytes(sparse_text(300, 40))
    examples = libsvm.read([str(launch.directory / "data")], dtype=np.float64)
    trained = launch.run("coordinator", "train", "data", "--model", "model", "--lam", 1e-3, "--quiet")
    assert trained.exit_code == 0, trained.stderr
    expected = launch.run("coordinator", "predict", "--model", "model", "data").stdout.splitlines()
    assert len(expected) == examples.n
    lines = (launch.directory / "data").read_text().splitlines()
    # more: features the model has never met count for nothing
    (launch.directory / "more").write_text("".join(f"{line} 5000:3 2147483647:1e30\n" for line in lines))
    assert launch.run("coordinator", "predict", "--model", "model", "more").stdout.splitlines() == expected
    # fewer: one row at a time, most without the last features
    row = int(np.argmin([max(map(int, (part.split(":")[0] for part in line.split()[1:]))) for line in lines]))
    (launch.directory / "fewer").write_text(lines[row] + "\n")
    fewer = libsvm.read([str(launch.directory / "fewer")])
    assert fewer.d < examples.d
    assert launch.run("coordinator", "predict", "--model", "model", "fewer").stdout.splitlines() == [expected[row]]
    assert shardfile.content_hash(fewer) != shardfile.content_hash(examples)


# ------------------------------------------------------------------------------------------------------------ normalize


@pytest.mark.parametrize("by", ["examples", "features"])
@pytest.mark.parametrize("normalize", ["rows", "features-maxabs"])
def test_normalized_by_the_workers_or_beforehand(normalize: str, by: str, launch: Launcher) -> None:
    rng = np.random.default_rng(1)
    rows, columns = 10.0 ** rng.uniform(-1, 1, 300), 10.0 ** rng.uniform(-1, 1, 41)
    lines, scaled = [], []
    for i, line in enumerate(sparse_text(300, 40).decode().splitlines()):
        label, *entries = line.split()
        pairs = [(int(j), rows[i] * columns[int(j)] * float(x)) for j, x in (entry.split(":") for entry in entries)]
        lines.append((label, pairs))
    largest = dict.fromkeys(range(41), 0.0)
    for _, pairs in lines:
        for j, x in pairs:
            largest[j] = max(largest[j], abs(x))
    for label, pairs in lines:
        norm = sum(x * x for _, x in pairs) ** 0.5
        made = [(j, x / (norm if normalize == "rows" else largest[j])) for j, x in pairs]
        scaled.append((label, made))
    for name, content in (("raw", lines), ("scaled", scaled)):
        text = "".join(f"{label} {' '.join(f'{j}:{float(x)!r}' for j, x in pairs)}\n" for label, pairs in content)
        (launch.directory / name).write_text(text)
    objective = ("--loss", "squared_hinge", "--lam", 1e-2, "--l1-ratio", 0.5, "--partition", by, "--tol", 1e-8)
    how = (*objective, "--dtype", "float64", "--local", 2, "--quiet", "--json", "--bias", 1)
    beforehand = launch.run("coordinator", "train", "scaled", "--model", "scaled.model", *how)
    assert beforehand.exit_code == 0, beforehand.stderr
    found = launch.run("coordinator", "train", "raw", "--model", "model", *how, "--normalize", normalize)
    assert found.exit_code == 0, found.stderr
    expected, result = only_json(beforehand.stdout), only_json(found.stdout)
    assert result["normalize"] == normalize
    assert result["partition"] == by
    assert result["primal"] == pytest.approx(expected["primal"], rel=2e-8)
    # and predict takes the data as it is
    predicted = launch.run("coordinator", "predict", "--model", "model", "raw").stdout
    assert predicted == launch.run("coordinator", "predict", "--model", "scaled.model", "scaled").stdout
    if normalize == "features-maxabs":  # so does LIBLINEAR
        theirs = liblinearutil.load_model(str(launch.directory / "model"))
        y, x = liblinearutil.svm_read_problem(str(launch.directory / "raw"))
        labels, _, _ = liblinearutil.predict(y, x, theirs, "-q")
        assert labels == [float(line) for line in predicted.splitlines()]


def test_normalized_by_workers_that_are_lost_and_found(launch: Launcher) -> None:
    (launch.directory / "data").write_bytes(sparse_text(600, 80))
    how = ("--lam", 1e-4, "--tol", 1e-6, "--normalize", "features-maxabs", "--seed", 1, "--json")
    quiet = launch.run("coordinator", "train", "data", "--local", 2, "--quiet", *how)
    assert quiet.exit_code == 0, quiet.stderr
    running = launch.start("coordinator", "train", "data", "--local", 2, "--listen", "127.0.0.1:0", *how)
    running.stderr.search("training on", 60.0)
    victim = running.children[0]
    os.kill(victim, signal.SIGKILL)
    finished = running.finish(120.0)
    assert finished.exit_code == 0, finished.stderr
    result = only_json(finished.stdout)
    assert result["reconnects"] == 1
    assert result["primal"] == pytest.approx(only_json(quiet.stdout)["primal"], rel=2e-6)
