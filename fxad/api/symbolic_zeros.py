"""The arguments of rules with `symbolic_zeros=True`: tangents that are zero, and primals with a flag for their
cotangent."""

from __future__ import annotations

from typing import final

from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.ir import Aval, Shape, Zero
from fxad.lax.creation import splat
from fxad.tracing.array import Array


@final
@dataclass(frozen=True, slots=True)
class SymbolicZero:
    """A tangent that is zero: it has a type and no elements. A rule may also return one."""

    aval: Aval

    @property
    def shape(self) -> Shape:
        """The shape that the tangent would have."""
        return self.aval.shape

    @property
    def dtype(self) -> DType:
        """The dtype that the tangent would have."""
        return self.aval.dtype

    def instantiate(self) -> Array:
        """The array of zeros."""
        return splat(Zero(self.aval).instantiate())


@final
@dataclass(frozen=True, slots=True, eq=False)
class CustomVJPPrimal:
    """An argument of `fwd`: its value, and whether its cotangent is needed."""

    value: object
    perturbed: bool
