"""Random numbers: keys are values, and a draw is a function of its key.

>>> import fxad as fx
>>> from fxad import random
>>> key = random.key(0)
>>> key, sub = random.split(key)
>>> random.normal(sub, (3,)).shape
(3,)

A key is an array u32[2]. The functions have the names and argument orders of `jax.random`, and from the same key data
those that say so give the same bits. There is no hidden state: a key used twice gives the same numbers twice, so
`split` it. Everything goes through `jit`, `vmap` (over keys, parameters or both) and `grad` (with respect to
parameters, wherever a draw is a differentiable function of them).

Parameters broadcast to `shape`, the shape of the result; where it is left out, the result has their common shape. The
dtype of floating results is the one asked for, else that of the parameters that are floating arrays, else float32.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
