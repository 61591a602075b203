"""The worker process: port, health, shard, and an orderly end."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from acccocoa import security
from acccocoa.cache import Places
from acccocoa.cli import tell
from acccocoa.dealing import By
from acccocoa.security import split_address
from acccocoa.v1 import worker_pb2_grpc
from worker import claim, source
from worker.adoption import Adopted
from worker.checkpoint import StateDirectory
from worker.service import STREAMS, WorkerService

log = logging.getLogger(__name__)

HANDLERS = 2 * STREAMS
"""Calls answered at the same time: streams, and Describe and health probes beside them."""

CALLS = 256
"""Calls open at the same time; the rest is turned away."""

SIGNAL_SECONDS = 0.2
"""How long a signal may go unnoticed."""

GRACE_SECONDS = 5.0
"""How long calls under way may take to end when the worker stops."""


def run(
    shard: str,
    listen: str,
    *,
    threads: int,
    zero_based: bool,
    dtype: str,
    by: By,
    insecure: bool,
    state: str | None,
    places: Places,
    weights: str | None,
    serving: threading.Event,
    stop: threading.Event,
) -> None:
    """Bind the port, load the shard, set `serving`, serve until `stop` is set.

    The port is bound first, so that a taken one is an error at once; health is SERVING only when the shard is loaded
    and the kernels are compiled. The address in use is printed on standard output.

    Raises
    ------
    UsageError : the address cannot be bound, or may not be served unencrypted; the state directory cannot be used
    DataError : the shard cannot be read
    """
    source.check(shard)
    handlers = ThreadPoolExecutor(HANDLERS, thread_name_prefix="grpc")
    grpc_server = grpc.server(handlers, options=security.SERVER_OPTIONS, maximum_concurrent_rpcs=CALLS)
    service = WorkerService()
    worker_pb2_grpc.add_WorkerServicer_to_server(service, grpc_server)
    health_service = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_service, grpc_server)
    health_service.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    address = security.bind(grpc_server, listen, insecure)
    grpc_server.start()
    tell(address)
    adopted = None
    try:
        taken = claim.resolve(shard, by, stop)
        if taken is None:
            return
        shard, by = taken
        holdings = source.load(
            shard, zero_based=zero_based, dtype=dtype, threads=threads, by=by, places=places, weights=weights
        )
        held = holdings.shard
        states = StateDirectory(state, held.content_hash, held.rows) if state is not None else None
        part = holdings.part
        if part is not None:
            host = split_address(listen)[0]
            common = [
                *("--listen", f"[{host}]:0" if ":" in host else f"{host}:0", "--threads", str(threads)),
                *("--dtype", dtype, "--by", "features" if held.by_features else "examples"),
                *(["--zero-based"] if zero_based else []),
                *(["--insecure"] if insecure else []),
                *(["--state", state] if state is not None else []),
                *(["--weights", weights] if weights is not None else []),
                *([] if places.enabled else ["--no-cache"]),
                *(["--cache", places.directory] if places.directory is not None else []),
                *([] if log.isEnabledFor(logging.INFO) else ["--quiet"]),
            ]
            adopted = Adopted(lambda number: [source.sibling(shard, part, number), *common])
        service.ready(holdings, states, adopted)
        serving.set()
        health_service.set("", health_pb2.HealthCheckResponse.SERVING)
        log.info("serving %s on %s", shard, address)
        # with a limit: a signal that finds this thread stopped (SIGCONT, then SIGTERM) goes to another one, which does
        # not wake it up, and only this one runs the handler
        while not stop.wait(SIGNAL_SECONDS):
            pass
    finally:
        health_service.enter_graceful_shutdown()
        service.let_go()
        if adopted is not None:
            adopted.end()
        grpc_server.stop(GRACE_SECONDS).wait(2 * GRACE_SECONDS)
        service.close()
