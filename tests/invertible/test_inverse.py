"""`inverse` computes arguments from results, and the log-determinant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, random
from fxad.errors import ArgumentError, NotInvertibleError

X = np.array([0.5, -1.25, 2.0])
W = np.array([0.25, -0.5, 1.5])


def close(found: object, want: object, rtol: float = 1e-9) -> None:
    a, b = fx.tree.leaves(found), fx.tree.leaves(want)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=rtol)


def chain(x: Any, w: Any) -> Any:
    return -(fnp.tanh(x * fnp.exp(w)) + w)


def coupling(x: tuple[Any, Any], w: Any) -> tuple[Any, Any]:
    a, b = x
    b = b * fnp.exp(fnp.tanh(a * w)) + a
    a = a + fnp.sin(b)
    return a, b


def log_det(f: Any, *args: object) -> float:
    jac = fx.jacfwd(f)(*args)
    return float(np.linalg.slogdet(np.asarray(jac))[1])


def test_a_function_with_kept_arguments() -> None:
    close(fx.inverse(chain)(chain(X, W), W), X)


def test_the_operands_are_results_then_kept_arguments() -> None:
    back = fx.inverse(fx.trace(chain, X, W))
    close(back(chain(X, W), W), X)
    assert back.names == ("results", "w")
    assert back.name == "inverse_chain"


def test_arguments_by_name_and_several() -> None:
    def f(x: Any, s: Any, y: Any) -> tuple[Any, Any]:
        return x * s, y + x

    program = fx.trace(f, X, W, X)
    close(fx.inverse(program, ("x", 2))(f(X, W, X + 1), W), (X, X + 1))
    close(fx.inverse(program, "s")(f(X, W, X), X, X), W)


def test_arguments_given_by_keyword() -> None:
    def f(x: Any, *, s: Any) -> Any:
        return x * s

    program = fx.trace(f, X, s=W)
    close(fx.inverse(program)(X * W, s=W), X)
    close(fx.inverse(program, "s")(X * W, X), W)


def test_a_tree_of_arguments_and_closed_over_values() -> None:
    scale = fnp.asarray(W)

    def f(p: dict[str, Any]) -> dict[str, Any]:
        return {"a": p["b"] * scale, "b": p["a"] - p["b"]}

    p = {"a": X, "b": X + 1}
    close(fx.inverse(f)(f({k: fnp.asarray(v) for k, v in p.items()})), p)


@pytest.mark.parametrize("order", [0, 1])
def test_the_order_of_equations_does_not_matter(order: int) -> None:
    def f(x: tuple[Any, Any], w: Any) -> tuple[Any, Any]:
        a, b = x
        if order:  # the same equations in another order
            u = fnp.sin(a)
            c = b + u
            return a + fnp.cos(c) * w, c
        return a + fnp.cos(b + fnp.sin(a)) * w, b + fnp.sin(a)

    x = (fnp.asarray(X), fnp.asarray(X + 1))
    close(fx.inverse(f)(f(x, W), W), x)


def test_calls_branches_and_loops() -> None:
    block = fx.jit(coupling)

    def f(x: tuple[Any, Any], w: Any, rows: Any) -> tuple[Any, Any]:
        x = block(x, w)
        x = lax.cond(w[0] > 0, lambda x: (x[1], x[0]), lambda x: (x[0] * 2, x[1]), x)
        x, _ = lax.scan(lambda c, r: (coupling(c, r), None), x, rows)
        a = lax.fori_loop(0, 5, lambda i, c: c * 1.5 + i.astype("float64"), x[0])
        return fx.remat(coupling)((a, x[1]), w)

    x, rows = (X, X + 1), np.stack([W, W / 2, W * 2])
    for w in (W, -W):
        args = (fx.tree.map(fnp.asarray, x), fnp.asarray(w), fnp.asarray(rows))
        close(fx.inverse(f)(f(*args), w, rows), x)


def test_the_slices_of_a_loop_are_reconstructed() -> None:
    def f(c: Any, xs: Any) -> tuple[Any, Any]:
        return lax.scan(lambda c, x: (c + fnp.sin(x * 2), fnp.tanh(x)), c, xs)

    program = fx.trace(f, X, np.stack([X, W]) / 4)
    close(fx.inverse(program, (0, 1))(program(X, np.stack([X, W]) / 4)), (X, np.stack([X, W]) / 4))


def test_keys_in_a_loop_are_stored_not_inverted() -> None:
    def f(x: Any, key: Any) -> Any:
        def step(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
            x, key = carry
            key, sub = random.split(key)
            return (x + random.normal(sub, (3,)), key), None

        return lax.scan(step, (x, key), None, length=4)[0][0]

    x, key = X.astype("float32"), random.key(3)
    close(fx.inverse(f)(f(x, key), key), x, 1e-5)


@pytest.mark.parametrize("batched", [False, True])
def test_log_det_of_an_elementwise_chain(batched: bool) -> None:
    program = fx.trace(chain, X, W)
    back = fx.inverse(program, log_det=True)
    if not batched:
        x, found = back(chain(X, W), W)
        close(x, X)
        close(found, log_det(chain, X, W))
        return
    xs = np.stack([X, X / 2])
    found = fx.vmap(back, in_axes=(0, None), axis_size=2)(np.stack([chain(x, W) for x in xs]), W)
    close(found, (xs, np.stack([log_det(chain, x, W) for x in xs])))


def test_log_det_of_couplings_loops_and_branches() -> None:
    def f(x: Any, w: Any) -> Any:
        (a, b), _ = lax.scan(lambda c, r: (fx.jit(coupling)(c, r), None), x, fnp.stack([w, w / 2]))
        a, b = lax.cond(w[0] > 0, lambda a, b: (a * 3, b), lambda a, b: (a, b), a, b)
        return b, a

    def flat(x: Any, w: Any) -> Any:
        return fnp.concatenate(f((x[:3], x[3:]), w))

    x = (fnp.asarray(X), fnp.asarray(X + 1))
    for w in (W, -W):
        found, size = fx.inverse(f, log_det=True)(f(x, fnp.asarray(w)), w)
        close(found, x)
        close(size, log_det(flat, fnp.concatenate(x), w))


def test_values_that_results_do_not_determine_are_nan() -> None:
    assert np.isnan(np.asarray(fx.inverse(lambda x, w: x * w)(np.float64(0), np.float64(0))))
    assert np.isnan(np.asarray(fx.inverse(fnp.tanh)(np.float64(1))))
    assert np.isnan(np.asarray(fx.inverse(fnp.exp)(np.float32(0))))


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.usefixtures("nothing_remembered")
def test_the_equation_that_is_not_inverted_is_named() -> None:
    def loss(x: Any, w: Any) -> Any:
        return fnp.tanh(fnp.square(x)) + w

    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(loss)(X, W)
    assert e.value.message.startswith("inverse: argument x of loss is not determined by its results: square is not")
    assert e.value.where.endswith("in test_the_equation_that_is_not_inverted_is_named.<locals>.loss")
    assert e.value.equation == "%0:f64[3] = square %arg0:f64[3]"
    assert e.value.remedy == ("hold the argument (argnums), or give the function that is not inverted a custom_inverse")


def test_an_argument_that_no_result_depends_on() -> None:
    def first(x: Any) -> Any:
        return x[0] + 1.0

    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(fx.trace(first, (X, X)))
    assert (
        e.value.message == "inverse: argument x[1] of first is not determined by its results: no result depends on it"
    )


def test_a_jacobian_that_is_not_square() -> None:
    program = fx.trace(lambda x: (x, x * 2.0), X)
    close(fx.inverse(program)((X, X * 2)), X)
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(program, log_det=True)
    assert "log_det of <lambda>: its Jacobian is 6 x 3, which has no determinant" in str(e.value)


@pytest.mark.parametrize(
    ("argnums", "message"),
    [
        ("z", "inverse: argnums has 'z', which is no argument of chain"),
        (2, "inverse: argnums has 2, and chain was given 2 positional arguments"),
        ((0, "x"), "inverse: argnums (0, 'x') has an argument twice"),
        (1.5, "inverse: argnums is 1.5, not a number or a name, or a sequence of them"),
        (True, "inverse: argnums is True, not a number or a name, or a sequence of them"),
    ],
)
def test_arguments_that_do_not_exist(argnums: object, message: str) -> None:
    with pytest.raises(ArgumentError) as e:
        fx.inverse(fx.trace(chain, X, W), argnums)  # type: ignore[call-overload]
    assert str(e.value).startswith(message)


def test_a_function_whose_results_have_other_types() -> None:
    with pytest.raises(ArgumentError) as e:
        fx.inverse(lambda x: fnp.stack([x, x]))(np.ones((2, 3)))
    assert e.value.message == "inverse: <lambda> gives results of other types than it takes as arguments 0"
    assert e.value.remedy == "trace it on examples first: inverse(trace(<lambda>, *examples), ...)"
    with pytest.raises(ArgumentError, match="inverse: the types of arguments 'x' of chain cannot be told from its"):
        fx.inverse(chain, "x")(X, W)
