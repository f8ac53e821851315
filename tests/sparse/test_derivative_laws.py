"""Laws of patterns, colourings and sparse derivatives on generated programs. Deeply: `FXAD_PROFILE=deep`."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given

import fxad as fx
from fxad.core.flags import leading, select_by_flags
from fxad.core.interpreter import run
from fxad.core.trees import tree
from fxad.errors import NotDifferentiableError, NotLinearError
from fxad.ir import Jaxpr, NDArray
from fxad.testing import Case, cases, stacks
from fxad.testing.sparse_laws import as_mask
from fxad.tracing.program import Program
from fxad.transforms import transpose
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.sparse.pattern import pattern_of
from tests.laws.budget import share
from tests.sparse.stacked import check_batch, programs_of

_LARGEST = 40  # elements of all operands: one product for each


def drawn(case: Case) -> tuple[Jaxpr, tuple[bool, ...], list[NDArray]] | None:
    """A small program with real operands and its real results; None if it has none of them."""
    jaxpr = case.program
    wrt = tuple([a.inexact for a in jaxpr.in_avals])
    jaxpr = jaxpr.with_outs([a for a in jaxpr.outs if a.aval.dtype.kind == "f"])
    size = sum([a.size for a in jaxpr.in_avals if a.inexact])
    if not 0 < size <= _LARGEST or not jaxpr.outs or any([a.dtype.kind == "c" for a in jaxpr.in_avals]):
        return None
    return jaxpr, wrt, [np.asarray(a) for a in case.args]


def jacobian(jaxpr: Jaxpr, wrt: tuple[bool, ...], args: list[NDArray]) -> NDArray:
    """The dense Jacobian, by one product for each element of the operands."""
    split = linearize(jaxpr, wrt)
    residuals = run(split.primal, args)[len(jaxpr.outs) :]
    avals = select_by_flags(jaxpr.in_avals, wrt)
    columns = []
    for k, aval in enumerate(avals):
        for j in range(aval.size):
            tangents = [np.zeros(a.shape, a.dtype) for a in avals]
            tangents[k].reshape(-1)[j] = 1
            found = iter(run(split.linear, [*tangents, *residuals]))
            columns.append(
                np.concatenate([
                    np.asarray(next(found), np.float64).ravel() if nonzero else np.zeros(a.size)
                    for a, nonzero in zip(jaxpr.out_avals, split.out_nonzero, strict=True)
                ])
            )  # fmt: skip
    return np.stack(columns, 1)


@share(4)
@given(cases(differentiable=True, size=6, depth=1))
def test_the_sparse_jacobian_is_the_dense_one(case: Case) -> None:
    """For each kind of colouring, and so are its products with a vector."""
    found = drawn(case)
    if found is None:
        return
    jaxpr, wrt, args = found
    with np.errstate(all="ignore"):
        dense = jacobian(jaxpr, wrt, args)
    if not np.isfinite(dense).all():
        return
    anything: Any = fx
    ins, outs = [tuple(range(len(atoms))) for atoms in (jaxpr.ins, jaxpr.outs)]
    program: Program[..., Any] = Program(jaxpr, tree.structure((ins, {})), tree.structure(outs))
    argnums = tuple([k for k, inexact in enumerate(wrt) if inexact])
    pattern = anything.sparsity(program, argnums)
    scale = max(float(np.abs(dense).max(initial=0)), 1.0)
    finfo: Any = np.finfo
    eps = max([float(finfo(a.dtype).eps) for a in jaxpr.out_avals])
    for kind in (None, "rows", "both"):
        derivative = anything.sparse_jacobian(program, pattern, pattern.color(kind), argnums)
        matrix = fx.interpret(derivative, *args)
        entries = np.zeros(dense.shape)
        entries[pattern.rows, pattern.indices] = np.asarray(matrix.data)
        assert np.allclose(entries, dense, rtol=0, atol=64 * eps * scale), (kind, jaxpr)
    direction = np.linspace(-1.0, 2.0, pattern.shape[1])
    times = fx.trace(
        lambda *args: anything.sparse_jacobian(program, pattern, argnums=argnums)(*args) @ direction, *args
    )
    product = np.asarray(fx.interpret(times, *args))
    assert np.allclose(product, np.dot(dense, direction), rtol=0, atol=1e3 * eps * scale), jaxpr


def check_transposed(jaxpr: Jaxpr, wrt: tuple[bool, ...]) -> None:
    """The pattern of the transposed linear program is the transpose."""
    try:
        linear = linearize(jaxpr, wrt).linear
        n = sum(wrt)
        adjoint = transpose(linear, leading(n, len(linear.ins)))
    except (NotDifferentiableError, NotLinearError):
        return
    m = len(linear.outs)
    forward = as_mask(pattern_of(linear, leading(n, len(linear.ins))))
    backward = as_mask(pattern_of(adjoint, leading(m, len(adjoint.ins))))
    assert (forward == backward.T).all(), jaxpr


@share(4)
@given(cases(differentiable=True, unbounded=True, size=6, depth=1), stacks())
def test_patterns_of_batches_and_of_transposed_programs(case: Case, stack: tuple[str, ...]) -> None:
    """Of what a stack of transformations returns, and of the programs on the way."""
    for program in programs_of(case, stack):
        found = drawn(program)
        if found is None:
            return
        jaxpr, wrt, _ = found
        check_batch(jaxpr, wrt)
        check_transposed(jaxpr, wrt)
