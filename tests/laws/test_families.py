"""A new member of a family touches its class, the manifest and its strategy: no table of a transformation names it.

The members that are added here are in no manifest and in no table. Transformations take what they need from the
family.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, extend
from fxad.core.builder import Builder
from fxad.dtypes import DType
from fxad.errors import NotInvertibleError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Dims,
    Emit,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lit,
    NDArray,
    Primitive,
    Tangents,
    primitive,
)
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.axes import axis_after_insert
from fxad.primitives.collectives import Pmin
from fxad.primitives.cumulative import CumMax, CumMin
from fxad.primitives.dot import Contraction, DotGeneral
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.elementwise.gamma import Igamma
from fxad.primitives.elementwise.logic import Ge, Lt, ShiftLeft
from fxad.primitives.elementwise.select import Ceil, Floor
from fxad.primitives.gather_scatter import ScatterMin
from fxad.primitives.linalg.family import LinearSystem
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.linalg.tridiagonal import TridiagonalSolve
from fxad.primitives.reduce import ALL_BITS, LogicalReduction, Monoid, ReduceAnd, ReduceXor, extreme_value
from fxad.primitives.reduce_window import ReduceWindowProd
from fxad.primitives.shape import AxisMove, Rev, Transpose, align_to_first
from fxad.primitives.sort import Sort, SortLike
from fxad.primitives.top_k import TopK
from fxad.testing import Application, Domain, Spec, applications, check_primitive, shapes
from fxad.transforms.costs import compile_cost
from fxad.transforms.mask.contract import MaskTable
from fxad.transforms.mask.mask import mask
from fxad.transforms.mask.rules import MASK_RULES

ROOT = Path(__file__).resolve().parent.parent.parent


@final
@primitive
class SortDescending(SortLike):
    """Sort one operand along an axis, the greatest element first."""

    name: ClassVar[str] = "sort_descending"
    axis: int

    def ordered_axis(self, ndim: int) -> int:
        return self.axis

    def last_value(self, dtype: DType) -> Lit:
        return extreme_value(dtype, -1)

    def _program(self, x: Aval) -> Jaxpr:
        b = Builder()
        (y,) = b(Sort(self.axis, 1), b.input(x))
        return b.build(b(Rev((self.axis,)), y), self.name)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return tuple([np.flip(np.sort(x, self.axis), self.axis) for x in args])

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.call(self._program(ins[0]), args)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        args, at = align_to_first(ctx, args, dims)
        return ctx(SortDescending(axis_after_insert(self.axis, at)), *args), (at,)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (y,), dots = Sort(self.axis, 1).jvp(ctx, primals, tangents)
        return ctx(Rev((self.axis,)), y), (ctx.lin_one(Rev((self.axis,)), *dots),)


def specs(draw: st.DrawFn, smooth: bool) -> Spec:
    dtype = dtypes.float64 if smooth else draw(st.sampled_from([dtypes.float32, dtypes.int32]))
    shape = draw(shapes(min_rank=1))
    return SortDescending(draw(st.integers(0, len(shape) - 1))), [(Aval(shape, dtype), Domain(-3.0, 3.0))]


@given(st.one_of(applications(specs), applications(specs, smooth=True)))
def test_the_laws_hold(application: Any) -> None:
    check_primitive(application)


def sorted_down(x: Any) -> Any:
    return extend.bind(SortDescending(0), x)[0]


def test_transformations_take_what_they_need_from_the_family() -> None:
    x = np.array([2.0, -1.0, np.nan, 3.0, -np.inf])
    # inversion: the reason of the family
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(sorted_down)(x)
    assert e.value.message.endswith("sort_descending is not inverted: the order that the elements had is lost")
    # the compile cost, and whether it is a kernel of its own
    assert compile_cost(SortDescending) == compile_cost(Sort)
    # mask: the padding comes last, and is cleared
    b = Builder()
    program = b.build(b(SortDescending(0), b.input(fx.Spec("(n,)").aval)), "f")
    padded = mask(program, (("n", 8),))
    for n in (0, 1, 4):
        y = fx.mask(sorted_down, in_shapes="(n,)", out_shapes="(n,)")(np.arange(8.0), sizes={"n": n})
        np.testing.assert_array_equal(np.asarray(y)[:n], np.arange(n)[::-1])
    assert [eqn.prim.name for eqn in padded.eqns].count("sort_descending") == 1


@final
@primitive
class ReduceEvery(LogicalReduction):
    """True if all elements along `axes` are True."""

    name: ClassVar[str] = "reduce_every"
    monoid: ClassVar[Monoid] = ALL_BITS


def test_a_reduction_takes_what_it_needs_from_its_family() -> None:
    every = ReduceEvery((0,))
    check_primitive(Application(every, (np.array([[True, False], [True, True]]),)))
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(fx.trace(lambda x: extend.bind(every, x)[0], np.array([True, False])))
    assert "reduce_every is not inverted: " in e.value.message
    assert np.asarray(fx.inverse(fx.trace(lambda x: extend.bind(every, x)[0], np.array([True])))(True)).tolist() == [
        True
    ]
    masked = fx.mask(lambda x: extend.bind(every, x)[0], in_shapes="(n,)", out_shapes="()")
    for n in range(4):
        assert bool(masked(np.array([True, True, False, False]), sizes={"n": n})) == (n < 3)
    assert compile_cost(ReduceEvery) == compile_cost(ReduceAnd)


@final
@primitive
class RollAxes(AxisMove):
    """Axis k of the result is axis k - 1 of the operand; axis 0 is the last one."""

    name: ClassVar[str] = "roll_axes"

    def _transpose(self, ndim: int) -> Transpose:
        return Transpose(tuple([(a - 1) % ndim for a in range(ndim)]))

    def places(self, ndim: int) -> tuple[int | None, ...]:
        return self._transpose(ndim).places(ndim)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return self._transpose(avals[0].ndim).abstract_eval(*avals)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return self._transpose(args[0].ndim).impl(*args)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return self._transpose(ins[0].ndim).lower(hlo, args, ins, outs)

    def batch_at(self, emit: Emit, x: Atom, dim: int) -> tuple[Atom, int]:
        return self._transpose(x.aval.ndim - 1).batch_at(emit, x, dim)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return self._transpose(x.ndim).cotangent(emit, ct, x, others)


def test_a_move_of_axes_takes_what_it_needs_from_its_family() -> None:
    x = np.arange(12.0).reshape(1, 3, 4)

    def rolled(x: Any) -> Any:
        return extend.bind(RollAxes(), x)[0]

    check_primitive(Application(RollAxes(), (x,)))
    np.testing.assert_array_equal(fx.inverse(fx.trace(rolled, x))(np.moveaxis(x, -1, 0)), x)
    log_det = fx.inverse(fx.trace(rolled, x), log_det=True)(np.moveaxis(x, -1, 0))[1]
    assert float(log_det) == 0.0
    assert compile_cost(RollAxes) == compile_cost(Transpose)
    masked = fx.mask(lambda x: fnp.sum(rolled(x) ** 2, axis=2), in_shapes="(1, n, 4)", out_shapes="(4, 1)")
    for n in range(4):
        np.testing.assert_allclose(masked(x, sizes={"n": n}), (x[:, :n] ** 2).sum(1).T)


@final
@primitive
class UnitLowerSolve(LinearSystem):
    """The X with A X = B, where A is lower triangular with ones on its diagonal."""

    name: ClassVar[str] = "unit_lower_solve"
    linear_operand: ClassVar[int] = 1

    @property
    def _solve(self) -> TriangularSolve:
        return TriangularSolve(True, True, False, False, True)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return self._solve.abstract_eval(*avals)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return self._solve.impl(*args)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return self._solve.lower(hlo, args, ins, outs)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        return self._solve.batch(ctx, args, dims)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        return self._solve.jvp(ctx, primals, tangents)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return self._solve.cotangent(emit, ct, x, others)

    def right_hand_side(self, emit: Emit, matrix: Atoms, x: Atom) -> Atom:
        return self._solve.right_hand_side(emit, matrix, x)


def test_a_linear_system_takes_what_it_needs_from_its_family() -> None:
    a, b = np.random.default_rng(0).normal(size=(4, 4)), np.arange(8.0).reshape(4, 2)

    def solved(a: Any, b: Any) -> Any:
        return extend.bind(UnitLowerSolve(), a, b)[0]

    check_primitive(Application(UnitLowerSolve(), (a, b)))
    unit = np.tril(a, -1) + np.eye(4)
    np.testing.assert_allclose(fx.inverse(fx.trace(solved, a, b), 1)(b, a), unit @ b)
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(fx.trace(solved, a, b), 0)
    assert e.value.message.endswith("unit_lower_solve is not inverted: its matrix is unknown")
    masked = fx.mask(solved, in_shapes=("(n, n)", "(n, 2)"), out_shapes="(n, 2)")
    for n in range(5):
        want = np.linalg.solve(unit[:n, :n], b[:n])
        np.testing.assert_allclose(np.asarray(masked(a, b, sizes={"n": n}))[:n], want, atol=1e-12)


@final
@primitive
class HalfDot(Contraction):
    """Half of the sums of products over the last axis of lhs and the first of rhs."""

    name: ClassVar[str] = "half_dot"
    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()

    @property
    def _dot(self) -> DotGeneral:
        return DotGeneral(self.lhs_contract, self.rhs_contract, self.lhs_batch, self.rhs_batch, None)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return self._dot.abstract_eval(*avals)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (y,) = self._dot.impl(*args)
        return (np.multiply(y, np.asarray(0.5, y.dtype)),)

    def _program(self, ins: Avals) -> Jaxpr:
        b = Builder()
        y = b.one(self._dot, *b.inputs(ins))
        return b.build([b.one(MUL, y, Lit.of(0.5, y.aval))], self.name)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.call(self._program(ins), args)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (y,), out_dims = self._dot.batch(ctx, args, dims)
        return (ctx.one(MUL, y, Lit.of(0.5, y.aval)),), out_dims

    def _half(self, emit: Emit, ct: Atom) -> Atom:
        return emit.one(MUL, ct, Lit.of(0.5, ct.aval))

    def lhs_cotangent(self, emit: Emit, ct: Atom, lhs: Aval, rhs: Atom) -> Atom:
        return self._dot.lhs_cotangent(emit, self._half(emit, ct), lhs, rhs)

    def rhs_cotangent(self, emit: Emit, ct: Atom, lhs: Atom, rhs: Aval) -> Atom:
        return self._dot.rhs_cotangent(emit, self._half(emit, ct), lhs, rhs)


def test_a_contraction_takes_what_it_needs_from_its_family() -> None:
    x, y = np.arange(6.0).reshape(2, 3), np.random.default_rng(0).normal(size=(3, 3))
    half = HalfDot((1,), (0,))

    def product(x: Any, y: Any) -> Any:
        return extend.bind(half, x, y)[0]

    check_primitive(Application(half, (x, y)))
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(fx.trace(product, x, y), 0)
    assert e.value.message.endswith("half_dot is not inverted: it has no inverse rule")
    assert compile_cost(HalfDot) == compile_cost(DotGeneral)
    masked = fx.mask(product, in_shapes=("(2, n)", "(n, 3)"), out_shapes="(2, 3)")
    for n in range(4):
        np.testing.assert_allclose(masked(x, y, sizes={"n": n}), x[:, :n] @ y[:n] / 2)
    kept = fx.residuals(fx.trace(fx.remat(lambda x, y: fnp.sum(fnp.sin(product(x, y))), policy=fx.policies.dots), x, y))
    assert "half_dot" in str(kept)


def test_sort_is_masked_by_its_family_too() -> None:
    """Without the row of `Sort`, the table gives the same values."""
    rules = MaskTable(MappingProxyType({k: r for k, r in MASK_RULES.rows.items() if k is not Sort}))
    b = Builder()
    program = b.build(b(Sort(0, 1), b.input(fx.Spec("(n,)").aval)), "f")
    values = np.array([2.0, np.nan, -np.inf, np.inf, 0.0, -1.0], np.float32)
    for n in range(7):
        of_family, of_row = [
            np.asarray(extend.call(mask(program, (("n", 6),), table), values, np.int32(n))[0])[:n]
            for table in (rules, MASK_RULES)
        ]
        np.testing.assert_array_equal(of_family, np.sort(values[:n]))
        np.testing.assert_array_equal(of_row, of_family)


# Where a primitive is public, drawn, or translated by its name in JAX.
INTERFACES = ("primitives", "operations", "lax", "numpy", "scipy", "nn", "random", "testing", "interop")
# What a primitive computes in another arithmetic: a finite field, pairs of floats. A member without a row is a function
# of its operands there, of which nothing else is known.
ARITHMETICS = (
    *[f"diagnosis/equality/{name}.py" for name in ("rules", "linear", "unknown", "bits", "extrema")],
    *("transforms/precision/double_double.py", "transforms/precision/local_errors.py"),
)


@cache
def sources() -> dict[str, str]:
    """Returns the text of each module that is no interface."""
    paths = {p.relative_to(ROOT / "fxad").as_posix(): p for p in sorted((ROOT / "fxad").rglob("*.py"))}
    return {place: p.read_text("utf-8") for place, p in paths.items() if not place.startswith(INTERFACES + ARITHMETICS)}


def names(source: str, name: str) -> bool:
    """Returns True if a module uses a name, or has it as a text; not in a comment or a longer text."""
    if re.search(rf"\b{name}\b", source) is None:
        return False
    nodes = ast.walk(ast.parse(source))
    return any(
        (isinstance(n, ast.Name) and n.id == name) or (isinstance(n, ast.Constant) and n.value == name) for n in nodes
    )


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        # where the family is not enough: a measured cost; a key of its own, and eigenvalues in order
        (TopK, {"support/constants.py"}),
        (  # it is exact in floats
            Sort,
            {
                "transforms/mask/rules/sorting.py",
                "transforms/mask/rules/linalg.py",
                "diagnosis/equality/differences.py",
            },
        ),
        # a log-determinant, and solves that others emit; two vectors beside the diagonal
        (
            TriangularSolve,  # its pattern is a triangle; its right-hand sides may be rows
            {
                "transforms/inversion/rules/products.py",
                "transforms/inversion/rules/systems.py",
                "transforms/jet/collapse/sums.py",
                "transforms/sparse/rules.py",
            },
        ),
        (TridiagonalSolve, {"transforms/mask/rules/linalg.py"}),
        # products are inverted by the structure of the matrix; axes of sums and directions; convolutions in float64
        (
            DotGeneral,
            {
                "transforms/inversion/rules/products.py",
                "transforms/jet/along.py",
                "transforms/jet/collapse/sums.py",
                "transforms/jet/directions/directions.py",
                "transforms/jet/directions/products.py",
                "transforms/precision/wide.py",
            },
        ),
        *[(kind, set()) for kind in (CumMax, CumMin, ReduceAnd, ReduceXor, ArgMax, ArgMin, ScatterMin, Igamma, Pmin)],
        *[(kind, set()) for kind in (Floor, Ceil, Lt, Ge, ShiftLeft, ReduceWindowProd)],
    ],
    ids=lambda x: x.__name__ if isinstance(x, type) else "",
)
def test_the_modules_that_name_a_member_of_a_family(kind: type[Primitive], where: set[str]) -> None:
    assert {place for place, source in sources().items() if names(source, kind.__name__)} == where
