"""Reductions of windows, selection by windows, reductions by a body, softmax, the barrier: laws, edges, messages."""

from __future__ import annotations

import numpy as np
import pytest

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.errors import ArgumentError, DTypeError, FxadError, NotDifferentiableError, ParameterError, ShapeError
from fxad.ir import Aval, Jaxpr, Primitive
from fxad.primitives.barrier import OPTIMIZATION_BARRIER
from fxad.primitives.elementwise import ADD, MAX, MUL
from fxad.primitives.fold import Reduce, ReduceWindow
from fxad.primitives.reduce_window import ReduceWindowMax, ReduceWindowMin, ReduceWindowProd, ReduceWindowSum
from fxad.primitives.select_and_scatter import SelectAndGatherAdd, SelectAndScatterAdd
from fxad.primitives.sliding import Padding, SlidingWindow
from fxad.primitives.softmax import Softmax
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.transpose import transpose
from fxad.transforms.vmap import vmap
from tests.primitives.harness import check, eqns, floats, program, same, second_order, xla

Kind = type[ReduceWindowSum | ReduceWindowMax | ReduceWindowMin | ReduceWindowProd]
KINDS: list[Kind] = [ReduceWindowSum, ReduceWindowMax, ReduceWindowMin, ReduceWindowProd]
SELECTIONS: list[type[SelectAndGatherAdd | SelectAndScatterAdd]] = [SelectAndGatherAdd, SelectAndScatterAdd]


def slide(
    window: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    padding: Padding | None = None,
    base: tuple[int, ...] | None = None,
    dilation: tuple[int, ...] | None = None,
) -> SlidingWindow:
    ones = (1,) * len(window)
    return SlidingWindow(window, strides or ones, padding or ((0, 0),) * len(window), base or ones, dilation or ones)


SLIDING: list[tuple[SlidingWindow, tuple[int, ...]]] = [
    (slide((2, 2), (2, 2)), (4, 5)),
    (slide((3, 2), (1, 2), ((1, 1), (0, 3))), (3, 4)),
    (slide((2, 3), (2, 1), ((2, 0), (-1, 2)), (2, 1), (1, 2)), (3, 5)),
    (slide((2,), (3,), ((4, 4),)), (2,)),  # windows that contain padding only
    (slide((3,)), (2,)),
    (slide((2,)), (0,)),
    (slide((2,), padding=((1, 2),)), (0,)),
    (slide((2, 1)), (3, 0)),
    (slide(()), ()),
]


@pytest.mark.parametrize(("sliding", "shape"), SLIDING)
@pytest.mark.parametrize("kind", KINDS)
def test_laws(kind: Kind, sliding: SlidingWindow, shape: tuple[int, ...]) -> None:
    inner = kind in (ReduceWindowSum, ReduceWindowProd) or _full(sliding, shape)
    check(kind(*sliding.values), floats(*shape), differentiate=inner)


def _full(sliding: SlidingWindow, shape: tuple[int, ...]) -> bool:
    """Returns True if every window has elements. The extremum of an empty one is infinite, and a difference of
    infinities is nan."""
    out = sliding.result_shape("", Aval(shape, "float64"))
    ones = sliding.windows(np.ones(shape), np.zeros(()))
    return bool(np.all(ones.sum(tuple(range(len(out), 2 * len(out)))) > 0)) if all(out) else True


@pytest.mark.parametrize(("sliding", "shape"), SLIDING)
@pytest.mark.parametrize("select", ["ge", "le"])
@pytest.mark.parametrize("kind", SELECTIONS)
def test_laws_of_selection_by_windows(
    kind: type[SelectAndGatherAdd | SelectAndScatterAdd], select: str, sliding: SlidingWindow, shape: tuple[int, ...]
) -> None:
    x = floats(*shape)
    value = floats(*shape) if kind is SelectAndGatherAdd else floats(*sliding.result_shape("", Aval(shape, "float64")))
    prim = kind(select, *sliding.values)
    check(prim, value, x, batching=select == "ge", differentiate=False)
    if select == "ge":
        check(prim, (10 * value).astype(np.int32), (3 * x).astype(np.int32), batching=False)
    p = program(prim, Aval(value.shape, "float64"), Aval(shape, "float64"))
    adjoint = transpose(p, (True, False))
    assert [type(e.prim) for e in adjoint.eqns] == [type(prim.adjoint())]


def test_large_and_dilated_windows_scatter_too() -> None:
    x = floats(12, 13)
    for sliding in (slide((9, 8), (2, 3), ((1, 0), (2, 2))), slide((5, 13), dilation=(2, 1))):
        source = floats(*sliding.result_shape("", Aval(x.shape, "float64")))
        check(SelectAndScatterAdd("ge", *sliding.values), source, x, batching=False, differentiate=False)
        check(SelectAndGatherAdd("le", *sliding.values), x + 1, x, batching=False, differentiate=False)


TIES = np.array([1.0, 3.0, 3.0, 2.0, -0.0, 0.0])


def test_the_first_of_equal_elements_has_the_derivative() -> None:
    p = program(ReduceWindowMax(*slide((3,), (3,)).values), Aval((6,), "float64"))
    adjoint = transpose(linearize(p, (True,)).linear, (True, False))
    assert eqns(adjoint) == ["select_and_scatter_add"]
    (bar,) = xla(adjoint, np.array([1.0, 2.0]), TIES)
    np.testing.assert_array_equal(bar, [0, 1, 0, 2, 0, 0])


def test_a_nan_is_selected_and_of_infinities_the_first() -> None:
    x = np.array([1.0, np.nan, 5.0, np.nan, -np.inf, -np.inf])
    prim = SelectAndScatterAdd("ge", *slide((2,), (2,)).values)
    p = program(prim, Aval((3,), "float64"), Aval((6,), "float64"))
    for run in (prim.impl, lambda *args: xla(p, *args)):
        (out,) = run(np.array([1.0, 2.0, 3.0]), x)
        np.testing.assert_array_equal(out, [0, 1, 0, 2, 3, 0])
    np.testing.assert_array_equal(ReduceWindowMax(*slide((2,), (2,)).values).impl(x)[0], [np.nan, np.nan, -np.inf])


def test_narrow_floats_are_combined_in_float32() -> None:
    """Regression: bfloat16 counts to 256, so the sum of windows of 4,096 ones was 1,024, and their mean 0.25."""
    x = np.ones((64, 65), dtypes.bfloat16)
    p = program(ReduceWindowSum(*slide((64, 64)).values), Aval(x.shape, x.dtype))
    np.testing.assert_array_equal(np.float64(xla(p, x)[0]), [[4096.0, 4096.0]])
    row = np.full(300, 1.0078125, dtypes.bfloat16)
    p = program(ReduceWindowProd(*slide((300,)).values), Aval(row.shape, row.dtype))
    assert xla(p, row)[0] == np.asarray([1.0078125**300], dtypes.bfloat16)


@pytest.mark.parametrize("sliding", [slide((60,)), slide((80,)), slide((41,), dilation=(2,))])
def test_narrow_values_are_scattered_in_float32(sliding: SlidingWindow) -> None:
    """Regression: the cotangents of windows with the same greatest element were added in the narrow dtype."""
    x = np.where(np.arange(161) == 80, 1, 0).astype(dtypes.float16)
    source = np.full(sliding.result_shape("", Aval(x.shape, x.dtype)), 77.3125, dtypes.float16)
    prim = SelectAndScatterAdd("ge", *sliding.values)
    p = program(prim, Aval(source.shape, source.dtype), Aval(x.shape, x.dtype))
    (out,) = xla(p, source, x)
    np.testing.assert_array_equal(out, prim.impl(source, x)[0])
    assert out.dtype == dtypes.float16


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.int8, dtypes.uint32, dtypes.bool_])
def test_dtypes(dtype: dtypes.DType) -> None:
    x = (3 * floats(4, 5)).astype(dtype)
    for kind in KINDS:
        if dtype != dtypes.bool_ or kind in (ReduceWindowMax, ReduceWindowMin):
            check(kind(*slide((2, 2), padding=((1, 0), (0, 1))).values), x, batching=False)


def test_second_order() -> None:
    p = program(ReduceWindowProd(*slide((2,)).values), Aval((3,), "float64"))
    b = Builder.like(p)
    (y,) = b.inline(p, p.ins)
    total = b.one(ReduceWindowSum(*slide((2,)).values), b.one(MUL, y, y))
    x = np.array([0.0, 2.0, 3.0])
    # second derivatives of the sum of the squares of xy and yz
    want = [[2 * 4, 0, 0], [0, 2 * 9, 4 * 6], [0, 4 * 6, 2 * 4]]
    np.testing.assert_allclose(np.real(second_order(b.build([total]), x))[..., 0], want)


# ------------------------------------------------------------------------------------------------------------- bodies


def body(*avals: Aval) -> Jaxpr:
    """Sums of all pairs but the last, and the maximum of the last."""
    b = Builder()
    left, right = b.inputs(avals), b.inputs(avals)
    pairs = list(zip(left, right, strict=True))
    return b.build([*[b.one(ADD, x, y) for x, y in pairs[:-1]], b.one(MAX, *pairs[-1])], "sums")


I32, F32 = Aval((), "int32"), Aval((), "float32")


def test_folds() -> None:
    x, y = np.arange(12, dtype=np.int32).reshape(3, 4), floats(3, 4).astype(np.float32)
    starts = np.array(0, np.int32), np.array(-9, np.float32)
    both = body(I32, F32)
    for prim in (Reduce(both, (1,)), Reduce(both, (0, 1)), ReduceWindow(both, *slide((2, 2), (1, 2)).values)):
        check(prim, x, y, *starts)
    empty = np.zeros((2, 0), np.float32)
    check(Reduce(body(F32), (1,)), empty, np.asarray(np.float32(-1)))


def test_initial_values_that_differ_by_example() -> None:
    """Each example starts from its own initial value, for any body."""
    from_each = program(Reduce(body(F32), (0,)), Aval((3,), "float32"), F32)
    x = floats(2, 3).astype(np.float32)
    batched, dims = vmap(from_each, 2, (0, 0))
    (out,) = xla(batched, x, np.array([-9.0, 9.0], np.float32))
    assert dims == (0,)
    same((out,), (np.array([x[0].max(), 9.0], np.float32),))


def test_a_fold_has_no_derivative() -> None:
    p = program(Reduce(body(F32), (0,)), Aval((3,), "float32"), F32)
    with pytest.raises(NotDifferentiableError) as e:
        jvp(p, (True, False))
    assert e.value.message == (
        "reduce: the derivative of a reduction by sums is not known: only reductions by add, mul, max and min have one"
    )
    assert e.value.remedy == "reduce by one of add, mul, max, min; or write it as lax.associative_scan or lax.scan"


# -------------------------------------------------------------------------------------------------- softmax, barrier


@pytest.mark.parametrize("axes", [(), (0,), (1,), (0, 1)])
def test_softmax(axes: tuple[int, ...]) -> None:
    check(Softmax(axes), floats(3, 4))
    check(Softmax(axes), floats(3, 0))
    check(Softmax(axes), (9 * floats(3, 4)).astype(dtypes.bfloat16))


def test_softmax_stores_its_result_alone() -> None:
    p = program(Softmax((0,)), Aval((3,), "float32"))
    split = linearize(p, (True,))
    assert split.primal.outs == (split.primal.outs[0],) * 2


def test_barrier() -> None:
    check(OPTIMIZATION_BARRIER, floats(2), np.array(3, np.int32), floats(3, 2) > 0)
    assert eqns(transpose(program(OPTIMIZATION_BARRIER, Aval((2,), "float32")), (True,))) == ["optimization_barrier"]


# ------------------------------------------------------------------------------------------------------------ messages

X = Aval((4, 5), "float32")
HALVES = slide((2, 2), (2, 2)).values

ERRORS: list[tuple[Primitive, tuple[Aval, ...], type[FxadError], str]] = [
    (
        ReduceWindowSum(*HALVES),
        (X.with_dtype(bool),),
        DTypeError,
        "reduce_window_sum: is not defined for bool[4,5]",
    ),
    (
        ReduceWindowMax(*HALVES),
        (X.with_dtype("complex64"),),
        DTypeError,
        "reduce_window_max: is not defined for c64[4,5]",
    ),
    (
        ReduceWindowSum(*slide((2,)).values),
        (X,),
        ParameterError,
        "reduce_window_sum: window (2,) has 1 entries for 2 axes",
    ),
    (
        ReduceWindowSum(*slide((2, 0)).values),
        (X,),
        ParameterError,
        "reduce_window_sum: window (2, 0) has an entry that is not positive",
    ),
    (
        ReduceWindowSum(*slide((2, 2), padding=((0, 0),)).values),
        (X,),
        ParameterError,
        "reduce_window_sum: padding ((0, 0),) has 1 pairs for 2 axes",
    ),
    (
        ReduceWindowSum(*slide((2, 2), padding=((0, 0), (-9, 1))).values),
        (X,),
        ShapeError,
        "reduce_window_sum: padding (-9, 1) drops more than axis 1 has: 5 elements",
    ),
    (
        SelectAndGatherAdd("gt", *HALVES),
        (X, X),
        ParameterError,
        "select_and_gather_add: select 'gt' is neither 'ge' nor 'le'",
    ),
    (
        SelectAndGatherAdd("ge", *HALVES),
        (X.with_shape((4, 4)), X),
        ShapeError,
        "select_and_gather_add: shapes differ: values f32[4,4], operand f32[4,5]",
    ),
    (
        SelectAndScatterAdd("ge", *HALVES),
        (X, X),
        ShapeError,
        "select_and_scatter_add: f32[4,5] has windows at (2, 2) places, the source is f32[4,5]",
    ),
    (
        SelectAndScatterAdd("ge", *HALVES),
        (Aval((2, 2), "float64"), X),
        DTypeError,
        "select_and_scatter_add: dtypes differ: value f64[2,2], operand f32[4,5]",
    ),
    (
        Reduce(body(F32), (0,)),
        (X,),
        ArgumentError,
        "reduce: takes as many initial values as operands, got 1 in all",
    ),
    (
        Reduce(body(F32, F32), (0,)),
        (X, X.with_shape((4,)), F32, F32),
        ShapeError,
        "reduce: shapes differ: operand 0 f32[4,5], operand 1 f32[4]",
    ),
    (
        Reduce(body(F32), (0,)),
        (X, X),
        ShapeError,
        "reduce: initial value 0 must be 0-d, got f32[4,5]",
    ),
    (
        Reduce(body(F32), (0,)),
        (X, I32),
        DTypeError,
        "reduce: dtypes differ: operand 0 f32[4,5], its initial value i32[]",
    ),
    (
        ReduceWindow(body(I32), *HALVES),
        (X, F32),
        ParameterError,
        "reduce_window: sums is (i32[], i32[]) -> (i32[]), expected (f32[], f32[]) -> (f32[])",
    ),
    (
        Softmax((0,)),
        (X.with_dtype("int32"),),
        DTypeError,
        "softmax: takes float (not float8) operands, got i32[4,5]",
    ),
]


@pytest.mark.parametrize(("prim", "avals", "kind", "message"), ERRORS)
def test_messages(prim: Primitive, avals: tuple[Aval, ...], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message
