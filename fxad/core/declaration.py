"""The decorator that declares a primitive, `@final @primitive class Sin(Unary): ...`, and the checks of its parameters.

mypy checks calls in source code against the annotations of the class. The constructor checks the values at run time
against the same annotations. So equal primitives hold the same values: an int field never holds `True` or `1.0`, and
NumPy's ints become Python's.
"""

from __future__ import annotations

import types
import typing
from abc import ABCMeta
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass as standard_dataclass, field, fields
from operator import index
from typing import ClassVar, Final, Protocol, TypeAlias, TypeVar, cast, dataclass_transform

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.core.sizes.size import Size
from fxad.errors import ArgumentError, described, shown

T = TypeVar("T")
FieldCheck: TypeAlias = Callable[[object], bool]


class Abstract(ABCMeta):
    """The metaclass of abstract primitives. `ABCMeta.register` has no effect: only subclasses are instances.

    `isinstance` then costs as much as for plain classes, half as much as with ABCMeta. Passes call it on every
    equation.
    """

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def primitive(cls: type[T]) -> type[T]:
    """Make a primitive: a frozen, slotted dataclass compared by class and parameters.

    A class without parameters has one instance, compared and hashed by identity, in C.
    Raises: ArgumentError, from the constructor, for a parameter that its annotation does not admit.
    """
    annotations = cls.__dict__.get("__annotations__", {}).values()
    if all("ClassVar" in str(t) for t in annotations) and not getattr(cls, "__dataclass_fields__", {}):
        return _singleton(cls)
    type.__setattr__(cls, "__post_init__", _make_post_init())
    primitive_class = dataclass(frozen=True, slots=True, repr=False)(cls)
    # The generated hash is that of the fields alone. Primitives of two classes with equal fields would have one hash,
    # and would collide in each table of primitives. Records of two classes are rarely in one table.
    hash_of_fields, hash_of_class = primitive_class.__hash__, hash(primitive_class.__qualname__)
    primitive_class.__hash__ = lambda self: hash_of_class ^ hash_of_fields(self)  # type: ignore[method-assign]  # of a new class
    return primitive_class


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def primitive_family(cls: type[T]) -> type[T]:
    """Declare the parameters that the primitives of a family share. The leaves inherit them, and are `@primitive`.

    A family that is combined with another one, such as `Windowed`, or whose parameter comes last, such as `Grouped`, is
    not declared so: it annotates what its methods read, and the leaves declare the parameters in their order.
    """
    return standard_dataclass(init=False, repr=False, eq=False)(cls)


class Record:
    """A frozen dataclass that is a parameter of primitives. A leaf is `@final @record`, with typed fields as in a
    primitive. `name` is its name in program text."""

    __slots__ = ()
    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[object]]]  # every leaf is a dataclass


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a record: a frozen, slotted dataclass whose constructor checks its fields as that of a primitive does."""
    type.__setattr__(cls, "__post_init__", _make_post_init())
    return dataclass(frozen=True, slots=True)(cls)


def _singleton(cls: type[T]) -> type[T]:
    """Make a dataclass without fields. `dataclass` takes 0.25 ms to generate code for one, and there are 70."""
    instance = object.__new__(cls)
    # what `dataclass` sets, and types do not have; the methods of this one class are replaced
    cls.__dataclass_fields__ = {}  # type: ignore[attr-defined]
    cls.__new__ = lambda _: instance  # type: ignore[method-assign,assignment,return-value]
    cls.__reduce__ = lambda _: (cls, ())  # type: ignore[method-assign,assignment]
    cls.__deepcopy__ = lambda s, _: s  # type: ignore[attr-defined]
    return cls


# ------------------------------------------------------------------------------------------------------ parameters


class _Parametrised(Protocol):
    """A primitive or a record, with the attributes that this module reads."""

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[object]]]


def _make_post_init() -> Callable[[_Parametrised], None]:
    """Return the `__post_init__` of a primitive. It checks the parameters and converts them to plain values."""
    parameters: list[tuple[str, object, FieldCheck]] = []

    def check(self: _Parametrised) -> None:
        if not parameters:  # annotations may name classes that are defined later in their module
            hints = {name: type_of_words(hint) for name, hint in typing.get_type_hints(type(self)).items()}
            parameters.extend([(f.name, hints[f.name], type_test(hints[f.name])) for f in fields(self)])
        for name, hint, admits in parameters:
            value = getattr(self, name)
            if not admits(value):
                converted = to_plain_value(hint, value)
                if not admits(converted):
                    raise ArgumentError(
                        f"{self.name}: {name} must be {annotation_text(hint)}, got {described(value)}: {shown(value)}"
                    )
                object.__setattr__(self, name, converted)

    return check


_PLAIN_TYPES: Final = frozenset({int, Size, bool, str, type(None)})


def has_no_jaxpr(prim: object, names: Iterable[str]) -> bool:
    """Return True if all parameters are plain values or flat tuples of them, so that no parameter holds a program.

    Cost: 0.5 us for a primitive of several parameters.
    """
    for name in names:
        value = getattr(prim, name)
        kind = type(value)
        if kind not in _PLAIN_TYPES and (kind is not tuple or not _PLAIN_TYPES.issuperset(map(type, value))):
            return False
    return True


def type_of_words(hint: object) -> object:
    """Return `str` for a Literal of strings: the primitive that takes one of a few words says which there are, in its
    own words. Any other annotation is returned as it is."""
    return str if typing.get_origin(hint) is typing.Literal else hint


def type_test(hint: object) -> FieldCheck:
    """Return a function that tells if an annotation of a parameter admits a value. The check is exact: True is not an
    int.

    Raises: ArgumentError for an annotation that is not made of the kinds of `fxad.ir.Param`.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is np.dtype or origin is np.dtype:
        return lambda value: isinstance(value, np.dtype)
    if origin in (typing.Union, types.UnionType):
        first, *rest = [type_test(arg) for arg in args]
        if len(rest) == 1:  # the common case: `X | None`
            (second,) = rest
            return lambda value: first(value) or second(value)
        return lambda value: first(value) or any([case(value) for case in rest])
    if origin is tuple:
        return _tuple_tester(args)
    if hint is int:  # a dimension of symbolic shape too
        return lambda value: type(value) is int or type(value) is Size
    if isinstance(hint, type) and hint not in _NOT_PARAMETERS:
        return lambda value: type(value) is hint
    raise ArgumentError(f"{annotation_text(hint)} is not a type of parameters", remedy="use what fxad.ir.Param names")


# Floats: equality is not identity of bits (0.0, -0.0, nan). Lists and the like are mutable.
_NOT_PARAMETERS: Final = frozenset({float, complex, list, dict, set, frozenset, object, bytes})


def _tuple_tester(args: tuple[object, ...]) -> FieldCheck:
    if len(args) == 2 and args[1] is Ellipsis:
        if isinstance(args[0], type):  # sizes and axes: faster than one test per item
            only = frozenset({int, Size} if args[0] is int else {args[0]})
            return lambda value: type(value) is tuple and only.issuperset(map(type, value))
        item = type_test(args[0])
        return lambda value: type(value) is tuple and all([item(v) for v in value])
    items = [type_test(arg) for arg in args]
    return lambda value: (
        type(value) is tuple and len(value) == len(items) and all([i(v) for i, v in zip(items, value, strict=True)])
    )


def to_plain_value(hint: object, value: object) -> object:
    """Convert a value to the plain type of an annotation: NumPy's ints and bools to Python's, lists to tuples."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        candidates = [to_plain_value(arg, value) for arg in args]
        return next((m for m, arg in zip(candidates, args, strict=True) if type_test(arg)(m)), value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if origin is tuple and isinstance(value, tuple | list):
        hints = [args[0]] * len(value) if len(args) == 2 and args[1] is Ellipsis else args
        if len(hints) != len(value):
            return value
        return tuple([to_plain_value(h, v) for h, v in zip(hints, value, strict=True)])
    if hint is int and not isinstance(value, bool | np.bool_):
        try:
            return index(cast("typing.SupportsIndex", value))  # it raises for any other object
        except TypeError:
            return value
    if hint is bool and isinstance(value, np.bool_):
        return bool(value)
    if hint is str and isinstance(value, str):
        return str.__str__(value)
    return value


def annotation_text(hint: object) -> str:
    """Return the text of an annotation in a message."""
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")
