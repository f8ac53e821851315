"""Errors of buffers and calls: donated or deleted buffers, failed programs, exhausted memory.

A buffer has the description of the program that computes it (`Origin`, in the type that jaxlib stores on each array).
So an error that is raised long after the call, by a wait, still names the function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from threading import get_ident
from time import sleep
from typing import Final, Protocol, TypeAlias, TypeVar, final
from weakref import ref

from fxad.core.dataclasses import dataclass
from fxad.errors import ExecutionError
from fxad.ir import Source, source_location
from fxad.lowering.jaxlib import _jax
from fxad.xla.compat import ArrayType, reason

T = TypeVar("T")

XlaRuntimeError: Final = _jax.JaxRuntimeError
ResultHandler: TypeAlias = _jax.ResultHandler

_DONATED: Final = "fxad_donated"  # in the dictionary of a buffer
_PINS: Final = "fxad_pins"
_PARTS: Final = "fxad_parts"
_ALLOCATION: Final = re.compile(r"allocating (\d+) bytes")


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


@final
@dataclass(frozen=True, slots=True)
class Origin:
    """The program that computes a buffer: the user's function, its first line, and a weak reference to the executable.

    An error that needs the memory of the program reads it from the executable: this takes 1 ms for 8 devices. Every
    buffer refers to its origin through objects of jaxlib, which hide references from the garbage collector. So an
    origin must not refer to the globals of a module, as a function does: clients would live beyond interpreter exit.
    """

    name: str
    where: str
    executable: Callable[[], CountsMemory | None] = field(compare=False, repr=False)


@final
class DonationRecord:
    """The program that a buffer was donated to, and the user's line of the call. `placeholders` replace such buffers,
    one for each sharding and commitment."""

    __slots__ = ("placeholders", "program", "source")

    def __init__(self, program: str, source: Source) -> None:
        self.program, self.source = program, source
        self.placeholders: dict[tuple[_jax.Sharding, bool], _jax.ArrayImpl] = {}

    def __str__(self) -> str:
        at = source_location(self.source)
        return f"donated to {self.program} at {at}" if at else f"donated to {self.program}"


DonatingCall: TypeAlias = tuple[DonationRecord, int]  # a new tuple for each call; the second is its thread


def take_for_donation(buffer: _jax.ArrayImpl, call: DonatingCall) -> bool:
    """Take a buffer for donation. Returns True if no other call has taken it. The buffer keeps a record of the call.

    If several threads do this concurrently, one gets True: a dictionary's `setdefault` is atomic. The call waits until
    other threads have released their pins of the buffer.
    """
    if buffer.__dict__.setdefault(_DONATED, call) is not call:
        return False
    pins: dict[ref[_Pin], int] = buffer.__dict__.get(_PINS, {})
    for pin, thread in [*pins.items()]:
        while pin() is not None and thread != get_ident():  # an interrupted read has dropped its pin
            sleep(0)
    return True


@final
class _Pin:
    """Marks a read of the memory of a buffer. Only the reading thread refers to it."""

    __slots__ = ("__weakref__",)


def pinned(buffer: _jax.ArrayImpl, read: Callable[[_jax.ArrayImpl], T]) -> T:
    """The result of `read`, a function of jaxlib that refers to the memory of a buffer. No other thread donates the
    buffer meanwhile.

    XLA does not ensure this: if it makes a reference while another thread donates, the process crashes. `read` must not
    wait. Raises: XlaRuntimeError if another call has taken the buffer for donation.
    """
    pin = _Pin()
    key = ref(pin)
    pins: dict[ref[_Pin], int] = buffer.__dict__.setdefault(_PINS, {})
    pins[key] = get_ident()
    try:
        # read after pinning, since `take_for_donation` records the call first
        call: DonatingCall | None = buffer.__dict__.get(_DONATED)
        if call is not None and call[1] != get_ident():  # the donating call itself may copy it to another device
            raise XlaRuntimeError(OPERAND_DELETED)
        return read(buffer)
    finally:
        del pins[key]


def start_pinned(start: Callable[[Sequence[_jax.ArrayImpl]], T], buffers: Sequence[_jax.ArrayImpl]) -> T:
    """The result of `start`, an execution on several devices. No other thread donates an operand meanwhile.

    On one device, XLA refuses an operand that is deleted. On several, it ends the process.
    Raises: XlaRuntimeError if an operand is deleted, or if another call has taken it for donation.
    """
    pin, thread = _Pin(), get_ident()
    key = ref(pin)
    pins_of_each: list[dict[ref[_Pin], int]] = [b.__dict__.setdefault(_PINS, {}) for b in buffers]
    for pins in pins_of_each:
        pins[key] = thread
    try:
        for b in buffers:  # read after pinning, as in `pinned`
            call: DonatingCall | None = b.__dict__.get(_DONATED)
            if b.is_deleted() or (call is not None and call[1] != thread):
                raise XlaRuntimeError(OPERAND_DELETED)
            for part in b.__dict__.get(_PARTS, ()):
                if part.is_deleted():
                    raise XlaRuntimeError(OPERAND_DELETED)
        return start(buffers)
    finally:
        for pins in pins_of_each:
            pins.pop(key, None)  # an operand may be there twice


def note_parts(buffer: _jax.ArrayImpl, parts: Sequence[_jax.ArrayImpl]) -> None:
    """Note that others have the parts of an array on several devices. Each may be deleted or donated by itself."""
    buffer.__dict__[_PARTS] = parts


def undo_donation(buffer: _jax.ArrayImpl, call: DonatingCall) -> None:
    """Undo `take_for_donation`, if this call has taken the buffer and its memory still exists."""
    if buffer.__dict__.get(_DONATED) is call and not buffer.is_deleted():
        del buffer.__dict__[_DONATED]


def placeholder(buffer: _jax.ArrayImpl, make: Callable[[], _jax.ArrayImpl]) -> _jax.ArrayImpl:
    """The placeholder of a donated buffer, made once for each line, device and commitment."""
    call: DonatingCall = buffer.__dict__[_DONATED]
    key = buffer._sharding, buffer._committed
    placeholders = call[0].placeholders
    deleted = placeholders.get(key)
    if deleted is None:
        deleted = placeholders[key] = make()
        deleted.__dict__[_DONATED] = call
    return deleted


def donation_record(buffer: _jax.ArrayImpl) -> DonationRecord | None:
    """The program that a buffer was donated to; None if it was not donated."""
    call: DonatingCall | None = buffer.__dict__.get(_DONATED)
    return None if call is None else call[0]


def missing_value_reason(buffer: _jax.ArrayImpl) -> str | None:
    """The reason, as text, why a buffer has no value; None if it has one."""
    donation = donation_record(buffer)
    if donation is not None:
        return str(donation)
    return "deleted" if buffer.is_deleted() else None


def value_error(what: str, e: Exception, buffer: _jax.ArrayImpl) -> ExecutionError:
    """The error for a buffer without a value: donated, deleted, or its computation failed."""
    donation = donation_record(buffer)
    if donation is not None:
        return ExecutionError(f"{what}: the array was {donation}; its memory is used again", remedy=_IF_DONATED)
    if buffer.is_deleted():
        return ExecutionError(f"{what}: the array is deleted", remedy=_IF_DELETED)
    origin = buffer.aval.origin if isinstance(buffer.aval, ArrayType) else None
    return _failure(what, e, origin if isinstance(origin, Origin) else None)


_IF_DONATED: Final = "use the result in its place, or leave the argument out of `donate`"
_IF_DELETED: Final = "compute it again, or delete it when nobody uses it any more"
_EXCHANGE: Final = re.compile("gloo", re.IGNORECASE)  # XLA's collectives between processes
_IF_NOT_REACHED: Final = "see why another process has ended, or does not run this program"
_IF_FAILED: Final = "the words are XLA's: check what the program is given, and what memory the device has left"


@final
class StepRefused(_jax.JaxRuntimeError):
    """XLA refused a step of a linked run: the operands of the program that it reads, its unit, and the user's line."""

    def __init__(self, message: str, reads: Sequence[int], unit: str, where: str) -> None:
        super().__init__(message)
        self.reads, self.unit, self.where = reads, unit, where


# XLA's messages for a deleted operand. A call refused for another reason may have consumed donated operands.
OPERAND_DELETED: Final = "an operand is deleted"
_DELETED: Final = re.compile(rf"{OPERAND_DELETED}|to have \d+ shards, got: \[|has been deleted|deleted or donated")


def execution_error(
    e: Exception, buffers: Sequence[_jax.ArrayImpl], origin: Origin, path: Callable[[int], str] | None = None
) -> ExecutionError:
    """The error for a call that XLA refused. `path` gives the name of an operand in messages."""
    step = e if isinstance(e, StepRefused) else None
    error = None
    if _DELETED.search(str(e)):
        reads = range(len(buffers)) if step is None else step.reads
        deleted = next((k for k in reads if missing_value_reason(buffers[k])), None)
        error = None if deleted is None else _deleted_operand(deleted, buffers[deleted], origin, path)
    error = error or _failure(origin.name if path else "execute", e, origin)
    if step is not None:
        error.where = step.where
        error.located(equation=step.unit)
    return error


def _deleted_operand(k: int, b: _jax.ArrayImpl, origin: Origin, path: Callable[[int], str] | None) -> ExecutionError:
    what, donation = f"{origin.name}: {path(k)}" if path else f"execute: operand {k}", donation_record(b)
    if donation is not None:
        return ExecutionError(f"{what} was {donation}", remedy=_IF_DONATED)
    return ExecutionError(f"{what} is deleted", remedy=_IF_DELETED)


def _failure(what: str, e: Exception, origin: Origin | None) -> ExecutionError:
    """The error for a failed computation. If an allocation failed, it lists the memory of the program."""
    problem = reason(e)
    if origin is None:
        return ExecutionError(f"{what}: {problem}", remedy=_IF_FAILED)
    head = what if what == origin.name else f"{what}: {origin.name}"
    allocation = _ALLOCATION.search(problem)
    if allocation is None:
        remedy = _IF_NOT_REACHED if _EXCHANGE.search(problem) else _IF_FAILED
        return ExecutionError(f"{head}: {problem}", where=origin.where, remedy=remedy)
    executable = origin.executable()
    m = None if executable is None else executable.memory()
    needs = "" if m is None else (
        f"; at its peak the program needs {m.peak_bytes:,}: arguments {m.argument_bytes:,}, results"
        f" {m.output_bytes:,}, temporaries {m.temp_bytes:,}"
    )  # fmt: skip
    return ExecutionError(
        f"{head}: out of memory: {int(allocation[1]):,} bytes were asked for{needs}",
        where=origin.where,
        remedy="donate arguments that are not needed again, recompute with remat, or give it smaller arrays",
    )
