"""The error function and the gamma family.

Their NumPy meaning is computed in double precision with the standard library, where it has the function: the import
of scipy takes half as long as that of fxad (see `references`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import NotDifferentiableError
from fxad.ir import Atom, Avals, Hlo, HloValues, JvpCtx, NDArray, Tangent, Zero, primitive
from fxad.primitives.elementwise.annex_g import HloReal
from fxad.primitives.elementwise.arithmetic import ADD, MUL, NEG, scale_tangent
from fxad.primitives.elementwise.convert import emit_in_float32
from fxad.primitives.elementwise.exponential import EXP
from fxad.primitives.elementwise.family import FLOAT_ABOVE_8, Binary, Unary, literal_like
from fxad.primitives.elementwise.powers import SQUARE
from fxad.primitives.elementwise.select import CLAMP
from fxad.primitives.stablehlo import lower_in_float32


def _apply_float64(f: Callable[..., float], *args: NDArray) -> object:
    return np.asarray(np.frompyfunc(f, len(args), 1)(*[a.astype(np.float64) for a in args]), np.float64)


def _scale_by_gaussian(ctx: JvpCtx, t: Tangent, x: Atom, scale: float) -> Tangent:
    """Return t * scale * exp(-x^2)."""

    def slope(x: Atom) -> Atom:
        # beyond these limits the result is 0, and so is its derivative: not 0 times an infinite 2 x
        near = ctx.one(CLAMP, literal_like(-1e4, x), x, literal_like(1e4, x))
        return ctx.one(MUL, ctx.one(EXP, ctx.one(NEG, ctx.one(SQUARE, near))), literal_like(scale, x))

    return scale_tangent(ctx, t, emit_in_float32(ctx, slope, x))


@final
@primitive
class Erf(Unary):
    """The error function, 2/sqrt(pi) times the integral of exp(-s^2) from 0 to x.

    Type:   a float operand.
    Rule:   d = 2/sqrt(pi) exp(-x^2).
    Source: chlo.erf
    """

    name: ClassVar[str] = "erf"
    hlo_name: ClassVar[str] = "chlo.erf"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING

    def compute(self, x: NDArray) -> object:
        return _apply_float64(math.erf, x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return _scale_by_gaussian(ctx, t, x, 2 / math.sqrt(math.pi))


@final
@primitive
class Erfc(Unary):
    """1 - erf(x), accurate for large x.

    Type:   a float operand, not float8.
    Rule:   d = -2/sqrt(pi) exp(-x^2).
    Source: chlo.erfc
    """

    name: ClassVar[str] = "erfc"
    hlo_name: ClassVar[str] = "chlo.erfc"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8

    def compute(self, x: NDArray) -> object:
        return _apply_float64(math.erfc, x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return _scale_by_gaussian(ctx, t, x, -2 / math.sqrt(math.pi))


@final
@primitive
class ErfInv(Unary):
    """The inverse of erf at x; -inf and inf at -1 and 1, nan outside.

    Type:   a float operand.
    Rule:   d = sqrt(pi)/2 exp(y^2).
    Source: chlo.erf_inv
    """

    name: ClassVar[str] = "erf_inv"
    hlo_name: ClassVar[str] = "chlo.erf_inv"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING

    def compute(self, x: NDArray) -> object:
        return _apply_float64(_erf_inv, x)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        growth = ctx.one(EXP, ctx.one(SQUARE, y))
        return scale_tangent(ctx, t, ctx.one(MUL, growth, literal_like(math.sqrt(math.pi) / 2, y)))


# log gamma(1 + a) + log(1 + a) less a (1 - Euler's constant), divided by a^2: (-1)^k (zeta(k) - 1) / k, highest first
EULER: Final = 0.5772156649015329
_ZETA: Final = (
    0.6449340668482264, 0.2020569031595943, 0.0823232337111382, 0.0369277551433699, 0.0173430619844491,
    0.0083492773819228, 0.0040773561979443, 0.0020083928260822, 0.0009945751278181, 0.0004941886041195,
    0.0002460865533080, 0.0001227133475785, 0.0000612481350587, 0.0000305882363070, 0.0000152822594087,
)  # fmt: skip  # zeta(k) - 1 for k = 2, 3, ...; from there on 2^-k + 3^-k + 4^-k
LGAM1P: Final = tuple(
    [
        (-1) ** k * (_ZETA[k - 2] if k < len(_ZETA) + 2 else 2.0**-k + 3.0**-k + 4.0**-k) / k
        for k in reversed(range(2, 30))
    ]
)


# the positive zero of digamma, as a sum of two floats of each precision; then its Taylor series there, less the
# constant and over x, the highest power first: -(-1)^n zeta(n, root) for n = 22, ..., 2
_ROOT: Final = (1.4616321449683622, 9.549995429965697e-17)
_ROOT_32: Final = (1.4616321325302124, 1.2438149938918909e-08)
_AROUND_ROOT: Final = (
    0.00023635601564027053, -0.0003454680251063077, 0.000504953265834602, -0.0007380709389960052,
    0.0010788252019162967, -0.0015769367714301972, 0.002305126326734928, -0.003369801655439328,
    0.004926781395729853, -0.007204534386356869, 0.010538791616612175, -0.01542476490594896,
    0.022597648232218104, -0.03316112647484736, 0.04880428816414311, -0.07219956125645471,
    0.10782405069126237, -0.16394270544240652, 0.258499760955651, -0.4427631689835921, 0.9676722454476212,
)  # fmt: skip
_REACH: Final = 0.25


def _lower_lgamma(x: HloReal) -> HloReal:
    """Return the function of XLA, and around its zeros 1 and 2 a series: there XLA has no correct digit."""
    around = (x > 0.5) & (x < 2.5)
    a = around.where(x, x.like(1.25)) - x.like(1)
    more = a > 0.5
    b = more.where(a - a.like(1), a)
    total = b.like(LGAM1P[0])
    for coefficient in LGAM1P[1:]:
        total = total * b + b.like(coefficient)
    below = more.where(a.like(0), a).op("log_plus_one")
    return around.where(b * (b.like(1 - EULER) + b * total) - below, x.op("chlo.lgamma"))


@final
@primitive
class Lgamma(Unary):
    """The logarithm of |gamma(x)|; inf at 0, -1, -2, ...

    Type:   a float operand.
    Rule:   d = digamma(x).
    Source: chlo.lgamma; around 1 and 2, Abramowitz & Stegun 6.1.33
    """

    name: ClassVar[str] = "lgamma"
    hlo_name: ClassVar[str] = "chlo.lgamma"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING

    def compute(self, x: NDArray) -> object:
        return _apply_float64(_lgamma, x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(hlo, args, ins[0], lambda wide, t: _lower_lgamma(HloReal(hlo, wide[0], t)).value)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(DIGAMMA, x))


@final
@primitive
class Digamma(Unary):
    """The derivative of lgamma at x; -inf at 0, inf at -0.0, nan at -1, -2, ...

    Type:   a float operand. The result is accurate relative to itself for x > 0, relative to 1 at its zeros below.
    Rule:   d = polygamma(1, x).
    Source: chlo.digamma, which is nan at 0 on some versions of jaxlib; near the zero at 1.46 the Taylor series,
            whose coefficients are values of Hurwitz' zeta function (DLMF 5.15.1 and 25.11.12)
    """

    name: ClassVar[str] = "digamma"
    hlo_name: ClassVar[str] = "chlo.digamma"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING

    def compute(self, x: NDArray) -> object:
        return _apply_float64(_digamma, x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(hlo, args, ins[0], lambda wide, t: _lower_digamma(HloReal(hlo, wide[0], t)).value)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(POLYGAMMA, literal_like(1.0, x), x))


@final
@primitive
class Polygamma(Binary):
    """The n-th derivative of digamma at x, for operands n and x, n = 0, 1, 2, ...

    At 0, -1, -2, ... it is inf for odd n and -inf for even n > 0, as in SciPy: the limit from above.

    Type:   n, x: two float operands of one type; nan for other n. XLA's is good for small n.
    Rule:   d/dx = polygamma(n + 1, x); n has no derivative.
    Source: chlo.polygamma, which is for x >= 0; for a large x, where powers in it underflow, Abramowitz & Stegun 6.4.11
    """

    name: ClassVar[str] = "polygamma"
    hlo_name: ClassVar[str] = "chlo.polygamma"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING

    def compute(self, n: NDArray, x: NDArray) -> object:
        return _apply_float64(_polygamma, n, x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_in_float32(
            hlo, args, ins[0], lambda wide, t: _lower_polygamma(*[HloReal(hlo, value, t) for value in wide]).value
        )

    def tangent(self, ctx: JvpCtx, n: Atom, x: Atom, y: Atom, n_dot: Tangent, x_dot: Tangent) -> Tangent:
        if not isinstance(n_dot, Zero):
            raise NotDifferentiableError(
                "polygamma: the order n has no derivative", remedy="apply stop_gradient to the first operand"
            )
        return scale_tangent(ctx, x_dot, ctx.one(POLYGAMMA, ctx.one(ADD, n, literal_like(1.0, n)), x))


def _lower_digamma(x: HloReal) -> HloReal:
    high, low = _ROOT if x.aval.dtype == dtypes.float64 else _ROOT_32
    distance = x - x.like(high)
    around = (distance > -_REACH) & (distance < _REACH)
    h = around.where(distance - x.like(low), x.like(0))
    total = h.like(_AROUND_ROOT[0])
    for coefficient in _AROUND_ROOT[1:]:
        total = total * h + h.like(coefficient)
    return _at_zero(x, x.equals(0), around.where(h * total, x.op("chlo.digamma")))


def _at_zero(x: HloReal, zero: HloReal, elsewhere: HloReal) -> HloReal:
    """Return digamma at 0.0 and at -0.0, where `zero` holds."""
    return zero.where(x.negative.where(math.inf, x.like(-math.inf)), elsewhere)


def _lower_polygamma(n: HloReal, x: HloReal) -> HloReal:
    integral = (n >= 1) & n.equals(n.op("floor"))
    # below 0: with f = x - floor(x), the values at f and, up to the sign, at 1 - f = ceil(x) - x less that at 1 - x
    floor = x.op("floor")
    reflected = integral & ((x < 0) & x.differs(floor))
    positive_x = reflected.where(1 - x, x)
    # for large x: -(-1)^n gamma(n) (1 + n / 2x) / x^n; XLA's sum contains the power n + 1, which underflows
    leading = n.op("chlo.lgamma").op("exponential") * positive_x.op("power", -n) * (1 + n / (positive_x + positive_x))
    odd = n.op("remainder", n.like(2)).differs(0)
    large = positive_x > (1e8 if x.aval.dtype == dtypes.float64 else 1e4)
    value = (integral & large).where(odd.where(leading, -leading), n.op("chlo.polygamma", positive_x))
    difference = n.op("chlo.polygamma", x.op("ceil") - x) - value
    value = reflected.where(n.op("chlo.polygamma", x - floor) + odd.where(difference, -difference), value)
    value = _at_zero(x, n.equals(0) & x.equals(0), value)
    pole = integral & ((x < 0) | x.equals(0)) & x.equals(floor)
    return pole.where(odd.where(math.inf, x.like(-math.inf)), value)


# ----------------------------------------------------------------------------------- their meaning, in double precision


def _erf_inv(x: float) -> float:
    if not -1 < x < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    tail = 1 - abs(x)
    # a first guess good to 2e-3 (Winitzki 2008), then Halley's steps on erfc, which keeps its digits in the tail
    log = math.log(tail * (1 + abs(x)))
    a = 2 / (math.pi * 0.147) + log / 2
    y = math.sqrt(max(math.sqrt(a * a - log / 0.147) - a, 0.0))
    for _ in range(3):
        error = math.erfc(y) - tail if y > 0.5 else abs(x) - math.erf(y)
        step = error / (2 / math.sqrt(math.pi) * math.exp(-y * y))
        y += step / (1 + y * step)
    return math.copysign(y, x)


def _lgamma(x: float) -> float:
    if x <= 0 and x.is_integer():
        return math.inf
    if 0.5 < x < 2.5:  # around the zeros 1 and 2, as in `_lower_lgamma`
        below = x - 1 if x <= 1.5 else 0.0
        b, total = (x - 1 if x <= 1.5 else x - 2), 0.0
        for coefficient in LGAM1P:
            total = total * b + coefficient
        return b * (1 - EULER + b * total) - math.log1p(below)
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def _digamma(x: float) -> float:
    if x == 0:
        return -math.copysign(math.inf, x)
    if x < 0:
        if x.is_integer() or math.isinf(x):
            return math.nan
        return _digamma(1 - x) - math.pi / math.tan(math.pi * math.fmod(x, 1.0))
    distance = x - _ROOT[0]
    if abs(distance) < _REACH:
        h, total = distance - _ROOT[1], 0.0
        for coefficient in _AROUND_ROOT:
            total = total * h + coefficient
        return h * total
    below = 0.0
    while x < 10:
        below += 1 / x
        x += 1
    # asymptotic series, Abramowitz & Stegun 6.3.18
    r = 1 / (x * x)
    series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r * 691 / 32760)))))
    return math.log(x) - 0.5 / x - series - below


# B_2k / (2k)!, for the Euler-Maclaurin sum below
_BERNOULLI: Final = tuple(
    b / math.factorial(2 * k + 2)
    for k, b in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510))
)


def _polygamma(n: float, x: float) -> float:
    if n == 0:
        return _digamma(x)
    if math.isnan(x) or not n > 0 or not n.is_integer():
        return math.nan
    if x <= 0 and (x.is_integer() or math.isinf(x)):
        return math.inf if n % 2 else -math.inf
    try:
        return math.copysign(math.gamma(n + 1), 1 if n % 2 else -1) * _hurwitz(int(n) + 1, x)
    except OverflowError:
        if abs(x) < 1 and n < 170:  # of a power of a tiny x
            return math.copysign(math.inf, 1 if n % 2 or x < 0 else -1)
        return math.nan  # of the factorial


def _hurwitz(s: int, q: float) -> float:
    """Return the sum over k >= 0 of (q + k)^-s, by Euler and Maclaurin."""
    if math.isinf(q):
        return 0.0
    if q < 0:  # the terms below 0 are those of 1 - f, 2 - f, ..., 0 - q
        f = q - math.floor(q)
        return _hurwitz(s, f) + (-1.0) ** s * (_hurwitz(s, math.ceil(q) - q) - _hurwitz(s, 1 - q))
    total = 0.0
    while q < 12 + s:  # the series of corrections converges well from there on
        total += q**-s
        q += 1
    total += q ** (1 - s) / (s - 1) + 0.5 * q**-s
    rising, power = float(s), q ** (-s - 1)
    for k, b in enumerate(_BERNOULLI):
        total += b * rising * power
        rising *= (s + 2 * k + 1) * (s + 2 * k + 2)
        power /= q * q
    return total


ERF: Final = Erf()
ERFC: Final = Erfc()
ERF_INV: Final = ErfInv()
LGAMMA: Final = Lgamma()
DIGAMMA: Final = Digamma()
POLYGAMMA: Final = Polygamma()
