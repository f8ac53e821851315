"""The laws of `outline`, `outline_before_ad`, `merge_bodies` and `reroll`. See `fxad.testing.transform_laws`."""

from __future__ import annotations

from fxad.core.dce import remove_dead_eqns
from fxad.core.interpreter import run
from fxad.testing.compare import differ, fail
from fxad.testing.law import law
from fxad.testing.programs import Case
from fxad.testing.transform_laws import check_rewrite, check_transform, dataflow_key, eqns_to_compile
from fxad.transforms import inline, outline, outline_before_ad, reroll
from fxad.transforms.outlining.merge_bodies import merge_bodies


@law
def check_outline(case: Case, min_cost: float = 0.0, waste: float = 0.02) -> None:
    """Check outline, as `check_rewrite` does: never more equations to compile; `inline` of the result has the equations
    of the program, those with effects in order (and possibly dead ones)."""
    check_rewrite(lambda f: outline(f, min_cost, waste), case, shrinks=False)
    out = outline(case.program, min_cost, waste)
    if eqns_to_compile(out) > eqns_to_compile(case.program):
        fail(
            f"{eqns_to_compile(out)} equations to compile, there were {eqns_to_compile(case.program)}",
            case.program,
            (),
            out,
        )
    if dataflow_key(remove_dead_eqns(inline(out))) != dataflow_key(remove_dead_eqns(inline(case.program))):
        fail("inlined, it is another program", case.program, (), out)


@law
def check_outline_before_ad(case: Case, lasts: float = 0.0) -> None:
    """Check outline_before_ad, for programs of any length: equal results bit for bit; `inline` of the result has the
    equations of the program."""
    out = check_transform(lambda f: outline_before_ad(f, 0, lasts), case.program)
    if problem := differ(run(out, case.args), run(case.program, case.args), exact=True):
        fail(f"the results changed: {problem}", case.program, case.args, out)
    if dataflow_key(remove_dead_eqns(inline(out))) != dataflow_key(remove_dead_eqns(inline(case.program))):
        fail("inlined, it is another program", case.program, (), out)


@law
def check_merge_bodies(case: Case, waste: float = 1.0) -> None:
    """Check merge_bodies: equal results bit for bit; never more equations to compile."""
    out = check_transform(lambda f: merge_bodies(f, waste), case.program)
    if problem := differ(run(out, case.args), run(case.program, case.args), exact=True):
        fail(f"the results changed: {problem}", case.program, case.args, out)
    if eqns_to_compile(out) > eqns_to_compile(case.program):
        fail("more equations to compile", case.program, (), out)


@law
def check_reroll(case: Case) -> None:
    """Check reroll: equal results bit for bit; idempotent."""
    check_rewrite(reroll, case, shrinks=False)
