"""`Lowered`, a program as StableHLO, and `Executable`, a compiled program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, ParamSpec, Self, TypeAlias, TypeVar, final

from fxad import execution, lowering, runtime, storage
from fxad.core.dataclasses import dataclass
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, ParameterError, SizeError, described, shown
from fxad.execution.dispatch import FAST_CALL, Dispatcher, fast_path
from fxad.execution.donation import Donate, check_donated_operands, donated_operands, donates_any
from fxad.execution.shardings import with_program_shardings
from fxad.ir import Aval, Jaxpr
from fxad.lower import LoweredModule, lower_jaxpr
from fxad.operations.arguments import parse_bytes
from fxad.passes import Passes, Stages, check_passes, plan_of, run_passes, stages_of
from fxad.primitives.marks import least_budget, with_budget, without_budgets
from fxad.runtime import DEFAULT_OPTIONS, CompileOptions, CostStats, MemoryStats
from fxad.sharding import Sharding, Shardings, SingleDeviceSharding, named_sharding_of
from fxad.support.tables import headed
from fxad.tracing.placement import OperandSharding, Target, check_device
from fxad.tracing.program import CompileChoices, Program, check_bound
from fxad.tracing.spec import Spec
from fxad.units.cost_rule import Predicate, selected_bodies
from fxad.units.plan import UnitPlan, UnitsChoice

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


Units: TypeAlias = Literal["auto", "none"] | Predicate


class _Staged:
    """The types and trees of a program, for its forms before and after compilation."""

    __slots__ = ()
    program: Program[..., object]

    @property
    def out_info(self) -> Any:
        """The types of the results: a tree of `Spec`s."""
        return self.program.out_info

    @property
    def in_tree(self) -> Structure:
        """The structure of ((positional), {keyword})."""
        return self.program.in_tree

    @property
    def out_tree(self) -> Structure:
        """The structure of the results."""
        return self.program.out_tree


@final
@dataclass(frozen=True, slots=True, weakref_slot=True)
class Lowered(_Staged, Generic[P, R_co]):
    """A program as StableHLO. `compile()` returns an `Executable`.

    The module is generated at its first use, or when XLA has to compile it. A program that is in the cache, in memory
    or on disk, is never lowered.
    """

    program: Program[P, R_co]
    donate: tuple[int, ...] = ()  # operands that `compile` donates by default
    choice: UnitsChoice = "none"  # of units
    passes: Passes | None = None  # None: the default pipeline
    operands: Target | None = None  # the devices of the arguments for which `jit(f).lower` made it

    @property
    def args_info(self) -> Any:
        """The types of the arguments, and which are donated: a tree ((positional), {keyword}) of `ArgInfo`s."""
        return self.program.args_info_with_donation(self.donate)

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The donated arguments, as numbers of leaves."""
        return tuple([k - len(self.program.bound) for k in self.donate])

    @property
    def module(self) -> LoweredModule:
        """StableHLO of the whole program for the default platform, as a value."""
        return lower_jaxpr(run_passes(self.program.jaxpr, self.passes or ()), runtime.default_platform())

    @property
    def stages(self) -> Stages:
        """The program, and the result of each pass that runs before compilation. Its `str` is a table. Cost: a program
        with a budget is compiled."""
        jaxpr, passes = self._within_budget
        return stages_of(jaxpr, self.choice, self.donate, passes)

    @property
    def units(self) -> UnitPlan:
        """The plan of the program: the units, each compiled once, and the steps that call them. Its `str` is a table.
        Cost: a program with a budget is compiled."""
        jaxpr, passes = self._within_budget
        return plan_of(jaxpr, self.choice, self.donate, passes)

    @property
    def _within_budget(self) -> tuple[Jaxpr, Passes | None]:
        """The program without marks of a budget, and the passes under which it fits into the budget."""
        jaxpr = self.program.jaxpr
        if least_budget(jaxpr) is None:
            return jaxpr, self.passes
        options = replace(DEFAULT_OPTIONS, donate=self.donate)
        _, passes = load_with_passes(jaxpr, self.choice, self.passes, options, runtime.default_device())
        return without_budgets(jaxpr), passes

    def text(self) -> str:
        """Return StableHLO text of the whole program, in MLIR's generic form; byte-identical for equal programs.

        `module.pretty()` is the same module in MLIR's pretty form. `units` is the plan by which it is compiled.
        Cost: that of `module`: no plan is made, and MLIR does not read the text.
        """
        return self.module.text()

    def compile(
        self,
        options: CompileOptions = DEFAULT_OPTIONS,
        *,
        donate: Donate = (),
        device: runtime.Device | None = None,
        in_shardings: Shardings = None,
        out_shardings: Shardings = None,
        budget: int | str | None = None,
        compiler_options: Mapping[str, str | bool | int | float] | None = None,
    ) -> Executable[P, R_co]:
        """Compile with XLA. The cache returns an equal program or unit that was compiled before with equal options.

        `donate` names arguments whose memory the results reuse, by position, by name, or both; or maps them to tree
        prefixes of bools. A donated array is deleted by the call. `device` is the device to run on: uncommitted
        arguments are moved there, and the results are committed to it. Without it, the program is compiled for the
        devices of the arguments that `jit(f).lower` was given, otherwise for the default device, and the results are
        free to move. In both cases, a call with data committed to another device compiles for that device.
        `in_shardings` and `out_shardings` are tree prefixes of `NamedSharding`s or None: the program runs on their
        devices, which divide arguments and results.

        `compiler_options` are further `flags` of the options, under JAX's name. `budget` is a number of bytes, or a
        text such as "64 MiB". The executable has at most so many bytes of temporaries, on each device: values are
        computed again, in more places until it fits. Programs under several schedules may be compiled. A budget that
        `remat` gave to a part of the program holds too.

        Law:    `compile(budget=b).memory().temp_bytes <= b`; a smaller budget never gives more.
        Raises: CompileError with XLA's message and the program's name, or with the unit and the user's line;
                ParameterError if `donate` names an unknown argument, and for a budget into which nothing fits, with the
                least bytes that were reached; DonationWarning for memory that no result can reuse; ArgumentError for a
                budget that is no number of bytes, if `options` are not `CompileOptions`, if `device` is not a device,
                or if a device and shardings are given.
        """
        runtime.check_options(f"compile of {self.program.name}", options)
        if compiler_options is not None:
            if not isinstance(compiler_options, Mapping):
                raise ArgumentError(
                    f"compile of {self.program.name}: compiler_options is {described(compiler_options)}:"
                    f" {shown(compiler_options)}",
                    remedy="give a dict of XLA's flags and their values",
                )
            options = replace(options, flags=(*options.flags, *dict(compiler_options).items()))
        if device is not None:
            check_device(f"compile of {self.program.name}", device)
            if in_shardings is not None or out_shardings is not None:
                raise ArgumentError(
                    f"compile of {self.program.name}: a device and shardings are given",
                    remedy="leave out one of them: both say where the program runs",
                )
        program = with_program_shardings(f"compile of {self.program.name}", self.program, in_shardings, out_shardings)
        if budget is not None:
            limit = parse_bytes(f"compile of {self.program.name}", budget)
            program = program.replace(with_budget(program.jaxpr, limit))
        has_shardings = in_shardings is not None or out_shardings is not None
        target = self.operands if device is None and not has_shardings else device
        return replace(self, program=program)._compiled(options, donate, target=target, device=device)

    def compile_for_operands(self, target: Target | None) -> Executable[P, R_co]:
        """Compile now for the devices `target` that hold the operands of a call; None: for the default device. Calls of
        data that is free to move run on the default device in any case."""
        return self._compiled(DEFAULT_OPTIONS, (), target=target, device=None)

    def _compiled(
        self, options: CompileOptions, donate: Donate, *, target: Target | None, device: runtime.Device | None
    ) -> Executable[P, R_co]:
        """Compile now for `target`, or for the default device. Calls of data that is free to move run on `device`. If
        it is None, they run on the default device, and their results are free to move."""
        donated = donated_operands(self.program, donate) if donates_any(donate) else self.donate
        if donated and options.donate:
            raise ParameterError(
                f"compile of {self.program.name}: donate is given twice, by name and as operands of the options",
                remedy="leave it out of CompileOptions",
            )
        full_options = replace(options, donate=donated or options.donate)
        check_donated_operands(self.program, full_options.donate)
        load = partial(load_program, self.program.jaxpr, self.choice, self.passes, full_options)
        loaded = load(target or runtime.default_device())
        choices = CompileChoices(self.choice, self.passes, full_options)
        operand_target = target if device is None else None
        return Executable(self.program, Dispatcher(self.program, loaded, load, choices, device, operand_target))

    # ------------------------------------------------------------------------------------------------- JAX's names

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """Return the text of a dialect: `text()` for "stablehlo", HLO before XLA optimises it for "hlo".

        Raises: ParameterError for another dialect, and for `debug_info`.
        """
        self._check_dialect("as_text", dialect)
        if debug_info:
            raise ParameterError(
                f"as_text of {self.program.name}: debug_info is True, and the text has no locations",
                remedy="leave it out; errors and profiles name the lines",
            )
        return lowering.mlir.computation(self.module.source()).as_hlo_text() if dialect == "hlo" else self.text()

    def compiler_ir(self, dialect: str | None = None) -> object:
        """Return the module, whose `str` is StableHLO; for the dialect "hlo" jaxlib's object. Raises:
        ParameterError."""
        self._check_dialect("compiler_ir", dialect)
        return lowering.mlir.computation(self.module.source()) if dialect == "hlo" else self.module

    def _check_dialect(self, what: str, dialect: str | None) -> None:
        if dialect not in (None, "stablehlo", "hlo"):
            raise ParameterError(
                f"{what} of {self.program.name}: dialect {shown(dialect, 40)}",
                remedy='use "stablehlo" or "hlo"; compile().as_text() is the HLO that XLA has optimised',
            )

    def cost_analysis(self) -> dict[str, float]:
        """Return XLA's estimates for the compiled program, by JAX's keys. Cost: compiles it."""
        return self.compile().cost_analysis()

    def export(self, *, platforms: str | Sequence[str] | None = None) -> bytes:
        """Return the whole program as bytes. `fx.load_exported` loads them in any process.

        `platforms` are the platforms to support (default: all possible ones).

        Raises: ArgumentError for calls of the host; ParameterError for an unsupported platform.
        """
        program = self.program.replace(run_passes(self.program.jaxpr, self.passes or ()))
        return storage.exported.export(program, donate=self.donate, platforms=platforms)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return headed(f"Lowered {self.program.name}", self.stages._repr_html_(), self.units._repr_html_())


def lower(program: Program[P, R], units: Units = "auto", passes: Passes | None = None) -> Lowered[P, R]:
    """Return the program with the choices for its compilation: a pure function of the program. StableHLO, with one
    function per distinct sub-program, is written when `module` is first read, or by the compilation.

    `units` selects the calls that are compiled separately, each distinct body once. "auto": the cost rule of
    `fxad.units.cost_rule` selects repeated calls and repeated sequences of equations. A predicate of a body (a `Jaxpr`)
    selects among the existing calls. "none": the program is compiled as a whole. A program on several devices is always
    compiled as a whole: `lowered.units` says so. Units save compile time and memory. A step in units can take longer,
    because XLA does not fuse across their borders: 1.16 of the time for 6 residual layers of a product and a `tanh`.

    `passes` run first. The default is `fxad.passes.BEFORE_COMPILATION`, if the cost rule says that units pay. A given
    tuple replaces the default and is always run; `()` runs no pass.

    Law: the results do not depend on `units` except for rounding.
    """
    if not isinstance(program, Program):
        raise ArgumentError(
            f"lower: takes a Program, got {shown(program)}",
            remedy="trace the function first: lower(trace(f, *examples))",
        )
    check_passes("lower", passes)
    check_bound(program)
    if program.jaxpr.symbolic:
        types = ", ".join([str(a) for a in program.in_avals if a.symbolic])
        raise SizeError(
            f"lower: {program.name} is of symbolic shape: it takes {types}",
            remedy="specialize the program, or mask it, before it is lowered",
        )
    return Lowered(program, choice=units_choice(run_passes(program.jaxpr, passes or ()), units), passes=passes)


def units_choice(jaxpr: Jaxpr, units: Units) -> UnitsChoice:
    """Return the choice of units as a value. Raises: ParameterError for an unknown word."""
    check_choice("lower", units)
    return selected_bodies(jaxpr, units) if callable(units) else units


def check_choice(what: str, units: object) -> None:
    """Check that `units` is a valid choice of units. Raises: ParameterError."""
    if not (isinstance(units, str) and units in ("auto", "none")) and not callable(units):
        raise ParameterError(
            f"{what}: units must be 'auto', 'none' or a predicate, got {shown(units)}",
            remedy="a predicate takes the body of a call, a Jaxpr, and says whether it is a unit",
        )


def load_program(
    jaxpr: Jaxpr, choice: UnitsChoice, passes: Passes | None, options: CompileOptions, target: Target
) -> runtime.AnyExecutable:
    """Return the executable of a program on devices, within the budgets of its parts. The active cache supplies its
    units."""
    return load_with_passes(jaxpr, choice, passes, options, target)[0]


def load_with_passes(
    jaxpr: Jaxpr, choice: UnitsChoice, passes: Passes | None, options: CompileOptions, target: Target
) -> tuple[runtime.AnyExecutable, Passes | None]:
    """Return the executable of `load_program`, and the passes under which it fits into the budgets."""
    jaxpr, device = (target.program(jaxpr), target.device) if isinstance(target, OperandSharding) else (jaxpr, target)
    limit = least_budget(jaxpr)

    def link(plan: UnitPlan) -> runtime.AnyExecutable:
        if len(plan.steps) > 1 or passes or limit is not None:
            runtime.active_cache().hold_planned(jaxpr)
        return runtime.link(plan, device, options)

    if limit is None:
        return link(plan_of(jaxpr, choice, options.donate, passes)), passes
    return execution.budget.link_within(jaxpr, choice, options.donate, passes, limit, link)


def specs(structure: Structure, avals: Sequence[Aval]) -> Any:
    """Return a tree of the types of its leaves."""
    return tree.unflatten(structure, [Spec(a.shape, a.dtype) for a in avals])


@final
@dataclass(frozen=True, slots=True)
class CompiledMemoryStats:
    """Bytes that a compiled program uses, by JAX's names."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    generated_code_size_in_bytes: int
    peak_memory_in_bytes: int


@final
class Executable(_Staged, Generic[P, R_co]):
    """A compiled program. Takes NumPy arrays, Python scalars, fxad arrays and anything with `__dlpack__`.

    Rule:   arguments must have exactly the types of the program; nothing is converted silently.
    Cost:   a call returns before the work is done.
    Raises: TreeError, ShapeError, DTypeError, ArgumentError naming the argument's path; ExecutionError.
    """

    # `__call__` is a slot with the closure of this program. Its name is no string here, because pyright would take
    # the slot, and not the signature below, as the type of a call.
    __slots__ = (FAST_CALL, "__weakref__", "_dispatcher", "program")
    __signature__ = Signature([Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)])

    if TYPE_CHECKING:

        def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def __init__(self, program: Program[P, R_co], dispatcher: Dispatcher) -> None:
        self.program: Program[P, R_co] = program
        self._dispatcher = dispatcher
        object.__setattr__(self, FAST_CALL, fast_path(dispatcher, dispatcher.call))

    def _repr_html_(self) -> str:
        return headed(repr(self)[1:-1], self.memory()._repr_html_(), self.program._repr_html_())

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Types of the argument leaves."""
        return self._dispatcher.avals

    @property
    def args_info(self) -> Any:
        """The types of the arguments, and which are donated: a tree ((positional), {keyword}) of `ArgInfo`s."""
        return self.lowered.args_info

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The donated arguments, as numbers of leaves."""
        return self.lowered.donate_argnums

    @property
    def choices(self) -> CompileChoices:
        """How the program was compiled: the choice of units, the passes, and the options."""
        return self._dispatcher.choices

    @property
    def lowered(self) -> Lowered[P, R_co]:
        """The program before compilation, with the operands that the executable donates, and their devices."""
        units, passes, options = self.choices
        return Lowered(self.program, options.donate, units, passes, self._dispatcher.target)

    @property
    def parts(self) -> tuple[runtime.XlaExecutable, ...]:
        """The executables of XLA, one for each unit of `lowered.units`."""
        return runtime.parts_of(self._loaded)

    @property
    def _loaded(self) -> runtime.AnyExecutable:
        return self._dispatcher.loaded

    @property
    def input_shardings(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The sharding of the arguments: a tree for the positional ones and a tree for the keyword ones."""
        sharding = self._loaded.sharding
        shardings = None if sharding is None else sharding.ins[len(self.program.bound) :]
        args, kwargs = tree.unflatten(self.program.in_tree, self._for_users(shardings, len(self.in_avals)))
        return args, kwargs

    @property
    def output_shardings(self) -> Any:
        """The sharding of the results: a tree."""
        sharding = self._loaded.sharding
        shardings = None if sharding is None else sharding.outs
        return tree.unflatten(self.program.out_tree, self._for_users(shardings, len(self.program.out_avals)))

    def _for_users(self, shardings: list[runtime.MeshSharding] | None, count: int) -> list[Sharding]:
        """Return the shardings of `count` leaves in the form for users. None: all are on the device of the program."""
        if shardings is None:
            return [SingleDeviceSharding(self._loaded.device)] * count
        return [named_sharding_of(s) for s in shardings]

    def text(self) -> str:
        """Return the optimised HLO. A plan of several units has one section per unit, which begins with a comment."""
        return self._loaded.hlo()

    def memory(self) -> MemoryStats:
        """Return bytes of arguments, results, aliases, temporaries and the peak, as planned by XLA."""
        return self._loaded.memory()

    def cost(self) -> CostStats:
        """Return flops, bytes accessed and transcendentals, as estimated by XLA."""
        return self._loaded.cost()

    # ------------------------------------------------------------------------------------------------- JAX's names

    def as_text(self) -> str:
        """Return `text()`."""
        return self.text()

    def cost_analysis(self) -> dict[str, float]:
        """Return `cost()` by JAX's keys."""
        cost = self.cost()
        return {
            "flops": cost.flops,
            "bytes accessed": cost.bytes_accessed,
            "transcendentals": cost.transcendentals,
        }

    def memory_analysis(self) -> CompiledMemoryStats:
        """Return `memory()` by JAX's names."""
        m = self.memory()
        return CompiledMemoryStats(
            m.argument_bytes, m.output_bytes, m.alias_bytes, m.temp_bytes, m.generated_code_bytes, m.peak_bytes
        )

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
