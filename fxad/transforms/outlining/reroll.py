"""Rerolling: a chain of equal calls becomes a `scan`, so that the program is as long as one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder, renamed
from fxad.core.dataclasses import dataclass
from fxad.core.liveness import sweep
from fxad.core.memo import by_value
from fxad.ir import Atom, Aval, Emit, Eqn, Jaxpr, Lit, Var
from fxad.primitives.control.call import Call
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise import ADD, MUL
from fxad.primitives.picking import Index
from fxad.primitives.shape import ExpandDims, Iota, Rev
from fxad.primitives.slicing import Concatenate, Slice
from fxad.transforms.map_bodies import inside
from fxad.transforms.outlining.outline import outline

INTS: Final = (dtypes.int32, dtypes.int64)  # dtypes of places

# What stands in one place of each call of a chain.
Column: TypeAlias = tuple[Atom, ...]


@by_value
def reroll(jaxpr: Jaxpr) -> Jaxpr:
    """The program with each chain of equal calls, and of stretches that `outline` finds, as a `scan`.

    A chain: calls of one body, each of which takes results of the one before at the same places. These are the carry;
    operands that are the same for all are constants; others are stacked, and so are results that are used elsewhere.

    Rule: a chain stays as it is where an operand depends on the chain in another way (on the call before the last, on
          an equation in between), or where effects would change places. A program without chains stays as it is.
    Bodies are searched too: a chain in a stage that repeats is a loop in a loop.

    Law:  same value; idempotent; the number of equations does not depend on the length of a chain, but for those that
          put together operands that are separate values, and take apart results.
    """
    while True:
        found = outline(jaxpr)
        better = _all_rolled(inside(found, reroll))
        if better is found:
            return jaxpr
        jaxpr = better


def _all_rolled(jaxpr: Jaxpr) -> Jaxpr:
    """The program without chains."""
    while (chain := next(_chains(jaxpr), None)) is not None:
        jaxpr = _rolled(jaxpr, chain)
    return jaxpr


@final
@dataclass(frozen=True, slots=True)
class _Chain:
    """Calls of `body` at the places `calls`; operand p of each is result `carry[p]` of the one before. `later`: the
    equations between its calls that need its results."""

    body: Jaxpr
    calls: tuple[int, ...]
    carry: dict[int, int]
    later: tuple[int, ...]


# ------------------------------------------------------------------------------------------------------ what is there


def _chains(jaxpr: Jaxpr) -> Iterator[_Chain]:
    """The chains that can be rolled, each as long as it goes."""
    made = {v: at for at, eqn in enumerate(jaxpr.eqns) for v in eqn.outs}
    calls: dict[Jaxpr, list[int]] = {}
    for at, eqn in enumerate(jaxpr.eqns):
        if isinstance(eqn.prim, Call):
            calls.setdefault(eqn.prim.body, []).append(at)
    for body, places in calls.items():
        chain: list[int] = []
        carry: dict[int, int] = {}
        for at in places:
            links = _links(jaxpr, made, chain[-1], at) if chain else {}
            common = {p: r for p, r in links.items() if len(chain) < 2 or carry.get(p) == r}
            if not common:
                yield from _permitted(jaxpr, body, chain, carry)
                chain = []
            chain, carry = [*chain, at], common
        yield from _permitted(jaxpr, body, chain, carry)


def _links(jaxpr: Jaxpr, made: dict[Var, int], before: int, at: int) -> dict[int, int]:
    """Which operands of the call at `at` are which results of the call at `before`."""
    outs = jaxpr.eqns[before].outs
    ins = enumerate(jaxpr.eqns[at].ins)
    return {p: outs.index(a) for p, a in ins if isinstance(a, Var) and made.get(a) == before}


def _permitted(jaxpr: Jaxpr, body: Jaxpr, calls: Sequence[int], carry: dict[int, int]) -> Iterator[_Chain]:
    """The chain, if all its operands can be had before its first call."""
    if len(calls) < 2:
        return
    depends: set[Atom] = set(jaxpr.eqns[calls[0]].outs)
    later: list[int] = []
    effects = [bool(body.effects)]
    members = set(calls[1:])
    for at in range(calls[0] + 1, calls[-1] + 1):
        eqn = jaxpr.eqns[at]
        if at in members:
            if any([a in depends for p, a in enumerate(eqn.ins) if p not in carry]):
                return
            depends.update(eqn.outs)
            continue
        needs = any([a in depends for a in eqn.ins])
        if needs:
            depends.update(eqn.outs)
            later.append(at)
        if eqn.prim.effects:
            effects.append(needs)
    if len(effects) == 1 or (not effects[0] and effects == sorted(effects)):
        yield _Chain(body, tuple(calls), carry, tuple(later))


# ------------------------------------------------------------------------------------------------------- what is made


def _rolled(jaxpr: Jaxpr, chain: _Chain) -> Jaxpr:
    """The program with a chain as a scan."""
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    inside, later = set(chain.calls), set(chain.later)
    first, last = chain.calls[0], chain.calls[-1]

    def copy(places: Sequence[int]) -> None:
        b.extend([jaxpr.eqns[at] for at in places], env)

    copy([at for at in range(last) if at not in inside and at not in later])
    made = {v: eqn for eqn in b.eqns for v in eqn.outs}
    b.source = jaxpr.eqns[first].source
    columns = [renamed(column, env) for column in zip(*[jaxpr.eqns[at].ins for at in chain.calls], strict=True)]
    results = _scanned(b, chain, columns, made, _used(jaxpr, chain))
    for (k, r), value in results.items():
        env[jaxpr.eqns[chain.calls[k]].outs[r]] = value
    copy(chain.later)
    copy(range(last + 1, len(jaxpr.eqns)))
    return sweep(b.build(renamed(jaxpr.outs, env), jaxpr.name))


def _used(jaxpr: Jaxpr, chain: _Chain) -> list[tuple[int, int]]:
    """Which results of which calls of a chain are used outside of it: number of the call, number of the result."""
    places = {at: k for k, at in enumerate(chain.calls)}
    made = {v: (k, r) for at, k in places.items() for r, v in enumerate(jaxpr.eqns[at].outs)}
    used: dict[tuple[int, int], None] = {}
    for at, eqn in enumerate(jaxpr.eqns[chain.calls[0] :], chain.calls[0]):
        if at not in places:
            used.update({made[a]: None for a in eqn.ins if isinstance(a, Var) and a in made})
    used.update({made[a]: None for a in jaxpr.outs if isinstance(a, Var) and a in made})
    return sorted(used)


def _scanned(
    b: Builder, chain: _Chain, columns: Sequence[Column], made: dict[Var, Eqn], used: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], Atom]:
    """Emit the scan; returns the results that are used."""
    length, body, carry = len(chain.calls), chain.body, chain.carry
    consts = [p for p, c in enumerate(columns) if p not in carry and c.count(c[0]) == length]
    stacked = [p for p in range(len(columns)) if p not in carry and p not in consts]
    from_last = [r for k, r in used if k == length - 1]
    ys = sorted({r for k, r in used if k < length - 1 or r not in carry.values()})
    pieces = [_pieces(made, columns[p]) for p in stacked]
    reverse = sum([row.step * (row.count - 1) for column in pieces for row in column if isinstance(row, _Rows)]) < 0
    xs = [_stack(b, columns[p], column, reverse) for p, column in zip(stacked, pieces, strict=True)]
    step = Builder()
    order = [*consts, *carry, *stacked]
    held: dict[int, Atom] = {p: step.input(body.ins[p].aval) for p in order}
    outs = step.inline(body, [held[p] for p in range(len(columns))])
    prim = Scan(
        step.build([outs[r] for r in (*carry.values(), *ys)], body.name), length, reverse, 1, len(consts), len(carry)
    )
    found = b(prim, *[columns[p][0] for p in (*consts, *carry)], *xs)
    last = dict(zip(carry.values(), found, strict=False))
    whole = dict(zip(ys, found[len(carry) :], strict=True))
    return {
        (k, r): last[r]
        if r in last and k == length - 1 and r in from_last
        else _row(b, whole[r], length - 1 - k if reverse else k)
        for k, r in used
    }


# ------------------------------------------------------------------------------------------ arrays that are run over


@final
@dataclass(frozen=True, slots=True)
class _Rows:
    """`count` rows of `array` along its first axis, from `first` on, in steps of 1 or -1."""

    array: Atom
    first: int
    step: int = 1
    count: int = 1

    def with_row(self, array: Atom, k: int) -> _Rows | None:
        """One row more; None where it does not go on."""
        step = k - (self.first + self.step * (self.count - 1))
        follows = step in (1, -1) if self.count == 1 else step == self.step
        return _Rows(array, self.first, step, self.count + 1) if array is self.array and follows else None


def _row(emit: Emit, x: Atom, k: int) -> Var:
    """`x[k]`."""
    shape = x.aval.shape
    starts = (k, *(0,) * (len(shape) - 1))
    return emit.one(Index(starts, (1, *shape[1:]), (1,) * len(shape), (0,), ()), x)


def _pieces(made: dict[Var, Eqn], column: Column) -> list[_Rows | Atom]:
    """A column as rows of arrays, as far as it consists of such."""
    out: list[_Rows | Atom] = []
    for a in column:
        row = _row_of(made, a)
        last = out[-1] if out else None
        if row is None:
            out.append(a)
        elif isinstance(last, _Rows) and (longer := last.with_row(*row)):
            out[-1] = longer
        else:
            out.append(_Rows(*row))
    return out


def _row_of(made: dict[Var, Eqn], a: Atom) -> tuple[Atom, int] | None:
    """What array a value is a row of, and which."""
    eqn = made.get(a) if isinstance(a, Var) else None
    if eqn is None or not isinstance(eqn.prim, Index) or eqn.prim.dynamic or eqn.prim.dropped != (0,):
        return None
    whole = eqn.prim.sizes[1:] == eqn.ins[0].aval.shape[1:]
    return (eqn.ins[0], eqn.prim.starts[0]) if whole else None


def _stack(emit: Emit, column: Column, pieces: Sequence[_Rows | Atom], reverse: bool) -> Atom:
    """A column as one array, in the order in which the scan runs over it."""
    counted = _counted(emit, column[::-1] if reverse else column)
    if counted is not None:
        return counted
    parts = [_part(emit, piece, reverse) for piece in (reversed(pieces) if reverse else pieces)]
    return parts[0] if len(parts) == 1 else emit.one(Concatenate(0), *parts)


def _part(emit: Emit, piece: _Rows | Atom, reverse: bool) -> Atom:
    if isinstance(piece, Lit):
        return piece.with_aval((1, *piece.aval.shape))
    if isinstance(piece, Var):
        return emit.one(ExpandDims((0,)), piece)
    x = piece.array
    shape, low = x.aval.shape, min(piece.first, piece.first + piece.step * (piece.count - 1))
    if piece.count < shape[0]:
        rest = (0,) * (len(shape) - 1)
        x = emit.one(Slice((low, *rest), (low + piece.count, *shape[1:]), (1,) * len(shape)), x)
    return x if piece.count == 1 or (piece.step < 0) == reverse else emit.one(Rev((0,)), x)


def _counted(emit: Emit, column: Column) -> Atom | None:
    """A column of integers in equal steps, as an `iota`; None for any other."""
    if column[0].aval.shape or column[0].aval.dtype not in INTS or not all([isinstance(a, Lit) for a in column]):
        return None
    values = [int(a.value) for a in column if isinstance(a, Lit)]
    first, step = values[0], values[1] - values[0]
    if values != [first + step * k for k in range(len(values))]:
        return None
    aval = Aval((len(values),), column[0].aval.dtype)
    line: Atom = emit.one(Iota(aval.shape, aval.dtype, 0))
    if step != 1:
        line = emit.one(MUL, line, Lit.of(step, aval))
    return emit.one(ADD, line, Lit.of(first, aval)) if first else line
