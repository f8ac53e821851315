"""The laws of one primitive at given operands: type, lowering, batching, tangent, adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import Aval, Jaxpr, NDArray, Primitive
from fxad.runtime import CompileOptions, compile_jaxpr, devices, to_buffer, to_numpy
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.transpose import transpose
from fxad.transforms.vmap import vmap

# A program, its operands, and the results of the interpreter.
Case: TypeAlias = tuple[Jaxpr, tuple[NDArray, ...], tuple[NDArray, ...]]
TOLERANCE = {4: 2e-5, 8: 1e-10, 16: 1e-10}


def program(prim: Primitive, *avals: Aval) -> Jaxpr:
    """Returns the program of one equation."""
    b = Builder()
    return b.build(b(prim, *b.inputs(avals)), prim.name)


def eqns(jaxpr: Jaxpr) -> list[str]:
    """Returns the names of the equations, in order."""
    return [e.prim.name for e in jaxpr.eqns]


def floats(*shape: int) -> npt.NDArray[np.float64]:
    """Returns random numbers, the same ones for the same shape."""
    return np.asarray(np.random.default_rng(sum(shape)).standard_normal(shape))


def avals_of(*args: NDArray) -> tuple[Aval, ...]:
    return tuple([Aval(a.shape, a.dtype) for a in args])


def xla(jaxpr: Jaxpr, *args: NDArray) -> tuple[NDArray, ...]:
    """Compiles a program, or finds it compiled, and runs it."""
    (device, *_) = devices("cpu")
    loaded = compile_jaxpr(jaxpr, CompileOptions(), device)
    buffers = [to_buffer(np.asarray(a, order="C"), v, device) for a, v in zip(args, jaxpr.in_avals, strict=True)]
    return tuple([to_numpy(b) for b in loaded.execute(buffers)])


def xla_agrees(cases: Sequence[Case]) -> None:
    """XLA computes the results of the interpreter. All programs are compiled as one, because compilation takes most of
    the time of these tests."""
    b = Builder()
    outs = [b.inline(p, b.inputs(p.in_avals)) for p, _, _ in cases]
    together = b.build([a for each in outs for a in each], cases[0][0].name)
    found = iter(xla(together, *[a for _, args, _ in cases for a in args]))
    for _, _, want in cases:
        same(tuple(islice(found, len(want))), want)


def same(have: tuple[NDArray, ...], want: tuple[NDArray, ...], tolerance: float | None = None) -> None:
    """The types are equal and the values are close."""
    assert len(have) == len(want)
    for a, b in zip(have, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype in dtypes.INEXACT:
            wide = np.result_type(a.dtype, np.float32) if a.dtype.itemsize >= 4 else np.float32
            tol = tolerance if tolerance is not None else TOLERANCE.get(a.dtype.itemsize, 0.1)
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tol, atol=tol)
        else:
            np.testing.assert_array_equal(a, b)


def check(prim: Primitive, *args: NDArray, batching: bool = True, differentiate: bool = True) -> None:
    """Checks all laws of `prim` at `args`."""
    p = program(prim, *avals_of(*args))
    typecheck(p)
    outs = run(p, args)
    for out, aval in zip(outs, p.out_avals, strict=True):
        assert (out.shape, out.dtype) == (aval.shape, aval.dtype)
    cases = [(p, args, outs), *(batched_cases(p, *args) if batching and args else ())]
    nonzero = tuple([a.dtype in (dtypes.float64, dtypes.complex128) for a in args])
    if differentiate and any(nonzero) and any([a.inexact for a in p.out_avals]):
        cases.append(derivative_case(p, nonzero, *args))
    xla_agrees(cases)


def check_batching(p: Jaxpr, *args: NDArray, size: int = 3) -> None:
    """Batched equals stacked, for any mapped axis of each operand, in XLA too."""
    if cases := batched_cases(p, *args, size=size):
        xla_agrees(cases)


def batched_cases(p: Jaxpr, *args: NDArray, size: int = 3) -> list[Case]:
    """Batched equals stacked, for any mapped axis of each operand. Returns the cases to compare with XLA."""
    cases: list[Case] = []
    choices = [[None, *range(a.ndim + 1)] for a in args]
    combinations = [c for c in product(*choices) if any([d is not None for d in c])]
    step = max(1, len(combinations) // 8)
    for k, dims in enumerate(combinations[::step]):
        rng = np.random.default_rng(k)
        rows = [
            [perturbed(rng, a) if d is not None else a for a, d in zip(args, dims, strict=True)] for _ in range(size)
        ]
        stacked = [np.stack([r[i] for r in rows], d) if d is not None else args[i] for i, d in enumerate(dims)]
        batched, out_dims = vmap(p, size, dims)
        typecheck(batched)
        found = run(batched, stacked)
        if k % 3 == 0:
            cases.append((batched, tuple(stacked), found))
        wants = zip(*[run(p, r) for r in rows], strict=True)
        for have, d, want in zip(found, out_dims, wants, strict=True):
            same((have,), (want[0] if d is None else np.stack(want, d),))
    return cases


def perturbed(rng: np.random.Generator, a: NDArray) -> NDArray:
    """Returns another operand of the same type. Integers, which may be indices, are permuted."""
    if a.dtype in dtypes.INEXACT:
        return (a + rng.standard_normal(a.shape).astype(a.dtype)).astype(a.dtype)
    if a.ndim == 0 and a.dtype in dtypes.INTEGER:
        return np.asarray(int(a) + int(rng.integers(0, 3)), a.dtype)
    return rng.permutation(a.ravel()).reshape(a.shape)


def check_derivative(p: Jaxpr, nonzero: tuple[bool, ...], *args: NDArray) -> None:
    """The tangent is the central difference, linearize agrees with jvp, and transpose is the adjoint, in XLA too."""
    xla_agrees([derivative_case(p, nonzero, *args)])


def derivative_case(p: Jaxpr, nonzero: tuple[bool, ...], *args: NDArray) -> Case:
    """The tangent is the central difference, linearize agrees with jvp, and transpose is the adjoint. Returns the
    adjoint, to compare with XLA."""
    rng = np.random.default_rng(0)
    dots = [rng.standard_normal(a.shape).astype(a.dtype) for a, nz in zip(args, nonzero, strict=True) if nz]
    forward, out_nonzero = jvp(p, nonzero)
    typecheck(forward)
    n = len(p.outs)
    tangents = run(forward, [*args, *dots])[n:]

    def shifted(h: float) -> tuple[NDArray, ...]:
        given = iter(dots)
        return run(
            p,
            [like(wide(a) + h * wide(next(given)), a.dtype) if nz else a for a, nz in zip(args, nonzero, strict=True)],
        )

    up, down = shifted(1e-6), shifted(-1e-6)
    moving = [k for k, nz in enumerate(out_nonzero) if nz]
    slopes = tuple([like((wide(up[k]) - wide(down[k])) / 2e-6, up[k].dtype) for k in moving])
    same(tangents, slopes, 1e-6)
    for k in set(range(n)) - set(moving):
        assert np.all(up[k] == down[k])

    split = linearize(p, nonzero)
    typecheck(split.primal)
    typecheck(split.linear)
    results = run(split.primal, args)
    residuals = results[n:]
    same(run(split.linear, [*dots, *residuals]), tangents, 1e-9)
    marked = tuple([True] * len(dots) + [False] * len(residuals))
    adjoint = transpose(split.linear, marked)
    typecheck(adjoint)
    cts = [rng.standard_normal(t.shape).astype(t.dtype) for t in tangents]
    bars = run(adjoint, [*cts, *residuals])
    np.testing.assert_allclose(pairing(cts, tangents), pairing(dots, bars), rtol=1e-8, atol=1e-8)
    again = transpose(adjoint, tuple([True] * len(cts) + [False] * len(residuals)))
    typecheck(again)
    same(run(again, [*dots, *residuals]), tangents, 1e-9)
    stacked = tuple([0] * len(cts) + [None] * len(residuals))
    batched, out_dims = vmap(adjoint, 2, stacked)
    rows = run(batched, [*[np.stack([c, c]) for c in cts], *residuals])
    assert all([d is not None or not np.any(bar) for d, bar in zip(out_dims, bars, strict=True)])
    firsts = [np.take(row, 0, d) if d is not None else row for row, d in zip(rows, out_dims, strict=True)]
    same(tuple(firsts), bars, 1e-9)
    return adjoint, (*cts, *residuals), bars


def wide(a: NDArray) -> npt.NDArray[np.complex128]:
    """Converts to complex128, which contains all other dtypes."""
    return a.astype(np.complex128)


def like(a: npt.NDArray[np.complex128], dtype: dtypes.DType) -> NDArray:
    """Converts back to `dtype`, which may be real."""
    return a.astype(dtype) if dtype in dtypes.COMPLEX else a.real.astype(dtype)


def pairing(xs: Sequence[NDArray], ys: Sequence[NDArray]) -> np.float64:
    """Returns the real part of the sum of products, without conjugation: `real`, `conj` and `abs` are linear over the
    reals only."""
    return np.float64(np.real(sum([np.sum(wide(x) * wide(y)) for x, y in zip(xs, ys, strict=True)])))


def second_order(p: Jaxpr, x: NDArray) -> npt.NDArray[np.complex128]:
    """Returns the Hessian of a scalar program of one operand, by forward mode twice."""
    first, _ = jvp(p, (True,))
    second, _ = jvp(first, (True, False))
    basis = np.eye(x.size)
    return np.asarray([[wide(run(second, (x, u, v))[-1]) for v in basis] for u in basis])
