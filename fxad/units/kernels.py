"""Estimates XLA's compile time of a program from its kernels, by a model of its fusion; and chooses XLA's effort.

XLA's CPU compiler compiles equal kernels once: 30 equal layers of a product and a tanh take 0.08 s, 30 layers of
different widths 1.15 s. Products and plain reductions call a library. Any other kernel takes `KERNEL_MS`, plus a time
for each operation in it. Special functions take most, because they are polynomials and series. XLA's passes over the
whole module take `EQUATION_MS` for each equation, equal or not, including calls. See the table in docs/adr/0024.

An elementwise operation is compiled into the kernel of each of its readers. The model reads a program as XLA gets it,
with calls inlined. Every value is an expression over values in memory. These
values are in memory:

- results and operands of products, sorts and loops;
- results of reductions, and an operand of a reduction if it is large or has other readers;
- results of the program;
- a value that is expensive to compute and read more than once;
- an expression of more than `MAX_FUSED` equations.

Every other value is computed again by each reader, even if it is in memory for another reader: each layer computes the
whole sum of a residual stream. An exception is an equation that joins two large values: if one reader needs its result
in memory, all readers read it there. Equal expressions over values of equal types have one number, so equal kernels are
found even if they share no values.

Source: XLA's `InstructionFusion` (`ComputeGloballyUnfusible`, `EffectivelyAtMostUnary`), and its observed behaviour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias, final

from fxad.core.constants import EQUATION_MS, KERNEL_MS, LIBRARY_MS, PROGRAM_MS, REPEATED_KERNELS
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.dtypes import FLOAT8
from fxad.ir import Atom, Atoms, Aval, Eqn, HigherOrder, Jaxpr, Primitive, Var
from fxad.primitives.control.shard_map import runs_on_devices
from fxad.primitives.dot import DotGeneral
from fxad.primitives.shape import BroadcastInDim, Iota, Transpose
from fxad.transforms.costs import Cost, Kind, compile_cost

XlaEffort: TypeAlias = Literal["less", "level 1", "full"]
MAX_READ: Final = 4096  # equations that the estimate reads
FIRST_READ: Final = 1024  # equations that `takes_at_least` reads first
MAX_FUSED: Final = 512
REDUCED_WITH: Final = 4  # equations that are fused into a reduction of their result

# Functions that are less exact with less effort: `tan` and `cbrt` in float32 (1.6 and 2.6 units in the last place, else
# 0.8). A product along several axes takes constant factors out: prod(c * x) overflows where prod(x) does. The table has
# names of classes: few programs use these primitives, and a name does not import their files. Numbers of 8 bits are
# wrong with less effort: 496 is -0.0 in float8_e4m3fn, and -1e-6 is nan in the dtypes without a negative zero.
LESS_EXACT: Final = frozenset({"Tan", "Cbrt", "ReduceProd", "ReduceWindowProd", "CumProd", "Reduce", "ReduceWindow"})

# With less effort, kernels round `a * b + c` in different ways. An element that one kernel computes again need not be
# equal to the maximum that another one has found. A gradient, which compares them, then loses the element.
_EXTREMA: Final = frozenset({"ReduceMax", "ReduceMin", "CumMax", "CumMin", "ScatterMax", "ScatterMin", "Pmax", "Pmin"})
_REARRANGED: Final = frozenset({"BroadcastInDim", "Reshape", "Squeeze", "ExpandDims", "Transpose", "Gather"})

# Values and expressions are numbered in the order of their definition.
_Value: TypeAlias = int
_Number: TypeAlias = int

# An equation: its primitive, its operands and its results.
_Op: TypeAlias = tuple[Primitive, tuple[_Value, ...], range]


# ---------------------------------------------------------------------------------------------------------- estimates


def milliseconds(jaxpr: Jaxpr) -> float:
    """The estimated compile time of a program.

    Law:  equal kernels count once; adding different ones never lowers the estimate.
    Cost: linear in its first `MAX_READ` equations, with calls inlined: 5 us each. The other equations are ignored.
    """
    return _estimate(jaxpr, MAX_READ).milliseconds


def takes_at_least(jaxpr: Jaxpr, least: float) -> bool:
    """Returns True if the estimate is at least `least` milliseconds. The first layers of a deep network often suffice
    to decide."""
    first = _estimate(jaxpr, FIRST_READ)
    return first.milliseconds >= least or (not first.complete and milliseconds(jaxpr) >= least)


@final
@dataclass(frozen=True, slots=True)
class _Estimate:
    """Milliseconds to compile the program; those of its distinct kernels; those of all kernels, if each were compiled.
    Plain reductions, which call a library, are in the first figure only. `complete`: the program has no equations that
    were not read. `less_exact`: it has functions of `LESS_EXACT`, computes numbers of 8 bits, or compares elements with
    their maximum. `open_ended`: it has a loop whose number of iterations a predicate determines."""

    milliseconds: float
    kernels: float
    all_kernels: float
    complete: bool
    less_exact: bool
    open_ended: bool


@by_value
def _estimate(jaxpr: Jaxpr, at_most: int) -> _Estimate:
    """The estimate for the first `at_most` equations."""
    program = Inlined(jaxpr, at_most)
    kernels = Kernels(program)
    own = [
        (KERNEL_MS + k.milliseconds, kernels.uses[n])
        for n, k in kernels.distinct.items()
        if k.kind is not Kind.REDUCTION
    ]
    library = sum([LIBRARY_MS + k.milliseconds for k in kernels.distinct.values() if k.kind is Kind.REDUCTION])
    distinct = sum([ms for ms, _ in own])
    whole = PROGRAM_MS + EQUATION_MS * program.seen + library + distinct
    computed = {program.avals[v].dtype for _, _, outs in program.ops for v in outs}
    exact = LESS_EXACT.isdisjoint([type(prim).__name__ for prim, _, _ in program.ops]) and FLOAT8.isdisjoint(computed)
    less_exact = not exact or _compares_extrema(program)
    open_ended = any([isinstance(prim, HigherOrder) and prim.layout.has_predicate for prim, _, _ in program.ops])
    all_kernels = sum([ms * uses for ms, uses in own])
    return _Estimate(whole, distinct, all_kernels, program.seen < at_most, less_exact, open_ended)


def _compares_extrema(program: Inlined) -> bool:
    """Returns True if a program compares values with a maximum or a minimum, as gradients of those do."""
    extrema: set[_Value] = set()
    for prim, ins, outs in program.ops:
        kind = type(prim).__name__
        if kind in _EXTREMA or (kind in _REARRANGED and ins[0] in extrema):
            extrema.update(outs)
        elif kind == "Eq" and not extrema.isdisjoint(ins):
            return True
    return False


# ------------------------------------------------------------------------------------------------ the compiler's effort


def wants_full_effort(jaxpr: Jaxpr) -> bool:
    """Returns True if the program has many equal kernels, or so many equations that this is not known, or functions
    that XLA computes less exactly with less effort, or a loop that may run for long: each iteration of a loop with few
    elements takes up to a seventh longer with less effort."""
    estimate = _estimate(jaxpr, MAX_READ)
    repeats = estimate.all_kernels > REPEATED_KERNELS * estimate.kernels
    return repeats or not estimate.complete or estimate.less_exact or estimate.open_ended


def effort(jaxpr: Jaxpr) -> XlaEffort:
    """XLA's effort to compile a program for a CPU, if the options leave it to fxad: "less" if few kernels are equal,
    "level 1" if many are and the program runs on several devices."""
    if not wants_full_effort(jaxpr):
        return "less"
    estimate = _estimate(jaxpr, MAX_READ)
    exact = estimate.complete and not estimate.less_exact
    return "level 1" if exact and runs_on_devices(jaxpr) else "full"


# ------------------------------------------------------------------------------------------------------- the model


@final
@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: the kind of its last operation, and the sum of the milliseconds that its operations add."""

    kind: Kind
    milliseconds: float


@final
@dataclass(frozen=True, slots=True)
class _Body:
    """A body that is being walked: its remaining equations, and the values of its variables."""

    rest: Iterator[Eqn]
    values: dict[Atom, _Value]
    results: Atoms
    outs: tuple[Var, ...] = ()
    caller: dict[Atom, _Value] | None = None  # the environment in which `outs` are bound; None: results are in memory


@final
class Inlined:
    """The first `at_most` equations of a program with calls inlined, and with the bodies of loops and branches. A call
    counts as one equation.

    Cost: linear in `at_most`, for any depth of calls.
    """

    __slots__ = ("_bodies", "avals", "literals", "ops", "seen", "stored")

    def __init__(self, jaxpr: Jaxpr, at_most: int) -> None:
        self.avals: list[Aval] = []
        self.literals: dict[Atom, _Value] = {}
        self.ops: list[_Op] = []
        self.stored: set[_Value] = set()
        self.seen = 0
        # memoised by type: there are thousands of equations
        self._bodies: dict[type[Primitive], bool] = {}
        stack = [self._body(jaxpr)]
        while stack and self.seen < at_most:
            top = stack[-1]
            for eqn in top.rest:
                self.seen += 1
                if more := self._add(eqn, top.values):
                    stack += more
                    break
                if self.seen >= at_most:
                    return
            else:
                self._bind_results(stack.pop())

    def _body(self, jaxpr: Jaxpr) -> _Body:
        return _Body(iter(jaxpr.eqns), {v: self._value(v.aval) for v in jaxpr.ins}, jaxpr.outs)

    def _bind_results(self, body: _Body) -> None:
        results = self._read(body.results, body.values)
        if body.caller is None:
            self.stored.update(results)
        else:
            body.caller.update(zip(body.outs, results, strict=True))

    def _add(self, eqn: Eqn, values: dict[Atom, _Value]) -> list[_Body]:
        """Add an equation. Returns the bodies to walk next."""
        prim = eqn.prim
        ins = self._read(eqn.ins, values)
        has_bodies = self._bodies.get(type(prim))
        if has_bodies is None:
            has_bodies = self._bodies[type(prim)] = issubclass(type(prim), HigherOrder)
        layout = prim.layout if has_bodies and isinstance(prim, HigherOrder) else None
        if layout is not None and layout.once is not None:
            inner = layout.bodies[layout.once].jaxpr
            return [_Body(iter(inner.eqns), dict(zip(inner.ins, ins, strict=True)), inner.outs, eqn.outs, values)]
        first = len(self.avals)
        for v in eqn.outs:
            values[v] = len(self.avals)
            self.avals.append(v.aval)
        self.ops.append((prim, ins, range(first, len(self.avals))))
        return [self._body(body) for body in prim.bodies] if has_bodies and isinstance(prim, HigherOrder) else []

    def _value(self, aval: Aval) -> _Value:
        self.avals.append(aval)
        return len(self.avals) - 1

    def _read(self, atoms: Atoms, values: dict[Atom, _Value]) -> tuple[_Value, ...]:
        return tuple([values[a] if a in values else self._literal(a) for a in atoms])

    def _literal(self, a: Atom) -> _Value:
        value = self.literals.get(a)
        if value is None:
            value = self.literals[a] = self._value(a.aval)
        return value


@final
class Kernels:
    """The distinct kernels of a program: `distinct`, by the numbers of their expressions, and how often each is used.

    Cost: linear in the operands of its equations.
    """

    __slots__ = (
        "_needed_in_layout",
        "_expensive",
        "_milliseconds",
        "_number",
        "_numbers",
        "_program",
        "_readers",
        "_reduced_values",
        "_size",
        "_stored",
        "_broadcast",
        "_transposed_products",
        "distinct",
        "uses",
    )

    def __init__(self, program: Inlined) -> None:
        self.distinct: dict[_Number, Kernel] = {}
        self.uses: Counter[_Number] = Counter()
        self._program = program
        count = len(program.avals)
        self._readers = [0] * count
        self._reduced_values: set[_Value] = set()
        self._transposed_products: set[_Value] = set()  # transposes of products
        self._broadcast: set[_Value] = set(program.literals.values())
        self._stored: set[_Value] = set(program.stored)  # in memory
        self._needed_in_layout: set[_Value] = set(program.stored)  # in memory, in their own layout
        costs = {kind: compile_cost(kind) for kind in {type(prim) for prim, _, _ in program.ops}}
        self._find_stored(costs)
        # for values that are fused into their readers: number of equations, milliseconds, and whether one is expensive;
        # zero for values in memory
        self._size = [0] * count
        self._milliseconds = [0.0] * count
        self._expensive = [False] * count
        self._numbers: dict[object, _Number] = {}
        self._number = [self._numbered(aval) for aval in program.avals]
        for lit, value in program.literals.items():
            self._number[value] = self._numbered(lit)
        for op in program.ops:
            self._add_op(op, *costs[type(op[0])])

    def _find_stored(self, costs: Mapping[type[Primitive], Cost]) -> None:
        """Count the readers of each value, and find the values that readers need in memory."""
        transposed: dict[_Value, _Value] = {}
        products: set[_Value] = set()
        readers, stored, avals = self._readers, self._stored, self._program.avals
        for prim, ins, outs in self._program.ops:
            kind = costs[type(prim)][0]
            for a in set(ins) if len(ins) > 1 else ins:
                readers[a] += 1
            if kind is Kind.REDUCTION:
                self._reduced_values.update(ins)
            elif kind is Kind.KERNEL:
                product = type(prim) is DotGeneral
                products.update(outs if product else ())
                ins = tuple([transposed.get(a, a) for a in ins]) if product else ins
                stored.update(ins)
                self._needed_in_layout.update([a for a in ins if not product or len(avals[a].shape) <= 2])
            elif type(prim) is Transpose and len(prim.perm) == 2:  # a product takes either order of axes
                transposed[outs[0]] = ins[0]
                if ins[0] in products:
                    self._transposed_products.add(outs[0])

    def _numbered(self, what: object) -> _Number:
        return self._numbers.setdefault(what, len(self._numbers))

    def _add_op(self, op: _Op, kind: Kind, milliseconds: float) -> None:
        prim, ins, outs = op
        if kind is Kind.KERNEL or kind is Kind.REDUCTION:
            self._add_own_kernel(op, kind, milliseconds)
            return
        number = self._numbered((prim, *[self._number[a] for a in ins]))
        size = 0 if kind is Kind.VIEW or outs[0] in self._transposed_products else 1
        expensive = kind is Kind.EXPENSIVE
        for a in set(ins) if len(ins) > 1 else ins:
            size += self._size[a]
            milliseconds += self._milliseconds[a]
            expensive = expensive or self._expensive[a]
        if type(prim) is BroadcastInDim or type(prim) is Iota:
            self._broadcast.update(outs)
        for k, out in enumerate(outs):
            number = number if not k else self._numbered((number, k))
            self._size[out] = size
            own_kernel = size > MAX_FUSED or (expensive and self._readers[out] > 1)
            if size and (own_kernel or self._in_memory(out)):
                self._add_kernel(number, Kernel(kind, milliseconds))
                own_kernel = own_kernel or (out in self._needed_in_layout and self._joins_large_values(ins, out))
            if own_kernel:
                self._size[out] = 0
            else:
                self._number[out], self._milliseconds[out], self._expensive[out] = number, milliseconds, expensive

    def _joins_large_values(self, ins: tuple[_Value, ...], out: _Value) -> bool:
        """Returns True if an equation reads more than one value as large as its result. XLA computes an equation that
        reads only one again for each reader, even if its result is in memory."""
        rank = len(self._program.avals[out].shape)
        return len([a for a in ins if a not in self._broadcast and len(self._program.avals[a].shape) >= rank]) > 1

    def _add_own_kernel(self, op: _Op, kind: Kind, milliseconds: float) -> None:
        """Add a kernel that reads values in memory. A reduction may compute a small expression first."""
        prim, ins, _ = op
        inside = {a for a in ins if kind is Kind.REDUCTION and not self._in_memory(a)}
        avals = self._program.avals
        numbers = [self._number[a] if a in inside else self._numbered(avals[a]) for a in ins]
        milliseconds += sum([self._milliseconds[a] for a in inside])
        self._add_kernel(self._numbered((prim, *numbers)), Kernel(kind, milliseconds))

    def _add_kernel(self, number: _Number, kernel: Kernel) -> None:
        self.distinct[number] = kernel
        self.uses[number] += 1

    def _in_memory(self, a: _Value) -> bool:
        """Returns True if some reader needs the value in memory."""
        if a in self._stored or not self._readers[a]:  # no readers: a result, or the program was cut off
            return True
        return a in self._reduced_values and (self._readers[a] > 1 or self._size[a] > REDUCED_WITH)
