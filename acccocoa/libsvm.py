"""LIBSVM text to sparse rows.

One example a line, `label index:value index:value ...`, the indices ascending from 1 (or from 0 if the caller says
so). A `#` begins a comment, lines without content are skipped, `qid:N` behind the label is ignored, blanks are spaces
and tabs, a line ends in LF or CR LF, numbers are decimal. Anything else is a fault, reported as file:line:column.

The text passes through in blocks of whole lines. `acccocoa.libsvm_kernels` parses a block at compiled speed, several
blocks at once in threads; a line it does not understand comes back to `_line`, which can read it or explains the fault.
Blocks join the result in the order of the text: neither the result nor the faults depend on the number of threads.
"""

import bz2
import itertools
import lzma
import mmap
import re
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from io import BytesIO, FileIO, RawIOBase
from pathlib import PurePath
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from acccocoa import libsvm_kernels, objectstore
from acccocoa.errors import AcccocoaError, DataError, ParseError, UsageError
from acccocoa.examples import LABEL_SPELLINGS_KEPT, Examples

BLOCK_BYTES: Final = 1 << 20
"""Text parsed at a time by one thread: long enough to forget the cost of starting, short enough for the cache."""

LINE_BYTES_MAX: Final = 1 << 30
"""A line is held in memory as a whole; something longer is no LIBSVM text."""

INDEX_MAX: Final = 2**31 - 1
"""The largest index, counted from 1."""

Dtype = type[np.float32] | type[np.float64]


def read(
    sources: Sequence[str],
    *,
    zero_based: bool = False,
    dtype: Dtype = np.float32,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
) -> Examples:
    """Read examples from files, one after the other.

    Parameters
    ----------
    sources : see `open_source`
    zero_based : whether the indices in the text begin at 0
    dtype : of the values; each number is rounded to the nearest float64 first
    threads : number of threads that parse
    block_bytes : how much text a thread parses at a time

    Raises
    ------
    ParseError : at the first fault in the text
    DataError : if a source cannot be read, or there is no example at all
    UsageError : if an argument is out of its range, or a source needs a package that is not installed
    """
    return scan(sources, _raise, zero_based=zero_based, dtype=dtype, threads=threads, block_bytes=block_bytes)


def parse(
    data: bytes,
    name: str = "<bytes>",
    *,
    zero_based: bool = False,
    dtype: Dtype = np.float32,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
) -> Examples:
    """Read examples from text in memory, called `name` in errors; the rest is as in `read`."""
    reader = _Reader(_raise, zero_based, dtype, threads, min(block_bytes, len(data) + 1))
    reader.add(BytesIO(data), name)
    return reader.examples()


def scan(
    sources: Sequence[str],
    on_fault: Callable[[ParseError], None],
    *,
    zero_based: bool = False,
    dtype: Dtype = np.float32,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
) -> Examples:
    """Read examples as `read` does, leaving out the faulty lines.

    Parameters
    ----------
    on_fault : is called with the first fault of each faulty line, in the order of the text; may raise to end the scan

    Returns
    -------
    The examples of the other lines; none, perhaps, if there were faults.

    Raises
    ------
    DataError : if a source cannot be read, or has a line longer than LINE_BYTES_MAX (then a ParseError),
        or there is neither example nor fault
    UsageError : as in `read`
    """
    if not sources:
        raise UsageError("DATA", "at least one source is needed")
    reader = _Reader(on_fault, zero_based, dtype, threads, block_bytes)
    for source in sources:
        with open_source(source) as stream:
            reader.add(stream, _name(source))
    return reader.examples()


def stream(
    sources: Sequence[str],
    on_fault: Callable[[ParseError], None],
    *,
    zero_based: bool = False,
    dtype: Dtype = np.float32,
    threads: int = 1,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[Examples]:
    """The examples that `scan` would return, piece by piece in their order, in memory that does not grow with them.

    The arrays of a piece are used again for the next one. Its spellings are those of all labels met so far.

    Raises
    ------
    as `scan` does
    """
    if not sources:
        raise UsageError("DATA", "at least one source is needed")
    reader = _Reader(on_fault, zero_based, dtype, threads, block_bytes)
    for source in sources:
        with open_source(source) as text:
            yield from reader.pieces(text, _name(source))
    reader.check_not_empty()


def _raise(fault: ParseError) -> None:
    raise fault


# ------------------------------------------------------------------------------------------------------------- sources


def open_source(source: str) -> RawIOBase:
    """Open a source of text for reading.

    Parameters
    ----------
    source : the path of a file, '-' for standard input, or s3://BUCKET/KEY. What begins as gzip, bzip2, xz or zstd does
        is decompressed, whatever its name; a name that ends in .gz, .bz2, .xz or .zst promises it.

    Raises
    ------
    DataError : here if the file cannot be opened, while reading if it cannot be read or decompressed
    UsageError : for s3:// as objectstore.find does; while reading, for zstd if the package zstandard is not installed
    """
    name = _name(source)
    try:
        stored = _open_stored(source)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _unreadable(name, error) from error
    return _Source(stored, name)


def _name(source: str) -> str:
    """What a source is called in messages."""
    return "<stdin>" if source == "-" else source


def _open_stored(source: str) -> RawIOBase:
    """The bytes of a source as they are stored. Raises OSError, or what objectstore.open_stream does."""
    if source == "-":
        return FileIO(sys.stdin.fileno(), closefd=False)
    if objectstore.is_s3(source):
        return objectstore.open_stream(source)
    return FileIO(source)


def _unreadable(name: str, error: Exception) -> DataError:
    return DataError(name, f"cannot be read: {getattr(error, 'strerror', None) or error}")


class _Decompressor(Protocol):
    """Takes one compressed member; a file may hold several."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


_MAGIC: Final = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
"""What compressed content begins with, which no LIBSVM text does."""

_MAGIC_BYTES: Final = max(map(len, _MAGIC))


def _compression(name: str, head: bytes) -> tuple[Callable[[], _Decompressor] | None, type[Exception]]:
    """How to decompress a source of this name and beginning, None for not at all, and what a decompressor raises."""
    by_content = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), None)
    # a name that promises compression stands for it: content that is none is damaged
    match by_content or PurePath(name).suffix.lower():
        case ".gz":
            return partial(zlib.decompressobj, wbits=16 + zlib.MAX_WBITS), zlib.error
        case ".bz2":
            return bz2.BZ2Decompressor, OSError
        case ".xz":
            return lzma.LZMADecompressor, lzma.LZMAError
        case ".zst":
            try:
                import zstandard
            except ImportError as error:
                requirement = "is compressed by zstd, which takes the package zstandard to read"
                raise UsageError(name, requirement, "install acccocoa[zstd]") from error
            return zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError
    return None, OSError


_PIECE_BYTES: Final = 1 << 14
"""Compressed bytes taken at a time: a decompressor returns all they stand for, and that should remain little memory."""


def _head(stored: RawIOBase) -> bytes:
    """The first _MAGIC_BYTES, or all there is."""
    head = b""
    while len(head) < _MAGIC_BYTES and (piece := stored.read(_MAGIC_BYTES - len(head))):
        head += piece
    return head


def _decompressed(head: bytes, stored: RawIOBase, new_member: Callable[[], _Decompressor]) -> Iterator[bytes]:
    """The content of a compressed source, piece by piece. Raises what the decompressor does, or EOFError."""
    member: _Decompressor | None = None
    members = 0
    for piece in itertools.chain([head], iter(lambda: stored.read(_PIECE_BYTES), b"")):
        while piece:
            if member is None:
                if members:
                    piece = piece.lstrip(b"\0")  # padding between members
                    if not piece:
                        break
                member = new_member()
                members += 1
            yield member.decompress(piece)
            piece = b""
            if member.eof:
                piece, member = member.unused_data, None
    if member is not None:
        raise EOFError("the compressed data end too early")


class _Source(RawIOBase):
    """A stored stream of bytes, decompressed if need be, whose failures are DataErrors."""

    def __init__(self, stored: RawIOBase, name: str) -> None:
        self._stored = stored
        self._name = name
        self._begun = False
        self._failures: tuple[type[Exception], ...] = (OSError, EOFError)
        self._pieces: Iterator[bytes] | None = None
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stored.close()
        super().close()

    def _begin(self) -> None:
        """Find out from the first bytes what the others are."""
        head = _head(self._stored)
        new_member, failure = _compression(self._name, head)
        if new_member is None:
            self._piece = memoryview(head)
        else:
            self._failures += (failure,)
            self._pieces = _decompressed(head, self._stored, new_member)
        self._begun = True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from its beginning; returns the number of bytes, 0 only at the end.

        Raises
        ------
        DataError, UsageError : see open_source
        """
        try:
            if not self._begun:
                self._begin()
            while not self._piece:
                if self._pieces is None:
                    return self._stored.readinto(buffer) or 0
                piece = next(self._pieces, None)
                if piece is None:
                    return 0
                self._piece = memoryview(piece)
        except self._failures as error:
            raise _unreadable(self._name, error) from error
        size = min(len(buffer), len(self._piece))
        buffer[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        return size


# ---------------------------------------------------------------------------------------------------------------- lines


@dataclass(frozen=True, slots=True)
class _Rules:
    """What indices and values may be: indices from first_index to last_index, magnitudes of values below limit."""

    first_index: int
    last_index: int
    limit: float
    dtype: Dtype

    @classmethod
    def of(cls, zero_based: bool, dtype: Dtype) -> "_Rules":
        first = 0 if zero_based else 1
        # from half a unit above its largest number on, float32 rounds to infinity
        limit = float("inf") if dtype is np.float64 else 2.0**128 - 2.0**103
        return cls(first, INDEX_MAX - 1 + first, limit, dtype)


class _Fault(Exception):
    """A fault at a column, from 1, of a line; requirement and remedy as in ParseError."""

    def __init__(self, column: int, requirement: str, remedy: str = "") -> None:
        super().__init__(column, requirement, remedy)
        self.column = column
        self.requirement = requirement
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class _Row:
    label: float
    spelling: str
    indices: list[int]
    """0-based."""
    values: list[float]


_TOKEN: Final = re.compile(rb"[^ \t]+")
_STRAY: Final = re.compile(rb"[\0\r]")
_DECIMAL: Final = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_NOT_FINITE: Final = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_QUERY: Final = re.compile(rb"qid:[+-]?\d+")
_REMEDY_BY_MAGIC: Final = {
    b"\xef\xbb\xbf": "this looks like a byte order mark: save the text without it",
    b"\xff\xfe": "this looks like UTF-16: save the text as UTF-8",
}


def _line(line: bytes, rules: _Rules) -> _Row:
    """Read one line that has content, given without its line feed. Raises _Fault, for the first fault in it.

    This says what the format is; `libsvm_kernels.parse_lines` is the fast way to the same result.
    """
    content = line.removesuffix(b"\r").partition(b"#")[0]
    tokens = [(match.start() + 1, match[0]) for match in _TOKEN.finditer(content)]
    column, token = tokens.pop(0)
    _check_bytes(column, token)
    row = _Row(_label(column, token), token.decode("ascii"), [], [])
    if tokens and _QUERY.fullmatch(tokens[0][1]):
        tokens.pop(0)
    previous = -1
    for column, token in tokens:
        _check_bytes(column, token)
        name, colon, number = token.partition(b":")
        if not colon:
            raise _Fault(column, f"{_quoted(token)} has no colon, index:value is expected")
        previous = _index(column, name, previous, rules)
        row.indices.append(previous)
        row.values.append(_value(column + len(name), number, rules))
    return row


def _check_bytes(column: int, token: bytes) -> None:
    """Raise _Fault if a byte in the token shows that this is no text, or that its lines end in an unusual way."""
    stray = _STRAY.search(token)
    if stray is None:
        return
    column += stray.start()
    if stray[0] == b"\r":
        raise _Fault(column, "a carriage return inside a line", "end lines in LF or CR LF")
    raise _Fault(column, "a NUL byte, text is expected", _remedy_by_magic(token))


def _remedy_by_magic(token: bytes) -> str:
    return next((remedy for magic, remedy in _REMEDY_BY_MAGIC.items() if token.startswith(magic)), "")


def _label(column: int, token: bytes) -> float:
    if _DECIMAL.fullmatch(token):
        label = float(token)
        if np.isfinite(label):
            return label
        raise _Fault(column, f"the label {_quoted(token)} is too large for float64")
    if _NOT_FINITE.fullmatch(token):
        raise _Fault(column, f"the label {_quoted(token)} is not finite")
    if b"," in token:
        raise _Fault(
            column, f"the label {_quoted(token)} is a list", "several labels an example are not supported: keep one"
        )
    if b":" in token:
        raise _Fault(column, f"a label is expected, found {_quoted(token)}", "let each line begin with its label")
    raise _Fault(column, f"the label {_quoted(token)} is not a decimal number", _remedy_by_magic(token))


def _index(column: int, text: bytes, previous: int, rules: _Rules) -> int:
    """The 0-based feature number; `previous` is that of the entry before, -1 for the first."""
    if text == b"qid":
        raise _Fault(column, "qid must be followed by an integer, and stand right behind the label")
    if not text.isdigit():
        problem = f"the index {_quoted(text)} is not a whole number" if text else "an index is missing before the colon"
        raise _Fault(column, problem)
    # long enough a text is too large whatever it says: int() refuses thousands of digits
    digits = text.lstrip(b"0")
    index = int(digits or b"0") if len(digits) <= len(str(INDEX_MAX)) else INDEX_MAX + 1
    if index > rules.last_index:
        raise _Fault(column, f"the index {_quoted(text)} is beyond {rules.last_index}")
    if index < rules.first_index:
        raise _Fault(column, "the index 0, indices begin at 1", "if they begin at 0 in this data, say --zero-based")
    feature = index - rules.first_index
    if feature == previous:
        raise _Fault(column, f"the index {index} is there twice", "keep one entry for each feature")
    if feature < previous:
        before = previous + rules.first_index
        raise _Fault(column, f"the index {index} follows {before}, they must ascend", "sort the entries of each line")
    return feature


def _value(colon: int, text: bytes, rules: _Rules) -> float:
    """The value behind the colon that is at this column."""
    if not text:
        raise _Fault(colon, "a value is missing behind the colon")
    if _DECIMAL.fullmatch(text):
        value = float(text)
        if abs(value) < rules.limit:
            return value
        wider = "--dtype float64 holds it" if np.isfinite(value) else ""
        raise _Fault(colon + 1, f"the value {_quoted(text)} is too large for {np.dtype(rules.dtype).name}", wider)
    if _NOT_FINITE.fullmatch(text):
        raise _Fault(colon + 1, f"the value {_quoted(text)} is not finite")
    raise _Fault(colon + 1, f"the value {_quoted(text)} is not a decimal number")


def _quoted(token: bytes) -> str:
    """A piece of the text for a message: printable, and not too long."""
    text = repr(token[:40])[1:]
    return text if len(token) <= 40 else f"{text}..."


# --------------------------------------------------------------------------------------------------------------- blocks


class _Block:
    """A piece of text made of whole lines, and the arrays that receive what is in it; used over and over.

    Attributes
    ----------
    text : bytes, room for `capacity` of them
    row_ends, labels, indices, values : as in `libsvm_kernels.parse_lines`
    rows, entries, lines : how much of them is filled, and the number of lines that were parsed
    faults : number of the line in this block, from 1, and what is wrong there; ascending
    spellings : the distinct labels in the order in which they are first met, as value and text
    too_many_labels : whether there are more than LABEL_SPELLINGS_KEPT, and `spellings` is not complete
    """

    def __init__(self, capacity: int, rules: _Rules) -> None:
        self._rules = rules
        self._slots = np.empty(libsvm_kernels.LABEL_SLOTS, np.uint16)
        self._label_values = np.empty(LABEL_SPELLINGS_KEPT)
        self._label_places = np.empty((LABEL_SPELLINGS_KEPT, 2), np.uint64)
        self._progress = np.empty(5, np.uint64)
        self.faults: list[tuple[int, _Fault]] = []
        self.spellings: list[tuple[float, str]] = []
        self.too_many_labels = False
        self.rows = self.entries = self.lines = 0
        self.text = bytearray()
        self.capacity = 0
        self.reserve(capacity)

    def reserve(self, capacity: int) -> None:
        """Make room for at least this much text, keeping what there is of it."""
        if capacity <= self.capacity:
            return
        self.capacity = capacity
        text = bytearray(capacity + 1)  # 1 for a last line feed that is missing
        text[: len(self.text)] = self.text
        self.text = text
        self._text: NDArray[np.uint8] = np.frombuffer(text, np.uint8)
        self.row_ends = np.empty(capacity // 2 + 1, np.int64)
        self.labels = np.empty(capacity // 2 + 1)
        self.indices = np.empty(capacity // 4 + 1, np.int32)
        self.values: NDArray[Any] = np.empty(capacity // 4 + 1, self._rules.dtype)

    def parse(self, size: int, tell_labels: bool) -> None:
        """Parse the first `size` bytes of the text, which end in a line feed; list the labels only on demand."""
        rules = self._rules
        room = LABEL_SPELLINGS_KEPT if tell_labels else 0
        self._slots[:] = 0
        self._progress[:] = 0
        self.faults = []
        spelled: list[tuple[int, float, str]] = []
        while True:
            libsvm_kernels.parse_lines(
                self._text, np.uint64(size), np.uint64(rules.first_index), np.uint64(rules.last_index), rules.limit,
                _powers_of_five(), self.row_ends, self.labels, self.indices, self.values,
                self._slots, self._label_values[:room], self._label_places, self._progress,
            )  # fmt: skip
            position, rows, entries, lines, labels = map(int, self._progress)
            if position == size:
                break
            end = self.text.index(b"\n", position)
            lines += 1
            try:
                row = _line(bytes(self.text[position:end]), rules)
            except _Fault as fault:
                self.faults.append((lines, fault))
            else:
                spelled.append((position, row.label, row.spelling))
                self.labels[rows] = row.label
                self.indices[entries : entries + len(row.indices)] = row.indices
                self.values[entries : entries + len(row.values)] = row.values
                entries += len(row.indices)
                self.row_ends[rows] = entries
                rows += 1
            self._progress[:4] = end + 1, rows, entries, lines
        self.rows, self.entries, self.lines = rows, entries, lines
        self.too_many_labels = labels > room
        values, places = self._label_values[: min(labels, room)], self._label_places[: min(labels, room)]
        for value, (begin, end) in zip(values.tolist(), places.tolist(), strict=True):
            spelled.append((begin, value, self.text[begin:end].decode("ascii")))
        self.spellings = [(value, spelling) for _, value, spelling in sorted(spelled)]


class _LineTooLong(Exception):
    """A line is longer than LINE_BYTES_MAX."""


class _Lines:
    """Cuts a stream of text into blocks."""

    def __init__(self, stream: RawIOBase | BytesIO) -> None:
        self._stream = stream
        self._begun = b""
        self._ended = False

    def fill(self, block: _Block) -> int:
        """Put text into the block: as many lines as it has room for, at least one; for a longer one room is made.

        Returns
        -------
        Number of bytes put there, the last of which is a line feed; 0 at the end of the text.

        Raises
        ------
        _LineTooLong
        DataError : if the stream cannot be read
        """
        size = len(self._begun)
        block.reserve(size)
        block.text[:size] = self._begun
        self._begun = b""
        searched = size
        while not self._ended:
            with memoryview(block.text) as text:
                while size < block.capacity and not self._ended:
                    got = self._stream.readinto(text[size : block.capacity]) or 0
                    size += got
                    self._ended = got == 0
            if self._ended:
                break
            if lines := block.text.rfind(b"\n", searched, size) + 1:
                self._begun = bytes(block.text[lines:size])
                return lines
            if size >= LINE_BYTES_MAX:
                raise _LineTooLong
            searched = size
            block.reserve(2 * block.capacity)
        if size and block.text[size - 1] != ord("\n"):
            block.text[size] = ord("\n")
            size += 1
        return size


@cache
def _powers_of_five() -> NDArray[np.uint64]:
    return libsvm_kernels.powers_of_five()


# --------------------------------------------------------------------------------------------------------------- result


_CHUNK_BYTES: Final = 1 << 22


def _chunk(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Memory that goes back to the system when it is freed, which what malloc() gave need not do."""
    memory = mmap.mmap(-1, _CHUNK_BYTES, access=mmap.ACCESS_COPY)
    if sys.platform == "linux":
        with suppress(OSError):  # without large pages it only takes longer
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype)


class _Growing:
    """A one-dimensional array that grows at its end.

    It grows in chunks, and each is freed as soon as it is copied to its place in the whole: never is there more memory
    in use than the array and a chunk.
    """

    def __init__(self, dtype: type[np.int32 | np.int64 | np.float32 | np.float64]) -> None:
        self._full: list[NDArray[Any]] = []
        self._last: NDArray[Any] = np.empty(_CHUNK_BYTES >> 8, dtype)  # small data should not cost a system call
        self._used = 0

    def extend(self, more: NDArray[Any]) -> None:
        while len(more):
            room = len(self._last) - self._used
            if not room:
                self._full.append(self._last)
                self._last = _chunk(self._last.dtype)
                self._used, room = 0, len(self._last)
            piece, more = more[:room], more[room:]
            self._last[self._used : self._used + len(piece)] = piece
            self._used += len(piece)

    def array(self) -> NDArray[Any]:
        """The array, to which nothing can be added any more."""
        whole = np.empty(sum(map(len, self._full)) + self._used, self._last.dtype)
        chunks = deque([*self._full, self._last[: self._used]])
        self._full.clear()
        del self._last
        place = 0
        while chunks:
            chunk = chunks.popleft()
            whole[place : place + len(chunk)] = chunk
            place += len(chunk)
        return whole


class _Reader:
    """Collects the examples of several sources; for the parameters see `scan`."""

    def __init__(
        self, on_fault: Callable[[ParseError], None], zero_based: bool, dtype: Dtype, threads: int, block_bytes: int
    ) -> None:
        for name, number in (("threads", threads), ("block_bytes", block_bytes)):
            if number < 1:
                raise UsageError(f"{name}={number}", "it must be at least 1")
        if dtype not in (np.float32, np.float64):
            raise UsageError(f"dtype={dtype}", "it must be numpy.float32 or numpy.float64")
        self._on_fault = on_fault
        self._threads = threads
        rules = _Rules.of(zero_based, dtype)
        # one more than can be parsed at a time, to be filled meanwhile
        self._idle = [_Block(block_bytes, rules) for _ in range(threads + 1 if threads > 1 else 1)]
        self._row_ends = _Growing(np.int64)
        self._row_ends.extend(np.zeros(1, np.int64))
        self._indices = _Growing(np.int32)
        self._values = _Growing(dtype)
        self._labels = _Growing(np.float64)
        self._entries = 0
        self._spellings: dict[float, str] | None = {}
        self._names: list[str] = []
        self._rows = 0
        self._faults = 0

    def add(self, stream: RawIOBase | BytesIO, name: str) -> None:
        """Add the examples in a stream of text."""
        for block in self._noted(stream, name):
            self._row_ends.extend(block.row_ends[: block.rows] + self._entries)
            self._indices.extend(block.indices[: block.entries])
            self._values.extend(block.values[: block.entries])
            self._labels.extend(block.labels[: block.rows])
            self._entries += block.entries

    def pieces(self, stream: RawIOBase, name: str) -> Iterator[Examples]:
        """The examples in a stream of text, block by block; see `stream`."""
        for block in self._noted(stream, name):
            self._rows += block.rows
            indptr = np.concatenate((np.zeros(1, np.int64), block.row_ends[: block.rows]))
            indices, values = block.indices[: block.entries], block.values[: block.entries]
            yield Examples(indptr, indices, values, block.labels[: block.rows], self._spellings or {})

    def check_not_empty(self) -> None:
        """Raise DataError if there was neither example nor fault in what `pieces` passed on."""
        if not self._rows and not self._faults:
            raise self._empty()

    def _empty(self) -> DataError:
        return DataError(", ".join(self._names), "there is no example", "a line `label index:value ...` is one")

    def _noted(self, stream: RawIOBase | BytesIO, name: str) -> Iterator[_Block]:
        """The text block by block, its faults and labels noted."""
        self._names.append(name)
        line = 0
        try:
            for block in self._parsed(stream):
                self._note(block, name, line)
                line += block.lines
                yield block
        except _LineTooLong:
            raise ParseError(name, line + 1, 1, f"the line is longer than {LINE_BYTES_MAX} bytes") from None

    def examples(self) -> Examples:
        """All examples added. Raises DataError if there was neither example nor fault."""
        labels: NDArray[np.float64] = self._labels.array()
        if not len(labels) and not self._faults:
            raise self._empty()
        indptr, indices, values = (part.array() for part in (self._row_ends, self._indices, self._values))
        return Examples(indptr, indices, values, labels, self._spellings or {})

    def _parsed(self, stream: RawIOBase | BytesIO) -> Iterator[_Block]:
        """The text block by block, in order and parsed; a block is used again when the next one is asked for."""
        lines = _Lines(stream)
        if self._threads == 1:
            (block,) = self._idle
            while size := lines.fill(block):
                block.parse(size, self._spellings is not None)
                yield block
            return
        with ThreadPoolExecutor(self._threads) as pool:
            running: deque[tuple[_Block, Future[None]]] = deque()
            failure: AcccocoaError | _LineTooLong | None = None
            ended = False
            while True:
                while self._idle and not ended:
                    try:
                        size = lines.fill(self._idle[-1])
                    except (AcccocoaError, _LineTooLong) as error:  # to be reported after faults in the text before
                        failure, size = error, 0
                    ended = size == 0
                    if size:
                        block = self._idle.pop()
                        running.append((block, pool.submit(block.parse, size, self._spellings is not None)))
                if not running:
                    break
                block, future = running.popleft()
                future.result()
                yield block
                self._idle.append(block)
            if failure:
                raise failure

    def _note(self, block: _Block, name: str, line: int) -> None:
        """Note faults and labels of a block before which there are `line` lines."""
        for number, fault in block.faults:
            self._faults += 1
            self._on_fault(ParseError(name, line + number, fault.column, fault.requirement, fault.remedy))
        if self._spellings is not None:
            for value, spelling in block.spellings:
                self._spellings.setdefault(value, spelling)
            if block.too_many_labels or len(self._spellings) > LABEL_SPELLINGS_KEPT:
                self._spellings = None
