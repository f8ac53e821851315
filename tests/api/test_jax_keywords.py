"""Keyword arguments that JAX has work as in JAX, or the error says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, text, transforms
from fxad.errors import ArgumentError, NotDifferentiableError, ParameterError, ShapeError
from fxad.primitives.dot import DotGeneral
from tests.api.refusals import check_refused

X = fnp.asarray([[1.0, 2.0], [3.0, 4.0]])
Z = fnp.asarray(1 + 2j)
loose: Any = fx
loose_np: Any = fnp
loose_lax: Any = lax


# ---------------------------------------------------------------------------------------------------------- gradients


def test_holomorphic_gradients() -> None:
    np.testing.assert_allclose(complex(fx.grad(lambda z: z**3, holomorphic=True)(Z)), 3 * (1 + 2j) ** 2, rtol=1e-6)
    (value, aux), grads = fx.value_and_grad(lambda z, w: (z * w, w), (0, 1), has_aux=True, holomorphic=True)(Z, 3 * Z)
    assert [complex(x) for x in (value, aux, *grads)] == [-9 + 12j, 3 + 6j, 3 + 6j, 1 + 2j]
    sine = fx.jit(fx.vmap(fx.grad(fnp.sin, holomorphic=True)))(fnp.stack([Z, 2 * Z]))
    np.testing.assert_allclose(np.asarray(sine), np.cos([1 + 2j, 2 + 4j]), rtol=1e-5)


def test_gradients_of_real_functions_of_complex_numbers() -> None:
    assert complex(fx.grad(lambda z: abs(z) ** 2)(3 + 4j)) == pytest.approx(6 - 8j)
    value, (of_z, of_x) = loose.value_and_grad(lambda z, x: (z * x).imag, (0, 1))(Z, 3.0)
    assert [float(value), complex(of_z), float(of_x)] == [6, -3j, 2]


def test_vmap_of_a_program_reads_the_number_of_examples() -> None:
    _, pull = fx.vjp(lambda v: fnp.sin(v) * v[0], X[0])
    rows = fx.vmap(pull)(fnp.eye(2))[0]
    np.testing.assert_allclose(np.asarray(rows), np.asarray(fx.jacrev(lambda v: fnp.sin(v) * v[0])(X[0])), rtol=1e-6)
    program: Any = fx.trace(lambda p, x: p["w"] * x, {"w": 2.0}, 3.0)
    mapped = fx.jit(fx.vmap(program, in_axes=({"w": None}, 0)))
    assert np.asarray(mapped({"w": 2.0}, np.arange(3, dtype=np.float32))).tolist() == [0, 2, 4]
    assert mapped({"w": 2.0}, np.arange(5, dtype=np.float32)).shape == (5,)
    assert fx.vmap(program, axis_size=3).in_avals[1].shape == (3,)


@pytest.mark.parametrize("pred", [2, 0, 0.5, np.float32(0), np.int8(3), np.asarray(0), fnp.asarray(0.5)])
def test_a_number_is_a_predicate(pred: Any) -> None:
    assert int(lax.cond(pred, lambda: 1, lambda: 2)) == (1 if pred else 2)
    assert int(fx.jit(lambda p: lax.cond(p, lambda: 1, lambda: 2))(pred)) == (1 if pred else 2)


def test_a_size_that_is_traced_says_what_to_do() -> None:
    with pytest.raises(fx.errors.ShapeError) as caught:
        fx.jit(lambda n: loose_np.ones((n, 2)))(3)
    assert caught.value.message == "shape: (Tracer<i32[]>, 2) is not a sequence of integers"
    remedy = (
        "sizes, axes and range() need Python ints: make the argument static, with static_argnums or static_argnames"
        " of jit, grad, vmap, ...; x[i] takes tracers"
    )
    assert caught.value.remedy == remedy
    uses: list[Callable[[Any, Any], Any]] = [
        lambda x, n: x * sum(range(n)),
        lambda x, n: x * loose_np.zeros(n).sum(),
        lambda x, n: x * fx.random.split(fx.random.key(0), n).sum(),
        lambda x, n: x * loose_np.ones(6).reshape(n, -1).sum(),
        lambda x, n: x * loose_np.sum(loose_np.ones(6), axis=n),
        lambda x, n: x * loose_np.arange(n).sum(),
    ]
    for use in uses:
        with pytest.raises(fx.errors.FxadError) as of_use:
            fx.jit(fx.grad(use))(1.0, 2)
        assert of_use.value.remedy == remedy
        with pytest.raises(fx.errors.FxadError) as of_use:
            fx.jit(fx.vmap(use, (0, None)))(np.ones(3), 2)
        assert of_use.value.remedy == remedy


def test_gradients_of_integers() -> None:
    g = fx.grad(lambda x, n: (x["a"] * n).sum(), argnums=(0, 1), allow_int=True)({"a": X, "k": 3}, 2)
    assert np.asarray(g[0]["a"]).tolist() == [[2, 2], [2, 2]]
    assert g[0]["k"] is g[1] is None
    value, none = fx.value_and_grad(lambda n: 1.0 * n, allow_int=True)(2)
    assert (float(value), none) == (2, None)


def test_holomorphic_jacobians() -> None:
    z = fnp.asarray([[1 + 2j, 3 - 1j], [0.5j, 2]], "complex128")

    def f(z: Any, w: Any = 2.0) -> Any:
        return {"a": fnp.exp(z) * z[0] * w, "b": z @ z}

    for made in (fx.jacfwd, fx.jacrev):
        found: Any = made(f, holomorphic=True)(z)
        step = 1e-6 * (1 + 1j)  # f is holomorphic, so any direction of the step gives the derivative
        for k in range(2):
            for i in range(2):
                moved = f(z.at[k, i].add(step)), f(z.at[k, i].add(-step))
                for name in ("a", "b"):
                    slope = (moved[0][name] - moved[1][name]) / (2 * step)
                    np.testing.assert_allclose(
                        np.asarray(found[name][..., k, i]), np.asarray(slope), rtol=1e-7, atol=1e-8
                    )
    second: Any = fx.hessian(lambda z: (z**3).sum(), holomorphic=True)(z[0])
    np.testing.assert_allclose(np.asarray(second), np.diag(6 * np.asarray(z[0])), rtol=1e-12)
    traced: Any = fx.jit(fx.vmap(fx.jacfwd(lambda z: z**2, holomorphic=True)))(z)
    np.testing.assert_allclose(np.asarray(traced), [np.diag(2 * row) for row in np.asarray(z)], rtol=1e-12)


def test_jacobians_of_integers() -> None:
    found: Any = fx.jacrev(lambda x, k: x["a"] * k, argnums=(0, 1), allow_int=True)({"a": X[0], "n": 3}, 2)
    assert np.asarray(found[0]["a"]).tolist() == [[2, 0], [0, 2]]
    assert found[0]["n"] is found[1] is None


def test_names_of_arguments_without_derivative() -> None:
    @partial(fx.custom_jvp, nondiff_argnames=("n",))
    def f(x: Any, n: str) -> Any:
        return x * len(n)

    @f.defjvp
    def f_jvp(n: str, primals: Any, tangents: Any) -> Any:
        return f(primals[0], n), 10 * tangents[0]

    assert float(fx.grad(lambda x: f(x, "ab"))(1.0)) == 10

    @partial(fx.custom_vjp, nondiff_argnames="n")
    def g(n: str, x: Any) -> Any:
        return x * len(n)

    g.defvjp(lambda n, x: (g(n, x), None), lambda n, _, ct: (7 * ct,), optimize_remat=True)
    assert float(fx.grad(lambda x: g("ab", x))(1.0)) == 7


# ------------------------------------------------------------------------------------------------------- contractions


PRODUCTS: list[Callable[..., Any]] = [
    partial(fnp.matmul, X, X), partial(fnp.dot, X, X), partial(fnp.vdot, X, X), partial(fnp.inner, X, X),
    partial(fnp.vecdot, X, X), partial(fnp.tensordot, X, X), partial(fnp.einsum, "ij,jk,kl->il", X, X, X),
    partial(lax.dot, X, X), partial(lax.batch_matmul, X[None], X[None]),
    partial(lax.dot_general, X, X, (((1,), (0,)), ((), ()))),
    partial(lax.conv, X[None, None], X[None, None], (1, 1), "SAME"),
    partial(lax.conv_transpose, X[None, ..., None], X[..., None, None], (2, 2), "SAME"),
    partial(lax.conv_general_dilated, X[None, None], X[None, None], (1, 1), "SAME"),
    partial(lax.conv_with_general_padding, X[None, None], X[None, None], (1, 1), "SAME", None, None),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(PRODUCTS)))
def test_precision(k: int) -> None:
    f = PRODUCTS[k]
    plain = fx.trace(f)
    assert "precision" not in plain.text()
    given: Any
    for given in (None, "default", lax.Precision.DEFAULT):
        assert fx.trace(partial(f, precision=given)).jaxpr is plain.jaxpr
    for given in (lax.Precision.HIGHEST, "float32", ("highest", "highest"), ("default", "highest")):
        program = fx.trace(partial(f, precision=given))
        products = program.text().count("dot_general[") + program.text().count("conv_general_dilated[")
        assert program.text().count('precision="highest"') == products > 0
        assert fx.lower(program).text().count("precision HIGHEST") == 2 * products
        assert text.parse(program.text()) is program.jaxpr
        np.testing.assert_allclose(np.asarray(program()), np.asarray(f()), rtol=1e-6)


def test_derivatives_and_batches_have_the_precision() -> None:
    def f(x: Any, y: Any) -> Any:
        product = fnp.matmul(x, y, precision="high")
        return lax.conv(product[None, None], y[None, None], (1, 1), "SAME", precision="high").sum()

    for made in (fx.grad(fx.trace(f, X, X), (0, 1)), fx.vmap(fx.trace(f, X, X), axis_size=3)):
        products = made.text().count("dot_general[") + made.text().count("conv_general_dilated[")
        assert made.text().count('precision="high"') == products > 1


# ------------------------------------------------------------------------------------------------------ control flow


def test_an_operand_by_keyword() -> None:
    assert int(lax.cond(True, lambda t: t[0] + 1, lambda t: t[1], operand=(1, 2))) == 2
    assert int(lax.cond(False, lambda _: 1, lambda _: 2, operand=None)) == 2
    assert int(lax.switch(1, [lambda t: t + 1, lambda t: t + 2], operand=3)) == 5


def test_defaults_of_jax_by_name() -> None:
    doubled = fx.jit(lambda x: 2 * x, static_argnums=None, static_argnames=None, donate_argnums=None)
    assert float(doubled(1.0)) == 2
    assert np.asarray(fx.vmap(lambda x: lax.psum(x, "i"), 0, 0, "i", 3)(np.ones(3, "f"))).tolist() == [3, 3, 3]
    lowered = fx.jit(fnp.sin).lower(X)
    assert "stablehlo.sine" in lowered.as_text("stablehlo")
    assert "stablehlo.sine" in str(lowered.compiler_ir())
    assert lowered.as_text("hlo").startswith("HloModule")
    computation: Any = lowered.compiler_ir("hlo")
    assert "sine(" in computation.as_hlo_text()


# ------------------------------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize("mode", ["clip", "wrap", "fill"])
@pytest.mark.parametrize(
    ("indices", "axis"), [([0, 5, -1, -4], 1), (9, 0), ([[0, 1], [7, 2]], None), ([0, -7], -1), ([], 0)]
)
def test_take(mode: str, indices: Any, axis: int | None) -> None:
    jnp = pytest.importorskip("jax.numpy")
    at = np.asarray(indices, np.int32)
    for dtype in ("float32", "int8", "uint16", "bool"):
        x = np.arange(6).reshape(2, 3).astype(dtype)
        ours = fx.jit(lambda x, i: fnp.take(x, i, axis=axis, mode=mode))(x, at)
        theirs = jnp.take(x, at, axis=axis, mode=mode)
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
        if mode != "wrap" and axis == 1:
            rows = at[None] % 9
            ours = fnp.take_along_axis(x, rows, axis, mode=mode)
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(jnp.take_along_axis(x, rows, axis, mode=mode)))


def test_take_fills_and_takes_keywords() -> None:
    assert np.asarray(fnp.take(X, indices=np.array([0, 9]), mode="fill", fill_value=-1)).tolist() == [1, -1]
    assert np.asarray(fnp.take_along_axis(arr=X, indices=np.array([3, 0]), axis=None)).tolist() == [4, 1]
    assert float(fx.grad(lambda x: fnp.take(x, np.array([0, 9]), mode="fill", fill_value=0).sum())(X)[0, 0]) == 1


def test_jacobians_between_real_and_complex_numbers() -> None:
    z = np.array([1 + 2j, 2 - 1j], np.complex64)
    gradient: Any = fx.grad
    rows = [gradient(lambda z, k=k: (abs(z) ** 2 * np.array([1, 3], np.float32))[k])(z) for k in (0, 1)]

    def squares(z: Any) -> Any:
        return abs(z) ** 2 * np.array([1, 3], np.float32)

    def products(x: Any) -> Any:
        return x * x * z

    def of_tree(tree: Any) -> Any:
        return tree["a"] * tree["z"].real

    np.testing.assert_allclose(np.asarray(fx.jacrev(squares)(z)), rows)
    np.testing.assert_allclose(rows, [[2 - 4j, 0], [0, 12 + 6j]])
    columns = fx.jacfwd(products)(np.array([1, 3], np.float32))
    np.testing.assert_allclose(np.asarray(columns), np.diag(z * [2, 6]))
    found: Any = fx.jacrev(of_tree)({"a": np.float32(3), "z": z})
    np.testing.assert_allclose(found["a"], z.real)
    np.testing.assert_allclose(found["z"], np.diag([3, 3]))


def test_dtypes_of_joined_arrays() -> None:
    assert fnp.stack([X, X], dtype="int8").dtype == np.int8
    assert fnp.concatenate([X, X], axis=None, dtype=fnp.float16).dtype == np.float16
    assert fnp.concat([X, fnp.ones((1, 2), "int8")], dtype=None).dtype == np.float32


def test_various_keywords() -> None:
    assert bool(fnp.array_equal(np.full(2, np.nan), np.full(2, np.nan), equal_nan=True))
    assert not bool(fnp.array_equal(np.full(2, np.nan), np.full(2, np.nan)))
    assert fnp.size(X, 1) == 2
    assert np.asarray(fnp.linspace(start=0, stop=1, num=3)).tolist() == [0, 0.5, 1]
    assert np.asarray(fnp.sort(X, kind="stable")).tolist() == np.asarray(X).tolist()
    assert fnp.linalg.svd(X, hermitian=True)[1].shape == (2,)
    assert fnp.einsum("ij->i", X, optimize="optimal").shape == (2,)


def real_wave(x: fx.Array) -> fx.Array:
    """No other test has this program; equal programs share the name of the first one."""
    return fnp.sin(3.625 * x)


REFUSED: list[tuple[Callable[[], object], type[Exception], str, str]] = [
    (lambda: fx.grad(lambda z: z, holomorphic=True)(1.0), NotDifferentiableError,
     "grad: argument z of <lambda> has type f32[], not complex",
     "leave out holomorphic=True, or convert the argument to a complex dtype"),
    (lambda: fx.grad(lambda z: z.real, holomorphic=True)(Z), NotDifferentiableError,
     "grad: <lambda> returns f32[], not a complex scalar",
     "leave out holomorphic=True, or return one complex number"),
    (lambda: loose.grad(lambda z: None, holomorphic=True)(Z), ShapeError,
     "grad: <lambda> returns None, not a single scalar",
     "return the scalar alone, or (scalar, auxiliary results) with has_aux=True"),
    (lambda: loose.value_and_grad(lambda z: {"z": z}, holomorphic=True)(Z), ShapeError,
     "value_and_grad: <lambda> returns {'z': *}, not a single scalar",
     "return the scalar alone, or (scalar, auxiliary results) with has_aux=True"),
    (lambda: loose.grad(lambda z: [z, z], has_aux=True, holomorphic=True)(Z), ArgumentError,
     "grad: has_aux=True, but <lambda> returns [*, *]", "return a pair (scalar, auxiliary results)"),
    (lambda: fx.jacfwd(lambda z: z, holomorphic=True)(X), NotDifferentiableError,
     "jacfwd: argument z of <lambda> has type f32[2,2], not complex",
     "leave out holomorphic=True, or convert the argument to a complex dtype"),
    (lambda: fx.jacrev(lambda z: z.real, holomorphic=True)(Z), NotDifferentiableError,
     "jacrev: result of <lambda> has type f32[], not complex", "leave out holomorphic=True, or return complex numbers"),
    (lambda: transforms.jacrev(fx.trace(real_wave, X).jaxpr, (True,), 1, True), NotDifferentiableError,
     "jacrev: real_wave has an operand or result of type f32[2,2], not complex",
     "a holomorphic function maps complex numbers to complex numbers"),
    (lambda: fx.hessian(lambda z: z)(Z), NotDifferentiableError,
     "hessian: argument z of <lambda> has type c64[], not real floating",
     "give holomorphic=True for a holomorphic function, or use jacrev, vjp or jvp"),
    (lambda: fx.hessian(lambda x: x + 1j)(2.0), NotDifferentiableError,
     "hessian: result of <lambda> has type c64[], not real floating",
     "give holomorphic=True for a holomorphic function, or use jacfwd, jvp or vjp"),
    (lambda: fx.hessian(lambda z: abs(z))(Z), NotDifferentiableError,
     "hessian: argument z of <lambda> has type c64[], not real floating",
     "give holomorphic=True for a holomorphic function, or use jacrev, vjp or jvp"),
    (lambda: fx.value_and_grad(abs, reduce_axes=("i",)), ParameterError,
     "value_and_grad: reduce_axes is ('i',)", "sum over the named axis in the function: lax.psum"),
    (lambda: loose.custom_jvp(lambda x: x, nondiff_argnames=("y",)), ArgumentError,
     "custom_jvp of <lambda>: nondiff_argnames has 'y', its parameters are x", "name parameters of the function"),
    (lambda: loose.custom_jvp(max, nondiff_argnames="n"), ArgumentError,
     "custom_jvp of max: nondiff_argnames has 'n', its parameters are not known", "name parameters of the function"),
    (lambda: loose.custom_jvp(lambda x, n: x, nondiff_argnums=1, nondiff_argnames="n"), ArgumentError,
     "custom rules of <lambda>: nondiff_argnums is 1, not a sequence of numbers", "nondiff_argnums=(0,)"),
    (lambda: loose.custom_jvp(lambda x: x, nondiff_argnames=1), ArgumentError,
     "custom_jvp of <lambda>: nondiff_argnames is 1, not a name or a sequence of them",
     "name parameters of the function"),
    (lambda: loose.custom_vjp(lambda x: x).defvjp(abs, abs, optimize_remat="no"), ParameterError,
     "defvjp of <lambda>: optimize_remat is a str, not a bool: 'no'",
     "leave it out: what fwd computes for residuals alone is always dropped"),
    (lambda: loose_lax.cond(True, abs, abs, 1.0, operand=2.0), ArgumentError,
     "cond: operand is given by keyword beside 1 by position", "give all by position"),
    (lambda: loose_lax.switch(0, [abs], 1.0, operand=2.0), ArgumentError,
     "switch: operand is given by keyword beside 1 by position", "give all by position"),
    (lambda: loose_lax.scan(lambda c, x: (c, x), 0.0, length=2, _split_transpose=True), ParameterError,
     "scan: _split_transpose is not supported", "leave it out: reverse mode stores no slices that it can read again"),
    (lambda: loose_np.matmul(X, X, precision="low"), ParameterError, "matmul: precision 'low'",
     'use "default", "high" or "highest", or lax.Precision'),
    (lambda: fnp.dot(X, X, precision=("high", "low")), ParameterError, "dot: precision ('high', 'low')",
     'use "default", "high" or "highest", or lax.Precision'),
    (lambda: loose_np.einsum("ij->i", X, optimize=3), ArgumentError,
     "einsum: optimize is an int, not a bool or a str", "leave it out"),
    (lambda: fnp.take(X, 0, mode="raise"), ParameterError, "take: mode 'raise'",
     'use "fill", "clip", "wrap" or "promise_in_bounds"'),
    (lambda: fnp.take(X, 0, mode="clip", fill_value=1), ParameterError,
     "take: fill_value goes with mode=\"fill\", got mode 'clip'", 'mode="fill"'),
    (lambda: loose_np.stack([X], out=X), ParameterError, "stack: out is given, and arrays are immutable",
     "use the result"),
    (lambda: fnp.sort(X, kind="heapsort"), ParameterError, "sort: kind 'heapsort'",
     "leave it out: sorting is stable"),
    (lambda: loose_np.argsort(X, order="f"), ParameterError, "argsort: order 'f'; arrays have no fields",
     "sort the columns: lexsort"),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_refusals(k: int) -> None:
    check_refused(*REFUSED[k])


def test_a_primitive_takes_no_other_precision() -> None:
    with pytest.raises(ParameterError) as e:
        DotGeneral((1,), (0,), (), (), None, "low").abstract_eval(X.aval, X.aval)
    assert e.value.message == "dot_general: precision 'low'"
    assert e.value.remedy == 'use "high", "highest", or "" for the fastest'
