"""What the cost rule makes of gradients of networks, by depth: those of cheap equal layers are whole, however deep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn
from fxad.passes import plan_of
from fxad.testing.unit_laws import check_linkage

pytestmark = pytest.mark.as_users_compile


def steps(loss: Callable[..., Any], *specs: Any, **options: Any) -> int:
    """Of the plan that the rule makes of a gradient."""
    jaxpr = fx.value_and_grad(fx.trace(loss, *specs)).jaxpr
    plan = plan_of(jaxpr, "auto", **options)
    if not options:  # the law is about programs that keep their operands
        check_linkage(plan, jaxpr)
    return len(plan.steps)


def dense(ps: Any, x: Any) -> Any:
    for w, b in ps:
        x = fnp.tanh(x @ w + b)
    return fnp.mean(x * x)


def layers(n: int, d: int = 256) -> tuple[Any, Any]:
    return [(fx.Spec((d, d)), fx.Spec((d,)))] * n, fx.Spec((d, d))


@pytest.mark.parametrize("depth", [12, 50, 200])
def test_layers_of_a_product_and_a_tanh_are_one_unit(depth: int) -> None:
    """XLA compiles 50 of them in 0.3 s, as it does their units; a step of those took 1.5 times as long."""
    assert steps(dense, *layers(depth)) == 1
    assert steps(dense, *layers(depth), donate=(0,)) > 2 * depth  # they hold less


def test_layers_of_a_product_and_a_tanh_with_different_slices_are_units() -> None:
    """An unrolled recurrent network: 200 slices, 200 kernels."""

    def recurrent(ps: Any, xs: Any) -> Any:
        h = fnp.zeros((16, 64), "float32")
        for t in range(xs.shape[0]):
            h = fnp.tanh(xs[t] @ ps["w"] + h @ ps["u"] + ps["b"])
        return fnp.mean(h * h)

    def taken(n: int) -> int:
        square = fx.Spec((64, 64))
        return steps(recurrent, {"w": square, "u": square, "b": fx.Spec((64,))}, fx.Spec((n, 16, 64)))

    assert taken(10) == 1
    assert 1 < taken(200) <= 24


def norm(x: Any, p: Any) -> Any:
    mean = fnp.mean(x, axis=-1, keepdims=True)
    var = fnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / fnp.sqrt(var + 1e-5) * p["scale"] + p["shift"]


def attention(ps: Any, x: Any) -> Any:
    def split(x: Any) -> Any:
        return fnp.transpose(x.reshape(4, 128, 4, 64), (0, 2, 1, 3))

    for p in ps:
        h = norm(x, p["first"])
        q, k, v = (split(h @ p[name]) for name in "qkv")
        weights = nn.softmax(q @ fnp.transpose(k, (0, 1, 3, 2)) / 8.0, axis=-1)
        x = x + fnp.transpose(weights @ v, (0, 2, 1, 3)).reshape(4, 128, 256) @ p["o"]
        x = x + nn.gelu(norm(x, p["second"]) @ p["up"] + p["b"]) @ p["down"]
    return fnp.mean((x - 1) ** 2)


@pytest.mark.parametrize(("depth", "units"), [(1, False), (2, False), (4, False), (6, True), (12, True)])
def test_a_transformer_of_six_layers_or_more_has_units(depth: int, units: bool) -> None:
    """Four of them compile in 1.2 s of processor time as a whole and in 1.0 s as units, twelve in 4.8 s and 1.0 s."""
    ends = {"scale": fx.Spec((256,)), "shift": fx.Spec((256,))}
    p = {name: fx.Spec((256, 256)) for name in "qkvo"} | {"first": ends, "second": ends}
    p |= {"up": fx.Spec((256, 1024)), "b": fx.Spec((1024,)), "down": fx.Spec((1024, 256))}
    assert (steps(attention, [p] * depth, fx.Spec((4, 128, 256))) > 1) == units


def convolutions(ps: Any, x: Any) -> Any:
    for block in ps:
        out = x
        for p in block:
            mean = fnp.mean(out, axis=(0, 1, 2))
            out = (out - mean) / fnp.sqrt(fnp.mean((out - mean) ** 2, axis=(0, 1, 2)) + 1e-5) * p["scale"] + p["shift"]
            dims = ("NHWC", "HWIO", "NHWC")
            out = lax.conv_general_dilated(nn.relu(out), p["w"], (1, 1), "SAME", dimension_numbers=dims)
        x = x + out
    return fnp.mean(x * x)


@pytest.mark.parametrize(("depth", "units"), [(2, False), (8, False), (48, True)])
def test_a_very_deep_convolutional_network_has_units(depth: int, units: bool) -> None:
    """Its kernels are equal, so 8 blocks compile in 0.6 s as a whole and as units, 16 blocks in 0.8 and 0.6 s."""
    p = {"w": fx.Spec((3, 3, 16, 16)), "scale": fx.Spec((16,)), "shift": fx.Spec((16,))}
    assert (steps(convolutions, [(p, p)] * depth, fx.Spec((8, 16, 16, 16))) > 1) == units
