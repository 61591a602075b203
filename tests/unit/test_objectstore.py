"""s3:// against a real server: what is there is read, and what is wrong is said."""

import http.server
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pytest
from moto.server import ThreadedMotoServer

from acccocoa import libsvm, loading, manifest, objectstore, shardfile, sharding
from acccocoa.cache import Places
from acccocoa.errors import AcccocoaError, DataError, UsageError
from acccocoa.shardplan import Plan

TEXT = b"+1 1:0.5 3:-2\n-1.0 2:1e-3\n+1\n-1 1:1 2:1 9:1e30\n"

Put = Callable[[str, bytes], None]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """URL of a server of objects."""
    started = ThreadedMotoServer("127.0.0.1", 0)
    started.start()
    host, port = started.get_host_and_port()
    yield f"http://{host}:{port}"
    started.stop()


@pytest.fixture(autouse=True)
def _environment(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    settings = {
        "AWS_ENDPOINT_URL_S3": server,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(objectstore, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def put() -> Iterator[Put]:
    """Stores an object in the bucket `data`."""
    client = objectstore._client("s3://data/x")
    client.create_bucket(Bucket="data")
    kept = set()

    def store(key: str, content: bytes) -> None:
        client.put_object(Bucket="data", Key=key, Body=content)
        kept.add(key)

    yield store
    for key in kept:
        client.delete_object(Bucket="data", Key=key)
    client.delete_bucket(Bucket="data")


def content_of(source: str) -> bytes:
    with objectstore.open_stream(source) as stream:
        return stream.readall() or b""


def error_of(source: str) -> AcccocoaError:
    with pytest.raises(AcccocoaError) as caught:
        content_of(source)
    assert caught.value.offender == source
    return caught.value


# -------------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 54321])
def test_whole_content_in_order(size: int, put: Put, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(objectstore, "RANGE_BYTES", 1000)
    content = np.random.default_rng(0).bytes(size)
    put("a/b c#d?.bin", content)
    source = "s3://data/a/b c#d?.bin"
    assert content_of(source) == content
    assert objectstore.read(source) == content
    assert objectstore.read(source, 10) == content[:10]
    with (tmp_path / "copy").open("w+b") as file:
        objectstore.download(objectstore.find(source), cast(BinaryIO, file))
        assert (tmp_path / "copy").read_bytes() == content


def test_ranges_are_fetched_ahead_and_no_further(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objectstore, "RANGE_BYTES", 10)
    put("x", bytes(1000))
    asked: list[int] = []
    real = objectstore._fetch

    def fetch(client: Any, found: objectstore.Object, begin: int, end: int) -> bytes:
        asked.append(begin)
        return real(client, found, begin, end)

    monkeypatch.setattr(objectstore, "_fetch", fetch)
    with objectstore.open_stream("s3://data/x") as stream:
        assert stream.read(5) == bytes(5)
        assert max(asked, default=0) <= 10 * objectstore.REQUESTS
        assert len(stream.readall() or b"") == 995
    assert sorted(asked) == list(range(0, 1000, 10))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_text(suffix: str, put: Put) -> None:
    import gzip

    put(f"text{suffix}", gzip.compress(TEXT) if suffix else TEXT)
    source = f"s3://data/text{suffix}"
    expected = libsvm.parse(TEXT)
    for found in (
        libsvm.read([source]),
        loading.load([source], zero_based=False, dtype=np.float32, threads=2).examples,
    ):
        assert shardfile.content_hash(found) == shardfile.content_hash(expected)
    put("bad", TEXT + b"1 1:x\n")
    with pytest.raises(DataError, match="s3://data/bad:5:5: the value"):
        libsvm.read(["s3://data/bad"])


@pytest.mark.parametrize("form", ["binary", "libsvm"])
def test_shards(form: Any, put: Put, tmp_path: Path) -> None:
    done = sharding.cut([libsvm.parse(TEXT)], tmp_path, Plan(2, format=form), [])
    for path in tmp_path.iterdir():
        put(f"cut/{path.name}", path.read_bytes())
    assert loading.manifest_at(f"s3://data/cut/{manifest.NAME}") == done
    for number, entry in enumerate(done.shards):
        found = loading.load([f"s3://data/cut/{entry.file}"], zero_based=False, dtype=np.float32, threads=1)
        assert (found.content_hash, found.part) == (entry.hash, done.part(number))
        assert shardfile.content_hash(found.examples) == entry.hash
    with pytest.raises(DataError, match="there is no such object"):
        loading.manifest_at("s3://data/other/manifest.json")


def test_cache(put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acccocoa.cache.LEAST_BYTES", 1)
    put("text", TEXT)
    calls: list[object] = []
    real = libsvm.read

    def counting(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        return real(*arguments, **options)  # type: ignore[arg-type]  # as they come

    monkeypatch.setattr(libsvm, "read", counting)

    def load(places: Places) -> str:
        return loading.load(
            ["s3://data/text"], zero_based=False, dtype=np.float32, threads=1, places=places
        ).content_hash

    places = Places(directory=str(tmp_path / "cache"))
    assert load(places) == load(places) == shardfile.content_hash(libsvm.parse(TEXT))
    assert len(calls) == 1
    other = TEXT.replace(b"0.5", b"0.7")
    put("text", other)
    assert load(places) == load(places) == shardfile.content_hash(libsvm.parse(other))
    assert len(calls) == 2
    fallback = Places(fallback=str(tmp_path / "state"))
    assert load(fallback) == load(fallback)
    assert len(calls) == 3
    load(Places())
    load(Places())  # there is nothing beside an object
    assert len(calls) == 5


# -------------------------------------------------------------------------------------------------------------- refusal


@pytest.mark.parametrize("source", ["s3://", "s3://data", "s3://data/", "s3:///key"])
def test_no_name_of_an_object(source: str) -> None:
    error = error_of(source)
    assert isinstance(error, UsageError)
    assert str(error) == f"{source}: does not name an object; write s3://BUCKET/KEY"


def test_no_such_object(put: Put) -> None:
    put("x", b"x")
    for source in ("s3://data/y", "s3://other/x"):
        error = error_of(source)
        assert isinstance(error, DataError)
        assert str(error) == f"{source}: there is no such object"  # a HEAD does not say whether there is the bucket


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error = error_of("s3://data/x")
    assert isinstance(error, UsageError)
    assert error.requirement == "no credentials were found"
    assert "AWS_ACCESS_KEY_ID" in error.remedy
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert "cannot be read: The config profile (nobody) could not be found" in str(error_of("s3://data/x"))


def test_boto3_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    error = error_of("s3://data/x")
    assert isinstance(error, UsageError)
    assert str(error) == "s3://data/x: the package boto3 is needed to read s3://; install acccocoa[s3]"


def test_nobody_at_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{bound.getsockname()[1]}")
        monkeypatch.setattr(objectstore, "ATTEMPTS", 1)
        error = error_of("s3://data/x")
    assert isinstance(error, DataError)
    assert error.remedy == "is --s3-endpoint right?"


@pytest.mark.parametrize("url", ["nonsense", "http://", "ftp://x"])
def test_no_endpoint(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
    monkeypatch.setattr(objectstore, "ATTEMPTS", 1)
    assert isinstance(error_of("s3://data/x"), DataError)


def test_replaced_while_it_is_read(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objectstore, "RANGE_BYTES", 4)
    monkeypatch.setattr(objectstore, "REQUESTS", 1)
    put("x", b"1 1:1\n1 1:1\n")
    with objectstore.open_stream("s3://data/x") as stream:
        assert stream.read(4) == b"1 1:"
        put("x", b"2 2:2\n2 2:2\n")
        with pytest.raises(DataError, match="s3://data/x: was replaced while it was read; start again"):
            stream.readall()


# -------------------------------------------------------------------------------------------------------- interruptions


class _Unreliable(http.server.BaseHTTPRequestHandler):
    """Serves one object, as `answers` say: True, status codes, or fewer bytes than announced."""

    content = b"".join(b"%d 1:1\n" % i for i in range(100))
    answers: list[Any]

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.send_header("ETag", '"1"')
        self.end_headers()

    def do_GET(self) -> None:
        answer = self.answers.pop(0) if self.answers else True
        if answer is not True and answer != "short":
            self.send_response(answer)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        begin, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        piece = self.content[begin : end + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(piece)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(piece[: len(piece) // 2] if answer == "short" else piece)
        if answer == "short":
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def unreliable(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Unreliable]]:
    """A server that answers as it is told."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Unreliable) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_address[1]}")
        yield _Unreliable
        server.shutdown()
        thread.join()


def test_an_answer_that_breaks_off_is_asked_for_again(unreliable: type[_Unreliable]) -> None:
    unreliable.answers = ["short", "short", True]
    assert content_of("s3://data/x") == unreliable.content


def test_answers_that_never_come_to_their_end(unreliable: type[_Unreliable]) -> None:
    unreliable.answers = ["short"] * objectstore.ATTEMPTS
    error = error_of("s3://data/x")
    assert isinstance(error, DataError)
    assert f"bytes 0 to {len(unreliable.content)} do not arrive" in error.requirement


def test_access_denied(unreliable: type[_Unreliable]) -> None:
    unreliable.answers = [403]
    error = error_of("s3://data/x")
    assert isinstance(error, DataError)
    assert "access is denied" in error.requirement
    assert error.remedy == "do the credentials allow s3:GetObject?"


def test_requests_that_fail_are_boto3s_to_retry(unreliable: type[_Unreliable], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    unreliable.answers = [500, 503, True]
    assert content_of("s3://data/x") == unreliable.content
    unreliable.answers = [500] * 50
    assert isinstance(error_of("s3://data/x"), DataError)
