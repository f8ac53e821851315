"""LAPACK's routines on GPUs: a row for each, with the operands, results and options that the routine has in LAPACK.

Most routines of cuSOLVER have LAPACK's operands and results. Rows of the others convert them.

Source: cuSOLVER's and cuSPARSE's documentation; the attributes are those of the handlers in jaxlib's CUDA plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from fxad import dtypes
from fxad.errors import CompileError
from fxad.ir import Aval, Avals, Hlo, HloValue, HloValues
from fxad.primitives.linalg.calls import library_call
from fxad.primitives.linalg.hlo_matrices import conjugate_transpose, corner, pad_axis, with_longer_axis
from fxad.primitives.stablehlo import bool_attribute, i64_array, lower_compare, zeros_constant

Options: TypeAlias = Mapping[str, str]
LowerRoutine: TypeAlias = Callable[[Hlo, HloValues, Avals, Avals, Options], tuple[HloValue, ...]]

_JACOBI_SIZE: Final = 1024  # above it, the iteration on a bidiagonal matrix is faster than Jacobi's method
_JACOBI_ECONOMY: Final = 32  # up to it, a batch is one call, which computes full matrices
_LEAST_TRIDIAGONAL: Final = 3  # cuSPARSE's least number of rows


def _letter(option: str) -> str:
    """Return the letter of an option of LAPACK."""
    return chr(int(option.partition(" ")[0]))


def _same(routine: str, overwritten: int = 0) -> LowerRoutine:
    """Return a routine with LAPACK's operands, results and options. Its first result overwrites an operand."""

    def row(hlo: Hlo, args: HloValues, ins: Avals, outs: Avals, options: Options) -> tuple[HloValue, ...]:
        return library_call(hlo, routine, args, ins, outs, options, overwrite=[(overwritten, 0)])

    return row


def _potrf(hlo: Hlo, args: HloValues, ins: Avals, outs: Avals, options: Options) -> tuple[HloValue, ...]:
    lower = {"lower": bool_attribute(_letter(options["uplo"]) == "L")}
    return library_call(hlo, "potrf", args, ins, outs, lower, overwrite=[(0, 0)])


def _trsm(hlo: Hlo, args: HloValues, ins: Avals, outs: Avals, options: Options) -> tuple[HloValue, ...]:
    """XLA's own operation, which calls cuBLAS."""
    transposed = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[_letter(options["trans_x"])]
    attrs = {
        "left_side": bool_attribute(_letter(options["side"]) == "L"),
        "lower": bool_attribute(_letter(options["uplo"]) == "L"),
        "unit_diagonal": bool_attribute(_letter(options["diag"]) == "U"),
        "transpose_a": f"#stablehlo<transpose {transposed}>",
    }
    return hlo.op("stablehlo.triangular_solve", args, outs, attrs)


def _syevd(hlo: Hlo, args: HloValues, ins: Avals, outs: Avals, options: Options) -> tuple[HloValue, ...]:
    """Call the routine for eigenvectors: eigenvalues alone are computed with the vectors. Algorithm 0 lets the handler
    choose by the size."""
    attrs = {"lower": bool_attribute(_letter(options["uplo"]) == "L"), "algorithm": "0 : ui8"}
    return library_call(hlo, "syevd", args, ins, outs, attrs, overwrite=[(0, 0)])


def _gesdd(hlo: Hlo, args: HloValues, ins: Avals, outs: Avals, options: Options) -> tuple[HloValue, ...]:
    """Jacobi's method for matrices of up to 1024 rows and columns, else the iteration on a bidiagonal matrix."""
    m, n = ins[0].shape[-2:]
    by_method = _gesvdj if max(m, n) <= _JACOBI_SIZE else _gesvd
    return by_method(hlo, args, ins, outs, options)


def _gesvdj(hlo: Hlo, args: HloValues, ins: Avals, outs: Avals, options: Options) -> tuple[HloValue, ...]:
    """Call the routine, which returns V, not its adjoint, and computes vectors in any case."""
    (x,), (_, s, u, vh, info), mode = ins, outs, _letter(options["mode"])
    *batch, m, n = x.shape
    economy = mode == "S" and min(m, n) > _JACOBI_ECONOMY
    rows, columns = (min(m, n),) * 2 if economy else (m, n)
    left, right = x.with_shape((*batch, m, rows)), x.with_shape((*batch, n, columns))
    attrs = {"full_matrices": bool_attribute(not economy), "compute_uv": bool_attribute(mode != "N")}
    results = (x, s, left, right, info)
    a, values, u_value, v, status = library_call(hlo, "gesvdj", args, ins, results, attrs, overwrite=[(0, 0)])
    adjoint, adjoint_type = conjugate_transpose(hlo, v, right)
    return a, values, corner(hlo, u_value, left, u), corner(hlo, adjoint, adjoint_type, vh), status


def _gesvd(hlo: Hlo, args: HloValues, ins: Avals, outs: Avals, options: Options) -> tuple[HloValue, ...]:
    """Call the routine, which takes matrices with at least as many rows as columns. Others are passed in row-major
    order: that is their transpose, whose vectors have exchanged places."""
    (x,), (_, s, u, vh, info), mode = ins, outs, _letter(options["mode"])
    wide = x.shape[-2] < x.shape[-1]
    if mode == "N":
        u = vh = x.with_shape(())
    attrs = {
        "full_matrices": bool_attribute(mode == "A"),
        "compute_uv": bool_attribute(mode != "N"),
        "transposed": bool_attribute(wide),
    }
    results = (x, s, vh, u, info) if wide else (x, s, u, vh, info)
    a, values, first, second, status = library_call(
        hlo, "gesvd", args, ins, results, attrs, overwrite=[(0, 0)], row_major=wide
    )
    return (a, values, second, first, status) if wide else (a, values, first, second, status)


def _geev(hlo: Hlo, args: HloValues, ins: Avals, outs: Avals, options: Options) -> tuple[HloValue, ...]:
    """Its eigenvalues are complex. The vectors of a real matrix are packed as in LAPACK: for a pair of conjugate
    eigenvalues, a column with the real part is before one with the imaginary part."""
    (x,), (*parts, left, right, info) = ins, outs
    if _letter(options["compute_left"]) == "V":
        raise CompileError(
            "eig: cuSOLVER has no left eigenvectors",
            remedy="compute the right ones, and inv(v).conj().T of them, or run this part on fx.devices('cpu')",
        )
    w = x.with_shape(x.shape[:-1]).with_dtype(right.dtype)
    attrs = {"left": "false", "right": bool_attribute(_letter(options["compute_right"]) == "V")}
    _, values, _, vectors, status = library_call(hlo, "geev", args, ins, (x, w, x, x, info), attrs)
    none = zeros_constant(hlo, left)
    if x.dtype in dtypes.COMPLEX:
        return values, none, vectors, status
    (re,) = hlo.op("stablehlo.real", (values,), parts[:1])
    (im,) = hlo.op("stablehlo.imag", (values,), parts[1:])
    return re, im, none, _unpacked(hlo, vectors, x, im, right), status


def _unpacked(hlo: Hlo, packed: HloValue, x: Aval, im: HloValue, out: Aval) -> HloValue:
    """Return complex eigenvectors from packed ones. `im` are the imaginary parts of the eigenvalues; that of the first
    of a pair is positive."""
    n, batch = x.ndim - 1, x.shape[:-2]
    axes = {"broadcast_dimensions": i64_array([*range(len(batch)), n])}
    (row,) = hlo.op("stablehlo.broadcast_in_dim", (im,), (x,), axes)
    zero = zeros_constant(hlo, x)
    (first,), (second,) = [lower_compare(hlo, order, (row, zero), x) for order in ("GT", "LT")]
    (negated,) = hlo.op("stablehlo.negate", (packed,), (x,))
    (im_of_first_or_real,) = hlo.op("stablehlo.select", (first, _column_at(hlo, packed, x, 1), zero), (x,))
    (im_part,) = hlo.op("stablehlo.select", (second, negated, im_of_first_or_real), (x,))
    (re_part,) = hlo.op("stablehlo.select", (second, _column_at(hlo, packed, x, -1), packed), (x,))
    (vectors,) = hlo.op("stablehlo.complex", (re_part, im_part), (out,))
    return vectors


def _column_at(hlo: Hlo, value: HloValue, x: Aval, offset: int) -> HloValue:
    """Return column j + offset at column j, and zeros where there is none."""
    return pad_axis(hlo, value, x, x.ndim - 1, -offset, offset)


def _gtsv(hlo: Hlo, args: HloValues, ins: Avals, outs: Avals, options: Options) -> tuple[HloValue, ...]:
    """Call cuSPARSE, which returns the solution alone. It reads the elements of the diagonals that LAPACK ignores.
    Systems that are too small are continued by rows of the identity."""
    (dl, d, du, b), (_, line, _, matrix) = args, ins
    last, rows = line.ndim - 1, matrix.ndim - 2
    n_padding = max(_LEAST_TRIDIAGONAL - line.shape[last], 0)
    shorter, lines, whole = (
        with_longer_axis(line, last, -1),
        with_longer_axis(line, last, n_padding),
        with_longer_axis(matrix, rows, n_padding),
    )
    below = pad_axis(hlo, pad_axis(hlo, dl, line, last, -1, 0), shorter, last, 1, n_padding)
    above = pad_axis(hlo, pad_axis(hlo, du, line, last, 0, -1), shorter, last, 0, 1 + n_padding)
    if n_padding:
        d, b = pad_axis(hlo, d, line, last, 0, n_padding, 1), pad_axis(hlo, b, matrix, rows, 0, n_padding)
    (x,) = library_call(hlo, "gtsv", (below, d, above, b), (lines, lines, lines, whole), (whole,), overwrite=[(3, 0)])
    return dl, d, du, corner(hlo, x, whole, matrix), zeros_constant(hlo, outs[-1])


ON_CUDA: Final[Mapping[str, LowerRoutine]] = MappingProxyType(
    {
        "getrf": _same("getrf"),
        "geqrf": _same("geqrf"),
        "orgqr": _same("orgqr"),
        "ormqr": _same("ormqr", 2),
        "potrf": _potrf,
        "trsm": _trsm,
        "syevd": _syevd,
        "gesdd": _gesdd,
        "geev": _geev,
        "gtsv": _gtsv,
    }
)
