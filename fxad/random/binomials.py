"""The binomial and the multinomial distributions."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from fxad import lax, numpy as fnp
from fxad.dtypes import DType
from fxad.errors import ShapeError
from fxad.ir import Shape
from fxad.lax.cumulative import cumsum
from fxad.numpy.composites import call_composite
from fxad.numpy.creation import ShapeLike
from fxad.operations.arguments import to_int
from fxad.random.arguments import (
    check_fits,
    check_key,
    float_dtype,
    parameter_operand,
    result_shape,
)
from fxad.random.cipher import literal_of, uniform_01
from fxad.random.draw import draw
from fxad.random.keys import split_keys, split_to_shape
from fxad.random.rejection import FEW, deviance, repeat_until_accepted
from fxad.tracing.array import Array, ArrayLike, aval_of

_State: TypeAlias = tuple[Array, Array, Array]


def binomial(key: ArrayLike, n: ArrayLike, p: ArrayLike, shape: ShapeLike | None = None, dtype: object = None) -> Array:
    """Draw the number of successes in n trials of probability p.

    Type:   u32[2]; n >= 0 and p in [0, 1] that broadcast to `shape` -> floats; nan for other parameters.
    Rule:   constant almost everywhere in n and p: gradients are zero.
    Cost:   a loop until the last element is done: some 20 rounds where n min(p, 1 - p) <= 10, some 10 elsewhere.
    Source: Kachitvichyanukul and Schmeiser, Binomial random variate generation, 1988 (inversion, n p <= 10); Hormann,
            The generation of binomial random variates, 1993 (BTRS); up to rounding `jax.random.binomial` for n < 4096.
            Above, JAX's log-probabilities cancel, and Loader's form is computed (Fast and Accurate Computation of
            Binomial Probabilities, 2000).
    Raises: DTypeError, ShapeError for n and p; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.binomial", sample_binomial, key, shape, dtype, n=n, p=p)


def sample_binomial(key: Array, n: Array, p: Array, shape: Shape, dtype: DType) -> Array:
    """Return `binomial` inside a sampler."""
    n, p = [fnp.broadcast_to(lax.stop_gradient(x).astype(dtype), shape) for x in (n, p)]
    less_likely = p < 0.5
    q = fnp.where(less_likely, p, 1 - p)
    bad_n, bad_q = (n != n) | (n < 0), (q != q) | (q < 0)
    q = fnp.where(bad_q, 0.01, q)
    infinite = fnp.isinf(n)
    few = bad_n | (n * q <= 10)
    n = lax.floor(n)
    small = _inversion(key, fnp.where(few, n, 0), q)
    # JAX's placeholder takes part in its rounds by the plain formula
    large = _transformed_rejection(key, fnp.where(few, 10000, n), fnp.where(few, 0.5, q), few | (n < FEW))
    drawn = fnp.where(bad_n | bad_q, math.nan, fnp.where(few, small, large))
    drawn = fnp.where(infinite & ~(bad_n | bad_q), math.inf, drawn)
    return fnp.where(less_likely | bad_n | bad_q | infinite, drawn, n - drawn)


def _inversion(key: Array, n: Array, p: Array) -> Array:
    """Return the number of geometric waiting times that fit into n trials."""
    scale = lax.log1p(-p)

    def step(state: _State) -> _State:
        count, waited, key = state
        drawn, following = split_keys(key, 2)
        count = fnp.where(waited <= n, count + 1, count)
        return count, waited + lax.ceil(lax.log(uniform_01(drawn, p.shape, p.dtype)) / scale), following

    zero = literal_of(0, p.dtype, p.shape)
    return lax.while_loop(lambda state: (state[1] <= n).any(), step, (zero, zero, key))[0] - 1


def _transformed_rejection(key: Array, n: Array, p: Array, plain: Array) -> Array:
    """Draw by transformed rejection with squeeze, with the constants and steps of algorithm BTRS. `plain` marks the
    elements whose log-probability is computed as there."""
    deviation = lax.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = n * p + 0.5
    v_r = 0.92 - 4.2 / b
    r = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = lax.floor((n + 1) * p)

    def log_probability(k: Array) -> Array:
        """Loader's form, without what does not depend on k."""
        yes, no = fnp.clip(k, 1, n - 1), fnp.clip(n - k, 1, n - 1)
        return (
            -deviance(k, n * p)
            - deviance(n - k, n * (1 - p))
            - 0.5 * (lax.log(yes / n) + lax.log(no / n))
            - (1 / yes + 1 / no) / 12
        )

    def propose(u: Array, v: Array) -> tuple[Array, Array]:
        inside = 0.5 - abs(u)
        squeezed = (inside >= 0.07) & (v <= v_r)
        k = lax.floor((2 * a / inside + b) * u + c)
        refused = (k < 0) | (k > n)
        bound = (
            (m + 0.5) * lax.log((m + 1) / (r * (n - m + 1)))
            + (n + 1) * lax.log((n - m + 1) / (n - k + 1))
            + (k + 0.5) * lax.log(r * (n - k + 1) / (k + 1))
            + (_stirling_tail(m) + _stirling_tail(n - m) - _stirling_tail(k) - _stirling_tail(n - k))
        )
        # of many trials the terms cancel
        bound = fnp.where(plain, bound, log_probability(k) - log_probability(m))
        return k, squeezed | (~refused & (lax.log(v * alpha / (a / (inside * inside) + b)) <= bound))

    return repeat_until_accepted(key, p, propose)


# log k! less Stirling's formula, for k = 0, ..., 9
_TAILS: Final = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.010411265261972, 0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _stirling_tail(k: Array) -> Array:
    """Return log k! minus Stirling's formula log sqrt(2 pi) + (k + 1/2) log(k + 1) - (k + 1)."""
    square = (k + 1) * (k + 1)
    tail = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)
    for small, exact in enumerate(_TAILS):
        tail = fnp.where(k == small, exact, tail)
    return tail


def multinomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    *,
    shape: ShapeLike | None = None,
    dtype: object = None,
    unroll: int | bool = 1,
) -> Array:
    """Draw the number of occurrences of each of k outcomes in n trials.

    Type:   u32[2]; n >= 0 of a shape that broadcasts to P, p of shape (*P, k), probabilities up to a common factor
            along the last axis; or `shape` (*P, k) that both broadcast to -> floats of that shape, of sum n.
    Rule:   constant almost everywhere in n and p: gradients are zero.
    Cost:   `binomial` draws for one outcome after the other; `unroll` of them a trip of the loop.
    Source: Davis, The computer generation of multinomial random variates, 1993; up to rounding
            `jax.random.multinomial`.
    Raises: DTypeError, ShapeError for n and p; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    name = "random.multinomial"
    chosen = float_dtype(name, dtype, n=n, p=p)
    own = aval_of(p, f"{name}: p").shape
    sizes = own if shape is None else result_shape(name, shape)
    if not sizes:
        raise ShapeError(f"{name}: p must have at least one axis, got shape {sizes}")
    check_fits(name, sizes, "p", own)
    check_fits(name, sizes[:-1], "n", aval_of(n, f"{name}: n").shape)
    return call_composite(
        _multinomial,
        (check_key(name, key), parameter_operand(n, chosen), parameter_operand(p, chosen)),
        sizes,
        chosen,
        unroll if isinstance(unroll, bool) else to_int(name, "unroll", unroll),
    )


def _multinomial(key: Array, n: Array, p: Array, shape: Shape, dtype: DType, unroll: int) -> Array:
    n = fnp.broadcast_to(lax.stop_gradient(n).astype(dtype), shape[:-1])
    p = fnp.moveaxis(fnp.broadcast_to(lax.stop_gradient(p).astype(dtype), shape), -1, 0)
    left = cumsum(p, 0, reverse=True)
    ratios = fnp.clip(p / fnp.where(left == 0, 1, left), 0, 1)

    def step(rest: Array, outcome: tuple[Array, Array]) -> tuple[Array, Array]:
        ratio, own = outcome
        count = sample_binomial(own, rest, ratio, shape[:-1], dtype)
        return rest - count, count

    _, counts = lax.scan(step, n, (ratios, split_to_shape(key, shape[-1:])), unroll=max(unroll, 1))
    return fnp.moveaxis(counts, 0, -1)


__all__ = ["binomial", "multinomial"]
