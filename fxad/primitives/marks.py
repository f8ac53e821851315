"""Identities that annotate values: with a name, or as stored by a `remat`, or that limit memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from fxad.core.builder import Builder, rewrite
from fxad.core.memo import by_value
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Eqn,
    Flags,
    HigherOrder,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    Linear,
    NDArray,
    Operands,
    Tangents,
    TransposeCtx,
    Var,
    Zero,
    distinct_jaxprs,
    primitive,
)
from fxad.primitives.operand_checks import check_count


class Mark(Linear):
    """The operand with an annotation.

    Type: one operand of any type; a result of that type.
    Rule: only the value is marked: tangents and cotangents are not. Under vmap the mark is on the whole stack.
    Cost: none: it lowers to nothing.
    """

    __slots__ = ()

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return check_count(self, avals, 1)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return args

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return tuple(args)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        return ctx(self, *args), dims

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        return ctx(self, *primals), tangents

    def linear_in(self, flags: Flags) -> bool:
        return all(flags)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        return cts


@final
@primitive
class Name(Mark):
    """The operand with a name, by which policies of `remat` select it."""

    name: ClassVar[str] = "name"
    label: str


@final
@primitive
class Keep(Mark):
    """The operand, which the enclosing `remat` stores for the backward pass; `by` is the policy's text.

    `also_kept_by` are the policies of the `remat` equations around that one, from the inside out, as long as they keep
    it too. If `remat(g, policy=names("a"))` contains `remat(f, policy=names("a", "b"))`, the values that f names have
    the marks `keep[by="names('a', 'b')", also_kept_by=("names('a')",)]` for "a", and with `also_kept_by=()` for "b".

    A policy's decision is stored in the body in this form because a mark stays with its value through vmap, jvp, dce
    and inlining, while the index of an equation changes.
    """

    name: ClassVar[str] = "keep"
    by: str
    also_kept_by: tuple[str, ...] = ()

    @property
    def deciders(self) -> tuple[str, ...]:
        """Return the policies that keep the value, from the inside out."""
        return (self.by, *self.also_kept_by)


@final
@primitive
class Budget(Mark):
    """The operand, in a program whose compiled form has at most `limit` bytes of temporaries.

    Rule: tangents and cotangents are marked too: of a derivative, the equations that compute the operand may be dead.
    """

    name: ClassVar[str] = "budget"
    limit: int

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        return ctx(self, *primals), ctx.lin(self, *tangents)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        (ct,) = cts
        return (ct if isinstance(ct, Zero) else ctx.one(self, ct),)


@by_value
def least_budget(jaxpr: Jaxpr) -> int | None:
    """Return the least limit of the budgets in a program and in its bodies; None if there is none."""
    limits = [prim.limit for body in distinct_jaxprs(jaxpr) for prim in body.prims if isinstance(prim, Budget)]
    return min(limits, default=None)


@by_value
def with_budget(jaxpr: Jaxpr, limit: int) -> Jaxpr:
    """Return the program with marks on its results: the executable that it becomes part of, or that a derivative or a
    map of it becomes part of, has at most `limit` bytes of temporaries."""
    b = Builder.resume(jaxpr)
    return b.build([b.one(Budget(limit), a) for a in jaxpr.outs], jaxpr.name)


@by_value
def without_budgets(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program without marks of a budget, also in bodies; the program itself if there are none."""
    if least_budget(jaxpr) is None:
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        prim = eqn.prim
        if isinstance(prim, Budget):
            return ins
        if isinstance(prim, HigherOrder) and any([least_budget(body) is not None for body in prim.bodies]):
            return b.copy(eqn, ins, prim.with_bodies(tuple(map(without_budgets, prim.bodies))))
        return None

    return rewrite(jaxpr, rule)


def unmarked_values(eqns: Sequence[Eqn]) -> dict[Atom, Atom]:
    """Return a map from results of marks to the value before all marks."""
    out: dict[Atom, Atom] = {}
    for eqn in eqns:
        if isinstance(eqn.prim, Mark):
            out[eqn.outs[0]] = out.get(eqn.ins[0], eqn.ins[0])
    return out


def kept_values(eqns: Sequence[Eqn], level: int) -> dict[Atom, Var]:
    """Return the values that a `remat` around these equations keeps, if `level` others are between it and them: a map
    from each value (before all marks) to its first such mark. In the example of `Keep`, the values of f are "a" and "b"
    at level 0, and "a" at level 1."""
    before = unmarked_values(eqns)
    out: dict[Atom, Var] = {}
    for eqn in eqns:
        if isinstance(eqn.prim, Keep) and len(eqn.prim.also_kept_by) >= level:
            out.setdefault(before[eqn.outs[0]], eqn.outs[0])
    return out


MARKS: Final = (Name, Keep, Budget)
