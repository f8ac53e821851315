"""Pytrees: nested containers <-> a flat list of leaves and a structure. Implemented with optree.

Containers: dict, OrderedDict, defaultdict, tuple, list, deque, namedtuple, None (no leaves), classes made by
`fxad.tree.dataclass`, and pyrsistent maps, vectors and records. Everything else is a leaf. Each leaf
has a path in Python syntax (`params['layers'][0].w`), for messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, dataclass_transform

import optree
import pyrsistent
from pyrsistent import PMap, PRecord, PVector
from pyrsistent._pvector import PythonPVector

from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, ShapeError, TreeError, described

Structure: TypeAlias = optree.PyTreeSpec
T = TypeVar("T")

_NAMESPACE: Final = "fxad"
_PERSISTENT: Final = (PRecord, PMap, PVector)


def flatten(tree: object) -> tuple[list[Any], Structure]:
    """Leaves in order, and the structure that `unflatten` takes."""
    leaves, structure = optree.tree_flatten(tree, namespace=_NAMESPACE)  # type: ignore[arg-type,var-annotated]
    if _register_records(leaves):
        return flatten(tree)
    return leaves, structure


def flatten_up_to(structure: Structure, tree: object) -> list[Any] | None:
    """The subtrees of `tree` at the leaves of `structure`; None if the tree does not match."""
    try:
        return structure.flatten_up_to(tree)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return None


def unflatten(structure: Structure, leaves: Iterable[object]) -> Any:
    """The tree of a structure over new leaves. Raises: TreeError when their number is wrong."""
    try:
        return structure.unflatten(leaves)
    except ValueError as e:
        raise TreeError(f"unflatten: {e}", remedy="give as many leaves as the structure has") from None


def leaves(tree: object) -> list[Any]:
    """The leaves, in order."""
    return flatten(tree)[0]


def structure(tree: object) -> Structure:
    """The structure of a tree; hashable, compared by value."""
    return flatten(tree)[1]


def map(fn: Callable[..., object], tree: T, *rest: object) -> T:
    """Apply `fn` to the leaves of trees of one structure.

    Raises: TreeError with the first path at which the structures differ.
    """
    flat, shape = flatten(tree)
    others = []
    for k, r in enumerate(rest):
        xs, s = flatten(r)
        if s != shape:
            raise TreeError(
                f"tree.map: tree {k + 1} differs from the first: {difference(shape, s)}",
                remedy="give trees of one structure",
            )
        others.append(xs)
    out: T = unflatten(shape, [fn(*xs) for xs in zip(flat, *others, strict=True)])
    return out


def ravel(tree: T) -> tuple[Any, Callable[[Any], T]]:
    """The leaves of a tree of arrays in one vector, and the function from such a vector to such a tree.

    Rule:   the vector has the common dtype of the leaves, by promotion; `unravel` gives each leaf its own dtype back.
    Law:    `unravel(flat)` is the tree, with an array for each leaf.
    Raises: ArgumentError for a leaf that is not an array; DTypeError when there is no common dtype. `unravel`:
            ArgumentError, ShapeError, DTypeError for what is not a vector like `flat`.
    """
    flat, shape = flatten(tree)
    numpy = import_module("fxad.numpy")  # by name: fxad.numpy uses arrays, which use trees
    arrays = []
    for k, x in enumerate(flat):
        try:
            arrays.append(numpy.asarray(x))
        except FxadError as e:
            path = paths(shape, "tree")[k]
            raise ArgumentError(
                f"tree.ravel: {path} is {described(x)}, not an array: {x!r:.60}",
                remedy="ravel a tree of arrays and numbers",
            ) from e
    # of the original leaves: Python numbers among them take the dtype of the arrays
    dtype = numpy.result_type(*flat) if flat else numpy.float32
    vector = numpy.concat([x.astype(dtype).reshape(-1) for x in arrays]) if arrays else numpy.zeros(0, dtype)
    return vector, _unravel(shape, [(x.shape, x.dtype) for x in arrays], vector.shape[0], vector.dtype)


def _unravel(
    shape: Structure, parts: Sequence[tuple[tuple[int, ...], Any]], size: int, dtype: Any
) -> Callable[[Any], Any]:
    def unravel(vector: Any) -> Any:
        if not hasattr(vector, "dtype"):
            raise ArgumentError(
                f"unravel: {described(vector)} is not a vector: {vector!r:.60}",
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
        whole, out, at = import_module("fxad.numpy").asarray(vector), [], 0
        for sizes, own in parts:
            n = prod(sizes)
            out.append(whole[at : at + n].reshape(sizes).astype(own))
            at += n
        return unflatten(shape, out)

    return unravel


def paths(structure: Structure, root: str = "") -> list[str]:
    """The paths of all leaves, as Python would spell them behind the name `root`."""
    return [a.codify(root) for a in structure.accessors()]


def broadcast_prefix(prefix: object, structure: Structure, what: str, is_leaf: Callable[[object], bool]) -> list[Any]:
    """The entries of a tree prefix, repeated so that there is one for each leaf of `structure`.

    `is_leaf` says what an entry is (None may be one). `what` names the argument, as in `vmap: in_axes`.
    Raises: TreeError when the prefix does not fit.
    """
    if is_leaf(prefix):
        return [prefix] * structure.num_leaves
    whole = structure.unflatten(range(structure.num_leaves))
    out: list[Any] = []

    def spread(entry: object, part: object) -> None:
        out.extend([entry] * len(leaves(part)))

    try:
        _zip_prefix(prefix, whole, spread, is_leaf)
    except (ValueError, TypeError):
        raise TreeError(
            f"{what}: {prefix!r} is not a tree prefix of {shape_text(structure)}",
            remedy="give one entry for the whole tree, or a tree whose entries stand for whole subtrees",
        ) from None
    return out


def _zip_prefix(
    prefix: object, whole: object, fn: Callable[[object, object], None], is_leaf: Callable[[object], bool]
) -> None:
    if is_leaf(prefix):
        fn(prefix, whole)
        return
    entries, outer = _children(prefix)
    parts, inner = _children(whole)
    # a list may stand for a tuple: users write in_axes either way
    same = outer == inner or ({type(prefix), type(whole)} == {list, tuple} and len(entries) == len(parts))
    if not same or (outer.num_leaves == 1 and outer.num_nodes == 1):
        raise ValueError("no prefix")
    for e, p in zip(entries, parts, strict=True):
        _zip_prefix(e, p, fn, is_leaf)


def _children(tree: object) -> tuple[list[Any], Structure]:
    """The children of the outermost container of a tree, and its structure with leaves for children."""
    return optree.tree_flatten(tree, is_leaf=lambda x: x is not tree, namespace=_NAMESPACE)  # type: ignore[arg-type]


def difference(a: Structure, b: Structure) -> str:
    """The first difference of two structures, for messages."""
    pa, pb = paths(a, "tree"), paths(b, "tree")
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
    keys: Sequence[Any]


def outermost_node(structure: Structure) -> Node:
    """The outermost container of a structure that is not a leaf."""
    outer = structure.one_level()
    assert outer is not None
    node = optree.tree_flatten_one_level(outer.unflatten(range(structure.num_children)), namespace=_NAMESPACE)
    return Node(node.metadata, node.entries)


def unflattener(cls: type[Any]) -> Callable[[Any, Sequence[object]], Any] | None:
    """The function that makes an instance of a registered class from its data and children; None for other classes."""
    if issubclass(cls, PRecord) and not _registered(cls):
        register(cls, _flatten_map, _make_record(cls))
    registration = _registered(cls)
    return (
        None if registration is None or cls.__module__ in ("builtins", "collections") else registration.unflatten_func
    )


def is_container(cls: type[Any]) -> bool:
    """Returns True if instances of a class are containers, and not leaves."""
    return _registered(cls) is not None or optree.is_namedtuple_class(cls)


def _registered(cls: type[Any]) -> Any:
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
    fields = dataclasses.fields(frozen)  # type: ignore[arg-type]
    children = tuple(f.name for f in fields if not f.metadata.get("static"))
    fixed = tuple(f.name for f in fields if f.metadata.get("static"))

    def flat(x: Any) -> tuple[Sequence[object], tuple[object, ...], tuple[str, ...]]:
        return [getattr(x, n) for n in children], tuple([getattr(x, n) for n in fixed]), children

    def unflat(aux: tuple[object, ...], parts: Iterable[object]) -> Any:
        # the leaves may be anything while a transform runs, so __post_init__ must not see them
        x = object.__new__(frozen)
        for n, v in zip((*fixed, *children), (*aux, *parts), strict=True):
            object.__setattr__(x, n, v)
        return x

    register(frozen, flat, unflat, optree.GetAttrEntry)
    return frozen


def register(
    cls: type[Any],
    flatten_node: Callable[[Any], tuple[Sequence[object], Any, Sequence[Any]]],
    unflatten_node: Callable[[Any, Iterable[object]], Any],
    entry: type[optree.PyTreeEntry] = optree.GetItemEntry,
) -> None:
    """Register a class: its instances, but not those of subclasses, are containers.

    `flatten_node(x)` gives children, hashable structure data and one key per child; `unflatten_node(data, children)`
    returns the instance. Raises: ParameterError when the class is a container already.
    """
    try:
        optree.register_pytree_node(cls, flatten_node, unflatten_node, path_entry_type=entry, namespace=_NAMESPACE)
    except ValueError as e:
        raise ParameterError(
            f"tree.register: {e}", remedy="register a class once, and none that is a container already"
        ) from None


def _sorted_keys(keys: Iterable[Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(keys))
    except TypeError:
        return tuple(sorted(keys, key=lambda k: (type(k).__qualname__, str(k))))


def _flatten_map(x: Any) -> tuple[Sequence[object], Any, Sequence[Any]]:
    keys = _sorted_keys(x.keys())
    return [x[k] for k in keys], keys, keys


def _register_map() -> None:
    register(
        type(pyrsistent.pmap({})), _flatten_map, lambda keys, xs: pyrsistent.pmap(dict(zip(keys, xs, strict=True)))
    )


def _register_vectors() -> None:
    # pyrsistent has two vector classes, one in C
    def flat(x: Any) -> tuple[Sequence[object], Any, Sequence[Any]]:
        return list(x), len(x), range(len(x))

    classes = {type(pyrsistent.pvector([])), PythonPVector}
    for cls in classes:
        register(cls, flat, lambda _, xs: pyrsistent.pvector(xs))


def _register_records(values: Sequence[object]) -> bool:
    """Register pyrsistent record classes among the types of leaves. Returns True if there were any."""
    # by type, not by leaf: each call runs this code
    new = [t for t in {type(x) for x in values} if issubclass(t, _PERSISTENT)]
    for cls in new:
        if issubclass(cls, PRecord):
            register(cls, _flatten_map, _make_record(cls))
        else:
            raise TreeError(
                f"tree: {cls.__qualname__} is a subclass of a pyrsistent container that fxad does not know",
                remedy="register the class: fxad.tree.register",
            )
    return bool(new)


def _make_record(cls: type[Any]) -> Callable[[Any, Iterable[object]], Any]:
    # Type checks and invariants of fields must not run on tracers and None. So the record is built from the buckets of
    # a map, as pyrsistent itself does to evolve one.
    def make(keys: tuple[Any, ...], xs: Iterable[object]) -> Any:
        m = pyrsistent.pmap(dict(zip(keys, xs, strict=True)))
        return cls(_precord_size=len(m), _precord_buckets=m._buckets)

    return make


_register_map()
_register_vectors()
