"""Caches of parsed text: used when they are of that text, and never otherwise."""

import fcntl
import gzip
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from acccocoa import cache, libsvm, shardfile
from acccocoa.cache import SUFFIX, Places
from acccocoa.errors import DataError, ParseError, UsageError
from acccocoa.shardfile import Stored

TEXT = b"+1 1:0.5 3:-2\n-1.0 2:1e-3\n+1\n-1 1:1 2:1 9:1e30\n"
OTHER = TEXT.replace(b"0.5", b"0.7")

Parsed = Callable[[], int]


@pytest.fixture(autouse=True)
def _small_files_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LEAST_BYTES", 1)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Parsed:
    """How often text has been parsed since the last call."""
    calls: list[object] = []
    real = libsvm.read

    def counting(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        return real(*arguments, **options)  # type: ignore[arg-type]  # as they come

    monkeypatch.setattr(libsvm, "read", counting)

    def count() -> int:
        number = len(calls)
        calls.clear()
        return number

    return count


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Parsed:
    """How often the content of a source has been hashed since the last call."""
    calls: list[object] = []
    real = cache._sha256

    def counting(source: cache._Source) -> str | None:
        calls.append(source)
        return real(source)

    monkeypatch.setattr(cache, "_sha256", counting)

    def count() -> int:
        number = len(calls)
        calls.clear()
        return number

    return count


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "text"
    path.parent.mkdir()
    path.write_bytes(TEXT)
    return path


def beside(path: Path) -> Path:
    return Path(f"{path}{SUFFIX}")


def read(
    *paths: Path, zero_based: bool = False, dtype: libsvm.Dtype = np.float32, places: Places | None = None
) -> Stored:
    """Read, and make sure that it is what is in the text now."""
    names = [str(path) for path in paths]
    found = cache.read(names, zero_based=zero_based, dtype=dtype, threads=1, places=places or Places())
    expected = libsvm.parse(
        b"".join(gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes() for p in paths),
        zero_based=zero_based,
        dtype=dtype,
    )
    assert shardfile.content_hash(found.examples) == shardfile.content_hash(expected) == found.content_hash
    assert dict(found.examples.spellings) == dict(expected.spellings)
    return found


def settle(path: Path) -> None:
    """Let the file have been changed long ago, for all that its time stamps say."""
    os.utime(path, ns=(10**18, 10**18))


# ----------------------------------------------------------------------------------------------------------------- hits


def test_second_time_it_is_mapped(text: Path, parsed: Parsed) -> None:
    first = read(text)
    assert parsed() == 1
    second = read(text)
    assert parsed() == 0
    # the first time, too: what was parsed need not stay in memory
    assert isinstance(first.examples.values, np.memmap)
    assert isinstance(second.examples.values, np.memmap)
    assert sorted(path.name for path in text.parent.iterdir()) == ["text", f"text{SUFFIX}"]


def test_compressed(tmp_path: Path, parsed: Parsed) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(TEXT))
    for expected in (1, 0):
        read(path)
        assert parsed() == expected


def test_several_sources_are_one_cache(tmp_path: Path, parsed: Parsed) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"# nothing\n")
    two.write_bytes(TEXT)
    for expected in (1, 0):
        read(one, two)
        assert parsed() == expected
    read(two, one)
    assert parsed() == 1
    read(one, two)  # its own cache is still there
    assert parsed() == 0
    two.write_bytes(OTHER)
    read(one, two)
    assert parsed() == 1


def test_moved_with_its_cache_the_hash_tells(text: Path, parsed: Parsed, hashed: Parsed, tmp_path: Path) -> None:
    read(text)
    copy = tmp_path / "copy"
    copy.write_bytes(TEXT)
    beside(text).rename(beside(copy))
    parsed(), hashed()
    read(copy)
    assert (parsed(), hashed()) == (0, 1)


def test_a_file_that_settled_is_known_by_its_stamps(
    text: Path, parsed: Parsed, hashed: Parsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(text)
    assert hashed() == 1
    read(text)
    assert (parsed(), hashed()) == (1, 1)  # it had just been written
    beside(text).unlink()
    monkeypatch.setattr(cache, "RECENT_NS", 0)
    read(text)
    parsed(), hashed()
    read(text)
    assert (parsed(), hashed()) == (0, 0)


# --------------------------------------------------------------------------------------------------------------- misses


def test_another_content_of_the_same_size_and_times(
    text: Path, parsed: Parsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "RECENT_NS", 0)
    settle(text)
    read(text)
    parsed()
    before = text.stat()
    assert len(OTHER) == len(TEXT)
    text.write_bytes(OTHER)
    settle(text)
    while text.stat().st_ctime_ns == before.st_ctime_ns:  # the kernel's clock ticks
        settle(text)
    after = text.stat()
    assert (before.st_size, before.st_mtime_ns, before.st_ino) == (after.st_size, after.st_mtime_ns, after.st_ino)
    read(text)
    assert parsed() == 1
    read(text)
    assert parsed() == 0


@pytest.mark.parametrize("content", [OTHER, TEXT + b"+1 1:1\n", TEXT[:-4] + b"\n"])
def test_another_content(content: bytes, text: Path, parsed: Parsed) -> None:
    read(text)
    text.write_bytes(content)
    read(text)
    assert parsed() == 2
    read(text)
    assert parsed() == 0


def test_replaced_by_another_file(text: Path, parsed: Parsed, tmp_path: Path) -> None:
    read(text)
    (tmp_path / "other").write_bytes(OTHER)
    (tmp_path / "other").replace(text)
    read(text)
    assert parsed() == 2


def test_other_options(text: Path, parsed: Parsed, monkeypatch: pytest.MonkeyPatch) -> None:
    read(text)
    read(text, dtype=np.float64)
    assert parsed() == 2
    read(text, dtype=np.float64)
    assert parsed() == 0
    read(text, zero_based=True)
    assert parsed() == 1
    read(text)
    assert parsed() == 1
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    read(text)
    assert parsed() == 1
    monkeypatch.setattr(shardfile, "FORMAT_VERSION", shardfile.FORMAT_VERSION + 1)
    read(text)
    assert parsed() == 1
    read(text)
    assert parsed() == 0


def test_a_cut_or_damaged_cache(text: Path, parsed: Parsed) -> None:
    found = read(text)
    content = beside(text).read_bytes()
    values = found.examples.values
    assert isinstance(values, np.memmap)
    parsed()
    for length in (0, 10, 100, len(content) // 2, int(values.offset) + 1):
        beside(text).write_bytes(content[:length])
        read(text)
        assert parsed() == 1, length
    for at in (0, 20, 100, int(values.offset)):
        beside(text).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        read(text)
        assert parsed() == 1, at
    read(text)
    assert parsed() == 0


def test_a_foreign_cache(text: Path, parsed: Parsed, tmp_path: Path) -> None:
    read(text)
    other = tmp_path / "other"
    other.write_bytes(OTHER)
    read(other)
    foreign = [b"", b"anything", beside(other).read_bytes()]
    shardfile.write(tmp_path / "shard", libsvm.parse(OTHER))
    foreign.append((tmp_path / "shard").read_bytes())
    abouts: list[dict[str, object]] = [
        {"cache": None},
        {"cache": {}},
        {"cache": {"sources": 1}},
        {"cache": {"sources": [1]}},
    ]
    for about in abouts:
        shardfile.write(tmp_path / "shard", libsvm.parse(OTHER), about)
        foreign.append((tmp_path / "shard").read_bytes())
    parsed()
    for content in foreign:
        beside(text).write_bytes(content)
        read(text)
        assert parsed() == 1
    beside(text).unlink()
    beside(text).mkdir()
    read(text)
    assert parsed() == 1


def test_a_source_that_changes_while_it_is_read(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = libsvm.read

    def slow(*arguments: object, **options: object) -> object:
        found = real(*arguments, **options)  # type: ignore[arg-type]  # as they come
        text.write_bytes(OTHER)
        return found

    monkeypatch.setattr(libsvm, "read", slow)
    cache.read([str(text)], zero_based=False, dtype=np.float32, threads=1, places=Places())
    assert not beside(text).exists()


def test_faults_are_reported_and_nothing_is_kept(text: Path) -> None:
    text.write_bytes(TEXT + b"+1 1:x\n")
    for _ in range(2):
        with pytest.raises(ParseError, match=r"text:5:6"):
            cache.read([str(text)], zero_based=False, dtype=np.float32, threads=1, places=Places())
    assert not beside(text).exists()
    text.unlink()
    with pytest.raises(DataError, match="cannot be read: No such file"):
        cache.read([str(text)], zero_based=False, dtype=np.float32, threads=1, places=Places())


# --------------------------------------------------------------------------------------------------------------- places


def test_not_asked_for(text: Path, parsed: Parsed) -> None:
    for _ in range(2):
        read(text, places=Places(enabled=False))
    assert parsed() == 2
    assert not beside(text).exists()


def test_short_text_is_not_worth_it(text: Path, parsed: Parsed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LEAST_BYTES", len(TEXT) + 1)
    for _ in range(2):
        read(text)
    assert parsed() == 2
    assert not beside(text).exists()


def test_a_directory_asked_for(text: Path, parsed: Parsed, tmp_path: Path) -> None:
    places = Places(directory=str(tmp_path / "made" / "here"), fallback=str(tmp_path / "fallback"))
    for expected in (1, 0):
        read(text, places=places)
        assert parsed() == expected
    assert not beside(text).exists()
    assert not (tmp_path / "fallback").exists()
    # files of the same name do not meet there
    other = tmp_path / "text"
    other.write_bytes(OTHER)
    read(other, places=places)
    assert parsed() == 1
    read(text, places=places)
    assert parsed() == 0
    assert len(list((tmp_path / "made" / "here").iterdir())) == 2


def test_a_directory_that_is_a_file(text: Path) -> None:
    with pytest.raises(UsageError, match="is a file, where files are to be kept; name a directory"):
        read(text, places=Places(directory=str(text)))


@pytest.fixture
def unwritable(text: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The text, in a directory where nothing can be made."""
    real = os.access

    def access(path: str | Path, mode: int) -> bool:
        return Path(path) != text.parent and real(path, mode)

    monkeypatch.setattr(os, "access", access)
    text.parent.chmod(0o555)
    yield text
    text.parent.chmod(0o755)


def test_the_state_directory_when_nothing_can_be_written_beside(
    unwritable: Path, parsed: Parsed, tmp_path: Path
) -> None:
    places = Places(fallback=str(tmp_path / "state"))
    for expected in (1, 0):
        read(unwritable, places=places)
        assert parsed() == expected
    assert list(unwritable.parent.iterdir()) == [unwritable]


def test_nowhere_to_write(unwritable: Path, parsed: Parsed, hashed: Parsed) -> None:
    for _ in range(2):
        read(unwritable)
        assert (parsed(), hashed()) == (1, 0)


def test_a_cache_that_came_with_read_only_data(text: Path, parsed: Parsed, tmp_path: Path) -> None:
    read(text)
    parsed()
    read(text, places=Places(directory=str(tmp_path / "elsewhere")))
    assert parsed() == 0


def test_a_full_disk(text: Path, parsed: Parsed, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(shardfile, "write_to", full)
    for _ in range(2):
        read(text)
        assert parsed() == 1
    assert list(text.parent.iterdir()) == [text]


@pytest.mark.parametrize("source", ["fifo", "-"])
def test_streams_are_not_cached(source: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    code = (
        "import numpy, sys; from acccocoa import cache; cache.LEAST_BYTES = 0;"
        "print(cache.read(sys.argv[1:], zero_based=False, dtype=numpy.float32, threads=1, places=cache.Places())"
        ".examples.n)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, source],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        if source == "fifo":
            (tmp_path / "fifo").write_bytes(TEXT)
        assert process.communicate(TEXT if source == "-" else b"")[0] == b"4\n"
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


# ---------------------------------------------------------------------------------------------------------- concurrency


def test_whoever_comes_second_waits_for_the_first(text: Path, parsed: Parsed) -> None:
    """The lock is held while the text is parsed, and the cache is there when it is let go."""
    real = libsvm.read
    seen = []

    def looking(*arguments: object, **options: object) -> object:
        with text.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                seen.append("free")
            except BlockingIOError:
                seen.append("locked")
        return real(*arguments, **options)  # type: ignore[arg-type]  # as they come

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libsvm, "read", looking)
        read(text)
    assert seen == ["locked"]
    with text.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read_in_process(path: str, results: "multiprocessing.SimpleQueue[tuple[str, int]]") -> None:
    cache.LEAST_BYTES = 1  # type: ignore[misc]  # final but for this process
    calls = []
    real = libsvm.read

    def counting(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        return real(*arguments, **options)  # type: ignore[arg-type]  # as they come

    libsvm.read = counting  # type: ignore[assignment]  # likewise
    found = cache.read([path], zero_based=False, dtype=np.float32, threads=1, places=Places())
    results.put((shardfile.content_hash(found.examples), len(calls)))


def test_many_at_once(text: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    processes = [context.Process(target=_read_in_process, args=(str(text), results)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = [results.get() for _ in processes]
    assert {digest for digest, _ in found} == {shardfile.content_hash(libsvm.parse(TEXT))}
    assert sum(parsed for _, parsed in found) == 1


def test_a_reader_keeps_what_it_mapped(text: Path) -> None:
    found = read(text)
    digest = found.content_hash
    text.write_bytes(OTHER)
    read(text)
    assert shardfile.content_hash(found.examples) == digest


def test_nobody_waits_for_ever(text: Path, parsed: Parsed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may have locked the file, or a process that reads it been stopped."""
    monkeypatch.setattr(cache, "TURN_SECONDS", 0.1)
    with text.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        read(text)
    assert parsed() == 1


def test_what_a_killed_process_has_left_goes(text: Path) -> None:
    killed = "import os, pathlib, sys; from acccocoa import cache; die = lambda _: os.kill(os.getpid(), 9);"
    command = [sys.executable, "-c", f"{killed} cache.put([pathlib.Path(sys.argv[1])], die, die)", str(beside(text))]
    assert subprocess.run(command, check=False, timeout=60).returncode == -9
    assert list(text.parent.glob(".acccocoa-*")) != []
    read(text)
    assert list(text.parent.glob(".acccocoa-*")) == []
    assert beside(text).exists()
