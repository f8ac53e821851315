"""The meaning of primitives on symbolic values.

Most come from what a primitive states already: data movement and linear primitives run by `impl` (`linear`), others are
random functions of their operands (`unknown`).

`RULES` has those that are more than that: arithmetic, extrema, comparisons, and functions that are defined by others. A
primitive from outside is a `HasDefinition` if it is a program of other primitives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Final

import ml_dtypes
import numpy as np

from fxad import dtypes
from fxad.diagnosis.equality.assumptions import FINITE, NO_WRAP, assume_finite, assume_widths
from fxad.diagnosis.equality.bits import both, compare, either, equal, less, of_bits, reduce_bits, select, xor
from fxad.diagnosis.equality.domain import EvaluationRule, ExactValue, ProofDomain, Symbolic
from fxad.diagnosis.equality.extrema import clamp, cumulative_extremum, extremum, reduce_extremum, running
from fxad.diagnosis.equality.linear import bilinear_rule, dot_rule, linear_candidates, linear_results
from fxad.diagnosis.equality.unknown import function_with_value_at_zero, unknown_results
from fxad.dtypes import DType
from fxad.ir import Aval, Avals, Jaxpr, Primitive
from fxad.primitives.barrier import OptimizationBarrier
from fxad.primitives.cumulative import CumMax, CumMin, CumProd
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise import (
    Abs,
    Add,
    And,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Cbrt,
    Clamp,
    Complex,
    Conj,
    ConvertElementType,
    Cos,
    Cosh,
    Div,
    Eq,
    Erf,
    Erfc,
    ErfInv,
    Exp,
    Expm1,
    Ge,
    Gt,
    Imag,
    IntegerPow,
    Le,
    Log,
    Log1p,
    Lt,
    Max,
    Min,
    Mul,
    MulNoNan,
    Ne,
    Neg,
    Not,
    Or,
    Pow,
    Real,
    Rsqrt,
    Sech2,
    SelectN,
    Sign,
    Sin,
    Sinh,
    Sqrt,
    Square,
    StopGradient,
    Sub,
    Tan,
    Tanh,
    Xor,
)
from fxad.primitives.families import Bilinear, of_family
from fxad.primitives.marks import Mark
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import ReduceSum
from fxad.primitives.softmax import LogSoftmax, Softmax


class HasDefinition(Primitive):
    """A primitive that is, for real numbers, a program of other primitives.

    `equal` evaluates the program in its place. Of another primitive from outside it knows that equal operands give
    equal results, and what its families say (`Linear`, `Unary`, `HigherOrder`).
    """

    __slots__ = ()

    @abstractmethod
    def definition(self, *avals: Aval) -> Jaxpr:
        """Return the program, for operands of these types."""


def apply(domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals) -> list[ExactValue]:
    """Return the results of a primitive without bodies that run."""
    # an operand without elements is known: the maximum of no integers is the least one
    args = [x if x.size else np.zeros(a.shape, a.dtype) for x, a in zip(args, ins, strict=True)]
    arrays = [x for x in args if not isinstance(x, Symbolic)]
    if len(arrays) == len(args) and not prim.effects and not _keeps_exact(domain, prim, outs):
        return list(map(np.asarray, prim.impl(*arrays)))
    if domain.interpreted:
        rule = of_family(RULES, type(prim))
        made = None if rule is None else rule(domain, prim, args, ins, outs)
        if made is not None:
            if type(prim) not in _EXACT_FOR_FLOATS:
                assume_finite(domain, ins, outs)
            return made
    elif isinstance(prim, OptimizationBarrier | Mark | StopGradient):
        return args
    for marks in linear_candidates(prim, args, ins):
        linear = linear_results(domain, prim, args, marks, ins, outs)
        if linear is not None:
            assume_widths(domain, tuple([a for a, m in zip(ins, marks, strict=True) if m]), outs)
            return linear
    return unknown_results(domain, prim, args, ins, outs)


def _keeps_exact(domain: ProofDomain, prim: Primitive, outs: Avals) -> bool:
    """Return True if a primitive of constants is evaluated as a rational number, and not rounded as floats are."""
    return domain.exact_constants and type(prim) in _ROUNDING and outs[0].inexact


# ------------------------------------------------------------------------------------------------------- arithmetic


def _lifted(f: Callable[..., ExactValue]) -> EvaluationRule:
    """Return the rule of a function of the operands as residues."""
    return lambda domain, prim, args, ins, outs: [f(domain, *map(domain.lift, args))]


def _floats(f: Callable[..., ExactValue]) -> EvaluationRule:
    """Return the rule of a function, for operands that are not integers."""
    return lambda domain, prim, args, ins, outs: [f(domain, *map(domain.lift, args))] if ins[0].inexact else None


def _div(domain: ProofDomain, x: Symbolic, y: Symbolic) -> Symbolic:
    quotient = domain.mul(x, domain.inverse(y))
    by_zero = (y.residues == 0).all(-1, keepdims=True)
    if not by_zero.any():
        return quotient
    undefined = domain.function("quotient by zero", [x], quotient.is_complex)
    return quotient.like(np.where(by_zero, undefined.residues, quotient.residues))


def _rsqrt(domain: ProofDomain, x: Symbolic) -> Symbolic:
    return domain.inverse(function_with_value_at_zero(domain, Sqrt(), x))


def _pow(domain: ProofDomain, prim: Pow, args: list[ExactValue], ins: Avals, outs: Avals) -> list[ExactValue] | None:
    exponent = args[1]
    if isinstance(exponent, Symbolic) or not ins[0].inexact or not exponent.size or np.iscomplexobj(exponent):
        return None
    n = exponent.astype(np.float64)
    first = float(n.flat[0])
    if not (n == first).all() or first != round(first) or abs(first) > 64:
        return None
    return [domain.power(domain.lift(args[0]), int(first))]


def _integer_pow(
    domain: ProofDomain, prim: IntegerPow, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue]:
    return [domain.power(domain.lift(args[0]), prim.n)]


def _parity(
    domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    """Return an even or an odd function: of the operand or its negative, the same for both."""
    x = domain.lift(args[0])
    if x.is_complex or not ins[0].inexact:
        return None
    canonical, flipped = domain.sign(x)
    y = function_with_value_at_zero(domain, prim, canonical)
    if type(prim) in _EVEN:
        return [y]
    return [y.like(np.where(flipped[..., None], domain.field.neg(y.residues), y.residues))]


_EVEN: Final = frozenset({Cos, Cosh, Abs})
_ODD: Final = (Sin, Sinh, Tanh, Asin, Asinh, Atan, Atanh, Erf, ErfInv, Sign, Cbrt)


def _reduce_sum(
    domain: ProofDomain, prim: ReduceSum, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue]:
    x = domain.lift(args[0])
    n = domain.points
    parts = [domain.field.total(x.residues[..., k : k + n], prim.axes) for k in range(0, x.residues.shape[-1], n)]
    return [x.like(np.concatenate(parts, -1))]


def _reduce_prod(
    domain: ProofDomain, prim: ReduceProd, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    x = domain.lift(args[0])
    if x.is_complex:
        return None
    residues = x.residues
    for axis in sorted(prim.axes, reverse=True):
        residues = domain.field.product(residues, axis)
    count = prod([ins[0].shape[a] for a in prim.axes])
    return [domain.made(residues, False, max(x.degree * count, 0.0), x.level)]


def _cumprod(
    domain: ProofDomain, prim: CumProd, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    x = domain.lift(args[0])
    if x.is_complex:
        return None
    products = running(domain.field.mul, x.residues, prim.axis, prim.reverse)
    return [domain.made(products, False, x.degree * x.shape[prim.axis], x.level)]


# ------------------------------------------------------------------------------------------------------ conversions


def _convert(
    domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    x, old, new = domain.lift(args[0]), ins[0].dtype, outs[0].dtype
    if new in dtypes.INEXACT and old in dtypes.INTEGER and not x.bit:
        domain.assumptions.add(NO_WRAP)
    if new in dtypes.INEXACT and not x.bit and _greatest(new) < _greatest(old):
        domain.assumptions.add(FINITE)  # a large number becomes an infinity
    if new in dtypes.COMPLEX:
        return [x if x.is_complex else domain.complex(*domain.parts(x))]
    if new in dtypes.FLOATING:
        return [domain.parts(x)[0]]
    if x.bit and not x.is_complex:
        return [x]
    if new == dtypes.bool_:
        return [domain.negated(equal(domain, x, x.like(np.zeros_like(x.residues)), old))]
    if old in dtypes.INTEGER and _holds(new, old):
        domain.assumptions.add(NO_WRAP)
        return [x]
    return None


def _greatest(dtype: DType) -> float:
    """Return the greatest finite number of a dtype, or of the parts of a complex one."""
    if dtype not in dtypes.INEXACT:
        return 1.0 if dtype == dtypes.bool_ else float(dtypes.RANGES[dtype][1])
    return float(ml_dtypes.finfo(dtypes.real_part(dtype)).max)  # type: ignore[no-untyped-call]  # ml_dtypes has no types


def _holds(new: DType, old: DType) -> bool:
    (low, high), (least, most) = dtypes.RANGES[new], dtypes.RANGES[old]
    return low <= least and most <= high


def _complex(domain: ProofDomain, real: Symbolic, imag: Symbolic) -> Symbolic:
    return domain.complex(real, imag)


def _conj(domain: ProofDomain, x: Symbolic) -> Symbolic:
    real, imag = domain.parts(x)
    return domain.complex(real, domain.neg(imag)) if x.is_complex else x


def _sech2(
    domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    tanh = _parity(domain, Tanh(), args, ins, outs)
    if tanh is None:
        return None
    y = domain.lift(tanh[0])
    return [domain.sub(domain.constant(1), domain.mul(y, y))]


def _exp(domain: ProofDomain, x: Symbolic) -> Symbolic:
    """Return exp(x), which is 0 for -inf: masks of scores are infinite constants."""
    y = function_with_value_at_zero(domain, Exp(), x)
    if x.is_complex:
        return y
    lowest = (x.residues == domain.field.neg(domain.infinity)).all(-1, keepdims=True)
    return y.like(np.where(lowest, 0, y.residues))


def _softmax(domain: ProofDomain, prim: Softmax, args: list[ExactValue], ins: Avals, outs: Avals) -> list[ExactValue]:
    weights = _exp(domain, domain.lift(args[0]))
    (total,) = _reduce_sum(domain, ReduceSum(prim.axes), [weights], ins, outs)
    scale = domain.inverse(domain.lift(total))
    kept = [1 if a in prim.axes else n for a, n in enumerate(weights.shape)]
    return [domain.mul(weights, scale.reshape(kept))]


def _log_softmax(
    domain: ProofDomain, prim: LogSoftmax, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue]:
    x = domain.lift(args[0])
    (total,) = _reduce_sum(domain, ReduceSum(prim.axes), [_exp(domain, x)], ins, outs)
    kept = [1 if a in prim.axes else n for a, n in enumerate(x.shape)]
    return [domain.sub(x, function_with_value_at_zero(domain, Log(), domain.lift(total)).reshape(kept))]


def _expm1(domain: ProofDomain, x: Symbolic) -> Symbolic:
    return domain.sub(_exp(domain, x), domain.constant(1))


def _log1p(domain: ProofDomain, x: Symbolic) -> Symbolic:
    return function_with_value_at_zero(domain, Log(), domain.add(domain.constant(1), x))


def _erfc(
    domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    erf = _parity(domain, Erf(), args, ins, outs)
    return None if erf is None else [domain.sub(domain.constant(1), domain.lift(erf[0]))]


def _tan(
    domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    sin, cos = [_parity(domain, f, args, ins, outs) for f in (Sin(), Cos())]
    return None if sin is None or cos is None else [_div(domain, domain.lift(sin[0]), domain.lift(cos[0]))]


RULES: Final[Mapping[type[Primitive], EvaluationRule]] = MappingProxyType(
    {
        Add: _lifted(ProofDomain.add),
        Sub: _lifted(ProofDomain.sub),
        Mul: _lifted(ProofDomain.mul),
        MulNoNan: _lifted(ProofDomain.mul),
        Neg: _lifted(ProofDomain.neg),
        Square: _lifted(lambda domain, x: domain.mul(x, x)),
        IntegerPow: _integer_pow,
        Div: _floats(_div),
        Pow: _pow,
        Rsqrt: _floats(_rsqrt),
        Exp: _floats(_exp),
        Expm1: _floats(_expm1),
        Softmax: _softmax,
        LogSoftmax: _log_softmax,
        Log1p: _floats(_log1p),
        Erfc: _erfc,
        Sech2: _sech2,
        Tan: _tan,
        **dict.fromkeys((*_ODD, *_EVEN), _parity),
        ReduceSum: _reduce_sum,
        ReduceProd: _reduce_prod,
        CumProd: _cumprod,
        Max: extremum(1),
        Min: extremum(-1),
        Clamp: clamp,
        ReduceMax: reduce_extremum,
        ReduceMin: reduce_extremum,
        CumMax: cumulative_extremum,
        CumMin: cumulative_extremum,
        Eq: compare(equal),
        Ne: compare(lambda domain, x, y, dtype: domain.negated(equal(domain, x, y, dtype))),
        Lt: compare(less),
        Gt: compare(lambda domain, x, y, dtype: less(domain, y, x, dtype)),
        Le: compare(lambda domain, x, y, dtype: domain.negated(less(domain, y, x, dtype))),
        Ge: compare(lambda domain, x, y, dtype: domain.negated(less(domain, x, y, dtype))),
        And: of_bits(both),
        Or: of_bits(either),
        Xor: of_bits(xor),
        Not: of_bits(ProofDomain.negated),
        ReduceAnd: reduce_bits,
        ReduceOr: reduce_bits,
        SelectN: select,
        ConvertElementType: _convert,
        StopGradient: _lifted(lambda _, x: x),
        Real: _lifted(lambda domain, x: domain.parts(x)[0]),
        Imag: _lifted(lambda domain, x: domain.parts(x)[1]),
        Conj: _lifted(_conj),
        Complex: _lifted(_complex),
        OptimizationBarrier: lambda _domain, _prim, args, _ins, _outs: args,
        Mark: lambda _domain, _prim, args, _ins, _outs: args,
        DotGeneral: dot_rule,
        Bilinear: bilinear_rule,
    }
)

# of floats as they are, nan, infinities and the sign of zero too
_EXACT_FOR_FLOATS: Final = frozenset(
    {SelectN, ConvertElementType, StopGradient, Real, Imag, Complex, OptimizationBarrier, Mark}
)
_ROUNDING: Final = frozenset({Add, Sub, Mul, MulNoNan, Div, Square, IntegerPow, ReduceSum, DotGeneral})
