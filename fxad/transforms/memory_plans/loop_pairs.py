"""Pairs of loops: a `scan` that stacks values for a later `scan` of as many steps, as the derivative of a loop does.

The stacks need not be stored. In segments of m steps, the first loop stores its carry before each segment. The second
loop runs over the segments; for each it runs m steps of the first loop again, from the stored carry, and then its own m
steps:

    scan of 12: c -> c, r            in segments of 4:   scan of 3: c -> c, and c is stacked
    scan of 12, backwards: d, r -> d                     scan of 3, backwards: d, c -> (scan of 4: c -> r;
                                                                                        scan of 4, backwards: d, r -> d)

A segment can be in segments itself. Segments of one step store the carry of each step.
"""

from __future__ import annotations

from typing import Final, final

from fxad.core.builder import Builder, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.memo import by_value
from fxad.core.sizes import at_least
from fxad.ir import Atom, Atoms, Eqn, Jaxpr
from fxad.primitives.control.scan import Scan
from fxad.primitives.shape import Reshape
from fxad.primitives.slicing import Concatenate
from fxad.transforms.memory.nested_scan import _row_block, balanced

DEPTHS: Final = (2, 3, 4)


@final
@dataclass(frozen=True, slots=True)
class LoopPair:
    """Two loops of a program, as the numbers of their equations, and the stacks that only the second one reads: as
    results of the steps of the first, and as slices of the steps of the second."""

    first: int
    second: int
    stacks: tuple[tuple[int, int], ...]


@by_value
def loop_pairs(flat: Jaxpr) -> tuple[LoopPair, ...]:
    """Returns the pairs of loops of a flat program; a loop is in at most one pair."""
    made_by = {v: k for k, e in enumerate(flat.eqns) if _divisible(e) for v in e.outs}
    readers: dict[Atom, list[int]] = {}
    for k, e in enumerate(flat.eqns):
        for a in e.ins:
            readers.setdefault(a, []).append(k)
    results, paired = {*flat.outs}, set[int]()
    out = []
    for k, eqn in enumerate(flat.eqns):
        if not _divisible(eqn):
            continue
        n = eqn.prim.n_consts + eqn.prim.n_carry
        by_loop: dict[int, list[tuple[int, int]]] = {}
        for i, a in enumerate(eqn.ins[n:]):
            j = made_by.get(a, k)
            if j < k and j not in paired and readers[a] == [k] and a not in results:
                first = flat.eqns[j]
                at = first.outs.index(a) - first.prim.n_carry
                if at >= 0 and first.prim.length == eqn.prim.length:
                    by_loop.setdefault(j, []).append((at, i))
        if by_loop:
            j, stacks = max(by_loop.items(), key=lambda item: sum([eqn.ins[n + i].aval.nbytes for _, i in item[1]]))
            out.append(LoopPair(j, k, tuple(stacks)))
            paired.update((j, k))
    return tuple(out)


def _divisible(eqn: Eqn) -> bool:
    prim = eqn.prim
    return isinstance(prim, Scan) and not prim.upto and not prim.effects and at_least(prim.length, 2)


def divisions(flat: Jaxpr) -> tuple[tuple[int, ...], ...]:
    """Returns the sizes of segments that are worth trying for the pairs of a program: those that compute least again
    first."""
    lengths = [flat.eqns[pair.first].prim.length for pair in loop_pairs(flat)]
    if not lengths:
        return ()
    n = max(lengths)
    out: list[tuple[int, ...]] = [(1,)]
    for depth in DEPTHS:
        sizes, m = [], n
        for wanted in balanced(n, depth):
            m = _divisor(m, wanted)
            sizes.append(m)
        out += [tuple(sizes), (*sizes, 1)]
    return tuple(dict.fromkeys([s for s in out if s and s[0] < n]))


def _divisor(n: int, wanted: int) -> int:
    """Returns a divisor of n near the wanted number, or that number if none is near: a loop whose last segment is
    shorter copies its slices."""
    near = [m for m in range(max(1, wanted // 2), min(n, 2 * wanted) + 1) if n % m == 0]
    return min(near, key=lambda m: abs(m - wanted), default=wanted)


@by_value
def divided(flat: Jaxpr, sizes: tuple[int, ...]) -> Jaxpr:
    """Returns the program with each pair of loops in nested segments of `sizes` steps, outermost first.

    Law: same value, bit for bit but for what XLA fuses; loops of any length, also one that `sizes` do not divide.
    """
    pairs = loop_pairs(flat)
    firsts, seconds = {p.first: p for p in pairs}, {p.second: p for p in pairs}
    emitted: dict[int, _Pair] = {}
    saved: dict[int, tuple[Atoms, Atoms]] = {}  # operands of the first loop, and what it stores
    b = Builder.like(flat)
    env: dict[Atom, Atom] = {}
    for k, eqn in enumerate(flat.eqns):
        b.source = eqn.source
        ins = substitute(eqn.ins, env)
        if k in firsts:
            pair = emitted[k] = _Pair.of(eqn.prim, flat.eqns[firsts[k].second].prim, firsts[k].stacks)
            kept, stored = pair.forward(b, ins, pair.first.length, sizes)
            saved[k] = ins, stored
            env.update(zip([v for v, keep in zip(eqn.outs, pair.kept, strict=True) if keep], kept, strict=True))
        elif k in seconds:
            j = seconds[k].first
            first_ins, stored = saved[j]
            pair = emitted[j]
            outs = pair.backward(b, first_ins, stored, pair.others(ins), pair.first.length, sizes)
            env.update(zip(eqn.outs, outs, strict=True))
        else:
            env.update(zip(eqn.outs, b.copy(eqn, ins), strict=True))
    return dce(b.build(substitute(flat.outs, env), flat.name))


@final
@dataclass(frozen=True, slots=True)
class _Pair:
    """The two loops of a pair. `storing` are the steps of the first loop with the stacks last, `first` those without
    the stacks; the steps of `second` take the stacks last. `kept` marks the results of the first loop that remain."""

    storing: Scan
    first: Scan
    second: Scan
    kept: tuple[bool, ...]
    order: tuple[int, ...]  # of the slices of the second loop
    n_stacks: int

    @staticmethod
    def of(first: Scan, second: Scan, stacks: tuple[tuple[int, int], ...]) -> _Pair:
        """Returns the pair for two loops and their stacks."""
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
        return _Pair(
            first.with_bodies((Jaxpr(body.ins, body.eqns, (*rest, *stacked), body.name),)),
            first.with_bodies((dce(Jaxpr(body.ins, body.eqns, rest, body.name)),)),
            second.with_bodies((steps,)),
            kept,
            order,
            len(stacks),
        )

    def others(self, ins: Atoms) -> Atoms:
        """Returns the operands of the second loop without the stacks."""
        n = self.second.n_consts + self.second.n_carry
        return (*ins[:n], *[ins[n + i] for i in self.order[: len(self.order) - self.n_stacks]])

    def forward(self, b: Builder, ins: Atoms, n: int, sizes: tuple[int, ...]) -> tuple[Atoms, Atoms]:
        """Adds n steps of the first loop. Returns the results that are kept, and what is stored for the second."""
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
        ins_of_segment = inner.inputs([a.aval for a in (*consts, *carry)])
        blocks = [_row_block(b, x, main.start, main.stop, (trips, m)) for x in xs]
        ins_of_segment += inner.inputs([x.aval.with_shape(x.aval.shape[1:]) for x in blocks])
        outs: Atoms = inner(_of_length(self.first, m), *ins_of_segment)
        before = ins_of_segment[len(consts) : len(consts) + n_carry]
        segment = inner.build([*outs, *before], f"segment_{self.first.body.name}")
        outs = b(Scan(segment, trips, self.first.reverse, 1, len(consts), n_carry), *consts, *carry, *blocks)
        at = len(outs) - n_carry
        stored, outs = outs[at:], outs[:at]
        carry, ys = outs[:n_carry], [_joined(b, y) for y in outs[n_carry:]]
        if left:
            tail = [_row_block(b, x, rest.start, rest.stop, (left,)) for x in xs]
            last, stacks = self.forward(b, (*consts, *carry, *tail), left, sizes[1:])
            carry = last[:n_carry]
            ys = [_concatenated(b, y, z, self.first.reverse) for y, z in zip(ys, last[n_carry:], strict=True)]
            stored = (*stored, *stacks)
        return (*carry, *ys), stored

    def backward(
        self, b: Builder, first_ins: Atoms, stored: Atoms, ins: Atoms, n: int, sizes: tuple[int, ...]
    ) -> Atoms:
        """Adds n steps of the second loop. `ins` are its operands without the stacks."""
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
            first_blocks = [_row_block(b, x, main.start, main.stop, (trips, m)) for x in first_xs]
            blocks = [_row_block(b, x, main.start, main.stop, (trips, m)) for x in xs]
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
            loop = Scan(segment, trips, self.second.reverse, 1, len(first_consts) + len(consts), n_carry)
            outs = b(loop, *first_consts, *consts, *carry, *states, *first_blocks, *blocks)
            return outs[:n_carry], tuple([_joined(b, y) for y in outs[n_carry:]])

        def run_rest(carry: Atoms) -> tuple[Atoms, Atoms]:
            first_tail = [_row_block(b, x, rest.start, rest.stop, (left,)) for x in first_xs]
            tail = [_row_block(b, x, rest.start, rest.stop, (left,)) for x in xs]
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

    def _split(self, scan: Scan, ins: Atoms) -> tuple[Atoms, Atoms, Atoms]:
        n, m = scan.n_consts, scan.n_consts + scan.n_carry
        return ins[:n], ins[n:m], ins[m:]


def _of_length(scan: Scan, n: int) -> Scan:
    return Scan(scan.body, n, scan.reverse, scan.unroll, scan.n_consts, scan.n_carry)


def _rows(n: int, main: int, reverse: bool) -> tuple[range, range]:
    """Returns the rows of the segments, which run first, and those of the steps that are left."""
    return (range(n - main, n), range(n - main)) if reverse else (range(main), range(main, n))


def _joined(b: Builder, y: Atom) -> Atom:
    """Returns blocks of rows as rows."""
    t, m, *shape = y.aval.shape
    return b.one(Reshape((t * m, *shape)), y)


def _concatenated(b: Builder, y: Atom, z: Atom, reverse: bool) -> Atom:
    """Returns the rows of the segments and those that are left, in order."""
    return b.one(Concatenate(0), *((z, y) if reverse else (y, z)))
