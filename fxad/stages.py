"""The stages of a jitted function, under the names of `jax.stages`."""

from fxad.api.jitted import Jitted as Wrapped, TracedProgram as Traced
from fxad.execution.executable import Executable as Compiled, Lowered
from fxad.tracing.spec import ArgInfo

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]
