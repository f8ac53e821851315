"""The precision of products on accelerators, as users name it, and operations whose products have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Concatenate, Final, TypeAlias, cast

from fxad.errors import ParameterError, shown
from fxad.ir import Atom, Atoms, Emit, Primitive, Var
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.dot import DotGeneral


class Precision(Enum):
    """The precision of the products of float32 numbers on an accelerator. On a CPU all are the same.

    `DEFAULT` is the fastest: tensor cores may round operands to 19 bits or fewer. `HIGHEST` is float32.
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


PrecisionLike: TypeAlias = "Precision | str | tuple[Precision, Precision] | tuple[str, str] | None"

_NAMES: Final = MappingProxyType({
    None: "", Precision.DEFAULT: "", Precision.HIGH: "high", Precision.HIGHEST: "highest", "default": "", "fastest": "",
    "bfloat16": "", "high": "high", "bfloat16_3x": "high", "tensorfloat32": "high", "highest": "highest",
    "float32": "highest",
})  # fmt: skip


def to_precision(op: str, precision: PrecisionLike) -> str:
    """Return a `precision` argument as a parameter of primitives. Raises: ParameterError."""
    pair = precision if isinstance(precision, tuple | list) else (precision, precision)
    try:
        left, right = [_NAMES[p] for p in pair]
    except (KeyError, TypeError, ValueError):
        raise ParameterError(
            f"{op}: precision {shown(precision)}", remedy='use "default", "high" or "highest", or lax.Precision'
        ) from None
    if left != right:
        raise ParameterError(
            f"{op}: precision {shown(precision)} differs between the operands", remedy="give one for both"
        )
    return left


def precise(emit: Emit, *args: object) -> Atoms:
    """Run another operation, with a precision for its products.

    `args` are those of the other operation, with two more between its operands and its static values:
    (*operands, operation, precision, *static). The operation is the first callable after the operands.
    """
    at = next(k for k, a in enumerate(args) if callable(a) and not isinstance(a, Atom))
    op, precision, *static = args[at:]
    return cast("Callable[Concatenate[Emit, ...], Atoms]", op)(
        _Precise(emit, cast("str", precision)), *args[:at], *static
    )


class _Precise:
    """Adds equations to a builder, with the precision of their products."""

    def __init__(self, emit: Emit, precision: str) -> None:
        self._emit, self._precision = emit, precision

    def _with_precision(self, prim: Primitive) -> Primitive:
        return replace(prim, precision=self._precision) if isinstance(prim, DotGeneral | ConvGeneralDilated) else prim

    def __call__(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        return self._emit(self._with_precision(prim), *args)

    def one(self, prim: Primitive, *args: Atom) -> Var:
        return self._emit.one(self._with_precision(prim), *args)
