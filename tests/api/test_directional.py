"""`jvp`, `linearize`, `vjp`, `transpose`: laws on trees, keyword arguments, integers, error messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, tree
from fxad.errors import ArgumentError, DTypeError, FxadError, NotLinearError, ShapeError, TreeError
from tests.api.refusals import X, refused

D = np.array([1, -2, 0.5], np.float32)


def f(p: Any, i: Any = 2, *, k: Any = 1.0) -> Any:
    return {"y": fnp.sin(p["a"]) * p["b"] * k, "n": i + 1}


P = {"a": X, "b": np.float32(3)}
P_DOT = {"a": D, "b": np.float32(-1)}


def dot(a: Any, b: Any) -> float:
    return float(
        sum([np.vdot(np.asarray(x), np.asarray(y)) for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True)])
    )


def close(a: Any, b: Any) -> None:
    assert tree.structure(a) == tree.structure(b)
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)


# ------------------------------------------------------------------------------------------------------------- laws


def test_jvp_and_linearize_agree() -> None:
    out, dots = fx.jvp(f, (P, 5), (P_DOT, None), k=2.0)
    assert dots["n"] is None
    assert int(out["n"]) == 6
    close(fx.jvp(f)([P, 5], [P_DOT, None], k=2.0), (out, dots))
    program = fx.trace(f, P, 5, k=2.0)
    close(fx.jvp(program)((P, 5), (P_DOT, None), k=2.0), (out, dots))
    close(fx.jvp(program, (P, 5), (P_DOT, None), k=2.0), (out, dots))
    value, push = fx.linearize(f, P, 5, k=2.0)
    close((value, push(P_DOT, None)), (out, dots))
    split = fx.linearize(program)
    value, residuals = split.primal(P, 5, k=2.0)
    close((value, split.linear((P_DOT, None), residuals)), (out, dots))
    assert len(split.residuals) == len(residuals)
    assert split.residual_bytes == sum([r.nbytes for r in residuals])


def test_vjp_and_transpose_agree_and_are_adjoint() -> None:
    y_bar = {"y": D, "n": None}
    out, dots = fx.jvp(f, (P, 5), (P_DOT, None), k=2.0)
    value, back = fx.vjp(f, P, 5, k=2.0)
    bars = back(y_bar)
    assert bars[1] is None
    close(value, out)
    np.testing.assert_allclose(dot(y_bar, dots), dot(bars, (P_DOT, None)), rtol=1e-5)
    program = fx.trace(f, P, 5, k=2.0)
    close(fx.vjp(program)((P, 5), y_bar, k=2.0), (out, bars))
    split = fx.linearize(program, argnums=0)
    _, residuals = split.primal(P, 5, k=2.0)
    adjoint = fx.transpose(split.linear, argnums=0)
    close(adjoint(y_bar, residuals), (bars[0],))


def test_inside_a_trace_they_give_the_same() -> None:
    want = fx.vjp(f, P)[1]({"y": D, "n": None})
    close(fx.jit(lambda p: fx.vjp(f, p)[1]({"y": D, "n": None}))(P), want)
    close(fx.jit(lambda p: fx.linearize(f, p)[1](P_DOT))(P), fx.jvp(f, (P,), (P_DOT,))[1])
    close(fx.jit(lambda p: fx.jvp(f, (p,), (P_DOT,)))(P), fx.jvp(f, (P,), (P_DOT,)))
    over = fx.vmap(lambda s: fx.vjp(lambda x: s * x * x, X)[1](D)[0])(X)
    np.testing.assert_allclose(over, X[:, None] * 2 * X * D, rtol=1e-6)


def test_auxiliary_results_of_vjp() -> None:
    out, back, aux = fx.vjp(lambda x, i: (x * 2, {"i": i + 1, "x": x}), X, 3, has_aux=True)
    close((out, aux), (2 * X, {"i": np.int32(4), "x": X}))
    close(back(D), (2 * D, None))
    message = "vjp: has_aux=True, but <lambda> returns *"
    refused(lambda: fx.vjp(lambda x: x, X, has_aux=True), ArgumentError, message)


def test_complex_numbers_are_not_conjugated() -> None:
    z, w = np.complex64(1 + 2j), np.complex64(3 - 1j)
    close(fx.jvp(lambda x: x * x, (z,), (w,)), (z * z, 2 * z * w))
    close(fx.vjp(lambda x: x * x, z)[1](w), (2 * z * w,))


@pytest.mark.parametrize("twice", [False, True])
def test_a_cotangent_is_negated_after_the_sum_of_a_broadcast(twice: bool) -> None:
    """Not if another operand has the negated cotangent too: then it is computed once, before the sum."""

    def loss(m: Any, x: Any, n: Any) -> Any:
        return fnp.sum((x - ((m + n) if twice else m)) ** 2) + fnp.sum(m) + fnp.sum(n)

    shapes = [fx.Spec(s, "float32") for s in ((3,), (4, 3), (4, 3) if twice else ())]
    program = fx.grad(fx.trace(loss, *shapes), argnums=(0, 1, 2))
    negated = [e.outs[0].aval.shape for e in program.jaxpr.eqns if e.prim.name == "neg"]
    assert negated == [(4, 3) if twice else (3,)]
    m, x, n = X, np.stack([X, D, X, D]), np.ones(shapes[2].shape, np.float32)
    want = -2 * (x - m - n * twice)
    np.testing.assert_allclose(program(m, x, n)[0], want.sum(0) + 1, rtol=1e-6)
    np.testing.assert_allclose(program(m, x, n)[2], want + 1 if twice else 1, rtol=1e-6)


def test_transpose_of_trees_and_argnums() -> None:
    m = np.arange(6, dtype=np.float32).reshape(2, 3)

    def linear(d: Any, k: Any) -> Any:
        return {"p": d["a"] * 2 * k, "q": d["b"] @ m}

    program = fx.trace(linear, {"a": X, "b": m[:, 0]}, np.float32(2))
    ct = {"p": D, "q": X}
    want = {"a": 4 * D, "b": m @ X}
    close(fx.transpose(program, argnums=0)(ct, np.float32(2)), want)
    close(fx.transpose(program, argnums=(0,))(ct, np.float32(2)), (want,))
    back = fx.transpose(fx.transpose(program, argnums=0), argnums=0)
    close(back(want, np.float32(2)), fx.trace(linear, want, np.float32(2))(want, np.float32(2)))
    keyword = fx.trace(lambda a, k: a * k, X, k=np.float32(3))
    close(fx.transpose(keyword)(D, k=np.float32(3)), (3 * D,))


# -------------------------------------------------------------------------------------------------------- refusals

TANGENTS = "tangents have the tree, shapes and dtypes of the arguments, with None for integers and bools"
COTANGENT = "a cotangent has the tree, shapes and dtypes of the results, with None for integers and bools"


def double(x: Any) -> Any:
    return x * 2


loose: Any = fx  # calls that mypy refuses too
REFUSED: list[tuple[type[FxadError], str, str, Callable[[], Any]]] = [
    (
        TreeError,
        "jvp_double: argument tangents is (*, *), it was traced as (*,)",
        TANGENTS,
        lambda: loose.jvp(double, (X,), (X, X)),
    ),
    (
        TreeError,
        "jvp_double: argument tangents is (*,), it was traced as (None,)",
        TANGENTS,
        lambda: loose.jvp(double, (3,), (3,)),
    ),
    (
        ShapeError,
        "jvp_double: argument tangents[0] has shape (), it was traced with (3,)",
        TANGENTS,
        lambda: loose.jvp(double, (X,), (1.0,)),
    ),
    (
        DTypeError,
        "jvp_double: argument tangents[0] has dtype float64, it was traced with float32",
        TANGENTS,
        lambda: loose.jvp(double, (X,), (X.astype("f8"),)),
    ),
    (
        ArgumentError,
        "jvp: tangents is an ndarray, not a tuple with an entry per argument",
        "",
        lambda: loose.jvp(double, (X,), X),
    ),
    (
        ArgumentError,
        "jvp: primals is an ndarray, not a tuple with an entry per argument",
        "",
        lambda: loose.jvp(double, X, (X,)),
    ),
    (
        ArgumentError,
        "jvp: tangents is a NoneType, not a tuple with an entry per argument",
        "",
        lambda: loose.jvp(double, (X,)),
    ),
    (
        ShapeError,
        "linear_double: argument tangents[0] has shape (), it was traced with (3,)",
        TANGENTS,
        lambda: loose.linearize(double, X)[1](1.0),
    ),
    (
        TreeError,
        "linear_double: argument tangents[0] is (*,), it was traced as *",
        TANGENTS,
        lambda: loose.linearize(double, X)[1]((X,)),
    ),
    (
        ShapeError,
        "linear_double: argument tangents[0] has shape (2,), it was traced with (3,)",
        TANGENTS,
        lambda: loose.linearize(loose.trace(double, X)).linear((X[:2],), ()),
    ),
    (
        ShapeError,
        "transpose_double: argument cotangent has shape (2,), it was traced with (3,)",
        COTANGENT,
        lambda: loose.transpose(loose.trace(double, X))(X[:2]),
    ),
    (
        ArgumentError,
        "linear_double: takes 1 positional argument, 2 were given",
        "",
        lambda: loose.linearize(double, X)[1](X, X),
    ),
    (
        ShapeError,
        "vjp_double: argument cotangent has shape (), it was traced with (3,)",
        COTANGENT,
        lambda: loose.vjp(double, X)[1](1.0),
    ),
    (
        TreeError,
        "vjp_double: argument cotangent is (*,), it was traced as *",
        COTANGENT,
        lambda: loose.vjp(double, X)[1]((X,)),
    ),
    (ArgumentError, "vjp_double: takes 1 positional argument, 2 were given", "", lambda: loose.vjp(double, X)[1](X, X)),
    (
        ArgumentError,
        "linearize: a Program is split without values",
        "",
        lambda: loose.linearize(loose.trace(double, X), X),
    ),
    (
        ArgumentError,
        "vjp: a Program is transformed without values, and without has_aux",
        "",
        lambda: loose.vjp(loose.trace(double, X), X),
    ),
    (
        DTypeError,
        "transpose: argument i of <lambda> has type i32[], in which nothing is linear",
        "",
        lambda: loose.transpose(loose.trace(lambda x, i: x, X, 3)),
    ),
]


@pytest.mark.parametrize(("error", "message", "remedy", "fn"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(error: type[FxadError], message: str, remedy: str, fn: Callable[[], Any]) -> None:
    e = refused(fn, error, message)
    assert not remedy or e.remedy == remedy


AGAIN = "trace again for other arguments, or use jit, which does so by itself"
ONE_ARRAY = "give one array f32[3]: lists, tuples and None are pytrees, and numpy.asarray makes arrays of lists"
OTHER_SHAPE = "trace again for the other shape, or use jit, which does so by itself"


@pytest.mark.parametrize(
    ("kind", "message", "remedy", "args", "keyword"),
    [
        (ShapeError, "argument tangents has shape (), it was traced with (3,)", OTHER_SHAPE, (1.0,), X),
        (TreeError, "argument tangents is {'a': *}, it was traced as *", AGAIN, ({"a": X},), X),
        (TreeError, "argument tangents is (*,), it was traced as *", ONE_ARRAY, ((X,),), X),
        (ShapeError, "argument cotangent has shape (2,), it was traced with (3,)", OTHER_SHAPE, (X,), X[:2]),
        (TreeError, "argument cotangent is (*,), it was traced as *", ONE_ARRAY, (X,), (X,)),
    ],
)
def test_parameters_of_the_user_with_the_names_of_directions(
    kind: type[FxadError], message: str, remedy: str, args: Any, keyword: Any
) -> None:
    """Regression: errors for such parameters had the remedies for directions."""

    def scaled(tangents: Any, cotangent: Any) -> Any:
        return tangents * cotangent

    program: Any = fx.trace(scaled, X, cotangent=X)
    e = refused(lambda: program(*args, cotangent=keyword), kind, f"scaled: {message}")
    assert e.remedy == remedy
    adjoint: Any = fx.transpose(fx.trace(lambda k, tangents: tangents * k, X, X), argnums=0)
    e = refused(
        lambda: adjoint(X, X[:2]),
        ShapeError,
        "transpose_<lambda>: argument tangents has shape (2,), it was traced with (3,)",
    )
    assert e.remedy == OTHER_SHAPE


def test_an_equation_that_is_not_linear_is_named_with_its_line() -> None:
    def g(x: Any) -> Any:
        y = x * 2.625  # of no other test: equal programs are one, with the lines of the first
        return fnp.sin(y)

    program = fx.trace(g, X)
    e = refused(lambda: fx.transpose(program), NotLinearError, "transpose: sin is not linear in operands [0]")
    assert e.where == f"{__file__}:{g.__code__.co_firstlineno + 2} in {g.__qualname__}"
    assert e.equation.startswith("%1:f32[3] = sin ")


def test_an_affine_function_is_not_linear() -> None:
    with pytest.raises(NotLinearError) as e:
        fx.transpose(fx.trace(lambda x: (x * 3, 4.0), X))
    assert e.value.message == "transpose: result 4.0:f32[] of <lambda> is constant, so the program is affine"


def test_a_result_that_is_zero_is_linear_whatever_its_sign() -> None:
    def tripled(x: fx.Array) -> tuple[fx.Array, fx.Array]:
        return x * 3, fnp.full((3,), -0.0, "float32")

    assert fx.linear_transpose(tripled, X)((X, X))[0].tolist() == (3 * X).tolist()

    @fx.custom_jvp
    def constant(x: fx.Array) -> fx.Array:
        return x

    constant.defjvp(lambda primals, _tangents: (primals[0], fnp.full((3,), -0.0, "float32")))
    assert fx.grad(lambda x: constant(x).sum())(fnp.asarray(X)).tolist() == [0, 0, 0]


def test_a_function_is_not_transposed_without_examples() -> None:
    with pytest.raises(ArgumentError, match=r"^transpose: double is a function whose argument types are not known"):
        fx.transpose(double)
    with pytest.raises(
        ArgumentError, match=r"^transpose: the examples do not have the types of the Program's arguments"
    ):
        fx.transpose(fx.trace(double, X), 0)


def test_a_function_is_transposed_on_examples() -> None:
    adjoint = fx.transpose(lambda x: x * 3, fx.Spec((3,)))
    close(adjoint(X), (3 * X,))


# ------------------------------------------------------------------------- programs that compute tangents and values

Y = np.float32(0.4)


def wave(v: Any) -> Any:
    return lax.scan(lambda c, _: (fnp.sin(c), c * c), v, None, length=3)


def counting(v: Any) -> Any:
    return lax.scan(lambda c, _: ((fnp.sin(c[0]), c[1] + 1), c[0] * c[1].astype(np.float32)), (v, 0), None, length=3)[1]


PUSHED: dict[str, Callable[[Any], Any]] = {
    "jit": lambda v: fnp.sin(fx.jit(fnp.sin)(v)),
    "jit in jit": lambda v: fx.jit(lambda v: fx.jit(fnp.sin)(v) * v)(v),
    "cond": lambda v: fnp.sin(lax.cond(v > 0, fnp.sin, fnp.cos, v)),
    "scan": lambda v: fnp.sin(wave(v)[0]),
    "rows of scan": lambda v: wave(v)[1],
    "scan with a counter": lambda v: fnp.sum(counting(v)),
    "remat": lambda v: fnp.sin(fx.remat(fnp.sin)(v)),
    "all": fx.jit(lambda v: lax.cond(v > 0, lambda v: wave(v)[0], fnp.sin, v) * v),
    "gradient": fx.grad(lambda v: fnp.sin(fx.jit(fnp.sin)(v))),
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("name", PUSHED)
def test_tangents_that_are_computed_beside_values_transpose(name: str, mapped: bool) -> None:
    """transpose(lambda t: jvp(f, (x,), (t,))[1]) is the vjp. In these functions one equation gives values and
    tangents."""
    f = PUSHED[name]

    def push(t: Any) -> Any:
        return fx.jvp(f, (Y,), (t,))[1]

    value, pull = fx.vjp(f, Y)
    ct = np.cos(np.arange(np.asarray(value).size, dtype=np.float32).reshape(np.shape(value)) + 1)
    (want,) = pull(ct)
    if mapped:
        adjoint = fx.transpose(fx.vmap(push), fx.Spec((2,)))
        close(adjoint(np.stack([ct, 2 * ct])), (np.stack([want, 2 * np.asarray(want)]),))
    else:
        close(fx.transpose(push, Y)(ct), (want,))


def beside(t: Any) -> Any:
    twice, square = fx.jit(lambda t: (t * 2, fnp.square(Y)))(t)
    return twice * square


@pytest.mark.parametrize(
    ("linear", "want"),
    [
        (beside, 2 * Y * Y),
        (lambda t: fnp.where(Y > 0, t, lax.convert_element_type(0, np.float32)), 1),
        (lambda t: fnp.where(Y > 0, t, lax.convert_element_type(fnp.zeros((), np.int32), np.float32)), 1),
        (lambda t: t + t.astype(np.int32).astype(np.float32), 1),
        (lambda t: t * lax.while_loop(lambda c: c < 3, lambda c: c + Y, fnp.asarray(Y)), 3.2),
    ],
    ids=["a value beside", "a zero converted", "an array of zeros converted", "a conversion to integers", "a loop"],
)
def test_linear_programs_with_other_values(linear: Callable[[Any], Any], want: float) -> None:
    close(fx.transpose(linear, Y)(np.float32(1)), (np.float32(want),))


def test_a_linear_program_is_transposed_with_examples_too() -> None:
    """As in `jax.linear_transpose(jax.linearize(f, x)[1], x)`."""
    _, linear = fx.linearize(fnp.sin, X)
    for examples in ((), (X,), (fx.Spec(X.shape, X.dtype),)):
        close(fx.linear_transpose(linear, *examples)(X), (X * np.cos(X),))


def test_a_zero_that_a_function_returns_is_linear() -> None:
    def constant(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0.0) * x

    for derivative in (fx.grad(constant), fx.jacfwd(constant), lambda x: fx.jvp(constant, (x,), (1.0,))[1]):
        pushed: Any = lambda t, d=derivative: fx.jvp(d, (Y,), (t,))[1]  # noqa: E731
        close(fx.linear_transpose(pushed, Y)(np.float32(1)), (np.float32(0),))
    called: Any = lambda t: fx.jit(lambda t: (t * 2, fnp.zeros(()) * 3))(t)  # noqa: E731
    close(fx.linear_transpose(called, Y)((np.float32(1), np.float32(5))), (np.float32(2),))


def test_a_constant_beside_a_linear_result_is_affine() -> None:
    with pytest.raises(NotLinearError) as e:
        fx.transpose(lambda t: fx.jit(lambda t: (t * 2, fnp.sin(Y)))(t), Y)
    assert e.value.message == "transpose: result %0:f32[] of <lambda> is constant, so the program is affine"


# --------------------------------------------------------------------------------------------- loops without a bound


def turning(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, fnp.sin(c[1]) * x), (0, x))[1]


AROUND: dict[str, Callable[[Any], Any]] = {
    "alone": turning,
    "jit": fx.jit(turning),
    "remat": fx.remat(turning),
    "cond": lambda x: lax.cond(x > 0, turning, fnp.sin, x),
    "scan": lambda x: lax.scan(lambda c, _: (turning(c), c), x, None, length=2),
    "vmap": lambda x: fx.vmap(turning)(fnp.stack([x, 2 * x])),
    "jvp": lambda x: fx.jvp(turning, (x,), (x,)),
    "linearize": lambda x: fx.linearize(turning, x)[1](x),
    "a loop": lambda x: lax.while_loop(lambda c: c < 0.1, lambda c: turning(c) + 0.1, x),
}


@pytest.mark.parametrize("name", AROUND)
def test_a_loop_without_a_bound_is_linearized(name: str) -> None:
    f, x, t = AROUND[name], np.float64(0.7), np.float64(-1.5)
    out, dots = fx.jvp(f, (x,), (t,))
    value, push = fx.linearize(f, x)
    close((value, push(t)), (out, dots))
    split = fx.linearize(fx.trace(f, x))
    _, residuals = split.primal(x)
    close(split.linear((t,), residuals), dots)
    again = fx.jvp(
        lambda x: fx.linearize(f, x)[1](t), (x,), (t,)
    )  # the linear program has a derivative with respect to its residuals
    close(again, fx.jvp(lambda x: fx.jvp(f, (x,), (t,))[1], (x,), (t,)))


def test_reverse_mode_beside_a_loop_without_a_bound_that_has_no_cotangent() -> None:
    def unread(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x, c[2] + 2), (0, x, fnp.ones(())))[2] * x

    close(fx.grad(unread)(Y), np.float32(7))
    close(fx.jacfwd(fx.grad(lambda x: turning(fnp.asarray(Y)) * x * x))(Y), 2 * turning(Y))
    close(fx.jacfwd(fx.grad(lambda x, y: turning(y) * x * x), 1)(Y, Y), 2 * Y * fx.jacfwd(turning)(Y))
    close(fx.grad(lambda x: fx.jvp(lambda y: turning(y) * x, (Y,), (Y,))[1])(Y), Y * fx.jacfwd(turning)(Y))
