"""The implementation of `fxad.runtime` on jaxlib's private interface: devices, buffers, executables and their cache.

`cuda` is imported at the first use of a GPU.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.xla import cuda
else:
    __getattr__, __dir__ = lazy_exports(__name__, {}, modules="cuda")

__all__ = ["cuda"]
