"""StableHLO of matrices, and calls of routines of libraries by name (see `fxad.xla.custom_calls`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from types import MappingProxyType
from typing import Final

from fxad import dtypes
from fxad.ir import Aval, Avals, Hlo, HloValue, HloValues, Lit, Shape, Zero
from fxad.primitives.elementwise.family import emit_compare
from fxad.primitives.mlir_attributes import i64_array, i64_attribute

NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})


def library_call(
    hlo: Hlo,
    routine: str,
    args: HloValues,
    ins: Avals,
    outs: Avals,
    options: Mapping[str, str] = NO_OPTIONS,
    *,
    overwrite: Sequence[tuple[int, int]] = (),
    row_major: bool = False,
) -> tuple[HloValue, ...]:
    """Call `routine` for the dtype of the first operand, for a whole batch at once.

    Matrices, which are the operands and results of the highest rank, are passed in column-major order, as LAPACK
    requires, or in row-major order. `overwrite` pairs operands with the results that may reuse their memory.
    """
    rank = None if row_major else max([a.ndim for a in (*ins, *outs)])
    aliases = [_alias(result, operand, len(outs)) for operand, result in overwrite]
    attrs = {
        "call_target_name": f'"fxad_{routine}_{dtypes.short(ins[0].dtype)}"',
        "api_version": "4 : i32",
        "backend_config": f"{{{', '.join([f'{k} = {v}' for k, v in options.items()])}}}",
        "operand_layouts": f"[{', '.join([_layout(a, rank) for a in ins])}]",
        "result_layouts": f"[{', '.join([_layout(a, rank) for a in outs])}]",
        "output_operand_aliases": f"[{', '.join(aliases)}]",
    }
    return hlo.op("stablehlo.custom_call", args, outs, attrs)


def _layout(a: Aval, column_major_rank: int | None) -> str:
    order = list(range(a.ndim))[::-1]  # row-major: the last axis is the fastest
    if a.ndim == column_major_rank:
        order[:2] = [a.ndim - 2, a.ndim - 1]
    return f"dense<{order or ''}> : tensor<{len(order)}xindex>"


def _alias(result: int, operand: int, results: int) -> str:
    at = f"[{result}]" if results > 1 else "[]"
    return (
        f"#stablehlo.output_operand_alias<output_tuple_indices = {at}, operand_index = {operand}, "
        f"operand_tuple_indices = []>"
    )


def or_nan(hlo: Hlo, info: HloValue, value: HloValue, aval: Aval, batch: Shape) -> HloValue:
    """`value` for the matrices of the batch whose routine succeeded (info 0), nan for the others."""
    kind = Aval(batch, dtypes.int32)
    (ok,) = emit_compare(hlo, "EQ", (info, hlo.constant(Lit.of(0, kind))), kind)
    if aval.shape != batch:
        spread = {"broadcast_dimensions": i64_array(range(len(batch)))}
        (ok,) = hlo.op("stablehlo.broadcast_in_dim", (ok,), (aval.with_dtype(dtypes.bool_),), spread)
    poison = hlo.constant(Lit.of(complex(nan, nan) if aval.dtype in dtypes.COMPLEX else nan, aval))
    (out,) = hlo.op("stablehlo.select", (ok, value, poison), (aval,))
    return out


def lower_triangle(hlo: Hlo, value: HloValue, aval: Aval, *, lower: bool) -> HloValue:
    """The lower or the upper triangle, diagonal included; zero elsewhere."""
    rows, columns, counts = _rows_and_columns(hlo, aval)
    (kept,) = emit_compare(hlo, "GE" if lower else "LE", (rows, columns), counts)
    (out,) = hlo.op("stablehlo.select", (kept, value, zeros_constant(hlo, aval)), (aval,))
    return out


def lower_identity(hlo: Hlo, aval: Aval) -> HloValue:
    """Ones on the diagonal, zeros elsewhere."""
    rows, columns, counts = _rows_and_columns(hlo, aval)
    (line,) = emit_compare(hlo, "EQ", (rows, columns), counts)
    (out,) = hlo.op("stablehlo.select", (line, hlo.constant(Lit.of(1, aval)), zeros_constant(hlo, aval)), (aval,))
    return out


def corner(hlo: Hlo, value: HloValue, aval: Aval, out: Aval) -> HloValue:
    """The upper left corner of matrices, with zeros to the right where the result has more columns."""
    shape = tuple([min(n, m) for n, m in zip(aval.shape, out.shape, strict=True)])
    if shape != aval.shape:
        attrs = {
            "start_indices": i64_array([0] * aval.ndim),
            "limit_indices": i64_array(shape),
            "strides": i64_array([1] * aval.ndim),
        }
        (value,) = hlo.op("stablehlo.slice", (value,), (aval.with_shape(shape),), attrs)
    if shape != out.shape:
        none, more = i64_array([0] * aval.ndim), [m - n for n, m in zip(shape, out.shape, strict=True)]
        attrs = {"edge_padding_low": none, "edge_padding_high": i64_array(more), "interior_padding": none}
        (value,) = hlo.op("stablehlo.pad", (value, zeros_constant(hlo, aval.with_shape(()))), (out,), attrs)
    return value


def _rows_and_columns(hlo: Hlo, aval: Aval) -> tuple[HloValue, HloValue, Aval]:
    """Return row and column of every element, and the type of both."""
    counts = aval.with_dtype(dtypes.int32)
    (rows,) = hlo.op("stablehlo.iota", (), (counts,), {"iota_dimension": i64_attribute(aval.ndim - 2)})
    (columns,) = hlo.op("stablehlo.iota", (), (counts,), {"iota_dimension": i64_attribute(aval.ndim - 1)})
    return rows, columns, counts


def zeros_constant(hlo: Hlo, aval: Aval) -> HloValue:
    """Zeros; of an empty type, its only value."""
    return hlo.constant(Zero(aval).instantiate())


def has_empty(*avals: Aval) -> bool:
    """Return True if an operand or result has no elements: LAPACK is then not called."""
    return not all([a.size for a in avals])
