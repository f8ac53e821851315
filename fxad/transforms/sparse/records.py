"""Records of the last pattern and derivative of a program, and what they keep alive.

A program lives while something refers to it, and a record on it (`record_of`) as long as its program. A pattern that
depends on values (`at`) is kept for the last values only. The records and their owners:

    the program       LastPattern       its pattern for the last values, to which it refers weakly
    the program       LastDerivative    its derivative for the last pattern and coloring
    the derivative    _KeptAlive        the program, and its pattern
    a pattern         Pattern._memo     its CSR arrays, colorings, places in products

A function is traced in each call, and its program would die with the call. But the cache holds the derivative, which
was compiled (docs/adr/0003), and by `_KeptAlive` it holds the program too. So the next call, which traces an equal
program, gets this one, with its records. A program and its derivative refer to each other: the garbage collector
frees them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, final
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from fxad.core.memo import record_of
from fxad.ir import Flags, Jaxpr
from fxad.transforms.sparse.decompression import Coloring
from fxad.transforms.sparse.pattern import Pattern


@final
class LastPattern:
    """The pattern of a program with the values that it was asked for last. It does not keep the values alive.
    Arrays are compared by identity, those of NumPy, which change, by a digest."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[list[ref[object] | bytes | None], Pattern] | None = None

    def of(self, values: Sequence[object]) -> Pattern | None:
        """Return the pattern if it is that of these values. None: not given."""
        if self._last is None:
            return None
        marks, pattern = self._last
        return pattern if all([_is_marked(v, mark) for v, mark in zip(values, marks, strict=True)]) else None

    def set(self, values: Sequence[object], pattern: Pattern) -> None:
        """Replace the pattern by that of these values."""
        marks = [None if v is None else _digest(v) if isinstance(v, np.ndarray) else ref(v) for v in values]
        self._last = marks, pattern


def _is_marked(value: object, mark: ref[object] | bytes | None) -> bool:
    """Return True for the value of which this is the mark."""
    if value is None or mark is None:
        return value is mark
    if isinstance(mark, bytes):
        return isinstance(value, np.ndarray) and _digest(value) == mark
    return mark() is value


def _digest(array: NDArray[Any]) -> bytes:
    """Return a hash of an array of NumPy."""
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.blake2b(head + array.tobytes(), digest_size=16).digest()


def last_pattern(jaxpr: Jaxpr, wrt: Flags) -> LastPattern:
    """Return the record of the last pattern of a program with respect to the marked operands."""
    return record_of(jaxpr, LastPattern, wrt)


@final
class LastDerivative:
    """The derivative program of a program that was asked for last, with its pattern and coloring: with `at`, a program
    has a pattern for each value of its arguments, and outlives them."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[Pattern, Coloring, Any] | None = None

    def of(self, pattern: Pattern, coloring: Coloring) -> Any:
        """Return the derivative if it is that of this pattern and coloring, else None."""
        last = self._last
        return last[2] if last is not None and last[0] is pattern and last[1] == coloring else None

    def set(self, pattern: Pattern, coloring: Coloring, derivative: object) -> None:
        """Replace the derivative."""
        self._last = pattern, coloring, derivative


def last_derivative(jaxpr: Jaxpr, call: object) -> LastDerivative:
    """Return the record of the last derivative of a program, for calls of one form."""
    return record_of(jaxpr, LastDerivative, call)


@final
class _KeptAlive:
    """A program and a pattern that live as long as a third program. Only the references count: nothing reads them."""

    __slots__ = ("of",)

    def __init__(self) -> None:
        self.of: tuple[Jaxpr, Pattern] | None = None


def keep_alive_with(derivative: Jaxpr, jaxpr: Jaxpr, pattern: Pattern) -> None:
    """Keep a program and its pattern alive as long as the program of its derivative: the last ones that this is called
    with."""
    record_of(derivative, _KeptAlive).of = jaxpr, pattern


__all__ = ["LastDerivative", "LastPattern", "keep_alive_with", "last_derivative", "last_pattern"]
