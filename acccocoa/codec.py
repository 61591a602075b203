"""numpy arrays <-> protobuf messages: the only place where the two meet.

An array travels as an `Array` message with its first piece, followed by `Chunk` messages of at most CHUNK bytes, so
that no message comes near gRPC's cap of 4 MB.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from acccocoa import buffers
from acccocoa.v1 import array_pb2 as pb

CHUNK = 1 << 20
"""Bytes of array data in one message, at most."""

PEEK = 1024
"""Elements among which most arrays that are not 0 have another one."""

_TO_WIRE: "dict[np.dtype[Any], pb.Array.DType.ValueType]" = {
    np.dtype("<f4"): pb.Array.DTYPE_FLOAT32,
    np.dtype("<f8"): pb.Array.DTYPE_FLOAT64,
    np.dtype("<u4"): pb.Array.DTYPE_UINT32,
}
_FROM_WIRE: dict[int, np.dtype[Any]] = {wire: dtype for dtype, wire in _TO_WIRE.items()}


class WireError(ValueError):
    """What arrived is not what was announced: wrong dtype, length or checksum."""


def checksum(data: bytes | memoryview) -> int:
    """XXH3-64: at 11 MB an array and both ways of every round, CRC-32 took 15 times as long as this."""
    return xxhash.xxh3_64_intdigest(data)


def dtype_to_wire(dtype: np.dtype[Any]) -> "pb.Array.DType.ValueType":
    """The wire's name for a dtype; KeyError when it never travels."""
    return _TO_WIRE[dtype.newbyteorder("<")]


def dtype_name(wire: int) -> str:
    """numpy's name of a dtype on the wire, whatever a peer sent."""
    return str(_FROM_WIRE.get(wire, f"unknown dtype {wire}"))


def float_dtype(narrow: bool) -> np.dtype[Any]:
    """float32 where all that travels in an array is narrow, else float64."""
    return np.dtype(np.float32 if narrow else np.float64)


def narrowed(vector: NDArray[np.float64]) -> NDArray[np.float32]:
    """The vector in float32. What is beyond its range becomes infinite, which no run goes on with."""
    with np.errstate(over="ignore"):
        return vector.astype(np.float32)


def joined(vectors: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    """One array of them all; each is float64, or float32."""
    whole = vectors[0] if len(vectors) == 1 else np.concatenate(vectors)
    return whole.astype(dtype, copy=False)


def encode(array: NDArray[Any], header: pb.Array) -> Iterator[bytes]:
    """Fill in the header (with the first piece) of a one-dimensional array; the remaining pieces.

    They are copied as they are asked for: do not write to the array before they are sent.

    Parameters
    ----------
    header : the one in the message that travels. A message that is put into another one is written and read again,
        which takes 2 ms where it has a piece of full size; filling it in place takes 0.07 ms
    """
    header.dtype, header.length = dtype_to_wire(array.dtype), len(array)
    if _is_zero(array):
        header.zero = True
        return iter(())
    data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).view(np.uint8).data
    header.xxh3, header.head = checksum(data), bytes(data[:CHUNK])
    return (bytes(data[at : at + CHUNK]) for at in range(CHUNK, len(data), CHUNK))


def _is_zero(array: NDArray[Any]) -> bool:
    """Every bit of it: 0.0 and -0.0 differ."""
    bits = array.view(f"u{array.itemsize}")
    return len(bits) > 0 and not (bits[:PEEK].any() or bits.any())


def chunk_bytes(piece: bytes) -> int:
    """Size of a message that has nothing but that piece; its own ByteSize writes it once more to find out."""
    size = len(piece)
    for _ in ("data in Chunk", "Chunk in the message"):
        size += 1 + max(1, -(-size.bit_length() // 7))
    return size


class Decoder:
    """Collects the pieces of one array.

    Parameters
    ----------
    header : as received
    dtype, length : what the array must be

    Raises
    ------
    WireError : the header announces something else; nothing has been allocated then
    """

    def __init__(self, header: pb.Array, dtype: np.dtype[Any], length: int) -> None:
        if header.dtype != dtype_to_wire(dtype) or header.length != length:
            raise WireError(
                f"an array of {header.length} x {dtype_name(header.dtype)} was announced, {length} x {dtype} is due"
            )
        self._array: NDArray[Any] = buffers.empty(length, dtype.newbyteorder("<"))
        self._bytes = self._array.view(np.uint8).data
        self._filled = 0
        self._xxh3 = header.xxh3
        self._zero = header.zero
        if header.zero:
            self._array[:] = 0
            self._filled = len(self._bytes)
        self.feed(header.head)

    @property
    def missing(self) -> int:
        """Bytes that have not arrived yet."""
        return len(self._bytes) - self._filled

    def feed(self, data: bytes) -> None:
        """Add the next piece.

        Raises
        ------
        WireError : it is longer than what is missing, or empty though something is: a peer could go on so for ever
        """
        if self.missing and not data:
            raise WireError(f"an empty piece arrived where {self.missing} bytes were missing")
        if len(data) > self.missing:
            raise WireError(f"{len(data)} bytes arrived where {self.missing} were missing")
        self._bytes[self._filled : self._filled + len(data)] = data
        self._filled += len(data)

    def array(self) -> NDArray[Any]:
        """The whole array.

        Raises
        ------
        WireError : pieces are missing, or the checksum differs
        """
        if self.missing:
            raise WireError(f"{self.missing} bytes are missing")
        if self._zero:
            return self._array
        xxh3 = checksum(self._bytes)
        if xxh3 != self._xxh3:
            raise WireError(f"checksum {xxh3:016x} of the array differs from {self._xxh3:016x}, announced with it")
        return self._array
