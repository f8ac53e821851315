"""Clipping of gradients, and the norm of a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import fxad.numpy as fnp
from fxad.api.trees import global_norm
from fxad.core.trees import tree
from fxad.optim.transformations import HyperParameter, check_not_negative
from fxad.tracing.array import Array, ArrayLike

P = TypeVar("P")


@dataclass(frozen=True)
class ClipByGlobalNorm:
    """Scales a tree down to a norm of `max_norm` at most."""

    max_norm: HyperParameter

    def init(self, params: object) -> tuple[()]:
        """Return the state: there is none."""
        return ()

    def update(self, updates: P, state: tuple[()] = (), params: P | None = None) -> tuple[P, tuple[()]]:
        """Return the clipped tree."""
        norm = global_norm(updates)
        inside = norm < self.max_norm
        divisor = fnp.where(inside | (norm == 0), 1, norm)

        def clipped(u: ArrayLike) -> Array:
            x = fnp.asarray(u)
            return fnp.where(inside, x, ((x / divisor.astype(x.dtype)) * self.max_norm).astype(x.dtype))

        return tree.map(clipped, updates), ()


def clip_by_global_norm(max_norm: HyperParameter) -> ClipByGlobalNorm:
    """Return gradients as they are where their global norm is below `max_norm`, scaled to that norm elsewhere.

    Source: Pascanu et al., On the difficulty of training recurrent neural networks (2013), algorithm 1.
    """
    check_not_negative("clip_by_global_norm", max_norm=max_norm)
    return ClipByGlobalNorm(max_norm)


@dataclass(frozen=True)
class Clip:
    """Clips each element to [-max_delta, max_delta]."""

    max_delta: HyperParameter

    def init(self, params: object) -> tuple[()]:
        """Return the state: there is none."""
        return ()

    def update(self, updates: P, state: tuple[()] = (), params: P | None = None) -> tuple[P, tuple[()]]:
        """Return the clipped tree."""
        return tree.map(lambda u: fnp.clip(fnp.asarray(u), -self.max_delta, self.max_delta), updates), ()


def clip(max_delta: HyperParameter) -> Clip:
    """Return each element of the gradients, clipped to [-max_delta, max_delta]."""
    check_not_negative("clip", max_delta=max_delta)
    return Clip(max_delta)
