"""Strategies for whole programs: well typed, with nested and shared bodies, literals, several dtypes and dead code.

Programs are grown (`fxad.testing.growth`) so that the laws can compare NumPy, XLA, batching and differentiation within
a small tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, final

import numpy as np
from hypothesis import assume, strategies as st

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.core.sizes.polynomials import SizeName
from fxad.errors import ArgumentError, SizeError
from fxad.ir import Atom, Aval, Jaxpr, Lit, NDArray, Var
from fxad.primitives import elementwise as ew
from fxad.primitives.shape import (
    ReduceSum,
)
from fxad.testing.applications import Specs
from fxad.testing.applied_steps import step_of
from fxad.testing.compare import differ
from fxad.testing.growth import INPUT, Growth
from fxad.testing.patterns import pattern_step
from fxad.testing.steps import GROWTH_STEPS, GrowthStep
from fxad.testing.values import SEEDS, Domain, ShownByRepr, operands_text, sample
from fxad.text import OwnPrimitives, parse

LARGEST: Final = 300_000


@final
@dataclass(frozen=True, slots=True, eq=False)
class Case(ShownByRepr):
    """A program and operands for it. `seed` decides further choices of a law (directions, axes).

    smooth: finite differences give the derivatives of the program; all floats are float64 and complex128.

    Its `repr` is Python code that makes an equal case: `case(text, seed=..., smooth=...)`, after
    `from fxad.testing import case`.
    """

    program: Jaxpr
    args: tuple[NDArray, ...]
    seed: int = 0
    smooth: bool = False

    def __repr__(self) -> str:
        options = f"seed={self.seed}" + ", smooth=True" * self.smooth
        drawn = operands(self.program, self.seed, zeros=not self.smooth)
        if differ(drawn, self.args, exact=True):
            options += f", bits={tuple([np.asarray(x, order='C').tobytes().hex() for x in self.args])!r}"
        text = str(self.program).replace("\\", "\\\\")
        shown = operands_text(self.program.in_avals, self.args).replace("\n", "\n#")
        return f'case("""\\\n{text}""", {options}' + f"\n#{shown}\n" * bool(self.args) + ")"


def case(
    text: str,
    *,
    seed: int = 0,
    smooth: bool = False,
    bits: Sequence[str] | None = None,
    primitives: OwnPrimitives = (),
) -> Case:
    """Return the case with the program of a text. Its operands are those that `cases` draws for the seed, unless `bits`
    has their bytes in hexadecimal. `primitives` are classes of primitives from outside fxad that the text names.

    Raises: ParseError for a text that is no program; ArgumentError for another number of bytes than an operand has.
    """
    program = parse(text, primitives)
    if bits is None:
        return Case(program, operands(program, seed, zeros=not smooth), seed, smooth)
    values = [bytes.fromhex(x) for x in bits]
    if [len(x) for x in values] != [a.nbytes for a in program.in_avals]:
        raise ArgumentError(
            f"case: the operands have {[len(x) for x in values]} bytes, the program takes"
            f" {[a.nbytes for a in program.in_avals]}",
            remedy="paste the whole text of the case",
        )
    args = [np.frombuffer(x, a.dtype).reshape(a.shape) for x, a in zip(values, program.in_avals, strict=True)]
    return Case(program, tuple(args), seed, smooth)


def growth_steps(
    steps: Sequence[GrowthStep] | None,
    primitives: Sequence[Specs],
    patterns: Sequence[Callable[..., object]] = (),
) -> Sequence[GrowthStep]:
    """Return the growth steps, and those of primitives and patterns from outside fxad, which are half as many."""
    known_steps = GROWTH_STEPS if steps is None else tuple(steps)
    outside_steps = [*[step_of(specs) for specs in primitives], *[pattern_step(f) for f in patterns]]
    return (*known_steps, *outside_steps * max(1, len(known_steps) // (2 * max(1, len(outside_steps)))))


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    differentiable: bool = False,
    depth: int = 2,
    size: int = 10,
    scalar: bool = False,
    unbounded: bool = False,
    steps: Sequence[GrowthStep] | None = None,
    primitives: Sequence[Specs] = (),
    patterns: Sequence[Callable[..., object]] = (),
    sizes: Mapping[SizeName, int] = MappingProxyType({}),
    long: int = 0,
) -> Jaxpr:
    """Draw well-typed programs of up to about `size` equations with bodies nested to `depth`.

    differentiable: floats are float64 and complex128, functions are smooth almost everywhere and well conditioned.
    scalar: the first result is a real floating scalar, so the program has a gradient. unbounded: loops over floats may
    have no bound, so the program has forward mode only. steps: the growth steps, `fxad.testing.steps.GROWTH_STEPS`
    by default (`fxad.testing.STEPS` are transformations).
    primitives: primitives of your own, drawn as for `applications`. patterns: functions of arrays of one type, whose
    equations are drawn together, so that what a pass rewrites is not rare. A third of the steps are of these two.
    sizes: named sizes with their largest values; dimensions are sizes, too. long: the size of one axis of many
    operands. No value of the program has more than `LARGEST` elements.
    """
    steps = growth_steps(steps, primitives, patterns)
    inner = programs(
        differentiable=differentiable, depth=depth - 1, size=4, unbounded=unbounded, steps=steps, sizes=sizes, long=long
    )
    bodies = draw(st.lists(inner, max_size=2)) if depth else []
    g = Growth(draw, differentiable, bodies, unbounded, sizes, long)
    for _ in range(draw(st.integers(1, 3))):
        dtype = g.dtypes[0] if draw(st.integers(0, 2)) == 0 else draw(st.sampled_from(g.dtypes))
        g.input(Aval(g.shape(), dtype))
    for _ in range(size):  # not a drawn number: hypothesis prefers small ones, and most programs would be empty
        try:
            draw(st.sampled_from(steps))(g, g.one_of(g.pool))
        except SizeError:
            assert sizes  # a step that needs numbers
    if long:
        assume(all([v.aval.size <= LARGEST for eqn in g.builder.eqns for v in eqn.outs]))
    used = {a for eqn in g.builder.eqns for a in eqn.ins} | g.conventions
    # most of what nothing uses is returned, so that a fault does not hide in dead code; and any values, twice perhaps
    outs: list[Atom] = [v for eqn in g.builder.eqns for v in eqn.outs if v not in used and draw(st.integers(0, 4))]
    outs += [g.one_of(g.pool) for _ in range(draw(st.integers(0, 2)))]
    if scalar:
        outs.insert(0, _scalar(g))
    return g.builder.build(outs, "f")


def _scalar(g: Growth) -> Atom:
    """Return a real floating scalar that depends on many values."""
    emit = g.builder.one
    dtype = g.dtypes[0]
    total: Atom = Lit.of(0, Aval((), dtype))
    for a in [a for a in g.pool if a.aval.inexact and isinstance(a, Var)][-4:]:
        real = emit(ew.REAL, a) if a.aval.dtype in dtypes.COMPLEX else a
        term = emit(ReduceSum(tuple(range(a.aval.ndim))), emit(ew.SIN, real))
        total = emit(ew.ADD, total, term if term.aval.dtype == dtype else emit(ew.ConvertElementType(dtype), term))
    return total


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    differentiable: bool = False,
    depth: int = 2,
    size: int = 10,
    scalar: bool = False,
    unbounded: bool = False,
    steps: Sequence[GrowthStep] | None = None,
    primitives: Sequence[Specs] = (),
    patterns: Sequence[Callable[..., object]] = (),
    long: int = 0,
) -> Case:
    """Draw programs of `programs`, with operands within the bounds they were grown for."""
    steps = growth_steps(steps, primitives, patterns)
    program = draw(
        programs(
            differentiable=differentiable,
            depth=depth,
            size=size,
            scalar=scalar,
            unbounded=unbounded,
            steps=steps,
            long=long,
        )
    )
    seed = draw(SEEDS)
    return Case(program, operands(program, seed, zeros=not differentiable), seed, differentiable)


def operands(program: Jaxpr, seed: int, *, zeros: bool = False) -> tuple[NDArray, ...]:
    """Return operands of a program for a seed. With `zeros` some are 0.0 and -0.0, where functions may have kinks."""
    domain = Domain(INPUT.low, INPUT.high, zeros=zeros)
    return tuple([sample(a, domain, seed, k) for k, a in enumerate(program.in_avals)])
