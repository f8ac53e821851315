"""Pairs of programs that transformations make equal: they are proved equal, without tolerances.

@given(cases(differentiable=True))
def test_gradients(case):
    check_equal_pairs("gradients", case)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import lcm, prod
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from fxad.core.builder import Builder
from fxad.core.flags import leading
from fxad.core.interpreter import run
from fxad.diagnosis.equality.domain import ProofDomain, Symbolic
from fxad.diagnosis.equality.evaluate import UndecidedError, evaluate
from fxad.diagnosis.equality.verdict import Proof
from fxad.ir import Atom, Jaxpr, Lit, NDArray
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import ADD, MUL
from fxad.primitives.shape import emit_reshape
from fxad.primitives.slicing import Concatenate, Slice
from fxad.testing.derivative_laws import differentiable_flags
from fxad.testing.equality_laws import known_operands, verdict
from fxad.testing.programs import Case
from fxad.transforms import cse, inline, jvp, linearize, partial_eval, remat, simplify, transpose, vjp_fused
from fxad.transforms.vmap import vmap

# Two programs, and values of their integer and bool operands; None for floats.
ProgramPair: TypeAlias = tuple[Jaxpr, Jaxpr, "list[NDArray | None]"]
DrawPairs: TypeAlias = Callable[[Case], Iterator[ProgramPair]]


def rewrites_by(*transforms: Callable[[Jaxpr], Jaxpr]) -> DrawPairs:
    """Return the pairs of a program and what rewrites make of it."""

    def pairs(case: Case) -> Iterator[ProgramPair]:
        for transform in transforms:
            yield case.program, transform(case.program), known_operands(case.program, case.args)

    return pairs


def batches(case: Case) -> Iterator[ProgramPair]:
    """Give the batch of two examples, and both examples one after the other, stacked."""
    program, n = case.program, 2
    if program.ins:
        batched = vmap(program, n, (0,) * len(program.ins), (0,) * len(program.outs))[0]
        known = known_operands(program, case.args)
        yield batched, _stacked(program, n), [None if x is None else np.stack([x] * n) for x in known]


def _stacked(program: Jaxpr, size: int) -> Jaxpr:
    b = Builder()
    xs = b.inputs([v.aval.with_shape((size, *v.aval.shape)) for v in program.ins])

    def example(x: Atom, k: int) -> Atom:
        inner = x.aval.shape[1:]
        part = b.one(Slice((k, *[0] * len(inner)), (k + 1, *inner), (1,) * x.aval.ndim), x)
        return emit_reshape(b, part, inner)

    rows = [b(Call(program), *[example(x, k) for x in xs]) for k in range(size)]
    columns = zip(*rows, strict=True)
    outs = [b.one(Concatenate(0), *[emit_reshape(b, y, (1, *y.aval.shape)) for y in of]) for of in columns]
    return b.build(outs, "stacked")


def gradients(case: Case) -> Iterator[ProgramPair]:
    """Give the cotangents of a program, and those of its `remat`; and those after `simplify`."""
    flags = differentiable_flags(case)
    if not any(flags):
        return
    backward = vjp_fused(case.program, flags)
    known = [*known_operands(case.program, case.args), *[None] * (len(backward.ins) - len(case.args))]
    yield backward, vjp_fused(remat(case.program), flags), known
    yield backward, simplify(backward), known


def transposes(case: Case) -> Iterator[ProgramPair]:
    """Give a linear program, and what two transposes make of it."""
    flags = differentiable_flags(case)
    split = linearize(case.program, flags)
    linear, n, m = split.linear, sum(flags), len(split.linear.outs)
    if not n or not m:
        return
    residuals = run(split.primal, case.args)[len(case.program.outs) :]
    once = transpose(linear, leading(n, len(linear.ins)))
    avals = linear.in_avals[n:]
    known = [None if a.inexact else x for a, x in zip(avals, residuals, strict=True)]
    yield linear, transpose(once, leading(m, len(once.ins))), [*[None] * n, *known]


def tangents(case: Case) -> Iterator[ProgramPair]:
    """Give `jvp`, and the primal program followed by the linear one."""
    flags = differentiable_flags(case)
    if not any(flags):
        return
    split, (pushed, _) = linearize(case.program, flags), jvp(case.program, flags)
    b, n, m = Builder(), len(case.program.ins), len(case.program.outs)
    ins = b.inputs(pushed.in_avals)
    primal = b.inline(split.primal, ins[:n])
    together = b.build((*primal[:m], *b.inline(split.linear, (*ins[n:], *primal[m:]))), "together")
    if together.out_avals == pushed.out_avals:
        known = [*known_operands(case.program, case.args), *[None] * (len(pushed.ins) - n)]
        yield pushed, together, known


def differences(case: Case) -> Iterator[ProgramPair]:
    """Give the tangents of a program of polynomials, and exact differences, in which no rule of a tangent is used: a
    polynomial of degree d on a line is known by its values at d + 1 points, and so is its derivative."""
    program, flags = case.program, differentiable_flags(case)
    known = known_operands(program, case.args)
    degree = _degree(program, known)
    if degree is None or degree > _MOST_POINTS or not any(flags):
        return
    pushed, nonzero = jvp(program, flags)
    scale, weights = _derivative_weights(degree)
    a, b, n = Builder(), Builder(), len(program.ins)
    tangents = a.inline(pushed, a.inputs(pushed.in_avals))[len(program.outs) :]
    ins = b.inputs(pushed.in_avals)
    exact: list[Atom] = [Lit.of(0, t.aval) for t in tangents]
    for k, weight in enumerate(weights):
        steps = iter([b.one(MUL, t, Lit.of(k, t.aval)) for t in ins[n:]])
        moved = [b.one(ADD, x, next(steps)) if f else x for x, f in zip(ins[:n], flags, strict=True)]
        outs = [y for y, moves in zip(b.inline(program, moved), nonzero, strict=True) if moves]
        exact = [b.one(ADD, total, b.one(MUL, y, Lit.of(weight, y.aval))) for total, y in zip(exact, outs, strict=True)]
    yield (
        a.build([a.one(MUL, t, Lit.of(scale, t.aval)) for t in tangents], "jvp"),
        b.build(exact, "differences"),
        [*known, *[None] * (len(pushed.ins) - n)],
    )


def _degree(program: Jaxpr, known: Sequence[NDArray | None]) -> int | None:
    """Return a bound of the degree of a program of polynomials; None for other programs."""
    domain = ProofDomain(2)
    args = [
        domain.variable(k, a) if x is None else x for k, (a, x) in enumerate(zip(program.in_avals, known, strict=True))
    ]
    try:
        outs = evaluate(domain, program, args)
    except UndecidedError:
        return None
    if domain.calls or domain.quotients or domain.effects:
        return None
    return int(max([x.degree for x in outs if isinstance(x, Symbolic)], default=0.0))


def _derivative_weights(degree: int) -> tuple[int, list[int]]:
    """Return m, and the integers w[k] with m p'(0) = sum of w[k] p(k), for polynomials p of a degree."""
    points = range(degree + 1)
    weights = []
    for k in points:
        others = [j for j in points if j != k]
        terms = [prod([Fraction(-i, k - i) for i in others if i != j], start=Fraction(1, k - j)) for j in others]
        weights.append(sum(terms, Fraction(0)))
    scale = lcm(*[w.denominator for w in weights])
    return scale, [int(w * scale) for w in weights]


_MOST_POINTS: Final = 8


def halves(case: Case) -> Iterator[ProgramPair]:
    """Give a program, and both halves of its partial evaluation, where every second operand is known."""
    program = case.program
    mask = tuple([k % 2 == 0 for k in range(len(program.ins))])
    split = partial_eval(program, mask)
    b = Builder()
    ins = b.inputs(program.in_avals)
    first = b.inline(split.known, [x for x, k in zip(ins, mask, strict=True) if k])
    count = sum(split.out_known)
    second = b.inline(split.unknown, [*first[count:], *[x for x, k in zip(ins, mask, strict=True) if not k]])
    of_first, of_second = iter(first[:count]), iter(second)
    outs = [next(of_first) if k else next(of_second) for k in split.out_known]
    yield program, b.build(outs, "together"), known_operands(program, case.args)


EQUAL_PAIRS: Final[Mapping[str, DrawPairs]] = MappingProxyType(
    {
        "rewrites": rewrites_by(simplify, cse, inline, remat),
        "batches": batches,
        "gradients": gradients,
        "transposes": transposes,
        "tangents": tangents,
        "differences": differences,
        "halves": halves,
    }
)


def check_equal_pairs(law: str, case: Case) -> int:
    """Check that no pair of programs that transformations make equal is found different. Return the number of pairs
    that are not decided. `law` is one of `EQUAL_PAIRS`."""
    return sum([not isinstance(verdict(*pair), Proof) for pair in EQUAL_PAIRS[law](case)])
