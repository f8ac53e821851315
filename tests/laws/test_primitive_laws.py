"""Every primitive, at generated applications: types, text, meaning against lowering, derivative, adjoint, batching."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fxad.ir import Linear, Primitive
from fxad.primitives import ALL
from fxad.primitives.collectives import COLLECTIVES
from fxad.testing import (
    Application,
    calls,
    check_batch,
    check_batched_linear,
    check_jvp,
    check_lowering,
    check_text,
    check_transpose,
    check_types,
)
from tests.laws.budget import share

# tests/spmd has the laws of collectives: a map has to bind their axes
BOUND = [k for k in ALL if k not in COLLECTIVES]
every = pytest.mark.parametrize("kind", BOUND, ids=lambda kind: kind.name)
linear = pytest.mark.parametrize("kind", [k for k in BOUND if issubclass(k, Linear)], ids=lambda kind: kind.name)


@every
def test_types(kind: type[Primitive]) -> None:
    @share(3)
    @given(calls(kind))
    def law(application: Application) -> None:
        check_types(application)
        check_text(application)

    law()


@every
def test_lowering(kind: type[Primitive]) -> None:
    @share(8)
    @given(calls(kind))
    def law(application: Application) -> None:
        check_lowering(application)

    law()


@every
def test_jvp(kind: type[Primitive]) -> None:
    @share(3)
    @given(calls(kind, smooth=True), st.integers(0, 9))
    def law(application: Application, seed: int) -> None:
        check_jvp(application, seed)

    law()


@linear
def test_transpose(kind: type[Primitive]) -> None:
    @share(2)
    @given(calls(kind, smooth=True))
    def law(application: Application) -> None:
        check_transpose(application)

    law()


@every
def test_batch(kind: type[Primitive]) -> None:
    @share(2)
    @given(calls(kind))
    def law(application: Application) -> None:
        check_batch(application)

    law()


@linear
def test_batched_linear(kind: type[Primitive]) -> None:
    @share(2)
    @given(calls(kind, smooth=True))
    def law(application: Application) -> None:
        check_batched_linear(application)

    law()
