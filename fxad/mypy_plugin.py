"""A plugin of mypy, for what Python's types cannot say.

In a project's configuration:

    [tool.mypy]
    plugins = ["fxad.mypy_plugin"]

- Calls of programs and of jitted functions take NumPy arrays and scalars, and Python numbers, where an `Array` is
  declared. A function of arrays is annotated with `fx.Array`, because its body uses the methods of arrays.
- An operator between an array of NumPy and an `Array` gives an `Array`. By NumPy's types it is an array of NumPy, for
  which every array of another library is an operand.
- `functools.partial` of a function with overloads, such as `partial(fx.jit, static_argnames="n")`, has the overloads
  that take its arguments. mypy takes the first overload.

mypy imports this module, and fxad does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy.nodes import ARG_NAMED_OPT, ARG_POS, ARG_STAR, ARG_STAR2
from mypy.plugin import FunctionSigContext, MethodContext, MethodSigContext, Plugin
from mypy.subtypes import is_subtype
from mypy.types import (
    AnyType,
    CallableType,
    FunctionLike,
    Instance,
    Overloaded,
    TupleType,
    Type,
    TypeOfAny,
    UnionType,
    get_proper_type,
    has_type_vars,
)

_CALLED: Final = frozenset(
    {
        "fxad.tracing.program.Program.__call__",
        "fxad.tracing.program.ProgramProtocol.__call__",
        "fxad.api.jitted.Jitted.__call__",
        "fxad.api.jitted.StaticJitted.__call__",
        "fxad.execution.executable.Executable.__call__",
    }
)
_ARRAY: Final = "fxad.tracing.array.Array"
_OPERATORS: Final = frozenset({
    "__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__", "__and__", "__or__", "__xor__", "__lshift__",
    "__rshift__", "__add__", "__sub__", "__mul__", "__truediv__", "__floordiv__", "__mod__", "__divmod__", "__pow__",
    "__matmul__",
})  # fmt: skip
_SCALARS: Final = ("numpy.generic", "builtins.complex")  # int, float and bool are complex, to mypy


def _signature(context: MethodSigContext) -> FunctionLike:
    """Return the signature of a call, with wider types of arguments."""
    declared = context.default_signature
    any_type = AnyType(TypeOfAny.explicit)
    numpy: list[Type] = [
        context.api.named_generic_type("numpy.ndarray", [any_type, any_type]),
        *[context.api.named_generic_type(name, []) for name in _SCALARS],
    ]
    return declared.copy_modified(arg_types=[_widened(t, numpy) for t in declared.arg_types])


def _widened(declared: Type, numpy: list[Type]) -> Type:
    """Return an annotation that also admits NumPy arrays in place of arrays, in containers too."""
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


# ------------------------------------------------------------------------------------------------------- operators


def _result_of_operator(context: MethodContext) -> Type:
    """Return the type of an operator of NumPy: an `Array` if the other operand is one."""
    array = next((a for types in context.arg_types for t in types for a in _arrays_in(t)), None)
    if array is None:
        return context.default_return_type
    result = get_proper_type(context.default_return_type)
    return result.copy_modified(items=[array] * len(result.items)) if isinstance(result, TupleType) else array


def _arrays_in(declared: Type) -> list[Instance]:
    proper = get_proper_type(declared)
    if isinstance(proper, UnionType):
        return [array for item in proper.items for array in _arrays_in(item)]
    return [proper] if isinstance(proper, Instance) and proper.type.fullname == _ARRAY else []


# --------------------------------------------------------------------------------------------------------- partial


def _signature_of_partial(context: FunctionSigContext) -> FunctionLike:
    """Return the signature of `partial(f, ...)` for an `f` of fxad with overloads: it gives the overloads that are
    left."""
    declared = context.default_signature
    if len(context.args) != 3 or len(context.args[0]) != 1:  # function, *args, **kwargs
        return declared
    function = get_proper_type(context.api.get_expression_type(context.args[0][0]))
    if not isinstance(function, Overloaded) or not _is_of_fxad(function):
        return declared
    by_position = [context.api.get_expression_type(a) for a in context.args[1]]
    call = context.context
    names = [n for n in getattr(call, "arg_names", ()) if n is not None]
    by_name = dict(zip(names, [context.api.get_expression_type(a) for a in context.args[2]], strict=False))
    if len(by_name) != len(context.args[2]):  # **options
        return declared
    left = [f for f in [_after_arguments(item, by_position, by_name) for item in function.items] if f is not None]
    if not left:
        return declared
    any_type = AnyType(TypeOfAny.special_form)
    return declared.copy_modified(
        arg_types=[any_type] * len(declared.arg_types),
        ret_type=left[0] if len(left) == 1 else Overloaded(left),
        variables=[],
        fallback=function.fallback,
    )


def _is_of_fxad(function: Overloaded) -> bool:
    definition = function.items[0].definition
    return definition is not None and definition.fullname.startswith("fxad.")


def _after_arguments(overload: CallableType, by_position: list[Type], by_name: dict[str, Type]) -> CallableType | None:
    """Return the signature of an overload after these arguments; None if it does not take them."""
    overload = overload.with_unpacked_kwargs().with_normalized_var_args()
    n = len(by_position)
    if any(kind.is_named() or kind.is_star() for kind in overload.arg_kinds[:n]) or n > len(overload.arg_types):
        return None
    if not all(_fits(t, formal) for t, formal in zip(by_position, overload.arg_types, strict=False)):
        return None
    kinds, names = list(overload.arg_kinds), list(overload.arg_names)
    for name, given in by_name.items():
        if name not in names[n:]:
            return None
        k = names.index(name)
        if kinds[k] in (ARG_STAR, ARG_STAR2) or not _fits(given, overload.arg_types[k]):
            return None
        kinds[k] = ARG_NAMED_OPT  # it may be given again
    first_named = next((k for k in range(n, len(kinds)) if kinds[k] == ARG_NAMED_OPT), len(kinds))
    kinds = [
        ARG_NAMED_OPT if k > first_named and kind.is_positional() and kind != ARG_POS else kind
        for k, kind in enumerate(kinds)
    ]
    return overload.copy_modified(arg_types=overload.arg_types[n:], arg_kinds=kinds[n:], arg_names=names[n:])


def _fits(given: Type, formal: Type) -> bool:
    """Return True if a parameter takes an argument. A type with type variables takes every argument."""
    return has_type_vars(formal) or is_subtype(given, formal)


class FxadPlugin(Plugin):
    """Gives mypy the hooks."""

    def get_method_signature_hook(self, fullname: str) -> Callable[[MethodSigContext], FunctionLike] | None:
        """Return the hook of calls of programs and of jitted functions."""
        return _signature if fullname in _CALLED else None

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """Return the hook of the operators of NumPy."""
        module, _, name = fullname.partition(".")
        return _result_of_operator if module == "numpy" and name.rpartition(".")[2] in _OPERATORS else None

    def get_function_signature_hook(self, fullname: str) -> Callable[[FunctionSigContext], FunctionLike] | None:
        """Return the hook of `functools.partial`."""
        return _signature_of_partial if fullname == "functools.partial" else None


def plugin(_version: str) -> type[Plugin]:
    """Return the entry point of mypy."""
    return FxadPlugin
