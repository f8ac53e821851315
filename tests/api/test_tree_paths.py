"""Paths as keys, registered classes, and the functions of `jax.tree_util`."""

from __future__ import annotations

import dataclasses
import functools
import operator
import pickle
from collections import OrderedDict, defaultdict, namedtuple
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyrsistent
import pytest
from pyrsistent._pvector import PythonPVector

import fxad as fx
import fxad.numpy as fnp
import fxad.tree_util as tu
from fxad import tree
from fxad.errors import ArgumentError, ParameterError, TreeError

Pair = namedtuple("Pair", "x y")  # noqa: PYI024  what is tested
SAMPLE: dict[str, Any] = {
    "a": [1, (2, Pair(3, [4]))],
    "none": None,
    "o": OrderedDict(q=5, b=6),
    "e": [7],
    "f": defaultdict(int, k=8),
}


def by_keystr(module: Any, **how: Any) -> list[tuple[str, Any]]:
    return [(module.keystr(p, **how), x) for p, x in module.tree_leaves_with_path(SAMPLE)]


def test_paths() -> None:
    assert by_keystr(tu) == [
        ("['a'][0]", 1), ("['a'][1][0]", 2), ("['a'][1][1].x", 3), ("['a'][1][1].y[0]", 4), ("['e'][0]", 7),
        ("['f']['k']", 8), ("['o']['q']", 5), ("['o']['b']", 6),
    ]  # fmt: skip
    assert by_keystr(tu, simple=True, separator="/")[3] == ("a/1/1/y/0", 4)
    assert tree.leaves_with_path({3: 1}) == [((tree.DictKey(3),), 1)]
    assert tree.leaves_with_path({"a": [1]}) == [((tree.DictKey("a"), tree.SequenceKey(0)), 1)]
    assert repr(tree.DictKey("a")) == "DictKey(key='a')"


def test_paths_are_those_of_jax() -> None:
    jax = pytest.importorskip("jax")
    for simple in (False, True):
        assert by_keystr(tu, simple=simple) == by_keystr(jax.tree_util, simple=simple)
    for key in (tu.DictKey("a"), tu.SequenceKey(3), tu.GetAttrKey("x"), tu.FlattenedIndexKey(2)):
        theirs = getattr(jax.tree_util, type(key).__name__)(*[getattr(key, f.name) for f in dataclasses.fields(key)])
        assert (str(key), repr(key)) == (str(theirs), repr(theirs))


def test_the_names_of_jax() -> None:
    jax = pytest.importorskip("jax")
    missing = {n for n in dir(jax.tree_util) if n.islower() and not n.startswith("_")} - set(dir(tu))
    assert missing <= {
        "default_registry", "flatten_one_level", "flatten_one_level_with_keys", "is_tree_node",
        "tree_reduce_associative",
        *[n for n in missing if isinstance(getattr(jax.tree_util, n), ModuleType)],
    }  # fmt: skip
    assert {n for n in dir(jax.tree) if not n.startswith("_")} - set(dir(tree)) <= {
        "annotations",
        "reduce_associative",
        "static",
    }


def test_map_takes_whole_subtrees_of_the_others() -> None:
    pairs: Any = tree.map(lambda a, b: (a, b), {"x": 1, "y": 2}, {"x": [1, 2], "y": None})
    assert pairs == {"x": (1, [1, 2]), "y": (2, None)}
    with pytest.raises(TreeError, match=r"^tree.map: tree 2 differs from the first: tree\[0\] is only in one of them"):
        tree.map(lambda *xs: xs, [1], [1], [])


@pytest.mark.parametrize("is_leaf", [lambda x: isinstance(x, list), lambda x: x is None])
def test_is_leaf(is_leaf: Any) -> None:
    t: Any = {"a": [1, 2], "b": None, "c": 3}
    found = tree.leaves(t, is_leaf)
    assert found == tree.leaves(t, is_leaf=is_leaf) == [x for _, x in tree.leaves_with_path(t, is_leaf)]
    assert found in ([[1, 2], 3], [1, 2, None, 3])
    assert tree.unflatten(tree.structure(t, is_leaf), found) == t
    assert tree.map(lambda x: x, t, is_leaf=is_leaf) == t
    assert tree.map_with_path(lambda p, x: (tu.keystr(p), x), t, is_leaf=is_leaf)["c"] == ("['c']", 3)
    assert tree.reduce(lambda n, x: [*n, x], t, [], is_leaf) == found


def test_is_leaf_takes_path() -> None:
    t = {"a": [1, 2], "b": [3]}
    found = tree.leaves_with_path(t, lambda p, x: p == (tree.DictKey("a"),), is_leaf_takes_path=True)
    assert [(tu.keystr(p), x) for p, x in found] == [("['a']", [1, 2]), ("['b'][0]", 3)]


PlainVector: Any = PythonPVector  # pyrsistent's class in Python, without C
SHARED: Any = [1, (), 2]
SAME_VALUES: dict[str, Any] = {
    "lists": [SHARED, SHARED],
    "numbers": [1, 1, [1, 1]],
    "none": {"b": [None, None], "a": (None, SHARED)},
    "deeper": {"q": {"r": (SHARED, [SHARED])}, "p": SHARED, "o": OrderedDict(z=SHARED, a=[SHARED])},
    "a leaf": 3,
    "nothing": (),
}


@pytest.mark.parametrize("name", SAME_VALUES)
def test_is_leaf_of_a_value_at_two_places(name: str) -> None:
    """Regression: the answer was stored by value. As in JAX, each place is asked once, in order."""
    jax = pytest.importorskip("jax")
    sample = SAME_VALUES[name]

    def found(util: Any, chosen: Any) -> tuple[Any, Any]:
        asked: list[Any] = []

        def is_leaf(path: Any, value: Any) -> bool:
            asked.append((util.keystr(path), value))
            return bool(chosen(util.keystr(path), value))

        leaves = util.tree_leaves_with_path(sample, is_leaf, True)
        return [(util.keystr(p), x) for p, x in leaves], asked

    for path, value in found(tu, lambda p, x: False)[1]:
        for chosen in (
            lambda p, x, path=path: p == path,
            lambda p, x, path=path: p != path and len(p) > 3,
            lambda p, x, value=value: x == value,
        ):
            assert found(tu, chosen) == found(jax.tree_util, chosen)
    first = tree.leaves_with_path([SHARED, SHARED], lambda p, _: p == (tree.SequenceKey(0),), is_leaf_takes_path=True)
    assert [(tu.keystr(p), x) for p, x in first] == [("[0]", SHARED), ("[1][0]", 1), ("[1][2]", 2)]


def test_is_leaf_of_a_new_class_of_records() -> None:
    """A new class of records makes `flatten` start again, so `is_leaf` is asked again."""

    class Fields(pyrsistent.PRecord):  # type: ignore[type-arg]
        v: Any = pyrsistent.field()

    record = Fields(v=[1, 2])
    t = [record, record]
    found = tree.leaves_with_path(t, lambda p, _: p == (tree.SequenceKey(0),), is_leaf_takes_path=True)
    assert [(tu.keystr(p), x) for p, x in found] == [("[0]", record), ("[1]['v'][0]", 1), ("[1]['v'][1]", 2)]


def test_is_leaf_selects_containers_of_pyrsistent() -> None:
    """Regression: an error said that their classes are unknown, or registered twice."""

    class Fields(pyrsistent.PRecord):  # type: ignore[type-arg]
        v: Any = pyrsistent.field()

    for x in (pyrsistent.v(1, 2), pyrsistent.m(a=1), PlainVector(0, 5, [], []), Fields(v=3)):
        for _ in range(2):
            assert tree.leaves([x, 4], lambda v: not isinstance(v, list)) == [x, 4]


def test_reduce_all_transpose_broadcast() -> None:
    assert tree.reduce(operator.add, SAMPLE) == 36
    assert tree.reduce(operator.add, [], 5) == 5
    with pytest.raises(ArgumentError, match=r"^tree.reduce: the tree has no leaves") as e:
        tree.reduce(operator.add, [])
    assert e.value.remedy == "give an initializer"
    assert tree.all([1, (2,)])
    assert not tree.all([1, (0,)])
    outer, inner = tree.structure([0, 0]), tree.structure({"a": 0})
    assert tree.transpose(outer, inner, [{"a": 1}, {"a": 2}]) == {"a": [1, 2]}
    assert tree.transpose(outer, None, [{"a": 1}, {"a": 2}]) == {"a": [1, 2]}
    with pytest.raises(TreeError, match=r"^tree.transpose: tree 1 differs from the first"):
        tree.transpose(outer, inner, [{"a": 1}, {"b": 2}])
    assert tree.broadcast({"a": 1, "b": 2}, {"a": [0, 0], "b": 0}) == {"a": [1, 1], "b": 2}
    with pytest.raises(TreeError, match=r"^tree.broadcast: tree 1 differs from the first"):
        tree.broadcast({"a": 1}, {"b": [0, 0]})


def test_structures() -> None:
    whole = tu.tree_structure((1, [2, 3]))
    assert tu.treedef_children(whole) == [tu.tree_structure(0), tu.tree_structure([0, 0])]
    assert tu.treedef_tuple(tu.treedef_children(whole)) == whole
    assert tu.treedef_is_leaf(tu.tree_structure(1))
    assert not tu.treedef_is_leaf(tu.tree_structure(()))
    assert tu.all_leaves([1, 2])
    assert not tu.all_leaves([1, [2]])
    assert tu.build_tree(whole, [5, "x"]) == (5, "x")
    assert tu.build_tree(tu.tree_structure(0), [5]) == 5
    assert tu.build_tree(tu.tree_structure(None), []) is None
    for children in ([], [5, 6]):
        with pytest.raises(TreeError, match="unflatten: Too"):
            tu.build_tree(tu.tree_structure(0), children)


# ---------------------------------------------------------------------------------------------------------- classes


class Node:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


@tu.register_pytree_node_class
class Plain(Node):
    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        return (self.a,), self.b

    @classmethod
    def tree_unflatten(cls, data: Any, children: tuple[Any, ...]) -> Plain:
        return cls(children[0], data)


@tu.register_pytree_with_keys_class
class Keyed(Node):
    def tree_flatten_with_keys(self) -> tuple[tuple[Any, ...], Any]:
        return ((tu.GetAttrKey("a"), self.a), (tu.DictKey("b"), self.b)), None

    @classmethod
    def tree_unflatten(cls, data: Any, children: Any) -> Keyed:
        return cls(*children)


@tu.register_dataclass
@dataclasses.dataclass
class Data:
    w: Any
    size: int = dataclasses.field(default=3, metadata={"static": True})


@dataclasses.dataclass
class Chosen:
    w: Any
    size: int = 3


tu.register_dataclass(Chosen, data_fields=["w"], meta_fields=["size"])


@tu.register_static
@dataclasses.dataclass(frozen=True)
class Config:
    n: int


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        (Plain(fnp.ones(2), "static"), ["[<flat index 0>]"]),
        (Keyed(fnp.ones(2), fnp.zeros(3)), [".a", "['b']"]),
        (Data(fnp.ones(2), 7), [".w"]),
        (Chosen(fnp.ones(2), 7), [".w"]),
        (Config(3), []),
        (tu.Partial(pow, fnp.ones(2), mod=fnp.ones(1)), [".args[0]", ".keywords['mod']"]),
    ],
)
def test_classes(value: Any, paths: list[str]) -> None:
    found, structure = tu.tree_flatten_with_path(value)
    assert [tu.keystr(p) for p, _ in found] == paths == tree.paths(structure)
    assert structure == tree.structure(tree.map(lambda x: x + 1, value))
    for path, leaf in zip(structure.accessors(), tree.leaves(value), strict=True):
        if "<flat" not in path.codify():
            assert path(value) is leaf
    # through a transformation
    assert tree.structure(fx.jit(lambda t: tree.map(lambda x: x * 2, t))(value)) == structure


def test_files_keep_keys(tmp_path: Path) -> None:
    value = {"k": Keyed(np.ones(2), np.zeros(3)), "p": Plain(np.ones(1), 5), "d": Data(np.ones(1))}
    fx.tree.save(tmp_path / "f", value)
    back = fx.tree.load(tmp_path / "f")
    assert tree.structure(back) == tree.structure(value)
    assert [float(x.sum()) for x in tree.leaves(back)] == [1, 2, 0, 1]


def test_refusals() -> None:
    with pytest.raises(ParameterError, match=r"^tree.register: "):
        tu.register_pytree_node(Plain, lambda x: ((), None), lambda *_: None)
    with pytest.raises(ArgumentError) as e:
        tu.register_dataclass(int)
    assert e.value.message == "register_dataclass: a type is not a dataclass: <class 'int'>"
    assert e.value.remedy == "decorate it with dataclasses.dataclass first, or name data_fields and meta_fields"

    @dataclasses.dataclass
    class Other:
        x: int
        y: int

    with pytest.raises(ArgumentError) as e:
        tu.register_dataclass(Other, data_fields=["x"], meta_fields=["z"])
    assert e.value.message.endswith("Other has the fields x, y; named are x, z")
    assert e.value.remedy == "name each field that __init__ takes once, in data_fields, meta_fields or drop_fields"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"data_fields": ["x"]}, "register_dataclass: data_fields is given without meta_fields"),
        ({"meta_fields": []}, "register_dataclass: meta_fields is given without data_fields"),
    ],
)
def test_fields_are_named_completely(names: Any, message: str) -> None:
    @dataclasses.dataclass
    class Other:
        x: int
        y: int

    with pytest.raises(ArgumentError) as e:
        tu.register_dataclass(Other, **names)
    assert e.value.message == message
    assert tree.leaves(Other(1, 2)) == [Other(1, 2)]


def test_partial_is_called_and_differentiated() -> None:
    p = tu.Partial(lambda a, b, c: (a + b * c).sum(), fnp.ones(2), c=2.0)
    assert float(p(3.0)) == 14
    g = fx.grad(lambda p: p(3.0))(p)
    assert isinstance(g, tu.Partial)
    assert np.array_equal(np.asarray(g.args[0]), [1, 1])
    assert float(g.keywords["c"]) == 6


def test_a_partial_of_functools_is_part_of_the_structure() -> None:
    scaled = functools.partial(lambda n, x: x * np.ones(n, np.float32), 3)
    p = tu.Partial(scaled, 2.0)
    assert (p.args, tu.tree_leaves(p)) == ((2.0,), [2.0])
    assert p.func == scaled
    assert hash(p.func) == hash(scaled)
    assert tu.tree_structure(p) == tu.tree_structure(tu.Partial(scaled, 5.0))
    assert fx.jit(lambda p: p())(p).tolist() == [2, 2, 2]
    assert pickle.loads(pickle.dumps(tu.Partial(functools.partial(max, 1), 2)))() == 2
    assert tu.Partial(tu.Partial(max, 1), 2).args == (1, 2)


def test_saving_a_tree_as_a_program_says_what_to_use(tmp_path: Path) -> None:
    for value, what in (({"w": fnp.ones(2)}, "a dict"), (fnp.ones(2), "an Array")):
        with pytest.raises(ArgumentError) as e:
            fx.save(value, tmp_path / "f")
        assert e.value.message == f"save: {what} is a tree of arrays, not a program"
        assert e.value.remedy == "fxad.tree.save(path, tree) writes trees of arrays, fxad.tree.load(path) reads them"


def test_the_norm_of_a_tree() -> None:
    assert float(tree.global_norm({"a": [3.0], "b": 4.0})) == 5


def test_one_level_is_jax_s() -> None:
    jax = pytest.importorskip("jax")
    shared = [
        {"b": 1, "a": [2]}, (1, [2]), [3], None, (), OrderedDict(b=1, a=2), defaultdict(int, b=1, a=2),
    ]  # fmt: skip
    for x in shared:
        children, data = tu.flatten_one_level(x)
        wanted, wanted_data = jax.tree_util.flatten_one_level(x)
        assert (list(children), data) == (list(wanted), wanted_data)
        pairs, data = tu.flatten_one_level_with_keys(x)
        wanted_pairs, _ = jax.tree_util.flatten_one_level_with_keys(x)
        assert [(str(k), c) for k, c in pairs] == [(str(k), c) for k, c in wanted_pairs]
        assert tu.is_tree_node(type(x))
        assert jax.tree_util.is_tree_node(type(x))
    assert tu.flatten_one_level_with_keys(Pair(1, (2,))) == (
        ((tu.GetAttrKey("x"), 1), (tu.GetAttrKey("y"), (2,))),
        Pair,
    )
    assert not tu.is_tree_node(int)
    assert tu.flatten_one_level(tu.Partial(print, 1, end="")) == (((1,), {"end": ""}), print)
    with pytest.raises(TreeError, match=r"tree\.flatten_one_level: an int is a leaf"):
        tu.flatten_one_level(3)


def test_reduce_associative_combines_pairs() -> None:
    def text(a: str, b: str) -> str:
        return f"({a}{b})"

    assert tree.reduce_associative(text, list("abcde")) == "((ab)(c(de)))"
    assert tu.tree_reduce_associative(text, {"y": "b", "x": "a"}) == "(ab)"
    assert tree.reduce_associative(text, ["a"]) == "a"
    assert tree.reduce_associative(text, [], identity="-") == "-"
    assert tree.reduce_associative(operator.add, [(1, 2), (3,)], is_leaf=lambda x: isinstance(x, tuple)) == (1, 2, 3)
    with pytest.raises(ArgumentError, match="reduce_associative: the tree has no leaves"):
        tree.reduce_associative(text, ())
    with pytest.raises(ArgumentError, match="reduce_associative: an int is not callable"):
        tree.reduce_associative(3, ())  # type: ignore[arg-type]


PREFIXES: list[tuple[Any, Any, list[str]]] = [
    (1, (1, 2), []),
    ((1, None), ([2, 3], None), []),
    ({"a": 1}, {"a": {"b": 2}}, []),
    ((1, [2]), (1, (2,)), ["in_axes[1]: the prefix has a list, and the whole tree a tuple"]),
    (((1,), (2,)), ([3], [4]), [
        "in_axes[0]: the prefix has a tuple, and the whole tree a list",
        "in_axes[1]: the prefix has a tuple, and the whole tree a list",
    ]),
    ([[1]], [[2, 3]], [
        "in_axes[0]: the prefix has a list with 1 children, and the whole tree one with 2; only one of them has [1]"
    ]),
    ({"a": 1}, {"a": 2, "b": 3}, [
        "in_axes: the prefix has a dict with 1 children, and the whole tree one with 2; only one of them has ['b']"
    ]),
    ({"a": 1}, {"b": 1}, ["in_axes: the prefix has a dict with ('a',), and the whole tree one with ('b',)"]),
    (None, 1, ["in_axes: the prefix has a NoneType, and the whole tree an int"]),
    ({"a": Pair([1], 2)}, {"a": Pair((1,), 2)}, ["in_axes['a'].x: the prefix has a list, and the whole tree a tuple"]),
]  # fmt: skip


@pytest.mark.parametrize(("prefix", "whole", "messages"), PREFIXES)
def test_prefix_errors(prefix: Any, whole: Any, messages: list[str]) -> None:
    errors = [make("in_axes") for make in tu.prefix_errors(prefix, whole)]
    assert [e.message for e in errors] == messages
    for e in errors:
        assert e.remedy == "give one entry for the whole tree, or a tree whose entries stand for whole subtrees"
    assert tu.prefix_errors(prefix, whole, is_leaf=lambda x: x is prefix) == []
