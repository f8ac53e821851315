"""Selects the residuals that the linear half of a loop step stores.

The linear half of a body reads residuals. In a loop, each residual that varies is written in every step and read back,
which takes most of the memory and much of the time of reverse mode. So a residual is not stored if the linear half can
recompute it from values that are stored anyway or are smaller, by a broadcast, a conversion, a sum or a product. Only
operations that cost no more than reading the value are recomputed. Arithmetic on broadcast values is excluded: every
consumer would repeat it for each element (measured on an n-body program: 0.4 of the memory, 1.2 times the time; use
`remat` for this trade).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Eqn, Jaxpr, LinearizedBody, Lit, Primitive, Var
from fxad.primitives import elementwise as ew
from fxad.primitives.checking import checking
from fxad.primitives.control.bodies import select_by_mask, with_outs
from fxad.primitives.control.scan_parts import Steps, passing
from fxad.primitives.fusion import ARITHMETIC, MOVES, VIEWS, Kinds
from fxad.primitives.shape import BroadcastInDim

_MOVING: Final[Kinds] = (*VIEWS, *MOVES, ew.ConvertElementType)
_CHEAP: Final[Kinds] = (*ARITHMETIC, *VIEWS, *MOVES)
_COUNTING: Final[frozenset[DType]] = frozenset({dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64})
_DEPTH: Final = 6  # the longest chain of equations to recompute


@final
@dataclass(frozen=True, slots=True)
class Unchanging:
    """The loop invariants of a step: values of the body, including operands, and the equations that compute them."""

    values: frozenset[Atom]
    eqns: tuple[Eqn, ...]


def unchanging(steps: Steps) -> Unchanging:
    """Return the values of a body that depend only on constants."""
    consts, carry, _ = steps.split(steps.body.ins)
    same: set[Atom] = {*consts, *select_by_mask(carry, passing(steps))}
    eqns = []
    for eqn in steps.body.eqns:
        if not _stays(eqn) and all([isinstance(a, Lit) or a in same for a in eqn.ins]):
            same.update(eqn.outs)
            eqns.append(eqn)
    return Unchanging(frozenset(same), tuple(eqns))


def _stays(eqn: Eqn) -> bool:
    """Return True if an equation must not run when its loop has no steps."""
    prim = eqn.prim
    return bool(prim.effects) or checking(prim)


def counters(steps: Steps) -> dict[Var, Lit]:
    """Return the carries that grow by the same integer in every step, with that integer. Their values are known before
    the loop."""
    _, carry, _ = steps.split(steps.body.ins)
    sums = {e.outs[0]: e.ins for e in steps.body.eqns if e.prim is ew.ADD}
    out = {}
    for v, a in zip(carry, steps.body.outs, strict=False):
        ins = sums.get(a, ()) if isinstance(a, Var) else ()
        by = [x for x in ins if isinstance(x, Lit)]
        if by and v in ins and not v.aval.shape and v.aval.dtype in _COUNTING:
            out[v] = by[0]
    return out


def _is_cheap(prim: Primitive) -> bool:
    return isinstance(prim, _CHEAP)


def _bytes(aval: Aval) -> int:
    return aval.size * aval.dtype.itemsize


def thrifty(split: LinearizedBody, n_out: int, free: AbstractSet[Atom]) -> LinearizedBody:
    """Return the two halves with residuals that take less memory. Residuals in `free` cost nothing.

    Law: never more bytes of residuals outside `free`.
    """
    primal = split.primal
    residuals = primal.outs[n_out:]
    made: dict[Atom, Eqn] = {e.outs[0]: e for e in primal.eqns if len(e.outs) == 1 and _is_cheap(e.prim)}
    held = {*free, *residuals}
    again = False
    for r in sorted([r for r in residuals if r not in free], key=_order, reverse=True):
        held.discard(r)
        found = _sources(r, made, held, _DEPTH)
        if found is None or sum([_bytes(a.aval) for a in found]) >= _bytes(r.aval):
            held.add(r)
        else:
            held.update(found)
            again = True
    return _recomputing(split, n_out, held) if again else split


def _order(a: Atom) -> int:
    return a.index if isinstance(a, Var) else 0


def _sources(r: Atom, made: Mapping[Atom, Eqn], held: AbstractSet[Atom], depth: int) -> dict[Atom, None] | None:
    """Return the values to store in place of `r`, besides those in `held`, so that `r` can be recomputed. None if there
    are none."""
    eqn = made.get(r)
    if eqn is None or not depth:
        return None
    out: dict[Atom, None] = {}
    for a in eqn.ins:
        if not isinstance(a, Lit) and a not in held and a not in out:
            spreads = _spreads(made.get(a)) and not isinstance(eqn.prim, _MOVING)
            deeper = None if spreads else _sources(a, made, held, depth - 1)
            if deeper is None or sum([_bytes(x.aval) for x in deeper]) >= _bytes(a.aval):
                deeper = {a: None}
            out.update(deeper)
    return out


def _spreads(eqn: Eqn | None) -> bool:
    """Return True if an equation repeats elements along an axis, except for a scalar along all axes."""
    return eqn is not None and isinstance(eqn.prim, BroadcastInDim) and eqn.ins[0].aval.size > 1


def _recomputing(split: LinearizedBody, n_out: int, held: AbstractSet[Atom]) -> LinearizedBody:
    """Return the halves with residuals among `held`. The linear half recomputes the others from them."""
    primal, linear = split.primal, split.linear
    residuals = primal.outs[n_out:]
    needed = {r for r in residuals if r not in held}
    eqns: list[Eqn] = []
    leaves = dict.fromkeys([r for r in residuals if r in held])
    for eqn in reversed(primal.eqns):
        if not needed.isdisjoint(eqn.outs):
            eqns.append(eqn)
            needed.update([a for a in eqn.ins if a not in held])
            leaves.update(dict.fromkeys([a for a in eqn.ins if a in held]))
    b = Builder()
    dots = b.inputs([v.aval for v in linear.ins[: len(linear.ins) - split.n_res]])
    env: dict[Atom, Atom] = {a: b.input(a.aval) for a in leaves}
    b.extend(reversed(eqns), env)
    outs = b.inline(linear, [*dots, *[env[r] for r in residuals]])
    half: Jaxpr = with_outs(primal, (*primal.outs[:n_out], *leaves))
    return LinearizedBody(half, b.build(outs, linear.name), len(leaves), split.out_nonzero)
