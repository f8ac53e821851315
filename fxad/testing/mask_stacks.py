"""Stacks of transformations before and after mask: it commutes with each of them.

@given(ragged_cases(differentiable=True), mask_stacks())
def test_mask_stacks(case, stack):
    check_mask_stack(stack, case)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.flags import leading
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.errors import FxadError, NotDifferentiableError, NotInvertibleError, SizeError
from fxad.ir import Aval, Jaxpr, Lit
from fxad.primitives.collectives import Psum
from fxad.primitives.control.bodies import instantiate_linear_outs, instantiate_outs
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Batching, Cond
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.logic import LT
from fxad.testing.compare import program_tolerance, xla
from fxad.testing.derivative_laws import has_gradient, scalarized
from fxad.testing.draw_custom import call_with_rule
from fxad.testing.mask_laws import check_valid_part, raise_unless_refused
from fxad.testing.ragged_cases import RaggedCase, padded
from fxad.testing.stacks import names_up_to
from fxad.testing.transform_laws import as_one_call
from fxad.transforms import (
    cse,
    dce,
    grad,
    inline,
    invertible,
    jvp,
    linearize,
    outline,
    remat,
    reroll,
    simplify,
    transpose,
    value_and_grad,
    vjp_fused,
)
from fxad.transforms.mask.mask import mask
from fxad.transforms.mask.padded_builder import SizeBounds
from fxad.transforms.memory.policies import dots, everything
from fxad.transforms.specialize import specialize
from fxad.transforms.vmap import vmap, vmap_named

# A transformation of a program whose first operands are sizes, so many of them.
JaxprTransform: TypeAlias = Callable[[Jaxpr, int], Jaxpr]


def _real(program: Jaxpr) -> tuple[bool, ...]:
    return tuple([a.inexact for a in program.in_avals])


def _jvp(program: Jaxpr, _: int) -> Jaxpr:
    """Return results, then tangents of all inexact results."""
    forward, nonzero = jvp(program, _real(program))
    n, inexact = len(program.outs), [a.inexact for a in program.out_avals]
    b = Builder.like(forward)
    outs = b.inline(forward, forward.ins)
    return b.build([*outs[:n], *instantiate_outs(outs[n:], nonzero, program.out_avals, inexact)], program.name)


def _linearize(program: Jaxpr, _: int) -> Jaxpr:
    """Return both halves, one after the other."""
    split, n = linearize(program, _real(program)), len(program.outs)
    b = Builder()
    args = b.inputs(program.in_avals)
    directions = b.inputs([a for a in program.in_avals if a.inexact])
    known = b.inline(split.primal, args)
    linear = instantiate_linear_outs(split, [a.inexact for a in program.out_avals])
    return b.build([*known[:n], *b.inline(linear, [*directions, *known[n:]])], program.name)


def _vmap(program: Jaxpr, sizes: int) -> Jaxpr:
    """Over two examples of the same sizes."""
    dims = (*(None,) * sizes, *(0,) * (len(program.ins) - sizes))
    return vmap(program, 2, dims, (0,) * len(program.outs))[0]


def _scan(program: Jaxpr, sizes: int) -> Jaxpr:
    """Return two steps of a loop; each takes slices of the operands."""
    b = Builder()
    shared = b.inputs(program.in_avals[:sizes])
    slices = b.inputs([Aval((2, *a.shape), a.dtype) for a in program.in_avals[sizes:]])
    return b.build(b(Scan(program, 2, True, 1, sizes, 0), *shared, *slices), program.name)


def _cond(n_zeros: int, n_programs: int, batched: Batching) -> JaxprTransform:
    """Return one of several branches, chosen by an operand: branches that return zeros, then the program."""

    def apply(program: Jaxpr, _: int) -> Jaxpr:
        b = Builder.like(program)
        zeros = b.build([Lit.of(0, a) for a in program.out_avals], "zeros")
        b = Builder()
        args = b.inputs(program.in_avals)
        which = b.input(Aval((), dtypes.int32))
        branches = (*[zeros] * n_zeros, *[program] * n_programs)
        return b.build(b(Cond(branches, batched), which, *args), program.name)

    return apply


def _loop(program: Jaxpr, sizes: int) -> Jaxpr:
    """Return two steps of a loop without slices. The sizes are carried."""
    b = Builder()
    consts = b.inputs(program.in_avals[sizes:])
    carried = b.inputs(program.in_avals[:sizes])
    b.inputs(program.out_avals)
    body = b.build([*carried, *b(Call(program), *carried, *consts)], "step")
    b = Builder()
    args = b.inputs(program.in_avals)
    start = [Lit.of(0, a) for a in program.out_avals]
    loop = Scan(body, 2, False, 1, len(consts), sizes + len(start))
    return b.build(b(loop, *args[sizes:], *args[:sizes], *start)[sizes:], program.name)


def _while(program: Jaxpr, sizes: int) -> Jaxpr:
    """Return a loop that stops after two steps, counted in its carry, beside the sizes."""
    count = Aval((), dtypes.int32)
    n_consts = len(program.ins) - sizes
    b = Builder()
    consts, number, carried = b.inputs(program.in_avals[sizes:]), b.input(count), b.inputs(program.in_avals[:sizes])
    b.inputs(program.out_avals)
    more = b.one(ADD, number, Lit.of(1, count))
    body = b.build([more, *carried, *b(Call(program), *carried, *consts)], "step")
    b = Builder()
    number, *_ = b.inputs([count, *program.in_avals[:sizes], *program.out_avals])
    condition = b.build([b.one(LT, number, Lit.of(2, count))], "more")
    b = Builder()
    args = b.inputs(program.in_avals)
    start = [Lit.of(0, a) for a in program.out_avals]
    loop = While(condition, body, 0, n_consts, 2)
    return b.build(b(loop, *args[sizes:], Lit.of(0, count), *args[:sizes], *start)[1 + sizes :], program.name)


def _value_and_adjoint(program: Jaxpr, _: int) -> Jaxpr:
    """Return the results, and the adjoint of the linear half at one cotangent for each inexact result."""
    marks, n = _real(program), len(program.outs)
    split = linearize(program, marks)
    linear = instantiate_linear_outs(split, [a.inexact for a in program.out_avals])
    adjoint = transpose(linear, leading(sum(marks), len(linear.ins)))
    b = Builder()
    args = b.inputs(program.in_avals)
    cts = b.inputs(linear.out_avals)
    known = b.inline(split.primal, args)
    return b.build([*known[:n], *b.inline(adjoint, [*cts, *known[n:]])], program.name)


def _named_axis(program: Jaxpr, sizes: int) -> Jaxpr:
    """Over two indices of a named axis, with the mean of the results over the axis, which are of the same sizes."""
    b = Builder.like(program)
    total = Psum(("i",), (2,))
    outs = [b.one(total, v) if v.aval.inexact else v for v in b.inline(program, program.ins)]
    dims = (*(None,) * sizes, *(0,) * (len(program.ins) - sizes))
    return vmap_named(b.build(outs, program.name), 2, "i", dims, (0,) * len(program.outs))[0]


def _ruled(kind: str) -> Callable[[Jaxpr, int], Jaxpr]:
    def apply(program: Jaxpr, _: int) -> Jaxpr:
        b = Builder()
        return b.build(b(call_with_rule(program, kind), *b.inputs(program.in_avals)), program.name)

    return apply


def _invertible(program: Jaxpr, sizes: int) -> Jaxpr:
    """Return the program under `invertible`; a program that cannot be inverted stays as it is."""
    try:
        return invertible(program, leading(sizes, len(program.ins)))
    except (NotInvertibleError, NotDifferentiableError):
        return program


def _gradient(transform: Callable[[Jaxpr, tuple[bool, ...]], Jaxpr]) -> Callable[[Jaxpr, int], Jaxpr]:
    def apply(program: Jaxpr, _: int) -> Jaxpr:
        scalar, marks = scalarized(program), _real(program)
        return transform(scalar, marks) if has_gradient(scalar, marks) else program

    return apply


def _rewriting(transform: Callable[[Jaxpr], Jaxpr]) -> Callable[[Jaxpr, int], Jaxpr]:
    return lambda program, _: transform(program)


MASK_STEPS: Final[Mapping[str, JaxprTransform]] = MappingProxyType(
    {
        "jvp": _jvp,
        "linearize": _linearize,
        "vjp": lambda program, _: vjp_fused(program, _real(program)),
        "grad": _gradient(grad),
        "value_and_grad": _gradient(value_and_grad),
        "vmap": _vmap,
        "scan": _scan,
        "cond": _cond(1, 1, "select"),
        "call": _rewriting(as_one_call),
        "switch": _cond(1, 2, "loop"),
        "loop": _loop,
        "while": _while,
        "transpose": _value_and_adjoint,
        "named axis": _named_axis,
        "rule for tangents": _ruled("jvp"),
        "rule for cotangents": _ruled("vjp"),
        "invertible": _invertible,
        "remat": _rewriting(remat),
        "remat keeping products": _rewriting(lambda f: remat(f, dots)),
        "remat keeping all": _rewriting(lambda f: remat(f, everything)),
        "dce": _rewriting(dce),
        "cse": _rewriting(cse),
        "simplify": _rewriting(simplify),
        "inline": _rewriting(inline),
        "outline": _rewriting(outline),
        "reroll": _rewriting(reroll),
    }
)


def mask_stacks(depth: int = 3) -> st.SearchStrategy[tuple[str, ...]]:
    """Draw names of up to `depth` transformations beside mask; most stacks have that depth."""
    return names_up_to(depth, MASK_STEPS)


def check_mask_stack(stack: Sequence[str], case: RaggedCase, *, compiled: bool = False) -> bool:
    """Check that `mask` commutes with every transformation: T(mask(f)) and mask(T(f)) give T(f) at the sizes, on the
    valid part, and zeros in the padding, for each stack T. So the cotangent of padding is zero.

    Return False for a program that mask refuses.
    """
    try:
        outer = _sizes_first(case.program, case.own)
    except SizeError as e:
        raise_unless_refused(e)
        return False
    own, sizes = case.own, case.own_sizes
    plain = case.program
    for k, name in enumerate(stack):
        try:
            plain, outer = MASK_STEPS[name](plain, 0), MASK_STEPS[name](outer, len(own))
        except FxadError as e:
            e.add_note(f"in step {k} of mask > {' > '.join(stack)} of {case}")
            raise_unless_refused(e)
            return False
    typecheck(outer)
    case = replace(case, program=plain)
    args = case.operands(plain.in_avals)
    fixed = specialize(plain, tuple(sorted(case.sizes.items())))
    expected, tolerance = run(fixed, args), 10 * program_tolerance(fixed, args)
    given = [*sizes, *padded(case, args, outer.in_avals[len(own) :])]
    law = f"mask > {' > '.join(stack)}"
    check_valid_part(law, case, outer, run(outer, given), expected, tolerance)
    if compiled:
        check_valid_part(f"{law} in XLA", case, outer, xla(outer, given), expected, tolerance)
    try:
        inner = mask(plain, own)
    except SizeError as e:
        raise_unless_refused(e)  # a derivative may have an equation that has no rule
        return False
    typecheck(inner)
    given = [*padded(case, args, inner.in_avals[: len(args)]), *sizes]  # a transformation may remove a size
    check_valid_part(f"{' > '.join(stack)} > mask", case, inner, run(inner, given), expected, tolerance)
    return True


def _sizes_first(program: Jaxpr, padding: SizeBounds) -> Jaxpr:
    """Return the masked program with its sizes as the first operands."""
    masked = mask(program, padding)
    n = len(masked.ins) - len(padding)
    b = Builder()
    sizes = b.inputs(masked.in_avals[n:])
    args = b.inputs(masked.in_avals[:n])
    return b.build(b(Call(masked), *args, *sizes), masked.name)
