"""Functions of the host that running programs call, by number.

A program holds no function (docs/adr/0027). It has an operand, a number of type u64[], and the array that the operand
is bound to holds the function: when nobody holds that array any more, the number is forgotten.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast, final

from fxad.core.atoms import NDArray
from fxad.errors import ExecutionError, FxadError, said

# Takes the operands and gives the results, one entry each.
HostFunction: TypeAlias = Callable[..., Sequence[object]]


@final
class HostFunctions:
    """The functions that somebody holds. Thread-safe; a number is never used twice, nor in another process: a program
    that was stored with one must not find a function that is not its own."""

    __slots__ = ("_functions", "_lock", "_next")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: dict[int, HostFunction] = {}
        self._next = int.from_bytes(os.urandom(7), "little")

    def add(self, function: HostFunction) -> int:
        """A number for a function."""
        with self._lock:
            number = self._next
            self._next += 1
            self._functions[number] = function
        return number

    def forget_with(self, holder: object, number: int) -> None:
        """Forget a number when `holder` is collected."""
        # not at the end of the interpreter: what other handlers and threads run there still calls it
        weakref.finalize(holder, self._functions.pop, number, None).atexit = False

    def call(self, number: object, label: str, args: Sequence[NDArray]) -> Sequence[object]:
        """Call a function. Raises: ExecutionError when nobody holds it, and for what the function raises."""
        function = self._functions.get(int(cast("int", number)))
        if function is None:
            raise ExecutionError(
                f"host_call: {label} is gone: it is of another process, or nobody holds its program",
                remedy="keep the program, or trace it again",
            )
        try:
            return function(*args)
        except FxadError:
            raise
        except Exception as e:
            raise ExecutionError(
                f"host_call: {label} raised {said(e)}",
                remedy="correct the function: what it raised is the cause of this error, with its own lines",
            ) from e

    def __len__(self) -> int:
        return len(self._functions)


HOST: Final = HostFunctions()
