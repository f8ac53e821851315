"""Linear systems with tridiagonal matrices."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.errors import ShapeError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    Cotangent,
    Emit,
    Hlo,
    HloValues,
    JvpCtx,
    Lit,
    NDArray,
    Tangents,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.linalg.family import (
    Entries,
    LinearSystem,
    Matrixwise,
    apply_to_each,
    check_lapack_dtype,
    matrix_shape,
)
from fxad.primitives.linalg.hlo_matrices import has_empty, or_nan
from fxad.primitives.linalg.lapack import lapack_call
from fxad.primitives.linalg.matrices import One, X, minus, plus, repeat_as_columns, times
from fxad.primitives.operand_checks import check_count
from fxad.primitives.slicing import Pad
from fxad.primitives.stablehlo import zeros_constant


@final
@primitive
class TridiagonalSolve(LinearSystem, Matrixwise):
    """The X with A X = B, where A has three diagonals: `dl` below, `d`, and `du` above the main one.

    dl[i] is left of d[i] and du[i] right of it; dl[0] and du[n - 1] are ignored. X is nan if the elimination (with
    pivoting) finds a zero pivot.

    Type:   dl, d, du (..., n), B (..., n, m), of one dtype and with the same batch axes -> the type of B.
    Rule:   linear in B, the transpose solves with A^T; X_dot = A^-1 (B_dot - A_dot X).
    Source: gtsv of LAPACK.
    """

    name: ClassVar[str] = "tridiagonal_solve"
    linear_operand: ClassVar[int] = 3

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        dl, d, du, b = check_count(self, avals, 4)
        check_lapack_dtype("tridiagonal_solve", *avals)
        matrix_shape("tridiagonal_solve", b, "operand 3")
        for k, diagonal in enumerate((dl, d, du)):
            if diagonal.shape != b.shape[:-1]:
                raise ShapeError(
                    f"tridiagonal_solve: operand {k} must have one element per row of operand 3, "
                    f"shape {b.shape[:-1]}, got {diagonal}"
                )
        return (b,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        dl, d, du, b = args
        n = d.shape[-1]
        rows = np.arange(n)
        a = np.zeros((*d.shape, n), d.dtype)
        a[..., rows, rows] = d
        a[..., rows[1:], rows[:-1]] = dl[..., 1:]
        a[..., rows[:-1], rows[1:]] = du[..., :-1]
        return apply_to_each(_solved, (Aval(b.shape, b.dtype),), a, b)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (b,) = outs
        if has_empty(b):
            return (zeros_constant(hlo, b),)
        batch = b.shape[:-2]
        results = (*ins, Aval(batch, dtypes.int32))
        overwrite = [(k, k) for k in range(4)]
        *_, x, info = lapack_call(hlo, "gtsv", args, ins, results, overwrite=overwrite)
        return (or_nan(hlo, info, x, b, batch),)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        dl, d, du, _ = primals
        *diagonals, t = tangents
        (x,) = ctx(self, *primals)
        rows_axis = x.aval.ndim - 2
        above, under = _shifted(ctx.one, x, rows_axis, 1), _shifted(ctx.one, x, rows_axis, -1)
        for diagonal, values in zip(diagonals, (above, x, under), strict=True):
            if not isinstance(diagonal, Zero):
                t = minus(
                    ctx.lin_one, t, ctx.lin_one(MUL, repeat_as_columns(ctx.lin_one, diagonal, x.aval.shape), values)
                )
        return (x,), (ctx.lin_one(self, dl, d, du, t),)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        dl, d, du = others
        last = d.aval.ndim - 1
        below, above = _shifted(emit.one, du, last, 1), _shifted(emit.one, dl, last, -1)
        return emit.one(self, below, d, above, ct)

    def right_hand_side(self, emit: Emit, matrix: Atoms, x: Atom) -> Atom:
        one, rows_axis = emit.one, x.aval.ndim - 2
        around = _shifted(one, x, rows_axis, 1), x, _shifted(one, x, rows_axis, -1)
        parts = [times(one, repeat_as_columns(one, d, x.aval.shape), v) for d, v in zip(matrix, around, strict=True)]
        return plus(one, plus(one, parts[0], parts[1]), parts[2])


def _solved(a: Entries, b: Entries) -> tuple[NDArray]:
    return (np.linalg.solve(a, b),)


def _shifted(one: One[X], x: X, axis: int, by: int) -> X:
    """Element i - by at i; zeros where there is none."""
    n = x.aval.ndim
    low, high = [0] * n, [0] * n
    low[axis], high[axis] = by, -by
    zero = Lit.zero(Aval((), x.aval.dtype))
    return one(Pad(tuple(low), tuple(high), (0,) * n), x, zero)


TRIDIAGONAL_SOLVE: Final = TridiagonalSolve()
