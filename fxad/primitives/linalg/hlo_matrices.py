"""Matrices in StableHLO: parts of matrices, and values in place of those of a routine that fails or is not called."""

from __future__ import annotations

from math import nan

from fxad import dtypes
from fxad.ir import Aval, Hlo, HloValue, Lit, Shape
from fxad.primitives.axes import replace_entry
from fxad.primitives.elementwise.complex_parts import CONJ
from fxad.primitives.stablehlo import i64_array, i64_attribute, lower_compare, lower_reduce, zeros_constant


def or_nan(
    hlo: Hlo, info: HloValue, value: HloValue, aval: Aval, batch: Shape, finite: HloValue | None = None
) -> HloValue:
    """Return `value` for the matrices of the batch whose routine succeeded (info 0), nan for the others; nan also where
    the mask `finite` does not hold."""
    info_type = Aval(batch, dtypes.int32)
    (ok,) = lower_compare(hlo, "EQ", (info, hlo.constant(Lit.of(0, info_type))), info_type)
    if finite is not None:
        (ok,) = hlo.op("stablehlo.and", (ok, finite), (info_type.with_dtype(dtypes.bool_),))
    ok = _for_each_element(hlo, ok, aval, len(batch))
    poison = hlo.constant(Lit.of(complex(nan, nan) if aval.dtype in dtypes.COMPLEX else nan, aval))
    (out,) = hlo.op("stablehlo.select", (ok, value, poison), (aval,))
    return out


def finite_matrices(hlo: Hlo, value: HloValue, aval: Aval) -> HloValue:
    """Return the mask of the matrices of a batch without nan and infinity."""
    parts = [(value, aval)]
    if aval.dtype in dtypes.COMPLEX:
        part = aval.with_dtype(dtypes.real_part(aval.dtype))
        parts = [(hlo.op(f"stablehlo.{name}", (value,), (part,))[0], part) for name in ("real", "imag")]
    mask = aval.with_dtype(dtypes.bool_)
    masks = [hlo.op("stablehlo.is_finite", (x,), (mask,))[0] for x, _ in parts]
    finite = masks[0] if len(masks) == 1 else hlo.op("stablehlo.and", masks, (mask,))[0]
    rank = aval.ndim
    batch_aval = mask.with_shape(aval.shape[:-2])
    start = Lit.of(True, batch_aval.with_shape(()))
    attributes = {"dimensions": i64_array((rank - 2, rank - 1))}
    return lower_reduce(hlo, "stablehlo.reduce", attributes, "stablehlo.and", start, (finite,), mask, (batch_aval,))[0]


def zeros_unless(hlo: Hlo, finite: HloValue, value: HloValue, aval: Aval) -> HloValue:
    """Return the matrices of a batch for which a mask holds, zeros in place of the others."""
    mask = _for_each_element(hlo, finite, aval, len(aval.shape) - 2)
    return hlo.op("stablehlo.select", (mask, value, zeros_constant(hlo, aval)), (aval,))[0]


def _for_each_element(hlo: Hlo, mask: HloValue, aval: Aval, batch_rank: int) -> HloValue:
    if aval.ndim == batch_rank:
        return mask
    attrs = {"broadcast_dimensions": i64_array(range(batch_rank))}
    return hlo.op("stablehlo.broadcast_in_dim", (mask,), (aval.with_dtype(dtypes.bool_),), attrs)[0]


def triangle(hlo: Hlo, value: HloValue, aval: Aval, *, lower: bool) -> HloValue:
    """Return the lower or the upper triangle, diagonal included; zero elsewhere."""
    rows, columns, counts = _rows_and_columns(hlo, aval)
    (kept,) = lower_compare(hlo, "GE" if lower else "LE", (rows, columns), counts)
    (out,) = hlo.op("stablehlo.select", (kept, value, zeros_constant(hlo, aval)), (aval,))
    return out


def identity_constant(hlo: Hlo, aval: Aval) -> HloValue:
    """Return ones on the diagonal, zeros elsewhere."""
    rows, columns, counts = _rows_and_columns(hlo, aval)
    (on_diagonal,) = lower_compare(hlo, "EQ", (rows, columns), counts)
    (out,) = hlo.op(
        "stablehlo.select", (on_diagonal, hlo.constant(Lit.of(1, aval)), zeros_constant(hlo, aval)), (aval,)
    )
    return out


def corner(hlo: Hlo, value: HloValue, aval: Aval, out: Aval) -> HloValue:
    """Return the first rows and columns of matrices, as many as the result has; zeros where it has more."""
    shape = tuple([min(n, m) for n, m in zip(aval.shape, out.shape, strict=True)])
    if shape != aval.shape:
        attrs = {
            "start_indices": i64_array([0] * aval.ndim),
            "limit_indices": i64_array(shape),
            "strides": i64_array([1] * aval.ndim),
        }
        (value,) = hlo.op("stablehlo.slice", (value,), (aval.with_shape(shape),), attrs)
    if shape != out.shape:
        none, padding = i64_array([0] * aval.ndim), [m - n for n, m in zip(shape, out.shape, strict=True)]
        attrs = {"edge_padding_low": none, "edge_padding_high": i64_array(padding), "interior_padding": none}
        (value,) = hlo.op("stablehlo.pad", (value, zeros_constant(hlo, aval.with_shape(()))), (out,), attrs)
    return value


def _rows_and_columns(hlo: Hlo, aval: Aval) -> tuple[HloValue, HloValue, Aval]:
    """Return row and column of every element, and the type of both."""
    counts = aval.with_dtype(dtypes.int32)
    (rows,) = hlo.op("stablehlo.iota", (), (counts,), {"iota_dimension": i64_attribute(aval.ndim - 2)})
    (columns,) = hlo.op("stablehlo.iota", (), (counts,), {"iota_dimension": i64_attribute(aval.ndim - 1)})
    return rows, columns, counts


def has_empty(*avals: Aval) -> bool:
    """Return True if an operand or result has no elements: LAPACK is then not called."""
    return not all([a.size for a in avals])


def with_longer_axis(aval: Aval, axis: int, by: int) -> Aval:
    """Return the type with `by` more elements along an axis."""
    return aval.with_shape(replace_entry(aval.shape, axis, aval.shape[axis] + by))


def pad_axis(hlo: Hlo, value: HloValue, aval: Aval, axis: int, low: int, high: int, fill: int = 0) -> HloValue:
    """Return `low` elements before an axis and `high` after it. Negative numbers remove elements."""
    amounts = [[by * (k == axis) for k in range(aval.ndim)] for by in (low, high, 0)]
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    attrs = {name: i64_array(by) for name, by in zip(names, amounts, strict=True)}
    operands = (value, hlo.constant(Lit.of(fill, aval.with_shape(()))))
    (out,) = hlo.op("stablehlo.pad", operands, (with_longer_axis(aval, axis, low + high),), attrs)
    return out


def conjugate_transpose(hlo: Hlo, value: HloValue, aval: Aval) -> tuple[HloValue, Aval]:
    """Return the conjugate transpose of matrices, and its type."""
    n = aval.ndim
    out = aval.with_shape((*aval.shape[:-2], aval.shape[-1], aval.shape[-2]))
    order = {"permutation": i64_array([*range(n - 2), n - 1, n - 2])}
    (value,) = hlo.op("stablehlo.transpose", (value,), (out,), order)
    if aval.dtype in dtypes.COMPLEX:
        (value,) = CONJ.lower(hlo, (value,), (out,), (out,))
    return value, out
