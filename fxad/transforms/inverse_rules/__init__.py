"""Inverse rules, a family a file; `INVERSE_RULES` is the table that `inverse` and `invertible` use."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from fxad.transforms.inverse_rules.arithmetic import ARITHMETIC
from fxad.transforms.inverse_rules.contract import InverseRules

INVERSE_RULES: Final = InverseRules(MappingProxyType({rule.kind: rule for rule in (*ARITHMETIC,)}))

__all__ = ["INVERSE_RULES"]
