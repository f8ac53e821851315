"""fxad: programs as values. Trace a function once; transform, compare, store, compile and run the program.

>>> import fxad as fx
>>> import fxad.numpy as fnp
>>> program = fx.trace(lambda x: fnp.sum(fnp.sin(x)), fx.Spec((3,), "float32"))
>>> gradient = fx.lower(fx.grad(fx.remat(program))).compile()

The public modules are `fx.lax`, `fx.numpy`, `fx.random` and `fx.nn`. Modules that few programs use are imported at
their first use.
"""

from typing import Final

import fxad.api.gradients
import fxad.api.jit  # noqa: F401  # these two import what almost every program needs (decision 29)
from fxad.core.lazy_exports import lazy_exports
from fxad.execution.executable import lower as lower  # not lazily: it hides the file `fxad.lower`, imported above

__version__: Final = "0.1.0"

__getattr__, __dir__, __all__ = lazy_exports(__name__)
__all__ = [name for name in __all__ if name not in ("test_util", "testing")]  # these two need hypothesis
