"""The laws of a primitive, for one application. Each raises an AssertionError that shows the application.

    @given(calls(Sin))
    def test_lowering(application):
        check_lowering(application)

A primitive of your own is checked the same way; draw its applications with `applications`, or write them by hand:

    check_primitive(Application(MyPrimitive(), (np.ones(3),), smooth=True))
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from itertools import product

from fxad.core.builder import Builder
from fxad.core.flags import leading, select_by_flags
from fxad.core.interpreter import run, run_by_layout
from fxad.core.typecheck import typecheck
from fxad.errors import NotDifferentiableError
from fxad.ir import Dims, HigherOrder, Jaxpr, Linear, NDArray, Zero
from fxad.primitives.linearity import is_linear
from fxad.testing.applications import Application
from fxad.testing.compare import (
    HostArrays,
    differ,
    fail,
    inner_product_error,
    instantiate_tangents,
    program_tangent_error,
    random_tangents,
    xla,
)
from fxad.testing.values import PRECISE, examples, stack
from fxad.text import parse, to_text
from fxad.transforms import jvp, linearize, transpose
from fxad.transforms.vmap import vmap


def check_primitive(application: Application) -> None:
    """Check all laws below."""
    for law in LAWS:
        law(application)


def check_types(application: Application) -> None:
    """Check that `aval(impl(x)) = abstract_eval(aval(x))`; `impl` is pure and repeatable."""
    program, args = application.program, application.args
    typecheck(program)
    before = [a.copy() for a in args]
    outs = run(program, args)  # the interpreter compares with the type rule
    if problem := differ(args, before, exact=True):
        fail(f"impl changed its operands: {problem}", program, args)
    if problem := differ(run(program, args), outs, exact=True):
        fail(f"impl is not a function of its operands: {problem}", program, args)


def check_layout(application: Application) -> None:
    """Check that the layout states what `impl` computes: its bodies, run as it says, give the same results."""
    prim, program, args = application.prim, application.program, application.args
    typecheck(program)  # the layout fits the types
    if not isinstance(prim, HigherOrder) or not prim.layout.states_results:
        return
    layout = prim.layout

    def run_body(at: int, _: int | None, operands: list[NDArray]) -> HostArrays:
        return run(layout.bodies[at].jaxpr, operands)

    outs = run_by_layout(layout, args, program.out_avals, run_body)
    if problem := differ(outs or (), run(program, args)):
        fail(f"impl differs from the bodies, run as the layout says: {problem}", program, args)


def check_text(application: Application) -> None:
    """Check that `parse(to_text(p)) is p`, and pickling gives back the same object."""
    program, kind = application.program, type(application.prim)
    if parse(to_text(program), [kind]) is not program:
        fail("parse(to_text(p)) is not p", program)
    if pickle.loads(pickle.dumps(program)) is not program:
        fail("pickle.loads(pickle.dumps(p)) is not p", program)


def check_lowering(application: Application) -> None:
    """Check that `lower = impl`: exactly for integers and bool, within rounding for floats."""
    program, args = application.program, application.args
    if problem := differ(xla(program, args), run(program, args)):
        fail(f"lower differs from impl: {problem}", program, args)


def check_jvp(application: Application, seed: int = 0) -> None:
    """Check that the tangent equals the central difference, for each subset of operands, and `linearize` agrees with
    it.

    Only `smooth` applications are compared with differences. A primitive may raise NotDifferentiableError instead.
    """
    program, args = application.program, application.args
    for mask in _masks(application):
        directions = random_tangents(select_by_flags(program.in_avals, mask), seed)
        try:
            forward, nonzero = jvp(program, mask)
        except NotDifferentiableError:
            continue
        typecheck(forward)
        n = len(program.outs)
        forward_outs = run(forward, [*args, *directions])
        if problem := differ(forward_outs[:n], run(program, args)):
            fail(f"jvp changed the results: {problem}", program, args, forward)
        tangents = instantiate_tangents(forward_outs[n:], nonzero, program.out_avals)
        if application.smooth and (problem := program_tangent_error(program, args, mask, directions, tangents)):
            fail(f"jvp of operands {mask}: {problem}", program, args, forward)
        _check_split(application, mask, directions, tuple(forward_outs[n:]))


def _check_split(
    application: Application, flags: tuple[bool, ...], directions: tuple[NDArray, ...], tangents: tuple[NDArray, ...]
) -> None:
    program, args = application.program, application.args
    split = linearize(program, flags)
    typecheck(split.primal)
    typecheck(split.linear)
    residuals = run(split.primal, args)[len(program.outs) :]
    if problem := differ(run(split.linear, [*directions, *residuals]), tangents):
        fail(f"linearize of operands {flags} differs from jvp: {problem}", program, args, split.linear)
    marked = leading(len(directions), len(split.linear.ins))
    if not is_linear(split.linear, marked):
        fail("the linear program is not linear", program, args, split.linear)
    _check_adjoint(program, split.linear, marked, directions, residuals, tangents)


def check_transpose(application: Application) -> None:
    """Check that `<y_bar, A x_dot> = <A^T y_bar, x_dot>` for each set of operands in which the primitive is linear, and
    A^TT = A."""
    prim, program, args = application.prim, application.program, application.args
    if not isinstance(prim, Linear):
        return
    for mask in _masks(application):
        if prim.linear_in(mask):
            known = tuple([a for a, m in zip(args, mask, strict=True) if not m])
            directions = random_tangents(select_by_flags(program.in_avals, mask), 1)
            remaining = iter(directions)
            outs = run(program, [next(remaining) if m else a for a, m in zip(args, mask, strict=True)])
            _check_adjoint(program, program, mask, directions, known, outs)


def _check_adjoint(
    program: Jaxpr,
    linear: Jaxpr,
    flags: tuple[bool, ...],
    directions: tuple[NDArray, ...],
    known: tuple[NDArray, ...],
    outs: tuple[NDArray, ...],
) -> None:
    adjoint = transpose(linear, flags)
    typecheck(adjoint)
    cts = random_tangents(linear.out_avals, 2)
    bars = run(adjoint, [*cts, *known])
    if problem := inner_product_error(cts, outs, bars, directions):
        fail(f"transpose is not the adjoint in operands {flags}: {problem}", program, (), adjoint)
    again = transpose(adjoint, leading(len(cts), len(adjoint.ins)))
    typecheck(again)
    if problem := differ(run(again, [*directions, *known]), outs):
        fail(f"transposing twice changed the meaning: {problem}", linear, (), again)


def check_batch(application: Application, dims: Dims | None = None, size: int = 2) -> None:
    """Check that batched equals the stacked loop, for `dims` or for a sample of mapped axes."""
    program, args = application.program, application.args
    for at in [dims] if dims is not None else _choices(args):
        _check_rows(program, args, at, size)


def _check_rows(program: Jaxpr, args: tuple[NDArray, ...], at: Dims, size: int) -> Jaxpr:
    """Return the batched program, which equals the stacked loop."""
    rows = examples(args, at, size)
    batched, out_dims = vmap(program, size, at)
    typecheck(batched)
    expected = stack([run(program, row) for row in rows], out_dims)
    if problem := differ(run(batched, stack(rows, at)), expected):
        fail(f"batch differs from the loop, operands mapped at {at}: {problem}", program, args, batched)
    return batched


def check_batched_linear(application: Application, size: int = 2) -> None:
    """Check that a batched equation is linear in the same sets of operands as the primitive. It stays linear if others
    of the set are the literal zero, as for vanishing tangents."""
    prim, args = application.prim, application.args
    if not isinstance(prim, Linear):
        return
    masks = [m for m in _masks(application) if prim.linear_in(m)]
    for whole, moving in product(masks, _masks(application)):
        if any([m and not w for m, w in zip(moving, whole, strict=True)]):
            continue
        zero = [w and not m for m, w in zip(moving, whole, strict=True)]
        program = _with_zeros(application, zero)
        mask = tuple([m for m, z in zip(moving, zero, strict=True) if not z])
        assert is_linear(program, mask)
        left = tuple([a for a, z in zip(args, zero, strict=True) if not z])
        for at in _choices(left):
            batched = _check_rows(program, left, at, size)
            if not is_linear(batched, mask):
                fail(f"mapped at {at}, not linear any more in operands {mask}", program, left, batched)


def _with_zeros(application: Application, zero: Sequence[bool]) -> Jaxpr:
    """Return the program of the equation with the literal zero for some operands."""
    b = Builder()
    avals = application.avals
    ins = [Zero(a).instantiate() if z else b.input(a) for a, z in zip(avals, zero, strict=True)]
    return b.build(b(application.prim, *ins), application.prim.name)


def _choices(args: tuple[NDArray, ...], most: int = 6) -> list[Dims]:
    every = [c for c in product(*[[None, *range(a.ndim + 1)] for a in args]) if any([d is not None for d in c])]
    return every[:: max(1, len(every) // most)]


def _masks(application: Application) -> Iterator[tuple[bool, ...]]:
    """Return the nonempty subsets of the operands whose tangents finite differences can resolve."""
    choices = [(False, True) if a.dtype in PRECISE else (False,) for a in application.avals]
    return (m for m in product(*choices) if any(m))


LAWS = (
    check_types,
    check_layout,
    check_text,
    check_lowering,
    check_jvp,
    check_transpose,
    check_batch,
    check_batched_linear,
)
