"""XLA's figures for a compiled program."""

from __future__ import annotations

from typing import Protocol, final

from fxad.core.dataclasses import dataclass


@final
@dataclass(frozen=True, slots=True)
class CostStats:
    """XLA's own estimate of the work of one call. `flops` do not include `transcendentals`."""

    flops: float
    bytes_accessed: float
    transcendentals: float


@final
@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Bytes that a compiled program uses. `peak_bytes` is the peak of a call, with operands and results."""

    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    peak_bytes: int
    generated_code_bytes: int


class CountsMemory(Protocol):
    """An executable."""

    def memory(self) -> MemoryStats:
        """The memory that XLA planned for it."""
