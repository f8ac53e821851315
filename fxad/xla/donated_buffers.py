"""Donated buffers: the call that has taken a buffer, reads that it waits for, and what replaces the buffer.

One thread may donate a buffer while another reads it. So a call takes the buffer, and a read pins it, by entries in the
dictionary of the buffer (docs/adr/0067-a-read-pins-and-a-donation-takes.md). The entry of the call says in which state
the buffer is:

    entry `_DONATED`    its call    buffer     state
    none                            alive      free: a call may take it
    `Claim`             runs        alive      taken: other calls are refused, reads in other threads too
    `Claim`             has ended   alive      released: the call failed. The next one removes the entry, and takes it
    `Claim`             any         deleted    donated: `record` says to which program, for messages
    without a record    runs        any        deleted by the user

Buffers refer to objects of this module, and jaxlib hides references from the garbage collector. So this module must not
refer to clients: they would live beyond interpreter exit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from time import sleep
from typing import Final, TypeVar, cast, final
from weakref import ref

import numpy as np

from fxad.core.weak import remove_dead
from fxad.ir import Source, source_location
from fxad.lowering.jaxlib import _jax
from fxad.xla.compat import put_part
from fxad.xla.jaxlib_types import Buffer, OneDeviceSharding, XlaRuntimeError

T = TypeVar("T")

OPERAND_DELETED: Final = "an operand is deleted"  # the message for a buffer that another call has taken
_DONATED: Final = "fxad_donated"  # in the dictionary of a buffer
_PINS: Final = "fxad_pins"
_PARTS: Final = "fxad_parts"


@final
class DonationRecord:
    """The program that a buffer was donated to, and the user's line of the call. `placeholders` replace such buffers,
    one for each sharding and commitment."""

    __slots__ = ("placeholders", "program", "source")

    def __init__(self, program: str, source: Source) -> None:
        self.program, self.source = program, source
        self.placeholders: dict[tuple[_jax.Sharding, bool], Buffer] = {}

    def __str__(self) -> str:
        line = source_location(self.source)
        return f"donated to {self.program} at {line}" if line else f"donated to {self.program}"


@final
class DonatingCall:
    """A running call that donates operands. Only its frame refers to it, and drops it at once when the call fails. So
    its operands are released in one step, which no further signal interrupts."""

    __slots__ = ("__weakref__",)


@final
class Claim(ref[DonatingCall]):
    """The claim of a call to a buffer, which has it as an entry: a weak reference to the call, its thread, and its
    record. Without a record, the user deletes the buffer.

    If the reference is dead, the call has ended. It has released the buffer, if that is not deleted.
    """

    __slots__ = ("record", "thread")

    record: DonationRecord | None
    thread: int


def claim_of(call: DonatingCall, record: DonationRecord | None) -> Claim:
    """Return the claim of a call of this thread to the buffers that it takes."""
    claim = Claim(call)
    claim.record, claim.thread = record, get_ident()
    return claim


def take_for_donation(buffer: Buffer, claim: Claim) -> bool:
    """Take a buffer for donation. Return True if no other call has taken it. The buffer keeps the claim.

    If several threads do this concurrently, one gets True: a dictionary's `setdefault` is atomic. The call waits until
    other threads have released their pins of the buffer.
    """
    while (earlier := buffer.__dict__.setdefault(_DONATED, claim)) is not claim:
        if not _is_released(buffer, earlier):
            return False
        remove_dead(buffer.__dict__, _DONATED)
    _wait_for_pins(buffer)
    return True


def _is_released(buffer: Buffer, claim: Claim) -> bool:
    """Return True if a call has taken a buffer, has failed, and did not consume it."""
    return claim() is None and not buffer.is_deleted()  # in this order: a call consumes before it ends


_DELETION: Final = DonatingCall()  # never ends: an array whose deletion was interrupted counts as deleted


def take_for_deletion(buffer: Buffer) -> None:
    """Take a buffer that the user deletes, as for donation: a program that another thread starts with it is refused. If
    a call in another thread has taken it for donation, wait until that call has consumed or released it."""
    deletion = claim_of(_DELETION, None)
    while not buffer.is_deleted():
        earlier: Claim = buffer.__dict__.setdefault(_DONATED, deletion)
        # a call of this thread waits for this: a signal handler or a finaliser runs in it
        if earlier.record is None or (earlier.thread == deletion.thread and earlier() is not None):
            _wait_for_pins(buffer)
            return
        if _is_released(buffer, earlier):
            remove_dead(buffer.__dict__, _DONATED)
        else:
            sleep(0)


def _wait_for_pins(buffer: Buffer) -> None:
    """Wait until other threads have released their pins of a buffer."""
    pins: dict[ref[_Pin], int] = buffer.__dict__.get(_PINS, {})
    for pin, thread in pins.copy().items():
        # an interrupted read has dropped its pin; one that raised has removed it, and its traceback keeps it
        while pin in pins and pin() is not None and thread != get_ident():
            sleep(0)


@final
class _Pin:
    """Marks a read of the memory of a buffer. Only the reading thread refers to it."""

    __slots__ = ("__weakref__",)


def pinned(buffer: Buffer, read: Callable[[Buffer], T]) -> T:
    """Return the result of `read`, a function of jaxlib that refers to the memory of a buffer. No other thread donates
    the buffer meanwhile.

    XLA does not ensure this: if it makes a reference while another thread donates, the process crashes. `read` must not
    wait. Raises: XlaRuntimeError if another call has taken the buffer for donation.
    """
    pin = _Pin()
    key = ref(pin)
    pins: dict[ref[_Pin], int] = buffer.__dict__.setdefault(_PINS, {})
    pins[key] = get_ident()
    try:
        # read after pinning, since `take_for_donation` makes its entry first
        if _is_taken_by_another_thread(buffer):
            raise XlaRuntimeError(OPERAND_DELETED)
        return read(buffer)
    finally:
        del pins[key]


def _is_taken_by_another_thread(buffer: Buffer) -> bool:
    claim: Claim | None = buffer.__dict__.get(_DONATED)
    # the donating call itself may copy it to another device
    return claim is not None and claim.thread != get_ident() and not _is_released(buffer, claim)


def start_pinned(start: Callable[[Sequence[Buffer]], T], buffers: Sequence[Buffer]) -> T:
    """Return the result of `start`, an execution on several devices. No other thread donates an operand meanwhile.

    On one device, XLA refuses an operand that is deleted. On several, it ends the process.
    Raises: XlaRuntimeError if an operand is deleted, or if another call has taken it for donation.
    """
    pin, thread = _Pin(), get_ident()
    key = ref(pin)
    pins_of_each: list[dict[ref[_Pin], int]] = [b.__dict__.setdefault(_PINS, {}) for b in buffers]
    try:
        for pins in pins_of_each:
            pins[key] = thread
        for b in buffers:  # read after pinning, as in `pinned`
            if b.is_deleted() or _is_taken_by_another_thread(b):
                raise XlaRuntimeError(OPERAND_DELETED)
            for part in b.__dict__.get(_PARTS, ()):
                if part.is_deleted():
                    raise XlaRuntimeError(OPERAND_DELETED)
        return start(buffers)
    finally:
        del pin  # first, and at once: a signal may interrupt the loop, and its traceback keeps this frame
        for pins in pins_of_each:
            pins.pop(key, None)  # an operand may be there twice


def note_parts(buffer: Buffer, parts: Sequence[Buffer]) -> None:
    """Note that others have the parts of an array on several devices. Each may be deleted or donated by itself."""
    buffer.__dict__[_PARTS] = parts


def donated_placeholder(buffer: Buffer) -> Buffer:
    """Return a placeholder without memory for a donated buffer, made once for each line, device and commitment.

    jaxlib refuses a call with the placeholder. XLA would refuse a call with the buffer too, but also write to stderr.
    """
    claim: Claim = buffer.__dict__[_DONATED]
    key = buffer._sharding, buffer._committed
    record = claim.record
    assert record is not None, "a donated buffer"
    placeholders = record.placeholders
    deleted = placeholders.get(key)
    if deleted is None:
        sharding = buffer._sharding
        if not isinstance(sharding, OneDeviceSharding):
            sharding = OneDeviceSharding(cast(OneDeviceSharding, sharding)._device)  # the first device of several
        deleted = put_part(np.zeros((), np.bool_), sharding, buffer._committed)
        deleted.delete()
        deleted.__dict__[_DONATED] = claim
        placeholders[key] = deleted
    return deleted


def donation_record(buffer: Buffer) -> DonationRecord | None:
    """Return the program that a buffer was donated to; None if it was not donated."""
    claim: Claim | None = buffer.__dict__.get(_DONATED)
    return None if claim is None or _is_released(buffer, claim) else claim.record
