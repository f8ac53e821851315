"""The product along axes, and its derivative."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Final, final

from fxad import dtypes
from fxad.core.sizes.size import Size
from fxad.dtypes import DType
from fxad.ir import Atom, Atoms, Aval, JvpCtx, Tangent, Tangents, Zero, primitive
from fxad.primitives.axes import other_axes
from fxad.primitives.cumulative import CumProd, predecessors
from fxad.primitives.elementwise.arithmetic import MUL, MUL_NO_NAN
from fxad.primitives.reduce import PRODUCT, Monoid, Reduction
from fxad.primitives.shape import ReduceSum, Reshape, Transpose
from fxad.primitives.slicing import Concatenate, Slice


@final
@primitive
class ReduceProd(Reduction):
    """The product along `axes`, 1 over no elements.

    Type: x of any dtype but bool; the dtype is kept (integers wrap).
    Rule: the tangent is computed by a binary tree of products, so there is no division and zeros need no special case;
          over a symbolic number of elements, by the products of the elements before and behind each. A factor
          without a tangent may be infinite or nan beside another with a tangent (`mul_no_nan`).
    Cost: the tangent takes about 3 multiplications per element.
    Source: stablehlo.reduce with stablehlo.multiply; floats below 32 bits are multiplied in float32 and rounded once.
    """

    name: ClassVar[str] = "reduce_prod"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC
    monoid: ClassVar[Monoid] = PRODUCT
    rounds: ClassVar[bool] = True

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        y = ctx.one(self, *primals)
        return (y,), (product_tangent(ctx, self.axes, primals[0], tangents[0], y.aval),)


def product_tangent(ctx: JvpCtx, axes: tuple[int, ...], x: Atom, t: Tangent, y: Aval) -> Tangent:
    """Return the tangent of a product along `axes`, by halving: (ab)' = a'b + ab' for the halves a and b of the
    remaining elements."""
    perm = Transpose((*axes, *other_axes(axes, x.aval.ndim)))
    n = prod([x.aval.shape[a] for a in axes])
    flat = Reshape((n, *y.shape))
    x, t = ctx.one(flat, ctx.one(perm, x)), ctx.lin_one(flat, ctx.lin_one(perm, t))
    if type(n) is Size:
        unit = PRODUCT.identity(y.dtype)
        before, behind = [
            predecessors(ctx, ctx.one(CumProd(0, reverse), x), 0, reverse, unit) for reverse in (False, True)
        ]
        return ctx.lin_one(ReduceSum((0,)), ctx.lin_one(MUL_NO_NAN, ctx.one(MUL, before, behind), t))
    if n == 0:
        return Zero(y)
    while n > 1:
        half = n // 2
        a, b, odd = [_leading_slice(y, lo, hi) for lo, hi in ((0, half), (half, 2 * half), (2 * half, n))]
        xa, xb = ctx.one(a, x), ctx.one(b, x)
        s = ctx.add(ctx.lin_one(MUL_NO_NAN, xb, ctx.lin_one(a, t)), ctx.lin_one(MUL_NO_NAN, xa, ctx.lin_one(b, t)))
        t = ctx.lin_one(Concatenate(0), s, ctx.lin_one(odd, t)) if n % 2 != 0 else s
        if n > 2:  # the last product is the result itself
            xy = ctx.one(MUL, xa, xb)
            x = ctx.one(Concatenate(0), xy, ctx.one(odd, x)) if n % 2 != 0 else xy
        n -= half
    return ctx.lin_one(Reshape(y.shape), t)


def _leading_slice(y: Aval, start: int, limit: int) -> Slice:
    """Return `x[start:limit]` of an x of shape (any, *y.shape)."""
    return Slice((start, *[0] * y.ndim), (limit, *y.shape), (1,) * (y.ndim + 1))


REDUCE_PROD: Final = (ReduceProd,)
