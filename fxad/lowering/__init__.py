"""Rooms behind `fxad.lower`: how types, constants, places and modules are written as MLIR text.

What reads modules back, `mlir`, is imported when it is first asked for: jaxlib's bindings take 7 ms,
and a program is compiled without them.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import later

if TYPE_CHECKING:
    from fxad.lowering import mlir
else:
    __getattr__, __dir__ = later(__name__, {}, modules="mlir")

__all__ = ["mlir"]
