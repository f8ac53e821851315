"""What a program becomes: `Lowered`, StableHLO as a value, and `Executable`, which runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Generic, Literal, NoReturn, ParamSpec, Self, TypeAlias, TypeVar, final

from fxad import runtime
from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, ParameterError
from fxad.execution.calls import Calls, usual
from fxad.execution.donation import Donate, asked, check_operands, of_program
from fxad.ir import Aval, Jaxpr
from fxad.lower import LoweredModule, lower_jaxpr
from fxad.passes import Passes, Stages, check_passes, plan_of, run_passes, stages_of
from fxad.runtime import CompileOptions, CostStats, MemoryStats
from fxad.storage.exported import export
from fxad.tracing.array import DEFAULT_OPTIONS
from fxad.tracing.placement import check_device
from fxad.tracing.program import Program
from fxad.units.blocks import Predicate, chosen
from fxad.units.plan import Choice, Plan

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


Units: TypeAlias = Literal["auto", "none"] | Predicate


@final
@dataclass(frozen=True, slots=True)
class Lowered(Generic[P, R_co]):
    """A program as StableHLO. `compile()` makes it run.

    The module is written when it is first looked at, or when XLA has to compile it: a program that the cache knows, in
    memory or on disk, is never lowered.
    """

    program: Program[P, R_co]
    donate: tuple[int, ...] = ()  # operands that `compile` gives up unless it is told otherwise
    choice: Choice = "none"
    passes: Passes | None = None  # None: the default pipeline

    @property
    def module(self) -> LoweredModule:
        """StableHLO of the whole program, as a value."""
        return lower_jaxpr(run_passes(self.program.jaxpr, self.passes or ()))

    @property
    def stages(self) -> Stages:
        """The program, and what it is after each pass that it goes through before it is compiled: a table to print."""
        return stages_of(self.program.jaxpr, self.choice, self.donate, self.passes)

    @property
    def units(self) -> Plan:
        """The plan: what is compiled, once each, and the steps that call it. Its `str` is a table."""
        return plan_of(self.program.jaxpr, self.choice, self.donate, self.passes)

    def text(self) -> str:
        """StableHLO text; byte-identical for equal programs. Of several units: the plan as comments, then each unit."""
        plan = self.units
        texts = [lower_jaxpr(u.body).text() for u in plan.units]
        if len(plan.steps) == 1:
            return texts[0]
        comment = "".join([f"// {line}\n" for line in plan.table(places=False).splitlines()])
        return comment + "".join([f"// unit {k}\n{text}" for k, text in enumerate(texts)])

    def compile(
        self, options: CompileOptions = DEFAULT_OPTIONS, *, donate: Donate = (), device: runtime.Device | None = None
    ) -> Executable[P, R_co]:
        """Compile with XLA; an equal program compiled before with equal options is not compiled again, nor is a unit.

        `donate` names arguments whose memory the results take over, by position, by name, or both; or maps them to tree
        prefixes of bools. Such an array is gone after a call. `device` is the one to compile for now (without: the
        default one); for others it is compiled when data on them asks for it.

        Raises: CompileError with XLA's message and the program's name, or with the unit and the user's line;
                ParameterError for a `donate` that is no argument; DonationWarning for memory that no result can use;
                ArgumentError for what is not a device.
        """
        given = of_program(self.program, donate) if asked(donate) else self.donate
        if given and options.donate:
            raise ParameterError(
                f"compile of {self.program.name}: donate is given twice, by name and as operands of the options",
                remedy="leave it out of CompileOptions",
            )
        operands = given or options.donate
        check_operands(self.program, operands)
        if device is not None:
            check_device(f"compile of {self.program.name}", device)
        load = partial(load_linked, self.program.jaxpr, self.choice, self.passes, replace(options, donate=operands))
        loaded = load(device or runtime.default_device())
        return Executable(self.program, Calls(self.program, loaded, load, operands))

    def export(self, *, platforms: str | Sequence[str] | None = None) -> bytes:
        """The program as bytes; `fx.load_exported` runs them, in any process, whole.

        `platforms` are those that it may run on (without: all that it can).

        Raises: ArgumentError for calls of the host; ParameterError for a platform that cannot be.
        """
        program: Program[P, R_co] = self.program.replace(run_passes(self.program.jaxpr, self.passes or ()))
        return export(program, donate=self.donate, platforms=platforms)

    def __str__(self) -> str:
        return self.text()


def lower(program: Program[P, R], units: Units = "auto", passes: Passes | None = None) -> Lowered[P, R]:
    """Lower a program to StableHLO: a pure function of the program, one function per distinct sub-program.

    `units` decides which calls are compiled apart, once each: "auto", by the cost rule of `fxad.units.blocks`, of calls
    and stretches of equations that repeat; a predicate of the body of a call (a `Jaxpr`), of the calls that there are;
    or "none": the program is compiled whole.

    `passes` are what the program goes through first. The default is `fxad.passes.BEFORE_COMPILATION`, where the cost
    rule finds that units pay. A tuple that is given replaces it, and the program always goes through it: `()` is no
    pass.

    Law: the results do not depend on `units` but for rounding: XLA does not fuse across the border of a unit.
    """
    if not isinstance(program, Program):
        raise ArgumentError(
            f"lower: takes a Program, got {program!r}", remedy="trace the function first: lower(trace(f, *examples))"
        )
    check_passes("lower", passes)
    return Lowered(program, choice=choice_of(run_passes(program.jaxpr, passes or ()), units), passes=passes)


def choice_of(jaxpr: Jaxpr, units: Units) -> Choice:
    """The choice of units as a value. Raises: ParameterError for a word that is none."""
    check_choice("lower", units)
    return chosen(jaxpr, units) if callable(units) else units


def check_choice(what: str, units: object) -> None:
    """Raises: ParameterError for what does not say which calls are units."""
    if units not in ("auto", "none") and not callable(units):
        raise ParameterError(
            f"{what}: units must be 'auto', 'none' or a predicate, got {units!r}",
            remedy="a predicate takes the body of a call, a Jaxpr, and says whether it is a unit",
        )


def load_linked(
    jaxpr: Jaxpr, choice: Choice, passes: Passes | None, options: CompileOptions, device: runtime.Device
) -> runtime.Runnable:
    """The executable of a program on a device; its units are from the cache in force."""
    plan = plan_of(jaxpr, choice, options.donate, passes)
    if len(plan.steps) > 1 or passes:
        runtime.cache_in_force().hold_planned(jaxpr)
    return runtime.link(plan, device, options)


@final
class Executable(Generic[P, R_co]):
    """A compiled program. Takes NumPy arrays, Python scalars, fxad arrays and anything with `__dlpack__`.

    Rule:   arguments must have exactly the types of the program; nothing is converted silently.
    Cost:   a call returns before the work is done.
    Raises: TreeError, ShapeError, DTypeError, ArgumentError naming the argument's path; ExecutionError.
    """

    # `__call__` is a slot: each program has a function of its own there, and a call is one frame of Python
    __slots__ = ("__call__", "_calls", "program")
    __signature__ = Signature([Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)])

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def __init__(self, program: Program[P, R_co], calls: Calls) -> None:
        self.program = program
        self._calls = calls
        object.__setattr__(self, "__call__", usual(calls, calls.general))

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Types of the argument leaves."""
        return self._calls.avals

    @property
    def _loaded(self) -> runtime.Runnable:
        return self._calls.loaded

    def text(self) -> str:
        """The program as XLA optimised it, in HLO; of several units one section each, which begins with a comment."""
        return self._loaded.hlo()

    def memory(self) -> MemoryStats:
        """Bytes of arguments, results, aliases, temporaries and the peak, as XLA planned them."""
        return runtime.memory(self._loaded)

    def cost(self) -> CostStats:
        """Flops, bytes accessed and transcendentals, as XLA counts them."""
        return runtime.cost(self._loaded)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise ArgumentError(
            f"pickle: {self!r} is compiled for the devices of this process",
            remedy="pickle executable.program and compile it there; fx.cache.configure(dir=...) keeps what it made."
            " Or hand over the bytes of fx.lower(program).export()",
        )

    def __repr__(self) -> str:
        return f"<Executable {self.program.name}>"
