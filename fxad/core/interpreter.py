"""The NumPy interpreter of programs: the reference semantics, and the oracle of the tests.

The interpreter checks operands against the types of the program and results of equations against their type rules.
Equations get read-only operands. So if a program runs here, each of its equations obeyed its type rule.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from fxad.core.layout import BranchIndex, Count, InParallel, Layout, OneOf, Role, Sliced, Times, Unknown, UpTo
from fxad.core.memo import by_value
from fxad.core.stack import with_enough_stack
from fxad.dtypes import DType
from fxad.errors import ArgumentError, DTypeError, ShapeError, TypecheckError, name_equation
from fxad.ir import Atom, Aval, Eqn, Jaxpr, Lit, NDArray, Shape, Var, source_text

V = TypeVar("V")

# Called after every equation with its number, itself and its results.
Observe: TypeAlias = Callable[[int, Eqn, tuple[NDArray, ...]], None]


@with_enough_stack
def run_with(
    jaxpr: Jaxpr,
    operands: Sequence[V],
    apply: Callable[[int, Eqn, list[V]], Sequence[V]],
    literal: Callable[[Lit], V],
) -> list[V]:
    """Return results of `jaxpr` on values of any kind. `apply` gives the results of an equation, from its number,
    itself and the values of its operands; `literal` gives the value of a literal.

    Cost: a value is dropped after its last use.
    """
    env: dict[Atom, V] = dict(zip(jaxpr.ins, operands, strict=True))
    for i, (eqn, dead) in enumerate(zip(jaxpr.eqns, last_uses(jaxpr), strict=True)):
        outs = apply(i, eqn, [literal(a) if isinstance(a, Lit) else env[a] for a in eqn.ins])
        env.update(zip(eqn.outs, outs, strict=True))
        for v in dead:
            del env[v]
    return [literal(a) if isinstance(a, Lit) else env[a] for a in jaxpr.outs]


def array_of(a: Lit) -> NDArray:
    """Return the value of a literal as an array, for `run_with`."""
    return a.array


@with_enough_stack
def run(jaxpr: Jaxpr, args: Sequence[NDArray], observe: Observe | None = None) -> tuple[NDArray, ...]:
    """Return results of `jaxpr` for `args`, equation by equation.

    Type:   arrays of the types `jaxpr.in_avals` -> arrays of the types `jaxpr.out_avals`. Results are read-only and may
            share memory with `args`.
    Raises: ArgumentError, ShapeError, DTypeError for operands of other types; TypecheckError if the results of an
            equation differ from its type rule.
    Cost:   a value is dropped after its last use. Bodies are interpreted too, without `observe`.
    """

    def apply_observed(i: int, eqn: Eqn, operands: list[NDArray]) -> tuple[NDArray, ...]:
        outs = _apply(i, eqn, operands)
        if observe is not None:
            observe(i, eqn, outs)
        return outs

    operands = _operands(jaxpr, args)
    with np.errstate(all="ignore"):  # infinities and nans of IEEE 754 are valid results, so NumPy must not warn
        return tuple(run_with(jaxpr, operands, apply_observed, array_of))


def _operands(jaxpr: Jaxpr, args: Sequence[NDArray]) -> list[NDArray]:
    if len(args) != len(jaxpr.ins):
        takes = f"{len(jaxpr.ins)} operand{'s' * (len(jaxpr.ins) != 1)}"
        raise ArgumentError(f"interpret: {jaxpr.name} takes {takes}, got {len(args)}")
    out = []
    for k, (v, arg) in enumerate(zip(jaxpr.ins, args, strict=True)):
        x = _read_only(arg)
        if x.dtype != v.aval.dtype or x.shape != v.aval.shape:
            error = DTypeError if x.dtype != v.aval.dtype else ShapeError
            raise error(f"interpret: operand {k} of {jaxpr.name} is {v.aval}, got {_type_text(x)}")
        out.append(x)
    return out


def _apply(i: int, eqn: Eqn, args: list[NDArray]) -> tuple[NDArray, ...]:
    label = f"equation {i} ({eqn.prim.name})"
    try:
        outs = tuple([_read_only(x) for x in eqn.prim.impl(*args)])
    except Exception as e:
        name_equation(e, label, source_text(eqn.source))
        raise
    if [(x.shape, x.dtype) for x in outs] != [(v.aval.shape, v.aval.dtype) for v in eqn.outs]:
        actual, expected = ", ".join(map(_type_text, outs)), ", ".join([str(v.aval) for v in eqn.outs])
        raise TypecheckError(
            f"interpret: {label} gave {actual or 'nothing'}, its type rule says {expected or 'nothing'}"
        )
    return outs


def _read_only(x: NDArray) -> NDArray:
    view = np.asarray(x).view()  # NumPy's functions return scalars in place of arrays without axes
    view.flags.writeable = False
    return view


def _type_text(x: NDArray) -> str:
    try:
        return str(Aval(x.shape, x.dtype))
    except DTypeError:
        return f"{x.dtype}{list(x.shape)}"


@by_value
def last_uses(jaxpr: Jaxpr) -> tuple[tuple[Var, ...], ...]:
    """Return for each equation, the variables among its operands and results that no later equation reads."""
    read_later = set(jaxpr.outs)
    dead_after: list[tuple[Var, ...]] = []
    for eqn in reversed(jaxpr.eqns):
        dead = tuple([v for v in dict.fromkeys((*eqn.ins, *eqn.outs)) if isinstance(v, Var) and v not in read_later])
        read_later.update(dead)
        dead_after.append(dead)
    return tuple(reversed(dead_after))


# ---------------------------------------------------------------------------------------------------- bodies by layout

# Runs a body: its index in the layout, the number of the step (None if it does not run in steps), its operands. If it
# returns None, no further body runs.
RunBody: TypeAlias = Callable[[int, int | None, list[NDArray]], Sequence[NDArray] | None]


class TypeOfResult(Protocol):
    """The type of a result of a loop: an `Aval`, or a type whose dtype has fields. A loop reads shape and dtype."""

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> DType: ...


def run_by_layout(
    layout: Layout, args: Sequence[NDArray], outs: Sequence[TypeOfResult], run_body: RunBody
) -> list[NDArray] | None:
    """Return results, of the types `outs`, of an equation whose layout states them (`Layout.states_results`). None if
    `run_body` returned None.

    The `impl` of an equation with bodies is its meaning, and runs the bodies by `run`. This function is for tools that
    see each run of a body, or run it on other values. The law `check_layout` compares the two.
    """
    branches = [k for k in layout.running if type(layout.bodies[k].runs) is OneOf]
    if not branches and layout.once is None:
        return _run_steps(layout, args, outs, run_body)
    body = layout.once
    if branches:
        index = next(x for x, role in zip(args, layout.operand_roles, strict=True) if isinstance(role, BranchIndex))
        body = branches[int(np.clip(index, 0, len(branches) - 1))]
    assert body is not None, "without branches, one body runs once"
    values = run_body(body, None, [args[p] for p in layout.operand_indices(body)])
    if values is None:
        return None
    results = dict(zip(layout.result_indices(body), values, strict=True))
    return [results[q] for q in range(len(outs))]


def _run_steps(
    layout: Layout, args: Sequence[NDArray], outs: Sequence[TypeOfResult], run_body: RunBody
) -> list[NDArray] | None:
    """Return `run_by_layout` for a loop. `state` holds the operands, with the present value of each carry in its
    place."""
    carries, roles, state = layout.carries, layout.operand_roles, list(args)
    results = [np.zeros(a.shape, a.dtype) for a in outs]
    predicate = True
    runs = layout.bodies[layout.running[-1]].runs
    bound = runs.most if isinstance(runs, Unknown) else None
    # as in `impl` and as compiled, the body of a predicate runs after the last possible step too: it may have checks
    for step in itertools.chain(steps(layout, _count(layout, args)), (bound,) if bound else ()):
        for k in layout.running:
            if step == bound and k == layout.running[-1]:  # no further step
                break
            indices = layout.result_indices(k)
            values = run_body(k, step, [_slice_of_step(state[p], roles[p], step) for p in layout.operand_indices(k)])
            if values is None:
                return None
            for q, x in zip(indices, values, strict=True):
                if q is None:
                    predicate = bool(x)
                elif isinstance(role := layout.result_roles[q], Sliced):
                    results[q][(slice(None),) * role.axis + (step,)] = x
            for p, q in carries.items():
                if q in indices:
                    state[p] = values[indices.index(q)]
            if not predicate:
                break
        if not predicate:
            break
    for p, q in carries.items():
        results[q] = state[p]
    return results


def _count(layout: Layout, args: Sequence[NDArray]) -> int | None:
    """Return the operand that limits the number of steps of a loop, if there is one."""
    return next((int(x) for x, role in zip(args, layout.operand_roles, strict=True) if isinstance(role, Count)), None)


def steps(layout: Layout, count: int | None) -> Iterable[int]:
    """Return the step numbers of a loop in order, without the runs of predicates. With None for `count`, those of the
    most steps."""
    match layout.bodies[layout.running[-1]].runs:
        case Times(n, reverse):
            return range(n - 1, -1, -1) if reverse else range(n)
        case UpTo(most, reverse):
            n = most if count is None else min(count, most)
            return range(n - 1, -1, -1) if reverse else range(n)
        case InParallel(n):
            return range(n)
        case Unknown(most):
            return itertools.count() if most is None else range(most)
        case _:
            return ()


def _slice_of_step(x: NDArray, role: Role, step: int) -> NDArray:
    """Return the part of an operand that a step reads."""
    return x[(slice(None),) * role.axis + (step,)] if isinstance(role, Sliced) else x
