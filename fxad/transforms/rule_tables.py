"""The table of a transformation: rules of primitives by class or by family, as those of `mask` and of `inversion`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Generic, Protocol, Self, TypeVar

from fxad.core.dataclasses import dataclass
from fxad.ir import Primitive
from fxad.primitives.families import of_family
from fxad.primitives.manifest import ALL


class RuleRow(Protocol):
    """A row of a table: the rule of one class, or of a family."""

    @property
    def kind(self) -> type[Primitive]:
        """The class."""


R = TypeVar("R", bound=RuleRow)


@dataclass(frozen=True, slots=True, eq=False)
class RuleTable(Generic[R]):
    """An immutable table of rules; two tables are different values. A subclass says which rules primitives from outside
    fxad state themselves."""

    rows: Mapping[type[Primitive], R] = field(repr=False)

    @classmethod
    def of_rows(cls, rows: Iterable[R]) -> Self:
        """Return the table of these rows, with the rows of families at their members too."""
        stated = {rule.kind: rule for rule in rows}
        of_members = {kind: rule for kind in ALL if (rule := of_family(stated, kind)) is not None}
        return cls(MappingProxyType({**stated, **of_members}))

    @abstractmethod
    def stated_by(self, prim: Primitive) -> R | None:
        """Return the rule that a primitive from outside fxad states itself; None for others."""

    def of(self, prim: Primitive) -> R | None:
        """Return the rule of a primitive: its row, the one that it states itself, or the row of its family."""
        return self.rows.get(type(prim)) or self.stated_by(prim) or of_family(self.rows, type(prim))
