"""Kept shards: the same as made anew, and never those of other content, or damaged."""

import logging
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from acccocoa import cache
from acccocoa.cache import Places
from worker import kept, source
from worker.service import Holdings
from worker.shard import Shard

SPARSE = "".join(f"{1 if i % 3 else -1} {i % 7 + 1}:0.5 {i % 11 + 9}:{i % 5 - 2}.25\n" for i in range(60))
DENSE = "".join(f"{1 if i % 3 else -1} 1:{i} 2:-{i}.5 3:1\n" for i in range(60))


@pytest.fixture(autouse=True)
def _small_ones_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LEAST_BYTES", 1)
    monkeypatch.setattr(kept, "LEAST_BYTES", 1)


def load(path: Path, part: str = "", **options: object) -> Holdings:
    return source.load(f"{path}{part}", places=Places(), **options)  # type: ignore[arg-type]  # as they come


def same(one: Shard, other: Shard) -> None:
    for name in (*kept._ARRAYS, "weights"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    numbers = (*kept._NUMBERS, "blocks", "dense")
    assert [getattr(one, name) for name in numbers] == [getattr(other, name) for name in numbers]


def built(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows whenever a shard is made."""
    calls: list[object] = []
    real = source._build

    def counting(*arguments: object) -> Shard:
        calls.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]  # as they come

    monkeypatch.setattr(source, "_build", counting)
    return calls


def replace_file(path: Path, content: bytes | bytearray) -> None:
    """Another file under that name: the one that was there is mapped."""
    path.unlink()
    path.write_bytes(content)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text(SPARSE)
    return path


@pytest.mark.parametrize("content", [SPARSE, DENSE])
@pytest.mark.parametrize("part", ["", "#1/3"])
@pytest.mark.parametrize("by", ["examples", "features"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_second_start_finds_the_same_shard(
    text: Path, content: str, part: str, by: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text.write_text(content)
    calls = built(monkeypatch)
    anew = source.load(f"{text}{part}", by=by, dtype=dtype)  # type: ignore[arg-type]  # one of the two
    first, second = load(text, part, by=by, dtype=dtype), load(text, part, by=by, dtype=dtype, threads=3)
    assert len(calls) == 2  # without a place, and the first time
    same(first.shard, anew.shard)
    assert len(second.shard.blocks) == min(3, anew.shard.n)
    same(second.shard, load(text, part, by=by, dtype=dtype, threads=3).shard)
    assert_array_equal(second.shard.values, anew.shard.values)
    assert second.label_counts == anew.label_counts
    assert (second.part, second.index_base, second.sizes) == (anew.part, anew.index_base, anew.sizes)


def test_parts_do_not_replace_each_other(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ["", "#0/2", "#1/2", "#0/3"]
    first = [load(text, part).shard for part in parts]
    calls = built(monkeypatch)
    for shard, part in zip(first, parts, strict=True):
        same(load(text, part).shard, shard)
    assert not calls


def test_weights_are_of_the_start_not_of_what_is_kept(text: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    unweighted = load(text).shard
    weights.write_text("".join(f"{i + 1}\n" for i in range(60)))
    weighted = load(text, weights=str(weights)).shard
    assert weighted.weights is not None
    assert_array_equal(weighted.weights, weighted.rows + 1.0)
    assert weighted.content_hash != unweighted.content_hash == load(text).shard.content_hash


def test_other_content_is_a_miss(text: Path) -> None:
    before = load(text).shard
    text.write_text(SPARSE.replace("0.5", "0.75"))
    after = load(text).shard
    assert after.content_hash != before.content_hash
    assert not np.array_equal(after.values, before.values)


@pytest.mark.parametrize("at", [0.0, 0.02, 0.3, 0.6, 0.9, 1.0])
def test_damage_is_a_miss(text: Path, at: float, caplog: pytest.LogCaptureFixture) -> None:
    first = load(text).shard
    path = Path(f"{text}{kept.SUFFIX}")
    content = bytearray(path.read_bytes())
    at_byte = min(int(at * len(content)), len(content) - 1)
    content[at_byte] ^= 0x10
    replace_file(path, content)
    with caplog.at_level(logging.INFO):
        same(load(text).shard, first)
    same(load(text).shard, first)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_what_was_cut_is_a_miss(text: Path, share: float) -> None:
    first = load(text).shard
    path = Path(f"{text}{kept.SUFFIX}")
    replace_file(path, path.read_bytes()[: int(share * path.stat().st_size)])
    same(load(text).shard, first)


def test_another_version_is_a_miss(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(text)
    monkeypatch.setattr(kept, "VERSION", kept.VERSION + 1)
    calls = built(monkeypatch)
    load(text)
    load(text)
    assert len(calls) == 1


def test_a_damaged_cache_behind_it_does_no_harm(text: Path) -> None:
    first = load(text).shard
    parsed = Path(f"{text}{cache.SUFFIX}")
    content = bytearray(parsed.read_bytes())
    content[-3] ^= 1
    replace_file(parsed, content)
    same(load(text).shard, first)  # what is kept is whole
    Path(f"{text}{kept.SUFFIX}").unlink()
    same(load(text).shard, first)  # the text is parsed again


def test_of_a_shard_file(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from acccocoa import libsvm, shardfile

    path = tmp_path / "shard"
    shardfile.write(path, libsvm.read([str(text)]))
    first = load(path).shard
    calls = built(monkeypatch)
    same(load(path).shard, first)
    assert not calls


def test_nowhere_without_a_cache_and_where_nothing_can_be_written(text: Path, tmp_path: Path) -> None:
    source.load(str(text), places=Places(enabled=False))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text"]
    missing = tmp_path / "file"
    missing.write_text("not a directory")
    shard = source.load(str(text), places=Places(directory=str(missing / "below"))).shard
    assert shard.n == 60
    # beside the text, then
    assert Path(f"{text}{kept.SUFFIX}").exists()


def test_small_ones_are_not_kept(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "LEAST_BYTES", 1 << 20)
    load(text)
    assert not Path(f"{text}{kept.SUFFIX}").exists()


def test_what_is_mapped_can_be_written_to_and_stays(text: Path) -> None:
    load(text)
    shard = load(text).shard
    shard.values[:] = 0
    assert load(text).shard.values.any()


def test_a_file_that_is_replaced_between_two_looks_at_it(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept says what it was made from, not what was there a moment before."""
    load(text)
    beside = cache.homes([str(text)], Places(), kept.SUFFIX)
    beside[0].unlink()
    other = SPARSE.replace("0.5", "0.7")
    real = kept.find

    def replaced(*arguments: object) -> Shard | None:
        found = real(*arguments)  # type: ignore[arg-type]  # as they come
        replace_file(text, other.encode())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(kept, "find", replaced)
        between = load(text)
    anew = source.load(str(text))
    same(between.shard, anew.shard)
    replace_file(text, SPARSE.encode())
    same(load(text).shard, source.load(str(text)).shard)
