"""No call of a primitive is proved equal to one with another parameter or other operands that gives other results.

The default run takes a few calls of primitives with axes, orders and comparisons. All primitives, for some minutes:

    python -m pytest -m deep tests/equal/test_changed_calls.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pytest
from hypothesis import given

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.diagnosis.equality import decide as deciding
from fxad.diagnosis.equality.decide import decide
from fxad.diagnosis.equality.verdict import Proof, Question, Unknown
from fxad.errors import FxadError
from fxad.ir import Atom, Jaxpr, NDArray, Primitive
from fxad.primitives import ALL
from fxad.primitives.collectives import COLLECTIVES
from fxad.primitives.elementwise import ConvertElementType
from fxad.primitives.shape import Rev, Transpose
from fxad.testing import Application, calls
from tests.equal.test_mutants import difference
from tests.laws.budget import sweep_of

KINDS = ("sort", "cumsum", "reduce_max", "reduce_sum", "dot_general", "gather", "select_n", "lt", "max", "fft")


def with_other_parameters(prim: Primitive) -> Iterator[Primitive]:
    for f in dataclasses.fields(prim):
        value = getattr(prim, f.name)
        others: list[object] = []
        if isinstance(value, bool):
            others = [not value]
        elif isinstance(value, int):
            others = [value - 1, value + 1]
        elif isinstance(value, tuple):
            others = [value[::-1], value[1:] + value[:1]]
        for other in others:
            yield dataclasses.replace(prim, **{f.name: other})


def moved_operands(call: Application) -> Iterator[Callable[[Builder, list[Atom]], list[Atom]]]:
    """Give functions that swap two operands, or reverse, transpose or convert one of them."""

    def changed(k: int, prim: Primitive) -> Callable[[Builder, list[Atom]], list[Atom]]:
        return lambda b, xs: [b.one(prim, x) if j == k else x for j, x in enumerate(xs)]

    for k, aval in enumerate(call.avals):
        for j in range(k):
            if call.avals[j] is aval:
                yield lambda _, xs, j=j, k=k: [*xs[:j], xs[k], *xs[j + 1 : k], xs[j], *xs[k + 1 :]]  # type: ignore[misc]
        yield from [changed(k, ConvertElementType(d)) for d in (dtypes.int8, dtypes.int64, dtypes.float64)]
        yield from [changed(k, Rev((axis,))) for axis in range(aval.ndim)]
        if aval.ndim >= 2:
            yield changed(k, Transpose((1, 0, *range(2, aval.ndim))))


def changed_calls(call: Application) -> Iterator[Jaxpr]:
    """Give well typed programs that differ from a call in one parameter or one operand."""

    def built(prim: Primitive, move: Callable[[Builder, list[Atom]], list[Atom]]) -> Iterator[Jaxpr]:
        b = Builder()
        try:
            changed = b.build(list(b(prim, *move(b, [*b.inputs(call.avals)]))), "changed")
            typecheck(changed)
        except (FxadError, TypeError, ValueError, IndexError, AttributeError):
            return
        if changed.out_avals == call.program.out_avals and changed is not call.program:
            yield changed

    try:
        prims = list(with_other_parameters(call.prim))
    except (FxadError, TypeError, ValueError, IndexError, AttributeError):
        prims = []
    for prim in prims:
        yield from built(prim, lambda _, xs: xs)
    for move in moved_operands(call):
        yield from built(call.prim, move)


def alike(x: NDArray, y: NDArray) -> bool:
    """The same elements; a nan is a nan."""
    return x.tobytes() == y.tobytes() or bool(
        np.array_equal(x.astype(np.complex128), y.astype(np.complex128), equal_nan=True)
    )


def check_kind(kind: type[Primitive], examples: int) -> int:
    """Check calls of a primitive. Returns the number of proofs."""
    proofs = 0

    @sweep_of(examples)
    @given(calls(kind))
    def law(call: Application) -> None:
        nonlocal proofs
        program = call.program
        if sum([a.size for a in call.avals]) > 200:
            return
        want = list(run(program, call.args))
        known = [None if a.inexact else x for a, x in zip(call.avals, call.args, strict=True)]
        for changed in changed_calls(call):
            try:
                have = list(run(changed, call.args))
            except (FxadError, ValueError, IndexError, TypeError):
                continue
            for bits in (False, True):
                if isinstance(found := decide(Question((program, changed), ((), ()), known), bits=bits), Proof):
                    proofs += 1
                    same = all(map(alike, want, have))
                    assert same or (not bits and difference(want, have) < 0.1), f"{found}\n{program}\n{changed}"

    with (
        mock.patch.object(deciding, "difference", return_value=None),  # proofs alone are checked
        mock.patch.object(deciding, "difference_in_bits", return_value=None),
        mock.patch.object(deciding, "_first_new_value", return_value=Unknown("", "")),
    ):
        law()
    return proofs


def test_no_changed_call_is_proved_equal() -> None:
    assert sum([check_kind(kind, 2) for kind in ALL if kind.name in KINDS]) >= 10


@pytest.mark.deep
@pytest.mark.parametrize("kind", [k for k in ALL if k not in COLLECTIVES], ids=lambda kind: kind.name)
def test_no_changed_call_of_any_primitive_is_proved_equal(kind: type[Primitive]) -> None:
    check_kind(kind, 20)
