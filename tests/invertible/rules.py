"""Helpers that apply the inverse rule of one equation, without the solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import final

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import Atom, Aval, Eqn, Flags, Hole, Jaxpr, Lit, NDArray, Primitive
from fxad.primitives.check import Check
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.transforms import jvp
from fxad.transforms.inversion.rules import INVERSE_RULES
from fxad.transforms.inversion.rules.assembling import unknown_elements, with_part
from fxad.transforms.inversion.rules.contract import (
    VOLUME,
    PartialInverse,
    PartialValue,
    Refused,
    VolumePreserving,
    WindowPart,
)
from fxad.transforms.inversion.rules.totals import total


class Backwards(Builder):
    """The context of a rule. `makers` maps known operands to the equations that compute them."""

    __slots__ = ("makers",)

    def __init__(self) -> None:
        super().__init__()
        self.makers: dict[Atom, Eqn] = {}

    @property
    def measured(self) -> bool:
        return False

    def producer(self, a: Atom) -> Eqn | None:
        return self.makers.get(a)

    def recur(self, body: Jaxpr, known_ins: Flags, known_outs: Flags) -> PartialInverse:
        raise AssertionError("the rule of an equation with bodies is tested with the solver")

    def measure(self, log_det: Atom) -> None:
        raise AssertionError("nothing is measured")


@final
@dataclass(frozen=True, slots=True)
class Backward:
    """The result of a rule as a program: known operands, then results -> unknown operands. An operand with a window is
    the part of the operand in that window; in the others, unknown elements are nan (0 in dtypes without nan)."""

    program: Jaxpr
    unknown: Flags
    solved: Flags
    windows: tuple[tuple[range, ...] | None, ...]

    def run(self, args: Sequence[NDArray], outs: Sequence[NDArray]) -> list[tuple[NDArray, NDArray]]:
        """Returns a pair (reconstructed value, original value) for each unknown operand that the results determine."""
        known = [a for a, u in zip(args, self.unknown, strict=True) if not u]
        was = [a for a, s in zip(args, self.solved, strict=True) if s]
        back = run(self.program, [*known, *outs])
        return [
            (x, a if window is None else a[np.ix_(*[np.asarray(r, int) for r in window])] if window else a)
            for x, a, window in zip(back, was, self.windows, strict=True)
        ]


def backward(prim: Primitive, avals: Sequence[Aval], unknown: Flags) -> Backward | Refused:
    """Applies the rule of a primitive, with the marked operands unknown."""
    b = Backwards()
    known = iter(b.inputs([a for a, u in zip(avals, unknown, strict=True) if not u]))
    outs = b.inputs(prim.abstract_eval(*avals))
    args = tuple([Hole(a) if u else next(known) for a, u in zip(avals, unknown, strict=True)])
    found = INVERSE_RULES.rows[type(prim)].solve(b, prim, args, outs)
    if isinstance(found, Refused):
        return found
    marks = tuple([x is not None for x in found])
    silent = (1 + prim.n_fields) * (True,) if isinstance(prim, Check) else ()  # unused by results
    wanted = tuple([u and not s for u, s in zip_longest(unknown, silent)])
    assert marks == wanted, "an entry for each unknown operand, and for no other"
    holes = [a for a, m in zip(args, marks, strict=True) if m]
    solved = [x for x in found if x is not None]
    values = [value_of(b, h.aval, x) for x, h in zip(solved, holes, strict=True)]
    program = b.build(values, "backward")
    typecheck(program)
    return Backward(program, unknown, marks, tuple([x.window if isinstance(x, WindowPart) else None for x in solved]))


def value_of(b: Backwards, aval: Aval, x: Atom | PartialValue) -> Atom:
    """Returns the value of an operand that a rule returned."""
    if not isinstance(x, PartialValue):
        assert x.aval is aval, f"an operand {aval} comes back as {x.aval}"
        return x
    if isinstance(x, WindowPart):
        assert x.value.aval is aval.with_shape([len(r) for r in x.window])
        return x.value
    whole = with_part(b, x, unknown_elements(aval))
    assert whole.aval is aval
    return whole


def log_det(prim: Primitive, avals: Sequence[Aval], unknown: Flags) -> Jaxpr | None:
    """Returns the program from operands and results to log
    det
     of the results with respect to the marked operands, or None without a rule.
    """
    rule = INVERSE_RULES.rows[type(prim)]
    b = Backwards()
    args, outs = b.inputs(avals), b.inputs(prim.abstract_eval(*avals))
    if rule.log_det is None or rule.log_det == VOLUME:
        return None if rule.log_det is None else b.build([Lit.of(0.0, Aval((), "f64"))], "volume")
    assert not isinstance(rule.log_det, VolumePreserving)
    measured = rule.log_det(b, prim, args, unknown, outs)
    assert measured is not None
    if isinstance(prim, Unary | Binary):
        measured = total(b, measured)
    assert measured.aval.shape == ()
    program = b.build([measured], "log_det")
    typecheck(program)
    return program


def jacobian(program: Jaxpr, args: Sequence[NDArray], unknown: Flags) -> npt.NDArray[np.float64]:
    """Returns the Jacobian of all results with respect to the marked operands. A complex number is a pair of real
    numbers."""
    forward, moves = jvp(program, unknown)
    holes = [a for a, u in zip(args, unknown, strict=True) if u]
    columns = []
    for k, x in enumerate(holes):
        for unit in [1.0, 1j] if x.dtype in dtypes.COMPLEX else [1.0]:
            for i in range(x.size):
                dots = [np.zeros(h.shape, h.dtype) for h in holes]
                dots[k].reshape(-1)[i] = unit
                given = iter(run(forward, [*args, *dots])[len(program.outs) :])
                outs = [
                    next(given) if m else np.zeros(a.shape, a.dtype)
                    for m, a in zip(moves, program.out_avals, strict=True)
                ]
                columns.append(np.concatenate([reals(y) for y in outs]))
    rows = sum([a.size * (1 + (a.dtype in dtypes.COMPLEX)) for a in program.out_avals])
    return np.array(columns, np.float64).reshape(len(columns), rows).T


def reals(y: NDArray) -> npt.NDArray[np.float64]:
    """Returns all elements as real numbers; complex ones as pairs."""
    flat = y.reshape(-1).astype(np.complex128)
    return np.concatenate([flat.real, flat.imag]) if y.dtype in dtypes.COMPLEX else flat.real


def near(have: NDArray, want: object, rtol: float = 1e-9, atol: float = 0.0) -> None:
    """Asserts that values are close."""
    np.testing.assert_allclose(have.astype(np.complex128), np.asarray(want, np.complex128), rtol=rtol, atol=atol)
