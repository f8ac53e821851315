"""Every primitive has a strategy, and every rule of every primitive is exercised by the laws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings

from fxad.ir import Aval, Jaxpr, Linear, Primitive
from fxad.primitives import ALL
from fxad.primitives.collectives import COLLECTIVES
from fxad.primitives.cumulative import CumSum
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.top_k import TopK
from fxad.runtime import cache
from fxad.testing import SPECS, Application, calls, programs
from fxad.testing.primitive_laws import LAWS

DENSE = ("abstract_eval", "impl", "lower", "batch", "jvp")


def test_every_primitive_has_a_strategy() -> None:
    missing = [kind.__name__ for kind in ALL if kind not in SPECS]
    assert not missing, f"no strategy for {missing}: add one to fxad/testing/calls.py"


@pytest.mark.parametrize("kind", [k for k in ALL if k not in COLLECTIVES], ids=lambda kind: kind.name)
def test_every_rule_is_exercised(kind: type[Primitive], monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[str] = set()

    def record(name: str, rule: Callable[..., object]) -> Callable[..., object]:
        def recorded(*args: object) -> object:
            called.add(name)
            return rule(*args)

        return recorded

    rules = (*DENSE, "linear_in", "transpose") if issubclass(kind, Linear) else DENSE
    for name in rules:
        monkeypatch.setattr(kind, name, record(name, getattr(kind, name)))
    taken: set[Aval] = set()

    @settings(max_examples=8, derandomize=True, database=None, phases=[Phase.generate])
    @given(calls(kind, smooth=True))
    def laws(application: Application) -> None:
        taken.update(application.avals)
        if called >= {*rules}:
            return
        program = application.program  # a reference keeps the program alive; clearing its memo drops other results
        program._memo.clear()
        cache.clear()
        for law in LAWS:
            law(application)
        assert application.program is program

    laws()
    # without operands nothing is batched, and without floating ones nothing has a tangent
    unreachable = set() if any([a.inexact for a in taken]) else {"jvp", "transpose"}
    unreachable |= set() if taken else {"batch"}
    assert called >= {*rules} - unreachable, f"{kind.__name__}: never exercised: {sorted({*rules} - called)}"


@pytest.mark.parametrize("kind", [TopK, CumSum])
def test_drawn_operands_are_small(kind: type[Primitive]) -> None:
    """Some operands of these primitives have a long axis; it is bounded."""

    @settings(max_examples=200, derandomize=True, database=None, phases=[Phase.generate])
    @given(calls(kind))
    def law(application: Application) -> None:
        assert max([a.size for a in application.avals]) <= 20_000

    law()


@given(programs())
def test_no_program_returns_singular_vectors_or_eigenvectors(jaxpr: Jaxpr) -> None:
    """The signs of singular vectors and eigenvectors are a convention: NumPy and XLA differ, so no law may compare
    them."""
    vectors = {v for e in jaxpr.eqns if isinstance(e.prim, Eigh | Svd) for v in e.outs[1:]}
    assert vectors.isdisjoint(jaxpr.outs)
