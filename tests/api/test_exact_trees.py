"""What a function sees of its arguments, it sees under every transformation: the order of the keys of dicts, their
types, the classes of containers, and static data. No result depends on earlier calls."""

from __future__ import annotations

import dataclasses
import enum
import gc
import subprocess
import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, tree, tree_util
from fxad.core.dataclasses import frozen_dataclass
from fxad.core.exact_key import exact_key
from fxad.core.trees.tree import flatten_exactly
from fxad.errors import ArgumentError


class Letter(enum.Enum):
    """Keys that Python cannot order."""

    A = 1
    B = 2


class Named(enum.StrEnum):
    """A key that is equal to a string."""

    A = "a"


class Pair(NamedTuple):
    x: Any
    y: Any


@tree.dataclass
class Layer:
    """A class with static data."""

    w: Any
    kind: Any = tree.static(default=0)


class Listed:
    """A class that is registered with functions, and gives its children no names."""

    def __init__(self, *items: object, tag: object = None) -> None:
        self.items, self.tag = items, tag


tree_util.register_pytree_node(Listed, lambda x: (x.items, x.tag), lambda tag, items: Listed(*items, tag=tag))


def described(x: object) -> object:
    """All that a function can see of a tree without the values of its leaves."""
    if isinstance(x, dict):
        factory = x.default_factory if isinstance(x, defaultdict) else None
        return type(x), factory, [(type(k), repr(k), described(v)) for k, v in x.items()]
    if isinstance(x, Layer):
        return Layer, type(x.kind), repr(x.kind), described(x.w)
    if isinstance(x, Listed):
        return Listed, type(x.tag), repr(x.tag), [described(v) for v in x.items]
    if isinstance(x, tuple | list | deque):
        return type(x), getattr(x, "maxlen", None), [described(v) for v in x]
    return None if x is None else "*"


def leaves_as_met(x: object) -> list[Any]:
    """The leaves in the order in which Python code meets them."""
    if isinstance(x, Layer):
        return leaves_as_met(x.w)
    if x is None or not isinstance(x, dict | Listed | tuple | list | deque):
        return [] if x is None else [x]
    children = x.values() if isinstance(x, dict) else x.items if isinstance(x, Listed) else x
    return [leaf for c in children for leaf in leaves_as_met(c)]


KEYS = st.sampled_from(["a", "b", "c", 1, 1.0, True, Letter.A, Letter.B, Named.A, (0,), (False,), 0.0, -0.0])
STATIC = st.sampled_from(
    [0, 0.0, -0.0, False, float("nan"), "a", Named.A, (1,), (True,), range(0, 3, 2), range(0, 4, 2)]
)


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Containers, with the keys of dicts in any order."""
    items = st.lists(st.tuples(KEYS, children), max_size=3)
    return st.one_of(
        items.map(dict),
        items.map(OrderedDict),
        items.map(lambda pairs: defaultdict(list, pairs)),
        items.map(lambda pairs: defaultdict(dict, pairs)),
        st.lists(children, max_size=2),
        st.lists(children, max_size=2).map(tuple),
        st.builds(lambda xs, n: deque(xs, n), st.lists(children, max_size=2), st.sampled_from([2, 3, None])),
        st.builds(Pair, children, children),
        st.builds(Layer, children, STATIC),
        st.builds(lambda x, tag: Listed(x, tag=tag), children, STATIC),
    )


TREES = st.recursive(st.sampled_from(["leaf", "leaf", None]), containers, max_leaves=4)


def with_arrays(x: Any) -> Any:
    """A tree with arrays of different values for leaves, numbered as Python code meets them."""
    numbers = iter(range(1, 100))

    def arrays(y: Any) -> Any:
        if y == "leaf" and type(y) is str:
            return fnp.asarray(np.float32(next(numbers)))
        if isinstance(y, defaultdict):
            return defaultdict(y.default_factory, [(k, arrays(v)) for k, v in y.items()])
        if isinstance(y, dict):
            return type(y)([(k, arrays(v)) for k, v in y.items()])
        if isinstance(y, Layer):
            return Layer(arrays(y.w), y.kind)
        if isinstance(y, Listed):
            return Listed(*[arrays(v) for v in y.items], tag=y.tag)
        if isinstance(y, Pair):
            return Pair(*[arrays(v) for v in y])
        if isinstance(y, deque):
            return deque([arrays(v) for v in y], y.maxlen)
        return type(y)([arrays(v) for v in y]) if isinstance(y, tuple | list) else y

    return arrays(x)


def shuffled(x: Any) -> Any:
    """The tree with the keys of its dicts in the reverse order."""
    if isinstance(x, defaultdict):
        return defaultdict(x.default_factory, [(k, shuffled(v)) for k, v in reversed(x.items())])
    if isinstance(x, dict):
        return type(x)([(k, shuffled(v)) for k, v in reversed(x.items())])
    if isinstance(x, list):
        return [shuffled(v) for v in x]
    return x


def weighted(x: object) -> fx.Array:
    """A function whose value says in which order it met the leaves."""
    return sum([leaf * np.float32(10**-k) for k, leaf in enumerate(leaves_as_met(x))], start=fnp.zeros(()))


@settings(deadline=None)
@given(st.lists(TREES, min_size=2, max_size=4))
def test_a_result_does_not_depend_on_earlier_calls(shapes: list[Any]) -> None:
    seen: list[object] = []

    def f(x: object) -> tuple[fx.Array, object]:
        seen.append(described(x))
        return weighted(x), x

    calls = [with_arrays(s) for shape in shapes for s in (shape, shuffled(shape))]
    wanted = [described(x) for x in calls]
    for transform in (fx.jit, lambda g: fx.jit(lambda x: fx.jit(g)(x)), lambda g: g):
        seen.clear()
        run = transform(f)
        for x, want in [*zip(calls, wanted, strict=True)] * 2:
            value, back = run(x)
            assert described(back) == want
            assert want in seen  # the function was run for this tree, in this call or an earlier one
            np.testing.assert_allclose(np.asarray(value), np.asarray(weighted(x)), rtol=1e-6)


D1, D2 = {"b": fnp.ones(()), "a": 2 * fnp.ones(())}, {"a": 2 * fnp.ones(()), "b": fnp.ones(())}


def in_order(d: dict[Any, Any]) -> fx.Array:
    """A function that depends on the order of keys."""
    return fnp.stack([v * 1.0 for v in d.values()])


def added(d: dict[Any, Any]) -> dict[Any, Any]:
    """A function that returns a dict in the order of its argument."""
    return {k: v + 1 for k, v in d.items()}


def _batch(d: dict[str, Any]) -> dict[str, Any]:
    return {k: v * fnp.ones(3) for k, v in d.items()}


KEYWORDS: Any = fx.jit(lambda **d: in_order(d))
JITTED: Any = fx.jit(in_order)
ORDERED: dict[str, Callable[[dict[str, Any]], object]] = {
    "jit": fx.jit(in_order),
    "jit of keywords": lambda d: KEYWORDS(**d),
    "vmap": lambda d: fx.vmap(in_order)(_batch(d))[0],
    "vmap of a jitted function": lambda d: fx.vmap(JITTED)(_batch(d))[0],
    "vmap with axes in another order": lambda d: fx.vmap(in_order, in_axes=({"a": 0, "b": 0},))(_batch(d))[0],
    "jvp": lambda d: fx.jvp(in_order, (d,), (d,))[1],
    "linearize": lambda d: fx.linearize(in_order, d)[0],
    "remat": fx.jit(lambda d: fx.remat(in_order)(d)),
    "cond": fx.jit(lambda d: lax.cond(True, in_order, in_order, d)),
    "scan": fx.jit(lambda d: lax.scan(lambda c, _: (c, in_order(c)), d, None, length=1)[1][0]),
    "file": lambda d: in_order(_through_a_file(d)),
    "program in a file": lambda d: _program_through_a_file(d)(d),
    "exported": lambda d: fx.load_exported(fx.lower(fx.trace(in_order, d)).export())(d),
    "host": fx.jit(lambda d: fx.pure_callback(lambda e: np.stack([*e.values()]), fx.Spec((2,)), d)),
}
FOLDER: list[Path] = []


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    FOLDER[:] = [tmp_path]


def _through_a_file(d: dict[str, Any]) -> dict[str, Any]:
    tree.save(FOLDER[0] / "tree", d)
    back: dict[str, Any] = tree.load(FOLDER[0] / "tree")
    return back


def _program_through_a_file(d: dict[str, Any]) -> Any:
    program = fx.trace(in_order, d)
    fx.save(program, FOLDER[0] / "program")
    assert fx.load(FOLDER[0] / "program") == program
    return fx.load(FOLDER[0] / "program")


@pytest.mark.parametrize("name", ORDERED)
def test_functions_see_the_order_of_keys(name: str) -> None:
    for d in (D1, D2, D1):
        np.testing.assert_array_equal(ORDERED[name](d), in_order(d))


ONE_THEN_TWO: dict[str, Callable[[], Any]] = {
    "cond": lambda: lax.cond(False, lambda: D1, lambda: D2),
    "switch": lambda: lax.switch(1, [lambda: D1, lambda: D2]),
    "scan": lambda: lax.scan(lambda c, _: (D2, None), D1, None, length=1)[0],
    "while_loop": lambda: lax.while_loop(lambda c: c["a"] < 0, lambda c: D2, D1),
    "fori_loop": lambda: lax.fori_loop(0, 1, lambda _, c: D2, D1),
    "map": lambda: tree.map(lambda a, _: a, D1, D2),
    "associative_scan": lambda: lax.associative_scan(lambda a, _: dict(reversed(a.items())), _batch(D1)),
}


@pytest.mark.parametrize("name", ONE_THEN_TWO)
def test_of_two_orders_the_first_is_that_of_the_result(name: str) -> None:
    """Of `true_fun`, of the first branch, of the initial carry, of the first tree."""
    assert [*ONE_THEN_TWO[name]()] == [*D1] == [*reversed(D2)]


@tree.register_static
class ComparedByArrays:
    """A static value whose equality is an array."""

    def __init__(self, weights: Any) -> None:
        self.weights = weights

    def __eq__(self, other: object) -> Any:
        return isinstance(other, ComparedByArrays) and self.weights == other.weights

    def __hash__(self) -> int:
        return len(self.weights)


@pytest.mark.parametrize("keywords", [{}, {"static_argnums": 0}])
def test_static_values_whose_equality_is_an_array(keywords: Any) -> None:
    """Two of them cannot be told to be equal, so each has its own program."""
    f: Any = fx.jit(lambda s, x: x * s.weights.sum(), **keywords)
    for n in (2.0, 3.0):
        for _ in range(2):
            assert f(ComparedByArrays(np.arange(n)), np.float64(2.0)) == n * (n - 1)


@pytest.mark.parametrize("value", [3, None, len])
def test_a_dataclass_of_what_is_no_class(value: Any) -> None:
    with pytest.raises(ArgumentError) as raised:
        tree.dataclass(value)
    assert "tree.dataclass: takes a class, got " in str(raised.value)
    assert "decorate a class; a field is made static by fxad.tree.static" in str(raised.value)


VALUE_AND_GRAD: Any = fx.jit(fx.value_and_grad(lambda d: in_order(d).sum()))
TREES_OF: dict[str, Callable[[dict[str, Any]], Any]] = {
    "jit": fx.jit(added),
    "grad": fx.grad(lambda d: in_order(d).sum()),
    "jit of grad": fx.jit(fx.grad(lambda d: in_order(d).sum())),
    "jit of value and grad": lambda d: VALUE_AND_GRAD(d)[1],
    "vmap": lambda d: fx.vmap(added)(_batch(d)),
    "vjp": lambda d: fx.vjp(in_order, d)[1](fnp.ones(2))[0],
    "map": lambda d: tree.map(lambda x: x, d),
    "eval_shape": lambda d: fx.eval_shape(added, d),
    "file": _through_a_file,
    "like": lambda d: _like(d),
    "device_put": fx.device_put,
    "ravel": lambda d: tree.ravel(d)[1](tree.ravel(d)[0]),
}


def _like(d: dict[str, Any]) -> Any:
    tree.save(FOLDER[0] / "tree", dict(sorted(d.items())))
    return tree.load(FOLDER[0] / "tree", like=d)


@pytest.mark.parametrize("name", TREES_OF)
def test_results_have_the_order_of_keys(name: str) -> None:
    for d in (D1, D2, D1):
        assert list(TREES_OF[name](d)) == list(d)


def test_equal_structures_with_other_orders_are_other_values() -> None:
    a, b = tree.structure(D1), tree.structure(D2)
    assert a == b
    assert exact_key(a) != exact_key(b)
    take = fx.jit(tree.unflatten, static_argnums=0)
    assert [list(take(s, [1.0, 2.0])) for s in (a, b, a)] == [["b", "a"], ["a", "b"], ["b", "a"]]
    assert fx.trace(added, D1) != fx.trace(added, D2)
    assert fx.trace(added, D1) == fx.trace(added, D1)


@pytest.mark.parametrize("decorate", [dataclasses.dataclass, frozen_dataclass])
def test_dataclasses_of_every_decorator_are_compared_by_their_fields(decorate: Any) -> None:
    """Regression: of fxad's own, 0.0 and -0.0 were one static value."""

    @decorate(frozen=True, slots=True)
    class Scale:
        by: float

    scale: Any = Scale
    assert scale(0.0) == scale(-0.0)
    assert exact_key(scale(0.0)) != exact_key(scale(-0.0))
    assert exact_key(scale(0.0)) == exact_key(scale(0.0))


def test_a_call_with_keys_in_another_order_does_not_compile_again() -> None:
    runs = []
    f = fx.jit(lambda d: runs.append(1) or d["a"] - d["b"])  # type: ignore[func-returns-value]
    with fx.cache.private() as mine:
        for d in (D1, D2, D1, D2):
            f(d)
    assert len(runs) == 2
    assert mine.stats().compilations == 1


# ------------------------------------------------------------------------------------------------------ static data


@dataclasses.dataclass(frozen=True)
class Frozen:
    items: Any


UNHASHABLE = [
    ([1, 2], "argument l: static field kind of Layer is a list, which is not hashable: [1, 2]"),
    (np.ones(2), "argument l: static field kind of Layer is an ndarray, which is not hashable: array([1., 1.])"),
    ({}, "argument l: static field kind of Layer is a dict, which is not hashable: {}"),
    ((1, [2]), "argument l: static field kind of Layer is a tuple, which has a list, which is not hashable: [2]"),
    (Frozen([3]), "argument l: static field kind of Layer is a Frozen, which has a list, which is not hashable: [3]"),
]


@pytest.mark.parametrize(("kind", "problem"), UNHASHABLE)
def test_static_data_must_be_hashable(kind: object, problem: str) -> None:
    def f(l: Layer) -> Any:
        return l.w

    for what, run in (("jit of f", fx.jit(f)), ("trace of f", lambda l: fx.trace(f, l))):
        with pytest.raises(fx.errors.ArgumentError) as e:
            run(Layer(fnp.ones(2), kind))
        assert e.value.message == f"{what}: {problem}"
        assert "give a tuple in place of a list" in e.value.remedy
        assert "test_exact_trees.py" in e.value.caller
    with pytest.raises(fx.errors.ArgumentError) as e:
        tree.map(lambda x: x, {"layers": [Layer(1.0, kind)]})
    assert e.value.message.startswith("tree: tree['layers'][0]: static field kind of Layer is")


def test_the_path_of_static_data_in_other_transformations() -> None:
    def f(layers: dict[str, Layer]) -> Any:
        return layers["first"].w

    bad = {"first": Layer(fnp.ones(()), [1])}
    for what, run in (("grad", fx.grad(f)), ("vmap", fx.vmap(f))):
        with pytest.raises(fx.errors.ArgumentError) as e:
            run(bad)
        assert e.value.message == (
            f"{what} of f: argument layers['first']: static field kind of Layer is a list, which is not hashable: [1]"
        )


def test_values_of_static_data_have_different_hashes() -> None:
    def key(kind: object) -> int:
        return hash(flatten_exactly((Layer(1.0, kind),), {})[1])

    assert len({key(k) for k in range(3000)}) > 2900


def test_a_nan_in_static_data_is_one_value() -> None:
    runs = []
    f = fx.jit(lambda l: runs.append(1) or l.w)  # type: ignore[func-returns-value]
    for _ in range(3):
        f(Layer(fnp.ones(2), float("nan")))
        f(Layer(np.ones(2, np.float32), (float("nan"),)))
    assert len(runs) == 2
    assert tree.structure(Layer(1, float("nan"))) == tree.structure(Layer(2, float("nan")))


def test_static_data_are_compared_exactly() -> None:
    seen = []
    f = fx.jit(lambda l: seen.append(l.kind) or l.w)  # type: ignore[func-returns-value]
    kinds = [1, 1.0, True, (1,), (True,), 0.0, -0.0, range(0, 3, 2), range(0, 4, 2), Frozen(1), Frozen(1.0)]
    for _ in range(2):
        for kind in kinds:
            f(Layer(fnp.ones(2), kind))
    assert [*map(repr, seen)] == [*map(repr, kinds)]


OWN_EQUALITY = """
import dataclasses, fxad as fx, numpy as np

@dataclasses.dataclass(frozen=True)
class Tag:
    name: str
    def __eq__(self, other): return self.name.lower() == other.name.lower()
    def __hash__(self): return 0

seen = []
@fx.jit
def unused(x): return x
f = fx.jit(lambda x, tag: seen.append(tag.name) or x, static_argnums=1)
for name in "aAb": f(np.ones(2), Tag(name))
assert seen == ["a", "b"], seen
"""


def test_a_dataclass_of_generated_code_has_its_own_equality() -> None:
    exec(OWN_EQUALITY, {"__name__": __name__})
    subprocess.run([sys.executable, "-c", OWN_EQUALITY], check=True)


class Unprintable:
    """A container whose text fails."""

    def __init__(self, x: object) -> None:
        self.x = x

    def __repr__(self) -> str:
        raise RuntimeError("no text")


tree.register(Unprintable, lambda u: ([u.x], None, ["x"]), lambda _, xs: Unprintable(*xs))


def test_the_text_of_an_argument_is_not_made_in_a_call() -> None:
    f = fx.jit(lambda x: tree.leaves(x)[0] * 2)
    x = fnp.ones(2)
    for argument in ({"a": x}, {"a": Unprintable(x)}, {"b": Unprintable(x)}, Unprintable({"a": x}), [Unprintable(x)]):
        np.testing.assert_array_equal(f(argument), 2 * np.ones(2))


def test_a_structure_keeps_no_function_alive() -> None:
    f = fx.jit(lambda d: d["a"])
    factory = lambda: None  # noqa: E731
    alive = weakref.ref(factory)
    f(defaultdict(factory, a=fnp.ones(2)))
    f.clear_cache()
    del factory
    gc.collect()
    assert alive() is None
