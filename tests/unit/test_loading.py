"""Sources as users name them: text, shard files, several of both, and what a manifest beside them has to say."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from acccocoa import cache, libsvm, loading, manifest, shardfile, sharding
from acccocoa.cache import Places
from acccocoa.errors import AcccocoaError, DataError, ParseError, UsageError
from acccocoa.examples import LABEL_SPELLINGS_KEPT, Examples
from acccocoa.loading import Loaded
from acccocoa.shardplan import Plan
from worker import kept, source

TEXT = b"+1 1:0.5 3:-2\n-1.0 2:1e-3\n1\n-1 1:1 2:1 9:1e30\n"
MORE = b"2 4:1\n1.0 1:2\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Sources by name: text, more text, and the same as shard files."""
    for name, content in (("text", TEXT), ("more", MORE)):
        (tmp_path / name).write_bytes(content)
        shardfile.write(tmp_path / f"{name}.shard", libsvm.parse(content))
    return {path.name: str(path) for path in tmp_path.iterdir()}


def load(*sources: str, zero_based: bool = False, dtype: libsvm.Dtype = np.float32) -> Loaded:
    found = loading.load(sources, zero_based=zero_based, dtype=dtype, threads=1)
    assert found.content_hash == shardfile.content_hash(found.examples)
    return found


def same(found: Examples, expected: Examples) -> None:
    assert shardfile.content_hash(found) == shardfile.content_hash(expected)
    assert dict(found.spellings) == dict(expected.spellings)


WAYS = [("text", "more"), ("text.shard", "more.shard"), ("text", "more.shard"), ("text.shard", "more")]


@pytest.mark.parametrize("names", WAYS)
def test_one_after_the_other(names: Sequence[str], files: dict[str, str]) -> None:
    found = load(*(files[name] for name in names))
    same(found.examples, libsvm.parse(TEXT + MORE))
    assert found.part is None
    assert found.index_base == (1 if names == WAYS[0] else None)


@pytest.mark.parametrize("names", WAYS)
def test_piece_by_piece(names: Sequence[str], files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_ROWS_AT_ONCE", 3)
    sources = [files[name] for name in names]

    def fail(fault: ParseError) -> None:
        raise fault

    pieces = []
    for piece in loading.pieces(sources, fail, zero_based=False, dtype=np.float64, threads=1):
        arrays = (piece.indptr.copy(), piece.indices.copy(), piece.values.copy(), piece.labels.copy())
        pieces.append(Examples(*arrays, dict(piece.spellings)))
    whole = loading._joined(pieces, np.float64)
    text_only = names == WAYS[0]
    same(whole, libsvm.parse(TEXT + MORE, dtype=np.float64) if text_only else load(*sources, dtype=np.float64).examples)


def test_one_source(files: dict[str, str]) -> None:
    same(load(files["text"]).examples, libsvm.parse(TEXT))
    assert load(files["text"]).index_base == 1
    assert load(files["text"], zero_based=True).index_base == 0
    found = load(files["text.shard"], dtype=np.float64)
    same(found.examples, libsvm.parse(TEXT))  # in the dtype it was written in
    assert found.index_base is None


def test_too_many_labels_in_one_of_the_sources(files: dict[str, str], tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.write_text("".join(f"{label} 1:1\n" for label in range(LABEL_SPELLINGS_KEPT + 1)))
    assert load(str(many), files["text.shard"]).examples.spellings == {}


def test_a_part_that_makes_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    shardfile.write(path, libsvm.parse(TEXT), {"part": {"number": 7}})
    with pytest.raises(DataError, match="a part is described as"):
        load(str(path))


# ------------------------------------------------------------------------------------------------- a manifest beside it


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A directory with two shards as text."""
    sharding.cut([libsvm.parse(TEXT + MORE)], tmp_path / "cut", Plan(2, format="libsvm"), [])
    return tmp_path / "cut"


def refused(path: Path, zero_based: bool = False, dtype: libsvm.Dtype = np.float32) -> AcccocoaError:
    with pytest.raises(AcccocoaError) as caught:
        load(str(path), zero_based=zero_based, dtype=dtype)
    return caught.value


def test_text_knows_its_part(cut: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = loading.manifest_at(str(cut / manifest.NAME))
    for number, entry in enumerate(done.shards):
        assert load(str(cut / entry.file)).part == done.part(number)
    monkeypatch.chdir(cut)
    assert load("part-1-of-2.txt").part == done.part(1)
    (cut / "another").write_bytes(TEXT)
    assert load("another").part is None


def test_text_that_was_changed(cut: Path) -> None:
    path = cut / "part-0-of-2.txt"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[0]]))
    error = refused(path)
    assert isinstance(error, DataError)
    assert str(error) == f"{path}: is not what manifest.json beside it promises; cut the shards again"


def test_text_that_is_read_otherwise(cut: Path) -> None:
    error = refused(cut / "part-0-of-2.txt", dtype=np.float64)
    assert isinstance(error, UsageError)
    assert error.offender == "--dtype float64"
    assert "was cut with --dtype float32" in error.requirement
    error = refused(cut / "part-0-of-2.txt", zero_based=True)
    assert isinstance(error, UsageError)
    assert error.offender == "--zero-based"


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff"])
def test_another_kind_of_manifest_is_nobodys_business(content: bytes, cut: Path) -> None:
    (cut / manifest.NAME).write_bytes(content)
    assert load(str(cut / "part-0-of-2.txt")).part is None
    with pytest.raises(DataError, match="is not a manifest of shards"):
        loading.manifest_at(str(cut / manifest.NAME))


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file or directory"):
        loading.manifest_at(str(tmp_path / "none"))


# ------------------------------------------------------------------------------------------------------------- a worker


def test_worker_of_shards_by_features(tmp_path: Path) -> None:
    done = sharding.cut([libsvm.parse(TEXT + MORE)], tmp_path, Plan(2, "features"), [])
    for number, entry in enumerate(done.shards):
        holdings = source.load(str(tmp_path / entry.file))
        assert holdings.shard.by_features
        assert (holdings.shard.d, holdings.shard.nnz) == (6, entry.nnz)
        assert holdings.part == done.part(number)
    with pytest.raises(UsageError, match="was cut by features; serve it by features"):
        source.load(f"{tmp_path}/part-0-of-2.shard#0/2")


def test_worker_of_shards_by_examples(tmp_path: Path) -> None:
    done = sharding.cut([libsvm.parse(TEXT + MORE)], tmp_path, Plan(2), [])
    path = str(tmp_path / done.shards[1].file)
    holdings = source.load(path)
    assert (holdings.part, holdings.index_base) == (done.part(1), None)
    with pytest.raises(UsageError, match=r"--by features: .*was cut by examples; serve it by examples"):
        source.load(path, by="features")
    half = source.load(f"{path}#1/2")
    assert half.part == manifest.Part(done.shards[1].hash, 1, 2)


def test_worker_of_a_part_of_text(files: dict[str, str]) -> None:
    digest = shardfile.content_hash(libsvm.parse(TEXT))
    holdings = source.load(f"{files['text']}#0/2", zero_based=True, by="features")
    assert holdings.index_base == 0
    assert holdings.part is not None
    assert (holdings.part.number, holdings.part.parts, holdings.part.by) == (0, 2, "features")
    assert source.load(f"{files['text']}#1/2").part == manifest.Part(digest, 1, 2)
    assert source.load(files["text"]).part is None


@pytest.mark.parametrize("sources", [("{}",), ("text", "{}"), ("{}", "text.shard")])
@pytest.mark.parametrize("suffix", [cache.SUFFIX, kept.SUFFIX])
def test_what_is_kept_of_data_is_no_data(
    suffix: str, sources: Sequence[str], files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`DATA*` names them, too, and would double the examples."""
    monkeypatch.setattr(cache, "LEAST_BYTES", 1)
    monkeypatch.setattr(kept, "LEAST_BYTES", 1)
    source.load(files["text"], places=Places())
    derived = f"{files['text']}{suffix}"
    named = [derived if name == "{}" else files[name] for name in sources]
    for reading in (
        lambda: load(*named),
        lambda: list(loading.pieces(named, lambda _: None, zero_based=False, dtype=np.float32, threads=1)),
    ):
        with pytest.raises(DataError, match="is what acccocoa keeps of other data, to begin sooner") as caught:
            reading()
        assert caught.value.offender == derived
