"""The laws of transformations, at one program and operands for it (a `Case`). Each raises an AssertionError that shows
the program and what it became.

    @given(cases(differentiable=True))
    def test_vmap(case):
        check_vmap(case)

A transformation of your own that keeps the meaning of programs is checked by `check_transform` and `check_rewrite`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from fxad import dtypes
from fxad.builder import Builder
from fxad.interpret import run
from fxad.ir import Atom, Jaxpr, NDArray, distinct
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import ADD, REAL, SIN
from fxad.primitives.linearity import is_linear
from fxad.primitives.shape import ReduceSum
from fxad.runtime import cache
from fxad.testing.compare import (
    along,
    differ,
    directions,
    fail,
    filled,
    magnitude,
    pairing_error,
    tangent_error,
    wide,
    xla,
)
from fxad.testing.programs import Case
from fxad.text import parse, to_text
from fxad.transforms import cse, dce, grad, inline, jvp, linearize, remat, simplify, transpose, vjp, vjp_fused, vmap
from fxad.typecheck import typecheck

Transform: TypeAlias = Callable[[Jaxpr], Jaxpr]

_TANGENT_DTYPES: Final = frozenset({dtypes.float64, dtypes.complex128})


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
    for body in distinct(jaxpr):
        body._memo.clear()
    if transform(jaxpr) is not out:
        fail("computed anew, the same program gave another object", jaxpr, (), out)
    if parse(to_text(out)) is not out:
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
    for body in distinct(jaxpr):
        counts[body] = sum([1 + sum([counts[b] for b in _bodies(e.prim)]) for e in body.eqns])
    return counts[jaxpr]


def _bodies(prim: object) -> Sequence[Jaxpr]:
    return getattr(prim, "bodies", ())


# ---------------------------------------------------------------------------------------------------- differentiation


def wrt(case: Case) -> tuple[bool, ...]:
    """The operands whose tangents differences can see: float64 and complex128."""
    return tuple([a.dtype in _TANGENT_DTYPES for a in case.program.in_avals])


def dots_of(case: Case) -> tuple[NDArray, ...]:
    """Tangents of the operands that `wrt` marks."""
    return directions([a for a, m in zip(case.program.in_avals, wrt(case), strict=True) if m], case.seed)


def check_program_jvp(case: Case) -> None:
    """The results are those of the program, the tangents are its central differences and linear in the direction."""
    program, args, mask = case.program, case.args, wrt(case)
    dots, n, scale = dots_of(case), len(program.outs), magnitude(program, args)
    nonzero = jvp(program, mask)[1]
    forward = check_transform(lambda f: jvp(f, mask)[0], program)
    found = run(forward, [*args, *dots])
    if problem := differ(found[:n], run(program, args), scale=scale):
        fail(f"jvp changed the results: {problem}", program, args, forward)
    tangents = filled(found[n:], nonzero, program.out_avals)
    seen = [k for k, a in enumerate(program.out_avals) if a.dtype in _TANGENT_DTYPES]

    def moved(t: float) -> list[NDArray]:
        outs = run(program, along(args, dots, mask, t))
        return [outs[k] for k in seen]

    if problem := tangent_error(moved, [tangents[k] for k in seen], 1e-5 * scale):
        fail(f"jvp: {problem}", program, args, forward)
    twice = run(forward, [*args, *[2 * d for d in dots]])[n:]
    if problem := differ(twice, [2 * t for t in found[n:]], scale=scale):
        fail(f"jvp is not linear in the tangents: {problem}", program, args, forward)


def check_linearize(case: Case) -> None:
    """`linearize` = `jvp`; every equation of the linear program is linear; the primal program is the program."""
    program, args, mask = case.program, case.args, wrt(case)
    dots, n, scale = dots_of(case), len(program.outs), magnitude(program, args)
    split = linearize(program, mask)
    check_transform(lambda f: linearize(f, mask).primal, program)
    linear = check_transform(lambda f: linearize(f, mask).linear, program)
    marked = _marked(len(dots), split.n_res)
    if not is_linear(linear, marked):
        fail("the linear program is not linear", program, (), linear)
    results = run(split.primal, args)
    if problem := differ(results[:n], run(program, args), scale=scale):
        fail(f"the primal program has other results: {problem}", program, args, split.primal)
    forward, nonzero = jvp(program, mask)
    if nonzero != split.out_nonzero:
        fail(f"jvp has tangents for {nonzero}, linearize for {split.out_nonzero}", program)
    want = run(forward, [*args, *dots])[n:]
    if problem := differ(run(linear, [*dots, *results[n:]]), want, scale=scale):
        fail(f"linearize differs from jvp: {problem}", program, args, linear)


def _marked(n: int, rest: int) -> tuple[bool, ...]:
    return (True,) * n + (False,) * rest


def check_program_transpose(case: Case) -> None:
    """`<y_bar, A x_dot> = <A^T y_bar, x_dot>` for the linear part A of the program; transposing twice gives A."""
    program, args, mask = case.program, case.args, wrt(case)
    split = linearize(program, mask)
    dots, residuals = dots_of(case), run(split.primal, args)[len(program.outs) :]
    marked = _marked(len(dots), split.n_res)
    adjoint = check_transform(lambda f: transpose(f, marked), split.linear)
    outs = run(split.linear, [*dots, *residuals])
    cts = directions(split.linear.out_avals, 1)
    bars = run(adjoint, [*cts, *residuals])
    if problem := pairing_error(cts, outs, bars, dots):
        fail(f"not the adjoint: {problem}", split.linear, [*dots, *residuals], adjoint)
    back = _marked(len(cts), split.n_res)
    if not is_linear(adjoint, back):
        fail("the transposed program is not linear", split.linear, (), adjoint)
    again = check_transform(lambda f: transpose(f, back), adjoint)
    scale = magnitude(split.linear, [*dots, *residuals])
    if problem := differ(run(again, [*dots, *residuals]), outs, scale=scale):
        fail(f"transposing twice changed the meaning: {problem}", split.linear, [*dots, *residuals], again)


def check_vjp(case: Case) -> None:
    """`<y_bar, J x_dot> = <backward(y_bar), x_dot>`, in two programs and in one; the results stay."""
    program, args, mask = case.program, case.args, wrt(case)
    dots, n, scale = dots_of(case), len(program.outs), magnitude(program, args)
    forward, nonzero = jvp(program, mask)
    tangents = filled(run(forward, [*args, *dots])[n:], nonzero, program.out_avals)
    inexact = [k for k, a in enumerate(program.out_avals) if a.inexact]
    cts = directions([program.out_avals[k] for k in inexact], 1)
    both = vjp(program, mask)
    check_transform(lambda f: vjp(f, mask).backward, program)
    results = run(both.forward, args)
    bars = run(both.backward, [*cts, *results[n:]])
    if problem := pairing_error(cts, [tangents[k] for k in inexact], bars, dots):
        fail(f"vjp is not the adjoint of jvp: {problem}", program, args, both.backward)
    fused = check_transform(lambda f: vjp_fused(f, mask), program)
    if problem := differ(run(fused, [*args, *cts]), [*results[:n], *bars], scale=scale):
        fail(f"vjp_fused differs from vjp: {problem}", program, args, fused)


def scalarized(program: Jaxpr) -> Jaxpr:
    """A real floating scalar that all inexact results have a part in, then the results."""
    b = Builder.like(program)
    outs = b.inline(program, program.ins)
    total: Atom | None = None
    for a in outs:
        if a.aval.dtype in _TANGENT_DTYPES:
            real = b.one(REAL, a) if a.aval.dtype in dtypes.COMPLEX else a
            part = b.one(ReduceSum(tuple(range(a.aval.ndim))), b.one(SIN, real))
            total = part if total is None else b.one(ADD, total, part)
    return b.build([*([] if total is None else [total]), *outs], program.name)


def check_grad(case: Case) -> None:
    """The gradient is the derivative in every direction, by differences; `vmap` of it is the loop."""
    program, args, mask = scalarized(case.program), case.args, wrt(case)
    if not program.outs or program.outs[0].aval.shape or not any(mask) or program.outs[0].aval.dtype != dtypes.float64:
        return
    gradient = check_transform(lambda f: grad(f, mask), program)
    bars = run(gradient, args)[len(program.outs) - 1 :]
    dots, scale = dots_of(case), magnitude(program, args)
    slope = np.asarray(sum([np.sum(np.real(wide(g) * wide(d))) for g, d in zip(bars, dots, strict=True)]), np.float64)
    if problem := tangent_error(lambda t: run(program, along(args, dots, mask, t))[:1], [slope], 1e-5 * scale):
        fail(f"grad: {problem}", program, args, gradient)


def check_second_order(case: Case) -> None:
    """Forward over reverse = reverse over forward = the difference of gradients, along a direction."""
    program, args = scalarized(case.program), case.args
    mask = tuple([a.dtype == dtypes.float64 for a in program.in_avals])
    if not program.outs or program.outs[0].aval.shape or not any(mask) or program.outs[0].aval.dtype != dtypes.float64:
        return
    program = Jaxpr(program.ins, program.eqns, program.outs[:1])
    dots = directions([a for a, m in zip(program.in_avals, mask, strict=True) if m], 3)
    n, zeros = len(dots), (False,) * len(dots)
    gradient = grad(program, mask)
    over_reverse, nonzero = jvp(gradient, mask)
    scale = magnitude(over_reverse, [*args, *dots]) ** 2
    found = filled(run(over_reverse, [*args, *dots])[n:], nonzero, gradient.out_avals)
    forward, nonzero = jvp(program, mask)
    if any(nonzero):
        slope = Jaxpr(forward.ins, forward.eqns, forward.outs[1:])
        over_forward = grad(slope, (*mask, *zeros))
        if problem := differ(found, run(over_forward, [*args, *dots]), scale=scale):
            fail(f"forward over reverse is not reverse over forward: {problem}", program, args)
    if problem := tangent_error(lambda t: run(gradient, along(args, dots, mask, t)), found, 1e-5 * scale):
        fail(f"the derivative of the gradient: {problem}", program, args, over_reverse)


# ----------------------------------------------------------------------------------------------------------- batching


def check_vmap(case: Case, dims: tuple[int | None, ...] | None = None, size: int = 2) -> None:
    """vmap = the loop, stacked, where each operand is mapped at `dims` (chosen by the case's seed unless given); a
    result that carries no mapped axis is the same for all; `out_dims` are kept."""
    program, args = case.program, case.args
    at = dims if dims is not None else mapped_dims(case)
    if all([d is None for d in at]):
        return
    rows = [[np.roll(a, i) if d is not None else a for a, d in zip(args, at, strict=True)] for i in range(size)]
    stacked = [np.stack([r[k] for r in rows], d) if d is not None else args[k] for k, d in enumerate(at)]
    batched = check_transform(lambda f: vmap(f, size, at)[0], program)
    out_dims = vmap(program, size, at)[1]
    scale = max(magnitude(program, r) for r in rows)
    wants = [run(program, r) for r in rows]
    found = run(batched, stacked)
    for k, (have, d) in enumerate(zip(found, out_dims, strict=True)):
        for i, want in enumerate(wants):
            row = have if d is None else np.take(have, i, d)
            if problem := differ([row], [want[k]], scale=scale):
                fail(f"vmap over {at} differs from the loop in row {i}, result {k}: {problem}", program, args, batched)
    fronted = check_transform(lambda f: vmap(f, size, at, (0,) * len(f.outs))[0], program)
    front = [np.stack([w[k] for w in wants]) for k in range(len(found))]
    if problem := differ(run(fronted, stacked), front, scale=scale):
        fail(f"vmap over {at} to axis 0 differs from the stacked loop: {problem}", program, args, fronted)


def mapped_dims(case: Case) -> tuple[int | None, ...]:
    """Where each operand is mapped, if anywhere, as the seed of the case has it."""
    rng = np.random.default_rng((case.seed, 11))
    return tuple([int(rng.integers(0, a.ndim + 1)) if rng.random() < 0.75 else None for a in case.args])


def check_vmap_identity(case: Case) -> None:
    """Mapped over nothing, a program is itself; mapped over one example, it is itself with one axis more."""
    program, args = case.program, case.args
    if vmap(program, 3, (None,) * len(args))[0] is not program:
        fail("vmap over no operand is not the program", program, (), vmap(program, 3, (None,) * len(args))[0])
    one, _ = vmap(program, 1, (0,) * len(args), (0,) * len(program.outs))
    have, want = run(one, [a[None] for a in args]), run(program, args)
    if problem := differ([y[0] for y in have], want, scale=magnitude(program, args)):
        fail(f"vmap over one example: {problem}", program, args, one)


def check_vmap_nested(case: Case) -> None:
    """vmap of vmap with the axes swapped is the same, with the axes swapped."""
    program, args = case.program, case.args
    ins, outs = (0,) * len(args), (0,) * len(program.outs)
    grid = [np.stack([np.stack([np.roll(a, i + 2 * j) for j in range(3)]) for i in range(2)]) for a in args]
    rows, _ = vmap(vmap(program, 3, ins, outs)[0], 2, ins, outs)
    columns, _ = vmap(vmap(program, 2, ins, outs)[0], 3, tuple([1] * len(args)), outs)
    have = run(columns, grid)
    want = [np.swapaxes(y, 0, 1) for y in run(rows, grid)]
    if problem := differ(have, want, scale=magnitude(rows, grid)):
        fail(f"nested vmap: {problem}", program, args, columns)


def check_vmap_commutes(case: Case) -> None:
    """`vmap(jvp f) = jvp(vmap f)` and `vmap(vjp f) = vjp(vmap f)`, all operands mapped."""
    program, args, mask = case.program, case.args, wrt(case)
    if not any(mask):
        return
    size, outs = 2, (0,) * len(program.outs)
    stacked = [np.stack([a, np.roll(a, 1)]) for a in args]
    batched, _ = vmap(program, size, (0,) * len(args), outs)
    dots = directions([a for a, m in zip(batched.in_avals, mask, strict=True) if m], 0)
    scale = magnitude(batched, stacked)
    forward, inner_nonzero = jvp(program, mask)
    inner, _ = vmap(forward, size, (0,) * len(forward.ins), (0,) * len(forward.outs))
    outer, nonzero = jvp(batched, mask)
    n = len(program.outs)
    one, other = run(inner, [*stacked, *dots]), run(outer, [*stacked, *dots])
    have = filled(one[n:], inner_nonzero, batched.out_avals)
    want = filled(other[n:], nonzero, batched.out_avals)
    if problem := differ([*one[:n], *have], [*other[:n], *want], scale=scale):
        fail(f"vmap of jvp differs from jvp of vmap: {problem}", program, args, inner)
    backward = vjp_fused(program, mask)
    cts = directions([a for a in batched.out_avals if a.inexact], 1)
    inner, _ = vmap(backward, size, (0,) * len(backward.ins), (0,) * len(backward.outs))
    outer = vjp_fused(batched, mask)
    if problem := differ(run(inner, [*stacked, *cts]), run(outer, [*stacked, *cts]), scale=scale):
        fail(f"vmap of vjp differs from vjp of vmap: {problem}", program, args, inner)


# ---------------------------------------------------------------------------------------------------- remat, lowering


def check_remat(case: Case, *, compiled: bool = False) -> None:
    """Same results and same gradients, bit for bit, in the interpreter and (`compiled`) in XLA; what is stored for the
    backward program are operands."""
    program, args, mask = case.program, case.args, wrt(case)
    again = check_transform(remat, program)
    runners = [run, xla] if compiled else [run]
    for runner in runners:
        if problem := differ(runner(again, args), runner(program, args), exact=True):
            fail(f"remat changed the results: {problem}", program, args, again)
    if not any(mask):
        return
    split, n = linearize(again, mask), len(program.outs)
    stored = [a for a in split.primal.outs[n:] if a not in split.primal.ins]
    if stored:
        fail(f"remat stores {stored}, which are not operands", program, (), split.primal)
    cts = directions([a for a in program.out_avals if a.inexact], 1)
    for runner in runners:
        plain, recomputed = vjp_fused(program, mask), vjp_fused(again, mask)
        if problem := differ(runner(recomputed, [*args, *cts]), runner(plain, [*args, *cts]), exact=True):
            fail(f"remat changed the gradient ({runner.__name__}): {problem}", program, args, recomputed)


def check_lower(case: Case) -> None:
    """`run(lower f) = interpret f`; a program is compiled once."""
    program, args = case.program, case.args
    have, want = xla(program, args), run(program, args)
    if problem := differ(have, want, scale=magnitude(program, args)):
        fail(f"XLA differs from the interpreter: {problem}", program, args)
    before = cache.stats().compilations
    xla(Jaxpr(program.ins, program.eqns, program.outs, "another name"), args)
    if cache.stats().compilations != before:
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
    if any([isinstance(e.prim, Call) for f in distinct(out) for e in f.eqns]):
        fail("a call is left", case.program, (), out)
