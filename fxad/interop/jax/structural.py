"""Primitives of JAX that move, combine or contract elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from fxad import lax
from fxad.dtypes import DType
from fxad.interop.jax.equations import EqnTranslation, Equation, JaxValue, OpenJaxpr, Rows, array, arrays, with_params
from fxad.ir import Primitive
from fxad.lax.convolution import ConvDimensionNumbers
from fxad.lax.indexing import GatherDimensionNumbers, ScatterDimensionNumbers
from fxad.primitives.reduce_window import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum
from fxad.tracing.array import Array
from fxad.tracing.tracer import bind

# --------------------------------------------------------------------------------------------------------- shapes


def _reshape(eqn: Equation, x: JaxValue) -> Array:
    if eqn.params["dimensions"] is not None:
        x = lax.transpose(x, eqn.params["dimensions"])
    return lax.reshape(x, eqn.params["new_sizes"])


def _broadcast_in_dim(eqn: Equation, x: JaxValue) -> Array:
    shape, dims = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    return lax.full(shape, x, x.dtype) if isinstance(x, np.generic) else lax.broadcast_in_dim(x, shape, dims)


def _dynamic_slice(eqn: Equation, x: JaxValue, *starts: JaxValue) -> Array:
    if len(starts) != x.ndim:
        raise eqn.refuse("it has dynamic sizes", "give sizes that are numbers")
    return lax.dynamic_slice(x, starts, eqn.params["slice_sizes"])


def _dynamic_update_slice(eqn: Equation, x: JaxValue, update: JaxValue, *starts: JaxValue) -> Array:
    return lax.dynamic_update_slice(x, update, starts)


def _zeros(eqn: Equation, *_: JaxValue) -> Array:
    return lax.full(eqn.shape, 0, eqn.dtype)


# ------------------------------------------------------------------------------------------------------- indexing

# JAX's `GatherScatterMode`
_MODES: Final = MappingProxyType({"CLIP": "clip", "FILL_OR_DROP": "drop", "PROMISE_IN_BOUNDS": "promise_in_bounds"})


def _mode(eqn: Equation) -> str:
    mode = eqn.params["mode"]
    name = "CLIP" if mode is None else mode.name
    if name not in _MODES:
        raise eqn.refuse(f"its mode is {name}", f"use one of {' '.join(_MODES)}")
    return _MODES[name]


def _gather(eqn: Equation, x: JaxValue, indices: JaxValue) -> Array:
    d, p, fill = eqn.params["dimension_numbers"], eqn.params, eqn.params["fill_value"]
    numbers = GatherDimensionNumbers(
        d.offset_dims,
        d.collapsed_slice_dims,
        d.start_index_map,
        d.operand_batching_dims,
        d.start_indices_batching_dims,
    )
    return lax.gather(
        x,
        indices,
        numbers,
        p["slice_sizes"],
        unique_indices=p["unique_indices"],
        indices_are_sorted=p["indices_are_sorted"],
        mode=_mode(eqn),
        fill_value=None if fill is None else np.asarray(fill, x.dtype).reshape(1)[0],
    )


def _scatter(fn: Callable[..., Array]) -> Callable[..., Array]:
    def row(eqn: Equation, x: JaxValue, indices: JaxValue, updates: JaxValue) -> Array:
        d, p = eqn.params["dimension_numbers"], eqn.params
        numbers = ScatterDimensionNumbers(
            d.update_window_dims,
            d.inserted_window_dims,
            d.scatter_dims_to_operand_dims,
            d.operand_batching_dims,
            d.scatter_indices_batching_dims,
        )
        return fn(
            array(x),
            indices,
            updates,
            numbers,
            indices_are_sorted=p["indices_are_sorted"],
            unique_indices=p["unique_indices"],
            mode=_mode(eqn),
        )

    return row


_SCATTER: Final = _scatter(lax.scatter)


def _scatter_apply(eqn: Equation, x: JaxValue, indices: JaxValue, updates: JaxValue) -> Array:
    body = eqn.params["update_jaxpr"]
    if eqn.name == "scatter" and (body is None or not body.eqns):
        return _SCATTER(eqn, x, indices, updates)
    raise eqn.refuse("it applies a function of its own", "use scatter_add, scatter_mul, scatter_min or scatter_max")


# ----------------------------------------------------------------------------------------------------- reductions


def _arg_extremum(fn: Callable[..., object]) -> EqnTranslation:
    return lambda eqn, x: fn(x, eqn.params["axes"][0], eqn.params["index_dtype"])


def _combination(eqn: Equation, jaxpr: OpenJaxpr, consts: Sequence[object]) -> Callable[..., tuple[JaxValue, ...]]:
    """Return the function of two tuples of scalars that a reduction applies."""
    return lambda a, b: tuple(eqn.run_open(jaxpr, consts, (*a, *b)))


def _reduce(eqn: Equation, *args: JaxValue) -> tuple[Array, ...]:
    n, closed = len(args) // 2, eqn.params["jaxpr"]
    combine = _combination(eqn, closed.jaxpr, tuple(closed.consts))
    return lax.reduce(arrays(args[:n]), args[n:], combine, eqn.params["dimensions"])


def _windows(eqn: Equation) -> tuple[Any, ...]:
    p = eqn.params
    return (
        p["window_dimensions"],
        p["window_strides"],
        tuple([tuple(pair) for pair in p["padding"]]),
        p.get("base_dilation"),
        p.get("window_dilation"),
    )


def _reduce_window(eqn: Equation, *args: JaxValue) -> tuple[Array, ...]:
    n = len(args) // 2
    combine = _combination(eqn, eqn.params["jaxpr"], tuple(eqn.params["consts"]))
    return lax.reduce_window(arrays(args[:n]), args[n:], combine, *_windows(eqn))


def _window_reduction(prim: Callable[..., Primitive]) -> EqnTranslation:
    def row(eqn: Equation, x: JaxValue) -> Array:
        window, strides, padding, base, dilation = _windows(eqn)
        ones = (1,) * len(window)
        return bind(prim(window, strides, padding, base or ones, dilation or ones), x)[0]

    return row


def _selecting(fn: Callable[..., Array]) -> EqnTranslation:
    """Return the row of a function that selects an element of each window by the comparison "ge" or "le"."""
    return lambda eqn, x, y: fn(x, y, eqn.params["select_prim"].name, *_windows(eqn))


# ---------------------------------------------------------------------------------------- sorting and contractions


def _sort(eqn: Equation, *xs: JaxValue) -> tuple[Array, ...]:
    p = eqn.params
    return lax.sort(arrays(xs), p["dimension"], p["is_stable"], p["num_keys"])


def _top_k(eqn: Equation, x: JaxValue) -> tuple[Array, Array]:
    axis = eqn.params.get("axis", -1)
    return lax.top_k(x, eqn.params["k"], axis=axis)


def _approx_top_k(eqn: Equation, x: JaxValue) -> tuple[Array, Array]:
    """Return the exact result, which is one of the approximations."""
    p = eqn.params
    if p["reduction_input_size_override"] != -1 or not p["aggregate_to_topk"]:
        raise eqn.refuse("it returns partial reductions", "leave out aggregate_to_topk and the size override")
    axis = p["reduction_dimension"]
    values, places = lax.top_k(x if p["is_max_k"] else lax.neg(x), p["k"], axis=axis)
    return (values if p["is_max_k"] else lax.neg(values)), places


def _one_dtype(*xs: JaxValue) -> list[Array]:
    """Return operands of one dtype: JAX's contractions take two, whose common dtype is that of the result or wider."""
    wanted = np.result_type(*[x.dtype for x in xs]) if len({x.dtype for x in xs}) > 1 else xs[0].dtype
    return [array(x) if x.dtype == wanted else lax.convert_element_type(x, wanted) for x in xs]


def _precision(eqn: Equation) -> Any:
    """Return the precision of products: a pair, the name of a preset of an algorithm, or an algorithm."""
    precision = eqn.params["precision"]
    if type(precision).__name__ == "DotAlgorithmPreset":
        return precision.name
    if type(precision).__name__ == "DotAlgorithm":
        return lax.DotAlgorithm(*precision)
    pair = precision if isinstance(precision, tuple) else (precision, precision)
    return tuple(["default" if p is None else p.name.lower() for p in pair])


def _preferred(eqn: Equation, x: Array) -> DType | None:
    """Return the dtype of the result of a product; None if it is that of the operands."""
    return None if eqn.dtype == x.dtype else eqn.dtype


def _dot_general(eqn: Equation, x: JaxValue, y: JaxValue) -> Array:
    precision = _precision(eqn)
    x, y = _one_dtype(x, y)
    return lax.dot_general(x, y, eqn.params["dimension_numbers"], precision, _preferred(eqn, x))


def _ragged_dot_general(eqn: Equation, x: JaxValue, y: JaxValue, sizes: JaxValue) -> Array:
    d = eqn.params["ragged_dot_dimension_numbers"]
    numbers = lax.RaggedDotDimensionNumbers(d.dot_dimension_numbers, d.lhs_ragged_dimensions, d.rhs_group_dimensions)
    x, y = _one_dtype(x, y)
    return lax.ragged_dot_general(x, y, sizes, numbers, _precision(eqn), _preferred(eqn, x))


def _convolution(eqn: Equation, x: JaxValue, kernel: JaxValue) -> Array:
    precision = _precision(eqn)
    x, kernel = _one_dtype(x, kernel)
    p, d = eqn.params, eqn.params["dimension_numbers"]
    return lax.conv_general_dilated(
        x,
        kernel,
        p["window_strides"],
        tuple([tuple(pair) for pair in p["padding"]]),
        p["lhs_dilation"],
        p["rhs_dilation"],
        ConvDimensionNumbers(d.lhs_spec, d.rhs_spec, d.out_spec),
        p["feature_group_count"],
        p["batch_group_count"],
        precision,
        preferred_element_type=_preferred(eqn, x),
    )


# Functions that have the names and the parameters of JAX's primitives
_SCATTERS: Final = (lax.scatter_add, lax.scatter_sub, lax.scatter_mul, lax.scatter_min, lax.scatter_max)
_REDUCTIONS: Final = (
    lax.reduce_sum, lax.reduce_prod, lax.reduce_max, lax.reduce_min, lax.reduce_and, lax.reduce_or, lax.reduce_xor,
)  # fmt: skip
_CUMULATIVE: Final = (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp)

STRUCTURAL: Final[Rows] = MappingProxyType({
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "transpose": with_params(lax.transpose, "permutation"),
    "squeeze": with_params(lax.squeeze, "dimensions"),
    "rev": with_params(lax.rev, "dimensions"),
    "concatenate": lambda eqn, *xs: lax.concatenate(xs, eqn.params["dimension"]),
    "split": with_params(lax.split, "sizes", "axis"),
    "stack": lambda eqn, *xs: lax.stack(xs, eqn.params["axis"]),
    "unstack": with_params(lax.unstack, "axis"),
    "tile": with_params(lax.tile, "reps"),
    "pad": with_params(lax.pad, "padding_config"),
    "slice": with_params(lax.slice, "start_indices", "limit_indices", "strides"),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "iota": lambda eqn: lax.broadcasted_iota(eqn.dtype, eqn.shape, eqn.params["dimension"]),
    "empty": _zeros,
    "empty2": _zeros,
    "zeros_like": _zeros,
    "gather": _gather,
    "scatter": _scatter_apply,
    **{fn.__name__.replace("_", "-"): _scatter(fn) for fn in _SCATTERS},
    **{fn.__name__: with_params(fn, "axes") for fn in _REDUCTIONS},
    **{fn.__name__: with_params(fn, "axis", "reverse") for fn in _CUMULATIVE},
    "argmax": _arg_extremum(lax.argmax),
    "argmin": _arg_extremum(lax.argmin),
    "reduce": _reduce,
    "reduce_window": _reduce_window,
    "reduce_window_sum": _window_reduction(ReduceWindowSum),
    "reduce_window_max": _window_reduction(ReduceWindowMax),
    "reduce_window_min": _window_reduction(ReduceWindowMin),
    "select_and_scatter_add": _selecting(lax.select_and_scatter_add),
    "select_and_gather_add": _selecting(lax.select_and_gather_add),
    "sort": _sort,
    "top_k": _top_k,
    "approx_top_k": _approx_top_k,
    "dot_general": _dot_general,
    "ragged_dot_general": _ragged_dot_general,
    "conv_general_dilated": _convolution,
    "fft": lambda eqn, x: lax.fft(x, eqn.params["fft_type"].name, eqn.params["fft_lengths"]),
})  # fmt: skip
