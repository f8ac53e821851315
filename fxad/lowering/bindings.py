"""jaxlib's MLIR bindings. They take 7 ms to import, so only code that parses modules imports them.

`import fxad` has loaded jaxlib itself before, without log output (`fxad.lowering.jaxlib`).
"""

from __future__ import annotations

from typing import Final

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _chlo, _jax_mlir_ext, _sdy, _stablehlo

dialects: Final = (_stablehlo, _chlo, _sdy)
register_dialects: Final = _jax_mlir_ext.register_dialects

__all__ = ["_stablehlo", "dialects", "ir", "register_dialects"]
