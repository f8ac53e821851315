"""The primitives as functions, and functions made of them, with JAX's names and argument orders.

The operands of a primitive must have one dtype and, for elementwise functions, one shape: there is no promotion or
broadcasting. A Python scalar takes the dtype and shape of the array operand. `dot`, `batch_matmul`, and the functions
of SciPy (`betaln`, `multigammaln`, `entr`, `xlogy`, `xlog1py`, `logit`, `expit`, `ndtr`, `log_ndtr`, `ndtri`, `i0`,
`i1`) have the rules of `fxad.numpy`: operands promote and broadcast, and in these functions integers become floats.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
