"""The checkers for users' own passes, on passes that keep the meaning of programs and on passes with planted faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import find, given, settings

import fxad.numpy as fnp
from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.core.typecheck import typecheck
from fxad.errors import ArgumentError
from fxad.ir import Atom, Eqn, Jaxpr, Lit
from fxad.primitives import elementwise as ew
from fxad.testing import (
    Case,
    case,
    cases,
    check_rewrite,
    check_rewrite_keeps_gradients,
    check_rewrite_under_vmap,
    programs,
)
from fxad.testing.compare import differ


def rewritten(jaxpr: Jaxpr, rule: Callable[[Builder, Eqn, tuple[Atom, ...]], Atom | None]) -> Jaxpr:
    """The program with the result of `rule` in place of each equation for which it has one."""
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    for eqn in jaxpr.eqns:
        ins = tuple([env.get(a, a) for a in eqn.ins])
        new = rule(b, eqn, ins)
        env.update(zip(eqn.outs, b.copy(eqn, ins) if new is None else (new,), strict=True))
    return b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name)


def is_square(eqn: Eqn) -> bool:
    return eqn.prim is ew.MUL and eqn.ins[0] == eqn.ins[1] and eqn.outs[0].aval.dtype == np.float64


@by_value
def squares_by_powers(jaxpr: Jaxpr) -> Jaxpr:
    """x * x becomes x ** 2, which has the same bits."""
    return rewritten(jaxpr, lambda b, e, ins: b.one(ew.IntegerPow(2), ins[0]) if is_square(e) else None)


@by_value
def squares_that_round(jaxpr: Jaxpr) -> Jaxpr:
    """x * x becomes x * (x * 3) / 3."""

    def rule(b: Builder, e: Eqn, ins: tuple[Atom, ...]) -> Atom | None:
        if not is_square(e):
            return None
        three = Lit.of(3.0, ins[0].aval)
        return b.one(ew.DIV, b.one(ew.MUL, b.one(ew.MUL, ins[0], three), ins[0]), three)

    return rewritten(jaxpr, rule)


@by_value
def squares_without_slope(jaxpr: Jaxpr) -> Jaxpr:
    """x * x becomes x * stop_gradient(x): the same values, and half of the derivative."""

    def rule(b: Builder, e: Eqn, ins: tuple[Atom, ...]) -> Atom | None:
        return b.one(ew.MUL, ins[0], b.one(ew.STOP_GRADIENT, ins[0])) if is_square(e) else None

    return rewritten(jaxpr, rule)


@by_value
def vectors_only(jaxpr: Jaxpr) -> Jaxpr:
    """x * x becomes x * x + 1 for matrices: a fault that vectors do not show."""

    def rule(b: Builder, e: Eqn, ins: tuple[Atom, ...]) -> Atom | None:
        if not is_square(e) or ins[0].aval.ndim < 2:
            return None
        return b.one(ew.ADD, b.one(ew.MUL, *ins), Lit.of(1.0, ins[0].aval))

    return rewritten(jaxpr, rule)


SQUARES: Any = {"patterns": [lambda x: x * x], "differentiable": True, "size": 6, "depth": 0}


@settings(max_examples=10)
@given(cases(**SQUARES))
def test_a_pass_that_keeps_the_meaning(case: Case) -> None:
    check_rewrite(squares_by_powers, case)
    check_rewrite_under_vmap(squares_by_powers, case)
    check_rewrite_keeps_gradients(squares_by_powers, case)


@settings(max_examples=10)
@given(cases(**SQUARES))
def test_a_pass_that_rounds(case: Case) -> None:
    check_rewrite(squares_that_round, case, rtol=1e-12, shrinks=False)
    check_rewrite_under_vmap(squares_that_round, case, rtol=1e-12)


def fails(check: Callable[..., None], *args: Any, **options: Any) -> bool:
    try:
        check(*args, **options)
    except AssertionError:
        return True
    return False


def found(check: Callable[..., None], transform: Callable[[Jaxpr], Jaxpr], **options: Any) -> Case:
    """A case for which a check fails."""
    return find(cases(**SQUARES), lambda c: fails(check, transform, c, **options), settings=settings(database=None))


def test_rounding_is_found_without_a_tolerance() -> None:
    assert "mul" in str(found(check_rewrite, squares_that_round, shrinks=False).program)


def test_a_lost_slope_is_found() -> None:
    example = found(check_rewrite_keeps_gradients, squares_without_slope)
    assert not fails(check_rewrite, squares_without_slope, example, shrinks=False)


def test_a_fault_under_vmap_is_found() -> None:
    example = found(check_rewrite_under_vmap, vectors_only)
    assert fails(check_rewrite_under_vmap, vectors_only, example)


def test_patterns_occur() -> None:
    """A pattern of three equations, which no program of single equations has."""
    seen: list[bool] = []

    @settings(max_examples=20, database=None)
    @given(programs(patterns=[lambda x, y: fnp.exp(fnp.sin(x) * y)], depth=0))
    def draw(jaxpr: Jaxpr) -> None:
        names = [e.prim.name for e in jaxpr.eqns]
        seen.append(any(names[k : k + 3] == ["sin", "mul", "exp"] for k in range(len(names))))

    draw()
    assert sum(seen) > len(seen) // 5  # about one half; it would be none


def test_a_pattern_that_refuses_a_type_is_left_out() -> None:
    def square(x: Any) -> Any:
        return fnp.linalg.det(x)

    @settings(max_examples=5, database=None)
    @given(programs(patterns=[square], depth=0))
    def draw(jaxpr: Jaxpr) -> None:
        typecheck(jaxpr)

    draw()


@given(cases())
def test_the_text_of_a_case_is_the_case(drawn: Case) -> None:
    again = eval(repr(drawn), {"case": case})
    assert again.program is drawn.program
    assert (again.seed, again.smooth) == (drawn.seed, drawn.smooth)
    assert not differ(again.args, drawn.args, exact=True)
    other = Case(drawn.program, tuple([x[::-1] if x.ndim else x for x in drawn.args]), drawn.seed, drawn.smooth)
    assert not differ(eval(repr(other), {"case": case}).args, other.args, exact=True)


def test_the_text_of_a_case() -> None:
    # the name is not part of the value: no other test has this program under another one
    text = """\
main @sine_of_pair(%arg0: f32[2]) -> (f32[2], f32[2]) {
  %0: f32[2] = sin %arg0
  %1: f32[2] = sin %0
  return %0, %1
}
"""
    drawn = case(text, seed=3)
    assert repr(drawn) == f'case("""\\\n{text}""", seed=3\n#  f32[2]: {drawn.args[0].tolist()}\n)'
    with pytest.raises(ArgumentError) as e:
        case(text, bits=["00"])
    assert e.value.message == "case: the operands have [1] bytes, the program takes [8]"
