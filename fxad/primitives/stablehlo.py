"""StableHLO that several primitives share: attributes as MLIR text, and operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fxad import dtypes
from fxad.ir import Aval, Avals, Hlo, HloValue, HloValues, Lit

# ------------------------------------------------------------------------------------------------------- attributes


def i64_array(values: Iterable[int]) -> str:
    """Return a list of axes or sizes: `array<i64: 0, 1>`."""
    text = ", ".join(map(str, values))
    return f"array<i64: {text}>" if text else "array<i64>"


def i64_attribute(value: int) -> str:
    """Return one axis or size: `0 : i64`."""
    return f"{value} : i64"


def int_list(values: Iterable[int]) -> str:
    """Return a list inside a StableHLO structure attribute: `[0, 1]`."""
    return f"[{', '.join(map(str, values))}]"


def bool_attribute(value: bool) -> str:
    """Return `true` or `false`."""
    return "true" if value else "false"


def precision_attribute(precision: str) -> dict[str, str]:
    """Return the attribute for the precision of products; none for the fastest."""
    if not precision:
        return {}
    one = f"#stablehlo<precision {precision.upper()}>"
    return {"precision_config": f"[{one}, {one}]"}


# ------------------------------------------------------------------------------------------------------- operations


def zeros_constant(hlo: Hlo, aval: Aval) -> HloValue:
    """Return zeros of a type. For a type without elements this is its only value."""
    return hlo.constant(Lit.zero(aval))


def lower_compare(hlo: Hlo, direction: str, args: HloValues, x: Aval) -> tuple[HloValue, ...]:
    """Return a `stablehlo.compare` of two values of type `x`."""
    kind = "FLOAT" if x.inexact else "SIGNED" if x.dtype in dtypes.SIGNED else "UNSIGNED"
    attrs = {
        "comparison_direction": f"#stablehlo<comparison_direction {direction}>",
        "compare_type": f"#stablehlo<comparison_type {kind}>",
    }
    return hlo.op("stablehlo.compare", args, (x.with_dtype(dtypes.bool_),), attrs)


def lower_in_float32(
    hlo: Hlo, args: HloValues, x: Aval, meaning: Callable[[HloValues, Aval], HloValue]
) -> tuple[HloValue, ...]:
    """Lower `meaning` over operands of type `x`. Floats below 32 bits are computed in float32."""
    wide = x.with_dtype(dtypes.accumulated(x.dtype))
    if wide is x:
        return (meaning(args, x),)
    wide_args = [hlo.op("stablehlo.convert", (a,), (wide,))[0] for a in args]
    return hlo.op("stablehlo.convert", (meaning(wide_args, wide),), (x,))


def lower_reduce(
    hlo: Hlo,
    reduction: str,
    attributes: dict[str, str],
    operation: str,
    start: Lit,
    args: HloValues,
    x: Aval,
    outs: Avals,
) -> HloValues:
    """Return a `stablehlo.reduce` or `stablehlo.reduce_window` by an operation such as `stablehlo.add`, of a value of
    type `x`, in the dtype of `start`."""
    wide = start.aval.dtype
    wide_args = args if wide is x.dtype else hlo.op("stablehlo.convert", args, (x.with_dtype(wide),))
    types = [a.with_dtype(wide) for a in outs]
    reduced = hlo.op(reduction, (*wide_args, hlo.constant(start)), types, attributes, (operation,))
    return reduced if wide is x.dtype else hlo.op("stablehlo.convert", reduced, outs)


def bitcast_to_int(hlo: Hlo, x: HloValue, aval: Aval) -> tuple[HloValue, Aval]:
    """Return a float value as a signed integer of its size."""
    bits = aval.with_dtype(dtypes.SIGNED_OF_SIZE[aval.dtype.itemsize])
    return hlo.op("stablehlo.bitcast_convert", (x,), (bits,))[0], bits


def nonzero_flags(hlo: Hlo, x: HloValue, aval: Aval) -> HloValue:
    """Return a mask of the elements that are not 0. It compares bits, because XLA's comparison treats subnormals as
    0."""
    if aval.dtype in dtypes.INEXACT - dtypes.FLOAT8:
        x, aval = _joined_bits(hlo, x, aval)
        # without the sign bit
        (x,) = hlo.op("stablehlo.shift_left", (x, hlo.constant(Lit.of(1, aval))), (aval,))
    return lower_compare(hlo, "NE", (x, zeros_constant(hlo, aval)), aval)[0]


def _joined_bits(hlo: Hlo, x: HloValue, aval: Aval) -> tuple[HloValue, Aval]:
    """Return the bits of a float as an integer; of a complex number, the bitwise or of those of its parts. A mask needs
    one comparison then: LLVM joins two into one that treats subnormals as 0."""
    if aval.dtype not in dtypes.COMPLEX:
        return bitcast_to_int(hlo, x, aval)
    part = aval.with_dtype(dtypes.real_part(aval.dtype))
    (re, bits), (im, _) = [
        bitcast_to_int(hlo, hlo.op(f"stablehlo.{name}", (x,), (part,))[0], part) for name in ("real", "imag")
    ]
    return hlo.op("stablehlo.or", (re, im), (bits,))[0], bits
