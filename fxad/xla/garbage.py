"""Garbage collection: of jaxlib, and of Python while jaxlib runs.

jaxlib keeps some references until `collect_garbage` is called: a record of the caller for each execution, of 80 bytes
and more, and the NumPy array from which an array was made. jax calls it from a callback of Python's garbage collector,
which does not run in a loop that makes no cycles. fxad calls it after each transfer from the host, and at every 64th
execution:

    if next(collection_due):
        collect_garbage()

Cost: 0.02 us an execution.

On Python 3.11 a collection may also start inside a function of jaxlib, and run finalisers that call jaxlib. One scratch
array of jaxlib does not allow this. It is restored at the end of each collection
(docs/adr/0060-the-scratch-array-of-tracebacks-is-restored.md).
"""

from __future__ import annotations

import gc
import sys
from functools import partial
from itertools import cycle
from operator import methodcaller
from typing import Final, final

from fxad.lowering.jaxlib import _jax

_EVERY: Final = 64

# One iterator for all threads: its `next` is one step of the interpreter.
collection_due: Final = cycle([False] * (_EVERY - 1) + [True])
collect_garbage: Final = _jax.collect_garbage


class CollectsGarbage:
    """Stored in the dictionary of a buffer that shares memory with a NumPy array: frees the array with the buffer."""

    __slots__ = ()

    __del__ = staticmethod(_jax.collect_garbage)  # a C function: no signal handler runs in it, and is lost


@final
class _RestoresTracebacks:
    """Restores jaxlib's scratch array for tracebacks at the end of a collection.

    For each call, jaxlib collects the code objects of the Python stack in one array for each thread. It makes frame
    objects meanwhile. Up to Python 3.11, this may start a collection. If a finaliser calls jaxlib, the array then
    contains the stack of the finaliser. jaxlib counts references to the wrong code objects, and a code object is freed
    while it is in use. At the end of the collection the stack of the interrupted call is in force again, and a further
    traceback writes it to the array.

    Rule: only C functions run, so that the array gets this stack exactly, and no signal handler runs and is lost.
    """

    __slots__ = ("get_traceback",)

    def __init__(self) -> None:
        self.get_traceback = _jax.Traceback.get_traceback

    # Python calls a callback with the phase, "start" or "stop", and a dict. The callback below is `getattr`, a function
    # of C: `getattr(self, "stop", info)` reads this property, whose getter is a function of C too, and
    # `getattr(self, "start", info)` finds no attribute, and returns its default.
    stop = property(methodcaller("get_traceback"))


if sys.version_info < (3, 12):  # from then on, collections start between instructions of Python
    gc.callbacks.append(partial(getattr, _RestoresTracebacks()))
