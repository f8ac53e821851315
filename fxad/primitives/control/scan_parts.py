"""The body of a scan with its operands in three groups, and programs over those operands in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar, final

from fxad.builder import Builder
from fxad.ir import Atom, Jaxpr, Lit

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Steps:
    """What a scan does in each step: `body` takes constants, the carry, and a slice of each array it runs over."""

    body: Jaxpr
    n_consts: int
    n_carry: int

    def split(self, values: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...], tuple[T, ...]]:
        """What belongs to the constants, to the carry, and to the arrays that are run over."""
        a, b = self.n_consts, self.n_consts + self.n_carry
        return tuple(values[:a]), tuple(values[a:b]), tuple(values[b:])


_NONE: Final[Mapping[int, Lit]] = MappingProxyType({})


def over(body: Jaxpr, order: Sequence[int], outs: Sequence[Atom], fixed: Mapping[int, Lit] = _NONE) -> Jaxpr:
    """The body with other operands and results: operand k is operand `order[k]` of `body`, those in `fixed` are the
    literals given there, and `outs` are atoms of `body`. An operand in neither must be one that nothing reads."""
    if not fixed and tuple(order) == tuple(range(len(body.ins))):
        return Jaxpr(body.ins, body.eqns, tuple(outs), body.name)
    b = Builder()
    env: dict[int, Atom] = {k: b.input(body.ins[k].aval) for k in order}
    env.update(fixed)
    args = [env.get(k, v) for k, v in enumerate(body.ins)]
    return b.build(b.inline(Jaxpr(body.ins, body.eqns, tuple(outs), body.name), args), body.name)


def where(marks: Sequence[bool]) -> list[int]:
    """The places that are marked."""
    return [k for k, m in enumerate(marks) if m]
