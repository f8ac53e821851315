"""The dtypes of `fxad.numpy` are dtypes, and convert values when they are called."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes
from fxad.errors import ArgumentError, DTypeError

NAMES = [d.name if d is not dtypes.bool_ else "bool_" for d in dtypes.ALL]


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_dtype(name: str) -> None:
    ours, dtype = getattr(fnp, name), dtypes.as_dtype(name.rstrip("_"))
    assert ours == dtype
    assert dtype == ours
    assert ours == dtype
    assert hash(ours) == hash(dtype)
    assert {dtype: 1}[ours] == 1
    assert np.dtype(ours) is dtype
    assert dtypes.as_dtype(ours) is dtype
    assert fnp.zeros(2, ours).dtype is dtype
    assert fx.Spec((2,), ours).aval.dtype is dtype
    assert fnp.ones(2).astype(ours).dtype is dtype
    assert (ours.name, ours.itemsize, ours.kind, ours.type) == (dtype.name, dtype.itemsize, dtype.kind, dtype.type)
    assert str(ours) == dtype.name
    assert fnp.isdtype(ours, ours)
    assert fnp.issubdtype(ours, fnp.generic)
    assert fnp.result_type(ours, ours) is dtype
    assert pickle.loads(pickle.dumps(ours)) is ours
    assert copy.deepcopy(ours) is ours


def test_each_equals_other_names_of_the_same_dtype_only() -> None:
    assert fnp.float32 == "float32"
    assert fnp.float32 == np.float32
    for other in (fnp.float64, np.float64, "float64", 3, None, "no dtype"):
        assert fnp.float32 != other


@pytest.mark.parametrize("name", NAMES)
def test_a_call_converts(name: str) -> None:
    convert = getattr(fnp, name)
    for value in (1, True, np.int64(1), fnp.asarray(1), [1, 0], np.ones((2, 2), bool)):
        out = convert(value)
        assert out.dtype == convert
        assert np.array_equal(np.asarray(out).astype(complex), np.asarray(value, complex))
    assert fx.trace(lambda x: convert(x), fx.Spec((3,), "int8")).jaxpr.out_avals[0].dtype == convert
    assert complex(convert()) == 0


def test_refusals() -> None:
    with pytest.raises(DTypeError, match="int8: 300 does not fit in int8"):
        fnp.int8(300)
    with pytest.raises(DTypeError, match="is complex"):
        fnp.float32(1j)
    with pytest.raises(ArgumentError, match="a str is not an array"):
        fnp.float32("a")
    with pytest.raises(ArgumentError) as e:
        fnp.bfloat16([None])  # type: ignore[list-item]
    assert e.value.message == "asarray: an element: a NoneType is not an array: None"
    assert fnp.bfloat16(10**24).dtype == fnp.bfloat16
    assert repr(fnp.float32) == "fxad.numpy.float32"


def test_a_static_argument_and_a_gradient() -> None:
    f = fx.jit(lambda x, t: t(x) * 2, static_argnames="t")
    assert f(fnp.ones(3), t=fnp.float16).dtype == fnp.float16
    assert float(fx.grad(lambda x: fnp.float16(x) * fnp.float16(3))(2.0)) == 3
