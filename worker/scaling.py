"""--normalize on one shard: what has to be known of it, and the shard with its rows or columns divided.

By examples the rows of a shard are the examples and its columns the features, by features it is the other way round.
"""

from dataclasses import replace

import numpy as np

from acccocoa.losses import Vector
from acccocoa.statistics import Sizes, Spread, deviations
from worker import kernels, shard_kernels
from worker.kernels import Values
from worker.shard import Shard


def row_norms(shard: Shard) -> Vector:
    """The euclidean norm of every row; float64, shape (n,)."""
    return np.sqrt(shard.squared_norms)


def largest_of_rows(shard: Shard) -> Vector:
    """The largest magnitude in every row; float64, shape (n,)."""
    largest = np.empty(shard.n)
    shard_kernels.largest_of_rows(shard.indptr, shard.values, largest)
    return largest


def deviations_of_rows(shard: Shard) -> Vector:
    """By features: the standard deviation of every row over all examples, 0 if it is constant; float64, shape (n,)."""
    sums = np.empty(shard.n)
    ones = np.ones(len(shard.support))
    kernels.products(shard.indptr, shard.indices, shard.values, ones, 0, shard.n, sums)
    return deviations(sums, shard.squared_norms, shard.d)


def sums_of_columns(shard: Shard) -> Vector:
    """The sum of every column; float64, shape (support,)."""
    sums = np.zeros(len(shard.support))
    kernels.add_columns(shard.indptr, shard.indices, shard.values, np.ones(shard.n), 0, shard.n, sums)
    return sums


def largest_of_columns(shard: Shard) -> Vector:
    """The largest magnitude in every column; float64, shape (support,)."""
    largest = np.zeros(len(shard.support))
    shard_kernels.largest_of_columns(shard.indices, shard.values, largest)
    return largest


def squares_of_columns(shard: Shard) -> Vector:
    """The sum of squares of every column; float64, shape (support,)."""
    squares = np.zeros(len(shard.support))
    shard_kernels.squares_of_columns(shard.indices, shard.values, squares)
    return squares


def sizes(shard: Shard) -> Sizes:
    """How unequal features and examples are; by features nothing is said of that."""
    if shard.by_features:
        return Sizes()
    features, norms = largest_of_columns(shard), row_norms(shard)
    return Sizes.of(Spread.of(features[features > 0]), Spread.of(norms[norms > 0]))


def with_rows_divided(shard: Shard, divisors: Vector) -> Shard:
    """The shard with every row over its divisor (float64, shape (n,)), rounded as it is stored; 0 divides nothing."""
    values = np.empty_like(shard.values)
    shard_kernels.divide_rows(shard.indptr, shard.values, divisors, values)
    return _with_values(shard, values)


def with_columns_divided(shard: Shard, divisors: Vector) -> Shard:
    """The shard with every column over its divisor (float64, shape (support,)), likewise."""
    values = np.empty_like(shard.values)
    shard_kernels.divide_columns(shard.indices, shard.values, divisors, values)
    return _with_values(shard, values)


def _with_values(shard: Shard, values: Values) -> Shard:
    squared_norms = np.empty(shard.n)
    shard_kernels.squared_norms(shard.indptr, values, squared_norms)
    return replace(shard, values=values, squared_norms=squared_norms)
