"""Recompute cheap values in units, where this stores fewer bytes between units.

It is apart from the memory planner, which works within a budget and on the flat program, before there are units
(docs/adr/0113).

In a whole program, XLA fuses a cheap operation into each of its readers, and stores the operands of the operation
instead. Between units, every value that a later unit reads is stored. This module chooses the values to store:

- A candidate is a value that a piece reads and that a piece other than the one just before it computed.
- For the candidates of a piece, a minimum cut chooses values of that piece from which cheap equations
  (`CHEAP_TO_RECOMPUTE`) and `tanh` and the like (`SIGMOIDS`) compute them. The weight of a value is its bytes times the
  number of pieces by which the choice extends its life. So an operand of the program weighs nothing, and a value that
  the next layer reads anyway weighs little (`y` beside `1 - y * y`). Of equal cuts it takes the one with the fewest
  equations, so it computes `tanh(z)` again only if `z` is stored anyway, or replaces several values.
- The reading piece gets an operand for each chosen value, and the equations: at most `MAX_FORMULA` for a value, one
  of `SIGMOIDS` among them, for at most `MAX_READERS` pieces. Equal pieces stay equal: a value is recomputed only if
  every use of the body recomputes it in the same way.

For example, `y` weighs nothing below, because it is a result of the program: it is live to the end anyway. So the last
of the four units computes `d` from `y`, and `d` is not stored any more:

>>> import fxad as fx, fxad.numpy as fnp
>>> first = fx.jit(lambda x, w: [(y := fnp.tanh(x @ w)), 1 - y * y])
>>> sin, product = fx.jit(fnp.sin), fx.jit(lambda v, d: v * d)
>>> def f(x, w):
...     y, d = first(x, w)
...     return product(sin(sin(y)), d), y
>>> program = fx.trace(f, fx.Spec((4, 4)), fx.Spec((4, 4))).jaxpr
>>> from fxad.units.pieces import partition
>>> pieces = partition(program, tuple([body_of_call_or_remat(eqn) for eqn in program.eqns]))
>>> for old, new in zip(pieces.pieces, recompute_operands(pieces).pieces):
...     names = [" ".join([eqn.prim.name for eqn in piece.body.eqns]) for piece in (old, new)]
...     print(f"{names[0]:24}  becomes  {names[1]}" if new.body is not old.body else names[0])
dot_general tanh mul sub  becomes  dot_general tanh
sin
sin
mul                       becomes  mul sub mul

`_RecomputedOperands` chooses the values, and `_Rewriter` rewrites the pieces. This applies to pieces only: XLA decides
for a program that is compiled as a whole. Values that the user marked to be saved are stored.

Source: the recomputation of the min-cut partitioner of PyTorch (AOTAutograd, `torch/_functorch/partitioners.py`; He and
        Zdevito, "Min-cut optimal(*) recomputation", 2022); what is cheap: XLA's `InstructionFusion::IsExpensive`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, TypeAlias, final

from fxad.core.builder import Builder, subprogram
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Aval, Eqn, Jaxpr, Lit, Var
from fxad.primitives.control.effects import may_fail
from fxad.primitives.control.remat import body_of_call_or_remat
from fxad.primitives.marks import Name
from fxad.support.constants import MAX_FORMULA, MAX_READERS
from fxad.transforms.cleanup.cse import cse
from fxad.transforms.costs import CHEAP_TO_RECOMPUTE, SIGMOIDS
from fxad.units.min_cut import min_vertex_cut
from fxad.units.pieces import Piece, Pieces, is_recomputation

_RECOMPUTED: Final = (*CHEAP_TO_RECOMPUTE, *SIGMOIDS)

# A body and the index of an operand, or of a result, for all the pieces with that body.
OperandPort: TypeAlias = tuple[Jaxpr, int]
ResultPort: TypeAlias = tuple[Jaxpr, int]
# The values of one operand at all uses of its body.
_Column: TypeAlias = Atoms


@final
class _Idle(Enum):
    """In place of a value at a use where the operand is idle (`DefUse`): any value of the type serves."""

    ANY_VALUE = "any value"


def recompute_operands(pieces: Pieces, donate: Sequence[int] = ()) -> Pieces:
    """Return pieces that store fewer bytes between each other. Operands in `donate` may be freed.

    Law:  running them in order gives the same results; one new piece for each old one; equal new pieces for equal old
          ones; a piece computes its own equations, and those that it recomputes.
    Cost: linear in the pieces and their operands, and a minimum cut for each distinct body.
    """
    def_use = DefUse(pieces, donate)
    recomputed, recomputations = _RecomputedOperands(def_use).recomputations()
    return _Rewriter(def_use, recomputed, recomputations).pieces(pieces) if recomputed else pieces


# ------------------------------------------------------------------------------------------------- the choice of values


@final
@dataclass(frozen=True, slots=True)
class OperandRecomputation:
    """Computes a result of a body from other values of the body: `program` applied to the variables `leaves`."""

    program: Jaxpr
    leaves: tuple[Var, ...]


@final
@dataclass(frozen=True, slots=True)
class _LastReads:
    """For each value, the last piece that reads it as an operand to recompute (`recomputed`), and as another operand
    (`stored`)."""

    recomputed: Mapping[Atom, int]
    stored: Mapping[Atom, int]


@final
class DefUse:
    """Definitions and uses of the values between pieces. The bodies of the pieces are `plain`.

    `producer_of` gives the piece that computes a value, and the index of the result; `readers` the pieces that read a
    value, and the index of the operand; `uses` the pieces with a body. `always_live` are the values that are in memory
    to the end anyway.

    An operand of a piece is *idle* if it affects nothing that is read: it may have any value. So is `c` of the body
    `(a, b, c) -> (a + b, b * c)` in a piece `s, _ = body(x, y, 1.0)`, whose second result is not read. `merge_bodies`
    makes such pieces: it calls a larger body, with ones for the operands that the smaller one did not have.
    """

    __slots__ = ("_idle", "_values_of", "always_live", "never_freed", "pieces", "producer_of", "readers", "uses")

    def __init__(self, pieces: Pieces, donate: Sequence[int]) -> None:
        self.pieces = tuple([replace(p, body=plain(p.body)) for p in pieces.pieces])
        self.producer_of: dict[Atom, tuple[int, int]] = {}
        self.readers: dict[Atom, list[tuple[int, int]]] = {}
        self.uses: dict[Jaxpr, list[int]] = {}
        self._values_of: dict[int, dict[Atom, Atom]] = {}
        self.never_freed: Atoms = tuple([v for k, v in enumerate(pieces.ins) if k not in donate])
        self.always_live: set[Atom] = {*self.never_freed, *pieces.constants, *pieces.outs}
        for k, p in enumerate(self.pieces):
            self.uses.setdefault(p.body, []).append(k)
            self.producer_of.update({a: (k, n) for n, a in enumerate(p.outs) if isinstance(a, Var)})
            for n, a in enumerate(p.ins):
                self.readers.setdefault(a, []).append((k, n))
        self._idle = {(k, n) for k, p in enumerate(self.pieces) for n in self._idle_operands(p)}

    def _idle_operands(self, p: Piece) -> list[int]:
        """Return the literal operands of a piece that affect no value that is read, no effect, and no equation that can
        fail or loop forever on some values."""
        literals = [n for n, a in enumerate(p.ins) if isinstance(a, Lit)]
        if not literals:
            return []
        pairs = zip(p.body.outs, p.outs, strict=True)
        values_needed = {a for a, b in pairs if b in self.always_live or b in self.readers}
        for eqn in reversed(p.body.eqns):
            if not values_needed.isdisjoint(eqn.outs) or eqn.prim.effects or may_fail(eqn.prim):
                values_needed.update(eqn.ins)
        return [n for n in literals if p.body.ins[n] not in values_needed]

    def producer(self, k: int, n: int) -> ResultPort:
        """Return the body of the piece that computes operand `n` of piece `k`, and the index of the result."""
        i, result = self.producer_of[self.pieces[k].ins[n]]
        return self.pieces[i].body, result

    def uses_of(self, port: OperandPort) -> list[int]:
        """Return the pieces that use an operand of a body. Those where it is idle are left out."""
        body, n = port
        return [k for k in self.uses[body] if (k, n) not in self._idle]

    def idle_uses_of(self, port: OperandPort) -> list[int]:
        """Return the pieces in which an operand of a body is idle."""
        body, n = port
        return [k for k in self.uses[body] if (k, n) in self._idle]

    def any_live_value(self, k: int, aval: Aval) -> Atom | None:
        """Any value of that type that is live when piece `k` runs; None if there is none."""
        return next((a for a in (*self.pieces[k].ins, *self.never_freed) if a.aval == aval), None)

    def value_of(self, k: int, v: Var) -> Atom | None:
        """Return the operand or result of piece `k` for a variable of its body; None if the variable is neither."""
        values = self._values_of.get(k)
        if values is None:
            p = self.pieces[k]
            pairs = [*zip(p.body.ins, p.ins, strict=True), *zip(p.body.outs, p.outs, strict=True)]
            values = self._values_of[k] = dict(reversed(pairs))  # the first pair of a variable counts
        return values.get(v)


@final
class _RecomputedOperands:
    """Chooses the operands that are recomputed, and the recomputations of the results that they read."""

    __slots__ = ("def_use",)

    def __init__(self, def_use: DefUse) -> None:
        self.def_use = def_use

    def recomputations(self) -> tuple[set[OperandPort], dict[ResultPort, OperandRecomputation]]:
        """Return the operands to recompute, and the recomputations of the results that they read.

        The choice begins with all candidates. An operand without one recomputation for all uses is stored after all.
        This changes how long other values live, so the recomputations of the remaining operands are found again.
        """
        def_use = self.def_use
        ports = {port for body in def_use.uses for n in range(len(body.ins)) if self._is_candidate(port := (body, n))}
        while ports:
            last_reads = self._last_reads(ports)
            producers = [def_use.producer(k, n)[0] for body, n in ports for k in def_use.uses_of((body, n))]
            recomputations: dict[ResultPort, OperandRecomputation] = {}
            for body in dict.fromkeys(producers):
                recomputations.update(self._recomputations_of_results(body, last_reads))
            with_recomputation = {port for port in ports if self._has_one_recomputation(port, recomputations)}
            if with_recomputation == ports:
                return ports, recomputations
            ports = with_recomputation
        return set(), {}

    def _is_candidate(self, port: OperandPort) -> bool:
        """Return True if an operand is a candidate: at some use, the piece that computes it is at least two before the
        one that reads it, and few such pieces read it."""
        def_use, n = self.def_use, port[1]
        passes_a_piece = False
        for k in def_use.uses_of(port):
            a = def_use.pieces[k].ins[n]
            if a not in def_use.producer_of or a in def_use.always_live:
                return False
            producer = def_use.producer_of[a][0]
            passes_a_piece = passes_a_piece or k - producer > 1
            if len({j for j, _ in def_use.readers[a] if j - producer > 1}) > MAX_READERS:
                return False
        return passes_a_piece

    def _has_one_recomputation(
        self, port: OperandPort, recomputations: Mapping[ResultPort, OperandRecomputation]
    ) -> bool:
        """Return True if an operand has the same recomputation at all uses, and values of the right types where it is
        idle."""
        def_use, n = self.def_use, port[1]
        at_uses = [recomputations.get(def_use.producer(k, n)) for k in def_use.uses_of(port)]
        programs = {f.program if f else None for f in at_uses}
        program = next(iter(programs))
        if len(programs) > 1 or program is None:
            return False
        return all([def_use.any_live_value(k, v.aval) for v in program.ins for k in def_use.idle_uses_of(port)])

    def _recomputations_of_results(self, body: Jaxpr, last_reads: _LastReads) -> dict[ResultPort, OperandRecomputation]:
        """Return the recomputations of results of a body, from the values that the minimum cut chooses."""
        cheap: dict[Atom, Eqn] = {e.outs[0]: e for e in body.eqns if isinstance(e.prim, _RECOMPUTED)}
        results = self._recomputed_results(body, last_reads)
        needed_to = _needed_to(body, results, cheap)
        values = tuple(needed_to)
        vertex: dict[Atom, int] = {v: k for k, v in enumerate(values)}
        weights = [v.aval.nbytes * self._added_life(body, v, needed_to[v], last_reads) for v in values]
        edges = [(vertex[a], vertex[v]) for v in values if v in cheap for a in cheap[v].ins if isinstance(a, Var)]
        sources, sinks = [vertex[v] for v in values if v not in cheap], [vertex[v] for v in results]
        leaves = {values[k] for k in min_vertex_cut(weights, edges, sources, sinks)}
        recomputations = {v: f for v in results if v not in leaves and (f := _recomputation(v, cheap, leaves))}
        return {(body, n): recomputations[v] for n, v in enumerate(body.outs) if v in recomputations}

    def _recomputed_results(self, body: Jaxpr, last_reads: _LastReads) -> dict[Var, Sequence[int]]:
        """Return the results of a body that other pieces recompute: for each use of the body, the last such piece."""
        uses, pieces = self.def_use.uses[body], self.def_use.pieces
        results: dict[Var, Sequence[int]] = {}
        for n, v in enumerate(body.outs):
            last = [last_reads.recomputed.get(pieces[k].outs[n], -1) for k in uses]
            if isinstance(v, Var) and max(last) >= 0:
                results[v] = _later(last, results.get(v))
        return results

    def _added_life(self, body: Jaxpr, v: Var, needed_to: Sequence[int], last_reads: _LastReads) -> int:
        """Return the number of pieces by which the life of a value grows if it is live to the piece `needed_to` of each
        use, summed over all uses."""
        def_use, added = self.def_use, 0
        for k, last in zip(def_use.uses[body], needed_to, strict=True):
            a = def_use.value_of(k, v)
            if a is None:  # no operand or result so far: it is live only while its piece runs
                ends = k
            elif a in def_use.always_live:
                continue
            else:  # no piece computes a donated operand or a literal: it is there from piece 0 on
                ends = max(last_reads.stored.get(a, -1), def_use.producer_of.get(a, (0, 0))[0])
            added += max(0, last - ends)
        return added

    def _last_reads(self, ports: set[OperandPort]) -> _LastReads:
        """Return the last readers of each value, if the operands in `ports` are recomputed."""
        is_recomputed = {body: [(body, n) in ports for n in range(len(body.ins))] for body in self.def_use.uses}
        recomputed: dict[Atom, int] = {}
        stored: dict[Atom, int] = {}
        for k, p in enumerate(self.def_use.pieces):
            for a, recomputes in zip(p.ins, is_recomputed[p.body], strict=True):
                (recomputed if recomputes else stored)[a] = k
        return _LastReads(recomputed, stored)


def _needed_to(
    body: Jaxpr, results: Mapping[Var, Sequence[int]], cheap: Mapping[Atom, Eqn]
) -> dict[Var, Sequence[int]]:
    """Return the values from which cheap equations compute the `results`, these included: for each use of the body, the
    last piece that would compute something from the value, if it were stored.

    In the example of the module, piece 3 computes d = 1 - y * y again. So d, y * y, y and x @ w are needed to piece 3,
    and the cut chooses y. The product is not the result of a cheap equation, so nothing before it is needed.
    """
    needed_to = dict(results)
    for eqn in reversed(body.eqns):
        if eqn.outs and (v := eqn.outs[0]) in cheap and v in needed_to:
            for a in eqn.ins:
                if isinstance(a, Var):
                    needed_to[a] = _later(needed_to[v], needed_to.get(a))
    return needed_to


def _later(a: Sequence[int], b: Sequence[int] | None) -> Sequence[int]:
    """Return the elementwise maximum of two lists of pieces."""
    return a if b is None else list(map(max, a, b))


@by_value
def plain(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with calls inlined, except recomputations, and without `name` equations, which are not used
    after differentiation."""

    def body_to_inline(eqn: Eqn, _ins: Atoms) -> Jaxpr | None:
        return None if is_recomputation(eqn) else body_of_call_or_remat(eqn)

    def rule(_b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        return ins if isinstance(eqn.prim, Name) else None

    b = Builder.like(jaxpr)
    return b.build(b.inline_calls(jaxpr, jaxpr.ins, body_to_inline, rule), jaxpr.name)


def _recomputation(v: Var, producers: Mapping[Atom, Eqn], leaves: set[Var]) -> OperandRecomputation | None:
    """Return the recomputation of `v` from `leaves`; None if it has more than `MAX_FORMULA` equations, or
    two functions."""
    eqn_of: dict[Var, Eqn] = {}
    stack = [v]
    while stack:
        u = stack.pop()
        if u in leaves or u in eqn_of:
            continue
        eqn_of[u] = producers[u]
        stack += [a for a in producers[u].ins if isinstance(a, Var)]
        if len(eqn_of) > MAX_FORMULA or len([e for e in eqn_of.values() if isinstance(e.prim, SIGMOIDS)]) > 1:
            return None
    eqns = [eqn_of[u] for u in sorted(eqn_of, key=lambda u: u.index)]
    leaves_read = tuple(dict.fromkeys([a for e in eqns for a in e.ins if isinstance(a, Var) and a in leaves]))
    return OperandRecomputation(subprogram(eqns, leaves_read, (v,), "again"), leaves_read)


# ------------------------------------------------------------------------------------------------------------ rewriting


@final
@dataclass(frozen=True, slots=True)
class _NewOperands:
    """The operands of a body that recomputes some of its old ones.

    columns:       for each new operand, its values at the uses of the body.
    recomputation: computes the old operands from the new ones, each distinct equation once.

    In the example of the module, the body (v, d) -> mul v d recomputes d = 1 - y * y. Its new operands are v and y. So
    there are two columns, of one value each, and the recomputation is (v, y) -> let s = mul y y, d = sub 1.0 s in
    (v, d).
    """

    columns: tuple[_Column, ...]
    recomputation: Jaxpr

    def body(self, old: Jaxpr) -> Jaxpr:
        """Return the body `old` over the new operands: first the recomputation, then its own equations."""
        b = Builder.resume(self.recomputation)
        return b.build(b.inline(old, self.recomputation.outs), old.name)


@final
@dataclass(frozen=True, slots=True)
class _Results:
    """The results of a rewritten body: the old results with the indices `kept`, then the values `added` of the old
    body, which recomputations read."""

    kept: tuple[int, ...]
    added: tuple[Var, ...]

    def body(self, old: Jaxpr) -> Jaxpr:
        """Return the body `old` with these results."""
        outs = (*[old.outs[n] for n in self.kept], *self.added)
        return old if outs == old.outs else old.with_outs(outs)


@final
class _Rewriter:
    """Rewrites the pieces: new operands for those that recompute, new results for the values that recomputations read.

    `added` has the values of bodies that become results, and `added_values` what they are called at each piece.
    """

    __slots__ = ("added", "added_values", "def_use", "recomputations", "next_index", "recomputed")

    def __init__(
        self, def_use: DefUse, recomputed: set[OperandPort], recomputations: Mapping[ResultPort, OperandRecomputation]
    ) -> None:
        self.def_use = def_use
        self.recomputed = recomputed
        self.recomputations = recomputations
        self.added: dict[Jaxpr, set[Var]] = {body: set() for body in def_use.uses}
        self.added_values: dict[tuple[int, Var], Var] = {}
        self.next_index = 1 + max([a.index for a in def_use.producer_of if isinstance(a, Var)], default=0)

    def pieces(self, old: Pieces) -> Pieces:
        """Return all pieces, rewritten."""
        uses = self.def_use.uses
        # The operands come first: they decide which results of other pieces are kept, and which are added.
        recomputing = {body for body, _ in self.recomputed}
        operands = {body: self._new_operands(body) for body in uses if body in recomputing}
        ins = [p.ins for p in old.pieces]
        for body, new in operands.items():
            for use, k in enumerate(uses[body]):
                ins[k] = tuple([column[use] for column in new.columns])
        values_read = {*old.outs, *[a for row in ins for a in row]}
        results = {body: self._results(body, values_read) for body in uses}
        # Then a new body for each old one.
        bodies: dict[Jaxpr, Jaxpr] = {}
        for body in uses:
            new_body = results[body].body(body)
            if body in operands:
                new_body = operands[body].body(new_body)
            bodies[body] = body if new_body is body else dce(new_body)
        # Last the pieces, which call the new bodies.
        pieces = []
        for k, (p, q) in enumerate(zip(old.pieces, self.def_use.pieces, strict=True)):  # q has the body `plain`
            kept_results, added_results = results[q.body].kept, results[q.body].added
            outs = (*[p.outs[n] for n in kept_results], *[self._value_of(k, v) for v in added_results])
            new_body = bodies[q.body]
            # `dce` gives a body that did not change as it was, without its calls (`plain`). Then the piece keeps its
            # own body. Its operands may still have changed: a body need not read the operand that is recomputed.
            pieces.append(replace(p, body=p.body if new_body is q.body else new_body, ins=ins[k], outs=outs))
        return replace(old, pieces=tuple(pieces))

    def _new_operands(self, body: Jaxpr) -> _NewOperands:
        """Return the operands that are stored, in order, then the leaves of recomputations that are not among them."""
        uses = self.def_use.uses[body]
        old: list[_Column] = list(zip(*[self.def_use.pieces[k].ins for k in uses], strict=True))
        is_recomputed = [(body, n) in self.recomputed for n in range(len(old))]
        columns = [column for column, recomputes in zip(old, is_recomputed, strict=True) if not recomputes]
        b = Builder()
        operands = list(b.inputs([column[0].aval for column in columns]))
        stored = iter(tuple(operands))
        old_operands: list[Atom] = []
        for n, recomputes in enumerate(is_recomputed):
            if not recomputes:
                old_operands.append(next(stored))
                continue
            k = self.def_use.uses_of((body, n))[0]
            recomputation = self.recomputations[self.def_use.producer(k, n)].program  # that of every use
            leaves: list[Atom] = []
            for values in zip(*[self._leaves(k, n, len(recomputation.ins)) for k in uses], strict=True):
                index = self._column_with(columns, uses, values)
                if index == len(operands):
                    operands.append(b.input(columns[index][0].aval))
                leaves.append(operands[index])
            old_operands += b.inline(recomputation, leaves)
        return _NewOperands(tuple(columns), cse(b.build(old_operands)))

    def _leaves(self, k: int, n: int, count: int) -> Sequence[Atom | _Idle]:
        """Return the `count` values from which operand `n` of piece `k` is recomputed. Where the operand is idle, they
        may be any."""
        a = self.def_use.pieces[k].ins[n]
        if a not in self.def_use.producer_of:
            return [_Idle.ANY_VALUE] * count
        i, _ = self.def_use.producer_of[a]
        return [self._value_of(i, v) for v in self.recomputations[self.def_use.producer(k, n)].leaves]

    def _column_with(self, columns: list[_Column], uses: Sequence[int], values: Sequence[Atom | _Idle]) -> int:
        """Return the index of the column with `values` at the uses; if there is none, it is added, with a live value
        where it may be any."""
        for k, column in enumerate(columns):
            if all(isinstance(a, _Idle) or a is b for a, b in zip(values, column, strict=True)):  # mostly the first
                return k
        aval = next(a.aval for a in values if not isinstance(a, _Idle))
        row: list[Atom] = []
        for k, a in zip(uses, values, strict=True):
            value = self.def_use.any_live_value(k, aval) if isinstance(a, _Idle) else a
            assert value is not None, "`_has_one_recomputation` asks for one"
            row.append(value)
        columns.append(tuple(row))
        return len(columns) - 1

    def _value_of(self, k: int, v: Var) -> Atom:
        """Return the value of a variable in the body of piece `k`. If it is no operand or result yet, it becomes a
        result."""
        value = self.def_use.value_of(k, v) or self.added_values.get((k, v))
        if value is None:
            value = self.added_values[k, v] = Var(self.next_index, v.aval)
            self.next_index += 1
            self.added[self.def_use.pieces[k].body].add(v)
        return value

    def _results(self, body: Jaxpr, values_read: set[Atom]) -> _Results:
        """Return the results of a body. An old one that has a recomputation is kept only if it is among the values
        `values_read`."""
        outs_at_uses = zip(*[self.def_use.pieces[k].outs for k in self.def_use.uses[body]], strict=True)
        kept_results = [
            n
            for n, outs in enumerate(outs_at_uses)
            if (body, n) not in self.recomputations or not values_read.isdisjoint(outs)
        ]
        return _Results(tuple(kept_results), tuple(sorted(self.added[body], key=lambda v: v.index)))
