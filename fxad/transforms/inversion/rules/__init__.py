"""Inverse rules, one family per file. `INVERSE_RULES` is the table that `inverse` and `invertible` use."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from fxad.transforms.inversion.rules.arithmetic import ARITHMETIC
from fxad.transforms.inversion.rules.contract import InverseTable
from fxad.transforms.inversion.rules.control import CONTROL
from fxad.transforms.inversion.rules.conversion import CONVERSION
from fxad.transforms.inversion.rules.elementwise import ELEMENTARY
from fxad.transforms.inversion.rules.implicit import IMPLICIT
from fxad.transforms.inversion.rules.indexing import INDEXING
from fxad.transforms.inversion.rules.products import PRODUCTS
from fxad.transforms.inversion.rules.refused import REFUSED
from fxad.transforms.inversion.rules.running import RUNNING
from fxad.transforms.inversion.rules.structure import STRUCTURE
from fxad.transforms.inversion.rules.systems import SYSTEMS

_ALL: Final = (
    *ARITHMETIC,
    *ELEMENTARY,
    *CONVERSION,
    *STRUCTURE,
    *INDEXING,
    *RUNNING,
    *PRODUCTS,
    *SYSTEMS,
    *CONTROL,
    *IMPLICIT,
    *REFUSED,
)

INVERSE_RULES: Final = InverseTable(MappingProxyType({rule.kind: rule for rule in _ALL}))

__all__ = ["INVERSE_RULES"]
