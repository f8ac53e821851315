"""The kernels that a program is compiled to, by the model of `fxad.transforms.fusion`.

Equal expressions over values of equal types have one number, so equal kernels are found even if they share no values.

For example, two operations read the `tanh` below, so it is a kernel of its own. The multiplication is fused into the
reduction:

>>> import fxad as fx, fxad.numpy as fnp
>>> from fxad.transforms.fusion import Inlined
>>> def f(x, w):
...     y = fnp.tanh(x @ w)
...     return y + 1, (2 * y).sum(axis=0)
>>> square = fx.Spec((64, 64))
>>> kernels = Kernels(Inlined(fx.trace(f, square, square).jaxpr, at_most=100))
>>> for kernel in kernels.distinct.values():
...     print(f"{kernel.fusion.name:9} {kernel.milliseconds:5}")
KERNEL      8.0
EXPENSIVE  26.2
CHEAP      25.5
REDUCTION   8.5
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.support.constants import FEW_IN_KERNEL, KERNEL_MS, LIBRARY_MS, SMALL_BYTES
from fxad.transforms.costs import Fusion, compile_cost
from fxad.transforms.fusion import Fusions, NumberedOperations, Op, ValueNumber

# Expressions are numbered in the order of their definition; equal ones have one number.
_Expression: TypeAlias = int


@final
@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: how its last operation is fused, and the milliseconds that it takes to compile."""

    fusion: Fusion
    milliseconds: float


@final
class Kernels:
    """The kernels of a program. `distinct` has one for each number of an expression, `count` is the number of all.

    Cost: linear in the operands of its equations.
    """

    __slots__ = ("_expression_of", "_fusions", "_milliseconds", "_numbers", "_program", "count", "distinct")

    def __init__(self, program: NumberedOperations) -> None:
        self.distinct: dict[_Expression, Kernel] = {}
        self.count = 0
        self._program = program
        self._fusions = Fusions(program)
        self._numbers: dict[object, _Expression] = {}
        # The expression that a reader of each value computes: a value in memory is only read, so its type is all that
        # matters. And the milliseconds of its equations; zero for a value in memory.
        self._expression_of = [self._intern(aval) for aval in program.avals]
        self._milliseconds = [0.0] * len(program.avals)
        for lit, value in program.literals.items():
            self._expression_of[value] = self._intern(lit)
        for op in program.ops:
            fusion, milliseconds = self._fusions.costs[type(op[0])]
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
        fusions = self._fusions
        expression = self._intern((prim, *[self._expression_of[a] for a in ins]))
        for a in set(ins) if len(ins) > 1 else ins:
            milliseconds += self._milliseconds[a]
        for k, out in enumerate(outs):
            if k:  # another result of the same operation
                expression = self._intern((expression, k))
            only_in_memory = out in fusions.stored
            if fusions.size[out] and (only_in_memory or fusions.is_needed_in_memory(out)):
                self._add_kernel(expression, fusion, milliseconds)
                # a product reads it in another order of its axes, so XLA writes it a second time
                if out in fusions.reads.copied and not only_in_memory:
                    self._add_kernel(self._intern((expression, "copied")), fusion, milliseconds)
            if only_in_memory:
                continue
            self._expression_of[out] = expression
            self._milliseconds[out] = milliseconds

    def _add_own_kernel(self, op: Op, fusion: Fusion, milliseconds: float) -> None:
        """Add a kernel that reads values in memory. A reduction may compute a small expression first."""
        prim, ins, _ = op
        inside = {a for a in ins if fusion is Fusion.REDUCTION and not self._fusions.is_needed_in_memory(a)}
        avals = self._program.avals
        numbers = [self._expression_of[a] if a in inside else self._intern(avals[a]) for a in ins]
        milliseconds += sum([self._milliseconds[a] for a in inside])
        self._add_kernel(self._intern((prim, *numbers)), fusion, milliseconds)

    def _add_kernel(self, expression: _Expression, fusion: Fusion, milliseconds: float) -> None:
        """Add a kernel. Its operations add `milliseconds` to those of any kernel of its kind."""
        base = LIBRARY_MS if fusion is Fusion.REDUCTION else KERNEL_MS
        self.distinct[expression] = Kernel(fusion, base + milliseconds)
        self.count += 1


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


def longest_stretch(program: NumberedOperations) -> Stretch:
    """Return the longest stretch of a program. Cost: linear in its operations."""
    kinds = {kind: compile_cost(kind)[0] for kind in {type(prim) for prim, _, _ in program.ops}}
    parent = list(range(len(program.ops)))
    size, nbytes = [0] * len(parent), [0] * len(parent)
    producer: dict[ValueNumber, int] = {}

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
