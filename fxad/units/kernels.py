"""A model of XLA's fusion on CPUs: the kernels that a program is compiled to, and the values that are in memory.

An elementwise operation is compiled into the kernel of each of its readers. The model reads a program as XLA gets it,
with calls inlined. Every value is an expression over values in memory. These values are in memory:

- results and operands of products, sorts and loops;
- results of reductions, and an operand of a reduction if it is large or has other readers;
- results of the program;
- a value that is expensive to compute and read more than once;
- an expression of more than `MAX_FUSED` equations, each counted as often as its result is read: XLA's loops compute it
  so often.

Every other value is computed again by each reader, even if it is in memory for another reader: each layer computes the
whole sum of a residual stream. An exception is an equation that joins two large values: if one reader needs its result
in memory, all readers read it there. Equal expressions over values of equal types have one number, so equal kernels are
found even if they share no values.

Source: XLA's `InstructionFusion` (`ComputeGloballyUnfusible`, `EffectivelyAtMostUnary`), and its observed behaviour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.core.layout import Carry, Layout, OneOf, Slice
from fxad.ir import Atom, Atoms, Aval, Eqn, HigherOrder, Jaxpr, Primitive, Var
from fxad.primitives.dot import DotGeneral
from fxad.primitives.shape import BroadcastInDim, Iota, Transpose
from fxad.transforms.costs import CompileCost, Fusion, compile_cost, number_of_runs

MAX_FUSED: Final = 512
REDUCED_WITH: Final = 4  # equations that are fused into a reduction of their result

# Values and expressions are numbered in the order of their definition.
Value: TypeAlias = int
_Expression: TypeAlias = int  # its number: equal expressions have one

# An equation: its primitive, its operands and its results.
Op: TypeAlias = tuple[Primitive, tuple[Value, ...], range]


@final
@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: how its last operation is fused, and the sum of the milliseconds that its operations add."""

    fusion: Fusion
    milliseconds: float


@final
@dataclass(frozen=True, slots=True)
class _Body:
    """A body that is being walked: its remaining equations, the values of its variables, and how often it runs."""

    rest: Iterator[Eqn]
    values: dict[Atom, Value]
    results: Atoms
    runs: float
    stacked: tuple[bool, ...] = ()  # True for results of which each run writes a slice
    outs: tuple[Var, ...] = ()
    caller: dict[Atom, Value] | None = None  # the environment in which `outs` are bound; None: results are in memory


@final
class Inlined:
    """The first `at_most` equations of a program with calls inlined, and with the bodies of loops and branches. A call
    counts as one equation.

    Cost: linear in `at_most`, for any depth of calls.
    """

    __slots__ = ("_bodies", "avals", "carries", "literals", "operands", "ops", "results", "runs", "seen", "stacked")

    def __init__(self, jaxpr: Jaxpr, at_most: int) -> None:
        self.avals: list[Aval] = []
        self.literals: dict[Atom, Value] = {}
        self.ops: list[Op] = []
        self.runs: list[float] = []  # how often each operation runs; branches share one run
        self.results: set[Value] = set()  # of the program and of bodies
        self.stacked: set[Value] = set()  # results of bodies that are written into a slice of a result of the loop
        self.carries: set[Value] = set()  # operands of bodies that are carries
        self.seen = 0
        # memoised by type: there are thousands of equations
        self._bodies: dict[type[Primitive], bool] = {}
        stack = [self._body(jaxpr, 1)]
        self.operands = range(len(self.avals))
        while stack and self.seen < at_most:
            top = stack[-1]
            for eqn in top.rest:
                self.seen += 1
                if more := self._add(eqn, top):
                    stack += more
                    break
                if self.seen >= at_most:
                    return
            else:
                self._bind_results(stack.pop())

    def _body(self, jaxpr: Jaxpr, runs: float, stacked: tuple[bool, ...] = ()) -> _Body:
        return _Body(iter(jaxpr.eqns), {v: self._value(v.aval) for v in jaxpr.ins}, jaxpr.outs, runs, stacked)

    def _body_of(self, layout: Layout, k: int, runs: float) -> _Body:
        """Body `k` of an equation that runs `runs` times."""
        inner, taken, returned = layout.bodies[k], layout.operand_roles, layout.result_roles
        stacked = tuple([at is not None and type(returned[at]) is Slice for at in layout.result_indices(k)])
        if type(inner.runs) is OneOf:
            runs /= len([other for other in layout.bodies if type(other.runs) is OneOf])
        body = self._body(inner.jaxpr, runs * number_of_runs(inner.runs), stacked)
        carried = [type(taken[at]) is Carry for at in layout.operand_indices(k)]
        self.carries.update([body.values[v] for v, c in zip(inner.jaxpr.ins, carried, strict=True) if c])
        return body

    def _bind_results(self, body: _Body) -> None:
        results = self._read(body.results, body.values)
        if body.caller is None:
            self.results.update(results)
            self.stacked.update([v for v, is_slice in zip(results, body.stacked, strict=False) if is_slice])
        else:
            body.caller.update(zip(body.outs, results, strict=True))

    def _add(self, eqn: Eqn, top: _Body) -> list[_Body]:
        """Add an equation. Returns the bodies to walk next."""
        prim, values = eqn.prim, top.values
        ins = self._read(eqn.ins, values)
        has_bodies = self._bodies.get(type(prim))
        if has_bodies is None:
            has_bodies = self._bodies[type(prim)] = issubclass(type(prim), HigherOrder)
        layout = prim.layout if has_bodies and isinstance(prim, HigherOrder) else None
        if layout is not None and layout.once is not None:
            inner = layout.bodies[layout.once].jaxpr
            taken = [ins[p] for p in layout.operand_indices(layout.once)]
            given = tuple([eqn.outs[q] for q in layout.result_indices(layout.once) if q is not None])
            env: dict[Atom, Value] = dict(zip(inner.ins, taken, strict=True))
            return [_Body(iter(inner.eqns), env, inner.outs, top.runs, (), given, values)]
        first = len(self.avals)
        for v in eqn.outs:
            values[v] = len(self.avals)
            self.avals.append(v.aval)
        self.ops.append((prim, ins, range(first, len(self.avals))))
        self.runs.append(top.runs)
        return [self._body_of(layout, k, top.runs) for k in range(len(layout.bodies))] if layout is not None else []

    def _value(self, aval: Aval) -> Value:
        self.avals.append(aval)
        return len(self.avals) - 1

    def _read(self, atoms: Atoms, values: dict[Atom, Value]) -> tuple[Value, ...]:
        return tuple([values[a] if a in values else self._literal(a) for a in atoms])

    def _literal(self, a: Atom) -> Value:
        value = self.literals.get(a)
        if value is None:
            value = self.literals[a] = self._value(a.aval)
        return value


@final
class Kernels:
    """The distinct kernels of a program: `distinct`, by the numbers of their expressions, and how often each is used.
    `written` are the elementwise values that kernels write, `recomputed` those of them that other readers compute
    again.

    Cost: linear in the operands of its equations.
    """

    __slots__ = (
        "_read_in_layout",
        "_expensive",
        "_milliseconds",
        "_expression_of",
        "_expression_numbers",
        "_program",
        "_readers",
        "_reduced_values",
        "_size",
        "_read_from_memory",
        "_broadcast",
        "_transposed_products",
        "distinct",
        "written",
        "recomputed",
        "uses",
    )

    def __init__(self, program: Inlined) -> None:
        self.distinct: dict[_Expression, Kernel] = {}
        self.uses: Counter[_Expression] = Counter()
        self.written: set[Value] = set()
        self.recomputed: set[Value] = set()
        self._program = program
        count = len(program.avals)
        self._readers = [0] * count
        self._reduced_values: set[Value] = set()
        self._transposed_products: set[Value] = set()  # transposes of products
        self._broadcast: set[Value] = set(program.literals.values())
        self._read_from_memory: set[Value] = set(program.results)
        self._read_in_layout: set[Value] = set(program.results)  # from memory, in their own layout
        costs = {kind: compile_cost(kind) for kind in {type(prim) for prim, _, _ in program.ops}}
        self._find_readers(costs)
        # for values that are fused into their readers: number of equations, milliseconds, and whether one is expensive;
        # zero for values in memory
        self._size = [0] * count
        self._milliseconds = [0.0] * count
        self._expensive = [False] * count
        self._expression_numbers: dict[object, _Expression] = {}
        self._expression_of = [self._intern(aval) for aval in program.avals]
        for lit, value in program.literals.items():
            self._expression_of[value] = self._intern(lit)
        for op in program.ops:
            self._add_op(op, *costs[type(op[0])])

    def _find_readers(self, costs: Mapping[type[Primitive], CompileCost]) -> None:
        """Count the readers of each value, and find the values that they read from memory."""
        transposed: dict[Value, Value] = {}
        products: set[Value] = set()
        readers, from_memory, avals = self._readers, self._read_from_memory, self._program.avals
        for prim, ins, outs in self._program.ops:
            fusion = costs[type(prim)][0]
            for a in set(ins) if len(ins) > 1 else ins:
                readers[a] += 1
            if fusion is Fusion.REDUCTION:
                self._reduced_values.update(ins)
            elif fusion is Fusion.KERNEL:
                product = type(prim) is DotGeneral
                products.update(outs if product else ())
                ins = tuple([transposed.get(a, a) for a in ins]) if product else ins
                from_memory.update(ins)
                self._read_in_layout.update([a for a in ins if not product or len(avals[a].shape) <= 2])
            elif type(prim) is Transpose and len(prim.perm) == 2:  # a product takes either order of axes
                transposed[outs[0]] = ins[0]
                if ins[0] in products:
                    self._transposed_products.add(outs[0])

    def _intern(self, expression: object) -> _Expression:
        """The number of an expression; equal expressions have one number."""
        return self._expression_numbers.setdefault(expression, len(self._expression_numbers))

    def _add_op(self, op: Op, fusion: Fusion, milliseconds: float) -> None:
        prim, ins, outs = op
        if fusion is Fusion.KERNEL or fusion is Fusion.REDUCTION:
            self._add_own_kernel(op, fusion, milliseconds)
            return
        expression = self._intern((prim, *[self._expression_of[a] for a in ins]))
        size = 0 if fusion is Fusion.VIEW or outs[0] in self._transposed_products else 1
        expensive = fusion is Fusion.EXPENSIVE
        for a in set(ins) if len(ins) > 1 else ins:
            size += self._size[a]
            milliseconds += self._milliseconds[a]
            expensive = expensive or self._expensive[a]
        if type(prim) is BroadcastInDim or type(prim) is Iota:
            self._broadcast.update(outs)
        for k, out in enumerate(outs):
            expression = expression if not k else self._intern((expression, k))
            self._size[out] = size
            always_in_memory = size > MAX_FUSED or (expensive and self._readers[out] > 1)
            if size and (always_in_memory or self._is_needed_in_memory(out)):
                self._add_kernel(expression, Kernel(fusion, milliseconds))
                self.written.add(out)
                joins = out in self._read_in_layout and self._joins_large_values(ins, out)
                always_in_memory = always_in_memory or joins
            if always_in_memory:
                self._size[out] = 0
            else:
                if out in self.written:
                    self.recomputed.add(out)
                self._expression_of[out], self._milliseconds[out], self._expensive[out] = (
                    expression,
                    milliseconds,
                    expensive,
                )

    def _joins_large_values(self, ins: tuple[Value, ...], out: Value) -> bool:
        """Returns True if an equation reads more than one value as large as its result. XLA computes an equation that
        reads only one again for each reader, even if its result is in memory."""
        rank = len(self._program.avals[out].shape)
        return len([a for a in ins if a not in self._broadcast and len(self._program.avals[a].shape) >= rank]) > 1

    def _add_own_kernel(self, op: Op, fusion: Fusion, milliseconds: float) -> None:
        """Add a kernel that reads values in memory. A reduction may compute a small expression first."""
        prim, ins, _ = op
        inside = {a for a in ins if fusion is Fusion.REDUCTION and not self._is_needed_in_memory(a)}
        avals = self._program.avals
        numbers = [self._expression_of[a] if a in inside else self._intern(avals[a]) for a in ins]
        milliseconds += sum([self._milliseconds[a] for a in inside])
        self._add_kernel(self._intern((prim, *numbers)), Kernel(fusion, milliseconds))

    def _add_kernel(self, expression: _Expression, kernel: Kernel) -> None:
        self.distinct[expression] = kernel
        self.uses[expression] += 1

    def _is_needed_in_memory(self, a: Value) -> bool:
        """Returns True if some reader needs the value in memory."""
        if a in self._read_from_memory or not self._readers[a]:  # no readers: a result, or the program was cut off
            return True
        return a in self._reduced_values and (self._readers[a] > 1 or self._size[a] > REDUCED_WITH)
