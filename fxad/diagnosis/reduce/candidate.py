"""A program with values of its operands, its size, and its normal form."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import rebind_operands
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce, read_operands
from fxad.core.flags import select_by_flags
from fxad.core.layout import InParallel, Never, Once, OneOf, Times, Unknown, UpTo
from fxad.core.trees import tree
from fxad.ir import Eqn, HigherOrder, Jaxpr, Lit, NDArray, distinct_jaxprs, jaxprs_in_params, once_from_bodies
from fxad.tracing.program import Program

# Values of the operands; None for an operand whose value is not known.
OperandValues: TypeAlias = tuple[NDArray | None, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A program that may fail, and values of its operands. The first `n_bound` operands are arrays that the program
    closes over; the others are arguments."""

    jaxpr: Jaxpr
    values: OperandValues
    n_bound: int = 0
    has_args: bool = True  # False: the predicate gets None

    @property
    def key(self) -> tuple[object, ...]:
        """A key of the program and the bits of the values. It holds no large array: a search keeps the keys of all
        candidates."""
        return self.jaxpr, self.n_bound, tuple([None if x is None else (x.dtype, _hash(x)) for x in self.values])

    @property
    def args(self) -> tuple[NDArray, ...] | None:
        """The arguments; None if their values are not known."""
        return tuple([x for x in self.values[self.n_bound :] if x is not None]) if self.has_args else None

    def replace(
        self, jaxpr: Jaxpr, values: Sequence[NDArray | None] | None = None, n_bound: int | None = None
    ) -> Candidate:
        """Return the candidate with another program; values and their number stay unless they are given."""
        return Candidate(
            jaxpr,
            self.values if values is None else tuple(values),
            self.n_bound if n_bound is None else n_bound,
            self.has_args,
        )

    def program(self) -> Program[..., Any]:
        """Return the program: it takes its arguments by position, and returns one array, or a tuple of several."""
        n, outs = len(self.values) - self.n_bound, len(self.jaxpr.outs)
        ins = tree.structure(((0,) * n, {}))
        results = tree.structure(0 if outs == 1 else (0,) * outs)
        return Program(self.jaxpr, ins, results, self.values[: self.n_bound], (), self.jaxpr.name)


def _hash(x: NDArray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data).digest()


# ------------------------------------------------------------------------------------------------------------- size

_STEPS: Final = 3  # greatest number of steps of a loop that count


def equations_to_read(jaxpr: Jaxpr) -> int:
    """Return the number of equations to look at: those of a body for each equation that has it, and for up to three
    steps of a loop. It gets smaller when a call is inlined, a branch is taken, or a step of a loop takes its place."""
    return once_from_bodies(jaxpr, "weight of a reduction", lambda j: sum([_weight(e) for e in j.eqns]))


def _weight(eqn: Eqn) -> int:
    bodies = jaxprs_in_params(eqn.prim)
    if not bodies:
        return 1
    times: dict[Jaxpr, int] = {}
    if isinstance(eqn.prim, HigherOrder):
        for body in eqn.prim.layout.bodies:
            times[body.jaxpr] = max(times.get(body.jaxpr, 0), _runs(body.runs))
    return 1 + sum([times.get(body, 1) * (1 + equations_to_read(body)) for body in bodies])


def _runs(runs: object) -> int:
    match runs:
        case Once() | OneOf() | Never():
            return 1
        case Times(count) | InParallel(count) | UpTo(count) | Unknown(int(count)) if type(count) is int:
            return max(1, min(count, _STEPS))
        case _:
            return _STEPS


def equations(jaxpr: Jaxpr) -> int:
    """Return the number of equations of a program and of its distinct bodies."""
    return sum([len(body.eqns) for body in distinct_jaxprs(jaxpr)])


_LOOKED_AT: Final = 64  # greatest number of elements of an array that are looked at
_SYMBOLIC: Final = 1 << 20  # a symbolic shape counts as so many elements, so a number takes the place of its size
_PLAIN: Final = (dtypes.float32, dtypes.int32, dtypes.bool_)


def candidate_size(candidate: Candidate) -> tuple[int, ...]:
    """Return the size of a candidate. Every step of the search makes it smaller: equations, then operands and results,
    elements, unusual dtypes, parameters, then the values of operands."""
    jaxpr = candidate.jaxpr
    avals = [v.aval for body in distinct_jaxprs(jaxpr) for v in (*body.ins, *[v for e in body.eqns for v in e.outs])]
    elements = sum([1 + a.ndim + (_SYMBOLIC if a.symbolic else a.size) for a in avals])
    unusual = sum([a.dtype.itemsize + (a.dtype not in _PLAIN) for a in avals])
    literals = sum(
        [rank_of_element(a.value) for e in jaxpr.eqns for a in e.ins if isinstance(a, Lit) and a.size is None]
    )
    ranks = [rank_of_value(x) for x in candidate.values if x is not None]
    return (
        equations_to_read(jaxpr),
        len(jaxpr.ins) + len(jaxpr.outs),
        elements,
        unusual,
        sum([r for r, _ in ranks]) + literals,
        sum([n for _, n in ranks]),
    )


def is_finite(x: NDArray | None) -> bool:
    """Return True if an operand has no nan and no infinity."""
    if x is None or x.dtype not in dtypes.INEXACT:
        return True
    with np.errstate(all="ignore"):
        return bool(np.isfinite(x).all())


def rank_of_element(x: Any) -> int:
    """Return how plain a number is: 0 for zero, 1 for one, 2 for a small integer, 3 for few digits, 4 for any other."""
    if x == 0 and not np.signbit(np.real(x)):
        return 0
    if x == 1:
        return 1
    if np.isfinite(x) and abs(x) < 100:
        if x == np.round(np.real(x)):
            return 2
        if np.isreal(x) and float(np.real(x)) == round(float(np.real(x)), 1):
            return 3
    return 4


def rank_of_value(x: NDArray) -> tuple[int, int]:
    """Return the rank of the least plain element of an array, and the number of distinct elements; of a large array,
    those of its first elements."""
    if x.size == 0:
        return 0, 0
    first = x.reshape(-1)[:_LOOKED_AT]
    with np.errstate(all="ignore"):
        distinct = np.unique(first if x.dtype in dtypes.COMPLEX else first.astype(np.float64))
    return max([rank_of_element(e) for e in distinct]), distinct.size


# ------------------------------------------------------------------------------------------------------ normal form


def without_dead_code(c: Candidate) -> Candidate:
    """Return the candidate without dead equations and without unread operands."""
    jaxpr = dce(c.jaxpr)
    read = read_operands(jaxpr)
    if all(read):
        return c if jaxpr is c.jaxpr else c.replace(jaxpr)
    kept = select_by_flags(range(len(read)), read)
    return c.replace(rebind_operands(jaxpr, kept), select_by_flags(c.values, read), sum([k < c.n_bound for k in kept]))


def with_results(c: Candidate, keep: Sequence[int]) -> Candidate:
    """Return the candidate with some of its results."""
    jaxpr = c.jaxpr
    return c.replace(jaxpr.with_outs([jaxpr.outs[k] for k in keep]))
