"""Gradients through what is not chosen: the gradient of `vmap(f)` is that of a loop over the examples, with nan and
infinities in all that a branch, a step or an index of an example does not take.

A body is a random expression in mapped and shared operands, integers and constants. Its value and its derivative may be
undefined in examples that do not run it. Each entry of the gradient that is finite in the loop must be the same under
vmap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.scipy.ndimage import map_coordinates

SIZE: Final = 4
Body = Any  # a nested tuple: an operation and its operands, a name or a number
Env = dict[str, Any]

UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "log": fnp.log,
    "sqrt": fnp.sqrt,
    "sin": fnp.sin,
    "exp": fnp.exp,
    "neg": lambda a: -a,
    "half": lambda a: a * 0.5,
    "reciprocal": lambda a: 1.0 / a,
    "safe_log": lambda a: fnp.where(a > 0, fnp.log(fnp.where(a > 0, a, 1.0)), 0.0),
    "sinc": lambda a: fnp.where(a == 0, 1.0, fnp.sin(a) / fnp.where(a == 0, 1.0, a)),
}
BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": fnp.maximum,
    "pow": lambda a, b: a**b,
}


def bodies(names: str) -> st.SearchStrategy[Body]:
    leaves = st.sampled_from([*names, *names, 2.0, 0.5, np.inf, np.nan])
    return st.recursive(
        leaves,
        lambda inner: (
            st.tuples(st.sampled_from(sorted(UNARY)), inner) | st.tuples(st.sampled_from(sorted(BINARY)), inner, inner)
        ),
        max_leaves=5,
    )


def value(body: Body, env: Env) -> Any:
    if isinstance(body, tuple):
        name, *operands = body
        return (UNARY | BINARY)[name](*[value(a, env) for a in operands])
    # a constant is an array that is closed over, so that it is an operand
    return env[body] if isinstance(body, str) else fnp.asarray(np.float64(body))


NUMBERS: Final = [1.0, 2.0, 0.5, -1.0, 0.0, np.nan, np.inf, 3.0, 1.5, 1.0]
COUNTS: Final = [0, 1, 2, 3]

Data = dict[str, np.ndarray[Any, Any]]
Case = tuple[str, tuple[Body, ...], Data]


@st.composite
def cases(draw: Any, names: str = "xywn") -> tuple[tuple[Body, ...], Data]:
    """Three bodies, and data: mapped x, y, shared w, v, an integer n and an index k for each example."""

    def numbers(n: int, of: list[Any]) -> Any:
        return st.lists(st.sampled_from(of), min_size=n, max_size=n)

    data = {
        "x": np.array(draw(numbers(SIZE, NUMBERS))),
        "y": np.array(draw(numbers(SIZE, NUMBERS))),
        "w": np.array(draw(st.sampled_from(NUMBERS))),
        "n": np.array(draw(numbers(SIZE, [0, 1, -1, 2])), np.int32),
        "k": np.array(draw(numbers(SIZE, COUNTS)), np.int32),
    }
    return tuple([draw(bodies(names)) for _ in range(3)]), data


def to_env(x: Any, y: Any, w: Any, n: Any) -> Env:
    return {"x": x, "y": y, "w": w, "n": n.astype("float64") if isinstance(n, fx.Array) else np.float64(n)}


def of_cond(parts: tuple[Body, ...], x: Any, y: Any, w: Any, n: Any, k: Any) -> Any:
    one, two = [lambda x, y, w, n, p=p: value(p, to_env(x, y, w, n)) for p in parts[:2]]
    return lax.cond(k > 1, one, two, x, y, w, n)


def of_switch(parts: tuple[Body, ...], x: Any, y: Any, w: Any, n: Any, k: Any) -> Any:
    return lax.switch(k, [lambda p=p: value(p, to_env(x, y, w, n)) for p in parts])


def of_nested_cond(parts: tuple[Body, ...], x: Any, y: Any, w: Any, n: Any, k: Any) -> Any:
    env = to_env(x, y, w, n)

    def inner() -> Any:
        return lax.cond(n > 0, lambda: value(parts[0], env), lambda: value(parts[1], env))

    return lax.cond(k > 1, inner, lambda: value(parts[2], env))


def of_while(parts: tuple[Body, ...], x: Any, y: Any, w: Any, n: Any, k: Any) -> Any:
    def step(c: Any) -> Any:
        i, x = c
        return i + 1, value(parts[0], to_env(x, y, w, n))

    return lax.while_loop(lambda c: c[0] < k, step, (np.int32(0), x), max_steps=2)[1]


def of_while_by_value(parts: tuple[Body, ...], x: Any, y: Any, w: Any, n: Any, k: Any) -> Any:
    """The data decide when the loop ends, so the body meets no other operands."""
    return lax.while_loop(lambda x: x < 2, lambda x: value(parts[0], to_env(x, y, w, n)), x, max_steps=3)


def of_scan(parts: tuple[Body, ...], x: Any, y: Any, w: Any, n: Any, k: Any) -> Any:
    """A recurrence over a padded sequence."""

    def step(h: Any, row: Any) -> Any:
        i, y = row
        new = lax.cond(i < k, lambda h, y: value(parts[0], to_env(h, y, w, n)), lambda h, y: h, h, y)
        return new, new

    ys = fnp.where(fnp.arange(3) < k, y, np.nan)
    return fnp.sum(lax.scan(step, x, (np.arange(3, dtype=np.int32), ys))[0])


def of_fori(parts: tuple[Body, ...], x: Any, y: Any, w: Any, n: Any, k: Any) -> Any:
    def step(i: Any, h: Any) -> Any:
        return lax.cond(i < k, lambda h: value(parts[0], to_env(h, y, w, n)), lambda h: h, h)

    return lax.fori_loop(0, 2, step, x)


def of_linear_while(parts: tuple[Body, ...], x: Any, y: Any, w: Any, n: Any, k: Any) -> Any:
    """The derivative of a bounded loop in another mapped program: a scan up to a count."""
    return fx.jvp(lambda x, w: of_while(parts, x, y, w, n, k), (x, w), (y, np.float64(1.0)))[1]


KINDS: Final = {
    f.__name__: f
    for f in (of_cond, of_switch, of_nested_cond, of_while, of_while_by_value, of_scan, of_fori, of_linear_while)
}
Function = Callable[..., Any]


def plain(f: Function) -> Function:
    return f


def slope(f: Function) -> Function:
    """The derivative in x in reverse mode, so that the mapped program contains a reverse pass."""
    return fx.grad(f)


def direction(f: Function) -> Function:
    """The derivative in x, y and w in forward mode."""

    def pushed(x: Any, y: Any, w: Any, n: Any, k: Any) -> Any:
        ts = np.float64(1.0), np.float64(0.5), np.float64(2.0)
        return fx.jvp(lambda x, y, w: f(x, y, w, n, k), (x, y, w), ts)[1]

    return pushed


ORDERS: Final[dict[str, Callable[[Function], Function]]] = {
    "plain": plain, "slope": slope, "direction": direction, "remat": fx.remat, "jit": fx.jit,
}  # fmt: skip


def gradients(f: Function, order: str, data: Data) -> tuple[list[Any], list[Any]]:
    """The gradient in x, y, w of the sum of the mapped function, and that of the loop."""
    g = ORDERS[order](f)
    args = tuple(data[name] for name in "xywnk")
    types = [fx.Spec(a.shape, a.dtype) for a in args]

    def total(*args: Any) -> Any:
        return fnp.sum(fx.vmap(g, in_axes=(0, 0, None, 0, 0))(*args))

    mapped = fx.interpret(fx.trace(fx.grad(total, argnums=(0, 1, 2)), *types), *args)
    one = fx.trace(fx.grad(g, argnums=(0, 1, 2)), *[fx.Spec((), a.dtype) for a in args])
    rows = [fx.interpret(one, *[a if a.ndim == 0 else a[i] for a in args]) for i in range(SIZE)]
    x, y, w = [np.array([np.asarray(row[j]) for row in rows]) for j in range(3)]
    return [np.asarray(a) for a in mapped], [x, y, w.sum()]


def check(kind: str, order: str, parts: tuple[Body, ...], data: Data) -> None:
    with np.errstate(all="ignore"):
        have, want = gradients(lambda *args: KINDS[kind](parts, *args), order, data)
    for name, a, b in zip("xyw", have, want, strict=True):
        finite = np.isfinite(b)
        np.testing.assert_allclose(
            a[finite], b[finite], rtol=1e-9, atol=1e-9, err_msg=f"{kind} {order} {name} {parts} {data}"
        )


@pytest.mark.law
@pytest.mark.sweep(2)
@pytest.mark.parametrize("order", sorted(ORDERS))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_gradient_of_vmap_is_that_of_the_loop(kind: str, order: str) -> None:
    @given(cases())
    def law(case: Any) -> None:
        check(kind, order, *case)

    law()


# -------------------------------------------------------------------------------------------------- maps of other forms


def grads(f: Function, *args: Any, argnums: tuple[int, ...]) -> list[Any]:
    return [np.asarray(g) for g in fx.grad(f, argnums=argnums)(*args)]


def chooses(x: Any, y: Any, w: Any) -> Any:
    """The second branch is undefined for x > w, and for a shared w that is nan."""
    return lax.cond(x < 3, lambda: y * x, lambda: fnp.log(x - w) * y * w)


@pytest.mark.parametrize("w", [2.0, np.nan, np.inf])
@pytest.mark.parametrize("x", [[[1.0, 4.0], [0.5, 5.0]], [[1.0, 2.0], [4.0, 5.0]], [[1.0, 2.0], [0.0, -1.0]]])
def test_vmap_of_vmap(x: list[list[float]], w: float) -> None:
    """Some examples choose the second branch in both rows, in one, or in none."""
    xs, ys = np.array(x), np.array([[1.0, 2.0], [3.0, 4.0]])
    inner = fx.vmap(chooses, in_axes=(0, 0, None))
    have = grads(lambda *a: fnp.sum(fx.vmap(inner, in_axes=(0, 0, None))(*a)), xs, ys, np.float64(w), argnums=(0, 1, 2))
    one = fx.jit(fx.grad(chooses, argnums=(0, 1, 2)))
    rows = [[one(a, b, np.float64(w)) for a, b in zip(r, s, strict=True)] for r, s in zip(xs, ys, strict=True)]
    want = [np.array([[np.asarray(g[j]) for g in row] for row in rows]) for j in range(3)]
    for a, b in zip(have, (want[0], want[1], want[2].sum()), strict=True):
        np.testing.assert_allclose(a[np.isfinite(b)], b[np.isfinite(b)])


@pytest.mark.parametrize("batch_size", [None, 1, 2, 3, 7])
def test_map_in_batches(batch_size: int | None) -> None:
    """The square root of 0 has no derivative. No slice takes that branch."""
    xs = np.array([1.0, 2.0, 3.0, 4.0, 5.0])

    def total(c: Any) -> Any:
        f = lambda x: lax.cond(x > 0, lambda: fnp.log(x) * c, lambda: x * fnp.sqrt(c))  # noqa: E731
        return fnp.sum(lax.map(f, xs, batch_size=batch_size))

    np.testing.assert_allclose(fx.grad(total)(np.float64(0.0)).item(), np.log(xs).sum())


def test_shared_matrices_vectors_and_numbers() -> None:
    """A branch of a matrix runs only if an example chooses it. Nothing is copied for each example."""
    xs = np.array([[1.0, 2.0], [3.0, -1.0]])
    for shape in ((), (2,), (2, 2)):
        w = np.full(shape, np.nan)

        def total(w: Any, shape: Any = shape) -> Any:
            def f(x: Any) -> Any:
                return lax.cond(fnp.sum(x) > 0, fnp.sum, lambda x: fnp.sum((x @ w if shape else x * w) ** 2), x)

            return fnp.sum(fx.vmap(f)(xs))

        np.testing.assert_array_equal(fx.grad(total)(w), np.zeros(shape))
        conds = [eqn.prim.name for eqn in fx.trace(total, w).jaxpr.eqns].count("cond")
        assert conds <= (1 if len(shape) == 2 else 0)


def test_a_branch_that_does_not_end_for_others() -> None:
    """For a number below 0, or 0, doubling never ends."""

    def f(x: Any) -> Any:
        double = lambda x: lax.while_loop(lambda c: c < 100, lambda c: c * 2, x)  # noqa: E731
        return lax.cond(x > 0, double, lambda x: x, x)

    np.testing.assert_array_equal(fx.vmap(f)(np.array([1.0, 0.0, 3.0])), [128, 0, 192])
    np.testing.assert_array_equal(fx.vmap(f)(np.array([-1.0, 0.0])), [-1, 0])
    np.testing.assert_array_equal(fx.vmap(f)(np.zeros(0)), [])


def test_any_number_of_examples_also_none_and_a_symbolic_one() -> None:
    def total(c: Any, xs: Any) -> Any:
        f = lambda x: lax.cond(x > 0, lambda: fnp.log(x) * c, lambda: x * fnp.sqrt(c))  # noqa: E731
        g = lambda x: lax.while_loop(lambda a: a < 3, lambda a: a * c + 1, x, max_steps=4)  # noqa: E731
        return fnp.sum(fx.vmap(f)(xs) + fx.vmap(g)(xs))

    slope, c, xs = fx.grad(total), np.float64(0.0), np.array([1.0, 2.0, 3.0])
    symbolic = fx.trace(slope, fx.Spec((), "float64"), fx.Spec("n", "float64"))
    for n, want in ((3, np.log(6.0) + 2), (2, np.log(2.0) + 2), (0, 0.0)):
        np.testing.assert_allclose(slope(c, xs[:n]), want)
        assert fx.specialize(symbolic, n=n).jaxpr is fx.trace(slope, c, xs[:n]).jaxpr
    masked = fx.mask(total, in_shapes=(None, "n"), out_shapes=None)
    padded = np.array([1.0, 2.0, np.nan, np.nan])
    np.testing.assert_allclose(fx.grad(lambda c: masked(c, padded, sizes={"n": 2}))(c), np.log(2.0) + 2)


def test_nothing_is_selected_in_branches_whose_slopes_are_numbers() -> None:
    """The equations of the mapped gradient: a branch without a slope that could be nan costs nothing."""

    def count(f: Function, x: Any) -> tuple[int, int]:
        total = lambda x: fnp.sum(fx.vmap(f)(x))  # noqa: E731
        return len(fx.inline(fx.trace(total, x)).jaxpr.eqns), len(fx.inline(fx.trace(fx.grad(total), x)).jaxpr.eqns)

    x = np.ones(4)
    linear = lambda x: lax.cond(x > 0, lambda x: x * 0.5 + 3, lambda x: -x, x)  # noqa: E731
    assert count(linear, x) == (7, 7)
    sine = lambda x: lax.cond(x > 0, fnp.sin, lambda x: -x, x)  # noqa: E731
    assert count(sine, x) == (10, 13)  # one mask, and one selection with its transpose


# --------------------------------------------------------------------------------------------- values that are not read

TABLE: Final = np.array([[1.0, 2.0, np.nan, np.inf], [2.0, 1.0, np.nan, np.nan], [4.0, 3.0, 1.0, np.nan]])
READERS: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "index": lambda t, k, s: t[k] * s,
    "slice": lambda t, k, s: fnp.sum(t[:2] ** 2) * s,
    "dynamic_slice": lambda t, k, s: lax.dynamic_slice(t, (k,), (1,))[0] * s,
    "take": lambda t, k, s: fnp.take(t, k) * s,
    "take_along_axis": lambda t, k, s: fnp.take_along_axis(t, fnp.reshape(k, (1,)), 0)[0] ** 2 * s,
    "where": lambda t, k, s: fnp.sum(fnp.where(fnp.arange(4) <= k, t, 0.0)) * s,
    "select_n": lambda t, k, s: fnp.sum(lax.select_n(fnp.arange(4) <= k, fnp.zeros(4, "float64"), t)) * s,
    "sum where": lambda t, k, s: fnp.sum(t, where=fnp.arange(4) <= k) * s,
    "max where": lambda t, k, s: fnp.max(t, where=fnp.arange(4) <= k, initial=0.0) * s,
    "interp": lambda t, k, s: fnp.interp(0.25 * s, fnp.arange(4.0), t) ** 2,
    "interp left": lambda t, k, s: fnp.interp(-s, fnp.arange(4.0), t[::-1], left=1.0) * s,
    "interp right": lambda t, k, s: fnp.interp(s + 9, fnp.arange(4.0), t, right=1.0) * s,
    "interp beyond": lambda t, k, s: fnp.interp(-s, fnp.arange(4.0), fnp.where(fnp.arange(4) == 1, np.nan, t)) * s,
    "map_coordinates": lambda t, k, s: map_coordinates(t, [fnp.reshape(0.25 * s, (1,))], 1)[0] * s,
    "map_coordinates nearest": lambda t, k, s: map_coordinates(t, [fnp.reshape(-s, (1,))], 1, "nearest")[0] * s,
    "top_k": lambda t, k, s: fnp.sum(lax.top_k(fnp.where(fnp.arange(4) < 2, t, -9.0), 2)[0]) * s,
    "sort": lambda t, k, s: fnp.sum(fnp.sort(t)[:1]) * s,
    "segment_sum": lambda t, k, s: fx.ops.segment_sum(t, fnp.arange(4) // 2, 1)[0] * s,
    "segment_max": lambda t, k, s: fx.ops.segment_max(t, fnp.arange(4) // 2, 1)[0] * s,
    "scatter": lambda t, k, s: fnp.sum(fnp.zeros(2).at[fnp.arange(4)].add(t, mode="drop")) * s,
    "piecewise": lambda t, k, s: fnp.piecewise(s - 1, [s > 1, s <= 1], [fnp.log, lambda x: x * t[0]]),
}


@pytest.mark.parametrize("name", sorted(READERS))
def test_values_that_are_not_read(name: str) -> None:
    """Data with nan and infinities beyond the part that is read: the gradient under vmap is that of the loop, and it is
    finite."""
    f, k, s = READERS[name], np.array([0, 1, 1], np.int32), np.array([1.0, 2.0, 3.0])

    def mapped(t: Any, s: Any) -> Any:
        return fnp.sum(fx.vmap(f)(t, k, s))

    total = fx.trace(fx.grad(mapped, argnums=(0, 1)), TABLE, s)
    one = fx.trace(fx.grad(f, argnums=(0, 2)), fx.Spec((4,), "float64"), fx.Spec((), "int32"), fx.Spec((), "float64"))
    with np.errstate(all="ignore"):
        have = fx.interpret(total, TABLE, s)
        rows = [fx.interpret(one, TABLE[i], k[i], s[i]) for i in range(3)]
    for j in range(2):
        want = np.stack([np.asarray(row[j]) for row in rows])
        assert np.isfinite(want).all()
        np.testing.assert_allclose(have[j], want)


CUMULATIVE: Final[dict[str, Callable[[Any], Any]]] = {
    "cumsum": fnp.cumsum,
    "cumprod": fnp.cumprod,
    "cumlogsumexp": lax.cumlogsumexp,
    "linear_recurrence": lambda x: lax.linear_recurrence(x, x),
}


@pytest.mark.parametrize("n", [6, 3000])
@pytest.mark.parametrize("name", sorted(CUMULATIVE))
def test_elements_behind_the_last_result_that_is_read(name: str, n: int) -> None:
    """Results that are not read, or have weight 0, put no nan into the gradient: it is that of the elements before
    them, and 0 behind. So is the derivative of that gradient, of a short axis in both modes. A long axis is computed in
    blocks."""
    f, read = CUMULATIVE[name], n // 2
    weights = np.where(np.arange(n) < read, np.linspace(1.0, 2.0, n), 0.0)
    over_all = np.linspace(2.0, 1.0, n)

    def derivatives(total: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def curvature(slope: Callable[[Any], Any], x: Any) -> list[Any]:
            w = over_all[: x.shape[0]]
            backward = fx.grad(lambda x: fnp.sum(slope(x) * w))(x)
            return [backward, fx.jvp(slope, (x,), (w,))[1] if n < 10 else backward]

        slope = fx.grad(lambda x: fnp.sum(total(x)))
        return lambda x: fnp.stack([slope(x), *curvature(slope, x)])

    def of_all(x: Any) -> Any:
        sliced = derivatives(lambda x: f(x)[:read] * weights[:read])
        return sliced(x), derivatives(lambda x: f(x) * weights)(x), fx.vmap(sliced)(x[None])[0]

    x = np.linspace(0.99, 1.01, n)
    want = np.zeros((3, n))
    want[:, :read] = fx.jit(derivatives(lambda x: f(x) * weights[:read]))(x[:read])
    assert np.isfinite(want).all()
    run = fx.jit(of_all)
    for bad in (np.nan, np.inf, -np.inf):
        x[read + 1] = bad
        for have in run(x):
            np.testing.assert_allclose(have, want, rtol=1e-11, atol=1e-11, err_msg=str(bad))


BACKWARD: Final[dict[str, Callable[[Any], Any]]] = {
    "cumprod": lambda x: lax.cumprod(x, 0, reverse=True),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, 0, reverse=True),
    "linear_recurrence": lambda x: lax.linear_recurrence(x, x, reverse=True),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("name", sorted(BACKWARD))
def test_elements_before_those_that_are_read_from_the_end(name: str, dtype: str) -> None:
    """Each column is read from another row on: of a fixed and of a symbolic number of rows, of several dtypes."""
    if dtype == "complex64" and name == "cumlogsumexp":
        pytest.skip("cumlogsumexp is real")
    f, behind = BACKWARD[name], np.arange(5)[:, None] >= np.array([1, 2, 4])
    x = np.where(behind, 1.5, np.nan).astype(dtype)
    slope = fx.grad(lambda x: fnp.sum(fnp.where(behind, f(x), 0).real))
    want = np.where(behind, slope(fnp.where(behind, x, 1)), 0)
    np.testing.assert_array_equal(slope(x), want)
    total = fx.grad(lambda x, behind: fnp.sum(fnp.where(behind, f(x), 0).real))
    symbolic = fx.trace(total, fx.Spec("n, 3", dtype), fx.Spec("n, 3", "bool"))
    np.testing.assert_array_equal(fx.specialize(symbolic, n=5)(x, behind), want)


def test_a_product_with_an_infinite_factor_of_no_tangent() -> None:
    """The tangent is that of the moving factor alone, whatever the others are."""
    for n in (3, 6):
        x, t = np.full(n, 2.0), np.zeros(n)
        x[n - 2], t[n - 2] = np.inf, 1.0
        assert fx.jvp(fnp.prod, (x,), (t,))[1] == 2.0 ** (n - 1)
        assert fx.jvp(fnp.prod, (x,), (np.zeros(n),))[1] == 0.0
        of_any = fx.trace(
            lambda x, t: fx.jvp(fnp.prod, (x,), (t,))[1], fx.Spec("n", "float64"), fx.Spec("n", "float64")
        )
        assert fx.specialize(of_any, n=n)(x, t) == 2.0 ** (n - 1)


def test_the_first_infinity_has_the_slope_of_a_cumulative_logsumexp() -> None:
    x = fx.asarray(np.array([1.0, np.inf, 2.0, np.inf, -np.inf]))
    np.testing.assert_array_equal(fx.jacfwd(lax.cumlogsumexp)(x)[1:], np.tile([0.0, 1, 0, 0, 0], (4, 1)))
    np.testing.assert_array_equal(fx.jacrev(lax.cumlogsumexp)(x)[1:], np.tile([0.0, 1, 0, 0, 0], (4, 1)))
