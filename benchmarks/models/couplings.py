"""Invertible layers other than products of matrices, for the memory of `invertible` in unrolled networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final

# (numpy of a library, a, b, w) -> (a, b)
Layer = Callable[[ModuleType, Any, Any, Any], tuple[Any, Any]]


def sums(np: ModuleType, a: Any, b: Any, _w: Any) -> tuple[Any, Any]:
    """a += tanh(b); b += sin(a)"""
    a = a + np.tanh(b)
    return a, b + np.sin(a)


def factors(np: ModuleType, a: Any, b: Any, _w: Any) -> tuple[Any, Any]:
    """a *= 1 + sin(b) / 10; b *= 1 + cos(a) / 10"""
    a = a * (1.0 + 0.1 * np.sin(b))
    return a, b * (1.0 + 0.1 * np.cos(a))


def squashed(np: ModuleType, a: Any, b: Any, w: Any) -> tuple[Any, Any]:
    """a = 2 tanh(a) + w"""
    return np.tanh(a) * 2 + w, b


def stretched(np: ModuleType, a: Any, b: Any, w: Any) -> tuple[Any, Any]:
    """a = sinh(a) / 2 + w"""
    return np.sinh(a) / 2 + w, b


def real_nvp(np: ModuleType, a: Any, b: Any, w: Any) -> tuple[Any, Any]:
    """a = a exp(tanh(b @ w) / 10) + b @ w, and b likewise"""
    a = a * np.exp(0.1 * np.tanh(b @ w)) + b @ w
    return a, b * np.exp(0.1 * np.tanh(a @ w)) + a @ w


def matrices(np: ModuleType, a: Any, b: Any, w: Any) -> tuple[Any, Any]:
    """a += tanh(b @ w); b += tanh(a @ w)"""
    a = a + np.tanh(b @ w)
    return a, b + np.tanh(a @ w)


def columns(np: ModuleType, a: Any, b: Any, _w: Any) -> tuple[Any, Any]:
    """a[:, ::2] += tanh(a[:, 1::2]); a[:, 1::2] += sin(a[:, ::2])"""
    a = a.at[:, ::2].add(np.tanh(a[:, 1::2]))
    return a.at[:, 1::2].add(np.sin(a[:, ::2])), b


LAYERS: Final[Mapping[str, Layer]] = MappingProxyType(
    {str(f.__doc__): f for f in (sums, factors, squashed, stretched, real_nvp, matrices, columns)}
)
# If their values are stored, XLA compiles 64 of these for minutes: it fuses each layer with all before it.
SLOW: Final = (stretched, columns)
