"""mask: the law on single operations, on generated programs, and with other transformations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn, random
from fxad.core.interpreter import run
from fxad.core.sizes.text import Reader
from fxad.ir import Jaxpr, NDArray, distinct_jaxprs
from fxad.primitives import ALL
from fxad.primitives.elementwise import SELECT_N
from fxad.transforms import grad
from fxad.transforms.mask.mask import mask
from fxad.transforms.mask.rules import MASK_RULES
from fxad.transforms.specialize import size_names, specialize
from tests.mask.law import BAD, check, check_gradients, close, operand, padded, part
from tests.mask.test_symbolic import CASES

Function = Callable[..., Any]

MORE: dict[str, tuple[Function, tuple[str, ...]]] = {
    "min": (lambda x: x.min(0), ("(n>0, 3)",)),
    "prod": (lambda x: x.prod(0), ("(n, 3)",)),
    "any": (lambda x: (x > 0).any(0), ("(n, 3)",)),
    "all": (lambda x: (x > -9).all(), ("(n, 3)",)),
    "integers": (lambda x: x.astype("int32").max(0), ("(n>0, 3)",)),
    "argmin": (lambda x: fnp.argmin(x, axis=0), ("(n>0, 3)",)),
    "reverse cumsum": (lambda x: lax.cumsum(x, axis=0, reverse=True), ("(n, 3)",)),
    "cummax": (lambda x: lax.cummax(x, axis=0), ("(n, 3)",)),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, axis=0), ("(n, 3)",)),
    "logsumexp": (lambda x: nn.logsumexp(x, axis=0), ("(n>0, 3)",)),
    "log": (lambda x, y: fnp.log(x * x + 1) * fnp.sum(y), ("(n, 3)", "(m,)")),
    "divide": (lambda x, y: (x / (y * y + 1)).sum(), ("(n, 3)", "3")),
    "outer": (lambda x, y: x[:, None] * y, ("n", "m")),
    "gram": (lambda x: x @ x.T, ("(n, 3)",)),
    "flat columns": (lambda x: x.reshape(-1), ("(3, n)",)),
    "flat both": (lambda x: x.reshape(-1), ("(n, m)",)),
    "unflat": (lambda x: x.reshape((3, -1)), ("3*n",)),
    "unflat columns": (lambda x: x.reshape((-1, 3)), ("3*n",)),
    "concatenate three": (lambda x, y: fnp.concatenate([x, y, x]), ("n", "m")),
    "middle": (lambda x: x[x.shape[0] // 2 :], ("n",)),
    "three operands": (lambda x, y: fnp.einsum("ij,kj,kl->il", x, x, y), ("(n, 3)", "(n, m)")),
    "product of three": (lambda x, y: fnp.linalg.multi_dot([x, y.T, y]), ("(n, m)", "(4, m)")),
    "trapezoid": (lambda x: fnp.trapezoid(x, axis=1), ("(n, m>0)",)),
    "frequencies": (lambda x: fnp.fft.fftfreq(x.shape[0], 0.25) * x + fnp.fft.rfftfreq(2 * x.shape[0])[1:], ("n>0",)),
    "roll to the front": (lambda x: fnp.roll(x, (-1, 2), (0, 1)), ("(n>0, m>0)",)),
    "roll of all": (lambda x: fnp.roll(x, -2), ("(n>0, m>0)",)),
    "roll by half": (lambda x: fnp.fft.fftshift(x), ("(n>0, 3)",)),
    "mirrored": (lambda x: fnp.pad(x, (1, 2), mode="reflect"), ("n>=5",)),
    "window": (lambda x, y: x[y.shape[0] : y.shape[0] + x.shape[0] // 2], ("2*n", "n")),
    "negative steps": (lambda x: x[::-2], ("n>0",)),
    "interior": (lambda x: lax.pad(x, fnp.asarray(2.0, "float32"), [(1, 2, 1)]), ("n",)),
    "cut": (lambda x: lax.pad(x, fnp.asarray(2.0, "float32"), [(-1, -1, 0)]), ("n+2",)),
    "pad by a size": (lambda x, y: lax.pad(x, fnp.asarray(2.0, "float32"), [(y.shape[0], 1, 0)]), ("n", "m")),
    "product of sizes": (lambda x: fnp.ones((x.shape[0], x.shape[1])).sum() * x.size, ("(n, m)",)),
    "attention": (lambda q, k: nn.softmax(q @ k.T, axis=-1) @ k, ("(n, 3)", "(m>0, 3)")),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 3, lambda c: c + 1, x * x), ("n>0",)),
    "scan of a constant": (
        lambda x, w: lax.scan(lambda c, a: (fnp.tanh(w @ c + fnp.log(a * a)), c.sum()), fnp.ones(3), x)[0],
        ("(n, 3)", "(3, 3)"),
    ),
    "reverse scan of a constant": (
        lambda x, w: lax.scan(lambda c, a: (fnp.tanh(w @ c + a), c.sum()), fnp.ones(3), x, reverse=True),
        ("(n, 3)", "(3, 3)"),
    ),
    "scan over rows": (lambda x: lax.scan(lambda c, a: (c + a, c.sum()), x[0] * 0, x)[1], ("(3, n)",)),
    "call": (lambda x: fx.jit(lambda a: fnp.tanh(a).sum())(x), ("n",)),
    "remat of a loop": (lambda x: fx.remat(lambda a: lax.scan(lambda c, b: (c * b, c), 1.0, a))(x), ("n",)),
    "strided": (lambda x, w: lax.conv_general_dilated(x, w, (2,), [(1, 1)]), ("(1, 2, n+2)", "(4, 2, 3)")),
    "channels": (lambda x, w: lax.conv(x, w, (1,), "VALID"), ("(1, n, 6)", "(4, n, 3)")),
    "examples": (lambda x, w: lax.conv(x, w, (1,), "VALID"), ("(n, 2, 6)", "(4, 2, 3)")),
    "two axes": (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), ("(1, 1, n+1, m+1)", "(2, 1, 3, 2)")),
    "sums of windows": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (3,), (1,), "SAME"),
        ("n>0",),
    ),
    "greatest of windows": (lambda x: lax.reduce_window(x, -fnp.inf, lax.max, (2,), (2,), "VALID"), ("n+2",)),
    "greatest of overlapping windows": (
        lambda x: lax.reduce_window(x, -fnp.inf, lax.max, (3, 2), (1, 1), "SAME"),
        ("(n>0, m>0)",),
    ),
    "greatest of large windows": (
        lambda x: lax.reduce_window(x, -fnp.inf, lax.max, (9, 2), (1, 1), "SAME"),
        ("(n>0, 3)",),
    ),
    "draws": (lambda x: x * random.normal(random.key(3), x.shape), ("(n, 3)",)),
    "permutation": (lambda x: random.permutation(random.key(3), x), ("(n, 3)",)),
    "permutations of columns": (lambda x: random.permutation(random.key(3), x, 1, independent=True), ("(3, n)",)),
    "choice without replacement": (
        lambda x: random.choice(random.key(3), x, (x.shape[0] - 2,), replace=False),
        ("n+2",),
    ),
    "spectrum of unit norm": (lambda x: fnp.fft.rfft(x, norm="ortho").real, ("(2, n>0)",)),
    "mean spectrum": (lambda x: fnp.fft.rfft(x, norm="forward").imag, ("(2, n>0)",)),
    "spectrum of many": (lambda x: fnp.fft.ifftn(x, norm="ortho").real, ("(n>0, m>0)",)),
    "Hermitian signal": (lambda x: fnp.fft.hfft(x), ("(2, n+2)",)),
    "half of a Hermitian signal": (lambda x: fnp.fft.ihfft(x).real, ("(2, n>0)",)),
    "draws of columns": (lambda x: x * random.uniform(random.key(3), x.shape), ("(3, n)",)),
}

PADDING = {"n": 6, "m": 5}
SIZES = ({"n": 6, "m": 5}, {"n": 0, "m": 0}, {"n": 1, "m": 3}, {"n": 4, "m": 2})
LATER = {"cholesky", "solve"}  # these need special matrices, see test_matrices


def traced(f: Function, shapes: tuple[str, ...]) -> fx.Program[..., Any]:
    scope: dict[str, int] = {}
    read = [Reader(s, scope).shape() for s in shapes]
    return fx.trace(f, *[fx.Spec([n for n in shape if n is not None]) for shape in read])


@pytest.mark.parametrize("name", [k for k in (*CASES, *MORE) if k not in LATER])
def test_valid_results_and_gradients(name: str) -> None:
    f, shapes = (CASES | MORE)[name]
    program = traced(f, shapes)
    least = {n.name: n.at_least for n in size_names(program.jaxpr)}
    for k, values in enumerate(SIZES):
        at = {n: max(v, least.get(n, 0)) for n, v in values.items()}
        check(program.jaxpr, PADDING, at, operand, BAD[k % len(BAD)])
        if name != "while":
            check_gradients(program.jaxpr, PADDING, at, operand, BAD[(k + 1) % len(BAD)])


@pytest.mark.parametrize("how", ["add", "set"])
@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_updates_of_an_empty_axis_have_no_gradient(how: str, mode: str) -> None:
    def f(x: Any, y: Any) -> Any:
        return getattr(x.at[2 * fnp.arange(y.shape[0])], how)(fnp.sin(y)[:, None], mode=mode)

    program = traced(f, ("(n, 3)", "m")).jaxpr
    for k, n in enumerate((0, 1, 4)):
        check(program, PADDING, {"n": n, "m": 3}, operand, BAD[k])
        check_gradients(program, PADDING, {"n": n, "m": 3}, operand, BAD[k + 1])


@pytest.mark.parametrize("of", [lax.scatter_min, lax.scatter_max, lax.scatter_add, lax.scatter])
def test_an_update_without_indices_of_an_empty_axis_has_no_gradient(of: Function) -> None:
    where = lax.ScatterDimensionNumbers((), (0,), ())

    def f(x: Any, y: Any) -> Any:
        return of(x, fnp.zeros((0,), "int32"), y, where, mode="clip")

    program = traced(f, ("n", "")).jaxpr
    for k, n in enumerate((0, 1, 4)):
        check(program, PADDING, {"n": n}, operand, BAD[k])
        check_gradients(program, PADDING, {"n": n}, operand, BAD[k + 1])


# axes whose sizes depend on both names: after n is masked, the name m remains
NESTED: dict[str, Callable[[Any], Any]] = {
    "transform": lambda x: fnp.fft.fft(x[0]).real,
    "transform of real numbers": lambda x: abs(fnp.fft.rfft(x[0])),
    "transform to real numbers": lambda x: fnp.fft.irfft(fnp.pad(x[0], 1)),
    "singular values": lambda x: fnp.linalg.svd(x, compute_uv=False),
    "singular vectors": lambda x: abs(fnp.linalg.svd(x, full_matrices=False)[2]),
    "eigenvalues": lambda x: fnp.linalg.eigvalsh(x + x.T),
    "inverse": lambda x: fnp.linalg.inv(x @ x.T + fnp.eye(x.shape[0])),
    "permutation": lambda x: random.permutation(random.key(1), x[0]),
    "order": lambda x: fnp.sort(x[0])[::-1],
}


@pytest.mark.parametrize("name", NESTED)
def test_sizes_masked_one_after_the_other(name: str) -> None:
    def f(x: Any, y: Any) -> Any:
        z = fnp.concatenate([x, y])
        return NESTED[name](fnp.sin(z[:, None] * 3 + z + fnp.arange(z.shape[0])))

    program = traced(f, ("n>0", "m>0")).jaxpr
    for first, then in (("n", "m"), ("m", "n")):
        nested = mask(mask(program, ((first, 4),)), ((then, 3),))
        padding = {first: 4, then: 3}
        for at in ({"n": 1, "m": 1}, {"n": 3, "m": 2}):
            args = [operand(k, (at[s],), np.float32) for k, s in enumerate("nm")]
            operands = [padded(x, (padding[s],), np.nan) for x, s in zip(args, "nm", strict=True)]
            want = run(specialize(program, tuple(at.items())), args)[0]
            have = run(nested, [*operands, np.asarray(at[first], np.int32), np.asarray(at[then], np.int32)])[0]
            close(part(have, want.shape), want, 2e-3, f"{first}, then {then}, at {at}")


@pytest.mark.parametrize("n", [0, 1, 2, 1625, 1626])
def test_a_permutation_is_that_of_its_size(n: int) -> None:
    program = fx.trace(lambda x: random.permutation(random.key(5), x), fx.Spec("n", "int32"))
    masked = fx.mask(program, padding={"n": 2000})
    x = np.arange(2000, dtype=np.int32)
    want = random.permutation(random.key(5), x[:n])
    np.testing.assert_array_equal(fx.specialize(program, n=n)(x[:n]), want)
    np.testing.assert_array_equal(masked(x, sizes={"n": n})[:n], want)


def test_operations_without_rounding_are_exact() -> None:
    program = traced(lambda x, y: (fnp.exp(x)[1:] - y, x.T, x.max(0)), ("(n>0, 3)", "3"))
    for bad in BAD:
        check(program.jaxpr, PADDING, {"n": 4}, operand, bad, rtol=0.0)


MATRICES: dict[str, tuple[Function, tuple[str, ...]]] = {
    "cholesky": (lambda a: fnp.linalg.cholesky(a @ a.T + fnp.eye(a.shape[0])), ("(n, n)",)),
    "solve": (lambda a, b: fnp.linalg.solve(a + 3 * fnp.eye(a.shape[0]), b), ("(n, n)", "(n, 2)")),
    "det": (lambda a: fnp.linalg.det(a + 3 * fnp.eye(a.shape[0])), ("(n, n)",)),
    "slogdet": (lambda a: fnp.linalg.slogdet(a + 3 * fnp.eye(a.shape[0]))[1], ("(n, n)",)),
    "inverse": (lambda a: fnp.linalg.inv(a + 3 * fnp.eye(a.shape[0])), ("(n, n)",)),
    "many matrices": (lambda a: fnp.linalg.cholesky(a @ fnp.swapaxes(a, 1, 2) + fnp.eye(3)), ("(n, 3, 3)",)),
    "eigenvalues of many": (lambda a: fnp.linalg.eigvalsh(a + fnp.swapaxes(a, 1, 2)), ("(n, 3, 3)",)),
    "transforms of many": (lambda a: abs(fnp.fft.fft(a, axis=1)), ("(n, 4)",)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name: str) -> None:
    f, shapes = MATRICES[name]
    program = traced(f, shapes)
    for k, values in enumerate(SIZES):
        at = {n: max(v, 1) for n, v in values.items()}
        check(program.jaxpr, PADDING, at, operand, BAD[k % len(BAD)], rtol=1e-3)
        if name not in ("eigenvalues of many", "transforms of many"):
            check_gradients(program.jaxpr, PADDING, at, operand, BAD[(k + 1) % len(BAD)])


def test_every_primitive_has_a_rule_or_a_reason() -> None:
    assert [p.name for p in ALL if p not in MASK_RULES.rows] == []


INDICES: dict[str, tuple[Function, tuple[tuple[str, str], ...]]] = {
    "one": (lambda x, i: x[i], (("(n>0, 3)", "float32"), ("", "int32"))),
    "two": (lambda x, i: x[i, i], (("(n>0, m>0)", "float32"), ("", "int32"))),
    "many": (lambda x, i: x[i], (("(n>0, 3)", "float32"), ("m", "int32"))),
    "many, of which there may be none": (lambda x, i: x[i], (("(n, 3)", "float32"), ("n", "int32"))),
    "pairs, of which there may be none": (lambda x, i: x[i, i], (("(n, m)", "float32"), ("(n, m)", "int32"))),
    "row of a matrix that may be empty": (lambda x, i: x[i], (("(n, n)", "float32"), ("", "int32"))),
    "members": (
        lambda x, i: fnp.where(fnp.isin(i, fnp.floor(abs(3 * x)).astype("int32")), i * 2.0, 0.0),
        (("(n, 3)", "float32"), ("m", "int32")),
    ),
    "bytes": (lambda x, i: x[i], (("(n>0, 3)", "float32"), ("m", "int8"))),
    "unsigned": (lambda x, i: x[i], (("(n>0, 3)", "float32"), ("m", "uint32"))),
    "rows and columns": (lambda x, i: x[i, -1] + x[0, i], (("(n>0, n)", "float32"), ("m", "int32"))),
    "along": (lambda x, i: fnp.take_along_axis(x, i, 0), (("(n>0, 3)", "float32"), ("(m, 3)", "int32"))),
    "filled": (lambda x, i: x.at[i].get(mode="fill", fill_value=0), (("(n>0, 3)", "float32"), ("m", "int32"))),
    "set": (lambda x, i: x.at[i].set(2.0), (("(n>0, 3)", "float32"), ("", "int32"))),
    "add": (lambda x, i, u: x.at[i].add(u), (("(n>0, 3)", "float32"), ("m", "int32"), ("(m, 3)", "float32"))),
    "multiply": (lambda x, i: x.at[i].multiply(2.0), (("(n>0, 3)", "float32"), ("m", "int32"))),
    "max": (lambda x, i, u: x.at[i].max(u), (("(n>0, 3)", "float32"), ("m", "int32"), ("(m, 3)", "float32"))),
    "window": (lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, 0), (("(n+2, 3)", "float32"), ("", "int32"))),
    "wide window": (
        lambda x, i: lax.dynamic_slice_in_dim(x, i, x.shape[0] // 2, 0),
        (("(n, 3)", "float32"), ("", "int32")),
    ),
    "update": (
        lambda x, u, i: lax.dynamic_update_slice_in_dim(x, u, i, 0),
        (("(n + m, 3)", "float32"), ("(m, 3)", "float32"), ("", "int32")),
    ),
    "one hot": (lambda x, i: nn.one_hot(i, 4) @ x, (("(4, 3)", "float32"), ("m", "int32"))),
    "embedding": (lambda x, i: x[i].sum(0), (("(4, 3)", "float32"), ("m", "int32"))),
}


@pytest.mark.parametrize("name", INDICES)
def test_indices(name: str) -> None:
    f, types = INDICES[name]
    scope: dict[str, int] = {}
    specs = [fx.Spec([n for n in Reader(s, scope).shape() if n is not None], dtype) for s, dtype in types]
    program = fx.trace(f, *specs)
    least = {n.name: n.at_least for n in size_names(program.jaxpr)}

    def place(k: int, shape: tuple[int, ...], dtype: Any) -> NDArray:
        if dtype.kind not in "iu":
            return operand(k, shape, dtype)
        low = 0 if dtype.kind == "u" else -7
        return np.asarray(np.random.default_rng(k).integers(low, 8, size=shape).astype(dtype))

    for k, values in enumerate(SIZES):
        at = {n: max(v, least.get(n, 0)) for n, v in values.items()}
        check(program.jaxpr, PADDING, at, place, BAD[k % len(BAD)])
        if name not in ("multiply", "max"):
            check_gradients(program.jaxpr, PADDING, at, place, BAD[(k + 1) % len(BAD)])


# ------------------------------------------------------------------------------------------------- generated programs

MATRIX = np.random.default_rng(3).normal(size=(3, 3)).astype("float32")
STEPS: tuple[tuple[str, Function], ...] = (
    ("sin", lambda x, y: fnp.sin(x)),
    ("log", lambda x, y: fnp.log(x * x + 0.5)),
    ("sqrt", lambda x, y: fnp.sqrt(fnp.abs(x))),
    ("times sum", lambda x, y: x * y.sum()),
    ("less mean", lambda x, y: x - y.mean()),
    ("by size", lambda x, y: x / (y.shape[0] + 1)),
    ("gram", lambda x, y: (x @ y.T) @ y if x.ndim == y.ndim == 2 else x * y.sum()),
    ("softmax", lambda x, y: nn.softmax(x, axis=0)),
    ("columns", lambda x, y: nn.softmax(x, axis=-1)),
    ("cumsum", lambda x, y: fnp.cumsum(x, axis=0) * 0.3),
    ("reverse", lambda x, y: x[::-1]),
    ("double", lambda x, y: fnp.concatenate([x, y]) if x.ndim == y.ndim else x),
    ("half", lambda x, y: x[: x.shape[0] // 2]),
    ("pad", lambda x, y: fnp.pad(x, ((1, 0),) + ((0, 0),) * (x.ndim - 1))),
    ("flat", lambda x, y: x.reshape((-1, 3)).sum(1, keepdims=True) + x.reshape((-1, 3))),
    ("scan", lambda x, y: lax.scan(lambda c, a: (fnp.tanh(c + a), c * a), x.sum(0) * 0, x)[1]),
    ("carry", lambda x, y: x + lax.scan(lambda c, a: (fnp.tanh(c * a), a), x.sum(0), y)[0].sum()),
    ("remat", lambda x, y: fx.remat(lambda a: fnp.tanh(a * a.sum()))(x)),
    ("branch", lambda x, y: lax.cond(y.sum() > 0, lambda a: a * 2, lambda a: a - a.mean(0), x)),
    ("each", lambda x, y: fx.vmap(lambda r: r * r.sum())(x)),
    # infinite derivatives where the padding of a product is zero
    ("log of a product", lambda x, y: fnp.log(abs(x @ MATRIX)) * 0.1),
    ("root of a product", lambda x, y: fx.jit(lambda a: fnp.sqrt(abs(a)))(x @ MATRIX)),
    ("layer", lambda x, y: fnp.tanh(x @ MATRIX)),
    # derivatives that are infinite at 0 or may overflow, and are finite in the padding
    ("norm", lambda x, y: nn.layer_norm(x, y.sum(0), MATRIX[0])),
    ("norm of columns", lambda x, y: nn.standardize(x @ MATRIX, axis=0) if x.ndim == 2 else x),
    ("exponential unit", lambda x, y: nn.elu(x @ MATRIX)),
    ("log softmax", lambda x, y: nn.log_softmax(x @ MATRIX)),
    ("quotient", lambda x, y: x @ MATRIX / (1.5 + fnp.tanh(x @ MATRIX.T)) * 0.3),
    ("unit rows", lambda x, y: (z := x @ MATRIX) / (1e-3 + fnp.sqrt((z * z).sum(-1, keepdims=True)))),
    ("power", lambda x, y: fnp.tanh(x @ MATRIX) ** -2 * 0.01),
)
PROGRAMS = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5)


@given(steps=PROGRAMS, n=st.integers(0, 5), m=st.integers(0, 4), bad=st.sampled_from(BAD))
def test_generated_programs(steps: list[tuple[tuple[str, Function], int, int]], n: int, m: int, bad: float) -> None:
    def f(x: Any, y: Any) -> Any:
        values = [x, y, x]
        for k, ((_, step), i, j) in enumerate(steps):
            values[k % 3] = step(values[i], values[j])
        return tuple(values)

    program = traced(f, ("(n, 3)", "(m, 3)"))
    padding, at = {"n": 5, "m": 4}, {"n": n, "m": m}
    check(program.jaxpr, padding, at, operand, bad)
    check_gradients(program.jaxpr, padding, at, operand, bad)


# ----------------------------------------------------------------------------------------- padding that overflows

LEAST = float(np.finfo("float32").min)
ONES = np.ones((3, 3), "float32")


def two_masks(w: Any, x: Any, ok: Any) -> Any:
    hidden = (1 - ok[:, None] * ok[None, :]) * LEAST
    return ((nn.softmax(x @ w @ x.T + hidden + hidden, axis=-1) @ x) @ w).sum()


# valid elements are moderate; a row of padding, where x is 0, would become infinite or nan
OVERFLOW: dict[str, tuple[Function, Any, tuple[tuple[str | None, Any], ...]]] = {
    "scores masked twice": (two_masks, np.eye(2, dtype="f4"), (("(n>0, 2)", ONES[:, :2]), ("n", ONES[0]))),
    "a fifth power": (lambda p, x: ((x - p) ** 5).sum(), np.float32(1e12), (("n", np.full(2, 1e12, "float32")),)),
    "float16": (
        lambda p, x: ((x - p[0]) ** 2 * p[1]).sum(),
        (np.float16(300), np.float16(1)),
        (("n", np.array([301, 302], "float16")),),
    ),
    "to float32": (
        lambda p, x: ((x - p[0]).astype("float32") * p[1]).sum(),
        (np.float64(1e40), np.float32(1)),
        (("n", np.full(2, 1e40)),),
    ),
    "a division by a small number": (
        lambda p, x: (((x - p[0]) / 1e-30) * p[1]).sum(),
        (np.float32(1e10), np.float32(1e-9)),
        (("n", np.full(2, 1e10, "float32")),),
    ),
    "a complex pole": (
        lambda p, x: abs((fnp.arctan(x + p[0] * 1j) * p[1]).sum()),
        (np.float32(1), np.float32(1)),
        (("n", np.array([1, 2], "float32")),),
    ),
}


@pytest.mark.parametrize("name", OVERFLOW)
def test_padding_that_overflows_reaches_no_gradient(name: str) -> None:
    f, p, others = OVERFLOW[name]
    arrays = [x for _, x in others]
    padded_args = [np.pad(x, [(0, 2), *[(0, 0)] * (x.ndim - 1)], constant_values=np.nan) for x in arrays]
    masked = fx.mask(f, (None, *[shape for shape, _ in others]))
    sizes = {"n": len(arrays[0])}
    have = fx.grad(lambda p: masked(p, *padded_args, sizes=sizes))(p)
    want = fx.grad(f)(p, *arrays)
    for a, b in zip(fx.tree.leaves(have), fx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def excluding(x: Any, w: Any) -> Any:
    """The rows of the padding are -inf, so their softmax is nan. `w` gets cotangents from all rows."""
    scores = x * w
    rows, columns = [fnp.arange(n) for n in scores.shape]
    keep = (columns == 0) & (rows < scores.shape[0])[:, None]
    return nn.softmax(scores + fnp.where(keep, 0.0, -fnp.inf), axis=-1)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_scores_of_minus_infinity_reach_no_gradient(n: int) -> None:
    program = traced(excluding, ("(n, 3)", "")).jaxpr
    check(program, {"n": 4}, {"n": n}, operand)
    check_gradients(program, {"n": 4}, {"n": n}, operand)


def test_a_row_that_is_nan_without_padding_is_the_only_one() -> None:
    """The padding of a product with an infinity is nan, so the mask adds -inf to it."""
    program = traced(lambda q, k: nn.softmax(q @ k.T * 0.5, axis=-1), ("(m, 2)", "(n>0, 2)")).jaxpr
    assert [e.prim.name for e in mask(program, (("m", 4), ("n", 4))).eqns].count("add") == 1

    def infinite(k: int, shape: tuple[int, ...], dtype: Any) -> NDArray:
        x = operand(k, shape, dtype)
        x[0, 0] = np.inf if k == 0 else x[0, 0]
        return x

    check(program, {"m": 4, "n": 4}, {"m": 2, "n": 3}, infinite)
    through = traced(lambda q, k: nn.softmax(fnp.tanh(q @ k.T), axis=-1), ("(m, 2)", "(n>0, 2)")).jaxpr
    check(through, {"m": 4, "n": 4}, {"m": 2, "n": 3}, infinite)


PRODUCTS: dict[str, Function] = {
    "projected": lambda w, x: x.T @ (x @ w),
    "in the first operand": lambda w, x: (x @ w).T @ x,
    "attention": lambda w, x: nn.softmax(x @ x.T, axis=-1) @ (x @ w),
    "of a batch": lambda w, x: fnp.einsum("nij,nj->ij", (x @ w)[:, :, None] * x[:, None], x),
    "sums": lambda w, x: fnp.cumsum(x @ w, axis=0).sum(0) + (x @ w).max(0),
    "factors": lambda w, x: lax.linear_recurrence(x @ w, x, 0, reverse=True),  # the factor of the last row is unused
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_infinities_among_the_valid_elements(name: str) -> None:
    """0 times infinity is nan, so it is not enough to set the padding of one factor to zero."""
    program = traced(PRODUCTS[name], ("(3, 3)", "(n>0, 3)")).jaxpr

    def infinite(k: int, shape: tuple[int, ...], dtype: Any) -> NDArray:
        x: NDArray = abs(operand(k, shape, dtype)) + 1
        x[0, 0] = np.inf if k == 0 else x[0, 0]
        return x

    for n in (1, 2, 5):
        check(program, {"n": 5}, {"n": n}, infinite)


def test_a_product_over_one_of_two_sizes() -> None:
    """Sizes that are not masked stay symbolic."""
    program = traced(lambda x, y: fnp.cos(x).T @ fnp.cos(y), ("n, m", "n, k"))
    x, y = np.ones((4, 2), "float32"), np.ones((4, 3), "float32")
    part = mask(program.jaxpr, (("n", 4),))
    (actual,) = run(specialize(part, (("k", 3), ("m", 2))), [x, y, np.array(3, "int32")])
    np.testing.assert_allclose(np.asarray(actual), np.cos(x[:3]).T @ np.cos(y[:3]), rtol=1e-6)


# ------------------------------------------------------------------------------------------------ the number of selects

# the numbers of selects in the masked program and in its gradient: padding is cleared once, where a derivative needs it
SELECTS: dict[str, tuple[Function, tuple[str, ...], int, int | None]] = {
    "the operand": (lambda x: x, ("(n, m)",), 1, None),
    "functions that keep zero": (lambda x: (fnp.tanh(x) * 2 + x).sum(), ("(n, 3)",), 1, 2),
    "functions that do not": (lambda x: fnp.exp(x).sum(), ("(n, 3)",), 2, 3),
    "mean": (lambda x: x.mean(0), ("(n>0, 3)",), 1, None),
    "a transpose": (lambda x: x.T @ x, ("(n, 3)",), 1, None),
    "a product": (lambda x: x @ x.T, ("(n, 3)",), 2, None),
    "layers": (lambda x, w: fnp.tanh(fnp.tanh(x @ w) @ w).sum(), ("(n, 3)", "(3, 3)"), 2, 3),
    "an infinite slope": (lambda x, w: fnp.log(x @ w).sum(), ("(n, 3)", "(3, 3)"), 3, 5),
    "heads": (lambda x, w: fnp.sin((x @ w).reshape((-1, 2, 3))[:, 0]).sum(), ("(n, 3)", "(3, 6)"), 2, 3),
    "attention": (lambda x, w: (nn.softmax((x @ w) @ x.T, axis=-1) @ x).sum(), ("(n>0, 3)", "(3, 3)"), 3, 4),
    "norms": (lambda x, w: fnp.tanh(nn.layer_norm(x @ w) @ w + w[0]).sum(), ("(n, 3)", "(3, 3)"), 2, 3),
    "norms of columns": (lambda x, w: fnp.tanh(nn.standardize(x @ w, axis=0) @ w).sum(), ("(n>0, 3)", "(3, 3)"), 4, 7),
    "a quotient": (lambda x, w: fnp.tanh((w[0] + x @ w) / (x @ w) @ w).sum(), ("(n, 3)", "(3, 3)"), 3, 5),
    "logarithms": (lambda x, w: fnp.tanh(fnp.log(fnp.log(x @ w) @ w) @ w).sum(), ("(n, 3)", "(3, 3)"), 4, 7),
    "powers": (lambda x, w: fnp.tanh(((x @ w) ** w[0]) @ w).sum(), ("(n, 3)", "(3, 3)"), 3, 7),
    "exponentials": (lambda x, w: fnp.tanh(fnp.exp(fnp.exp(x @ w) @ w) @ w).sum(), ("(n, 3)", "(3, 3)"), 4, 7),
    "comparisons": (lambda x, w: fnp.where(x @ w > 0.5, x @ w, w[0]).sum(), ("(n, 3)", "(3, 3)"), 3, None),
    "a broadcast": (lambda x: (x - x.sum(0)).sum(), ("(n, 3)",), 2, 2),
    "a table": (lambda x, w: fnp.tanh(w[(x * 2).astype("int32")]).max(0).sum(), ("n>0", "(3, 3)"), 3, None),
}


@pytest.mark.parametrize("name", SELECTS)
def test_selects(name: str) -> None:
    f, shapes, value, gradient = SELECTS[name]
    program = traced(f, shapes).jaxpr
    own = sorted({n.name for n in size_names(program)})
    masked = mask(program, tuple([(n, PADDING[n]) for n in own]))
    assert _selects(masked) == value
    if gradient is not None:
        assert _selects(grad(masked, (*(True,) * len(program.ins), *(False,) * len(own)))) == gradient


def _by_hand(inside: Any, x: Any, fill: float = 0.0) -> Any:
    return fnp.where(inside, x, fill)


def _attention(x: Any, w: Any) -> Any:
    return (nn.softmax((x @ w) @ x.T * 0.1, axis=-1) @ x).sum(0).mean()


def _masked_attention(x: Any, w: Any, n: Any) -> Any:
    inside = fnp.arange(6) < n
    x = _by_hand(inside[:, None], x)
    scores = _by_hand(inside[None, :], (x @ w) @ x.T * 0.1, -fnp.inf)
    return _by_hand(inside[:, None], nn.softmax(scores, axis=-1) @ x).sum(0).mean()


def _cloud(x: Any, w: Any) -> Any:
    seen = nn.gelu(x @ w)
    return fnp.concatenate([seen.sum(0), seen.max(0)]).sum()


def _masked_cloud(x: Any, w: Any, n: Any) -> Any:
    inside = (fnp.arange(6) < n)[:, None]
    seen = nn.gelu(_by_hand(inside, x) @ w)
    return fnp.concatenate([_by_hand(inside, seen).sum(0), _by_hand(inside, seen, -fnp.inf).max(0)]).sum()


def _rnn(x: Any, w: Any) -> Any:
    return lax.scan(lambda h, a: (fnp.tanh(h @ w + a), None), fnp.zeros(3), x)[0].sum()


def _masked_rnn(x: Any, w: Any, n: Any) -> Any:
    inside = fnp.arange(6) < n

    def step(h: Any, at: Any) -> Any:
        a, there = at
        return _by_hand(there, fnp.tanh(h @ w + a), h), None

    return lax.scan(step, fnp.zeros(3), (_by_hand(inside[:, None], x), inside))[0].sum()


def _layers(x: Any, w: Any) -> Any:
    for _ in range(2):
        x = x + nn.gelu(nn.layer_norm(x, w[0], w[1]) @ w + w[2]) @ w + w[0]
    return x**2


def _network(x: Any, w: Any) -> Any:
    return _layers(x, w).mean()


def _masked_network(x: Any, w: Any, n: Any) -> Any:
    inside = (fnp.arange(6) < n)[:, None]
    return _by_hand(inside, _layers(_by_hand(inside, x), w)).sum() / (3 * n)


MODELS = [
    (_attention, _masked_attention),
    (_cloud, _masked_cloud),
    (_rnn, _masked_rnn),
    (_network, _masked_network),
]


@pytest.mark.parametrize(("f", "by_hand"), MODELS)
def test_models_have_no_more_selects_than_by_hand(f: Function, by_hand: Function) -> None:
    masked = mask(traced(f, ("(n>0, 3)", "(3, 3)")).jaxpr, (("n", 6),))
    hand = fx.trace(by_hand, fx.Spec((6, 3)), fx.Spec((3, 3)), fx.Spec((), "int32")).jaxpr
    assert _selects(masked) <= _selects(hand)
    wrt = (True, True, False)
    assert _selects(grad(masked, wrt)) <= _selects(grad(hand, wrt))


def _selects(program: Jaxpr) -> int:
    return sum([e.prim is SELECT_N for body in distinct_jaxprs(program) for e in body.eqns])


def test_a_product_of_sizes_that_does_not_fit_in_32_bits() -> None:
    """Regression: it was 0."""

    def area(x: Any, y: Any) -> Any:
        return fnp.asarray(x.shape[0] * y.shape[0], "float32") + 0, fnp.asarray(x.shape[0] ** 2 // 3, "int64") + 0

    x = np.ones(2**16, "float32")
    actual: Any = fx.mask(area, ("n", "m"))(x, x, sizes={"n": 2**16, "m": 2**16})
    assert [float(v) for v in actual] == [2.0**32, 2**32 // 3]
    actual = fx.mask(area, ("n", "m"))(x, x, sizes={"n": 3, "m": 0})
    assert [float(v) for v in actual] == [0, 3]


def test_numpy_indices_of_an_axis_of_symbolic_size() -> None:
    def f(x: Any) -> Any:
        return x.at[np.array([-1, 0, -1])].add(x[np.array([1, -2, -1])])

    x = np.arange(8, dtype=np.float32)
    for n in (0, 2, 4):
        out: Any = fx.mask(f, in_shapes="n+2", out_shapes="n+2")(np.append(x[: n + 2], [9.0] * (6 - n)), sizes={"n": n})
        np.testing.assert_array_equal(out[: n + 2], f(fnp.asarray(x[: n + 2])))
    two: Any = fx.mask(lambda x: x[np.array([-1]), np.array([-2])], in_shapes="n+2, m+2")
    assert two(x[:6].reshape(2, 3), sizes={"n": 0, "m": 0}).tolist() == [3.0]
