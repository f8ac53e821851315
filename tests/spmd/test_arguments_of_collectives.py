"""Collectives take pytrees of arrays and axes that a map binds. Everything else is refused, in the name of the function
that was called, also where the value would be returned as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
from fxad import lax
from fxad.errors import ArgumentError, AxisNameError, DTypeError

Collective = Callable[[Any, Any], Any]
COLLECTIVES: Final[dict[str, Collective]] = {
    "pvary": lax.pvary,
    "pcast": lambda x, name: lax.pcast(x, name, to="varying"),
    "psum": lax.psum,
    "pmean": lax.pmean,
    "pmax": lax.pmax,
    "pmin": lax.pmin,
    "all_gather": lax.all_gather,
    "psum_scatter": lax.psum_scatter,
    "all_to_all": lambda x, name: lax.all_to_all(x, name, 0, 0),
    "pswapaxes": lambda x, name: lax.pswapaxes(x, name, 0),
    "ppermute": lambda x, name: lax.ppermute(x, name, [(0, 1)]),
    "pshuffle": lambda x, name: lax.pshuffle(x, name, [0, 1, 2]),
    "pbroadcast": lambda x, name: lax.pbroadcast(x, name, 0),
}
ALSO_OF_NO_AXIS: Final = ("pvary", "pcast", "psum", "pmean", "pmax", "pmin")
X: Final = np.ones((3, 3), np.float32)


def applied(f: Callable[[Any], Any]) -> Any:
    return fx.vmap(f, axis_name="i")(X)


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
@pytest.mark.parametrize("wrong", [object(), "abc", np.array(["a"]), {"w": ["b"]}], ids=lambda w: type(w).__name__)
def test_what_is_no_array(name: str, wrong: Any) -> None:
    f = COLLECTIVES[name]
    for axis in ("i", ()) if name in ALSO_OF_NO_AXIS else ("i",):
        with pytest.raises((ArgumentError, DTypeError)) as e:
            applied(lambda x: (f(wrong, axis), x)[1])
        assert str(e.value).startswith(f"{name}: "), str(e.value)


@pytest.mark.parametrize("name", [*sorted(COLLECTIVES), "axis_index", "axis_size"])
def test_names_of_axes(name: str) -> None:
    f = COLLECTIVES.get(name, lambda _, axis: getattr(lax, name)(axis))
    with pytest.raises(AxisNameError) as e:
        applied(lambda x: f(x, "j"))
    assert str(e.value).startswith(f"{name}: no map around binds axis 'j'; axes in scope: 'i'")
    with pytest.raises(AxisNameError) as e:
        f(X, "i")
    assert str(e.value).startswith(f"{name}: no map around binds axis 'i'; axes in scope: none")
    with pytest.raises(AxisNameError) as e:
        applied(lambda x: f(x, ("i", "i")))
    assert str(e.value).startswith(f"{name}: axis_name ('i', 'i') names an axis twice")
    for wrong in (None, 3, 1.5):
        with pytest.raises(ArgumentError) as a:
            applied(lambda x: f(x, wrong))
        assert str(a.value).startswith(f"{name}: axis_name must be a sequence")


def test_values_are_returned_as_they_are() -> None:
    tree = {"a": X[0], "b": [1.5, True]}
    assert applied(lambda x: (x, lax.pvary(tree, "i") is tree and lax.pcast(tree, (), to="varying") is tree))[1].all()


def test_a_mean_names_the_leaf() -> None:
    with pytest.raises(ArgumentError) as e:
        applied(lambda x: lax.pmean({"a": x, "w": "abc"}, "i"))
    assert str(e.value).startswith("pmean: x['w']: a str is not an array")


def test_a_constraint_of_what_is_no_array() -> None:
    with pytest.raises(ArgumentError) as e:
        lax.with_sharding_constraint({"w": "abc"}, None)
    assert str(e.value).startswith("with_sharding_constraint: x['w']: a str is not an array")
