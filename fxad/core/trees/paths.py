"""The path of a leaf in a tree as a tuple of keys, as in JAX, and classes of trees that name their own keys.

JAX's functions that register such classes are here, `register_pytree_with_keys` and others, and `Partial`: a function
whose given arguments are a tree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, Self, TypeAlias, TypeVar, final, overload

import optree

from fxad.core.dataclasses import dataclass
from fxad.core.trees import classes as tree_classes, tree
from fxad.core.trees.parts import outermost_node
from fxad.core.trees.tree import IsLeaf, Structure, leaves as leaves_of
from fxad.errors import ArgumentError, ParameterError, TreeError, described, shown

T = TypeVar("T")
D = TypeVar("D")
C = TypeVar("C", bound=type)

_ABSENT: Final = object()


# ------------------------------------------------------------------------------------------------------------- keys


@final
@dataclass(frozen=True, slots=True)
class DictKey:
    """The place of a child in a mapping."""

    key: object

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@final
@dataclass(frozen=True, slots=True)
class SequenceKey:
    """The place of a child in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@final
@dataclass(frozen=True, slots=True)
class GetAttrKey:
    """The name of the attribute that holds a child."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@final
@dataclass(frozen=True, slots=True)
class FlattenedIndexKey:
    """The number of a child, in a class that names no keys."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


KeyEntry: TypeAlias = Any  # a class may name its children by anything that has a text
KeyPath: TypeAlias = tuple[KeyEntry, ...]


class NamedKey(optree.PyTreeEntry):
    """An entry of a path in optree whose name is a key."""

    def __call__(self, obj: object) -> Any:
        """Return the child of an object at this key."""
        children, structure = _flatten_outermost(obj)
        return children[structure.entries().index(self.entry)]

    def codify(self, /, node: str = "") -> str:
        """Return the key behind an expression."""
        return f"{node}{self.entry}"


def key_path(accessor: Iterable[optree.PyTreeEntry]) -> KeyPath:
    """Return the path of a leaf as keys."""
    return tuple([_key(e) for e in accessor])


def _key(entry: optree.PyTreeEntry) -> KeyEntry:
    if isinstance(entry, NamedKey):
        return entry.entry
    if isinstance(entry, optree.NamedTupleEntry | optree.StructSequenceEntry):
        return GetAttrKey(entry.field)
    if isinstance(entry, optree.GetAttrEntry):
        return GetAttrKey(entry.name)
    if isinstance(entry, optree.SequenceEntry):
        return SequenceKey(entry.index)
    if isinstance(entry, optree.MappingEntry):  # an int is a key too
        return DictKey(entry.entry)
    if isinstance(entry, optree.FlattenedEntry):
        return FlattenedIndexKey(entry.entry)
    if isinstance(entry, optree.GetItemEntry) and isinstance(entry.entry, int):
        return SequenceKey(entry.entry)
    return DictKey(entry.entry)


def key_value(key: KeyEntry) -> object:
    """Return the key of a dict, the index or the name of the attribute; a key of another class itself."""
    if isinstance(key, DictKey | FlattenedIndexKey):
        return key.key
    if isinstance(key, SequenceKey):
        return key.idx
    return key.name if isinstance(key, GetAttrKey) else key


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """Return a path as text: `['layers'][0].w`, or with `simple` and a separator `layers/0/w`."""
    if not isinstance(separator, str) or not isinstance(keys, tuple | list):
        raise ArgumentError(
            f"tree.keystr: {described(keys)} is not a path, or {described(separator)} not a separator",
            remedy="give a tuple of keys, and a str",
        )
    return separator.join([str(key_value(k)) if simple else str(k) for k in keys])


# ------------------------------------------------------------------------------------------------- trees with paths


def flatten_with_path(
    tree: object, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], Structure]:
    """Return the leaves with their paths, in order, and the structure. With `is_leaf_takes_path`, `is_leaf(path,
    value)`."""
    if not isinstance(is_leaf_takes_path, bool):
        raise ArgumentError(
            f"tree: is_leaf_takes_path is {described(is_leaf_takes_path)}: {shown(is_leaf_takes_path)}",
            remedy="give True or False",
        )
    if is_leaf_takes_path and is_leaf is not None:
        is_leaf = _by_path(is_leaf)
    leaves, structure = _flatten(tree, is_leaf)
    return [(key_path(a), x) for a, x in zip(structure.accessors(), leaves, strict=True)], structure


def leaves_with_path(
    tree: object, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """Return the leaves with their paths, in order."""
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def map_with_path(
    f: Callable[..., object],
    tree: T,
    *rest: object,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> T:
    """Apply `f(path, leaf, ...)` to the leaves of trees of one structure."""
    if not callable(f):
        raise ArgumentError(f"tree.map_with_path: f is {described(f)}: {shown(f)}", remedy="give a function")
    pairs, structure = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    paths: Any = structure.unflatten([_Path(path) for path, _ in pairs])
    values = structure.unflatten([value for _, value in pairs])

    def with_path(path: _Path, *leaves: object) -> object:
        return f(path.keys, *leaves)

    out: T = _map(with_path, paths, values, *rest)
    return out


@final
class _Path:
    """A path that is a leaf of a tree: a tuple would be a container."""

    __slots__ = ("keys",)

    def __init__(self, keys: KeyPath) -> None:
        self.keys = keys


# the functions above have a parameter `tree`, as in JAX
_map: Final = tree.map
_flatten: Final = tree.flatten
_structure: Final = tree.structure


def _by_path(is_leaf: Callable[..., bool]) -> Callable[[Any], bool]:
    """Return a predicate of values for one call of `flatten`, from a predicate of paths and values. `flatten` gives it
    first a container, then its children in order, so the path of each value is known. The root comes again if `flatten`
    has met a class of records for the first time."""
    next_paths: list[KeyPath] = []  # of values that are to come, the last one first; empty before the root

    def selects(value: object) -> bool:
        path = next_paths.pop() if next_paths else ()
        if is_leaf(path, value):
            return True
        outer = _flatten_outermost(value)[1]
        if outer.num_nodes > 1:  # a container that has children
            next_paths.extend([(*path, *key_path(a)) for a in reversed(outer.accessors())])
        return False

    return selects


# ----------------------------------------------------------------------------------------------------- one container


def flatten_one_level(tree: object) -> tuple[tuple[Any, ...], Any]:
    """Return the children of the outermost container of a tree, and its data: the keys of a dict, the type of a
    namedtuple, the static data of a registered class, None for the others. Raises: TreeError for a leaf."""
    pairs, data = flatten_one_level_with_keys(tree)
    return tuple([child for _, child in pairs]), data


def flatten_one_level_with_keys(tree: object) -> tuple[tuple[tuple[KeyEntry, Any], ...], Any]:
    """Return `flatten_one_level`, with the key of each child: pairs (key, child)."""
    children, structure = _flatten_outermost(tree)
    if structure.num_nodes == 1 and structure.num_leaves == 1:
        raise TreeError(
            f"tree.flatten_one_level: {described(tree)} is a leaf", remedy="register its class, or give a container"
        )
    keys = [_key(accessor[0]) for accessor in structure.accessors()]
    return tuple(zip(keys, children, strict=True)), _without_lists(outermost_node(structure).data)


def _flatten_outermost(x: object) -> tuple[list[Any], Structure]:
    return tree.flatten(x, lambda y: y is not x)


def _without_lists(data: Any) -> Any:
    """Return data that can be hashed: optree's data of dicts has lists, which are not hashable."""
    if type(data) is tuple:
        return tuple([_without_lists(d) for d in data])
    return tuple(data) if isinstance(data, list) else data


def reduce_associative(
    operation: Callable[[Any, Any], Any], tree: object, *, identity: object = _ABSENT, is_leaf: IsLeaf = None
) -> Any:
    """Combine the leaves by an associative function, in pairs and then pairs of pairs: `f(f(a, b), f(c, d))`.

    Rule:   of an odd number of values, the second half is the longer one.
    Cost:   the longest chain of operations has the logarithm of the number of leaves, where that of `reduce` has all.
    Raises: ArgumentError for a tree without leaves and without `identity`.
    """
    if not callable(operation):
        raise ArgumentError(f"tree.reduce_associative: {described(operation)} is not callable")
    leaves = leaves_of(tree, is_leaf)
    if not leaves and identity is _ABSENT:
        raise ArgumentError("tree.reduce_associative: the tree has no leaves", remedy="give an identity")
    return _in_pairs(operation, leaves) if leaves else identity


def _in_pairs(operation: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return operation(_in_pairs(operation, values[:half]), _in_pairs(operation, values[half:]))


def prefix_errors(
    prefix_tree: object, full_tree: object, is_leaf: Callable[[Any], bool] | None = None
) -> list[Callable[[str], TreeError]]:
    """Return the places where a tree is not a prefix of another one: for each a function that makes the error from the
    name of the argument that has the prefix. Empty if it is a prefix."""
    return list(_prefix_errors((), prefix_tree, full_tree, is_leaf))


def _prefix_errors(
    path: KeyPath, prefix: object, full: object, is_leaf: Callable[[Any], bool] | None
) -> Iterator[Callable[[str], TreeError]]:
    outer = _flatten_outermost(prefix)[1]
    if (outer.num_nodes == 1 and outer.num_leaves == 1) or (is_leaf is not None and is_leaf(prefix)):
        return  # an entry stands for a whole subtree
    if type(prefix) is not type(full):
        yield functools.partial(_prefix_error, path, f"{described(prefix)}, and the whole tree {described(full)}")
        return
    children, data = flatten_one_level_with_keys(prefix)
    whole, whole_data = flatten_one_level_with_keys(full)
    if len(children) != len(whole):
        beside = {key for key, _ in children} ^ {key for key, _ in whole}
        named = f"; only one of them has {', '.join(sorted([str(k) for k in beside]))}"
        counts = f"{described(prefix)} with {len(children)} children, and the whole tree one with {len(whole)}{named}"
        yield functools.partial(_prefix_error, path, counts)
    elif data != whole_data:
        difference = f"{described(prefix)} with {data}, and the whole tree one with {whole_data}"
        yield functools.partial(_prefix_error, path, difference)
    else:
        for (key, child), (_, part) in zip(children, whole, strict=True):
            yield from _prefix_errors((*path, key), child, part, is_leaf)


def _prefix_error(path: KeyPath, difference: str, name: str) -> TreeError:
    return TreeError(
        f"{name}{keystr(path)}: the prefix has {difference}",
        remedy="give one entry for the whole tree, or a tree whose entries stand for whole subtrees",
    )


# ---------------------------------------------------------------------------------------------------------- classes


def register_pytree_node(
    nodetype: type[T],
    flatten_func: Callable[[T], tuple[Iterable[object], D]],
    unflatten_func: Callable[[D, Any], object],
    flatten_with_keys_func: Callable[[T], tuple[Iterable[tuple[KeyEntry, object]], D]] | None = None,
) -> None:
    """Register a class as a container, by functions as in JAX: `flatten_func(x)` gives (children, static data),
    `unflatten_func(data, children)` the instance. Raises: ParameterError for a class that is a container already."""
    if flatten_with_keys_func is not None:
        register_pytree_with_keys(nodetype, flatten_with_keys_func, unflatten_func)
        return

    def flat(x: T) -> tuple[Sequence[object], D, Sequence[int]]:
        flattened = flatten_func(x)
        try:
            children, data = flattened
            children = list(children)
        except (TypeError, ValueError):
            _check_parts(nodetype, flattened)
            raise
        return children, data, range(len(children))

    tree_classes.register(nodetype, flat, unflatten_func, optree.FlattenedEntry)


def register_pytree_with_keys(
    nodetype: type[T],
    flatten_with_keys: Callable[[T], tuple[Iterable[tuple[KeyEntry, object]], D]],
    unflatten_func: Callable[[D, Any], object],
    flatten_func: Callable[[T], tuple[Iterable[object], D]] | None = None,  # noqa: ARG001  as in JAX
) -> None:
    """Register a class as a container whose children have keys: `flatten_with_keys(x)` gives pairs (key, child), and
    static data. `flatten_func` is not needed, and accepted as JAX does."""

    def flat(x: T) -> tuple[Sequence[object], D, Sequence[KeyEntry]]:
        flattened = flatten_with_keys(x)
        try:
            pairs, data = flattened
            pairs = list(pairs)
            return [child for _, child in pairs], data, [key for key, _ in pairs]
        except (TypeError, ValueError):
            _check_parts(nodetype, flattened, "pairs (key, child)")
            raise

    tree_classes.register(nodetype, flat, unflatten_func, NamedKey)


def _check_parts(cls: type, flattened: object, children: str = "children") -> None:
    """Raise ArgumentError if a user's function takes an instance apart into something else than two parts, of which the
    first one is a collection."""
    if isinstance(flattened, tuple | list) and len(flattened) == 2:
        if isinstance(flattened[0], Iterable) and children == "children":
            return
        flattened_text = f"a pair whose first part is {described(flattened[0])}: {shown(flattened[0])}"
    else:
        flattened_text = f"{described(flattened)}: {shown(flattened)}"
    raise ArgumentError(
        f"tree: the function that takes apart {cls.__qualname__} returns {flattened_text}",
        remedy=f"return a pair: a sequence of {children}, and static data",
    )


def register_pytree_node_class(cls: C) -> C:
    """Register a class with the methods `tree_flatten(self)` and `tree_unflatten(cls, data, children)`; a decorator."""
    node: Any = cls  # the methods are JAX's protocol
    register_pytree_node(node, lambda x: x.tree_flatten(), node.tree_unflatten)
    return cls


def register_pytree_with_keys_class(cls: C) -> C:
    """Register a class with the methods `tree_flatten_with_keys` and `tree_unflatten`; a decorator."""
    node: Any = cls
    register_pytree_with_keys(node, lambda x: x.tree_flatten_with_keys(), node.tree_unflatten)
    return cls


def register_static(cls: C) -> C:
    """Register a class whose instances are part of the structure: they have no leaves; a decorator."""
    tree_classes.register(cls, lambda x: ((), x, ()), lambda data, _: data)
    return cls


@overload
def register_dataclass(
    nodetype: C,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> C: ...
@overload
def register_dataclass(
    *,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Callable[[C], C]: ...
def register_dataclass(
    nodetype: Any = None,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> object:
    """Register a dataclass as a container: `data_fields` are children, `meta_fields` are part of the structure.

    Without names, a field is part of the structure if its metadata say `static=True`. Fields in `drop_fields` are not
    kept. Raises: ArgumentError for names that are not the fields that `__init__` takes, and for `data_fields` without
    `meta_fields` or the reverse.
    """
    if nodetype is None:
        return lambda cls: register_dataclass(cls, data_fields, meta_fields, drop_fields)
    if (data_fields is None) != (meta_fields is None):
        given, left_out = ("data_fields", "meta_fields") if meta_fields is None else ("meta_fields", "data_fields")
        raise ArgumentError(
            f"register_dataclass: {given} is given without {left_out}",
            remedy="give both, an empty list if there are none, or neither",
        )
    if data_fields is None or meta_fields is None:
        if not is_dataclass(nodetype):
            raise ArgumentError(
                f"register_dataclass: {described(nodetype)} is not a dataclass: {shown(nodetype)}",
                remedy="decorate it with dataclasses.dataclass first, or name data_fields and meta_fields",
            )
        init_fields = [f for f in fields(nodetype) if f.init and f.name not in drop_fields]
        data_fields = [f.name for f in init_fields if not f.metadata.get("static")]
        meta_fields = [f.name for f in init_fields if f.metadata.get("static")]
    name: str = getattr(nodetype, "__qualname__", "")
    if is_dataclass(nodetype):
        init_names = {f.name for f in fields(nodetype) if f.init}
        given_names = {*data_fields, *meta_fields, *drop_fields}
        if not given_names >= init_names or not given_names - set(drop_fields) <= init_names:
            raise ArgumentError(
                f"register_dataclass: {name} has the fields {', '.join(sorted(init_names))}; "
                f"named are {', '.join(sorted(given_names))}",
                remedy="name each field that __init__ takes once, in data_fields, meta_fields or drop_fields",
            )
    data, meta = tuple(data_fields), tuple(meta_fields)
    in_both_lists = sorted({*data} & {*meta})
    if in_both_lists:
        raise ParameterError(
            f"register_dataclass: {', '.join(in_both_lists)} of {name} stands in data_fields and in meta_fields",
            remedy="name each field once: arrays in data_fields, static values in meta_fields",
        )

    def flat(x: object) -> tuple[Sequence[object], tuple[object, ...], tuple[str, ...]]:
        return [getattr(x, n) for n in data], tuple([getattr(x, n) for n in meta]), data

    def unflat(static: tuple[object, ...], children: Iterable[object]) -> object:
        return nodetype(**dict(zip((*meta, *data), (*static, *children), strict=True)))

    tree_classes.register_fields(nodetype, meta, flat, unflat, optree.GetAttrEntry)
    return nodetype


class _OpaquePartial:
    """A `functools.partial` whose arguments are part of the structure: Python merges it into a partial around it."""

    __slots__ = ("__weakref__", "_function")

    def __init__(self, function: functools.partial[Any]) -> None:
        self._function = function

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self._function == (other._function if isinstance(other, _OpaquePartial) else other)

    def __hash__(self) -> int:
        return hash(self._function)

    def __repr__(self) -> str:
        return repr(self._function)


class Partial(functools.partial[Any]):
    """`functools.partial` as a container: its arguments are children, the function is part of the structure. A partial
    of `functools` as the function is part of it as a whole; the arguments of a Partial there are children too."""

    def __new__(cls, func: Callable[..., Any], /, *args: Any, **keywords: Any) -> Self:
        """Return the function with its arguments."""
        if isinstance(func, functools.partial) and not isinstance(func, Partial):
            func = _OpaquePartial(func)
        return super().__new__(cls, func, *args, **keywords)


def _partial(func: Callable[..., object], args: object, keywords: object) -> Partial:
    # optree may pass a leaf in place of a child when it takes a structure apart
    named = keywords if isinstance(keywords, dict) else {"keywords": keywords}
    return Partial(func, *(args if isinstance(args, tuple) else (args,)), **named)


tree_classes.register(
    Partial,
    lambda p: ((p.args, p.keywords), p.func, (GetAttrKey("args"), GetAttrKey("keywords"))),
    lambda func, parts: _partial(func, *parts),
    NamedKey,
)
