"""The parameters of a primitive class: their names, and which values its annotations admit.

mypy checks Python code against the annotations. This module checks parsed text against them.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.core.declaration import type_of_words, type_test
from fxad.core.weak import WeakKeyTable
from fxad.ir import Primitive, Record

Records: TypeAlias = Mapping[str, type[Record]]  # by their names in texts


@final
@dataclass(frozen=True, slots=True)
class Field:
    """A parameter: its name, the text of its annotation, the evaluated annotation, and True if it is required."""

    name: str
    type: str
    hint: object
    required: bool
    records: Records  # those that its type names

    def takes(self, value: object) -> bool:
        """Return True if a value has exactly the type of the field: True is not an int."""
        return type_test(self.hint)(value)


# The fields of a class, cached while the class exists.
_fields: Final[WeakKeyTable[type[Primitive | Record], Mapping[str, Field]]] = WeakKeyTable()


def fields_of(cls: type[Primitive | Record]) -> Mapping[str, Field]:
    """Return the parameters of a primitive, or the fields of a record, by name, in order."""
    cached = _fields.get(cls)
    if cached is None:
        hints = {name: type_of_words(hint) for name, hint in typing.get_type_hints(cls).items()}
        fields = {
            f.name: Field(
                f.name,
                "str" if hint is str else str(f.type),
                hint,
                f.default is dataclasses.MISSING,
                dict(_records(hint)),
            )
            for f in dataclasses.fields(cls)
            for hint in (hints[f.name],)
        }
        cached = _fields.setdefault(cls, fields)
    return cached


def _records(hint: object) -> Iterator[tuple[str, type[Record]]]:
    if isinstance(hint, type) and issubclass(hint, Record):
        yield hint.name, hint
    for part in typing.get_args(hint):
        yield from _records(part)
