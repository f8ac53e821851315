"""Checks of the arguments of samplers, and the errors that samplers share."""

from __future__ import annotations

from typing import Final

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, ShapeError, shown
from fxad.ir import Aval, Shape, as_shape
from fxad.numpy.creation import ShapeLike
from fxad.operations import promotion
from fxad.tracing.array import Array, ArrayLike, aval_of, is_scalar
from fxad.tracing.traced_numbers import dtype_of_number, is_number, number_array

FLOATS: Final = dtypes.FLOATING - dtypes.FLOAT8
_KEY: Final = Aval((2,), dtypes.uint32)


# ------------------------------------------------------------------------------------------------------------- keys


def check_key(name: str, key: ArrayLike) -> ArrayLike:
    """Return the key. Raises: ArgumentError, DTypeError, ShapeError."""
    if is_scalar(key):
        raise ArgumentError(
            f"{name}: takes a key, got {shown(key)}", remedy="make a key of it: fxad.random.key(seed), then split it"
        )
    if key is None or isinstance(key, tuple | list):
        raise ArgumentError(
            f"{name}: takes a key first, got {shown(key)}", remedy=f"{name}(fxad.random.key(seed), ...), then split it"
        )
    aval = aval_of(key, f"{name}: key")
    if aval is _KEY:
        return key
    if aval.dtype != dtypes.uint32:
        raise DTypeError(f"{name}: a key is u32[2], got {aval}", remedy="make keys with fxad.random.key and split")
    if aval.shape[-1:] == (2,):
        raise ShapeError(f"{name}: takes one key, u32[2], got keys {aval}", remedy="map over them with fxad.vmap")
    raise ShapeError(f"{name}: a key is u32[2], got {aval}", remedy="make keys with fxad.random.key and split")


def check_exact(name: str, method: str) -> None:
    """Check the `method` of a sampler. Raises: ParameterError unless it is "exact"."""
    if not isinstance(method, str) or method not in ("exact", "approximate"):
        raise ParameterError(f"{name}: method is {shown(method)}", remedy='use "exact"')
    if method == "approximate":
        raise ParameterError(
            f"{name}: there is no approximate method", remedy='use "exact": the draws have the distribution itself'
        )


# ----------------------------------------------------------------------------------------------------------- shapes


def result_shape(name: str, shape: ShapeLike | None) -> Shape:
    """Return the shape of the result. Raises: ShapeError."""
    try:
        return as_shape((shape,) if isinstance(shape, int) else shape)  # type: ignore[arg-type]  # it refuses None
    except ShapeError as e:
        remedy = e.remedy or "a shape is a tuple of ints that are not negative"
        raise ShapeError(f"{name}: {e.message}", remedy=remedy) from None


def broadcast_shape(name: str, shape: ShapeLike | None, **parameters: ArrayLike) -> Shape:
    """Return the shape of a result with parameters: their common shape, or `shape`, to which each must broadcast."""
    shapes = {which: aval_of(p, f"{name}: {which}").shape for which, p in parameters.items()}
    if shape is None:
        common: Shape = ()
        for own in shapes.values():
            common = promotion.common_shape(name, common, own)
        return common
    sizes = result_shape(name, shape)
    for which, own in shapes.items():
        check_fits(name, sizes, which, own)
    return sizes


def check_fits(name: str, shape: Shape, which: str, own: Shape) -> None:
    """Check that an array broadcasts to the shape of the result. Raises: ShapeError."""
    lead = len(shape) - len(own)
    if lead < 0 or any(n not in (1, m) for n, m in zip(own, shape[lead:], strict=True)):
        raise ShapeError(
            f"{name}: {which} of shape {own} does not broadcast to the shape {shape} of the result",
            remedy="the shape asked for must contain the parameters' shapes; leave it out for theirs",
        )


# ----------------------------------------------------------------------------------------------------------- dtypes


def float_dtype(name: str, dtype: object, **parameters: ArrayLike) -> DType:
    """Return the dtype of a floating result: `dtype`, else that of the parameters that are floating arrays, else
    float32. Raises: DTypeError."""
    return _choose_dtype(name, dtype, FLOATS, "float16, bfloat16, float32 or float64", dtypes.float32, parameters)


def inexact_dtype(name: str, dtype: object, **parameters: ArrayLike) -> DType:
    """As `float_dtype`, but `dtype` may be complex."""
    kinds = "float16, bfloat16, float32, float64, complex64 or complex128"
    return _choose_dtype(name, dtype, FLOATS | dtypes.COMPLEX, kinds, dtypes.float32, parameters)


def integer_dtype(name: str, dtype: object, default: DType = dtypes.int32) -> DType:
    """Return the dtype of an integer result. Raises: DTypeError."""
    return _choose_dtype(name, dtype, dtypes.INTEGER, "an integer dtype", default, {})


def _choose_dtype(
    name: str, dtype: object, takes: frozenset[DType], kinds: str, default: DType, parameters: dict[str, ArrayLike]
) -> DType:
    result = default
    if dtype is not None:
        result = dtypes.as_dtype(dtype)
        if result not in takes:
            raise DTypeError(f"{name}: dtype must be {kinds}, got {result.name}")
    else:
        own = [aval_of(p, f"{name}: {which}").dtype for which, p in parameters.items() if not is_number(p)]
        own = [d for d in own if d in takes]
        for k, d in enumerate(own):
            result = d if k == 0 else promotion.promote_dtypes(name, result, d)
    for which, p in parameters.items():
        own_dtype = aval_of(p, f"{name}: {which}").dtype
        if promotion.dtype_kind(own_dtype) > promotion.dtype_kind(result):
            raise DTypeError(
                f"{name}: {which} is {own_dtype.name}, which does not convert to {result.name}",
                remedy=f"convert {which} first, or ask for another dtype",
            )
    return result


def parameter_operand(value: ArrayLike, dtype: DType) -> ArrayLike:
    """Return a parameter as an operand: a Python scalar in the dtype of the result, an array unchanged."""
    if not is_number(value):
        return value
    dtype_of_number(value, dtype)
    operand = number_array(value, dtype)
    return operand if isinstance(operand, Array) else operand[()]


def argument_error(op: str, what: str, value: object, allowed: str) -> FxadError:
    """Return the error for a static argument with a value that the sampler does not take."""
    return ArgumentError(f"{op}: {what} must be {allowed}, got {shown(value)}")
