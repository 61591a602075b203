"""Cuts a file into shards over and over, killed at the first step that touches the disk, the second, and so on.

    python -m tests.support.killed_cut DATA DIRECTORY

Prints how many steps there were. After each kill DIRECTORY holds what a killed command leaves, and is checked.
"""

import os
import pathlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acccocoa import libsvm, manifest, shardfile, sharding
from acccocoa.shardplan import Plan

BEFORE, AFTER = Plan(3, seed=1), Plan(2, seed=2)


def cut(data: str, directory: Path, plan: Plan) -> None:
    """As the command does it."""
    sharding.cut([libsvm.read([data])], directory, plan, [data])


def die_at(step: int) -> None:
    """Kill this process when it is about to do the step of that number."""
    left = step

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return function(*arguments, **options)

        return wrapper

    for module, name in ((os, "fsync"), (os, "preadv"), (pathlib.Path, "replace"), (pathlib.Path, "unlink")):
        setattr(module, name, counted(getattr(module, name)))


def check(directory: Path) -> None:
    """Whatever has a final name is whole; with a manifest, all that it promises is there."""
    files = {path.name for path in directory.iterdir() if not path.name.startswith(".")}
    found = {name: shardfile.load(directory / name) for name in files - {manifest.NAME}}
    if manifest.NAME in files:
        done = manifest.parse((directory / manifest.NAME).read_bytes(), manifest.NAME)
        assert {name: shard.content_hash for name, shard in found.items()} == {
            entry.file: entry.hash for entry in done.shards
        }


def main() -> None:
    """See above."""
    data, directory = sys.argv[1], Path(sys.argv[2])
    step = 0
    while True:
        cut(data, directory, BEFORE)  # which clears away what a killed one left under temporary names
        for orphan in {AFTER.name(k) for k in range(2)} & {path.name for path in directory.iterdir()}:
            (directory / orphan).unlink()  # whole, but in no manifest
        assert {path.name for path in directory.iterdir()} == {manifest.NAME, *(BEFORE.name(k) for k in range(3))}
        child = os.fork()
        if child == 0:
            die_at(step)
            cut(data, directory, AFTER)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        check(directory)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        step += 1
    print(step)


if __name__ == "__main__":
    main()
