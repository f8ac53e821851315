"""The laws of `inverse` and `invertible`, at one program, operands for it, and which of them are held.

@given(inversions())
def test_inverse(case):
    check_inverse(case)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.flags import select_by_flags
from fxad.core.interpreter import run
from fxad.ir import NDArray
from fxad.testing.batching_laws import mapped_dims
from fxad.testing.compare import differ, fail, instantiate_tangents, program_tolerance
from fxad.testing.derivative_laws import check_same_derivatives, differentiable_flags
from fxad.testing.inversions import Inversion
from fxad.testing.programs import Case
from fxad.testing.transform_laws import check_transform
from fxad.testing.values import examples, stack
from fxad.transforms import jvp, residuals
from fxad.transforms.inversion.inverse import inverse
from fxad.transforms.inversion.invertible import invertible
from fxad.transforms.inversion.reconstruction_check import SUMS
from fxad.transforms.inversion.rules.measuring import widest
from fxad.transforms.vmap import vmap

# The error that rounding in the backward steps may cause, relative to the largest magnitude of their values.
RTOL: Final = 1e-6


def check_inverse(case: Inversion, *, rtol: float = RTOL) -> None:
    """Check that the inverse returns the operands from the results, within `rtol`. The composed program satisfies the
    general laws. A known log-determinant equals that of the dense Jacobian."""
    program, args = case.program, case.args
    wanted = tuple([not k for k in case.kept])
    back = check_transform(lambda f: inverse(f, wanted), program)
    inverse_args = [*run(program, args), *select_by_flags(args, case.kept)]
    tolerance = max(rtol, program_tolerance(program, args))
    if problem := differ(run(back, inverse_args), select_by_flags(args, wanted), slack=tolerance):
        fail(f"inverse(f)(f(x)) is not x: {problem}", program, args, back)
    if case.measured:
        measured = check_transform(lambda f: inverse(f, wanted, True), program)
        *again, log_det = run(measured, inverse_args)
        if problem := differ(again, select_by_flags(args, wanted), slack=tolerance):
            fail(f"with log_det, inverse(f)(f(x)) is not x: {problem}", program, args, measured)
        if problem := differ([log_det], [dense_log_det(case)], slack=tolerance):
            fail(f"log_det is not that of the dense Jacobian: {problem}", program, args, measured)


def dense_log_det(case: Inversion) -> NDArray:
    """Return log|det| of the Jacobian of the results in the operands that are not held. A complex number counts as two
    real ones; integers and bools are ignored."""
    program, args = case.program, case.args
    wanted = tuple([a.inexact and not k for a, k in zip(program.in_avals, case.kept, strict=True)])
    forward, nonzero = jvp(program, wanted)
    moving, outs = select_by_flags(program.in_avals, wanted), program.out_avals
    columns = []
    for k, x in enumerate(moving):
        for unit in (1.0, 1j) if x.dtype in dtypes.COMPLEX else (1.0,):
            for i in range(x.size):
                directions = [np.zeros(a.shape, a.dtype) for a in moving]
                directions[k].reshape(-1)[i] = unit
                tangent_columns = instantiate_tangents(run(forward, [*args, *directions])[len(outs) :], nonzero, outs)
                columns.append(_as_real_vector([y for y, a in zip(tangent_columns, outs, strict=True) if a.inexact]))
    n = len(columns)
    matrix = np.array(columns, np.float64).reshape(n, n)
    return np.asarray(np.linalg.slogdet(matrix)[1], widest([a.dtype for a in moving]))


def _as_real_vector(values: Sequence[NDArray]) -> npt.NDArray[np.float64]:
    """Return all elements as a vector, with both parts of complex ones."""
    wide = np.concatenate([y.reshape(-1).astype(np.complex128) for y in values])
    real = np.concatenate([np.full(y.size, y.dtype not in dtypes.COMPLEX) for y in values])
    return np.concatenate([wide.real, wide.imag[~real]])


def check_invertible(case: Inversion, *, rtol: float = RTOL) -> None:
    """Check that the results are equal bit for bit. The gradient, its derivative and forward mode equal those of the
    program within `rtol`, for one example and batched, inside and outside of `invertible`. Only results, sketches and
    held operands are stored."""
    program, args = case.program, case.args
    lean = check_transform(lambda f: invertible(f, case.kept), program)
    if problem := differ(run(lean, args), run(program, args), exact=True):
        fail(f"invertible changed the results: {problem}", program, args, lean)
    _check_stored(case)
    check_same_derivatives(case.case, lean, rtol)
    dims = tuple([d if k else d or 0 for d, k in zip(mapped_dims(case.case), case.kept, strict=True)])
    mapped, ends = _over_two_examples(case, dims), (0,) * len(program.outs)
    check_same_derivatives(mapped, vmap(lean, 2, dims, ends)[0], rtol)
    # a predicate for each example makes a branch a choice between the results of both: there is nothing to run back;
    # and of a stack of matrices the last axes are those of the matrices
    alike = tuple([
        None if d is None or (k and a.dtype == np.bool_) else 0 for a, k, d in zip(args, case.kept, dims, strict=True)
    ])  # fmt: skip
    mapped = _over_two_examples(case, alike)
    check_same_derivatives(mapped, invertible(mapped.program, case.kept), rtol)


def _over_two_examples(case: Inversion, dims: Sequence[int | None]) -> Case:
    """Return the program mapped over two examples."""
    mapped, _ = vmap(case.program, 2, tuple(dims), (0,) * len(case.program.outs))
    return Case(mapped, stack(examples(case.args, dims), dims), case.seed, case.case.smooth)


def _check_stored(case: Inversion) -> None:
    """Check that the residuals are held operands, and at most the bytes of the results besides the sketches."""
    bare, lean = [invertible(case.program, case.kept, (), tolerance) for tolerance in (math.inf, 0.0)]
    stored, more = [
        [row.aval for row in residuals(f, differentiable_flags(case.case)) if not row.is_argument] for f in (bare, lean)
    ]
    most = case.program.out_avals
    if len(stored) > len(most) or any([stored.count(a) > most.count(a) for a in stored]):
        fail(f"stored is {stored}, of results {most}", case.program, case.args, bare)
    if any([a.ndim != 1 or a.size > SUMS for a in more if more.count(a) > most.count(a)]):
        fail(f"stored is {more}, of results {most}, and not as sketches", case.program, case.args, lean)
