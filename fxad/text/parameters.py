"""The parameters of a primitive class: their names, and which values its annotations admit.

mypy checks what is written in Python; this checks what comes from a text, by the same annotations.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Final, final
from weakref import WeakKeyDictionary

from fxad.core.dataclasses import dataclass
from fxad.core.declaration import type_test
from fxad.ir import Primitive


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
        return type_test(self.hint)(value)


# What is known of a class follows from the class, so it is kept as long as the class is.
_known: Final[WeakKeyDictionary[type[Primitive], Mapping[str, Field]]] = WeakKeyDictionary()


def fields_of(cls: type[Primitive]) -> Mapping[str, Field]:
    """The parameters of a primitive class by name, in order."""
    known = _known.get(cls)
    if known is None:
        hints = typing.get_type_hints(cls)
        found = {
            f.name: Field(f.name, str(f.type), hints[f.name], f.default is dataclasses.MISSING)
            for f in dataclasses.fields(cls)  # type: ignore[arg-type]  # every leaf is a dataclass
        }
        known = _known.setdefault(cls, found)
    return known
