"""LIBSVM text that is written reads back as what it was written from."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acccocoa import libsvm, libsvm_writer, shardfile
from acccocoa.examples import Examples

FINITE = {
    np.float32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    np.float64: st.floats(allow_nan=False, allow_infinity=False),
}


def examples_of(rows: list[dict[int, float]], labels: list[float], dtype: Any) -> Examples:
    return Examples(
        np.cumsum([0, *map(len, rows)]).astype(np.int64),
        np.array([j for row in rows for j in sorted(row)], np.int32),
        np.array([row[j] for row in rows for j in sorted(row)], dtype),
        np.array(labels),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
@settings(deadline=None)
def test_reads_back(dtype: libsvm.Dtype, data: st.DataObject) -> None:
    row = st.dictionaries(st.integers(0, 2**31 - 2), FINITE[dtype] | st.integers(-3, 10**6).map(float), max_size=6)
    label = FINITE[np.float64].map(lambda x: x + 0.0) | st.integers(-2, 2).map(float)
    pairs = data.draw(st.lists(st.tuples(row, label), min_size=1, max_size=6))
    made = examples_of([row for row, _ in pairs], [label for _, label in pairs], dtype)
    found = libsvm.parse(b"".join(libsvm_writer.text(made)), dtype=dtype)
    assert shardfile.content_hash(found) == shardfile.content_hash(made)


def test_in_few_digits() -> None:
    made = examples_of([{0: 0.1, 1: 1.0, 2: -0.0, 3: 1e20, 6: -2.5e-8}, {}], [1.0, -0.5], np.float32)
    assert b"".join(libsvm_writer.text(made)) == b"1 1:0.1 2:1 3:-0.0 4:1e+20 7:-2.5e-08\n-0.5\n"


def test_spelled_as_in_the_data() -> None:
    text = b"+1 1:1\n-1.0 2:1\n1 3:1\n"
    assert b"".join(libsvm_writer.text(libsvm.parse(text))) == b"+1 1:1\n-1.0 2:1\n+1 3:1\n"
    assert b"".join(libsvm_writer.text(libsvm.parse(text), {})) == b"1 1:1\n-1 2:1\n1 3:1\n"


def test_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libsvm_writer, "_ENTRIES_AT_ONCE", 2)
    text = b"1 1:1 2:1 3:1\n1\n1\n1\n2 1:1\n3 1:1\n"
    pieces = list(libsvm_writer.text(libsvm.parse(text)))
    assert b"".join(pieces) == text
    assert len(pieces) > 2


def test_text_next_to_half_way_between_two_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the shortest digits not come back, nine digits do."""
    monkeypatch.setattr(libsvm_writer, "_shortest", lambda values: [b"7"] * len(values))
    made = examples_of([{0: 0.1, 1: 1.0}], [1.0], np.float32)
    assert b"".join(libsvm_writer.text(made)) == b"1 1:0.100000001 2:1\n"
