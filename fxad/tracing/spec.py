"""`Spec`: the type of an argument where there is no example."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import numpy as np

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.core.sizes.text import Reader
from fxad.errors import ArgumentError, ParameterError, shown
from fxad.ir import Aval
from fxad.runtime import SupportsDLPack
from fxad.tracing.array import Array, aval_of


@dataclass(frozen=True, slots=True)
class Spec:
    """The type of an argument where there is no example: `Spec((32, 64), "float32")`, `Spec("(n, 64)")`.

    A text names sizes: the program is traced for every size. `n>=1` states an assumption.
    """

    shape: tuple[int, ...]
    dtype: dtypes.DType

    def __init__(self, shape: Iterable[int] | str, dtype: object = "float32", *, sharding: None = None) -> None:
        if sharding is not None:
            raise ParameterError(
                f"Spec: sharding is {shown(sharding)}; a type has none",
                remedy="put the argument where it belongs: device_put(x, sharding)",
            )
        aval = Aval(symbolic_shape(shape) if isinstance(shape, str) else shape, dtype)
        object.__setattr__(self, "shape", aval.shape)
        object.__setattr__(self, "dtype", aval.dtype)

    @classmethod
    def like(cls, x: object) -> Spec:
        """Return the type of an array, of a number, or of what has a shape and a dtype."""
        like = spec_like(x) or aval_of_example(x, "Spec.like")
        return Spec(like.shape, like.dtype)

    @property
    def aval(self) -> Aval:
        """The type in the IR."""
        return Aval(self.shape, self.dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def update(self, *, shape: Iterable[int] | None = None, dtype: object = None) -> Spec:
        """Return the type with another shape or dtype."""
        return Spec(self.shape if shape is None else shape, self.dtype if dtype is None else dtype)


ShapeDtypeStruct = Spec  # JAX's name


@final
@dataclass(frozen=True, slots=True)
class ArgInfo(Spec):
    """The type of an argument of a lowered program, and whether its calls donate it."""

    donated: bool

    def __init__(self, shape: Iterable[int] | str, dtype: object = "float32", donated: bool = False) -> None:
        Spec.__init__(self, shape, dtype)
        object.__setattr__(self, "donated", donated)


def spec_like(x: object) -> Spec | None:
    """Return the `Spec` of an object that is no array and has a shape and a dtype; None for any other."""
    if isinstance(x, Array | np.ndarray | np.generic | SupportsDLPack | type):
        return None
    return Spec(x.shape, x.dtype) if hasattr(x, "shape") and hasattr(x, "dtype") else None


def symbolic_shape(text: str) -> tuple[int, ...]:
    """Return the shape of a text without `_`. Raises: ArgumentError."""
    shape = Reader(text, {}).shape()
    if None in shape:
        raise ArgumentError(f"shape: {text!r} has a size '_', and there is no example", remedy="give the number")
    return tuple([n for n in shape if n is not None])


def aval_of_example(value: object, what: str) -> Aval:
    """Return the type of an example argument or a `Spec`. Raises: ArgumentError."""
    return value.aval if isinstance(value, Spec) else aval_of(value, what)
