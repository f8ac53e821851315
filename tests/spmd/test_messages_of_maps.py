"""Messages of meshes, specs and maps over devices, word for word. None of them needs more than one device."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import lax
from fxad.core.builder import Builder
from fxad.errors import ArgumentError, AxisNameError, FxadError, ParameterError, ShapeError
from fxad.ir import Aval, Jaxpr
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.elementwise import SIN
from fxad.sharding import Mesh, NamedSharding, PartitionSpec

P: Any = PartitionSpec  # also for arguments of wrong types
X: Any = np.zeros((4, 2), np.float32)
MESH: Any = {"i": 2, "j": 1}
WRONG: Any = fx


def f(x: Any) -> Any:
    return x


def sine() -> Jaxpr:
    b = Builder()
    return b.build([b.one(SIN, b.input(Aval((2, 2), "float32")))], "sine")


def summed(size: int) -> Any:
    """A map over axis i of size 2 of a program that was traced for another size."""
    program = fx.trace(lambda x: lax.psum(x, "i"), X[:2], axis_env={"i": size})
    return ShardMap(program.jaxpr, (("i", 2),), 0, ((("i",),),), ((),)).abstract_eval(Aval((4, 2), "float32"))


def bound(mesh: Any, spec: Any) -> Any:
    return over(mesh, spec).abstract_eval(Aval((4, 2), "float32"))


def over(mesh: Any, spec: Any) -> ShardMap:
    return ShardMap(sine(), mesh, 0, (spec,), (spec,))


def batched() -> Any:
    context: Any = SimpleNamespace(axis="i")
    return over((("i", 2),), (("i",),)).batch(context, (), ())


ERRORS: list[tuple[Callable[[], Any], type[FxadError], str, str]] = [
    (lambda: P(3), ArgumentError, "PartitionSpec: an entry is an int: 3",
     "give a name, a tuple of names, or None for each axis"),
    (lambda: Mesh(fx.devices()[:1], ("i", "j")), ShapeError,
     "Mesh: the devices have 1 axes, axis_names ('i', 'j') has 2", "name each axis of the array of devices"),
    (lambda: Mesh([fx.devices()[:1]], ("i", "i")), AxisNameError,
     "Mesh: axis_names ('i', 'i') are not distinct strings", "name each axis once"),
    (lambda: Mesh([fx.devices()[0]] * 2, ("i",)), ParameterError,
     "Mesh: a device is there twice", "give each device once"),
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
    (lambda: WRONG.pmap(fx.trace(f, X)), ArgumentError,
     "pmap: f is a Program over one example, so the number of examples must be given", "pmap(program, axis_size=n)"),
    (lambda: bound((("i", 2), ("i", 1)), (("i",),)), AxisNameError,
     "shard_map: mesh (('i', 2), ('i', 1)) names an axis twice", "name each axis once"),
    (lambda: bound((("i", 0),), (("i",),)), ShapeError,
     "shard_map: mesh (('i', 0),) has an axis without devices", "give sizes from 1 on"),
    (lambda: bound((("i", 2),), (("k",),)), AxisNameError,
     "shard_map: spec (('k',),): mesh {'i': 2} has no axis 'k'", "name axes of the mesh, each at most once"),
    (lambda: bound((("i", 2),), (("i",), (), ())), ShapeError,
     "shard_map: spec (('i',), (), ()) has 3 entries for the 2 axes of f32[2,2]",
     "give at most one entry for each axis"),
    (batched, AxisNameError,
     "vmap: axis name 'i' is also an axis of shard_map in the program", "give each of nested maps its own name"),
    (lambda: summed(4),
     AxisNameError, "shard_map: axis 'i' has size 2, <lambda> was traced with 4",
     "trace the program again for this size"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message", "remedy"), ERRORS, ids=[e[2][:50] for e in ERRORS])
def test_what_is_wrong_is_named(call: Callable[[], Any], kind: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(FxadError) as caught:
        call()
    assert (type(caught.value), caught.value.message, caught.value.remedy) == (kind, message, remedy)


def test_a_sharding_takes_a_mesh() -> None:
    assert NamedSharding(Mesh(fx.devices()[:1], "i"), P("i")).spec == P("i")
