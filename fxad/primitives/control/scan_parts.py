"""The body of a scan with its operands in three groups, and programs over reordered operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Aval, Jaxpr, Lit, Zero
from fxad.primitives.elementwise import LT, SELECT_N
from fxad.primitives.shape import spread

T = TypeVar("T")
Marks: TypeAlias = tuple[bool, ...]

_INDEX: Final = Aval((), dtypes.int32)


@final
@dataclass(frozen=True, slots=True)
class Steps:
    """The step of a scan: `body` takes constants, the carry, and a slice of each array."""

    body: Jaxpr
    n_consts: int
    n_carry: int

    def split(self, values: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...], tuple[T, ...]]:
        """Split values for the operands into those for the constants, the carry and the arrays."""
        a, b = self.n_consts, self.n_consts + self.n_carry
        return tuple(values[:a]), tuple(values[a:b]), tuple(values[b:])


def where(marks: Sequence[bool]) -> list[int]:
    """Return the marked places."""
    return [k for k, m in enumerate(marks) if m]


def passing(steps: Steps) -> Marks:
    """Return a mask of the carries that every step returns unchanged."""
    _, carry, _ = steps.split(steps.body.ins)
    return tuple([a is v for a, v in zip(steps.body.outs, carry, strict=False)])


_NONE: Final[Mapping[int, Lit]] = MappingProxyType({})


def rearranged(body: Jaxpr, order: Sequence[int], outs: Sequence[Atom], fixed: Mapping[int, Lit] = _NONE) -> Jaxpr:
    """Return the body with other operands and results: operand k is operand `order[k]` of `body`, operands in `fixed`
    become literals, and `outs` are atoms of `body`. An operand that is in neither must be unused."""
    if not fixed and tuple(order) == tuple(range(len(body.ins))):
        return Jaxpr(body.ins, body.eqns, tuple(outs), body.name)
    b = Builder()
    env: dict[int, Atom] = {k: b.input(body.ins[k].aval) for k in order}
    env.update(fixed)
    args = [env.get(k, v) for k, v in enumerate(body.ins)]
    return b.build(b.inline(Jaxpr(body.ins, body.eqns, tuple(outs), body.name), args), body.name)


def stopping(steps: Steps, guard: Jaxpr | None) -> Steps:
    """Return steps that do nothing beyond a count. The count is the last constant; the index is the last slice. Beyond
    the count the carry is unchanged and results are zero. `guard` is the body with its checks guarded, if it has
    any."""
    body, n = steps.body, steps.n_carry
    consts, carry, xs = steps.split(body.in_avals)
    b = Builder()
    fixed = b.inputs(consts)
    count = b.input(_INDEX)
    state, slices = b.inputs(carry), b.inputs(xs)
    taken = b.one(LT, b.input(_INDEX), count)
    operands = (*fixed, *state, *slices)
    outs = b.inline(body, operands) if guard is None else b.inline(guard, (taken, *operands))
    others: list[Atom] = [*state, *[Zero(a.aval).instantiate() for a in outs[n:]]]
    # no select for an unchanged carry or a zero result: the literal zero is linear in every operand, a select is not
    kept = [
        a if a == o else b.one(SELECT_N, spread(b, taken, a.aval.shape, ()), o, a)
        for a, o in zip(outs, others, strict=True)
    ]
    return Steps(b.build(kept, body.name), steps.n_consts + 1, n)
