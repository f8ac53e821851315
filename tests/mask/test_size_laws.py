"""Arithmetic of sizes against ints: every expression in + - * // % min max, for all small values of its names; equal
functions of one name are one size. Constructors and slices of symbolic sizes against arrays of known sizes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.sizes.lower_bounds import lower_bound
from fxad.core.sizes.polynomials import exact_text
from fxad.core.sizes.size import maximum, minimum, named_size, substitute_sizes
from fxad.core.sizes.text import read_size
from fxad.core.sizes.upper_bounds import upper_bound
from fxad.errors import ShapeError, TreeError, UnknownSizeError

Expression = Any  # a name, an int, or an operation and its operands
OPERATIONS: Final = ("+", "-", "*", "max", "min")
BENDS: Final = 12  # values of one name that are compared


def expressions(*names: str, quotients: bool) -> st.SearchStrategy[Expression]:
    leaves = st.sampled_from([*names, *names]) | st.integers(-3, 5)

    def grow(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        pairs = st.tuples(st.sampled_from([k for k in OPERATIONS if k != "*"]), inner, inner)
        scaled = st.tuples(st.just("*"), inner, st.integers(-2, 3))
        if not quotients:
            return pairs | scaled
        divided = st.tuples(st.sampled_from(["//", "%"]), inner, st.integers(-4, 4).filter(bool) | inner)
        return pairs | scaled | divided | st.tuples(st.just("*"), inner, inner)

    return st.recursive(leaves, grow, max_leaves=7)


def compute(e: Expression, values: dict[str, int], larger: Any = max, smaller: Any = min) -> int:
    if isinstance(e, str):
        return values[e]
    if not isinstance(e, tuple):
        return e  # type: ignore[no-any-return]
    operation, x, y = e
    a, b = compute(x, values, larger, smaller), compute(y, values, larger, smaller)
    functions: dict[str, Callable[[int, int], int]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "//": lambda a, b: a // b,
        "%": lambda a, b: a % b,
        "max": larger,
        "min": smaller,
    }
    return functions[operation](a, b)


def sums(*names: str) -> st.SearchStrategy[Expression]:
    """Sums of multiples of `max` and `min` of lines: the normal form of several functions of several names."""
    line: Any = st.integers(-3, 3)
    for name in names:
        line = st.tuples(st.just("+"), line, st.tuples(st.just("*"), st.just(name), st.integers(-2, 2)))
    one_name = st.tuples(st.just("+"), st.tuples(st.just("*"), st.sampled_from(names), st.integers(2, 3)), st.just(-1))
    near = st.tuples(line, one_name).map(lambda pair: (pair[0], ("+", *pair)))  # they differ in one name
    functions = st.builds(lambda f, pair: (f, *pair), st.sampled_from(["max", "min"]), near | st.tuples(line, line))
    nested = st.tuples(st.sampled_from(["max", "min"]), functions, line | functions)
    terms = st.tuples(st.just("*"), functions | nested, st.integers(-2, 2)) | line
    return st.recursive(terms, lambda inner: st.tuples(st.just("+"), inner, inner), max_leaves=4)


def check(e: Expression, names: tuple[str, ...], least: int) -> tuple[int, list[int]]:
    """Check a size at all points where no divisor of it is 0."""
    try:
        size = compute(e, {k: named_size(k, least) for k in names}, maximum, minimum)
    except ZeroDivisionError:
        reject()
    count = BENDS if len(names) == 1 else 5
    values = []
    for point in product(range(least, least + count), repeat=len(names)):
        ints = dict(zip(names, point, strict=True))
        try:
            values.append(compute(e, ints))
        except ZeroDivisionError:
            continue
        assert substitute_sizes(size, ints) == values[-1], (e, size, ints)
    assume(values)
    low = lower_bound(size)
    assert low is None or low <= min(values), (e, size, low)
    assert upper_bound(size, dict.fromkeys(names, least + count - 1)) >= max(values), (e, size)
    assert read_size(exact_text(size)) == size
    return size, values


@given(expressions("n", quotients=True), st.integers(0, 2))
def test_one_name(e: Expression, least: int) -> None:
    check(e, ("n",), least)


@given(expressions("n", "m", quotients=True), st.integers(0, 2))
def test_two_names(e: Expression, least: int) -> None:
    check(e, ("n", "m"), least)


@settings(max_examples=6 * settings().max_examples)
@given(sums("n", "m"), st.integers(0, 2))
def test_sums_of_functions_of_two_names(e: Expression, least: int) -> None:
    check(e, ("n", "m"), least)


@given(st.lists(expressions("n", quotients=False), min_size=2, max_size=6), st.integers(0, 2))
def test_equal_functions_of_one_name_are_one_size(es: list[Expression], least: int) -> None:
    """Each sum of lines with bends, against the same function written by its values and bends."""
    for e in es:
        size, values = check(e, ("n",), least)
        n = named_size("n", least)
        bends = [values[k + 1] - 2 * values[k] + values[k - 1] for k in range(1, BENDS - 1)]
        line = values[0] + (values[1] - values[0]) * (n - least)
        for k, change in enumerate(bends, least + 1):
            line = line + maximum(0, n - k) * change
        beyond = [compute(e, {"n": k}) for k in range(least, least + 3 * BENDS)]
        if [substitute_sizes(line, {"n": k}) for k in range(least, least + 3 * BENDS)] == beyond:
            assert size == line, (e, size, line)


def test_the_sizes_of_the_issue() -> None:
    n, m = named_size("n"), named_size("m", at_least=1)
    assert n - minimum(1, n) == maximum(0, n - 1) == maximum(0, n - 1)
    assert maximum(0, maximum(0, n - 1) - minimum(1, n)) == maximum(0, n - 2)
    assert maximum(n, m) + minimum(n, m) == n + m
    assert n - maximum(n, m) == minimum(0, n - m)
    assert (2 * m - 1) // m == 1
    assert (m * m + m - 1) // m == m
    assert (n // 2 + 3) // 3 == (n + 6) // 6
    assert [str(s) for s in (minimum(3, n), n - minimum(3, n), n - maximum(0, n - 3))] == [
        "min(3, n)",
        "max(0, n - 3)",
        "min(3, n)",
    ]


SIZES: Final = (0, 1, 2, 3, 7)
SLICES: Final = (
    "x[1:]", "x[:-1]", "x[1:] - x[:-1]", "x[2:] - x[:-2]", "x[1:-1] - x[2:]", "x[-3:]", "x[:3]", "x[1:4]", "x[-2:-1]",
    "x[::-1]", "x[::2]", "x[1::2]", "x[:-5:2]", "x[3:1]", "x[-1::-1]", "x[5:0:-2]", "x[1:][:-1]", "x[:-1][1:] - x[2:]",
    "fnp.diff(x)", "fnp.diff(x, n=2)", "fnp.concatenate([x[:1], x[1:]]) - x", "fnp.concatenate([x[:-1], x[-1:]]) - x",
)  # fmt: skip
CONSTRUCTORS: Final = (
    "fnp.arange(n)", "fnp.arange(1, n)", "fnp.arange(n, 0, -1)", "fnp.arange(0, n, 2)", "fnp.linspace(1.0, 3.0, n)",
    "fnp.linspace(1.0, 3.0, n, endpoint=False)", "fnp.linspace(1.0, 3.0, n + 1)", "fnp.logspace(0.0, 2.0, n)",
    "fnp.linspace(1.0, 3.0, n, retstep=True)[1]", "fnp.linspace(1.0, 3.0, n, endpoint=False, retstep=True)[1]",
    "fnp.logspace(0.0, 2.0, n, endpoint=False)", "fnp.geomspace(1.0, 8.0, n)",
    "fnp.geomspace(1.0, 8.0, n, endpoint=False)", "fnp.zeros(n)", "fnp.ones((n, 2))", "fnp.full(n, 3)", "fnp.eye(n)",
    "fnp.eye(n, k=1)", "fnp.tri(n)", "fnp.identity(n)", "fnp.indices((n, 2))",
)  # fmt: skip


@pytest.mark.parametrize("text", [*SLICES, *CONSTRUCTORS])
def test_symbolic_sizes_against_known_ones(text: str) -> None:
    """The program of symbolic size, specialized, gives what the function gives; NumPy agrees."""

    def f(x: Any, fnp: Any = fnp) -> Any:
        return eval(text, {"x": x, "n": x.shape[0], "fnp": fnp})

    program = fx.trace(f, fx.Spec("n"))
    for n in SIZES:
        x = np.arange(1.0, n + 1, dtype=np.float32)
        have = fx.interpret(fx.specialize(program, n=n), x)
        np.testing.assert_allclose(have, f(x, np), rtol=1e-6, err_msg=f"{text} of {n}")


@given(st.integers(0, 3), st.integers(1, 5), st.integers(0, 3), st.integers(1, 4), st.integers(0, 3))
def test_a_strided_slice_has_the_size_of_its_range(start: int, step: int, least: int, times: int, more: int) -> None:
    """As a size, not as its values alone: `out_shapes` is compared with it."""
    n = times * named_size("n", least) + more
    (forward,) = fx.trace(lambda x: x[start::step], fx.Spec((n,))).out_avals
    (backward,) = fx.trace(lambda x: x[::-step], fx.Spec((n,))).out_avals
    assert backward.shape == ((n + step - 1) // step,)
    assert start > 1 or times > 1 or forward.shape == (maximum(0, n - start + step - 1) // step,)
    for k in range(least, least + 12):
        count = len(range(start, times * k + more, step))
        assert substitute_sizes(forward.shape[0], {"n": k}) == count


# regression: `squeeze` kept an axis of size 1
FROM_ONE: Final = (
    "fnp.squeeze(x[:1])", "fnp.squeeze(x[None], 0)", "fnp.median(x)", "fnp.quantile(x, 0.3)", "fnp.var(x)",
    "fnp.roll(x, 1)", "fnp.pad(x, 2, mode='edge')", "fnp.rot90(x[:, None])", "fnp.kron(x, fnp.ones(2))", "fnp.ptp(x)",
    "fnp.interp(fnp.linspace(0, 1, 5), fnp.linspace(0, 1, n), x)", "fnp.fft.irfft(fnp.fft.rfft(x), n)", "x[n // 2 :]",
)  # fmt: skip


@pytest.mark.parametrize("text", FROM_ONE)
def test_sizes_from_one_on(text: str) -> None:
    def f(x: Any, fnp: Any = fnp) -> Any:
        return eval(text, {"x": x, "n": x.shape[0], "fnp": fnp})

    program = fx.trace(f, fx.Spec("n>=1"))
    for n in SIZES[1:]:
        x = np.arange(1.0, n + 1, dtype=np.float32) ** 2
        have, want = fx.interpret(fx.specialize(program, n=n), x), f(x, np)
        assert have.shape == np.shape(want)
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


VALUES: Final = (
    "x.at[0].set(n)", "x.at[0].add(n)", "x.at[:-1].multiply(n)", "x.at[x > 1].set(n)", "x.at[k].set(n)",
    "x.at[n - 1].min(n)", "fnp.put_along_axis(x, k, n, 0, inplace=False)", "fnp.put(x, k, n, inplace=False)",
    "fnp.sum(x, initial=n)", "fnp.max(x, initial=n)", "fnp.prod(x, initial=n)", "fnp.float32(n)", "fnp.bfloat16(n)",
    "fnp.int8(n)", "lax.pad(x, fnp.float32(n), [(1, 0, 0)])", "lax.reduce(x, fnp.float32(n), lax.add, (0,))",
    "fnp.nan_to_num(x, nan=n, posinf=n)", "fnp.where(x > 1, x, n)", "fnp.clip(x, 0, n)", "fnp.full_like(x, n)",
    "fnp.pad(x, 1, constant_values=n)", "fnp.stack([x[0], n])", "x ** n", "n ** x", "fnp.append(x, n)",
    "fnp.interp(n, x, x)", "lax.cond(x[0] > 0, lambda v: v + 1, lambda v: v, n)", "fnp.array([n, 1.5])",
)  # fmt: skip


def test_sizes_as_values() -> None:
    """A size may stand where a number does: in one program, that the tests of all are one."""

    def f(x: Any, n: Any) -> Any:
        return [eval(text, {"x": x, "n": n, "k": fnp.array([1]), "fnp": fnp, "lax": lax}) for text in VALUES]

    program = fx.trace(lambda x: f(x, x.shape[0]), fx.Spec("n>=2"))
    for n in (2, 5):
        x = np.arange(1.0, n + 1, dtype=np.float32)
        wants = fx.interpret(fx.trace(lambda x, n=n: f(x, n), x), x)
        for text, have, want in zip(VALUES, fx.interpret(fx.specialize(program, n=n), x), wants, strict=True):
            assert have.dtype == want.dtype, text
            np.testing.assert_allclose(np.asarray(have, float), np.asarray(want, float), rtol=1e-6, err_msg=text)


# What Python code may ask of a size with an answer that is no size. Not `==`, which compares expressions.
QUESTIONS: Final[list[Callable[[int], bool]]] = [
    bool,
    lambda size: not size,
    lambda size: (size or "no") == "no",
    lambda size: (size and "yes") == "yes",
    lambda size: any((0, size)),
    lambda size: all((1, size)),
    lambda size: size > 0,
    lambda size: size >= 2,
    lambda size: size < 1,
    lambda size: size >= 3,
    lambda size: max(size, 2) is size or min(size, -1) is size,
]


@settings(max_examples=4 * settings().max_examples)
@given(expressions("n", quotients=True), st.integers(0, 2), st.sampled_from(QUESTIONS))
def test_code_that_branches_on_a_size(e: Expression, least: int, question: Callable[[int], bool]) -> None:
    """The law of `specialize`: code that asks about a size is refused, or takes the branch of the trace at each k."""

    def f(x: Any) -> Any:
        size = compute(e, {"n": x.shape[0]}, maximum, minimum)
        return x.sum() if question(size) else x.sum() + 7

    with suppress(UnknownSizeError, ZeroDivisionError):
        program = fx.trace(f, fx.Spec(f"n>={least}"))
        for k in range(least, least + BENDS):
            try:
                at_k = fx.trace(f, fx.Spec((k,)))
            except ZeroDivisionError:
                continue
            assert len(fx.specialize(program, n=k).jaxpr.eqns) == len(at_k.jaxpr.eqns), (e, k)


def test_the_remedy_names_the_assumption() -> None:
    with pytest.raises(ShapeError) as e:
        fx.trace(lambda x: x + x[: x.shape[0] // 2 * 2], fx.Spec("n"))
    assert "they are equal if" not in str(e.value)
    with pytest.raises(ShapeError) as e:
        fx.trace(lambda x: x[:3] + fnp.ones(3), fx.Spec("n"))
    assert "; they are equal if 'n>=3' is stated where the size is named" in str(e.value)
    with pytest.raises(ShapeError) as e:
        fx.trace(lambda x: x[:1].reshape(()), fx.Spec("n"))
    assert e.value.remedy.endswith("; they are equal if 'n>=1' is stated where the size is named")
    with pytest.raises(UnknownSizeError) as u:
        fx.trace(fnp.squeeze, fx.Spec("n"))  # the axis may have size 1
    assert "'n>=2'" in u.value.remedy


def test_out_shapes_has_the_containers_of_the_result() -> None:
    pair = lambda x: (x, x)  # noqa: E731
    x = np.ones(4, np.float32)
    assert [a.shape for a in fx.mask(pair, "n", ("n", "n"))(x, sizes={"n": 2})] == [(4,), (4,)]
    with pytest.raises(TreeError) as e:
        fx.mask(pair, "n", ["n", "n"])(x, sizes={"n": 2})
    assert "out_shapes: ['n', 'n'] is not a tree prefix of (*, *)" in str(e.value)
