"""No nonzero of a Jacobian is missed: every linear primitive, and programs under stacks of transformations."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given

from fxad.core.builder import single_equation
from fxad.core.flags import leading
from fxad.errors import NotDifferentiableError, NotLinearError
from fxad.ir import Aval, Jaxpr, NDArray, Primitive
from fxad.primitives import ALL
from fxad.primitives.collectives import COLLECTIVES
from fxad.testing import Application, Case, calls, cases
from fxad.testing.sparse_laws import as_mask, check_pattern_covers, dense_pattern
from fxad.transforms import vjp_fused
from fxad.transforms.sparse.pattern import pattern_of, pattern_with_values
from fxad.transforms.vmap import vmap
from tests.laws.budget import share
from tests.sparse.stacked import check_batch

_LARGEST = 60  # elements of all operands: one product for each
BOUND = [k for k in ALL if k not in COLLECTIVES]


def _small(jaxpr: Jaxpr) -> bool:
    return sum([a.size for a in jaxpr.in_avals if a.inexact]) <= _LARGEST


@pytest.mark.parametrize("kind", BOUND, ids=lambda kind: kind.name)
def test_a_primitive_has_no_missed_nonzero(kind: type[Primitive]) -> None:
    """And the pattern of its batch is block-diagonal."""

    @share(3)
    @given(calls(kind, smooth=True))
    def law(application: Application) -> None:
        args = [np.asarray(a) for a in application.args]
        jaxpr = single_equation(application.prim, [Aval(a.shape, a.dtype) for a in args])
        wrt = tuple([a.inexact for a in jaxpr.in_avals])
        if not any(wrt) or not _small(jaxpr):
            return
        check_pattern_covers(jaxpr, wrt, args)
        check_known_values(jaxpr, wrt, args)
        try:
            check_batch(jaxpr, wrt, exact=False)  # a slice of the whole array at an index is a scatter in a batch
        except NotDifferentiableError:
            return

    law()


def check_known_values(jaxpr: Jaxpr, wrt: tuple[bool, ...], args: list[NDArray]) -> None:
    """The pattern at given values covers the Jacobian there, and lies in the pattern for all values."""
    try:
        dense = dense_pattern(jaxpr, wrt, args)
    except NotDifferentiableError:
        return
    there = as_mask(pattern_with_values(jaxpr, wrt, [partial(np.asarray, a) for a in args]))
    assert np.less_equal(dense, there).all(), (jaxpr, args)
    assert np.less_equal(there, as_mask(pattern_of(jaxpr, wrt))).all(), (jaxpr, args)


@share(30)
@given(cases(differentiable=True, unbounded=True))
def test_a_program_has_no_missed_nonzero(case: Case) -> None:
    jaxpr, args = case.program, [np.asarray(a) for a in case.args]
    wrt = tuple([a.inexact for a in jaxpr.in_avals])
    if any(wrt) and _small(jaxpr):
        check_pattern_covers(jaxpr, wrt, args)
        check_known_values(jaxpr, wrt, args)


@share(30)
@given(cases(differentiable=True))
def test_gradients_and_batches_have_no_missed_nonzero(case: Case) -> None:
    """The cotangents as a program of the operands, and its batch."""
    wrt = tuple([a.inexact for a in case.program.in_avals])
    if not any(wrt) or not _small(case.program):
        return
    try:
        backward = vjp_fused(case.program, wrt)
    except (NotDifferentiableError, NotLinearError):
        return
    cotangents = [
        np.linspace(0.5, 1.5, a.size).reshape(a.shape).astype(a.dtype) for a in backward.in_avals[len(case.args) :]
    ]
    args = [*[np.asarray(a) for a in case.args], *cotangents]
    flags = (*wrt, *leading(0, len(cotangents)))
    check_pattern_covers(backward, flags, args)
    batched = vmap(backward, 2, (0,) * len(args), (0,) * len(backward.outs))[0]
    check_pattern_covers(batched, flags, [np.stack([a, a]) for a in args])
