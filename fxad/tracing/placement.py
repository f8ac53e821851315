"""Placement: a program runs on the device of its committed operands.

An array is committed if it was explicitly put on a device, or computed from a committed array. Other arrays are on the
default device, and move to the device where they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, final

from fxad import runtime
from fxad.errors import ArgumentError, ParameterError, PlacementError, described
from fxad.ir import Atom, Eqn, Jaxpr
from fxad.runtime import Results, Start
from fxad.units.blocks import called

# Every call evaluates `True in map(committed, buffers)`, which takes 0.05 us an operand.
is_committed: Final = attrgetter("_committed")


def target_device(what: str, buffers: Sequence[runtime.Buffer], path: Callable[[int], str]) -> runtime.Device:
    """The device of the committed operands; the default device if there are none.

    `what` is the name of the program and `path(k)` that of operand k, for messages.
    Raises: PlacementError naming two operands that are committed to different devices.
    """
    first: tuple[int, runtime.Device] | None = None
    for k, b in enumerate(buffers):
        if b._committed:
            device = runtime.device_of(b)
            if first is None:
                first = k, device
            elif device is not first[1]:
                raise PlacementError(
                    f"{what}: {path(first[0])} is on {first[1]}, {path(k)} on {device}",
                    remedy=f"move one of them: fx.device_put(x, device), with the device of the other, {first[1]}",
                )
    return first[1] if first else runtime.default_device()


def committed_device(buffers: Sequence[runtime.Buffer]) -> runtime.Device | None:
    """The device of the first committed operand; None if none is committed."""
    return next((runtime.device_of(b) for b in buffers if b._committed), None)


def operand_label(k: int) -> str:
    """The name of an operand in messages, if no better one is known."""
    return f"operand {k}"


def moved_to(buffers: Sequence[runtime.Buffer], device: runtime.Device) -> list[runtime.Buffer]:
    """The buffers on a device. Buffers on other devices are copied."""
    return [
        b if runtime.device_of(b) is device and not runtime.is_sharded(b) else runtime.transfer(b, device)
        for b in buffers
    ]


def run_committed(loaded: runtime.LoadedProgram, buffers: Sequence[runtime.Buffer]) -> list[runtime.Buffer]:
    """The results of a program, committed to its device. Raises: ExecutionError when XLA refuses the call."""
    operands = buffers if len(loaded.devices) > 1 else moved_to(buffers, loaded.device)
    return runtime.launch(loaded, operands, loaded.committed)


def check_device(op: str, device: object, stream: object = None) -> None:
    """Check a device. Raises: ArgumentError if it is not one; ParameterError for a stream, which only fxad chooses."""
    if not isinstance(device, runtime.Device):
        raise ArgumentError(f"{op}: {described(device)} is not a device: {device!r:.60}", remedy="use fxad.devices()")
    if stream is not None:
        raise ParameterError(f"{op}: stream {stream!r}: fxad orders its own work", remedy="leave `stream` out")


# ----------------------------------------------------------------------------------------------------------- running


@final
class CommittedRun:
    """The execution of a program on the device of its committed operands. Uncommitted operands are copied to it.

    The arrays that the program closes over (`bound`) are copied once. `handlers` commit the results.
    """

    __slots__ = ("_bound", "_start", "device", "handlers", "start")

    def __init__(self, loaded: runtime.Runnable, bound: Sequence[runtime.Buffer]) -> None:
        self.device, self.handlers = loaded.device, loaded.committed
        self._bound, self._start = moved_to(bound, loaded.device), loaded.start
        # a program on several devices divides its operands itself
        is_sharded = isinstance(loaded, runtime.LoadedProgram) and len(loaded.devices) > 1
        self.start: Start = loaded.start if is_sharded else self._start_here

    def _start_here(self, buffers: Sequence[runtime.Buffer]) -> Results:
        rest = moved_to(buffers[len(self._bound) :], self.device)
        return self._start([*self._bound, *rest])


@final
class Forwarding:
    """The execution of a program whose results are operands: it returns their buffers."""

    __slots__ = ("_operands",)

    def __init__(self, operands: tuple[int, ...]) -> None:
        self._operands = operands

    def __call__(self, buffers: Sequence[runtime.Buffer]) -> Results:
        for b in buffers:
            if b.is_deleted():
                raise runtime.XlaRuntimeError(runtime.OPERAND_DELETED)
        return _ForwardedResults([buffers[k] for k in self._operands])


@final
class _ForwardedResults:
    """Results that are arrays already."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: list[runtime.Buffer]) -> None:
        self._arrays = arrays

    def consume_with_handlers(self, _handlers: Sequence[runtime.ResultHandler], /) -> list[runtime.Buffer]:
        return self._arrays


def forwarded_operands(jaxpr: Jaxpr, bound: int) -> tuple[int, ...] | None:
    """The operands that are the results of a trivial program, if all results are distinct arguments; None for any other
    program. Its `bound` leading operands are closed-over arrays, which are never returned themselves."""
    if jaxpr.effects:
        return None
    operands: dict[int, None] = {}
    for a in jaxpr.outs:
        k = _operand(jaxpr, a)
        if k < bound or k in operands:
            return None  # stop at the first: searching for each of a thousand gradients takes longer than planning them
        operands[k] = None
    return tuple(operands)


def _operand(jaxpr: Jaxpr, a: Atom) -> int:
    """The index of the operand that a value is, also through calls; -1 for a computed value."""
    callers: list[tuple[Jaxpr, Eqn]] = []
    while True:
        if a in jaxpr.ins:
            k = jaxpr.ins.index(a)
            if not callers:
                return k
            jaxpr, eqn = callers.pop()
            a = eqn.ins[k]
            continue
        producer = next((e for e in reversed(jaxpr.eqns) if a in e.outs), None)
        body = None if producer is None else called(producer)
        if producer is None or body is None:
            return -1
        callers.append((jaxpr, producer))
        jaxpr, a = body, body.outs[producer.outs.index(a)]
