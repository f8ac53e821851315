"""`dataclass` for the frozen, slotted classes of fxad. It behaves as the standard one; a declaration costs a tenth.

The standard decorator generates and compiles the text of five methods per class, which took a third of `import fxad`.
Here, comparison, hash and the other methods are closures over the names of the fields. `__init__` is still compiled
from text, because it runs for each instance, but only at its first use. Most programs use few of the classes.

A type checker sees `dataclasses.dataclass`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn, Protocol, TypeVar, cast

T = TypeVar("T")


class _DataclassLike(Protocol):
    """The attribute of a dataclass that this module reads."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]


def frozen_dataclass(
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    repr: bool = True,  # noqa: A002 -- the names of the standard one
) -> Callable[[type[T]], type[T]]:
    """A class decorator with the result of `dataclasses.dataclass`, at a lower cost.

    Law: signature, fields, repr, equality, hash, pickles and errors are those of the standard decorator.
    Raises: TypeError for a class that is not frozen and slotted, or for a field that is not a positional parameter.
    """
    if not (frozen and slots):
        raise TypeError("a dataclass of fxad.core.dataclasses is frozen and slotted: use the standard one")

    def decorate(declared: type[T]) -> type[T]:
        defined = set(vars(declared))
        docstring = declared.__doc__
        declared.__doc__ = docstring or declared.__name__  # without a docstring, the standard one prints the signature
        cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(declared)
        typed = cast("type[_DataclassLike]", cls)
        fields = dataclasses.fields(typed)
        if any([f.kw_only or not f.init for f in fields]):
            raise TypeError(f"{cls.__qualname__}: a field that __init__ does not take in order needs the standard one")
        methods: dict[str, object] = dict(_SHARED)
        if not docstring:
            cls.__doc__ = f"{cls.__name__}({', '.join([f.name for f in fields])})"
        if repr:
            methods["__repr__"] = _repr
        if eq:
            methods |= _comparison(tuple([f.name for f in fields if f.compare]))
            if vars(declared).get("__hash__") is None:  # Python writes None beside an __eq__
                defined.discard("__hash__")
        methods["__init__"] = _Initializer(typed)
        for name, method in methods.items():
            if name not in defined:
                type.__setattr__(cls, name, method)
        return cls

    return decorate


def _no_assignment(_self: object, name: str, _value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_deletion(_self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: _DataclassLike) -> list[object]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _restore(self: _DataclassLike, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


@recursive_repr()
def _repr(self: _DataclassLike) -> str:
    values = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(values)})"


_SHARED: Final[tuple[tuple[str, object], ...]] = (
    ("__setattr__", _no_assignment),
    ("__delattr__", _no_deletion),
    ("__getstate__", _state),
    ("__setstate__", _restore),
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


class _Initializer:
    """A descriptor in place of the `__init__` of a class. At its first use it generates the function and stores it."""

    __slots__ = ("cls",)

    def __init__(self, cls: type[_DataclassLike]) -> None:
        self.cls = cls

    def __get__(self, instance: object, owner: type[object]) -> FunctionType | MethodType:
        init = _generate_init(self.cls)
        type.__setattr__(self.cls, "__init__", init)  # two threads may both store it: the functions are equivalent
        return init if instance is None else MethodType(init, instance)


def _generate_init(cls: type[_DataclassLike]) -> FunctionType:
    """The `__init__` of a class, compiled from generated text."""
    fields = dataclasses.fields(cls)
    scope: dict[str, object] = {"_set": object.__setattr__}
    params, body = ["self"], []
    for f in fields:
        value = f.name
        if f.default_factory is not dataclasses.MISSING:
            scope[f"_make_{f.name}"], scope[f"_default_{f.name}"] = f.default_factory, _ABSENT
            value = f"_make_{f.name}() if {f.name} is _default_{f.name} else {f.name}"
        elif f.default is not dataclasses.MISSING:
            scope[f"_default_{f.name}"] = f.default
        params.append(f"{f.name}=_default_{f.name}" if f"_default_{f.name}" in scope else f.name)
        body.append(f"_set(self, {f.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(params)}):\n " + "\n ".join(body or ["pass"]), scope)
    init = cast("FunctionType", scope["__init__"])
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {f.name: f.type for f in fields} | {"return": None}
    return init


class _Absent:
    """The default of an argument with a factory. Its repr is that of the standard one."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT: Final = _Absent()

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = frozen_dataclass
