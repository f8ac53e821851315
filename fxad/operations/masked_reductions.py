"""Reductions over the elements of a mask (`where=`), from an `initial` value: NumPy's further arguments.

Elements outside the mask are first replaced by the identity element, so neither their value nor their derivative, even
nan, reaches the result. A nan reduction with `where` or `initial` removes nans from the mask. Without them it does not
come here: `fxad.numpy.nans` computes it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Final, TypeAlias, cast, final

import numpy as np

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.core.numbers import NUMBER_TYPES
from fxad.dtypes import DType
from fxad.errors import DTypeError, ParameterError, ShapeError
from fxad.ir import Atom, Atoms, Emit, Lit, Primitive
from fxad.operations.arguments import flag, number
from fxad.operations.arithmetic import binary, ordered
from fxad.operations.axes import AxisLike, normalize_axes
from fxad.operations.promotion import Scalar, broadcast, common_shape, convert, dtype_kind, scalar_dtype
from fxad.operations.reductions import (
    accumulation_dtype,
    count_dtype,
    reduce_axes,
    restore_axes,
    root_of_squares,
    squared_magnitude,
    subtract_reduced,
    to_moment_dtype,
)
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MIN, MUL, SUB
from fxad.primitives.elementwise.logic import AND, EQ, GT
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, extreme_value
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import ReduceSum


@final
@dataclass(frozen=True, slots=True)
class MaskedReduction:
    """The static description of a reduction, and which further operands follow the array: `has_initial`, the initial
    value; `has_mask`, the mask."""

    name: str
    keepdims: bool
    dtype: DType | None
    correction: float
    has_initial: bool
    has_mask: bool

    @property
    def kind(self) -> str:
        """The name of the reduction without its `nan` prefix."""
        return self.name.removeprefix("nan")


# The static arguments of a reduction after `keepdims`: none, a dtype, or a dtype and a correction.
Options: TypeAlias = "tuple[()] | tuple[DType | None] | tuple[DType | None, float]"


def split_options(options: Options) -> tuple[DType | None, float]:
    """Return the dtype and the correction, or their defaults."""
    return options[0] if options else None, options[1] if len(options) == 2 else 0.0


def is_unmasked(initial: object, where: object) -> bool:
    """Return True if a reduction has neither a mask nor an initial value, so it needs no `MaskedReduction`."""
    return initial is None and (where is None or where is True)


def degrees_of_freedom(name: str, correction: object, ddof: object) -> float:
    """Return the number subtracted from the count in a variance, from either of its names. Raises: ParameterError for
    both."""
    refuse_both_names(name, correction, ddof)
    if correction is not None:
        return number(name, "correction", correction)
    return 0.0 if ddof is None else number(name, "ddof", ddof)


def refuse_both_names(name: str, correction: object, ddof: object) -> None:
    """Raise ParameterError if the correction of a variance is given under both of its names. As in NumPy, a `ddof` of 0
    is none."""
    if correction is not None and ddof is not None and not (isinstance(ddof, int | float) and ddof == 0):
        raise ParameterError(
            f"{name}: correction {correction} and ddof {ddof} are two names of one argument", remedy="give one of them"
        )


def plan_masked_reduction(
    name: str,
    x: DType,
    keepdims: bool,
    *,
    initial: object = None,
    where: object = None,
    dtype: DType | None = None,
    correction: float = 0,
) -> tuple[tuple[object, ...], MaskedReduction]:
    """Return the operands of `masked_reduction` after an x of this dtype, and its last static argument."""
    if type(initial) in NUMBER_TYPES:  # in the dtype of the result, not in that of x
        value = cast("Scalar", initial)
        if x is dtypes.bool_ and type(value) is int and value in (0, 1) and name.removeprefix("nan") in ("max", "min"):
            value = bool(value)
        initial = np.asarray(value, scalar_dtype(value, _result_dtype(name, x, dtype), f"{name}: initial"))[()]
    has_mask = where is not None and where is not True
    spec = MaskedReduction(name, flag(name, "keepdims", keepdims), dtype, correction, initial is not None, has_mask)
    mask = np.bool_(False) if where is False else where  # a Python bool would take the dtype of x
    return (*[initial] * spec.has_initial, *[mask] * has_mask), spec


def _result_dtype(name: str, x: DType, dtype: DType | None) -> DType:
    return dtype or (accumulation_dtype(x) if name.removeprefix("nan") in ("sum", "prod") else x)


def masked_reduction(emit: Emit, x: Atom, *args: *tuple[*tuple[Atom, ...], AxisLike, MaskedReduction]) -> Atoms:
    """Return a reduction of x. Arguments: the initial value and the mask, if any, the axis and a `MaskedReduction`."""
    *atoms, axis, spec = args
    operands = iter(atoms)
    initial = next(operands) if spec.has_initial else None
    mask = _fit_mask(emit, x, next(operands), spec.name) if spec.has_mask else None
    axes = normalize_axes(spec.name, axis, x.aval.ndim)
    if spec.name != spec.kind and x.aval.dtype in dtypes.INEXACT:
        not_nan = emit.one(EQ, x, x)
        mask = not_nan if mask is None else emit.one(AND, mask, not_nan)
    if spec.kind in ("any", "all"):
        y = _reduce_bool(emit, x, mask, axes, spec)
    elif spec.kind in ("mean", "var", "std"):
        y = _reduce_moments(emit, x, mask, axes, spec)
    else:
        y = _reduce_extremum_or_sum(emit, x, initial, mask, axes, spec)
    return restore_axes(spec.name, emit, y, x, axes, spec.keepdims)


def _fit_mask(emit: Emit, x: Atom, where: Atom, name: str) -> Atom:
    """Return the mask in the shape of x. Raises: DTypeError, ShapeError."""
    if where.aval.dtype is not dtypes.bool_:
        raise DTypeError(f"{name}: where must be bool, got {where.aval}", remedy="compare it, as in where=mask != 0")
    if common_shape(f"{name}: where", x.aval.shape, where.aval.shape) != x.aval.shape:
        raise ShapeError(
            f"{name}: where has shape {where.aval.shape}, which does not fit into {x.aval.shape}, the shape of x",
            remedy="broadcast x first: fxad.numpy.broadcast_to",
        )
    return broadcast(emit, where, x.aval.shape)


def _select_kept(emit: Emit, x: Atom, mask: Atom | None, other: Lit) -> Atom:
    """Return x where the mask holds, `other` elsewhere."""
    return x if mask is None else emit_where(emit, mask, x, other.with_shape(x.aval.shape))


def _reduce_bool(emit: Emit, x: Atom, mask: Atom | None, axes: tuple[int, ...], spec: MaskedReduction) -> Atom:
    true = convert(emit, x, dtypes.bool_)
    return reduce_axes(
        emit,
        _select_kept(emit, true, mask, Lit.of(spec.kind == "all", true.aval)),
        ReduceAnd if spec.kind == "all" else ReduceOr,
        axes,
    )


# ------------------------------------------------------------------------------------- sums, products and extrema

_COMBINE: Final = MappingProxyType(
    {"sum": (ReduceSum, ADD), "prod": (ReduceProd, MUL), "max": (ReduceMax, MAX), "min": (ReduceMin, MIN)}
)


def _reduce_extremum_or_sum(
    emit: Emit, x: Atom, initial: Atom | None, mask: Atom | None, axes: tuple[int, ...], spec: MaskedReduction
) -> Atom:
    reduction, combine = cast("tuple[Callable[[tuple[int, ...]], Primitive], Primitive]", _COMBINE[spec.kind])
    dtype = _result_dtype(spec.name, x.aval.dtype, spec.dtype)
    if x.aval.dtype is dtypes.bool_ and dtype is dtypes.int32 and spec.dtype is None:
        dtype = count_dtype(x.aval, axes)
    x = convert(emit, x, dtype)
    if spec.kind in ("max", "min"):
        if initial is None:
            raise ParameterError(
                f"{spec.name}: where needs an initial value: there is no {spec.kind} where the mask leaves nothing",
                remedy="give initial, a value to begin from",
            )
        identity = extreme_value(x.aval.dtype, -1 if spec.kind == "max" else 1)
    else:
        identity = Lit.of(spec.kind == "prod", x.aval)
    y = reduce_axes(emit, _select_kept(emit, x, mask, identity), reduction, axes)
    if initial is None:
        return y
    if initial.aval.shape != ():
        raise ShapeError(f"{spec.name}: initial must be one number, got {initial.aval}")
    if dtype_kind(initial.aval.dtype) > dtype_kind(y.aval.dtype):
        raise DTypeError(
            f"{spec.name}: initial is {initial.aval.dtype.name}, the result {y.aval.dtype.name}",
            remedy="convert the array with astype, or initial",
        )
    start = broadcast(emit, convert(emit, initial, y.aval.dtype), y.aval.shape)
    return (ordered if spec.kind in ("max", "min") else binary)(emit, y, start, combine)[0]


# --------------------------------------------------------------------------------------------------------- moments


def _reduce_moments(emit: Emit, x: Atom, mask: Atom | None, axes: tuple[int, ...], spec: MaskedReduction) -> Atom:
    x, dtype = to_moment_dtype(spec.name, emit, x, spec.dtype)
    if mask is None:  # a nan reduction of integers
        mask = Lit.of(True, x.aval.with_dtype(dtypes.bool_))
    zero = Lit.of(0, x.aval)
    selected = _select_kept(emit, x, mask, zero)
    total = reduce_axes(emit, selected, ReduceSum, axes)
    count = reduce_axes(emit, convert(emit, mask, count_dtype(mask.aval, axes)), ReduceSum, axes)
    if spec.kind == "mean":
        return convert(emit, emit.one(DIV, total, convert(emit, count, x.aval.dtype)), dtype)
    # at least 1, to avoid a division by 0: the result of an empty count is nan anyway
    divisor = convert(emit, emit.one(MAX, count, Lit.of(1, count.aval)), x.aval.dtype)
    deviation = subtract_reduced(emit, selected, emit.one(DIV, total, divisor), axes)
    deviation = _select_kept(emit, deviation, mask, zero)
    squares = reduce_axes(emit, squared_magnitude(emit, deviation), ReduceSum, axes)
    real = squares.aval
    degrees = emit.one(SUB, convert(emit, count, real.dtype), Lit.of(spec.correction, real))
    degrees = emit_where(emit, emit.one(GT, degrees, Lit.of(0, real)), degrees, Lit.of(np.nan, real))
    y = emit.one(DIV, squares, degrees)
    return convert(emit, root_of_squares(emit, y)[0] if spec.kind == "std" else y, dtypes.real_part(dtype))
