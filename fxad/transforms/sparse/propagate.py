"""The relation of a program: compositions of the relations of its equations. Bodies go by their layouts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from fxad.core.atoms import MeshAxes
from fxad.core.layout import (
    BranchIndex,
    Count,
    Elements,
    InParallel,
    Layout,
    OneOf,
    Part,
    Role,
    Sliced,
    Times,
    UpTo,
)
from fxad.core.memo import by_value
from fxad.errors import FxadError
from fxad.ir import Atom, Eqn, Flags, HigherOrder, Jaxpr, Shape
from fxad.primitives.implicit import LinearSolve
from fxad.transforms.sparse.relation import (
    EMPTY,
    Ints,
    Relation,
    box,
    compose,
    dense,
    identity,
    pairs,
    relation,
    repeated,
    shifted,
    strided,
    table,
    transposed,
    triangle,
    union,
)  # fmt: skip
from fxad.transforms.sparse.rules import relation_of, strides_of
from fxad.transforms.sparse.values import NOTHING, LazyKnownValues, unknown
from fxad.transforms.vmap import vmap_named

Relations: TypeAlias = "dict[int, Relation]"  # by operand

_SMALL: Final = 512  # carries of so many elements together have a boolean matrix, whose powers are exact
_ROUNDS: Final = 12
_FEW_BOXES: Final = 64
_MOST_SHIFTS: Final = 2048


class Dependence(NamedTuple):
    """For each result, its relations by operand; and notes of indices that depend on data."""

    results: tuple[Relations, ...]
    notes: tuple[str, ...]


@by_value
def of_body(jaxpr: Jaxpr, marked: Flags) -> Dependence:
    """Return the dependence of a program on the marked operands, for all values of the others."""
    return dependence(jaxpr, marked, NOTHING)


def dependence(jaxpr: Jaxpr, marked: Flags, values: LazyKnownValues) -> Dependence:
    """Return the dependence of a program on the marked operands."""
    env: dict[Atom, Relations] = {
        v: {k: identity(v.aval.size)} for k, (v, m) in enumerate(zip(jaxpr.ins, marked, strict=True)) if m
    }
    notes: list[str] = []
    known = values is not NOTHING
    if not known:
        values = LazyKnownValues(jaxpr, [unknown] * len(jaxpr.ins))
    for eqn in jaxpr.eqns:
        dependent = [k for k, a in enumerate(eqn.ins) if a in env]
        if not dependent:
            continue
        if isinstance(eqn.prim, HigherOrder):
            found = _of_bodies(eqn, dependent, values, notes)
        else:
            found = [{k: relation_of(eqn, k, r, values, notes) for k in dependent} for r in range(len(eqn.outs))]
        for v, by_operand in zip(eqn.outs, found, strict=True):
            if not v.aval.inexact:
                continue
            total: dict[int, list[Relation]] = {}
            for k, step in by_operand.items():
                a = eqn.ins[k]
                for i, before in env.get(a, {}).items():
                    total.setdefault(i, []).append(compose(step, before, a.aval.size))
            block = {i: u for i, parts in total.items() if not (u := union(*parts)).empty}
            if block:
                env[v] = block
    return Dependence(tuple([env.get(a, {}) for a in jaxpr.outs]), tuple(dict.fromkeys(notes)))


# ----------------------------------------------------------------------------------------------------------- bodies


def _body(
    jaxpr: Jaxpr, marked: Flags, notes: list[str], values: LazyKnownValues | None = None
) -> tuple[Relations, ...]:
    found = of_body(jaxpr, marked) if values is None else dependence(jaxpr, marked, values)
    notes.extend(found.notes)
    return found.results


def _of_bodies(eqn: Eqn, dependent: Sequence[int], values: LazyKnownValues, notes: list[str]) -> list[Relations]:
    prim = eqn.prim
    assert isinstance(prim, HigherOrder)
    layout = prim.layout
    if isinstance(prim, LinearSolve):
        return _linear_solve(prim, eqn, dependent, notes)
    roles = {type(g.role) for g in (*layout.operands, *layout.results)}
    if Elements in roles or not layout.running:
        return _dense(eqn, dependent)
    if any([isinstance(layout.bodies[k].runs, InParallel) for k in layout.running]):
        return _in_parallel(eqn, layout, dependent, notes) or _dense(eqn, dependent)
    branches = [k for k in layout.running if type(layout.bodies[k].runs) is OneOf]
    if branches:
        return _branches(eqn, layout, branches, dependent, values, notes)
    if layout.once is not None:
        return _once(eqn, layout, layout.once, dependent, values, notes)
    return _loop(eqn, layout, dependent, notes) or _dense(eqn, dependent)


def _dense(eqn: Eqn, dependent: Sequence[int]) -> list[Relations]:
    return [{k: dense(v.aval.size, eqn.ins[k].aval.size) for k in dependent} for v in eqn.outs]


def _once(
    eqn: Eqn, layout: Layout, k: int, dependent: Sequence[int], values: LazyKnownValues, notes: list[str]
) -> list[Relations]:
    body, places = layout.bodies[k].jaxpr, layout.operand_indices(k)
    inner = LazyKnownValues(body, [partial(values.get, eqn.ins[p]) for p in places])
    any_known = any([p not in dependent and not eqn.ins[p].aval.inexact for p in places])
    found = _body(body, tuple([p in dependent for p in places]), notes, inner if any_known else None)
    outs: list[Relations] = [{} for _ in eqn.outs]
    for place, block in zip(layout.result_indices(k), found, strict=True):
        if place is not None:
            for i, r in block.items():
                outs[place][places[i]] = union(outs[place].get(places[i], EMPTY), r)
    return outs


def _in_parallel(eqn: Eqn, layout: Layout, dependent: Sequence[int], notes: list[str]) -> list[Relations] | None:
    """Return the dependence of a body that runs for each index of a mesh: that of its batch, in which collectives are
    operations on the stack, between the parts of the operands and those of the results."""
    roles, result_roles = layout.operand_roles, layout.result_roles
    mesh = next((role.mesh for role in (*roles, *result_roles) if isinstance(role, Part)), None)
    if mesh is None or len(layout.running) != 1:
        return None
    (k,) = layout.running
    stacked, places = layout.bodies[k].jaxpr, layout.operand_indices(k)
    local_in = [v.aval.shape for v in stacked.ins]
    local_out = [a.aval.shape for a in stacked.outs]
    try:
        for name, size in reversed(mesh):
            stacked, _ = vmap_named(stacked, size, name, (0,) * len(stacked.ins), (0,) * len(stacked.outs))
    except FxadError:
        return None  # such as a collective in a branch
    outs: list[Relations] = [{} for _ in eqn.outs]
    found = _body(stacked, tuple([p in dependent for p in places]), notes)
    for r, block, shape in zip(layout.result_indices(k), found, local_out, strict=True):
        if r is None:
            continue
        put = transposed(_parts(mesh, result_roles[r], shape, eqn.outs[r].aval.shape))
        for i, rel in block.items():
            p = places[i]
            take = _parts(mesh, roles[p], local_in[i], eqn.ins[p].aval.shape)
            whole = compose(put, compose(rel, take, stacked.ins[i].aval.size), prod((*_sizes(mesh), *shape)))
            outs[r][p] = union(outs[r].get(p, EMPTY), whole)
    return outs


def _sizes(mesh: MeshAxes) -> list[int]:
    return [n for _, n in mesh]


def _parts(mesh: MeshAxes, role: Role, part: Shape, whole: Shape) -> Relation:
    """Return the relation of the stack of the parts of an array, in the order of the mesh, to the whole array."""
    sizes = _sizes(mesh)
    shape = (*sizes, *part)
    if isinstance(role, Sliced):  # along its first axis, in the order of the mesh
        return identity(prod(shape))
    strides = strides_of(whole)
    of_index = dict.fromkeys([name for name, _ in mesh], 0)
    if isinstance(role, Part):
        for names, length, stride in zip(role.spec, part, strides, strict=False):
            step = length * stride
            for name in reversed(names):
                of_index[name] += step
                step *= dict(mesh)[name]
    return strided(shape, strides_of(shape), (*[of_index[name] for name, _ in mesh], *strides))


def _branches(
    eqn: Eqn,
    layout: Layout,
    branches: Sequence[int],
    dependent: Sequence[int],
    values: LazyKnownValues,
    notes: list[str],
) -> list[Relations]:
    index = next((p for p, role in enumerate(layout.operand_roles) if type(role) is BranchIndex), None)
    chosen = None if index is None else values.get(eqn.ins[index])
    if chosen is not None and chosen.ndim == 0:
        branches = [branches[min(max(int(chosen), 0), len(branches) - 1)]]
    outs: list[Relations] = [{} for _ in eqn.outs]
    for k in branches:
        for out, block in zip(outs, _once(eqn, layout, k, dependent, values, notes), strict=True):
            for i, r in block.items():
                out[i] = union(out.get(i, EMPTY), r)
    return outs


def _linear_solve(prim: LinearSolve, eqn: Eqn, dependent: Sequence[int], notes: list[str]) -> list[Relations]:
    """The inverse of a matrix is a polynomial in it, so it has the pattern of the closure of the pattern."""
    n = prim.size
    if any([k >= n for k in dependent]) or len(eqn.outs) != n:
        return _dense(eqn, dependent)
    found = _body(prim.matvec, tuple([k < n for k in range(len(prim.matvec.ins))]), notes)
    sizes = [a.aval.size for a in eqn.ins[:n]]
    if any([a.aval.size != v.aval.size for a, v in zip(eqn.ins, eqn.outs, strict=False)]):
        return _dense(eqn, dependent)
    _, closure = _powers(_joined(found, sizes, sizes), sum(sizes), None)
    return [{k: _part(closure, sizes, sizes, r, k) for k in dependent} for r in range(n)]


def _joined(blocks: Sequence[Relations], rows: Sequence[int], columns: Sequence[int]) -> Relation:
    """Return blocks as one relation between the arrays one after the other."""
    return union(*[
        shifted(r, sum(rows[:i]), sum(columns[:j])) for i, block in enumerate(blocks) for j, r in block.items()
    ])  # fmt: skip


def _part(whole: Relation, rows: Sequence[int], columns: Sequence[int], i: int, j: int) -> Relation:
    """Return one block of a relation between arrays one after the other."""
    m, n = sum(rows), sum(columns)
    top, left = sum(rows[:i]), sum(columns[:j])
    cut_rows = relation(box(0, top, ((rows[i], 1, 1),)))
    cut_columns = relation(box(left, 0, ((columns[j], 1, 1),)))
    return compose(cut_rows, compose(whole, cut_columns, n), m)


def _powers(step: Relation, n: int, steps: int | None) -> tuple[Relation, Relation]:
    """Return (step^steps, the union of step^t for t < steps) of a relation on n elements; None: the union of all."""
    one = identity(n)
    if steps is not None and steps <= 1:
        return (step, one) if steps == 1 else (one, EMPTY)
    if n <= _SMALL:
        return _dense_powers(step, n, steps)
    power, total, count = one, one, 0
    while steps is None or count < steps:
        if count > _ROUNDS or len(total.boxes) > _FEW_BOXES or total.tables:
            return _powers_of_shifts(step, n, steps) or (dense(n, n), dense(n, n))
        following = compose(step, power, n)
        count += 1
        if not following.tables and following.boxes <= total.boxes:
            # every later power is in the union
            return (following if following == power or count == steps else total), total
        power = following
        if count != steps:
            total = union(total, power)
    return power, total


def _powers_of_shifts(step: Relation, n: int, steps: int | None) -> tuple[Relation, Relation] | None:
    """Return whole diagonals that contain the powers of a stencil; None if `step` is none, or they are too many.

    All pairs of a box with equal strides have one shift i - o. The shifts of step^t are the sums of t of them.
    """
    if step.tables or steps is None or any([s != t for b in step.boxes for _, s, t in b.dims]):
        return None
    shifts = np.unique([b.in0 - b.out0 for b in step.boxes])
    power, total = _sums(shifts, steps, n), _sums(np.union1d(shifts, 0), steps - 1, n)
    if power is None or total is None:
        return None
    return _diagonals(power, n), _diagonals(total, n)


def _sums(shifts: Ints, count: int, n: int) -> Ints | None:
    """Return the sums of `count` shifts, or all multiples between the least and the greatest; None if too many."""
    total = np.zeros(1, np.int64)
    for bit in f"{count:b}":
        for other in (total, shifts) if bit == "1" else (total,):
            total = np.unique(total[:, None] + other)
            total = total[abs(total) < n] if total.size > 1 else total
            if len(total) > _MOST_SHIFTS:
                return None
    return total


def _diagonals(shifts: Ints, n: int) -> Relation:
    return relation(*[box(max(0, -k), max(0, k), ((n - abs(k), 1, 1),)) for k in shifts.tolist()])


def _dense_powers(step: Relation, n: int, steps: int | None) -> tuple[Relation, Relation]:
    matrix = np.zeros((n, n), np.float32)
    o, i = pairs(step)
    matrix[o, i] = 1
    one = np.eye(n, dtype=np.float32)
    if steps is None:
        total = np.minimum(matrix + one, 1)
        while True:
            larger = np.minimum(total @ total, 1)
            if (larger == total).all():
                return _of_matrix(total), _of_matrix(total)
            total = larger
    # powers and unions by the bits of the number of steps: (P, S) then (P P, S + P S), and one step more
    power, total = one, np.zeros_like(one)
    for bit in f"{steps:b}":
        power, total = np.minimum(power @ power, 1), np.minimum(total + power @ total, 1)
        if bit == "1":
            power, total = np.minimum(matrix @ power, 1), np.minimum(total + power, 1)
    return _of_matrix(power), _of_matrix(total)


def _of_matrix(matrix: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> Relation:
    if matrix.all():
        return dense(*matrix.shape)
    o, i = np.nonzero(matrix)
    return table(o, i)


def _loop(eqn: Eqn, layout: Layout, dependent: Sequence[int], notes: list[str]) -> list[Relations] | None:
    """Return the dependence of a loop with one body that gives the results."""
    stepping = [k for k in layout.running if any([p is not None for p in layout.result_indices(k)])]
    if len(stepping) != 1:
        return None
    (b,) = stepping
    body, places, results = layout.bodies[b], layout.operand_indices(b), layout.result_indices(b)
    roles, carries = layout.operand_roles, layout.carries
    if any([isinstance(roles[p], Count | BranchIndex) for p in dependent]):
        return None
    steps: int | None
    match body.runs:
        case Times(count, reverse):
            steps, exact = count, True
        case UpTo(count, reverse):
            steps, exact = count, False
        case _:
            steps, exact, reverse = None, False, False
    if steps == 0:
        return [
            {p: identity(eqn.ins[p].aval.size) for p in dependent if carries.get(p) == r} for r in range(len(eqn.outs))
        ]
    result_roles = layout.result_roles
    if steps is None and any([isinstance(role, Sliced) for role in (*roles, *result_roles)]):
        return None
    marked = set(dependent)
    while True:
        before = len(notes)
        found = _body(body.jaxpr, tuple([p in marked for p in places]), notes)
        grown = {p for p, r in carries.items() if p not in marked and r in results and found[results.index(r)]}
        if not grown:
            break
        del notes[before:]
        marked |= grown
    by_result = {
        r: {places[i]: rel for i, rel in block.items()}
        for r, block in zip(results, found, strict=True)
        if r is not None
    }
    looped = [p for p in carries if p in marked]
    sizes = [eqn.ins[p].aval.size for p in looped]
    step = _joined(
        [{j: by_result.get(carries[p], {}).get(q, EMPTY) for j, q in enumerate(looped)} for p in looped], sizes, sizes
    )
    power, total = _powers(step, sum(sizes), steps)
    if steps is not None and not exact:
        power = union(power, total)
    if steps is None:
        power = total
    outs: list[Relations] = [{} for _ in eqn.outs]

    def add(r: int, p: int, rel: Relation) -> None:
        if p in dependent and not rel.empty:
            outs[r][p] = union(outs[r].get(p, EMPTY), rel)

    def slices(shape: Shape, axis: int) -> tuple[Relation, int]:
        """The relation of an array to its slices one after the other, and the size of a slice."""
        front = (shape[axis], *shape[:axis], *shape[axis + 1 :])
        own = strides_of(shape)
        moved = (own[axis], *own[:axis], *own[axis + 1 :])
        return strided(front, strides_of(front), moved), int(np.prod(front[1:], dtype=int))

    def through(a: Relation, d: Relation) -> Relation:
        return compose(a, d, sum(sizes))

    carried = {carries[p]: j for j, p in enumerate(looped)}
    all_of_carry = [relation(box(0, sum(sizes[:j]), ((n, 1, 1),))) for j, n in enumerate(sizes)]  # carry j of all
    others = [p for p in marked if p not in carries]
    enters = {  # carries of a step from an operand that is no carry
        p: _joined([{0: by_result.get(carries[q], {}).get(p, EMPTY)} for q in looped], sizes, [0]) for p in others
    }
    for r, v in enumerate(eqn.outs):
        inner = by_result.get(r, {})
        if r in carried:
            j = carried[r]
            for i, p in enumerate(looped):
                add(r, p, _part(power, sizes, sizes, j, i))
            to_result = compose(all_of_carry[j], total, sum(sizes))
            for p in others:
                rel = through(to_result, enters[p])
                if isinstance(role := roles[p], Sliced):
                    n, (move, size) = eqn.ins[p].aval.shape[role.axis], slices(eqn.ins[p].aval.shape, role.axis)
                    rel = compose(repeated(rel, (n, 0, size)), move, eqn.ins[p].aval.size)
                add(r, p, rel)
            continue
        out_role = result_roles[r]
        if not isinstance(out_role, Sliced):
            return None
        n = v.aval.shape[out_role.axis]
        back, slice_size = slices(v.aval.shape, out_role.axis)
        place = transposed(back)
        from_carry = _joined([{j: inner.get(p, EMPTY) for j, p in enumerate(looped)}], [slice_size], sizes)
        reach = through(from_carry, total)

        def stacked(rel: Relation, place: Relation = place, size: int = v.aval.size) -> Relation:
            return compose(place, rel, size)

        for i, p in enumerate(looped):
            add(
                r,
                p,
                stacked(
                    repeated(
                        compose(reach, relation(box(sum(sizes[:i]), 0, ((sizes[i], 1, 1),))), sum(sizes)),
                        (n, slice_size, 0),
                    )
                ),
            )
        for p in others:
            later = through(reach, enters[p])
            if isinstance(role := roles[p], Sliced):
                move, size = slices(eqn.ins[p].aval.shape, role.axis)
                rel = repeated(inner.get(p, EMPTY), (n, slice_size, size))
                for o, i0, dims in triangle(n, slice_size, size, reverse=reverse, strict=True):
                    rel = union(rel, shifted(repeated(later, *dims), o, i0))
                add(r, p, stacked(compose(rel, move, eqn.ins[p].aval.size)))
            else:
                add(r, p, stacked(repeated(union(inner.get(p, EMPTY), later), (n, slice_size, 0))))
    return outs
