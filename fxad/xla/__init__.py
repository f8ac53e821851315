"""The implementation of `fxad.runtime` on jaxlib's private interface: devices, buffers, executables and their cache.

`in_threads` is imported at its first use. Python's executors take 2 ms to import, and only a program of several units
on a machine with four cores or more needs them. So is `processes`, which only several processes need.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.xla import in_threads, processes
else:
    __getattr__, __dir__ = lazy_exports(__name__, {}, modules="in_threads processes")

__all__ = ["in_threads", "processes"]
