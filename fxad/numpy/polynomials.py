"""Polynomials as vectors of coefficients, from the highest power to the lowest."""

from __future__ import annotations

from typing import Final

from fxad import dtypes, lax
from fxad.core.sizes.size import maximum
from fxad.errors import ParameterError, ShapeError
from fxad.lax import scan
from fxad.numpy.apply import as_array, to_inexact
from fxad.numpy.assembling import trim_zeros
from fxad.numpy.composites import jit_composite, jit_composite_all, promote_arguments
from fxad.numpy.creation import eye, full
from fxad.numpy.linalg import eigvals, inv, lstsq
from fxad.numpy.products import matmul
from fxad.numpy.shapes import broadcast_shapes, broadcast_to, concat, flip
from fxad.numpy.signal import convolve
from fxad.numpy.types import finfo, result_type
from fxad.numpy.unary import real, sqrt
from fxad.numpy.value_dependent import concrete_value
from fxad.operations import promotion
from fxad.operations.arguments import flag, to_int
from fxad.tracing.array import Array, ArrayLike


def _coefficient_vector(name: str, p: ArrayLike, k: int = 0) -> Array:
    array = as_array(name, p, k)
    if array.ndim > 1:
        raise ShapeError(f"{name}: argument {k} must be a vector of coefficients, got {array.aval}")
    return array.reshape(-1)


def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """Evaluate a polynomial at x by Horner's rule, in a loop over the coefficients with `unroll` of them in each
    iteration. The coefficients stand along the first axis of p; its other axes broadcast with x."""
    unroll = to_int("polyval", "unroll", unroll)
    coefficients = as_array("polyval", p)
    if not coefficients.ndim:
        coefficients = coefficients.reshape(1)
    return jit_composite(_horner, *promote_arguments("polyval", coefficients, x), unroll)


def _horner(p: Array, x: Array, unroll: int) -> Array:
    dtype = result_type(p, x)
    p, x = p.astype(dtype), x.astype(dtype)
    out = full(broadcast_shapes(x.shape, p.shape[1:]), 0, dtype)

    def step(value: Array, coefficient: Array) -> tuple[Array, None]:
        return value * x + coefficient, None

    if p.shape[0] > unroll:
        value, _ = scan(step, out, p, unroll=unroll)
        return value
    for k in range(p.shape[0]):
        out = out * x + p[k]
    return out


def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Return the sum of two polynomials."""
    return jit_composite(
        _add_polynomials, _coefficient_vector("polyadd", a1), _coefficient_vector("polyadd", a2, 1), False
    )


def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Return the difference of two polynomials."""
    return jit_composite(
        _add_polynomials, _coefficient_vector("polysub", a1), _coefficient_vector("polysub", a2, 1), True
    )


def _add_polynomials(a: Array, b: Array, less: bool) -> Array:
    n = max(a.size, b.size)
    a, b = [concat([full((n - p.size,), 0, p.dtype), p]) if p.size < n else p for p in (a, b)]
    return a - b if less else a + b


def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """Return the product of two polynomials: the convolution of their coefficients.

    Rule:   leading zeros are kept. NumPy drops them, so its size depends on values; so does `trim_leading_zeros`, which
            cannot be traced.
    """
    a, b = _coefficient_vector("polymul", a1), _coefficient_vector("polymul", a2, 1)
    if flag("polymul", "trim_leading_zeros", trim_leading_zeros):
        a, b = _without_leading_zeros(a), _without_leading_zeros(b)
    return convolve(a, b)


def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """Return the quotient and the remainder of two polynomials.

    Rule:   leading zeros of the remainder are kept. NumPy drops them, so its size depends on values; so does
            `trim_leading_zeros`, which cannot be traced.
    """
    a, b = _coefficient_vector("polydiv", u), _coefficient_vector("polydiv", v, 1)
    n = max(a.size - b.size + 1, 0)
    both = jit_composite(_divide, a, b)
    quotient, rest = (both[:n], both[n:]) if n else (full((1,), 0, both.dtype), both)
    if flag("polydiv", "trim_leading_zeros", trim_leading_zeros):
        rest = _without_leading_zeros(rest)
    return quotient, rest


def _without_leading_zeros(p: Array) -> Array:
    trimmed = trim_zeros(p, "f")
    return trimmed if trimmed.size else p[:1]


def _divide(u: Array, v: Array) -> Array:
    """Return the quotient and the remainder in one vector."""
    dtype = promotion.to_inexact_dtype(result_type(u, v))
    u, v = u.astype(dtype), v.astype(dtype)
    for k in range(u.size - v.size + 1):
        factor = u[k] / v[0]
        rest = u[k + 1 : k + v.size] - factor * v[1:]
        u = concat([u[:k], factor[None], rest, u[k + v.size :]])
    return u


def polyder(p: ArrayLike, m: int = 1) -> Array:
    """Return the m-th derivative of a polynomial."""
    m = to_int("polyder", "m", m)
    array = _coefficient_vector("polyder", p)
    if m < 0:
        raise ParameterError(f"polyder: order {m} is below 0", remedy="use polyint")
    return jit_composite(_derivative, array, m)


def _widen(x: Array) -> Array:
    """Return integers of less than 32 bits, and bools, as int32, in which their products with exponents fit better."""
    narrow = x.dtype is dtypes.bool_ or (x.dtype in dtypes.INTEGER and x.dtype.itemsize < 4)
    return x.astype(dtypes.int32) if narrow else x


def _derivative(p: Array, m: int) -> Array:
    p = _widen(p) if m else p
    for _ in range(min(m, p.size) if type(p.size) is int else m):
        powers = [p.size - 1 - k for k in range(p.size - 1)]
        p = concat([p[k : k + 1] * power for k, power in enumerate(powers)]) if powers else p[:0]
    return p


def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Array:
    """Return the m-th antiderivative of a polynomial, with integration constants k: one for all, or one for each; 0 by
    default."""
    m = to_int("polyint", "m", m)
    array = to_inexact(_coefficient_vector("polyint", p))
    if m < 0:
        raise ParameterError(f"polyint: order {m} is below 0", remedy="use polyder")
    if m > 1000:
        raise ParameterError(f"polyint: order {m:,} is above 1,000", remedy="integrate fewer times")
    constants = (
        full((m,), 0, array.dtype)
        if k is None
        else promote_arguments("polyint", k, first=2, dtype=array.dtype)[0].reshape(-1)
    )
    if constants.size not in (1, m):
        raise ShapeError(f"polyint: {constants.size} constants for {m} integrations")
    return jit_composite(_integral, array, constants, m)


def _integral(p: Array, constants: Array, m: int) -> Array:
    dtype = result_type(p, promotion.to_inexact_dtype(constants.dtype))
    p, constants = p.astype(dtype), constants.astype(dtype)
    for j in range(m):
        terms = [p[k : k + 1] / (p.size - k) for k in range(p.size)]
        own = min(j, constants.size - 1)
        p = concat([*terms, constants[own : own + 1]])
    return p


def poly(seq_of_zeros: ArrayLike) -> Array:
    """Return the monic polynomial with the given roots; for a matrix, with its eigenvalues (complex)."""
    array = as_array("poly", seq_of_zeros)
    if array.ndim == 2 and array.shape[0] == array.shape[1] and array.size != 0:
        array = eigvals(array)
    if array.ndim > 1:
        raise ShapeError(f"poly: takes a vector of roots or a square matrix, got {array.aval}")
    return jit_composite(_polynomial_of_roots, to_inexact(array.reshape(-1)))


def _polynomial_of_roots(roots: Array) -> Array:
    out = full((1,), 1, roots.dtype)
    for k in range(roots.size):
        zero = full((1,), 0, roots.dtype)
        out = concat([out, zero]) - concat([zero, roots[k] * out])
    return out


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """Return the roots of a polynomial, complex: the eigenvalues of its companion matrix.

    Rule:   leading zeros are dropped and trailing zeros are roots 0, so the number of roots depends on values. With
            `strip_zeros=False` the first coefficient must not be zero, and the function can be traced.
    """
    strip_zeros = flag("roots", "strip_zeros", strip_zeros)
    array = to_inexact(_coefficient_vector("roots", p))
    if not strip_zeros:
        return jit_composite(_companion_roots, array)
    values = concrete_value("roots", p, "use roots(p, strip_zeros=False) where the first coefficient is not 0")
    nonzero = values.reshape(-1).nonzero()[0]
    first, last = (int(nonzero[0]), int(nonzero[-1])) if nonzero.size else (0, -1)
    nonzero_roots = jit_composite(_companion_roots, array[first : last + 1])
    trailing_zeros = values.size - 1 - last if nonzero.size else 0
    return concat([nonzero_roots, full((trailing_zeros,), 0, nonzero_roots.dtype)])


def _companion_roots(p: Array) -> Array:
    n = p.size - 1
    if n < 1:
        complexes = p.dtype if p.dtype in dtypes.COMPLEX else dtypes.complex_of(result_type(p, dtypes.float32))
        return full((0,), 0, complexes)
    p = p.astype(result_type(p, dtypes.float32))
    return eigvals(concat([(-p[1:] / p[0])[None], eye(n, dtype=p.dtype)[:-1]]))


def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """Return the Vandermonde matrix: the powers of each element in a row, descending, or ascending if `increasing`."""
    N = None if N is None else to_int("vander", "N", N)
    increasing = flag("vander", "increasing", increasing)
    array = as_array("vander", x)
    if array.ndim != 1:
        raise ShapeError(f"vander: takes a vector, got {array.aval}")
    n = array.size if N is None else N
    if n < 0:
        raise ParameterError(f"vander: {n} columns")
    return jit_composite(_vandermonde, array, n, increasing)


_UNROLLED: Final = 256  # powers with an equation for each; more are a cumulative product


def _vandermonde(x: Array, n: int, increasing: bool) -> Array:
    x = _widen(x)
    columns = [full((x.size, 1), 1, x.dtype)]
    many = type(n) is not int or n > _UNROLLED
    if many:
        columns.append(lax.cumprod(broadcast_to(x[:, None], (x.size, maximum(n - 1, 0))), 1))
    for _ in range(0 if many else n - 1):
        columns.append(columns[-1] * x[:, None])
    out = concat(columns, 1)[:, :n]
    return out if increasing else flip(out, 1)


def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Array | tuple[Array, ...]:
    """Return the least-squares polynomial of a degree for points (x, y), each weighted by `w`.

    Type:   y is a vector, or a matrix whose columns are fitted separately.
    Rule:   singular values below `rcond` times the greatest count as 0; None is the precision times the number of
            points. `cov` also returns the covariance of the coefficients; "unscaled" for weights 1 / sigma. `full` also
            returns, instead, the sums of squared residuals, the rank, the singular values and `rcond`, as in NumPy.
    """
    deg = to_int("polyfit", "deg", deg)
    cov = cov if isinstance(cov, str) else flag("polyfit", "cov", cov)
    a, b = to_inexact(as_array("polyfit", x)), to_inexact(as_array("polyfit", y, 1))
    if deg < 0:
        raise ParameterError(f"polyfit: degree {deg} is below 0")
    if a.ndim != 1 or b.ndim not in (1, 2) or a.size != b.shape[0] or a.size == 0:
        raise ShapeError(f"polyfit: takes vectors of one size, at least 1, got {a.aval} and {b.aval}")
    weights = None if w is None else to_inexact(as_array("polyfit", w, 5))
    if weights is not None and weights.shape != a.shape:
        raise ShapeError(f"polyfit: weights {weights.aval} for {a.size} points")
    if cov is True and a.size <= deg + 1:
        raise ParameterError(f"polyfit: {a.size} points leave nothing to find the covariance of {deg + 1} from")
    if flag("polyfit", "full", full):
        return jit_composite_all(_least_squares_in_full, a, b, weights, deg, rcond)
    fitted = jit_composite(_least_squares, a, b, weights, deg, rcond)
    return (fitted, jit_composite(_covariance, a, b, weights, fitted, deg, cov != "unscaled")) if cov else fitted


def _scaled_vandermonde(x: Array, w: Array | None, deg: int) -> tuple[Array, Array]:
    """Return the Vandermonde matrix with columns of length 1, and their original lengths."""
    powers = _vandermonde(x, deg + 1, False)
    powers = powers if w is None else powers * w[:, None]
    length = sqrt(real(powers * powers.conj()).sum(0))
    return powers / length, length


def _least_squares(x: Array, y: Array, w: Array | None, deg: int, rcond: float | None) -> Array:
    return _least_squares_in_full(x, y, w, deg, rcond)[0]


def _least_squares_in_full(
    x: Array, y: Array, w: Array | None, deg: int, rcond: float | None
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the coefficients, the sums of squared residuals, the rank, the singular values and the limit for them."""
    dtype = result_type(x, y)
    x, y = x.astype(dtype), y.astype(dtype)
    powers, length = _scaled_vandermonde(x, w, deg)
    b = y if w is None else y * (w if y.ndim == 1 else w[:, None])
    least = full((), x.size, dtype) * finfo(dtype).eps if rcond is None else full((), rcond, dtype)
    solution, squares, rank, singular = lstsq(powers, b, least)
    return solution / (length if y.ndim == 1 else length[:, None]), squares, rank, singular, least.real


def _covariance(x: Array, y: Array, w: Array | None, fitted: Array, deg: int, scaled: bool) -> Array:
    at = x.astype(fitted.dtype if x.dtype in dtypes.COMPLEX else fitted.real.dtype)
    powers, length = _scaled_vandermonde(at, w, deg)
    inverse = inv(matmul(powers.T, powers)) / (length[:, None] * length[None, :])
    if not scaled:
        return inverse if y.ndim == 1 else inverse[..., None]
    off = matmul(_vandermonde(x.astype(fitted.dtype), deg + 1, False), fitted) - y
    off = off if w is None else off * (w if y.ndim == 1 else w[:, None])
    factor = real(off * off.conj()).sum(0) / (x.size - deg - 1)
    return inverse * factor if y.ndim == 1 else inverse[..., None] * factor


__all__ = [
    "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval", "roots", "vander",
]  # fmt: skip
