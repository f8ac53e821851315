"""Looking at values while a program runs, and at how arrays are divided, under the names of `jax.debug`."""

from fxad.api.devices import visualize_array_sharding, visualize_sharding
from fxad.api.staging import stop_in_debugger as breakpoint
from fxad.core.lazy_exports import explained_errors
from fxad.lax.control.host import debug_callback as callback, debug_print as print

__all__ = ["breakpoint", "callback", "print", "visualize_array_sharding", "visualize_sharding"]

__getattr__, __dir__ = explained_errors(__name__)  # for a missing name, the error says what to write instead
