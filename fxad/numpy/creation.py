"""Array creation. Inside a traced function a filled array is a literal or an equation, not a constant in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias, cast, overload

import numpy as np
import numpy.typing as npt

from fxad import dtypes, lax
from fxad.core.numbers import NUMBER_ARGUMENTS, IntArgument, number_argument
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import Size, maximum
from fxad.errors import (
    NEEDS_STATIC,
    ArgumentError,
    DTypeError,
    FxadError,
    ParameterError,
    TracerError,
    described,
    exception_text,
    shown,
)
from fxad.lax.placement import place_like_operands
from fxad.numpy.apply import apply_op, as_array, diagonal_number, to_device
from fxad.operations import elementwise, promotion, shapes
from fxad.operations.arguments import contained_array, flag, to_int, word
from fxad.operations.promotion import optional_dtype
from fxad.primitives.elementwise.select import FLOOR
from fxad.primitives.index import index_dtype
from fxad.runtime import Device, SupportsDLPack
from fxad.tracing.array import Array, ArrayLike, aval_of, binder
from fxad.tracing.spec import Spec, spec_like
from fxad.tracing.traced_numbers import TracedNumber, dtype_of_number, is_number
from fxad.tracing.tracer import number_kind

Number: TypeAlias = "int | float | np.generic"
Nested: TypeAlias = "ArrayLike | Sequence[Nested]"
# A shape argument; one int is a vector of that size.
ShapeLike: TypeAlias = "int | Sequence[int]"


def zeros(shape: ShapeLike, dtype: object = None, *, device: Device | None = None) -> Array:
    """Return an array of zeros; float32 by default."""
    return to_device("zeros", lax.full(shape, False, float if dtype is None else dtype), device)


def ones(shape: ShapeLike, dtype: object = None, *, device: Device | None = None) -> Array:
    """Return an array of ones; float32 by default."""
    return to_device("ones", lax.full(shape, True, float if dtype is None else dtype), device)


def empty(shape: ShapeLike, dtype: object = None, *, device: Device | None = None) -> Array:
    """Return an array of zeros. fxad has no uninitialized memory."""
    return zeros(shape, dtype, device=device)


def full(shape: ShapeLike, fill_value: ArrayLike, dtype: object = None, *, device: Device | None = None) -> Array:
    """Return an array filled with one value, by default of the value's dtype."""
    return to_device("full", lax.full(shape, fill_value, dtype), device)


def zeros_like(
    a: ArrayLike | Spec, dtype: object = None, shape: ShapeLike | None = None, *, device: Device | None = None
) -> Array:
    """Return zeros, by default of the shape and dtype of `a`."""
    return _like("zeros_like", a, False, dtype, device, shape)


def ones_like(
    a: ArrayLike | Spec, dtype: object = None, shape: ShapeLike | None = None, *, device: Device | None = None
) -> Array:
    """Return ones, by default of the shape and dtype of `a`."""
    return _like("ones_like", a, True, dtype, device, shape)


def empty_like(
    prototype: ArrayLike | Spec, dtype: object = None, shape: ShapeLike | None = None, *, device: Device | None = None
) -> Array:
    """Return zeros, by default of the shape and dtype of `prototype`."""
    return _like("empty_like", prototype, False, dtype, device, shape)


def full_like(
    a: ArrayLike | Spec,
    fill_value: ArrayLike,
    dtype: object = None,
    shape: ShapeLike | None = None,
    *,
    device: Device | None = None,
) -> Array:
    """Return an array filled with one value, by default of the shape and dtype of `a`."""
    return _like("full_like", a, fill_value, dtype, device, shape)


def _like(
    name: str,
    x: ArrayLike | Spec,
    fill_value: ArrayLike,
    dtype: object,
    device: Device | None,
    shape: ShapeLike | None,
) -> Array:
    spec = spec_like(x)
    aval, like = (aval_of(x, f"{name}: argument 0"), x) if spec is None else (spec.aval, fill_value)
    out = lax.full(aval.shape if shape is None else shape, fill_value, aval.dtype if dtype is None else dtype)
    return (
        to_device(name, out, device)
        if device is not None
        else place_like_operands(name, (cast("ArrayLike", like), fill_value), out)
    )


# --------------------------------------------------------------------------------------------------------- counting


def arange(
    start: Number,
    stop: Number | None = None,
    step: Number = 1,
    dtype: object = None,
    *,
    device: Device | None = None,
) -> Array:
    """Return start, start + step, ... below stop. With one argument, start is 0.

    Type: where no dtype is given, int32 if all are ints (int64 if the elements do not fit), else float32.
    """
    first, last = (0, start) if stop is None else (start, stop)
    a, b, d = [_static_number("arange", k, v) for k, v in enumerate((first, last, step))]
    if d == 0:
        raise ParameterError("arange: step is 0")
    whole = isinstance(a, int) and isinstance(b, int) and isinstance(d, int)
    alone = dtypes.float32
    if isinstance(a, int) and isinstance(b, int) and isinstance(d, int):
        size = maximum(0, -((a - b) // d))
        alone = index_dtype([abs(k) for k in (a, b, d, a + (size - 1) * d) if type(k) is int])
    else:
        size = max(0, math.ceil((b - a) / d))
    want = dtypes.as_dtype(dtype) if dtype is not None else alone
    # counted in a dtype in which the positions are exact
    counts = want in dtypes.INTEGER if whole else want in dtypes.FLOATING and want.itemsize >= 4
    x = lax.iota(want if counts else alone, size)
    if want in dtypes.UNSIGNED and whole and d < 0:
        x = x * np.asarray(int(d) % (1 << 8 * want.itemsize), want)  # downwards, modulo 2^n
    else:
        x = x if d == 1 else x * d
    x = x if a == 0 else x + a
    return to_device("arange", x.astype(want) if x.dtype is not want else x, device)


def _static_number(name: str, k: int, value: object) -> int | float:
    remedy = "sizes are static: they cannot depend on the values of arrays"
    if isinstance(value, np.ndarray | Array) and not value.ndim:
        try:
            value = value.item()
        except TracerError:
            remedy = NEEDS_STATIC
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise ArgumentError(f"{name}: argument {k} must be a number, got {type(value).__qualname__}", remedy=remedy)
    if type(value) is Size:
        return value
    plain = int(value) if isinstance(value, int | np.integer) else float(value)
    if isinstance(plain, int) and plain.bit_length() > 63:
        raise ParameterError(f"{name}: argument {k} is an int of {plain.bit_length()} bits", remedy="give a float")
    if not math.isfinite(plain):
        raise ParameterError(f"{name}: argument {k} is {plain}", remedy="the number of elements must be finite")
    return plain


@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: Literal[False] = False,
    dtype: object = None,
    axis: int = 0,
    *,
    device: Device | None = None,
) -> Array: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    *,
    retstep: Literal[True],
    dtype: object = None,
    axis: int = 0,
    device: Device | None = None,
) -> tuple[Array, Array]: ...
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: object = None,
    axis: int = 0,
    *,
    device: Device | None = None,
) -> Array | tuple[Array, Array]:
    """Return `num` equally spaced values from start to stop. With `endpoint` the last value is stop. `retstep` also
    returns the distance between them; nan where there is none, as in NumPy: one value with `endpoint`, or no value."""
    retstep = flag("linspace", "retstep", retstep)
    axis = to_int("linspace", "axis", axis)
    endpoint = flag("linspace", "endpoint", endpoint)
    num = to_int("linspace", "num", num)
    if num < 0:
        raise ParameterError(f"linspace: {num} values")
    want = optional_dtype(dtype)
    start, stop = [_as_float(v) for v in (start, stop)]
    a, b = as_array("linspace", start), as_array("linspace", stop, 1)
    if want is not None:  # before anything is rounded: a Python number alone would be float32
        step_dtype = promotion.promote_dtypes("linspace", want, dtypes.float32)
        inner = dtypes.float64 if want in dtypes.INTEGER else step_dtype
        a, b = [asarray(v, inner) if is_number(v) else x for v, x in ((start, a), (stop, b))]
    else:
        inner = promotion.promote_dtypes("linspace", a.dtype, b.dtype)
        step_dtype = inner = inner if inner in dtypes.INEXACT else dtypes.float32
    a, b = a.astype(inner), b.astype(inner)
    steps = maximum(num - 1 if endpoint else num, 1)
    k = lax.reshape(lax.iota(inner, num), (num, *[1] * max(a.ndim, b.ndim)))
    step = (b - a) / steps
    # integers: a + k step, rounded down, would be one too small where an exact value is rounded
    x = (a * steps + k * (b - a)) // steps if want in dtypes.INTEGER else a + k * step
    if endpoint:  # the last value is `stop` exactly; a single value is `start`
        x = apply_op("linspace", elementwise.where, (b, x, k == steps))
    if axis:
        x = apply_op("linspace", shapes.moveaxis, (x,), 0, axis)
    if want in dtypes.INTEGER:
        x = apply_op("linspace", elementwise.round_unary, (x,), FLOOR)
    values = to_device("linspace", x if want is None else x.astype(want), device)
    if type(num) is int and num <= endpoint:
        step = lax.full_like(step, math.nan)
    elif retstep and not at_least(num, endpoint + 1):
        nan = lax.full_like(step, math.nan)
        step = apply_op("linspace", elementwise.where, (step, nan, asarray(num) > int(endpoint)))
    return (values, step.astype(step_dtype)) if retstep else values


def _as_float(x: ArrayLike) -> ArrayLike:
    """Return an int as a float, also a traced one. Other values are returned as they are."""
    if type(x) is TracedNumber:
        return x * 1.0 if x.number_type.kind is promotion.NumberKind.INTEGER else x
    return cast("ArrayLike", number_argument(float(x))) if type(x) is int or type(x) is IntArgument else x


def eye(
    N: int,
    M: int | None = None,
    k: int | Array = 0,
    dtype: object = None,
    *,
    device: Device | None = None,
) -> Array:
    """Return a matrix with ones on diagonal k and zeros elsewhere; square if `M` is not given. `k` may be traced."""
    traced, static = diagonal_number("eye", "k", k)
    want = dtypes.as_dtype(float if dtype is None else dtype)
    rows = to_int("eye", "N", N)
    columns = rows if M is None else to_int("eye", "M", M)
    return to_device("eye", binder().apply(shapes.eye, traced, (rows, columns, static, want))[0], device)


def identity(n: int, dtype: object = None) -> Array:
    """Return the n by n identity matrix."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int | Array = 0, dtype: object = None) -> Array:
    """Return an N by M matrix with ones on and below diagonal k, zeros above. `k` may be traced."""
    diagonal_number("tri", "k", k)
    return tril(ones((N, N if M is None else M), dtype), k)


def tril(m: ArrayLike, k: int | Array = 0) -> Array:
    """Return matrices with the elements on and below diagonal k, zeros above. `k` may be traced."""
    traced, static = diagonal_number("tril", "k", k)
    return apply_op("tril", shapes.triangle, (m, *traced), static, True)


def triu(m: ArrayLike, k: int | Array = 0) -> Array:
    """Return matrices with the elements on and above diagonal k, zeros below. `k` may be traced."""
    traced, static = diagonal_number("triu", "k", k)
    return apply_op("triu", shapes.triangle, (m, *traced), static, False)


def meshgrid(*arrays: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Array, ...]:
    """Return coordinate arrays of a grid, with one axis for each vector. "xy" exchanges the first two axes.

    Rule:   with `sparse` the other axes have size 1. Arrays are immutable, so `copy` has no effect.
    """
    sparse, _ = flag("meshgrid", "sparse", sparse), flag("meshgrid", "copy", copy)
    word("meshgrid", "indexing", indexing, ("xy", "ij"))
    vectors = [as_array("meshgrid", x, k) for k, x in enumerate(arrays)]
    sizes = [a.size for a in vectors]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[0], order[1] = 1, 0
    shape = tuple([sizes[a] for a in order])
    columns = [x.reshape([x.size if a == k else 1 for a in order]) for k, x in enumerate(vectors)]
    return tuple([c if sparse else apply_op("meshgrid", shapes.broadcast_to, (c,), shape) for c in columns])


# ------------------------------------------------------------------------------------------------- what users have


def asarray(
    a: Nested,
    dtype: object = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Device | None = None,
) -> Array:
    """Return an array of the values of an array, a scalar, a DLPack object or nested lists of these, or of an object
    with `__array__` (an image, a column of a table) or a buffer.

    Type:   a NumPy array keeps its dtype. Python scalars alone are bool, int32, float32 or complex64; beside arrays
            they take the dtype of the arrays.
    Rule:   writable memory is copied, so later changes of a NumPy array do not change the result.
    Raises: ArgumentError for rows of different lengths and for other objects; ParameterError if `copy=False` and a copy
            is needed.
    """
    _check_order("asarray", order)
    copy = None if copy is None else flag("asarray", "copy", copy)
    want = optional_dtype(dtype)
    if copy is False and not (isinstance(a, Array) and (want is None or want is a.dtype)):
        raise ParameterError(
            f"asarray: {described(a)} does not become an array without a copy", remedy="leave `copy` out"
        )
    if isinstance(a, list | tuple):
        out = _stack_nested(a, want)
    elif isinstance(a, bool | int | float | complex):
        promotion.scalar_dtype(a, want, "asarray: argument 0")
        out = lax.full((), a, want)
    else:
        if type(a) is TracedNumber and want is not None:  # it is rounded once
            a = a.astype(want)
        out = as_array("asarray", cast("ArrayLike", _exported(a)))
        out = out if want is None or want is out.dtype else out.astype(want)
    return to_device("asarray", out.copy() if copy and out is a else out, device)


def nested_array(name: str, x: Nested, k: int = 0) -> Array:
    """Return an argument as an Array, also nested lists, which NumPy takes where it compares or asks. Raises:
    ArgumentError."""
    return asarray(x) if isinstance(x, list | tuple) else as_array(name, cast("ArrayLike", x), k)


def _exported(x: object) -> object:
    """Return the NumPy array that an object exports by `__array__` or as a buffer. An array, a text and what exports
    nothing are returned as they are."""
    x = contained_array(x)
    if isinstance(x, Array | np.ndarray | np.generic | SupportsDLPack | type | str | bytes):
        return x
    if type(x).__module__.startswith("jax."):  # a tracer: the error says what to do
        return x
    if not hasattr(x, "__array__"):
        try:
            return np.asarray(memoryview(x))  # type: ignore[arg-type]  # any object
        except TypeError:
            return x
    try:
        return np.asarray(x)
    except FxadError:
        raise
    except Exception as e:
        message = f"asarray: the __array__ of {described(x)} raises {exception_text(e)}"
        raise ArgumentError(message, remedy="give an array of its numbers") from e


def array(
    object: Nested,
    dtype: object = None,
    copy: bool | None = None,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: Device | None = None,
) -> Array:
    """Return `asarray`, under NumPy's name. `ndmin` adds axes of size 1 in front.

    Raises: ParameterError for an order in memory, which arrays do not have.
    """
    copy = None if copy is None else flag("array", "copy", copy)
    _check_order("array", order)
    array = asarray(object, dtype, device=device, copy=copy)
    missing = to_int("array", "ndmin", ndmin) - array.ndim
    return array.reshape((1,) * missing + array.shape) if missing > 0 else array


def copy(a: ArrayLike, order: str | None = None) -> Array:
    """Return the values in memory of their own, which can be donated separately. Inside a trace: the array itself.

    Raises: ParameterError for an order in memory, which arrays do not have.
    """
    _check_order("copy", order)
    return as_array("copy", a).copy()


def _check_order(name: str, order: str | None) -> None:
    """Raise ParameterError for an order in memory, which arrays do not have."""
    if order is not None and not (isinstance(order, str) and order in ("K", "C", "A")):
        raise ParameterError(f"{name}: order {shown(order, 40)}; arrays have no layout", remedy="leave it out")


def from_dlpack(x: object, /, *, device: Device | None = None, copy: bool | None = None) -> Array:
    """Return an array that another library exports by DLPack, by default on the default device.

    Raises: ArgumentError for an object without DLPack; BufferError for `copy=False` if the memory is writable.
    """
    copy = None if copy is None else flag("from_dlpack", "copy", copy)
    if not isinstance(x, SupportsDLPack):
        raise ArgumentError(f"from_dlpack: {described(x)} has no __dlpack__", remedy="use asarray")
    if copy is False and not isinstance(x, Array):
        raise BufferError(f"from_dlpack: {described(x)} is copied, because others could write to its memory")
    out = as_array("from_dlpack", cast("ArrayLike", x))
    return to_device("from_dlpack", out.copy() if copy and out is x else out, device)


def _stack_nested(x: Sequence[object], want: dtypes.DType | None) -> Array:
    leaves = list(_nested_items(x))
    dtype = want or _dtype_of(leaves)
    if any([isinstance(leaf, Array) or type(leaf) is Size or type(leaf) in NUMBER_ARGUMENTS for leaf in leaves]):
        return _stack_scalars(x, dtype)
    if any([isinstance(leaf, _NOT_NUMERIC) for leaf in leaves]):  # NumPy converts text, None and dates to numbers
        _check_elements(leaves)
    try:
        value = np.asarray(cast("npt.ArrayLike", x), dtype=dtype if leaves else None)
    except (TypeError, ValueError) as e:
        _check_elements(leaves)
        if isinstance(e, ValueError) and _is_ragged(x):
            message = "asarray: the rows of nested lists must have one length"
            raise ArgumentError(message, remedy="fill the rows up; mask computes with ragged sizes") from None
        raise DTypeError(f"asarray: {e}: {dtype.name} cannot hold it", remedy="give another dtype") from None
    except OverflowError as e:
        raise DTypeError(f"asarray: {e}", remedy="give a wider dtype") from None
    return as_array("asarray", value.astype(dtype))


_NOT_NUMERIC: Final = (str, bytes, type(None), np.character, np.datetime64, np.timedelta64)


def _check_elements(leaves: Sequence[object]) -> None:
    """Check that the items of nested lists are numbers and arrays. Raises: ArgumentError, DTypeError."""
    for leaf in leaves:
        if not is_number(leaf):
            aval_of(leaf, "asarray: an element")


def _is_ragged(x: object) -> bool:
    try:
        np.asarray(cast("npt.ArrayLike", x))
    except ValueError:
        return True
    return False


def _nested_items(x: object) -> Iterator[object]:
    if isinstance(x, list | tuple):
        for part in x:
            yield from _nested_items(part)
    else:
        yield contained_array(x)


def _dtype_of(found: list[object]) -> dtypes.DType:
    """Return the common dtype of scalars and arrays. Scalars take the dtype of the arrays if their kind fits."""
    strong: dtypes.DType | None = None
    for leaf in found:
        if not is_number(leaf):
            d = aval_of(leaf, "asarray: an element").dtype
            strong = d if strong is None else promotion.promote_dtypes("asarray", strong, d)
    weak = [leaf for leaf in found if is_number(leaf)]
    alone = promotion.ALONE[max(map(number_kind, weak))] if weak else None
    if alone is not None and (strong is None or promotion.dtype_kind(alone) > promotion.dtype_kind(strong)):
        strong = alone
    for leaf in weak:
        dtype_of_number(leaf, strong, "asarray: an element")  # an int that does not fit is an error
    return strong or dtypes.float32


def _stack_scalars(x: object, dtype: dtypes.DType) -> Array:
    if not isinstance(x, list | tuple):
        return asarray(cast("Nested", x), dtype)
    rows = [_stack_scalars(part, dtype) for part in x]
    return apply_op("asarray", shapes.stack, tuple(rows), 0)
