"""One step to a smaller program: a value becomes an operand, a literal or another value; a body takes the place of its
equation; a loop makes fewer steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder, substitute
from fxad.core.layout import Carry, Constant, Layout, Never, Once, OneOf, Sliced
from fxad.diagnosis.reduce.candidate import Candidate
from fxad.diagnosis.reduce.recorded import ValuesOfRun
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr, Lit, NDArray, Var
from fxad.primitives.shape import BroadcastInDim


@final
class _Edit:
    """A program under construction, over the operands of a candidate and further ones."""

    def __init__(self, c: Candidate) -> None:
        self.c = c
        self.b = Builder.like(c.jaxpr)
        self.values = list(c.values)
        self.env: dict[Atom, Atom] = {}

    def operand(self, aval: Aval, value: NDArray | None) -> Var:
        """Add an operand."""
        self.values.append(value)
        return self.b.input(aval)

    def copy(self, eqns: Sequence[Eqn]) -> None:
        """Add equations."""
        self.b.extend(eqns, self.env)

    def done(self) -> Candidate:
        """Return the candidate."""
        jaxpr = self.c.jaxpr
        return self.c.replace(self.b.build(substitute(jaxpr.outs, self.env), jaxpr.name), self.values)


def without_equations(c: Candidate, first: int, end: int, run: ValuesOfRun | None) -> Candidate | None:
    """Return the candidate without equations `first` to `end`: results that are still read become operands. `run` has
    the values of these; None if no values are known."""
    jaxpr = c.jaxpr
    read = {a for eqn in jaxpr.eqns[end:] for a in eqn.ins} | set(jaxpr.outs)
    edit = _Edit(c)
    edit.copy(jaxpr.eqns[:first])
    for v in [v for eqn in jaxpr.eqns[first:end] for v in eqn.outs if v in read]:
        if run is not None and v not in run:
            return None
        edit.env[v] = edit.operand(v.aval, None if run is None else run[v])
    edit.copy(jaxpr.eqns[end:])
    return edit.done()


def replaced(jaxpr: Jaxpr, value: Var, by: Atom) -> Jaxpr:
    """Return the program in which later equations and results read `by` in place of a value. `by` is an operand, a
    literal, or a value that is computed before."""
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {value: by} if value.index < 0 else {}  # an operand is replaced from the start
    for eqn in jaxpr.eqns:
        b.extend([eqn], env)
        if value in eqn.outs:
            env[value] = env.get(by, by)
    return b.build(substitute(jaxpr.outs, env), jaxpr.name)


def other_values(jaxpr: Jaxpr, at: int) -> Iterator[tuple[Var, Atom]]:
    """Yield the results of equation `at`, each with values that may take its place: operands of the equation,
    results of equal operations before it, operands of the program, the literals 0 and 1."""
    eqn = jaxpr.eqns[at]
    alike = [v for e in jaxpr.eqns[:at] if e.prim == eqn.prim for v in e.outs]
    for v in eqn.outs:
        near = [a for a in eqn.ins if a.aval is v.aval]
        same, given = ([a for a in values if a.aval is v.aval] for values in (alike, jaxpr.ins))
        for a in dict.fromkeys((*near, *same[:2], *given[:2])):
            yield v, a
        if not v.aval.symbolic:
            yield v, Lit.of(1, v.aval)
            yield v, Lit.zero(v.aval)


def smaller_bodies(jaxpr: Jaxpr, depth: int = 8) -> Iterator[Jaxpr]:
    """Yield the program with one equation less, or one with a smaller body, at any depth of nesting; operands and
    results keep their types."""
    for at in reversed(range(len(jaxpr.eqns))):
        eqn = jaxpr.eqns[at]
        for value, by in other_values(jaxpr, at):
            yield replaced(jaxpr, value, by)
        if isinstance(eqn.prim, HigherOrder) and depth:
            for prim in smaller_inside(eqn.prim, depth - 1):
                yield _with_prim(jaxpr, at, prim)
            yield from opened_in_body(jaxpr, at)


def without_chunks(jaxpr: Jaxpr, size: int, depth: int = 8) -> Iterator[Jaxpr]:
    """Yield the program with the bodies of one equation, at any depth of nesting, without `size` adjacent equations:
    values before them, or zeros, take the place of what is still read of them."""
    for at in reversed(range(len(jaxpr.eqns))):
        prim = jaxpr.eqns[at].prim
        if not isinstance(prim, HigherOrder):
            continue
        for body in dict.fromkeys(prim.bodies):
            n = len(body.eqns)
            chunks = [bypassed(body, max(0, end - size), end) for end in range(n, 0, -size)] if n > size else []
            inner = without_chunks(body, size, depth - 1) if depth else ()
            for smaller in (*chunks, *inner):
                made = _with_body(prim, body, smaller)
                if made is not None:
                    yield _with_prim(jaxpr, at, made)


def bypassed(jaxpr: Jaxpr, first: int, end: int) -> Jaxpr:
    """Return the program without equations `first` to `end`: values of their types before them, or zeros, take the
    place of what is still read of them. So what comes after still depends on what comes before."""
    before: dict[Aval, Atom] = {}
    for v in (*jaxpr.ins, *[v for eqn in jaxpr.eqns[:first] for v in eqn.outs]):
        before[v.aval] = v  # the last one of each type
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    b.extend(jaxpr.eqns[:first], env)
    for v in [v for eqn in jaxpr.eqns[first:end] for v in eqn.outs]:
        by = before.get(v.aval)
        env[v] = Lit.zero(v.aval) if by is None else env.get(by, by)
    b.extend(jaxpr.eqns[end:], env)
    return b.build(substitute(jaxpr.outs, env), jaxpr.name)


def _with_body(prim: HigherOrder, body: Jaxpr, by: Jaxpr) -> HigherOrder | None:
    """Return an operation with another body; None if the primitive refuses it."""
    try:
        made = prim.with_bodies(tuple([by if b is body else b for b in prim.bodies]))
    except Exception:  # noqa: BLE001  a primitive may refuse a body
        return None
    return made if isinstance(made, HigherOrder) else None


def smaller_inside(prim: HigherOrder, depth: int = 8) -> Iterator[HigherOrder]:
    """Yield an operation with bodies, with one equation less in a body."""
    for body in dict.fromkeys(prim.bodies):
        for smaller in smaller_bodies(body, depth):
            made = _with_body(prim, body, smaller)
            if made is not None:
                yield made


def with_prim(c: Candidate, at: int, prim: HigherOrder) -> Candidate:
    """Return the candidate with another operation in equation `at`."""
    return c.replace(_with_prim(c.jaxpr, at, prim))


def _with_prim(jaxpr: Jaxpr, at: int, prim: HigherOrder) -> Jaxpr:
    eqn = jaxpr.eqns[at]
    eqns = (*jaxpr.eqns[:at], Eqn(prim, eqn.ins, eqn.outs, eqn.source), *jaxpr.eqns[at + 1 :])
    return Jaxpr(jaxpr.ins, eqns, jaxpr.outs, jaxpr.name)


# ---------------------------------------------------------------------------------------------------- opened bodies


def opened(c: Candidate, at: int, run: ValuesOfRun | None) -> Iterator[Candidate]:
    """Yield the candidate with a body of equation `at` in place of the equation: the body of a call, each branch, one
    or two steps of a loop. Slices of operands become operands. So do stacked results; or the last row is repeated."""
    eqn = c.jaxpr.eqns[at]
    if not isinstance(eqn.prim, HigherOrder):
        return
    layout = eqn.prim.layout
    for k, body in enumerate(layout.bodies):
        if isinstance(body.runs, Never):
            continue
        steps = [1] if isinstance(body.runs, Once | OneOf) else [1, 2]
        for n, repeated in product(steps, (True, False)):
            made = _opened(c, at, layout, k, n, run, repeated)
            if made is not None:
                yield made


def _opened(
    c: Candidate, at: int, layout: Layout, k: int, steps: int, run: ValuesOfRun | None, repeated: bool
) -> Candidate | None:
    jaxpr = c.jaxpr
    eqn = jaxpr.eqns[at]
    body = layout.bodies[k]
    roles, carries = layout.operand_roles, layout.carries
    edit = _Edit(c)
    edit.copy(jaxpr.eqns[:at])
    state: dict[int, Atom] = {p: edit.env.get(a, a) for p, a in enumerate(eqn.ins)}
    results: dict[int, Atom] = {}
    reverse = bool(getattr(body.runs, "reverse", False))
    for step in range(steps):
        args: list[Atom] = []
        for p, aval in zip(layout.operand_indices(k), body.jaxpr.in_avals, strict=True):
            role = roles[p]
            if isinstance(role, Sliced):
                made = _slice(edit, eqn.ins[p], role.axis, step, reverse, aval, run)
                if made is None:
                    return None
                args.append(made)
            elif isinstance(role, Constant | Carry) and state[p].aval is aval:
                args.append(state[p])
            else:
                return None
        outs = edit.b.inline(body.jaxpr, args)
        results |= {q: a for q, a in zip(layout.result_indices(k), outs, strict=True) if q is not None}
        for p, q in carries.items():
            if q in results:
                state[p] = results[q]
    read = {a for e in jaxpr.eqns[at + 1 :] for a in e.ins} | set(jaxpr.outs)
    for q, v in enumerate(eqn.outs):
        row = layout.result_roles[q]
        if q in results and results[q].aval is v.aval:
            edit.env[v] = results[q]
        elif repeated and q in results and isinstance(row, Sliced) and not v.aval.symbolic:
            dims = tuple([d for d in range(v.aval.ndim) if d != row.axis])
            edit.env[v] = edit.b.one(BroadcastInDim(v.aval.shape, dims), results[q])
        elif v in read:
            if run is not None and v not in run:
                return None
            edit.env[v] = edit.operand(v.aval, None if run is None else run[v])
    edit.copy(jaxpr.eqns[at + 1 :])
    return edit.done()


def _slice(
    edit: _Edit, a: Atom, axis: int, step: int, reverse: bool, aval: Aval, run: ValuesOfRun | None
) -> Atom | None:
    if isinstance(a, Lit):
        return a.with_shape(aval.shape)
    if run is None:
        return edit.operand(aval, None)
    if a not in run or run[a].shape[axis] <= step:
        return None
    index = run[a].shape[axis] - 1 - step if reverse else step
    return edit.operand(aval, np.ascontiguousarray(np.take(run[a], index, axis)))


def opened_in_body(jaxpr: Jaxpr, at: int) -> Iterator[Jaxpr]:
    """Yield the program with a body in place of equation `at`, where it needs no further operands."""
    c = Candidate(jaxpr, (None,) * len(jaxpr.ins))
    for made in opened(c, at, None):
        if len(made.values) == len(c.values):
            yield made.jaxpr


def merged_operands(c: Candidate) -> Iterator[Candidate]:
    """Yield the candidate with one operand less: another operand of its type takes its place."""
    for k in reversed(range(len(c.jaxpr.ins))):
        for j in range(k):
            if c.jaxpr.ins[j].aval is c.jaxpr.ins[k].aval and (j < c.n_bound) == (k < c.n_bound):
                yield c.replace(replaced(c.jaxpr, c.jaxpr.ins[k], c.jaxpr.ins[j]))


def literal_operands(c: Candidate) -> Iterator[Candidate]:
    """Yield the candidate with a literal in place of an operand whose elements are equal, or of an argument of unknown
    value."""
    for k in reversed(range(len(c.jaxpr.ins))):
        v, x = c.jaxpr.ins[k], c.values[k]
        if v.aval.symbolic:
            continue
        if x is None:
            yield _literal(c, v, Lit.of(1, v.aval))
        elif x.size and x.dtype == v.aval.dtype and np.all(x == x.flat[0]):
            yield _literal(c, v, Lit.of(x.flat[0], v.aval))


def _literal(c: Candidate, v: Var, by: Lit) -> Candidate:
    return c.replace(replaced(c.jaxpr, v, by))


def plainer_literals(c: Candidate) -> Iterator[Candidate]:
    """Yield the candidate with a plainer number in place of a literal."""
    jaxpr = c.jaxpr
    for a in dict.fromkeys([a for e in jaxpr.eqns for a in e.ins if isinstance(a, Lit) and a.size is None]):
        for number in (0, 1, 2, -1):
            if number < 0 and a.aval.dtype not in dtypes.INEXACT and a.aval.dtype not in dtypes.SIGNED:
                continue
            env: dict[Atom, Atom] = {a: Lit.of(number, a.aval)}
            b = Builder.like(jaxpr)
            b.extend(jaxpr.eqns, env)
            yield c.replace(b.build(substitute(jaxpr.outs, env), jaxpr.name))
