"""`fxad.tree` under the names of `jax.tree_util`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fxad.core.trees import classes as tree_classes, tree
from fxad.core.trees.paths import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyEntry,
    KeyPath,
    Partial,
    SequenceKey,
    flatten_one_level,
    flatten_one_level_with_keys,
    flatten_with_path as tree_flatten_with_path,
    keystr,
    leaves_with_path as tree_leaves_with_path,
    map_with_path as tree_map_with_path,
    prefix_errors,
    reduce_associative as tree_reduce_associative,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
)
from fxad.core.trees.tree import (
    IsLeaf,
    Structure as PyTreeDef,
    all as tree_all,
    broadcast as tree_broadcast,
    flatten as tree_flatten,
    leaves as tree_leaves,
    map as tree_map,
    reduce as tree_reduce,
    structure as tree_structure,
    transpose as tree_transpose,
    unflatten as tree_unflatten,
)


def all_leaves(iterable: Iterable[object], is_leaf: IsLeaf = None) -> bool:
    """Return True if none of the values is a container."""
    return all([treedef_is_leaf(tree.structure(x, is_leaf)) for x in iterable])


def is_tree_node(typ: type) -> bool:
    """Return True if the values of a type are containers."""
    return tree_classes.is_container(typ)


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Return True for the structure of a single leaf."""
    return treedef.num_nodes == 1 and treedef.num_leaves == 1


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """Return the structures of the children of the outermost container."""
    return list(treedef.children())


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """Return the structure of a tuple of trees."""
    return tree.tuple_structure(*treedefs)


def build_tree(treedef: PyTreeDef, xs: Sequence[object]) -> object:
    """Return the outermost container of a structure with other children. Raises: TreeError for another number of
    children."""
    outer = treedef.one_level()
    return tree.unflatten(tree.LEAF if outer is None else outer, xs)


__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "KeyEntry", "KeyPath", "Partial", "PyTreeDef", "SequenceKey",
    "all_leaves", "build_tree", "flatten_one_level", "flatten_one_level_with_keys", "is_tree_node", "keystr",
    "prefix_errors", "register_dataclass", "register_pytree_node", "register_pytree_node_class",
    "register_pytree_with_keys", "register_pytree_with_keys_class", "register_static", "tree_all", "tree_broadcast",
    "tree_flatten", "tree_flatten_with_path", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_with_path",
    "tree_reduce", "tree_reduce_associative", "tree_structure", "tree_transpose", "tree_unflatten", "treedef_children",
    "treedef_is_leaf", "treedef_tuple",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
