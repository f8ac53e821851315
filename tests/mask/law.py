"""The law of mask, with the NumPy interpreter: the valid part of each result is the result of the program of that
size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad.core.interpreter import run
from fxad.core.sizes.size import substitute_sizes
from fxad.ir import Aval, Jaxpr, NDArray
from fxad.primitives.reduce import extreme_value
from fxad.transforms import grad as grad_jaxpr
from fxad.transforms.mask.mask import mask
from fxad.transforms.specialize import size_names, specialize

Values = dict[str, int]
BAD: tuple[float, ...] = (np.nan, np.inf, -np.inf, -0.0, 1e30)


def shape_at(aval: Aval, values: Values) -> tuple[int, ...]:
    return tuple([substitute_sizes(n, values) for n in aval.shape])


def part(x: NDArray, shape: Sequence[int]) -> NDArray:
    return x[tuple([slice(n) for n in shape])]


def operand(k: int, shape: tuple[int, ...], dtype: Any) -> NDArray:
    return np.random.default_rng(k + 1).normal(size=shape).astype(dtype)


def as_program(jaxpr: Jaxpr) -> fx.Program[..., Any]:
    ins = fx.tree.structure((tuple(range(len(jaxpr.ins))), {}))
    return fx.Program(jaxpr, ins, fx.tree.structure(tuple(range(len(jaxpr.outs)))))


def padded(x: NDArray, shape: Sequence[int], bad: float) -> NDArray:
    """Returns `x` padded to `shape`. The padding is `bad`, or the extreme value of an integer dtype."""
    kind = x.dtype.kind
    worst = extreme_value(x.dtype, 1 if bad > 0 else -1).value if kind in "iu" else bad
    out = np.full(shape, worst, x.dtype)
    out[tuple([slice(n) for n in x.shape])] = x
    return out


def close(have: NDArray, want: NDArray, rtol: float, where: str, slack: float = 0.0) -> None:
    """Elements differ by little, relative to themselves or to the largest one, of which they may be a difference; or by
    `slack`."""
    have, want = [np.asarray(x, np.complex128 if want.dtype.kind == "c" else np.float64) for x in (have, want)]
    largest = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    atol = max(1e-5, rtol / 5 * largest) if rtol else 0.0
    np.testing.assert_allclose(have, want, rtol=rtol, atol=atol + slack, err_msg=where)


def close_result(
    k: int, have: NDArray, rtol: float, where: str, program: Jaxpr, args: Sequence[NDArray], want: Sequence[NDArray]
) -> None:
    """Result `k` is close to `want[k]`, which `program` computes from `args`.

    A program may amplify rounding errors, as `tanh(x) ** -2` does near 0. So if the result is not close, it may differ
    by a few times as much as the result does when the last digits of the operands change.
    """
    try:
        close(have, want[k], rtol, where)
    except AssertionError:
        changes = [
            np.abs(np.subtract(run(program, other)[k], want[k]))
            for other in map(_with_other_digits, [args] * 4, range(4))
        ]
        slack = max([c[np.isfinite(c)].max(initial=0.0) for c in changes])
        if slack == 0:
            raise
        close(have, want[k], rtol, where, 4 * slack)


def _with_other_digits(args: Sequence[NDArray], seed: int) -> list[NDArray]:
    """Returns the operands with floats that differ in their last digits."""
    rng = np.random.default_rng(seed)

    def changed(a: NDArray) -> NDArray:
        factors = 1 + float(np.finfo(str(a.dtype)).eps) * rng.integers(-2, 3, a.shape)
        return np.asarray(np.multiply(a, factors), a.dtype)

    return [changed(a) if a.dtype.kind == "f" else a for a in args]


def check(
    program: Jaxpr,
    padding: Values,
    values: Values,
    make: Callable[[int, tuple[int, ...], Any], NDArray],
    bad: float = np.nan,
    rtol: float = 2e-4,
) -> None:
    """Compares the masked program at `values`, with `bad` in the padding, with the program of that size."""
    own = sorted({n.name for n in size_names(program)})
    pad = tuple([(n, padding[n]) for n in own])
    at = {n: values[n] for n in own}
    masked = mask(program, pad)
    fx.typecheck(masked)
    args = [make(k, shape_at(a, at), a.dtype) for k, a in enumerate(program.in_avals)]
    operands = [padded(x, v.shape, bad) for x, v in zip(args, masked.in_avals, strict=False)]
    unpadded = specialize(program, tuple(at.items()))
    want = run(unpadded, args)
    have = run(masked, [*operands, *[np.asarray(at[n], np.int32) for n in own]])
    for k, (w, h, a) in enumerate(zip(want, have, program.out_avals, strict=True)):
        valid = part(h, shape_at(a, at))
        assert valid.shape == w.shape
        if a.inexact:
            close_result(k, valid, rtol, f"result {k} at {at}, padding {bad}", unpadded, args, want)
        else:
            np.testing.assert_array_equal(valid, w, err_msg=f"result {k} at {at}, padding {bad}")
        rest = np.array(h)
        rest[tuple([slice(n) for n in w.shape])] = 0
        assert not rest.any(), f"the padding of result {k} at {at} is not zero: {rest}"


def loss(program: Jaxpr) -> Jaxpr | None:
    """Returns the program of the weighted sum of the floating results, or None without floating results."""

    def summed(*args: Any) -> Any:
        outs = fx.tree.leaves(as_program(program)(*args))
        real = [x for x in outs if x.dtype.kind == "f"]
        return sum([fnp.sum(fnp.sin(x) * (1.5 + k)) for k, x in enumerate(real)]) if real else None

    if not any([a.dtype.kind == "f" for a in program.out_avals]):
        return None
    return fx.trace(summed, *[fx.Spec(a.shape, a.dtype) for a in program.in_avals]).jaxpr


def check_gradients(
    program: Jaxpr,
    padding: Values,
    values: Values,
    make: Callable[[int, tuple[int, ...], Any], NDArray],
    bad: float = np.nan,
) -> None:
    """Compares mask(grad(f)) and grad(mask(f)) with the gradient at that size. The cotangent of the padding is zero.

    grad(mask(f)) is compared only if the gradient at that size computes no nan.
    """
    summed = loss(program)
    wrt = tuple([a.dtype.kind == "f" for a in program.in_avals])
    if summed is None or not any(wrt):
        return
    gradient = grad_jaxpr(summed, wrt)
    check(gradient, padding, values, make, bad, rtol=1e-3)
    own = sorted({n.name for n in size_names(summed)})
    at = {n: values[n] for n in own}
    masked = mask(summed, tuple([(n, padding[n]) for n in own]))
    backward = grad_jaxpr(masked, (*wrt, *[False] * len(own)))
    args = [make(k, shape_at(a, at), a.dtype) for k, a in enumerate(summed.in_avals)]
    operands = [padded(x, v.shape, bad) for x, v in zip(args, masked.in_avals, strict=False)]
    unpadded = specialize(gradient, tuple(at.items()))
    if fx.explain_nan(as_program(unpadded), *args):
        return  # a valid element has an infinite derivative: decision 79
    want = run(unpadded, args)
    have = run(backward, [*operands, *[np.asarray(at[n], np.int32) for n in own]])
    for k, (w, h) in enumerate(zip(want, have, strict=True)):
        close_result(k, part(h, w.shape), 1e-3, f"gradient {k} at {at}", unpadded, args, want)
        rest = np.array(h)
        rest[tuple([slice(n) for n in w.shape])] = 0
        assert not rest.any(), f"the cotangent of the padding of operand {k} at {at} is not zero: {rest}"


__all__ = ["BAD", "as_program", "check", "check_gradients", "close", "loss", "operand", "padded", "part"]
