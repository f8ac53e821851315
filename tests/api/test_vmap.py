"""`vmap`: tree prefixes, sizes, axes, error messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import tree
from fxad.errors import ArgumentError, AxisError, FxadError, ParameterError, ShapeError, TreeError
from tests.api.refusals import X, refused

M = np.arange(6, dtype=np.float32).reshape(2, 3)
S = np.float32(2)


class Pair(NamedTuple):
    a: Any
    b: Any


def test_in_axes_are_tree_prefixes() -> None:
    def f(d: Any) -> Any:
        return d["a"].sum() + d["b"][0].sum() - d["b"][1].sum()

    d = {"a": M, "b": [M, X]}
    want = [M[k].sum() + M[k].sum() - 3 for k in range(2)]
    assert fx.vmap(f, in_axes=({"a": 0, "b": [0, None]},))(d).tolist() == want
    assert fx.vmap(f, in_axes=[{"a": -2, "b": (0, None)}])(d).tolist() == want
    want = [M[k].sum() + M.sum() - 3 for k in range(2)]
    assert fx.vmap(f, in_axes=({"a": 0, "b": None},))(d).tolist() == want
    pair = fx.vmap(lambda p: p.a * p.b, in_axes=(Pair(0, None),))(Pair(M, X))
    np.testing.assert_array_equal(pair, M * X)
    assert fx.vmap(lambda t, n: t * 2, in_axes=(0, None))(M, None).shape == (2, 3)
    assert fx.vmap(lambda d: d["a"], in_axes=({"a": 0, "n": 0},))({"a": M, "n": None}).shape == (2, 3)


def test_axes_count_from_either_end() -> None:
    np.testing.assert_array_equal(fx.vmap(lambda x: x * 2, in_axes=-1)(M), 2 * M.T)
    np.testing.assert_array_equal(fx.vmap(lambda x: x * 2, in_axes=1, out_axes=1)(M), 2 * M)
    np.testing.assert_array_equal(fx.vmap(lambda x: x * 2, out_axes=-1)(M), 2 * M.T)
    out = fx.vmap(lambda x: {"u": x, "v": (x.sum(), X)}, out_axes={"u": 1, "v": (0, None)})(M)
    assert tree.map(lambda x: x.shape, out) == {"u": (3, 2), "v": ((2,), (3,))}


def test_keyword_arguments_are_mapped_over_axis_0() -> None:
    assert fx.vmap(lambda a, k: a * k)(X, k=X).tolist() == [0, 1, 4]
    program = fx.trace(lambda a, k: a * k, S, k=S)
    assert fx.vmap(program, axis_size=3)(X, k=X).tolist() == [0, 1, 4]


def test_nested_is_the_outer_product() -> None:
    f = fx.vmap(fx.vmap(lambda a, b: a * b, in_axes=(0, None)), in_axes=(None, 0))
    np.testing.assert_array_equal(f(X, X), np.outer(X, X))
    over = fx.vmap(lambda a: fx.vmap(lambda b: a * b)(X))(X)
    np.testing.assert_array_equal(over, np.outer(X, X))


def test_no_examples_and_nothing_mapped() -> None:
    assert fx.vmap(lambda x: (x * 2).sum())(np.zeros((0, 3), np.float32)).shape == (0,)
    assert fx.grad(lambda b: fx.vmap(lambda x: (x * 2).sum())(b).sum())(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert fx.vmap(lambda x: x, in_axes=None, axis_size=4)(M).shape == (4, 2, 3)
    assert fx.vmap(lambda x: x.sum(), in_axes=None, axis_size=0)(M).shape == (0,)
    assert np.asarray(fx.vmap(lambda: 1.5, axis_size=2)()).tolist() == [1.5, 1.5]


def test_vmap_of_a_program_takes_axis_size() -> None:
    program = fx.trace(lambda a, b: a * b, S, S)
    assert fx.vmap(program, (0, None)).__name__ == f"vmap_{program.name}"
    mapped = fx.vmap(program, (0, None), axis_size=3)
    assert mapped(X, S).tolist() == [0, 2, 4]
    assert mapped.jaxpr is fx.vmap(program, (0, None), axis_size=3).jaxpr
    assert fx.vmap(fx.trace(lambda a: a, X), -1, -1, axis_size=2)(M.T).shape == (3, 2)


def test_vmap_commutes_with_other_transformations() -> None:
    def loss(w: Any, x: Any) -> Any:
        return (fnp.sin(w) * x).sum()

    want = np.cos(X) * M
    for f in (
        fx.vmap(fx.grad(loss), in_axes=(None, 0)),
        fx.jit(fx.vmap(fx.grad(fx.remat(loss)), in_axes=(None, 0))),
        fx.vmap(fx.jit(fx.grad(loss)), in_axes=(None, 0)),
        lambda w, m: fx.jacrev(lambda w: fx.vmap(loss, in_axes=(None, 0))(w, m))(w),
        lambda w, m: fx.jacfwd(lambda w: fx.vmap(loss, in_axes=(None, 0))(w, m))(w),
    ):
        np.testing.assert_allclose(f(X, M), want, rtol=1e-5)


def test_specs_can_be_mapped() -> None:
    assert fx.trace(fx.vmap(lambda a: a.sum()), fx.Spec((4, 2))).out_avals[0].shape == (4,)


PREFIX = "give one entry for the whole tree, or a tree whose entries stand for whole subtrees"
IN = "in_axes gives the mapped axis of each argument; None is for an argument that is the same for all"


def same(x: Any) -> Any:
    return x


loose: Any = fx  # calls that mypy refuses too
REFUSED: list[tuple[type[FxadError], str, Callable[[], Any]]] = [
    (
        TreeError,
        "vmap of same: in_axes: ({'c': 0},) is not a tree prefix of ({'a': *},)",
        lambda: loose.vmap(same, in_axes=({"c": 0},))({"a": M}),
    ),
    (
        TreeError,
        "vmap of same: in_axes: {'a': 0} is not a tree prefix of ({'a': *},)",
        lambda: loose.vmap(same, in_axes={"a": 0})({"a": M}),
    ),
    (ArgumentError, "vmap of same: in_axes is a str: 'a'", lambda: loose.vmap(same, in_axes="a")(M)),
    (ArgumentError, "vmap of same: in_axes is a float: 1.0", lambda: loose.vmap(same, in_axes=1.0)(M)),
    (ArgumentError, "vmap of same: in_axes is a bool: True", lambda: loose.vmap(same, in_axes=True)(M)),
    (
        TreeError,
        "vmap of same: out_axes: (0, 0) is not a tree prefix of *",
        lambda: loose.vmap(same, out_axes=(0, 0))(M),
    ),
    (
        ArgumentError,
        "vmap of same: in_axes has 2 entries for 1 positional argument",
        lambda: loose.vmap(same, in_axes=(0, 0))(M),
    ),
    (
        AxisError,
        "vmap of same: argument x: axis 2 does not exist in an array with 2 axes",
        lambda: loose.vmap(same, in_axes=2)(M),
    ),
    (
        AxisError,
        "vmap of same: argument x['b']: axis 0 does not exist in an array with 0 axes",
        lambda: loose.vmap(same)({"a": M, "b": 2.0}),
    ),
    (
        AxisError,
        "vmap of same: result: axis 2 does not exist in an array with 2 axes",
        lambda: loose.vmap(same, out_axes=2)(M),
    ),
    (
        AxisError,
        "vmap of same: argument x: axis 1 does not exist in an array with 1 axis",
        lambda: loose.vmap(loose.trace(same, S), 1, axis_size=3),
    ),
    (
        ShapeError,
        "vmap of same: sizes of the mapped axis differ: 2: axis 0 of x['a'], f32[2,3]; 3: axis 0 of x['b'], f32[3]",
        lambda: loose.vmap(same)({"a": M, "b": X}),
    ),
    (
        ShapeError,
        "vmap of same: sizes of the mapped axis differ: 4: axis_size; 2: axis 0 of x, f32[2,3]",
        lambda: loose.vmap(same, axis_size=4)(M),
    ),
    (
        ShapeError,
        "vmap of same: result['a'] varies with the mapped arguments, but its out_axes is None",
        lambda: loose.vmap(same, out_axes={"a": None, "b": 0})({"a": M, "b": M}),
    ),
    (ArgumentError, "vmap of same: no argument is mapped", lambda: loose.vmap(same, in_axes=None)(M)),
    (
        ParameterError,
        "vmap of same: axis_size is -4, not a number of examples",
        lambda: loose.vmap(same, in_axes=None, axis_size=-4)(M),
    ),
    (
        ParameterError,
        "vmap of same: axis_size is 'a', not a number of examples",
        lambda: loose.vmap(same, in_axes=None, axis_size="a")(M),
    ),
    (
        ParameterError,
        "vmap of same: axis_size is True, not a number of examples",
        lambda: loose.vmap(loose.trace(same, X), axis_size=True),
    ),
]


@pytest.mark.parametrize(("error", "message", "fn"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(error: type[FxadError], message: str, fn: Callable[[], Any]) -> None:
    e = refused(fn, error, message)
    if error is TreeError:
        assert e.remedy == PREFIX
    if "argument x: axis" in message:
        assert e.remedy == IN


def test_sizes_that_differ_name_all_arguments() -> None:
    x, u = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    with pytest.raises(ShapeError) as e:
        fx.vmap(lambda a, b, c: a, (0, 1, 0))(x, u, x)
    assert e.value.message == (
        "vmap of <lambda>: sizes of the mapped axis differ: "
        "3: axis 0 of a, f32[3,4], axis 0 of c, f32[3,4]; 5: axis 1 of b, f32[4,5]"
    )


@pytest.mark.parametrize("axes", ["x", 1.0, ("a",), (1.5,), (np.ones(2),), True, (int,)], ids=str)
def test_in_axes_of_another_kind(axes: Any) -> None:
    for given in ({"in_axes": axes}, {"out_axes": axes}):
        with pytest.raises(ArgumentError, match=r"axes( has an entry that)? is an? ") as e:
            fx.vmap(lambda a: a, **given)(M)
        remedy = "an entry is an int, or None for what is not mapped: give one for all, or a tree of them"
        assert e.value.remedy == remedy


def test_axes_of_numpy() -> None:
    axes: tuple[Any, ...] = (np.int64(1), np.array(1))
    for axis in axes:
        np.testing.assert_array_equal(loose.vmap(lambda a: a * 2, axis, axis, axis_size=M.shape[1])(M), M * 2)


def test_unmapped_arguments_may_be_functions() -> None:
    def apply(x: Any, f: Any, more: Any, *, g: Any = None) -> Any:
        return f(x) + more["f"](more["x"])

    given = {"f": lambda v: v * 2, "x": np.float32(3)}
    out = fx.vmap(apply, (0, None, None))(M, fx.numpy.sin, given)
    np.testing.assert_allclose(out, np.sin(M) + 6, rtol=1e-6)
    inside = fx.jit(lambda x: fx.vmap(apply, (0, None, None))(x, fx.numpy.cos, given))
    np.testing.assert_allclose(inside(M), np.cos(M) + 6, rtol=1e-6)
    with pytest.raises(ArgumentError, match=r"argument f: a function is not an array"):
        fx.vmap(apply, (0, 0, None))(M, fx.numpy.sin, given)
