"""Host functions that running programs call, by number.

A program does not refer to a function (docs/adr/0027). It has an operand of type u64[], the number of the function. The
buffer bound to that operand and its copies refer to an object, the holder: the table drops the number when the holder
is collected.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Final, TypeAlias, cast, final

from fxad.core.atoms import NDArray
from fxad.core.weak import CLEANUP, RefWithCleanup
from fxad.errors import ExecutionError, FxadError, exception_text

# Takes the operands and returns the results, one entry each.
HostFunction: TypeAlias = Callable[..., Sequence[object]]


@final
class HostFunctions:
    """The live host functions, by number. Thread-safe. Numbers are unique, also across processes: a program that was
    stored with a number must not find another function."""

    __slots__ = ("_functions", "_numbers")

    def __init__(self) -> None:
        self._functions: dict[int, tuple[HostFunction, RefWithCleanup[object]]] = {}
        self._numbers = count(int.from_bytes(os.urandom(7), "little"))

    def number(self) -> int:
        """Return a number that no other function has, also in other processes."""
        return next(self._numbers)

    def add(self, number: int, function: HostFunction, holder: object) -> None:
        """Register a function under a number, until `holder` is collected."""
        cleanup = partial(self._functions.pop, number, None)
        ref = RefWithCleanup(holder, CLEANUP)
        ref.cleanup = cleanup
        self._functions[number] = function, ref

    def call(self, number: object, label: str, args: Sequence[NDArray]) -> Sequence[object]:
        """Call a function. Raises: ExecutionError if the function was dropped, or if it raises."""
        registered = self._functions.get(int(cast("int", number)))  # an element of type u64, or a NumPy array of it
        if registered is None:
            raise ExecutionError(
                f"host_call: {label} is gone: it is of another process, or nobody holds its program",
                remedy="keep the program, or trace it again",
            )
        function, _ = registered
        try:
            return function(*args)
        except FxadError:
            raise
        except Exception as e:
            raise ExecutionError(
                f"host_call: {label} raised {exception_text(e)}",
                remedy="correct the function: what it raised is the cause of this error, with its own lines",
            ) from e

    def __len__(self) -> int:
        return len(self._functions)


HOST: Final = HostFunctions()
