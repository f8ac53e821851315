"""Transformations keep the meaning of programs: proved, without tolerances, for programs that are drawn.

The default run takes a few programs of each law. The sweep of 2,000 programs for each:

    python -m pytest -m deep tests/equal/test_equality_laws.py -s

It prints how many programs were decided. `tests.equal.sweep` runs over any number of programs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.core.builder import Builder
from fxad.diagnosis.equality.verdict import Proof
from fxad.ir import Aval
from fxad.primitives.elementwise import COS, MUL, SIN, SQUARE, Square
from fxad.testing import EQUAL_PAIRS, Case, check_equal_pairs
from fxad.testing.equality_laws import verdict
from tests.equal.sweep import LAWS, judge, mutants_portion, twins_portion


@pytest.mark.parametrize("law", LAWS)
def test_transformations_are_proved(law: str) -> None:
    counts = judge(law, 8)
    assert counts[Proof.__name__] >= 0.85 * sum(counts.values()) > 0, counts


@pytest.mark.deep
@pytest.mark.parametrize("law", LAWS)
def test_nearly_all_programs_are_decided(law: str) -> None:
    counts = judge(law, 2_000, 1)
    print(f"\n{law}:", *[f"\n  {n} {x}" for x, n in Counter(counts).most_common(8)])  # noqa: T201 -- the figures
    assert counts[Proof.__name__] >= 0.95 * sum(counts.values())


def test_equal_programs_are_not_found_different() -> None:
    counts = twins_portion(0, 200)
    assert counts["Proof"] >= 150
    assert not counts["Counterexample"] + counts["Counterexample beyond the fields"], counts


def test_planted_faults_are_not_proved() -> None:
    counts = mutants_portion(0, 40)
    assert counts["faults that floats show"] >= 15
    assert counts["Counterexample of what floats show"] == counts["faults that floats show"], counts


def test_a_wrong_tangent_differs_from_exact_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    (x,) = b.inputs([Aval((3,), "float64")])
    program = b.build([b.one(MUL, b.one(SQUARE, x), x)], "cube")
    case = Case(program, (np.zeros(3),), 0, True)
    assert len(list(EQUAL_PAIRS["differences"](case))) == 1
    assert check_equal_pairs("differences", case) == 0
    program._memo.clear()
    monkeypatch.setattr(Square, "tangent", lambda self, ctx, x, y, t: ctx.lin_one(MUL, t, x))
    with pytest.raises(AssertionError, match="the programs are not equal: different: result 0"):
        check_equal_pairs("differences", case)


def test_the_law_of_users_counts_what_is_not_decided() -> None:
    a, b = Builder(), Builder()
    x, y = [builder.inputs([Aval((3,), "float64")])[0] for builder in (a, b)]
    program = a.build([a.one(SIN, x)], "f")
    assert check_equal_pairs("rewrites", Case(program, (np.zeros(3),))) == 0
    with pytest.raises(AssertionError, match="the programs are not equal: different: result 0"):
        verdict(program, b.build([b.one(COS, y)], "g"), [None])


# ------------------------------------------------------------------------------------------------------- integers wrap

BYTES = tuple([x.reshape(-1).astype(np.uint8) for x in np.meshgrid(np.arange(256), np.arange(256))])


def of_bytes(source: random.Random, wide: bool) -> Callable[..., Any]:
    """A function of two bytes: sums, products, extrema in their own or in a wider width, and a comparison of them."""
    steps = [source.randrange(6) for _ in range(source.randint(1, 4))]
    reads, constant = source.randrange(4), source.randrange(256)

    def function(x: Any, y: Any) -> Any:
        x, y = (x.astype("int32"), y.astype("int32")) if wide else (x, y)
        for step in steps:
            made = (x + y, x - y, x * y, fnp.maximum(x, y), fnp.minimum(x, y), x + x.dtype.type(constant))[step]
            x, y = y, made
        return (x == y, x < y, y.astype("bool"), fnp.maximum(x, y) == x)[reads]

    return function


def test_a_proof_of_integers_holds_for_every_byte() -> None:
    """Two programs that read sums of integers of two widths are proved equal only if no sum wraps."""
    verdicts = Counter[str]()
    byte = fx.Spec((), "uint8")
    for k in range(36):
        source = random.Random(k)
        pair = [of_bytes(random.Random(k + (k % 3 == 0) * j), source.random() < 0.5) for j in range(2)]
        found = fx.equal(*[fx.trace(f, byte, byte) for f in pair])
        left, right = [fx.interpret(fx.trace(f, *BYTES), *BYTES) for f in pair]
        same = np.array_equal(left, right)
        verdicts[type(found).__name__, same] += 1  # type: ignore[index]
        assert same or not isinstance(found, fx.Proof), f"{k}: {found}"
        assert not same or not isinstance(found, fx.Counterexample), f"{k}: {found}"
    assert verdicts["Proof", True] >= 5, verdicts  # type: ignore[index]
    assert verdicts["Counterexample", False] >= 10, verdicts  # type: ignore[index]
