"""Long vectors whose memory is used again: only once nobody can see it any more."""

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from acccocoa import buffers

LENGTH = buffers.SHORT // 8


@pytest.fixture(autouse=True)
def no_spare() -> Iterator[None]:
    gc.collect()
    buffers._spare.clear()
    yield
    buffers._spare.clear()


def address(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


def test_memory_is_used_again_once_it_is_free() -> None:
    first = buffers.empty(LENGTH)
    first[:] = 7.0
    where = address(first)
    del first
    second = buffers.empty(LENGTH)
    assert address(second) == where
    assert_array_equal(second, 7.0)
    assert address(buffers.empty(LENGTH)) != where


def test_a_view_of_a_view_keeps_the_memory() -> None:
    whole = buffers.zeros(LENGTH)
    where = address(whole)
    part = whole[10:].reshape(-1, 1)[5:, 0]
    raw = part.data
    del whole, part
    others = [buffers.empty(LENGTH) for _ in range(buffers.SPARE + 2)]
    for other in others:
        other[:] = 1.0
    assert where not in [address(other) for other in others]
    assert_array_equal(np.asarray(raw), 0.0)
    del others
    buffers._spare.clear()
    del raw
    assert address(buffers.empty(LENGTH)) == where


def test_memory_of_another_size_is_left_alone() -> None:
    small = buffers.empty(LENGTH)
    where = address(small)
    del small
    large = buffers.empty(2 * LENGTH)
    assert len(large) == 2 * LENGTH
    assert len(buffers._spare) == 1
    assert address(buffers.empty(2 * LENGTH, np.float32)) == where
    del large


def test_no_more_is_kept_than_is_said() -> None:
    vectors = [buffers.empty(LENGTH) for _ in range(3 * buffers.SPARE)]
    assert len({address(vector) for vector in vectors}) == len(vectors)
    del vectors
    assert len(buffers._spare) == buffers.SPARE


@pytest.mark.parametrize("length", [0, 1, LENGTH - 1, LENGTH, 3 * LENGTH + 1])
def test_copies_and_zeros(length: int) -> None:
    vector = np.arange(float(length))
    found = buffers.copy(vector)
    assert_array_equal(found, vector)
    assert not np.shares_memory(found, vector)
    del found
    assert_array_equal(buffers.zeros(length), np.zeros(length))
    assert buffers.empty(length, np.uint32).dtype == np.uint32


def test_threads_never_share_a_vector() -> None:
    wrong = []

    def work(number: int) -> None:
        for turn in range(300):
            vector = buffers.empty(LENGTH)
            vector[:] = number + turn
            if vector.min() != number + turn or vector.max() != number + turn:
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
