"""Commitments: whether arrays of this process are committed to devices.

An array is committed if the user has put it on a device, or if it was computed from a committed array
(`fxad.tracing.placement`). Each buffer knows if it is; this module knows if any is.
"""

from __future__ import annotations

from typing import Final


class Commitments:
    """`any` is True if some array of this process is committed to a device. If not, calls skip the check of each
    operand, which takes 0.1 us: most processes have one device, and commit nothing. At interpreter exit, its class
    changes to one that stops calls (`fxad.xla.in_flight`)."""

    __slots__ = ("any",)

    def __init__(self) -> None:
        self.any = False

    def enter(self) -> None:
        """Called before each wait for XLA and each transfer to it."""


commitments: Final = Commitments()
