"""Errors of buffers and calls: donated or deleted buffers, failed programs, exhausted memory.

A buffer refers to the program that computes it (`BufferProducer`), through the type that jaxlib stores on each array.
So an error that is raised long after the call, by a wait, still names the function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.errors import ExecutionError
from fxad.lowering.jaxlib import _jax
from fxad.xla.compat import reason
from fxad.xla.donated_buffers import OPERAND_DELETED, donation_record
from fxad.xla.jaxlib_types import ArrayType, Buffer, CountsMemory

_ALLOCATION: Final = re.compile(r"allocating (\d+) bytes")


@final
@dataclass(frozen=True, slots=True)
class BufferProducer:
    """The program that computes a buffer: the user's function, its first line, and a weak reference to the executable.

    An error that needs the memory of the program reads it from the executable: this takes 1 ms for 8 devices. Every
    buffer refers to its producer through objects of jaxlib, which hide references from the garbage collector. So it
    must not refer to the globals of a module, as a function does: clients would live beyond interpreter exit.
    """

    name: str
    where: str
    executable: Callable[[], CountsMemory | None] = field(compare=False, repr=False)

    def named(self, name: str) -> BufferProducer:
        """Return the producer by the name of this program in messages: equal programs share an executable."""
        return self if name == self.name else replace(self, name=name)


def missing_value_reason(buffer: Buffer) -> str | None:
    """Return the reason, as text, why a buffer has no value; None if it has one."""
    donation = donation_record(buffer)
    if donation is not None:
        return str(donation)
    return "deleted" if buffer.is_deleted() else None


def value_error(what: str, e: Exception, buffer: Buffer) -> ExecutionError:
    """Return the error for a buffer without a value: donated, deleted, or its computation failed."""
    donation = donation_record(buffer)
    if donation is not None:
        return ExecutionError(f"{what}: the array was {donation}; its memory is used again", remedy=_IF_DONATED)
    if buffer.is_deleted() or str(e) == OPERAND_DELETED:
        return ExecutionError(f"{what}: the array is deleted", remedy=_IF_DELETED)
    producer = buffer.aval.producer if isinstance(buffer.aval, ArrayType) else None
    return _failure(what, e, producer if isinstance(producer, BufferProducer) else None)


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


# The messages for a deleted operand, of XLA and of fxad. A call refused for another reason may have consumed donated
# operands.
_DELETED: Final = re.compile(rf"{OPERAND_DELETED}|to have \d+ shards, got: \[|has been deleted|deleted or donated")


def execution_error(
    e: Exception, buffers: Sequence[Buffer], producer: BufferProducer, path: Callable[[int], str] | None = None
) -> ExecutionError:
    """Return the error for a call that XLA refused. `path` gives the name of an operand in messages."""
    step = e if isinstance(e, StepRefused) else None
    error = None
    if _DELETED.search(str(e)):
        reads = range(len(buffers)) if step is None else step.reads
        errors = (_deleted_operand(k, buffers[k], producer, path) for k in reads)
        error = next(filter(None, errors), None)
    error = error or _failure(producer.name if path else "execute", e, producer)
    if step is not None:
        error.where = step.where
        error.located(equation=step.unit)
    return error


def _deleted_operand(
    k: int, buffer: Buffer, producer: BufferProducer, path: Callable[[int], str] | None
) -> ExecutionError | None:
    """Return the error for an operand that was donated or deleted; None for another one."""
    donation = donation_record(buffer)  # read once: a call in another thread may fail, and undo its donation
    if donation is None and not buffer.is_deleted():
        return None
    what = f"{producer.name}: {path(k)}" if path else f"execute: operand {k}"
    if donation is not None:
        return ExecutionError(f"{what} was {donation}", remedy=_IF_DONATED)
    return ExecutionError(f"{what} is deleted", remedy=_IF_DELETED)


def _failure(what: str, e: Exception, producer: BufferProducer | None) -> ExecutionError:
    """Return the error for a failed computation. If an allocation failed, it lists the memory of the program."""
    problem = reason(e)
    if producer is None:
        return ExecutionError(f"{what}: {problem}", remedy=_IF_FAILED)
    head = what if what == producer.name else f"{what}: {producer.name}"
    allocation = _ALLOCATION.search(problem)
    if allocation is None:
        remedy = _IF_NOT_REACHED if _EXCHANGE.search(problem) else _IF_FAILED
        return ExecutionError(f"{head}: {problem}", where=producer.where, remedy=remedy)
    executable = producer.executable()
    m = None if executable is None else executable.memory()
    needs = "" if m is None else (
        f"; at its peak the program needs {m.peak_bytes:,}: arguments {m.argument_bytes:,}, results"
        f" {m.output_bytes:,}, temporaries {m.temp_bytes:,}"
    )  # fmt: skip
    return ExecutionError(
        f"{head}: out of memory: {int(allocation[1]):,} bytes were asked for{needs}",
        where=producer.where,
        remedy="donate arguments that are not needed again, recompute with remat, or give it smaller arrays",
    )
