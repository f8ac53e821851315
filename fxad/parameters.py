"""The parameters of a primitive class: their names, and which values its annotations admit.

mypy checks what is written in Python; this checks what comes from a text, by the same annotations.
"""

from __future__ import annotations

import dataclasses
import threading
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final
from weakref import WeakKeyDictionary

import numpy as np

from fxad.ir import Aval, Jaxpr, Lit, Primitive


@final
@dataclass(frozen=True, slots=True)
class Field:
    """A parameter: its name, its type as written in the class and as Python evaluates it, whether it must be given."""

    name: str
    type: str
    hint: object
    required: bool

    def takes(self, value: object) -> bool:
        """Whether a value is of the field's type; exactly: True is not an int."""
        return admits(self.hint, value)


# What is known of a class follows from the class, so it is kept as long as the class is.
_known: Final[WeakKeyDictionary[type[Primitive], Mapping[str, Field]]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


def fields_of(cls: type[Primitive]) -> Mapping[str, Field]:
    """The parameters of a primitive class by name, in order."""
    with _lock:
        if cls not in _known:
            hints = typing.get_type_hints(cls)
            _known[cls] = {
                f.name: Field(f.name, str(f.type), hints[f.name], f.default is dataclasses.MISSING)
                for f in dataclasses.fields(cls)  # type: ignore[arg-type]  # every leaf is a dataclass
            }
        return _known[cls]


def admits(hint: object, value: object) -> bool:
    """Whether an annotation of a parameter admits a value.

    Raises: TypeError for an annotation that is not made of the kinds of `Param`.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in (int, bool, str, Aval, Lit, Jaxpr, type(None)):
        return type(value) is hint
    if hint is np.dtype or origin is np.dtype:
        return isinstance(value, np.dtype)
    if origin in (typing.Union, types.UnionType):
        return any([admits(arg, value) for arg in args])
    if origin is typing.Literal:
        return any([type(value) is type(arg) and value == arg for arg in args])
    if hint is tuple or origin is tuple:
        if type(value) is not tuple:
            return False
        if len(args) == 2 and args[1] is Ellipsis:
            return all([admits(args[0], v) for v in value])
        return len(value) == len(args) and all(map(admits, args, value))
    raise TypeError(f"{hint!r} is not a type of parameters")
