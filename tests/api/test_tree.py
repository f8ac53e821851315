"""Pytrees keep their structure and types in every transformation."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyrsistent
import pytest

import fxad as fx
from fxad import tree, tree_util
from fxad.errors import ArgumentError, ParameterError, TreeError
from tests.api.refusals import X, refused

W, B = X, np.float32(2)


class Pair(NamedTuple):
    w: Any
    b: Any


@tree.dataclass
class Layer:
    w: Any
    b: Any
    size: int = tree.static(default=3)


class Record(pyrsistent.PRecord):  # type: ignore[type-arg]
    w = pyrsistent.field(type=np.ndarray)
    b: Any = pyrsistent.field()


TREES: dict[str, Any] = {
    "leaf": W,
    "dict": {"w": W, "b": B},
    "integer keys": {2: W, 1: B},
    "mixed keys": {1: W, "a": B},
    "tuple": (W, B),
    "list": [W, [B]],
    "namedtuple": Pair(W, B),
    "None": {"w": W, "nothing": None},
    "dataclass": Layer(W, B, 5),
    "pmap": pyrsistent.m(w=W, b=B),
    "pvector": pyrsistent.v(W, B),
    "record": Record(w=W, b=B),
    "OrderedDict": OrderedDict([("w", W), ("b", B)]),
    "defaultdict": defaultdict(list, w=W, b=B),
    "deque": deque([W, B]),
    "nested": [{"a": (W, None, {})}, Layer(W, [], 2), pyrsistent.v(pyrsistent.m(x=(B,)))],
}
EMPTY: dict[str, Any] = {
    "tuple": (),
    "list": [],
    "dict": {},
    "None": None,
    "pmap": pyrsistent.m(),
    "pvector": pyrsistent.v(),
    "nested": ({}, [None], ()),
}


def double(t: Any) -> Any:
    return tree.map(lambda x: x * 2, t)


def loss(t: Any) -> Any:
    return sum([(x * x).sum() for x in tree.leaves(t)], fx.asarray(np.float32(0)))


def same(got: Any, expected: Any) -> None:
    """The trees have equal structures and types, and equal leaves."""
    assert tree.structure(got) == tree.structure(expected)
    for a, b in zip(tree.leaves(got), tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def ways_to_double(t: Any) -> dict[str, Callable[[], Any]]:
    """Returns ways to double a tree, one for each transformation."""
    return {
        "trace": lambda: fx.trace(double, t)(t),
        "executable": lambda: fx.lower(fx.trace(double, t)).compile()(t),
        "jit": lambda: fx.jit(double)(t),
        "interpret": lambda: fx.interpret(fx.trace(double, t), t),
        "grad": lambda: fx.grad(loss)(t),
        "grad of a program": lambda: fx.grad(fx.trace(loss, t))(t),
        "value_and_grad": lambda: fx.value_and_grad(loss)(t)[1],
        "jvp": lambda: fx.jvp(double, (t,), (t,))[1],
        "vjp": lambda: fx.vjp(double, t)[1](t)[0],
        "linearize": lambda: fx.linearize(double, t)[1](t),
        "transpose": lambda: fx.transpose(fx.trace(double, t), argnums=0)(t),
        "remat": lambda: fx.remat(double)(t),
        "vmap": lambda: tree.map(lambda x: x[1], fx.vmap(double, in_axes=None, axis_size=2)(t)),
        "inside a trace": lambda: fx.jit(lambda s: fx.vjp(double, s)[1](s)[0])(t),
    }


@pytest.mark.parametrize("way", ways_to_double(W))
@pytest.mark.parametrize("kind", TREES)
def test_trees_go_through(kind: str, way: str) -> None:
    t = TREES[kind]
    same(ways_to_double(t)[way](), double(t))


@pytest.mark.parametrize("way", [w for w in ways_to_double(W) if w != "vmap"])
@pytest.mark.parametrize("kind", EMPTY)
def test_empty_trees_go_through(kind: str, way: str) -> None:
    same(ways_to_double(EMPTY[kind])[way](), EMPTY[kind])


@pytest.mark.parametrize("kind", EMPTY)
def test_an_empty_argument_beside_another(kind: str) -> None:
    t = EMPTY[kind]

    def second(t: Any, x: Any) -> Any:
        return x.sum()

    same(fx.grad(second)(t, X), t)
    both: Any = fx.grad(second, argnums=(0, 1))
    same(both(t, X), (t, np.ones(3, np.float32)))
    same(fx.jacfwd(lambda t, x: x.sum())(t, X), t)
    same(fx.hessian(lambda t, x: x.sum())(t, X), t)
    same(fx.jacrev(lambda x: t)(X), t)
    same(fx.jit(lambda t, x: (t, x))(t, X), (t, X))


def test_static_fields_are_structure() -> None:
    three, five = Layer(W, B, 3), Layer(W, B, 5)
    program = fx.trace(lambda p: p.w * p.size, three)
    assert fx.jit(lambda p: p.w * p.size)(five).tolist() == [0, 5, 10]
    refused(
        lambda: program(five),
        TreeError,
        "<lambda>: argument p is Layer(w=*, b=*, size=5), it was traced as Layer(w=*, b=*, size=3)",
    )


class Scaled:
    """A container by JAX's functions, with one child."""

    def __init__(self, w: Any, by: Any) -> None:
        self.w, self.by = w, by


class ScaledFields(Scaled):
    """A container with named fields."""


tree_util.register_pytree_node(Scaled, lambda s: ([s.w], s.by), lambda by, ws: Scaled(ws[0], by))
tree_util.register_dataclass(ScaledFields, data_fields=["w"], meta_fields=["by"])


@pytest.mark.parametrize(
    "make",
    [
        lambda by: Layer(W, B, by),
        lambda by: Layer(W, B, (by,)),  # type: ignore[arg-type]
        lambda by: {"nested": [Layer(W, B, frozenset([by]))]},  # type: ignore[arg-type]
        lambda by: Scaled(W, by),
        lambda by: ScaledFields(W, by),
    ],
    ids=["field", "tuple", "frozenset", "functions", "dataclass"],
)
def test_static_data_are_compared_exactly(make: Callable[[Any], Any]) -> None:
    """Python takes 1, 1.0 and True for equal, and 0.0 and -0.0. A function may tell them apart."""
    values = [1, 1.0, True, 0.0, -0.0, 0, False, np.float32(1)]
    trees = [make(value) for value in values]
    structures = [tree.structure(t) for t in trees]
    assert [structures.index(s) for s in structures] == list(range(len(values)))
    assert len(set(structures)) == len(values)
    assert [tree.structure(make(value)) for value in values] == structures

    traced: list[Any] = []

    def f(t: Any) -> Any:
        traced.append(t)
        return tree.map(lambda x: x * 1, t)

    run = fx.jit(f)
    for _ in range(3):
        for t, s in zip(trees, structures, strict=True):
            assert tree.structure(run(t)) == s
            if _ == 0:
                assert tree.structure(fx.trace(f, t)(t)) == s
    assert len(traced) == 2 * len(values)


def test_static_data_are_pickled_as_they_are() -> None:
    """Their key has types, and pickle does not find that of functions."""
    structure = tree.structure(Layer(W, B, refused))  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(structure)) == structure
    assert copy.deepcopy(structure) == structure
    program = fx.trace(lambda layer: layer.w, Layer(W, B, refused))  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(program)).in_tree == program.in_tree


def test_the_data_of_a_structure_are_printed_as_they_are() -> None:
    assert repr(tree.structure(Layer(W, B, 5))) == ("PyTreeSpec(CustomTreeNode(Layer[(5,)], [*, *]), namespace='fxad')")
    refused(
        lambda: tree.map(lambda x, y: x, Layer(W, B, 1), Layer(W, B, True)),
        TreeError,
        "tree.map: tree 1 differs from the first: Layer(w=*, b=*, size=1) and Layer(w=*, b=*, size=True)",
    )


def test_paths_as_python_spells_them() -> None:
    def f(params: Any, *rest: Any, scale: Any) -> Any:
        return params

    program = fx.trace(f, {"layers": [Layer(W, B)]}, (W, pyrsistent.m(k=B)), scale=1.0)
    assert program.paths == ("params['layers'][0].w", "params['layers'][0].b", "args[1][0]", "args[1][1]['k']", "scale")


def test_a_class_that_is_no_container_is_a_leaf() -> None:
    class Opaque:
        pass

    thing = Opaque()
    assert tree.leaves({"a": thing}) == [thing]
    e = refused(lambda: fx.trace(lambda t: t, {"a": thing}), ArgumentError, MESSAGE.format(f"{thing!r:.60}"))
    assert e.remedy.startswith("make Opaque a pytree, by @fxad.tree.dataclass or fxad.tree.register; or close over")


MESSAGE = (
    "trace of <lambda>: argument t['a']: "
    "a test_a_class_that_is_no_container_is_a_leaf.<locals>.Opaque is not an array: {}"
)


def test_a_registered_class_is_a_container() -> None:
    class Box:
        def __init__(self, x: Any) -> None:
            self.x = x

    tree.register(Box, lambda b: ([b.x], None, ("x",)), lambda _, xs: Box(*xs))
    assert fx.grad(lambda b: (b.x**2).sum())(Box(X)).x.tolist() == [0, 2, 4]
    with pytest.raises(ParameterError, match=r"^tree.register: "):
        tree.register(Box, lambda b: ([b.x], None, ("x",)), lambda _, xs: Box(*xs))


def test_map_names_the_first_difference() -> None:
    with pytest.raises(
        TreeError, match=r"^tree.map: tree 1 differs from the first: tree\['b'\] stands against tree\['c'\]"
    ):
        tree.map(lambda a, b: a, {"a": 1, "b": 2}, {"a": 1, "c": 2})


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"a": 1}, {"a": {"b": 1}, "c": 2}, "tree['c'] is only in one of them (1 and 2 leaves)"),
        ({"a": 1, "b": 2}, {"a": {"c": 3}, "d": 4}, "tree['b'] stands against tree['d']"),
        ([1, [2, 3]], [{"q": 1}, [2]], "tree[1][1] is only in one of them (3 and 2 leaves)"),
        ([1, (2,)], [(1, 2), [2]], "[*, (*,)] and [(*, *), [*]]"),
    ],
)
def test_a_subtree_at_a_leaf_is_no_difference(first: Any, second: Any, message: str) -> None:
    with pytest.raises(TreeError) as caught:
        tree.map(lambda a, b: a, first, second)
    assert caught.value.message == f"tree.map: tree 1 differs from the first: {message}"


def test_a_record_is_not_checked_while_a_transformation_runs() -> None:
    """The record checks the type of its field. While it is differentiated the field holds tracers and fxad arrays."""
    made = fx.grad(loss)(Record(w=W, b=B))
    assert type(made) is Record
    assert np.asarray(made["w"]).tolist() == [0, 2, 4]


def test_a_static_field_has_metadata_of_its_own() -> None:
    @tree.dataclass
    class Layer:
        w: Any
        name: Any = tree.static(metadata={"doc": "its name", "static": False}, default="a")

    field = Layer.__dataclass_fields__["name"]
    assert dict(field.metadata) == {"doc": "its name", "static": True}
    assert tree.leaves(Layer(w=1)) == [1]
    e = refused(
        lambda: tree.static(metadata=3),  # type: ignore[arg-type]
        ArgumentError,
        "tree.static: metadata is an int, not a mapping: 3",
    )
    assert e.remedy == "give a dict"
