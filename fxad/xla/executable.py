"""Compiled programs: compilation, execution, memory and cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter, is_not
from typing import Final, Literal, Protocol, TypeAlias, final, get_args
from weakref import ref

from fxad import xla
from fxad.core.dataclasses import dataclass
from fxad.errors import CompileError, ParameterError
from fxad.ir import Aval, Jaxpr
from fxad.lower import LoweredModule, Placement, lower_jaxpr
from fxad.lowering.jaxlib import _jax
from fxad.lowering.nesting import check_nesting
from fxad.primitives.meshes import Mesh
from fxad.units.kernels import effort
from fxad.xla import custom_calls, host_calls
from fxad.xla.buffers import Buffer, commitments, resharded
from fxad.xla.client import Device, process_count
from fxad.xla.compat import FLAGS, compile_options, partitioned_options, reason, result_handler
from fxad.xla.cuda import compiler_flags
from fxad.xla.failures import MemoryStats, Origin, ResultHandler, XlaRuntimeError, execution_error, start_pinned
from fxad.xla.garbage import collect_garbage, collection_due
from fxad.xla.host_calls import HostErrors, Results, Start, SynchronousStart
from fxad.xla.interruptible import interruptible, started_in_thread, waits
from fxad.xla.sharded import ManyDevices, devices_for, shardings

EffortOption: TypeAlias = Literal["auto", "full"]


@final
@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Compile options, as a value: part of the key of the cache.

    `donate` are indices of operands whose memory results of their type reuse; the call deletes the caller's buffers.
    `flags` are XLA's flags, as in XLA_FLAGS but for this program only: `(("xla_cpu_enable_fast_math", True),)`.
    `effort` is that of XLA. With "auto", a program for a CPU in which few kernels are equal, and no loop has an unknown
    number of iterations, is compiled without fusion emitters and at optimisation level 1. Its compilation takes half of
    the time, and a call 0.8 to 1.13 of the time (decision 76). "full" leaves XLA's defaults.

    Rule:   lists become tuples. Flags of 1, 1.0 and True differ, as for XLA. `effort` has no effect if
            `optimization_level` or `flags` are given. Results may differ in the last bits between efforts.
    Raises: ParameterError for a value of another type.
    """

    donate: tuple[int, ...] = ()
    optimization_level: int | None = None
    flags: tuple[tuple[str, str | bool | int | float], ...] = ()
    effort: EffortOption = "auto"

    def __post_init__(self) -> None:
        donate, level = self.donate, self.optimization_level
        if not isinstance(donate, tuple | list) or not all([_is_int(k) for k in donate]):
            raise ParameterError(
                f"CompileOptions: donate is {donate!r:.60}, not a sequence of ints", remedy="number operands from 0"
            )
        if level is not None and not _is_int(level):
            raise ParameterError(
                f"CompileOptions: optimization_level is {level!r:.60}, neither an int nor None",
                remedy="XLA's levels are 0 to 3",
            )
        if not isinstance(self.flags, tuple | list) or not all([_is_flag(f) for f in self.flags]):
            raise ParameterError(
                f"CompileOptions: flags is {self.flags!r:.60}, not a sequence of pairs of a name and a value",
                remedy='as in flags=(("xla_cpu_enable_fast_math", True),); a value is a str, a bool, an int or a float',
            )
        if not isinstance(self.effort, str) or self.effort not in get_args(EffortOption):
            raise ParameterError(
                f"CompileOptions: effort is {self.effort!r:.60}", remedy='the efforts are "auto" and "full"'
            )
        object.__setattr__(self, "donate", tuple(donate))
        object.__setattr__(self, "flags", tuple([(name, value) for name, value in self.flags]))

    def _key(self) -> tuple[object, ...]:
        # by the repr: 1 == True, 0.0 == -0.0, and nan != nan
        return self.donate, self.optimization_level, repr(self.flags), self.effort

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, CompileOptions) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_flag(flag: object) -> bool:
    """Returns True for a pair of the name of a flag and its value."""
    if not isinstance(flag, tuple | list) or len(flag) != 2:
        return False
    name, value = flag
    return isinstance(name, str) and type(value) in (str, bool, int, float)


DEFAULT: Final = CompileOptions()


@final
@dataclass(frozen=True, slots=True)
class CostStats:
    """XLA's own estimate of the work of one call. `flops` do not include `transcendentals`."""

    flops: float
    bytes_accessed: float
    transcendentals: float


class ProgramDescription(Protocol):
    """The description of a compiled program: its types, the user's function, and its first line."""

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Types of the operands."""

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        """Types of the results."""

    @property
    def name(self) -> str:
        """The user's function."""

    @property
    def where(self) -> str:
        """The first line of it that traced an equation."""

    @property
    def unbounded(self) -> bool:
        """True if it has a loop that may never end."""

    @property
    def placement(self) -> Placement | None:
        """Its devices and the division of its values; None if it runs on one device."""


class Launchable(Protocol):
    """One executable, or several linked ones."""

    @property
    def origin(self) -> Origin:
        """The description of the program for messages."""

    @property
    def start(self) -> Start:
        """Starts an execution on buffers of exactly its types, on its device."""


def launch(program: Launchable, buffers: Sequence[Buffer], handlers: Sequence[ResultHandler]) -> list[Buffer]:
    """Start a compiled program, and make its results with the handlers, which commit them to the device or not.

    The usual dispatch (`fxad.execution.dispatch`, `fxad.numpy.apply`) inline this code, to save a Python frame.
    Raises: ExecutionError when XLA refuses the call.
    """
    if next(collection_due):
        collect_garbage()
    try:
        return program.start(buffers).consume_with_handlers(handlers)
    except XlaRuntimeError as e:
        raise execution_error(e, buffers, program.origin) from e


@final
@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The devices of a program, and how its operands and results are divided among them."""

    devices: tuple[Device, ...]
    mesh: Mesh
    ins: list[ManyDevices]
    outs: list[ManyDevices]


@final
class OperandDivision:
    """Divides the operands of a call among the devices of a program.

    Cost: an operand that is divided as the program wants it is not copied. Another one goes through the host, once: its
          parts are kept while it lives, for the next call with the same array.
    """

    __slots__ = ("_fits", "_ins", "_many", "_name", "_parts")

    def __init__(self, name: str, placed: Placed) -> None:
        self._name, self._many, self._ins = name, len(placed.devices) > 1, placed.ins
        self._fits: Sequence[object] = placed.ins  # shardings that are equal to those of the program
        self._parts: dict[int, tuple[ref[Buffer], Buffer]] = {}  # of the operands of the last call that were divided

    def __call__(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        if self._many:
            host_calls.check_may_start(self._name)
        where = list(map(sharding_of_buffer, buffers))
        if any(map(is_not, where, self._fits)):  # usually they are the same objects as in the last call
            if where == self._ins:
                self._fits = where
            else:
                pairs = zip(buffers, self._ins, strict=True)
                return [b if b._sharding == w else self._divided(k, b, w) for k, (b, w) in enumerate(pairs)]
        return buffers

    def _divided(self, k: int, buffer: Buffer, where: ManyDevices) -> Buffer:
        """Operand `k`, divided; as in the last call if it is the same array."""
        if buffer.is_deleted():
            return buffer  # XLA refuses the call, and the error names the argument
        parts = self._parts
        last = parts.get(k)
        if last is not None and last[0]() is buffer and not last[1].is_deleted():
            return last[1]
        divided = resharded(buffer, where)

        def drop(dead: ref[Buffer]) -> None:
            if (present := parts.get(k)) is not None and present[0] is dead:
                del parts[k]

        parts[k] = ref(buffer, drop), divided
        return divided


@final
class DividingStart:
    """The execution of a program on several devices: each device gets its parts of the operands."""

    __slots__ = ("_divided", "_start")

    def __init__(self, start: Start, name: str, placed: Placed) -> None:
        self._start, self._divided = start, OperandDivision(name, placed)

    def __call__(self, buffers: Sequence[Buffer]) -> Results:
        return self._start(self._divided(buffers))


sharding_of_buffer: Final = attrgetter("_sharding")


@final
class _PinnedStart:
    """The execution of a program on several devices, whose operands no other thread donates meanwhile."""

    __slots__ = ("_start",)

    def __init__(self, start: Start) -> None:
        self._start = start

    def __call__(self, buffers: Sequence[Buffer]) -> Results:
        return start_pinned(self._start, buffers)


@final
class _BlockingStart:
    """An execution that waits for its results. Used on CPUs of several processes: with two calls in progress, the
    threads of XLA's pool may all wait in collectives of calls that other processes have not reached."""

    __slots__ = ("_start",)

    def __init__(self, start: Start) -> None:
        self._start = start

    def __call__(self, buffers: Sequence[Buffer]) -> Results:
        return _BlockingResults(self._start(buffers))


@final
class _BlockingResults:
    """The results of a `_BlockingStart`."""

    __slots__ = ("_results",)

    def __init__(self, results: Results) -> None:
        self._results = results

    def consume_with_handlers(self, handlers: Sequence[ResultHandler], /) -> list[Buffer]:
        """The results."""
        buffers = self._results.consume_with_handlers(handlers)
        try:
            for buffer in buffers:
                buffer.block_until_ready()
        except _jax.JaxRuntimeError:
            raise
        except BaseException:
            waits.interrupted = True
            raise
        return buffers


@final
class LoadedProgram:
    """A compiled program on one device. It refers to machine code, not to a `Jaxpr`, and to no constant. Thread-safe.

    `start` and `handlers` are the parts of `execute`, for callers that inline it. `handlers` make uncommitted arrays,
    `committing_handlers` arrays that stay on the device (see `fxad.tracing.placement`). `start_divided` is `start` for
    operands that are divided as the program wants them. `digest` is that of a program on devices of several processes.
    """

    __slots__ = (
        "__weakref__", "committing_handlers", "device", "devices", "handlers", "in_avals", "origin", "out_avals",
        "placed", "raw", "start", "start_divided",
    )  # fmt: skip

    def __init__(
        self,
        raw: _jax.LoadedExecutable,
        program: ProgramDescription,
        device: Device,
        host_errors: HostErrors | None = None,
        placed: Placed | None = None,
        digest: str | None = None,
    ) -> None:
        self.raw = raw
        self.in_avals: tuple[Aval, ...] = program.in_avals
        self.out_avals: tuple[Aval, ...] = program.out_avals
        self.device = device
        self.start: Start = raw.execute_sharded
        self.origin = Origin(program.name, program.where, ref(self))
        self.devices: tuple[Device, ...] = (device,) if placed is None else placed.devices
        self.placed = placed
        if host_errors is not None:
            where = device.sharding if placed is None else ManyDevices(placed.devices, placed.mesh, ())
            self.start = SynchronousStart(self.start, host_errors, where)
        if placed is not None and device.platform == "cpu" and process_count() > 1:
            self.start = _BlockingStart(started_in_thread(self.start))
        elif program.unbounded:
            self.start = interruptible(self.start)
        if digest is not None:
            self.start = xla.processes.AgreedStart(self.start, raw, program.name, digest, _processes(self.devices))
        if len(self.devices) > 1:
            self.start = _PinnedStart(self.start)
        self.start_divided = self.start
        if placed is not None:  # the thread that donates operands divides them, not that of `interruptible`
            self.start = DividingStart(self.start, program.name, placed)
            commitments.any = True  # its results are
            self.handlers = self.committing_handlers = [
                result_handler(a, where, True, self.origin)
                for a, where in zip(program.out_avals, placed.outs, strict=True)
            ]
            return
        self.handlers = [result_handler(a, device.sharding, False, self.origin) for a in program.out_avals]
        self.committing_handlers = [result_handler(a, device.sharding, True, self.origin) for a in program.out_avals]

    def execute(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Run on buffers of exactly the types `in_avals`, on `device`. Asynchronous: it does not wait for the values.

        Raises: ExecutionError when XLA refuses the call. A failure of the computation is raised by the wait for it.
        Cost: 3.9 us and the computation.
        """
        return launch(self, buffers, self.handlers)

    def memory(self) -> MemoryStats:
        """Bytes of operands, results, aliases, temporaries and code, as planned by XLA."""
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
        """The optimised HLO text."""
        return self.raw.get_hlo_text()


def compile_module(lowered: LoweredModule, options: CompileOptions, device: Device, program: Jaxpr) -> LoadedProgram:
    """Compile a module, which is that of `program`, for a device, without a cache. Raises: CompileError."""
    source = lowered.source(options.donate)
    custom_calls.register_targets(custom_calls.custom_call_targets(source), device.platform)
    placement = lowered.placement
    on: tuple[Device, ...] = (device,)
    if placement is not None:
        on = devices_for(placement.devices, device.platform, lowered.name, placement.ids, placement.of_maps)
    xla_options = _xla_options(options, on, placement, lowered.waits)
    try:
        host_errors = None
        if lowered.waits:
            raw, host_errors = host_calls.compile_with_callbacks(source, lowered.host, on, xla_options)
        else:
            raw = device.client.compile_and_load(source, [d.raw for d in on], xla_options)
    except _jax.JaxRuntimeError as e:
        raise CompileError(_with_module_line(reason(e), source), remedy=_IF_REFUSED) from e
    return load(raw, lowered, on, program, host_errors)


def load(
    raw: _jax.LoadedExecutable,
    program: ProgramDescription,
    on: tuple[Device, ...],
    source: Jaxpr,
    host_errors: HostErrors | None = None,
) -> LoadedProgram:
    """An executable of XLA, made of `source`, on its devices. Raises: CompileError for a division of a result that no
    mesh has."""
    placement, placed = program.placement, None
    if placement is not None:
        placed = Placed(on, placement.meshes[0], *shardings(placement, on, raw, program.name))
    digest = source.digest if len(_processes(on)) > 1 else None
    return LoadedProgram(raw, program, on[0], host_errors, placed, digest)


def _processes(on: tuple[Device, ...]) -> tuple[int, ...]:
    """The numbers of the processes that have some devices."""
    return tuple(sorted({device.process_index for device in on}))


@final
@dataclass(frozen=True, slots=True)
class Compilation:
    """The result of a compilation: an executable, the functions it calls by name, the number of characters of its
    module, and its devices if there are several."""

    program: LoadedProgram
    targets: tuple[str, ...]
    characters: int
    placement: Placement | None = None


def compile_uncached(source: Jaxpr, options: CompileOptions, device: Device) -> Compilation:
    """Compile, without a cache. Raises: CompileError."""
    check_nesting(source)
    lowered = lower_jaxpr(source, device.platform)
    program = compile_module(lowered, with_effort(source, options, device), device, source)
    targets = tuple(sorted(custom_calls.custom_call_targets(lowered.body)))
    return Compilation(program, targets, len(lowered.body) + len(lowered.locations), lowered.placement)


def with_effort(source: Jaxpr, options: CompileOptions, device: Device) -> CompileOptions:
    """The options with the flags for an effort, if they leave it to fxad."""
    chosen = options.effort == "full" or options.optimization_level is not None or options.flags
    flags = () if chosen or device.platform != "cpu" else FLAGS[effort(source)]
    return replace(options, flags=flags) if flags else options


@final
@dataclass(frozen=True, slots=True)
class StoredProgram:
    """The description of a program that was not lowered in this process."""

    in_avals: tuple[Aval, ...]
    out_avals: tuple[Aval, ...]
    name: str
    where: str
    unbounded: bool
    placement: Placement | None


def options_for(on: tuple[Device, ...], placement: Placement | None, waits: bool = False) -> _jax.CompileOptions:
    """XLA's default options for the devices of a program."""
    if placement is None:
        return compile_options(on[0].id)
    return partitioned_options([d.id for d in on], [*[where is None for where in placement.outs], *[False] * waits])


def _xla_options(
    options: CompileOptions, on: tuple[Device, ...], placement: Placement | None, waits: bool
) -> _jax.CompileOptions:
    """The options in XLA's form. The module itself contains the donation."""
    xla_options = options_for(on, placement, waits)
    if options.optimization_level is not None:
        xla_options.executable_build_options.optimization_level = options.optimization_level
    flags = (*(compiler_flags() if on[0].platform == "cuda" else ()), *options.flags)
    if flags:
        xla_options.env_option_overrides = list(flags)
    return xla_options


_IF_REFUSED: Final = (
    "leave out flags of CompileOptions; if it stays, report it with the program: fx.lower(program).text()"
)


def _with_module_line(problem: str, source: str) -> str:
    """XLA's message, with the line of the module that it refers to."""
    match = re.search(r"-:(\d+):\d+: error", problem)
    lines = source.splitlines()
    if match is None or int(match[1]) > len(lines):
        return f"compile: {problem}"
    return f"compile: {problem}\n  in            {lines[int(match[1]) - 1]}"
