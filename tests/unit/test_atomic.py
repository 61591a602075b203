"""Files appear whole or not at all."""

import errno
import os
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from acccocoa.atomic import atomic_write, check_writable, room
from acccocoa.errors import UsageError
from tests.cluster import chaos


def names(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


def test_writes_a_new_file(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "out") as file:
        file.write(b"whole")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out").read_bytes() == b"whole"
    assert names(tmp_path) == {"out"}


def test_takes_a_string_and_a_bare_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_writable("out")
    with atomic_write("out") as file:
        file.write(b"whole")
    assert (tmp_path / "out").read_bytes() == b"whole"


def test_replaces_an_existing_file_only_at_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"old")
    with atomic_write(out) as file:
        file.write(b"new")
        file.flush()
        assert out.read_bytes() == b"old"
    assert out.read_bytes() == b"new"


@pytest.mark.parametrize("existed", [True, False])
@pytest.mark.parametrize("error", [RuntimeError("body"), KeyboardInterrupt(), OSError(errno.EIO, "not ours")])
def test_body_that_raises_leaves_nothing(tmp_path: Path, existed: bool, error: BaseException) -> None:
    out = tmp_path / "out"
    if existed:
        out.write_bytes(b"old")

    def write() -> None:
        with atomic_write(out) as file:
            file.write(b"x" * 100_000)
            raise error

    with pytest.raises(type(error)) as caught:
        write()
    assert caught.value is error
    assert names(tmp_path) == ({"out"} if existed else set())
    assert not existed or out.read_bytes() == b"old"


def test_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"old")
    program = (
        "import os, signal, sys\n"
        "from acccocoa.atomic import atomic_write\n"
        "with atomic_write(sys.argv[1]) as file:\n"
        "    file.write(b'new')\n"
        "    file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(out)], check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    assert out.read_bytes() == b"old"


def test_content_is_on_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def record_fsync(descriptor: int) -> None:
        events.append("sync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        if events[-1] == "sync file":
            assert os.fstat(descriptor).st_size == 5
        fsync(descriptor)

    def record_replace(source: Path, target: Path) -> Path:
        events.append("rename")
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "replace", record_replace)
    with atomic_write(tmp_path / "out") as file:
        file.write(b"whole")
    assert events == ["sync file", "rename", "sync directory"]


def failing(error_number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(error_number, os.strerror(error_number))

    return fail


def fails_on_directories(error_number: int) -> Callable[[int], None]:
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(error_number, os.strerror(error_number))
        fsync(descriptor)

    return fail


@pytest.mark.parametrize(("module", "function"), [(os, "fsync"), (Path, "replace"), (os, "fchmod")])
def test_a_step_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, function: str
) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"old")
    monkeypatch.setattr(module, function, failing(errno.EIO))
    with pytest.raises(UsageError, match=f"^{out}: cannot be written: Input/output error$"), atomic_write(out) as file:
        file.write(b"new")
    assert out.read_bytes() == b"old"
    assert names(tmp_path) == {"out"}


def test_directory_that_cannot_be_synced_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", fails_on_directories(errno.EINVAL))
    with atomic_write(tmp_path / "out") as file:
        file.write(b"new")
    assert (tmp_path / "out").read_bytes() == b"new"


def test_directory_whose_sync_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", fails_on_directories(errno.EIO))
    with pytest.raises(UsageError, match="Input/output error"), atomic_write(tmp_path / "out") as file:
        file.write(b"new")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"old")
    real_open = os.open

    def open_full(path: str | Path, flags: int, mode: int = 0o777) -> int:
        descriptor = real_open(path, flags, mode)
        if flags & os.O_CREAT:
            full = real_open("/dev/full", os.O_WRONLY)
            os.dup2(full, descriptor)
            os.close(full)
        return descriptor

    monkeypatch.setattr(os, "open", open_full)
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    expected = f"^{out}: cannot be written: No space left on device; free some space, or choose another place$"
    with pytest.raises(UsageError, match=expected), atomic_write(out) as file:
        file.write(b"x" * size)
    assert out.read_bytes() == b"old"
    assert names(tmp_path) == {"out"}


def test_nested_files_appear_together_inner_first(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "second") as second, atomic_write(tmp_path / "first") as first:
        first.write(b"1")
        second.write(b"2")
        assert not (tmp_path / "first").exists()
    assert names(tmp_path) == {"first", "second"}


def test_handle_serves_seeking_writers(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "out.zip") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("member", "content")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert archive.read("member") == b"content"


def test_permissions_follow_the_umask_or_the_existing_file(tmp_path: Path) -> None:
    previous = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "new"):
            pass
        (tmp_path / "old").touch()
        (tmp_path / "old").chmod(0o666)
        with atomic_write(tmp_path / "old"):
            pass
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o666


def test_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "out")
    for content in (b"one", b"two"):
        with atomic_write(tmp_path / "link") as file:
            file.write(content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "elsewhere" / "out").read_bytes() == content


def test_longest_possible_name(tmp_path: Path) -> None:
    out = tmp_path / ("x" * 255)
    check_writable(out)
    with atomic_write(out):
        pass
    assert out.exists()


def use(path: Path) -> None:
    with atomic_write(path):
        pass


@pytest.mark.parametrize("attempt", [check_writable, use])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent/out", "cannot be written: No such file or directory; its directory must exist"),
        ("file/out", "cannot be written: Not a directory; its directory must exist"),
        ("x" * 256, "cannot be written: File name too long; choose a shorter name"),
        ("directory", "is a directory; name a file"),
        ("pipe", "is a device or a pipe, where a regular file is written; name a file"),
        ("loop", "cannot be written: Too many levels of symbolic links"),
    ],
)
def test_places_that_cannot_be_written(
    tmp_path: Path, attempt: Callable[[Path], None], name: str, message: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    before = names(tmp_path)
    with pytest.raises(UsageError) as caught:
        attempt(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: {message}"
    assert caught.value.exit_code == 2
    assert names(tmp_path) == before


def test_write_protected_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever runs the tests may be allowed everything
    with pytest.raises(UsageError) as caught:
        check_writable(out)
    assert str(caught.value) == f"{out}: is write-protected; choose another name, or make it writable"


def test_directory_in_which_nothing_can_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", failing(errno.EROFS))
    with pytest.raises(UsageError, match=r"cannot be written: Read-only file system$"):
        check_writable(tmp_path / "out")


def test_check_writable_leaves_everything_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    check_writable(tmp_path / "out")
    check_writable(tmp_path / "new")
    assert names(tmp_path) == {"out"}
    assert (tmp_path / "out").read_bytes() == b"old"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    if os.geteuid() != 0:
        pytest.skip("a small file system can only be mounted by root")
    with chaos.small_disk(tmp_path / "disk"):
        yield tmp_path / "disk"


def test_room_is_there_when_the_disk_is_full(small_disk: Path) -> None:
    out = small_disk / "out"
    with room(out, 100_000) as give_back:
        with (small_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(4096))
        with pytest.raises(UsageError, match="No space left"), atomic_write(out) as file:
            file.write(bytes(100_000))
        give_back()
        with atomic_write(out) as file:
            file.write(bytes(100_000))
    assert names(small_disk) == {"filler", "out"}
    assert out.stat().st_size == 100_000


def test_room_that_is_not_there_is_an_error(small_disk: Path) -> None:
    with pytest.raises(UsageError, match="No space left"), room(small_disk / "out", 1 << 21):
        raise AssertionError("not reached")
    assert names(small_disk) == set()


def test_room_ends_with_its_block(small_disk: Path) -> None:
    for _ in range(5):
        with room(small_disk / "out", 600_000):
            assert names(small_disk) == set()
