"""The dimension numbers of gather and scatter: windows of an array at the places in an index array.

The last axis of the index array holds index vectors; its other axes are batch axes. Each index vector gives the start
of a window of the operand. In the gathered array (or in the updates of a scatter) the window lies along the `offset`
axes, at the batch axes of its index vector.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.errors import AxisError, DTypeError, ParameterError, ShapeError
from fxad.ir import Atom, Aval, Emit, Lit, NDArray, Shape
from fxad.primitives.axes import Axes, axes_after_insert, insert_entry, other_axes
from fxad.primitives.elementwise.arithmetic import MAX, MIN
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.logic import AND, EQ, GE, LE
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.operand_checks import check_axes, check_axis
from fxad.primitives.shape import Iota, ReduceSum
from fxad.primitives.stablehlo import int_list

# The treatment of windows out of range: see `Gather` and `ScatterFamily`.
GatherScatterMode: TypeAlias = Literal["clip", "drop", "promise_in_bounds"]
MODES: Final[tuple[GatherScatterMode, ...]] = ("clip", "drop", "promise_in_bounds")


@final
@dataclass(frozen=True, slots=True)
class DimensionNumbers:
    """The dimension numbers shared by gather and scatter.

    offset:        axes of the gathered array (or the updates) that run over the window.
    collapsed:     operand axes of window size 1 that are not axes of the gathered array.
    batched:       operand axes that are paired with a batch axis of the indices, also of window size 1.
    index_batched: those batch axes.
    index_map:     the operand axis of each entry of an index vector.
    """

    offset: tuple[int, ...]
    collapsed: tuple[int, ...]
    batched: tuple[int, ...]
    index_batched: tuple[int, ...]
    index_map: tuple[int, ...]

    def check(self, name: str, x: Aval, indices: Aval, mode: GatherScatterMode) -> None:
        """Check the numbers against an operand and an index array. Raises: ParameterError, ShapeError, DTypeError."""
        if mode not in MODES:
            raise ParameterError(f"{name}: mode {mode!r} is not one of {', '.join(MODES)}")
        if not dtypes.is_integer(indices.dtype):
            raise DTypeError(f"{name}: indices must be integers, got {indices}")
        if not indices.shape or indices.shape[-1] != len(self.index_map):
            raise ShapeError(
                f"{name}: index vectors name {len(self.index_map)} operand axes {self.index_map}, "
                f"the last axis of the indices {indices} must have that size"
            )
        check_axes(name, self.collapsed, x.ndim)
        check_axes(name, self.batched, x.ndim)
        for a in self.index_map:
            check_axis(name, a, x.ndim)
        if {*self.collapsed, *self.index_map} & {*self.batched} or len({*self.index_map}) != len(self.index_map):
            raise ParameterError(
                f"{name}: an operand axis has two roles: collapsed {self.collapsed}, batched {self.batched}, "
                f"indexed {self.index_map}"
            )
        self._check_offset(name, x, indices)
        self._check_batched(name, x, indices)

    def _check_offset(self, name: str, x: Aval, indices: Aval) -> None:
        window = len(self.axes(x.ndim))
        if len(self.offset) != window:
            raise ParameterError(f"{name}: {len(self.offset)} offset axes {self.offset} for a window of {window} axes")
        check_axes(name, self.offset, indices.ndim - 1 + window)

    def _check_batched(self, name: str, x: Aval, indices: Aval) -> None:
        pairs = len(self.batched), len(self.index_batched)
        if pairs[0] != pairs[1] or len({*self.index_batched}) != pairs[1]:
            raise ParameterError(f"{name}: batched axes differ: operand {self.batched}, indices {self.index_batched}")
        for a, k in zip(self.batched, self.index_batched, strict=True):
            if not 0 <= k < indices.ndim - 1:
                raise AxisError(f"{name}: axis {k} is not a batch axis of the indices {indices}")
            if x.shape[a] != indices.shape[k]:
                raise ShapeError(
                    f"{name}: batched sizes differ: operand dim {a} has {x.shape[a]}, "
                    f"indices dim {k} has {indices.shape[k]}"
                )

    @property
    def numbers(self) -> tuple[Axes, Axes, Axes, Axes, Axes]:
        """The fields, in the order of the parameters of gather and scatter."""
        return self.offset, self.collapsed, self.batched, self.index_batched, self.index_map

    def axes(self, ndim: int) -> tuple[int, ...]:
        """Return the operand axes that the window runs over, for an operand of `ndim` axes."""
        return other_axes((*self.collapsed, *self.batched), ndim)

    def permutation(self, ndim: int) -> tuple[int, ...]:
        """Return the permutation that makes a gathered array (or the updates), of `ndim` axes, of an array with its
        batch axes first and then its window axes.

        It is (1, 0, 2) for `offset` (0, 2) and three axes: window, batch, window.
        """
        n_batch = ndim - len(self.offset)
        batch, window = iter(range(n_batch)), iter(range(n_batch, ndim))
        return tuple([next(window if a in self.offset else batch) for a in range(ndim)])

    def gathered(self, indices: Shape, window: Shape) -> Shape:
        """Return the shape of the gathered array (or the updates) for windows of shape `window`."""
        sizes = (*indices[:-1], *window)
        return tuple([sizes[a] for a in self.permutation(len(sizes))])

    def window_positions(
        self, shape: Shape, indices: NDArray, sizes: Shape
    ) -> tuple[tuple[npt.NDArray[np.int64], ...], npt.NDArray[np.bool_]]:
        """Return the positions of the elements of all windows in an operand of `shape`, an array (batch, sizes) for
        each axis, and a mask (batch) of the windows in range. Windows out of range are clamped.

        For an operand of shape (5,), the index vectors [[1], [9]] and windows of size 2, the positions along its axis
        are [[1, 2], [3, 4]], and the mask is [True, False].
        """
        batch, ndim = indices.shape[:-1], len(shape)
        if indices.dtype == dtypes.uint64:
            indices = np.minimum(indices, np.uint64(2**63 - 1))
        vectors = indices.astype(np.int64)
        in_range = np.ones(batch, np.bool_)
        positions = []
        for a in range(ndim):
            start = np.zeros(batch, np.int64)
            if a in self.index_map:
                start = vectors[..., self.index_map.index(a)]
                last = shape[a] - sizes[a]
                in_range &= (start >= 0) & (start <= last)
                start = np.clip(start, 0, last)
            elif a in self.batched:
                start = np.indices(batch)[self.index_batched[self.batched.index(a)]]
            offsets = np.arange(sizes[a]).reshape([-1 if k == a else 1 for k in range(ndim)])
            positions.append(np.broadcast_to(start.reshape(batch + (1,) * ndim) + offsets, batch + sizes))
        return tuple(positions), in_range

    def mapped(self, ndim: int, *, operand: int | None, indices: bool) -> tuple[DimensionNumbers, int]:
        """Return the numbers with a mapped axis, and the mapped axis of the gathered array (or the updates).

        `operand` is the mapped axis of the operand, of `ndim` axes without it, or None. If `indices`, axis 0 of the
        indices is mapped.

        For `x[i]` with x: f32[5] and i: i32[3,1], that is `collapsed` (0,) and `index_map` (0,), and n examples:
            x: f32[5],   i: i32[n,3,1]   a batch axis:  the same numbers
            x: f32[n,5], i: i32[3,1]     a window axis: `offset` (0,), `collapsed` (1,), `index_map` (1,)
            x: f32[n,5], i: i32[n,3,1]   paired axes:   `batched` (0,), `index_batched` (0,), and the last two as above
        The gathered array is f32[n,3] in all cases.
        """
        collapsed, batched, index_map = self.collapsed, self.batched, self.index_map
        if operand is not None:
            collapsed, batched, index_map = [axes_after_insert(v, operand) for v in (collapsed, batched, index_map)]
            if not indices:
                n_before = sum([a < operand for a in self.axes(ndim)])
                at = self.offset[n_before - 1] + 1 if n_before else 0
                offset = insert_entry(axes_after_insert(self.offset, at), n_before, at)
                return DimensionNumbers(offset, collapsed, batched, self.index_batched, index_map), at
        # the mapped axis of the indices is the first axis of the gathered array
        offset, index_batched = axes_after_insert(self.offset, 0), axes_after_insert(self.index_batched, 0)
        if operand is not None:
            n_before = sum([a < operand for a in batched])
            batched, index_batched = insert_entry(batched, n_before, operand), insert_entry(index_batched, n_before, 0)
        return DimensionNumbers(offset, collapsed, batched, index_batched, index_map), 0

    def attribute(self, kind: str, names: tuple[str, ...], index_vector_dim: int) -> str:
        """Return the numbers as an MLIR attribute, with the names used there."""
        lists = [f"{name} = {int_list(v)}" for name, v in zip(names, self.numbers, strict=True) if v]
        return f"#stablehlo.{kind}<{', '.join([*lists, f'index_vector_dim = {index_vector_dim}'])}>"


# ------------------------------------------------------------------------------- programs that lowerings are made of


def widen_indices(emit: Emit, indices: Atom) -> Atom:
    """Return indices in a dtype that can hold every bound: XLA compares them with sizes in their own dtype."""
    if indices.aval.dtype.itemsize >= 4:
        return indices
    return emit.one(ConvertElementType(dtypes.int32), indices)


def last_starts(emit: Emit, indices: Aval, last: tuple[int, ...]) -> Atom:
    """Return the last start at which a window is in range, for each entry of each index vector."""
    cases = [Lit.of(n, indices) for n in last]
    if len({*last}) == 1:
        return cases[0]
    entry = emit.one(Iota(indices.shape, dtypes.int32, indices.ndim - 1))
    return emit.one(SELECT_N, entry, *cases)


def windows_in_range(emit: Emit, indices: Atom, last: tuple[int, ...]) -> Atom:
    """Return a mask of the windows in range: bool, of the batch's shape."""
    indices = widen_indices(emit, indices)
    aval = indices.aval
    lower = emit.one(GE, indices, Lit.of(0, aval))
    in_range = emit.one(AND, lower, emit.one(LE, indices, last_starts(emit, aval, last)))
    count = emit.one(ReduceSum((aval.ndim - 1,)), emit.one(ConvertElementType(dtypes.int32), in_range))
    return emit.one(EQ, count, Lit.of(len(last), count.aval))


def clamp_starts(emit: Emit, indices: Atom, last: tuple[int, ...]) -> Atom:
    """Return indices clamped so that every window is in range, in a dtype that can hold every bound."""
    indices = widen_indices(emit, indices)
    least = emit.one(MAX, indices, Lit.of(0, indices.aval))
    return emit.one(MIN, least, last_starts(emit, indices.aval, last))
