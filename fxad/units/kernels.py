"""A model of XLA's fusion on CPUs: the kernels that a program is compiled to, and the values that are in memory.

An elementwise operation is compiled into the kernel of each of its readers. The model reads a program as XLA gets it,
with calls inlined. Every value is an expression over values in memory. These values are in memory:

- results and operands of products, sorts and loops;
- results of reductions, and an operand of a reduction if it is large or has other readers;
- results of the program;
- a value that is expensive to compute and read by more than one kernel. Its cheap readers are compiled into several
  kernels, so the kernels are counted, and not the equations that read it;
- a value that joins two large ones, if a reader cannot be fused with it. So the sum `x` of a residual stream is in
  memory if the next one is `x + f(x)` and a product is a part of `f`, but is computed again in `x + f(x) + b`, because
  this joins one large value and a row;
- an expression of more than `MAX_FUSED` equations, each counted as often as its result is read: XLA's loops compute it
  so often.

Every other value is computed again by each reader, even if it is in memory for another reader: each layer computes the
whole sum of a residual stream, if it is such a sum. Equal expressions over values of equal types have one number, so
equal kernels are found even if they share no values.

For example, two operations read the `tanh` below, so it is a kernel of its own. The multiplication is fused into the
reduction:

>>> import fxad as fx, fxad.numpy as fnp
>>> def f(x, w):
...     y = fnp.tanh(x @ w)
...     return y + 1, (2 * y).sum(axis=0)
>>> square = fx.Spec((64, 64))
>>> kernels = Kernels(Inlined(fx.trace(f, square, square).jaxpr, at_most=100))
>>> for kernel in kernels.distinct.values():
...     print(f"{kernel.fusion.name:9} {kernel.milliseconds:5}")  # beside the milliseconds of any kernel, 25
KERNEL    -17.0
EXPENSIVE   1.2
CHEAP       0.5
REDUCTION   0.5

Source: XLA's `InstructionFusion` (`ComputeGloballyUnfusible`, `CanFuseOnAllPaths`, `EffectivelyAtMostUnary`), and its
        observed behaviour: `tests/units/test_kernels.py` counts kernels in the programs of XLA.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Atoms, Aval, Eqn, HigherOrder, Jaxpr, Primitive, Var
from fxad.primitives.dot import Contraction
from fxad.primitives.shape import BroadcastInDim, Iota, Transpose
from fxad.support.constants import FEW_IN_KERNEL, MAX_FUSED, REDUCED_WITH, SMALL_BYTES
from fxad.transforms.costs import CompileCost, Fusion, compile_cost, number_of_runs

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
    """A body that is being walked: its remaining equations and the values of its variables."""

    rest: Iterator[Eqn]
    values: dict[Atom, Value]
    results: Atoms
    outs: tuple[Var, ...] = ()
    caller: dict[Atom, Value] | None = None  # the environment in which `outs` are bound; None: results are in memory


@final
class Inlined:
    """The first `at_most` equations of a program with calls inlined, and with the bodies of loops and branches. A call
    counts as one equation. `loops`: some body may run more than once.

    Cost: linear in `at_most`, for any depth of calls.
    """

    __slots__ = ("_bodies", "avals", "literals", "loops", "ops", "results", "seen")

    def __init__(self, jaxpr: Jaxpr, at_most: int) -> None:
        self.avals: list[Aval] = []
        self.literals: dict[Atom, Value] = {}
        self.ops: list[Op] = []
        self.results: set[Value] = set()  # of the program and of bodies
        self.seen = 0
        self.loops = False
        # memoised by type: there are thousands of equations
        self._bodies: dict[type[Primitive], bool] = {}
        stack = [self._body(jaxpr)]
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

    def _body(self, jaxpr: Jaxpr) -> _Body:
        return _Body(iter(jaxpr.eqns), {v: self._value(v.aval) for v in jaxpr.ins}, jaxpr.outs)

    def _bind_results(self, body: _Body) -> None:
        results = self._read(body.results, body.values)
        if body.caller is None:
            self.results.update(results)
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
            operands = [ins[p] for p in layout.operand_indices(layout.once)]
            outs = tuple([eqn.outs[q] for q in layout.result_indices(layout.once) if q is not None])
            env: dict[Atom, Value] = dict(zip(inner.ins, operands, strict=True))
            return [_Body(iter(inner.eqns), env, inner.outs, outs, values)]
        first = len(self.avals)
        for v in eqn.outs:
            values[v] = len(self.avals)
            self.avals.append(v.aval)
        self.ops.append((prim, ins, range(first, len(self.avals))))
        if layout is None:
            return []
        runs = [number_of_runs(body.runs) for body in layout.bodies]
        self.loops = self.loops or layout.has_predicate or max(runs, default=1) > 1
        return [self._body(inner.jaxpr) for inner in layout.bodies]

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
class _Reads:
    """How the operations of a program read each value.

    `count` is the number of operations that read it. The sets are:

    from_memory           values that an operation reads from memory, or that are results
    in_layout             those of them that are read without a copy to another layout: a product reads a matrix in
                          either order, and copies a batch of matrices
    copied                values that a product reads in another order than that of their axes
    reduced               operands of reductions
    transposed_products   transposes of the matrices that products compute, which cost nothing
    joins                 results of equations that read more than one value as large as the result
    """

    __slots__ = ("copied", "count", "from_memory", "in_layout", "joins", "reduced", "transposed_products")

    def __init__(self, program: Inlined, costs: Mapping[type[Primitive], CompileCost]) -> None:
        avals = program.avals
        self.count = [0] * len(avals)
        self.from_memory: set[Value] = set(program.results)
        self.in_layout: set[Value] = set(program.results)
        self.copied: set[Value] = set()
        self.reduced: set[Value] = set()
        self.transposed_products: set[Value] = set()
        self.joins: set[Value] = set()
        products: set[Value] = set()
        transposed: dict[Value, Value] = {}  # for a transposed matrix, the matrix
        broadcast: set[Value] = set(program.literals.values())  # values that repeat fewer elements
        for prim, ins, outs in program.ops:
            fusion = costs[type(prim)][0]
            for a in set(ins) if len(ins) > 1 else ins:
                self.count[a] += 1
            if fusion is Fusion.REDUCTION:
                self.reduced.update(ins)
            elif isinstance(prim, Contraction):
                products.update(outs)
                matrices = [transposed.get(a, a) for a in ins]
                self.from_memory.update(matrices)
                self.in_layout.update([a for a in matrices if len(avals[a].shape) <= 2])
                if not prim.lhs_batch:
                    contracted = zip(ins, (prim.lhs_contract, prim.rhs_contract), strict=True)
                    self.copied.update([a for a, axes in contracted if 0 in axes and len(avals[a].shape) > 2])
            elif fusion is Fusion.KERNEL:
                self.from_memory.update(ins)
                self.in_layout.update(ins)
            elif type(prim) is BroadcastInDim or type(prim) is Iota:
                broadcast.update(outs)
            elif type(prim) is Transpose and len(prim.perm) == 2:
                transposed[outs[0]] = ins[0]
                if ins[0] in products:
                    self.transposed_products.add(outs[0])
            elif len(ins) > 1:
                rank = len(avals[outs[0]].shape)
                if len([a for a in ins if a not in broadcast and len(avals[a].shape) >= rank]) > 1:
                    self.joins.update(outs)


def _unfusible_joins(program: Inlined, reads: _Reads, costs: Mapping[type[Primitive], CompileCost]) -> set[Value]:
    """Return the values that join two large ones, and that some reader cannot be fused with: it reads them from memory,
    or it reads a later value from memory too, which is likely computed from them. All their readers read them in
    memory. XLA computes an equation that reads one large value again for each reader, even if its result is in
    memory."""
    count = reads.count
    found = reads.joins & reads.in_layout
    in_memory = set(found)
    latest = [-1] * len(program.avals)  # the latest value in memory that the expression of a value reads
    for prim, ins, outs in program.ops:
        fusion = costs[type(prim)][0]
        own_kernel = fusion is Fusion.KERNEL or fusion is Fusion.REDUCTION
        reads_until = {a: a if a in in_memory else latest[a] for a in ins}
        for a in ins if not own_kernel and len(reads_until) > 1 else ():
            if (
                count[a] > 1
                and a in reads.joins
                and a not in in_memory
                and any([reads_until[b] > a for b in ins if b != a])
            ):
                found.add(a)
                in_memory.add(a)
                reads_until[a] = a
        until = max(reads_until.values(), default=-1)
        for out in outs:
            latest[out] = until
            if own_kernel or (fusion is Fusion.EXPENSIVE and count[out] > 1):
                in_memory.add(out)
    return found


def _in_memory(program: Inlined, reads: _Reads, costs: Mapping[type[Primitive], CompileCost]) -> set[Value]:
    """Return the results of fusible equations that no reader computes again, beside those of large expressions."""
    found = _unfusible_joins(program, reads, costs)
    # The equation whose kernel reads a value, or `_SEVERAL`; -1 before it has readers. Readers come first.
    kernel = [-1] * len(program.avals)
    for k in reversed(range(len(program.ops))):
        prim, ins, outs = program.ops[k]
        fusion = costs[type(prim)][0]
        read_by = k
        if fusion is not Fusion.KERNEL and fusion is not Fusion.REDUCTION:
            kernels = {kernel[out] for out in outs}
            if any([out in reads.from_memory or not reads.count[out] for out in outs]):
                kernels.add(k)
            kernels.discard(-1)
            if found.isdisjoint(outs):
                read_by = _SEVERAL if len(kernels) > 1 else kernels.pop()
                if read_by == _SEVERAL and fusion is Fusion.EXPENSIVE:
                    found.update(outs)
                    read_by = k
        for a in ins:
            kernel[a] = read_by if kernel[a] in (-1, read_by) else _SEVERAL
    return found


_SEVERAL: Final = -2


@final
class Kernels:
    """The kernels of a program. `distinct` has one for each number of an expression, `count` is the number of all.

    Cost: linear in the operands of its equations.
    """

    __slots__ = (
        "_expression_of",
        "_in_memory",
        "_milliseconds",
        "_numbers",
        "_program",
        "_reads",
        "_size",
        "count",
        "distinct",
    )

    def __init__(self, program: Inlined) -> None:
        self.distinct: dict[_Expression, Kernel] = {}
        self.count = 0
        costs = {kind: compile_cost(kind) for kind in {type(prim) for prim, _, _ in program.ops}}
        self._program = program
        self._reads = _Reads(program, costs)
        self._in_memory = _in_memory(program, self._reads, costs)
        self._numbers: dict[object, _Expression] = {}
        # The expression that a reader of each value computes: a value in memory is only read, so its type is all that
        # matters. And its equations and their milliseconds; zero for a value in memory.
        self._expression_of = [self._intern(aval) for aval in program.avals]
        self._size = [0] * len(program.avals)
        self._milliseconds = [0.0] * len(program.avals)
        for lit, value in program.literals.items():
            self._expression_of[value] = self._intern(lit)
        for op in program.ops:
            fusion, milliseconds = costs[type(op[0])]
            if fusion is Fusion.KERNEL or fusion is Fusion.REDUCTION:
                self._add_own_kernel(op, fusion, milliseconds)
            else:
                self._fuse(op, fusion, milliseconds)

    def _intern(self, expression: object) -> _Expression:
        """Return the number of an expression; equal expressions have one number."""
        return self._numbers.setdefault(expression, len(self._numbers))

    def _fuse(self, op: Op, fusion: Fusion, milliseconds: float) -> None:
        """Extend the expressions of the operands by an elementwise operation or a view. Add a kernel for each result
        that a reader needs in memory. The other readers compute it again, if it is not only in memory."""
        prim, ins, outs = op
        reads = self._reads
        expression = self._intern((prim, *[self._expression_of[a] for a in ins]))
        size = 0 if fusion is Fusion.VIEW or outs[0] in reads.transposed_products else 1
        for a in set(ins) if len(ins) > 1 else ins:
            size += self._size[a]
            milliseconds += self._milliseconds[a]
        for k, out in enumerate(outs):
            expression = expression if not k else self._intern((expression, k))
            self._size[out] = size
            only_in_memory = size > MAX_FUSED or out in self._in_memory
            if size and (only_in_memory or self._is_needed_in_memory(out)):
                self._add_kernel(expression, Kernel(fusion, milliseconds))
                if out in reads.copied and not only_in_memory:
                    self._add_kernel(self._intern((expression, "copied")), Kernel(fusion, milliseconds))
            if only_in_memory:
                self._size[out] = 0
                continue
            self._expression_of[out] = expression
            self._milliseconds[out] = milliseconds

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
        self.count += 1

    def _is_needed_in_memory(self, a: Value) -> bool:
        """Return True if some reader needs the value in memory."""
        reads = self._reads
        if a in reads.from_memory or not reads.count[a]:  # no readers: a result, or the program was cut off
            return True
        return a in reads.reduced and (reads.count[a] > 1 or self._size[a] > REDUCED_WITH)


FUSIBLE: Final = (Fusion.CHEAP, Fusion.EXPENSIVE)


@final
@dataclass(frozen=True, slots=True)
class Stretch:
    """The largest set of fusible operations of a program that are connected by their values: how many they are, and the
    bytes of all their results."""

    operations: int
    nbytes: int

    def has_many_kernels(self, kernels: Kernels) -> bool:
        """Return True if the program is compiled to many kernels, which may each compute much of the stretch. A sum of
        a thousand products is one kernel."""
        return FEW_IN_KERNEL * kernels.count >= self.operations

    @property
    def is_small(self) -> bool:
        """True if the results are so small that it costs little to write and read each of them."""
        return self.nbytes <= SMALL_BYTES * self.operations


def longest_stretch(program: Inlined) -> Stretch:
    """Return the longest stretch of a program. Cost: linear in its operations."""
    kinds = {kind: compile_cost(kind)[0] for kind in {type(prim) for prim, _, _ in program.ops}}
    parent = list(range(len(program.ops)))
    size, nbytes = [0] * len(parent), [0] * len(parent)
    producer: dict[Value, int] = {}

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    for k, (prim, ins, outs) in enumerate(program.ops):
        fusion = kinds[type(prim)]
        if fusion in FUSIBLE:
            size[k], nbytes[k] = 1, sum([program.avals[v].nbytes for v in outs])
        elif fusion is not Fusion.VIEW:
            continue
        for a in ins:
            if a in producer and (other := root(producer[a])) != k:
                parent[other] = k
                size[k] += size[other]
                nbytes[k] += nbytes[other]
        producer.update(dict.fromkeys(outs, k))
    longest = max(range(len(parent)), key=size.__getitem__, default=None)
    return Stretch(0, 0) if longest is None else Stretch(size[longest], nbytes[longest])
