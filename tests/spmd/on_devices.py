"""Tests on 8 CPU devices. `test_shard_map_laws.py` runs them in a process of their own; to run them by hand:

FXAD_CPU_DEVICES=8 python -m pytest tests/spmd/on_devices.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import FxadError, ParameterError, ShapeError
from fxad.primitives.control.shard_map import ShardMap
from fxad.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding, make_mesh, picture
from fxad.testing import (
    Application,
    Case,
    calls,
    cases,
    check_batch,
    check_jvp,
    check_lowering,
    check_text,
    check_transpose,
    check_types,
)
from fxad.testing.collective_steps import COLLECTIVE_STEPS
from fxad.testing.spmd_laws import check_devices
from tests.laws.budget import share

P = PartitionSpec
X: Any = np.arange(1.0, 33.0, dtype=np.float32).reshape(8, 4)
W: Any = np.linspace(0.5, 2.0, 4, dtype=np.float32)


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return make_mesh((2, 4), ("i", "j"))


# --------------------------------------------------------------------------------------------------------------- laws


@share(2)
@given(calls(ShardMap), calls(ShardMap, smooth=True), st.integers(0, 9))
def test_primitive(application: Application, smooth: Application, seed: int) -> None:
    check_types(application)
    check_text(application)
    check_lowering(application)
    check_batch(application)
    check_jvp(smooth, seed)
    check_transpose(smooth)


@share(3)
@given(cases(steps=COLLECTIVE_STEPS, size=5, depth=1))
def test_devices_equal_vmap(case: Case) -> None:
    check_devices(case, compiled=True)


@share(4)
@given(cases(differentiable=True, steps=COLLECTIVE_STEPS, size=5, depth=1))
def test_gradients_on_devices_equal_those_of_vmap(case: Case) -> None:
    check_devices(case, compiled=True)


# ------------------------------------------------------------------------------------------------------------ shard_map


def loss(w: fx.Array, x: fx.Array) -> fx.Array:
    return lax.pmean(fnp.mean(fnp.tanh(x * w)), ("i", "j"))


def test_data_parallel_gradient(mesh: Mesh) -> None:
    sharded = fx.shard_map(loss, mesh, (P(), P(("i", "j"))), P())
    have = fx.jit(fx.value_and_grad(sharded))(W, X)
    want = fx.value_and_grad(lambda w, x: fnp.mean(fnp.tanh(x * w)))(W, X)
    for a, b in zip(have, want, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-7)


def test_tensor_parallel_product(mesh: Mesh) -> None:
    a, b = np.cos(np.arange(32.0).reshape(4, 8)), np.sin(np.arange(48.0).reshape(8, 6))
    f = fx.shard_map(lambda u, v: lax.psum(u @ v, "j"), mesh, (P("i", "j"), P("j")), P("i"))
    np.testing.assert_allclose(np.asarray(fx.jit(f)(a, b)), a @ b, rtol=1e-10)
    da = fx.grad(lambda u: fnp.sum(f(u, b) ** 2))(a)
    np.testing.assert_allclose(np.asarray(da), 2 * (a @ b) @ b.T, rtol=1e-9)


@pytest.mark.parametrize("around", ["scan", "cond", "remat", "vmap", "jit", "while"])
def test_placements(mesh: Mesh, around: str) -> None:
    """A map inside control flow and transformations equals the function without devices."""

    def mapped(x: fx.Array) -> Any:
        return fx.shard_map(lambda v: v / lax.psum(fnp.sum(v), ("i", "j")), mesh, P(("i", "j")), P(("i", "j")))(x)

    def plain(x: fx.Array) -> fx.Array:
        return x / fnp.sum(x)

    def placed(f: Callable[..., Any], x: fx.Array) -> Any:
        match around:
            case "scan":
                return lax.scan(lambda c, _: (f(c) + c, None), x, None, length=2)[0]
            case "while":
                return lax.while_loop(lambda c: fnp.sum(c) < 600, lambda c: 2 * c + f(c), x)
            case "cond":
                return lax.cond(fnp.sum(x) > 0, f, lambda u: u, x)
            case "remat":
                return fx.remat(f)(x)
            case "vmap":
                return fx.vmap(f, in_axes=1, out_axes=1)(fnp.stack([x, 2 * x], 1))
            case _:
                return fx.jit(f)(x)

    have, want = fx.jit(lambda x: placed(mapped, x))(X), placed(plain, fnp.asarray(X))
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-5)
    if around != "while":
        gradients = [fx.grad(lambda x, f=f: fnp.sum(placed(f, x) ** 2))(X) for f in (mapped, plain)]
        np.testing.assert_allclose(np.asarray(gradients[0]), np.asarray(gradients[1]), rtol=1e-3, atol=1e-5)


# ----------------------------------------------------------------------------------------------------------------- pmap


@pytest.mark.parametrize(
    ("in_axes", "out_axes"), [(0, 0), (0, 1), ((0, None), 0), ((0, None), -1)],
)  # fmt: skip
def test_pmap_equals_vmap(in_axes: object, out_axes: object) -> None:
    def f(x: fx.Array, y: fx.Array) -> fx.Array:
        return x * lax.axis_index("d").astype("float32") + lax.psum(x, "d") + y

    y = X if in_axes == 0 else W
    have = fx.pmap(f, "d", in_axes=in_axes, out_axes=out_axes)(X, y)
    want = fx.vmap(f, axis_name="d", in_axes=in_axes, out_axes=out_axes)(X, y)
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-6)


@pytest.mark.parametrize("inner", ["pmap", "vmap"])
def test_nested_maps(inner: str) -> None:
    z: Any = np.arange(8.0, dtype=np.float32).reshape(2, 4)
    scale = fnp.asarray(3.0)

    def f(v: fx.Array) -> fx.Array:
        return scale * v + lax.psum(v * v, ("a", "b")) + lax.axis_index("b").astype("float32") * lax.psum(v, "a")

    want = fx.vmap(fx.vmap(f, axis_name="b"), axis_name="a")(z)
    inside: Any = fx.pmap(f, "b") if inner == "pmap" else fx.vmap(f, axis_name="b")
    have = fx.pmap(inside, "a")(z)
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-6)

    def squares(m: Any) -> Callable[[fx.Array], fx.Array]:
        return lambda u: fnp.sum(m(u) ** 2)

    both = (fx.pmap(inside, "a"), fx.vmap(fx.vmap(f, axis_name="b"), axis_name="a"))
    grads = [fx.grad(squares(m))(z) for m in both]
    np.testing.assert_allclose(np.asarray(grads[0]), np.asarray(grads[1]), rtol=1e-5)


def test_gradient_of_operands_that_are_closed_over() -> None:
    def total(w: fx.Array, x: fx.Array) -> fx.Array:
        return fnp.sum(fx.pmap(lambda v: fnp.tanh(v * w), "d")(x))

    have = fx.grad(total)(W, X)
    want = fx.grad(lambda w, x: fnp.sum(fnp.tanh(x * w)))(W, X)
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-5)


# ------------------------------------------------------------------------------------------------------ sharded arrays


def test_sharded_arrays(mesh: Mesh) -> None:
    x: Any = fx.device_put(X, NamedSharding(mesh, P("j", "i")))
    assert x.sharding == NamedSharding(mesh, P("j", "i"))
    assert [s.data.shape for s in x.addressable_shards] == [(2, 2)] * 8
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), X[shard.index])
        assert shard.data.device is shard.device
    np.testing.assert_array_equal(np.asarray(x), X)
    np.testing.assert_array_equal(np.asarray(x + 1), X + 1)
    np.testing.assert_array_equal(np.asarray(x.copy()), X)
    half: Any = fx.device_put(X, NamedSharding(mesh, P("i")))
    assert half.sharding.spec == P("i")
    np.testing.assert_array_equal(np.asarray(half), X)
    back: Any = fx.device_put(half, fx.devices()[3])
    assert back.sharding == SingleDeviceSharding(fx.devices()[3])
    np.testing.assert_array_equal(np.asarray(back), X)


def test_results_keep_their_sharding_and_are_not_copied(mesh: Mesh) -> None:
    f = fx.jit(fx.shard_map(lambda v: 2 * v, mesh, P("i", "j"), P("i", "j")))
    y = f(f(X))
    assert y.sharding == NamedSharding(mesh, P("i", "j"))
    np.testing.assert_array_equal(np.asarray(y), 4 * X)


def test_picture(mesh: Mesh) -> None:
    assert picture(NamedSharding(mesh, P("i")), (4, 2)).splitlines() == [
        "(4, 2) as PartitionSpec('i')",
        "  [0:2]  cpu 0, 1, 2, 3",
        "  [2:4]  cpu 4, 5, 6, 7",
    ]


# ------------------------------------------------------------------------------------------------------ text, bad input


def test_replica_groups_of_nested_axes() -> None:
    text = fx.lower(fx.trace(fx.pmap(fx.pmap(lambda v: (lax.psum(v, "b"), lax.psum(v, "a")), "b"), "a"), X[:2])).text()
    assert "replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]>" in text
    assert "replica_groups = dense<[[0, 4], [1, 5], [2, 6], [3, 7]]>" in text


@pytest.mark.parametrize("n", [8, 64, 512])
def test_staging_out_for_devices_that_are_not_there(n: int) -> None:
    """The program has the same size for any number of devices, but for the list of devices in each collective."""
    f = fx.pmap(lambda v: lax.psum(fnp.sin(v), "d"), "d", out_axes=None)
    text = fx.lower(fx.trace(f, fx.Spec((n, 2)))).text()
    assert len(text.splitlines()) == len(fx.lower(fx.trace(f, fx.Spec((8, 2)))).text().splitlines())


TOO_FEW = "call fx.set_cpu_devices(16) or set FXAD_CPU_DEVICES=16 before the first program runs"
REFUSED = [
    (lambda m: fx.pmap(lambda v: v)(np.ones((16, 2), np.float32)), ParameterError,
     "compile of <lambda>: it runs on 16 devices, there are 8 of platform cpu",
     TOO_FEW),
    (lambda m: fx.shard_map(lambda v: v, m, P("i"), P())(X), ShapeError,
     "shard_map of <lambda>: result differs along axis 'i', which its spec does not name",
     "combine it, with psum or all_gather over 'i', or name the axis in the spec"),
    (lambda m: fx.shard_map(lambda v: v, m, P(None, ("i", "j")), P())(X), ShapeError,
     "shard_map of <lambda>: argument v: axis 1 of f32[8,4] has size 4, which 8 devices along 'i', 'j' do not divide",
     "pad the axis, or choose another one or another mesh"),
    (lambda m: make_mesh((4, 4), ("i", "j")), ParameterError,
     "make_mesh: axis_shapes (4, 4) need 16 devices, there are 8",
     "call fx.set_cpu_devices(16) before the first program runs, or map over sizes alone: shard_map(f, {'i': 8}, ...)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message", "remedy"), REFUSED, ids=[m[:30] for _, _, m, _ in REFUSED])
def test_refused(mesh: Mesh, call: Callable[[Mesh], object], kind: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(kind) as e:
        call(mesh)
    assert (e.value.message, e.value.remedy) == (message, remedy)
