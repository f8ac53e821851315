"""`from_jax` of JAX's maps and collectives on 8 CPU devices gives the values and gradients of JAX.

`test_shard_map_laws.py` runs these tests in a process of their own. To run them by hand:

FXAD_CPU_DEVICES=8 python -m pytest tests/spmd/from_jax_on_devices.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad.errors import TranslationError

jax: Any = pytest.importorskip("jax")
interop = pytest.importorskip("fxad.interop.jax")
jnp, lax, P = jax.numpy, jax.lax, jax.sharding.PartitionSpec
grad: Any = fx.grad
jax.config.update("jax_num_cpu_devices", 8)
AUTO = jax.sharding.AxisType.Auto
LINE = jax.make_mesh((8,), ("i",), axis_types=(AUTO,))
GRID = jax.make_mesh((4, 2), ("i", "j"), axis_types=(AUTO, AUTO))
X = np.linspace(-1, 1.5, 64, dtype=np.float32).reshape(8, 8)
RING = [(k, (k + 1) % 8) for k in range(8)]
ROWS, BOTH = P("i"), P("i", "j")


def over(f: Callable[..., Any], mesh: Any = LINE, ins: Any = ROWS, outs: Any = ROWS, **how: Any) -> Any:
    return jax.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs, **how)


def shifted(c: Any) -> Any:
    return c + lax.ppermute(c, "i", RING)


def summed(v: Any) -> Any:
    return v * lax.psum(v, "i")


LINEAR: dict[str, Any] = {
    "psum": over(summed),
    "psum of a number": over(lambda v: v * lax.psum(1, "i")),
    "psum of a tree": over(lambda v: lax.psum({"a": v, "b": 2 * v}, "i")["b"], outs=P()),
    "psum over two axes": over(lambda v: v * lax.psum(v, ("i", "j")), GRID, BOTH, BOTH),
    "psum with groups": over(
        lambda v: lax.psum(v, "i", axis_index_groups=[[0, 1, 2, 3], [4, 5, 6, 7]]), check_vma=False
    ),
    "pmean": over(lambda v: v - lax.pmean(v, "i")),
    "all_gather": over(lambda v: lax.all_gather(v, "i").sum(0)),
    "all_gather, tiled": over(lambda v: lax.all_gather(v, "i", tiled=True, axis=1)),
    "all_to_all": over(lambda v: lax.all_to_all(v[0], "i", 0, 0, tiled=False)[None]),
    "all_to_all, tiled": over(lambda v: lax.all_to_all(v, "i", 1, 0, tiled=True)),
    "psum_scatter": over(lambda v: lax.psum_scatter(v[0], "i", scatter_dimension=0, tiled=False)[None]),
    "psum_scatter, tiled": over(lambda v: lax.psum_scatter(v, "i", scatter_dimension=1, tiled=True)),
    "ppermute": over(lambda v: lax.ppermute(v, "i", RING)),
    "ppermute over two axes": over(lambda v: lax.ppermute(v, ("i", "j"), [(0, 2), (1, 3), (7, 0)]), GRID, BOTH, BOTH),
    "ppermute of negative indices": over(lambda v: lax.ppermute(v, "i", [(-1, 0), (0, -2)])),
    "all_gather in another order": over(lambda v: lax.all_gather(v, ("j", "i"), tiled=True), GRID, BOTH, BOTH),
    "pmap": jax.pmap(summed, axis_name="i"),
    "pmap, out_axes=None": jax.pmap(lambda v: lax.psum(v, "i"), axis_name="i", out_axes=None),
    "scan in a map": over(lambda v: lax.scan(lambda c, _: (shifted(c), None), v, None, length=3)[0]),
    "map in a scan": lambda x: lax.scan(lambda c, _: (0.1 * over(summed)(c), None), x, None, length=2)[0],
    "cond in a map": over(lambda v: lax.cond(lax.psum(v.sum(), "i") > 0, summed, lambda u: u, v)),
    "remat in a map": over(jax.checkpoint(lambda v: jnp.sin(v) * lax.psum(v, "i"))),
    "grad in a map": jax.pmap(jax.grad(lambda v: jnp.sum(jnp.sin(v) * lax.psum(1, "i"))), axis_name="i"),
}
if jax.__version_info__ < (0, 12):
    # JAX counts the indices in the order of the mesh here, and in that of the names in other collectives. It refuses
    # this from 0.12 on.
    LINEAR["ppermute over axes in another order"] = over(
        lambda v: lax.ppermute(v, ("j", "i"), [(0, 2), (1, 3), (7, 0)]), GRID, BOTH, BOTH
    )
OTHERS: dict[str, Any] = {
    "pmax": over(lambda v: lax.pmax(v, "i"), outs=P()),
    "pmin": over(lambda v: lax.pmin(v, "i"), outs=P()),
    "pshuffle": over(lambda v: lax.pshuffle(v, "i", [7, 6, 5, 4, 3, 2, 1, 0]), check_vma=False),
    "axis_index": over(lambda v: v + lax.axis_index("i")),
    "axis_index of two axes": over(lambda v: v + lax.axis_index(("i", "j")), GRID, BOTH, BOTH),
    "axis_size": over(lambda v: v * lax.axis_size("i")),
    "pmap, in_axes=None": lambda x: jax.pmap(lambda v, w: v + lax.psum(w, "i"), axis_name="i", in_axes=(0, None))(
        x, x[0]
    ),
    "while in a map": over(
        lambda v: lax.while_loop(lambda c: lax.pmax(c.max(), "i") < 9, lambda c: 2 * c + 1, v), check_vma=False
    ),
    "jit of a map": jax.jit(over(summed)),
    "grad of a map": jax.grad(lambda x: jnp.sum(over(summed)(x) ** 2)),
    "a varying copy": over(
        lambda v: jax.grad(lambda q: jnp.sum(jnp.sin(q) * v))(lax.pcast(jnp.ones(8), "i", to="varying"))
    ),
    "with_sharding_constraint": jax.jit(lambda x: lax.with_sharding_constraint(x, jax.NamedSharding(LINE, P("i")))),
    "in_shardings": jax.jit(
        jnp.sin, in_shardings=jax.NamedSharding(LINE, P("i")), out_shardings=jax.NamedSharding(LINE, P(None, "i"))
    ),
}


@pytest.mark.parametrize("name", [*LINEAR, *OTHERS])
def test_values(name: str) -> None:
    f = {**LINEAR, **OTHERS}[name]
    have = interop.from_jax(f, X)(X)
    np.testing.assert_allclose(np.asarray(have), np.asarray(f(X)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["psum over two axes", "all_to_all, tiled", "pmap", "map in a scan", "cond in a map"])
def test_gradients(name: str) -> None:
    f = LINEAR[name]
    program = interop.from_jax(f, X)
    have, want = grad(lambda x: fx.numpy.sum(program(x) ** 2))(X), jax.grad(lambda x: jnp.sum(f(x) ** 2))(X)
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-4, atol=1e-4)


def each(v: Any) -> Any:
    """Returns a nonlinear function of each collective that JAX differentiates."""
    k = lax.axis_index("i")
    scattered = lax.psum_scatter(jnp.cos(v), "i", scatter_dimension=1, tiled=True)
    gathered = jnp.sin(lax.all_gather(v, "i")).sum(0)
    exchanged = lax.all_to_all(v, "i", 1, 1, tiled=True)
    least = lax.pmin(lax.stop_gradient(v), "i") + lax.pmax(lax.stop_gradient(v), "i")
    return (k * v - lax.pmean(v, "i")) * gathered + scattered * exchanged + least * lax.ppermute(v, "i", RING)


@pytest.mark.parametrize("check", [True, False])
def test_the_gradient_of_each_collective(check: bool) -> None:
    f = over(each, check_vma=check)

    def loss(x: Any) -> Any:
        return jnp.sum(f(x) ** 2)

    value, gradient = jax.jit(jax.value_and_grad(loss))(X)
    value_here, gradient_here = fx.value_and_grad(interop.from_jax(loss, X))(X)
    np.testing.assert_allclose(np.asarray(value_here), np.asarray(value), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(gradient_here), np.asarray(gradient), rtol=1e-4, atol=1e-3)


def totalled(v: Any) -> Any:
    return v * lax.psum(v, "i")


ruled_back = jax.custom_vjp(totalled)
ruled_back.defvjp(lambda v: (ruled_back(v), v), lambda r, ct: (ct * lax.psum(jnp.sin(r), "i"),))


ruled = jax.custom_jvp(totalled)
ruled.defjvp(lambda primals, tangents: (ruled(primals[0]), tangents[0] * lax.psum(jnp.cos(primals[0]), "i")))


RULED: dict[str, Any] = {
    "shard_map": lambda f: over(f, GRID, BOTH, BOTH),
    "shard_map, not checked": lambda f: over(f, GRID, BOTH, BOTH, check_vma=False),
    "pmap": lambda f: jax.pmap(f, axis_name="i"),
    "vmap": lambda f: jax.vmap(f, axis_name="i"),
    "scan": lambda f: over(lambda v: lax.scan(lambda c, _: (0.1 * f(c), None), v, None, length=2)[0]),
    "two meshes": lambda f: lambda x: over(f)(over(f, GRID, P("j", "i"), P("j", "i"))(x)),
}


@pytest.mark.parametrize("f", [ruled, ruled_back], ids=["jvp", "vjp"])
@pytest.mark.parametrize("kind", RULED)
def test_rules_with_collectives(kind: str, f: Any) -> None:
    """JAX traces a rule when the function is differentiated, inside of the map, where it must find the axes of the
    map."""
    mapped = RULED[kind](f)
    have, want = (
        grad(lambda x: fx.numpy.sum(interop.from_jax(mapped, x)(x) ** 2))(X),
        jax.grad(lambda x: jnp.sum(mapped(x) ** 2))(X),
    )
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-4, atol=1e-4)


def test_axes_that_the_compiler_divides_are_refused() -> None:
    f = over(summed, GRID, axis_names={"i"})
    with pytest.raises(TranslationError) as e:
        interop.from_jax(f, X)
    assert e.value.message == "from_jax: shard_map: the compiler divides the axes ['j']"
    assert e.value.remedy == "name all axes of the mesh in axis_names"
