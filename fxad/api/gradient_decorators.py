"""The types of `grad(argnums=...)` and of the other derivatives without a function: decorators.

The number in a name is the literal `argnums`. They repeat the overloads of the derivatives: Python has no type for a
function of a type. `docs/overloads.py` writes both from one table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from fxad.tracing.array import Array
from fxad.tracing.program import Program, ProgramProtocol

P = ParamSpec("P")
A = TypeVar("A", bound=Any)  # as in `gradients`
B = TypeVar("B", bound=Any)
C = TypeVar("C", bound=Any)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
X = TypeVar("X")


class Derived(Protocol[P, R_co]):
    """A function, as `Callable[P, R_co]`.

    mypy finds several overloads for a lambda. If all give a `Callable`, it takes an untyped function, whose call is an
    error with `--strict`.
    """

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


# fmt: off
# overloads of decorators: docs/overloads.py writes them
class Gradient0(Protocol):
    """The gradient in argument 0."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, P], Array], /) -> Program[Concatenate[A, P], A]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, P], Array], /) -> Callable[Concatenate[A, P], A]: ...


class Gradient1(Protocol):
    """The gradient in argument 1."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, B, P], Array], /) -> Program[Concatenate[A, B, P], B]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, B, P], Array], /) -> Callable[Concatenate[A, B, P], B]: ...


class Gradient2(Protocol):
    """The gradient in argument 2."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, B, C, P], Array], /) -> Program[Concatenate[A, B, C, P], C]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, B, C, P], Array], /) -> Callable[Concatenate[A, B, C, P], C]: ...


class Gradient01(Protocol):
    """The gradient in arguments 0 and 1."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, B, P], Array], /) -> Program[Concatenate[A, B, P], tuple[A, B]]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, B, P], Array], /) -> Callable[Concatenate[A, B, P], tuple[A, B]]: ...


class GradientAux(Protocol):
    """The derivative in argument 0, with auxiliary results."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, P], tuple[Array, X]], /) -> Program[Concatenate[A, P], tuple[A, X]]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, P], tuple[Array, X]], /) -> Callable[Concatenate[A, P], tuple[A, X]]: ...


class ValueAndGradient0(Protocol):
    """The value, and the gradient in argument 0."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, P], Array], /) -> Program[Concatenate[A, P], tuple[Array, A]]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, P], Array], /) -> Callable[Concatenate[A, P], tuple[Array, A]]: ...


class ValueAndGradient1(Protocol):
    """The value, and the gradient in argument 1."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, B, P], Array], /) -> Program[Concatenate[A, B, P], tuple[Array, B]]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, B, P], Array], /) -> Callable[Concatenate[A, B, P], tuple[Array, B]]: ...


class ValueAndGradient2(Protocol):
    """The value, and the gradient in argument 2."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, B, C, P], Array], /) -> Program[Concatenate[A, B, C, P], tuple[Array, C]]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, B, C, P], Array], /) -> Callable[Concatenate[A, B, C, P], tuple[Array, C]]: ...


class ValueAndGradient01(Protocol):
    """The value, and the gradient in arguments 0 and 1."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, B, P], Array], /) -> Program[Concatenate[A, B, P], tuple[Array, tuple[A, B]]]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, B, P], Array], /) -> Callable[Concatenate[A, B, P], tuple[Array, tuple[A, B]]]: ...


class ValueAndGradientAux(Protocol):
    """The value with auxiliary results, and the gradient in argument 0."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, P], tuple[Array, X]], /) -> Program[Concatenate[A, P], tuple[tuple[Array, X], A]]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, P], tuple[Array, X]], /) -> Callable[Concatenate[A, P], tuple[tuple[Array, X], A]]: ...


class Jacobian0(Protocol):
    """The Jacobian in argument 0."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[Array, P], R], /) -> Program[Concatenate[Array, P], R]: ...
    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, P], Array], /) -> Program[Concatenate[A, P], A]: ...
    @overload
    def __call__(self, f: Program[P, object], /) -> Program[P, Any]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[Array, P], R], /) -> Derived[Concatenate[Array, P], R]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, P], Array], /) -> Derived[Concatenate[A, P], A]: ...
    @overload
    def __call__(self, f: Callable[P, Any], /) -> Derived[P, Any]: ...


class Jacobian1(Protocol):
    """The Jacobian in argument 1."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, B, P], Array], /) -> Program[Concatenate[A, B, P], B]: ...
    @overload
    def __call__(self, f: Program[P, object], /) -> Program[P, Any]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, B, P], Array], /) -> Derived[Concatenate[A, B, P], B]: ...
    @overload
    def __call__(self, f: Callable[P, Any], /) -> Derived[P, Any]: ...


class Jacobian2(Protocol):
    """The Jacobian in argument 2."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, B, C, P], Array], /) -> Program[Concatenate[A, B, C, P], C]: ...
    @overload
    def __call__(self, f: Program[P, object], /) -> Program[P, Any]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, B, C, P], Array], /) -> Derived[Concatenate[A, B, C, P], C]: ...
    @overload
    def __call__(self, f: Callable[P, Any], /) -> Derived[P, Any]: ...


class Jacobian01(Protocol):
    """The Jacobian in arguments 0 and 1."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[A, B, P], Array], /) -> Program[Concatenate[A, B, P], tuple[A, B]]: ...
    @overload
    def __call__(self, f: Program[P, object], /) -> Program[P, Any]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[A, B, P], Array], /) -> Derived[Concatenate[A, B, P], tuple[A, B]]: ...
    @overload
    def __call__(self, f: Callable[P, Any], /) -> Derived[P, Any]: ...


class Hessian0(Protocol):
    """The Hessian in argument 0."""

    @overload
    def __call__(self, f: ProgramProtocol[Concatenate[Array, P], R], /) -> Program[Concatenate[Array, P], R]: ...
    @overload
    def __call__(self, f: Program[P, object], /) -> Program[P, Any]: ...
    @overload
    def __call__(self, f: Callable[Concatenate[Array, P], R], /) -> Derived[Concatenate[Array, P], R]: ...
    @overload
    def __call__(self, f: Callable[P, Any], /) -> Derived[P, Any]: ...
# end of overloads


class OtherDerivative(Protocol):
    """A derivative in other arguments, whose type Python cannot say. The others are derivatives too."""

    def __call__(self, f: Any, /) -> Any: ...


# fmt: on
