"""Compares a function on fxad arrays with one on NumPy arrays: eagerly, and traced and interpreted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import fxad.numpy as fnp
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import Jaxpr
from fxad.tracing.array import Array, asarray, aval_of
from fxad.tracing.trace_function import trace_flat

Value = npt.NDArray[np.generic]


def traced(fn: Callable[..., object], *args: Value) -> tuple[Jaxpr, list[Value]]:
    """Returns the program of `fn`, and its results for `args`."""

    def flat(xs: list[Array]) -> Sequence[object]:
        out = fn(*xs)
        return list(out) if isinstance(out, tuple | list) else [out]

    jaxpr, captured = trace_flat(flat, [aval_of(a) for a in args], "f")
    typecheck(jaxpr)
    return jaxpr, [np.asarray(y) for y in run(jaxpr, [*map(np.asarray, captured), *args])]


def names(fn: Callable[..., object], *args: Value) -> list[str]:
    """Returns the names of the equations of `fn`."""
    return [e.prim.name for e in traced(fn, *args)[0].eqns]


def close(ours: object, theirs: object, *, dtype: bool = True) -> None:
    """The shapes and dtypes are equal, and the values up to rounding."""
    a, b = np.asarray(ours), np.asarray(theirs)
    assert a.shape == b.shape, (a.shape, b.shape)
    if dtype:
        assert a.dtype == b.dtype, (a.dtype, b.dtype)
    if a.dtype == np.bool_ or a.dtype.kind in "iu":
        np.testing.assert_array_equal(a, b)
        return
    eps = {2: 4e-3, 4: 1e-5, 8: 1e-5 if a.dtype.kind == "c" else 1e-10, 16: 1e-10}[a.dtype.itemsize]
    np.testing.assert_allclose(a.astype(np.complex128), b.astype(np.complex128), rtol=eps, atol=eps)


def by_kind(value: object, args: Sequence[object]) -> Value:
    """Returns the result of NumPy in the dtype of fxad's promotion: float64 only if an argument is (decision 64)."""
    out = np.asarray(value)
    kinds = [np.asarray(a).dtype for a in args]
    if out.dtype.kind not in "fc" or any(d in (np.float64, np.complex128) for d in kinds):
        return out
    if out.dtype.itemsize > 4 or all(d.kind in "iub" for d in kinds):
        return out.astype(np.complex64 if out.dtype.kind == "c" else np.float32)
    return out


def check(
    fn: Callable[..., object],
    reference: Callable[..., object],
    *args: Value,
    dtype: bool = True,
    eager: bool = True,
    promoted: bool = True,
) -> None:
    """`fn` computes what `reference` does, outside of a trace and in one. `promoted`: the dtype of the result follows
    from promotion, and not from an argument."""
    want = reference(*args)
    narrow = promoted and args and all(np.asarray(a).dtype.kind in "iub" for a in args)
    found = [np.asarray(w).dtype for w in (want if isinstance(want, tuple | list) else [want])]
    if narrow and np.float16 in found:  # NumPy computes floating functions of narrow integers in float16
        want = reference(*[a.astype(np.float32) for a in args])
    results = want if isinstance(want, tuple | list) else [want]
    wanted = [by_kind(w, args) if promoted else np.asarray(w) for w in results]
    for y, w in zip(traced(fn, *args)[1], wanted, strict=True):
        close(y, w, dtype=dtype)
    if eager:
        got = fn(*map(asarray, args))
        for y, w in zip(list(got) if isinstance(got, tuple | list) else [got], wanted, strict=True):
            assert isinstance(y, Array)
            close(y, w, dtype=dtype)


def same(name: str, *args: Any, dtype: bool = True, eager: bool = False, **given: Any) -> None:
    """A function of `fxad.numpy` computes what NumPy's function of that name does. `given` are arguments that are no
    arrays."""
    check(
        lambda *xs: getattr(fnp, name)(*xs, **given),
        lambda *xs: getattr(np, name)(*xs, **given),
        *args,
        dtype=dtype,
        eager=eager,
    )
