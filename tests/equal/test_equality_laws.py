"""Transformations keep the meaning of programs: proved, without tolerances, for programs that are drawn.

The default run takes a few programs of each law. The sweep of 2,000 programs for each:

    python -m pytest -m deep tests/equal/test_equality_laws.py -s

It prints how many pairs of programs were decided. Programs are compared without the normal form, which would be a proof
at once for most of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.core.masks import leading
from fxad.diagnosis.equality import decide as deciding
from fxad.diagnosis.equality.decide import Counterexample, Proof, Question, Unknown
from fxad.ir import Jaxpr, NDArray
from fxad.primitives.control.call import Call
from fxad.primitives.shape import emit_reshape
from fxad.primitives.slicing import Concatenate, Slice
from fxad.testing import Case, cases
from fxad.testing.compare import fail
from fxad.testing.derivative_laws import differentiable_mask
from fxad.testing.transform_laws import as_one_call
from fxad.transforms import (
    cse,
    inline,
    jvp,
    linearize,
    outline,
    remat,
    reroll,
    simplify,
    transpose,
    vjp_fused,
)
from fxad.transforms.vmap import vmap

# pairs of programs, and values of their operands, of which only integers and bools are used
Pairs: TypeAlias = Iterator[tuple[Jaxpr, Jaxpr, list[NDArray | None]]]


def known(case: Case) -> list[NDArray | None]:
    return [None if v.aval.inexact else x for v, x in zip(case.program.ins, case.args, strict=True)]


def rewrites(*transforms: Callable[[Jaxpr], Jaxpr]) -> Callable[[Case], Pairs]:
    def pairs(case: Case) -> Pairs:
        for transform in transforms:
            yield case.program, transform(case.program), known(case)

    return pairs


def stacked(program: Jaxpr, size: int) -> Jaxpr:
    """The program of each example of a stack, and the results stacked."""
    b = Builder()
    xs = b.inputs([v.aval.with_shape((size, *v.aval.shape)) for v in program.ins])
    rows = []
    for k in range(size):
        operands = []
        for x in xs:
            n = x.aval.ndim - 1
            part = b.one(Slice((k, *[0] * n), (k + 1, *x.aval.shape[1:]), (1,) * (n + 1)), x)
            operands.append(emit_reshape(b, part, x.aval.shape[1:]))
        rows.append(b(Call(program), *operands))
    outs = [
        b.one(Concatenate(0), *[emit_reshape(b, row[q], (1, *row[q].aval.shape)) for row in rows])
        for q in range(len(program.outs))
    ]
    return b.build(outs, "stacked")


def batches(case: Case) -> Pairs:
    """vmap, and the stacked loop."""
    program = case.program
    if program.ins:
        batched = vmap(program, 2, (0,) * len(program.ins), (0,) * len(program.outs))[0]
        yield batched, stacked(program, 2), [None if x is None else np.stack([x, x]) for x in known(case)]


def gradients(case: Case) -> Pairs:
    """The gradient, that of the segment that is computed again, and that of the batch of one."""
    mask = differentiable_mask(case)
    if any(mask):
        backward = vjp_fused(case.program, mask)
        rest = [None] * (len(backward.ins) - len(case.args))
        yield backward, vjp_fused(remat(case.program), mask), [*known(case), *rest]
        yield backward, simplify(backward), [*known(case), *rest]


def transposes(case: Case) -> Pairs:
    """A linear program, transposed twice."""
    mask = differentiable_mask(case)
    split = linearize(case.program, mask)
    residuals = run(split.primal, case.args)[len(case.program.outs) :]
    linear, n = split.linear, sum(mask)
    if not n or not linear.outs:
        return
    once = transpose(linear, leading(n, len(linear.ins)))
    m = len(linear.outs)
    values = [None] * n + [None if x.dtype.kind in "fcV" else x for x in residuals]
    yield linear, transpose(once, leading(m, len(once.ins))), values


def tangents(case: Case) -> Pairs:
    """jvp, and the primal program followed by the linear one."""
    mask = differentiable_mask(case)
    if not any(mask):
        return
    split = linearize(case.program, mask)
    pushed, _ = jvp(case.program, mask)
    b = Builder()
    ins = b.inputs(pushed.in_avals)
    n = len(case.program.ins)
    primal = b.inline(split.primal, ins[:n])
    k = len(case.program.outs)
    linear = b.inline(split.linear, (*ins[n:], *primal[k:]))
    made = b.build((*primal[:k], *linear), "pushed")
    if made.out_avals == pushed.out_avals:
        yield pushed, made, [*known(case), *[None] * (len(pushed.ins) - n)]


LAWS: dict[str, tuple[Callable[[Case], Pairs], bool]] = {
    "rewrites": (rewrites(simplify, cse, inline, outline, reroll, remat, as_one_call), False),
    "vmap": (batches, False),
    "gradients": (gradients, True),
    "transposes": (transposes, True),
    "tangents": (tangents, True),
}


def judge(
    law: str, programs: int, monkeypatch: pytest.MonkeyPatch, start: int = 0
) -> tuple[Counter[str], list[Unknown]]:
    """Decide all pairs of a law for some drawn programs. A counterexample is an error."""
    monkeypatch.setattr(deciding, "normal_form", lambda jaxpr: jaxpr)
    pairs, differentiable = LAWS[law]
    counts, undecided = Counter[str](), list[Unknown]()

    @seed(start)
    @settings(
        max_examples=programs,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(cases(differentiable=differentiable))
    def sweep(case: Case) -> None:
        for left, right, values in pairs(case):
            found = deciding.decide(Question((left, right), ((), ()), values))
            counts[type(found).__name__] += 1
            if isinstance(found, Counterexample):
                fail(f"{law}: equal programs were found different: {found}", left, (), right)
            if isinstance(found, Unknown):
                undecided.append(found)

    sweep()
    return counts, undecided


@pytest.mark.parametrize("law", LAWS)
def test_transformations_are_proved(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, undecided = judge(law, 15, monkeypatch)
    assert counts[Proof.__name__] >= 0.9 * counts.total() > 0, undecided


@pytest.mark.deep
@pytest.mark.parametrize("law", LAWS)
def test_nearly_all_programs_are_decided(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, undecided = judge(law, 2_000, monkeypatch, 1)
    reasons = [f"\n  {n} times {x}" for x, n in Counter(map(str, undecided)).most_common(8)]
    print(f"\n{law}: {dict(counts)}", *reasons)  # noqa: T201 -- the figures of the sweep
    assert counts[Proof.__name__] >= 0.95 * counts.total()
