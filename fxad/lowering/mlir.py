"""The one door to jaxlib's MLIR bindings: check a module and print it as people read it.

Programs are written and compiled as text, so this room is entered only when somebody asks for the text. A context is
not safe to share between threads: whoever parses takes one, and gives it back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar, final

from fxad.errors import CompileError
from fxad.lowering.bindings import dialects, ir, register_dialects

R = TypeVar("R")


@final
class _Parser:
    """Contexts with the dialects loaded that nobody uses now. One is made (3 ms) when there is none."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: deque[ir.Context] = deque()

    def __call__(self, source: str, use: Callable[[ir.Module], R]) -> R:
        """Parse, verify, and use the module while nobody else is in its context."""
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
