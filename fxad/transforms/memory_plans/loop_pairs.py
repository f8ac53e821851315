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
    (m, *s)   its carry at every m-th step; the steps   runs m steps of the first again, as a pair with the sizes `s`,
              that are left are a pair with `s`         then its own m
    (1, *_)   its carry at each step                    runs its step of the first again

An m that is not smaller than the number of steps is as (). A loop over a number of steps that is not known has the last
row, whatever the sizes. A pair of branches, `cond` equations of one index, and a pair of maps over the same devices are
handled as a loop of one step: the second one runs the body of the first again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, final

from fxad.core.builder import Builder, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.memo import by_value
from fxad.core.size_bounds import at_least
from fxad.ir import Atom, Atoms, Eqn, Jaxpr, Primitive
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.shape import Reshape
from fxad.primitives.slicing import Concatenate
from fxad.transforms.memory.nested_scan import balanced, near_divisor, row_block

SEGMENT_DEPTHS: Final = (2, 3, 4)  # levels of nested segments


@final
@dataclass(frozen=True, slots=True)
class BodyPair:
    """Two loops of a program, or two branches, as the numbers of their equations, and the values that only the second
    one reads: as results of the body of the first, and as operands of the body of the second. Both are counted from
    the end of the constants and carries."""

    first: int
    second: int
    stacks: tuple[tuple[int, int], ...]


@by_value
def body_pairs(flat: Jaxpr) -> tuple[BodyPair, ...]:
    """Return the pairs of loops and of branches of a flat program; an equation is in at most one pair."""
    made_by: dict[Atom, int] = {v: k for k, e in enumerate(flat.eqns) if _can_run_again(e) for v in e.outs}
    readers: dict[Atom, list[int]] = {}
    for k, e in enumerate(flat.eqns):
        for a in e.ins:
            readers.setdefault(a, []).append(k)
    results, paired = {*flat.outs}, set[int]()
    out = []
    for k, eqn in enumerate(flat.eqns):
        if not _can_run_again(eqn):
            continue
        fixed = _fixed(eqn)[0]
        by_first: dict[int, list[tuple[int, int]]] = {}
        for i, a in enumerate(eqn.ins[fixed:]):
            j = made_by.get(a, k)
            if j < k and j not in paired and readers[a] == [k] and a not in results and _alike(flat.eqns[j], eqn):
                at = flat.eqns[j].outs.index(a) - _fixed(flat.eqns[j])[1]
                if at >= 0 and _same_parts(flat.eqns[j].prim, eqn.prim, at, i):
                    by_first.setdefault(j, []).append((at, i))
        if by_first:
            j, stacks = max(
                by_first.items(), key=lambda item: sum([eqn.ins[fixed + i].aval.nbytes for _, i in item[1]])
            )
            out.append(BodyPair(j, k, tuple(stacks)))
            paired.update((j, k))
    return tuple(out)


def _can_run_again(eqn: Eqn) -> bool:
    prim = eqn.prim
    if isinstance(prim, Scan):
        return not prim.effects and at_least(prim.length, 2)
    return isinstance(prim, Cond | ShardMap) and not prim.effects


def _fixed(eqn: Eqn) -> tuple[int, int]:
    """Return the number of operands of an equation before the slices of its steps, or before the operands of its
    branches, and the number of results before the stacked ones."""
    prim = eqn.prim
    if isinstance(prim, Scan):
        return prim.upto + prim.n_consts + prim.n_carry, prim.n_carry
    return int(isinstance(prim, Cond)), 0


def _alike(first: Eqn, second: Eqn) -> bool:
    """Return True for loops of as many steps, and for branches of one index."""
    a, b = first.prim, second.prim
    if isinstance(a, Scan) and isinstance(b, Scan):
        return (a.length, a.upto) == (b.length, b.upto) and (not a.upto or first.ins[0] is second.ins[0])
    if isinstance(a, ShardMap) and isinstance(b, ShardMap):
        return (a.mesh, a.devices) == (b.mesh, b.devices)
    same = isinstance(a, Cond) and isinstance(b, Cond) and len(a.branches) == len(b.branches)
    return same and first.ins[0] is second.ins[0]


def _same_parts(first: Primitive, second: Primitive, at: int, i: int) -> bool:
    """Return True if result `at` of the first body is operand `i` of the second: of maps, if it is divided alike."""
    if isinstance(first, ShardMap) and isinstance(second, ShardMap):
        return first.out_specs[at] == second.in_specs[i]
    return True


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
        for wanted in balanced(n, depth):
            m = near_divisor(m, wanted)
            sizes.append(m)
        out += [tuple(sizes), (*sizes, 1)]
    return tuple(dict.fromkeys([s for s in out if s and (s == (1,) or s[0] < n)]))


@by_value
def divided(flat: Jaxpr, sizes: tuple[int, ...]) -> Jaxpr:
    """Return the program with each pair of loops in nested segments of `sizes` steps, outermost first, and each second
    branch with the first one inside.

    Law: same value; loops of any length, also one that `sizes` do not divide.
    """
    pairs = body_pairs(flat)
    firsts, seconds = {p.first: p for p in pairs}, {p.second: p for p in pairs}
    loops: dict[int, tuple[_LoopPair, Atoms, Atoms]] = {}  # with the operands of the first loop, and what it stores
    bodies: dict[int, Atoms] = {}  # the operands of the first branches and maps
    b = Builder.like(flat)
    env: dict[Atom, Atom] = {}
    for k, eqn in enumerate(flat.eqns):
        b.source = eqn.source
        ins = substitute(eqn.ins, env)
        prim = eqn.prim
        if k in firsts and isinstance(prim, Scan):
            second = flat.eqns[firsts[k].second].prim
            assert isinstance(second, Scan), second
            pair = _LoopPair.of(prim, second, firsts[k].stacks)
            kept, stored = pair.forward(b, ins, prim.length, sizes)
            loops[k] = pair, ins, stored
            env.update(zip([v for v, keep in zip(eqn.outs, pair.kept, strict=True) if keep], kept, strict=True))
        elif k in seconds and isinstance(prim, Scan):
            pair, first_ins, stored = loops[seconds[k].first]
            outs = pair.backward(b, first_ins, stored, pair.others(ins), prim.length, sizes)
            env.update(zip(eqn.outs, outs, strict=True))
        elif k in seconds and isinstance(prim, Cond):
            first = flat.eqns[seconds[k].first].prim
            assert isinstance(first, Cond), first
            both = [_both_bodies(f, s, seconds[k].stacks) for f, s in zip(first.branches, prim.branches, strict=True)]
            read = [i for _, i in seconds[k].stacks]
            others = [a for i, a in enumerate(ins[1:]) if i not in read]
            outs = b(Cond(tuple(both), prim.batched), ins[0], *bodies[seconds[k].first], *others)
            env.update(zip(eqn.outs, outs, strict=True))
        elif k in seconds and isinstance(prim, ShardMap):
            first = flat.eqns[seconds[k].first].prim
            assert isinstance(first, ShardMap), first
            body = _both_bodies(first.body, prim.body, seconds[k].stacks)
            read = [i for _, i in seconds[k].stacks]
            own = [operand for i, operand in enumerate(zip(ins, prim.in_specs, strict=True)) if i not in read]
            operands = [*zip(bodies[seconds[k].first], first.in_specs, strict=True), *own]
            env.update(zip(eqn.outs, first.apply(b, body, operands, prim.out_specs), strict=True))
        else:
            bodies[k] = ins[_fixed(eqn)[0] :] if isinstance(prim, Cond | ShardMap) else ()
            env.update(zip(eqn.outs, b.copy(eqn, ins), strict=True))
    return dce(b.build(substitute(flat.outs, env), flat.name))


def _both_bodies(first: Jaxpr, second: Jaxpr, values: tuple[tuple[int, int], ...]) -> Jaxpr:
    """Return a body of the second equation that runs that of the first again: (operands of the first, other operands
    of the second) -> results of the second."""
    b = Builder()
    again = b.inline(first, b.inputs(first.in_avals))
    made = {i: again[at] for at, i in values}
    ins = [made[i] if i in made else b.input(a) for i, a in enumerate(second.in_avals)]
    return b.build(b.inline(second, ins), second.name)


@final
@dataclass(frozen=True, slots=True)
class _LoopPair:
    """The two loops of a pair. `storing` are the steps of the first loop with the stacks last, `first` those without
    the stacks; the steps of `second` take the stacks last. `kept` marks the results of the first loop that remain."""

    storing: Scan
    first: Scan
    second: Scan
    kept: tuple[bool, ...]
    order: tuple[int, ...]  # of the slices of the second loop
    n_stacks: int

    @staticmethod
    def of(first: Scan, second: Scan, stacks: tuple[tuple[int, int], ...]) -> _LoopPair:
        """Return the pair for two loops and their stacks."""
        body, n = first.body, first.n_carry
        dropped = {at for at, _ in stacks}
        kept = tuple([k < n or k - n not in dropped for k in range(len(body.outs))])
        rest = tuple([a for a, keep in zip(body.outs, kept, strict=True) if keep])
        stacked = tuple([body.outs[n + at] for at, _ in stacks])
        fixed = second.n_consts + second.n_carry
        slices = range(len(second.body.ins) - fixed)
        read = [i for _, i in stacks]
        order = (*[i for i in slices if i not in read], *read)
        b = Builder()
        ins = b.inputs([second.body.in_avals[k] for k in (*range(fixed), *[fixed + i for i in order])])
        place = dict(zip(order, ins[fixed:], strict=True))
        steps = b.build(b.inline(second.body, [*ins[:fixed], *[place[i] for i in slices]]), second.body.name)
        return _LoopPair(
            first.with_bodies((body.with_outs((*rest, *stacked)),)),
            first.with_bodies((dce(body.with_outs(rest)),)),
            second.with_bodies((steps,)),
            kept,
            order,
            len(stacks),
        )

    def others(self, ins: Atoms) -> Atoms:
        """Return the operands of the second loop without the stacks."""
        n = self.second.upto + self.second.n_consts + self.second.n_carry
        return (*ins[:n], *[ins[n + i] for i in self.order[: len(self.order) - self.n_stacks]])

    def forward(self, b: Builder, ins: Atoms, n: int, sizes: tuple[int, ...]) -> tuple[Atoms, Atoms]:
        """Add n steps of the first loop. Return the results that are kept, and what is stored for the second: see the
        table of `sizes` at the top of this file."""
        if self._stores_each_carry(sizes):
            outs = b(self._storing_carries(n), *ins)
            at = len(outs) - self.first.n_carry
            return outs[:at], outs[at:]
        if not sizes or sizes[0] >= n:
            outs = b(_of_length(self.storing, n), *ins)
            at = len(outs) - self.n_stacks
            return outs[:at], outs[at:]
        m = sizes[0]
        trips, left = divmod(n, m)
        main, rest = _rows(n, trips * m, self.first.reverse)
        consts, carry, xs = self._split(self.first, ins)
        n_carry = self.first.n_carry
        inner = Builder()
        blocks = [row_block(b, x, main.start, main.stop, (trips, m)) for x in xs]
        c, state = [inner.inputs([a.aval for a in group]) for group in (consts, carry)]
        x = inner.inputs([a.aval.with_shape(a.aval.shape[1:]) for a in blocks])
        results = inner(_of_length(self.first, m), *c, *state, *x)
        segment = inner.build([*results, *state], f"segment_{self.first.body.name}")
        outs = b(
            Scan(segment, trips, reverse=self.first.reverse, unroll=1, n_consts=len(consts), n_carry=n_carry),
            *consts,
            *carry,
            *blocks,
        )
        at = len(outs) - n_carry
        stored: Atoms = outs[at:]
        carry, ys = outs[:n_carry], [_joined(b, y) for y in outs[n_carry:at]]
        if left:
            tail = [row_block(b, x, rest.start, rest.stop, (left,)) for x in xs]
            last, stacks = self.forward(b, (*consts, *carry, *tail), left, sizes[1:])
            carry = last[:n_carry]
            ys = [_concatenated(b, y, z, self.first.reverse) for y, z in zip(ys, last[n_carry:], strict=True)]
            stored = (*stored, *stacks)
        return (*carry, *ys), stored

    def backward(
        self, b: Builder, first_ins: Atoms, stored: Atoms, ins: Atoms, n: int, sizes: tuple[int, ...]
    ) -> Atoms:
        """Add n steps of the second loop. `ins` are its operands without the stacks."""
        if self._stores_each_carry(sizes):
            return self._steps_again(b, first_ins, stored, ins, n)
        if not sizes or sizes[0] >= n:
            return b(_of_length(self.second, n), *ins, *stored)
        m = sizes[0]
        trips, left = divmod(n, m)
        main, rest = _rows(n, trips * m, self.first.reverse)
        first_consts, first_carry, first_xs = self._split(self.first, first_ins)
        consts, carry, xs = self._split(self.second, ins)
        states, stacks = stored[: self.first.n_carry], stored[self.first.n_carry :]
        n_carry = self.second.n_carry

        def run_main(carry: Atoms) -> tuple[Atoms, Atoms]:
            first_blocks = [row_block(b, x, main.start, main.stop, (trips, m)) for x in first_xs]
            blocks = [row_block(b, x, main.start, main.stop, (trips, m)) for x in xs]
            inner = Builder()
            c1, c2 = inner.inputs([a.aval for a in first_consts]), inner.inputs([a.aval for a in consts])
            d = inner.inputs([a.aval for a in carry])
            state = inner.inputs([a.aval.with_shape(a.aval.shape[1:]) for a in states])
            x1 = inner.inputs([a.aval.with_shape(a.aval.shape[1:]) for a in first_blocks])
            x2 = inner.inputs([a.aval.with_shape(a.aval.shape[1:]) for a in blocks])
            again = (*c1, *state, *x1)
            _, kept = self.forward(inner, again, m, sizes[1:])
            outs = self.backward(inner, again, kept, (*c2, *d, *x2), m, sizes[1:])
            segment = inner.build(outs, f"segment_{self.second.body.name}")
            loop = Scan(
                segment,
                trips,
                reverse=self.second.reverse,
                unroll=1,
                n_consts=len(first_consts) + len(consts),
                n_carry=n_carry,
            )
            outs = b(loop, *first_consts, *consts, *carry, *states, *first_blocks, *blocks)
            return outs[:n_carry], tuple([_joined(b, y) for y in outs[n_carry:]])

        def run_rest(carry: Atoms) -> tuple[Atoms, Atoms]:
            first_tail = [row_block(b, x, rest.start, rest.stop, (left,)) for x in first_xs]
            tail = [row_block(b, x, rest.start, rest.stop, (left,)) for x in xs]
            # the carry of the first loop before these steps is read only if they are in segments, which store it
            again = (*first_consts, *first_carry, *first_tail)
            outs = self.backward(b, again, stacks, (*consts, *carry, *tail), left, sizes[1:])
            return outs[:n_carry], outs[n_carry:]

        if not left:
            carry, ys = run_main(carry)
            return (*carry, *ys)
        if self.second.reverse == self.first.reverse:
            carry, ys = run_main(carry)
            carry, zs = run_rest(carry)
        else:
            carry, zs = run_rest(carry)
            carry, ys = run_main(carry)
        return (*carry, *[_concatenated(b, y, z, self.first.reverse) for y, z in zip(ys, zs, strict=True)])

    def _stores_each_carry(self, sizes: tuple[int, ...]) -> bool:
        return self.first.upto or sizes[:1] == (1,)

    def _storing_carries(self, n: int) -> Scan:
        """Return n steps of the first loop, which stack their carries too."""
        first, b = self.first, Builder()
        ins = b.inputs(first.body.in_avals)
        outs = b.inline(first.body, ins)
        steps = b.build([*outs, *ins[first.n_consts : first.n_consts + first.n_carry]], first.body.name)
        return replace(first, body=steps, length=n)

    def _steps_again(self, b: Builder, first_ins: Atoms, states: Atoms, ins: Atoms, n: int) -> Atoms:
        """Add n steps of the second loop, each of which runs its step of the first again from the carry before it."""
        first, second = self.first, self.second
        _, first_ins = first.split_count(first_ins)
        count, ins = second.split_count(ins)
        consts_1, _, xs_1 = self._split(first, first_ins)
        consts_2, carry, xs_2 = self._split(second, ins)
        step = Builder()
        c1, c2, d = [step.inputs([a.aval for a in group]) for group in (consts_1, consts_2, carry)]
        state, x1, x2 = [
            step.inputs([a.aval.with_shape(a.aval.shape[1:]) for a in group]) for group in (states, xs_1, xs_2)
        ]
        again = step.inline(self.storing.body, (*c1, *state, *x1))
        outs = step.inline(second.body, (*c2, *d, *x2, *again[len(again) - self.n_stacks :]))
        steps = step.build(outs, second.body.name)
        n_consts = len(consts_1) + len(consts_2)
        loop = replace(second, body=steps, length=n, n_consts=n_consts)
        return b(loop, *count, *consts_1, *consts_2, *carry, *states, *xs_1, *xs_2)

    def _split(self, scan: Scan, ins: Atoms) -> tuple[Atoms, Atoms, Atoms]:
        n, m = scan.n_consts, scan.n_consts + scan.n_carry
        return ins[:n], ins[n:m], ins[m:]


def _of_length(scan: Scan, n: int) -> Scan:
    return replace(scan, length=n, upto=False)


def _rows(n: int, main: int, reverse: bool) -> tuple[range, range]:
    """Return the rows of the segments, which run first, and those of the steps that are left."""
    return (range(n - main, n), range(n - main)) if reverse else (range(main), range(main, n))


def _joined(b: Builder, y: Atom) -> Atom:
    """Return blocks of rows as rows."""
    t, m, *shape = y.aval.shape
    return b.one(Reshape((t * m, *shape)), y)


def _concatenated(b: Builder, y: Atom, z: Atom, reverse: bool) -> Atom:
    """Return the rows of the segments and those that are left, in order."""
    return b.one(Concatenate(0), *((z, y) if reverse else (y, z)))
