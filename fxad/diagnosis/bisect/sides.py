"""The ways to run a program on operands, for a comparison."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeAlias, final

import numpy as np

from fxad import dtypes, runtime
from fxad.core import interpreter
from fxad.core.dataclasses import dataclass
from fxad.core.interpreter import run_by_layout
from fxad.diagnosis.bisect.child import run_in_child
from fxad.diagnosis.in_dtype import apply_in, dtype_in
from fxad.errors import first_line
from fxad.execution.executable import load_program
from fxad.ir import Aval, Eqn, HigherOrder, Jaxpr, NDArray
from fxad.runtime import Device
from fxad.tracing.program import CompileChoices

HostOperands: TypeAlias = Sequence[NDArray]


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """A run without results: the kind of the error or the end of its process, and its message."""

    kind: str
    message: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


def failure_of(e: Exception) -> Failure:
    """Return the failure of a run that raises an error."""
    return Failure(type(e).__name__, first_line(e))


Outcome: TypeAlias = "list[NDArray] | Failure"


@dataclass(frozen=True, slots=True)
class Side:
    """A way to run a program."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in reports: `interpreted`."""

    @abstractmethod
    def run(self, jaxpr: Jaxpr, operands: HostOperands) -> Outcome:
        """Return the results of a program, or the failure of its run."""

    def run_all(self, runs: Sequence[tuple[Jaxpr, HostOperands]]) -> Iterator[Outcome]:
        """Yield the outcomes of several runs, up to the first failure."""
        for jaxpr, operands in runs:
            outcome = self.run(jaxpr, operands)
            yield outcome
            if isinstance(outcome, Failure):
                return


@dataclass(frozen=True, slots=True)
class InProcess(Side):
    """A way to run a program in this process."""

    @abstractmethod
    def results(self, jaxpr: Jaxpr, operands: HostOperands) -> list[NDArray]:
        """Return the results of a program. Raises: what the program raises."""

    def run(self, jaxpr: Jaxpr, operands: HostOperands) -> Outcome:
        try:
            return self.results(jaxpr, operands)
        except Exception as e:  # noqa: BLE001  an error is an outcome that is compared
            return failure_of(e)


@final
@dataclass(frozen=True, slots=True)
class Interpreted(InProcess):
    """By the interpreter, in NumPy. With `dtype`, floating values have this dtype in every equation, also where a
    parameter gives another; what the dtypes of the program define, as a bitcast, is computed in those, and so are
    bodies that only their primitive can run, as that of a reduction. With `seconds`, a run that takes longer is a
    TimeoutError."""

    dtype: dtypes.DType | None = None
    seconds: float | None = None

    @property
    def name(self) -> str:
        return "interpreted" if self.dtype is None else f"interpreted in {self.dtype.name}"

    def results(self, jaxpr: Jaxpr, operands: HostOperands) -> list[NDArray]:
        if self.dtype is None and self.seconds is None:
            return list(interpreter.run(jaxpr, operands))
        until = np.inf if self.seconds is None else time.monotonic() + self.seconds
        with np.errstate(all="ignore"):
            return _run_in(self.dtype, until, jaxpr, [_in(self.dtype, x) for x in operands])


def run_bodies(
    eqn: Eqn, ins: list[NDArray], outs: Sequence[Aval], run: Callable[[Jaxpr, list[NDArray]], list[NDArray]]
) -> list[NDArray] | None:
    """Return the results of an equation, of the types `outs`, by running its bodies; None if it has none that state
    them."""
    if not isinstance(eqn.prim, HigherOrder) or not eqn.prim.layout.states_results:
        return None
    layout = eqn.prim.layout
    return run_by_layout(layout, ins, outs, lambda k, _, args: run(layout.bodies[k].jaxpr, args))


def _run_in(dtype: dtypes.DType | None, until: float, jaxpr: Jaxpr, operands: HostOperands) -> list[NDArray]:
    """Return the results of a program whose floating values have another dtype. Raises: TimeoutError after `until`."""

    def apply(_: int, eqn: Eqn, ins: list[NDArray]) -> list[NDArray]:
        if time.monotonic() > until:
            raise TimeoutError
        wide = [v.aval.with_dtype(dtype_in(dtype, v.aval.dtype)) for v in eqn.outs]
        outs: Sequence[NDArray] | None = run_bodies(eqn, ins, wide, partial(_run_in, dtype, until))
        if outs is None and isinstance(eqn.prim, HigherOrder):  # as a reduction with a body: it computes in its dtypes
            outs = eqn.prim.impl(*[x.astype(a.aval.dtype) for x, a in zip(ins, eqn.ins, strict=True)])
        return [_in(dtype, np.asarray(x)) for x in (apply_in(dtype, eqn, ins) if outs is None else outs)]

    return interpreter.run_with(jaxpr, operands, apply, lambda a: _in(dtype, a.array))


def _in(dtype: dtypes.DType | None, x: NDArray) -> NDArray:
    return x.astype(dtype_in(dtype, x.dtype))


@final
@dataclass(frozen=True, slots=True)
class CompiledSide(InProcess):
    """Compiled by XLA, with these choices, on a device (None: the default one)."""

    choices: CompileChoices
    device: Device | None = None
    label: str = field(default="compiled", compare=False)

    @property
    def name(self) -> str:
        return self.label

    def results(self, jaxpr: Jaxpr, operands: HostOperands) -> list[NDArray]:
        units, passes, options = self.choices
        device = self.device or runtime.default_device()
        loaded = load_program(jaxpr, units, passes, replace(options, donate=()), device)
        buffers = [runtime.to_buffer(np.asarray(x), a) for x, a in zip(operands, jaxpr.in_avals, strict=True)]
        if self.device is not None:
            buffers = [runtime.transfer(b, device) for b in buffers]
        return [np.array(runtime.to_numpy(b)) for b in loaded.execute(buffers)]

    @property
    def as_one(self) -> CompiledSide:
        """The same options for a program that has gone through the passes, and is one unit."""
        return replace(self, choices=self.choices._replace(units="none", passes=None))


@final
@dataclass(frozen=True, slots=True)
class ChildSide(Side):
    """Compiled in a child process, which may take `seconds` for a run."""

    side: CompiledSide
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.side.name} in a child process"

    def run(self, jaxpr: Jaxpr, operands: HostOperands) -> Outcome:
        return next(self.run_all([(jaxpr, operands)]))

    def run_all(self, runs: Sequence[tuple[Jaxpr, HostOperands]]) -> Iterator[Outcome]:
        outcomes = run_in_child(runs, self.side.choices, self.side.device, self.seconds)
        yield from [Failure(*found) if isinstance(found, tuple) else found for found in outcomes]

    @property
    def as_one(self) -> ChildSide:
        """As `CompiledSide.as_one`."""
        return replace(self, side=self.side.as_one)
