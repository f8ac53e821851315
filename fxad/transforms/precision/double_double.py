"""Pairs of float64 as numbers of about 106 bits, in NumPy: the shadow of programs in float64.

A pair (high, rest) stands for their sum, with |rest| at most half a unit in the last place of high.

Source: Dekker, A floating-point technique for extending the available precision (1971); Hida, Li, Bailey, Library for
        double-double and quad-double arithmetic (2001); Newton's method for inverse functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import factorial
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from fxad.ir import NDArray, Primitive
from fxad.primitives.cumulative import CumSum
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise import arithmetic, exponential, powers, sigmoid, trigonometric
from fxad.primitives.elementwise.select import Clamp
from fxad.primitives.families import of_family
from fxad.primitives.reduce import ReduceMax, ReduceMin
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import ReduceSum
from fxad.transforms.precision.local_errors import copies

Floats: TypeAlias = npt.NDArray[np.float64]
Pair: TypeAlias = tuple[Floats, Floats]

_LN2: Final = (0.6931471805599453, 2.3190468138462996e-17)
_LN10: Final = (2.302585092994046, -2.1707562233822494e-16)
# pi / 2 in three parts
_HALF_PI: Final = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
_LARGE: Final = 1e5  # an angle whose multiple of pi / 2 is exact in the reduction
_HALVINGS: Final = 9


def pair(high: object, rest: object = 0.0) -> Pair:
    """Return a pair of arrays."""
    h = np.asarray(high, np.float64)
    return h, np.broadcast_to(np.asarray(rest, np.float64), h.shape)


def _normal(high: Floats, rest: Floats) -> Pair:
    total = high + rest
    return total, np.where(np.isfinite(total), rest - (total - high), 0.0)


def _two_sum(a: Floats, b: Floats) -> Pair:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Floats, b: Floats) -> Pair:
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: Floats) -> Pair:
    """Return numbers as sums of their leading 26 bits and the others. Unlike Dekker's split, it does not overflow."""
    bits = np.array(a, np.float64, order="C").view(np.int64)
    high = (bits & -(1 << 27)).view(np.float64)
    return high, a - high


def add(x: Pair, y: Pair) -> Pair:
    """Return x + y."""
    total, rest = _two_sum(x[0], y[0])
    low, rest_low = _two_sum(x[1], y[1])
    total, rest = _normal(total, rest + low)
    return _normal(total, rest + rest_low)


def neg(x: Pair) -> Pair:
    """Return -x."""
    return -x[0], -x[1]


def sub(x: Pair, y: Pair) -> Pair:
    """Return x - y."""
    return add(x, neg(y))


def mul(x: Pair, y: Pair) -> Pair:
    """Return x y."""
    product, rest = _two_product(x[0], y[0])
    return _normal(product, rest + (x[0] * y[1] + x[1] * y[0]))


def div(x: Pair, y: Pair) -> Pair:
    """Return x / y, by long division."""
    quotient = x[0] / y[0]
    remainder = sub(x, mul(y, pair(quotient)))
    correction = remainder[0] / y[0]
    remainder = sub(remainder, mul(y, pair(correction)))
    high, rest = _normal(quotient, correction)
    return add((high, rest), pair(np.where(np.isfinite(quotient), remainder[0] / y[0], 0.0)))


def sqrt(x: Pair) -> Pair:
    """Return the square root, by a step of Newton's method."""
    root = np.sqrt(x[0])
    remainder = sub(x, mul(pair(root), pair(root)))
    return _normal(root, np.where((root > 0) & np.isfinite(root), remainder[0] / (2.0 * root), 0.0))


def scaled(x: Pair, factor: float) -> Pair:
    """Return x times a power of two."""
    return x[0] * factor, x[1] * factor


def expm1(x: Pair) -> Pair:
    """Return exp(x) - 1 where |x| is below a half, or exp(x) - 1 by subtraction."""
    small = np.abs(x[0]) < 0.5
    series = _expm1_small(_where(small, x, pair(np.zeros_like(x[0]))))
    return _where(small, series, sub(exp(x), pair(np.ones_like(x[0]))))


def _expm1_small(x: Pair) -> Pair:
    r = scaled(x, 2.0**-_HALVINGS)
    total = pair(np.full_like(r[0], 1 / factorial(10)))
    for k in range(9, 0, -1):
        total = add(mul(total, r), div(pair(np.ones_like(r[0])), pair(np.full_like(r[0], float(factorial(k))))))
    total = mul(total, r)
    for _ in range(_HALVINGS):  # expm1(2 r) = 2 expm1(r) + expm1(r)^2
        total = add(scaled(total, 2.0), mul(total, total))
    return total


def exp(x: Pair) -> Pair:
    """Return the exponential."""
    inside = np.isfinite(np.exp(x[0])) & (x[0] > -700.0)
    y = _where(inside, x, pair(np.zeros_like(x[0])))
    k = np.round(y[0] / _LN2[0])
    r = sub(y, mul(pair(k), pair(np.full_like(k, _LN2[0]), _LN2[1])))
    value = add(_expm1_small(r), pair(np.ones_like(k)))
    power = k.astype(np.int64)
    value = np.ldexp(value[0], power), np.ldexp(value[1], power)
    return _where(inside, value, pair(np.exp(x[0])))


def log(x: Pair) -> Pair:
    """Return the natural logarithm, by a step of Newton's method."""
    y = pair(np.log(x[0]))
    inside = np.isfinite(y[0]) & (np.abs(y[0]) < 700.0)
    y = _where(inside, y, pair(np.zeros_like(y[0])))
    step = sub(mul(x, exp(neg(y))), pair(np.ones_like(y[0])))
    return _where(inside, add(y, step), pair(np.log(x[0])))


def log1p(x: Pair) -> Pair:
    """Return log(1 + x)."""
    return _newton(np.log1p, lambda y: (expm1(y), exp(y)))(x)


def _newton(
    first: Callable[[Floats], Floats], of_result: Callable[[Pair], tuple[Pair, Pair]]
) -> Callable[[Pair], Pair]:
    """Return an inverse function: a first approximation, and a step with the function and its derivative."""

    def inverse(x: Pair) -> Pair:
        y = pair(first(x[0]))
        value, slope = of_result(y)
        step = div(sub(value, x), slope)
        usable = np.isfinite(step[0]) & (np.abs(step[0]) <= 1e-8 * np.abs(y[0]) + 1e-300)
        return _where(usable, sub(y, step), y)

    return inverse


def sin_cos(x: Pair) -> tuple[Pair, Pair]:
    """Return sin(x) and cos(x). A large angle is that of its leading part."""
    inside = np.abs(x[0]) < _LARGE
    y = _where(inside, x, pair(np.zeros_like(x[0])))
    k = np.round(y[0] / _HALF_PI[0])
    r = sub(y, mul(pair(k), pair(np.full_like(k, _HALF_PI[0]))))
    r = sub(r, mul(pair(k), pair(np.full_like(k, _HALF_PI[1]), _HALF_PI[2])))
    square = mul(r, r)
    sine, cosine = _series(square, 1), _series(square, 0)
    sine = mul(sine, r)
    quarter = k.astype(np.int64) % 4
    s = _where(quarter % 2 == 0, sine, cosine)
    c = _where(quarter % 2 == 0, cosine, sine)
    s = _where(quarter >= 2, neg(s), s)
    c = _where((quarter == 1) | (quarter == 2), neg(c), c)
    return _where(inside, s, pair(np.sin(x[0]))), _where(inside, c, pair(np.cos(x[0])))


def _series(square: Pair, first: int) -> Pair:
    """Return the sum of (-1)^k square^k / (2 k + first)!."""
    one = pair(np.ones_like(square[0]))
    total = pair(np.zeros_like(square[0]))
    for k in range(14, -1, -1):
        term = div(one, _factorial(2 * k + first, square[0]))
        total = sub(term, mul(square, total))
    return total


def _factorial(n: int, like: Floats) -> Pair:
    high = float(factorial(n))
    return pair(np.full_like(like, high), float(factorial(n) - int(high)))


def _where(mask: npt.NDArray[np.bool_], x: Pair, y: Pair) -> Pair:
    return np.where(mask, x[0], y[0]), np.where(mask, x[1], y[1])


def _quotient(f: Callable[[Pair], Pair], g: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    return lambda x: div(f(x), g(x))


def _ones(x: Pair) -> Pair:
    return pair(np.ones_like(x[0]))


def _tan(x: Pair) -> Pair:
    s, c = sin_cos(x)
    return div(s, c)


def _sinh(x: Pair) -> Pair:
    e = expm1(_abs(x))  # sinh = (e + e / (1 + e)) / 2, and odd; 1 + e cancels far below 0
    value = scaled(add(e, div(e, add(e, _ones(x)))), 0.5)
    value = _where(x[0] < 0, neg(value), value)
    return _where(np.isfinite(value[0]), value, pair(np.sinh(x[0])))


def _cosh(x: Pair) -> Pair:
    value = scaled(add(exp(x), exp(neg(x))), 0.5)
    return _where(np.isfinite(value[0]), value, pair(np.cosh(x[0])))


def _tanh(x: Pair) -> Pair:
    e = expm1(scaled(x, 2.0))
    value = div(e, add(e, scaled(_ones(x), 2.0)))
    return _where(np.isfinite(value[0]) & (np.abs(x[0]) < 300), value, pair(np.tanh(x[0])))


def _logistic(x: Pair) -> Pair:
    return div(_ones(x), add(_ones(x), exp(neg(x))))


def _abs(x: Pair) -> Pair:
    return _where(x[0] < 0, neg(x), x)


def _pow(x: Pair, y: Pair) -> Pair:
    """Return x to the power y. Of a negative base, an integer power alone is a number."""
    integer = (y[0] == np.rint(y[0])) & (y[1] == np.rint(y[1]))
    usable = (x[0] > 0) | ((x[0] < 0) & integer)
    value = exp(mul(y, log(_where(usable, _abs(x), _ones(x)))))
    value = _where((x[0] < 0) & (np.mod(y[0], 2) + np.mod(y[1], 2) == 1), neg(value), value)
    return _where(usable, value, pair(np.power(x[0], y[0])))


def _hypot(x: Pair, y: Pair) -> Pair:
    """Return the root of the sum of squares, of operands that are first divided by a power of two near the larger."""
    exponent = np.frexp(np.maximum(np.abs(x[0]), np.abs(y[0])))[1]
    x, y = _times_power_of_two(x, -exponent), _times_power_of_two(y, -exponent)
    return _times_power_of_two(sqrt(add(mul(x, x), mul(y, y))), exponent)


def _times_power_of_two(x: Pair, exponent: npt.NDArray[np.int32]) -> Pair:
    return np.ldexp(x[0], exponent), np.ldexp(x[1], exponent)


def _max(x: Pair, y: Pair) -> Pair:
    return _where(_is_greater(x, y) | np.isnan(x[0]), x, y)


def _min(x: Pair, y: Pair) -> Pair:
    return _where(_is_greater(y, x) | np.isnan(x[0]), x, y)


def _is_greater(x: Pair, y: Pair) -> npt.NDArray[np.bool_]:
    greater: npt.NDArray[np.bool_] = (x[0] > y[0]) | ((x[0] == y[0]) & (x[1] > y[1]))
    return greater


def _integer_pow(x: Pair, n: int) -> Pair:
    value, base, k = _ones(x), x, abs(n)
    while k:
        value = mul(value, base) if k & 1 else value
        base = mul(base, base) if k > 1 else base
        k >>= 1
    return div(_ones(x), value) if n < 0 else value


def _sum(x: Pair, axes: Sequence[int]) -> Pair:
    """Return the sum over axes, in a tree."""
    high, rest = [np.moveaxis(part, axes, range(len(axes))) for part in x]
    shape = high.shape[len(axes) :]
    n = int(np.prod(high.shape[: len(axes)]))
    terms = high.reshape(n, *shape), rest.reshape(n, *shape)
    if n == 0:
        return pair(np.zeros(shape))
    while len(terms[0]) > 1:
        m = len(terms[0]) // 2
        half = add((terms[0][:m], terms[1][:m]), (terms[0][m : 2 * m], terms[1][m : 2 * m]))
        terms = np.concatenate([half[0], terms[0][2 * m :]]), np.concatenate([half[1], terms[1][2 * m :]])
    return terms[0][0], terms[1][0]


def _product(x: Pair, axes: Sequence[int]) -> Pair:
    high, rest = [np.moveaxis(part, axes, range(len(axes))) for part in x]
    n = int(np.prod(high.shape[: len(axes)]))
    terms = high.reshape(n, *high.shape[len(axes) :]), rest.reshape(n, *high.shape[len(axes) :])
    value = pair(np.ones(high.shape[len(axes) :]))
    for k in range(n):
        value = mul(value, (terms[0][k], terms[1][k]))
    return value


def _cumulative_sum(prim: CumSum, x: Pair) -> Pair:
    high, rest = np.moveaxis(x[0], prim.axis, 0), np.moveaxis(x[1], prim.axis, 0)
    order = range(len(high))[:: -1 if prim.reverse else 1]
    out = np.zeros_like(high), np.zeros_like(high)
    total = pair(np.zeros(high.shape[1:]))
    for k in order:
        total = add(total, (high[k], rest[k]))
        out[0][k], out[1][k] = total
    return np.moveaxis(out[0], 0, prim.axis), np.moveaxis(out[1], 0, prim.axis)


def _dot(prim: DotGeneral, x: Pair, y: Pair) -> Pair:
    """Return the product, summed over the contracted indices one by one."""

    def arranged(part: Floats, batch: tuple[int, ...], contract: tuple[int, ...]) -> Floats:
        uncontracted = [k for k in range(part.ndim) if k not in (*batch, *contract)]
        transposed = part.transpose(*batch, *contract, *uncontracted)
        n_b = int(np.prod([part.shape[k] for k in batch]))
        n_c = int(np.prod([part.shape[k] for k in contract]))
        return transposed.reshape(n_b, n_c, int(np.prod([part.shape[k] for k in uncontracted])))

    xs = [arranged(part, prim.lhs_batch, prim.lhs_contract) for part in x]
    ys = [arranged(part, prim.rhs_batch, prim.rhs_contract) for part in y]
    n_b, n_c, rows = xs[0].shape
    total = pair(np.zeros((n_b, rows, ys[0].shape[2])))
    for k in range(n_c):
        column = xs[0][:, k, :, None], xs[1][:, k, :, None]
        total = add(total, mul(column, (ys[0][:, k, None, :], ys[1][:, k, None, :])))
    shape = (
        *[x[0].shape[k] for k in prim.lhs_batch],
        *[n for k, n in enumerate(x[0].shape) if k not in (*prim.lhs_batch, *prim.lhs_contract)],
        *[n for k, n in enumerate(y[0].shape) if k not in (*prim.rhs_batch, *prim.rhs_contract)],
    )
    return total[0].reshape(shape), total[1].reshape(shape)


def _extremum(prim: ReduceMax | ReduceMin, x: Pair) -> Pair:
    choose = np.max if isinstance(prim, ReduceMax) else np.min
    axes = tuple(prim.axes)
    worst = -np.inf if isinstance(prim, ReduceMax) else np.inf
    high = choose(x[0], axis=axes, keepdims=True)
    rest = choose(np.where(x[0] == high, x[1], worst), axis=axes)
    return np.squeeze(high, axes), np.where(np.isfinite(rest), rest, 0.0)


def _clamp(low: Pair, x: Pair, high: Pair) -> Pair:
    return _min(_max(x, low), high)


PairRule: TypeAlias = "Callable[..., Pair]"

_OF_OPERANDS: Final[Mapping[type[Primitive], PairRule]] = MappingProxyType(
    {
        arithmetic.Add: add,
        arithmetic.Sub: sub,
        arithmetic.Mul: mul,
        arithmetic.MulNoNan: lambda x, y: _where(y[0] == 0, y, mul(x, y)),
        arithmetic.Div: div,
        arithmetic.Neg: neg,
        arithmetic.Max: _max,
        arithmetic.Min: _min,
        Clamp: _clamp,
        powers.Abs: _abs,
        powers.Sqrt: sqrt,
        powers.Rsqrt: _quotient(_ones, sqrt),
        powers.Square: lambda x: mul(x, x),
        powers.Pow: _pow,
        powers.Hypot: _hypot,
        powers.Cbrt: _newton(np.cbrt, lambda y: (_integer_pow(y, 3), mul(pair(np.full_like(y[0], 3.0)), mul(y, y)))),
        exponential.Exp: exp,
        exponential.Exp2: lambda x: exp(mul(x, pair(np.full_like(x[0], _LN2[0]), _LN2[1]))),
        exponential.Expm1: expm1,
        exponential.Log: log,
        exponential.Log1p: log1p,
        exponential.Log2: lambda x: div(log(x), pair(np.full_like(x[0], _LN2[0]), _LN2[1])),
        exponential.Log10: lambda x: div(log(x), pair(np.full_like(x[0], _LN10[0]), _LN10[1])),
        sigmoid.Logistic: _logistic,
        sigmoid.Tanh: _tanh,
        trigonometric.Sin: lambda x: sin_cos(x)[0],
        trigonometric.Cos: lambda x: sin_cos(x)[1],
        trigonometric.Tan: _tan,
        trigonometric.Sinh: _sinh,
        trigonometric.Cosh: _cosh,
        trigonometric.Asin: _newton(np.arcsin, sin_cos),
        trigonometric.Acos: _newton(np.arccos, lambda y: (sin_cos(y)[1], neg(sin_cos(y)[0]))),
        trigonometric.Atan: _newton(np.arctan, lambda y: (_tan(y), add(_ones(y), mul(_tan(y), _tan(y))))),
        trigonometric.Asinh: _newton(np.arcsinh, lambda y: (_sinh(y), _cosh(y))),
        trigonometric.Acosh: _newton(np.arccosh, lambda y: (_cosh(y), _sinh(y))),
        trigonometric.Atanh: _newton(np.arctanh, lambda y: (_tanh(y), sub(_ones(y), mul(_tanh(y), _tanh(y))))),
    }
)

_OF_PARAMETERS: Final[Mapping[type[Primitive], PairRule]] = MappingProxyType(
    {
        powers.IntegerPow: lambda prim, x: _integer_pow(x, prim.n),
        ReduceSum: lambda prim, x: _sum(x, prim.axes),
        ReduceProd: lambda prim, x: _product(x, prim.axes),
        ReduceMax: _extremum,
        ReduceMin: _extremum,
        CumSum: _cumulative_sum,
        DotGeneral: _dot,
    }
)


def evaluate(prim: Primitive, operands: Sequence[NDArray | Pair]) -> tuple[list[NDArray | Pair], bool]:
    """Return the results of an equation over pairs, and True if they have more than 53 bits.

    Operands that are no pairs are integers and bools. Without a rule, and for the elements for which a rule has no
    finite result (infinite operands, intermediate values that overflow), the leading parts are computed in float64.
    """
    high = [np.asarray(x) for x in prim.impl(*[x[0] if isinstance(x, tuple) else x for x in operands])]
    rule = of_family(_OF_OPERANDS, type(prim))
    if rule is None and (of_parameters := of_family(_OF_PARAMETERS, type(prim))) is not None:
        rule = partial(of_parameters, prim)
    if rule is not None and all([isinstance(x, tuple) for x in operands]):
        value, (in_float64,) = rule(*operands), high
        usable = np.isfinite(value[0])
        return [_where(usable, value, pair(in_float64))], not np.any(~usable & np.isfinite(in_float64))
    if copies(prim):
        rest = [np.asarray(x) for x in prim.impl(*[x[1] if isinstance(x, tuple) else x for x in operands])]
        return [pair(h, r) if h.dtype == np.float64 else h for h, r in zip(high, rest, strict=True)], True
    exact = not any([isinstance(x, tuple) and bool(np.any(x[1])) for x in operands]) and _is_exact(prim)
    return [pair(h) if h.dtype == np.float64 else h for h in high], exact


def _is_exact(prim: Primitive) -> bool:
    return isinstance(prim, arithmetic.Rem)
