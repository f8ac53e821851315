"""`scan`, `map`, `fori_loop`, `associative_scan`: values, types, transformations, error messages."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ParameterError, ShapeError, TreeError
from fxad.ir import Jaxpr
from fxad.primitives.control.scan import Scan

pytestmark = pytest.mark.usefixtures("nothing_of_other_files")

F32 = npt.NDArray[np.float32]


def floats(*shape: int) -> F32:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def scans(jaxpr: Jaxpr) -> list[Scan]:
    return [e.prim for e in jaxpr.eqns if isinstance(e.prim, Scan)]


def close(have: Any, want: Any, tolerance: float = 1e-5) -> None:
    leaves = fx.tree.leaves(want)
    assert fx.tree.structure(have) == fx.tree.structure(want)
    for a, b in zip(fx.tree.leaves(have), leaves, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def cell(carry: Any, x: Any) -> tuple[Any, Any]:
    h = fnp.tanh(carry["h"] * 0.5 + x["a"])
    return {"h": h, "n": carry["n"] + 1}, (h * x["b"], None, h > 0)


def unrolled(init: Any, xs: Any, reverse: bool = False) -> Any:
    n = xs["a"].shape[0]
    rows: list[Any] = [None] * n
    for i in reversed(range(n)) if reverse else range(n):
        init, rows[i] = cell(init, {k: v[i] for k, v in xs.items()})
    return init, (fnp.stack([r[0] for r in rows]), None, fnp.stack([r[2] for r in rows]))


def start() -> Any:
    return {"h": floats(3), "n": np.int32(0)}


def rows(n: int = 4) -> Any:
    return {"a": floats(n, 3), "b": floats(n, 1)[:, 0]}


# --------------------------------------------------------------------------------------------------------------- scan


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [1, 2, 0, True])
def test_scan_is_the_loop(reverse: bool, unroll: int | bool) -> None:
    close(lax.scan(cell, start(), rows(), reverse=reverse, unroll=unroll), unrolled(start(), rows(), reverse))
    run = fx.jit(lambda init, xs: lax.scan(cell, init, xs, reverse=reverse, unroll=unroll))
    close(run(start(), rows()), unrolled(start(), rows(), reverse))


def test_scan_without_slices() -> None:
    def double(carry: Any, x: None) -> tuple[Any, Any]:
        assert x is None
        return carry * 2, carry

    last, ys = lax.scan(double, fnp.ones(2), length=3)
    close((last, ys), (np.full(2, 8.0), np.asarray([[1.0, 1], [2, 2], [4, 4]])))
    last, ys = lax.scan(double, fnp.ones(2), length=0)
    assert ys.shape == (0, 2)
    close(last, np.ones(2))


def test_scan_of_no_and_of_one_slice() -> None:
    last, (ys, none, flags) = lax.scan(cell, start(), rows(0))
    assert (ys.shape, none, flags.shape, flags.dtype) == ((0, 3), None, (0, 3), np.bool_)
    close(last, start())
    close(lax.scan(cell, start(), rows(1)), unrolled(start(), rows(1)))


def test_f_is_traced_once_whatever_the_length() -> None:
    calls = 0

    def f(carry: Any, x: Any) -> tuple[Any, None]:
        nonlocal calls
        calls += 1
        return carry + x, None

    lax.scan(f, fnp.zeros(()), fnp.ones(100))
    assert calls == 1


def test_closed_over_arrays_and_tracers_are_constants() -> None:
    w, xs = floats(3), floats(5, 3)

    def loss(w: Any, xs: Any) -> Any:
        h, ys = lax.scan(lambda h, x: (fnp.sin(h * w + x), h), fnp.zeros_like(w), xs)
        return fnp.sum(h) + fnp.sum(ys * ys)

    program = fx.trace(loss, w, xs)
    (scan,) = scans(program.jaxpr)
    assert (scan.n_consts, scan.n_carry) == (1, 1)
    found = fx.grad(program)(w, xs)
    for k in range(3):
        e = np.zeros(3)
        e[k] = 1e-4
        wide = xs.astype(np.float64)
        slope = (loss(w.astype(np.float64) + e, wide) - loss(w.astype(np.float64) - e, wide)) / 2e-4
        np.testing.assert_allclose(float(found[k]), float(slope), rtol=1e-3)


def test_numbers_in_the_carry_take_the_dtype_of_what_is_returned() -> None:
    xs = np.arange(3, dtype=np.float64)
    last, _ = lax.scan(lambda c, x: (c + x, None), 0.0, xs)
    assert last.dtype == np.float64
    count: Any = lax.scan(lambda c, x: (c + 1, None), 0, xs)[0]
    assert count.dtype == np.int32
    total, _ = lax.scan(lambda c, x: (c + x, None), 0, xs)  # an int may start a float carry
    assert total.dtype == np.float64


def test_one_program_for_equal_functions() -> None:
    def make() -> Callable[..., Any]:
        return lambda xs: lax.scan(lambda c, x: (c * 2 + x, c), fnp.zeros(()), xs)

    xs = floats(7)
    assert fx.trace(make(), xs).jaxpr is fx.trace(make(), xs).jaxpr


def test_transformations_of_a_scan_compose() -> None:
    """grad of grad, jvp of grad, vmap of grad, and a cond in the body agree with the same loop written in Python."""

    def looped(h: Any, xs: Any) -> Any:
        def f(h: Any, x: Any) -> tuple[Any, Any]:
            new = lax.cond(x > 0, lambda h: fnp.sin(h) * x, lambda h: h * h, h)
            return new, new * h

        last, ys = lax.scan(f, h, xs)
        return last * 2 + fnp.sum(ys)

    def written(h: Any, xs: Any) -> Any:
        total: Any = 0.0
        for i in range(3):
            new = fnp.where(xs[i] > 0, fnp.sin(h) * xs[i], h * h)
            total, h = total + new * h, new
        return h * 2 + total

    h, xs = np.float32(0.7), np.asarray([0.5, -0.3, 1.2], np.float32)
    both: list[Callable[[Any], Any]] = [
        lambda f: f(h, xs),
        lambda f: fx.grad(f, argnums=(0, 1))(h, xs),
        lambda f: fx.grad(fx.grad(f))(h, xs),
        lambda f: fx.hessian(f)(h, xs),
        lambda f: fx.jvp(fx.grad(f), (h, xs), (np.float32(1), xs)),
        lambda f: fx.vmap(fx.grad(f), in_axes=(0, None))(np.stack([h, h + 1]), xs),
        lambda f: fx.vmap(fx.grad(f, argnums=1), in_axes=(None, 1))(h, np.stack([xs, -xs], 1)),
        lambda f: fx.grad(lambda a, b: fnp.sum(fx.vmap(f, in_axes=(0, None))(a, b)))(np.stack([h, h + 1]), xs),
        lambda f: fx.grad(fx.remat(f))(h, xs),
        lambda f: fx.jit(fx.vmap(f, in_axes=(None, 0)))(h, np.stack([xs, -xs])),
    ]
    for apply in both:
        close(apply(looped), apply(written), 1e-4)


def test_unrolling_and_remat_keep_gradients() -> None:
    def loss(h: Any, xs: Any, step: Any, unroll: int | bool) -> Any:
        return fnp.sum(lax.scan(lambda c, x: (step(c, x), None), h, xs, unroll=unroll)[0])

    def step(c: Any, x: Any) -> Any:
        return fnp.tanh(c * x) + c

    h, xs = floats(3), floats(7, 3)
    want = fx.grad(lambda h: loss(h, xs, step, 1))(h)
    for unroll in (2, 7, True):
        close(fx.grad(lambda h, u=unroll: loss(h, xs, step, u))(h), want)
    close(fx.grad(lambda h: loss(h, xs, fx.remat(step), 3))(h), want)


def test_reverse_mode_stores_no_second_copy_of_a_value() -> None:
    """A recurrent network stores the states, which are results, and the state before each step, and nothing else."""

    def states(w: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: (h := fnp.exp(h @ w + x), h), fnp.zeros((2, 3)), xs)

    forward = fx.value_and_grad(fx.trace(lambda w, xs: fnp.sum(states(w, xs)[1] ** 2), floats(3, 3), floats(5, 2, 3)))
    first, second = scans(forward.jaxpr)
    assert len(first.body.outs) - first.n_carry == 2
    assert second.reverse
    assert not first.reverse


def test_remat_in_a_scan_saves_memory_in_compiled_code() -> None:
    def loss(wrap: Any, w: Any, xs: Any) -> Any:
        def block(h: Any, x: Any) -> Any:
            for _ in range(6):
                h = fnp.sin(h @ w) + x
            return h

        step = wrap(block)
        return fnp.sum(lax.scan(lambda h, x: (step(h, x), None), fnp.zeros((16, 16)), xs)[0])

    def temp(wrap: Any) -> int:
        program = fx.trace(lambda w, xs: loss(wrap, w, xs), floats(16, 16), floats(40, 16, 16))
        return fx.lower(fx.grad(program)).compile().memory().temp_bytes

    states = 40 * 16 * 16 * 4
    assert temp(fx.remat) < 2 * states
    assert temp(lambda f: f) > 6 * states


untyped: Any = lax  # calls that mypy rejects


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: untyped.scan(lambda c, x: (c, x), 0.0, {"a": floats(3), "b": [floats(4)]}), ShapeError,
         "scan: leaves of xs differ in length: xs['a'] is f32[3], xs['b'][0] is f32[4]"),
        (lambda: untyped.scan(lambda c, x: (c, x), 0.0, {"a": floats(3)}, length=4), ShapeError,
         "scan: length is 4, xs['a'] is f32[3]"),
        (lambda: untyped.scan(lambda c, x: (c, x), 0.0, [floats(3), 1.0]), ShapeError,
         "scan: xs[1] is f32[], without an axis to run over"),
        (lambda: untyped.scan(lambda c, x: (c, x), 0.0), ArgumentError,
         "scan: xs has no leaves to tell the number of steps"),
        (lambda: untyped.scan(lambda c, x: (c, x), 0.0, length=-1), ParameterError, "scan: length is -1, less than 0"),
        (lambda: untyped.scan(lambda c, x: (c, x), 0.0, length=2.0), ArgumentError,
         "scan: length is a float, not an int: 2.0"),
        (lambda: untyped.scan(lambda c, x: (c, x), 0.0, length=2, unroll=-1), ParameterError,
         "scan: unroll is -1, less than 0"),
        (lambda: untyped.scan(lambda c, x: c, 0.0, length=2), TreeError,
         "scan: f <lambda> returns *, not a pair (carry, result)"),
        (lambda: untyped.scan(lambda c, x: ((c, c), x), 0.0, length=2), TreeError,
         "scan: f <lambda> returns a carry of another structure than init: (*, *), init is *"),
        (lambda: untyped.scan(lambda c, x: ([c[0], c[1][:2]], x), [floats(1), floats(3)], length=2), ShapeError,
         "scan: the carry changes its type: init[1] is f32[3], f <lambda> returns f32[2] for it"),
        (lambda: untyped.scan(lambda c, x: ({"n": c["n"].astype("float32")}, x), {"n": np.int32(1)}, length=2),
         DTypeError, "scan: the carry changes its type: init['n'] is i32[], f <lambda> returns f32[] for it"),
        (lambda: untyped.scan(3, 0.0, length=2), ArgumentError, "scan: f is an int, not a function: 3"),
        (lambda: untyped.scan(lambda c, x: (c, "a"), 0.0, length=2), ArgumentError,
         "scan: f <lambda>: result[1] is a str, not an array: 'a'"),
        (lambda: untyped.map(lambda x: x, ()), ArgumentError, "map: xs has no leaves to tell the number of steps"),
        (lambda: untyped.map(lambda x: x, np.float32(1)), ShapeError, "map: xs is f32[], without an axis to run over"),
        (lambda: untyped.map(lambda x: x, floats(3), batch_size=-1), ParameterError,
         "map: batch_size is -1, less than 0"),
        (lambda: untyped.fori_loop(0, 2.0, lambda i, v: v, 0.0), ArgumentError,
         "fori_loop: upper is a float, not an int: 2.0"),
        (lambda: untyped.fori_loop(0, fnp.ones(()), lambda i, v: v, 0.0), DTypeError,
         "fori_loop: upper is f32[], not an integer"),
        (lambda: untyped.fori_loop(fnp.zeros(2, "int32"), 3, lambda i, v: v, 0.0), ShapeError,
         "fori_loop: lower is i32[2], not a single number"),
        (lambda: untyped.fori_loop(fnp.asarray(0, "int32"), fnp.asarray(2, "int64"), lambda i, v: v, 0.0), DTypeError,
         "fori_loop: lower is i32[], upper is i64[]"),
        (lambda: untyped.fori_loop(0, fnp.asarray(2, "int32"), lambda i, v: v, 0.0, unroll=2), ParameterError,
         "fori_loop: unroll is 2, but the bounds are arrays"),
        (lambda: untyped.fori_loop(0, fnp.asarray(2, "int32"), lambda i, v: v, 0.0, unroll=True), ParameterError,
         "fori_loop: unroll is True, but the bounds are arrays"),
        (lambda: untyped.fori_loop(0, fnp.asarray(2, "int32"), lambda i, v: v, 0.0, unroll=1.0), ArgumentError,
         "fori_loop: unroll is a float, not an int: 1.0"),
        (lambda: untyped.fori_loop(0, 2, lambda i, v: {"v": v["v"][1:]}, {"v": floats(3)}), ShapeError,
         "fori_loop: the carry changes its type: init_val['v'] is f32[3], body_fun <lambda> returns f32[2] for it"),
        (lambda: untyped.associative_scan(3, floats(3)), ArgumentError,
         "associative_scan: fn is an int, not a function: 3"),
        (lambda: untyped.associative_scan(operator.add, np.float32(1)), ShapeError,
         "associative_scan: elems is f32[], without an axis to run over"),
        (lambda: untyped.associative_scan(operator.add, floats(3), axis=1), AxisError,
         "associative_scan: axis 1 is out of range for an array with 1 axes"),
        (lambda: untyped.associative_scan(lambda a, b: a, (floats(3), floats(4))), ShapeError,
         "associative_scan: leaves of elems differ in length along axis 0: elems[0] is f32[3], elems[1] is f32[4]"),
        (lambda: untyped.associative_scan(lambda a, b: (a, b), floats(3)), TreeError,
         "associative_scan: fn <lambda> returns (*, *), elems is *"),
        (lambda: untyped.associative_scan(lambda a, b: fnp.sum(a), floats(3)), ShapeError,
         "associative_scan: elems of <lambda> is f32[], its operands are f32[1]"),
        (lambda: untyped.associative_scan(lambda a, b: a > b, floats(3)), DTypeError,
         "associative_scan: elems of <lambda> is bool[1], its operands are f32[1]"),
    ],
)  # fmt: skip
def test_messages(call: Callable[[], Any], error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as e:
        call()
    assert e.value.message == message


# ---------------------------------------------------------------------------------------------------- map, fori_loop


@pytest.mark.parametrize("batch_size", [None, 0, 1, 2, 3, 7, 10])
def test_map(batch_size: int | None) -> None:
    w = floats(3)
    xs = {"a": floats(7, 3), "n": np.arange(7, dtype=np.int32)}
    found = lax.map(lambda x: (fnp.sum(x["a"] * w), x["n"] + 1), xs, batch_size=batch_size)
    close(found, (xs["a"] @ w, xs["n"] + 1))


def test_map_over_nothing_and_its_gradient() -> None:
    assert lax.map(fnp.sin, floats(0, 3)).shape == (0, 3)
    assert lax.map(fnp.sin, floats(0, 3), batch_size=2).shape == (0, 3)
    x = floats(5)
    for size in (None, 2):
        found = fx.grad(lambda x, size=size: fnp.sum(lax.map(fnp.sin, x, batch_size=size)))(x)
        close(found, np.cos(x))


@pytest.mark.parametrize("unroll", [None, 2, 0, True])
def test_fori_loop_between_known_bounds_is_a_scan(unroll: int | bool | None) -> None:
    def power(x: Any) -> Any:
        return lax.fori_loop(1, 4, lambda i, v: {"v": v["v"] * x + i}, {"v": 1.0}, unroll=unroll)["v"]

    close(power(np.float32(2)), np.float32(((1 * 2 + 1) * 2 + 2) * 2 + 3))
    close(fx.grad(power)(np.float32(2)), np.float32(3 * 4 + 2 * 2 + 2))
    (scan,) = scans(fx.trace(power, np.float32(2)).jaxpr)
    assert scan.length == 3


def test_the_counter_of_fori_loop_is_not_stored() -> None:
    def f(x: Any) -> Any:
        return lax.fori_loop(0, 9, lambda i, v: fnp.sin(v) * i.astype("float32"), x)

    backward = fx.value_and_grad(fx.trace(f, np.float32(1)))
    forward, _ = scans(backward.jaxpr)
    assert [str(a) for a in forward.body.out_avals[forward.n_carry :]] == ["f32[]"]  # cos(v)


def test_fori_loop_between_bounds_that_are_arrays() -> None:
    def total(n: Any, x: Any) -> Any:
        return lax.fori_loop(0, n, lambda i, v: v + x * i, 0.0)

    n, x = np.asarray(4, np.int64), np.float32(3)
    close(fx.jit(total)(n, x), np.float32(18))
    close(fx.jvp(lambda x: total(n, x), (x,), (x,))[1], np.float32(18))
    assert lax.fori_loop(fnp.asarray(2, "int64"), 5, lambda i, v: i, fnp.asarray(0, "int64")).dtype == np.int64
    assert int(lax.fori_loop(5, 2, lambda i, v: v + 1, 7)) == 7
    assert int(lax.fori_loop(fnp.asarray(5), 2, lambda i, v: v + 1, 7)) == 7


# ---------------------------------------------------------------------------------------------------- associative_scan


@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan_of_every_length(reverse: bool) -> None:
    @fx.jit
    def both(x: Any) -> Any:
        rows = lax.associative_scan(operator.add, x, reverse=reverse)
        return rows, lax.associative_scan(operator.add, x.T, reverse=reverse, axis=-1)

    for n in [*range(8), 17]:
        x = floats(n, 2).astype(np.float64)
        want = np.cumsum(x[::-1], 0)[::-1] if reverse else np.cumsum(x, 0)
        close(both(x), (want, want.T))


def test_associative_scan_of_trees_and_of_functions_that_do_not_commute() -> None:
    def compose(f: Any, g: Any) -> Any:  # composition of affine maps: x -> g(f(x))
        return {"a": g["a"] * f["a"], "b": g["a"] * f["b"] + g["b"]}

    maps = {"a": floats(11).astype(np.float64), "b": floats(11, 1)[:, 0].astype(np.float64)}
    found = lax.associative_scan(compose, maps)
    x, want = 0.3, []
    for a, b in zip(maps["a"], maps["b"], strict=True):
        x = a * x + b
        want.append(x)
    close(found["a"] * 0.3 + found["b"], np.asarray(want))
    square = floats(5, 2, 2)
    products = lax.associative_scan(lambda a, b: a @ b, square)
    close(products[4], np.linalg.multi_dot(list(square)), 1e-4)
    backward = lax.associative_scan(lambda a, b: a @ b, square, reverse=True)
    close(backward[0], np.linalg.multi_dot(list(square[::-1])), 1e-4)


def test_associative_scan_keeps_bits_bools_and_gradients() -> None:
    zeros = np.asarray([-0.0, -0.0, -0.0], np.float32)
    assert np.signbit(np.asarray(lax.associative_scan(fnp.minimum, zeros))).all()
    flags = np.asarray([True, True, False, True])
    close(lax.associative_scan(fnp.logical_and, flags), np.asarray([True, True, False, False]))
    x = floats(6)
    found = fx.grad(lambda x: fnp.sum(lax.associative_scan(operator.mul, x)[-1]))(x)
    close(found, np.prod(x) / x, 1e-4)


def test_depth_of_associative_scan_is_logarithmic() -> None:
    def adds(n: int) -> int:
        program = fx.trace(lambda x: lax.associative_scan(operator.add, x), floats(n))
        return sum([e.prim.name == "add" for e in program.jaxpr.eqns])

    assert [adds(n) for n in (2, 4, 8, 16, 1024)] == [1, 3, 5, 7, 19]
