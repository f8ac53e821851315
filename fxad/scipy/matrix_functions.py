"""Functions of matrices through their Schur decomposition, and Hessenberg's form: `sqrtm`, `funm`, `solve_sylvester`.

Matrices are on the last two axes; all other axes are batch axes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, overload

from fxad import dtypes, lax, numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.api.directional import jvp
from fxad.errors import ParameterError, ShapeError, shown
from fxad.numpy import linalg
from fxad.numpy.composites import jit_composite, jit_composite_all
from fxad.operations.arguments import check_flags, flag, function, number, word
from fxad.primitives.linalg.schur import Schur
from fxad.scipy.arguments import floats
from fxad.tracing.array import Array, ArrayLike, binder


def _square(name: str, *args: ArrayLike) -> list[Array]:
    """Square matrices in one dtype that LAPACK has. Raises: ShapeError, DTypeError."""
    arrays = floats(name, *args)
    if arrays[0].dtype.itemsize < 4:
        arrays = [a.astype(dtypes.float32) for a in arrays]
    for k, a in enumerate(arrays):
        if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
            raise ShapeError(
                f"{name}: argument {k} must be square matrices, got {a.aval}", remedy="give an array of (..., n, n)"
            )
    return arrays


def _as_complex(x: Array) -> Array:
    return x if x.dtype in dtypes.COMPLEX else x.astype(dtypes.complex_of(x.dtype))


def _adjoint(x: Array) -> Array:
    return fnp.conj(fnp.matrix_transpose(x))


# --------------------------------------------------------------------------------------------------- decompositions


def schur(
    a: ArrayLike,
    output: str = "real",
    lwork: int | None = None,  # noqa: ARG001  SciPy's workspace
    overwrite_a: bool = False,
    sort: None = None,
    check_finite: bool = True,
) -> tuple[Array, Array]:
    """Return T and the unitary Z with a = Z @ T @ Z^H; T is upper triangular, with the eigenvalues on its diagonal.

    For a real a and the output "real", T is real: a pair of complex eigenvalues is a 2 x 2 block on the diagonal. With
    the output "complex", T and Z are complex and T is triangular. `lwork` changes nothing.

    Type:   (..., n, n) -> two of (..., n, n); integers become float32.
    Rule:   the factors have no derivative; `sqrtm`, `funm`, `expm` and `solve_sylvester` have one.
    Raises: ParameterError for another output, and for `sort`; ShapeError; NotDifferentiableError.
    Source: gees of LAPACK, on the CPU.
    """
    check_flags("schur", overwrite_a=overwrite_a, check_finite=check_finite)
    if sort is not None:
        raise ParameterError(f"schur: sort {shown(sort, 40)}: eigenvalues are not ordered", remedy="leave it out")
    word("schur", "output", output, ("real", "complex", "r", "c"))
    (x,) = _square("schur", a)
    return _schur(_as_complex(x) if output in ("complex", "c") else x)


def _schur(x: Array) -> tuple[Array, Array]:
    t, z = binder().bind(Schur(True), (x,))
    return t, z


def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """Return the complex Schur form of a matrix, from its real one: T becomes upper triangular.

    Type:   T and Z (..., n, n), whose batch axes broadcast -> two of the same shape, complex.
    Raises: ShapeError.
    Source: one rotation for each 2 x 2 block: Golub and Van Loan, Matrix Computations, section 7.6 (4th edition)
    """
    check_flags("rsf2csf", check_finite=check_finite)
    t, z = _square("rsf2csf", T, Z)
    if t.shape[-1] != z.shape[-1]:
        raise ShapeError(
            f"rsf2csf: T and Z are of different sizes: {t.aval}, {z.aval}", remedy="give the results of schur"
        )
    batch = fnp.broadcast_shapes(t.shape[:-2], z.shape[:-2])
    t, z = [fnp.broadcast_to(_as_complex(x), (*batch, *x.shape[-2:])) for x in (t, z)]
    t, z = jit_composite_all(_triangular_form, t, z)
    return t, z


def _triangular_form(t: Array, z: Array) -> tuple[Array, Array]:
    n, eps = t.shape[-1], fnp.finfo(t.dtype).eps
    column = fnp.arange(n)

    def rotated(k: Array, form: tuple[Array, Array]) -> tuple[Array, Array]:
        """Make the element (m, m - 1) zero, for m = n - 1 - k."""
        t, z = form
        m = n - 1 - k
        block = lax.dynamic_slice_in_dim(lax.dynamic_slice_in_dim(t, m - 1, 2, -2), m - 1, 2, -1)
        upper, below, lower = block[..., 0, 0], block[..., 1, 0], block[..., 1, 1]
        mu = linalg.eigvals(block)[..., 0] - lower
        length = fnp.sqrt(fnp.abs(mu) ** 2 + fnp.abs(below) ** 2)
        apart = fnp.abs(below) > eps * (fnp.abs(upper) + fnp.abs(lower))
        length = fnp.where(apart, length, 1)
        c, s = fnp.where(apart, mu / length, 1), fnp.where(apart, below / length, 0)
        g = fnp.stack([fnp.stack([fnp.conj(c), s], -1), fnp.stack([-s, c], -1)], -2)
        turned = fnp.matmul(g, lax.dynamic_slice_in_dim(t, m - 1, 2, -2), precision="highest")
        rows = lax.dynamic_update_slice_in_dim(t, turned, m - 1, -2)
        t = fnp.where(column >= m - 1, rows, t)
        t = fnp.where(column[:, None] <= m, _turned_columns(t, g, m), t)
        t = fnp.where((column[:, None] == m) & (column == m - 1), 0, t)
        return t, _turned_columns(z, g, m)

    return lax.fori_loop(0, n - 1, rotated, (t, z)) if n > 1 else (t, z)


def _turned_columns(x: Array, g: Array, m: Array) -> Array:
    pair = fnp.matmul(lax.dynamic_slice_in_dim(x, m - 1, 2, -1), _adjoint(g), precision="highest")
    return lax.dynamic_update_slice_in_dim(x, pair, m - 1, -1)


@overload
def hessenberg(
    a: ArrayLike, calc_q: Literal[False] = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array: ...
@overload
def hessenberg(
    a: ArrayLike, calc_q: Literal[True], overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array]: ...
def hessenberg(
    a: ArrayLike, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array | tuple[Array, Array]:
    """Return H, which is zero below the first subdiagonal; with `calc_q` also the unitary Q with a = Q @ H @ Q^H.

    Type:   (..., n, n) -> H (..., n, n), and Q of the same type; integers become float32.
    Rule:   that of the reflections. It is not finite where a column needs none.
    Raises: ShapeError.
    Source: one Householder reflection for each column, with the signs of LAPACK's gehrd: Golub and Van Loan, Matrix
            Computations, algorithm 7.4.2 (4th edition)
    """
    check_flags("hessenberg", overwrite_a=overwrite_a, check_finite=check_finite)
    (x,) = _square("hessenberg", a)
    h, q = jit_composite_all(_reflected_form, x)
    return (h, q) if flag("hessenberg", "calc_q", calc_q) else h


def _reflected_form(x: Array) -> tuple[Array, Array]:
    n, row = x.shape[-1], fnp.arange(x.shape[-1])

    def reflected(k: Array, form: tuple[Array, Array]) -> tuple[Array, Array]:
        """Make the column k zero below its element k + 1, by I - tau v v^H."""
        h, q = form
        column = lax.dynamic_index_in_dim(h, k, -1, keepdims=False)
        first = fnp.sum(fnp.where(row == k + 1, column, 0), -1, keepdims=True)
        rest = fnp.where(row > k + 1, column, 0)
        acts = fnp.any(rest != 0, -1, keepdims=True) | (fnp.imag(first) != 0)
        size = fnp.maximum(fnp.abs(first), fnp.max(fnp.abs(rest), -1, keepdims=True))
        size = lax.stop_gradient(fnp.where(acts, size, 1))  # so that no square overflows
        first, rest = fnp.where(acts, first, -1) / size, rest / size
        length = fnp.sqrt(fnp.abs(first) ** 2 + fnp.sum(fnp.where(acts, fnp.abs(rest) ** 2, 0), -1, keepdims=True))
        beta = fnp.where(fnp.real(first) < 0, length, -length)
        tau = fnp.where(acts, (beta - first) / beta, 0)
        v = fnp.where(row == k + 1, 1, rest / (first - beta))
        product = partial(fnp.einsum, precision="highest")
        h = h - product("...ij,...j,...k->...ik", h, v, fnp.conj(v)) * tau[..., None]
        h = h - product("...i,...j,...jk->...ik", v, fnp.conj(v), h) * fnp.conj(tau)[..., None]
        q = q - product("...ij,...j,...k->...ik", q, v, fnp.conj(v)) * tau[..., None]
        return fnp.where(acts[..., None] & (row[:, None] > k + 1) & (row == k), 0, h), q

    q = fnp.broadcast_to(fnp.eye(n, dtype=x.dtype), x.shape)
    count = n - 1 if x.dtype in dtypes.COMPLEX else n - 2  # a complex column of two elements is made real
    return lax.fori_loop(0, count, reflected, (x, q)) if count > 0 else (x, q)


# ------------------------------------------------------------------------------------------------- Sylvester's equation


def solve_sylvester(
    A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float | None = None
) -> Array:
    """Return the x with A @ x + x @ B = C.

    With the method "schur" A and B are made triangular: stable for any matrices. With "eigen" they are made diagonal,
    which loses digits if eigenvectors are nearly dependent. If a sum of an eigenvalue of A and one of B is not larger
    than `tol`, the result is nan. The default of `tol` is 0: x is then infinite or nan for singular equations only.

    Type:   A (..., m, m), B (..., n, n), C (..., m, n), whose batch axes broadcast -> x (..., m, n).
    Rule:   that of the solution, of any order: each derivative solves one more equation.
    Raises: ParameterError for another method; ShapeError.
    Source: Bartels and Stewart, Solution of the matrix equation AX + XB = C (1972)
    """
    word("solve_sylvester", "method", method, ("schur", "eigen"))
    least = 0.0 if tol is None else number("solve_sylvester", "tol", tol)
    c = floats("solve_sylvester", A, B, C)[2]
    x, y = [z.astype(c.dtype) for z in _square("solve_sylvester", A, B)]
    if c.dtype.itemsize < 4:
        x, y, c = [z.astype(dtypes.float32) for z in (x, y, c)]
    if c.ndim < 2 or c.shape[-2:] != (x.shape[-1], y.shape[-1]):
        raise ShapeError(
            f"solve_sylvester: C has the shape {c.shape}",
            remedy=f"for matrices of {x.shape[-1]} and {y.shape[-1]} rows it ends with {(x.shape[-1], y.shape[-1])}",
        )
    batch = fnp.broadcast_shapes(x.shape[:-2], y.shape[:-2], c.shape[:-2])
    x, y, c = [fnp.broadcast_to(z, (*batch, *z.shape[-2:])) for z in (x, y, c)]
    return jit_composite(_solve_sylvester, x, y, c, method, least)


def _solve_sylvester(a: Array, b: Array, q: Array, method: str, tol: float) -> Array:
    solve = _by_triangles if method == "schur" else _by_eigenvectors
    a_t, b_t = fnp.matrix_transpose(a), fnp.matrix_transpose(b)

    def product(x: Array) -> Array:
        return fnp.matmul(a, x, precision="highest") + fnp.matmul(x, b, precision="highest")

    return lax.custom_linear_solve(product, q, lambda _, c: solve(a, b, c, tol), lambda _, c: solve(a_t, b_t, c, tol))


def _by_triangles(a: Array, b: Array, q: Array, tol: float) -> Array:
    """With a = U R U^H and b = V S V^H, solve R Y + Y S = U^H q V column by column."""
    (r, u), (s, v) = _schur(_as_complex(a)), _schur(_as_complex(b))
    product = partial(fnp.matmul, precision="highest")
    y = product(product(_adjoint(u), q), v)
    n, m = s.shape[-1], r.shape[-1]
    one, column = fnp.eye(m, dtype=r.dtype), fnp.arange(n)
    sums = fnp.diagonal(r, 0, -2, -1)[..., :, None] + fnp.diagonal(s, 0, -2, -1)[..., None, :]

    def solved(k: Array, y: Array) -> Array:
        of_s = lax.dynamic_index_in_dim(s, k, -1, keepdims=False)
        known = fnp.einsum("...ij,...j->...i", y, fnp.where(column < k, of_s, 0), precision="highest")
        right = lax.dynamic_index_in_dim(y, k, -1, keepdims=False) - known
        shift = fnp.sum(fnp.where(column == k, of_s, 0), -1)
        found = linalg.solve_triangular(r + shift[..., None, None] * one, right[..., None])
        return fnp.where(column == k, found, y)

    y = lax.fori_loop(0, n, solved, y) if y.size != 0 else y
    x = product(product(u, y), _adjoint(v))
    return _regular(x, sums, q.dtype, tol)


def _by_eigenvectors(a: Array, b: Array, q: Array, tol: float) -> Array:
    (w, u), (z, v) = linalg.eig(a), linalg.eig(b)
    sums = w[..., :, None] + z[..., None, :]
    product = partial(fnp.matmul, precision="highest")
    y = product(linalg.solve(u, _as_complex(q)), v) / sums
    x = fnp.matrix_transpose(linalg.solve(fnp.matrix_transpose(v), fnp.matrix_transpose(product(u, y))))
    return _regular(x, sums, q.dtype, tol)


def _regular(x: Array, sums: Array, dtype: dtypes.DType, tol: float) -> Array:
    """Return the solution in the dtype of the equation; nan if a sum of eigenvalues is too small."""
    x = x if dtype in dtypes.COMPLEX else fnp.real(x)
    if tol <= 0:
        return x
    singular = fnp.any(fnp.abs(sums) <= tol, (-2, -1), keepdims=True)
    return fnp.where(singular, fnp.nan, x)


# ---------------------------------------------------------------------------------------------- functions of matrices


def sqrtm(A: ArrayLike) -> Array:
    """Return the principal square root of square matrices, as complex numbers: its eigenvalues have no negative real
    part.

    Type:   (..., n, n) -> (..., n, n), complex. For a real matrix without negative eigenvalues
            the imaginary part is rounding; `fnp.real` drops it.
    Rule:   x_dot with x x_dot + x_dot x = A_dot. It is infinite or nan for a singular A.
    Raises: ShapeError.
    Source: Björck and Hammarling, A Schur method for the square root of a matrix (1983)
    """
    (x,) = _square("sqrtm", A)
    return jit_composite(_sqrtm, _as_complex(x))


@custom_jvp
def _sqrtm(a: Array) -> Array:
    t, z = _schur(a)
    roots = fnp.sqrt(fnp.diagonal(t, 0, -2, -1))
    order = fnp.arange(a.shape[-1])
    sums = roots[..., :, None] + roots[..., None, :]

    def with_superdiagonal(k: Array, r: Array) -> Array:
        """Set r[i, i + k] to (t[i, i + k] - sum of r[i, j] r[j, i + k]) / (r[i, i] + r[i + k, i + k])."""
        rest = t - _superdiagonal_of_product(r, r, k)
        unknown = (rest == 0) & (sums == 0)  # a block of zeros has the root 0
        here = order[None, :] - order[:, None] == k
        return fnp.where(here, fnp.where(unknown, 0, rest / fnp.where(unknown, 1, sums)), r)

    n, strict = a.shape[-1], fnp.zeros_like(t)
    strict = lax.fori_loop(1, n, with_superdiagonal, strict) if n > 1 else strict
    root = strict + fnp.where(order[:, None] == order, roots[..., None, :], 0)
    return fnp.matmul(fnp.matmul(z, root, precision="highest"), _adjoint(z), precision="highest")


def _sqrtm_tangent(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (a,), (t,) = primals, tangents
    x = _sqrtm(a)
    return x, _solve_sylvester(x, x, t, "schur", 0.0)


_sqrtm.defjvp(_sqrtm_tangent)


def _superdiagonal_of_product(x: Array, y: Array, k: Array) -> Array:
    """Return the elements [i, i + k] of x @ y, each in its row."""
    shifted = fnp.roll(fnp.matrix_transpose(y), -k, -2)
    return fnp.einsum("...ij,...ij->...i", x, shifted, precision="highest")[..., None]


@overload
def funm(A: ArrayLike, func: Callable[[Array], ArrayLike], disp: Literal[True] = True) -> Array: ...
@overload
def funm(A: ArrayLike, func: Callable[[Array], ArrayLike], disp: Literal[False]) -> tuple[Array, Array]: ...
def funm(A: ArrayLike, func: Callable[[Array], ArrayLike], disp: bool = True) -> Array | tuple[Array, Array]:
    """Return a function of square matrices, as complex numbers; without `disp` also an estimate of its relative error.

    `func` takes the array of the eigenvalues, which are complex, and works elementwise. Nothing is printed.

    Type:   (..., n, n) -> (..., n, n), complex; the estimate is (...), real.
    Rule:   V (D * (V^-1 A_dot V)) V^-1, with the eigenvectors V and the divided differences D of `func`, which is
            differentiated. It is not finite if A has no basis of eigenvectors.
    Raises: ShapeError.
    Source: the recurrence of Parlett: Golub and Van Loan, Matrix Computations, algorithm 9.1.1 (4th edition). It loses
            digits for eigenvalues that are close. Higham, Functions of Matrices (2008), theorem 3.9, for the
            derivative.
    """
    function("funm", "func", func)
    (x,) = _square("funm", A)
    value, error = _funm(func, _as_complex(x))
    return value if flag("funm", "disp", disp) else (value, error)


@partial(custom_jvp, nondiff_argnums=(0,))
def _funm(func: Callable[[Array], ArrayLike], a: Array) -> tuple[Array, Array]:
    t, z = _schur(a)
    values = fnp.asarray(func(fnp.diagonal(t, 0, -2, -1))).astype(t.dtype)
    n = a.shape[-1]
    order = fnp.arange(n)
    diagonal = fnp.where(order[:, None] == order, values[..., None, :], 0)
    upper = fnp.triu(t, 1)
    eigenvalues = fnp.diagonal(t, 0, -2, -1)
    gaps = eigenvalues[..., None, :] - eigenvalues[..., :, None]
    steps = values[..., None, :] - values[..., :, None]

    def with_superdiagonal(k: Array, f: Array) -> Array:
        strict = f - diagonal
        between = _superdiagonal_of_product(upper, strict, k) - _superdiagonal_of_product(strict, upper, k)
        element = (t * steps + between) / fnp.where(gaps == 0, 1, gaps)
        return fnp.where(order[None, :] - order[:, None] == k, element, f)

    f = lax.fori_loop(1, n, with_superdiagonal, diagonal) if n > 1 else diagonal
    value = fnp.matmul(fnp.matmul(z, f, precision="highest"), _adjoint(z), precision="highest")
    return value, _estimated_error(value, upper, gaps)


def _estimated_error(value: Array, upper: Array, gaps: Array) -> Array:
    """SciPy's estimate: the precision, divided by the least gap between eigenvalues, times the 1-norm of T off the
    diagonal; 1 at most, and infinite if a value is not finite."""
    eps = fnp.finfo(value.dtype).eps
    least = fnp.min(fnp.where(gaps == 0, fnp.inf, fnp.abs(gaps)), (-2, -1), initial=fnp.inf)
    size = fnp.max(fnp.sum(fnp.abs(upper), -2), -1, initial=0)
    error = fnp.minimum(1, fnp.maximum(eps, eps / least * size))
    return fnp.where(fnp.all(fnp.isfinite(value), (-2, -1)), error, fnp.inf)


def _funm_tangent(
    func: Callable[[Array], ArrayLike], primals: tuple[Array], tangents: tuple[Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    (a,), (t,) = primals, tangents
    value, error = _funm(func, a)
    w, v = linalg.eig(a)

    def of_eigenvalues(w: Array) -> Array:
        return fnp.asarray(func(w)).astype(w.dtype)

    f, slope = jvp(of_eigenvalues, (w,), (fnp.ones_like(w),))
    gaps = w[..., None, :] - w[..., :, None]
    equal = gaps == 0
    differences = (f[..., None, :] - f[..., :, None]) / fnp.where(equal, 1, gaps)
    weights = fnp.where(equal, slope[..., None, :], differences)
    product = partial(fnp.matmul, precision="highest")
    moved = product(v, weights * linalg.solve(v, product(t, v)))
    tangent = fnp.matrix_transpose(linalg.solve(fnp.matrix_transpose(v), fnp.matrix_transpose(moved)))
    return (value, error), (tangent, fnp.zeros_like(error))


_funm.defjvp(_funm_tangent)


__all__ = ["funm", "hessenberg", "rsf2csf", "schur", "solve_sylvester", "sqrtm"]
