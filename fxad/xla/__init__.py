"""The implementation of `fxad.runtime` on jaxlib's private interface: devices, buffers, executables and their cache.

TABLE
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.xla import in_threads, processes
else:
    __getattr__, __dir__ = lazy_exports(__name__, {}, modules="in_threads processes")

__all__ = ["in_threads", "processes"]
