"""Functions of neural networks. Values and derivatives are finite where the textbook form overflows."""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
