"""s3://BUCKET/KEY as a stream of bytes: ranges fetched in parallel and in order, each retried by itself.

Credentials, region, profile and endpoint are found by boto3 in its ordinary way (AWS_* variables, configuration files,
the instance's role). An object that is replaced while it is read is noticed.
"""

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import RawIOBase
from typing import Any, BinaryIO, Final

from acccocoa.errors import AcccocoaError, DataError, UsageError

SCHEME: Final = "s3://"

RANGE_BYTES: Final = 4 << 20
"""Fetched by one request."""

REQUESTS: Final = 8
"""Under way at the same time."""

ATTEMPTS: Final = 6
"""How often a range is asked for until its answer comes to its end; boto3 retries requests that fail before."""

PAUSE_SECONDS: Final = 0.1
"""Before the second attempt; doubled with each one."""


@dataclass(frozen=True, slots=True)
class Object:
    """One version of an object.

    etag : changes whenever the content does
    """

    name: str
    bucket: str
    key: str
    size: int
    etag: str


def is_s3(source: str) -> bool:
    """The source is in an object store."""
    return source.startswith(SCHEME)


def _split(source: str) -> tuple[str, str]:
    bucket, _, key = source.removeprefix(SCHEME).partition("/")
    if not bucket or not key:
        raise UsageError(source, "does not name an object", "write s3://BUCKET/KEY")
    return bucket, key


@lru_cache(maxsize=4)
def _client_for(_settings: tuple[tuple[str, str], ...]) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        max_pool_connections=REQUESTS,
        connect_timeout=10,
        read_timeout=60,
    )
    return boto3.session.Session().client("s3", config=config)


def _client(source: str) -> Any:
    """A client for the environment as it is."""
    try:
        import boto3  # noqa: F401  # whether it is there
    except ImportError as error:
        raise UsageError(source, "the package boto3 is needed to read s3://", "install acccocoa[s3]") from error
    with _translated(source):
        return _client_for(tuple(sorted((key, value) for key, value in os.environ.items() if key.startswith("AWS_"))))


@contextmanager
def _translated(source: str) -> Iterator[None]:
    """What boto3 raises as errors that name the object."""
    from botocore import exceptions

    try:
        yield
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        raise UsageError(
            source, "no credentials were found", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        ) from error
    except exceptions.ClientError as error:
        raise _refused(source, error.response) from error
    except exceptions.EndpointConnectionError as error:
        raise DataError(source, f"cannot be read: {error}", "is --s3-endpoint right?") from error
    except (exceptions.BotoCoreError, exceptions.HTTPClientError, ValueError) as error:  # ValueError: of an endpoint
        raise DataError(source, f"cannot be read: {error}") from error


def _refused(source: str, response: Mapping[str, Any]) -> AcccocoaError:
    """What an answer other than the object means."""
    code = str(response.get("Error", {}).get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    message = response.get("Error", {}).get("Message") or code
    if code == "NoSuchBucket":
        return DataError(source, "there is no such bucket")
    if code in ("NoSuchKey", "404") or status == 404:
        return DataError(source, "there is no such object")
    if status == 412:
        return DataError(source, "was replaced while it was read", "start again")
    if status in (401, 403):
        return DataError(source, f"access is denied ({message})", "do the credentials allow s3:GetObject?")
    return DataError(source, f"cannot be read: {message}")


def find(source: str) -> Object:
    """The object of that name, as it is now.

    Raises
    ------
    UsageError : it is no name of an object, boto3 is not installed, or there are no credentials
    DataError : there is none, or it cannot be read
    """
    bucket, key = _split(source)
    client = _client(source)
    with _translated(source):
        head = client.head_object(Bucket=bucket, Key=key)
        return Object(source, bucket, key, int(head["ContentLength"]), str(head["ETag"]))


def _fetch(client: Any, found: Object, begin: int, end: int) -> bytes:
    """The bytes from begin to end."""
    from botocore import exceptions
    from urllib3.exceptions import HTTPError

    interrupted = (exceptions.HTTPClientError, exceptions.IncompleteReadError, HTTPError, OSError)
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
        try:
            with _translated(found.name):
                answer = client.get_object(
                    Bucket=found.bucket, Key=found.key, Range=f"bytes={begin}-{end - 1}", IfMatch=found.etag
                )
            content = bytes(answer["Body"].read())
            if len(content) == end - begin:
                return content
            failure: Exception = EOFError(f"{len(content)} of {end - begin} bytes arrived")
        except interrupted as error:
            failure = error
    raise DataError(found.name, f"cannot be read: bytes {begin} to {end} do not arrive ({failure})") from failure


class _Stream(RawIOBase):
    """The bytes of an object in order, fetched ahead of the reader."""

    def __init__(self, found: Object) -> None:
        self._found = found
        self._client = _client(found.name)
        self._pool = ThreadPoolExecutor(REQUESTS, thread_name_prefix="s3")
        self._coming: deque[Future[bytes]] = deque()
        self._asked = 0
        self._piece = memoryview(b"")
        self._ask()

    def _ask(self) -> None:
        while len(self._coming) < REQUESTS and self._asked < self._found.size:
            begin, end = self._asked, min(self._asked + RANGE_BYTES, self._found.size)
            self._coming.append(self._pool.submit(_fetch, self._client, self._found, begin, end))
            self._asked = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """See RawIOBase. Raises DataError."""
        if not self._piece:
            if not self._coming:
                return 0
            self._piece = memoryview(self._coming.popleft().result())
            self._ask()
        size = min(len(buffer), len(self._piece))
        buffer[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        return size

    def close(self) -> None:
        # the requests under way end by themselves
        self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()


def open_stream(source: str) -> RawIOBase:
    """The bytes of an object. Raises as `find` does; while it is read, DataError."""
    return _Stream(find(source))


def download(found: Object, out: BinaryIO) -> None:
    """Write an object to a file; as many ranges at the same time as there are requests. Raises DataError, OSError."""
    client = _client(found.name)

    def copy(begin: int) -> None:
        content = memoryview(_fetch(client, found, begin, min(begin + RANGE_BYTES, found.size)))
        while content:
            written = os.pwrite(out.fileno(), content, begin)
            content, begin = content[written:], begin + written

    with ThreadPoolExecutor(REQUESTS, thread_name_prefix="s3") as pool:
        pieces = [pool.submit(copy, begin) for begin in range(0, found.size, RANGE_BYTES)]
        try:
            for piece in pieces:
                piece.result()
        finally:
            pool.shutdown(cancel_futures=True)


def read(source: str, size: int | None = None) -> bytes:
    """The content of a small object, or its first bytes. Raises as `find` and `download` do."""
    found = find(source)
    end = found.size if size is None else min(size, found.size)
    return _fetch(_client(source), found, 0, end) if end else b""
