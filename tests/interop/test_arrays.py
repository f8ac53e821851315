"""Arrays of fxad in functions of JAX, arrays of JAX in functions of fxad, and tensors of torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from tests.interop.jax_laws import close, jax

pytest.importorskip("fxad.interop.jax")
jnp = jax.numpy
grad: Any = fx.grad  # of lambdas, whose types mypy does not know
V = np.arange(1, 65, dtype=np.float32)
DTYPES = ("bool", "int8", "uint16", "int32", "float16", "float32", "complex64", "bfloat16", "float8_e4m3fn")


def place(x: Any) -> int:
    address: int = np.asarray(x).__array_interface__["data"][0]
    return address


INTO_JAX: tuple[Callable[[Any], Any], ...] = (
    jnp.sin,
    jnp.asarray,
    jnp.array,
    lambda x: jnp.stack([x, x]),
    lambda x: jnp.where(x > 3, x, 0),
    lambda x: jnp.ones(64) + x,
    lambda x: jnp.ones(64) @ x,
    lambda x: jax.jit(lambda a: a * 2)(x),
    lambda x: jax.jit(lambda a: jnp.sin(x) * a + x * a)(jnp.ones(64)),
    lambda x: jax.grad(lambda a: (a * a).sum())(x),
    lambda x: jax.vmap(lambda a: a * 2)(x),
    lambda x: jax.lax.scan(lambda c, a: (c + a, a), 0.0, x),
    jax.device_put,
)
INTO_FXAD: tuple[Callable[[Any], Any], ...] = (
    fnp.sin,
    fx.asarray,
    lambda j: fnp.stack([j, fnp.ones(64)]),
    lambda j: fnp.where(j > 3, j, fnp.ones(64)),
    lambda j: fnp.ones(64) + j,
    lambda j: fnp.ones(64) @ j,
    lambda j: fx.jit(lambda a: a * 2)(j),
    lambda j: fx.jit(lambda a: fnp.sin(j) * a + a * j)(fnp.ones(64)),
    lambda j: fx.jit(lambda a: j * a)(fnp.ones(64)),
    lambda j: grad(lambda a: fnp.sum(a * a))(j),
    lambda j: fx.vmap(lambda a: a * 2)(j),
    lambda j: fx.lax.scan(lambda c, a: (c + a, a), 0.0, j),
    lambda j: fnp.ones(64).at[jnp.arange(3)].add(j[:3])[jnp.arange(2)],
    lambda j: fx.trace(lambda a: a + j, j)(j),
)


@pytest.mark.parametrize("use", INTO_JAX)
def test_jax_takes_arrays_of_fxad(use: Callable[[Any], Any]) -> None:
    found, wanted = use(fx.asarray(V)), use(jnp.asarray(V))
    close(jax.tree.leaves(found), jax.tree.leaves(wanted), "value")
    assert all([isinstance(y, jax.Array) for y in jax.tree.leaves(found)])


@pytest.mark.parametrize("use", INTO_FXAD)
def test_fxad_takes_arrays_of_jax(use: Callable[[Any], Any]) -> None:
    found, wanted = use(jnp.asarray(V)), use(fx.asarray(V))
    close(found, fx.tree.leaves(wanted), "value")
    assert all([isinstance(y, fx.Array) for y in fx.tree.leaves(found)])


def test_the_left_operand_decides_the_library_of_the_result() -> None:
    x, j = fx.asarray(V), jnp.asarray(V)
    assert isinstance(x + j, fx.Array)
    assert isinstance(j + x, jax.Array)


@pytest.mark.smoke
@pytest.mark.parametrize("name", DTYPES)
def test_all_dtypes_go_both_ways(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    x = fx.asarray(V.astype(dtype))
    there = jnp.asarray(x)
    back = fx.asarray(there)
    assert there.dtype == back.dtype == dtype
    assert np.asarray(back).tobytes() == np.asarray(there).tobytes() == V.astype(dtype).tobytes()


@pytest.mark.smoke
@pytest.mark.skipif(os.environ.get("FXAD_PLATFORM", "cpu") != "cpu", reason="it compares addresses on the host")
def test_nothing_is_copied_on_one_device() -> None:
    x, j = fnp.sin(V), jnp.sin(jnp.asarray(V))
    assert place(x) == jnp.asarray(x).unsafe_buffer_pointer()
    assert place(fx.asarray(j)) == j.unsafe_buffer_pointer()


def test_shared_memory_outlives_its_array() -> None:
    there = jnp.asarray(fnp.sin(V))
    back = fx.asarray(jnp.sin(jnp.asarray(V)))
    for _ in range(8):
        fnp.cos(fnp.ones(64)), jnp.cos(jnp.ones(64))
    np.testing.assert_allclose(there, np.sin(V), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(back), np.sin(V), rtol=1e-5, atol=1e-6)


def test_a_donation_does_not_change_shared_memory() -> None:
    j = jnp.sin(jnp.asarray(V))
    held = fx.asarray(j)
    jax.jit(lambda a: a * 0, donate_argnums=0)(j)
    np.testing.assert_allclose(np.asarray(held), np.sin(V), rtol=1e-5, atol=1e-6)


def test_tracers_of_the_other_library_are_refused() -> None:
    with pytest.raises(TypeError, match=r"tracer\.Tracer"):
        fx.trace(jnp.sin, V)
    with pytest.raises(fx.errors.ArgumentError) as caught:
        jax.jit(fnp.sin)(V)
    assert caught.value.message == "sin: argument 0: a DynamicJaxprTracer is not an array: JitTracer(float32[64])"
    assert caught.value.remedy == "give the function of fxad to fxad.interop.jax.to_jax, and call the result"
    assert not hasattr(fx.trace(lambda a: a, V), "__jax_array__")


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    t = torch.arange(64.0)
    np.testing.assert_array_equal(fnp.sin(t), np.sin(np.arange(64, dtype=np.float32)))
    assert isinstance(fnp.ones(64) + t, fx.Array)
    np.testing.assert_array_equal(fx.jit(lambda a: a * 2)(t), 2 * np.arange(64, dtype=np.float32))
    back = torch.from_dlpack(fx.asarray(t) + 1)
    np.testing.assert_array_equal(back.numpy(), np.arange(1, 65, dtype=np.float32))
    t.fill_(7.0)
    np.testing.assert_array_equal(fx.asarray(t), np.full(64, 7, np.float32))
