"""Transposition of a linear map by applying it to unit vectors. Used where no single equation is linear.

Examples are a solver in a loop without a bound, and a linear host function. The map and its transpose are stored in one
`linear_call` equation, which is linear.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.core.builder import Builder, single_equation, subprogram
from fxad.core.dce import dce, dependent_values
from fxad.core.masks import select_by_mask
from fxad.core.memo import by_value
from fxad.dtypes import DType
from fxad.ir import (
    Atom,
    Aval,
    Dims,
    Eqn,
    HigherOrder,
    Jaxpr,
    Lit,
    Mask,
    Primitive,
    Var,
    all_prims,
    jaxprs_in_params,
)
from fxad.primitives.control.call import Call
from fxad.primitives.control.effects import eqn_without_effects
from fxad.primitives.elementwise.arithmetic import ADD, MUL, NEG
from fxad.primitives.elementwise.complex_parts import COMPLEX, REAL
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.host_call import HostCall
from fxad.primitives.linear_call import LinearCall
from fxad.primitives.linearity import is_zero
from fxad.primitives.shape import ReduceSum, broadcast_to_axis
from fxad.transforms.ad.jacobian import basis, blocks
from fxad.transforms.vmap import vmap


def reaches_unchecked_eqn(jaxpr: Jaxpr, mask: Mask) -> bool:
    """Returns True if a loop without a bound or a host function takes a value that depends on the marked operands."""
    dependent = dependent_values(jaxpr.eqns, select_by_mask(jaxpr.ins, mask))
    return any([_has_unchecked(e.prim) for e in jaxpr.eqns if not dependent.isdisjoint(e.ins)])


def _has_unchecked(prim: Primitive) -> bool:
    """Returns True for a loop without a bound and for a host call, and if a body has one."""
    inner = [p for body in jaxprs_in_params(prim) for p in all_prims(body)]
    return any([isinstance(p, HostCall) or (isinstance(p, HigherOrder) and p.layout.unbounded) for p in (prim, *inner)])


def as_linear_call(body: Jaxpr, adjoint: Jaxpr, n: int) -> Jaxpr:
    """A program of one `linear_call`: a map that is linear in its first `n` operands, with its transpose. The
    body itself if it has no such operands."""
    if not n:
        return body
    return single_equation(LinearCall(body, adjoint, n), body.in_avals, body.name)


# --------------------------------------------------------------------------------------------------------- unit vectors


@by_value
def transpose_by_unit_vectors(body: Jaxpr, n: int) -> Jaxpr:
    """The transpose of a program that is linear in its first `n` operands: (cotangents of the results, other
    operands) -> cotangents of the first `n` operands.

    Rule: <y_bar, A e> for each unit vector e; for complex operands e and i e, so that a map may conjugate.
    Cost: the equations that depend on the first `n` operands, batched over as many vectors as these operands have
          elements; the other equations run once.
    """
    avals = body.in_avals[:n]
    parts = [p for a in avals for p in _real_parts(a)]
    size = sum([p.size for p in parts])
    b = Builder()
    cts, known = b.inputs(body.out_avals), b.inputs(body.in_avals[n:])
    dims: Dims = (0,) * n + (None,) * len(known)
    total: Atom | None = None
    if size:
        where = tuple([None if d is None else 0 for d in vmap(body, size, dims)[1]])
        mapped, _ = vmap(body, size, dims, where)
        for out, ct, at in zip(b.inline(mapped, (*_unit_vectors(b, avals, parts), *known)), cts, where, strict=True):
            if at is not None and not is_zero(out):
                product = _products(b, out, ct, size, _widest(body))
                total = product if total is None else b.one(ADD, total, product)
    if total is None:
        return b.build([Lit.zero(a) for a in avals], f"transpose_{body.name}")
    return b.build(_cotangents_of(b, total, avals, parts), f"transpose_{body.name}")


def _real_parts(aval: Aval) -> tuple[Aval, ...]:
    """The types of the real arrays for which unit vectors are built: two for a complex array, one for a real array."""
    return (Aval(aval.shape, dtypes.real_part(aval.dtype)),) * 2 if aval.dtype.kind == "c" else (aval,)


def _widest(body: Jaxpr) -> DType:
    """The real dtype for summing contributions: f64 if an operand or result has that precision, else f32."""
    types = [a.dtype for a in (*body.in_avals, *body.out_avals) if a.inexact]
    real = [dtypes.real_part(d) if d.kind == "c" else d for d in types]
    return dtypes.float64 if dtypes.float64 in real else dtypes.float32


def _unit_vectors(b: Builder, avals: Sequence[Aval], parts: Sequence[Aval]) -> list[Atom]:
    stacks = iter(basis(b, parts))
    return [b.one(COMPLEX, next(stacks), next(stacks)) if a.dtype.kind == "c" else next(stacks) for a in avals]


def _products(b: Builder, stack: Atom, ct: Atom, size: int, dtype: DType) -> Atom:
    """The inner products of the rows of a stack with a cotangent, as real numbers."""
    product = b.one(MUL, stack, broadcast_to_axis(b, ct, None, size, 0))
    if product.aval.dtype.kind == "c":
        product = b.one(REAL, product)
    if product.aval.dtype is not dtype:
        product = b.one(ConvertElementType(dtype), product)
    return b.one(ReduceSum(tuple(range(1, product.aval.ndim))), product) if product.aval.ndim > 1 else product


def _cotangents_of(b: Builder, products: Atom, avals: Sequence[Aval], parts: Sequence[Aval]) -> list[Atom]:
    """The cotangents of the operands. `products` holds their elements one operand after the other."""
    reals = iter(
        [
            x if x.aval.dtype is p.dtype else b.one(ConvertElementType(p.dtype), x)
            for x, p in zip(blocks(b, products, parts, last=False), parts, strict=True)
        ]
    )
    return [b.one(COMPLEX, next(reals), b.one(NEG, next(reals))) if a.dtype.kind == "c" else next(reals) for a in avals]


# ------------------------------------------------------------------------------------- splitting results and tangents


@by_value
def split_results_and_tangents(rule: Jaxpr, n_out: int, n_dots: int) -> tuple[Jaxpr, Jaxpr]:
    """Split a program (operands, then `n_dots` tangents) -> (`n_out` results, then others) in two.

    The `n_out` results do not depend on the tangents. forward: operands -> results, then residuals. push: tangents,
    then residuals -> others. An equation that computes results and tangents together is in both programs; in `forward`
    it has no effects.

    `partial_eval` differs in two points: it puts an equation that computes both into the second program alone, and an
    effect that follows an effect of the second program too. Here `forward` has all results, and all effects that the
    tangents do not reach.
    """
    n = len(rule.ins) - n_dots
    flat = _nonlinear_calls_inlined(dce(rule), (False,) * n + (True,) * n_dots)
    dots, outs = flat.ins[n:], flat.outs[n_out:]
    dependent = dependent_values(flat.eqns, dots)
    later = [eqn for eqn in flat.eqns if not dependent.isdisjoint(eqn.ins)]
    read = dict.fromkeys([*[a for eqn in later for a in eqn.ins], *outs])
    residuals = [a for a in read if isinstance(a, Var) and a not in dependent]
    push = subprogram(later, (*dots, *residuals), outs, f"push_{rule.name}")
    return _forward(flat, later, (*flat.outs[:n_out], *residuals), n_dots), push


def _nonlinear_calls_inlined(jaxpr: Jaxpr, mask: Mask) -> Jaxpr:
    """The program without the calls that take values which depend on the marked operands and that are not linear in
    them: their bodies are inlined."""
    b = Builder.like(jaxpr)
    reached: set[Atom] = set(select_by_mask(jaxpr.ins, mask))

    def marks(ins: tuple[Atom, ...]) -> Mask:
        return tuple([a in reached for a in ins])

    def body_to_inline(eqn: Eqn, ins: tuple[Atom, ...]) -> Jaxpr | None:
        here = marks(ins)
        # only a plain call can be inlined
        return eqn.prim.body if any(here) and isinstance(eqn.prim, Call) and not eqn.prim.linear_in(here) else None

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        outs = b.copy(eqn, ins)
        reached.update(outs if any(marks(ins)) else ())
        return outs

    return b.build(b.inline_calls(jaxpr, jaxpr.ins, body_to_inline, rule), jaxpr.name)


def _forward(flat: Jaxpr, later: Sequence[Eqn], outs: tuple[Atom, ...], n_dots: int) -> Jaxpr:
    """The program of results that do not depend on the last `n_dots` operands. `later` are the equations that
    depend on them."""
    live: set[Atom] = set(outs)
    kept: list[Eqn] = []
    dependent = set(map(id, later))
    for eqn in reversed(flat.eqns):
        if not live.isdisjoint(eqn.outs) or (eqn.prim.effects and id(eqn) not in dependent):
            kept.append(eqn_without_effects(eqn) if id(eqn) in dependent else eqn)
            live.update(eqn.ins)
    alone = subprogram(reversed(kept), flat.ins, outs, flat.name)
    n = len(flat.ins) - n_dots
    b = Builder()
    zeros = [Lit.zero(v.aval) for v in flat.ins[n:]]
    return dce(b.build(b.inline(alone, (*b.inputs(flat.in_avals[:n]), *zeros)), flat.name))
