"""The axes along which the padding of a value is known to be zero, so that it need not be filled with zeros again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from fxad.ir import Atom, Atoms, Lit, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.elementwise.family import Unary
from fxad.primitives.shape import BroadcastInDim, ExpandDims, ReduceSum, Squeeze, Transpose

# Axes, each with the size that is valid: elements at indices from this size on are zero.
ZeroAxes: TypeAlias = frozenset[tuple[int, int]]

# f(0) = 0, and not -0.0. The derivatives of all orders are finite at 0: sqrt and cbrt are not here, for 0 * inf is nan
_KEEPS: Final[tuple[Unary, ...]] = (
    *(ew.SIN, ew.TAN, ew.TANH, ew.ASIN, ew.ATAN, ew.SINH, ew.ASINH, ew.ATANH, ew.ERF),
    *(ew.EXPM1, ew.LOG1P, ew.ABS, ew.SIGN, ew.SQUARE, ew.STOP_GRADIENT),
)
_OF_ZEROS: Final = (ew.ADD, ew.SUB, ew.MUL, ew.MAX, ew.MIN)


def zero_axes(prim: Primitive, args: Atoms, known: Callable[[Atom], ZeroAxes]) -> ZeroAxes:
    """The axes along which the padding of the result is zero, given those of the operands."""
    if not args:
        return frozenset()
    first = known(args[0])
    if prim in _KEEPS or isinstance(prim, ew.ConvertElementType):
        return first
    if prim in _OF_ZEROS:
        x, y = args
        if prim is ew.MUL and (_is_positive(x) or _is_positive(y)):
            return known(y) if _is_positive(x) else first
        return _in_all(args, known)
    if prim is ew.SELECT_N:
        return _in_all(args[1:], known)
    if prim is ew.DIV:
        return first if _is_positive(args[1]) else frozenset()
    if isinstance(prim, Transpose):
        return frozenset([(prim.perm.index(a), n) for a, n in first])
    if isinstance(prim, BroadcastInDim):
        return frozenset([(prim.dims[a], n) for a, n in first])
    if isinstance(prim, ReduceSum | Squeeze):
        return frozenset([(a - sum([b < a for b in prim.axes]), n) for a, n in first if a not in prim.axes])
    if isinstance(prim, ExpandDims):
        places = [a for a in range(args[0].aval.ndim + len(prim.axes)) if a not in prim.axes]
        return frozenset([(places[a], n) for a, n in first])
    return frozenset()


def _in_all(args: Sequence[Atom], known: Callable[[Atom], ZeroAxes]) -> ZeroAxes:
    """The axes of all operands that are not zero everywhere."""
    found = [known(a) for a in args if not _is_zero(a)]
    return frozenset.intersection(*found) if found else frozenset()


def _is_zero(x: Atom) -> bool:
    return isinstance(x, Lit) and x.size is None and not any(x.bits)


def _is_positive(x: Atom) -> bool:
    """Returns True for a literal that is a positive number: 0 times it is 0, and not nan or -0.0."""
    if not isinstance(x, Lit) or x.size is not None or x.aval.dtype.kind == "c":
        return False
    value = np.asarray(x.value).astype(np.float64)
    return bool(np.isfinite(value) and value > 0)


__all__ = ["ZeroAxes", "zero_axes"]
