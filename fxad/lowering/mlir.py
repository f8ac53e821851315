"""Parses, verifies and prints modules with jaxlib's MLIR bindings.

Programs are written and compiled as text, so this module is used only to print that text. Threads must not share an
MLIR context: each parse takes a context from a pool, and returns it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar, final

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext

# not their `_mlir_libs`: importing `_sdy` first leaves `dialects.sdy` without attributes that JAX needs
from jaxlib.mlir.dialects import chlo, sdy, stablehlo

from fxad.errors import CompileError
from fxad.lowering.jaxlib import _jax

R = TypeVar("R")


@final
class _ModuleParser:
    """A pool of contexts with the dialects loaded. A new one is made (3 ms) if the pool is empty."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: deque[ir.Context] = deque()

    def __call__(self, source: str, use: Callable[[ir.Module], R]) -> R:
        """Parse and verify a module, and apply `use` to it. No other thread uses the context meanwhile."""
        try:
            context = self._free.pop()
        except IndexError:
            context = _context()
        try:
            return use(ir.Module.parse(source, context))
        except ir.MLIRError as e:
            remedy = "correct `lower` of the primitive"
            raise CompileError(f"lower: MLIR refuses the module: {e}", remedy=remedy) from e
        finally:
            self._free.append(context)


def _context() -> ir.Context:
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    return context


_parser: Final = _ModuleParser()


def pretty(source: str) -> str:
    """Return the module in MLIR's own form, without locations. Raises: CompileError when it is not valid."""
    return _parser(source, str)


def computation(source: str) -> _jax.XlaComputation:
    """Return the module as HLO, before XLA optimises it."""
    return _jax.mlir.mlir_module_to_xla_computation(source, use_tuple_args=False, return_tuple=False)


def with_module(source: str, use: Callable[[ir.Module], R]) -> R:
    """Return the result of `use` on the module. Raises: CompileError when it is not valid."""
    return _parser(source, use)


def verify(source: str) -> None:
    """Parse and verify. Raises: CompileError when the module is not valid."""
    _parser(source, bool)
