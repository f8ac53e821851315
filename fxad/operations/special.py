"""Special functions composed of others, with derivatives that are right at the boundaries between cases."""

from __future__ import annotations

import math
from typing import Final

from fxad.ir import Atom, Atoms, Emit, Primitive
from fxad.operations.promotion import broadcast, convert, promote_all, to_inexact_dtype
from fxad.primitives.elementwise import beta, gamma
from fxad.primitives.elementwise.arithmetic import REM
from fxad.primitives.elementwise.bessel import BesselIOverPower
from fxad.primitives.elementwise.convert import STOP_GRADIENT
from fxad.primitives.elementwise.exponential import LOGIT
from fxad.primitives.elementwise.formula import Formula, Formulas, polynomial, x_log1p_y, x_log_y
from fxad.primitives.elementwise.gamma import emit_formula
from fxad.primitives.elementwise.logic import EQ, NE
from fxad.primitives.elementwise.sigmoid import LOGISTIC
from fxad.primitives.elementwise.special import ERF_INV, ERFC
from fxad.primitives.elementwise.trigonometric import SIN
from fxad.primitives.shape import BroadcastInDim, Iota, ReduceSum


def _atoms(name: str, emit: Emit, *xs: Atom) -> list[Atom]:
    """Return operands in their common shape and floating dtype."""
    promoted = promote_all(name, emit, xs)
    dtype = to_inexact_dtype(promoted[0].aval.dtype)
    return [convert(emit, x, dtype) for x in promoted]


def _formulas(name: str, emit: Emit, *xs: Atom) -> list[Formula]:
    """Return `_atoms` as formulas."""
    return [Formula(emit, x) for x in _atoms(name, emit, *xs)]


def same_types(emit: Emit, a: Atom, b: Atom, x: Atom, prim: Primitive) -> Atoms:
    """Return `prim` of three operands of one dtype; a scalar is broadcast to the shape of the others."""
    shape = max([v.aval.shape for v in (a, b, x)], key=len)
    return emit(prim, *[v if v.aval.shape else broadcast(emit, v, shape) for v in (a, b, x)])


def betaln(emit: Emit, a: Atom, b: Atom) -> Atoms:
    """Return log |B(a, b)|."""
    return (emit_formula(emit, "betaln", beta.log_beta, *_atoms("betaln", emit, a, b)),)


def gamma_log_pdf(emit: Emit, a: Atom, x: Atom) -> Atoms:
    """Return the logarithm of the density of the gamma distribution at x, with all digits also for a large a."""
    return (emit_formula(emit, "gamma_log_pdf", gamma.gamma_log_pdf, *_atoms("gamma_log_pdf", emit, a, x)),)


def beta_log_pdf(emit: Emit, a: Atom, b: Atom, x: Atom) -> Atoms:
    """Return the logarithm of the density of the beta distribution at x, with all digits also for a large a or b."""
    return (emit_formula(emit, "beta_log_pdf", beta.beta_log_pdf, *_atoms("beta_log_pdf", emit, a, b, x)),)


def multigammaln(emit: Emit, a: Atom, d: int) -> Atoms:
    """Return the logarithm of the multivariate gamma function of dimension d."""
    (f,) = _formulas("multigammaln", emit, a)
    total = f.like(d * (d - 1) / 4 * math.log(math.pi))
    if d > _UNROLLED:
        shape = (*f.atom.aval.shape, d)
        last = len(shape) - 1
        terms = emit.one(BroadcastInDim(shape, tuple(range(last))), f.atom)
        steps = Formula(emit, emit.one(Iota(shape, terms.aval.dtype, last)))
        log_gammas = (Formula(emit, terms) - steps / 2).lgamma()
        return ((total + Formula(emit, emit.one(ReduceSum((last,)), log_gammas.atom))).atom,)
    for j in range(d):
        total = total + (f - j / 2).lgamma()
    return (total.atom,)


_UNROLLED: Final = 16  # dimensions with an equation for each term; more are an axis of an array


def entr(emit: Emit, x: Atom) -> Atoms:
    """Return -x log x."""
    (f,) = _formulas("entr", emit, x)
    return ((f < 0).where(-math.inf, -x_log_y(f, f)).atom,)


def rel_entr(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return x log(x / y); 0 where x is 0, inf where one is negative or y alone is 0."""
    return (emit_formula(emit, "rel_entr", _rel_entr, *_atoms("rel_entr", emit, x, y)),)


def _rel_entr(args: Formulas) -> Formulas:
    x, y = args
    return (_where_defined(x, y, _relative_entropy(x, y)),)


def kl_div(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return x log(x / y) - x + y; y where x is 0, inf where one is negative or y alone is 0."""
    return (emit_formula(emit, "kl_div", _kl_div, *_atoms("kl_div", emit, x, y)),)


def _kl_div(args: Formulas) -> Formulas:
    x, y = args
    near = _are_close(x, y)
    a, b = near.where(x, x.like(1)), near.where(y, y.like(1))
    # x (d - log(1 + d)) for d = (y - x) / x
    d = (b - a) / a
    close = a * gamma.excess(d, d / (d + 2), d + 1)
    return (near.where(close, _where_defined(x, y, _relative_entropy(x, y) - x + y)),)


def _are_close(x: Formula, y: Formula) -> Formula:
    """Return True where positive finite x and y are within a factor of 2 of each other: their difference is exact."""
    return (x > 0) & (x * 0.5 <= y) & (y * 0.5 <= x) & (x < math.inf) & (y < math.inf)


def _relative_entropy(x: Formula, y: Formula) -> Formula:
    """Return x log(x / y) for x >= 0 and y > 0. The derivative in x is -inf at x = 0.

    The logarithm is that of 1 + (x - y) / y where x and y are close, the difference of two where the quotient over- or
    underflows. Each case takes only operands for which it is used.
    """
    near, positive = _are_close(x, y), (x > 0) & (y > 0)
    a, b = near.where(x, x.like(1)), near.where(y, y.like(1))
    quotient = x / positive.where(y, y.like(1))
    least = 1e-290 if x.double else 1e-30
    in_range = positive & (quotient > least) & (quotient < 1 / least)
    by_quotient = (in_range.where(x, x.like(1)) / in_range.where(y, y.like(1))).log()
    by_difference = positive.where(x, x.like(1)).log() - positive.where(y, y.like(1)).log()
    # the derivative of the difference is 1 / x and -1 / y; XLA turns that of the quotient into products that overflow
    by_quotient = by_difference + (by_quotient - by_difference).apply(STOP_GRADIENT)
    log = near.where(((a - b) / b).log1p(), in_range.where(by_quotient, by_difference))
    return positive.where(positive.where(x, x.like(1)) * log, x_log_y(positive.where(1, x), positive.where(1, x)))


def _where_defined(x: Formula, y: Formula, value: Formula) -> Formula:
    """Return `value` where x > 0 and y > 0, or x = 0 and y >= 0; else nan if one is, or infinity."""
    positive, null = (x > 0) & (y > 0), x.apply(EQ, 0) & (y >= 0)
    outside = (x + y).apply(NE, x + y).where(x + y, x.like(math.inf))
    return (positive | null).where(value, outside)


def xlogy(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return x log y, 0 where x is 0."""
    return (x_log_y(*_formulas("xlogy", emit, x, y)).atom,)


def xlog1py(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return x log(1 + y), 0 where x is 0."""
    return (x_log1p_y(*_formulas("xlog1py", emit, x, y)).atom,)


def logit(emit: Emit, x: Atom) -> Atoms:
    """Return log(x / (1 - x))."""
    (f,) = _formulas("logit", emit, x)
    return (f.apply(LOGIT).atom,)


def expit(emit: Emit, x: Atom) -> Atoms:
    """Return 1 / (1 + exp(-x))."""
    (f,) = _formulas("expit", emit, x)
    return (f.apply(LOGISTIC).atom,)


def i0(emit: Emit, x: Atom) -> Atoms:
    """Return the modified Bessel function of order 0."""
    (f,) = _formulas("i0", emit, x)
    return (f.apply(BesselIOverPower(0, False)).atom,)


def i1(emit: Emit, x: Atom) -> Atoms:
    """Return the modified Bessel function of order 1."""
    (f,) = _formulas("i1", emit, x)
    return ((f * f.apply(BesselIOverPower(1, False))).atom,)


def sinc(emit: Emit, x: Atom) -> Atoms:
    """Return sin(pi x) / (pi x), by its series near 0, as are its derivatives."""
    return (emit_formula(emit, "sinc", _sinc, *_atoms("sinc", emit, x)),)


def _sinc(args: Formulas) -> Formulas:
    (f,) = args
    near = abs(f) < 0.5
    y = near.where(f, f.like(0)) * math.pi
    series = polynomial(y * y, [(-1) ** k / math.factorial(2 * k + 1) for k in reversed(range(13))])
    # the remainder is exact, and the product of a large x with pi is not
    away = near.where(1, f)
    infinite = abs(away) >= math.inf  # the limit is 0
    sine = (infinite.where(1, away).apply(REM, 2.0) * math.pi).apply(SIN) * (1 / math.pi)
    return (near.where(series, sine / away),)


# ------------------------------------------------------------------------------------------------------ the normal

_SQRT_HALF: Final = math.sqrt(0.5)
_HALF_LOG_2PI: Final = 0.5 * math.log(2 * math.pi)
# 1, -1, 3, -15, ...: of the asymptotic series in 1 / x^2, highest first
_TAIL_COEFFICIENTS: Final = tuple([(-1) ** k * math.prod(range(1, 2 * k, 2)) for k in reversed(range(10))])


def _ndtr(x: Formula) -> Formula:
    return (-x * _SQRT_HALF).apply(ERFC) * 0.5


def ndtr(emit: Emit, x: Atom) -> Atoms:
    """Return the distribution function of the standard normal distribution."""
    (f,) = _formulas("ndtr", emit, x)
    return (_ndtr(f).atom,)


def _log_ndtr(x: Formula) -> Formula:
    far = -20.0 if x.double else -8.0
    tail, body = (x < far).where(x, x.like(far)), (x < far).where(far, x)
    inverse = 1 / tail
    below = (
        tail * tail * -0.5
        - (-tail).log()
        - _HALF_LOG_2PI
        + (polynomial(inverse * inverse, _TAIL_COEFFICIENTS) - 1).log1p()
    )
    positive, zero = body > 0, body.like(0.0)  # chosen, not by max and min, whose derivative at 0 is one half
    above = (-_ndtr(-positive.where(body, zero))).log1p()
    inside = positive.where(above, _ndtr(positive.where(zero, body)).log())
    return (x < far).where(below, inside)


def log_ndtr(emit: Emit, x: Atom) -> Atoms:
    """Return the logarithm of ndtr, finite also where ndtr underflows to 0."""
    return (emit_formula(emit, "log_ndtr", lambda args: (_log_ndtr(*args),), *_atoms("log_ndtr", emit, x)),)


def ndtri(emit: Emit, p: Atom) -> Atoms:
    """Return the inverse of ndtr. In the tails Abramowitz & Stegun 26.2.23, then Newton's steps on log_ndtr."""
    return (emit_formula(emit, "ndtri", _ndtri, *_atoms("ndtri", emit, p)),)


def _ndtri(args: Formulas) -> Formulas:
    (f,) = args
    middle = (f > 0.1) & (f < 0.9)
    central = (middle.where(f, f.like(0.5)) * 2 - 1).apply(ERF_INV) * math.sqrt(2)
    inside = (f > 0) & (f < 1)
    q = inside.where((f < 0.5).where(f, 1 - f), f.like(0.05))
    log = q.log()
    t = (log * -2).sqrt()
    ratio = polynomial(t, (0.010328, 0.802853, 2.515517)) / polynomial(t, (0.001308, 0.189269, 1.432788, 1.0))
    x = ratio - t
    for _ in range(2):
        log_cdf = _log_ndtr(x)
        x = x - (log_cdf - log) * (log_cdf + x * x * 0.5 + _HALF_LOG_2PI).exp()
    tail = (f < 0.5).where(x, -x)
    edge = f.apply(EQ, f.like(0)).where(-math.inf, f.apply(EQ, f.like(1)).where(math.inf, f.like(math.nan)))
    return (middle.where(central, inside.where(tail, edge)),)
