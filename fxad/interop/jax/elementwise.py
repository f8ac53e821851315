"""Elementwise primitives of JAX."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from fxad import dtypes, lax
from fxad.api.custom_function import custom_jvp
from fxad.interop.jax.equations import EqnTranslation, Equation, JaxValue, Rows, array, arrays, unchanged, with_params
from fxad.numpy.unary import log2
from fxad.tracing.array import Array


def _elementwise(fn: Callable[..., object]) -> EqnTranslation:
    """Return the row of a function that takes arrays of one shape, and nothing else."""

    def row(eqn: Equation, *xs: JaxValue) -> object:
        return fn(*eqn.fitted(*xs))

    return row


def _pow(eqn: Equation, x: JaxValue, y: JaxValue) -> Array:
    x, y = array(x), array(y)
    if y.dtype != x.dtype:  # an integer exponent
        y = lax.convert_element_type(y, x.dtype)
    return lax.pow(*eqn.fitted(x, y))


def _conj(eqn: Equation, x: JaxValue) -> Array:
    if array(x).dtype in dtypes.COMPLEX:
        return lax.conj(x)
    return lax.complex(x, lax.full(x.shape, 0, x.dtype))


@custom_jvp
def _one_minus_square(x: Array) -> Array:
    """Return 1 - x^2 without the rounding of the square, which is all of the result where x is near 1 or -1."""
    one = lax.full(x.shape, 1, x.dtype)
    return lax.mul(lax.add(one, x), lax.sub(one, x))


@_one_minus_square.defjvp
def _one_minus_square_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """Return -2 x: the derivative of the product is 0 where 1 + x rounds to 1."""
    (x,), (t,) = primals, tangents
    return _one_minus_square(x), lax.mul(t, lax.mul(lax.full(x.shape, -2, x.dtype), x))


def _polynomial(eqn: Equation, x: JaxValue, *coefficients: JaxValue) -> JaxValue:
    """Horner's rule. The coefficient of the lowest degree is the first."""
    x, *lower, highest = eqn.fitted(x, *coefficients)
    total = highest
    for c in reversed(lower):
        total = lax.add(lax.mul(total, x), c)
    return total


def _mulhi(eqn: Equation, x: JaxValue, y: JaxValue) -> Array:
    """Return the upper half of a product."""
    bits = 8 * eqn.dtype.itemsize
    if bits > 32:
        raise eqn.refuse("fxad has no product of 128 bits", "multiply integers of 32 bits")
    wide = dtypes.int64 if eqn.dtype in dtypes.SIGNED else dtypes.uint64
    a, b = [lax.convert_element_type(v, wide) for v in eqn.fitted(x, y)]
    product = lax.mul(a, b)
    high = lax.full(eqn.shape, bits, wide)
    shifted = lax.shift_right_arithmetic if wide is dtypes.int64 else lax.shift_right_logical
    return lax.convert_element_type(shifted(product, high), eqn.dtype)


def _ordered(eqn: Equation, value: JaxValue) -> Array:
    """Return integers in IEEE 754's total order of floating values."""
    x = array(value)
    if x.dtype not in dtypes.FLOATING:
        if x.dtype in dtypes.COMPLEX:
            raise eqn.refuse("fxad has no total order of complex numbers")
        return x
    signed = dtypes.SIGNED_OF_SIZE[x.dtype.itemsize]
    bits = lax.bitcast_convert_type(x, signed)
    least = dtypes.RANGES[signed][1]
    flipped = lax.bitwise_xor(bits, lax.full(x.shape, least, signed))
    return lax.select(lax.lt(bits, lax.full(x.shape, 0, signed)), flipped, bits)


def _total(compare: Callable[..., object]) -> EqnTranslation:
    def row(eqn: Equation, x: JaxValue, y: JaxValue) -> object:
        return compare(*eqn.fitted(_ordered(eqn, x), _ordered(eqn, y)))

    return row


_SAME_NAME: Final = (
    lax.abs, lax.acos, lax.acosh, lax.add, lax.asin, lax.asinh, lax.atan, lax.atan2, lax.atanh, lax.bessel_i0e,
    lax.bessel_i1e, lax.cbrt, lax.ceil, lax.clz, lax.complex, lax.cos, lax.cosh, lax.digamma, lax.div, lax.eq,
    lax.erf, lax.erf_inv, lax.erfc, lax.exp, lax.exp2, lax.expm1, lax.floor, lax.ge, lax.gt, lax.igamma,
    lax.igamma_grad_a, lax.igammac, lax.imag, lax.is_finite, lax.le, lax.lgamma, lax.log, lax.log1p, lax.logistic,
    lax.lt, lax.max, lax.min, lax.mul, lax.ne, lax.neg, lax.nextafter, lax.polygamma, lax.population_count, lax.real,
    lax.rem, lax.rsqrt, lax.shift_left, lax.shift_right_arithmetic, lax.shift_right_logical, lax.sign, lax.sin,
    lax.sinh, lax.sqrt, lax.square, lax.sub, lax.tan, lax.tanh, lax.zeta, lax.stop_gradient,
)  # fmt: skip

ELEMENTWISE: Final[Rows] = MappingProxyType({
    **{fn.__name__: _elementwise(fn) for fn in _SAME_NAME},
    "add_any": _elementwise(lax.add),
    "and": _elementwise(lax.bitwise_and),
    "or": _elementwise(lax.bitwise_or),
    "xor": _elementwise(lax.bitwise_xor),
    "not": _elementwise(lax.bitwise_not),
    "regularized_incomplete_beta": _elementwise(lax.betainc),
    "pow": _pow,
    "conj": _conj,
    "mulhi": _mulhi,
    "log2": _elementwise(log2),
    "polynomial": _polynomial,
    "one_minus_square": lambda eqn, x: _one_minus_square(array(x)),
    "eq_to": _total(lax.eq),
    "lt_to": _total(lax.lt),
    "le_to": _total(lax.le),
    "integer_pow": with_params(lax.integer_pow, "y"),
    "round": lambda eqn, x: lax.round(x, eqn.params["rounding_method"].name.lower()),
    "convert_element_type": lambda eqn, x: lax.convert_element_type(x, eqn.dtype),
    "bitcast_convert_type": lambda eqn, x: lax.bitcast_convert_type(x, eqn.dtype),
    "reduce_precision": with_params(lax.reduce_precision, "exponent_bits", "mantissa_bits"),
    "clamp": with_params(lax.clamp),
    "select_n": _elementwise(lax.select_n),
    "copy": unchanged,
    "copy_p": unchanged,
    "optimization_barrier": lambda eqn, *xs: lax.optimization_barrier(arrays(xs)),
})  # fmt: skip
