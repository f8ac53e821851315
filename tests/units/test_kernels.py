"""How long XLA compiles, estimated: what is equal counts once; what is fused, with all that it is fused with."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn
from fxad.core.builder import Builder
from fxad.ir import Aval, Jaxpr
from fxad.passes import plan_of
from fxad.primitives import elementwise as ew
from fxad.primitives.control.call import Call
from fxad.primitives.manifest import ALL
from fxad.support.constants import (
    EQUATION_MS,
    EXPANDED_MS,
    KERNEL_MS,
    LIBRARY_MS,
    MAX_FUSED,
    OPERATION_MS,
    PROGRAM_MS,
    REDUCED_WITH,
)
from fxad.transforms.cleanup.derivative_rules import drop_derivative_rules
from fxad.transforms.costs import _OWN_KERNEL, Fusion, compile_cost
from fxad.transforms.fusion import Inlined
from fxad.units.compile_time import (
    FIRST_READ,
    MAX_READ,
    milliseconds,
    takes_at_least,
)
from fxad.units.kernels import Kernel, Kernels
from tests.laws.words import program

SQUARE = fx.Spec((64, 64))


def kernels(f: Callable[..., Any], *specs: Any) -> list[Kernel]:
    jaxpr = fx.simplify(fx.trace(f, *specs)).jaxpr
    return list(Kernels(Inlined(jaxpr, MAX_READ)).distinct.values())


def of(f: Callable[..., Any], *specs: Any) -> float:
    return milliseconds(fx.simplify(fx.trace(f, *specs)).jaxpr)


def layers(widths: Sequence[int], depth: int) -> Jaxpr:
    """Products and tanh, from each width to the next and round again."""
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


def test_tables_by_name_name_classes_of_primitives() -> None:
    """A class that is renamed would lose its row without a word."""
    assert {base.__name__ for kind in ALL for base in kind.__mro__} >= set(EXPANDED_MS) >= _OWN_KERNEL
    costs = {kind.__name__: compile_cost(kind) for kind in ALL}
    assert costs["Lgamma"] == (Fusion.EXPENSIVE, EXPANDED_MS["Lgamma"])
    assert costs["CumSum"] == (Fusion.KERNEL, EXPANDED_MS["Cumulative"])
    assert (costs["ScatterAdd"], costs["Tanh"][0]) == ((Fusion.KERNEL, 0.0), Fusion.EXPENSIVE)


def test_equal_kernels_count_once() -> None:
    one, many = layers([64], 2), layers([64], 40)
    assert milliseconds(many) - milliseconds(one) == pytest.approx(EQUATION_MS * (len(many.eqns) - len(one.eqns)))


def test_kernels_of_different_shapes_or_dtypes_are_distinct() -> None:
    many, least = layers([64 + 8 * k for k in range(31)], 30), 30 * (KERNEL_MS + LIBRARY_MS)
    assert milliseconds(many) > least > 8 * milliseconds(layers([64], 30))
    assert len(kernels(lambda x, y: (fnp.sin(x), fnp.sin(y)), SQUARE, SQUARE)) == 1
    assert len(kernels(lambda x, y: (fnp.sin(x), fnp.sin(y)), SQUARE, fx.Spec((64, 64), "float16"))) == 2
    assert len(kernels(lambda x: (x[1], x[2], x[1] * 2, x[2] * 2, x[2] * 3), SQUARE)) == 5


def residual(ws: Any, x: Any) -> Any:
    for w in ws:
        x = x + x @ w
    return x


def summed(ws: Any, x: Any) -> Any:
    made = []
    for w in ws:
        x = x + ws[0]
        made.append((x * 2) @ w)
    return made


def scaled(ws: Any, x: Any) -> Any:
    made = []
    for k, w in enumerate(ws):
        x = x * (k + 2)
        made.append(x @ w)
    return made


@pytest.mark.parametrize("f", [summed, scaled])
def test_cheap_values_are_fused_into_each_reader(f: Callable[..., Any]) -> None:
    """A sum whose readers are independent of each other, and a chain of cheap equations: each layer computes all of it
    again."""
    found = kernels(f, [SQUARE] * 6, SQUARE)
    sums = [k.milliseconds for k in found if k.fusion is Fusion.CHEAP]
    least = min(sums)
    assert np.diff(sums) == pytest.approx(OPERATION_MS)
    assert least - KERNEL_MS <= 2 * OPERATION_MS
    assert len([k for k in found if k.fusion is Fusion.KERNEL]) == 1


@pytest.mark.parametrize("shape", [(64, 64), (2, 64, 64)])
def test_a_sum_that_a_part_of_the_next_sum_reads_is_computed_once(shape: tuple[int, ...]) -> None:
    found = kernels(residual, [SQUARE] * 6, fx.Spec(shape))
    assert [k.fusion for k in found] == [Fusion.KERNEL, Fusion.CHEAP]


def test_readers_of_expensive_values_are_counted_by_kernel() -> None:
    """Two equations of one kernel read the first `tanh`. One equation reads the second, but two kernels."""
    one = kernels(lambda x: fnp.tanh(x) * (fnp.tanh(x) + 1), SQUARE)
    assert [k.fusion for k in one] == [Fusion.CHEAP]
    two = kernels(lambda x: [y * k for y in [fnp.tanh(x) + 1] for k in range(2, 4)], SQUARE)
    assert sorted(k.fusion.name for k in two) == ["CHEAP", "CHEAP", "EXPENSIVE"]


def test_an_operand_of_a_product_in_another_order_is_a_kernel_of_its_own() -> None:
    """The gradient of a matrix reads a batch of rows by columns."""
    x = fx.Spec((2, 64, 64))
    found = kernels(lambda x, y: lax.dot_general(2 * x, y, (((0, 1), (0, 1)), ((), ()))), x, x)
    assert [k.fusion for k in found] == [Fusion.CHEAP, Fusion.CHEAP, Fusion.KERNEL]


def norm(x: Any) -> Any:
    centred = x - fnp.mean(x, axis=-1, keepdims=True)
    return centred / fnp.sqrt(1e-5 + fnp.mean(centred * centred, axis=-1, keepdims=True))


def attention(x: Any, w: Any) -> Any:
    h = norm(x).reshape(2, 16, 32)
    weights = nn.softmax(h @ fnp.transpose(h, (0, 2, 1)))
    x = x + (weights @ (h @ w)).reshape(32, 32) @ w
    return x + nn.gelu(norm(x) @ w) @ w


LAYERS: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda x, w: fnp.tanh(x @ w),
    "residual": lambda x, w: x + fnp.tanh(x @ w),
    "normed tanh": lambda x, w: x + fnp.tanh(norm(x) @ w),
    "normed silu": lambda x, w: x + nn.silu(norm(x) @ w),
    "normed gelu": lambda x, w: x + nn.gelu(norm(x) @ w) @ w,
    "attention": attention,
}


def compiled_kernels(text: str) -> set[str]:
    """The distinct kernels of an optimised program: its fused computations, with values numbered in order."""
    found = set()
    names: dict[str, str] = {}

    def numbered(name: re.Match[str]) -> str:
        return names.setdefault(name[0], f"v{len(names)}")

    for head, body in re.findall(r"^(%[^ ]*) \(.*\{\n((?:  .*\n)+)\}", text, re.MULTILINE):
        if "fus" in head:
            names.clear()
            plain = re.sub(r", (?:metadata|backend_config)=.*", "", body)
            found.add(re.sub(r"%[\w.-]+", numbered, plain))
    return found


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_adds_as_many_kernels_as_in_the_programs_of_xla(name: str) -> None:
    """To the gradient. A layer whose kernels compute whole sums adds some, equal layers add none."""

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = LAYERS[name](x, w)
        return fnp.mean(x * x)

    small = fx.Spec((32, 32))  # such values are stored, and not computed again
    programs = [fx.value_and_grad(fx.trace(loss, [small] * depth, small)) for depth in (4, 5)]
    few, many = [len(compiled_kernels(fx.lower(p, units="none").compile().text())) for p in programs]
    estimated = [len(Kernels(Inlined(drop_derivative_rules(p.jaxpr), MAX_READ)).distinct) for p in programs]
    assert many >= few > 4
    assert estimated[1] - estimated[0] == many - few


def test_expensive_values_with_several_readers_are_computed_once() -> None:
    found = kernels(lambda x: [y * k for y in [fnp.tanh(x)] for k in range(2, 5)], SQUARE)
    assert sorted(k.fusion.name for k in found) == ["CHEAP", "CHEAP", "CHEAP", "EXPENSIVE"]
    assert len(kernels(lambda x: fnp.tanh(x) * 2, SQUARE)) == 1


def test_large_expressions_are_split() -> None:
    for n, count in ((MAX_FUSED, 1), (MAX_FUSED + 1, 1), (MAX_FUSED + 2, 2)):
        assert len(Kernels(Inlined(chain(fnp.negative, n), MAX_READ)).distinct) == count
    doubled = chain(lambda x: x * x + x, 60)  # computed where it is read, it would be 2 ** 60 operations
    assert milliseconds(doubled) < 120 * KERNEL_MS


def test_small_expressions_are_fused_into_a_reduction() -> None:
    def sums(n: int) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            for k in range(n):
                x = x * (k + 2)
            return fnp.sum(x, axis=0)

        return f

    assert [k.fusion for k in kernels(sums(REDUCED_WITH), SQUARE)] == [Fusion.REDUCTION]
    assert [k.fusion for k in kernels(sums(REDUCED_WITH + 1), SQUARE)] == [Fusion.CHEAP, Fusion.REDUCTION]


def test_views_and_transposed_products_cost_little() -> None:
    x = fx.Spec((8, 8))
    assert of(lambda x: x.reshape(64)[:, None], x) == pytest.approx(PROGRAM_MS + EQUATION_MS)
    assert of(lambda x: x @ x, x) < of(fnp.sin, x) < of(lambda x: fnp.cumsum(x, axis=0), x)
    assert of(lambda x: fnp.sum(x, 0), x) < of(fnp.sin, x)
    # a product reads a matrix either way
    assert of(lambda x: x @ x.T, x) < of(lambda x: x @ x, x) + 1
    assert of(lambda x: (x @ x).T, x) < of(lambda x: x @ x, x) + 1


@pytest.mark.parametrize("f", [lax.lgamma, lax.digamma, lax.erfc, lax.erf_inv, lambda x: lax.igamma(x, x)])
def test_costs_of_special_functions_in_a_chain_add_up(f: Callable[[Any], Any]) -> None:
    """They are one kernel, of all their polynomials: 22 ms each for a log-gamma, where a sine adds 1."""
    one, ten = milliseconds(chain(f, 1)), milliseconds(chain(f, 10))
    assert ten - one > 8 * (one - KERNEL_MS - PROGRAM_MS) > 100
    assert milliseconds(chain(fnp.sin, 10)) - milliseconds(chain(fnp.sin, 1)) < 20


def test_a_loop_is_compiled_once() -> None:
    def scanned(n: int) -> float:
        return of(lambda x: lax.scan(lambda c, _: (fnp.sin(c) @ c, None), x, None, length=n)[0], SQUARE)

    assert scanned(5) == scanned(500) > of(lambda x: fnp.sin(x) @ x, SQUARE)


# ------------------------------------------------------------------------------------------------------------- calls


def test_calls_are_inlined_by_the_estimate() -> None:
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


def test_nested_calls_of_an_empty_body_take_bounded_time() -> None:
    """Each calls the one before twice: 2 ** 3000 calls of a body without equations."""
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


def test_equations_beyond_the_limit_are_not_read() -> None:
    n = MAX_READ
    assert (
        milliseconds(chain(fnp.sin, n)) == milliseconds(chain(fnp.sin, n + 100)) > milliseconds(chain(fnp.sin, n - 1))
    )


def test_the_first_equations_may_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = chain(fnp.sin, FIRST_READ - 1), chain(fnp.sin, 2 * FIRST_READ)
    first, both = milliseconds(short), milliseconds(long)
    assert first < both
    assert takes_at_least(short, first)
    assert not takes_at_least(short, first + 0.1)
    assert takes_at_least(long, both)
    assert not takes_at_least(long, both + 0.1)
    monkeypatch.setattr("fxad.units.compile_time.milliseconds", None)  # which looks at all of it
    assert takes_at_least(long, first)
    assert not takes_at_least(short, both)


# --------------------------------------------------------------------------------------------------------- monotone


LETTERS = (ew.SIN, ew.COS, ew.TANH, ew.NEG, ew.ABS, ew.LGAMMA)


@given(st.lists(st.integers(0, len(LETTERS) - 1), min_size=1, max_size=20), st.integers(0, len(LETTERS) - 1))
def test_the_estimate_is_monotone(word: list[int], letter: int) -> None:
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
