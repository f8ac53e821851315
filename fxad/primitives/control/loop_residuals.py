"""Residuals of the steps of a loop that need not be stacked.

`linearize_steps` (`loop_derivatives.py`) asks here for each residual of the body, in this order.

1. Is it a loop invariant (`loop_invariants`)? A value computed only from constants and unchanged carries, as `w * 2` in
   a loop with the constant `w`, is computed once outside the loop.
2. Is it a counter (`counters`)? The values of a carry that grows by the same integer in each step are an `iota`.
3. Is it cheap to recompute (`drop_cheap_residuals`)? The linear half recomputes it from values that are stored anyway,
   or that take less memory. It does not store a `convert` of a stored value, or the broadcast of a smaller one.

The other residuals are stacked, one for each step. The memory planner does not decide this: a derivative is printed,
saved, batched, differentiated again and given to JAX, none of which runs it (docs/adr/0113).

>>> from fxad.core.builder import Builder
>>> from fxad.ir import INT32_SCALAR, Aval
>>> b = Builder()
>>> w, i, c = b.inputs([Aval((), dtypes.float32), INT32_SCALAR, Aval((), dtypes.float32)])
>>> body = b.build([b.one(ADD, i, Lit.of(2, INT32_SCALAR)), b.one(ADD, b.one(ADD, w, w), c)], "step")
>>> steps = Steps(body, n_consts=1, n_carry=2)
>>> [eqn.prim.name for eqn in loop_invariants(steps).eqns]
['add']
>>> counters(steps) == {body.ins[1]: Lit.of(2, INT32_SCALAR)}
True
"""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet
from typing import Final, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import live_eqns
from fxad.core.flags import select_by_flags
from fxad.dtypes import DType
from fxad.ir import Atom, Eqn, Jaxpr, LinearizedBody, Lit, Primitive, Var
from fxad.primitives.check import prim_has_check
from fxad.primitives.control.effects import prim_may_not_end
from fxad.primitives.control.loop_steps import Steps, unchanged_carries
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.fusion import ARITHMETIC, MOVES, VIEWS, Kinds
from fxad.primitives.shape import BroadcastInDim

# The linear half of a body reads residuals. In a loop, each residual that varies is written in every step and read
# back, which takes most of the memory and much of the time of reverse mode. So a residual is not stored if the linear
# half can recompute it from values that are stored anyway or are smaller, by a broadcast, a conversion, a sum or a
# product. Only operations that cost no more than reading the value are recomputed. Arithmetic on broadcast values is
# excluded: every consumer would repeat it for each element (measured on an n-body program: 0.4 of the memory, 1.2
# times the time; use `remat` for this trade).

_MAY_READ_BROADCAST: Final[Kinds] = (*VIEWS, *MOVES, ConvertElementType)
_CHEAP: Final[Kinds] = (*ARITHMETIC, *VIEWS, *MOVES)
_COUNTING: Final[frozenset[DType]] = frozenset({dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64})
_DEPTH: Final = 6  # the longest chain of equations to recompute


@final
@dataclass(frozen=True, slots=True)
class LoopInvariants:
    """The loop invariants of a step: values of the body, including operands, and the equations that compute them."""

    values: frozenset[Atom]
    eqns: tuple[Eqn, ...]


def loop_invariants(steps: Steps) -> LoopInvariants:
    """Return the values of a body that depend only on constants."""
    consts, carry, _ = steps.split(steps.body.ins)
    values: set[Atom] = {*consts, *select_by_flags(carry, unchanged_carries(steps))}
    eqns = []
    for eqn in steps.body.eqns:
        if not _must_stay_in_loop(eqn) and all([isinstance(a, Lit) or a in values for a in eqn.ins]):
            values.update(eqn.outs)
            eqns.append(eqn)
    return LoopInvariants(frozenset(values), tuple(eqns))


def _must_stay_in_loop(eqn: Eqn) -> bool:
    """Return True if an equation must not run when its loop has no steps."""
    prim = eqn.prim
    return bool(prim.effects) or prim_has_check(prim) or prim_may_not_end(prim)


def counters(steps: Steps) -> dict[Var, Lit]:
    """Return the carries that grow by the same integer in every step, with that integer. Their values are known before
    the loop."""
    _, carry, _ = steps.split(steps.body.ins)
    summands = {e.outs[0]: e.ins for e in steps.body.eqns if e.prim is ADD}
    increments = {}
    for v, a in zip(carry, steps.body.outs, strict=False):  # the results of the body are carries, then rows
        ins = summands.get(a, ()) if isinstance(a, Var) else ()
        literals = [x for x in ins if isinstance(x, Lit)]
        if literals and v in ins and not v.aval.shape and v.aval.dtype in _COUNTING:
            increments[v] = literals[0]
    return increments


def _is_cheap(prim: Primitive) -> bool:
    return isinstance(prim, _CHEAP)


def drop_cheap_residuals(split: LinearizedBody, n_out: int, free: AbstractSet[Atom]) -> LinearizedBody:
    """Return the two halves with residuals that take less memory. Residuals in `free` cost nothing.

    Law: never more bytes of residuals outside `free`.
    """
    primal = split.primal
    residuals = primal.outs[n_out:]
    producers: dict[Atom, Eqn] = {e.outs[0]: e for e in primal.eqns if len(e.outs) == 1 and _is_cheap(e.prim)}
    available = {*free, *residuals}
    replaced = False
    for r in sorted([r for r in residuals if r not in free], key=_binding_order, reverse=True):
        available.discard(r)
        sources = _recompute_sources(r, producers, available, _DEPTH)
        if sources is None or sum([a.aval.nbytes for a in sources]) >= r.aval.nbytes:
            available.add(r)
        else:
            available.update(sources)
            replaced = True
    return _recompute_others(split, n_out, available) if replaced else split


def _binding_order(a: Atom) -> int:
    return a.index if isinstance(a, Var) else 0


def _recompute_sources(
    r: Atom, producers: Mapping[Atom, Eqn], available: AbstractSet[Atom], depth: int
) -> dict[Atom, None] | None:
    """Return the values to store in place of `r`, besides those that are `available`, so that `r` can be recomputed;
    None if it cannot be. An empty dictionary: `r` can be recomputed from `available` values alone."""
    eqn = producers.get(r)
    if eqn is None or not depth:
        return None
    out: dict[Atom, None] = {}
    for a in eqn.ins:
        if not isinstance(a, Lit) and a not in available and a not in out:
            is_broadcast = _repeats_elements(producers.get(a)) and not isinstance(eqn.prim, _MAY_READ_BROADCAST)
            sources = None if is_broadcast else _recompute_sources(a, producers, available, depth - 1)
            if sources is None or sum([x.aval.nbytes for x in sources]) >= a.aval.nbytes:
                sources = {a: None}
            out.update(sources)
    return out


def _repeats_elements(eqn: Eqn | None) -> bool:
    """Return True if an equation repeats elements along an axis, except for a scalar along all axes."""
    return eqn is not None and isinstance(eqn.prim, BroadcastInDim) and eqn.ins[0].aval.size not in (0, 1)


def _recompute_others(split: LinearizedBody, n_out: int, available: AbstractSet[Atom]) -> LinearizedBody:
    """Return the halves with residuals among the `available` values. The linear half recomputes the others."""
    primal, linear = split.primal, split.linear
    residuals = primal.outs[n_out:]
    eqns = live_eqns(primal.eqns, residuals, available, effects=False)
    read = [a for eqn in reversed(eqns) for a in eqn.ins]
    leaves = dict.fromkeys([a for a in (*residuals, *read) if a in available])
    b = Builder()
    tangents = b.inputs([v.aval for v in linear.ins[: split.n_tangents]])
    env: dict[Atom, Atom] = {a: b.input(a.aval) for a in leaves}
    b.extend(eqns, env)
    outs = b.inline(linear, [*tangents, *[env[r] for r in residuals]])
    half: Jaxpr = primal.with_outs((*primal.outs[:n_out], *leaves))
    return LinearizedBody(half, b.build(outs, linear.name), len(leaves), split.out_nonzero)
