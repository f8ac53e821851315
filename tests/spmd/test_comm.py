"""`comm` counts the bytes of collectives from the program alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import lax
from fxad.errors import ArgumentError
from fxad.sharding import PartitionSpec as P

X: Any = np.zeros((8, 4), np.float32)


def test_loops_multiply_and_gradients_count() -> None:
    def f(x: fx.Array) -> Any:
        x = lax.scan(lambda c, _: (c + lax.psum(c, "i"), None), x, None, length=5)[0]
        return lax.all_gather(x, "i", tiled=True)

    mapped = fx.trace(fx.shard_map(f, {"i": 4}, P("i"), P()), X)
    assert str(fx.comm(mapped)).splitlines() == [
        "collective  axes  runs  bytes per device",
        "all_gather  i=4      1                32",
        "psum        i=4      5               160",
        "in all                               192",
    ]

    def total(x: Any) -> Any:
        return fx.shard_map(f, {"i": 4}, P("i"), P())(x).sum()

    back = fx.comm(fx.trace(fx.grad(total), X))
    # the function is linear, so its forward pass is not needed
    assert {r.collective: (r.runs, r.bytes) for r in back} == {"psum": (5, 160), "psum_scatter": (1, 128)}


def test_a_map_inside_of_a_map_gathers_its_results() -> None:
    """The lowered text has the same collectives."""

    def row(x: Any) -> Any:
        return fx.pmap(lambda v: v * lax.psum(v, "b"), "b")(x) * lax.pmax(x, "a")

    program = fx.trace(fx.pmap(row, "a"), fx.Spec((2, 4, 3)))
    found = {r.collective: (r.runs, r.bytes) for r in fx.comm(program)}
    assert found == {"psum": (1, 12), "pmax": (1, 48), "all_gather": (1, 12)}
    text = fx.lower(program).text()
    assert [text.count(f"stablehlo.{op}") for op in ("all_reduce", "all_gather")] == [2, 1]


def test_unknown_numbers_of_runs_are_reported() -> None:
    def f(x: fx.Array) -> Any:
        x = lax.while_loop(lambda c: lax.pmax(c[0, 0], "i") > 1, lambda c: c - lax.psum(c, "i"), x)
        return lax.cond(lax.psum(x[0, 0], "i") > 0, lambda u: lax.pmin(u, "i"), lambda u: u, x)

    found = fx.comm(fx.trace(f, X, axis_env={"i": 2}))
    assert {r.collective: (r.runs, r.bytes, r.known) for r in found} == {
        "pmax": (1, 4, False), "psum": (2, 132, False), "pmin": (1, 128, False),
    }  # fmt: skip
    assert not found.known
    assert str(found).endswith("runs not known")


def test_branches_whose_runs_are_symbolic() -> None:
    """The largest branch counts; of n and 3 runs that is max(n, 3)."""

    def f(x: fx.Array) -> Any:
        def total(x: fx.Array) -> Any:
            return lax.scan(lambda c, row: (c + lax.psum(row, "i"), None), 0 * x[0], x)[0]

        def power(x: fx.Array) -> Any:
            return lax.fori_loop(0, 3, lambda _, c: lax.psum(c, "i"), x[0])

        return lax.cond(x[0, 0] > 0, total, power, x)

    program = fx.trace(f, fx.Spec("(n>=1), 2"), axis_env={"i": 2})
    (row,) = fx.comm(program)
    assert (str(row.runs), str(row.bytes)) == ("max(n, 3)", "8*max(n - 3, 0) + 24")
    (row,) = fx.comm(fx.specialize(program, n=5))
    assert (row.runs, row.bytes) == (5, 40)


def test_a_program_without_collectives() -> None:
    def f(x: fx.Array) -> fx.Array:
        return x + 1

    found = fx.comm(fx.trace(f, X))
    assert (found.bytes, found.known, found.rows) == (0, True, ())


def test_refused() -> None:
    wrong: Any = fx
    with pytest.raises(ArgumentError) as e:
        wrong.comm(3)
    assert e.value.message == "comm: takes a Program, got 3"
    assert e.value.remedy == "trace the function first: comm(trace(f, *examples))"


def test_a_bounded_loop_counts_all_the_runs_that_it_may_make() -> None:
    def f(x: fx.Array) -> Any:
        return lax.while_loop(lambda c: lax.pmax(c[0, 0], "i") > 1, lambda c: c - lax.psum(c, "i"), x, max_steps=7)

    found = fx.comm(fx.trace(f, X, axis_env={"i": 2}))
    assert {r.collective: (r.runs, r.bytes, r.known) for r in found} == {
        "pmax": (7, 28, False), "psum": (7, 7 * 128, False),
    }  # fmt: skip


def test_the_bytes_of_a_program_of_symbolic_shape_are_sizes() -> None:
    total = fx.shard_map(lambda v: lax.psum(v, "i"), {"i": 2}, in_specs=P(), out_specs=P())
    assert str(fx.comm(fx.trace(total, fx.Spec("n, 4", "float32")))).splitlines() == [
        "collective  axes  runs  bytes per device",
        "psum        i=2      1              16*n",
        "in all                              16*n",
    ]
