"""Windows of spectra, by the names of `scipy.signal.get_window`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, cast

import numpy as np

from fxad import numpy as fnp
from fxad.errors import ParameterError, ShapeError, shown
from fxad.ir import NDArray
from fxad.numpy.apply import as_array
from fxad.tracing.array import Array, ArrayLike

Window: TypeAlias = "str | tuple[str, *tuple[float, ...]] | ArrayLike"

# Sums of cosines: the coefficients of cos(k t), with alternating signs.
_COSINES: Final = MappingProxyType({
    "boxcar": (1.0,), "hann": (0.5, 0.5), "hamming": (0.54, 0.46), "blackman": (0.42, 0.5, 0.08),
    "blackmanharris": (0.35875, 0.48829, 0.14128, 0.01168), "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "flattop": (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
})  # fmt: skip


def _parzen(n: int, k: NDArray) -> NDArray:
    r = 2 * np.abs(k) / n
    return np.where(np.abs(k) <= (n - 1) / 4, 1 - 6 * r**2 * (1 - r), 2 * (1 - r) ** 3)


def _bohman(n: int, k: NDArray) -> NDArray:
    r = 2 * np.abs(k) / (n - 1)
    return np.where(r < 1, (1 - r) * np.cos(np.pi * r) + np.sin(np.pi * r) / np.pi, 0)


def _tukey(n: int, k: NDArray, alpha: float = 0.5) -> NDArray:
    if alpha <= 0:
        return np.ones(k.shape)
    alpha = min(alpha, 1)
    r = 2 * np.abs(k) / (n - 1)
    return np.where(r <= 1 - alpha, 1, 0.5 + 0.5 * np.cos(np.pi * (r - 1 + alpha) / alpha))


def _exponential(_: int, k: NDArray, center: None = None, tau: float = 1.0) -> NDArray:
    if center is not None:  # SciPy takes none for windows of spectra
        raise TypeError
    return np.exp(-np.abs(k) / tau)


# The others, as functions of the number of values, of the distances from the middle, and of parameters.
_SHAPES: Final[Mapping[str, Callable[..., NDArray]]] = MappingProxyType({
    "triang": lambda n, k: 1 - 2 * np.abs(k) / (n + n % 2),
    "bartlett": lambda n, k: 1 - 2 * np.abs(k) / (n - 1),
    "parzen": _parzen, "bohman": _bohman, "tukey": _tukey,
    "barthann": lambda n, k: 0.62 - 0.48 * np.abs(k) / (n - 1) + 0.38 * np.cos(2 * np.pi * k / (n - 1)),
    "cosine": lambda n, k: np.cos(np.pi * k / n),
    "lanczos": lambda n, k: np.sinc(2 * k / (n - 1)),
    "exponential": _exponential,
    "kaiser": lambda n, _, beta: np.kaiser(n, beta)[:-1],
    "gaussian": lambda _, k, std: np.exp(-((k / std) ** 2) / 2),
    "general_hamming": lambda n, k, alpha: alpha + (1 - alpha) * np.cos(2 * np.pi * k / (n - 1)),
})  # fmt: skip


def is_named(window: Window) -> bool:
    """Return True for the name of a window, with or without parameters."""
    return isinstance(window, str) or (isinstance(window, tuple) and bool(window) and isinstance(window[0], str))


def window_values(name: str, window: Window, size: int) -> Array:
    """Return a window of `size` values, given by its name or by its values. Raises: ParameterError, ShapeError."""
    if not is_named(window):
        values = as_array(name, cast("ArrayLike", window))
        if values.shape != (size,):
            raise ShapeError(
                f"{name}: window is {values.aval} for segments of {size}", remedy="give them the same length"
            )
        return values
    named = cast("tuple[object, ...]", (window,) if isinstance(window, str) else window)
    kind, parameters = str(named[0]), named[1:]
    cosines, form = _COSINES.get(kind), _SHAPES.get(kind)
    try:
        if cosines is not None and not parameters:
            turns = 2 * np.pi * np.arange(size) / size
            values64 = sum([(-1) ** k * a * np.cos(k * turns) for k, a in enumerate(cosines)])
        elif form is not None:
            # periodic: the symmetric window of one value more, without the last
            values64 = form(size + 1, np.arange(size) - size / 2, *parameters)
        else:
            raise TypeError
    except TypeError:  # another number of parameters, or no numbers
        raise ParameterError(
            f"{name}: window {shown(window, 40)}",
            remedy=f"give its values, or one of {', '.join([*_COSINES, *_SHAPES])}; with a parameter: ('kaiser', 8.0)",
        ) from None
    return fnp.asarray(np.ones(1) if size == 1 else values64)
