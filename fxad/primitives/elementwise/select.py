"""Choosing between values, and rounding to integral ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.errors import ArgumentError, DTypeError, ShapeError
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Cotangent,
    Hlo,
    HloValue,
    Hole,
    JvpCtx,
    Linear,
    Lit,
    NDArray,
    Tangent,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.family import batched, compared


@final
@primitive
class SelectN(Linear):
    """Element by element, the case that `which` names: False or 0 the first, True or 1 the second, and so on.

    Type: which bool (two cases) or i32 (any number of cases; out of range picks the nearest); cases of one type, with
          the shape of `which`; the result has the type of the cases.
    Rule: linear in the cases; the cotangent of a case is the cotangent where it was picked, 0 elsewhere.
    Source: stablehlo.select, nested for more than two cases.
    """

    name: ClassVar[str] = "select_n"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if len(avals) == 3:
            which, x, y = avals
            if x is y and which.dtype == dtypes.bool_ and which.shape == x.shape:
                return avals[1:2]
        if len(avals) < 2:
            raise ArgumentError(f"select_n: takes a selector and at least one case, got {len(avals)} operands")
        which, first = avals[:2]
        for k, case in enumerate(avals[1:]):
            if case.dtype != first.dtype:
                raise DTypeError(f"select_n: dtypes differ: case 0 {first}, case {k} {case}")
            if case.shape != which.shape:
                raise ShapeError(f"select_n: shapes differ: selector {which}, case {k} {case}")
        count = len(avals) - 1
        if which.dtype != dtypes.int32 and (which.dtype != dtypes.bool_ or count != 2):
            raise DTypeError(
                f"select_n: the selector of {count} case{'s' * (count != 1)} must be "
                f"{'bool or ' * (count == 2)}int32, got {which}"
            )
        return (first,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        which, *cases = args
        out = np.array(cases[-1])
        for k in range(len(cases) - 2, -1, -1):
            np.copyto(out, cases[k], where=which <= k)
        return (out,)

    def lower(self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]) -> Sequence[HloValue]:
        which, *cases = args
        if ins[0].dtype == dtypes.bool_:
            return hlo.op("stablehlo.select", (which, cases[1], cases[0]), outs)
        out = cases[-1]
        for k in range(len(cases) - 2, -1, -1):
            (early,) = compared(hlo, "LE", (which, hlo.constant(Lit.of(k, ins[0]))), ins[0])
            (out,) = hlo.op("stablehlo.select", (early, cases[k], out), outs)
        return (out,)

    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        return batched(self, ctx, args, dims)

    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        return ctx(self, *primals), ctx.lin(self, primals[0], *tangents[1:])

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        # a driver marks literal zeros along with the tangents, so a marked selector is the literal 0
        return all(mask[1:])

    def transpose(
        self, ctx: TransposeCtx, cts: tuple[Cotangent, ...], args: tuple[Atom | Hole, ...]
    ) -> tuple[Cotangent | None, ...]:
        (ct,), (which, *cases) = cts, args
        return (None, *[self._picked(ctx, ct, which, k, case, len(cases)) for k, case in enumerate(cases)])

    def _picked(
        self, ctx: TransposeCtx, ct: Cotangent, which: Atom | Hole, k: int, case: Atom | Hole, count: int
    ) -> Cotangent | None:
        if not isinstance(case, Hole):
            return None
        if isinstance(ct, Zero) or isinstance(which, Hole):
            return ct if k == 0 else Zero(case.aval)
        zero = Zero(case.aval).instantiate()
        return ctx.one(self, which, *[ct if j == k else zero for j in range(count)])


SELECT_N: Final = SelectN()
