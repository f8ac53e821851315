"""Fourier transforms: the laws, sizes and batches, messages."""

from __future__ import annotations

import numpy as np
import pytest

import fxad as fx
from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.ir import Aval, NDArray
from fxad.primitives.fft import Fft
from tests.primitives.harness import check, floats

Z = floats(2, 3, 4) + 1j * floats(2, 3, 4)[::-1]


@pytest.mark.parametrize(
    ("prim", "x"),
    [
        (Fft("FFT", (4,)), Z),
        (Fft("IFFT", (2, 3, 4)), Z),
        (Fft("FFT", (3, 4)), Z),
        (Fft("FFT", (1,)), Z[..., :1]),
        (Fft("FFT", (3, 4)), Z[:0]),
        (Fft("RFFT", (4,)), Z.real),
        (Fft("RFFT", (2, 3)), Z.real[:, :2, :3]),
        (Fft("RFFT", (1,)), Z.real[..., :1]),
        (Fft("RFFT", (2, 3, 4)), Z.real),
        (Fft("IRFFT", (6,)), Z),
        (Fft("IRFFT", (7,)), Z),
        (Fft("IRFFT", (3, 6)), Z),
        (Fft("IRFFT", (2, 3, 7)), Z),
        (Fft("IRFFT", (1,)), Z[..., :1]),
        (Fft("IRFFT", (7,)), Z[:0]),
    ],
    ids=str,
)
def test_laws(prim: Fft, x: NDArray) -> None:
    check(prim, x, batching=False)


C, C4 = Aval((2, 4), "c64"), Aval((4,), "c64")


@pytest.mark.parametrize(
    ("prim", "avals", "error", "message"),
    [
        (Fft("FFT", (4,)), (), ArgumentError, "fft: takes 1 operand, got 0"),
        (Fft("DCT", (4,)), (C,), ParameterError, "fft: 'DCT' is not one of FFT IFFT RFFT IRFFT"),
        (Fft("FFT", ()), (C,), ParameterError, "fft: takes one to three axes, got 0"),
        (Fft("FFT", (1, 1, 2, 4)), (C,), ParameterError, "fft: takes one to three axes, got 4"),
        (Fft("FFT", (0,)), (C,), ShapeError, "fft: lengths (0,) are not all positive"),
        (Fft("FFT", (4,)), (Aval((4,), "f32"),), DTypeError, "fft: FFT takes complex128 or complex64, got f32[4]"),
        (Fft("RFFT", (4,)), (Aval((4,), "f16"),), DTypeError, "fft: RFFT takes float32 or float64, got f16[4]"),
        (Fft("FFT", (3,)), (C,), ShapeError, "fft: FFT of lengths (3,) takes last axes (3,), got c64[2,4]"),
        (Fft("IRFFT", (5,)), (C,), ShapeError, "fft: IRFFT of lengths (5,) takes last axes (3,), got c64[2,4]"),
        (
            Fft("FFT", (2, 2, 4)),
            (C,),
            ShapeError,
            "fft: FFT of lengths (2, 2, 4) takes last axes (2, 2, 4), got c64[2,4]",
        ),
    ],
)
def test_messages(prim: Fft, avals: tuple[Aval, ...], error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message


def test_a_transform_over_no_axes() -> None:
    x = np.array([1 + 2j, 3])
    for kind in ("fft", "IFFT"):
        assert np.array_equal(fx.jit(lambda x, k=kind: fx.lax.fft(x, k, ()))(x), x)
        assert np.array_equal(fx.lax.fft(x, kind, ()), x)
        assert np.array_equal(fx.vmap(lambda x, k=kind: fx.lax.fft(x, k, ()))(x), x)
    for kind in ("rfft", "irfft"):
        with pytest.raises(ParameterError, match="fft: takes one to three axes, got 0"):
            fx.lax.fft(x, kind, ())
