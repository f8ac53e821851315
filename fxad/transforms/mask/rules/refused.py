"""Primitives that are masked along some axes only, or not at all, and the reasons.

A reason completes the sentence "fft is not masked: ...".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.ir import Atom
from fxad.primitives.collectives import COLLECTIVES
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.fft import Fft
from fxad.primitives.host_call import HostCall
from fxad.transforms.mask.contract import Atoms, Avals, MaskCtx, MaskRule, not_masked, refused, row


def _fft(ctx: MaskCtx, prim: Fft, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    k = len(prim.lengths)
    for aval in (*ins, *outs):
        if ctx.ragged(aval.shape[aval.ndim - k :]):
            raise not_masked(
                prim, f"a transform along an axis of {ins[0]} depends on the whole of it, padding included"
            )
    return ctx(prim, *[ctx.neutral(x, aval.shape) for x, aval in zip(args, ins, strict=True)])


REFUSED: Final[tuple[MaskRule, ...]] = (
    row(Fft, _fft, "lane by lane along other axes; none for axes that are transformed"),
    *[refused(kind, "each device may have a size of its own") for kind in (*COLLECTIVES, ShardMap)],
    refused(HostCall, "what the host computes is not known"),
)
