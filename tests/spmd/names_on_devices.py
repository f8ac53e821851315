"""JAX's names for programs on devices, called as JAX's documentation calls them, on 8 CPU devices.

`test_names.py` runs these tests in a process of their own. To run them by hand:

FXAD_CPU_DEVICES=8 python -m pytest tests/spmd/names_on_devices.py
"""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.custom_batching import sequential_vmap
from fxad.errors import (
    ArgumentError,
    AxisNameError,
    DTypeError,
    FxadError,
    ParameterError,
    PlacementError,
    ShapeError,
)
from fxad.experimental import mesh_utils
from fxad.runtime import resharded
from fxad.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding, get_mesh, make_mesh
from fxad.testing import Case, cases
from fxad.testing.collective_steps import COLLECTIVE_STEPS
from fxad.testing.spmd_laws import check_split_axis
from tests.laws.budget import share

P = PartitionSpec
X: Any = np.arange(32, dtype=np.float32).reshape(8, 4)
WRONG: Any = fx
ANY: Any = fx  # overloads are lost in functools.partial


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return make_mesh((4, 2), ("x", "y"))


# -------------------------------------------------------------------------------------------------------------- meshes


def test_meshes(mesh: Mesh) -> None:
    devices = np.array(fx.devices()).reshape(4, 2)
    assert Mesh(devices, ("x", "y")) == mesh == Mesh(devices, axis_names=("x", "y"), axis_types=(AxisType.Auto,) * 2)
    assert make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2) == mesh
    assert Mesh(mesh_utils.create_device_mesh((4, 2)), ("x", "y")) == mesh
    assert (mesh.shape["x"], mesh.axis_sizes, mesh.size, mesh.empty, mesh.is_multi_process) == (
        4,
        (4, 2),
        8,
        False,
        False,
    )
    assert mesh.local_devices == list(fx.devices())
    assert pickle.loads(pickle.dumps(mesh)) == mesh


def test_the_mesh_of_a_block(mesh: Mesh) -> None:
    other = make_mesh((2, 4), ("x", "y"))
    f = fx.jit(lambda x: lax.with_sharding_constraint(2 * x, P("x")))
    assert get_mesh() is None
    with mesh:
        assert f(X).sharding == NamedSharding(mesh, P("x"))
        with fx.set_mesh(other):
            assert f(X).sharding == NamedSharding(other, P("x"))
            assert fx.jit(lambda x: f(x) + 1)(X).sharding == NamedSharding(other, P("x"))
        assert get_mesh() is mesh
        assert f(X).sharding == NamedSharding(mesh, P("x"))
        assert fx.device_put(X, P("x", "y")).sharding == NamedSharding(mesh, P("x", "y"))
        g = fx.jit(lambda x: x + 1, in_shardings=P("x"), out_shardings=P(None, "y"))
        assert g(X).sharding == NamedSharding(mesh, P(None, "y"))
        total = fx.shard_map(lambda v: lax.psum(v, "x"), in_specs=P("x"), out_specs=P())
        np.testing.assert_array_equal(np.asarray(total(X)), X.reshape(4, 2, 4).sum(0))
    assert get_mesh() is None
    calls: tuple[Callable[[], Any], ...] = (lambda: f(X), lambda: total(X), lambda: g(X))
    for call in calls:
        with pytest.raises(ParameterError, match="no mesh"):
            call()


def test_a_jitted_function_that_follows_the_mesh_is_traced_once_for_each(mesh: Mesh) -> None:
    traced = []

    def f(x: Any) -> Any:
        traced.append(get_mesh())
        return lax.with_sharding_constraint(x, P("y"))

    other, run = make_mesh((8,), ("y",)), fx.jit(f)
    for m in (mesh, other, mesh, other, mesh):
        with m:
            assert run(X).sharding == NamedSharding(m, P("y"))
    assert traced == [mesh, other]


# ----------------------------------------------------------------------------------------------------------- shardings


def test_attributes_of_shardings(mesh: Mesh) -> None:
    rows, one = NamedSharding(mesh, P("x", None)), SingleDeviceSharding(fx.devices()[2])
    assert rows == NamedSharding(mesh, P("x")) != NamedSharding(mesh, P("y"))
    assert hash(rows) == hash(NamedSharding(mesh, P("x")))
    assert rows.shard_shape((8, 4)) == (2, 4)
    at = rows.devices_indices_map((8, 4))
    assert list(at) == list(fx.devices())
    assert at[fx.devices()[3]] == (slice(2, 4), slice(None))
    assert rows.addressable_devices_indices_map((8, 4)) == at
    assert (rows.num_devices, rows.is_fully_addressable, rows.is_fully_replicated) == (8, True, False)
    assert NamedSharding(make_mesh((1,), ("i",)), P("i")).is_fully_replicated
    assert rows.addressable_devices == rows.device_set == frozenset(fx.devices())
    same = NamedSharding(make_mesh((4, 2), ("a", "b")), P("a"))
    assert rows.is_equivalent_to(same, 2)
    assert not rows.is_equivalent_to(NamedSharding(mesh, P("y")), 2)
    assert not rows.is_equivalent_to(one, 2)
    single = NamedSharding(Mesh([one.device], "i"), P("i"))
    whole = NamedSharding(single.mesh, P())
    assert single.is_equivalent_to(whole, 2)
    assert single.is_equivalent_to(one, 2)
    assert one.is_equivalent_to(single, 2)
    assert not single.is_equivalent_to(SingleDeviceSharding(fx.devices()[0]), 2)
    some: list[Any] = [rows, one]
    for sharding in some:
        assert sharding.shard_shape([8, 4]) == sharding.shard_shape((8, 4))
        assert sharding.devices_indices_map(8) == sharding.devices_indices_map((8,))
    assert one.devices_indices_map((3,)) == {fx.devices()[2]: (slice(None),)}
    assert (one.shard_shape((3,)), one.num_devices, one.is_fully_replicated) == ((3,), 1, True)


def test_shards_and_parts_of_arrays(mesh: Mesh) -> None:
    rows = NamedSharding(mesh, P("x"))
    x: Any = fx.device_put(X, rows)
    assert x.sharding == rows
    assert [s.replica_id for s in x.addressable_shards] == [0, 1] * 4
    for s in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(s.data), X[s.index])
    np.testing.assert_array_equal(np.asarray(x.addressable_data(3)), X[2:4])
    assert (x.is_fully_addressable, x.is_fully_replicated) == (True, False)
    assert fx.asarray(X).is_fully_replicated
    assert fx.devices()[0].device_kind == fx.devices()[0].kind
    np.testing.assert_array_equal(np.from_dlpack(x.addressable_shards[5].data), X[4:6])


def test_arrays_of_parts(mesh: Mesh) -> None:
    where, asked = NamedSharding(mesh, P("y", "x")), []

    def part(at: tuple[slice, ...]) -> Any:
        asked.append(at)
        return X[at]

    x: Any = fx.make_array_from_callback((8, 4), where, part)
    assert x.sharding == where
    np.testing.assert_array_equal(np.asarray(x), X)
    assert len(asked) == 8
    whole = fx.make_array_from_callback((8, 4), NamedSharding(mesh, P()), part)
    assert len(asked) == 9, "once for each distinct part"
    assert whole.is_fully_replicated
    parts = [fx.device_put(X[at], d) for d, at in where.addressable_devices_indices_map((8, 4)).items()]
    y: Any = fx.make_array_from_single_device_arrays((8, 4), where, parts)
    np.testing.assert_array_equal(np.asarray(y * 1), X)
    z = fx.make_array_from_process_local_data(where, X, (8, 4))
    np.testing.assert_array_equal(np.asarray(z), X)


def test_devices_exchange_parts_of_an_array_that_is_divided_anew(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    x = fx.device_put(fx.asarray(X), NamedSharding(mesh, P("x", "y")))
    monkeypatch.setattr("fxad.api.device_put.resharded", None)  # an exchange through the host
    for spec in (P("y", "x"), P(("x", "y")), P("x"), P()):
        y: Any = fx.device_put(x, NamedSharding(mesh, spec))
        assert y.sharding == NamedSharding(mesh, spec)
        np.testing.assert_array_equal(np.asarray(y), X)
    inside = fx.jit(lambda v: fx.device_put(v, NamedSharding(mesh, P("y"))))(X)
    assert inside.sharding == NamedSharding(mesh, P("y"))


def test_an_operand_that_is_passed_again_is_not_divided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    divided: list[Any] = []

    def counted(buffer: Any, where: Any) -> Any:
        divided.append(where.spec)
        return resharded(buffer, where)

    monkeypatch.setattr("fxad.xla.executable.resharded", counted)
    w, x, c = fnp.ones(4), fnp.asarray(X), fnp.full((4,), 3.0)  # uncommitted; c is closed over
    f = fx.jit(fx.shard_map(lambda w, v: v * w + c, {"i": 8}, (P(), P("i")), P("i")))
    for k in range(3):
        np.testing.assert_array_equal(np.asarray(f(w, x + k)), X + k + 3)
    assert sorted(divided) == [(), (), *[(("i",),)] * 3]
    np.testing.assert_array_equal(np.asarray(f(2 * w, x)), 2 * X + 3)
    np.testing.assert_array_equal(np.asarray(f(w, x)), X + 3)
    held = weakref.ref(w)
    del w, x
    gc.collect()
    assert held() is None


def test_trees_of_shardings_need_not_be_containers_of_python(mesh: Mesh) -> None:
    """They are prefixes of the tree of arguments, with nodes of any type."""

    @fx.tree.dataclass
    class Params:
        w: Any
        b: Any

    places = Params(NamedSharding(mesh, P("x")), {"b": SingleDeviceSharding(fx.devices()[1])})
    put = fx.device_put(Params(X, {"b": fnp.zeros(3)}), places)
    assert (put.w.sharding, put.b["b"].sharding) == (places.w, places.b["b"])


def test_layouts_are_printed(mesh: Mesh, capsys: pytest.CaptureFixture[str]) -> None:
    fx.debug.visualize_array_sharding(fx.device_put(fx.asarray(X), NamedSharding(mesh, P("y", "x"))))
    assert capsys.readouterr().out.splitlines() == [
        "(8, 4) as PartitionSpec('y', 'x')",
        "+-------+-------+-------+-------+",
        "| cpu 0 | cpu 2 | cpu 4 | cpu 6 |",
        "+-------+-------+-------+-------+",
        "| cpu 1 | cpu 3 | cpu 5 | cpu 7 |",
        "+-------+-------+-------+-------+",
    ]
    fx.debug.visualize_sharding((4,), NamedSharding(mesh, P("y")))
    assert capsys.readouterr().out.splitlines()[2] == "| cpu 0, 2, 4, 6 | cpu 1, 3, 5, 7 |"


def test_shardings_of_executables(mesh: Mesh) -> None:
    rows = NamedSharding(mesh, P("x"))
    run = fx.jit(lambda d: {"sum": d["a"] + d["b"]}, in_shardings=rows).lower({"a": X, "b": X}).compile()
    assert run.input_shardings == (({"a": rows, "b": rows},), {})
    assert run.output_shardings == {"sum": rows}
    alone = fx.jit(lambda x: x + 1).lower(X).compile()
    assert alone.input_shardings == ((SingleDeviceSharding(fx.devices()[0]),), {})


def test_a_function_is_lowered_for_the_devices_of_its_arguments(mesh: Mesh) -> None:
    """The memory of the executable is that of the program that its calls run."""
    rows, w = NamedSharding(mesh, P("x")), np.eye(64, dtype=np.float32)
    x = fx.device_put(fnp.ones((1024, 64)), rows)
    twice = fx.jit(lambda w, x: fnp.tanh(fnp.tanh(x @ w) @ w))
    divided = fx.jit(twice.fn, in_shardings=(None, rows)).lower(w, x).compile()
    run = twice.lower(w, x).compile()
    assert run.input_shardings[0][1] == run(w, x).sharding == rows
    whole = twice.lower(w, fx.Spec(x.shape, x.dtype)).compile()
    assert run.memory().temp_bytes == divided.memory().temp_bytes < whole.memory().temp_bytes
    assert run.lowered.compile().memory() == run.memory()
    assert sum([row.bytes for row in fx.explain(run).memory]) == run.memory().temp_bytes
    other = fx.devices()[3]
    assert twice.lower(w, x).compile(device=other)(w, np.asarray(x)).device == other


# ---------------------------------------------------------------------------------------------------- shard_map, pmap


def test_shard_map_as_jax_calls_it(mesh: Mesh) -> None:
    a, b = np.cos(np.arange(64.0).reshape(8, 8)), np.sin(np.arange(32.0).reshape(8, 4))

    @partial(ANY.shard_map, mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None))
    def product(a_block: Any, b_block: Any) -> Any:
        return lax.psum(a_block @ b_block, "y")

    @fx.shard_map(mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", "y"))
    def scattered(a_block: Any, b_block: Any) -> Any:
        return lax.psum_scatter(a_block @ b_block, "y", scatter_dimension=1, tiled=True)

    for f in (product, scattered, fx.jit(product)):
        np.testing.assert_allclose(np.asarray(f(a, b)), a @ b, rtol=1e-10)
    # a ring: each device passes its block on, and adds the block that it gets
    n = mesh.shape["x"]

    def ring(v: Any) -> Any:
        total = v
        for _ in range(n - 1):
            v = lax.ppermute(v, "x", [(k, (k + 1) % n) for k in range(n)])
            total = total + v
        return total

    summed = fx.shard_map(ring, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False)
    np.testing.assert_array_equal(np.asarray(summed(X)), X.reshape(4, 2, 4).sum(0))
    slope = fx.grad(lambda x: fnp.sum(fnp.sin(summed(x))))(X)
    np.testing.assert_allclose(np.asarray(slope), np.tile(np.cos(X.reshape(4, 2, 4).sum(0)), (4, 1)), rtol=1e-5)
    some = fx.shard_map(lambda v: lax.pmean(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P(), axis_names={"x"})
    np.testing.assert_array_equal(np.asarray(some(X)), X.reshape(4, 2, 4).mean(0))


def test_collectives_of_jax(mesh: Mesh) -> None:
    over = partial(ANY.shard_map, mesh=mesh)
    for varied in (lambda v: lax.pvary(v, ("x",)), lambda v: lax.pcast(v, "x", to="varying")):
        np.testing.assert_array_equal(np.asarray(over(varied, in_specs=P(), out_specs=P("x"))(X)), np.tile(X, (4, 1)))
    one = over(lambda v: lax.pbroadcast(v, "x", 2), in_specs=P("x"), out_specs=P())
    np.testing.assert_array_equal(np.asarray(one(X)), X[4:6])
    square: Any = np.arange(16.0).reshape(4, 4)
    turned = fx.vmap(lambda v: lax.pswapaxes(v, "i", 0), axis_name="i")(square)
    np.testing.assert_array_equal(np.asarray(turned), square.T)
    assert over(lambda v: v * lax.axis_size(("x", "y")), in_specs=P(), out_specs=P())(np.ones(1))[0] == 8


def test_pmap_as_jax_calls_it() -> None:
    @partial(ANY.pmap, axis_name="i")
    def normalized(v: Any) -> Any:
        return v / lax.psum(v, "i")

    np.testing.assert_allclose(np.asarray(normalized(X + 1)), (X + 1) / (X + 1).sum(0), rtol=1e-6)
    scaled = fx.pmap(lambda v, n: v * n, in_axes=(0, None), static_broadcasted_argnums=(1,))
    np.testing.assert_array_equal(np.asarray(scaled(X, 3)), X * 3)
    x = fx.device_put(X, NamedSharding(make_mesh((8,), ("pmap0",)), P("pmap0")))
    y = fx.pmap(lambda v: v + 1, donate_argnums=(0,))(x)
    np.testing.assert_array_equal(np.asarray(y), X + 1)
    assert x.is_deleted()
    back: Any = fx.pmap(lambda v: v + 1, devices=fx.devices()[::-1], backend="cpu")(X)
    assert [s.device.id for s in back.addressable_shards] == [7, 6, 5, 4, 3, 2, 1, 0]
    np.testing.assert_array_equal(np.asarray(back), X + 1)


def scaled_part(v: Any, n: Any) -> Any:
    return v[..., :n] * n


@pytest.mark.parametrize("over", [fx.pmap, fx.soft_pmap])
def test_static_arguments_of_a_map_over_devices(over: Any) -> None:
    want = X[:, :2] * 2
    in_axes: Any = {"in_axes": (0, None)}
    calls: list[Callable[[], Any]] = [
        # regression: an outer transformation did not see what the map declares static
        lambda: fx.jit(over(scaled_part, static_argnums=1))(X, 2),
        lambda: fx.jit(over(fx.jit(scaled_part, static_argnums=1)))(X, 2),
        lambda: fx.jit(over(scaled_part, static_argnames="n"))(X, n=2),
        # regression: the map traced a number that the function needs, and `vmap` does not
        lambda: over(scaled_part, **in_axes)(X, 2),
    ]
    if over is fx.pmap:  # regression: static_argnames was lost beside donate_argnums
        donating: Any = fx.pmap(scaled_part, static_argnames="n", donate_argnums=0)
        np.testing.assert_array_equal(np.asarray(donating(X, n=4)), X * 4)
    for call in calls:
        np.testing.assert_array_equal(np.asarray(call()), want)
    np.testing.assert_array_equal(np.asarray(fx.vmap(scaled_part, **in_axes)(X, 2)), want)


def test_devices_of_a_soft_pmap_are_distinct_devices() -> None:
    for devices, message in (
        (fx.devices()[:1] * 2, "soft_pmap of cos: devices has a device twice"),
        (True, "soft_pmap: devices must be a sequence, got a bool: True"),
        (1.5, "soft_pmap: devices must be a sequence, got a float: 1.5"),
    ):
        with pytest.raises(FxadError) as e:
            ANY.soft_pmap(fnp.cos, devices=devices)(X)
        assert e.value.message == message
        assert e.value.remedy in ("give distinct devices, or their number", "give a tuple or a list")


def test_results_that_depend_on_no_argument_are_on_each_device() -> None:
    c: Any = np.array([1.0, 2.0])
    y: Any = fx.pmap(lambda v: {"a": 3, "b": c, "c": c}, out_axes={"a": 0, "b": 1, "c": None})(X)
    want = fx.vmap(lambda v: {"a": 3, "b": c, "c": c}, out_axes={"a": 0, "b": 1, "c": None})(X)
    for key, x in want.items():
        assert y[key].dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(y[key]), np.asarray(x))
    assert [s.data.shape for s in y["b"].addressable_shards] == [(2, 1)] * 8
    np.testing.assert_array_equal(np.asarray(fx.jit(fx.pmap(lambda v: c))(X)), np.tile(c, (8, 1)))
    with pytest.raises(ParameterError, match="it runs on 16 devices"):
        fx.pmap(lambda v: 3)(np.ones(16))


def test_python_numbers_in_data_of_many_devices_have_the_dtypes_of_fxad() -> None:
    sharding = NamedSharding(make_mesh((8,), ("i",)), P("i"))
    ints: Any = fx.make_array_from_callback((8,), sharding, lambda _: [1])
    assert ints.dtype == "int32"
    assert fx.make_array_from_callback((8,), sharding, lambda _: [1], "int8").dtype == "int8"  # `dtype` as in JAX
    floats = fx.make_array_from_process_local_data(sharding, [0.5] * 8)
    assert floats.dtype == "float32"
    assert fx.make_array_from_process_local_data(sharding, np.ones(8)).dtype == "float64"
    with pytest.raises(FxadError) as e:
        fx.make_array_from_callback((8,), sharding, lambda _: ["a"])
    assert e.value.message == "asarray: an element: a str is not an array: 'a'"


# ----------------------------------------------------------------------------------------------------------- soft_pmap


@share(3)
@given(cases(steps=COLLECTIVE_STEPS, size=5, depth=1))
def test_an_axis_split_between_devices_equals_vmap(case: Case) -> None:
    check_split_axis(case, compiled=True)


@pytest.mark.parametrize(("in_axes", "out_axes"), [(0, 0), ((0, None), 1), ((1, 0), -1)])
@pytest.mark.parametrize("devices", [None, 1, 2, 8])
def test_soft_pmap_equals_vmap(in_axes: Any, out_axes: Any, devices: int | None) -> None:
    def f(x: Any, y: Any) -> Any:
        k = lax.axis_index("d").astype("float32")
        turned = lax.ppermute(x, "d", [(i, (i + 3) % 24) for i in range(24)])
        return {"a": x * k + lax.psum(x, "d") + turned, "b": fnp.sum(y) + k}

    x: Any = np.cos(np.arange(24 * 24.0)).reshape(24, 24)
    have = fx.soft_pmap(f, "d", in_axes=in_axes, out_axes=out_axes if out_axes == 0 else {"a": out_axes, "b": 0},
                        devices=devices)(x, x)  # fmt: skip
    want = fx.vmap(f, in_axes, out_axes if out_axes == 0 else {"a": out_axes, "b": 0}, axis_name="d")(x, x)
    for key in want:
        np.testing.assert_allclose(np.asarray(have[key]), np.asarray(want[key]), rtol=1e-10)


def test_soft_pmap_among_transformations() -> None:
    x: Any = np.linspace(0.1, 2, 24)

    def f(v: Any) -> Any:
        return v / lax.psum(v * v, "d") + lax.pmax(v, "d")

    soft, plain = fx.soft_pmap(f, "d"), fx.vmap(f, axis_name="d")
    pairs: list[tuple[Callable[[Any], Any], Any]] = [
        (lambda m: fx.jit(m)(x), None),
        (lambda m: fx.grad(lambda u: fnp.sum(m(u) ** 2))(x), None),
        (lambda m: fx.vmap(m)(np.stack([x, 2 * x])), None),
        (lambda m: lax.scan(lambda c, _: (m(c), None), fnp.asarray(x), None, length=3)[0], None),
        (lambda m: fx.jit(fx.grad(lambda u: fnp.sum(fx.remat(m)(u))))(x), None),
    ]
    for around, _ in pairs:
        np.testing.assert_allclose(np.asarray(around(soft)), np.asarray(around(plain)), rtol=1e-9)
    inside = fx.soft_pmap(fx.grad(lambda v: lax.psum(v * v, "d")), "d")(x)
    np.testing.assert_allclose(np.asarray(inside), 48 * x, rtol=1e-10)
    total = fx.soft_pmap(lambda v: lax.psum(v, "d"), "d", out_axes=None)(x)
    np.testing.assert_allclose(np.asarray(total), x.sum(), rtol=1e-12)
    run: Any = fx.jit(soft)(x)
    assert run.sharding.num_devices == 8
    assert [s.data.shape for s in run.addressable_shards] == [(3,)] * 8
    nested = fx.pmap(lambda row: fx.soft_pmap(lambda v: v - lax.pmean(v, ("r", "d")), "d")(row), "r")
    y = x.reshape(2, 12)
    np.testing.assert_allclose(np.asarray(nested(y)), y - y.mean(), atol=1e-12)


def test_groups_may_cross_devices() -> None:
    x: Any = np.arange(12.0)
    groups = [[0, 5, 10, 3], [4, 1, 2, 11], [6, 9, 8, 7]]

    def f(v: Any) -> Any:
        return lax.psum(v, "d", axis_index_groups=groups), lax.all_gather(v, "d", axis_index_groups=groups)

    have, want = fx.soft_pmap(f, "d", devices=4)(x), fx.vmap(f, axis_name="d")(x)
    for a, b in zip(have, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_soft_pmap_of_a_program() -> None:
    program = fx.trace(lambda v: v - lax.pmean(v, "d"), np.float64(1), axis_env={"d": 16})
    x: Any = np.arange(16.0)
    mapped: Any = fx.soft_pmap(program, "d", axis_size=16, devices=4)
    assert fx.soft_pmap(program, "d", axis_size=16, devices=4).jaxpr is mapped.jaxpr
    np.testing.assert_array_equal(np.asarray(mapped(x)), x - x.mean())
    of_its_size: Any = fx.soft_pmap(program, "d", devices=4)
    assert of_its_size.jaxpr is mapped.jaxpr


@pytest.mark.parametrize("over", [fx.vmap, fx.pmap, fx.soft_pmap])
def test_a_program_is_mapped_over_the_size_it_was_traced_with(over: Any) -> None:
    program = fx.trace(lambda v: v - lax.pmean(v, "d"), np.float64(1), axis_env={"d": 8})
    x: Any = np.arange(8.0)
    mapped = over(program, axis_name="d")
    assert mapped.jaxpr is over(program, axis_name="d", axis_size=8).jaxpr
    np.testing.assert_array_equal(np.asarray(mapped(x)), x - x.mean())


@pytest.mark.parametrize("over", [fx.vmap, fx.pmap, fx.soft_pmap])
def test_arguments_tell_the_size_of_a_map_of_a_program(over: Any) -> None:
    x: Any = np.arange(8.0)
    mapped = over(fx.trace(lambda v: 2 * v, np.float64(1)))
    for n in (8, 4):
        np.testing.assert_array_equal(np.asarray(mapped(x[:n])), 2 * x[:n])


def doubled(v: Any) -> Any:
    return v * 2 + fnp.max(v)


@pytest.mark.parametrize("outer", [fx.pmap, fx.soft_pmap])
@pytest.mark.parametrize("inner", [fx.pmap, fx.soft_pmap])
def test_nested_maps_without_axis_names(inner: Any, outer: Any) -> None:
    """Regression: a map that was traced before has the name that the outer one would choose. fxad took the axes of both
    for the same one, and the values were wrong."""
    x: Any = np.arange(16.0).reshape(2, 4, 2)
    want = np.asarray(fx.vmap(fx.vmap(doubled))(x))
    jitted, program = fx.jit(inner(doubled)), fx.trace(inner(doubled), x[0])
    jitted(x[0])
    twice = fx.jit(outer(lambda row: jitted(row)))
    for f in (twice, outer(lambda row: program(row)), outer(program), outer(program, axis_size=2)):
        np.testing.assert_array_equal(np.asarray(f(x)), want)
    np.testing.assert_array_equal(np.asarray(outer(lambda row: twice(row))(x[None])), want[None])
    np.testing.assert_array_equal(np.asarray(fx.interpret(fx.trace(outer(program), x), x)), want)


def test_an_axis_name_that_an_inner_map_binds_too() -> None:
    """Also if the inner map was traced before, outside."""
    inside: Any = fx.jit(fx.pmap(doubled, "i"))
    inside(X[:2])
    for f in (fx.pmap(lambda v: inside(v), "i"), fx.shard_map(lambda v: inside(v[0])[None], {"i": 2}, P("i"), P("i"))):
        with pytest.raises(AxisNameError) as e:
            f(np.stack([X[:2], X[:2]]))
        assert e.value.message == "shard_map: axis name 'i' is in use by a map around it"


def over_devices(f: Any) -> list[Any]:
    """Returns maps of a function of a row over the devices of axis i."""
    rows = P("i")
    return [fx.pmap(f, "i"), fx.shard_map(lambda x: f(x[0])[None], {"i": 8}, rows, rows)]


def test_devices_run_the_function_and_not_its_batching_rule() -> None:
    """Regression: the batching rule decided whether a result varies. A rule that loops over examples was refused, one
    that raises an error raised it, and one that declares a result unbatched was believed."""

    @sequential_vmap
    def share(v: Any) -> Any:
        return v * lax.axis_index("i") / lax.psum(v, "i")

    @fx.custom_vmap
    def refusing(v: Any) -> Any:
        return 2 * v

    @refusing.def_vmap
    def _(n: int, batched: Any, v: Any) -> Any:
        raise ValueError("no batches")

    for f in over_devices(share):
        want = X * np.arange(8)[:, None] / X.sum(0)
        np.testing.assert_allclose(np.asarray(fx.jit(f)(X)), want, rtol=1e-6)
    for f in over_devices(refusing):
        np.testing.assert_array_equal(np.asarray(fx.jit(f)(X)), 2 * X)
    with pytest.raises(ValueError, match="no batches"):
        fx.vmap(refusing)(X)


def test_a_batching_rule_does_not_decide_whether_a_result_varies() -> None:
    @fx.custom_vmap
    def doubled(v: Any) -> Any:
        return 2 * v

    @doubled.def_vmap
    def _(n: int, batched: Any, v: Any) -> Any:
        return 2 * v[0], False

    with pytest.raises(ShapeError) as e:
        fx.pmap(doubled, "i", out_axes=None)(X)
    assert e.value.message == "pmap of doubled: result differs along axis 'i', but its out_axes is None"


def test_devices_that_run_a_branch_read_their_index() -> None:
    """Regression: examples in a loop do not know their index, and the check of maps treated devices like examples."""

    def halved(v: Any) -> Any:
        def back(u: Any) -> Any:
            return fx.io_callback(lambda w: w, fx.Spec(u.shape, u.dtype), u)

        return lax.cond(v[0] > 2, lambda u: u * lax.axis_index("i"), back, v)

    want = np.where(X[:, :1] > 2, X * np.arange(8)[:, None], X)
    for f in over_devices(halved):
        np.testing.assert_array_equal(np.asarray(fx.jit(f)(X)), want)


def test_a_soft_map_in_a_shard_map_uses_the_other_axes(mesh: Mesh) -> None:
    """It uses also the devices along axes that the outer map does not name."""

    def centred(v: Any) -> Any:
        return fx.soft_pmap(lambda u: u - lax.pmean(u, ("x", "i")), "i")(v)

    over_x = fx.shard_map(centred, mesh, P("x"), P("x"), axis_names={"x"})
    np.testing.assert_allclose(np.asarray(fx.jit(over_x)(X)), X - X.mean(0), atol=1e-5)


@pytest.mark.parametrize("name", ["é", "\u00b5", "a b", 'a"b\n', "\x01", "*", "軸", "%41."])
def test_an_axis_may_have_any_name(name: str) -> None:
    """Regression: MLIR did not parse names beyond ASCII, and XLA crashes on their escapes."""
    total = fx.shard_map(lambda v: lax.psum(v, name), {name: 8}, P(name), P())
    np.testing.assert_array_equal(np.asarray(fx.jit(total)(X)), X.sum(0, keepdims=True))
    y = fx.device_put(X, NamedSharding(make_mesh((8,), (name,)), P(name)))
    assert (y + 1).sharding == y.sharding

    def inner(v: Any) -> Any:
        return fx.pmap(lambda w: lax.psum(w, name), "inner")(v)

    nested = np.asarray(fx.jit(fx.pmap(inner, name))(X[:2, :2]))  # it was taken for the name of an axis that fxad adds
    np.testing.assert_array_equal(nested, np.tile(X[:2, :2].sum(0), (2, 1)))


# --------------------------------------------------------------------------------------------------------- nan is kept


FLOATS = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("place", [None, 0, 5])
def test_extrema_of_devices_are_nan_if_one_is(dtype: str, place: int | None) -> None:
    """XLA's collectives on CPUs ignore nan."""
    values = np.array([-3.0, 2.0, 0.5, -0.25, np.inf if dtype[:6] != "float8" else 6.0, 1.0, -2.0, 0.0])
    if place is not None:
        values[place] = np.nan
    x: Any = fx.asarray(values).astype(dtype)
    want = [np.full(8, f(values), np.float64) for f in (np.max, np.min)]

    def extrema(v: Any) -> tuple[Any, Any]:
        return lax.pmax(v, "i"), lax.pmin(v, "i")

    for f in (ANY.pmap, ANY.vmap):
        for have, wanted in zip(f(extrema, axis_name="i")(x), want, strict=True):
            np.testing.assert_array_equal(np.asarray(have.astype("float64")), wanted)


def test_extrema_of_divided_arrays_are_nan_if_one_element_is() -> None:
    rows = NamedSharding(make_mesh((8,), ("i",)), P("i"))
    places = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    x = np.array(X)
    x[3, 1] = np.nan

    def extrema(x: Any) -> list[Any]:
        low = fnp.zeros((2, 4), "float32")
        return [
            fnp.max(x), fnp.min(x), fnp.max(x, 0), fnp.min(x, 1), lax.reduce_max(x[:, :0], axes=(1,)),
            low.at[places].max(x), low.at[places].min(x),
            lax.cond(x[0, 0] > 1, lambda x: fnp.min(x, 0), lambda x: fnp.max(x, 0), x),
        ]  # fmt: skip

    for have, want in zip(fx.jit(extrema)(fx.device_put(x, rows)), extrema(x), strict=True):
        np.testing.assert_array_equal(np.asarray(have), np.asarray(want))
    inside = fx.shard_map(lambda v: lax.pmax(fnp.max(v), "i"), {"i": 8}, P("i"), P())
    assert np.isnan(np.asarray(fx.jit(inside)(x)))
    assert fx.lower(fx.trace(inside, x)).text().count("stablehlo.maximum") == 2  # of floats, then of integers


# ------------------------------------------------------------------------------------- a map inside names other axes


def over_one_axis_each(over_x: Callable[[Any], Any], over_y: Callable[[Any], Any], inside: Any, around: Any) -> Any:
    """Returns a map over y in a map over x."""

    def step(v: Any) -> Any:
        return fnp.tanh(v) * lax.psum(v * v, "y") + lax.pmean(v, ("x", "y")) * lax.axis_index("x")

    inner = over_y(inside(step))
    return around(over_x(lambda v: inner(v * 2 + lax.pmax(v, "x"))))


def called_on_host(f: Any) -> Any:
    return lambda v: f(v) + fx.pure_callback(lambda u: u, fx.Spec(v.shape, v.dtype), lax.stop_gradient(v))


WITHIN: dict[str, Any] = {
    "plain": lambda f: f,
    "jit": fx.jit,
    "remat": fx.remat,
    "scan": lambda f: lambda v: lax.scan(lambda c, _: (0.5 * f(c), None), v, None, length=2)[0],
    "while": lambda f: lambda v: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, 0.5 * f(c[1])), (0, v))[1],
    "cond": lambda f: lambda v: lax.cond(fnp.asarray(True), f, lambda u: u, v),
    "vmap": lambda f: lambda v: fx.vmap(f, in_axes=1, out_axes=1)(fnp.stack([v, 2 * v], 1)).sum(1),
    "check": lambda f: lambda v: fx.error_if(f(v), fnp.any(v > 1e6), "too large"),
    "host": called_on_host,
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("inside", WITHIN)
@pytest.mark.parametrize("around", ["plain", "scan", "vmap"])
def test_nested_shard_maps_over_different_axes(mesh: Mesh, inside: str, around: str) -> None:
    """Regression: along an axis that the outer map does not name all devices have the same values, and the inner map
    divides them. It took further devices, or XLA rejected its groups."""
    x: Any = np.linspace(-1, 1, 16)
    mapped, single = [
        over_one_axis_each(over_x, over_y, WITHIN[inside], WITHIN[around])
        for over_x, over_y in (
            [lambda f, a=a: fx.shard_map(f, mesh, P(a), P(a), axis_names={a}) for a in ("x", "y")],
            [
                lambda f, a=a, n=n: lambda v: fx.vmap(f, axis_name=a)(v.reshape(n, -1)).reshape(v.shape)
                for a, n in (("x", 4), ("y", 2))
            ],
        )
    ]

    def both(f: Any) -> Any:
        differentiable = inside not in ("while", "host")
        return lambda x: (f(x), fx.grad(lambda x: fnp.sum(f(x) ** 2))(x) if differentiable else 0)

    program = fx.trace(both(mapped), x)
    have, want = program(x), both(single)(x)
    assert have[0].sharding.num_devices == 8
    for found in (have, fx.interpret(program, x)):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-12)


# ----------------------------------------------------------------------------------------------------------- bad input


def _parts(m: Mesh, *shapes: tuple[int, ...]) -> list[Any]:
    return [fx.device_put(np.zeros(s, "float32"), d) for s, d in zip(shapes, fx.devices(), strict=False)]


ROWS = [(2, 4)] * 8
REFUSED = [
    (lambda m: make_mesh((4, 2), ("x", "y"), (AxisType.Explicit,) * 2), ParameterError,
     f"make_mesh: axis_types is {(AxisType.Explicit,) * 2!r:.80}, and all axes of a mesh are AxisType.Auto",
     ("leave it out, and divide values with in_shardings or with_sharding_constraint; shard_map makes the axes of its"
      " mesh manual")),
    (lambda m: make_mesh((4, 2), ("x", "y"), (AxisType.Auto,)), ParameterError,
     "make_mesh: axis_types has 1 entries for 2 axes", "give one for each axis, or none"),
    (lambda m: fx.vmap(fx.shard_map(lambda v: 2 * v, m, P("x"), P("x")), in_axes=1, spmd_axis_name="y")(X),
     AxisNameError, "vmap: spmd_axis_name 'y' cannot divide the new axis of a map over the devices of {'x': 4, 'y': 2}",
     "map inside of shard_map, and name the axis in its specs; or leave spmd_axis_name out"),
    (lambda m: WRONG.set_mesh(3), ArgumentError, "set_mesh: an int is not a Mesh: 3", "use make_mesh"),
    (lambda m: fx.device_put(X, P("x")), ParameterError, "device_put: PartitionSpec('x') has no mesh",
     "give NamedSharding(mesh, spec), or call it in `with mesh:`"),
    (lambda m: fx.shard_map(lambda v: v, in_specs=P(), out_specs=P())(X), ParameterError,
     "shard_map of <lambda>: it has no mesh", "give mesh=, or call it in `with mesh:`"),
    (lambda m: WRONG.shard_map(lambda v: v, m, out_specs=P())(X), ArgumentError, "shard_map: in_specs is missing",
     "give a PartitionSpec for each argument and result: P() is whole"),
    (lambda m: fx.shard_map(lambda v: v, m, P(), P(), axis_names={"z"})(X), AxisNameError,
     "shard_map of <lambda>: axis_names has 'z', the mesh has 'x', 'y'", "name axes of the mesh"),
    (lambda m: fx.shard_map(lambda v: v, m, P("y"), P("y"), axis_names={"x"})(X), AxisNameError,
     "shard_map of <lambda>: argument v: PartitionSpec('y') names axis 'y', the mesh has 'x'", "name axes of the mesh"),
    (lambda m: fx.pmap(lambda v: v, devices=fx.devices()[:3])(X), ParameterError,
     "pmap of <lambda>: the axis has size 8, devices has 3", "give one device for each index"),
    (lambda m: WRONG.pmap(lambda v: v, global_arg_shapes=((8, 4),)), ParameterError,
     "pmap: global_arg_shapes=((8, 4),) is not supported",
     "pass arrays of all processes: make_array_from_process_local_data"),
    (lambda m: fx.pmap(lambda v: v, backend="tpu"), ParameterError, "pmap: backend='tpu' is not supported",
     "give devices=fxad.devices(backend)"),
    (lambda m: WRONG.pmap(fx.trace(lambda v: v + 1, X[0]), axis_size=8, donate_argnums=0), ArgumentError,
     "pmap of <lambda>: donate_argnums is for functions", "donate when it is compiled: jit(pmap(p), donate=...)"),
    (lambda m: WRONG.pmap(fx.trace(lambda v: v + 1, X[0]), axis_size=8, static_argnums=0), ArgumentError,
     "pmap: <lambda> is a Program, which has no static arguments",
     "pmap the function, or give them to trace as static_argnames"),
    (lambda m: fx.soft_pmap(lambda v: v, devices=3)(X), ShapeError,
     "soft_pmap of <lambda>: the axis has size 8, which 3 devices do not divide",
     "pad the axis, or give another number of devices"),
    (lambda m: fx.soft_pmap(lambda v: v, devices=0)(X), ParameterError, "soft_pmap of <lambda>: devices is 0",
     "give one device or more, or their number"),
    (lambda m: fx.soft_pmap(lambda v: v, "d", out_axes=None)(X), ShapeError,
     "soft_pmap of <lambda>: result differs along axis 'd', but its out_axes is None",
     "combine it, with psum or all_gather over 'd', or give the place of the axis in out_axes"),
    (lambda m: fx.make_array_from_single_device_arrays((8, 4), NamedSharding(m, P("x")), _parts(m, *ROWS[:7])),
     PlacementError,
     ("make_array_from_single_device_arrays: 7 parts are on cpu:0, cpu:1, cpu:2, cpu:3, cpu:4, cpu:5, cpu:6, the"
     " sharding has cpu:0, cpu:1, cpu:2, cpu:3, cpu:4, cpu:5, cpu:6, cpu:7"),
     "give one part for each device of this process"),
    (lambda m: fx.make_array_from_single_device_arrays((8, 4), NamedSharding(m, P("x")), _parts(m, *ROWS[:7], (1, 4))),
     ShapeError,
     "make_array_from_single_device_arrays: the part on cpu:7 is f32[1,4], an array of shape (8, 4) has parts f32[2,4]",
     "give the parts that sharding.devices_indices_map(shape) lists"),
    (lambda m: WRONG.make_array_from_single_device_arrays((8, 4), NamedSharding(m, P("x")), [X]), ArgumentError,
     f"make_array_from_single_device_arrays: arrays[0] is an ndarray: {X!r:.60}",
     "put each part on its device: device_put"),
    (lambda m: fx.make_array_from_callback((8, 4), NamedSharding(m, P("x")), lambda at: X[0]), ShapeError,
     "make_array_from_callback: the part on cpu:0 is f32[4], an array of shape (8, 4) has parts f32[2,4]",
     "give the parts that sharding.devices_indices_map(shape) lists"),
    (lambda m: fx.make_array_from_callback(
        (8, 4), NamedSharding(m, P("x")), lambda at: X[at].astype("int32" if at[0].start else "float32")), DTypeError,
     "make_array_from_callback: the part on cpu:2 is i32[2,4], the part on cpu:0 f32[2,4]",
     "give parts of one dtype"),
    (lambda m: fx.shard_map(lambda v: lax.pbroadcast(v, "x", 4), m, P("x"), P())(X), ParameterError,
     "pbroadcast: source is 4, there are 4 indices of 'x'", "give an index"),
    (lambda m: fx.shard_map(lambda v: lax.pcast(v, "x", to="reduced"), m, P("x"), P("x"))(X), ParameterError,
     "pcast: to is 'reduced'", 'give to="varying": psum, pmean or pmax make values equal'),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message", "remedy"), REFUSED, ids=[m[:40] for _, _, m, _ in REFUSED])
def test_refused(mesh: Mesh, call: Callable[[Mesh], object], kind: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(kind) as e:
        call(mesh)
    assert (e.value.message, e.value.remedy) == (message, remedy)
