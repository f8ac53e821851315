"""Transformations: pure functions from jaxpr to jaxpr, memoised by value.

`vmap` and `specialize` have the names of their modules, so they are not exported here: import them from these.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
