"""Programs with a repeated stretch of equations, like the layers of a Python loop, for `outline` and `reroll`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder, substitute
from fxad.core.dce import remove_dead_eqns
from fxad.ir import Atom, Jaxpr, Var, distinct_jaxprs
from fxad.primitives import elementwise as ew
from fxad.primitives.control.call import Call
from fxad.testing.programs import Case, operands, programs
from fxad.testing.values import SEEDS, literals

SIGNS: Final = frozenset({"svd", "eigh"})  # give vectors that are determined up to a sign


@st.composite
def repeated(draw: st.DrawFn, *, differentiable: bool = False, depth: int = 1, size: int = 7) -> Jaxpr:
    """Draw programs that apply a body 2 to 6 times, inlined. In each repetition an operand of the body is the same, a
    new one, a new literal, or a result of the previous repetition. Other equations may stand between repetitions, and
    the first one may lack the equations of one result.
    """
    body = draw(programs(differentiable=differentiable, depth=depth, size=size))
    b = Builder()
    ways = [draw(st.sampled_from(("carried", "own", "carried", "shared", "literal"))) for _ in body.ins]
    # a sign of a vector changes where an entry passes 0, and repetition makes a rounding error large enough for that
    signs = differentiable and any([e.prim.name in SIGNS for f in distinct_jaxprs(body) for e in f.eqns])
    shared = {k: b.input(v.aval) for k, v in enumerate(body.ins) if ways[k] == "shared"}
    stray, lacking = draw(st.booleans()), draw(st.booleans())
    outs: list[Atom] = []
    for time in range(draw(st.integers(2, 6))):
        args: list[Atom] = []
        for k, (v, way) in enumerate(zip(body.ins, ways, strict=True)):
            before = [a for a in outs if a.aval is v.aval]
            if way == "shared":
                args.append(shared[k])
            elif way == "carried" and before and not signs:
                args.append(before[-1])
            elif way == "literal" and not v.aval.inexact:
                args.append(draw(literals(v.aval)))
            else:
                args.append(b.input(v.aval))
        part = remove_dead_eqns(Jaxpr(body.ins, body.eqns, body.outs[:-1])) if lacking and time == 0 else body
        outs += [_bounded(b, a) for a in _emit_body(draw, b, part, args, stray)]
    return b.build(outs, "f")


@st.composite
def repeated_cases(draw: st.DrawFn, *, differentiable: bool = False, depth: int = 1, size: int = 7) -> Case:
    """Draw programs of `repeated`, with operands within the bounds they were grown for."""
    program = draw(repeated(differentiable=differentiable, depth=depth, size=size))
    seed = draw(SEEDS)
    return Case(program, operands(program, seed, zeros=not differentiable), seed, differentiable)


@st.composite
def part_and_whole_cases(draw: st.DrawFn, *, depth: int = 1, size: int = 7) -> Case:
    """Draw programs that call a body twice, and once a body that returns some of its results and an operand, for
    `merge_bodies`. Both bodies have inner calls, which return operands too."""
    body = draw(programs(depth=depth, size=size).filter(lambda p: p.outs))
    returned = draw(st.lists(st.sampled_from((*body.outs, *body.ins)), min_size=1, max_size=2))
    part = remove_dead_eqns(Jaxpr(body.ins, body.eqns, (*returned, *body.ins[:1])))
    whole, part = _with_an_inner_call(draw, body), _with_an_inner_call(draw, part)
    b = Builder()
    outs: list[Atom] = []
    for called in draw(st.permutations((whole, whole, part))):
        outs += b(Call(called), *b.inputs(called.in_avals))
    program, seed = b.build(outs, "f"), draw(SEEDS)
    return Case(program, operands(program, seed), seed)


def _with_an_inner_call(draw: st.DrawFn, body: Jaxpr) -> Jaxpr:
    """Return the body with its first equations in a call, which returns all their results and the operands."""
    cut = draw(st.integers(0, len(body.eqns)))
    values = (*[v for e in body.eqns[:cut] for v in e.outs], *body.ins)
    returned = draw(st.permutations(values))
    inner = Jaxpr(body.ins, body.eqns[:cut], tuple(returned))
    b = Builder()
    env: dict[Atom, Atom] = dict(zip(returned, b(Call(inner), *b.inputs(body.in_avals)), strict=True))
    for eqn in body.eqns[cut:]:
        env.update(zip(eqn.outs, b.copy(eqn, substitute(eqn.ins, env)), strict=True))
    return b.build(substitute(body.outs, env), "outer")


def _bounded(b: Builder, a: Atom) -> Atom:
    """Return a value to which a body may be applied: floats stay within the bounds of growth."""
    smooth = isinstance(a, Var) and a.aval.dtype in (dtypes.float32, dtypes.float64)
    return b.one(ew.SIN, a) if smooth else a


def _emit_body(draw: st.DrawFn, b: Builder, body: Jaxpr, args: Sequence[Atom], stray: bool) -> tuple[Atom, ...]:
    """Emit the equations of the body, with others between them for `stray`."""
    env: dict[Atom, Atom] = dict(zip(body.ins, args, strict=True))
    for eqn in body.eqns:
        env.update(zip(eqn.outs, b.copy(eqn, substitute(eqn.ins, env)), strict=True))
        last = env[eqn.outs[-1]] if eqn.outs else None
        if stray and last is not None and last.aval.inexact and draw(st.integers(0, 5)) == 5:
            b.one(ew.NEG, last)
    return substitute(body.outs, env)
