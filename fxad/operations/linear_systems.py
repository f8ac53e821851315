"""Linear systems, inverses and determinants, composed of the primitives of linear algebra.

Operands are in the dtype of the computation (integers become float32); batch axes of two operands broadcast.
A function with its own derivative formula uses the primitive that defines it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fxad import dtypes
from fxad.core.sizes.size import maximum, minimum
from fxad.errors import ShapeError
from fxad.ir import Atom, Atoms, Aval, Emit
from fxad.operations.promotion import broadcast, common_shape, convert, promote_dtypes, to_inexact_dtype
from fxad.primitives.elementwise.arithmetic import ADD, MUL, SUB
from fxad.primitives.linalg import matrices as mx
from fxad.primitives.linalg.cholesky import CHOLESKY
from fxad.primitives.linalg.family import check_lapack_dtype, matrix_shape, square_shape
from fxad.primitives.linalg.lu import LU, LuPivotsToPermutation
from fxad.primitives.linalg.solve import Det, Slogdet, Solve, lu_factors, solve_factored
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.shape import Reshape, Transpose

ARGUMENT: Final = "argument 0"  # of the user's function, in messages

# ---------------------------------------------------------------------------------------------------------- operands


def promote_for_lapack(op: str, emit: Emit, x: Atom) -> Atom:
    """Return `x`, integers and bools as float32. Raises: DTypeError for a dtype without LAPACK routines."""
    x = convert(emit, x, to_inexact_dtype(x.aval.dtype))
    check_lapack_dtype(op, x.aval)
    return x


def promote_pair_for_lapack(op: str, emit: Emit, x: Atom, y: Atom) -> tuple[Atom, Atom]:
    """Return two operands in their common dtype."""
    x, y = promote_for_lapack(op, emit, x), promote_for_lapack(op, emit, y)
    dtype = promote_dtypes(op, x.aval.dtype, y.aval.dtype)
    return convert(emit, x, dtype), convert(emit, y, dtype)


def broadcast_batch_axes(op: str, emit: Emit, x: Atom, y: Atom) -> tuple[Atom, Atom]:
    """Return two operands of matrices with common batch axes."""
    batch = common_shape(op, x.aval.shape[:-2], y.aval.shape[:-2])
    return (
        broadcast(emit, x, (*batch, *x.aval.shape[-2:])),
        broadcast(emit, y, (*batch, *y.aval.shape[-2:])),
    )


# ----------------------------------------------------------------------------------------------------------- systems


def solve(emit: Emit, a: Atom, b: Atom) -> Atoms:
    """Return the x with a x = b; a `b` of one axis is a vector."""
    a, b = promote_pair_for_lapack("solve", emit, a, b)
    square_shape("solve", a.aval, ARGUMENT)
    if not b.aval.shape:
        raise ShapeError(f"solve: argument 1 must be a vector or matrices, got {b.aval}")
    one = emit.one
    if b.aval.ndim == 1:
        column = broadcast(emit, mx.column(one, b), (*a.aval.shape[:-2], *b.aval.shape, 1))
        _check_rows("solve", a, column, b)
        return (mx.vector(one, one(Solve(False), a, *lu_factors(emit, a), column)),)
    _check_rows("solve", a, b, b)
    if a.aval.ndim == 2 and b.aval.ndim > 2:
        return (_solve_shared_matrix(emit, a, b),)
    a, b = broadcast_batch_axes("solve", emit, a, b)
    return (one(Solve(False), a, *lu_factors(emit, a), b),)


def _check_rows(op: str, a: Atom, b: Atom, argument: Atom) -> None:
    if a.aval.shape[-1] != b.aval.shape[-2]:
        raise ShapeError(
            f"{op}: sizes differ: argument 0 {a.aval} has {a.aval.shape[-1]} columns, argument 1 {argument.aval}"
        )


def _solve_shared_matrix(emit: Emit, a: Atom, b: Atom) -> Atom:
    """Solve a batch of right-hand sides for one matrix: one factorisation, with all right-hand sides as columns."""
    from_batch = (b.aval.ndim - 2, *range(b.aval.ndim - 2), b.aval.ndim - 1)
    wide = emit.one(Transpose(from_batch), b)
    flat = emit.one(Reshape((b.aval.shape[-2], b.aval.size // maximum(1, b.aval.shape[-2]))), wide)
    x = emit.one(Reshape(wide.aval.shape), emit.one(Solve(False), a, *lu_factors(emit, a), flat))
    back = (*range(1, b.aval.ndim - 1), 0, b.aval.ndim - 1)
    return emit.one(Transpose(back), x)


def inv(emit: Emit, a: Atom) -> Atoms:
    """Return the inverse: infinities and nan for a singular matrix."""
    a = promote_for_lapack("inv", emit, a)
    square_shape("inv", a.aval, ARGUMENT)
    return (emit.one(Solve(False), a, *lu_factors(emit, a), mx.identity(emit, a.aval)),)


def triangular_solve(
    emit: Emit,
    a: Atom,
    b: Atom,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
) -> Atoms:
    """Return the x with op(a) x = b or x op(a) = b; a `b` with one axis less than `a` is a batch of vectors."""
    conjugate_a = conjugate_a and a.aval.dtype in dtypes.COMPLEX
    prim = TriangularSolve(left_side, lower, transpose_a, conjugate_a, unit_diagonal)
    if b.aval.ndim and b.aval.ndim == a.aval.ndim - 1:
        shape = (*b.aval.shape, 1) if left_side else (*b.aval.shape[:-1], 1, b.aval.shape[-1])
        x = emit.one(prim, a, emit.one(Reshape(shape), b))
        return (emit.one(Reshape(b.aval.shape), x),)
    return emit(prim, a, b)


def solve_triangular(emit: Emit, a: Atom, b: Atom, trans: int, lower: bool, unit_diagonal: bool) -> Atoms:
    """Return the x with op(a) x = b, a triangular: op 0 nothing, 1 transpose, 2 conjugate transpose."""
    prim = TriangularSolve(
        left_side=True, lower_a=lower, transpose_a=trans != 0, conjugate_a=trans == 2, unit_diagonal=unit_diagonal
    )
    return _solve_columns("solve_triangular", emit, a, b, 1, lambda a, columns: emit.one(prim, a, columns))


def _solve_columns(
    op: str, emit: Emit, a: Atom, b: Atom, position: int, solve: Callable[[Atom, Atom], Atom]
) -> tuple[Atom]:
    """Return `solve(a, columns)` for the right-hand sides `b`, argument `position` of the user's function: the columns
    of matrices, or one vector, which becomes a matrix of one column. Both operands get one dtype and one batch shape.

    Raises: ShapeError if the matrices in `a` are not square, or if `b` has no axis.
    """
    a, b = promote_pair_for_lapack(op, emit, a, b)
    square_shape(op, a.aval, ARGUMENT)
    vector = b.aval.ndim == 1
    columns: Atom = mx.column(emit.one, b) if vector else b
    matrix_shape(op, columns.aval, f"argument {position}")
    x = solve(*broadcast_batch_axes(op, emit, a, columns))
    return (mx.vector(emit.one, x) if vector else x,)


def cholesky(emit: Emit, x: Atom, symmetrize: bool, upper: bool) -> Atoms:
    """Return the lower factor, or its conjugate transpose."""
    if symmetrize:
        x = hermitian_part("cholesky", emit, x)
    elif upper:  # the primitive reads the lower triangle
        matrix_shape("cholesky", x.aval, ARGUMENT)
        x = mx.conjugate_transpose(emit.one, x)
    factor = emit.one(CHOLESKY, x)
    return (mx.conjugate_transpose(emit.one, factor) if upper else factor,)


def hermitian_part(op: str, emit: Emit, x: Atom) -> Atom:
    """Return (x + x^H) / 2."""
    square_shape(op, x.aval, ARGUMENT)
    if x.aval.dtype not in dtypes.INEXACT:
        return x  # the primitive raises the error
    return mx.scaled(emit.one, emit.one(ADD, x, mx.conjugate_transpose(emit.one, x)), 0.5)


def cho_solve(emit: Emit, factor: Atom, b: Atom, lower: bool) -> Atoms:
    """Return the x with a x = b, for the Cholesky factor of a."""
    # a = L L^H or U^H U: two systems, the first with L or U^H, the second with L^H or U
    first, second = [
        TriangularSolve(left_side=True, lower_a=lower, transpose_a=t, conjugate_a=t, unit_diagonal=False)
        for t in (not lower, lower)
    ]

    def solve(factor: Atom, columns: Atom) -> Atom:
        return emit.one(second, factor, emit.one(first, factor, columns))

    return _solve_columns("cho_solve", emit, factor, b, 1, solve)


def lu(emit: Emit, x: Atom) -> Atoms:
    """Return the packed factors, the row exchanges and the permutation that they give."""
    factors, pivots = emit(LU, x)
    return factors, pivots, emit.one(LuPivotsToPermutation(x.aval.shape[-2], False), pivots)


def lu_solve(emit: Emit, factors: Atom, pivots: Atom, b: Atom, trans: int) -> Atoms:
    """Return the x with op(a) x = b, for the packed factors of a: 0 a, 1 its transpose, 2 its conjugate transpose."""

    def solve(factors: Atom, columns: Atom) -> Atom:
        if columns.aval.shape[-2] != factors.aval.shape[-1]:  # a permutation of other rows would read some of them
            raise ShapeError(f"lu_solve: the matrix has {factors.aval.shape[-1]} rows, b is {b.aval}")
        row_exchanges = broadcast(emit, pivots, (*factors.aval.shape[:-2], pivots.aval.shape[-1]))
        return solve_factored(emit, factors, row_exchanges, columns, transpose_a=trans != 0, conjugate_a=trans == 2)

    return _solve_columns("lu_solve", emit, factors, b, 2, solve)


def lu_parts(emit: Emit, x: Atom, permute_l: bool) -> Atoms:
    """Return P, L and U with x = P L U, or P L and U."""
    x = promote_for_lapack("lu", emit, x)
    batch, m, n = matrix_shape("lu", x.aval, ARGUMENT)
    k, one = minimum(m, n), emit.one
    factors, pivots = emit(LU, x)
    order = mx.column(one, emit.one(LuPivotsToPermutation(m, True), pivots))
    columns = mx.columns(one, factors, 0, k)
    unit_diagonal = mx.identity(emit, columns.aval)
    below = mx.zero_unless(one, mx.lower_mask(emit, columns.aval.shape, -1), columns)
    lower = one(ADD, below, unit_diagonal)
    rows = mx.rows(one, factors, 0, k)
    upper = mx.zero_where(one, mx.lower_mask(emit, rows.aval.shape, -1), rows)
    if permute_l:
        return mx.permuted(one, lower, order), upper
    eye = mx.identity(emit, Aval((*batch, m, m), dtypes.real_part(x.aval.dtype)))
    return mx.permuted(one, eye, order), lower, upper


# ------------------------------------------------------------------------------------------------------ determinants

_SMALL: Final = 3  # up to this size a determinant is a polynomial


def det(emit: Emit, a: Atom) -> Atoms:
    """Return the determinant: of up to 3 by 3 matrices a polynomial, else by the LU decomposition."""
    a = promote_for_lapack("det", emit, a)
    _, n = square_shape("det", a.aval, ARGUMENT)
    if type(n) is int and 0 < n <= _SMALL:
        return (_det_polynomial(emit, a, n),)
    return emit(DET, a, *lu_factors(emit, a))


def _det_polynomial(emit: Emit, a: Atom, n: int) -> Atom:
    one = emit.one

    def entry(i: int, j: int) -> Atom:
        cell = mx.columns(one, mx.rows(one, a, i, i + 1), j, j + 1)
        return one(Reshape(a.aval.shape[:-2]), cell)

    def minor(rows: tuple[int, int], columns: tuple[int, int]) -> Atom:
        (i, k), (j, m) = rows, columns
        return one(SUB, one(MUL, entry(i, j), entry(k, m)), one(MUL, entry(i, m), entry(k, j)))

    if n == 1:
        return entry(0, 0)
    if n == 2:
        return minor((0, 1), (0, 1))
    terms = [one(MUL, entry(0, j), minor((1, 2), rest)) for j, rest in enumerate([(1, 2), (0, 2), (0, 1)])]
    return one(ADD, one(SUB, terms[0], terms[1]), terms[2])


def slogdet(emit: Emit, a: Atom) -> Atoms:
    """Return the sign and the logarithm of the absolute value of the determinant."""
    a = promote_for_lapack("slogdet", emit, a)
    square_shape("slogdet", a.aval, ARGUMENT)
    return emit(SLOGDET, a, *lu_factors(emit, a))


DET: Final = Det()
SLOGDET: Final = Slogdet()
