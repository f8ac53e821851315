"""Rewrites pieces to return the values that `fxad.units.min_cut_recompute` chose. Readers recompute the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, final

from fxad.core.builder import Builder
from fxad.core.dce import dce
from fxad.ir import Atom, Jaxpr, Var
from fxad.transforms.cleanup.cse import cse
from fxad.units.min_cut_recompute import DefUse, Formula, Port
from fxad.units.pieces import Pieces

# The values of one operand at all uses of its body.
_Column: TypeAlias = tuple[Atom, ...]


def recompute(pieces: Pieces, donate: Sequence[int] = ()) -> Pieces:
    """Pieces that store fewer bytes between each other. Operands in `donate` may be freed.

    Law:  running them in order gives the same results; one new piece for each old one; equal new pieces for equal old
          ones; a piece computes no more equations of its own than before.
    Cost: linear in the pieces and their operands, and a minimum cut for each distinct body.
    """
    def_use = DefUse(pieces, donate)
    recomputed, formulas = def_use.formulas()
    return _Rewriter(def_use, recomputed, formulas).pieces(pieces) if recomputed else pieces


@final
class _Reader:
    """A body with new operands. `columns` are their values at each use. `sources` has, for each old operand, the index
    of a new one, or a program and the new operands to compute it from."""

    __slots__ = ("columns", "sources")

    def __init__(self, columns: list[_Column]) -> None:
        self.columns = columns
        self.sources: list[int | tuple[Jaxpr, tuple[int, ...]]] = []

    def body(self, old: Jaxpr) -> Jaxpr:
        """`old` over the new operands. The recomputation comes first, with each distinct equation once."""
        first = Builder()
        args: list[Atom] = list(first.inputs([column[0].aval for column in self.columns]))
        for t in self.sources:
            args.append(args[t] if isinstance(t, int) else first.inline(t[0], [args[k] for k in t[1]])[0])
        prelude = cse(first.build(args[len(self.columns) :]))
        b = Builder.resume(prelude)
        return b.build(b.inline(old, prelude.outs), old.name)


@final
class _Rewriter:
    """Rewrites the pieces: bodies with new operands for the readers, and new results for the pieces they read."""

    __slots__ = ("added", "def_use", "formulas", "fresh", "recomputed")

    def __init__(self, def_use: DefUse, recomputed: set[Port], formulas: Mapping[Port, Formula]) -> None:
        self.def_use = def_use
        self.recomputed = recomputed
        self.formulas = formulas
        self.added: dict[tuple[int, Var], Var] = {}  # new results of pieces
        self.fresh = 1 + max([a.index for a in def_use.source if isinstance(a, Var)], default=0)

    def pieces(self, old: Pieces) -> Pieces:
        """All pieces, rewritten."""
        uses = self.def_use.uses
        readers = {body: self._reader(body) for body in dict.fromkeys([body for body, _ in self.recomputed])}
        ins = [p.ins for p in old.pieces]
        for body, reader in readers.items():
            for n, k in enumerate(uses[body]):
                ins[k] = tuple([column[n] for column in reader.columns])
        read = {*old.outs, *[a for row in ins for a in row]}
        added: dict[Jaxpr, list[Var]] = {body: [] for body in uses}
        for i, v in sorted(self.added, key=lambda result: result[1].index):
            if v not in (results := added[self.def_use.pieces[i].body]):
                results.append(v)
        kept = {
            body: [
                n
                for n in range(len(body.outs))
                if (body, n) not in self.formulas or not read.isdisjoint([old.pieces[k].outs[n] for k in at])
            ]
            for body, at in uses.items()
        }
        bodies: dict[Jaxpr, Jaxpr] = {}
        for body in uses:
            outs = (*[body.outs[n] for n in kept[body]], *added[body])
            new = body if outs == body.outs else Jaxpr(body.ins, body.eqns, outs, body.name)
            new = readers[body].body(new) if body in readers else new
            bodies[body] = new if new is body else dce(new)
        pieces = []
        for k, (p, q) in enumerate(zip(old.pieces, self.def_use.pieces, strict=True)):
            outs = (*[p.outs[n] for n in kept[q.body]], *[self._outside(k, v) for v in added[q.body]])
            same = bodies[q.body] is q.body
            pieces.append(p if same else replace(p, body=bodies[q.body], ins=ins[k], outs=outs))
        return replace(old, pieces=tuple(pieces))

    def _reader(self, body: Jaxpr) -> _Reader:
        at = self.def_use.uses[body]
        old: list[_Column] = list(zip(*[self.def_use.pieces[k].ins for k in at], strict=True))
        computed_again = [(body, n) in self.recomputed for n in range(len(old))]
        new = _Reader([column for column, computed in zip(old, computed_again, strict=True) if not computed])
        kept = iter(range(len(new.columns)))
        for n, computed in enumerate(computed_again):
            if computed:
                program = self.formulas[self.def_use.maker(*self.def_use.at((body, n))[0])].program
                leaves = zip(*[self._leaves(k, n) or [None] * len(program.ins) for k in at], strict=True)
                new.sources.append((program, tuple([self._column(new, at, leaf) for leaf in leaves])))
            else:
                new.sources.append(next(kept))
        return new

    def _leaves(self, k: int, n: int) -> list[Atom | None]:
        """The values from which operand `n` of piece `k` is recomputed; empty if the operand is idle there."""
        a = self.def_use.pieces[k].ins[n]
        if a not in self.def_use.source:
            return []
        i, _ = self.def_use.source[a]
        return [self._outside(i, v) for v in self.formulas[self.def_use.maker(k, n)].leaves]

    def _column(self, new: _Reader, at: Sequence[int], leaf: Sequence[Atom | None]) -> int:
        """The index of an operand with the values `leaf` at each use, existing or new. None stands for any value."""
        for k, column in enumerate(new.columns):
            if all(a is None or a is b for a, b in zip(leaf, column, strict=True)):  # the first usually decides
                return k
        aval = next(a.aval for a in leaf if a is not None)
        row = [self.def_use.any_live_value(k, aval) if a is None else a for k, a in zip(at, leaf, strict=True)]
        new.columns.append(tuple([a for a in row if a is not None]))
        return len(new.columns) - 1

    def _outside(self, i: int, v: Var) -> Atom:
        value = self.def_use.outside(i, v) or self.added.get((i, v))
        if value is None:
            value = self.added[i, v] = Var(self.fresh, v.aval)
            self.fresh += 1
        return value
