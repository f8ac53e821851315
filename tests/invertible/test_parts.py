"""Operands that several equations determine together, each in part: windows, masks, real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import NotInvertibleError
from fxad.testing import Inversion, check_inverse
from fxad.tracing.array import Array
from tests.invertible.rules import near

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 6))
W = RNG.normal(size=(3, 3))


def moved(a: Any) -> Any:
    return fnp.tanh(a @ W)


def halves(x: Array) -> Array:
    a, b = fnp.split(x, 2, axis=-1)
    b = b * fnp.exp(moved(a))
    return fnp.concatenate([a + moved(b), b], -1)


def combs(x: Array) -> Array:
    a, b = x[:, ::2], x[:, 1::2]
    b = b + moved(a)
    return fnp.stack([a * 2 + moved(b), b], -1).reshape(x.shape)


def rolled(x: Array) -> Array:
    return fnp.roll(x, 2, 1) * 3


def rows(x: Array) -> Array:
    a, b, c = fnp.unstack(x)
    return fnp.stack([c, a + fnp.sin(c), b * fnp.exp(a)])


def written_over(x: Array) -> Array:
    return x.at[:, 3:].set(x[:, 3:] * 2 + moved(x[:, :3]))


def added_in_place(x: Array) -> Array:
    return x.at[:, :3].add(moved(x[:, 3:]))


def crossed(x: Array) -> Array:
    """Four windows that meet in one corner."""
    a, b, c, d = x[:1, :2], x[:1, 2:], x[1:, :2], x[1:, 2:]
    return fnp.concatenate([fnp.concatenate([a, b * 2], 1), fnp.concatenate([c + a, d], 1)], 0)


def permuted(x: Array) -> Array:
    return fnp.take(x, np.array([3, 1, 0, 2, 5, 4]), axis=1) * 2


COUPLINGS: list[Callable[[Array], Array]] = [
    halves,
    combs,
    rolled,
    rows,
    written_over,
    added_in_place,
    crossed,
    permuted,
]


@pytest.mark.parametrize("f", COUPLINGS)
def test_parts_make_the_operand_whole(f: Callable[[Array], Array]) -> None:
    program = fx.trace(f, X)
    back, measure = fx.interpret(fx.inverse(program, log_det=True), fx.interpret(program, X))
    near(np.asarray(back), X, rtol=1e-12)
    dense = np.asarray(fx.interpret(fx.jacfwd(program), X)).reshape(X.size, X.size)
    near(np.asarray(measure), np.linalg.slogdet(dense)[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("f", COUPLINGS)
def test_gradients_reconstruct_from_parts(f: Callable[[Array], Array]) -> None:
    lean = fx.trace(fx.grad(lambda x: fnp.sum(fnp.sin(fx.invertible(f)(x)))), X)
    plain = fx.trace(fx.grad(lambda x: fnp.sum(fnp.sin(f(x)))), X)
    have, want = fx.interpret(lean, X), fx.interpret(plain, X)
    near(np.asarray(have), np.asarray(want), rtol=1e-9, atol=1e-9)


def test_a_mask_and_the_rest() -> None:
    """Two results that contain complementary elements of x."""

    def shared(x: Array, mask: Array) -> tuple[Array, Array]:
        return fnp.where(mask, x, 0.0), fnp.where(mask, 1.0, x) * 2

    mask = X > 0.3
    back = fx.inverse(fx.trace(shared, X, mask))(shared(fnp.asarray(X), fnp.asarray(mask)), mask)
    near(np.asarray(back), X, rtol=1e-15)


def test_real_and_imaginary_part() -> None:
    def parts(z: Array) -> tuple[Array, Array]:
        return fnp.exp(fnp.real(z)), fnp.imag(z) * 2

    z = fnp.asarray(X + 1j * X[::-1])
    back = fx.inverse(fx.trace(parts, z))(parts(z))
    near(np.asarray(back), np.asarray(z), rtol=1e-12)
    with pytest.raises(NotInvertibleError, match="real is not inverted: its results determine some elements"):
        fx.inverse(fx.trace(fnp.real, z))


PARTLY = "its results determine some elements of the operand, and the others are not found elsewhere"


@pytest.mark.parametrize(
    ("f", "name"),
    [
        (lambda x: x[:, 1:], "slice"),
        (lambda x: (x[:, :3], x[:, 4:]), "slice"),
        (lambda x: x[0], "index"),
        (lambda x: x.at[:, 2:].set(0.0), "dynamic_update_slice"),
        (lambda x: x.at[np.array([0, 2])].set(0.0), "scatter"),
        (lambda x: fnp.take(x, np.array([0, 1]), axis=0), "gather"),
        (lambda x: fnp.where(np.ones((3, 6), np.bool_), x, 0.0), "select_n"),
        (lambda x: lax.dynamic_slice(x, (0, 0), (3, 5)), "dynamic_slice"),
    ],
)
def test_parts_that_are_not_enough_are_refused(f: Callable[[Array], Any], name: str) -> None:
    with pytest.raises(NotInvertibleError, match=f"{name} is not inverted: {PARTLY}"):
        fx.inverse(fx.trace(f, X))


def test_indices_that_are_no_permutation_give_nan() -> None:
    """The repeated index is detected when the program runs."""
    places = np.array([0, 1, 1])
    f = fx.trace(lambda x: fnp.take(x, places, axis=0), X)
    back = np.asarray(fx.inverse(f)(f(X)))
    near(back[:2], X[:2], rtol=0)
    assert np.isnan(back[2]).all()


@given(st.data())
def test_any_windows_that_cover_the_operand(data: st.DataObject) -> None:
    """Windows cut along both axes, in any order, some with a step, and some twice."""
    cut = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 7))
    step = data.draw(st.integers(1, 3))
    x = np.arange(35.0).reshape(5, 7)
    windows = [(slice(0, cut[0]), slice(0, cut[1])), (slice(0, cut[0]), slice(cut[1], 7))]
    windows += [(slice(cut[0], 5), slice(k, 7, step)) for k in range(step)]
    windows += data.draw(st.lists(st.sampled_from(windows), max_size=2))
    windows = data.draw(st.permutations(windows))
    f = fx.trace(lambda x: tuple([x[w] * (k + 1) for k, w in enumerate(windows)]), x)
    near(np.asarray(fx.interpret(fx.inverse(f), fx.interpret(f, x))), x, rtol=1e-15)


def test_swapped_parts_of_complex_numbers() -> None:
    """The real part of an element is known before its imaginary part, so neither continues the inversion alone."""

    def f(z: Any, b: Any) -> Any:
        z = z * 2.0
        return fnp.where(b, fnp.real(z), fnp.imag(z)), fnp.where(b, fnp.imag(z), fnp.real(z))

    check_inverse(Inversion.of(f, np.array([1.0 + 2.0j, -0.5j]), np.array([True, False]), keep="b"))


def test_a_roll_of_a_roll_has_a_log_determinant() -> None:
    """With some operands of a concatenation known, its Jacobian has fewer columns than rows, and a square part."""
    check_inverse(Inversion.of(lambda x: fnp.roll(fnp.roll(x, 1), 1), np.arange(3.0), measured=True))


def windows(x: Any, i: Any) -> Any:
    return lax.dynamic_slice(x, (i,), (2,)), lax.dynamic_slice(x, (2 - 2 * i,), (1,))


def elements(x: Any, i: Any) -> Any:
    return x[i], x[(i + 1) % 3], x[2 - i]


def gathered(x: Any, i: Any) -> Any:
    return 2.0 * x[(np.array([0, 1, 2]) + i) % (3 - i % 2)]


def clipped(x: Any, i: Any) -> Any:
    return x.at[np.array([2, 0, 1]) + i].get(mode="clip")


def in_a_body(x: Any, i: Any) -> Any:
    return fx.jit(gathered)(x, i)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("f", [windows, elements, gathered, clipped, in_a_body])
def test_repeated_places_that_are_known_at_run_time(f: Callable[..., Any], dtype: str) -> None:
    """An element that no window contains is nan, and the Jacobian is singular: log
    det
     is -inf.
    """
    x = np.array([1.0, 2.0, 3.0], dtype)
    program = fx.trace(f, x, 0)
    singular = 0
    for i in range(3):
        back, measure = fx.inverse(program, log_det=True)(program(x, i), i)
        lost = np.isnan(np.asarray(back))
        np.testing.assert_array_equal(np.asarray(back)[~lost], x[~lost])
        rows = fx.tree.leaves(fx.jacfwd(program, holomorphic=dtype[0] == "c")(x, i))
        dense = np.concatenate([np.reshape(np.asarray(rows_of), (-1, 3)) for rows_of in rows])
        want = np.linalg.slogdet(dense)[1] * (2 if dtype[0] == "c" else 1)
        near(np.asarray(measure), want, rtol=1e-12, atol=1e-12)
        assert lost.any() == np.isinf(want)
        singular += lost.any()
    assert 0 < singular < 3


def test_a_nan_at_a_place_that_is_read_is_not_missing() -> None:
    x = np.array([1.0, np.nan, 3.0])
    program = fx.trace(gathered, x, 0)
    back, measure = fx.inverse(program, log_det=True)(program(x, 0), 0)
    np.testing.assert_array_equal(back, x)
    near(np.asarray(measure), 3 * np.log(2.0), rtol=1e-12)


def test_an_update_and_a_window_at_run_time() -> None:
    x, u = np.array([1.0, 2.0, 3.0]), np.array([4.0])

    def f(x: Any, u: Any, i: Any, j: Any) -> Any:
        return lax.dynamic_update_slice(x, u, (i,)), lax.dynamic_slice(x, (j,), (1,)) * 2.0

    program = fx.trace(f, x, u, 0, 0)
    for i, j in product(range(3), range(3)):
        (back, update), measure = fx.inverse(program, ("x", "u"), log_det=True)(program(x, u, i, j), i, j)
        np.testing.assert_array_equal(back, np.where((np.arange(3) == i) & (i != j), np.nan, x))
        np.testing.assert_array_equal(update, u)
        near(np.asarray(measure), np.log(2.0) if i == j else -np.inf, rtol=1e-12)


def hidden(x: Any, m: Any) -> Any:
    return 2.0 * fnp.where(m, x, np.nan)


def hidden_by_itself(x: Any, m: Any) -> Any:
    return 2.0 * fnp.where(x > 0.0, x, np.nan)


def hidden_in_a_body(x: Any, m: Any) -> Any:
    return fx.jit(hidden)(x, m)


def hidden_in_a_loop(x: Any, m: Any) -> Any:
    return lax.fori_loop(0, 2, lambda _, c: hidden(c, m), x)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("f", [hidden, hidden_by_itself, hidden_in_a_body, hidden_in_a_loop])
def test_nan_hides_elements(f: Callable[..., Any], dtype: str) -> None:
    """A hidden element is nan, and the Jacobian is singular: log|det| is -inf."""
    if dtype[0] == "c" and f is hidden_by_itself:
        return
    x, n = np.array([1.0, 2.0, 3.0], dtype), 2 if f is hidden_in_a_loop else 1
    m = np.array([True, True, True])
    program = fx.trace(f, x, m)
    back, measure = fx.inverse(program, 0, log_det=True)(program(x, m), m)
    np.testing.assert_array_equal(back, x)
    near(np.asarray(measure), n * 3 * np.log(2.0) * (2 if dtype[0] == "c" else 1), rtol=1e-12)
    x, m = np.array([1.0, 2.0, -3.0], dtype), np.array([True, True, False])
    back, measure = fx.inverse(program, 0, log_det=True)(program(x, m), m)
    np.testing.assert_array_equal(back[:2], x[:2])
    assert np.isnan(np.asarray(back)[2])
    assert np.asarray(measure) == -np.inf


def test_a_nan_that_a_choice_reads_is_not_hidden() -> None:
    x, m = np.array([1.0, np.nan, 3.0]), np.array([True, True, True])
    program = fx.trace(hidden, x, m)
    back, measure = fx.inverse(program, 0, log_det=True)(program(x, m), m)
    np.testing.assert_array_equal(back, x)
    near(np.asarray(measure), 3 * np.log(2.0), rtol=1e-12)
