"""Sequences of equations that differ only in their operands, and the body that they share.

Two sequences share a body if they have the same operations in the same order, and use their own results in the same
way. The body has an operand where the outside operands of the sequences differ: a variable in one and a literal in
another, two literals, or two start indices of an operation that has a dynamic form (`DYNAMIC_FORMS`).

For example, the sequences of length 2 at the equations 0 and 2 of

    %0 = sin %x,   %1 = mul %0, %w,   %2 = sin %1,   %3 = mul %2, 2.0          (result: %3)

share the body (a, b) -> let c = sin a, d = mul c b in d. The operands of the first sequence are (%x, %w), those of the
second (%1, 2.0). Only d is a result, because nothing after a sequence reads its sine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Atoms, Eqn, Flags, Jaxpr, Lit, Primitive, Source, SourceLocation, Var
from fxad.transforms.outlining.repeats import Ints
from fxad.transforms.start_indices import DYNAMIC_FORMS

# ---------------------------------------------------------------------------------------------------------- a program


@final
class EquationSequence:
    """The equations of a program as a sequence of numbers, equal for the same operation, and the last use of each
    value."""

    __slots__ = ("eqns", "firsts", "last_use", "numbers")

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.eqns = jaxpr.eqns
        names: dict[Hashable, int] = {}
        self.numbers: Ints = np.fromiter(
            [names.setdefault(sharing_key(eqn), len(names)) for eqn in self.eqns], np.int64, len(self.eqns)
        )
        # number of the first result of each equation: results of equations [a, b) are firsts[a] to firsts[b] - 1
        self.firsts: list[int] = [0, *accumulate([len(e.outs) for e in self.eqns])]
        last = [-1] * self.firsts[-1]
        for number, eqn in enumerate(self.eqns):
            for a in eqn.ins:
                if isinstance(a, Var) and not a.is_operand:
                    last[a.index] = number
        for a in jaxpr.outs:
            if isinstance(a, Var) and not a.is_operand:
                last[a.index] = len(self.eqns)
        self.last_use: Ints = np.asarray(last, np.int64)

    def of_each(self, measure: Callable[[Eqn], float]) -> NDArray[np.float64]:
        """Return a measure of each equation. It is computed once for equations with equal numbers."""
        which = np.unique(self.numbers, return_index=True)[1]
        return np.asarray([measure(self.eqns[number]) for number in which.tolist()], np.float64)[self.numbers]


def sharing_key(eqn: Eqn) -> Hashable:
    """Return a key that is equal for equations that can share an equation of a body."""
    avals = tuple([a.aval for a in eqn.ins])
    form = DYNAMIC_FORMS.get(type(eqn.prim))
    return (eqn.prim, avals) if form is None else (type(eqn.prim), form.key(eqn), avals)


# ------------------------------------------------------------------------------------------------------ shared bodies


@final
@dataclass(frozen=True, slots=True)
class SharedBody:
    """A body, the sequences of `length` equations that it replaces, and the operands of each sequence.

    Equation k of the body corresponds to equation k of each sequence. Its results have the same numbers as theirs,
    counted from the first result of the sequence. `marked` are the start indices of an equation that are operands in
    the body.
    """

    body: Jaxpr
    starts: tuple[int, ...]
    length: int
    operands: tuple[Atoms, ...]
    marked: tuple[Flags | None, ...]

    @property
    def owners(self) -> list[tuple[int, int]]:
        """For each result of an equation of the body: the number of the equation, and the number of the result."""
        return [(slot, k) for slot, eqn in enumerate(self.body.eqns) for k in range(len(eqn.outs))]

    @property
    def results(self) -> list[int]:
        """The numbers of the equation results that are results of the body."""
        return [a.index for a in self.body.outs if isinstance(a, Var)]


Code: TypeAlias = int  # of an operand: the number of the result of its own sequence; -1: it comes from outside


def group_by_dataflow(flow: EquationSequence, starts: Iterable[int], length: int) -> list[list[int]]:
    """Group the sequences at `starts`, which have equal numbers, by the way they use their own results."""
    groups: dict[tuple[Code, ...], list[int]] = {}
    for start in starts:
        base = flow.firsts[start]
        codes = [
            a.index - base if isinstance(a, Var) and a.index >= base else -1
            for eqn in flow.eqns[start : start + length]
            for a in eqn.ins
        ]
        groups.setdefault(tuple(codes), []).append(start)
    return list(groups.values())


def shared_body(flow: EquationSequence, starts: Sequence[int], length: int) -> SharedBody:
    """Return the body of sequences that are `group_by_dataflow`."""
    b = Builder()
    env: list[Atom] = []  # results of the body's equations, by their code
    marked: list[Flags | None] = []
    operands: dict[Atoms, Var] = {}  # operands of the body, by their values in each sequence
    bases = [flow.firsts[start] for start in starts]
    for slot in range(length):
        eqns = [flow.eqns[start + slot] for start in starts]
        prim, columns, varying = _common_operation(eqns)
        marked.append(varying)
        ins: list[Atom] = []
        for column in columns:
            first = column[0]
            if isinstance(first, Var) and first.index >= bases[0]:
                ins.append(env[first.index - bases[0]])
            elif isinstance(first, Lit) and column.count(first) == len(column):
                ins.append(first)
            else:
                if column not in operands:
                    operands[column] = b.input(first.aval)
                ins.append(operands[column])
        env += b.copy(Eqn(prim, eqns[0].ins, eqns[0].outs, eqns[0].source), tuple(ins))
    results = _results(flow, starts, length)
    body = b.build([env[code] for code in results], _name(flow.eqns[starts[0] : starts[0] + length]))
    rows = tuple(zip(*operands, strict=True)) if operands else ((),) * len(starts)
    return SharedBody(body, tuple(starts), length, rows, tuple(marked))


def _common_operation(eqns: Sequence[Eqn]) -> tuple[Primitive, list[Atoms], Flags | None]:
    """Return the common operation of equations with one `sharing_key`, its operands in each of them, and a mask of the
    start indices that became operands; None if the operations are equal."""
    prim = eqns[0].prim
    if all([e.prim == prim for e in eqns]):
        return prim, list(zip(*[e.ins for e in eqns], strict=True)), None
    form = DYNAMIC_FORMS[type(prim)]
    marked = tuple([len(set(starts)) > 1 for starts in zip(*map(form.starts, eqns), strict=True)])
    dynamic = [form.with_dynamic(e, marked) for e in eqns]
    return dynamic[0][0], list(zip(*[ins for _, ins in dynamic], strict=True)), marked


def _results(flow: EquationSequence, starts: Sequence[int], length: int) -> tuple[int, ...]:
    """Return the numbers of the results that are used after at least one of the sequences."""
    used = [
        flow.last_use[flow.firsts[start] : flow.firsts[start + length]] >= start + length
        for start in starts
    ]  # fmt: skip
    return tuple(np.flatnonzero(np.any(used, axis=0)).tolist())


def _name(eqns: Sequence[Eqn]) -> str:
    """Return the name of the user's function that contains most of the equations."""
    names = Counter([_function_name(e.source) for e in eqns])
    del names[""]
    return names.most_common(1)[0][0] if names else "stretch"


def _function_name(source: Source) -> str:
    if source is None:
        return ""
    return (source.function if isinstance(source, SourceLocation) else source[0].co_qualname).rpartition(".")[2]
