"""The laws of transformations, at one program and operands for it (a `Case`). Each raises an AssertionError that shows
the program and what it became.

    @given(cases(differentiable=True))
    def test_vmap(case):
        check_vmap(case)

A transformation of your own that keeps the meaning of programs is checked by `check_transform` and `check_rewrite`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from fxad.core.builder import Builder
from fxad.core.dce import remove_dead_eqns
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import Atom, Jaxpr, Lit, distinct_jaxprs, params
from fxad.primitives.control.call import Call
from fxad.runtime import active_cache
from fxad.testing.compare import (
    differ,
    fail,
    slack,
    xla,
)
from fxad.testing.programs import Case
from fxad.text import PRIMITIVES, parse, to_text
from fxad.transforms import cse, dce, inline, outline, outline_before_ad, reroll, simplify
from fxad.transforms.outlining.effort import equations
from fxad.transforms.outlining.parametrise import settled

Transform: TypeAlias = Callable[[Jaxpr], Jaxpr]

# -------------------------------------------------------------------------------------------------------- every one


def check_transform(transform: Transform, jaxpr: Jaxpr) -> Jaxpr:
    """What holds for every transformation T: `typecheck(T(f))`; T(f) is the same object when it is computed anew; f is
    as it was; `parse(to_text(T(f))) is T(f)`. Returns T(f)."""
    before = to_text(jaxpr)
    out = transform(jaxpr)
    typecheck(out)
    if to_text(jaxpr) != before:
        fail("the transformation changed its argument", jaxpr)
    if transform(jaxpr) is not out:
        fail("the same program gave another object", jaxpr, (), out)
    for body in distinct_jaxprs(jaxpr):
        body._memo.clear()
    if transform(jaxpr) is not out:
        fail("computed anew, the same program gave another object", jaxpr, (), out)
    # of your own, too
    kinds = {e.prim.name: type(e.prim) for body in distinct_jaxprs(out) for e in body.eqns}
    if parse(to_text(out), {**kinds, **PRIMITIVES}) is not out:
        fail("parse(to_text(T(f))) is not T(f)", jaxpr, (), out)
    return out


def check_rewrite(transform: Transform, case: Case, *, shrinks: bool = True) -> None:
    """A rewriting (dce, cse, simplify, inline): same results, bit for bit; idempotent; never more equations."""
    out = check_transform(transform, case.program)
    if problem := differ(run(out, case.args), run(case.program, case.args), exact=True):
        fail(f"the results changed: {problem}", case.program, case.args, out)
    if transform(out) is not out:
        fail(f"not idempotent: applied twice gives {transform(out)}", case.program, (), out)
    if shrinks and total(out) > total(case.program):
        fail(f"{total(out)} equations, there were {total(case.program)}", case.program, (), out)


def total(jaxpr: Jaxpr) -> int:
    """Equations, with those of bodies as often as they run."""
    counts: dict[Jaxpr, int] = {}
    for body in distinct_jaxprs(jaxpr):
        counts[body] = sum([1 + sum([counts[b] for b in _bodies(e.prim)]) for e in body.eqns])
    return counts[jaxpr]


def _bodies(prim: object) -> Sequence[Jaxpr]:
    return getattr(prim, "bodies", ())


def to_compile(jaxpr: Jaxpr) -> float:
    """Equations to compile when each body that is called is compiled once."""
    called = {e.prim.body for body in distinct_jaxprs(jaxpr) for e in body.eqns if isinstance(e.prim, Call)}
    return sum([equations(e) for body in {jaxpr, *called} for e in body.eqns])


# --------------------------------------------------------------------------------------------- rewriting, lowering


def check_lower(case: Case) -> None:
    """`run(lower f) = interpret f`; a program is compiled once."""
    program, args = case.program, case.args
    have, want = xla(program, args), run(program, args)
    if problem := differ(have, want, slack=slack(program, args)):
        fail(f"XLA differs from the interpreter: {problem}", program, args)
    before = active_cache().stats().compilations
    xla(Jaxpr(program.ins, program.eqns, program.outs, "another name"), args)
    if active_cache().stats().compilations != before:
        fail("an equal program was compiled again", program)


def called(program: Jaxpr) -> Jaxpr:
    """The program as one `call`."""
    b = Builder.like(program)
    return b.build(b(Call(program), *program.ins), program.name)


def check_dce(case: Case) -> None:
    """dce: see `check_rewrite`."""
    check_rewrite(dce, case)


def check_cse(case: Case) -> None:
    """cse: see `check_rewrite`."""
    check_rewrite(cse, case)


def check_simplify(case: Case) -> None:
    """simplify: see `check_rewrite`."""
    check_rewrite(simplify, case)


def check_inline(case: Case) -> None:
    """inline: see `check_rewrite`; no call is left."""
    check_rewrite(inline, case)
    out = inline(case.program)
    if any([isinstance(e.prim, Call) for f in distinct_jaxprs(out) for e in f.eqns]):
        fail("a call is left", case.program, (), out)


def check_outline(case: Case, min_cost: float = 0.0, waste: float = 0.02) -> None:
    """outline: see `check_rewrite`; never more equations to compile; `inline` gives back the equations of the program,
    those with effects in their order (and some that nothing needs)."""
    check_rewrite(lambda f: outline(f, min_cost, waste), case, shrinks=False)
    out = outline(case.program, min_cost, waste)
    if to_compile(out) > to_compile(case.program):
        fail(f"{to_compile(out)} equations to compile, there were {to_compile(case.program)}", case.program, (), out)
    if dataflow(remove_dead_eqns(inline(out))) != dataflow(remove_dead_eqns(inline(case.program))):
        fail("inlined, it is another program", case.program, (), out)


def check_outline_before_ad(case: Case, lasts: float = 0.0) -> None:
    """outline_before_ad, of programs of any length: same results, bit for bit; `inline` gives back the equations."""
    out = check_transform(lambda f: outline_before_ad(f, 0, lasts), case.program)
    if problem := differ(run(out, case.args), run(case.program, case.args), exact=True):
        fail(f"the results changed: {problem}", case.program, case.args, out)
    if dataflow(remove_dead_eqns(inline(out))) != dataflow(remove_dead_eqns(inline(case.program))):
        fail("inlined, it is another program", case.program, (), out)


def check_reroll(case: Case) -> None:
    """reroll: same results, bit for bit; idempotent."""
    check_rewrite(reroll, case, shrinks=False)


def dataflow(jaxpr: Jaxpr) -> tuple[object, ...]:
    """What a program computes, whatever the order of its equations and those of its bodies: equal for two programs with
    the same equations over the same operands, where `x[3]` is written in either way. The equations as a set with
    counts, those with effects in their order, and the results."""
    names: dict[Atom, Hashable] = {}  # of results: by what computes them

    def name(a: Atom) -> Hashable:
        return (a.bits, str(a.aval)) if isinstance(a, Lit) else names.get(a, a)  # a literal made here may not live long

    made: Counter[int] = Counter()
    effects: list[int] = []
    for eqn in jaxpr.eqns:
        prim, ins = settled(eqn.prim, eqn.ins)
        how = hash((type(prim), tuple([_flowing(value) for _, value in params(prim)]), tuple([name(a) for a in ins])))
        made[how] += 1
        effects += [how] if eqn.prim.effects else []
        names |= {v: (how, k) for k, v in enumerate(eqn.outs)}
    return frozenset(made.items()), tuple(effects), jaxpr.in_avals, tuple([name(a) for a in jaxpr.outs])


def _flowing(value: object) -> Hashable:
    """A parameter, its bodies by their dataflow."""
    if isinstance(value, tuple):
        return tuple([_flowing(v) for v in value])
    return hash(dataflow(remove_dead_eqns(value))) if isinstance(value, Jaxpr) else value
