"""Cheap values are computed again by the units that read them, if that stores fewer bytes between units."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import nn, transforms
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.ir import Atom, Aval, Jaxpr, Lit
from fxad.passes import plan_of
from fxad.primitives.check import Check
from fxad.primitives.control.call import Call
from fxad.primitives.control.while_ import While
from fxad.primitives.elementwise import ADD, GT, MUL, SIN, TANH
from fxad.primitives.reduce import ReduceMax
from fxad.support.constants import MAX_FORMULA, MAX_READERS
from fxad.testing import Case, cases, repeated_cases
from fxad.testing.unit_laws import check_recompute, run_pieces
from fxad.units.min_cut import min_vertex_cut
from fxad.units.min_cut_recompute import recompute_operands
from fxad.units.pieces import partition
from fxad.units.plan import UnitPlan

BIG = Aval((64, 64), "float32")


def gradient(case: Case) -> Case:
    """Values and cotangents of the operands of a program, for cotangents of ones."""
    mask = tuple([a.inexact for a in case.program.in_avals])
    both = transforms.vjp_fused(case.program, mask)
    ones = [np.ones(a.shape, a.dtype) for a in both.in_avals[len(case.args) :]]
    return Case(both, (*case.args, *ones), case.seed, case.smooth)


# --------------------------------------------------------------------------------------------------------------- laws


@given(cases(differentiable=True, size=10), st.integers(0, 1000))
def test_recomputation(case: Case, seed: int) -> None:
    check_recompute(gradient(case), seed)


@given(repeated_cases(size=5), st.integers(0, 1000))
def test_recomputation_of_repeated_bodies(case: Case, seed: int) -> None:
    check_recompute(Case(transforms.outline(case.program), case.args, case.seed, case.smooth), seed)


def separates(cut: frozenset[int], edges: set[tuple[int, int]], sources: set[int], sinks: set[int]) -> bool:
    reached = sources - cut
    while more := {v for u, v in edges if u in reached} - cut - reached:
        reached |= more
    return not reached & sinks


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=7),
    st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14),
    st.sets(st.integers(0, 6), max_size=3),
    st.sets(st.integers(0, 6), max_size=3),
)
def test_a_minimum_cut_weighs_least(
    weights: list[int], edges: set[tuple[int, int]], sources: set[int], sinks: set[int]
) -> None:
    n = len(weights)
    edges = {(u, v) for u, v in edges if u < v < n}
    sources, sinks = {v for v in sources if v < n}, {v for v in sinks if v < n}
    cut = min_vertex_cut(weights, edges, sources, sinks)
    assert separates(cut, edges, sources, sinks)
    every = [frozenset(c) for k in range(n + 1) for c in combinations(range(n), k)]
    least = min([sum([weights[v] for v in c]) for c in every if separates(c, edges, sources, sinks)])
    assert sum([weights[v] for v in cut]) == least


def test_a_minimum_cut_is_the_one_nearest_to_the_sinks() -> None:
    assert min_vertex_cut([3, 3, 3], [(0, 1), (1, 2)], [0], [2]) == {2}
    assert min_vertex_cut([3, 2, 3], [(0, 1), (1, 2)], [0], [2]) == {1}
    assert min_vertex_cut([1, 5], [(0, 1)], [], [1]) == set()


# ------------------------------------------------------------------------------------------------------------ networks


def mlp(p: Any, x: Any) -> Any:
    return fnp.tanh(x @ p["w"] + p["b"]) @ p["v"]


def scaled(p: Any, x: Any) -> Any:
    """A layer whose result is all that its derivative reads: `y / 10`."""
    return fnp.exp((x @ p["w"] + p["b"]) * 0.1)


def coupling(p: Any, x: Any) -> Any:
    a, b = fnp.split(x, 2, axis=1)
    w, v = p["w"][:32, :32], p["v"][:32, :32]
    a = a + fnp.tanh(b @ w) @ v
    return fnp.concatenate([a, b + fnp.tanh(a @ w) @ v], axis=1)


def normed(p: Any, x: Any) -> Any:
    mean = fnp.mean(x, axis=-1, keepdims=True)
    centred = x - mean
    h = centred / fnp.sqrt(fnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * p["b"]
    return x + nn.gelu(h @ p["w"]) @ p["v"]


def gradient_of(block: Callable[[Any, Any], Any], depth: int) -> tuple[fx.Program[Any, Any], list[Any]]:
    rng = np.random.default_rng(0)
    jitted = fx.jit(block)

    def loss(layers: Any, x: Any) -> Any:
        for p in layers:
            x = jitted(p, x)
        return fnp.mean(x * x)

    w = [rng.standard_normal((2, 64, 64)).astype("f") / 8 for _ in range(depth)]
    layers = [{"w": a[0], "v": a[1], "b": np.ones(64, "f")} for a in w]
    args = [layers, rng.standard_normal((256, 64)).astype("f")]
    return fx.grad(fx.trace(loss, *args)), args


@pytest.mark.parametrize(("block", "states", "rows"), [(mlp, 2, 0), (scaled, 1, 0), (coupling, 2, 0), (normed, 2, 1)])
def test_each_layer_stores_only_expensive_values(block: Callable[[Any, Any], Any], states: int, rows: int) -> None:
    """A layer stores its operand, and results of products and sums, from which it computes `tanh` and its derivative:
    the exact bytes of the executable. The results are those of the interpreter."""
    held = []
    for depth in (4, 5):
        program, args = gradient_of(block, depth)
        linked: fx.Executable[Any, Any] = fx.lower(program, units=lambda _: True).compile()
        for a, b in zip(fx.tree.leaves(linked(*args)), fx.tree.leaves(fx.interpret(program, *args)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)
        held.append(linked.memory().peak_bytes - linked.memory().argument_bytes)
    assert held[1] - held[0] == states * 256 * 64 * 4 + rows * 256 * 4


def one(inputs: int, f: Callable[..., tuple[Atom, ...]], name: str) -> Jaxpr:
    b = Builder()
    return b.build(f(b, *b.inputs([BIG] * inputs)), name)


def waiting(equations: int, readers: int) -> tuple[Jaxpr, tuple[Jaxpr, ...]]:
    """A value that `equations` cheap equations compute from another. `readers` later calls read both."""

    def first(b: Builder, x: Atom) -> tuple[Atom, ...]:
        t = s = b.one(SIN, x)
        for _ in range(equations):
            s = b.one(MUL, s, t)
        return t, s

    make = one(1, first, "make")
    between = one(1, lambda b, x: (b.one(TANH, x),), "between")
    read = one(3, lambda b, u, t, s: (b.one(SIN, b.one(ADD, u, b.one(MUL, t, s))),), "read")
    b = Builder()
    (x,) = b.inputs([BIG])
    t, s = b(Call(make), x)
    (u,) = b(Call(between), t)
    for _ in range(readers):
        (u,) = b(Call(read), u, t, s)
    return b.build([u]), (make, between, read)


@pytest.mark.parametrize(
    ("equations", "readers", "changed"),
    [
        (1, 1, True),
        (MAX_FORMULA, 1, True),
        (MAX_FORMULA + 1, 1, False),
        (1, MAX_READERS, True),
        (1, MAX_READERS + 1, False),
    ],
)
def test_limits_of_recomputation(equations: int, readers: int, changed: bool) -> None:
    program, units = waiting(equations, readers)
    pieces = partition(program, units)
    new = recompute_operands(pieces)
    assert (new is not pieces) == changed
    assert [len(p.outs) for p in new.pieces[:1]] == [1 if changed else 2]
    assert {len(p.body.eqns) for p in new.pieces[2:]} == {3 + equations if changed else 3}
    # all recomputed values may be in memory while the piece runs, so the peak is not certainly lower
    assert plan_of(program, units) == _plan_of_old(program, units)


def _plan_of_old(program: Jaxpr, units: tuple[Jaxpr, ...]) -> UnitPlan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fxad.units.plan.recompute_operands", lambda pieces, donate: pieces)
        program._memo.clear()
        return plan_of(program, units)


def test_a_value_read_by_the_next_piece_is_not_recomputed() -> None:
    program, (make, between, read) = waiting(1, 1)
    pieces = partition(program, (make, read))
    near = partition(program, (make, between, read))
    assert [p.remainder for p in pieces.pieces] == [False, True, False]
    assert recompute_operands(near) is not near
    b = Builder()
    (x,) = b.inputs([BIG])
    t, s = b(Call(make), x)
    (u,) = b(Call(read), t, t, s)
    behind = partition(b.build([u]), (make, read))
    assert recompute_operands(behind) is behind


def harmless(b: Builder, s: Atom) -> Atom:
    return s


def large(b: Builder, s: Atom) -> Atom:
    (largest,) = b(ReduceMax((0, 1)), s)
    return b.one(GT, largest, Lit.of(0.9, largest.aval))


def failing(b: Builder, s: Atom) -> Atom:
    return b(Check("s is large", "", ""), large(b, s), s)[0]


def running_on(b: Builder, s: Atom) -> Atom:
    cond = one(1, lambda b, x: (large(b, x),), "cond")
    return b(While(cond, one(1, lambda b, x: (x,), "body"), 0, 0), s)[0]


@pytest.mark.parametrize(("guard", "changed"), [(harmless, True), (failing, False), (running_on, False)])
def test_an_idle_operand_is_recomputed_from_any_value_if_that_cannot_fail(
    guard: Callable[[Builder, Atom], Atom], changed: bool
) -> None:
    """The last use takes zeros, and nothing reads what depends on them. With other values it would fail, or not end."""
    make = one(1, lambda b, x: (t := b.one(SIN, x), b.one(MUL, t, t)), "make")
    between = one(1, lambda b, x: (b.one(ADD, x, Lit.of(9.0, BIG)),), "between")
    read = one(3, lambda b, u, t, s: (b.one(ADD, u, t), b.one(SIN, guard(b, s))), "read")
    b = Builder()
    (x,) = b.inputs([BIG])
    t, s = b(Call(make), x)
    (u,) = b(Call(between), t)
    u, r = b(Call(read), u, t, s)
    u, _ = b(Call(read), u, t, Lit.of(0.0, BIG))
    program = b.build([u, r])
    pieces = partition(program, (make, between, read))
    new = recompute_operands(pieces)
    assert (new is not pieces) == changed
    args = (np.full((64, 64), 0.5, np.float32),)
    for have, want in zip(run_pieces(new, args), run(program, args), strict=True):
        np.testing.assert_array_equal(have, want)


def test_a_recomputed_operand_without_readers_is_not_read() -> None:
    """The body does not read the recomputed operand, so it stays as it is. Its pieces must not read the old operand,
    which no piece returns any more."""
    make = one(1, lambda b, x: (b.one(TANH, x), b.one(MUL, x, Lit.of(2.0, BIG))), "make")
    between = one(1, lambda b, x: (b.one(ADD, x, Lit.of(9.0, BIG)),), "between")
    ignores = one(2, lambda b, u, s: (b.one(SIN, u),), "ignores")
    b = Builder()
    (x,) = b.inputs([BIG])
    t, s = b(Call(make), x)
    (u,) = b(Call(between), t)
    program = b.build(b(Call(ignores), u, s))
    pieces = partition(program, (make, between, ignores))
    new = recompute_operands(pieces)
    assert [len(p.outs) for p in pieces.pieces] == [2, 1, 1]
    assert [len(p.outs) for p in new.pieces] == [1, 1, 1]
    args = (np.full((64, 64), 0.5, np.float32),)
    np.testing.assert_array_equal(run_pieces(new, args)[0], run(program, args)[0])
    assert len(plan_of(program, (make, between, ignores)).steps) == 3
