"""The directory shards are written to: temporary names first, the final ones when all are complete."""

import fcntl
import json
import os
import resource
import secrets
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, cast

import numpy as np

from acccocoa import libsvm_writer, manifest, shardfile
from acccocoa.errors import DataError, UsageError
from acccocoa.examples import Examples
from acccocoa.manifest import Manifest, ShardEntry
from acccocoa.shardplan import SHARDS_MOST, Plan

_TEMPORARY: Final = ".acccocoa-shard-"


class _Sink(Protocol):
    """A shard that is being written."""

    def append(self, piece: Examples) -> None:
        """The next examples."""

    def finish(self) -> str:
        """All have been written: their content hash."""

    def describe(self, about: Mapping[str, Any]) -> None:
        """What is to be said about the shard."""


class _Text:
    """A shard as LIBSVM text; its manifest says the rest."""

    def __init__(self, out: BinaryIO, dtype: np.dtype[Any], spellings: Mapping[float, str]) -> None:
        self._out = out
        self._spellings = spellings
        self._hasher = shardfile.ContentHasher(dtype)
        self._hasher.add("indptr", np.zeros(1, np.int64))
        self._entries = 0

    def append(self, piece: Examples) -> None:
        for text in libsvm_writer.text(piece, self._spellings):
            self._out.write(text)
        self._hasher.add("indptr", piece.indptr[1:] - piece.indptr[0] + self._entries)
        for name in ("indices", "values", "labels"):
            self._hasher.add(name, getattr(piece, name))
        self._entries += piece.nnz

    def finish(self) -> str:
        return self._hasher.hexdigest()

    def describe(self, about: Mapping[str, Any]) -> None:
        self._out.flush()


class Shard:
    """A shard under its temporary name; see Output.shard."""

    def __init__(
        self, path: Path, final: str, stack: ExitStack, plan: Plan, n: int, nnz: int, spellings: Mapping[float, str]
    ) -> None:
        self.path = path
        self.final = final
        self._file = stack.enter_context(path.open("xb"))
        stack.callback(path.unlink, missing_ok=True)
        out = cast(BinaryIO, self._file)
        dtype = np.dtype(plan.dtype)
        self._sink: _Sink
        if plan.format == "binary":
            room = len(json.dumps(_about(manifest.Part("0" * 64, plan.shards, plan.shards, plan.by))))
            self._sink = shardfile.Writer(out, n, nnz, dtype, spellings, room=room)
        else:
            self._sink = _Text(out, dtype, spellings)
        self._n = self._d = self._nnz = 0

    def append(self, piece: Examples) -> None:
        """The next examples."""
        self._sink.append(piece)
        self._n += piece.n
        self._d = max(self._d, piece.d)
        self._nnz += piece.nnz

    def entry(self) -> ShardEntry:
        """All examples have been written: what the manifest says of them."""
        digest = self._sink.finish()
        self._file.flush()
        size = os.fstat(self._file.fileno()).st_size
        return ShardEntry(self.final, digest, self._n, self._d, self._nnz, size)

    def complete(self, part: manifest.Part) -> None:
        """Say which part this is, and make sure that it is on disk."""
        self._sink.describe(_about(part))
        os.fsync(self._file.fileno())


def _about(part: manifest.Part) -> dict[str, Any]:
    return {"part": part.as_json()}


class Output:
    """The directory, locked; temporary files in it go with the stack."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._stack = stack
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, self._descriptor)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"--out {directory}", "another command is writing shards there", "wait for it") from error
        for left in directory.glob(f"{_TEMPORARY}*"):  # of a command that was killed
            left.unlink(missing_ok=True)
        self._shards: list[Shard] = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < SHARDS_MOST + 64:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, SHARDS_MOST + 64), hard))

    def shard(self, plan: Plan, n: int, nnz: int, spellings: Mapping[float, str]) -> Shard:
        """Begin the next shard; its size is known beforehand."""
        number = len(self._shards)
        path = self.directory / f"{_TEMPORARY}{secrets.token_hex(8)}"
        self._shards.append(Shard(path, plan.name(number), self._stack, plan, n, nnz, spellings))
        return self._shards[-1]

    def publish(self, done: Manifest) -> None:
        """Give all files their names."""
        for number, shard in enumerate(self._shards):
            shard.complete(done.part(number))
        path = self.directory / manifest.NAME
        temporary = self.directory / f"{_TEMPORARY}{secrets.token_hex(8)}"
        self._stack.callback(temporary.unlink, missing_ok=True)
        with temporary.open("xb") as file:
            file.write(done.text())
            file.flush()
            os.fsync(file.fileno())
        surplus = _files_of(path) - {shard.final for shard in self._shards}
        # from here on the earlier cut is not whole any more
        path.unlink(missing_ok=True)
        os.fsync(self._descriptor)
        for name in surplus:
            (self.directory / name).unlink(missing_ok=True)
        for shard in self._shards:
            shard.path.replace(self.directory / shard.final)
        os.fsync(self._descriptor)
        temporary.replace(path)
        os.fsync(self._descriptor)


def _files_of(path: Path) -> set[str]:
    """The shards of an earlier manifest, if there is one that can be read."""
    with suppress(OSError, DataError):
        found = manifest.parse(path.read_bytes(), str(path))
        return {Path(shard.file).name for shard in found.shards}
    return set()
