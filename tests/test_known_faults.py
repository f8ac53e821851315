"""The programs of `docs/known-faults.md`: compiled, they compute what the interpreter does, on every jaxlib."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn, ops
from fxad.lowering.overlapping_updates import overlapping_updates
from tests.processes import run_python

pytestmark = pytest.mark.smoke

F: Any = np.float32
D: Any = np.float64
update = lax.dynamic_update_slice


def same(f: Callable[..., Any], *args: Any, rtol: float = 1e-5) -> None:
    """Compiled as interpreted, with LLVM's cheapest level and as for users."""
    program = fx.trace(f, *args)
    want = np.asarray(fx.interpret(program, *args))
    for options in (fx.CompileOptions(optimization_level=0), fx.CompileOptions()):
        have = np.asarray(fx.lower(program).compile(options=options)(*args))
        np.testing.assert_allclose(have, want, rtol=rtol, atol=0)


def test_zeta_of_negative_numbers() -> None:
    q = np.array([-9.3, -20.5, -7.4, -3.2, -0.5, 2.5, 40.25])
    for dtype, rtol in ((F, 1e-5), (D, 1e-12)):
        for x in (2, 3):
            same(lambda v, x=x: lax.zeta(fnp.full(v.shape, x, v.dtype), v), q.astype(dtype), rtol=rtol)


# ------------------------------------------------------------------------------------------ windows of one element


@pytest.mark.parametrize("pads", [((0, 1), (1, 2)), ((0, 0), (5, 0)), ((-1, 2), (0, -1))])
def test_windows_of_one_element(pads: Any) -> None:
    """In a process of its own: XLA ended it."""
    out = run_python(f"""
import numpy as np, fxad as fx, fxad.numpy as fnp
from fxad import lax
def loss(x):
    return fnp.sum(lax.reduce_window(x, np.float32(0), lax.add, (1, 1), (1, 1), {pads!r}) ** 2)
print(np.asarray(fx.jit(fx.grad(loss))(np.ones((2, 2), np.float32))).tolist())
""")
    inside = np.ones((2, 2))
    inside[: max(-pads[0][0], 0)] = inside[:, : max(-pads[1][0], 0)] = 0
    inside[2 + min(pads[0][1], 0) :] = 0
    inside[:, 2 + min(pads[1][1], 0) :] = 0
    assert eval(out) == (2 * inside).tolist()


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("kind", ["add", "max", "mul", "other"])
def test_windows_with_dilation_and_strides(kind: str, window: int) -> None:
    x = np.arange(1, 13, dtype=F).reshape(3, 4)
    init: Any = {"add": F(0), "max": F(-np.inf), "mul": F(1), "other": F(0)}[kind]
    operation: Any = getattr(lax, kind) if kind != "other" else lambda a, b: a * b + a
    windows = (window, 1), (2, 3), ((1, 0), (2, 1)), (2, 3), (1, 2)
    same(lambda v: lax.reduce_window(v, init, operation, *windows), x)


# ------------------------------------------------------------------------------ updates that read what they write to

X: Final = np.arange(1, 7, dtype=F)
OVERLAPPING: Final[dict[str, Callable[[Any], Any]]] = {
    "at": lambda b: b.at[1:].set(b[:-1]).reshape(6, 1),
    "reshaped before": lambda b: update(b.reshape(6, 1), b[:-1].reshape(5, 1), (1, 0)),
    "rows": lambda b: update(b.reshape(3, 2), b[:4].reshape(2, 2), (1, 0)),
    "reversed": lambda b: update(b.reshape(6, 1), b[::-1].reshape(6, 1)[:5], (1, 0)),
    "computed places": lambda b: update(
        b, lax.dynamic_slice(b, (b[0].astype(np.int32) - 1,), (4,)), (b[0].astype(np.int32) + 1,)
    ).reshape(6, 1),
    "a sum": lambda b: update(b.reshape(6, 1), (b[:5] + b[1:]).reshape(5, 1), (1, 0)),
    "computed": lambda b: update(fnp.sqrt(b), fnp.sqrt(b)[:-1], (1,)).reshape(6, 1),
    "gathered": lambda b: update(b, b[np.arange(5)], (1,)).reshape(6, 1),
    "new axis": lambda b: update(b, b[:-1], (1,))[None],
    "inside a call": lambda b: fx.jit(lambda x, u: update(x, u, (1,)).reshape(6, 1))(b, b[:-1]),
    "across calls": lambda b: fx.jit(lambda x, u: update(x, u, (1, 0)))(b.reshape(6, 1), b[:-1].reshape(5, 1)),
    "converted twice": lambda b: update(b.astype(D).reshape(6, 1), b.astype(D)[:-1].reshape(5, 1), (1, 0)),
    "beside a check": lambda b: fx.error_if(b.at[1:].set(b[:-1]).reshape(6, 1), b[0] < 0, "negative"),
    "pooled": lambda b: nn.avg_pool(b.at[1:].set(b[:0:-1])[None, :, None], (2,)),
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_updates_of_an_array_by_its_own_elements(name: str) -> None:
    f = OVERLAPPING[name]
    same(f, X)
    same(fx.vmap(f), np.stack([X, X * X]))


def test_only_updates_that_read_their_array_near_a_reshape_are_computed_apart() -> None:
    def apart(f: Callable[..., Any], *args: Any) -> int:
        return len(overlapping_updates(fx.trace(f, *args).jaxpr))

    assert apart(OVERLAPPING["at"], X) == 1
    assert apart(lambda b: b.at[1:].set(b[:-1]), X) == 0  # without a reshape
    assert apart(lambda b, u: update(b, u, (1,)).reshape(6, 1), X, X[:3]) == 0  # of another array
    assert apart(lambda b: lax.fori_loop(0, 3, lambda i, c: c.at[i].set(c[i - 1] + 1), b), X) == 0
    assert apart(lambda b: update(fnp.zeros(6, F), b[:3], (1,)).reshape(6, 1), X) == 0


# ---------------------------------------------------------------------------------------------- start indices, products


@pytest.mark.parametrize(("i", "j"), [(-5, 2), (15, 20), (3, -1), (100, 100)])
def test_a_window_of_a_window(i: int, j: int) -> None:
    x = np.arange(20, dtype=F)
    for dtype in (np.int32, np.int8, np.int64):
        starts = np.asarray(i, dtype), np.asarray(j, dtype)
        same(lambda x, i, j: lax.dynamic_slice(lax.dynamic_slice(x, (i,), (10,)), (j,), (3,)), x, *starts)
        same(lambda x, i, j: lax.dynamic_slice(x, (i,), (10,))[2:5] + fnp.take(x, j, mode="clip"), x, *starts)


@pytest.mark.parametrize(("dtype", "n"), [(F, 40_000), (D, 20_000)])
def test_products_of_many_rows_with_a_small_matrix(dtype: Any, n: int) -> None:
    draw = np.random.default_rng(0)
    m, rows = draw.normal(size=(3, 3)).astype(dtype), draw.normal(size=(n, 3)).astype(dtype)
    same(lambda m, rows: fx.vmap(lambda r: fnp.sum((m @ r) ** 2))(rows), m, rows, rtol=1e-3)


# ---------------------------------------------------------------------------------------------------- constants, nans


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c: a / (b / c),
        lambda a, b, c: a / b / c,
        lambda a, b, c: a / b / (c / a),
        lambda a, b, c: a / (b[0] / c)[None],
        lambda a, b, c: a / QUOTIENT(b, c),
        lambda a, b, c: QUOTIENT(a, b / c),
        lambda a, b, c: fx.grad(lambda c: fnp.sum(a / (b / c)))(c),
    ],
)
def test_quotients_of_quotients(f: Callable[..., Any]) -> None:
    for dtype, scale in ((np.float16, 300), (F, 1e-22), (F, 1e25), (D, 1e-200)):
        same(f, *[np.array([k, 0.5], dtype) * dtype(scale) for k in (1.0, 0.75, 2.0)], rtol=1e-2)
    x, y = np.array([-4, -2, 1e30], F), np.array([0.5, 2, 2], F)
    same(lambda x, y: fnp.log(fnp.power(x, y)), x, y)


@pytest.mark.parametrize("dtype", [np.float16, F, D])
def test_bools_as_factors(dtype: Any) -> None:
    def products(mask: Any, x: Any) -> Any:
        ones = mask.astype(dtype)
        of_max = fx.grad(fnp.max)(x)
        parts = [mask * x, x * ~mask, ones / fnp.sum(mask & ~mask), (x * fnp.eye(4, dtype=dtype)).ravel()]
        return fnp.concatenate([*parts, (ones @ x)[None], x * np.array([True, False, True, False]), of_max])

    mask = np.array([False, False, True, True])
    for bad in (np.nan, np.inf):
        same(products, mask, np.array([1, bad, 2, bad], dtype))


G: Final[Any] = fx.jit(lambda x: x - 1)
QUOTIENT: Final[Any] = fx.jit(lambda x, y: x / y)


@pytest.mark.parametrize("dtype", [F, D])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x + 1) - 1,
        lambda x: (1 + x) - 1,
        lambda x: (x + 1e20) - 1e20,
        lambda x: 1 - (1 - x),
        lambda x: (x + 1)[None] - 1,
        lambda x: fnp.broadcast_to(x + 1, (2, 3)) - 1,
        lambda x: G(x + 1),
        lambda x: fnp.sum(x + 1e6) - 3e6,
        lambda x: x * 1e25 * 1e25 * 1e-25 * 1e-25,
    ],
)
def test_sums_and_products_with_constants_are_not_reassociated(f: Any, dtype: Any) -> None:
    same(f, np.array([1e-10, 0.3, 1e-8], dtype))


@pytest.mark.parametrize("dtype", [F, D, np.float16])
@pytest.mark.parametrize("f", [fnp.exp, fnp.sinh, fnp.cosh, nn.softmax, fnp.tanh, nn.sigmoid, nn.logsumexp, fnp.expm1])
def test_functions_of_a_nan_that_the_compiler_sees(f: Any, dtype: Any) -> None:
    y = fx.jit(lambda v: f(v * dtype(np.nan)))(np.ones(5, dtype))
    assert np.all(np.isnan(np.asarray(y).astype(float)))


@pytest.mark.parametrize("dtype", [F, D])
def test_cbrt_of_subnormal_numbers(dtype: Any) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([tiny, -tiny, 1000 * tiny, np.finfo(dtype).tiny, 0, -0.0, 8, -27, np.inf, -np.inf, np.nan], dtype)
    y = np.asarray(fx.jit(fnp.cbrt)(x))
    np.testing.assert_allclose(y, np.cbrt(x), rtol=8 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(np.signbit(y[:-1]), np.signbit(x[:-1]))


@pytest.mark.parametrize("dtype", [F, D])
def test_the_angle_of_a_subnormal_ordinate(dtype: Any) -> None:
    """It was -pi for a positive one."""
    tiny = np.finfo(dtype).smallest_subnormal
    y, x = np.meshgrid([tiny, -tiny, 0, -0.0, 1, -np.inf, np.nan], [-1, 1, -0.0, np.inf, -np.inf])
    have, want = np.asarray(fx.jit(fnp.arctan2)(y.astype(dtype), x.astype(dtype))), np.arctan2(y, x)
    np.testing.assert_allclose(have, want, rtol=4 * np.finfo(dtype).eps, atol=tiny)
    np.testing.assert_array_equal(np.signbit(have)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])


def test_log1p_in_float64() -> None:
    x = np.concatenate(
        [np.linspace(-0.999, 1, 2001), -0.414 + np.linspace(-1e-3, 1e-3, 500), 10.0 ** np.arange(-300, 300)]
    )
    np.testing.assert_allclose(np.asarray(fx.jit(fnp.log1p)(x)), np.log1p(x), rtol=2e-15, atol=0)
    edges = np.array([-1, -2, 0.0, -0.0, np.inf, np.nan])
    y = np.asarray(fx.jit(fnp.log1p)(edges))
    np.testing.assert_array_equal(y, [-np.inf, np.nan, 0, 0, np.inf, np.nan])
    assert np.signbit(y[3])


def test_a_binary_search_of_13_rounds_compiles() -> None:
    rows = np.sort(np.random.default_rng(0).normal(size=(4, 8192)).astype(F), -1)
    wanted = rows[:, 100:105] + F(1e-3)

    def search(rows: Any, wanted: Any) -> Any:
        low, high = fnp.zeros(wanted.shape, np.int32), fnp.full(wanted.shape, rows.shape[1], np.int32)
        for _ in range(13):
            middle = (low + high) // 2
            below = fnp.take_along_axis(rows, middle, 1) < wanted
            low, high = fnp.where(below, middle + 1, low), fnp.where(below, high, middle)
        return low

    want = np.stack([np.searchsorted(r, w) for r, w in zip(rows, wanted, strict=True)])
    np.testing.assert_array_equal(np.asarray(fx.jit(search)(rows, wanted)), want)


# ------------------------------------------------------------------------- elements compared with their own extremum


def _close_gradients(f: Callable[..., Any], *args: Any) -> None:
    """Compiled as interpreted, for all arguments, as for users: LLVM contracts no operations at its cheapest level."""
    program = fx.trace(fx.grad(f, argnums=tuple(range(len(args)))), *args)
    for have, want in zip(fx.lower(program).compile()(*args), fx.interpret(program, *args), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4 * float(np.abs(np.asarray(want)).max()))


def _normal(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(F) for shape in shapes]


def test_extrema_of_values_that_are_computed_twice() -> None:
    h, w, scale, shift = _normal((512, 64), (64, 64), (1, 64), (1, 64))

    def loss(scale: Any, shift: Any) -> Any:
        y = h @ (w / 8) * scale
        u = y + shift
        return fnp.sum(fnp.max(u.reshape(512, 32, 2), axis=2)) + fnp.sum(fnp.tanh(y @ (w / 8)))

    _close_gradients(loss, scale, shift)


@pytest.mark.parametrize("shape", [(64, 3), (64, 6), (512, 4)])
@pytest.mark.parametrize("extremum", [fnp.max, fnp.min])
def test_extrema_of_contracted_products(extremum: Any, shape: Any) -> None:
    """jaxlib 0.12.0.1 lost all of these gradients of a maximum."""
    z, s, t = _normal(shape, (1, 1), (1, 1))
    _close_gradients(lambda z, s, t: fnp.sum(extremum(z * s + t, axis=1)), z, s, t)
    _close_gradients(lambda z, s, t: fnp.sum(extremum(fnp.sin(z) * s + t, axis=1)), z, s, t)

    def of_row(r: Any, s: Any, t: Any) -> Any:
        return extremum(r * s + t)

    batched: Any = fx.vmap(of_row, in_axes=(0, None, None))

    def of_rows(z: Any, s: Any, t: Any) -> Any:
        return fnp.sum(batched(z, s[0, 0], t[0, 0]))

    _close_gradients(of_rows, z, s, t)


def test_segments_of_contracted_products() -> None:
    ids = np.arange(3000) % 100
    z, s, t = _normal((3000, 4), (1, 4), (3000, 1))
    _close_gradients(lambda z, s, t: fnp.sum(ops.segment_max(z * s + t, ids, 100) ** 2), z, s, t)


def test_elements_that_a_user_compares_with_their_maximum() -> None:
    """Each row has a greatest element, whichever loop computes it."""
    z, s, t = _normal((64, 6), (1, 1), (1, 1))

    def count(z: Any, s: Any, t: Any) -> Any:
        u = z * s + t
        return fnp.sum(u == fnp.max(u, axis=1, keepdims=True), axis=1)

    assert np.asarray(fx.jit(count)(z, s, t)).tolist() == [1] * 64


def test_only_comparisons_with_an_extremum_are_computed_apart() -> None:
    def branches(f: Callable[..., Any]) -> int:
        return fx.lower(fx.trace(f, np.ones((3, 4), F), np.ones((3, 4), F))).text().count("stablehlo.if")

    def of_product(x: Any, y: Any) -> Any:
        return fnp.sum(fnp.max(x * y, axis=1))

    assert branches(fx.grad(of_product)) == 1
    assert branches(lambda x, y: (x == fnp.max(y, axis=1, keepdims=True), fnp.max(x), x > y)) == 0
    assert branches(lambda x, y: fnp.where((x > 0) == fnp.max(x > 0), x, y)) == 0


# -------------------------------------------------------------------------------------------------------- not faults


def test_the_padding_of_a_convolution_meets_a_nan_of_the_kernel() -> None:
    """The page says in which dtypes it does. Where this changes, the page does."""
    kernel = np.array([1, 2, np.nan])
    for dtype, found in ((F, [True] * 5), (D, [False, False, True, True, True])):
        have = fx.jit(fnp.convolve)(np.ones(3, dtype), kernel.astype(dtype))
        assert np.isnan(np.asarray(have)).tolist() == found
        image = fx.jit(fnp.convolve)(np.array([1, np.nan, 1, 1, 1], dtype), np.ones(3, dtype))
        assert np.isnan(np.asarray(image)).tolist() == [False, True, True, True, False, False, False]
