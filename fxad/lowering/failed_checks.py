"""Ends the loops of a program on several devices after a failed check.

On one device, XLA ends the run where a check fails. On several devices, the device of the check goes on to the end of
the program, because others may wait for it in a collective. A loop without a bound might never end. So a flag, a bool,
is threaded through the program: it is True after a failed check. A `while` ends if the flag of its device is True. A
`while` with collectives ends if the flag of any device that takes part in them is True; in a ppermute, XLA waits for
all devices of the mesh. A `scan` runs all its steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import BOOL_SCALAR, Atom, Atoms, Eqn, FreeAxes, HigherOrder, Jaxpr, Lit, all_prims
from fxad.lowering.threaded_values import Threaded, with_predicate_in_body, with_threaded
from fxad.primitives.check import Check, has_check
from fxad.primitives.collectives import Pmax, exchanged_axes, has_ppermute
from fxad.primitives.control.call import Call
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.control.while_ import While
from fxad.primitives.elementwise.logic import AND, NOT, OR
from fxad.primitives.meshes import MeshAxes, mesh_within
from fxad.primitives.reduce import ReduceOr


def with_loops_ended(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with loops that end after a failed check; the same operands and results."""
    # only a `while` may run on after a failed check: the steps of other loops are bounded
    loops = [prim for prim in all_prims(jaxpr) if isinstance(prim, While)]
    if not loops or not has_check(jaxpr):
        return jaxpr
    b = Builder.like(jaxpr)
    _, *outs = b.inline(_flagged(jaxpr, ()), [Lit.of(False, BOOL_SCALAR), *jaxpr.ins])
    return b.build(outs, jaxpr.name)


@by_value
def _uses_flag(jaxpr: Jaxpr) -> bool:
    """Return True if a program changes the flag or reads it."""
    return any([isinstance(prim, Check | While) for prim in all_prims(jaxpr)])


@by_value
def _flagged(jaxpr: Jaxpr, mesh: MeshAxes) -> Jaxpr:
    """Return (failed, operands) -> (failed, results), of a program that each device of a mesh runs."""
    b = Builder()
    failed: Atom = b.input(BOOL_SCALAR)

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        nonlocal failed
        prim = eqn.prim
        if isinstance(prim, Check):
            wrong = b.one(ReduceOr(tuple(range(len(prim.sizes)))), ins[0]) if prim.sizes else ins[0]
            failed = b.one(OR, failed, wrong)
            return None
        threaded: Threaded | None = None
        # as in `with_loops_ended`: the predicate of a `while` also reads the flag
        if isinstance(prim, While):
            failed = _any_failed(b, failed, _flag_axes(prim, mesh))
            threaded = _flagged_loop(prim, mesh)
        # each device of a map has a flag of its own
        elif isinstance(prim, ShardMap) and _uses_flag(prim.body):
            threaded = _flagged_map(prim, mesh)
        elif isinstance(prim, HigherOrder) and any(map(_uses_flag, prim.bodies)):
            threaded = with_threaded(prim, BOOL_SCALAR, lambda body: _flagged(body, mesh), _uses_flag)
        if threaded is None:
            return None
        failed, outs = threaded.bind(b, failed, ins)
        return outs

    outs = b.inline(jaxpr, b.inputs(jaxpr.in_avals), rule)
    return b.build((failed, *outs), jaxpr.name)


def _any_failed(b: Builder, failed: Atom, axes: FreeAxes) -> Atom:
    """Return the flag of all devices along axes: True if that of one device is. With one flag they run equally many
    steps."""
    names, sizes = tuple([n for n, _ in sorted(axes)]), tuple([n for _, n in sorted(axes)])
    return b.one(Pmax(names, sizes), failed) if axes else failed


def _flag_axes(loop: While, mesh: MeshAxes) -> FreeAxes:
    """Return the axes along which all devices must run equally many steps of a loop, because they meet in its
    collectives."""
    if any(map(has_ppermute, loop.bodies)):
        return frozenset(mesh)
    names = exchanged_axes(loop)
    return frozenset([(name, size) for name, size in loop.free_axes if name in names])


def _flagged_loop(loop: While, mesh: MeshAxes) -> Threaded:
    """Return the loop with the flag as its first carry, which ends when it is True. A predicate that uses the flag
    moves into the body, whose results include it; with a bound of 0 no predicate runs."""
    if _uses_flag(loop.cond) and loop.max_steps != 0:
        return Threaded(Call(_flagged(with_predicate_in_body(loop), mesh)), 0, 0)
    b = Builder()
    consts = b.inputs(loop.cond.in_avals[: loop.n_cond])
    failed = b.input(BOOL_SCALAR)
    live = b.inline(loop.cond, (*consts, *b.inputs(loop.carry)))
    cond = b.build([b.one(AND, b.one(NOT, failed), live[0])], loop.cond.name)
    b = Builder()
    consts = b.inputs(loop.body.in_avals[: loop.n_body])
    after, *outs = b.inline(_flagged(loop.body, mesh), (b.input(BOOL_SCALAR), *consts, *b.inputs(loop.carry)))
    body = b.build((_any_failed(b, after, _flag_axes(loop, mesh)), *outs), loop.body.name)
    flagged = While(cond, body, loop.n_cond, loop.n_body, loop.max_steps)
    return Threaded(flagged, loop.n_cond + loop.n_body, 0)


def _flagged_map(prim: ShardMap, around: MeshAxes) -> Threaded:
    """Return the map with the flag as its first operand and result: that of all its devices."""
    b = Builder()
    failed, *outs = b.inline(
        _flagged(prim.body, mesh_within(around, prim.mesh)), b.inputs((BOOL_SCALAR, *prim.body.in_avals))
    )
    body = b.build((_any_failed(b, failed, frozenset(prim.mesh)), *outs), prim.body.name)
    return Threaded(ShardMap(body, prim.mesh, 1 + prim.n_consts, prim.ins, ((), *prim.outs), prim.devices), 0, 0)
