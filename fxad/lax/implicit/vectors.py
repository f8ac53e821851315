"""Conversion of pytrees to vectors: iterative methods work on one vector, in one dtype, for every tree."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, final

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.trees import tree
from fxad.dtypes import DType
from fxad.ir import Aval
from fxad.lax.binary import complex as complex_of, max as maximum, min as minimum, select
from fxad.lax.contractions import dot
from fxad.lax.creation import convert, full, full_like
from fxad.lax.elementwise import abs as absolute, is_finite, sqrt
from fxad.lax.implicit.maps import TreeType
from fxad.lax.reductions import reduce_max, reduce_sum
from fxad.lax.shapes import broadcast_in_dim, concatenate
from fxad.operations.promotion import promote_dtypes
from fxad.tracing.array import Array, asarray

VectorMap = Callable[[Array], Array]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """The vectors for trees of a type: all leaves concatenated, in `dtype`. If that is real, a complex leaf is its real
    part, then its imaginary part.

    The vector of {"a": [1., 2.], "z": [3 + 4j]} is [1., 2., 3., 4.], because not all leaves are complex.
    """

    x_type: TreeType
    dtype: DType

    @property
    def size(self) -> int:
        """The number of elements of all leaves."""
        return sum([prod(a.shape) for a in self.x_type.avals])

    @property
    def over_reals(self) -> Space:
        """Return the space of the same trees as real vectors."""
        return Space(self.x_type, dtypes.real_part(self.dtype)) if self.dtype.kind == "c" else self

    def _splits_complex(self, dtype: DType) -> bool:
        return dtype.kind == "c" and self.dtype.kind != "c"

    def vector(self, value: object) -> Array:
        """Return the vector of a tree."""
        parts: list[Array] = []
        for leaf in tree.leaves(value):
            x = asarray(leaf)
            parts += [x.real, x.imag] if self._splits_complex(x.dtype) else [x]
        parts = [convert(x, self.dtype).reshape(-1) for x in parts]
        return parts[0] if len(parts) == 1 else concatenate(parts, 0)

    def tree(self, vector: Array) -> Any:
        """Return the tree of a vector, each leaf in its own dtype."""
        out, at = [], 0

        def taken(aval: Aval, dtype: DType) -> Array:
            nonlocal at
            start, at = at, at + prod(aval.shape)
            return convert(vector[start:at].reshape(aval.shape), dtype)

        for aval in self.x_type.avals:
            if self._splits_complex(aval.dtype):
                part = dtypes.real_part(aval.dtype)
                out.append(complex_of(taken(aval, part), taken(aval, part)))
            else:
                out.append(taken(aval, aval.dtype))
        return tree.unflatten(self.x_type.structure, out)

    def lifted(self, fn: Callable[[Any], object]) -> VectorMap:
        """Return a function of trees as a function of vectors."""
        return lambda vector: self.vector(fn(self.tree(vector)))


def vector_space_of(what: str, x_type: TreeType) -> Space:
    """Return the vector space of a type: real, unless all leaves are complex; half precision is computed in single."""
    every = all([a.dtype.kind == "c" for a in x_type.avals])
    leaf_dtypes = [
        a.dtype if every else dtypes.real_part(a.dtype) if a.dtype.kind == "c" else a.dtype for a in x_type.avals
    ]
    dtype = leaf_dtypes[0] if every else dtypes.float32
    for other in leaf_dtypes:
        dtype = promote_dtypes(what, dtype, other)
    return Space(x_type, dtype)


def epsilon(dtype: DType) -> float:
    """Return the distance from 1 to the next number of a dtype, or of its real part."""
    real = dtypes.real_part(dtype) if dtype.kind == "c" else dtype
    digits = {"bfloat16": 7, "float16": 10, "float32": 23, "float64": 52}[real.name]
    return float(2.0**-digits)


# ---------------------------------------------------------------------------------------------------------- arithmetic


def inner_product(x: Array, y: Array) -> Array:
    """Return the inner product, linear in the second argument."""
    return dot(x.conj(), y) if x.dtype.kind == "c" else dot(x, y)


def real_part(x: Array) -> Array:
    """Return the real part."""
    return x.real if x.dtype.kind == "c" else x


def max_abs(x: Array) -> Array:
    """Return the greatest absolute value, or 0 for an empty vector."""
    greatest = reduce_max(absolute(x), (0,))  # -inf for an empty vector
    return greatest if at_least(x.shape[0], 1) else maximum(greatest, 0)


def safe_divisor(x: Array) -> Array:
    """Return the greatest absolute value, limited to numbers whose reciprocal is neither 0 nor infinite."""
    size = max_abs(x)
    bound = 2.0**1020 if size.dtype is dtypes.float64 else 2.0**124
    return minimum(maximum(size, 1 / bound), bound)


def norm(x: Array) -> Array:
    """Return the Euclidean norm, without overflow or underflow of squares; nan if an element is nan or infinite."""
    scale = safe_divisor(x)
    part = absolute(x) * (1 / scale)
    squares = reduce_sum(part * part, (0,))
    return select_value(is_finite(squares), scale * sqrt(squares), float("nan"))


def unscaled_norm(x: Array) -> Array:
    """Return the Euclidean norm of a vector whose squares neither overflow nor underflow; `norm` scales any other."""
    part = absolute(x)
    return sqrt(reduce_sum(part * part, (0,)))


def select_value(pred: Array, a: Array | complex, b: Array | complex) -> Array:
    """Select one of two values of the same type, of which one may be a Python number."""
    like = a if isinstance(a, Array) else b
    assert isinstance(like, Array)
    first, second = [x if isinstance(x, Array) else full_like(like, x) for x in (a, b)]
    return select(broadcast_in_dim(pred, like.shape, ()), first, second)


def safe_ratio(a: Array, b: Array) -> Array:
    """Return a / b, or 0 where b is 0."""
    return select_value(b != 0, a / select_value(b != 0, b, 1), 0)


def first_case(*cases: tuple[Array, int]) -> Array:
    """Return the number of the first case that holds, as an int32; 0 if none does."""
    out = full((), 0, dtypes.int32)
    for pred, number in reversed(cases):
        out = select_value(pred, full((), number, dtypes.int32), out)
    return out
