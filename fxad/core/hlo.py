"""The interface of lowering: the operations that a primitive's `lower` rule may append to a function.

`fxad.ir` imports and exports this module. This module imports `ir` for types only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, final

from fxad.core.atoms import Aval, DimensionAxes, Lit, MeshAxes
from fxad.core.dataclasses import dataclass

if TYPE_CHECKING:
    from fxad.ir import Jaxpr, Primitive

# A value while a function is written: its SSA name and its type, as MLIR text. Rules pass values on
# and do not read them.
HloValue: TypeAlias = tuple[str, str]


@final
@dataclass(frozen=True, slots=True)
class Region:
    """A region that captures values of the enclosing function: they are the first operands of `body`, the rest are the
    block's arguments."""

    body: Jaxpr
    captured: tuple[HloValue, ...]


class Hlo(Protocol):
    """The context of a lowering rule: it appends StableHLO operations to the function under construction."""

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
        are the block's arguments and whose results are returned by `stablehlo.return`; a `Region` is a body that also
        captures values of this function. A name instead of a body (`"stablehlo.add"`) is a block that applies that
        operation to two scalars of the first result's dtype."""

    def constant(self, lit: Lit) -> HloValue:
        """Return a splat constant; one operation per distinct literal in a block: a function, or a region of one."""

    @property
    def platform(self) -> str:
        """The platform that the module is for: "cpu" or "cuda"."""

    @property
    def devices(self) -> int:
        """The number of devices among which XLA divides the values of the module."""

    @property
    def mesh(self) -> MeshAxes:
        """The axes of the devices that run this function, with their sizes, the first one slowest."""

    def channel(self) -> int:
        """Return a number for one collective; each collective of a module has another."""

    def host(self, call: Primitive) -> int:
        """Return the index of a host call among the callbacks of the module."""

    def call(self, body: Jaxpr, operands: Sequence[HloValue], mesh: MeshAxes = ...) -> tuple[HloValue, ...]:
        """Call the function of a body. The function is emitted once per distinct body. `mesh` are named axes that the
        body binds, of the devices that run this function."""

    def on_devices(
        self,
        body: Jaxpr,
        mesh: MeshAxes,
        in_specs: Sequence[DimensionAxes],
        out_specs: Sequence[DimensionAxes],
        operands: Sequence[HloValue],
        outs: Sequence[Aval],
    ) -> tuple[HloValue, ...]:
        """Call the function of a body on each device of a mesh, with its parts of the operands."""

    def sharding(self, mesh: MeshAxes, spec: DimensionAxes, aval: Aval) -> str:
        """Return the attribute that divides a value among the devices of a mesh."""

    def opaque_call(self, body: Jaxpr, operands: Sequence[HloValue]) -> tuple[HloValue, ...]:
        """Call the function of a body as `call` does, in a form that stops the compiler from merging the body with
        equal operations outside. For recomputations, and for groups of equations that run one after another."""
