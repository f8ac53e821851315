"""Eigenvalues and eigenvectors of square matrices."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from fxad import dtypes
from fxad.ir import Atom, Atoms, Aval, Avals, Hlo, HloValues, JvpCtx, NDArray, Tangent, Tangents, primitive
from fxad.primitives.elementwise.complex_parts import CONJ
from fxad.primitives.linalg.eigh import inverse_gaps
from fxad.primitives.linalg.family import Entries, Matrixwise, apply_to_each, check_lapack_dtype, square_shape
from fxad.primitives.linalg.hlo_matrices import has_empty, or_nan
from fxad.primitives.linalg.lapack import char_option, lapack_call
from fxad.primitives.linalg.matrices import (
    as_complex,
    conjugate_transpose,
    diagonal,
    dot,
    minus,
    repeat_as_rows,
    times,
)
from fxad.primitives.linalg.solve import Solve, lu_factors
from fxad.primitives.operand_checks import check_count
from fxad.primitives.shape import ReduceSum
from fxad.primitives.stablehlo import zeros_constant


@final
@primitive
class Eig(Matrixwise):
    """The eigenvalues w of A and, optionally, left eigenvectors (columns of VL, VL^H A = diag(w) VL^H), and right ones
    (A VR = VR diag(w)), each of norm 1.

    All are nan if the iteration fails.

    Type:   (..., n, n) -> w (..., n), and each matrix of vectors (..., n, n), all complex.
    Rule:   with M = V^-1 A_dot V: w_dot = diag(M), V_dot = V (F * M), F[i, j] = 1 / (w[j] - w[i]) off the diagonal,
            minus the part that would change norms; the phase is fixed as in `eigh`. If eigenvalues are equal V_dot is
            not finite. If A has no basis of eigenvectors no tangent is finite.
    Source: geev of LAPACK; Giles, An extended collection of matrix derivative results (2008), 3.1.
    """

    name: ClassVar[str] = "eig"
    left: bool
    right: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_lapack_dtype("eig", x)
        batch, n = square_shape("eig", x)
        dtype = _complex(x)
        vectors = x.with_dtype(dtype)
        return Aval((*batch, n), dtype), *[vectors] * (self.left + self.right)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        outs = self.abstract_eval(Aval(x.shape, x.dtype))

        def decomposed(a: Entries) -> tuple[NDArray, ...]:
            w, v = np.linalg.eig(a)
            return w, *([_dual(v)] if self.left else []), *([v] if self.right else [])

        return apply_to_each(decomposed, outs, x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,), w = ins, outs[0]
        if has_empty(x):
            return [zeros_constant(hlo, a) for a in outs]
        batch, vectors = x.shape[:-2], x.with_dtype(w.dtype)
        options = {
            "compute_left": char_option("V" if self.left else "N"),
            "compute_right": char_option("V" if self.right else "N"),
        }
        parts = [w] if x.dtype in dtypes.COMPLEX else [w.with_dtype(x.dtype)] * 2
        results = (*parts, vectors, vectors, Aval(batch, dtypes.int32))
        *values, left, right, info = lapack_call(hlo, "geev", args, ins, results, options)
        if len(values) == 2:
            values = [*hlo.op("stablehlo.complex", values, (w,))]
        selected = [*values, *([left] if self.left else []), *([right] if self.right else [])]
        return [or_nan(hlo, info, value, a, batch) for value, a in zip(selected, outs, strict=True)]

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        w, *vectors = ctx(Eig(self.left, True), *primals)
        lin, t = ctx.lin_one, as_complex(ctx.lin_one, tangents[0], vectors[-1].aval)
        right = vectors[-1]
        inner = _inner(ctx, right, t)
        out_tangents = [diagonal(ctx, lin, inner)]
        if self.left:  # the right eigenvectors of A^H, with the conjugate eigenvalues
            left = vectors[0]
            out_tangents.append(
                _vectors_tangent(ctx, ctx.one(CONJ, w), left, _inner(ctx, left, conjugate_transpose(lin, t)))
            )
        if self.right:
            out_tangents.append(_vectors_tangent(ctx, w, right, inner))
        return (w, *vectors[: len(out_tangents) - 1]), tuple(out_tangents)


def _complex(x: Aval) -> dtypes.DType:
    return x.dtype if x.dtype in dtypes.COMPLEX else dtypes.complex_of(x.dtype)


def _dual(v: Entries) -> NDArray:
    """Return left eigenvectors in LAPACK's scaling, from the right ones: norm 1, the largest component real."""
    if not v.size:
        return v
    left = np.linalg.inv(v).conj().T
    left = left / np.linalg.norm(left, axis=0)
    largest = left[np.argmax(np.abs(left), axis=0), np.arange(len(left))]
    return np.asarray(left * (largest.conj() / np.abs(largest)))


def _inner(ctx: JvpCtx, v: Atom, t: Tangent) -> Tangent:
    """Return V^-1 A_dot V."""
    return ctx.lin_one(Solve(False), v, *lu_factors(ctx, v), dot(ctx.lin_one, t, v))


def _vectors_tangent(ctx: JvpCtx, w: Atom, v: Atom, inner: Tangent) -> Tangent:
    """Return V (F * M) minus its components along V, so that norms and phases do not change."""
    lin = ctx.lin_one
    v_dot = dot(lin, v, times(lin, inverse_gaps(ctx, w), inner))
    along = lin(ReduceSum((v.aval.ndim - 2,)), times(lin, ctx.one(CONJ, v), v_dot))
    return minus(lin, v_dot, times(lin, v, repeat_as_rows(lin, along, v.aval.shape)))
