"""`draw`: check the arguments of a sampler, and call it as a composite (`fxad.numpy.composites`)."""

from __future__ import annotations

from collections.abc import Callable

from fxad.dtypes import DType
from fxad.numpy.composites import Composite, call_composite
from fxad.numpy.creation import ShapeLike
from fxad.random.arguments import broadcast_shape, check_key, float_dtype, parameter_operand, result_shape
from fxad.tracing.array import Array, ArrayLike


def draw(
    name: str,
    sampler: Composite,
    key: ArrayLike,
    shape: ShapeLike | None,
    dtype: object,
    /,
    dtype_rule: Callable[..., DType] = float_dtype,
    **parameters: ArrayLike,
) -> Array:
    """Check the arguments of a sampler with floating results, and call `sampler(key, *parameters, shape, dtype)`.

    Raises: ArgumentError, DTypeError, ShapeError.
    """
    chosen = dtype_rule(name, dtype, **parameters)
    sizes = broadcast_shape(name, shape, **parameters) if parameters else result_shape(name, shape)
    operands = (check_key(name, key), *[parameter_operand(p, chosen) for p in parameters.values()])
    return call_composite(sampler, operands, sizes, chosen)
