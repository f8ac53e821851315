"""Fourier transforms as a function."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum, unique

from fxad import dtypes
from fxad.errors import ParameterError, shown
from fxad.operations.methods import static_ints
from fxad.primitives.fft import KINDS, Fft
from fxad.tracing.array import Array, ArrayLike, asarray, aval_of, binder


@unique
class FftType(StrEnum):
    """The kinds of transforms."""

    FFT = "FFT"
    IFFT = "IFFT"
    RFFT = "RFFT"
    IRFFT = "IRFFT"


def fft(x: ArrayLike, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Array:
    """Return the discrete Fourier transform over the last one to three axes, which have the sizes `fft_lengths`; over
    no axes, a complex x itself.

    Type: for RFFT and IRFFT the sizes are those of the real side; on the complex side the last is n // 2 + 1.
    """
    kind = str(fft_type).upper() if isinstance(fft_type, str) else shown(fft_type)
    if kind not in KINDS:
        raise ParameterError(f"fft: {kind!r} is not one of {' '.join(KINDS)}")
    lengths = static_ints("fft", "fft_lengths", (fft_lengths,))
    if not lengths and kind in ("FFT", "IFFT") and aval_of(x, "fft: argument 0").dtype in dtypes.COMPLEX:
        return asarray(x)
    return binder().bind(Fft(kind, lengths), (x,))[0]
