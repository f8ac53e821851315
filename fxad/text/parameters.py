"""The parameters of a primitive class: their names, and which values its annotations admit.

mypy checks Python code against the annotations. This module checks parsed text against them.
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
    """A parameter: its name, the text of its annotation, the evaluated annotation, and True if it is required."""

    name: str
    type: str
    hint: object
    required: bool

    def takes(self, value: object) -> bool:
        """Returns True if a value has exactly the type of the field: True is not an int."""
        return type_test(self.hint)(value)


# The fields of a class, cached while the class exists.
_known: Final[WeakKeyDictionary[type[Primitive], Mapping[str, Field]]] = WeakKeyDictionary()


def fields_of(cls: type[Primitive]) -> Mapping[str, Field]:
    """The parameters of a primitive class by name, in order."""
    cached = _known.get(cls)
    if cached is None:
        hints = typing.get_type_hints(cls)
        fields = {
            f.name: Field(f.name, str(f.type), hints[f.name], f.default is dataclasses.MISSING)
            for f in dataclasses.fields(cls)  # type: ignore[arg-type]  # every leaf is a dataclass
        }
        cached = _known.setdefault(cls, fields)
    return cached
