"""The test suite of JAX's `mask` of 2020, for fxad: each program at every length up to its padding.

The programs and test names are from that suite; `in_shapes` is in fxad's syntax. Cases that the suite skipped, rejected
or marked as TODO are here too. Each case is checked in three ways: `shapecheck` of the result; every length, in NumPy's
interpreter, against the program that is traced at that length; and all lengths as one ragged batch, compiled once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
import fxad.scipy.special as special
from fxad import lax, random
from fxad.core.sizes.size import substitute_sizes
from fxad.core.sizes.text import Reader
from fxad.errors import ArgumentError, ShapeError, SizeError, TreeError
from fxad.transforms.specialize import size_names

Shape = tuple[int, ...]
Values = dict[str, int]
COMBINATIONS = 40  # number of combinations of sizes that are tested for a case


def padded(x: Any, shape: Shape, bad: float = np.nan) -> Any:
    """Returns `x` padded with nan, or with the least integer."""
    out = np.full(shape, bad if x.dtype.kind == "f" else np.iinfo(x.dtype).min, x.dtype)
    out[tuple([slice(n) for n in x.shape])] = x
    return out


class Case:
    """A function, the shapes of its arguments and results as texts, and the largest size of each name."""

    def __init__(
        self, f: Callable[..., Any], in_shapes: tuple[str, ...], out_shapes: Any, most: Values, dtype: str = "float32"
    ) -> None:
        scope: dict[str, int] = {}
        self.f, self.texts, self.out, self.most, self.dtype = f, in_shapes, out_shapes, most, dtype
        for text in in_shapes:
            Reader(text, scope).shape()  # an assumption in one shape holds in all of them
        shapes = [Reader(text, scope).shape() for text in in_shapes]
        self.specs = [fx.Spec([n for n in shape if n is not None], dtype) for shape in shapes]
        self.program = fx.trace(f, *self.specs)
        self.least = {n.name: n.at_least for spec in self.specs for m in spec.shape for n in _names(m)}

    def sizes(self) -> list[Values]:
        """Returns all combinations of sizes up to the padding, or a random choice of them."""
        names = sorted(self.least)
        each = [range(self.least[n], self.most[n] + 1) for n in names]
        every = list(itertools.product(*each))
        if len(every) > COMBINATIONS:
            every = [every[0], *Random(0).sample(every[1:-1], COMBINATIONS - 2), every[-1]]
        assert all([{v[k] for v in every} == set(values) for k, values in enumerate(each)])
        return [dict(zip(names, values, strict=True)) for values in every]

    def args(self, values: Values, seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        shapes = [tuple([substitute_sizes(n, values) for n in spec.shape]) for spec in self.specs]
        whole = self.dtype.startswith("int")
        return [(rng.integers(-5, 9, s) if whole else rng.normal(size=s)).astype(self.dtype) for s in shapes]

    def check(self, rtol: float = 1e-4) -> None:
        fx.shapecheck(self.f, self.specs, self.out)
        own = {n.name: self.most[n.name] for n in size_names(self.program.jaxpr)}
        masked = fx.mask(self.program, padding=own) if own else None
        shapes = [tuple([substitute_sizes(n, self.most) for n in spec.shape]) for spec in self.specs]
        rows, lengths, wanted = list[Any](), list[Values](), list[Any]()
        for k, values in enumerate(self.sizes()):
            args = self.args(values, k)
            plain = fx.trace(self.f, *args)
            want = fx.tree.leaves(fx.interpret(plain, *args))
            operands = [padded(x, s) for x, s in zip(args, shapes, strict=True)]
            if masked is not None:
                have = fx.tree.leaves(fx.interpret(masked, *operands, sizes={n: np.int32(values[n]) for n in own}))
                for x, y in zip(have, want, strict=True):
                    _equal(x, y, rtol, values)
            rows.append(operands)
            lengths.append(values)
            wanted.append(want)
        if masked is None:
            return
        stacks = [np.stack([row[a] for row in rows]) for a in range(len(shapes))]
        sizes = {n: np.array([at[n] for at in lengths], np.int32) for n in own}
        ragged = fx.jit(fx.vmap(lambda xs, ns: fx.mask(self.f, self.texts, self.out)(*xs, sizes=ns)))
        actual = [np.asarray(y) for y in fx.tree.leaves(ragged(stacks, sizes))]
        for row, want in enumerate(wanted):
            for x, y in zip(actual, want, strict=True):
                _equal(x[row], y, rtol, lengths[row])


def _names(size: int) -> tuple[Any, ...]:
    return getattr(size, "names", ())


def _equal(padded_result: Any, want: Any, rtol: float, values: Values) -> None:
    want = np.asarray(want)
    valid = np.asarray(padded_result)[tuple([slice(n) for n in want.shape])]
    assert valid.shape == want.shape
    np.testing.assert_allclose(valid, want, rtol=rtol, atol=1e-5, err_msg=f"at {values}")


def total_by_steps(x: Any) -> Any:
    return lax.scan(lambda c, a: (c + a, ()), 0 * x.sum(), x)[0]


def window(x: Any) -> Any:
    return lax.slice(x, (x.shape[0] // 2,), (x.shape[0],))


@fx.jit
def duplicated(x: Any) -> Any:
    return lax.concatenate([x, x], 0)


def with_inner_jit(x: Any) -> Any:
    @fx.jit
    def behind(y: Any) -> Any:
        return lax.concatenate([x, y], 0)

    return behind(fnp.asarray([1.0, 2.0, 3.0]))


def padded_by(*config: tuple[int, int, int]) -> Callable[[Any], Any]:
    return lambda x: lax.pad(x, fnp.asarray(1.0, x.dtype), config)


def rnn(w: Any, xs: Any, target: Any) -> Any:
    last = lax.scan(lambda h, x: (fnp.tanh(w @ h + w @ x), ()), fnp.zeros(3), xs)[0]
    return ((last - target) ** 2).sum()


N, NM = {"n": 5}, {"n": 4, "m": 3}
CASES: dict[str, tuple[Callable[..., Any], tuple[str, ...], Any, Values]] = {
    "add": (fnp.add, ("(m, n)", "n"), "(m, n)", NM),
    "add scalar": (fnp.add, ("n", ""), "n", N),
    "add vectors": (lax.add, ("n", "n"), "n", N),
    "sum": (fnp.sum, ("n",), "", N),
    "scan": (total_by_steps, ("n",), "", N),
    "mean": (lambda x: fnp.sum(x) / x.shape[0], ("n>=1",), "", N),
    "arithmetic": (fnp.multiply, ("(n, m)", "m"), "(n, m)", NM),
    "stack": (lambda x, y: fnp.stack([x, y], 0), ("n", "n"), "(2, n)", N),
    "concatenate": (lambda x, y, z: lax.concatenate([x, y, z], 0), ("n", "m", "n"), "m + 2*n", NM),
    "dot": (lax.dot, ("(m, k)", "(k, n)"), "(m, n)", {"m": 2, "k": 3, "n": 2}),
    "matrix and vector": (fnp.dot, ("(m, n)", "n"), "m", NM),
    "jit": (duplicated, ("n",), "2*n", N),
    "jit2": (with_inner_jit, ("n",), "n + 3", N),
    "device put": (fx.device_put, ("n",), "n", N),
    "pad check out shape": (padded_by((1, 1, 1)), ("n>=1",), "2*n + 1", N),
    "numpy pad": (lambda x: fnp.pad(x, (0, 1), constant_values=5.0), ("n",), "n + 1", N),
    "first": (lambda x: x[0], ("n>=1",), "", N),
    "last": (lambda x: x[-1], ("n>=1",), "", N),
    "last column": (lambda x: x[..., -1], ("(n, 3)",), "n", N),
    "tail": (lambda x: x[1:], ("n>=1",), "n - 1", N),
    "head": (lambda x: x[:-1], ("n>=1",), "n - 1", N),
    "rev": (lambda x: x[:0:-1], ("n>=1",), "n - 1", N),
    "rev2": (lambda x: x[-2::-1], ("n>=1",), "n - 1", N),
    "lax slice": (lambda x: lax.slice(x, (1,), (x.shape[0],)), ("n>=1",), "n - 1", N),
    "lax slice of the second half": (window, ("2*n",), "n", N),
    "reshape": (lambda x: x.reshape((x.shape[0], x.shape[1] * x.shape[2])), ("n, a, b",), "(n, a*b)",
                {"n": 2, "a": 2, "b": 3}),
    "ravel": (fnp.ravel, ("(n, m)",), "n*m", NM),
    "reshape of padded axes": (lambda x: x.reshape((x.shape[0] * x.shape[1], x.shape[2])), ("a, b, n",), "(a*b, n)",
                               {"n": 2, "a": 2, "b": 3}),
    "transpose": (lambda x: lax.transpose(x, (1, 0, 2)), ("(a, b, c)",), "b, a, c", {"a": 2, "b": 3, "c": 2}),
    "arange": (lambda x: -fnp.arange(x.shape[0]), ("n",), "n", N),
    "iota": (lambda x: lax.iota("int32", x.shape[0]), ("n",), "n", N),
    "sum 2d": (fnp.sum, ("(m, n)",), "", NM),
    "expit": (special.expit, ("n",), "n", N),
    "uniform": (lambda x: random.uniform(random.key(0), x.shape), ("n",), "n", N),
    "uniform of an even size": (lambda x: random.uniform(random.key(0), x.shape), ("2*n",), "2*n", N),
    "uniform of an odd size": (lambda x: random.uniform(random.key(0), x.shape), ("2*n+1",), "2*n + 1", N),
    "zeros": (lambda x: -fnp.zeros(x.shape), ("n",), "n", N),
    "ones": (lambda x: -fnp.ones(x.shape), ("n",), "n", N),
    "broadcast to": (lambda x: -fnp.broadcast_to(0, x.shape), ("n",), "n", N),
    "broadcast in dim": (lambda x: -lax.broadcast_in_dim(fnp.zeros((1, 1)), (3, x.shape[0], 4), (1, 2)), ("(n, 1)",),
                         "(3, n, 4)", N),
    "broadcast the operand in dim": (lambda x: lax.broadcast_in_dim(x, (3, x.shape[0], 4), (1, 2)), ("(n, 1)",),
                                     "(3, n, 4)", N),
    "destructure": (lambda x: next(iter(x)), ("(2, n)",), "n", N),
    "where": (lambda x: fnp.where(x < 0, x, fnp.zeros_like(x)), ("n",), "n", N),
    "where a number": (lambda x: fnp.where(x < 0, x, 0.0), ("n",), "n", N),
    "where of a number": (lambda x: fnp.where(x < 0, 0.0, x), ("n",), "n", N),
    "where of numbers": (lambda x: fnp.where(x < 0, 0.0, 1.0), ("n",), "n", N),
    "split": (lambda x: fnp.split(x, 2), ("2*n",), ["n", "n"], N),
    "split at": (lambda x: fnp.split(x, [2]), ("n>=2",), ["2", "n - 2"], N),
    "uneven split": (lambda x: fnp.array_split(x, 2), ("n",), ["n//2 + min(1, n - 2*(n//2))", None], N),
    "reduce sum": (fnp.sum, ("(m, n)",), "", NM),
    "reduce prod": (fnp.prod, ("(m, n)",), "", NM),
    "reduce max": (fnp.max, ("(m>=1, n>=1)",), "", NM),
    "reduce min": (fnp.min, ("(m>=1, n>=1)",), "", NM),
    "square matrix of twice": (lambda x: x, ("(2*n, n)",), "2*n, n", {"n": 3}),
    "rnn": (lambda w, xs, y: rnn(w, xs, y), ("(3, 3)", "(t, 3)", "3"), "", {"t": 5}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_length(name: str) -> None:
    f, shapes, out, most = CASES[name]
    Case(f, shapes, out, most).check()


@pytest.mark.parametrize("name", ["sum", "scan", "add", "concatenate", "reduce max", "split", "where"])
def test_every_length_of_integers(name: str) -> None:
    f, shapes, out, most = CASES[name]
    Case(f, shapes, out, most, "int32").check(0.0)


PADS: tuple[tuple[tuple[tuple[int, int, int], ...], Shape], ...] = (
    (((1, 2, 0),), (2,)),
    (((1, 2, 0), (3, 4, 0)), (1, 2)),
    (((0, 0, 0), (0, 0, 0)), (1, 2)),
    (((1, 2, 3),), (2,)),
    (((1, 2, 1), (3, 4, 2)), (3, 2)),
    (((-1, 2, 0),), (2,)),
    (((-1, -2, 0), (1, 2, 0)), (4, 2)),
    (((-1, 2, 0), (1, 2, 2)), (4, 2)),
    (((-1, -2, 2),), (5,)),
    (((-1, -2, 1), (1, 2, 2)), (4, 2)),
)


@pytest.mark.parametrize(("config", "shape"), PADS)
def test_pad(config: tuple[tuple[int, int, int], ...], shape: Shape) -> None:
    names = [f"{n}>={k}" for n, k in zip("hw", shape, strict=False)]
    outs = [f"{i + 1}*{n} + {low + high - i}" for n, (low, high, i) in zip("hw", config, strict=False)]
    outs = [text.replace("+ -", "- ") for text in outs]
    most = {n: k + 2 for n, k in zip("hw", shape, strict=False)}
    Case(padded_by(*config), (", ".join(names),), ", ".join(outs), most).check()


LAYOUTS = {
    ("NCHW", "OIHW", "NCHW"): ((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3)),
    ("NHWC", "HWIO", "NHWC"): ((0, 2, 3, 1), (2, 3, 1, 0), (0, 2, 3, 1)),
    ("NCHW", "HWIO", "NHWC"): ((0, 1, 2, 3), (2, 3, 1, 0), (0, 2, 3, 1)),
}
PADDINGS: tuple[tuple[Any, Any], ...] = (
    ("SAME", None),
    ("VALID", None),
    (((0, 1), (2, 0)), None),
    (((0, 1), (2, 0)), (1, 2)),
)


@pytest.mark.parametrize("strides", [(1, 1), (2, 1)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("padding", "dilation"), PADDINGS)
def test_conv(padding: Any, dilation: Any, layout: tuple[str, str, str], strides: tuple[int, int]) -> None:
    """Batch, channels and both spatial axes are masked at once."""
    lhs, rhs, out = LAYOUTS[layout]
    twice, odd = strides[0] == 2, padding == "VALID"
    height = ("2*h + 1" if odd else "2*h") if twice else "h>=1"
    rows = "h" if twice else "h - 1" if odd else "h"
    columns = "w - 2" if odd else "2*w - 1" if dilation else "w"

    def text(sizes: tuple[str, ...], order: tuple[int, ...]) -> str:
        return ", ".join([sizes[k] for k in order])

    Case(
        lambda x, w: lax.conv_general_dilated(x, w, strides, padding, lhs_dilation=dilation, dimension_numbers=layout),
        (text(("n", "c", height, "w>=2"), lhs), text(("o", "c", "2", "3"), rhs)),
        text(("n", "o", rows, columns), out),
        {"n": 1, "c": 2, "h": 3, "w": 3, "o": 1},
    ).check(1e-3)


# --------------------------------------------------------------------------- cases with the arrays of the suite of 2020


@pytest.mark.parametrize("n", range(6))
def test_sum_and_scan_of_its_digits(n: int) -> None:
    digits = np.array([3, 1, 4, 1, 5])
    assert int(fx.mask(fnp.sum, ("n",), "")(digits, sizes={"n": n})) == digits[:n].sum()
    digits = np.array([5, 2, 9, 1, 4])
    assert int(fx.mask(total_by_steps, ("n",), "")(digits, sizes={"n": n})) == digits[:n].sum()


def test_sum_vmap_and_scan_vmap() -> None:
    total = fx.mask(fnp.sum, ("n",), "")
    actual = fx.vmap(lambda x, n: total(x, sizes={"n": n}))(np.ones((5, 10)), np.arange(5, dtype=np.int32))
    np.testing.assert_array_equal(actual, np.arange(5))
    steps = fx.mask(total_by_steps, ("n",), "")
    rows = np.arange(6).reshape(2, 3)
    for ns in itertools.product(range(4), repeat=2):
        actual = fx.vmap(lambda x, n: steps(x, sizes={"n": n}))(rows, np.array(ns, np.int32))
        np.testing.assert_array_equal(actual, [row[:n].sum() for row, n in zip(rows, ns, strict=True)])


def test_python_runs_once_under_jit() -> None:
    runs = []

    def total(x: Any) -> Any:
        runs.append(1)
        return total_by_steps(x)

    run = fx.jit(lambda x, n: fx.mask(total, ("n",), "")(x, sizes={"n": n}))
    digits = np.array([5, 2, 9, 1, 4])
    assert [int(run(digits, np.int32(n))) for n in range(6)] == [0, 5, 7, 16, 17, 21]
    assert len(runs) == 1


@pytest.mark.parametrize("n", range(3))
def test_monomorphic(n: int) -> None:
    x = np.array([[3, 4], [5, 6]])
    np.testing.assert_array_equal(fx.mask(fnp.sum, ("(_, n)",), "")(x, sizes={"n": n}), x[:, :n].sum())
    actual = fx.mask(lambda a: fnp.sum(a, axis=0), ("(_, n)",), "n")(x, sizes={"n": n})
    np.testing.assert_array_equal(actual[:n], x[:, :n].sum(0))
    actual = fx.mask(lambda a: fnp.sum(a, axis=1), ("(_, n)",), "_")(x, sizes={"n": n})
    np.testing.assert_array_equal(actual, x[:, :n].sum(1))


def test_rnn_and_its_gradient() -> None:
    rng = np.random.default_rng(0)
    w, xs, y = [rng.normal(size=s).astype("float32") for s in ((3, 3), (6, 3), (3,))]
    masked = fx.mask(rnn, ("(_, _)", "(t, _)", "_"), "")
    run = fx.jit(fx.value_and_grad(lambda w, t: masked(w, xs, y, sizes={"t": t})))
    for t in range(7):
        value, slope = run(w, np.int32(t))
        want, want_slope = fx.value_and_grad(rnn)(w, xs[:t], y)
        np.testing.assert_allclose(np.asarray(value), np.asarray(want), rtol=1e-4)
        np.testing.assert_allclose(np.asarray(slope), np.asarray(want_slope), rtol=1e-3, atol=1e-5)


def test_ragged_batched_rnn() -> None:
    rng = np.random.default_rng(1)
    w, ys = rng.normal(size=(3, 3)).astype("float32"), rng.normal(size=(7, 3)).astype("float32")
    seqs, ts = rng.normal(size=(7, 6, 3)).astype("float32"), np.arange(7, dtype=np.int32)
    masked = fx.mask(rnn, ("(_, _)", "(t, _)", "_"), "")

    def loss(w: Any) -> Any:
        each = fx.vmap(lambda xs, y, t: masked(w, xs, y, sizes={"t": t}))(seqs, ys, ts)
        return each.sum()

    def loop(w: Any) -> Any:
        return sum([rnn(w, xs[:t], y) for xs, y, t in zip(seqs, ys, ts, strict=True)])

    np.testing.assert_allclose(fx.grad(loss)(w), fx.grad(loop)(w), rtol=1e-3, atol=1e-4)


def test_nesting() -> None:
    total = fx.mask(fnp.sum, ("n",), "")

    def outer(x: Any, ns: Any) -> Any:
        return fx.vmap(lambda row, n: total(row, sizes={"n": n}))(x, ns).sum()

    x = np.array([[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8]])
    masked = fx.mask(outer, ("(m, _)", "m"), "")
    for m in range(4):
        for ns in itertools.product((0, 2, 4), repeat=3):
            want = sum([row[:n].sum() for row, n in zip(x[:m], ns, strict=False)])
            assert int(masked(x, np.array(ns, np.int32), sizes={"m": m})) == want


def test_destructure_of_a_fixed_axis() -> None:
    def first(pair: Any) -> Any:
        one, _ = pair
        return one

    assert fx.shapecheck(first, ("2",), "") == "()"
    assert fx.shapecheck(first, ("(2, n)",), "n") == "(n,)"


def test_slice_oob_indexing() -> None:
    np.testing.assert_array_equal(fnp.ones(5)[:10], np.ones(5))
    np.testing.assert_array_equal(fnp.ones(5)[-10:], np.ones(5))
    for cut in (slice(10), slice(-10, None), slice(3, 10), slice(-10, 3)):
        Case(lambda x, cut=cut: x[cut], ("n",), None, {"n": 13}).check()


def test_the_program_has_no_trivial_operations() -> None:
    program = fx.mask(fx.trace(fnp.sum, fx.Spec("n")), padding={"n": 6})
    assert [e.prim.name for e in program.jaxpr.eqns if e.prim.name in ("mul", "add")] == []


def test_errors() -> None:
    with pytest.raises(ShapeError) as caught:
        fx.mask(fnp.add, ("n", "n"), "n")(np.arange(5), np.arange(6), sizes={"n": 3})
    assert caught.value.message == "mask of add: size 0 of argument x2 is 6, but n is 5: n = 5 by size 0 of argument x1"
    with pytest.raises(ShapeError, match=r"Output shapes should be \(n - 1,\) but are \(n,\)"):
        fx.shapecheck(lambda x: x, ("n",), "n + -1")
    with pytest.raises(ShapeError, match=r"Output shapes should be \(7\*n,\) but are \(n,\), at result\[0\]"):
        fx.shapecheck(lambda x: (x, x), ("n",), ("7*n", "n"))
    with pytest.raises(TreeError) as tree:
        fx.shapecheck(lambda x: [x, x], ("n",), ("n",))
    assert tree.value.message == "shapecheck of <lambda>: out_shapes: ('n',) is not a tree prefix of [*, *]"
    with pytest.raises(ShapeError, match="contracting sizes differ"):
        fx.shapecheck(lambda a, b: lax.dot_general(a, b, (((0,), (0,)), ((), ()))), ("(m, n)", "n"), "m")
    with pytest.raises(SizeError, match="is not masked: "):
        fx.mask(lambda x: fx.pure_callback(np.sin, x, x), ("n",), "n")(np.ones(3, "float32"), sizes={"n": 2})
    with pytest.raises(SizeError, match="n > 0 is not decided by n >= 0"):
        fx.shapecheck(lambda x: x[0], ("n",), "")
    with pytest.raises(ArgumentError):
        fx.shapecheck(fnp.sum, ("n m",), "")
