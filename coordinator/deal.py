"""--deal: the coordinator's side of acccocoa.dealing."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from acccocoa import dealing, shardfile
from acccocoa.errors import UsageError, WorkerRefused
from acccocoa.examples import Examples
from coordinator.handshake import ShardDescription


def deal(stack: ExitStack, examples: Examples, parts: int, by: dealing.By, directory: str) -> frozenset[str]:
    """Put the examples into the directory for that many workers; they are taken away with the stack.

    Whatever an earlier coordinator left there when it was killed goes first.

    Returns
    -------
    hashes : the content hashes of the parts

    Raises
    ------
    UsageError : the directory cannot be read or written
    """
    path = dealing.Deal(parts, by).path(Path(directory))
    try:
        for left in dealing.deals(Path(directory)):
            left.path(Path(directory)).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"--deal {directory}", f"is not a directory to write in ({error.strerror})") from error
    content_hash = shardfile.write(path, examples)
    stack.callback(path.unlink, missing_ok=True)
    return frozenset(dealing.hash_by(dealing.part_hash(content_hash, part, parts), by) for part in range(parts))


def check(shards: Sequence[ShardDescription], hashes: frozenset[str]) -> None:
    """Make sure that the workers hold what was dealt, and nothing from before.

    Raises
    ------
    WorkerRefused : one does not
    """
    for shard in shards:
        if shard.content_hash not in hashes:
            raise WorkerRefused(
                f"worker {shard.address}", "holds other data than was dealt with --deal", "restart the workers"
            )
