"""The methods of `fxad.Array`: each passes an operation to `_apply`.

`Array` (in a layer above) inherits them, and its `_apply` runs or traces the operation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Self, TypeAlias, cast

import numpy as np

from fxad import dtypes
from fxad.core.sizes.size import dimension
from fxad.errors import ArgumentError, ParameterError, ShapeError, TracerError, remedy_of, shown
from fxad.ir import Atoms, Aval, NDArray, Shape
from fxad.operations import (
    contractions,
    elementwise,
    index_arrays,
    masked_reductions,
    reductions,
    shapes,
    sorting,
)
from fxad.operations.arguments import column_major, flag, no_out, to_int, to_tuple
from fxad.operations.aval_attributes import Typed
from fxad.operations.axes import AxisLike, hashable_axis, normalize_axis_index
from fxad.operations.operators import Operators
from fxad.operations.promotion import optional_dtype

NumberLike: TypeAlias = "np.generic | bool | int | float | complex"


class Methods(Operators):
    """The methods `x.name(...)`. Axes may be negative; None means all axes."""

    __slots__ = ()

    @property
    @abstractmethod
    def aval(self) -> Aval:
        """Shape and dtype together."""

    @abstractmethod
    def __getitem__(self, index: object) -> Self:
        """Return the elements an index picks, as in NumPy."""

    # -------------------------------------------------------------------------------------------------- reductions

    def sum(
        self,
        axis: AxisLike = None,
        dtype: object = None,
        out: None = None,
        keepdims: bool = False,
        initial: Self | NDArray | NumberLike | None = None,
        where: Self | NDArray | bool | None = None,
    ) -> Self:
        """Return the sum over axes; narrow integers and bools in 32 bits."""
        return self._reduce(
            "sum", reductions.sum, axis, out, keepdims, initial=initial, where=where, options=(optional_dtype(dtype),)
        )

    def prod(
        self,
        axis: AxisLike = None,
        dtype: object = None,
        out: None = None,
        keepdims: bool = False,
        initial: Self | NDArray | NumberLike | None = None,
        where: Self | NDArray | bool | None = None,
    ) -> Self:
        """Return the product over axes; narrow integers and bools in 32 bits."""
        return self._reduce(
            "prod", reductions.prod, axis, out, keepdims, initial=initial, where=where, options=(optional_dtype(dtype),)
        )

    def mean(
        self,
        axis: AxisLike = None,
        dtype: object = None,
        out: None = None,
        keepdims: bool = False,
        *,
        where: Self | NDArray | bool | None = None,
    ) -> Self:
        """Return the mean over axes; of integers as float32."""
        return self._reduce("mean", reductions.mean, axis, out, keepdims, where=where, options=(optional_dtype(dtype),))

    def var(
        self,
        axis: AxisLike = None,
        dtype: object = None,
        out: None = None,
        ddof: float | None = None,
        keepdims: bool = False,
        *,
        where: Self | NDArray | bool | None = None,
        correction: float | None = None,
    ) -> Self:
        """Return the variance over axes: the sum of squared distances from the mean, divided by the count less
        `correction` or `ddof`."""
        subtracted = masked_reductions.degrees_of_freedom("var", correction, ddof)
        return self._reduce(
            "var", reductions.var, axis, out, keepdims, where=where, options=(optional_dtype(dtype), subtracted)
        )

    def std(
        self,
        axis: AxisLike = None,
        dtype: object = None,
        out: None = None,
        ddof: float | None = None,
        keepdims: bool = False,
        *,
        where: Self | NDArray | bool | None = None,
        correction: float | None = None,
    ) -> Self:
        """Return the standard deviation over axes: the root of `var`."""
        subtracted = masked_reductions.degrees_of_freedom("std", correction, ddof)
        return self._reduce(
            "std", reductions.std, axis, out, keepdims, where=where, options=(optional_dtype(dtype), subtracted)
        )

    def max(
        self,
        axis: AxisLike = None,
        out: None = None,
        keepdims: bool = False,
        initial: Self | NDArray | NumberLike | None = None,
        where: Self | NDArray | bool | None = None,
    ) -> Self:
        """Return the greatest element over axes; nan if any element is nan."""
        return self._reduce("max", reductions.max, axis, out, keepdims, initial=initial, where=where)

    def min(
        self,
        axis: AxisLike = None,
        out: None = None,
        keepdims: bool = False,
        initial: Self | NDArray | NumberLike | None = None,
        where: Self | NDArray | bool | None = None,
    ) -> Self:
        """Return the least element over axes; nan if any element is nan."""
        return self._reduce("min", reductions.min, axis, out, keepdims, initial=initial, where=where)

    def any(
        self,
        axis: AxisLike = None,
        out: None = None,
        keepdims: bool = False,
        *,
        where: Self | NDArray | bool | None = None,
    ) -> Self:
        """Return True if an element is not zero."""
        return self._reduce("any", reductions.any, axis, out, keepdims, where=where)

    def all(
        self,
        axis: AxisLike = None,
        out: None = None,
        keepdims: bool = False,
        *,
        where: Self | NDArray | bool | None = None,
    ) -> Self:
        """Return True if no element is zero."""
        return self._reduce("all", reductions.all, axis, out, keepdims, where=where)

    def _reduce(
        self,
        name: str,
        op: Callable[..., Atoms],
        axis: AxisLike,
        out: object,
        keepdims: bool,
        *,
        initial: object = None,
        where: object = None,
        options: masked_reductions.Options = (),
    ) -> Self:
        """Return `op` of the array; with `initial` or `where`, the masked reduction `name`. `op` takes the `options`
        arguments after `keepdims`."""
        if out is not None:
            no_out(name, out)
        # without a mask this saves two calls: 0.3 us of 6.5
        if (where is None and initial is None) or masked_reductions.is_unmasked(initial, where):
            return self._apply(op, (), (hashable_axis(axis), keepdims, *options))
        dtype, correction = masked_reductions.split_options(options)
        operands, spec = masked_reductions.plan_masked_reduction(
            name, self.aval.dtype, keepdims, initial=initial, where=where, dtype=dtype, correction=correction
        )
        return self._apply(masked_reductions.masked_reduction, operands, (hashable_axis(axis), spec))

    def argmax(
        self,
        axis: int | None = None,
        out: None = None,
        keepdims: bool = False,
    ) -> Self:
        """Return the index of the greatest element, of equal ones the first; in the flattened array for axis None."""
        no_out("argmax", out)
        return self._apply(reductions.argmax, (), (axis, keepdims))

    def argmin(
        self,
        axis: int | None = None,
        out: None = None,
        keepdims: bool = False,
    ) -> Self:
        """Return the index of the least element, of equal ones the first; in the flattened array for axis None."""
        no_out("argmin", out)
        return self._apply(reductions.argmin, (), (axis, keepdims))

    # ------------------------------------------------------------------------------------------------------ shapes

    def reshape(self, *shape: int | Sequence[int], order: str = "C") -> Self:
        """Return the same elements in another shape, in row-major order, or column-major for "F"; one size may be -1,
        which is inferred."""
        sizes = static_ints("reshape", "shape", shape)
        if column_major("reshape", order):
            return self.T.reshape(sizes[::-1]).T
        return self._apply(shapes.reshape, (), (sizes,))

    def ravel(self, order: str = "C") -> Self:
        """Return all elements as a vector, in row-major order, or column-major for "F"."""
        x = self.T if column_major("ravel", order) else self
        return x._apply(shapes.reshape, (), ((-1,),))

    def flatten(self, order: str = "C") -> Self:
        """Return `ravel`."""
        return self.ravel(order)

    def squeeze(self, axis: AxisLike = None) -> Self:
        """Without axes of size 1."""
        return self._apply(shapes.squeeze, (), (hashable_axis(axis),))

    def transpose(self, *axes: int | Sequence[int]) -> Self:
        """Return the axes in another order; reversed when none is given."""
        return self._apply(shapes.transpose, (), (static_ints("transpose", "axes", axes) if axes else None,))

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Return two axes exchanged."""
        return self._apply(shapes.swapaxes, (), (axis1, axis2))

    @property
    def T(self) -> Self:  # noqa: N802  NumPy's name
        """The axes in reverse order."""
        return self._apply(shapes.transpose, (), (None,))

    @property
    def mT(self) -> Self:  # noqa: N802  NumPy's name
        """The last two axes exchanged."""
        return self._apply(shapes.matrix_transpose, (), ())

    def repeat(self, repeats: int | Sequence[int] | NDArray, axis: int | None = None) -> Self:
        """Return each element `repeats` times in a row along an axis, or by a known count for each element; flattened
        first for None."""
        if not isinstance(repeats, Sequence | np.ndarray | Typed):
            return self._apply(shapes.repeat, (), (to_int("repeat", "repeats", repeats), axis))
        x, k = (self.ravel(), 0) if axis is None else (self, normalize_axis_index("repeat", axis, self.aval.ndim))
        n = x.aval.shape[k]
        try:
            counts = np.asarray(repeats)
        except TracerError as e:
            raise TracerError(
                "repeat: the size of the result depends on the counts, which a traced function does not have",
                remedy="use fxad.numpy.repeat(x, repeats, axis, total_repeat_length=...)",
                where=e.where,
            ) from None
        if counts.dtype.kind not in "iu" or counts.shape not in {(), (1,), (n,)} or (counts < 0).any():
            raise ParameterError(
                f"repeat: counts {shown(repeats)} must be integers that are not negative, one or {n} of them",
                remedy="give an int, or a count for each element",
            )
        return x[(*[slice(None)] * k, np.repeat(np.arange(n), counts))]

    def take(self, indices: Self | NDArray | Sequence[int] | int, axis: int | None = None) -> Self:
        """Return the elements at `indices` along an axis; of the flattened array for None."""
        if axis is None:
            return self.ravel()[indices]
        return self[(*[slice(None)] * normalize_axis_index("take", axis, self.aval.ndim), indices)]

    # ------------------------------------------------------------------------------------------------- elementwise

    def astype(self, dtype: object, copy: bool = True) -> Self:
        """Return the same values in another dtype. Arrays are immutable, so `copy` has no effect."""
        if copy is not True:
            flag("astype", "copy", copy)
        return self._apply(elementwise.astype, (), (dtypes.as_dtype(dtype),))

    @property
    def real(self) -> Self:
        """The real part; real values are returned unchanged."""
        return self._apply(elementwise.real, (), ())

    @property
    def imag(self) -> Self:
        """The imaginary part; 0 for real values."""
        return self._apply(elementwise.imag, (), ())

    def conj(self) -> Self:
        """Return the complex conjugate; real values are returned unchanged."""
        return self._apply(elementwise.conj, (), ())

    def round(self, decimals: int = 0) -> Self:
        """Return the elements rounded to a number of decimals, ties to even."""
        return self._apply(elementwise.round_to, (), (decimals,))

    def clip(
        self, min: Self | NDArray | NumberLike | None = None, max: Self | NDArray | NumberLike | None = None
    ) -> Self:
        """Not below `min` and then not above `max`; None is no bound."""
        if min is not None and max is not None:
            return self._apply(elementwise.clip, (min, max), ())
        if min is not None:
            return self._apply(elementwise.clip_below, (min,), ())
        return self if max is None else self._apply(elementwise.clip_above, (max,), ())

    def ptp(self, axis: AxisLike = None, out: None = None, keepdims: bool = False) -> Self:
        """Return the greatest element less the least one."""
        return self.max(axis, out, keepdims) - self.min(axis, None, keepdims)

    def conjugate(self) -> Self:
        """Return `conj`."""
        return self.conj()

    def __round__(self, ndigits: int | None = None) -> Self:
        return self.round(0 if ndigits is None else ndigits)

    # ------------------------------------------------------------------------------------------ chosen by elements

    def nonzero(self, *, size: int | None = None, fill_value: int | Sequence[int] | None = None) -> tuple[Self, ...]:
        """Return the indices of the elements that are not 0: an int32 array for each axis. A traced array needs
        `size`."""
        shape = self.aval.shape
        if not shape:
            raise ShapeError("nonzero: takes an array with at least one axis", remedy="use x != 0")
        n = int(np.asarray(self.__ne__(0).sum())) if size is None else to_int("nonzero", "size", size)
        fills = index_arrays.fills("nonzero", fill_value, len(shape))
        return tuple([self._apply(index_arrays.nonzero_along, (), (k, n, fills)) for k in range(len(shape))])

    def choose(self, choices: Sequence[Self | NDArray | NumberLike], out: None = None, mode: str | None = None) -> Self:
        """Return for each element, one of `choices`, by its number; numbers out of range are an error ("raise"),
        clamped ("clip") or wrapped ("wrap"). Without a mode, known numbers are checked, and traced ones clamped."""
        no_out("choose", out)
        cases = to_tuple("choose", "choices", choices)
        return self._apply(index_arrays.choose, cases, (index_arrays.resolved_choice(self, cases, mode),))

    def compress(self, condition: Sequence[bool] | NDArray, axis: int | None = None, out: None = None) -> Self:
        """Return the slices along an axis where a condition with known values holds; of the flattened array for
        None."""
        no_out("compress", out)
        x, k = (self.ravel(), 0) if axis is None else (self, normalize_axis_index("compress", axis, self.aval.ndim))
        holds = np.asarray(condition)
        if holds.ndim != 1 or holds.dtype.kind not in "biufc":
            raise ShapeError(f"compress: {shown(condition)} is not a condition with one axis", remedy="use extract")
        return x[(*[slice(None)] * k, np.flatnonzero(holds))]

    def view(self, dtype: object = None) -> Self:
        """Return the same bits read as another dtype. The size of the last axis changes with the size of an element."""
        return self if dtype is None else self._apply(shapes.view, (), (dtypes.as_dtype(dtype),))

    # --------------------------------------------------------------------------------- along an axis, and diagonals

    def sort(self, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Self:
        """Return the array sorted along an axis; None flattens. It is a new array, and the sort is always stable."""
        flag("sort", "stable", stable)
        return self._apply(sorting.sort, (), (axis, flag("sort", "descending", descending)))

    def argsort(self, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Self:
        """Return the indices that sort along an axis, as int32; always stable."""
        flag("argsort", "stable", stable)
        return self._apply(sorting.argsort, (), (axis, flag("argsort", "descending", descending)))

    def argpartition(self, kth: int | Sequence[int], axis: int | None = -1) -> Self:
        """Return `argsort`, which puts every place where it belongs."""
        sorting.check_places("argpartition", self.aval, kth, axis)
        return self.argsort(axis)

    def searchsorted(
        self,
        v: Self | NDArray | NumberLike,
        side: str = "left",
        sorter: Self | NDArray | None = None,
        *,
        method: str = "scan",
    ) -> Self:
        """Return for each v, the index at which it keeps this sorted vector sorted."""
        ordered = self if sorter is None else self[sorter]
        return ordered._apply(sorting.searchsorted, (v,), (side, method))

    def cumsum(self, axis: int | None = None, dtype: object = None) -> Self:
        """Return cumulative sums along an axis; of the flattened array for None."""
        return self._apply(reductions.cumulate_flat, (), (False, axis, optional_dtype(dtype)))

    def cumprod(self, axis: int | None = None, dtype: object = None) -> Self:
        """Return cumulative products along an axis; of the flattened array for None."""
        return self._apply(reductions.cumulate_flat, (), (True, axis, optional_dtype(dtype)))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """Return the diagonal of two axes, as a last axis."""
        return self._apply(contractions.diagonal, (), (to_int("diagonal", "offset", offset), axis1, axis2))

    def trace(self, offset: object = 0, axis1: int = 0, axis2: int = 1, dtype: object = None) -> Self:
        """Return the sum of the diagonal of two axes. `offset` may be traced."""
        if isinstance(offset, Typed):  # then the size of the diagonal is not known
            return self._apply(contractions.only_diagonal, (offset,), (axis1, axis2)).sum((-2, -1), dtype=dtype)
        return self.diagonal(to_int("trace", "offset", cast("int", offset)), axis1, axis2).sum(-1, dtype=dtype)

    def dot(self, other: Self | NDArray | NumberLike) -> Self:
        """Return the product summed over the last axis of this and the last but one of `other`."""
        return self._apply(contractions.dot, (other,), ())


def static_ints(op: str, what: str, values: tuple[int | Sequence[int], ...]) -> Shape:
    """Return sizes or axes given one by one or as one sequence; -1 is allowed. Raises: ArgumentError, which names the
    argument `what` of `op`."""
    ints = values[0] if len(values) == 1 and isinstance(values[0], Sequence | np.ndarray | Typed) else values
    if isinstance(ints, np.ndarray | Typed) and not ints.ndim:
        ints = values
    try:
        return tuple([dimension(n) for n in ints])
    except (AttributeError, TypeError) as e:
        raise ArgumentError(f"{op}: {what} {shown(ints)} is not made of integers", remedy=remedy_of(e)) from None
