"""What XLA makes one kernel of: what is done element by element is compiled into each of its readers.

A program is looked at as XLA gets it, calls inlined. Every value is an expression over values that are in memory. In
memory is what a product, a sort or a loop makes or reads; what a reduction makes, and what it reads if that is much or
is read by others too; a result of the program; what is dear to compute and read more than once; and an expression of
more than `LARGEST` equations. All else is computed where it is read, also where it is in memory for another reader:
each layer has all the sum of a residual stream. But what joins two values, all read where one asks for it as it is.
Equal expressions over values of equal types are one number, so equal kernels are found though they share no value.

Source: XLA's `InstructionFusion` (`ComputeGloballyUnfusible`, `EffectivelyAtMostUnary`), and what it was seen to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr, Primitive, Var
from fxad.primitives.dot import DotGeneral
from fxad.primitives.shape import BroadcastInDim, Iota, Transpose

LARGEST: Final = 512
BESIDE: Final = 4  # equations that a reduction does to its operand

# Values are numbered as they come, and so are expressions.
_Value: TypeAlias = int
_Number: TypeAlias = int

# An equation: what it does, what it reads and makes.
_Op: TypeAlias = tuple[Primitive, tuple[_Value, ...], range]


class Kind(Enum):
    """How XLA compiles what a primitive does."""

    VIEW = "nothing is compiled"
    CHEAP = "into each reader"
    DEAR = "into its reader, if there is one only"
    REDUCTION = "apart"
    KERNEL = "apart, and so is what it reads"


# The kind of a primitive, and the milliseconds that it adds to a kernel.
Cost: TypeAlias = tuple[Kind, float]


@final
@dataclass(frozen=True, slots=True)
class Kernel:
    """What is compiled as one: the kind of what it ends in, and what all that is in it adds."""

    kind: Kind
    milliseconds: float


@final
@dataclass(frozen=True, slots=True)
class _Body:
    """A body that is being followed: the equations that are left, and what its variables are."""

    rest: Iterator[Eqn]
    values: dict[Atom, _Value]
    results: tuple[Atom, ...]
    outs: tuple[Var, ...] = ()
    caller: dict[Atom, _Value] | None = None  # whose `outs` the results are; None: they are in memory


@final
class Inlined:
    """A program with bodies in place of the calls of them, and those of loops and branches beside it: its first
    `at_most` equations, a call counted as one.

    Cost: linear in `at_most`, however deep calls are nested.
    """

    __slots__ = ("_bodies", "avals", "literals", "ops", "seen", "stored")

    def __init__(self, jaxpr: Jaxpr, at_most: int) -> None:
        self.avals: list[Aval] = []
        self.literals: dict[Atom, _Value] = {}
        self.ops: list[_Op] = []
        self.stored: set[_Value] = set()
        self.seen = 0
        # by type: an isinstance with abstract bases takes a microsecond, and there are thousands of equations
        self._bodies: dict[type[Primitive], bool] = {}
        stack = [self._body(jaxpr)]
        while stack and self.seen < at_most:
            top = stack[-1]
            for eqn in top.rest:
                self.seen += 1
                if more := self._take(eqn, top.values):
                    stack += more
                    break
                if self.seen >= at_most:
                    return
            else:
                self._end(stack.pop())

    def _body(self, jaxpr: Jaxpr) -> _Body:
        return _Body(iter(jaxpr.eqns), {v: self._value(v.aval) for v in jaxpr.ins}, jaxpr.outs)

    def _end(self, body: _Body) -> None:
        results = self._read(body.results, body.values)
        if body.caller is None:
            self.stored.update(results)
        else:
            body.caller.update(zip(body.outs, results, strict=True))

    def _take(self, eqn: Eqn, values: dict[Atom, _Value]) -> list[_Body]:
        """Take an equation up; the bodies that are to be followed for it."""
        prim = eqn.prim
        ins = self._read(eqn.ins, values)
        carries = self._bodies.get(type(prim))
        if carries is None:
            carries = self._bodies[type(prim)] = issubclass(type(prim), HigherOrder)
        layout = prim.layout if carries and isinstance(prim, HigherOrder) else None
        if layout is not None and layout.once is not None:
            inner = layout.bodies[layout.once].jaxpr
            return [_Body(iter(inner.eqns), dict(zip(inner.ins, ins, strict=True)), inner.outs, eqn.outs, values)]
        first = len(self.avals)
        for v in eqn.outs:
            values[v] = len(self.avals)
            self.avals.append(v.aval)
        self.ops.append((prim, ins, range(first, len(self.avals))))
        return [self._body(body) for body in prim.bodies] if carries and isinstance(prim, HigherOrder) else []

    def _value(self, aval: Aval) -> _Value:
        self.avals.append(aval)
        return len(self.avals) - 1

    def _read(self, atoms: tuple[Atom, ...], values: dict[Atom, _Value]) -> tuple[_Value, ...]:
        return tuple([values[a] if a in values else self._literal(a) for a in atoms])

    def _literal(self, a: Atom) -> _Value:
        known = self.literals.get(a)
        if known is None:
            known = self.literals[a] = self._value(a.aval)
        return known


@final
class Kernels:
    """The distinct kernels of a program: `found`, by the numbers of their expressions.

    Cost: linear in the operands of its equations.
    """

    __slots__ = (
        "_asked",
        "_dear",
        "_milliseconds",
        "_number",
        "_numbers",
        "_program",
        "_readers",
        "_reduced",
        "_size",
        "_spread",
        "_turned",
        "found",
    )

    def __init__(self, program: Inlined, cost: Callable[[type[Primitive]], Cost]) -> None:
        self.found: dict[_Number, Kernel] = {}
        self._program = program
        count = len(program.avals)
        self._readers = [0] * count
        self._reduced: set[_Value] = set()
        self._turned: set[_Value] = set()  # products, transposed
        self._spread: set[_Value] = set(program.literals.values())
        self._asked: set[_Value] = set(program.stored)  # in memory as they are, not as a product would have them
        costs = {kind: cost(kind) for kind in {type(prim) for prim, _, _ in program.ops}}
        self._read(costs)
        # of what is computed where it is read: equations, milliseconds, whether one is dear; of what is in memory: none
        self._size = [0] * count
        self._milliseconds = [0.0] * count
        self._dear = [False] * count
        self._numbers: dict[object, _Number] = {}
        self._number = [self._numbered(aval) for aval in program.avals]
        for lit, value in program.literals.items():
            self._number[value] = self._numbered(lit)
        for op in program.ops:
            self._take(op, *costs[type(op[0])])

    def _read(self, costs: Mapping[type[Primitive], Cost]) -> None:
        """How often each value is read, and which are in memory for that."""
        turned: dict[_Value, _Value] = {}
        products: set[_Value] = set()
        readers, stored, avals = self._readers, self._program.stored, self._program.avals
        for prim, ins, outs in self._program.ops:
            kind = costs[type(prim)][0]
            for a in set(ins) if len(ins) > 1 else ins:
                readers[a] += 1
            if kind is Kind.REDUCTION:
                self._reduced.update(ins)
            elif kind is Kind.KERNEL:
                product = type(prim) is DotGeneral
                products.update(outs if product else ())
                ins = tuple([turned.get(a, a) for a in ins]) if product else ins
                stored.update(ins)
                self._asked.update([a for a in ins if not product or len(avals[a].shape) <= 2])
            elif type(prim) is Transpose and len(prim.perm) == 2:  # a product reads and makes a matrix either way
                turned[outs[0]] = ins[0]
                if ins[0] in products:
                    self._turned.add(outs[0])

    def _numbered(self, what: object) -> _Number:
        return self._numbers.setdefault(what, len(self._numbers))

    def _take(self, op: _Op, kind: Kind, milliseconds: float) -> None:
        prim, ins, outs = op
        if kind is Kind.KERNEL or kind is Kind.REDUCTION:
            self._apart(op, kind, milliseconds)
            return
        number = self._numbered((prim, *[self._number[a] for a in ins]))
        size = 0 if kind is Kind.VIEW or outs[0] in self._turned else 1
        dear = kind is Kind.DEAR
        for a in set(ins) if len(ins) > 1 else ins:
            size += self._size[a]
            milliseconds += self._milliseconds[a]
            dear = dear or self._dear[a]
        if type(prim) is BroadcastInDim or type(prim) is Iota:
            self._spread.update(outs)
        for k, out in enumerate(outs):
            number = number if not k else self._numbered((number, k))
            self._size[out] = size
            apart = size > LARGEST or (dear and self._readers[out] > 1)
            if size and (apart or self._in_memory(out)):
                self.found[number] = Kernel(kind, milliseconds)
                apart = apart or (out in self._asked and self._joins(ins, out))
            if apart:
                self._size[out] = 0
            else:
                self._number[out], self._milliseconds[out], self._dear[out] = number, milliseconds, dear

    def _joins(self, ins: tuple[_Value, ...], out: _Value) -> bool:
        """Whether an equation reads more than one value as large as its result. What reads one only, XLA computes for
        each reader again, also where it is in memory for another."""
        rank = len(self._program.avals[out].shape)
        return len([a for a in ins if a not in self._spread and len(self._program.avals[a].shape) >= rank]) > 1

    def _apart(self, op: _Op, kind: Kind, milliseconds: float) -> None:
        """What reads values in memory; a reduction may compute a little first."""
        prim, ins, _ = op
        inside = {a for a in ins if kind is Kind.REDUCTION and not self._in_memory(a)}
        avals = self._program.avals
        numbers = [self._number[a] if a in inside else self._numbered(avals[a]) for a in ins]
        milliseconds += sum([self._milliseconds[a] for a in inside])
        self.found[self._numbered((prim, *numbers))] = Kernel(kind, milliseconds)

    def _in_memory(self, a: _Value) -> bool:
        """Whether a value is made for those that cannot compute it where they read it."""
        if a in self._program.stored or not self._readers[a]:  # results, also of a program that is not seen to its end
            return True
        return a in self._reduced and (self._readers[a] > 1 or self._size[a] > BESIDE)
