"""The contract of lowering: what a primitive's `lower` rule may ask of the function under construction.

Exported by `fxad.ir`; it stands below it, and knows programs as types only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, final

from fxad.core.atoms import Aval, Lit
from fxad.core.dataclasses import dataclass

if TYPE_CHECKING:
    from fxad.ir import Jaxpr, Primitive

HloValue: TypeAlias = object


@final
@dataclass(frozen=True, slots=True)
class Region:
    """A region that reads values from around the operation: they are the first operands of `body`, the rest are the
    block's arguments."""

    body: Jaxpr
    captured: tuple[HloValue, ...]


class Hlo(Protocol):
    """What a lowering rule may use: append StableHLO operations to the function under construction."""

    def op(
        self,
        name: str,
        operands: Sequence[HloValue],
        outs: Sequence[Aval],
        attrs: Mapping[str, str] = ...,
        regions: Sequence[Jaxpr | Region | str] = ...,
    ) -> tuple[HloValue, ...]:
        """Append an operation by its MLIR name (`stablehlo.tanh`).

        `attrs` maps attribute names to MLIR attribute text (`"array<i64: 0, 1>"`); `regions` are bodies whose operands
        are the block's arguments and whose results are returned by `stablehlo.return`; a `Region` is a body that reads
        values of this function too. A name instead of a body
        (`"stablehlo.add"`) is the block that applies that operation to two scalars of the first result's dtype."""

    def constant(self, lit: Lit) -> HloValue:
        """A splat constant; one operation per distinct literal in a function."""

    def host(self, call: Primitive) -> int:
        """The number of a call of the host in the module: which of its callbacks XLA is to call."""

    def call(self, body: Jaxpr, operands: Sequence[HloValue]) -> tuple[HloValue, ...]:
        """Call the function of a sub-program; it is emitted once per distinct body."""

    def opaque_call(self, body: Jaxpr, operands: Sequence[HloValue]) -> tuple[HloValue, ...]:
        """`call`, in a form whose equations the compiler cannot merge with equal ones outside (a recomputation)."""
