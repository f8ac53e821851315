"""An optimization barrier: XLA does not move operations across it."""

from __future__ import annotations

from typing import ClassVar, Final, final

from fxad.ir import (
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Hlo,
    HloValues,
    Hole,
    JvpCtx,
    Lin,
    Linear,
    NDArray,
    Operands,
    Tangents,
    TransposeCtx,
    Zero,
    primitive,
)


@final
@primitive
class OptimizationBarrier(Linear):
    """Return the operands. The compiler computes all of them before any of the results is used, and does not merge
    operations across the barrier.

    Type: any number of operands of any types; results of those types.
    Rule: linear in all operands together; tangents and cotangents pass through a barrier too.
    Source: stablehlo.optimization_barrier. XLA's CPU compiler removes it in a late pass.
    """

    name: ClassVar[str] = "optimization_barrier"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return args

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op("stablehlo.optimization_barrier", args, outs) if outs else ()

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        return ctx(self, *args), dims

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        lins = iter(ctx.lin(self, *[t for t in tangents if isinstance(t, Lin)]))
        return ctx(self, *primals), tuple([next(lins) if isinstance(t, Lin) else t for t in tangents])

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return all(flags)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        remaining = iter(ctx(self, *[ct for ct in cts if not isinstance(ct, Zero)]))
        bars = [ct if isinstance(ct, Zero) else next(remaining) for ct in cts]
        return tuple([bar if isinstance(a, Hole) else None for bar, a in zip(bars, args, strict=True)])


OPTIMIZATION_BARRIER: Final = OptimizationBarrier()

BARRIER: Final = (OptimizationBarrier,)
