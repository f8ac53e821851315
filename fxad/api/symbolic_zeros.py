"""The arguments of rules with `symbolic_zeros=True`: tangents that are zero, and primals with a flag for their
cotangent."""

from __future__ import annotations

from typing import Any, final

from fxad.core.dataclasses import dataclass
from fxad.core.trees import tree
from fxad.dtypes import DType
from fxad.ir import Aval, Shape, Zero
from fxad.lax.creation import splat
from fxad.operations.arguments import flag
from fxad.tracing.array import Array, ArrayLike, aval_of


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
        """Return the array of zeros."""
        return splat(Zero(self.aval).instantiate())


@final
@dataclass(frozen=True, slots=True, eq=False)
class CustomVJPPrimal:
    """An argument of `fwd`: its value, and whether its cotangent is needed."""

    value: object
    perturbed: bool


def custom_vjp_primal_tree_values(tree_of_primals: object) -> Any:
    """Return the arguments of a `fwd` with symbolic zeros, as without: each `CustomVJPPrimal` is replaced by its
    value."""
    return tree.map(lambda x: x.value, tree_of_primals, is_leaf=lambda x: isinstance(x, CustomVJPPrimal))


def zero_from_primal(val: ArrayLike, symbolic_zeros: bool = False) -> Array | SymbolicZero | None:
    """Return the tangent of `val` that is zero: an array, a `SymbolicZero`, or None for an integer."""
    aval = aval_of(val, "zero_from_primal: argument 0")
    if not aval.inexact:
        return None
    zero = SymbolicZero(aval)
    return zero if flag("zero_from_primal", "symbolic_zeros", symbolic_zeros) else zero.instantiate()
