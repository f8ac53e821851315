"""`grad`, `value_and_grad`, `jacfwd`, `jacrev`, `hessian`: derivatives with respect to chosen arguments.

Module `gradient_programs` has the code, this file the signatures. A derivative has the type of the argument, which only
overloads can say. Those of all five functions come from one table, `docs/overloads.py`, which writes them. For each
function they are, in order: programs, functions, calls with options that no other overload has, and decorators
(`@grad(argnums=1)`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from fxad.api.decorator_form import NoFunction, decorator_form
from fxad.api.gradient_programs import (
    gradient_program,
    holomorphic_gradient_program,
    jacobian_program,
    value_and_gradient_program,
)
from fxad.api.lift import check_no_reduce_axes, lift
from fxad.operations.arguments import flag
from fxad.tracing.array import Array
from fxad.tracing.program import Program, ProgramProtocol
from fxad.tracing.static_args import Argnames, Argnums

if TYPE_CHECKING:
    from fxad.api.gradient_decorators import (
        Derived,
        Gradient0,
        Gradient01,
        Gradient1,
        Gradient2,
        GradientAux,
        Hessian0,
        Jacobian0,
        Jacobian01,
        Jacobian1,
        Jacobian2,
        OtherDerivative,
        ValueAndGradient0,
        ValueAndGradient01,
        ValueAndGradient1,
        ValueAndGradient2,
        ValueAndGradientAux,
    )

P = ParamSpec("P")
# For pyright, a parameter of a lambda has the type of its type variable, and with this bound it is of any type.
A = TypeVar("A", bound=Any)
B = TypeVar("B", bound=Any)
C = TypeVar("C", bound=Any)
R = TypeVar("R")
X = TypeVar("X")


# `argnums` of a literal int, or a pair of them, is resolved by overloads; anything else gives Any. The overload of
# `Program[P, Array]` is for a program whose parameters mypy does not know: `Program[..., Array]`. The classes are the
# types of decorators, in `gradient_decorators`.
# fmt: off
# overloads of grad: docs/overloads.py writes them
@overload
def grad(f: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]: ...
@overload
def grad(f: ProgramProtocol[Concatenate[A, P], Array], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Program[Concatenate[A, P], A]: ...
@overload
def grad(f: ProgramProtocol[Concatenate[A, B, P], Array], argnums: Literal[1], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, P], B]: ...
@overload
def grad(f: ProgramProtocol[Concatenate[A, B, C, P], Array], argnums: Literal[2], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, C, P], C]: ...
@overload
def grad(f: ProgramProtocol[Concatenate[A, B, P], Array], argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, P], tuple[A, B]]: ...
@overload
def grad(f: ProgramProtocol[Concatenate[A, P], tuple[Array, X]], argnums: Literal[0] = 0, *, has_aux: Literal[True]) -> Program[Concatenate[A, P], tuple[A, X]]: ...
@overload
def grad(f: Program[P, Array], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Program[P, Any]: ...
@overload
def grad(f: Program[P, object], argnums: Argnums, has_aux: bool = False) -> Program[P, Any]: ...
@overload
def grad(f: Callable[Concatenate[A, P], Array], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Callable[Concatenate[A, P], A]: ...
@overload
def grad(f: Callable[Concatenate[A, B, P], Array], argnums: Literal[1], has_aux: Literal[False] = False) -> Callable[Concatenate[A, B, P], B]: ...
@overload
def grad(f: Callable[Concatenate[A, B, C, P], Array], argnums: Literal[2], has_aux: Literal[False] = False) -> Callable[Concatenate[A, B, C, P], C]: ...
@overload
def grad(f: Callable[Concatenate[A, B, P], Array], argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> Callable[Concatenate[A, B, P], tuple[A, B]]: ...
@overload
def grad(f: Callable[Concatenate[A, P], tuple[Array, X]], argnums: Literal[0] = 0, *, has_aux: Literal[True]) -> Callable[Concatenate[A, P], tuple[A, X]]: ...
@overload
def grad(f: Callable[P, Any], argnums: Argnums, has_aux: bool = False) -> Callable[P, Any]: ...
@overload
def grad(f: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, *, static_argnums: Argnums, holomorphic: bool = ..., allow_int: bool = ..., reduce_axes: Sequence[str] = ..., static_argnames: Argnames = ...) -> Callable[P, Any]: ...
@overload
def grad(f: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, *, holomorphic: bool, allow_int: bool = ..., reduce_axes: Sequence[str] = ..., static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> Callable[P, Any]: ...
@overload
def grad(f: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, *, allow_int: bool, holomorphic: bool = ..., reduce_axes: Sequence[str] = ..., static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> Callable[P, Any]: ...
@overload
def grad(f: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, *, reduce_axes: Sequence[str], holomorphic: bool = ..., allow_int: bool = ..., static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> Callable[P, Any]: ...
@overload
def grad(f: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, *, static_argnames: Argnames, holomorphic: bool = ..., allow_int: bool = ..., reduce_axes: Sequence[str] = ..., static_argnums: Argnums = ...) -> Callable[P, Any]: ...
@overload
def grad(*, argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Gradient0: ...
@overload
def grad(*, argnums: Literal[1], has_aux: Literal[False] = False) -> Gradient1: ...
@overload
def grad(*, argnums: Literal[2], has_aux: Literal[False] = False) -> Gradient2: ...
@overload
def grad(*, argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> Gradient01: ...
@overload
def grad(*, argnums: Literal[0] = 0, has_aux: Literal[True]) -> GradientAux: ...
@overload
def grad(*, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = ..., allow_int: bool = ..., reduce_axes: Sequence[str] = ..., static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> OtherDerivative: ...
# end of overloads
# fmt: on
@decorator_form
def grad(
    f: Callable[..., object],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[str] = (),
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> object:
    """Return the gradient of a scalar function with respect to positional arguments.

    The gradient has the tree of the argument; a sequence of `argnums` gives a tuple of gradients. With `has_aux`, `f`
    returns (scalar, auxiliary) and the result is (gradient, auxiliary).

    Static arguments, by number or by name, are hashable values that are passed to `f` unchanged; so are those that `f`
    declares static. `argnums` counts them, and chooses others. In the arguments that `argnums` does not choose, Python
    numbers, and values that are no arrays, are passed unchanged too. One program serves all numbers with which `f` only
    computes.

    The gradient in a complex argument z = x + iy is df/dx - i df/dy, as in JAX: step along its conjugate. `holomorphic`
    says that `f` is a holomorphic function of complex arguments; the result is its complex derivative. With `allow_int`,
    integer arguments are allowed, and None stands for their gradients.

    Law:    `<grad f(x), x_dot> = jvp f(x, x_dot)`.
    Rule:   linearize, transpose, apply to 1, remove equations that only the value needs. The program goes through
            `passes.BEFORE_DIFFERENTIATION` first: repeated layers become calls of one body, which is differentiated once.
    Raises: ShapeError for a result that is not a scalar; NotDifferentiableError for a result that is not real floating,
            and for an argument that is neither that nor complex, naming its path; ArgumentError for argnums that do not
            exist, or are static.
    """
    check_no_reduce_axes("grad", reduce_axes)
    transform = (
        partial(holomorphic_gradient_program, "grad", False)
        if flag("grad", "holomorphic", holomorphic)
        else gradient_program
    )
    ints, has_aux = flag("grad", "allow_int", allow_int), flag("grad", "has_aux", has_aux)
    return lift("grad", f, lambda p: transform(p, argnums, has_aux, ints), 1, argnums, static_argnums, static_argnames)


# fmt: off
# overloads of value_and_grad: docs/overloads.py writes them
@overload
def value_and_grad(f: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]: ...
@overload
def value_and_grad(f: ProgramProtocol[Concatenate[A, P], Array], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Program[Concatenate[A, P], tuple[Array, A]]: ...
@overload
def value_and_grad(f: ProgramProtocol[Concatenate[A, B, P], Array], argnums: Literal[1], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, P], tuple[Array, B]]: ...
@overload
def value_and_grad(f: ProgramProtocol[Concatenate[A, B, C, P], Array], argnums: Literal[2], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, C, P], tuple[Array, C]]: ...
@overload
def value_and_grad(f: ProgramProtocol[Concatenate[A, B, P], Array], argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, P], tuple[Array, tuple[A, B]]]: ...
@overload
def value_and_grad(f: ProgramProtocol[Concatenate[A, P], tuple[Array, X]], argnums: Literal[0] = 0, *, has_aux: Literal[True]) -> Program[Concatenate[A, P], tuple[tuple[Array, X], A]]: ...
@overload
def value_and_grad(f: Program[P, Array], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Program[P, tuple[Array, Any]]: ...
@overload
def value_and_grad(f: Program[P, object], argnums: Argnums, has_aux: bool = False) -> Program[P, Any]: ...
@overload
def value_and_grad(f: Callable[Concatenate[A, P], Array], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Callable[Concatenate[A, P], tuple[Array, A]]: ...
@overload
def value_and_grad(f: Callable[Concatenate[A, B, P], Array], argnums: Literal[1], has_aux: Literal[False] = False) -> Callable[Concatenate[A, B, P], tuple[Array, B]]: ...
@overload
def value_and_grad(f: Callable[Concatenate[A, B, C, P], Array], argnums: Literal[2], has_aux: Literal[False] = False) -> Callable[Concatenate[A, B, C, P], tuple[Array, C]]: ...
@overload
def value_and_grad(f: Callable[Concatenate[A, B, P], Array], argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> Callable[Concatenate[A, B, P], tuple[Array, tuple[A, B]]]: ...
@overload
def value_and_grad(f: Callable[Concatenate[A, P], tuple[Array, X]], argnums: Literal[0] = 0, *, has_aux: Literal[True]) -> Callable[Concatenate[A, P], tuple[tuple[Array, X], A]]: ...
@overload
def value_and_grad(f: Callable[P, Any], argnums: Argnums, has_aux: bool = False) -> Callable[P, Any]: ...
@overload
def value_and_grad(f: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, *, static_argnums: Argnums, holomorphic: bool = ..., allow_int: bool = ..., reduce_axes: Sequence[str] = ..., static_argnames: Argnames = ...) -> Callable[P, Any]: ...
@overload
def value_and_grad(f: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, *, holomorphic: bool, allow_int: bool = ..., reduce_axes: Sequence[str] = ..., static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> Callable[P, Any]: ...
@overload
def value_and_grad(f: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, *, allow_int: bool, holomorphic: bool = ..., reduce_axes: Sequence[str] = ..., static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> Callable[P, Any]: ...
@overload
def value_and_grad(f: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, *, reduce_axes: Sequence[str], holomorphic: bool = ..., allow_int: bool = ..., static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> Callable[P, Any]: ...
@overload
def value_and_grad(f: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, *, static_argnames: Argnames, holomorphic: bool = ..., allow_int: bool = ..., reduce_axes: Sequence[str] = ..., static_argnums: Argnums = ...) -> Callable[P, Any]: ...
@overload
def value_and_grad(*, argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> ValueAndGradient0: ...
@overload
def value_and_grad(*, argnums: Literal[1], has_aux: Literal[False] = False) -> ValueAndGradient1: ...
@overload
def value_and_grad(*, argnums: Literal[2], has_aux: Literal[False] = False) -> ValueAndGradient2: ...
@overload
def value_and_grad(*, argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> ValueAndGradient01: ...
@overload
def value_and_grad(*, argnums: Literal[0] = 0, has_aux: Literal[True]) -> ValueAndGradientAux: ...
@overload
def value_and_grad(*, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = ..., allow_int: bool = ..., reduce_axes: Sequence[str] = ..., static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> OtherDerivative: ...
# end of overloads
# fmt: on
@decorator_form
def value_and_grad(
    f: Callable[..., object],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[str] = (),
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> object:
    """Return (value, gradient) of a scalar function; with `has_aux`, ((value, auxiliary), gradient). See `grad`."""
    what = "value_and_grad"
    check_no_reduce_axes(what, reduce_axes)
    transform = (
        partial(holomorphic_gradient_program, what, True)
        if flag(what, "holomorphic", holomorphic)
        else value_and_gradient_program
    )
    ints, has_aux = flag(what, "allow_int", allow_int), flag(what, "has_aux", has_aux)
    return lift(what, f, lambda p: transform(p, argnums, has_aux, ints), 1, argnums, static_argnums, static_argnames)


# fmt: off
# overloads of jacfwd: docs/overloads.py writes them
@overload
def jacfwd(f: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]: ...
@overload
def jacfwd(f: ProgramProtocol[Concatenate[Array, P], R], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Program[Concatenate[Array, P], R]: ...
@overload
def jacfwd(f: ProgramProtocol[Concatenate[A, P], Array], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Program[Concatenate[A, P], A]: ...
@overload
def jacfwd(f: ProgramProtocol[Concatenate[A, B, P], Array], argnums: Literal[1], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, P], B]: ...
@overload
def jacfwd(f: ProgramProtocol[Concatenate[A, B, C, P], Array], argnums: Literal[2], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, C, P], C]: ...
@overload
def jacfwd(f: ProgramProtocol[Concatenate[A, B, P], Array], argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, P], tuple[A, B]]: ...
@overload
def jacfwd(f: ProgramProtocol[Concatenate[A, P], tuple[Array, X]], argnums: Literal[0] = 0, *, has_aux: Literal[True]) -> Program[Concatenate[A, P], tuple[A, X]]: ...
@overload
def jacfwd(f: Program[P, object], argnums: Argnums = 0, has_aux: bool = False) -> Program[P, Any]: ...
@overload
def jacfwd(f: Callable[Concatenate[Array, P], R], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Derived[Concatenate[Array, P], R]: ...
@overload
def jacfwd(f: Callable[Concatenate[A, P], Array], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Derived[Concatenate[A, P], A]: ...
@overload
def jacfwd(f: Callable[Concatenate[A, B, P], Array], argnums: Literal[1], has_aux: Literal[False] = False) -> Derived[Concatenate[A, B, P], B]: ...
@overload
def jacfwd(f: Callable[Concatenate[A, B, C, P], Array], argnums: Literal[2], has_aux: Literal[False] = False) -> Derived[Concatenate[A, B, C, P], C]: ...
@overload
def jacfwd(f: Callable[Concatenate[A, B, P], Array], argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> Derived[Concatenate[A, B, P], tuple[A, B]]: ...
@overload
def jacfwd(f: Callable[Concatenate[A, P], tuple[Array, X]], argnums: Literal[0] = 0, *, has_aux: Literal[True]) -> Derived[Concatenate[A, P], tuple[A, X]]: ...
@overload
def jacfwd(f: Callable[P, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = ..., *, static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> Derived[P, Any]: ...
@overload
def jacfwd(*, argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Jacobian0: ...
@overload
def jacfwd(*, argnums: Literal[1], has_aux: Literal[False] = False) -> Jacobian1: ...
@overload
def jacfwd(*, argnums: Literal[2], has_aux: Literal[False] = False) -> Jacobian2: ...
@overload
def jacfwd(*, argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> Jacobian01: ...
@overload
def jacfwd(*, argnums: Literal[0] = 0, has_aux: Literal[True]) -> GradientAux: ...
@overload
def jacfwd(*, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = ..., static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> OtherDerivative: ...
# end of overloads
# fmt: on
@decorator_form
def jacfwd(
    f: Callable[..., object],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> object:
    """Return the Jacobian by forward mode: for each result leaf, for each argument leaf, (*result shape, *argument
    shape).

    The tree is that of the result with the tree of the argument(s) at each leaf.

    Results may be complex; for complex arguments, `holomorphic` says that `f` is a holomorphic function.

    Cost:   applies the linear program to one basis vector for each element of the arguments.
    Raises: NotDifferentiableError for arguments that are not real floating, and for arguments or results of a
            `holomorphic` function that are not complex.
    """
    holomorphic, has_aux = flag("jacfwd", "holomorphic", holomorphic), flag("jacfwd", "has_aux", has_aux)
    transform = partial(
        jacobian_program,
        "jacfwd",
        "jacfwd",
        argnums=argnums,
        has_aux=has_aux,
        holomorphic=holomorphic,
        real_arguments=True,
    )
    return lift("jacfwd", f, transform, 1, argnums, static_argnums, static_argnames)


# fmt: off
# overloads of jacrev: docs/overloads.py writes them
@overload
def jacrev(f: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]: ...
@overload
def jacrev(f: ProgramProtocol[Concatenate[Array, P], R], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Program[Concatenate[Array, P], R]: ...
@overload
def jacrev(f: ProgramProtocol[Concatenate[A, P], Array], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Program[Concatenate[A, P], A]: ...
@overload
def jacrev(f: ProgramProtocol[Concatenate[A, B, P], Array], argnums: Literal[1], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, P], B]: ...
@overload
def jacrev(f: ProgramProtocol[Concatenate[A, B, C, P], Array], argnums: Literal[2], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, C, P], C]: ...
@overload
def jacrev(f: ProgramProtocol[Concatenate[A, B, P], Array], argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> Program[Concatenate[A, B, P], tuple[A, B]]: ...
@overload
def jacrev(f: ProgramProtocol[Concatenate[A, P], tuple[Array, X]], argnums: Literal[0] = 0, *, has_aux: Literal[True]) -> Program[Concatenate[A, P], tuple[A, X]]: ...
@overload
def jacrev(f: Program[P, object], argnums: Argnums = 0, has_aux: bool = False) -> Program[P, Any]: ...
@overload
def jacrev(f: Callable[Concatenate[Array, P], R], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Derived[Concatenate[Array, P], R]: ...
@overload
def jacrev(f: Callable[Concatenate[A, P], Array], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Derived[Concatenate[A, P], A]: ...
@overload
def jacrev(f: Callable[Concatenate[A, B, P], Array], argnums: Literal[1], has_aux: Literal[False] = False) -> Derived[Concatenate[A, B, P], B]: ...
@overload
def jacrev(f: Callable[Concatenate[A, B, C, P], Array], argnums: Literal[2], has_aux: Literal[False] = False) -> Derived[Concatenate[A, B, C, P], C]: ...
@overload
def jacrev(f: Callable[Concatenate[A, B, P], Array], argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> Derived[Concatenate[A, B, P], tuple[A, B]]: ...
@overload
def jacrev(f: Callable[Concatenate[A, P], tuple[Array, X]], argnums: Literal[0] = 0, *, has_aux: Literal[True]) -> Derived[Concatenate[A, P], tuple[A, X]]: ...
@overload
def jacrev(f: Callable[P, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = ..., allow_int: bool = ..., *, static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> Derived[P, Any]: ...
@overload
def jacrev(*, argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Jacobian0: ...
@overload
def jacrev(*, argnums: Literal[1], has_aux: Literal[False] = False) -> Jacobian1: ...
@overload
def jacrev(*, argnums: Literal[2], has_aux: Literal[False] = False) -> Jacobian2: ...
@overload
def jacrev(*, argnums: tuple[Literal[0], Literal[1]], has_aux: Literal[False] = False) -> Jacobian01: ...
@overload
def jacrev(*, argnums: Literal[0] = 0, has_aux: Literal[True]) -> GradientAux: ...
@overload
def jacrev(*, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = ..., allow_int: bool = ..., static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> OtherDerivative: ...
# end of overloads
# fmt: on
@decorator_form
def jacrev(
    f: Callable[..., object],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> object:
    """Return the Jacobian by reverse mode; the same value as `jacfwd`. With `allow_int`, None stands for the Jacobian
    of an integer argument. Arguments may be complex: each row is what `grad` gives for one result.

    Cost: applies the transposed linear program to one basis vector for each element of the results.
    """
    holomorphic, allow_int = flag("jacrev", "holomorphic", holomorphic), flag("jacrev", "allow_int", allow_int)
    has_aux = flag("jacrev", "has_aux", has_aux)
    transform = partial(
        jacobian_program,
        "jacrev",
        "jacrev",
        argnums=argnums,
        has_aux=has_aux,
        holomorphic=holomorphic,
        allow_int=allow_int,
    )
    return lift("jacrev", f, transform, 1, argnums, static_argnums, static_argnames)


jacobian = jacrev  # JAX's other name


# fmt: off
# overloads of hessian: docs/overloads.py writes them
@overload
def hessian(f: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]: ...
@overload
def hessian(f: ProgramProtocol[Concatenate[Array, P], R], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Program[Concatenate[Array, P], R]: ...
@overload
def hessian(f: ProgramProtocol[Concatenate[A, Array, P], R], argnums: Literal[1], has_aux: Literal[False] = False) -> Program[Concatenate[A, Array, P], R]: ...
@overload
def hessian(f: ProgramProtocol[Concatenate[Array, P], tuple[R, X]], argnums: Literal[0] = 0, *, has_aux: Literal[True]) -> Program[Concatenate[Array, P], tuple[R, X]]: ...
@overload
def hessian(f: Program[P, object], argnums: Argnums = 0, has_aux: bool = False) -> Program[P, Any]: ...
@overload
def hessian(f: Callable[Concatenate[Array, P], R], argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Derived[Concatenate[Array, P], R]: ...
@overload
def hessian(f: Callable[Concatenate[A, Array, P], R], argnums: Literal[1], has_aux: Literal[False] = False) -> Derived[Concatenate[A, Array, P], R]: ...
@overload
def hessian(f: Callable[Concatenate[Array, P], tuple[R, X]], argnums: Literal[0] = 0, *, has_aux: Literal[True]) -> Derived[Concatenate[Array, P], tuple[R, X]]: ...
@overload
def hessian(f: Callable[P, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = ..., *, static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> Derived[P, Any]: ...
@overload
def hessian(*, argnums: Literal[0] = 0, has_aux: Literal[False] = False) -> Hessian0: ...
@overload
def hessian(*, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = ..., static_argnums: Argnums = ..., static_argnames: Argnames = ...) -> OtherDerivative: ...
# end of overloads
# fmt: on
@decorator_form
def hessian(
    f: Callable[..., object],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> object:
    """Return the Hessian: `jacfwd` of `jacrev`. For a scalar function of one array, of shape (*x.shape, *x.shape)."""
    holomorphic, has_aux = flag("hessian", "holomorphic", holomorphic), flag("hessian", "has_aux", has_aux)

    def transform(p: Program[..., object]) -> Program[..., object]:
        gradient = jacobian_program("hessian", "jacrev", p, argnums, has_aux, holomorphic, real_arguments=True)
        return jacobian_program("hessian", "jacfwd", gradient, argnums, has_aux, holomorphic, real_arguments=True)

    return lift("hessian", f, transform, 2, argnums, static_argnums, static_argnames)
