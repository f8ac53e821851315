"""Transformations keep the meaning of programs: proved, without tolerances, for programs that are drawn.

The default run takes a few programs of each law. The sweep of 2,000 programs for each:

    python -m pytest -m deep tests/equal/test_equality_laws.py -s

It prints how many pairs of programs were decided. Programs are compared without the normal form, which would be a proof
at once for most of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from fxad.core.builder import Builder
from fxad.diagnosis.equality import decide as deciding
from fxad.diagnosis.equality.decide import Proof
from fxad.errors import SizeError
from fxad.ir import Aval, Lit
from fxad.primitives.elementwise import COS, SIN
from fxad.primitives.slicing import Pad, Slice
from fxad.testing import EQUAL_PAIRS, Case, RaggedCase, cases, check_equal_pairs, ragged_cases
from fxad.testing.equality_laws import verdict
from fxad.testing.equality_pairs import Pair, rewrites_by
from fxad.testing.mask_laws import raise_unless_refused
from fxad.testing.ragged_cases import masked_operands
from fxad.testing.transform_laws import as_one_call
from fxad.transforms import outline, reroll
from fxad.transforms.mask.mask import mask
from fxad.transforms.specialize import specialize


def padded(case: RaggedCase) -> Iterator[Pair]:
    """A masked program of padded operands, and the program at the sizes, of their valid parts: equal whatever the
    padding holds. The padding of results is zero."""
    try:
        masked = mask(case.program, case.own)
    except SizeError as e:
        raise_unless_refused(e)
        return
    args = case.operands(case.program.in_avals)
    given = masked_operands(case, args, masked)
    fixed = specialize(case.program, tuple(sorted(case.sizes.items())))
    n = len(args)
    left, right = Builder(), Builder()
    avals = [a.with_shape(np.shape(x)) for a, x in zip(masked.in_avals[:n], given, strict=False)]
    sizes = [Lit.of(x, a) for a, x in zip(masked.in_avals[n:], given[n:], strict=True)]
    ours = right.inline(masked, (*right.inputs(avals), *sizes))
    valid = [
        left.one(Slice((0,) * v.aval.ndim, v.aval.shape, (1,) * v.aval.ndim), x)
        for v, x in zip(fixed.ins, left.inputs(avals), strict=True)
    ]
    theirs = []
    for y, aval in zip(left.inline(fixed, valid), masked.out_avals, strict=True):
        zero, k = (0,) * aval.ndim, zip(aval.shape, y.aval.shape, strict=True)
        theirs.append(left.one(Pad(zero, tuple([a - b for a, b in k]), zero), y, Lit.of(0, aval.with_shape(()))))
    yield (
        left.build(theirs, "unpadded"),
        right.build(ours, "masked"),
        [None if a.inexact else x for a, x in zip(avals, given, strict=False)],
    )


REWRITES: Final = rewrites_by(outline, reroll, as_one_call)
DIFFERENTIABLE: Final = frozenset({"gradients", "transposes", "tangents"})
LAWS: Final = (*EQUAL_PAIRS, "other rewrites", "padded")


def judge(law: str, programs: int, monkeypatch: pytest.MonkeyPatch, start: int = 0) -> Mapping[str, int]:
    """Decide all pairs of a law for some drawn programs, without normal forms. A counterexample is an error."""
    monkeypatch.setattr(deciding, "normal_form", lambda jaxpr: jaxpr)
    counts = Counter[str]()

    def count(pairs: Iterator[Pair]) -> None:
        for pair in pairs:
            found = verdict(*pair)
            counts[Proof.__name__ if isinstance(found, Proof) else str(found)] += 1

    drawn: SearchStrategy[Case | RaggedCase]
    drawn = ragged_cases() if law == "padded" else cases(differentiable=law in DIFFERENTIABLE)

    @seed(start)
    @settings(
        max_examples=programs,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(drawn)
    def sweep(case: Case | RaggedCase) -> None:
        if isinstance(case, RaggedCase):
            count(padded(case))
        else:
            count(EQUAL_PAIRS.get(law, REWRITES)(case))

    sweep()
    return MappingProxyType(counts)


@pytest.mark.parametrize("law", LAWS)
def test_transformations_are_proved(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = judge(law, 8, monkeypatch)
    assert counts[Proof.__name__] >= 0.9 * sum(counts.values()) > 0, counts


@pytest.mark.deep
@pytest.mark.parametrize("law", LAWS)
def test_nearly_all_programs_are_decided(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = judge(law, 2_000, monkeypatch, 1)
    print(f"\n{law}:", *[f"\n  {n} {x}" for x, n in Counter(counts).most_common(8)])  # noqa: T201 -- the figures
    assert counts[Proof.__name__] >= 0.95 * sum(counts.values())


def test_the_law_of_users_counts_what_is_not_decided() -> None:
    a, b = Builder(), Builder()
    x, y = [builder.inputs([Aval((3,), "float64")])[0] for builder in (a, b)]
    program = a.build([a.one(SIN, x)], "f")
    assert check_equal_pairs("rewrites", Case(program, (np.zeros(3),))) == 0
    with pytest.raises(AssertionError, match="the programs are not equal: different: result 0"):
        verdict(program, b.build([b.one(COS, y)], "g"), [None])
