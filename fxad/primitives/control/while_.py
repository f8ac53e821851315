"""`while`: apply a body to a carry as long as a predicate holds of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, TypeVar, final

import numpy as np

from fxad import dtypes
from fxad.builder import Builder
from fxad.errors import ArgumentError, DTypeError, NotDifferentiableError, ParameterError, ShapeError
from fxad.interpret import run
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Eqn,
    HigherOrder,
    Hlo,
    HloValue,
    Jaxpr,
    JvpCtx,
    Lin,
    Lit,
    NDArray,
    Prune,
    Region,
    Tangent,
    Zero,
    distinct,
    primitive,
)
from fxad.memo import by_value
from fxad.primitives.argmax import ArgMax
from fxad.primitives.control.bodies import either, filled_outs, marked, over, spread_tangents
from fxad.primitives.control.call import Call
from fxad.primitives.dynamic_slicing import DynamicSlice
from fxad.primitives.elementwise import ADD, AND, LT, SELECT_N
from fxad.primitives.reduce import ReduceOr
from fxad.primitives.shape import broadcast_to_axis, spread

T = TypeVar("T")

_BOOL: Final = Aval((), dtypes.bool_)
_STEP: Final = Aval((), dtypes.int32)


@final
@primitive
class While(HigherOrder):
    """`body` applied to the carry as long as `cond` holds of it, at most `max_steps` times.

    Type: (constants of `cond`, constants of `body`, carry) -> carry. `cond`: (its constants, carry) -> bool;
          `body`: (its constants, carry) -> carry.
    Rule: batched, each example stops when its own predicate fails: its carry is frozen, bit for bit, while others go
          on. Forward mode carries tangents beside the carry. Reverse mode wants `max_steps`.
    Source: stablehlo.while
    """

    name: ClassVar[str] = "while"
    cond: Jaxpr
    body: Jaxpr
    n_cond: int
    n_body: int
    max_steps: int | None = None

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.cond, self.body)

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> While:
        cond, body = bodies
        return While(cond, body, self.n_cond, self.n_body, self.max_steps)

    @property
    def carry(self) -> tuple[Aval, ...]:
        """Types of the carry."""
        return self.body.out_avals

    def parts(self, xs: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...], tuple[T, ...]]:
        """What stands for the operands, in groups: constants of `cond`, constants of `body`, carry."""
        n = self.n_cond + self.n_body
        return tuple(xs[: self.n_cond]), tuple(xs[self.n_cond : n]), tuple(xs[n:])

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        self._check_bodies()
        wants = (*self.cond.in_avals[: self.n_cond], *self.body.in_avals)
        if avals != wants:
            if len(avals) != len(wants):
                raise ArgumentError(f"while: takes {len(wants)} operands, got {len(avals)}")
            k, have, want = next((k, a, w) for k, (a, w) in enumerate(zip(avals, wants, strict=True)) if a is not w)
            error = ShapeError if have.shape != want.shape else DTypeError
            raise error(f"while: operand {k} ({self._role(k)}) is {have}, its bodies take {want}")
        return self.carry

    def _role(self, k: int) -> str:
        if k < self.n_cond:
            return f"constant {k} of cond"
        k -= self.n_cond
        return f"constant {k} of body" if k < self.n_body else f"carry {k - self.n_body}"

    def _check_bodies(self) -> None:
        carry = self.body.out_avals
        if not 0 <= self.n_cond <= len(self.cond.ins) or not 0 <= self.n_body <= len(self.body.ins):
            raise ParameterError(
                f"while: {self.n_cond} constants of {len(self.cond.ins)} operands of cond, "
                f"{self.n_body} constants of {len(self.body.ins)} operands of body"
            )
        if self.max_steps is not None and self.max_steps < 0:
            raise ParameterError(f"while: max_steps is {self.max_steps}", remedy="give a number of steps >= 0")
        if self.body.in_avals[self.n_body :] != carry:
            raise ShapeError(
                f"while: body takes the carry ({_types(self.body.in_avals[self.n_body :])}) and returns "
                f"({_types(carry)})"
            )
        if self.cond.in_avals[self.n_cond :] != carry:
            raise ShapeError(
                f"while: cond takes the carry ({_types(self.cond.in_avals[self.n_cond :])}), body ({_types(carry)})"
            )
        if self.cond.out_avals != (_BOOL,):
            raise DTypeError(f"while: cond returns ({_types(self.cond.out_avals)}), not a bool without axes")

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        of_cond, of_body, carry = self.parts(args)
        steps = 0
        while steps != self.max_steps and np.all(run(self.cond, (*of_cond, *carry))[0]):
            carry = run(self.body, (*of_body, *carry))
            steps += 1
        return carry

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        of_cond, of_body, carry = self.parts(args)
        if self.max_steps is not None:
            loop = counted(self.body, self.cond, self.n_body, self.n_cond, self.max_steps)
            carry = (hlo.constant(Lit.of(0, _STEP)), *carry)
        else:
            loop = self
        regions = (Region(loop.cond, of_cond), Region(loop.body, of_body))
        results = hlo.op("stablehlo.while", carry, loop.carry, regions=regions)
        return results[len(results) - len(outs) :]

    # ------------------------------------------------------------------------------------------------- dead values

    def slim(self, eqn: Eqn, used: tuple[bool, ...], prune: Prune) -> Eqn:
        """Without carries that neither a result in use nor the predicate needs, whatever the number of steps."""
        cond, of_cond = prune(self.cond, (True,))
        needed = either(used, of_cond[self.n_cond :])
        while True:
            body, of_body = prune(self.body, needed)
            wider = either(needed, of_body[self.n_body :])
            if wider == needed:
                break
            needed = wider
        kept_cond, kept_body = of_cond[: self.n_cond], of_body[: self.n_body]
        if all((*kept_cond, *kept_body, *needed)):
            same = cond is self.cond and body is self.body
            return eqn if same else Eqn(self.with_bodies((cond, body)), eqn.ins, eqn.outs, eqn.source)
        loop = While(
            over(cond, of_cond, self.cond.in_avals, (*kept_cond, *needed)),
            over(body, of_body, self.body.in_avals, (*kept_body, *needed)),
            sum(kept_cond),
            sum(kept_body),
            self.max_steps,
        )
        kept = (*kept_cond, *kept_body, *needed)
        return Eqn(loop, marked(eqn.ins, kept), marked(eqn.outs, needed), eqn.source)

    # ---------------------------------------------------------------------------------------------------- batching

    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        args = tuple(
            [a if d is None else broadcast_to_axis(ctx, a, d, ctx.size, 0) for a, d in zip(args, dims, strict=True)]
        )
        n = self.n_cond + self.n_body
        mapped = tuple([d is not None for d in dims])
        of_cond, of_body, carry = mapped[: self.n_cond], mapped[self.n_cond : n], mapped[n:]
        while True:
            _, found = ctx.recur(self.body, _dims((*of_body, *carry)))
            _, (predicate,) = ctx.recur(self.cond, _dims((*of_cond, *carry)))
            # where examples stop at different steps, every carry that moves differs between them
            wider = tuple(
                [
                    c or f is not None or (predicate is not None and not still)
                    for c, f, still in zip(carry, found, invariant(self.body, self.n_body), strict=True)
                ]
            )
            if wider == carry:
                break
            carry = wider
        inits = [
            broadcast_to_axis(ctx, a, None, ctx.size, 0) if c and not m else a
            for a, c, m in zip(args[n:], carry, mapped[n:], strict=True)
        ]
        body, _ = ctx.recur(self.body, _dims((*of_body, *carry)), _dims(carry))
        cond, _ = ctx.recur(self.cond, _dims((*of_cond, *carry)), (None if predicate is None else 0,))
        if predicate is None:
            loop = While(cond, body, self.n_cond, self.n_body, self.max_steps)
            return ctx(loop, *args[:n], *inits), _dims(carry)
        stepped = _per_example(body, cond, self.n_body, self.n_cond, (*of_body, *carry), ctx.size)
        loop = While(_any_live(stepped, n), stepped, 0, n, self.max_steps)
        live = ctx.one(Call(cond), *args[: self.n_cond], *inits)
        return ctx(loop, *args[:n], live, *inits)[1:], _dims(carry)

    # ----------------------------------------------------------------------------------------------- differentiation

    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        still = invariant(self.body, self.n_body)
        if any(still):
            return self._jvp_of_moving(ctx, primals, tangents, still)
        _, of_body, carry = self.parts(tangents)
        given = tuple([isinstance(t, Lin) for t in of_body])
        reached = self._reached(ctx, given, tuple([isinstance(t, Lin) for t in carry]))
        if not any(reached):
            return ctx(self, *primals), spread_tangents((), reached, self.carry)
        dots = (*[t for t in of_body if isinstance(t, Lin)], *marked(carry, reached))
        return (self._split if ctx.split else self._fused)(ctx, primals, dots, given, reached)

    def _jvp_of_moving(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...], still: tuple[bool, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        """The rule where some carries never change: they are constants, and so are their tangents."""
        loop, order = _with_constants(self, still)
        outs, dots = loop.jvp(ctx, tuple([primals[k] for k in order]), tuple([tangents[k] for k in order]))
        n = self.n_cond + self.n_body
        moved, moved_dots = iter(outs), iter(dots)
        return (
            tuple([primals[n + k] if s else next(moved) for k, s in enumerate(still)]),
            tuple([tangents[n + k] if s else next(moved_dots) for k, s in enumerate(still)]),
        )

    def _reached(self, ctx: JvpCtx, given: tuple[bool, ...], carry: tuple[bool, ...]) -> tuple[bool, ...]:
        """Which carries have a tangent after any number of steps."""
        while any((*given, *carry)):
            nonzero = (*given, *carry)
            found = ctx.recur(self.body, nonzero).out_nonzero if ctx.split else ctx.recur_fused(self.body, nonzero)[1]
            wider = either(carry, found)
            if wider == carry:
                break
            carry = wider
        return carry

    def _fused(
        self,
        ctx: JvpCtx,
        primals: tuple[Atom, ...],
        dots: tuple[Tangent, ...],
        given: tuple[bool, ...],
        reached: tuple[bool, ...],
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        of_cond, of_body, carry = self.parts(primals)
        fused, found = ctx.recur_fused(self.body, (*given, *reached))
        n_dots, n_carry = sum(given), len(carry)
        b = Builder()
        ins = b.inputs(self.body.in_avals[: self.n_body])
        const_dots = b.inputs([v.aval for v in marked(ins, given)])
        state = b.inputs(self.carry)
        moving = marked(self.carry, reached)
        state_dots = b.inputs(moving)
        outs = b.inline(fused, [*ins, *state, *const_dots, *state_dots])
        body = b.build(
            [*outs[:n_carry], *filled_outs(outs[n_carry:], found, self.carry, reached)], f"jvp_{self.body.name}"
        )
        has = (True,) * len(self.cond.ins) + (False,) * len(moving)
        cond = over(self.cond, has, (*self.cond.in_avals, *moving), (True,) * len(has))
        loop = While(cond, body, self.n_cond, self.n_body + n_dots, self.max_steps)
        started = [known(t) for t in dots]
        both = ctx(loop, *of_cond, *of_body, *started[:n_dots], *carry, *started[n_dots:])
        return both[:n_carry], spread_tangents([Lin(v) for v in both[n_carry:]], reached, self.carry)

    def _split(
        self,
        ctx: JvpCtx,
        primals: tuple[Atom, ...],
        dots: tuple[Tangent, ...],
        given: tuple[bool, ...],
        reached: tuple[bool, ...],
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        raise NotDifferentiableError(
            f"while: reverse mode goes through the steps backward, and the number of steps of {self.body.name} has no "
            "bound known in advance",
            remedy="give while_loop max_steps, or use fori_loop or scan, whose number of steps is static, "
            "or forward mode (jvp, jacfwd)",
        )


def invariant(body: Jaxpr, n_consts: int) -> tuple[bool, ...]:
    """Which results of a body are the carry that came in, unchanged."""
    return tuple([a is v for a, v in zip(body.outs, body.ins[n_consts:], strict=False)])


@by_value
def counted(body: Jaxpr, cond: Jaxpr, n_body: int, n_cond: int, max_steps: int) -> While:
    """The loop with its number of steps as the first carry, which the predicate compares with `max_steps`."""
    b = Builder()
    consts = b.inputs(cond.in_avals[:n_cond])
    step = b.input(_STEP)
    carry = b.inputs(body.out_avals)
    (more,) = b.inline(cond, (*consts, *carry))
    bounded = b.build((b.one(AND, more, b.one(LT, step, Lit.of(max_steps, _STEP))),), cond.name)
    b = Builder()
    consts = b.inputs(body.in_avals[:n_body])
    step = b.input(_STEP)
    outs = b.inline(body, (*consts, *b.inputs(body.out_avals)))
    return While(bounded, b.build((b.one(ADD, step, Lit.of(1, _STEP)), *outs), body.name), n_cond, n_body)


def _with_constants(loop: While, still: tuple[bool, ...]) -> tuple[While, list[int]]:
    """The loop with the carries marked as constants of both bodies; and its operands, by their places in `loop`'s."""
    n_cond, n_body = loop.n_cond, loop.n_body
    at = n_cond + n_body
    fixed = [k for k, s in enumerate(still) if s]
    moving = [k for k, s in enumerate(still) if not s]
    order = [*range(n_cond), *[at + k for k in fixed], *range(n_cond, at), *[at + k for k in (*fixed, *moving)]]

    def moved(body: Jaxpr, n: int, outs: Sequence[int]) -> Jaxpr:
        b = Builder()
        ins = {k: b.input(body.in_avals[k]) for k in (*range(n), *[n + k for k in (*fixed, *moving)])}
        results = b.inline(body, [ins[k] for k in range(len(ins))])
        return b.build([results[k] for k in outs], body.name)

    cond, body = moved(loop.cond, n_cond, (0,)), moved(loop.body, n_body, moving)
    return While(cond, body, n_cond + len(fixed), n_body + len(fixed), loop.max_steps), order


# -------------------------------------------------------------------------------------------------------- batched steps


def _per_example(body: Jaxpr, cond: Jaxpr, n_body: int, n_cond: int, mapped: tuple[bool, ...], size: int) -> Jaxpr:
    """One step of a loop whose examples stop one by one: (constants of cond, constants of body, live, carry) -> (live,
    carry). `body` and `cond` are batched; `mapped` says which operands of `body` are."""
    b = Builder()
    of_cond, of_body = b.inputs(cond.in_avals[:n_cond]), b.inputs(body.in_avals[:n_body])
    live = b.input(Aval((size,), dtypes.bool_))
    carry = b.inputs(body.out_avals)
    operands: list[Atom] = [*of_body, *carry]
    if any([isinstance(e.prim, While) for j in distinct(body) for e in j.eqns]):
        # a loop inside may never end for an example that has: such an example repeats one that goes on
        one = b.one(ArgMax(0, dtypes.int32), live)
        operands = [_of_example(b, x, one, live) if m else x for x, m in zip(operands, mapped, strict=True)]
    stepped = b.inline(body, operands)
    still = invariant(body, n_body)
    carry_out = [
        old if s else (_where(b, live, new, old) if m else new)
        for new, old, m, s in zip(stepped, carry, mapped[n_body:], still, strict=True)
    ]
    (more,) = b.inline(cond, (*of_cond, *carry_out))
    return b.build((b.one(AND, live, more), *carry_out), body.name)


def _where(b: Builder, live: Atom, new: Atom, old: Atom) -> Atom:
    return b.one(SELECT_N, spread(b, live, new.aval.shape, (0,)), old, new)


def _of_example(b: Builder, x: Atom, k: Atom, live: Atom) -> Atom:
    """`x`, with the rows of examples that are not live replaced by row `k`."""
    zero = Lit.of(0, _STEP)
    row = b.one(DynamicSlice((1, *x.aval.shape[1:])), x, k, *[zero] * (x.aval.ndim - 1))
    return _where(b, live, x, spread(b, row, x.aval.shape, tuple(range(x.aval.ndim))))


def _any_live(step: Jaxpr, n_consts: int) -> Jaxpr:
    """Whether an example goes on: (live, carry) -> bool."""
    b = Builder()
    live, *_ = b.inputs(step.in_avals[n_consts:])
    return b.build((b.one(ReduceOr((0,)), live),), "any")


def _dims(mapped: Sequence[bool]) -> tuple[int | None, ...]:
    return tuple([0 if m else None for m in mapped])


def known(t: Tangent) -> Atom:
    """A tangent of forward mode as an atom."""
    return t.instantiate() if isinstance(t, Zero) else t.var


def _types(avals: Sequence[Aval]) -> str:
    return ", ".join(map(str, avals))
