"""Arrays on the wire: what is encoded comes back bit for bit, and nothing else is accepted."""

from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from acccocoa.codec import (
    CHUNK,
    Decoder,
    WireError,
    chunk_bytes,
    dtype_name,
    dtype_to_wire,
    encode,
    float_dtype,
    joined,
    narrowed,
)
from acccocoa.v1 import array_pb2 as pb
from acccocoa.v1 import worker_pb2

GRPC_MESSAGE_CAP = 4 << 20

WIRE_DTYPES = {"<f4": pb.Array.DTYPE_FLOAT32, "<f8": pb.Array.DTYPE_FLOAT64, "<u4": pb.Array.DTYPE_UINT32}
"""What travels, by numpy's name."""

every_dtype = pytest.mark.parametrize("dtype", sorted(WIRE_DTYPES))


def encoded(array: NDArray[Any]) -> tuple[pb.Array, list[bytes]]:
    """Header and further pieces."""
    header = pb.Array()
    return header, list(encode(array, header))


def decode(header: pb.Array, pieces: list[bytes], dtype: str, length: int) -> NDArray[Any]:
    """What a receiver does, over a wire that only carries bytes."""
    decoder = Decoder(pb.Array.FromString(header.SerializeToString()), np.dtype(dtype), length)
    for piece in pieces:
        decoder.feed(pb.Chunk.FromString(pb.Chunk(data=piece).SerializeToString()).data)
    return decoder.array()


def round_trip(array: NDArray[Any]) -> NDArray[Any]:
    header, pieces = encoded(array)
    return decode(header, pieces, array.dtype.newbyteorder("<").str, len(array))


def header_of(data: bytes, **changes: Any) -> pb.Array:
    """A correct header of a float64 array in one piece, with the given fields changed."""
    fields = {
        "dtype": pb.Array.DTYPE_FLOAT64,
        "length": len(data) // 8,
        "xxh3": xxhash.xxh3_64_intdigest(data),
        "head": data,
    }
    return pb.Array(**{**fields, **changes})


@given(npst.arrays(st.sampled_from(["<f4", ">f4", "<f8", ">f8", "<u4", ">u4"]), st.integers(0, 200)))
def test_every_bit_comes_back(array: NDArray[Any]) -> None:
    found = round_trip(array)
    assert found.dtype == array.dtype.newbyteorder("<")
    assert found.tobytes() == array.astype(found.dtype).tobytes()  # bytes: NaNs and zeros of either sign, too


@given(npst.arrays("<f8", st.integers(0, 60)), st.integers(1, 5))
def test_views_with_gaps_are_packed(array: NDArray[np.float64], step: int) -> None:
    assert round_trip(array[::step]).tobytes() == array[::step].tobytes()
    assert round_trip(array[::-step]).tobytes() == array[::-step].tobytes()


@every_dtype
@pytest.mark.parametrize("size", [1, CHUNK])
def test_zeros_do_not_travel(dtype: str, size: int) -> None:
    header, pieces = encoded(np.zeros(size, dtype))
    assert header.zero
    assert (header.head, pieces) == (b"", [])
    found = decode(header, [], dtype, size)
    assert found.dtype == dtype
    assert found.tobytes() == bytes(found.nbytes)


def test_minus_zero_and_a_late_number_do() -> None:
    late = np.zeros(10_000)
    late[-1] = 1.0
    for array in (np.array([0.0, -0.0]), late):
        header, _ = encoded(array)
        assert not header.zero
        assert round_trip(array).tobytes() == array.tobytes()


def test_zeros_that_bring_data_are_refused() -> None:
    with pytest.raises(WireError, match="8 bytes arrived where 0 were missing"):
        Decoder(header_of(bytes(8), zero=True), np.dtype("<f8"), 1)


@every_dtype
def test_empty(dtype: str) -> None:
    header, pieces = encoded(np.empty(0, dtype=dtype))
    assert (header.length, header.head, pieces) == (0, b"", [])
    decoder = Decoder(header, np.dtype(dtype), 0)
    assert decoder.missing == 0
    assert decoder.array().shape == (0,)


@every_dtype
def test_layout_is_little_endian(dtype: str) -> None:
    header, _ = encoded(np.array([1, 2], dtype=dtype))
    expected = {
        "<f4": "0000803f 00000040",
        "<f8": "000000000000f03f 0000000000000040",
        "<u4": "01000000 02000000",
    }[dtype]
    assert header.head == bytes.fromhex(expected)
    assert header.dtype == WIRE_DTYPES[dtype]
    assert header.xxh3 == xxhash.xxh3_64_intdigest(header.head)


@every_dtype
@pytest.mark.parametrize("size", [-1, 0, 1, CHUNK // 8, CHUNK // 4], ids=lambda size: f"{size:+d}")
@pytest.mark.parametrize("chunks", [1, 3])
def test_pieces_are_full_but_for_the_last(dtype: str, size: int, chunks: int) -> None:
    itemsize = np.dtype(dtype).itemsize
    array = np.arange(chunks * CHUNK // itemsize + size, dtype=np.uint32).astype(dtype)
    header, pieces = encoded(array)
    sizes = [len(header.head), *map(len, pieces)]
    full, rest = divmod(array.nbytes, CHUNK)
    assert sizes == [CHUNK] * full + [rest] * (rest > 0)
    messages = (header, *(pb.Chunk(data=piece) for piece in pieces))
    assert all(message.ByteSize() <= CHUNK + 64 < GRPC_MESSAGE_CAP for message in messages)
    np.testing.assert_array_equal(decode(header, pieces, dtype, len(array)), array)


@given(st.integers(1, 1 << 15) | st.sampled_from([(1 << 14) - 4, (1 << 14) - 3, (1 << 21) - 5, CHUNK - 1, CHUNK]))
def test_the_size_of_a_piece_is_that_of_its_message(size: int) -> None:
    message = worker_pb2.SolveRequest()
    message.chunk.data = bytes(size)
    assert chunk_bytes(bytes(size)) == message.ByteSize()
    reply = worker_pb2.SolveReply()
    reply.chunk.data = bytes(size)
    assert chunk_bytes(bytes(size)) == reply.ByteSize()


@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.uint64, np.complex128])
def test_other_dtypes_never_travel(dtype: type) -> None:
    with pytest.raises(KeyError):
        encoded(np.zeros(3, dtype=dtype))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"length": 2}, "2 x float64"),
        ({"length": 4}, "4 x float64"),
        ({"length": 0}, "0 x float64"),
        ({"length": 2**63}, f"{2**63} x float64"),
        ({"dtype": pb.Array.DTYPE_FLOAT32}, "3 x float32"),
        ({"dtype": pb.Array.DTYPE_UNSPECIFIED}, "3 x unknown dtype 0"),
        ({"dtype": 99}, "3 x unknown dtype 99"),
    ],
)
def test_another_announcement_is_refused_before_anything_is_allocated(
    changes: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = header_of(bytes(24), **changes)

    def no_memory(*_: Any, **__: Any) -> Any:
        raise AssertionError("memory was allocated")

    monkeypatch.setattr(np, "empty", no_memory)
    with pytest.raises(WireError, match=f"an array of {found} was announced, 3 x float64 is due"):
        Decoder(header, np.dtype(np.float64), 3)


def test_head_longer_than_the_array_is_refused() -> None:
    with pytest.raises(WireError, match="25 bytes arrived where 24 were missing"):
        Decoder(header_of(bytes(24), head=bytes(25)), np.dtype(np.float64), 3)


def test_too_many_bytes_are_refused_and_change_nothing() -> None:
    data = np.array([1.5, -2.5]).tobytes()
    decoder = Decoder(header_of(data, head=data[:5]), np.dtype(np.float64), 2)
    assert decoder.missing == 11
    with pytest.raises(WireError, match="12 bytes arrived where 11 were missing"):
        decoder.feed(data[5:] + b"!")
    decoder.feed(data[5:])
    assert decoder.array().tolist() == [1.5, -2.5]
    with pytest.raises(WireError, match="1 bytes arrived where 0 were missing"):
        decoder.feed(b"!")


def test_empty_pieces_are_refused_while_something_is_missing() -> None:
    decoder = Decoder(header_of(bytes(16), head=bytes(8)), np.dtype(np.float64), 2)
    with pytest.raises(WireError, match="an empty piece arrived where 8 bytes were missing"):
        decoder.feed(b"")
    with pytest.raises(WireError, match="an empty piece"):
        Decoder(header_of(bytes(16), head=b""), np.dtype(np.float64), 2)


def test_a_missing_piece_is_noticed() -> None:
    decoder = Decoder(header_of(bytes(16), head=bytes(7)), np.dtype(np.float64), 2)
    with pytest.raises(WireError, match="9 bytes are missing"):
        decoder.array()


@given(npst.arrays("<f8", st.integers(1, 20)).filter(np.any), st.data())
def test_a_changed_bit_is_noticed(array: NDArray[np.float64], data: st.DataObject) -> None:
    header, _ = encoded(array)
    damaged = bytearray(header.head)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    header.head = bytes(damaged)
    with pytest.raises(WireError, match="checksum"):
        Decoder(header, np.dtype(np.float64), len(array)).array()


def test_a_wrong_checksum_is_told_with_both() -> None:
    with pytest.raises(WireError, match=r"checksum [0-9a-f]{16} .* differs from 000000000000002a"):
        Decoder(header_of(b"", xxh3=42), np.dtype(np.float64), 0).array()


@every_dtype
def test_names_of_dtypes(dtype: str) -> None:
    assert dtype_to_wire(np.dtype(dtype)) == WIRE_DTYPES[dtype]
    assert dtype_to_wire(np.dtype(dtype).newbyteorder(">")) == WIRE_DTYPES[dtype]
    assert dtype_name(WIRE_DTYPES[dtype]) == np.dtype(dtype).name


@given(npst.arrays("<f8", st.integers(0, 60)))
def test_a_narrowed_vector_arrives_as_it_was_rounded(vector: NDArray[np.float64]) -> None:
    with np.errstate(all="ignore"):
        expected = vector.astype(np.float32)
    sent = narrowed(vector)
    assert sent.tobytes() == expected.tobytes()
    arrived = round_trip(sent).astype(np.float64)
    # rounded once, nothing more is lost on the way
    assert narrowed(arrived).tobytes() == sent.tobytes()


def test_what_is_beyond_float32_becomes_infinite_without_a_warning() -> None:
    assert narrowed(np.array([1e300, -1e300, 1e-300])).tolist() == [np.inf, -np.inf, 0.0]


def test_arrays_that_travel_together() -> None:
    single, double = np.array([0.1], np.float32), np.array([0.1, 0.2])
    assert [float_dtype(narrow).str for narrow in (True, False)] == ["<f4", "<f8"]
    assert joined([single, single], float_dtype(True)).tobytes() == single.tobytes() * 2
    # what is narrow keeps its value among others
    assert joined([single, double], float_dtype(False)).tolist() == [float(single[0]), 0.1, 0.2]
    assert joined([double], float_dtype(False)) is double


def test_name_of_an_unknown_dtype() -> None:
    assert dtype_name(0) == "unknown dtype 0"
    assert dtype_name(99) == "unknown dtype 99"
