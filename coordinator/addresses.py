"""--workers as the user writes it -> the list of HOST:PORT."""

import socket
from pathlib import Path

from acccocoa.errors import UsageError, WorkerUnreachable
from acccocoa.security import split_address


def resolve(workers: str) -> list[str]:
    """The addresses of 'A:P,B:P,...', 'dns:///NAME:PORT' or '@FILE' (one a line).

    A name stands for every address it has, and for those of IPv6 only when it has no others.

    Raises
    ------
    UsageError : malformed, repeated, or none; WorkerUnreachable : the name does not resolve
    """
    if workers.startswith("@"):
        try:
            lines = Path(workers[1:]).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--workers {workers}", f"the file cannot be read ({error})") from error
        entries = [line.partition("#")[0].strip() for line in lines]
    else:
        entries = [entry.strip() for entry in workers.split(",")]
    addresses: list[str] = []
    for entry in filter(None, entries):
        if entry.startswith("dns:///"):
            addresses += _every_address(entry.removeprefix("dns:///"))
        else:
            split_address(entry)
            addresses.append(entry)
    if not addresses:
        raise UsageError(f"--workers {workers}", "names no worker", "give HOST:PORT,HOST:PORT,...")
    repeated = sorted({address for address in addresses if addresses.count(address) > 1})
    if repeated:
        raise UsageError(f"--workers {workers}", f"names {', '.join(repeated)} more than once")
    return addresses


def _every_address(target: str) -> list[str]:
    host, port = split_address(target)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise WorkerUnreachable(f"name {host}", f"does not resolve ({error})", "are the workers running?") from error
    # a worker that a name has both kinds of addresses for is not two workers
    kinds = {entry[0] for entry in found}
    kind = socket.AF_INET if socket.AF_INET in kinds else socket.AF_INET6
    hosts = sorted({str(entry[4][0]) for entry in found if entry[0] == kind})
    return [f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in hosts]
