"""What crosses from a unit to a later one: a cheap value is computed again there, where that lets fewer bytes wait.

XLA, given a whole program, fuses a cheap operation into each of its readers and stores what it reads instead. Between
units everything that is read again is stored. So the values that wait for a later unit are chosen here:

- A value that waits is what an operand of a piece reads from a piece that is not just before it.
- Of a piece that made such values, those are handed over that determine them by equations that are `CHEAP`, and weigh
  least: their bytes, times the pieces for which they wait longer than they would anyway. So an operand of the program
  weighs nothing, nor what the piece reads too, and next to nothing what the next layer reads (`y` beside `1 - y * y`).
- The piece that reads is given an operand for each, and the equations: at most `LONGEST` for a value, for at most
  `READERS` pieces. Equal pieces stay equal: it is done where it is the same at every use, and not at all elsewhere.

It is done on pieces, so a program that is compiled whole is left to XLA. What a user marked to be kept is kept.

Source: the recomputation of the min-cut partitioner of PyTorch (AOTAutograd, `torch/_functorch/partitioners.py`; He and
        Zdevito, "Min-cut optimal(*) recomputation", 2022); what is cheap: XLA's `InstructionFusion::IsExpensive`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Aval, Eqn, Jaxpr, Lit, Var, distinct
from fxad.primitives.elementwise.arithmetic import Add, Div, Max, Min, Mul, Neg, Sub
from fxad.primitives.elementwise.convert import ConvertElementType, StopGradient
from fxad.primitives.elementwise.logic import And, Eq, Ge, Gt, IsFinite, Le, Lt, Ne, Not, Or, Xor
from fxad.primitives.elementwise.parts import Complex, Conj, Imag, Real
from fxad.primitives.elementwise.powers import Abs, IntegerPow, Rsqrt, Sign, Sqrt, Square
from fxad.primitives.elementwise.select import Ceil, Clamp, Floor, Round, SelectN
from fxad.primitives.naming import Name
from fxad.primitives.picking import Index
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Iota, Reshape, Rev, Squeeze, Transpose
from fxad.primitives.slicing import Slice
from fxad.transforms.outlining.approximate_match import harmful
from fxad.units.pieces import Piece, Pieces, inline_calls
from fxad.units.separator import separator

CHEAP: Final[frozenset[type]] = frozenset(
    {Add, Sub, Mul, Div, Neg, Max, Min, Abs, Sign, Square, IntegerPow, Sqrt, Rsqrt, Floor, Ceil, Round, Clamp, SelectN}
    | {Eq, Ne, Lt, Le, Gt, Ge, And, Or, Xor, Not, IsFinite, ConvertElementType, StopGradient}
    | {Real, Imag, Conj, Complex, BroadcastInDim, ExpandDims, Reshape, Rev, Squeeze, Transpose, Iota, Slice, Index}
)
LONGEST: Final = 24
READERS: Final = 2

_ALWAYS: Final = 1 << 60

# A body and the number of an operand, or of a result: of all the pieces that have the body.
Port: TypeAlias = tuple[Jaxpr, int]


@final
@dataclass(frozen=True, slots=True)
class Formula:
    """How a result of a body follows from other values of it: `program` applied to `leaves`, variables of the body."""

    program: Jaxpr
    leaves: tuple[Var, ...]


@final
@dataclass(frozen=True, slots=True)
class _Row:
    """Where a variable of a body stands: among its operands or its results, and at which place."""

    operand: bool
    place: int

    def of(self, p: Piece) -> Atom:
        """What stands there for a piece with that body."""
        return (p.ins if self.operand else p.outs)[self.place]


@final
@dataclass(frozen=True, slots=True)
class _Read:
    """The last piece that reads a value as an operand that is to be computed `again`, and as another."""

    again: Mapping[Atom, int]
    otherwise: Mapping[Atom, int]


@final
class Crossing:
    """Who makes and reads what, and how long it lives; of pieces whose bodies are `plain`."""

    __slots__ = ("_always", "_idle", "_lasting", "_standing", "pieces", "readers", "source", "uses")

    def __init__(self, pieces: Pieces, donate: Sequence[int]) -> None:
        self.pieces = tuple([replace(p, body=plain(p.body)) for p in pieces.pieces])
        self.source: dict[Atom, tuple[int, int]] = {}  # the piece that makes a value, and the number of its result
        self.readers: dict[Atom, list[tuple[int, int]]] = {}
        self.uses: dict[Jaxpr, list[int]] = {}
        self._standing: dict[Jaxpr, dict[Atom, _Row]] = {}
        self._lasting: tuple[Atom, ...] = tuple([v for k, v in enumerate(pieces.ins) if k not in donate])
        self._always: set[Atom] = {*self._lasting, *pieces.constants, *pieces.outs}
        for k, p in enumerate(self.pieces):
            self.uses.setdefault(p.body, []).append(k)
            self.source.update({a: (k, n) for n, a in enumerate(p.outs) if isinstance(a, Var)})
            for n, a in enumerate(p.ins):
                self.readers.setdefault(a, []).append((k, n))
        self._idle = {
            (k, n)
            for k, p in enumerate(self.pieces)
            for n, a in enumerate(p.ins)
            if isinstance(a, Lit) and not self._matters(p, n)
        }

    def formulas(self) -> tuple[set[Port], dict[Port, Formula]]:
        """The operands to be computed again, and the formula of each result that one of them is at some use."""
        again = {port for body in self.uses for n in range(len(body.ins)) if self._waits(port := (body, n))}
        while again:
            found: dict[Port, Formula] = {}
            read = self._read(again)
            for maker in dict.fromkeys([self.maker(k, n)[0] for port in again for k, n in self.at(port)]):
                found.update(self._of_results(maker, read))
            same = {port for port in again if self._same(port, found)}
            if same == again:
                return again, found
            again = same
        return set(), {}

    def maker(self, k: int, n: int) -> Port:
        """The body of the piece that makes operand `n` of piece `k`, and the number of the result."""
        i, result = self.source[self.pieces[k].ins[n]]
        return self.pieces[i].body, result

    def at(self, port: Port) -> list[tuple[int, int]]:
        """The pieces with that operand, where it matters, and its number."""
        body, n = port
        return [(k, n) for k in self.uses[body] if (k, n) not in self._idle]

    def _same(self, port: Port, found: Mapping[Port, Formula]) -> bool:
        """Whether an operand has one formula at all uses, and something to compute it from where it is idle."""
        formulas = [found.get(self.maker(k, n)) for k, n in self.at(port)]
        programs = {f.program if f else None for f in formulas}
        program = programs.pop()
        if programs or program is None:
            return False
        body, n = port
        idle = [k for k in self.uses[body] if (k, n) in self._idle]
        return all([self.anything(k, v.aval) for v in program.ins for k in idle])

    def anything(self, k: int, aval: Aval) -> Atom | None:
        """A value of that type which is there when piece `k` runs."""
        return next((a for a in (*self.pieces[k].ins, *self._lasting) if a.aval == aval), None)

    def _matters(self, p: Piece, n: int) -> bool:
        """Whether anything that is read depends on operand `n` of a piece: of a repetition with nobody to hand one of
        its results on to, an operand may be any value, but of what fails or does not end on some."""
        depends: set[Atom] = {p.body.ins[n]}
        for eqn in p.body.eqns:
            if not depends.isdisjoint(eqn.ins):
                if eqn.prim.effects or harmful(eqn.prim):
                    return True
                depends.update(eqn.outs)
        outs = [b for a, b in zip(p.body.outs, p.outs, strict=True) if a in depends]
        return any([b in self._always or b in self.readers for b in outs])

    def _waits(self, port: Port) -> bool:
        """Whether an operand is made by pieces that are not all just before, for few others."""
        far = False
        for k, n in self.at(port):
            a = self.pieces[k].ins[n]
            if a not in self.source or a in self._always:
                return False
            made = self.source[a][0]
            far = far or k - made > 1
            if len({j for j, _ in self.readers[a] if j - made > 1}) > READERS:
                return False
        return far

    def _of_results(self, body: Jaxpr, read: _Read) -> dict[Port, Formula]:
        """The results of a body that follow from what is best handed over."""
        made: dict[Atom, Eqn] = {e.outs[0]: e for e in body.eqns if type(e.prim) in CHEAP}
        until: dict[Var, Sequence[int]] = {}  # for each use, the last piece that is to compute something from a value
        for n, v in enumerate(body.outs):
            last = [read.again.get(self.pieces[k].outs[n], -1) for k in self.uses[body]]
            if isinstance(v, Var) and max(last) >= 0:
                until[v] = _later(last, until.get(v))
        needed = tuple(until)
        for eqn in reversed(body.eqns):
            if eqn.outs and eqn.outs[0] in until and eqn.outs[0] in made:
                given = until[eqn.outs[0]]
                for a in eqn.ins:
                    if isinstance(a, Var):
                        until[a] = _later(given, until.get(a))
        values = tuple(until)
        number: dict[Atom, int] = {v: k for k, v in enumerate(values)}
        weights = [v.aval.nbytes * self._longer(body, v, until[v], read) for v in values]
        edges = [(number[a], number[v]) for v in values if v in made for a in made[v].ins if isinstance(a, Var)]
        chosen = separator(weights, edges, [number[v] for v in values if v not in made], [number[v] for v in needed])
        leaves = {values[k] for k in chosen}
        formulas = {v: f for v in needed if v not in leaves and (f := _formula(v, made, leaves))}
        return {(body, n): formulas[v] for n, v in enumerate(body.outs) if v in formulas}

    def _longer(self, body: Jaxpr, v: Var, until: Sequence[int], read: _Read) -> int:
        """For how many pieces more than anyway a value of a body lives when it is there until then, at all uses."""
        row = self._rows(body).get(v)
        if row is None:  # lives while its piece runs
            return sum([last - k for k, last in zip(self.uses[body], until, strict=True) if last > k])
        longer = 0
        for k, last in zip(self.uses[body], until, strict=True):
            a = row.of(self.pieces[k])
            if a not in self._always and last > (anyway := read.otherwise.get(a, -1)):
                longer += max(0, last - max(anyway, self.source.get(a, (0, 0))[0]))
        return longer

    def _read(self, again: set[Port]) -> _Read:
        """The last readers, where the operands in `again` are to be computed again."""
        computed = {body: [(body, n) in again for n in range(len(body.ins))] for body in self.uses}
        repeated: dict[Atom, int] = {}
        otherwise: dict[Atom, int] = {}
        for k, p in enumerate(self.pieces):
            for a, c in zip(p.ins, computed[p.body], strict=True):
                (repeated if c else otherwise)[a] = k
        return _Read(repeated, otherwise)

    def outside(self, k: int, v: Var) -> Atom | None:
        """What a variable of the body of piece `k` is among operands and results; None where it is none of them."""
        p = self.pieces[k]
        row = self._rows(p.body).get(v)
        return None if row is None else row.of(p)

    def _rows(self, body: Jaxpr) -> Mapping[Atom, _Row]:
        """Where the operands and the results of a body stand; what is both is an operand."""
        known = self._standing.get(body)
        if known is None:
            known = self._standing[body] = {a: _Row(False, n) for n, a in reversed([*enumerate(body.outs)])}
            known.update({a: _Row(True, n) for n, a in reversed([*enumerate(body.ins)])})
        return known


def _later(a: Sequence[int], b: Sequence[int] | None) -> Sequence[int]:
    """For each use, the later of two pieces."""
    return a if b is None else list(map(max, a, b))


@by_value
def plain(jaxpr: Jaxpr) -> Jaxpr:
    """The program with bodies in place of calls, recomputations excepted, and without names, which nobody asks for any
    more."""
    inlined = inline_calls(jaxpr, frozenset(distinct(jaxpr)), recomputations=False)[0]
    b = Builder.like(inlined)
    env: dict[Atom, Atom] = {}
    for eqn in inlined.eqns:
        ins = tuple([env.get(a, a) for a in eqn.ins])
        env.update(zip(eqn.outs, ins if isinstance(eqn.prim, Name) else b.copy(eqn, ins), strict=True))
    return b.build([env.get(a, a) for a in inlined.outs], jaxpr.name)


def _formula(v: Var, made: Mapping[Atom, Eqn], leaves: set[Var]) -> Formula | None:
    """`v` from `leaves`; None where that takes too many equations."""
    needed: dict[Var, Eqn] = {}
    stack = [v]
    while stack:
        u = stack.pop()
        if u in leaves or u in needed:
            continue
        needed[u] = made[u]
        stack += [a for a in made[u].ins if isinstance(a, Var)]
        if len(needed) > LONGEST:
            return None
    eqns = [needed[u] for u in sorted(needed, key=lambda u: u.index)]
    read = tuple(dict.fromkeys([a for e in eqns for a in e.ins if isinstance(a, Var) and a in leaves]))
    b = Builder()
    env: dict[Atom, Atom] = dict(zip(read, b.inputs([a.aval for a in read]), strict=True))
    for eqn in eqns:
        env.update(zip(eqn.outs, b.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
    return Formula(b.build([env[v]], "again"), read)
