"""A function with custom rules, as a value: the records that `call_with_rules` carries.

    Function            the body and its rules
      Rules             the rules, by transformation
        Derivative      a rule for the derivative in some operands: the programs forward, push, pull
        Refusal         in place of a derivative: the error that the rule of the user raised
        BatchRule       a rule for stacks of one size, or of any size
        TransformRule   a rule for a transformation that is not part of the core
          DeclaredProgram   a program of that rule, with the values that it takes and gives

A `RuleProgram` is the view that all readers have of these programs: it declares which values of a call a program takes
and returns. Checks, batching, removal of unused values and the layout of the equation are written once, over these
declarations. `Function.programs` makes them. Decision: docs/adr/0083.

    program                       takes                                      returns
    body, program of derivatives  operands                                   results
    forward                       operands                                   results, residuals
    push                          tangents of perturbed operands, residuals  tangents of inexact results
    pull                          cotangents of inexact results, residuals   cotangents of perturbed operands
    vmap rule                     captured operands, stacks of arguments     stacks of results

Operands are first the `captured` ones, which are the values that the function or its rules close over, then the
arguments. Rules say nothing about derivatives in captured operands.

The fields of records stand in the text of programs, as in `derivative(moving=(true,), ...)`. A digest is the hash of
that text, and files of programs are read by their digests. So the fields keep their names: `moving` for perturbed
operands, `whole` and `further` of the rules for other transformations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final, NamedTuple, TypeAlias, TypeVar, final

from fxad.core.builder import rebind_operands
from fxad.core.dce import dce, read_operands, remove_dead_eqns
from fxad.core.flags import select_by_flags
from fxad.errors import ParameterError
from fxad.ir import (
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Dims,
    Flags,
    Jaxpr,
    JvpCtx,
    Lin,
    Lit,
    Primitive,
    Record,
    Tangents,
    map_parameter,
    record,
)
from fxad.primitives.control.bodies import insert_zeros
from fxad.primitives.control.call import Call, call_primal, check_body_type
from fxad.primitives.linear_call import LinearCall, batch_adjoint
from fxad.primitives.linearity import with_zero_operands

R = TypeVar("R", bound=Record)

# ------------------------------------------------------------------------------------- what a program takes and returns


class RuleProgram(NamedTuple):
    """A program of a function with rules, and the values of the call that it takes and returns, in order.

    Values are numbered: first the operands of the call, then its results, then the residuals of its derivatives. A
    tangent, or a cotangent, has the number of its value. A program that is `linear` takes tangents (or cotangents) in
    its first `linear` operands, and returns tangents. One with a `size` takes and returns stacks, except of captured
    operands. `stores`: reverse mode may store values of it. `returns_cotangents`: it returns cotangents of operands.
    `rule`: the rule for a further transformation that it belongs to, if any.
    """

    role: str
    jaxpr: Jaxpr
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    stores: bool = False
    linear: int = 0
    returns_cotangents: bool = False
    size: int | None = None
    rule: TransformRule | None = None

    @property
    def whole(self) -> bool:
        """Return True if it belongs to a rule about all operands and results together."""
        return self.rule is not None and self.rule.whole

    def returning(self, marks: Sequence[bool]) -> RuleProgram:
        """Return the program with only the marked results."""
        outs = select_by_flags(self.jaxpr.outs, marks)
        return self._replace(jaxpr=self.jaxpr.with_outs(outs), gives=select_by_flags(self.gives, marks))

    def taking(self, marks: Sequence[bool]) -> RuleProgram:
        """Return the program with only the marked operands, which include all that it reads and all in which it is
        linear."""
        jaxpr = rebind_operands(self.jaxpr, select_by_flags(range(len(self.takes)), marks))
        return self._replace(jaxpr=jaxpr, takes=select_by_flags(self.takes, marks))

    def for_tangents(self, nonzero: Flags) -> RuleProgram:
        """Return the program for the tangents of the marked values. The others are zero, and are no operands."""
        if not self.linear:
            return self
        marks = tuple([nonzero[k] for k in self.takes[: self.linear]])
        takes = (*select_by_flags(self.takes[: self.linear], marks), *self.takes[self.linear :])
        return self._replace(jaxpr=with_zero_operands(self.jaxpr, marks)[0], takes=takes, linear=sum(marks))


def restricted(
    programs: Sequence[RuleProgram], remaining: Flags, nonzero: Flags, clean: Callable[[Jaxpr], Jaxpr]
) -> tuple[list[RuleProgram], set[int]]:
    """Return the programs for some operands and results, and for some tangents.

    `remaining` marks these operands and results, `nonzero` those that have a tangent (or cotangent). The programs take
    and return no others. They return the residuals that one of them reads: a program that returns residuals comes
    before those that take them. `clean` removes dead equations. Also returns the numbers of the values that the
    programs read.

    In the example, without result 3 and the tangents of values 1 and 3, `push` reads one residual of three, number 4,
    and `forward` does not compute the others.

    >>> import fxad as fx, fxad.numpy as fnp
    >>> @fx.custom_jvp
    ... def f(x, y):
    ...     return x * y * 0.875, fnp.sin(x)
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     (x, y), (x_dot, y_dot) = primals, tangents
    ...     return (x * y * 0.875, fnp.sin(x)), ((x_dot * y + y_dot * x) * 0.875, x_dot * fnp.cos(x))
    >>> x = fx.Spec((), "float32")
    >>> function = fx.trace(f, x, x).jaxpr.eqns[0].prim.function
    >>> _, *programs = function.programs  # without the body
    >>> for p in programs:
    ...     print(p.role, p.takes, p.gives)
    forward (0, 1) (2, 3, 4, 5, 6)
    push (0, 1, 4, 5, 6) (2, 3)
    >>> forward, push = restricted(programs, (True, True, True, False), (True, False, True, False), remove_dead_eqns)[0]
    >>> print(forward.takes, forward.gives, forward.jaxpr)
    (0, 1) (2, 4) main @f_jvp(%arg0: f32[], %arg1: f32[]) -> (f32[], f32[]) {
      %0: f32[] = mul %arg0, %arg1
      %1: f32[] = mul %0, 0.875:f32[]
      return %1, %arg1
    }
    <BLANKLINE>
    >>> print(push.takes, push.gives, push.jaxpr)
    (0, 4) (2,) main @linear_f_jvp(%arg0: f32[], %arg1: f32[]) -> (f32[]) {
      %0: f32[] = mul %arg0, %arg1
      %1: f32[] = add %0, 0.0:f32[]
      %2: f32[] = mul %1, 0.875:f32[]
      return %2
    }
    <BLANKLINE>
    """
    values_read: set[int] = set()

    def stays(program: RuleProgram, k: int) -> bool:
        if k >= len(remaining):  # a residual
            return k in values_read
        return nonzero[k] if program.linear else remaining[k]

    smaller: list[RuleProgram] = []
    for program in reversed(programs):  # those that take residuals first
        program = program.returning([stays(program, k) for k in program.gives]).for_tangents(nonzero)
        program = program._replace(jaxpr=clean(program.jaxpr))
        values_read.update(select_by_flags(program.takes, read_operands(program.jaxpr)))
        smaller.append(program)
    return [program.taking([stays(program, k) for k in program.takes]) for program in reversed(smaller)], values_read


# ---------------------------------------------------------------------------------------------------------- the records


@final
@record
class Derivative(Record):
    """The derivative in the operands marked in `moving`, the perturbed ones, with all others fixed, of the results
    marked in `results`; None: of all results.

    `forward`, the forward pass (JAX: `fwd` of `custom_vjp`): operands -> results, then residuals.
    `push`, the pushforward (the linear function of `jax.linearize`): tangents of the perturbed operands, then residuals
    -> tangents of the inexact results that it is of.
    `pull`, the pullback (JAX: `bwd` of `custom_vjp`): cotangents of these results, then residuals -> cotangents of the
    perturbed operands; None: the transpose of `push`.

    So `forward` and `push` are like `primal` and `linear` of a `LinearizedBody`; `push` and `pull` become `body` and
    `adjoint` of a `LinearCall`.
    """

    name: ClassVar[str] = "derivative"
    moving: Flags
    forward: Jaxpr
    push: Jaxpr
    pull: Jaxpr | None = None
    results: Flags | None = None

    def differentiated(self, inexact: Flags) -> Flags:
        """Mark the results that have tangents here, of those marked in `inexact`."""
        if self.results is None:
            return inexact
        return tuple([a and b for a, b in zip(inexact, self.results, strict=True)])

    def programs(self, inexact: Flags, first: int) -> list[RuleProgram]:
        """Return the programs, in the order of the fields. `inexact` marks results. `first` is the number of the first
        residual."""
        operands = tuple(range(len(self.moving)))
        results = tuple(range(len(operands), len(operands) + len(inexact)))
        residuals = tuple(range(first, first + len(self.forward.outs) - len(results)))
        perturbed = select_by_flags(operands, self.moving)
        dots = select_by_flags(results, self.differentiated(inexact))
        forward = RuleProgram("forward", self.forward, operands, (*results, *residuals), stores=True)
        push = RuleProgram("push", self.push, (*perturbed, *residuals), dots, linear=len(perturbed))
        if self.pull is None:
            return [forward, push]
        pull = RuleProgram("pull", self.pull, (*dots, *residuals), perturbed, linear=len(dots), returns_cotangents=True)
        return [forward, push, pull]

    def jvp(
        self, ctx: JvpCtx, primals: Atoms, tangents: Tangents, outs: Avals, complete: Callable[[Jaxpr], Jaxpr]
    ) -> tuple[Atoms, Tangents] | None:
        """Return results and tangents, computed for the tangents that do not vanish. None if all tangents of results
        vanish.

        `outs` are the types of the results. `complete` replaces the named calls in a program of the rule.
        """
        nonzero, lins = [isinstance(t, Lin) for t in tangents], [t for t in tangents if isinstance(t, Lin)]
        push_nonzero = iter(with_zero_operands(self.push, select_by_flags(nonzero, self.moving))[1])
        inexact = tuple([a.inexact for a in outs])
        out_nonzero = [m and next(push_nonzero) for m in self.differentiated(inexact)]
        if not any(out_nonzero):
            return None
        n = len(nonzero) + len(outs)
        programs = self.programs(inexact, n)
        smaller, _ = restricted(programs, (True,) * n, (*nonzero, *out_nonzero), remove_dead_eqns)
        forward, *maps = [complete(program.jaxpr) for program in smaller]
        results, residuals = call_primal(ctx, forward, len(outs), primals)
        linear: Primitive = Call(maps[0]) if len(maps) == 1 else LinearCall(maps[0], maps[1], len(lins))
        return results, insert_zeros(ctx.lin(linear, *lins, *residuals), out_nonzero, outs)


@final
@record
class Refusal(Record):
    """A rule that raised an error while it was traced: `message` and `remedy` are those of the error of its uses.
    `moving` and `results` are those of `Derivative`."""

    name: ClassVar[str] = "refusal"
    moving: Flags
    message: str
    remedy: str
    results: Flags | None = None


@final
@record
class BatchRule(Record):
    """`body` is the function of a stack of `size` examples, along the first axis of all arguments and results.
    `any_size`: the size is symbolic and bound by the rule, which is for every size that it can be."""

    name: ClassVar[str] = "batch_rule"
    size: int
    body: Jaxpr
    any_size: bool = False


@final
@record
class DeclaredProgram(Record):
    """A program of a rule of any transformation, with the values of the call that it takes and returns, in order.

    `takes` and `gives` number the operands of the call, then its results. A number may occur several times: the program
    then takes or gives several values of that type, such as two bounds. The last `n_cotangents` values that it gives
    are cotangents. `role` names the program in messages.
    """

    name: ClassVar[str] = "declared_program"
    role: str
    jaxpr: Jaxpr
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    n_cotangents: int = 0

    @property
    def computed(self) -> tuple[int, ...]:
        """The values that it computes, without cotangents."""
        return self.gives[: len(self.gives) - self.n_cotangents]


VMAP: Final = "vmap"  # the transformation of the record of a rule for stacks that raised an error

RuleSetting: TypeAlias = Lit | Aval | int | bool | str | None


@final
@record
class TransformRule(Record):
    """The rule of a function for a transformation that is not part of the core. `transformation` is the key: its name.

    `programs` are batched, checked and pruned with the function, and the transformation says what they mean. `settings`
    are plain values for it. A rule that raised an error while it was traced has no programs: `error` and `remedy` are
    those of the error of its uses.
    `whole`: the rule is about all operands and results together, as an inverse is. It is dropped when a result is not
    used. The programs of any other rule take operands and give results, and lose those that are not used.
    """

    name: ClassVar[str] = "rule"
    transformation: str
    programs: tuple[DeclaredProgram, ...] = ()
    settings: tuple[RuleSetting, ...] = ()
    whole: bool = False
    error: str = ""
    remedy: str = ""

    def program(self, role: str) -> DeclaredProgram | None:
        """Return the program of this role; None if there is none."""
        return next((p for p in self.programs if p.role == role), None)

    def check(self, name: str, n_in: int, n_out: int) -> None:
        """Check the numbers of values. Raises: ParameterError."""
        for p in self.programs:
            what = f"{name}: {p.role} of the rule for {self.transformation}"
            for verb, values in (("takes", p.takes), ("gives", p.gives)):
                wrong = [k for k in values if not 0 <= k < n_in + n_out]
                if wrong:
                    raise ParameterError(
                        f"{what} {verb} value {wrong[0]}, the call has {n_in} operands and {n_out} results",
                        remedy="number the operands from 0, then the results",
                    )
            if not 0 <= p.n_cotangents <= len(p.gives):
                raise ParameterError(
                    f"{what} gives {p.n_cotangents} cotangents among {len(p.gives)} values",
                    remedy="count the cotangents, which come last",
                )
            if not self.whole and (any([k >= n_in for k in p.takes]) or any([k < n_in for k in p.gives])):
                raise ParameterError(
                    f"{what} takes a result or gives an operand, and the rule is not `whole`",
                    remedy="mark the rule as whole: it is then dropped with the first unused result",
                )


@final
@record
class Rules(Record):
    """The rules of a function, by transformation.

    Forward mode takes `jvp`, or else `vjp`; linearize and reverse mode take `vjp`, or else `jvp`. Derivatives of one
    kind are for different sets of operands and results: the one for the smallest set is taken that contains all
    operands with a tangent, and all results. `derivative_of` is a program whose derivatives are those of the function;
    then it has no others.
    `of_body`: a transformation made the derivatives, and they are those of the body. So the derivative in a captured
    operand is that of the body too, and the body may be rewritten without the rules.
    `further` are the rules for transformations that are not part of the core, one for each. Decision: docs/adr/0096.
    One for `VMAP` has no programs: it is the error that a rule for stacks of any size raised while it was traced, which
    is that of stacks for whose size there is no rule in `batch`.
    """

    name: ClassVar[str] = "rules"
    jvp: tuple[Derivative | Refusal, ...] = ()
    vjp: tuple[Derivative | Refusal, ...] = ()
    batch: tuple[BatchRule, ...] = ()
    derivative_of: Jaxpr | None = None
    of_body: bool = False
    further: tuple[TransformRule, ...] = ()

    @property
    def of_stacks(self) -> Rules:
        """The rules for `vmap` alone: those for stacks, and the error of the one for any size."""
        return Rules(batch=self.batch, further=tuple([r for r in self.further if r.transformation == VMAP]))

    @property
    def concern_stacks(self) -> bool:
        """Return True if there are rules for `vmap`, even if the one for any size raised an error."""
        return self.of_stacks != Rules()

    @property
    def has_derivative(self) -> bool:
        """Return True if rules give the derivative, even if all of them raised an error."""
        return bool(self.jvp or self.vjp or self.derivative_of)

    def rule_for(self, transformation: str) -> TransformRule | None:
        """Return the rule for a transformation that is not part of the core; None if there is none."""
        return next((rule for rule in self.further if rule.transformation == transformation), None)

    @property
    def gives_cotangents(self) -> bool:
        """Return True if a rule of a further transformation computes cotangents of operands."""
        return any([p.n_cotangents for rule in self.further for p in rule.programs])

    @property
    def computed(self) -> frozenset[int]:
        """The operands and results that the rules of further transformations compute."""
        return frozenset([k for rule in self.further for p in rule.programs for k in p.computed])

    @property
    def derivatives(self) -> list[Derivative]:
        """The derivatives that were traced without an error, of forward and of reverse mode."""
        return [rule for rule in (*self.jvp, *self.vjp) if isinstance(rule, Derivative)]

    def derivative(self, nonzero: Sequence[bool], reverse: bool) -> Derivative | Refusal:
        """Return the derivative for the operands marked in `nonzero`, which are not captured, and for all results.

        Of the derivatives that cover these operands and all results, it is the one in the fewest operands; of several
        in as many, one that marks results comes before one that has no marks, and a derivative before a refusal.
        """
        rules = (self.vjp or self.jvp) if reverse else (self.jvp or self.vjp)

        def covers(rule: Derivative | Refusal) -> bool:
            in_rule = [covered or not m for m, covered in zip(nonzero, rule.moving, strict=True)]
            return all(in_rule) and (rule.results is None or all(rule.results))

        def rank(rule: Derivative | Refusal) -> tuple[int, bool, bool]:
            return sum(rule.moving), rule.results is None, isinstance(rule, Refusal)

        covering = [rule for rule in rules if covers(rule)]
        assert covering, "the first rule of each kind is for all operands and results"
        return min(covering, key=rank)

    def pruned(self, needed: Flags, used: Flags) -> Rules:
        """Return the rules for the marked operands and results. Rules about all of them are dropped with the first
        result."""

        def of(rule: Derivative | Refusal) -> Derivative | Refusal:
            results = None if rule.results is None else select_by_flags(rule.results, used)
            return replace(rule, moving=select_by_flags(rule.moving, needed), results=results)

        jvp, vjp = [tuple([of(rule) for rule in kind]) for kind in (self.jvp, self.vjp)]
        further = tuple([rule for rule in self.further if all(used) or not rule.whole])
        return replace(self, jvp=jvp, vjp=vjp, further=further)


@final
@record
class Function(Record):
    """`body`, whose first `captured` operands are values that it or its rules close over, with its rules."""

    name: ClassVar[str] = "function"
    body: Jaxpr
    captured: int = 0
    rules: Rules = Rules()

    @property
    def perturbed(self) -> Flags:
        """The operands that derivative rules may be about."""
        return tuple([k >= self.captured and a.inexact for k, a in enumerate(self.body.in_avals)])

    @property
    def inexact(self) -> Flags:
        """The results that have tangents."""
        return tuple([a.inexact for a in self.body.out_avals])

    @property
    def programs(self) -> list[RuleProgram]:
        """The body and the programs of the rules, in the order of the fields."""
        rules, n = self.rules, len(self.body.ins) + len(self.body.outs)
        operands, results = tuple(range(len(self.body.ins))), tuple(range(len(self.body.ins), n))
        programs = [RuleProgram("body", self.body, operands, results, stores=True)]
        first_residual = n
        for derivative in rules.derivatives:
            programs += derivative.programs(self.inexact, first_residual)
            first_residual += len(derivative.forward.outs) - len(results)
        for rule in rules.batch:
            role = f"vmap rule of size {rule.size}"
            programs.append(RuleProgram(role, rule.body, operands, results, size=rule.size))
        if rules.derivative_of is not None:
            role = "program of derivatives"
            programs.append(RuleProgram(role, rules.derivative_of, operands, results, stores=True))
        for further in rules.further:
            programs += [
                RuleProgram(p.role, p.jaxpr, p.takes, p.gives, returns_cotangents=p.n_cotangents > 0, rule=further)
                for p in further.programs
            ]
        return programs

    def check(self, name: str) -> None:
        """Raise ParameterError for rules that do not fit the body."""
        body, rules, n = self.body, self.rules, self.captured
        n_in = len(body.ins)
        if not 0 <= n <= n_in:
            raise ParameterError(
                f"{name}: captured is {n}, {body.name} has {n_in} operands",
                remedy="captured operands come first in the body",
            )
        for rule in (*rules.jvp, *rules.vjp):
            if len(rule.moving) != n_in:
                raise ParameterError(
                    f"{name}: a rule has {len(rule.moving)} marks for {n_in} operands",
                    remedy="mark the operands whose tangents do not vanish",
                )
            if any([in_rule and not m for in_rule, m in zip(rule.moving, self.perturbed, strict=True)]):
                raise ParameterError(
                    f"{name}: a rule is about tangents of operands that have none",
                    remedy="mark inexact operands behind the captured ones",
                )
            if rule.results is not None and len(rule.results) != len(body.outs):
                raise ParameterError(
                    f"{name}: a rule has {len(rule.results)} marks for {len(body.outs)} results",
                    remedy="mark the results whose cotangents do not vanish, or None for all of them",
                )
        keys = [rule.transformation for rule in rules.further]
        if len({*keys}) < len(keys):
            raise ParameterError(
                f"{name}: {body.name} has several rules for one transformation: {', '.join(keys)}",
                remedy="give one rule for each transformation, with all its programs",
            )
        for further in rules.further:
            further.check(name, n_in, len(body.outs))
        types = dict(enumerate((*body.in_avals, *body.out_avals)))
        for program in self.programs:
            if program.role == "forward":  # it says how many residuals there are, and their types
                types.update(list(zip(program.gives, program.jaxpr.out_avals, strict=False))[len(body.outs) :])
            takes, gives = [[types[k] for k in values] for values in (program.takes, program.gives)]
            if program.size is not None:
                takes = [a if k < n else a.stacked(program.size) for k, a in enumerate(takes)]
                gives = [a.stacked(program.size) for a in gives]
            check_body_type(name, program.role, program.jaxpr, tuple(takes), tuple(gives))

    def needed_for(self, used: Flags) -> tuple[list[RuleProgram], Flags]:
        """Return the programs that the results marked in `used` need, and the operands that they read. Programs of
        rules that are `whole` are not among them."""
        programs = [program for program in self.programs if not program.whole]
        operands = (True,) * len(self.body.ins)
        while True:  # the cotangent of an operand that is dropped may be the last to read another operand
            marks = (*operands, *used)
            programs, values_read = restricted(programs, marks, marks, dce)
            operands_read = tuple([k in values_read for k in range(len(operands))])
            if operands_read == operands:
                return programs, operands
            operands = operands_read

    def pruned(self, used: Flags) -> tuple[Function, Flags]:
        """Return the function with the marked results, and the operands that it then has: its body or a rule reads
        them.

        It is unchanged if all results are used and it has programs of a `whole` rule, which take all its values.
        """
        if all(used) and any([rule.whole and rule.programs for rule in self.rules.further]):
            return self, (True,) * len(self.body.ins)
        programs, is_needed = self.needed_for(used)
        rules = self.rules.pruned(is_needed, used)
        # declared programs number the values that remain: of the operands 0, 1 and the results 2, 3 without 0 and 2,
        # value 1 becomes 0, and 3 becomes 1
        number = {k: n for n, k in enumerate([k for k, stays in enumerate((*is_needed, *used)) if stays])}
        further = []
        for rule in rules.further:  # none with programs is `whole`: see above, and `Rules.pruned`
            smaller = [program for program in programs if program.rule is rule]
            renumbered = [_renumbered(p, new, number) for p, new in zip(rule.programs, smaller, strict=True)]
            further.append(replace(rule, programs=tuple(renumbered)))
        rules = replace(rules, further=tuple(further))
        function = with_programs(replace(self, rules=rules), [program.jaxpr for program in programs])
        return replace(function, captured=sum(is_needed[: self.captured])), is_needed

    def batched(self, ctx: BatchCtx, dims: Dims, rule: Jaxpr | None = None) -> tuple[Function, Dims]:
        """Return the function of a stack, and the batch axes of its results. `rule`: the batch rule that becomes its
        body."""
        batch = tuple([_with_fresh_size(ctx, r) for r in self.rules.batch])
        function = replace(self, rules=replace(self.rules, batch=batch))
        body, *rule_programs = function.programs
        axis_of = function._batch_axes(ctx, dims, by_rule=rule is not None)

        def axes(program: RuleProgram, values: Sequence[int]) -> Dims:
            """Return the batch axes of values in a program. The stacks of another batch rule have its axis in front of
            it."""
            in_stack = [program.size is not None and k >= self.captured for k in values]
            pairs = zip([axis_of[k] for k in values], in_stack, strict=True)
            return tuple([d + 1 if d is not None and is_stack else d for d, is_stack in pairs])

        out_dims = axes(body, body.gives)
        batched_body = ctx.recur(body.jaxpr, dims, out_dims)[0] if rule is None else rule
        batched_rules = [_batch_program(ctx, p, axes(p, p.takes), axes(p, p.gives)) for p in rule_programs]
        return with_programs(function, [batched_body, *batched_rules]), out_dims

    def _batch_axes(self, ctx: BatchCtx, dims: Dims, *, by_rule: bool) -> dict[int, int | None]:
        """Return the batch axis of each value of a batched call. A tangent or cotangent has the axis of its value.

        Each program that computes results or residuals is batched to find out at which axes it returns them; `batched`
        then batches all programs to the axes that are returned here. A value that two programs return at different axes
        has axis 0. `by_rule`: a batch rule computes the results, at axis 0.
        """
        body, *rule_programs = self.programs
        axis_of: dict[int, int | None] = dict(enumerate(dims))
        if by_rule:
            axis_of.update(dict.fromkeys(body.gives, 0))
        for program in rule_programs if by_rule else (body, *rule_programs):
            is_batch_rule, gives_operands = program.size is not None, any([k < len(dims) for k in program.gives])
            if is_batch_rule or gives_operands:  # such as a pullback: axes of operands are given
                continue
            out_dims = ctx.recur(program.jaxpr, tuple([axis_of[k] for k in program.takes]))[1]
            for k, d in zip(program.gives, out_dims, strict=True):
                axis_of[k] = d if axis_of.get(k, d) == d else 0
        if self.rules.gives_cotangents:
            # A result that all examples share gets one cotangent. The rule takes it in each example, and the sum over
            # the examples would count it several times. So such a result is repeated for each example.
            axis_of.update({k: 0 for k in body.gives if axis_of[k] is None})
        return axis_of


def _renumbered(declared: DeclaredProgram, program: RuleProgram, number: Mapping[int, int]) -> DeclaredProgram:
    """Return the declaration of a program after pruning: it takes and gives the values of `program`, by their new
    numbers."""
    takes, gives = [tuple([number[k] for k in values]) for values in (program.takes, program.gives)]
    return replace(declared, takes=takes, gives=gives)


def _with_fresh_size(ctx: BatchCtx, rule: BatchRule) -> BatchRule:
    """Return the rule with a symbolic size that is not in the size of the mapped axis."""
    if not rule.any_size:
        return rule
    size, body = ctx.with_fresh_size(rule.body, rule.size)
    return replace(rule, size=size, body=body)


def _batch_program(ctx: BatchCtx, program: RuleProgram, takes: Dims, gives: Dims) -> Jaxpr:
    """Return a program of the batched function. Cotangents of operands that are not batched are summed."""
    if program.returns_cotangents:
        return batch_adjoint(ctx, program.jaxpr, takes[: program.linear], takes[program.linear :], gives)
    return ctx.recur(program.jaxpr, takes, gives)[0]


def with_programs(record: R, programs: Iterable[Jaxpr]) -> R:
    """Return the record with other programs, in the order of its fields."""
    remaining = iter(programs)
    copy = map_parameter(record, lambda value: next(remaining) if isinstance(value, Jaxpr) else value)
    assert isinstance(copy, type(record))
    return copy
