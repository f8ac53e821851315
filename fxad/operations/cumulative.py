"""Cumulative operations in equations, in the dtypes of NumPy's reductions."""

from __future__ import annotations

from fxad.dtypes import DType
from fxad.errors import ShapeError
from fxad.ir import Atom, Atoms, Emit, Lit
from fxad.operations.axes import normalize_axis_index
from fxad.operations.promotion import convert
from fxad.operations.reductions import accumulation_dtype
from fxad.primitives.cumulative import CumProd, CumSum
from fxad.primitives.shape import emit_reshape
from fxad.primitives.slicing import Pad


def cumulate_flat(emit: Emit, x: Atom, product: bool, axis: int | None, dtype: DType | None) -> Atoms:
    """NumPy's rule: for axis None the array is flattened."""
    if axis is None:
        x, axis = emit_reshape(emit, x, (x.aval.size,)), 0
    return _cumulate(emit, x, product, axis, dtype)


def _cumulate(emit: Emit, x: Atom, product: bool, axis: int, dtype: DType | None) -> Atoms:
    k = normalize_axis_index("cumprod" if product else "cumsum", axis, x.aval.ndim)
    return emit((CumProd if product else CumSum)(k, False), convert(emit, x, dtype or accumulation_dtype(x.aval.dtype)))


def cumulate_array_api(
    emit: Emit, x: Atom, product: bool, axis: int | None, dtype: DType | None, include: bool
) -> Atoms:
    """The array API's rule: axis None is for 1-d arrays only; `include` prepends the identity element."""
    name, unit = ("cumulative_prod", 1) if product else ("cumulative_sum", 0)
    if axis is None and x.aval.ndim != 1:
        raise ShapeError(f"{name}: an array with {x.aval.ndim} axes needs an axis", remedy="pass axis=")
    k = normalize_axis_index(name, 0 if axis is None else axis, x.aval.ndim)
    (y,) = _cumulate(emit, x, product, k, dtype)
    if not include:
        return (y,)
    none = (0,) * x.aval.ndim
    return emit(Pad((*none[:k], 1, *none[k + 1 :]), none, none), y, Lit.of(unit, y.aval.with_shape(())))
