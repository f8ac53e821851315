"""Compilation units: the choice of the parts that are compiled separately, and the plan that links them. Nothing is
compiled or run here. `picture` is imported at its first use."""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
