"""Checks at run time that a reconstruction is accurate: compares sketches of values from the forward and the backward
pass.

A sketch of an array of n elements consists of k sums with random signs; each element is in one sum. An error in the
array shows in the sums. A single wrong element shows with its full size; errors in all elements show as their root mean
square times the root of n / k. A sketch takes k numbers, where storing the array would take n.

Example: 6400 numbers of size 1 have a sketch of 64 sums of 100 numbers each. If one element is wrong by 0.5, one sum is
wrong by 0.5. If all are wrong by 1e-6, with random signs, the sums are wrong by about 1e-5: the error may be larger by
the root of 100 than for one number (`agree`). In float32 the default tolerance of the relative error is 4e-3.

Charikar, Chen and Farach-Colton, Finding frequent items in data streams (2002); the estimate of a norm by signed sums
is that of Alon, Matias and Szegedy, The space complexity of approximating the frequency moments (1996).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import Size
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Lit
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE
from fxad.primitives.elementwise.arithmetic import MAX, MUL, NEG, SUB
from fxad.primitives.elementwise.complex_parts import IMAG, REAL
from fxad.primitives.elementwise.convert import STOP_GRADIENT, ConvertElementType
from fxad.primitives.elementwise.logic import GE, IS_FINITE, LE, SHIFT_RIGHT_LOGICAL, XOR
from fxad.primitives.elementwise.powers import ABS, RSQRT
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.reduce import ReduceMax
from fxad.primitives.shape import Iota, ReduceSum, emit_broadcast, emit_reshape
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.transforms.inversion.rules.totals import real_numbers, significand_bits

SUMS: Final = 64


def tolerated(dtype: DType) -> float:
    """Return the default tolerance of the relative error. It leaves a third of the digits of the dtype.

    5e-6 for float64, 4e-3 for float32, 0.08 for float16, 0.16 for bfloat16.
    """
    return float(2.0 ** -(significand_bits(dtype, 8) / 3))


def compared(x: Aval) -> bool:
    """Return True if values of this type are compared: floating or complex, not float8, not known to be empty."""
    return x.inexact and x.dtype not in dtypes.FLOAT8 and not at_least(-x.size, 0)


def sketched(x: Aval) -> Aval:
    """Return the type of the sketch of an array."""
    dtype = dtypes.real_part(x.dtype)
    n = real_numbers([x])
    return Aval((SUMS if type(n) is Size else min(n, SUMS),), dtype if dtype == dtypes.float64 else dtypes.float32)


def sketch(b: Builder, x: Atom) -> Atom:
    """Return the sketch of x: at most `SUMS` sums of its elements, or of its real and imaginary parts, with random
    signs.

    Elements that are not finite count as 0; a reconstruction that loses them is nan without this check. The sketch has
    no derivative.
    """
    if x.aval.dtype in dtypes.COMPLEX:
        parts = [_flattened(b, b.one(prim, x)) for prim in (REAL, IMAG)]
        x = b.one(Concatenate(0), *parts)
    line = _flattened(b, b.one(STOP_GRADIENT, x))
    line = emit_where(b, b.one(IS_FINITE, line), line, Lit.of(0, line.aval))
    n = line.aval.size
    if type(n) is int and n <= SUMS:
        return line
    rows = -(-n // SUMS)
    # a hash finaliser: makes the bits of an element's index independent of each other
    number = Aval((n,), dtypes.uint32)
    i: Atom = b.one(MUL, b.one(Iota((n,), dtypes.uint32, 0)), Lit.of(0x9E3779B1, number))
    i = b.one(XOR, i, b.one(SHIFT_RIGHT_LOGICAL, i, Lit.of(15, number)))
    i = b.one(MUL, i, Lit.of(0x85EBCA77, number))
    signed = emit_where(b, b.one(GE, i, Lit.of(1 << 31, number)), b.one(NEG, line), line)
    padded = b.one(Pad((0,), (rows * SUMS - n,), (0,)), signed, Lit.of(0, line.aval.with_shape(())))
    return b.one(ReduceSum((0,)), emit_reshape(b, padded, (rows, SUMS)))


def _flattened(b: Builder, x: Atom) -> Atom:
    """Flatten an array, in a dtype in which its sums do not overflow."""
    wide = x.aval.dtype in (dtypes.float32, dtypes.float64) or x.aval.dtype in dtypes.COMPLEX
    return emit_reshape(b, x if wide else b.one(ConvertElementType(dtypes.float32), x), (x.aval.size,))


def agree(
    b: Builder, sketches: Sequence[Atom], reconstructed: Sequence[Atom], others: Sequence[Atom], tolerance: float
) -> Atom:
    """Return a bool atom: True if the reconstructed values agree with the original values, which are given by their
    sketches.

    The largest error in the values is compared with the largest magnitude in them. The error may be `tolerance` times
    the magnitude (0: the default of `tolerated` for each dtype). If all original values are 0, the magnitudes in
    `others` count too.
    """
    wide = dtypes.float64 if any([s.aval.dtype == dtypes.float64 for s in sketches]) else dtypes.float32
    errors: list[Atom] = []
    for original, x in zip(sketches, reconstructed, strict=True):
        error = _peak(b, b.one(SUB, sketch(b, x), original), wide)
        allowed, n = tolerance or tolerated(x.aval.dtype), real_numbers([x.aval])
        if type(n) is Size:
            ratio = b.one(MUL, Lit.of(n, error.aval), Lit.of(1.0 / SUMS, error.aval))
            error = b.one(MUL, error, b.one(RSQRT, b.one(MAX, ratio, Lit.of(1.0, error.aval))))
        else:
            allowed *= math.sqrt(max(n / SUMS, 1.0))
        errors.append(b.one(MUL, error, Lit.of(1.0 / allowed, error.aval)))
    original_size = _largest(b, [_peak(b, s, wide) for s in sketches])
    size = _largest(b, [_peak(b, _finite_magnitudes(b, x), wide) for x in reconstructed])
    other_sizes = [_peak(b, _finite_magnitudes(b, x), wide) for x in others if compared(x.aval)]
    size_with_others = _largest(b, [size, *other_sizes])
    size = emit_where(b, b.one(LE, original_size, Lit.of(0.0, original_size.aval)), size_with_others, size)
    return b.one(LE, _largest(b, errors), size)


def _finite_magnitudes(b: Builder, x: Atom) -> Atom:
    line = _flattened(b, b.one(ABS, b.one(STOP_GRADIENT, x)))
    return emit_where(b, b.one(IS_FINITE, line), line, Lit.of(0, line.aval))


def _peak(b: Builder, x: Atom, dtype: DType) -> Atom:
    """Return the largest magnitude."""
    top: Atom = b.one(ReduceMax((0,)), b.one(ABS, x))
    return top if top.aval.dtype == dtype else b.one(ConvertElementType(dtype), top)


def _largest(b: Builder, xs: Sequence[Atom]) -> Atom:
    out = xs[0]
    for x in xs[1:]:
        out = b.one(MAX, out, x)
    return out


def nan_unless(b: Builder, accurate: Atom, values: Sequence[Atom]) -> list[Atom]:
    """Return the values, with nan as their first elements if the reconstructions are not `accurate`.

    A literal is returned unchanged: a derivative that is always 0 depends on no reconstruction. The first element is
    multiplied by 1 or nan, which is linear. Only this element is updated in place: a product of the whole array would
    be a second array, and would keep the gradients of all blocks live until the last reconstruction.
    """
    out: list[Atom] = []
    for x in values:
        if isinstance(x, Lit):
            out.append(x)
            continue
        one = x.aval.with_shape(())
        factor = emit_where(b, accurate, Lit.of(1.0, one), Lit.of(math.nan, one))
        if not x.aval.ndim:
            out.append(b.one(MUL, x, factor))
        elif type(x.aval.size) is Size and not at_least(x.aval.size, 1):  # there may be no first element
            out.append(b.one(MUL, x, emit_broadcast(b, factor, x.aval.shape, ())))
        elif x.aval.size != 0:
            n = x.aval.ndim
            first = b.one(Slice((0,) * n, (1,) * n, (1,) * n), x)
            marked = b.one(MUL, first, emit_reshape(b, factor, (1,) * n))
            out.append(b.one(DYNAMIC_UPDATE_SLICE, x, marked, *[Lit.of(0, Aval((), dtypes.int32))] * n))
        else:
            out.append(x)
    return out
