"""Linear algebra: the extension of the array API standard, NumPy's further functions, and some of scipy.linalg.

Matrices are on the last two axes; the other axes are batch axes. Integers and bools are computed in float32.
float16 and bfloat16 are errors: compute in float32. If a decomposition fails its results are nan.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
