"""Tables of the primitives that XLA fuses, by the code that they become: none, moves of elements, an instruction.

The cost of a fused equation is that of reading and writing the values. Every rule that asks what an equation costs
reads these tables: compile time and units (`fxad.transforms.costs`), recomputation between units, and the residuals of
loops.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from fxad.ir import Primitive
from fxad.primitives.elementwise.arithmetic import Add, Max, Min, Mul, Neg, Sub
from fxad.primitives.elementwise.complex_parts import Complex, Conj, Imag, Real
from fxad.primitives.elementwise.convert import ConvertElementType, StopGradient
from fxad.primitives.elementwise.family import Compare
from fxad.primitives.elementwise.logic import And, IsFinite, Not, Or, Xor
from fxad.primitives.elementwise.powers import Abs, IntegerPow, Sign, Square
from fxad.primitives.elementwise.select import Ceil, Clamp, Floor, Round, SelectN
from fxad.primitives.marks import Mark
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Iota, Reshape, Rev, Squeeze, Transpose
from fxad.primitives.sharding_constraint import ShardingConstraint

Kinds: TypeAlias = tuple[type[Primitive], ...]

# no code is compiled for these
VIEWS: Final[Kinds] = (ExpandDims, Reshape, Squeeze, StopGradient, Mark, ShardingConstraint)
# these move or repeat elements
MOVES: Final[Kinds] = (BroadcastInDim, Rev, Transpose, Iota)
# one machine instruction for an element
ARITHMETIC: Final[Kinds] = (
    Add, Sub, Mul, Neg, Max, Min, Abs, Sign, Square, IntegerPow, Floor, Ceil, Round, Clamp, SelectN, Compare,
    And, Or, Xor, Not, IsFinite, ConvertElementType, Real, Imag, Conj, Complex,
)  # fmt: skip
