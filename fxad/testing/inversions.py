"""Strategies for invertible programs: chains and couplings of well-conditioned steps with inverses.

The steps are well conditioned, so the inverse returns the operands within a small tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import final

import numpy as np
from hypothesis import strategies as st

from fxad import dtypes
from fxad.api.chosen_arguments import ChosenArguments
from fxad.core.dataclasses import dataclass
from fxad.core.trees import tree
from fxad.ir import Aval, Jaxpr, NDArray
from fxad.testing.inverse_state import HeldArrays, Move, State
from fxad.testing.inverse_steps import NESTED, OWN_DERIVATIVE, RETYPING, SIMPLE, STEADY, UNMEASURED, run_steps
from fxad.testing.programs import Case
from fxad.testing.values import PRECISE, SEEDS, Domain, ShownByRepr, sample
from fxad.tracing.array import Array
from fxad.tracing.program import Program
from fxad.tracing.static_args import ArgumentNames
from fxad.tracing.trace import trace


@final
@dataclass(frozen=True, slots=True, eq=False)
class Inversion(ShownByRepr):
    """A program, operands for it, and which of them are held.

    measured: its log-determinant is known. chain: the steps of the program, for messages. turn: the number of results
    that are moved from the front to the end.
    """

    program: Jaxpr
    args: tuple[NDArray, ...]
    kept: tuple[bool, ...]
    seed: int = 0
    measured: bool = False
    chain: tuple[Move, ...] = ()
    turn: int = 0

    @staticmethod
    def of(f: Callable[..., object], *args: object, keep: ArgumentNames = (), measured: bool = False) -> Inversion:
        """Return the case of a function at arguments. Arguments named in `keep` and captured values are held."""
        program: Program[..., object] = f if isinstance(f, Program) else trace(f, *args)
        kept = ChosenArguments.by_number_or_name("Inversion.of", "keep", program, keep).leaf_flags
        values = [*program.bound, *tree.leaves(args)]
        operands = [np.asarray(x, a.dtype) for x, a in zip(values, program.jaxpr.in_avals, strict=True)]
        return Inversion(program.jaxpr, tuple(operands), (True,) * len(program.bound) + kept, 0, measured)

    @property
    def case(self) -> Case:
        """Return the program and its operands as a `Case`. Laws of finite differences apply in double precision
        only."""
        return self.over(self.program, self.args)

    def over(self, program: Jaxpr, args: Sequence[NDArray]) -> Case:
        """Return the case for another program with the same operands."""
        smooth = all([v.aval.dtype in PRECISE for v in program.ins if v.aval.inexact])
        return Case(program, tuple(args), self.seed, smooth)

    def __repr__(self) -> str:
        of = "\n".join([f"  {move}" for move in self.chain]) if self.chain else str(self.program)
        values = "\n".join([
            f"  {a}{' (held)' if k else ''}: {x.tolist()}"
            for a, x, k in zip(self.program.in_avals, self.args, self.kept, strict=True)
        ])  # fmt: skip
        return f"{of}\nat\n{values}"


@st.composite
def moves(
    draw: st.DrawFn, *, depth: int = 2, size: int = 4, measured: bool = False, steady: bool = False, bent: bool = False
) -> tuple[Move, ...]:
    """Draw chains of up to `size` steps with bodies nested to `depth`. `measured`: steps with log-determinants only;
    `steady`: steps that keep the types of the state; `bent`: also functions with a derivative that is not their own."""
    names = [
        n
        for n in (*(OWN_DERIVATIVE if bent else ()), *SIMPLE, *(NESTED if depth else ()))
        if not ((measured and n in UNMEASURED) or (steady and n in RETYPING))
    ]
    out = []
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=size)):
        n = NESTED[name][1] if name in NESTED else 0
        inside = moves(depth=depth - 1, size=2, measured=measured, steady=steady or name in STEADY, bent=bent)
        bodies = [draw(inside) for _ in range(n)]
        out.append(Move(name, draw(st.integers(0, 5)), draw(st.integers(0, 5)), tuple(bodies)))
    return tuple(out)


@st.composite
def inversions(
    draw: st.DrawFn, *, depth: int = 2, size: int = 4, measured: bool = False, bent: bool = False
) -> Inversion:
    """Draw programs of 1 to 3 invertible arrays, beside integers and bools, and three held operands.

    Elements, slices and whole arrays are coupled, permuted, scaled, multiplied by triangular matrices and converted; in
    calls, branches, loops, `remat` and `invertible`, and by `custom_inverse` or `custom_ivjp`. Numbers are real or
    complex, in single or double precision; arrays may have shape () or be empty. `measured`: with log-determinants.
    `bent`: a step, or one in every body of the last step, has a derivative that is not the function's.
    """
    chain = draw(moves(depth=depth, size=size, measured=measured, bent=bent))
    if bent:
        chain = (*chain[:-1], _with_own_derivative(chain[-1], draw(st.integers(0, 5))))
    n = draw(st.sampled_from((3, 2, 1, 4, 0)))
    shape = draw(st.sampled_from(((n,), (2, n), ())))
    dtype = draw(st.sampled_from((dtypes.float64, dtypes.complex128, dtypes.float32, dtypes.complex64)))
    beside = draw(st.lists(st.sampled_from((dtypes.bool_, dtypes.int32, dtypes.uint8)), max_size=2))
    turn, seed = draw(st.integers(0, 3)), draw(SEEDS)
    x, domain = Aval(shape, dtype), Domain(-1.5, 1.5, zeros=draw(st.booleans()))
    state = [*[x] * draw(st.integers(1, 3)), *[x.with_dtype(d) for d in beside]]
    count = len(state)
    avals = [*state, x, Aval((n, n), dtypes.real_part(dtype)), Aval((), dtypes.bool_)]
    args = tuple([sample(a, domain, seed, k) for k, a in enumerate(avals)])

    return inversion(chain, args, count, turn, seed, measured)


def _with_own_derivative(move: Move, j: int) -> Move:
    """Return a step with one of `OWN_DERIVATIVE` in each of its bodies; that one itself if the step has no body."""
    (name,) = OWN_DERIVATIVE
    own = Move(name, j=j)
    return replace(move, bodies=tuple([(own, *body) for body in move.bodies])) if move.bodies else own


def inversion(
    chain: tuple[Move, ...], args: Sequence[NDArray], count: int, turn: int = 0, seed: int = 0, measured: bool = False
) -> Inversion:
    """Return the case of a chain at operands: `count` that change, then three that are held. `turn` results are moved
    to the end."""

    def f(*given: Array) -> State:
        results = run_steps(chain, given[:count], HeldArrays(*given[count:]))
        k = turn % len(results)
        return results[k:] + results[:k]

    program = trace(f, *args)
    kept = (True,) * len(program.bound) + (False,) * count + (True,) * 3
    values = (*[np.asarray(b) for b in program.bound], *args)
    return Inversion(program.jaxpr, values, kept, seed, measured, chain, turn)
