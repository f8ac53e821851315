"""Calls of a function in its own rules: references to the equation that they stand in. Decision: docs/adr/0032."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from fxad.core.builder import Builder, rewrite
from fxad.core.dce import prune
from fxad.core.memo import by_value
from fxad.core.stack import with_enough_stack
from fxad.ir import Atom, Dims, Eqn, HigherOrder, Jaxpr, Primitive
from fxad.primitives.control.bodies import with_operands
from fxad.primitives.control.call import Applied

# What became of a call, one time after the other: it was batched, (size, in_dims, out_dims); or it lost what is dead,
# (-1, operands, results), where None stands for one that is gone.
Stacks: TypeAlias = tuple[tuple[int, Dims, Dims], ...]
Reads: TypeAlias = tuple[tuple[bool, ...], ...]
# A program over a stack: `batched(program, size, in_dims, out_dims)`.
Batched: TypeAlias = Callable[[Jaxpr, int, Dims, Dims], Jaxpr]


class Ruled(Applied):
    """An equation with rules, of whose `bodies` the first is the function; or a call of one in its own rule: `again` is
    the number of rules in between then, else -1, and `stacks` what became of it since. `origin`: the function that such
    calls in its rules stand for, where it has become another one."""

    __slots__ = ()

    again: int
    stacks: Stacks
    origin: tuple[Jaxpr, ...]

    @abstractmethod
    def with_rules(self, bodies: tuple[Jaxpr, ...], origin: tuple[Jaxpr, ...]) -> Ruled:
        """The same with other bodies and another origin, of the same types."""

    @abstractmethod
    def at(self, level: int, reads: Reads | None = None) -> Ruled:
        """The same call with so many rules between it and its function; and which operands its results need."""


@by_value
def free_levels(jaxpr: Jaxpr) -> frozenset[int]:
    """The levels of calls `again` in a program that stand for functions whose rules are around it: 0, the innermost."""
    found: set[int] = set()
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        if isinstance(prim, Ruled):
            found.update([prim.again] if prim.again >= 0 else ())
            found.update(*[free_levels(j) for j in (prim.value, *prim.origin)])
            found.update([k - 1 for rule in prim.bodies[1:] for k in free_levels(rule) if k > 0])
        elif isinstance(prim, HigherOrder):
            found.update(*[free_levels(body) for body in prim.bodies])
    return frozenset(found)


def unfolded(rule: Jaxpr, function: Jaxpr, batched: Batched) -> Jaxpr:
    """A rule of `function`, taken out of its equation: calls again of it are calls of it, batched as they were, and
    what stands for functions farther out is one level nearer."""

    def met(call: Ruled, depth: int) -> Jaxpr | Ruled:
        if call.again != depth:
            return call.at(call.again - 1)
        program = _shifted(function, depth)
        for size, dims, out_dims in call.stacks:
            program = _slim(program, dims, out_dims) if size < 0 else batched(program, size, dims, out_dims)
        return program

    return _rewritten(rule, 0, met)


def _slim(program: Jaxpr, kept: Dims, used: Dims) -> Jaxpr:
    """The program with the operands and results that are not None."""
    slim, left = prune(program, tuple([u is not None for u in used]))
    return with_operands(slim, left, program.in_avals, tuple([k is not None for k in kept]))


def _shifted(jaxpr: Jaxpr, by: int) -> Jaxpr:
    """The program `by` levels of rules deeper inside of what its calls stand for."""

    def met(call: Ruled, _depth: int) -> Ruled:
        return call.at(call.again + by)

    return _rewritten(jaxpr, 0, met) if by else jaxpr


def knowing(rule: Jaxpr, reads: tuple[tuple[bool, ...], ...]) -> Jaxpr:
    """The rule, whose calls of the function it belongs to say what their results need."""

    def met(call: Ruled, depth: int) -> Ruled:
        return call.at(depth, reads) if call.again == depth and not call.stacks else call

    return _rewritten(rule, 0, met)


@with_enough_stack
def _rewritten(jaxpr: Jaxpr, depth: int, met: Callable[[Ruled, int], Jaxpr | Ruled]) -> Jaxpr:
    """The program with `met(call, depth)` for each call again of a function around it: a call of the same type, or a
    program. `depth` are the levels of rules passed on the way in."""
    if not any([level >= depth for level in free_levels(jaxpr)]):
        return jaxpr

    def again(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        prim: Primitive | Jaxpr = eqn.prim
        if isinstance(prim, Ruled) and prim.again >= depth:
            prim = met(prim, depth)
        elif isinstance(prim, Ruled):
            inner = [_rewritten(rule, depth + 1, met) for rule in prim.bodies[1:]]
            origin = tuple([_rewritten(j, depth, met) for j in prim.origin])
            prim = prim.with_rules((_rewritten(prim.value, depth, met), *inner), origin)
        elif isinstance(prim, HigherOrder):
            prim = prim.with_bodies(tuple([_rewritten(body, depth, met) for body in prim.bodies]))
        return b.inline(prim, ins) if isinstance(prim, Jaxpr) else b.copy(eqn, ins, prim)

    return rewrite(jaxpr, again)
