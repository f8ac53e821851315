"""Pytrees: nested containers <-> a flat list of leaves and a structure. Implemented with optree.

Containers: dict, OrderedDict, defaultdict, tuple, list, deque, namedtuple, None (no leaves), classes made by
`fxad.tree.dataclass`, and pyrsistent maps, vectors and records. Everything else is a leaf. Each leaf
has a path in Python syntax (`params['layers'][0].w`), for messages. `fxad.tree` is the public interface.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, dataclass_transform

import optree
import pyrsistent
from pyrsistent import PMap, PRecord, PVector
from pyrsistent._pvector import PythonPVector

from fxad.core.exact_key import COMPARED_BY_EQUALITY, exact_key
from fxad.errors import ArgumentError, ParameterError, TreeError, described

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
            f"tree: is_leaf is {described(is_leaf)}, not a function: {is_leaf!r:.60}",
            remedy="give a predicate of a node",
        )


def _check_function(what: str, f: object) -> None:
    if not callable(f):
        raise ArgumentError(
            f"tree.{what} is {described(f)}, not a function: {f!r:.60}", remedy="give something that can be called"
        )


def _check_structure(what: str, structure: object) -> None:
    if not isinstance(structure, Structure):
        raise ArgumentError(
            f"tree.{what} is {described(structure)}, not a structure: {structure!r:.60}",
            remedy="give what tree.structure returns",
        )


def flatten(tree: object, is_leaf: IsLeaf = None) -> tuple[list[Any], Structure]:
    """Leaves in order, and the structure that `unflatten` takes. A container that `is_leaf` selects is a leaf."""
    if is_leaf is not None:
        _check_is_leaf(is_leaf)
    leaves, structure = optree.tree_flatten(tree, is_leaf, namespace=_NAMESPACE)  # type: ignore[arg-type]  # any object
    if _register_records(leaves):
        return flatten(tree, is_leaf)
    return leaves, structure


def flatten_up_to(structure: Structure, tree: object) -> list[Any] | None:
    """The subtrees of `tree` at the leaves of `structure`; None if the tree does not match."""
    try:
        return structure.flatten_up_to(tree)  # type: ignore[arg-type]  # any object is a tree
    except (ValueError, TypeError, AttributeError):
        _check_structure("flatten_up_to: structure", structure)
        return None


def unflatten(treedef: Structure, leaves: Iterable[object]) -> Any:
    """The tree of a structure over new leaves. Raises: TreeError when their number is wrong."""
    try:
        return treedef.unflatten(leaves)
    except (AttributeError, TypeError):
        _check_structure("unflatten: treedef", treedef)
        if not isinstance(leaves, Iterable):
            raise ArgumentError(
                f"tree.unflatten: leaves is {described(leaves)}, not a sequence: {leaves!r:.60}", remedy="give a list"
            ) from None
        raise
    except ValueError as e:
        raise TreeError(f"unflatten: {e}", remedy="give as many leaves as the structure has") from None


def leaves(tree: object, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves, in order."""
    return flatten(tree, is_leaf)[0]


def structure(tree: object, is_leaf: IsLeaf = None) -> Structure:
    """The structure of a tree; hashable, compared by value."""
    return flatten(tree, is_leaf)[1]


def tuple_structure(*structures: Structure) -> Structure:
    """The structure of a tuple of trees."""
    return optree.treespec_tuple(structures, namespace=_NAMESPACE)


def call_structure(args: Structure, kwargs: Structure | None = None) -> Structure:
    """The structure of the arguments of a call: of the tuple of positional arguments and the dict of keyword arguments,
    which is empty by default."""
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
    """The subtrees of another tree at the leaves of the first. Raises: TreeError."""
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
    """Returns True if every leaf is true."""
    return builtins.all(leaves(tree, is_leaf))


def transpose(outer_treedef: Structure, inner_treedef: Structure | None, pytree_to_transpose: object) -> Any:
    """A tree of structure `outer_treedef`, which has trees of structure `inner_treedef` at its leaves, turned inside
    out. By default, `inner_treedef` is the structure of the first inner tree. Raises: TreeError.
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
    """A tree of the structure of `full_tree`, in which each leaf of `prefix_tree` is repeated over its subtree.

    Raises: TreeError if the prefix does not fit.
    """
    entries, outer = flatten(prefix_tree, is_leaf)
    parts = _fitting("broadcast", outer, full_tree, 1)
    shape = structure(full_tree, is_leaf)
    return unflatten(shape, [e for e, p in zip(entries, parts, strict=True) for _ in leaves(p, is_leaf)])


def paths(structure: Structure, root: str = "") -> list[str]:
    """The paths of all leaves, as Python would spell them behind the name `root`."""
    _check_structure("paths: structure", structure)
    return [a.codify(root) for a in structure.accessors()]


def broadcast_prefix(
    prefix: object, structure: Structure, what: str, is_leaf: Callable[[object], bool], exact: bool = False
) -> list[Any]:
    """The entries of a tree prefix, repeated so that there is one for each leaf of `structure`.

    `is_leaf` says what an entry is (None may be one). `what` names the argument, as in `vmap: in_axes`. Of the prefix
    `(0, None)` and the structure of `({"w": x, "b": y}, z)`, they are 0, 0 and None. A list may stand for a tuple, and
    a tuple for a list, unless `exact`: users write `in_axes` either way.
    Raises: TreeError when the prefix does not fit.
    """
    if is_leaf(prefix):
        return [prefix] * structure.num_leaves
    try:
        return _entries_of_leaves(prefix, structure.unflatten(range(structure.num_leaves)), is_leaf, exact)
    except (ValueError, TypeError):
        raise TreeError(
            f"{what}: {prefix!r} is not a tree prefix of {shape_text(structure)}",
            remedy="give one entry for the whole tree, or a tree whose entries stand for whole subtrees",
        ) from None


def _entries_of_leaves(prefix: object, whole: object, is_leaf: Callable[[object], bool], exact: bool) -> list[object]:
    """For each leaf of a tree, the entry of the prefix. Raises: ValueError, TypeError if it is no prefix."""
    if is_leaf(prefix):
        return [prefix] * len(leaves(whole))
    entries, outer = _children(prefix)
    parts, inner = _children(whole)
    either = not exact and {type(prefix), type(whole)} == {list, tuple}
    same = outer == inner or (either and len(entries) == len(parts))
    if not same or (outer.num_leaves == 1 and outer.num_nodes == 1):
        raise ValueError("no prefix")
    return [x for e, p in zip(entries, parts, strict=True) for x in _entries_of_leaves(e, p, is_leaf, exact)]


def _children(tree: object) -> tuple[list[object], Structure]:
    """The children of the outermost container of a tree, and its structure with leaves for children."""
    # any object is a tree, to optree
    return optree.tree_flatten(tree, is_leaf=lambda x: x is not tree, namespace=_NAMESPACE)  # type: ignore[arg-type]


def difference(a: Structure, b: Structure) -> str:
    """The first difference of two structures, for messages."""
    return _first_difference(a, b, paths(a, "tree"), paths(b, "tree"))


def _misfit(a: Structure, b: Structure) -> str:
    """The first difference of two structures, where `b` may have a subtree in place of a leaf of `a`."""
    leaves_of_a = set(a.accessors())
    # the path of a leaf of `b`, or of the subtree around it that stands at a leaf of `a`
    cut = [next((p[:k] for k in range(len(p)) if p[:k] in leaves_of_a), p) for p in b.accessors()]
    return _first_difference(a, b, paths(a, "tree"), [p.codify("tree") for p in dict.fromkeys(cut)])


def _first_difference(a: Structure, b: Structure, pa: Sequence[str], pb: Sequence[str]) -> str:
    """The first difference of two structures with the paths `pa` and `pb`."""
    for x, y in zip(pa, pb, strict=False):
        if x != y:
            return f"{x} stands against {y}"
    if len(pa) != len(pb):
        longer = pa if len(pa) > len(pb) else pb
        return f"{longer[min(len(pa), len(pb))]} is only in one of them ({len(pa)} and {len(pb)} leaves)"
    return f"{shape_text(a)} and {shape_text(b)}"


class Node(NamedTuple):
    """A container of a structure: its data other than children, and one key for each child."""

    data: Any
    keys: Sequence[object]


def outermost_node(structure: Structure) -> Node:
    """The outermost container of a structure that is not a leaf."""
    outer = structure.one_level()
    assert outer is not None
    node = optree.tree_flatten_one_level(outer.unflatten(range(structure.num_children)), namespace=_NAMESPACE)
    data = node.metadata
    return Node(data.value if isinstance(data, _StaticData) else data, node.entries)


def unflattener(cls: type) -> Callable[[Any, Sequence[object]], Any] | None:
    """The function that makes an instance of a registered class from its data and children; None for other classes."""
    if issubclass(cls, PRecord) and not _registered(cls):
        register(cls, _flatten_map, _make_record(cls))
    registration = _registered(cls)
    if registration is None or cls.__module__ in ("builtins", "collections"):
        return None
    make = registration.unflatten_func
    return lambda data, children: make(_static_data(data), children)


def is_container(cls: type) -> bool:
    """Returns True if instances of a class are containers, and not leaves."""
    return _registered(cls) is not None or optree.is_namedtuple_class(cls)


def _registered(cls: type) -> Any:
    return optree.register_pytree_node.get(cls, namespace=_NAMESPACE)


def shape_text(structure: Structure) -> str:
    """A structure in short form, as in `(*, {'w': *}, Layer(w=*, b=*))`."""
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
    if dataclasses.is_dataclass(kind):  # its static fields are part of the structure
        node = structure.unflatten(range(structure.num_leaves))
        fixed = [n.name for n in dataclasses.fields(kind) if n.metadata.get("static")]
        named += [f"{n}={getattr(node, n)!r}" for n in fixed]
    return f"{kind.__name__}({', '.join(named)})"


def static(*, metadata: Mapping[Any, Any] | None = None, **kwargs: Any) -> Any:
    """A field of a tree dataclass that is part of the structure, not a leaf; its value must be hashable.

    The arguments are those of `dataclasses.field`. Raises: ArgumentError for metadata that is not a mapping.
    """
    if not isinstance(metadata, Mapping | None):
        raise ArgumentError(
            f"tree.static: metadata is {described(metadata)}, not a mapping: {metadata!r:.60}", remedy="give a dict"
        )
    return dataclasses.field(metadata={**(metadata or {}), "static": True}, **kwargs)


class _StaticData(tuple[Any, ...]):
    """The data of a container that are not its children, behind a key by which structures compare them exactly."""

    __slots__ = ()
    value = property(itemgetter(1))

    def __reduce__(self) -> tuple[object, ...]:
        return _static_data, (self.value,)  # the key has types, such as that of functions, which pickle does not find

    def __repr__(self) -> str:
        return repr(self.value)


def _static_data(value: Any) -> _StaticData:
    return _StaticData((exact_key(value), value))


_NO_STATIC_DATA: Final = _static_data(())


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
        return get_children(x), _StaticData((key, values)), children

    def unflat(data: _StaticData, parts: Iterable[object]) -> T:
        # the leaves may be anything while a transform runs, so __post_init__ must not see them
        x = object.__new__(frozen)
        for n, v in zip((*fixed, *children), (*data.value, *parts), strict=True):
            object.__setattr__(x, n, v)
        return x

    _register(frozen, flat, unflat, optree.GetAttrEntry)
    return frozen


def _attributes(names: tuple[str, ...]) -> Callable[[object], tuple[Any, ...]]:
    """A function that returns these attributes of an object."""
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
    returns the instance. Structures compare the data exactly: 1, 1.0 and True differ. Raises: ParameterError when the
    class is a container already.
    """

    def flat(x: object) -> tuple[Sequence[object], _StaticData, Sequence[object]]:
        children, data, keys = flatten_node(x)
        return children, _static_data(data), keys

    _register(cls, flat, lambda data, children: unflatten_node(data.value, children), entry)


def _register(
    cls: type[Any],
    flatten_node: Callable[[Any], tuple[Sequence[object], _StaticData, Sequence[object]]],
    unflatten_node: Callable[[Any, Iterable[object]], Any],
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
    """Register new pyrsistent record classes among the types of leaves. Returns True if there were any. A container
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
