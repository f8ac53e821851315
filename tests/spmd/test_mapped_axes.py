"""Collectives under `vmap(axis_name=)`: values, control flow, transformations, error messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.core.lockstep import run_mapped as lockstep
from fxad.errors import ArgumentError, AxisNameError, ExecutionError, FxadError, ParameterError, ShapeError
from fxad.ir import HigherOrder
from fxad.sharding import PartitionSpec as P
from fxad.text import parse
from tests.api.refusals import check_refused

X: Any = np.arange(1.0, 9.0, dtype=np.float32).reshape(4, 2)
N = 4
WRONG: Any = fx  # for arguments of wrong types


def mapped(f: Callable[..., Any], *args: Any, **how: Any) -> Any:
    return fx.vmap(f, axis_name="i", **how)(*args)


# ------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("f", "want"),
    [
        (lambda v: lax.psum(v, "i"), np.broadcast_to(X.sum(0), X.shape)),
        (lambda v: lax.pmean(v, "i"), np.broadcast_to(X.mean(0), X.shape)),
        (lambda v: lax.pmax(v, "i"), np.broadcast_to(X.max(0), X.shape)),
        (lambda v: lax.pmin(v, "i"), np.broadcast_to(X.min(0), X.shape)),
        (lambda v: lax.psum(v, "i", axis_index_groups=[[0, 2], [3, 1]]), np.stack([X[0] + X[2], X[1] + X[3]] * 2)),
        (lambda v: lax.pmean(v, "i", axis_index_groups=[[0, 1], [2, 3]]),
         np.repeat([X[:2].mean(0), X[2:].mean(0)], 2, 0)),
        (lambda v: lax.all_gather(v, "i"), np.broadcast_to(X, (4, 4, 2))),
        (lambda v: lax.all_gather(v, "i", axis=1), np.broadcast_to(X.T, (4, 2, 4))),
        (lambda v: lax.all_gather(v, "i", tiled=True), np.broadcast_to(X.ravel(), (4, 8))),
        (lambda v: lax.psum_scatter(fnp.stack([v] * 4), "i"), np.broadcast_to(X.sum(0), X.shape)),
        (lambda v: lax.psum_scatter(fnp.tile(v, 2), "i", tiled=True), np.tile(X.sum(0), 2)[:, None]),
        (lambda v: lax.all_to_all(fnp.arange(4) + 10 * lax.axis_index("i"), "i", 0, 0),
         np.add.outer(range(4), range(0, 40, 10))),
        (lambda v: lax.ppermute(v, "i", [(0, 1), (1, 2), (3, 0)]), np.stack([X[3], X[0], X[1], 0 * X[0]])),
        (lambda v: lax.pshuffle(v, "i", [3, 1, 0, 2]), X[[3, 1, 0, 2]]),
        (lambda v: lax.axis_index("i"), np.arange(4, dtype=np.int32)),
        (lambda v: v * lax.axis_size("i"), 4 * X),
        (lambda v: v * lax.psum(1, "i"), 4 * X),
        (lambda v: lax.psum({"a": v, "b": (v[0],)}, "i")["b"][0], np.broadcast_to(X[:, 0].sum(), (4,))),
        (lambda v: lax.psum(v, ()), X),
        (lambda v: lax.psum(v > 2, "i"), np.broadcast_to((X > 2).sum(0, dtype=np.int32), X.shape)),
        (lambda v: lax.pmean(v > 2, "i"), np.broadcast_to((X > 2).mean(0, dtype=np.float32), X.shape)),
    ],
)  # fmt: skip
def test_values(f: Callable[..., object], want: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(mapped(f, X)), want, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "value", "n"), [("float16", 3.0, 100_000), ("float8_e4m3fn", 0.5, 300)])
@pytest.mark.parametrize("of_all", [True, False])
def test_a_mean_over_more_examples_than_the_dtype_can_count(dtype: str, value: float, n: int, of_all: bool) -> None:
    x = fnp.asarray(value).astype(dtype)

    def mean(v: Any) -> Any:
        return lax.pmean(v, "i")

    if of_all:
        have = mapped(mean, x, in_axes=None, axis_size=n)
    else:
        have = mapped(mean, fnp.broadcast_to(x, (n,)))
    assert have.dtype == x.dtype
    assert np.all(np.asarray(have, np.float32) == value)


def test_two_axes() -> None:
    y: Any = np.arange(6.0, dtype=np.float32).reshape(2, 3)

    def f(v: fx.Array) -> Any:
        every = lax.all_gather(v, ("j", "i"))
        return lax.psum(v, ("i", "j")), lax.axis_index(("j", "i")), every, lax.psum(v, "j"), lax.axis_size(("i", "j"))

    total, index, every, rows, size = fx.vmap(fx.vmap(f, axis_name="j"), axis_name="i")(y)
    assert np.all(np.asarray(total) == y.sum())
    np.testing.assert_array_equal(np.asarray(index), np.arange(6).reshape(3, 2).T)
    np.testing.assert_array_equal(np.asarray(every)[1, 2], y.T.ravel())
    np.testing.assert_array_equal(np.asarray(rows), np.broadcast_to(y.sum(1, keepdims=True), (2, 3)))
    assert np.all(np.asarray(size) == 6)


def test_results_that_are_the_same_for_all_examples_may_have_out_axes_none() -> None:
    total, most = mapped(lambda v: (lax.psum(v, "i"), lax.pmax(v[0], "i")), X, out_axes=None)
    np.testing.assert_array_equal(np.asarray(total), X.sum(0))
    assert float(most) == X[:, 0].max()


def test_psum_of_an_unmapped_value_counts_it_for_each_example() -> None:
    assert float(mapped(lambda v: lax.psum(np.float32(3), "i"), X, out_axes=None)) == 12
    many = fx.vmap(lambda v: lax.psum(fnp.ones((), "int8"), "i"), axis_name="i", out_axes=None)(np.zeros(300))
    assert int(many) == np.int64(300).astype(np.int8)


# ------------------------------------------------------------------------------------------- control flow, calls, rules


def normalised(v: fx.Array) -> fx.Array:
    return v / fnp.sqrt(lax.psum(fnp.sum(v * v), "i"))


WANT = X / np.sqrt((X * X).sum())


@fx.custom_jvp
def ruled(v: fx.Array) -> fx.Array:
    return normalised(v)


@ruled.defjvp
def _ruled_jvp(primals: tuple[fx.Array], tangents: tuple[fx.Array]) -> tuple[fx.Array, fx.Array]:
    (v,), (t,) = primals, tangents
    return normalised(v), 2 * lax.psum(t, "i")


def in_scan(v: fx.Array) -> Any:
    return lax.scan(lambda c, _: (normalised(c), None), v, None, length=2)[0]


def in_while(v: fx.Array) -> Any:
    return lax.while_loop(lambda c: lax.pmax(fnp.max(c), "i") > 1, normalised, v)


def in_cond(v: fx.Array) -> Any:
    return lax.cond(lax.psum(v[0], "i") > 0, normalised, lambda u: u, v)


@pytest.mark.parametrize(
    "f", [normalised, in_scan, in_while, in_cond, fx.jit(normalised), fx.remat(normalised), ruled],
    ids=["plain", "scan", "while", "cond", "jit", "remat", "custom_jvp"],
)  # fmt: skip
def test_bodies(f: Callable[..., object]) -> None:
    np.testing.assert_allclose(np.asarray(mapped(f, X)), WANT, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(fx.jit(fx.vmap(f, axis_name="i"))(X)), WANT, rtol=1e-5)


@pytest.mark.parametrize("f", [normalised, in_scan, in_cond, fx.jit(normalised), fx.remat(normalised)])
def test_gradient_of_the_map_and_map_of_the_gradient(f: Callable[..., fx.Array]) -> None:
    """The gradient inside the map is that of the sum of the results of all indices."""
    weights = np.cos(X)
    outside = fx.grad(lambda x: fnp.sum(fx.vmap(f, axis_name="i")(x) * weights))(X)
    inside = fx.vmap(fx.grad(lambda v, w: fnp.sum(f(v) * w)), axis_name="i")(X, weights)
    np.testing.assert_allclose(np.asarray(inside), np.asarray(outside), rtol=1e-4, atol=1e-5)


def test_a_rule_with_a_collective() -> None:
    _, t = mapped(lambda v: fx.jvp(ruled, (v,), (v,)), X)
    np.testing.assert_allclose(np.asarray(t), np.broadcast_to(2 * X.sum(0), X.shape), rtol=1e-6)


def test_jit_is_traced_again_for_another_size() -> None:
    f = fx.jit(lambda v: v + lax.axis_size("i"))
    assert float(fx.vmap(f, axis_name="i")(X)[0, 0]) == 5
    assert float(fx.vmap(f, axis_name="i")(X[:2])[0, 0]) == 3


# ------------------------------------------------------------------------------------------------- programs as values


def test_program_with_a_free_axis() -> None:
    program = fx.trace(normalised, X[0], axis_env={"i": N})
    assert program.jaxpr.free_axes == {("i", 4)}
    assert fx.trace(normalised, X[1], axis_env={"i": N}).jaxpr is program.jaxpr
    assert fx.trace(normalised, X[1], axis_env={"i": 3}).jaxpr is not program.jaxpr
    whole = fx.vmap(program, axis_size=4, axis_name="i")
    assert not whole.jaxpr.free_axes
    call = fx.trace(fx.vmap(normalised, axis_name="i"), X).jaxpr.eqns[0].prim
    assert isinstance(call, HigherOrder)
    assert whole.jaxpr is call.bodies[0]
    np.testing.assert_allclose(np.asarray(whole(X)), WANT, rtol=1e-6)
    assert parse(program.text()) is program.jaxpr


def test_a_program_is_called_in_a_map() -> None:
    program = fx.trace(normalised, X[0], axis_env={"i": N})
    np.testing.assert_allclose(np.asarray(mapped(lambda v: program(v), X)), WANT, rtol=1e-6)


@pytest.mark.parametrize("checked", [False, True])
def test_a_loop_that_reads_its_index_runs_as_often_as_it_says(checked: bool) -> None:
    """`axis_index` exchanges no values, so the numbers of steps may differ."""

    def steps(v: Any) -> Any:
        def step(c: Any) -> Any:
            c = c * 2 + lax.axis_index("i")
            return fx.error_if(c, c[0] > 1e6, "too large") if checked else c

        v = lax.while_loop(lambda c: c[0] < 9 * lax.axis_index("i"), step, v)
        return lax.cond(v[0] > 20, lambda u: u * lax.axis_index("i"), lambda u: u, v)

    want = []
    for k, x in enumerate(X):
        while x[0] < 9 * k:
            x = x * 2 + k
        want.append(x * k if x[0] > 20 else x)
    np.testing.assert_allclose(np.asarray(mapped(steps, X)), want, rtol=1e-6)
    fx.trace(fx.pmap(steps, "i"), X)


# -------------------------------------------------------------------------------------------------------- bad input


UNIFORM = "make the predicate the same for all indices, with pmax or pmin over the axis, or move the collective out"
WAITS = (
    "{}: its bodies have a ppermute, in which all devices wait, and the indices of axis 'j' do not agree on whether"
    " they run"
)
APART = (
    "make the predicate the same for all indices, with pmax or pmin over the axis,"
    " or use all_gather in place of ppermute"
)
RING = [(0, 1), (1, 0)]
# Bodies whose number of runs depends on the index along j, with a ppermute over another axis.
STEPS_APART = {
    "while": lambda v: lax.fori_loop(0, lax.axis_index("j"), lambda _, c: lax.ppermute(c, "i", RING), v),
    "cond": lambda v: lax.cond(lax.axis_index("j") > 0, fx.jit(lambda u: lax.ppermute(u, "i", RING)), lambda u: u, v),
}


def over_grid(f: Callable[[fx.Array], fx.Array]) -> Callable[[fx.Array], fx.Array]:
    return fx.shard_map(f, {"i": 2, "j": 2}, P(("i", "j")), P(("i", "j")))


PROGRAM = fx.trace(normalised, X[0], axis_env={"i": N})
REFUSED = [
    (lambda: lax.psum(X, "k"), AxisNameError,
     "psum: no map around binds axis 'k'; axes in scope: none",
     "name the axis of a map: vmap(f, axis_name='k'), or give its size to trace: trace(f, x, axis_env={'k': 8})"),
    (lambda: mapped(lambda v: lax.axis_index("k"), X), AxisNameError,
     "axis_index: no map around binds axis 'k'; axes in scope: 'i'",
     "name the axis of a map: vmap(f, axis_name='k'), or give its size to trace: trace(f, x, axis_env={'k': 8})"),
    (lambda: mapped(WRONG.vmap(lambda v: v, axis_name="i"), X), AxisNameError,
     "vmap of <lambda>: axis name 'i' is in use by a map around it", "give each of nested maps its own name"),
    (lambda: mapped(lambda v: lax.psum(v, ("i", "i")), X), AxisNameError,
     "psum: axis_name ('i', 'i') names an axis twice", "name each axis once"),
    (lambda: fx.vmap(PROGRAM, axis_size=3, axis_name="i"), AxisNameError,
     "vmap of normalised: axis_size is 3, the program was traced with axis 'i' of size 4",
     "trace it with axis_env={'i': 3}, or map over 4 examples"),
    (lambda: mapped(lambda v: PROGRAM(v), X[:2]), AxisNameError,
     "psum: axis 'i' has size 2, it was traced with 4", "trace the program again for this size"),
    (lambda: PROGRAM(X[0]), AxisNameError,
     "psum: axis 'i' of size 4 is not bound",
     "map over it: vmap(program, axis_name='i', axis_size=4), pmap or shard_map"),
    (lambda: fx.interpret(PROGRAM, X[0]), AxisNameError,
     "interpret: axis 'i' of size 4 is not bound", "map over it: vmap(program, axis_name='i', axis_size=4)"),
    (lambda: mapped(lambda v: lax.cond(v[0] > 2, normalised, lambda u: u, v), X), AxisNameError,
     "cond: its bodies have collectives over axis 'i', and the indices of that axis do not agree on whether they run",
     UNIFORM),
    (lambda: mapped(lambda v: lax.while_loop(lambda c: c[0] > 1, normalised, v), X), AxisNameError,
     "while: its bodies have collectives over axis 'i', and the indices of that axis do not agree on whether they run",
     UNIFORM),
    *[(lambda f=f: fx.trace(over_grid(f), X), AxisNameError, WAITS.format(name), APART)
      for name, f in STEPS_APART.items()],
    (lambda: mapped(lambda v: v, X, out_axes=None), ShapeError,
     "vmap of <lambda>: result varies with the mapped arguments, but its out_axes is None",
     "give the axis at which its values are to be stacked"),
    (lambda: WRONG.vmap(lambda v: v, axis_name=3)(X), ArgumentError,
     "vmap of <lambda>: axis_name is an int: 3", "name the axis by a string"),
    (lambda: WRONG.lax.psum(X, 3), ArgumentError,
     "psum: axis_name must be a sequence, got an int: 3", "give a tuple or a list"),
    (lambda: WRONG.lax.psum(X, (3,)), ArgumentError,
     "psum: an axis name is a string, got an int: 3", "give a name, or a tuple of names"),
    (lambda: WRONG.trace(normalised, X[0], axis_env=["i"]), ArgumentError,
     "trace of normalised: axis_env is a list: ['i']", 'give a dict, as in {"i": 8}'),
    (lambda: fx.trace(normalised, X[0], axis_env={"i": 0}), ArgumentError,
     "trace of normalised: axis_env['i'] is 0, not a size", "give each axis an int from 1 on"),
    (lambda: mapped(lambda v: lax.ppermute(v, "i", [(0, 1), (2, 1)]), X), ParameterError,
     "ppermute: target 1 of perm ((0, 1), (2, 1)) is used twice or is not below 4",
     "give pairs (source, target) of indices, each source and each target once"),
    (lambda: mapped(lambda v: lax.pshuffle(v, "i", [0, 1, 2, 2]), X), ShapeError,
     "pshuffle: perm (0, 1, 2, 2) is not a permutation of the 4 indices of 'i'",
     "name each index once, or use ppermute"),
    (lambda: mapped(lambda v: lax.psum(v, "i", axis_index_groups=[[0, 1], [2]]), X), ParameterError,
     "psum: groups ((0, 1), (2,)) do not divide axis 'i' of size 4",
     "name each index in one group, and give all groups one size"),
    (lambda: mapped(lambda v: lax.all_to_all(v, "i", 0, 0), X), ShapeError,
     "all_to_all: split_axis 0 of shape (2,) has size 2, there are 4 indices",
     "give an axis of that size, or tiled=True for a multiple of it"),
    (lambda: mapped(lambda v: lax.psum_scatter(v, "i", tiled=True), X), ShapeError,
     "psum_scatter: axis 0 of f32[2] has size 2, which 4 indices of 'i' do not divide",
     "pad the axis, or choose another one"),
    (lambda: mapped(lambda v: WRONG.lax.pbroadcast(v, "i", "a"), X), ArgumentError,
     "pbroadcast: source must be an integer, got a str: 'a'",
     "it is static: a Python value, which cannot come from a traced array"),
    (lambda: mapped(lambda v: WRONG.lax.pbroadcast(v, "i", 1.5), X), ArgumentError,
     "pbroadcast: source must be an integer, got a float: 1.5",
     "it is static: a Python value, which cannot come from a traced array"),
    (lambda: mapped(lambda v: lax.pbroadcast(v, "i", 4), X), ParameterError,
     "pbroadcast: source is 4, there are 4 indices of 'i'", "give an index"),
    (lambda: mapped(lambda v: lax.all_gather(v, ()), X), ParameterError,
     "all_gather: axis_name () names no axis", "name one axis or more"),
    (lambda: mapped(lambda v: lax.pshuffle(v, (), [0]), X), ParameterError,
     "pshuffle: axis_name () names no axis", "name one axis or more"),
    (lambda: mapped(lambda v: lax.psum_scatter(v, []), X), ParameterError,
     "psum_scatter: axis_name [] names no axis", "name one axis or more"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message", "remedy"), REFUSED, ids=[m[:50] for _, _, m, _ in REFUSED])
def test_refused(call: Callable[[], object], kind: type[FxadError], message: str, remedy: str) -> None:
    check_refused(call, kind, message, remedy)
    np.testing.assert_allclose(np.asarray(mapped(normalised, X)), WANT, rtol=1e-6)  # the next trace works


def test_different_numbers_of_runs_around_a_collective_are_an_error() -> None:
    """The interpreter runs all indices at once, and detects indices that would wait forever."""
    program = fx.trace(lambda v: lax.cond(v[0] > 2, normalised, lambda u: u, v), X[0], axis_env={"i": N})
    with pytest.raises(ExecutionError) as e:
        lockstep(("i",), (N,), lambda index: run(program.jaxpr, [X[index]]))
    assert e.value.message == "interpret: the runs of a map wait for different collectives"


def test_a_body_that_runs_for_each_example_reads_its_index_from_outside() -> None:
    """A branch with an ordered host call runs for one example after the other."""

    def called(x: Any) -> Any:
        fx.io_callback(lambda v: None, None, x, ordered=True)
        return x

    def inside(x: Any) -> Any:
        return lax.cond(x > 0, lambda x: called(x) * lax.axis_index("i"), lambda x: x, x)

    def outside(x: Any) -> Any:
        i = lax.axis_index("i")
        return lax.cond(x > 0, lambda x: called(x) * i, lambda x: x, x)

    with pytest.raises(AxisNameError) as e:
        fx.vmap(inside, axis_name="i")(X[:, 0])
    assert (
        e.value.message == "vmap: cond applies its bodies to one example after the other, and they read axis_index('i')"
    )
    assert e.value.remedy == "call lax.axis_index outside of the body, and use its value there"
    x = np.abs(X[:, 0]) + 1
    np.testing.assert_array_equal(fx.vmap(outside, axis_name="i")(x), x * np.arange(len(x)))
