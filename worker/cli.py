"""acccocoa-worker: argv -> settings -> run."""

import faulthandler
import logging
import os
import signal
import sys
import threading
from types import FrameType

import click
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from acccocoa import __version__
from acccocoa.cli import ExitCodes, s3_endpoint
from acccocoa.dealing import By
from acccocoa.errors import WorkerUnreachable
from acccocoa.options import THREADS_MAX
from acccocoa.security import open_channel


@click.group(cls=ExitCodes, context_settings={"auto_envvar_prefix": "ACCCOCOA"})
@click.version_option(__version__)
def main() -> None:
    """A worker of acccocoa: serves one shard of the data to a coordinator."""


@main.command()
@click.argument("shard", envvar="ACCCOCOA_SERVE_SHARD")
@click.option(
    "--listen",
    default="127.0.0.1:50051",
    show_default=True,
    metavar="HOST:PORT",
    help="where to serve; port 0: any free one",
)
@click.option(
    "--threads",
    default=len(os.sched_getaffinity(0)),
    show_default="one a core",
    type=click.IntRange(1, THREADS_MAX),
    help="one solves and the others compute certificates, or each a block where features are few or lam n is large, or "
    "a label with --multiclass ovr",
)
@click.option(
    "--zero-based",
    is_flag=True,
    help="feature numbers in SHARD begin with 0",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="how values are stored",
)
@click.option(
    "--by",
    type=click.Choice(["examples", "features"]),
    default="examples",
    show_default=True,
    help="what the parts of a FILE are",
)
@click.option(
    "--weights",
    metavar="FILE",
    help="weight of every example in SHARD's file, one a line",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="accept unencrypted connections beyond the loopback interface",
)
@click.option(
    "--state",
    metavar="DIR",
    help="keep the dual variables here, to go on from after a crash",
)
@click.option(
    "--cache",
    metavar="DIR",
    help="keep parsed text here [default: beside SHARD, or in --state]",
)
@click.option(
    "--no-cache",
    is_flag=True,
    help="parse text anew, and keep nothing",
)
@s3_endpoint
@click.option(
    "--exit-with-stdin",
    is_flag=True,
    help="end when standard input closes (used by the embedded cluster)",
)
@click.option(
    "--quiet",
    is_flag=True,
    help="log warnings only",
)
def serve(
    shard: str,
    listen: str,
    threads: int,
    zero_based: bool,
    dtype: str,
    by: By,
    weights: str | None,
    insecure: bool,
    state: str | None,
    cache: str | None,
    no_cache: bool,
    exit_with_stdin: bool,
    quiet: bool,
) -> None:
    """Serve SHARD: a LIBSVM file (also .gz .bz2 .xz .zst), a shard file, or FILE#k/K for part k of K of a file.

    SHARD may also be a directory that workers share: each takes a part of what `acccocoa-coordinator train --deal`
    puts there.

    The address in use is the first line on standard output. SIGTERM or Ctrl-C ends the worker.
    """
    # numpy and numba take most of a second of computing to import: not for `check`, which runs every few seconds
    from acccocoa.cache import Places
    from worker import server

    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO,
        format="%(asctime)s acccocoa-worker %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    stop, serving = threading.Event(), threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()
        if not serving.is_set():
            sys.exit(0)  # in the middle of loading a shard: there is nothing to finish

    faulthandler.enable()  # a mapped file that is cut short ends the process: not without a word
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    if exit_with_stdin:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    server.run(
        shard,
        listen,
        threads=threads,
        zero_based=zero_based,
        dtype=dtype,
        by=by,
        insecure=insecure,
        state=state,
        places=Places(not no_cache, cache, state),
        weights=weights,
        serving=serving,
        stop=stop,
    )


def _end_with_stdin() -> None:
    """Whoever started this worker holds the other end of its standard input: end when that process has gone."""
    while os.read(0, 4096):
        pass
    # also in the middle of loading a shard, which no flag would interrupt; nothing here is worth saving
    os._exit(0)


@main.command()
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--timeout",
    default=5.0,
    show_default=True,
    metavar="S",
    help="seconds to wait for the answer",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="allow an unencrypted connection beyond the loopback interface",
)
def check(address: str, timeout: float, insecure: bool) -> None:
    """Ask the worker at HOST:PORT for its health: exit 0 when it is SERVING, 5 otherwise."""
    with open_channel(address, insecure) as channel:
        try:
            reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=timeout)
        except grpc.RpcError as error:
            raise WorkerUnreachable(f"worker {address}", f"does not answer ({error.code().name})") from error
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        raise WorkerUnreachable(f"worker {address}", f"answers {name}", "wait until its shard is loaded")
    click.echo(name)
