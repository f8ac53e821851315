"""Primitives with wrong lowerings: the meaning is that of the interpreter, and XLA computes something else."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import extend as ex
from fxad.ir import Lit

_FLOATS: frozenset[fx.dtypes.DType] = frozenset({fx.dtypes.float32, fx.dtypes.float64})


@final
@ex.primitive
class Clipped(ex.Unary):
    """The identity. XLA computes min(x, 1)."""

    name: ClassVar[str] = "clipped"
    takes: ClassVar[frozenset[fx.dtypes.DType]] = _FLOATS

    def compute(self, x: ex.NDArray) -> object:
        return np.copy(x)

    def lower(self, hlo: ex.Hlo, args: ex.HloValues, ins: ex.Avals, outs: ex.Avals) -> ex.HloValues:
        return hlo.op(
            "stablehlo.minimum", (args[0], hlo.constant(Lit(np.ones((), ins[0].dtype).tobytes(), ins[0]))), outs
        )

    def tangent(self, ctx: ex.JvpCtx, x: ex.Atom, y: ex.Atom, t: ex.Tangent) -> ex.Tangent:
        return t


def clipped(x: fx.Array) -> fx.Array:
    return ex.bind(Clipped(), fnp.asarray(x))[0]
