"""Synthetic sets: the same whatever the way they are made, well-formed, and near the originals they are named after."""

import hashlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal
from sklearn.datasets import load_svmlight_file
from sklearn.svm import LinearSVC

from acccocoa import libsvm, synthetic
from acccocoa.errors import UsageError
from acccocoa.examples import LABEL_SPELLINGS_KEPT, Examples
from acccocoa.synthetic import SHAPES, examples, write

SIZES = {
    "covtype": (1500, 54),
    "rcv1": (600, 47_236),
    "news20": (120, 1_355_191),
    "url": (300, 3_231_961),
    "epsilon": (80, 2_000),
    "lasso": (400, 50_000),
}
"""n and d of small samples."""

SPARSE = ["rcv1", "news20", "url", "lasso"]
CLASSES = ["covtype", "rcv1", "news20", "url", "epsilon"]


def text(like: str, n: int, d: int, seed: int) -> bytes:
    sink = BytesIO()
    write(like, n, d, seed, sink)
    return sink.getvalue()


def matrix(data: Examples, d: int) -> Any:
    return scipy.sparse.csr_array((data.values, data.indices, data.indptr.astype(np.int32)), shape=(data.n, d))


def assert_same(a: Examples, b: Examples) -> None:
    for name in ("indptr", "indices", "values", "labels"):
        assert_array_equal(getattr(a, name), getattr(b, name), strict=True)
    assert list(a.spellings.items()) == list(b.spellings.items())


def head(data: Examples, rows: slice) -> tuple[list[int], list[int], list[float], list[float]]:
    """Row lengths, indices, values and labels of a range of rows."""
    begin, end, _ = rows.indices(data.n)
    entries = slice(data.indptr[begin], data.indptr[end])
    lengths = np.diff(data.indptr[begin : end + 1])
    return lengths.tolist(), data.indices[entries].tolist(), data.values[entries].tolist(), data.labels[rows].tolist()


# ------------------------------------------------------------------------------------------------ one set, many ways


@pytest.mark.parametrize("like", SHAPES)
def test_same_arguments_same_data_other_seed_other_data(like: str) -> None:
    n, d = SIZES[like]
    first = examples(like, n, d, 7)
    assert_same(first, examples(like, n, d, 7))
    assert head(first, slice(0, 20)) != head(examples(like, n, d, 8), slice(0, 20))


def test_largest_seed() -> None:
    assert examples("rcv1", 3, 1000, 2**64 - 1).n == 3


@pytest.mark.parametrize("like", SHAPES)
def test_blocks_leave_no_trace(like: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n, d = SIZES[like]
    whole, whole_text = examples(like, n, d, 3), text(like, n, d, 3)
    monkeypatch.setattr(synthetic, "BLOCK_ROWS", 7)
    monkeypatch.setattr(synthetic, "BLOCK_ENTRIES", 50)
    assert_same(whole, examples(like, n, d, 3))
    assert text(like, n, d, 3) == whole_text


@pytest.mark.parametrize("like", SHAPES)
def test_any_range_of_rows(like: str) -> None:
    n, d = SIZES[like]
    whole = examples(like, n, d, 3)
    assert head(examples(like, n, d, 3, start=11, count=40), slice(0, 40)) == head(whole, slice(11, 51))
    assert head(examples(like, n, d, 3, start=n - 5), slice(0, 5)) == head(whole, slice(n - 5, n))
    assert examples(like, n, d, 3, start=n).n == 0
    assert examples(like, n, d, 3, count=0).nnz == 0


@pytest.mark.parametrize("like", SHAPES)
def test_smaller_n_is_the_head(like: str) -> None:
    n, d = SIZES[like]
    assert head(examples(like, 30, d, 3), slice(0, 30)) == head(examples(like, n, d, 3), slice(0, 30))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("like", SHAPES)
def test_text_is_the_arrays_to_the_last_bit(like: str, dtype: type[np.float32] | type[np.float64]) -> None:
    n, d = SIZES[like]
    made, written = examples(like, n, d, 5, dtype=dtype), text(like, n, d, 5)
    assert_same(libsvm.parse(written, dtype=dtype), made)
    values, labels = load_svmlight_file(BytesIO(written), dtype=dtype, zero_based=False)
    assert_array_equal(values.indptr, made.indptr)
    assert_array_equal(values.indices, made.indices)
    assert_array_equal(values.data, made.values, strict=True)
    assert_array_equal(labels, made.labels)


def test_spellings_of_targets() -> None:
    few, many = examples("lasso", 50, 1000, 1), examples("lasso", LABEL_SPELLINGS_KEPT + 100, 1000, 1)
    assert list(few.spellings) == few.labels.tolist()
    assert all(float(spelling) == label for label, spelling in few.spellings.items())
    assert many.spellings == {}


PINNED = {
    "covtype": "94f08688b050e34f",
    "rcv1": "67542c4b221dca8e",
    "news20": "0e4293b24507b29d",
    "url": "2e80ac84ae73c866",
    "epsilon": "42f05935f1e65059",
    "lasso": "fb9b09fc0a0812f7",
}


@pytest.mark.parametrize("like", SHAPES)
def test_data_stay_what_they_were(like: str) -> None:
    """Measurements refer to sets by (like, n, d, seed): a change here makes the earlier ones incomparable."""
    n, d = SIZES[like]
    assert hashlib.sha256(text(like, n, d, 1)).hexdigest()[:16] == PINNED[like]


# ------------------------------------------------------------------------------------------------ well-formed


@pytest.mark.parametrize("like", SHAPES)
def test_indices_ascend_and_stay_below_d(like: str) -> None:
    n, d = SIZES[like]
    data = examples(like, n, d, 2)
    steps = np.diff(data.indices.astype(np.int64))
    inner = np.ones(data.nnz - 1, np.bool_)
    inner[data.indptr[1:-1] - 1] = False
    assert (steps[inner] > 0).all()
    assert data.indices.min() >= 0
    assert 0.9 * d < data.d <= d
    assert (data.values != 0).all()


def test_text_by_eye() -> None:
    lines = text("covtype", 300, 54, 1).decode().splitlines()
    assert len(lines) == 300
    assert {line.split(" ")[0] for line in lines} == {"+1", "-1"}
    one_hot = [line.split(" ")[-2:] for line in lines]
    assert all(area.endswith(":1") and soil.endswith(":1") for area, soil in one_hot)
    numbers = [entry.split(":")[1] for line in lines for entry in line.split(" ")[1:-2]]
    assert all(len(number) <= 8 and (number == "1" or number.startswith("0.")) for number in numbers)
    assert not any(number.endswith("0") for number in numbers)


@pytest.mark.parametrize(("like", "d"), [(like, SHAPES[like].smallest_d) for like in SHAPES])
@pytest.mark.parametrize("more", [0, 1, 5])
def test_smallest_d(like: str, d: int, more: int) -> None:
    data = examples(like, 200, d + more, 4)
    assert 1 <= data.d <= d + more
    assert np.diff(data.indptr).min() >= 1
    assert_same(libsvm.parse(text(like, 200, d + more, 4)), data)


def test_largest_d() -> None:
    data = examples("url", 50, synthetic.LARGEST_D, 4)
    assert 0.9 * synthetic.LARGEST_D < data.d <= synthetic.LARGEST_D


# ------------------------------------------------------------------------------------------------ near the original


@pytest.mark.parametrize(
    ("like", "n", "shortest", "longest"),
    [("covtype", 5000, 10, 12), ("rcv1", 5000, 3, 600), ("news20", 2000, 10, 5000), ("url", 3000, 40, 300)],
)
def test_row_lengths(like: str, n: int, shortest: int, longest: int) -> None:
    lengths = np.diff(examples(like, n, SHAPES[like].d, 1).indptr)
    assert lengths.mean() == pytest.approx(SHAPES[like].mean_nnz, rel=0.04)
    assert shortest <= lengths.min()
    assert lengths.max() <= longest
    assert np.log(lengths).std() == pytest.approx(SHAPES[like].length_spread, abs=0.05)


@pytest.mark.parametrize("like", ["rcv1", "news20", "epsilon"])
def test_unit_rows(like: str) -> None:
    n, d = SIZES[like]
    values = matrix(examples(like, n, d, 1, dtype=np.float64), d)
    assert SHAPES[like].unit_rows
    assert np.sqrt((values * values).sum(axis=1)) == pytest.approx(1.0, abs=1e-6)


def test_dense_rows_are_full_and_centred() -> None:
    data = examples("epsilon", 500, 200, 1)
    assert data.nnz == 500 * 200
    values = data.values.reshape(500, 200) * np.sqrt(200)
    assert abs(values.mean()) < 0.02
    assert np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1] == pytest.approx(0.5, abs=0.02)


def test_url_is_mostly_ones() -> None:
    data = examples("url", 1000, 3_231_961, 1)
    assert 0.7 < (data.values == 1).mean() < 0.95
    assert data.values.min() > 0
    assert data.values.max() == 1


@pytest.mark.parametrize("like", SPARSE)
def test_popularity_falls_as_zipf_says(like: str) -> None:
    n = {"rcv1": 8000, "news20": 3000, "url": 6000, "lasso": 8000}[like]
    shape = SHAPES[like]
    rows_with = np.sort(np.bincount(examples(like, n, shape.d, 1).indices))[::-1]
    ranks = np.array([256, 512, 1024, 2048])
    rows_near = [rows_with[rank - 32 : rank + 32].mean() for rank in ranks]
    slope = np.polyfit(np.log(ranks + shape.shift), np.log(rows_near), 1)[0]
    assert slope == pytest.approx(-shape.exponent, abs=0.15)
    assert rows_with[0] > 5 * rows_with[1024]


@pytest.mark.parametrize("like", SPARSE)
def test_popular_features_are_spread_over_the_numbers(like: str) -> None:
    n, d = SIZES[like]
    rows_with = np.bincount(examples(like, n, d, 1).indices, minlength=d)
    popular = np.argsort(rows_with)[::-1][:80]
    assert np.bincount(popular * 4 // d, minlength=4) == pytest.approx(20, abs=8)
    entries = np.array([part.sum() for part in np.array_split(rows_with, 8)])
    assert entries == pytest.approx(entries.mean(), rel=0.2)


@pytest.mark.parametrize("like", ["rcv1", "news20"])
def test_many_rows_resemble_another(like: str) -> None:
    n = {"rcv1": 4000, "news20": 1500}[like]
    values = matrix(examples(like, n, SHAPES[like].d, 1, dtype=np.float64), SHAPES[like].d)
    cosines = (values[:300] @ values.T).toarray()
    cosines[np.arange(300), np.arange(300)] = 0
    closest = cosines.max(axis=1)
    assert np.quantile(closest, 0.9) > 0.4
    assert np.quantile(closest, 0.1) < 0.2


@pytest.mark.parametrize("like", CLASSES)
def test_classes_balanced_and_mixed(like: str) -> None:
    n = {"epsilon": 400}.get(like, 2000)
    labels = examples(like, n, SHAPES[like].d, 1).labels
    assert (labels > 0).mean() == pytest.approx(SHAPES[like].positive_share, abs=0.07)
    runs = 1 + np.count_nonzero(np.diff(labels))
    expected = 2 * n * (labels > 0).mean() * (labels < 0).mean()
    assert runs == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize(
    ("like", "n", "d", "c", "low", "high"),
    [
        ("covtype", 20_000, 54, 1.0, 0.74, 0.78),
        ("rcv1", 12_000, 47_236, 1.0, 0.955, 0.985),
        ("news20", 6_000, 1_355_191, 1.0, 0.945, 0.975),
        ("url", 12_000, 3_231_961, 0.01, 0.97, 0.995),
        ("epsilon", 8_000, 200, 1.0, 0.88, 0.92),
    ],
)
def test_a_linear_svm_does_as_well_as_on_the_original(
    like: str, n: int, d: int, c: float, low: float, high: float
) -> None:
    data = examples(like, n, d, 1, dtype=np.float64)
    values, train = matrix(data, d), 2 * n // 3
    svm = LinearSVC(C=c, dual=like not in ("covtype", "epsilon"), tol=1e-2, max_iter=5000, random_state=0)
    svm.fit(values[:train], data.labels[:train])
    assert low < svm.score(values[train:], data.labels[train:]) < high
    assert abs(SHAPES[like].accuracy - (low + high) / 2) < 0.015


def test_lasso_targets_follow_few_features() -> None:
    data = examples("lasso", 6000, 400, 1, dtype=np.float64)
    values = matrix(data, 400).toarray()
    weights, *_ = np.linalg.lstsq(values, data.labels, rcond=None)
    left = data.labels - values @ weights
    assert 1 - left.var() / data.labels.var() == pytest.approx(0.9, abs=0.06)
    assert (np.abs(weights) > 0.5).sum() < 40
    assert np.abs(weights[np.abs(weights) > 0.5]) == pytest.approx(1, abs=0.15)


# ------------------------------------------------------------------------------------------------ errors and files


@pytest.mark.parametrize(
    ("like", "n", "d", "seed", "message"),
    [
        ("mnist", 10, 100, 0, "like 'mnist': must be one of covtype, rcv1, news20, url, epsilon, lasso"),
        ("rcv1", 0, 100, 0, "n 0: must be at least 1 and below 2**63"),
        ("rcv1", 2**63, 100, 0, "n 9223372036854775808: must be at least 1 and below 2**63"),
        ("covtype", 10, 15, 0, "d 15: must be at least 16 for covtype and below 2**31"),
        ("epsilon", 10, 1, 0, "d 1: must be at least 2 for epsilon and below 2**31"),
        ("url", 10, 2**31, 0, "d 2147483648: must be at least 16 for url and below 2**31"),
        ("url", 10, 100, -1, "seed -1: must lie within 0 .. 2**64 - 1"),
        ("url", 10, 100, 2**64, "seed 18446744073709551616: must lie within 0 .. 2**64 - 1"),
    ],
)
def test_wrong_arguments(like: str, n: int, d: int, seed: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        examples(like, n, d, seed)
    assert str(raised.value) == message
    with pytest.raises(UsageError):
        write(like, n, d, seed, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("start", "count"), [(-1, None), (11, None), (0, 11), (10, 1), (0, -1)])
def test_rows_outside_the_set(start: int, count: int | None) -> None:
    with pytest.raises(UsageError, match="must lie within 0"):
        examples("rcv1", 10, 100, 0, start=start, count=count)


def test_writes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "set"
    path.write_text("something else")
    write("rcv1", 500, 5000, 1, path)
    assert path.read_bytes() == text("rcv1", 500, 5000, 1)
    write("rcv1", 400, 5000, 1, str(path))
    assert_same(libsvm.read([str(path)]), examples("rcv1", 400, 5000, 1))
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_of_an_interrupted_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "BLOCK_ROWS", 100)
    blocks = synthetic._Maker.blocks

    def interrupted(self: Any, start: int, stop: int) -> Any:
        yield next(blocks(self, start, stop))
        raise KeyboardInterrupt

    monkeypatch.setattr(synthetic._Maker, "blocks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write("rcv1", 500, 5000, 1, tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its directory must exist"):
        write("rcv1", 5, 5000, 1, tmp_path / "missing" / "set")
    with pytest.raises(UsageError, match="is a directory"):
        write("rcv1", 5, 5000, 1, tmp_path)


def test_a_device_is_written_to_and_stays() -> None:
    write("rcv1", 5, 5000, 1, "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_a_sink_that_takes_less_than_offered() -> None:
    class Slow:
        """As a pipe: at most 1000 bytes at a time."""

        def __init__(self) -> None:
            self.data = b""

        def write(self, data: memoryview, /) -> int:
            self.data += bytes(data[:1000])
            return min(1000, len(data))

    sink = Slow()
    write("rcv1", 50, 5000, 1, sink)
    assert sink.data == text("rcv1", 50, 5000, 1)
