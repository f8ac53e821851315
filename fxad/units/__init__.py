"""Compilation units: the choice of the parts that are compiled separately, and the plan that links them. Nothing is
compiled or run here. `picture` is imported at its first use."""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.units import picture
else:
    __getattr__, __dir__ = lazy_exports(__name__, {}, modules="picture")

__all__ = ["picture"]
