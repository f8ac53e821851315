"""The gamma distribution and those derived from it: beta, Dirichlet, chi-square, F, Student's t, generalized normal,
and the unit ball.

All differentiate with respect to their shape parameters, by implicit reparameterisation of the gamma draws.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar, cast

from fxad import lax, numpy as fnp
from fxad.dtypes import DType
from fxad.errors import ParameterError, ShapeError, shown
from fxad.ir import Shape
from fxad.numpy.composites import call_composite
from fxad.numpy.creation import ShapeLike
from fxad.operations.arguments import to_int
from fxad.primitives.random import GammaSample
from fxad.random.arguments import (
    check_exact,
    check_fits,
    check_key,
    float_dtype,
    parameter_operand,
    result_shape,
)
from fxad.random.cipher import literal_of, uniform_01
from fxad.random.continuous import sample_exponential
from fxad.random.draw import draw
from fxad.random.gaussian import sample_normal
from fxad.random.keys import split_keys, split_to_shape
from fxad.random.uniforms import sample_signs
from fxad.tracing.array import Array, ArrayLike, aval_of
from fxad.tracing.tracer import bind

# keys, the square of a normal number, the cube of its image, a uniform number: of each element, its last proposal
_Proposal: TypeAlias = tuple[Array, Array, Array, Array]
_State = TypeVar("_State", bound=tuple[Array, ...])


def gamma(
    key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None, dtype: object = None, *, method: str = "exact"
) -> Array:
    """Draw from the gamma distribution of shape a and scale 1.

    Type:   u32[2]; positive a that broadcasts to `shape` -> floats.
    Rule:   differentiable with respect to a, once: the place of the draw in its distribution is kept. The second
            derivative is refused.
    Cost:   a loop over all elements until the last is accepted, some 5 to 10 rounds; each draws anew from its own key.
    Source: Marsaglia and Tsang, A simple method for generating gamma variables, 2000; bit for bit `jax.random.gamma`.
    Raises: DTypeError, ShapeError for a; ArgumentError, DTypeError, ShapeError for a key or a shape.
            ParameterError for a `method` but "exact".
    """
    check_exact("random.gamma", method)
    return draw("random.gamma", sample_gamma, key, shape, dtype, a=a)


def loggamma(
    key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None, dtype: object = None, *, method: str = "exact"
) -> Array:
    """Draw the logarithm of `gamma`, also where `gamma` underflows, as most draws do for small a.

    Type:   u32[2]; positive a that broadcasts to `shape` -> floats.
    Rule, Cost, Raises: as `gamma`.
    Source: bit for bit `jax.random.loggamma`.
    """
    check_exact("random.loggamma", method)
    return draw("random.loggamma", sample_loggamma, key, shape, dtype, a=a)


def sample_gamma(key: Array, a: Array, shape: Shape, dtype: DType) -> Array:
    """Return `gamma` inside a sampler."""
    return _gamma_per_element(key, fnp.broadcast_to(a.astype(dtype), shape), log=False)


def sample_loggamma(key: Array, a: Array, shape: Shape, dtype: DType) -> Array:
    """Return `loggamma` inside a sampler."""
    return _gamma_per_element(key, fnp.broadcast_to(a.astype(dtype), shape), log=True)


def _gamma_per_element(key: Array, a: Array, log: bool) -> Array:
    """Draw for each a with its own key, as a differentiable function of a."""
    concentration = lax.stop_gradient(a).ravel()
    drawn = _marsaglia_tsang(split_to_shape(key, concentration.shape), concentration, log)
    return bind(GammaSample(log), a, drawn.reshape(a.shape))[0]


def _marsaglia_tsang(keys: Array, a: Array, log: bool) -> Array:
    """Marsaglia and Tsang's method for vectors: repeat proposals until each is accepted; a < 1 is drawn from a + 1."""
    dtype, boosted = a.dtype, a < 1
    d = fnp.where(boosted, a + 1, a) - literal_of(1 / 3, dtype)
    c = literal_of(1 / 3, dtype) / lax.sqrt(d)

    def rejected(proposal: _Proposal) -> Array:
        _, square, cube, u = proposal
        outside = u >= 1 - literal_of(0.0331, dtype) * (square * square)
        return outside & (lax.log(u) >= square * 0.5 + d * ((1 - cube) + lax.log(cube)))

    def propose(proposal: _Proposal) -> _Proposal:
        again = rejected(proposal)
        following, key_x, key_u = split_keys(proposal[0], 3)
        x, v = _positive_proposals(key_x, c, again)
        proposed = following, x * x, v * v * v, uniform_01(key_u, (), dtype)
        return _update_active(again, proposed, proposal)

    proposals, last = split_keys(keys, 2)
    zero = literal_of(0, dtype, a.shape)
    not_yet = (proposals, zero, zero + 1, zero + 2)  # u = 2, where a proposal has u < 1: each element is rejected
    _, _, cube, _ = lax.while_loop(lambda proposal: rejected(proposal).any(), propose, not_yet)
    if log:
        boost = -sample_exponential(last, (), dtype)
        unboosted = ~boosted | (boost == 0)
        return lax.log(d) + lax.log(cube) + fnp.where(unboosted, 0, boost * (1 / a))
    boost = lax.pow(1 - uniform_01(last, (), dtype), 1 / a)
    return d * cube * fnp.where(boosted, boost, 1)


def _positive_proposals(keys: Array, c: Array, wanted: Array) -> tuple[Array, Array]:
    """Return normal x with 1 + c x > 0, and 1 + c x, for the elements in `wanted`."""

    def again(state: tuple[Array, Array, Array]) -> Array:
        return wanted & (state[2] <= 0)

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        following, key = split_keys(state[0], 2)
        x = sample_normal(key, (), c.dtype)
        return _update_active(again(state), (following, x, 1 + x * c), state)

    zero = literal_of(0, c.dtype, c.shape)
    _, x, v = lax.while_loop(lambda state: again(state).any(), step, (keys, zero, zero - 1))
    return x, v


def _update_active(where: Array, new: _State, old: _State) -> _State:
    """Return the new state of the active elements, and the old state of the others."""
    picked = [fnp.where(where if x.ndim == 1 else where[:, None], x, y) for x, y in zip(new, old, strict=True)]
    return cast("_State", tuple(picked))


# ------------------------------------------------------------------------------------------------ made of gamma draws


def beta(
    key: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: object = None,
    *,
    method: str = "exact",
) -> Array:
    """Draw from the beta distribution.

    Type:   u32[2]; positive a and b that broadcast to `shape` -> floats in [0, 1].
    Rule:   differentiable with respect to a and b, once.
    Source: x / (x + y) for `loggamma` x of a and y of b, both less the greater; bit for bit `jax.random.beta`.
    Raises: DTypeError, ShapeError for a and b; ArgumentError, DTypeError, ShapeError for a key or a shape.
            ParameterError for a `method` but "exact".
    """
    check_exact("random.beta", method)
    return draw("random.beta", _beta, key, shape, dtype, a=a, b=b)


def _beta(key: Array, a: Array, b: Array, shape: Shape, dtype: DType) -> Array:
    key_a, key_b = split_keys(key, 2)
    x, y = sample_loggamma(key_a, a, shape, dtype), sample_loggamma(key_b, b, shape, dtype)
    top = lax.max(x, y)
    x, y = lax.exp(x - top), lax.exp(y - top)
    return x / (x + y)


def dirichlet(key: ArrayLike, alpha: ArrayLike, shape: ShapeLike | None = None, dtype: object = None) -> Array:
    """Draw from the Dirichlet distribution: positive numbers along the last axis with sum 1.

    Type:   u32[2]; positive alpha of shape (*P, n), where P broadcasts to `shape` -> floats of shape (*shape, n).
    Rule:   differentiable with respect to alpha, once.
    Source: the softmax of `loggamma` of alpha; up to rounding `jax.random.dirichlet`.
    Raises: DTypeError, ShapeError for alpha; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    name = "random.dirichlet"
    chosen = float_dtype(name, dtype, alpha=alpha)
    own = aval_of(alpha, f"{name}: alpha").shape
    if not own:
        raise ShapeError(f"{name}: alpha must have at least one axis, got shape {own}")
    sizes = own[:-1] if shape is None else result_shape(name, shape)
    check_fits(name, sizes, "alpha, but for its last axis,", own[:-1])
    return call_composite(
        _dirichlet, (check_key(name, key), parameter_operand(alpha, chosen)), (*sizes, own[-1]), chosen
    )


def _dirichlet(key: Array, alpha: Array, shape: Shape, dtype: DType) -> Array:
    logs = sample_loggamma(key, alpha, shape, dtype)
    if 0 in shape:
        return logs
    parts = lax.exp(logs - lax.stop_gradient(logs).max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)


def chisquare(
    key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None, dtype: object = None, *, method: str = "exact"
) -> Array:
    """Draw from the chi-square distribution with df degrees of freedom.

    Type:   u32[2]; positive df that broadcasts to `shape` -> floats.
    Rule:   differentiable with respect to df, once.
    Source: 2 exp(`loggamma` of df / 2); bit for bit `jax.random.chisquare`.
    Raises: DTypeError, ShapeError for df; ArgumentError, DTypeError, ShapeError for a key or a shape.
            ParameterError for a `method` but "exact".
    """
    check_exact("random.chisquare", method)
    return draw("random.chisquare", _chisquare, key, shape, dtype, df=df)


def _chisquare(key: Array, df: Array, shape: Shape, dtype: DType) -> Array:
    return lax.exp(sample_loggamma(key, df.astype(dtype) / 2, shape, dtype)) * 2


def f(
    key: ArrayLike, dfnum: ArrayLike, dfden: ArrayLike, shape: ShapeLike | None = None, dtype: object = None
) -> Array:
    """Draw from the F distribution: the ratio of two `chisquare` numbers, each divided by its degrees of freedom.

    Type:   u32[2]; positive dfnum and dfden that broadcast to `shape` -> floats.
    Rule:   differentiable with respect to both, once.
    Source: bit for bit `jax.random.f`.
    Raises: DTypeError, ShapeError for dfnum, dfden; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.f", _f, key, shape, dtype, dfnum=dfnum, dfden=dfden)


def _f(key: Array, dfnum: Array, dfden: Array, shape: Shape, dtype: DType) -> Array:
    key_den, key_num = split_keys(key, 2)
    over = _chisquare(key_num, dfnum, shape, dtype) / dfnum.astype(dtype)
    return over / (_chisquare(key_den, dfden, shape, dtype) / dfden.astype(dtype))


def t(key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None, dtype: object = None) -> Array:
    """Draw from Student's t distribution with df degrees of freedom.

    Type:   u32[2]; positive df that broadcasts to `shape` -> floats.
    Rule:   differentiable with respect to df, once.
    Source: z sqrt(df / 2 / g) for normal z and `gamma` g of df / 2; bit for bit `jax.random.t`, but for an infinite df,
            where it is z.
    Raises: DTypeError, ShapeError for df; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.t", _t, key, shape, dtype, df=df)


student_t = t


def _t(key: Array, df: Array, shape: Shape, dtype: DType) -> Array:
    key_normal, key_gamma = split_keys(key, 2)
    half = df.astype(dtype) / 2
    infinite = fnp.isinf(half)
    finite = fnp.where(infinite, 1, half)
    ratio = fnp.where(infinite, 1, finite / sample_gamma(key_gamma, finite, shape, dtype))
    return sample_normal(key_normal, shape, dtype) * lax.sqrt(ratio)


def generalized_normal(key: ArrayLike, p: ArrayLike, shape: ShapeLike = (), dtype: object = None) -> Array:
    """Draw from the generalized normal distribution, with density proportional to exp(-|x|^p).

    Type:   u32[2]; positive p that broadcasts to `shape` -> floats.
    Rule:   differentiable with respect to p, once.
    Source: a random sign times exp(`loggamma` of 1 / p, divided by p); up to rounding `jax.random.generalized_normal`.
            That has 0 where `gamma` of 1 / p underflows: four draws of ten for p = 100 in float32.
    Raises: DTypeError, ShapeError for p; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.generalized_normal", _generalized_normal, key, shape, dtype, p=p)


def _generalized_normal(key: Array, p: Array, shape: Shape, dtype: DType) -> Array:
    key_size, key_sign = split_keys(key, 2)
    power = 1 / p.astype(dtype)
    log_size = sample_loggamma(key_size, power, shape, dtype) * power
    return sample_signs(key_sign, shape, dtype) * lax.exp(log_size)


def ball(key: ArrayLike, d: int, p: ArrayLike = 2, shape: ShapeLike = (), dtype: object = None) -> Array:
    """Draw uniform points of the unit ball of the p-norm in d dimensions.

    Type:   u32[2]; an int d; a positive number p -> floats of shape (*shape, d).
    Rule:   differentiable with respect to p, once.
    Source: Barthe, Guedon, Mendelson and Naor, A probabilistic approach to the geometry of the l_p^n-ball, 2005; up to
            rounding `jax.random.ball`.
    Raises: ParameterError for d < 1; DTypeError, ShapeError for p; all for a key or a shape.
    """
    name = "random.ball"
    chosen = float_dtype(name, dtype, p=p)
    sizes = result_shape(name, shape)
    d = to_int(name, "d", d)
    if d < 1:
        raise ParameterError(f"{name}: d must be a positive int, got {shown(d)}")
    check_fits(name, (), "p", aval_of(p, f"{name}: p").shape)
    return call_composite(_ball, (check_key(name, key), parameter_operand(p, chosen)), sizes, d, chosen)


def _ball(key: Array, p: Array, shape: Shape, d: int, dtype: DType) -> Array:
    key_direction, key_radius = split_keys(key, 2)
    p = p.astype(dtype)
    g = _generalized_normal(key_direction, p, (*shape, d), dtype)
    # above 0, as the powers of g may all underflow
    e = fnp.maximum(sample_exponential(key_radius, shape, dtype), fnp.finfo(dtype).tiny)
    return g / (((fnp.abs(g) ** p).sum(-1) + e) ** (1 / p))[..., None]


__all__ = ["ball", "beta", "chisquare", "dirichlet", "f", "gamma", "generalized_normal", "loggamma", "student_t", "t"]
