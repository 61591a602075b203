"""The compiled sums for Newton's method against plain numpy on small random data."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.special import expit

from acccocoa import losses
from acccocoa.losses import Loss, Vector
from tests.property.test_kernels import Labelled, Rows, any_loss, labelled, rows
from worker import kernels
from worker.kernels import into_domain

NO_STEP: Vector = np.empty(0)

newton_loss = any_loss.filter(lambda loss: loss.newton)

by_hinge = st.sampled_from([1.0, 1e-2, 1e-6])


@dataclass(frozen=True)
class Smooth:
    """Value, beta and second derivative of every example."""

    value: Vector
    beta: Vector
    slope: Vector


def smoothed(loss: Loss, mu: float, y: Vector, s: Vector, p: Vector) -> Smooth:
    if mu > 0.0:
        t = (1.0 - y * p) / mu
        return Smooth(s * mu * np.logaddexp(0.0, t), y * s * expit(t), s * expit(t) * expit(-t) / mu)
    return Smooth(
        s * losses.value(loss, y, p), -s * losses.derivative(loss, y, p), s * losses.second_derivative(loss, y, p)
    )


def mu_of(loss: Loss, draw: st.DataObject) -> float:
    return 0.0 if loss.logistic or loss.curvature > 0.0 else draw.draw(by_hinge)


def apart(loss: Loss, y: Vector, s: Vector, beta: Vector, p: Vector) -> tuple[float, float]:
    """The Fenchel-Young sum, and the size of what it is made of."""
    terms = np.stack((s * losses.value(loss, y, p), losses.conjugate(loss, y, beta, s), beta * p, y * beta))
    return math.fsum(terms[:3].ravel()), float(np.abs(terms).sum())


def products(data: Rows, w: Vector) -> Vector:
    return np.array([kernels.dot(data.indices, data.values, *data.span(i), w) for i in range(data.n)])


@settings(deadline=None, max_examples=200)
@given(
    newton_loss,
    st.sampled_from([0.0, 1.0, 0.3]),
    st.sampled_from([0.0, 1.0, 0.5]) | st.floats(-1e4, 1e4),
    st.integers(-2, 2),
    st.data(),
)
def test_a_smooth_loss_and_its_derivatives(loss: Loss, s: float, p: float, label: int, draw: st.DataObject) -> None:
    mu = mu_of(loss, draw)
    y = (1.0 if label > 0 else -1.0) if loss.classifier else float(label)
    expected = smoothed(loss, mu, *map(np.atleast_1d, (y, s, p)))
    value, beta, slope = kernels.smooth(loss, mu, y, s, p)
    assert_allclose(value, expected.value[0], rtol=1e-12, atol=1e-300)
    assert_allclose(beta, expected.beta[0], rtol=1e-12, atol=1e-300)
    assert_allclose(slope, expected.slope[0], rtol=1e-12, atol=1e-300)
    assert np.isfinite(losses.conjugate(loss, *map(np.atleast_1d, (y, beta, s))))


@settings(deadline=None, max_examples=100)
@given(rows(), st.floats(-1e3, 1e3))
def test_the_square_of_a_row_is_on_one_side_of_the_diagonal(data: Rows, c: float) -> None:
    for i in range(data.n):
        square = np.zeros((data.d, data.d))
        kernels.add_square(data.indices, data.values, *data.span(i), c, square)
        exact = c * np.outer(data.dense[i], data.dense[i])
        assert_allclose(np.tril(square) + np.triu(square, 1).T, np.tril(exact), rtol=1e-14, atol=1e-300)


@settings(deadline=None, max_examples=200)
@given(newton_loss, st.integers(1, 40), st.booleans(), st.integers(0, 2**32 - 1))
def test_nearest_in_domain_is_that_of_the_state(loss: Loss, n: int, weighted: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    point = labelled(loss, n, rng, weighted=weighted)
    anywhere = 5.0 * rng.standard_normal(n)
    anywhere[point.s == 0.0] = 0.0  # the kernel is not asked there
    found = np.array([kernels.nearest_in_domain(loss, *each) for each in zip(point.y, point.s, anywhere, strict=True)])
    into_domain(loss, point.y, point.s, anywhere)
    assert_array_equal(found, anywhere)


@dataclass(frozen=True)
class Summed:
    """What the kernel has made of rows first to last."""

    numbers: tuple[float, float, float, int]
    z: Vector
    columns: Vector
    columns_smooth: Vector
    square: NDArray[np.float64]


def second_order(data: Rows, point: Labelled, w: Vector, before: Vector, mu: float, *part: int) -> Summed:
    """part : first, last, stride"""
    z, columns, smooth = np.full(data.n, np.nan), np.ones(data.d), np.ones(data.d)
    square = np.zeros((data.d, data.d))
    what: tuple[Any, ...] = (*data.csr, point.y, point.s, w, before, *part, point.loss, mu)
    numbers = kernels.second_order(*what, z, columns, smooth, square)
    return Summed(numbers, z, columns - 1.0, smooth - 1.0, square + square.T - np.diag(np.diag(square)))


@settings(deadline=None, max_examples=300)
@given(rows(largest_n=90, largest_d=12), newton_loss, st.booleans(), st.booleans(), st.integers(1, 3), st.data())
def test_second_order(data: Rows, loss: Loss, weighted: bool, stepped: bool, stride: int, draw: st.DataObject) -> None:
    first = draw.draw(st.integers(0, data.n))
    last = draw.draw(st.integers(first, data.n))
    mu = mu_of(loss, draw)
    point = labelled(loss, data.n, data.rng, weighted=weighted)
    w = data.rng.standard_normal(data.d) * draw.draw(st.sampled_from([0.0, 1e-3, 1.0]))
    before = w + data.rng.standard_normal(data.d) * draw.draw(st.sampled_from([0.0, 1e-3, 1.0])) if stepped else NO_STEP
    found = second_order(data, point, w, before, mu, first, last, stride)

    number = np.arange(data.n)
    seen = (number >= first) & (number < last) & ((number - first) // kernels.SUMMED_TOGETHER % stride == 0)
    x, y, s, p = data.dense[seen], point.y[seen], point.s[seen], products(data, w)[seen]
    at = smoothed(loss, mu, y, s, p)
    z = at.beta.copy()
    if stepped:
        there = products(data, before)[seen]
        left = smoothed(loss, mu, y, s, there)
        z = left.beta - left.slope * (p - there)
        into_domain(loss, y, s, z)
    assert_array_equal(np.isnan(found.z), ~seen)
    assert_allclose(found.z[seen], z, rtol=1e-11, atol=1e-12 * float(np.abs(z).max(initial=1e-200)))
    z = found.z[seen]
    assert np.isfinite(losses.conjugate(loss, y, z, s)).all()
    assert np.isfinite(losses.conjugate(loss, y, at.beta, s)).all()

    value, parted, by_smoothing, rows_seen = found.numbers
    assert rows_seen == seen.sum()
    assert_allclose(value, math.fsum(at.value), rtol=1e-12, atol=1e-300)
    exact, size = apart(loss, y, s, z, p)
    assert exact >= -1e-13 * size
    if not loss.logistic:
        assert parted == pytest.approx(exact, rel=1e-11, abs=1e-13 * size)
    elif not stepped:
        assert parted == 0.0
    assert parted >= -1e-13 * size
    exact, size = apart(loss, y, s, at.beta, p)
    assert by_smoothing == pytest.approx(exact if mu > 0.0 else 0.0, rel=1e-11, abs=1e-13 * size)

    def allowed(*factors: NDArray[np.float64]) -> float:
        return 1e-12 + 1e-12 * float(np.abs(np.prod(np.broadcast_arrays(*factors), axis=0)).sum())

    assert_allclose(found.columns, x.T @ z, rtol=1e-11, atol=allowed(x, z[:, None]))
    expected = x.T @ at.beta if stepped else np.zeros(data.d)
    assert_allclose(found.columns_smooth, expected, rtol=1e-11, atol=allowed(x, at.beta[:, None]))
    flat = at.slope <= kernels.FLAT * s * (0.25 / mu if mu > 0.0 else 0.0)
    slope = np.where(flat, 0.0, at.slope)[:, None]
    assert_allclose(found.square, x.T @ (slope * x), rtol=1e-10, atol=allowed(x, x, slope))
