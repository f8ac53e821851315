"""Classes whose instances are containers of a pytree: `dataclass`, `register`, and those of pyrsistent.

The data of an instance that are not its children are static: part of the structure, which compares them exactly.
"""

from __future__ import annotations

import dataclasses
import dis
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from inspect import CO_GENERATOR
from operator import attrgetter
from types import CodeType
from typing import Any, Final, NamedTuple, Self, TypeVar, dataclass_transform, final

import optree
import pyrsistent
from pyrsistent import PMap, PRecord, PVector
from pyrsistent._pvector import PythonPVector

from fxad.core.exact_key import COMPARED_BY_EQUALITY, exact_key, unhashable_part
from fxad.errors import ArgumentError, ParameterError, TreeError, described, shown

T = TypeVar("T")

NAMESPACE: Final = "fxad"


@final
class _FlattenContext(threading.local):
    """The state that the functions of registered classes read while optree calls them in this thread. optree passes
    them nothing but the object, so there is no other channel.

    notes: of the running `flatten_exactly`: the functions append the static data of each instance.
    given: of the running `structure_of_instance`.
    """

    notes: list[Hashable] | None = None
    given: GivenParts | None = None


running: Final = _FlattenContext()


NO_VALUE: Final = object()  # stands for each child when only the data of a node is wanted
CHILDREN: Final = "children"  # attribute of an unflattening function of `dataclass`: the fields that are children


class GivenParts(NamedTuple):
    """An empty instance of a registered class, and the parts that its flattening function is to return for it."""

    instance: object
    parts: tuple[Sequence[object], StaticData, Sequence[object]]


@final
class DataOnly:
    """The data of a node, without its children. An unflattening function returns it if the children are `NO_VALUE`."""

    __slots__ = ("static",)

    def __init__(self, static: StaticData) -> None:
        self.static = static


@final
class StaticDataError(ArgumentError):
    """Static data of a class that is not hashable."""

    accessor: optree.PyTreeAccessor | None = None
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
            instances = optree.tree_leaves(tree, _has_unhashable_data, namespace=NAMESPACE)
            accessors = optree.tree_accessors(tree, _has_unhashable_data, namespace=NAMESPACE)
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
    if not registered(type(x)):
        return False
    try:
        registration_of(type(x)).flatten_func(x)
    except StaticDataError:
        return True
    return False


@final
class StaticData:
    """The data of a container that are not its children, with a key by which structures compare them exactly."""

    __slots__ = ("key", "value")

    def __init__(self, key: Hashable, value: Any) -> None:
        self.key, self.value = key, value

    def __eq__(self, other: object) -> bool:
        return type(other) is StaticData and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[object, ...]:
        return static_data, (self.value,)  # the key has types, such as that of functions, which pickle does not find

    def __repr__(self) -> str:
        return repr(self.value)


def static_data(value: Any) -> StaticData:
    """Return static data, with their key."""
    return StaticData(exact_key(value), value)


def static_data_of_instance(kind: type, names: Sequence[str], key: Hashable, value: Any) -> StaticData:
    """Return the static data of an instance, noted for `flatten_exactly`. Raises: StaticDataError if it is not
    hashable."""
    try:
        hash(key)
    except Exception as e:  # the user's code
        raise StaticDataError.of(kind, names, value) from e
    if running.notes is not None:
        running.notes.append(key)
    return StaticData(key, value)


NO_STATIC_DATA: Final = StaticData(exact_key(()), ())


def static(*, metadata: Mapping[Any, Any] | None = None, **kwargs: Any) -> Any:
    """Return a field of a tree dataclass that is part of the structure, not a leaf; its value must be hashable.

    The arguments are those of `dataclasses.field`. Raises: ArgumentError for metadata that is not a mapping.
    """
    if not isinstance(metadata, Mapping | None):
        raise ArgumentError(
            f"tree.static: metadata is {described(metadata)}, not a mapping: {shown(metadata)}", remedy="give a dict"
        )
    return dataclasses.field(metadata={**(metadata or {}), "static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def dataclass(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass and a pytree: its fields are children, those made by `static` are structure.

    >>> from fxad.tree import dataclass, leaves
    >>> @dataclass
    ... class Layer:
    ...     w: object
    ...     b: object
    >>> leaves(Layer(w=1, b=2))
    [1, 2]

    Raises: ArgumentError for what is no class.
    """
    if not isinstance(cls, type):
        raise ArgumentError(
            f"tree.dataclass: takes a class, got {described(cls)}: {shown(cls)}",
            remedy="decorate a class; a field is made static by fxad.tree.static",
        )
    frozen = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(frozen)  # type: ignore[arg-type]  # it is a dataclass now
    children = tuple(f.name for f in fields if not f.metadata.get("static"))
    static_fields = tuple(f.name for f in fields if f.metadata.get("static"))
    get_children, get_static = _attributes(children), _attributes(static_fields)

    def flat(x: object) -> tuple[Sequence[object], StaticData, tuple[str, ...]]:
        if not static_fields:
            return get_children(x), NO_STATIC_DATA, children
        values = get_static(x)  # then as `exact_key`, without its frames: every call flattens its arguments
        kinds = tuple(map(type, values))
        key = (tuple, kinds, values) if COMPARED_BY_EQUALITY.issuperset(kinds) else exact_key(values)
        return get_children(x), static_data_of_instance(frozen, static_fields, key, values), children

    def unflat(data: StaticData, parts: Sequence[object]) -> T:
        # the leaves may be anything while a transform runs, so __post_init__ must not see them
        x = object.__new__(frozen)
        for n, v in zip((*static_fields, *children), (*data.value, *parts), strict=True):
            object.__setattr__(x, n, v)
        return x

    unflat.__dict__[CHILDREN] = children
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
    static_fields: Sequence[str],
    flatten_node: Callable[[Any], tuple[Sequence[object], Any, Sequence[object]]],
    unflatten_node: Callable[[Any, Iterable[object]], Any],
    entry: type[optree.PyTreeEntry],
) -> None:
    """Register a class whose structure data are the tuple of the `static_fields`, if there are some."""
    if not isinstance(cls, type) or not callable(flatten_node) or not callable(unflatten_node):
        raise ArgumentError(
            f"tree.register: takes a class and two functions, got {described(cls)}, {described(flatten_node)} and"
            f" {described(unflatten_node)}",
            remedy="register(cls, flatten_node, unflatten_node); fxad.tree.dataclass makes a class and registers it",
        )

    sizes = _returned_tuples(flatten_node)
    if sizes and 3 not in sizes:
        raise _not_three_parts(cls, (None,) * min(sizes))

    def flat(x: object) -> tuple[Sequence[object], StaticData, Sequence[object]]:
        if (given := running.given) is not None and given.instance is x:
            return given.parts
        parts: Any = flatten_node(x)
        if type(parts) is not tuple or len(parts) != 3:
            raise _not_three_parts(cls, parts)
        children, data, keys = parts
        return children, static_data_of_instance(cls, static_fields, exact_key(data), data), keys

    def unflat(data: StaticData, children: Sequence[object]) -> Any:
        if children and children[0] is NO_VALUE:
            return DataOnly(data)
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
    flatten_node: Callable[[Any], tuple[Sequence[object], StaticData, Sequence[object]]],
    unflatten_node: Callable[[Any, Any], Any],
    entry: type[optree.PyTreeEntry],
) -> None:
    try:
        optree.register_pytree_node(cls, flatten_node, unflatten_node, path_entry_type=entry, namespace=NAMESPACE)
    except ValueError as e:
        raise ParameterError(
            f"tree.register: {e}", remedy="register a class once, and none that is a container already"
        ) from None


def is_container(cls: type) -> bool:
    """Return True if instances of a class are containers, and not leaves."""
    return registration_of(cls) is not None or optree.is_namedtuple_class(cls)


def registered(cls: type) -> bool:
    """Return True for a class that was registered, by a user or by fxad; containers of Python are not."""
    return registration_of(cls) is not None and cls.__module__ not in ("builtins", "collections")


def registration_of(cls: type) -> Any:
    """Return what optree has of a class of containers: its functions, and more; None for other classes."""
    return optree.register_pytree_node.get(cls, namespace=NAMESPACE)


# ---------------------------------------------------------------------------------------------- classes of pyrsistent


def _flatten_map(x: Mapping[Any, object]) -> tuple[Sequence[object], tuple[object, ...], tuple[object, ...]]:
    try:
        keys = tuple(sorted(x.keys()))
    except TypeError:
        keys = tuple(sorted(x.keys(), key=lambda k: (type(k).__qualname__, str(k))))
    return [x[k] for k in keys], keys, keys


def _flatten_vector(x: Sequence[object]) -> tuple[Sequence[object], int, Sequence[int]]:
    return list(x), len(x), range(len(x))


register(type(pyrsistent.pmap({})), _flatten_map, lambda keys, xs: pyrsistent.pmap(dict(zip(keys, xs, strict=True))))
for _cls in {type(pyrsistent.pvector([])), PythonPVector}:  # there are two classes, one in C
    register(_cls, _flatten_vector, lambda _, xs: pyrsistent.pvector(xs))


_PERSISTENT: Final = (PRecord, PMap, PVector)


def register_records(values: Sequence[object]) -> bool:
    """Register new pyrsistent record classes among the types of leaves. Return True if there were any. A container
    that the caller has selected as a leaf is not new."""
    # by type, not by leaf: each call runs this code
    persistent = [t for t in {type(x) for x in values} if issubclass(t, _PERSISTENT)]
    new = [t for t in persistent if registration_of(t) is None]
    for cls in new:
        if not issubclass(cls, PRecord):
            raise TreeError(
                f"tree: {cls.__qualname__} is a subclass of a pyrsistent container that fxad does not know",
                remedy="register the class: fxad.tree.register",
            )
        register_record(cls)
    return bool(new)


def register_record(cls: type[Any]) -> None:
    """Register a class of pyrsistent records."""

    # Type checks and invariants of fields must not run on tracers and None. So the record is built from the buckets of
    # a map, as pyrsistent itself does to evolve one.
    def make(keys: tuple[object, ...], xs: Iterable[object]) -> object:
        m = pyrsistent.pmap(dict(zip(keys, xs, strict=True)))
        return cls(_precord_size=len(m), _precord_buckets=m._buckets)

    register(cls, _flatten_map, make)
