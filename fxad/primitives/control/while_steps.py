"""Rewrites of the predicate and the steps of `while`, as pure functions from bodies to bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import Atom, Aval, Jaxpr, Lit, Zero
from fxad.primitives.argmax import ArgMax
from fxad.primitives.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from fxad.primitives.elementwise import ADD, AND, LT, SELECT_N, STOP_GRADIENT
from fxad.primitives.reduce import ReduceOr
from fxad.primitives.shape import ExpandDims, spread

STEP: Final = Aval((), dtypes.int32)
_FIRST: Final = Lit.of(0, STEP)

# ---------------------------------------------------------------------------------------------------------- lowering


@by_value
def bounded(cond: Jaxpr, n_cond: int, max_steps: int, rows: tuple[Aval, ...]) -> Jaxpr:
    """Return the predicate over (constants, step, carry, stacks of rows) that is false after `max_steps`."""
    b = Builder()
    consts = b.inputs(cond.in_avals[:n_cond])
    step = b.input(STEP)
    (more,) = b.inline(cond, (*consts, *b.inputs(cond.in_avals[n_cond:])))
    b.inputs([stack_of(a, max_steps) for a in rows])
    return b.build((b.one(AND, more, b.one(LT, step, Lit.of(max_steps, STEP))),), cond.name)


@by_value
def storing(body: Jaxpr, n_consts: int, n_carry: int, max_steps: int) -> Jaxpr:
    """Return (constants, step, carry, stacks) -> (next step, carry, stacks), which writes the rows of this step into
    the stacks."""
    b = Builder()
    consts = b.inputs(body.in_avals[:n_consts])
    step = b.input(STEP)
    outs = b.inline(body, (*consts, *b.inputs(body.in_avals[n_consts:])))
    rows = outs[n_carry:]
    stacks = b.inputs([stack_of(a.aval, max_steps) for a in rows])
    stored = [
        b.one(DynamicUpdateSlice(), stack, _row(b, row), step, *[_FIRST] * row.aval.ndim)
        for stack, row in zip(stacks, rows, strict=True)
    ]
    return b.build((b.one(ADD, step, Lit.of(1, STEP)), *outs[:n_carry], *stored), body.name)


def stack_of(row: Aval, max_steps: int) -> Aval:
    """Return the type of a stack with one row per step."""
    return row.with_shape((max_steps, *row.shape))


def _row(b: Builder, a: Atom) -> Atom:
    return a.with_aval((1, *a.aval.shape)) if isinstance(a, Lit) else b.one(ExpandDims((0,)), a)


# ---------------------------------------------------------------------------------------------------------- batching


def per_example(
    body: Jaxpr,
    cond: Jaxpr,
    n_body: int,
    n_cond: int,
    mapped: tuple[bool, ...],
    size: int,
    *,
    endless: bool,
    guarded: bool,
) -> Jaxpr:
    """Return one step of a batched loop: (constants of cond, constants of body, live, carry) -> (live, carry, rows).

    `body` and `cond` are batched; `mapped` marks the mapped operands of `body`. The carry of an example that is not
    live is unchanged bit for bit, and its rows are zero. `endless`: the body contains loops that may not terminate for
    an example that has stopped; such an example then uses the operands of a live one. `guarded`: the first operand of
    `body` marks the live examples, for its checks.
    """
    avals = body.in_avals[guarded:]
    n_carry = len(avals) - n_body
    b = Builder()
    of_cond, of_body = b.inputs(cond.in_avals[:n_cond]), b.inputs(avals[:n_body])
    live = b.input(Aval((size,), dtypes.bool_))
    carry = b.inputs(avals[n_body:])
    one = b.one(ArgMax(0, dtypes.int32), live) if endless and size else None  # without examples none is live
    operands = [_ongoing(b, x, one, live) if m else x for x, m in zip((*of_body, *carry), mapped, strict=True)]
    stepped = b.inline(body, (*[live] * guarded, *operands))
    # a carry that no step changes needs no select
    olds = zip(carry, mapped[n_body:], body.ins[guarded + n_body :], strict=True)
    state = [
        old if a is v or not m else _where(b, live, new, old)
        for new, a, (old, m, v) in zip(stepped, body.outs, olds, strict=False)
    ]
    rows = [_where(b, live, row, Zero(row.aval).instantiate()) for row in stepped[n_carry:]]
    (more,) = b.inline(cond, (*of_cond, *state))
    return b.build((b.one(AND, live, more), *state, *rows), body.name)


def _where(b: Builder, live: Atom, new: Atom, old: Atom) -> Atom:
    return b.one(SELECT_N, spread(b, live, new.aval.shape, (0,)), old, new)


def _ongoing(b: Builder, x: Atom, one: Atom | None, live: Atom) -> Atom:
    """Return an operand of a step. For examples that have stopped it holds the values of example `one`, or, if `one` is
    None, its own values as constants.

    The step of an example that has stopped is discarded, and so is its derivative. If that derivative is not finite, 0
    times it would be nan. A constant has no derivative.
    """
    if one is not None:
        row = b.one(DynamicSlice((1, *x.aval.shape[1:])), x, one, *[_FIRST] * (x.aval.ndim - 1))
        return _where(b, live, x, spread(b, row, x.aval.shape, tuple(range(x.aval.ndim))))
    return _where(b, live, x, b.one(STOP_GRADIENT, x)) if x.aval.inexact else x


def any_live(step: Jaxpr, n_consts: int) -> Jaxpr:
    """Return (live, carry) -> bool: whether any example is live."""
    b = Builder()
    live, *_ = b.inputs(step.in_avals[n_consts:])
    return b.build((b.one(ReduceOr((0,)), live),), "any")


# --------------------------------------------------------------------------------------------------- differentiation


def with_constants(body: Jaxpr, n_consts: int, still: tuple[bool, ...], outs: Sequence[int]) -> Jaxpr:
    """Return the body with the marked carries moved behind its constants, and with its results in `outs`."""
    fixed = [n_consts + k for k, s in enumerate(still) if s]
    moving = [n_consts + k for k, s in enumerate(still) if not s]
    b = Builder()
    ins = {k: b.input(body.in_avals[k]) for k in (*range(n_consts), *fixed, *moving)}
    results = b.inline(body, [ins[k] for k in range(len(ins))])
    return b.build([results[k] for k in outs], body.name)


def counting(body: Jaxpr, n_consts: int, *, adding: bool = False) -> Jaxpr:
    """Return the body over a carry that begins with the number of steps taken; with `adding` it also returns the next
    number."""
    b = Builder()
    consts = b.inputs(body.in_avals[:n_consts])
    count = b.input(STEP)
    outs = b.inline(body, (*consts, *b.inputs(body.in_avals[n_consts:])))
    return b.build((b.one(ADD, count, Lit.of(1, STEP)), *outs) if adding else outs, body.name)
