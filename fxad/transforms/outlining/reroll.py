"""Rerolling: a chain of equal calls becomes a `scan`, so that the program has the length of one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder, producers, producing_eqns, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import remove_dead_eqns
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Aval, Emit, Eqn, Jaxpr, Lit, Var
from fxad.primitives.control.call import callee
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise.arithmetic import ADD, MUL
from fxad.primitives.index import Index
from fxad.primitives.shape import ExpandDims, Iota, Rev
from fxad.primitives.slicing import Concatenate, Slice
from fxad.transforms.map_bodies import map_bodies
from fxad.transforms.outlining.outline import outline

INTS: Final = (dtypes.int32, dtypes.int64)  # dtypes of indices

# The values of one operand in all calls of a chain.
Column: TypeAlias = Atoms


@by_value
def reroll(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program in which each chain of equal calls is a `scan`. `outline` first makes the calls.

    A chain consists of calls of one body. Each call takes results of the previous call at the same operands: these are
    the carry. Operands that are the same in all calls are constants. Other operands are stacked, and so are results
    that are used elsewhere.

    Rule: a chain is left unchanged if an operand depends on the chain in another way (on the call before the previous
          one, on an equation between the calls), or if effects would be reordered. A program without chains is left
          unchanged. Bodies are searched too: a chain in a repeated stage becomes a loop in a loop.

    Law:  same value; idempotent; the number of equations does not depend on the length of a chain, except for those
          that stack separate operands and unstack results.
    """
    while True:
        outlined = outline(jaxpr)
        better = _all_rolled(map_bodies(outlined, reroll))
        if better is outlined:
            return jaxpr
        jaxpr = better


def _all_rolled(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program without chains."""
    while (chain := _next_chain(jaxpr)) is not None:
        jaxpr = _rolled(jaxpr, chain)
    return jaxpr


@final
@dataclass(frozen=True, slots=True)
class _CallChain:
    """Calls of `body` at the equations `calls`. Operand p of each call is result `carry[p]` of the previous one.
    `later` are the equations between the calls that depend on their results."""

    body: Jaxpr
    calls: tuple[int, ...]
    carry: dict[int, int]
    later: tuple[int, ...]


# ----------------------------------------------------------------------------------------------------- finding chains


def _next_chain(jaxpr: Jaxpr) -> _CallChain | None:
    """Return a chain that can be rolled: of the calls of a body, the first ones, as many as possible."""
    permitted = (_permitted(jaxpr, *candidate) for candidate in _candidates(jaxpr))
    return next((chain for chain in permitted if chain is not None), None)


def _candidates(jaxpr: Jaxpr) -> Iterator[tuple[Jaxpr, list[int], dict[int, int]]]:
    """Yield a body, linked calls of it, and their links."""
    eqn_number = producers(jaxpr.eqns)
    calls: dict[Jaxpr, list[int]] = {}
    for number, eqn in enumerate(jaxpr.eqns):
        body = callee(eqn)
        if body is not None:
            calls.setdefault(body, []).append(number)
    for body, places in calls.items():
        for chain, carry in _linked_calls(jaxpr, eqn_number, places):
            yield body, chain, carry


def _linked_calls(
    jaxpr: Jaxpr, eqn_number: dict[Var, int], places: Sequence[int]
) -> Iterator[tuple[list[int], dict[int, int]]]:
    """Yield calls of one body, each linked to the previous one, and the links that all of them have.

    The more calls, the fewer links may be common, and then fewer operands may depend on the calls. So the calls before
    one with fewer links are yielded too, after the longer candidate.
    """
    chain: list[int] = []
    carry: dict[int, int] = {}
    shorter: list[tuple[list[int], dict[int, int]]] = []
    for number in places:
        links = _results_read(jaxpr, eqn_number, chain[-1], number) if chain else {}
        common = {p: r for p, r in links.items() if len(chain) < 2 or carry.get(p) == r}
        if not common:
            yield from reversed([*shorter, (chain, carry)])
            chain, shorter = [], []
        elif len(chain) >= 2 and common != carry:
            shorter.append((chain, carry))
        chain, carry = [*chain, number], common
    yield from reversed([*shorter, (chain, carry)])


def _results_read(jaxpr: Jaxpr, eqn_number: dict[Var, int], earlier: int, number: int) -> dict[int, int]:
    """Map operands of the call at `number` to results of the call at `earlier`."""
    outs = jaxpr.eqns[earlier].outs
    ins = enumerate(jaxpr.eqns[number].ins)
    return {p: outs.index(a) for p, a in ins if isinstance(a, Var) and eqn_number.get(a) == earlier}


def _permitted(jaxpr: Jaxpr, body: Jaxpr, calls: Sequence[int], carry: dict[int, int]) -> _CallChain | None:
    """Return the chain if all its operands except the carry are available before its first call, and effects stay in
    order."""
    if len(calls) < 2:
        return None
    depends: set[Atom] = set(jaxpr.eqns[calls[0]].outs)
    later: list[int] = []
    moves_later: list[bool] = []  # for each equation with effects between the calls
    members = set(calls[1:])
    for number in range(calls[0] + 1, calls[-1] + 1):
        eqn = jaxpr.eqns[number]
        if number in members:
            if any([a in depends for p, a in enumerate(eqn.ins) if p not in carry]):
                return None
            depends.update(eqn.outs)
            continue
        needs = any([a in depends for a in eqn.ins])
        if needs:
            depends.update(eqn.outs)
            later.append(number)
        if eqn.prim.effects:
            moves_later.append(needs)
    # the equations between the calls run before the scan, or after it if they read results of a call
    only_calls_have_effects = not moves_later
    others_in_order = not body.effects and moves_later == sorted(moves_later)
    if only_calls_have_effects or others_in_order:
        return _CallChain(body, tuple(calls), carry, tuple(later))
    return None


# ------------------------------------------------------------------------------------------------------ writing scans


def _rolled(jaxpr: Jaxpr, chain: _CallChain) -> Jaxpr:
    """Return the program with a chain as a scan."""
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    calls, later = set(chain.calls), set(chain.later)
    first, last = chain.calls[0], chain.calls[-1]

    def copy(places: Sequence[int]) -> None:
        b.extend([jaxpr.eqns[number] for number in places], env)

    copy([number for number in range(last) if number not in calls and number not in later])
    producer = producing_eqns(b.eqns)
    b.source = jaxpr.eqns[first].source
    operands = [jaxpr.eqns[number].ins for number in chain.calls]
    columns = [substitute(column, env) for column in zip(*operands, strict=True)]
    results = _scanned(b, chain, columns, producer, _results_used_outside(jaxpr, chain))
    for (k, r), value in results.items():
        env[jaxpr.eqns[chain.calls[k]].outs[r]] = value
    copy(chain.later)
    copy(range(last + 1, len(jaxpr.eqns)))
    return remove_dead_eqns(b.build(substitute(jaxpr.outs, env), jaxpr.name))


def _results_used_outside(jaxpr: Jaxpr, chain: _CallChain) -> list[tuple[int, int]]:
    """Return the results of a chain that are used outside of it, as pairs (number of the call, number of the
    result)."""
    places = {number: k for k, number in enumerate(chain.calls)}
    result_of = {v: (k, r) for number, k in places.items() for r, v in enumerate(jaxpr.eqns[number].outs)}
    used: dict[tuple[int, int], None] = {}
    for number, eqn in enumerate(jaxpr.eqns[chain.calls[0] :], chain.calls[0]):
        if number not in places:
            used.update({result_of[a]: None for a in eqn.ins if isinstance(a, Var) and a in result_of})
    used.update({result_of[a]: None for a in jaxpr.outs if isinstance(a, Var) and a in result_of})
    return sorted(used)


def _scanned(
    b: Builder,
    chain: _CallChain,
    columns: Sequence[Column],
    producer: Mapping[Atom, Eqn],
    used: Sequence[tuple[int, int]],
) -> dict[tuple[int, int], Atom]:
    """Emit the scan. Return the results that are used. `columns` has the values of each operand in all calls."""
    length, body, carry = len(chain.calls), chain.body, chain.carry
    # numbers of operands: `carry`, `consts`, and `stacked`, of which each step reads a row; of stacked results: `ys`
    consts = [p for p, c in enumerate(columns) if p not in carry and c.count(c[0]) == length]
    stacked = [p for p in range(len(columns)) if p not in carry and p not in consts]
    ys = sorted({r for k, r in used if k < length - 1 or r not in carry.values()})
    in_rows = [_in_rows(producer, columns[p]) for p in stacked]
    # the scan runs in the direction in which more of the rows are read
    reverse = sum([row.step * (row.count - 1) for column in in_rows for row in column if isinstance(row, _Rows)]) < 0
    xs = [_stack(b, columns[p], column, reverse) for p, column in zip(stacked, in_rows, strict=True)]
    step = Builder()
    order = [*consts, *carry, *stacked]
    operands: dict[int, Atom] = {p: step.input(body.ins[p].aval) for p in order}
    outs = step.inline(body, [operands[p] for p in range(len(columns))])
    one_call = step.build([outs[r] for r in (*carry.values(), *ys)], body.name)
    prim = Scan(one_call, length, reverse=reverse, unroll=1, n_consts=len(consts), n_carry=len(carry))
    results = b(prim, *[columns[p][0] for p in (*consts, *carry)], *xs)
    final_carry = dict(zip(carry.values(), results, strict=False))
    stacks = dict(zip(ys, results[len(carry) :], strict=True))

    def result(k: int, r: int) -> Atom:
        if r in final_carry and k == length - 1:
            return final_carry[r]
        return _index_row(b, stacks[r], length - 1 - k if reverse else k)

    return {(k, r): result(k, r) for k, r in used}


# -------------------------------------------------------------------------------------------------- stacked operands


@final
@dataclass(frozen=True, slots=True)
class _Rows:
    """`count` rows of `array` along its first axis, starting at `first`, with step 1 or -1."""

    array: Atom
    first: int
    step: int = 1
    count: int = 1

    def with_row(self, array: Atom, k: int) -> _Rows | None:
        """Return the rows with one more row, or None if it does not continue them."""
        step = k - (self.first + self.step * (self.count - 1))
        follows = step in (1, -1) if self.count == 1 else step == self.step
        return _Rows(array, self.first, step, self.count + 1) if array is self.array and follows else None


def _index_row(emit: Emit, x: Atom, k: int) -> Var:
    """Return `x[k]`."""
    shape = x.aval.shape
    starts = (k, *(0,) * (len(shape) - 1))
    return emit.one(Index(starts, (1, *shape[1:]), (1,) * len(shape), (0,), ()), x)


def _in_rows(producer: Mapping[Atom, Eqn], column: Column) -> list[_Rows | Atom]:
    """Return a column with consecutive rows of an array as one `_Rows`. Other values stay as they are."""
    out: list[_Rows | Atom] = []
    for a in column:
        row = _row_of(producer, a)
        last = out[-1] if out else None
        if row is None:
            out.append(a)
        elif isinstance(last, _Rows) and (longer := last.with_row(*row)):
            out[-1] = longer
        else:
            out.append(_Rows(*row))
    return out


def _row_of(producer: Mapping[Atom, Eqn], a: Atom) -> tuple[Atom, int] | None:
    """Return the array and the row number of a value that is a row of an array; None for other values."""
    eqn = producer.get(a) if isinstance(a, Var) else None
    if eqn is None or not isinstance(eqn.prim, Index) or eqn.prim.dynamic or eqn.prim.dropped != (0,):
        return None
    is_row = eqn.prim.sizes[1:] == eqn.ins[0].aval.shape[1:]
    return (eqn.ins[0], eqn.prim.starts[0]) if is_row else None


def _stack(emit: Emit, column: Column, in_rows: Sequence[_Rows | Atom], reverse: bool) -> Atom:
    """Return a column as one array, in the order of the scan. `in_rows` is the column as `_in_rows` returns it."""
    counted = _as_iota(emit, column[::-1] if reverse else column)
    if counted is not None:
        return counted
    parts = [_stack_of_rows(emit, rows, reverse) for rows in (reversed(in_rows) if reverse else in_rows)]
    return parts[0] if len(parts) == 1 else emit.one(Concatenate(0), *parts)


def _stack_of_rows(emit: Emit, rows: _Rows | Atom, reverse: bool) -> Atom:
    """Return rows, or a value as one row, as an array in the order of the scan."""
    if isinstance(rows, Lit):
        return rows.with_shape((1, *rows.aval.shape))
    if isinstance(rows, Var):
        return emit.one(ExpandDims((0,)), rows)
    x = rows.array
    shape, low = x.aval.shape, min(rows.first, rows.first + rows.step * (rows.count - 1))
    if rows.count != shape[0]:
        rest = (0,) * (len(shape) - 1)
        x = emit.one(Slice((low, *rest), (low + rows.count, *shape[1:]), (1,) * len(shape)), x)
    return x if rows.count == 1 or (rows.step < 0) == reverse else emit.one(Rev((0,)), x)


def _as_iota(emit: Emit, column: Column) -> Atom | None:
    """Return a column of integers with equal steps as an `iota`; None for other columns."""
    if column[0].aval.shape or column[0].aval.dtype not in INTS or not all([isinstance(a, Lit) for a in column]):
        return None
    values = [a.integer for a in column if isinstance(a, Lit)]
    first, step = values[0], values[1] - values[0]
    if values != [first + step * k for k in range(len(values))]:
        return None
    aval = Aval((len(values),), column[0].aval.dtype)
    line: Atom = emit.one(Iota(aval.shape, aval.dtype, 0))
    if step != 1:
        line = emit.one(MUL, line, Lit.of(step, aval))
    return emit.one(ADD, line, Lit.of(first, aval)) if first else line
