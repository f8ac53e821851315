"""`bisect`: where two runs of a program first differ. Passes first, then units, then equations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.api.reference import interpret
from fxad.core import interpreter
from fxad.core.passes import Pass
from fxad.diagnosis.bisect.child import TIME_LIMIT, check_for_child, program_of, runs_alone
from fxad.diagnosis.bisect.closeness import Mismatch, differ_in_bits
from fxad.diagnosis.bisect.counterparts import unmatched
from fxad.diagnosis.bisect.divergence import Divergence
from fxad.diagnosis.bisect.equations import EquationSearch, Found, closeness_for, first_true, in_dtypes, is_of, judge
from fxad.diagnosis.bisect.sides import ChildSide, CompiledSide, Failure, InProcess, Interpreted, Side, failure_of
from fxad.diagnosis.record.replay import RecordedCall
from fxad.errors import ArgumentError, DTypeError, ExecutionError, ParameterError, described, shown
from fxad.execution.executable import Executable, Lowered
from fxad.ir import Jaxpr, NDArray
from fxad.passes import BEFORE_COMPILATION, Passes, check_passes, plan_of, run_passes
from fxad.runtime import DEFAULT_OPTIONS, CompileOptions, Device, check_options
from fxad.support.progress import Progress
from fxad.tracing.program import CompileChoices, Program, numpy_operands, specialize_to_types
from fxad.transforms.locate import describe, lines_of
from fxad.units.plan import UnitPlan

Bisected: TypeAlias = "Program[..., Any] | Lowered[..., Any] | Executable[..., Any] | RecordedCall | Jaxpr"

_SECONDS: Final = 60.0  # time limit for a recorded call that ended its process
_REFERENCES: Final = (
    "give fx.interpret, fx.CompileOptions, a tuple of passes, a device, a floating dtype such as 'float64', or another"
    " program of the same types"
)


def bisect(
    subject: Bisected,
    /,
    *args: object,
    reference: object = interpret,
    options: CompileOptions | None = None,
    passes: Passes | None = None,
    tolerance: float | None = None,
    time_limit: float | None = None,
    **kwargs: object,
) -> Divergence | None:
    """Return where the results of a compiled program first differ from those of a reference; None if they agree.

    `subject` is the program: a `Program` and its arguments, a recorded call, which has its arguments, or a `Lowered` or
    an `Executable`, whose units, passes and options are used. `passes` and `options` replace them. `reference` is what
    the program is compared with:

        interpret            the interpreter
        CompileOptions       the program compiled with other options
        a tuple of passes    the program compiled with another pipeline
        a Device             the program on another device
        "float64"            the interpreter with floating values of this dtype
        a Program, Lowered   another version of the program, of the same types

    The search asks first which pass changes the results of the interpreter, then which unit of the plan has other
    results than its interpretation, then which equation, also in bodies. Passes and equations are found by bisection. A
    program that is compared is compiled, so a search takes about log2(equations) compilations.

    `tolerance` is relative to the elements; by default the square root of the spacing of the dtype, 3.5e-4 for float32;
    0 compares bits. With `time_limit`, in seconds, the program runs in child processes: a crash and a hang are
    differences like others. On an interruption (Ctrl-C) after the first difference, what is known so far is returned,
    with `interrupted` True. On a terminal, a bar shows the runs.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> program = fx.trace(lambda x: (x + 1e8) - 1e8, fx.Spec(()))
    >>> divergence = fx.bisect(program, 0.25, reference="float64")
    >>> divergence.equation
    '%1:f32[] = sub %0:f32[] 100000000.0:f32[]'

    Raises: what a call raises for arguments that do not fit, and what the reference raises; ArgumentError for another
            subject, for a reference that is none of these, for arguments of a recorded call, and for a program with a
            time limit that no other process can run; ExecutionError if neither the program nor the reference ends
            within the time limit; ParameterError for a tolerance or a time limit that is no number.
    """
    _check_number("tolerance", tolerance)
    _check_number("time_limit", time_limit)
    jaxpr, operands, n_bound, choices = _subject(subject, args, kwargs)
    if isinstance(subject, RecordedCall) and subject.ended_process and time_limit is None:
        time_limit = _SECONDS
    if time_limit is not None:
        check_for_child(jaxpr)
    if options is not None:
        check_options("bisect", options)
        choices = choices._replace(options=options)
    if passes is not None:
        check_passes("bisect", passes)
        choices = choices._replace(passes=passes)
    side, other = _reference_side(reference, jaxpr, operands, n_bound, choices)
    return _Bisection(jaxpr, operands, choices, side, other, tolerance, time_limit).divergence()


_Version: TypeAlias = tuple[Jaxpr, list[NDArray]]  # another version of the program, and its operands


@final
class _Bisection:
    """A bisection: the program, its operands, the two sides, and the other version of the program if there is one."""

    def __init__(
        self,
        jaxpr: Jaxpr,
        operands: list[NDArray],
        choices: CompileChoices,
        reference: InProcess,
        other: _Version | None,
        tolerance: float | None,
        time_limit: float | None,
    ) -> None:
        self.jaxpr, self.operands, self.choices, self.tolerance = jaxpr, operands, choices, tolerance
        self.close = closeness_for(tolerance, operands)
        compiled = CompiledSide(choices)
        self.candidate = compiled if time_limit is None else ChildSide(compiled, time_limit)
        self.reference, self.other = reference, other
        # the report of an interrupted search
        self.so_far = replace(_whole(jaxpr, operands), candidate=self.candidate.name, reference=self.reference.name)

    # ------------------------------------------------------------------------------------------------- the stages

    def divergence(self) -> Divergence | None:
        """Return where the sides first differ."""
        if self.other is not None:
            versions = self._between(*self.other, self.jaxpr)
            if versions is not None:
                return replace(versions, candidate="the program", reference="the other program")
        with Progress(f"bisecting {self.jaxpr.name}", unit=" runs") as bar:
            search = EquationSearch(self.candidate, self.reference, self.tolerance, bar)
            whole = self._compare_whole(search)
            if whole is None:
                return None
            self.so_far = _with_outcome(self.so_far, whole)
            try:
                found = self._in_passes(self.choices, "compiled")
                if found is None and isinstance(self.reference, CompiledSide):
                    found = self._in_passes(self.reference.choices, "the reference")
                return found or self._in_units(search, whole)
            except KeyboardInterrupt:
                return replace(self.so_far, runs=search.runs, interrupted=True)

    def _compare_whole(self, search: EquationSearch) -> Mismatch | Failure | None:
        """Return the difference of the whole program. Raises: ExecutionError if neither side ends within the limit."""
        if not isinstance(self.candidate, ChildSide):
            return search.compare(self.jaxpr, self.operands)
        search.runs += 1
        outcome = self.candidate.run(self.jaxpr, self.operands)
        seconds = self.candidate.seconds
        if isinstance(outcome, Failure) and outcome.kind == TIME_LIMIT and not self._reference_ends(seconds):
            raise ExecutionError(
                f"bisect: {self.jaxpr.name} takes more than {seconds:g} s, {self.candidate.side.name} and"
                f" {self.reference.name}: the sides do not differ in that",
                remedy="give a larger time_limit, or arguments for which its loops end",
            )
        return judge(search.expected(self.jaxpr, self.operands), outcome, self.close)

    def _reference_ends(self, seconds: float) -> bool:
        """Return True if the reference ends within some seconds."""
        if isinstance(self.reference, CompiledSide):
            found = ChildSide(self.reference, seconds).run(self.jaxpr, self.operands)
            return not isinstance(found, Failure) or found.kind != TIME_LIMIT
        dtype = self.reference.dtype if isinstance(self.reference, Interpreted) else None
        try:
            Interpreted(dtype, seconds).results(self.jaxpr, self.operands)
        except TimeoutError:
            return False
        return True

    def _in_passes(self, choices: CompileChoices, side: str) -> Divergence | None:
        """Return the pass after which the interpreter has other results, and the equation; None if no pass changes
        them."""
        passes, programs = _passes_of(self.jaxpr, choices), [self.jaxpr]
        for p in passes:
            try:
                programs.append(run_passes(programs[-1], (p,)))
            except Exception as e:  # noqa: BLE001  a pass of the user
                failed = replace(_whole(programs[-1], self.operands), failure=str(failure_of(e)))
                return self._named(failed, p, side, programs[-1])
        expected = interpreter.run(self.jaxpr, self.operands)

        def differs(k: int) -> bool:
            return self.close.first(expected, interpreter.run(programs[k], self.operands)) is not None

        if len(programs) == 1 or not differs(len(passes)):
            return None
        k = first_true(differs, 0, len(passes))
        found = self._between(programs[k - 1], self.operands, programs[k])
        return None if found is None else self._named(found, passes[k - 1], side, programs[k - 1])

    def _named(self, found: Divergence, p: Pass, side: str, before: Jaxpr) -> Divergence:
        """Return the report of a pass, with the program before it."""
        return replace(
            found,
            candidate=f"{side}: the program after the pass",
            reference="the program before it",
            stage="pass",
            stage_name=p.name,
            program=before,
            operands=tuple(self.operands),
            call=_pass_code(p),
        )

    def _between(self, before: Jaxpr, operands: list[NDArray], after: Jaxpr) -> Divergence | None:
        """Return the equation of a program whose value another program does not have, on operands of its own; None if
        their results agree."""
        expected = interpreter.run(before, operands)
        mismatch = self.close.first(expected, interpreter.run(after, self.operands))
        if mismatch is None:
            return None
        report = replace(
            _whole(after, self.operands), expected=mismatch.expected, actual=mismatch.actual, at=mismatch.at
        )
        found = unmatched((after, self.operands), (before, operands), self.close, mismatch.result)
        if found is None:
            return report
        local = None if found.expected is None else self.close.compare(0, found.expected, found.actual)
        return replace(
            report,
            equation=describe(found.eqns[-1]),
            lines=lines_of(found.eqns),
            inside=found.inside,
            values=found.operands,
            expected=found.expected,
            actual=found.actual,
            at=() if local is None else local.at,
        )

    def _in_units(self, search: EquationSearch, whole: Mismatch | Failure) -> Divergence:
        """Return the unit and the equation at which the compiled program differs."""
        kind = whole.kind if isinstance(whole, Failure) else None
        units, passes, options = self.choices
        plan = plan_of(self.jaxpr, units, options.donate, passes)
        candidate = self.candidate.as_one
        reference = self.reference.as_one if isinstance(self.reference, CompiledSide) else self.reference
        search.take_sides(candidate, reference)
        report = replace(_whole(self.jaxpr, self.operands), candidate=candidate.name, reference=reference.name)
        report = _with_outcome(report, whole)
        if len(plan.steps) <= 1:
            alone = search.find(plan.units[0].body, self.operands, kind)
            if alone is None:
                return replace(report, stage="program", runs=search.runs)
            return self._of_equations(search, alone, "equation", "")
        values = self._values_of_steps(search, plan)
        expected = interpreter.run(self.jaxpr, self.operands)
        mismatch = self.close.first(expected, [values[k] for k in plan.outs])
        if mismatch is not None:
            report = _with_outcome(report, mismatch)
            return replace(report, stage="link", stage_name=f"the plan of {plan.name}", runs=search.runs)
        k = self._step(search, plan, values, kind)
        if k is None:
            return replace(report, stage="link", stage_name="each unit agrees alone", runs=search.runs)
        number = plan.steps[k].unit
        jaxpr = plan.units[number].body
        name = f"{number} of {len(plan.units)}, {jaxpr.name}, at step {k} of {len(plan.steps)}"
        self.so_far = replace(self.so_far, stage="unit", stage_name=name)
        found = search.find(jaxpr, _operands_of(plan, k, values), kind)
        if found is None:
            return replace(report, stage="unit", stage_name=name, runs=search.runs)
        return self._of_equations(search, found, "unit", name)

    def _of_equations(self, search: EquationSearch, found: Found, stage: str, stage_name: str) -> Divergence:
        """Return the report of the equations at which the sides of a search differ."""
        candidate, reference = search.candidate, search.reference
        report = Divergence(
            candidate=candidate.name,
            reference=reference.name,
            stage=stage,
            stage_name=stage_name,
            equation=describe(found.eqns[-1]),
            lines=lines_of(found.eqns),
            inside=found.inside,
            program=found.jaxpr,
            operands=found.operands,
            alone=found.alone,
            runs=search.runs,
            call=_sides_code(candidate, reference, self.tolerance) if found.alone and runs_alone(found.jaxpr) else None,
        )
        outcome = found.failure or found.mismatch
        return report if outcome is None else _with_outcome(report, outcome)

    def _values_of_steps(self, search: EquationSearch, plan: UnitPlan) -> list[NDArray]:
        """Return the values of all slots of a plan: each unit runs on the values of the reference."""
        values = [*self.operands, *[np.asarray(c.array) for c in plan.constants]]
        for k, step in enumerate(plan.steps):
            values.extend(search.expected(plan.units[step.unit].body, _operands_of(plan, k, values)))
        return values

    def _step(self, search: EquationSearch, plan: UnitPlan, values: Sequence[NDArray], kind: str | None) -> int | None:
        """Return the first step of a plan whose unit differs on the values of the reference; None if each agrees."""
        runs = [(plan.units[s.unit].body, _operands_of(plan, k, values)) for k, s in enumerate(plan.steps)]
        search.runs += 1
        at = len(values) - sum([len(body.outs) for body, _ in runs])
        for k, outcome in enumerate(search.candidate.run_all(runs)):
            expected = values[at : at + len(runs[k][0].outs)]
            at += len(expected)
            if is_of(kind, judge(expected, outcome, self.close)):
                return k
        return None


def _reference_side(
    reference: object, jaxpr: Jaxpr, operands: list[NDArray], n_bound: int, choices: CompileChoices
) -> tuple[InProcess, _Version | None]:
    """Return the side of a reference, and the other version of the program if it is one."""
    match reference:
        case _ if reference is interpret:
            return Interpreted(), None
        case CompileOptions():
            return CompiledSide(choices._replace(options=reference), label="compiled with the other options"), None
        case Device():
            return CompiledSide(choices, reference, f"compiled for {reference}"), None
        case tuple():
            check_passes("bisect: reference", reference)
            return CompiledSide(choices._replace(passes=reference), label="compiled with the other passes"), None
        case str() | np.dtype() | dtypes.ScalarType():
            return Interpreted(_floating(reference)), None
        case Program() | Lowered() | Executable() | Jaxpr():
            program, its_choices = _choices(reference)
            other, its_operands = _version(program, jaxpr, operands, n_bound)
            if other is jaxpr and not any(map(differ_in_bits, its_operands, operands)):
                return CompiledSide(its_choices, label="compiled as the other"), None
            return Interpreted(), (other, its_operands)
        case _:
            raise ArgumentError(
                f"bisect: the reference is {described(reference)}: {shown(reference)}", remedy=_REFERENCES
            )


def _version(program: Program[..., Any] | Jaxpr, jaxpr: Jaxpr, operands: list[NDArray], n_bound: int) -> _Version:
    """Return another version of a program for its arguments, with the arrays that the version itself closes over.

    A `Jaxpr` takes all operands: the arrays that the program closes over too.
    """
    other = program if isinstance(program, Jaxpr) else program.jaxpr
    its_operands, avals, outs = operands, jaxpr.in_avals, jaxpr.out_avals
    if isinstance(program, Program) and len(program.in_avals) == len(operands) - n_bound:
        its_operands, avals = [*map(np.asarray, program.bound), *operands[n_bound:]], avals[n_bound:]
        of_same_rank = [a.ndim == b.ndim for a, b in zip(program.in_avals, avals, strict=True)]
        if other.symbolic and all(of_same_rank):
            other = specialize_to_types(program, avals)
        avals = (*other.in_avals[: len(program.bound)], *avals)
    if (other.in_avals, other.out_avals) != (avals, outs):
        raise ArgumentError(
            f"bisect: the reference has the type {_signature(other)}, the program {_signature(jaxpr)}",
            remedy="give a version of the program that takes and returns the same types",
        )
    return other, its_operands


def _operands_of(plan: UnitPlan, step: int, values: Sequence[NDArray]) -> list[NDArray]:
    """Return the operands of a step of a plan, in the dtypes of its unit."""
    call = plan.steps[step]
    avals = plan.units[call.unit].body.in_avals
    return in_dtypes([values[k] for k in call.ins], avals)


def _whole(jaxpr: Jaxpr, operands: Sequence[NDArray]) -> Divergence:
    """Return the report of a whole program."""
    return Divergence(stage="program", program=jaxpr, operands=tuple(operands))


def _with_outcome(report: Divergence, found: Mismatch | Failure) -> Divergence:
    if isinstance(found, Failure):
        return replace(report, failure=str(found))
    return replace(report, expected=found.expected, actual=found.actual, at=found.at)


def _passes_of(jaxpr: Jaxpr, choices: CompileChoices) -> Passes:
    """Return the passes that run on a program before it is compiled with some choices."""
    if choices.passes is not None:
        return choices.passes
    several = choices.units == "auto" and len(plan_of(jaxpr, "auto", choices.options.donate).steps) > 1
    return BEFORE_COMPILATION if several else ()


# ------------------------------------------------------------------------------------------------------ the arguments


def _check_number(name: str, value: float | None) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
        raise ParameterError(
            f"bisect: {name} is {shown(value)}, not a number >= 0", remedy="leave it out for the default"
        )


def _choices(subject: object) -> tuple[Program[..., Any] | Jaxpr, CompileChoices]:
    """Return the program of a subject, and how it is compiled."""
    match subject:
        case Jaxpr():
            return subject, CompileChoices()
        case Program():
            return subject, CompileChoices("auto")
        case Lowered():
            return subject.program, CompileChoices(
                subject.choice, subject.passes, replace(DEFAULT_OPTIONS, donate=subject.donate)
            )
        case Executable():
            return subject.program, subject.choices
        case RecordedCall():
            return subject.program, subject.options.choices(subject.program.jaxpr, subject.passes)
        case _:
            raise ArgumentError(
                f"bisect: {described(subject)} is no program: {shown(subject)}",
                remedy="give a Program and its arguments: fx.bisect(fx.trace(f, *args), *args); or a call of fx.replay",
            )


def _subject(
    subject: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[Jaxpr, list[NDArray], int, CompileChoices]:
    """Return the program, its operands, the number of those that it closes over, and how it is compiled."""
    program, choices = _choices(subject)
    if isinstance(subject, RecordedCall):
        if args or kwargs:
            raise ArgumentError(
                "bisect: arguments are given, and the recorded call has its own",
                remedy="leave them out; or give call.program and other arguments",
            )
        args, kwargs = subject.args, dict(subject.kwargs)
    if isinstance(program, Jaxpr):
        program = program_of(program)
    return *numpy_operands(program, args, kwargs), len(program.bound), choices


def _floating(name: object) -> dtypes.DType:
    """Return the floating dtype of a reference. Raises: DTypeError for another one."""
    dtype = dtypes.as_dtype(name)
    if dtype not in dtypes.FLOATING:
        raise DTypeError(
            f"bisect: the reference is {dtype.name}, not a floating dtype", remedy="give 'float64' or 'float32'"
        )
    return dtype


def _signature(jaxpr: Jaxpr) -> str:
    ins, outs = [", ".join(map(str, avals)) for avals in (jaxpr.in_avals, jaxpr.out_avals)]
    return f"({ins}) -> ({outs})"


# --------------------------------------------------------------------------------------------------------- the test


def _sides_code(candidate: Side, reference: InProcess, tolerance: float | None) -> str:
    """Return the keyword arguments of `bisect` for two sides, as code; empty if each has its default."""
    compiled = candidate.side if isinstance(candidate, ChildSide) else candidate
    assert isinstance(compiled, CompiledSide)
    words = [] if compiled.choices.options == DEFAULT_OPTIONS else [f"options={_options_code(compiled)}"]
    words += [f"time_limit={candidate.seconds!r}"] if isinstance(candidate, ChildSide) else []
    words += [] if tolerance is None else [f"tolerance={tolerance!r}"]
    if isinstance(reference, CompiledSide):
        if reference.device is not None:
            words.append(f"reference=device({reference.device.platform!r}, {reference.device.id})")
        else:
            words.append(f"reference={_options_code(reference)}")
    elif isinstance(reference, Interpreted) and reference.dtype is not None:
        words.append(f"reference={reference.dtype.name!r}")
    return ", ".join(["", *words])


def _options_code(side: CompiledSide) -> str:
    options = side.choices.options
    words = [] if options.optimization_level is None else [f"optimization_level={options.optimization_level}"]
    words += [f"flags={options.flags!r}"] if options.flags else []
    return f"fx.CompileOptions({', '.join(words)})"


def _pass_code(p: Pass) -> str | None:
    """Return the keyword arguments of `bisect` for a pass that another process can import, as code; else None.

    The code begins with a comma, since it follows the program in a call. A slice of a slice is a tuple of one pass.
    """
    if p in BEFORE_COMPILATION:
        return f", reference=fx.interpret, passes=fx.passes.BEFORE_COMPILATION[{BEFORE_COMPILATION.index(p)}:][:1]"
    function = p.function
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "<")
    if module in ("", "__main__") or not name.isidentifier():
        return None
    return f", passes=(fx.passes.Pass({p.name!r}, importlib.import_module({module!r}).{name}),)"
