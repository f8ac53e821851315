"""`check_grads` accepts correct derivatives and finds wrong ones; functions that count and list devices."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ParameterError
from fxad.test_util import check_grads, check_jvp, check_vjp
from tests.api.refusals import check_refused

X = np.array([0.3, -0.7, 1.2])


def smooth(x: Any, t: Any) -> Any:
    return {"y": fnp.sin(x) * t["a"], "s": (x**3).sum()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_right_derivatives_pass(dtype: Any) -> None:
    check_grads(smooth, (X.astype(dtype), {"a": dtype(2.0), "n": 3}), order=2)
    check_grads(
        lambda z: z**2, (np.asarray([1 + 2j], np.complex64 if dtype is np.float32 else np.complex128),), order=1
    )


def test_functions_between_real_and_complex_numbers() -> None:
    z = np.array([1 + 2j, -0.5 + 0.3j])
    check_grads(lambda z: fnp.real(z**2) + fnp.abs(z), (z,), order=2)
    check_grads(lambda x: fnp.exp(1j * x), (X,), order=2)
    with pytest.raises(AssertionError, match="the vjp differs"):
        check_grads(lambda z: fnp.real(fx.lax.stop_gradient(z) * z), (z,), order=1, modes=["rev"])


@pytest.mark.parametrize("mode", ["fwd", "rev"])
@pytest.mark.parametrize("order", [1, 2])
def test_wrong_derivatives_are_found(mode: str, order: int) -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        slope = fnp.cos(x)  # its rule is wrong where order is 2
        slope = 1.1 * slope if order == 1 else slope + 0.3 * (x - fx.stop_gradient(x))
        return f(x), slope * t

    with pytest.raises(AssertionError, match="differs from the central difference"):
        check_grads(f, (X,), order=order, modes=(mode,))
    if order == 2:
        check_grads(f, (X,), order=1, modes=(mode,))


def test_derivatives_that_are_given() -> None:
    check_jvp(smooth, partial(fx.jvp, smooth), (X, {"a": 2.0}))
    check_vjp(smooth, partial(fx.vjp, smooth), (X, {"a": 2.0}))
    with pytest.raises(AssertionError, match="differs from the central difference: of ours"):
        check_jvp(fnp.sin, lambda x, t: (fnp.sin(x[0]), t[0]), (X,), err_msg="of ours")
    with pytest.raises(AssertionError, match="the vjp differs"):
        check_vjp(fnp.sin, lambda x: (fnp.sin(x), lambda ct: (ct,)), (X,))


def test_tolerances_by_dtype() -> None:
    with pytest.raises(AssertionError):
        check_grads(fnp.exp, (X.astype("f"),), 1, "fwd", {np.float32: 1e-9, np.float64: 1}, 0.0)
    check_grads(fnp.exp, (X.astype("f"),), 1, "fwd", {np.float32: 1, np.float64: 1e-9}, {fnp.float32: 0.0})


def test_python_numbers_are_arrays() -> None:
    check_grads(lambda x: fx.remat(fnp.sin)(x) * x, (3.0,), order=2)


def test_refusals() -> None:
    for call, message, remedy in (
        (lambda: check_grads(smooth, (X, {}), 1, modes=("both",)), "check_grads: mode 'both'",
         'modes are "fwd" and "rev"'),
        (lambda: fx.local_devices(3), "local_devices: process_index is 3, this process is 0", "leave it out"),
        (lambda: fx.device_count("tpu"),
         f"device_count: backend is 'tpu', the platform is {fx.default_backend()!r}", "leave it out"),
    ):  # fmt: skip
        check_refused(call, ParameterError, message, remedy)


def test_devices() -> None:
    assert fx.local_devices() == list(fx.devices())
    assert fx.device_count() == fx.local_device_count() == len(fx.devices())
    assert (fx.process_index(), fx.process_count()) == (0, 1)
