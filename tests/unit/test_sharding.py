"""Cutting into shards: nothing is lost, the parts are even and shuffled, and memory has no say in the result."""

import itertools
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from acccocoa import libsvm, manifest, shard_output, shardfile, sharding
from acccocoa.errors import DataError, UsageError
from acccocoa.examples import Examples
from acccocoa.manifest import Manifest
from acccocoa.shardplan import MEMORY_LEAST, SHARDS_MOST, Plan


class Tight(Plan):
    """A plan with next to no memory, for runs and ranges of a few rows each."""

    @property
    def budget(self) -> int:
        return 4096


def _floats(rng: np.random.Generator, count: int, dtype: libsvm.Dtype) -> Any:
    return rng.standard_normal(count).astype(dtype)


def made(n: int, d: int = 50, seed: int = 0, dtype: libsvm.Dtype = np.float32) -> Examples:
    """Rows of very different lengths, some empty; the labels number the rows."""
    rng = np.random.default_rng(seed)
    lengths = np.where(rng.random(n) < 0.1, 0, rng.geometric(0.2, n)).clip(0, d)
    rows = [np.sort(rng.choice(d, length, replace=False)) for length in lengths]
    return Examples(
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        np.concatenate([*rows, np.empty(0, int)]).astype(np.int32),
        _floats(rng, int(lengths.sum()), dtype),
        np.arange(n, dtype=np.float64),
        {float(i): f"+{i}" for i in range(n)},
    )


def in_pieces(examples: Examples, rows: int = 7) -> Iterator[Examples]:
    """The examples piece by piece, each in arrays that the next one spoils."""
    for first in range(0, examples.n, rows):
        last = min(first + rows, examples.n)
        begin, end = int(examples.indptr[first]), int(examples.indptr[last])
        piece = Examples(
            examples.indptr[first : last + 1] - begin,
            examples.indices[begin:end].copy(),
            examples.values[begin:end].copy(),
            examples.labels[first:last].copy(),
            examples.spellings,
        )
        yield piece
        piece.indptr[:] = -1
        piece.indices[:] = -1
        piece.values[:] = -1
        piece.labels[:] = -1


def matrix(examples: Examples, d: int) -> NDArray[np.float64]:
    """The rows as they are."""
    shape = (examples.n, d)
    return np.asarray(csr_array((examples.values, examples.indices, examples.indptr), shape=shape).toarray())


def stored(directory: Path, done: Manifest) -> list[shardfile.Stored]:
    return [shardfile.load(directory / shard.file) for shard in done.shards]


def by_label(shards: list[shardfile.Stored], d: int) -> NDArray[np.float64]:
    """All rows in the order of their labels."""
    whole = np.concatenate([matrix(shard.examples, d) for shard in shards])
    labels = np.concatenate([shard.examples.labels for shard in shards])
    assert np.array_equal(np.sort(labels), np.arange(len(labels)))
    return np.asarray(whole[np.argsort(labels)])


# ---------------------------------------------------------------------------------------------------------- by examples


@pytest.mark.parametrize("kind", [Plan, Tight])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_row_is_in_one_shard(kind: type[Plan], dtype: libsvm.Dtype, tmp_path: Path) -> None:
    examples = made(500, dtype=dtype)
    done = sharding.cut(in_pieces(examples), tmp_path, kind(3, dtype=dtype), ["here"])
    shards = stored(tmp_path, done)
    assert np.array_equal(by_label(shards, 50), matrix(examples, 50))
    assert (done.n, done.d, done.nnz) == (500, 50, examples.nnz)
    for number, (shard, entry) in enumerate(zip(shards, done.shards, strict=True)):
        assert entry.file == f"part-{number}-of-3.shard"
        assert (entry.hash, entry.n, entry.nnz) == (shard.content_hash, shard.examples.n, shard.examples.nnz)
        assert entry.d == shard.examples.d
        assert entry.bytes == (tmp_path / entry.file).stat().st_size
        assert manifest.part_of(shard.about) == done.part(number)
        assert shard.examples.spellings == examples.spellings
    assert manifest.parse((tmp_path / manifest.NAME).read_bytes(), "m") == done
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [manifest.NAME, *(entry.file for entry in done.shards)]
    )


@given(n=st.integers(1, 40), shards=st.integers(1, 12), seed=st.integers(0, 2**63 - 1), rows=st.integers(1, 50))
@settings(deadline=None, max_examples=25)
def test_any_size(tmp_path_factory: pytest.TempPathFactory, n: int, shards: int, seed: int, rows: int) -> None:
    directory = tmp_path_factory.mktemp("any")
    examples = made(n)
    if n < shards:
        with pytest.raises(UsageError, match=f"there are only {n} examples"):
            sharding.cut(in_pieces(examples, rows), directory, Plan(shards, seed=seed), [])
        assert list(directory.iterdir()) == []
        return
    done = sharding.cut(in_pieces(examples, rows), directory, Plan(shards, seed=seed), [])
    assert np.array_equal(by_label(stored(directory, done), 50), matrix(examples, 50))
    assert min(entry.n for entry in done.shards) >= 1


def test_neither_memory_nor_pieces_nor_format_have_a_say(tmp_path: Path) -> None:
    examples = made(2000)
    ways: list[tuple[str, Plan, int]] = [
        ("a", Plan(4, seed=5), 2000),
        ("b", Tight(4, seed=5), 13),
        ("c", Tight(4, seed=5, format="libsvm"), 999),
    ]
    ids = set()
    for name, plan, rows in ways:
        done = sharding.cut(in_pieces(examples, rows), tmp_path / name, plan, [name])
        ids.add(done.id)
    assert len(ids) == 1
    for number in range(4):
        names = [f"part-{number}-of-4.shard"] * 2
        first, second = ((tmp_path / "ab"[i] / name).read_bytes() for i, name in enumerate(names))
        assert first == second
        text = libsvm.read([str(tmp_path / "c" / f"part-{number}-of-4.txt")])
        found, digest = shardfile.read(tmp_path / "a" / names[0])
        assert shardfile.content_hash(text) == digest
        assert text.spellings == {label: examples.spellings[label] for label in found.labels}


def test_even_and_shuffled(tmp_path: Path) -> None:
    n = 20_000
    examples = made(n)
    done = sharding.cut(in_pieces(examples, 1000), tmp_path, Plan(4), [])
    longest = int(np.diff(examples.indptr).max())
    weights = [entry.nnz + entry.n for entry in done.shards]
    assert max(weights) - min(weights) <= 4 * longest
    for shard in stored(tmp_path, done):
        labels = shard.examples.labels
        # means and rank correlation of a random sample of the row numbers: five standard deviations
        assert abs(labels.mean() / n - 0.5) < 5 / np.sqrt(12 * len(labels))
        assert abs(np.corrcoef(np.arange(len(labels)), labels)[0, 1]) < 5 / np.sqrt(len(labels))
        # consecutive rows of the data are dealt independently
        together = np.count_nonzero(np.isin(labels + 1, labels)) / len(labels)
        assert abs(together - 0.25) < 0.05


def test_seed(tmp_path: Path) -> None:
    examples = made(100)
    ids = [sharding.cut(in_pieces(examples), tmp_path / str(s), Plan(2, seed=s), []).id for s in (0, 1, 2, 2**63 - 1)]
    assert len(set(ids)) == len(ids)


def test_a_row_that_does_not_fit(tmp_path: Path) -> None:
    examples = Examples(
        np.array([0, 5000], np.int64), np.arange(5000, dtype=np.int32), np.ones(5000, np.float32), np.zeros(1)
    )
    with pytest.raises(UsageError, match="too little for a row of 5000 entries"):
        sharding.cut([examples], tmp_path, Tight(1), [])
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------------- by features


@pytest.mark.parametrize("kind", [Plan, Tight])
@pytest.mark.parametrize("form", ["binary", "libsvm"])
def test_columns_reassemble(kind: type[Plan], form: Any, tmp_path: Path) -> None:
    examples = made(300, 30)
    done = sharding.cut(in_pieces(examples), tmp_path, kind(3, "features", format=form), ["here"])
    shards = [
        shardfile.load(tmp_path / entry.file).examples
        if form == "binary"
        else libsvm.read([str(tmp_path / entry.file)])
        for entry in done.shards
    ]
    assert np.array_equal(sum(matrix(shard, 30) for shard in shards), matrix(examples, 30))
    columns = [set(shard.indices.tolist()) for shard in shards]
    assert all(not one & other for one, other in itertools.combinations(columns, 2))
    for shard, entry in zip(shards, done.shards, strict=True):
        assert np.array_equal(shard.labels, examples.labels)
        assert shard.spellings == examples.spellings
        assert shardfile.content_hash(shard) == entry.hash
    assert (done.by, done.n, done.d, done.nnz) == ("features", 300, 30, examples.nnz)
    loads = [entry.nnz for entry in done.shards]
    assert max(loads) - min(loads) <= np.bincount(examples.indices).max()


def test_fewer_features_than_shards(tmp_path: Path) -> None:
    examples = libsvm.parse(b"1 1:1 1000000:1\n1\n-1 1:2\n")
    with pytest.raises(UsageError, match="only 2 features occur"):
        sharding.cut([examples], tmp_path, Plan(3, "features"), [])
    done = sharding.cut([examples], tmp_path, Plan(2, "features"), [])
    assert [entry.nnz for entry in done.shards] == [2, 1]


def test_more_features_than_memory(tmp_path: Path) -> None:
    examples = libsvm.parse(b"1 2147483647:1\n")
    with pytest.raises(UsageError, match=r"--memory: is too little for 2147483647 features; allow 82111 MiB or more"):
        sharding.cut([examples], tmp_path, Plan(1, "features"), [])
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------------------- the rest


def test_labels_of_a_regression_are_not_listed(tmp_path: Path) -> None:
    examples = made(2000)
    done = sharding.cut(
        [Examples(examples.indptr, examples.indices, examples.values, examples.labels)], tmp_path, Plan(2), []
    )
    assert done.labels is None
    assert sharding.cut([made(3)], tmp_path, Plan(2), []).labels == ((0.0, "+0", 1), (1.0, "+1", 1), (2.0, "+2", 1))


def test_an_earlier_cut_is_replaced(tmp_path: Path) -> None:
    sharding.cut([made(100)], tmp_path, Plan(12), [])
    (tmp_path / "part-99-of-100.shard").touch()  # not of the cut
    (tmp_path / ".acccocoa-shard-left").touch()  # by a command that was killed
    done = sharding.cut([made(50)], tmp_path, Plan(2), [])
    assert {path.name for path in tmp_path.iterdir()} == {
        manifest.NAME,
        "part-0-of-2.shard",
        "part-1-of-2.shard",
        "part-99-of-100.shard",
    }
    assert manifest.parse((tmp_path / manifest.NAME).read_bytes(), "m") == done


def test_a_failure_leaves_the_earlier_cut(tmp_path: Path) -> None:
    sharding.cut([made(100)], tmp_path, Plan(2), [])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def broken() -> Iterator[Examples]:
        yield made(100)
        raise DataError("data", "ends too early")

    for plan in (Plan(2), Plan(2, "features"), Plan(200)):
        with pytest.raises((DataError, UsageError)):
            sharding.cut(broken() if plan.shards == 2 else [made(100)], tmp_path, plan, [])
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_damaged_manifest_is_replaced(tmp_path: Path) -> None:
    (tmp_path / manifest.NAME).write_text("{}")
    done = sharding.cut([made(10)], tmp_path, Plan(2), [])
    assert manifest.parse((tmp_path / manifest.NAME).read_bytes(), "m") == done


def test_one_command_at_a_time(tmp_path: Path) -> None:
    def meanwhile() -> Iterator[Examples]:
        with pytest.raises(UsageError, match="another command is writing shards there"):
            sharding.cut([made(10)], tmp_path, Plan(2), [])
        yield made(10)

    sharding.cut(meanwhile(), tmp_path, Plan(2), [])


@pytest.mark.parametrize("name", ["file", "file/directory"])
def test_no_directory(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written") as caught:
        sharding.cut([made(10)], tmp_path / name, Plan(2), [])
    assert caught.value.offender == f"--out {tmp_path / name}"


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(shard_output.Shard, "append", full)
    with pytest.raises(UsageError, match="No space left on device; it takes the size of the parsed data twice over"):
        sharding.cut([made(10)], tmp_path, Plan(2), [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "offender"),
    [
        ({"shards": 0}, "--shards 0"),
        ({"shards": SHARDS_MOST + 1}, f"--shards {SHARDS_MOST + 1}"),
        ({"shards": 2, "seed": -1}, "--seed -1"),
        ({"shards": 2, "seed": 2**63}, f"--seed {2**63}"),
        ({"shards": 2, "memory": MEMORY_LEAST - 1}, f"--memory {MEMORY_LEAST - 1}"),
    ],
)
def test_plans_that_cannot_be(arguments: dict[str, Any], offender: str) -> None:
    with pytest.raises(UsageError) as caught:
        Plan(**arguments)
    assert caught.value.offender == offender


def test_names_sort_as_the_parts_do() -> None:
    names = [Plan(11).name(number) for number in range(11)]
    assert names == sorted(names)
    assert names[3] == "part-03-of-11.shard"
    assert Plan(10, format="libsvm").name(9) == "part-9-of-10.txt"


def test_more_shards_than_files_may_be_open_at_first(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        done = sharding.cut([made(300)], tmp_path, Plan(150), [])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(done.shards) == 150
