"""Transposition of a linear map by applying it to unit vectors. Used where no single equation is linear, as in a solver
in a loop without a bound, or in a linear host function.

Of A: f32[2] -> f32[3], `vmap` computes the stack of A (1, 0) and A (0, 1). Their inner products with a cotangent y_bar
are the two elements of the cotangent of the operand.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Dims, Jaxpr, Lit
from fxad.primitives.elementwise.arithmetic import ADD, MUL, NEG
from fxad.primitives.elementwise.complex_parts import COMPLEX, REAL
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.linearity import is_zero
from fxad.primitives.shape import ReduceSum, broadcast_to_axis
from fxad.transforms.ad.jacobian import basis, blocks
from fxad.transforms.vmap import vmap


@by_value
def transpose_by_unit_vectors(body: Jaxpr, n: int) -> Jaxpr:
    """Return the transpose of a program that is linear in its first `n` operands: (cotangents of the results, other
    operands) -> cotangents of the first `n` operands.

    Rule: <y_bar, A e> for each unit vector e; for complex operands e and i e, so that a map may conjugate.
    Cost: the equations that depend on the first `n` operands, batched over as many vectors as these operands have
          elements; the other equations run once.
    """
    avals = body.in_avals[:n]
    components = [p for a in avals for p in _real_components(a)]
    size = sum([p.size for p in components])  # the number of unit vectors
    b = Builder()
    cts, known = b.inputs(body.out_avals), b.inputs(body.in_avals[n:])
    dims: Dims = (0,) * n + (None,) * len(known)
    total: Atom | None = None  # <y_bar, A e> for all unit vectors e, summed over the results
    if size != 0:
        out_dims = tuple([None if d is None else 0 for d in vmap(body, size, dims)[1]])
        batched, _ = vmap(body, size, dims, out_dims)
        stacks = b.inline(batched, (*_unit_vectors(b, avals, components), *known))
        for stack, ct, d in zip(stacks, cts, out_dims, strict=True):
            if d is not None and not is_zero(stack):
                product = _products(b, stack, ct, size, _widest(body))
                total = product if total is None else b.one(ADD, total, product)
    if total is None:
        return b.build([Lit.zero(a) for a in avals], f"transpose_{body.name}")
    return b.build(_cotangents_of(b, total, avals, components), f"transpose_{body.name}")


def _real_components(aval: Aval) -> tuple[Aval, ...]:
    """Return the types of the real arrays for which unit vectors are built: two for a complex array, one for a real
    array."""
    return (Aval(aval.shape, dtypes.real_part(aval.dtype)),) * 2 if aval.dtype.kind == "c" else (aval,)


def _widest(body: Jaxpr) -> DType:
    """Return the real dtype for summing contributions: f64 if an operand or result has that precision, else f32."""
    types = [a.dtype for a in (*body.in_avals, *body.out_avals) if a.inexact]
    real = [dtypes.real_part(d) if d.kind == "c" else d for d in types]
    return dtypes.float64 if dtypes.float64 in real else dtypes.float32


def _unit_vectors(b: Builder, avals: Sequence[Aval], components: Sequence[Aval]) -> list[Atom]:
    """Return for each operand, a stack of its components of all unit vectors."""
    stacks = iter(basis(b, components))
    return [b.one(COMPLEX, next(stacks), next(stacks)) if a.dtype.kind == "c" else next(stacks) for a in avals]


def _products(b: Builder, stack: Atom, ct: Atom, size: int, dtype: DType) -> Atom:
    """Return the inner products of the rows of a stack with a cotangent, as real numbers."""
    product = b.one(MUL, stack, broadcast_to_axis(b, ct, None, size, 0))
    if product.aval.dtype.kind == "c":
        product = b.one(REAL, product)
    if product.aval.dtype is not dtype:
        product = b.one(ConvertElementType(dtype), product)
    return b.one(ReduceSum(tuple(range(1, product.aval.ndim))), product) if product.aval.ndim > 1 else product


def _cotangents_of(b: Builder, products: Atom, avals: Sequence[Aval], components: Sequence[Aval]) -> list[Atom]:
    """Return the cotangents of the operands. `products` holds their elements one operand after the other."""
    reals = iter(
        [
            x if x.aval.dtype is p.dtype else b.one(ConvertElementType(p.dtype), x)
            for x, p in zip(blocks(b, products, components, last=False), components, strict=True)
        ]
    )
    return [b.one(COMPLEX, next(reals), b.one(NEG, next(reals))) if a.dtype.kind == "c" else next(reals) for a in avals]
