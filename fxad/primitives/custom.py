"""Functions with rules of their own: `custom_call`.

Rules are programs, never callables. A rule that calls its own function has a call `again` in it, which stands for the
function whose rule it is, as a bound variable does: it is a value, and it ends. When a rule is taken out of its
equation (to be differentiated by it, say), such calls in it become the function again, with all its rules: `unfolded`.
So derivatives go on to any order. Decision: docs/adr/0032.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import ClassVar, Final, final

from fxad.core.builder import Builder
from fxad.core.dce import prune, remove_dead_eqns
from fxad.core.layout import Layout
from fxad.errors import NotDifferentiableError, ParameterError
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Cotangent,
    Dims,
    Eqn,
    Hole,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    LinearizedBody,
    Lit,
    Primitive,
    Prune,
    Tangent,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.control.bodies import (
    instantiate_linear_outs,
    instantiate_outs,
    mask_or,
    select_by_mask,
    spread_tangents,
    with_operands,
    with_outs,
)
from fxad.primitives.control.call import Call, check_operands, layout_with_rules
from fxad.primitives.control.effects import without_checks, without_effects
from fxad.primitives.custom_again import Batched, Reads, Ruled, Stacks, free_levels, knowing, unfolded
from fxad.primitives.custom_rule import Given, without_operands
from fxad.primitives.linear_call import LinearCall, batch_adjoint, check_body_type
from fxad.primitives.linearity import is_linear, is_zero
from fxad.primitives.shape import broadcast_to_axis

_MANY: Final = 32  # results of a function of which it is not asked what each of them needs


@final
@primitive
class CustomCall(Ruled, Linear):
    """`body` applied to the operands, with rules of its own for the transformations it has rules for.

    Type: (operands of `body`) -> (results of `body`).
    Rule: forward mode takes `jvp_rule`, or else `vjp_rule`; linearize and reverse mode `vjp_rule`, or else `jvp_rule`;
          with neither, the derivative is that of `body`; a `jvp_rule` of one program says that it is that of this. The
          first `captured` operands are values that function or rules closed over: the rules say nothing about their
          derivatives, so a tangent there is refused. Batched, every rule is batched; `vmap_rules` are (axis size, body
          over stacks along the first axis). `refused` are rules that raised an error when they were traced: what for
          ("jvp", "vjp", "inverse"), the operands that move, message and remedy of the error of who uses them. With
          `vmap_rules` alone the derivative has the derivatives of those, and the equation is linear where all bodies
          are.
          `inverse_rule` is (inverse,) or (inverse, ivjp). inverse:
          results, then the operands marked in `held` -> the other operands. ivjp: results, held operands, cotangents
          of the inexact results -> the other operands, then cotangents of the moving ones. Batched, all operands that
          are not held are mapped.
          A call with `again` >= 0 stands in a rule of its own function, so many levels of rules below it; `stacks`
          says how it was since batched and reduced. `reads`: for each result the operands that it needs, in the
          function or in a rule; () where that is not known. `origin`: the function that such calls in the rules stand
          for, a program of one equation, where it is another one than this: batched, or without what is dead.
          `partial`: rules for when no other operands move than those marked; the one for fewest is taken.
          A `tolerance` says that `invertible` made the call, and which error of the reconstruction its rule takes.
    """

    name: ClassVar[str] = "custom_call"
    body: Jaxpr
    captured: int
    jvp_rule: tuple[Jaxpr, ...]  # () or (forward, push) or (program,)
    vjp_rule: tuple[Jaxpr, ...]  # () or (forward, push, pull)
    vmap_rules: tuple[tuple[int, Jaxpr], ...]
    refused: tuple[tuple[str, tuple[bool, ...], str, str], ...] = ()
    inverse_rule: tuple[Jaxpr, ...] = ()  # () or (inverse,) or (inverse, ivjp)
    held: tuple[bool, ...] = ()
    again: int = -1
    stacks: Stacks = ()
    reads: Reads = ()
    origin: tuple[Jaxpr, ...] = ()  # () or (function,)
    partial: tuple[tuple[tuple[bool, ...], tuple[Jaxpr, ...]], ...] = ()  # operands that move, a rule like the others
    tolerance: Lit | None = None

    @property
    def value(self) -> Jaxpr:
        return self.body

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        stacked, partial = [rule for _, rule in self.vmap_rules], [j for _, rule in self.partial for j in rule]
        return self.body, *self.jvp_rule, *self.vjp_rule, *stacked, *self.inverse_rule, *partial

    @property
    def layout(self) -> Layout:
        rules, others = self._derivatives, len(self.vmap_rules) + len(self.inverse_rule)
        linear = (0, *rules[0].linear, *rules[1].linear, *[0] * others, *[n for rule in rules[2:] for n in rule.linear])
        # the forward programs of rules are what is differentiated in place of the function
        forward = [[k == 0 for k in range(len(rule.rule))] for rule in rules]
        stores = (True, *forward[0], *forward[1], *[False] * others, *[first for rule in forward[2:] for first in rule])
        return layout_with_rules(self.bodies, 0, stores=stores, linear=linear, label="call")

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> CustomCall:
        given = iter(bodies)
        body, jvp, vjp = next(given), tuple(islice(given, len(self.jvp_rule))), tuple(islice(given, len(self.vjp_rule)))
        stacked = tuple([(size, next(given)) for size, _ in self.vmap_rules])
        back = tuple(islice(given, len(self.inverse_rule)))
        partial = tuple([(live, tuple(islice(given, len(rule)))) for live, rule in self.partial])
        return replace(
            self, body=body, jvp_rule=jvp, vjp_rule=vjp, vmap_rules=stacked, inverse_rule=back, partial=partial
        )

    def with_rules(self, bodies: tuple[Jaxpr, ...], origin: tuple[Jaxpr, ...]) -> CustomCall:
        return replace(self.with_bodies(bodies), origin=origin)

    def at(self, level: int, reads: Reads | None = None) -> CustomCall:
        return replace(self, again=level, reads=self.reads if reads is None else reads)

    def without_results(self, eqn: Eqn, used: tuple[bool, ...], prune: Prune) -> Eqn:
        """Without results nobody uses, and operands that neither the function nor a rule then reads. An inverse reads
        all results: where one is not used, there is none."""
        if self.again >= 0:
            return self._less_again(eqn, used, prune)
        if self.inverse_rule and all(used):
            return eqn
        made, needed = self._less(used, prune)
        if made == self:
            return eqn
        return Eqn(self._origin_of(made), select_by_mask(eqn.ins, needed), select_by_mask(eqn.outs, used), eqn.source)

    def _less(self, used: tuple[bool, ...], prune: Prune) -> tuple[CustomCall, tuple[bool, ...]]:
        """This call with the results in use, and which operands are left."""
        ins, n = self.body.in_avals, self.captured
        body, read = prune(self.body, used)
        stacked = [prune(rule, used) for _, rule in self.vmap_rules]
        rules = [rule.without_results(used, prune) for rule in self._derivatives]
        needed = read
        for mask in [mask for _, mask in (*stacked, *rules)]:
            needed = mask_or(needed, mask)
        stacks = [rule.in_avals for _, rule in self.vmap_rules]
        lives = [select_by_mask(needed, rule.moving) for rule in self._derivatives]
        left = [tuple(without_operands(rule, needed, live)) for (rule, _), live in zip(rules, lives, strict=True)]
        every = zip(self.vmap_rules, stacked, stacks, strict=True)
        kept = [rule for rule in self.refused if rule[0] != "inverse" or all(used)]
        made = CustomCall(
            with_operands(body, read, ins, needed),
            sum(needed[:n]),
            left[0],
            left[1],
            tuple([(size, with_operands(rule, mask, avals, needed)) for (size, _), (rule, mask), avals in every]),
            tuple([(kind, select_by_mask(live, needed), message, remedy) for kind, live, message, remedy in kept]),
            origin=self.origin,
            partial=tuple(
                [(select_by_mask(live, needed), rule) for (live, _), rule in zip(self.partial, left[2:], strict=True)]
            ),
        )
        return made, needed

    def _less_again(self, eqn: Eqn, used: tuple[bool, ...], prune: Prune) -> Eqn:
        """A call in a rule of its function, without operands that the function then does not read, nor its rules."""
        if all(used) or not self.reads:
            return eqn
        left = select_by_mask(self.reads, used)
        needed = tuple([any(column) for column in zip(*left, strict=True)])
        body, read = prune(self.body, used)
        gone = (-1, tuple([0 if n else None for n in needed]), tuple([0 if u else None for u in used]))
        made = CustomCall(
            with_operands(body, read, self.body.in_avals, needed),
            sum(needed[: self.captured]),
            (),
            (),
            (),
            again=self.again,
            stacks=(*self.stacks, gone),
            reads=tuple([select_by_mask(row, needed) for row in left]),
        )
        return Eqn(made, select_by_mask(eqn.ins, needed), select_by_mask(eqn.outs, used), eqn.source)

    @property
    def _derivatives(self) -> tuple[Given, ...]:
        """The rules for tangents and for cotangents; then those for fewer tangents."""
        ins, outs, moving = self.body.in_avals, self.body.out_avals, self.moving
        both = (moving, self.jvp_rule), (moving, self.vjp_rule)
        return tuple([Given(rule, live, ins, outs) for live, rule in (*both, *self.partial)])

    @property
    def moving(self) -> tuple[bool, ...]:
        """Which operands the derivative rules are about."""
        return tuple([k >= self.captured and a.inexact for k, a in enumerate(self.body.in_avals)])

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        ins, outs = self.body.in_avals, self.body.out_avals
        if not 0 <= self.captured <= len(ins):
            raise ParameterError(
                f"{self.name}: captured is {self.captured}, {self.body.name} has {len(ins)} operands",
                remedy="captured operands come first in the body",
            )
        if len(self.jvp_rule) > 2 or len(self.vjp_rule) not in (0, 3):
            raise ParameterError(
                f"{self.name}: a jvp_rule is (forward, push) or (program,), a vjp_rule (forward, push, pull), got "
                f"{len(self.jvp_rule)} and {len(self.vjp_rule)} programs",
                remedy="give all programs of a rule, or none",
            )
        moving, inexact = select_by_mask(ins, self.moving), tuple([a for a in outs if a.inexact])
        for live, _ in self.partial:
            if len(live) != len(ins) or any([f and not m for f, m in zip(live, self.moving, strict=True)]):
                raise ParameterError(
                    f"{self.name}: a partial rule is about operands that its rules are not about",
                    remedy="mark inexact operands behind the captured ones",
                )
        for rule in self._derivatives:
            rule.check(self.name)
        for kind, live, *_ in self.refused:
            if kind not in ("jvp", "vjp", "inverse") or len(live) != len(ins):
                raise ParameterError(
                    f"{self.name}: a refused rule is {kind!r} with {len(live)} marks for {len(ins)} operands",
                    remedy="it is 'jvp', 'vjp' or 'inverse', with a mark for each operand",
                )
        n = self.captured
        for size, body in self.vmap_rules:
            stacks = (*ins[:n], *[_stacked(a, size) for a in ins[n:]])
            check_body_type(
                self.name, f"vmap rule of size {size}", body, stacks, tuple([_stacked(a, size) for a in outs])
            )
        self._check_inverse(moving, inexact)
        if self.again >= 0 and len(self.bodies) > 1:
            raise ParameterError(
                f"{self.name}: a call in its own rule has the rules of its function, and none besides",
                remedy="leave out the rules, or give again=-1",
            )
        check_operands(self.name, self.body, avals)
        return outs

    def _check_inverse(self, moving: tuple[Aval, ...], inexact: tuple[Aval, ...]) -> None:
        """Raises: ParameterError for an inverse rule that does not fit the body."""
        ins, outs, n = self.body.in_avals, self.body.out_avals, len(self.inverse_rule)
        if n > 2 or len(self.held) != (len(ins) if n else 0):
            raise ParameterError(
                f"{self.name}: an inverse_rule is (inverse,) or (inverse, ivjp), with a mark in held for each operand, "
                f"got {n} programs, and {len(self.held)} marks for {len(ins)} operands",
                remedy="give the inverse, or it and the ivjp, and a mark for each operand; or neither",
            )
        free = select_by_mask(ins, [not h for h in self.held]) if n else ()
        for inverse in self.inverse_rule[:1]:
            check_body_type(self.name, "inverse", inverse, (*outs, *select_by_mask(ins, self.held)), free)
        for ivjp in self.inverse_rule[1:]:
            check_body_type(
                self.name, "ivjp", ivjp, (*outs, *select_by_mask(ins, self.held), *inexact), (*free, *moving)
            )

    # ---------------------------------------------------------------------------------------------------- batching

    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        n = self.captured
        if self.again >= 0:
            # a rule of the function may read what the function does not: it is not known here
            alone, where = ctx.recur(self.body, dims, (0,) * len(self.body.outs))
            stacks = (*self.stacks, (ctx.size, dims, where))
            made = CustomCall(alone, n, (), (), (), again=self.again, stacks=stacks, reads=self.reads)
            return ctx(made, *args), where
        args, dims = self._mapped_alike(ctx, args, dims)
        body = dict(self.vmap_rules).get(ctx.size) if dims[:n] == (None,) * n else None
        if body is None:
            found = [ctx.recur(self.body, dims)[1]]
        else:
            given = zip(args[n:], dims[n:], strict=True)
            args = (*args[:n], *[broadcast_to_axis(ctx, a, d, ctx.size, 0) for a, d in given])
            dims = (*dims[:n], *[0] * len(args[n:]))
            found = [(0,) * len(self.body.outs)]
            body = self.taken(body, ctx.batched)
        for rule in self._derivatives:
            found += rule.result_dims(ctx, dims)
        # all programs of the equation carry the axis at one place of a result
        out_dims = tuple([ds[0] if all([d == ds[0] for d in ds]) else 0 for ds in zip(*found, strict=True)])
        if len(self.inverse_rule) > 1:  # a cotangent that is the same for all would be counted for each
            out_dims = tuple([0 if d is None else d for d in out_dims])
        after = tuple([None if d is None else d + 1 for d in out_dims])
        past = (*dims[:n], *[None if d is None else d + 1 for d in dims[n:]])
        rules = [rule.batched(ctx, dims, out_dims) for rule in self._derivatives]
        made = CustomCall(
            ctx.recur(self.body, dims, out_dims)[0] if body is None else body,
            n,
            rules[0],
            rules[1],
            tuple([(size, ctx.recur(rule, past, after)[0]) for size, rule in self.vmap_rules]),
            self.refused,
            self._batched_inverse(ctx, dims, out_dims),
            self.held,
            origin=self.origin,
            partial=tuple([(live, rule) for (live, _), rule in zip(self.partial, rules[2:], strict=True)]),
            tolerance=self.tolerance,
        )
        return ctx(self._origin_of(made), *args), out_dims

    def _mapped_alike(self, ctx: BatchCtx, args: tuple[Atom, ...], dims: Dims) -> tuple[tuple[Atom, ...], Dims]:
        """What an inverse reconstructs from results that are mapped is mapped: so are those operands then."""
        if not self.inverse_rule:
            return args, dims
        same = [d is None and not h for d, h in zip(dims, self.held, strict=True)]
        spread = [broadcast_to_axis(ctx, a, None, ctx.size, 0) if s else a for a, s in zip(args, same, strict=True)]
        return tuple(spread), tuple([0 if s else d for d, s in zip(dims, same, strict=True)])

    def _batched_inverse(self, ctx: BatchCtx, dims: Dims, out_dims: Dims) -> tuple[Jaxpr, ...]:
        if not self.inverse_rule:
            return ()
        known = (*out_dims, *select_by_mask(dims, self.held))
        free = select_by_mask(dims, [not h for h in self.held])
        inverse, _ = ctx.recur(self.inverse_rule[0], known, free)
        cts = select_by_mask(out_dims, [a.inexact for a in self.body.out_avals])
        wants = (*free, *select_by_mask(dims, self.moving))
        return inverse, *[batch_adjoint(ctx, ivjp, (), (*known, *cts), wants) for ivjp in self.inverse_rule[1:]]

    # ----------------------------------------------------------------------------------------------- differentiation

    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        moves = [isinstance(t, Lin) for t in tangents]
        if not self.has_derivative or (self.tolerance is not None and any(moves[: self.captured])):
            # a call in its own rule is here the plain function: the rule itself is being differentiated;
            # where `invertible` found no derivative, that of the function itself says why, and where
            return self._derived(ctx, primals, tangents)
        self._check_moving(tangents)
        rule = self._rule_for(moves, "vjp" if ctx.split else "jvp")
        found = rule.jvp(ctx, primals, tangents, lambda jaxpr: self.taken(jaxpr, ctx.batched))
        if found is None:
            return ctx(self, *primals), tuple([Zero(a) for a in self.body.out_avals])
        return found

    def _derived(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        """The derivative of the function itself, which over stacks is that of the rules for stacks.

        Rule: in reverse mode the linear map has the operands as residuals: what a rule computes of a stack has no parts
              that belong to one example, so there is nothing else to be stored for one.
        """
        moves = tuple([isinstance(t, Lin) for t in tangents])
        rules = [(size, _plainly(rule, self.body, ctx.batched)) for size, rule in self.vmap_rules]
        outer = any([k > 0 for rule in self.bodies[1:] for k in free_levels(rule)])
        if self.again >= 0 or not rules or outer or any(moves[: self.captured]):
            return Call(self.body).jvp(ctx, primals, tangents)
        n, m, lins = self.captured, len(self.body.outs), [t for t in tangents if isinstance(t, Lin)]
        programs = [self.body, *[rule for _, rule in rules]]
        if ctx.split:
            halves = [ctx.recur(without_checks(without_effects(j)), moves) for j in programs]
            reached = [any(marks) for marks in zip(*[half.out_nonzero for half in halves], strict=True)]
            made = self._over_stacks([_map_of_operands(half, n, reached) for half in halves], n)
            outs = ctx(self, *primals)
            dots = ctx.lin(made, *primals[:n], *lins, *primals[n:]) if any(reached) else ()
        else:
            found = [ctx.recur_fused(j, moves) for j in programs]
            reached = [any(marks) for marks in zip(*[nonzero for _, nonzero in found], strict=True)]
            avals = [j.out_avals for j in programs]
            fused = [
                with_outs(both, (*both.outs[:m], *instantiate_outs(both.outs[m:], nonzero, types, reached)))
                for (both, nonzero), types in zip(found, avals, strict=True)
            ]
            both = ctx(self._over_stacks(fused, n), *primals, *[t.var for t in lins])
            outs, dots = both[:m], tuple([Lin(v) for v in both[m:]])
        return outs, spread_tangents(dots, reached, self.body.out_avals)

    def _over_stacks(self, programs: Sequence[Jaxpr], captured: int) -> CustomCall:
        """Another function with rules for stacks of the same sizes: it, then the rules."""
        sizes = [size for size, _ in self.vmap_rules]
        return CustomCall(programs[0], captured, (), (), tuple(zip(sizes, programs[1:], strict=True)))

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        n, rules = self.captured, self.bodies[1:]
        alone = len(rules) == len(self.vmap_rules) > 0 and self.again < 0 and not self.refused
        return alone and not any(mask[:n]) and all([is_linear(j, mask) for j in (self.body, *rules)])

    def transpose(
        self, ctx: TransposeCtx, cts: tuple[Cotangent, ...], args: tuple[Atom | Hole, ...]
    ) -> tuple[Cotangent | None, ...]:
        n = self.captured
        holes = tuple([isinstance(a, Hole) for a in args])
        given = [ct for ct in cts if not isinstance(ct, Zero)]
        known = [a for a in args if not isinstance(a, Hole)]
        live = [not isinstance(ct, Zero) for ct in cts]
        adjoints = [ctx.recur(with_outs(j, select_by_mask(j.outs, live)), holes) for j in (self.body, *self.bodies[1:])]
        k = len(given)
        ordered = [_reordered(j, (*range(k, k + n), *range(k), *range(k + n, len(j.ins)))) for j in adjoints]
        found = ctx(self._over_stacks(ordered, n), *known[:n], *given, *known[n:])
        vanish = [all(map(is_zero, outs)) for outs in zip(*[j.outs for j in adjoints], strict=True)]
        bars = iter([Zero(v.aval) if z else v for v, z in zip(found, vanish, strict=True)])
        return tuple([next(bars) if hole else None for hole in holes])

    @property
    def has_derivative(self) -> bool:
        """Returns True if rules give the derivative, even if all of them raised an error."""
        return bool(self.jvp_rule or self.vjp_rule or self.partial or any([k != "inverse" for k, *_ in self.refused]))

    def _rule_for(self, moves: Sequence[bool], first: str) -> Given:
        """The rule of the kind `first`, or else of the other, that is about the fewest operands but all that move.

        Raises: NotDifferentiableError where that one raised an error.
        """
        given = [("vjp" if len(rule.rule) == 3 else "jvp", rule) for rule in self._derivatives if rule.rule]
        kinds = {kind for kind, *_ in (*given, *self.refused)}
        kind = first if first in kinds else "jvp" if first == "vjp" else "vjp"

        def number(about: Sequence[bool]) -> int:
            """How many operands a rule is about; more than there are where one moves that it is not about."""
            return len(about) + 1 if any([m and not a for m, a in zip(moves, about, strict=True)]) else sum(about)

        rules = [rule for k, rule in given if k == kind]
        raised = [rule for rule in self.refused if rule[0] == kind]
        best = min([number(about) for about in (*[r.moving for r in rules], *[r[1] for r in raised])])
        for rule in rules:
            if number(rule.moving) == best:
                return rule
        message, remedy = next((message, remedy) for _, about, message, remedy in raised if number(about) == best)
        raise NotDifferentiableError(f"{self.name}: {message}", remedy=remedy)

    def _check_moving(self, tangents: tuple[Tangent, ...]) -> None:
        """Raises: NotDifferentiableError for a tangent of a captured value."""
        for k, t in enumerate(tangents[: self.captured]):
            if isinstance(t, Lin):
                raise NotDifferentiableError(
                    f"{self.name}: {self.body.name} or its rule closes over a value of type {t.aval} (operand {k}) "
                    "that depends on what is differentiated; its rules say nothing about it",
                    remedy="pass the value as an argument, or close over stop_gradient of it",
                )

    # -------------------------------------------------------------------------------------------- calls in own rules

    @property
    def function(self) -> Jaxpr:
        """The function that calls in the rules stand for, as a program of one equation."""
        if self.origin:
            return self.origin[0]
        b = Builder()
        return b.build(b(self, *b.inputs(self.body.in_avals)), self.body.name)

    def taken(self, rule: Jaxpr, batched: Batched) -> Jaxpr:
        """A program of a rule, to stand outside of this equation: calls in it are calls of the function."""
        return unfolded(rule, self.function, batched) if free_levels(rule) else rule

    def settled(self) -> CustomCall:
        """This call, whose rules know of calls again which operands each result of the function needs.

        What a result needs in a rule depends on what it needs of such calls: from what the function itself reads, more
        is found until nothing is added.
        """
        n = len(self.body.outs)
        if not 1 < n <= _MANY or not any([0 in free_levels(rule) for rule in self.bodies[1:]]):
            return self
        one = [tuple([k == j for k in range(n)]) for j in range(n)]
        reads, made = tuple([prune(self.body, used)[1] for used in one]), self
        while True:
            rules = [knowing(rule, reads) for rule in self.bodies[1:]]
            made = self.with_bodies((self.body, *rules))
            found = tuple([made._less(used, prune)[1] for used in one])
            if found == reads:
                return made
            reads = found

    def _origin_of(self, made: CustomCall) -> CustomCall:
        """`made`, what this call has become under another type: calls in its rules still stand for this function."""
        if made.origin or not any([0 in free_levels(rule) for rule in made.bodies[1:]]):
            return made
        return replace(made, origin=(self.function,))


def _plainly(rule: Jaxpr, function: Jaxpr, batched: Batched) -> Jaxpr:
    """A rule in which calls of its function are the plain function: what is made of the rule is another one's."""
    return unfolded(rule, function, batched) if 0 in free_levels(rule) else rule


def _map_of_operands(half: LinearizedBody, captured: int, reached: Sequence[bool]) -> Jaxpr:
    """A linear half as a program of captured operands, tangents, and the other operands, which are its residuals."""
    b = Builder()
    primal, n_dots = half.primal, len(half.linear.ins) - half.n_res
    first = b.inputs(primal.in_avals[:captured])
    dots = b.inputs(half.linear.in_avals[:n_dots])
    known = b.inline(primal, (*first, *b.inputs(primal.in_avals[captured:])))
    outs = b.inline(instantiate_linear_outs(half, reached), (*dots, *known[len(known) - half.n_res :]))
    return remove_dead_eqns(b.build(outs, half.linear.name))


def _reordered(jaxpr: Jaxpr, order: Sequence[int]) -> Jaxpr:
    """The program with its operands in another order."""
    b = Builder()
    new = dict(zip([jaxpr.ins[k] for k in order], b.inputs([jaxpr.in_avals[k] for k in order]), strict=True))
    return b.build(b.inline(jaxpr, [new[v] for v in jaxpr.ins]), jaxpr.name)


def _stacked(aval: Aval, size: int) -> Aval:
    return aval.with_shape((size, *aval.shape))


CUSTOM: Final[tuple[type[Primitive], ...]] = (CustomCall, LinearCall)
