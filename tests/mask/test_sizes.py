"""Sizes: integer polynomials in named sizes, their normal form, order and syntax."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.vendor.pretty import pretty

import fxad as fx
from fxad.core.sizes.equations import solve_sizes
from fxad.core.sizes.lower_bounds import at_least, lower_bound
from fxad.core.sizes.polynomials import exact_text
from fxad.core.sizes.size import Size, bound_size, maximum, minimum, named_size, substitute_sizes
from fxad.core.sizes.text import Reader, read_size
from fxad.core.sizes.upper_bounds import upper_bound
from fxad.errors import ArgumentError, ShapeError, SizeError
from fxad.ir import Aval, Lit

N, M, K = named_size("n"), named_size("m", 1), named_size("k")
LEAVES = st.one_of(st.integers(-4, 5), st.sampled_from([N, M, K]))


def _grown(inner: st.SearchStrategy[int]) -> st.SearchStrategy[int]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - p[1]),
        pairs.map(lambda p: p[0] * p[1]),
        pairs.map(lambda p: maximum(*p)),
        pairs.map(lambda p: minimum(*p)),
        st.tuples(inner, st.integers(1, 4)).map(lambda p: p[0] // p[1]),
        pairs.map(lambda p: p[0] // maximum(p[1], 1)),
        st.tuples(inner, st.integers(1, 4)).map(lambda p: p[0] % p[1]),
        inner.map(lambda a: maximum(a, 0).bit_length()),
    )


SIZES = st.recursive(LEAVES, _grown, max_leaves=6)
VALUES = st.fixed_dictionaries({"n": st.integers(0, 9), "m": st.integers(1, 9), "k": st.integers(0, 9)})


@given(a=SIZES, b=SIZES, values=VALUES)
def test_arithmetic_is_that_of_the_values(a: int, b: int, values: dict[str, int]) -> None:
    x, y = substitute_sizes(a, values), substitute_sizes(b, values)
    assert substitute_sizes(a + b, values) == x + y
    assert substitute_sizes(a - b, values) == x - y
    assert substitute_sizes(a * b, values) == x * y
    assert substitute_sizes(maximum(a, b), values) == max(x, y)
    assert substitute_sizes(minimum(a, b), values) == min(x, y)
    assert substitute_sizes(a // 3, values) == x // 3
    if y > 0 and type(b) is Size:
        assert substitute_sizes(a // b, values) == x // y


@settings(max_examples=3 * settings().max_examples)
@given(a=SIZES, b=SIZES, values=VALUES)
def test_a_decided_order_is_that_of_the_values(a: int, b: int, values: dict[str, int]) -> None:
    x, y = substitute_sizes(a, values), substitute_sizes(b, values)
    low = lower_bound(a)
    assert low is None or low <= x
    orders = ((operator.ge, x >= y), (operator.lt, x < y), (operator.gt, x > y), (operator.le, x <= y))
    for order, holds in orders:
        try:
            actual = order(a, b)
        except SizeError:
            continue
        assert actual == holds


@given(a=SIZES)
def test_text_and_copies_give_the_same_object(a: int) -> None:
    assert read_size(exact_text(a)) is a or read_size(exact_text(a)) == a
    if type(a) is Size:
        assert pickle.loads(pickle.dumps(a)) is a
        assert copy.deepcopy(a) is a
        assert a - a == 0
        assert a + 0 is a
        assert a * 1 is a


@given(a=SIZES, padded=VALUES, data=st.data())
def test_upper_bound_is_at_least_every_value(a: int, padded: dict[str, int], data: st.DataObject) -> None:
    values = {
        name: data.draw(st.integers(named_least, padded[name])) for name, named_least in (("n", 0), ("m", 1), ("k", 0))
    }
    assert upper_bound(a, padded) >= substitute_sizes(a, values)


def test_the_padding_of_a_quotient_that_is_rounded_up() -> None:
    places = -(-(N + 2) // M)
    assert upper_bound(places, {"n": 3, "m": 4}) == 5
    assert upper_bound(N * places, {"n": 3, "m": 4}) == 15
    assert upper_bound(places, {"m": 4}) == N + 2


def test_the_padding_of_a_quotient_by_a_negative_number() -> None:
    """Regression: such divisors were taken for 1."""
    assert -(N // -4) is -(-N // 4) is (N + 3) // 4
    assert upper_bound(-(N // -4), {"n": 5}) == 2
    assert upper_bound(N - N // -2, {"n": 5}) == 8
    assert upper_bound(N - N // (M - 4), {"n": 5, "m": 6}) == 10


def test_the_padding_of_a_remainder() -> None:
    """Bounds of its single terms would be wider."""
    assert upper_bound((-1) % M, {"m": 4}) == 3
    assert upper_bound(N % M, {"n": 9, "m": 4}) == 3
    assert upper_bound(N - N // 2 * 2, {"n": 9}) == 1
    assert upper_bound(N // 2 * 2, {"n": 9}) == 8
    same = ((N + 1) // 2 - 1) * 2 + 3 - N  # the padding of a convolution with "SAME", a window of 3, a stride of 2
    assert upper_bound(same // 2, {"n": 128}) == 1
    halved = M
    for _ in range(12):  # the same in each of several layers
        assert upper_bound((((halved + 1) // 2 - 1) * 2 + 3 - halved) // 2, {"m": 4096}) == 1
        halved = (halved + 1) // 2


def test_normal_form() -> None:
    assert (N + M) * 2 - M is 2 * N + M
    assert (2 * N + 4) // 2 is N + 2
    assert (N * M) // M is N
    assert (N * N - 1) // (N - 1) is N + 1
    assert (3 * N) % 3 == 0
    assert (-1) % M is M - 1
    assert maximum(N, 0) is N
    assert type(N - N) is int
    assert N != 0
    assert N != 3
    assert hash(N) == hash(named_size("n"))
    assert str(-(-N // 8)) == "(n + 7)//8"
    assert str((-2) // (N * M)) == "(-2)//(m*n)"
    assert str(2 * N * M - (N // 2) * 3 + 1) == "2*m*n - 3*(n//2) + 1"
    assert str(Aval((N, 3), "float32")) == "f32[n,3]"
    assert str(Aval((M - 1,), "int8")) == "i8[(m>0)-1]"
    assert repr(Lit.of(N + 1, Aval((N,), "float32"))) == "{n+1}:f32[n]"
    assert maximum(0, 2 * N - 1) is N + maximum(0, N - 1)  # and so in every sum: texts of sums are read term by term
    assert maximum(M, M + 2 * N - 1) is M + N + maximum(0, N - 1)
    assert maximum(N * N, N * N + 2 * N - 1) is N * N + N + maximum(0, N - 1)


def test_assumptions_decide() -> None:
    assert N >= 0
    assert M >= 1
    assert M > 0
    assert not M < 1
    assert N + M > N
    assert N - N // 2 * 2 >= 0
    assert N < 2**31
    assert M - M // 2 >= 1
    assert -(-N // 8) >= 0
    assert -(-N // M) >= 0
    assert -N // M <= 0
    assert M + -N // M >= M - N
    assert M.bit_length() >= 1
    assert N.bit_length() <= N
    assert at_least(N * M, 0)
    assert not at_least(N * M, 1)


def test_numpy_calculates_with_sizes() -> None:
    assert np.prod((N, 3)) == 3 * N
    assert np.int64(2) * N == 2 * N
    assert np.int64(3) != N


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda: N > 0,
            "size: n > 0 is not decided by n >= 0",
        ),
        (
            lambda: range(N),
            "size: n has no value while the program is of symbolic shape",
        ),
        (
            lambda: N * 0.5,
            "size: n * 0.5 is not a size",
        ),
        (
            lambda: N / 2,
            "size: n / 2 is not a size",
        ),
        (
            lambda: 1 / N,
            "size: 1 / n is not a size",
        ),
        (
            lambda: 2**N,
            "size: 2 ** n is not a size",
        ),
        (
            lambda: 1.5 - N,
            "size: 1.5 - n is not a size",
        ),
        (
            lambda: 1.5 // N,
            "size: 1.5 // n is not a size",
        ),
        (
            lambda: 1.5 % N,
            "size: 1.5 % n is not a size",
        ),
        (
            lambda: np.sqrt(N),
            "numpy.sqrt: the size n has no value while the program is of symbolic shape",
        ),
    ],
)
def test_refusals(use: Callable[[], object], message: str) -> None:
    with pytest.raises(SizeError) as caught:
        use()
    assert caught.value.message == message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("(n, m)", (N, named_size("m"))),
        ("n", (N,)),
        ("", ()),
        ("()", ()),
        ("(2*n+1, _)", (2 * N + 1, None)),
        ("n, 3", (N, 3)),
        ("(n,)", (N,)),
        ("(n*(n - 1)//2)", (N * (N - 1) // 2,)),
        ("n^2", (N * N,)),
        ("(m>=1, m)", (M, M)),
        ("m>0", (M,)),
        ("max(n, 3)", (maximum(N, 3),)),
        ("-n + 7", (7 - N,)),
        ("n + -1", (N - 1,)),
        ("n * -2^2", (-4 * N,)),
        ("bits(n + 1)", ((N + 1).bit_length(),)),
    ],
)
def test_syntax(text: str, shape: tuple[int | None, ...]) -> None:
    assert Reader(text, {}).shape() == shape


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(n, m", "expected ')', got ','"),
        ("n m", "'m' is not part of a size"),
        ("n +", "expected a size, got the end"),
        ("(n, $)", "expected a size, got '$'"),
        ("n//0", "division by 0"),
        ("n >= m", "n >= is followed by a number"),
        ("9" * 20, "a size is too large"),
        ("²", "expected a size, got '²'"),
        ("n^²", "a power is a small number"),
        ("n >= ²", "n >= is followed by a number"),
    ],
)
def test_malformed(text: str, problem: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Reader(text, {}).shape()
    assert caught.value.message == f"shape: {text!r}: {problem}"


@pytest.mark.parametrize("text", ["(" * 3000 + "n" + ")" * 3000, "-" * 3000 + "n"])
def test_nested_too_deeply(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"^shape: .{200}: a size is nested too deeply"):
        read_size(text)


def test_the_assumptions_decide_about_large_sizes_first() -> None:
    assert N + 2**40 >= 2**40
    assert N + 2**31 > 2**31 - 1
    assert not N + 2**31 < 2**31
    assert N <= 2**31  # no dimension is larger


@pytest.mark.parametrize("name", ["none", "complex", "2n"])
def test_names_that_no_size_may_have(name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        named_size(name)
    assert caught.value.message == f"size: {name!r} is not a name of a size"
    assert caught.value.remedy == (
        "give an identifier that begins with a letter, and not bits, complex, div, false, max, min, none, true"
    )


def test_sizes_that_shapes_determine() -> None:
    assert solve_sizes("f", [(2 * N + 1, 7, "x"), (N * M, 12, "y")]) == {"n": 3, "m": 4}
    with pytest.raises(ShapeError, match=r"f: y is 4, but n is 3: n = 3 by x"):
        solve_sizes("f", [(N, 3, "x"), (N, 4, "y")])
    with pytest.raises(ShapeError, match=r"f: x is 4, which is not 2\*n for any n >= 0|f: x is 5"):
        solve_sizes("f", [(2 * N, 5, "x")])
    with pytest.raises(ShapeError, match=r"does not determine the sizes in m\*n"):
        solve_sizes("f", [(N * M, 12, "x")])


def test_hypothesis_prints_sizes() -> None:
    n = named_size("n")
    program = fx.trace(lambda x: x.sum(), fx.Spec("n"))
    assert pretty([n, 2 * n - 3, {n: n}]) == "[n, 2*n - 3, {n: n}]"
    assert pretty(fx.Spec((n, 2))) == repr(fx.Spec((n, 2)))
    assert "n" in pretty(program.jaxpr)


def test_hypothesis_shows_the_case_that_fails_and_not_a_comparison() -> None:
    @settings(database=None, max_examples=5)
    @given(st.sampled_from([named_size("n") + 1]), st.just(named_size("n")))
    def law(size: int, other: int) -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong") as e:
        law()
    assert "size=n + 1," in "\n".join(e.value.__notes__)


def test_a_multiple_of_a_rounded_quotient_is_decided() -> None:
    n, k = named_size("n", 1), named_size("k")
    assert n * (k // n) <= k
    assert k - n < n * (k // n)
    assert n * ((k + n - 1) // n) >= k
    with pytest.raises(SizeError, match="is not decided by"):
        bool(n * (k // n) >= k)


def test_sizes_that_batch_rules_bind_have_reserved_names() -> None:
    assert read_size(exact_text(bound_size(0, 1))) is bound_size(0, 1)
    with pytest.raises(ArgumentError) as e:
        fx.Spec("_axis0")
    assert e.value.message == "shape: '_axis0': expected a size, got '_axis0'"
    with pytest.raises(SizeError, match="_axis0 > 4 is not decided by _axis0 >= 0"):
        bool(bound_size(0) > 4)


def test_products_of_functions_are_read_as_they_are_written() -> None:
    n, m, k = named_size("n"), named_size("m"), named_size("k")
    a, b = maximum(n, m), maximum(n, k)
    for size in (2 * (a * b), (2 * a) * b, a * (b + b), 3 * a * b + n, -2 * (a * b), 2 * n * a, 2 * a * a):
        assert read_size(exact_text(size)) is size
