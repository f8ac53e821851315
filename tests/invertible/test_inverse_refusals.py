"""Reasons why equations are not inverted. Every primitive has an inverse rule or a reason."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Aval, HigherOrder, Hole, Lit, Primitive
from fxad.primitives import ALL
from fxad.primitives.cumulative import CumLogSumExp, CumProd, CumSum, LinearRecurrence
from fxad.primitives.dimension_numbers import GatherScatterMode
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise import (
    ADD,
    DIV,
    EQ,
    EXP,
    LOGISTIC,
    MUL,
    NE,
    POW,
    SELECT_N,
    SUB,
    TANH,
    XOR,
    ConvertElementType,
    IntegerPow,
)
from fxad.primitives.fft import Fft
from fxad.primitives.gather_scatter import Scatter, ScatterAdd, ScatterMul
from fxad.primitives.linalg.cholesky import Cholesky
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.lu import Lu
from fxad.primitives.linalg.qr import Qr
from fxad.primitives.linalg.schur import Schur
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.shape import BroadcastInDim, ReduceSum
from fxad.primitives.slicing import Pad
from fxad.testing import calls
from fxad.testing.applications import Application
from fxad.transforms.inversion.rules import INVERSE_RULES, REASONS
from fxad.transforms.inversion.rules.contract import Refused
from tests.invertible.rules import Backwards, backward


def test_every_primitive_has_a_rule_or_a_reason() -> None:
    without = [c.name for c in ALL if c not in INVERSE_RULES.rows and not issubclass(c, HigherOrder)]
    assert without == []
    assert all(c in INVERSE_RULES.rows for c in REASONS)


@pytest.mark.parametrize("kind", REASONS, ids=lambda c: c.name)
def test_the_reason_of_each_primitive_without_a_rule(kind: type[Primitive]) -> None:
    """Every application of the primitive has this reason. It completes the sentence "... is not inverted: "."""

    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
    @given(calls(kind))
    def law(application: Application) -> None:
        found = backward(application.prim, application.avals, (True,) * len(application.args))
        assert found == Refused(REASONS[kind])

    law()
    assert REASONS[kind][0].islower()
    assert not REASONS[kind].endswith(".")


F32, I32, C64, F8, BOOL = [Aval((3,), d) for d in ("f32", "i32", "c64", "f8e5m2", "bool")]
M = Aval((3, 3), "f32")
BOTH = "both operands are unknown"
WRAP = "integers wrap and lose remainders: different int32 operands have the same result"
COARSE = "float8_e5m2 has too few digits for values to come back"
PERIODIC = "complex numbers a period apart have the same value"
NO_RULE = "it has no inverse rule"
DECOMPOSITIONS = (Cholesky(), Lu(), Qr(False), Eigh(True, True), Schur(True), Svd(True, False))
CLIP: GatherScatterMode = "clip"
NUMBERS = ((), (0,), (), (), (0,), CLIP, False, False)


@pytest.mark.parametrize(
    ("prim", "avals", "unknown", "reason"),
    [
        (ADD, (F32, F32), (True, True), BOTH),
        (SUB, (F32, F32), (True, True), BOTH),
        (MUL, (F32, F32), (True, True), BOTH),
        (DIV, (F32, F32), (True, True), BOTH),
        (POW, (F32, F32), (True, True), BOTH),
        (XOR, (I32, I32), (True, True), BOTH),
        (MUL, (I32, I32), (True, False), WRAP),
        (DIV, (I32, I32), (True, False), WRAP),
        (POW, (I32, I32), (True, False), WRAP),
        (IntegerPow(3), (I32,), (True,), WRAP),
        (ADD, (F8, F8), (True, False), COARSE),
        (SUB, (F8, F8), (True, False), COARSE),
        (MUL, (F8, F8), (True, False), COARSE),
        (TANH, (F8,), (True,), COARSE),
        (IntegerPow(0), (F32,), (True,), "the power 0 is 1, whatever the base"),
        (IntegerPow(-4), (F32,), (True,), "x and -x have the same power -4"),
        (IntegerPow(3), (C64,), (True,), "complex numbers have 3 roots"),
        (POW, (C64, C64), (True, False), "complex numbers have many roots and logarithms"),
        (
            POW,
            (F32, F32),
            (True, False),
            "the exponent is known only when the program runs, and x and -x have the same even powers",
        ),
        (EXP, (C64,), (True,), PERIODIC),
        (LOGISTIC, (C64,), (True,), PERIODIC),
        (
            SELECT_N,
            (F32.with_dtype("bool"), F32, F32),
            (True, False, False),
            "the result does not say which case was chosen",
        ),
        (
            ConvertElementType(dtypes.float16),
            (F32,),
            (True,),
            "float16 does not hold every value of float32: different ones become the same",
        ),
        (
            ConvertElementType(dtypes.float64),
            (F32.with_dtype("i32"),),
            (True,),
            "an integer or a bool cannot say that the number it comes back from is lost, as nan does",
        ),
        (EQ, (I32, I32), (True, False), "a truth value says less than its operands"),
        (NE, (BOOL, BOOL), (True, True), BOTH),
        (ReduceSum((0,)), (F32,), (True,), "it makes one element of several"),
        (BroadcastInDim((0, 3), (1,)), (F32,), (True,), "the result has no element to read it from"),
        (
            Pad((0,), (0,), (0,)),
            (F32, Aval((), "f32")),
            (True, True),
            "operand 1: the result has no element to read it from",
        ),
        (Fft("FFT", (3,)), (C64,), (True,), NO_RULE),
        (LinearRecurrence(0, False), (F32, F32), (False, True), NO_RULE),
        *[(kind(0, False), (F32,), (True,), NO_RULE) for kind in (CumSum, CumProd, CumLogSumExp)],
        (DotGeneral((0,), (0,), (), (), None), (F32, F32), (False, True), "the matrix is not square"),
        (DotGeneral((1,), (0,), (), (), None), (M, M), (True, True), BOTH),
        (TriangularSolve(True, True, False, False, False), (M, M), (True, True), "its matrix is unknown"),
        *[(prim, (M,), (True,), NO_RULE) for prim in DECOMPOSITIONS],
        *[
            (kind(*NUMBERS), (F32, Aval((2, 1), "i32"), Aval((2,), "f32")), (True, False, False), NO_RULE)
            for kind in (ScatterAdd, ScatterMul)
        ],
        (
            Scatter(*NUMBERS),
            (F32, Aval((2, 1), "i32"), Aval((2,), "f32")),
            (True, False, True),
            "updates that meet or are left out are lost",
        ),
    ],
)
def test_refusals(prim: Primitive, avals: tuple[Aval, ...], unknown: tuple[bool, ...], reason: str) -> None:
    assert backward(prim, avals, unknown) == Refused(reason)


@pytest.mark.parametrize(
    ("power", "reason"),
    [
        (0.0, "the power 0 is 1, whatever the base"),
        (2.0, "x and -x have the same power 2"),
        (np.inf, "different bases have the same power inf"),
        (-np.inf, "different bases have the same power -inf"),
        (np.nan, "different bases have the same power nan"),
    ],
)
def test_powers_that_are_literals(power: float, reason: str) -> None:
    b = Backwards()
    y = b.input(F32)
    found = INVERSE_RULES.rows[type(POW)].solve(b, POW, (Hole(F32), Lit.of(power, F32)), (y,))
    assert found == Refused(reason)


@pytest.mark.parametrize("narrow", dtypes.ALL, ids=dtypes.short)
@pytest.mark.parametrize("wide", dtypes.ALL, ids=dtypes.short)
def test_conversions_that_preserve_values_have_an_inverse(narrow: DType, wide: DType) -> None:
    """A conversion has an inverse exactly if every value is preserved, tested for all values of 16 bits or less. A
    conversion from integers to floats has none, because integers have no nan for lost values."""
    found = backward(ConvertElementType(wide), (Aval((1,), narrow),), (True,))
    if wide in dtypes.INEXACT and narrow not in dtypes.INEXACT:
        assert isinstance(found, Refused)
        return
    if narrow.itemsize > 2 and not isinstance(found, Refused):
        assert wide.itemsize >= narrow.itemsize
        return
    if narrow.itemsize > 2:
        return
    codes = np.arange(1 << 8 * narrow.itemsize, dtype=np.uint16).astype(f"u{narrow.itemsize}")
    values = codes[:2].astype(np.bool_) if narrow == dtypes.bool_ else codes.view(narrow)
    (there,) = ConvertElementType(wide).impl(values)
    (back,) = ConvertElementType(narrow).impl(there)
    with np.errstate(invalid="ignore"):
        was, now = values.astype(np.float64), back.astype(np.float64)
        same = bool(np.all((now == was) | (np.isnan(now) & np.isnan(was))))
    assert same is not isinstance(found, Refused)
