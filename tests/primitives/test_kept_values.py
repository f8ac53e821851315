"""`kept_values`: a program split at the values that it keeps, and its second half on the results of the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.dce import dce
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import all_prims
from fxad.primitives.control.kept_values import has_kept_values, split_at_kept
from fxad.primitives.control.remat import Remat
from fxad.primitives.elementwise.exponential import Exp


def kept(x: Any) -> Any:
    return fx.checkpoint_name(fnp.exp(x), "e")


def twice_marked(x: Any) -> Any:
    e = fnp.exp(x)
    return fx.checkpoint_name(e, "e") + fx.checkpoint_name(e, "e")


def of_a_loop(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, kept(c[1]) * 0.1), (0, x), max_steps=5)[1]


FUNCTIONS: list[Any] = [
    lambda x: fnp.sin(kept(x) * 4.5),
    twice_marked,
    lambda x: lax.scan(lambda c, s: (kept(c * 0.1) + s, kept(s)), x, fnp.arange(3, dtype="float32")),
    lambda x: lax.cond(x > 0, lambda x: kept(x) * kept(2 * x), lambda x: fnp.sin(kept(-x)), x),
    of_a_loop,
    lambda x: fx.jit(lambda x: kept(x) + 1)(x) * kept(x),
]


@pytest.mark.parametrize("f", FUNCTIONS)
def test_the_second_half_gives_the_same_results_and_computes_no_kept_value(f: Any) -> None:
    marked = fx.trace(fx.remat(f, policy=fx.policies.names("e")), fx.Spec((), "float32")).jaxpr
    (eqn,) = marked.eqns
    assert isinstance(eqn.prim, Remat)
    (body,) = eqn.prim.bodies
    assert has_kept_values(body)
    storing, resuming = split_at_kept(body)
    typecheck(storing)
    typecheck(resuming)
    assert not any([isinstance(p, Exp) for p in all_prims(dce(resuming))])
    n = len(body.outs)
    for x in (0.5, -0.25):
        want = run(body, [np.array(x, np.float32)])
        outs = run(storing, [np.array(x, np.float32)])
        have = run(resuming, [np.array(x, np.float32), *outs[n:]])
        for a, b, c in zip(outs[:n], have, want, strict=True):
            np.testing.assert_array_equal(a, c)
            np.testing.assert_array_equal(b, c)


def test_a_program_that_keeps_nothing_is_both_halves() -> None:
    program = fx.trace(fnp.sin, fx.Spec(())).jaxpr
    assert split_at_kept(program) == (program, program)
