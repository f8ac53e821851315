"""Elementwise results that a whole program computes again: the bytes of executables, and equal results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn
from fxad.core.builder import Builder
from fxad.ir import Aval, Jaxpr
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat
from fxad.support.constants import REMATERIALIZED_BYTES
from fxad.testing import Case, cases, check_rewrite, check_rewrite_keeps_gradients
from fxad.transforms.memory_plans.peak import peak_bytes
from fxad.transforms.memory_plans.recompute_elementwise import recompute_elementwise

ROWS, WIDTH = 512, 32
STATE = ROWS * WIDTH * 4


def network(activation: Callable[[Any], Any]) -> Callable[..., Any]:
    def loss(layers: Any, x: Any) -> Any:
        for w, b in layers:
            x = activation(x @ w + b)
        return fnp.mean(x * x)

    return loss


def gradient(activation: Callable[[Any], Any], depth: int, rows: int = ROWS) -> fx.Program[Any, Any]:
    layers = [(fx.Spec((WIDTH, WIDTH)), fx.Spec((WIDTH,)))] * depth
    out: fx.Program[Any, Any] = fx.value_and_grad(fx.trace(network(activation), layers, fx.Spec((rows, WIDTH))))
    return out


def recomputed(jaxpr: Jaxpr, donate: tuple[int, ...] = ()) -> int:
    """The number of values that are computed again."""
    return len([e for e in recompute_elementwise(jaxpr, donate).eqns if isinstance(e.prim, Remat)])


@pytest.mark.parametrize(
    ("activation", "states"),
    [(fnp.tanh, 1), (nn.sigmoid, 1), (nn.relu, 1), (lambda x: fnp.exp(x * 0.1), 1), (nn.silu, 2), (nn.gelu, 2)],
)
def test_a_layer_stores_its_operand_or_one_function_of_it_more(activation: Callable[[Any], Any], states: int) -> None:
    """The exact temporaries of executables. Only layers of `silu` and `gelu` store more than one array."""
    few: fx.Executable[Any, Any] = fx.lower(gradient(activation, 6)).compile()
    many: fx.Executable[Any, Any] = fx.lower(gradient(activation, 7)).compile()
    assert many.memory().temp_bytes - few.memory().temp_bytes == states * STATE
    rng = np.random.default_rng(0)
    layers = [(rng.standard_normal((WIDTH, WIDTH)).astype("f") / 6, np.zeros(WIDTH, "f")) for _ in range(6)]
    x = rng.standard_normal((ROWS, WIDTH)).astype("f")
    want = fx.interpret(gradient(activation, 6), layers, x)
    for a, b in zip(fx.tree.leaves(few(layers, x)), fx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-7)


def test_repeated_layers_are_calls_and_are_inlined() -> None:
    layer = fx.jit(lambda p, x: fnp.tanh(x @ p[0] + p[1]))

    def loss(layers: Any, x: Any) -> Any:
        for p in layers:
            x = layer(p, x)
        return fnp.mean(x * x)

    layers = [(fx.Spec((WIDTH, WIDTH)), fx.Spec((WIDTH,)))] * 20
    jaxpr = fx.grad(fx.trace(loss, layers, fx.Spec((ROWS, WIDTH)))).jaxpr
    assert len(jaxpr.eqns) < 60
    assert recomputed(jaxpr) == 19
    assert peak_bytes(recompute_elementwise(jaxpr)) < 0.6 * peak_bytes(jaxpr)


def test_a_step_of_a_loop_is_rewritten() -> None:
    loss = fx.grad(network(fnp.tanh))

    def train(layers: Any, x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, p: fx.tree.map(lambda a, d: a - d, p, loss(p, x)), layers)

    def temporaries(depth: int) -> int:
        layers = [(fx.Spec((WIDTH, WIDTH)), fx.Spec((WIDTH,)))] * depth
        return fx.lower(fx.trace(train, layers, fx.Spec((ROWS, WIDTH)))).compile().memory().temp_bytes

    # one state, and the parameters and gradients of a layer
    assert STATE <= temporaries(7) - temporaries(6) < 1.5 * STATE


def test_what_is_small_or_stored_by_the_user_is_left() -> None:
    rows = REMATERIALIZED_BYTES // (4 * WIDTH)
    assert recomputed(gradient(fnp.tanh, 6, rows).jaxpr) == 5
    small = gradient(fnp.tanh, 6, rows - 1).jaxpr
    assert recompute_elementwise(small) is small
    kept = fx.remat(network(fnp.tanh), policy=fx.policies.everything)
    layers = [(fx.Spec((WIDTH, WIDTH)), fx.Spec((WIDTH,)))] * 6
    marked = fx.grad(fx.trace(kept, layers, fx.Spec((ROWS, WIDTH)))).jaxpr
    assert recompute_elementwise(marked) is marked


def test_donated_operands_are_read_again_only_if_they_are_read_late_anyway() -> None:
    def loss(x: Any, w: Any) -> Any:
        y = fnp.tanh(x)
        z = fnp.sin(y @ w)
        return fnp.sum((z @ w) @ w) + fnp.sum(fnp.cos(fnp.cos(z) @ w) @ w)

    jaxpr = fx.grad(fx.trace(loss, fx.Spec((ROWS, WIDTH)), fx.Spec((WIDTH, WIDTH))), argnums=1).jaxpr
    assert recomputed(jaxpr) - recomputed(jaxpr, (0,)) == 1  # tanh(x)


def test_nested_calls_of_an_empty_body_are_not_inlined() -> None:
    """There are 2 ** 100 calls."""
    b = Builder()
    program = b.build(b.inputs([Aval((ROWS, WIDTH), "float32")]))
    for _ in range(100):
        b = Builder()
        (x,) = b.inputs(program.in_avals)
        for _ in range(2):
            (x,) = b(Call(program), x)
        program = b.build([x])
    assert recompute_elementwise(program) is program


@given(st.data())
def test_results_are_those_of_the_program(data: st.DataObject) -> None:
    """Bit for bit, whatever is computed again, and with its derivatives."""
    case: Case = data.draw(cases(differentiable=True))

    def everything(jaxpr: Jaxpr) -> Jaxpr:
        return recompute_elementwise(jaxpr, (), 0, 0.0)

    check_rewrite(everything, case, shrinks=False, idempotent=False)
    check_rewrite_keeps_gradients(everything, case)
