"""Checks of static arguments: what a public function takes besides arrays.

Each function returns the argument as a plain Python value, or raises an error that names operation and argument.
An integer is anything with `__index__`: an int, a NumPy integer, an integer array without axes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import index
from types import MappingProxyType
from typing import Final, ParamSpec, SupportsFloat, SupportsIndex, TypeVar, cast, overload

import numpy as np

from fxad import dtypes
from fxad.core.sizes.size import Size, dimension
from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, described, exception_text, shown
from fxad.ir import Atom, Aval, Shape
from fxad.operations.aval_attributes import Typed

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

STATIC: Final = "it is static: a Python value, which cannot come from a traced array"


def _wrong(op: str, what: str, want: str, value: object) -> ArgumentError:
    return ArgumentError(f"{op}: {what} must be {want}, got {described(value)}: {shown(value)}", remedy=STATIC)


def to_int(op: str, what: str, value: SupportsIndex) -> int:
    """Return a size, a count or a position as an int. Raises: ArgumentError for a value without `__index__`;
    ParameterError for one of more than 64 bits."""
    if type(value) is Size:  # of a symbolic shape
        return value
    if type(value) is not int:
        try:
            value = index(value)
        except (TypeError, FxadError):
            raise _wrong(op, what, "an integer", value) from None
    if value.bit_length() > 63:
        raise ParameterError(
            f"{op}: {what} is an int of {value.bit_length()} bits", remedy="sizes and positions have 64 bits"
        )
    return value


def to_count(op: str, what: str, value: object, least: int) -> int:
    """Return a number of steps or of things, at least `least`, as an int or a size. Raises: ArgumentError for another
    value, bools included: True is not a number of steps, where `to_int` takes it as NumPy does; ParameterError for a
    smaller number."""
    try:
        n = dimension(None if isinstance(value, bool) else value)
    except (AttributeError, TypeError):
        raise ArgumentError(
            f"{op}: {what} is {described(value)}, not an int: {shown(value)}",
            remedy=f"{what} is static: a Python int",
        ) from None
    if n < least:
        raise ParameterError(f"{op}: {what} is {n}, less than {least}", remedy=f"give an int from {least} on")
    return n


def contained_array(value: object) -> object:
    """Return the array in an object of a user's class with `__jax_array__`, JAX's method for it; others as they are.

    Raises: ArgumentError if the method returns another such object.
    """
    method = _jax_array_method(value)
    if method is None:
        return value
    inner = method(value)
    if _jax_array_method(inner) is not None:
        raise ArgumentError(
            f"{type(value).__qualname__}.__jax_array__: returns {described(inner)}, not an array",
            remedy="return an array: of fxad, of NumPy or of JAX",
        )
    return inner


def _jax_array_method(value: object) -> Callable[[object], object] | None:
    method = None if isinstance(value, Typed) else getattr(type(value), "__jax_array__", None)
    return method if callable(method) else None  # a tracer of JAX has a property of this name


def to_tuple(op: str, what: str, values: Iterable[T]) -> tuple[T, ...]:
    """Return the items of a sequence, in order. Raises: ArgumentError for another value."""
    if isinstance(values, tuple | list):
        return tuple(values)
    sequence = isinstance(values, Iterable) and not isinstance(values, str | bytes | dict | set | frozenset)
    if sequence and not (isinstance(values, Typed | np.ndarray) and not values.ndim):
        return tuple(values)
    raise ArgumentError(
        f"{op}: {what} must be a sequence, got {described(values)}: {shown(values)}", remedy="give a tuple or a list"
    )


def to_ints(op: str, what: str, values: Iterable[int]) -> tuple[int, ...]:
    """Return sizes or axes as ints. Raises: ArgumentError for a value that is not a sequence of them."""
    return tuple([to_int(op, f"{what}[{k}]", v) for k, v in enumerate(to_tuple(op, what, values))])


def plain_ints(value: T) -> T:
    """Return an integer as an int, and a sequence or an array of integers as a tuple of ints. Every other value is
    returned as it is: the check of the caller refuses it."""
    if isinstance(value, range) or (isinstance(value, np.ndarray | Typed) and value.ndim == 1):
        return cast("T", tuple([plain_ints(v) for v in cast("Iterable[object]", value)]))
    if isinstance(value, tuple | list):
        plain = tuple([plain_ints(v) for v in value])
        return value if all([a is b for a, b in zip(plain, value, strict=True)]) else cast("T", plain)
    if type(value) in (int, bool, np.bool_) or not isinstance(value, SupportsIndex):
        return value
    try:
        return cast("T", index(value))
    except (TypeError, FxadError):  # an array of numbers that are no integers, a tracer
        return value


@overload
def argument_keys(keys: object) -> tuple[int | str, ...] | None: ...
@overload
def argument_keys(keys: object, kind: type[int]) -> tuple[int, ...] | None: ...
@overload
def argument_keys(keys: object, kind: type[str]) -> tuple[str, ...] | None: ...
def argument_keys(keys: object, kind: type[int | str] | None = None) -> tuple[int | str, ...] | None:
    """Return numbers and names of arguments, one of them or a sequence, as a tuple. With `kind`, only numbers, or only
    names. None for every other value: the error is the caller's."""
    if type(keys) is int and kind is not str:  # the common case
        return (keys,)
    keys = plain_ints(keys)
    keys = (keys,) if isinstance(keys, int | str) else keys
    if not isinstance(keys, Sequence):
        return None
    kinds = (int, str) if kind is None else kind
    return tuple(keys) if all([isinstance(k, kinds) and not isinstance(k, bool) for k in keys]) else None


def is_one_integer(value: object) -> bool:
    """Return True for an integer, and for an array without axes: `to_int` says if it is one. False for a sequence."""
    return hasattr(value, "__index__") and not getattr(value, "ndim", 0)


def one_or_more(op: str, what: str, values: int | Iterable[int]) -> int | tuple[int, ...]:
    """Return one integer as an int, and a sequence of integers as a tuple. Raises: ArgumentError."""
    if type(values) is int:
        return values
    return to_int(op, what, values) if is_one_integer(values) else to_ints(op, what, values)  # type: ignore[arg-type]  # both check it


def with_atoms(static: Iterable[T | None], atoms: Iterable[Atom]) -> list[T | Atom]:
    """Return static values, with the next one of some atoms in place of each None."""
    rest = iter(atoms)
    return [next(rest) if v is None else v for v in static]


def flag(op: str, what: str, value: object) -> bool:
    """Return a flag as a bool. Raises: ArgumentError for a value that is not a bool of Python or NumPy, or an array of
    one bool."""
    if type(value) is bool:
        return value
    if isinstance(value, np.bool_ | np.ndarray | Typed) and value.dtype == np.bool_ and not value.ndim:
        try:
            return bool(value)
        except FxadError:  # a tracer
            pass
    raise _wrong(op, what, "True or False", value)


def check_flags(op: str, **flags: object) -> None:
    """Raise ArgumentError for a value that is not a flag. These flags change no result."""
    for what, value in flags.items():
        flag(op, what, value)


def text(op: str, what: str, value: str) -> str:
    """Return a name, such as a mode. Raises: ArgumentError for a value that is not a str."""
    if isinstance(value, str):
        return value
    raise ArgumentError(f"{op}: {what} must be a str, got {described(value)}: {shown(value)}", remedy=STATIC)


def is_unicode(value: str) -> bool:
    """Return True if a text can be encoded: a surrogate alone is no character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_word(value: object, words: Container[str | None]) -> bool:
    """Return True if a value is one of some words, of which None can be one. Every other value is none of them: arrays
    are not compared, and what cannot be hashed is not looked up."""
    return (value is None or isinstance(value, str)) and value in words


def word(op: str, what: str, value: T, words: Iterable[str | None]) -> T:
    """Return an option that is one of some words, of which None can be one. Raises: ParameterError for another
    value."""
    words = tuple(words)
    if is_word(value, words):
        return value
    *others, last = [str(w) if w is None else f'"{w}"' for w in words]
    raise ParameterError(f"{op}: {what} {shown(value, 40)}", remedy=f"use {', '.join(others)} or {last}")


def function(op: str, what: str, value: F) -> F:
    """Return a function. Raises: ArgumentError for a value that cannot be called."""
    if callable(value):
        return value
    raise ArgumentError(
        f"{op}: {what} must be a function, got {described(value)}: {shown(value)}",
        remedy="give something that can be called",
    )


def by_numpy(op: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of a function of NumPy or of opt_einsum. Raises: ArgumentError for arguments that it
    refuses."""
    try:
        return call(*args, **kwargs)
    except FxadError:
        raise
    except (TypeError, ValueError, OverflowError, IndexError, AttributeError, KeyError, MemoryError) as e:
        raise ArgumentError(
            f"{op}: the arguments are refused: {exception_text(e)}", remedy="give what NumPy takes"
        ) from None


def number(op: str, what: str, value: object) -> float:
    """Return a real number as a float. Raises: ArgumentError."""
    if isinstance(value, float | int | np.floating | np.integer):
        try:
            return float(value)
        except OverflowError:
            pass
    elif isinstance(value, np.ndarray | Typed) and not value.ndim and value.dtype.kind in "fiubV":
        try:
            return float(cast("SupportsFloat", value))
        except FxadError:  # a tracer
            pass
    raise _wrong(op, what, "a real number", value)


def shape(op: str, what: str, value: int | Iterable[int]) -> Shape:
    """Return the sizes of an array: one integer is a vector of that size. Raises: ArgumentError, ParameterError."""
    sizes = one_or_more(op, what, value)
    return (sizes,) if isinstance(sizes, int) else sizes


def no_out(op: str, out: object, overwrite_input: bool = False) -> None:
    """Raise ParameterError for an array to write the result to: arrays are immutable; ArgumentError for an
    `overwrite_input` that is not a flag."""
    if out is not None:
        raise ParameterError(f"{op}: out is given, and arrays are immutable", remedy="use the result")
    if flag(op, "overwrite_input", overwrite_input):
        raise ParameterError(f"{op}: overwrite_input is True, and arrays are immutable", remedy="leave it out")


def not_in_place(op: str, inplace: bool) -> None:
    """Raise ParameterError for a true `inplace`: arrays are immutable; ArgumentError for one that is not a flag."""
    if flag(op, "inplace", inplace):
        raise ParameterError(f"{op}: inplace is True, and arrays are immutable", remedy="use the result")


def column_major(op: str, order: str) -> bool:
    """Return True for the order "F". Raises: ParameterError for an order that depends on the memory."""
    if not (isinstance(order, str) and order in ("C", "F")):
        raise ParameterError(f"{op}: order {shown(order, 40)}; arrays have no layout", remedy='use "C" or "F"')
    return order == "F"


_BYTE_UNITS: Final[Mapping[str, int]] = MappingProxyType(
    {"": 1}
    | {f"{p}B": 1000**k for k, p in enumerate(("", "k", "M", "G", "T"))}
    | {f"{p}iB": 1024 ** (k + 1) for k, p in enumerate("KMGT")}
)

_BYTES: Final = re.compile(r"\s*(\d{1,18}(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)


def parse_bytes(what: str, budget: object) -> int:
    """Return a number of bytes, given as an int or as a text such as "64 MiB". Raises: ArgumentError."""
    budget = plain_ints(budget)
    if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0:
        return budget
    match = _BYTES.fullmatch(budget) if isinstance(budget, str) else None
    if match is None or match[2] not in _BYTE_UNITS:
        raise ArgumentError(
            f"{what}: the budget is {described(budget)}, not a number of bytes: {shown(budget)}",
            remedy='give an int >= 0, or a text such as "64 MiB" or "1.5 GB"',
        )
    return int(float(match[1]) * _BYTE_UNITS[match[2]])


def check_real(name: str, *avals: Aval) -> None:
    """Raise DTypeError for complex operands of a function that takes real numbers only."""
    if any([aval.dtype in dtypes.COMPLEX for aval in avals]):
        shown = " and ".join([str(aval) for aval in avals])
        raise DTypeError(f"{name}: takes real numbers, got {shown}", remedy="pass the real part")
