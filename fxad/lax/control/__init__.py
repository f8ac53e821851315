"""Control flow as functions: branches and loops over pytrees, with JAX's names and argument orders."""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
