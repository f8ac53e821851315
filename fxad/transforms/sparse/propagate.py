"""The relation of a program: compositions of the relations of its equations. Bodies go by their layouts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from math import prod
from typing import Final, NamedTuple

import numpy as np

from fxad.core.atoms import MeshAxes
from fxad.core.layout import (
    BranchIndex,
    Constant,
    Count,
    Elements,
    InParallel,
    Layout,
    OneOf,
    Part,
    Role,
    Sliced,
)
from fxad.core.memo import by_value
from fxad.errors import FxadError
from fxad.ir import Atom, Eqn, Flags, HigherOrder, Jaxpr, NDArray, Shape
from fxad.primitives.implicit import LinearSolve
from fxad.transforms.sparse.composition import compose
from fxad.transforms.sparse.loops import LoopPattern, Relations, any_of, block_matrix, block_of, count_of
from fxad.transforms.sparse.powers import powers
from fxad.transforms.sparse.relation import (
    EMPTY,
    Relation,
    dense,
    identity,
    pairs,
    strided,
    transposed,
    union,
)  # fmt: skip
from fxad.transforms.sparse.rules import SparsityCtx, relation_of, strides_of
from fxad.transforms.sparse.values import ComputeConcrete, ConcreteValues, not_concrete
from fxad.transforms.vmap import vmap, vmap_named

_MOST_STACKED: Final = 1 << 22  # elements of the results of all steps of a loop whose indices are read


class Dependence(NamedTuple):
    """For each result, its relations by operand; and notes of indices that depend on data."""

    results: tuple[Relations, ...]
    notes: tuple[str, ...]


@by_value
def of_body(jaxpr: Jaxpr, marked: Flags) -> Dependence:
    """Return the dependence of a program on the marked operands, for all values of the others."""
    return dependence(jaxpr, marked, None)


def dependence(jaxpr: Jaxpr, marked: Flags, values: ConcreteValues | None) -> Dependence:
    """Return the dependence of a program on the marked operands. `values` None: no operand is concrete."""
    env: dict[Atom, Relations] = {
        v: {k: identity(v.aval.size)} for k, (v, m) in enumerate(zip(jaxpr.ins, marked, strict=True)) if m
    }
    notes: list[str] = []
    if values is None:
        values = ConcreteValues(jaxpr, [not_concrete] * len(jaxpr.ins))
    for eqn in jaxpr.eqns:
        dependent = [k for k, a in enumerate(eqn.ins) if a in env]
        if not dependent:
            continue
        if isinstance(eqn.prim, HigherOrder):
            by_result = _of_bodies(eqn, dependent, values, notes)
        else:
            by_result = [
                {k: relation_of(SparsityCtx(eqn, k, r, values, notes)) for k in dependent} for r in range(len(eqn.outs))
            ]
        for v, by_operand in zip(eqn.outs, by_result, strict=True):
            if not v.aval.inexact:
                continue
            total: dict[int, list[Relation]] = {}
            for k, step in by_operand.items():
                a = eqn.ins[k]
                for i, before in env.get(a, {}).items():
                    total.setdefault(i, []).append(compose(step, before, a.aval.size))
            block = {i: u for i, relations in total.items() if not (u := union(*relations)).empty}
            if block:
                env[v] = block
    return Dependence(tuple([env.get(a, {}) for a in jaxpr.outs]), tuple(dict.fromkeys(notes)))


# ----------------------------------------------------------------------------------------------------------- bodies


def _body(jaxpr: Jaxpr, marked: Flags, notes: list[str], values: ConcreteValues | None = None) -> tuple[Relations, ...]:
    of_operands = of_body(jaxpr, marked) if values is None else dependence(jaxpr, marked, values)
    notes.extend(of_operands.notes)
    return of_operands.results


def _values_in(
    eqn: Eqn, body: Jaxpr, places: Sequence[int], dependent: Collection[int], values: ConcreteValues
) -> ConcreteValues | None:
    """Return the values of a body whose operands are operands of an equation, by `places`; None if there is no index or
    mask among those that do not depend."""
    if not any([p not in dependent and not eqn.ins[p].aval.inexact for p in places]):
        return None
    operand_values = [not_concrete if p in dependent else partial(values.get, eqn.ins[p]) for p in places]
    return ConcreteValues(body, operand_values)


def _of_bodies(eqn: Eqn, dependent: Sequence[int], values: ConcreteValues, notes: list[str]) -> list[Relations]:
    """Return the dependence of an equation with bodies, by the way they run: on all devices at once, one of several,
    once, or in steps. It is dense if the layout does not say how the results come from the bodies."""
    prim = eqn.prim
    assert isinstance(prim, HigherOrder)
    layout = prim.layout
    if isinstance(prim, LinearSolve):
        return _linear_solve(prim, eqn, dependent, values, notes)
    roles = {type(g.role) for g in (*layout.operands, *layout.results)}
    if Elements in roles or not layout.running:
        return _dense(eqn, dependent)
    if any([isinstance(layout.bodies[k].runs, InParallel) for k in layout.running]):
        return _in_parallel(eqn, layout, dependent, values, notes) or _dense(eqn, dependent)
    branches = [k for k in layout.running if type(layout.bodies[k].runs) is OneOf]
    if branches:
        return _branches(eqn, layout, branches, dependent, values, notes)
    if layout.once is not None:
        return _once(eqn, layout, layout.once, dependent, values, notes)
    return _loop(eqn, layout, dependent, values, notes) or _dense(eqn, dependent)


def _dense(eqn: Eqn, dependent: Sequence[int]) -> list[Relations]:
    return [{k: dense(v.aval.size, eqn.ins[k].aval.size) for k in dependent} for v in eqn.outs]


def _once(
    eqn: Eqn, layout: Layout, k: int, dependent: Sequence[int], values: ConcreteValues, notes: list[str]
) -> list[Relations]:
    body, places = layout.bodies[k].jaxpr, layout.operand_indices(k)
    blocks = _body(
        body, tuple([p in dependent for p in places]), notes, _values_in(eqn, body, places, dependent, values)
    )
    outs: list[Relations] = [{} for _ in eqn.outs]
    for place, block in zip(layout.result_indices(k), blocks, strict=True):
        if place is not None:
            for i, r in block.items():
                outs[place][places[i]] = union(outs[place].get(places[i], EMPTY), r)
    return outs


def _in_parallel(
    eqn: Eqn, layout: Layout, dependent: Sequence[int], values: ConcreteValues, notes: list[str]
) -> list[Relations] | None:
    """Return the dependence of a body that runs for each index of a mesh: that of its batch, in which collectives are
    operations on the stack, between the parts of the operands and those of the results."""
    roles, result_roles = layout.operand_roles, layout.result_roles
    if len(layout.running) != 1 or any([isinstance(role, Sliced) and role.axis for role in (*roles, *result_roles)]):
        return None
    (k,) = layout.running
    runs = layout.bodies[k].runs
    assert isinstance(runs, InParallel)
    mesh = runs.mesh or (("", runs.count),)
    stacked, places = layout.bodies[k].jaxpr, layout.operand_indices(k)
    local_in = [v.aval.shape for v in stacked.ins]
    local_out = [a.aval.shape for a in stacked.outs]
    try:
        for name, size in reversed(mesh):
            stacked, _ = vmap_named(stacked, size, name, (0,) * len(stacked.ins), (0,) * len(stacked.outs))
    except FxadError:
        return None  # such as a collective in a branch
    outs: list[Relations] = [{} for _ in eqn.outs]
    parts = [
        _stack_of_parts(mesh, roles[p], shape, eqn.ins[p].aval.shape) for p, shape in zip(places, local_in, strict=True)
    ]
    operand_values: list[ComputeConcrete] = []
    for p, part, v in zip(places, parts, stacked.ins, strict=True):
        may_be_index = p not in dependent and not eqn.ins[p].aval.inexact
        operand_values.append(partial(_taken, part, values, eqn.ins[p], v.aval.shape) if may_be_index else not_concrete)
    inner = None if all([get is not_concrete for get in operand_values]) else ConcreteValues(stacked, operand_values)
    blocks = _body(stacked, tuple([p in dependent for p in places]), notes, inner)
    for r, block, shape in zip(layout.result_indices(k), blocks, local_out, strict=True):
        if r is None:
            continue
        to_result = transposed(_stack_of_parts(mesh, result_roles[r], shape, eqn.outs[r].aval.shape))
        for i, rel in block.items():
            p, from_operand = places[i], parts[i]
            of_operand = compose(
                to_result, compose(rel, from_operand, stacked.ins[i].aval.size), prod((*_sizes(mesh), *shape))
            )
            outs[r][p] = union(outs[r].get(p, EMPTY), of_operand)
    return outs


def _taken(part: Relation, values: ConcreteValues, a: Atom, shape: Shape) -> NDArray | None:
    """Return the stack of the parts of a value; None if it is not concrete."""
    value = values.get(a)
    if value is None:
        return None
    to, origin = pairs(part)
    stack = np.empty(prod(shape), value.dtype)
    stack[to] = value.ravel()[origin]
    return stack.reshape(shape)


def _sizes(mesh: MeshAxes) -> list[int]:
    return [n for _, n in mesh]


def _stack_of_parts(mesh: MeshAxes, role: Role, part: Shape, array: Shape) -> Relation:
    """Return the relation of the stack of the parts of an array, in the order of the mesh, to the whole array."""
    sizes = _sizes(mesh)
    shape = (*sizes, *part)
    if isinstance(role, Sliced):  # along its first axis, in the order of the mesh
        return identity(prod(shape))
    strides = strides_of(array)
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
    values: ConcreteValues,
    notes: list[str],
) -> list[Relations]:
    """Return the dependence of a choice of branches: that of the chosen one if the index is concrete, else the union of
    all."""
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


def _linear_solve(
    prim: LinearSolve, eqn: Eqn, dependent: Sequence[int], values: ConcreteValues, notes: list[str]
) -> list[Relations]:
    """The inverse of a matrix is a polynomial in it, so it has the pattern of the closure of the pattern."""
    n = prim.size
    if any([k >= n for k in dependent]) or len(eqn.outs) != n:
        return _dense(eqn, dependent)
    every, vector = range(len(prim.matvec.ins)), range(n)
    inner = _values_in(eqn, prim.matvec, every, vector, values)
    blocks = _body(prim.matvec, tuple([k in vector for k in every]), notes, inner)
    sizes = [a.aval.size for a in eqn.ins[:n]]
    if any([a.aval.size != v.aval.size for a, v in zip(eqn.ins, eqn.outs, strict=False)]):
        return _dense(eqn, dependent)
    _, closure = powers(block_matrix(blocks, sizes, sizes), sum(sizes), None)
    return [{k: block_of(closure, sizes, sizes, r, k) for k in dependent} for r in range(n)]


# ----------------------------------------------------------------------------------------------------------- loops


def _loop(
    eqn: Eqn, layout: Layout, dependent: Sequence[int], values: ConcreteValues, notes: list[str]
) -> list[Relations] | None:
    """Return the dependence of a loop with one body that gives the results; None for a loop of another form."""
    step_body = _stepping_body(layout)
    if step_body is None or any([isinstance(layout.operand_roles[p], Count | BranchIndex) for p in dependent]):
        return None
    count = count_of(layout.bodies[step_body].runs)
    if count.most == 0:
        return _without_steps(eqn, layout, dependent)
    roles = *layout.operand_roles, *layout.result_roles
    if count.most is None and any([isinstance(role, Sliced) for role in roles]):
        return None
    marked, in_step, of_stacks = _dependence_of_step(eqn, layout, step_body, dependent, values, notes)
    loop = LoopPattern.of(eqn, layout, marked, in_step, of_stacks)
    final, before_step = loop.states(count)
    carry_of = {result: operand for operand, result in layout.carries.items()}
    outs: list[Relations] = []
    for r, role in enumerate(layout.result_roles):
        if r in carry_of:
            block = loop.final_carry(carry_of[r], final, before_step)
        elif isinstance(role, Sliced):
            block = loop.stacked_rows(r, role.axis, before_step, count.reverse)
        else:
            return None
        outs.append({p: rel for p, rel in block.items() if p in dependent and not rel.empty})
    return outs


def _stepping_body(layout: Layout) -> int | None:
    """Return the body that gives the results, beside which others may test a predicate; None if several give them."""
    stepping = [k for k in layout.running if any([q is not None for q in layout.result_indices(k)])]
    return stepping[0] if len(stepping) == 1 else None


def _without_steps(eqn: Eqn, layout: Layout, dependent: Sequence[int]) -> list[Relations]:
    """Return the dependence of a loop that takes no step: its results are its first carries."""
    return [
        {p: identity(eqn.ins[p].aval.size) for p in dependent if layout.carries.get(p) == r}
        for r in range(len(eqn.outs))
    ]


def _dependence_of_step(
    eqn: Eqn, layout: Layout, step_body: int, dependent: Sequence[int], values: ConcreteValues, notes: list[str]
) -> tuple[set[int], dict[int, Relations], dict[int, Relations]]:
    """Return the operands of the loop that depend on the dependent ones in some step, and the dependence of one step on
    them, by result and operand of the loop; and that of the stacks of all steps, where it is computed.

    The marks are the least fixed point: a carry whose first value does not depend, but which a step computes from a
    dependent value, depends from the next step on. Marks only grow, so this ends.
    """
    operands, results = layout.operand_indices(step_body), layout.result_indices(step_body)

    def by_result_of_loop(of_body: Sequence[Relations]) -> dict[int, Relations]:
        """Number results and operands as the loop does, in place of the body."""
        blocks = [{operands[i]: rel for i, rel in block.items()} for block in of_body]
        return {r: block for r, block in zip(results, blocks, strict=True) if r is not None}

    marked = set(dependent)
    while True:
        step = _any_step(eqn, layout, step_body, marked, values)
        by_result = by_result_of_loop(step.results)
        of_stacks = {} if step.stacks is None else by_result_of_loop(step.stacks)
        grown = {p for p, r in layout.carries.items() if p not in marked and by_result.get(r)}
        if not grown:
            notes.extend(step.notes)
            return marked, by_result, of_stacks
        marked |= grown


class _AnyStep(NamedTuple):
    """The dependence of the results of a body of a loop on its operands, in some step; and of the stacks of the results
    of all steps on the operands, and on the slices of all steps, if it is computed."""

    results: tuple[Relations, ...]
    stacks: tuple[Relations, ...] | None
    notes: tuple[str, ...]


def _any_step(eqn: Eqn, layout: Layout, step_body: int, marked: Collection[int], values: ConcreteValues) -> _AnyStep:
    """Return the dependence of the results of a body of a loop on its marked operands.

    Indices are read from constants of the loop. If others are slices that are concrete, the body is mapped over the
    steps, which gives the results of all steps as stacks.
    """
    body, places, roles = layout.bodies[step_body].jaxpr, layout.operand_indices(step_body), layout.operand_roles
    flags = tuple([p in marked for p in places])
    changing = {p for p in places if p in marked or not isinstance(roles[p], Constant)}
    inner = _values_in(eqn, body, places, changing, values)
    of_results = of_body(body, flags) if inner is None else dependence(body, flags, inner)
    step = _AnyStep(of_results.results, None, of_results.notes)
    axes = {p: role.axis for p in places if isinstance(role := roles[p], Sliced)}
    concrete = {
        p for p in axes if p not in marked and not eqn.ins[p].aval.inexact and values.get(eqn.ins[p]) is not None
    }
    if not of_results.notes or not concrete:
        return step
    n = eqn.ins[min(concrete)].aval.shape[axes[min(concrete)]]
    if n * sum([a.aval.size for a in body.outs]) > _MOST_STACKED:
        return step
    mapped = tuple([0 if p in concrete or (p in marked and p in axes) else None for p in places])
    try:
        stacked, _ = vmap(body, n, mapped, (0,) * len(body.outs))
    except FxadError:
        return step
    operands = [
        partial(_slices_first, values, eqn.ins[p], axes[p])
        if p in concrete
        else (not_concrete if p in changing else partial(values.get, eqn.ins[p]))
        for p in places
    ]
    of_stacks = dependence(stacked, flags, ConcreteValues(stacked, operands))
    results: list[Relations] = []
    for block, out in zip(of_stacks.results, body.outs, strict=True):
        of_any = any_of(n, out.aval.size)
        results.append({
            i: compose(
                compose(of_any, rel, n * out.aval.size),
                transposed(any_of(n, body.ins[i].aval.size)) if mapped[i] == 0 else identity(body.ins[i].aval.size),
                stacked.ins[i].aval.size,
            )
            for i, rel in block.items()
        })  # fmt: skip
    return _AnyStep(tuple(results), of_stacks.results, of_stacks.notes)


def _slices_first(values: ConcreteValues, a: Atom, axis: int) -> NDArray | None:
    """Return a concrete value with its slices along the first axis."""
    value = values.get(a)
    return None if value is None else np.moveaxis(value, axis, 0)
