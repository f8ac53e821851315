"""JAX works in a process in which fxad was imported first."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import fxad.lowering.mlir
from jaxlib.mlir._mlir_libs import _sdy
from jaxlib.mlir.dialects import sdy
print(sorted(set(dir(_sdy)) - set(dir(sdy))))
"""


def test_the_dialects_that_jax_imports_later_are_complete() -> None:
    # regression: `jax.pure_callback` raised AttributeError after fxad had parsed a module
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert [name for name in found.stdout.split("'")[1::2] if name.endswith("Attr")] == []
