"""Transformations: pure functions from jaxpr to jaxpr, memoised by value.

`vmap`, `specialize`, `inverse` and the table of inverse rules are not exported here. Import them from their files.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
