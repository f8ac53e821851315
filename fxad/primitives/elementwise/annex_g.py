"""Functions of complex numbers at infinities, nans, zeros and branch cuts, in StableHLO.

XLA's own functions are right where both parts are finite and nonzero. Elsewhere they lose signs of zeros and give nan
for infinities. Here each function is computed in one quadrant or half-plane with its special cases, and extended by
symmetry: `f(conj z) = conj f(z)` for all, `f(-z) = -f(z)` for odd ones. Some of the cases:

    sqrt(-4 - 0i) = 0 - 2i            the sign of a zero selects the side of the branch cut
    exp(-inf + nan i) = 0 + 0i
    sinh(0 + inf i) = 0 + nan i
    sqrt(1 + inf i) = inf + inf i

In this file z = a + bi.

Source: C99, annex G.6; the Python array API standard, "special cases" of the elementwise functions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log, nan, pi
from typing import ClassVar, TypeAlias, final

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Aval, Avals, Hlo, HloValue, HloValues, Lit
from fxad.primitives.elementwise.family import Unary
from fxad.primitives.stablehlo import bitcast_to_int, lower_compare

RealAndImag: TypeAlias = "tuple[HloReal, HloReal]"


@final
class HloReal:
    """A real or bool value in StableHLO, with Python's operators. Numbers take its type. `formula.Formula` has the
    same operators for equations."""

    __slots__ = ("aval", "hlo", "value")

    def __init__(self, hlo: Hlo, value: HloValue, aval: Aval) -> None:
        self.hlo = hlo
        self.value = value
        self.aval = aval

    def op(self, name: str, *others: HloReal) -> HloReal:
        """Return a StableHLO or CHLO operation whose result has the type of this."""
        full = name if "." in name else f"stablehlo.{name}"
        operands = [self.value, *[o.value for o in others]]
        return HloReal(self.hlo, self.hlo.op(full, operands, (self.aval,))[0], self.aval)

    def like(self, value: float) -> HloReal:
        """Return a constant of the type of this."""
        return HloReal(self.hlo, self.hlo.constant(Lit.of(value, self.aval)), self.aval)

    def _of_type(self, other: HloReal | float) -> HloReal:
        return other if isinstance(other, HloReal) else self.like(other)

    def _compared(self, direction: str, other: HloReal | float) -> HloReal:
        (out,) = lower_compare(self.hlo, direction, (self.value, self._of_type(other).value), self.aval)
        return HloReal(self.hlo, out, self.aval.with_dtype(dtypes.bool_))

    def equals(self, other: HloReal | float) -> HloReal:
        """Return a bool, True where the two are equal."""
        return self._compared("EQ", other)

    def differs(self, other: HloReal | float) -> HloReal:
        """Return a bool, True where the two differ; nan differs from itself."""
        return self._compared("NE", other)

    def __lt__(self, other: HloReal | float) -> HloReal:
        return self._compared("LT", other)

    def __gt__(self, other: HloReal | float) -> HloReal:
        return self._compared("GT", other)

    def __ge__(self, other: HloReal | float) -> HloReal:
        return self._compared("GE", other)

    @property
    def is_nan(self) -> HloReal:
        """True where this is nan."""
        return self.differs(self)

    @property
    def is_finite(self) -> HloReal:
        """True where this is neither infinite nor nan."""
        aval = self.aval.with_dtype(dtypes.bool_)
        return HloReal(self.hlo, self.hlo.op("stablehlo.is_finite", (self.value,), (aval,))[0], aval)

    @property
    def negative(self) -> HloReal:
        """True where the sign bit is set."""
        as_int = HloReal(self.hlo, *bitcast_to_int(self.hlo, self.value, self.aval))
        return as_int < 0

    def where(self, yes: HloReal | float, no: HloReal) -> HloReal:
        """Return `yes` where this holds, else `no`."""
        operands = (self.value, no._of_type(yes).value, no.value)
        return HloReal(self.hlo, self.hlo.op("stablehlo.select", operands, (no.aval,))[0], no.aval)

    def __and__(self, other: HloReal) -> HloReal:
        return self.op("and", other)

    def __or__(self, other: HloReal) -> HloReal:
        return self.op("or", other)

    def __invert__(self) -> HloReal:
        return self.op("not")

    def __neg__(self) -> HloReal:
        return self.op("negate")

    def __abs__(self) -> HloReal:
        return self.op("abs")

    def __add__(self, other: HloReal) -> HloReal:
        return self.op("add", other)

    def __sub__(self, other: HloReal) -> HloReal:
        return self.op("subtract", other)

    def __mul__(self, other: HloReal) -> HloReal:
        return self.op("multiply", other)

    def __truediv__(self, other: HloReal) -> HloReal:
        return self.op("divide", other)

    def __rtruediv__(self, other: float) -> HloReal:
        return self.like(other) / self

    def __radd__(self, other: float) -> HloReal:
        return self.like(other) + self

    def __rsub__(self, other: float) -> HloReal:
        return self.like(other) - self


# A function of the parts of z. Not a text: the annotations of primitives are evaluated in other modules.
ComplexFunction: TypeAlias = Callable[[HloReal, HloReal], tuple[HloReal, HloReal]]


def _joined(re: HloReal, im: HloReal) -> HloValue:
    aval = re.aval.with_dtype(dtypes.complex_of(re.aval.dtype))
    return re.hlo.op("stablehlo.complex", (re.value, im.value), (aval,))[0]


def _parts(hlo: Hlo, z: HloValue, aval: Aval) -> RealAndImag:
    part = aval.with_dtype(dtypes.real_part(aval.dtype))
    re, im = [hlo.op(f"stablehlo.{name}", (z,), (part,))[0] for name in ("real", "imag")]
    return HloReal(hlo, re, part), HloReal(hlo, im, part)


def _xla(name: str, a: HloReal, b: HloReal) -> RealAndImag:
    """XLA's function of a + bi."""
    z = _joined(a, b)
    aval = a.aval.with_dtype(dtypes.complex_of(a.aval.dtype))
    return _parts(a.hlo, a.hlo.op(name, (z,), (aval,))[0], aval)


def _negate_where(mask: HloReal, v: HloReal) -> HloReal:
    return mask.where(-v, v)


# ------------------------------------------------------- in the quadrant a >= 0, b >= 0 (their signs are applied after)


def _large_exponential(a: HloReal, re: HloReal, im: HloReal, halved: float) -> tuple[HloReal, RealAndImag]:
    """Return where exp(a) comes close to its overflow, and `halved` exp(a) (re + im i) there.

    With |re| and |im| below 1 a product may be finite where exp(a) is not: that of its root with both is.
    """
    root = (a * a.like(0.5)).op("exponential")
    large = a > (700.0 if a.aval.dtype == dtypes.float64 else 80.0)
    scaled = root * root.like(halved)
    return large, ((root * re) * scaled, (root * im) * scaled)


def _sinh(a: HloReal, b: HloReal) -> RealAndImag:
    cosine, sine = b.op("cosine"), b.op("sine")
    large, (large_re, large_im) = _large_exponential(a, cosine, sine, 0.5)
    re = large.where(large_re, a.op("chlo.sinh") * cosine)
    im = large.where(large_im, a.op("chlo.cosh") * sine)
    b_not_finite = ~b.is_finite
    re = (b_not_finite & (a.equals(0) | a.equals(inf))).where(a, re)
    return re, b.equals(0).where(b, im)


def _cosh(a: HloReal, b: HloReal) -> RealAndImag:
    cosine, sine = b.op("cosine"), b.op("sine")
    large, (large_re, large_im) = _large_exponential(a, cosine, sine, 0.5)
    re = large.where(large_re, a.op("chlo.cosh") * cosine)
    im = large.where(large_im, a.op("chlo.sinh") * sine)
    b_not_finite = ~b.is_finite
    re = (b_not_finite & a.equals(inf)).where(inf, re)
    return re, (b.equals(0) | (b_not_finite & a.equals(0))).where(0.0, im)


def _tanh(a: HloReal, b: HloReal) -> RealAndImag:
    # XLA 0.10.2 has no correct digit near the poles, where cos(b) is small
    cosine, sine, far = b.op("cosine"), b.op("sine"), a > 20.0
    size = far.where(1, a).op("chlo.sinh")
    square = size * size + cosine * cosine
    re = far.where(1.0, size * far.where(1, a).op("chlo.cosh") / square)
    im = sine * cosine * far.where((a * a.like(-2)).op("exponential") * a.like(4), 1 / square)
    a_infinite, undefined = a.equals(inf), ~b.is_finite | a.is_nan
    re = a_infinite.where(1.0, a.equals(0).where(a, undefined.where(nan, re)))
    return re, (a_infinite | b.equals(0)).where(0.0, undefined.where(nan, im))


def _asinh(a: HloReal, b: HloReal) -> RealAndImag:
    re, im = _xla("chlo.asinh", a, b)
    infinite, has_nan = a.equals(inf) | b.equals(inf), a.is_nan | b.is_nan
    re = infinite.where(inf, has_nan.where(nan, re))
    im = infinite.where(b.op("atan2", a), has_nan.where(nan, im))
    return re, (b.equals(0) & a.is_nan).where(b, im)


def _atanh(a: HloReal, b: HloReal) -> RealAndImag:
    re, im = _xla("chlo.atanh", a, b)
    # close to the pole XLA squares the distance, which underflows
    near_pole = (abs(1 - a) < 0.5) & (b < 0.5)
    difference = hypot(1 + a, b).op("log") - hypot(1 - a, b).op("log")
    re = near_pole.where(difference * a.like(0.5), re)
    infinite, has_nan = a.equals(inf) | b.equals(inf), a.is_nan | b.is_nan
    pole = a.equals(1) & b.equals(0)
    re = (infinite | a.equals(0)).where(0.0, has_nan.where(nan, pole.where(inf, re)))
    im = (infinite & ~b.is_nan).where(pi / 2, has_nan.where(nan, pole.where(0.0, im)))
    return re, im


# ----------------------------------------------------------------- in the half-plane b >= 0 (its sign is applied after)


def _exp(a: HloReal, b: HloReal) -> RealAndImag:
    return _exponential(a, b, a.op("exponential"), *_xla("stablehlo.exponential", a, b))


def _exp2(a: HloReal, b: HloReal) -> RealAndImag:
    angle, size, root = b.like(log(2)) * b, a.like(2).op("power", a), a.like(2).op("power", a.like(0.5) * a)
    cosine, sine, overflow = angle.op("cosine"), angle.op("sine"), size.equals(inf)
    re = overflow.where(root * cosine * root, size * cosine)
    return _exponential(a, b, size, re, overflow.where(root * sine * root, size * sine))


def _exponential(a: HloReal, b: HloReal, size: HloReal, re: HloReal, im: HloReal) -> RealAndImag:
    """Return the parts of an exponential, whose absolute value is `size`, with its special cases."""
    b_not_finite, b_zero = ~b.is_finite, b.equals(0)
    re = (b_zero | (b_not_finite & ~a.is_finite & ~a.is_nan)).where(size, re)
    return re, (b_zero | (b_not_finite & a.equals(-inf))).where(0.0, im)


def _expm1(a: HloReal, b: HloReal) -> RealAndImag:
    re, im = _xla("stablehlo.exponential_minus_one", a, b)
    large, (large_re, large_im) = _large_exponential(a, b.op("cosine"), b.op("sine"), 1.0)
    re, im = large.where(large_re, re), large.where(large_im, im)
    b_not_finite, b_zero = ~b.is_finite, b.equals(0)
    by_a_alone = b_zero | a.equals(-inf) | (b_not_finite & a.equals(inf))
    re = by_a_alone.where(a.op("exponential_minus_one"), re)
    return re, (b_zero | (b_not_finite & a.equals(-inf))).where(0.0, im)


def _log(a: HloReal, b: HloReal) -> RealAndImag:
    re, _ = _xla("stablehlo.log", a, b)
    infinite = abs(a).equals(inf) | b.equals(inf)
    return infinite.where(inf, re), b.op("atan2", a)


def _log1p(a: HloReal, b: HloReal) -> RealAndImag:
    re, _ = _xla("stablehlo.log_plus_one", a, b)
    # close to the pole XLA squares the distance, which underflows
    near_pole = (abs(1 + a) < 0.5) & (abs(b) < 0.5)
    re = near_pole.where(hypot(1 + a, b).op("log"), re)
    infinite = abs(a).equals(inf) | b.equals(inf)
    return infinite.where(inf, re), b.op("atan2", 1 + a)


def _sqrt(a: HloReal, b: HloReal) -> RealAndImag:
    re, im = _xla("stablehlo.sqrt", a, b)
    b_infinite, a_plus_infinite, a_minus_infinite = b.equals(inf), a.equals(inf), a.equals(-inf)
    b_finite = b.is_finite
    re = (b_infinite | a_plus_infinite).where(
        inf, (a_minus_infinite & b_finite).where(0.0, a_minus_infinite.where(nan, re))
    )
    im = (b_infinite | a_minus_infinite).where(
        inf, (a_plus_infinite & b_finite).where(0.0, a_plus_infinite.where(nan, abs(im)))
    )
    return re, im


def _acos(a: HloReal, b: HloReal) -> RealAndImag:
    re, im = _xla("chlo.acos", a, b)
    # XLA squares the distance to the branch point, which underflows; the result is sqrt(-2bi) there
    at_branch, root = a.equals(1) & (b < 2.0**-100), b.op("sqrt")
    re, im = at_branch.where(root, re), at_branch.where(root, im)
    infinite, has_nan = abs(a).equals(inf) | b.equals(inf), a.is_nan | b.is_nan
    re = infinite.where(b.op("atan2", a), has_nan.where(nan, re))
    re = (a.equals(0) & b.is_nan).where(pi / 2, re)
    return re, infinite.where(-inf, has_nan.where(nan, -abs(im)))


# --------------------------------------------------------------------------------------------------- in the whole plane


def _sign(a: HloReal, b: HloReal) -> RealAndImag:
    # the absolute value of the largest numbers overflows
    large = abs(a).op("maximum", abs(b)) > (2.0**1020 if a.aval.dtype == dtypes.float64 else 2.0**124)
    scale = large.where(0.25, a.like(1))
    re, im = _xla("stablehlo.sign", a * scale, b * scale)
    a_infinite, b_infinite = abs(a).equals(inf), abs(b).equals(inf)
    undefined = (a_infinite & b_infinite) | a.is_nan | b.is_nan
    re = undefined.where(nan, a_infinite.where(a.op("sign"), b_infinite.where(0.0, re)))
    return re, undefined.where(nan, b_infinite.where(b.op("sign"), a_infinite.where(0.0, im)))


def _rsqrt(a: HloReal, b: HloReal) -> RealAndImag:
    re, im = _sqrt(a, b)
    size = hypot(re, im)
    zero, infinite = size.equals(0), size.equals(inf)
    re, im = [infinite.where(0.0, v / size) for v in (direction_cosine(re, im), -direction_cosine(im, re))]
    return zero.where(inf, re), zero.where(nan, im)


def _logistic(a: HloReal, b: HloReal) -> RealAndImag:
    """Return 1 / (1 + exp(-z)).

    With q = exp(-|a|), t = 1 - q and c = cos(b / 2) the square of |1 + q exp(bi)| is t^2 + 4 q c^2, a sum without
    cancellation near the poles, where exp(z) is -1.
    """
    minus = -abs(a)
    q, t, c = minus.op("exponential"), -minus.op("exponential_minus_one"), (b * b.like(0.5)).op("cosine")
    cosine, twice = b.op("cosine"), c * c * c.like(2)
    square = t * t + q * twice * c.like(2)
    near_pole = cosine < -0.5
    above = near_pole.where(t + q * twice, 1 + q * cosine)
    below = q * near_pole.where(twice - t, q + cosine)
    re, im = (a < 0).where(below, above) / square, q * b.op("sine") / square
    # exp(-z) is 0 at infinity, and infinite at minus infinity, whatever b is
    is_one, is_zero = a.equals(inf), a.equals(-inf)
    im = (is_one | is_zero).where(0.0, (b.equals(0) & ~a.is_nan).where(b, im))
    return is_one.where(1.0, is_zero.where(0.0, re)), im


def _odd(f: ComplexFunction) -> ComplexFunction:
    """Return an odd function, from its values in the quadrant of positive parts."""

    def odd(a: HloReal, b: HloReal) -> RealAndImag:
        re, im = f(abs(a), abs(b))
        return _negate_where(a.negative, re), _negate_where(b.negative, im)

    return odd


def _conjugate(f: ComplexFunction) -> ComplexFunction:
    """Return a function, from its values in the upper half-plane."""

    def conjugate(a: HloReal, b: HloReal) -> RealAndImag:
        re, im = f(a, abs(b))
        return re, _negate_where(b.negative, im)

    return conjugate


def _rotated(g: ComplexFunction) -> ComplexFunction:
    """Return the function -i g(iz), as sin z is -i sinh iz."""

    def rotated(a: HloReal, b: HloReal) -> RealAndImag:
        re, im = g(-b, a)
        return im, -re

    return rotated


def cosh(a: HloReal, b: HloReal) -> RealAndImag:
    """Return cosh z, an even function, from its values in the quadrant of positive parts."""
    re, im = _cosh(abs(a), abs(b))
    return re, _negate_where(b.negative, _negate_where(a.negative, im))


def cos(a: HloReal, b: HloReal) -> RealAndImag:
    """Return cos z = cosh iz."""
    return cosh(-b, a)


def acosh(a: HloReal, b: HloReal) -> RealAndImag:
    """Return acosh z, which is i acos z in the upper half-plane."""
    re, im = _acos(a, abs(b))
    return -im, _negate_where(b.negative, re)


sinh, tanh, asinh, atanh = map(_odd, (_sinh, _tanh, _asinh, _atanh))
sin, tan, asin, atan = map(_rotated, (sinh, tanh, asinh, atanh))
exp, exp2, expm1, log_of, log1p = map(_conjugate, (_exp, _exp2, _expm1, _log, _log1p))
sqrt, rsqrt, acos = map(_conjugate, (_sqrt, _rsqrt, _acos))
sign, logistic = _sign, _logistic


class ComplexUnary(Unary):
    """A function of a real or complex operand: XLA's own for real numbers, the one of this file for complex ones."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]] = dtypes.INEXACT
    complex_function: ClassVar[ComplexFunction]  # of this file

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if ins[0].dtype not in dtypes.COMPLEX:
            return self.lower_real(hlo, args, ins, outs)
        return (_joined(*type(self).complex_function(*_parts(hlo, args[0], ins[0]))),)

    def lower_real(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        """Add StableHLO operations for an operand that is not complex."""
        return hlo.op(self.hlo_name, args, outs)


# ---------------------------------------------------------------------------------------------------- of two numbers


def _scaled(x: HloReal, y: HloReal) -> tuple[HloReal, HloReal, HloReal]:
    """Return x and y times a power of 2, and its inverse. No square of a scaled operand overflows, and that of the
    larger one is far above the subnormals, which XLA treats as 0."""
    double = x.aval.dtype == dtypes.float64
    low, high, up, down = (-480, 510, 600, -520) if double else (-50, 62, 90, -66)
    big = abs(x).op("maximum", abs(y))
    small, large = big < 2.0**low, big > 2.0**high
    scale = small.where(2.0**up, large.where(2.0**down, x.like(1)))
    back = small.where(2.0**-up, large.where(2.0**-down, x.like(1)))
    return x * scale, y * scale, back


def hypot(x: HloReal, y: HloReal) -> HloReal:
    """Return sqrt(x^2 + y^2); infinite if one operand is, even if the other is nan."""
    a, b, back = _scaled(x, y)
    infinite = abs(x).equals(inf) | abs(y).equals(inf)
    return infinite.where(inf, (a * a + b * b).op("sqrt") * back)


def direction_cosine(x: HloReal, y: HloReal) -> HloReal:
    """Return x / hypot(x, y); 0 at the origin."""
    infinite = abs(x).equals(inf) | abs(y).equals(inf)
    # an infinite operand is long beside every finite one
    x, y = [infinite.where(v.op("sign") * abs(v).equals(inf).where(1, v.like(0)), v) for v in (x, y)]
    a, b, _ = _scaled(x, y)
    square = a * a + b * b
    return a / square.equals(0).where(1, square).op("sqrt")


def lower_abs(prim: Unary, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
    """Return the `lower` of abs: the result is infinite if one part is, even if the other is nan."""
    if ins[0].dtype not in dtypes.COMPLEX:
        return hlo.op(prim.hlo_name, args, outs)
    return (hypot(*_parts(hlo, args[0], ins[0])).value,)
