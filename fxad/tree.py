"""Pytrees: nested containers <-> a flat list of leaves and a structure.

Containers: dict, OrderedDict, defaultdict, tuple, list, deque, namedtuple, None (no leaves), registered classes, and
pyrsistent maps, vectors and records. Everything else is a leaf. `save` and `load` are files of trees of arrays.
`fxad.tree_util` has the names of `jax.tree_util`.
"""

from fxad.api.trees import global_norm, ravel
from fxad.core.trees.classes import dataclass, register, static
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
    flatten_with_path,
    keystr,
    leaves_with_path,
    map_with_path,
    prefix_errors,
    reduce_associative,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
)
from fxad.core.trees.tree import (
    Structure,
    all,
    broadcast,
    broadcast_prefix,
    difference,
    flatten,
    flatten_up_to,
    leaves,
    map,
    paths,
    reduce,
    shape_text,
    structure,
    transpose,
    unflatten,
)
from fxad.storage.arrays import load, save

__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "KeyEntry", "KeyPath", "Partial", "SequenceKey", "Structure", "all",
    "broadcast", "broadcast_prefix", "dataclass", "difference", "flatten", "flatten_one_level",
    "flatten_one_level_with_keys", "flatten_up_to", "flatten_with_path", "global_norm", "keystr", "leaves",
    "leaves_with_path", "load", "map", "map_with_path", "paths", "prefix_errors", "ravel", "reduce",
    "reduce_associative", "register", "register_dataclass", "register_pytree_node", "register_pytree_node_class",
    "register_pytree_with_keys", "register_pytree_with_keys_class", "register_static", "save", "shape_text", "static",
    "structure", "transpose", "unflatten",
]  # fmt: skip
