"""Random programs of the operations that XLA rewrites most: windows, padding, slices, gathers, scatters, sorts and
convolutions, joined by elementwise operations and changes of shape.

A form is a function of the random numbers and an array: it draws its parameters and returns the new array. A program
applies several forms one after the other. It draws from a generator that each trace seeds anew, so it is one program
however often it is traced. Forms use the public functions, as users do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias, final

import ml_dtypes
import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn
from fxad.errors import FxadError

Draw: TypeAlias = np.random.Generator
Form: TypeAlias = Callable[[Draw, Any], Any]

LARGEST: Final = 100_000  # elements of an operand
MOST: Final = 300_000  # elements of any array
INTERPRETED_FOLDS: Final = 300  # elements that the interpreter combines one by one


def one_of(draw: Draw, choices: Sequence[Any]) -> Any:
    return choices[int(draw.integers(len(choices)))]


def _each(draw: Draw, n: int, choices: Sequence[int]) -> tuple[int, ...]:
    return tuple([one_of(draw, choices) for _ in range(n)])


def _pads(draw: Draw, shape: Sequence[int], base: Sequence[int]) -> list[tuple[int, int]]:
    """Padding that may drop elements, and may be larger than the array."""
    pairs = []
    for n, b in zip(shape, base, strict=True):
        full = (n - 1) * b + 1 if n else 0
        low = one_of(draw, [0, 0, 1, 2, 5, -1, -2])
        low = max(low, -full)
        high = one_of(draw, [0, 0, 1, 2, 9, -1, -2])
        pairs.append((low, max(high, -(full + low))))
    return pairs


def _is_float(x: Any) -> bool:
    return np.issubdtype(x.dtype, np.floating) or x.dtype == ml_dtypes.bfloat16


# ------------------------------------------------------------------------------------------------------------ windows


def _windows(draw: Draw, x: Any) -> tuple[Any, ...]:
    n = x.ndim
    window, base = _each(draw, n, [1, 1, 2, 3, 4]), _each(draw, n, [1, 1, 1, 2, 3])
    return window, _each(draw, n, [1, 1, 2, 3]), _pads(draw, x.shape, base), base, _each(draw, n, [1, 1, 2, 3])


def reduce_window(draw: Draw, x: Any) -> Any:
    kind = one_of(draw, ["add", "max", "min", "mul", "other"])
    windows = _windows(draw, x)
    if kind == "other" and x.size * prod(windows[0]) > INTERPRETED_FOLDS:
        kind = "max"
    if kind in ("max", "min"):
        end = nn_extreme(x.dtype, kind)
        return lax.reduce_window(x, end, getattr(lax, kind), *windows)
    init = np.asarray(kind == "mul", x.dtype)
    if kind == "other":
        x = lax.stop_gradient(x)  # it has no derivative
        return lax.reduce_window(x, init, lambda a, b: lax.add(lax.mul(a, b), lax.max(a, b)), *windows)
    return lax.reduce_window(x, init, getattr(lax, kind), *windows)


def nn_extreme(dtype: Any, kind: str) -> Any:
    """The identity of a maximum or minimum."""
    sign = -1 if kind == "max" else 1
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return np.asarray(info.min if kind == "max" else info.max, dtype)
    return np.asarray(sign * np.inf, dtype)


def select(draw: Draw, x: Any) -> Any:
    windows, order = _windows(draw, x), one_of(draw, ["ge", "le"])
    if draw.integers(2):
        return lax.select_and_gather_add(x * x, x, order, *windows)
    source = lax.select_and_gather_add(x, x, order, *windows)
    return lax.select_and_scatter_add(source * source, x, order, *windows)


def pool(draw: Draw, x: Any) -> Any:
    batched = fnp.reshape(x, (1, *x.shape, 1))
    window, strides = _each(draw, x.ndim, [1, 2, 3]), _each(draw, x.ndim, [1, 2, 3])
    function = one_of(draw, [nn.avg_pool, nn.max_pool, nn.min_pool])
    return function(batched, window, strides, one_of(draw, ["SAME", "VALID"]))


def cumulative(draw: Draw, x: Any) -> Any:
    name = one_of(draw, ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
    if not x.ndim or (name == "cumlogsumexp" and not _is_float(x)):
        return x
    axis = int(draw.integers(x.ndim))
    if name == "cumprod":
        x = x if not _is_float(x) else fnp.tanh(x) + fnp.asarray(0.5, x.dtype)
    return getattr(lax, name)(x, axis, reverse=bool(draw.integers(2)))


def convolve(draw: Draw, x: Any) -> Any:
    """A convolution of x, read as an image of random features, with a random kernel or with a part of x."""
    n = int(draw.integers(0, 3))
    space = _each(draw, n, [1, 3, 4, 7])
    groups, by_batch = one_of(draw, [1, 1, 2, 3]), bool(draw.integers(2))
    features, batches = (1, groups) if by_batch else (groups, 1)
    i, o, b = one_of(draw, [1, 2]), one_of(draw, [1, 2, 3]) * groups, one_of(draw, [1, 2]) * batches
    window = _each(draw, n, [1, 1, 2, 3])
    lhs = _resized(x, (b, i * features, *space))
    rhs = _resized(x * x if draw.integers(2) else fnp.flip(x), (o, i, *window))
    base = _each(draw, n, [1, 1, 2, 3])
    strides, dilation = _each(draw, n, [1, 1, 2, 3]), _each(draw, n, [1, 1, 2, 3])
    if draw.integers(2):
        lhs = lhs + fnp.asarray(1, lhs.dtype)
    return lax.conv_general_dilated(
        lhs, rhs, strides, _pads(draw, space, base), base, dilation,
        feature_group_count=features, batch_group_count=batches,
    )  # fmt: skip


def _resized(x: Any, shape: tuple[int, ...]) -> Any:
    """The elements of x, from the first, over and over."""
    flat, n = fnp.ravel(x), prod(shape)
    if not flat.size:
        return fnp.ones(shape, x.dtype)
    return fnp.resize(flat[:n], shape)


# ------------------------------------------------------------------------------------- padding, slices, joined arrays


def pad(draw: Draw, x: Any) -> Any:
    interior = _each(draw, x.ndim, [0, 0, 1, 2])
    pairs = _pads(draw, x.shape, [k + 1 for k in interior])
    value = one_of(draw, [np.asarray(0, x.dtype), np.asarray(2, x.dtype), fnp.sum(x)])
    return lax.pad(x, value, [(*p, k) for p, k in zip(pairs, interior, strict=True)])


def slice_(draw: Draw, x: Any) -> Any:
    starts = [int(draw.integers(0, n + 1)) // 3 for n in x.shape]
    limits = [int(draw.integers(a, n + 1)) if draw.integers(2) else n for a, n in zip(starts, x.shape, strict=True)]
    return lax.slice(x, starts, limits, _each(draw, x.ndim, [1, 1, 2, 3]))


def index(draw: Draw, x: Any) -> Any:
    """x[a:b:c, ...], with negative steps and new axes."""
    if not x.ndim:
        return x
    parts: list[Any] = [
        one_of(draw, [slice(None), slice(None, None, -1), slice(1, None), slice(None, -1), slice(-3, None, 2), None])
        for _ in range(int(draw.integers(1, 3)))
    ]
    return x[tuple(parts[: x.ndim])]


def _starts(draw: Draw, shape: Sequence[int]) -> list[Any]:
    """Start indices, in range or not; some are computed at run time."""
    dtype = one_of(draw, [np.int32, np.int32, np.int64, np.int8, np.uint32])
    low = 0 if dtype == np.uint32 else -3
    return [np.asarray(int(draw.integers(low, min(n, 100) + 3)), dtype) for n in shape]


def dynamic_slice(draw: Draw, x: Any) -> Any:
    """A chain of windows of windows."""
    for _ in range(int(draw.integers(1, 4))):
        sizes = [int(draw.integers(0, n + 1)) if n < 4 else n - int(draw.integers(0, 3)) for n in x.shape]
        x = lax.dynamic_slice(x, _runtime(x, _starts(draw, x.shape)), sizes)
    return x


def _runtime(x: Any, starts: Sequence[Any]) -> list[Any]:
    """Start indices that XLA does not know."""
    if not x.size or not starts:
        return list(starts)
    unknown = fnp.asarray(lax.stop_gradient(fnp.ravel(x)[0]) != 0)
    return [fnp.where(unknown, s, s + np.asarray(1, s.dtype)) for s in starts]


def dynamic_update(draw: Draw, x: Any) -> Any:
    """Writes a part of the array over another part of it."""
    if not x.ndim:
        return x
    sizes = [max(n - int(draw.integers(0, 3)), 0) for n in x.shape]
    part = lax.dynamic_slice(x, _starts_of_one_dtype(draw, x), sizes)
    if draw.integers(2):
        part = part * part
    starts = _starts_of_one_dtype(draw, x)
    return lax.dynamic_update_slice(x, part, _runtime(x, starts) if draw.integers(2) else starts)


def _starts_of_one_dtype(draw: Draw, x: Any) -> list[Any]:
    return [np.asarray(int(draw.integers(-1, 4)), np.int32) for _ in x.shape]


def concatenate(draw: Draw, x: Any) -> Any:
    if not x.ndim:
        return fnp.stack([x, x * x])
    axis = int(draw.integers(x.ndim))
    parts = [x, fnp.flip(x, axis), x * x, pad_axis(x, axis)]
    return fnp.concatenate([one_of(draw, parts) for _ in range(int(draw.integers(1, 4)))], axis)


def pad_axis(x: Any, axis: int) -> Any:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (1, 1)
    return fnp.pad(x, widths)


# -------------------------------------------------------------------------------------------------- gathers, scatters

MODES: Final = ("clip", "fill", "drop", "promise_in_bounds", "wrap")


def _rows(draw: Draw, n: int, mode: str) -> Any:
    count, dtype = int(draw.integers(0, 6)), one_of(draw, [np.int32, np.int64, np.int8, np.uint8])
    low, high = (0, max(n, 1)) if mode == "promise_in_bounds" or dtype == np.uint8 else (-n - 2, n + 3)
    return draw.integers(max(low, -100), min(high, 100), (count, 2)[: int(draw.integers(1, 3))]).astype(dtype)


def gather(draw: Draw, x: Any) -> Any:
    if not x.size or not x.ndim:
        return x
    axis, mode = int(draw.integers(x.ndim)), one_of(draw, ["clip", "fill", "wrap"])
    rows = _rows(draw, x.shape[axis], mode)
    if draw.integers(2):
        return fnp.take(x, rows, axis, mode=mode, fill_value=0 if mode == "fill" else None)
    at = fnp.argsort(x, axis)
    return fnp.take_along_axis(x, at[tuple([slice(0, 5)] * x.ndim)] if draw.integers(2) else at, axis, mode="clip")


def scatter(draw: Draw, x: Any) -> Any:
    """x.at[rows].add(...) and the others, with values of its own."""
    if not x.size or not x.ndim:
        return x
    axis, mode = int(draw.integers(x.ndim)), one_of(draw, ["clip", "drop"])
    kind = one_of(draw, ["set", "add", "mul", "min", "max"])
    if kind == "set" or draw.integers(2):
        part = one_of(draw, [slice(1, None), slice(None, -1), slice(None, None, 2), slice(None, None, -1)])
        source = x[(slice(None),) * axis + (part,)]
        values = _resized(x, source.shape) if draw.integers(2) else fnp.flip(source, axis)
        return getattr(x.at[(slice(None),) * axis + (part,)], kind)(values)
    rows = _rows(draw, x.shape[axis], mode)
    at = x.at[(slice(None),) * axis + (rows,)]
    values = _resized(fnp.flip(x), x[(slice(None),) * axis + (np.zeros(rows.shape, np.int32),)].shape)
    return getattr(at, kind)(values, mode=mode)


# --------------------------------------------------------------------------------------------------------------- sorts


def sort(draw: Draw, x: Any) -> Any:
    if not x.ndim:
        return x
    axis = int(draw.integers(x.ndim))
    kind = one_of(draw, ["sort", "pairs", "top_k", "argsort", "flip"])
    if kind == "pairs":
        return lax.sort((fnp.round(x) if _is_float(x) else x, x * x, x), axis, num_keys=2)[2]
    if kind == "top_k":
        return lax.top_k(x, min(x.shape[axis], int(draw.integers(0, 4))), axis=axis)[0]
    if kind == "argsort":
        return fnp.take_along_axis(x * x, fnp.argsort(-x, axis), axis)
    return fnp.flip(fnp.sort(x, axis), axis) if kind == "flip" else fnp.sort(x, axis)


# -------------------------------------------------------------------------- shapes, reductions, products, elementwise


def reshape(draw: Draw, x: Any) -> Any:
    kind = one_of(draw, ["ravel", "column", "row", "transpose", "split", "moved", "broadcast"])
    if kind == "transpose":
        return fnp.transpose(x, tuple(draw.permutation(x.ndim).tolist()))
    if kind == "split" and x.size and x.size % 2 == 0:
        return fnp.reshape(x, (2, x.size // 2))
    if kind == "moved" and x.ndim > 1:
        return fnp.reshape(fnp.moveaxis(x, 0, -1), x.shape)
    if kind == "broadcast" and x.size < 5000:
        return fnp.broadcast_to(x, (2, *x.shape))
    return fnp.reshape(x, {"column": (x.size, 1), "row": (1, x.size)}.get(kind, (x.size,)))


def reduce(draw: Draw, x: Any) -> Any:
    if x.ndim < 2:
        return x
    axis = int(draw.integers(x.ndim))
    function = one_of(draw, [fnp.sum, fnp.max, fnp.min, fnp.mean if _is_float(x) else fnp.sum])
    if not x.shape[axis]:
        function = fnp.sum
    y = function(x, axis, keepdims=bool(draw.integers(2)))
    return y - x if y.ndim == x.ndim and draw.integers(2) else y


def extremum(draw: Draw, x: Any) -> Any:
    """Extrema of a sum of products. Its derivative compares the sum, which XLA may round in two ways, with them."""
    if not x.ndim or not x.size or not _is_float(x):
        return x
    scale, shift = (np.asarray(draw.standard_normal(one_of(draw, [(), x.shape[-1:]]))).astype(x.dtype) for _ in "ab")
    reduction = one_of(draw, [fnp.max, fnp.min])
    return reduction(x * scale + shift, axis=int(draw.integers(x.ndim)), keepdims=bool(draw.integers(2)))


def product(draw: Draw, x: Any) -> Any:
    """A product of each row with a small matrix, or of the array with itself."""
    if x.ndim < 2 or x.shape[-1] > 200:
        return x
    n = x.shape[-1]
    if draw.integers(2):
        matrix = _resized(fnp.flip(x), (one_of(draw, [1, 3, n]), n))
        return fx.vmap(lambda row: matrix @ row)(fnp.reshape(x, (-1, n)))
    return (
        x.T @ fnp.reshape(x, (x.shape[0], -1)) if x.size < 5000 and x.ndim == 2 else fnp.einsum("...i,...i->...", x, x)
    )


def elementwise(draw: Draw, x: Any) -> Any:
    if not _is_float(x):
        return one_of(draw, [lambda v: v * v, lambda v: v + v, lambda v: -v, lambda v: fnp.where(v > 1, v, -v)])(x)
    one = np.asarray(1, x.dtype)
    functions: list[Callable[[Any], Any]] = [
        fnp.sin, fnp.tanh, fnp.abs, nn.sigmoid, nn.relu, fnp.exp, lambda v: v * v, lambda v: v + one,
        lambda v: v / (one + v * v), lambda v: fnp.where(v > 0, v, fnp.expm1(v)), lambda v: fnp.log1p(v * v),
        lambda v: fnp.sqrt(v * v + one), lambda v: fnp.arctan2(v, one), lambda v: fnp.maximum(v, -v * v),
    ]  # fmt: skip
    y = one_of(draw, functions[:2] + functions)(x)
    return fnp.clip(y, -8, 8) if draw.integers(4) == 0 else y


FORMS: Final[dict[str, Form]] = {
    f.__name__.strip("_"): f
    for f in (
        reduce_window, select, pool, cumulative, convolve, pad, slice_, index, dynamic_slice, dynamic_update,
        concatenate, gather, scatter, sort, reshape, reduce, extremum, product, elementwise,
    )
}  # fmt: skip
_GLUE: Final = ("reshape", "elementwise", "elementwise")

# ------------------------------------------------------------------------------------------------------------ programs

APPLIED: Final = ("value", "value", "grad", "grad", "vmap", "vmap of grad", "grad of vmap", "hvp")


@final
@dataclass(frozen=True)
class Case:
    """A function of one array, the array, and which transformation of it runs."""

    function: Callable[[Any], Any]
    operand: Any
    applied: str
    forms: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.applied} of {' '.join(self.forms)} at {self.operand.dtype}{list(self.operand.shape)}"


def _operand(draw: Draw, smooth: bool) -> Any:
    large = draw.integers(4) == 0
    rank = int(draw.integers(0, 4)) if not large else int(draw.integers(1, 3))
    shape: tuple[int, ...]
    if large:
        n = one_of(draw, [100, 1000, 16_384, 20_000, 40_000, LARGEST])
        shape = (n,) if rank == 1 else (n // 3, 3) if draw.integers(2) else (8, n // 8)
    else:
        shape = _each(draw, rank, [1, 2, 3, 4, 5, 8, 0] if draw.integers(8) == 0 else [1, 2, 3, 4, 5, 8])
    floats = [np.float32, np.float32, np.float32, np.float64]
    dtype: Any = one_of(draw, floats if smooth else [*floats, ml_dtypes.bfloat16, np.float16, np.int32, np.uint8])
    if np.issubdtype(dtype, np.integer):
        return draw.integers(0, 5, shape).astype(dtype)
    return np.asarray(draw.normal(size=shape), dtype)


def case(seed: int) -> Case:
    """The program of a seed, which is one program on every machine."""
    draw = np.random.default_rng(seed)
    applied = one_of(draw, APPLIED)
    operand = _operand(draw, applied not in ("value", "vmap"))
    count = int(draw.integers(1, 4)) if draw.integers(4) else int(draw.integers(4, 13))
    names = list(FORMS)
    chosen = []
    for k in range(count):
        chosen.append(one_of(draw, names))
        if k % 2 == 0 and draw.integers(2):
            chosen.append(one_of(draw, _GLUE))
    inner = int(draw.integers(2**60))

    def function(x: Any) -> Any:
        again = np.random.default_rng(inner)
        for name in chosen:
            before, x = x, FORMS[name](again, x)
            if x.size > MOST:
                x = before
        return x

    return Case(function, operand, applied, tuple(chosen))


def _loss(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def loss(x: Any) -> Any:
        y = function(x)
        weights = fnp.reshape(fnp.arange(y.size, dtype=y.dtype) % np.asarray(7, y.dtype), y.shape)
        return fnp.sum(fnp.sin(y) * weights) if _is_float(y) else fnp.sum(x)

    return loss


def program(of: Case) -> tuple[fx.Program[..., Any], Any]:
    """The program of a case, and its operand. Raises: FxadError for a case that fxad refuses."""
    function, x = of.function, of.operand
    loss = _loss(function)
    if "vmap" in of.applied:
        x = np.stack([x, x[::-1] if x.ndim else x, x]) if x.size < LARGEST // 3 else x[None]
    functions: dict[str, Callable[[Any], Any]] = {
        "value": function,
        "grad": fx.grad(loss),
        "vmap": fx.vmap(function),
        "vmap of grad": fx.vmap(fx.grad(loss)),
        "grad of vmap": fx.grad(lambda xs: fnp.sum(fx.vmap(loss)(xs))),
        "hvp": lambda x: fx.jvp(fx.grad(loss), (x,), (fnp.ones_like(x),))[1],
    }
    return fx.trace(functions[of.applied], x), x


__all__ = ["Case", "FORMS", "FxadError", "case", "program"]
