"""The memory of reverse mode: `remat`, its policies, tables of residuals, and segments."""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
