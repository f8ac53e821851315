"""Maps over one device: host calls, checks and collectives behave as on several devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import lax
from fxad.errors import CheckError
from fxad.sharding import get_mesh

X: Any = np.ones((1, 3), np.float32)


def doubled(v: fx.Array) -> Any:
    return fx.pure_callback(lambda a: 2 * np.asarray(a), fx.Spec(v.shape), v)


def printed(v: fx.Array) -> Any:
    fx.debug_print("{}", v)
    return 2 * v


def looped(v: fx.Array) -> Any:
    return lax.scan(lambda c, _: (doubled(c), None), v, None, length=1)[0]


def test_a_generator_leaves_its_mesh_inside_of_another_one() -> None:
    first, second = (fx.make_mesh((1,), (name,)) for name in "ij")

    def inside() -> Iterator[None]:
        with first:
            yield

    generator = inside()
    next(generator)
    with second:
        del generator
        assert get_mesh() is second
        with first, second:
            assert get_mesh() is second
        assert get_mesh() is second
    assert get_mesh() is None


@pytest.mark.parametrize("f", [doubled, printed, looped])
def test_calls_of_the_host(f: Callable[[fx.Array], Any]) -> None:
    mesh = fx.make_mesh((1,), ("i",))
    mapped = fx.pmap(lambda v: lax.psum(f(v), "i"), "i")
    sharded = fx.shard_map(f, mesh=mesh, in_specs=fx.P("i"), out_specs=fx.P("i"))
    for g in (mapped, sharded, fx.jit(mapped), fx.jit(sharded)):
        np.testing.assert_array_equal(g(X), 2 * X)
    np.testing.assert_array_equal(fx.pmap(fx.pmap(f, "j"), "i")(X[None]), 2 * X[None])
    assert sharded(X).sharding == fx.NamedSharding(mesh, fx.P("i"))


def test_checks() -> None:
    checked = fx.pmap(lambda v: fx.error_if(v, v > 1, "too large: {}", v), "i")
    np.testing.assert_array_equal(checked(X), X)
    with pytest.raises(CheckError, match="too large"):
        checked(2 * X)
