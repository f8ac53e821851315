"""Linked programs: plans with compiled units, which are called in sequence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar, cast, final
from weakref import ref

import numpy as np

from fxad import xla
from fxad.errors import CompileError
from fxad.ir import Aval, source_text
from fxad.lower import aliases
from fxad.support.progress import Progress
from fxad.units.plan import UnitCall, UnitPlan
from fxad.xla.buffers import constant_buffer, delete
from fxad.xla.cache import active_cache
from fxad.xla.client import Device
from fxad.xla.compat import result_handler
from fxad.xla.donated_buffers import OPERAND_DELETED
from fxad.xla.executable import XlaExecutable, launch
from fxad.xla.failures import BufferProducer, StepRefused
from fxad.xla.garbage import collect_garbage, collection_due
from fxad.xla.jaxlib_types import Buffer, CostStats, MemoryStats, ResultHandler, Start, XlaRuntimeError
from fxad.xla.options import DEFAULT_OPTIONS, CompileOptions

T = TypeVar("T")

_Slots: TypeAlias = list[Buffer | None]
_PickBuffers: TypeAlias = Callable[[_Slots], Sequence[Buffer]]
# a step: the function that starts it, the handlers of its results, a getter of its operands, and the step in the plan
_LinkedStep: TypeAlias = tuple[Start, list[ResultHandler], _PickBuffers, UnitCall]


@final
class LinkedHandlers(list[ResultHandler]):
    """Stands for the handlers of a linked run, whose steps have handlers of their own: it has none, and says if the
    results are to be committed to their device."""

    __slots__ = ("commits",)

    def __init__(self, *, commits: bool) -> None:
        super().__init__()
        self.commits = commits


@final
class _LinkedResults:
    """The results of a linked run, with the interface of XLA's results of one executable."""

    __slots__ = ("buffers",)

    def __init__(self, buffers: list[Buffer]) -> None:
        self.buffers = buffers

    def consume_with_handlers(self, handlers: Sequence[ResultHandler]) -> list[Buffer]:
        """Return the results, committed to their device if `handlers` says so."""
        assert isinstance(handlers, LinkedHandlers), "a linked run takes `handlers` or `committing_handlers` of its own"
        if handlers.commits:
            return [b._rewrap_with_aval_and_sharding(b.aval, b._sharding) for b in self.buffers]
        return self.buffers


@final
class LinkedExecutable:
    """A plan with compiled units, on one device. It has the interface of an `XlaExecutable`. Thread-safe.

    Cost: 5 us a step, in addition to the computation.
    """

    __slots__ = (
        "__weakref__", "_constants", "_groups", "_outs", "committing_handlers", "device", "devices", "executables",
        "handlers", "in_avals", "producer", "out_avals", "plan", "sharding",
    )  # fmt: skip

    def __init__(self, plan: UnitPlan, executables: tuple[XlaExecutable, ...], device: Device) -> None:
        self.plan = plan
        self.executables = executables
        self.device = device
        self.in_avals: tuple[Aval, ...] = plan.in_avals
        self.out_avals: tuple[Aval, ...] = plan.out_avals
        self.handlers = LinkedHandlers(commits=False)
        self.committing_handlers = LinkedHandlers(commits=True)
        self.sharding: None = None
        self.devices: tuple[Device, ...] = (device,)
        self._constants = [constant_buffer(np.array(c.array), c.aval, device) for c in plan.constants]
        self._outs = _pick(plan.outs)
        lines = {s.unit: line for s in reversed(plan.steps) if (line := _source_line(s))}  # the first step of each unit
        executable = ref(self)
        # for messages: the name of the program, the user's line, the memory of a whole run
        self.producer = BufferProducer(
            plan.name, next((w for s in plan.steps if (w := _source_line(s))), ""), executable
        )
        # results of units have the same description: a unit may fail long after the call, or exhaust memory of the run
        handlers: list[list[ResultHandler]] = []
        for k, p in enumerate(executables):
            producer = BufferProducer(plan.name, lines.get(k, ""), executable)
            handlers.append([result_handler(a, device.sharding, False, producer) for a in p.out_avals])
        # steps are grouped so that most need no check for donation: a group ends at a step that donates operands
        self._groups: list[tuple[list[_LinkedStep], tuple[int, ...]]] = []
        calls: list[_LinkedStep] = []
        for s in plan.steps:
            calls.append((executables[s.unit].start, handlers[s.unit], _pick(s.ins), s))
            if donated := plan.donated_at(s):
                self._groups.append((calls, donated))
                calls = []
        self._groups.append((calls, ()))

    def start(self, buffers: Sequence[Buffer]) -> _LinkedResults:
        """Call every step in order; see `XlaExecutable.execute`. A slot is an index into one list, which only grows. A
        value is dropped after its last read; pending XLA executions keep their operands alive."""
        if self.plan.donate:  # before the first step: steps before a failing one would consume their operands
            self._check_operands(buffers)
        slots: _Slots = [*buffers, *self._constants]
        extend = slots.extend
        step = self.plan.steps[0]
        try:
            for calls, donated in self._groups:
                for start, handlers, pick, step in calls:
                    if next(collection_due):
                        collect_garbage()
                    extend(start(pick(slots)).consume_with_handlers(handlers))
                    for k in step.frees:
                        slots[k] = None
                for k in donated:
                    delete(buffers[k])
        except XlaRuntimeError as e:
            raise self._refused(e, step, len(buffers)) from e
        return _LinkedResults(list(self._outs(slots)))

    def memory(self) -> MemoryStats:
        """Return bytes of operands, results, aliases, temporaries and code of a whole run, as planned by XLA.

        The peak is the maximum over the steps of live slots and temporaries. `temp_bytes` are the peak without operands
        and results: values between units, and temporaries of the unit.
        """
        plan, stats = self.plan, [p.memory() for p in self.executables]
        ins, outs = self.in_avals, self.out_avals
        argument, output = [sum([a.nbytes for a in side]) for side in (ins, outs)]
        alias = sum([ins[k].nbytes for k in aliases(ins, outs, plan.donate)])
        peak = max([s.live_bytes + stats[s.unit].temp_bytes - stats[s.unit].alias_bytes for s in plan.steps])
        code = sum([m.generated_code_bytes for m in stats])
        return MemoryStats(argument, output, alias, max(0, peak - argument - output + alias), peak, code)

    def cost(self) -> CostStats:
        """XLA's estimate of the work of one call, summed over its steps; zero if there is none."""
        stats = [p.cost() for p in self.executables]
        steps = [stats[s.unit] for s in self.plan.steps]
        return CostStats(
            sum([c.flops for c in steps]),
            sum([c.bytes_accessed for c in steps]),
            sum([c.transcendentals for c in steps]),
        )

    def execute(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Run on buffers of exactly the types `in_avals`, on `device`. Asynchronous: it does not wait for the values.

        Raises: ExecutionError when XLA refuses the call. A failure of the computation is raised by the wait for it.
        """
        return launch(self.start, buffers, self.handlers, self.producer)

    def hlo(self) -> str:
        """Return the optimised HLO of the units, one after the other; each begins with a comment that names it."""
        return "".join([f"// {_unit_text(self.plan, k)}\n{p.hlo().rstrip()}\n" for k, p in enumerate(self.executables)])

    def _check_operands(self, buffers: Sequence[Buffer]) -> None:
        """Check that no step reads a deleted operand. Raises: StepRefused."""
        deleted = {k for k, b in enumerate(buffers) if b.is_deleted()}
        step = next((s for s in self.plan.steps if not deleted.isdisjoint(s.ins)), None) if deleted else None
        if step is not None:
            raise self._refused(XlaRuntimeError(OPERAND_DELETED), step, len(buffers))

    def _refused(self, e: Exception, step: UnitCall, operands: int) -> StepRefused:
        """Return the error for a step that XLA refused."""
        reads = [k for k in step.ins if k < operands]
        return StepRefused(str(e), reads, _unit_text(self.plan, step.unit), _source_line(step))


AnyExecutable: TypeAlias = XlaExecutable | LinkedExecutable


def parts_of(executable: AnyExecutable) -> tuple[XlaExecutable, ...]:
    """Return the executables of XLA of a program."""
    return executable.executables if isinstance(executable, LinkedExecutable) else (executable,)


def _pick(slots: tuple[int, ...]) -> _PickBuffers:
    """Return a C function that selects these slots from the list of all."""
    # the type of `itemgetter` does not say that it gives a list for a slice, and a tuple for several indices
    if len(slots) < 2:
        first = slots[0] if slots else 0
        return cast(_PickBuffers, itemgetter(slice(first, first + len(slots))))
    return cast(_PickBuffers, itemgetter(*slots))


def _unit_text(plan: UnitPlan, k: int) -> str:
    unit = plan.units[k]
    return f"unit {k} of {plan.name}: {unit.body.name}, {unit.equations} equations, used {unit.uses} times"


def _source_line(step: UnitCall) -> str:
    return source_text(step.source)


# XLA uses about two cores to compile one program.
_AT_ONCE: Final = max(1, (os.cpu_count() or 1) // 2)


def link(plan: UnitPlan, device: Device, options: CompileOptions = DEFAULT_OPTIONS) -> AnyExecutable:
    """Compile a plan: each unit once, through the active cache, several at a time if there are enough cores.

    Raises: CompileError naming the unit and the user's line.
    """
    if len(plan.steps) == 1:
        return active_cache()(plan.units[0].body, device, replace(options, donate=plan.units[0].donate))
    n = len(plan.units)
    executables = dict[int, XlaExecutable]()
    with Progress(f"compiling {plan.name}", n) as bar:
        for k, executable in _compiled(plan, device, options):
            executables[k] = executable
            bar.step()
    return LinkedExecutable(plan, tuple([executables[k] for k in range(n)]), device)


def _compiled(plan: UnitPlan, device: Device, options: CompileOptions) -> Iterator[tuple[int, XlaExecutable]]:
    """Yield the number and the executable of each unit, in order of completion. The largest are started first."""

    def compile_unit(k: int) -> tuple[int, XlaExecutable]:
        unit = plan.units[k]
        try:
            return k, active_cache()(unit.body, device, replace(options, donate=unit.donate))
        except CompileError as e:
            step = next(s for s in plan.steps if s.unit == k)
            raise e.located(equation=_unit_text(plan, k), where=_source_line(step))

    order = sorted(range(len(plan.units)), key=lambda k: -plan.units[k].equations)
    if _AT_ONCE == 1:
        yield from map(compile_unit, order)
        return
    yield from xla.in_threads.completed(compile_unit, order, _AT_ONCE)
