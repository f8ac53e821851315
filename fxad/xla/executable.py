"""A compiled program: making one, calling it, and what it costs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol, final

from fxad.core.dataclasses import dataclass
from fxad.errors import CompileError, ParameterError
from fxad.ir import Aval
from fxad.lower import LoweredModule
from fxad.lowering.door import _jax
from fxad.xla import custom_calls, host_calls
from fxad.xla.buffers import Buffer
from fxad.xla.client import Device
from fxad.xla.compat import compile_options, reason, result_handler
from fxad.xla.failures import MemoryStats, Origin, Refused, ResultHandler, refused
from fxad.xla.garbage import collect, due
from fxad.xla.host_calls import Start, Waiting


@final
@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How to compile, as a value: part of the key of the cache.

    `donate` numbers operands whose memory results of their type take over: the caller's buffer is gone after the call.
    `flags` are XLA's own, as in XLA_FLAGS but for this program only: `(("xla_cpu_enable_fast_math", True),)`.

    Rule:   lists are made tuples. Flags of 1, 1.0 and True are three, as they are to XLA.
    Raises: ParameterError for what has another type.
    """

    donate: tuple[int, ...] = ()
    optimization_level: int | None = None
    flags: tuple[tuple[str, str | bool | int | float], ...] = ()

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
        object.__setattr__(self, "donate", tuple(donate))
        object.__setattr__(self, "flags", tuple([(name, value) for name, value in self.flags]))

    def _key(self) -> tuple[object, ...]:
        # by what is written: 1 == True, 0.0 == -0.0, and nan is no nan
        return self.donate, self.optimization_level, repr(self.flags)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, CompileOptions) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_flag(given: object) -> bool:
    """Whether something is a flag of XLA's and its value."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        return False
    name, value = given
    return isinstance(name, str) and type(value) in (str, bool, int, float)


DEFAULT: Final = CompileOptions()


@final
@dataclass(frozen=True, slots=True)
class CostStats:
    """XLA's own estimate of the work of one call. `transcendentals` are counted apart from `flops`."""

    flops: float
    bytes_accessed: float
    transcendentals: float


class Described(Protocol):
    """What is said of a program that was compiled: its types, the user's function, and the first line of it."""

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
        """The first line of it that made an equation."""


class Launchable(Protocol):
    """What runs: one executable, or several that are linked."""

    @property
    def origin(self) -> Origin:
        """What messages say of it."""

    @property
    def start(self) -> Start:
        """Begins an execution on buffers of exactly its types, on its device."""


def launch(program: Launchable, buffers: Sequence[Buffer], handlers: Sequence[ResultHandler]) -> list[Buffer]:
    """Start a compiled program, and make its results by the handlers: free to move, or committed to the device.

    The usual calls (`fxad.execution.calls`, `fxad.numpy.calls`) spell this out, to save a frame of Python.
    Raises: ExecutionError when the call is refused.
    """
    if next(due):
        collect()
    try:
        return program.start(buffers).consume_with_handlers(handlers)
    except Refused as e:
        raise refused(e, buffers, program.origin) from e


@final
class LoadedProgram:
    """A compiled program on one device. It holds code, no program and no constant. Many threads may call it.

    `start` and `handlers` are the parts of `execute`, for callers that spell it out to save a frame. What `handlers`
    make is free to move; what `committed` makes stays on the device (see `fxad.tracing.placement`).
    """

    __slots__ = ("__weakref__", "committed", "device", "handlers", "in_avals", "origin", "out_avals", "raw", "start")

    def __init__(
        self, raw: _jax.LoadedExecutable, program: Described, device: Device, waiting: Waiting | None = None
    ) -> None:
        self.raw = raw
        self.in_avals: tuple[Aval, ...] = program.in_avals
        self.out_avals: tuple[Aval, ...] = program.out_avals
        self.device = device
        self.start: Start = waiting or raw.execute_sharded
        self.origin = Origin(program.name, program.where, memory(self))
        self.handlers = [result_handler(a, device.sharding, False, self.origin) for a in program.out_avals]
        self.committed = [result_handler(a, device.sharding, True, self.origin) for a in program.out_avals]

    def execute(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Run on buffers of exactly the types `in_avals`, on `device`. Does not wait: a result is a promise of a value.

        Raises: ExecutionError when the call is refused; what fails while computing is raised where it is waited for.
        Cost: 3.9 us and the computation.
        """
        return launch(self, buffers, self.handlers)

    def hlo(self) -> str:
        """The optimised program, as XLA prints it."""
        return self.raw.get_hlo_text()


def compile_module(lowered: LoweredModule, options: CompileOptions, device: Device) -> LoadedProgram:
    """Compile for a device, always: `Cache` is what remembers. Raises: CompileError."""
    source = lowered.source(options.donate)
    custom_calls.provide(custom_calls.called(source), device.platform)
    given = _given(options, device)
    try:
        if lowered.waits:
            raw, start = host_calls.compiled(source, lowered.host, device, given)
            return LoadedProgram(raw, lowered, device, start)
        raw = device.client.compile_and_load(source, device.raw_list, given)
    except _jax.JaxRuntimeError as e:
        raise CompileError(_explained(reason(e), source), remedy=_WITHOUT) from e
    return LoadedProgram(raw, lowered, device)


def _given(options: CompileOptions, device: Device) -> _jax.CompileOptions:
    """Options in XLA's terms; donation is said in the module."""
    given = compile_options(device.id)
    if options.optimization_level is not None:
        given.executable_build_options.optimization_level = options.optimization_level
    if options.flags:
        given.env_option_overrides = list(options.flags)
    return given


_WITHOUT: Final = "leave out flags of CompileOptions; if it stays, report it with the program: fx.lower(program).text()"


def _explained(problem: str, source: str) -> str:
    """XLA's message, with the line of the module it speaks of."""
    found = re.search(r"-:(\d+):\d+: error", problem)
    lines = source.splitlines()
    if found is None or int(found[1]) > len(lines):
        return f"compile: {problem}"
    return f"compile: {problem}\n  in            {lines[int(found[1]) - 1]}"


def memory(program: LoadedProgram) -> MemoryStats:
    """Bytes of operands, results, aliases, temporaries and code, as XLA planned them."""
    s = program.raw.get_compiled_memory_stats()
    argument, output = s.argument_size_in_bytes, s.output_size_in_bytes
    alias, temp = s.alias_size_in_bytes, s.temp_size_in_bytes
    # on the CPU XLA leaves the temporaries out of its own figure; they are one block, alive through the call
    total = argument + output - alias + temp
    peak = total if program.device.platform == "cpu" else s.peak_memory_in_bytes or total
    return MemoryStats(argument, output, alias, temp, peak, s.generated_code_size_in_bytes)


def cost(program: LoadedProgram) -> CostStats:
    """XLA's estimate of the work of one call; zero where it gives none."""
    known = program.raw.cost_analysis()
    return CostStats(
        float(known.get("flops", 0.0)),
        float(known.get("bytes accessed", 0.0)),
        float(known.get("transcendentals", 0.0)),
    )
