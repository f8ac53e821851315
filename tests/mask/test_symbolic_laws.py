"""Laws of programs of symbolic shape, generated: text, files, and the other transformations."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, lax, text
from fxad.core.interpreter import run
from fxad.core.sizes.size import named_size
from fxad.core.typecheck import typecheck
from fxad.errors import NotDifferentiableError, NotLinearError, ShapeError, SizeError
from fxad.primitives import ALL
from fxad.primitives.collectives import COLLECTIVES
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.linalg.lu import Lu
from fxad.primitives.linalg.qr import HouseholderProduct, Qr
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.reduce_window import ReduceWindowProd
from fxad.testing import MASK_STEPS, RaggedCase, ragged_applications, ragged_cases
from fxad.testing.compare import differ, program_tolerance
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.ad.vjp import vjp_fused
from fxad.transforms.specialize import size_names, specialize
from tests.laws.test_binary_edges import NO_SLOPE, OF_NUMPY
from tests.mask.law import as_program


@given(ragged_cases())
def test_text_and_copies_are_the_same_object(case: RaggedCase) -> None:
    program = case.program
    typecheck(program)
    assert text.parse(str(program)) is program
    assert pickle.loads(pickle.dumps(program)) is program
    assert fx.diff(program, program) is None
    renamed = {n.name: named_size(f"{n.name}_other", n.at_least) for n in size_names(program)}
    other = specialize(program, tuple(sorted(renamed.items())))
    assert (fx.diff(program, other) is None) == (not renamed)
    back = {f"{n}_other": named_size(n, size.names[0].at_least) for n, size in renamed.items()}  # type: ignore[attr-defined]
    assert specialize(other, tuple(sorted(back.items()))) is program


@given(ragged_cases(size=6, depth=1))
def test_files_give_the_same_object(tmp_path_factory: pytest.TempPathFactory, case: RaggedCase) -> None:
    path: Path = tmp_path_factory.mktemp("programs") / "program"
    fx.save(as_program(case.program), path)
    assert fx.load(path).jaxpr is case.program


# The derivatives of these choose an algorithm by the number of elements, rows or columns.
BY_NUMBER = (ReduceProd, ReduceWindowProd, Lu, Qr, Svd, HouseholderProduct)
# The other transformations may do more for known numbers: an axis of one element is not reversed, two shapes are equal.
EXACT = ("jvp", "linearize", "vmap", "scan", "cond", "call", "remat", "dce", "inline")
APPLIED = [k for k in ALL if k not in (*COLLECTIVES, ShardMap)]
generated = ragged_cases(differentiable=True, size=8, depth=2)
of_one_primitive = st.sampled_from(APPLIED).flatmap(lambda kind: ragged_applications(kind, smooth=True))


@given(generated | of_one_primitive, st.sampled_from([*MASK_STEPS]))
def test_specialize_commutes_with_every_transformation(case: RaggedCase, name: str) -> None:
    """A transformed program, specialized, is the specialized program, transformed: the same object, or one with the
    same results. For an empty axis an equation may be trivial."""
    at, transform = tuple(sorted(case.sizes.items())), MASK_STEPS[name]
    fixed = specialize(case.program, at)
    try:
        first = transform(case.program, 0)
    except NotDifferentiableError:
        return
    except SizeError as e:
        # the second message: products over windows that are sizes have a derivative in the masked program alone
        if "is not decided by" not in e.message and "the derivative stacks the elements of windows" not in e.message:
            raise
        return
    have, want = specialize(first, at), transform(fixed, 0)
    if have is not want:
        chosen = any([isinstance(e.prim, BY_NUMBER) for e in case.program.eqns])
        assert name not in EXACT or chosen or 0 in case.sizes.values(), name
        args = case.operands(first.in_avals)
        assert not differ(run(have, args), run(want, args), slack=10 * program_tolerance(want, args)), name


def test_residuals_and_explain_nan_of_a_program_of_symbolic_shape() -> None:
    program = fx.trace(lambda x: fnp.sin(fnp.sin(x[::-1])).sum() + lax.cumsum(x)[-1], fx.Spec("n>=1"))
    assert "8*n bytes beside the arguments" in str(fx.residuals(program))
    assert fx.simplify(program).jaxpr is program.jaxpr
    assert fx.explain_nan(program, fnp.asarray([1.0, -fnp.inf])) is not None
    assert fx.explain_nan(program, fnp.asarray([1.0, 2.0])) is None
    n = named_size("n")
    assert f"{2 * n:,} {n:d} {n:>4}" == "2*n n    n"


@pytest.mark.parametrize(
    "f",
    [
        lambda x: fnp.sort(x, axis=1),
        lambda x: lax.cummax(x, axis=1),
        lambda x: fnp.take_along_axis(x, fnp.argsort(x, axis=1), 1),
        lambda x: fnp.searchsorted(fnp.sort(x[0] if x.shape[0] == 2 else x.ravel()), x),
        lambda x: fnp.vander(x.ravel()),
        lambda x: fnp.histogram(x, 3)[1],
    ],
)
def test_a_program_of_every_size_runs_at_size_0(f: Callable[[fx.Array], fx.Array]) -> None:
    for shape in ("2, n", "n, 2", "n, n"):
        program, empty = fx.trace(f, fx.Spec(shape)), np.zeros(eval(shape, {"n": 0}), np.float32)
        x = fnp.asarray(empty)
        have, want = fx.specialize(program, n=0)(x), f(x)
        np.testing.assert_array_equal(have, want)
        if have.dtype == dtypes.float32:
            (slope,) = run(specialize(MASK_STEPS["jvp"](program.jaxpr, 0), (("n", 0),)), [empty, empty])[1:]
            assert slope.shape == want.shape


def test_windows_at_size_0() -> None:
    """An update must fit, as in a trace at size 0. The derivative of an empty result of an index is empty."""

    def updated(x: Any, u: Any) -> Any:
        return (lax.dynamic_update_slice(x, u, (0,)) ** 2).sum()

    for f in (updated, fx.grad(updated, (0, 1))):
        program = fx.trace(f, fx.Spec("n"), fx.Spec((1,)))
        with pytest.raises(ShapeError, match="a window of size 1 does not lie in axis 0"):
            fx.specialize(program, n=0)

    def slope(x: Any, i: Any) -> Any:
        return fx.grad(lambda x: (x[i] ** 3).sum())(x).sum()

    second = fx.trace(fx.grad(slope), fx.Spec("n, n"), fx.Spec((), "int32"))
    assert fx.specialize(second, n=0)(np.zeros((0, 0), "float32"), np.int32(0)).shape == (0, 0)
    actual = fx.specialize(second, n=2)(np.ones((2, 2), "float32"), np.int32(1))
    np.testing.assert_array_equal(actual, [[0, 0], [6, 6]])


def test_a_fold_of_symbolic_length_from_initial_values_that_differ_by_example() -> None:
    def fold(x: fx.Array, first: fx.Array) -> fx.Array:
        return lax.reduce(x, first, lambda a, b: fnp.where(a > b, a, b), (0,))

    program = fx.trace(fx.vmap(fold), fx.Spec("2, n"), fx.Spec("2"))
    x, first = fnp.asarray([[1.0, 5.0, 3.0], [4.0, 2.0, 0.0]]), fnp.asarray([2.0, 7.0])
    assert fx.specialize(program, n=3)(x, first).tolist() == [5.0, 7.0]


def layer(x: Any, w: Any) -> Any:
    return fnp.sin(fnp.tanh(x * w) * x + w) * x + fnp.tanh(x * w - x) * fnp.sin(x)


@pytest.mark.parametrize("rows", [lambda m: [m - 1 - k for k in range(4)], lambda m: [0, 1, m - 2, m - 1], range])
@pytest.mark.parametrize("least", [4, 5])
def test_layers_of_a_symbolic_number_of_weights(rows: Callable[[Any], Any], least: int) -> None:
    """`outline` makes the index of each layer an operand, which may be a size. `inline` makes it a parameter again."""

    def net(x: Any, w: Any) -> Any:
        for k in rows(w.shape[0]) if rows is not range else range(4):
            x = layer(x, w[k])
        return x.sum()

    program = fx.trace(net, fx.Spec("n"), fx.Spec(f"(m>={least}), n"))
    x, w = fnp.asarray([0.25, 0.5]), fnp.asarray(np.linspace(-0.5, 0.5, 12, dtype=np.float32).reshape(6, 2))
    want = net(x, w)
    called: Any = fx.outline(program)
    assert len(called.jaxpr.eqns) < len(program.jaxpr.eqns)
    assert {e.prim for e in fx.inline(called).jaxpr.eqns} == {e.prim for e in program.jaxpr.eqns}
    others: list[Any] = [called, fx.reroll(program), fx.reroll(called), fx.inline(called), fx.simplify(called)]
    for other in others:
        specialized: Any = fx.specialize(other, m=6, n=2)
        np.testing.assert_allclose(specialized(x, w), want, rtol=1e-6)
    assert len(fx.residuals(fx.outline(program))) > 0


def test_paddings_whose_order_is_not_decided() -> None:
    def padded(x: fx.Array) -> fx.Array:
        rows = [lax.pad(x, 0.0, [(k, x.shape[0] - k, 0)]) for k in range(1, 5)]
        return sum([layer(row, row + 1).sum() for row in rows], start=fnp.zeros(()))

    program = fx.trace(padded, fx.Spec("(n>=1)"))
    x = fnp.linspace(-0.5, 0.5, 6)
    for other in (fx.outline(program), fx.inline(fx.outline(program))):
        np.testing.assert_allclose(np.asarray(fx.specialize(other, n=6)(x)), np.asarray(padded(x)), rtol=1e-6)


def test_a_start_index_that_may_be_out_of_range_stays_an_operand() -> None:
    """`x[i]` is clamped, so at i = 3 it is `x[3]` only if `x` has more than 3 elements."""

    @fx.jit
    def picked(x: fx.Array, i: fx.Array) -> fx.Array:
        return x[i] * 2.0

    program = fx.trace(lambda x: picked(x, lax.full((), 3, fnp.int32)), fx.Spec("n"))
    assert "dynamic=(0,)" in fx.inline(program).text()
    assert fx.specialize(fx.inline(program), n=5)(fnp.arange(5.0)) == 6.0
    assert fx.specialize(fx.inline(program), n=2)(fnp.arange(2.0)) == 2.0


def test_a_selector_that_is_a_size() -> None:
    def chosen(x: fx.Array) -> fx.Array:
        return lax.select_n(fnp.asarray(x.shape[0]), x.sum(), 2 * x.sum(), 3 * x.sum())

    program = fx.simplify(fx.trace(chosen, fx.Spec("n")))
    assert [fx.specialize(program, n=n)(fnp.ones(n)).item() for n in (1, 2)] == [2.0, 6.0]


OF_INTEGERS = ("gcd", "lcm", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "ldexp")
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 0.5, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float64"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_size_as_an_operand_of_every_function_of_two_operands(dtype: str, place: int) -> None:
    """Regression: integer quotients and the derivatives of powers asked a literal that is a size for its number."""
    x = EDGES if dtype == "float64" else np.array([0, 1, 2, 7, 100], dtype)
    t = np.linspace(1, 2, len(x))
    names = (*OF_NUMPY, "divmod", "float_power") if dtype == "float64" else (*OF_NUMPY, *OF_INTEGERS, "divmod")
    for name in names:
        f = getattr(fnp, name)

        def of_size(x: Any, y: Any, f: Any = f) -> Any:
            return f(x, y.shape[0]) if place else f(y.shape[0], x)

        program = fx.trace(of_size, fx.Spec(x.shape, dtype), fx.Spec("n")).jaxpr
        for n in (0, 1, 2, 3):
            y = np.zeros(n, "float32")
            fixed = fx.trace(of_size, fx.Spec(x.shape, dtype), fx.Spec((n,))).jaxpr
            assert not differ(run(specialize(program, (("n", n),)), [x, y]), run(fixed, [x, y])), (name, n)
            for mode in () if dtype != "float64" or name in NO_SLOPE or name == "divmod" else ("jvp", "vjp"):
                of_x = (True, False)
                both = [jvp(p, of_x)[0] if mode == "jvp" else vjp_fused(p, of_x) for p in (program, fixed)]
                have, want = [run(specialize(p, (("n", n),)), [x, y, t]) for p in both]
                zeros = [np.zeros_like(t)] * (len(have) - len(want))  # a tangent that is known to be zero is no result
                assert not differ(have, [*want, *zeros]), (name, n, mode)
    affine = fx.trace(lambda x: (x, fnp.asarray(x.shape[0]).astype("float32")), fx.Spec("n"))
    with pytest.raises(NotLinearError, match="is constant, so the program is affine"):
        fx.transpose(affine)
