"""Synthetic data in the likeness of well-known sets: their shape, their sparsity, about their difficulty.

Every row comes from a random stream of its own, seeded from (seed, row): any range of rows can be made alone, memory
is bounded while writing, and a smaller n is the head of a larger one. Values are decimal numbers of few digits, so that
the text and the arrays agree to the last bit: reading what `write` wrote gives what `examples` returns, in float32 and
in float64.

Classes come from a planted linear model and labels are noisy, so that a linear SVM gets about as far as on the
original. Popularity of features follows a Zipf-Mandelbrot law, spread over the feature numbers without order. Not every
feature needs to occur: the largest index met is as a rule a little below d.
"""

import itertools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from acccocoa import synthetic_kernels as kernels
from acccocoa.atomic import atomic_write
from acccocoa.errors import UsageError
from acccocoa.examples import LABEL_SPELLINGS_KEPT, Examples

LARGEST_D = 2**31 - 1
"""Feature numbers are int32."""

LARGEST_N = 2**63 - 1
SEEDS = 2**64

BLOCK_ROWS = 1 << 13
BLOCK_ENTRIES = 1 << 17
"""Rows and entries made in one go; without influence on what is made."""


class ByteSink(Protocol):
    """Anything that bytes can be written to: an open file, a pipe, a compressor."""

    def write(self, data: memoryview, /) -> object:
        """Take the bytes."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is imitated of a data set.

    Attributes
    ----------
    name : as in --like
    n, d : size of the original
    smallest_d : fewer features than this cannot carry the shape
    task : "classification" (labels -1 and +1) or "regression" (real targets)
    dense : every feature in every row
    mean_nnz : mean number of stored entries in a row, at the original d
    length_spread : standard deviation of the logarithm of that number
    unit_rows : rows have Euclidean norm 1, up to the printed digits
    decimals : digits printed behind the decimal point
    exponent, shift : popularity of the feature of rank r = 0, 1, ... is proportional to (r + shift) ** -exponent
    positive_share : share of +1 (before the labels' noise)
    accuracy : about what a linear SVM reaches on rows it has not seen, at the original size
    tilt : how far popularity depends on the class: the two features of a pair of like popularity have
        popularities 1 + t and 1 - t, |t| <= tilt, in one class and the reverse in the other
    wrong_labels : share of labels turned round
    stories, closest : sparse rows belong to so many stories, few of them told often; rows of one story share up to
        about closest ** 2 of their entries, and nearly always the class
    """

    name: str
    n: int
    d: int
    smallest_d: int
    task: Literal["classification", "regression"]
    dense: bool
    mean_nnz: float
    length_spread: float
    unit_rows: bool
    decimals: int
    exponent: float
    shift: float
    positive_share: float
    accuracy: float
    tilt: float
    wrong_labels: float
    stories: int = 1
    closest: float = 0.0


def _shapes(*shapes: Shape) -> Mapping[str, Shape]:
    return MappingProxyType({shape.name: shape for shape in shapes})


SHAPES: Mapping[str, Shape] = _shapes(
    Shape(
        name="covtype", n=581_012, d=54, smallest_d=16, task="classification", dense=False,
        mean_nnz=11.95, length_spread=0.0, unit_rows=False, decimals=6, exponent=0.0, shift=0.0,
        positive_share=0.488, accuracy=0.76, tilt=0.0, wrong_labels=0.0,
    ),
    Shape(
        name="rcv1", n=677_399, d=47_236, smallest_d=16, task="classification", dense=False,
        mean_nnz=73.2, length_spread=0.69, unit_rows=True, decimals=8, exponent=1.45, shift=100.0,
        positive_share=0.525, accuracy=0.97, tilt=0.7, wrong_labels=0.015, stories=8192, closest=0.98,
    ),
    Shape(
        name="news20", n=19_996, d=1_355_191, smallest_d=16, task="classification", dense=False,
        mean_nnz=455.0, length_spread=0.8, unit_rows=True, decimals=8, exponent=0.9, shift=2.0,
        positive_share=0.5, accuracy=0.96, tilt=0.5, wrong_labels=0.025, stories=8192, closest=0.98,
    ),
    Shape(
        name="url", n=2_396_130, d=3_231_961, smallest_d=16, task="classification", dense=False,
        mean_nnz=115.6, length_spread=0.2, unit_rows=False, decimals=6, exponent=1.25, shift=3.0,
        positive_share=0.33, accuracy=0.98, tilt=0.6, wrong_labels=0.01, stories=65_536, closest=0.98,
    ),
    Shape(
        name="epsilon", n=400_000, d=2_000, smallest_d=2, task="classification", dense=True,
        mean_nnz=2_000.0, length_spread=0.0, unit_rows=True, decimals=7, exponent=0.0, shift=0.0,
        positive_share=0.5, accuracy=0.90, tilt=0.0, wrong_labels=0.0,
    ),
    Shape(
        name="lasso", n=20_000, d=50_000, smallest_d=16, task="regression", dense=False,
        mean_nnz=100.0, length_spread=0.3, unit_rows=False, decimals=6, exponent=0.6, shift=10.0,
        positive_share=0.5, accuracy=math.nan, tilt=0.0, wrong_labels=0.0,
    ),
)  # fmt: skip
"""The shapes that can be made, by name.

lasso imitates no particular set: targets are X w* + noise, where one pair of features in 50 carries the weights +-1 and
the noise has a tenth of the signal's variance.
"""


def examples(
    like: str,
    n: int,
    d: int,
    seed: int,
    start: int = 0,
    count: int | None = None,
    dtype: type[np.float32] | type[np.float64] = np.float32,
) -> Examples:
    """Make rows start, start + 1, ..., start + count - 1 of the set (like, n, d, seed) in memory.

    Parameters
    ----------
    like : a name in SHAPES
    n, d : number of rows and of features; rows do not depend on n
    seed : 0 <= seed < 2**64
    start, count : the range of rows, within 0 .. n; count None means all from start on
    dtype : of the values

    Returns
    -------
    the rows; values and labels are what a correct reader makes of the text of `write`, bit for bit

    Raises
    ------
    UsageError
        an unknown name, or a number outside what it may be
    """
    maker = _maker(like, n, d, seed)
    if not 0 <= start <= n:
        raise UsageError(f"start {start}", f"must lie within 0 .. n = {n}")
    count = n - start if count is None else count
    if not 0 <= count <= n - start:
        raise UsageError(f"count {count}", f"must lie within 0 .. n - start = {n - start}")
    unit = 10.0**maker.shape.decimals

    indptr = np.zeros(count + 1, np.int64)
    labels = np.empty(count, np.int64)
    room = int(1.02 * count * maker.mean_nnz) + BLOCK_ENTRIES
    indices = np.empty(room, np.int32)
    values: NDArray[Any] = np.empty(room, dtype)
    row = nnz = 0
    for block in maker.blocks(start, start + count):
        rows, entries = len(block.labels), len(block.indices)
        if nnz + entries > room:
            room = max(nnz + entries, room + room // 8)
            indices.resize(room, refcheck=False)
            values.resize(room, refcheck=False)
        indptr[row + 1 : row + rows + 1] = block.indptr[1:] + nnz
        labels[row : row + rows] = block.labels
        indices[nnz : nnz + entries] = block.indices
        values[nnz : nnz + entries] = block.values / unit
        row, nnz = row + rows, nnz + entries
    indices.resize(nnz, refcheck=False)
    values.resize(nnz, refcheck=False)
    if maker.shape.task == "classification":
        spellings = {float(label): f"{label:+d}" for label in _distinct(labels)}
        return Examples(indptr, indices, values, labels.astype(np.float64), spellings)
    quanta = _distinct(labels)
    spellings = {}
    if len(quanta) <= LABEL_SPELLINGS_KEPT:
        spellings = {quantum / unit: _spelt(quantum, maker.shape.decimals) for quantum in quanta}
    return Examples(indptr, indices, values, labels / unit, spellings)


def write(like: str, n: int, d: int, seed: int, out: ByteSink | str | os.PathLike[str]) -> None:
    """Write the set (like, n, d, seed) as LIBSVM text.

    Parameters
    ----------
    like, n, d, seed : as for `examples`
    out : where to: something with a `write` for bytes, left open; or a path. A regular file is written with
        `acccocoa.atomic.atomic_write`: complete under its name, or not there. Devices and pipes are written to as
        they are.

    Raises
    ------
    UsageError
        an unknown name, a number outside what it may be, or a path that cannot be written
    OSError
        what `out.write`, or a device or pipe, raises
    """
    maker = _maker(like, n, d, seed)
    if not isinstance(out, str | os.PathLike):
        _write_text(maker, n, out)
        return
    path = Path(out)
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb", buffering=0) as device:
            _write_text(maker, n, device)
        return
    with atomic_write(path) as file:
        _write_text(maker, n, file)


@dataclass(frozen=True, slots=True)
class _Block:
    """Some rows, on arrays that the next block overwrites; values (and targets) times 10**decimals."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.int32]
    labels: NDArray[np.int64]


class _Maker:
    """Makes rows of one set. Subclasses implement `fill`."""

    def __init__(self, shape: Shape, mean_nnz: float, longest: int) -> None:
        self.shape = shape
        self.mean_nnz = mean_nnz
        self.indptr = np.zeros(BLOCK_ROWS + 1, np.int64)
        self.labels = np.empty(BLOCK_ROWS, np.int64)
        entries = max(BLOCK_ENTRIES, longest)
        self.indices = np.empty(entries, np.int32)
        self.values = np.empty(entries, np.int32)

    def fill(self, first: int, last: int) -> int:
        """Make rows from `first` on, until `last` or until the arrays are full; return how many."""
        raise NotImplementedError

    def blocks(self, start: int, stop: int) -> Iterator[_Block]:
        """Make rows start .. stop - 1 in blocks."""
        while start < stop:
            rows = self.fill(start, min(stop, start + BLOCK_ROWS))
            nnz = int(self.indptr[rows])
            yield _Block(self.indptr[: rows + 1], self.indices[:nnz], self.values[:nnz], self.labels[:rows])
            start += rows


class _SparseMaker(_Maker):
    """rcv1, news20, url and lasso."""

    def __init__(self, shape: Shape, d: int, key: int) -> None:
        lengths = _length_quantiles(shape, d)
        longest = int(lengths[-1])
        super().__init__(shape, float(lengths.mean()), longest)
        bins = _popularity_bins(d // 2, shape.exponent, shape.shift / 2)
        cut, other = _alias_table(bins.probability)
        kinds = {"url": kernels.BINARY, "lasso": kernels.GAUSSIAN}
        share = 1.0 / 50
        signal = math.sqrt(self.mean_nnz * share)
        self.arguments = (
            np.uint64(d),
            np.uint64(_multiplier(d)),
            np.uint64(_mix(key ^ 1) % d),
            lengths,
            cut,
            other,
            bins.start,
            bins.width,
            _raw_weights(shape, bins),
            kinds.get(shape.name, kernels.TF_IDF),
            np.uint64(12),
            10.0**shape.decimals,
            round(shape.tilt * 2**16),
            np.uint64(round(shape.positive_share * 2**32)),
            np.uint64(round(shape.wrong_labels * 2**32)),
            float(shape.stories),
            np.uint64(round(0.95 * 2**32)),
            shape.closest,
            np.uint64(round(share * 2**32)),
            math.sqrt(0.1) * signal,
            np.full(5 * longest + 8, kernels.EMPTY, np.uint64),
        )
        self.key = np.uint64(key)

    def fill(self, first: int, last: int) -> int:
        """See _Maker."""
        return kernels.sparse_rows(
            self.key, first, last, *self.arguments, self.indptr, self.indices, self.values, self.labels
        )


class _DenseMaker(_Maker):
    """epsilon."""

    CARRY = 0.5
    """Correlation of neighbouring features."""

    def __init__(self, shape: Shape, d: int, key: int) -> None:
        super().__init__(shape, float(d), d)
        weights = _bells(key ^ 2, d)
        # variance of <weights, x> when x_j and x_i have correlation CARRY ** |j - i|
        variance = behind = 0.0
        for weight in weights.tolist():
            variance += weight * (weight + 2.0 * behind)
            behind = self.CARRY * (behind + weight)
        self.arguments = (
            weights,
            self.CARRY,
            10.0**shape.decimals,
            _noise_for(shape.accuracy) * math.sqrt(variance),
            np.empty(d, np.float64),
        )
        self.key = np.uint64(key)

    def fill(self, first: int, last: int) -> int:
        """See _Maker."""
        return kernels.dense_rows(
            self.key, first, last, *self.arguments, self.indptr, self.indices, self.values, self.labels
        )


COVTYPE_MEANS = (0.550, 0.431, 0.214, 0.193, 0.284, 0.330, 0.835, 0.879, 0.561, 0.276)
COVTYPE_DEVIATIONS = (0.140, 0.312, 0.113, 0.152, 0.075, 0.219, 0.105, 0.078, 0.150, 0.185)
COVTYPE_CORRELATIONS = (
    (),
    (0.02,),
    (-0.25, 0.08),
    (0.31, 0.02, -0.01),
    (0.09, 0.07, 0.27, 0.60),
    (0.37, 0.03, -0.22, 0.07, -0.05),
    (0.11, -0.58, -0.33, -0.03, -0.16, 0.04),
    (0.21, 0.33, -0.53, 0.04, -0.11, 0.20, 0.02),
    (0.06, 0.65, -0.17, 0.05, 0.03, 0.11, -0.78, 0.59),
    (0.15, -0.11, -0.19, 0.05, -0.07, 0.33, 0.13, 0.06, -0.05),
)
"""Of the ten numbers of covtype (UCI), scaled to [0, 1]; correlations with the numbers before."""

COVTYPE_AREAS = (0.064, 0.435, 0.450, 0.051)
"""Shares of the four wilderness areas, from low to high ground."""


class _CovtypeMaker(_Maker):
    """covtype: ten numbers, four areas, d - 14 kinds of soil."""

    PILOT_ROWS = 4096

    def __init__(self, shape: Shape, d: int, key: int) -> None:
        super().__init__(shape, shape.mean_nnz, 12)
        numbers, areas = len(COVTYPE_MEANS), len(COVTYPE_AREAS)
        soils = d - numbers - areas
        correlations = np.eye(numbers)
        for j, row in enumerate(COVTYPE_CORRELATIONS):
            correlations[j, :j] = correlations[:j, j] = row
        spread = np.round(np.linalg.cholesky(correlations) * np.array(COVTYPE_DEVIATIONS)[:, None], 6)
        ranks = np.arange(soils) * _multiplier(soils) % soils
        popularity = np.exp(-5.0 * ranks / soils)
        self.fixed = (
            np.array(COVTYPE_MEANS),
            spread,
            0.25 * _bells(key ^ 3, numbers),
            _normal_cuts(np.array(COVTYPE_AREAS)),
            0.5 * _bells(key ^ 4, areas),
            _normal_cuts(popularity),
            _bells(key ^ 5, soils),
            10.0**shape.decimals,
        )
        self.margins = np.empty(BLOCK_ROWS, np.float64)
        # other rows, without noise, show where to cut and how much noise to add
        self.key = np.uint64(_mix(key ^ 6))
        self.noise = self.threshold = 0.0
        pilot = [self.margins[: len(block.labels)].copy() for block in self.blocks(0, self.PILOT_ROWS)]
        margins = np.concatenate(pilot)
        self.noise = _noise_for(shape.accuracy + 0.01) * float(np.std(margins))  # not quite linear in the numbers
        self.threshold = float(np.quantile(margins, 1.0 - shape.positive_share))
        self.key = np.uint64(key)

    def fill(self, first: int, last: int) -> int:
        """See _Maker."""
        return kernels.covtype_rows(
            self.key,
            first,
            last,
            *self.fixed,
            self.noise,
            self.threshold,
            self.indptr,
            self.indices,
            self.values,
            self.labels,
            self.margins,
        )


def _maker(like: str, n: int, d: int, seed: int) -> _Maker:
    """Check the arguments and prepare to make rows."""
    shape = SHAPES.get(like)
    if shape is None:
        raise UsageError(f"like {like!r}", f"must be one of {', '.join(SHAPES)}")
    if not 1 <= n <= LARGEST_N:
        raise UsageError(f"n {n}", "must be at least 1 and below 2**63")
    if not shape.smallest_d <= d <= LARGEST_D:
        raise UsageError(f"d {d}", f"must be at least {shape.smallest_d} for {like} and below 2**31")
    if not 0 <= seed < SEEDS:
        raise UsageError(f"seed {seed}", "must lie within 0 .. 2**64 - 1")
    key = _mix(_mix(seed) + int.from_bytes(like.encode()))
    if shape.name == "covtype":
        return _CovtypeMaker(shape, d, key)
    if shape.dense:
        return _DenseMaker(shape, d, key)
    return _SparseMaker(shape, d, key)


def _write_text(maker: _Maker, n: int, sink: ByteSink) -> None:
    """Write rows 0 .. n - 1 to `sink`."""
    classes = maker.shape.task == "classification"
    text = np.empty(32 * BLOCK_ROWS + 26 * len(maker.indices), np.uint8)
    for block in maker.blocks(0, n):
        size = kernels.format_rows(
            block.indptr, block.indices, block.values, block.labels, classes, maker.shape.decimals, text
        )
        rest = text.data[:size]
        while len(rest):
            written = sink.write(rest)  # an unbuffered file may take less than all
            rest = rest[written:] if isinstance(written, int) else rest[:0]


def _distinct(labels: NDArray[np.int64]) -> list[int]:
    """Return the distinct labels in the order in which they are met first."""
    distinct, first = np.unique(labels, return_index=True)
    return [int(label) for label in distinct[np.argsort(first)]]


def _spelt(quantum: int, decimals: int) -> str:
    """Return quantum / 10**decimals as format_rows writes it."""
    out = np.empty(32, np.uint8)
    size = kernels.put_decimal(out, np.uint64(0), quantum, np.uint64(decimals), np.uint64(10**decimals))
    return out[: int(size)].tobytes().decode()


def _mix(x: int) -> int:
    """Scramble 64 bits, as the kernels' mix does."""
    x %= SEEDS
    x = (x ^ (x >> 30)) * int(kernels.MIX_1) % SEEDS
    x = (x ^ (x >> 27)) * int(kernels.MIX_2) % SEEDS
    return x ^ (x >> 31)


def _bells(key: int, count: int) -> NDArray[np.float64]:
    """Return `count` bell-shaped numbers of mean 0 and variance 1, float64, each a hash of its position."""
    x = np.uint64(_mix(key)) + np.arange(1, count + 1, dtype=np.uint64) * kernels.GOLDEN
    x = (x ^ (x >> np.uint64(30))) * kernels.MIX_1
    x = (x ^ (x >> np.uint64(27))) * kernels.MIX_2
    x ^= x >> np.uint64(31)
    total = sum((x >> np.uint64(16 * part)) & np.uint64(0xFFFF) for part in range(4))
    return (np.asarray(total, np.float64) - kernels.BELL_MEAN) / kernels.BELL_STD


def _multiplier(d: int) -> int:
    """Return a number near d divided by the golden ratio and coprime to d: its multiples mod d are spread evenly."""
    multiplier = max(1, round(d * 0.6180339887498949))
    while math.gcd(multiplier, d) != 1:
        multiplier += 1
    return multiplier


def _noise_for(accuracy: float) -> float:
    """Return the noise, over the margin's deviation, that makes sign(margin) right with the probability given."""
    return math.tan(math.pi * (1.0 - accuracy))


def _normal_cuts(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the len(shares) - 1 numbers that cut a standard normal variable into parts of the given shares."""
    below = np.cumsum(shares / shares.sum())[:-1]
    return np.array([round(NormalDist().inv_cdf(float(share)), 9) for share in below], np.float64)


def _length_quantiles(shape: Shape, d: int) -> NDArray[np.int32]:
    """Return 257 quantiles of the number of entries in a row: log-normal, at most a quarter of the features."""
    positions = (np.arange(257) + 0.25) / 257.5
    logs = np.array([shape.length_spread * NormalDist().inv_cdf(float(p)) for p in positions])
    lengths = np.exp(logs)
    lengths *= shape.mean_nnz / lengths.mean()
    return np.asarray(np.clip(np.rint(lengths), 1, max(1, d // 4)), np.int32)


@dataclass(frozen=True, slots=True)
class _Bins:
    """Ranks of features in 256 groups: the head alone, the tail in groups that grow; unused groups have probability 0.

    start, width : uint64, shape (256,); probability : float64, shape (256,), sums to 1
    """

    start: NDArray[np.uint64]
    width: NDArray[np.uint64]
    probability: NDArray[np.float64]


def _popularity_bins(ranks: int, exponent: float, shift: float) -> _Bins:
    """Group 0 .. ranks - 1, whose popularity is proportional to (rank + shift) ** -exponent."""
    head = 64
    edges = list(range(head + 1)) + [round(head * 2 ** (step / 6)) for step in range(1, 6 * 26)]
    edges = sorted({min(edge, ranks) for edge in edges} | {ranks})
    start = np.zeros(256, np.uint64)
    width = np.ones(256, np.uint64)
    mass = np.zeros(256)
    for bin_, (low, high) in enumerate(itertools.pairwise(edges)):
        start[bin_], width[bin_] = low, high - low
        if exponent == 1.0:
            mass[bin_] = math.log((high + shift) / (low + shift))
        else:
            power = 1.0 - exponent
            mass[bin_] = ((high + shift) ** power - (low + shift) ** power) / power
    return _Bins(start, width, mass / mass.sum())


def _alias_table(probability: NDArray[np.float64]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return Vose's tables: cell i stands for i with probability cut[i] / 2**24, else for other[i].

    In integers throughout, hence the same on every machine.
    """
    cells = len(probability)
    full = 2**24
    mass = [round(float(p) * full * cells) for p in probability]
    mass[int(np.argmax(probability))] += full * cells - sum(mass)
    cut = np.full(cells, full, np.uint32)
    other = np.arange(cells, dtype=np.uint32)
    small = [cell for cell in range(cells) if mass[cell] < full]
    large = [cell for cell in range(cells) if mass[cell] >= full]
    while small and large:
        low, high = small.pop(), large[-1]
        cut[low], other[low] = mass[low], high
        mass[high] -= full - mass[low]
        if mass[high] < full:
            small.append(large.pop())
    return cut, other


def _raw_weights(shape: Shape, bins: _Bins) -> NDArray[np.float64]:
    """Return the weight of an entry before its row is scaled, float64, shape (256 * 8,): by bin and term frequency.

    rcv1: (1 + log tf) * log(1 / share of rows with the feature); news20: presence only, a few words counted twice.
    """
    frequency = np.arange(1, 9)
    if shape.name != "rcv1":
        return np.tile(np.where(frequency < 3, 1.0, 2.0), 256)
    popularity = np.maximum(bins.probability / bins.width / 2, 1e-12)
    share = -np.expm1(-shape.mean_nnz * popularity)
    return np.outer(-np.log(share), 1.0 + np.log(frequency)).ravel()
