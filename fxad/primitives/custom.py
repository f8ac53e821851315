"""Functions with rules of their own: `custom_call`, and `linear_call` for linear maps given with their adjoint.

Rules are programs, never callables, and all derivatives have one form, whoever gave them:

- `forward`: operands -> results, then residuals;
- `push`: tangents of the moving operands, then residuals -> tangents of the inexact results;
- `pull`: cotangents of the inexact results, then residuals -> cotangents of the moving operands.

The moving operands are the inexact ones that the function did not capture. A rule for tangents is (forward, push), its
pull is the transpose; a rule for cotangents is (forward, push, pull), where `push` is the transpose of what was given.
So either of them serves forward mode and reverse mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, TypeAlias, final

from fxad.builder import Builder
from fxad.errors import NotDifferentiableError, ParameterError
from fxad.interpret import run
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Cotangent,
    Eqn,
    HigherOrder,
    Hlo,
    HloValue,
    Hole,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    NDArray,
    Primitive,
    Prune,
    Tangent,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.liveness import narrow, sweep
from fxad.primitives.control.bodies import either, marked, over, spread_tangents, with_outs
from fxad.primitives.control.call import Call, call_primal, check_operands
from fxad.primitives.linearity import is_zero, without
from fxad.primitives.shape import ReduceSum, broadcast_to_axis

Dims: TypeAlias = tuple[int | None, ...]


@final
@primitive
class LinearCall(HigherOrder, Linear):
    """`body` applied to the operands, of which it is linear in the first `n_linear`; `adjoint` is its transpose there.

    Type: (linear operands, then others) -> results of `body`, where
          `adjoint`: (cotangents of the results, then the others) -> cotangents of the linear operands.
    Rule: transposed, the two change places. With respect to the other operands, the derivative is that of `body`.
    """

    name: ClassVar[str] = "linear_call"
    body: Jaxpr
    adjoint: Jaxpr
    n_linear: int

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return self.body, self.adjoint

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> LinearCall:
        return LinearCall(bodies[0], bodies[1], self.n_linear)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        n, outs = self.n_linear, self.body.out_avals
        if not 0 < n <= len(self.body.ins):
            raise ParameterError(f"{self.name}: n_linear is {n}, {self.body.name} has {len(self.body.ins)} operands")
        linear, known = self.body.in_avals[:n], self.body.in_avals[n:]
        check_type(self.name, "adjoint", self.adjoint, (*outs, *known), linear)
        for what, found in (("linear operand", linear), ("result", outs)):
            for k, aval in enumerate(found):
                if not aval.inexact:
                    raise ParameterError(f"{self.name}: {what} {k} of {self.body.name} is {aval}, which has no tangent")
        check_operands(self.name, self.body, avals)
        return outs

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return run(self.body, args)

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        return hlo.call(self.body, args)

    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        linear, known = dims[: self.n_linear], dims[self.n_linear :]
        body, out_dims = ctx.recur(self.body, dims)
        adjoint = _summed(ctx, self.adjoint, (*out_dims, *known), linear)
        return ctx(LinearCall(body, adjoint, self.n_linear), *args), out_dims

    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        n = self.n_linear
        outs, known = ctx(self, *primals), primals[n:]
        dots = ctx.lin(self, *tangents[:n], *known)
        if any([isinstance(t, Lin) for t in tangents[n:]]):
            fixed = tuple([Zero(a) for a in self.body.in_avals[:n]])
            _, more = Call(self.body).jvp(ctx, primals, (*fixed, *tangents[n:]))
            dots = tuple([ctx.add(a, b) for a, b in zip(dots, more, strict=True)])
        return outs, dots

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        return all(mask[: self.n_linear]) and not any(mask[self.n_linear :])

    def transpose(
        self, ctx: TransposeCtx, cts: tuple[Cotangent, ...], args: tuple[Atom | Hole, ...]
    ) -> tuple[Cotangent | None, ...]:
        given = [ct.instantiate() if isinstance(ct, Zero) else ct for ct in cts]
        known = [a for a in args if not isinstance(a, Hole)]
        bars = ctx(LinearCall(self.adjoint, self.body, len(given)), *given, *known)
        return (*bars, *[None] * len(known))


@final
@primitive
class CustomCall(HigherOrder):
    """`body` applied to the operands, with rules of its own for the transformations it has rules for.

    Type: (operands of `body`) -> (results of `body`).
    Rule: forward mode takes `jvp_rule`, or else `vjp_rule`; linearize and reverse mode `vjp_rule`, or else `jvp_rule`;
          with neither, the derivative is that of `body`. The first `captured` operands are values that function or
          rules closed over: the rules say nothing about their derivatives, so a tangent there is refused. Batched,
          every rule is batched; `vmap_rules` are (axis size, body over stacks along the first axis). A call that is
          `exhausted` stands in its own rule, as deep as rules are traced: no further derivative is known.
          `inverse_rule` is (inverse,) or (inverse, ivjp). inverse: results, then the operands marked in `held` -> the
          other operands. ivjp: results, held operands, cotangents of the inexact results -> the other operands, then
          cotangents of the moving ones. Batched, all operands that are not held are mapped.
    """

    name: ClassVar[str] = "custom_call"
    body: Jaxpr
    captured: int
    jvp_rule: tuple[Jaxpr, ...]  # () or (forward, push)
    vjp_rule: tuple[Jaxpr, ...]  # () or (forward, push, pull)
    vmap_rules: tuple[tuple[int, Jaxpr], ...]
    exhausted: bool = False
    inverse_rule: tuple[Jaxpr, ...] = ()  # () or (inverse,) or (inverse, ivjp)
    held: tuple[bool, ...] = ()

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        stacked = [rule for _, rule in self.vmap_rules]
        return self.body, *self.jvp_rule, *self.vjp_rule, *stacked, *self.inverse_rule

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> CustomCall:
        n, m = 1 + len(self.jvp_rule), 1 + len(self.jvp_rule) + len(self.vjp_rule)
        k = m + len(self.vmap_rules)
        stacked = tuple([(size, rule) for (size, _), rule in zip(self.vmap_rules, bodies[m:k], strict=True)])
        jvp, vjp, back = bodies[1:n], bodies[n:m], bodies[k:]
        return CustomCall(bodies[0], self.captured, jvp, vjp, stacked, self.exhausted, back, self.held)

    def slim(self, eqn: Eqn, used: tuple[bool, ...], prune: Prune) -> Eqn:
        """Without results nobody uses, and operands that neither the function nor a rule then reads. An inverse reads
        all results: where one is not used, there is none."""
        if self.inverse_rule and all(used):
            return eqn
        ins, n = self.body.in_avals, self.captured
        body, read = prune(self.body, used)
        stacked = [prune(rule, used) for _, rule in self.vmap_rules]
        rules = [self._slim_rule(rule, used, prune) for rule in (self.jvp_rule, self.vjp_rule)]
        needed = read
        for mask in [mask for _, mask in (*stacked, *rules)]:
            needed = either(needed, mask)
        moving = marked(needed, self.moving)
        stacks = [rule.in_avals for _, rule in self.vmap_rules]
        left = [tuple(_without_operands(rule, needed, moving)) for rule, _ in rules]
        made = CustomCall(
            over(body, read, ins, needed),
            sum(needed[:n]),
            left[0],
            left[1],
            tuple(
                [
                    (size, over(rule, mask, avals, needed))
                    for (size, _), (rule, mask), avals in zip(self.vmap_rules, stacked, stacks, strict=True)
                ]
            ),
            self.exhausted,
        )
        return eqn if made == self else Eqn(made, marked(eqn.ins, needed), marked(eqn.outs, used), eqn.source)

    def _slim_rule(
        self, rule: tuple[Jaxpr, ...], used: tuple[bool, ...], prune: Prune
    ) -> tuple[tuple[Jaxpr, ...], tuple[bool, ...]]:
        """A rule about the results in use, with all operands; and which of them it reads, the tangents included."""
        if not rule:
            return (), (False,) * len(self.body.ins)
        forward, push, *pulls = rule
        n, given = len(used), marked(used, [a.inexact for a in self.body.out_avals])
        if not all(given):
            push = with_outs(push, marked(push.outs, given))
            pulls = [without(pull, given)[0] for pull in pulls]
        counts = [sum(self.moving), sum(given)]
        maps, left = narrowed([sweep(j) for j in (push, *pulls)], counts[: 1 + len(pulls)])
        whole = with_outs(forward, (*marked(forward.outs[:n], used), *marked(forward.outs[n:], left)))
        slim, mask = prune(whole, (True,) * len(whole.outs))
        dots = iter(narrow(maps[0])[1])
        reads = either(mask, [m and next(dots) for m in self.moving])
        return (over(slim, mask, forward.in_avals, (True,) * len(mask)), *maps), reads

    @property
    def moving(self) -> tuple[bool, ...]:
        """Which operands the derivative rules are about."""
        return tuple([k >= self.captured and a.inexact for k, a in enumerate(self.body.in_avals)])

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        ins, outs = self.body.in_avals, self.body.out_avals
        if not 0 <= self.captured <= len(ins):
            raise ParameterError(f"{self.name}: captured is {self.captured}, {self.body.name} has {len(ins)} operands")
        if len(self.jvp_rule) not in (0, 2) or len(self.vjp_rule) not in (0, 3):
            raise ParameterError(f"{self.name}: a jvp_rule is (forward, push), a vjp_rule (forward, push, pull)")
        moving, inexact = marked(ins, self.moving), tuple([a for a in outs if a.inexact])
        for rule in (self.jvp_rule, self.vjp_rule):
            if rule:
                residuals = rule[0].out_avals[len(outs) :]
                check_type(self.name, "forward", rule[0], ins, (*outs, *residuals))
                check_type(self.name, "push", rule[1], (*moving, *residuals), inexact)
                for pull in rule[2:]:
                    check_type(self.name, "pull", pull, (*inexact, *residuals), moving)
        n = self.captured
        for size, body in self.vmap_rules:
            stacks = (*ins[:n], *[_stacked(a, size) for a in ins[n:]])
            check_type(self.name, f"vmap rule of size {size}", body, stacks, tuple([_stacked(a, size) for a in outs]))
        self._check_inverse(moving, inexact)
        check_operands(self.name, self.body, avals)
        return outs

    def _check_inverse(self, moving: tuple[Aval, ...], inexact: tuple[Aval, ...]) -> None:
        """Raises: ParameterError for an inverse rule that does not fit the body."""
        ins, outs, n = self.body.in_avals, self.body.out_avals, len(self.inverse_rule)
        if n > 2 or len(self.held) != (len(ins) if n else 0):
            raise ParameterError(
                f"{self.name}: an inverse_rule is (inverse,) or (inverse, ivjp), with a mark in held for each operand"
            )
        free = marked(ins, [not h for h in self.held]) if n else ()
        for inverse in self.inverse_rule[:1]:
            check_type(self.name, "inverse", inverse, (*outs, *marked(ins, self.held)), free)
        for ivjp in self.inverse_rule[1:]:
            check_type(self.name, "ivjp", ivjp, (*outs, *marked(ins, self.held), *inexact), (*free, *moving))

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return run(self.body, args)

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        return hlo.call(self.body, args)

    # ---------------------------------------------------------------------------------------------------- batching

    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        n = self.captured
        args, dims = self._mapped_alike(ctx, args, dims)
        body = dict(self.vmap_rules).get(ctx.size) if dims[:n] == (None,) * n else None
        if body is None:
            found = [ctx.recur(self.body, dims)[1]]
        else:
            given = zip(args[n:], dims[n:], strict=True)
            args = (*args[:n], *[broadcast_to_axis(ctx, a, d, ctx.size, 0) for a, d in given])
            dims = (*dims[:n], *[0] * len(args[n:]))
            found = [(0,) * len(self.body.outs)]
        for rule in (self.jvp_rule, self.vjp_rule):
            if rule:
                found += self._result_dims(ctx, rule, dims)
        # all programs of the equation carry the axis at one place of a result
        out_dims = tuple([ds[0] if all([d == ds[0] for d in ds]) else 0 for ds in zip(*found, strict=True)])
        after = tuple([None if d is None else d + 1 for d in out_dims])
        past = (*dims[:n], *[None if d is None else d + 1 for d in dims[n:]])
        made = CustomCall(
            ctx.recur(self.body, dims, out_dims)[0] if body is None else body,
            n,
            self._batched_rule(ctx, self.jvp_rule, dims, out_dims),
            self._batched_rule(ctx, self.vjp_rule, dims, out_dims),
            tuple([(size, ctx.recur(rule, past, after)[0]) for size, rule in self.vmap_rules]),
            self.exhausted,
            self._batched_inverse(ctx, dims, out_dims),
            self.held,
        )
        return ctx(made, *args), out_dims

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
        known = (*out_dims, *marked(dims, self.held))
        free = marked(dims, [not h for h in self.held])
        inverse, _ = ctx.recur(self.inverse_rule[0], known, free)
        cts = marked(out_dims, [a.inexact for a in self.body.out_avals])
        wants = (*free, *marked(dims, self.moving))
        return inverse, *[_summed(ctx, ivjp, (*known, *cts), wants) for ivjp in self.inverse_rule[1:]]

    def _result_dims(self, ctx: BatchCtx, rule: tuple[Jaxpr, ...], dims: Dims) -> list[Dims]:
        """Where the results of a rule's forward program, and their tangents, carry the mapped axis by themselves."""
        n = len(self.body.outs)
        forward = ctx.recur(rule[0], dims)[1]
        push = iter(ctx.recur(rule[1], (*marked(dims, self.moving), *forward[n:]))[1])
        dots = [next(push) if a.inexact else d for a, d in zip(self.body.out_avals, forward, strict=False)]
        return [forward[:n], tuple(dots)]

    def _batched_rule(self, ctx: BatchCtx, rule: tuple[Jaxpr, ...], dims: Dims, out_dims: Dims) -> tuple[Jaxpr, ...]:
        if not rule:
            return ()
        residuals = ctx.recur(rule[0], dims)[1][len(out_dims) :]
        moving = marked(dims, self.moving)
        inexact = marked(out_dims, [a.inexact for a in self.body.out_avals])
        forward, _ = ctx.recur(rule[0], dims, (*out_dims, *residuals))
        push, _ = ctx.recur(rule[1], (*moving, *residuals), inexact)
        return forward, push, *[_summed(ctx, pull, (*inexact, *residuals), moving) for pull in rule[2:]]

    # ----------------------------------------------------------------------------------------------- differentiation

    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        first, second = (self.vjp_rule, self.jvp_rule) if ctx.split else (self.jvp_rule, self.vjp_rule)
        rule = first or second
        if not rule and not self.exhausted:
            return Call(self.body).jvp(ctx, primals, tangents)
        self._check_moving(tangents)
        forward, *maps = rule
        lins = [t for t in tangents if isinstance(t, Lin)]
        live = marked([isinstance(t, Lin) for t in tangents], self.moving)
        avals = self.body.out_avals
        push, reached = without(maps[0], live)
        if not any(reached):
            return ctx(self, *primals), tuple([Zero(a) for a in avals])
        maps[0] = with_outs(push, marked(push.outs, reached))
        if len(maps) > 1:
            maps[1], _ = without(with_outs(maps[1], marked(maps[1].outs, live)), reached)
        counts = [len(lins), sum(reached)]
        slim, needed = narrowed(maps, counts[: len(maps)])
        n = len(avals)
        forward = sweep(with_outs(forward, (*forward.outs[:n], *marked(forward.outs[n:], needed))))
        outs, residuals = call_primal(ctx, forward, n, primals)
        linear: Primitive = Call(slim[0]) if len(slim) == 1 else LinearCall(slim[0], slim[1], len(lins))
        given = iter(reached)
        nonzero = [a.inexact and next(given) for a in avals]
        return outs, spread_tangents(ctx.lin(linear, *lins, *residuals), nonzero, avals)

    def _check_moving(self, tangents: tuple[Tangent, ...]) -> None:
        """Raises: NotDifferentiableError for a tangent of a captured value, or when there is no rule left."""
        if self.exhausted:
            raise NotDifferentiableError(
                f"{self.name}: the rule of {self.body.name} calls it again, and derivatives of this order are "
                "not traced",
                remedy="write the rule without the function itself, or with a function that has no rule",
            )
        for k, t in enumerate(tangents[: self.captured]):
            if isinstance(t, Lin):
                raise NotDifferentiableError(
                    f"{self.name}: {self.body.name} or its rule closes over a value of type {t.aval} (operand {k}) "
                    "that depends on what is differentiated; its rules say nothing about it",
                    remedy="pass the value as an argument, or close over stop_gradient of it",
                )


def _without_operands(rule: tuple[Jaxpr, ...], needed: tuple[bool, ...], moving: Sequence[bool]) -> Iterator[Jaxpr]:
    """The programs of a rule without operands that it does not read; `moving`: which of the moving ones are left."""
    for k, jaxpr in enumerate(rule):
        if k == 2:
            yield sweep(with_outs(jaxpr, marked(jaxpr.outs, moving)))
        else:
            slim, mask = narrow(jaxpr)
            wants = needed if k == 0 else (*moving, *[True] * (len(mask) - len(moving)))
            yield over(slim, mask, jaxpr.in_avals, wants)


def narrowed(maps: Sequence[Jaxpr], counts: Sequence[int]) -> tuple[list[Jaxpr], tuple[bool, ...]]:
    """Linear maps over the same residuals without those that none of them reads; and which residuals are left. `counts`
    are the numbers of their linear operands."""
    slim = [narrow(m) for m in maps]
    masks = [mask[n:] for (_, mask), n in zip(slim, counts, strict=True)]
    needed = tuple([any(ms) for ms in zip(*masks, strict=True)])
    return [
        over(m, mask, whole.in_avals, ((True,) * n + needed))
        for whole, (m, mask), n in zip(maps, slim, counts, strict=True)
    ], needed


def _summed(ctx: BatchCtx, pull: Jaxpr, dims: Dims, wants: Dims) -> Jaxpr:
    """A linear map to cotangents, batched: those of operands that are the same for all examples are summed."""
    found = ctx.recur(pull, dims)[1]
    at = tuple([(None if d is None else 0) if w is None else w for d, w in zip(found, wants, strict=True)])
    jaxpr, _ = ctx.recur(pull, dims, at)
    if at == wants:
        return jaxpr
    b = Builder.resume(jaxpr)
    outs = [_sum(b, a) if w is None and d is not None else a for a, w, d in zip(jaxpr.outs, wants, at, strict=True)]
    return b.build(outs, jaxpr.name)


def _sum(b: Builder, a: Atom) -> Atom:
    return Zero(a.aval.with_shape(a.aval.shape[1:])).instantiate() if is_zero(a) else b.one(ReduceSum((0,)), a)


def _stacked(aval: Aval, size: int) -> Aval:
    return aval.with_shape((size, *aval.shape))


def check_type(name: str, role: str, jaxpr: Jaxpr, ins: tuple[Aval, ...], outs: tuple[Aval, ...]) -> None:
    """Check the type of a body of an equation. Raises: ParameterError."""
    for verb, have, want in (("takes", jaxpr.in_avals, ins), ("returns", jaxpr.out_avals, outs)):
        if have != want:
            found, wanted = ", ".join(map(str, have)), ", ".join(map(str, want))
            raise ParameterError(f"{name}: {role} {jaxpr.name} {verb} ({found}), expected ({wanted})")


CUSTOM: Final[tuple[type[Primitive], ...]] = (CustomCall, LinearCall)
