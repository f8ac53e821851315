"""Looking at values while a program runs, under the names of `jax.debug`."""

from fxad.api.staging import stop_in_debugger as breakpoint
from fxad.lax.control.host import debug_callback as callback
from fxad.lax.control.host import debug_print as print

__all__ = ["breakpoint", "callback", "print"]
