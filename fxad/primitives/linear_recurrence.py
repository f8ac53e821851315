"""The linear recurrence y[i] = a[i] y[i - 1] + b[i], the tangent of most cumulative operations. Its rules emit the same
primitive."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import DTypeError, ShapeError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Emit,
    Hlo,
    HloValues,
    Hole,
    Jaxpr,
    JvpCtx,
    Linear,
    Lit,
    NDArray,
    Operands,
    Primitive,
    Tangents,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.cumulative_lowering import Parts, cumulative_program
from fxad.primitives.elementwise import ADD, MUL
from fxad.primitives.elementwise.family import as_accumulated
from fxad.primitives.operand_checks import check_axis, check_count
from fxad.primitives.shape import align_batch_axes
from fxad.primitives.slicing import Pad

SUMMED: Final = dtypes.NUMERIC - dtypes.FLOAT8


def predecessors(emit: Emit, x: Atom, axis: int, reverse: bool, first: Lit) -> Atom:
    """Return each element's predecessor along an axis; the predecessor of the first is `first`."""
    if not x.aval.shape[axis]:
        return x
    here = tuple([int(a == axis) for a in range(x.aval.ndim)])
    back, none = tuple([-h for h in here]), (0,) * x.aval.ndim
    return emit.one(Pad(back, here, none) if reverse else Pad(here, back, none), x, first)


def zero_scalar(x: Aval) -> Lit:
    """Return a 0-d zero of a type's dtype."""
    return Lit(bytes(x.dtype.itemsize), x.with_shape(()))


def compose_affine(emit: Emit, left: Parts, right: Parts) -> Parts:
    """Return the map y -> right(left(y)) for maps y -> a y + b."""
    (a, b), (c, d) = left, right
    return emit.one(MUL, a, c), emit.one(ADD, emit.one(MUL, c, b), d)


def check_same_type(prim: Primitive, axis: int, takes: frozenset[DType], *avals: Aval) -> None:
    """Check that operands have one type that `prim` takes, and the axis. Raises: AxisError, DTypeError, ShapeError."""
    x = avals[0]
    check_axis(prim.name, axis, x.ndim)
    for k, a in enumerate(avals):
        if a.dtype not in takes:
            raise DTypeError(f"{prim.name}: is not defined for {a}")
        if a is not x:
            error = ShapeError if a.shape != x.shape else DTypeError
            raise error(f"{prim.name}: operands differ: operand 0 {x}, operand {k} {a}")


@final
@primitive
class LinearRecurrence(Linear):
    """y[i] = a[i] y[i - 1] + b[i] along `axis`, with y = 0 before the first; from the end with `reverse`.

    Type: a, b of one type, float or complex, not float8; those below 32 bits are computed in float32.
    Rule: linear in b; the transpose is the recurrence from the other end with the next factor. d/da is the recurrence
          of da[i] y[i - 1].
    Cost: one pass.
    Source: Blelloch, Prefix Sums and Their Applications (1990), 1.4.
    """

    name: ClassVar[str] = "linear_recurrence"
    takes: ClassVar[frozenset[DType]] = SUMMED & dtypes.INEXACT
    axis: int
    reverse: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_same_type(self, self.axis, self.takes, *check_count(self, avals, 2))
        return avals[:1]

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        a, b = [np.moveaxis(as_accumulated(x), self.axis, 0) for x in args]
        y, last = np.empty_like(b), np.zeros(b.shape[1:], b.dtype)
        for i in reversed(range(len(b))) if self.reverse else range(len(b)):
            y[i] = last = a[i] * last + b[i]
        return (np.moveaxis(y, 0, self.axis).astype(args[0].dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        x = ins[0]
        if x.size == 0 or x.shape[self.axis] == 1:
            return args[1:]
        wide = x.with_dtype(dtypes.float32) if x.dtype.itemsize < 4 else x
        wide_args = args if wide is x else [hlo.op("stablehlo.convert", (v,), (wide,))[0] for v in args]
        program = cumulative_program(self.name, (wide, wide), compose_affine, (1.0, 0.0), self.axis, self.reverse)
        done = hlo.call(Jaxpr(program.ins, program.eqns, program.outs[1:], program.name), wide_args)
        return done if wide is x else hlo.op("stablehlo.convert", done, (x,))

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        at = next(d for d in dims if d is not None)
        args = align_batch_axes(ctx, args, dims, at)
        return ctx(LinearRecurrence(self.axis + (self.axis >= at), self.reverse), *args), (at,)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (a, b), (ta, tb) = primals, tangents
        y = ctx.one(self, a, b)
        if not isinstance(ta, Zero):
            ahead = predecessors(ctx, y, self.axis, self.reverse, zero_scalar(y.aval))
            tb = ctx.add(tb, ctx.lin_one(MUL, ta, ahead))
        return (y,), ctx.lin(self, a, tb)

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        return mask == (False, True)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        (ct,), (a, b) = cts, args
        if isinstance(a, Hole) or not isinstance(b, Hole):
            raise AssertionError("transpose: a recurrence is linear in b only")
        if isinstance(ct, Zero):
            return None, Zero(b.aval)
        behind = predecessors(ctx, a, self.axis, not self.reverse, zero_scalar(a.aval))
        return None, ctx.one(LinearRecurrence(self.axis, not self.reverse), behind, ct)
