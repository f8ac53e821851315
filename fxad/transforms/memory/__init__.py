"""The memory of reverse mode: what a program stores for its derivative, as the user says.

remat, policies       recomputation, and the values that select what is stored; `checkpoint_policies` has JAX's names
residuals             the table of the values that reverse mode stores
segments              a program cut into recomputations where few bytes live
nested_scan           a loop in nested segments of steps

`memory_plans` plans a program that is not differentiated any more, within a budget of bytes.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
