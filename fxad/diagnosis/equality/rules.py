"""The meaning of primitives on symbolic values.

Most come from what a primitive states already:

- Data movement: `impl` runs on opaque elements, which have no arithmetic.
- Linear and bilinear primitives (`Linear.linear_in`): `impl` runs on float64 arrays that hold small digits of residues.
- Other elementwise primitives, and operations on rows or matrices: random functions of their operands.

`RULES` has those that are more than that: arithmetic, extrema, comparisons, and functions that are defined by others. A
primitive from outside is a `HasDefinition` if it is a program of other primitives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np

from fxad import dtypes
from fxad.diagnosis.equality.bits import both, compare, either, equal, less, of_bit, of_bits, reduce_bits, select, xor
from fxad.diagnosis.equality.domain import EvaluationRule, ExactValue, ProofDomain, Symbolic, kind_of
from fxad.diagnosis.equality.extrema import clamp, cumulative_extremum, extremum, reduce_extremum, running
from fxad.diagnosis.equality.field import Residues
from fxad.diagnosis.in_dtype import OF_DTYPES, prim_in
from fxad.dtypes import DType
from fxad.ir import Aval, Avals, HigherOrder, Jaxpr, Linear, NDArray, Primitive
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.barrier import OptimizationBarrier
from fxad.primitives.cumulative import CumMax, CumMin, CumProd, Cumulative
from fxad.primitives.dot import DotGeneral, free_axes
from fxad.primitives.elementwise import (
    ELEMENTWISE,
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
from fxad.primitives.elementwise.bessel import BESSEL
from fxad.primitives.elementwise.beta import BETA
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.elementwise.gamma import GAMMA
from fxad.primitives.families import Bilinear, of_family
from fxad.primitives.fft import Fft
from fxad.primitives.linalg.family import LinearSystem, Matrixwise
from fxad.primitives.marks import Mark
from fxad.primitives.random import Threefry2x32
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, Reduction
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import ReduceSum
from fxad.primitives.softmax import LogSoftmax, Softmax
from fxad.primitives.sort import Sort
from fxad.primitives.top_k import TopK


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
                _assume_finite(domain, ins, outs)
            return made
    elif isinstance(prim, OptimizationBarrier | Mark | StopGradient):
        return args
    for marks in _linear_in(prim, args, ins):
        linear = _linear(domain, prim, args, marks, ins, outs)
        if linear is not None:
            _assume_widths(domain, tuple([a for a, m in zip(ins, marks, strict=True) if m]), outs)
            return linear
    return _unknown(domain, prim, args, ins, outs)


def _assume_finite(domain: ProofDomain, ins: Avals, outs: Avals) -> None:
    """Note that a law of real numbers was used, which floats have if they are finite, and zero has no sign."""
    if any([a.inexact for a in (*ins, *outs)]):
        domain.assumptions.add(_FINITE)


def _assume_widths(domain: ProofDomain, ins: Avals, outs: Avals) -> None:
    """Note that a primitive whose results are wider than its operands reads integers, as a conversion does."""
    if any([a.dtype in dtypes.INTEGER and a.dtype != b.dtype for a in ins for b in outs]):
        domain.assumptions.add(_NO_WRAP)


_FINITE: Final = "no operand or computed value is nan or infinite, and -0 is 0"


def _keeps_exact(domain: ProofDomain, prim: Primitive, outs: Avals) -> bool:
    """Return True if a primitive of constants is evaluated as a rational number, and not rounded as floats are."""
    return domain.exact_constants and type(prim) in _ROUNDING and outs[0].inexact


# ---------------------------------------------------------------------------------------------------- linear primitives


def _linear_in(prim: Primitive, args: Sequence[ExactValue], ins: Avals) -> list[tuple[bool, ...]]:
    """Return the sets of operands that a primitive may be linear in, which have all symbolic ones."""
    if not isinstance(prim, Linear) or (isinstance(prim, Div) and not ins[0].inexact):  # a quotient of integers rounds
        return []
    symbolic = tuple([isinstance(x, Symbolic) for x in args])
    kinds = {a.dtype for a, s in zip(ins, symbolic, strict=True) if s}
    # A constant may be one of the linear operands. The first set that works gives the result:
    #   symbolic and floating        dynamic_update_slice(x, 1.5, i): x and 1.5, but not the index
    #   of the dtypes of symbolic    concatenate(n, 2) of integers: n and 2
    #   symbolic alone               x / 2.0: it is linear in x, not in both
    #   all                          a primitive of a user may return operands of any dtypes, as a barrier (above) does
    candidates = [
        tuple([s or a.inexact for s, a in zip(symbolic, ins, strict=True)]),
        tuple([s or a.dtype in kinds for s, a in zip(symbolic, ins, strict=True)]),
        symbolic,
        (True,) * len(ins),
    ]
    return [marks for marks in dict.fromkeys(candidates) if prim.linear_in(marks)]


def _linear(
    domain: ProofDomain, prim: Primitive, args: list[ExactValue], marks: tuple[bool, ...], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    """Return the results of a linear primitive, by `impl`. If it does arithmetic, it may have no floats as
    coefficients, in an operand or a body: float64 drops 1e-20 y from x + 1e-20 y, and an integer remains."""
    lifted = [domain.lift(x) if m else x for x, m in zip(args, marks, strict=True)]
    vectors = [x for x in lifted if isinstance(x, Symbolic)]
    is_complex = any([x.is_complex for x in vectors])
    if is_complex and not all([a.dtype in dtypes.COMPLEX for a in outs]):
        return None  # it is linear over the real numbers only
    if is_complex:
        lifted = [domain.complex(*domain.parts(x)) if isinstance(x, Symbolic) else x for x in lifted]
        vectors = [x for x in lifted if isinstance(x, Symbolic)]
    degree, level = max([x.degree for x in vectors]), max([x.level for x in vectors])
    width = vectors[0].residues.shape[-1]

    def run(values: Sequence[NDArray], with_prim: Primitive) -> tuple[NDArray, ...]:
        remaining = iter(values)
        with np.errstate(all="ignore"):
            return with_prim.impl(*[next(remaining) if isinstance(x, Symbolic) else x for x in lifted])

    def made(residues: Sequence[Residues], bit: bool) -> list[ExactValue]:
        return [Symbolic(r, is_complex, degree, level, bit) for r in residues]

    opaque = np.dtype((np.void, 8 * width))
    cells = [np.ascontiguousarray(x.residues).view(opaque).reshape(x.shape) for x in vectors]
    try:
        moved = run(cells, prim)
    except Exception:  # noqa: BLE001  # it does arithmetic, which opaque elements have not
        moved = ()
    if moved and all([np.asarray(y).dtype == opaque for y in moved]):
        bit = all([x.bit for x in vectors])
        return made([np.ascontiguousarray(y).view(np.int64).reshape(*np.shape(y), width) for y in moved], bit)
    coefficients = any([a.inexact and not m for a, m in zip(ins, marks, strict=True)])
    if not domain.interpreted or coefficients or isinstance(prim, HigherOrder):
        return None
    wide = prim_in(dtypes.float64, prim)
    parts = [domain.parts(x) if is_complex else (x,) for x in vectors]
    done = []
    for k in range(1 + is_complex):
        try:
            one = domain.field.linear(lambda xs: list(map(np.asarray, run(xs, wide))), [p[k].residues for p in parts])
        except Exception:  # noqa: BLE001  # `impl` takes no float64: nothing is known of the primitive
            return None
        if one is None:
            return None
        done.append(one)
    _assume_finite(domain, (), outs)
    return made([np.concatenate(rows, -1) for rows in zip(*done, strict=True)], False)


def _bilinear(
    domain: ProofDomain, prim: Bilinear, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    _assume_widths(domain, ins, outs)
    x, y = map(domain.lift, args)
    wide = prim_in(dtypes.float64, prim)

    def one(a: Symbolic, b: Symbolic) -> Symbolic | None:
        made = domain.field.bilinear(lambda u, v: np.asarray(wide.impl(u, v)[0]), a.residues, b.residues)
        return None if made is None else domain.made(made, False, a.degree + b.degree, max(a.level, b.level))

    return _of_parts(domain, one, x, y)


def _of_parts(
    domain: ProofDomain, one: Callable[[Symbolic, Symbolic], Symbolic | None], x: Symbolic, y: Symbolic
) -> list[ExactValue] | None:
    """Return a bilinear function of arrays that may be complex, from that of real ones."""
    if not (x.is_complex or y.is_complex):
        made = one(x, y)
        return None if made is None else [made]
    products = [one(a, b) for a in domain.parts(x) for b in domain.parts(y)]
    if any([p is None for p in products]):
        return None
    ac, ad, bc, bd = [p for p in products if p is not None]
    return [domain.complex(domain.sub(ac, bd), domain.add(ad, bc))]


def _dot(
    domain: ProofDomain, prim: DotGeneral, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    """Return the matrix product of all pairs of digits at once: as `impl`, in one call."""
    _assume_widths(domain, ins, outs)
    x, y = map(domain.lift, args)
    rows_axes = free_axes(len(x.shape), prim.lhs_batch, prim.lhs_contract)
    column_axes = free_axes(len(y.shape), prim.rhs_batch, prim.rhs_contract)
    batch = [x.shape[a] for a in prim.lhs_batch]
    rows, columns = [x.shape[a] for a in rows_axes], [y.shape[a] for a in column_axes]
    n = prod([x.shape[a] for a in prim.lhs_contract])

    def one(a: Symbolic, b: Symbolic) -> Symbolic:
        left = a.residues.transpose(*prim.lhs_batch, *rows_axes, *prim.lhs_contract, len(x.shape))
        right = b.residues.transpose(*prim.rhs_batch, *prim.rhs_contract, *column_axes, len(y.shape))
        p = domain.points
        made = domain.field.matmul(
            left.reshape(*batch, prod(rows), n, p), right.reshape(*batch, n, prod(columns), p)
        ).reshape(*batch, *rows, *columns, p)
        return domain.made(made, False, a.degree + b.degree, max(a.level, b.level))

    return _of_parts(domain, one, x, y)


# --------------------------------------------------------------------------------------------------- random functions


def _unknown(domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals) -> list[ExactValue]:
    """Return random functions of the operands: of elements, of rows or matrices, or of all operands together. Equal
    names are equal functions, so the name has what the function depends on beside its operands."""
    if domain.interpreted and type(prim) in OF_DTYPES and any([a.inexact for a in ins]):
        domain.assumptions.add(READS_BITS)
    if is_elementwise(prim, ins, outs):
        return _unknown_of_elements(domain, prim, args, ins, outs)
    axes_of = of_family(ROWS, type(prim))
    axes = None if axes_of is None else axes_of(prim, ins)
    lifted = [domain.lift(x) for x in args]
    if axes is None or not all([a.ndim >= ins[0].ndim - len(axes) for a in outs]):
        return _unknown_of_all(domain, prim, lifted, ins, outs)
    return _unknown_of_rows(domain, prim, lifted, ins, outs, axes)


def _unknown_of_elements(
    domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue]:
    """Return a function for each result, which is applied to the elements at one place of all operands."""
    if domain.interpreted and len(outs) == 1 and not ins[0].inexact:
        known = of_bit(domain, prim, args, ins)
        if known is not None:
            return [known]
    name = domain.named(prim) + _types_in_name(domain, prim, ins)
    lifted = [domain.lift(x) for x in args]
    made = [domain.function(f"{name} {k}", lifted, *kind_of(a.dtype)) for k, a in enumerate(outs)]
    if domain.interpreted and len(lifted) == len(made) == 1:
        return [_at_zero(domain, prim, lifted[0], made[0], ins[0].dtype)]
    return [*made]


def _unknown_of_all(
    domain: ProofDomain, prim: Primitive, lifted: list[Symbolic], ins: Avals, outs: Avals
) -> list[ExactValue]:
    """Return a function for each result, of all elements of all operands."""
    name = domain.named(prim) + _types_in_name(domain, prim, ins) + str([a.shape for a in ins])
    elements = np.concatenate([np.zeros(0, np.int64), *[x.residues.reshape(-1) for x in lifted]])
    return [domain.function_of_rows(f"{name} {k}", elements, a.shape, *kind_of(a.dtype)) for k, a in enumerate(outs)]


def _unknown_of_rows(
    domain: ProofDomain, prim: Primitive, lifted: list[Symbolic], ins: Avals, outs: Avals, axes: tuple[int, ...]
) -> list[ExactValue]:
    """Return a function for each result, which is applied to one row, or array along `axes`, of each operand. The
    other axes of the first operand are the leading axes of rows and results. An operand with fewer axes than the first
    has rows along all but those.

    The last axis of residues, r, is no axis of the operand. For a sort of x[a, b] along axis 0:

        residues of x    [a, b, r]
        moved            [b, a, r]    rows: [b, a * r]
        of_rows          [b, a, r]    results of each row: [a]
        the result       [a, b, r]    with the axis where x has it
    """
    lead = [n for a, n in enumerate(ins[0].shape) if a not in axes]
    types = _types_in_name(domain, prim, ins)
    if domain.interpreted:
        name = domain.named(prim, ("axis", "axes")) + types  # rows do not know where they lie
    else:
        # a sum takes its terms in an order that depends on the shape
        name = domain.named(prim) + types + str([a.shape for a in ins])
    parts = []
    for x in lifted:
        along = axes if len(x.shape) == len(lifted[0].shape) else tuple(range(len(lead), len(x.shape)))
        name += str([x.shape[a] for a in along])
        moved = np.moveaxis(x.residues, along, range(-1 - len(along), -1))
        parts.append(moved.reshape(*lead, prod(moved.shape[len(lead) :])))
    rows = np.concatenate(parts, -1)
    results: list[ExactValue] = []
    for k, aval in enumerate(outs):
        inner = aval.ndim - len(lead)
        # a result with as many axes of its own has them where the operand has them, another one behind the leading ones
        at = axes if inner == len(axes) else tuple(range(len(lead), aval.ndim))
        of_rows = domain.function_of_rows(f"{name} {k}", rows, [aval.shape[a] for a in at], *kind_of(aval.dtype))
        results.append(of_rows.like(np.moveaxis(of_rows.residues, range(-1 - inner, -1), at), of_rows.bit))
    return results


def _types_in_name(domain: ProofDomain, prim: Primitive, ins: Avals) -> str:
    """Return the dtypes of operands that a function depends on, beyond their values: integers have a width, and some
    functions are about the floats of a dtype."""
    every = type(prim) in OF_DTYPES or not domain.interpreted
    return "".join([f" {a.dtype}" for a in ins if every or not a.inexact])


READS_BITS: Final = "equal real numbers are equal floats where a program reads their bits"


def is_elementwise(prim: Primitive, ins: Avals, outs: Avals) -> bool:
    """Return True if each element of a result depends on those of the operands at its place only."""
    known = isinstance(prim, Unary | Binary | Compare) or type(prim) in _ELEMENTWISE
    return known and len({a.shape for a in (*ins, *outs)}) == 1


_ELEMENTWISE: Final = frozenset((*ELEMENTWISE, *GAMMA, *BESSEL, *BETA, Threefry2x32))


def _one_axis(prim: Any, ins: Avals) -> tuple[int, ...]:
    return (prim.axis % ins[0].ndim,)


def _matrices(prim: Any, ins: Avals) -> tuple[int, ...] | None:
    """Return the axes of the first operand, a matrix. Other operands may be vectors: of pivots, of right-hand sides."""
    lead = ins[0].shape[:-2]
    if ins[0].ndim < 2:  # the diagonals of one matrix
        return None
    return (ins[0].ndim - 2, ins[0].ndim - 1) if all([a.shape[: len(lead)] == lead for a in ins]) else None


# the axes of a primitive that is a function of rows, or of arrays along several axes; all other axes are batch axes
ROWS: Final[Mapping[type[Primitive], Callable[[Any, Avals], tuple[int, ...] | None]]] = MappingProxyType(
    {
        Sort: _one_axis,
        ArgMax: _one_axis,
        ArgMin: _one_axis,
        Cumulative: _one_axis,
        TopK: lambda _, ins: (ins[0].ndim - 1,),
        Reduction: lambda prim, _: prim.axes,
        ReduceSum: lambda prim, _: prim.axes,
        Matrixwise: _matrices,
        LinearSystem: _matrices,
        Fft: lambda prim, ins: tuple(range(ins[0].ndim - len(prim.lengths), ins[0].ndim)),
    }
)

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
    return domain.inverse(_call(domain, Sqrt(), x))


def _call(domain: ProofDomain, prim: Primitive, x: Symbolic) -> Symbolic:
    """Return a function of inexact values of which nothing is known but its value at 0."""
    y = domain.function(f"{domain.named(prim)} 0", [x], x.is_complex)
    return _at_zero(domain, prim, x, y, dtypes.complex128 if x.is_complex else dtypes.float64)


def _at_zero(domain: ProofDomain, prim: Primitive, x: Symbolic, y: Symbolic, dtype: DType) -> Symbolic:
    """Return `y`, with the value of the function at 0 where `x` is 0 whatever the operands are: padding holds zeros."""
    zero = (x.residues == 0).all(-1, keepdims=True)
    if not zero.any():
        return y
    value = domain.lift(np.asarray(prim.impl(np.zeros((), dtype))[0]))
    if value.is_complex != y.is_complex:
        value = domain.complex(*domain.parts(value))
    return y.like(np.where(zero, value.residues, y.residues), y.bit)


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
    y = _call(domain, prim, canonical)
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
        domain.assumptions.add(_NO_WRAP)
    if new in dtypes.INEXACT and not x.bit and _greatest(new) < _greatest(old):
        domain.assumptions.add(_FINITE)  # a large number becomes an infinity
    if new in dtypes.COMPLEX:
        return [x if x.is_complex else domain.complex(*domain.parts(x))]
    if new in dtypes.FLOATING:
        return [domain.parts(x)[0]]
    if x.bit and not x.is_complex:
        return [x]
    if new == dtypes.bool_:
        return [domain.negated(equal(domain, x, x.like(np.zeros_like(x.residues)), old))]
    if old in dtypes.INTEGER and _holds(new, old):
        domain.assumptions.add(_NO_WRAP)
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


_NO_WRAP: Final = "integers did not wrap before they were converted to floats or wider integers"


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
    y = _call(domain, Exp(), x)
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
    return [domain.sub(x, _call(domain, Log(), domain.lift(total)).reshape(kept))]


def _expm1(domain: ProofDomain, x: Symbolic) -> Symbolic:
    return domain.sub(_exp(domain, x), domain.constant(1))


def _log1p(domain: ProofDomain, x: Symbolic) -> Symbolic:
    return _call(domain, Log(), domain.add(domain.constant(1), x))


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
        DotGeneral: _dot,
        Bilinear: _bilinear,
    }
)

# of floats as they are, nan, infinities and the sign of zero too
_EXACT_FOR_FLOATS: Final = frozenset(
    {SelectN, ConvertElementType, StopGradient, Real, Imag, Complex, OptimizationBarrier, Mark}
)
_ROUNDING: Final = frozenset({Add, Sub, Mul, Div, Square, IntegerPow, ReduceSum, DotGeneral})
