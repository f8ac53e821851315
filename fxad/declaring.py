"""How the class of a primitive is declared: `@final @primitive class Sin(Unary): ...`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def primitive(cls: type[T]) -> type[T]:
    """Make a primitive: a frozen, slotted dataclass compared by class and parameters.

    A class without parameters has one instance, compared and hashed by identity, in C.
    """
    if all("ClassVar" in str(t) for t in cls.__dict__.get("__annotations__", {}).values()):
        return _singleton(cls)
    made = dataclass(frozen=True, slots=True, repr=False)(cls)
    by_params = made.__hash__
    seed = hash(made.__qualname__)
    made.__hash__ = lambda self: seed ^ by_params(self)  # type: ignore[method-assign]
    return made


def _singleton(cls: type[T]) -> type[T]:
    """A dataclass without fields, by hand: `dataclass` takes 0.25 ms to generate code for it, and there are 70."""
    instance = object.__new__(cls)
    cls.__dataclass_fields__ = {}  # type: ignore[attr-defined]
    cls.__new__ = lambda _: instance  # type: ignore[method-assign,assignment,return-value]
    cls.__reduce__ = lambda _: (cls, ())  # type: ignore[method-assign,assignment]
    cls.__deepcopy__ = lambda s, _: s  # type: ignore[attr-defined]
    return cls
