"""The body of a scan with its operands in three groups, and programs over those operands in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Aval, Jaxpr, Lit, Prune, Zero
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


def marked(values: Sequence[T], marks: Sequence[bool]) -> list[T]:
    """The values that are marked."""
    return [v for v, m in zip(values, marks, strict=True) if m]


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


@final
@dataclass(frozen=True, slots=True)
class Slim:
    """Steps without what is dead: `ins` are the places of the operands that are left, in their new order, `outs` marks
    the results that are left."""

    steps: Steps
    ins: tuple[int, ...]
    outs: Marks


def slimmed(steps: Steps, operands: Sequence[Atom], used: Marks, prune: Prune) -> Slim:
    """The steps without results that are not used, carries that no used result needs, and operands nobody reads.

    A carry that no step changes, and whose last value is not used, becomes a constant; a literal moves into the body.
    """
    body, n_carry = steps.body, steps.n_carry
    idle = tuple([p and not u for p, u in zip(passing(steps), used, strict=False)])
    live, ys = used[:n_carry], used[n_carry:]
    while True:
        slim, needed = prune(body, (*live, *ys))
        read = steps.split(needed)[1]
        wider = tuple([a or (r and not i) for a, r, i in zip(live, read, idle, strict=True)])
        if wider == live:
            break
        live = wider
    consts, carry, xs = steps.split(range(len(body.ins)))
    still = [k for k in (*consts, *marked(carry, idle)) if needed[k]]
    runs = [k for k in xs if needed[k]]
    fixed: dict[int, Lit] = {}
    for k in (*still, *runs):
        lit = operands[k]
        if isinstance(lit, Lit):
            fixed[k] = lit.with_aval(body.ins[k].aval.shape)
    groups = [k for k in still if k not in fixed], marked(carry, live), [k for k in runs if k not in fixed]
    b = Builder()
    env: dict[int, Atom] = {k: b.input(body.ins[k].aval) for group in groups for k in group}
    env.update(fixed)
    made = b.build(b.inline(slim, [env[k] for k in where(needed)]), body.name)
    order = tuple([k for group in groups for k in group])
    return Slim(Steps(made, len(groups[0]), len(groups[1])), order, (*live, *ys))


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
