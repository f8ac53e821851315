"""Pytrees: nested containers <-> a flat list of leaves and a structure. Implemented with optree.

Containers: dict, OrderedDict, defaultdict, tuple, list, deque, namedtuple, None (no leaves), classes made by
`fxad.tree.dataclass`, and pyrsistent maps, vectors and records. Everything else is a leaf. Each leaf
has a path in Python syntax (`params['layers'][0].w`), for messages. `fxad.tree` is the public interface: `map` and
`all` are those of trees.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import functools
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from inspect import CO_GENERATOR
from operator import attrgetter
from types import CodeType
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar, dataclass_transform, final

import optree
import pyrsistent
from pyrsistent import PMap, PRecord, PVector
from pyrsistent._pvector import PythonPVector

from fxad.core.exact_key import COMPARED_BY_EQUALITY, exact_key, exact_keys_of_mapping, unhashable_part
from fxad.errors import ArgumentError, ExecutionError, ParameterError, TreeError, described, shown

Structure: TypeAlias = optree.PyTreeSpec
Accessor: TypeAlias = optree.PyTreeAccessor
T = TypeVar("T")

_NAMESPACE: Final = "fxad"
_NOTHING: Final = object()  # an argument that was not given
_PERSISTENT: Final = (PRecord, PMap, PVector)


IsLeaf: TypeAlias = Callable[[Any], bool] | None


def _check_is_leaf(is_leaf: object) -> None:
    if not callable(is_leaf):
        raise ArgumentError(
            f"tree: is_leaf is {described(is_leaf)}, not a function: {shown(is_leaf)}",
            remedy="give a predicate of a node",
        )


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
    if is_leaf is not None:
        _check_is_leaf(is_leaf)
    try:
        leaves, structure = optree.tree_flatten(tree, is_leaf, namespace=_NAMESPACE)  # type: ignore[arg-type]  # any object
    except StaticDataError as e:
        raise e.found_in(tree) from None
    if leaves and leaves[0] is tree and is_leaf is None and type(tree) in _ALWAYS_CONTAINERS:
        raise _at_exit()
    if _register_records(leaves):
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


@final
class _FlattenContext(threading.local):
    """The state that the functions of registered classes read while optree calls them in this thread. optree passes
    them nothing but the object, so there is no other channel.

    notes: of the running `flatten_exactly`: the functions append the static data of each instance.
    given: of the running `structure_of_instance`.
    """

    notes: list[Hashable] | None = None
    given: _GivenParts | None = None


_running: Final = _FlattenContext()


def flatten_exactly(args: tuple[Any, ...], kwargs: Mapping[str, object]) -> tuple[list[Any], ExactStructure]:
    """Return the leaves of the arguments of a call, and the exact structure of `(args, kwargs)`.

    Cost: a third more than `flatten`.
    """
    whole: Any = args, kwargs
    # the usual call has nothing to note
    if not kwargs and optree.all_leaves(args, namespace=_NAMESPACE):
        leaves, structure = flatten(whole)
        if structure.num_nodes == len(leaves) + 3:
            return leaves, ExactStructure(structure, ())
    notes: list[Hashable] = []

    def note(x: Any) -> bool:
        if type(x) in _MAPPINGS:
            notes.append(exact_keys_of_mapping(x))
        return False

    outer, _running.notes = _running.notes, notes
    try:
        leaves, structure = optree.tree_flatten(whole, note, namespace=_NAMESPACE)
    except StaticDataError as e:
        raise e.found_in(whole) from None
    finally:
        _running.notes = outer
    if leaves and leaves[0] is whole:
        raise _at_exit()
    if _register_records(leaves):
        return flatten_exactly(args, kwargs)
    return leaves, ExactStructure(structure, tuple(notes))


_MAPPINGS: Final = frozenset({dict, OrderedDict, defaultdict})


def has_structure(structure: Structure, *, ordered: bool) -> Callable[[Any], bool]:
    """Return a predicate of trees: True if a tree has this structure up to subtrees at its leaves; with `ordered`, this
    exact structure. `flatten_up_to` then returns the leaves.

    `flatten_up_to` itself takes dicts, OrderedDicts and defaultdicts for each other, in any order, and deques of other
    lengths; and the message of its error has the text of the tree, arrays included. The predicate is compiled from
    generated text, so that a call runs in one frame.
    """
    check = _StructureCheck(ordered)
    check.visit(structure, "x")
    exec(compile(f"def check(x):\n return {' and '.join(check.conditions) or 'True'}", __file__, "exec"), check.scope)
    predicate: Callable[[Any], bool] = check.scope["check"]
    return predicate


@final
class _StructureCheck:
    """The conditions of `has_structure` as text, and the objects that the text names."""

    __slots__ = ("conditions", "ordered", "scope")

    def __init__(self, ordered: bool) -> None:
        self.ordered = ordered
        self.conditions: list[str] = []
        self.scope: dict[str, Any] = {"keys_of": exact_keys_of_mapping}

    def visit(self, structure: Structure, x: str) -> None:
        """Add the conditions for the value of an expression."""
        kind: Any = structure.type
        if kind is None:
            return
        if kind is type(None):
            self.conditions.append(f"{x} is None")
            return
        v = f"v{len(self.conditions)}"
        self.conditions.append(f"type({v} := {x}) is {self._name(kind)}")
        registration = _registered(kind)
        n = structure.num_children
        if kind in _MAPPINGS:
            self._add_keys(_one_level(structure), v)
            children = [f"{v}[{self._name(key)}]" for key in structure.entries()]
        elif registration is not None and registration.namespace == _NAMESPACE:
            children = self._add_instance(structure, registration.flatten_func, v)
        else:
            self.conditions.append(f"len({v}) == {n}")
            children = [f"{v}[{k}]" for k in range(n)]
            if kind is deque:
                self.conditions.append(f"{v}.maxlen == {_one_level(structure).maxlen}")
        for child, item in zip(structure.children(), children, strict=True):
            self.visit(child, item)

    def _add_keys(self, mapping: Any, v: str) -> None:
        """Add the conditions for the keys of a mapping."""
        keys, ordered = list(mapping), self.ordered or type(mapping) is OrderedDict
        if type(mapping) is defaultdict:
            self.conditions.append(f"{v}.default_factory == {self._name(mapping.default_factory)}")
        if not ordered:
            self.conditions.append(f"{v}.keys() == {self._name(mapping.keys())}")
        elif {type(k) for k in keys} <= {str}:  # the usual case
            kinds = [type(k) for k in keys]
            self.conditions.append(f"[*{v}] == {self._name(keys)} and [*map(type, {v})] == {self._name(kinds)}")
        else:
            self.conditions.append(f"keys_of({v}) == {self._name(exact_keys_of_mapping(mapping))}")

    def _add_instance(self, structure: Structure, flatten_node: Callable[[Any], object], v: str) -> list[str]:
        """Add the conditions for an instance of a registered class. Return the expressions of its children."""
        static, n = outermost_node(structure).static, structure.num_children
        if static is _NO_STATIC_DATA and structure.num_nodes == n + 1 and structure.num_leaves == n:
            return ["None"] * n  # the class says all: there are no static data, and leaves may be anything
        parts, data = f"{v}_parts", self._name(static)
        self.conditions.append(f"(({parts} := {self._name(flatten_node)}({v}))[1] is {data} or {parts}[1] == {data})")
        self.conditions.append(f"len({v}_children := [*{parts}[0]]) == {n}")
        return [f"{v}_children[{k}]" for k in range(n)]

    def _name(self, value: object) -> str:
        """Return the name of an object in the text."""
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name


def _one_level(structure: Structure) -> Any:
    """Return the outermost container of a structure, with numbers for children. Only for Python's own containers."""
    outer = structure.one_level()
    assert outer is not None
    return outer.unflatten(range(structure.num_children))


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
    return optree.treespec_tuple(structures, namespace=_NAMESPACE)


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
    parts = _fitting("transpose", outer_treedef, pytree_to_transpose, 1)
    if inner_treedef is None:
        inner_treedef = structure(parts[0]) if parts else structure(())
    columns = [_fitting("transpose", inner_treedef, part, k) for k, part in enumerate(parts)]
    return unflatten(inner_treedef, [unflatten(outer_treedef, xs) for xs in zip(*columns, strict=True)])


def broadcast(prefix_tree: object, full_tree: object, is_leaf: IsLeaf = None) -> Any:
    """Return a tree of the structure of `full_tree`, in which each leaf of `prefix_tree` is repeated over its subtree.

    Raises: TreeError if the prefix does not fit.
    """
    entries, outer = flatten(prefix_tree, is_leaf)
    parts = _fitting("broadcast", outer, full_tree, 1)
    shape = structure(full_tree, is_leaf)
    return unflatten(shape, [e for e, p in zip(entries, parts, strict=True) for _ in leaves(p, is_leaf)])


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
            f"{what}: {prefix!r} is not a tree prefix of {shape_text(structure)}",
            remedy="give one entry for the whole tree, or a tree whose entries stand for whole subtrees",
        ) from None


def _entries_of_leaves(
    prefix: object, whole: Structure, is_leaf: Callable[[object], bool], exact: bool
) -> list[object]:
    """Return for each leaf of a structure, the entry of the prefix. Raises: ValueError, TypeError if it is no
    prefix."""
    if is_leaf(prefix):
        return [prefix] * whole.num_leaves
    entries, outer = _flatten_outermost(prefix)
    inner, parts = whole.one_level(), whole.children()
    # a list may stand for a tuple, unless `exact`: users write in_axes either way
    either = not exact and {type(prefix), whole.type} == {list, tuple}
    same = outer == inner or (either and len(entries) == len(parts))
    if not same or inner is None or (outer.num_leaves == 1 and outer.num_nodes == 1):
        raise ValueError("no prefix")
    return [x for e, p in zip(entries, parts, strict=True) for x in _entries_of_leaves(e, p, is_leaf, exact)]


def _flatten_outermost(tree: object) -> tuple[list[object], Structure]:
    """Return the children of the outermost container of a tree, and its structure with leaves for children."""
    # any object is a tree, to optree
    return optree.tree_flatten(tree, is_leaf=lambda x: x is not tree, namespace=_NAMESPACE)  # type: ignore[arg-type]


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


# ------------------------------------------------------------------------- a structure as parts, and made from parts
#
# `storage.tree_structure` writes a structure as text and reads it. It takes a structure apart, node by node, and puts
# it together, and a file runs no code of users' classes:
#
#     node = outermost_node(s)                                               s -> JSON
#     s == structure_of_instance(s.type, node.data, node.keys, s.children()) JSON -> s
#
# optree has no functions for this. It gives the data of a node to the function that unflattens the class only, and
# takes data from the function that flattens it only. Both functions are made here, by `dataclass` or `register_fields`,
# and know when they are called for the data alone:
#
#     data out   optree unflattens a node with children `_NO_VALUE`: the function returns `_DataOnly`
#     data in    optree flattens an empty instance, with `_running.given`: the function returns these parts
#
# Those of `dataclass` call no code of the user in any case. They make and take an instance with `_NO_VALUE` as fields.


def with_subtrees(structure: Structure, subtrees: Iterable[Structure]) -> Structure:
    """Return the structure with these structures in place of its leaves. Calls no functions of users' classes."""
    remaining = iter(subtrees)
    return optree.treespec_transform(structure, None, lambda _: next(remaining))


class Node(NamedTuple):
    """A container of a structure: its data other than children, and one key for each child. `static` are the data as
    structures compare them: the `_StaticData` of a registered class."""

    data: Any
    keys: Sequence[object]
    static: object


def outermost_node(structure: Structure) -> Node:
    """Return the outermost container of a structure that is not a leaf. Calls no functions of users' classes, unless
    there are no children."""
    outer = structure.one_level()
    assert outer is not None
    whole: Any = outer.unflatten([_NO_VALUE] * structure.num_children)
    if type(whole) is _DataOnly:
        return Node(whole.static.value, structure.entries(), whole.static)
    node = optree.tree_flatten_one_level(whole, namespace=_NAMESPACE)
    data = node.metadata
    return Node(data.value if isinstance(data, _StaticData) else data, node.entries, data)


def structure_of_instance(
    cls: type, data: object, keys: Sequence[object], children: Sequence[Structure]
) -> Structure | None:
    """Return the structure of an instance of a registered class with these data and children. Calls no functions of the
    class. None if Python cannot make an instance without its constructor. Raises: ValueError for other keys than those
    of a class made by `dataclass`.
    """
    registration = _registered(cls)
    names = getattr(registration.unflatten_func, _CHILDREN, None)
    if names is not None:  # made by `dataclass`
        if names != tuple(keys):
            raise ValueError(f"its children were {tuple(keys)}, they are {names}")
        instance: Any = registration.unflatten_func(_unpickled(data), [_NO_VALUE] * len(children))
        return with_subtrees(_flatten_outermost(instance)[1], children)
    try:
        instance = object.__new__(cls)
    except TypeError:  # such as a subclass of functools.partial
        return None
    static = _static_data(cls, (), exact_key(data), data)
    outer, _running.given = _running.given, _GivenParts(instance, ([_NO_VALUE] * len(children), static, keys))
    try:
        one_level = _flatten_outermost(instance)[1]
    finally:
        _running.given = outer
    return with_subtrees(one_level, children)


_NO_VALUE: Final = object()  # each child, where a class is asked for the data of a node alone
_CHILDREN: Final = "children"  # attribute of an unflattening function of `dataclass`: the fields that are children


class _GivenParts(NamedTuple):
    """An empty instance of a registered class, and the parts that its flattening function is to return for it."""

    instance: object
    parts: tuple[Sequence[object], _StaticData, Sequence[object]]


@final
class _DataOnly:
    """The data of a node: an unflattening function returns it if it is asked for the data alone."""

    __slots__ = ("static",)

    def __init__(self, static: _StaticData) -> None:
        self.static = static


def insertion_order(structure: Structure) -> list[int]:
    """Return the children of a structure of a dict, in the order in which its keys were inserted."""
    return list(_one_level(structure).values())


def unflattener(cls: type) -> Callable[[Any, Sequence[object]], Any] | None:
    """Return the function that makes an instance of a registered class from its data and children; None for other
    classes."""
    if issubclass(cls, PRecord) and not _registered(cls):
        register(cls, _flatten_map, _make_record(cls))
    registration = _registered(cls)
    if registration is None or cls.__module__ in ("builtins", "collections"):
        return None
    make = registration.unflatten_func
    return lambda data, children: make(_unpickled(data), children)


def is_container(cls: type) -> bool:
    """Return True if instances of a class are containers, and not leaves."""
    return _registered(cls) is not None or optree.is_namedtuple_class(cls)


def registered(cls: type) -> bool:
    """Return True for a class that was registered, by a user or by fxad; containers of Python are not."""
    return _registered(cls) is not None and cls.__module__ not in ("builtins", "collections")


def _registered(cls: type) -> Any:
    return optree.register_pytree_node.get(cls, namespace=_NAMESPACE)


def shape_text(structure: Structure) -> str:
    """Return a structure in short form, as in `(*, {'w': *}, Layer(w=*, b=*))`."""
    kind, parts = structure.type, [shape_text(c) for c in structure.children()]
    if kind is None:
        return "*"
    if kind is type(None):
        return "None"
    if kind is tuple:
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    if kind is list:
        return f"[{', '.join(parts)}]"
    keys = structure.entries()
    if kind is dict:
        return f"{{{', '.join([f'{k!r}: {p}' for k, p in zip(keys, parts, strict=True)])}}}"
    named = [f"{k}={p}" if isinstance(k, str) else p for k, p in zip(keys, parts, strict=True)]
    data = outermost_node(structure).data if dataclasses.is_dataclass(kind) else ()
    fixed = [n.name for n in dataclasses.fields(kind) if n.metadata.get("static")] if data else []
    if isinstance(data, tuple) and len(fixed) == len(data):  # its static fields are part of the structure
        named += [f"{n}={shown(v)}" for n, v in zip(fixed, data, strict=True)]
    return f"{kind.__name__}({', '.join(named)})"


def static(*, metadata: Mapping[Any, Any] | None = None, **kwargs: Any) -> Any:
    """Return a field of a tree dataclass that is part of the structure, not a leaf; its value must be hashable.

    The arguments are those of `dataclasses.field`. Raises: ArgumentError for metadata that is not a mapping.
    """
    if not isinstance(metadata, Mapping | None):
        raise ArgumentError(
            f"tree.static: metadata is {described(metadata)}, not a mapping: {shown(metadata)}", remedy="give a dict"
        )
    return dataclasses.field(metadata={**(metadata or {}), "static": True}, **kwargs)


@final
class StaticDataError(ArgumentError):
    """Static data of a class that is not hashable."""

    accessor: Accessor | None = None
    problem = ""

    @classmethod
    def of(cls, kind: type, names: Sequence[str], values: object) -> Self:
        """Return the error for the static data `values` of a class; `names` are those of its static fields, if it has
        some."""
        what, value = f"static data of {kind.__qualname__}", values
        if names and isinstance(values, tuple):
            bad = [(n, v) for n, v in zip(names, values, strict=True) if unhashable_part(v) is not None]
            what, value = (f"static field {bad[0][0]} of {kind.__qualname__}", bad[0][1]) if bad else (what, values)
        part = unhashable_part(value)
        has = "is" if part is None or part is value else f"is {described(value)}, which has"
        culprit = value if part is None else part
        problem = f"{what} {has} {described(culprit)}, which is not hashable: {shown(culprit)}"
        error = cls(f"tree: {problem}", remedy=_STATIC_REMEDY)
        error.problem = problem
        return error

    def found_in(self, tree: Any) -> Self:
        """Return the error with the path of the instance in a tree."""
        if self.accessor is None:
            instances = optree.tree_leaves(tree, _has_unhashable_data, namespace=_NAMESPACE)
            accessors = optree.tree_accessors(tree, _has_unhashable_data, namespace=_NAMESPACE)
            for x, accessor in zip(instances, accessors, strict=True):
                if _has_unhashable_data(x):
                    self.accessor = accessor
                    return self.at(f"tree: {accessor.codify('tree')}")
        return self

    def at(self, where: str) -> Self:
        """Return the error whose message names the operation and the path."""
        self.message = f"{where}: {self.problem}"
        self.args = (self.message,)
        return self


_STATIC_REMEDY: Final = (
    "static data is part of the structure, by which programs are found: give a tuple in place of a list, a frozen"
    " dataclass in place of a mutable one; a field for arrays is not static"
)


def _has_unhashable_data(x: object) -> bool:
    registration = _registered(type(x))
    if registration is None or type(x).__module__ in ("builtins", "collections"):
        return False
    try:
        registration.flatten_func(x)
    except StaticDataError:
        return True
    return False


@final
class _StaticData:
    """The data of a container that are not its children, with a key by which structures compare them exactly."""

    __slots__ = ("key", "value")

    def __init__(self, key: Hashable, value: Any) -> None:
        self.key, self.value = key, value

    def __eq__(self, other: object) -> bool:
        return type(other) is _StaticData and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (self.value,)  # the key has types, such as that of functions, which pickle does not find

    def __repr__(self) -> str:
        return repr(self.value)


def _unpickled(value: Any) -> _StaticData:
    return _StaticData(exact_key(value), value)


def _static_data(kind: type, names: Sequence[str], key: Hashable, value: Any) -> _StaticData:
    """Return the static data of an instance, noted for `flatten_exactly`. Raises: StaticDataError if it is not
    hashable."""
    try:
        hash(key)
    except Exception:  # noqa: BLE001  # the user's code
        raise StaticDataError.of(kind, names, value) from None
    if _running.notes is not None:
        _running.notes.append(key)
    return _StaticData(key, value)


_NO_STATIC_DATA: Final = _StaticData(exact_key(()), ())


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def dataclass(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass and a pytree: its fields are children, those made by `static` are structure.

    >>> @dataclass
    ... class Layer:
    ...     w: object
    ...     b: object
    >>> leaves(Layer(w=1, b=2))
    [1, 2]
    """
    frozen = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(frozen)  # type: ignore[arg-type]  # it is a dataclass now
    children = tuple(f.name for f in fields if not f.metadata.get("static"))
    fixed = tuple(f.name for f in fields if f.metadata.get("static"))
    get_children, get_fixed = _attributes(children), _attributes(fixed)

    def flat(x: object) -> tuple[Sequence[object], _StaticData, tuple[str, ...]]:
        if not fixed:
            return get_children(x), _NO_STATIC_DATA, children
        values = get_fixed(x)  # then as `exact_key`, without its frames: every call flattens its arguments
        kinds = tuple(builtins.map(type, values))
        key = (tuple, kinds, values) if COMPARED_BY_EQUALITY.issuperset(kinds) else exact_key(values)
        return get_children(x), _static_data(frozen, fixed, key, values), children

    def unflat(data: _StaticData, parts: Sequence[object]) -> T:
        # the leaves may be anything while a transform runs, so __post_init__ must not see them
        x = object.__new__(frozen)
        for n, v in zip((*fixed, *children), (*data.value, *parts), strict=True):
            object.__setattr__(x, n, v)
        return x

    unflat.__dict__[_CHILDREN] = children
    _register(frozen, flat, unflat, optree.GetAttrEntry)
    return frozen


def _attributes(names: tuple[str, ...]) -> Callable[[object], tuple[Any, ...]]:
    """Return a function that returns these attributes of an object."""
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda x: (get(x),)


def register(
    cls: type[Any],
    flatten_node: Callable[[Any], tuple[Sequence[object], Any, Sequence[object]]],
    unflatten_node: Callable[[Any, Iterable[object]], Any],
    entry: type[optree.PyTreeEntry] = optree.GetItemEntry,
) -> None:
    """Register a class: its instances, but not those of subclasses, are containers.

    `flatten_node(x)` gives children, hashable structure data and one key per child; `unflatten_node(data, children)`
    returns the instance. Structures compare the data exactly: 1, 1.0 and True differ.

    Raises: ParameterError when the class is a container already; ArgumentError for what is no class or function, and
            for a function that does not return three parts. When an instance is flattened, ArgumentError for such a
            function, and for data that are not hashable.
    """
    register_fields(cls, (), flatten_node, unflatten_node, entry)


def register_fields(
    cls: type[Any],
    fixed: Sequence[str],
    flatten_node: Callable[[Any], tuple[Sequence[object], Any, Sequence[object]]],
    unflatten_node: Callable[[Any, Iterable[object]], Any],
    entry: type[optree.PyTreeEntry],
) -> None:
    """Register a class whose structure data are the tuple of the fields `fixed`, if there are some."""
    if not isinstance(cls, type) or not callable(flatten_node) or not callable(unflatten_node):
        raise ArgumentError(
            f"tree.register: takes a class and two functions, got {described(cls)}, {described(flatten_node)} and"
            f" {described(unflatten_node)}",
            remedy="register(cls, flatten_node, unflatten_node); fxad.tree.dataclass makes a class and registers it",
        )

    sizes = _returned_tuples(flatten_node)
    if sizes and 3 not in sizes:
        raise _not_three_parts(cls, (None,) * min(sizes))

    def flat(x: object) -> tuple[Sequence[object], _StaticData, Sequence[object]]:
        if (given := _running.given) is not None and given.instance is x:
            return given.parts
        parts: Any = flatten_node(x)
        if type(parts) is not tuple or len(parts) != 3:
            raise _not_three_parts(cls, parts)
        children, data, keys = parts
        return children, _static_data(cls, fixed, exact_key(data), data), keys

    def unflat(data: _StaticData, children: Sequence[object]) -> Any:
        if children and children[0] is _NO_VALUE:
            return _DataOnly(data)
        return unflatten_node(data.value, children)

    _register(cls, flat, unflat, entry)


def _returned_tuples(f: object) -> set[int]:
    """Return the lengths of the tuples that a function returns, as its code displays them: `return a, b`. Empty if
    there is another return."""
    code, sizes, before = getattr(f, "__code__", None), set[int](), None
    if not isinstance(code, CodeType) or code.co_flags & CO_GENERATOR:
        return sizes
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("RETURN_VALUE", "RETURN_CONST"):
            made = instruction if instruction.opname == "RETURN_CONST" else before
            if made is not None and made.opname == "BUILD_TUPLE":
                sizes.add(made.arg or 0)
            elif made is not None and made.opname in ("LOAD_CONST", "RETURN_CONST") and isinstance(made.argval, tuple):
                sizes.add(len(made.argval))
            else:
                return set()
        before = instruction
    return sizes


def _not_three_parts(cls: type, parts: object) -> ArgumentError:
    """Return the error for the result of a function that takes a node apart."""
    number = f"of {len(parts)} values" if isinstance(parts, tuple) else ""
    return ArgumentError(
        f"tree.register: flatten_node of {cls.__qualname__} returns {described(parts)} {number}".rstrip()
        + ", not (children, data, keys)",
        remedy="give one key for each child, by which paths name it; fxad.tree.register_pytree_node takes JAX's pair"
        " (children, data)",
    )


def _register(
    cls: type[Any],
    flatten_node: Callable[[Any], tuple[Sequence[object], _StaticData, Sequence[object]]],
    unflatten_node: Callable[[Any, Any], Any],
    entry: type[optree.PyTreeEntry],
) -> None:
    try:
        optree.register_pytree_node(cls, flatten_node, unflatten_node, path_entry_type=entry, namespace=_NAMESPACE)
    except ValueError as e:
        raise ParameterError(
            f"tree.register: {e}", remedy="register a class once, and none that is a container already"
        ) from None


def _sorted_keys(keys: Iterable[Any]) -> tuple[object, ...]:
    try:
        return tuple(sorted(keys))
    except TypeError:
        return tuple(sorted(keys, key=lambda k: (type(k).__qualname__, str(k))))


def _flatten_map(x: Mapping[object, object]) -> tuple[Sequence[object], tuple[object, ...], tuple[object, ...]]:
    keys = _sorted_keys(x.keys())
    return [x[k] for k in keys], keys, keys


def _register_map() -> None:
    register(
        type(pyrsistent.pmap({})), _flatten_map, lambda keys, xs: pyrsistent.pmap(dict(zip(keys, xs, strict=True)))
    )


def _register_vectors() -> None:
    # pyrsistent has two vector classes, one in C
    def flat(x: Sequence[object]) -> tuple[Sequence[object], int, Sequence[int]]:
        return list(x), len(x), range(len(x))

    classes = {type(pyrsistent.pvector([])), PythonPVector}
    for cls in classes:
        register(cls, flat, lambda _, xs: pyrsistent.pvector(xs))


def _register_records(values: Sequence[object]) -> bool:
    """Register new pyrsistent record classes among the types of leaves. Return True if there were any. A container
    that the caller has selected as a leaf is not new."""
    # by type, not by leaf: each call runs this code
    persistent = [t for t in {type(x) for x in values} if issubclass(t, _PERSISTENT)]
    new = [t for t in persistent if optree.register_pytree_node.get(t, namespace=_NAMESPACE) is None]
    for cls in new:
        if issubclass(cls, PRecord):
            register(cls, _flatten_map, _make_record(cls))
        else:
            raise TreeError(
                f"tree: {cls.__qualname__} is a subclass of a pyrsistent container that fxad does not know",
                remedy="register the class: fxad.tree.register",
            )
    return bool(new)


def _make_record(cls: type[Any]) -> Callable[[tuple[object, ...], Iterable[object]], object]:
    # Type checks and invariants of fields must not run on tracers and None. So the record is built from the buckets of
    # a map, as pyrsistent itself does to evolve one.
    def make(keys: tuple[object, ...], xs: Iterable[object]) -> object:
        m = pyrsistent.pmap(dict(zip(keys, xs, strict=True)))
        return cls(_precord_size=len(m), _precord_buckets=m._buckets)

    return make


_register_map()
_register_vectors()

LEAF: Final = structure(0)
