"""Values defined by equations, differentiated by the implicit function theorem, and solvers of linear systems."""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
