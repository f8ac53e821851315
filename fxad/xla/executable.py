"""Compiled programs: compilation, execution, memory and cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter, is_not
from typing import Final, final
from weakref import ref

from fxad import xla
from fxad.core.dataclasses import dataclass
from fxad.core.weak import CLEANUP, RefWithCleanup, remove_dead
from fxad.errors import CompileError
from fxad.ir import Aval, Jaxpr, source_location
from fxad.lower import LoweredModule, ModuleSharding, lower_jaxpr
from fxad.lowering.jaxlib import _jax
from fxad.lowering.nesting import check_nesting
from fxad.support.constants import CHARACTER_BYTES, EXECUTABLE_BYTES
from fxad.units.compile_time import is_compiled_without_fusion
from fxad.xla import custom_calls, host_calls
from fxad.xla.buffers import resharded
from fxad.xla.client import Device, process_count
from fxad.xla.compat import WITHOUT_FUSION, buffer_assignment_proto, module_proto, reason, result_handler
from fxad.xla.donated_buffers import start_pinned
from fxad.xla.failures import BufferProducer, execution_error
from fxad.xla.garbage import collect_garbage, collection_due
from fxad.xla.host_calls import HostErrors, SynchronousStart
from fxad.xla.interpreter_exit import process_state
from fxad.xla.interruptible import interruptible, may_not_end, started_in_thread, waits
from fxad.xla.jaxlib_types import Buffer, CostStats, MemoryStats, ResultHandler, Start, XlaResults, XlaRuntimeError
from fxad.xla.options import CompileOptions, xla_options
from fxad.xla.sharded import MeshSharding, ProgramSharding, devices_of_module, program_sharding


def launch(
    start: Start,
    buffers: Sequence[Buffer],
    handlers: Sequence[ResultHandler],
    producer: BufferProducer,
    path: Callable[[int], str] | None = None,
) -> list[Buffer]:
    """Start a program on buffers of exactly its types, and make its results with the handlers, which commit them to the
    device or not. `path` gives the name of an operand in messages.

    Raises: ExecutionError when XLA refuses the call.
    """
    if next(collection_due):
        collect_garbage()
    try:
        return start(buffers).consume_with_handlers(handlers)
    except XlaRuntimeError as e:
        raise execution_error(e, buffers, producer, path) from e


@final
class _DividedOperand(RefWithCleanup[Buffer]):
    """An operand that was divided, and its parts, which are kept while it lives."""

    __slots__ = ("parts",)

    parts: Buffer


@final
class ReshardingStart:
    """The execution of a program on several devices: each device gets its parts of the operands.

    Cost: an operand that is divided as the program wants it is not copied. Another one goes through the host, once: its
          parts are kept while it lives, for the next call with the same array.
    """

    __slots__ = ("_fits", "_ins", "_last", "_name", "_on_several", "_start")

    def __init__(self, start: Start, name: str, sharding: ProgramSharding) -> None:
        self._start, self._name, self._on_several, self._ins = start, name, len(sharding.devices) > 1, sharding.ins
        self._fits: Sequence[object] = sharding.ins  # shardings that are equal to those of the program
        self._last: dict[int, _DividedOperand] = {}  # the operands of the last call that were divided

    def __call__(self, buffers: Sequence[Buffer]) -> XlaResults:
        return self._start(self._operands(buffers))

    def _operands(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Return the operands, divided as the program wants them."""
        if self._on_several:
            host_calls.check_may_start(self._name)
        shardings = list(map(sharding_of_buffer, buffers))
        if any(map(is_not, shardings, self._fits)):  # usually they are the same objects as in the last call
            if shardings == self._ins:
                self._fits = shardings
            else:
                pairs = zip(buffers, self._ins, strict=True)
                return [b if b._sharding == w else self._divided(k, b, w) for k, (b, w) in enumerate(pairs)]
        return buffers

    def _divided(self, k: int, buffer: Buffer, sharding: MeshSharding) -> Buffer:
        """Operand `k`, divided; as in the last call if it is the same array."""
        if buffer.is_deleted():
            return buffer  # XLA refuses the call, and the error names the argument
        last = self._last.get(k)
        if last is not None and last() is buffer and not last.parts.is_deleted():
            return last.parts
        parts = resharded(buffer, sharding)
        cleanup = partial(remove_dead, self._last, k)
        operand = _DividedOperand(buffer, CLEANUP)
        operand.cleanup, operand.parts = cleanup, parts
        self._last[k] = operand
        return parts


sharding_of_buffer: Final = attrgetter("_sharding")


@final
class _PinnedStart:
    """The execution of a program on several devices, whose operands no other thread donates meanwhile."""

    __slots__ = ("_start",)

    def __init__(self, start: Start) -> None:
        self._start = start

    def __call__(self, buffers: Sequence[Buffer]) -> XlaResults:
        return start_pinned(self._start, buffers)


@final
class _BlockingStart:
    """An execution that waits for its results. Used on CPUs of several processes: with two calls in progress, the
    threads of XLA's pool may all wait in collectives of calls that other processes have not reached."""

    __slots__ = ("_start",)

    def __init__(self, start: Start) -> None:
        self._start = start

    def __call__(self, buffers: Sequence[Buffer]) -> XlaResults:
        return _BlockingResults(self._start(buffers))


@final
class _BlockingResults:
    """The results of a `_BlockingStart`."""

    __slots__ = ("_results",)

    def __init__(self, results: XlaResults) -> None:
        self._results = results

    def consume_with_handlers(self, handlers: Sequence[ResultHandler], /) -> list[Buffer]:
        """Return the results."""
        buffers = self._results.consume_with_handlers(handlers)
        try:
            for buffer in buffers:
                buffer.block_until_ready()
        except _jax.JaxRuntimeError:
            raise
        except BaseException:
            waits.note_interruption()
            raise
        return buffers


@final
class XlaExecutable:
    """A compiled program, on one device or on those of `sharding`. It refers to machine code, not to a `Jaxpr`, and to
    no constant. Thread-safe.

    `start` and `handlers` are the parts of `execute`, for callers that inline it. `handlers` make uncommitted arrays,
    `committing_handlers` arrays that stay on the device (see `fxad.tracing.placement`).
    """

    __slots__ = (
        "__weakref__", "committing_handlers", "device", "devices", "handlers", "in_avals", "producer", "out_avals",
        "raw", "sharding", "start", "_stats",
    )  # fmt: skip

    def __init__(
        self,
        raw: _jax.LoadedExecutable,
        jaxpr: Jaxpr,
        device: Device,
        sharding: ProgramSharding | None = None,
        host_errors: HostErrors | None = None,
    ) -> None:
        self.raw = raw
        self._stats: MemoryStats | None = None
        self.in_avals: tuple[Aval, ...] = jaxpr.in_avals
        self.out_avals: tuple[Aval, ...] = jaxpr.out_avals
        self.device = device
        self.devices: tuple[Device, ...] = (device,) if sharding is None else sharding.devices
        self.sharding = sharding
        self.producer = BufferProducer(jaxpr.name, _first_line(jaxpr), ref(self))
        self.start = self._wrapped(raw.execute_sharded, jaxpr, host_errors)
        if sharding is not None:
            process_state.note_committed()  # its results are
            self.start = ReshardingStart(self.start, jaxpr.name, sharding)
            self.handlers = self.committing_handlers = [
                result_handler(a, s, True, self.producer) for a, s in zip(self.out_avals, sharding.outs, strict=True)
            ]
            return
        self.handlers = [result_handler(a, device.sharding, False, self.producer) for a in self.out_avals]
        self.committing_handlers = [result_handler(a, device.sharding, True, self.producer) for a in self.out_avals]

    def _wrapped(self, start: Start, jaxpr: Jaxpr, host_errors: HostErrors | None) -> Start:
        """Return the start with the wrappers that the program needs (see `Start`), the innermost first. What is started
        in another thread only waits: the calling thread compares programs, pins and divides operands."""
        if host_errors is not None:
            everywhere = self.device.sharding if self.sharding is None else self.sharding.replicated
            start = SynchronousStart(start, host_errors, everywhere)
        if self.sharding is not None and self.device.platform == "cpu" and process_count() > 1:
            start = _BlockingStart(started_in_thread(start))
        elif may_not_end(jaxpr):
            start = interruptible(start)
        if len(processes := _processes(self.devices)) > 1:
            start = xla.processes.AgreedStart(start, self.raw, jaxpr.name, jaxpr.digest, processes)
        return _PinnedStart(start) if len(self.devices) > 1 else start

    def execute(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Run on buffers of exactly the types `in_avals`, on `device`. Asynchronous: it does not wait for the values.

        Raises: ExecutionError when XLA refuses the call. A failure of the computation is raised by the wait for it.
        Cost: 3.9 us and the computation.
        """
        return launch(self.start, buffers, self.handlers, self.producer)

    def memory(self) -> MemoryStats:
        """Return bytes of operands, results, aliases, temporaries and code, as planned by XLA.

        Cost: the first call 0.1 s for 10,000 equations, later ones nothing.
        """
        if self._stats is None:
            self._stats = self._memory()
        return self._stats

    def _memory(self) -> MemoryStats:
        s = self.raw.get_compiled_memory_stats()
        argument, output = s.argument_size_in_bytes, s.output_size_in_bytes
        alias, temp = s.alias_size_in_bytes, s.temp_size_in_bytes
        # on the CPU, XLA's own figure has no temporaries; they are one block, live for the whole call
        total = argument + output - alias + temp
        peak = total if self.device.platform == "cpu" else s.peak_memory_in_bytes or total
        return MemoryStats(argument, output, alias, temp, peak, s.generated_code_size_in_bytes)

    def cost(self) -> CostStats:
        """XLA's estimate of the work of one call; zero if there is none."""
        analysis = self.raw.cost_analysis()
        return CostStats(
            float(analysis.get("flops", 0.0)),
            float(analysis.get("bytes accessed", 0.0)),
            float(analysis.get("transcendentals", 0.0)),
        )

    def hlo(self) -> str:
        """Return the optimised HLO text."""
        return self.raw.get_hlo_text()

    def hlo_proto(self) -> bytes:
        """Return the optimised module as a serialized `HloModuleProto`; empty if jaxlib has none."""
        return module_proto(self.raw)

    def buffer_assignment_proto(self) -> bytes:
        """Return XLA's assignment of buffers to memory as a serialized `BufferAssignmentProto`; empty if jaxlib has
        none."""
        return buffer_assignment_proto(self.raw)


def compile_module(lowered: LoweredModule, options: CompileOptions, device: Device, jaxpr: Jaxpr) -> XlaExecutable:
    """Compile the module of a program for a device, without a cache. Raises: CompileError."""
    text = lowered.source(options.donate)
    custom_calls.register_targets(custom_calls.custom_call_targets(text), device.platform)
    devices = devices_of_module(lowered.sharding, device, jaxpr.name)
    in_xla = xla_options(options, devices, lowered)
    try:
        host_errors = None
        if lowered.calls_host:
            raw, host_errors = host_calls.compile_with_callbacks(text, lowered.host, devices, in_xla)
        else:
            raw = device.client.compile_and_load(text, [d.raw for d in devices], in_xla)
    except _jax.JaxRuntimeError as e:
        raise CompileError(_with_module_line(reason(e), text), remedy=_IF_REFUSED) from e
    return load(raw, jaxpr, lowered.sharding, devices, host_errors)


def load(
    raw: _jax.LoadedExecutable,
    jaxpr: Jaxpr,
    module_sharding: ModuleSharding | None,
    devices: tuple[Device, ...],
    host_errors: HostErrors | None = None,
) -> XlaExecutable:
    """Return the program of an executable of XLA, which was compiled from `jaxpr` or read from disk, on its devices.

    Raises: CompileError for a sharding of a result that no mesh has.
    """
    sharding = None if module_sharding is None else program_sharding(module_sharding, devices, raw, jaxpr.name)
    return XlaExecutable(raw, jaxpr, devices[0], sharding, host_errors)


def _first_line(jaxpr: Jaxpr) -> str:
    """Return the first user line that traced an equation; empty if none is known."""
    return next((str(p) for e in jaxpr.eqns if (p := source_location(e.source))), "")


def _processes(devices: tuple[Device, ...]) -> tuple[int, ...]:
    """Return the numbers of the processes that have some devices."""
    return tuple(sorted({device.process_index for device in devices}))


@final
@dataclass(frozen=True, slots=True)
class Compilation:
    """The result of a compilation: an executable, the functions it calls by name, the number of characters of its
    module, and its devices if there are several."""

    executable: XlaExecutable
    targets: tuple[str, ...]
    characters: int
    sharding: ModuleSharding | None = None


@final
@dataclass(frozen=True, slots=True)
class CachedExecutable:
    """An executable, the seconds of its original compilation, and its bytes."""

    executable: XlaExecutable
    seconds: float
    bytes: int


def footprint(executable: XlaExecutable, characters: int) -> int:
    """Return an estimate of the bytes of an executable and its program, whose module has so many characters.

    XLA reports the size of the generated code, except on the CPU, where it reports 0 or less. There, the estimate is a
    measured multiple of the size of the module, because serializing the executable to count its bytes takes time.
    """
    code = executable.raw.size_of_generated_code_in_bytes()
    return EXECUTABLE_BYTES + characters + (code if code > 0 else CHARACTER_BYTES * characters)


def compile_uncached(jaxpr: Jaxpr, options: CompileOptions, device: Device) -> Compilation:
    """Compile, without a cache. Raises: CompileError."""
    check_nesting(jaxpr)
    lowered = lower_jaxpr(jaxpr, device.platform)
    has_user_options = options.optimization_level is not None or options.flags
    if device.platform == "cpu" and not has_user_options and is_compiled_without_fusion(jaxpr):
        options = replace(options, flags=WITHOUT_FUSION)
    executable = compile_module(lowered, options, device, jaxpr)
    targets = tuple(sorted(custom_calls.custom_call_targets(lowered.body)))
    return Compilation(executable, targets, len(lowered.body) + len(lowered.locations), lowered.sharding)


_IF_REFUSED: Final = (
    "leave out flags of CompileOptions; if it stays, report it with the program: fx.lower(program).text()"
)


def _with_module_line(problem: str, text: str) -> str:
    """XLA's message, with the line of the module that it refers to."""
    match = re.search(r"-:(\d+):\d+: error", problem)
    lines = text.splitlines()
    if match is None or int(match[1]) > len(lines):
        return f"compile: {problem}"
    return f"compile: {problem}\n  in            {lines[int(match[1]) - 1]}"
