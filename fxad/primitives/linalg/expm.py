"""The exponential of matrices, and its derivative as an operation of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.errors import ShapeError
from fxad.ir import (
    INT32_SCALAR,
    Atom,
    Atoms,
    Aval,
    Avals,
    Cotangent,
    Emit,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lit,
    NDArray,
    Tangents,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MUL, SUB
from fxad.primitives.elementwise.convert import BitcastConvertType, ConvertElementType
from fxad.primitives.elementwise.logic import IS_FINITE, LT, SHIFT_LEFT, SHIFT_RIGHT_LOGICAL
from fxad.primitives.elementwise.powers import ABS
from fxad.primitives.elementwise.select import CLAMP, emit_where
from fxad.primitives.families import LinearInOne
from fxad.primitives.linalg.family import (
    Matrixwise,
    as_entries,
    check_lapack_dtype,
    real_dtype,
    square_shape,
)
from fxad.primitives.linalg.hlo_matrices import has_empty
from fxad.primitives.linalg.matrices import (
    MatrixOperand,
    One,
    X,
    as_complex,
    columns,
    dot,
    identity,
    rows,
    scaled,
    transposed,
)
from fxad.primitives.linalg.solve import Solve, lu_factors
from fxad.primitives.operand_checks import check_count
from fxad.primitives.reduce import ReduceMax
from fxad.primitives.shape import BroadcastInDim, ReduceSum
from fxad.primitives.slicing import Pad
from fxad.primitives.stablehlo import zeros_constant

# A matrix, or a matrix and its directional derivative (a dual number). The algorithm is the same for both: sums and
# products of these.
_Matrix: TypeAlias = tuple[Atom, ...]

# Higham (2005), table 2.3: the largest norm for which the approximant of this degree is exact to rounding.
_DOUBLE: Final = 13, 5.371920351148152
_SINGLE: Final = 7, 3.925724783138660
# dtype -> its bits as an integer, bits of the fraction, bias of the exponent
_FORMAT: Final = MappingProxyType({dtypes.float32: (dtypes.int32, 23, 127), dtypes.float64: (dtypes.int64, 52, 1023)})


@final
@primitive
class Expm(Matrixwise):
    """The exponential of matrices, I + A + A A / 2 + ....

    Type:   (..., n, n) float32, float64, complex64 or complex128 -> the same.
    Rule:   expm_frechet.
    Cost:   7 (float32) or 8 (float64) products and one solve, and one product for each doubling of the norm beyond 4.
    Source: Higham, The scaling and squaring method for the matrix exponential revisited (2005), algorithm 2.3.
    """

    name: ClassVar[str] = "expm"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_lapack_dtype("expm", x)
        square_shape("expm", x)
        return (x,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return _evaluate(args)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return (_lower_expm(hlo, args, ins)[0],)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        return ctx(self, *primals), ctx.lin(EXPM_FRECHET, *primals, *tangents)


@final
@primitive
class ExpmFrechet(Matrixwise, LinearInOne):
    """The derivative of the exponential at A in the direction E: the term of expm(A + E) that is linear in E.

    Type:   A and E of one type (..., n, n) -> the same.
    Rule:   linear in E; the transpose is the same primitive at A^T. The derivative in A is an expm_frechet of twice the
            size: expm([[A, E], [0, A]]) contains this derivative as a block.
    Cost:   three times that of expm.
    Source: Al-Mohy, Higham, Computing the Frechet derivative of the matrix exponential (2009), theorem 2.1 and section
            4; Higham, Relton, Higher order Frechet derivatives of matrix functions (2014).
    """

    name: ClassVar[str] = "expm_frechet"
    linear_operand: ClassVar[int] = 1

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        a, e = check_count(self, avals, 2)
        check_lapack_dtype("expm_frechet", a, e)
        square_shape("expm_frechet", a)
        if a != e:
            raise ShapeError(f"expm_frechet: operands differ: {a} and {e}")
        return (a,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return _evaluate(args)[1:]

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return _lower_expm(hlo, args, ins)[1:]

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (a, e), (a_dot, e_dot) = primals, tangents
        outs, n = ctx(self, a, e), a.aval.shape[-1]
        if isinstance(a_dot, Zero):
            return outs, ctx.lin(self, a, e_dot)
        lin = ctx.lin_one
        twice = ctx.one(ADD, _block_of(ctx.one, a, 0, 0), _block_of(ctx.one, a, n, n))
        both = ctx.one(ADD, twice, _block_of(ctx.one, e, 0, n))
        both_dot = lin(ADD, _block_of(lin, a_dot, 0, 0), _block_of(lin, a_dot, n, n))
        both_dot = ctx.add(both_dot, _block_of(lin, e_dot, 0, n))
        corner = lin(self, both, both_dot)
        return outs, (columns(lin, rows(lin, corner, 0, n), n, 2 * n),)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        (a,) = others
        return emit.one(self, transposed(emit.one, a), ct)


def _block_of(one: One[X], a: MatrixOperand, row: int, column: int) -> X:
    """Return a as a block of a matrix of twice the size."""
    rank, n = a.aval.ndim, a.aval.shape[-1]
    lead = (0,) * (rank - 2)
    zero = Lit.zero(Aval((), a.aval.dtype))
    return one(Pad((*lead, row, column), (*lead, n - row, n - column), (0,) * rank), a, zero)


# ------------------------------------------------------------------------------------------------------- algorithm


def _times(b: Builder, x: _Matrix, y: _Matrix) -> _Matrix:
    product = dot(b.one, x[0], y[0])
    if len(x) == 1:
        return (product,)
    return product, b.one(ADD, dot(b.one, x[0], y[1]), dot(b.one, x[1], y[0]))


def _plus(b: Builder, x: _Matrix, y: _Matrix) -> _Matrix:
    return tuple([b.one(ADD, p, q) for p, q in zip(x, y, strict=True)])


def _linear_combination(b: Builder, terms: Sequence[tuple[float, _Matrix]]) -> _Matrix:
    """Return the sum of numbers times matrices."""
    parts: list[_Matrix] = [tuple([scaled(b.one, p, c) for p in x]) for c, x in terms]
    return reduce(lambda x, y: _plus(b, x, y), parts)


def _pade_program(ins: Sequence[Aval]) -> Jaxpr:
    """Return the program A (and E) -> the number of squarings, and the approximant of exp(A / 2^s) (and its
    derivative)."""
    b = Builder()
    parts = b.inputs(ins)
    double = real_dtype(ins[0]) == dtypes.float64
    degree, bound = _DOUBLE if double else _SINGLE
    balance, restore = _balancing(b, parts[0])
    balanced = [b.one(MUL, a, balance) for a in parts]
    count, factor = _scaling(b, balanced[0], bound)
    x: _Matrix = tuple([b.one(MUL, a, _per_matrix(b, factor, a.aval)) for a in balanced])
    unit = identity(b, ins[0])
    powers: list[_Matrix] = [(unit, *[Lit.zero(a) for a in ins[1:]]), _times(b, x, x)]
    for _ in range(2 if double else degree // 2 - 1):
        powers.append(_times(b, powers[-1], powers[1]))
    c = _coefficients(degree)
    # odd powers are x times u, even ones v
    if double:
        high_u = _linear_combination(b, [(c[13], powers[3]), (c[11], powers[2]), (c[9], powers[1])])
        high_v = _linear_combination(b, [(c[12], powers[3]), (c[10], powers[2]), (c[8], powers[1])])
        low_u = _linear_combination(b, [(c[2 * k + 1], powers[k]) for k in range(4)])
        low_v = _linear_combination(b, [(c[2 * k], powers[k]) for k in range(4)])
        u, v = _plus(b, _times(b, powers[3], high_u), low_u), _plus(b, _times(b, powers[3], high_v), low_v)
    else:
        u = _linear_combination(b, [(c[2 * k + 1], p) for k, p in enumerate(powers)])
        v = _linear_combination(b, [(c[2 * k], p) for k, p in enumerate(powers)])
    u = _times(b, x, u)
    above = _plus(b, v, u)
    under = tuple([b.one(SUB, p, q) for p, q in zip(v, u, strict=True)])
    factors = (under[0], *lu_factors(b, under[0]))
    out: _Matrix = (b.one(Solve(False), *factors, above[0]),)
    if len(ins) == 2:
        out = (*out, b.one(Solve(False), *factors, b.one(SUB, above[1], dot(b.one, under[1], out[0]))))
    # products do not change by exact scales of rows and columns: the squarings need none
    return b.build([count, *[b.one(MUL, p, restore) for p in out]], "approximated")


def _coefficients(degree: int) -> list[float]:
    """Return the coefficients of the numerator of the diagonal Pade approximant. That of x^0 is 1, so zeros on the
    diagonal of a diagonal matrix have the exponential 1 exactly: squarings repeat every rounding error of a 1."""
    c = [1.0]
    for k in range(1, degree + 1):
        c.append(c[-1] * (degree - k + 1) / (k * (2 * degree - k + 1)))
    return c


def _balancing(b: Builder, a: Atom) -> tuple[Atom, Atom]:
    """Return the matrices d[j] / d[i] and d[i] / d[j], for powers of 2 such that the sums of the rows of
    |a d[j] / d[i]| are close to those of its columns, or at most 1.

    exp(D^-1 A D) is D^-1 exp(A) D. A matrix with large and small elements far from each other has a smaller norm so,
    which needs fewer squarings. Those of one scale are not changed: a ratio below 16 counts as 1.

    One round is e[i] += (log2 row[i] - log2 column[i]) / 4, for d[i] = 2^e[i] and the sums of the scaled matrix. A
    whole step divides by 2; here all rows move at once, so it is half of one. The logarithm is the exponent of a float,
    an integer, and the quotient is rounded to 0: a difference of 3 or less, a ratio below 16, moves nothing. A sum
    below 1 counts as 1, so that an empty row is not scaled without end.

    Source: Osborne, On pre-conditioning of matrices (1960).
    """
    part = a.aval.with_dtype(real_dtype(a.aval))
    rank, (integer, fraction, bias) = part.ndim, _FORMAT[part.dtype]
    vectors = Aval(part.shape[:-1], integer)
    size = b.one(ABS, a)
    largest = b.one(BroadcastInDim(vectors.shape, tuple(range(rank - 2))), b.one(ReduceMax((rank - 2, rank - 1)), size))
    half = Lit.of(fraction, vectors)
    exponents: Atom = b.one(BroadcastInDim(vectors.shape, ()), Lit.of(0, Aval((), integer)))
    for _ in range(4):
        scaled_size = b.one(MUL, size, _powers(b, exponents, part, sign=1))
        sums = [b.one(ReduceSum((axis,)), scaled_size) for axis in (rank - 1, rank - 2)]
        row, column = [
            b.one(SHIFT_RIGHT_LOGICAL, b.one(BitcastConvertType(integer), b.one(MAX, v, Lit.of(1, v.aval))), half)
            for v in sums
        ]
        quarter = b.one(DIV, b.one(SUB, row, column), Lit.of(4, vectors))
        exponents = b.one(ADD, exponents, quarter)
    limit = (bias - 1) // 2
    exponents = b.one(CLAMP, Lit.of(-limit, vectors), exponents, Lit.of(limit, vectors))
    exponents = emit_where(b, b.one(IS_FINITE, largest), exponents, Lit.of(0, vectors))
    balance, restore = [as_complex(b.one, _powers(b, exponents, part, sign=sign), a.aval) for sign in (1, -1)]
    return balance, restore


def _powers(b: Builder, exponents: Atom, like: Aval, sign: int) -> Atom:
    """Return the matrix of 2^(e[j] - e[i]), or of its inverses."""
    integer, fraction, bias = _FORMAT[like.dtype]
    whole = like.with_dtype(integer)
    rows_first, rank = tuple(range(like.ndim - 1)), like.ndim
    row_exponents = b.one(BroadcastInDim(whole.shape, rows_first), exponents)
    column_exponents = b.one(BroadcastInDim(whole.shape, (*range(rank - 2), rank - 1)), exponents)
    difference = (
        b.one(SUB, column_exponents, row_exponents) if sign > 0 else b.one(SUB, row_exponents, column_exponents)
    )
    bits = b.one(SHIFT_LEFT, b.one(ADD, difference, Lit.of(bias, whole)), Lit.of(fraction, whole))
    return b.one(BitcastConvertType(like.dtype), bits)


def _scaling(b: Builder, a: Atom, bound: float) -> tuple[Atom, Atom]:
    """Return the smallest s, or one more, with |A / 2^s| <= bound in the 1-norm, and 2^-s; s = 0 if the norm is not
    finite.

    Both are computed from the bits of the exponent: exact, without a logarithm. For the norm 20 in float32: 20 / 3.93 =
    5.09 = 2^2 * 1.27 has the exponent bits 127 + 2, so s = 129 - 126 = 3, and 20 / 2^3 = 2.5 is at most 3.93.
    """
    rank = a.aval.ndim
    norm = b.one(ReduceMax((rank - 2,)), b.one(ReduceSum((rank - 2,)), b.one(ABS, a)))
    integer, fraction, bias = _FORMAT[norm.aval.dtype]
    part = b.one(MUL, norm, Lit.of(1 / bound, norm.aval))
    bits = b.one(SHIFT_RIGHT_LOGICAL, b.one(BitcastConvertType(integer), part), _int_literal(fraction, norm, integer))
    count: Atom = b.one(SUB, bits, _int_literal(bias - 1, norm, integer))
    count = b.one(CLAMP, _int_literal(0, norm, integer), count, _int_literal(bias - 1, norm, integer))
    count = emit_where(b, b.one(IS_FINITE, norm), count, _int_literal(0, norm, integer))
    factor = b.one(
        SHIFT_LEFT, b.one(SUB, _int_literal(bias, norm, integer), count), _int_literal(fraction, norm, integer)
    )
    return b.one(ConvertElementType(dtypes.int32), count), b.one(BitcastConvertType(norm.aval.dtype), factor)


def _int_literal(value: int, like: Atom, dtype: dtypes.DType) -> Lit:
    return Lit.of(value, like.aval.with_dtype(dtype))


def _per_matrix(b: Builder, x: Atom, like: Aval) -> Atom:
    """Return one number for each matrix."""
    wide = b.one(BroadcastInDim(like.shape, tuple(range(like.ndim - 2))), x)
    return as_complex(b.one, wide, like)


def _goes_on_program(carry: Sequence[Aval]) -> Jaxpr:
    b = Builder()
    done, counts, *_ = b.inputs(carry)
    most = b.one(ReduceMax(tuple(range(counts.aval.ndim))), counts)
    return b.build([b.one(LT, done, most)], "more")


def _squaring_program(carry: Sequence[Aval]) -> Jaxpr:
    b = Builder()
    done, counts, *parts = b.inputs(carry)
    x: _Matrix = tuple(parts)
    y = _times(b, x, x)
    if counts.aval.shape:  # in a batch, each matrix has its own count
        here = b.one(LT, b.one(BroadcastInDim(counts.aval.shape, ()), done), counts)
        shape = x[0].aval.shape
        mask = b.one(BroadcastInDim(shape, tuple(range(len(shape) - 2))), here)
        y = tuple([emit_where(b, mask, q, p) for p, q in zip(x, y, strict=True)])
    return b.build([b.one(ADD, done, Lit.of(1, done.aval)), counts, *y], "squared")


def _lower_expm(hlo: Hlo, args: HloValues, ins: Avals) -> HloValues:
    if has_empty(ins[0]):
        return [zeros_constant(hlo, a) for a in ins]
    body = _pade_program(ins)
    carry = (INT32_SCALAR, *body.out_avals)
    start = zeros_constant(hlo, carry[0])
    bodies = _goes_on_program(carry), _squaring_program(carry)
    return hlo.op("stablehlo.while", (start, *hlo.call(body, args)), carry, regions=bodies)[2:]


def _evaluate(args: Sequence[NDArray]) -> tuple[NDArray, ...]:
    ins = [Aval(x.shape, x.dtype) for x in args]
    if has_empty(ins[0]):
        return tuple(args)
    counts, *out = run(_pade_program(ins), args)
    x, squarings = [as_entries(p) for p in out], np.asarray(counts, np.int32)
    for k in range(int(np.max(squarings))):
        mask = (k < squarings)[..., None, None]
        y = [x[0] @ x[0], *[x[0] @ d + d @ x[0] for d in x[1:]]]
        x = [np.where(mask, q, p) for p, q in zip(x, y, strict=True)]
    return tuple(x)


EXPM: Final = Expm()
EXPM_FRECHET: Final = ExpmFrechet()
