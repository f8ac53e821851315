"""Messages of implicit functions, and the lines that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.builder import Builder
from fxad.errors import (
    ArgumentError,
    DTypeError,
    FxadError,
    NotDifferentiableError,
    NotLinearError,
    ParameterError,
    ShapeError,
    TreeError,
)
from fxad.ir import Atom, Aval, Jaxpr
from fxad.primitives.implicit import LinearSolve, Root
from tests.api.refusals import check_refused

pytestmark = pytest.mark.usefixtures("nothing_of_other_files")

X = np.ones(3, np.float32)


def same(x: Any) -> Any:
    return x


def short(x: Any) -> Any:
    return x[:2]


def double(x: Any) -> Any:
    return x.astype("float64")


def tree(x: Any) -> Any:
    return {"a": x}


def reported(_: Any, x: Any) -> Any:
    return x, 1


def first(_: Any, x: Any) -> Any:
    return x


def shortened(_: Any, x: Any) -> Any:
    return x[:2]


def widened(_: Any, x: Any) -> Any:
    return x.astype("float64")


def root(f: Any = same, guess: Any = X, solve: Any = first, tangents: Any = first, aux: Any = False) -> Any:
    return lax.custom_root(f, guess, solve, tangents, aux)


def cg_with(**kwargs: Any) -> Any:
    return lax.cg(same, X, **kwargs)


def system(matvec: Any = same, b: Any = X, solve: Any = first, back: Any = None, **kwargs: Any) -> Any:
    return lax.custom_linear_solve(matvec, b, solve, back, **kwargs)


SAME_GUESS = "return what initial_guess is, leaf by leaf; nothing is converted silently"
SAME_B = "return what b is, leaf by leaf; nothing is converted silently"
LINEAR = (
    "a derivative is linear in its direction; for a map that is so only as a whol"
    "e, or that is to be taken for one, use lax.linear_call with as_whole=True"
)
REPORT = "return the solution without its report, or give has_aux=True"
FUNCTION = "pass a function, not what it returns"
ARRAY = "pass a NumPy array, an fxad Array, a Python or NumPy scalar, or an object with __dlpack__"
MATRIX = "a matrix is applied to one array, along its first axis; for trees give a function"

WRONG: list[tuple[Callable[[], Any], type[FxadError], str, str]] = [
    (
        lambda: root(short),
        ShapeError,
        "custom_root: f short returns f32[2] for initial_guess, which is f32[3]",
        SAME_GUESS,
    ),
    (
        lambda: root(double),
        DTypeError,
        "custom_root: f double returns f64[3] for initial_guess, which is f32[3]",
        SAME_GUESS,
    ),
    (
        lambda: root(tree),
        TreeError,
        "custom_root: f tree returns {'a': *}, initial_guess is *",
        "return what initial_guess is, with new values",
    ),
    (
        lambda: root(lambda x: {"a": x["a"][:1]}, {"a": X}),
        ShapeError,
        "custom_root: f <lambda> returns f32[1] for initial_guess['a'], which is f32[3]",
        SAME_GUESS,
    ),
    (
        lambda: root(solve=shortened),
        ShapeError,
        "custom_root: solve shortened returns f32[2] for initial_guess, which is f32[3]",
        SAME_GUESS,
    ),
    (lambda: root(solve=reported), TreeError, "custom_root: solve reported returns (*, *), initial_guess is *", REPORT),
    (
        lambda: root(aux=True),
        TreeError,
        "custom_root: solve first returns *, not a pair (solution, auxiliary)",
        "has_aux=True is for a solver that returns such a pair",
    ),
    (
        lambda: root(aux=1),
        ArgumentError,
        "custom_root: has_aux must be True or False, got an int: 1",
        "it is static: a Python value, which cannot come from a traced array",
    ),
    (
        lambda: root(tangents=widened),
        DTypeError,
        "custom_root: tangent_solve widened returns f64[3] for initial_guess, which is f32[3]",
        "return what y is, leaf by leaf; nothing is converted silently",
    ),
    (lambda: root(tangents=reported), TreeError, "custom_root: tangent_solve reported returns (*, *), y is *", REPORT),
    (
        lambda: root(guess=()),
        TreeError,
        "custom_root: initial_guess has no leaf",
        "there is nothing to solve for: give arrays",
    ),
    (
        lambda: root(guess=1),
        DTypeError,
        "custom_root: initial_guess has no floating or complex leaf (i32[]), so there is no derivative",
        "convert with astype('float32'), or, where you give the solver, call it by itself",
    ),
    (lambda: root(guess="x"), ArgumentError, "custom_root: initial_guess: a str is not an array: 'x'", ARRAY),
    (lambda: root(3), ArgumentError, "custom_root: f is an int, not a function: 3", FUNCTION),
    (lambda: root(solve=3), ArgumentError, "custom_root: solve is an int, not a function: 3", FUNCTION),
    (lambda: root(tangents=3), ArgumentError, "custom_root: tangent_solve is an int, not a function: 3", FUNCTION),
    (
        lambda: lax.custom_fixed_point(short, X),
        ShapeError,
        "custom_fixed_point: f short returns f32[2] for initial_guess, which is f32[3]",
        SAME_GUESS,
    ),
    (
        lambda: lax.custom_minimize(same, X, first),
        ShapeError,
        "custom_minimize: f same returns f32[3], not a scalar",
        "reduce the result (sum, mean)",
    ),
    (
        lambda: lax.custom_minimize(tree, 1.0, first),
        TreeError,
        "custom_minimize: f tree returns {'a': *}, not a scalar",
        "return the value alone",
    ),
    (
        lambda: lax.custom_minimize(lambda x: 3, 1.0, first),
        DTypeError,
        "custom_minimize: f <lambda> returns i32[], not a real floating scalar",
        "return a real number: convert an integer with astype, take abs or the real part of a complex one",
    ),
    (
        lambda: lax.custom_minimize(same, 1j, first),
        DTypeError,
        "custom_minimize: initial_guess is c64[], and a real function has no complex derivative",
        "minimise over the real and the imaginary part",
    ),
    (
        lambda: lax.fixed_point_iteration(double, X),
        DTypeError,
        "fixed_point_iteration: f double returns f64[3] for x0, which is f32[3]",
        "return what x0 is, leaf by leaf; nothing is converted silently",
    ),
    # -------------------------------------------------------------------------------------------------- linear systems
    (
        lambda: system(short),
        ShapeError,
        "custom_linear_solve: matvec short returns f32[2] for b, which is f32[3]",
        SAME_B,
    ),
    (
        lambda: system(tree),
        TreeError,
        "custom_linear_solve: matvec tree returns {'a': *}, b is *",
        "return what b is, with new values",
    ),
    (
        lambda: system(solve=widened),
        DTypeError,
        "custom_linear_solve: solve widened returns f64[3] for b, which is f32[3]",
        SAME_B,
    ),
    (lambda: system(solve=reported), TreeError, "custom_linear_solve: solve reported returns (*, *), b is *", REPORT),
    (
        lambda: system(back=shortened),
        ShapeError,
        "custom_linear_solve: transpose_solve shortened returns f32[2] for b, which is f32[3]",
        SAME_B,
    ),
    (
        lambda: system(solve=reported, back=first, has_aux=True),
        TreeError,
        "custom_linear_solve: transpose_solve first returns *, not a pair (solution, auxiliary)",
        "has_aux=True is for a solver that returns such a pair",
    ),
    (
        lambda: system(b={"a": X, "n": 1}, matvec=same),
        DTypeError,
        "custom_linear_solve: b['n'] is i32[], which no solution has",
        "convert it: astype('float32')",
    ),
    (
        lambda: system(b=[]),
        TreeError,
        "custom_linear_solve: b has no leaf",
        "there is nothing to solve for: give arrays",
    ),
    (
        lambda: system(symmetric=None),
        ArgumentError,
        "custom_linear_solve: symmetric must be True or False, got a NoneType: None",
        "it is static: a Python value, which cannot come from a traced array",
    ),
    (
        lambda: system(fnp.sin),
        NotLinearError,
        "custom_linear_solve: matvec sin is not linear in its argument",
        LINEAR,
    ),
    (
        lambda: system(lambda x: x + 1),
        NotLinearError,
        "custom_linear_solve: matvec <lambda> is not linear in its argument",
        LINEAR,
    ),
    (
        lambda: system(lambda x: fnp.ones_like(x)),
        NotLinearError,
        "custom_linear_solve: matvec <lambda> is not linear in its argument: result 0 is constant in them and not zero",
        "return zeros where nothing depends on the direction",
    ),
    (
        lambda: system(solve=lambda mv, b: mv(b[:2])),
        ShapeError,
        "matvec same: takes f32[3] for b, was given f32[2]",
        "for a stack of vectors use vmap of it",
    ),
    (
        lambda: system(solve=lambda mv, b: mv((b,))),
        TreeError,
        "matvec same: takes *, was given (*,)",
        "give what is solved for: its tree, with None for integers and bools",
    ),
    (
        lambda: system(solve=lambda mv, b: mv(b.astype("float64"))),
        DTypeError,
        "matvec same: takes f32[3] for b, was given f64[3]",
        "convert it",
    ),
    (
        lambda: root(tangents=lambda g, y: g(y[:1])),
        ShapeError,
        "derivative of same: takes f32[3] for initial_guess, was given f32[1]",
        "for a stack of vectors use vmap of it",
    ),
    # --------------------------------------------------------------------------------------------------------- solvers
    (
        lambda: lax.cg(np.ones((2, 3)), X),
        ShapeError,
        "cg: A is f64[2,3], not a square matrix",
        "give a square matrix, or a linear function",
    ),
    (
        lambda: lax.cg(X, X),
        ShapeError,
        "cg: A is f32[3], not a square matrix",
        "give a square matrix, or a linear function",
    ),
    (lambda: lax.gmres(np.eye(2), X), ShapeError, "gmres: A is the matrix f64[2,2], and b is f32[3]", MATRIX),
    (
        lambda: lax.gmres(np.eye(3), {"b": X}),
        ShapeError,
        "gmres: A is the matrix f64[3,3], and b['b'] is f32[3]",
        MATRIX,
    ),
    (lambda: lax.gmres(np.eye(3), X), DTypeError, "gmres: A matrix A returns f64[3] for b, which is f32[3]", SAME_B),
    (lambda: lax.cg(same, X, M=short), ShapeError, "cg: M short returns f32[2] for b, which is f32[3]", SAME_B),
    (lambda: lax.cg(same, X, M=fnp.sin), NotLinearError, "cg: M sin is not linear in its argument", LINEAR),
    (
        lambda: lax.cg(same, X, X[:2]),
        ShapeError,
        "cg: x0 is f32[2], for b it is f32[3]",
        "a first guess has the type of b",
    ),
    (lambda: lax.cg(same, X, (X,)), TreeError, "cg: x0 is (*,), b is *", "a first guess has the type of b"),
    (
        lambda: lax.cg(same, 1),
        DTypeError,
        "cg: b has no floating or complex leaf (i32[]), so there is no derivative",
        "convert with astype('float32'), or, where you give the solver, call it by itself",
    ),
    (
        lambda: lax.cg(same, {"a": 1, "b": X}),
        DTypeError,
        "cg: b['a'] is i32[], which no solution has",
        "convert it: astype('float32')",
    ),
    (lambda: cg_with(tol="x"), ArgumentError, "cg: tol: a str is not an array: 'x'", ARRAY),
    (
        lambda: lax.cg(same, X, tol=1j),
        ArgumentError,
        "cg: tol is a complex of type c64[], not a real number",
        "a tolerance is one number for the whole system: tol=1e-5",
    ),
    (
        lambda: lax.cg(same, X, atol=X),
        ArgumentError,
        "cg: atol is an ndarray of type f32[3], not a real number",
        "a tolerance is one number for the whole system: atol=1e-5",
    ),
    (
        lambda: cg_with(maxiter=1.5),
        ArgumentError,
        "cg: maxiter is a float, not an int: 1.5",
        "maxiter is static: a Python int",
    ),
    (
        lambda: lax.bicgstab(same, X, maxiter=-1),
        ParameterError,
        "bicgstab: maxiter is -1, less than 0",
        "give an int from 0 on",
    ),
    (
        lambda: lax.gmres(same, X, restart=0),
        ParameterError,
        "gmres: restart is 0, less than 1",
        "give an int from 1 on",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message", "remedy"), WRONG, ids=[c[2][:60] for c in WRONG])
def test_refused(call: Callable[[], Any], kind: type[FxadError], message: str, remedy: str) -> None:
    check_refused(call, kind, message, remedy)


def test_an_equation_without_a_derivative() -> None:
    with pytest.raises(NotDifferentiableError, match="nextafter"):
        root(lambda x: lax.nextafter(x, 2 * x))


def test_remedies() -> None:
    with pytest.raises(TreeError, match=REPORT):
        root(tangents=lax.gmres)
    with pytest.raises(ShapeError, match="for a stack of vectors use vmap of it"):
        system(solve=lambda mv, b: mv(fnp.stack([b, b])))


TRANSPOSE = (
    "give custom_linear_solve a transpose_solve, or symmetric=True where matvec is its own transpose; "
    "let a tangent_solve(g, y) solve with the g that it is given"
)


def test_reverse_mode_without_a_transpose() -> None:
    def loop(mv: Any, b: Any) -> Any:
        return lax.while_loop(lambda x: fnp.sum(x) > 1e9, mv, b)

    def f(b: Any) -> Any:
        return fnp.sum(lax.custom_linear_solve(lambda x: 1 * x, b, loop))

    assert float(fx.jvp(f, (X,), (X,))[1]) == 3
    with pytest.raises(NotDifferentiableError) as e:
        fx.grad(f)(X)
    assert e.value.message == "linear_solve: loop has no transpose, which reverse mode needs"
    assert e.value.remedy == TRANSPOSE
    assert "linear_solve" in e.value.equation


def test_tangents_solved_by_a_loop_that_does_not_use_g_are_not_transposed() -> None:
    """The loop does not call g, so its transpose is unknown; a transpose of the loop would be wrong."""

    def by_heart(g: Any, y: Any) -> Any:
        return lax.while_loop(lambda x: fnp.sum(x) > 1e9, lambda x: x / 2, y / 2)

    def f(s: Any) -> Any:
        return fnp.sum(lax.custom_root(lambda x: 2 * x - s, X, lambda f, x: s / 2, by_heart))

    assert float(fx.jvp(f, (X,), (X,))[1]) == 1.5
    with pytest.raises(NotDifferentiableError) as e:
        fx.grad(f)(X)
    assert e.value.message == "linear_solve: by_heart has no transpose, which reverse mode needs"
    assert e.value.remedy == TRANSPOSE


# --------------------------------------------------------------------------------------------------------- equations

AVAL = Aval((3,), np.dtype("float32"))
INDEX = Aval((), np.dtype("int32"))


def program(n_in: int, n_out: int, aval: Aval = AVAL) -> Jaxpr:
    b = Builder()
    ins: tuple[Atom, ...] = b.inputs((aval,) * n_in)
    return b.build([ins[0]] * n_out, "body")


def test_types_of_the_equations() -> None:
    one, two, of_int = program(1, 1), program(2, 1), program(1, 1, INDEX)

    together = "the bodies of one equation belong together: trace the function again"

    def fails(prim: LinearSolve | Root, message: str, remedy: str = together) -> None:
        with pytest.raises(ParameterError) as e:
            prim.abstract_eval(*prim.solve.in_avals)
        assert (e.value.message, e.value.remedy) == (f"{prim.name}: {message}", remedy)

    takes = f"{two.name} takes (f32[3], f32[3]), expected (f32[3])"
    fails(
        LinearSolve(one, one, (one,)),
        "adjoint has 1 programs, it is (transpose of matvec, its solver)",
        "give both, or none",
    )
    fails(
        LinearSolve(of_int, one, ()),
        f"operand 0 of {of_int.name} is i32[], which has no tangent",
        "what is solved for is floating or complex",
    )
    fails(LinearSolve(one, two, ()), f"solve {takes}")
    fails(LinearSolve(one, one, (two, one)), f"transpose of matvec {takes}")
    fails(LinearSolve(one, one, (one, two)), f"transpose_solve {takes}")
    fails(
        Root(one, one, one, (two, two), 1),
        f"captured is 1, {one.name} has 1 operands",
        "captured operands come first in the equation",
    )
    fails(
        Root(one, one, one, (two,), 0),
        "system has 1 programs, it is (matvec, solve), then perhaps adjoints",
        "give two programs, or four",
    )
    pair = program(1, 2)
    fails(Root(pair, one, one, (two, two), 0), f"equation {pair.name} returns (f32[3], f32[3]), expected (f32[3])")
    fails(Root(one, two, one, (two, two), 0), f"solve {takes}")
    fails(Root(one, one, two, (two, two), 0), f"at {takes}")
    fails(Root(one, one, one, (one, two), 0), f"matvec {one.name} takes (f32[3]), expected (f32[3], f32[3])")
