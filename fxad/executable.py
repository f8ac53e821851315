"""What a program becomes: `Lowered`, StableHLO as a value, and `Executable`, which runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar, final

from fxad import runtime, tree
from fxad.array import DEFAULT_OPTIONS, Array, arrays, aval_of, put
from fxad.donation import Donate, Donating, asked, check_operands, of_program
from fxad.errors import ArgumentError, ExecutionError, ParameterError
from fxad.exported import export
from fxad.ir import Aval, Jaxpr
from fxad.lower import LoweredModule, lower_jaxpr
from fxad.placement import Elsewhere, Passing, check_device, committed, passed, target
from fxad.program import Program, fit, tree_error
from fxad.records import dataclass
from fxad.runtime import CompileOptions, CostStats, MemoryStats, Results, Start, commitments
from fxad.trace import Tracer, active
from fxad.units.blocks import Predicate, chosen
from fxad.units.plan import Choice, Plan, plan_of

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

    @property
    def module(self) -> LoweredModule:
        """StableHLO of the whole program, as a value."""
        return lower_jaxpr(self.program.jaxpr)

    @property
    def units(self) -> Plan:
        """The plan: what is compiled, once each, and the steps that call it. Its `str` is a table."""
        return plan_of(self.program.jaxpr, self.choice, self.donate)

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
        load = partial(load_linked, self.program.jaxpr, self.choice, replace(options, donate=operands))
        if device is not None:
            check_device(f"compile of {self.program.name}", device)
        return Executable(self.program, load, operands, device)

    def export(self, *, platforms: str | Sequence[str] | None = None, version: str | None = None) -> bytes:
        """The program as bytes in the portable form of StableHLO; `fx.load_exported` runs them, in any process, whole.

        `platforms` are those that it may run on (without: all that it can); `version` is of StableHLO (without: one
        that jaxlibs of the last twelve weeks read).

        Raises: ArgumentError for calls of the host; ParameterError for a platform or a version that cannot be.
        """
        return export(self.program, donate=self.donate, platforms=platforms, version=version)

    def __str__(self) -> str:
        return self.text()


def lower(program: Program[P, R], units: Units = "auto") -> Lowered[P, R]:
    """Lower a program to StableHLO: a pure function of the program, one function per distinct sub-program.

    `units` decides which calls are compiled apart, once each: "auto", by the cost rule of `fxad.units.blocks`, of calls
    and stretches of equations that repeat; a predicate of the body of a call (a `Jaxpr`), of the calls that there are;
    or "none": the program is compiled whole.

    Law: the results do not depend on `units` but for rounding: XLA does not fuse across the border of a unit.
    """
    if not isinstance(program, Program):
        raise ArgumentError(
            f"lower: takes a Program, got {program!r}", remedy="trace the function first: lower(trace(f, *examples))"
        )
    return Lowered(program, choice=choice_of(program.jaxpr, units))


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


def load_linked(jaxpr: Jaxpr, choice: Choice, options: CompileOptions, device: runtime.Device) -> runtime.Runnable:
    """The executable of a program on a device; its units are from the cache in force."""
    plan = plan_of(jaxpr, choice, options.donate)
    if len(plan.steps) > 1:
        runtime.cache_in_force().hold_planned(jaxpr)
    return runtime.link(plan, device, options)


@final
class Executable(Generic[P, R_co]):
    """A compiled program. Takes NumPy arrays, Python scalars, fxad arrays and anything with `__dlpack__`.

    Rule:   arguments must have exactly the types of the program; nothing is converted silently.
    Cost:   a call returns before the work is done.
    Raises: TreeError, ShapeError, DTypeError, ArgumentError naming the argument's path; ExecutionError.
    """

    __slots__ = (
        "_avals", "_bound", "_donate", "_flat", "_handlers", "_load", "_loaded", "_out_avals", "_passed", "_start",
        "_there", "_unflatten", "program",
    )  # fmt: skip

    def __init__(
        self,
        program: Program[P, R_co],
        load: Callable[[runtime.Device], runtime.Runnable],
        donate: tuple[int, ...] = (),
        device: runtime.Device | None = None,
    ) -> None:
        self.program = program
        self._load, self._donate = load, donate
        self._loaded = load(device or runtime.default_device())
        self._passed = passed(program.jaxpr, len(program.bound)) if not donate else None
        self._start: Start = self._free
        self._handlers = self._loaded.handlers
        if self._loaded.device is runtime.default_device() or self._passed is not None:
            self._start_with(self._loaded)
        self._there: dict[runtime.Device, Elsewhere] = {}  # devices on which it has run
        self._avals = program.in_avals
        self._out_avals = program.out_avals
        self._bound = [(b if isinstance(b, Array) else put(b, aval_of(b)))._buffer for b in _values(program)]
        self._flat = program.in_tree == tree.structure((tuple([0] * len(self._avals)), {}))
        self._unflatten: Callable[[Any], Any] | None = program.out_tree.unflatten
        if program.out_tree == _LEAF:
            self._unflatten = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        if self._flat and not kwargs:
            try:
                avals = tuple(map(aval_of_array, args))
            except AttributeError:
                avals = ()
            if avals == self._avals:  # `launch`, spelled out: a call costs 4 us, a Python function 0.1
                buffers = [*self._bound, *map(_buffer_of, args)]
                try:
                    if commitments.any and True in map(committed, buffers):
                        outs = self._placed(buffers)
                    else:
                        outs = self._start(buffers).consume_with_handlers(self._handlers)
                except runtime.Refused as e:
                    raise self._refused(e, buffers) from e
                if self._unflatten is None:
                    made = _new(Array)
                    made._aval, made._buffer = self._out_avals[0], outs[0]
                    return made  # type: ignore[return-value]
                return self._unflatten(arrays(self._out_avals, outs))  # type: ignore[no-any-return]
        leaves = self.match(args, kwargs)
        if leaves is not None:
            return self.launch(leaves)
        leaves, found = tree.flatten((args, kwargs))
        if found != self.program.in_tree:
            raise tree_error(self.program, found, len(args), kwargs)
        return self.run(leaves, type_of_arrays(leaves))

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Types of the argument leaves."""
        return self._avals

    def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """The leaves of a call whose tree is the program's and whose leaves are Arrays of its types; else None.

        Following a known structure is 7 times as fast as finding one (100 leaves in a dict: 3 us).
        """
        leaves = tree.follow(self.program.in_tree, (args, kwargs))
        return leaves if leaves is not None and type_of_arrays(leaves) == self._avals else None

    def run(self, leaves: Sequence[Any], avals: tuple[Aval, ...] | None) -> R_co:
        """Call with the argument leaves; `avals` are their types, known when all are Arrays (`type_of_arrays`)."""
        if avals != self._avals:
            leaves = [self._convert(k, x, a) for k, (x, a) in enumerate(zip(leaves, self._avals, strict=True))]
        return self.launch(leaves)

    def launch(self, leaves: Iterable[Array]) -> R_co:
        """Call with Arrays of exactly the types of the program."""
        buffers = [*self._bound, *map(_buffer_of, leaves)]
        try:
            if commitments.any and True in map(committed, buffers):
                outs = self._placed(buffers)
            else:
                outs = self._start(buffers).consume_with_handlers(self._handlers)
        except runtime.Refused as e:
            raise self._refused(e, buffers) from e
        if self._unflatten is None:
            made = _new(Array)
            made._aval, made._buffer = self._out_avals[0], outs[0]
            return made  # type: ignore[return-value]
        return self._unflatten(arrays(self._out_avals, outs))  # type: ignore[no-any-return]

    def _free(self, buffers: Sequence[runtime.Buffer]) -> Results:
        """The first execution on data that is free to move, of a program compiled for another device."""
        self._start_with(self._load(runtime.default_device()))
        return self._start(buffers)

    def _start_with(self, loaded: runtime.Runnable) -> None:
        """What runs on the default device. A call looks at `_start`, and at `_handlers` when that has returned."""
        self._handlers = loaded.handlers
        self._start = Passing(self._passed) if self._passed is not None else self._around(loaded.start)

    def _around(self, start: Start) -> Start:
        return Donating(start, self._donate, self.program.name, self._path) if self._donate else start

    def _placed(self, buffers: list[runtime.Buffer]) -> list[runtime.Buffer]:
        """The results where the committed operands are, committed."""
        if self._passed is not None:
            return self._start(buffers).consume_with_handlers(self._handlers)
        device = target(self.program.name, buffers, self._path)
        there = self._there.get(device)
        if there is None:
            loaded = self._loaded if device is self._loaded.device else self._load(device)
            there = Elsewhere(loaded, self._bound)
            there.start = self._around(there.start)
            self._there[device] = there
        return there.start(buffers).consume_with_handlers(there.handlers)

    def _convert(self, k: int, value: object, aval: Aval) -> Array:
        if isinstance(value, Tracer):
            if active() is None:
                raise value.leaked(
                    f"{self.program.name}: argument {self.program.paths[k]}", "a compiled program wants values"
                )
            raise ArgumentError(
                f"{self.program.name}: argument {self.program.paths[k]} is {value!r}; a compiled program is not traced",
                remedy="call the Program, or the function, inside a trace; compile the outer program",
            )
        leaf = fit(self.program, k, value, aval)
        return leaf if isinstance(leaf, Array) else put(leaf, aval)

    def _refused(self, e: Exception, buffers: Sequence[runtime.Buffer]) -> ExecutionError:
        origin = replace(self._loaded.origin, name=self.program.name)
        return runtime.refused(e, buffers, origin, self._path)

    def _path(self, operand: int) -> str:
        """An operand in the user's words."""
        k = operand - len(self._bound)
        return f"argument {self.program.paths[k]}" if k >= 0 else f"closed-over array {operand}"

    def memory(self) -> MemoryStats:
        """Bytes of arguments, results, aliases, temporaries and the peak, as XLA planned them."""
        return runtime.memory(self._loaded)

    def cost(self) -> CostStats:
        """Flops, bytes accessed and transcendentals, as XLA counts them."""
        return runtime.cost(self._loaded)

    def __repr__(self) -> str:
        return f"<Executable {self.program.name}>"


_LEAF: Final = tree.structure(0)
_new: Final = object.__new__  # without the frame of `__init__`

# The hot path of a call loops in C: over 100 leaves that is 3 us instead of 15.
aval_of_array: Final = attrgetter("_aval")
_buffer_of: Final = attrgetter("_buffer")


def type_of_arrays(leaves: Sequence[Any]) -> tuple[Aval, ...] | None:
    """The types of leaves that are all Arrays with a value; None if any is something else."""
    try:
        return tuple(map(aval_of_array, leaves))
    except AttributeError:
        return None


def _values(program: Program[Any, Any]) -> tuple[object, ...]:
    for b in program.bound:
        if isinstance(b, Tracer):
            raise ArgumentError(
                f"compile: {program.name} closes over {b!r} of an enclosing trace",
                remedy="call the program inside that trace instead, and compile the outer one",
            )
    return program.bound
