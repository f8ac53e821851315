"""`reduce_program`: the smallest program that fails for the same reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec

import numpy as np

from fxad.api.lift import check_program
from fxad.diagnosis.reduce.candidate import Candidate, equations
from fxad.diagnosis.reduce.reading import lines_by_operation
from fxad.diagnosis.reduce.reduced import Reduced, reduced
from fxad.diagnosis.reduce.search import OutOfTimeError, Raised, ReductionSearch, outcome
from fxad.errors import ArgumentError, ExecutionError, FxadError, described, shown
from fxad.ir import Jaxpr, NDArray
from fxad.operations.arguments import function, number
from fxad.support.progress import Progress
from fxad.tracing.program import Program, flatten_arguments
from fxad.tracing.tracer import Tracer

P = ParamSpec("P")


def reduce_program(
    program: Program[P, Any] | Jaxpr,
    fails: Callable[[Any, Any], Hashable],
    args: object = None,
    budget_s: float = 60,
) -> Reduced[..., Any]:
    """Return the smallest program that is found for which `fails(program, args)` returns the same reason.

    `fails` returns the reason for which a program fails with arguments, or None if it does not fail. A reason is a
    text, a class, a signal, or a tuple of such values. A program that fails for another reason, or for which `fails`
    raises, is not taken. `args` is the tuple of the arguments; without it, `fails` gets None. The smaller programs take
    NumPy arrays by position, and return one array or a tuple of several.

    The steps drop results and equations, replace values by operands, literals or other values, make a body the program,
    take a branch, replace a loop by one or two of its steps, shrink bodies, shapes, dtypes and parameters, and make the
    values of operands plainer. Each program that is tried is well typed. The result is 1-minimal: no step makes it
    smaller. It is the same in every run, unless the budget ends the search: `budget_s` seconds after the calls of
    `fails` for the whole program. A call of `fails` is not interrupted when the budget is spent:
    `fxad.testing.in_child` has a time limit, and survives a crash.

    The result is a `Program` with `args`, `reason`, `minimal`, and `as_test(path)`, which writes a test for pytest. On
    an interruption (Ctrl-C), the smallest program so far is returned, with `stopped == "interrupted"`. On a terminal, a
    bar shows the number of equations so far and of programs that were tried.

    >>> import fxad as fx, fxad.numpy as fnp, numpy as np
    >>> def fails(program, args):
    ...     return "nan" if np.isnan(fx.interpret(program, *args)).any() else None
    >>> program = fx.trace(lambda x: fnp.sum(fnp.exp(x) + fnp.log(fnp.sin(x))) * 2, fx.Spec((3,)))
    >>> print(fx.reduce_program(program, fails, (np.array([0.5, 4.0, 1.0], "float32"),)))
    main @"<lambda>"() -> (f32[]) {
      %0: f32[] = log -1.0:f32[]  # <doctest fxad.diagnosis.reduce.reduce_program.reduce_program[2]>:1 in <lambda>
      return %0
    }
    # fails: nan
    # 1 of 6 equations
    <BLANKLINE>

    Raises: ArgumentError for what is not a program, for arguments that do not fit it, for a program inside of a trace,
            for a `budget_s` that is not a positive number, and for a `fails` that raises, does not fail, returns no
            reason, or returns two reasons in two calls at the start.
    """
    whole: Program[..., Any]
    whole = Candidate(program, (None,) * len(program.ins)).program() if isinstance(program, Jaxpr) else program
    check_program("reduce_program", whole, ", fails, args")
    function("reduce_program", "fails", fails)
    budget = number("reduce_program", "budget_s", budget_s)
    if not budget > 0:
        raise ArgumentError(
            f"reduce_program: budget_s is {shown(budget_s)}", remedy="give a positive number of seconds"
        )
    start = _candidate(whole, args)
    reason = _reason(fails, whole, args, start)
    stopped = "minimal"
    with Progress("reducing", unit=" programs") as bar:
        search = ReductionSearch(fails, reason, start, time.monotonic() + budget, bar)
        try:
            search.search()
        except OutOfTimeError:
            stopped = "budget"
        except KeyboardInterrupt:
            stopped = "interrupted"
    return reduced(
        search.best,
        reason=reason,
        stopped=stopped,
        attempts=search.attempts,
        before=equations(whole.jaxpr),
        fails=fails,
        lines=lines_by_operation(whole.jaxpr),
    )


def _candidate(program: Program[..., Any], args: object) -> Candidate:
    """Return the whole program with its operands. Raises: ArgumentError."""
    for x in program.bound:
        if isinstance(x, Tracer):
            raise ArgumentError(
                f"reduce_program: {program.name} closes over {x!r} of an enclosing trace",
                remedy="reduce the program of the whole function",
            )
    bound: list[NDArray | None] = [np.asarray(x) for x in program.bound]
    n = len(program.in_avals)
    if args is None:
        return Candidate(program.jaxpr, (*bound, *[None] * n), len(bound), False)
    if not isinstance(args, tuple | list):
        raise ArgumentError(
            f"reduce_program: args is {described(args)}, not the tuple of the arguments: {shown(args)}",
            remedy="give reduce_program(program, fails, (x, y)), or no args at all",
        )
    if program.kwargs_tree.num_leaves:
        kwargs = ", ".join(sorted(program.kwargs_tree.entries()))
        raise ArgumentError(
            f"reduce_program: {program.name} takes the keyword arguments {kwargs}",
            remedy="trace it with positional arguments: fx.trace(lambda x, y: program(x, name=y), x, y)",
        )
    leaves = flatten_arguments(program, tuple(args), {})
    return Candidate(program.jaxpr, (*bound, *[np.asarray(x) for x in leaves]), len(bound))


def _reason(
    fails: Callable[[Any, Any], Hashable], program: Program[..., Any], args: object, start: Candidate
) -> Hashable:
    """Return the reason for which the whole program fails. Raises: ArgumentError."""
    given = tuple(args) if isinstance(args, list | tuple) else args
    reasons = [outcome(fails, program, given) for _ in range(2)]
    flat = start.program()
    if (flat.in_tree, flat.out_tree) != (program.in_tree, program.out_tree):
        reasons.append(outcome(fails, flat, None if args is None else start.args))
    for found in reasons:
        if isinstance(found, Raised):
            text = found.error.message if isinstance(found.error, FxadError) else str(found.error)
            its_remedy = found.error.remedy if isinstance(found.error, ExecutionError) else ""  # as of `in_child`
            raise ArgumentError(
                f"reduce_program: fails raised {type(found.error).__name__}: {shown(text, 300)}",
                remedy=its_remedy
                or "return a reason, such as type(error).__name__, or None if the program does not fail",
            ) from found.error
    reason = reasons[0]
    if reason is None and reasons[1] is None:
        raise ArgumentError(
            f"reduce_program: {program.name} does not fail: fails(program, args) returns None",
            remedy="give the program and the arguments that fail, and let fails return the reason",
        )
    for found in reasons:
        if found is not None:
            _check_reason(found)
    if reasons[1] != reason:
        raise ArgumentError(
            f"reduce_program: fails is not deterministic: it returned {shown(reason)}, then {shown(reasons[1])}",
            remedy="fix its seeds, and leave numbers and texts of errors out of the reason",
        )
    if reasons[-1] != reason:
        raise ArgumentError(
            f"reduce_program: fails returns {shown(reason)} for {program.name}, and {shown(reasons[-1])} for the same"
            " program with its arguments as flat arrays",
            remedy="call program(*args) in fails, and do not rely on the trees of arguments and results",
        )
    return reason


def _check_reason(reason: object) -> None:
    try:
        usable = not isinstance(reason, bool | float | complex | np.generic | np.ndarray | BaseException)
        usable = usable and reason != "" and isinstance(hash(reason), int)
    except Exception:  # noqa: BLE001  it has no hash, or no equality
        usable = False
    if not usable:
        raise ArgumentError(
            f"reduce_program: fails returned {described(reason)}, which is not a reason: {shown(reason)}",
            remedy="return a text such as 'nan', a class of errors, or a tuple of such values, or None",
        )
