"""Fourier transforms of masked length, by Bluestein's algorithm: a convolution of fixed length with a chirp that
depends on the true length.

Source: Bluestein, A linear filtering approach to the computation of discrete Fourier transform (1970).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, pi
from typing import Final

from fxad import dtypes
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import Size
from fxad.ir import Atom, Atoms, Aval, Avals, Lit
from fxad.primitives.elementwise.arithmetic import DIV, MAX, MUL, REM
from fxad.primitives.elementwise.complex_parts import COMPLEX, CONJ, REAL
from fxad.primitives.elementwise.convert import ConvertElementType, emit_convert
from fxad.primitives.elementwise.logic import EQ, OR
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.elementwise.trigonometric import COS, SIN
from fxad.primitives.fft import Fft
from fxad.primitives.shape import Rev, Transpose, emit_broadcast
from fxad.primitives.slicing import Concatenate, Slice, emit_slice
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, row
from fxad.transforms.mask.padded_builder import int_literal
from fxad.transforms.mask.rules.structure import padded_to


def _fft(ctx: MaskCtx, prim: Fft, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a Fourier transform, axis after axis (`_along`). Along a masked axis its frequencies depend on the true
    length, so it is computed by Bluestein's algorithm, which takes the length as a value. Example: with a true length
    n = 3 in a padded size 4, element k is the sum of x_j exp(-2 pi i j k / 3), and x_3 is zero.

    A real transform is the complex one, of which half is kept. In its inverse, the half that is left out counts by
    weights of 2.
    """
    (aval,), (out,) = ins, outs
    x = ctx.zero_filled(args[0], aval.shape)
    first = aval.ndim - len(prim.lengths)
    if not ctx.ragged((*aval.shape[first:], *out.shape[first:])):
        return ctx(prim, x)
    inverse = prim.kind in ("IFFT", "IRFFT")
    if prim.kind == "RFFT":
        x = ctx.one(COMPLEX, x, Lit.of(0, x.aval))
    last = aval.ndim - 1
    for axis in range(first, aval.ndim):
        n = prim.lengths[axis - first]
        if axis == last and prim.kind == "IRFFT":  # the other half are the conjugates, so this half counts twice
            x = ctx.one(
                MUL, padded_to(ctx, x, axis, ctx.padded_size(n)), _weights(ctx, ctx.padded(out.shape), x.aval, n)
            )
        x = _along(ctx, x, axis, n, inverse)
    if prim.kind == "RFFT":
        x = emit_slice(ctx, x, last, 0, ctx.padded_size(out.shape[last]))
    elif prim.kind == "IRFFT":
        x = ctx.one(REAL, x)
    return (ctx.cleared(x, out.shape),)


def _weights(ctx: MaskCtx, shape: tuple[int, ...], like: Aval, n: int) -> Atom:
    """Return 2 for the elements that represent two, 1 for those that represent only themselves: 0 and n / 2."""
    line = ctx.iota(shape, len(shape) - 1)
    twice = ctx.one(MUL, line, Lit.of(2, line.aval))
    middle = ctx.one(EQ, twice, ctx.counts(n, shape))
    unpaired = ctx.one(OR, ctx.one(EQ, line, Lit.of(0, line.aval)), middle)
    weights = like.with_shape(shape)
    return ctx.one(SELECT_N, unpaired, Lit.of(2, weights), Lit.of(1, weights))


def _along(ctx: MaskCtx, x: Atom, axis: int, n: int, inverse: bool) -> Atom:
    """Return the complex transform of `n` elements along one axis."""
    rank = x.aval.ndim
    order = (*[a for a in range(rank) if a != axis], axis)
    inverse_order = tuple([order.index(a) for a in range(rank)])
    transposed = axis != rank - 1
    if transposed:
        x = ctx.one(Transpose(order), x)
    if ctx.masked(n):
        x = _bluestein(ctx, x, ctx.count(n), inverse)
    else:
        x = ctx.one(Fft("IFFT" if inverse else "FFT", (n,)), x)
    return ctx.one(Transpose(inverse_order), x) if transposed else x


_EXACT: Final = isqrt(2**31 - 1)  # the square of an index up to here is an i32


def _bluestein(ctx: MaskCtx, x: Atom, count: Atom, inverse: bool) -> Atom:
    """Return the transform of length n, the value of `count`, by Bluestein's method: 2 j k = j^2 + k^2 - (k - j)^2, so
    it is a convolution with exp(+-i pi m^2 / n), between products with its conjugate."""
    padded, last = x.aval.shape[-1], x.aval.ndim - 1
    real = Aval((padded,), dtypes.real_part(x.aval.dtype))
    count = ctx.one(MAX, count, int_literal(1))
    # the chirp: exp(-+i pi m^2 / n) for each index m. It has the period 2 n in m^2, and small angles lose no digits
    index = ctx.iota((padded,), 0)
    if not at_least(_EXACT - padded, 0):
        index = ctx.one(ConvertElementType(dtypes.int64), index)
    exact_count = emit_convert(ctx, count, index.aval.dtype)
    period = emit_broadcast(ctx, ctx.one(MUL, exact_count, Lit.of(2, exact_count.aval)), (padded,), ())
    square = ctx.one(ConvertElementType(real.dtype), ctx.one(REM, ctx.one(MUL, index, index), period))
    n = emit_broadcast(ctx, ctx.one(ConvertElementType(real.dtype), count), (padded,), ())
    angle = ctx.one(MUL, ctx.one(DIV, square, n), Lit.of(pi if inverse else -pi, real))
    chirp = ctx.one(COMPLEX, ctx.one(COS, angle), ctx.one(SIN, angle))
    chirps = emit_broadcast(ctx, chirp, x.aval.shape, (last,))
    # the kernel: the conjugate chirp in a circle, of the indices 0 to padded - 1, zeros, and -(padded - 1) to -1. The
    # length is a power of two where it is known; a size that is masked later is not
    length = 2 * padded if type(padded) is Size else 1 << (2 * padded - 1).bit_length()
    conjugate = ctx.one(CONJ, chirp)
    zeros = Lit.of(0, conjugate.aval.with_shape((length - 2 * padded + 1,)))
    of_negative = ctx.one(Rev((0,)), ctx.one(Slice((1,), (padded,), (1,)), conjugate))
    kernel = ctx.one(Fft("FFT", (length,)), ctx.one(Concatenate(0), conjugate, zeros, of_negative))
    # the convolution, by transforms of fixed length
    spectrum = ctx.one(Fft("FFT", (length,)), padded_to(ctx, ctx.one(MUL, x, chirps), last, length))
    product = ctx.one(MUL, spectrum, emit_broadcast(ctx, kernel, spectrum.aval.shape, (last,)))
    convolved = emit_slice(ctx, ctx.one(Fft("IFFT", (length,)), product), last, 0, padded)
    out = ctx.one(MUL, convolved, chirps)
    if not inverse:
        return out
    divisor = ctx.one(COMPLEX, n, Lit.of(0, real))
    return ctx.one(DIV, out, emit_broadcast(ctx, divisor, out.aval.shape, (last,)))


FOURIER: Final[tuple[MaskRow, ...]] = (
    row(Fft, _fft, "padding is 0; axes of masked length as convolutions with a chirp of the true length"),
)
