"""The implementation of `fxad.runtime` on jaxlib's private interface: devices, buffers, executables and their cache.

Three modules are imported at their first use. Only a program of several units needs `progress`, and `in_threads` if the
machine has four cores or more: Python's executors take 2 ms to import. Only several processes need `processes`.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.xla import in_threads, processes, progress
else:
    __getattr__, __dir__ = lazy_exports(__name__, {}, modules="in_threads processes progress")

__all__ = ["in_threads", "processes", "progress"]
