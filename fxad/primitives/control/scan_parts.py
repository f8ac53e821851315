"""The body of a scan with its operands in three groups, and programs over those operands in another order."""

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
    """What a scan does in each step: `body` takes constants, the carry, and a slice of each array it runs over."""

    body: Jaxpr
    n_consts: int
    n_carry: int

    def split(self, values: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...], tuple[T, ...]]:
        """What belongs to the constants, to the carry, and to the arrays that are run over."""
        a, b = self.n_consts, self.n_consts + self.n_carry
        return tuple(values[:a]), tuple(values[a:b]), tuple(values[b:])


def where(marks: Sequence[bool]) -> list[int]:
    """The places that are marked."""
    return [k for k, m in enumerate(marks) if m]


def passing(steps: Steps) -> Marks:
    """Which carries every step hands on unchanged."""
    _, carry, _ = steps.split(steps.body.ins)
    return tuple([a is v for a, v in zip(steps.body.outs, carry, strict=False)])


_NONE: Final[Mapping[int, Lit]] = MappingProxyType({})


def rearranged(body: Jaxpr, order: Sequence[int], outs: Sequence[Atom], fixed: Mapping[int, Lit] = _NONE) -> Jaxpr:
    """The body with other operands and results: operand k is operand `order[k]` of `body`, those in `fixed` are the
    literals given there, and `outs` are atoms of `body`. An operand in neither must be one that nothing reads."""
    if not fixed and tuple(order) == tuple(range(len(body.ins))):
        return Jaxpr(body.ins, body.eqns, tuple(outs), body.name)
    b = Builder()
    env: dict[int, Atom] = {k: b.input(body.ins[k].aval) for k in order}
    env.update(fixed)
    args = [env.get(k, v) for k, v in enumerate(body.ins)]
    return b.build(b.inline(Jaxpr(body.ins, body.eqns, tuple(outs), body.name), args), body.name)


def stopping(steps: Steps, guard: Jaxpr | None) -> Steps:
    """Steps that do nothing beyond a count, which is a further constant, the last; the index is a further slice, the
    last. The carry stays, and results are zero. `guard` is the body with its checks guarded, if it has any."""
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
    # a carry that is handed on and a result that is zero stay: the literal zero is linear in anything, a choice is not
    kept = [
        a if a == o else b.one(SELECT_N, spread(b, taken, a.aval.shape, ()), o, a)
        for a, o in zip(outs, others, strict=True)
    ]
    return Steps(b.build(kept, body.name), steps.n_consts + 1, n)
