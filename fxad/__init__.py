"""fxad: programs as values. Trace a function once; transform, compare, store, compile and run the program.

>>> import fxad as fx
>>> import fxad.numpy as fnp
>>> program = fx.trace(lambda x: fnp.sum(fnp.sin(x)), fx.Spec((3,), "float32"))
>>> gradient = fx.lower(fx.grad(fx.remat(program))).compile()

The public modules are `fx.lax`, `fx.numpy`, `fx.random`, `fx.nn`, `fx.optim`, `fx.scipy`, `fx.image`, `fx.tree`,
`fx.sharding`, `fx.extend`, `fx.testing` and `fx.interop`. Those that few programs use are imported at their first use.
"""

from typing import Final

import fxad.api.gradients
import fxad.api.jit  # noqa: F401  # these two import what almost every program needs (decision 29)
from fxad.core.lazy_exports import lazy_exports
from fxad.execution.executable import lower as lower  # not lazily: it hides the file `fxad.lower`, imported above

__version__: Final = "0.1.0"

# Modules of JAX's paths, whose names stand elsewhere too: they do not stand between `grad` and `hessian` in `dir(fx)`.
_PATHS_OF_JAX: Final = frozenset(
    (
        "ad_checkpoint",
        "custom_batching",
        "custom_derivatives",
        "flatten_util",
        "ops",
        "stages",
        "test_util",
        "tree_util",
    )
)

__getattr__, _names, __all__ = lazy_exports(__name__)
__all__ = [name for name in __all__ if name not in ("test_util", "testing")]  # these two need hypothesis


def __dir__() -> list[str]:
    return sorted(set(_names()) - _PATHS_OF_JAX)
