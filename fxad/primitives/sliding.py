"""The arithmetic of sliding windows, shared by convolution and window reductions.

Along an axis of n elements: base dilation puts `base` - 1 holes between neighbours; `low` and `high` add holes at the
ends (negative values drop elements); the window, dilated by `dilation`, starts at each multiple of `stride` at which it
fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self, TypeAlias, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.core.sizes.size import Size, maximum, may_fit
from fxad.errors import ParameterError, ShapeError
from fxad.ir import Aval, Avals, Hlo, HloValue, HloValues, NDArray, Primitive, Shape
from fxad.primitives.axes import Axes, insert_entry
from fxad.primitives.slicing import Pad, Slice
from fxad.primitives.stablehlo import i64_array

Padding: TypeAlias = tuple[tuple[int, int], ...]


def dilated_size(n: int, dilation: int) -> int:
    """Return the size of `n` elements after dilation."""
    if type(n) is Size:
        return n if dilation == 1 else maximum((n - 1) * dilation + 1, 0)
    return (n - 1) * dilation + 1 if n != 0 else 0


def window_count(n: int, window: int, stride: int, pads: tuple[int, int], base: int, dilation: int) -> int:
    """Return the number of window positions along an axis of `n` elements."""
    free = pads[0] + dilated_size(n, base) + pads[1] - dilated_size(window, dilation)
    if type(free) is Size:
        return maximum(free // stride + 1, 0)
    return free // stride + 1 if free >= 0 else 0


def check_padding(name: str, axis: int, n: int, pads: tuple[int, int], base: int) -> None:
    """Check that padding drops no more elements than the axis has. Raises: ShapeError."""
    if not may_fit(0, pads[0] + dilated_size(n, base) + pads[1]):
        raise ShapeError(
            f"{name}: padding {pads} drops more than axis {axis} has: {n} elements"
            + (f" spread out to {dilated_size(n, base)}" if base > 1 else "")
        )


def check_positive(name: str, count: int, **fields: tuple[int, ...]) -> None:
    """Check that per-axis parameters have `count` entries, all positive. Raises: ParameterError."""
    for field, values in fields.items():
        if len(values) != count:
            raise ParameterError(f"{name}: {field} {values} has {len(values)} entries for {count} axes")
        if any([v < 1 for v in values]):
            raise ParameterError(f"{name}: {field} {values} has an entry that is not positive")


def adjoint_padding(n: int, m: int, window: int, stride: int, low: int, base: int, dilation: int) -> tuple[int, int]:
    """Return the padding of the adjoint windows (see `SlidingWindow.adjoint`): they slide over `m` results dilated by
    `stride`, with stride `base`, and have `n` positions. All sizes are positive."""
    first = dilated_size(window, dilation) - 1 - low
    return first, dilated_size(n, base) - 1 + dilated_size(window, dilation) - first - dilated_size(m, stride)


def pad_with_holes(padding: Padding, base: Sequence[int]) -> Pad:
    """Return the operation that puts holes between and around the elements of an array."""
    low, high = tuple([p[0] for p in padding]), tuple([p[1] for p in padding])
    return Pad(low, high, tuple([b - 1 for b in base]))


def window_views(x: NDArray, window: Shape, strides: Sequence[int], dilation: Sequence[int]) -> NDArray:
    """Return the windows of a padded `x`: axes of their positions, then axes inside the window. Shares memory."""
    spans = [dilated_size(w, d) for w, d in zip(window, dilation, strict=True)]
    shape = [window_count(n, w, 1, (0, 0), 1, 1) for n, w in zip(x.shape, spans, strict=True)]
    if 0 in shape or 0 in window:
        out = [-(-n // s) for n, s in zip(shape, strides, strict=True)]
        return np.empty((*out, *window), x.dtype)
    views = np.lib.stride_tricks.sliding_window_view(x, spans)
    return views[tuple([slice(None, None, step) for step in (*strides, *dilation)])]


def padding_attribute(padding: Padding) -> str:
    """Return padding as an MLIR attribute."""
    text = ", ".join([f"[{low}, {high}]" for low, high in padding])
    return f"dense<[{text}]> : tensor<{len(padding)}x2xi64>" if padding else "dense<> : tensor<0x2xi64>"


@final
@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Windows over all axes of an array: one entry of each field per axis."""

    window: Shape
    strides: Axes
    padding: Padding
    base_dilation: Axes
    window_dilation: Axes

    @property
    def values(self) -> tuple[Shape, Axes, Padding, Axes, Axes]:
        """The fields, in the order of the primitives' parameters."""
        return self.window, self.strides, self.padding, self.base_dilation, self.window_dilation

    def result_shape(self, name: str, x: Aval) -> Shape:
        """Return the shape of the result: the number of windows along each axis of `x`.

        Raises: ParameterError, ShapeError.
        """
        check_positive(
            name,
            x.ndim,
            window=self.window,
            strides=self.strides,
            base_dilation=self.base_dilation,
            window_dilation=self.window_dilation,
        )
        if len(self.padding) != x.ndim:
            raise ParameterError(f"{name}: padding {self.padding} has {len(self.padding)} pairs for {x.ndim} axes")
        for a, (n, pads, base) in enumerate(zip(x.shape, self.padding, self.base_dilation, strict=True)):
            check_padding(name, a, n, pads, base)
        return tuple(map(window_count, x.shape, *self.values))

    def mapped(self, dim: int) -> SlidingWindow:
        """Return the same windows for an array with a mapped axis at `dim`."""
        window, strides, padding, base, dilation = self.values
        pads = (*padding[:dim], (0, 0), *padding[dim:])
        return SlidingWindow(
            insert_entry(window, dim, 1),
            insert_entry(strides, dim, 1),
            pads,
            insert_entry(base, dim, 1),
            insert_entry(dilation, dim, 1),
        )

    def adjoint(self, x: Shape, out: Shape) -> SlidingWindow:
        """Return windows over the window positions: the window at an element of `x` has the windows of `x` that contain
        this element.

        Windows of 2 with stride 1 over [a, b, c] are y0 = [a, b] and y1 = [b, c]. The adjoint has windows of 2 over
        [_, y0, y1, _]: a is in y0, b in y0 and y1, c in y1. With stride 2 over [a, b, c, d], y0 = [a, b], y1 = [c, d],
        the adjoint has windows of 2 over [_, y0, _, y1, _]: stride and base dilation change places.
        """
        lows = tuple([low for low, _ in self.padding])
        pads = tuple(
            map(adjoint_padding, x, out, self.window, self.strides, lows, self.base_dilation, self.window_dilation)
        )
        return SlidingWindow(self.window, self.base_dilation, pads, self.strides, self.window_dilation)

    def pad(self) -> Pad:
        """Return the operation that puts the holes between and around the elements of an array."""
        return pad_with_holes(self.padding, self.base_dilation)

    def windows(self, x: NDArray, hole: NDArray) -> NDArray:
        """Return the windows: axes of their positions, then axes inside them."""
        (padded,) = self.pad().impl(x, hole)
        return window_views(padded, self.window, self.strides, self.window_dilation)

    def lower_single(
        self, hlo: Hlo, args: HloValues, avals: Avals, holes: HloValues
    ) -> tuple[HloValues, Avals, SlidingWindow]:
        """Lower the windows along the axes whose window has one element: holes are padded, strides are slices.

        Return the operands, their types, and the windows that are left to slide over them. XLA ends the process if it
        simplifies a `reduce_window` whose windows have one element and whose operand has holes: `docs/known-faults.md`.
        """
        single = [w == 1 for w in self.window]
        fields = list(zip(single, self.padding, self.base_dilation, self.strides, strict=True))
        rest = SlidingWindow(
            self.window,
            tuple([1 if one else stride for one, _, _, stride in fields]),
            tuple([(0, 0) if one else pads for one, pads, _, _ in fields]),
            tuple([1 if one else base for one, _, base, _ in fields]),
            tuple([1 if one else dilation for one, dilation in zip(single, self.window_dilation, strict=True)]),
        )
        padding = tuple([pads if one else (0, 0) for one, pads, _, _ in fields])
        pad = pad_with_holes(padding, [base if one else 1 for one, _, base, _ in fields])
        steps = tuple([stride if one else 1 for one, _, _, stride in fields])
        outs: list[HloValue] = []
        types: list[Aval] = []
        for arg, aval, hole in zip(args, avals, holes, strict=True):
            (padded,) = pad.abstract_eval(aval, aval.with_shape(()))
            if padded is not aval or any([low != 0 for low in pad.low]):
                (arg,) = pad.lower(hlo, (arg, hole), (aval, aval.with_shape(())), (padded,))
            strided = Slice((0,) * aval.ndim, padded.shape, steps)
            (out,) = strided.abstract_eval(padded)
            if out is not padded:
                (arg,) = strided.lower(hlo, (arg,), (padded,), (out,))
            outs.append(arg)
            types.append(out)
        return outs, tuple(types), rest

    def attributes(self) -> dict[str, str]:
        """Return the fields as attributes of `stablehlo.reduce_window`."""
        return {
            "window_dimensions": i64_array(self.window),
            "window_strides": i64_array(self.strides),
            "base_dilations": i64_array(self.base_dilation),
            "window_dilations": i64_array(self.window_dilation),
            "padding": padding_attribute(self.padding),
        }


class Windowed(Primitive):
    """A primitive that slides windows over its operands. A leaf, or its family, declares the parameters as fields."""

    __slots__ = ()

    window: Shape
    strides: Axes
    padding: Padding
    base_dilation: Axes
    window_dilation: Axes

    @property
    @final
    def sliding(self) -> SlidingWindow:
        """The parameters of the windows."""
        return SlidingWindow(self.window, self.strides, self.padding, self.base_dilation, self.window_dilation)

    @final
    def with_sliding(self, sliding: SlidingWindow) -> Self:
        """Return the same primitive with other windows."""
        return replace(
            self,
            window=sliding.window,
            strides=sliding.strides,
            padding=sliding.padding,
            base_dilation=sliding.base_dilation,
            window_dilation=sliding.window_dilation,
        )
