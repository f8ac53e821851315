"""Log-determinants of inverse rules equal those of the dense Jacobian."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.core.interpreter import run
from fxad.errors import NotInvertibleError
from fxad.ir import Aval, HigherOrder, NDArray, Primitive
from fxad.primitives import ALL
from fxad.primitives.elementwise import (
    ACOS,
    ACOSH,
    ASIN,
    ATAN,
    ERF,
    ERF_INV,
    ERFC,
    EXP,
    EXP2,
    EXPM1,
    LOG,
    LOG1P,
    LOGISTIC,
    LOGIT,
    SINH,
    TANH,
    IntegerPow,
)
from fxad.testing import calls
from fxad.testing.applications import Application
from fxad.transforms.inversion.rules import INVERSE_RULES, REASONS
from fxad.transforms.inversion.rules.contract import Refused
from tests.invertible.rules import backward, jacobian, log_det, near
from tests.laws.budget import share

MEASURED = [
    c
    for c in ALL
    if c in INVERSE_RULES.rows
    and c not in REASONS
    and not issubclass(c, HigherOrder)
    and INVERSE_RULES.rows[c].log_det is not None
]
LARGEST = 24


@pytest.mark.parametrize("kind", MEASURED, ids=lambda c: c.name)
def test_log_dets_are_those_of_the_dense_jacobian(kind: type[Primitive]) -> None:
    """For each set of operands that the rule determines completely and for which the Jacobian is square."""
    counted = 0

    @settings(share(1), suppress_health_check=list(HealthCheck))
    @given(calls(kind, smooth=True))
    def law(application: Application) -> None:
        nonlocal counted
        args, program = application.args, application.program
        live = [a.inexact for a in application.avals]
        outs = run(program, args)
        for unknown in product(*[(False, True) if k else (False,) for k in live]):
            if not any(unknown) or sum([a.size for a, u in zip(args, unknown, strict=True) if u]) > LARGEST:
                continue
            found = backward(application.prim, application.avals, unknown)
            if (
                isinstance(found, Refused)
                or found.solved != unknown
                or any([window is not None for window in found.windows])
                or kind.name in PARTLY | OTHERS
            ):
                continue
            dense = jacobian(program, args, unknown)
            if dense.shape[0] != dense.shape[1]:
                continue
            measure = log_det(application.prim, application.avals, unknown)
            assert measure is not None
            want = float(np.linalg.slogdet(dense)[1])
            have = float(run(measure, [*args, *outs])[0])
            np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-9, err_msg=f"{application}\nunknown {unknown}")
            counted += 1

    law()
    assert counted or kind.name in OTHERS | PARTLY


# These determine parts of an operand. The solver combines the parts, without a change of volume.
PARTLY = {"real", "imag", "select_n", "gather", "scatter", "dynamic_slice", "slice", "index", "dynamic_update_slice"}
# These have no derivative, or (stop_gradient) a derivative of zero; products need a known matrix.
OTHERS = {"not", "xor", "eq", "ne", "reduce_and", "reduce_or", "reduce_xor", "dot_general", "stop_gradient"}


@pytest.mark.parametrize(
    ("prim", "x", "want"),
    [
        (TANH, 20.0, 2 * (np.log(2) - 20)),
        (LOGISTIC, -80.0, -80.0),
        (LOGISTIC, 80.0, -80.0),
        (LOGIT, 1e-30, 30 * np.log(10)),
        (EXP, -80.0, -80.0),
        (EXP2, 100.0, 100 * np.log(2) + np.log(np.log(2))),
        (EXPM1, -50.0, -50.0),
        (ERF, 8.0, np.log(2 / np.sqrt(np.pi)) - 64),
        (SINH, 80.0, 80 - np.log(2)),
        (LOG, 1e-30, 30 * np.log(10)),
    ],
    ids=str,
)
def test_log_dets_are_accurate_at_the_ends_of_the_domain(prim: Primitive, x: float, want: float) -> None:
    """In float32, where log
    f'(x)
     computed from f'(x) itself would be infinite or lose its digits.
    """
    arg = np.asarray(x, np.float32)
    aval = type_of(arg)
    measure = log_det(prim, [aval], (True,))
    assert measure is not None
    (y,) = prim.impl(arg)
    near(run(measure, [arg, y])[0], want, rtol=1e-6)


def type_of(x: NDArray) -> Aval:
    return Aval(x.shape, x.dtype)


@pytest.mark.parametrize(
    ("prim", "results"),
    [
        (TANH, [1.0, -1.0, 1.5]),
        (LOGISTIC, [0.0, 1.0, -0.5, 1.5]),
        (EXP, [0.0, np.inf, -1.0]),
        (EXP2, [0.0, np.inf, -1.0]),
        (EXPM1, [-1.0, np.inf, -2.0]),
        (ERF, [1.0, -1.0, 2.0]),
        (ERFC, [0.0, 2.0, -1.0, 3.0]),
        (ASIN, [1.6, -1.6]),
        (ACOS, [3.2, -0.1]),
        (ATAN, [np.float32(np.pi / 2), -np.float32(np.pi / 2), 1.6]),
        (ACOSH, [-0.5]),
        (SINH, [np.inf, -np.inf]),
        (IntegerPow(3), [np.inf]),
        (IntegerPow(-3), [0.0]),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_results_outside_of_the_range_give_nan(prim: Primitive, results: list[float], dtype: str) -> None:
    """Saturated results, infinite ones, and results outside of the range."""
    y = np.asarray(results, dtypes.as_dtype(dtype))
    found = backward(prim, [type_of(y)], (True,))
    assert not isinstance(found, Refused)
    (x,) = run(found.program, [y])
    assert np.isnan(x.astype(np.float64)).all(), x


@pytest.mark.parametrize(
    ("prim", "args"), [(LOG, [0.0, np.inf]), (LOG1P, [-1.0, np.inf]), (ERF_INV, [-1.0, 1.0])], ids=str
)
def test_infinite_results_that_are_exact_determine_their_operand(prim: Primitive, args: list[float]) -> None:
    x = np.asarray(args, np.float32)
    found = backward(prim, [type_of(x)], (True,))
    assert not isinstance(found, Refused)
    np.testing.assert_array_equal(run(found.program, prim.impl(x))[0], x)


def test_the_dtype_of_a_log_det_is_real() -> None:
    for dtype, real in (("float16", "float16"), ("complex64", "float32"), ("complex128", "float64")):
        _, log_det = fx.inverse(lambda x: 3 * x, log_det=True)(np.ones(2, dtype))
        assert str(log_det.dtype) == real
        want = (4 if dtype[0] == "c" else 2) * np.log(3.0)
        np.testing.assert_allclose(float(log_det), want, rtol=2 * float(np.finfo(real).eps))


def test_a_conversion_whose_jacobian_is_not_square() -> None:
    def f(x: Any) -> Any:
        return fx.jit(lambda x: fnp.sinh(x).astype("complex128") * 2.0)(x)

    program = fx.trace(f, np.array([0.5, -1.0]))
    np.testing.assert_allclose(fx.inverse(program)(np.sinh([0.5, -1.0]) * (2.0 + 0j)), [0.5, -1.0])
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(program, log_det=True)
    assert e.value.message == (
        "inverse: log_det of f: convert_element_type is not inverted: its Jacobian is 4 x 2, which has no determinant"
    )
    assert (e.value.equation, e.value.inside) == ("%1:c128[2] = convert_element_type %0:f64[2]", ("call of <lambda>",))
    assert e.value.remedy == "ask for the arguments alone, and add the log-determinant by hand"


def test_complex_numbers_are_pairs_and_integers_are_none() -> None:
    def f(x: Any, y: Any, k: Any) -> Any:
        return lax.complex(x * 3.0, y) * fnp.where(k > 0, 2.0, 1.0), k + 1

    program = fx.trace(f, np.array([0.5, -1.0]), np.ones(2), np.array([1, -1]))
    result = np.array([3 + 2j, -3 + 1j]), np.array([2, 0])
    (x, _, k), log_det = fx.inverse(program, ("x", "y", "k"), log_det=True)(result)
    np.testing.assert_allclose(x, [0.5, -1.0])
    np.testing.assert_array_equal(k, [1, -1])
    assert float(log_det) == pytest.approx(2 * np.log(3) + 2 * np.log(2))


@pytest.mark.parametrize(
    "power",
    [lambda x: x**1, lambda x: x**1.0, lambda x: lax.pow(x, 1.0), lambda x: lax.integer_pow(x, 1)],
    ids=["int", "float", "pow", "integer_pow"],
)
def test_the_power_one_at_zero_and_infinity(power: Any) -> None:
    """The derivative is 1 everywhere: no 0 * log 0."""
    x, log_det = fx.inverse(power, log_det=True)(np.array([0.0, 2.0, np.inf]))
    np.testing.assert_array_equal(x[:2], [0.0, 2.0])
    assert float(log_det) == 0.0


def test_powers_at_zero() -> None:
    """A negative power is infinite at 0, and where it overflows: this operand is nan."""
    for power, want in ((3, -np.inf), (-1, np.nan), (3.0, -np.inf), (-3.0, np.nan)):
        program = fx.trace(lambda x, power=power: x**power, np.ones(2))
        _, log_det = fx.inverse(program, log_det=True)(np.array([0.0 if want < 0 else np.inf, 8.0]))
        np.testing.assert_equal(float(log_det), want)
