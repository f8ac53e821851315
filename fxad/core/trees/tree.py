"""Pytrees: nested containers <-> a flat list of leaves and a structure. Implemented with optree.

Containers: dict, OrderedDict, defaultdict, tuple, list, deque, namedtuple, None (no leaves), classes made by
`fxad.tree.dataclass`, and pyrsistent maps, vectors and records. Everything else is a leaf. Each leaf
has a path in Python syntax (`params['layers'][0].w`), for messages. `fxad.tree` is the public interface: `map` and
`all` are those of trees.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import optree

from fxad.core.exact_key import exact_keys_of_mapping
from fxad.core.trees.classes import NAMESPACE, StaticDataError, register_records, running
from fxad.core.trees.parts import flatten_outermost, outermost_node
from fxad.errors import ArgumentError, ExecutionError, TreeError, described, shown

Structure: TypeAlias = optree.PyTreeSpec
Accessor: TypeAlias = optree.PyTreeAccessor
T = TypeVar("T")
IsLeaf: TypeAlias = Callable[[Any], bool] | None

_NOTHING: Final = object()  # an argument that was not given


def _check_function(what: str, f: object) -> None:
    if not callable(f):
        raise ArgumentError(
            f"tree.{what} is {described(f)}, not a function: {shown(f)}", remedy="give something that can be called"
        )


def _check_structure(what: str, structure: object) -> None:
    if not isinstance(structure, Structure):
        raise ArgumentError(
            f"tree.{what} is {described(structure)}, not a structure: {shown(structure)}",
            remedy="give what tree.structure returns",
        )


def flatten(tree: object, is_leaf: IsLeaf = None) -> tuple[list[Any], Structure]:
    """Return leaves in order, and the structure that `unflatten` takes. A container that `is_leaf` selects is a
    leaf."""
    if not (is_leaf is None or callable(is_leaf)):
        raise ArgumentError(
            f"tree: is_leaf is {described(is_leaf)}, not a function: {shown(is_leaf)}",
            remedy="give a predicate of a node",
        )
    try:
        leaves, structure = optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)  # type: ignore[arg-type]  # any object
    except StaticDataError as e:
        raise e.found_in(tree) from None
    if leaves and leaves[0] is tree and is_leaf is None and type(tree) in _ALWAYS_CONTAINERS:
        raise _at_exit()
    if register_records(leaves):
        return flatten(tree, is_leaf)
    return leaves, structure


_ALWAYS_CONTAINERS: Final = frozenset({tuple, list, dict})


def _at_exit() -> ExecutionError:
    """Return the error for a container that is a leaf to optree: it has removed all classes, in its own exit
    handler."""
    return ExecutionError(
        "tree: Python is exiting, and containers are no trees any more",
        remedy="Python calls exit handlers in the reverse order: call atexit.register after `import fxad`",
    )


class ExactStructure(NamedTuple):
    """A structure, and what its equality and its hash leave out: the order and the types of the keys of dicts, and
    static data. Functions of trees whose exact structures are equal see no difference between them.

    `tree.flatten_exactly` makes one. A cache of what a user's function does is keyed by it.
    """

    structure: Structure
    notes: tuple[Hashable, ...]  # of the containers that have some, in the order in which `flatten` meets them


def flatten_exactly(args: tuple[Any, ...], kwargs: Mapping[str, object]) -> tuple[list[Any], ExactStructure]:
    """Return the leaves of the arguments of a call, and the exact structure of `(args, kwargs)`.

    Cost: a third more than `flatten`.
    """
    arguments: Any = args, kwargs
    # the usual call has nothing to note
    if not kwargs and optree.all_leaves(args, namespace=NAMESPACE):
        leaves, structure = flatten(arguments)
        if structure.num_nodes == len(leaves) + 3:
            return leaves, ExactStructure(structure, ())
    notes: list[Hashable] = []

    def note(x: Any) -> bool:
        if type(x) in MAPPINGS:
            notes.append(exact_keys_of_mapping(x))
        return False

    outer, running.notes = running.notes, notes
    try:
        leaves, structure = optree.tree_flatten(arguments, note, namespace=NAMESPACE)
    except StaticDataError as e:
        raise e.found_in(arguments) from None
    finally:
        running.notes = outer
    if leaves and leaves[0] is arguments:
        raise _at_exit()
    if register_records(leaves):
        return flatten_exactly(args, kwargs)
    return leaves, ExactStructure(structure, tuple(notes))


MAPPINGS: Final = frozenset({dict, OrderedDict, defaultdict})


def flatten_up_to(structure: Structure, tree: object) -> list[Any] | None:
    """Return the subtrees of `tree` at the leaves of `structure`; None if the tree does not match."""
    try:
        return structure.flatten_up_to(tree)  # type: ignore[arg-type]  # any object is a tree
    except (ValueError, TypeError, AttributeError):
        _check_structure("flatten_up_to: structure", structure)
        return None


def unflatten(treedef: Structure, leaves: Iterable[object]) -> Any:
    """Return the tree of a structure over new leaves. Raises: TreeError when their number is wrong."""
    try:
        return treedef.unflatten(leaves)
    except (AttributeError, TypeError):
        _check_structure("unflatten: treedef", treedef)
        if not isinstance(leaves, Iterable):
            raise ArgumentError(
                f"tree.unflatten: leaves is {described(leaves)}, not a sequence: {shown(leaves)}", remedy="give a list"
            ) from None
        raise
    except ValueError as e:
        if e.__traceback__ is not None and e.__traceback__.tb_next is not None:  # a user's class has raised it
            raise
        raise TreeError(f"unflatten: {e}", remedy="give as many leaves as the structure has") from None


def leaves(tree: object, is_leaf: IsLeaf = None) -> list[Any]:
    """Return the leaves, in order."""
    return flatten(tree, is_leaf)[0]


def structure(tree: object, is_leaf: IsLeaf = None) -> Structure:
    """Return the structure of a tree; hashable, compared by value."""
    return flatten(tree, is_leaf)[1]


def tuple_structure(*structures: Structure) -> Structure:
    """Return the structure of a tuple of trees."""
    return optree.treespec_tuple(structures, namespace=NAMESPACE)


def call_structure(args: Structure, kwargs: Structure | None = None) -> Structure:
    """Return the structure of the arguments of a call: of the tuple of positional arguments and the dict of keyword
    arguments, which is empty by default."""
    return tuple_structure(args, structure({}) if kwargs is None else kwargs)


def map(f: Callable[..., object], tree: T, *rest: object, is_leaf: IsLeaf = None) -> T:
    """Apply `f` to the leaves of a tree, and to the subtrees at the same places in the other trees.

    Where the first tree has a leaf, another tree may have a subtree, which `f` gets as a whole.

    Raises: TreeError with the first path at which the structures differ.
    """
    _check_function("map: f", f)
    flat, shape = flatten(tree, is_leaf)
    others = [_fitting("map", shape, r, k + 1) for k, r in enumerate(rest)]
    out: T = unflatten(shape, [f(*xs) for xs in zip(flat, *others, strict=True)])
    return out


def _fitting(what: str, shape: Structure, other: object, number: int) -> list[object]:
    """Return the subtrees of another tree at the leaves of the first. Raises: TreeError."""
    xs = flatten_up_to(shape, other)
    if xs is None:
        raise TreeError(
            f"tree.{what}: tree {number} differs from the first: {_misfit(shape, structure(other))}",
            remedy="give trees of one structure",
        )
    return xs


def reduce(
    function: Callable[[Any, Any], Any], tree: object, initializer: object = _NOTHING, is_leaf: IsLeaf = None
) -> Any:
    """Combine the leaves from the left: `function(function(initializer, leaf 0), leaf 1)`, ....

    Raises: ArgumentError for a tree without leaves and without `initializer`.
    """
    _check_function("reduce: function", function)
    xs = leaves(tree, is_leaf)
    if initializer is not _NOTHING:
        return functools.reduce(function, xs, initializer)
    if not xs:
        raise ArgumentError("tree.reduce: the tree has no leaves", remedy="give an initializer")
    return functools.reduce(function, xs)


def all(tree: object, *, is_leaf: IsLeaf = None) -> bool:
    """Return True if every leaf is true."""
    return builtins.all(leaves(tree, is_leaf))


def transpose(outer_treedef: Structure, inner_treedef: Structure | None, pytree_to_transpose: object) -> Any:
    """Return a tree of structure `outer_treedef`, which has trees of structure `inner_treedef` at its leaves, turned
    inside out. By default, `inner_treedef` is the structure of the first inner tree. Raises: TreeError.
    """
    _check_structure("transpose: outer_treedef", outer_treedef)
    if inner_treedef is not None:
        _check_structure("transpose: inner_treedef", inner_treedef)
    inner_trees = _fitting("transpose", outer_treedef, pytree_to_transpose, 1)
    if inner_treedef is None:
        inner_treedef = structure(inner_trees[0]) if inner_trees else structure(())
    columns = [_fitting("transpose", inner_treedef, part, k) for k, part in enumerate(inner_trees)]
    return unflatten(inner_treedef, [unflatten(outer_treedef, xs) for xs in zip(*columns, strict=True)])


def broadcast(prefix_tree: object, full_tree: object, is_leaf: IsLeaf = None) -> Any:
    """Return a tree of the structure of `full_tree`, in which each leaf of `prefix_tree` is repeated over its subtree.

    Raises: TreeError if the prefix does not fit.
    """
    entries, outer = flatten(prefix_tree, is_leaf)
    subtrees = _fitting("broadcast", outer, full_tree, 1)
    shape = structure(full_tree, is_leaf)
    return unflatten(shape, [e for e, p in zip(entries, subtrees, strict=True) for _ in leaves(p, is_leaf)])


def paths(structure: Structure, root: str = "") -> list[str]:
    """Return the paths of all leaves, as Python would spell them behind the name `root`."""
    _check_structure("paths: structure", structure)
    return [a.codify(root) for a in structure.accessors()]


def broadcast_prefix(
    prefix: object, structure: Structure, what: str, is_leaf: Callable[[object], bool], exact: bool = False
) -> list[Any]:
    """Return the entries of a tree prefix, repeated so that there is one for each leaf of `structure`.

    `is_leaf` says what an entry is (None may be one). `what` names the argument, as in "vmap: in_axes". Of the prefix
    `(0, None)` and the structure of `({"w": x, "b": y}, z)`, they are 0, 0 and None. A list may stand for a tuple, and
    a tuple for a list, unless `exact`: users write in_axes either way.
    Raises: TreeError when the prefix does not fit.
    """
    if is_leaf(prefix):
        return [prefix] * structure.num_leaves
    try:
        return _entries_of_leaves(prefix, structure, is_leaf, exact)
    except (ValueError, TypeError):
        raise TreeError(
            f"{what}: {shown(prefix)} is not a tree prefix of {shape_text(structure)}",
            remedy="give one entry for the whole tree, or a tree whose entries stand for whole subtrees",
        ) from None


def _entries_of_leaves(
    prefix: object, structure: Structure, is_leaf: Callable[[object], bool], exact: bool
) -> list[object]:
    """Return for each leaf of a structure, the entry of the prefix. Raises: ValueError, TypeError if it is no
    prefix."""
    if is_leaf(prefix):
        return [prefix] * structure.num_leaves
    entries, prefix_node = flatten_outermost(prefix)
    node, subtrees = structure.one_level(), structure.children()
    # a list may stand for a tuple, unless `exact`: users write in_axes either way
    types_may_differ = not exact and {type(prefix), structure.type} == {list, tuple}
    nodes_match = prefix_node == node or (types_may_differ and len(entries) == len(subtrees))
    if not nodes_match or node is None or (prefix_node.num_leaves == 1 and prefix_node.num_nodes == 1):
        raise ValueError("no prefix")
    return [x for e, p in zip(entries, subtrees, strict=True) for x in _entries_of_leaves(e, p, is_leaf, exact)]


def difference(a: Structure, b: Structure) -> str:
    """Return the first difference of two structures, for messages."""
    return _first_difference(a, b, paths(a, "tree"), paths(b, "tree"))


def _misfit(a: Structure, b: Structure) -> str:
    """Return the first difference of two structures, where `b` may have a subtree in place of a leaf of `a`."""
    leaves_of_a = set(a.accessors())
    # the path of a leaf of `b`, or of the subtree around it that stands at a leaf of `a`
    cut = [next((p[:k] for k in range(len(p)) if p[:k] in leaves_of_a), p) for p in b.accessors()]
    return _first_difference(a, b, paths(a, "tree"), [p.codify("tree") for p in dict.fromkeys(cut)])


def _first_difference(a: Structure, b: Structure, pa: Sequence[str], pb: Sequence[str]) -> str:
    """Return the first difference of two structures with the paths `pa` and `pb`."""
    for x, y in zip(pa, pb, strict=False):
        if x != y:
            return f"{x} stands against {y}"
    if len(pa) != len(pb):
        longer = pa if len(pa) > len(pb) else pb
        return f"{longer[min(len(pa), len(pb))]} is only in one of them ({len(pa)} and {len(pb)} leaves)"
    return f"{shape_text(a)} and {shape_text(b)}"


def shape_text(structure: Structure) -> str:
    """Return a structure in short form, as in `(*, {'w': *}, Layer(w=*, b=*))`."""
    kind, child_texts = structure.type, [shape_text(c) for c in structure.children()]
    if kind is None:
        return "*"
    if kind is type(None):
        return "None"
    if kind is tuple:
        return f"({', '.join(child_texts)}{',' * (len(child_texts) == 1)})"
    if kind is list:
        return f"[{', '.join(child_texts)}]"
    keys = structure.entries()
    if kind is dict:
        return f"{{{', '.join([f'{shown(k)}: {p}' for k, p in zip(keys, child_texts, strict=True)])}}}"
    entries = [f"{k}={p}" if isinstance(k, str) else p for k, p in zip(keys, child_texts, strict=True)]
    data = outermost_node(structure).data if dataclasses.is_dataclass(kind) else ()
    static_fields = [n.name for n in dataclasses.fields(kind) if n.metadata.get("static")] if data else []
    if isinstance(data, tuple) and len(static_fields) == len(data):  # its static fields are part of the structure
        entries += [f"{n}={shown(v)}" for n, v in zip(static_fields, data, strict=True)]
    return f"{kind.__name__}({', '.join(entries)})"


LEAF: Final = structure(0)
