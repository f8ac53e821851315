"""Structures of users' classes are computed without calling their functions: a constructor sees values only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optree
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, tree, tree_util

RUNS: list[tuple[object, ...]] = []


class Pair:
    """A class whose constructor looks at the shapes of its arguments."""

    def __init__(self, a: Any, b: Any) -> None:
        RUNS.append((a, b))
        if a.shape != b.shape:
            raise TypeError("shapes differ")
        self.a, self.b = a, b


tree.register(Pair, lambda p: ((p.a, p.b), "pair", ("a", "b")), lambda _, xs: Pair(*xs), optree.GetAttrEntry)


class Unnamed(Pair):
    """The same, registered as in JAX."""


tree_util.register_pytree_node(Unnamed, lambda p: ((p.a, p.b), None), lambda _, xs: Unnamed(*xs))


@tree_util.register_dataclass
@dataclasses.dataclass
class Checked(Pair):
    """A dataclass that checks its fields."""

    a: Any
    b: Any

    def __post_init__(self) -> None:
        Pair.__init__(self, self.a, self.b)


X = fnp.ones(3)


def f(p: Any) -> Any:
    return type(p)(p.a * p.b, p.b + p.a)


def g(p: Any) -> Any:
    return (p.a * p.b).sum()


def prefix(cls: type) -> Any:
    """An instance with the axes 0 in place of arrays."""
    axes: Any = object.__new__(cls)
    axes.a = axes.b = 0
    return axes


TRANSFORMED: dict[str, Callable[[Any, Path], object]] = {
    "jit": lambda p, _: fx.jit(f)(p),
    "grad": lambda p, _: fx.grad(g)(p),
    "jvp": lambda p, _: fx.jvp(f, (p,), (p,)),
    "vjp": lambda p, _: fx.vjp(f, p)[1](p),
    "linearize": lambda p, _: fx.linearize(f, p)[1](p),
    "jacfwd": lambda p, _: fx.jacfwd(lambda q: q.a[0] * q.b[0])(p),
    "jacrev": lambda p, _: fx.jacrev(lambda q: q.a[0] * q.b[0])(p),
    "vmap": lambda p, _: fx.vmap(f)(p),
    "in_axes": lambda p, _: fx.vmap(f, in_axes=(prefix(type(p)),))(p),
    "in_axes of a part": lambda p, _: fx.vmap(lambda d, y: d["p"].a + y, in_axes=({"p": 0}, None))({"p": p}, 1.0),
    "remat": lambda p, _: fx.grad(fx.remat(g))(p),
    "scan": lambda p, _: lax.fori_loop(0, 2, _step, p),
    "partial_eval": lambda p, _: fx.partial_eval(fx.trace(_second, p, p), (True, False)),
    "inverse": lambda p, _: fx.inverse(fx.trace(lambda q: type(q)(q.a + 1, q.b * 2), p))(p),
    "donation": lambda p, _: fx.jit(f, donate={"p": True})(type(p)(X * 2, X * 3)),
    "exported": lambda p, _: fx.load_exported(fx.lower(fx.trace(f, p)).export())(p),
    "program in a file": lambda p, folder: _through_a_file(fx.trace(f, p), folder)(p),
    "file": lambda p, folder: _tree_through_a_file([p], folder),
    "text": lambda p, _: tree.shape_text(tree.structure({"p": p})),
    "other structure": lambda p, _: fx.jit(lambda q: X)({"p": p}),
}


def _second(_: Any, q: Any) -> Any:
    return f(q)


def _step(_: object, carry: Any) -> Any:
    return f(carry)


def _through_a_file(program: Any, folder: Path) -> Any:
    fx.save(program, folder / "p")
    return fx.load(folder / "p")


def _tree_through_a_file(x: Any, folder: Path) -> Any:
    tree.save(folder / "t", x)
    return tree.load(folder / "t")


@pytest.mark.parametrize("cls", [Pair, Unnamed, Checked])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_constructor_sees_values_only(name: str, cls: type, tmp_path: Path) -> None:
    p = cls(X, X)
    RUNS.clear()
    TRANSFORMED[name](p, tmp_path)
    assert all(isinstance(x, fx.Array | np.ndarray) for run in RUNS for x in run), RUNS


def test_a_class_that_has_changed_is_noticed_when_it_is_loaded(tmp_path: Path) -> None:
    class Now:
        data: object = None

    Now.__qualname__ = "Now"
    globals()["Now"] = Now
    tree.register(Now, lambda x: ([x.a], Now.data, ("a",)), lambda _, xs: _made(Now, xs))
    tree.save(tmp_path / "t", _made(Now, [X]))
    np.testing.assert_array_equal(tree.load(tmp_path / "t").a, X)
    Now.data = 1
    with pytest.raises(fx.errors.FileFormatError) as e:
        tree.load(tmp_path / "t")
    assert e.value.message == f"tree.load: {tmp_path / 't'}: a class has changed: Now(a=*) and Now(a=*)"
    assert e.value.remedy == "define the class as it was when the tree was saved, or load arrays by `like=`"


def test_a_class_that_does_not_take_its_arrays_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Pair, a: Any, b: Any) -> None:
        raise ValueError("no more pairs")

    tree.save(tmp_path / "t", Pair(X, X))
    monkeypatch.setattr(Pair, "__init__", refuse)
    with pytest.raises(fx.errors.FileFormatError) as e:
        tree.load(tmp_path / "t")
    assert e.value.message == (
        f"tree.load: {tmp_path / 't'}: a class does not take what was saved: ValueError: no more pairs"
    )


def _made(cls: type, children: Any) -> Any:
    x: Any = cls()
    (x.a,) = children
    return x


# --------------------------------------------------------------------------------------------------- registration


class ByPair:
    def __init__(self, x: object) -> None:
        self.x = x


def _pair(x: Any) -> Any:
    if not x.x:
        return (), None
    return (x.x,), None


WRONG = "flatten_node of ByPair returns a tuple of 2 values, not (children, data, keys)"


@pytest.mark.parametrize("flatten", [lambda x: ((x.x,), None), _pair, lambda x: ((), 0)])
def test_a_pair_of_jax_is_refused_when_the_class_is_registered(flatten: Any) -> None:
    with pytest.raises(fx.errors.ArgumentError) as e:
        tree.register(ByPair, flatten, lambda _, xs: ByPair(*xs))
    assert e.value.message == f"tree.register: {WRONG}"
    assert e.value.remedy == (
        "give one key for each child, by which paths name it; fxad.tree.register_pytree_node takes JAX's pair"
        " (children, data)"
    )
    assert tree.leaves(ByPair(1))[0].x == 1  # not registered


def test_a_pair_that_is_made_elsewhere_is_refused_when_an_instance_is_flattened() -> None:
    class Later(ByPair):
        pass

    def pair(x: Any) -> Any:
        return (x.x,), *[None]

    tree.register(Later, pair, lambda _, xs: Later(*xs))
    with pytest.raises(fx.errors.ArgumentError) as e:
        tree.leaves(Later(1))
    assert e.value.message == f"tree.register: {WRONG.replace('ByPair', Later.__qualname__)}"
    assert "test_users_classes.py" in e.value.caller


@pytest.mark.parametrize("arguments", [(3, len, len), (ByPair, 3, len), (ByPair, len, None)])
def test_registration_takes_a_class_and_functions(arguments: Any) -> None:
    with pytest.raises(fx.errors.ArgumentError, match=r"^tree.register: takes a class and two functions, got "):
        tree.register(*arguments)


# ------------------------------------------------------------------------------------------------------------ text


class Mute:
    """An object whose text fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__


MUTE: Any = Mute()
REFUSED: dict[str, Callable[[], object]] = {
    "jit": lambda: fx.jit(lambda x: x)(MUTE),
    "jit of a dict": lambda: fx.jit(lambda x: x)({"a": MUTE}),
    "trace": lambda: fx.trace(lambda x: x, MUTE),
    "grad": lambda: fx.grad(lambda x: x)(MUTE),
    "vmap": lambda: fx.vmap(lambda x: x)(MUTE),
    "result": lambda: fx.jit(lambda x: MUTE)(X),
    "function": lambda: fx.jit(MUTE),
    "executable": lambda: fx.lower(fx.trace(lambda x: x, X)).compile()(MUTE),
    "asarray": lambda: fnp.asarray(MUTE),
    "operand": lambda: fnp.sin(MUTE),
    "in_axes": lambda: fx.vmap(lambda x: x, in_axes=MUTE)(X),
    "in_axes in a tree": lambda: fx.vmap(lambda x: x, in_axes=({"a": MUTE},))({"a": X}),
    "static": lambda: fx.jit(lambda x, n: x, static_argnums=MUTE)(X, 1),
    "static data": lambda: fx.jit(lambda x: x.a)(Holder(X, [MUTE])),
    "donate": lambda: fx.jit(lambda x: x, donate=MUTE),
    "tree.save": lambda: tree.save("/tmp/never", {"a": MUTE}),
    "path": lambda: tree.save(MUTE, {}),
    "tree.map": lambda: tree.map(MUTE, X),
    "unflatten": lambda: tree.unflatten(MUTE, []),
    "device_put": lambda: fx.device_put(MUTE),
}


@tree.dataclass
class Holder:
    a: Any
    kind: Any = tree.static(default=0)


@pytest.mark.parametrize("name", REFUSED)
def test_an_object_without_a_text_is_named_by_its_type(name: str) -> None:
    with pytest.raises(fx.errors.FxadError) as e:
        REFUSED[name]()
    assert "Mute" in str(e.value)


@pytest.mark.parametrize(
    ("parts", "pairs", "found", "children"),
    [
        ((1, 2, 3), False, "a tuple: (1, 2, 3)", "children"),
        ("ab", True, "a str: 'ab'", "pairs (key, child)"),
        ((3, None), False, "a pair whose first part is an int: 3", "children"),
        (([1], None), True, "a pair whose first part is a list: [1]", "pairs (key, child)"),
    ],
)
def test_functions_of_jax_that_give_no_pair(parts: Any, pairs: bool, found: str, children: str) -> None:
    class Odd:
        pass

    register: Any = tree.register_pytree_with_keys if pairs else tree.register_pytree_node
    register(Odd, lambda x: parts, lambda data, children: Odd())
    with pytest.raises(fx.errors.ArgumentError) as e:
        tree.leaves([Odd()])
    name = "test_functions_of_jax_that_give_no_pair.<locals>.Odd"
    assert e.value.message == f"tree: the function that takes apart {name} returns {found}"
    assert e.value.remedy == f"return a pair: a sequence of {children}, and static data"


def test_errors_of_functions_of_jax_are_their_own() -> None:
    class Odd:
        pass

    def parts(x: object) -> tuple[Any, None]:
        return (int(c) for c in "1a"), None

    tree.register_pytree_node(Odd, parts, lambda data, children: Odd())
    with pytest.raises(ValueError, match="invalid literal"):
        tree.leaves([Odd()])
