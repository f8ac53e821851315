"""nn, further tests: every activation against jax's, masks, edges, attention, initialisers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import fxad as fx
import fxad.numpy as fnp
from fxad import nn, random
from fxad.errors import DTypeError, FxadError, ParameterError, ShapeError
from fxad.nn import initializers
from fxad.test_util import check_grads
from fxad.tracing.array import Array

RNG = np.random.default_rng(5)
POINTS = np.concatenate([np.linspace(-8, 8, 32), [-100.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 100.0]])
INF = np.inf

ACTIVATIONS = [
    "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity", "leaky_relu",
    "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_sign", "softplus", "sparse_plus",
    "squareplus", "swish", "tanh",
]  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_jax_s(name: str) -> None:
    jax = pytest.importorskip("jax")
    fn, peer = getattr(nn, name), getattr(jax.nn, name)
    with jax.enable_x64(True):
        want, slopes = jax.jit(lambda x: (peer(x), jax.grad(lambda v: peer(v).sum())(x)))(POINTS)
    have, found = fx.jit(lambda x: (fn(x), fx.grad(lambda v: fn(v).sum())(x)))(POINTS)
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.asarray(found), np.asarray(slopes), atol=1e-9)


# those that are the product of x with a function that is 0 at -inf
PRODUCTS = {"gelu", "hard_silu", "hard_swish", "mish", "silu", "swish"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"glu", "identity"}))
def test_activations_at_the_ends_of_the_range(name: str, dtype: str) -> None:
    """Values and slopes are finite for every finite operand; nan stays nan. Textbook forms overflow: x**3, x**2."""
    fn = getattr(nn, name)
    most = float(fnp.finfo(dtype).max)
    if name == "gelu" and dtype != "float16":
        most **= 0.3  # where the cube overflows, the slope is nan, as in JAX: a clamp takes a tenth longer
    x = fnp.asarray(np.array([most, 300.0, 40.0, 0.0, -0.0, -40.0, -300.0, -most]), dtype)
    value, slope = fx.jit(fx.vmap(fx.value_and_grad(fn)))(x)
    if name != "selu":  # 1.05 times the largest number overflows
        assert fnp.isfinite(value).all()
    assert fnp.isfinite(slope).all()
    assert fnp.isnan(fn(fnp.asarray(np.nan, dtype)))
    if name not in PRODUCTS:
        value, slope = fx.vmap(fx.value_and_grad(fn))(fnp.asarray([-np.inf, np.inf], dtype))
        assert not fnp.isnan(value).any()
        assert fnp.isfinite(slope).all()


def test_gelu_of_float16_has_the_slope_of_a_ramp() -> None:
    """The cube of 41 overflows in float16: the slope at 41 was nan."""
    x = fnp.asarray([-400.0, -41.0, 41.0, 400.0], "float16")
    assert np.asarray(fx.vmap(fx.grad(nn.gelu))(x)).tolist() == [0, 0, 1, 1]
    assert np.asarray(nn.gelu(fnp.asarray([-1e20, 1e20]))).tolist() == [0, fnp.float32(1e20)]


def test_gelu_and_squareplus_of_complex_numbers() -> None:
    z = np.array([1 + 2j, -3 + 1j, 0.2 - 0.3j])
    tanh = np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))
    np.testing.assert_allclose(np.asarray(nn.gelu(z)), z * (1 + tanh) / 2, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(nn.squareplus(z)), (z + np.sqrt(z * z + 4)) / 2)


def test_squareplus_of_large_numbers() -> None:
    np.testing.assert_allclose(np.asarray(nn.squareplus(fnp.asarray([-1e20, 1e20]))), [1e-20, 1e20], rtol=1e-6)
    assert float(nn.squareplus(fnp.asarray(300.0, "float16"))) == 300
    assert nn.squareplus(fnp.ones(2, "bfloat16")).dtype == fnp.bfloat16
    assert nn.squareplus(fnp.ones(2, "float32"), np.ones(2)).dtype == fnp.float64


def test_sparse_sigmoid_is_the_derivative_of_sparse_plus() -> None:
    slope = fx.grad(lambda x: nn.sparse_plus(x).sum())(fnp.asarray(POINTS))
    np.testing.assert_allclose(np.asarray(slope), np.asarray(nn.sparse_sigmoid(POINTS)))


def test_log1mexp() -> None:
    x = np.array([1e-12, 0.1, 0.6, 0.8, 50.0])
    want = np.where(x < 1, np.log(-np.expm1(-x)), np.log1p(-np.exp(-x)))
    np.testing.assert_allclose(np.asarray(nn.log1mexp(x)), want, rtol=1e-12)
    slope = np.asarray(fx.grad(lambda x: nn.log1mexp(x).sum())(fnp.asarray(x)))
    np.testing.assert_allclose(slope, 1 / np.expm1(x), rtol=1e-9)


def test_parameters_may_be_learnt_and_are_told_apart_by_bits() -> None:
    x = fnp.asarray(np.array([-2.0, 3.0]))
    slope = fx.grad(lambda a: nn.leaky_relu(x, a).sum())(fnp.asarray(np.float64(0.1)))
    assert float(slope) == -2.0
    signs = [np.signbit(np.asarray(nn.leaky_relu(-x, a)))[1] for a in (0.0, -0.0)]
    assert signs == [True, False]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_dtype_is_kept(dtype: str) -> None:
    x = fnp.asarray(np.linspace(-2, 2, 6, dtype=np.float32)).astype(dtype)
    for name in (*ACTIVATIONS, "softmax", "log_softmax", "logsumexp", "standardize"):
        assert getattr(nn, name)(x).dtype == x.dtype, name


def test_integers_are_computed_as_floats() -> None:
    assert nn.relu(np.array([-1, 2])).dtype == np.int64
    assert nn.softplus(np.array([-1, 2])).dtype == np.float32


# ------------------------------------------------------------------------------------------------------- normalisations

X = RNG.standard_normal((3, 4))
MASK = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]], bool)


@pytest.mark.parametrize("axis", [-1, 0, (0, 1)])
def test_masks(axis: int | tuple[int, ...]) -> None:
    with np.errstate(all="ignore"):
        want = np.where(MASK, sp.softmax(np.where(MASK, X, -INF), axis), 0)
        log_want = np.where(MASK, sp.log_softmax(np.where(MASK, X, -INF), axis), -INF)
    np.testing.assert_allclose(np.asarray(nn.softmax(X, axis, MASK)), np.nan_to_num(want), atol=1e-12)
    np.testing.assert_allclose(np.asarray(nn.log_softmax(X, axis, MASK)), log_want, atol=1e-12)
    np.testing.assert_allclose(
        np.asarray(nn.logsumexp(X, axis, where=MASK)), sp.logsumexp(np.where(MASK, X, -INF), axis), atol=1e-12
    )

    def loss(x: Array) -> Array:
        return (nn.softmax(x, axis, MASK) * X).sum() + fnp.where(MASK, nn.log_softmax(x, axis, MASK), 0).sum()

    assert np.isfinite(np.asarray(fx.grad(loss)(fnp.asarray(X)))).all()


EDGES: list[tuple[list[float], float, list[float]]] = [
    ([-INF, -INF], -INF, [0, 0]),
    ([-INF, 1.0], 1.0, [0, 1]),
    ([INF, 1.0], INF, [np.nan, 0]),
    ([np.nan, 1.0], np.nan, [np.nan, np.nan]),
]


@pytest.mark.parametrize(("x", "value", "slope"), EDGES)
def test_logsumexp_at_the_edges(x: list[float], value: float, slope: list[float]) -> None:
    at = fnp.asarray(np.array(x))
    np.testing.assert_array_equal(np.asarray(nn.logsumexp(at)), value)
    np.testing.assert_array_equal(np.asarray(fx.grad(lambda x: nn.logsumexp(x))(at)), slope)


def test_logsumexp_over_empty_axes() -> None:
    np.testing.assert_array_equal(np.asarray(nn.logsumexp(np.zeros((2, 0)), 1)), [-INF, -INF])


@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_weighted_logsumexp(axis: Any) -> None:
    b = RNG.standard_normal((3, 4))
    b[0, 0] = 0
    have, sign = nn.logsumexp(X, axis, b, return_sign=True)
    want, want_sign = sp.logsumexp(X, axis, b, return_sign=True)
    np.testing.assert_allclose(np.asarray(have), want, atol=1e-12)
    np.testing.assert_array_equal(np.asarray(sign), want_sign)
    np.testing.assert_allclose(np.asarray(nn.logsumexp(X, axis, np.abs(b))), sp.logsumexp(X, axis, np.abs(b)))
    values, signs = nn.logsumexp(X, axis, return_sign=True)
    np.testing.assert_array_equal(np.asarray(signs), np.ones(values.shape))
    negative = nn.logsumexp(X, axis, -np.abs(b))
    assert np.isnan(np.asarray(negative)).all()


def test_softmax_of_infinities() -> None:
    np.testing.assert_array_equal(np.asarray(nn.softmax(np.array([-INF, 1.0]))), [0, 1])
    assert np.isnan(np.asarray(nn.softmax(np.array([-INF, -INF])))).all()


def test_standardize() -> None:
    have: Any = np.asarray(nn.standardize(X))
    np.testing.assert_allclose(have, (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5))
    same: Any = np.asarray(nn.standardize(X, 0, mean=0.0, variance=1.0, epsilon=0.0))
    np.testing.assert_allclose(same, X)
    kept = np.array([True, True, False, True])
    part = X[:, kept]
    want: Any = (X - part.mean(1, keepdims=True)) / np.sqrt(part.var(1, keepdims=True) + 1e-5)
    masked: Any = np.asarray(nn.standardize(X, where=kept))
    np.testing.assert_allclose(masked, want)


def test_one_hot_of_small_integers() -> None:
    assert int(np.asarray(nn.one_hot(np.array([44], np.uint8), 300)).sum()) == 1


# ------------------------------------------------------------------------------------------------------------ attention

B, T, S, N, H = 2, 3, 5, 4, 6
Q = RNG.standard_normal((B, T, N, H))


def _reference(q: Any, k: Any, v: Any, allowed: Any = True, bias: Any = 0.0, scale: float = H**-0.5) -> Any:
    groups = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, groups, 2), np.repeat(v, groups, 2)
    scores = np.einsum("btnh,bsnh->bnts", q, k) * scale + bias
    weights = sp.softmax(np.where(allowed, scores, -1e300), -1)
    return np.einsum("bnts,bsnh->btnh", weights, v)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention(heads: int) -> None:
    k, v = RNG.standard_normal((2, B, S, heads, H))
    here, there = np.arange(T)[:, None], np.arange(S)
    bias, mask = RNG.standard_normal((1, N, T, S)), RNG.random((B, 1, T, S)) < 0.7
    lengths = np.array([2, 5], np.int32)
    behind = there < lengths[:, None, None, None]
    cases: list[tuple[dict[str, Any], Any]] = [
        ({}, _reference(Q, k, v)),
        ({"is_causal": True}, _reference(Q, k, v, here >= there)),
        ({"bias": bias, "mask": mask, "scale": 0.3}, _reference(Q, k, v, mask, bias, 0.3)),
        ({"key_value_seq_lengths": lengths}, _reference(Q, k, v, behind)),
        ({"local_window_size": (1, 0)}, _reference(Q, k, v, (here <= there + 1) & (here >= there))),
        ({"local_window_size": 1}, _reference(Q, k, v, abs(here - there) <= 1)),
    ]
    for options, want in cases:
        np.testing.assert_allclose(np.asarray(nn.dot_product_attention(Q, k, v, **options)), want, atol=1e-9)
    alone = nn.dot_product_attention(Q[0], k[0], v[0])
    np.testing.assert_allclose(np.asarray(alone), _reference(Q, k, v)[0], atol=1e-9)


def test_rows_of_padded_queries_are_zero_and_no_nan_comes_back() -> None:
    k, v = RNG.standard_normal((2, B, S, N, H))
    lengths = np.array([1, 3], np.int32)

    def attend(q: Array) -> Array:
        return nn.dot_product_attention(q, k, v, mask=np.zeros((1, 1, T, S), bool), query_seq_lengths=lengths)

    out = np.asarray(attend(fnp.asarray(Q)))
    assert not out[0, 1:].any()
    np.testing.assert_allclose(out[1], np.broadcast_to(v[1].mean(0), (T, N, H)), atol=1e-9)
    assert np.isfinite(np.asarray(fx.grad(lambda q: attend(q).sum())(fnp.asarray(Q)))).all()


def test_a_key_that_only_padded_queries_read_may_be_nan() -> None:
    k, v = RNG.standard_normal((2, 1, T, N, H))
    lengths = np.array([1], np.int32)
    spoilt_k, spoilt_v = k.copy(), v.copy()
    spoilt_k[0, -1] = spoilt_v[0, -1] = np.nan

    def attend(q: Array, k: Any, v: Any) -> Array:
        return nn.dot_product_attention(q, k, v, is_causal=True, query_seq_lengths=lengths)

    q = fnp.asarray(Q[:1])
    np.testing.assert_allclose(np.asarray(attend(q, spoilt_k, spoilt_v)), np.asarray(attend(q, k, v)), atol=1e-9)
    gradient = fx.grad(lambda q: attend(q, spoilt_k, spoilt_v).sum())(q)
    np.testing.assert_allclose(np.asarray(gradient), np.asarray(fx.grad(lambda q: attend(q, k, v).sum())(q)), atol=1e-9)


def test_attention_gives_the_logarithm_of_its_sums() -> None:
    k, v = RNG.standard_normal((2, B, S, 2, H))
    scores = np.einsum("btnh,bsnh->btns", Q, np.repeat(k, 2, 2)) * H**-0.5
    out, sums = nn.dot_product_attention(Q, k, v, return_residual=True)
    np.testing.assert_allclose(np.asarray(out), _reference(Q, k, v), atol=1e-9)
    np.testing.assert_allclose(np.asarray(sums), sp.logsumexp(scores, -1), atol=1e-9)
    mask = RNG.random((B, 1, T, S)) < 0.7
    mask[..., 0] = True
    _, sums = nn.dot_product_attention(Q, k, v, mask=mask, implementation="xla", return_residual=True)
    allowed = np.broadcast_to(mask.transpose(0, 2, 1, 3), scores.shape)
    np.testing.assert_allclose(np.asarray(sums), sp.logsumexp(scores, -1, b=allowed), atol=1e-9)
    alone = nn.dot_product_attention(Q[0], k[0], v[0], return_residual=True)
    assert [a.shape for a in alone] == [(T, N, H), (T, N)]
    check_grads(lambda q: nn.dot_product_attention(q, k, v, return_residual=True), (Q,), 1)
    with pytest.raises(ParameterError, match="dot_product_attention: implementation 'cudnn' does not exist"):
        nn.dot_product_attention(Q, k, v, implementation="cudnn")
    with pytest.raises(ParameterError, match=r"local_window_size \(-1, -1\) allows no key"):
        nn.dot_product_attention(Q, k, v, local_window_size=-1)


def test_attention_in_half_precision() -> None:
    half = Q.astype(np.float16)
    out = nn.dot_product_attention(half, half, half)
    assert out.dtype == np.float16
    np.testing.assert_allclose(np.asarray(out), _reference(Q, Q, Q), atol=1e-2)


# --------------------------------------------------------------------------------------------------------- initialisers

SCALED = ("glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal", "lecun_uniform")


def test_variance_scaling_is_jax_s() -> None:
    jax = pytest.importorskip("jax")
    key, shape = random.key(3), (3, 3, 4, 5)
    wanted = jax.jit(lambda k: [getattr(jax.nn.initializers, n)()(k, shape, np.float32) for n in SCALED])(
        np.asarray(key)
    )
    found = fx.jit(lambda k: [getattr(initializers, n)()(k, shape) for n in SCALED])(key)
    for name, have, want in zip(SCALED, found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-5, atol=1e-7, err_msg=name)


def test_variances() -> None:
    """The variance of n draws is off by its square root of 2 / n. Four of those would fail once in 15,000 runs."""
    key, shape = random.key(0), (40, 50, 60)
    n = 40 * 50 * 60
    modes = {"fan_in": 2000, "fan_out": 2400, "fan_avg": 2200, "fan_geo_avg": np.sqrt(2000 * 2400)}
    scaled = [
        (initializers.variance_scaling(3.0, mode, kind), 3 / fan)
        for mode, fan in modes.items()
        for kind in ("uniform", "normal", "truncated_normal")
    ]
    scaled.append((initializers.variance_scaling(1.0, "fan_in", "normal", batch_axis=0), 1 / 50))
    none: Any
    for none in ((), []):
        scaled += [
            (initializers.variance_scaling(1.0, "fan_in", "normal", in_axis=none), 1 / 2000),
            (initializers.variance_scaling(1.0, "fan_out", "normal", out_axis=none), 1 / 2400),
            (initializers.variance_scaling(1.0, "fan_avg", "normal", none, none), 1 / 120_000),
        ]
    for x, (_, want) in zip(fx.jit(lambda k: [pair[0](k, shape) for pair in scaled])(key), scaled, strict=True):
        assert abs(np.asarray(x, np.float64).var() / want - 1) < 4 * np.sqrt(2 / n)


@pytest.mark.parametrize(("kind", "most"), [("uniform", math.sqrt(2)), ("normal", INF), ("truncated_normal", 2.1)])
def test_complex_variance_scaling(kind: str, most: float) -> None:
    """The second moment of n moduli is off by its square root of at most 1 / n. See `test_variances`."""
    n = 60_000
    z = np.asarray(initializers.variance_scaling(1.0, "fan_in", kind, (), ())(random.key(2), (n,), np.complex64))
    z = z.astype(complex) * math.sqrt(n)
    assert abs(z.mean()) < 4 / math.sqrt(n)
    assert abs((abs(z) ** 2).mean() - 1) < 4 / math.sqrt(n)
    assert abs((z**2).mean()) < 6 / math.sqrt(n)  # no direction is preferred
    assert abs(z).max() < most


def test_plain_initialisers() -> None:
    key = random.key(1)
    np.testing.assert_array_equal(np.asarray(initializers.zeros(key, (2, 3))), np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(np.asarray(initializers.ones(None, (2,), "int32")), np.ones(2, np.int32))
    np.testing.assert_array_equal(np.asarray(initializers.constant(0.5)(key, (2,))), np.full(2, 0.5, np.float32))
    assert np.asarray(initializers.normal(0.1)(key, (1000,))).std() < 0.12
    scale: Any = fx.asarray(0.5)
    for make in (initializers.uniform, initializers.normal, initializers.truncated_normal):
        assert make(scale, "bfloat16")(key, (2,)).dtype == "bfloat16"
    top = np.asarray(initializers.uniform(0.3)(key, (1000,)))
    assert (top.min() >= 0, top.max() < 0.3) == (True, True)
    cut = np.asarray(initializers.truncated_normal(0.1, lower=-1.0, upper=0.5)(key, (1000,)))
    assert (cut.min() >= -0.1, cut.max() <= 0.05) == (True, True)


def test_orthogonal_initialisers() -> None:
    key = random.key(2)
    for shape in ((3, 4, 8), (2, 8), (8, 2)):
        q = np.asarray(initializers.orthogonal(2.0)(key, shape), np.float64).reshape(-1, shape[-1]) / 2
        gram = q.T @ q if q.shape[0] >= q.shape[1] else q @ q.T
        np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-6)
    kernel = np.asarray(initializers.delta_orthogonal()(key, (3, 5, 2, 4)), np.float64)
    np.testing.assert_allclose(kernel[1, 2] @ kernel[1, 2].T, np.eye(2), atol=1e-6)
    kernel[1, 2] = 0
    assert not kernel.any()


ERRORS: list[tuple[Callable[[], object], type[FxadError], str]] = [
    (
        lambda: initializers.variance_scaling(1.0, "fan", "normal"),
        ParameterError,
        "variance_scaling: mode 'fan'",
    ),
    (
        lambda: initializers.variance_scaling(1.0, "fan_in", "cauchy"),
        ParameterError,
        "variance_scaling: distribution 'cauchy'",
    ),
    (
        lambda: initializers.he_normal()(random.key(0), (3,)),
        ShapeError,
        "variance_scaling: shape (3,) has no axis of inputs and one of outputs",
    ),
    (
        lambda: initializers.orthogonal()(random.key(0), (3, 3), "int32"),
        DTypeError,
        "orthogonal: int32 holds no fractions",
    ),
    (
        lambda: initializers.delta_orthogonal()(random.key(0), (3, 4, 2)),
        ShapeError,
        (
            "delta_orthogonal: shape (3, 4, 2) is not (*spatial, inputs, outputs) of 1 to 3 spatial axes and no fewer "
            "outputs than inputs"
        ),
    ),
    (lambda: nn.glu(np.ones(3)), ShapeError, "glu: axis 0 of f64[3] has an odd size"),
    (
        lambda: nn.dot_product_attention(Q, Q[:, :, :3], Q[:, :, :3]),
        ShapeError,
        "dot_product_attention: 3 heads of key and value do not divide 4 heads of query",
    ),
    (
        lambda: nn.dot_product_attention(Q, Q, Q[:, :2]),
        ShapeError,
        (
            "dot_product_attention: query f64[2,3,4,6], key f64[2,3,4,6] and value f64[2,2,4,6] are not [B,T,N,H], "
            "[B,S,K,H] and [B,S,K,H]"
        ),
    ),
    (
        lambda: nn.dot_product_attention(Q, Q, Q, mask=np.ones((3, 3))),
        ParameterError,
        "dot_product_attention: mask must be bool, got f64[1,1,3,3]",
    ),
    (
        lambda: nn.dot_product_attention(Q, Q, Q, bias=np.ones((3, 1, 3, 3))),
        ShapeError,
        "dot_product_attention: bias f64[3,1,3,3] does not broadcast to (2, 4, 3, 3)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_messages(call: Callable[[], object], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        call()
    assert e.value.message == message


SMOOTH: list[tuple[Callable[[Any], Any], tuple[float, float, float, float]]] = [
    # derivatives of order 1 to 4 where branches of the formula meet
    (nn.softplus, (0.5, 0.25, 0.0, -0.125)),
    (nn.log_sigmoid, (0.5, -0.25, 0.0, 0.125)),
    (lambda x: fnp.logaddexp(0.0, x), (0.5, 0.25, 0.0, -0.125)),
    (lambda x: fnp.logaddexp(x, 2 * x), (1.5, 0.25, 0.0, -0.125)),
    (lambda x: fnp.logaddexp2(x, 0.0), (0.5, np.log(2) / 4, 0.0, -(np.log(2) ** 3) / 8)),
    (lambda x: fnp.hypot(1.0, x), (0.0, 1.0, 0.0, -3.0)),
    (lambda x: fnp.hypot(1.0 + x, 1.0 - x), (0.0, 2**0.5, 0.0, -3 * 2**0.5)),
    (fx.scipy.special.log_ndtr, (0.7978845608, -0.6366197723, 0.2180136141, 0.1147705183)),
]


@pytest.mark.parametrize(("f", "wanted"), SMOOTH)
def test_smooth_functions_have_derivatives_of_all_orders_where_their_branches_meet(
    f: Callable[[Any], Any], wanted: tuple[float, ...]
) -> None:
    slopes = [f := fx.grad(f) for _ in wanted]
    for order, (found, value) in enumerate(zip(fx.jit(lambda x: [g(x) for g in slopes])(0.0), wanted, strict=True), 1):
        assert float(found) == pytest.approx(value, abs=1e-5), order
