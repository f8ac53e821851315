"""What the rules of `while` do to its predicate and its steps: pure functions from bodies to bodies."""

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
    """The predicate over (constants, step, carry, stacks of rows) that ends after `max_steps`."""
    b = Builder()
    consts = b.inputs(cond.in_avals[:n_cond])
    step = b.input(STEP)
    (more,) = b.inline(cond, (*consts, *b.inputs(cond.in_avals[n_cond:])))
    b.inputs([stack_of(a, max_steps) for a in rows])
    return b.build((b.one(AND, more, b.one(LT, step, Lit.of(max_steps, STEP))),), cond.name)


@by_value
def storing(body: Jaxpr, n_consts: int, n_carry: int, max_steps: int) -> Jaxpr:
    """(constants, step, carry, stacks) -> (next step, carry, stacks with the rows of this step in place)."""
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
    """The type of a stack with a row for each step."""
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
    """One step of a loop whose examples stop one by one: (constants of cond, constants of body, live, carry) -> (live,
    carry, rows).

    `body` and `cond` are batched; `mapped` says which operands of `body` are. The carry of an example that is not live
    is frozen, bit for bit, and its rows are zero. `endless`: the body has loops of its own, which may never end for an
    example that has stopped: such an example then steps with the values of one that goes on. `guarded`: the first
    operand of `body` says which examples go on, for what it checks.
    """
    avals = body.in_avals[guarded:]
    n_carry = len(avals) - n_body
    b = Builder()
    of_cond, of_body = b.inputs(cond.in_avals[:n_cond]), b.inputs(avals[:n_body])
    live = b.input(Aval((size,), dtypes.bool_))
    carry = b.inputs(avals[n_body:])
    one = b.one(ArgMax(0, dtypes.int32), live) if endless and size else None  # of no examples none goes on
    operands = [_ongoing(b, x, one, live) if m else x for x, m in zip((*of_body, *carry), mapped, strict=True)]
    stepped = b.inline(body, (*[live] * guarded, *operands))
    # a carry that no step changes is not touched
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
    """An operand of a step: the same values, or for an example that has stopped those of example `one`.

    The step of an example that has stopped is for nothing, and so is its derivative: where that is not finite, 0 times
    it would be nan. As a constant it has none.
    """
    if one is not None:
        row = b.one(DynamicSlice((1, *x.aval.shape[1:])), x, one, *[_FIRST] * (x.aval.ndim - 1))
        return _where(b, live, x, spread(b, row, x.aval.shape, tuple(range(x.aval.ndim))))
    return _where(b, live, x, b.one(STOP_GRADIENT, x)) if x.aval.inexact else x


def any_live(step: Jaxpr, n_consts: int) -> Jaxpr:
    """Whether an example goes on: (live, carry) -> bool."""
    b = Builder()
    live, *_ = b.inputs(step.in_avals[n_consts:])
    return b.build((b.one(ReduceOr((0,)), live),), "any")


# --------------------------------------------------------------------------------------------------- differentiation


def with_constants(body: Jaxpr, n_consts: int, still: tuple[bool, ...], outs: Sequence[int]) -> Jaxpr:
    """The body with the carries marked moved behind its constants, and those of its results that are in `outs`."""
    fixed = [n_consts + k for k, s in enumerate(still) if s]
    moving = [n_consts + k for k, s in enumerate(still) if not s]
    b = Builder()
    ins = {k: b.input(body.in_avals[k]) for k in (*range(n_consts), *fixed, *moving)}
    results = b.inline(body, [ins[k] for k in range(len(ins))])
    return b.build([results[k] for k in outs], body.name)


def counting(body: Jaxpr, n_consts: int, *, adding: bool = False) -> Jaxpr:
    """The body over a carry that begins with the number of steps taken; with `adding` it gives the next one."""
    b = Builder()
    consts = b.inputs(body.in_avals[:n_consts])
    count = b.input(STEP)
    outs = b.inline(body, (*consts, *b.inputs(body.in_avals[n_consts:])))
    return b.build((b.one(ADD, count, Lit.of(1, STEP)), *outs) if adding else outs, body.name)
