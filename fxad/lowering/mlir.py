"""The one door to jaxlib's MLIR bindings: check a module and print it as people read it.

Programs are written and compiled as text, so this room is entered only when somebody asks for the text. One context
serves the process; a lock guards it, because a context is not safe to share between threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar, final

from fxad.errors import CompileError
from fxad.lowering.bindings import dialects, ir, register_dialects

R = TypeVar("R")


@final
class _Parser:
    """A context with the dialects loaded, made when first used (3 ms)."""

    __slots__ = ("_context", "_lock")

    def __init__(self) -> None:
        self._context: ir.Context | None = None
        self._lock = threading.Lock()

    def __call__(self, source: str, use: Callable[[ir.Module], R]) -> R:
        """Parse, verify, and use the module while nobody else is in its context."""
        with self._lock:
            if self._context is None:
                self._context = _context()
            try:
                return use(ir.Module.parse(source, self._context))
            except ir.MLIRError as e:
                remedy = "correct `lower` of the primitive"
                raise CompileError(f"lower: MLIR refuses the module: {e}", remedy=remedy) from e


def _context() -> ir.Context:
    registry = ir.DialectRegistry()
    register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in dialects:
        dialect.register_dialect(context)
    return context


_parser: Final = _Parser()


def pretty(source: str) -> str:
    """The module in MLIR's own form, without locations. Raises: CompileError when it is not valid."""
    return _parser(source, str)


def parsed(source: str, use: Callable[[ir.Module], R]) -> R:
    """What `use` makes of the module. Raises: CompileError when it is not valid."""
    return _parser(source, use)


def check(source: str) -> None:
    """Parse and verify. Raises: CompileError when the module is not valid."""
    _parser(source, bool)
