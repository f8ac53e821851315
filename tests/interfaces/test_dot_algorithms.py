"""`precision=` of products as an algorithm: against NumPy, under transformations, and its refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import DTypeError, ParameterError

PRESETS = lax.DotAlgorithmPreset
A = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)
B = np.random.default_rng(1).normal(size=(40, 5)).astype(np.float32)
EXACT = A.astype(np.float64) @ B


def truncated(x: Any, bits: int) -> Any:
    """Float32 rounded to a mantissa of `bits` bits."""
    if bits == 7:
        return x.astype(ml_dtypes.bfloat16).astype(np.float64)
    scale = np.exp2(np.floor(np.log2(np.abs(x))) - bits).astype(np.float64)
    return np.round(x / scale) * scale


@pytest.mark.parametrize(
    ("name", "bits", "parts"),
    [
        ("BF16_BF16_F32", 7, 1), ("BF16_BF16_F32_X3", 7, 2), ("BF16_BF16_F32_X6", 7, 3), ("BF16_BF16_F32_X9", 7, 3),
        ("TF32_TF32_F32", 10, 1), ("TF32_TF32_F32_X3", 10, 2),
    ],
)  # fmt: skip
def test_products_of_parts(name: str, bits: int, parts: int) -> None:
    program = fx.trace(lambda x, y: fnp.matmul(x, y, precision=name), A, B)
    left, right = truncated(A, bits), truncated(B, bits)
    want = left @ right if parts == 1 else EXACT
    tol = 3e-6 if parts != 2 else 1e-4
    for found in (fx.interpret(program, A, B), fx.lower(program).compile()(A, B)):
        np.testing.assert_allclose(found, want, rtol=0, atol=tol)
    assert parts > 1 or np.abs(want - EXACT).max() > 1e-3
    slope = fx.trace(fx.grad(lambda x, y: fnp.sum(fnp.matmul(x, y, precision=name))), A, B)
    found = fx.interpret(slope, A, B)
    np.testing.assert_allclose(found[0], (right if parts == 1 else B).sum(1), atol=tol)
    over: Any = fx.vmap(program, in_axes=(0, None))
    stack = np.stack([A, 2 * A])
    np.testing.assert_allclose(fx.interpret(fx.trace(over, stack, B), stack, B)[1], 2 * want, atol=2 * tol)
    infinite = np.array([[np.inf, 1]], np.float32)
    assert lax.dot(infinite, infinite.T, precision=name).item() == np.inf


CASES: list[tuple[str, str, str, str | None, str]] = [  # operands, converted to, result
    ("F16_F16_F16", "float32", "float16", None, "float32"), ("F16_F16_F32", "float16", "float16", "float32", "float32"),
    ("F16_F16_F32", "float16", "float16", None, "float16"), ("BF16_BF16_BF16", "float64", "bfloat16", None, "float64"),
    ("BF16_BF16_F32", "float16", "bfloat16", None, "float16"), ("F32_F32_F32", "float16", "float32", None, "float16"),
    ("F64_F64_F64", "float32", "float64", None, "float32"), ("F64_F64_F64", "float32", "float64", "float64", "float64"),
    ("ANY_F8_ANY_F8_F32", "float8_e5m2", "float8_e5m2", "float32", "float32"),
    ("ANY_F8_ANY_F8_F32_FAST_ACCUM", "float8_e4m3fn", "float8_e4m3fn", None, "float8_e4m3fn"),
    ("ANY_F8_ANY_F8_ANY", "float8_e5m2", "float8_e5m2", "float16", "float16"),
    ("DEFAULT", "float32", "float32", None, "float32"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "used", "preferred", "result"), CASES)
def test_conversions(name: str, given: str, used: str, preferred: str | None, result: str) -> None:
    x, y = fnp.asarray(A).astype(given), fnp.asarray(B).astype(given)
    program = fx.trace(
        lambda x, y: lax.dot(x, y, precision=getattr(PRESETS, name), preferred_element_type=preferred), x, y
    )
    (eqn,) = [e for e in program.jaxpr.eqns if e.prim.name == "dot_general"]
    assert [a.aval.dtype.name for a in eqn.ins] == [used, used]
    found = fnp.asarray(fx.interpret(program, x, y))
    assert found.dtype.name == result
    rounded = [np.asarray(v.astype(used).astype("float64")) for v in (x, y)]
    want = (rounded[0] @ rounded[1]).astype(np.float32)
    tol = {"float8_e5m2": 0.3, "float8_e4m3fn": 0.2, "bfloat16": 0.02, "float16": 3e-3}.get(result, 1e-6)
    tol = max(tol, {"BF16_BF16_BF16": 0.02, "F16_F16_F16": 3e-3}.get(name, 0))
    np.testing.assert_allclose(np.asarray(found.astype("float32")), want, rtol=tol, atol=tol)


def test_algorithms_by_their_types() -> None:
    algorithm = lax.DotAlgorithm(np.float16, np.float16, np.float32)
    x = fnp.asarray(A)
    one = fx.trace(lambda x: lax.dot(x, B, precision=algorithm), x)
    assert one.jaxpr is fx.trace(lambda x: lax.dot(x, B, precision="F16_F16_F32"), x).jaxpr
    numbers = (((1,), (0,)), ((), ()))
    three = lax.DotAlgorithm(fnp.bfloat16, fnp.bfloat16, np.float32, num_primitive_operations=3)
    text = fx.trace(lambda x: lax.dot_general(x, B, numbers, three), x).text()
    assert 'precision="bf16_x3"' in text


def test_refusals() -> None:
    mixed = lax.DotAlgorithm(np.float16, np.float32, np.float32)
    with pytest.raises(
        ParameterError, match="dot: there is no algorithm of float16, float32, float32 with 1 products"
    ) as e:
        lax.dot(A, B, precision=mixed)
    assert e.value.remedy == "use one of DotAlgorithmPreset"
    with pytest.raises(DTypeError, match="precision ANY_F8_ANY_F8_F32 takes float8 operands, got f32") as e2:
        lax.dot(A, B, precision="ANY_F8_ANY_F8_F32")
    assert e2.value.remedy == "convert the operands, or give another precision"
    with pytest.raises(DTypeError, match="precision F32_F32_F32 takes floating operands, got i32"):
        lax.dot(np.ones((2, 2), np.int32), np.ones((2, 2), np.int32), precision=PRESETS.F32_F32_F32)
    with pytest.raises(ParameterError, match="precision F32_F32_F32 is an algorithm of dot_general"):
        lax.conv(A[None, None], B[None, None], (1, 1), "SAME", precision=PRESETS.F32_F32_F32)
    prim = fx.trace(lambda x: lax.dot(x, B, precision="TF32_TF32_F32"), A).jaxpr.eqns[0].prim
    wide = fx.ir.Aval((40,), "float64")
    with pytest.raises(DTypeError, match="dot_general: precision 'tf32' is for float32, got f64"):
        prim.abstract_eval(wide.with_shape((3, 40)), wide.with_shape((40, 5)))
