"""Growth steps that add control flow: an existing body, run by `cond`, `scan` or `while`.

A body takes operands within the bounds of `INPUT`, and the bounds of its results are known. So each step maps a carry
back into the bounds: by sin in a smooth program. In other programs a body may compare its operands, so a carry must
stay exact: it is negated or clamped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.ir import Atom, Aval, Jaxpr, Lit
from fxad.primitives import elementwise as ew
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import LOOP, SELECT, Batching, Cond
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.testing.growth import INPUT, UNKNOWN, Fact, Growth, up_to

RESULT: Final = up_to(12)  # of the results of a body
_STEP: Final = Aval((), dtypes.int32)
_BATCHED: Final[tuple[Batching, ...]] = (SELECT, LOOP)


def draw_fitting_operand(g: Growth, aval: Aval) -> Atom:
    """Draw an operand for a body: within the bounds the body was grown for, and exact if the body may compare it."""
    if g.smooth:
        return g.within(g.like(aval), INPUT.size)
    return g.like(aval, lambda f: f.exact and (f.size <= INPUT.size or f is UNKNOWN))


def draw_body(g: Growth) -> Jaxpr | None:
    """Draw an existing body; None if there is none."""
    return g.bodies[g.draw(st.integers(0, len(g.bodies) - 1))] if g.bodies else None


def branch_step(g: Growth, _: Atom) -> None:
    """Add a `cond` over two or three bodies, selected by an existing value or by a literal."""
    body = draw_body(g)
    if body is None:
        return
    others = [_body_of_type(g, body) for _ in range(g.draw(st.integers(1, 2)))]
    index = g.like(_STEP)
    prim = Cond((body, *others), g.draw(st.sampled_from(_BATCHED)))
    for v in g.builder(prim, index, *[draw_fitting_operand(g, v.aval) for v in body.ins]):
        g.add(v, RESULT)


def _body_of_type(g: Growth, body: Jaxpr) -> Jaxpr:
    """Return a body of the type of `body`, made of its own results where they fit, else of operands, else of
    constants."""
    b = Builder.like(body)
    outs: list[Atom] = []
    again: bool = g.draw(st.booleans())
    results = b(Call(body), *b.ins) if again else ()
    for k, a in enumerate(body.outs):
        same = [v for v in b.ins if v.aval is a.aval]
        operand: bool = g.draw(st.booleans())
        if same and operand:
            outs.append(same[g.draw(st.integers(0, len(same) - 1))])
        elif results and a.aval.dtype != dtypes.bool_:
            outs.append(b.one(ew.NEG, results[k]))
        else:
            outs.append(Lit.of(1, a.aval))
    return b.build(outs, "other")


def scan_step(g: Growth, _: Atom) -> None:
    """Add a `scan` over a body, with its operands drawn as constants, carries or slices."""
    body = draw_body(g)
    if body is None:
        return
    roles = [g.draw(st.sampled_from(["const", "carry", "xs"])) for _ in body.ins]
    order = [k for role in ("const", "carry", "xs") for k, r in enumerate(roles) if r == role]
    n_consts, n_carry = roles.count("const"), roles.count("carry")
    step = reordered_step(g, body, order, n_consts, n_carry)
    length: int = g.draw(st.sampled_from([2, *g.sizes, 1, 3, 0]))
    prim = Scan(step, length, g.draw(st.booleans()), g.draw(st.sampled_from([1, 2])), n_consts, n_carry)
    avals = [body.ins[k].aval for k in order]
    avals[n_consts + n_carry :] = [a.stacked(length) for a in avals[n_consts + n_carry :]]
    outs = g.builder(prim, *[draw_fitting_operand(g, a) for a in avals])
    for k, v in enumerate(outs):
        g.add(v, Fact(INPUT.low, INPUT.high, not g.smooth) if k < n_carry else RESULT)


def reordered_step(g: Growth, body: Jaxpr, order: Sequence[int], n_consts: int, n_carry: int) -> Jaxpr:
    """Return `body` with its operands in another order and the next carry before its results."""
    b = Builder()
    args = b.inputs([body.ins[k].aval for k in order])
    by_place = dict(zip(order, args, strict=True))
    results = b(Call(body), *[by_place[k] for k in range(len(body.ins))])
    carry = [_next_carry(g, b.one, a, results) for a in args[n_consts : n_consts + n_carry]]
    return b.build([*carry, *results], "step")


def _next_carry(g: Growth, emit: Callable[..., Atom], old: Atom, results: Sequence[Atom]) -> Atom:
    """Return the carry after `old`, within the bounds of an operand."""
    same = [r for r in results if r.aval is old.aval]
    new = same[g.draw(st.integers(0, len(same) - 1))] if same else old
    match g.draw(st.sampled_from(["new", "both", "old"])):
        case "old":
            return old
        case "new" if not old.aval.inexact:
            return new
        case _ if not old.aval.inexact:
            return emit(ew.XOR if old.aval.dtype == dtypes.bool_ else ew.ADD, old, new)
        case _ if not g.smooth:
            return emit(ew.NEG, old)
        case _ if old.aval.dtype in dtypes.COMPLEX:
            # |sin| of a complex number may be large: both parts are brought back by themselves
            parts = [emit(ew.SIN, emit(part, new)) for part in (ew.REAL, ew.IMAG)]
            return emit(ew.COMPLEX, *parts)
        case kind:
            return emit(ew.SIN, new if kind == "new" else emit(ew.ADD, old, new))


def while_step(g: Growth, _: Atom) -> None:
    """Add a `while` over a body with some operands as carries. It counts up to an existing number."""
    body = draw_body(g)
    if body is None:
        return
    roles = [g.draw(st.booleans()) for _ in body.ins]
    order = [k for role in (False, True) for k, r in enumerate(roles) if r is role]
    n_consts, n_carry = roles.count(False), roles.count(True)
    step = reordered_step(g, body, order, n_consts, n_carry)
    b = Builder()
    args = b.inputs(step.in_avals[:n_consts])
    count = b.input(_STEP)
    carry = b.inputs(step.in_avals[n_consts:])
    after = b(Call(step), *args, *carry)[:n_carry]
    counted = b.build([b.one(ew.ADD, count, Lit.of(1, _STEP)), *after], "counted")
    b = Builder()
    limit, count, *_rest = b.inputs([_STEP, _STEP, *step.in_avals[n_consts:]])
    more = b.build([b.one(ew.LT, count, limit)], "more")
    # without `max_steps` there is no reverse mode
    free = g.unbounded or not any([a.inexact for a in step.in_avals[n_consts:]])
    most = None if free and g.draw(st.booleans()) else g.draw(st.sampled_from([2, 3, 1, 0]))
    limit_now = g.emit(UNKNOWN, ew.CLAMP, Lit.of(0, _STEP), g.like(_STEP), Lit.of(3, _STEP))
    operands = [draw_fitting_operand(g, a) for a in step.in_avals]
    start = Lit.of(0, _STEP)
    prim = While(more, counted, 1, n_consts, most)
    outs = g.builder(prim, limit_now, *operands[:n_consts], start, *operands[n_consts:])
    for v in outs:
        g.add(v, Fact(INPUT.low, INPUT.high, not g.smooth))
