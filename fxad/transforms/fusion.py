"""A model of XLA's fusion on CPUs: which values of a program are in memory, and which each reader computes again.

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
whole sum of a residual stream, if it is such a sum.

Three rules read the model: `fxad.units.kernels` counts the kernels, `fxad.transforms.liveness` the bytes in memory, and
`fxad.units.stretches` cuts what would become too many kernels.

Source: XLA's `InstructionFusion`. One rule is XLA's: a value that some reader cannot be fused with
        (`CanFuseOnAllPaths`) is computed again by no reader (`ComputeGloballyUnfusible`), unless it has a single large
        operand (`EffectivelyAtMostUnary`; the others are `joins` here). The model replaces paths by the order of
        equations. The rest is observed behaviour: `tests/units/test_kernels.py` counts kernels in the programs of XLA.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Atoms, Aval, Eqn, HigherOrder, Jaxpr, Primitive, Var
from fxad.primitives.dot import Contraction
from fxad.primitives.shape import BroadcastInDim, Iota, Transpose
from fxad.support.constants import MAX_FUSED, REDUCED_WITH
from fxad.transforms.costs import CompileCost, Fusion, compile_cost, number_of_runs

# Values are numbered in the order of their definition.
ValueNumber: TypeAlias = int

# An operation: its primitive, its operands and its results.
Op: TypeAlias = tuple[Primitive, tuple[ValueNumber, ...], range]

# In place of the number of the one kernel that reads a value.
_UNREAD: Final = -1
_SEVERAL: Final = -2


@final
@dataclass(frozen=True, slots=True)
class _WalkedBody:
    """A body that is being walked: its remaining equations and the values of its variables."""

    rest: Iterator[Eqn]
    values: dict[Atom, ValueNumber]
    results: Atoms
    outs: tuple[Var, ...] = ()
    caller: dict[Atom, ValueNumber] | None = (
        None  # the environment in which `outs` are bound; None: results are in memory
    )


class NumberedOperations:
    """The operations of a program over numbered values of the types `avals`. `results` are those of the program, and of
    bodies that are among the operations."""

    __slots__ = ("avals", "literals", "ops", "results")

    def __init__(self) -> None:
        self.avals: list[Aval] = []
        self.literals: dict[Atom, ValueNumber] = {}
        self.ops: list[Op] = []
        self.results: set[ValueNumber] = set()

    def value(self, aval: Aval) -> ValueNumber:
        """Return a new value."""
        self.avals.append(aval)
        return len(self.avals) - 1

    def read(self, atoms: Atoms, values: Mapping[Atom, ValueNumber]) -> tuple[ValueNumber, ...]:
        """Return the values of atoms; a literal has one value."""
        return tuple([values[a] if a in values else self._literal(a) for a in atoms])

    def add(self, eqn: Eqn, ins: tuple[ValueNumber, ...], values: dict[Atom, ValueNumber]) -> None:
        """Add an equation, whose results are new values."""
        first = len(self.avals)
        for v in eqn.outs:
            values[v] = self.value(v.aval)
        self.ops.append((eqn.prim, ins, range(first, len(self.avals))))

    def _literal(self, a: Atom) -> ValueNumber:
        value = self.literals.get(a)
        if value is None:
            value = self.literals[a] = self.value(a.aval)
        return value


@final
class Flat(NumberedOperations):
    """The equations of a program without calls. An equation with bodies is one operation. `values` has the numbers of
    its variables."""

    __slots__ = ("values",)

    def __init__(self, jaxpr: Jaxpr) -> None:
        super().__init__()
        self.values: dict[Atom, ValueNumber] = {v: self.value(v.aval) for v in jaxpr.ins}
        for eqn in jaxpr.eqns:
            self.add(eqn, self.read(eqn.ins, self.values), self.values)
        self.results.update(self.read(jaxpr.outs, self.values))


@final
class Inlined(NumberedOperations):
    """The first `at_most` equations of a program with calls inlined, and with the bodies of loops and branches. A call
    counts as one equation. `loops`: some body may run more than once.

    Cost: linear in `at_most`, for any depth of calls.
    """

    __slots__ = ("_bodies", "loops", "seen")

    def __init__(self, jaxpr: Jaxpr, at_most: int) -> None:
        super().__init__()
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

    def _body(self, jaxpr: Jaxpr) -> _WalkedBody:
        return _WalkedBody(iter(jaxpr.eqns), {v: self.value(v.aval) for v in jaxpr.ins}, jaxpr.outs)

    def _bind_results(self, body: _WalkedBody) -> None:
        results = self.read(body.results, body.values)
        if body.caller is None:
            self.results.update(results)
        else:
            body.caller.update(zip(body.outs, results, strict=True))

    def _add(self, eqn: Eqn, top: _WalkedBody) -> list[_WalkedBody]:
        """Add an equation. Return the bodies to walk next."""
        prim, values = eqn.prim, top.values
        ins = self.read(eqn.ins, values)
        has_bodies = self._bodies.get(type(prim))
        if has_bodies is None:
            has_bodies = self._bodies[type(prim)] = issubclass(type(prim), HigherOrder)
        layout = prim.layout if has_bodies and isinstance(prim, HigherOrder) else None
        if layout is not None and layout.once is not None:
            inner = layout.bodies[layout.once].jaxpr
            operands = [ins[p] for p in layout.operand_indices(layout.once)]
            outs = tuple([eqn.outs[q] for q in layout.result_indices(layout.once) if q is not None])
            env: dict[Atom, ValueNumber] = dict(zip(inner.ins, operands, strict=True))
            return [_WalkedBody(iter(inner.eqns), env, inner.outs, outs, values)]
        self.add(eqn, ins, values)
        if layout is None:
            return []
        runs = [number_of_runs(body.runs) for body in layout.bodies]
        self.loops = self.loops or layout.has_predicate or max(runs, default=1) > 1
        return [self._body(inner.jaxpr) for inner in layout.bodies]


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
    transposed_operands   transposes of matrices that products read, which cost nothing for them
    joins                 results of equations that read more than one value as large as the result
    """

    __slots__ = (
        "copied",
        "count",
        "from_memory",
        "in_layout",
        "joins",
        "reduced",
        "transposed_operands",
        "transposed_products",
    )

    def __init__(self, program: NumberedOperations, costs: Mapping[type[Primitive], CompileCost]) -> None:
        """Read the operations in order.

        A transpose stands before the products that read it, and after the product that it is of: so `transposed` and
        `products` know the operands of each operation. Example: with matrices,

            t = transpose a;  p = dot t b;  q = transpose p

        reads a and b from memory, t is in `transposed_operands`, q in `transposed_products`.
        """
        avals = program.avals
        self.count = [0] * len(avals)
        self.from_memory: set[ValueNumber] = set(program.results)
        self.in_layout: set[ValueNumber] = set(program.results)
        self.copied: set[ValueNumber] = set()
        self.reduced: set[ValueNumber] = set()
        self.transposed_products: set[ValueNumber] = set()
        self.transposed_operands: set[ValueNumber] = set()
        self.joins: set[ValueNumber] = set()
        products: set[ValueNumber] = set()
        transposed: dict[ValueNumber, ValueNumber] = {}  # for a transposed matrix, the matrix
        broadcast: set[ValueNumber] = set(program.literals.values())  # values that repeat fewer elements
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
                self.transposed_operands.update([a for a in ins if a in transposed])
                self.in_layout.update([a for a in matrices if len(avals[a].shape) <= 2])
                # XLA makes matrices of the operands (measured on the CPU, jaxlib 0.12). The rows of the left one are
                # the axes that are kept: f32[2, 48, 64] contracted along (0, 1) is transposed to f32[64, 96];
                # contracted along 2, it is f32[96, 64] as it lies in memory. A matrix, or a batch of them, is read in
                # either order. The rows of a right operand are the contracted axes; here the rule of the left one
                # stands for both.
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


def _unfusible_joins(
    program: NumberedOperations, reads: _Reads, costs: Mapping[type[Primitive], CompileCost]
) -> set[ValueNumber]:
    """Return the values that join two large ones, and that some reader cannot be fused with. All their readers read
    them in memory. XLA computes an equation that reads one large value again for each reader, even if its result is in
    memory.

    A reader cannot be fused with such a value if it reads it from memory, or reads a value from memory too that is
    computed from it. XLA looks for a path between the two (`CanFuseOnAllPaths`). Here every later value counts as
    computed from it, which is an approximation:

        %2 = add %0 %1        joins two large values
        %3 = tanh %2
        %4 = dot %3 %w        in memory
        %5 = add %2 %4        reads %4 from memory, which is later than %2: so %2 is in memory too
    """
    count = reads.count
    joins = reads.joins & reads.in_layout
    in_memory = set(joins)
    latest = [-1] * len(program.avals)  # the latest value in memory that the expression of a value reads
    for prim, ins, outs in program.ops:
        fusion = costs[type(prim)][0]
        own_kernel = fusion is Fusion.KERNEL or fusion is Fusion.REDUCTION
        reads_until = {a: a if a in in_memory else latest[a] for a in ins}
        joins_values = not own_kernel and len(reads_until) > 1
        for a in ins:
            if (
                joins_values
                and count[a] > 1
                and a in reads.joins
                and a not in in_memory
                and any([reads_until[b] > a for b in ins if b != a])
            ):
                joins.add(a)
                in_memory.add(a)
                reads_until[a] = a
        until = max(reads_until.values(), default=-1)
        for out in outs:
            latest[out] = until
            if own_kernel or (fusion is Fusion.EXPENSIVE and count[out] > 1):
                in_memory.add(out)
    return joins


def _in_memory(
    program: NumberedOperations, reads: _Reads, costs: Mapping[type[Primitive], CompileCost]
) -> set[ValueNumber]:
    """Return the results of fusible equations that no reader computes again, beside those of large expressions: the
    unfusible joins, and what is expensive to compute and read by several kernels.

    A kernel is named after its last equation. A cheap equation has no kernel of its own, but those of its readers:

        equation              kernels that read the result
        %0 = exp %arg0        those of %2 and %3: %0 is expensive, so it is in memory
        %1 = mul %0 2.0       those of %2 and %3
        %2 = reduce_sum %1
        %3 = reduce_max %1
    """
    in_memory = _unfusible_joins(program, reads, costs)
    read_in = [_UNREAD] * len(program.avals)  # for each value, the kernel that reads it, or `_SEVERAL`
    for k in reversed(range(len(program.ops))):  # the readers of a value before it
        prim, ins, outs = program.ops[k]
        fusion = costs[type(prim)][0]
        own_kernel = fusion is Fusion.KERNEL or fusion is Fusion.REDUCTION or not in_memory.isdisjoint(outs)
        kernel = k if own_kernel else _kernel_of_readers(k, outs, reads, read_in)
        if kernel == _SEVERAL and fusion is Fusion.EXPENSIVE:
            in_memory.update(outs)
            kernel = k
        for a in ins:
            read_in[a] = kernel if read_in[a] in (_UNREAD, kernel) else _SEVERAL
    return in_memory


def _kernel_of_readers(k: int, outs: range, reads: _Reads, read_in: Sequence[int]) -> int:
    """Return the kernel that computes the results of equation k, or `_SEVERAL`: that of the reader; its own, if a
    result is needed in memory."""
    kernels = {read_in[out] for out in outs}
    if any([out in reads.from_memory or not reads.count[out] for out in outs]):
        kernels.add(k)
    kernels.discard(_UNREAD)
    return _SEVERAL if len(kernels) > 1 else kernels.pop()


@final
class Fusions:
    """How XLA fuses the operations of a program. `costs` are those of their primitives, `size` is the number of
    operations of the expression that each value is.

    Cost: linear in the operands of its operations.
    """

    __slots__ = ("costs", "reads", "size", "stored")

    def __init__(self, program: NumberedOperations) -> None:
        self.costs: dict[type[Primitive], CompileCost] = {
            kind: compile_cost(kind) for kind in {type(prim) for prim, _, _ in program.ops}
        }
        self.reads = _Reads(program, self.costs)
        # results of fusible operations that no reader computes again
        self.stored = _in_memory(program, self.reads, self.costs)
        self.size = [0] * len(program.avals)
        for prim, ins, outs in program.ops:
            if self.has_own_kernel(prim):
                continue
            is_view = self.costs[type(prim)][0] is Fusion.VIEW or outs[0] in self.reads.transposed_products
            size = (0 if is_view else 1) + sum([self.size_inside(a) for a in (set(ins) if len(ins) > 1 else ins)])
            for out in outs:
                self.size[out] = size
                if size > MAX_FUSED:
                    self.stored.add(out)

    def has_own_kernel(self, prim: Primitive) -> bool:
        """Return True if the results of a primitive are in memory."""
        fusion = self.costs[type(prim)][0]
        return fusion is Fusion.KERNEL or fusion is Fusion.REDUCTION

    def reads_in_memory(self, prim: Primitive, a: ValueNumber) -> bool:
        """Return True if a primitive with its own kernel reads an operand in memory; a reduction may compute it."""
        return self.costs[type(prim)][0] is Fusion.KERNEL or self.is_needed_in_memory(a)

    def size_inside(self, a: ValueNumber) -> int:
        """Return the number of operations that a reader computes for a value; 0 if it is in memory."""
        return 0 if a in self.stored else self.size[a]

    def is_view(self, prim: Primitive, out: ValueNumber) -> bool:
        """Return True if no operation computes a result: its readers in memory read the operand there."""
        if self.costs[type(prim)][0] is Fusion.VIEW or out in self.reads.transposed_products:
            return True
        return out in self.reads.transposed_operands and out not in self.reads.from_memory

    def is_needed_in_memory(self, a: ValueNumber) -> bool:
        """Return True if some reader needs the value in memory."""
        reads = self.reads
        if a in reads.from_memory or not reads.count[a]:  # no readers: a result, or the program was cut off
            return True
        return a in reads.reduced and (reads.count[a] > 1 or self.size_inside(a) > REDUCED_WITH)
