"""`custom_jvp`, `custom_vjp`, `custom_vmap`: functions with custom derivatives and batching rules.

All decorators make the same kind of object, so a function may have rules of every kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, ParamSpec, TypeVar, final, overload

from fxad.api.custom.function import Decorator, FunctionWithRules
from fxad.api.custom.traced_rules import UserRules, nondiff_positions
from fxad.api.decorator_form import NoFunction, decorator_form
from fxad.api.inverse_rules import DefinesInverse
from fxad.api.lift import check_function
from fxad.errors import ArgumentError
from fxad.tracing.program import function_name
from fxad.tracing.static_args import Argnames

P = ParamSpec("P")
R = TypeVar("R")


@final
class CustomFunction(DefinesInverse[P, R], FunctionWithRules[P, R]):
    """A function with rules of its own. Made by `custom_jvp`, `custom_vjp` and `custom_vmap`.

    Arguments are pytrees of arrays, except those in `nondiff_argnums`, which may be any values. Integer and bool leaves
    have no tangent: the trees that rules take and return contain None for them. A value that the function or a rule
    closes over is an operand of the program. A derivative with respect to it is an error.
    Outside of a trace, a call runs the function without its rules.
    """


def _has_derivative(rules: UserRules) -> bool:
    return rules.have_derivative


_CUSTOM_JVP: Final = Decorator("custom_jvp", _has_derivative, "{}.defjvp(jvp)")  # the derivative is for both modes
_CUSTOM_VJP: Final = Decorator("custom_vjp", _has_derivative, "{}.defvjp(fwd, bwd)")
_CUSTOM_VMAP: Final = Decorator("custom_vmap", lambda rules: rules.vmap is not None, "{}.def_vmap(rule)")


def decorate(
    decorator: Decorator, fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> CustomFunction[P, R]:
    """Return the function with rules that a decorator makes; another decorator of the same function adds to it."""
    what = decorator.name
    check_function(what, fun)
    decorated = fun if isinstance(fun, CustomFunction) else None
    function = fun if decorated is None else decorated.fun
    positions = nondiff_positions(function, nondiff_argnums, nondiff_argnames, what)
    if decorated is None:
        return CustomFunction(fun, positions, (decorator,))
    if positions and positions != decorated.nondiff_argnums:
        raise ArgumentError(
            f"{what}: nondiff_argnums {positions} differs from {decorated.nondiff_argnums}, "
            f"which {function_name(function)} has already",
            remedy="all rules of a function see the same arguments: give nondiff_argnums once",
        )
    decorated.add_decorator(decorator)
    return decorated


@overload
def custom_jvp(fun: NoFunction, *args: Any, **options: Any) -> CustomFunction[..., Any]: ...
@overload
def custom_jvp(
    fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> CustomFunction[P, R]: ...
@overload
def custom_jvp(
    *, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> Callable[[Callable[P, R]], CustomFunction[P, R]]: ...
@decorator_form
def custom_jvp(
    fun: Callable[..., object], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> object:
    """Return a function whose derivative `defjvp` defines, for forward mode and, transposed, for reverse mode.

    >>> import fxad as fx, fxad.numpy as fnp
    >>> @fx.custom_jvp
    ... def log1pexp(x):
    ...     return fnp.log(1 + fnp.exp(x))
    >>> @log1pexp.defjvp
    ... def log1pexp_jvp(primals, tangents):
    ...     (x,), (x_dot,) = primals, tangents
    ...     return log1pexp(x), (1 - 1 / (1 + fnp.exp(x))) * x_dot
    >>> float(fx.grad(log1pexp)(100.0))
    1.0

    Law:    with correct rules, every transformation has the results that it has without them, within rounding.
    Raises: where it is called: TreeError, ShapeError, DTypeError naming rule, path and both types; NotLinearError
            naming the equation; where it is differentiated: NotDifferentiableError for captured values.
    """
    return decorate(_CUSTOM_JVP, fun, nondiff_argnums, nondiff_argnames)


@overload
def custom_vjp(fun: NoFunction, *args: Any, **options: Any) -> CustomFunction[..., Any]: ...
@overload
def custom_vjp(
    fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> CustomFunction[P, R]: ...
@overload
def custom_vjp(
    *, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> Callable[[Callable[P, R]], CustomFunction[P, R]]: ...
@decorator_form
def custom_vjp(
    fun: Callable[..., object], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> object:
    """Return a function whose derivative `defvjp` defines, for reverse mode and, transposed, for forward mode.

    Law:    with correct rules, every transformation has the results that it has without them, within rounding.
    Raises: as `custom_jvp`.
    """
    return decorate(_CUSTOM_VJP, fun, nondiff_argnums, nondiff_argnames)


def custom_vmap(fun: Callable[P, R]) -> CustomFunction[P, R]:
    """Return a function whose batching `def_vmap` defines.

    >>> import fxad as fx, fxad.numpy as fnp
    >>> @fx.custom_vmap
    ... def solve(a, b):
    ...     return fnp.linalg.solve(a, b)
    >>> @solve.def_vmap
    ... def solve_stack(axis_size, in_batched, a, b):
    ...     return fnp.linalg.solve(a, b[..., None])[..., 0], True
    >>> fx.vmap(solve)(fnp.ones((3, 1, 1)), fnp.ones((3, 1))).shape
    (3, 1)

    Law:    with a correct rule, `vmap` has the results that it has without it, within rounding.
    Raises: as `custom_jvp`.
    """
    return decorate(_CUSTOM_VMAP, fun)
