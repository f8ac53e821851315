"""A Python number means the same under every transformation: `T(f)(x, number)` is `f(x, number)`, bit for bit.

A drawn function takes an array of any dtype and a float, an int and a bool, in a tree, by position or by keyword. It
computes with numbers alone, in Python, and lets them meet arrays. Where all numbers are known, it also asks for their
values, and uses an int as a size, an index and the bound of a loop.

Programs are run by `interpret`, so no compiler contracts products and sums.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, lax, tree
from fxad.errors import DTypeError, FxadError, ParameterError

LOOSE: Final[Any] = fx  # the types of drawn stacks are not known to mypy
DTYPES: Final = ("float64", "float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "complex64", "bool")
BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "reversed -": lambda x, y: y - x, "reversed /": lambda x, y: y / x, "max": fnp.maximum,
    "where": lambda x, y: fnp.where(x == y, x, y), ">": operator.gt, "at": lambda x, y: x.at[0].set(y),
    "full": lambda x, y: x + fnp.full_like(x, y), "asarray": lambda x, y: x * fnp.asarray(y),
}  # fmt: skip
BETWEEN_NUMBERS: Final = ("+", "-", "*", "/", "//", "%", ">")


@tree.dataclass
class Numbers:
    """The numbers, as a tree."""

    rate: Any
    count: Any
    on: Any


@dataclass(frozen=True)
class Formula:
    """A function. `terms`: an operator between the array and a number, which is computed from two numbers by another
    operator; None is the number itself."""

    terms: tuple[tuple[str, str, str | None, str], ...]
    known: bool  # it asks for values

    def __call__(self, x: Any, numbers: Numbers) -> list[Any]:
        names = {"rate": numbers.rate, "count": numbers.count, "on": numbers.on, "3": 3, "0.7": 0.7}
        results = []
        for op, a, inner, b in self.terms:
            number = names[a] if inner is None else BINARY[inner](names[a], names[b])
            results.append(BINARY[op](x, number))
        if self.known:
            results += asked(x, numbers)
        return results


def asked(x: Any, numbers: Numbers) -> list[Any]:
    """Results that depend on the values of numbers."""
    n = numbers.count
    assert isinstance(n, int)
    assert isinstance(numbers.rate, float)
    if n < 1 or not 0 < numbers.rate < 100:
        raise ValueError("a check of the user's own")
    weights = {f"w{k}": k for k in range(5)}
    y = x
    for _ in range(n):
        y = y + x
    looped = lax.fori_loop(0, n, lambda _, c: c + x, x)
    window = fnp.broadcast_to(x[n], (n, 2))
    typed = [fnp.full(2, number, dtype=type(number)) for number in (n, numbers.rate)]
    assert "Argument'" in repr(type(n)) or type(n) is int  # the class says what it is
    return [*typed, y, looped, window, x[:n], x * weights[f"w{n}"], x.reshape(-1, n) if x.size % n == 0 else x, x**n]


# ------------------------------------------------------------------------------------------------- transformations

# Each takes a function of (x, numbers) and gives one with the same results, with one more axis where it maps.


def differentiated(transform: Callable[..., Any]) -> Callable[..., Any]:
    """By another argument, on which the results do not depend."""
    return lambda f: (
        lambda x, numbers: transform(lambda z, x, numbers: (z * z, f(x, numbers)), has_aux=True)(2.0, x, numbers)[1]
    )


def by_keyword(f: Callable[..., Any]) -> Callable[..., Any]:
    """The numbers are keyword arguments of a derivative."""
    aux = fx.grad(lambda z, *, x, numbers: (z * z, f(x, numbers)), has_aux=True)
    return lambda x, numbers: aux(2.0, x=x, numbers=numbers)[1]


def mapped(f: Callable[..., Any]) -> Callable[..., Any]:
    """Over no argument, so the results have no new axis."""
    over_none: Callable[..., Any] = LOOSE.vmap(f, None, None, axis_size=2)
    return over_none


def by_rule(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a rule for its derivative."""
    ruled: Any = fx.custom_jvp(f)
    ruled.defjvp(lambda primals, tangents: (f(*primals), fx.jvp(f, primals, tangents)[1]))
    return lambda x, numbers: ruled(x, numbers)


def in_branch(f: Callable[..., Any]) -> Callable[..., Any]:
    """A branch of `cond`."""
    return lambda x, numbers: lax.cond(x.ravel()[0] == x.ravel()[0], f, f, x, numbers)


def on_a_device(f: Callable[..., Any]) -> Callable[..., Any]:
    """A map over one device."""
    whole = fx.sharding.PartitionSpec()
    over_one: Callable[..., Any] = LOOSE.shard_map(f, mesh={"i": 1}, in_specs=whole, out_specs=whole)
    return over_one


KNOWN: Final[dict[str, Callable[..., Any]]] = {
    "grad": differentiated(fx.grad),
    "value_and_grad": lambda f: lambda x, n: LOOSE.value_and_grad(
        lambda z, x, n: (z, f(x, n)), has_aux=True
    )(1.0, x, n)[0][1],
    "jacfwd": differentiated(fx.jacfwd),
    "jacrev": differentiated(fx.jacrev),
    "hessian": differentiated(fx.hessian),
    "by keyword": by_keyword,
    "vmap": mapped,
    "remat": LOOSE.remat,
    "cse": LOOSE.cse,
    "shard_map": on_a_device,
    "cond": in_branch,
}  # fmt: skip
# The float is an argument by which these differentiate, or a traced one.
TRACED: Final[dict[str, Callable[..., Any]]] = {
    "jvp": lambda f: lambda x, n: fx.jvp(f, (x, n), (tangent(x), tangent(n)))[0],
    "vjp": lambda f: lambda x, n: fx.vjp(f, x, n)[0],
    "linearize": lambda f: lambda x, n: fx.linearize(f, x, n)[0],
    "jit": LOOSE.jit,
    "program": lambda f: lambda x, n: LOOSE.trace(f, x, n)(x, n),
    "custom_jvp": by_rule,
}


def tangent(x: Any) -> Any:
    """Ones where a leaf has a tangent."""

    def one(v: Any) -> Any:
        if isinstance(v, bool | int):
            return None
        return 1.0 if isinstance(v, float) else fnp.ones_like(v) if v.dtype in dtypes.INEXACT else None

    return tree.map(one, x)


@st.composite
def formulas(draw: st.DrawFn, known: bool) -> Formula:
    names = st.sampled_from(("rate", "count", "on", "3", "0.7"))
    terms = []
    for _ in range(draw(st.integers(1, 4))):
        op = draw(st.sampled_from(sorted(BINARY)))
        # what is computed from traced numbers, and is an array by itself, is computed in 32 bits: docs/adr/0088
        inner = None if op == "asarray" else draw(st.one_of(st.none(), st.sampled_from(BETWEEN_NUMBERS)))
        terms.append((op, draw(names), inner, draw(names)))
    return Formula(tuple(terms), known)


def elements(dtype: str) -> Any:
    return fnp.asarray(np.array([1, 2, 3, 1, 2, 6], dtypes.as_dtype(dtype)))


def bits(results: object) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Dtype, shape and bytes of each result. A result that is a number is an array by itself."""
    arrays = [np.asarray(fnp.asarray(x)) for x in tree.leaves(results)]
    return [(x.dtype.name, x.shape, x.tobytes()) for x in arrays]


def interpreted(f: Callable[..., Any], x: Any, numbers: Numbers) -> Any:
    """The results of a function, equation by equation: no compiler contracts products and sums."""
    program: Any = LOOSE.trace(lambda x: f(x, numbers), x)
    return bits(fx.interpret(program, x))


def check(stack: list[str], f: Formula, x: Any, numbers: Numbers) -> None:
    g: Any = f
    for name in stack:
        g = (KNOWN | TRACED)[name](g)
    try:
        want = interpreted(f, x, numbers)
    except (DTypeError, ZeroDivisionError) as e:
        if isinstance(e, DTypeError) or not set(stack) & set(TRACED):  # a traced number divides by 0 as an array does
            with pytest.raises(type(e)):
                interpreted(g, x, numbers)
        return
    assert interpreted(g, x, numbers) == want


RATES: Final = st.one_of(st.floats(0.01, 90.0), st.sampled_from((0.1, 0.3, 1 / 3, 2.0**-10 + 2.0**-25, 1.0)))


@given(
    st.lists(st.sampled_from(sorted(KNOWN)), min_size=1, max_size=3, unique=True),
    formulas(known=True),
    st.sampled_from(DTYPES),
    RATES,
    st.integers(1, 4),
    st.booleans(),
)
def test_a_known_number_is_itself(stack: list[str], f: Formula, dtype: str, rate: float, count: int, on: bool) -> None:
    check(stack, f, elements(dtype), Numbers(rate, count, on))


@given(
    st.lists(st.sampled_from(sorted(KNOWN | TRACED)), min_size=1, max_size=3, unique=True),
    formulas(known=False),
    st.sampled_from(DTYPES),
    RATES,
    st.integers(-2, 100),
    st.booleans(),
)
def test_a_traced_number_meets_arrays_as_it_does_outside(
    stack: list[str], f: Formula, dtype: str, rate: float, count: int, on: bool
) -> None:
    check(stack, f, elements(dtype), Numbers(rate, count, on))


# ---------------------------------------------------------------------------------------- what is passed on as it is


class Mode(Enum):
    TWICE = 2


def configured(x: Any, options: Any, *, mode: Any = Mode.TWICE) -> Any:
    """A function whose arguments are of every type."""
    n, rate, window, place = options["n"], options["rate"], options["window"], options["place"]
    assert isinstance(n, int)
    assert mode is Mode.TWICE
    assert isinstance(place, Path)
    assert {3: "three", 4: "four"}[n]
    assert f"{n:03d} {rate:.2f} {place.name}" == f"00{n} {float(rate):.2f} file"
    return fnp.sum(x[window] * rate) * mode.value * n


@pytest.mark.parametrize("name", sorted(KNOWN.keys() - {"cond", "jacfwd", "jacrev", "hessian"}))
def test_values_that_are_no_arrays_are_passed_on(name: str) -> None:
    x = np.arange(6.0)
    for n in (3, 4):
        options = {"n": n, "rate": 0.1, "window": slice(1, n), "place": Path("a/file"), "none": None, "text": "b"}
        assert bits(KNOWN[name](configured)(x, options)) == bits(configured(fnp.asarray(x), options))


def test_one_program_serves_all_numbers_with_which_a_function_computes() -> None:
    def step(x: Any, rate: float, n: int, table: Any) -> Any:
        rate = (rate * 0.5 + 1) / 3 - -rate
        return fnp.sum(x - rate * x + n * x[n] + 2**n * table[n, 0])

    x, table = np.ones(4, np.float32), np.ones((4, 2), np.float32)
    transforms: list[Any] = [fx.grad, fx.value_and_grad, lambda f: fx.vmap(f, (None, None, None, 0), axis_size=4)]
    for transform in transforms:
        f = transform(step)
        tables = np.stack([table] * 4) if transform is transforms[2] else table
        f(x, 0.5, 0, tables)
        before = fx.cache.stats().misses
        for k in range(20):
            f(x, 0.1 * k, k % 4, tables)
        assert fx.cache.stats().misses == before
    jitted = fx.jit(step)
    jitted(x, 0.5, 0, table)
    before = fx.cache.stats().misses
    for k in range(20):
        jitted(x, 0.1 * k, k % 4, table)
    assert fx.cache.stats().misses == before


def test_a_gradient_in_a_number_is_of_32_bits_unless_64_take_part() -> None:
    x = np.linspace(0.1, 1, 4)
    for dtype in ("float32", "float64"):
        a = x.astype(dtype)
        value, slope = LOOSE.value_and_grad(lambda rate, a=a: fnp.sum(a * (rate * 0.3)))(0.1)
        assert slope.dtype.name == dtype
        assert bits(value) == bits(fnp.sum(fnp.asarray(a) * (0.1 * 0.3)))
    assert fx.grad(lambda rate: rate * 2.0 + rate / 3)(0.1).dtype.name == "float32"
    assert str(fx.trace(lambda rate: rate * 2.0, 0.1).jaxpr).count("f64") == 0


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ("3", "fori_loop: upper is a str, not an int: '3'"),
        (2.5, "fori_loop: upper is a float, not an int: 2.5"),
        (np.array("a"), "fori_loop: upper: dtype('<U1') is not a dtype of fxad"),
        (np.array(None), "fori_loop: upper: dtype('O') is not a dtype of fxad"),
        (2**70, f"fori_loop: upper does not fit int64: {2**70}"),
    ],
)
def test_a_bound_of_a_loop_that_is_no_number_is_named(bound: Any, message: str) -> None:
    with pytest.raises(FxadError) as e:
        lax.fori_loop(0, bound, lambda _, c: c, 1.0)
    assert e.value.message == message
    if not isinstance(bound, np.ndarray):
        with pytest.raises(FxadError) as e:
            fx.grad(lambda x, n: lax.fori_loop(0, n, lambda _, c: c * x, 1.0))(2.0, bound)
        assert e.value.message == message


def test_a_number_is_a_bound_beside_an_array() -> None:
    """Regression: refused under `jit` where the array was no i32."""
    for bounds in ((np.int64(0), 3), (np.array(0, np.int8), 3), (0, np.uint8(3)), (-1, np.array(2, np.int64))):
        f: Any = lambda lower, upper: lax.fori_loop(lower, upper, lambda _, c: c * 2, 1.0)  # noqa: E731
        for transformed in (fx.jit(f), fx.remat(f), fx.trace(f, *bounds)):
            assert float(transformed(*bounds)) == float(f(*bounds)) == 8


@pytest.mark.parametrize("bounds", [(0, 1 << 63), (1 << 63, 0), (0, 2**70)])
def test_a_bound_of_a_loop_has_64_bits(bounds: tuple[int, int]) -> None:
    with pytest.raises(ParameterError, match=r"^fori_loop: (lower|upper) does not fit int64: \d+") as caught:
        lax.fori_loop(*bounds, lambda _, c: c, 1.0)
    assert caught.value.remedy == "the index of a loop is an int64 at most"


# ------------------------------------------------------------------------------------------------------------- eager


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [0.1, 1.0 + 2.0**-11 + 2.0**-40, 3, -1, 2**24 + 1, 2**53 + 1, True, 0.1 + 0.3j])
def test_one_operation_is_that_of_an_array_and_a_number(dtype: str, number: Any) -> None:
    """The result of the operation itself, of compiled programs and of NumPy, in which the number has the dtype."""
    x = elements(dtype)
    try:
        want = x * number
    except DTypeError:
        for transform in (fx.jit, mapped, differentiated(fx.grad)):
            with pytest.raises(DTypeError, match="does not fit"):
                transform(lambda x, n: x * n)(x, number)
        return
    for transform in (fx.jit, mapped, differentiated(fx.grad), LOOSE.remat):
        assert bits(transform(lambda x, n: x * n)(x, number)) == bits(want)
    if isinstance(number, complex):  # NumPy multiplies complex numbers in another order
        return
    with np.errstate(all="ignore"):
        rounded = np.asarray(number).astype(want.dtype)
        assert bits(np.asarray(x).astype(want.dtype) * rounded) == bits(want)


def test_a_long_sum_of_numbers_does_not_recur() -> None:
    """Python's `sum` of arguments that are numbers is a chain of expressions, as deep as there are numbers."""
    numbers = list(range(1200))
    program = fx.trace(lambda xs, on: sum(xs) + sum([x > 3 for x in xs]) * on, numbers, True)
    assert int(np.asarray(fx.interpret(program, numbers, True))) == sum(numbers) + 1196


def test_the_inverse_of_a_bool_of_python_is_refused() -> None:
    """Python's `~True` is -2, which is true. In JAX it is False."""
    for f, argument in ((lambda n: fnp.where(~(n > 3), 1, 2), 5), (lambda b: ~b, True)):
        with pytest.raises(DTypeError, match=r"^invert: ~ of a bool of Python, Tracer<bool\[\]>: Python gives") as e:
            fx.jit(f)(argument)
        assert e.value.message.endswith("Python gives an int, -2 or -1, NumPy and JAX the other bool")
        logical = "fxad.numpy.logical_not gives the other bool; numpy.bool_(x) is an array of one bool"
        assert e.value.remedy == logical
    assert int(fx.jit(lambda n: ~n)(5)) == -6
    assert not fx.jit(lambda n: fnp.logical_not(n > 3))(5)
