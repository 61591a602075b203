"""The numba kernels of the solver, in one file: a cached kernel does not notice edits of another module's functions.

Symbols are those of algorithm section 3. All kernels take a shard's rows x_i as `indptr` (uint64, shape (n + 1,)),
`indices` (uint32, positions in the worker's compact feature order), `values` (float32 or float64), and accumulate in
float64. `indices` is empty when the rows are dense: then every row has a value for every position, in order. Unsigned
subscripts matter: numba tests signed ones for negative wrap-around, which costs half the speed. Summation order is
written out, never left to fast-math, so that equal inputs give equal bits everywhere.

A `Loss` is acccocoa.losses.Loss: numbers only, so that the compiled kernels can be cached on disk.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from acccocoa.compiling import inlined_kernel, kernel
from acccocoa.losses import Loss, Vector

Values = NDArray[np.float32] | NDArray[np.float64]
Matrix = NDArray[np.float64]

SUMMED_TOGETHER = 16
"""Examples whose terms are added up before they join a long sum: keeps rounding small."""

NEWTON_STEPS = 50
"""Far beyond what the logistic step needs; reaching it would mean NaN, which the outer loop then finds."""


AHEAD = 8
"""Rows between the one that is being visited and the one whose data is asked for."""

PREFETCHED = 128
"""Entries of a bucket that are asked for ahead; the processor follows a longer run by itself."""

LINE = 16
"""Entries (of four bytes) in a cache line."""

FLAT = 1e-9
"""Share of the largest second derivative of a smoothed loss that makes no difference."""

TINY = 1e-300
"""What is divided by instead of what is nothing."""

LONGEST_REST = 7
"""A row whose dual variable does not move when it is visited rests for one pass, the next time for 3, then for 7."""


def _prefetch(_typing: Any, array: Any, position: Any) -> Any:
    """Ask for the cache line of array[position], which need not arrive before the next instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        helpers: Any = cgutils
        data = helpers.create_struct_proxy(signature.args[0])(context, builder, value=arguments[0]).data
        byte_pointer = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        function = helpers.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number]),
            "llvm.prefetch.p0i8",
        )
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte_pointer)
        # to read, to be kept in all caches, data
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, position), generate


prefetch: Any = intrinsic(_prefetch)


LANES = 16
"""Partial sums of a dense product, added up pairwise: as many as keep the processor's vector units busy."""


def _product_in_lanes(_typing: Any, values: Any, start: Any, count: Any, u: Any) -> Any:
    """sum_k values[start + k] u[k] over k < count, a multiple of LANES.

    Written in vectors of LANES numbers. Left to the compiler, a sum is either not vectorised or its order depends on
    the processor, and with it the last bits.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        helpers: Any = cgutils
        array, first, length, other = arguments
        double, lanes = ir.DoubleType(), ir.VectorType(ir.DoubleType(), LANES)
        data = helpers.create_struct_proxy(signature.args[0])(context, builder, value=array).data
        shared = helpers.create_struct_proxy(signature.args[3])(context, builder, value=other).data
        element = context.get_value_type(signature.args[0].dtype)

        def load(pointer: Any, kind: Any, align: int) -> Any:
            return builder.load(builder.bitcast(pointer, ir.VectorType(kind, LANES).as_pointer()), align=align)

        sums = helpers.alloca_once_value(builder, ir.Constant(lanes, [0.0] * LANES))
        zero, step = ir.Constant(length.type, 0), ir.Constant(length.type, LANES)
        with helpers.for_range_slice(builder, zero, length, step, length.type) as (k, _):
            x = load(builder.gep(data, [builder.add(first, k)]), element, element.get_abi_size(context.target_data))
            if element != double:
                x = builder.fpext(x, lanes)
            builder.store(
                builder.fadd(builder.load(sums), builder.fmul(x, load(builder.gep(shared, [k]), double, 8))), sums
            )
        parts = [builder.extract_element(builder.load(sums), ir.IntType(32)(lane)) for lane in range(LANES)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [builder.fadd(one, two) for one, two in zip(parts[:half], parts[half:], strict=True)]
        return parts[0]

    return types.float64(values, types.int64, types.int64, u), generate


product_in_lanes: Any = intrinsic(_product_in_lanes)


@inlined_kernel
def dot(indices: NDArray[np.uint32], values: Values, start: np.uint64, stop: np.uint64, u: Vector) -> float:
    """x_i'u of the row at positions start to stop, in interleaved partial sums."""
    if len(indices) == 0:
        count = np.int64(stop - start)
        whole = count - count % LANES
        total: float = product_in_lanes(values, np.int64(start), whole, u)
        for k in range(np.uint64(whole), np.uint64(count)):
            total += values[start + k] * u[k]
        return total
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    s0 = s1 = s2 = s3 = 0.0
    j = start
    while j + four <= stop:
        s0 += values[j] * u[indices[j]]
        s1 += values[j + one] * u[indices[j + one]]
        s2 += values[j + two] * u[indices[j + two]]
        s3 += values[j + three] * u[indices[j + three]]
        j += four
    while j < stop:
        s0 += values[j] * u[indices[j]]
        j += one
    return (s0 + s1) + (s2 + s3)


@inlined_kernel
def axpy(
    indices: NDArray[np.uint32],
    values: Values,
    start: np.uint64,
    stop: np.uint64,
    c: float,
    u: Vector,
) -> None:
    """u += c x_i for the row at positions start to stop."""
    if len(indices) == 0:
        for k in range(stop - start):
            u[k] += c * values[start + k]
        return
    j = start
    while j < stop:
        u[indices[j]] += c * values[j]
        j += np.uint64(1)


@kernel
def logistic_root(c: float, r: float, guess: float) -> float:
    """The t with t + c + r sigma(t) = 0 (r >= 0), sigma the logistic function, from any guess; then a = s sigma(t).

    With c = y p - q a_old and r = q s this is the stationarity of the logistic step, log(a/(s-a)) + y p + q (a - a_old)
    = 0, in t = log(a/(s-a)): no cancellation where a is close to 0 or to s. The function is increasing, convex left of
    0 and concave right of 0, so Newton's method on the root's side of 0 converges monotonically after one step.
    """
    at_zero = c + 0.5 * r
    if at_zero == 0.0:
        return 0.0
    left = at_zero > 0.0
    t = min(max(guess, -c - r), 0.0) if left else max(min(guess, -c), 0.0)
    for _ in range(NEWTON_STEPS):
        e = math.exp(-abs(t))
        sigma = e / (1.0 + e) if t < 0.0 else 1.0 / (1.0 + e)
        slope = 1.0 + r * e / ((1.0 + e) * (1.0 + e))
        change = (t + c + r * sigma) / slope
        moved = t - change
        if (left and moved > 0.0) or (not left and moved < 0.0):
            moved = 0.0
        done = abs(moved - t) <= 1e-7 * (1.0 + abs(t))
        t = moved
        if done:
            break
    return t


@inlined_kernel
def nearest_in_domain(loss: Loss, y: float, s: float, beta: float) -> float:
    """The feasible b that is closest to beta, for weight s > 0."""
    bound = s * loss.bound
    if loss.classifier:
        return y * min(max(y * beta, 0.0), bound)
    return min(max(beta, -bound), bound)


@kernel
def coordinate_step(loss: Loss, y: float, s: float, beta: float, p: float, q: float) -> float:
    """argmin over b of s loss*(-b/s) + p (b - beta) + q/2 (b - beta)^2, for weight s > 0 and q >= 0.

    q = 0 belongs to a row without entries (then p = 0): the minimiser of the conjugate alone.
    """
    if loss.logistic:
        # near the optimum log(a/(s-a)) is close to -y p already
        t = logistic_root(y * p - q * (y * beta), q * s, -y * p)
        e = math.exp(-abs(t))
        return y * s / (1.0 + e) if t >= 0.0 else y * s * e / (1.0 + e)
    denominator = q + loss.curvature / s
    numerator = y - p + q * beta
    if loss.epsilon > 0.0:
        if numerator > loss.epsilon:
            numerator -= loss.epsilon
        elif numerator < -loss.epsilon:
            numerator += loss.epsilon
        else:
            return 0.0
        b = numerator / denominator
    elif numerator == 0.0:
        return 0.0
    else:
        b = beta + (y - p - loss.curvature / s * beta) / denominator if denominator > 0.0 else numerator / denominator
    nearest: float = nearest_in_domain(loss, y, s, b)
    return nearest


@kernel
def shuffle(order: NDArray[np.uint32], seed: np.uint64) -> None:
    """Fill in a random permutation of 0 .. len(order) - 1 (Fisher and Yates; Steele et al., SplitMix64).

    What multiplying instead of dividing favours is below 2^-32 len(order).
    """
    state = np.uint64(seed)
    for k in range(len(order)):
        i = np.uint64(k)
        state += np.uint64(0x9E3779B97F4A7C15)
        mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        j = ((mixed >> np.uint64(32)) * (i + np.uint64(1))) >> np.uint64(32)
        order[i] = order[j]
        order[j] = np.uint32(i)


@kernel
def due(
    s: Vector,
    first: int,
    last: int,
    bucket: int,
    order: NDArray[np.uint32],
    idle: NDArray[np.uint8],
    enough: int,
    rows: NDArray[np.uint32],
) -> tuple[int, int]:
    """Fill in the rows of the buckets named by `order` that are to be visited: they weigh something, and do not rest.

    Parameters
    ----------
    s : weights, float64, shape (n,)
    first, last, bucket : the block's rows; bucket b holds `bucket` rows from first + bucket*b on, within last
    order : uint32, buckets, each at most once
    idle : uint8, shape (n,), 0 at first: how far every row is in its rests; those that rest come nearer to their next
        visit. Empty: none ever rests
    enough : end with the bucket in which so many rows have been found
    rows : uint32, as many as these buckets have

    Returns
    -------
    rows found, and buckets gone through
    """
    count = np.uint64(0)
    rests = len(idle) > 0
    for position in range(len(order)):
        if position + AHEAD < len(order):
            coming = np.uint64(first + bucket * int(order[position + AHEAD]))
            prefetch(s, coming)
            if rests:
                prefetch(idle, coming)
        start = first + bucket * int(order[position])
        for row in range(start, min(start + bucket, last)):
            i = np.uint64(row)
            if s[i] == 0.0:
                continue
            if rests:
                # it is visited after 0, 2, 6, 14, 22, ... passes in which it did not move
                passes = idle[i] + 2
                if passes & (passes - 1) != 0:
                    idle[i] += 1
                    continue
            rows[count] = i
            count += np.uint64(1)
        if count >= enough:
            return int(count), position + 1
    return int(count), len(order)


@inlined_kernel
def ask_for(
    indptr: NDArray[np.uint64],
    indices: NDArray[np.uint32],
    values: Values,
    y: Vector,
    s: Vector,
    squared_norms: Vector,
    z: Vector,
    idle: NDArray[np.uint8],
    along: Vector,
    rows: NDArray[np.uint32],
    position: np.uint64,
) -> None:
    """Prefetch what a visit of rows[position] reads, and of the row as far ahead again where it begins."""
    ahead = position + np.uint64(AHEAD)
    if ahead < np.uint64(len(rows)):
        prefetch(indptr, np.uint64(rows[ahead]))
    if position >= np.uint64(len(rows)):
        return
    i = np.uint64(rows[position])
    # neighbours share lines
    if i % np.uint64(8) == 0 or np.uint64(rows[position - np.uint64(1)]) + np.uint64(1) != i:
        prefetch(z, i)
        prefetch(y, i)
        prefetch(s, i)
        prefetch(squared_norms, i)
        if len(idle) > 0:
            prefetch(idle, i)
        if len(along) > 0:
            prefetch(along, i)
    j = indptr[i]
    end = min(indptr[i + np.uint64(1)], j + np.uint64(PREFETCHED))
    while j < end:
        if len(indices) > 0:
            prefetch(indices, j)
        prefetch(values, j)
        j += np.uint64(LINE)


@kernel
def sdca(
    indptr: NDArray[np.uint64],
    indices: NDArray[np.uint32],
    values: Values,
    y: Vector,
    s: Vector,
    squared_norms: Vector,
    z: Vector,
    u: Vector,
    rows: NDArray[np.uint32],
    kappa: float,
    loss: Loss,
    idle: NDArray[np.uint8],
    along: Vector,
    shift: float,
) -> float:
    """Coordinate minimisation of G_k (paper, eq. subpdef4) over the rows named, in their order; updates z and u.

    Parameters
    ----------
    y, s, squared_norms, z : label, weight, |x_i|^2 and dual variable of every example, float64, shape (n,)
    u : w_t + kappa * sum_i (z_i - z_i,t) x_i, float64, shape (support,)
    rows : uint32, each of weight above 0
    kappa : kappa of section 3 over n, so that the quadratic of example i is q = kappa |x_i|^2
    idle : as for `due`; updated
    along : x_i'e of every row, e being the vector of equal entries and norm 1, float64, shape (n,): the quadratic is
        that of x_i - (x_i'e) e instead of x_i, and so are the squared norms. Empty: that of x_i
    shift : e'(u - w_t), 0 at first

    Returns
    -------
    e'(u - w_t) after these rows; `shift` where `along` is empty
    """
    rests, centred = len(idle) > 0, len(along) > 0
    for position in range(len(rows)):
        at = np.uint64(position)
        ask_for(indptr, indices, values, y, s, squared_norms, z, idle, along, rows, at + np.uint64(AHEAD))
        i = np.uint64(rows[at])
        begin, end = indptr[i], indptr[i + np.uint64(1)]
        old = z[i]
        p = dot(indices, values, begin, end, u)
        if centred:
            # w_t'e is 0, and so is all of the product with a row that is a multiple of e
            p = p - along[i] * shift if squared_norms[i] > 0.0 else 0.0
        new = coordinate_step(loss, y[i], s[i], old, p, kappa * squared_norms[i])
        if new != old:
            z[i] = new
            axpy(indices, values, begin, end, kappa * (new - old), u)
            if centred:
                shift += kappa * (new - old) * along[i]
            if rests:
                idle[i] = 0
        elif rests:
            idle[i] = idle[i] + 1 if idle[i] < 2 * LONGEST_REST else LONGEST_REST
    return shift


@kernel
def add_columns(
    indptr: NDArray[np.uint64],
    indices: NDArray[np.uint32],
    values: Values,
    beta: Vector,
    first: int,
    last: int,
    out: Vector,
) -> None:
    """out += sum of beta_i x_i over examples first to last; out has the support's shape (without the factor 1/n)."""
    for example in range(first, last):
        i = np.uint64(example)
        if beta[i] != 0.0:
            axpy(indices, values, indptr[i], indptr[i + np.uint64(1)], beta[i], out)


@kernel
def loss_value(loss: Loss, y: float, p: float) -> float:
    """loss(y, p); see acccocoa.losses.value."""
    if loss.logistic:
        m = -y * p
        return max(m, 0.0) + math.log1p(math.exp(-abs(m)))
    if loss.classifier:
        t = max(1.0 - y * p, 0.0)
    else:
        t = max(abs(y - p) - loss.epsilon, 0.0)
    if t == 0.0:
        return 0.0
    b = min(t / loss.curvature, loss.bound) if loss.curvature > 0.0 else loss.bound
    return t * b - 0.5 * loss.curvature * b * b


@kernel
def conjugate_value(loss: Loss, y: float, s: float, beta: float) -> float:
    """s loss*(-beta/s) for a beta that is feasible up to rounding; see acccocoa.losses.conjugate."""
    if beta == 0.0:
        return 0.0
    if loss.logistic:
        # a convex combination may leave [0, s] in its last digit, where there is no logarithm
        a = min(y * beta, s)
        if a <= 0.0:
            return 0.0
        rest = s - a
        inside = a * math.log(a / s)
        return inside + rest * math.log(rest / s) if rest > 0.0 else inside
    return -y * beta + loss.epsilon * abs(beta) + 0.5 * loss.curvature * beta * beta / s


@inlined_kernel
def own_gap(loss: Loss, y: float, s: float, p: float, beta: float) -> float:
    """s loss(y, p) + s loss*(-beta/s) + beta p, which is not below 0 (Fenchel-Young)."""
    gap: float = s * loss_value(loss, y, p) + conjugate_value(loss, y, s, beta) + beta * p
    return gap


@kernel
def loss_sum(
    indptr: NDArray[np.uint64],
    indices: NDArray[np.uint32],
    values: Values,
    y: Vector,
    s: Vector,
    w: Vector,
    first: int,
    last: int,
    loss: Loss,
) -> float:
    """sum_i s_i loss(y_i, x_i'w) over examples first to last."""
    total = 0.0
    for start in range(first, last, SUMMED_TOGETHER):
        part = 0.0
        for example in range(start, min(start + SUMMED_TOGETHER, last)):
            i = np.uint64(example)
            p = dot(indices, values, indptr[i], indptr[i + np.uint64(1)], w)
            part += s[i] * loss_value(loss, y[i], p)
        total += part
    return total


@kernel
def products(
    indptr: NDArray[np.uint64],
    indices: NDArray[np.uint32],
    values: Values,
    w: Vector,
    first: int,
    last: int,
    out: Vector,
) -> None:
    """out_i = x_i'w of rows first to last; out has shape (n,)."""
    for row in range(first, last):
        i = np.uint64(row)
        out[i] = dot(indices, values, indptr[i], indptr[i + np.uint64(1)], w)


@kernel
def conjugate_sum(
    y: Vector,
    s: Vector,
    alpha: Vector,
    z: Vector,
    gamma_theta: float,
    first: int,
    last: int,
    loss: Loss,
) -> float:
    """sum_i s_i loss_i*(-y_i/s_i) at the dual point (1 - gamma theta) alpha + gamma theta z (paper's y_t)."""
    total = 0.0
    for start in range(first, last, SUMMED_TOGETHER):
        part = 0.0
        for i in range(start, min(start + SUMMED_TOGETHER, last)):
            if s[i] > 0.0:
                part += conjugate_value(loss, y[i], s[i], (1.0 - gamma_theta) * alpha[i] + gamma_theta * z[i])
        total += part
    return total


@kernel
def gap_sum(
    indptr: NDArray[np.uint64],
    indices: NDArray[np.uint32],
    values: Values,
    y: Vector,
    s: Vector,
    alpha: Vector,
    z: Vector,
    gamma_theta: float,
    w: Vector,
    first: int,
    last: int,
    stride: int,
    offset: int,
    loss: Loss,
) -> tuple[float, float, int]:
    """Sums of the coordinates' own gaps and losses over every stride-th group of rows, and how many rows these are.

    With w = grad f(A y), gap(y) = sum_i [ s_i loss_i(p_i) + s_i loss_i*(-y_i/s_i) + y_i p_i ] times the scale, p_i
    = x_i'w: no term is below zero (Fenchel-Young), so that a sample of them estimates the gap well.
    """
    total = 0.0
    losses = 0.0
    rows = 0
    for start in range(first + SUMMED_TOGETHER * (offset % stride), last, SUMMED_TOGETHER * stride):
        for row in range(start, min(start + SUMMED_TOGETHER, last)):
            i = np.uint64(row)
            rows += 1
            if s[i] > 0.0:
                p = dot(indices, values, indptr[i], indptr[i + np.uint64(1)], w)
                at = (1.0 - gamma_theta) * alpha[i] + gamma_theta * z[i]
                total += own_gap(loss, y[i], s[i], p, at)
                losses += s[i] * loss_value(loss, y[i], p)
    return total, losses, rows


@kernel
def add_square(
    indices: NDArray[np.uint32],
    values: Values,
    start: np.uint64,
    stop: np.uint64,
    c: float,
    square: Matrix,
) -> None:
    """square += c x_i x_i' on and below the diagonal in the order of the row's entries; shape (d, d).

    The entry of features i and j may be at (i, j) or at (j, i).
    """
    if len(indices) == 0:
        for feature in range(stop - start):
            cx = c * values[start + feature]
            if cx != 0.0:
                for other in range(feature + np.uint64(1)):
                    square[feature, other] += cx * values[start + other]
        return
    at = start
    while at < stop:
        cx = c * values[at]
        feature = indices[at]
        before = start
        while before <= at:
            square[feature, indices[before]] += cx * values[before]
            before += np.uint64(1)
        at += np.uint64(1)


@kernel
def smooth(loss: Loss, mu: float, y: float, s: float, p: float) -> tuple[float, float, float]:
    """Value, beta = -s loss'(y, p), which is in dom(g), and s loss''(y, p) of a loss that is smooth, or is smoothed.

    mu : of the hinge loss: max(0, t) is replaced by mu log(1 + exp(t / mu)); otherwise 0
    """
    if loss.logistic or mu > 0.0:
        t = -y * p if loss.logistic else (1.0 - y * p) / mu
        e = math.exp(-abs(t))
        inverse = 1.0 / (1.0 + e)
        value = max(t, 0.0) + math.log1p(e)
        beta = y * s * inverse * (1.0 if t > 0.0 else e)
        slope = s * e * inverse * inverse
        return (s * value, beta, slope) if loss.logistic else (s * mu * value, beta, slope / mu)
    if loss.classifier:
        sign, t = y, 1.0 - y * p
    else:
        sign, t = (1.0 if y > p else -1.0), abs(y - p) - loss.epsilon
    if t < 0.0 or (t == 0.0 and (loss.classifier or loss.epsilon > 0.0)):
        return 0.0, 0.0, 0.0
    b = t / loss.curvature
    slope = s / loss.curvature
    if b > loss.bound:
        b, slope = loss.bound, 0.0
    return s * (t * b - 0.5 * loss.curvature * b * b), sign * s * b, slope


@kernel
def second_order(
    indptr: NDArray[np.uint64],
    indices: NDArray[np.uint32],
    values: Values,
    y: Vector,
    s: Vector,
    w: Vector,
    before: Vector,
    first: int,
    last: int,
    stride: int,
    loss: Loss,
    mu: float,
    z: Vector,
    columns: Vector,
    columns_smooth: Vector,
    square: Matrix,
) -> tuple[float, float, float, int]:
    """Value and derivatives of the sum of `smooth` losses over every stride-th group of examples first to last.

    Parameters
    ----------
    w, before : where, and from where the step came that led there; `before` may be empty
    z : float64, shape (n,); beta_i at w is put there, or where there is a `before` what is extrapolated from there by
        means of the second derivative, and then moved into dom(g)
    columns : += sum z_i x_i;  columns_smooth : += sum beta_i x_i, minus the gradient; only where there is a `before`
    square : += sum s_i loss''(y_i, x_i'w) x_i x_i', see add_square

    Returns
    -------
    the sum; what w and z are from a solution, sum_i s_i loss(p_i) + s_i loss*(-z_i/s_i) + z_i p_i (of the logistic loss
    up to second order); the same of beta, which is due to the smoothing alone; examples seen
    """
    total, apart, smoothed, rows = 0.0, 0.0, 0.0, 0
    extrapolated = len(before) > 0
    steepest = 0.25 / mu if mu > 0.0 else 0.0
    for start in range(first, last, SUMMED_TOGETHER * stride):
        part, part_apart, part_smoothed = 0.0, 0.0, 0.0
        for example in range(start, min(start + SUMMED_TOGETHER, last)):
            i = np.uint64(example)
            rows += 1
            if s[i] == 0.0:
                z[i] = 0.0
                continue
            begin, end = indptr[i], indptr[i + np.uint64(1)]
            p = dot(indices, values, begin, end, w)
            value, beta, slope = smooth(loss, mu, y[i], s[i], p)
            part += value
            if slope > FLAT * s[i] * steepest:
                add_square(indices, values, begin, end, slope, square)
            if mu > 0.0:
                part_smoothed += own_gap(loss, y[i], s[i], p, beta)
            z[i] = beta
            if extrapolated:
                if beta != 0.0:
                    axpy(indices, values, begin, end, beta, columns_smooth)
                p_before = dot(indices, values, begin, end, before)
                _, old, old_slope = smooth(loss, mu, y[i], s[i], p_before)
                z[i] = nearest_in_domain(loss, y[i], s[i], old - old_slope * (p - p_before))
                if loss.logistic:
                    part_apart += 0.5 * (z[i] - beta) ** 2 / max(slope, TINY)
            if z[i] != 0.0:
                axpy(indices, values, begin, end, z[i], columns)
            if not loss.logistic:
                part_apart += own_gap(loss, y[i], s[i], p, z[i])
        total += part
        apart += part_apart
        smoothed += part_smoothed
    return total, apart, smoothed, rows


@kernel
def into_domain(loss: Loss, y: Vector, s: Vector, alpha: Vector) -> None:
    """Move dual variables of another objective into dom(g) of this one, in place: the start of a warm run.

    y, s, alpha : float64, shape (n,)
    """
    for i in range(len(alpha)):
        alpha[i] = nearest_in_domain(loss, y[i], s[i], alpha[i]) if s[i] > 0.0 else 0.0


@kernel
def advance(
    alpha: Vector,
    z: Vector,
    z_next: Vector,
    gamma_theta: float,
    fraction: float,
) -> None:
    """alpha := y + (gamma theta / p_k) (z_next - z) with y = (1 - gamma theta) alpha + gamma theta z; z := z_next.

    Paper, eq. afasfasfdsafa; p_k = 1 there. All arrays have shape (n,) and are updated in place.
    """
    step = gamma_theta / fraction
    for i in range(len(alpha)):
        y = (1.0 - gamma_theta) * alpha[i] + gamma_theta * z[i]
        alpha[i] = y + step * (z_next[i] - z[i])
        z[i] = z_next[i]
