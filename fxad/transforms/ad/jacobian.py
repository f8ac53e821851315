"""Jacobians: forward mode or the transposed linear program, batched over a basis of unit vectors."""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.flags import select_by_flags
from fxad.core.memo import by_value
from fxad.errors import NotDifferentiableError
from fxad.ir import Atom, Aval, Dims, Emit, Flags, Jaxpr, Lit
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.shape import Iota, Reshape, move_axis
from fxad.primitives.slicing import Slice
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.ad.vjp import vjp
from fxad.transforms.vmap import vmap


def basis(emit: Emit, avals: Sequence[Aval]) -> list[Atom]:
    """Return the standard basis of the direct sum of `avals`: for each aval one stack of shape (total size, *shape).

    For avals of 1 and 2 elements, the stacks are [[1], [0], [0]] and [[0, 0], [1, 0], [0, 1]].
    """
    total = sum([a.size for a in avals])
    out: list[Atom] = []
    offset = 0
    for a in avals:
        plane = Aval((total, a.size), dtypes.int32)
        rows = emit.one(Iota(plane.shape, dtypes.int32, 0))
        columns = emit.one(Iota(plane.shape, dtypes.int32, 1))
        is_one = emit.one(EQ, rows, emit.one(ADD, columns, Lit.of(offset, plane)))
        stack = emit.one(ConvertElementType(a.dtype), is_one)
        out.append(emit.one(Reshape((total, *a.shape)), stack))
        offset += a.size
    return out


def blocks(emit: Emit, x: Atom, avals: Sequence[Aval], *, last: bool) -> list[Atom]:
    """Return axis 0 of `x` (total size, *rest), cut into one block for each of `avals`. The axis of a block is reshaped
    to the shape of its aval: a block has shape (*rest, *shape) if `last`, else (*shape, *rest)."""
    rest = x.aval.shape[1:]
    out: list[Atom] = []
    offset = 0
    for a in avals:
        starts, limits = (offset,) + (0,) * len(rest), (offset + a.size, *rest)
        block: Atom = x if len(avals) == 1 else emit.one(Slice(starts, limits, (1,) * len(limits)), x)
        if last:
            block = move_axis(emit, block, 0, len(rest))
            shape = (*rest, *a.shape)
        else:
            shape = (*a.shape, *rest)
        out.append(block if block.aval.shape == shape else emit.one(Reshape(shape), block))
        offset += a.size
    return out


def _check_kind(jaxpr: Jaxpr, what: str, basis_of: Sequence[Aval], others: Sequence[Aval], holomorphic: bool) -> None:
    """Check the types of operands and results: `basis_of` are those of which a basis is built (the operands in forward
    mode, the results in reverse mode), `others` the others. In a holomorphic program all are complex. Otherwise those
    in `basis_of` are real, and none is an integer. Raises: NotDifferentiableError."""
    for a in [*basis_of, *[a for a in others if holomorphic or a.dtype not in dtypes.COMPLEX]]:
        if holomorphic and a.dtype not in dtypes.COMPLEX:
            raise NotDifferentiableError(
                f"{what}: {jaxpr.name} has an operand or result of type {a}, not complex",
                remedy="a holomorphic function maps complex numbers to complex numbers",
            )
        if not holomorphic and a.dtype not in dtypes.FLOATING:
            raise NotDifferentiableError(
                f"{what}: {jaxpr.name} has an operand or result of type {a}, not real floating",
                remedy="mark integer results as auxiliary; for complex numbers use jvp or vjp",
            )


@by_value
def jacfwd(jaxpr: Jaxpr, wrt: Flags, n_out: int, holomorphic: bool = False) -> Jaxpr:
    """Return the program of Jacobians by forward mode: operands -> all results, then the Jacobians.

    For each of the first `n_out` results and each marked operand it returns one Jacobian of shape (*result, *operand).
    A `holomorphic` program maps complex numbers to complex numbers, and has complex derivatives.

    Cost: the equations that tangents reach, batched over as many basis vectors as the marked operands have elements;
          the other equations run once. Forward mode stores no residuals, so it also differentiates a loop without a
          bound.
    """
    avals = select_by_flags(jaxpr.in_avals, wrt)
    _check_kind(jaxpr, "jacfwd", avals, jaxpr.out_avals[:n_out], holomorphic)
    forward, nonzero = jvp(jaxpr, wrt)
    b, n = Builder.like(jaxpr), len(jaxpr.outs)
    size = sum([a.size for a in avals])
    dims: Dims = (None,) * len(jaxpr.ins) + (0,) * len(avals)
    _, out_dims = vmap(forward, size, dims)
    pushed, _ = vmap(forward, size, dims, out_dims[:n] + (0,) * sum(nonzero))
    outs_and_stacks = b.inline(pushed, [*jaxpr.ins, *basis(b, avals)])
    # an equation that computes values and tangents together may have added the batch axis to the values
    outs = outs_and_stacks[:n] if out_dims[:n].count(None) == n else b.inline(jaxpr, jaxpr.ins)
    tangents = iter(outs_and_stacks[n:])
    jacobians: list[Atom] = []
    stacks = [next(tangents) if nz else None for nz in nonzero]
    for aval, stack in zip(jaxpr.out_avals[:n_out], stacks, strict=False):
        if stack is None:
            jacobians.extend([Lit.zero(Aval((*aval.shape, *a.shape), aval.dtype)) for a in avals])
        else:
            jacobians.extend(blocks(b, stack, avals, last=True))
    return b.build([*outs, *jacobians], f"jacfwd_{jaxpr.name}")


@by_value
def jacrev(jaxpr: Jaxpr, wrt: Flags, n_out: int, holomorphic: bool = False) -> Jaxpr:
    """Return the program of `jacfwd`, by reverse mode.

    Cost: the transposed linear program, batched over as many basis vectors as the first `n_out` results have elements.
    """
    avals = select_by_flags(jaxpr.in_avals, wrt)
    _check_kind(jaxpr, "jacrev", jaxpr.out_avals[:n_out], avals, holomorphic)
    reverse = vjp(jaxpr, wrt)
    b = Builder.like(jaxpr)
    primal = b.inline(reverse.forward, jaxpr.ins)
    outs, residuals = primal[: len(jaxpr.outs)], primal[len(jaxpr.outs) :]
    seeds_of = jaxpr.out_avals[:n_out]
    size = sum([a.size for a in seeds_of])
    seeds = iter(basis(b, seeds_of))
    cts: list[Atom] = []
    for k, a in enumerate(jaxpr.out_avals):
        if k < n_out:
            cts.append(next(seeds))
        elif a.inexact:
            cts.append(Lit.zero(a.stacked(size)))
    dims: Dims = (0,) * len(cts) + (None,) * reverse.n_res
    pulled, _ = vmap(reverse.backward, size, dims, (0,) * len(avals))
    by_operand = [blocks(b, x, seeds_of, last=False) for x in b.inline(pulled, [*cts, *residuals])]
    jacobians = [by_operand[j][i] for i in range(n_out) for j in range(len(avals))]
    return b.build([*outs, *jacobians], f"jacrev_{jaxpr.name}")
