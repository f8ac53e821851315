"""Functions of whole trees of arrays: `ravel` and `global_norm`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import fxad.numpy as fnp
from fxad import dtypes
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.dtypes import DType
from fxad.errors import ArgumentError, DTypeError, FxadError, ShapeError, described, shown
from fxad.tracing.array import Array

T = TypeVar("T")


def ravel(values: T) -> tuple[Array, Callable[[object], T]]:
    """Return the leaves of a tree of arrays in one vector, and the function from such a vector to such a tree.

    Rule:   the vector has the common dtype of the leaves, by promotion; `unravel` gives each leaf its own dtype back:
            a real leaf is the real part of complex elements.
    Law:    `unravel(flat)` is the tree, with an array for each leaf.
    Raises: ArgumentError for a leaf that is not an array; DTypeError when there is no common dtype. `unravel`:
            ArgumentError, ShapeError, DTypeError for what is not a vector like `flat`.
    """
    flat, shape = tree.flatten(values)
    arrays = _arrays("tree.ravel", flat, shape)
    # of the original leaves: Python numbers among them take the dtype of the arrays
    dtype = fnp.result_type(*flat) if flat else fnp.float32
    vector = fnp.concat([x.astype(dtype).reshape(-1) for x in arrays]) if arrays else fnp.zeros(0, dtype)
    unravel: Callable[[object], T] = _unravel(
        shape, [(x.shape, x.dtype) for x in arrays], vector.shape[0], vector.dtype
    )
    return vector, unravel


def _arrays(what: str, leaves: Sequence[Any], structure: Structure) -> list[Array]:
    """Return the leaves of a tree as arrays. Raises: ArgumentError naming the path of another leaf."""
    arrays = []
    for k, x in enumerate(leaves):
        try:
            arrays.append(fnp.asarray(x))
        except FxadError as e:
            path = tree.paths(structure, "tree")[k]
            raise ArgumentError(
                f"{what}: {path} is {described(x)}, not an array: {shown(x)}",
                remedy="give a tree of arrays and numbers",
            ) from e
    return arrays


def _unravel(
    shape: Structure, parts: Sequence[tuple[tuple[int, ...], DType]], size: int, dtype: DType
) -> Callable[[object], Any]:
    def unravel(vector: Any) -> Any:
        if not hasattr(vector, "dtype"):
            raise ArgumentError(
                f"unravel: {described(vector)} is not a vector: {shown(vector)}",
                remedy="give an array like the vector that ravel made",
            )
        if tuple(vector.shape) != (size,):
            raise ShapeError(
                f"unravel: the vector has shape {tuple(vector.shape)}, the tree needs ({size},)",
                remedy="give a vector with an element for each element of the tree",
            )
        if vector.dtype != dtype:
            raise DTypeError(
                f"unravel: the vector has dtype {vector.dtype}, that of the tree has {dtype.name}",
                remedy=f"convert it with astype('{dtype.name}'); nothing is converted silently",
            )
        whole, leaves, start = fnp.asarray(vector), [], 0
        for leaf_shape, leaf_dtype in parts:
            end = start + prod(leaf_shape)
            part = whole[start:end].reshape(leaf_shape)
            part = part.real if dtype in dtypes.COMPLEX and leaf_dtype not in dtypes.COMPLEX else part
            leaves.append(part.astype(leaf_dtype))
            start = end
        return tree.unflatten(shape, leaves)

    return unravel


def global_norm(values: object) -> Array:
    """Return the Euclidean norm of all elements of a tree of arrays, a scalar; 0.0 for a tree without leaves.

    Type: float32, or wider where a leaf is. float16 and bfloat16 are summed in float32.
    """
    sums = [_sum_of_squares(x) for x in _arrays("tree.global_norm", *tree.flatten(values))]
    total = sum(sums[1:], sums[0]) if sums else fnp.zeros((), fnp.float32)
    zero = total == 0  # the derivative of the norm at 0 is 0, as that of `linalg.norm`; that of the root is infinite
    return fnp.where(zero, 0, fnp.sqrt(fnp.where(zero, 1, total)))


def _sum_of_squares(x: Array) -> Array:
    if fnp.iscomplexobj(x):
        return fnp.sum(fnp.real(x) ** 2 + fnp.imag(x) ** 2)
    return fnp.sum(x.astype(fnp.promote_types(x.dtype, fnp.float32)) ** 2)
