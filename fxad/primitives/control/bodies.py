"""Rewrites of the bodies of branches and loops: other operands, other results, tangents that are not zero.

A body returns only the tangents that are not zero. Flags of its results mark them.

>>> from fxad.ir import Aval
>>> from fxad import dtypes
>>> from fxad.core.builder import Builder
>>> b = Builder()
>>> x, y = b.inputs([Aval((), dtypes.float32)] * 2)
>>> instantiate_outs([y], (False, True, False), [y.aval] * 3, (False, True, True))  # zero, y, zero: the last two
[%arg1:f32[], 0.0:f32[]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from fxad.core.builder import rebind_operands
from fxad.core.flags import flags_or, select_by_flags
from fxad.core.layout import Layout
from fxad.core.memo import by_value
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Dims,
    Flags,
    HigherOrder,
    Jaxpr,
    JvpCtx,
    Lin,
    LinearizedBody,
    Lit,
    Primitive,
    Tangents,
    Var,
    Zero,
)
from fxad.primitives.linearity import is_zero

T = TypeVar("T")
A = TypeVar("A", bound=Atom)


@by_value
def reorder_operands(jaxpr: Jaxpr, order: tuple[int, ...]) -> Jaxpr:
    """Return the program with reordered operands: operand k of the result is operand `order[k]` of `jaxpr`."""
    return rebind_operands(jaxpr, order)


def rotate_operands(jaxpr: Jaxpr, n: int) -> Jaxpr:
    """Return the program with its first `n` operands moved to the end: traced functions take captured operands first,
    solvers and linear functions take linear ones first."""
    return reorder_operands(jaxpr, (*range(n, len(jaxpr.ins)), *range(n)))


def with_operands(
    prim: HigherOrder,
    groups: Sequence[Sequence[int]],
    types: Mapping[int, Aval],
    changed: Mapping[int, tuple[Jaxpr, Sequence[int]]],
    more_results: Mapping[int, int] = MappingProxyType({}),
) -> Primitive:
    """Return the primitive of an equation with further operands, which some bodies read.

    Operands have numbers: their indices, and for the further ones those from `n_operands` on, of which `types` are the
    types. `groups` are the groups of the layout with them. `changed` are the bodies that read them, each with the
    operands that it takes; the other bodies take as operands what their groups have now, and read what they did.
    `more_results` says how many results each group gains, which the changed bodies return.

    A scan [(k, c, x) -> (c, y)] of k, c and xs with a token t, number 3, as the first carry: the groups are k, t c and
    xs, [[0], [3, 1], [2]], its body is changed to (t, k, c, x) -> (t, c, y), which takes (3, 0, 1, 2), and the carry
    gains a result. The new body is (k, t, c, x) -> (t, c, y).
    """
    layout = prim.layout
    unchanged_bodies = [(body.jaxpr, layout.operand_indices(k)) for k, body in enumerate(layout.bodies)]
    bodies = [
        rebind_operands(jaxpr, layout.bodies[k].operands_in(groups), has=takes, types=types)
        for k, (jaxpr, takes) in enumerate([changed.get(k, unchanged) for k, unchanged in enumerate(unchanged_bodies)])
    ]
    sizes = [g.size + more_results.get(k, 0) for k, g in enumerate(layout.results)]
    return prim.rebuild(tuple(bodies), tuple(map(len, groups)), tuple(sizes))


def instantiate_outs(
    outs: Sequence[Atom], has: Sequence[bool], avals: Sequence[Aval], wants: Sequence[bool]
) -> list[Atom]:
    """Return the tangents of the results marked in `wants`. `outs` holds those of the results marked in `has`; the
    others are zeros."""
    tangents = iter(outs)
    every = [next(tangents) if h else Lit.zero(a) for a, h in zip(avals, has, strict=True)]
    return list(select_by_flags(every, wants))


def fuse_alike(ctx: JvpCtx, bodies: Sequence[Jaxpr], nonzero: Flags) -> tuple[list[Jaxpr], Flags]:
    """Return bodies that compute their results and then tangents, and flags that mark the results with a tangent in
    one of the bodies. The others return zeros for it. `nonzero` marks the operands with a tangent."""
    fused = [ctx.recur_fused(body, nonzero) for body in bodies]
    any_nonzero = flags_or(*[out_nonzero for _, out_nonzero in fused])
    alike = []
    for (fused_body, out_nonzero), body in zip(fused, bodies, strict=True):
        n = len(body.outs)
        tangents = instantiate_outs(fused_body.outs[n:], out_nonzero, body.out_avals, any_nonzero)
        alike.append(fused_body.with_outs((*fused_body.outs[:n], *tangents)))
    return alike, any_nonzero


def split_fused_results(
    results: tuple[Var, ...], out_nonzero: Flags, avals: Sequence[Aval]
) -> tuple[tuple[Var, ...], Tangents]:
    """Return the results of an equation in forward mode, of the types `avals`, and their tangents: the marked ones
    follow the results of `recur_fused`."""
    n = len(avals)
    return results[:n], insert_zeros([Lin(v) for v in results[n:]], out_nonzero, avals)


def instantiate_linear_outs(linearized: LinearizedBody, wants: Sequence[bool]) -> Jaxpr:
    """Return the linear half of a body, with a result for each place marked in `wants`."""
    avals = linearized.primal.out_avals[: len(linearized.out_nonzero)]
    return linearized.linear.with_outs(instantiate_outs(linearized.linear.outs, linearized.out_nonzero, avals, wants))


def shared_slots(groups: Sequence[Sequence[Aval]]) -> list[Aval]:
    """Return the types of slots that hold the values of one group at a time: for each type, the largest number of
    values of that type in a group. The groups (f32, f32, i32) and (f32, u8) share the slots f32, f32, i32, u8."""
    counts: dict[Aval, int] = {}
    for group in groups:
        for aval in dict.fromkeys(group):
            counts[aval] = max(counts.get(aval, 0), list(group).count(aval))
    return [aval for aval, count in counts.items() for _ in range(count)]


def assign_slots(values: Sequence[A], slots: Sequence[Aval]) -> list[A | None]:
    """Return the value for each of the shared slots, or None for an unused slot."""
    remaining = list(values)
    out: list[A | None] = []
    for aval in slots:
        value = next((v for v in remaining if v.aval is aval), None)
        if value is not None:
            remaining.remove(value)
        out.append(value)
    return out


def with_slot_results(branch: Jaxpr, n_out: int, values: Sequence[Atom | None], slots: Sequence[Aval]) -> Jaxpr:
    """Return the branch with its own results, followed by the shared slots. Unused slots are ones. Under vmap a branch
    that is not chosen may divide by a slot, and in reverse mode 0 / 0 is nan."""
    pairs = zip(values, slots, strict=True)
    return branch.with_outs((*branch.outs[:n_out], *[Lit.of(1, a) if v is None else v for v, a in pairs]))


def with_slot_operands(branch: Jaxpr, n_in: int, slots: Sequence[Aval]) -> Jaxpr:
    """Return the branch with its operands beyond the first `n_in` taken from the shared slots.

    A branch (x, i: i32, a: f32) with `n_in` 1 becomes (x, a, unused, i, unused) for the slots f32, f32, i32, u8.
    """
    # the keys of `rebind_operands`: a slot that the branch reads has the variable as key, an unused one its number
    in_slots = [k if v is None else v for k, v in enumerate(assign_slots(branch.ins[n_in:], slots))]
    types_of_unused: dict[Var | int, Aval] = dict(enumerate(slots))  # those of the other slots are not looked up
    return rebind_operands(branch, (*branch.ins[:n_in], *in_slots), has=branch.ins, types=types_of_unused)


def insert_zeros(values: Sequence[T], nonzero: Sequence[bool], avals: Sequence[Aval]) -> tuple[T | Zero, ...]:
    """Return a value for each type: the next of `values` where `nonzero` marks it, else a symbolic zero."""
    remaining = iter(values)
    return tuple([next(remaining) if nz else Zero(a) for nz, a in zip(nonzero, avals, strict=True)])


def is_zero_in_all(adjoints: Sequence[Jaxpr], result: int) -> bool:
    """Return True if this result is the literal zero in every body."""
    return all([is_zero(j.outs[result]) for j in adjoints])


def batch_alike(ctx: BatchCtx, bodies: Sequence[Jaxpr], dims: Dims) -> tuple[tuple[Jaxpr, ...], Dims]:
    """Batch bodies of one type, with the mapped axis at the same place in their results."""
    batched = [ctx.recur(body, dims) for body in bodies]
    first = batched[0][1]
    if all([d == first for _, d in batched]):
        return tuple([b for b, _ in batched]), first
    by_result = zip(*[d for _, d in batched], strict=True)
    out_dims = tuple([ds[0] if all([d == ds[0] for d in ds]) else 0 for ds in by_result])
    return tuple([ctx.recur(body, dims, out_dims)[0] for body in bodies]), out_dims


def results_without_steps(layout: Layout, ins: Sequence[Atom], outs: Sequence[Aval]) -> list[Atom]:
    """Return the results, of types `outs`, of a loop that takes no step: the initial carries, and stacks of zeros."""
    initial = {q: p for p, q in layout.carries.items()}
    return [ins[initial[q]] if q in initial else Lit.zero(a) for q, a in enumerate(outs)]
