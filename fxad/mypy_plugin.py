"""A plugin of mypy: calls of programs and of jitted functions take NumPy arrays where an `Array` is declared.

A function of arrays is annotated with `fx.Array`, because its body uses the methods of arrays. A call of its program
takes more: NumPy arrays and scalars, and Python numbers. Python's types have no way to say so. In a project's
configuration:

    [tool.mypy]
    plugins = ["fxad.mypy_plugin"]

mypy imports this module, and fxad does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy.plugin import MethodSigContext, Plugin
from mypy.types import AnyType, FunctionLike, Instance, TupleType, Type, TypeOfAny, UnionType, get_proper_type

_CALLED: Final = frozenset(
    {
        "fxad.tracing.program.Program.__call__",
        "fxad.tracing.program.ProgramProtocol.__call__",
        "fxad.api.jit.Jitted.__call__",
        "fxad.api.jit.StaticJitted.__call__",
        "fxad.execution.executable.Executable.__call__",
    }
)
_ARRAY: Final = "fxad.tracing.array.Array"
_SCALARS: Final = ("numpy.generic", "builtins.complex")  # int, float and bool are complex, to mypy


def _signature(context: MethodSigContext) -> FunctionLike:
    """The signature of a call, with wider types of arguments."""
    declared = context.default_signature
    any_type = AnyType(TypeOfAny.explicit)
    numpy: list[Type] = [
        context.api.named_generic_type("numpy.ndarray", [any_type, any_type]),
        *[context.api.named_generic_type(name, []) for name in _SCALARS],
    ]
    return declared.copy_modified(arg_types=[_widened(t, numpy) for t in declared.arg_types])


def _widened(declared: Type, numpy: list[Type]) -> Type:
    """An annotation that also admits NumPy arrays in place of arrays, in containers too."""
    proper = get_proper_type(declared)
    if isinstance(proper, UnionType):
        return UnionType.make_union([_widened(t, numpy) for t in proper.items])
    if isinstance(proper, TupleType):
        return proper.copy_modified(items=[_widened(t, numpy) for t in proper.items])
    if not isinstance(proper, Instance):
        return declared
    if proper.type.fullname == _ARRAY:
        return UnionType.make_union([proper, *numpy])
    if not proper.args:
        return declared
    items = [_widened(t, numpy) for t in proper.args]
    if items == list(proper.args):
        return declared
    # A dict is invariant: a dict[str, ndarray] is no dict[str, Array | ndarray]. So three dicts are admitted: of arrays
    # of fxad alone, of arrays of NumPy alone, and of both.
    arrays = [UnionType.make_union(numpy[:1]) if _is_array(t) else t for t in proper.args]
    return UnionType.make_union([proper, proper.copy_modified(args=arrays), proper.copy_modified(args=items)])


def _is_array(declared: Type) -> bool:
    proper = get_proper_type(declared)
    return isinstance(proper, Instance) and proper.type.fullname == _ARRAY


class FxadPlugin(Plugin):
    """Gives mypy the hook that changes the signatures of these methods."""

    def get_method_signature_hook(self, fullname: str) -> Callable[[MethodSigContext], FunctionLike] | None:
        """The hook of calls of programs and of jitted functions."""
        return _signature if fullname in _CALLED else None


def plugin(_version: str) -> type[Plugin]:
    """The entry point of mypy."""
    return FxadPlugin
