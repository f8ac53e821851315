"""Patterns of loops with large carries, and of maps over a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.sharding import PartitionSpec
from fxad.testing import check_sparsity
from fxad.testing.sparse_laws import as_mask
from fxad.transforms.sparse.composition import compose
from fxad.transforms.sparse.relation import (
    Relation,
    box,
    merged,
    pairs,
    relation,
    repeated,
    shifted,
    transposed,
)

_CARRIED = 600  # more elements than have a boolean matrix


def neighbours(u: Any) -> Any:
    padded = fnp.pad(u, 1)
    return fnp.sin(padded[2:]) + u - fnp.sin(padded[:-2])


def neighbours_on_a_torus(u: Any) -> Any:
    return fnp.sin(fnp.roll(u, 1, 0) + fnp.roll(u, -1, 0) + fnp.roll(u, 1, 1) + fnp.roll(u, -1, 1) + u)


# a step, the number of steps, and how many entries a column may have at most
LOOPS: dict[str, tuple[Callable[[Any], Any], int, int]] = {
    "a line": (neighbours, 20, 41),
    "one way": (lambda u: u.at[1:].add(fnp.sin(u[:-1])), 20, 21),
    "shift": (lambda u: fnp.pad(fnp.sin(u[7:]), (0, 7)), 30, 1),
    "two carries": (lambda u: fnp.concatenate([neighbours(u[300:]), u[:300] * 2]), 14, 200),
    "a torus": (lambda u: neighbours_on_a_torus(u.reshape(20, 30)).reshape(-1), 3, 200),
    "dense": (lambda u: u[::-1] * fnp.sum(u), 3, _CARRIED),
}


def columns_of(f: Callable[[Any], Any], chosen: list[int]) -> Any:
    x = fnp.asarray(np.random.default_rng(0).uniform(0.2, 0.8, _CARRIED))
    tangents = np.zeros((len(chosen), _CARRIED))
    tangents[np.arange(len(chosen)), chosen] = 1
    return np.asarray(fx.vmap(fx.linearize(f, x)[1])(fnp.asarray(tangents))).reshape(len(chosen), -1)


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_with_a_large_carry_keeps_its_structure(name: str) -> None:
    step, steps, most = LOOPS[name]
    last = lambda x: lax.fori_loop(0, steps, lambda _, u: step(u), x)  # noqa: E731
    stacked = lambda x: lax.scan(lambda u, _: (step(u), u[::50]), x, None, length=steps)[1]  # noqa: E731
    chosen = [0, 1, 299, 300, 417, _CARRIED - 1]
    for f in (last, stacked):
        pattern = fx.sparsity(fx.trace(f, fx.Spec((_CARRIED,), "float64"))).T
        for j, column in zip(chosen, columns_of(f, chosen), strict=True):
            found = pattern.indices[pattern.indptr[j] : pattern.indptr[j + 1]]
            assert set(np.flatnonzero(column)) <= set(found.tolist())
            assert f is stacked or len(found) <= most


def test_a_stencil_of_a_million_unknowns_in_a_loop() -> None:
    """Its powers are diagonals: no elements are listed."""
    f = lambda x: lax.fori_loop(0, 40, lambda _, u: neighbours(u), x)  # noqa: E731
    entries = fx.sparsity(fx.trace(f, fx.Spec((1_000_000,), "float32"))).entries
    assert not entries.tables
    assert len(entries.boxes) == 81


EDGES = np.array([[0, 1], [2, 3], [4, 5], [1, 2]])
# a program of 8 unknowns that reads indices in a loop, and the entries of its pattern
INDEXED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "a map over the elements of a mesh": (lambda x: lax.map(lambda e: fnp.sum(x[e]) ** 2, fnp.asarray(EDGES)), 8),
    "a map in a map": (
        lambda x: lax.map(lambda i: lax.map(lambda j: x[2 * i + j] ** 2, fnp.arange(2)), fnp.arange(3)),
        6,
    ),
    "steps on a mesh": (
        lambda x: lax.fori_loop(0, 2, lambda _, c: c.at[EDGES[:, 0]].add(c[EDGES[:, 1]] ** 2), x),
        14,
    ),
    "a step for each element": (lambda x: lax.fori_loop(1, 4, lambda i, c: c.at[i].add(c[i - 1] ** 2), x), 14),
    "a loop in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(0, 2, lambda j, d: d.at[i + j].mul(d[j]), c), x),
        13,
    ),
    "a branch for each step": (
        lambda x: lax.scan(
            lambda c, i: lax.cond(i % 2 == 0, lambda: (c.at[i].mul(c[i + 1]), c[i]), lambda: (c, c[0])),
            x,
            fnp.arange(4),
        )[0],
        10,
    ),
    "counters from the last slice to the first": (
        lambda x: lax.scan(
            lambda c, k: ((c[0] + 2, c[1].at[c[0]].mul(c[1][c[0] + 1])), x[k - c[0]]),
            (0, x),
            fnp.arange(3),
            reverse=True,
        )[1],
        3,
    ),
    "a gradient of a sum by a loop": (
        fx.grad(
            lambda x: lax.scan(
                lambda c, i: (c + x[i] ** 2 * x[i + 1], None), fnp.asarray(0.0, np.float64), fnp.arange(7)
            )[0]
        ),
        21,
    ),
}


@pytest.mark.parametrize("name", INDEXED)
def test_known_indices_are_read_in_loops(name: str) -> None:
    """Those of closed-over arrays, and of what differs from step to step: no axis is dense."""
    f, entries = INDEXED[name]
    program = fx.trace(f, fx.Spec((8,), "float64"))
    pattern = fx.sparsity(program)
    assert (pattern.nnz, pattern.notes) == (entries, ())
    check_sparsity(program, points=1)


def test_indices_of_each_of_many_steps_are_read() -> None:
    n = 20_000
    edges = np.random.default_rng(0).integers(0, n, (n, 2))
    pattern = fx.sparsity(fx.trace(lambda x: lax.map(lambda e: x[e[0]] * x[e[1]], fnp.asarray(edges)), fx.Spec((n,))))
    assert pattern.nnz == sum([len(set(e)) for e in edges.tolist()])


X = fnp.asarray(np.random.default_rng(0).uniform(0.2, 0.8, (8, 4)))
P = PartitionSpec
MAPS: dict[str, tuple[Callable[[Any], Any], dict[str, int], Any, Any]] = {
    "no collective": (lambda x: fnp.cumsum(x, 1), {"a": 2, "b": 2}, P("b", "a"), P("b", "a")),
    "two axes divide one": (lambda x: fnp.sin(x)[::-1], {"a": 2, "b": 2}, P(("b", "a")), P(("b", "a"))),
    "sum": (lambda x: lax.psum(x**2, "a"), {"a": 4}, P("a"), P()),
    "sum over one of two": (lambda x: x * lax.psum(x[0], "a"), {"a": 2, "b": 2}, P("a", "b"), P("a", "b")),
    "permutation": (lambda x: lax.ppermute(x, "a", [(0, 1), (1, 2)]) + x**2, {"a": 4}, P("a"), P("a")),
    "gathered": (lambda x: lax.all_gather(x, "a", tiled=True)[::2], {"a": 4}, P("a"), P("a")),
    "exchanged": (lambda x: lax.all_to_all(x, "a", 1, 0, tiled=True), {"a": 4}, P("a"), P("a")),
    "indices": (lambda x: x[np.array([1, 0])] ** 2, {"a": 4}, P("a"), P("a")),
    "whole": (lambda x: x[:2] * 2.0, {"a": 4}, P(), P("a")),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_map_over_a_mesh_has_the_pattern_of_its_parts(name: str) -> None:
    body, mesh, ins, outs = MAPS[name]
    anything: Any = fx
    f = anything.shard_map(body, mesh, in_specs=ins, out_specs=outs)
    program = fx.trace(f, X)
    pattern = fx.sparsity(program)
    assert pattern.nnz < 0.5 * pattern.shape[0] * pattern.shape[1]
    check_sparsity(program, points=1)
    check_sparsity(fx.grad(fx.trace(lambda x: fnp.sum(f(x) ** 2), X)), points=1)
    if name != "permutation":  # of zeros for those to whom nothing is sent
        twice = as_mask(fx.sparsity(fx.trace(fx.vmap(f), fnp.stack([X, X]))))
        assert (twice == np.kron(np.eye(2, dtype=np.bool_), as_mask(pattern))).all()


def test_tables_of_int32_do_not_overflow() -> None:
    """Numbers that leave int32 when a table is shifted, repeated or composed."""
    last = 2**31 - 1
    data = np.array([last - 9, 3, last, 7, 5, last - 2], np.int32)
    order = np.array([0, last - 1, 2, last, 4, 6], np.int32)

    def operations(t: Relation) -> list[Relation]:
        strided = relation(box(5, 7, ((2**31, 3, 2**33),)))
        return [
            shifted(t, last, 2**33),
            repeated(t, (3, 2**31, 2**32)),
            compose(strided, transposed(t), 2**34),
            compose(t, strided, 2**34),
            Relation(frozenset(), (merged(t.tables),)),
        ]

    for narrow, wide in zip(
        operations(Relation(frozenset(), ((order, data),))),
        operations(Relation(frozenset(), ((order.astype(np.int64), data.astype(np.int64)),))),
        strict=True,
    ):
        for a, b in zip(pairs(narrow), pairs(wide), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_counter_beside_the_carries_depends_on_nothing() -> None:
    """Element i of y * y[3] + x depends on elements i and 3 after any number of steps, and the count on none."""

    def by_last(x: Any, n: Any) -> Any:
        return lax.fori_loop(0, n, lambda _, y: y * y[3] + x, x)

    last = np.eye(4, dtype=bool)
    last[:, 3] = True
    found = fx.sparsity(fx.trace(by_last, fx.Spec((4,)), fx.Spec((), "int32")))
    assert np.array_equal(as_mask(found), last)
