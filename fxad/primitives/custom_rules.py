"""A function with custom rules, as a value: the records that `custom_call` carries.

All programs of a rule are over the operands of the function: first the `captured` ones, which are the values that the
function or its rules close over, then the arguments. Rules say nothing about derivatives in captured operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, TypeAlias, final

from fxad.core.dce import dce, drop_unread_operands, remove_dead_eqns
from fxad.errors import ParameterError
from fxad.ir import Atoms, Aval, Avals, BatchCtx, Dims, Jaxpr, JvpCtx, Lin, Mask, Primitive, Record, Tangents, record
from fxad.primitives.control.bodies import insert_zeros, mask_or, select_by_mask, with_operands, with_outs
from fxad.primitives.control.call import Call, call_primal
from fxad.primitives.linear_call import LinearCall, batch_adjoint, check_body_type, drop_unused_residuals
from fxad.primitives.linearity import with_zero_operands

# A program of a function, whether reverse mode may store its values, and in how many first operands it is linear.
Part: TypeAlias = tuple[Jaxpr, bool, int]


@final
@record
class Derivative(Record):
    """The derivative in the operands marked in `moving`, with all others fixed.

    `forward`: operands -> results, then residuals. `push`: tangents of the moving operands, then residuals -> tangents
    of the inexact results. `pull`: cotangents of the inexact results, then residuals -> cotangents of the moving
    operands; None: the transpose of `push`.
    """

    name: ClassVar[str] = "derivative"
    moving: Mask
    forward: Jaxpr
    push: Jaxpr
    pull: Jaxpr | None = None

    @property
    def maps(self) -> tuple[Jaxpr, ...]:
        """The linear programs: `push`, and `pull` if there is one."""
        return (self.push,) if self.pull is None else (self.push, self.pull)

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of linear operands of each linear program."""
        return sum(self.moving), len(self.push.outs)

    @property
    def parts(self) -> list[Part]:
        """The programs, in the order of the fields."""
        return [(self.forward, True, 0), *[(j, False, n) for j, n in zip(self.maps, self.counts, strict=False)]]

    def check(self, name: str, ins: Avals, outs: Avals) -> None:
        """Raises: ParameterError for a program that does not fit a function of these types."""
        moving, inexact = select_by_mask(ins, self.moving), tuple([a for a in outs if a.inexact])
        residuals = self.forward.out_avals[len(outs) :]
        check_body_type(name, "forward", self.forward, tuple(ins), (*outs, *residuals))
        check_body_type(name, "push", self.push, (*moving, *residuals), inexact)
        if self.pull is not None:
            check_body_type(name, "pull", self.pull, (*inexact, *residuals), moving)

    def restricted(self, live: Mask, wanted: Mask, used: Mask) -> Derivative:
        """The rule for tangents of the moving operands marked in `live`, if the others vanish. It computes the results
        marked in `used`, and the tangents of inexact results marked in `wanted`."""
        push, pull, n = with_zero_operands(self.push, live)[0], self.pull, len(used)
        maps = [with_outs(push, select_by_mask(push.outs, wanted))]
        if pull is not None:
            maps.append(with_zero_operands(with_outs(pull, select_by_mask(pull.outs, live)), wanted)[0])
        maps, read = drop_unused_residuals([remove_dead_eqns(j) for j in maps], (sum(live), sum(wanted))[: len(maps)])
        outs = self.forward.outs
        forward = with_outs(self.forward, (*select_by_mask(outs[:n], used), *select_by_mask(outs[n:], read)))
        marks = iter(live)
        return Derivative(tuple([m and next(marks) for m in self.moving]), remove_dead_eqns(forward), *maps)

    @property
    def reads(self) -> Mask:
        """The operands that the programs read, or whose tangents they read."""
        tangents = iter(drop_unread_operands(self.push)[1])
        return mask_or(drop_unread_operands(self.forward)[1], [m and next(tangents) for m in self.moving])

    def over(self, left: Mask, n_results: int) -> Derivative:
        """The rule without the operands that are not marked, which it does not read."""
        live = select_by_mask(left, self.moving)
        made = self.restricted(live, (True,) * len(self.push.outs), (True,) * n_results)
        return Derivative(select_by_mask(made.moving, left), _over(made.forward, left), *made.maps)

    def result_dims(self, ctx: BatchCtx, dims: Dims, outs: Avals) -> list[Dims]:
        """The batch axes that the rules choose for the results of `forward`, and for their tangents."""
        forward = ctx.recur(self.forward, dims)[1]
        push = iter(ctx.recur(self.push, (*select_by_mask(dims, self.moving), *forward[len(outs) :]))[1])
        return [
            forward[: len(outs)],
            tuple([next(push) if a.inexact else d for a, d in zip(outs, forward, strict=False)]),
        ]

    def batched(self, ctx: BatchCtx, dims: Dims, out_dims: Dims, inexact: Mask) -> Derivative:
        """The rule of the batched function. Cotangents of operands that are not batched are summed."""
        residuals = ctx.recur(self.forward, dims)[1][len(out_dims) :]
        moving, given = select_by_mask(dims, self.moving), select_by_mask(out_dims, inexact)
        forward, _ = ctx.recur(self.forward, dims, (*out_dims, *residuals))
        push, _ = ctx.recur(self.push, (*moving, *residuals), given)
        pull = None if self.pull is None else batch_adjoint(ctx, self.pull, given, residuals, moving)
        return Derivative(self.moving, forward, push, pull)

    def jvp(
        self,
        ctx: JvpCtx,
        primals: Atoms,
        tangents: Tangents,
        outs: Avals,
        complete: Callable[[Jaxpr], Jaxpr],
    ) -> tuple[Atoms, Tangents] | None:
        """Results and tangents, computed for the tangents that do not vanish. None if all tangents of results vanish.

        `complete` replaces the named calls in a program of the rule.
        """
        lins = [t for t in tangents if isinstance(t, Lin)]
        live = select_by_mask([isinstance(t, Lin) for t in tangents], self.moving)
        reached = with_zero_operands(self.push, live)[1]
        if not any(reached):
            return None
        rule = self.restricted(live, reached, (True,) * len(outs))
        results, residuals = call_primal(ctx, complete(rule.forward), len(outs), primals)
        maps = [complete(j) for j in rule.maps]
        linear: Primitive = Call(maps[0]) if len(maps) == 1 else LinearCall(maps[0], maps[1], len(lins))
        marks = iter(reached)
        nonzero = [a.inexact and next(marks) for a in outs]
        return results, insert_zeros(ctx.lin(linear, *lins, *residuals), nonzero, outs)


@final
@record
class Refusal(Record):
    """A rule that raised an error while it was traced: `message` and `remedy` are those of the error of its uses."""

    name: ClassVar[str] = "refusal"
    moving: Mask
    message: str
    remedy: str

    def over(self, left: Mask) -> Refusal:
        """The refusal for fewer operands."""
        return Refusal(select_by_mask(self.moving, left), self.message, self.remedy)


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
class InverseRule(Record):
    """`inverse`: results, then the operands marked in `kept` -> the other operands. `ivjp`: results, kept operands,
    cotangents of the inexact results -> the other operands, then cotangents of the moving ones."""

    name: ClassVar[str] = "inverse_rule"
    kept: Mask
    inverse: Jaxpr
    ivjp: Jaxpr | None = None

    def check(self, name: str, function: Function) -> None:
        """Raises: ParameterError for a program that does not fit the function."""
        ins, outs = function.body.in_avals, function.body.out_avals
        if len(self.kept) != len(ins):
            raise ParameterError(
                f"{name}: an inverse rule has a mark in kept for each operand, got {len(self.kept)} marks for "
                f"{len(ins)} operands",
                remedy="mark the operands that the inverse is given",
            )
        kept, free = select_by_mask(ins, self.kept), select_by_mask(ins, [not k for k in self.kept])
        check_body_type(name, "inverse", self.inverse, (*outs, *kept), free)
        if self.ivjp is not None:
            cts, moving = [a for a in outs if a.inexact], select_by_mask(ins, function.moving)
            check_body_type(name, "ivjp", self.ivjp, (*outs, *kept, *cts), (*free, *moving))

    def batched(self, ctx: BatchCtx, dims: Dims, out_dims: Dims, function: Function) -> InverseRule:
        """The rule of the batched function. All its operands that are not kept are batched."""
        known, free = (*out_dims, *select_by_mask(dims, self.kept)), select_by_mask(dims, [not k for k in self.kept])
        inverse, _ = ctx.recur(self.inverse, known, free)
        if self.ivjp is None:
            return InverseRule(self.kept, inverse)
        cts = select_by_mask(out_dims, function.inexact)
        wants = (*free, *select_by_mask(dims, function.moving))
        return InverseRule(self.kept, inverse, batch_adjoint(ctx, self.ivjp, (), (*known, *cts), wants))


@final
@record
class Rules(Record):
    """The rules of a function, by transformation.

    Forward mode takes `jvp`, or else `vjp`; linearize and reverse mode take `vjp`, or else `jvp`. Derivatives of one
    kind are for different operands: the one for the fewest operands is taken that covers all operands with a tangent.
    `derivative_of` is a program with the derivatives that the function is to have; then it has no others.
    """

    name: ClassVar[str] = "rules"
    jvp: tuple[Derivative | Refusal, ...] = ()
    vjp: tuple[Derivative | Refusal, ...] = ()
    batch: tuple[BatchRule, ...] = ()
    inverse: InverseRule | Refusal | None = None
    derivative_of: Jaxpr | None = None

    @property
    def has_derivative(self) -> bool:
        """Returns True if rules give the derivative, even if all of them raised an error."""
        return bool(self.jvp or self.vjp or self.derivative_of)

    @property
    def ivjp(self) -> Jaxpr | None:
        """The program that reconstructs operands and gives their cotangents, if there is one."""
        return self.inverse.ivjp if isinstance(self.inverse, InverseRule) else None

    @property
    def derivatives(self) -> list[Derivative]:
        """The derivatives that were traced without an error, of forward and of reverse mode."""
        return [rule for rule in (*self.jvp, *self.vjp) if isinstance(rule, Derivative)]

    @property
    def programs(self) -> list[Jaxpr]:
        """The programs that compute all results: those of batch rules, and `derivative_of`."""
        return [rule.body for rule in self.batch] + ([] if self.derivative_of is None else [self.derivative_of])

    def each(
        self,
        derivative: Callable[[Derivative], Derivative],
        program: Callable[[Jaxpr], Jaxpr],
        refusal: Callable[[Refusal], Refusal] = lambda rule: rule,
    ) -> Rules:
        """The rules with each part changed, without an inverse."""
        jvp, vjp = [
            tuple([refusal(rule) if isinstance(rule, Refusal) else derivative(rule) for rule in kind])
            for kind in (self.jvp, self.vjp)
        ]
        batch = tuple([replace(rule, body=program(rule.body)) for rule in self.batch])
        back = refusal(self.inverse) if isinstance(self.inverse, Refusal) else None
        return Rules(jvp, vjp, batch, back, None if self.derivative_of is None else program(self.derivative_of))

    def derivative(self, moves: Sequence[bool], reverse: bool) -> Derivative | Refusal:
        """The derivative for the operands marked in `moves`, which are not captured."""
        rules = (self.vjp or self.jvp) if reverse else (self.jvp or self.vjp)

        def rank(rule: Derivative | Refusal) -> tuple[bool, int, bool]:
            covers = all([covered or not m for m, covered in zip(moves, rule.moving, strict=True)])
            return not covers, sum(rule.moving), isinstance(rule, Refusal)

        return min(rules, key=rank)


@final
@record
class Function(Record):
    """`body`, whose first `captured` operands are values that it or its rules close over, with its rules."""

    name: ClassVar[str] = "function"
    body: Jaxpr
    captured: int = 0
    rules: Rules = Rules()

    @property
    def moving(self) -> Mask:
        """The operands that derivative rules may be about."""
        return tuple([k >= self.captured and a.inexact for k, a in enumerate(self.body.in_avals)])

    @property
    def inexact(self) -> Mask:
        """The results that have tangents."""
        return tuple([a.inexact for a in self.body.out_avals])

    @property
    def parts(self) -> list[Part]:
        """The programs, in the order of the fields."""
        rules, back = self.rules, self.rules.inverse
        others = [rule.body for rule in rules.batch]
        others += [j for j in (back.inverse, back.ivjp) if j] if isinstance(back, InverseRule) else []
        return [
            (self.body, True, 0),
            *[part for rule in rules.derivatives for part in rule.parts],
            *[(j, False, 0) for j in others],
            *([] if rules.derivative_of is None else [(rules.derivative_of, True, 0)]),
        ]

    def check(self, name: str) -> None:
        """Raises: ParameterError for rules that do not fit the body."""
        body, rules, n = self.body, self.rules, self.captured
        ins, outs = body.in_avals, body.out_avals
        if not 0 <= n <= len(ins):
            raise ParameterError(
                f"{name}: captured is {n}, {body.name} has {len(ins)} operands",
                remedy="captured operands come first in the body",
            )
        if rules.derivative_of is not None:
            check_body_type(name, "program of derivatives", rules.derivative_of, ins, outs)
        for rule in (*rules.jvp, *rules.vjp):
            if len(rule.moving) != len(ins):
                raise ParameterError(
                    f"{name}: a rule has {len(rule.moving)} marks for {len(ins)} operands",
                    remedy="mark the operands whose tangents do not vanish",
                )
            if any([of and not m for of, m in zip(rule.moving, self.moving, strict=True)]):
                raise ParameterError(
                    f"{name}: a rule is about tangents of operands that have none",
                    remedy="mark inexact operands behind the captured ones",
                )
            if isinstance(rule, Derivative):
                rule.check(name, ins, outs)
        for batch in rules.batch:
            stacks = (*ins[:n], *[stacked(a, batch.size) for a in ins[n:]])
            role, wants = f"vmap rule of size {batch.size}", tuple([stacked(a, batch.size) for a in outs])
            check_body_type(name, role, batch.body, stacks, wants)
        if isinstance(rules.inverse, InverseRule):
            rules.inverse.check(name, self)

    def pruned(self, used: Mask) -> tuple[Function, Mask]:
        """The function with the results marked, and the operands that are left: the body or a rule reads them.

        An inverse reads all results. If one is not used, there is no inverse.
        """

        def kept(jaxpr: Jaxpr) -> Jaxpr:
            return dce(with_outs(jaxpr, select_by_mask(jaxpr.outs, used)))

        def pruned(rule: Derivative) -> Derivative:
            made = rule.restricted((True,) * sum(rule.moving), select_by_mask(used, self.inexact), used)
            return replace(made, forward=dce(made.forward))

        body, rules = kept(self.body), self.rules.each(pruned, kept)
        reads = [drop_unread_operands(j)[1] for j in (body, *rules.programs)] + [
            rule.reads for rule in rules.derivatives
        ]
        left = tuple([any(marks) for marks in zip(*reads, strict=True)])
        made = rules.each(
            lambda rule: rule.over(left, sum(used)), lambda j: _over(j, left), lambda rule: rule.over(left)
        )
        made = made if all(used) else replace(made, inverse=None)
        return Function(_over(body, left), sum(left[: self.captured]), made), left

    def batched(self, ctx: BatchCtx, dims: Dims, body: Jaxpr | None = None) -> tuple[Function, Dims]:
        """The function of a stack, and the batch axes of its results. `body`: the program of a batch rule."""
        rules, n = self.rules, self.captured
        found = [ctx.recur(self.body, dims)[1] if body is None else (0,) * len(self.body.outs)]
        found += [ctx.recur(j, dims)[1] for j in (rules.derivative_of,) if j is not None]
        found += [at for rule in rules.derivatives for at in rule.result_dims(ctx, dims, self.body.out_avals)]
        # all programs of the function have the axis at one place of a result
        out_dims = tuple([ds[0] if all([d == ds[0] for d in ds]) else 0 for ds in zip(*found, strict=True)])
        back = rules.inverse
        if isinstance(back, InverseRule) and back.ivjp is not None:
            # a cotangent that all examples share would be counted once for each example
            out_dims = tuple([0 if d is None else d for d in out_dims])
        after = tuple([None if d is None else d + 1 for d in out_dims])
        past = (*dims[:n], *[None if d is None else d + 1 for d in dims[n:]])
        made = replace(rules, batch=()).each(
            lambda rule: rule.batched(ctx, dims, out_dims, self.inexact), lambda j: ctx.recur(j, dims, out_dims)[0]
        )
        apart = [ctx.rule_apart(r.body, r.size) if r.any_size else (r.size, r.body) for r in rules.batch]
        batch = tuple([
            replace(rule, size=size, body=ctx.recur(body, past, after)[0])
            for rule, (size, body) in zip(rules.batch, apart, strict=True)
        ])  # fmt: skip
        inverse = back.batched(ctx, dims, out_dims, self) if isinstance(back, InverseRule) else back
        made = replace(made, batch=batch, inverse=inverse)
        return Function(ctx.recur(self.body, dims, out_dims)[0] if body is None else body, n, made), out_dims


def _over(jaxpr: Jaxpr, left: Mask) -> Jaxpr:
    """The program without the operands that are not marked, which it does not read."""
    slim, read = drop_unread_operands(jaxpr)
    return with_operands(slim, read, jaxpr.in_avals, left)


def stacked(aval: Aval, size: int) -> Aval:
    """The type of a stack along the first axis."""
    return aval.with_shape((size, *aval.shape))
