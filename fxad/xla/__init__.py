"""The implementation of `fxad.runtime` on jaxlib's private interface: devices, buffers, executables and their cache.

`cuda` is imported at the first use of a GPU, `in_threads` at its first use: Python's executors take 2 ms to import, and
only a program of several units on a machine with four cores or more needs them.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.xla import cuda, in_threads
else:
    __getattr__, __dir__ = lazy_exports(__name__, {}, modules="cuda in_threads")

__all__ = ["cuda", "in_threads"]
