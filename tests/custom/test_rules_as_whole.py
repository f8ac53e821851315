"""Rules that apply loops without a bound, host functions and prints to tangents and cotangents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.errors import NotDifferentiableError, NotLinearError
from fxad.ir import Jaxpr
from fxad.transforms.ad.transpose import transpose
from fxad.transforms.ad.transpose_by_basis import transpose_by_unit_vectors
from tests.implicit.test_systems import interpreted

A = np.array([[4.0, 1.0], [2.0, 5.0]])
B = np.array([1.0, 2.0])
INVERSE = np.linalg.inv(A)
LIKE: Any = fx.Spec(B.shape, B.dtype)
Fun = Callable[..., Any]


class Host:
    """A host function that multiplies by a matrix and records its operands."""

    def __init__(self, matrix: Any = A) -> None:
        self.matrix = matrix
        self.seen: list[Any] = []

    def __call__(self, x: Any) -> Any:
        self.seen.append(np.array(x))
        return self.matrix @ x

    def note(self, x: Any) -> None:
        self.seen.append(np.array(x))


def solved(m: Any, b: Any) -> Any:
    """Solves m x = b by Richardson's iteration until convergence. It is linear in b, but its equations do not show
    it."""
    going = lambda x: fnp.max(fnp.abs(b - m @ x)) > 1e-14  # noqa: E731
    return lax.while_loop(going, lambda x: x + 0.15 * (b - m @ x), fnp.zeros_like(b))


def by_loop(kind: str, host: Host) -> Fun:
    """b -> A^-1 b, by a loop."""
    return ruled(kind, lambda b: solved(A, b), lambda t: solved(A, t), lambda ct: solved(A.T, ct))


def by_callback(kind: str, host: Host) -> Fun:
    """b -> A b, whose derivative is a host function."""
    back = Host(A.T)
    back.seen = host.seen
    like = fx.Spec(B.shape, B.dtype)
    return ruled(
        kind, lambda b: A @ b, lambda t: fx.pure_callback(host, like, t), lambda ct: fx.pure_callback(back, like, ct)
    )


def by_ordered_callback(kind: str, host: Host) -> Fun:
    back = Host(A.T)
    back.seen = host.seen
    like = fx.Spec(B.shape, B.dtype)
    return ruled(
        kind,
        lambda b: A @ b,
        lambda t: fx.io_callback(host, like, t, ordered=True),
        lambda ct: fx.io_callback(back, like, ct, ordered=True),
    )


def printing(kind: str, host: Host) -> Fun:
    def noted(x: Any, m: Any) -> Any:
        fx.io_callback(host.note, None, x)
        return m @ x

    return ruled(kind, lambda b: A @ b, lambda t: noted(t, A), lambda ct: noted(ct, A.T))


def ruled(kind: str, f: Fun, push: Fun, pull: Fun) -> Fun:
    if kind == "jvp":
        forward = fx.custom_jvp(f)
        forward.defjvp(lambda p, t: (forward(*p), push(*t)))
        return forward
    back = fx.custom_vjp(f)
    back.defvjp(lambda b: (back(b), ()), lambda _, ct: (pull(ct),))
    return back


MAPS: list[tuple[Any, Any]] = [(by_loop, INVERSE), (by_callback, A), (by_ordered_callback, A), (printing, A)]
each_map = pytest.mark.parametrize(("make", "matrix"), MAPS, ids=[m.__name__ for m, _ in MAPS])
each_kind = pytest.mark.parametrize("kind", ["jvp", "vjp"])


def square(f: Fun) -> Fun:
    return lambda b: fnp.sum(f(b) ** 2)


def close(actual: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(actual), wanted, rtol=1e-9, atol=1e-9)


def pushed(f: Fun) -> Fun:
    return lambda x: fx.jvp(f, (x,), (x,))[1]


def gradient(f: Fun) -> Fun:
    return fx.grad(f)


def pulled(f: Fun) -> Fun:
    return lambda x: fx.vjp(f, x)[1](x)[0]


@each_kind
@each_map
def test_derivatives_of_all_orders_in_both_modes(make: Any, matrix: Any, kind: str) -> None:
    f = make(kind, Host())
    hessian = 2 * matrix.T @ matrix
    close(interpreted(square(f), B), (matrix @ B) @ (matrix @ B))
    close(interpreted(fx.grad(square(f)), B), hessian @ B)
    close(interpreted(lambda b: fx.jvp(square(f), (b,), (B[::-1].copy(),))[1], B), hessian @ B @ B[::-1])
    close(interpreted(fx.jacfwd(fx.grad(square(f))), B), hessian)
    close(interpreted(fx.jacrev(fx.grad(square(f))), B), hessian)
    close(interpreted(fx.jacfwd(fx.jacfwd(square(f))), B), hessian)
    cube = fx.grad(lambda b: fnp.sum(f(b) ** 3))
    third = fx.jacrev(lambda b: fx.jvp(cube, (b,), (B,))[1])
    close(interpreted(third, B), 6 * np.einsum("k,ki,kj,kl,l->ij", np.ones(2), matrix, matrix, matrix, B))


@each_kind
@each_map
def test_in_programs_of_all_kinds(make: Any, matrix: Any, kind: str) -> None:
    f = make(kind, Host())
    stack = np.stack([B, 3 * B, -B])
    hessian = 2 * matrix.T @ matrix
    for transformed in (fx.vmap(fx.grad(square(f))), fx.grad(lambda x: fnp.sum(fx.vmap(square(f))(x)))):
        close(interpreted(transformed, stack), stack @ hessian.T)

    def scanned(b: Any) -> Any:
        return lax.scan(lambda c, _: (f(c) / 4, None), b, None, length=3)[0]

    cubed = np.linalg.matrix_power(matrix / 4, 3)
    close(interpreted(fx.grad(square(scanned)), B), 2 * cubed.T @ cubed @ B)
    close(interpreted(fx.grad(square(fx.remat(scanned))), B), 2 * cubed.T @ cubed @ B)
    close(interpreted(fx.jacfwd(fx.grad(square(fx.remat(f)))), B), hessian)


@each_kind
@each_map
def test_compiled_saved_and_read(make: Any, matrix: Any, kind: str) -> None:
    program = fx.trace(fx.grad(square(make(kind, Host()))), B)
    close(fx.lower(program).compile()(B), 2 * matrix.T @ matrix @ B)
    assert fx.text.parse(str(program.jaxpr)) is program.jaxpr
    typecheck(program.jaxpr)


def twins(name: str, jax: Any) -> tuple[Fun, Fun]:
    """Returns the same function with a rule for cotangents, of fxad and of jax."""

    def written(custom: Any, call: Any, loop: Any, zeros: Any, bound: Any) -> Any:
        f = custom(lambda b: b * b)

        def back(b: Any, ct: Any) -> Any:
            if name == "callback":
                return (2 * b * call(ct),)
            return (loop(lambda s: bound(s[0]), lambda s: (s[0] * 2, s[1] + 2 * b * ct), (zeros(ct) + 1, ct))[1],)

        f.defvjp(lambda b: (f(b), b), back)
        return f

    mine = written(
        fx.custom_vjp,
        lambda ct: fx.pure_callback(lambda x: 3 * x, fx.Spec(B.shape, "float32"), ct),
        lax.while_loop,
        fnp.zeros_like,
        lambda x: fnp.max(x) < 10,
    )
    theirs = written(
        jax.custom_vjp,
        lambda ct: jax.pure_callback(lambda x: 3 * x, jax.ShapeDtypeStruct(B.shape, np.float32), ct),
        jax.lax.while_loop,
        jax.numpy.zeros_like,
        lambda x: jax.numpy.max(x) < 10,
    )
    return mine, theirs


@pytest.mark.parametrize("name", ["callback", "loop"])
def test_results_are_those_of_jax(name: str) -> None:
    jax: Any = pytest.importorskip("jax")
    mine, theirs = twins(name, jax)
    b = B.astype("float32")
    actual = fx.grad(lambda b: fnp.sum(mine(b) ** 2))(b)
    wanted = jax.grad(lambda b: (theirs(b) ** 2).sum())(b)
    np.testing.assert_allclose(np.asarray(actual), np.asarray(wanted), rtol=1e-6)


@pytest.mark.parametrize("make", [printing, by_callback, by_ordered_callback])
def test_effects_of_a_rule_happen_once_for_each_use(make: Any) -> None:
    host = Host()
    f = make("vjp", host)
    interpreted(f, B)
    assert host.seen == [], "the rule is not used"
    for use in (lambda g: g, fx.jit, fx.remat):
        host.seen.clear()
        fx.jit(fx.grad(square(use(f))))(fnp.asarray(B))
        assert len(host.seen) == 1
        close(host.seen[0], 2 * A @ B)
    host.seen.clear()
    interpreted(fx.grad(square(lambda b: lax.scan(lambda c, _: (f(c), None), b, None, length=3)[0])), B)
    assert len(host.seen) == 3
    host.seen.clear()
    interpreted(fx.vmap(fx.grad(square(f))), np.stack([B, B, B]))
    assert len(host.seen) == 3
    host.seen.clear()
    f = make("jvp", host)
    interpreted(lambda b: fx.jvp(f, (b,), (3 * b,))[1], B)
    assert len(host.seen) == 1
    close(host.seen[0], 3 * B)


def test_a_print_is_not_repeated_by_derivatives_of_the_rule() -> None:
    host = Host()
    interpreted(fx.jacfwd(fx.grad(square(printing("vjp", host)))), B)
    assert len(host.seen) == 1
    host.seen.clear()
    interpreted(lambda b: fx.vjp(fx.grad(square(printing("vjp", host))), b)[1](b), B)
    assert len(host.seen) == 2, "the rule is used for the gradient, and for the gradient of f in it"
    host.seen.clear()
    interpreted(fx.grad(square(printing("jvp", host))), B)
    assert host.seen == [], "reverse mode has no tangents"


def test_prints_of_what_a_rule_stored_and_of_cotangents_keep_their_order() -> None:
    seen: list[tuple[str, float]] = []

    @fx.custom_vjp
    def f(x: Any) -> Any:
        return x * x

    def forward(x: Any) -> Any:
        fx.io_callback(lambda v: seen.append(("x", float(v))), None, x, ordered=True)
        return f(x), x

    def back(x: Any, ct: Any) -> Any:
        fx.io_callback(lambda v: seen.append(("ct", float(v))), None, ct, ordered=True)
        fx.io_callback(lambda v: seen.append(("res", float(v))), None, x, ordered=True)
        return (2 * x * ct,)

    f.defvjp(forward, back)
    assert float(fx.jit(fx.grad(lambda x: 5 * f(x)))(fnp.asarray(3.0))) == 30
    assert seen == [("x", 3.0), ("ct", 5.0), ("res", 3.0)]


def traced(f: Fun, *args: Any) -> Jaxpr:
    program = fx.trace(f, *args)
    assert not program.bound
    return program.jaxpr


@pytest.mark.parametrize("n", [1, 2])
def test_the_transpose_by_unit_vectors_is_the_transpose(n: int) -> None:
    """For operands of any dtype and shape, maps that conjugate, and fixed operands."""

    def f(x: Any, z: Any, w: Any) -> Any:
        return fnp.conj(z) * w + fnp.sum(x), fnp.real(w)[0] * x, fnp.imag(z) * 2, fnp.zeros((2,), dtype="float32")

    x = np.float32(2) if n == 1 else np.ones((2, 3), "float32")
    jaxpr = traced(f, x, np.array([1 + 2j, 3j]), np.array([2 - 1j, 5.0]))
    mask = (True, True, False)
    actual, wanted = transpose_by_unit_vectors(jaxpr, 2), transpose(jaxpr, mask)
    assert actual.in_avals == wanted.in_avals
    assert actual.out_avals == wanted.out_avals
    typecheck(actual)
    rng = np.random.default_rng(0)
    args = []
    for aval in actual.in_avals:
        value = rng.normal(size=aval.shape) + (1j * rng.normal(size=aval.shape) if aval.dtype.kind == "c" else 0)
        args.append(np.asarray(value).astype(str(aval.dtype)))
    for have, want in zip(run(actual, args), run(wanted, args), strict=True):
        np.testing.assert_allclose(np.asarray(have, complex), np.asarray(want, complex), rtol=1e-5)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,), (2, 2)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_every_shape_and_dtype(shape: tuple[int, ...], dtype: str) -> None:
    x = (np.ones(shape) * 3).astype(dtype)
    like = fx.Spec(shape, dtype)

    def twice(t: Any) -> Any:
        return fx.pure_callback(lambda v: (v * 2).astype(dtype), like, t)

    for kind in ("jvp", "vjp"):
        f = ruled(kind, lambda b: 2 * b, twice, twice)
        close(interpreted(pushed(f), x), 2 * x)
        close(interpreted(pulled(f), x), 2 * x)


def test_a_map_that_is_linear_over_the_reals_is_transposed() -> None:
    z = np.array([1 + 2j, -1j])
    like = fx.Spec(z.shape, z.dtype)
    f = ruled("jvp", fnp.conj, lambda t: fx.pure_callback(np.conj, like, t), lambda ct: ct)
    for g in (f, fnp.conj):
        close(interpreted(pulled(g), z), np.conj(z))


def test_nan_is_propagated() -> None:
    f = by_callback("jvp", Host())
    assert np.isnan(interpreted(lambda b: fx.vjp(f, b)[1](np.array([np.nan, 1.0]))[0], B)).all()


def test_derivatives_of_some_arguments_and_results() -> None:
    """Some arguments have no cotangent from the rule, and some results are unused: both are zeros."""

    def back(_: Any, cts: Any) -> Any:
        both: Any = fx.pure_callback(lambda a, b: (a + 2 * b, 3 * b), (LIKE, LIKE), *cts)
        return both[0], both[1], None

    def total(x: Any, y: Any) -> Any:
        return fnp.sum(f(x, y, 1)[0] + f(x, y, 1)[1])

    @fx.custom_vjp
    def f(x: Any, y: Any, n: Any) -> Any:
        return x, 2 * x + 3 * y, n

    f.defvjp(lambda x, y, n: ((x, 2 * x + 3 * y, n), ()), lambda r, cts: back(r, cts[:2]))
    for argnum, wanted in ((0, 3.0), (1, 3.0)):
        close(interpreted(fx.grad(total, argnums=argnum), B, B), [wanted] * 2)
    close(interpreted(gradient(lambda x: fnp.sum(f(x, B, 1)[0])), B), [1, 1])
    close(interpreted(lambda y: fx.jvp(lambda y: f(B, y, 1)[1], (y,), (y,))[1], B), 3 * B)


def test_a_rule_that_closes_over_tracers_in_another_rule() -> None:
    def outer(m: Any, b: Any) -> Any:
        inner = ruled("vjp", lambda b: m @ b, lambda t: m @ t, lambda ct: solved(A, A @ (m.T @ ct)))
        around = ruled("vjp", inner, inner, lambda ct: fx.vjp(inner, ct)[1](ct)[0])
        return fnp.sum(around(b) ** 2)

    m = np.array([[1.0, 2.0], [3.0, -1.0]])
    wanted = 2 * m.T @ m
    close(interpreted(lambda m: fx.grad(lambda b: outer(m, b))(B), m), wanted @ B)
    close(interpreted(lambda m: fx.jacfwd(fx.grad(lambda b: outer(m, b)))(B), m), wanted)

    def of(m: Any) -> Any:
        return gradient(lambda b: outer(m, b))(B)

    mapped = interpreted(fx.vmap(of), np.stack([m, 2 * m]))
    close(mapped[1], 4 * wanted @ B)


def test_equations_that_are_not_linear_are_refused() -> None:
    square_and_call = ruled(
        "vjp", lambda b: b * 2, lambda t: t, lambda ct: fx.pure_callback(lambda v: v, LIKE, ct) * 0 + ct * ct
    )
    fx.trace(fx.grad(square(square_and_call)), B)  # the call of the host hides its linearity, so it is assumed

    @fx.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x + y

    f.defvjp(lambda x, y: (f(x, y), ()), lambda _, ct: (fx.pure_callback(lambda v: v, LIKE, ct), ct * ct))
    with pytest.raises(NotLinearError, match="is not linear in the cotangents"):
        fx.trace(f, B, B)

    def print_and_square(_: Any, ct: Any) -> Any:
        fx.debug_print("{}", ct)
        return (ct * ct,)

    g: Any = fx.custom_vjp(lambda b: 2 * b)
    g.defvjp(lambda b: (2 * b, ()), print_and_square)
    with pytest.raises(NotLinearError, match="is not linear in the cotangents"):
        fx.trace(g, B)


def test_a_host_function_of_residuals_has_no_derivative() -> None:
    @fx.custom_vjp
    def f(x: Any) -> Any:
        return x * x

    f.defvjp(lambda x: (x * x, x), lambda x, ct: (fx.pure_callback(lambda x, ct: 2 * x * ct, LIKE, x, ct),))
    close(interpreted(gradient(lambda x: fnp.sum(f(x))), B), 2 * B)
    with pytest.raises(NotDifferentiableError, match="has no derivative: it runs outside of the program"):
        fx.jacfwd(fx.grad(lambda x: fnp.sum(f(x))))(B)


def test_a_loop_over_results_and_tangents() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return x**8

    def rule(primals: Any, tangents: Any) -> Any:
        def squared(s: Any) -> Any:
            return s[0] + 1, s[1] * s[1], 2 * s[1] * s[2]

        return lax.while_loop(lambda s: s[0] < 3, squared, (0, *primals, *tangents))[1:]

    f.defjvp(rule)
    x = np.float64(1.5)
    close(interpreted(pushed(f), x), 8 * x**8)
    close(interpreted(gradient(f), x), 8 * x**7)
    close(interpreted(pushed(pushed(f)), x), 8 * x**8 + 56 * x**8)


def test_mutually_recursive_rules_that_call_the_host() -> None:
    seen: list[float] = []
    sine: Any = fx.custom_vjp(fnp.sin)
    cosine: Any = fx.custom_vjp(fnp.cos)

    def told(x: Any, sign: float, f: Any, ct: Any) -> Any:
        fx.debug_callback(lambda v: seen.append(float(v)), ct)
        return (sign * f(x) * ct,)

    sine.defvjp(lambda x: (sine(x), x), lambda x, ct: told(x, 1.0, cosine, ct))
    cosine.defvjp(lambda x: (cosine(x), x), lambda x, ct: told(x, -1.0, sine, ct))
    x = np.float64(0.3)
    close(interpreted(gradient(gradient(gradient(sine))), x), -np.cos(0.3))
    seen.clear()
    close(interpreted(gradient(sine), x), np.cos(0.3))
    assert seen == [1.0]


def test_values_that_are_the_same_for_all_examples() -> None:
    f = by_loop("vjp", Host())
    actual = interpreted(gradient(lambda b: fnp.sum(fx.vmap(lambda n: f(b) * n)(np.arange(3.0)))), B)
    close(actual, 3 * INVERSE.T @ np.ones(2))


# ---------------------------------------------------------------------------------------------------------- checks


def _small(ct: fx.Array) -> fx.Array:
    return fx.error_if(ct, fnp.abs(ct) > 2.0, "large: {}", ct)


def _halved(ct: fx.Array) -> fx.Array:
    half: fx.Array = lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, s[1] / 2.0), (0, ct))[1]
    return half


BACKWARD: dict[str, Fun] = {
    "equations": lambda x, ct: _small(4.0 * ct) / 4.0 * fnp.cos(x),
    "steps": lambda x, ct: (
        lax.scan(lambda c, _: (_small(c) * 1.0, None), 4.0 * ct, None, length=2)[0] / 4.0 * fnp.cos(x)
    ),
    "a loop": lambda x, ct: _halved(_small(4.0 * ct)) / 2.0 * fnp.cos(x),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_a_check_of_cotangents_is_made_for_the_cotangents_of_the_user_alone(name: str) -> None:
    """A check sees the user's cotangents, and no unit vectors or derivatives of cotangents."""
    f: Any = fx.custom_vjp(fnp.sin)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (BACKWARD[name](x, ct),))
    x: Any = np.float32(2.0)
    small: Any = np.float32(0.25)
    pull = interpreted(lambda x, ct: fx.vjp(f, x)[1](ct)[0], x, small)
    np.testing.assert_allclose(pull, small * np.cos(x), rtol=1e-6)
    assert interpreted(lambda x: fx.jvp(f, (x,), (np.float32(5.0),))[1], x) == pytest.approx(5.0 * np.cos(x))

    def slope(x: Any) -> Any:
        return fx.vjp(f, x)[1](small)[0]

    second = interpreted(fx.grad(slope), x)
    np.testing.assert_allclose(second, -small * np.sin(x), rtol=1e-6)
    moved = interpreted(lambda x, ct: fx.jvp(lambda ct: fx.vjp(f, x)[1](ct)[0], (ct,), (ct * 20.0,))[1], x, small)
    np.testing.assert_allclose(moved, 20.0 * small * np.cos(x), rtol=1e-6)
    with pytest.raises(fx.errors.CheckError, match=r"error_if: large: 4\.0"):
        interpreted(fx.grad(f), x)


# ------------------------------------------------------------------------------------------------ without a transpose

W = np.array([[1.0, 2.0, -1.0], [0.5, -3.0, 4.0]])
V = np.array([0.3, -1.2, 2.0])
OUT: Any = fx.Spec((2,), "float64")


def _by_host(x: Any, t: Any) -> Any:
    return fnp.cos(W @ x) * fx.pure_callback(lambda t: W @ t, OUT, t)


def _by_loop(x: Any, t: Any) -> Any:
    slope = fnp.cos(W @ x)
    return lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + 0.5 * slope * (W @ t)), (0, 0.0 * slope))[1]


def _as_whole(x: Any, t: Any) -> Any:
    size = 1.0 + fnp.sum(fnp.abs(t))
    return size * (fnp.cos(W @ x) * (W @ (t / size)))


DERIVED: dict[str, Fun] = {
    "equations": lambda x, t: fnp.cos(W @ x) * (W @ t),
    "host": _by_host,
    "loop": _by_loop,
    "as whole": _as_whole,
}


@pytest.mark.parametrize("name", DERIVED)
def test_a_linear_call_without_a_transpose_in_a_rule(name: str) -> None:
    f: Any = fx.custom_jvp(lambda x, y: fnp.sin(W @ x) * y)

    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        moved: Any = lax.linear_call(DERIVED[name], None, x, dx, as_whole=name == "as whole")
        return f(x, y), moved * y + fnp.sin(W @ x) * dy

    f.defjvp(rule)
    jacobian = np.cos(W @ V)[:, None] * W * B[:, None]
    close(interpreted(fx.jacfwd(f), V, B), jacobian)
    close(interpreted(fx.jacrev(f), V, B), jacobian)
    close(interpreted(fx.vmap(fx.jacrev(f), (0, None)), np.stack([V, V]), B)[1], jacobian)

    def by_y(y: Any) -> Any:
        return fnp.sum(f(V, y))

    def by_x(x: Any) -> Any:
        return fnp.sum(f(x, B))

    close(interpreted(fx.grad(by_y), B), np.sin(W @ V))
    second = np.einsum("i,ij,ik->jk", -np.sin(W @ V) * B, W, W)
    close(interpreted(fx.jacfwd(fx.grad(by_x)), V), second)


def test_a_map_that_is_not_linear_has_no_transpose() -> None:
    def square(_: Any, t: Any) -> Any:
        return t * t

    with pytest.raises(NotLinearError, match="linear_call: fun square is not linear in its linear arguments"):
        fx.trace(lambda t: lax.linear_call(square, None, None, t), V)


# ------------------------------------------------------------------------------------------------------- shared bodies


def doubled(depth: int) -> Fun:
    """A linear function that calls another one twice, to a depth."""
    if depth == 0:
        return lambda t: 2.0 * t
    inner = fx.jit(doubled(depth - 1))
    return lambda t: inner(t) - 0.5 * inner(t)


@each_kind
def test_a_body_that_is_called_often_is_processed_once(kind: str) -> None:
    """With 2^40 calls, a walk over all calls would not end."""

    def halved(t: Any) -> Any:
        return 0.5 * fx.jit(doubled(40))(t) * 2.0**40 + solved(A, t)

    f = ruled(kind, lambda b: b + INVERSE @ b, halved, lambda ct: halved(ct))
    assert fx.trace(fx.grad(square(f)), B).jaxpr.eqns
