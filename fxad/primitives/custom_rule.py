"""The derivative of a function as its user gave it.

All have one form, whoever gave them:

- `forward`: operands -> results, then residuals;
- `push`: tangents of the moving operands, then residuals -> tangents of the inexact results;
- `pull`: cotangents of the inexact results, then residuals -> cotangents of the moving operands.

A rule for tangents is (forward, push), its pull is the transpose; a rule for cotangents is (forward, push, pull), where
`push` is the transpose of what was given. So either of them serves forward mode and reverse mode. A rule of one
program, operands -> results, says that the derivatives are those of that program, which may have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

from fxad.core.dataclasses import dataclass
from fxad.core.dce import drop_unread_operands, remove_dead_eqns
from fxad.ir import Atom, Aval, BatchCtx, Dims, Jaxpr, JvpCtx, Lin, Primitive, Prune, Tangent
from fxad.primitives.control.bodies import mask_or, select_by_mask, spread_tangents, with_operands, with_outs
from fxad.primitives.control.call import Call, call_primal
from fxad.primitives.linear_call import LinearCall, batch_adjoint, check_body_type, drop_unused_residuals
from fxad.primitives.linearity import with_zero_operands


@final
@dataclass(frozen=True, slots=True)
class Given:
    """A rule: () or (program,) or (forward, push) or (forward, push, pull), about the operands marked in `moving` of a
    function from `ins` to `outs`."""

    rule: tuple[Jaxpr, ...]
    moving: tuple[bool, ...]
    ins: tuple[Aval, ...]
    outs: tuple[Aval, ...]

    @property
    def inexact(self) -> tuple[bool, ...]:
        """Which results have tangents."""
        return tuple([a.inexact for a in self.outs])

    @property
    def linear(self) -> tuple[int, ...]:
        """Of how many of its first operands each program of the rule is a linear map."""
        return (0, sum(self.moving), sum(self.inexact))[: len(self.rule)]

    def check(self, name: str) -> None:
        """Raises: ParameterError for a rule that does not fit the function."""
        if len(self.rule) < 2:
            for plain in self.rule:
                check_body_type(name, "program of derivatives", plain, self.ins, self.outs)
            return
        forward, push, *pulls = self.rule
        moving, inexact = select_by_mask(self.ins, self.moving), select_by_mask(self.outs, self.inexact)
        residuals = forward.out_avals[len(self.outs) :]
        check_body_type(name, "forward", forward, self.ins, (*self.outs, *residuals))
        check_body_type(name, "push", push, (*moving, *residuals), inexact)
        for pull in pulls:
            check_body_type(name, "pull", pull, (*inexact, *residuals), moving)

    # ------------------------------------------------------------------------------------------------- what is dead

    def without_results(self, used: tuple[bool, ...], prune: Prune) -> tuple[tuple[Jaxpr, ...], tuple[bool, ...]]:
        """The rule about the results in use, with all operands; and which of them it reads, the tangents included."""
        if len(self.rule) < 2:
            rule: tuple[Jaxpr, ...] = ()
            reads = (False,) * len(self.ins)
            for plain in self.rule:
                slim, reads = prune(plain, used)
                rule = (with_operands(slim, reads, self.ins, (True,) * len(reads)),)
            return rule, reads
        forward, push, *pulls = self.rule
        n, given = len(used), select_by_mask(used, self.inexact)
        if not all(given):
            push = with_outs(push, select_by_mask(push.outs, given))
            pulls = [with_zero_operands(pull, given)[0] for pull in pulls]
        counts = [sum(self.moving), sum(given)]
        maps, left = drop_unused_residuals([remove_dead_eqns(j) for j in (push, *pulls)], counts[: 1 + len(pulls)])
        whole = with_outs(forward, (*select_by_mask(forward.outs[:n], used), *select_by_mask(forward.outs[n:], left)))
        slim, mask = prune(whole, (True,) * len(whole.outs))
        dots = iter(drop_unread_operands(maps[0])[1])
        reads = mask_or(mask, [m and next(dots) for m in self.moving])
        return (with_operands(slim, mask, forward.in_avals, (True,) * len(mask)), *maps), reads

    # ------------------------------------------------------------------------------------------------------ batching

    def result_dims(self, ctx: BatchCtx, dims: Dims) -> list[Dims]:
        """Where results of the forward program, and their tangents, carry the mapped axis by themselves."""
        if len(self.rule) < 2:
            return [ctx.recur(plain, dims)[1] for plain in self.rule]
        n = len(self.outs)
        forward = ctx.recur(self.rule[0], dims)[1]
        push = iter(ctx.recur(self.rule[1], (*select_by_mask(dims, self.moving), *forward[n:]))[1])
        dots = [next(push) if a.inexact else d for a, d in zip(self.outs, forward, strict=False)]
        return [forward[:n], tuple(dots)]

    def batched(self, ctx: BatchCtx, dims: Dims, out_dims: Dims) -> tuple[Jaxpr, ...]:
        """The rule over stacks; cotangents of operands that are the same for all examples are summed."""
        if len(self.rule) < 2:
            return tuple([ctx.recur(plain, dims, out_dims)[0] for plain in self.rule])
        residuals = ctx.recur(self.rule[0], dims)[1][len(out_dims) :]
        moving, inexact = select_by_mask(dims, self.moving), select_by_mask(out_dims, self.inexact)
        forward, _ = ctx.recur(self.rule[0], dims, (*out_dims, *residuals))
        push, _ = ctx.recur(self.rule[1], (*moving, *residuals), inexact)
        return forward, push, *[batch_adjoint(ctx, pull, inexact, residuals, moving) for pull in self.rule[2:]]

    # ------------------------------------------------------------------------------------------------- derivatives

    def jvp(
        self,
        ctx: JvpCtx,
        primals: tuple[Atom, ...],
        tangents: tuple[Tangent, ...],
        taken: Callable[[Jaxpr], Jaxpr],
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]] | None:
        """Results and tangents by this rule, specialised to the tangents that do not vanish; None where all tangents of
        results do. `taken` is what is done with a program of the rule that leaves its equation."""
        forward, *maps = self.rule
        if not maps:
            return Call(taken(forward)).jvp(ctx, primals, tangents)
        lins = [t for t in tangents if isinstance(t, Lin)]
        live = select_by_mask([isinstance(t, Lin) for t in tangents], self.moving)
        push, reached = with_zero_operands(maps[0], live)
        if not any(reached):
            return None
        maps[0] = with_outs(push, select_by_mask(push.outs, reached))
        if len(maps) > 1:
            maps[1], _ = with_zero_operands(with_outs(maps[1], select_by_mask(maps[1].outs, live)), reached)
        counts = [len(lins), sum(reached)]
        slim, needed = drop_unused_residuals(maps, counts[: len(maps)])
        n = len(self.outs)
        forward = remove_dead_eqns(with_outs(forward, (*forward.outs[:n], *select_by_mask(forward.outs[n:], needed))))
        outs, residuals = call_primal(ctx, taken(forward), n, primals)
        slim = [taken(j) for j in slim]
        linear: Primitive = Call(slim[0]) if len(slim) == 1 else LinearCall(slim[0], slim[1], len(lins))
        given = iter(reached)
        nonzero = [m and next(given) for m in self.inexact]
        return outs, spread_tangents(ctx.lin(linear, *lins, *residuals), nonzero, self.outs)


def without_operands(rule: tuple[Jaxpr, ...], needed: tuple[bool, ...], moving: Sequence[bool]) -> Iterator[Jaxpr]:
    """The programs of a rule without operands that it does not read; `moving`: which of the moving ones are left."""
    for k, jaxpr in enumerate(rule):
        if k == 2:
            yield remove_dead_eqns(with_outs(jaxpr, select_by_mask(jaxpr.outs, moving)))
        else:
            slim, mask = drop_unread_operands(jaxpr)
            wants = needed if k == 0 else (*moving, *[True] * (len(mask) - len(moving)))
            yield with_operands(slim, mask, jaxpr.in_avals, wants)
