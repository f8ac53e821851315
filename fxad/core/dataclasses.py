"""`dataclass` for the frozen, slotted classes of fxad. It behaves as the standard one; a declaration costs a tenth.

The standard decorator inspects each annotation, and generates and compiles the text of five methods per class. That
took a third of `import fxad`. Here, comparison, hash and the other methods are closures over the names of the fields.
`__init__` is still compiled from text, because it runs for each instance, but only at its first use. The standard
`Field` objects are made at their first use too. Most programs use few of the classes.

A class that is frozen and slotted takes this one, any other the standard one, as those of `fxad.optim`, which have no
slots. tests/test_architecture.py checks it.

A type checker sees `dataclasses.dataclass`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from operator import attrgetter
from types import FunctionType, MappingProxyType, MemberDescriptorType, MethodType
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, NoReturn, Protocol, TypeVar, cast

from fxad.core.frames import Scoped

T = TypeVar("T")


class _DataclassLike(Protocol):
    """The attribute of a dataclass that this module reads."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]


class _Declared(NamedTuple):
    """The declaration of a field: its annotation, and its default, a `Field`, or MISSING."""

    annotation: object
    default: object

    def compares(self) -> bool:
        """Return True if equality reads the field."""
        return not isinstance(self.default, dataclasses.Field) or self.default.compare

    def is_parameter(self) -> bool:
        """Return True if `__init__` takes the field, in its place."""
        return not isinstance(self.default, dataclasses.Field) or (
            self.default.init and self.default.kw_only in (False, dataclasses.MISSING)
        )


def frozen_dataclass(
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    repr: bool = True,  # noqa: A002 -- the names of the standard one
    init: bool = True,
    weakref_slot: bool = False,
) -> Callable[[type[T]], type[T]]:
    """Return a class decorator with the result of `dataclasses.dataclass`, at a lower cost.

    Law: signature, fields, repr, equality, hash, pickles and errors are those of the standard decorator.
    Raises: TypeError for a class that is not frozen and slotted, or for a field that is not a positional parameter.
    """
    if not (frozen and slots):
        raise TypeError("a dataclass of fxad.core.dataclasses is frozen and slotted: use the standard one")

    def decorate(declared: type[T]) -> type[T]:
        fields = _declared_fields(declared)
        if init and not all([f.is_parameter() for f in fields.values()]):
            raise TypeError(
                f"{declared.__qualname__}: a field that __init__ does not take in order needs the standard one"
            )
        body = dict(vars(declared))
        if body.get("__hash__") is None:  # Python writes None beside an __eq__
            body.pop("__hash__", None)
        methods: dict[str, object] = {**_SHARED, "__match_args__": tuple(fields)}
        if init:
            methods["__init__"] = _Initializer(fields)
        if repr:
            methods["__repr__"] = _repr
        if eq:
            methods |= _comparison(tuple([name for name, f in fields.items() if f.compares()]))
        for name in (*fields, "__dict__", "__weakref__"):
            body.pop(name, None)
        body = methods | body
        inherited = {name for base in declared.__mro__[1:-1] for name in _slots(base)}
        new_fields = tuple([name for name in fields if name not in inherited])
        body["__slots__"] = (*new_fields, "__weakref__") if weakref_slot else new_fields
        body["__dataclass_fields__"] = _Fields(fields)
        body["__doc__"] = declared.__doc__ or f"{declared.__name__}({', '.join(fields)})"
        metaclass: type[type] = type(declared)
        cls = metaclass(declared.__name__, declared.__bases__, body)
        cls.__qualname__ = declared.__qualname__
        return cast("type[T]", cls)  # the same declaration, with slots

    return decorate


def _declared_fields(cls: type) -> dict[str, _Declared]:
    """Return the fields of a class in order, those of its bases first."""
    fields: dict[str, _Declared] = {}
    for base in cls.__mro__[-1:0:-1]:
        inherited = vars(base).get("__dataclass_fields__")
        if isinstance(inherited, _Fields):
            fields |= inherited.declared
        elif inherited:
            fields |= {f.name: _Declared(f.type, f) for f in dataclasses.fields(base)}
    for name, annotation in vars(cls).get("__annotations__", {}).items():
        if "ClassVar" not in str(annotation):
            default = getattr(cls, name, dataclasses.MISSING)
            if isinstance(default, MemberDescriptorType):  # the slot of a base
                default = dataclasses.MISSING
            fields[name] = _Declared(annotation, default)
    return fields


def _slots(cls: type) -> tuple[str, ...]:
    slots: str | tuple[str, ...] = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


class _MadeAtFirstUse:
    """A descriptor in place of a member of a class, which it makes and stores when the member is first used."""

    __slots__ = ("cls", "declared")

    def __init__(self, declared: Mapping[str, _Declared]) -> None:
        self.declared = declared
        self.cls: type = object

    def __set_name__(self, owner: type, name: str) -> None:
        self.cls = owner


class _Fields(_MadeAtFirstUse):
    """`__dataclass_fields__`: the standard `Field` objects."""

    __slots__ = ()

    def __get__(self, instance: object, owner: type[object]) -> dict[str, dataclasses.Field[object]]:
        defaults = {n: f.default for n, f in self.declared.items() if f.default is not dataclasses.MISSING}
        annotations = {n: f.annotation for n, f in self.declared.items()}
        body = {
            **defaults,
            "__annotations__": annotations,
            "__doc__": "without one, the standard decorator prints a signature",
        }
        template = type(self.cls.__name__, (), body)
        decorated: object = dataclasses.dataclass(init=False, repr=False, eq=False)(template)
        fields = cast("type[_DataclassLike]", decorated).__dataclass_fields__  # the decorator has set the attribute
        type.__setattr__(self.cls, "__dataclass_fields__", fields)  # as in `_Initializer`
        return fields


def _no_assignment(_self: object, name: str, _value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_deletion(_self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: _DataclassLike) -> list[object]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _restore(self: _DataclassLike, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


# The objects whose repr is being made. `reprlib` keeps them in a set, in which an interruption leaves one for ever.
_in_repr: Final[Scoped[tuple[object, ...]]] = Scoped("fxad_repr", ())


def _repr(self: _DataclassLike) -> str:
    outer = _in_repr.get()
    if any([o is self for o in outer]):
        return "..."
    with _in_repr((*outer, self)):
        values = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(values)})"


@dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)
class _Standard:
    """A class that the standard decorator made, with its attributes that all such classes share."""


_SHARED: Final[Mapping[str, object]] = MappingProxyType(
    {
        "__setattr__": _no_assignment,
        "__delattr__": _no_deletion,
        "__getstate__": _state,
        "__setstate__": _restore,
        # `__replace__`: from Python 3.13 on
        **{name: value for name, value in vars(_Standard).items() if name in ("__dataclass_params__", "__replace__")},
    }
)


def _comparison(names: tuple[str, ...]) -> dict[str, object]:
    """Equality and hash of the tuple of the fields. Equal: the same class, and all fields identical or equal."""
    if len(names) == 1:
        return _comparison_of_one(attrgetter(*names))
    key: Callable[[object], tuple[object, ...]] = attrgetter(*names) if names else lambda _: ()

    def equal(self: object, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": lambda self: hash(key(self))}


def _comparison_of_one(get: Callable[[object], object]) -> dict[str, object]:
    # Tuples of one: tuple equality returns a bool, and identical items are equal.
    def equal(self: object, other: object) -> bool:
        return (get(self),) == (get(other),) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": lambda self: hash((get(self),))}


class _Initializer(_MadeAtFirstUse):
    """`__init__`: the generated function."""

    __slots__ = ()

    def __get__(self, instance: object, owner: type[object]) -> FunctionType | MethodType:
        init = _generate_init(self.cls, self.declared)
        type.__setattr__(self.cls, "__init__", init)  # two threads may both store it: the functions are equivalent
        return init if instance is None else MethodType(init, instance)


def _generate_init(cls: type, fields: Mapping[str, _Declared]) -> FunctionType:
    """Return the `__init__` of a class, compiled from generated text."""
    scope: dict[str, object] = {"_set": object.__setattr__}
    params, body = ["self"], []
    for name, (_, declared) in fields.items():
        value, default = name, declared
        factory: object = dataclasses.MISSING
        if isinstance(declared, dataclasses.Field):
            default, factory = declared.default, declared.default_factory
        if factory is not dataclasses.MISSING:
            scope[f"_make_{name}"], scope[f"_default_{name}"] = factory, _ABSENT
            value = f"_make_{name}() if {name} is _default_{name} else {name}"
        elif default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = default
        params.append(f"{name}=_default_{name}" if f"_default_{name}" in scope else name)
        body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    text = f"def __init__({', '.join(params)}):\n " + "\n ".join(body or ["pass"])
    exec(compile(text, _FILE, "exec"), scope)
    init = cast("FunctionType", scope["__init__"])  # the text defines it
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {name: f.annotation for name, f in fields.items()} | {"return": None}
    return init


# The file of the generated functions. It is in fxad, so that an error there names the line of the user's call.
_FILE: Final = f"{frozen_dataclass.__code__.co_filename}/__init__"


class _Absent:
    """The default of an argument with a factory. Its repr is that of the standard one."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT: Final = _Absent()

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = frozen_dataclass
