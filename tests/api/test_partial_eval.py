"""`partial_eval` of loops, branches and segments: known equations are in the known program, and no equation is in
both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError
from fxad.ir import Jaxpr, distinct_jaxprs
from fxad.testing import Case, check_tangents_transpose
from fxad.testing.memory_laws import work
from fxad.text import parse

RNG = np.random.default_rng(0)
A, B = [RNG.standard_normal((4, 3)).astype(np.float32) for _ in range(2)]


def halved(f: Callable[[Any, Any], Any], a: Any = A, b: Any = B) -> tuple[Any, Any, Any]:
    """Returns both halves of a function whose first argument is known. Together they give the results of the function,
    bit for bit."""
    program = fx.trace(f, a, b)
    halves = fx.partial_eval(program, (True, False))
    first, residuals = fx.interpret(halves.known, a)
    rest = fx.interpret(halves.unknown, residuals, b)
    actual = [y if x is None else x for x, y in zip(parts(first), parts(rest), strict=True)]
    for x, y in zip(actual, parts(fx.interpret(program, a, b)), strict=True):
        np.testing.assert_array_equal(x, y)
    done = work(halves.known.jaxpr) + work(halves.unknown.jaxpr)
    for name in ("exp", "sin", "cos", "tanh", "dot_general"):
        assert done[name] <= work(program.jaxpr)[name]
    return halves, first, rest


def parts(results: Any) -> list[Any]:
    values = results.values() if isinstance(results, dict) else results if isinstance(results, tuple) else [results]
    return list(values)


def ops(program: Any) -> set[str]:
    jaxpr: Jaxpr = program.jaxpr
    return {e.prim.name for j in distinct_jaxprs(jaxpr) for e in j.eqns} & {"exp", "sin", "cos", "tanh"}


def test_a_scan_in_two() -> None:
    """The known carry and the equations on known slices form one scan; the rest forms another."""

    def f(a: Any, b: Any) -> Any:
        def step(carry: Any, xs: Any) -> Any:
            (c, d), (x, y) = carry, xs
            c = fnp.tanh(c + fnp.exp(x))
            return (c, d + fnp.sin(c) * fnp.cos(y)), (c, c * d)

        (c, d), (cs, ds) = lax.scan(step, (a[0], b[0]), (a, b))
        return {"known": c, "known stack": cs, "rest": d, "other stack": ds}

    halves, first, _ = halved(f)
    assert [k for k, v in first.items() if v is not None] == ["known", "known stack"]
    assert ops(halves.known) == {"exp", "tanh", "sin"}
    assert ops(halves.unknown) == {"cos"}
    assert [str(r.aval) for r in halves.residuals] == ["f32[4,3]"] * 2, "sin c, and c, which is a result too"


def test_a_carry_that_becomes_unknown() -> None:
    """The second carry is known at the start, but takes the value of the first in the next step. So both are
    unknown."""

    def f(a: Any, b: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            c, d = carry
            return (d, fnp.tanh(c) + fnp.exp(x)), None

        return lax.scan(step, (a[0], b[0]), a)[0]

    halves, first, _ = halved(f)
    assert first == (None, None)
    assert ops(halves.known) == {"exp"}
    assert ops(halves.unknown) == {"tanh"}


def test_constants_and_slices_are_not_stacked() -> None:
    def f(a: Any, b: Any) -> Any:
        first = fnp.exp(a[0])

        def step(c: Any, x: Any) -> Any:
            return c * first * x + fnp.sin(x), None

        return lax.scan(step, b[0], a, reverse=True)[0]

    halves, _, _ = halved(f)
    shapes = sorted([str(r.aval) for r in halves.residuals])
    assert shapes == ["f32[3]", "f32[4,3]", "f32[4,3]"], "the constant once, the slices as they are, and their sines"


def test_a_cond_whose_index_is_known() -> None:
    def f(a: Any, b: Any) -> Any:
        def yes(a: Any, b: Any) -> Any:
            return fnp.exp(a), fnp.sin(a) * b, fnp.cos(a)

        def no(a: Any, b: Any) -> Any:
            return a, fnp.tanh(a) + fnp.sin(b), b

        return lax.cond(fnp.sum(a) > 0, yes, no, a, b)

    for a in (A, -A):
        halves, first, _ = halved(f, a)
        assert [v is not None for v in first] == [True, False, False]
        assert ops(halves.known) == {"exp", "sin", "cos", "tanh"}
        assert ops(halves.unknown) == {"sin"}


def test_a_cond_with_an_unknown_index_is_not_split() -> None:
    halves, _, _ = halved(lambda a, b: lax.cond(fnp.sum(b) > 0, lambda a, b: fnp.exp(a) * b, lambda a, b: b, a, b))
    assert ops(halves.known) == set()
    assert ops(halves.unknown) == {"exp"}


def test_a_while_with_a_bound() -> None:
    def f(a: Any, b: Any) -> Any:
        def step(s: Any) -> Any:
            return fnp.exp(s[0]) + a, s[1] * fnp.sin(s[0]) + s[0], s[2] * 2.0

        return lax.while_loop(lambda s: fnp.sum(s[0]) < 30.0, step, (a * 0.5, b, a), max_steps=4)

    for a in (A, A + 100.0):  # some steps, and none
        halves, first, _ = halved(f, a)
        assert [v is not None for v in first] == [True, False, True]
        assert ops(halves.known) >= {"exp", "sin"}
        assert "exp" not in ops(halves.unknown)
    known = lax.while_loop
    g = halved(lambda a, b: known(lambda c: fnp.sum(c) < 3, fnp.exp, a, max_steps=3) * b)[0]
    assert ops(g.known) == {"exp"}
    assert ops(g.unknown) == set()


@pytest.mark.parametrize("most", [None, 3])
def test_a_while_without_a_bound_or_known_predicate_is_not_split(most: int | None) -> None:
    """Without a bound no residuals can be stored. With an unknown predicate the number of steps is unknown."""

    def f(a: Any, b: Any) -> Any:
        def goes_on(s: Any) -> Any:
            return fnp.sum(s[0] if most is None else s[1]) < 3

        return lax.while_loop(goes_on, lambda s: (fnp.exp(s[0]), s[1] + s[0] + 1.0), (a, b), max_steps=most)

    assert ops(halved(f)[0].known) == set()


@pytest.mark.parametrize("wrap", [fx.remat, fx.jit, lambda f: fx.remat(fx.jit(fx.remat(f)))])
def test_segments_and_calls(wrap: Any) -> None:
    inner = wrap(lambda a, b: (fnp.exp(a), fnp.sin(a) * fnp.cos(b), a))
    halves, first, _ = halved(lambda a, b: inner(a, b))
    assert [v is not None for v in first] == [True, False, True]
    assert ops(halves.known) == {"exp", "sin"}
    assert ops(halves.unknown) == {"cos"}
    grad = fx.grad(lambda b: fnp.sum(halves.unknown(halves.known(A)[1], b)[1]))(B)
    np.testing.assert_allclose(grad, -np.sin(A) * np.sin(B), rtol=1e-5)


def test_nests() -> None:
    def f(a: Any, b: Any) -> Any:
        def step(d: Any, x: Any) -> Any:
            return fx.remat(lambda d, x: lax.cond(a[0, 0] > 0, lambda: d + fnp.exp(x), lambda: d * fnp.sin(x)))(
                d, x
            ), None

        return fx.vmap(lambda b: lax.scan(step, b, a[:, 0])[0])(b[:, 0])

    for a in (A, -A):
        halves, _, _ = halved(f, a)
        assert ops(halves.known) == {"exp", "sin"}
        assert ops(halves.unknown) == set()


def test_no_steps_and_all_or_no_operands_known() -> None:
    """A loop without steps; all operands known, or none."""

    def f(a: Any, b: Any) -> Any:
        return lax.scan(lambda c, x: (c + fnp.exp(x), fnp.sin(x)), b[0], a)

    halved(f, A[:0])
    program = fx.trace(f, A, B)
    every, none = fx.partial_eval(program, (True, True)), fx.partial_eval(program, (False, False))
    assert ops(every.unknown) == set()
    assert ops(none.known) == set()
    assert every.residuals == none.residuals == ()


@pytest.mark.parametrize("known", [True, (1, 0), "ab", None])
def test_wrong_masks(known: Any) -> None:
    def add(a: Any, b: Any) -> Any:
        return a + b

    with pytest.raises(ArgumentError) as e:
        fx.partial_eval(fx.trace(add, A, B), known=known)
    assert e.value.message == f"partial_eval: known is {known!r}, not a sequence of bools"


NO_STEPS = """
fn @more(%arg0: i32[], %arg1: i32[], %arg2: f64[4]) -> (bool[]) {
  %0: bool[] = lt %arg1, %arg0
  return %0
}

fn @step(%arg0: i32[], %arg1: f64[4]) -> (i32[], f64[4]) {
  %0: i32[] = add %arg0, 1:i32[]
  %1: f64[4] = sin %arg1
  return %0, %1
}

fn @neg(%arg0: f64[4]) -> (f64[4]) {
  %0: f64[4] = neg %arg0
  return %0
}

fn @other(%arg0: f64[4]) -> (f64[4]) {
  return 1.0:f64[4]
}

main @f(%arg0: i32[], %arg1: f64[4]) -> (f64[4]) {
  %0: i32[], %1: f64[4] = LOOP
  %2: f64[4] = cond[branches=(@neg, @other), batched="select"] %arg0, %1
  %3: f64[4] = clamp 0.0:f64[4], %2, 1.0:f64[4]
  return %3
}
"""


@pytest.mark.parametrize(
    "loop",
    [
        "while[cond=@more, body=@step, n_cond=1, n_body=0, max_steps=0] %arg0, 0:i32[], %arg1",
        "scan[body=@step, length=0, reverse=false, unroll=1, n_consts=0, n_carry=2, upto=false] 0:i32[], %arg1",
    ],
    ids=["while", "scan"],
)
def test_a_loop_without_steps_does_not_mix_values_and_tangents(loop: str) -> None:
    """Regression, found by the law for all programs: the tangents of such a program could not be transposed."""
    program = parse(NO_STEPS.replace("LOOP", loop))
    check_tangents_transpose(Case(program, (np.asarray(0, np.int32), np.linspace(-1.0, 1.0, 4)), 0, True))
