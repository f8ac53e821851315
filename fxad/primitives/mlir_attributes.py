"""Attributes of StableHLO operations as MLIR text."""

from __future__ import annotations

from collections.abc import Iterable


def i64_array(values: Iterable[int]) -> str:
    """A list of axes or sizes: `array<i64: 0, 1>`."""
    text = ", ".join(map(str, values))
    return f"array<i64: {text}>" if text else "array<i64>"


def i64_attribute(value: int) -> str:
    """One axis or size: `0 : i64`."""
    return f"{value} : i64"


def int_list(values: Iterable[int]) -> str:
    """A list inside a StableHLO structure attribute: `[0, 1]`."""
    return f"[{', '.join(map(str, values))}]"


def bool_attribute(value: bool) -> str:
    """`true` or `false`."""
    return "true" if value else "false"


def precision_attribute(precision: str) -> dict[str, str]:
    """The attribute for the precision of products; none for the fastest."""
    if not precision:
        return {}
    one = f"#stablehlo<precision {precision.upper()}>"
    return {"precision_config": f"[{one}, {one}]"}
