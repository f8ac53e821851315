"""Transformations without a function are decorators; jitted methods; operators with lists."""

from __future__ import annotations

import array
import functools
import inspect
import tomllib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, AxisError, ShapeError

X = np.array([1.0, 2.0, 3.0], np.float32)


def dot(x: fx.Array, y: fx.Array) -> fx.Array:
    return fnp.sum(x * x * y)


# name, options, arguments
FORMS: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    ("jit", {"static_argnames": ()}, (X, X)),
    ("vmap", {"in_axes": (0, None)}, (X, np.float32(2))),
    ("grad", {"argnums": 1}, (X, X)),
    ("value_and_grad", {"argnums": (0, 1)}, (X, X)),
    ("jacfwd", {"argnums": 1}, (X, X)),
    ("jacrev", {"argnums": 1}, (X, X)),
    ("jacobian", {"argnums": 1}, (X, X)),
    ("hessian", {"argnums": 0}, (X, X)),
    ("remat", {"policy": fx.policies.dots}, (X, X)),
    ("checkpoint", {"policy": fx.policies.dots}, (X, X)),
    ("outline", {"min_cost": 1.0}, (X, X)),
    ("apply_passes", {"passes": ()}, (X, X)),
    ("bucketed", {"in_shapes": ("n", "n")}, (X, X)),
    ("named_call", {"name": "g"}, (X, X)),
    ("shard_map", {"mesh": {"i": 1}, "in_specs": fx.P(), "out_specs": fx.P()}, (X, X)),
    ("pmap", {"axis_name": "i"}, (X[None], X[None])),
    ("soft_pmap", {"axis_name": "i"}, (X[None], X[None])),
]


@pytest.mark.parametrize(("name", "options", "args"), FORMS, ids=[f[0] for f in FORMS])
def test_without_a_function_it_is_a_decorator(name: str, options: dict[str, Any], args: tuple[Any, ...]) -> None:
    transformation: Callable[..., Any] = getattr(fx, name)
    expected = transformation(dot, **options)(*args)
    named = functools.partial(transformation, **options)
    for decorator in (transformation(**options), named, lambda f: named(fun=f)):
        found = decorator(dot)(*args)
        assert all(fx.tree.leaves(fx.tree.map(lambda a, b: np.array_equal(a, b), found, expected)))
    assert next(iter(inspect.signature(transformation).parameters)) in ("f", "fun")


OTHERS = ("laplacian", "biharmonic", "sparse_jacobian", "sparse_hessian")  # without a decorator form


@pytest.mark.parametrize("name", [*[f[0] for f in FORMS], *OTHERS])
def test_arguments_of_the_function_are_no_options(name: str) -> None:
    """`grad(f, x)` is refused at once: it would be a function with `x` for argnums."""
    with pytest.raises(ArgumentError) as e:
        getattr(fx, name)(dot, X)
    own = getattr(fx, name).__name__
    assert e.value.message == f"{own}: an option is an ndarray: {X!r}"
    assert e.value.remedy == f"{own}(f) is a function, which takes the arguments of f: {own}(f)(x)"
    fx.grad(dot, np.array(1))(X, X)  # type: ignore[call-overload]  # an array without axes is a number


def test_make_jaxpr_and_rules_without_a_function() -> None:
    program, same = fx.make_jaxpr(static_argnums=1)(lambda x, n: x * n), fx.make_jaxpr(lambda x, n: x * n, 1)
    assert program(X, 2).jaxpr is same(X, 2).jaxpr
    assert fx.mask(in_shapes=("n", "n"))(dot)(X, X, sizes={"n": 2}) == 1 + 8
    assert np.array_equal(fx.grad(lambda x: fx.invertible(tolerance=0.5)(fnp.exp)(x).sum())(X), fnp.exp(X))
    assert fx.custom_jvp(nondiff_argnums=(1,))(dot).nondiff_argnums == (1,)
    assert fx.custom_vjp(nondiff_argnums=(1,))(dot).nondiff_argnums == (1,)

    @fx.custom_inverse(keep="y")
    def add(x: fx.Array, y: fx.Array) -> fx.Array:
        return x + y

    add.definverse(lambda z, y: z - y, "y")
    x = fnp.asarray(X)
    assert np.allclose(fx.inverse(log_det=False)(add)(add(x, x), x), x)


def test_no_function_is_not_a_decorator() -> None:
    for transformation in (fx.jit, fx.grad, fx.vmap, fx.remat):
        with pytest.raises(ArgumentError, match="neither a Program nor a function"):
            transformation(None)  # type: ignore[call-overload]  # what is tested


@fx.tree.dataclass
class Layer:
    w: fx.Array

    @fx.jit
    def apply(self, x: fx.Array) -> fx.Array:
        return x * self.w

    @functools.partial(fx.jit, static_argnames="n")
    def power(self, x: fx.Array, n: int) -> fx.Array:
        return (x * self.w) ** n


class Plain:
    def __init__(self, w: fx.Array) -> None:
        self.w = w

    apply, power = Layer.apply, Layer.power


@pytest.mark.parametrize("cls", [Layer, Plain])
def test_a_jitted_method_has_the_stages_of_jit(cls: Any) -> None:
    layer = cls(fnp.asarray(X))
    assert np.array_equal(layer.apply(X), X * X)
    assert np.array_equal(layer.power(X, n=2), (X * X) ** 2)
    assert layer.apply.eval_shape(X).shape == layer.power.eval_shape(X, n=2).shape == (3,)
    assert "multiply" in layer.apply.lower(X).text()
    assert layer.power.trace(X, n=2).jaxpr.out_avals[0].shape == (3,)
    layer.apply.clear_cache()
    layer.power.clear_cache()


SEQUENCES: list[Any] = [
    [1.5, 2.5], (1.5, 2.5), [[1.0], [2.0]], [], range(2), deque([1.0]), array.array("d", [1, 2]), memoryview(b"ab"),
]  # fmt: skip
OPERATORS = ["==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"]


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_refuses_a_sequence(operator: str) -> None:
    """Python would say that they are not equal, or repeat the sequence."""
    for x in (fnp.asarray([1, 2]), fnp.asarray(3)):
        for sequence in SEQUENCES:
            for text in (f"x {operator} sequence", f"sequence {operator} x"):
                with pytest.raises(ArgumentError, match=r"is not an array: .*") as caught:
                    eval(text, {"x": x, "sequence": sequence})
                assert caught.value.remedy == "make it one: fnp.asarray(...)"
    with pytest.raises(ArgumentError, match="a list is not an array"):
        fx.jit(lambda x: eval(f"x {operator} [1]", {"x": x}))(fnp.asarray([1]))


def test_an_operator_with_a_list_names_itself() -> None:
    with pytest.raises(ArgumentError) as caught:
        fnp.ones(2) == [1.5, 2.5]  # noqa: B015  what is tested
    assert caught.value.message == "eq: a list is not an array: [1.5, 2.5]"
    with pytest.raises(ArgumentError, match="eq: a list is not an array"):
        assert [1.0] in fnp.ones(2)  # type: ignore[operator]  # what is tested


def test_an_array_is_no_string_and_not_none() -> None:
    """As in JAX: the truth of `x == "auto"` and `x == None` is known in a trace too."""
    x: Any = fnp.ones(2)
    for other in (None, "auto", b"a", {}, {1}, object()):
        assert (x == other) is False
        assert (x != other) is True
        assert (other == x) is False
    assert fx.jit(lambda x: x if x == "auto" else x + 1)(x)[0] == 2


def test_item_takes_indices() -> None:
    x = fnp.arange(6).reshape(2, 3)
    values = np.arange(6).reshape(2, 3)
    for index in [(0,), (5,), (-1,), (1, 2), (0, -1), ((1, 2),), (np.int64(4),), (fnp.asarray(1), 2)]:
        arguments: Any = index
        assert x.item(*arguments) == values.item(*arguments)
        assert type(x.item(*arguments)) is int
    with pytest.raises(AxisError) as outside:
        x.item(6)
    assert outside.value.message == "item: 6 is outside of i32[2,3]"
    assert isinstance(outside.value, IndexError)
    for bad in ((0.5,), (1, 2, 3), ("a",)):
        with pytest.raises(ArgumentError) as caught:
            x.item(*bad)
        assert caught.value.message.endswith("is no index of an element of i32[2,3]")
    with pytest.raises(ShapeError, match="6 elements, not one"):
        x.item()
    with pytest.raises(fx.errors.TracerError, match="item"):
        fx.jit(lambda x: x.item(0))(x)


def test_names_that_other_packages_read() -> None:
    for name in ("float32", "int8", "bfloat16", "complex128", "float8_e4m3fn"):
        assert getattr(fnp, name).__name__ == name
    assert fnp.bool_.__name__ == np.bool_.__name__
    assert {"testing", "interop", "__version__"} <= {*dir(fx), "__version__"}
    assert fx.testing.check_primitive is not None


def test_the_version_is_that_of_the_package() -> None:
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert fx.__version__ == settings["project"]["version"]
