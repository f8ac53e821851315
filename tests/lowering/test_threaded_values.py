"""`threaded_values`: a value passes through the bodies that change it, once for each time that they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import INT32_SCALAR, Atom, Eqn, HigherOrder, Jaxpr, Lit, all_prims
from fxad.lowering.threaded_values import with_predicate_in_body, with_threaded
from fxad.primitives.control.while_ import While
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.trigonometric import Sin


def counts(jaxpr: Jaxpr) -> bool:
    return any([isinstance(p, Sin) for p in all_prims(jaxpr)])


def with_count(jaxpr: Jaxpr) -> Jaxpr:
    """Return (count, operands) -> (count, results): the count is that of the sines that are computed."""
    b = Builder()
    count: Atom = b.input(INT32_SCALAR)

    def rule(b: Builder, eqn: Eqn, ins: Sequence[Atom]) -> Sequence[Atom] | None:
        nonlocal count
        if isinstance(eqn.prim, Sin):
            count = b.one(ADD, count, Lit.of(1, INT32_SCALAR))
        elif isinstance(eqn.prim, HigherOrder) and any(map(counts, eqn.prim.bodies)):
            threaded = with_threaded(eqn.prim, INT32_SCALAR, with_count, counts)
            assert threaded is not None
            count, outs = threaded.bind(b, count, ins)
            return outs
        return None

    outs = b.inline(jaxpr, b.inputs(jaxpr.in_avals), rule)
    return b.build((count, *outs), jaxpr.name)


def scanned(x: Any) -> Any:
    return lax.scan(lambda c, s: (fnp.sin(c) + s, fnp.sin(s)), x, fnp.arange(3, dtype="float32"))


PROGRAMS = [
    (lambda x: fnp.sin(fnp.sin(x)), 2),
    (lambda x: fx.checkpoint(lambda x: fnp.sin(x) * 2)(x), 1),
    (scanned, 6),
    (lambda x: lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, fnp.sin(c[1])), (0, x))[1], 4),
    (lambda x: lax.cond(x > 0, lambda x: fnp.sin(fnp.sin(x)), lambda x: x, x), 2),
    (lambda x: lax.cond(x < 0, lambda x: fnp.sin(fnp.sin(x)), lambda x: x, x), 0),
]


@pytest.mark.parametrize(("f", "n"), PROGRAMS)
def test_each_run_of_a_body_changes_the_value(f: Any, n: int) -> None:
    program = fx.trace(f, fx.Spec((), "float32")).jaxpr
    threaded = with_count(program)
    typecheck(threaded)
    x = np.array(0.5, np.float32)
    count, *outs = run(threaded, [np.array(10, np.int32), x])
    assert count == 10 + n
    for have, want in zip(outs, run(program, [x]), strict=True):
        np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("max_steps", [None, 0, 2, 9])
def test_a_predicate_in_the_body(max_steps: int | None) -> None:
    program = fx.trace(
        lambda x: lax.while_loop(lambda c: c < 5 * fnp.cos(x) + 6, lambda c: c * 2 + x, x, max_steps=max_steps),
        fx.Spec((), "float32"),
    ).jaxpr
    (eqn,) = [e for e in program.eqns if isinstance(e.prim, While)]
    assert isinstance(eqn.prim, While)
    moved = with_predicate_in_body(eqn.prim)
    typecheck(moved)
    for x in (0.1, 1.0, 20.0):
        ins = [np.asarray(np.float32(x) if not isinstance(a, Lit) else a.value) for a in eqn.ins]
        b = Builder()
        direct = b.build(b(eqn.prim, *b.inputs(moved.in_avals)))
        assert run(moved, ins) == run(direct, ins)
