"""`from_jax`: a translated function agrees with the function in value, gradient, Hessian-vector product and batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
from fxad.errors import ArgumentError, TranslationError
from tests.interop.jax_laws import agree, close, jax
from tests.laws.budget import share

from_jax = pytest.importorskip("fxad.interop.jax").from_jax
jnp, lax = jax.numpy, jax.lax
draw = np.random.default_rng(0)


def array(*shape: int, dtype: Any = np.float32, low: float = -2.0, high: float = 2.0) -> Any:
    return draw.uniform(low, high, shape).astype(dtype)


A, B = array(3, 4), array(3, 4)
POSITIVE, UNIT = array(3, 4, low=0.2, high=3.0), array(3, 4, low=-0.9, high=0.9)
V, W = array(4), array(4)
I32 = draw.integers(-5, 5, (3, 4)).astype(np.int32)
SQUARE = array(4, 4) + 4 * np.eye(4, dtype=np.float32)
SPD = (SQUARE @ SQUARE.T).astype(np.float32)
IMAGE, KERNEL = array(2, 6, 6, 3), array(3, 3, 3, 4)


class Case(NamedTuple):
    f: Callable[..., Any]
    args: tuple[Any, ...]
    orders: int = 2
    stack: bool = True


def unary(f: Callable[..., Any], x: Any = A) -> Case:
    return Case(f, (x,))


ELEMENTWISE = {
    **{f.__name__: unary(f) for f in (
        jnp.sin, jnp.cos, jnp.tanh, jnp.exp, jnp.expm1, jnp.square, jnp.sinh, jnp.cosh, jnp.tan, jnp.arctan,
        jnp.arcsinh, jnp.negative, jnp.abs, jnp.sign, jnp.floor, jnp.ceil, jnp.round, jnp.exp2, jnp.sinc,
    )},
    **{f.__name__: unary(f, POSITIVE) for f in (
        jnp.log, jnp.log1p, jnp.sqrt, jnp.cbrt, jnp.reciprocal, jnp.log2, jnp.log10,
    )},
    **{f.__name__: unary(f, UNIT) for f in (jnp.arcsin, jnp.arccos, jnp.arctanh)},
    **{f.__name__: Case(f, (A, B)) for f in (
        jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum, jnp.minimum, jnp.arctan2, jnp.hypot,
        jnp.logaddexp, jnp.copysign, jnp.fmod, jnp.remainder,
    )},
    "ldexp": Case(jnp.ldexp, (A, I32)),
    "frexp": unary(jnp.frexp),
    "nextafter": Case(jnp.nextafter, (A, B), 0),
    "arccosh": unary(jnp.arccosh, POSITIVE + 1),
    "power": Case(jnp.power, (POSITIVE, B)),
    "integer power": unary(lambda x: x**3),
    "power of an integer array": Case(lambda x, n: x**n, (POSITIVE, I32)),
    "rsqrt": unary(lax.rsqrt, POSITIVE),
    "logistic": unary(lax.logistic),
    "erf": unary(lax.erf), "erfc": unary(lax.erfc), "erf_inv": unary(lax.erf_inv, UNIT),
    "lgamma": unary(lax.lgamma, POSITIVE), "digamma": unary(lax.digamma, POSITIVE),
    "igamma": Case(lambda x: lax.igamma(POSITIVE, x), (POSITIVE,)),
    "igammac": Case(lambda x: lax.igammac(POSITIVE, x), (POSITIVE,)),
    "betainc": Case(lambda x: jax.scipy.special.betainc(POSITIVE, 2.0, x), (np.abs(UNIT),)),
    "bessel": unary(lambda x: lax.bessel_i0e(x) + lax.bessel_i1e(x)),
    "polygamma": Case(lambda x: jax.scipy.special.polygamma(1, x), (POSITIVE,), 0),
    "zeta": Case(lambda x: jax.scipy.special.zeta(x + 1.5, 2.0), (POSITIVE,), 0),
    "select": Case(lambda x, y: jnp.where(x > 0, y, x), (A, B)),
    "scalar select": Case(lambda x, y: jnp.where(x.sum() > 0, y, 1.0), (A, B)),
    "select_n": Case(lambda i, x, y: lax.select_n(i % 3, x, y, x * y), (np.abs(I32), A, B)),
    "clamp": Case(lambda x: lax.clamp(-1.0, x, 1.0), (A,)),
    "convert": Case(lambda x, i: x.astype(jnp.int32) + i.astype(jnp.float32) * x.astype(jnp.bfloat16), (A, I32)),
    "bits": Case(lambda x, i: (lax.bitcast_convert_type(x, jnp.int32) ^ i) & 255 | ~i, (A, I32)),
    "shifts": Case(lambda i: (i << 2, i >> 1, lax.shift_right_logical(i, jnp.int32(1))), (I32,)),
    "counts": Case(lambda i: (lax.population_count(i), lax.clz(i)), (I32,)),
    "integers": Case(lambda i: (i // 3, i % 3, -i, jnp.abs(i), jnp.sign(i), i * i), (I32,)),
    "comparisons": Case(lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y, jnp.isfinite(x)), (A, B)),
    "logic": Case(lambda x, y: jnp.logical_and(x > 0, y > 0) | ~(x > y) ^ (x < 1), (A, B)),
    "complex": Case(lambda x, y: jnp.abs(lax.complex(x, y) * jnp.conj(lax.complex(y, x)) + 1j), (A, B)),
    "complex parts": Case(lambda x, y: jnp.real(jnp.exp(x + 1j * y)) * jnp.angle(x + 2j), (A, B)),
    "reduce_precision": Case(lambda x: lax.reduce_precision(x, 8, 7), (A,), 0),
    "stop_gradient": unary(lambda x: x * lax.stop_gradient(x)),
    "total order": Case(lambda x: jnp.sort(x), (np.array([1.0, -0.0, 0.0, np.inf, -np.inf, -3], np.float32),), 0),
    "barrier": Case(lambda x, y: lax.optimization_barrier((x, y))[0] * 2.0, (A, B)),
    "bfloat16": Case(lambda x: (x.astype(jnp.bfloat16) * 3).astype(jnp.float32), (A,), 1),
    "literals": Case(lambda x: x + np.float32(2) + jnp.array([1.0, 2, 3, 4]) + 1, (A,)),
}  # fmt: skip

STRUCTURAL = {
    "broadcast": Case(lambda x, y: x[:, None] + y, (A, V)),
    "reshape": unary(lambda x: x.reshape(2, 6).T.ravel() ** 2),
    "transpose": unary(lambda x: jnp.moveaxis(x.reshape(3, 2, 2), 0, -1) ** 2),
    "fortran order": unary(lambda x: x.reshape(2, 6, order="F") ** 2),
    "squeeze": unary(lambda x: jnp.squeeze(x[:, None], 1) ** 2),
    "concatenate": Case(lambda x, y: jnp.concatenate([x, y * x], 1), (A, B)),
    "stack": Case(lambda x, y: jnp.stack([x, y], 1).sum(0) * x.sum(), (A, B)),
    "split": unary(lambda x: [a * b for a, b in zip(*[iter(jnp.split(x, 4, 1))] * 2, strict=False)]),
    "unstack": unary(lambda x: sum(k * r**2 for k, r in enumerate(jnp.unstack(x, axis=1)))),
    "tile": unary(lambda x: jnp.tile(x, (2, 2)) ** 2),
    "repeat": unary(lambda x: jnp.repeat(x, 2, axis=1) ** 2),
    "pad": unary(lambda x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=2.0) ** 2),
    "pad modes": unary(lambda x: jnp.pad(x, 1, mode="reflect") * jnp.pad(x, 1, mode="edge")),
    "negative pad": unary(lambda x: lax.pad(x, 0.0, ((-1, 1, 1), (0, 0, 0))) ** 2),
    "slice": unary(lambda x: x[1:, ::2] ** 2),
    "flip": unary(lambda x: x[::-1] * jnp.roll(x, 1, 1)),
    "static index": unary(lambda x: x[-1, 2] * x[0]),
    "index arrays": Case(lambda x, i: x[i[0] % 3, i[1] % 4] ** 2, (A, I32)),
    "take": Case(lambda x, i: jnp.take(x, i[0], axis=1) ** 2, (A, np.abs(I32) % 4)),
    "take out of range": Case(lambda x, i: jnp.take(x, i, axis=1), (A, np.array([0, 9], np.int32)), 0),
    "take_along_axis": Case(lambda x, i: jnp.take_along_axis(x, i % 3, 0) ** 2, (A, I32)),
    "boolean mask": unary(lambda x: x[np.array([True, False, True])] ** 2),
    "dynamic slice": Case(lambda x, i: lax.dynamic_slice(x, (i[0, 0] % 2, 1), (2, 2)) ** 2, (A, I32)),
    "dynamic update": Case(lambda x, y, i: lax.dynamic_update_slice(x, y[:2] ** 2, (i[0, 0] % 2, 0)), (A, B, I32)),
    "at set": Case(lambda x, y: x.at[1].set(y[0] ** 2).at[0, 1].set(0.0), (A, B)),
    "at add": Case(lambda x, i: x.at[i[0] % 3].add(2 * x[:, :1].T[0, 0] ** 2), (A, I32)),
    "at mul": Case(lambda x, y: x.at[np.array([0, 2])].multiply(y[:2], unique_indices=True), (A, B), 1),
    "at max": Case(lambda x, y: x.at[np.array([0, 2])].max(y[:2]), (A, B), 1, False),
    "at min": Case(lambda x, y: x.at[np.array([0, 2])].min(y[:2]), (A, B), 1, False),
    "sums": unary(lambda x: (x.sum(), (x**2).sum(0), x.mean(1), jnp.var(x), jnp.linalg.norm(x))),
    "products": unary(lambda x: x.prod(0)),
    "extrema": unary(lambda x: x.max(0) * x.min()),
    "logsumexp": unary(lambda x: jax.nn.logsumexp(x, axis=1)),
    "any and all": unary(lambda x: ((x > 0).any(0), (x > 0).all(), jnp.argmax(x, 1), jnp.argmin(x))),
    "cumulative": unary(lambda x: jnp.cumsum(x**2, 1) + jnp.cumprod(x, 0) + lax.cummax(x, 1)),
    "cumlogsumexp": unary(lambda x: lax.cumlogsumexp(x, 1, reverse=True) + lax.cummin(x, 0)),
    "reduce by a body": Case(
        lambda x: lax.reduce((x, x * x), (0.0, 0.0), lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])), (0,)), (A,), 0
    ),
    "windows": unary(lambda x: lax.reduce_window(x**2, 0.0, lax.add, (2, 2), (1, 2), "SAME")),
    "max pool": unary(lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 2), "VALID") ** 2),
    "min pool": unary(lambda x: lax.reduce_window(x, np.inf, lax.min, (2, 2), (1, 1), "SAME") ** 2),
    "window of a body": Case(
        lambda x: lax.reduce_window(x, 1.0, lambda a, b: a * b + 0.0, (2, 2), (1, 2), "VALID"), (A,), 0
    ),
    "sort": unary(lambda x: jnp.sort(x, 1) ** 2),
    "argsort": unary(lambda x: x[jnp.argsort(x[:, 0])] ** 2),
    "sort of pairs": Case(lambda i, x: lax.sort((i, x), num_keys=1, dimension=1)[1] ** 2, (I32, A), 1),
    "median": unary(lambda x: jnp.median(x, axis=1)),
    "top_k": unary(lambda x: lax.top_k(x, 2)[0] ** 2),
    "approximate top_k": Case(lambda x: lax.approx_max_k(x, 4), (array(1, 4),), 0, False),
    "dot": Case(lambda x, y: x @ y.T, (A, B)),
    "matrix and vector": Case(lambda x, v: jnp.tanh(x @ v) @ x, (A, V)),
    "einsum": Case(lambda x, y: jnp.einsum("ij,kj->ik", x, y) + jnp.einsum("ij,ij->", x, y), (A, B)),
    "batched dot": Case(lambda x, y: jnp.einsum("bij,bjk->bik", x[None], y.T[None]), (A, B)),
    "preferred dtype": Case(
        lambda x, y: lax.dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16).T, preferred_element_type=jnp.float32),
        (A, B), 1,
    ),
    "ragged dot": Case(
        lambda x, y: lax.ragged_dot(x.reshape(6, 2), jnp.stack([y[:2], x[:2] * 2, y[1:]]), np.array([2, 0, 3])),
        (A, B), 1, False,
    ),
    "gradients of ragged dots": Case(
        lambda x, y: jax.grad(lambda r, s: (lax.ragged_dot(r, s, np.array([2, 1])) ** 2).sum(), (0, 1))(
            x, jnp.stack([y.T, -y.T])
        ), (A, B), 0, False,
    ),
    "integer dot": Case(lambda i: i @ i.T, (I32,)),
    "convolution": Case(
        lambda x, k: lax.conv_general_dilated(x, k, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        (IMAGE, KERNEL), 1,
    ),
    "grouped convolution": Case(
        lambda x: lax.conv_general_dilated(
            x, np.ones((3, 3, 1, 6), np.float32), (1, 1), ((1, 1), (0, 2)), (1, 2), (2, 1),
            ("NHWC", "HWIO", "NHWC"), feature_group_count=3,
        ) ** 2,
        (IMAGE,), 1,
    ),
    "fft": unary(lambda x: jnp.abs(jnp.fft.rfft(x**2)) + jnp.abs(jnp.fft.ifft2(x))[:, :3]),
    "irfft": unary(lambda x: jnp.fft.irfft(jnp.fft.rfft(x) ** 2)),
    "iota": Case(lambda x: x * jnp.arange(4) + jnp.eye(3, 4) + jnp.linspace(0, 1, 4), (A,)),
    "interp": unary(lambda x: jnp.interp(x, np.arange(5.0), np.arange(5.0) ** 2)),
    "histogram": Case(lambda x: jnp.histogram(x, bins=4, range=(-2, 2))[0], (A,), 0),
    "nonzero": Case(lambda x: x[jnp.nonzero(x > 0, size=4)], (A,)),
    "searchsorted": Case(lambda x: jnp.searchsorted(np.arange(-2.0, 2.0), x), (A,), 0),
    "segment_sum": Case(lambda x: jax.ops.segment_sum(x**2, np.array([0, 2, 0]), 3), (A,)),
    "one_hot": Case(lambda i: jax.nn.one_hot(i[0] % 4, 4), (I32,)),
    "cross": Case(lambda x, y: jnp.cross(x[:, :3], y[:, :3]), (A, B)),
    "kron": Case(lambda x, y: jnp.kron(x, y[:2, :2]), (A, B)),
    "triangles": unary(lambda x: jnp.tril(x) @ jnp.triu(x).T),
    "polyval": unary(lambda x: jnp.polyval(jnp.array([1.0, 2.0, 3.0]), x)),
}  # fmt: skip

nn = jax.nn
NN = {
    **{f.__name__: unary(f) for f in (
        nn.relu, nn.relu6, nn.sigmoid, nn.softplus, nn.silu, nn.log_sigmoid, nn.leaky_relu, nn.hard_sigmoid,
        nn.hard_tanh, nn.elu, nn.celu, nn.selu, nn.gelu, nn.glu, nn.softmax, nn.log_softmax, nn.standardize,
        nn.soft_sign, nn.mish, nn.squareplus,
    )},
    "exact gelu": unary(partial(nn.gelu, approximate=False)),
    "attention": Case(
        lambda q, k: nn.dot_product_attention(q, k, k * 2, is_causal=True), (array(1, 5, 2, 4), array(1, 5, 2, 4)), 1
    ),
}  # fmt: skip

LINALG = {
    "cholesky": unary(jnp.linalg.cholesky, SPD),
    "solve": Case(jnp.linalg.solve, (SQUARE, V)),
    "inv": unary(jnp.linalg.inv, SQUARE),
    "det": unary(jnp.linalg.det, SQUARE),
    "slogdet": unary(lambda a: jnp.linalg.slogdet(a)[1], SQUARE),
    "eigh": Case(lambda a: jnp.linalg.eigh(a)[0], (SPD,), 1),
    "eigenvectors": Case(lambda a: jnp.abs(jnp.linalg.eigh(a + jnp.diag(jnp.arange(4.0) * 5))[1]), (SPD,), 1),
    "qr": unary(lambda a: jnp.abs(jnp.linalg.qr(a)[1]), SQUARE),
    "pivoted qr": unary(lambda a: jnp.abs(jax.scipy.linalg.qr(a, pivoting=True)[1]), SQUARE),
    "tridiagonal form": Case(lambda a: lax.linalg.tridiagonal(a)[1], (SPD,), 0, False),
    "svd": Case(lambda a: jnp.linalg.svd(a)[1], (SQUARE,), 1),
    "singular values": Case(lambda a: jnp.linalg.svd(a, compute_uv=False), (SQUARE,), 1),
    "triangular": Case(lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), (SQUARE, V)),
    "cho_solve": Case(lambda a, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a @ a.T), b), (SQUARE, V)),
    "lu": Case(lambda a: jax.scipy.linalg.lu(a)[2], (SQUARE,), 1),
    "eig": Case(lambda a: jnp.abs(jnp.linalg.eigvals(a)).sum(), (SQUARE,), 0),
    "expm": Case(jax.scipy.linalg.expm, (SQUARE / 4,), 1),
    "pinv": Case(jnp.linalg.pinv, (SQUARE,), 1),
    "matrix_power": unary(lambda a: jnp.linalg.matrix_power(a, 3) / 100, SQUARE),
    "tridiagonal": Case(
        lambda d, b: lax.linalg.tridiagonal_solve(jnp.ones(4) * 0.1, d + 4, jnp.ones(4) * 0.1, b[:, None]), (V, W), 0
    ),
    "update of a factor": Case(
        lambda a, w: lax.linalg.cholesky_update(jnp.linalg.cholesky(a @ a.T).T, w), (SQUARE, V), 0, False
    ),
    "symmetric product": Case(
        lambda a, c: lax.linalg.symmetric_product(a, c, alpha=2.0, beta=0.5, symmetrize_output=True), (SQUARE, SPD), 0
    ),
}  # fmt: skip

FAMILIES = {"elementwise": ELEMENTWISE, "structural": STRUCTURAL, "nn": NN, "linalg": LINALG}
# Primitives with many parameters, and those that only some versions of JAX have. They come first, because they are
# compiled apart.
SMOKE = {
    "log2", "arcsin", "ldexp", "index arrays", "at add", "pad", "cumulative", "windows", "max pool", "sort of pairs",
    "top_k", "convolution", "ragged dot", "fft", "polyval", "searchsorted", "eigh", "svd", "lu", "triangular",
}  # fmt: skip
CASES = [
    pytest.param(c, id=f"{family}: {name}", marks=[pytest.mark.smoke] if smoke else [])
    for smoke in (True, False)
    for family, cs in FAMILIES.items()
    for name, c in cs.items()
    if (name in SMOKE) is smoke
]


@pytest.mark.parametrize("case", CASES)
def test_a_translated_function_is_the_function(case: Case) -> None:
    program = from_jax(case.f, *case.args)
    fx.typecheck(program.jaxpr)
    assert fx.text.parse(program.text()) is program.jaxpr
    agree(program, case.f, case.args, orders=case.orders, stack=case.stack)


def test_trees_go_in_and_come_out() -> None:
    def f(p: Any, *, scale: Any) -> Any:
        return {"y": p["w"] @ p["b"], "n": None, "t": (scale, [p["b"]])}

    tree = {"w": A, "b": V}
    program = from_jax(f, tree, scale=np.float32(2))
    close(program(tree, scale=np.float32(2)), f(tree, scale=np.float32(2)), "value")
    assert program.name == "f"
    assert program.paths == ("p['b']", "p['w']", "scale")


def test_arrays_that_are_closed_over_are_operands() -> None:
    held = jnp.asarray(A)
    program = from_jax(lambda x: x @ held.T, B)
    assert len(program.bound) == 1
    close(program(B), B @ A.T, "value")


def test_equations_have_the_users_lines() -> None:
    def f(x: Any) -> Any:
        return jnp.sum(jax.nn.softmax(x) * 2)

    lines = {fx.ir.source_location(e.source) for e in from_jax(f, A).jaxpr.eqns}
    assert {at.function for at in lines if at} == {"test_equations_have_the_users_lines.<locals>.f"}
    assert {at.file for at in lines if at} == {__file__}


def test_the_precision_of_products_is_kept() -> None:
    def f(x: Any, y: Any) -> Any:
        return jnp.dot(x, y.T, precision=lax.Precision.HIGHEST)

    agree(from_jax(f, A, B), f, (A, B))
    assert "highest" in from_jax(f, A, B).text()
    presets = lax.DotAlgorithmPreset
    for preset, dtype in ((presets.BF16_BF16_F32_X3, np.float32), (presets.F16_F16_F16, np.float16)):
        program = from_jax(
            lambda x, y, preset=preset: jnp.dot(x, y.T, precision=preset), A.astype(dtype), B.astype(dtype)
        )
        want = A.astype(dtype) @ B.astype(dtype).T
        found = fx.interpret(program, A.astype(dtype), B.astype(dtype))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, want, rtol=1e-4 if dtype == np.float32 else 1e-2)
    assert "bf16_x3" in from_jax(lambda x: jnp.dot(x, x.T, precision="BF16_BF16_F32_X3"), A.astype(np.float32)).text()
    own = lax.DotAlgorithm(np.float32, np.float32, np.float32)
    assert '"highest"' in from_jax(lambda x: jnp.dot(x, x.T, precision=own), A.astype(np.float32)).text()
    mixed = lax.DotAlgorithm(np.float16, np.float32, np.float32)
    with pytest.raises(fx.errors.ParameterError, match="there is no algorithm of float16, float32, float32 with 1"):
        from_jax(lambda x: jnp.dot(x, x.T, precision=mixed), A.astype(np.float32))


@pytest.mark.smoke
def test_one_minus_a_square_is_exact_where_the_square_is_near_1_or_0() -> None:
    if not hasattr(lax, "one_minus_square"):
        pytest.skip("from JAX 0.11 on")
    x = np.array([0.0, 1e-30, -0.5, 1 - 2**-24, -1.0, 3.0], np.float32)
    program = from_jax(lax.one_minus_square, x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(program(x), 1 - wide * wide, rtol=1e-6)
    np.testing.assert_allclose(fx.vmap(fx.grad(from_jax(lax.one_minus_square, x[0])))(x), -2 * x, rtol=1e-6)
    agree(program, lax.one_minus_square, (x,))
    n = np.arange(-2, 3, dtype=np.int32)
    np.testing.assert_array_equal(from_jax(lax.one_minus_square, n)(n), 1 - n * n)


# ------------------------------------------------------------------------------------------------ generated programs

# Functions of two arrays (3, 4) that return one, and are smooth at their operands.
STEPS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, y: jnp.sin(x) * y,
    lambda x, y: x + jnp.roll(y, 1, 0),
    lambda x, y: jax.nn.softmax(x, 1) - y,
    lambda x, y: x @ (y.T @ x) / 10,
    lambda x, y: jnp.concatenate([x[:, 2:], y[:, :2]], 1),
    lambda x, y: jnp.where(y[:1] > 0, x, y**2),
    lambda x, y: lax.scan(lambda c, r: (jnp.tanh(c + r), c * r), x[0], y)[1],
    lambda x, y: lax.cond(x[0, 0] > y[0, 0], jnp.cos, lambda a: a * y, x),
    lambda x, y: x.at[1].add(y[0] * x[2]),
    lambda x, y: jax.checkpoint(lambda a: jnp.tanh(a) * y)(x),
    lambda x, y: jax.vmap(lambda a, b: a * jnp.dot(a, b))(x, y),
    lambda x, y: jax.grad(lambda a: (jnp.exp(-(a**2)) * y).sum())(x),
    lambda x, y: jnp.cumsum(x, 1) - y.mean(0),
    lambda x, y: jax.jit(lambda a, b: jax.nn.silu(a) + b)(y, x),
    lambda x, y: jnp.take_along_axis(x, jnp.argsort(y, 1), 1),
    lambda x, y: jnp.einsum("ij,kj->ik", x, y) @ y,
    lambda x, y: jnp.log1p(jnp.abs(x) + 1) + jax.nn.logsumexp(y, 1, keepdims=True),
)


@pytest.mark.law
def test_generated_programs() -> None:
    pick = st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 3), st.integers(0, 3))

    @share(5)
    @given(st.lists(pick, min_size=1, max_size=4))
    def law(steps: list[tuple[int, int, int]]) -> None:
        def f(x: Any, y: Any) -> Any:
            values = [x, y]
            for k, a, b in steps:
                values.append(jnp.tanh(STEPS[k](values[-1 - a % len(values)], values[-1 - b % len(values)])))
            return values[-1]

        agree(from_jax(f, A, B), f, (A, B))

    law()


def test_closed_over_tracers_and_references_are_refused() -> None:
    def inside(x: Any) -> Any:
        with pytest.raises(TranslationError) as e:
            from_jax(lambda y: y * x, 1.0)
        assert e.value.message.startswith("from_jax: the function closes over ")
        assert e.value.message.endswith(", which a transformation of JAX is tracing")
        assert e.value.remedy == "pass it as an argument, or call from_jax outside jit, grad and vmap of JAX"
        return x

    jax.jit(inside)(1.0)
    ref = jax.new_ref(jnp.ones(2))
    with pytest.raises(TranslationError) as e:
        from_jax(lambda y: y * ref[...], 1.0)
    assert "which changes in place" in e.value.message
    assert e.value.remedy == "a program of fxad is pure: pass the array, and return the new one"


def test_symbolic_sizes_are_refused() -> None:
    with pytest.raises(ArgumentError) as e:
        from_jax(lambda y: y, fx.Spec("(n, 3)"))
    assert e.value.message == "from_jax: f32[n,3] has sizes that are not numbers"
    assert e.value.remedy == "translate for the sizes that are needed"
