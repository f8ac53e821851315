"""Linear and bilinear primitives on symbolic values, by their `impl`.

A primitive that only moves elements moves opaque ones, each with all residues of a value. One that does arithmetic
runs on float64 arrays of small digits of the residues, whose sums are exact (`field`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from fxad import dtypes
from fxad.diagnosis.equality.assumptions import assume_finite, assume_widths
from fxad.diagnosis.equality.domain import ExactValue, ProofDomain, Symbolic
from fxad.diagnosis.equality.field import Residues
from fxad.diagnosis.in_dtype import prim_in
from fxad.ir import Avals, HigherOrder, Linear, NDArray, Primitive
from fxad.primitives.dot import DotGeneral, free_axes
from fxad.primitives.elementwise import Div
from fxad.primitives.families import Bilinear


def linear_candidates(prim: Primitive, args: Sequence[ExactValue], ins: Avals) -> list[tuple[bool, ...]]:
    """Return the sets of operands, as flags, in which a primitive is linear and which have all symbolic ones."""
    if not isinstance(prim, Linear) or (isinstance(prim, Div) and not ins[0].inexact):  # a quotient of integers rounds
        return []
    symbolic = tuple([isinstance(x, Symbolic) for x in args])
    kinds = {a.dtype for a, s in zip(ins, symbolic, strict=True) if s}
    # A constant may be one of the linear operands. The first set that works gives the result:
    #   symbolic and floating        dynamic_update_slice(x, 1.5, i): x and 1.5, but not the index
    #   of the dtypes of symbolic    concatenate(n, 2) of integers: n and 2
    #   symbolic alone               x / 2.0: it is linear in x, not in both
    #   all                          a primitive of a user may return operands of any dtypes, as a barrier does
    candidates = [
        tuple([s or a.inexact for s, a in zip(symbolic, ins, strict=True)]),
        tuple([s or a.dtype in kinds for s, a in zip(symbolic, ins, strict=True)]),
        symbolic,
        (True,) * len(ins),
    ]
    return [marks for marks in dict.fromkeys(candidates) if prim.linear_in(marks)]


def linear_results(
    domain: ProofDomain, prim: Primitive, args: list[ExactValue], marks: tuple[bool, ...], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    """Return the results of a linear primitive, by `impl`. If it does arithmetic, it may have no floats as
    coefficients, in an operand or a body: float64 drops 1e-20 y from x + 1e-20 y, and an integer remains."""
    lifted = [domain.lift(x) if m else x for x, m in zip(args, marks, strict=True)]
    vectors = [x for x in lifted if isinstance(x, Symbolic)]
    is_complex = any([x.is_complex for x in vectors])
    if is_complex and not all([a.dtype in dtypes.COMPLEX for a in outs]):
        return None  # it is linear over the real numbers only
    if is_complex:
        lifted = [domain.complex(*domain.parts(x)) if isinstance(x, Symbolic) else x for x in lifted]
        vectors = [x for x in lifted if isinstance(x, Symbolic)]
    degree, level = max([x.degree for x in vectors]), max([x.level for x in vectors])
    width = vectors[0].residues.shape[-1]

    def run(values: Sequence[NDArray], with_prim: Primitive) -> tuple[NDArray, ...]:
        in_order = iter(values)
        with np.errstate(all="ignore"):
            return with_prim.impl(*[next(in_order) if isinstance(x, Symbolic) else x for x in lifted])

    def symbolic(residues: Sequence[Residues], bit: bool) -> list[ExactValue]:
        return [Symbolic(r, is_complex, degree, level, bit) for r in residues]

    opaque = np.dtype((np.void, 8 * width))
    cells = [np.ascontiguousarray(x.residues).view(opaque).reshape(x.shape) for x in vectors]
    try:
        moved = run(cells, prim)
    except Exception:  # noqa: BLE001  # it does arithmetic, which opaque elements have not
        moved = ()
    if moved and all([np.asarray(y).dtype == opaque for y in moved]):
        bit = all([x.bit for x in vectors])
        return symbolic([np.ascontiguousarray(y).view(np.int64).reshape(*np.shape(y), width) for y in moved], bit)
    coefficients = any([a.inexact and not m for a, m in zip(ins, marks, strict=True)])
    if not domain.interpreted or coefficients or isinstance(prim, HigherOrder):
        return None
    wide = prim_in(dtypes.float64, prim)
    parts = [domain.parts(x) if is_complex else (x,) for x in vectors]
    real_and_imaginary = []
    for k in range(1 + is_complex):
        try:
            part = domain.field.linear(lambda xs: list(map(np.asarray, run(xs, wide))), [p[k].residues for p in parts])
        except Exception:  # noqa: BLE001  # `impl` takes no float64: nothing is known of the primitive
            return None
        if part is None:
            return None
        real_and_imaginary.append(part)
    assume_finite(domain, (), outs)
    return symbolic([np.concatenate(rows, -1) for rows in zip(*real_and_imaginary, strict=True)], False)


def bilinear_rule(
    domain: ProofDomain, prim: Bilinear, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    """Return a bilinear function of the operands, by `impl`."""
    assume_widths(domain, ins, outs)
    x, y = map(domain.lift, args)
    wide = prim_in(dtypes.float64, prim)

    def one(a: Symbolic, b: Symbolic) -> Symbolic | None:
        made = domain.field.bilinear(lambda u, v: np.asarray(wide.impl(u, v)[0]), a.residues, b.residues)
        return None if made is None else domain.made(made, False, a.degree + b.degree, max(a.level, b.level))

    return _of_parts(domain, one, x, y)


def _of_parts(
    domain: ProofDomain, one: Callable[[Symbolic, Symbolic], Symbolic | None], x: Symbolic, y: Symbolic
) -> list[ExactValue] | None:
    """Return a bilinear function of arrays that may be complex, from that of real ones."""
    if not (x.is_complex or y.is_complex):
        made = one(x, y)
        return None if made is None else [made]
    products = [one(a, b) for a in domain.parts(x) for b in domain.parts(y)]
    if any([p is None for p in products]):
        return None
    ac, ad, bc, bd = [p for p in products if p is not None]
    return [domain.complex(domain.sub(ac, bd), domain.add(ad, bc))]


def dot_rule(
    domain: ProofDomain, prim: DotGeneral, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    """Return the matrix product of all pairs of digits at once: as `impl`, in one call."""
    assume_widths(domain, ins, outs)
    x, y = map(domain.lift, args)
    rows_axes = free_axes(len(x.shape), prim.lhs_batch, prim.lhs_contract)
    column_axes = free_axes(len(y.shape), prim.rhs_batch, prim.rhs_contract)
    batch = [x.shape[a] for a in prim.lhs_batch]
    rows, columns = [x.shape[a] for a in rows_axes], [y.shape[a] for a in column_axes]
    n = prod([x.shape[a] for a in prim.lhs_contract])

    def one(a: Symbolic, b: Symbolic) -> Symbolic:
        left = a.residues.transpose(*prim.lhs_batch, *rows_axes, *prim.lhs_contract, len(x.shape))
        right = b.residues.transpose(*prim.rhs_batch, *prim.rhs_contract, *column_axes, len(y.shape))
        p = domain.points
        made = domain.field.matmul(
            left.reshape(*batch, prod(rows), n, p), right.reshape(*batch, n, prod(columns), p)
        ).reshape(*batch, *rows, *columns, p)
        return domain.made(made, False, a.degree + b.degree, max(a.level, b.level))

    return _of_parts(domain, one, x, y)
