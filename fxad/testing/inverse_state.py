"""The state of generated invertible programs, and functions of real and complex numbers for their steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.core.dataclasses import dataclass
from fxad.tracing.array import Array

State: TypeAlias = tuple[Array, ...]


@final
@dataclass(frozen=True, slots=True)
class HeldArrays:
    """Operands that are not reconstructed: an array like the state, a matrix, and a bool."""

    w: Array
    a: Array
    flag: Array


@final
@dataclass(frozen=True, slots=True)
class Move:
    """One step of a chain: its name, numbers that parametrise it, and the steps of its bodies."""

    name: str
    i: int = 0
    j: int = 0
    bodies: tuple[tuple[Move, ...], ...] = ()


Apply: TypeAlias = Callable[[State, HeldArrays, Move], State]
UnaryFunction: TypeAlias = Callable[[Array], Array]


def has_tangent(x: Array) -> bool:
    """Return True if an array has a tangent."""
    return x.dtype in dtypes.INEXACT


def is_complex(x: Array) -> bool:
    """Return True for a complex array."""
    return x.dtype in dtypes.COMPLEX


def cast_like(x: Array, like: Array) -> Array:
    """Return x in the dtype of another array; the real part if x is complex and the other is real."""
    if is_complex(x) and not is_complex(like):
        x = fnp.real(x)
    return x if x.dtype == like.dtype else x.astype(like.dtype)


def on_complex_parts(function: UnaryFunction) -> UnaryFunction:
    """Extend a function of real numbers to complex ones, part by part."""
    return lambda x: lax.complex(function(fnp.real(x)), function(fnp.imag(x))) if is_complex(x) else function(x)


sine: Final = on_complex_parts(fnp.sin)
squashed: Final = on_complex_parts(fnp.tanh)


def factor_from(x: Array) -> Array:
    """Return a factor between 1/2 and 3/2 that depends on x; for complex x, of similar magnitude."""
    return 1.0 + 0.5 * sine(x)
