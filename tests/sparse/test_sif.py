"""The CUTEst problems of sif2jax: no nonzero of their Hessians and Jacobians is missed.

`make sif`, where jax, sif2jax and equinox are installed; an hour. `FXAD_SIF=3/20` is one of 20 parts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad.core.interpreter import run
from fxad.errors import FxadError
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.sparse.pattern import pattern_of

pytestmark = [pytest.mark.deep]
_COLUMNS = 30  # as many columns of a large derivative are computed


def check(program: fx.Program[..., Any], start: Any, name: str) -> int:
    """Check columns of the derivative of a program of one vector at a point near to the start. Returns the number of
    nonzeros that were compared."""
    rng = np.random.default_rng(0)
    x = np.asarray(start, np.float64)
    x = x + 0.01 * (1 + abs(x)) * rng.standard_normal(x.shape)
    bound = [np.asarray(b) for b in program.bound]
    wrt = (*[False] * len(bound), True)
    split = linearize(program.jaxpr, wrt)
    residuals = run(split.primal, [*bound, x])[len(program.jaxpr.outs) :]
    known = fx.sparsity(program)
    pattern = pattern_of(program.jaxpr, wrt) if known.shape[0] * known.shape[1] < 1 << 22 else known
    columns = rng.permutation(x.size)[:_COLUMNS]
    by_column = known.T
    always = pattern.T
    compared = 0
    for j in columns.tolist():
        tangent = np.zeros(x.shape)
        tangent.reshape(-1)[j] = 1
        with np.errstate(all="ignore"):
            found = iter(run(split.linear, [tangent, *residuals]))
        parts = [
            np.asarray(next(found)).ravel() if nonzero else np.zeros(a.size)
            for a, nonzero in zip(program.jaxpr.out_avals, split.out_nonzero, strict=True)
        ]
        column = np.concatenate(parts)
        rows = np.flatnonzero(np.logical_and(column != 0, column == column))
        for p in (by_column, always):
            missed = np.setdiff1d(rows, p.indices[p.indptr[j] : p.indptr[j + 1]])
            assert not len(missed), f"{name}: the pattern misses rows {missed[:5]} of column {j}"
        compared += len(rows)
    return compared


def derivatives(problem: Any) -> dict[str, tuple[Callable[[Any], Any], bool]]:
    """The functions of a problem: the objective, and its constraints or equations as one vector."""
    ravel = import_module("jax.flatten_util").ravel_pytree
    _, unravel = ravel(problem.y0)
    found: dict[str, tuple[Callable[[Any], Any], bool]] = {}
    if hasattr(problem, "objective"):
        found["objective"] = (lambda y: problem.objective(unravel(y), problem.args), True)
    if hasattr(problem, "constraint"):
        found["constraint"] = (lambda y: ravel(problem.constraint(unravel(y)))[0], False)
    return found


def test_no_nonzero_of_a_problem_is_missed() -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    sif2jax = pytest.importorskip("sif2jax")
    from_jax = import_module("fxad.interop.jax").from_jax
    ravel = import_module("jax.flatten_util").ravel_pytree
    part, parts = map(int, os.environ.get("FXAD_SIF", "0/1").split("/"))
    checked, compared, refused = 0, 0, list[str]()
    for problem in sif2jax.problems[part::parts]:
        start = np.asarray(ravel(problem.y0)[0])
        if start.dtype.kind != "f" or start.size > 20_000:
            continue
        for what, (f, scalar) in derivatives(problem).items():
            name = f"{type(problem).__name__}.{what}"
            try:
                program = from_jax(f, start)
                program = fx.grad(program) if scalar else program
            except (FxadError, NotImplementedError, TypeError) as e:
                refused.append(f"{name}: {type(e).__name__}: {str(e)[:80]}")
                continue
            compared += check(program, start, name)
            checked += 1
            if os.environ.get("FXAD_SIF"):
                sys.stdout.write(f"{name} {start.size} {compared}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{checked} functions, {compared} nonzeros; {len(refused)} do not translate: {refused[:10]}\n")
    assert checked > len(refused)
