"""Garbage collection of jaxlib.

jaxlib keeps some references until `collect_garbage` is called: a record of the caller for each execution, of 80 bytes
and more, and the NumPy array from which an array was made. jax calls it from a callback of Python's garbage collector,
which does not run in a loop that makes no cycles. fxad calls it after each transfer from the host, and at every 64th
execution:

    if next(due):
        collect()

Cost: 0.02 us an execution.
"""

from __future__ import annotations

from itertools import cycle
from typing import Final

from fxad.lowering.jaxlib import _jax

_EVERY: Final = 64

# One iterator for all threads: its `next` is one step of the interpreter.
collection_due: Final = cycle([False] * (_EVERY - 1) + [True])
collect_garbage: Final = _jax.collect_garbage


class CollectsGarbage:
    """Stored in the dictionary of a buffer that shares memory with a NumPy array: frees the array with the buffer."""

    __slots__ = ()

    def __del__(self) -> None:
        collect_garbage()
