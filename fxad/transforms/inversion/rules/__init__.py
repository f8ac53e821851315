"""Inverse rules, one file for several families. `INVERSE_RULES` is the table that `inverse` and `invertible` use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fxad.ir import Primitive
from fxad.primitives.manifest import ALL
from fxad.transforms.inversion.rules.arithmetic import ARITHMETIC
from fxad.transforms.inversion.rules.contract import InverseTable
from fxad.transforms.inversion.rules.control import CONTROL
from fxad.transforms.inversion.rules.conversion import CONVERSION
from fxad.transforms.inversion.rules.elementwise import ELEMENTARY
from fxad.transforms.inversion.rules.indexing import INDEXING
from fxad.transforms.inversion.rules.products import PRODUCTS
from fxad.transforms.inversion.rules.refused import REFUSED, WHY_NOT
from fxad.transforms.inversion.rules.structure import STRUCTURE
from fxad.transforms.inversion.rules.systems import SYSTEMS

# A primitive that is not in the manifest has the rule of its family, too: `InverseTable.of`.
INVERSE_RULES: Final = InverseTable.of_rows((
    *ARITHMETIC,
    *ELEMENTARY,
    *CONVERSION,
    *STRUCTURE,
    *INDEXING,
    *PRODUCTS,
    *SYSTEMS,
    *CONTROL,
    *REFUSED,
))  # fmt: skip

# the primitives without an inverse, and the reasons
REASONS: Final[Mapping[type[Primitive], str]] = MappingProxyType(
    {kind: WHY_NOT[rule.kind] for kind in ALL if (rule := INVERSE_RULES.rows.get(kind)) and rule.kind in WHY_NOT}
)

__all__ = ["INVERSE_RULES", "REASONS"]
