"""The lowering of a scan to a loop: programs that read and write arrays at an index."""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import Atom, Aval, Emit, Jaxpr, Lit, Shape
from fxad.primitives.control.call import Call
from fxad.primitives.control.scan_parts import Steps
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE, DynamicSlice
from fxad.primitives.elementwise import ADD, LT, SUB
from fxad.primitives.shape import reshaped
from fxad.primitives.slicing import Concatenate, Slice


def index_aval(length: int) -> Aval:
    """Return the type of a loop index: 32 bits if the length fits."""
    return Aval((), dtypes.int32 if length < 1 << 31 else dtypes.int64)


@by_value
def condition(body: Jaxpr, length: int, unroll: int, n_consts: int, n_carry: int, upto: bool) -> Jaxpr:
    """Return (index, carry, written arrays) -> whether the loop continues. With `upto` a bound is the first operand."""
    b = Builder()
    steps, index = Steps(body, n_consts, n_carry), index_aval(length)
    bound = b.input(index) if upto else Lit.of(length - length % unroll, index)
    i = b.input(index)
    b.inputs(_carried(steps, length))
    return b.build((b.one(LT, i, bound),), f"more_{body.name}")


@by_value
def trip(body: Jaxpr, length: int, reverse: bool, unroll: int, n_consts: int, n_carry: int, upto: bool) -> Jaxpr:
    """Return (constants, read arrays, index, carry, written arrays) -> (index, carry, arrays): one iteration of
    `unroll` steps. With `upto` a bound is the first operand."""
    b = Builder()
    steps, index = Steps(body, n_consts, n_carry), index_aval(length)
    bound = b.input(index) if upto else None
    consts, _, slices = steps.split(body.in_avals)
    fixed = b.inputs(consts)
    xs = b.inputs(_stacked(slices, length))
    i = b.input(index)
    state: tuple[Atom, ...] = b.inputs(_carried(steps, length))
    last = b.one(SUB, bound, Lit.of(1, index)) if bound and reverse else Lit.of(length - 1, index)
    for k in range(unroll):
        at = b.one(ADD, i, Lit.of(k, index)) if k else i
        slot = b.one(SUB, last, at) if reverse else at
        state = _step(b, steps, fixed, xs, state, slot)
    return b.build((b.one(ADD, i, Lit.of(unroll, index)), *state), f"step_{body.name}")


@by_value
def straight(body: Jaxpr, length: int, first: int, reverse: bool, n_consts: int, n_carry: int) -> Jaxpr:
    """Return (constants, read arrays, carry, written arrays) -> (carry, arrays): the steps from `first` on, without a
    loop. If it covers all steps, it does not write in place: it concatenates the rows at the end."""
    b = Builder()
    steps = Steps(body, n_consts, n_carry)
    consts, _, slices = steps.split(body.in_avals)
    fixed = b.inputs(consts)
    xs = b.inputs(_stacked(slices, length))
    if first:
        state: tuple[Atom, ...] = b.inputs(_carried(steps, length))
        for i in range(first, length):
            slot = Lit.of(length - 1 - i if reverse else i, index_aval(length))
            state = _step(b, steps, fixed, xs, state, slot)
        return b.build(state, f"rest_{body.name}")
    carry: tuple[Atom, ...] = b.inputs(body.out_avals[:n_carry])
    rows: list[tuple[Atom, ...]] = []
    for i in range(length):
        slot_at = length - 1 - i if reverse else i
        outs = b(Call(body), *fixed, *carry, *[_row(b, x, slot_at) for x in xs])
        carry = outs[:n_carry]
        rows.append(tuple([reshaped(b, y, (1, *y.aval.shape)) for y in outs[n_carry:]]))
    if reverse:
        rows.reverse()
    ys = [column[0] if length == 1 else b.one(Concatenate(0), *column) for column in zip(*rows, strict=True)]
    return b.build((*carry, *ys), f"steps_{body.name}")


def _stacked(avals: Sequence[Aval], length: int) -> tuple[Aval, ...]:
    return tuple([a.with_shape((length, *a.shape)) for a in avals])


def _carried(steps: Steps, length: int) -> tuple[Aval, ...]:
    """Return the types of the loop state without the index."""
    outs = steps.body.out_avals
    return outs[: steps.n_carry] + _stacked(outs[steps.n_carry :], length)


def _row(emit: Emit, x: Atom, k: int) -> Atom:
    shape = x.aval.shape
    zeros = (0,) * (len(shape) - 1)
    if shape[0] > 1:
        x = emit.one(Slice((k, *zeros), (k + 1, *shape[1:]), (1,) * len(shape)), x)
    return reshaped(emit, x, shape[1:])


def _step(
    emit: Emit, steps: Steps, consts: Sequence[Atom], xs: Sequence[Atom], state: Sequence[Atom], slot: Atom
) -> tuple[Atom, ...]:
    """Run one step: read slot `slot`, apply the body, write the slot. `state` is the carry and the written arrays."""
    zero = Lit.of(0, slot.aval)

    def at(shape: Shape) -> tuple[Atom, ...]:
        return slot, *[zero] * (len(shape) - 1)

    carry, ys = state[: steps.n_carry], state[steps.n_carry :]
    rows = []
    for x in xs:
        shape = x.aval.shape
        row = emit.one(DynamicSlice((1, *shape[1:])), x, *at(shape))
        rows.append(reshaped(emit, row, shape[1:]))
    outs = emit(Call(steps.body), *consts, *carry, *rows)
    written = [
        emit.one(DYNAMIC_UPDATE_SLICE, y, reshaped(emit, new, (1, *new.aval.shape)), *at(y.aval.shape))
        for y, new in zip(ys, outs[steps.n_carry :], strict=True)
    ]
    return *outs[: steps.n_carry], *written
