"""The object that each call and each transfer reads before it uses XLA.

It has two purposes:

1. It says if any array of this process is committed to a device. An array is committed if the user has put it on a
   device, or if it was computed from a committed array (`fxad.tracing.placement`). Each buffer knows if it is.
2. It stops calls and transfers at interpreter exit. Its class then changes to one that blocks
   (`fxad.xla.interpreter_exit`). So exit costs a call nothing before.
"""

from __future__ import annotations

from typing import Final


class ProcessState:
    """`any_committed` is True if some array of this process is committed to a device. If not, calls skip the check of
    each operand, which takes 0.1 us: most processes have one device, and commit nothing. At interpreter exit, reading
    it blocks."""

    __slots__ = ("any_committed",)

    def __init__(self) -> None:
        self.any_committed = False

    def block_at_exit(self) -> None:
        """Called before each wait for XLA and each transfer to it. At interpreter exit, it blocks; before, it does
        nothing."""


process_state: Final = ProcessState()
