"""Each feature with each kind of division among 8 CPU devices gives the results of one device.

`test_shard_map_laws.py` runs these tests in a process of their own. To run them by hand:

FXAD_CPU_DEVICES=8 python -m pytest tests/spmd/combinations_on_devices.py
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import CheckError, CompileError, ExecutionError, FxadError
from fxad.sharding import NamedSharding, PartitionSpec, make_mesh
from fxad.text import parse
from tests.laws.budget import share

P = PartitionSpec
Function: TypeAlias = Callable[[Any], Any]
Wrap: TypeAlias = Callable[[Function], Function]

X: Any = np.linspace(-1.0, 1.5, 32, dtype=np.float32).reshape(8, 4)
W: Any = np.linspace(0.5, 2.0, 4, dtype=np.float32)


# --------------------------------------------------------------------------------------------- kinds of division


def body(total: Function) -> Function:
    """Returns the function of each device. `total` sums over the elements of all devices."""

    def part(v: Any) -> Any:
        return fnp.tanh(v * W) / (2 + total(v * v))

    return part


def on_one_device(inside: Wrap) -> Function:
    return inside(body(fnp.sum))


def by_pmap(inside: Wrap) -> Function:
    return fx.pmap(inside(body(lambda u: lax.psum(fnp.sum(u), "i"))), "i")


def by_vmap(inside: Wrap) -> Function:
    return fx.vmap(inside(body(lambda u: lax.psum(fnp.sum(u), "i"))), axis_name="i")


def by_shard_map(inside: Wrap) -> Function:
    mesh, rows = make_mesh((4, 2), ("i", "j")), P(("i", "j"))
    return fx.shard_map(inside(body(lambda u: lax.psum(fnp.sum(u), ("i", "j")))), mesh, rows, rows)


def by_constraints(inside: Wrap) -> Function:
    columns = NamedSharding(make_mesh((2, 4), ("i", "j")), P("i", "j"))
    f = inside(body(fnp.sum))
    return lambda x: lax.with_sharding_constraint(f(lax.with_sharding_constraint(x, columns)), columns)


def by_shardings(inside: Wrap) -> Function:
    rows = NamedSharding(make_mesh((8,), ("i",)), P("i"))
    return fx.jit(inside(body(fnp.sum)), in_shardings=rows, out_shardings=rows)


KINDS: dict[str, Callable[[Wrap], Function]] = {
    "pmap": by_pmap,
    "vmap": by_vmap,
    "shard_map": by_shard_map,
    "constraints": by_constraints,
    "shardings": by_shardings,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


# ------------------------------------------------------------------------------- transformations, inside and around


def plain(f: Function) -> Function:
    return f


@fx.custom_vjp
def _halved(x: fx.Array) -> fx.Array:
    return x / 2


_halved.defvjp(lambda x: (_halved(x), None), lambda _, ct: (3 * ct,))


def with_custom_rule(f: Function) -> Function:
    return lambda x: _halved(f(_halved(x)))


def in_scan(f: Function) -> Function:
    return lambda x: lax.scan(lambda c, k: (f(c) + k * c, None), x, fnp.arange(3.0))[0]


def in_while(f: Function) -> Function:
    return lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1]) + x), (0, x))[1]


def in_cond(f: Function) -> Function:
    return lambda x: lax.cond(fnp.asarray(True), f, lambda u: 2 * u, x)


def in_switch(f: Function) -> Function:
    return lambda x: lax.switch(1, [lambda u: u, f, lambda u: 2 * u], x)


def with_jvp(f: Function) -> Function:
    return lambda x: sum(fx.jvp(f, (x,), (2 * x,)))


def with_linearize(f: Function) -> Function:
    def g(x: Any) -> Any:
        y, linear = fx.linearize(f, x)
        return y + linear(x) + linear(3 * x)

    return g


def with_vjp(f: Function) -> Function:
    def g(x: Any) -> Any:
        y, back = fx.vjp(f, x)
        return y + back(y)[0]

    return g


def with_hessian_vector(f: Function) -> Function:
    return lambda x: fx.jvp(fx.grad(lambda u: fnp.sum(f(u) ** 2)), (x,), (x,))[1]


def with_vmap(f: Function) -> Function:
    return lambda x: fnp.sum(fx.vmap(f, in_axes=-1, out_axes=0)(fnp.stack([x, 2 * x, -x], -1)), 0)


def with_steps(f: Function) -> Function:
    def step(u: Any) -> Any:
        return u + f(u)

    return lambda x: step(step(step(step(x))))


def with_outline(f: Function) -> Function:
    return fx.outline(with_steps(f))


def with_checks(f: Function) -> Function:
    def g(x: Any) -> Any:
        y = f(x)
        return fx.error_if(y, fnp.any(y > 1e6), "too large")

    return g


def with_pure_callback(f: Function) -> Function:
    @fx.custom_jvp
    def half(x: fx.Array) -> fx.Array:
        return fx.pure_callback(lambda v: v / 2, fx.Spec(x.shape, x.dtype), x)

    @half.defjvp
    def _half_jvp(primals: tuple[fx.Array], tangents: tuple[fx.Array]) -> tuple[fx.Array, fx.Array]:
        return half(primals[0]), tangents[0] / 2

    return lambda x: f(half(x))


def with_invertible(f: Function) -> Function:
    def step(p: Any) -> Any:
        a, b = p
        return b, a + f(b)

    def g(x: Any) -> Any:
        a, b = fx.invertible(lambda p: step(step(step(p))))((x, 2 * x))
        return a + b

    return g


def with_remat_policy(f: Function) -> Function:
    def g(x: Any) -> Any:
        return lax.checkpoint_name(f(fnp.sin(x)), "mid") * fnp.cos(x)

    return fx.remat(g, policy=fx.checkpoint_policies.save_only_these_names("mid"))


def with_mask(f: Function) -> Function:
    def g(x: Any) -> Any:
        rows = fnp.reshape(x, (-1, 4))
        filled = fx.mask(lambda a: fnp.cumsum(a / (1 + fnp.sum(a * a, 1, keepdims=True)), 1), ("(_, n)",))
        return f(fnp.reshape(filled(rows, sizes={"n": 3}), x.shape))

    return g


def with_remat_budget(f: Function) -> Function:
    return fx.remat(with_steps(f), budget=1400)


WRAPS: dict[str, Wrap] = {
    "plain": plain,
    "jit": fx.jit,
    "remat": fx.remat,
    "remat_policy": with_remat_policy,
    "checkpointed_steps": lambda f: fx.remat(with_steps(fx.remat(f))),
    "scan": in_scan,
    "while": in_while,
    "cond": in_cond,
    "switch": in_switch,
    "custom_vjp": with_custom_rule,
    "jvp": with_jvp,
    "linearize": with_linearize,
    "vjp": with_vjp,
    "hessian_vector": with_hessian_vector,
    "vmap": with_vmap,
    "steps": with_steps,
    "outline": with_outline,
    "mask": with_mask,
    "remat_budget": with_remat_budget,
    "checks": with_checks,
    "pure_callback": with_pure_callback,
    "invertible": with_invertible,
}
FORWARD_ONLY = {"while"}
NAMED = {"pmap": "'i'", "vmap": "'i'", "shard_map": "'i', 'j'"}  # the axis names that are bound in a body


def value_and_slope(f: Function, of: Function | None) -> list[Any]:
    """Returns the value of a function at X, and the gradient of the sum of `of` its value. One program computes both,
    which takes half of the time."""

    def both(x: Any) -> list[Any]:
        return [f(x)] if of is None else [f(x), fx.grad(lambda u: fnp.sum(of(f(u))))(x)]

    return [np.asarray(v) for v in fx.jit(both)(X)]


@pytest.mark.sweep(8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["inside", "around"])
@pytest.mark.parametrize("name", WRAPS)
def test_transformations(name: str, place: str, kind: str) -> None:
    wrap = WRAPS[name]
    divide = KINDS[kind]
    mapped = divide(wrap) if place == "inside" else wrap(divide(plain))
    single = on_one_device(wrap)
    of = fnp.square if name not in FORWARD_ONLY else None
    (have, *have_slope), (want, *want_slope) = value_and_slope(mapped, of), value_and_slope(single, of)
    np.testing.assert_allclose(have, want, rtol=2e-5, atol=1e-6)
    if have_slope:
        np.testing.assert_allclose(have_slope[0], want_slope[0], rtol=1e-4, atol=1e-5)


PLACES = sorted({*WRAPS} - {"while", "remat_budget", "outline", "checkpointed_steps", "hessian_vector"})


def stacked(names: Sequence[str]) -> Wrap:
    """Composes transformations; the first one is the innermost."""

    def wrap(f: Function) -> Function:
        for name in names:
            f = WRAPS[name](f)
        return f

    return wrap


@share(7)
@given(
    st.lists(st.sampled_from(PLACES), max_size=2),
    st.lists(st.sampled_from(PLACES), max_size=2),
    st.sampled_from(sorted(KINDS)),
)
def test_placements(inside: list[str], around: list[str], kind: str) -> None:
    """A map between transformations has the values and the gradient of one device."""
    mapped = stacked(around)(KINDS[kind](stacked(inside)))
    single = stacked(around)(on_one_device(stacked(inside)))
    (value, have), (wanted, want) = value_and_slope(mapped, fnp.sin), value_and_slope(single, fnp.sin)
    np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
    scale = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(have / scale, want / scale, rtol=1e-3, atol=1e-5)


# ----------------------------------------------------------------------------------------------- calls of the host


def calls_of(effect: str, seen: list[Any]) -> Wrap:
    """Adds calls of the host before and after a function. They record the shape of the operand, or their order."""
    ordered = effect == "ordered"

    def note(what: Any) -> Function:
        return lambda v: seen.append((what, np.shape(v)) if not ordered else what)

    def wrap(f: Function) -> Function:
        def g(x: fx.Array) -> Any:
            fx.io_callback(note("before"), None, x, ordered=ordered)
            y = f(x)
            fx.io_callback(note("after"), None, y, ordered=ordered)
            return y

        return g

    return wrap


@every_kind
@pytest.mark.parametrize("effect", ["unordered", "ordered"])
def test_the_host_is_called_once_around_a_map(effect: str, kind: str) -> None:
    """The call gets the whole operand, and is ordered if requested."""
    seen: list[Any] = []
    f = fx.jit(calls_of(effect, seen)(KINDS[kind](plain)))
    for _ in range(2):
        np.testing.assert_allclose(np.asarray(f(X)), np.asarray(on_one_device(plain)(X)), rtol=2e-5, atol=1e-6)
    if effect == "ordered":
        assert seen == ["before", "after"] * 2
    else:
        assert sorted(seen) == [("after", (8, 4))] * 2 + [("before", (8, 4))] * 2


@pytest.mark.parametrize("kind", ["pmap", "vmap", "shard_map"])
def test_the_host_is_called_by_each_index_in_a_map(kind: str) -> None:
    seen: list[Any] = []
    fx.jit(KINDS[kind](calls_of("unordered", seen)))(X)
    part = (1, 4) if kind == "shard_map" else (4,)
    assert sorted(seen) == [("after", part)] * 8 + [("before", part)] * 8


def test_devices_with_replicated_work_call_the_host_once() -> None:
    """Beside a map over 8 devices, 4 devices run each index of a map over 2."""
    seen: list[Any] = []

    def f(x: fx.Array) -> Any:
        few = fx.pmap(calls_of("unordered", seen)(lambda v: lax.psum(v, "i")), "i")(x[:2])
        return few, fx.pmap(lambda v: lax.psum(v, "j"), "j")(x)

    fx.jit(f)(X)
    assert sorted(seen) == [("after", (4,))] * 2 + [("before", (4,))] * 2


@pytest.mark.parametrize("kind", ["pmap", "shard_map"])
def test_an_ordered_call_in_a_map_has_no_order(kind: str) -> None:
    with pytest.raises(CompileError) as e:
        fx.jit(KINDS[kind](calls_of("ordered", [])))(X)
    assert e.value.message == "compile: an ordered call of the host inside shard_map has no place in an order"
    assert e.value.remedy == "leave out `ordered`, or call the host outside of it"


@every_kind
@pytest.mark.parametrize("place", ["inside", "around"])
def test_a_check_that_fails(place: str, kind: str) -> None:
    """All devices run to the end. Each call raises the error of the first device."""

    def wrap(f: Function) -> Function:
        def g(x: fx.Array) -> Any:
            y = f(x)
            return fx.error_if(y, fnp.max(y) > 0.03, "too large: {:.4f}", fnp.max(y))

        return g

    f = fx.jit(KINDS[kind](wrap) if place == "inside" else wrap(KINDS[kind](plain)))
    by_index = place == "inside" and kind in ("pmap", "vmap", "shard_map")
    for _ in range(2):
        with pytest.raises(CheckError) as e:
            f(X)
        largest = "0.0362" if by_index else "0.0458"
        example = " (in example 4)" if kind == "vmap" and place == "inside" else ""
        assert e.value.message == f"error_if: too large: {largest}{example}"
        assert "combinations_on_devices.py" in str(e.value.where)
    assert np.isfinite(np.asarray(f(0 * X))).all()


def endless(step: Function) -> Function:
    """A loop that ends only when a check fails."""
    return lambda x: lax.while_loop(lambda _: fnp.asarray(True), step, x)


def checked(v: Any, limit: float, message: str) -> Any:
    return fx.error_if(v, fnp.any(v > limit), message)


def on_one_index(v: Any) -> Any:
    return fx.error_if(v, (lax.axis_index("i") == 2) & fnp.any(v > 50), "on one device")


def in_bodies(v: Any) -> Any:
    """A check in a branch in a scan in a `remat`."""
    steps = in_scan(lambda c: lax.cond(fnp.sum(c) > 9, lambda u: checked(u + 1, 50, "in bodies"), lambda u: u + 1, c))
    return fx.remat(steps)(v)


def on_a_ring(v: Any) -> Any:
    """The indices along j fail at different steps. A ppermute in XLA waits for all devices of the mesh."""
    ring = lax.ppermute(v, "i", [(0, 1), (1, 2), (2, 3), (3, 0)])
    return fx.error_if(ring + 1, (lax.axis_index("i") == 2) & (v[0, 0] > 5), "on a ring")


def in_a_bounded_predicate(x: Any) -> Any:
    """A loop with a bound, which stacks rows for its derivative, before a loop without a bound."""
    more = lambda c: checked(c, 20, "bounded predicate")[0] < 1e6  # noqa: E731
    grown = fx.jvp(lambda u: lax.while_loop(more, lambda c: c + fnp.sin(c) ** 2 + 9, u, max_steps=5), (x,), (x,))
    return endless(lambda v: v + 1)(sum(grown))


def with_a_loop_in_a_predicate(x: Any) -> Any:
    """The loop in the predicate would not end for the value that the body returns after a failed check."""
    more = lambda c: lax.while_loop(lambda d: d > 20, lambda d: d + 0 * d, fnp.max(c)) < 1e6  # noqa: E731
    return lax.while_loop(more, lambda c: checked(c + 1, 20, "loop in a predicate"), x * 0)


ENDLESS: dict[str, Function] = {
    "on a ring": fx.shard_map(endless(on_a_ring), {"i": 4, "j": 2}, P(("i", "j")), P(("i", "j"))),
    "on one device": fx.pmap(endless(lambda v: on_one_index(v + 1) + lax.pmax(v, "i")), "i"),
    "before": fx.pmap(lambda x: endless(lambda v: lax.pmean(v, "i"))(checked(x, 1, "before")), "i"),
    "in bodies": fx.pmap(endless(in_bodies)),
    "in a map": endless(fx.pmap(lambda v: checked(v + 1, 20, "in a map"))),
    "in two loops": endless(endless(fx.pmap(lambda v: checked(v + 1, 20, "in two loops")))),
    "predicate": fx.pmap(
        lambda x: lax.while_loop(lambda c: checked(c, 20, "predicate")[0] < 1e6, lambda c: c + abs(c) + 1, x)
    ),
    "bounded predicate": fx.pmap(in_a_bounded_predicate, "i"),
    "loop in a predicate": fx.pmap(with_a_loop_in_a_predicate, "i"),
    "whole": lambda x: endless(lambda v: checked(v + 1, 20, "whole"))(by_constraints(plain)(x)),
}


@pytest.mark.parametrize("where", ENDLESS)
def test_a_failed_check_ends_loops(where: str) -> None:
    """On one device a failed check ends the run. Several devices run to the end of the program, so their loops must
    end."""
    with pytest.raises(CheckError) as e:
        fx.jit(ENDLESS[where])(X)
    assert e.value.message == f"error_if: {where}"


def test_a_loop_over_donated_parts() -> None:
    """Another thread starts a loop that a signal may interrupt. The array must be divided among the devices before."""
    f: Any = fx.jit(fx.pmap(lambda v: lax.while_loop(lambda c: c[0] < 9, lambda c: c + 3, v)), donate=0)
    x = fnp.asarray(X)
    np.testing.assert_allclose(np.asarray(f(x)), X + 3 * np.ceil((9 - X[:, :1]) / 3), rtol=1e-6)
    assert x.is_deleted()


def test_a_loop_whose_checks_hold_runs_all_its_steps() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(
            lambda c: lax.pmax(c[0], "i") < 9, lambda c: checked(c + lax.pmax(c, "i"), 1e9, "too large"), x
        )

    np.testing.assert_array_equal(np.asarray(fx.jit(fx.pmap(f, "i"))(X)), np.asarray(fx.vmap(f, axis_name="i")(X)))


APART: dict[str, Function] = {
    "psum": lambda v: lax.psum(v, "i") / 4,
    "all_gather": lambda v: lax.all_gather(v, "i")[3] + 1,
    "all_to_all": lambda v: v + lax.all_to_all(fnp.broadcast_to(v, (4, *v.shape)), "i", 0, 0)[1],
    "psum_scatter": lambda v: v + lax.psum_scatter(fnp.broadcast_to(v, (4, *v.shape)), "i") / 8,
    "axis_index": lambda v: v + lax.axis_index("i"),
    "a check": lambda v: fx.error_if(v + lax.axis_index("i"), fnp.any(v > 1e6), "too large"),
    "a check and a sum": lambda v: fx.error_if(v + lax.pmax(v, "i"), fnp.any(v > 1e30), "too large"),
    "a host function": lambda v: v + fx.pure_callback(lambda u: u + 1, fx.Spec(v.shape, v.dtype), v),
}


@pytest.mark.parametrize("flow", ["while", "cond"])
@pytest.mark.parametrize("kind", APART)
def test_devices_that_take_different_numbers_of_steps(kind: str, flow: str) -> None:
    """Collectives except ppermute wait only for the indices of their own axis."""

    def f(x: Any) -> Any:
        step, count = APART[kind], 1 + 5 * lax.axis_index("j")
        if flow == "while":
            return lax.while_loop(lambda c: c[0] < count, lambda c: (c[0] + 1, step(c[1])), (0, x))[1]
        return lax.cond(count > 1, lambda v: step(step(v)), lambda v: v, x)

    x = fnp.linspace(-1, 1, 8 * 2).reshape(4, 2, 2)
    want = fx.vmap(fx.vmap(f, axis_name="j"), axis_name="i")(x)
    got = fx.jit(fx.shard_map(lambda v: f(v[0, 0])[None, None], {"i": 4, "j": 2}, P("i", "j"), P("i", "j")))(x)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)


@every_kind
@pytest.mark.parametrize("place", ["inside", "around"])
def test_a_host_function_that_fails(place: str, kind: str) -> None:
    def broken(_: Any) -> Any:
        raise ValueError("no value")

    def wrap(f: Function) -> Function:
        return lambda x: f(fx.pure_callback(broken, fx.Spec(x.shape, x.dtype), x))

    f = fx.jit(KINDS[kind](wrap) if place == "inside" else wrap(KINDS[kind](plain)))
    for _ in range(2):
        with pytest.raises(ExecutionError) as e:
            f(X)
        assert e.value.message == "host_call: broken raised ValueError: no value"
        assert "combinations_on_devices.py" in str(e.value.where)


@pytest.mark.parametrize("outer", [lambda v: v, lambda v: lax.psum(v, "i")], ids=["alone", "with a collective"])
def test_a_host_function_of_devices_that_starts_a_program_on_devices(outer: Function) -> None:
    """XLA would queue it after the program that waits for the host function, a deadlock. A program on one device
    runs."""

    @fx.jit
    def twice(v: Any) -> Any:
        return v * 2

    on_devices: Any = fx.jit(fx.pmap(twice))
    whole = NamedSharding(make_mesh((8,), ("i",)), P())

    def on_host(v: Any) -> Any:
        return np.asarray(on_devices(X))[0] + v

    def by_another_program(v: Any) -> Any:
        return np.asarray(fx.jit(lambda u: fx.pure_callback(on_host, fx.Spec((4,)), u))(v))

    def of_one_operation(v: Any) -> Any:
        return np.asarray(fx.device_put(v, whole) + 1)

    def on_one_device(v: Any) -> Any:
        return np.asarray(twice(fnp.asarray(v)))

    def calling(f: Any) -> Any:
        return fx.jit(fx.pmap(lambda v: outer(fx.pure_callback(f, fx.Spec((4,)), v)), "i"))

    for f, name in ((on_host, "pmap_twice"), (by_another_program, "pmap_twice"), (of_one_operation, "eager")):
        with pytest.raises(ExecutionError) as e:
            calling(f)(X)
        assert e.value.message == (
            f"{name}: it runs on several devices, and a host function that another program on several devices calls"
            " would wait for it for ever"
        )
        assert e.value.remedy == (
            "call it before or after that program, or compute on one device: np.asarray(x) gathers an array"
        )
        assert "combinations_on_devices.py" in str(e.value.where)
    np.testing.assert_array_equal(np.asarray(on_devices(X)), 2 * X)
    want = fx.vmap(lambda v: outer(2 * v), axis_name="i")(X)
    np.testing.assert_allclose(np.asarray(calling(on_one_device)(X)), np.asarray(want), rtol=1e-6)
    np.testing.assert_allclose(  # a program on one device waits for no other
        np.asarray(fx.jit(lambda v: fx.pure_callback(on_host, fx.Spec((4,)), v))(X[0])), 3 * X[0], rtol=1e-6
    )


# ------------------------------------------------------------------------------------- running, storing, explaining


@every_kind
def test_donation(kind: str) -> None:
    f = fx.jit(KINDS[kind](plain), donate=(0,))
    want = np.asarray(on_one_device(plain)(X))
    x: Any = fx.device_put(X, NamedSharding(make_mesh((8,), ("i",)), P("i"))) if kind != "vmap" else fx.asarray(X)
    np.testing.assert_allclose(np.asarray(f(x)), want, rtol=2e-5, atol=1e-6)
    with pytest.raises(FxadError, match="donated"):
        np.asarray(x)


def test_a_donated_array_that_is_passed_again_is_named() -> None:
    """Also an array on one device, which would have to be divided."""
    twice: Any = fx.jit(fx.pmap(lambda v: fnp.sin(fnp.sin(v))), donate=0)
    x = fx.asarray(X)
    twice(x)
    with pytest.raises(ExecutionError) as e:
        twice(x)
    assert e.value.message.partition(" at ")[0] == "pmap_<lambda>: argument v was donated to pmap_<lambda>"


@every_kind
def test_units_and_passes(kind: str) -> None:
    """A program on devices is one unit for every choice. Passes run in both cases."""
    program = fx.trace(fx.grad(lambda x: fnp.sum(KINDS[kind](with_steps)(x) ** 2)), X)
    want = np.asarray(fx.grad(lambda x: fnp.sum(on_one_device(with_steps)(x) ** 2))(X))
    for units in ("auto", lambda body: True):
        for passes in (None, fx.passes.BEFORE_COMPILATION):
            run = fx.lower(program, units=units, passes=passes).compile()
            np.testing.assert_allclose(np.asarray(run(X)), want, rtol=1e-4, atol=1e-5)


@every_kind
def test_executables_are_found_on_disk(kind: str, tmp_path: Path) -> None:
    """A second cache compiles nothing. Its results have the same values and sharding."""
    found = []
    for _ in range(2):
        with fx.cache.private(dir=tmp_path) as mine:
            y = fx.jit(KINDS[kind](plain))(X)
            found.append((np.asarray(y), y.sharding))
            stats = mine.stats()
        assert (stats.compilations, stats.disk_hits) == ((0, stats.misses) if found[1:] else (stats.misses, 0))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


@every_kind
def test_programs_are_values(kind: str, tmp_path: Path) -> None:
    """Printing and parsing, pickle, files and exported bytes return the same program."""
    program = fx.trace(fx.grad(lambda x: fnp.sum(KINDS[kind](plain)(x) ** 2)), X)
    want = np.asarray(program(X))
    assert parse(program.text()) is program.jaxpr
    assert pickle.loads(pickle.dumps(program)).jaxpr is program.jaxpr
    fx.save(program, tmp_path / "program")
    assert fx.load(tmp_path / "program").jaxpr is program.jaxpr
    exported = fx.load_exported(fx.lower(program).export())
    np.testing.assert_array_equal(np.asarray(exported(X)), want)
    np.testing.assert_allclose(np.asarray(fx.interpret(program, X)), want, rtol=1e-4, atol=1e-6)


@every_kind
@pytest.mark.parametrize("place", ["inside", "around"])
def test_explain_nan(place: str, kind: str) -> None:
    def wrap(f: Function) -> Function:
        return lambda x: f(x) + fnp.log(x)

    x = np.ones((8, 4), np.float32)
    x[5, 2] = -1
    program = fx.trace(KINDS[kind](wrap) if place == "inside" else wrap(KINDS[kind](plain)), x)
    found = fx.explain_nan(program, x)
    assert found is not None
    assert " = log " in found.nan.equation
    assert found.nan.operands[0][found.nan.at] == -1
    index = {"pmap": "index i = 5 of shard_map", "shard_map": "index i = 2, j = 1 of shard_map"}.get(kind)
    assert (index in found.nan.inside) == (place == "inside") if index else True
    assert fx.explain_nan(program, np.abs(x)) is None


def test_a_nan_of_a_collective_is_explained() -> None:
    """inf - inf of two devices: no operand of a single device shows it. A nan that is only passed on is not
    reported."""
    x = np.array([1, 0, -0.0, 1], np.float32)
    program = fx.trace(fx.pmap(lambda v: fnp.sqrt(lax.psum(1 / v, "i")), "i"), x)
    found = fx.explain_nan(program, x)
    assert found is not None
    assert " = psum " in found.nan.equation
    assert [float(v) for v in found.nan.operands] == [1, np.inf, -np.inf, 1]
    assert found.inf is not None
    assert " = div " in found.inf.equation

    def total_log(v: Any) -> Any:
        return lax.psum(fnp.log(v), "i")

    passed = fx.explain_nan(fx.trace(fx.pmap(total_log, "i"), x), -x)
    assert passed is not None
    assert " = log " in passed.nan.equation
    assert passed.nan.inside[-1] == "index i = 0 of shard_map"


# ------------------------------------------------------------------------------------------------------------ mask

LENGTHS = np.array([1, 4, 2, 3, 4, 1, 2, 3], np.int32)


def _ragged_total(kind: str) -> Callable[[Any, Any], Any]:
    """Returns the sum of a function over the rows of X; row k has LENGTHS[k] elements."""
    masked = fx.mask(lambda a: fnp.sum(fnp.tanh(a)) * a.shape[0], ("n",))

    def one(a: Any, n: Any) -> Any:
        return masked(a, sizes={"n": n})

    rows, line = P("i"), make_mesh((8,), ("i",))
    match kind:
        case "pmap":
            return fx.pmap(lambda a, n: lax.psum(one(a, n), "i"), "i", out_axes=None)
        case "vmap":
            return fx.vmap(lambda a, n: lax.psum(one(a, n), "i"), axis_name="i", out_axes=None)
        case "shard_map":
            return fx.shard_map(lambda a, n: lax.psum(fnp.sum(fx.vmap(one)(a, n)), "i"), line, (rows, rows), P())
        case _:
            divided = NamedSharding(line, rows)
            return fx.jit(lambda a, n: fnp.sum(fx.vmap(one)(a, n)), in_shardings=divided)


@every_kind
def test_a_ragged_batch(kind: str) -> None:
    """Each device masks the rows that it has. The padding is nan."""
    f = _ragged_total(kind)
    inside = np.arange(4) < LENGTHS[:, None]
    x = np.where(inside, X, np.nan).astype(np.float32)
    want = (np.where(inside, np.tanh(X), 0).sum(1) * LENGTHS).sum()
    np.testing.assert_allclose(np.asarray(fx.jit(f)(x, LENGTHS)), want, rtol=1e-5)
    slope = np.where(inside, (1 - np.tanh(X) ** 2) * LENGTHS[:, None], 0)
    have = fx.jit(fx.grad(f))(x, LENGTHS)
    np.testing.assert_allclose(np.asarray(have), slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", ["inside", "around"])
def test_mask_and_a_collective(place: str) -> None:
    """All devices have one size. The collective combines the valid parts; the padding is zero."""

    def meeting(a: Any) -> Any:
        return lax.psum(fnp.tanh(a), "i")

    inside = fx.pmap(lambda a: fx.mask(meeting, ("n",))(a, sizes={"n": 3}), "i")
    around = fx.mask(fx.pmap(meeting, "i"), ("(_, n)",))
    have = np.asarray(inside(X) if place == "inside" else around(X, sizes={"n": 3}))
    want = np.broadcast_to(np.where(np.arange(4) < 3, np.tanh(X).sum(0), 0), X.shape)
    np.testing.assert_allclose(have[:, :3], want[:, :3], rtol=1e-5, atol=1e-6)
