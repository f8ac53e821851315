"""Discrete Fourier transforms over the last axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.sizes.size import Size
from fxad.errors import DTypeError, ParameterError, ShapeError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Dims,
    Emit,
    Hlo,
    HloValues,
    LinearMap,
    Lit,
    NDArray,
    primitive,
)
from fxad.primitives.elementwise.arithmetic import DIV, MUL
from fxad.primitives.elementwise.complex_parts import COMPLEX, CONJ
from fxad.primitives.elementwise.family import FLOAT32_OR_64
from fxad.primitives.elementwise.logic import EQ, OR
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import LinearInOne
from fxad.primitives.operand_checks import check_count
from fxad.primitives.shape import Iota, emit_broadcast, move_axis
from fxad.primitives.stablehlo import i64_array, zeros_constant

KINDS: Final = ("FFT", "IFFT", "RFFT", "IRFFT")
_Transform: TypeAlias = Callable[[NDArray, tuple[int, ...], tuple[int, ...]], NDArray]
_NUMPY: Final[Mapping[str, _Transform]] = MappingProxyType(
    {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}
)


@final
@primitive
class Fft(LinearMap, LinearInOne):
    """The discrete Fourier transform over the last axes, of the sizes `lengths`.

    `FFT` sums x[j] exp(-2 pi i j k / n); `IFFT` is its inverse, divided by the number of elements. `RFFT` is the half
    of `FFT` that determines the other half for a real operand: k <= n / 2 on the last axis. `IRFFT` is its inverse; it
    ignores the imaginary parts that are zero in the transform of a real array.

    Type: FFT, IFFT: complex to complex. RFFT: float32 or float64 to complex. IRFFT: complex to float. `lengths` are the
          sizes of the real or longer side, one to three, none 0.
    Rule: linear. FFT and IFFT are their own transposes. RFFT and IRFFT are each other's transposes, conjugated, with a
          weight for the elements that represent two.
    Source: stablehlo.fft
    """

    name: ClassVar[str] = "fft"
    kind: str
    lengths: tuple[int, ...]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        if self.kind not in KINDS:
            raise ParameterError(f"fft: {self.kind!r} is not one of {' '.join(KINDS)}")
        if not 1 <= len(self.lengths) <= 3:
            raise ParameterError(
                f"fft: takes one to three axes, got {len(self.lengths)}", remedy="transform the others in turn"
            )
        if any([n < 1 for n in self.lengths]):
            raise ShapeError(f"fft: lengths {self.lengths} are not all positive")
        takes = FLOAT32_OR_64 if self.kind == "RFFT" else dtypes.COMPLEX
        if x.dtype not in takes:
            raise DTypeError(f"fft: {self.kind} takes {' or '.join([d.name for d in sorted(takes, key=str)])}, got {x}")
        half = (*self.lengths[:-1], self.lengths[-1] // 2 + 1)
        lengths_in, lengths_out = (
            (half if self.kind == "IRFFT" else self.lengths),
            (half if self.kind == "RFFT" else self.lengths),
        )
        lead = x.ndim - len(lengths_in)
        if lead < 0 or x.shape[lead:] != lengths_in:
            raise ShapeError(f"fft: {self.kind} of lengths {self.lengths} takes last axes {lengths_in}, got {x}")
        dtype = dtypes.complex_of(x.dtype) if self.kind == "RFFT" else x.dtype
        return (Aval((*x.shape[:lead], *lengths_out), dtypes.real_part(dtype) if self.kind == "IRFFT" else dtype),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        (out,) = self.abstract_eval(Aval(x.shape, x.dtype))
        if not x.size:
            return (np.zeros(out.shape, out.dtype),)
        axes = tuple(range(-len(self.lengths), 0))
        return (np.asarray(_NUMPY[self.kind](x, self.lengths, axes)).astype(out.dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if not ins[0].size:
            return (zeros_constant(hlo, outs[0]),)
        attrs = {"fft_type": f"#stablehlo<fft_type {self.kind}>", "fft_length": i64_array(self.lengths)}
        return hlo.op("stablehlo.fft", args, outs, attrs)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (x,), (dim,) = args, dims
        if dim is None or dim < x.aval.ndim - len(self.lengths):
            return ctx(self, x), (dim,)
        return ctx(self, move_axis(ctx, x, dim, 0)), (0,)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        if self.kind in ("FFT", "IFFT"):
            return emit.one(self, ct)
        count = prod(self.lengths)
        if self.kind == "RFFT":
            halved = emit.one(MUL, emit.one(CONJ, ct), self._weights(emit, ct.aval, 1, 0.5))
            back = emit.one(Fft("IRFFT", self.lengths), halved)
            return emit.one(MUL, back, Lit.of(count, back.aval))
        transformed = emit.one(CONJ, emit.one(Fft("RFFT", self.lengths), ct))
        if type(count) is Size:
            weighted = emit.one(MUL, transformed, self._weights(emit, transformed.aval, 1, 2))
            return emit.one(DIV, weighted, Lit.of(count, weighted.aval))
        return emit.one(MUL, transformed, self._weights(emit, transformed.aval, 1 / count, 2 / count))

    def _weights(self, emit: Emit, half: Aval, once: float, twice: float) -> Atom:
        """Return `once` for the elements on the last axis that represent only themselves, and `twice` for the others.

        The half transform of 6 real numbers has the elements 0 to 3. Elements 1 and 2 also represent 5 and 4, their
        conjugates; 0 and 3 represent themselves. Of 5 numbers it has 0 to 2, and only 0 represents itself."""
        n, m = self.lengths[-1], half.shape[-1]
        k = emit.one(Iota((m,), dtypes.int32, 0))
        if type(n) is Size:
            middle = emit.one(EQ, emit.one(MUL, k, Lit.of(2, k.aval)), Lit.of(n, k.aval))
        else:
            middle = emit.one(EQ, k, Lit.of(0 if n % 2 else n // 2, k.aval))
        represents_itself = emit.one(OR, emit.one(EQ, k, Lit.of(0, k.aval)), middle)
        real = Aval((m,), dtypes.real_part(half.dtype))
        weights = emit_where(emit, represents_itself, Lit.of(once, real), Lit.of(twice, real))
        row = emit.one(COMPLEX, weights, Lit.of(0, real))
        return emit_broadcast(emit, row, half.shape, (half.ndim - 1,))


FFT: Final = (Fft,)
