"""The compiled loops over sparse rows against plain numpy on small random data."""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from acccocoa import losses
from acccocoa.losses import Loss, Vector
from worker import kernels, shard_kernels


@dataclass(frozen=True)
class Rows:
    """Rows as the kernels take them, stored with their zeros or without, and the same densely in float64."""

    indptr: NDArray[np.uint64]
    indices: NDArray[np.uint32]
    values: kernels.Values
    dense: NDArray[np.float64]
    rng: np.random.Generator

    @property
    def n(self) -> int:
        return len(self.dense)

    @property
    def d(self) -> int:
        return int(self.dense.shape[1])

    def span(self, i: int) -> tuple[np.uint64, np.uint64]:
        return self.indptr[i], self.indptr[i + 1]

    @property
    def csr(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32], kernels.Values]:
        return self.indptr, self.indices, self.values


def sparse(dense: NDArray[np.float64], dtype: Any, rng: np.random.Generator) -> Rows:
    mask = dense != 0
    values = dense[mask].astype(dtype)
    rounded = np.zeros_like(dense)
    rounded[mask] = values
    return Rows(
        np.concatenate(([0], np.cumsum(mask.sum(axis=1)))).astype(np.uint64),
        np.nonzero(mask)[1].astype(np.uint32),
        values,
        rounded,
        rng,
    )


@st.composite
def rows(draw: st.DrawFn, largest_n: int = 40, largest_d: int = 40, zeros_too: bool = True) -> Rows:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.integers(1, largest_n)), draw(st.integers(1, largest_d))
    density = draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    scale = draw(st.sampled_from([1e-3, 1.0, 1e3]))
    dense = scale * rng.standard_normal(shape) * (rng.random(shape) < density)
    found = sparse(dense, draw(st.sampled_from([np.float32, np.float64])), rng)
    return filled(found) if zeros_too and draw(st.booleans()) else found


def filled(data: Rows) -> Rows:
    """The same, stored densely."""
    indptr = np.arange(data.n + 1, dtype=np.uint64) * np.uint64(data.d)
    dtype: Any = data.values.dtype
    values: kernels.Values = data.dense.astype(dtype).ravel()
    return replace(data, indptr=indptr, indices=np.empty(0, np.uint32), values=values)


@dataclass(frozen=True)
class Labelled:
    """Labels, weights and two feasible dual points for rows."""

    loss: Loss
    y: Vector
    s: Vector
    alpha: Vector
    z: Vector


def labelled(loss: Loss, n: int, rng: np.random.Generator, *, weighted: bool) -> Labelled:
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0) if loss.classifier else rng.standard_normal(n)
    s = np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.1, 3.0, n)) if weighted else np.ones(n)
    reach = s * (loss.bound if math.isfinite(loss.bound) else 5.0)

    def feasible() -> Vector:
        # the ends of the domain, 0, and what lies between
        share = rng.choice([0.0, 1.0, rng.random(), rng.random()], n)
        point: Vector = reach * share * (y if loss.classifier else rng.choice([-1.0, 1.0], n))
        return point

    return Labelled(loss, y, s, feasible(), feasible())


any_loss = st.sampled_from([*map(losses.loss, losses.NAMES), losses.loss("epsilon_insensitive", 0.0)])


# -------------------------------------------------------------------------------------------------------------- one row


@settings(deadline=None, max_examples=100)
@given(rows(zeros_too=False))
def test_dot_sums_in_four_partial_sums(data: Rows) -> None:
    u = data.rng.standard_normal(data.d)
    for i in range(data.n):
        start, stop = data.span(i)
        found = kernels.dot(data.indices, data.values, start, stop, u)
        terms = data.values[start:stop].astype(np.float64) * u[data.indices[start:stop]]
        whole = len(terms) // 4 * 4
        partial = [0.0] * 4
        for j in range(whole):
            partial[j % 4] += terms[j]
        for j in range(whole, len(terms)):
            partial[0] += terms[j]
        assert found == (partial[0] + partial[1]) + (partial[2] + partial[3])
        assert found == pytest.approx(data.dense[i] @ u, rel=1e-12, abs=1e-13 * float(np.abs(terms).sum()))


@settings(deadline=None, max_examples=100)
@given(rows(zeros_too=False))
def test_dense_dot_sums_in_lanes(data: Rows) -> None:
    full = filled(data)
    u = data.rng.standard_normal(data.d)
    lanes = kernels.LANES
    whole = data.d // lanes * lanes
    for i in range(data.n):
        terms = full.values[i * data.d : (i + 1) * data.d].astype(np.float64) * u
        sums = np.zeros(lanes)
        for start in range(0, whole, lanes):
            sums += terms[start : start + lanes]
        while len(sums) > 1:
            sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
        expected = sums[0]
        for term in terms[whole:]:
            expected += term
        assert kernels.dot(full.indices, full.values, *full.span(i), u) == expected


@settings(deadline=None, max_examples=100)
@given(rows(), st.floats(-1e3, 1e3))
def test_axpy_adds_a_multiple_of_the_row(data: Rows, c: float) -> None:
    start = data.rng.standard_normal(data.d)
    for i in range(data.n):
        u = start.copy()
        kernels.axpy(data.indices, data.values, *data.span(i), c, u)
        assert_array_equal(u, start + c * data.dense[i])


# ------------------------------------------------------------------------------------------------------- sums over rows


@settings(deadline=None, max_examples=100)
@given(rows())
def test_squared_norms(data: Rows) -> None:
    out = np.full(data.n, np.nan)
    shard_kernels.squared_norms(data.indptr, data.values, out)
    assert_allclose(out, (data.dense**2).sum(axis=1), rtol=1e-13)


@settings(deadline=None, max_examples=200)
@given(rows(), st.sampled_from([0.0, 1.0, 1e3, -1e6, 0.1]), st.integers(0, 5))
def test_centre(data: Rows, mean: float, further: int) -> None:
    dtype: Any = data.values.dtype
    moved = sparse((data.dense + mean).astype(dtype).astype(np.float64), dtype, data.rng)
    length = moved.d + further  # entries that no row of the shard has
    squared_norms, along = np.full(data.n, np.nan), np.full(data.n, np.nan)
    shard_kernels.centre(moved.indptr, moved.values, length, squared_norms, along)
    dense = np.hstack((moved.dense, np.zeros((data.n, further))))
    for i, row in enumerate(dense):
        exact = math.fsum(row) / length
        assert along[i] == pytest.approx(exact * math.sqrt(length), rel=1e-14, abs=1e-15 * np.abs(row).max())
        spread = math.fsum((row - exact) ** 2)
        if (row == row[0]).all():
            assert squared_norms[i] == 0.0
        else:
            least = shard_kernels.LEAST_SPREAD * length * exact**2
            assert squared_norms[i] == pytest.approx(max(spread, least), rel=1e-9)


@settings(deadline=None, max_examples=100)
@given(rows(), st.data())
def test_add_columns_adds_to_what_is_there(data: Rows, draw: st.DataObject) -> None:
    first = draw.draw(st.integers(0, data.n))
    last = draw.draw(st.integers(first, data.n))
    beta = data.rng.standard_normal(data.n) * (data.rng.random(data.n) < 0.7)
    there = data.rng.standard_normal(data.d)
    out = there.copy()
    kernels.add_columns(*data.csr, beta, first, last, out)
    part = data.dense[first:last] * beta[first:last, None]
    assert_allclose(out, there + part.sum(axis=0), rtol=1e-12, atol=1e-13 * float(np.abs(part).sum() + 1.0))


@settings(deadline=None, max_examples=150)
@given(rows(largest_n=70), any_loss, st.booleans(), st.data())
def test_loss_sum(data: Rows, loss: Loss, weighted: bool, draw: st.DataObject) -> None:
    first = draw.draw(st.integers(0, data.n))
    last = draw.draw(st.integers(first, data.n))
    point = labelled(loss, data.n, data.rng, weighted=weighted)
    w = data.rng.standard_normal(data.d)
    found = kernels.loss_sum(*data.csr, point.y, point.s, w, first, last, loss)
    terms = point.s * losses.value(loss, point.y, data.dense @ w)
    assert found == pytest.approx(math.fsum(terms[first:last]), rel=1e-11, abs=1e-300)


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 70), any_loss, st.booleans(), st.sampled_from([0.0, 1.0, 0.1]) | st.floats(0, 1), st.data())
def test_conjugate_sum(n: int, loss: Loss, weighted: bool, gamma_theta: float, draw: st.DataObject) -> None:
    first = draw.draw(st.integers(0, n))
    last = draw.draw(st.integers(first, n))
    rng = np.random.default_rng(draw.draw(st.integers(0, 2**32 - 1)))
    point = labelled(loss, n, rng, weighted=weighted)
    found = kernels.conjugate_sum(point.y, point.s, point.alpha, point.z, gamma_theta, first, last, loss)
    between = (1.0 - gamma_theta) * point.alpha + gamma_theta * point.z
    # the weights (1 - gamma theta) and gamma theta may sum to more than 1 in the last digit
    between = np.clip(between, -point.s * loss.bound, point.s * loss.bound) if math.isfinite(loss.bound) else between
    terms = losses.conjugate(loss, point.y, between, point.s)[first:last]
    assert np.isfinite(terms).all()
    size = float(np.abs(terms).sum() + point.s.sum() + np.abs(point.y * between).sum())
    assert found == pytest.approx(math.fsum(terms), rel=1e-12, abs=1e-14 * size)


# -------------------------------------------------------------------------------------------------------- moving points


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 50), st.floats(1e-9, 1), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_advance_is_the_papers_update(n: int, gamma_theta: float, spare: float, seed: int) -> None:
    fraction = gamma_theta + spare * (1.0 - gamma_theta)
    alpha, z, z_next = np.random.default_rng(seed).standard_normal((3, n))
    expected = (1.0 - gamma_theta) * alpha + gamma_theta * z
    expected = expected + gamma_theta / fraction * (z_next - z)
    found_alpha, found_z, given_z_next = alpha.copy(), z.copy(), z_next.copy()
    kernels.advance(found_alpha, found_z, given_z_next, gamma_theta, fraction)
    assert_array_equal(found_alpha, expected)
    assert_array_equal(found_z, z_next)
    assert_array_equal(given_z_next, z_next)


# --------------------------------------------------------------------------------------------------------- copying rows


@settings(deadline=None, max_examples=100)
@given(rows(zeros_too=False), st.data())
def test_take_rows_and_count_features(data: Rows, draw: st.DataObject) -> None:
    chosen = np.array(draw.draw(st.lists(st.integers(0, data.n - 1), max_size=60)), dtype=np.int64)
    compact = data.rng.permutation(data.d).astype(np.uint32)
    indptr, indices = data.indptr.astype(np.int64), data.indices.astype(np.int32)
    counts = np.ones(data.d, dtype=np.int64)
    shard_kernels.count_features(indptr, indices, chosen, counts)
    assert_array_equal(counts, 1 + (data.dense[chosen] != 0).sum(axis=0))
    nnz = int(counts.sum()) - data.d
    out_indices, out_values = np.empty(nnz, np.uint32), np.empty(nnz, data.values.dtype)
    shard_kernels.take_rows(indptr, indices, data.values, chosen, compact, out_indices, out_values)
    rebuilt = np.zeros((len(chosen), data.d))
    row = np.repeat(np.arange(len(chosen)), np.diff(indptr)[chosen])
    rebuilt[row, out_indices] = out_values
    expected = np.zeros((len(chosen), data.d))
    expected[:, compact] = data.dense[chosen]
    assert_array_equal(rebuilt, expected)
    full = np.zeros((len(chosen), data.d), data.values.dtype)
    shard_kernels.take_rows_dense(indptr, indices, data.values, chosen, compact, full)
    assert_array_equal(full, expected)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(0, 40), max_size=80),
    st.sampled_from([1, 3, 11, 12, 21, 22, 31, 32]),
    st.integers(0, 200),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 2**32),
)
def test_sort_rows(lengths: list[int], bits: int, more: int, dtype: type, seed: int) -> None:
    rng = np.random.default_rng(seed)
    longest = max(lengths, default=0)
    bits = max(bits, longest.bit_length())
    # every index once in a row, the largest possible one often
    drawn = [np.unique(np.append(rng.integers(0, 1 << bits, length), (1 << bits) - 1))[:length] for length in lengths]
    drawn = [rng.permutation(row) for row in drawn]
    indptr = np.cumsum([0, *map(len, drawn)]).astype(np.uint64)
    indices = np.concatenate([np.empty(0), *drawn]).astype(np.uint32)
    values: NDArray[Any] = rng.standard_normal(len(indices)).astype(dtype)
    row = np.repeat(np.arange(len(drawn)), [len(each) for each in drawn])
    order = np.lexsort((indices, row))
    expected = indices[order], values[order]
    room = max(1, longest) + more
    keys, others = np.empty(room, np.uint64), np.empty(room, np.uint64)
    counts = np.empty(1 << shard_kernels.DIGIT, np.uint32)
    shard_kernels.sort_rows(indptr, indices, values, bits, keys, others, np.empty(room, dtype), counts)
    assert_array_equal(indices, expected[0])
    assert_array_equal(values, expected[1])


@settings(deadline=None, max_examples=100)
@given(rows(zeros_too=False), st.data())
def test_in_order_of_rows(data: Rows, draw: st.DataObject) -> None:
    chosen = np.array(draw.draw(st.lists(st.integers(0, data.n - 1), max_size=60)), dtype=np.int64)
    waiting = data.rng.random(data.d) < 0.5
    met = [int(j) for row in chosen for j in data.indices[data.indptr[row] : data.indptr[row + 1]] if waiting[j]]
    expected = list(dict.fromkeys(met))
    out = np.empty(len(expected), np.uint32)
    still = waiting.copy()
    shard_kernels.in_order_of_rows(data.indptr.astype(np.int64), data.indices.astype(np.int32), chosen, still, out)
    assert_array_equal(out, expected)
    waiting[expected] = False
    assert_array_equal(still, waiting)


# ----------------------------------------------------------------------------------------------------------------- SDCA


def centred(dense: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows less their means; exactly 0 where all entries are equal."""
    less: NDArray[np.float64] = np.where((dense == dense[:, :1]).all(axis=1, keepdims=True), dense[:, :1], 0.0)
    return dense - np.where(less != 0.0, less, dense.mean(axis=1, keepdims=True))


@dataclass
class Descent:
    """A local subproblem and where its solution stands.

    centred : its quadratic is that of the rows less their means; w's mean is taken off
    """

    data: Rows
    point: Labelled
    w: Vector
    kappa: float
    centred: bool = False

    def __post_init__(self) -> None:
        if self.centred:
            self.w = self.w - self.w.mean()
        self.z = self.point.z.copy()
        self.u = self.w.copy()
        self.squared_norms = np.empty(self.data.n)
        self.along, self.shift = np.empty(self.data.n if self.centred else 0), 0.0
        if self.centred:
            shard_kernels.centre(self.data.indptr, self.data.values, self.data.d, self.squared_norms, self.along)
        else:
            shard_kernels.squared_norms(self.data.indptr, self.data.values, self.squared_norms)
        #: the rows as the quadratic has them
        self.rows = centred(self.data.dense) if self.centred else self.data.dense

    def run(self, order: NDArray[np.uint32], bucket: int = 1, first: int = 0, last: int | None = None) -> int:
        point = self.point
        last = self.data.n if last is None else last
        rows = np.empty(len(order) * bucket, dtype=np.uint32)
        nobody = np.empty(0, np.uint8)
        steps, buckets = kernels.due(point.s, first, last, bucket, order, nobody, len(rows) + 1, rows)
        assert buckets == len(order)
        arrays = (*self.data.csr, point.y, point.s, self.squared_norms, self.z, self.u)
        self.shift = kernels.sdca(*arrays, rows[:steps], self.kappa, point.loss, nobody, self.along, self.shift)
        return int(steps)

    def passes(self, number: int) -> None:
        self.run(np.tile(np.arange(self.data.n, dtype=np.uint32), number))

    def moved(self) -> Vector:
        return self.data.dense.T @ (self.z - self.point.z)

    def objective(self, z: Vector) -> float:
        """n G_k(z) (paper, eq. subpdef4) but for its constants: kappa here is L theta sigma' / n, A_i is x_i / n."""
        change = self.rows.T @ (z - self.point.z)
        conjugates = losses.conjugate(self.point.loss, self.point.y, z, self.point.s)
        return math.fsum(conjugates) + float(self.w @ change) + 0.5 * self.kappa * float(change @ change)


@given(st.integers(0, 200), st.integers(0, 2**64 - 1))
@settings(deadline=None)
def test_a_shuffle_is_a_permutation(length: int, seed: int) -> None:
    order = np.full(length, 7, dtype=np.uint32)
    kernels.shuffle(order, np.uint64(seed))
    assert_array_equal(np.sort(order), np.arange(length))


def test_shuffles_are_all_as_likely() -> None:
    order, found = np.empty(4, dtype=np.uint32), np.zeros((4, 4))
    shuffles = 24_000
    orders = set()
    for seed in range(shuffles):
        kernels.shuffle(order, np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64))
        found[np.arange(4), order] += 1
        orders.add(tuple(order.tolist()))
    assert len(orders) == 24
    # six standard deviations
    assert_allclose(found, shuffles / 4, atol=6 * math.sqrt(shuffles * 3 / 16))


@settings(deadline=None)
@given(st.data(), st.integers(1, 60), st.booleans())
def test_due_are_those_that_weigh_something_and_do_not_rest(draw: st.DataObject, n: int, rests: bool) -> None:
    first = draw.draw(st.integers(0, n))
    last = draw.draw(st.integers(first, n))
    bucket = draw.draw(st.integers(1, 7))
    buckets = -(-(last - first) // bucket)
    order = np.array(draw.draw(st.permutations(range(buckets))), dtype=np.uint32)
    weights = np.array(draw.draw(st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=n, max_size=n)))
    idle = np.array(draw.draw(st.lists(st.integers(0, 20), min_size=n, max_size=n)), dtype=np.uint8)
    enough = draw.draw(st.integers(1, n + 1))
    visited: list[int] = []
    after, gone = idle.copy(), 0
    for b in order.tolist():
        if len(visited) >= enough:
            break
        gone += 1
        for i in range(first + b * bucket, min(first + (b + 1) * bucket, last)):
            if weights[i] > 0 and rests and idle[i] not in {0, 2, 6, 14}:
                after[i] += 1
            elif weights[i] > 0:
                visited.append(i)
    rows = np.empty(n, dtype=np.uint32)
    given_idle = idle if rests else np.empty(0, dtype=np.uint8)
    assert kernels.due(weights, first, last, bucket, order, given_idle, enough, rows) == (len(visited), gone)
    assert_array_equal(rows[: len(visited)], visited)
    assert_array_equal(idle, after)


@settings(deadline=None, max_examples=200)
@given(rows(), any_loss, st.booleans(), st.booleans(), st.floats(1e-6, 10), st.data())
def test_sdca_keeps_u_and_z_together_and_descends(
    data: Rows, loss: Loss, weighted: bool, less_means: bool, kappa: float, draw: st.DataObject
) -> None:
    first = draw.draw(st.integers(0, data.n))
    last = draw.draw(st.integers(first, data.n))
    bucket = draw.draw(st.integers(1, 16))
    buckets = -(-(last - first) // bucket)
    order = draw.draw(st.lists(st.integers(0, buckets - 1), max_size=3 * buckets)) if buckets else []
    descent = Descent(
        data, labelled(loss, data.n, data.rng, weighted=weighted), data.rng.standard_normal(data.d), kappa, less_means
    )
    point = descent.point
    before = descent.objective(descent.z)
    steps = descent.run(np.array(order, dtype=np.uint32), bucket, first, last)

    visited = [i for b in order for i in range(first + b * bucket, min(first + (b + 1) * bucket, last))]
    assert steps == sum(point.s[i] > 0 for i in visited)
    still = np.ones(data.n, dtype=bool)
    still[visited] = False
    still |= point.s == 0
    assert_array_equal(descent.z[still], point.z[still])
    assert np.isfinite(losses.conjugate(loss, point.y, descent.z, point.s)).all()
    size = kappa * float((np.abs(descent.z - point.z) @ np.abs(data.dense)).max()) + 1.0
    assert_allclose(descent.u, descent.w + kappa * descent.moved(), rtol=1e-10, atol=1e-10 * size)
    along = math.sqrt(data.d) * float((descent.u - descent.w).mean()) if less_means else 0.0
    assert descent.shift == pytest.approx(along, rel=1e-10, abs=1e-10 * size * data.d)
    assert descent.objective(descent.z) <= before + 1e-9 * (1.0 + abs(before))


@settings(deadline=None, max_examples=100)
@given(rows(), any_loss, st.booleans(), st.booleans())
def test_sdca_visits_one_coordinate_after_the_other(data: Rows, loss: Loss, weighted: bool, less_means: bool) -> None:
    kappa, bucket = 0.7, 3
    descent = Descent(
        data, labelled(loss, data.n, data.rng, weighted=weighted), data.rng.standard_normal(data.d), kappa, less_means
    )
    point = descent.point
    order = data.rng.permutation(-(-data.n // bucket)).astype(np.uint32)
    z, u = point.z.copy(), descent.w.copy()
    for i in itertools.chain.from_iterable(range(b * bucket, min((b + 1) * bucket, data.n)) for b in order.tolist()):
        if point.s[i] > 0:
            q = kappa * descent.squared_norms[i]
            p = float(descent.rows[i] @ u)
            new = kernels.coordinate_step(loss, float(point.y[i]), float(point.s[i]), float(z[i]), p, float(q))
            u = u + kappa * (new - z[i]) * descent.rows[i]
            z[i] = new
    descent.run(order, bucket)
    reach = 1.0 + np.abs(z)
    # whether the prediction is above or below a kink may hang on its last digit: compare what the objective sees
    found = descent.u - descent.shift / math.sqrt(data.d) if less_means else descent.u
    assert_allclose(found, u, rtol=1e-6, atol=1e-6 * float(1.0 + np.abs(u).max()))
    assert descent.objective(descent.z) == pytest.approx(descent.objective(z), rel=1e-8, abs=1e-8 * float(reach.sum()))


@pytest.mark.parametrize("curvature", [0.0, 0.3])
@pytest.mark.parametrize("epsilon", [0.0, 1e-12])
def test_a_constant_row_does_not_move_from_0_and_returns_there(epsilon: float, curvature: float) -> None:
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((4, 1000))
    dense[1] = 0.1
    dense[2] = 1e8
    data = sparse(dense, np.float64, rng)
    g = Loss(logistic=False, classifier=False, epsilon=epsilon, curvature=curvature, bound=math.inf)
    for start in (0.0, 3.0):
        z = np.array([0.0, start, start, 0.0])
        point = Labelled(g, np.zeros(4), np.ones(4), np.zeros(4), z)
        descent = Descent(data, point, rng.standard_normal(1000), kappa=0.8, centred=True)
        descent.run(np.array([0, 3, 1, 2, 0, 1, 2], dtype=np.uint32))
        assert_array_equal(descent.z[[1, 2]], 0.0)
        assert descent.z[[0, 3]].all()


def reference_minimum(descent: Descent) -> float:
    """The smallest value of the subproblem, by L-BFGS-B on the dual variables split into their two signs."""
    data, point, loss = descent.data, descent.point, descent.point.loss
    reach = point.s * loss.bound
    if loss.logistic:
        # t = log(a / (s - a)) is free
        scale = point.y * point.s
        lows, highs = np.full(data.n, -40.0), np.full(data.n, 40.0)

        def smooth(t: Vector) -> tuple[float, Vector]:
            sigma = expit(t)
            z = scale * sigma
            change = descent.rows.T @ (z - point.z)
            u = descent.w + descent.kappa * change
            slope = point.y * t + descent.rows @ u
            value = float(point.s @ (t * sigma - np.logaddexp(0.0, t)))
            value += float(descent.w @ change) + 0.5 * descent.kappa * float(change @ change)
            return value, slope * scale * sigma * (1.0 - sigma)

        start = np.zeros(data.n)
    else:
        positive = np.where(point.y > 0, reach, 0.0) if loss.classifier else reach
        negative = reach - positive if loss.classifier and math.isfinite(loss.bound) else reach
        if loss.classifier and not math.isfinite(loss.bound):
            positive, negative = (np.where(sign * point.y > 0, np.inf, 0.0) for sign in (1, -1))
        lows, highs = np.zeros(2 * data.n), np.concatenate((positive, negative))

        def smooth(t: Vector) -> tuple[float, Vector]:
            up, down = t[: data.n], t[data.n :]
            z = up - down
            change = descent.rows.T @ (z - point.z)
            u = descent.w + descent.kappa * change
            value = float(
                -point.y @ z + loss.epsilon * (up + down).sum() + 0.5 * loss.curvature * (z * z / point.s).sum()
            )
            value += float(descent.w @ change) + 0.5 * descent.kappa * float(change @ change)
            slope = -point.y + loss.curvature * z / point.s + descent.rows @ u
            return value, np.concatenate((slope + loss.epsilon, loss.epsilon - slope))

        start = np.minimum(highs, 0.1)
    found = minimize(
        smooth,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(lows, highs, strict=True)),
        options={"maxiter": 20_000, "maxfun": 100_000, "ftol": 1e-16, "gtol": 1e-10},
    )
    return float(found.fun)


@pytest.mark.parametrize("mean", [None, 0.0, 100.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", losses.NAMES)
def test_many_passes_reach_the_subproblems_minimum(name: str, dtype: Any, weighted: bool, mean: float | None) -> None:
    """mean : of rows that are centred; None: they are not"""
    rng = np.random.default_rng([losses.NAMES.index(name), weighted])
    loss = losses.loss(name)
    n, d = 14, 5
    dense = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)
    if mean is not None:
        dense[::2] += mean
        dense[5] = mean
    dense[3] = 0.0
    data = sparse(dense, dtype, rng)
    point = labelled(loss, n, rng, weighted=False)
    if weighted:
        scale = rng.uniform(0.2, 3.0, n)
        point = Labelled(loss, point.y, scale, point.alpha * scale, point.z * scale)
    descent = Descent(data, point, rng.standard_normal(d), kappa=0.8, centred=mean is not None)
    descent.passes(5000)
    lowest = reference_minimum(descent)
    reached = descent.objective(descent.z)
    assert reached <= lowest + 1e-10
    assert reached >= lowest - 1e-7
    # and there it is stationary: another pass changes nothing
    z = descent.z.copy()
    descent.passes(1)
    assert_allclose(descent.z, z, atol=1e-12)
