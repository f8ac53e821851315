"""Positions, counts and sizes beyond 2**31: int64, or an error. No array here exists, but for the last test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import DTypeError, ShapeError

N: Final = 2**31 + 16
X, B, F = fx.Spec((N,), "int8"), fx.Spec((N,), "bool"), fx.Spec((N,), "float32")
TABLE: Final = fx.Spec((2**16, 2**15 + 1), "int8")
K, KS = fx.Spec((), "int64"), fx.Spec((3,), "int64")

Function = Callable[..., Any]
POSITIONS: Final[dict[str, tuple[Function, tuple[fx.Spec, ...]]]] = {
    "nonzero": (lambda x: fnp.nonzero(x, size=4), (B,)),
    "nonzero of two axes": (lambda x: fnp.nonzero(x, size=4), (TABLE,)),
    "flatnonzero": (lambda x: fnp.flatnonzero(x, size=4), (TABLE,)),
    "where": (lambda x: fnp.where(x, size=4), (B,)),
    "argwhere": (lambda x: fnp.argwhere(x, size=4), (B,)),
    "argmax": (fnp.argmax, (X,)),
    "argmax of two axes": (fnp.argmax, (TABLE,)),
    "argmin": (lambda x: x.argmin(), (X,)),
    "nanargmax": (fnp.nanargmax, (F,)),
    "argsort": (fnp.argsort, (X,)),
    "argpartition": (lambda x: fnp.argpartition(x, 3), (X,)),
    "lexsort": (lambda x: fnp.lexsort((x,)), (X,)),
    "searchsorted": (fnp.searchsorted, (X, fx.Spec((3,), "int8"))),
    "digitize": (lambda x, v: fnp.digitize(v, x), (X, fx.Spec((3,), "int8"))),
    "arange": (lambda: fnp.arange(N), ()),
    "arange of a large start": (lambda: fnp.arange(2**31, 2**31 + 5), ()),
    "arange of a large step": (lambda: fnp.arange(0, 2**32, 2**30), ()),
    "diag_indices": (lambda: fnp.diag_indices(N)[0], ()),
    "unravel_index": (lambda k: fnp.unravel_index(k, (2**16, 2**16)), (fx.Spec((), "int32"),)),
    "sum of bools": (fnp.sum, (B,)),
    "sum of bools where": (lambda x: fnp.sum(x, where=x), (B,)),
    "cumsum of bools": (fnp.cumsum, (B,)),
    "cumulative_sum of bools": (fnp.cumulative_sum, (B,)),
    "count_nonzero": (fnp.count_nonzero, (X,)),
    "bincount": (lambda x: fnp.bincount(x, length=4), (X,)),
    "histogram": (lambda x: fnp.histogram(x, 4)[0], (F,)),
    "unique": (lambda x: fnp.unique(x, return_index=True, return_counts=True, size=4)[1:], (X,)),
}


@pytest.mark.parametrize("name", sorted(POSITIONS))
def test_positions_and_counts_are_int64(name: str) -> None:
    f, types = POSITIONS[name]
    assert {a.dtype.name for a in fx.trace(f, *types).jaxpr.out_avals} == {"int64"}


READS: Final[dict[str, tuple[Function, tuple[fx.Spec, ...]]]] = {
    "x[k]": (lambda x, k: x[k], (X, K)),
    "x[-3]": (lambda x: x[-3], (X,)),
    "x[large]": (lambda x: x[N - 3], (X,)),
    "x[a:b]": (lambda x: x[5 : N - 3], (X,)),
    "x[::-1]": (lambda x: x[::-1], (X,)),
    "x[ks]": (lambda x, k: x[k], (X, KS)),
    "vmap x[k]": (lambda x, k: fx.vmap(lambda k: x[k])(k), (X, KS)),
    "take": (fnp.take, (X, KS)),
    "take of int32": (fnp.take, (X, fx.Spec((3,), "int32"))),
    "take of int8, clip": (lambda x, k: fnp.take(x, k, mode="clip"), (X, fx.Spec((3,), "int8"))),
    "take of int32, wrap": (lambda x, k: fnp.take(x, k, mode="wrap"), (X, fx.Spec((3,), "int32"))),
    "take of a large int": (lambda x: fnp.take(x, 2**31 + 1), (X,)),
    "take_along_axis of int32": (lambda x, k: fnp.take_along_axis(x, k, 0), (X, fx.Spec((3,), "int32"))),
    "roll by int32": (fnp.roll, (X, fx.Spec((), "int32"))),
    "insert": (lambda x: fnp.insert(x, 2**31, 1), (X,)),  # regression: an array of all places
    "delete": (lambda x: fnp.delete(x, N - 3), (X,)),
    "take_along_axis": (lambda x, k: fnp.take_along_axis(x, k, 0), (X, KS)),
    "dynamic_slice": (lambda x, k: lax.dynamic_slice(x, (k,), (3,)), (X, K)),
    "dynamic_update_slice": (lambda x, k: lax.dynamic_update_slice(x, x[:3], (k,)), (X, K)),
    "at[k].set": (lambda x, k: x.at[k].set(1), (X, K)),
    "at[ks].add": (lambda x, k: x.at[k].add(1), (X, KS)),
    "at[a:b].set": (lambda x: x.at[2 : N - 3].set(1), (X,)),
    "roll": (lambda x: fnp.roll(x, N - 5), (X,)),
    "tril": (fnp.tril, (fx.Spec((N, 1), "int8"),)),
    "eye": (lambda: fnp.eye(N, 1, dtype="int8"), ()),
    "mean where": (lambda x, m: fnp.mean(x, where=m), (F, B)),
    "median": (fnp.median, (F,)),
    "grad of x[k]": (lambda x, k: fx.grad(lambda x: x[k])(x), (F, K)),
    "scan": (lambda x: lax.scan(lambda c, a: (c + a, None), np.int8(0), x)[0], (X,)),
    "fori_loop": (lambda x: lax.fori_loop(0, N, lambda i, c: c + x[i], np.int8(0)), (X,)),
}


@pytest.mark.parametrize("name", sorted(READS))
def test_no_index_is_counted_in_32_bits(name: str) -> None:
    """A count of the elements in int32 is refused by `iota`. Start indices and vectors of indices are int64."""
    f, types = READS[name]
    program = fx.inline(fx.trace(f, *types))
    starts = [
        a.aval.dtype.name
        for eqn in program.jaxpr.eqns
        if eqn.prim.name in ("dynamic_slice", "dynamic_update_slice", "gather", "scatter")
        for a in eqn.ins[1:]
        if a.aval.dtype.kind == "i" and a.aval.dtype.name != "int8"
    ]
    assert set(starts) <= {"int64"}


def test_refusals() -> None:
    with pytest.raises(DTypeError) as e:
        lax.iota("int32", N)
    assert str(e.value).startswith(f"iota: i32 cannot count the {N} elements of axis 0")
    assert "give dtype='int64'" in str(e.value)
    with pytest.raises(DTypeError, match=rf"iota: i32 cannot count the {N} elements of axis 1"):
        fx.eval_shape(lambda: fnp.indices((N,)))
    with pytest.raises(ShapeError) as s:
        fx.eval_shape(lambda x: lax.top_k(x, 3), X)
    assert f"top_k: places in the {N} elements of the last axis do not fit in int32" in str(s.value)
    assert "use argsort, whose indices are int64 there" in str(s.value)
    with pytest.raises(DTypeError, match=f"{N} does not fit in int32"):
        fx.eval_shape(lambda x: fnp.asarray(x.size), X)


def test_small_arrays_keep_32_bits() -> None:
    x = fx.Spec((2**31 - 2,), "bool")
    for f in (fnp.argmax, fnp.sum, fnp.cumsum, fnp.count_nonzero, lambda x: fnp.flatnonzero(x, size=2**31 - 3)):
        assert {a.dtype.name for a in fx.trace(f, x).jaxpr.out_avals} == {"int32"}
    assert fnp.arange(2**31 - 2, 2**31).dtype.name == "int64"  # the end, which is no element, does not fit
    assert fnp.arange(2**31 - 3, 2**31 - 1).dtype.name == "int32"


@pytest.mark.soak
def test_one_array_of_two_gigabytes() -> None:
    host = np.zeros(N, np.int8)
    host[[5, -3]] = 3, 7
    x = fnp.asarray(host)
    del host
    assert [x[-3].item(), x[N - 3].item(), x[np.int64(N - 3)].item(), x[5].item()] == [7, 7, 7, 3]
    assert x[N - 4 :].tolist() == [0, 7, 0, 0]
    assert x[-1:-5:-1].tolist() == [0, 0, 7, 0]
    assert x[np.array([N - 3, 5])].tolist() == [7, 3]
    assert x.argmax().item() == N - 3
    (where,) = fnp.nonzero(x)
    assert where.tolist() == [5, N - 3]
    changed = x.at[N - 3].set(1)
    assert changed[-3].item() == 1
