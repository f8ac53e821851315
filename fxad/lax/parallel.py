"""Collectives: what the examples of a mapped axis, or the devices of a mesh, exchange.

A map binds the name of an axis: `vmap(f, axis_name="i")`, `pmap` or `shard_map`. In `f`, an array is the value of one
index of the axis, and `psum(x, "i")` is the sum of the values of all indices. Several axes are named by a tuple, the
first one slowest. `axis_index_groups` divides the indices of one axis into groups of one size, which communicate among
themselves only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias, TypeVar

import numpy as np

from fxad import dtypes
from fxad.core.trees import tree
from fxad.errors import ArgumentError, AxisNameError, ParameterError, ShapeError, shown
from fxad.ir import Atom, Emit, Primitive
from fxad.lax.elementwise import convert_element_type
from fxad.operations.arguments import flag, is_word, to_int, to_ints, to_tuple
from fxad.operations.axes import normalize_axis_index
from fxad.primitives.collectives import (
    AllGather,
    AllToAll,
    AxisIndex,
    AxisNames,
    Groups,
    Pmax,
    Pmin,
    Ppermute,
    Psum,
    PsumScatter,
    Sizes,
    flat_index,
    has_number,
)
from fxad.primitives.shape import ExpandDims, Squeeze, Transpose
from fxad.sharding import flatten_shardings, sharding_in_program
from fxad.tracing.array import Array, ArrayLike, aval_of, binder
from fxad.tracing.context import resolve_sharding, size_of_axis

T = TypeVar("T")
AxisName: TypeAlias = str | Sequence[str]
AxisGroups: TypeAlias = Sequence[Sequence[int]] | None


def named_axes(op: str, axis_name: AxisName) -> tuple[AxisNames, Sizes]:
    """Return the axes with their sizes. Raises: AxisNameError, ArgumentError."""
    names = (axis_name,) if isinstance(axis_name, str) else to_tuple(op, "axis_name", axis_name)
    sizes = tuple([size_of_axis(op, name) for name in names])
    if len(set(names)) != len(names):
        raise AxisNameError(f"{op}: axis_name {names} names an axis twice", remedy="name each axis once")
    return names, sizes


def _one_or_more_axes(op: str, axis_name: AxisName) -> tuple[AxisNames, Sizes]:
    """Return `named_axes`, for a collective that needs an axis. Raises: ParameterError too."""
    names, sizes = named_axes(op, axis_name)
    if not names:
        raise ParameterError(f"{op}: axis_name {shown(axis_name, 40)} names no axis", remedy="name one axis or more")
    return names, sizes


def _to_groups(op: str, groups: AxisGroups) -> Groups:
    if groups is None:
        return ()
    return tuple([to_ints(op, "axis_index_groups", g) for g in to_tuple(op, "axis_index_groups", groups)])


def _checked(op: str, x: T) -> T:
    """Return a pytree of arrays, as it is. Raises: ArgumentError for a leaf that is no array."""
    leaves, structure = tree.flatten(x)
    for leaf, path in zip(leaves, tree.paths(structure, "x"), strict=True):
        aval_of(leaf, f"{op}: {path}")
    return x


def _each(prim: Primitive, x: T) -> T:
    """Return the primitive applied to each leaf of a pytree."""
    return tree.map(lambda leaf: binder().bind(prim, (leaf,))[0], x)


def psum(x: T, axis_name: AxisName, *, axis_index_groups: AxisGroups = None) -> T:
    """Return the sum over the indices of named axes, of each leaf of a pytree. The psum of a Python number is one.
    Bools are counted, in int32."""
    names, sizes = named_axes("psum", axis_name)
    groups = _to_groups("psum", axis_index_groups)
    if not names:
        return _checked("psum", x)
    prim = Psum(names, sizes, groups)
    width = prim.width

    def one(leaf: object) -> object:
        if isinstance(leaf, int | float | complex) and not isinstance(leaf, np.generic):
            return leaf * width
        if isinstance(leaf, np.bool_ | np.ndarray | Array) and leaf.dtype == np.bool_:
            leaf = convert_element_type(leaf, np.int32)
        return binder().bind(prim, (leaf,))[0]

    return tree.map(one, x)


def pmean(x: T, axis_name: AxisName, *, axis_index_groups: AxisGroups = None) -> T:
    """Return the mean over the indices of named axes, of each leaf of a pytree. That of bools is the part that is
    True."""
    names, sizes = named_axes("pmean", axis_name)
    width = Psum(names, sizes, _to_groups("pmean", axis_index_groups)).width if names else 1

    def mean(leaf: Array) -> Array:
        aval = aval_of(leaf, "pmean: x")
        wide = dtypes.accumulated(aval.dtype)
        if wide == aval.dtype or has_number(aval, width):
            return psum(leaf, axis_name, axis_index_groups=axis_index_groups) / width
        total = psum(convert_element_type(leaf, wide), axis_name, axis_index_groups=axis_index_groups)
        return convert_element_type(total / width, aval.dtype)

    return tree.map(mean, _checked("pmean", x))


def pmax(x: T, axis_name: AxisName, *, axis_index_groups: AxisGroups = None) -> T:
    """Return the greatest value over the indices of named axes, of each leaf of a pytree."""
    names, sizes = named_axes("pmax", axis_name)
    return _each(Pmax(names, sizes, _to_groups("pmax", axis_index_groups)), x) if names else _checked("pmax", x)


def pmin(x: T, axis_name: AxisName, *, axis_index_groups: AxisGroups = None) -> T:
    """Return the least value over the indices of named axes, of each leaf of a pytree."""
    names, sizes = named_axes("pmin", axis_name)
    return _each(Pmin(names, sizes, _to_groups("pmin", axis_index_groups)), x) if names else _checked("pmin", x)


def all_gather(
    x: T, axis_name: AxisName, *, axis_index_groups: AxisGroups = None, axis: int = 0, tiled: bool = False
) -> T:
    """Return the values of all indices of named axes, of each leaf: stacked along a new `axis`, or concatenated along
    an existing one if `tiled`."""
    names, sizes = _one_or_more_axes("all_gather", axis_name)
    groups, tiled = _to_groups("all_gather", axis_index_groups), flag("all_gather", "tiled", tiled)

    def one(leaf: ArrayLike) -> Array:
        ndim = aval_of(leaf, "all_gather: x").ndim
        at = normalize_axis_index("all_gather", axis, ndim + (not tiled))
        (y,) = (leaf,) if tiled else binder().bind(ExpandDims((at,)), (leaf,))
        return binder().bind(AllGather(names, sizes, at, groups), (y,))[0]

    return tree.map(one, x)


def psum_scatter(
    x: T,
    axis_name: AxisName,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: AxisGroups = None,
    tiled: bool = False,
) -> T:
    """Return the sum over the indices of named axes, for each leaf. Each index has one part of it along
    `scatter_dimension`.

    The dimension is as long as there are indices, and removed, unless `tiled`: then it is a multiple of that.
    """
    names, sizes = _one_or_more_axes("psum_scatter", axis_name)
    groups, tiled = _to_groups("psum_scatter", axis_index_groups), flag("psum_scatter", "tiled", tiled)

    def one(leaf: ArrayLike) -> Array:
        aval = aval_of(leaf, "psum_scatter: x")
        at = normalize_axis_index("psum_scatter", scatter_dimension, aval.ndim)
        prim = PsumScatter(names, sizes, at, groups)
        if not tiled:
            _check_one_element_per_index("psum_scatter", "scatter_dimension", at, aval.shape, prim.width)
        (y,) = binder().bind(prim, (leaf,))
        return y if tiled else binder().bind(Squeeze((at,)), (y,))[0]

    return tree.map(one, x)


def all_to_all(
    x: T,
    axis_name: AxisName,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: AxisGroups = None,
    tiled: bool = False,
) -> T:
    """Exchange parts: for each leaf, index k receives part k along `split_axis` of the value of every index. It
    concatenates the parts in order along `concat_axis`.

    `split_axis` is as long as there are indices; it is removed, and `concat_axis` is new. If `tiled`, it is a multiple
    of that, and the parts are concatenated along an existing axis.
    """
    names, sizes = _one_or_more_axes("all_to_all", axis_name)
    groups, tiled = _to_groups("all_to_all", axis_index_groups), flag("all_to_all", "tiled", tiled)

    def one(leaf: ArrayLike) -> Array:
        aval = aval_of(leaf, "all_to_all: x")
        split = normalize_axis_index("all_to_all", split_axis, aval.ndim)
        concat = normalize_axis_index("all_to_all", concat_axis, aval.ndim)
        if tiled:
            return binder().bind(AllToAll(names, sizes, split, concat, groups), (leaf,))[0]
        prim = AllToAll(names, sizes, split, split, groups)
        _check_one_element_per_index("all_to_all", "split_axis", split, aval.shape, prim.width)
        (y,) = binder().bind(prim, (leaf,))
        order = [a for a in range(aval.ndim) if a != split]
        order.insert(concat, split)
        return y if split == concat else binder().bind(Transpose(tuple(order)), (y,))[0]

    return tree.map(one, x)


def _check_one_element_per_index(op: str, what: str, at: int, shape: tuple[int, ...], count: int) -> None:
    """Raise ShapeError if axis `at` does not have one element for each of `count` indices."""
    if shape[at] != count:
        raise ShapeError(
            f"{op}: {what} {at} of shape {shape} has size {shape[at]}, there are {count} indices",
            remedy="give an axis of that size, or tiled=True for a multiple of it",
        )


def ppermute(x: T, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> T:
    """Send values between indices: each index gets the value of another one, for each leaf. `perm` lists pairs
    `(source, target)`. An index that is no target has zeros."""
    names, sizes = _one_or_more_axes("ppermute", axis_name)
    pairs = [to_ints("ppermute", "perm", p) for p in to_tuple("ppermute", "perm", perm)]
    for k, pair in enumerate(pairs):
        if len(pair) != 2:
            raise ArgumentError(
                f"ppermute: perm[{k}] is {pair}, not a pair", remedy="give pairs (source, target) of indices"
            )
    return _each(Ppermute(names, sizes, tuple([(s, d) for s, d in pairs])), x)


def pshuffle(x: T, axis_name: AxisName, perm: Sequence[int]) -> T:
    """Permute the values of an axis: index k gets the value of index `perm[k]`, for each leaf."""
    names, sizes = _one_or_more_axes("pshuffle", axis_name)
    sources = to_ints("pshuffle", "perm", perm)
    if sorted(sources) != list(range(prod(sizes))):
        raise ShapeError(
            f"pshuffle: perm {sources} is not a permutation of the {prod(sizes)} indices of"
            f" {', '.join(map(repr, names))}",
            remedy="name each index once, or use ppermute",
        )
    return _each(Ppermute(names, sizes, tuple([(s, d) for d, s in enumerate(sources)])), _checked("pshuffle", x))


def pbroadcast(x: T, axis_name: AxisName, source: int) -> T:
    """Return the value of index `source` of named axes, on all indices, for each leaf."""
    names, sizes = _one_or_more_axes("pbroadcast", axis_name)
    source = to_int("pbroadcast", "source", source)
    if not 0 <= source < prod(sizes):
        raise ParameterError(
            f"pbroadcast: source is {source}, there are {prod(sizes)} indices of {', '.join(map(repr, names))}",
            remedy="give an index",
        )
    return tree.map(lambda leaf: all_gather(leaf, names)[source], _checked("pbroadcast", x))


def pswapaxes(x: T, axis_name: AxisName, axis: int, *, axis_index_groups: AxisGroups = None) -> T:
    """Return a named axis exchanged with axis `axis`, which has as many entries as there are indices, for each leaf."""
    _one_or_more_axes("pswapaxes", axis_name)
    return all_to_all(_checked("pswapaxes", x), axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pvary(x: T, axis_name: AxisName) -> T:
    """Return the value itself, a pytree of arrays. JAX marks it as one that may differ along named axes, which fxad
    finds out.

    Raises: AxisNameError for an axis that no map around binds; ArgumentError for a leaf that is no array.
    """
    named_axes("pvary", axis_name)
    return _checked("pvary", x)


def pcast(x: T, axis_name: AxisName, *, to: str) -> T:
    """Return the value itself, for `to="varying"`, as `pvary`."""
    if not is_word(to, ("varying",)):
        raise ParameterError(
            f"pcast: to is {shown(to, 40)}", remedy='give to="varying": psum, pmean or pmax make values equal'
        )
    named_axes("pcast", axis_name)
    return _checked("pcast", x)


def axis_index(axis_name: AxisName) -> Array:
    """Return the index along named axes, the first one slowest, as an int32."""
    names, sizes = named_axes("axis_index", axis_name)
    if len(names) == 1:
        return binder().bind(AxisIndex(names[0], sizes[0]), ())[0]
    (out,) = binder().apply(_flat_index, (), (names, sizes))
    return out


def axis_size(axis_name: AxisName) -> int:
    """Return the number of indices along named axes."""
    return prod(named_axes("axis_size", axis_name)[1])


def _flat_index(emit: Emit, names: AxisNames, sizes: Sizes) -> tuple[Atom]:
    return (flat_index(emit, names, sizes),)


def with_sharding_constraint(x: T, shardings: object) -> T:
    """Return the tree with its arrays divided among devices. `shardings` is a `NamedSharding`, a `PartitionSpec`
    of the mesh of `with mesh:`, None for what XLA decides, or a tree prefix of them.

    Rule:   the value is the same; so are derivatives, whose tangents and cotangents are divided in the same way.
    Raises: ArgumentError, TreeError; ShapeError and AxisNameError naming the array, the axis and the sizes.
    """
    what = "with_sharding_constraint"
    leaves, structure = tree.flatten(x)
    entries = flatten_shardings(shardings, structure, f"{what}: shardings")
    constrained = []
    for leaf, entry, path in zip(leaves, entries, tree.paths(structure, "x"), strict=True):
        aval = aval_of(leaf, f"{what}: {path}")
        if entry is None:
            constrained.append(leaf)
            continue
        prim = sharding_in_program(what, resolve_sharding(what, entry), aval, path)
        constrained += binder().bind(prim, (leaf,))
    out: T = tree.unflatten(structure, constrained)
    return out
