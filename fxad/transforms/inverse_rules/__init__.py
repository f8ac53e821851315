"""Inverse rules, a family a file; `INVERSE_RULES` is the table that `inverse` and `invertible` use."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from fxad.transforms.inverse_rules.arithmetic import ARITHMETIC
from fxad.transforms.inverse_rules.contract import InverseRules
from fxad.transforms.inverse_rules.control import CONTROL
from fxad.transforms.inverse_rules.conversion import CONVERSION
from fxad.transforms.inverse_rules.elementwise import ELEMENTARY
from fxad.transforms.inverse_rules.implicit import IMPLICIT
from fxad.transforms.inverse_rules.indexing import INDEXING
from fxad.transforms.inverse_rules.products import PRODUCTS
from fxad.transforms.inverse_rules.refused import REFUSED
from fxad.transforms.inverse_rules.running import RUNNING
from fxad.transforms.inverse_rules.structure import STRUCTURE
from fxad.transforms.inverse_rules.systems import SYSTEMS

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

INVERSE_RULES: Final = InverseRules(MappingProxyType({rule.kind: rule for rule in _ALL}))

__all__ = ["INVERSE_RULES"]
