"""Collectives over masked sizes: mask inside and outside of vmap over a named axis, and of shard_map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.builder import Builder
from fxad.core.sizes.size import named_size, substitute_sizes
from fxad.core.sizes.text import read_size
from fxad.dtypes import float32
from fxad.ir import Aval
from fxad.primitives.collectives import Psum
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.elementwise import MUL, SIN
from fxad.primitives.meshes import DimensionAxes
from fxad.primitives.shape import BroadcastInDim, ReduceSum
from tests.mask.law import BAD, check, check_gradients, operand
from tests.mask.test_mask import traced

Function = Callable[..., Any]


EXCHANGES: dict[str, tuple[Function, str]] = {
    "psum": (lambda x: x - lax.psum(x, "i"), "(n, 3)"),
    "pmax": (lambda x: lax.pmax(x * x, "i") * x.sum(), "(n, 3)"),
    "pmin": (lambda x: lax.pmin(x, "i"), "(n, 3)"),
    "pmean": (lambda x: lax.pmean(x, "i"), "(n, 3)"),
    "ppermute": (lambda x: lax.ppermute(x, "i", [(0, 1)]), "(n, 3)"),
    "axis_index": (lambda x: x * lax.axis_index("i"), "(n, 3)"),
    "all_gather": (lambda x: lax.all_gather(x, "i"), "(n, 3)"),
    "all_gather of parts": (lambda x: lax.all_gather(x, "i", tiled=True), "(n, 3)"),
    "all_gather of columns": (lambda x: lax.all_gather(x, "i", axis=1, tiled=True), "(3, n)"),
    "psum_scatter": (lambda x: lax.psum_scatter(x, "i", tiled=True), "(2*n, 3)"),
    "all_to_all": (lambda x: lax.all_to_all(x, "i", 0, 1, tiled=True), "(2*n, m)"),
    "all_to_all in place": (lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True), "(2*n, m)"),
}
SIZES = ({"n": 3, "m": 2}, {"n": 1, "m": 2}, {"n": 0, "m": 1}, {"n": 2, "m": 0})
PADDING = {"n": 3, "m": 2}


@pytest.mark.parametrize("name", EXCHANGES)
def test_mask_of_a_map_is_the_map_of_mask(name: str) -> None:
    f, shape = EXCHANGES[name]
    program = traced(lambda x, y: fx.vmap(f, axis_name="i")(fnp.stack([x, y])), (shape, shape))
    for k, at in enumerate(SIZES):
        own = {n: v for n, v in at.items() if n in shape}
        check(program.jaxpr, PADDING, own, operand, BAD[k])
        check_gradients(program.jaxpr, PADDING, own, operand, BAD[k])
        fixed = tuple([_at(part, own) for part in shape.strip("()").split(", ")])
        padded = tuple([_at(part, PADDING) for part in shape.strip("()").split(", ")])
        x = operand(k, (2, *fixed), np.dtype("float32"))
        stacked = np.full((2, *padded), BAD[k], "float32")
        stacked[tuple([slice(n) for n in x.shape])] = x
        want = fx.vmap(f, axis_name="i")(x)
        have = fx.vmap(lambda x, own=own: fx.mask(f, (shape,))(x, sizes=own), axis_name="i")(stacked)
        valid = np.asarray(have)[tuple([slice(n) for n in want.shape])]
        np.testing.assert_allclose(valid, np.asarray(want), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "int8", "float32"])
def test_sum_of_equal_values_over_a_symbolic_axis(dtype: str) -> None:
    """Regression: of integers this was a SizeError, as it is not decided whether the size is less than 128."""

    def f(x: Any, c: Any) -> Any:
        return fx.vmap(lambda v: v + lax.psum(c, "i").astype("float32"), axis_name="i")(x)

    out = fx.mask(f, ("n>=1", ""), "n")(np.ones(5, "float32"), np.asarray(2, dtype), sizes={"n": 3})
    np.testing.assert_array_equal(out[:3], [7.0, 7.0, 7.0])


def _at(text: str, values: dict[str, int]) -> int:
    return substitute_sizes(read_size(text), values)


ROWS: DimensionAxes = (("i",), ())
COLUMNS: DimensionAxes = ((), ("i",))
SHARDED: dict[str, tuple[DimensionAxes, DimensionAxes]] = {
    "whole": ((), ()),
    "rows": (ROWS, ROWS),
    "columns": (COLUMNS, COLUMNS),
    "rows, together": (ROWS, ()),
}


@pytest.mark.parametrize("name", SHARDED)
def test_shard_map(name: str) -> None:
    """Two devices, each with half of the rows or columns."""
    ins, outs = SHARDED[name]
    n, m = named_size("n"), named_size("m")
    part = (n if ins == ROWS else 2 * n, m if ins == COLUMNS else 2 * m)
    b = Builder()
    x = b.input(Aval(part, float32))
    y = b.one(Psum(("i",), (2,)), b.one(SIN, x)) if outs == () else b.one(SIN, x)
    total = b.one(Psum(("i",), (2,)), b.one(ReduceSum((0, 1)), x))
    body = b.build([b.one(MUL, y, b.one(BroadcastInDim(part, ()), total))], "body")
    b = Builder()
    whole = b.input(Aval((2 * n, 2 * m), float32))
    program = b.build(b(ShardMap(body, (("i", 2),), 0, (ins,), (outs,)), whole), "divided")
    for k, at in enumerate(SIZES):
        check(program, PADDING, at, operand, BAD[k])
        check_gradients(program, PADDING, at, operand, BAD[k])
