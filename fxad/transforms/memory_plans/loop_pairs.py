"""Pairs of loops: a `scan` that stacks values for a later `scan` of as many steps, as the derivative of a loop does.

The stacks need not be stored. In segments of m steps, the first loop stores its carry before each segment. The second
loop runs over the segments; for each it runs m steps of the first loop again, from the stored carry, and then its own m
steps:

    scan of 12: c -> c, r            in segments of 4:   scan of 3: c -> c, and c is stacked
    scan of 12, backwards: d, r -> d                     scan of 3, backwards: d, c -> (scan of 4: c -> r;
                                                                                        scan of 4, backwards: d, r -> d)

A segment can be in segments itself. `sizes` are the steps of a segment, of a segment in it, and so on:

    sizes     the first loop stores                     the second loop, for each step
    ()        the stacks, as before                     reads them
    (m, *s)   its carry at every m-th step; the tail,   runs m steps of the first again, as a pair with the sizes `s`,
              less than m steps, is a pair with `s`     then its own m
    (1, *_)   its carry at each step                    runs its step of the first again

An m that is not smaller than the number of steps is as (). A loop over a number of steps that is not known has the last
row, whatever the sizes. A pair of branches, `cond` equations of one index, and a pair of maps over the same devices are
handled as a loop of one step: the second one runs the body of the first again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar, final

from fxad.core.builder import Builder, producers, rebind_operands, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.flags import select_by_flags
from fxad.core.layout import BranchIndex, Constant, Count, Layout, Part, Sliced, Times, UpTo, Value
from fxad.core.memo import by_value
from fxad.core.sizes.lower_bounds import at_least
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr, Var
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.shard_map import ShardMap
from fxad.transforms.memory.nested_scan import LoopSegments, balanced, near_divisor

T = TypeVar("T")

SEGMENT_DEPTHS: Final = (2, 3, 4)  # levels of nested segments


@final
@dataclass(frozen=True, slots=True)
class BodyPair:
    """Two equations of a program, as their numbers, and the values that only the second one reads: each as a result of
    the bodies of the first, and as an operand of the bodies of the second."""

    first: int
    second: int
    values: tuple[tuple[int, int], ...]


@by_value
def body_pairs(flat: Jaxpr) -> tuple[BodyPair, ...]:
    """Return the pairs of loops, of branches and of maps of a flat program; an equation is in at most one pair."""
    eqn_number = producers(flat.eqns)
    readers: dict[Atom, list[int]] = {}
    for k, e in enumerate(flat.eqns):
        for a in e.ins:
            readers.setdefault(a, []).append(k)
    results, paired = {*flat.outs}, set[int]()
    out = []
    for k, eqn in enumerate(flat.eqns):
        if not _can_run_again(eqn):
            continue
        by_first: dict[int, list[Atom]] = {}
        for a in eqn.ins:
            if a not in eqn_number or eqn_number[a] in paired or readers[a] != [k] or a in results:
                continue
            j = eqn_number[a]
            if _can_run_again(flat.eqns[j]) and _passes(a, flat.eqns[j], eqn):
                by_first.setdefault(j, []).append(a)
        if by_first:
            j, values = max(by_first.items(), key=lambda item: sum([a.aval.nbytes for a in item[1]]))
            out.append(BodyPair(j, k, tuple([_place_in_bodies(a, flat.eqns[j], eqn) for a in values])))
            paired.update((j, k))
    return tuple(out)


def _can_run_again(eqn: Eqn) -> bool:
    """Return True for loops of at least two steps, branches and maps, without effects."""
    prim = eqn.prim
    if not isinstance(prim, Scan | Cond | ShardMap) or prim.effects:
        return False
    return not isinstance(prim, Scan) or at_least(prim.length, 2)


def _passes(a: Atom, first: Eqn, second: Eqn) -> bool:
    """Return True if run k of the first equation returns of a value what run k of the second reads."""
    if _runs(first) != _runs(second):
        return False
    result_role = _layout(first).result_roles[first.outs.index(a)]
    operand_role = _layout(second).operand_roles[second.ins.index(a)]
    if isinstance(result_role, Value):
        return isinstance(operand_role, Constant)
    return isinstance(result_role, Sliced | Part) and result_role == operand_role


def _layout(eqn: Eqn) -> Layout:
    assert isinstance(eqn.prim, HigherOrder), "an equation with bodies"
    return eqn.prim.layout


def _runs(eqn: Eqn) -> tuple[object, ...]:
    """Return how often the bodies of an equation run, in either direction; with the index or the number of runs, if it
    is an operand."""
    layout = _layout(eqn)
    chosen = [a for a, r in zip(eqn.ins, layout.operand_roles, strict=True) if isinstance(r, BranchIndex | Count)]
    runs = [layout.bodies[k].runs for k in layout.running]
    return (*chosen, *[replace(r, reverse=False) if isinstance(r, Times | UpTo) else r for r in runs])


def _place_in_bodies(a: Atom, first: Eqn, second: Eqn) -> tuple[int, int]:
    """Return which result of the bodies of the first equation a value is, and which operand of those of the second."""
    results, operands = _layout(first).result_indices(0), _layout(second).operand_indices(0)
    return results.index(first.outs.index(a)), operands.index(second.ins.index(a))


def divisions(flat: Jaxpr) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of segments that are worth trying for the pairs of a program: those that compute least again
    first."""
    pairs = [flat.eqns[pair.first].prim for pair in body_pairs(flat)]
    if not pairs:
        return ()
    n = max([prim.length for prim in pairs if isinstance(prim, Scan) and not prim.upto], default=1)
    out: list[tuple[int, ...]] = [(1,)]
    for depth in SEGMENT_DEPTHS:
        sizes, m = [], n
        for target in balanced(n, depth):
            m = near_divisor(m, target)
            sizes.append(m)
        out += [tuple(sizes), (*sizes, 1)]
    return tuple(dict.fromkeys([s for s in out if s and (s == (1,) or s[0] < n)]))


@by_value
def divided(flat: Jaxpr, sizes: tuple[int, ...]) -> Jaxpr:
    """Return the program with each pair of loops in nested segments of `sizes` steps, outermost first, and each second
    branch or map with the first one inside.

    Law: same value; loops of any length, also one that `sizes` do not divide.
    """
    number = {k: n for n, p in enumerate(body_pairs(flat)) for k in (p.first, p.second)}
    pairs = [_pair(flat.eqns[p.first], flat.eqns[p.second], p.values) for p in body_pairs(flat)]
    started: dict[int, tuple[Atoms, Atoms]] = {}  # of each pair: the operands of the first equation, and what it stores
    b = Builder.like(flat)
    env: dict[Atom, Atom] = {}
    for k, eqn in enumerate(flat.eqns):
        b.source = eqn.source
        ins = substitute(eqn.ins, env)
        n = number.get(k)
        if n is None:
            env.update(zip(eqn.outs, b.copy(eqn, ins), strict=True))
        elif n not in started:
            results, stored = pairs[n].add_first(b, eqn, ins, sizes)
            env.update(results)
            started[n] = ins, stored
        else:
            env.update(zip(eqn.outs, pairs[n].add_second(b, ins, *started[n], sizes), strict=True))
    return dce(b.build(substitute(flat.outs, env), flat.name))


def _pair(first: Eqn, second: Eqn, values: tuple[tuple[int, int], ...]) -> _LoopPair | _BranchPair | _MapPair:
    match first.prim, second.prim:
        case Scan() as a, Scan() as b:
            return _LoopPair.of(a, b, values)
        case Cond() as a, Cond() as b:
            return _BranchPair(a, b, values)
        case ShardMap() as a, ShardMap() as b:
            return _MapPair(a, b, values)
        case _:
            raise AssertionError("not a pair")


# ------------------------------------------------------------------------------------------------- branches and maps


def _both_bodies(first: Jaxpr, second: Jaxpr, values: tuple[tuple[int, int], ...]) -> Jaxpr:
    """Return a body of the second equation that runs that of the first again: (operands of the first, other operands
    of the second) -> results of the second."""
    b = Builder()
    first_outs = b.inline(first, b.inputs(first.in_avals))
    by_operand = {operand: first_outs[result] for result, operand in values}
    ins = [by_operand[operand] if operand in by_operand else b.input(a) for operand, a in enumerate(second.in_avals)]
    return b.build(b.inline(second, ins), second.name)


def _others(operands: Sequence[T], values: tuple[tuple[int, int], ...]) -> list[T]:
    """Return the operands of the second body that are no values of the first."""
    read = {i for _, i in values}
    return [x for i, x in enumerate(operands) if i not in read]


class _RunAgain:
    """A pair whose second equation runs the first again: nothing is stored for it."""

    __slots__ = ()

    def add_first(self, b: Builder, eqn: Eqn, ins: Atoms, _sizes: tuple[int, ...]) -> tuple[dict[Atom, Atom], Atoms]:
        """Add the first equation. Return its results, and what is stored for the second: nothing."""
        return dict(zip(eqn.outs, b.copy(eqn, ins), strict=True)), ()


@final
@dataclass(frozen=True, slots=True)
class _BranchPair(_RunAgain):
    """Two choices by one index. The second one runs the branch of the first again."""

    first: Cond
    second: Cond
    values: tuple[tuple[int, int], ...]

    def add_second(
        self, b: Builder, ins: Atoms, first_ins: Atoms, _stored: Atoms, _sizes: tuple[int, ...]
    ) -> Sequence[Atom]:
        """Add the second equation, with the operands of the first."""
        branches = zip(self.first.branches, self.second.branches, strict=True)
        both = tuple([_both_bodies(f, s, self.values) for f, s in branches])
        return b(Cond(both, self.second.batched), ins[0], *first_ins[1:], *_others(ins[1:], self.values))


@final
@dataclass(frozen=True, slots=True)
class _MapPair(_RunAgain):
    """Two maps over the same devices. The second one runs the body of the first again."""

    first: ShardMap
    second: ShardMap
    values: tuple[tuple[int, int], ...]

    def add_second(
        self, b: Builder, ins: Atoms, first_ins: Atoms, _stored: Atoms, _sizes: tuple[int, ...]
    ) -> Sequence[Atom]:
        """Add the second equation, with the operands of the first."""
        first, second = self.first, self.second
        second_operands = _others([*zip(ins, second.in_specs, strict=True)], self.values)
        operands = [*zip(first_ins, first.in_specs, strict=True), *second_operands]
        return first.apply(b, _both_bodies(first.body, second.body, self.values), operands, second.out_specs)


# ------------------------------------------------------------------------------------------------------------- loops


@final
@dataclass(frozen=True, slots=True)
class _LoopPair:
    """The two loops of a pair. `storing` are the steps of the first loop with the stacks last, `first` those without
    the stacks; the steps of `second` take the stacks last. `remains` marks the results of the first loop that are no
    stacks."""

    storing: Scan
    first: Scan
    second: Scan
    remains: tuple[bool, ...]
    order: tuple[int, ...]  # of the operands of the second body that are slices
    n_stacks: int

    @staticmethod
    def of(first: Scan, second: Scan, stacks: tuple[tuple[int, int], ...]) -> _LoopPair:
        """Return the pair for two loops and their stacks."""
        body, stack_results, stack_operands = first.body, [q for q, _ in stacks], [p for _, p in stacks]
        remains = tuple([q not in stack_results for q in range(len(body.outs))])
        remaining_outs = select_by_flags(body.outs, remains)
        stack_outs = [body.outs[q] for q in stack_results]
        n_fixed, n = second.n_consts + second.n_carry, len(second.body.ins)
        order = (*[p for p in range(n_fixed, n) if p not in stack_operands], *stack_operands)
        return _LoopPair(
            first.with_bodies((body.with_outs((*remaining_outs, *stack_outs)),)),
            first.with_bodies((dce(body.with_outs(remaining_outs)),)),
            second.with_bodies((rebind_operands(second.body, (*range(n_fixed), *order)),)),
            remains,
            order,
            len(stacks),
        )

    def add_first(self, b: Builder, eqn: Eqn, ins: Atoms, sizes: tuple[int, ...]) -> tuple[dict[Atom, Atom], Atoms]:
        """Add the first loop. Return its results, and what is stored for the second."""
        results, stored = self.forward(b, ins, self.first.length, sizes)
        return dict(zip(select_by_flags(eqn.outs, self.remains), results, strict=True)), stored

    def add_second(
        self, b: Builder, ins: Atoms, first_ins: Atoms, stored: Atoms, sizes: tuple[int, ...]
    ) -> Sequence[Atom]:
        """Add the second loop, with the operands of the first and what it stored."""
        count, operands = self.second.split_count(ins)
        consts, carry, _ = self.second.steps.split(operands)
        slices = [operands[p] for p in self.order[: len(self.order) - self.n_stacks]]
        _, first_operands = self.first.split_count(first_ins)
        first_consts, _, first_xs = self.first.steps.split(first_operands)
        without_stacks = (*count, *consts, *carry, *slices)
        return self.backward(b, (first_consts, first_xs), stored, without_stacks, self.first.length, sizes)

    def forward(self, b: Builder, ins: Atoms, n: int, sizes: tuple[int, ...]) -> tuple[Atoms, Atoms]:
        """Add n steps of the first loop. Return the results that remain, and what is stored for the second: see the
        table of `sizes` at the top of this file."""
        if self._stores_each_carry(sizes):
            return _split_last(b(self._storing_carries(n), *ins), self.first.n_carry)
        if not sizes or sizes[0] >= n:
            return _split_last(b(_of_length(self.storing, n), *ins), self.n_stacks)
        segments = LoopSegments(n, sizes[0], self.first.reverse)
        consts, carry, xs = self.first.steps.split(ins)
        n_carry = self.first.n_carry
        blocks = segments.blocks(b, xs)
        inner = Builder()
        c, state, x = _inputs(inner, consts), _inputs(inner, carry), _inputs_of_row(inner, blocks)
        results = inner(_of_length(self.first, segments.m), *c, *state, *x)
        segment = inner.build([*results, *state], f"segment_{self.first.body.name}")
        loop = segments.loop(segment, len(consts), n_carry, self.first.reverse)
        outs, stored = _split_last(b(loop, *consts, *carry, *blocks), n_carry)
        carry, ys = outs[:n_carry], segments.joined(b, outs[n_carry:])
        if segments.tail:
            rows = segments.tail_rows(b, xs)
            outs, tail_stored = self.forward(b, (*consts, *carry, *rows), segments.tail, sizes[1:])
            carry, ys = outs[:n_carry], segments.all_rows(b, ys, outs[n_carry:])
            stored = (*stored, *tail_stored)
        return (*carry, *ys), stored

    def backward(
        self, b: Builder, first_ins: tuple[Atoms, Atoms], stored: Atoms, ins: Atoms, n: int, sizes: tuple[int, ...]
    ) -> Atoms:
        """Add n steps of the second loop. `ins` are its operands without the stacks, `first_ins` the constants and the
        slices of the first loop, for the steps that run again. Their carries are among the values in `stored`."""
        if self._stores_each_carry(sizes):
            return self._steps_again(b, first_ins, stored, ins, n)
        if not sizes or sizes[0] >= n:
            return b(_of_length(self.second, n), *ins, *stored)
        segments = LoopSegments(n, sizes[0], self.first.reverse)
        first_consts, first_xs = first_ins
        consts, carry, xs = self.second.steps.split(ins)
        states, tail_stored = stored[: self.first.n_carry], stored[self.first.n_carry :]
        n_carry = self.second.n_carry

        def run_segments(carry: Atoms) -> tuple[Atoms, Sequence[Atom]]:
            first_blocks, blocks = segments.blocks(b, first_xs), segments.blocks(b, xs)
            inner = Builder()
            c1, c2, d = [_inputs(inner, group) for group in (first_consts, consts, carry)]
            state, x1, x2 = [_inputs_of_row(inner, group) for group in (states, first_blocks, blocks)]
            _, segment_stored = self.forward(inner, (*c1, *state, *x1), segments.m, sizes[1:])
            outs = self.backward(inner, (c1, x1), segment_stored, (*c2, *d, *x2), segments.m, sizes[1:])
            segment = inner.build(outs, f"segment_{self.second.body.name}")
            loop = segments.loop(segment, len(first_consts) + len(consts), n_carry, self.second.reverse)
            outs = b(loop, *first_consts, *consts, *carry, *states, *first_blocks, *blocks)
            return outs[:n_carry], segments.joined(b, outs[n_carry:])

        def run_tail(carry: Atoms) -> tuple[Atoms, Sequence[Atom]]:
            first_rows, rows = tuple(segments.tail_rows(b, first_xs)), segments.tail_rows(b, xs)
            operands = (*consts, *carry, *rows)
            outs = self.backward(b, (first_consts, first_rows), tail_stored, operands, segments.tail, sizes[1:])
            return outs[:n_carry], outs[n_carry:]

        if not segments.tail:
            carry, ys = run_segments(carry)
        elif self.second.reverse == self.first.reverse:
            carry, ys = run_segments(carry)
            carry, tail_ys = run_tail(carry)
            ys = segments.all_rows(b, ys, tail_ys)
        else:
            carry, tail_ys = run_tail(carry)
            carry, ys = run_segments(carry)
            ys = segments.all_rows(b, ys, tail_ys)
        return (*carry, *ys)

    def _stores_each_carry(self, sizes: tuple[int, ...]) -> bool:
        """Return True if the first loop stores each of its carries. A loop with a count (`upto`) always does, so loops
        that are divided into segments have no count among their operands."""
        return self.first.upto or sizes[:1] == (1,)

    def _storing_carries(self, n: int) -> Scan:
        """Return n steps of the first loop, which stack their carries too."""
        first, b = self.first, Builder()
        ins = b.inputs(first.body.in_avals)
        outs = b.inline(first.body, ins)
        steps = b.build([*outs, *ins[first.n_consts : first.n_consts + first.n_carry]], first.body.name)
        return replace(first, body=steps, length=n)

    def _steps_again(self, b: Builder, first_ins: tuple[Atoms, Atoms], states: Atoms, ins: Atoms, n: int) -> Atoms:
        """Add n steps of the second loop, each of which runs its step of the first again from the carry before it."""
        second = self.second
        count, ins = second.split_count(ins)
        consts_1, xs_1 = first_ins
        consts_2, carry, xs_2 = second.steps.split(ins)
        step = Builder()
        c1, c2, d = [_inputs(step, group) for group in (consts_1, consts_2, carry)]
        state, x1, x2 = [_inputs_of_row(step, group) for group in (states, xs_1, xs_2)]
        _, stacks = _split_last(step.inline(self.storing.body, (*c1, *state, *x1)), self.n_stacks)
        outs = step.inline(second.body, (*c2, *d, *x2, *stacks))
        steps = step.build(outs, second.body.name)
        n_consts = len(consts_1) + len(consts_2)
        loop = replace(second, body=steps, length=n, n_consts=n_consts)
        return b(loop, *count, *consts_1, *consts_2, *carry, *states, *xs_1, *xs_2)


def _split_last(outs: Atoms, n: int) -> tuple[Atoms, Atoms]:
    """Return the results but for the last n, and these."""
    return outs[: len(outs) - n], outs[len(outs) - n :]


def _of_length(scan: Scan, n: int) -> Scan:
    return replace(scan, length=n, upto=False)


def _inputs(b: Builder, like: Sequence[Atom]) -> tuple[Var, ...]:
    """Add operands of the types of atoms."""
    return tuple(b.inputs([a.aval for a in like]))


def _inputs_of_row(b: Builder, like: Sequence[Atom]) -> tuple[Var, ...]:
    """Add operands of the types of one row of each atom."""
    return tuple(b.inputs([a.aval.with_shape(a.aval.shape[1:]) for a in like]))
