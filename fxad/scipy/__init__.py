"""SciPy's functions at SciPy's paths, over fxad arrays: `special`, `linalg`, `stats`, `optimize`, `signal` and more.

Each is a function of `fxad.lax`, `fxad.nn` or `fxad.numpy.linalg` under SciPy's name, with SciPy's defaults. Arguments
promote and broadcast; integers become float32.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
