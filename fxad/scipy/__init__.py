"""SciPy's functions at SciPy's paths, over fxad arrays: `special`, `linalg`, `stats`, `optimize`, `signal` and more.

The names, argument orders and defaults are SciPy's. Where `fxad.lax`, `fxad.nn` or `fxad.numpy.linalg` has the
function, it is that one; the others are written here, over `fxad.numpy`. Arguments promote and broadcast; integers
become float32.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
