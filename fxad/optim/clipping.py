"""Clipping of gradients, and the norm of a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import fxad.numpy as fnp
from fxad import tree
from fxad.optim.transformations import Setting, check_not_negative
from fxad.tracing.array import Array, ArrayLike

P = TypeVar("P")


def global_norm(values: object) -> Array:
    """The Euclidean norm of all elements of a tree of arrays, a scalar; 0.0 for a tree without leaves.

    Type: float32, or wider where a leaf is. float16 and bfloat16 are summed in float32.
    """
    total: ArrayLike = fnp.zeros((), fnp.float32)
    for k, leaf in enumerate(tree.leaves(values)):
        square = _sum_of_squares(fnp.asarray(leaf))
        total = square if k == 0 else total + square
    return fnp.sqrt(total)


def _sum_of_squares(x: Array) -> Array:
    square = fnp.real(x) ** 2 + fnp.imag(x) ** 2 if fnp.iscomplexobj(x) else x
    wide = square.astype(fnp.promote_types(square.dtype, fnp.float32))
    return fnp.sum(wide if fnp.iscomplexobj(x) else wide**2)


@dataclass(frozen=True)
class ClipByGlobalNorm:
    """Scales a tree down to a norm of `max_norm` at most."""

    max_norm: Setting

    def init(self, params: object) -> tuple[()]:
        """No state."""
        return ()

    def update(self, updates: P, state: tuple[()] = (), params: P | None = None) -> tuple[P, tuple[()]]:
        """The clipped tree."""
        norm = global_norm(updates)
        inside = norm < self.max_norm

        def clipped(u: ArrayLike) -> Array:
            x = fnp.asarray(u)
            return fnp.where(inside, x, ((x / norm.astype(x.dtype)) * self.max_norm).astype(x.dtype))

        return tree.map(clipped, updates), ()


def clip_by_global_norm(max_norm: Setting) -> ClipByGlobalNorm:
    """Gradients as they are where their global norm is below `max_norm`, scaled to that norm elsewhere.

    Source: Pascanu et al., On the difficulty of training recurrent neural networks (2013), algorithm 1.
    """
    check_not_negative("clip_by_global_norm", max_norm=max_norm)
    return ClipByGlobalNorm(max_norm)


@dataclass(frozen=True)
class Clip:
    """Clips each element to [-max_delta, max_delta]."""

    max_delta: Setting

    def init(self, params: object) -> tuple[()]:
        """No state."""
        return ()

    def update(self, updates: P, state: tuple[()] = (), params: P | None = None) -> tuple[P, tuple[()]]:
        """The clipped tree."""
        return tree.map(lambda u: fnp.clip(fnp.asarray(u), -self.max_delta, self.max_delta), updates), ()


def clip(max_delta: Setting) -> Clip:
    """Each element of the gradients, clipped to [-max_delta, max_delta]."""
    check_not_negative("clip", max_delta=max_delta)
    return Clip(max_delta)
