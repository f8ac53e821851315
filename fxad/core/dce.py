"""Liveness and dependence of values; dead code elimination, also through the bodies of equations."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set as AbstractSet

from fxad.core.builder import Builder, rebind_operands, substitute
from fxad.core.flags import select_by_flags
from fxad.core.layout import Carry, Constant, Layout, Once
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, Flags, HigherOrder, Jaxpr, Lit


def live_eqns(
    eqns: Sequence[Eqn], roots: Iterable[Atom], available: Container[Atom] = (), *, effects: bool
) -> list[Eqn]:
    """Return the equations, in order, that compute the wanted values from those in `available` and from operands; with
    `effects`, also those with effects and the equations that these depend on."""
    live = {a for a in roots if a not in available}
    kept_eqns: list[Eqn] = []
    for eqn in reversed(eqns):
        if not live.isdisjoint(eqn.outs) or (effects and eqn.prim.effects):
            kept_eqns.append(eqn)
            live.update([a for a in eqn.ins if a not in available])
    kept_eqns.reverse()
    return kept_eqns


def dependent_values(eqns: Iterable[Eqn], values: Iterable[Atom]) -> set[Atom]:
    """Return the values, and the results of all equations that depend on them."""
    dependent = set(values)
    for eqn in eqns:
        if not dependent.isdisjoint(eqn.ins):
            dependent.update(eqn.outs)
    return dependent


def keep_all_results(eqn: Eqn, _used: Flags) -> Eqn:
    """Return the equation itself, whichever of its results are used."""
    return eqn


def remove_dead_eqns(jaxpr: Jaxpr, shrink: Callable[[Eqn, Flags], Eqn] = keep_all_results) -> Jaxpr:
    """Return the program without dead equations; the program itself if none is dead.

    `shrink(eqn, used)` may replace a live equation by one that has only the results marked in `used`.
    """
    live: set[Atom] = set(jaxpr.outs)
    kept_eqns: list[Eqn] = []
    for eqn in reversed(jaxpr.eqns):
        used = (eqn.outs[0] in live,) if len(eqn.outs) == 1 else tuple([v in live for v in eqn.outs])
        if True in used or eqn.prim.effects:
            kept_eqns.append(shrink(eqn, used))
            live.update(kept_eqns[-1].ins)
    kept_eqns.reverse()
    if len(kept_eqns) == len(jaxpr.eqns) and all([a is b for a, b in zip(kept_eqns, jaxpr.eqns, strict=True)]):
        return jaxpr
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    b.extend(kept_eqns, env)
    return b.build(substitute(jaxpr.outs, env), jaxpr.name)


def read_operands(jaxpr: Jaxpr) -> Flags:
    """Return flags for the operands that an equation reads or that are results."""
    values_read: set[Atom] = set(jaxpr.outs)
    for eqn in jaxpr.eqns:
        values_read.update(eqn.ins)
    return tuple([v in values_read for v in jaxpr.ins])


def drop_unread_operands(jaxpr: Jaxpr) -> tuple[Jaxpr, Flags]:
    """Return the program without unread operands, and flags for the operands that remain."""
    is_read = read_operands(jaxpr)
    return rebind_operands(jaxpr, select_by_flags(range(len(is_read)), is_read)), is_read


@by_value
def dce(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program without dead equations; operands and results stay as they are.

    It also removes unused results of bodies, and then the operands that only those results read.

    Law:  same value; idempotent; never more equations; effects stay, in order.
    Cost: one pass back, one forward; the program itself when nothing is dead.
    """
    return remove_dead_eqns(jaxpr, _shrink)


@by_value
def prune(jaxpr: Jaxpr, used: Flags) -> tuple[Jaxpr, Flags]:
    """Return the program with only the results marked in `used`, and without the operands that these do not read.

    Return the program and flags for the operands that remain.
    """
    outs = select_by_flags(jaxpr.outs, used)
    return drop_unread_operands(dce(jaxpr.with_outs(outs)))


def _shrink(eqn: Eqn, used: Flags) -> Eqn:
    """Return the result of `remove_unused`, applied until nothing changes."""
    if not isinstance(eqn.prim, HigherOrder):
        return eqn
    live = set(select_by_flags(eqn.outs, used))
    while True:
        # to a fixed point: a literal that moved into a body may move further, into a nested body
        shrunk = remove_unused(eqn, tuple([v in live for v in eqn.outs]))
        if shrunk is eqn or not isinstance(shrunk.prim, HigherOrder):
            return shrunk
        eqn = shrunk


def remove_unused(eqn: Eqn, used: Flags) -> Eqn:
    """Return an equation with bodies, without its unused results and the operands that then no body reads; the equation
    itself if all are needed.

    A carry is live if its result is used or a body reads it. A loop-invariant carry whose result is not used becomes a
    constant. Literals move into bodies, except those of calls (`Once`): calls share their bodies.

    For example, of a `scan` over the body `(w, h, k, x) -> (h + w*x, k, h, x*x)`, with the carries h and k, whose
    results are `(h, k, hs, squares)`, only hs is used:

    - squares is not used: the body becomes `(w, h, k, x) -> (h + w*x, k, h)`;
    - the result h is not used, but the body reads h: the carry stays, with its result;
    - nothing reads k and its result is not used: its operand and its result go;
    - if w is the literal 2.0, the body computes `h + 2.0*x`, and the operand goes.

    The new equation has the operands h and xs, and the results h and hs.

    If the body begins with `h + w*k*x`, it reads k. Each step returns k unchanged, and its result is not used. So k
    moves from the carries to the constants: the body becomes `(w, k, h, x) -> (h + w*k*x, h)`, without a result for k.
    """
    prim = eqn.prim
    assert isinstance(prim, HigherOrder), "an equation with bodies"
    by_rule = prim.without_results(eqn, used, prune)
    if by_rule is not None:
        return by_rule
    layout = prim.layout
    if not layout.running:  # all bodies belong to rules
        return eqn
    is_fixed = [g.fixed for g in layout.results for _ in range(g.size)]
    needed_results = [u or g for u, g in zip(used, is_fixed, strict=True)]
    invariant = _invariant_carries(layout, needed_results)
    kept_results, pruned, operands_read = _prune_bodies(layout, needed_results, invariant)
    bodies_unchanged = [j is layout.bodies[k].jaxpr and all(flags) for k, (j, flags) in pruned.items()]
    all_kept = all(kept_results) and all(bodies_unchanged)
    is_call = type(layout.bodies[layout.running[0]].runs) is Once
    if all_kept and not invariant and (is_call or not any([isinstance(a, Lit) for a in eqn.ins])):
        return eqn  # the common case: nothing is unused, and no literal can move into a body
    groups, literals = _kept_operands(eqn, layout, kept_results, invariant, operands_read)
    rebuilt = prim.rebuild(
        tuple([
            _rebound_body(layout, k, pruned[k], groups, literals) if k in pruned else body.jaxpr
            for k, body in enumerate(layout.bodies)
        ]),
        tuple(map(len, groups)),
        tuple([sum([kept_results[q] for q in layout.results_of(g)]) for g in range(len(layout.results))]),
    )  # fmt: skip
    if rebuilt == prim:
        return eqn
    ins = tuple([eqn.ins[p] for group in groups for p in group])
    return Eqn(rebuilt, ins, select_by_flags(eqn.outs, kept_results), eqn.source)


def _prune_bodies(
    layout: Layout, needed_results: Sequence[bool], invariant: AbstractSet[int]
) -> tuple[list[bool], dict[int, tuple[Jaxpr, Flags]], dict[int, set[int]]]:
    """Return the results that are kept; the running bodies, as `prune` returns them; and the operands of the equation
    that each of them reads. Kept are the wanted results, and those of carries that a body reads, except `invariant`
    ones."""
    kept_results = list(needed_results)
    while True:
        pruned = {
            k: prune(layout.bodies[k].jaxpr, tuple([q is None or kept_results[q] for q in layout.result_indices(k)]))
            for k in layout.running
        }
        operands_read = {k: set(select_by_flags(layout.operand_indices(k), flags)) for k, (_, flags) in pruned.items()}
        live_operands = set[int]().union(*operands_read.values()) - invariant
        more_carries = [q for p, q in layout.carries.items() if p in live_operands and not kept_results[q]]
        if not more_carries:
            return kept_results, pruned, operands_read
        for q in more_carries:
            kept_results[q] = True


def _rebound_body(
    layout: Layout,
    body: int,
    pruned: tuple[Jaxpr, Flags],
    groups: Sequence[Sequence[int]],
    literals: Mapping[int, Lit],
) -> Jaxpr:
    jaxpr, flags = pruned
    old, old_operands = layout.bodies[body], layout.operand_indices(body)
    types = dict(zip(old_operands, old.jaxpr.in_avals, strict=True))
    return rebind_operands(
        jaxpr, old.operands_in(groups), has=select_by_flags(old_operands, flags), types=types, literals=literals
    )


def _invariant_carries(layout: Layout, kept_results: Sequence[bool]) -> set[int]:
    """Return the loop-invariant carries whose results are not kept. Empty if a body that takes the carries has no group
    of constants to which they could move."""
    carries = layout.carries
    if all([kept_results[q] for q in carries.values()]):  # also if there are none
        return set()
    if any([layout.growable_group(k, Constant) is None for k in layout.bodies_taking(_carry_group(layout))]):
        return set()
    invariant = set[int]()
    for k in layout.running:
        results = dict(zip(layout.result_indices(k), layout.bodies[k].jaxpr.outs, strict=True))
        operands = dict(zip(layout.operand_indices(k), layout.bodies[k].jaxpr.ins, strict=True))
        dropped = [(p, q) for p, q in carries.items() if q in results and not kept_results[q]]
        invariant.update([p for p, q in dropped if results[q] is operands[p]])
    return invariant


def _carry_group(layout: Layout) -> int:
    """Return the group of operands that are carries."""
    return next(g for g, group in enumerate(layout.operands) if type(group.role) is Carry)


def _kept_operands(
    eqn: Eqn,
    layout: Layout,
    kept_results: Sequence[bool],
    invariant: AbstractSet[int],
    operands_read: Mapping[int, AbstractSet[int]],
) -> tuple[list[list[int]], dict[int, Lit]]:
    """Return the operands that remain, by groups, and those that become literals in the bodies.

    The `invariant` carries that a body reads change their group. `kept_results` does not mark them, so the carries lose
    them. The bodies still read them: `operands_read` has their operands, by the same numbers as before, and these join
    the constants.
    """
    groups: list[list[int]] = []
    literals: dict[int, Lit] = {}
    for g, group in enumerate(layout.operands):
        members = list(layout.operands_of(g))
        readers = layout.bodies_taking(g)
        if type(group.role) is Carry:
            members = [p for p in members if kept_results[layout.carries[p]]]
        elif readers and not group.fixed:
            members = [p for p in members if any([p in operands_read[k] for k in readers])]
            if type(group.role) is Constant:
                # loop-invariant carries
                constant_readers = [k for k in readers if layout.growable_group(k, Constant) == g]
                members += [p for p in sorted(invariant) if any([p in operands_read[k] for k in constant_readers])]
            if any([type(layout.bodies[k].runs) is not Once for k in readers]):
                literals.update({p: a for p in members if isinstance(a := eqn.ins[p], Lit)})
                members = [p for p in members if p not in literals]
        groups.append(members)
    return groups, literals
