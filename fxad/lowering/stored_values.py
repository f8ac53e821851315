"""Values of functions such as `sin` that are stored, because several kernels of XLA on CPUs would compute them.

XLA fuses an elementwise equation into the kernel of each reader. A value that is expensive to compute and read by more
than one kernel is stored, but not `sin`, `cos` and `tan`, which take 3 to 9 ns an element. And the kernel of a
`concatenate` computes for each operand all that it is made of, also what operands share:

    %0: f32[1024,32] = sin %arg0
    %1: f32[1024,32] = mul %0, %arg1
    %2: f32[1024,32] = mul %1, %arg1
    %3: f32[2048,32] = concatenate[axis=0] %1, %2

So `fxad.lower` writes such an equation as a call that XLA does not inline, whose results are in memory. XLA's barriers
do not suffice: it removes them before it fuses. Stacked coefficients of a Taylor series of order 8 take 0.3 to 0.8 of
the time then, and the gradient of four layers of attention with rotary positions 0.55 to 0.7. Decision: docs/adr/0118.

The values of a program are those of its equations: `sin(x)` that is written twice is two values, unless `cse` has run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, final

from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Primitive, Var, all_prims
from fxad.primitives.control.call import Applied
from fxad.primitives.elementwise.arithmetic import Div
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.primitives.elementwise.trigonometric import Cos, Sin, Tan
from fxad.primitives.fusion import ARITHMETIC, MOVES, VIEWS, Kinds
from fxad.primitives.reduce import ReduceMax, ReduceMin
from fxad.primitives.shape import ReduceSum
from fxad.primitives.slicing import Concatenate, Pad, Slice

# A value, by the program that it stands in.
StoredValue: TypeAlias = tuple[Jaxpr, Var]
# A kernel that computes a value: of an array in memory, of an operand of a `concatenate`, or of a reduction.
_Kernel: TypeAlias = int

_FUSED: Final[Kinds] = (Unary, Binary, *ARITHMETIC, *VIEWS, *MOVES, Slice, Pad)
_REDUCTIONS: Final = (ReduceSum, ReduceMax, ReduceMin)
_REPEATED: Final = (Sin, Cos, Tan)  # XLA repeats them in each kernel that reads them
_ELEMENTS: Final = 1024  # a kernel more takes as long as about 300 sines
_DEPTH: Final = 40  # of calls and bodies that are followed
_EQUATIONS: Final = 1 << 14  # that are looked at, calls inlined
_KERNELS: Final = 8  # of a value that are remembered
# Storing a value costs a kernel more, and memory traffic. From these numbers on it takes less time than to compute the
# value as often; they were fitted to the programs of docs/adr/0118. XLA stores the values of other functions than
# `_REPEATED` itself if several kernels read them, so of these only the operands of one `concatenate` count.
_OPERANDS_FOR_OTHERS: Final = 4
_OPERANDS_FOR_REPEATED: Final = 3
_KERNELS_FOR_REPEATED: Final = 2


@by_value
def stored_values(jaxpr: Jaxpr) -> frozenset[StoredValue]:
    """Return the values of functions that several kernels would compute, as far as calls are inlined.

    Cost: none without such a function; else linear in the equations, calls inlined, up to a limit.
    """
    if not _may_repeat(jaxpr):
        return frozenset()
    readers = _Readers()
    readers.follow(jaxpr, readers.in_memory(jaxpr, jaxpr.outs), 0)
    return frozenset(readers.stored) if readers.equations_left > 0 else frozenset()


@by_value
def _may_repeat(jaxpr: Jaxpr) -> bool:
    prims = all_prims(jaxpr)
    joins = any([isinstance(prim, Concatenate) for prim in prims])
    return any([isinstance(prim, _REPEATED) or (joins and _is_function(prim)) for prim in prims])


def _is_function(prim: Primitive) -> bool:
    return isinstance(prim, Unary | Binary) and not isinstance(prim, (*ARITHMETIC, *VIEWS, Div))


@final
class _Readers:
    """Which kernels would compute each value, from the last equation to the first."""

    def __init__(self) -> None:
        self.stored: set[StoredValue] = set()
        self.equations_left = _EQUATIONS
        self._kernels = 0
        self._joined: dict[_Kernel, int] = {}  # the kernel of a `concatenate`, by that of an operand
        self._in_memory: dict[tuple[Jaxpr, Atom], frozenset[_Kernel]] = {}

    def new_kernel(self) -> frozenset[_Kernel]:
        self._kernels += 1
        return frozenset((self._kernels,))

    def in_memory(self, jaxpr: Jaxpr, atoms: Sequence[Atom]) -> list[frozenset[_Kernel]]:
        """Return the kernels that write values to memory: one for each, whatever reads it there.

        The value of a body has one number for all calls of the body, though each call runs a kernel of its own. So an
        argument that two calls take counts one kernel, not two, and may not be stored: that costs time, as without this
        module. Values inside of the body are counted at each call (`follow`), and stored in all calls or in none.
        """
        return [
            self._in_memory.get((jaxpr, a)) or self._in_memory.setdefault((jaxpr, a), self.new_kernel()) for a in atoms
        ]

    def follow(self, jaxpr: Jaxpr, results: Sequence[frozenset[_Kernel]], depth: int) -> list[frozenset[_Kernel]]:
        """Return the kernels that compute each operand, from those that compute the results."""
        computed: dict[Atom, frozenset[_Kernel]] = {}

        def note(atoms: Iterable[Atom], kernels: Iterable[frozenset[_Kernel]]) -> None:
            for a, added in zip(atoms, kernels, strict=True):
                if added and isinstance(a, Var):
                    earlier = computed.get(a)
                    computed[a] = added if earlier is None else frozenset(sorted(earlier | added)[:_KERNELS])

        note(jaxpr.outs, results)
        self.equations_left -= len(jaxpr.eqns)
        if self.equations_left <= 0:
            return [frozenset()] * len(jaxpr.ins)
        for eqn in reversed(jaxpr.eqns):
            outs = [computed.get(v, frozenset()) for v in eqn.outs]
            if any(outs) or eqn.prim.effects:
                note(eqn.ins, self._operands(jaxpr, eqn, outs, depth))
        return [computed.get(v, frozenset()) for v in jaxpr.ins]

    def _operands(
        self, jaxpr: Jaxpr, eqn: Eqn, outs: Sequence[frozenset[_Kernel]], depth: int
    ) -> Sequence[frozenset[_Kernel]]:
        """Return the kernels that compute each operand of an equation, from those that compute its results."""
        prim, n = eqn.prim, len(eqn.ins)
        if isinstance(prim, Applied) and depth < _DEPTH:
            return self.follow(prim.applied, outs, depth + 1)
        if isinstance(prim, HigherOrder) and depth < _DEPTH:
            for body in prim.bodies:
                if _may_repeat(body):
                    self.follow(body, self.in_memory(body, body.outs), depth + 1)
        if isinstance(prim, Concatenate):
            self._kernels += 1
            joined, slots = self._kernels, [self.new_kernel() for _ in eqn.ins]
            self._joined.update({k: joined for slot in slots for k in slot})
            return slots
        if isinstance(prim, _REDUCTIONS):
            return [self.new_kernel()] * n
        if not isinstance(prim, _FUSED):
            return self.in_memory(jaxpr, eqn.ins)
        (kernels,) = outs
        if len(kernels) <= 1 or not _is_function(prim):
            return [kernels] * n  # the kernel of each reader computes the equation too, and reads its operands
        if eqn.outs[0].aval.size >= _ELEMENTS and self._is_worth_storing(prim, kernels):
            self.stored.add((jaxpr, eqn.outs[0]))
        # The value is in memory, stored here or by XLA, so one kernel reads the operands. A value that is not (a small
        # one, or one that few operands of a `concatenate` read) is computed by several kernels, which all read the
        # operands. They count as one too: an operand may then not be stored that should be.
        return [self.new_kernel()] * n

    def _is_worth_storing(self, prim: Primitive, kernels: frozenset[_Kernel]) -> bool:
        """Return True if storing the value takes less time than to compute it in so many kernels."""
        joined = Counter([self._joined[k] for k in kernels if k in self._joined])  # operands of each `concatenate`
        most_operands = max(joined.values(), default=0)
        if not isinstance(prim, _REPEATED):
            return most_operands >= _OPERANDS_FOR_OTHERS
        # a `concatenate` is one kernel, however many of its operands read it
        other_kernels = len(kernels) - joined.total()
        return most_operands >= _OPERANDS_FOR_REPEATED or len(joined) + other_kernels >= _KERNELS_FOR_REPEATED
