"""A structure as parts, and made from parts.

`storage.tree_structure` writes a structure as text and reads it. It takes a structure apart, node by node, and puts it
together, and a file runs no code of users' classes:

    node = outermost_node(s)                                               s -> JSON
    s == structure_of_instance(s.type, node.data, node.keys, s.children()) JSON -> s

optree has no functions for this. It gives the data of a node to the function that unflattens the class only, and takes
data from the function that flattens it only. Both functions are made in `classes`, by `dataclass` or
`register_fields`, and know when they are called for the data alone:

    data out   optree unflattens a node with children `NO_VALUE`: the function returns `DataOnly`
    data in    optree flattens an empty instance, with `running.given`: the function returns these parts

Those of `dataclass` call no code of the user in any case. They make and take an instance with `NO_VALUE` as fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import optree
from optree import PyTreeSpec as Structure
from pyrsistent import PRecord

from fxad.core.exact_key import exact_key
from fxad.core.trees.classes import (
    CHILDREN,
    NAMESPACE,
    NO_VALUE,
    DataOnly,
    GivenParts,
    StaticData,
    register_record,
    registered,
    registration_of,
    running,
    static_data,
    static_data_of_instance,
)


def one_level_of(structure: Structure) -> Any:
    """Return the outermost container of a structure, with numbers for children. Only for Python's own containers."""
    outer = structure.one_level()
    assert outer is not None
    return outer.unflatten(range(structure.num_children))


def flatten_outermost(tree: object) -> tuple[list[object], Structure]:
    """Return the children of the outermost container of a tree, and its structure with leaves for children."""
    # any object is a tree, to optree
    return optree.tree_flatten(tree, is_leaf=lambda x: x is not tree, namespace=NAMESPACE)  # type: ignore[arg-type]


def with_subtrees(structure: Structure, subtrees: Iterable[Structure]) -> Structure:
    """Return the structure with these structures in place of its leaves. Calls no functions of users' classes."""
    remaining = iter(subtrees)
    return optree.treespec_transform(structure, None, lambda _: next(remaining))


class Node(NamedTuple):
    """A container of a structure: its data other than children, and one key for each child. `static` are the data as
    structures compare them: the `StaticData` of a registered class."""

    data: Any
    keys: Sequence[object]
    static: object


def outermost_node(structure: Structure) -> Node:
    """Return the outermost container of a structure that is not a leaf. Calls no functions of users' classes, unless
    there are no children."""
    outer = structure.one_level()
    assert outer is not None
    whole: Any = outer.unflatten([NO_VALUE] * structure.num_children)
    if type(whole) is DataOnly:
        return Node(whole.static.value, structure.entries(), whole.static)
    node = optree.tree_flatten_one_level(whole, namespace=NAMESPACE)
    data = node.metadata
    return Node(data.value if isinstance(data, StaticData) else data, node.entries, data)


def structure_of_instance(
    cls: type, data: object, keys: Sequence[object], children: Sequence[Structure]
) -> Structure | None:
    """Return the structure of an instance of a registered class with these data and children. Calls no functions of the
    class. None if Python cannot make an instance without its constructor. Raises: ValueError for other keys than those
    of a class made by `dataclass`.
    """
    registration = registration_of(cls)
    names = getattr(registration.unflatten_func, CHILDREN, None)
    if names is not None:  # made by `dataclass`
        if names != tuple(keys):
            raise ValueError(f"its children were {tuple(keys)}, they are {names}")
        instance: Any = registration.unflatten_func(static_data(data), [NO_VALUE] * len(children))
        return with_subtrees(flatten_outermost(instance)[1], children)
    try:
        instance = object.__new__(cls)
    except TypeError:  # such as a subclass of functools.partial
        return None
    static = static_data_of_instance(cls, (), exact_key(data), data)
    outer, running.given = running.given, GivenParts(instance, ([NO_VALUE] * len(children), static, keys))
    try:
        one_level = flatten_outermost(instance)[1]
    finally:
        running.given = outer
    return with_subtrees(one_level, children)


def insertion_order(structure: Structure) -> list[int]:
    """Return the children of a structure of a dict, in the order in which its keys were inserted."""
    return list(one_level_of(structure).values())


def unflattener(cls: type) -> Callable[[Any, Sequence[object]], Any] | None:
    """Return the function that makes an instance of a registered class from its data and children; None for other
    classes."""
    if issubclass(cls, PRecord) and registration_of(cls) is None:
        register_record(cls)
    if not registered(cls):
        return None
    make = registration_of(cls).unflatten_func
    return lambda data, children: make(static_data(data), children)
