"""Signals, as in `scipy.signal`: convolutions, trends and spectra."""

from __future__ import annotations

from fxad.scipy.convolutions import convolve, convolve2d, correlate, correlate2d, fftconvolve
from fxad.scipy.spectra import csd, istft, stft, welch
from fxad.scipy.trends import detrend

__all__ = [
    "convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve", "istft", "stft", "welch",
]  # fmt: skip
