"""Symbolic zeros: a gradient with respect to one argument has no equations for the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, policies
from fxad.testing.memory_laws import work

A, B, C = [np.random.default_rng(k).standard_normal((3, 4)).astype(np.float32) for k in range(3)]


def mixed(a: Any, b: Any, c: Any) -> Any:
    """Each argument goes through an operation with another derivative: exp, cos of sin, sinh of cosh."""
    return fnp.exp(a) * fnp.sin(b) + fnp.cosh(c) * a


def ruled(a: Any, b: Any, c: Any) -> Any:
    f = fx.custom_vjp(mixed)

    def forward(a: Any, b: Any, c: Any) -> Any:
        return mixed(a, b, c), (fnp.exp(a), fnp.sin(b), fnp.cos(b), fnp.cosh(c), fnp.sinh(c), a)

    def backward(residuals: Any, ct: Any) -> Any:
        exp, sin, cos, cosh, sinh, a = residuals
        return ct * (exp * sin + cosh), ct * exp * cos, ct * sinh * a

    f.defvjp(forward, backward)
    return f(a, b, c)


def solved(a: Any, b: Any, c: Any) -> Any:
    step = lax.while_loop
    return step(lambda s: s[0] < 2, lambda s: (s[0] + 1, mixed(s[1], b, c)), (np.int32(0), a), max_steps=3)[1]


KINDS: dict[str, Any] = {
    "straight": mixed,
    "call": lambda a, b, c: fx.jit(mixed)(a, b, c),
    "remat": lambda a, b, c: fx.remat(mixed)(a, b, c),
    "remat with a policy": lambda a, b, c: fx.remat(mixed, policy=policies.everything)(a, b, c),
    "scan, constants": lambda a, b, c: lax.scan(lambda h, _: (mixed(h, b, c), None), a, None, length=3)[0],
    "scan, slices": lambda a, b, c: lax.scan(lambda h, x: (h, mixed(*x)), np.float32(0), (a, b, c))[1],
    "scan, carries": lambda a, b, c: lax.scan(
        lambda h, _: ((mixed(*h), h[1] * 0.5, h[2] * 0.5), None), (a, b, c), None, length=3
    )[0][0],
    "checkpointed scan": lambda a, b, c: lax.checkpointed_scan(
        lambda h, _: (mixed(h, b, c), None), a, None, length=4, budget=4
    )[0],
    "cond": lambda a, b, c: lax.cond(fnp.sum(b) > 0, mixed, lambda a, b, c: a * fnp.sin(b), a, b, c),
    "while": solved,
    "vmap": lambda a, b, c: fx.vmap(mixed, in_axes=(0, 0, None))(a, b, c[0]),
    "rule": ruled,
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_equation_for_the_other_arguments(kind: str) -> None:
    f = KINDS[kind]

    def held(a: Any, b: Any, c: Any) -> Any:
        return fnp.sum(f(a, fx.stop_gradient(b), fx.stop_gradient(c)))

    program = fx.trace(lambda a, b, c: fnp.sum(f(a, b, c)), A, B, C)
    one = work(fx.grad(program).jaxpr)
    assert one["cos"] == one["sinh"] == 0
    alone = work(fx.grad(fx.trace(held, A, B, C)).jaxpr)
    del alone["stop_gradient"]
    assert one == alone
    every = work(fx.grad(program, argnums=(0, 1, 2)).jaxpr)
    assert every["cos"] >= 1
    assert every.total() > one.total()
    tangent = work(fx.trace(lambda a, b, c: fx.jvp(lambda a: f(a, b, c), (a,), (a,))[1], A, B, C).jaxpr)
    assert tangent["cos"] == tangent["sinh"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_residuals_of_one_argument_only(kind: str) -> None:
    """The residuals for one argument take no more bytes than those for all."""
    program = fx.trace(lambda a, b, c: fnp.sum(KINDS[kind](a, b, c)), A, B, C)
    one, every = fx.residuals(program, argnums=0), fx.residuals(program)
    assert one.bytes <= every.bytes
    assert not {r.made_by for r in one} & {"cos", "sinh"}
