"""Programs as values, and the tools that read and build them: types, printing, meaning, memoisation. `diff` is imported
at its first use."""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
