"""Conversions of an array to Python and NumPy: to a number, a sequence, text, or an argument of `numpy` functions.

`Array` inherits these; a tracer raises an error for those that need a value. NumPy's own functions compute in NumPy and
return NumPy arrays, so `np.sin(x)` leaves the device; `fxad.numpy` stays on it. Operators between an array and a NumPy
array stay on the device, in either order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, Final, Never, Self, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.sizes.size import Size
from fxad.core.trees import tree
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ParameterError, ShapeError, SizeError, shown
from fxad.ir import Aval

# Versions of the Python array API standard that `fxad.numpy` conforms to.
API_VERSIONS: Final = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


class Conversions:
    """The conversion methods of an array."""

    __slots__ = ()
    __array_priority__ = 1000

    @property
    @abstractmethod
    def aval(self) -> Aval:
        """Shape and dtype together."""

    # `NDArray[Any]` is what NumPy's functions take for an array of any dtype. By its types they take it as operators of
    # `ndarray` too, although `ndarray + Array` is an Array: `fxad.mypy_plugin` says so to mypy.
    @abstractmethod
    def __array__(self, dtype: object = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the value in NumPy."""

    @abstractmethod
    def __getitem__(self, index: object) -> Self:
        """Return the elements an index picks."""

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        if api_version is not None and api_version not in API_VERSIONS:
            raise ParameterError(
                f"__array_namespace__: api_version {shown(api_version)} is not one fxad conforms to",
                remedy=f"use one of {', '.join(API_VERSIONS)}",
            )
        # imported by name: the namespace is a layer above arrays
        return import_module("fxad.numpy")

    # --------------------------------------------------------------------------------------------------- a sequence

    def __len__(self) -> int:
        if not self.aval.shape:
            raise ArgumentError("len: an array without axes has no length", remedy="its one element is item()")
        return self._steps_along_first_axis("len", "x.shape[0] is a size, with which you can calculate")

    def __iter__(self) -> Iterator[Self]:
        if not self.aval.shape:
            raise ArgumentError(
                "iter: an array without axes cannot be iterated over", remedy="its one element is item()"
            )
        steps = self._steps_along_first_axis("iter", "lax.scan, lax.map and vmap go over an axis of any size")
        return (self[k] for k in range(steps))

    def _steps_along_first_axis(self, name: str, remedy: str) -> int:
        """Return the size of axis 0, which Python iterates over. Raises: SizeError for a symbolic one."""
        n = self.aval.shape[0]
        if type(n) is Size:
            raise SizeError(f"{name}: axis 0 of {self.aval} has no number of elements here", remedy=remedy)
        return n

    def __setitem__(self, index: object, value: object) -> None:
        self._refuse_to_write("setitem")

    def _refuse_to_write(self, name: str) -> Never:
        raise ArgumentError(
            f"{name}: an array is immutable: {self.aval}",
            remedy="x.at[index].set(value) gives a new array with other elements",
        )

    # ------------------------------------------------------------------------------------------------------ numbers

    def numpy(self) -> npt.NDArray[Any]:
        """Return the value as a NumPy array (read-only view where the device shares memory)."""
        return self.__array__()

    def item(self, /, *args: SupportsIndex | tuple[SupportsIndex, ...]) -> bool | int | float | complex:
        """Return the value of one element, as a Python scalar.

        `item()` is that of an array with one element, `item(k)` is element k in row-major order, and `item(i, j)` or
        `item((i, j))` has one index for each axis.

        Raises: ShapeError for an array with another number of elements; ArgumentError for indices that are not ints, or
                not one for each axis; AxisError for an element that the array does not have.
        """
        value = self.__array__()
        if not args and value.size != 1:
            raise ShapeError(f"item: the array has {value.size} elements, not one: {self.aval}", remedy=_PICK)
        try:
            indices: Any = args  # NumPy types only one tuple
            return cast("bool | int | float | complex", value.item(*indices))
        except IndexError:
            raise AxisError(
                f"item: {_shown(args)} is outside of {self.aval}", remedy=f"it has {value.size} elements"
            ) from None
        except (TypeError, ValueError):
            raise ArgumentError(
                f"item: {_shown(args)} is no index of an element of {self.aval}",
                remedy="give one int, which counts the elements, or an int for each axis",
            ) from None

    def tolist(self) -> Any:
        """Return the value as nested lists of Python scalars."""
        return self.__array__().tolist()

    def __bool__(self) -> bool:
        if self.aval.size != 1:
            raise ShapeError(
                f"bool: the truth value of an array with {self.aval.size} elements is ambiguous: {self.aval}",
                remedy="use any(), all() or size",
            )
        return bool(self.__array__())

    def __int__(self) -> int:
        return int(self._number("int").real)

    def __float__(self) -> float:
        return float(self._number("float").real)

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def _number(self, what: str) -> Any:
        value = self.__array__()
        if value.shape:
            raise ArgumentError(f"{what}: only an array without axes is a number, got {self.aval}", remedy=_PICK)
        if what != "complex" and value.dtype.kind == "c":
            raise DTypeError(f"{what}: the array is complex: {self.aval}", remedy="take .real or .imag first")
        return value[()]

    def __index__(self) -> int:
        if self.aval.shape or not dtypes.is_integer(self.aval.dtype):
            raise ArgumentError(
                f"index: an index must be an integer without axes, got {self.aval}",
                remedy="convert it with int(), or pick an element",
            )
        return int(self.__array__())

    # --------------------------------------------------------------------------------------------------------- text

    def __repr__(self) -> str:
        text = np.array2string(np.asarray(self), separator=", ", prefix="Array(")
        shape = "" if self.aval.size != 0 or self.aval.ndim == 1 else f"shape={self.aval.shape}, "  # of an empty array
        return f"Array({text}, {shape}dtype={self.aval.dtype.name})"

    def __str__(self) -> str:
        return str(np.asarray(self))

    def __format__(self, spec: str) -> str:
        if not self.aval.shape:
            return format(np.asarray(self)[()], spec)
        if spec:
            raise ArgumentError(f"format: {spec!r} is for a number, got {self.aval}", remedy="format its elements")
        return str(self)

    # -------------------------------------------------------------------------------------------- NumPy's functions

    def _problem_in_numpy(self, name: str) -> FxadError | None:
        """Return the error if a NumPy function cannot have the value; None if it can."""
        return None

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: object, **kwargs: object) -> Any:
        # `ndarray + Array` arrives here, because `ndarray.__add__` is a ufunc
        if method == "at" and isinstance(args[0], Conversions):  # NumPy writes into a read-only array here
            args[0]._refuse_to_write(f"{ufunc.__name__}.at")
        reflected = _REFLECTED.get(ufunc.__name__)
        if reflected and method == "__call__" and not kwargs and not isinstance(args[0], Conversions):
            return getattr(self, reflected)(args[0])
        return self._in_numpy(getattr(ufunc, method), ufunc.__name__, args, kwargs)

    def __array_function__(
        self, func: Callable[..., object], types: object, args: tuple[Any, ...], kwargs: dict[str, object]
    ) -> Any:
        if func in _FUNCTIONS_OF_TYPE and len(args) == 1 and not kwargs:
            return _FUNCTIONS_OF_TYPE[func](args[0].aval)
        return self._in_numpy(func, func.__name__, args, kwargs)

    def _in_numpy(
        self, func: Callable[..., object], name: str, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        def plain(x: object) -> object:
            if not isinstance(x, Conversions):
                return x
            problem = x._problem_in_numpy(name)
            if problem is not None:
                raise problem
            return np.asarray(x)

        args, kwargs = tree.map(plain, (args, kwargs))
        return func(*args, **kwargs)


def _shown(args: tuple[object, ...]) -> str:
    return ", ".join([f"{shown(x)}" for x in args])


_PICK: Final = "pick an element by its index, or reduce the array"

# The methods behind NumPy's operators, operands swapped.
_REFLECTED: Final = MappingProxyType(
    {
        "add": "__radd__",
        "subtract": "__rsub__",
        "multiply": "__rmul__",
        "divide": "__rtruediv__",
        "floor_divide": "__rfloordiv__",
        "remainder": "__rmod__",
        "divmod": "__rdivmod__",
        "power": "__rpow__",
        "matmul": "__rmatmul__",
        "bitwise_and": "__rand__",
        "bitwise_or": "__ror__",
        "bitwise_xor": "__rxor__",
        "left_shift": "__rlshift__",
        "right_shift": "__rrshift__",
        "equal": "__eq__",
        "not_equal": "__ne__",
        "less": "__gt__",
        "less_equal": "__ge__",
        "greater": "__lt__",
        "greater_equal": "__le__",
    }
)

# NumPy's functions that need only the type of an array.
_FUNCTIONS_OF_TYPE: Final[Mapping[object, Callable[[Aval], object]]] = MappingProxyType(
    {np.shape: lambda a: a.shape, np.ndim: lambda a: len(a.shape), np.size: lambda a: a.size}
)
