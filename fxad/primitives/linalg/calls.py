"""Calls of routines of libraries by name (see `fxad.xla.custom_calls`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from fxad import dtypes
from fxad.ir import Aval, Avals, Hlo, HloValue, HloValues

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
