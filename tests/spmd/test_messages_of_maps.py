"""Messages of meshes, specs and maps over devices, word for word, on one device."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import lax
from fxad.core.builder import Builder
from fxad.errors import ArgumentError, AxisError, AxisNameError, FxadError, ParameterError, ShapeError
from fxad.ir import Aval, Jaxpr
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.elementwise import SIN
from fxad.sharding import Mesh, NamedSharding, PartitionSpec

P: Any = PartitionSpec  # also for arguments of wrong types
X: Any = np.zeros((4, 2), np.float32)
MESH: Any = {"i": 2, "j": 1}
EMPTY = Mesh([], "i")
WRONG: Any = fx
WRONG_PAIRS: Any = [(0, 1, 2)]


IN_AXES = "in_axes gives the mapped axis of each argument; None is for an argument that is the same for all"
THERE = "is 1" if len(fx.devices("cpu")) == 1 else f"are {len(fx.devices('cpu'))}"


def f(x: Any) -> Any:
    return x


def g(p: Any, q: Any) -> Any:
    return p["u"], q


def sine() -> Jaxpr:
    b = Builder()
    return b.build([b.one(SIN, b.input(Aval((2, 2), "float32")))], "sine")


def summed(size: int) -> Any:
    """A map over axis i of size 2, of a program traced for another size."""
    program = fx.trace(lambda x: lax.psum(x, "i"), X[:2], axis_env={"i": size})
    return ShardMap(program.jaxpr, (("i", 2),), 0, ((("i",),),), ((),)).abstract_eval(Aval((4, 2), "float32"))


def summing() -> Any:
    """A program traced with axis i of size 2."""

    def total(x: Any) -> Any:
        return lax.psum(x, "i")

    return fx.trace(total, X[0], axis_env={"i": 2})


def bound(mesh: Any, spec: Any) -> Any:
    return over(mesh, spec).abstract_eval(Aval((4, 2), "float32"))


def over(mesh: Any, spec: Any) -> ShardMap:
    return ShardMap(sine(), mesh, 0, (spec,), (spec,))


def batched() -> Any:
    context: Any = SimpleNamespace(axis="i", spmd=())
    return over((("i", 2),), (("i",),)).batch(context, (), ())


WRONG_NAMES: Any = ([1],)
NO_SHARDING: Any = None
MESH_OF_ONE: Any = Mesh(fx.devices()[:1], "i")
ERRORS: list[tuple[Callable[[], Any], type[FxadError], str, str]] = [
    (lambda: P(3), ArgumentError, "PartitionSpec: an entry is an int: 3",
     "give a name, a tuple of names, or None for each axis"),
    (lambda: Mesh(fx.devices()[:1], ("i", "j")), ShapeError,
     "Mesh: the devices have 1 axes, axis_names ('i', 'j') has 2", "name each axis of the array of devices"),
    (lambda: Mesh([fx.devices()[:1]], ("i", "i")), AxisNameError,
     "Mesh: axis_names ('i', 'i') are not distinct strings", "name each axis once"),
    (lambda: Mesh(fx.devices()[:1], "?"), AxisNameError,
     "Mesh: an axis is named '?', which is PartitionSpec.UNCONSTRAINED", "give it another name"),
    (lambda: fx.pmap(f, "?")(X), AxisNameError,
     "shard_map: an axis is named '?', which is PartitionSpec.UNCONSTRAINED", "give it another name"),
    (lambda: fx.pmap(lambda v: lax.ppermute(v, "i", WRONG_PAIRS), "i")(X), ArgumentError,
     "ppermute: perm[0] is (0, 1, 2), not a pair", "give pairs (source, target) of indices"),
    (lambda: Mesh(fx.devices()[:1], WRONG_NAMES), AxisNameError,
     "Mesh: axis_names ([1],) are not distinct strings", "name each axis once"),
    (lambda: fx.device_put(X, NamedSharding(MESH_OF_ONE, P(P.UNCONSTRAINED, "i"))), ParameterError,
     "device_put: x: PartitionSpec(UNCONSTRAINED, 'i') leaves an axis to XLA",
     "name an axis of the mesh or give None; UNCONSTRAINED is for with_sharding_constraint"),
    (lambda: NamedSharding(MESH_OF_ONE, P()).is_equivalent_to(NO_SHARDING, 1), ArgumentError,
     "is_equivalent_to: a NoneType is not a sharding: None", "give x.sharding"),
    (lambda: Mesh([fx.devices()[0]] * 2, ("i",)), ParameterError,
     "Mesh: a device is there twice", "give each device once"),
    (lambda: NamedSharding(EMPTY, P()), ParameterError,
     "NamedSharding: Mesh({'i': 0}) has no devices", "give a mesh with at least one device: make_mesh"),
    (lambda: fx.shard_map(f, EMPTY, P(), P())(X), ParameterError,
     "shard_map of f: Mesh({'i': 0}) has no devices", "give a mesh with at least one device: make_mesh"),
    (lambda: WRONG.sharding.make_mesh(8, ("i",)), ArgumentError,
     "make_mesh: axis_shapes must be a sequence, got an int: 8", "give a tuple or a list"),
    (lambda: fx.make_mesh((-1,), ("i",)), ParameterError,
     "make_mesh: axis_shapes (-1,) has an axis without devices", "give sizes from 1 on"),
    (lambda: fx.pmap(lambda x, n, m: x, static_argnums=1, static_broadcasted_argnums=2), ArgumentError,
     "pmap: static_argnums and static_broadcasted_argnums are both given",
     "give all static arguments in static_argnums"),
    (lambda: WRONG.debug.visualize_array_sharding(3), ArgumentError,
     "visualize_array_sharding: x is an int, not an Array: 3", "put it on a device: device_put(x)"),
    (lambda: WRONG.shard_map(f, 3, P(), P())(X), ArgumentError,
     "shard_map of f: mesh is an int: 3", 'give a Mesh, or names and sizes: {"i": 8}'),
    (lambda: fx.shard_map(f, MESH, P("k"), P())(X), AxisNameError,
     "shard_map of f: argument x: PartitionSpec('k') names axis 'k', the mesh has 'i', 'j'", "name axes of the mesh"),
    (lambda: fx.shard_map(f, MESH, P("i", "i"), P())(X), AxisNameError,
     "shard_map of f: argument x: PartitionSpec('i', 'i') names axis 'i' twice", "divide one axis by it"),
    (lambda: fx.shard_map(f, MESH, P("i", None, "j"), P())(X), ShapeError,
     "shard_map of f: argument x: PartitionSpec('i', None, 'j') has 3 entries, f32[4,2] has 2 axes",
     "give at most one entry for each axis"),
    (lambda: fx.shard_map(f, MESH, (P(), P()), P())(X), ArgumentError,
     "shard_map of f: in_specs has 2 entries for 1 arguments", "give one PartitionSpec per argument, or one for all"),
    (lambda: fx.shard_map(fx.trace(lambda *, x: x, x=X), MESH, P(), P()), ArgumentError,
     "shard_map of <lambda>: in_specs: keyword arguments are not divided", "pass arguments by position"),
    (lambda: fx.pmap(summing(), "i", axis_size=3), AxisNameError,
     "pmap of total: axis_size is 3, the program was traced with axis 'i' of size 2",
     "trace it with axis_env={'i': 3}, or map over 2 examples"),
    (lambda: fx.soft_pmap(summing(), "i", axis_size=3), AxisNameError,
     "soft_pmap of total: axis_size is 3, the program was traced with axis 'i' of size 2",
     "trace it with axis_env={'i': 3}, or map over 2 examples"),
    (lambda: bound((("i", 2), ("i", 1)), (("i",),)), AxisNameError,
     "shard_map: mesh (('i', 2), ('i', 1)) names an axis twice", "name each axis once"),
    (lambda: bound((("", 2),), (("",),)), AxisNameError,
     "shard_map: mesh (('', 2),) has an axis without a name", "give each axis a name"),
    (lambda: bound((("i", 0),), (("i",),)), ShapeError,
     "shard_map: mesh (('i', 0),) has an axis without devices", "give sizes from 1 on"),
    (lambda: bound((("i", 2),), (("k",),)), AxisNameError,
     "shard_map: spec (('k',),): mesh {'i': 2} has no axis 'k'", "name axes of the mesh, each at most once"),
    (lambda: bound((("i", 2),), (("i",), (), ())), ShapeError,
     "shard_map: spec (('i',), (), ()) has 3 entries for the 2 axes of f32[2,2]",
     "give at most one entry for each axis"),
    (lambda: fx.pmap(g)({"u": X, "v": X[:3]}, X), ShapeError,
     "pmap of g: sizes of the mapped axis differ: 4: axis 0 of p['u'], f32[4,2], axis 0 of q, f32[4,2]; 3: axis 0 of p['v'], f32[3,2]",  # noqa: E501
     IN_AXES),
    (lambda: fx.pmap(f, axis_size=3)(X), ShapeError,
     "pmap of f: sizes of the mapped axis differ: 3: axis_size; 4: axis 0 of x, f32[4,2]", IN_AXES),
    (lambda: fx.pmap(g)({"u": X, "v": np.float32(1)}, X), AxisError,
     "pmap of g: argument p['v']: axis 0 does not exist in an array with 0 axes", IN_AXES),
    (lambda: fx.pmap(f, in_axes=2)(X), AxisError,
     "pmap of f: argument x: axis 2 does not exist in an array with 2 axes", IN_AXES),
    (lambda: fx.pmap(f, out_axes=3)(X), AxisError,
     "pmap of f: result: axis 3 does not exist in an array with 2 axes",
     "out_axes gives the place of the mapped axis in each result, which has it besides its own axes"),
    (lambda: fx.pmap(f, in_axes=None)(X), ArgumentError,
     "pmap of f: no argument is mapped", "give in_axes an int, or pass axis_size"),
    (lambda: fx.pmap(lambda: 3, "i")(), ArgumentError,
     "pmap of <lambda>: no argument is mapped", "give in_axes an int, or pass axis_size"),
    (lambda: fx.pmap(lambda x: {"a": 2 * x}, "i", out_axes={"a": None})(X), ShapeError,
     "pmap of <lambda>: result['a'] differs along axis 'i', but its out_axes is None",
     "combine it, with psum or all_gather over 'i', or give the place of the axis in out_axes"),
    (lambda: fx.pmap(f, "i", out_axes="i")(X), ArgumentError,
     "pmap of f: out_axes is a str: 'i'",
     "an entry is an int, or None for what is not mapped: give one for all, or a tree of them"),
    (lambda: fx.pmap(f, "i", in_axes=(0, 0))(X), ArgumentError,
     "pmap of f: in_axes has 2 entries for 1 positional argument",
     "give one entry per positional argument, or one int for all; keyword arguments are mapped over axis 0"),
    (lambda: fx.pmap(lambda x: lax.psum(x, "k"), "i")(X), AxisNameError,
     "psum: no map around binds axis 'k'; axes in scope: 'i'",
     "name the axis of a map: vmap(f, axis_name='k'), or give its size to trace: trace(f, x, axis_env={'k': 8})"),
    (lambda: fx.pmap(lambda w: fx.pmap(f, "i")(w), "i")(X), AxisNameError,
     "pmap of f: axis name 'i' is in use by a map around it", "give each of nested maps its own name"),
    (lambda: fx.pmap(lambda w: fx.shard_map(f, {"i": 2}, P("i"), P("i"))(w), "i")(X), AxisNameError,
     "shard_map of f: axis name 'i' is in use by a map around it", "give each of nested maps its own name"),
    (lambda: fx.shard_map(g, MESH, (P(), P(None, "i")), P())({"u": X}, X[:, :1]), ShapeError,
     "shard_map of g: argument q: axis 1 of f32[4,1] has size 1, which 2 devices along 'i' do not divide",
     "pad the axis, or choose another one or another mesh"),
    (lambda: fx.shard_map(g, MESH, (P(("i", "j")), P()), P())({"u": X[:3]}, X), ShapeError,
     "shard_map of g: argument p['u']: axis 0 of f32[3,2] has size 3, which 2 devices along 'i', 'j' do not divide",
     "pad the axis, or choose another one or another mesh"),
    (lambda: fx.shard_map(lambda x: {"a": x, "b": lax.psum(x, "i")}, MESH, P("i", "j"), {"a": P("i", "j"), "b": P()})(
        X), ShapeError, "shard_map of <lambda>: result['b'] differs along axis 'j', which its spec does not name",
     "combine it, with psum or all_gather over 'j', or name the axis in the spec"),
    (lambda: fx.shard_map(lambda x: x.sum(), MESH, P("i"), P("i"))(X), ShapeError,
     "shard_map of <lambda>: result: PartitionSpec('i') has 1 entries, f32[] has 0 axes",
     "give at most one entry for each axis"),
    (lambda: fx.shard_map(f, MESH, P("i"), P("k"))(X), AxisNameError,
     "shard_map of f: result: PartitionSpec('k') names axis 'k', the mesh has 'i', 'j'", "name axes of the mesh"),
    (lambda: fx.shard_map(f, MESH, "i", P())(X), ArgumentError, "shard_map of f: in_specs is a str: 'i'",
     "an entry is a PartitionSpec: give one for all, or a tree of them; P() is the whole array"),
    (lambda: fx.shard_map(f, MESH, P("i"), {"a": 0})(X), ArgumentError,
     "shard_map of f: out_specs has an entry that is an int: 0",
     "an entry is a PartitionSpec: give one for all, or a tree of them; P() is the whole array"),
    (lambda: WRONG.shard_map(f, MESH, P("i"), P("i"), axis_names=3)(X), ArgumentError,
     "shard_map of f: axis_names is an int: 3", "give a set of names"),
    (lambda: WRONG.shard_map(f, MESH, P("i"), P("i"), axis_names=np.array("i"))(X), ArgumentError,
     "shard_map of f: axis_names is an ndarray: array('i', dtype='<U1')", "give a set of names"),
    (lambda: fx.shard_map(fx.shard_map(f, {"i": 4}, P("i"), P("i")), MESH, P("j"), P("j"), axis_names={"j"})(X),
     AxisNameError, "shard_map: axis 'i' has size 2, and size 4 in a map inside",
     "give nested maps one mesh, or axes of other names"),
    (lambda: fx.pmap(f, "i")(X[:0]), ShapeError,
     "pmap of f: the mapped axis has size 0, and each index needs a device",
     "use vmap or soft_pmap, which map over an axis without indices"),
    (lambda: fx.pmap(lambda: 1, "i", axis_size=0)(), ShapeError,
     "pmap of <lambda>: the mapped axis has size 0, and each index needs a device",
     "use vmap or soft_pmap, which map over an axis without indices"),
    (lambda: fx.mask(fx.pmap(f, "i"), ("(n>=1, _)",))(X, sizes={"n": 3}), ShapeError,
     "pmap of f: the mapped axis has size n, and the number of devices is a number",
     "use vmap, or map an axis of known size"),
    (lambda: fx.pmap(f, "i", devices=[fx.devices()[0]] * 4)(X), ParameterError,
     "pmap of f: the axis has size 4, devices has 1 distinct", "give one device for each index"),
    (lambda: fx.jit(lambda x: (fx.pmap(f, "i")(x[:3]), fx.pmap(f, "i")(x)))(np.ones((1000, 2), np.float32)),
     ParameterError,
     ("compile of <lambda>: it has maps over 3 and 1000 devices, and runs on 3000, a multiple of all of them; there"
      f" {THERE} of platform cpu"),
     ("run the maps in programs of their own, or call fx.set_cpu_devices(3000) or set FXAD_CPU_DEVICES=3000 before the"
      " first program runs")),
    (lambda: fx.pmap(fx.pmap(f, "j"), "i")(np.ones((50, 50, 2), np.float32)), ParameterError,
     f"compile of pmap_f: it runs on 2500 devices, there {THERE} of platform cpu",
     "call fx.set_cpu_devices(2500) or set FXAD_CPU_DEVICES=2500 before the first program runs"),
    (lambda: fx.shard_map(f, {"i": True}, P(), P())(X), ArgumentError,
     "shard_map of f: mesh is a dict: {'i': True}", 'give a Mesh, or names and sizes: {"i": 8}'),
    (lambda: fx.shard_map(f, {}, P(), P())(X), ArgumentError,
     "shard_map of f: mesh is a dict: {}", 'give a Mesh, or names and sizes: {"i": 8}'),
    (lambda: fx.jit(fx.pmap(f, "i"))(np.ones((1000, 2), np.float32)), ParameterError,
     f"compile of pmap_f: it runs on 1000 devices, there {THERE} of platform cpu",
     "call fx.set_cpu_devices(1000) or set FXAD_CPU_DEVICES=1000 before the first program runs"),
    (batched, AxisNameError,
     "shard_map: axis name 'i' is in use by a map around it", "give each of nested maps its own name"),
    (lambda: summed(4),
     AxisNameError, "shard_map: axis 'i' has size 2, <lambda> was traced with 4",
     "trace the program again for this size"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message", "remedy"), ERRORS, ids=[e[2][:50] for e in ERRORS])
def test_messages(call: Callable[[], Any], kind: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(FxadError) as caught:
        call()
    assert (type(caught.value), caught.value.message, caught.value.remedy) == (kind, message, remedy)


def test_a_sharding_takes_a_mesh() -> None:
    assert NamedSharding(Mesh(fx.devices()[:1], "i"), P("i")).spec == P("i")


def test_the_line_of_a_result_that_differs_is_named() -> None:
    def part(x: Any) -> Any:
        y = lax.psum(x * 1.5, "i")
        return y + 0.75 * x  # this line

    line = part.__code__.co_firstlineno + 2
    makes: list[Callable[[], object]] = [
        lambda: fx.shard_map(part, {"i": 2}, P("i"), P())(X),
        lambda: fx.pmap(part, "i", out_axes=None)(X),
        lambda: fx.shard_map(fx.trace(part, X[:2], axis_env={"i": 2}), {"i": 2}, P("i"), P()),
    ]
    for make in makes:
        with pytest.raises(ShapeError) as e:
            make()
        assert str(e.value.where).endswith(f"test_messages_of_maps.py:{line} in {part.__qualname__}")


def test_a_keyword_argument_without_arrays_reaches_the_function_of_a_shard_map() -> None:
    over = fx.shard_map(lambda x, bias=None: x if bias is None else x + bias, {"i": 1}, P("i"), P("i"))
    np.testing.assert_array_equal(np.asarray(over(X, bias=None)), X)  # regression: refused
