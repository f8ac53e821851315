"""The laws of transformations, at one program and operands for it (a `Case`). Each raises an AssertionError that shows
the program and what it became.

    @given(cases(differentiable=True))
    def test_vmap(case):
        check_vmap(case)

A transformation of your own that keeps the meaning of programs is checked by `check_transform` and `check_rewrite`, and
by those of `fxad.testing.rewrite_laws`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeAlias

from hypothesis import HealthCheck, given, settings

from fxad.core.builder import single_equation
from fxad.core.dce import remove_dead_eqns
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.errors import ArgumentError
from fxad.ir import Atom, Jaxpr, Lit, Record, distinct_jaxprs, params
from fxad.primitives.control.call import Call, callee
from fxad.runtime import active_cache
from fxad.testing.compare import HostArrays, differ, fail, program_tolerance, xla
from fxad.testing.equality_laws import check_equal
from fxad.testing.law import law
from fxad.testing.programs import Case, cases
from fxad.text import parse, to_text
from fxad.transforms import cse, dce, inline, simplify
from fxad.transforms.costs import equations_to_compile
from fxad.transforms.start_indices import static_starts

Transform: TypeAlias = Callable[[Jaxpr], Jaxpr]

# -------------------------------------------------------------------------------------------------------- every one


def check_transform(transform: Transform, jaxpr: Jaxpr) -> Jaxpr:
    """Check the laws of every transformation T: `typecheck(T(f))`; computing T(f) again returns the same object; f is
    unchanged; `parse(to_text(T(f))) is T(f)`. Return T(f)."""
    text_before = to_text(jaxpr)
    out = transform(jaxpr)
    typecheck(out)
    if to_text(jaxpr) != text_before:
        fail("the transformation changed its argument", jaxpr)
    if transform(jaxpr) is not out:
        fail("the same program gave another object", jaxpr, (), out)
    for body in distinct_jaxprs(jaxpr):
        body._memo.clear()
    if transform(jaxpr) is not out:
        fail("computed anew, the same program gave another object", jaxpr, (), out)
    # of your own, too
    kinds = {type(e.prim) for body in distinct_jaxprs(out) for e in body.eqns}
    if parse(to_text(out), kinds) is not out:
        fail("parse(to_text(T(f))) is not T(f)", jaxpr, (), out)
    return out


@law
def check_rewrite(
    transform: Transform,
    case: Case | None = None,
    *,
    rtol: float = 0.0,
    shrinks: bool = True,
    idempotent: bool = True,
    exact: bool = False,
) -> None:
    """Check the laws of a rewrite (dce, cse, simplify, inline): equal results; idempotent; never more equations.

    `rtol` is for a rewrite that rounds in another way: the largest difference of a result, relative to its largest
    magnitude, or to 1 if that is more. With 0.0 results are compared bit for bit. `exact` asks `fxad.equal` instead: a
    rewrite may round in any way, and the programs are equal as functions of real numbers, at all operands for which no
    value is nan or infinite and no denominator zero; only what is not decided is compared within `rtol`, or the
    tolerance of the dtype. `shrinks` and `idempotent` are False for a rewrite that may add equations, or that finds
    more to rewrite in its result. Without a case, 50 programs are drawn.
    """
    if case is None:
        _check_drawn(
            lambda drawn: check_rewrite(
                transform, drawn, rtol=rtol, shrinks=shrinks, idempotent=idempotent, exact=exact
            )
        )
        return
    out = check_transform(transform, case.program)
    if exact and not _EXACT_CHECKS:
        raise ArgumentError("check_rewrite: fxad.equal is not installed", remedy="leave out exact=True")
    if exact and are_proved_equal(case.program, out, case.args):
        pass
    elif problem := differ_by(run(out, case.args), run(case.program, case.args), _undecided_rtol(case, rtol, exact)):
        fail(f"the results changed: {problem}", case.program, case.args, out)
    if idempotent and transform(out) is not out:
        fail(f"not idempotent: applied twice gives {transform(out)}", case.program, (), out)
    if shrinks and total_eqns(out) > total_eqns(case.program):
        fail(f"{total_eqns(out)} equations, there were {total_eqns(case.program)}", case.program, (), out)


def _undecided_rtol(case: Case, rtol: float, exact: bool) -> float:
    return rtol or (program_tolerance(case.program, case.args) if exact else 0.0)


def _check_drawn(check: Callable[[Case], None]) -> None:
    """Check a law for programs that are drawn, always the same ones."""

    @settings(max_examples=50, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases())
    def law(case: Case) -> None:
        check(case)

    law()


# `fxad.equal`, as a plug-in
# a tuple: with the plug-in of equality deleted, it is empty
_EXACT_CHECKS: Final[tuple[Callable[[Jaxpr, Jaxpr, HostArrays], bool], ...]] = (check_equal,)


def are_proved_equal(a: Jaxpr, b: Jaxpr, args: HostArrays) -> bool:
    """Return True if two programs are proved equal for all floating operands and the integers and bools of `args`;
    False if that is not decided. Raises: AssertionError for a counterexample."""
    return bool(_EXACT_CHECKS) and all([check(a, b, args) for check in _EXACT_CHECKS])


def check_same_function(what: str, actual: Jaxpr, expected: Jaxpr, args: HostArrays) -> None:
    """Check that two programs are equal as functions of real numbers. What is not decided is compared at `args`, within
    rounding. `what` says what makes them equal, for messages."""
    try:
        proved = are_proved_equal(expected, actual, args)
    except AssertionError as e:
        raise AssertionError(f"{what}: {e}") from None
    if not proved and (
        problem := differ(run(actual, args), run(expected, args), slack=program_tolerance(expected, args))
    ):
        fail(f"{what}: {problem}", expected, args, actual)


def differ_by(actual: HostArrays, expected: HostArrays, rtol: float) -> str:
    """Return `differ`, bit for bit if `rtol` is 0."""
    return differ(actual, expected, exact=not rtol, slack=rtol)


def total_eqns(jaxpr: Jaxpr) -> int:
    """Return the number of equations; those of bodies count once per run."""
    counts: dict[Jaxpr, int] = {}
    for body in distinct_jaxprs(jaxpr):
        counts[body] = sum([1 + sum([counts[b] for b in _bodies(e.prim)]) for e in body.eqns])
    return counts[jaxpr]


def _bodies(prim: object) -> Sequence[Jaxpr]:
    return getattr(prim, "bodies", ())


def eqns_to_compile(jaxpr: Jaxpr) -> float:
    """Return the number of equations to compile if each called body is compiled once."""
    called = {callee(e) for body in distinct_jaxprs(jaxpr) for e in body.eqns}
    return sum([equations_to_compile(e) for body in {jaxpr, *called} if body is not None for e in body.eqns])


# --------------------------------------------------------------------------------------------- rewriting, lowering


@law
def check_lower(case: Case) -> None:
    """Check that `run(lower f) = interpret f`, and a program is compiled once."""
    program, args = case.program, case.args
    actual, expected = xla(program, args), run(program, args)
    if problem := differ(actual, expected, slack=program_tolerance(program, args)):
        fail(f"XLA differs from the interpreter: {problem}", program, args)
    compilations = active_cache().stats().compilations
    xla(Jaxpr(program.ins, program.eqns, program.outs, "another name"), args)
    if active_cache().stats().compilations != compilations:
        fail("an equal program was compiled again", program)


def as_one_call(program: Jaxpr) -> Jaxpr:
    """Return the program as one `call`."""
    return single_equation(Call(program), program.in_avals, program.name)


@law
def check_dce(case: Case) -> None:
    """Check dce: see `check_rewrite`."""
    check_rewrite(dce, case)


@law
def check_cse(case: Case) -> None:
    """Check cse: see `check_rewrite`."""
    check_rewrite(cse, case)


@law
def check_simplify(case: Case) -> None:
    """Check simplify: see `check_rewrite`."""
    check_rewrite(simplify, case)


@law
def check_inline(case: Case) -> None:
    """Check inline: see `check_rewrite`; no call is left."""
    check_rewrite(inline, case)
    out = inline(case.program)
    if any([callee(e) for f in distinct_jaxprs(out) for e in f.eqns]):
        fail("a call is left", case.program, (), out)


def dataflow_key(jaxpr: Jaxpr) -> tuple[object, ...]:
    """Return a key of the dataflow of a program, independent of the order of equations, also in bodies. Programs with
    the same equations over the same operands have equal keys, with both forms of `x[3]`. The key is the multiset of
    equations, those with effects in order, and the results."""
    names: dict[Atom, Hashable] = {}  # of results: by what computes them

    def name(a: Atom) -> Hashable:
        return (a.bits, str(a.aval)) if isinstance(a, Lit) else names.get(a, a)  # a literal made here may not live long

    counts: Counter[int] = Counter()
    effects: list[int] = []
    for eqn in jaxpr.eqns:
        prim, ins = static_starts(eqn.prim, eqn.ins)
        how = hash((type(prim), tuple([_param_key(value) for _, value in params(prim)]), tuple([name(a) for a in ins])))
        counts[how] += 1
        effects += [how] if eqn.prim.effects else []
        names |= {v: (how, k) for k, v in enumerate(eqn.outs)}
    return frozenset(counts.items()), tuple(effects), jaxpr.in_avals, tuple([name(a) for a in jaxpr.outs])


def _param_key(value: object) -> Hashable:
    """Return the key of a parameter; a body is replaced by its dataflow."""
    if isinstance(value, tuple):
        return tuple([_param_key(v) for v in value])
    if isinstance(value, Record):
        return tuple([_param_key(v) for _, v in params(value)])
    return hash(dataflow_key(remove_dead_eqns(value))) if isinstance(value, Jaxpr) else value
