"""A function with correct rules equals the function without rules, under stacks of transformations and in control
flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.ir import Aval, Jaxpr, NDArray
from fxad.primitives import elementwise as ew
from fxad.primitives.control.call import Call
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Derivative, Function, Rules
from fxad.testing import Case, cases, check_stack, differ, repeated_cases, stacks, xla
from fxad.testing.compare import instantiate_tangents, program_tolerance, random_tangents
from fxad.testing.draw_custom import call_with_rule
from fxad.transforms import inline, jvp, outline, reroll, vjp_fused
from tests.laws.budget import share

Fun = Callable[[Any, Any], Any]

X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.4, -0.7])
KINDS = ("jvp", "vjp", "vmap")


def plain(x: Any, y: Any) -> Any:
    """Two results: one with a residual that both tangents share, one linear."""
    return fnp.sin(x) * y + x, x - 2 * y


def ruled(*kinds: str) -> Fun:
    f = fx.custom_vmap(plain) if kinds == ("vmap",) else fx.custom_vjp(plain)
    if "jvp" in kinds:
        f.defjvp(tangents)
    if "vjp" in kinds:
        f.defvjp(forward, backward)
    if "vmap" in kinds:
        f.def_vmap(2, 3)(stacked)
    return f


def tangents(primals: Any, dots: Any) -> Any:
    (x, y), (dx, dy) = primals, dots
    return plain(x, y), (fnp.cos(x) * y * dx + fnp.sin(x) * dy + dx, dx - 2 * dy)


def forward(x: Any, y: Any) -> Any:
    return plain(x, y), (x, y)


def backward(residuals: Any, cts: Any) -> Any:
    (x, y), (a, b) = residuals, cts
    return a * (fnp.cos(x) * y + 1) + b, a * fnp.sin(x) - 2 * b


def stacked(size: int, mapped: Any, x: Any, y: Any) -> Any:
    return plain(x, y), (True, True)


def straight(f: Fun) -> Fun:
    return f


def looped(f: Fun) -> Fun:
    def g(x: Any, y: Any) -> Any:
        def step(c: Any, t: Any) -> Any:
            a, b = f(c, t)
            return 0.5 * a, b

        return lax.scan(step, x[0], y)

    return g


def branched(f: Fun) -> Fun:
    return lambda x, y: lax.cond(fnp.sum(x) > 0, f, lambda x, y: (y, f(y, x)[1]), x, y)


def chained(f: Fun) -> Fun:
    def g(x: Any, y: Any) -> Any:
        a, b = f(x, y)
        c, d = fx.remat(f)(a * b, x)
        return fnp.sum(c), d

    return g


def mapped(f: Fun) -> Fun:
    return lambda x, y: fx.vmap(f, in_axes=(0, None))(x, y[0])


SHAPES = (straight, looped, branched, chained, mapped)
rule_sets = st.sets(st.sampled_from(KINDS), min_size=1).map(lambda s: tuple([k for k in KINDS if k in s]))


@share(2)
@given(st.sampled_from(SHAPES), rule_sets, stacks(3), st.integers(0, 3))
def test_stacks(shape: Callable[[Fun], Fun], kinds: tuple[str, ...], stack: tuple[str, ...], seed: int) -> None:
    program = fx.trace(shape(ruled(*kinds)), X, Y)
    check_stack(stack, Case(program.jaxpr, (*[np.asarray(b) for b in program.bound], X, Y), seed, True))


@share(2)
@given(cases(differentiable=True), st.sampled_from(["jvp", "vjp"]), stacks(3))
def test_any_program_with_its_own_derivative_for_a_rule(case: Case, kind: str, stack: tuple[str, ...]) -> None:
    b = Builder.like(case.program)
    program = b.build(b(call_with_rule(case.program, kind), *b.ins), "ruled")
    check_stack(stack, Case(program, case.args, case.seed, case.smooth))


@share(4)
@given(
    cases(differentiable=True) | repeated_cases(differentiable=True),
    st.sampled_from(["jvp", "vjp"]),
    st.lists(st.booleans(), max_size=8),
)
def test_rewriting_a_rule_keeps_its_derivatives(case: Case, kind: str, fixed: list[bool]) -> None:
    """With respect to any operands. A rule that also computes known values is linear in its tangents alone."""
    b = Builder.like(case.program)
    program = b.build(b(call_with_rule(case.program, kind, again=True), *b.ins), "ruled")
    fixed += [False] * (len(case.args) - len(fixed))
    mask = tuple([a.inexact and not f for a, f in zip(program.in_avals, fixed, strict=False)])
    dots = random_tangents([a for a, m in zip(program.in_avals, mask, strict=True) if m], case.seed)
    cts = random_tangents([a for a in program.out_avals if a.inexact], case.seed + 1)
    tolerance = program_tolerance(jvp(program, mask)[0], (*case.args, *dots))

    def derivatives(f: Jaxpr) -> list[NDArray]:
        forward, nonzero = jvp(f, mask)
        tangents = run(forward, (*case.args, *dots))[len(f.outs) :]
        return [*instantiate_tangents(tangents, nonzero, f.out_avals), *run(vjp_fused(f, mask), (*case.args, *cts))]

    for rewritten in (outline(program), reroll(program)):
        assert not differ(derivatives(rewritten), derivatives(program), slack=tolerance)


S = Aval((), "float64")


def chained_rule() -> Jaxpr:
    """sin(x) * y, whose push is a chain of two calls of one body: u = cos(x) * y, and u * x_dot. It adds u * y_dot."""
    b = Builder()
    product = b.build((b.one(ew.MUL, *b.inputs((S, S))),), "product")
    b = Builder()
    x, y = b.inputs((S, S))
    body = b.build((b.one(ew.MUL, b.one(ew.SIN, x), y),), "f")
    b = Builder()
    x, y = b.inputs((S, S))
    forward = b.build((b.one(ew.MUL, b.one(ew.SIN, x), y), b.one(ew.COS, x), y), "forward")
    b = Builder()
    x_dot, y_dot, cos, y = b.inputs((S, S, S, S))
    u = b.one(Call(product), cos, y)
    push = b.build((b.one(ew.ADD, b.one(Call(product), u, x_dot), b.one(ew.MUL, u, y_dot)),), "push")
    b = Builder()
    prim = CallWithRules(Function(body, rules=Rules(jvp=(Derivative((True, True), forward, push),))))
    return b.build(b(prim, *b.inputs((S, S))), "ruled")


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("rewrite", [reroll, outline])
def test_a_rule_with_a_chain_of_products(rewrite: Callable[[Jaxpr], Jaxpr], flags: tuple[bool, ...]) -> None:
    """A loop over the chain would stack a known value and a tangent, and would not be linear equation by equation."""
    one, slope, found = np.asarray(1.0), np.cos(0.3) * 0.7, rewrite(chained_rule())
    args = [np.asarray(0.3), np.asarray(0.7)]
    forward, nonzero = jvp(found, flags)
    assert nonzero == (True,)
    assert not differ(run(forward, [*args, *[one] * sum(flags)])[1:], [np.asarray(slope * sum(flags))])
    assert not differ(run(vjp_fused(found, flags), [*args, one])[1:], [np.asarray(slope)] * sum(flags))


def gradient(f: Fun) -> Fun:
    return fx.grad(lambda x, y: sum([fnp.sum(fnp.sin(a)) for a in fx.tree.leaves(f(x, y))]), argnums=(0, 1))


def tangent(f: Fun) -> Fun:
    return lambda x, y: fx.jvp(f, (x, y), (fnp.cos(x), fnp.ones_like(y)))


def rows(f: Fun) -> Fun:
    return lambda x, y: fx.vmap(f, in_axes=(0, None))(fnp.stack([x, x + y]), y)


def linear(f: Fun) -> Fun:
    return lambda x, y: fx.linearize(f, x, y)[1](fnp.sin(x), y)


def pulled(f: Fun) -> Fun:
    def g(x: Any, y: Any) -> Any:
        out, back = fx.vjp(f, x, y)
        return back(fx.tree.map(fnp.cos, out))

    return g


def again(f: Fun) -> Fun:
    return fx.remat(f)


LAYERS = (gradient, tangent, rows, linear, pulled, again)


@share(1)
@given(st.sampled_from(SHAPES), rule_sets, st.lists(st.sampled_from(LAYERS), max_size=4))
def test_values_with_and_without_rules_agree(
    shape: Callable[[Fun], Fun], kinds: tuple[str, ...], layers: list[Callable[[Fun], Fun]]
) -> None:
    f, g = shape(ruled(*kinds)), shape(plain)
    for layer in layers:
        f, g = layer(f), layer(g)
    have, want = fx.trace(f, X, Y), fx.trace(g, X, Y)
    assert have.out_tree == want.out_tree
    found = run(have.jaxpr, [*[np.asarray(b) for b in have.bound], X, Y])
    wanted = run(want.jaxpr, [*[np.asarray(b) for b in want.bound], X, Y])
    assert not differ(found, wanted, slack=1e-6)
    assert fx.text.parse(str(have.jaxpr)) is have.jaxpr


@pytest.mark.parametrize("kinds", [("jvp",), ("vjp",), KINDS])
@pytest.mark.parametrize("shape", SHAPES)
def test_compiled(shape: Callable[[Fun], Fun], kinds: tuple[str, ...]) -> None:
    program = fx.trace(gradient(shape(ruled(*kinds))), X, Y)
    args = [*[np.asarray(b) for b in program.bound], X, Y]
    assert not differ(xla(program.jaxpr, args), run(program.jaxpr, args))
    if kinds == KINDS:
        assert not differ(xla(inline(program.jaxpr), args), run(program.jaxpr, args))
