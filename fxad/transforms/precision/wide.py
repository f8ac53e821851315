"""Faster forms of two operations in a wider dtype, for which XLA's CPU compiler calls a scalar function or has a loop.

They are evaluated to measure errors of the narrow dtype, so their own errors, of a few units of the wide roundoff, do
not matter.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.ir import Atom, Atoms, Lit, Primitive
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.elementwise.powers import SQRT, IntegerPow, Pow
from fxad.primitives.shape import Reshape, Transpose
from fxad.primitives.slicing import Concatenate, Pad, Slice

LARGEST_POWER: Final = 8  # of a square root: larger ones leave the range of float64
LARGEST_WINDOW: Final = 27  # positions, each of which copies the operand once


def faster(b: Builder, prim: Primitive, ins: Atoms) -> Atom | None:
    """Add the value of an operation of float64 in a faster form, and return it; None if there is none.

    A power by a multiple of 1/2 is a power of a square root, which is vectorized: x ** -1.5 takes a sixth of the time.
    A convolution is a product of matrices: the windows, and the kernel.
    """
    if ins[0].aval.dtype != dtypes.float64:
        return None
    if isinstance(prim, Pow):
        return _power(b, *ins)
    return _convolution(b, prim, *ins) if isinstance(prim, ConvGeneralDilated) else None


def _power(b: Builder, x: Atom, y: Atom) -> Atom | None:
    if not isinstance(y, Lit) or y.size is not None:
        return None
    halves = 2 * float(y.value)
    if not (halves.is_integer() and 0 < abs(halves) <= LARGEST_POWER):
        return None
    whole, odd = divmod(int(abs(halves)), 2)
    powers = [x] * bool(whole) + [b.one(SQRT, x)] * odd
    if whole > 1:
        powers[0] = b.one(IntegerPow(whole), x)
    power = powers[0] if len(powers) == 1 else b.one(MUL, *powers)
    return b.one(IntegerPow(-1), power) if halves < 0 else power


def _convolution(b: Builder, conv: ConvGeneralDilated, lhs: Atom, rhs: Atom) -> Atom | None:
    """Return a convolution as one product of matrices: each row has the elements of a window. None for groups, and for
    windows of more than `LARGEST_WINDOW` elements.

    Example: x of 4 elements and a window (w0, w1) of one feature. The windows are the slices x[0:3] and x[1:4], side by
    side: a matrix of 3 x 2, times the column (w0, w1).
    """
    space, kernel = conv.lhs_spec[2:], conv.rhs_spec[2:]
    window = [rhs.aval.shape[a] for a in kernel]
    plain = conv.feature_groups == conv.batch_groups == 1 and not (lhs.aval.symbolic or rhs.aval.symbolic)
    if not plain or not 0 < prod(window) <= LARGEST_WINDOW:
        return None
    (out,) = conv.abstract_eval(lhs.aval, rhs.aval)
    if out.size == 0:
        return None
    sizes = [out.shape[a] for a in conv.out_spec[2:]]
    # lhs as (batch, space, feature), with the padding and dilation of the convolution
    x = b.one(Transpose((conv.lhs_spec[0], *space, conv.lhs_spec[1])), lhs)
    ends, holes = zip(*conv.padding, strict=True), [n - 1 for n in conv.lhs_dilation]
    low, high = ends if conv.padding else ((), ())
    x = b.one(Pad((0, *low, 0), (0, *high, 0), (0, *holes, 0)), x, Lit.zero(x.aval.with_shape(())))
    batch, features = x.aval.shape[0], x.aval.shape[-1]
    parts = []
    for position in product(*map(range, window)):
        starts = [k * n for k, n in zip(position, conv.rhs_dilation, strict=True)]
        limits = [s + (n - 1) * t + 1 if n != 0 else s for s, n, t in zip(starts, sizes, conv.strides, strict=True)]
        parts.append(b.one(Slice((0, *starts, 0), (batch, *limits, features), (1, *conv.strides, 1)), x))
    windows = parts[0] if len(parts) == 1 else b.one(Concatenate(len(space) + 1), *parts)
    # rhs as (space, input feature, output feature)
    matrix = b.one(Transpose((*kernel, conv.rhs_spec[1], conv.rhs_spec[0])), rhs)
    matrix = b.one(Reshape((prod(window) * features, out.shape[conv.out_spec[1]])), matrix)
    y = b.one(DotGeneral((len(space) + 1,), (0,), (), (), None), windows, matrix)
    order = (conv.out_spec[0], *conv.out_spec[2:], conv.out_spec[1])  # axis k of y is axis order[k] of the result
    return b.one(Transpose(tuple([order.index(a) for a in range(len(order))])), y)
