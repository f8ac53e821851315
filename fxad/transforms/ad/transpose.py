"""Transposition: the adjoint of a linear program, by one backward walk.

The walk holds the cotangents that it has computed so far in `ct_env`, by variable. It takes the cotangents of the
results of an equation from there, and adds those of its operands. For example,

    linear(x_dot, c, x, s)    = let a = x_dot * c, b = a * x, d = x_dot * s, y_dot = b + d in y_dot
    transpose(y_bar, c, x, s) = let x_bar = y_bar * s, a_bar = y_bar * x in x_bar + a_bar * c

An equation may compute both linear values and others, as the call of a `jit` under `jvp` does. `split_linear` splits
it first: `v, v_dot = call[(u, u_dot) -> (sin(u), u_dot * cos(u))] u u_dot` becomes `v = sin(u)`, `c = cos(u)`, which do
not depend on u_dot, and `v_dot = u_dot * c`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Protocol, cast

from fxad.core.builder import Builder, substitute
from fxad.core.flags import merge_by_flags, split_by_flags
from fxad.core.memo import by_value
from fxad.errors import NotLinearError
from fxad.ir import (
    Atom,
    Cotangent,
    Cotangents,
    Eqn,
    Flags,
    HigherOrder,
    Hole,
    Jaxpr,
    Linear,
    Lit,
    Primitive,
    Var,
    Zero,
    instantiated,
    source_text,
)
from fxad.primitives.control.bodies import results_without_steps
from fxad.primitives.elementwise.arithmetic import ADD, NEG, SUB
from fxad.primitives.linearity import is_linear, is_zero, linear_operands, vanishes, zero_values
from fxad.primitives.shape import BroadcastInDim
from fxad.transforms.ad.partial_eval import partial_eval
from fxad.transforms.locate import check_counts, describe, locate


class TransposeBuilder(Builder):
    """The `TransposeCtx`: the builder of the transposed program. It transposes bodies by value."""

    __slots__ = ()

    def recur(self, body: Jaxpr, linear: Flags) -> Jaxpr:
        return transpose(body, linear)

    def take_back(self) -> None:
        """Remove the last equation, whose results nothing reads."""
        self.n -= len(self.eqns.pop().outs)


def _operands_with_cotangents(eqn: Eqn, linear: set[Atom]) -> Flags:
    """Return flags for the operands of `eqn` to which the cotangent flows. Raises: NotLinearError."""
    prim, flags = eqn.prim, tuple([a in linear for a in eqn.ins])
    with_zeros = linear_operands(prim, eqn.ins, flags)
    if with_zeros is not None:
        # A literal zero may count as a linear operand: concatenate(x_dot, 0) is linear in both. An equation with bodies
        # transposes them with respect to all linear operands, so it gets these marks. The rule of any other equation
        # returns cotangents of the values that are linear, and takes a zero as it is.
        return with_zeros if isinstance(prim, HigherOrder) else flags
    raise NotLinearError(
        f"transpose: {prim.name} is not linear in operands {[k for k, a in enumerate(eqn.ins) if a in linear]}",
        equation=describe(eqn),
        where=source_text(eqn.source),
        remedy="transpose takes programs linear in the chosen operands, such as the linear part of linearize",
    )


def backward(
    ctx: TransposeBuilder, jaxpr: Jaxpr, linear: Sequence[bool], known: Sequence[Atom], cts: Sequence[Cotangent]
) -> list[Cotangent]:
    """Add the adjoint of `jaxpr` to `ctx`. Return the cotangents of the operands marked in `linear`.

    `known` are the values of the other operands, `cts` the cotangents of the results. Equations that do not depend on a
    marked operand are copied and run forward.

    Raises: NotLinearError that names the equation.
    """
    linear_ins, known_ins = split_by_flags(jaxpr.ins, linear)
    env: dict[Atom, Atom] = dict(zip(known_ins, known, strict=True))
    linear_values: set[Atom] = set(linear_ins)
    tape: list[Eqn] = []
    for eqn in jaxpr.eqns:
        if linear_values.isdisjoint(eqn.ins):
            env.update(zip(eqn.outs, ctx.copy(eqn, substitute(eqn.ins, env)), strict=True))
        else:
            tape.append(eqn)
            linear_values.update(eqn.outs)

    ct_env: dict[Atom, Atom] = {}
    for a, ct in zip(jaxpr.outs, cts, strict=True):
        if a in linear_values:
            accumulate(ctx, ct_env, a, ct)
        elif not isinstance(ct, Zero) and not vanishes(a):
            raise NotLinearError(
                f"transpose: result {a!r} of {jaxpr.name} is constant, so the program is affine",
                remedy="leave the constant out of the linear program, or choose the operands it depends on as linear",
            )
    last: Eqn | None = None  # the last equation whose adjoint has equations
    for eqn in reversed(tape):
        n = len(ctx.eqns)
        if last is not None and _is_negated_broadcast(eqn, last) and _negates_cotangent(ctx.eqns[-1], eqn, ct_env):
            _backward_negated_broadcast(ctx, eqn, linear_values, env, ct_env)
        else:
            backward_eqn(ctx, eqn, linear_values, env, ct_env)
        if len(ctx.eqns) > n:
            last = eqn
    return [ct_env.get(v) or Zero(v.aval) for v in linear_ins]


def _is_negated_broadcast(eqn: Eqn, reader: Eqn) -> bool:
    """Return True if an equation is a broadcast that `reader` negates or subtracts. The negation in the adjoint of
    `reader` is then the cotangent of the broadcast, and of nothing else."""
    return type(eqn.prim) is BroadcastInDim and reader.prim in (NEG, SUB) and reader.ins[-1] is eqn.outs[0]


def _negates_cotangent(adjoint: Eqn, eqn: Eqn, ct_env: Mapping[Atom, Atom]) -> bool:
    """Return True if the result of an equation of the adjoint is the cotangent of `eqn`, by a negation."""
    return adjoint.prim is NEG and adjoint.outs[0] is ct_env.get(eqn.outs[0])


def _backward_negated_broadcast(
    ctx: TransposeBuilder, eqn: Eqn, linear_values: set[Atom], env: FixedValues, ct_env: dict[Atom, Atom]
) -> None:
    """Transpose a broadcast whose cotangent is negated by the last equation: negate the sum, which has fewer elements.

        in place of     n = neg c               s = reduce_sum c
                        s = reduce_sum n        n = neg s

    XLA computes the sum of a product of matrices as one product, but not if there is a negation between them: the
    gradient of a Gaussian mixture takes 1.6 times as long with the negation first (docs/adr/0082). Only the sign of a
    zero can differ: for c = (1, -1), the sum of (-1, 1) is 0.0, and the negated sum of (1, -1) is -0.0.
    """
    (a,), (result,) = eqn.ins, eqn.outs
    ct_env[result] = ctx.eqns[-1].ins[0]
    ctx.take_back()
    earlier = ct_env.pop(a, None)  # of `a`, from other equations: it is not negated
    backward_eqn(ctx, eqn, linear_values, env, ct_env)
    ct = ctx.one(NEG, ct_env.pop(a))
    ct_env[a] = ct if earlier is None else ctx.one(ADD, earlier, ct)


class FixedValues(Protocol):
    """The values of the operands that an adjoint holds fixed: a dict, or an object that computes a value when it is
    read."""

    def get(self, a: Atom, default: Atom, /) -> Atom:
        """Return the value of an atom."""


def backward_eqn(
    ctx: TransposeBuilder, eqn: Eqn, linear_values: set[Atom], env: FixedValues, ct_env: dict[Atom, Atom]
) -> None:
    """Add the adjoint of one equation to `ctx`. Take the cotangents of its results out of `ct_env`, and add those of
    its operands to it.

    `linear_values` are the values that depend on the linear operands of the program; `env` has the other values.
    """
    cts: Cotangents
    if len(eqn.outs) == 1:  # the common case
        ct = ct_env.pop(eqn.outs[0], None)
        if ct is None:
            return
        cts = (ct,)
    else:
        popped = [ct_env.pop(v, None) for v in eqn.outs]
        if popped.count(None) == len(popped):
            return
        cts = tuple([Zero(v.aval) if ct is None else ct for ct, v in zip(popped, eqn.outs, strict=True)])
    flags = _operands_with_cotangents(eqn, linear_values)
    args = tuple([Hole(a.aval) if lin else env.get(a, a) for a, lin in zip(eqn.ins, flags, strict=True)])
    ctx.source = eqn.source
    prim = cast(Linear, eqn.prim)  # `_operands_with_cotangents` has checked it
    if isinstance(prim, HigherOrder):
        prim, cts = _with_earlier_cotangents(prim, eqn, flags, cts, ct_env)
    try:
        operand_cts = prim.transpose(ctx, cts, args)
        if len(operand_cts) != len(args):
            check_counts(eqn, "transpose", len(args), cotangents=len(operand_cts))
    except Exception as e:
        locate(e, eqn)
        raise
    for a, operand_ct in zip(eqn.ins, operand_cts, strict=True):
        if operand_ct is not None and isinstance(a, Var):
            accumulate(ctx, ct_env, a, operand_ct)


def _with_earlier_cotangents(
    prim: HigherOrder, eqn: Eqn, flags: Flags, cts: Cotangents, ct_env: dict[Atom, Atom]
) -> tuple[Linear, Cotangents]:
    """Return the primitive to transpose in place of that of an equation, and its cotangents, so that the order of
    additions does not change: in floating point (a + b) + c differs from a + (b + c).

    Only a `remat` is replaced. In the program without the `remat`, each contribution of its body is added to the
    cotangent that the operand already has. So the new `remat` returns such operands as further results. Their
    cotangents are taken out of `ct_env` and become the cotangents of these results.
    """
    first_positions: dict[Atom, int] = {}  # of the linear operands that have a cotangent already
    for k, (a, m) in enumerate(zip(eqn.ins, flags, strict=True)):
        if m and a in ct_env:
            first_positions.setdefault(a, k)
    operands = tuple(first_positions.values())
    extended = _returning_operands(prim, operands) if operands else None
    # the casts: the equation is linear, and it stays so with more results
    if extended is None:
        return cast(Linear, prim), cts
    return cast(Linear, extended), (*[ct_env.pop(a) for a in first_positions], *cts)


def _returning_operands(prim: HigherOrder, operands: tuple[int, ...]) -> Primitive | None:
    """Return the `remat` with these operands as further results, before its own; None for other primitives. Only the
    gradient of a `remat` has to be that of the program without it, bit for bit up to the sign of a zero."""
    layout = prim.layout
    if not layout.remat:
        return None
    (body,), (results,) = prim.bodies, layout.results
    outs = (*[body.ins[k] for k in operands], *body.outs)
    sizes = tuple([g.size for g in layout.operands])
    return prim.rebuild((body.with_outs(outs),), sizes, (results.size + len(operands),))


def accumulate(ctx: TransposeBuilder, ct_env: dict[Atom, Atom], a: Atom, ct: Cotangent) -> None:
    """Add `ct` to the cotangent of an atom."""
    if isinstance(ct, Zero):
        return
    total = ct_env.get(a)
    ct_env[a] = ct if total is None else ctx.one(ADD, total, ct)


@by_value
def transpose(jaxpr: Jaxpr, linear: Flags) -> Jaxpr:
    """Return the adjoint of a program that is linear in the marked operands.

    It maps (cotangents of all results, then the operands not marked) to the cotangents of the marked operands.

    Law:    <y_bar, A x_dot> = <A^T y_bar, x_dot>; transposing twice gives a program of the same meaning.
    Rule:   complex numbers are not conjugated: A^T, not A^H. An integer has no cotangent, so a conversion of integers
            gives none to its operand.
    Raises: NotLinearError that names the equation.
    """
    form = split_linear(jaxpr, linear)
    b = TransposeBuilder()
    cts = b.inputs(jaxpr.out_avals)
    known = b.inputs(split_by_flags(jaxpr.in_avals, linear)[1])
    operand_cts = backward(b, form, linear, known, cts)
    return b.build(instantiated(operand_cts), f"transpose_{jaxpr.name}")


@by_value
def split_linear(jaxpr: Jaxpr, linear: Flags) -> Jaxpr:
    """Return the same program, in which every equation that depends on the marked operands is linear in them, if the
    program is: an equation that computes linear values and others is split, also in bodies. Values that are zero become
    literals in equations that are only linear if an operand is zero. Return the program itself if all its equations are
    linear.

    Only a literal counts as a linear zero (`linear_operands`), and the halves of `partial_eval` may hide one:

        the program            v = call[(x_dot, u) -> let z = 0.0 * u in concatenate(x_dot, z)] x_dot u
        its known half         z = 0.0 * u
        its unknown half       v = concatenate(x_dot, z)

    No `concatenate` is linear in x_dot alone, and to the unknown half z is an operand like any other. That z is zero
    shows in the equations of the known half, once they are in the new program. So the unknown half gets a literal zero
    for z, where an equation is not linear without it, and the result is v = concatenate(x_dot, 0.0).
    """
    if is_linear(jaxpr, linear):
        return jaxpr
    halves = partial_eval(jaxpr, tuple([not lin for lin in linear]))
    b = Builder.like(jaxpr)
    linear_ins, known_ins = split_by_flags(jaxpr.ins, linear)
    values = b.inline(halves.known, known_ins)
    zeros = zero_values(b.eqns, ())  # of the known half
    linear_values: set[Atom] = set(linear_ins)

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        prim, flags = eqn.prim, tuple([a in linear_values for a in ins])
        if any(flags) and not (isinstance(prim, Linear) and prim.linear_in(flags)):
            ins = tuple([_zero_as_literal(a, zeros) for a in ins])
            if isinstance(prim, HigherOrder) and prim.layout.takes_no_step:
                return results_without_steps(prim.layout, ins, [v.aval for v in eqn.outs])
            prim = _split_linear_bodies(prim, ins, flags)
        outs = b.copy(eqn, ins, prim)
        linear_values.update(outs if any(flags) else ())
        return outs

    n = sum(halves.out_known)
    known = [_zero_as_literal(a, zeros) for a in values[:n]]
    others = b.inline(halves.unknown, (*values[n:], *linear_ins), rule)
    return b.build(merge_by_flags(halves.out_known, known, others), jaxpr.name)


def _zero_as_literal(a: Atom, zeros: Container[Atom]) -> Atom:
    """Return the literal zero if `a` is one of `zeros`; else `a`."""
    return Lit.zero(a.aval) if a in zeros and a.aval.inexact else a


def _split_linear_bodies(prim: Primitive, ins: tuple[Atom, ...], flags: Flags) -> Primitive:
    """Return the primitive with `split_linear` applied to its bodies. `flags` marks the linear operands among `ins`."""
    if not isinstance(prim, HigherOrder) or prim.layout.has_rules:
        return prim
    layout = prim.layout
    # a carry that is zero at first may be linear in every step
    zero_carries = {p for p in layout.carries if is_zero(ins[p])}
    bodies = [
        split_linear(body, tuple([flags[p] or p in zero_carries for p in layout.operand_indices(k)]))
        for k, body in enumerate(prim.bodies)
    ]
    return prim.with_bodies(tuple(bodies))
