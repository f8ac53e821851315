"""Errors of mask and vmap for missing and wrong rules of a primitive from outside fxad."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np
import pytest

import fxad as fx
from fxad import dtypes, lax
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.dtypes import DType
from fxad.errors import AxisNameError, SizeError
from fxad.ir import Atom, Aval, BatchCtx, Hlo, HloValues, Jaxpr, JvpCtx, Lit, NDArray, Primitive, Tangent, primitive
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import SIN
from fxad.primitives.elementwise.family import Unary
from fxad.primitives.shape import Squeeze
from fxad.primitives.slicing import Slice
from fxad.transforms.mask.contract import MaskTable, row
from fxad.transforms.mask.mask import mask
from fxad.transforms.mask.rules import MASK_RULES
from fxad.transforms.mask.rules.lanes import lanewise
from fxad.transforms.vmap import vmap_named


@final
@primitive
class Twice(Unary):
    """A primitive without a mask rule."""

    name: ClassVar[str] = "twice"
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING

    def compute(self, x: NDArray) -> object:
        return np.add(x, x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Any, outs: Any) -> HloValues:
        return hlo.op("stablehlo.add", (*args, *args), outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(self, t)


def _with(kind: type[Primitive], write: Any) -> MaskTable:
    return MaskTable(MappingProxyType({**MASK_RULES.rows, kind: row(kind, write, "of one's own")}))


def _of(prim: Primitive) -> Jaxpr:
    b = Builder()
    x = b.input(fx.Spec("(n, 3)").aval)
    return b.build(b(prim, x), "f")


PADDING = (("n", 4),)


def test_a_primitive_without_a_rule() -> None:
    with pytest.raises(SizeError) as caught:
        mask(_of(Twice()), PADDING)
    assert caught.value.message == "mask: twice is not masked: it has no rule"
    assert caught.value.remedy == "mask the functions around it, or specialize the program to each size"
    assert mask(_of(Twice()), PADDING, _with(Twice, lanewise)).eqns


def test_a_rule_with_a_result_of_another_type() -> None:
    def wrong(*_: Any) -> Any:
        return (Lit.of(0, Aval((3,), "float32")),)

    with pytest.raises(SizeError) as caught:
        mask(_of(SIN), PADDING, _with(type(SIN), wrong))
    assert caught.value.message == "mask: the rule of sin gives f32[3] for f32[n,3], not f32[4,3]"
    assert caught.value.remedy == "correct the rule: its results have the padded types"


def test_a_batching_rule_that_keeps_a_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    program = fx.trace(lambda x: lax.psum(x, "i"), fx.Spec((4,)), axis_env={"i": 2}).jaxpr
    b = Builder()
    looped = b.build(b(Call(program), b.input(Aval((4,), "float32"))), "looped")
    monkeypatch.setattr(Call, "batch", lambda self, ctx, args, dims: (ctx(self, *_first(ctx, args)), (None,)))
    with pytest.raises(AxisNameError) as caught:
        vmap_named(looped, 2, "i", (0,))
    assert caught.value.message == (
        "vmap: call applies its bodies to one example after the other, and they have collectives over axis 'i', which "
        "need all examples at once"
    )
    assert caught.value.remedy == (
        "move the collective out of the body, or make what the body depends on the same for all examples"
    )


def _first(ctx: BatchCtx, args: Any) -> list[Atom]:
    """Returns the operands of the first example."""
    return [ctx.one(Squeeze((0,)), ctx.one(Slice((0, 0), (1, 4), (1, 1)), x)) for x in args]


def test_a_table_of_the_user_applies_in_bodies() -> None:
    masked = mask(_of(Call(_of(Twice()))), PADDING, _with(Twice, lanewise))
    x = np.arange(12, dtype="float32").reshape(4, 3)
    have = run(masked, [x, np.asarray(2, np.int32)])[0]
    np.testing.assert_array_equal(have, np.concatenate([2 * x[:2], np.zeros((2, 3))]))
