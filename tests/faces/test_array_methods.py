"""Methods that arrays share with NumPy and JAX: eagerly, traced, and refused where they need a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import TracerError

N = np.array([[3.26, 1.5], [2.5, 4.0]], np.float32)
METHODS: list[Callable[[Any], Any]] = [
    lambda x: x.cumsum(), lambda x: x.cumsum(1), lambda x: x.cumprod(0), lambda x: x.cumsum(dtype="float64"),
    lambda x: x.argsort(), lambda x: x.argsort(0), lambda x: x.diagonal(), lambda x: x.diagonal(1), lambda x: x.trace(),
    lambda x: x.trace(-1), lambda x: x.conjugate(), lambda x: x.round(1),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(METHODS)))
def test_methods(k: int) -> None:
    want = METHODS[k](N)
    for out in (METHODS[k](fnp.asarray(N)), fx.jit(METHODS[k])(N)):
        np.testing.assert_allclose(np.asarray(out), want, rtol=1e-6)
        assert out.dtype == want.dtype or want.dtype == np.int64  # indices are int32


def test_sort_gives_a_new_array() -> None:
    x = fnp.asarray(N)
    assert np.array_equal(np.asarray(x.sort()), np.sort(N))
    assert np.array_equal(np.asarray(x.sort(None, descending=True)), np.sort(N, None)[::-1])
    assert np.array_equal(np.asarray(x), N)


def test_round() -> None:
    x = fnp.asarray(N)
    assert np.array_equal(np.asarray(round(x)), np.round(N))
    assert np.array_equal(np.asarray(fx.jit(lambda x: round(x, 1))(x)), np.asarray(x.round(1)))


def test_memory() -> None:
    x = fnp.asarray(N) + 0
    assert x.tobytes() == N.tobytes()
    assert x.tobytes("F") == N.tobytes("F")
    assert x.devices() == {x.device}
    assert x.block_until_ready().is_ready()
    assert not x.is_deleted()
    x.delete()
    assert x.is_deleted()


REFUSED = {
    "tobytes": "return the array and call tobytes() on the result",
    "devices": "look at the devices of the arguments, before the function is traced",
    "is_ready": "ask the result of the program",
    "delete": "delete the argument after the call, or donate it",
}


@pytest.mark.parametrize("name", [*REFUSED, "sharding"])
def test_a_tracer_has_no_value(name: str) -> None:
    def f(x: Any) -> Any:
        assert not x.is_deleted()
        found = getattr(x, name)
        return found if name == "sharding" else found()

    with pytest.raises(TracerError) as e:
        fx.trace(f, fx.Spec((2,)))
    assert e.value.message == f"{name}: Tracer<f32[2]> of f has no value while the function is traced"
    remedy = "look at the sharding of the arguments, before the function is traced"
    assert e.value.remedy == REFUSED.get(name, remedy)
