"""`x.at[index]`: functional updates of array elements."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable
from math import nan
from typing import TYPE_CHECKING, Final, Generic, NoReturn, Self, TypeVar, cast, final

import numpy as np

from fxad import dtypes
from fxad.core.numbers import NUMBER_ARGUMENTS
from fxad.core.sizes.size import Size
from fxad.errors import ArgumentError, DTypeError, FxadError, described, shown
from fxad.ir import Atom, Atoms, Aval, Emit, Lit
from fxad.operations import updates
from fxad.operations.arguments import contained_array, flag
from fxad.operations.aval_attributes import Typed
from fxad.operations.index_plan import plan, promise_unique_indices
from fxad.operations.operators import ArrayLike, Operation
from fxad.operations.promotion import dtype_kind, scalar_dtype, scalar_element, scalar_literal
from fxad.primitives.gather_scatter import Gather


class Updatable:
    """An array type with `at`."""

    __slots__ = ()

    @property
    @abstractmethod
    def aval(self) -> Aval:
        """Shape and dtype together."""

    @abstractmethod
    def _apply(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> Self:
        """Return the single result of `op` over this array and `args`."""

    @property
    def at(self) -> IndexUpdateHelper[Self]:
        """`x.at[index].set(value)`, `.add(value)`, ...: a new array with the indexed elements changed."""
        return IndexUpdateHelper(self)


T = TypeVar("T", bound=Updatable)
_VALUES: Final = (Updatable, np.ndarray, np.generic, bool, int, float, complex)


@final
class IndexUpdateHelper(Generic[T]):
    """The `at` of an array, which takes an index."""

    __slots__ = ("_array",)

    def __init__(self, array: T) -> None:
        self._array = array

    def __getitem__(self, index: object) -> IndexUpdateRef[T]:
        return IndexUpdateRef(self._array, index)

    def __setitem__(self, index: object, value: object) -> NoReturn:
        raise ArgumentError("at: an array is immutable", remedy="x.at[index].set(value) gives a new array")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            message = f"'at' has no attribute {name!r}: an index comes first, as in x.at[index].set(value)"
            raise AttributeError(message, name=name, obj=self)

    def __repr__(self) -> str:
        return f"{self._array!r}.at"


@final
class IndexUpdateRef(Generic[T]):
    """`x.at[index]`: the updates of the indexed elements. Each method returns a new array.

    Type:  the index is as in `x[index]`; the value broadcasts to the shape of `x[index]`. A Python scalar takes the
           dtype of x; an array is converted to it, but not from a higher kind: complex, floating, integer, bool.
    Rule:  if an element is indexed several times, `set` keeps one of the values; the others combine all of them, in any
           order.
    `mode`: run-time indices may be out of range. "drop" (or "fill") leaves such updates out, and is the default (None);
    "clip" clamps the index; "promise_in_bounds" asserts that there are none. With a mode, static indices may be out of
    range too.
    `wrap_negative_indices`: with False negative indices are out of range, and do not count from the end.
    `unique_indices`, `indices_are_sorted`: promises that no element is indexed twice (`multiply`, `divide` and `power`
    are then differentiable in the value), and that indices are sorted. If a promise is false, the result is undefined.
    """

    __slots__ = ("_array", "_index")

    def __init__(self, array: T, index: object) -> None:
        self._array = array
        self._index = index

    def __repr__(self) -> str:
        return f"{self._array!r}.at[{self._index!r}]"

    def set(
        self,
        value: ArrayLike,
        *,
        mode: str | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
    ) -> T:
        """Return `x[index] = value`."""
        return self._update("set", value, mode, indices_are_sorted, unique_indices, wrap_negative_indices)

    def add(
        self,
        value: ArrayLike,
        *,
        mode: str | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
    ) -> T:
        """Return `x[index] += value`; for bools logical or."""
        return self._update("add", value, mode, indices_are_sorted, unique_indices, wrap_negative_indices)

    def subtract(
        self,
        value: ArrayLike,
        *,
        mode: str | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
    ) -> T:
        """Return `x[index] -= value`."""
        return self._update("subtract", value, mode, indices_are_sorted, unique_indices, wrap_negative_indices)

    def multiply(
        self,
        value: ArrayLike,
        *,
        mode: str | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
    ) -> T:
        """Return `x[index] *= value`; for bools logical and."""
        return self._update("multiply", value, mode, indices_are_sorted, unique_indices, wrap_negative_indices)

    def divide(
        self,
        value: ArrayLike,
        *,
        mode: str | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
    ) -> T:
        """Return `x[index] /= value`, for floating and complex x."""
        return self._update("divide", value, mode, indices_are_sorted, unique_indices, wrap_negative_indices)

    def power(
        self,
        value: ArrayLike,
        *,
        mode: str | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
    ) -> T:
        """Return `x[index] **= value`."""
        return self._update("power", value, mode, indices_are_sorted, unique_indices, wrap_negative_indices)

    def min(
        self,
        value: ArrayLike,
        *,
        mode: str | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
    ) -> T:
        """Return `x[index] = minimum(x[index], value)`."""
        return self._update("min", value, mode, indices_are_sorted, unique_indices, wrap_negative_indices)

    def max(
        self,
        value: ArrayLike,
        *,
        mode: str | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
    ) -> T:
        """Return `x[index] = maximum(x[index], value)`."""
        return self._update("max", value, mode, indices_are_sorted, unique_indices, wrap_negative_indices)

    mul = multiply

    def apply(
        self,
        fn: Callable[[T], ArrayLike],
        *,
        mode: str | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
    ) -> T:
        """Return `x[index] = fn(x[index])`: once for each element, even if it is indexed several times."""
        promises = {
            "indices_are_sorted": indices_are_sorted,
            "unique_indices": unique_indices,
            "wrap_negative_indices": wrap_negative_indices,
        }
        return self.set(fn(self.get(mode=mode, fill_value=0, **promises)), mode=mode, **promises)

    def get(
        self,
        *,
        mode: str | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        fill_value: bool | complex | np.generic | None = None,
        wrap_negative_indices: bool = True,
    ) -> T:
        """Return `x[index]`. With mode "fill" (or "drop") an index out of range gives `fill_value`. Its default is nan,
        the least signed integer, the greatest unsigned one, or True."""
        x = self._array.aval
        index_mode = updates.IndexMode(updates.checked_mode("at.get", mode, "clip"), indices_are_sorted, unique_indices)
        fill = fill_literal("at.get", x, fill_value) if index_mode.mode == "drop" else None
        wraps = flag("at.get", "wrap_negative_indices", wrap_negative_indices)
        p, operands = plan(x.shape, self._index, checked=mode is None, wraps=wraps)
        return self._array._apply(updates.get, operands, (p, index_mode, fill))

    def _update(self, name: str, value: ArrayLike, mode: str | None, sorted_: bool, unique: bool, wraps: bool) -> T:
        index_mode = updates.IndexMode(updates.checked_mode(f"at.{name}", mode, "drop"), sorted_, unique)
        value = cast("ArrayLike", contained_array(value))
        if not isinstance(value, _VALUES) and not hasattr(value, "__dlpack__"):
            raise ArgumentError(
                f"at.{name}: {described(value)} is not an array: {shown(value)}",
                remedy="make it one: fxad.numpy.asarray(value)",
            )
        if type(value) is Size:
            value = cast("ArrayLike", self._array._apply(_size_beside, (), (value,)))
        value = as_0d_scalar(value, self._array.aval)
        if _is_mask(self._index) and not getattr(value, "ndim", 0):
            return self._array._apply(updates.masked_update, (value, self._index), (name,))
        try:
            wraps = flag(f"at.{name}", "wrap_negative_indices", wraps)
            p, operands = plan(self._array.aval.shape, self._index, checked=mode is None, wraps=wraps)
        except FxadError as e:
            e.message = e.message.replace("getitem:", f"at.{name}:", 1)
            raise
        if mode is None and isinstance(p.take, Gather) and p.vectors is None:  # static indices, checked by `plan`
            index_mode = updates.IndexMode("promise_in_bounds", sorted_, unique)
        return self._array._apply(
            updates.update, (value, *operands), (promise_unique_indices(p, operands), name, index_mode)
        )


def _size_beside(_: Emit, x: Atom, size: int) -> Atoms:
    """Return the value of a named size, without axes, in the dtype that it takes with x."""
    return (scalar_literal(size, x.aval.with_shape(())),)


def _is_mask(index: object) -> bool:
    """Return True if an index is one boolean array. A single value can be written there without knowing the indices."""
    return getattr(index, "dtype", None) == dtypes.bool_ and getattr(index, "ndim", 0) > 0


def as_0d_scalar(value: ArrayLike, x: Aval) -> ArrayLike:
    """Return a Python scalar in the dtype that it takes with x, but 0-d: a trace broadcasts it to the shape of x."""
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        element = scalar_element(value, scalar_dtype(value, x.dtype, "at: the value"))
        return element if type(value) in NUMBER_ARGUMENTS else cast("np.generic", element[()])  # an operand, a literal
    return cast("ArrayLike", value.beside(x.dtype)) if isinstance(value, Typed) else value


def default_fill(dtype: dtypes.DType) -> bool | int | float:
    """Return the value of elements out of range: nan, the least signed integer, the greatest unsigned one, or True."""
    if dtype in dtypes.INEXACT:
        return nan
    if dtype is dtypes.bool_:
        return True
    least, greatest = dtypes.RANGES[dtype]
    return greatest if dtype in dtypes.UNSIGNED else least


def fill_literal(name: str, x: Aval, value: bool | complex | np.generic | None) -> Lit:
    """Return the literal for elements out of range. Raises: DTypeError if its kind does not fit."""
    scalar = x.with_shape(())
    if value is None:
        return Lit.of(default_fill(x.dtype), scalar)
    if isinstance(value, np.ndarray | Typed) and not value.ndim:
        value = cast("np.generic", np.asarray(value)[()])
    value_dtype = value.dtype if isinstance(value, np.generic) else scalar_dtype(value, x.dtype, f"{name}: fill_value")
    if dtype_kind(value_dtype) > dtype_kind(x.dtype):
        raise DTypeError(
            f"{name}: fill_value {shown(value)} does not go into {x} without loss", remedy="convert the array"
        )
    return Lit.of(value, scalar)
