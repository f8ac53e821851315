"""Mask rules, one file for several families. `MASK_RULES` is the table that `mask` uses."""

from __future__ import annotations

from typing import Final

from fxad.transforms.mask.contract import MaskTable
from fxad.transforms.mask.rules.collectives import COLLECTIVE
from fxad.transforms.mask.rules.control import CONTROL
from fxad.transforms.mask.rules.fourier import FOURIER
from fxad.transforms.mask.rules.indexing import INDEXING
from fxad.transforms.mask.rules.lanes import LANEWISE
from fxad.transforms.mask.rules.linalg import LINALG
from fxad.transforms.mask.rules.products import PRODUCTS
from fxad.transforms.mask.rules.reductions import REDUCTIONS
from fxad.transforms.mask.rules.refused import REFUSED
from fxad.transforms.mask.rules.sorting import SORTING
from fxad.transforms.mask.rules.structure import STRUCTURE
from fxad.transforms.mask.rules.windows import WINDOWS

# A primitive that is not in the manifest has the rule of its family, too: `MaskTable.of`.
MASK_RULES: Final = MaskTable.of_rows((
    *LANEWISE,
    *REDUCTIONS,
    *PRODUCTS,
    *STRUCTURE,
    *INDEXING,
    *SORTING,
    *WINDOWS,
    *LINALG,
    *FOURIER,
    *CONTROL,
    *COLLECTIVE,
    *REFUSED,
))  # fmt: skip

__all__ = ["MASK_RULES"]
