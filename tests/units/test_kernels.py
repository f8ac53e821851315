"""Estimates of XLA's compile time by kernels: equal kernels count once; a kernel contains everything that XLA fuses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn
from fxad.core.builder import Builder
from fxad.core.constants import (
    EQUATION_MS,
    EXPANDED_MS,
    IN_PLACE_CUMULATIVE_NS,
    IN_PLACE_DIVISION_NS,
    IN_PLACE_FUNCTION_NS,
    IN_PLACE_NS,
    IN_PLACE_OPERATION_NS,
    KERNEL_MS,
    LIBRARY_MS,
    PROGRAM_MS,
)
from fxad.ir import Aval, Jaxpr
from fxad.passes import plan_of
from fxad.primitives import elementwise as ew
from fxad.primitives.control.call import Call
from fxad.primitives.manifest import ALL
from fxad.testing.programs import programs
from fxad.transforms.costs import _OWN_KERNEL, Kind, compile_cost
from fxad.units.compile_time import (
    _EXTREMA,
    _REARRANGED,
    FIRST_READ,
    LESS_EXACT,
    MAX_READ,
    milliseconds,
    takes_at_least,
    wants_full_effort,
)
from fxad.units.in_place import _CUMULATIVE, _SCALAR, microseconds_lost
from fxad.units.kernels import MAX_FUSED, REDUCED_WITH, Inlined, Kernel, Kernels
from tests.laws.words import program

SQUARE = fx.Spec((64, 64))


def kernels(f: Callable[..., Any], *specs: Any) -> list[Kernel]:
    jaxpr = fx.simplify(fx.trace(f, *specs)).jaxpr
    return list(Kernels(Inlined(jaxpr, MAX_READ)).distinct.values())


def compile_ms(f: Callable[..., Any], *specs: Any) -> float:
    return milliseconds(fx.simplify(fx.trace(f, *specs)).jaxpr)


def layers(widths: Sequence[int], depth: int) -> Jaxpr:
    """Returns a program of products and tanh. Layer k goes from width k to width k + 1; the widths repeat."""
    sizes = [widths[k % len(widths)] for k in range(depth + 1)]

    def f(ws: Any, x: Any) -> Any:
        for w in ws:
            x = fnp.tanh(x @ w)
        return x

    return fx.trace(f, [fx.Spec(pair) for pair in pairwise(sizes)], fx.Spec((64, widths[0]))).jaxpr


def chain(f: Callable[[Any], Any], n: int) -> Jaxpr:
    def many(x: Any) -> Any:
        for _ in range(n):
            x = f(x)
        return x

    return fx.trace(many, SQUARE).jaxpr


# ------------------------------------------------------------------------------------------------------------- kernels


def test_keys_of_tables_by_name_are_classes_of_primitives() -> None:
    """If a class of primitives was renamed, its row in a table would have no effect without an error."""
    assert {kind.__name__ for kind in ALL} >= LESS_EXACT | _EXTREMA | _REARRANGED
    assert {kind.__name__ for kind in ALL} >= _SCALAR
    assert {base.__name__ for kind in ALL for base in kind.__mro__} >= set(EXPANDED_MS) >= _OWN_KERNEL
    assert {base.__name__ for kind in ALL for base in kind.__mro__} >= _CUMULATIVE
    costs = {kind.__name__: compile_cost(kind) for kind in ALL}
    assert costs["Lgamma"] == (Kind.EXPENSIVE, EXPANDED_MS["Lgamma"])
    assert costs["CumSum"] == (Kind.KERNEL, EXPANDED_MS["Cumulative"])
    assert (costs["ScatterAdd"], costs["Tanh"][0]) == ((Kind.KERNEL, 0.0), Kind.EXPENSIVE)


def test_equal_kernels_count_once() -> None:
    one, many = layers([64], 2), layers([64], 40)
    assert milliseconds(many) - milliseconds(one) == pytest.approx(EQUATION_MS * (len(many.eqns) - len(one.eqns)))


def test_kernels_of_different_shapes_and_types_count_separately() -> None:
    many, least = layers([64 + 8 * k for k in range(31)], 30), 30 * (KERNEL_MS + LIBRARY_MS)
    assert milliseconds(many) > least > 8 * milliseconds(layers([64], 30))
    assert len(kernels(lambda x, y: (fnp.sin(x), fnp.sin(y)), SQUARE, SQUARE)) == 1
    assert len(kernels(lambda x, y: (fnp.sin(x), fnp.sin(y)), SQUARE, fx.Spec((64, 64), "float16"))) == 2
    assert len(kernels(lambda x: (x[1], x[2], x[1] * 2, x[2] * 2, x[2] * 3), SQUARE)) == 5


def test_equal_kernels_are_counted() -> None:
    """XLA compiles a program of few equal kernels with less effort."""

    def functions(widths: Sequence[int]) -> Jaxpr:
        """Returns a program of functions of several operands. No kernel writes in place."""
        return fx.trace(lambda *xs: [fnp.tanh(x) + 1 for x in xs], *[fx.Spec((64, w)) for w in widths]).jaxpr

    assert wants_full_effort(functions([64] * 30))
    assert not wants_full_effort(functions([64 + 8 * k for k in range(30)]))
    assert not wants_full_effort(fx.trace(fnp.sin, SQUARE).jaxpr)
    assert not wants_full_effort(Builder().build((), "nothing"))
    assert wants_full_effort(fx.trace(fnp.tan, SQUARE).jaxpr)
    assert wants_full_effort(fx.trace(lambda x: lax.map(fnp.cbrt, x), SQUARE).jaxpr)
    assert wants_full_effort(fx.trace(fx.grad(lambda x: fnp.sum(fnp.sin(x).max(1))), SQUARE).jaxpr)
    assert wants_full_effort(fx.trace(fx.grad(lambda x: lax.cummax(fnp.sin(x)).sum()), SQUARE).jaxpr)
    assert not wants_full_effort(fx.trace(lambda x: fnp.sin(x).max(1), SQUARE).jaxpr)
    assert wants_full_effort(chain(fnp.sin, MAX_READ + 1))  # not known, because only a part of the program is read


def test_a_loop_without_a_known_length_is_compiled_with_full_effort() -> None:
    """A loop with a known number of iterations is compiled so only if its runs lose enough time."""

    def halved(x: Any) -> Any:
        return lax.while_loop(lambda v: v.sum() > 1, lambda v: v / 2, x)

    assert wants_full_effort(fx.trace(halved, SQUARE).jaxpr)
    assert wants_full_effort(fx.trace(lambda x: lax.cond(x.sum() > 0, halved, fnp.sin, x), SQUARE).jaxpr)
    few = fx.Spec((8,))
    assert not wants_full_effort(fx.trace(lambda x: lax.fori_loop(0, 9, lambda _, v: fnp.sin(v), x), few).jaxpr)


def lost(f: Callable[..., Any], *specs: Any, donate: Sequence[int] = ()) -> float:
    """Returns the nanoseconds that a run loses without fusion emitters, for each of the 4,096 elements of a square."""
    program = Inlined(fx.simplify(fx.trace(f, *specs)).jaxpr, MAX_READ)
    return 1e3 * microseconds_lost(program, Kernels(program), donate) / 4096


def test_a_kernel_that_writes_in_place_has_a_scalar_loop_with_less_effort() -> None:
    """XLA tells LLVM that a result does not overlap an operand, except for an operand whose memory the result
    reuses."""
    plain, function = IN_PLACE_NS + IN_PLACE_OPERATION_NS, IN_PLACE_NS + IN_PLACE_FUNCTION_NS
    assert lost(lambda x: x * 2, SQUARE) == 0
    assert lost(lambda x: x * 2, SQUARE, donate=(0,)) == pytest.approx(plain)
    assert lost(lambda x: x.astype("bool"), SQUARE, donate=(0,)) == 0  # other element size
    assert lost(lambda x: x.T * 2, SQUARE, donate=(0,)) == 0  # other order of elements
    assert lost(lambda x, w: fnp.tanh(x @ w), SQUARE, SQUARE) == pytest.approx(function)
    assert lost(lambda x, w: fnp.tanh((x @ w)[0]), SQUARE, SQUARE) == 0
    assert lost(lambda x, w: (fnp.tanh(y := x @ w), y), SQUARE, SQUARE) == 0  # y is also a result
    assert lost(lambda x, w: (fnp.tanh(y := x @ w), y @ w), SQUARE, SQUARE) == 0  # y is read again later
    assert lost(lambda x, w: fnp.tanh(x @ w) @ w, SQUARE, SQUARE) == pytest.approx(function)
    assert lost(lambda x, w: fnp.sin(x @ w), SQUARE, SQUARE) == pytest.approx(plain)  # sin is never vectorised
    assert lost(lambda x, w: 1 / (x @ w), SQUARE, SQUARE) == pytest.approx(IN_PLACE_NS + IN_PLACE_DIVISION_NS)


def test_kernels_in_loops_write_in_place() -> None:
    rows, row = fx.Spec((64, 64)), fx.Spec((64,))
    function = IN_PLACE_NS + IN_PLACE_FUNCTION_NS
    assert lost(lambda x: lax.map(fnp.tanh, x), rows) == pytest.approx(function)  # into a slice of the result
    assert lost(lambda c: lax.fori_loop(0, 64, lambda _, v: fnp.tanh(v), c), row) == pytest.approx(function)  # a carry
    assert lost(lambda x: lax.map(fnp.tanh, x), fx.Spec((128, 8))) == 0  # shorter than a vector
    assert lost(lambda x: fnp.cumsum(x, 0), rows) == pytest.approx(IN_PLACE_CUMULATIVE_NS)
    assert lost(lambda x: fnp.cumsum(x, 0), fx.Spec((8, 2))) == 0
    branches = [lambda v, k=k: fnp.tanh(v @ v + k) for k in range(4)]
    chosen = lost(lambda i, x: lax.switch(i, branches, x), fx.Spec((), "int32"), SQUARE)
    assert chosen == pytest.approx(function + IN_PLACE_OPERATION_NS)  # only one of them runs
    assert lost(lambda x, w, i: fnp.tanh((x @ w)[i]), SQUARE, SQUARE, fx.Spec((64,), "int32")) == 0  # a gather
    update = lost(lambda x, y: lax.dynamic_update_slice(x, fnp.tanh(y), (0, 0)), SQUARE, SQUARE)
    assert update == pytest.approx(function)


def test_programs_that_lose_run_time_are_compiled_with_full_effort() -> None:
    """With less effort, an update of Adam took 5 times as long, a scan 6 times, and a gradient with tanh 1.7 times."""

    def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 1e-3 * m / (fnp.sqrt(v) + 1e-8), m, v

    update = fx.trace(adam, *[SQUARE] * 4).jaxpr
    assert not wants_full_effort(update)
    assert wants_full_effort(update, donate=(0, 1, 2))
    scan = fx.trace(lambda c, xs: lax.scan(lambda c, x: (fnp.tanh(c + x),) * 2, c, xs), fx.Spec((64,)), SQUARE).jaxpr
    assert wants_full_effort(scan)
    assert wants_full_effort(fx.trace(fx.grad(lambda x, w: fnp.sum(fnp.tanh(x @ w) ** 2)), SQUARE, SQUARE).jaxpr)
    large = fx.Spec((512, 4096)), fx.Spec((4096, 4096))
    assert not wants_full_effort(fx.trace(lambda x, w: fnp.tanh(x @ w), *large).jaxpr)


@given(programs())
def test_donation_does_not_reduce_the_time_lost(jaxpr: Jaxpr) -> None:
    inlined = Inlined(jaxpr, MAX_READ)
    kernels = Kernels(inlined)
    assert 0 <= microseconds_lost(inlined, kernels) <= microseconds_lost(inlined, kernels, range(len(jaxpr.ins)))


def residual(ws: Any, x: Any) -> Any:
    for w in ws:
        x = x + x @ w
    return x


def scaled(ws: Any, x: Any) -> Any:
    made = []
    for k, w in enumerate(ws):
        x = x * (k + 2)
        made.append(x @ w)
    return made


@pytest.mark.parametrize(("f", "shape"), [(residual, (2, 64, 64)), (scaled, (64, 64))])
def test_cheap_expressions_are_fused_into_each_reader(f: Callable[..., Any], shape: tuple[int, ...]) -> None:
    """The sum of a residual stream that a product reads as a matrix, and a chain of scalings: each layer computes all
    terms again."""
    found = kernels(f, [SQUARE] * 6, fx.Spec(shape))
    sums = [k.milliseconds for k in found if k.kind is Kind.CHEAP]
    assert sums == pytest.approx([sums[0] * (k + 1) for k in range(6)])
    assert len([k for k in found if k.kind is Kind.KERNEL]) == 1


def test_a_sum_that_a_product_reads_without_a_reshape_is_computed_once() -> None:
    assert [k.kind for k in kernels(residual, [SQUARE] * 6, SQUARE)] == [Kind.KERNEL, Kind.CHEAP]


def test_expensive_values_are_computed_once() -> None:
    found = kernels(lambda x: [y * k for y in [fnp.tanh(x)] for k in range(2, 5)], SQUARE)
    assert sorted(k.kind.name for k in found) == ["CHEAP", "CHEAP", "CHEAP", "EXPENSIVE"]
    assert len(kernels(lambda x: fnp.tanh(x) * 2, SQUARE)) == 1


def test_the_size_of_a_fused_expression_is_bounded() -> None:
    for n, count in ((MAX_FUSED, 1), (MAX_FUSED + 1, 1), (MAX_FUSED + 2, 2)):
        assert len(Kernels(Inlined(chain(fnp.negative, n), MAX_READ)).distinct) == count
    doubled = chain(lambda x: x * x + x, 60)  # inlined into its readers, it would be 2 ** 60 operations
    assert milliseconds(doubled) < 120 * KERNEL_MS


def test_a_reduction_is_fused_with_a_few_operations_on_its_operand() -> None:
    def sums(n: int) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            for k in range(n):
                x = x * (k + 2)
            return fnp.sum(x, axis=0)

        return f

    assert [k.kind for k in kernels(sums(REDUCED_WITH), SQUARE)] == [Kind.REDUCTION]
    assert [k.kind for k in kernels(sums(REDUCED_WITH + 1), SQUARE)] == [Kind.CHEAP, Kind.REDUCTION]


def test_reshapes_products_and_sums_take_little_time() -> None:
    x = fx.Spec((8, 8))
    assert compile_ms(lambda x: x.reshape(64)[:, None], x) == pytest.approx(PROGRAM_MS + EQUATION_MS)
    assert compile_ms(lambda x: x @ x, x) < compile_ms(fnp.sin, x) < compile_ms(lambda x: fnp.cumsum(x, axis=0), x)
    assert compile_ms(lambda x: fnp.sum(x, 0), x) < compile_ms(fnp.sin, x)
    # a product reads a matrix in either order
    assert compile_ms(lambda x: x @ x.T, x) < compile_ms(lambda x: x @ x, x) + 1
    assert compile_ms(lambda x: (x @ x).T, x) < compile_ms(lambda x: x @ x, x) + 1


@pytest.mark.parametrize("f", [lax.lgamma, lax.digamma, lax.erfc, lax.erf_inv, lambda x: lax.igamma(x, x)])
def test_consecutive_special_functions_are_one_kernel(f: Callable[[Any], Any]) -> None:
    """They are one kernel with the code of all their polynomials: 22 ms for each log-gamma, 1 ms for each sine."""
    one, ten = milliseconds(chain(f, 1)), milliseconds(chain(f, 10))
    assert ten - one > 8 * (one - KERNEL_MS - PROGRAM_MS) > 100
    assert milliseconds(chain(fnp.sin, 10)) - milliseconds(chain(fnp.sin, 1)) < 20


def test_a_loop_is_compiled_once() -> None:
    def scanned(n: int) -> float:
        return compile_ms(lambda x: lax.scan(lambda c, _: (fnp.sin(c) @ c, None), x, None, length=n)[0], SQUARE)

    assert scanned(5) == scanned(500) > compile_ms(lambda x: fnp.sin(x) @ x, SQUARE)


# ------------------------------------------------------------------------------------------------------------- calls


def test_calls_are_inlined() -> None:
    layer = fx.jit(lambda x, w: x + nn.softmax(x @ w))

    def stream(f: Callable[..., Any]) -> Any:
        def g(ws: Any, x: Any) -> Any:
            for w in ws:
                x = f(x, w)
            return x

        return fx.trace(g, [SQUARE] * 5, SQUARE)

    called = stream(layer)
    inline = fx.inline(called)
    assert len(called.jaxpr.eqns) == 5 < len(inline.jaxpr.eqns)
    assert milliseconds(called.jaxpr) == pytest.approx(milliseconds(inline.jaxpr) + 5 * EQUATION_MS)


def test_nested_calls_of_nothing_end() -> None:
    """Each function calls the one before twice: 2 ** 3000 calls of a body without equations."""
    b = Builder()
    nested = b.build(b.inputs([Aval((256, 256), "float32")]))
    for _ in range(3000):
        b = Builder()
        (x,) = b.inputs(nested.in_avals)
        for _ in range(2):
            (x,) = b(Call(nested), x)
        nested = b.build([x])
    before = time.process_time()
    assert milliseconds(nested) == pytest.approx(PROGRAM_MS + EQUATION_MS * MAX_READ)
    assert len(plan_of(nested, "auto").steps) == 1
    assert time.process_time() - before < 10


def test_only_the_beginning_of_a_long_program_is_read() -> None:
    n = MAX_READ
    assert (
        milliseconds(chain(fnp.sin, n)) == milliseconds(chain(fnp.sin, n + 100)) > milliseconds(chain(fnp.sin, n - 1))
    )


def test_the_first_layers_may_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = chain(fnp.sin, FIRST_READ - 1), chain(fnp.sin, 2 * FIRST_READ)
    first, both = milliseconds(short), milliseconds(long)
    assert first < both
    assert takes_at_least(short, first)
    assert not takes_at_least(short, first + 0.1)
    assert takes_at_least(long, both)
    assert not takes_at_least(long, both + 0.1)
    monkeypatch.setattr("fxad.units.compile_time.milliseconds", None)  # this function would read the whole program
    assert takes_at_least(long, first)
    assert not takes_at_least(short, both)


# --------------------------------------------------------------------------------------------------------- monotone


LETTERS = (ew.SIN, ew.COS, ew.TANH, ew.NEG, ew.ABS, ew.LGAMMA)


@given(st.lists(st.integers(0, len(LETTERS) - 1), min_size=1, max_size=20), st.integers(0, len(LETTERS) - 1))
def test_a_longer_program_takes_longer(word: list[int], letter: int) -> None:
    aval = Aval((64,), "float32")
    longer = program([*word, letter], aval, LETTERS)
    assert milliseconds(longer) > milliseconds(program(word, aval, LETTERS)) > PROGRAM_MS


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_network_takes_at_least_as_long_as_its_layers(depth: int) -> None:
    layer = fx.jit(lambda p, x: x + fnp.tanh((x - fnp.mean(x, axis=1, keepdims=True)) @ p))

    def loss(ps: Any, x: Any) -> Any:
        for p in ps:
            x = layer(p, x)
        return fnp.mean(x * x)

    def gradient(depth: int) -> Jaxpr:
        jaxpr: Jaxpr = fx.value_and_grad(fx.trace(loss, [SQUARE] * depth, SQUARE)).jaxpr
        return jaxpr

    both = gradient(depth)
    bodies = [e.prim.body for e in both.eqns if isinstance(e.prim, Call)]
    assert len(set(bodies)) >= 2
    assert milliseconds(both) >= max([milliseconds(b) for b in bodies])
    assert milliseconds(gradient(depth + 1)) > milliseconds(both)
