"""Plans that run: units compiled, and called one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import replace
from operator import itemgetter
from typing import Final, TypeAlias, cast, final

import numpy as np

from fxad.errors import CompileError
from fxad.ir import Aval, place
from fxad.lower import aliases
from fxad.units.plan import Plan, Step
from fxad.xla.buffers import Buffer, delete, held_on
from fxad.xla.cache import cache_in_force
from fxad.xla.client import Device
from fxad.xla.compat import result_handler
from fxad.xla.executable import (
    DEFAULT,
    CompileOptions,
    CostStats,
    LoadedProgram,
)
from fxad.xla.executable import cost as cost_of_unit
from fxad.xla.executable import memory as memory_of_unit
from fxad.xla.failures import GONE, MemoryStats, Origin, Refused, ResultHandler, StepRefused, refused
from fxad.xla.garbage import collect, due
from fxad.xla.host_calls import Start
from fxad.xla.progress import progress

_Env: TypeAlias = list[Buffer | None]
_Pick: TypeAlias = Callable[[_Env], Sequence[Buffer]]
# a step: what starts it, the handlers of its results, what it reads, and the slots that die
_Call: TypeAlias = tuple[Start, list[ResultHandler], _Pick, tuple[int, ...]]


@final
class _Done:
    """The results of a linked run, in the form in which XLA hands over those of one executable."""

    __slots__ = ("_committed", "buffers")

    def __init__(self, buffers: list[Buffer], committed: list[ResultHandler]) -> None:
        self.buffers = buffers
        self._committed = committed

    def consume_with_handlers(self, handlers: Sequence[ResultHandler]) -> list[Buffer]:
        """The results; committed to their device for the list of handlers that says so."""
        if handlers is self._committed:
            return [b._rewrap_with_aval_and_sharding(b.aval, b._sharding) for b in self.buffers]
        return self.buffers


@final
class LinkedProgram:
    """A plan with its units compiled, on one device. It answers what a `LoadedProgram` answers, to many threads.

    Cost: 5 us a step, beside the computation.
    """

    __slots__ = (
        "__weakref__", "_constants", "_outs", "_parts", "committed", "device", "handlers", "in_avals", "origin",
        "out_avals", "plan", "programs",
    )  # fmt: skip

    def __init__(self, plan: Plan, programs: tuple[LoadedProgram, ...], device: Device) -> None:
        self.plan = plan
        self.programs = programs
        self.device = device
        self.in_avals: tuple[Aval, ...] = plan.in_avals
        self.out_avals: tuple[Aval, ...] = plan.out_avals
        # each step has its own; these only say whether results are to stay on the device
        self.handlers: list[ResultHandler] = []
        self.committed: list[ResultHandler] = []
        self._constants = [held_on(np.array(c.array), c.aval, device) for c in plan.constants]
        self._outs = _pick(plan.outs)
        lines = {s.unit: line for s in reversed(plan.steps) if (line := _where(s))}  # of the first step of each unit
        whole = memory(self)
        # what messages say of the program: its name, the user's line, the memory of a whole run
        self.origin = Origin(plan.name, next((w for s in plan.steps if (w := _where(s))), ""), whole)
        # the results of a unit say the same: it may fail long after the call, and what ran out is the memory of the run
        made = [
            [result_handler(a, device.sharding, False, Origin(plan.name, lines.get(k, ""), whole)) for a in p.out_avals]
            for k, p in enumerate(programs)
        ]
        # what is done at few steps is not asked at each: a part ends where operands are given up
        self._parts: list[tuple[list[_Call], tuple[int, ...]]] = []
        calls: list[_Call] = []
        for s in plan.steps:
            calls.append((programs[s.unit].start, made[s.unit], _pick(s.ins), s.frees))
            if given_up := plan.given_up(s):
                self._parts.append((calls, given_up))
                calls = []
        self._parts.append((calls, ()))

    def start(self, buffers: Sequence[Buffer]) -> _Done:
        """Call every step in order; see `LoadedProgram.execute`. A slot is its place in one list, which only grows, and
        a value is let go when nothing reads it any more; what waits for it in XLA holds it."""
        if self.plan.donate:  # before the first step: those until the one that reads what is gone give theirs up
            self._check(buffers)
        slots: _Env = [*buffers, *self._constants]
        extend = slots.extend
        try:
            for calls, given_up in self._parts:
                for start, handlers, pick, dead in calls:
                    if next(due):
                        collect()
                    extend(start(pick(slots)).consume_with_handlers(handlers))
                    for k in dead:
                        slots[k] = None
                for k in given_up:
                    delete(buffers[k])
        except Refused as e:
            raise self._refused(e, self._running(len(buffers), len(slots)), len(buffers)) from e
        return _Done(list(self._outs(slots)), self.committed)

    def execute(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Run on buffers of exactly the types `in_avals`, on `device`. Does not wait: a result is a promise of a value.

        Raises: ExecutionError when the call is refused; what fails while computing is raised where it is waited for.
        """
        try:
            return self.start(buffers).buffers
        except Refused as e:
            raise refused(e, buffers, self.origin) from e

    def hlo(self) -> str:
        """The optimised units, as XLA prints them, one after the other."""
        return "\n".join([p.hlo() for p in self.programs])

    def _check(self, buffers: Sequence[Buffer]) -> None:
        gone = {k for k, b in enumerate(buffers) if b.is_deleted()}
        step = next((s for s in self.plan.steps if not gone.isdisjoint(s.ins)), None) if gone else None
        if step is not None:
            raise self._refused(Refused(GONE), step, len(buffers))

    def _running(self, operands: int, made: int) -> Step:
        """The step that was running when `made` slots were there."""
        n = operands + len(self._constants)
        step = self.plan.steps[0]
        for step in self.plan.steps:
            if n == made:
                break
            n += len(self.plan.units[step.unit].body.outs)
        return step

    def _refused(self, e: Exception, step: Step, operands: int) -> StepRefused:
        """That a step was refused."""
        reads = [k for k in step.ins if k < operands]
        return StepRefused(str(e), reads, _unit_text(self.plan, step.unit), _where(step))


Runnable: TypeAlias = LoadedProgram | LinkedProgram


def _pick(slots: tuple[int, ...]) -> _Pick:
    """What takes these slots out of the list of all, in C."""
    if len(slots) < 2:
        first = slots[0] if slots else 0
        return cast(_Pick, itemgetter(slice(first, first + len(slots))))
    return cast(_Pick, itemgetter(*slots))


def _unit_text(plan: Plan, k: int) -> str:
    unit = plan.units[k]
    return f"unit {k} of {plan.name}: {unit.body.name}, {unit.equations} equations, used {unit.uses} times"


def _where(step: Step) -> str:
    return str(place(step.source) or "")


# XLA compiles one program on about two cores.
_AT_ONCE: Final = max(1, (os.cpu_count() or 1) // 2)


def link(plan: Plan, device: Device, options: CompileOptions = DEFAULT) -> Runnable:
    """A plan, compiled: each unit once, by the cache in force, several at a time where there are cores for it.

    Raises: CompileError naming the unit and the user's line.
    """
    if len(plan.steps) == 1:
        return cache_in_force()(plan.units[0].body, device, replace(options, donate=plan.units[0].donate))
    programs: list[LoadedProgram | None] = [None] * len(plan.units)
    for k, program in progress(_compiled(plan, device, options), len(plan.units), f"compiling {plan.name}"):
        programs[k] = program
    return LinkedProgram(plan, tuple([p for p in programs if p is not None]), device)


def _compiled(plan: Plan, device: Device, options: CompileOptions) -> Iterator[tuple[int, LoadedProgram]]:
    """The units, as they become ready; the largest are begun first."""

    def compile_unit(k: int) -> tuple[int, LoadedProgram]:
        unit = plan.units[k]
        try:
            return k, cache_in_force()(unit.body, device, replace(options, donate=unit.donate))
        except CompileError as e:
            step = next(s for s in plan.steps if s.unit == k)
            raise e.located(equation=_unit_text(plan, k), where=_where(step))

    order = sorted(range(len(plan.units)), key=lambda k: -plan.units[k].equations)
    if _AT_ONCE == 1:
        yield from map(compile_unit, order)
        return
    with ThreadPoolExecutor(_AT_ONCE, "fxad-compile") as pool:
        waiting = [pool.submit(copy_context().run, compile_unit, k) for k in order]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            for job in waiting:
                job.cancel()


def memory(program: Runnable) -> MemoryStats:
    """Bytes of operands, results, aliases, temporaries and code, as XLA planned them; of a linked program, those of a
    whole run.

    A linked run has its peak at the step that needs most, with all that lives then. Its `temp_bytes` are what the peak
    holds beside operands and results: values between units, and what the unit needs.
    """
    if isinstance(program, LoadedProgram):
        return memory_of_unit(program)
    plan = program.plan
    known = [memory_of_unit(p) for p in program.programs]
    argument = sum([a.nbytes for a in plan.in_avals])
    output = sum([a.nbytes for a in plan.out_avals])
    alias = sum([plan.in_avals[k].nbytes for k in aliases(plan.in_avals, plan.out_avals, plan.donate)])
    peak = max([s.live_bytes + known[s.unit].temp_bytes - known[s.unit].alias_bytes for s in plan.steps])
    code = sum([m.generated_code_bytes for m in known])
    return MemoryStats(argument, output, alias, max(0, peak - argument - output + alias), peak, code)


def cost(program: Runnable) -> CostStats:
    """XLA's estimate of the work of one call, of all its steps; zero where it gives none."""
    if isinstance(program, LoadedProgram):
        return cost_of_unit(program)
    known = [cost_of_unit(p) for p in program.programs]
    steps = [known[s.unit] for s in program.plan.steps]
    return CostStats(
        sum([c.flops for c in steps]),
        sum([c.bytes_accessed for c in steps]),
        sum([c.transcendentals for c in steps]),
    )
