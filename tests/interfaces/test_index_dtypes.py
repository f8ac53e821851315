"""Indices, sizes and counts as arrays of every integer dtype. None is narrowed before it is compared: a number beyond
int32 is out of range, on its own side, as the largest and the least int32 are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import scipy.special

import fxad as fx
import fxad.numpy as fnp
import fxad.scipy.special as special
from fxad import lax, nn
from fxad.errors import CheckError, FxadError

V: Final = np.arange(5, dtype=np.float32) + 1
X: Final = np.arange(12, dtype=np.float32).reshape(3, 4)
ONE_AXIS: Final = lax.GatherDimensionNumbers((), (0,), (0,))
INTO_AXIS: Final = lax.ScatterDimensionNumbers((), (0,), (0,))
QKV: Final = tuple([np.arange(k, k + 3, dtype=np.float32).reshape(1, 3, 1, 1) for k in range(3)])


def pair(i: Any) -> Any:
    return fnp.stack([i, i])


# Each is a function of one integer: an index, an offset, a length or a count. All numbers that are too large give the
# same result.
KINDS: Final[dict[str, Callable[[Any], Any]]] = {
    "dynamic_slice": lambda i: lax.dynamic_slice(V, (i,), (2,)),
    "dynamic_index_in_dim": lambda i: lax.dynamic_index_in_dim(V, i),
    "dynamic_update_slice": lambda i: lax.dynamic_update_slice(V, V[:2] * 0, (i,)),
    "x[i]": lambda i: fnp.asarray(V)[i],
    "x[1, i]": lambda i: fnp.asarray(X)[1, i],
    "x[[i, i]]": lambda i: fnp.asarray(V)[pair(i)],
    "x.at[i].set": lambda i: fnp.asarray(V).at[i].set(0.0),
    "x.at[[i, i]].add": lambda i: fnp.asarray(V).at[pair(i)].add(1.0),
    "x.at[i].get fill": lambda i: fnp.asarray(V).at[i].get(mode="fill", fill_value=-1.0),
    "x.at[i].get clip": lambda i: fnp.asarray(V).at[i].get(mode="clip"),
    "take clip": lambda i: fnp.take(V, i, mode="clip"),
    "take_along_axis": lambda i: fnp.take_along_axis(fnp.asarray(V), pair(i), 0),
    "choose clip": lambda i: fnp.choose(i, [V[0], V[1]], mode="clip"),
    "put clip": lambda i: fnp.put(V, i, 0.0, inplace=False, mode="clip"),
    "insert": lambda i: fnp.insert(V, i, 0.0),
    "delete": lambda i: fnp.delete(V, i, assume_unique_indices=True),
    "repeat": lambda i: fnp.repeat(V, fnp.stack([fnp.ones((), i.dtype), i, i, i, i]), total_repeat_length=6),
    "ravel_multi_index": lambda i: fnp.ravel_multi_index((i, i), (3, 4), mode="clip"),
    "searchsorted": lambda i: fnp.searchsorted(fnp.arange(5), i),
    "bincount": lambda i: fnp.bincount(fnp.stack([i]), length=4),
    "tril": lambda i: fnp.tril(X, i),
    "trace": lambda i: fnp.trace(X, i),
    "segment_sum": lambda i: fx.ops.segment_sum(V[:2], pair(i), 3),
    "segment_max": lambda i: fx.ops.segment_max(V[:2], pair(i), 3),
    "one_hot": lambda i: nn.one_hot(i, 4),
    "switch": lambda i: lax.switch(i, [lambda a: a, lambda a: a * 2, lambda a: a * 3], V[1]),
    "gather": lambda i: lax.gather(V, fnp.stack([i])[:, None], ONE_AXIS, (1,)),
    "gather clip": lambda i: lax.gather(V, fnp.stack([i])[:, None], ONE_AXIS, (1,), mode="clip"),
    "scatter_add": lambda i: lax.scatter_add(V, fnp.stack([i])[:, None], V[:1], INTO_AXIS),
    "attention lengths": lambda i: nn.dot_product_attention(*QKV, key_value_seq_lengths=fnp.stack([i])),
    "ragged_dot": lambda i: lax.ragged_dot(X, np.ones((1, 4, 2), np.float32), fnp.stack([i])),
    "fori_loop lower": lambda i: lax.fori_loop(i, fnp.asarray(3, i.dtype), lambda _, a: a + 1, V[0]),
    "mask": lambda i: fx.mask(fnp.sum, ("(n,)",))(V, sizes={"n": i}),
    "masked dynamic_slice": lambda i: fx.mask(lambda a, i: lax.dynamic_slice(a, (i,), (1,)), ("(n>=1,)", None))(
        V, i, sizes={"n": 3}
    ),
    "masked x[i]": lambda i: fx.mask(lambda a, i: a[i], ("(n>=1,)", None))(V, i, sizes={"n": 3}),
    "masked x.at[i].set": lambda i: fx.mask(lambda a, i: a.at[i].set(0.0), ("(n,)", None))(V, i, sizes={"n": 3}),
}
LARGE: Final = {
    "int64": (2**32, 2**32 + 1, 2**32 + 2, 2**63 - 1),
    "uint32": (2**31 + 1, 2**32 - 1),
    "uint64": (2**32 + 1, 2**63 + 1, 2**64 - 1),
    "int8": (127,),
    "uint8": (129, 255),
}
SMALL: Final = {"int64": (-(2**32), 1 - 2**32, 2 - 2**32, -(2**63)), "int8": (-128,)}


def result(f: Callable[[Any], Any], value: int, dtype: str) -> Any:
    try:
        return np.asarray(f(fnp.asarray(value, dtype)))
    except FxadError as e:
        return type(e)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_number_beyond_int32_is_out_of_range(kind: str) -> None:
    for f in (KINDS[kind], fx.jit(KINDS[kind])):
        for numbers, limit in ((LARGE, 2**31 - 1), (SMALL, -(2**31))):
            want = result(f, limit, "int32")
            for dtype, values in numbers.items():
                for value in values:
                    np.testing.assert_array_equal(result(f, value, dtype), want, err_msg=f"{kind} {dtype} {value}")


# regression: sizes={"n": int64 2**32 + 2} passed the check as 2
@pytest.mark.parametrize("how", [lambda f: f, fx.jit])
def test_a_size_is_checked_in_its_own_dtype(how: Callable[[Any], Any]) -> None:
    run = how(fx.mask(fnp.sum, ("(n,)",), check=True))
    for dtype, values in {**LARGE, "int64": (*LARGE["int64"], *SMALL["int64"])}.items():
        for value in values:
            with pytest.raises(CheckError, match=f"the size n is {value}, the padded arguments hold 0 to 5"):
                run(V, sizes={"n": fnp.asarray(value, dtype)})
        assert run(V, sizes={"n": fnp.asarray(2, dtype)}) == 3.0


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint32", "uint64", "float32", "float64"])
def test_order_of_expn(dtype: str) -> None:
    x = 0.5
    orders = [0, 1, 5, 100] + [
        n for n in (2**31 - 128, 2**31, 2**31 + 100, 2**32 + 1) if dtype not in ("int8", "uint8")
    ]
    for order in orders:
        n = np.asarray(order % 2**32 if dtype == "uint32" else order).astype(dtype)
        want = scipy.special.expn(int(n), x) if int(n) < 2**31 else np.nan
        np.testing.assert_allclose(special.expn(n, np.float64(x)), want, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint32", "uint64"])
def test_counts_of_repeat(dtype: str) -> None:
    counts = np.array([100, 100, 100, 2, 1], dtype)
    want = np.repeat(V, counts.astype(np.int64))
    np.testing.assert_array_equal(fnp.repeat(V, counts), want)
    np.testing.assert_array_equal(fx.jit(lambda c: fnp.repeat(V, c, total_repeat_length=303))(counts), want)
